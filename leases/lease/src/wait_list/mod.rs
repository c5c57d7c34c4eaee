//! The waiters of this process, by resource: the front end's own state, for every engine.
//!
//! A *place* is there for each resource that somebody waits for or watches, and goes with the last of them. It has
//! - a *line* of requests that wait, in order of arrival. Those of one owner that would resume a tenure are linked with each other, too:
//!   when the owner gets the lease they all do, wherever they stand;
//! - the requests that have been *served*: the lease is their owner's already, and they have not been polled since;
//! - the *watches* of those who want to know of the end of a tenure, or to be woken at some time.
//!
//! Nothing here asks the engine, reads a clock, or wakes anybody.

mod watches;

use alloc::{sync::Arc, vec::Vec};
use core::{task::Waker, time::Duration};

use crate::{
    Expiry, Grant, Owner, Resource, Token,
    attendance::Attendance,
    deferred::Deferred,
    index::Index,
    slab::Slab,
    sync::MOST_ATTENDING,
    wheel::{Links, Nodes, Wheel},
};

/// The number of places and watches that one step of a `tick` examines under the lock, which is released between two steps.
const AT_A_TIME: u32 = 256;

const NONE: u32 = u32::MAX;

/// Where a list of requests begins and ends.
#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

/// The neighbours of a request in a list.
#[derive(Clone, Copy)]
struct Next {
    before: u32,
    behind: u32,
}

impl Next {
    const ALONE: Next = Next { before: NONE, behind: NONE };
}

pub(crate) struct Place {
    resource: Resource,
    line: Ends,
    /// The number of waiters in line.
    pub(crate) waiting: usize,
    pub(crate) look: Look,
    /// The request whose policy is being asked, with no lock held: until that has answered nobody else is served.
    asked: Option<Asked>,
    /// The number of requests that have been served and not polled since.
    unfetched: usize,
    /// The tenure that began when the last of them was served.
    served: Option<Served>,
    /// The first of the watches.
    watches: u32,
    /// The earliest time at which somebody in line has something to do.
    due: Option<Duration>,
    links: Links,
}

struct Asked {
    serial: u64,
    /// Requests that joined the line while policies were being asked have greater serial numbers.
    since: u64,
}

/// When those in line should look whether it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Now,
    /// When the lease that they wait for ends, as far as is known.
    At(Duration),
    /// When they are told to.
    WhenTold,
}

impl Look {
    pub(crate) fn at(at: Option<Duration>) -> Self {
        at.map_or(Look::WhenTold, Look::At)
    }

    pub(crate) fn is_due(self, now: Duration) -> bool {
        match self {
            Look::Now => true,
            Look::At(at) => at <= now,
            Look::WhenTold => false,
        }
    }

    /// When it is due, if not before.
    pub(crate) fn time(self) -> Option<Duration> {
        match self {
            Look::At(at) => Some(at),
            Look::Now | Look::WhenTold => None,
        }
    }
}

struct Served {
    token: Token,
    unfetched: usize,
    /// Whether somebody of its owner knows that it has it.
    is_known: bool,
}

/// A request that waits, or has been served.
pub(crate) struct Wait {
    /// Never the same again, other than its number.
    pub(crate) serial: u64,
    place: u32,
    pub(crate) owner: Owner,
    pub(crate) expiry: Expiry,
    pub(crate) is_fresh: bool,
    state: State,
    waker: Option<Waker>,
    in_line: Next,
    /// Among those of its owner.
    in_group: Next,
    /// The last of them, where this is the first.
    last_in_group: u32,
}

enum State {
    InLine,
    Done(Outcome),
}

#[derive(Clone)]
pub(crate) enum Outcome {
    Granted(Grant),
    /// The policy said no.
    Refused,
    /// It should ask the engine itself, out of turn.
    AskAlone,
}

/// Somebody who wants to know.
struct Watch {
    place: u32,
    /// Wakes at this time at the latest.
    at: Option<Duration>,
    /// `None`: its task has been woken.
    waker: Option<Waker>,
    /// Among those of the same place.
    next: Next,
    links: Links,
}

/// The next piece of work that is due.
pub(crate) enum Due {
    /// The line of this resource has to be looked at, as of this time.
    At(Resource, Duration),
    /// None was found in this step, but there may be more.
    More,
    /// Nothing is due any more: the call stops attending.
    Nothing,
}

