//! A lease that is held, and renewed, while some work runs.

mod tenure;
mod waiting;

use alloc::{sync::Arc, vec::Vec};
use core::{
    fmt,
    future::{Future, poll_fn},
    ops::Deref,
    pin::pin,
    task::Poll,
    time::Duration,
};

pub use self::waiting::Waiting;
use crate::{
    Grant, Leases, Lost, Owner, ReleaseError, Resource, Token,
    engine::{Engine, Notice},
    tenure::{Place, Tenure},
};

/// A lease is renewed after one third of its time. The other two thirds leave time for several more attempts.
const RENEWED_AFTER: u32 = 3;

/// The shortest pause between two renewals, however short the lease is.
const SHORTEST: Duration = Duration::from_nanos(1);

/// The [`Leases`], borrowed or shared.
pub(crate) enum Table<'a, E: Engine> {
    Borrowed(&'a Leases<E>),
    Shared(Arc<Leases<E>>),
}

impl<E: Engine> Clone for Table<'_, E> {
    fn clone(&self) -> Self {
        match self {
            Table::Borrowed(leases) => Table::Borrowed(leases),
            Table::Shared(leases) => Table::Shared(Arc::clone(leases)),
        }
    }
}

impl<E: Engine> Deref for Table<'_, E> {
    type Target = Leases<E>;

    fn deref(&self) -> &Leases<E> {
        match self {
            Table::Borrowed(leases) => leases,
            Table::Shared(leases) => leases,
        }
    }
}

/// A subscription to the engine's notices about the tenures of a resource. Dropping it ends the subscription.
pub(crate) struct Subscription<'a, E: Engine> {
    table: Table<'a, E>,
    resource: Resource,
    notice: Arc<Notice>,
}

impl<'a, E: Engine> Subscription<'a, E> {
    /// Subscribes. Returns `None` if the engine does not notify.
    pub(crate) fn new(table: &Table<'a, E>, resource: &Resource) -> Option<Self> {
        if E::LOCAL {
            return None; // a check looks at the engine itself
        }
        let notice = Arc::new(Notice::among(Arc::clone(table.doubts())));
        let is_told = table.engine().subscribe(resource, &notice);
        is_told.then(|| Subscription { table: table.clone(), resource: resource.clone(), notice })
    }
}

impl<E: Engine> Drop for Subscription<'_, E> {
    fn drop(&mut self) {
        self.table.engine().unsubscribe(&self.resource, &self.notice);
    }
}

macro_rules! held {
    ($($default:tt)*) => {
        /// A lease that is held while some work runs: see [`Leases::hold`].
        ///
        /// [`run`](Self::run) renews the lease during the work, which can [check](Self::check) at any moment whether
        /// the lease is still valid. Dropping the `Held` releases the lease; on a server, in the background. At the end
        /// of a program the background release may come too late, and the lease then expires: await
        /// [`release`](Self::release) there.
        ///
        /// # Examples
        /// ```
        /// use std::time::Duration;
        ///
        /// use keylatch_lease::{Leases, Lost, Owner};
        ///
        /// # smol::block_on(async {
        /// let leases = Leases::in_memory();
        /// let worker = Owner::incarnation("worker-3");
        /// let mut held = leases.hold("payroll", &worker, Duration::from_secs(10)).await.unwrap();
        /// let token = held.token(); // send it with every write
        /// let paid = held.run(async { /* pay, for hours if it must be */ 17 }).await;
        /// assert_eq!(paid, Ok(17));
        /// held.release().await.unwrap();
        /// # let _ = token;
        /// # });
        /// ```
        #[must_use = "it is released when it is dropped"]
        pub struct Held<'a, E: Engine $($default)*> {
            table: Table<'a, E>,
            _subscription: Option<Subscription<'a, E>>,
            tenure: Arc<Tenure>,
            ttl: Duration,
            /// Whether the drop must leave the lease alone, because it was released or became a [`Grant`].
            is_left: bool,
            /// Whether a release has begun.
            is_releasing: bool,
        }
    };
}

#[cfg(feature = "std")]
held!(= crate::Memory<crate::StdClock>);
#[cfg(not(feature = "std"))]
held!();

