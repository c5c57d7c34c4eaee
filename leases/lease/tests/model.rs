//! Random schedules of all calls, with time, checked against the contract.
//!
//! One thread plays all parts, on a clock that it moves itself. It polls futures by hand, keeps them, and drops them
//! halfway. It keeps grants, and renews and releases them in any order, including old copies and stale ones.
//!
//! For each resource the oracle knows the owner, the start and end of the lease, and the waiters in order. Where the
//! contract leaves a choice, the oracle keeps every state that the contract allows ([`Guess`]). Each result must fit at
//! least one of these states, and removes those that it does not fit. In particular, the contract does not say *when*
//! an ended lease is noticed: a call for its resource must notice it, and any other call may. So a waiter may be
//! served, and its time may start, at any call after the end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use keylatch_lease::{
    AcquireError, Expiry, ExpiryPolicy, Fence, Grant, Held, Leases, Lost, ManualClock, Memory, Owner, ReleaseError,
    RenewError, Resource, Token,
};
use proptest::prelude::*;

use End::{At, Never};

type Engine = Memory<ManualClock>;

const RESOURCES: usize = 3;
const OWNERS: usize = 3;

// ---- time and policies ----------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    At(Duration),
    Never,
}

impl End {
    fn after(from: Duration, time: Duration) -> End {
        from.checked_add(time).map_or(Never, At)
    }

    fn is_past(self, now: Duration) -> bool {
        self <= At(now)
    }

    fn left(self, now: Duration) -> Option<Duration> {
        match self {
            At(end) => Some(end.saturating_sub(now)),
            Never => None,
        }
    }

    fn from_left(left: Option<Duration>, now: Duration) -> End {
        left.map_or(Never, |left| End::after(now, left))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Policy {
    Fixed(Duration),
    Sliding(Duration),
    UpTo(Duration, Duration),
    Never,
    Custom(Pure),
}

/// A custom policy whose answer depends on `held_for` alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Pure(u8);

impl ExpiryPolicy for Pure {
    fn remaining(&self, held_for: Duration) -> Option<Duration> {
        let millis = Duration::from_millis;
        match self.0 {
            // This lease can be renewed for four milliseconds.
            0 => (held_for < millis(4)).then_some(millis(3)),
            // The time gets ever shorter.
            1 => millis(6).checked_sub(held_for),
            // The policy always refuses.
            2 => None,
            3 => Some(Duration::ZERO),
            // The time gets ever longer.
            4 => Some(held_for + millis(2)),
            // The policy refuses everything after the moment of the first acquire.
            _ => held_for.is_zero().then_some(millis(5)),
        }
    }
}

impl Policy {
    fn pick(n: u8) -> Policy {
        use Policy::{Custom, Fixed, Sliding, UpTo};
        let micros = Duration::from_micros;
        match n % 21 {
            0 => Fixed(micros(10_000)),
            1 => Fixed(micros(1_500)),
            2 => Fixed(Duration::from_secs(2)),
            3 | 4 => Sliding(micros(5_000)),
            5 => Sliding(micros(1_000)),
            6 => Sliding(micros(300)),
            7 => Sliding(Duration::from_secs(1)),
            8 => UpTo(micros(3_000), micros(8_000)),
            9 => UpTo(Duration::MAX, micros(4_000)),
            10 => UpTo(micros(2_000), Duration::MAX),
            11 | 12 => Policy::Never,
            // These ends do not fit a `Duration`, or are far away.
            13 => Sliding(Duration::MAX),
            14 => Fixed(Duration::from_secs(1 << 40)),
            n => Custom(Pure(n - 15)),
        }
    }

    fn expiry(self) -> Expiry {
        match self {
            Policy::Fixed(time) => Expiry::Fixed(time),
            Policy::Sliding(time) => time.into(),
            Policy::UpTo(idle, total) => Expiry::SlidingUpTo { idle, total },
            Policy::Never => Expiry::Never,
            Policy::Custom(pure) => Expiry::Custom(Arc::new(pure)),
        }
    }

    /// Returns the end of a tenure after an acquire; `None` if the policy refuses.
    fn end(self, start: Duration, now: Duration) -> Option<End> {
        match self {
            Policy::Fixed(time) => Some(End::after(start, time)),
            Policy::Sliding(time) => Some(End::after(now, time)),
            Policy::UpTo(idle, total) => Some(End::after(now, idle).min(End::after(start, total))),
            Policy::Never => Some(Never),
            Policy::Custom(pure) => {
                let left = pure.remaining(now - start).filter(|left| !left.is_zero());
                left.map(|left| End::after(now, left))
            }
        }
    }

    /// Returns the end of a tenure after a renewal; `None` if the policy refuses.
    fn renewed(self, start: Duration, now: Duration) -> Option<End> {
        match self {
            Policy::Fixed(_) => None,
            _ => self.end(start, now),
        }
    }
}

// ---- the possible states of a resource ------------------------------------------------------------------------------

type Id = usize;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Ask {
    id: Id,
    owner: usize,
    policy: Policy,
    fresh: bool,
    /// Whether the request was served with a lease that ended before the request was polled.
    again: bool,
}

#[derive(Clone, PartialEq, Debug)]
struct Lease {
    owner: usize,
    tenure: usize,
    /// The token, if a result has reported it.
    token: Option<u64>,
    start: Duration,
    end: End,
    /// The possible policies of the lease.
    policies: Vec<Policy>,
    /// Whether there was a call after the lease's end, so that its record may have been removed.
    passed: bool,
    /// Whether a request of the owner has returned the lease.
    fetched: bool,
    /// Whether a call other than an acquire has returned a grant of the lease.
    listed: bool,
}

/// The result that awaits a request that has left the queue.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    Served {
        tenure: usize,
        /// Whether the request resumed a tenure; `None` if either is allowed.
        resumed: Option<bool>,
        end: End,
        ended: Option<How>,
    },
    Refused,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Expired,
    TakenOver,
    Released,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Front,
    Back,
    Nowhere,
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Guess {
    lease: Option<Lease>,
    queue: Vec<Ask>,
    answers: Vec<(Id, Answer)>,
    tenures: usize,
    /// The least possible token of the present tenure, or of the last one if there is none.
    floor: u64,
    /// The tenures that have ended and whose tokens are known, and how each ended.
    ends: Vec<(u64, How)>,
}

/// The result of a call.
#[derive(Clone, PartialEq, Debug)]
enum Seen {
    Pending,
    /// A `Held` shows neither its end nor whether it is resumed.
    Grant {
        token: u64,
        end: Option<End>,
        resumed: Option<bool>,
    },
    Busy(usize, Option<Duration>),
    Refused,
    Limit,
    Lost(Lost),
    NotRenewable,
    Done,
    NotHeld,
    NotOwner(usize),
    Status(Option<Status>),
    Checked(u64),
    Listed(Option<(u64, Option<Duration>)>),
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Status {
    owner: usize,
    token: u64,
    left: Option<Duration>,
    waiters: usize,
}

enum Expect {
    Exactly(Seen),
    /// A grant of the present tenure with one of these ends; with `None` it may be resumed or not.
    Grant([End; 2], Option<bool>),
    /// A grant of a tenure that has ended.
    Stale,
    /// A status: the owner, the time left and the number of waiters. The model need not know the token beforehand: it
    /// learns the token from the result.
    Status(Option<usize>, Option<Duration>, usize),
    Listed(Option<Duration>),
}

type Guesses = Vec<(Guess, Expect)>;

impl Guess {
    fn lease_at(&self, now: Duration) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| !lease.end.is_past(now))
    }

