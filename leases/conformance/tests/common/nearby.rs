//! The engine in memory as if it were in another process: each answer takes some time, and each client knows only what
//! it was told. The suite moves the clock. There is also a variant of the engine with a fault.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::{Future, poll_fn},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    task::{Poll, Waker},
    time::Duration,
};

use futures_lite::future::{block_on, yield_now};
use keylatch_lease::{
    Clock, ManualClock, Memory, Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Notice, Owned, Record, Renewal, Want},
};
use keylatch_lease_conformance::{Caps, Failure, Fixture, Proxy};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Never<T> = Result<T, Fail<Infallible>>;

/// The state that the clients of a namespace share.
struct Desk {
    memory: Memory<ManualClock>,
    clock: ManualClock,
    watches: Mutex<HashMap<Resource, Vec<Arc<Watch>>>>,
    notices: Mutex<HashMap<Resource, Vec<Arc<Notice>>>>,
    clients: AtomicU32,
}

#[derive(Default)]
struct Watch(Mutex<(bool, Option<Waker>)>);

impl Desk {
    fn new() -> Self {
        let clock = ManualClock::new();
        Desk {
            memory: Memory::new(clock.clone()),
            clock,
            watches: Mutex::default(),
            notices: Mutex::default(),
            clients: AtomicU32::new(0),
        }
    }

    fn tell(&self, resource: &Resource) {
        for watch in lock(&self.watches).remove(resource).into_iter().flatten() {
            let waker = {
                let mut watch = lock(&watch.0);
                watch.0 = true;
                watch.1.take()
            };
            waker.into_iter().for_each(Waker::wake);
        }
        let notices = lock(&self.notices).get(resource).cloned().unwrap_or_default();
        notices.iter().for_each(|notice| notice.doubt());
    }
}

/// A client.
pub(crate) struct Nearby {
    desk: Arc<Desk>,
}

impl Engine for Nearby {
    type Error = Infallible;

    fn now(&self) -> Duration {
        self.desk.clock.now()
    }

    fn is_real_time(&self) -> bool {
        false
    }