impl Nodes for Slab<Place> {
    fn links(&mut self, id: u32) -> &mut Links {
        &mut self[id].links
    }

    fn due(&self, id: u32) -> Option<Duration> {
        self[id].due
    }
}

impl Nodes for Slab<Watch> {
    fn links(&mut self, id: u32) -> &mut Links {
        &mut self[id].links
    }

    fn due(&self, id: u32) -> Option<Duration> {
        self[id].at
    }
}

pub(crate) struct WaitList {
    /// A summary of the places that is read without the wait list's lock.
    attendance: Arc<Attendance>,
    /// Hashes of the resources whose places have gone, but are still counted in the summary.
    gone: Vec<u64>,
    places: Slab<Place>,
    by_resource: Index,
    waits: Slab<Wait>,
    /// The first request of an owner in a line, of those that would resume a tenure.
    groups: Index,
    wheel: Wheel,
    watches: Slab<Watch>,
    alarms: Wheel,
    serial: u64,
    /// Whether those in line are served by whoever comes by.
    is_local: bool,
    /// The number of calls that attend to due work, and their time limit.
    attending: usize,
    attended_until: Duration,
}

impl WaitList {
    pub(crate) fn new(attendance: Arc<Attendance>, is_local: bool) -> Self {
        WaitList {
            attendance,
            gone: Vec::new(),
            places: Slab::new(),
            by_resource: Index::new(),
            waits: Slab::new(),
            groups: Index::new(),
            wheel: Wheel::new(),
            watches: Slab::new(),
            alarms: Wheel::new(),
            serial: 0,
            is_local,
            attending: 0,
            attended_until: Duration::ZERO,
        }
    }

    /// Takes places that have gone out of the summary, as the last step under the lock. A request that gives up may leave a tenure behind that
    /// is ended under the same lock; a call that saw no place before that would hand this tenure out as its owner's.
    pub(crate) fn publish(&mut self) {
        self.gone.drain(..).for_each(|hash| self.attendance.remove(hash));
    }

    pub(crate) fn find(&self, resource: &Resource) -> Option<u32> {
        self.by_resource.find(self.attendance.hash(resource), |id| self.places[id].resource == *resource)
    }

    pub(crate) fn place(&self, id: u32) -> &Place {
        &self.places[id]
    }

    pub(crate) fn wait(&self, id: u32) -> &Wait {
        &self.waits[id]
    }

    fn find_or_make(&mut self, resource: &Resource) -> u32 {
        if let Some(id) = self.find(resource) {
            return id;
        }
        let id = self.places.insert(Place {
            resource: resource.clone(),
            line: Ends { first: NONE, last: NONE },
            waiting: 0,
            look: Look::WhenTold,
            asked: None,
            unfetched: 0,
            served: None,
            watches: NONE,
            due: None,
            links: Links::new(),
        });
        let WaitList { attendance, places, by_resource, .. } = self;
        let hash = |id: u32| attendance.hash(&places[id].resource);
        by_resource.insert(hash(id), id, hash);
        attendance.add(hash(id));
        id
    }

    /// Forgets a place that nobody needs.
    fn vacate(&mut self, id: u32) {
        let place = &self.places[id];
        if place.waiting > 0 || place.unfetched > 0 || place.watches != NONE {
            return self.reschedule(id);
        }
        let WaitList { attendance, gone, places, by_resource, wheel, .. } = self;
        wheel.remove(places, id);
        let hash = |id: u32| attendance.hash(&places[id].resource);
        by_resource.remove(hash(id), id, hash);
        gone.push(hash(id));
        places.remove(id);
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.attendance.somebody_comes();
        self.serial
    }
}

/// Times.
impl WaitList {
    /// When those in line should look again.
    pub(crate) fn look(&mut self, place: u32, look: Look) {
        self.places[place].look = look;
        self.reschedule(place);
    }

    fn reschedule(&mut self, id: u32) {
        let place = &mut self.places[id];
        // The next call attends to the waiters that should look now, unless another call already does.
        let now = (self.is_local && place.look == Look::Now && place.asked.is_none()).then_some(Duration::ZERO);
        let look_at = place.look.time().or(now).filter(|_| place.waiting > 0);
        let old = core::mem::replace(&mut place.due, look_at);
        self.wheel.reschedule(&mut self.places, id, old);
    }

