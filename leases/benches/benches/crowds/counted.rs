//! An engine that counts requests, and passes them on to another engine.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use keylatch_lease::engine::{Answer, Ask, Engine, Fail, Gone, Listing, Owned, Part, Record, Renewal};
use keylatch_lease::{Owner, Resource, Token};

/// The requests to an engine so far. Messages that the engine sends by itself, such as `LISTEN`, are not counted.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Calls of [`Engine::acquire`].
    pub acquires: u64,
    /// Calls of [`Engine::renew`].
    pub renewals: u64,
    /// The leases in those renewals.
    pub renewed: u64,
    /// Calls of all kinds.
    pub all: u64,
}

pub struct Counted<E> {
    inner: E,
    acquires: AtomicU64,
    renewals: AtomicU64,
    renewed: AtomicU64,
    others: AtomicU64,
}

impl<E> Counted<E> {
    pub fn new(inner: E) -> Self {
        let [acquires, renewals, renewed, others] = [(); 4].map(|()| AtomicU64::new(0));
        Counted { inner, acquires, renewals, renewed, others }
    }

    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Relaxed);
        let (acquires, renewals) = (of(&self.acquires), of(&self.renewals));
        Counts { acquires, renewals, renewed: of(&self.renewed), all: acquires + renewals + of(&self.others) }
    }

    fn other(&self) -> &E {
        self.others.fetch_add(1, Relaxed);
        &self.inner
    }
}

impl<E: Engine> Engine for Counted<E> {
    type Error = E::Error;
    const LOCAL: bool = E::LOCAL;

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn is_real_time(&self) -> bool {
        self.inner.is_real_time()
    }

    async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<E::Error>> {
        self.acquires.fetch_add(1, Relaxed);
        self.inner.acquire(ask).await
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], at: Duration) -> Result<(), Fail<E::Error>> {
        self.renewals.fetch_add(1, Relaxed);
        self.renewed.fetch_add(batch.len() as u64, Relaxed);
        self.inner.renew(batch, at).await
    }

    async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        at: Duration,
    ) -> Result<Gone, Fail<E::Error>> {
        self.other().release(resource, owner, token, at).await
    }

    async fn release_all(&self, owner: &Owner, at: Duration) -> Result<Vec<Resource>, Fail<E::Error>> {
        self.other().release_all(owner, at).await
    }

    async fn look(&self, resource: &Resource, at: Duration) -> Result<Option<Record>, Fail<E::Error>> {
        self.other().look(resource, at).await
    }

    async fn owned_by(&self, owner: &Owner, at: Duration) -> Result<Vec<Owned>, Fail<E::Error>> {
        self.other().owned_by(owner, at).await
    }

    async fn list(&self, part: Part<'_>) -> Result<Listing, Fail<E::Error>> {
        self.other().list(part).await
    }

    async fn sweep(&self, limit: usize, at: Duration) -> Result<usize, Fail<E::Error>> {
        self.other().sweep(limit, at).await
    }

    fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
        self.inner.watch(resource)
    }

    fn fallback(&self) -> Option<Duration> {
        self.inner.fallback()
    }

    fn tidy(&self) {
        self.inner.tidy();
    }

    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        self.other().abandon(resource, owner, token);
    }
}
