//! The futures of the calls.

use alloc::boxed::Box;
#[cfg(feature = "std")]
use core::time::Duration;
use core::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{
    AcquireError, Clock, Expiry, Grant, Held, LeaseStatus, Leases, LookError, Memory, Owner, ReleaseError, RenewError,
    Resource, Token,
    engine::{Engine, at_once},
    front::{Asked, Request, Turn},
    held::{Subscription, Table},
};

/// A boxed future that is kept between polls.
type Kept<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of acquiring.
type Acquired<E> = Result<Grant, AcquireError<<E as Engine>::Error>>;

mod sealed {
    /// A call that never waits for a lease to become free. With leases in memory, it finishes at once.
    pub trait Operation<E: crate::engine::Engine>: Unpin + Send + Sync + 'static {
        type Output;

        fn run(self, leases: &crate::Leases<E>) -> impl core::future::Future<Output = Self::Output> + Send;

        /// Returns the output if the operation can finish without a future. Otherwise returns the operation, which can
        /// then be run from the start.
        #[inline]
        fn run_at_once(self, leases: &crate::Leases<E>) -> Result<Self::Output, Self>
        where
            Self: Sized,
        {
            let _ = leases;
            Err(self)
        }
    }
}
pub(crate) use sealed::Operation;

/// The future of a call that never waits for a lease to become free. With leases in memory, it is ready on its first
/// poll; with a server, when the server has answered.
///
/// Nothing happens before the first poll. The future borrows nothing but the [`Leases`].
///
/// # Cancel safety
/// If the future is dropped while a server is being asked, the call may or may not have taken effect.
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct Call<'a, E: Engine, O: Operation<E>> {
    leases: &'a Leases<E>,
    operation: Option<O>,
    running: Option<Kept<'a, O::Output>>,
}

/// The panic message of a future that is polled after it has finished.
const ONCE: &str = "keylatch-lease: a lease future was polled after it had finished";

/// The panic message of a `fresh_token` call that comes too late.
const FRESH: &str = "keylatch-lease: `fresh_token` must be called before the future is polled";

impl<'a, E: Engine, O: Operation<E>> Call<'a, E, O> {
    #[inline]
    pub(crate) fn new(leases: &'a Leases<E>, operation: O) -> Self {
        Call { leases, operation: Some(operation), running: None }
    }

    /// Blocks the thread until the future is ready, and returns its output.
    ///
    /// # Blocking
    /// Do not call it in a task.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// assert_eq!(leases.release_all(&Owner::named("session-42")).wait(), Ok(0));
    /// ```
    #[cfg(feature = "std")]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn wait(self) -> O::Output {
        async_io::block_on(self)
    }
}

impl<C: Clock, O: Operation<Memory<C>>> Call<'_, Memory<C>, O> {
    /// Makes the call at once, which is possible because leases in memory need no future, and returns its output.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// assert_eq!(leases.release_all(&Owner::named("session-42")).now(), Ok(0));
    /// ```
    ///
    /// # Panics
    /// If the future has already finished.
    #[inline]
    pub fn now(self) -> O::Output {
        done(self.operation.expect(ONCE), self.leases)
    }
}

impl<E: Engine, O: Operation<E>> Call<'_, E, O> {
    fn start(&mut self) -> O {
        self.operation.take().expect(ONCE)
    }
}

impl<'a, E: Engine, O: Operation<E>> Future for Call<'a, E, O> {
    type Output = O::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O::Output> {
        let this = &mut *self;
        if E::LOCAL {
            return Poll::Ready(done(this.start(), this.leases));
        }
        if this.running.is_none() {
            this.running = Some(Box::pin(this.start().run(this.leases)));
        }
        let Some(running) = &mut this.running else { unreachable!("the operation was started above") };
        let polled = running.as_mut().poll(cx);
        if polled.is_ready() {
            this.running = None;
        }
        polled
    }
}

/// Runs an operation on an engine in this process, where it finishes on its first poll.
#[inline]
fn done<E: Engine, O: Operation<E>>(operation: O, leases: &Leases<E>) -> O::Output {
    match operation.run_at_once(leases) {
        Ok(output) => output,
        Err(operation) => finish(operation, leases),
    }
}

#[inline(never)]
fn finish<E: Engine, O: Operation<E>>(operation: O, leases: &Leases<E>) -> O::Output {
    at_once(operation.run(leases))
}

impl<E: Engine, O: Operation<E>> fmt::Debug for Call<'_, E, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("is_running", &self.running.is_some()).finish_non_exhaustive()
    }
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* } -> $output:ty {
        $this:ident, $leases:ident => $run:expr $(; at once: $done:expr)?
    })+) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name { $(pub(crate) $field: $type),* }

            impl<E: Engine> Operation<E> for $name {
                type Output = $output;

                #[inline]
                fn run(self, $leases: &Leases<E>) -> impl Future<Output = $output> + Send {
                    let $this = self;
                    $run
                }

                $(
                    #[inline]
                    fn run_at_once(self, $leases: &Leases<E>) -> Result<$output, Self> {
                        let $this = self;
                        $done
                    }
                )?
            }
        )+
    };
}

