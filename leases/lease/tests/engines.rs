//! The front end with an engine in another process, which takes a while, loses answers, and fails.

#![cfg(feature = "std")]

use std::{
    collections::HashMap,
    convert::Infallible,
    error::Error,
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Poll, Waker},
    time::Duration,
};

use futures_lite::future::{block_on, poll_once, yield_now, zip};
use keylatch_lease::{
    AcquireError, Clock, Expiry, Leases, LookError, Lost, ManualClock, Memory, Owner, ReleaseError, RenewError,
    Resource, Term, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Owned, Record, Renewal, Want},
};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Down;

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server is down")
    }
}

impl Error for Down {}

#[derive(Default)]
struct Faults {
    /// The number of further requests that are carried out without an answer.
    lost_answers: usize,
    /// The number of further requests that fail.
    failures: usize,
    abandoned: usize,
    /// Whether the server may have forgotten that an owner released its lease, so that the owner's next request begins
    /// another tenure.
    is_in_doubt: bool,
    /// Whether another request of the owner ends the next tenure, by beginning a new one, before its answer is known.
    is_replaced: bool,
}

/// A watch of a resource.
#[derive(Default)]
struct Flag {
    is_up: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// A simulated server: an engine in memory with its own clock. Each request takes one poll to arrive, and so does its
/// answer.
#[derive(Clone)]
struct Server {
    memory: Arc<Memory<ManualClock>>,
    clock: ManualClock,
    /// Whether waiters have timers, although only the test moves the clock.
    has_timers: bool,
    /// Whether the clock panics at the next reading after a waiter has been granted a tenure.
    has_a_bad_clock: Arc<AtomicBool>,
    clock_is_bad: Arc<AtomicBool>,
    faults: Arc<Mutex<Faults>>,
    watchers: Arc<Mutex<HashMap<Resource, Vec<Arc<Flag>>>>>,
    acquires: Arc<AtomicUsize>,
    in_flight: Arc<AtomicUsize>,
    most_in_flight: Arc<AtomicUsize>,
}

impl Server {
    fn new(clock: ManualClock) -> Self {
        Server {
            memory: Arc::new(Memory::new(ManualClock::new())),
            clock,
            has_timers: false,
            has_a_bad_clock: Arc::default(),
            clock_is_bad: Arc::default(),
            faults: Arc::default(),
            watchers: Arc::default(),
            acquires: Arc::default(),
            in_flight: Arc::default(),
            most_in_flight: Arc::default(),
        }
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.memory.clock().advance(time);
    }

    fn there(&self) -> Duration {
        self.memory.clock().now()
    }

    /// Carries a request to the server, and the answer back.
    async fn answer<T>(&self, done: impl Future<Output = Result<T, Fail<Infallible>>>) -> Result<T, Fail<Down>> {
        yield_now().await;
        {
            let mut faults = self.faults.lock().unwrap();
            if faults.failures > 0 {
                faults.failures -= 1;
                return Err(Fail::NotDone(Down));
            }
        }
        let answer = done.await.unwrap_or_else(|never| match never.into_cause() {});
        yield_now().await;
        let mut faults = self.faults.lock().unwrap();
        if faults.lost_answers > 0 {
            faults.lost_answers -= 1;
            return Err(Fail::Unknown(Down));
        }
        Ok(answer)
    }

    async fn doubt(&self, ask: Ask<'_>) -> Result<Answer, Fail<Infallible>> {
        let record = self.memory.look(ask.resource, ask.at).await?.filter(|record| record.owner == *ask.owner);
        let Some(record) = record.filter(|_| std::mem::take(&mut self.faults.lock().unwrap().is_in_doubt)) else {
            return self.memory.acquire(ask).await;
        };
        let term = ask.term.or(Some(Term { idle: record.remaining, total: None }));
        self.memory.acquire(Ask { want: Want::Fresh, term, ..ask }).await
    }

    fn tell(&self, resource: &Resource) {
        let watchers = self.watchers.lock().unwrap().remove(resource).unwrap_or_default();
        for flag in watchers {
            flag.is_up.store(true, SeqCst);
            flag.waker.lock().unwrap().take().into_iter().for_each(Waker::wake);
        }
    }
}

impl Engine for Server {
    type Error = Down;

