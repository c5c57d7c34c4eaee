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

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    future::Future,
    ops::DerefMut,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{
    AcquireError, Expiry, ExpiryPolicy, Grant, LookError, Lost, Owner, ReleaseError, RenewError, Resource, Term, Token,
    attendance::Attendance,
    deferred::Deferred,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Owned, Record, Renewal, Want},
    invalid::Invalid,
    notice::Doubts,
    panics::{self, Panics},
    sync::Mutex,
    tenure::{RenewalQueue, Tenure},
    wait_list::{Due, Look, Outcome, WaitList},
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
            /// Who is to be renewed, on an engine elsewhere.
            renewal_queue: Mutex<RenewalQueue>,
            /// Who is to be looked at, on an engine elsewhere.
            doubts: Arc<Doubts>,
            /// Who is on the wait list, as far as is known without the lock.
            attendance: Arc<Attendance>,
        }
    };
}

#[cfg(feature = "std")]
leases!(= Memory<StdClock>);
#[cfg(not(feature = "std"))]
leases!();

/// Who has a resource: see [`Leases::status`].
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
    /// Who has it.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The number of the tenure.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// How long it lasts, if nobody renews or releases it. `None`: it never expires.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// How many requests of this process wait for it.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.waiters
    }
}

/// How often an engine is asked whose answers get lost.
const TRIES: u32 = 3;

/// How many expired leases are forgotten at a time.
const SWEEP: usize = 1024;

/// What a future gives that is ready when it is first polled.
#[inline]
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("an engine that is LOCAL has a future that is not ready at once"),
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) expiry: Expiry,
    pub(crate) is_fresh: bool,
    /// Whether a tenure of its own owner is in its way as anybody else's. Only for requests that do not wait.
    pub(crate) is_new: bool,
}

/// What came of asking.
pub(crate) enum Asked {
    Granted(GrantInfo),
    /// Somebody has it.
    Busy {
        owner: Owner,
        remaining: Option<Duration>,
    },
}

