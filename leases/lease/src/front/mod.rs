//! The front end: what is the same for all engines.
//!
//! Each call reads the clock, asks the engine, and tells those whom it concerns. Who waits is served by whoever frees the resource, or
//! finds it free: before a call looks at a resource that somebody waits for, those in line are *settled*, so that nobody ever sees one
//! that is free and waited for. With an engine in this process that is done on the spot, under the wait list's lock; with another,
//! the first in line is woken and asks for itself.
//!
//! Where nobody waits and nobody watches there are no places on the wait list, and the calls ask the engine without a look at it. Nobody is
//! forgotten by that: who waits is on the wait list before it asks, and who frees looks at the wait list after it has freed, so
//! that one of the two sees the other.

mod asking;
mod at_once;
mod ending;
mod waiters;

use alloc::{boxed::Box, sync::Arc};
use core::{
    future::Future,
    ops::DerefMut,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{
    Expiry, ExpiryPolicy, Grant, Owner, Resource, Term, Token,
    attendance::Attendance,
    deferred::Deferred,
    engine::{Answer, Engine, Left, Want},
    invalid::Invalid,
    notice::Doubts,
    panics::Panics,
    sync::Mutex,
    tenure::RenewalQueue,
    wait_list::{Due, WaitList},
};
#[cfg(feature = "std")]
use crate::{Memory, StdClock};

macro_rules! leases {
    ($($default:tt)*) => {
        /// Leases of resources to owners: see the [crate's page](crate).
        ///
        /// # Examples
        /// ```
        /// use std::time::Duration;
        ///
        /// use keylatch_lease::{AcquireError, Leases, Owner};
        ///
        /// let leases = Leases::in_memory();
        /// let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
        /// let grant = leases.try_acquire_now(("invoice", "2024-17"), &jane, Duration::from_secs(600)).unwrap();
        /// let busy = leases.try_acquire_now(("invoice", "2024-17"), &joe, Duration::from_secs(600));
        /// assert!(matches!(busy, Err(AcquireError::Busy { owner, .. }) if owner == jane));
        /// leases.release_now(&grant).unwrap();
        /// ```
        pub struct Leases<E: Engine $($default)*> {
            pub(crate) engine: E,
            pub(crate) is_real_time: bool,
            wait_list: Mutex<Box<WaitList>>,
            /// The leases to be renewed, on an engine elsewhere.
            renewal_queue: Mutex<RenewalQueue>,
            /// The waiters that should look, on an engine elsewhere.
            doubts: Arc<Doubts>,
            /// The waiters on the wait list, as far as they are known without the lock.
            attendance: Arc<Attendance>,
        }
    };
}

#[cfg(feature = "std")]
leases!(= Memory<StdClock>);
#[cfg(not(feature = "std"))]
leases!();

/// The owner of a resource: see [`Leases::status`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease::{Leases, ManualClock, Owner};
///
/// let leases = Leases::in_memory_with(ManualClock::new());
/// let jane = Owner::named("jane");
/// let grant = leases.try_acquire_now("report", &jane, Duration::from_secs(60)).unwrap();
/// let status = leases.status_now("report").unwrap().unwrap();
/// assert_eq!((status.owner(), status.token()), (&jane, grant.token()));
/// assert_eq!((status.remaining(), status.waiters()), (Some(Duration::from_secs(60)), 0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) remaining: Option<Duration>,
    pub(crate) waiters: usize,
}

impl LeaseStatus {
    /// Its owner.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The number of the tenure.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The time left until it expires, if it is not renewed or released; `None` if it never does.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// The number of requests of this process that wait for it.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.waiters
    }
}

/// The number of times a request is sent when its answers are lost.
const TRIES: u32 = 3;

/// The number of expired leases that are removed at a time.
const SWEEP: usize = 1024;

/// The output of a future that must be ready on its first poll.
#[inline]
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("an engine that is LOCAL has a future that is not ready at once"),
    }
}

/// The request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) expiry: Expiry,
    pub(crate) is_fresh: bool,
    /// Whether a tenure of its own owner is in its way as anybody else's. Only for requests that do not wait.
    pub(crate) is_new: bool,
}

