//! Renewals on a server: leases that are due at about the same time are renewed in one request, and no lease depends on
//! the task that sends it.

#![cfg(feature = "std")]

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_lite::future::{block_on, poll_once, yield_now};
use keylatch_lease::{
    Clock, Held, Leases, Lost, ManualClock, Memory, Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Owned, Record, Renewal},
};

/// The length of a lease. It is due for renewal after 20 s, together with leases that are due within 5 s.
const TTL: Duration = Duration::from_secs(60);
const DUE: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_secs(5);

type Never<T> = Result<T, Fail<Refused>>;
type Renewing = Pin<Box<dyn Future<Output = Lost>>>;

#[derive(Debug)]
struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

fn refused(_: Fail<Infallible>) -> Fail<Refused> {
    unreachable!("the engine in memory never fails")
}

/// The engine in memory, presented as a server. It records the number of leases in each renewal request.
struct Far {
    memory: Memory<ManualClock>,
    batches: Mutex<Vec<usize>>,
    /// Whether renewals are carried out, but not answered.
    is_silent: AtomicBool,
    /// Whether renewals fail without being carried out.
    is_failing: AtomicBool,
    /// The lease that makes a renewal request fail.
    chokes_on: Mutex<Option<Resource>>,
}

impl Engine for Far {
    type Error = Refused;

    fn now(&self) -> Duration {
        self.memory.clock().now()
    }

    fn is_real_time(&self) -> bool {
        false
    }

    async fn acquire(&self, ask: Ask<'_>) -> Never<Answer> {
        self.memory.acquire(ask).await.map_err(refused)
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], at: Duration) -> Never<()> {
        self.batches.lock().unwrap().push(batch.len());
        let chokes_on = self.chokes_on.lock().unwrap().clone();
        let has_it = batch.iter().any(|renewal| chokes_on.as_ref() == Some(renewal.resource));
        if has_it || self.is_failing.load(SeqCst) {
            return Err(Fail::NotDone(Refused));
        }
        self.memory.renew(batch, at).await.map_err(refused)?;
        while self.is_silent.load(SeqCst) {
            yield_now().await;
        }
        Ok(())
    }

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, at: Duration) -> Never<Gone> {
        self.memory.release(resource, owner, token, at).await.map_err(refused)
    }

    async fn release_all(&self, owner: &Owner, at: Duration) -> Never<Vec<Resource>> {
        self.memory.release_all(owner, at).await.map_err(refused)
    }

    async fn look(&self, resource: &Resource, at: Duration) -> Never<Option<Record>> {
        self.memory.look(resource, at).await.map_err(refused)
    }

    async fn owned_by(&self, owner: &Owner, at: Duration) -> Never<Vec<Owned>> {
        self.memory.owned_by(owner, at).await.map_err(refused)
    }

    async fn sweep(&self, limit: usize, at: Duration) -> Never<usize> {
        Engine::sweep(&self.memory, limit, at).await.map_err(refused)
    }
}

struct World {
    leases: Arc<Leases<Far>>,
    clock: ManualClock,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new();
        let far = Far {
            memory: Memory::new(clock.clone()),
            batches: Mutex::default(),
            is_silent: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            chokes_on: Mutex::default(),
        };
        World { leases: Arc::new(Leases::with_engine(far)), clock }
    }

    fn hold(&self, name: &str, ttl: Duration) -> (Held<'static, Far>, Renewing) {
        let held = self.leases.hold_arc(name, &Owner::named("ann"), ttl).wait().expect("the resource is free");
        let mut renewal: Renewing = Box::pin(held.renewal());
        assert_eq!(poll(&mut renewal), None);
        (held, renewal)
    }

    /// Returns the number of leases in each renewal request since this was last called.
    fn batches(&self) -> Vec<usize> {
        std::mem::take(&mut *self.leases.engine().batches.lock().unwrap())
    }

    fn be_silent(&self, is_silent: bool) {
        self.leases.engine().is_silent.store(is_silent, SeqCst);
    }

    fn fail(&self, is_failing: bool) {
        self.leases.engine().is_failing.store(is_failing, SeqCst);
    }
}