/// What a grant says beside what was asked for.
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

    /// How many have come to wait or to watch, to be read before [`is_attended`](Self::is_attended).
    ///
    /// Who asks without a look at the wait list, and is told that its owner has the lease, looks whether that is the same still: somebody may
    /// have come meanwhile who was served with that tenure, and who ends it if he goes.
    fn arrivals(&self) -> usize {
        self.attendance.arrivals()
    }

    pub(crate) fn with_wait_list<R>(&self, operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R) -> R {
        let _tidier = Tidier(&self.engine);
        let mut deferred = Deferred::new(); // done behind the lock
        self.locked(&mut deferred, operation)
    }

    fn locked<R>(&self, deferred: &mut Deferred, operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R) -> R {
        let mut wait_list = self.wait_list.lock();
        let result = operation(&mut wait_list, deferred);
        wait_list.publish();
        result
    }

    /// An operation on a resource, those who waited for it being served before.
    pub(crate) fn settled<R>(
        &self,
        resource: &Resource,
        at: Duration,
        operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R,
    ) -> R {
        self.settled_with(None, resource, at, operation)
    }

    /// The same, when a policy has been asked.
    fn settled_with<R>(
        &self,
        mut prepared: Option<Prepared>,
        resource: &Resource,
        mut at: Duration,
        operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R,
    ) -> R {
        let mut operation = Some(operation);
        let mut panics = Panics::new();
        let mut deferred = Deferred::new();
        let result = loop {
            let settled = self.locked(&mut deferred, |wait_list, deferred| {
                let since = prepared.as_ref().and_then(|prepared| wait_list.has_asked(resource, prepared.serial));
                match self.settle(wait_list, resource, at, prepared.take(), since, deferred) {
                    Some(question) => Err(question),
                    None => Ok(operation.take().map(|operation| operation(wait_list, deferred))),
                }
            });
            match settled {
                Ok(Some(result)) => break result,
                Ok(None) => unreachable!("it is settled once"),
                // If the policy panics, that is a no: or its request would keep all others waiting.
                Err(Question { serial, policy, held_for, is_resumed }) => {
                    let answered = Prepared { serial, is_resumed, answer: None };
                    let mut asking = Asking { leases: self, resource, at, answered: Some(answered) };
                    asking.answer(panics.catch(|| policy.remaining(held_for)).flatten());
                    panics.catch(|| drop(policy));
                    // A tenure counts from when its policy has answered, however long that took.
                    at = panics.catch(|| self.engine.now()).map_or(at, |now| now.max(at));
                    prepared = asking.answered.take();
                }
            }
        };
        panics.catch(|| drop(deferred));
        panics.catch(|| self.engine.tidy());
        panics.resume();
        result
    }

    /// Serves those in line, as far as the resource is free: or asks for a policy's answer first. Requests that came later than `since` may not
    /// know when to look, because a policy was being asked.
    fn settle(
        &self,
        wait_list: &mut WaitList,
        resource: &Resource,
        at: Duration,
        prepared: Option<Prepared>,
        since: Option<u64>,
        deferred: &mut Deferred,
    ) -> Option<Question> {
        if !E::LOCAL {
            return None;
        }
        let place = wait_list.find(resource)?;
        if wait_list.is_asking(place) {
            return None;
        }
        let mut has_served = false;
        while let Some(first) = wait_list.first(place) {
            let Ok(record) = at_once(self.engine.look(resource, at)) else {
                wait_list.finish(first, Outcome::AskAlone, deferred);
                continue;
            };
            // Who has it, and who asks again in the same name.
            let wait = record.as_ref().map_or(Some(first), |record| wait_list.first_of(place, &record.owner));
            let Some(wait) = wait else {
                let look = Look::at(record.and_then(|record| at.checked_add(record.remaining?)));
                // Who has a timer finds out about a later time when it has run down.
                let known = wait_list.place(place).look.time();
                let is_sooner = look.time().is_some_and(|at| known.is_none_or(|known| at < known));
                wait_list.look(place, look);
                if self.is_real_time {
                    match since {
                        _ if is_sooner => wait_list.wake_line(place, deferred),
                        Some(since) => wait_list.wake_since(place, since, deferred),
                        None => {}
                    }
                    if has_served {
                        wait_list.wake_first(place, deferred);
                    }
                }
                break;
            };
            let asks = wait_list.wait(wait);
            let (held_for, is_resumed) =
                record.as_ref().map_or((Duration::ZERO, false), |record| (record.held_for, true));
            let term = match &asks.expiry {
                Expiry::Custom(policy) => {
                    let serial = asks.serial;
                    let is_it = |asked: &&Prepared| (asked.serial, asked.is_resumed) == (serial, is_resumed);
                    match prepared.as_ref().filter(is_it) {
                        Some(asked) => as_term(asked.answer),
                        None => {
                            let question = Question { serial, policy: policy.clone(), held_for, is_resumed };
                            wait_list.ask(place, serial, since);
                            return Some(question);
                        }
                    }
                }
                expiry => expiry.term(),
            };
            if term.is_none() && !is_resumed {
                wait_list.finish(wait, Outcome::Refused, deferred);
                continue;
            }
            let want = if is_resumed { Want::Mine } else { Want::New };
            let ask = Ask { resource, owner: &asks.owner, want, term, expiry: &asks.expiry, waiting: true, at };
            let outcome = match at_once(self.engine.acquire(ask)) {
                Ok(answer @ Answer::Granted { resumed, .. }) => {
                    let (owner, expiry) = (asks.owner.clone(), asks.expiry.clone());
                    if !resumed {
                        wait_list.ended(place, deferred);
                        has_served = true;
                    }
                    let request = Request { resource: resource.clone(), owner, expiry, is_fresh: false, is_new: false };
                    let info = GrantInfo::new(&answer, at, E::LOCAL);
                    info.map_or(Outcome::AskAlone, |info| Outcome::Granted(request.into_grant(info)))
                }
                _ => Outcome::AskAlone,
            };
            wait_list.finish(wait, outcome, deferred);
        }
        None
    }

    /// A tenure of this resource has ended, or a new one has begun.
    #[inline]
    pub(crate) fn ended(&self, resource: &Resource, at: Duration) {
        if self.is_attended(resource) {
            self.tell_of_an_end(resource, at);
        }
    }

    #[cold]
    fn tell_of_an_end(&self, resource: &Resource, at: Duration) {
        self.settled(resource, at, |wait_list, deferred| {
            let Some(place) = wait_list.find(resource) else { return };
            wait_list.ended(place, deferred);
            if !E::LOCAL {
                wait_list.send_first(place, deferred);
            }
        });
    }

    /// An engine elsewhere has said that nobody has the resource.
    fn found_free(&self, resource: &Resource) {
        if !E::LOCAL && self.is_attended(resource) {
            self.with_wait_list(|wait_list, deferred| {
                wait_list.find(resource).into_iter().for_each(|place| wait_list.send_first(place, deferred))
            });
        }
    }

    /// A tenure has been looked at, or extended, by somebody who knows of it.
    fn extended(&self, resource: &Resource, token: Token, at: Duration) {
        if self.is_attended(resource) {
            self.settled(resource, at, |wait_list, _| wait_list.know(resource, token));
        }
    }

    /// Serves those who waited for what has expired, and wakes those who wanted to be woken by now.
    pub(crate) fn attend(&self, at: Duration) {
        let _tidier = Tidier(&self.engine);
        let mut deferred = Deferred::new(); // done when all have been served
        if self.attendance.is_any() && self.locked(&mut deferred, |wait_list, _| wait_list.begin_attending(at)) {
            let due = Attending { leases: self, deferred: &mut deferred, is_over: false };
            panics::each(due, |(resource, at)| self.settled(&resource, at, |_, _| ()));
        }
    }
}