/// The outcome of a request.
pub(crate) enum Asked {
    Granted(GrantInfo),
    /// Somebody has it.
    Busy {
        owner: Owner,
        remaining: Option<Duration>,
    },
}

/// The parts of a grant that the request did not name.
pub(crate) struct GrantInfo {
    token: Token,
    resumed: bool,
    start: Duration,
    pub(crate) end: Option<Duration>,
}

impl GrantInfo {
    /// Engine's answer, to what it was asked at that time; `None` if that is no lease.
    #[inline]
    fn new(answer: &Answer, at: Duration, is_local: bool) -> Option<Self> {
        let Answer::Granted { token, resumed, held_for, remaining } = *answer else { return None };
        Some(GrantInfo { token, resumed, start: at.saturating_sub(held_for), end: deadline(remaining, at, is_local) })
    }
}

/// How a request stands to those who wait in this process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It comes in passing: those in line go before it.
    Outside,
    /// It is the first in line.
    First,
}

/// A policy that somebody else's call has to ask, with no lock held.
struct Question {
    serial: u64,
    policy: Arc<dyn ExpiryPolicy>,
    held_for: Duration,
    is_resumed: bool,
}

/// Its answer.
struct Prepared {
    serial: u64,
    is_resumed: bool,
    answer: Option<Duration>,
}

/// A policy that is being asked, with no lock held. If that panics, and nobody catches it, those in line are served all the same.
struct Asking<'a, E: Engine> {
    leases: &'a Leases<E>,
    resource: &'a Resource,
    at: Duration,
    answered: Option<Prepared>,
}

impl<E: Engine> Asking<'_, E> {
    fn answer(&mut self, answer: Option<Duration>) {
        if let Some(answered) = &mut self.answered {
            answered.answer = answer;
        }
    }
}

impl<E: Engine> Drop for Asking<'_, E> {
    fn drop(&mut self) {
        if let Some(answered) = self.answered.take() {
            self.leases.settled_with(Some(answered), self.resource, self.at, |_, _| ());
        }
    }
}

/// The resources that are due, until there are none.
struct Attending<'a, E: Engine> {
    leases: &'a Leases<E>,
    deferred: &'a mut Deferred,
    is_over: bool,
}

impl<E: Engine> Iterator for Attending<'_, E> {
    type Item = (Resource, Duration);

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        loop {
            let due = self.leases.locked(self.deferred, |wait_list, deferred| {
                let due = wait_list.attend(deferred);
                if let (false, Due::At(resource, _)) = (E::LOCAL, &due) {
                    wait_list.find(resource).into_iter().for_each(|place| wait_list.wake_first(place, deferred));
                }
                due
            });
            match due {
                Due::At(resource, at) => return Some((resource, at)),
                Due::More => self.leases.wait_list.give_way(),
                Due::Nothing => {
                    self.is_over = true;
                    return None;
                }
            }
        }
    }
}

impl<E: Engine> Drop for Attending<'_, E> {
    fn drop(&mut self) {
        if !self.is_over {
            self.leases.locked(self.deferred, |wait_list, _| wait_list.end_attending());
        }
    }
}

/// Drops what is left to be dropped at the end of a call, whatever becomes of the call.
pub(crate) struct Tidier<'a, E: Engine>(&'a E);

impl<E: Engine> Drop for Tidier<'_, E> {
    fn drop(&mut self) {
        let mut panics = Panics::new();
        panics.catch(|| self.0.tidy());
        panics.resume();
    }
}

/// A call that may end a tenure of an engine in this process. If it panics when it has, those who wait and watch are told all the
/// same.
pub(crate) struct Ending<'a, E: Engine> {
    leases: &'a Leases<E>,
    resource: &'a Resource,
    at: Duration,
    is_over: bool,
}

impl<'a, E: Engine> Ending<'a, E> {
    pub(crate) fn new(leases: &'a Leases<E>, resource: &'a Resource, at: Duration) -> Self {
        Ending { leases, resource, at, is_over: !E::LOCAL }
    }

    /// It has not panicked: the caller knows what has become of the tenure.
    fn over(mut self) {
        self.is_over = true;
    }
}

