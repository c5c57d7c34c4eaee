//! An engine keeps the leases: in a table in this process, or on a server.
//!
//! The engine makes the decisions, each in one atomic action. The front end, [`Leases`](crate::Leases), does the rest
//! for all engines: the queue of waiters, deadlines, renewals, losses, and retries when an answer is lost. Five rules
//! carry the guarantees:
//!
//! - (a) **Each operation is one atomic action** of the engine. The future of an operation may be dropped at any
//!   moment: the operation has then been done or not, but is never half done.
//! - (b) **Only durations are exchanged**, never points in time. The engine counts them by its own clock.
//! - (c) **The token is made inside that action**, under the lock or transaction that protects the record. If it were
//!   made earlier, it could be smaller than a token that is granted in between.
//! - (d) **Watch, then try, then sleep**: a request that waits calls [`watch`](Engine::watch) before it asks. If it
//!   asked first, a release between the two calls would wake no waiter.
//! - (e) **Everything else is the front end's business**, and asking again must be safe: an owner that has the lease
//!   and asks again gets it with the same token.

use alloc::{string::String, sync::Arc, vec::Vec};
use core::{
    error::Error,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

pub use crate::notice::Notice;
use crate::{Expiry, Owner, Resource, Term, Token};

/// Keeps leases, and decides which owner gets one. See the [rules](self) and, for an implementation,
/// [`Memory`](crate::Memory).
///
/// # Examples
/// An engine that counts requests and passes them on to another engine. It passes on every method: a method that it
/// left out would have its default, whatever the other engine does.
/// ```
/// use std::{sync::{Arc, atomic::{AtomicU64, Ordering}}, time::Duration};
///
/// use keylatch_lease::{
///     Leases, ManualClock, Memory, Owner, Resource, Token,
///     engine::{Answer, Ask, Engine, Fail, Gone, Listing, Notice, Owned, Part, Record, Renewal},
/// };
///
/// struct Counted<E>(E, AtomicU64);
///
/// impl<E: Engine> Engine for Counted<E> {
///     type Error = E::Error;
///     const LOCAL: bool = E::LOCAL;
///
///     fn now(&self) -> Duration {
///         self.0.now()
///     }
///
///     fn is_real_time(&self) -> bool {
///         self.0.is_real_time()
///     }
///
///     async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<E::Error>> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.acquire(ask).await
///     }
///
///     async fn renew(&self, batch: &mut [Renewal<'_>], at: Duration) -> Result<(), Fail<E::Error>> {
///         self.0.renew(batch, at).await
///     }
///
///     async fn release(
///         &self,
///         resource: &Resource,
///         owner: &Owner,
///         token: Option<Token>,
///         at: Duration,
///     ) -> Result<Gone, Fail<E::Error>> {
///         self.0.release(resource, owner, token, at).await
///     }
///
///     async fn release_token(&self, resource: &Resource, token: Token, at: Duration) -> Result<Gone, Fail<E::Error>> {
///         self.0.release_token(resource, token, at).await
///     }
///
///     async fn release_all(&self, owner: &Owner, at: Duration) -> Result<Vec<Resource>, Fail<E::Error>> {
///         self.0.release_all(owner, at).await
///     }
///
///     async fn look(&self, resource: &Resource, at: Duration) -> Result<Option<Record>, Fail<E::Error>> {
///         self.0.look(resource, at).await
///     }
///
///     async fn owned_by(&self, owner: &Owner, at: Duration) -> Result<Vec<Owned>, Fail<E::Error>> {
///         self.0.owned_by(owner, at).await
///     }
///
///     async fn list(&self, part: Part<'_>) -> Result<Listing, Fail<E::Error>> {
///         self.0.list(part).await
///     }
///
///     async fn sweep(&self, limit: usize, at: Duration) -> Result<usize, Fail<E::Error>> {
///         self.0.sweep(limit, at).await
///     }
///
///     fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
///         self.0.watch(resource)
///     }
///
///     fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) -> bool {
///         self.0.subscribe(resource, notice)
///     }
///
///     fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
///         self.0.unsubscribe(resource, notice);
///     }
///
///     fn fallback(&self) -> Option<Duration> {
///         self.0.fallback()
///     }
///
///     fn tidy(&self) {
///         self.0.tidy();
///     }
///
///     fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
///         self.0.abandon(resource, owner, token);
///     }
/// }
///
/// let leases = Leases::with_engine(Counted(Memory::new(ManualClock::new()), AtomicU64::new(0)));
/// let owner = Owner::named("session-42");
/// leases.try_acquire("report", &owner, Duration::from_secs(60)).wait().unwrap();
/// assert_eq!(leases.engine().1.load(Ordering::Relaxed), 1);
/// ```
pub trait Engine: Send + Sync {
    /// The reason why the engine could not carry out a request.
    type Error: Error + Send + Sync + 'static;

    /// Whether the engine is in this process. If so, each of its futures must be ready on its first poll, and its clock
    /// must be the one that [`now`](Self::now) reads.
    ///
    /// The front end then hands a lease over in the same call that ends the previous one. It may poll these futures
    /// under a lock of its own, so they must not call the [`Leases`](crate::Leases) that they serve.
    const LOCAL: bool = false;

    /// Returns the time of this process's clock, as [`Clock::now`](crate::Clock::now) does. Deadlines are counted by
    /// this clock, which need not agree with the engine's unless the engine is [`LOCAL`](Self::LOCAL).
    fn now(&self) -> Duration;

    /// Returns whether [`now`](Self::now) advances in real time, like the clocks of the standard library. If so,
    /// waiters have their own timers (with the feature `std`).
    fn is_real_time(&self) -> bool {
        true
    }

    /// Grants a lease, or returns the reason why it is not granted, such as the owner that has it.
    fn acquire(&self, ask: Ask<'_>) -> impl Future<Output = Result<Answer, Fail<Self::Error>>> + Send;

    /// Extends the leases of the batch that have not expired, and stores the time that each has left in
    /// [`Renewal::left`].
    ///
    /// The end is never brought forward. The front end batches the renewals of [`Held`](crate::Held)s, up to 256 that
    /// are due at about the same time, unless the engine is [`LOCAL`](Self::LOCAL).
    fn renew(
        &self,
        batch: &mut [Renewal<'_>],
        at: Duration,
    ) -> impl Future<Output = Result<(), Fail<Self::Error>>> + Send;

    /// Ends the tenure that this owner has of the resource; if a token is given, only the tenure with that token.
    fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        at: Duration,
    ) -> impl Future<Output = Result<Gone, Fail<Self::Error>>> + Send;

    /// Ends the tenure with this token, whatever its owner, on behalf of an operator. A subscribed [`Notice`] must
    /// learn of it.
    ///
    /// By default it looks up the owner, and releases the tenure by the owner's name. An engine that sends no notice of
    /// such a release must implement this in another way.
    fn release_token(
        &self,
        resource: &Resource,
        token: Token,
        at: Duration,
    ) -> impl Future<Output = Result<Gone, Fail<Self::Error>>> + Send {
        async move {
            match self.look(resource, at).await? {
                Some(record) if record.token == token => self.release(resource, &record.owner, Some(token), at).await,
                Some(record) => Ok(Gone::NotOwner(record.owner)),
                None => Ok(Gone::NotHeld),
            }
        }
    }

    /// Ends all tenures of this owner, as of one instant. Returns the resources that this freed, except those whose
    /// lease had already expired.
    fn release_all(
        &self,
        owner: &Owner,
        at: Duration,
    ) -> impl Future<Output = Result<Vec<Resource>, Fail<Self::Error>>> + Send;

    /// Returns the unexpired lease of the resource, if there is one.
    fn look(
        &self,
        resource: &Resource,
        at: Duration,
    ) -> impl Future<Output = Result<Option<Record>, Fail<Self::Error>>> + Send;

    /// Returns all unexpired leases of this owner, in any order.
    fn owned_by(
        &self,
        owner: &Owner,
        at: Duration,
    ) -> impl Future<Output = Result<Vec<Owned>, Fail<Self::Error>>> + Send;

    /// Returns a page of the unexpired leases, in an order of the engine's choice, in which each lease keeps its place
    /// until it ends. So whatever changes meanwhile, a lease that exists throughout is on exactly one page.
    ///
    /// By default the engine cannot list leases.
    fn list(&self, part: Part<'_>) -> impl Future<Output = Result<Listing, Fail<Self::Error>>> + Send {
        let _ = part;
        async { Ok(Listing::Unsupported) }
    }

    /// Removes up to `limit` expired leases, and returns the number of leases removed. This frees memory; nothing else
    /// depends on it.
    fn sweep(&self, limit: usize, at: Duration) -> impl Future<Output = Result<usize, Fail<Self::Error>>> + Send;

    /// Returns a future that is ready when the resource may have become free since the call, or may become free earlier
    /// than expected: a [fresh](Want::Fresh) tenure can end before the tenure that it replaces would have ended. The
    /// future may also be ready for no reason.
    ///
    /// The front end calls this method before it asks the engine for the lease (rule d) or, on behalf of a
    /// [`Watch`](crate::Watch), for its owner, and never for a [`LOCAL`](Self::LOCAL) engine. By default the future is
    /// never ready. A waiter then asks when the lease should have ended, and after every [`fallback`](Self::fallback).
    fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
        let _ = resource;
        core::future::pending()
    }

    /// Subscribes this notice, from the call on, to everything that ends a tenure of the resource early, except the
    /// holder's own release. This covers a release by name, of [all](Self::release_all) leases of an owner, or by a
    /// [token](Self::release_token); a [fresh](Want::Fresh) tenure of the same owner; and a manual change of the store,
    /// if the store reports it. The engine calls [`Notice::ended`] if it knows which tenure ended, and
    /// [`Notice::doubt`] otherwise, such as after a time without a connection. While nothing happens, a subscription
    /// must not cost requests to the server.
    ///
    /// Returns whether the engine notifies. By default it does not: a holder then learns of the loss at its next
    /// renewal.
    ///
    /// The front end calls this method before it requests a lease to be [held](crate::Held), and never for a
    /// [`LOCAL`](Self::LOCAL) engine.
    fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) -> bool {
        let _ = (resource, notice);
        false
    }

    /// Ends the subscription that [`subscribe`](Self::subscribe) began.
    fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        let _ = (resource, notice);
    }

    /// Returns the longest time that a waiting request sleeps before it asks again, whatever [`watch`](Self::watch)
    /// does; `None` if there is no limit.
    fn fallback(&self) -> Option<Duration> {
        None
    }

    /// Drops the values whose drop the engine has postponed. The front end calls this after its requests, with no lock
    /// held.
    ///
    /// This is for a [`LOCAL`](Self::LOCAL) engine that keeps policies: their `Drop` is the user's code, which may call
    /// the [`Leases`](crate::Leases).
    fn tidy(&self) {}

    /// Ends a tenure whose [`Held`](crate::Held) has been dropped, as far as possible without waiting for an answer. By
    /// default, a [`LOCAL`](Self::LOCAL) engine releases the tenure, and any other does nothing: the lease expires.
    ///
    /// If ending the tenure takes time, its owner may request the resource before the tenure has ended. In that case
    /// the engine must not grant this tenure again: requests with [`Want::Any`] and [`Want::Mine`] wait until the
    /// tenure has ended.
    ///
    /// # Engines in this process
    /// The front end calls this for each waiter that was handed this tenure ([`Ask::waiting`]) and was dropped before
    /// it fetched the grant. When the last of them has been dropped, the engine ends the tenure, unless the owner knows
    /// of it: because another request of the owner, without `waiting`, was granted the tenure, or because the tenure
    /// was [renewed or read](Self::renew).
    ///
    /// By default, the first of these calls ends the tenure, even if the owner knows of it. An engine that wraps
    /// another one must pass this call on. Any other engine in this process should override the default, and count the
    /// waiters.
    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        if Self::LOCAL {
            // Whether the lease has expired makes no difference, so the clock need not be read: it is the user's, and
            // may panic.
            let _ = at_once(self.release(resource, owner, Some(token), Duration::ZERO));
        }
    }
}

