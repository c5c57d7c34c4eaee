//! The calls of the table.

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
    /// In the memory of this process, by the system's [clock](StdClock).
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
    /// [In memory](Leases::in_memory).
    fn default() -> Self {
        Leases::in_memory()
    }
}

impl<C: Clock> Leases<Memory<C>> {
    /// In the memory of this process, by a clock of one's own.
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

    /// Returns the number of leases. It removes those that have expired, and serves their waiters.
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

    /// Whether there is none.
    ///
    /// # Examples
    /// ```
    /// assert!(keylatch_lease::Leases::in_memory().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Does what is due: forgets what has expired, serves those who waited for it, and wakes renewals and
    /// [`lost`](crate::Held::lost). Says in how long there will be more to do, as things stand: `None` if never.
    ///
    /// With a [`StdClock`] nobody has to call it. With another clock, it is what wakes.
    ///
    /// If more than 64 leases end within the same few milliseconds (or, far ahead, minutes), what it says may be too early, and is never
    /// too late.
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
    /// On an engine.
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

    /// The engine.
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

    /// Acquires a lease, and waits while another owner has it. Who has it already gets it at once: the tenure goes on, with the same
    /// token, and with `x` as its policy; the end is never brought forward.
    ///
    /// Those who wait are served in order of arrival in this process. In memory, whoever is served has the lease from then on, whether it
    /// has been polled since or not. With an engine elsewhere the first in line asks for itself, when it is polled: a future that has been
    /// polled, and is kept without being polled any more, keeps those behind it waiting. If the engine does not answer, the first in line
    /// gets the error, and all the others ask for themselves: they do not wait for a silent server one after another.
    ///
    /// # Errors
    /// [`AcquireError::Refused`](crate::AcquireError::Refused) if a custom policy says no, [`AcquireError::Invalid`](crate::AcquireError::Invalid), [`AcquireError::Engine`](crate::AcquireError::Engine) and what else an
    /// engine may say.
    ///
    /// # Panics
    /// If a duration of `x` is zero.
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
    pub fn acquire(&self, r: impl Into<Resource>, o: &Owner, x: impl Into<Expiry>) -> Acquire<'_, E> {
        Acquire::new(self, r.into(), o.clone(), x.into())
    }

    /// Acquires a lease if no other owner has it.
    ///
    /// The future's output is `Result<Grant, AcquireError<E::Error>>`.
    ///
    /// # Errors
    /// [`AcquireError::Busy`](crate::AcquireError::Busy) if another owner has it, or somebody waits for it; otherwise as [`acquire`](Self::acquire).
    ///
    /// In memory, a lease that has come free is promised to the first in line while its custom policy is being asked. Until the policy has
    /// answered, a try is refused with that waiter as the `owner` and no time `remaining`, even if it is a try of the same owner; and
    /// [`status`](Self::status) says that nobody has the lease.
    ///
    /// # Panics
    /// If a duration of `x` is zero.
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
    pub fn try_acquire(&self, r: impl Into<Resource>, o: &Owner, x: impl Into<Expiry>) -> Call<'_, E, TryAcquire> {
        Call::new(self, TryAcquire { request: Request::new(r.into(), o.clone(), x.into()) })
    }

    /// Extends a lease, as the policy of this grant says. The end is never brought forward.
    ///
    /// Another grant of the same tenure may have another policy: see [`Expiry`].
    ///
    /// The future's output is `Result<Grant, RenewError<E::Error>>`.
    ///
    /// # Errors
    /// [`RenewError::Lost`](crate::RenewError::Lost) if the tenure is over, also if it has expired and nobody has taken it since; [`RenewError::NotRenewable`](crate::RenewError::NotRenewable) if its
    /// policy is [`Expiry::Fixed`] or says no: it then runs on to its end.
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

    /// Ends a tenure: the resource goes to the next who waits for it.
    ///
    /// The future's output is `Result<(), ReleaseError<E::Error>>`.
    ///
    /// # Errors
    /// [`ReleaseError::NotHeld`](crate::ReleaseError::NotHeld) if nobody has it, [`ReleaseError::NotOwner`](crate::ReleaseError::NotOwner) if somebody else does, or the owner in a newer tenure.
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

    /// Ends whatever tenure this owner has of a resource, for those who have only the name.
    ///
    /// The future's output is `Result<(), ReleaseError<E::Error>>`.
    ///
    /// # Errors
    /// As [`release`](Self::release).
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
    pub fn release_as(&self, r: impl Into<Resource>, o: &Owner) -> Call<'_, E, Release> {
        Call::new(self, Release { resource: r.into(), owner: o.clone(), token: None })
    }

    /// Ends exactly this tenure, whoever's it is: for an operator, who has the token from a list or from [`status`](Self::status). Whoever
    /// holds it [finds out](crate::Held::check).
    ///
    /// The future's output is `Result<(), ReleaseError<E::Error>>`.
    ///
    /// # Errors
    /// [`ReleaseError::NotHeld`](crate::ReleaseError::NotHeld); [`ReleaseError::NotOwner`](crate::ReleaseError::NotOwner) if another tenure
    /// has it by now.
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
    pub fn release_token(&self, r: impl Into<Resource>, token: Token) -> Call<'_, E, ReleaseToken> {
        Call::new(self, ReleaseToken { resource: r.into(), token })
    }

    /// Ends all tenures of an owner, as of one instant, and says how many.
    ///
    /// The future's output is `Result<usize, LookError<E::Error>>`.
    ///
    /// # Errors
    /// [`LookError`](crate::LookError).
    ///
    /// # Blocking
    /// In memory other calls wait for that instant: 0.1 µs or so for each lease.
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
    pub fn release_all(&self, o: &Owner) -> Call<'_, E, ReleaseAll> {
        Call::new(self, ReleaseAll { owner: o.clone() })
    }

    /// Forgets what has expired, serves those who waited for it, and says how many leases it forgot. Nothing depends on it: what has
    /// expired is free for whoever asks, and each call forgets a few in passing.
    ///
    /// The future's output is `Result<usize, LookError<E::Error>>`.
    ///
    /// # Errors
    /// [`LookError::Engine`](crate::LookError::Engine).
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

    /// Returns the owner of a resource. `None` if nobody has it, or the lease has expired.
    ///
    /// The future's output is `Result<Option<LeaseStatus>, LookError<E::Error>>`.
    ///
    /// # Errors
    /// [`LookError`](crate::LookError).
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
    pub fn status(&self, r: impl Into<Resource>) -> Call<'_, E, Status> {
        Call::new(self, Status { resource: r.into() })
    }

    /// All that an owner has, in any order.
    ///
    /// The future's output is `Result<Vec<Grant>, LookError<E::Error>>`.
    ///
    /// # Errors
    /// [`LookError`](crate::LookError).
    ///
    /// # Blocking
    /// In memory other calls wait meanwhile: 0.1 µs or so for each lease of the owner.
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
    pub fn owned_by(&self, o: &Owner) -> Call<'_, E, OwnedBy> {
        Call::new(self, OwnedBy { owner: o.clone() })
    }

    /// The time left until the lease expires, by the grant alone. `None`: it never expires; zero: it is over, as far as the grant
    /// knows. It is for display: a lease that was released since has nothing left, and one that was renewed with a newer
    /// grant has more. [`status`](Self::status) knows.
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

    /// Acquires a lease for as long as something is done, in a tenure of its own, with [`Expiry::Sliding`]: the [`Held`](crate::Held) renews it, and
    /// releases it when it is dropped. An earlier tenure of the same owner is [taken over](crate::Lost::TakenOver): **tasks that are to
    /// exclude each other need an owner each**.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
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
    pub fn hold(&self, r: impl Into<Resource>, o: &Owner, ttl: Duration) -> Hold<'_, E> {
        Hold::new(Table::Borrowed(self), r.into(), o.clone(), ttl, Manner::Wait)
    }

    /// Holds a lease as [`hold`](Self::hold) does, without waiting: for work that is to be skipped if another owner does it.
    ///
    /// **An owner that holds the lease already takes it over from itself**: its earlier tenure is
    /// [lost](crate::Lost::TakenOver). A scheduler that fires twice under one name would stop its first job that way; to be refused
    /// instead, call [`try_hold_new`](Self::try_hold_new).
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
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
    ///     Err(AcquireError::Busy { owner, .. }) => println!("{owner} is at it"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # });
    /// ```
    #[track_caller]
    pub fn try_hold(&self, r: impl Into<Resource>, o: &Owner, ttl: Duration) -> Hold<'_, E> {
        Hold::new(Table::Borrowed(self), r.into(), o.clone(), ttl, Manner::Try)
    }

    /// Holds a lease as [`try_hold`](Self::try_hold) does, but takes over nothing: an owner that holds the lease already is refused, as
    /// anybody else is. For a scheduler that must not run a job twice, even if it fires twice under one name.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire). [`AcquireError::Busy`](crate::AcquireError::Busy) may name the owner that asked.
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
    pub fn try_hold_new(&self, r: impl Into<Resource>, o: &Owner, ttl: Duration) -> Hold<'_, E> {
        Hold::new(Table::Borrowed(self), r.into(), o.clone(), ttl, Manner::TryNew)
    }

    /// The same as [`hold`](Self::hold), sharing the table: the [`Held`](crate::Held) can go into a task.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
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
    pub fn hold_arc(self: &Arc<Self>, r: impl Into<Resource>, o: &Owner, ttl: Duration) -> Hold<'static, E>
    where
        E: 'static,
    {
        Hold::new(Table::Shared(Arc::clone(self)), r.into(), o.clone(), ttl, Manner::Wait)
    }
}

impl<E: Engine + fmt::Debug> fmt::Debug for Leases<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("engine", &self.engine).finish_non_exhaustive()
    }
}