    /// A call is going to attend to what is due by `now`. `false`: others do already, who will see to this as well.
    pub(crate) fn begin_attending(&mut self, now: Duration) -> bool {
        self.attended_until = self.attended_until.max(now);
        let begins = self.attending < MOST_ATTENDING;
        self.attending += usize::from(begins);
        begins
    }

    /// Nothing is due any more, or the call has to stop.
    pub(crate) fn end_attending(&mut self) {
        self.attending -= 1;
        if self.attending == 0 {
            self.attended_until = Duration::ZERO;
        }
    }

    /// The next that is due. Those who wanted to be woken by now are.
    pub(crate) fn attend(&mut self, deferred: &mut Deferred) -> Due {
        let now = self.attended_until;
        let mut work = AT_A_TIME;
        while let Some(id) = self.alarms.pop_due(&mut self.watches, now, true, &mut work) {
            let watch = &mut self.watches[id];
            watch.at = None;
            deferred.wake(watch.waker.take());
        }
        match self.wheel.pop_due(&mut self.places, now, true, &mut work) {
            Some(id) => {
                let place = &mut self.places[id];
                if place.look.is_due(now) {
                    place.look = Look::Now;
                }
                let resource = place.resource.clone();
                self.reschedule(id);
                Due::At(resource, now)
            }
            None if work == 0 => Due::More,
            None => {
                self.end_attending(); // under the same lock, so that nothing that others left to this call is left behind
                Due::Nothing
            }
        }
    }

    /// When somebody has something to do next.
    pub(crate) fn next_due(&mut self) -> Option<Duration> {
        let WaitList { wheel, places, alarms, watches, .. } = self;
        wheel.next_due(places).into_iter().chain(alarms.next_due(watches)).min()
    }
}

/// The line.
impl WaitList {
    /// A request that waits: the last in line.
    pub(crate) fn join(&mut self, resource: &Resource, owner: &Owner, expiry: &Expiry, is_fresh: bool) -> u32 {
        let place = self.find_or_make(resource);
        let serial = self.next_serial();
        let id = self.waits.insert(Wait {
            serial,
            place,
            owner: owner.clone(),
            expiry: expiry.clone(),
            is_fresh,
            state: State::InLine,
            waker: None,
            in_line: Next::ALONE,
            in_group: Next::ALONE,
            last_in_group: NONE,
        });
        self.link(id, false);
        id
    }

    /// A request that was served, and too late to be of use, becomes the first in line.
    pub(crate) fn join_again(&mut self, id: u32) {
        self.forget_served(id);
        self.waits[id].state = State::InLine;
        self.link(id, true);
    }

    /// The first in line.
    pub(crate) fn first(&self, place: u32) -> Option<u32> {
        Some(self.places[place].line.first).filter(|&id| id != NONE)
    }

    /// The policy of this request is about to be asked. `since`: if others were asked just before, with no look at the line in between, what
    /// [`has_asked`](Self::has_asked) gave for them.
    pub(crate) fn ask(&mut self, place: u32, serial: u64, since: Option<u64>) {
        self.places[place].asked = Some(Asked { serial, since: since.unwrap_or(self.serial) });
        self.reschedule(place);
    }

    /// It has been asked. Requests that joined the line meanwhile have greater serial numbers than this.
    pub(crate) fn has_asked(&mut self, resource: &Resource, serial: u64) -> Option<u64> {
        let place = self.find(resource)?;
        self.places[place].asked.take_if(|asked| asked.serial == serial).map(|asked| asked.since)
    }

    /// Whether a policy of those in line is being asked.
    pub(crate) fn is_asking(&self, place: u32) -> bool {
        self.places[place].asked.is_some()
    }

    /// The first in line of this owner who would resume its tenure.
    pub(crate) fn first_of(&self, place: u32, owner: &Owner) -> Option<u32> {
        let is = |id: u32| self.waits[id].place == place && self.waits[id].owner == *owner;
        self.groups.find(self.attendance.hash((place, owner)), is)
    }

    /// A request has been served, or refused: it leaves the line, and its task is woken.
    pub(crate) fn finish(&mut self, id: u32, outcome: Outcome, deferred: &mut Deferred) {
        self.unlink(id);
        let wait = &mut self.waits[id];
        deferred.wake(wait.waker.take());
        let place = &mut self.places[wait.place];
        place.unfetched += 1;
        if let Outcome::Granted(grant) = &outcome {
            let token = grant.token();
            if place.served.as_ref().is_none_or(|served| served.token != token) {
                place.served = Some(Served { token, unfetched: 0, is_known: grant.is_resumed() });
            }
            if let Some(served) = &mut place.served {
                served.unfetched += 1;
            }
        }
        wait.state = State::Done(outcome);
        self.reschedule(self.waits[id].place);
    }