/// Returns the output of a future of an engine that is [`LOCAL`](Engine::LOCAL).
#[inline]
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!(
            "keylatch-lease: an engine with `LOCAL = true` returned a future that was not ready on its first poll"
        ),
    }
}

/// The request to [`Engine::acquire`].
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The resource to lease.
    pub resource: &'a Resource,
    /// The owner that requests it.
    pub owner: &'a Owner,
    /// The conditions under which to grant it.
    pub want: Want,
    /// The term of the lease. If a tenure begins, the term counts from now; if a tenure is resumed,
    /// [`idle`](Term::idle) counts from now, and [`total`](Term::total) from the start of the tenure. The end is never
    /// brought forward. With `None`, which is allowed only with [`Want::Mine`], the end stays as it is.
    pub term: Option<Term>,
    /// The policy that the term comes from, for engines that can keep it.
    pub expiry: &'a Expiry,
    /// Whether the owner goes on waiting if another owner has the lease. If so, the engine must see to it that
    /// [`Engine::watch`] is notified.
    ///
    /// For a [`LOCAL`](Engine::LOCAL) engine, this says instead whether the lease is handed to a waiter, which may be
    /// dropped before it fetches the grant (see [`Engine::abandon`]).
    pub waiting: bool,
    /// The time of the request, by [`Engine::now`]. A [`LOCAL`](Engine::LOCAL) engine counts durations from this time;
    /// other engines use their own clock.
    pub at: Duration,
}