impl<E: Engine> Drop for Ending<'_, E> {
    fn drop(&mut self) {
        if !self.is_over {
            self.leases.ended(self.resource, self.at);
        }
    }
}

/// A custom policy's answer as a term. Nothing, and no time at all, both mean no.
fn as_term(answer: Option<Duration>) -> Option<Term> {
    answer.filter(|left| !left.is_zero()).map(|left| Term { idle: Some(left), total: None })
}

impl Request {
    /// # Panics
    /// If the policy has a duration that is zero.
    #[track_caller]
    pub(crate) fn new(resource: Resource, owner: Owner, expiry: Expiry) -> Self {
        expiry.assert_not_zero();
        Request { resource, owner, expiry, is_fresh: false, is_new: false }
    }

    fn check(&self) -> Result<(), Invalid> {
        self.resource.check()?;
        self.owner.check()
    }

    /// Under which conditions it takes the lease.
    #[inline]
    fn want(&self, turn: Turn) -> Want {
        match (self.is_fresh, turn) {
            (false, _) => Want::Any,
            (true, Turn::Outside) if !self.is_new => Want::Fresh,
            (true, _) => Want::New,
        }
    }

    #[inline]
    pub(crate) fn into_grant(self, info: GrantInfo) -> Grant {
        let GrantInfo { token, resumed, start, end } = info;
        Grant::new(self.resource, self.owner, token, resumed, start, end, Some(self.expiry))
    }
}

/// The wait list.
impl<E: Engine> Leases<E> {
    pub(crate) fn new(engine: E) -> Self {
        let is_real_time = engine.is_real_time();
        let attendance = Arc::new(Attendance::new());
        Leases {
            engine,
            is_real_time,
            wait_list: Mutex::new(Box::new(WaitList::new(Arc::clone(&attendance), E::LOCAL))),
            renewal_queue: Mutex::new(RenewalQueue::new()),
            doubts: Arc::default(),
            attendance,
        }
    }

    pub(crate) fn renewal_queue(&self) -> impl DerefMut<Target = RenewalQueue> {
        self.renewal_queue.lock()
    }

    pub(crate) fn doubts(&self) -> &Arc<Doubts> {
        &self.doubts
    }

    /// Whether somebody may wait for the resource, or watch it.
    #[inline]
    pub(crate) fn is_attended(&self, resource: &Resource) -> bool {
        self.attendance.is_at(resource)
    }

    /// The number of waiters and watchers so far, to be read before [`is_attended`](Self::is_attended).
    ///
    /// A call that asks without the wait list, and is told that its owner has the lease, checks whether that is still so: another may
    /// have come meanwhile who was served with that tenure, and who ends it if he goes.
    fn arrivals(&self) -> usize {
        self.attendance.arrivals()
    }
}

/// When a lease ends for its holder, by this process's clock: counted from before the engine was asked, and where the engine has
/// a clock of its own, less one percent for the rates of the two.
#[inline]
fn deadline(remaining: Option<Duration>, at: Duration, is_local: bool) -> Option<Duration> {
    let remaining = remaining?;
    at.checked_add(if is_local { remaining } else { remaining - remaining / 100 })
}

/// The time left of an unexpired lease; `Some(None)`: it never expires.
#[inline]
fn remaining(left: Left) -> Option<Option<Duration>> {
    match left {
        Left::Nothing => None,
        Left::For(left) => Some(Some(left)),
        Left::Forever => Some(None),
    }
}

/// By how much renewing extends a lease with this policy, if that depends on nothing else.
#[inline]
fn term_of_renewal(expiry: Option<&Expiry>) -> Option<Term> {
    match expiry {
        None | Some(Expiry::Fixed(_) | Expiry::Custom(_)) => None,
        Some(expiry) => expiry.term(),
    }
}

/// Asking the engine.
/// The path of the most common calls when nobody waits or watches, and the engine is in this process: they ask it, with no future around
/// that. They answer if it has said yes. Otherwise nothing has been done, or what can be done again, and the calls above do the rest.
/// The answer of a custom policy; other policies need none.
fn ask(expiry: &Expiry, held_for: Duration) -> Option<Duration> {
    match expiry {
        Expiry::Custom(policy) => policy.remaining(held_for),
        _ => None,
    }
}
