//! The waiters of this process, by resource: the front end's own state, for every engine.
//!
//! Each resource that has waiters or watches has a *place*, which is removed with the last of them. A place has
//! - a *line* of waiting requests, in order of arrival. Requests of one owner that would resume a tenure are also
//!   linked with each other: when the owner gets the lease, all of them are served, wherever they stand in the line;
//! - the requests that have been *served* and not polled since: the lease already belongs to their owner (requests that
//!   were refused, or must ask the engine themselves, are counted with them);
//! - the *watches* of tasks that are woken when a tenure begins or ends, or at a given time.
//!
//! Nothing here asks the engine, reads a clock, or wakes a task: wakers are collected in a [`Deferred`].

mod watches;

use alloc::{sync::Arc, vec::Vec};
use core::{task::Waker, time::Duration};

use crate::{
    Expiry, Grant, Owner, Resource, Token,
    attendance::Attendance,
    deferred::Deferred,
    index::Index,
    slab::Slab,
    sync::MAX_WORKERS,
    wheel::{Links, Nodes, Wheel},
};

/// The number of places and watches that one step of a `tick` examines under the lock, which is released between two
/// steps.
const AT_A_TIME: u32 = 256;

const NONE: u32 = u32::MAX;

/// The ends of a list of requests.
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
    /// The request whose policy is being asked, with no lock held. Until the policy has answered, no other request is
    /// served.
    asked: Option<Asked>,
    /// The number of requests that have an [`Outcome`] and have not been polled since.
    unfetched: usize,
    /// The first watch.
    watches: u32,
    /// The earliest time at which the line has to be processed.
    due: Option<Duration>,
    links: Links,
}

struct Asked {
    serial: u64,
    /// The last serial number before policies began to be asked. Requests that have joined the line since have greater
    /// ones.
    since: u64,
}

/// The time at which the waiters should check whether the resource is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Now,
    /// At this time: the end of the current lease, as far as it is known, or an earlier time at which the engine is to
    /// be asked.
    At(Duration),
    /// When they are notified.
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

    /// Returns the time at which the check becomes due; `None` if that does not depend on the time.
    pub(crate) fn time(self) -> Option<Duration> {
        match self {
            Look::At(at) => Some(at),
            Look::Now | Look::WhenTold => None,
        }
    }
}

/// A request that waits, or has an [`Outcome`].
pub(crate) struct Wait {
    /// A unique number, unlike the request's index, which is reused.
    pub(crate) serial: u64,
    place: u32,
    pub(crate) owner: Owner,
    pub(crate) expiry: Expiry,
    pub(crate) is_fresh: bool,
    state: State,
    waker: Option<Waker>,
    in_line: Next,
    /// The neighbours among the requests of the same owner that would resume a tenure.
    in_group: Next,
    /// The last of these requests, if this one is the first.
    last_in_group: u32,
}

enum State {
    InLine,
    Done(Outcome),
}

#[derive(Clone)]
pub(crate) enum Outcome {
    Granted(Grant),
    /// The policy refused.
    Refused,
    /// The request should ask the engine itself, out of turn.
    AskAlone,
}

/// A task that is woken when a tenure begins or ends, or at a given time.
struct Watch {
    place: u32,
    /// The time at which the task is woken even if no tenure has begun or ended.
    at: Option<Duration>,
    /// `None` when the task has been woken.
    waker: Option<Waker>,
    /// The neighbours among the watches of the place.
    next: Next,
    links: Links,
}

/// The next piece of work that is due.
pub(crate) enum Due {
    /// The line of this resource must be settled, as of this time.
    At(Resource, Duration),
    /// This step used up its budget and found no line that is due, but there may be one.
    More,
    /// Nothing more is due: the call has stopped processing due work.
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
    places: Slab<Place>,
    by_resource: Index,
    waits: Slab<Wait>,
    /// For each owner in a line, the first of its requests that would resume a tenure.
    groups: Index,
    wheel: Wheel,
    watches: Slab<Watch>,
    alarms: Wheel,
    serial: u64,
    /// Whether the engine is in this process, so that any call serves the waiters.
    is_local: bool,
    /// The number of calls that process due work, and the time up to which they process it.
    attending: usize,
    attended_until: Duration,
}