operations! {
    /// See [`Leases::try_acquire`].
    TryAcquire { request: Request } -> Result<Grant, AcquireError<E::Error>> {
        this, leases => async move { leases.tried(&this.request).await.map(|info| this.request.into_grant(info)) };
        at once: match leases.acquired_at_once(&this.request) {
            Some(info) => Ok(Ok(this.request.into_grant(info))),
            None => Err(this),
        }
    }
    /// See [`Leases::renew`].
    Renew { grant: Grant } -> Result<Grant, RenewError<E::Error>> {
        this, leases => async move { leases.renewed(&this.grant, &[]).await.map(|end| Grant { end, ..this.grant }) };
        at once: match leases.renewed_at_once(&this.grant) {
            Some(end) => Ok(Ok(Grant { end, ..this.grant })),
            None => Err(this),
        }
    }
    /// See [`Leases::release`] and [`Leases::release_as`].
    Release { resource: Resource, owner: Owner, token: Option<Token> } -> Result<(), ReleaseError<E::Error>> {
        this, leases => async move { leases.released(&this.resource, &this.owner, this.token).await };
        at once: match leases.released_at_once(&this.resource, &this.owner, this.token) {
            Some(()) => Ok(Ok(())),
            None => Err(this),
        }
    }
    /// See [`Leases::release_token`].
    ReleaseToken { resource: Resource, token: Token } -> Result<(), ReleaseError<E::Error>> {
        this, leases => async move { leases.released_token(&this.resource, this.token).await }
    }
    /// See [`Leases::release_all`].
    ReleaseAll { owner: Owner } -> Result<usize, LookError<E::Error>> { this, leases => leases.released_all(this.owner) }
    /// See [`Leases::release_expired`].
    ReleaseExpired {} -> Result<usize, LookError<E::Error>> { _this, leases => leases.swept() }
    /// See [`Leases::status`].
    Status { resource: Resource } -> Result<Option<LeaseStatus>, LookError<E::Error>> {
        this, leases => leases.looked(this.resource)
    }
    /// See [`Leases::owned_by`].
    OwnedBy { owner: Owner } -> Result<alloc::vec::Vec<Grant>, LookError<E::Error>> {
        this, leases => leases.grants_of(this.owner)
    }
}

impl<E: Engine> Call<'_, E, TryAcquire> {
    /// Always begins a new tenure. If this owner already has a tenure, that tenure ends, and its grants become stale.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let (owner, minute) = (Owner::named("session-42"), Duration::from_secs(60));
    /// let old = leases.try_acquire("report", &owner, minute).now().unwrap();
    /// let new = leases.try_acquire("report", &owner, minute).fresh_token().now().unwrap();
    /// assert!(new.token() > old.token());
    /// assert!(leases.release_now(&old).is_err());
    /// ```
    ///
    /// # Panics
    /// If the future has been polled.
    pub fn fresh_token(mut self) -> Self {
        let request = self.operation.as_mut().map(|operation| &mut operation.request);
        request.expect(FRESH).is_fresh = true;
        self
    }
}

/// The future of [`Leases::acquire`]: a request for a lease.
///
/// # Cancel safety
/// The future may be dropped at any moment, which takes the request out of the line. If the request has been served and
/// the future has not been polled since, the lease goes to the next waiter, unless another request of its owner has it,
/// too. With a server, a future that is dropped before the server has answered may leave a lease behind, which belongs
/// to its owner until it expires.
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct Acquire<'a, E: Engine> {
    leases: &'a Leases<E>,
    request: Option<Request>,
    /// The resource that the request waits for, and the future that waits.
    waiting: Option<(Resource, Kept<'a, Acquired<E>>)>,
}

impl<'a, E: Engine> Acquire<'a, E> {
    #[track_caller]
    pub(crate) fn new(leases: &'a Leases<E>, resource: Resource, owner: Owner, expiry: Expiry) -> Self {
        Acquire { leases, request: Some(Request::new(resource, owner, expiry)), waiting: None }
    }

    /// Always begins a new tenure. If this owner already has a tenure, that tenure ends, and its grants become stale.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let (owner, minute) = (Owner::named("session-42"), Duration::from_secs(60));
    /// let old = leases.acquire("report", &owner, minute).wait().unwrap();
    /// let new = leases.acquire("report", &owner, minute).fresh_token().wait().unwrap();
    /// assert!(new.token() > old.token());
    /// ```
    ///
    /// # Panics
    /// If the future has been polled.
    pub fn fresh_token(mut self) -> Self {
        self.request.as_mut().expect(FRESH).is_fresh = true;
        self
    }

