//! A checker that compares the requests to an engine and its answers with the definition of leases.
//!
//! An [`Event`] is a request to the engine, with two instants by a clock of the test: one before the request was sent,
//! and one after its answer arrived. Each request is one atomic action, so it happened at some instant between the two.
//! [`check`] looks for such instants for all requests, resource by resource. Each answer must be the one that a
//! [`State`] without concurrency would have given. If there are such instants, the history is *linearizable*. (This is
//! the depth-first search of Wing and Gong. As suggested by Lowe, it never visits the same place twice; nor does it
//! visit a place from which less is possible than from a visited one.)
//!
//! The instant of an expiry is not known exactly, because nothing happens then. It lies between two times. `from` is
//! the earliest time at which the lease can have expired: it counts from the earliest instant at which the lease can
//! have been granted, by a clock that is fast by the percentage in [`Clocks`]. `until` is the time by which the lease
//! must have expired: it counts from the arrival of the answer, by a clock that is slow by the same percentage, plus δ.
//! So some histories pass that are not histories of leases, but every history of leases passes.
//!
//! A request without an answer may have been carried out at any time after it was sent, or never.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt::Write as _,
    time::Duration,
};

use keylatch_lease::{
    Owner, Resource, Term, Token,
    engine::{Answer, Gone, Left, Record, Want},
};

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    Acquire { resource: Resource, owner: Owner, want: Want, term: Option<Term> },
    Renew { resource: Resource, owner: Owner, token: Token, term: Option<Term> },
    Release { resource: Resource, owner: Owner, token: Option<Token> },
    ReleaseAll { owner: Owner },
    Look { resource: Resource },
    OwnedBy { owner: Owner },
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    Acquired(Answer),
    Renewed(Left),
    Released(Gone),
    ReleasedAll(Vec<Resource>),
    Looked(Option<Record>),
    Owned(Vec<(Resource, Token)>),
    /// No answer is known: it was lost, or the caller did not wait for it.
    Nothing,
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) asked: Asked,
    pub(crate) said: Said,
    /// A time before the request was sent.
    pub(crate) start: Duration,
    /// A time after the answer arrived; `None` if it did not arrive.
    pub(crate) end: Option<Duration>,
}

impl Event {
    fn resource(&self) -> Option<&Resource> {
        match &self.asked {
            Asked::Acquire { resource, .. }
            | Asked::Renew { resource, .. }
            | Asked::Release { resource, .. }
            | Asked::Look { resource } => Some(resource),
            Asked::ReleaseAll { .. } | Asked::OwnedBy { .. } => None,
        }
    }

    /// Returns the token that the tenure has according to the answer, and whether the tenure began with this event.
    fn token(&self) -> Option<(Token, bool)> {
        match (&self.asked, &self.said) {
            (_, &Said::Acquired(Answer::Granted { token, resumed, .. })) => Some((token, !resumed)),
            (_, Said::Looked(Some(record))) => Some((record.token, false)),
            (&Asked::Renew { token, .. }, Said::Renewed(Left::For(_) | Left::Forever)) => Some((token, false)),
            (&Asked::Release { token: Some(token), .. }, Said::Released(Gone::Released)) => Some((token, false)),
            _ => None,
        }
    }

    /// Returns whether the event can have changed something, or has an answer to check.
    fn matters(&self) -> bool {
        self.said != Said::Nothing || !matches!(self.asked, Asked::Look { .. } | Asked::OwnedBy { .. })
    }
}

/// The accuracy of the clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// The percentage by which the rates of the engine's clock and the test's may differ.
    pub(crate) percent: u32,
    /// The longest delay of a lease's end.
    pub(crate) delta: Duration,
}

