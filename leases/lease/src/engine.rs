//! An engine keeps the leases: a table in this process, or a server.
//!
//! An engine decides, one atomic action at a time; the front end, [`Leases`](crate::Leases), does the rest once for all of them: the
//! queue of those who wait, deadlines, renewals, loss, answers that got lost. Five rules carry the guarantees:
//!
//! - (a) **Each operation is one atomic action** of the engine. A future of it may be dropped at any moment: what it asked for has
//!   then been done or not, but never by half.
//! - (b) **Only durations are exchanged**, never points in time. The engine adds its own clock.
//! - (c) **The token is made inside that action**, under whatever protects the record. Made earlier it could be older than one
//!   that was granted meanwhile.
//! - (d) **Look out, then try, then sleep**: who waits has [`watch`](Engine::watch)ed before it asked, or a release between
//!   the two would wake nobody.
//! - (e) **Everything else is the front end's**, and asking again must be safe: an owner who has the lease and asks again
//!   gets it with the same token.

use alloc::{sync::Arc, vec::Vec};
use core::{
    error::Error,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

pub use crate::notice::Notice;
use crate::{Expiry, Owner, Resource, Term, Token};

/// Keeps leases, and decides who gets one. See the [rules](self) and [`Memory`](crate::Memory), which is one.
///
/// # Examples
/// An engine that asks another one, and counts:
/// ```
/// use std::{sync::atomic::{AtomicU64, Ordering}, time::Duration};
///
/// use keylatch_lease::{
///     Leases, ManualClock, Memory, Owner, Resource, Token,
///     engine::{Answer, Ask, Engine, Fail, Gone, Owned, Record, Renewal},
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
///     async fn sweep(&self, limit: usize, at: Duration) -> Result<usize, Fail<E::Error>> {
///         self.0.sweep(limit, at).await
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
    /// Why the engine could not do what it was asked.
    type Error: Error + Send + Sync + 'static;

    /// Whether the engine is in this process: each of its futures is then ready when it is first polled, and its clock is the one
    /// that [`now`](Self::now) reads.
    ///
    /// The front end then hands a lease over in the very call that ends another, for which it may poll these futures under
    /// a lock of its own: they must not call the [`Leases`](crate::Leases) that they serve.
    const LOCAL: bool = false;

    /// Returns the time of this process's clock, as [`Clock::now`](crate::Clock::now) does. Deadlines are reckoned by it; it need not agree with the
    /// engine's, unless that is [`LOCAL`](Self::LOCAL).
    fn now(&self) -> Duration;

    /// Whether time passes in [`now`](Self::now) as in the timers of std. Those who wait then have timers of their own.
    fn is_real_time(&self) -> bool {
        true
    }

    /// Grants a lease, or says who has it.
    fn acquire(&self, ask: Ask<'_>) -> impl Future<Output = Result<Answer, Fail<Self::Error>>> + Send;

    /// Extends those leases that have not expired, and writes down what became of each in [`Renewal::left`].
    ///
    /// The end is never brought forward. Those that a [`Held`](crate::Held) renews come together, up to 256 that are due at about the same
    /// time, unless the engine is [`LOCAL`](Self::LOCAL).
    fn renew(
        &self,
        batch: &mut [Renewal<'_>],
        at: Duration,
    ) -> impl Future<Output = Result<(), Fail<Self::Error>>> + Send;

    /// Ends the tenure that this owner has of the resource; where there is a token, only the one of that token.
    fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        at: Duration,
    ) -> impl Future<Output = Result<Gone, Fail<Self::Error>>> + Send;

    /// Ends the tenure of this token, whoever's it is: an operator does, who is not its owner. A [`Notice`] is told of it.
    ///
    /// By default it looks who has it, and releases that tenure by its owner's name: an engine that tells nobody of such a release has to do it
    /// in another way.
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

    /// Ends all tenures of this owner, as of one instant. Gives back the resources that were freed, and none whose lease had expired.
    fn release_all(
        &self,
        owner: &Owner,
        at: Duration,
    ) -> impl Future<Output = Result<Vec<Resource>, Fail<Self::Error>>> + Send;

    /// The owner of the resource.
    fn look(
        &self,
        resource: &Resource,
        at: Duration,
    ) -> impl Future<Output = Result<Option<Record>, Fail<Self::Error>>> + Send;

    /// All that this owner has, in any order.
    fn owned_by(
        &self,
        owner: &Owner,
        at: Duration,
    ) -> impl Future<Output = Result<Vec<Owned>, Fail<Self::Error>>> + Send;

    /// Forgets up to so many leases that have expired, and says how many it did. Nothing depends on it but memory.
    fn sweep(&self, limit: usize, at: Duration) -> impl Future<Output = Result<usize, Fail<Self::Error>>> + Send;

    /// A future that is ready as soon as the resource may have come free since the call, or its end may have come nearer: a
    /// [fresh](Want::Fresh) tenure can end before the one that it replaces. It may be ready without a reason.
    ///
    /// The front end calls it before it asks (rule d), and never for a [`LOCAL`](Self::LOCAL) engine. By default it is never ready: those
    /// who wait then ask when the lease should have ended, and every [`fallback`](Self::fallback).
    fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
        let _ = resource;
        core::future::pending()
    }

    /// Tells this notice, from the call on, what ends a tenure of the resource before its time and is not done by its holder: a release by name, of
    /// [all](Self::release_all) that an owner has or by a [token](Self::release_token), a [fresh](Want::Fresh) tenure of the same owner, and what
    /// somebody does to the store by hand, as far as the store tells. [`Notice::ended`], if it is known which tenure that was; otherwise
    /// [`Notice::doubt`], and so after a time in which nothing was heard. In quiet times it must not ask the server for that.
    ///
    /// Says whether it does. By default it does not: those who hold a lease then notice when it is to be renewed.
    ///
    /// The front end calls it before it asks for what is to be [held](crate::Held), and never for a [`LOCAL`](Self::LOCAL) engine.
    fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) -> bool {
        let _ = (resource, notice);
        false
    }

    /// Ends what [`subscribe`](Self::subscribe) has begun.
    fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        let _ = (resource, notice);
    }

    /// The longest time that a waiting request sleeps before it asks again, whatever [`watch`](Self::watch) does. `None`: for ever.
    fn fallback(&self) -> Option<Duration> {
        None
    }

    /// Drops what is left to be dropped, where no lock is held. The front end calls it after its questions.
    ///
    /// Of use to an engine that is [`LOCAL`](Self::LOCAL) and keeps policies: their `Drop` is the user's code, and may call the
    /// [`Leases`](crate::Leases).
    fn tidy(&self) {}

    /// Ends a tenure as far as possible without waiting for an answer: its [`Held`](crate::Held) has been dropped. By default nothing happens,
    /// and the lease expires.
    ///
    /// If that takes time, its owner may request the resource before it is done. The engine must not grant this tenure any more, which is about
    /// to end: [`Want::Any`] and [`Want::Mine`] wait until it has ended.
    ///
    /// # Engines in this process
    /// The front end calls this for each waiter that was handed this tenure ([`Ask::waiting`]) and was dropped before it fetched the grant.
    /// When the last of them has been dropped the engine ends the tenure, unless the owner knows of it: another request of the owner, without
    /// `waiting`, was granted the tenure, or the tenure was [renewed or looked at](Self::renew).
    ///
    /// By default the first of these waiters ends the tenure, even if the owner knows of it. An engine that wraps another one must pass this
    /// call on, and any other should count.
    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        if Self::LOCAL {
            // Whether the lease has expired makes no difference, so the clock need not be read: it is the user's, and may panic.
            let _ = at_once(self.release(resource, owner, Some(token), Duration::ZERO));
        }
    }
}