/// When a lease ends for its holder, by this process's clock: counted from before the engine was asked, and where the engine has
/// a clock of its own, less one percent for the rates of the two.
#[inline]
fn deadline(remaining: Option<Duration>, at: Duration, is_local: bool) -> Option<Duration> {
    let remaining = remaining?;
    at.checked_add(if is_local { remaining } else { remaining - remaining / 100 })
}

/// How long a lease lasts that is not over; `Some(None)`: it never ends.
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
impl<E: Engine> Leases<E> {
    /// Asks the engine, once those who wait have been served; and again, if the answer got lost. Says whether one was.
    #[inline]
    async fn ask<T, F>(
        &self,
        resource: Option<&Resource>,
        at: Duration,
        make: &(impl Fn() -> F + Sync),
    ) -> Result<(T, bool), E::Error>
    where
        F: Future<Output = Result<T, Fail<E::Error>>> + Send,
    {
        self.ask_with(resource, at, |_| None, make, |_, _| ()).await
    }

    /// The same, `unless` the wait list has the answer; and the wait list is told what the answer was before anybody else sees it.
    #[inline]
    async fn ask_with<T, F>(
        &self,
        resource: Option<&Resource>,
        at: Duration,
        unless: impl FnOnce(&WaitList) -> Option<T> + Send,
        make: &(impl Fn() -> F + Sync),
        tell: impl FnOnce(&mut WaitList, &T) + Send,
    ) -> Result<(T, bool), E::Error>
    where
        F: Future<Output = Result<T, Fail<E::Error>>> + Send,
    {
        if E::LOCAL {
            let answer = match resource.filter(|resource| self.is_attended(resource)) {
                Some(resource) => self.settled(resource, at, |wait_list, _| {
                    let answer = unless(wait_list).map_or_else(|| at_once(make()), Ok);
                    answer.inspect(|answer| tell(wait_list, answer))
                }),
                None => at_once(make()),
            };
            return answer.map(|answer| (answer, false)).map_err(Fail::into_cause);
        }
        let mut tries = 1;
        loop {
            match make().await {
                Ok(answer) => return Ok((answer, tries > 1)),
                Err(Fail::Unknown(_)) if tries < TRIES => tries += 1,
                Err(fail) => return Err(fail.into_cause()),
            }
        }
    }