    /// The outcome of a request, if it has been served or refused.
    pub(crate) fn outcome(&self, id: u32) -> Option<&Outcome> {
        match &self.waits[id].state {
            State::InLine => None,
            State::Done(outcome) => Some(outcome),
        }
    }

    /// Wakes this task when the request has been served or refused, or should look again.
    pub(crate) fn wake_by(&mut self, id: u32, waker: &mut Option<Waker>, deferred: &mut Deferred) {
        if let Some(waker) = waker.take() {
            deferred.bury_waker(self.waits[id].waker.replace(waker));
        }
    }

    /// Wakes the first in line, which is to look.
    pub(crate) fn wake_first(&mut self, place: u32, deferred: &mut Deferred) {
        if let Some(first) = self.first(place) {
            deferred.wake(self.waits[first].waker.take());
        }
    }

    /// The first in line looks, now.
    pub(crate) fn send_first(&mut self, place: u32, deferred: &mut Deferred) {
        if self.first(place).is_some() {
            self.look(place, Look::Now);
            self.wake_first(place, deferred);
        }
    }

    /// Wakes all in line, whose timers are for a later time.
    pub(crate) fn wake_line(&mut self, place: u32, deferred: &mut Deferred) {
        let mut next = self.places[place].line.first;
        while next != NONE {
            deferred.wake(self.waits[next].waker.take());
            next = self.waits[next].in_line.behind;
        }
    }

    /// Wakes those who joined the line after the request with this serial number.
    pub(crate) fn wake_since(&mut self, place: u32, since: u64, deferred: &mut Deferred) {
        let mut next = self.places[place].line.last;
        while next != NONE && self.waits[next].serial > since {
            deferred.wake(self.waits[next].waker.take());
            next = self.waits[next].in_line.before;
        }
    }

    /// All who are first in line look, and all who watch.
    pub(crate) fn wake_all(&mut self, deferred: &mut Deferred) {
        let places: Vec<u32> = self.places.ids().collect();
        for place in places {
            self.send_first(place, deferred);
            self.ended(place, deferred);
        }
    }

    /// Somebody of its owner knows of the tenure: it is no longer passed on when those who were served with it are dropped.
    pub(crate) fn know(&mut self, resource: &Resource, token: Token) {
        if let Some(place) = self.find(resource) {
            self.know_at(place, token);
        }
    }

    fn know_at(&mut self, place: u32, token: Token) {
        if let Some(served) = self.places[place].served.as_mut().filter(|served| served.token == token) {
            served.is_known = true;
        }
    }

    /// A request whose outcome has been fetched goes.
    pub(crate) fn fetch(&mut self, id: u32, deferred: &mut Deferred) {
        if let Some(Outcome::Granted(grant)) = self.outcome(id) {
            let token = grant.token();
            self.know_at(self.waits[id].place, token);
        }
        self.leave(id, deferred);
    }

    /// A request goes. Gives back the tenure that it was served with, if nobody knows of that.
    pub(crate) fn leave(&mut self, id: u32, deferred: &mut Deferred) -> Option<Token> {
        let place = self.waits[id].place;
        let was_first = self.first(place) == Some(id);
        let unknown = match self.waits[id].state {
            State::InLine => {
                self.unlink(id);
                None
            }
            State::Done(_) => self.forget_served(id),
        };
        let wait = self.waits.remove(id);
        deferred.bury_waker(wait.waker);
        deferred.bury_policy(wait.expiry);
        if let State::Done(Outcome::Granted(grant)) = wait.state {
            grant.expiry.into_iter().for_each(|expiry| deferred.bury_policy(expiry));
        }
        // The next one takes over what this one was to find out. Where the engine is in this process that is only when to come: the call
        // that frees the resource serves the next.
        if was_first {
            if !self.is_local {
                self.places[place].look = Look::Now;
            }
            self.wake_first(place, deferred);
        }
        self.vacate(place);
        unknown
    }

