//! A lease that is held while something is done, and renewed meanwhile.

mod tenure;
mod waiting;

use alloc::{sync::Arc, vec::Vec};
use core::{
    fmt,
    future::{Future, poll_fn},
    ops::Deref,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

pub use self::waiting::Waiting;
use crate::{
    Grant, Leases, Lost, Owner, ReleaseError, Resource, Token,
    engine::{Engine, Notice},
    tenure::{Place, Tenure},
};

/// A lease is renewed when this part of its time has gone by: two more attempts have room in the rest.
const RENEWED_AFTER: u32 = 3;

/// However short a lease is, between two renewals time goes by.
const SHORTEST: Duration = Duration::from_nanos(1);

/// The table, borrowed or shared.
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

/// A subscription to the tenures of a resource.
pub(crate) struct Subscription<'a, E: Engine> {
    table: Table<'a, E>,
    resource: Resource,
    notice: Arc<Notice>,
}

impl<'a, E: Engine> Subscription<'a, E> {
    /// `None`: it does not tell.
    pub(crate) fn new(table: &Table<'a, E>, resource: &Resource) -> Option<Self> {
        if E::LOCAL {
            return None; // it is looked at
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
        /// A lease that is held while something is done: see [`Leases::hold`].
        ///
        /// It is [renewed](Self::run) by whoever works under it, says at any moment [whether it is still there](Self::check), and is released
        /// when it is dropped: on a server, in the background. At the end of a program that may be too late, and the lease then expires; so
        /// there await [`release`](Self::release).
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
        /// let token = held.token(); // goes with every write
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
            /// Whether somebody else sees to the release.
            is_left: bool,
            /// Whether a release of it has begun.
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

    /// The leased resource.
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

    /// Whose it is.
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

    /// The number of the tenure, which goes with every write: see [`Fence`](crate::Fence).
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

    /// Whether the lease is still there: to be asked before each side effect. Gives the token, to be sent along.
    ///
    /// In memory this looks at the table. With an engine in another process it compares the clock with the end of the
    /// lease, as it was reckoned before the last renewal was asked for, and knows what that said; and what the engine has been told since, as of a
    /// release by somebody else. Nobody need poll this Held for that. Only after a connection was lost it has to be looked at: by its own futures, or
    /// by those of any other Held of the same table.
    ///
    /// # Errors
    /// How it was lost.
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

    /// The end of the lease, if it is not lost. Otherwise those who wait to learn of it do.
    fn end(&self) -> Result<Option<Duration>, Lost> {
        self.tenure.check(&self.table).inspect_err(|_| self.table.wake_watches(&self.tenure.resource))
    }

    /// The same, and whether so much is left of it.
    ///
    /// # Errors
    /// How it was lost, or [`Lost::TooShort`].
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

    /// Ready when the lease is lost, and says how.
    ///
    /// # Cancel safety
    /// It may be dropped at any moment.
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

    /// Works, and renews the lease meanwhile, as long as that takes. Before each poll of `work` it looks at the lease: once that is lost,
    /// `work` is polled no more, and dropped.
    ///
    /// It is the task that works that renews: no other task, no thread. On an engine elsewhere it takes others of this process along that
    /// are due soon, in one request; they do not depend on it. Work that does not come back from a poll for longer than
    /// two thirds of the lease's time keeps it from being renewed, except once at most by another that takes it along.
    ///
    /// That it gives `Ok` does not mean that the lease has lasted: work that did not come back in time may have outlived it in its
    /// last poll. What counts is that each side effect is [checked](Self::check) or carries its [token](Self::token).
    ///
    /// # Errors
    /// How the lease was lost.
    ///
    /// # Cancel safety
    /// Dropping it drops `work`. The lease is held on, and expires if nobody renews it.
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

    /// Renews the lease until it is lost, for those who cannot [`run`](Self::run) the work: to be spawned. Ready when the lease is lost, or with
    /// [`Lost::Released`] when this Held is released or dropped.
    ///
    /// With [`hold_arc`](Leases::hold_arc) it is `'static`.
    ///
    /// # Cancel safety
    /// It may be dropped at any moment; the lease then expires if nobody else renews it.
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
    /// // work, and ask held.check() before each side effect
    /// drop(held);
    /// assert_eq!(renewal.await, Lost::Released);
    /// # });
    /// ```
    pub fn renewal(&self) -> Waiting<impl Future<Output = Lost> + use<'a, E>> {
        let (table, tenure, ttl) = (self.table.clone(), Arc::clone(&self.tenure), self.ttl);
        Waiting::new(async move { tenure.heeding(&table, tenure.renewal(&table, ttl)).await })
    }

    /// Releases it.
    ///
    /// # Errors
    /// [`ReleaseError::NotHeld`] or [`ReleaseError::NotOwner`] if it was lost; [`ReleaseError::Engine`] if a server did not answer, after the
    /// time that its crate names. Who knows that it is lost, and does not want to wait so long, drops it instead.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it releases as dropping the Held does.
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
            // Where the engine failed, dropping it tries once more.
            if !matches!(released, Err(ReleaseError::Engine(_))) {
                held.leave();
            }
            released
        })
    }

    /// Dropping it does not release it any more.
    fn leave(&mut self) {
        self.is_left = true;
    }

    /// The lease as plain data: it stays leased, and is renewed and released by its owner.
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
    #[must_use = "without it the lease can be released by its owner's name only"]
    pub fn into_grant(mut self) -> Grant {
        self.leave();
        self.tenure.state.lock().grant.clone()
    }
}