    fn has_expired(&self, now: Duration) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.end.is_past(now))
    }

    fn begin(&mut self, now: Duration, ask: &Ask, end: End, fetched: bool) -> usize {
        assert!(self.lease.is_none());
        self.tenures += 1;
        self.floor += 1;
        self.lease = Some(Lease {
            owner: ask.owner,
            tenure: self.tenures,
            token: None,
            start: now,
            end,
            policies: vec![ask.policy],
            passed: false,
            fetched,
            listed: false,
        });
        self.tenures
    }

    fn end(&mut self, how: How) {
        let lease = self.lease.take().unwrap();
        for (_, answer) in &mut self.answers {
            if let Answer::Served { tenure, ended, .. } = answer {
                if *tenure == lease.tenure {
                    *ended = Some(how);
                }
            }
        }
        self.ends.extend(lease.token.map(|token| (token, how)));
    }

    /// Applies the policy of a request by which the owner acquires the present tenure again.
    fn resume(&mut self, now: Duration, policy: Policy) -> End {
        let lease = self.lease.as_mut().unwrap();
        match policy.end(lease.start, now) {
            Some(end) => {
                lease.end = lease.end.max(end);
                lease.policies = vec![policy];
            }
            // The contract does not say whether a policy that refuses replaces the old one.
            None => lease.policies.push(policy),
        }
        lease.end
    }

    /// Serves the first in the queue while the resource is free.
    fn serve(&mut self, now: Duration) {
        while self.lease.is_none() && !self.queue.is_empty() {
            let first = self.queue.remove(0);
            let Some(end) = first.policy.end(now, now) else {
                self.answers.push((first.id, Answer::Refused));
                continue;
            };
            let tenure = self.begin(now, &first, end, false);
            self.answers.push((first.id, Answer::Served { tenure, resumed: Some(false), end, ended: None }));
            let (with, queue): (Vec<_>, _) =
                self.queue.drain(..).partition(|other| other.owner == first.owner && !other.fresh);
            self.queue = queue;
            for other in with {
                let end = self.resume(now, other.policy);
                self.answers.push((other.id, Answer::Served { tenure, resumed: Some(true), end, ended: None }));
            }
        }
    }

    /// Ends an expired lease and serves its waiters, as a call for the resource does first.
    fn settle(&mut self, now: Duration) {
        if self.has_expired(now) {
            self.end(How::Expired);
            self.serve(now);
        }
    }

    fn settled(&self, now: Duration) -> Guess {
        let mut guess = self.clone();
        guess.settle(now);
        guess
    }

    fn released(&self, now: Duration) -> Guess {
        let mut guess = self.clone();
        guess.end(How::Released);
        guess.serve(now);
        guess
    }

    fn with(&self, change: impl FnOnce(&mut Lease)) -> Guess {
        let mut guess = self.clone();
        change(guess.lease.as_mut().unwrap());
        guess
    }

    fn busy(lease: &Lease, now: Duration) -> Expect {
        Expect::Exactly(Seen::Busy(lease.owner, lease.end.left(now)))
    }

    /// Makes a request that is not in the queue.
    fn ask(&self, now: Duration, ask: Ask, place: Place) -> Guesses {
        let mut guess = self.settled(now);
        let Some(lease) = guess.lease.clone() else {
            return match ask.policy.end(now, now) {
                Some(end) => {
                    guess.begin(now, &ask, end, true);
                    vec![(guess, Expect::Grant([end; 2], Some(false)))]
                }
                None => vec![(guess, Expect::Exactly(Seen::Refused))],
            };
        };
        if lease.owner != ask.owner {
            if place == Place::Nowhere {
                let mut all = vec![(guess.clone(), Guess::busy(&lease, now))];
                // The contract does not say whether a policy is asked while the resource is busy.
                if ask.policy.end(now, now).is_none() {
                    all.push((guess, Expect::Exactly(Seen::Refused)));
                }
                return all;
            }
            return guess.in_line(ask, place);
        }
        if !ask.fresh {
            let end = guess.resume(now, ask.policy);
            let guess = guess.with(|lease| lease.fetched = true);
            return vec![(guess, Expect::Grant([end; 2], Some(true)))];
        }
        // A fresh request that had its turn and asks again may act like a new request or like a waiter.
        let mut all = if place == Place::Front { guess.in_line(ask, place) } else { vec![] };
        match ask.policy.end(now, now) {
            Some(end) => {
                guess.end(How::TakenOver);
                guess.begin(now, &ask, end, true);
                all.push((guess, Expect::Grant([end; 2], Some(false))));
            }
            // The contract does not say whether a request that is refused counts as asking again.
            None => all.extend(
                [true, lease.fetched]
                    .map(|fetched| (guess.with(|lease| lease.fetched = fetched), Expect::Exactly(Seen::Refused))),
            ),
        }
        all
    }

    fn in_line(&self, ask: Ask, place: Place) -> Guesses {
        // The contract does not say in which order two requests stand in the queue if both have asked again.
        let first = self.queue.iter().take_while(|other| other.again).count();
        let mut places = match place {
            Place::Front => vec![0, first],
            _ => vec![self.queue.len()],
        };
        places.dedup();
        let again = place == Place::Front;
        places.into_iter().map(|at| (self.queued(Ask { again, ..ask }, at), pending())).collect()
    }

    fn queued(&self, ask: Ask, at: usize) -> Guess {
        let mut guess = self.clone();
        guess.queue.insert(at, ask);
        guess
    }

    fn answer(&self, id: Id) -> Option<Answer> {
        self.answers.iter().find(|(of, _)| *of == id).map(|(_, answer)| *answer)
    }

    /// Polls an `acquire` or a `hold`. If its limit has been reached, giving up is always a possible result, too.
    fn poll(&self, now: Duration, ask: Ask, is_first: bool, limit: bool) -> Guesses {
        let id = ask.id;
        let mut all = if let Some(answer) = self.answer(id) {
            let mut guess = self.clone();
            guess.answers.retain(|(of, _)| *of != id);
            match answer {
                Answer::Refused => vec![(guess, Expect::Exactly(Seen::Refused))],
                Answer::Served { tenure, resumed, end, ended: None } if !self.has_expired(now) => {
                    let lease = self.lease.as_ref().unwrap();
                    assert_eq!(lease.tenure, tenure);
                    // The grant may have the end that was computed when the lease was handed over, or the present end.
                    let expected = Expect::Grant([end, lease.end], resumed);
                    vec![(guess.with(|lease| lease.fetched = true), expected)]
                }
                // The lease of this request has expired, so it asks again at the front, either before or after the
                // waiters are served.
                Answer::Served { ended: None | Some(How::Expired), .. } => {
                    let mut all = guess.ask(now, ask, Place::Front);
                    if guess.has_expired(now) {
                        let mut first = guess.queued(Ask { again: true, ..ask }, 0);
                        first.settle(now);
                        all.extend(first.poll(now, ask, false, limit));
                    }
                    all
                }
                // The tenure of this request was released by name, or taken over by a fresh one of its owner, before it
                // was polled. The request may ask again, or return the grant that it had.
                Answer::Served { ended: Some(_), .. } => {
                    let mut all = vec![(guess.clone(), Expect::Stale)];
                    all.extend(guess.ask(now, ask, Place::Front));
                    all.extend(guess.ask(now, ask, Place::Back));
                    all
                }
            }
        } else if is_first {
            self.ask(now, ask, Place::Back)
        } else {
            assert!(self.queue.iter().any(|other| other.id == id));
            vec![(self.clone(), pending())]
        };
        if limit {
            all.retain(|(_, expected)| !matches!(expected, Expect::Exactly(Seen::Pending)));
            // A request that gives up need not look at the leases.
            all.extend(self.cancel(now, id).into_iter().map(|guess| (guess, Expect::Exactly(Seen::Limit))));
        }
        all
    }

    /// Drops the future of a request.
    fn cancel(&self, now: Duration, id: Id) -> Vec<Guess> {
        let mut guess = self.clone();
        guess.queue.retain(|ask| ask.id != id);
        guess.answers.retain(|(of, _)| *of != id);
        let Some(Answer::Served { tenure: mine, resumed, ended: None, .. }) = self.answer(id) else {
            return vec![guess];
        };
        let lease = guess.lease.clone().unwrap();
        assert_eq!(lease.tenure, mine);
        let mut others = 0;
        for (_, answer) in &mut guess.answers {
            let Answer::Served { tenure, resumed: other, .. } = answer else { continue };
            if *tenure == mine {
                others += 1;
                // The contract does not say which of these requests is now the first.
                if resumed != Some(true) && !lease.fetched {
                    *other = None;
                }
            }
        }
        if others > 0 || lease.fetched || lease.end.is_past(now) {
            return vec![guess];
        }
        let mut all = vec![guess.released(now)];
        // A grant that only a renewal or `owned_by` has returned may count as fetched or not.
        if lease.listed {
            all.push(guess);
        }
        all
    }

    /// Renews with a grant. If the tenure has ended, the end in the grant decides whether the loss is an expiry.
    fn renew(&self, now: Duration, grant: &Copy) -> Guesses {
        let guess = self.settled(now);
        let Some(lease) = guess.lease.clone().filter(|lease| lease.token == Some(grant.token)) else {
            let lost = if grant.end.is_past(now) {
                Lost::Expired
            } else if guess.lease.is_some() {
                Lost::TakenOver
            } else {
                Lost::Released
            };
            return vec![(guess, Expect::Exactly(Seen::Lost(lost)))];
        };
        // An older copy carries the policy that it was acquired with. The contract does not say which policy counts.
        let mut all = vec![];
        for &policy in grant.policies.iter().chain(&lease.policies) {
            let expected = match policy.renewed(lease.start, now) {
                None => (guess.clone(), Expect::Exactly(Seen::NotRenewable)),
                Some(end) => {
                    let end = lease.end.max(end);
                    let guess = guess.with(|lease| {
                        (lease.end, lease.listed) = (end, true);
                        if !lease.policies.contains(&policy) {
                            lease.policies.push(policy);
                        }
                    });
                    (guess, Expect::Grant([end; 2], None))
                }
            };
            all.push(expected);
        }
        all
    }

    fn release_if(&self, now: Duration, is_it: impl Fn(&Lease) -> bool) -> Guesses {
        let guess = self.settled(now);
        let (guess, seen) = match &guess.lease {
            Some(lease) if is_it(lease) => (guess.released(now), Seen::Done),
            Some(lease) => (guess.clone(), Seen::NotOwner(lease.owner)),
            None => (guess.clone(), Seen::NotHeld),
        };
        vec![(guess, Expect::Exactly(seen))]
    }

    fn status(&self, now: Duration) -> Guesses {
        let guess = self.settled(now);
        let lease = guess.lease.as_ref();
        let expected = Expect::Status(
            lease.map(|lease| lease.owner),
            lease.and_then(|lease| lease.end.left(now)),
            guess.queue.len(),
        );
        vec![(guess, expected)]
    }

    /// Returns the losses that a `Held` may report; none if it is not lost.
    fn lost(&self, now: Duration, held: &Kept<'_>) -> Vec<Lost> {
        let token = held.token;
        if self.lease_at(now).is_some_and(|lease| lease.token == Some(token)) {
            return vec![];
        }
        let how = self.ends.iter().find(|(of, _)| *of == token).map_or(How::Expired, |(_, how)| *how);
        if how == How::Expired {
            return vec![Lost::Expired];
        }
        // The `Held` may report the cause that it found first, or the one that it finds now.
        let mut all = vec![];
        if held.end.is_past(now) {
            all.push(Lost::Expired);
        }
        if self.floor > token {
            all.push(Lost::TakenOver);
        }
        if how == How::Released || self.lease_at(now).is_none() {
            all.push(Lost::Released);
        }
        all
    }

    fn lost_or(&self, now: Duration, held: &Kept<'_>, otherwise: Seen) -> Guesses {
        let lost = self.lost(now, held);
        if lost.is_empty() {
            return vec![(self.clone(), Expect::Exactly(otherwise))];
        }
        lost.into_iter().map(|lost| (self.clone(), Expect::Exactly(Seen::Lost(lost)))).collect()
    }

    /// Records the token that a result reports for the present lease. Returns whether the model allows that token.
    fn learn(&mut self, token: u64) -> bool {
        let lease = self.lease.as_mut().unwrap();
        if let Some(known) = lease.token {
            return token == known;
        }
        if token < self.floor {
            return false;
        }
        (lease.token, self.floor) = (Some(token), token);
        true
    }

    fn fits(&mut self, expected: &Expect, seen: &Seen) -> bool {
        match (expected, seen) {
            (Expect::Exactly(expected), seen) => expected == seen,
            (Expect::Grant(ends, expected), Seen::Grant { token, end, resumed }) => {
                end.is_none_or(|end| ends.contains(&end))
                    && (expected.is_none() || resumed.is_none() || resumed == expected)
                    && self.learn(*token)
            }
            (Expect::Stale, Seen::Grant { token, .. }) => {
                if self.ends.iter().all(|(of, _)| of != token) {
                    self.ends.push((*token, How::Released));
                }
                *token <= self.floor
            }
            (Expect::Status(None, ..), Seen::Status(seen)) => seen.is_none(),
            (Expect::Status(Some(owner), left, waiters), Seen::Status(Some(seen))) => {
                (seen.owner, seen.left, seen.waiters) == (*owner, *left, *waiters) && self.learn(seen.token)
            }
            (Expect::Listed(expected), Seen::Listed(Some((token, left)))) => expected == left && self.learn(*token),
            _ => false,
        }
    }
}