/// The present tenure of the resource.
#[derive(Clone, Debug, PartialEq)]
struct Tenure {
    owner: Owner,
    /// The token; `None` if the answer that contains it was lost.
    token: Option<Token>,
    /// The earliest and the latest time at which the tenure can have begun.
    began: (Duration, Duration),
    /// The time before which it cannot have expired. `None` if it never expires.
    from: Option<Duration>,
    /// The time by which it has expired; `None` if it never expires, or if this is unknown.
    until: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
struct State {
    tenure: Option<Tenure>,
    /// The greatest known token.
    last: Option<Token>,
    /// The earliest possible present time.
    now: Duration,
}

/// Returns the end of a lease with this term, after `stretch` has been applied to the term's durations.
fn ends(term: Term, began: Duration, now: Duration, stretch: impl Fn(Duration) -> Duration) -> Option<Duration> {
    let stretched = Term { idle: term.idle.map(&stretch), total: term.total.map(&stretch) };
    stretched.end(began, now)
}

/// Returns the later of two times; `None` means never.
fn later(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.zip(other).map(|(one, other)| one.max(other))
}

impl State {
    /// Returns the possible states before an event that happens between `start` and `end`: with the tenure, or after
    /// its expiry.
    fn at(&self, start: Duration, end: Duration) -> Vec<State> {
        let now = self.now.max(start);
        let mut may = Vec::with_capacity(2);
        match &self.tenure {
            None => may.push(State { now, ..self.clone() }),
            Some(tenure) => {
                if tenure.until.is_none_or(|until| now <= until) {
                    may.push(State { now, ..self.clone() });
                }
                if let Some(from) = tenure.from.filter(|&from| from <= end) {
                    may.push(State { now: now.max(from), tenure: None, last: self.last });
                }
            }
        }
        may.retain(|state| state.now <= end);
        may
    }

    /// Applies an event, and returns the state after it if its answer is right.
    fn apply(mut self, resource: &Resource, event: &Event, clocks: Clocks) -> Option<State> {
        let times = Times { now: self.now, end: event.end, clocks };
        let is_right = match (&event.asked, &event.said) {
            (Asked::Acquire { owner, want, term, .. }, said) => self.acquire(owner, *want, *term, said, &times),
            (Asked::Renew { owner, token, term, .. }, said) => self.renew(owner, *token, *term, said, &times),
            (Asked::Release { owner, token, .. }, said) => self.release(owner, *token, said),
            (Asked::ReleaseAll { owner }, said) => self.release_all(resource, owner, said),
            (Asked::Look { .. }, Said::Looked(looked)) => self.look(looked.as_ref()),
            (Asked::OwnedBy { owner }, Said::Owned(owned)) => {
                self.owned(owner, owned.iter().find(|(of, _)| of == resource).map(|(_, token)| *token))
            }
            _ => false,
        };
        is_right.then_some(self)
    }

    /// Returns whether every history that can follow `other` can also follow this state. Both must have the same owner
    /// and token.
    fn covers(&self, other: &State) -> bool {
        let is_longer = match (&self.tenure, &other.tenure) {
            (Some(this), Some(other)) => this.covers(other),
            _ => true,
        };
        self.now <= other.now && self.last <= other.last && is_longer
    }

    /// Returns whether this owner holds the resource.
    fn is_of(&self, owner: &Owner) -> bool {
        self.tenure.as_ref().is_some_and(|tenure| tenure.owner == *owner)
    }

    /// Returns whether the present tenure can have this token, which is known from then on. There must be a tenure.
    fn has(&mut self, token: Token) -> bool {
        let Some(tenure) = &mut self.tenure else { return false };
        if let Some(known) = tenure.token {
            return known == token;
        }
        tenure.token = Some(token);
        self.last.replace(token) < Some(token)
    }