/// Returns the output of a future of an engine that is [`LOCAL`](Engine::LOCAL).
#[inline]
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("an engine that is LOCAL has a future that is not ready at once"),
    }
}

/// The request to [`Engine::acquire`].
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The resource to lease.
    pub resource: &'a Resource,
    /// For whom.
    pub owner: &'a Owner,
    /// Under which conditions.
    pub want: Want,
    /// How far the lease reaches: from the start of a new tenure, or from now and the old start if it is resumed. The end is never brought
    /// forward. `None`, with [`Want::Mine`] alone: it stays.
    pub term: Option<Term>,
    /// The policy that the term comes from, for engines that can keep it.
    pub expiry: &'a Expiry,
    /// Whether the owner goes on waiting if another owner has it: the engine then sees to it that [`Engine::watch`] is notified.
    ///
    /// In a request to a [`LOCAL`](Engine::LOCAL) engine: whether the lease is handed to a waiter, which may be dropped before it fetches the
    /// grant: see [`Engine::abandon`].
    pub waiting: bool,
    /// When this was asked, by [`Engine::now`]. An engine that is [`LOCAL`](Engine::LOCAL) counts from here, others by their own clock.
    pub at: Duration,
}

/// Under which conditions a lease is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// If nobody else has it: a tenure that the owner has is resumed, otherwise one begins.
    Any,
    /// The same, but a tenure that the owner has ends, and another one begins.
    Fresh,
    /// Only if the owner has it.
    Mine,
    /// Only if nobody has it, this owner included.
    New,
}