    /// Asks for a lease. What there is to know of it is told to those who wait and watch.
    #[inline]
    async fn ask_for(
        &self,
        request: &Request,
        want: Want,
        term: &Option<Term>,
        turn: Turn,
    ) -> Result<(Answer, Duration), E::Error> {
        let Request { resource, owner, expiry, .. } = request;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let ending = Ending::new(self, resource, at);
        let ask = Ask { resource, owner, want, term: *term, expiry, waiting: turn == Turn::First, at };
        // While a policy is asked whether the first in line gets it, nobody else does.
        let is_promised = |wait_list: &WaitList| {
            let place = wait_list.find(resource).filter(|&place| want != Want::Mine && wait_list.is_asking(place))?;
            let owner = wait_list.wait(wait_list.first(place)?).owner.clone();
            let is_free = matches!(at_once(self.engine.look(resource, at)), Ok(None));
            is_free.then_some(Answer::Busy { owner, remaining: Some(Duration::ZERO) })
        };
        let know = |wait_list: &mut WaitList, answer: &Answer| {
            if let Answer::Granted { resumed: true, token, .. } = answer {
                wait_list.know(resource, *token);
            }
        };
        let question = || self.engine.acquire(ask);
        let (mut answer, was_lost) = loop {
            let arrived = self.arrivals();
            let was_attended = self.is_attended(resource);
            let (answer, was_lost) = self.ask_with(Some(resource), at, is_promised, &question, know).await?;
            let is_resumed = matches!(answer, Answer::Granted { resumed: true, .. });
            // What was seen with the wait list is known there. Otherwise nobody may have come.
            if !E::LOCAL || was_attended || !is_resumed || self.arrivals() == arrived {
                break (answer, was_lost);
            }
        };
        match &mut answer {
            // The answer that got lost may have been a yes: if not, another request of this owner has it.
            Answer::Busy { owner: other, .. } if was_lost && want == Want::New && other == owner => {
                let (record, _) = self.ask(Some(resource), at, &|| self.engine.look(resource, at)).await?;
                let began_since = |held_for: Duration| held_for <= self.engine.now().saturating_sub(at);
                if record.is_some_and(|record| record.owner == *owner && began_since(record.held_for)) {
                    let ask = Ask { want: Want::Fresh, ..ask };
                    answer = self.ask(Some(resource), at, &|| self.engine.acquire(ask)).await?.0;
                }
            }
            Answer::Granted { resumed, held_for, .. } if was_lost => {
                *resumed &= *held_for > self.engine.now().saturating_sub(at);
            }
            _ => {}
        }
        ending.over();
        match answer {
            Answer::Granted { resumed: false, .. } => self.ended(resource, at),
            Answer::Granted { token, .. } => self.extended(resource, token, at),
            _ => {}
        }
        Ok((answer, at))
    }

