//! Answers of an engine that arrive after the deadline.

#![cfg(feature = "std")]

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_lite::future::{block_on, poll_once, yield_now};
use keylatch_lease::{
    Clock, Leases, Lost, ManualClock, Memory, Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Owned, Record, Renewal},
};

const TTL: Duration = Duration::from_secs(60);

type Never<T> = Result<T, Fail<Infallible>>;

/// The engine in memory, presented as a server. While it is shut, no renewal gets an answer.
struct Slow {
    memory: Memory<ManualClock>,
    is_shut: AtomicBool,
    /// A function that is called when an answer to a renewal arrives.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Slow {
    fn new() -> Self {
        Slow { memory: Memory::new(ManualClock::new()), is_shut: AtomicBool::new(false), meanwhile: Mutex::new(None) }
    }
}

impl Engine for Slow {
    type Error = Infallible;

    fn now(&self) -> Duration {
        self.memory.clock().now()
    }

    fn is_real_time(&self) -> bool {
        false
    }

    async fn acquire(&self, ask: Ask<'_>) -> Never<Answer> {
        self.memory.acquire(ask).await
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], at: Duration) -> Never<()> {
        self.memory.renew(batch, at).await?;
        while self.is_shut.load(SeqCst) {
            yield_now().await;
        }
        let meanwhile = self.meanwhile.lock().unwrap().take();
        meanwhile.into_iter().for_each(|run| run());
        Ok(())
    }

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, at: Duration) -> Never<Gone> {
        self.memory.release(resource, owner, token, at).await
    }

    async fn release_all(&self, owner: &Owner, at: Duration) -> Never<Vec<Resource>> {
        self.memory.release_all(owner, at).await
    }

    async fn look(&self, resource: &Resource, at: Duration) -> Never<Option<Record>> {
        self.memory.look(resource, at).await
    }

    async fn owned_by(&self, owner: &Owner, at: Duration) -> Never<Vec<Owned>> {
        self.memory.owned_by(owner, at).await
    }

    async fn sweep(&self, limit: usize, at: Duration) -> Never<usize> {
        Engine::sweep(&self.memory, limit, at).await
    }
}

/// Guarantee 10: once `lost` has been ready, the lease stays lost, even if the answer to a renewal comes later.
#[test]
fn a_lost_lease_stays_lost() {
    let leases = Leases::with_engine(Slow::new());
    let clock = leases.engine().memory.clock();
    let held = leases.hold_blocking("report", &Owner::named("ann"), TTL).expect("the resource is free");
    block_on(async {
        let mut renewal = held.renewal();
        assert!(poll_once(&mut renewal).await.is_none());
        leases.engine().is_shut.store(true, SeqCst);
        clock.advance(TTL / 2);
        assert!(poll_once(&mut renewal).await.is_none()); // the renewal has been sent
        clock.advance(TTL / 2);
        assert_eq!(poll_once(held.lost()).await, Some(Lost::Expired));
        assert_eq!(held.check(), Err(Lost::Expired));
        leases.engine().is_shut.store(false, SeqCst); // lets the answer arrive
        assert_eq!(poll_once(&mut renewal).await, Some(Lost::Expired));
        assert_eq!(held.check(), Err(Lost::Expired));
    });
}

/// The lease also stays lost if no call looks at it between the deadline and the answer.
#[test]
fn an_answer_after_the_deadline_does_not_count() {
    let leases = Leases::with_engine(Slow::new());
    let clock = leases.engine().memory.clock();
    let held = leases.hold_blocking("report", &Owner::named("ann"), TTL).expect("the resource is free");
    block_on(async {
        let mut renewal = held.renewal();
        assert!(poll_once(&mut renewal).await.is_none());
        leases.engine().is_shut.store(true, SeqCst);
        clock.advance(TTL / 2);
        assert!(poll_once(&mut renewal).await.is_none());
        clock.advance(TTL / 2);
        leases.engine().is_shut.store(false, SeqCst);
        assert_eq!(poll_once(&mut renewal).await, Some(Lost::Expired));
        assert_eq!(held.check(), Err(Lost::Expired));
    });
}

/// The deadline passes, and a check sees the loss, while an answer is arriving.
#[test]
fn a_loss_seen_while_an_answer_arrives_stays() {
    let leases = Arc::new(Leases::with_engine(Slow::new()));
    let held = Arc::new(leases.hold_arc("report", &Owner::named("ann"), TTL).wait().expect("the resource is free"));
    let clock = leases.engine().memory.clock().clone();
    block_on(async {
        let mut renewal = held.renewal();
        assert!(poll_once(&mut renewal).await.is_none());
        let (seen, time) = (Arc::clone(&held), clock.clone());
        *leases.engine().meanwhile.lock().unwrap() = Some(Box::new(move || {
            time.advance(TTL / 2);
            assert_eq!(seen.check(), Err(Lost::Expired));
        }));
        clock.advance(TTL / 2);
        let _ = poll_once(&mut renewal).await; // the answer comes
        assert_eq!(held.check(), Err(Lost::Expired));
        assert_eq!(poll_once(&mut renewal).await, Some(Lost::Expired));
    });
}