    fn now(&self) -> Duration {
        assert!(!self.clock_is_bad.swap(false, SeqCst), "the clock is bad");
        self.clock.now()
    }

    fn is_real_time(&self) -> bool {
        self.has_timers
    }

    async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<Down>> {
        self.acquires.fetch_add(1, SeqCst);
        self.most_in_flight.fetch_max(self.in_flight.fetch_add(1, SeqCst) + 1, SeqCst);
        let ask = Ask { at: self.there(), ..ask };
        let mut answer = self.answer(self.doubt(ask)).await;
        if std::mem::take(&mut self.faults.lock().unwrap().is_replaced) {
            let fresh = self.memory.acquire(Ask { want: Want::Fresh, ..ask }).await;
            assert!(matches!(fresh, Ok(Answer::Granted { .. })), "{fresh:?}");
            answer = Err(Fail::Undone(Down));
        }
        self.in_flight.fetch_sub(1, SeqCst);
        if ask.waiting && matches!(answer, Ok(Answer::Granted { .. })) {
            self.clock_is_bad.store(self.has_a_bad_clock.swap(false, SeqCst), SeqCst);
        }
        answer
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Result<(), Fail<Down>> {
        self.answer(self.memory.renew(batch, self.there())).await
    }

    async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        _: Duration,
    ) -> Result<Gone, Fail<Down>> {
        let gone = self.answer(self.memory.release(resource, owner, token, self.there())).await;
        self.tell(resource);
        gone
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Result<Vec<Resource>, Fail<Down>> {
        self.answer(self.memory.release_all(owner, self.there())).await
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Result<Option<Record>, Fail<Down>> {
        self.answer(self.memory.look(resource, self.there())).await
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Result<Vec<Owned>, Fail<Down>> {
        self.answer(self.memory.owned_by(owner, self.there())).await
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Result<usize, Fail<Down>> {
        self.answer(Engine::sweep(&*self.memory, limit, self.there())).await
    }

    fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
        let flag = Arc::new(Flag::default());
        self.watchers.lock().unwrap().entry(resource.clone()).or_default().push(Arc::clone(&flag));
        poll_fn(move |cx| {
            *flag.waker.lock().unwrap() = Some(cx.waker().clone());
            if flag.is_up.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        self.faults.lock().unwrap().abandoned += 1;
        let gone = block_on(self.memory.release(resource, owner, Some(token), self.there()));
        assert_eq!(gone, Ok(Gone::Released));
        self.tell(resource);
    }
}

fn desk() -> (Server, Leases<Server>, Owner, Owner) {
    let server = Server::new(ManualClock::new());
    (server.clone(), Leases::with_engine(server), Owner::named("jane"), Owner::named("joe"))
}

#[test]
fn each_call_asks_the_engine() {
    let (server, leases, jane, joe) = desk();
    let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    assert!(leases.acquire_blocking("report", &jane, MINUTE).unwrap().is_resumed());
    assert!(matches!(
        leases.try_acquire_blocking("report", &joe, MINUTE),
        Err(AcquireError::Busy { owner, remaining: Some(MINUTE), .. }) if owner == jane
    ));
    assert_eq!(leases.status_blocking("report").unwrap().unwrap().token(), grant.token());
    assert_eq!(leases.owned_by_blocking(&jane).unwrap().len(), 1);
    leases.renew_blocking(&grant).unwrap();
    leases.release_blocking(&grant).unwrap();
    assert!(matches!(leases.release_blocking(&grant), Err(ReleaseError::NotHeld { .. })));
    leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    assert_eq!(leases.release_all_blocking(&jane), Ok(1));
    leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    server.pass(MINUTE);
    assert_eq!(leases.release_expired_blocking(), Ok(1));
}

#[test]
fn the_deadline_counts_from_before_the_request_and_less_one_percent() {
    let (_, leases, jane, _) = desk();
    let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    assert_eq!(leases.remaining(&grant), Some(MINUTE - MINUTE / 100));
}

#[test]
fn an_acquire_whose_answer_is_lost_is_retried_and_gets_the_same_tenure() {
    let (server, leases, jane, _) = desk();
    server.faults.lock().unwrap().lost_answers = 1;
    let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    assert_eq!(server.acquires.load(SeqCst), 2);
    assert_eq!(leases.status_blocking("report").unwrap().unwrap().token(), grant.token());
}

#[test]
fn a_request_whose_tenure_has_been_replaced_leaves_the_new_tenure_alone() {
    let (server, leases, jane, _) = desk();
    server.faults.lock().unwrap().is_replaced = true;
    let busy = leases.try_hold_new("report", &jane, MINUTE).wait();
    assert!(matches!(busy, Err(AcquireError::Busy { .. })), "{busy:?}");
    assert_eq!(server.acquires.load(SeqCst), 2);
    server.faults.lock().unwrap().is_replaced = true;
    let grant = leases.try_acquire("report", &jane, MINUTE).wait().unwrap();
    assert!(grant.is_resumed(), "another request began this tenure");
}

/// With a custom policy, or while others wait, the front end first asks whether the owner has the lease, and then
/// requests it.
#[test]
fn a_tenure_that_begins_with_the_first_of_two_requests_is_not_reported_as_resumed() {
    let (server, leases, jane, joe) = desk();
    let before = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    let custom = || Expiry::custom(|_| Some(MINUTE));
    let no = || Expiry::custom(|_| None);
    block_on(async {
        let mut waiting = leases.acquire("report", &joe, MINUTE);
        let mut last = before.token();
        for (waits, expiry) in [
            (false, custom()),
            (false, no()),
            (true, custom()),
            (true, Expiry::Sliding(MINUTE)),
            (true, Expiry::Fixed(MINUTE)),
        ] {
            for _ in 0..10 {
                assert!(!waits || poll_once(&mut waiting).await.is_none());
            }
            server.faults.lock().unwrap().is_in_doubt = true;
            let begun = leases.try_acquire("report", &jane, expiry.clone()).await.unwrap();
            assert!(begun.token() > last, "{expiry:?}");
            assert!(!begun.is_resumed(), "{expiry:?}");
            last = begun.token();
            let again = leases.try_acquire("report", &jane, expiry.clone()).await.unwrap();
            assert_eq!(again.token(), last, "{expiry:?}");
            assert!(again.is_resumed(), "{expiry:?}");
        }
    });
}

#[test]
fn a_release_whose_answer_is_lost_succeeds_when_it_is_retried() {
    let (server, leases, jane, joe) = desk();
    let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    server.faults.lock().unwrap().lost_answers = 1;
    assert_eq!(leases.release_blocking(&grant), Ok(()));
    // The successor's lease is untouched.
    let joes = leases.acquire_blocking("report", &joe, MINUTE).unwrap();
    assert!(matches!(leases.release_blocking(&grant), Err(ReleaseError::NotOwner { owner, .. }) if owner == joe));
    assert_eq!(leases.status_blocking("report").unwrap().unwrap().token(), joes.token());
}

#[test]
fn an_engine_that_never_answers_is_an_error_in_the_end() {
    let (server, leases, jane, _) = desk();
    server.faults.lock().unwrap().lost_answers = usize::MAX;
    assert_eq!(leases.acquire_blocking("report", &jane, MINUTE), Err(AcquireError::Engine(Down)));
    assert_eq!(leases.release_all_blocking(&jane), Err(LookError::Engine(Down)));
}

#[test]
fn a_request_that_was_not_carried_out_is_not_retried() {
    let (server, leases, jane, _) = desk();
    server.faults.lock().unwrap().failures = 1;
    assert_eq!(leases.acquire_blocking("report", &jane, MINUTE), Err(AcquireError::Engine(Down)));
    assert_eq!(server.acquires.load(SeqCst), 1);
    assert!(leases.acquire_blocking("report", &jane, MINUTE).is_ok());
}

#[test]
fn a_waiter_gets_in_when_the_holder_releases() {
    let (_, leases, jane, joe) = desk();
    let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut waiting = leases.acquire("report", &joe, MINUTE);
        for _ in 0..10 {
            assert!(poll_once(&mut waiting).await.is_none());
        }
        let (got, released) = zip(waiting, leases.release(&grant)).await;
        assert_eq!(released, Ok(()));
        assert!(got.unwrap().token() > grant.token());
    });
}

#[test]
fn a_waiter_is_told_of_a_release_by_another_process() {
    let (server, here, jane, joe) = desk();
    let there = Leases::with_engine(server);
    let grant = there.acquire_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let (got, released) = zip(here.acquire("report", &joe, MINUTE), async {
            for _ in 0..10 {
                yield_now().await;
            }
            there.release(&grant).await
        })
        .await;
        assert_eq!(released, Ok(()));
        assert!(got.unwrap().token() > grant.token());
    });
}

#[test]
fn a_waiter_gets_in_when_the_holders_lease_has_expired() {
    let (server, leases, jane, joe) = desk();
    leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut waiting = leases.acquire("report", &joe, MINUTE);
        for _ in 0..10 {
            assert!(poll_once(&mut waiting).await.is_none());
        }
        server.pass(MINUTE);
        assert!(waiting.await.is_ok());
    });
}

