//! The front end: everything that is the same for all engines.
//!
//! Each call reads the clock, asks the engine, and wakes the waiters and watchers that its outcome concerns. The call
//! that frees a resource, or finds it free, serves the waiters. If the engine is in this process, the call serves them
//! itself, under the wait list's lock; and before a call looks at a resource that has waiters, it *settles* their line.
//! So no call sees a resource that is free and has waiters, except while a waiter's policy is being asked. If the
//! engine is on a server, the call wakes the first in line, which asks the engine.
//!
//! A resource without waiters or watchers has no place on the wait list, and calls for it ask the engine without
//! taking the list's lock. No waiter is missed: it registers before it asks the engine, and a call that frees a
//! resource looks for waiters after it has freed it. So one of the two sees the other.
//!
//! A waiter that is served has the lease before it is polled, and may be dropped before it learns of the lease. The
//! tenure then ends, unless another request of its owner has learned of it. Only the engine can decide this atomically,
//! so its record says whether the owner knows of the tenure: see [`Engine::abandon`].

mod asking;
mod at_once;
mod ending;
mod listing;
mod waiters;

use alloc::{boxed::Box, sync::Arc};
use core::{ops::DerefMut, time::Duration};

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
pub(crate) use listing::Entry;

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
            /// The leases to be renewed; used with an engine on a server.
            renewal_queue: Mutex<RenewalQueue>,
            /// The tenures in doubt, which their holders should check; used with an engine on a server.
            doubts: Arc<Doubts>,
            /// A summary of the wait list that is read without its lock.
            attendance: Arc<Attendance>,
        }
    };
}

#[cfg(feature = "std")]
leases!(= Memory<StdClock>);
#[cfg(not(feature = "std"))]
leases!();

/// The owner of a resource, and the lease that it has: see [`Leases::status`].
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
/// assert_eq!((status.held_for(), status.remaining()), (Duration::ZERO, Some(Duration::from_secs(60))));
/// assert_eq!(status.waiters(), 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) since: Duration,
    pub(crate) held_for: Duration,
    pub(crate) remaining: Option<Duration>,
    pub(crate) waiters: usize,
}

impl LeaseStatus {
    /// Returns the owner.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the number of the tenure.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the time at which the tenure began, by the clock of the [`Leases`], which is that of
    /// [`Engine::now`](crate::engine::Engine::now).
    #[must_use]
    pub fn since(&self) -> Duration {
        self.since
    }

    /// Returns the time for which the owner has had the lease.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// Returns the time left until the lease expires if it is not renewed; `None` if it never does.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// Returns the number of requests to these [`Leases`] that wait for the resource.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.waiters
    }
}

/// The greatest number of times that a request is sent if its answers are lost.
const TRIES: u32 = 3;

/// The number of expired leases that are removed at a time.
const SWEEP: usize = 1024;

/// A request for a lease.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) expiry: Expiry,
    pub(crate) is_fresh: bool,
    /// Whether the request fails even if its own owner has the lease. Set only for requests that do not wait.
    pub(crate) is_new: bool,
}

/// The outcome of a request.
pub(crate) enum Asked {
    Granted(GrantInfo),
    /// An owner has the lease; or the resource is free, and a waiting request of this owner goes first.
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
    /// Returns these parts of the engine's answer to a request that was made at the time `at`; `None` if it is not a
    /// grant.
    #[inline]
    fn new(answer: &Answer, at: Duration, is_local: bool) -> Option<Self> {
        let Answer::Granted { token, resumed, held_for, remaining } = *answer else { return None };
        Some(GrantInfo { token, resumed, start: at.saturating_sub(held_for), end: deadline(remaining, at, is_local) })
    }
}

/// The position of a request relative to the waiters of this process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The request is not in line: the waiters go before it.
    Outside,
    /// The request is the first in line.
    First,
}

/// The policy of a waiting request, which the call that serves the request must ask with no lock held.
struct Question {
    serial: u64,
    policy: Arc<dyn ExpiryPolicy>,
    held_for: Duration,
    is_resumed: bool,
}

/// The answer to a [`Question`]: the term that the policy grants.
struct Prepared {
    serial: u64,
    is_resumed: bool,
    answer: Option<Duration>,
}

/// A policy that is being asked, with no lock held. If it panics and the panic is not caught, the waiters are served on
/// drop.
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

/// An iterator over the resources that are due.
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

/// A guard that makes the engine drop, at the end of a call, the values whose drop it has postponed, even if the call
/// panics.
pub(crate) struct Tidier<'a, E: Engine>(&'a E);

impl<E: Engine> Drop for Tidier<'_, E> {
    fn drop(&mut self) {
        let mut panics = Panics::new();
        panics.catch(|| self.0.tidy());
        panics.resume();
    }
}

/// The guard of a call that may end a tenure of an engine in this process. If the call panics, waiters and watchers are
/// notified on drop.
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

    /// Disarms the guard: the call has finished without a panic, and notifies waiters and watchers itself.
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

/// Converts a custom policy's answer to a term. `None` and a zero duration both mean a refusal.
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

    /// Returns the conditions under which the request takes the lease.
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

    /// Returns whether the resource may have waiters or watchers.
    #[inline]
    pub(crate) fn is_attended(&self, resource: &Resource) -> bool {
        self.attendance.is_at(resource)
    }
}

/// Returns the end of a lease for its holder, by this process's clock. The time left is counted from before the engine
/// was asked. If the engine has its own clock, one percent is subtracted, because the two clocks may run at different
/// rates.
#[inline]
fn deadline(remaining: Option<Duration>, at: Duration, is_local: bool) -> Option<Duration> {
    let remaining = remaining?;
    at.checked_add(if is_local { remaining } else { remaining - remaining / 100 })
}

/// Returns the time left of an unexpired lease; `Some(None)` if it never expires.
#[inline]
fn remaining(left: Left) -> Option<Option<Duration>> {
    match left {
        Left::Nothing => None,
        Left::For(left) => Some(Some(left)),
        Left::Forever => Some(None),
    }
}

/// Returns the term by which a renewal extends a lease with this policy; `None` if the lease is not renewable, or if a
/// custom policy has to be asked.
#[inline]
fn term_of_renewal(expiry: Option<&Expiry>) -> Option<Term> {
    match expiry {
        None | Some(Expiry::Fixed(_) | Expiry::Custom(_)) => None,
        Some(expiry) => expiry.term(),
    }
}

/// Returns the answer of a custom policy; `None` for other policies, which are not asked.
fn ask(expiry: &Expiry, held_for: Duration) -> Option<Duration> {
    match expiry {
        Expiry::Custom(policy) => policy.remaining(held_for),
        _ => None,
    }
}