    /// Asks for a lease without waiting for it.
    ///
    /// Mostly that is one question. Who has a custom policy, or is behind others, asks first whether it has the lease already.
    #[inline]
    pub(crate) async fn attempt(&self, request: &Request, turn: Turn) -> Result<Asked, AcquireError<E::Error>> {
        request.check()?;
        let Request { resource, expiry, is_fresh, .. } = request;
        let as_it_comes = request.want(turn);
        // Where the engine does not know of those in line, they go first.
        let is_behind = !E::LOCAL && turn == Turn::Outside && self.first_in_line(resource).is_some();
        let mut question = match expiry.term() {
            Some(term) if !is_behind => (as_it_comes, Some(term)),
            _ => (Want::Mine, None),
        };
        let mut begun = None;
        let (mut answer, at) = loop {
            let (want, asked) = &question;
            let (answer, at) = self.ask_for(request, *want, asked, turn).await.map_err(AcquireError::Engine)?;
            if let Answer::Granted { token, resumed: false, .. } = answer {
                begun = Some(token);
            }
            question = match answer {
                // It goes on with its tenure, if its policy says for how long.
                Answer::Granted { held_for, .. } if asked.is_none() && !is_fresh => {
                    match expiry.term().or_else(|| as_term(ask(expiry, held_for))) {
                        Some(resumed) => (Want::Mine, Some(resumed)),
                        None => break (answer, at),
                    }
                }
                Answer::Free if is_behind => {
                    self.found_free(resource);
                    match self.first_in_line(resource) {
                        Some(owner) => return Ok(Asked::Busy { owner, remaining: Some(Duration::ZERO) }),
                        None => (as_it_comes, expiry.term()),
                    }
                }
                Answer::Granted { .. } if asked.is_some() => break (answer, at),
                // A tenure is to begin.
                Answer::Granted { .. } | Answer::Free => (as_it_comes, expiry.term()),
                answer => break (answer, at),
            };
            if question.1.is_none() {
                question.1 = as_term(ask(expiry, Duration::ZERO));
                if question.1.is_none() {
                    return Err(AcquireError::Refused { resource: resource.clone() });
                }
            }
        };
        // An engine that forgot something may begin another tenure when it is asked whether there is one.
        if let Answer::Granted { token, resumed, .. } = &mut answer {
            *resumed &= begun != Some(*token);
        }
        self.asked(request, answer, at)
    }

    #[inline]
    fn asked(&self, request: &Request, answer: Answer, at: Duration) -> Result<Asked, AcquireError<E::Error>> {
        let resource = || request.resource.clone();
        match answer {
            Answer::Busy { owner, remaining } => Ok(Asked::Busy { owner, remaining }),
            Answer::Quarantined { remaining } => Err(AcquireError::Quarantined { resource: resource(), remaining }),
            Answer::TooShort { min } => Err(AcquireError::TtlTooShort { resource: resource(), min }),
            answer => match GrantInfo::new(&answer, at, E::LOCAL) {
                Some(info) => Ok(Asked::Granted(info)),
                None => unreachable!("only who asks for a tenure of its own learns that there is none"),
            },
        }
    }

    fn first_in_line(&self, resource: &Resource) -> Option<Owner> {
        if !self.is_attended(resource) {
            return None;
        }
        self.with_wait_list(|wait_list, _| {
            Some(wait_list.wait(wait_list.first(wait_list.find(resource)?)?).owner.clone())
        })
    }

    #[inline]
    pub(crate) async fn tried(&self, request: &Request) -> Result<GrantInfo, AcquireError<E::Error>> {
        match self.attempt(request, Turn::Outside).await? {
            Asked::Granted(info) => Ok(info),
            Asked::Busy { owner, remaining } => {
                Err(AcquireError::Busy { resource: request.resource.clone(), owner, remaining })
            }
        }
    }

    /// Extends a lease, or looks at it if there is no term: its end, or how it was lost. Others go along in the same request.
    #[inline]
    async fn extend(
        &self,
        held: &Grant,
        term: Option<Term>,
        along: &[Arc<Tenure>],
    ) -> Result<Result<Option<Duration>, Lost>, E::Error> {
        let Grant { resource, owner, token, .. } = held;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let renewal = Renewal { resource, owner, token: *token, term, left: Left::Nothing };
        let renew = || async {
            if !along.is_empty() {
                return self.extend_together(renewal.clone(), along, at).await;
            }
            let mut batch = [renewal.clone()];
            self.engine.renew(&mut batch, at).await?;
            Ok(batch[0].left)
        };
        let know = |wait_list: &mut WaitList, left: &Left| {
            if *left != Left::Nothing {
                wait_list.know(resource, *token);
            }
        };
        let (left, _) = self.ask_with(Some(resource), at, |_| None, &renew, know).await?;
        let Some(remaining) = remaining(left) else { return Ok(Err(self.lost(held).await)) };
        self.extended(resource, *token, at);
        Ok(Ok(self.new_end(held.end, remaining, at)))
    }