#[test]
fn waiters_get_in_in_order_and_only_one_asks_at_a_time() {
    const WAITERS: usize = 50;
    let (server, leases, jane, _) = desk();
    let first = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    let order = Mutex::new(Vec::new());
    let executor = smol::LocalExecutor::new();
    let before = server.acquires.load(SeqCst);
    block_on(executor.run(async {
        let mut tasks = Vec::new();
        for i in 0..WAITERS {
            let (leases, order) = (&leases, &order);
            tasks.push(executor.spawn(async move {
                let owner = Owner::named(format!("worker-{i}"));
                let grant = leases.acquire("report", &owner, MINUTE).await.unwrap();
                order.lock().unwrap().push((i, grant.token()));
                yield_now().await;
                leases.release(&grant).await.unwrap();
            }));
            for _ in 0..10 {
                yield_now().await; // until the task waits in line
            }
        }
        server.most_in_flight.store(0, SeqCst);
        leases.release(&first).await.unwrap();
        for task in tasks {
            task.await;
        }
    }));
    let order = order.lock().unwrap();
    assert!(order.iter().map(|(i, _)| *i).eq(0..WAITERS));
    assert!(order.is_sorted_by(|(_, one), (_, next)| one < next));
    assert_eq!(server.most_in_flight.load(SeqCst), 1);
    // Each waiter asks when it arrives, asks whether it already has the lease, and asks a few more times once it is
    // first in line.
    assert!(server.acquires.load(SeqCst) - before <= 6 * WAITERS);
    assert_eq!(leases.status_blocking("report"), Ok(None));
}