    /// Acquires, and returns whether `said` can be the answer.
    fn acquire(&mut self, owner: &Owner, want: Want, term: Option<Term>, said: &Said, times: &Times) -> bool {
        let is_mine = self.is_of(owner);
        let resumes = is_mine && matches!(want, Want::Any | Want::Mine);
        let begins = term.filter(|_| match want {
            Want::Any | Want::New => self.tenure.is_none(),
            Want::Fresh => is_mine || self.tenure.is_none(),
            Want::Mine => false,
        });
        match (said, &mut self.tenure, begins) {
            (Said::Acquired(Answer::Granted { token, resumed: true, .. }), Some(tenure), _) if resumes => {
                tenure.extend(term, times);
                self.has(*token)
            }
            (Said::Acquired(Answer::Granted { token, resumed: false, .. }), _, Some(term)) => {
                let is_right = self.last.is_none_or(|last| *token > last);
                self.last = Some(*token);
                self.tenure = Some(Tenure::begin(owner, Some(*token), term, times));
                is_right
            }
            (Said::Acquired(Answer::Busy { owner: holder, .. }), Some(tenure), None) if !resumes => {
                tenure.owner == *holder
            }
            (Said::Acquired(Answer::Free), None, _) => want == Want::Mine || term.is_none(),
            // The answer says nothing about the resource.
            (Said::Acquired(Answer::TooShort { .. } | Answer::Quarantined { .. }), ..) => true,
            (Said::Nothing, Some(tenure), _) if resumes => {
                tenure.extend(term, times);
                true
            }
            (Said::Nothing, _, begins) => {
                if let Some(term) = begins {
                    self.tenure = Some(Tenure::begin(owner, None, term, times));
                }
                true
            }
            _ => false,
        }
    }

    /// Renews, and returns whether `said` can be the answer.
    fn renew(&mut self, owner: &Owner, token: Token, term: Option<Term>, said: &Said, times: &Times) -> bool {
        let known = self.tenure.as_mut().filter(|tenure| tenure.owner == *owner);
        let it = known.filter(|tenure| tenure.token.is_none_or(|known| known == token));
        match (said, it) {
            (Said::Renewed(Left::Nothing), it) => it.is_none_or(|tenure| tenure.token.is_none()),
            (Said::Renewed(Left::For(_) | Left::Forever), Some(tenure)) => {
                tenure.extend(term, times);
                self.has(token)
            }
            (Said::Nothing, it) => {
                if let Some(tenure) = it {
                    tenure.extend(term, times);
                }
                true
            }
            _ => false,
        }
    }

    /// Releases, and returns whether `said` can be the answer.
    fn release(&mut self, owner: &Owner, token: Option<Token>, said: &Said) -> bool {
        let is_it = |tenure: &Tenure| token.is_none_or(|token| tenure.token.is_none_or(|known| known == token));
        let ends = self.tenure.as_ref().is_some_and(|tenure| tenure.owner == *owner && is_it(tenure));
        match (said, &self.tenure) {
            (Said::Released(Gone::Released), _) if ends => {
                let is_right = token.is_none_or(|token| self.has(token));
                self.tenure = None;
                is_right
            }
            (Said::Nothing, _) if ends => {
                self.tenure = None;
                true
            }
            (Said::Released(Gone::NotHeld), None) | (Said::Nothing, _) => true,
            (Said::Released(Gone::NotOwner(holder)), Some(tenure)) => {
                tenure.owner == *holder && !(ends && (token.is_none() || tenure.token.is_some()))
            }
            _ => false,
        }
    }

    /// Releases all leases of an owner, and returns whether `said` can be the answer.
    fn release_all(&mut self, resource: &Resource, owner: &Owner, said: &Said) -> bool {
        let is_mine = self.is_of(owner);
        self.tenure = self.tenure.take().filter(|_| !is_mine);
        !matches!(said, Said::ReleasedAll(gone) if gone.contains(resource) != is_mine)
    }

    /// Returns whether the record fits the state of the resource.
    fn look(&mut self, looked: Option<&Record>) -> bool {
        match (&self.tenure, looked) {
            (None, None) => true,
            (Some(tenure), Some(record)) => tenure.owner == record.owner && self.has(record.token),
            _ => false,
        }
    }

    /// Returns whether the owner can hold the resource with this token; with `None`, whether it can be without the
    /// resource.
    fn owned(&mut self, owner: &Owner, token: Option<Token>) -> bool {
        match (self.is_of(owner), token) {
            (false, None) => true,
            (true, Some(token)) => self.has(token),
            _ => false,
        }
    }
}

/// The times of an event.
struct Times {
    /// The earliest time at which the event can have happened.
    now: Duration,
    /// The time at which its answer arrived; `None` if it did not.
    end: Option<Duration>,
    clocks: Clocks,
}

impl Times {
    /// Returns the earliest end of a tenure that began at `began`; `None` if it never ends.
    fn early(&self, term: Term, began: Duration) -> Option<Duration> {
        ends(term, began, self.now, |time| time - time / 100 * self.clocks.percent)
    }