    /// Gives up if `limit`, such as a timer or a cancellation token, is ready first. The output of `limit` is dropped.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{AcquireError, Leases, Owner};
    ///
    /// # smol::block_on(async {
    /// let leases = Leases::in_memory();
    /// let minute = Duration::from_secs(60);
    /// leases.acquire("report", &Owner::named("jane"), minute).await.unwrap();
    /// let joe = leases.acquire("report", &Owner::named("joe"), minute);
    /// let got = joe.until(smol::Timer::after(Duration::from_millis(10))).await;
    /// assert!(matches!(got, Err(AcquireError::Limit { .. })));
    /// # });
    /// ```
    pub fn until<L: Future>(self, limit: L) -> Until<Self, L> {
        Until {
            resource: match (&self.request, &self.waiting) {
                (Some(Request { resource, .. }), _) | (None, Some((resource, _))) => Some(resource.clone()),
                (None, None) => None,
            },
            future: Some(self),
            limit: Box::pin(limit),
        }
    }

    /// Blocks the thread until the lease is acquired.
    ///
    /// # Blocking
    /// Do not call it in a task.
    ///
    /// # Errors
    /// Fails like [`Leases::acquire`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let grant = leases.acquire("report", &Owner::named("jane"), Duration::from_secs(60)).wait().unwrap();
    /// assert!(!grant.is_resumed());
    /// ```
    #[cfg(feature = "std")]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn wait(self) -> Result<Grant, AcquireError<E::Error>> {
        async_io::block_on(self)
    }

    /// Blocks the thread until the lease is acquired, for at most `longest` of real time.
    ///
    /// # Blocking
    /// Do not call it in a task.
    ///
    /// # Errors
    /// Fails like [`Leases::acquire`], or with [`AcquireError::Limit`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{AcquireError, Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let minute = Duration::from_secs(60);
    /// leases.acquire("report", &Owner::named("jane"), minute).wait().unwrap();
    /// let got = leases.acquire("report", &Owner::named("joe"), minute).wait_for(Duration::from_millis(10));
    /// assert!(matches!(got, Err(AcquireError::Limit { .. })));
    /// ```
    #[cfg(feature = "std")]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn wait_for(self, longest: Duration) -> Result<Grant, AcquireError<E::Error>> {
        async_io::block_on(self.until(async_io::Timer::after(longest)))
    }
}

impl<E: Engine> Future for Acquire<'_, E> {
    type Output = Result<Grant, AcquireError<E::Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let leases = this.leases;
        if this.waiting.is_none() {
            let request = this.request.take().expect(ONCE);
            if let Some(info) = leases.acquired_at_once(&request) {
                return Poll::Ready(Ok(request.into_grant(info)));
            }
            if E::LOCAL {
                // Only a request that waits needs a boxed future.
                match at_once(leases.attempt(&request, Turn::Outside)) {
                    Ok(Asked::Granted(info)) => return Poll::Ready(Ok(request.into_grant(info))),
                    Err(error) => return Poll::Ready(Err(error)),
                    Ok(Asked::Busy { .. }) => {}
                }
            }
            let resource = request.resource.clone();
            let waiting: Kept<'_, _> = if E::LOCAL {
                Box::pin(async move { leases.wait_for(&request).await })
            } else {
                Box::pin(async move { leases.acquired(request).await })
            };
            this.waiting = Some((resource, waiting));
        }
        let Some((_, waiting)) = &mut this.waiting else { unreachable!("the wait was started above") };
        let polled = waiting.as_mut().poll(cx);
        if polled.is_ready() {
            this.waiting = None;
        }
        polled
    }
}

impl<E: Engine> fmt::Debug for Acquire<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("is_waiting", &self.waiting.is_some()).finish_non_exhaustive()
    }
}

/// The reaction of a `hold` request to an existing lease.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Waits for another owner's lease. Takes over a tenure of its own owner.
    Wait,
    /// Fails if another owner has the lease. Takes over a tenure of its own owner.
    Try,
    /// Fails if any owner has the lease, even the one that requests it.
    TryNew,
}

/// The future of [`Leases::hold`], `try_hold`, `try_hold_new` and `hold_arc`: a request for a lease to be [held](Held).
///
/// # Cancel safety
/// See [`Acquire`].
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct Hold<'a, E: Engine> {
    resource: Resource,
    running: Kept<'a, Result<Held<'a, E>, AcquireError<E::Error>>>,
}