/// The conditions under which a lease is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Only if no other owner has the lease. If this owner has it, its tenure is resumed; otherwise a tenure begins.
    Any,
    /// Only if no other owner has the lease. If this owner has it, its tenure ends, and a new one begins.
    Fresh,
    /// Only if this owner has the lease.
    Mine,
    /// Only if no owner has the lease, not even this owner.
    New,
}

/// The answer of [`Engine::acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The owner now has the lease.
    Granted {
        /// The number of the tenure.
        token: Token,
        /// Whether the owner had the lease before this request.
        resumed: bool,
        /// The time since the tenure began.
        held_for: Duration,
        /// The time left until it expires; `None` if it never does.
        remaining: Option<Duration>,
    },
    /// An owner has the lease. With [`Want::New`] that may be the owner that asks.
    Busy {
        /// The owner that has the lease.
        owner: Owner,
        /// The time left of its lease; `None` if it never expires.
        remaining: Option<Duration>,
    },
    /// No owner has the lease. The answer to [`Want::Mine`] only.
    Free,
    /// The engine lost its data, or its namespace is new, and it grants nothing until every lease that it may have
    /// granted has ended.
    Quarantined {
        /// The time left until it grants leases again.
        remaining: Duration,
    },
    /// The requested lease is shorter than the engine supports.
    TooShort {
        /// The shortest lease that the engine supports.
        min: Duration,
    },
}

