//! The calls that return no future: each is short for one that does, followed by `wait()`, `wait_for()` or `now()`.
//!
//! The futures of `renew` and `release` keep clones of the grant or of its parts. `release_now` clones nothing, and
//! `renew_now` clones the grant only if the renewal succeeds.

use alloc::vec::Vec;
#[cfg(feature = "std")]
use core::time::Duration;

use crate::{
    AcquireError, Clock, Expiry, Grant, LeaseStatus, Leases, LookError, Memory, Owner, ReleaseError, RenewError,
    Resource, Token, engine::at_once,
};
#[cfg(feature = "std")]
use crate::{Held, engine::Engine};

/// Defines the two short forms of each call, with an example of each.
macro_rules! short_calls {
    ($(
        $call:ident($($name:ident: $type:ty),*) -> $output:ident<$ok:ty> ;
        $now:ident $now_example:literal
        $blocking:ident $blocking_example:literal
    )+) => {
        impl<C: Clock> Leases<Memory<C>> {
            $(
                #[doc = concat!("Short for [`", stringify!($call), "`](Self::", stringify!($call), ")`(..).now()`.")]
                ///
                /// # Errors
                #[doc = concat!("Fails like [`", stringify!($call), "`](Self::", stringify!($call), ").")]
                ///
                /// # Examples
                /// ```
                /// # use std::time::Duration;
                /// # use keylatch_lease::{Leases, Owner};
                /// # let (leases, jane, minute) = (Leases::in_memory(), Owner::named("jane"), Duration::from_secs(60));
                #[doc = $now_example]
                /// ```
                #[track_caller]
                pub fn $now(&self, $($name: $type),*) -> Result<$ok, $output> {
                    self.$call($($name),*).now()
                }
            )+
        }

        #[cfg(feature = "std")]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        impl<E: Engine> Leases<E> {
            $(
                #[doc = concat!("Short for [`", stringify!($call), "`](Self::", stringify!($call), ")`(..).wait()`.")]
                ///
                /// # Blocking
                /// With an engine in another process, blocks until the engine has answered. Do not call it in an async
                /// task.
                ///
                /// # Errors
                #[doc = concat!("Fails like [`", stringify!($call), "`](Self::", stringify!($call), ").")]
                ///
                /// # Examples
                /// ```
                /// # use std::time::Duration;
                /// # use keylatch_lease::{Leases, Owner};
                /// # let (leases, jane, minute) = (Leases::in_memory(), Owner::named("jane"), Duration::from_secs(60));
                #[doc = $blocking_example]
                /// ```
                #[track_caller]
                pub fn $blocking(&self, $($name: $type),*) -> Result<$ok, $output<E::Error>> {
                    self.$call($($name),*).wait()
                }
            )+
        }
    };
}

short_calls! {
    try_acquire(resource: impl Into<Resource>, owner: &Owner, expiry: impl Into<Expiry>) -> AcquireError<Grant>;
    try_acquire_now "let grant = leases.try_acquire_now(\"report\", &jane, minute).unwrap();"
    try_acquire_blocking "let grant = leases.try_acquire_blocking(\"report\", &jane, minute).unwrap();"

    release_as(resource: impl Into<Resource>, owner: &Owner) -> ReleaseError<()>;
    release_as_now "leases.try_acquire_now(\"report\", &jane, minute).unwrap();\nleases.release_as_now(\"report\", &jane).unwrap();"
    release_as_blocking "leases.try_acquire_now(\"report\", &jane, minute).unwrap();\nleases.release_as_blocking(\"report\", &jane).unwrap();"

    release_token(resource: impl Into<Resource>, token: Token) -> ReleaseError<()>;
    release_token_now "let grant = leases.try_acquire_now(\"report\", &jane, minute).unwrap();\nleases.release_token_now(\"report\", grant.token()).unwrap();"
    release_token_blocking "let grant = leases.try_acquire_blocking(\"report\", &jane, minute).unwrap();\nleases.release_token_blocking(\"report\", grant.token()).unwrap();"

    release_all(owner: &Owner) -> LookError<usize>;
    release_all_now "leases.try_acquire_now(\"report\", &jane, minute).unwrap();\nassert_eq!(leases.release_all_now(&jane), Ok(1));"
    release_all_blocking "leases.try_acquire_now(\"report\", &jane, minute).unwrap();\nassert_eq!(leases.release_all_blocking(&jane), Ok(1));"

    release_expired() -> LookError<usize>;
    release_expired_now "assert_eq!(leases.release_expired_now(), Ok(0));"
    release_expired_blocking "assert_eq!(leases.release_expired_blocking(), Ok(0));"

    status(resource: impl Into<Resource>) -> LookError<Option<LeaseStatus>>;
    status_now "leases.try_acquire_now(\"report\", &jane, minute).unwrap();\nassert_eq!(leases.status_now(\"report\").unwrap().unwrap().owner(), &jane);"
    status_blocking "leases.try_acquire_now(\"report\", &jane, minute).unwrap();\nassert_eq!(leases.status_blocking(\"report\").unwrap().unwrap().owner(), &jane);"

    owned_by(owner: &Owner) -> LookError<Vec<Grant>>;
    owned_by_now "leases.try_acquire_now(\"report\", &jane, minute).unwrap();\nassert_eq!(leases.owned_by_now(&jane).unwrap().len(), 1);"
    owned_by_blocking "leases.try_acquire_now(\"report\", &jane, minute).unwrap();\nassert_eq!(leases.owned_by_blocking(&jane).unwrap().len(), 1);"
}