    /// The same for a lease and those that are taken along, which learn of it if they were extended.
    #[cold]
    async fn extend_together(
        &self,
        first: Renewal<'_>,
        along: &[Arc<Tenure>],
        at: Duration,
    ) -> Result<Left, Fail<E::Error>> {
        let grants: Vec<Grant> = along.iter().map(|tenure| tenure.state.lock().grant.clone()).collect();
        let others = grants.iter().map(|grant| Renewal {
            resource: &grant.resource,
            owner: &grant.owner,
            token: grant.token,
            term: term_of_renewal(grant.expiry.as_ref()),
            left: Left::Nothing,
        });
        let mut batch: Vec<Renewal<'_>> = core::iter::once(first).chain(others).collect();
        self.engine.renew(&mut batch, at).await?;
        for ((renewal, grant), tenure) in batch[1..].iter().zip(&grants).zip(along) {
            if let Some(remaining) = remaining(renewal.left) {
                tenure.renewed(self.new_end(grant.end, remaining, at), at, Some(self.engine.now()));
            }
        }
        Ok(batch[0].left)
    }

    /// The end of a lease of which so much was left, when that was asked.
    fn new_end(&self, known: Option<Duration>, remaining: Option<Duration>, at: Duration) -> Option<Duration> {
        let end = deadline(remaining, at, E::LOCAL)?;
        if E::LOCAL {
            return Some(end);
        }
        // What this process knows of the end may be later than what it is told now, less one percent: but not later than what it is told.
        let latest = remaining.and_then(|left| self.engine.now().checked_add(left));
        let known = known.into_iter().chain(latest).min();
        Some(known.map_or(end, |known| known.max(end)))
    }

    /// How a tenure ended.
    pub(crate) async fn lost(&self, grant: &Grant) -> Lost {
        let _tidier = Tidier(&self.engine);
        // Later than when the engine was asked, which may have seen a later time than who asked.
        let at = self.engine.now();
        if grant.end.is_some_and(|end| end <= at) {
            return Lost::Expired;
        }
        match self.ask(Some(&grant.resource), at, &|| self.engine.look(&grant.resource, at)).await {
            Ok((Some(_), _)) => Lost::TakenOver,
            Ok((None, _)) => Lost::Released,
            // It has said no, and not why.
            Err(_) => Lost::EngineForgot,
        }
    }

    /// Renews a lease: its new end. Others go along: see [`tenure`](crate::tenure).
    #[inline]
    pub(crate) async fn renewed(
        &self,
        grant: &Grant,
        along: &[Arc<Tenure>],
    ) -> Result<Option<Duration>, RenewError<E::Error>> {
        grant.resource.check()?;
        grant.owner.check()?;
        let mut term = term_of_renewal(grant.expiry.as_ref());
        let mut policy = match &grant.expiry {
            Some(Expiry::Custom(policy)) => Some(policy),
            _ => None,
        };
        loop {
            let end = self.extend(grant, term, along).await.map_err(RenewError::Engine)?.map_err(RenewError::Lost)?;
            if term.is_some() {
                return Ok(end);
            }
            // Nobody asks a policy about a lease that is lost.
            let Some(policy) = policy.take() else {
                return Err(RenewError::NotRenewable { resource: grant.resource.clone() });
            };
            term = as_term(policy.remaining(self.engine.now().saturating_sub(grant.start)));
        }
    }

    #[inline]
    pub(crate) async fn released(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
    ) -> Result<(), ReleaseError<E::Error>> {
        resource.check()?;
        owner.check()?;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let ending = Ending::new(self, resource, at);
        let release = || self.engine.release(resource, owner, token, at);
        let released = self.ask(Some(resource), at, &release).await;
        ending.over();
        self.has_released(resource, token, at, released)
    }

    pub(crate) async fn released_token(&self, resource: &Resource, token: Token) -> Result<(), ReleaseError<E::Error>> {
        resource.check()?;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let ending = Ending::new(self, resource, at);
        let release = || self.engine.release_token(resource, token, at);
        let released = self.ask(Some(resource), at, &release).await;
        ending.over();
        self.has_released(resource, Some(token), at, released)
    }