impl WaitList {
    pub(crate) fn new(attendance: Arc<Attendance>, is_local: bool) -> Self {
        WaitList {
            attendance,
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

    /// Removes a place if it has no requests and no watches left. Otherwise updates the time at which its line is due.
    fn vacate(&mut self, id: u32) {
        let place = &self.places[id];
        if place.waiting > 0 || place.unfetched > 0 || place.watches != NONE {
            return self.reschedule(id);
        }
        let WaitList { attendance, places, by_resource, wheel, .. } = self;
        wheel.remove(places, id);
        let hash = |id: u32| attendance.hash(&places[id].resource);
        by_resource.remove(hash(id), id, hash);
        attendance.remove(hash(id));
        places.remove(id);
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

/// The methods for the times at which work is due.
impl WaitList {
    /// Sets the time at which the waiters should check again.
    pub(crate) fn look(&mut self, place: u32, look: Look) {
        self.places[place].look = look;
        self.reschedule(place);
    }

    fn reschedule(&mut self, id: u32) {
        let place = &mut self.places[id];
        // The next call serves the waiters that should check now, unless another call already does.
        let now = (self.is_local && place.look == Look::Now && place.asked.is_none()).then_some(Duration::ZERO);
        let look_at = place.look.time().or(now).filter(|_| place.waiting > 0);
        let old = core::mem::replace(&mut place.due, look_at);
        self.wheel.reschedule(&mut self.places, id, old);
    }

    /// Registers a call to process the work that is due at `now`. Returns `false` if [`MAX_WORKERS`] calls do so
    /// already: they process this work, too.
    pub(crate) fn begin_attending(&mut self, now: Duration) -> bool {
        self.attended_until = self.attended_until.max(now);
        let begins = self.attending < MAX_WORKERS;
        self.attending += usize::from(begins);
        begins
    }

    /// Records that a call has stopped processing due work.
    pub(crate) fn end_attending(&mut self) {
        self.attending -= 1;
        if self.attending == 0 {
            self.attended_until = Duration::ZERO;
        }
    }

    /// Returns the next piece of due work, and wakes the watches that are due.
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
                self.end_attending(); // under the same lock, so that no work that others leave to this call is missed
                Due::Nothing
            }
        }
    }

    /// Returns the next time at which work is due.
    pub(crate) fn next_due(&mut self) -> Option<Duration> {
        let WaitList { wheel, places, alarms, watches, .. } = self;
        wheel.next_due(places).into_iter().chain(alarms.next_due(watches)).min()
    }
}

/// The methods for the line of waiters.
impl WaitList {
    /// Adds a request at the end of the line.
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

    /// Puts a request back at the front of the line, because its tenure had ended before it was polled.
    pub(crate) fn join_again(&mut self, id: u32) {
        let place = self.waits[id].place;
        self.places[place].unfetched -= 1;
        self.waits[id].state = State::InLine;
        self.link(id, true);
    }

    /// Returns the first request in line.
    pub(crate) fn first(&self, place: u32) -> Option<u32> {
        Some(self.places[place].line.first).filter(|&id| id != NONE)
    }

    /// Records that the policy of this request is about to be asked. If another policy was asked just before, and the
    /// line has not been put off in the meantime, `since` must be the result of [`has_asked`](Self::has_asked);
    /// otherwise `None`.
    pub(crate) fn ask(&mut self, place: u32, serial: u64, since: Option<u64>) {
        self.places[place].asked = Some(Asked { serial, since: since.unwrap_or(self.serial) });
        self.reschedule(place);
    }

    /// Records that the policy of this request has been asked. Requests that joined the line in the meantime have
    /// greater serial numbers than the result.
    pub(crate) fn has_asked(&mut self, resource: &Resource, serial: u64) -> Option<u64> {
        let place = self.find(resource)?;
        self.places[place].asked.take_if(|asked| asked.serial == serial).map(|asked| asked.since)
    }

    /// Returns whether the policy of a request in line is being asked.
    pub(crate) fn is_asking(&self, place: u32) -> bool {
        self.places[place].asked.is_some()
    }

    /// Returns the first request in line that would resume a tenure of this owner.
    pub(crate) fn first_of(&self, place: u32, owner: &Owner) -> Option<u32> {
        let is = |id: u32| self.waits[id].place == place && self.waits[id].owner == *owner;
        self.groups.find(self.attendance.hash((place, owner)), is)
    }