/// The next waiter gives the holder some time before it asks. If the holder releases within that time, a hand-off takes
/// one request.
#[test]
fn a_hand_off_within_a_process_takes_one_request() {
    const WAITERS: usize = 100;
    let server = Server { has_timers: true, ..Server::new(ManualClock::new()) };
    let leases = Leases::with_engine(server.clone());
    let first = leases.acquire_blocking("report", &Owner::named("jane"), MINUTE).unwrap();
    let executor = smol::LocalExecutor::new();
    block_on(executor.run(async {
        let mut tasks = Vec::new();
        for i in 0..WAITERS {
            let leases = &leases;
            tasks.push(executor.spawn(async move {
                let grant = leases.acquire("report", &Owner::named(format!("worker-{i}")), MINUTE).await.unwrap();
                for _ in 0..10 {
                    yield_now().await;
                }
                leases.release(&grant).await.unwrap();
            }));
            for _ in 0..10 {
                yield_now().await; // until the task waits in line
            }
        }
        let before = server.acquires.load(SeqCst);
        leases.release(&first).await.unwrap();
        for task in tasks {
            task.await;
        }
        assert_eq!(server.acquires.load(SeqCst) - before, WAITERS);
    }));
}

/// Before the next waiter asks the engine, another process ends the tenure, or the tenure expires, or that waiter is
/// dropped.
#[test]
fn the_next_waiter_asks_in_the_end() {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum End {
        Released,
        Expired,
        Left,
    }
    for end in [End::Released, End::Expired, End::Left] {
        let server = Server { has_timers: true, ..Server::new(ManualClock::new()) };
        let (here, there) = (Leases::with_engine(server.clone()), Leases::with_engine(server.clone()));
        let [jane, joe, jim, jo] = ["jane", "joe", "jim", "jo"].map(Owner::named);
        let first = here.acquire_blocking("report", &jane, MINUTE).unwrap();
        let brief = if end == End::Expired { Duration::from_millis(10) } else { MINUTE };
        block_on(async {
            let mut holder = here.acquire("report", &joe, brief);
            let mut next = here.acquire("report", &jim, MINUTE);
            let mut last = here.acquire("report", &jo, MINUTE);
            for _ in 0..10 {
                assert!(poll_once(&mut holder).await.is_none());
                assert!(poll_once(&mut next).await.is_none());
                assert!(poll_once(&mut last).await.is_none());
            }
            here.release(&first).await.unwrap();
            holder.await.unwrap();
            let asked = server.acquires.load(SeqCst);
            for _ in 0..10 {
                assert!(poll_once(&mut next).await.is_none());
            }
            assert_eq!(server.acquires.load(SeqCst), asked);
            match end {
                End::Released => {
                    there.release_as("report", &joe).await.unwrap();
                    server.pass(Duration::from_millis(50));
                }
                End::Expired => server.pass(brief),
                End::Left => {
                    drop(next);
                    there.release_as("report", &joe).await.unwrap();
                    last.await.unwrap();
                    return;
                }
            }
            assert!(next.await.is_ok(), "{end:?}");
        });
    }
}