fn pending() -> Expect {
    Expect::Exactly(Seen::Pending)
}

// ---- the leases and their users ------------------------------------------------------------------------------------

/// A waker that counts its wakes.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

enum Got<'m> {
    Grant(Grant),
    Held(Held<'m, Engine>),
}

type Acquiring<'m> = Pin<Box<dyn Future<Output = Result<Got<'m>, AcquireError<Infallible>>> + 'm>>;

struct Request<'m> {
    resource: usize,
    ask: Ask,
    future: Acquiring<'m>,
    polled: bool,
    /// Whether the limit of the request has been reached; `None` if it has no limit.
    limit: Option<Arc<AtomicBool>>,
    bell: Arc<Bell>,
}

/// A grant, and the oracle's knowledge of it.
struct Copy {
    resource: usize,
    token: u64,
    end: End,
    /// The possible policies of the grant: that of its request, and those that replaced it before the grant was
    /// fetched.
    policies: Vec<Policy>,
    grant: Grant,
}

struct Kept<'m> {
    resource: usize,
    token: u64,
    ttl: Duration,
    /// The end if nothing renews the lease.
    end: End,
    held: Held<'m, Engine>,
}

struct World<'m> {
    leases: &'m Leases<Engine>,
    clock: &'m ManualClock,
    now: Duration,
    resources: [Resource; RESOURCES],
    owners: [Owner; OWNERS],
    guesses: [Vec<Guess>; RESOURCES],
    requests: Vec<Request<'m>>,
    copies: Vec<Copy>,
    held: Vec<Kept<'m>>,
    last_id: Id,
    what: String,
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the output of a future that never waits.
fn ready<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a call waits that must never wait"),
    }
}