fn poll(renewal: &mut Renewing) -> Option<Lost> {
    block_on(poll_once(renewal))
}

#[test]
fn due_leases_are_renewed_together() {
    let world = World::new();
    let mut all: Vec<_> = (0..1000).map(|i| world.hold(&i.to_string(), TTL)).collect();
    for _ in 0..10 {
        world.clock.advance(DUE);
        assert!(all.iter_mut().all(|(_, renewal)| poll(renewal).is_none()));
        assert_eq!(world.batches(), [256, 256, 256, 232]);
    }
    assert!(all.iter().all(|(held, _)| held.check_for(TTL - TTL / 100).is_ok()));
}

#[test]
fn leases_due_soon_are_renewed_together_and_leases_due_much_later_are_not() {
    let world = World::new();
    let (early, mut first) = world.hold("early", TTL);
    world.clock.advance(MOMENT);
    let (soon, mut second) = world.hold("soon", TTL);
    world.clock.advance(Duration::from_millis(1));
    let (late, mut third) = world.hold("late", TTL);
    world.clock.advance(DUE - MOMENT - Duration::from_millis(1));
    assert_eq!(poll(&mut first), None);
    assert_eq!(world.batches(), [2]);
    world.clock.advance(MOMENT + Duration::from_millis(1));
    // The second lease was renewed a moment before it was due, so its next renewal counts from then.
    assert_eq!(poll(&mut second), None);
    assert_eq!(world.batches(), []);
    assert_eq!(poll(&mut third), None);
    assert_eq!(world.batches(), [1]);
    world.clock.advance(DUE - MOMENT);
    assert_eq!(poll(&mut second), None);
    assert_eq!(world.batches(), [3]);
    assert!([&early, &soon, &late].iter().all(|held| held.check().is_ok()));
}

/// The task that has sent a request may be busy for a long time before it reads the answer.
#[test]
fn a_lease_included_by_a_stalled_task_sends_its_own_request() {
    let world = World::new();
    let (_first, mut leads) = world.hold("first", TTL);
    let (held, mut renewal) = world.hold("second", TTL);
    world.clock.advance(DUE);
    world.be_silent(true);
    assert_eq!(poll(&mut leads), None);
    assert_eq!(world.batches(), [2]);
    world.be_silent(false);
    assert_eq!(poll(&mut renewal), None);
    assert_eq!(world.batches(), []); // another request already includes this lease
    world.clock.advance(MOMENT);
    assert_eq!(poll(&mut renewal), None);
    assert_eq!(world.batches(), [1]);
    assert!(held.check_for(TTL - TTL / 100).is_ok());
}

/// Leases that become due while a request includes them need no request of their own once that request is answered.
#[test]
fn a_renewal_that_is_due_before_the_answer_sends_no_second_request() {
    let world = World::new();
    let mut all: Vec<_> = (0..300).map(|i| world.hold(&i.to_string(), TTL)).collect();
    for _ in 0..3 {
        world.clock.advance(DUE);
        world.be_silent(true);
        assert!(all.iter_mut().all(|(_, renewal)| poll(renewal).is_none()));
        world.be_silent(false);
        assert!(all.iter_mut().all(|(_, renewal)| poll(renewal).is_none()));
        assert_eq!(world.batches(), [256, 44]);
        for _ in 0..3 {
            world.clock.advance(MOMENT);
            assert!(all.iter_mut().all(|(_, renewal)| poll(renewal).is_none()));
            assert_eq!(world.batches(), []);
        }
        world.clock.advance(DUE - 3 * MOMENT);
        assert!(all.iter_mut().all(|(_, renewal)| poll(renewal).is_none()));
        assert_eq!(world.batches().into_iter().sum::<usize>(), 300);
    }
}