/// The calls with a grant.
impl<C: Clock> Leases<Memory<C>> {
    /// Short for [`renew`](Self::renew)`(..).now()`.
    ///
    /// # Errors
    /// Fails like [`renew`](Self::renew).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use keylatch_lease::{Leases, Owner};
    /// # let (leases, jane, minute) = (Leases::in_memory(), Owner::named("jane"), Duration::from_secs(60));
    /// let grant = leases.try_acquire_now("report", &jane, minute).unwrap();
    /// let grant = leases.renew_now(&grant).unwrap();
    /// ```
    pub fn renew_now(&self, grant: &Grant) -> Result<Grant, RenewError> {
        let end = match self.renewed_at_once(grant) {
            Some(end) => end,
            None => at_once(self.renewed(grant, &[]))?,
        };
        Ok(Grant { end, ..grant.clone() })
    }

    /// Short for [`release`](Self::release)`(..).now()`.
    ///
    /// # Errors
    /// Fails like [`release`](Self::release).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use keylatch_lease::{Leases, Owner};
    /// # let (leases, jane, minute) = (Leases::in_memory(), Owner::named("jane"), Duration::from_secs(60));
    /// let grant = leases.try_acquire_now("report", &jane, minute).unwrap();
    /// leases.release_now(&grant).unwrap();
    /// ```
    pub fn release_now(&self, grant: &Grant) -> Result<(), ReleaseError> {
        match self.released_at_once(&grant.resource, &grant.owner, Some(grant.token)) {
            Some(()) => Ok(()),
            None => at_once(self.released(&grant.resource, &grant.owner, Some(grant.token))),
        }
    }
}

/// The calls with a grant, and the calls that wait.
#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl<E: Engine> Leases<E> {
    /// Short for [`renew`](Self::renew)`(..).wait()`.
    ///
    /// # Blocking
    /// With an engine in another process, blocks until the engine has answered. Do not call it in an async task.
    ///
    /// # Errors
    /// Fails like [`renew`](Self::renew).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use keylatch_lease::{Leases, Owner};
    /// # let (leases, jane, minute) = (Leases::in_memory(), Owner::named("jane"), Duration::from_secs(60));
    /// let grant = leases.try_acquire_now("report", &jane, minute).unwrap();
    /// let grant = leases.renew_blocking(&grant).unwrap();
    /// ```
    pub fn renew_blocking(&self, grant: &Grant) -> Result<Grant, RenewError<E::Error>> {
        self.renew(grant).wait()
    }

    /// Short for [`release`](Self::release)`(..).wait()`.
    ///
    /// # Blocking
    /// With an engine in another process, blocks until the engine has answered. Do not call it in an async task.
    ///
    /// # Errors
    /// Fails like [`release`](Self::release).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use keylatch_lease::{Leases, Owner};
    /// # let (leases, jane, minute) = (Leases::in_memory(), Owner::named("jane"), Duration::from_secs(60));
    /// let grant = leases.try_acquire_now("report", &jane, minute).unwrap();
    /// leases.release_blocking(&grant).unwrap();
    /// ```
    pub fn release_blocking(&self, grant: &Grant) -> Result<(), ReleaseError<E::Error>> {
        self.release(grant).wait()
    }

    /// Short for [`acquire`](Self::acquire)`(..).wait()`.
    ///
    /// # Blocking
    /// Blocks until the lease is granted. Do not call it in an async task.
    ///
    /// # Errors
    /// Fails like [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use keylatch_lease::{Leases, Owner};
    /// # let (leases, jane, minute) = (Leases::in_memory(), Owner::named("jane"), Duration::from_secs(60));
    /// let grant = leases.acquire_blocking("report", &jane, minute).unwrap();
    /// ```
    #[track_caller]
    pub fn acquire_blocking(
        &self,
        resource: impl Into<Resource>,
        owner: &Owner,
        expiry: impl Into<Expiry>,
    ) -> Result<Grant, AcquireError<E::Error>> {
        self.acquire(resource, owner, expiry).wait()
    }

    /// Short for [`acquire`](Self::acquire)`(..).wait_for(longest)`.
    ///
    /// # Blocking
    /// Blocks until the lease is granted, for at most `longest` of real time. Do not call it in an async task.
    ///
    /// # Errors
    /// Fails like [`acquire`](Self::acquire), or with [`AcquireError::Limit`].
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use keylatch_lease::{Leases, Owner};
    /// # let (leases, jane, minute) = (Leases::in_memory(), Owner::named("jane"), Duration::from_secs(60));
    /// let grant = leases.acquire_for("report", &jane, minute, Duration::from_secs(1)).unwrap();
    /// ```
    #[track_caller]
    pub fn acquire_for(
        &self,
        resource: impl Into<Resource>,
        owner: &Owner,
        expiry: impl Into<Expiry>,
        longest: Duration,
    ) -> Result<Grant, AcquireError<E::Error>> {
        self.acquire(resource, owner, expiry).wait_for(longest)
    }

    /// Short for [`hold`](Self::hold)`(..).wait()`.
    ///
    /// # Blocking
    /// Blocks until the lease is granted. Do not call it in an async task.
    ///
    /// # Errors
    /// Fails like [`hold`](Self::hold).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use keylatch_lease::{Leases, Owner};
    /// # let (leases, jane, minute) = (Leases::in_memory(), Owner::named("jane"), Duration::from_secs(60));
    /// let held = leases.hold_blocking("report", &jane, minute).unwrap();
    /// ```
    #[track_caller]
    pub fn hold_blocking(
        &self,
        resource: impl Into<Resource>,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Held<'_, E>, AcquireError<E::Error>> {
        self.hold(resource, owner, ttl).wait()
    }
}