impl<'a, E: Engine> Hold<'a, E> {
    #[track_caller]
    pub(crate) fn new(
        table: Table<'a, E>,
        resource: Resource,
        owner: Owner,
        ttl: core::time::Duration,
        manner: Manner,
    ) -> Self {
        let is_new = manner == Manner::TryNew;
        let request = Request { is_fresh: true, is_new, ..Request::new(resource.clone(), owner, Expiry::Sliding(ttl)) };
        let running = Box::pin(async move {
            // Subscribes before the request, so that no notification about the new tenure is missed.
            let subscription = Subscription::new(&table, &request.resource);
            let grant = if manner == Manner::Wait {
                table.acquired(request).await?
            } else {
                let info = table.tried(&request).await?;
                request.into_grant(info)
            };
            Ok(Held::new(table, subscription, grant, ttl))
        });
        Hold { resource, running }
    }

    /// Gives up if `limit`, such as a timer or a cancellation token, is ready first. The output of `limit` is dropped.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{AcquireError, Leases, Owner};
    ///
    /// # smol::block_on(async {
    /// let leases = Leases::in_memory();
    /// let minute = Duration::from_secs(60);
    /// let _held = leases.hold("report", &Owner::named("jane"), minute).await.unwrap();
    /// let joe = leases.hold("report", &Owner::named("joe"), minute);
    /// let got = joe.until(smol::Timer::after(Duration::from_millis(10))).await;
    /// assert!(matches!(got, Err(AcquireError::Limit { .. })));
    /// # });
    /// ```
    pub fn until<L: Future>(self, limit: L) -> Until<Self, L> {
        let resource = self.resource.clone();
        Until::new(self, resource, limit)
    }

    pub(crate) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Blocks the thread until the lease is acquired.
    ///
    /// # Blocking
    /// Do not call it in a task.
    ///
    /// # Errors
    /// Fails like the call that made the request, such as [`Leases::hold`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let held = leases.hold("report", &Owner::named("jane"), Duration::from_secs(60)).wait().unwrap();
    /// assert!(held.check().is_ok());
    /// ```
    #[cfg(feature = "std")]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn wait(self) -> Result<Held<'a, E>, AcquireError<E::Error>> {
        async_io::block_on(self)
    }

    /// Blocks the thread until the lease is acquired, for at most `longest` of real time.
    ///
    /// # Blocking
    /// Do not call it in a task.
    ///
    /// # Errors
    /// Fails like the call that made the request, such as [`Leases::hold`], or with [`AcquireError::Limit`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{AcquireError, Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let minute = Duration::from_secs(60);
    /// let _held = leases.hold("report", &Owner::named("jane"), minute).wait().unwrap();
    /// let got = leases.hold("report", &Owner::named("joe"), minute).wait_for(Duration::from_millis(10));
    /// assert!(matches!(got, Err(AcquireError::Limit { .. })));
    /// ```
    #[cfg(feature = "std")]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn wait_for(self, longest: Duration) -> Result<Held<'a, E>, AcquireError<E::Error>> {
        async_io::block_on(self.until(async_io::Timer::after(longest)))
    }
}

impl<'a, E: Engine> Future for Hold<'a, E> {
    type Output = Result<Held<'a, E>, AcquireError<E::Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.running.as_mut().poll(cx)
    }
}

impl<E: Engine> fmt::Debug for Hold<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// The future of the `until` of [`Acquire`], [`Hold`] and [`Campaign`](crate::futures::Campaign): a request for a
/// lease, with a limit.
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct Until<F, L> {
    future: Option<F>,
    limit: Pin<Box<L>>,
    resource: Option<Resource>,
}

impl<F, L> Until<F, L> {
    pub(crate) fn new(future: F, resource: Resource, limit: L) -> Self {
        Until { future: Some(future), limit: Box::pin(limit), resource: Some(resource) }
    }
}

#[cfg(feature = "std")]
impl<F: Future, L> Until<F, L>
where
    Self: Future,
{
    /// Blocks the thread until the future is ready, and returns its output.
    ///
    /// # Blocking
    /// Do not call it in a task.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let request = leases.acquire("report", &Owner::named("jane"), Duration::from_secs(60));
    /// assert!(request.until(std::future::pending::<()>()).wait().is_ok());
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn wait(self) -> <Self as Future>::Output {
        async_io::block_on(self)
    }
}

impl<F, L, T, X> Future for Until<F, L>
where
    F: Future<Output = Result<T, AcquireError<X>>> + Unpin,
    L: Future,
{
    type Output = Result<T, AcquireError<X>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.future.as_mut().expect(ONCE);
        if let Poll::Ready(output) = Pin::new(future).poll(cx) {
            self.future = None;
            return Poll::Ready(output);
        }
        if self.limit.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.future = None; // leaves the line
        let resource = self.resource.take().expect(ONCE);
        Poll::Ready(Err(AcquireError::Limit { resource }))
    }
}

impl<F: fmt::Debug, L> fmt::Debug for Until<F, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Until").field("future", &self.future).finish_non_exhaustive()
    }
}