    /// Tells those whom it concerns what became of a release, and whether an answer was lost.
    fn has_released(
        &self,
        resource: &Resource,
        token: Option<Token>,
        at: Duration,
        released: Result<(Gone, bool), E::Error>,
    ) -> Result<(), ReleaseError<E::Error>> {
        match released {
            Ok((Gone::NotHeld, false)) => self.found_free(resource),
            Ok((Gone::NotOwner(_), false)) => {}
            // An answer that got lost may have been a yes.
            _ => self.ended(resource, at),
        }
        match released.map_err(ReleaseError::Engine)? {
            (Gone::Released, _) => {}
            // It was: nobody else can have ended this tenure.
            (_, true) if token.is_some() => {}
            (Gone::NotHeld, _) => return Err(ReleaseError::NotHeld { resource: resource.clone() }),
            (Gone::NotOwner(owner), _) => return Err(ReleaseError::NotOwner { resource: resource.clone(), owner }),
        }
        Ok(())
    }

    pub(crate) async fn released_all(&self, owner: Owner) -> Result<usize, LookError<E::Error>> {
        owner.check()?;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let release = || self.engine.release_all(&owner, at);
        let released = self.ask(None, at, &release).await;
        if !E::LOCAL && !matches!(released, Ok((_, false))) {
            // Whatever an answer that got lost may have said.
            self.with_wait_list(|wait_list, deferred| wait_list.wake_all(deferred));
        }
        let (released, _) = released.map_err(LookError::Engine)?;
        panics::each(&released, |resource| self.ended(resource, at));
        Ok(released.len())
    }

    pub(crate) async fn swept(&self) -> Result<usize, LookError<E::Error>> {
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let mut removed = 0;
        loop {
            let swept = self.ask(None, at, &|| self.engine.sweep(SWEEP, at)).await.map_err(LookError::Engine)?.0;
            removed += swept;
            if swept < SWEEP {
                break;
            }
        }
        self.attend(at);
        Ok(removed)
    }

    pub(crate) async fn looked(&self, resource: Resource) -> Result<Option<LeaseStatus>, LookError<E::Error>> {
        resource.check()?;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let look = || self.engine.look(&resource, at);
        let (record, _) = self.ask(Some(&resource), at, &look).await.map_err(LookError::Engine)?;
        if record.is_none() {
            self.found_free(&resource);
        }
        let waiters = || {
            self.with_wait_list(|wait_list, _| {
                wait_list.find(&resource).map_or(0, |place| wait_list.place(place).waiting)
            })
        };
        Ok(record.map(|Record { owner, token, remaining, .. }| {
            let waiters = if self.is_attended(&resource) { waiters() } else { 0 };
            LeaseStatus { owner, token, remaining, waiters }
        }))
    }

    pub(crate) async fn grants_of(&self, owner: Owner) -> Result<alloc::vec::Vec<Grant>, LookError<E::Error>> {
        owner.check()?;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let (owned, _) = self.ask(None, at, &|| self.engine.owned_by(&owner, at)).await.map_err(LookError::Engine)?;
        let grant = |owned: Owned| {
            let Record { owner, token, held_for, remaining } = owned.record;
            let (start, end) = (at.saturating_sub(held_for), deadline(remaining, at, E::LOCAL));
            Grant::new(owned.resource, owner, token, true, start, end, owned.expiry)
        };
        Ok(owned.into_iter().map(grant).collect())
    }

    /// When this tenure ends, if it goes on. Where the engine is another process, as far as is known without asking it.
    pub(crate) fn check(&self, grant: &Grant) -> Result<Option<Duration>, Lost> {
        if let Some(end) = self.extended_at_once(grant, None) {
            return Ok(end);
        }
        if E::LOCAL {
            return match at_once(self.extend(grant, None, &[])) {
                Ok(looked) => looked,
                Err(_) => Err(Lost::EngineForgot),
            };
        }
        let at = self.engine.now();
        if grant.end.is_some_and(|end| end <= at) { Err(Lost::Expired) } else { Ok(grant.end) }
    }