impl<'a, E: Engine> Held<'a, E> {
    pub(crate) fn new(
        table: Table<'a, E>,
        subscription: Option<Subscription<'a, E>>,
        grant: Grant,
        ttl: Duration,
    ) -> Self {
        let notice = subscription.as_ref().map(|subscription| Arc::clone(&subscription.notice));
        let tenure = Arc::new(Tenure::new(grant, notice));
        Held { table, _subscription: subscription, tenure, ttl, is_left: false, is_releasing: false }
    }

    /// Returns the leased resource.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner, Resource};
    ///
    /// let leases = Leases::in_memory();
    /// let held = leases.hold_blocking("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// assert_eq!(*held.resource(), Resource::from("report"));
    /// ```
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.tenure.resource
    }

    /// Returns the owner of the lease.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let held = leases.hold_blocking("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// assert_eq!(held.owner().name(), "jane");
    /// ```
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.tenure.owner
    }

    /// Returns the number of the tenure, which belongs in every write: see [`Fence`](crate::Fence).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Fence, Leases, Owner};
    ///
    /// let (leases, fence) = (Leases::in_memory(), Fence::new());
    /// let held = leases.hold_blocking("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// fence.admit(held.resource(), held.token()).unwrap();
    /// ```
    #[must_use]
    pub fn token(&self) -> Token {
        self.tenure.token
    }

    /// Checks that the lease is still valid, and returns its token. Call it before each side effect, and send the token
    /// along.
    ///
    /// In memory, this looks at the lease itself. With a server, it makes no request. It compares the clock with the
    /// end of the lease, which is counted from the moment before the last renewal was sent. It also takes into account
    /// the answer to that renewal, and the notifications that the server has sent since, such as of a release by
    /// another caller. None of this requires a future of this `Held` to be polled, with one exception: after a lost
    /// connection the engine must be asked again, by a future of this `Held` or of any other `Held` of the same
    /// `Leases`.
    ///
    /// # Errors
    /// The way in which the lease was lost.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Lost, ManualClock, Owner};
    ///
    /// let clock = ManualClock::new();
    /// let leases = Leases::in_memory_with(clock.clone());
    /// let held = leases.hold_blocking("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// assert_eq!(held.check(), Ok(held.token()));
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(held.check(), Err(Lost::Expired));
    /// ```
    pub fn check(&self) -> Result<Token, Lost> {
        self.end()?;
        Ok(self.tenure.token)
    }

    /// Returns the end of the lease. If the lease is lost, wakes the futures that watch it.
    fn end(&self) -> Result<Option<Duration>, Lost> {
        self.tenure.check(&self.table).inspect_err(|_| self.table.wake_watches(&self.tenure.resource))
    }

    /// Checks as [`check`](Self::check) does, and also that the lease lasts for at least this time.
    ///
    /// # Errors
    /// The way in which the lease was lost, or [`Lost::TooShort`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Lost, ManualClock, Owner};
    ///
    /// let leases = Leases::in_memory_with(ManualClock::new());
    /// let held = leases.hold_blocking("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// assert!(held.check_for(Duration::from_secs(60)).is_ok());
    /// assert_eq!(held.check_for(Duration::from_secs(61)), Err(Lost::TooShort));
    /// ```
    pub fn check_for(&self, least: Duration) -> Result<Token, Lost> {
        let end = self.end()?;
        let now = self.table.engine().now();
        match end.map(|end| end.saturating_sub(now)) {
            Some(left) if left < least => Err(Lost::TooShort),
            _ => Ok(self.tenure.token),
        }
    }

    /// Returns the time for which the lease is valid if it is not renewed; zero if it is lost, and `None` if it never
    /// expires. With a server, the returned time is a little shorter than the time left by the server's clock, so that
    /// the holder errs on the safe side.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, ManualClock, Owner};
    ///
    /// let clock = ManualClock::new();
    /// let leases = Leases::in_memory_with(clock.clone());
    /// let held = leases.try_hold("report", &Owner::named("jane"), Duration::from_secs(60)).wait().unwrap();
    /// clock.advance(Duration::from_secs(45));
    /// assert_eq!(held.remaining(), Some(Duration::from_secs(15)));
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let now = self.table.engine().now();
        self.end().map_or(Some(Duration::ZERO), |end| end.map(|end| end.saturating_sub(now)))
    }

    /// Returns a future that is ready when the lease is lost. Its output is the way in which the lease was lost.
    ///
    /// # Cancel safety
    /// The future may be dropped at any moment.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Lost, Owner};
    ///
    /// # smol::block_on(async {
    /// let leases = Leases::in_memory();
    /// let owner = Owner::named("jane");
    /// let held = leases.hold("report", &owner, Duration::from_secs(60)).await.unwrap();
    /// let signed_out = async { leases.release_all(&owner).await };
    /// let (lost, _) = smol::future::zip(held.lost(), signed_out).await;
    /// assert_eq!(lost, Lost::Released);
    /// # });
    /// ```
    pub fn lost(&self) -> Waiting<impl Future<Output = Lost> + use<'_, 'a, E>> {
        Waiting::new(async move { self.tenure.heeding(&self.table, self.tenure.lost(&self.table)).await })
    }

    /// Runs `work`, and renews the lease for as long as the work takes. Checks the lease before each poll of `work`.
    /// Once the lease is lost, `work` is not polled again, and is dropped.
    ///
    /// The task that runs the work also renews the lease, so no other task is needed. With a server, a renewal includes
    /// other leases held through the same [`Leases`] that are due soon, in one request; those leases do not depend on
    /// it. During a poll of `work` the lease is not renewed, except at most once as part of another lease's request. So
    /// a poll that takes longer than two thirds of the lease's time may outlive the lease.
    ///
    /// An output of `Ok` does not prove that the lease lasted: the last poll of `work` may have outlived it. So
    /// [check](Self::check) the lease before each side effect, or send the [token](Self::token) with it.
    ///
    /// # Errors
    /// The way in which the lease was lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`. The lease stays held, and expires if it is not renewed.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// # smol::block_on(async {
    /// let leases = Leases::in_memory();
    /// let mut held = leases.hold("report", &Owner::named("jane"), Duration::from_secs(10)).await.unwrap();
    /// let done = held.run(async {
    ///     smol::Timer::after(Duration::from_millis(10)).await; // or hours
    ///     "done"
    /// });
    /// assert_eq!(done.await, Ok("done"));
    /// # });
    /// ```
    pub fn run<'h, F: Future>(
        &'h mut self,
        work: F,
    ) -> Waiting<impl Future<Output = Result<F::Output, Lost>> + use<'h, 'a, E, F>> {
        let this: &'h Self = self;
        Waiting::new(async move {
            let renewal = this.tenure.renewal(&this.table, this.ttl);
            let mut renewal = pin!(this.tenure.heeding(&this.table, renewal));
            let mut work = pin!(work);
            poll_fn(|cx| {
                if let Poll::Ready(lost) = renewal.as_mut().poll(cx) {
                    return Poll::Ready(Err(lost));
                }
                if let Err(lost) = this.check() {
                    return Poll::Ready(Err(lost));
                }
                work.as_mut().poll(cx).map(Ok)
            })
            .await
        })
    }

    /// Returns a future that renews the lease until it is lost. Spawn it if the work cannot be passed to
    /// [`run`](Self::run). It is ready when the lease is lost, or with [`Lost::Released`] when this `Held` is released,
    /// dropped, or converted by [`into_grant`](Self::into_grant).
    ///
    /// With [`hold_arc`](Leases::hold_arc) the future is `'static`.
    ///
    /// # Cancel safety
    /// The future may be dropped at any moment. The lease then expires unless it is renewed in another way.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use keylatch_lease::{Leases, Lost, Owner};
    ///
    /// # smol::block_on(async {
    /// let leases = Arc::new(Leases::in_memory());
    /// let held = leases.hold_arc("report", &Owner::named("jane"), Duration::from_secs(1)).await.unwrap();
    /// let renewal = smol::spawn(held.renewal());
    /// // work, and call held.check() before each side effect
    /// drop(held);
    /// assert_eq!(renewal.await, Lost::Released);
    /// # });
    /// ```
    pub fn renewal(&self) -> Waiting<impl Future<Output = Lost> + use<'a, E>> {
        let (table, tenure, ttl) = (self.table.clone(), Arc::clone(&self.tenure), self.ttl);
        Waiting::new(async move { tenure.heeding(&table, tenure.renewal(&table, ttl)).await })
    }

    /// Returns a future that releases the lease.
    ///
    /// # Errors
    /// [`ReleaseError::NotHeld`] or [`ReleaseError::NotOwner`] if the lease was lost; [`ReleaseError::Engine`] if a
    /// server did not answer within the time that the engine's crate documents. If the lease is known to be lost, drop
    /// the `Held` instead, to avoid that wait.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the lease is released as if the `Held` had been dropped.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let held = leases.hold_blocking("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// held.release().wait().unwrap();
    /// assert!(leases.is_empty());
    /// ```
    pub fn release(self) -> Waiting<impl Future<Output = Result<(), ReleaseError<E::Error>>> + use<'a, E>> {
        let mut held = self;
        Waiting::new(async move {
            held.is_releasing = held.tenure.close().is_none();
            let Tenure { resource, owner, token, .. } = &*held.tenure;
            let released = held.table.released(resource, owner, Some(*token)).await;
            // If the engine failed, the drop of the `Held` tries once more.
            if !matches!(released, Err(ReleaseError::Engine(_))) {
                held.leave();
            }
            released
        })
    }

    /// Makes the drop leave the lease alone.
    fn leave(&mut self) {
        self.is_left = true;
    }

    /// Converts the lease into plain data. The resource stays leased, and from then on its owner must renew and release
    /// the lease.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let held = leases.hold_blocking("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// let grant = held.into_grant();
    /// assert!(leases.release_now(&grant).is_ok());
    /// ```
    #[must_use = "if the grant is dropped, the lease stays, and can be released only by its owner's name"]
    pub fn into_grant(mut self) -> Grant {
        self.leave();
        self.tenure.state.lock().grant.clone()
    }
}