#[test]
fn two_requests_of_one_owner_enter_together() {
    let (_, leases, jane, joe) = desk();
    let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut one = leases.acquire("report", &joe, MINUTE);
        let mut between = leases.acquire("report", &Owner::named("jim"), MINUTE);
        let mut two = leases.acquire("report", &joe, MINUTE);
        for _ in 0..10 {
            assert!(poll_once(&mut one).await.is_none());
            assert!(poll_once(&mut between).await.is_none());
            assert!(poll_once(&mut two).await.is_none());
        }
        let (released, (one, two)) = zip(leases.release(&grant), zip(one, two)).await;
        assert_eq!(released, Ok(()));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(one.token(), two.token());
        assert!(two.is_resumed());
        assert!(poll_once(&mut between).await.is_none());
    });
}

#[test]
fn tries_do_not_overtake_waiters() {
    let (_, leases, jane, joe) = desk();
    let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut waiting = leases.acquire("report", &joe, MINUTE);
        for _ in 0..10 {
            assert!(poll_once(&mut waiting).await.is_none());
        }
        leases.release(&grant).await.unwrap();
        // Joe has not been polled since the release, so no owner has the lease.
        let jim = leases.try_acquire("report", &Owner::named("jim"), MINUTE).await;
        assert!(matches!(jim, Err(AcquireError::Busy { ref owner, .. }) if *owner == joe), "{jim:?}");
        assert!(waiting.await.is_ok());
    });
}

/// A request that is dropped at any of its await points does not block other requests.
#[test]
fn a_dropped_request_leaves_no_waiter_behind() {
    for polls in 0..30 {
        let (server, leases, jane, joe) = desk();
        let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
        block_on(async {
            let mut first = leases.acquire("report", &joe, MINUTE);
            for _ in 0..polls / 2 {
                assert!(poll_once(&mut first).await.is_none());
            }
            leases.release(&grant).await.unwrap();
            let mut has_it = false;
            for _ in polls / 2..polls {
                if poll_once(&mut first).await.is_some() {
                    has_it = true;
                    break;
                }
            }
            drop(first);
            if has_it {
                leases.release_as("report", &joe).await.unwrap();
            }
            let mut next = pin!(leases.acquire("report", &Owner::named("jim"), MINUTE));
            for _ in 0..20 {
                if poll_once(next.as_mut()).await.is_some() {
                    return;
                }
            }
            // At worst, a grant that no caller has seen remains until it expires.
            server.pass(MINUTE);
            assert!(next.await.is_ok());
        });
    }
}

#[test]
fn a_check_fails_at_the_deadline_even_if_the_engine_is_silent() {
    let (server, leases, jane, _) = desk();
    let held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
    server.clock.advance(MINUTE - MINUTE / 100);
    assert_eq!(held.check(), Err(Lost::Expired));
    assert_eq!(block_on(held.lost()), Lost::Expired);
}