/// A renewal does not include leases that another request has just renewed.
#[test]
fn a_lease_that_was_just_renewed_is_not_included() {
    let world = World::new();
    let (_first, mut leads) = world.hold("first", TTL);
    let (_second, mut renewal) = world.hold("second", TTL);
    world.clock.advance(MOMENT + Duration::from_millis(1));
    let (_other, mut other) = world.hold("other", TTL);
    world.clock.advance(DUE - MOMENT - Duration::from_millis(1));
    world.be_silent(true);
    assert_eq!((poll(&mut leads), poll(&mut renewal)), (None, None));
    world.be_silent(false);
    assert_eq!(poll(&mut leads), None);
    assert_eq!(world.batches(), [2]);
    world.clock.advance(MOMENT + Duration::from_millis(1));
    assert_eq!(poll(&mut other), None);
    assert_eq!(world.batches(), [1]);
}

/// Leases wait for the answer of a slow engine together, instead of each sending its own request.
#[test]
fn leases_wait_together_for_a_slow_answer() {
    let world = World::new();
    let mut all: Vec<_> = (0..256).map(|i| world.hold(&i.to_string(), TTL)).collect();
    world.clock.advance(DUE);
    world.be_silent(true);
    assert!(all.iter_mut().all(|(_, renewal)| poll(renewal).is_none()));
    assert_eq!(world.batches(), [256]);
    world.clock.advance(MOMENT);
    assert!(all.iter_mut().all(|(_, renewal)| poll(renewal).is_none()));
    assert_eq!(world.batches(), [255]);
    world.clock.advance(MOMENT);
    assert!(all.iter_mut().all(|(_, renewal)| poll(renewal).is_none()));
    assert_eq!(world.batches(), []);
    world.be_silent(false);
    for _ in 0..4 {
        world.clock.advance(MOMENT);
        assert!(all.iter_mut().all(|(_, renewal)| poll(renewal).is_none()));
    }
    let batches = world.batches();
    assert!(batches.len() <= 2, "{batches:?}");
    assert!(all.iter().all(|(held, _)| held.check_for(TTL / 2).is_ok()));
}

#[test]
fn a_lease_included_by_a_dropped_renewal_sends_its_own_request() {
    let world = World::new();
    let (first, mut leads) = world.hold("first", TTL);
    let (held, mut renewal) = world.hold("second", TTL);
    world.clock.advance(DUE);
    world.be_silent(true);
    assert_eq!(poll(&mut leads), None);
    assert_eq!(poll(&mut renewal), None);
    drop((leads, first));
    world.be_silent(false);
    assert_eq!(world.batches(), [2]);
    world.clock.advance(MOMENT);
    assert_eq!(poll(&mut renewal), None);
    assert_eq!(world.batches(), [1]);
    assert!(held.check_for(TTL - TTL / 100).is_ok());
}

#[test]
fn a_lease_included_in_a_failed_request_sends_its_own_and_is_then_due_as_usual() {
    let world = World::new();
    let (_first, mut leads) = world.hold("first", TTL);
    let (held, mut renewal) = world.hold("second", TTL);
    world.clock.advance(DUE);
    world.fail(true);
    assert_eq!(poll(&mut leads), None);
    assert_eq!(poll(&mut renewal), None);
    assert_eq!(world.batches(), [2]);
    for _ in 0..6 {
        world.clock.advance(MOMENT);
        assert_eq!(poll(&mut leads), None);
        assert_eq!(poll(&mut renewal), None);
        assert!(!world.batches().is_empty());
    }
    world.fail(false); // 50 s after the last renewal
    world.clock.advance(MOMENT);
    assert_eq!(poll(&mut leads), None);
    assert_eq!(poll(&mut renewal), None);
    world.batches();
    assert!(held.check_for(TTL - MOMENT - TTL / 100).is_ok());
    world.clock.advance(DUE);
    assert_eq!(poll(&mut renewal), None);
    assert_eq!(poll(&mut leads), None);
    assert_eq!(world.batches().into_iter().sum::<usize>(), 2);
}