/// Returns an incarnation with the name of another owner.
fn an_incarnation() -> Owner {
    Owner::from_id("run:0123456789abcdef:a")
}

impl<'m> World<'m> {
    fn new(leases: &'m Leases<Engine>, clock: &'m ManualClock) -> Self {
        let mut world = World {
            leases,
            clock,
            now: Duration::ZERO,
            resources: [Resource::new("a", "bc"), Resource::new("ab", "c"), "abc".into()],
            owners: [Owner::named("a"), Owner::named("b"), an_incarnation()],
            guesses: std::array::from_fn(|_| vec![Guess::default()]),
            requests: vec![],
            copies: vec![],
            held: vec![],
            last_id: 0,
            what: String::new(),
        };
        // Start away from the origin of the clock.
        world.advance(Duration::from_micros(1_234_567));
        world
    }

    fn owner(&self, owner: &Owner) -> usize {
        self.owners.iter().position(|known| known == owner).expect("the owner is one of the test's")
    }

    fn named(&self, r: usize, resource: &Resource) {
        assert_eq!(resource, &self.resources[r], "{}", self.what);
    }

    // ---- guesses --------------------------------------------------------------------------------------------------

    /// Accounts for a call, which may have noticed expired leases of any resource.
    fn goes_by(&mut self) {
        let now = self.now;
        for guesses in &mut self.guesses {
            for guess in guesses.iter_mut().filter(|guess| guess.has_expired(now)) {
                guess.lease.as_mut().unwrap().passed = true;
            }
            let settled: Vec<_> = guesses.iter().filter(|guess| guess.has_expired(now)).cloned().collect();
            guesses.extend(settled.into_iter().map(|guess| guess.settled(now)));
            dedup(guesses);
        }
    }

    /// Checks that a result fits at least one of the possible states of this resource, and keeps the states that
    /// follow.
    fn saw(&mut self, r: usize, seen: &Seen, next: impl Fn(&Guess) -> Guesses) {
        let before = std::mem::take(&mut self.guesses[r]);
        let mut after: Vec<_> = before
            .iter()
            .flat_map(next)
            .filter_map(|(mut guess, expected)| guess.fits(&expected, seen).then_some(guess))
            .collect();
        dedup(&mut after);
        assert!(!after.is_empty(), "{}: {seen:?} at {:?} does not fit {}", self.what, self.now, lines(&before));
        self.guesses[r] = after;
    }

    fn settle_all(&mut self) {
        for guesses in &mut self.guesses {
            guesses.iter_mut().for_each(|guess| guess.settle(self.now));
            dedup(guesses);
        }
    }

