//! The methods of [`Leases`]: its constructors and calls.

use alloc::sync::Arc;
use core::{fmt, time::Duration};

#[cfg(feature = "std")]
use crate::StdClock;
use crate::{
    Clock, Expiry, Grant, Leases, Memory, Owner, Resource, Token,
    calls::{
        Acquire, Call, Hold, Manner, OwnedBy, Release, ReleaseAll, ReleaseExpired, ReleaseToken, Renew, Status,
        TryAcquire,
    },
    engine::Engine,
    front::Request,
    held::Table,
};

#[cfg(feature = "std")]
impl Leases {
    /// Creates leases that are kept in the memory of this process, with the system's [clock](StdClock).
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::Leases;
    ///
    /// let leases = Leases::in_memory();
    /// assert!(leases.is_empty());
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[must_use]
    pub fn in_memory() -> Self {
        Leases::in_memory_with(StdClock::new())
    }
}

#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl Default for Leases {
    /// Creates leases [in memory](Leases::in_memory).
    fn default() -> Self {
        Leases::in_memory()
    }
}

impl<C: Clock> Leases<Memory<C>> {
    /// Creates leases that are kept in the memory of this process, with a clock of your choice.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::{Leases, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let leases = Leases::in_memory_with(clock.clone());
    /// # assert!(leases.is_empty());
    /// ```
    #[must_use]
    pub fn in_memory_with(clock: C) -> Self {
        Leases::with_engine(Memory::new(clock))
    }

    /// Removes the leases that have expired, serves their waiters, and returns the number of leases that remain.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, ManualClock, Owner};
    ///
    /// let clock = ManualClock::new();
    /// let leases = Leases::in_memory_with(clock.clone());
    /// leases.try_acquire_now("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// assert_eq!(leases.len(), 1);
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(leases.len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        let _ = self.release_expired_now();
        self.engine.kept()
    }

    /// Returns whether there are no leases, after removing the expired ones as [`len`](Self::len) does.
    ///
    /// # Examples
    /// ```
    /// assert!(keylatch_lease::Leases::in_memory().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Does the work that is due: removes expired leases, serves their waiters, and wakes renewals, watches and
    /// [`lost`](crate::Held::lost). Returns the time until more work will be due if nothing changes; `None` if none
    /// will be.
    ///
    /// With a [`StdClock`] you need not call it. With a clock that does not advance in
    /// [real time](Clock::is_real_time), or without the feature `std`, the passage of time wakes nothing until you call
    /// it.
    ///
    /// If more than 64 leases end close together (within a millisecond or, the farther ahead the end is, within
    /// seconds, minutes or hours), the returned time may be too short; it is never too long.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, ManualClock, Owner};
    ///
    /// let clock = ManualClock::new();
    /// let leases = Leases::in_memory_with(clock.clone());
    /// leases.try_acquire_now("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// assert_eq!(leases.tick(), Some(Duration::from_secs(60)));
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(leases.tick(), None);
    /// ```
    pub fn tick(&self) -> Option<Duration> {
        let _ = self.release_expired_now();
        let next =
            self.engine.next_end().into_iter().chain(self.with_wait_list(|wait_list, _| wait_list.next_due())).min()?;
        Some(next.saturating_sub(self.engine.now()))
    }
}

impl<E: Engine> Leases<E> {
    /// Creates leases that this engine keeps.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::{Leases, ManualClock, Memory};
    ///
    /// let leases = Leases::with_engine(Memory::new(ManualClock::new()));
    /// # assert!(leases.is_empty());
    /// ```
    #[must_use]
    pub fn with_engine(engine: E) -> Self {
        Leases::new(engine)
    }