/// The answer of [`Engine::acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The owner has the lease.
    Granted {
        /// The number of the tenure.
        token: Token,
        /// Whether the owner had it already.
        resumed: bool,
        /// The time since the tenure began.
        held_for: Duration,
        /// The time left until it expires. `None`: it never expires.
        remaining: Option<Duration>,
    },
    /// Somebody has it: who, and for how long. That is the owner who asks if it asked for [`Want::New`].
    Busy {
        /// Who.
        owner: Owner,
        /// `None`: it never ends.
        remaining: Option<Duration>,
    },
    /// Nobody has it: to who asked for [`Want::Mine`].
    Free,
    /// The engine lost its memory, and grants nothing until whatever it may have granted has ended.
    Quarantined {
        /// How long.
        remaining: Duration,
    },
    /// The engine has no leases as short as that.
    TooShort {
        /// The shortest.
        min: Duration,
    },
}

/// A lease to extend: see [`Engine::renew`].
#[derive(Clone, Debug)]
pub struct Renewal<'a> {
    /// Of what.
    pub resource: &'a Resource,
    /// Whose.
    pub owner: &'a Owner,
    /// Of which tenure.
    pub token: Token,
    /// How far, from now and the start of the tenure. `None`: the end stays, and it is only looked at.
    pub term: Option<Term>,
    /// The answer: what the lease has left. It stays as it was made, `Left::Nothing`, if the tenure is over or has expired.
    pub left: Left,
}

/// The time left of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The tenure is over.
    Nothing,
    /// It lasts so long.
    For(Duration),
    /// It never ends.
    Forever,
}

/// The outcome of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The tenure has ended by it.
    Released,
    /// Nobody has the resource.
    NotHeld,
    /// This owner has it; or this tenure of it is another than the one that was named.
    NotOwner(Owner),
}

/// A lease that has not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose.
    pub owner: Owner,
    /// The number of the tenure.
    pub token: Token,
    /// The time since the tenure began.
    pub held_for: Duration,
    /// The time left until it expires. `None`: it never expires.
    pub remaining: Option<Duration>,
}

/// One of an owner's leases.
#[derive(Clone, Debug, PartialEq)]
pub struct Owned {
    /// Of what.
    pub resource: Resource,
    /// The lease.
    pub record: Record,
    /// Its policy, where the engine keeps it.
    pub expiry: Option<Expiry>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fail<X> {
    /// It has not been done, and will not be.
    NotDone(X),
    /// It may have been done: the answer was lost. The front end asks again.
    Unknown(X),
}

impl<X> Fail<X> {
    /// Why.
    pub fn into_cause(self) -> X {
        match self {
            Fail::NotDone(cause) | Fail::Unknown(cause) => cause,
        }
    }
}