    /// Counts the resources that satisfy `is_one`, and returns the smallest and the greatest possible number.
    fn count(&self, is_one: impl Fn(&Guess) -> bool) -> (usize, usize) {
        let of_all =
            |guesses: &Vec<Guess>| (usize::from(guesses.iter().all(&is_one)), usize::from(guesses.iter().any(&is_one)));
        self.guesses.iter().map(of_all).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    // ---- acquiring -----------------------------------------------------------------------------------------------

    fn seen(&self, r: usize, owner: usize, result: &Result<Got<'m>, AcquireError<Infallible>>) -> Seen {
        match result {
            Ok(Got::Grant(grant)) => {
                self.named(r, grant.resource());
                assert_eq!(grant.owner(), &self.owners[owner], "{}", self.what);
                self.grant(grant)
            }
            Ok(Got::Held(held)) => Seen::Grant { token: held.token().get(), end: None, resumed: None },
            Err(AcquireError::Busy { resource, owner, remaining }) => {
                self.named(r, resource);
                Seen::Busy(self.owner(owner), *remaining)
            }
            Err(AcquireError::Refused { resource }) => {
                self.named(r, resource);
                Seen::Refused
            }
            Err(AcquireError::Limit { resource }) => {
                self.named(r, resource);
                Seen::Limit
            }
            Err(other) => panic!("{}: {other:?}", self.what),
        }
    }

    fn grant(&self, grant: &Grant) -> Seen {
        let end = End::from_left(self.leases.remaining(grant), self.now);
        Seen::Grant { token: grant.token().get(), end: Some(end), resumed: Some(grant.is_resumed()) }
    }

    fn keep(&mut self, r: usize, mut policies: Vec<Policy>, got: Got<'m>) {
        match got {
            Got::Grant(grant) => {
                let end = End::from_left(self.leases.remaining(&grant), self.now);
                let token = grant.token().get();
                let leases = self.guesses[r].iter().filter_map(|guess| guess.lease.as_ref());
                policies.extend(leases.filter(|lease| lease.token == Some(token)).flat_map(|lease| &lease.policies));
                policies.sort_unstable();
                policies.dedup();
                self.copies.push(Copy { resource: r, token, end, policies, grant });
            }
            Got::Held(held) => {
                let Policy::Sliding(ttl) = policies[0] else { unreachable!() };
                let token = held.token().get();
                // The hold was served at the start of its tenure; only a renewal can have moved the end.
                let lease = |guess: &Guess| guess.lease.clone().filter(|lease| lease.token == Some(token));
                let start = self.guesses[r].iter().filter_map(lease).map(|lease| lease.start).min();
                let end = End::after(start.unwrap_or(self.now), ttl);
                self.held.push(Kept { resource: r, token, ttl, end, held });
            }
        }
    }

    fn ask(&mut self, r: usize, owner: usize, policy: Policy, fresh: bool, hold: bool, limited: bool) {
        self.last_id += 1;
        let (leases, resource, named) = (self.leases, self.resources[r].clone(), self.owners[owner].clone());
        let limit = Arc::new(AtomicBool::new(false));
        let came = Arc::clone(&limit);
        let until = poll_fn(move |_| if came.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending });
        let mut policy = policy;
        let future: Acquiring<'m> = if hold {
            let ttl = match policy {
                Policy::Fixed(time) | Policy::Sliding(time) => time,
                _ => Duration::from_millis(4),
            };
            policy = Policy::Sliding(ttl);
            if limited {
                Box::pin(async move { leases.hold(resource, &named, ttl).until(until).await.map(Got::Held) })
            } else {
                Box::pin(async move { leases.hold(resource, &named, ttl).await.map(Got::Held) })
            }
        } else {
            Box::pin(async move {
                let acquire = leases.acquire(resource, &named, policy.expiry());
                let acquire = if fresh { acquire.fresh_token() } else { acquire };
                if limited { acquire.until(until).await } else { acquire.await }.map(Got::Grant)
            })
        };
        let ask = Ask { id: self.last_id, owner, policy, fresh: fresh || hold, again: false };
        let limit = limited.then_some(limit);
        self.requests.push(Request { resource: r, ask, future, polled: false, limit, bell: Arc::default() });
    }

    fn poll(&mut self, at: usize) {
        let now = self.now;
        let request = &mut self.requests[at];
        let (r, ask, is_first, limit) = (
            request.resource,
            request.ask,
            !request.polled,
            request.limit.as_ref().is_some_and(|limit| limit.load(SeqCst)),
        );
        let bell = Arc::new(Bell::default());
        request.bell = Arc::clone(&bell);
        request.polled = true;
        let polled = request.future.as_mut().poll(&mut Context::from_waker(&Waker::from(bell)));
        let Poll::Ready(result) = polled else {
            self.saw(r, &Seen::Pending, |guess| guess.poll(now, ask, is_first, limit));
            return;
        };
        self.requests.swap_remove(at);
        let seen = self.seen(r, ask.owner, &result);
        self.saw(r, &seen, |guess| guess.poll(now, ask, is_first, limit));
        if seen == Seen::Limit {
            self.goes_by();
        }
        if let Ok(got) = result {
            self.keep(r, vec![ask.policy], got);
        }
    }

    fn cancel(&mut self, at: usize) {
        let now = self.now;
        let request = self.requests.swap_remove(at);
        let (r, id) = (request.resource, request.ask.id);
        drop(request);
        self.guesses[r] = self.guesses[r].iter().flat_map(|guess| guess.cancel(now, id)).collect();
        dedup(&mut self.guesses[r]);
        // The drop may notice expired leases before or after the request leaves the queue.
        self.goes_by();
    }

    fn attempt(&mut self, r: usize, owner: usize, policy: Policy, fresh: bool, form: u8) {
        let now = self.now;
        let (resource, named, expiry) = (&self.resources[r], &self.owners[owner], policy.expiry());
        let result = match (form % 3, fresh) {
            (0, false) => self.leases.try_acquire_now(resource, named, expiry),
            (1, false) => self.leases.try_acquire(resource, named, expiry).now(),
            (_, false) => ready(self.leases.try_acquire(resource, named, expiry)),
            (1, true) => self.leases.try_acquire(resource, named, expiry).fresh_token().now(),
            (_, true) => ready(self.leases.try_acquire(resource, named, expiry).fresh_token()),
        };
        let ask = Ask { id: 0, owner, policy, fresh, again: false };
        let result = result.map(Got::Grant);
        let seen = self.seen(r, owner, &result);
        self.saw(r, &seen, |guess| guess.ask(now, ask, Place::Nowhere));
        if let Ok(got) = result {
            self.keep(r, vec![policy], got);
        }
    }

    // ---- with a grant, or a name ---------------------------------------------------------------------------------

    fn renew(&mut self, at: usize, form: u8) {
        let now = self.now;
        let copy = &self.copies[at];
        let r = copy.resource;
        let result = match form % 3 {
            0 => self.leases.renew_now(&copy.grant),
            1 => self.leases.renew(&copy.grant).now(),
            _ => ready(self.leases.renew(&copy.grant)),
        };
        let seen = match &result {
            Ok(grant) => {
                self.named(r, grant.resource());
                assert_eq!((grant.owner(), grant.token()), (copy.grant.owner(), copy.grant.token()), "{}", self.what);
                self.grant(grant)
            }
            Err(RenewError::Lost(lost)) => Seen::Lost(*lost),
            Err(RenewError::NotRenewable { resource }) => {
                self.named(r, resource);
                Seen::NotRenewable
            }
            Err(other) => panic!("{}: {other:?}", self.what),
        };
        let copy = self.copies.swap_remove(at);
        self.saw(r, &seen, |guess| guess.renew(now, &copy));
        if let Ok(grant) = result {
            self.keep(r, copy.policies.clone(), Got::Grant(grant));
        }
        // The older copy is kept, too.
        self.copies.push(copy);
    }

    fn released(&self, r: usize, result: Result<(), ReleaseError<Infallible>>) -> Seen {
        match result {
            Ok(()) => Seen::Done,
            Err(ReleaseError::NotHeld { resource }) => {
                self.named(r, &resource);
                Seen::NotHeld
            }
            Err(ReleaseError::NotOwner { resource, owner }) => {
                self.named(r, &resource);
                Seen::NotOwner(self.owner(&owner))
            }
            Err(other) => panic!("{}: {other:?}", self.what),
        }
    }

    fn release(&mut self, at: usize, form: u8) {
        let (now, copy) = (self.now, &self.copies[at]);
        let (r, token) = (copy.resource, copy.token);
        let result = match form % 3 {
            0 => self.leases.release_now(&copy.grant),
            1 => self.leases.release(&copy.grant).now(),
            _ => ready(self.leases.release(&copy.grant)),
        };
        let seen = self.released(r, result);
        self.saw(r, &seen, |guess| guess.release_if(now, |lease| lease.token == Some(token)));
    }

    fn release_as(&mut self, r: usize, owner: usize, form: u8) {
        let now = self.now;
        let (resource, named) = (&self.resources[r], &self.owners[owner]);
        let result = match form % 3 {
            0 => self.leases.release_as_now(resource, named),
            1 => self.leases.release_as(resource, named).now(),
            _ => ready(self.leases.release_as(resource, named)),
        };
        let seen = self.released(r, result);
        self.saw(r, &seen, |guess| guess.release_if(now, |lease| lease.owner == owner));
    }

    fn release_all(&mut self, owner: usize, form: u8) {
        let now = self.now;
        let named = &self.owners[owner];
        let result = match form % 3 {
            0 => self.leases.release_all_now(named),
            1 => self.leases.release_all(named).now(),
            _ => ready(self.leases.release_all(named)),
        };
        let has = |guess: &Guess| guess.lease_at(now).is_some_and(|lease| lease.owner == owner);
        let (least, most) = self.count(has);
        let count = result.unwrap();
        assert!((least..=most).contains(&count), "{}: {count}, not {least} to {most}", self.what);
        for guesses in &mut self.guesses {
            let only = if least == most { None } else { Some(count) }.filter(|&count| count == least || count == most);
            // If the count is the smallest or the greatest possible, it reveals for each resource whether its lease was
            // counted.
            match only {
                Some(count) if count == most && guesses.iter().any(has) => guesses.retain(has),
                Some(count) if count == least && !guesses.iter().all(has) => guesses.retain(|guess| !has(guess)),
                _ => {}
            }
            for guess in guesses.iter_mut().filter(|guess| has(guess)) {
                *guess = guess.released(now);
            }
            dedup(guesses);
        }
    }

    fn release_expired(&mut self, form: u8) {
        let now = self.now;
        let result = match form % 3 {
            0 => self.leases.release_expired_now(),
            1 => self.leases.release_expired().now(),
            _ => ready(self.leases.release_expired()),
        };
        let (_, most) = self.count(|guess| guess.has_expired(now));
        let (least, _) = self.count(|guess| guess.has_expired(now) && !guess.lease.as_ref().unwrap().passed);
        let count = result.unwrap();
        assert!((least..=most).contains(&count), "{}: {count}, not {least} to {most}", self.what);
        self.settle_all();
    }

    // ---- looking ---------------------------------------------------------------------------------------------------

    fn status(&mut self, r: usize, form: u8) {
        let now = self.now;
        let resource = &self.resources[r];
        let result = match form % 3 {
            0 => self.leases.status_now(resource),
            1 => self.leases.status(resource).now(),
            _ => ready(self.leases.status(resource)),
        };
        let status = result.unwrap().map(|status| Status {
            owner: self.owner(status.owner()),
            token: status.token().get(),
            left: status.remaining(),
            waiters: status.waiters(),
        });
        self.saw(r, &Seen::Status(status), |guess| guess.status(now));
    }

    fn owned_by(&mut self, owner: usize, form: u8) {
        let now = self.now;
        let named = &self.owners[owner];
        let result = match form % 3 {
            0 => self.leases.owned_by_now(named),
            1 => self.leases.owned_by(named).now(),
            _ => ready(self.leases.owned_by(named)),
        };
        let mut grants = result.unwrap();
        for r in 0..RESOURCES {
            let at = grants.iter().position(|grant| grant.resource() == &self.resources[r]);
            let grant = at.map(|at| grants.swap_remove(at));
            let seen = grant.as_ref().map(|grant| {
                assert_eq!(grant.owner(), &self.owners[owner]);
                (grant.token().get(), self.leases.remaining(grant))
            });
            let next = |guess: &Guess| match guess.lease_at(now) {
                Some(lease) if lease.owner == owner => {
                    vec![(guess.with(|lease| lease.listed = true), Expect::Listed(lease.end.left(now)))]
                }
                _ => vec![(guess.clone(), Expect::Exactly(Seen::Listed(None)))],
            };
            self.saw(r, &Seen::Listed(seen), next);
            if let Some(grant) = grant {
                self.keep(r, vec![], Got::Grant(grant));
            }
        }
        assert!(grants.is_empty(), "{}: {grants:?} besides", self.what);
    }

    fn len(&mut self) {
        let (least, most) = self.count(|guess| guess.lease_at(self.now).is_some());
        let len = self.leases.len();
        assert!((least..=most).contains(&len), "{}: {len}, not {least} to {most}", self.what);
    }

    fn tick(&mut self) {
        let next = self.leases.tick();
        self.settle_all();
        let now = self.now;
        let ends = self.guesses.iter().flatten().filter_map(|guess| guess.lease.as_ref()?.end.left(now));
        // If nothing is leased, no tick is necessary, but `tick` may ask for one: the contract does not say when the
        // last record is removed.
        let Some(first) = ends.min() else { return };
        let all_have = |guesses: &Vec<Guess>| {
            guesses.iter().all(|guess| guess.lease.as_ref().is_some_and(|lease| lease.end.left(now) == Some(first)))
        };
        if self.guesses.iter().any(all_have) {
            let next =
                next.unwrap_or_else(|| panic!("{}: no tick is asked for, but a lease ends in {first:?}", self.what));
            assert!(next > Duration::ZERO, "{}: nothing can be due", self.what);
            assert!(next <= first, "{}: {next:?} is too late for {first:?}", self.what);
        }
    }

    /// Checks the time left of each grant, which depends on the grant alone.
    fn grants(&self) {
        for copy in &self.copies {
            assert_eq!(self.leases.remaining(&copy.grant), copy.end.left(self.now), "{}", self.what);
        }
    }

    // ---- Held ------------------------------------------------------------------------------------------------------

    fn check(&mut self, at: usize, least: Option<Duration>) {
        let now = self.now;
        let kept = &self.held[at];
        let r = kept.resource;
        let result = match least {
            Some(least) => kept.held.check_for(least),
            None => kept.held.check(),
        };
        let seen = match result {
            Ok(token) => Seen::Checked(token.get()),
            Err(lost) => Seen::Lost(lost),
        };
        let kept = self.held.swap_remove(at);
        self.saw(r, &seen, |guess| {
            let guess = guess.settled(now);
            let is_held = guess.lost(now, &kept).is_empty();
            let left = guess.lease.as_ref().map(|lease| lease.end).filter(|_| is_held);
            let mut all = guess.lost_or(now, &kept, Seen::Checked(kept.token));
            // If another request of the same tenure has extended the lease, either end may count.
            if let (Some(least), Some(left)) = (least, left) {
                let is_enough = |end: End| end.left(now).is_none_or(|left| left >= least);
                if !is_enough(left) {
                    all.clear();
                }
                if !is_enough(left) || !is_enough(kept.end) {
                    all.push((guess.clone(), Expect::Exactly(Seen::Lost(Lost::TooShort))));
                }
            }
            all
        });
        self.held.push(kept);
    }

    /// Polls `lost` once, and checks whether it is ready.
    fn lost(&mut self, at: usize) {
        let (now, kept) = (self.now, self.held.swap_remove(at));
        let seen = match poll(pin!(kept.held.lost())) {
            Poll::Ready(lost) => Seen::Lost(lost),
            Poll::Pending => Seen::Pending,
        };
        self.saw(kept.resource, &seen, |guess| guess.lost_or(now, &kept, Seen::Pending));
        self.held.push(kept);
    }

    /// Polls a renewal or a run once. The contract does not say when they renew the lease.
    fn renewal(&mut self, at: usize, run: bool) {
        let (now, mut kept) = (self.now, self.held.swap_remove(at));
        let seen = if run {
            match poll(pin!(kept.held.run(async { 7 }))) {
                Poll::Ready(Ok(output)) => {
                    assert_eq!(output, 7);
                    Seen::Done
                }
                Poll::Ready(Err(lost)) => Seen::Lost(lost),
                Poll::Pending => panic!("{}: the work was done", self.what),
            }
        } else {
            match poll(pin!(kept.held.renewal())) {
                Poll::Ready(lost) => Seen::Lost(lost),
                Poll::Pending => Seen::Pending,
            }
        };
        self.saw(kept.resource, &seen, |guess| {
            let mut all = guess.lost_or(now, &kept, if run { Seen::Done } else { Seen::Pending });
            if guess.lost(now, &kept).is_empty() {
                let renewed = guess.with(|lease| lease.end = lease.end.max(End::after(now, kept.ttl)));
                all.push((renewed, Expect::Exactly(if run { Seen::Done } else { Seen::Pending })));
            }
            all
        });
        self.held.push(kept);
    }

    fn let_go(&mut self, at: usize, how: u8) {
        let now = self.now;
        let kept = self.held.swap_remove(at);
        let (r, token) = (kept.resource, kept.token);
        let mine = |lease: &Lease| lease.token == Some(token);
        match how % 4 {
            0 => {
                let grant = kept.held.into_grant();
                self.named(r, grant.resource());
                assert_eq!(grant.token().get(), token);
                self.keep(r, vec![Policy::Sliding(kept.ttl)], Got::Grant(grant));
            }
            1 => {
                let result = ready(kept.held.release());
                let seen = self.released(r, result);
                self.saw(r, &seen, |guess| guess.release_if(now, mine));
            }
            _ => {
                drop(kept);
                // If the tenure has ended already, dropping the `Held` changes nothing.
                for guess in &mut self.guesses[r] {
                    if guess.lease_at(now).is_some_and(mine) {
                        *guess = guess.released(now);
                    }
                }
                dedup(&mut self.guesses[r]);
            }
        }
    }

    // ---- all of the above -------------------------------------------------------------------------------------------

    fn advance(&mut self, time: Duration) {
        self.now += time;
        self.clock.advance(time);
    }

    /// Returns the time until the next lease ends, if that is less than ten seconds.
    fn next_end(&self) -> Option<Duration> {
        let ends = self.guesses.iter().flatten().filter_map(|guess| guess.lease.as_ref()?.end.left(self.now));
        ends.filter(|left| !left.is_zero() && *left < Duration::from_secs(10)).min()
    }

    fn time(&self, n: u8) -> Duration {
        let end = self.next_end().unwrap_or_default();
        match n % 12 {
            0 => Duration::ZERO,
            1 => Duration::from_nanos(1),
            2 => Duration::from_micros(100),
            3 => Duration::from_nanos(999_999),
            4 => Duration::from_millis(1),
            5 => Duration::from_millis(3),
            6 => Duration::from_millis(7),
            7 => Duration::from_secs(1),
            8 | 9 => end,
            10 => end.saturating_sub(Duration::from_nanos(1)),
            _ => end + Duration::from_millis(2),
        }
    }

    fn step(&mut self, step: Step) {
        let (what, r, owner, a, b) = step;
        let pick = |n: usize| (n > 0).then(|| usize::from(b) % n.max(1));
        self.what = format!("{step:?}");
        // Excluded are `release_expired` (28), which must count the leases that no earlier call could have noticed, and
        // advances of the clock (32 to 36), which are not calls.
        if !matches!(what, 28 | 32..=36) {
            self.goes_by();
        }
        let policy = Policy::pick(a);
        match what {
            0..=6 => {
                self.ask(r, owner, policy, b % 4 == 0, what == 6, b % 8 >= 6);
                if a < 200 {
                    self.poll(self.requests.len() - 1);
                }
            }
            7..=13 => {
                let Some(at) = pick(self.requests.len()) else { return };
                self.poll(at);
            }
            14 | 15 => {
                let Some(at) = pick(self.requests.len()) else { return };
                self.cancel(at);
            }
            16 => {
                let Some(at) = pick(self.requests.len()) else { return };
                if let Some(limit) = &self.requests[at].limit {
                    limit.store(true, SeqCst);
                }
            }
            17..=19 => self.attempt(r, owner, policy, b % 3 == 0, b),
            20..=22 => {
                let Some(at) = pick(self.copies.len()) else { return };
                self.renew(at, a);
            }
            23..=25 => {
                let Some(at) = pick(self.copies.len()) else { return };
                self.release(at, a);
            }
            26 => self.release_as(r, owner, a),
            27 => self.release_all(owner, a),
            28 => self.release_expired(a),
            29 => self.status(r, a),
            30 => self.owned_by(owner, a),
            31 => self.len(),
            32..=36 => self.advance(self.time(a)),
            37 | 38 => self.tick(),
            _ => {
                let Some(at) = pick(self.held.len()) else { return };
                match what {
                    39 => self.check(at, None),
                    40 => self.check(at, Some(self.time(a))),
                    41 => self.lost(at),
                    42 => self.renewal(at, a % 2 == 0),
                    _ => self.let_go(at, a),
                }
            }
        }
        self.look();
    }

    /// Checks everything that can be checked without a call that might notice an expiry.
    fn look(&mut self) {
        self.grants();
        for request in self.requests.iter().filter(|request| request.polled) {
            let guesses = &self.guesses[request.resource];
            if guesses.iter().all(|guess| guess.answer(request.ask.id).is_some()) {
                assert!(request.bell.0.load(SeqCst) > 0, "{}: {:?} was not woken", self.what, request.ask);
            }
        }
        for r in 0..RESOURCES {
            // If there are too many possible states, a call to `status` reduces their number.
            if self.guesses[r].len() > 40 {
                self.goes_by();
                self.status(r, 0);
            }
        }
    }

    /// Checks that every waiter gets in as those before it leave, and that nothing is left in the end.
    fn end(&mut self, mut random: u8) {
        self.what = "at the end".into();
        self.goes_by();
        self.tick();
        let mut rounds = 0;
        while !self.requests.is_empty() {
            rounds += 1;
            assert!(
                rounds < 200,
                "{:?} never get in",
                self.requests.iter().map(|request| request.ask).collect::<Vec<_>>()
            );
            self.goes_by();
            for at in (0..self.requests.len()).rev() {
                self.poll(at);
                self.look();
            }
            random = random.wrapping_mul(5).wrapping_add(3);
            for r in 0..RESOURCES {
                let holder =
                    self.leases.status_now(&self.resources[r]).unwrap().map(|status| self.owner(status.owner()));
                self.status(r, random);
                if let Some(owner) = holder {
                    self.release_as(r, owner, random);
                }
                self.look();
            }
        }
        while !self.held.is_empty() {
            self.let_go(usize::from(random) % self.held.len(), 2);
            self.look();
        }
        for owner in 0..OWNERS {
            self.release_all(owner, random);
        }
        for r in 0..RESOURCES {
            self.status(r, random);
            assert_eq!(self.leases.status_now(&self.resources[r]).unwrap().map(|status| status.waiters()), None);
        }
        assert_eq!(self.leases.len(), 0);
        self.grants();
    }
}