    /// Takes a request whose outcome is known out of the line, and wakes its task.
    pub(crate) fn finish(&mut self, id: u32, outcome: Outcome, deferred: &mut Deferred) {
        self.unlink(id);
        let wait = &mut self.waits[id];
        deferred.wake(wait.waker.take());
        let place = &mut self.places[wait.place];
        place.unfetched += 1;
        wait.state = State::Done(outcome);
        self.reschedule(self.waits[id].place);
    }

    /// Returns the outcome of a request; `None` while it is in line.
    pub(crate) fn outcome(&self, id: u32) -> Option<&Outcome> {
        match &self.waits[id].state {
            State::InLine => None,
            State::Done(outcome) => Some(outcome),
        }
    }

    /// Stores the waker that is called when the request has an outcome, or should check again.
    pub(crate) fn wake_by(&mut self, id: u32, waker: &mut Option<Waker>, deferred: &mut Deferred) {
        if let Some(waker) = waker.take() {
            deferred.bury_waker(self.waits[id].waker.replace(waker));
        }
    }

    /// Wakes the first in line, which checks whether the resource is free.
    pub(crate) fn wake_first(&mut self, place: u32, deferred: &mut Deferred) {
        if let Some(first) = self.first(place) {
            deferred.wake(self.waits[first].waker.take());
        }
    }

    /// Makes the first in line check now.
    pub(crate) fn send_first(&mut self, place: u32, deferred: &mut Deferred) {
        if self.first(place).is_some() {
            self.look(place, Look::Now);
            self.wake_first(place, deferred);
        }
    }

    /// Wakes all requests in line, because their timers would fire too late.
    pub(crate) fn wake_line(&mut self, place: u32, deferred: &mut Deferred) {
        let mut next = self.places[place].line.first;
        while next != NONE {
            deferred.wake(self.waits[next].waker.take());
            next = self.waits[next].in_line.behind;
        }
    }

    /// Wakes the requests that joined the line after the one with this serial number.
    pub(crate) fn wake_since(&mut self, place: u32, since: u64, deferred: &mut Deferred) {
        let mut next = self.places[place].line.last;
        while next != NONE && self.waits[next].serial > since {
            deferred.wake(self.waits[next].waker.take());
            next = self.waits[next].in_line.before;
        }
    }

    /// Makes each line's first request check now, and wakes all watches.
    pub(crate) fn wake_all(&mut self, deferred: &mut Deferred) {
        let places: Vec<u32> = self.places.ids().collect();
        for place in places {
            self.send_first(place, deferred);
            self.ended(place, deferred);
        }
    }

    /// Removes a request. Returns the token of the tenure that it was granted, if it had been served.
    pub(crate) fn leave(&mut self, id: u32, deferred: &mut Deferred) -> Option<Token> {
        let place = self.waits[id].place;
        let was_first = self.first(place) == Some(id);
        match self.waits[id].state {
            State::InLine => self.unlink(id),
            State::Done(_) => self.places[place].unfetched -= 1,
        }
        let wait = self.waits.remove(id);
        deferred.bury_waker(wait.waker);
        deferred.bury_policy(wait.expiry);
        let served = match wait.state {
            State::Done(Outcome::Granted(grant)) => {
                grant.expiry.into_iter().for_each(|expiry| deferred.bury_policy(expiry));
                Some(grant.token)
            }
            _ => None,
        };
        // The next in line must check from now on. With an engine in this process only its timer matters: the call that
        // frees the resource serves it.
        if was_first {
            if !self.is_local {
                self.places[place].look = Look::Now;
            }
            self.wake_first(place, deferred);
        }
        self.vacate(place);
        served
    }

    /// Removes the first in line, which has acquired the lease from an engine elsewhere. Other requests of its owner
    /// ask for the same tenure, and the next in line watches the resource and checks at `next`.
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

    /// Removes the first in line, whose request failed, usually because the engine has not answered. All others ask at
    /// once: if they asked one after another, each would wait for the full timeout.
    pub(crate) fn leave_unanswered(&mut self, id: u32, deferred: &mut Deferred) {
        let place = self.waits[id].place;
        while let Some(first) = self.first(place) {
            self.finish(first, Outcome::AskAlone, deferred);
        }
        self.leave(id, deferred);
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

    /// Makes this request the first of its owner's group, of which `last` is the last.
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