    /// Returns the engine.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Clock, Leases, ManualClock};
    ///
    /// let leases = Leases::in_memory_with(ManualClock::new());
    /// assert_eq!(leases.engine().clock().now(), Duration::ZERO);
    /// ```
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Acquires a lease, and waits while another owner has it. An owner that already has the lease gets it at once: the
    /// tenure continues with the same token and with `expiry` as its policy, and its end is never brought forward.
    ///
    /// The waiters of this process are served in order of arrival. In memory, a waiter that is served has the lease
    /// from then on, whether or not it is polled. With a server, the first waiter in line sends its own request when it
    /// is polled, so a future that is kept but no longer polled blocks the waiters behind it. If the engine fails, the
    /// first waiter gets the error, and all the others send their own requests: they do not wait for a silent server
    /// one after another.
    ///
    /// # Errors
    /// - [`AcquireError::Refused`](crate::AcquireError::Refused) if a custom policy refuses.
    /// - [`AcquireError::Invalid`](crate::AcquireError::Invalid) if the owner's name is empty or too long, or the
    ///   resource is too long.
    /// - [`AcquireError::TtlTooShort`](crate::AcquireError::TtlTooShort),
    ///   [`AcquireError::Quarantined`](crate::AcquireError::Quarantined) or
    ///   [`AcquireError::Engine`](crate::AcquireError::Engine) if the engine reports it.
    ///
    /// # Panics
    /// If a duration of `expiry` is zero.
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// # smol::block_on(async {
    /// let leases = Leases::in_memory();
    /// let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
    /// leases.acquire("report", &jane, Duration::from_millis(20)).await.unwrap();
    /// // Jane has closed her browser. Joe does not wait for long.
    /// let grant = leases.acquire("report", &joe, Duration::from_secs(600)).await.unwrap();
    /// assert_eq!(*grant.owner(), joe);
    /// # });
    /// ```
    #[track_caller]
    pub fn acquire(&self, resource: impl Into<Resource>, owner: &Owner, expiry: impl Into<Expiry>) -> Acquire<'_, E> {
        Acquire::new(self, resource.into(), owner.clone(), expiry.into())
    }

    /// Acquires a lease if no other owner has it.
    ///
    /// The future's output is `Result<Grant, AcquireError<E::Error>>`.
    ///
    /// # Errors
    /// [`AcquireError::Busy`](crate::AcquireError::Busy) if another owner has the lease, or if it is free and a request
    /// waits for it; otherwise fails like [`acquire`](Self::acquire).
    ///
    /// In memory, a lease that has become free is promised to the first waiter in line while that waiter's custom
    /// policy runs. Until the policy has answered, this call fails, even if it is made for the same owner. The `owner`
    /// in the error is then that waiter's owner, and the time `remaining` is zero. Meanwhile [`status`](Self::status)
    /// reports no owner.
    ///
    /// # Panics
    /// If a duration of `expiry` is zero.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{AcquireError, Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
    /// leases.try_acquire("report", &jane, Duration::from_secs(60)).now().unwrap();
    /// match leases.try_acquire("report", &joe, Duration::from_secs(60)).now() {
    ///     Err(AcquireError::Busy { owner, .. }) => println!("{owner} is editing this"),
    ///     other => panic!("{other:?}"),
    /// }
    /// ```
    #[track_caller]
    pub fn try_acquire(
        &self,
        resource: impl Into<Resource>,
        owner: &Owner,
        expiry: impl Into<Expiry>,
    ) -> Call<'_, E, TryAcquire> {
        Call::new(self, TryAcquire { request: Request::new(resource.into(), owner.clone(), expiry.into()) })
    }

    /// Extends a lease according to the policy of this grant. The end is never brought forward.
    ///
    /// Another grant of the same tenure may have another policy: see [`Expiry`].
    ///
    /// The future's output is `Result<Grant, RenewError<E::Error>>`.
    ///
    /// # Errors
    /// - [`RenewError::Lost`](crate::RenewError::Lost) if the tenure has ended, even if the lease has expired and no
    ///   other owner has acquired it.
    /// - [`RenewError::NotRenewable`](crate::RenewError::NotRenewable) if the policy is [`Expiry::Fixed`], or is custom
    ///   and refuses, or was custom and is not part of this grant: see [`Grant`](crate::Grant#serde) and
    ///   [`owned_by`](Self::owned_by). The lease then runs on to its end.
    /// - [`RenewError::Invalid`](crate::RenewError::Invalid) if the owner's name is empty or too long, or the resource
    ///   is too long; [`RenewError::Engine`](crate::RenewError::Engine) if the engine fails.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, ManualClock, Owner};
    ///
    /// let clock = ManualClock::new();
    /// let leases = Leases::in_memory_with(clock.clone());
    /// let grant = leases.try_acquire_now("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// clock.advance(Duration::from_secs(40));
    /// let grant = leases.renew(&grant).now().unwrap();
    /// assert_eq!(leases.remaining(&grant), Some(Duration::from_secs(60)));
    /// ```
    pub fn renew(&self, grant: &Grant) -> Call<'_, E, Renew> {
        Call::new(self, Renew { grant: grant.clone() })
    }

    /// Ends a tenure. The resource goes to the next waiter.
    ///
    /// The future's output is `Result<(), ReleaseError<E::Error>>`.
    ///
    /// # Errors
    /// - [`ReleaseError::NotHeld`](crate::ReleaseError::NotHeld) if no owner has the resource.
    /// - [`ReleaseError::NotOwner`](crate::ReleaseError::NotOwner) if another owner has it, or the same owner in a
    ///   newer tenure.
    /// - [`ReleaseError::Invalid`](crate::ReleaseError::Invalid) if the owner's name is empty or too long, or the
    ///   resource is too long; [`ReleaseError::Engine`](crate::ReleaseError::Engine) if the engine fails.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let grant = leases.try_acquire_now("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// leases.release(&grant).now().unwrap();
    /// assert!(leases.release(&grant).now().is_err());
    /// ```
    pub fn release(&self, grant: &Grant) -> Call<'_, E, Release> {
        let Grant { resource, owner, token, .. } = grant;
        Call::new(self, Release { resource: resource.clone(), owner: owner.clone(), token: Some(*token) })
    }

    /// Ends the tenure that this owner has of a resource, whatever its token. It is for callers that have only the
    /// owner's name.
    ///
    /// The future's output is `Result<(), ReleaseError<E::Error>>`.
    ///
    /// # Errors
    /// Fails like [`release`](Self::release).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let jane = Owner::named("jane");
    /// leases.try_acquire_now("report", &jane, Duration::from_secs(60)).unwrap();
    /// leases.release_as("report", &jane).now().unwrap();
    /// ```
    pub fn release_as(&self, resource: impl Into<Resource>, owner: &Owner) -> Call<'_, E, Release> {
        Call::new(self, Release { resource: resource.into(), owner: owner.clone(), token: None })
    }

    /// Ends exactly this tenure, whatever its owner. It is for an operator, who has the token from a list or from
    /// [`status`](Self::status). The holder [is notified](crate::Held::check).
    ///
    /// The future's output is `Result<(), ReleaseError<E::Error>>`.
    ///
    /// # Errors
    /// [`ReleaseError::NotHeld`](crate::ReleaseError::NotHeld) if no owner has the resource;
    /// [`ReleaseError::NotOwner`](crate::ReleaseError::NotOwner) if a tenure with another token has it by now;
    /// otherwise fails like [`release`](Self::release).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Lost, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let held = leases.hold_blocking("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// let token = leases.status_now("report").unwrap().unwrap().token();
    /// leases.release_token("report", token).now().unwrap();
    /// assert_eq!(held.check(), Err(Lost::Released));
    /// ```
    pub fn release_token(&self, resource: impl Into<Resource>, token: Token) -> Call<'_, E, ReleaseToken> {
        Call::new(self, ReleaseToken { resource: resource.into(), token })
    }

    /// Ends all tenures of an owner, as of one instant, and returns their number.
    ///
    /// The future's output is `Result<usize, LookError<E::Error>>`.
    ///
    /// # Errors
    /// Fails with a [`LookError`](crate::LookError) if an argument is invalid or the engine fails.
    ///
    /// # Blocking
    /// In memory, other calls wait while it runs: about 0.1 µs for each lease.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let session = Owner::named("session-42");
    /// for report in ["may", "june"] {
    ///     leases.try_acquire_now(("report", report), &session, Duration::from_secs(60)).unwrap();
    /// }
    /// assert_eq!(leases.release_all(&session).now(), Ok(2));
    /// ```
    pub fn release_all(&self, owner: &Owner) -> Call<'_, E, ReleaseAll> {
        Call::new(self, ReleaseAll { owner: owner.clone() })
    }

    /// Removes the expired leases, serves their waiters, and returns the number of leases removed. In memory this call
    /// is never necessary: a resource whose lease has expired can be acquired, and each call removes a few expired
    /// leases in passing. For other engines, see their pages.
    ///
    /// The future's output is `Result<usize, LookError<E::Error>>`.
    ///
    /// # Errors
    /// Fails with [`LookError::Engine`](crate::LookError::Engine) if the engine fails.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, ManualClock, Owner};
    ///
    /// let clock = ManualClock::new();
    /// let leases = Leases::in_memory_with(clock.clone());
    /// leases.try_acquire_now("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(leases.release_expired().now(), Ok(1));
    /// ```
    pub fn release_expired(&self) -> Call<'_, E, ReleaseExpired> {
        Call::new(self, ReleaseExpired {})
    }

    /// Returns the owner of a resource; `None` if no owner has it or the lease has expired.
    ///
    /// The future's output is `Result<Option<LeaseStatus>, LookError<E::Error>>`.
    ///
    /// # Errors
    /// Fails with a [`LookError`](crate::LookError) if an argument is invalid or the engine fails.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// assert_eq!(leases.status("report").now(), Ok(None));
    /// ```
    pub fn status(&self, resource: impl Into<Resource>) -> Call<'_, E, Status> {
        Call::new(self, Status { resource: resource.into() })
    }

    /// Returns the grants of all leases that an owner has, in any order. An engine on a server or in a file does not
    /// keep custom policies: from it, the grant of a lease with such a policy cannot be renewed until its owner has
    /// acquired the lease again.
    ///
    /// The future's output is `Result<Vec<Grant>, LookError<E::Error>>`.
    ///
    /// # Errors
    /// Fails with a [`LookError`](crate::LookError) if an argument is invalid or the engine fails.
    ///
    /// # Blocking
    /// In memory, other calls wait while it runs: about 0.1 µs for each lease of the owner.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let jane = Owner::named("jane");
    /// let grant = leases.try_acquire_now("report", &jane, Duration::from_secs(60)).unwrap();
    /// assert_eq!(leases.owned_by(&jane).now().unwrap()[0].token(), grant.token());
    /// ```
    pub fn owned_by(&self, owner: &Owner) -> Call<'_, E, OwnedBy> {
        Call::new(self, OwnedBy { owner: owner.clone() })
    }

    /// Returns the time left until the lease expires, according to this grant alone: `None` if it never expires, zero
    /// if it has expired. The engine is not asked, so use it for display only: a lease that has been released since has
    /// no time left, and a lease that was renewed with a newer grant has more. [`status`](Self::status) asks the
    /// engine.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, ManualClock, Owner};
    ///
    /// let clock = ManualClock::new();
    /// let leases = Leases::in_memory_with(clock.clone());
    /// let grant = leases.try_acquire_now("report", &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// clock.advance(Duration::from_secs(45));
    /// assert_eq!(leases.remaining(&grant), Some(Duration::from_secs(15)));
    /// ```
    pub fn remaining(&self, grant: &Grant) -> Option<Duration> {
        grant.end.map(|end| end.saturating_sub(self.engine.now()))
    }

    /// Acquires a lease for the duration of some work, in a new tenure with [`Expiry::Sliding`]. The returned
    /// [`Held`](crate::Held) renews the lease while its [`run`](crate::Held::run) or [`renewal`](crate::Held::renewal)
    /// is polled, and releases it when it is dropped. An earlier tenure of the same owner is
    /// [taken over](crate::Lost::TakenOver), so **tasks that must exclude each other need an owner each**.
    ///
    /// # Errors
    /// Fails like [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// If `ttl` is zero.
    ///
    /// # Cancel safety
    /// See [`Hold`].
    ///
    /// # Examples
    /// See [`Held`](crate::Held).
    #[track_caller]
    pub fn hold(&self, resource: impl Into<Resource>, owner: &Owner, ttl: Duration) -> Hold<'_, E> {
        Hold::new(Table::Borrowed(self), resource.into(), owner.clone(), ttl, Manner::Wait)
    }

    /// Holds a lease as [`hold`](Self::hold) does, but does not wait. Use it for work that should be skipped if another
    /// owner is doing it.
    ///
    /// **An owner that holds the lease already takes it over from itself**: its earlier tenure is
    /// [lost](crate::Lost::TakenOver). A scheduler that fires twice under one name would thus stop its first job. Call
    /// [`try_hold_new`](Self::try_hold_new) to be refused instead.
    ///
    /// # Errors
    /// Fails like [`try_acquire`](Self::try_acquire).
    ///
    /// # Panics
    /// If `ttl` is zero.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{AcquireError, Leases, Owner};
    ///
    /// # smol::block_on(async {
    /// let leases = Leases::in_memory();
    /// let _held = leases.try_hold("cleanup", &Owner::named("worker-1"), Duration::from_secs(60)).await.unwrap();
    /// match leases.try_hold("cleanup", &Owner::named("worker-2"), Duration::from_secs(60)).await {
    ///     Err(AcquireError::Busy { owner, .. }) => println!("{owner} is cleaning up"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # });
    /// ```
    #[track_caller]
    pub fn try_hold(&self, resource: impl Into<Resource>, owner: &Owner, ttl: Duration) -> Hold<'_, E> {
        Hold::new(Table::Borrowed(self), resource.into(), owner.clone(), ttl, Manner::Try)
    }

    /// Holds a lease as [`try_hold`](Self::try_hold) does, but takes over nothing: an owner that holds the lease
    /// already is refused, like any other owner. Use it for a scheduler that must not run a job twice, even if it fires
    /// twice under one name.
    ///
    /// # Errors
    /// Fails like [`try_acquire`](Self::try_acquire). [`AcquireError::Busy`](crate::AcquireError::Busy) may name the
    /// owner that makes the request.
    ///
    /// # Panics
    /// If `ttl` is zero.
    ///
    /// # Cancel safety
    /// See [`Hold`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{AcquireError, Leases, Owner};
    ///
    /// # smol::block_on(async {
    /// let leases = Leases::in_memory();
    /// let scheduler = Owner::named("scheduler");
    /// let first = leases.try_hold_new("nightly-report", &scheduler, Duration::from_secs(60)).await.unwrap();
    /// match leases.try_hold_new("nightly-report", &scheduler, Duration::from_secs(60)).await {
    ///     Err(AcquireError::Busy { owner, .. }) => assert_eq!(owner, scheduler),
    ///     other => panic!("{other:?}"),
    /// }
    /// assert!(first.check().is_ok()); // the first job goes on
    /// # });
    /// ```
    #[track_caller]
    pub fn try_hold_new(&self, resource: impl Into<Resource>, owner: &Owner, ttl: Duration) -> Hold<'_, E> {
        Hold::new(Table::Borrowed(self), resource.into(), owner.clone(), ttl, Manner::TryNew)
    }

    /// Holds a lease as [`hold`](Self::hold) does, and shares the `Leases` instead of borrowing them, so that the
    /// [`Held`](crate::Held) can move into a task.
    ///
    /// # Errors
    /// Fails like [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// If `ttl` is zero.
    ///
    /// # Cancel safety
    /// See [`Hold`].
    ///
    /// # Examples
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// # smol::block_on(async {
    /// let leases = Arc::new(Leases::in_memory());
    /// let mut held = leases.hold_arc("report", &Owner::named("jane"), Duration::from_secs(60)).await.unwrap();
    /// let done = smol::spawn(async move { held.run(async { "done" }).await });
    /// assert_eq!(done.await, Ok("done"));
    /// # });
    /// ```
    #[track_caller]
    pub fn hold_arc(self: &Arc<Self>, resource: impl Into<Resource>, owner: &Owner, ttl: Duration) -> Hold<'static, E>
    where
        E: 'static,
    {
        Hold::new(Table::Shared(Arc::clone(self)), resource.into(), owner.clone(), ttl, Manner::Wait)
    }
}

impl<E: Engine + fmt::Debug> fmt::Debug for Leases<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("engine", &self.engine).finish_non_exhaustive()
    }
}