impl<E: Engine> Drop for Held<'_, E> {
    fn drop(&mut self) {
        let lost = self.tenure.close();
        let Tenure { resource, owner, token, .. } = &*self.tenure;
        // An engine elsewhere may have it still, if a renewal's answer came too late.
        let is_gone = lost.is_some_and(|lost| E::LOCAL || lost != Lost::Expired);
        if self.is_left || is_gone && !self.is_releasing {
            // Those who renew it come to their end.
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

/// Somebody else has a tenure in hand.
struct Ride {
    /// Which time it is since it was renewed; 0: nobody has.
    number: u32,
    /// For how long that is waited for.
    until: Duration,
}

impl Ride {
    /// The second time it waits for longer, as an engine may be slow, and after that for nobody.
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

/// A tenure's place among those who are to be renewed, as long as its own future waits for that.
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
        is_along: bool,
    ) -> Self {
        // To ask an engine in this process takes no time: nobody needs to be taken along.
        let due = due.filter(|_| !E::LOCAL);
        let place = due.map(|due| leases.renewal_queue().enter(due, tenure, renewed, is_along));
        Slot { leases, place }
    }

    /// Whether it has not been taken along.
    fn leave(mut self) -> bool {
        let Some(place) = self.place.take() else { return true };
        let itself = self.leases.renewal_queue().leave(place);
        itself.is_some()
    }

    /// Chooses the leases to renew together with this one, among those due a moment later at most.
    fn along(leases: &Leases<E>, one: &Arc<Tenure>, moment: Duration, refusals: u32) -> Vec<Arc<Tenure>> {
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

/// Wakes a task when a tenure of the resource ends.
struct Watch<'a, E: Engine> {
    leases: &'a Leases<E>,
    resource: &'a Resource,
    id: Option<u32>,
}

impl<E: Engine> Watch<'_, E> {
    fn wake_by(&mut self, due: Option<Duration>, cx: &Context<'_>) {
        let waker = cx.waker().clone();
        let known = self.id;
        let watch = self
            .leases
            .with_wait_list(|wait_list, deferred| wait_list.watch(self.resource, known, due, waker, deferred));
        self.id = Some(watch);
    }
}

impl<E: Engine> Drop for Watch<'_, E> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        self.leases.with_wait_list(|wait_list, deferred| wait_list.unwatch(id, deferred));
    }
}