fn lines(guesses: &[Guess]) -> String {
    guesses.iter().map(|guess| format!("\n    {guess:?}")).collect()
}

fn dedup(guesses: &mut Vec<Guess>) {
    let mut at = 1;
    while at < guesses.len() {
        if guesses[..at].contains(&guesses[at]) {
            guesses.swap_remove(at);
        } else {
            at += 1;
        }
    }
}

type Step = (u8, usize, usize, u8, u8);

/// A list of steps that is printed on one line.
struct Steps(Vec<Step>);

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

fn run(Steps(steps): &Steps) {
    let clock = ManualClock::new();
    let leases = Leases::in_memory_with(clock.clone());
    let mut world = World::new(&leases, &clock);
    for &step in steps {
        world.step(step);
    }
    world.end(steps.len() as u8);
}

fn steps(resources: usize, owners: usize) -> impl Strategy<Value = Steps> {
    prop::collection::vec((0..46_u8, 0..resources, 0..owners, any::<u8>(), any::<u8>()), 1..60).prop_map(Steps)
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("KEYLATCH_CASES").map_or(4000, |cases| cases.parse().unwrap());
    ProptestConfig { cases: if cfg!(miri) { 4 } else { cases }, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn one_resource(steps in steps(1, OWNERS)) {
        run(&steps);
    }

    #[test]
    fn one_resource_of_two_owners(steps in steps(1, 2)) {
        run(&steps);
    }

    #[test]
    fn several_resources(steps in steps(RESOURCES, OWNERS)) {
        run(&steps);
    }

    #[test]
    fn a_fence_admits_no_older_token(steps in prop::collection::vec((0..4_u8, 0..2_usize, 1..6_u64), 1..40)) {
        let (fence, resources) = (Fence::new(), [Resource::new("a", "bc"), Resource::new("ab", "c")]);
        let mut greatest = [0; 2];
        for (what, r, token) in steps {
            if what == 0 {
                fence.forget(&resources[r]);
                greatest[r] = 0;
            } else {
                let admitted = fence.admit(&resources[r], Token::new(token).unwrap());
                prop_assert_eq!(admitted.is_ok(), token >= greatest[r]);
                greatest[r] = greatest[r].max(token);
            }
        }
    }
}