/// One lease of a batch may be the reason why the engine fails.
#[test]
fn a_lease_that_cannot_be_renewed_does_not_prevent_the_renewal_of_others() {
    for others in [1, 2, 20, 300] {
        let world = World::new();
        let mut all: Vec<_> = (0..=others).map(|i| world.hold(&i.to_string(), TTL)).collect();
        *world.leases.engine().chokes_on.lock().unwrap() = Some(Resource::from("1"));
        for _ in 0..200 {
            world.clock.advance(Duration::from_secs(1));
            for (held, renewal) in all.iter_mut().filter(|(held, _)| held.check().is_ok()) {
                let is_it = held.resource().key() == "1";
                assert!(poll(renewal).is_none() || is_it, "{held:?}");
            }
        }
        let lost: Vec<_> = all.iter().map(|(held, _)| held).filter(|held| held.check().is_err()).collect();
        assert!(matches!(lost[..], [held] if held.resource().key() == "1"), "{lost:?}");
        // The others are renewed together again.
        world.batches();
        for _ in 0..20 {
            world.clock.advance(Duration::from_secs(1));
            for (_, renewal) in all.iter_mut().filter(|(held, _)| held.check().is_ok()) {
                assert!(poll(renewal).is_none());
            }
        }
        assert!(world.batches().len() < 6, "{others}");
    }
}

#[test]
fn an_included_lease_that_was_lost_finds_out_itself() {
    let world = World::new();
    let (_first, mut leads) = world.hold("first", TTL);
    let (held, mut renewal) = world.hold("second", TTL);
    let at = world.clock.now();
    let freed = world.leases.engine().memory.release(held.resource(), held.owner(), Some(held.token()), at);
    assert_eq!(block_on(freed), Ok(Gone::Released)); // as another process would release it
    world.clock.advance(DUE);
    assert_eq!(poll(&mut leads), None);
    assert_eq!(poll(&mut renewal), None);
    assert_eq!(world.batches(), [2]);
    world.clock.advance(MOMENT);
    assert_eq!(poll(&mut renewal), Some(Lost::Released));
    assert_eq!(held.check(), Err(Lost::Released));
}

/// Guarantee 10: an answer after the deadline does not count for an included lease, either.
#[test]
fn a_late_answer_does_not_revive_an_included_lease() {
    for has_looked in [false, true] {
        let world = World::new();
        let (held, mut renewal) = world.hold("short", TTL);
        let (_longer, mut leads) = world.hold("longer", TTL + TTL / 4);
        world.clock.advance(DUE + DUE / 4);
        world.be_silent(true);
        assert_eq!(poll(&mut leads), None);
        assert_eq!(world.batches(), [2]);
        world.clock.advance(TTL - DUE - DUE / 4);
        if has_looked {
            assert_eq!(held.check(), Err(Lost::Expired));
        }
        world.be_silent(false);
        assert_eq!(poll(&mut leads), None); // the answer arrives
        assert_eq!(held.check(), Err(Lost::Expired));
        assert_eq!(poll(&mut renewal), Some(Lost::Expired));
    }
}

#[test]
fn a_dropped_held_is_not_included() {
    let world = World::new();
    let (_first, mut leads) = world.hold("first", TTL);
    let (held, renewal) = world.hold("second", TTL);
    drop(renewal);
    world.clock.advance(DUE);
    assert_eq!(poll(&mut leads), None);
    assert_eq!(world.batches(), [1]);
    world.clock.advance(TTL - DUE);
    assert_eq!(held.check(), Err(Lost::Expired));
}

/// Leases of very different lengths are all renewed in time, and need fewer requests together than alone.
#[test]
fn leases_of_all_lengths_are_kept() {
    let world = World::new();
    let mut all: Vec<_> = (1..=60).map(|i| world.hold(&i.to_string(), i * Duration::from_secs(3))).collect();
    for _ in 0..1000 {
        world.clock.advance(Duration::from_millis(250));
        assert!(all.iter_mut().all(|(_, renewal)| poll(renewal).is_none()));
        assert!(all.iter().all(|(held, _)| held.check().is_ok()));
    }
    // Without batches, there would be at least this many requests.
    let alone: u32 = (1..=60).map(|i| 250 / i).sum();
    assert!(world.batches().len() < alone as usize);
}