    /// Returns the latest end of a tenure that began at `began`; `None` if it never ends, or if the answer was lost,
    /// because the request may then have been carried out at any time.
    fn late(&self, term: Term, began: Duration) -> Option<Duration> {
        let Clocks { percent, delta } = self.clocks;
        ends(term, began, self.end?, |time| time.saturating_add(time / 100 * percent).saturating_add(delta))
    }
}

impl Tenure {
    fn begin(owner: &Owner, token: Option<Token>, term: Term, times: &Times) -> Self {
        let began = (times.now, times.end.unwrap_or(Duration::MAX));
        let (from, until) = (times.early(term, began.0), times.late(term, began.1));
        Tenure { owner: owner.clone(), token, began, from, until }
    }

    /// Moves the end to the end of a term, unless the latter is earlier.
    fn extend(&mut self, term: Option<Term>, times: &Times) {
        if let Some(term) = term {
            self.from = later(self.from, times.early(term, self.began.0));
            self.until = later(self.until, times.late(term, self.began.1));
        }
    }

    /// Returns whether this tenure may end at every instant at which the other one may.
    fn covers(&self, other: &Tenure) -> bool {
        let never = Duration::MAX;
        self.began.0 <= other.began.0
            && self.began.1 >= other.began.1
            && self.from.unwrap_or(never) <= other.from.unwrap_or(never)
            && self.until.unwrap_or(never) >= other.until.unwrap_or(never)
    }
}

/// The number of visited places after which the search stops without a verdict. The histories of correct engines took a
/// few hundred, and up to 10,000 if one answer in ten was lost. A wrong history may have millions, each of which takes
/// a kilobyte and, unoptimised, 0.1 ms.
const PLACES: usize = 200_000;

/// The number of answered events that an event without an answer must explain, for the search to look first at places
/// where it has happened. If this is large, the search tries all ways in which a few events without an answer may have
/// happened before it lets another one happen; if it is small, it takes long to revise an early wrong guess. 5 was
/// fastest with the histories of a random load, and 10 with those of the tests.
const WORTH: usize = 8;

/// Checks that leases can have this history; otherwise returns what is wrong with it.
pub(crate) fn check(events: &[Event], clocks: Clocks) -> Result<(), String> {
    let resources: BTreeSet<_> = events.iter().filter_map(Event::resource).collect();
    for resource in resources {
        let of_it: Vec<_> = events
            .iter()
            .filter(|event| event.matters() && event.resource().is_none_or(|other| other == resource))
            .collect();
        tokens_grow(&of_it)
            .and_then(|()| linearizable(resource, of_it, clocks))
            .map_err(|wrong| format!("{resource}: {wrong}"))?;
    }
    Ok(())
}

/// Checks a consequence of linearizability, with a plainer message: a tenure that began after another has a greater
/// token.
fn tokens_grow(events: &[&Event]) -> Result<(), String> {
    let mut began: Vec<_> = events
        .iter()
        .filter_map(|event| match event.said {
            Said::Acquired(Answer::Granted { token, resumed: false, .. }) => Some((event.start, event.end?, token)),
            _ => None,
        })
        .collect();
    began.sort_by_key(|&(_, end, token)| (end, token));
    let mut seen = HashSet::new();
    let mut greatest: Vec<(Duration, Token)> = Vec::new(); // sorted by the end, with the greatest token up to it
    for &(start, end, token) in &began {
        if !seen.insert(token) {
            return Err(format!("two tenures have the token {token}"));
        }
        let before = greatest.partition_point(|&(end, _)| end < start);
        let earlier = before.checked_sub(1).and_then(|at| greatest.get(at)).map(|&(_, earlier)| earlier);
        if let Some(earlier) = earlier.filter(|&earlier| earlier > token) {
            return Err(format!("token {token} was granted after {earlier}"));
        }
        let most = greatest.last().map_or(token, |&(_, most)| most.max(token));
        greatest.push((end, most));
    }
    Ok(())
}

/// A place in the search: the events that have happened, and the state after them.
#[derive(Clone)]
struct Place {
    done: Done,
    /// The unanswered events that have happened.
    lost: BTreeSet<usize>,
    state: State,
}

/// The answered events that have happened.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done {
    /// The index before which all events have happened.
    first: usize,
    /// The later events that have happened.
    beyond: BTreeSet<usize>,
}