impl<E: Engine> Drop for Held<'_, E> {
    fn drop(&mut self) {
        let lost = self.tenure.close();
        let Tenure { resource, owner, token, .. } = &*self.tenure;
        // A server may still have the lease, if the answer to a renewal came too late.
        let is_gone = lost.is_some_and(|lost| E::LOCAL || lost != Lost::Expired);
        if self.is_left || is_gone && !self.is_releasing {
            // The futures that renew or watch the lease must finish.
            self.table.wake_watches(resource);
        } else {
            self.table.let_go(resource, owner, *token);
        }
    }
}

impl<E: Engine> fmt::Debug for Held<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("resource", &self.tenure.resource)
            .field("owner", &self.tenure.owner)
            .field("token", &self.tenure.token)
            .finish_non_exhaustive()
    }
}

/// The wait of a tenure that is included in another tenure's renewal request. It waits a little for the answer before
/// it sends a request of its own.
struct Ride {
    /// The number of requests that have included this tenure since its last renewal.
    number: u32,
    /// The time until which this tenure waits for the request; zero if it does not wait.
    until: Duration,
}

impl Ride {
    /// Creates the wait for the request with this number. It is longer for the second request than for the first,
    /// because the engine may be slow; there is none for a third.
    fn new(number: u32, due: Option<Duration>, moment: Duration) -> Self {
        let until = match (number, due) {
            (1 | 2, Some(due)) => due.saturating_add(moment * number),
            _ => Duration::ZERO,
        };
        Ride { number, until }
    }