#[test]
fn a_renewal_that_fails_is_tried_again_before_the_deadline() {
    let (server, leases, jane, _) = desk();
    let held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut renewal = held.renewal();
        server.faults.lock().unwrap().failures = 1;
        for _ in 0..20 {
            assert!(poll_once(&mut renewal).await.is_none());
            assert!(poll_once(&mut renewal).await.is_none());
            server.pass(MINUTE / 10);
        }
        assert_eq!(held.check(), Ok(held.token()));
    });
}

#[test]
fn a_renewal_learns_that_the_lease_was_lost() {
    let (server, here, jane, _) = desk();
    let there = Leases::with_engine(server.clone());
    let held = here.hold_blocking("report", &jane, MINUTE).unwrap();
    there.release_all_blocking(&jane).unwrap();
    assert!(held.check().is_ok()); // the engine has not been asked yet
    server.pass(MINUTE / 2);
    assert_eq!(held.renewal().wait(), Lost::Released);
    assert_eq!(held.check(), Err(Lost::Released));
    assert_eq!(held.lost().wait(), Lost::Released);
}

#[test]
fn a_held_lease_that_is_dropped_is_abandoned() {
    let (server, leases, jane, joe) = desk();
    drop(leases.hold_blocking("report", &jane, MINUTE).unwrap());
    assert_eq!(server.faults.lock().unwrap().abandoned, 1);
    assert!(leases.try_acquire_blocking("report", &joe, MINUTE).is_ok());
}

#[test]
fn a_stale_grant_cannot_be_renewed() {
    let (_, leases, jane, _) = desk();
    let old = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    leases.acquire("report", &jane, MINUTE).fresh_token().wait().unwrap();
    assert_eq!(leases.renew_blocking(&old), Err(RenewError::Lost(Lost::TakenOver)));
}

#[test]
fn a_waiter_whose_request_fails_passes_its_turn_on() {
    let (server, leases, jane, joe) = desk();
    leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut first = leases.acquire("report", &joe, MINUTE);
        let mut next = leases.acquire("report", &Owner::named("jim"), MINUTE);
        for _ in 0..10 {
            assert!(poll_once(&mut first).await.is_none());
            assert!(poll_once(&mut next).await.is_none());
        }
        server.pass(MINUTE);
        server.faults.lock().unwrap().failures = 1;
        assert_eq!(first.await, Err(AcquireError::Engine(Down)));
        assert!(next.await.is_ok());
    });
}

/// If waiters asked one after another, each would wait for the full timeout of a server that is down.
#[test]
fn after_a_failure_all_waiters_ask_for_themselves() {
    let (server, leases, jane, joe) = desk();
    leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut first = leases.acquire("report", &joe, MINUTE);
        let mut between = leases.acquire("report", &Owner::named("jim"), MINUTE);
        let mut last = leases.acquire("report", &Owner::named("jo"), MINUTE);
        for _ in 0..10 {
            assert!(poll_once(&mut first).await.is_none());
            assert!(poll_once(&mut between).await.is_none());
            assert!(poll_once(&mut last).await.is_none());
        }
        server.pass(MINUTE);
        server.faults.lock().unwrap().failures = 2;
        assert_eq!(first.await, Err(AcquireError::Engine(Down)));
        assert_eq!(last.await, Err(AcquireError::Engine(Down)));
        assert!(between.await.is_ok());
    });
}

/// A call finds the resource free although no waiter was notified: it wakes the first waiter.
#[test]
fn a_call_that_finds_a_free_resource_wakes_the_first_in_line() {
    for found_by in ["try", "status", "release"] {
        let (server, leases, jane, joe) = desk();
        let (grant, jim) = (leases.acquire_blocking("report", &jane, MINUTE).unwrap(), Owner::named("jim"));
        block_on(async {
            let mut waiting = leases.acquire("report", &joe, MINUTE);
            for _ in 0..10 {
                assert!(poll_once(&mut waiting).await.is_none());
            }
            server.memory.release(grant.resource(), &jane, None, server.there()).await.unwrap();
            for _ in 0..10 {
                assert!(poll_once(&mut waiting).await.is_none());
            }
            match found_by {
                "try" => assert!(leases.try_acquire("report", &jim, MINUTE).await.is_err()),
                "status" => assert_eq!(leases.status("report").await, Ok(None)),
                _ => assert!(leases.release_as("report", &jane).await.is_err()),
            }
            assert!(waiting.await.is_ok(), "{found_by}");
        });
    }
}