impl Done {
    fn len(&self) -> usize {
        self.first + self.beyond.len()
    }

    fn contains(&self, event: usize) -> bool {
        event < self.first || self.beyond.contains(&event)
    }

    fn insert(&mut self, event: usize) {
        self.beyond.insert(event);
        while self.beyond.remove(&self.first) {
            self.first += 1;
        }
    }
}

/// The parts that two places must have in common to be compared: the answered events that have happened, and the owner
/// and token of the tenure.
type Shared = (Done, Option<(Owner, Option<Token>)>);

/// The visited places, except those from which no more is possible than from one that was visited earlier.
#[derive(Default)]
struct Visited {
    places: HashMap<Shared, Vec<(BTreeSet<usize>, State)>>,
    len: usize,
}

impl Visited {
    /// Adds a place if something may be possible from it that is not possible from the others. Returns whether it did.
    fn insert(&mut self, place: &Place) -> bool {
        let Place { done, lost, state } = place;
        let holder = state.tenure.as_ref().map(|tenure| (tenure.owner.clone(), tenure.token));
        let others = self.places.entry((done.clone(), holder)).or_default();
        // Events without an answer need not happen, so the fewer of them have happened, the more is possible.
        if others.iter().any(|(fewer, other)| fewer.is_subset(lost) && other.covers(state)) {
            return false;
        }
        others.push((lost.clone(), state.clone()));
        self.len += 1;
        true
    }
}

fn linearizable(resource: &Resource, mut events: Vec<&Event>, clocks: Clocks) -> Result<(), String> {
    // The events without an answer come last and are tried last, because they need not have happened.
    events.sort_by_key(|event| (event.end.is_none(), event.start));
    let answered = events.partition_point(|event| event.end.is_some());
    let lost = Lost::new(&events[answered..]);
    let tokens = Tokens::new(&events[..answered]);
    let state = State { tenure: None, last: None, now: Duration::ZERO };
    let done = Done { first: 0, beyond: BTreeSet::new() };
    // The places to visit, by a measure of what is left: first those where many answered events have happened, and few
    // without an answer, because more is possible from such places.
    let mut places = BTreeMap::from([(answered, vec![Place { done, lost: BTreeSet::new(), state }])]);
    let mut visited = Visited::default();
    let mut furthest = (0, String::new());
    while let Some(mut nearest) = places.first_entry() {
        let Some(place) = nearest.get_mut().pop() else {
            nearest.remove();
            continue;
        };
        if place.done.first == answered {
            return Ok(());
        }
        if visited.len > PLACES {
            return Err(format!("the history is too long to be decided. {}", furthest.1));
        }
        if !visited.insert(&place) {
            continue;
        }
        let happened = place.done.len() + place.lost.len();
        if happened > furthest.0 {
            furthest = (happened, describe(&events[..answered], &place));
        }
        // An event that is answered before another was sent must happen before it.
        let mut due = Duration::MAX;
        let mut next = Vec::new();
        for (at, event) in events.iter().enumerate().take(answered).skip(place.done.first) {
            if event.start > due {
                break;
            }
            if !place.done.contains(at) {
                next.push(at);
                due = due.min(event.end.unwrap_or(Duration::MAX));
            }
        }
        next.retain(|&at| events[at].start <= due);
        for at in lost.next(&place.lost, due).map(|at| answered + at).chain(next.into_iter().rev()) {
            let event = events[at];
            for state in place.state.at(event.start, due.min(event.end.unwrap_or(Duration::MAX))) {
                let before = (at >= answered).then(|| state.clone());
                let Some(state) = state.apply(resource, event, clocks) else { continue };
                if before.is_some_and(|before| before == state) {
                    continue; // a request without an answer that changes nothing
                }
                let Place { mut done, mut lost, .. } = place.clone();
                match at.checked_sub(answered) {
                    Some(at) => drop(lost.insert(at)),
                    None => done.insert(at),
                }
                if !tokens.allow(&done, state.last) {
                    continue;
                }
                let left = answered - done.len() + WORTH * lost.len();
                places.entry(left).or_default().push(Place { done, lost, state });
            }
        }
    }
    Err(format!("no order explains the answers. {}", furthest.1))
}