    async fn acquire(&self, ask: Ask<'_>) -> Never<Answer> {
        yield_now().await;
        let answer = self.desk.memory.acquire(Ask { at: self.now(), ..ask }).await;
        if ask.want == Want::Fresh {
            self.desk.tell(ask.resource);
        }
        yield_now().await;
        answer
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Never<()> {
        yield_now().await;
        let answer = self.desk.memory.renew(batch, self.now()).await;
        yield_now().await;
        answer
    }

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, _: Duration) -> Never<Gone> {
        yield_now().await;
        let answer = self.desk.memory.release(resource, owner, token, self.now()).await;
        self.desk.tell(resource);
        yield_now().await;
        answer
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Never<Vec<Resource>> {
        yield_now().await;
        let answer = self.desk.memory.release_all(owner, self.now()).await;
        answer.iter().flatten().for_each(|resource| self.desk.tell(resource));
        yield_now().await;
        answer
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Never<Option<Record>> {
        yield_now().await;
        self.desk.memory.look(resource, self.now()).await
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Never<Vec<Owned>> {
        yield_now().await;
        self.desk.memory.owned_by(owner, self.now()).await
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Never<usize> {
        yield_now().await;
        Engine::sweep(&self.desk.memory, limit, self.now()).await
    }

    fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
        let watch = Arc::new(Watch::default());
        lock(&self.desk.watches).entry(resource.clone()).or_default().push(Arc::clone(&watch));
        poll_fn(move |cx| {
            let mut watch = lock(&watch.0);
            watch.1 = Some(cx.waker().clone());
            if watch.0 { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) -> bool {
        lock(&self.desk.notices).entry(resource.clone()).or_default().push(Arc::clone(notice));
        true
    }

    fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        if let Some(notices) = lock(&self.desk.notices).get_mut(resource) {
            notices.retain(|other| !Arc::ptr_eq(other, notice));
        }
    }

    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        let _ = block_on(self.desk.memory.release(resource, owner, Some(token), self.now()));
        self.desk.tell(resource);
    }
}

/// A fault of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// All tenures have the same token.
    TokenReused,
    /// Any owner can release a lease.
    NoOwnerCheck,
    /// A renewal revives an expired lease if the resource is free.
    Revival,
    /// The engine relies on the clients' clocks, and every second client's clock is fast.
    ClientClock,
    /// No waiter is notified of anything.
    ForgottenWakeUp,
    /// An owner's release succeeds with any token.
    NoTokenCheck,
    /// A holder is not notified when another call ends its tenure.
    UntoldHolder,
}

/// An engine with a fault.
pub(crate) struct Sabotaged<E> {
    engine: E,
    fault: Fault,
    /// The time by which the clock of this client is fast.
    fast: Duration,
}

/// The one token of all tenures.
const REUSED: Token = Token::new(7).expect("not zero");

impl Sabotaged<Nearby> {
    /// Returns the token of the engine in memory for a token that this engine gave out.
    async fn real(&self, resource: &Resource, token: Token) -> Never<Token> {
        if self.fault != Fault::TokenReused || token != REUSED {
            return Ok(token);
        }
        let record = self.engine.look(resource, self.now()).await?;
        Ok(record.map_or(token, |record| record.token))
    }

    fn said(&self, token: Token) -> Token {
        if self.fault == Fault::TokenReused { REUSED } else { token }
    }
}

impl Engine for Sabotaged<Nearby> {
    type Error = Infallible;

    fn now(&self) -> Duration {
        self.engine.now()
    }

    fn is_real_time(&self) -> bool {
        self.engine.is_real_time()
    }

    async fn acquire(&self, ask: Ask<'_>) -> Never<Answer> {
        let mut answer = self.engine.acquire(ask).await?;
        if self.fault == Fault::ClientClock && ask.want != Want::Mine {
            // By this client's clock the other owner's lease has expired.
            if let Answer::Busy { owner, remaining: Some(left) } = &answer {
                if owner != ask.owner && *left < self.fast {
                    self.engine.release(ask.resource, owner, None, ask.at).await?;
                    answer = self.engine.acquire(ask).await?;
                }
            }
        }
        if let Answer::Granted { token, .. } = &mut answer {
            *token = self.said(*token);
        }
        Ok(answer)
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], at: Duration) -> Never<()> {
        for renewal in &mut *batch {
            renewal.token = self.real(renewal.resource, renewal.token).await?;
        }
        self.engine.renew(batch, at).await?;
        for renewal in batch {
            let Renewal { resource, owner, term, .. } = *renewal;
            if self.fault == Fault::Revival && renewal.left == Left::Nothing && term.is_some() {
                let expiry = &keylatch_lease::Expiry::Never;
                let ask = Ask { resource, owner, want: Want::New, term, expiry, waiting: false, at };
                if let Answer::Granted { remaining, .. } = self.engine.acquire(ask).await? {
                    renewal.left = remaining.map_or(Left::Forever, Left::For);
                }
            }
        }
        Ok(())
    }

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, at: Duration) -> Never<Gone> {
        let (mut owner, mut token) = (owner.clone(), token);
        if let Some(known) = token {
            token = Some(self.real(resource, known).await?);
        }
        match self.fault {
            Fault::NoOwnerCheck => {
                if let Some(record) = self.engine.look(resource, at).await? {
                    owner = record.owner;
                }
            }
            Fault::NoTokenCheck => token = None,
            _ => {}
        }
        self.engine.release(resource, &owner, token, at).await
    }

    async fn release_all(&self, owner: &Owner, at: Duration) -> Never<Vec<Resource>> {
        self.engine.release_all(owner, at).await
    }

    async fn look(&self, resource: &Resource, at: Duration) -> Never<Option<Record>> {
        let record = self.engine.look(resource, at).await?;
        Ok(record.map(|record| Record { token: self.said(record.token), ..record }))
    }

    async fn owned_by(&self, owner: &Owner, at: Duration) -> Never<Vec<Owned>> {
        let mut owned = self.engine.owned_by(owner, at).await?;
        owned.iter_mut().for_each(|owned| owned.record.token = self.said(owned.record.token));
        Ok(owned)
    }

    async fn sweep(&self, limit: usize, at: Duration) -> Never<usize> {
        self.engine.sweep(limit, at).await
    }

    async fn watch(&self, resource: &Resource) {
        if self.fault == Fault::ForgottenWakeUp {
            std::future::pending().await
        }
        self.engine.watch(resource).await
    }

    fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) -> bool {
        self.fault != Fault::UntoldHolder && self.engine.subscribe(resource, notice)
    }

    fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        self.engine.unsubscribe(resource, notice);
    }

    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        let Ok(token) = block_on(self.real(resource, token));
        self.engine.abandon(resource, owner, token);
    }
}

/// The fixture of clients with this fault.
pub(crate) struct WithFault {
    fault: Fault,
    desks: Mutex<HashMap<String, Arc<Desk>>>,
}

impl WithFault {
    pub(crate) fn new(fault: Fault) -> Self {
        WithFault { fault, desks: Mutex::default() }
    }

    fn desk(&self, namespace: &str) -> Arc<Desk> {
        let mut desks = lock(&self.desks);
        Arc::clone(desks.entry(namespace.to_owned()).or_insert_with(|| Arc::new(Desk::new())))
    }
}

impl Fixture for WithFault {
    type Engine = Sabotaged<Nearby>;

    fn name(&self) -> String {
        format!("nearby, fault: {:?}", self.fault)
    }

    fn caps(&self) -> Caps {
        let mut caps = Caps::new(Duration::from_secs(10));
        if self.fault != Fault::None {
            // A waiter that hangs never returns, so the limits can be short.
            caps.delta = Duration::from_millis(100);
            caps.noise = Duration::from_millis(300);
        }
        caps
    }

    async fn connect(&self, namespace: &str, _: Option<&Proxy>) -> Result<Self::Engine, Failure> {
        let desk = self.desk(namespace);
        let is_fast = desk.clients.fetch_add(1, SeqCst) % 2 == 1;
        let fast = if is_fast { Duration::from_secs(3600) } else { Duration::ZERO };
        Ok(Sabotaged { engine: Nearby { desk }, fault: self.fault, fast })
    }

    async fn pass(&self, namespace: &str, time: Duration) {
        self.desk(namespace).clock.advance(time);
    }
}