    /// Releases as well as can be without waiting for an answer.
    pub(crate) fn let_go(&self, resource: &Resource, owner: &Owner, token: Token) {
        // A clock that panics has no say in whether it goes: then it goes at the latest time that the engine has seen.
        let now = || panics::or_else(|| self.engine.now(), || self.let_go_at(resource, owner, token, Duration::ZERO));
        let mut panics = Panics::new();
        if let Some(at) = panics.catch(now) {
            self.let_go_at(resource, owner, token, at);
        }
        panics.resume();
    }

    fn let_go_at(&self, resource: &Resource, owner: &Owner, token: Token, at: Duration) {
        let _tidier = Tidier(&self.engine);
        panics::each([true, false], |is_first| match is_first {
            true if E::LOCAL => {
                // Nothing is to be done about a lease that is lost.
                let release = || self.engine.release(resource, owner, Some(token), at);
                let _ = at_once(self.ask(Some(resource), at, &release));
            }
            true => self.engine.abandon(resource, owner, token),
            false => self.ended(resource, at),
        });
    }

    /// Those who watch the resource look at it.
    pub(crate) fn wake_watches(&self, resource: &Resource) {
        if self.is_attended(resource) {
            self.with_wait_list(|wait_list, deferred| {
                wait_list.find(resource).into_iter().for_each(|place| wait_list.ended(place, deferred))
            });
        }
    }
}

/// What the commonest calls do where nobody waits or watches, and the engine is in this process: they ask it, with no future around
/// that. They answer if it has said yes. Otherwise nothing has been done, or what can be done again, and the calls above do the rest.
impl<E: Engine> Leases<E> {
    #[inline]
    fn is_at_once(&self, resource: &Resource, owner: &Owner) -> bool {
        E::LOCAL && !self.is_attended(resource) && resource.check().is_ok() && owner.check().is_ok()
    }

    #[inline]
    pub(crate) fn acquired_at_once(&self, request: &Request) -> Option<GrantInfo> {
        let Request { resource, owner, expiry, .. } = request;
        let arrived = self.arrivals();
        if !self.is_at_once(resource, owner) {
            return None;
        }
        let term = Some(expiry.term()?);
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let want = request.want(Turn::Outside);
        let answer = at_once(self.engine.acquire(Ask { resource, owner, want, term, expiry, waiting: false, at }));
        let info = GrantInfo::new(&answer.ok()?, at, E::LOCAL)?;
        if info.resumed && self.arrivals() != arrived {
            return None;
        }
        if !info.resumed {
            self.ended(resource, at);
        }
        Some(info)
    }

    /// The lease's new end.
    #[inline]
    pub(crate) fn renewed_at_once(&self, grant: &Grant) -> Option<Option<Duration>> {
        let term = term_of_renewal(grant.expiry.as_ref())?;
        self.extended_at_once(grant, Some(term))
    }

    #[inline]
    fn extended_at_once(&self, held: &Grant, term: Option<Term>) -> Option<Option<Duration>> {
        let Grant { resource, owner, token, .. } = held;
        if !self.is_at_once(resource, owner) {
            return None;
        }
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let mut batch = [Renewal { resource, owner, token: *token, term, left: Left::Nothing }];
        at_once(self.engine.renew(&mut batch, at)).ok()?;
        let remaining = remaining(batch[0].left)?;
        self.extended(resource, *token, at);
        Some(deadline(remaining, at, E::LOCAL))
    }

    #[inline]
    pub(crate) fn released_at_once(&self, resource: &Resource, owner: &Owner, token: Option<Token>) -> Option<()> {
        if !self.is_at_once(resource, owner) {
            return None;
        }
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let gone = at_once(self.engine.release(resource, owner, token, at));
        matches!(gone, Ok(Gone::Released)).then(|| self.ended(resource, at))
    }
}

/// What a custom policy says; of others nobody asks.
fn ask(expiry: &Expiry, held_for: Duration) -> Option<Duration> {
    match expiry {
        Expiry::Custom(policy) => policy.remaining(held_for),
        _ => None,
    }
}