    fn is_on(&self) -> bool {
        !self.until.is_zero()
    }
}

/// A tenure's place in the renewal queue, for as long as its own future waits to renew it.
struct Slot<'a, E: Engine> {
    leases: &'a Leases<E>,
    place: Option<Place>,
}

impl<'a, E: Engine> Slot<'a, E> {
    fn new(
        leases: &'a Leases<E>,
        tenure: &Arc<Tenure>,
        due: Option<Duration>,
        renewed: Duration,
        is_batched: bool,
    ) -> Self {
        // A request to an engine in this process is so cheap that renewals need not share one.
        let due = due.filter(|_| !E::LOCAL);
        let place = due.map(|due| leases.renewal_queue().enter(due, tenure, renewed, is_batched));
        Slot { leases, place }
    }

    /// Leaves the queue. Returns whether the tenure was still in it: if so, no other tenure's request includes it.
    fn leave(mut self) -> bool {
        let Some(place) = self.place.take() else { return true };
        let itself = self.leases.renewal_queue().leave(place);
        itself.is_some()
    }

    /// Takes out of the queue the tenures that are due within `moment`, to renew them together with this one.
    fn batched(leases: &Leases<E>, one: &Arc<Tenure>, moment: Duration, refusals: u32) -> Vec<Arc<Tenure>> {
        if E::LOCAL {
            return Vec::new();
        }
        let now = leases.engine().now();
        leases.renewal_queue().take(one, now, moment, refusals)
    }
}

impl<E: Engine> Drop for Slot<'_, E> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let itself = self.leases.renewal_queue().leave(place);
        drop(itself);
    }
}