    /// The first in line goes, for it has what it asked for. Others of its owner may have it, too; and the next looks out, and asks.
    pub(crate) fn leave_served(&mut self, id: u32, next: Look, deferred: &mut Deferred) {
        let (place, owner) = (self.waits[id].place, self.waits[id].owner.clone());
        self.finish(id, Outcome::AskAlone, deferred);
        while let Some(other) = self.first_of(place, &owner) {
            self.finish(other, Outcome::AskAlone, deferred);
        }
        self.look(place, next);
        self.wake_first(place, deferred);
        self.leave(id, deferred);
    }

    /// The first in line goes, for there was no answer. One after another the others would wait as long as that, each: so all ask.
    pub(crate) fn leave_unanswered(&mut self, id: u32, deferred: &mut Deferred) {
        let place = self.waits[id].place;
        while let Some(first) = self.first(place) {
            self.finish(first, Outcome::AskAlone, deferred);
        }
        self.leave(id, deferred);
    }

    /// A request has been served no longer. Gives back the tenure if that was the last who could know of it.
    fn forget_served(&mut self, id: u32) -> Option<Token> {
        let wait = &self.waits[id];
        let place = &mut self.places[wait.place];
        place.unfetched -= 1;
        let State::Done(Outcome::Granted(grant)) = &wait.state else { return None };
        let served = place.served.as_mut().filter(|served| served.token == grant.token())?;
        served.unfetched -= 1;
        if served.unfetched > 0 {
            return None;
        }
        let is_known = served.is_known;
        place.served = None;
        (!is_known).then_some(grant.token())
    }

    fn link(&mut self, id: u32, at_front: bool) {
        let place = self.waits[id].place;
        let Ends { first, last } = self.places[place].line;
        self.waits[id].in_line =
            if at_front { Next { before: NONE, behind: first } } else { Next { before: last, behind: NONE } };
        let line = &mut self.places[place].line;
        if at_front || first == NONE {
            line.first = id;
        }
        if first == NONE {
            self.places[place].look = Look::Now;
        }
        if !at_front || last == NONE {
            self.places[place].line.last = id;
        }
        match (at_front, first, last) {
            (_, NONE, _) => {}
            (true, first, _) => self.waits[first].in_line.before = id,
            (false, _, last) => self.waits[last].in_line.behind = id,
        }
        self.places[place].waiting += 1;
        if !self.waits[id].is_fresh {
            self.link_group(id, place);
        }
        self.reschedule(place);
    }

    fn link_group(&mut self, id: u32, place: u32) {
        let Some(first) = self.first_of(place, &self.waits[id].owner) else { return self.lead_group(id, id) };
        let before = core::mem::replace(&mut self.waits[first].last_in_group, id);
        self.waits[id].in_group = Next { before, behind: NONE };
        self.waits[before].in_group.behind = id;
    }

    /// This is the first of its owner now.
    fn lead_group(&mut self, id: u32, last: u32) {
        self.waits[id].last_in_group = last;
        let WaitList { attendance, waits, groups, .. } = self;
        let hash = |id: u32| attendance.hash((waits[id].place, &waits[id].owner));
        groups.insert(hash(id), id, hash);
    }

    fn unlink(&mut self, id: u32) {
        let place = self.waits[id].place;
        let Next { before, behind } = core::mem::replace(&mut self.waits[id].in_line, Next::ALONE);
        match before {
            NONE => self.places[place].line.first = behind,
            before => self.waits[before].in_line.behind = behind,
        }
        match behind {
            NONE => self.places[place].line.last = before,
            behind => self.waits[behind].in_line.before = before,
        }
        self.places[place].waiting -= 1;
        if !self.waits[id].is_fresh {
            self.unlink_group(id);
        }
    }

    fn unlink_group(&mut self, id: u32) {
        let Next { before, behind } = core::mem::replace(&mut self.waits[id].in_group, Next::ALONE);
        if behind != NONE {
            self.waits[behind].in_group.before = before;
        }
        if before != NONE {
            self.waits[before].in_group.behind = behind;
            if behind == NONE {
                let Some(first) = self.first_of(self.waits[id].place, &self.waits[id].owner) else { return };
                self.waits[first].last_in_group = before;
            }
            return;
        }
        let WaitList { attendance, waits, groups, .. } = self;
        let hash = |id: u32| attendance.hash((waits[id].place, &waits[id].owner));
        groups.remove(hash(id), id, hash);
        if behind != NONE {
            self.lead_group(behind, self.waits[id].last_in_group);
        }
    }
}