/// The owner has the lease through another hold, which was served first. The second hold must neither get nor end that
/// tenure.
#[test]
fn a_waiting_hold_whose_answer_is_lost_leaves_its_owners_other_hold_alone() {
    let (server, leases, jane, joe) = desk();
    let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut one = leases.hold("report", &joe, MINUTE);
        let mut other = leases.hold("report", &joe, MINUTE);
        for _ in 0..10 {
            assert!(poll_once(&mut one).await.is_none());
            assert!(poll_once(&mut other).await.is_none());
        }
        leases.release(&grant).await.unwrap();
        let held = one.await.unwrap();
        server.pass(Duration::from_millis(1));
        server.faults.lock().unwrap().lost_answers = 1;
        for _ in 0..20 {
            assert!(poll_once(&mut other).await.is_none());
        }
        assert_eq!(server.faults.lock().unwrap().lost_answers, 0); // the second hold has asked
        assert_eq!(leases.status("report").await.unwrap().unwrap().token(), held.token());
    });
}

#[test]
fn a_clock_that_panics_leaves_no_waiter_in_line() {
    let (server, leases, jane, joe) = desk();
    let leases = Leases::with_engine(Server { has_timers: true, ..leases.engine().clone() });
    let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut first = leases.acquire("report", &joe, MINUTE);
        let mut next = leases.acquire("report", &Owner::named("jim"), MINUTE);
        for _ in 0..10 {
            assert!(poll_once(&mut first).await.is_none());
            assert!(poll_once(&mut next).await.is_none());
        }
        leases.release(&grant).await.unwrap();
        server.has_a_bad_clock.store(true, SeqCst);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(first)));
        assert!(panicked.is_err());
        leases.release_as("report", &joe).await.unwrap();
        assert!(next.await.is_ok());
    });
}

/// An engine in this process that implements only the required methods.
struct Bare(Memory<ManualClock>);

impl Engine for Bare {
    type Error = Infallible;
    const LOCAL: bool = true;

    fn now(&self) -> Duration {
        self.0.now()
    }

    async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<Infallible>> {
        self.0.acquire(ask).await
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], at: Duration) -> Result<(), Fail<Infallible>> {
        self.0.renew(batch, at).await
    }

    async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        at: Duration,
    ) -> Result<Gone, Fail<Infallible>> {
        self.0.release(resource, owner, token, at).await
    }

    async fn release_all(&self, owner: &Owner, at: Duration) -> Result<Vec<Resource>, Fail<Infallible>> {
        self.0.release_all(owner, at).await
    }

    async fn look(&self, resource: &Resource, at: Duration) -> Result<Option<Record>, Fail<Infallible>> {
        self.0.look(resource, at).await
    }

    async fn owned_by(&self, owner: &Owner, at: Duration) -> Result<Vec<Owned>, Fail<Infallible>> {
        self.0.owned_by(owner, at).await
    }

    async fn sweep(&self, limit: usize, at: Duration) -> Result<usize, Fail<Infallible>> {
        Engine::sweep(&self.0, limit, at).await
    }
}

#[test]
fn a_dropped_waiter_passes_its_lease_on_even_if_a_local_engine_does_not_count_waiters() {
    let leases = Leases::with_engine(Bare(Memory::new(ManualClock::new())));
    let [jane, joe, ann] = ["jane", "joe", "ann"].map(Owner::named);
    let grant = leases.try_acquire_blocking("report", &jane, Expiry::Never).unwrap();
    let mut second = Box::pin(leases.acquire("report", &joe, Expiry::Never));
    let mut third = Box::pin(leases.acquire("report", &ann, Expiry::Never));
    assert!(block_on(poll_once(&mut second)).is_none() && block_on(poll_once(&mut third)).is_none());
    leases.release_blocking(&grant).unwrap();
    drop(second);
    assert_eq!(*block_on(third).unwrap().owner(), ann);
}