/// The answered events that concern one tenure, and that show its token.
struct Tokens(
    /// The token, whether an earlier event began the tenure, and the index of the event; in ascending order.
    Vec<(Token, bool, usize)>,
);

impl Tokens {
    fn new(events: &[&Event]) -> Self {
        let token = |(at, event): (usize, &&Event)| event.token().map(|(token, is_new)| (token, !is_new, at));
        let mut tokens: Vec<_> = events.iter().enumerate().filter_map(token).collect();
        tokens.sort_unstable();
        Tokens(tokens)
    }

    /// Returns whether the answers that are left can follow this token. Tokens grow, so no tenure of a smaller one can.
    fn allow(&self, done: &Done, last: Option<Token>) -> bool {
        let smallest = self.0.iter().find(|&&(.., at)| !done.contains(at));
        let can_follow = |&(token, is_known, _): &(Token, bool, _)| match is_known {
            true => last <= Some(token),
            false => last < Some(token),
        };
        smallest.is_none_or(can_follow)
    }
}

/// The events without an answer.
struct Lost<'a> {
    events: &'a [&'a Event],
    /// For each event, the index of the latest earlier event with the same request.
    equal: Vec<Option<usize>>,
}

impl<'a> Lost<'a> {
    fn new(events: &'a [&'a Event]) -> Self {
        let earlier = |at: usize| (0..at).rev().find(|&earlier| events[earlier].asked == events[at].asked);
        Lost { events, equal: (0..events.len()).map(earlier).collect() }
    }

    /// Returns the events that can happen next, before `due`. Equal requests happen in the order in which they were
    /// sent.
    fn next(&self, happened: &BTreeSet<usize>, due: Duration) -> impl Iterator<Item = usize> {
        (0..self.events.len())
            .take_while(move |&at| self.events[at].start <= due)
            .filter(|at| !happened.contains(at))
            .filter(|&at| self.equal[at].is_none_or(|equal| happened.contains(&equal)))
    }
}

/// Describes the furthest place that the search reached.
fn describe(events: &[&Event], place: &Place) -> String {
    let mut text = format!("The longest one ends with {:?};", place.state);
    let left = events.iter().enumerate().skip(place.done.first).filter(|&(at, _)| !place.done.contains(at));
    for (_, Event { asked, said, start, end }) in left.take(4) {
        let _ = write!(text, "\n  then {asked:?} -> {said:?} ({start:?} to {end:?})");
    }
    text
}

/// A lease that its holder relied on, from one time to another.
#[derive(Clone, Debug)]
pub(crate) struct Sure {
    pub(crate) resource: Resource,
    pub(crate) token: Token,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// Checks that no two holders relied on the same resource at the same time, and that tokens grow with time.
pub(crate) fn no_overlap(holds: &[Sure]) -> Result<(), String> {
    let mut holds: Vec<_> = holds.iter().collect();
    holds.sort_by(|one, other| (&one.resource, one.from).cmp(&(&other.resource, other.from)));
    // The hold with the latest end so far. Every other tenure must begin after that end.
    let mut longest: Option<&Sure> = None;
    for hold in holds {
        let before = longest.filter(|before| before.resource == hold.resource);
        if let Some(before) = before {
            if before.token != hold.token && hold.from < before.until {
                return Err(format!(
                    "two holders relied on the same resource at the same time: {before:?} and {hold:?}"
                ));
            }
            if hold.token < before.token {
                return Err(format!("a later tenure has a smaller token: {before:?}, then {hold:?}"));
            }
        }
        longest = Some(before.filter(|before| before.until > hold.until).unwrap_or(hold));
    }
    Ok(())
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