/// A lease to extend: see [`Engine::renew`].
#[derive(Clone, Debug)]
pub struct Renewal<'a> {
    /// The leased resource.
    pub resource: &'a Resource,
    /// The owner of the lease.
    pub owner: &'a Owner,
    /// The token of the tenure.
    pub token: Token,
    /// The new term: [`idle`](Term::idle) counts from now, and [`total`](Term::total) from the start of the tenure.
    /// `None` leaves the end as it is, and only reads the lease.
    pub term: Option<Term>,
    /// The answer: the time that the lease has left. It stays `Left::Nothing`, its initial value, if the tenure has
    /// ended or the lease has expired.
    pub left: Left,
}

/// The time that a lease has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The tenure has ended.
    Nothing,
    /// The lease lasts for this time.
    For(Duration),
    /// The lease never expires.
    Forever,
}

/// The outcome of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The release ended the tenure.
    Released,
    /// No owner has the resource.
    NotHeld,
    /// This owner has the resource: either an owner other than the one that was named, or the same owner in another
    /// tenure.
    NotOwner(Owner),
}

/// A lease that has not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The owner.
    pub owner: Owner,
    /// The number of the tenure.
    pub token: Token,
    /// The time since the tenure began.
    pub held_for: Duration,
    /// The time left until it expires; `None` if it never does.
    pub remaining: Option<Duration>,
}

/// One of an owner's leases.
#[derive(Clone, Debug, PartialEq)]
pub struct Owned {
    /// The leased resource.
    pub resource: Resource,
    /// The lease.
    pub record: Record,
    /// Its policy, if the engine keeps it.
    pub expiry: Option<Expiry>,
}

/// The leases to list: see [`Engine::list`].
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The owner whose leases are listed; `None` for the leases of all owners.
    pub owner: Option<&'a Owner>,
    /// The text with which the entities of the listed leases begin.
    pub entity_prefix: &'a str,
    /// The [cursor](Listing::Page::next) after which the page begins; `None` for the first page. The cursor may come
    /// from elsewhere and be invalid.
    pub after: Option<&'a str>,
    /// The greatest number of leases, which is not zero. The page may have fewer, or none.
    pub limit: usize,
    /// The time of the request, as in [`Ask::at`].
    pub at: Duration,
}

/// The answer of [`Engine::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Some of the leases.
    Page {
        /// The leases.
        leases: Vec<(Resource, Record)>,
        /// The cursor after which the next page begins; `None` if this is the last page.
        next: Option<String>,
    },
    /// The cursor is not one of this engine's.
    UnknownCursor,
    /// The engine cannot list leases.
    Unsupported,
}

/// The failure of a request to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fail<X> {
    /// The request has not been carried out, and will not be.
    NotDone(X),
    /// The request may have been carried out: its answer was lost. The front end sends it again, at most twice.
    Unknown(X),
    /// The request was carried out, but the tenure that it began or extended has ended since, and the request has begun
    /// or extended no other one. The front end sends it again. (After [`Unknown`](Self::Unknown), the front end takes a
    /// tenure of the owner that began meanwhile for its own.)
    Undone(X),
}

impl<X> Fail<X> {
    /// Returns the cause.
    pub fn into_cause(self) -> X {
        match self {
            Fail::NotDone(cause) | Fail::Unknown(cause) | Fail::Undone(cause) => cause,
        }
    }
}
