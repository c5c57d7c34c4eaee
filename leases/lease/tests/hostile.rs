//! Hostile schedules: futures that are woken and not polled, wakers and policies that call back, panic or drop futures,
//! engines that fall silent, lost answers, clocks at the ends of their range, and threads that act at random.
#![cfg(feature = "std")] // threads that block

use std::{
    collections::HashMap,
    convert::Infallible,
    error::Error,
    fmt::{self, Write as _},
    future::{Future, pending, poll_fn, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use keylatch_lease::{
    AcquireError, Clock, Expiry, ExpiryPolicy, Grant, Leases, Lost, ManualClock, Memory, Owner, ReleaseError,
    RenewError, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Owned, Record, Renewal},
};

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

/// A waker that counts its wakes.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Bell {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn rings(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A waker that calls a function.
struct Then<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Then<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn poll<F: Future + Unpin>(future: &mut F, bell: &Arc<Bell>) -> Poll<F::Output> {
    poll_with(future, &Waker::from(bell.clone()))
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn got<T, X: fmt::Debug>(polled: Poll<Result<T, X>>) -> T {
    match polled {
        Poll::Ready(result) => result.expect("a grant"),
        Poll::Pending => panic!("the request is still pending"),
    }
}

/// Runs a function in a thread, and returns its result, or `None` if the function takes longer than this time. In that
/// case the thread is left behind.
fn within<T: Send + 'static>(longest: Duration, what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let _ = done.send(what());
    });
    match is_done.recv_timeout(longest) {
        Ok(value) => Some(value),
        Err(mpsc::RecvTimeoutError::Timeout) => None,
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the thread has panicked"),
    }
}

fn table() -> (ManualClock, Leases<Memory<ManualClock>>) {
    let clock = ManualClock::new();
    (clock.clone(), Leases::in_memory_with(clock))
}

fn owners<const N: usize>() -> [Owner; N] {
    core::array::from_fn(|at| Owner::named(["jane", "joe", "kim", "lee"][at]))
}

// ---- an engine that is not in this process ----

#[derive(Clone, Debug, PartialEq, Eq)]
struct Down;

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server is down")
    }
}

impl Error for Down {}

type Flag = Arc<Mutex<(bool, Option<Waker>)>>;

/// A server that several processes share.
#[derive(Default)]
struct Server {
    memory: OnceLock<Memory<ManualClock>>,
    watches: Mutex<HashMap<Resource, Vec<Flag>>>,
}

impl Server {
    fn memory(&self) -> &Memory<ManualClock> {
        self.memory.get_or_init(|| Memory::new(ManualClock::new()))
    }

    fn tell(&self, resource: &Resource) {
        for flag in self.watches.lock().unwrap().remove(resource).unwrap_or_default() {
            let mut flag = flag.lock().unwrap();
            flag.0 = true;
            let waker = flag.1.take();
            drop(flag);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

/// The faults of one process's connection to the server.
#[derive(Default)]
struct Faults {
    /// The number of further answers that get lost.
    lost_answers: AtomicUsize,
    /// The number of further requests that fail.
    failures: AtomicUsize,
    fails_to_look: AtomicBool,
    is_silent: AtomicBool,
    /// The renewals whose answers wait until the test releases them.
    held_back: Mutex<Vec<Flag>>,
    holds_back: AtomicBool,
    abandoned: AtomicUsize,
    acquires: AtomicUsize,
    /// The number of requests at which the test fails, because so many mean that a future asks in a loop; zero for no
    /// limit.
    most_acquires: AtomicUsize,
}

#[derive(Clone, Default)]
struct Far {
    server: Arc<Server>,
    clock: ManualClock,
    faults: Arc<Faults>,
    is_real_time: bool,
    fallback: Option<Duration>,
    watches: bool,
    wakes_for_nothing: bool,
    busy_for_no_time: bool,
    /// The number of times that the clock was read. A test that reads it too often fails.
    looks: Arc<AtomicUsize>,
}

impl Far {
    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.server.memory().clock().advance(time);
    }

    fn there(&self) -> Duration {
        self.server.memory().clock().now()
    }

    async fn answer<T>(&self, done: impl Future<Output = Result<T, Fail<Infallible>>>) -> Result<T, Fail<Down>> {
        if self.faults.is_silent.load(SeqCst) {
            pending::<()>().await;
        }
        let one_of = |count: &AtomicUsize| count.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_ok();
        if one_of(&self.faults.failures) {
            return Err(Fail::NotDone(Down));
        }
        let answer = done.await.unwrap_or_else(|never| match never.into_cause() {});
        if one_of(&self.faults.lost_answers) {
            return Err(Fail::Unknown(Down));
        }
        Ok(answer)
    }
}

async fn raised(flag: Flag) {
    poll_fn(|cx| {
        let mut flag = flag.lock().unwrap();
        if flag.0 {
            return Poll::Ready(());
        }
        flag.1 = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

impl Engine for Far {
    type Error = Down;

    fn now(&self) -> Duration {
        assert!(self.looks.fetch_add(1, SeqCst) != 100_000, "the clock is read in a loop");
        self.clock.now()
    }

    fn is_real_time(&self) -> bool {
        self.is_real_time
    }

    async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<Down>> {
        let asked = self.faults.acquires.fetch_add(1, SeqCst);
        let most = self.faults.most_acquires.load(SeqCst);
        assert!(most == 0 || asked != most, "the engine is asked in a loop");
        let answer = self.answer(self.server.memory().acquire(Ask { at: self.there(), ..ask })).await?;
        Ok(match answer {
            Answer::Busy { owner, .. } if self.busy_for_no_time => {
                Answer::Busy { owner, remaining: Some(Duration::ZERO) }
            }
            answer => answer,
        })
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Result<(), Fail<Down>> {
        self.answer(self.server.memory().renew(batch, self.there())).await?;
        if self.faults.holds_back.load(SeqCst) {
            let flag = Flag::default();
            self.faults.held_back.lock().unwrap().push(flag.clone());
            raised(flag).await;
        }
        Ok(())
    }

    async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        _: Duration,
    ) -> Result<Gone, Fail<Down>> {
        let gone = self.answer(self.server.memory().release(resource, owner, token, self.there())).await;
        self.server.tell(resource);
        gone
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Result<Vec<Resource>, Fail<Down>> {
        let released = self.answer(self.server.memory().release_all(owner, self.there())).await?;
        released.iter().for_each(|resource| self.server.tell(resource));
        Ok(released)
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Result<Option<Record>, Fail<Down>> {
        if self.faults.fails_to_look.load(SeqCst) {
            return Err(Fail::NotDone(Down));
        }
        self.answer(self.server.memory().look(resource, self.there())).await
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Result<Vec<Owned>, Fail<Down>> {
        self.answer(self.server.memory().owned_by(owner, self.there())).await
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Result<usize, Fail<Down>> {
        self.answer(Engine::sweep(self.server.memory(), limit, self.there())).await
    }

    fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
        let flag = Flag::default();
        if self.watches {
            self.server.watches.lock().unwrap().entry(resource.clone()).or_default().push(flag.clone());
        }
        flag.lock().unwrap().0 = self.wakes_for_nothing;
        raised(flag)
    }

    fn fallback(&self) -> Option<Duration> {
        self.fallback
    }

    fn abandon(&self, _: &Resource, _: &Owner, _: Token) {
        self.faults.abandoned.fetch_add(1, SeqCst);
    }
}

/// Polls a future once, and returns its output. Panics if the future is not ready.
fn done<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future sleeps"),
    }
}

// ---- engines in other processes: waiters ----

#[test]
fn a_waiter_that_is_not_first_sleeps_again_after_the_lease_has_ended() {
    let far = Far { is_real_time: true, ..Far::default() };
    let leases = Leases::with_engine(far.clone());
    let [jane, joe, kim] = owners();
    done(leases.try_acquire("r", &jane, SECOND)).unwrap();
    let (mut first, mut second) = (leases.acquire("r", &joe, SECOND), leases.acquire("r", &kim, SECOND));
    let bell = Bell::new();
    assert!(poll(&mut first, &bell).is_pending());
    assert!(poll(&mut second, &bell).is_pending());
    far.pass(SECOND);
    assert!(poll(&mut second, &bell).is_pending(), "joe is before kim in line");
    assert_eq!(*got(poll(&mut first, &bell)).owner(), joe);
}

#[test]
fn the_next_in_line_is_notified_of_a_release_in_another_process() {
    let far = Far { watches: true, ..Far::default() };
    let (here, elsewhere) = (Leases::with_engine(far.clone()), Leases::with_engine(far));
    let [jane, joe, kim] = owners();
    let held = done(here.try_acquire("r", &jane, Expiry::Never)).unwrap();
    let (mut first, mut second) = (here.acquire("r", &joe, Expiry::Never), here.acquire("r", &kim, Expiry::Never));
    let bells = [Bell::new(), Bell::new()];
    assert!(poll(&mut first, &bells[0]).is_pending());
    assert!(poll(&mut second, &bells[1]).is_pending());
    done(here.release(&held)).unwrap();
    assert!(bells[0].rings() > 0);
    got(poll(&mut first, &bells[0]));
    while bells[1].0.swap(0, SeqCst) > 0 {
        assert!(poll(&mut second, &bells[1]).is_pending());
    }
    done(elsewhere.release_as("r", &joe)).unwrap();
    assert!(bells[1].rings() > 0, "the resource is free, but kim is not woken");
    got(poll(&mut second, &bells[1]));
}

#[test]
fn the_next_in_line_asks_at_the_fallback() {
    let far = Far { fallback: Some(SECOND), ..Far::default() };
    let (here, elsewhere) = (Leases::with_engine(far.clone()), Leases::with_engine(far.clone()));
    let [jane, joe, kim] = owners();
    let held = done(here.try_acquire("r", &jane, Expiry::Never)).unwrap();
    let (mut first, mut second) = (here.acquire("r", &joe, Expiry::Never), here.acquire("r", &kim, Expiry::Never));
    let bell = Bell::new();
    assert!(poll(&mut first, &bell).is_pending());
    assert!(poll(&mut second, &bell).is_pending());
    done(here.release(&held)).unwrap();
    got(poll(&mut first, &bell));
    assert!(poll(&mut second, &bell).is_pending());
    done(elsewhere.release_as("r", &joe)).unwrap();
    far.pass(SECOND);
    got(poll(&mut second, &bell));
}

#[test]
fn a_release_while_an_answer_arrives_is_not_missed() {
    let far = Far::default();
    let leases = Arc::new(Leases::with_engine(far));
    let [jane, joe, kim] = owners();
    let held = done(leases.try_acquire("r", &jane, Expiry::Never)).unwrap();
    let mut first = leases.acquire("r", &joe, Expiry::Never);
    let mut second = leases.acquire("r", &kim, Expiry::Never);
    let bell = Bell::new();
    assert!(poll(&mut first, &bell).is_pending());
    assert!(poll(&mut second, &bell).is_pending());
    done(leases.release(&held)).unwrap();
    // Joe gets the lease, and releases it at the same moment.
    let (table, owner) = (leases.clone(), joe.clone());
    let waker = Waker::from(Arc::new(Then(move || {
        let _ = done(table.release_as("r", &owner));
    })));
    got(poll_with(&mut first, &waker));
    if done(leases.status("r")).unwrap().is_none() {
        assert!(bell.rings() > 0);
        got(poll(&mut second, &bell));
    }
}

#[test]
fn a_hold_whose_answer_is_lost_does_not_wait_for_itself() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane, joe] = owners();
    let held = done(leases.try_acquire("r", &jane, SECOND)).unwrap();
    let mut hold = leases.hold("r", &joe, SECOND);
    let bell = Bell::new();
    assert!(poll(&mut hold, &bell).is_pending());
    done(leases.release(&held)).unwrap();
    far.faults.lost_answers.store(1, SeqCst);
    let hold = got(poll(&mut hold, &bell));
    assert!(hold.check().is_ok());
}

#[test]
fn a_release_by_name_whose_answer_was_lost_lets_the_next_in() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane, joe] = owners();
    done(leases.try_acquire("r", &jane, Expiry::Never)).unwrap();
    let mut next = leases.acquire("r", &joe, Expiry::Never);
    let bell = Bell::new();
    assert!(poll(&mut next, &bell).is_pending());
    far.faults.lost_answers.store(1, SeqCst);
    let _ = done(leases.release_as("r", &jane));
    assert!(bell.rings() > 0, "the resource is free, but joe is not woken");
    got(poll(&mut next, &bell));
}

#[test]
fn a_release_whose_answers_were_all_lost_lets_the_next_in() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane, joe] = owners();
    let held = done(leases.try_acquire("r", &jane, Expiry::Never)).unwrap();
    let mut next = leases.acquire("r", &joe, Expiry::Never);
    let bell = Bell::new();
    assert!(poll(&mut next, &bell).is_pending());
    far.faults.lost_answers.store(3, SeqCst);
    assert_eq!(done(leases.release(&held)), Err(ReleaseError::Engine(Down)));
    assert!(bell.rings() > 0, "the resource is free, but joe is not woken");
    got(poll(&mut next, &bell));
}

#[test]
fn a_release_of_all_whose_answer_was_lost_lets_the_next_in() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane, joe] = owners();
    done(leases.try_acquire("r", &jane, Expiry::Never)).unwrap();
    let mut next = leases.acquire("r", &joe, Expiry::Never);
    let bell = Bell::new();
    assert!(poll(&mut next, &bell).is_pending());
    far.faults.lost_answers.store(1, SeqCst);
    let _ = done(leases.release_all(&jane));
    assert!(bell.rings() > 0, "the resource is free, but joe is not woken");
    got(poll(&mut next, &bell));
}

#[test]
fn a_watch_that_is_ready_without_a_reason_does_not_block_the_thread() {
    let far = Far { wakes_for_nothing: true, ..Far::default() };
    far.faults.most_acquires.store(10_000, SeqCst);
    let leases = Leases::with_engine(far);
    let [jane, joe] = owners();
    done(leases.try_acquire("r", &jane, SECOND)).unwrap();
    assert!(poll(&mut leases.acquire("r", &joe, SECOND), &Bell::new()).is_pending());
}

#[test]
fn a_busy_answer_with_no_time_left_does_not_block_the_thread() {
    let far = Far { busy_for_no_time: true, ..Far::default() };
    far.faults.most_acquires.store(10_000, SeqCst);
    let leases = Leases::with_engine(far);
    let [jane, joe] = owners();
    done(leases.try_acquire("r", &jane, SECOND)).unwrap();
    assert!(poll(&mut leases.acquire("r", &joe, SECOND), &Bell::new()).is_pending());
}

#[test]
fn the_next_in_line_asks_when_the_first_is_dropped_while_it_asks() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane, joe, kim] = owners();
    let held = done(leases.try_acquire("r", &jane, Expiry::Never)).unwrap();
    let (mut first, mut second) = (leases.acquire("r", &joe, SECOND), leases.acquire("r", &kim, SECOND));
    let bell = Bell::new();
    assert!(poll(&mut first, &Bell::new()).is_pending());
    assert!(poll(&mut second, &bell).is_pending());
    done(leases.release(&held)).unwrap();
    far.faults.is_silent.store(true, SeqCst);
    assert!(poll(&mut first, &Bell::new()).is_pending());
    far.faults.is_silent.store(false, SeqCst);
    drop(first);
    assert_eq!(bell.rings(), 1);
    got(poll(&mut second, &bell));
}

#[test]
fn the_next_in_line_asks_when_the_first_gets_an_error() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane, joe, kim] = owners();
    let held = done(leases.try_acquire("r", &jane, Expiry::Never)).unwrap();
    let (mut first, mut second) = (leases.acquire("r", &joe, SECOND), leases.acquire("r", &kim, SECOND));
    let bell = Bell::new();
    assert!(poll(&mut first, &Bell::new()).is_pending());
    assert!(poll(&mut second, &bell).is_pending());
    done(leases.release(&held)).unwrap();
    far.faults.failures.store(1, SeqCst);
    assert!(matches!(poll(&mut first, &Bell::new()), Poll::Ready(Err(AcquireError::Engine(Down)))));
    assert_eq!(bell.rings(), 1);
    got(poll(&mut second, &bell));
}

#[test]
fn a_tenure_whose_first_answer_is_lost_is_not_reported_as_resumed() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane, joe] = owners();
    let held = got(poll(&mut leases.hold("r", &jane, SECOND), &Bell::new()));
    let bell = Bell::new();
    let mut lost = held.lost();
    assert!(poll(&mut lost, &bell).is_pending());
    done(Leases::with_engine(far.clone()).release_as("r", &jane)).unwrap();
    far.faults.lost_answers.store(1, SeqCst);
    assert!(!done(leases.try_acquire("r", &joe, SECOND)).unwrap().is_resumed());
    assert!(bell.rings() > 0, "jane is not notified");
}

// ---- engines in other processes: holds ----

/// Creates an engine that can fall silent, with timers of the real clock.
fn silent_hold() -> (Far, Arc<Leases<Far>>) {
    let far = Far { is_real_time: true, ..Far::default() };
    let leases = Arc::new(Leases::with_engine(far.clone()));
    (far, leases)
}

#[test]
fn run_is_woken_at_the_deadline_even_if_the_engine_is_silent() {
    let (far, leases) = silent_hold();
    let [jane] = owners();
    let mut held = got(poll(&mut leases.hold("r", &jane, 300 * Duration::from_millis(1)), &Bell::new()));
    let bell = Bell::new();
    let mut run = held.run(pending::<()>());
    assert!(poll(&mut run, &bell).is_pending());
    far.pass(100 * Duration::from_millis(1));
    far.faults.is_silent.store(true, SeqCst);
    assert!(poll(&mut run, &bell).is_pending(), "the renewal is under way");
    far.pass(200 * Duration::from_millis(1));
    bell.0.store(0, SeqCst);
    thread::sleep(Duration::from_secs(1)); // the timers use the real clock
    assert!(bell.rings() > 0, "the run is not woken at the deadline");
    assert_eq!(poll(&mut run, &bell), Poll::Ready(Err(Lost::Expired)));
}

#[test]
fn a_renewal_ends_at_the_deadline_even_if_the_engine_is_silent() {
    let (far, leases) = silent_hold();
    let [jane] = owners();
    let held = got(poll(&mut leases.hold_arc("r", &jane, 3 * SECOND), &Bell::new()));
    let mut renewal = held.renewal();
    assert!(poll(&mut renewal, &Bell::new()).is_pending());
    far.pass(SECOND);
    far.faults.is_silent.store(true, SeqCst);
    assert!(poll(&mut renewal, &Bell::new()).is_pending());
    far.pass(2 * SECOND);
    assert_eq!(held.check(), Err(Lost::Expired));
    assert_eq!(poll(&mut renewal, &Bell::new()), Poll::Ready(Lost::Expired));
}

#[test]
fn a_renewal_ends_with_its_held_even_if_the_engine_is_silent() {
    let (far, leases) = silent_hold();
    let [jane] = owners();
    let held = got(poll(&mut leases.hold_arc("r", &jane, 3 * SECOND), &Bell::new()));
    let mut renewal = held.renewal();
    assert!(poll(&mut renewal, &Bell::new()).is_pending());
    far.pass(SECOND);
    far.faults.is_silent.store(true, SeqCst);
    let bell = Bell::new();
    assert!(poll(&mut renewal, &bell).is_pending());
    drop(held);
    assert!(bell.rings() > 0);
    assert_eq!(poll(&mut renewal, &bell), Poll::Ready(Lost::Released));
}

#[test]
fn a_release_dropped_during_its_request_abandons_the_lease() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane] = owners();
    let held = got(poll(&mut leases.hold("r", &jane, SECOND), &Bell::new()));
    far.faults.is_silent.store(true, SeqCst);
    let mut release = held.release();
    assert!(poll(&mut release, &Bell::new()).is_pending());
    drop(release);
    assert_eq!(far.faults.abandoned.load(SeqCst), 1);
}

#[test]
fn a_release_that_fails_abandons_the_lease() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane] = owners();
    let held = got(poll(&mut leases.hold("r", &jane, SECOND), &Bell::new()));
    far.faults.failures.store(1, SeqCst);
    assert_eq!(done(held.release()), Err(ReleaseError::Engine(Down)));
    assert_eq!(far.faults.abandoned.load(SeqCst), 1);
}

#[test]
fn a_release_that_is_never_polled_abandons_the_lease() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane] = owners();
    drop(got(poll(&mut leases.hold("r", &jane, SECOND), &Bell::new())).release());
    assert_eq!(far.faults.abandoned.load(SeqCst), 1);
}

#[test]
fn renewals_that_fail_at_once_do_not_block_the_thread_however_short_the_lease() {
    for ttl in 1..40 {
        let far = Far::default();
        let leases = Leases::with_engine(far.clone());
        let [jane] = owners();
        let held = got(poll(&mut leases.hold("r", &jane, ttl * NANO), &Bell::new()));
        far.faults.failures.store(usize::MAX, SeqCst);
        let mut renewal = held.renewal();
        for _ in 0..ttl {
            if poll(&mut renewal, &Bell::new()).is_ready() {
                break;
            }
            far.pass(NANO);
        }
    }
}

#[test]
fn a_renewal_refused_without_a_cause_counts_as_a_loss() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane] = owners();
    let held = got(poll(&mut leases.hold("r", &jane, 3 * SECOND), &Bell::new()));
    let mut renewal = held.renewal();
    assert!(poll(&mut renewal, &Bell::new()).is_pending());
    done(Leases::with_engine(far.clone()).release_as("r", &jane)).unwrap();
    far.pass(SECOND);
    far.faults.fails_to_look.store(true, SeqCst);
    let _ = poll(&mut renewal, &Bell::new());
    assert!(held.check().is_err(), "the engine has said that the tenure is over");
}

#[test]
fn an_overtaken_answer_does_not_bring_the_deadline_forward() {
    let far = Far::default();
    let leases = Leases::with_engine(far.clone());
    let [jane] = owners();
    let held = got(poll(&mut leases.hold("r", &jane, 30 * SECOND), &Bell::new()));
    let (mut slow, mut quick) = (held.renewal(), held.renewal());
    assert!(poll(&mut slow, &Bell::new()).is_pending());
    assert!(poll(&mut quick, &Bell::new()).is_pending());
    far.pass(10 * SECOND);
    far.faults.holds_back.store(true, SeqCst);
    assert!(poll(&mut slow, &Bell::new()).is_pending());
    far.faults.holds_back.store(false, SeqCst);
    far.pass(10 * SECOND);
    assert!(poll(&mut quick, &Bell::new()).is_pending());
    assert!(held.check_for(29 * SECOND).is_ok());
    far.faults.held_back.lock().unwrap().drain(..).for_each(|flag| flag.lock().unwrap().0 = true);
    assert!(poll(&mut slow, &Bell::new()).is_pending());
    assert!(held.check_for(29 * SECOND).is_ok());
}

#[test]
fn a_grant_from_a_process_with_another_clock_is_renewed_by_the_clock_of_this_one() {
    let far = Far::default();
    let elsewhere = Far { clock: ManualClock::new(), ..far.clone() };
    elsewhere.clock.advance(1_000_000 * SECOND);
    let [jane] = owners();
    let grant = done(Leases::with_engine(elsewhere).try_acquire("r", &jane, 60 * SECOND)).unwrap();
    let here = Leases::with_engine(far);
    let grant = done(here.renew(&grant)).unwrap();
    assert!(here.remaining(&grant).is_some_and(|left| left <= 60 * SECOND), "{:?}", here.remaining(&grant));
}

// ---- user code under a lock ----

/// A policy that calls the leases when it is dropped.
struct LooksWhenDropped(OnceLock<Weak<Leases<Memory<ManualClock>>>>);

impl ExpiryPolicy for LooksWhenDropped {
    fn remaining(&self, _: Duration) -> Option<Duration> {
        Some(SECOND)
    }
}

impl Drop for LooksWhenDropped {
    fn drop(&mut self) {
        if let Some(leases) = self.0.get().and_then(Weak::upgrade) {
            let _ = leases.status_now("r");
            leases.tick();
        }
    }
}

/// Acquires a lease whose record has the last reference to a policy that calls the leases when it is dropped. Joe waits
/// for the resource.
fn with_a_policy_that_looks(
    end: impl FnOnce(&ManualClock, &Leases<Memory<ManualClock>>) + Send + 'static,
) -> Option<()> {
    within(5 * SECOND, || {
        let clock = ManualClock::new();
        let leases = Arc::new(Leases::in_memory_with(clock.clone()));
        let [jane, joe] = owners();
        let policy = LooksWhenDropped(OnceLock::new());
        policy.0.set(Arc::downgrade(&leases)).expect("the cell is empty");
        drop(leases.try_acquire_now("r", &jane, Expiry::custom(policy)).unwrap());
        let mut next = leases.acquire("r", &joe, SECOND);
        assert!(poll(&mut next, &Bell::new()).is_pending());
        end(&clock, &leases);
        got(poll(&mut next, &Bell::new()));
    })
}

#[test]
fn a_policy_is_dropped_outside_of_all_locks_when_its_lease_is_released() {
    with_a_policy_that_looks(|_, leases| leases.release_as_now("r", &owners::<1>()[0]).unwrap())
        .expect("the call deadlocks");
}

#[test]
fn a_policy_is_dropped_outside_of_all_locks_when_its_lease_has_expired() {
    with_a_policy_that_looks(|clock, leases| {
        clock.advance(SECOND);
        leases.status_now("r").unwrap();
    })
    .expect("the call deadlocks");
}

#[test]
fn a_policy_is_dropped_outside_of_all_locks_when_another_call_removes_its_lease() {
    with_a_policy_that_looks(|clock, leases| {
        let [_, _, kim] = owners();
        leases.try_acquire_now("other", &kim, SECOND).unwrap();
        let mut lee = leases.acquire("other", &owners::<4>()[3], SECOND);
        assert!(poll(&mut lee, &Bell::new()).is_pending());
        clock.advance(SECOND);
        let _ = leases.status_now("other");
    })
    .expect("the call deadlocks");
}

#[test]
fn a_policy_is_dropped_outside_of_all_locks_when_another_replaces_it() {
    with_a_policy_that_looks(|clock, leases| {
        let [jane] = owners();
        leases.try_acquire_now("r", &jane, SECOND).unwrap();
        clock.advance(SECOND);
    })
    .expect("the call deadlocks");
}

#[test]
fn debug_output_takes_no_lock() {
    struct Looks<'a>(&'a Leases<Memory<ManualClock>>);
    impl fmt::Write for Looks<'_> {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            let _ = self.0.status_now("r");
            Ok(())
        }
    }
    within(5 * SECOND, || {
        let (_, leases) = table();
        write!(Looks(&leases), "{leases:?}").unwrap();
    })
    .expect("the call deadlocks");
}

#[test]
fn a_policy_may_look_up_its_own_resource() {
    let clock = ManualClock::new();
    let leases = Arc::new(Leases::in_memory_with(clock));
    let [jane, joe] = owners();
    let held = leases.try_acquire_now("r", &jane, Expiry::Never).unwrap();
    let (table, depth) = (Arc::downgrade(&leases), Arc::new(AtomicUsize::new(0)));
    let deepest = depth.clone();
    let policy = Expiry::custom(move |_| {
        if deepest.fetch_add(1, SeqCst) < 50 {
            let _ = table.upgrade()?.status_now("r");
        }
        Some(SECOND)
    });
    let mut next = leases.acquire("r", &joe, policy);
    assert!(poll(&mut next, &Bell::new()).is_pending());
    leases.release_now(&held).unwrap();
    got(poll(&mut next, &Bell::new()));
    assert!(depth.load(SeqCst) < 50, "the policy would be asked recursively until the stack overflows");
}

/// A clock that the test moves, although it claims to be real time. A test that reads it too often fails.
#[derive(Clone, Default)]
struct ByHand(ManualClock, Arc<AtomicUsize>);

impl Clock for ByHand {
    fn now(&self) -> Duration {
        assert!(self.1.fetch_add(1, SeqCst) != 10_000, "the clock is read in a loop");
        self.0.now()
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

#[test]
fn a_request_polled_while_a_policy_runs_sleeps() {
    type Kept = Arc<Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>>;
    let clock = ByHand::default();
    let leases = Arc::new(Leases::in_memory_with(clock.clone()));
    let [jane, joe, kim] = owners();
    leases.try_acquire_now("r", &jane, SECOND).unwrap();
    let second: Kept = Kept::default();
    let (table, owner) = (leases.clone(), kim.clone());
    *second.lock().unwrap() = Some(Box::pin(async move {
        table.acquire("r", &owner, SECOND).await.unwrap();
    }));
    let bell = Bell::new();
    let (polls, rings) = (second.clone(), bell.clone());
    let policy = Expiry::custom(move |_| {
        assert!(poll(polls.lock().unwrap().as_mut().unwrap(), &rings).is_pending());
        Some(SECOND)
    });
    let mut first = leases.acquire("r", &joe, policy);
    assert!(poll(&mut first, &Bell::new()).is_pending());
    assert!(poll(second.lock().unwrap().as_mut().unwrap(), &bell).is_pending());
    clock.0.advance(SECOND);
    assert_eq!(*got(poll(&mut first, &Bell::new())).owner(), joe);
    assert!(bell.rings() > 0, "kim has no time to wake up");
    clock.0.advance(SECOND);
    assert!(poll(second.lock().unwrap().as_mut().unwrap(), &bell).is_ready());
}

#[test]
fn wakers_may_call_the_leases_and_poll_the_woken_future() {
    let (clock, leases) = table();
    let leases = Arc::new(leases);
    let [jane, joe, kim] = owners();
    let held = leases.try_acquire_now("r", &jane, Expiry::Never).unwrap();
    let table = leases.clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = seen.clone();
    let waker = Waker::from(Arc::new(Then(move || {
        table.tick();
        let status = table.status_now("r").unwrap().unwrap();
        sees.lock().unwrap().push(status.owner().clone());
        let _ = table.release_as_now("r", status.owner());
    })));
    let mut first = leases.acquire("r", &joe, SECOND);
    let mut second = leases.acquire("r", &kim, SECOND);
    assert!(poll_with(&mut first, &waker).is_pending());
    assert!(poll_with(&mut second, &waker).is_pending());
    leases.release_now(&held).unwrap();
    assert_eq!(*seen.lock().unwrap(), [joe.clone(), kim.clone()]);
    // Their tenures have ended, so both ask again.
    assert_eq!(*got(poll(&mut second, &Bell::new())).owner(), kim);
    assert!(poll(&mut first, &Bell::new()).is_pending());
    clock.advance(SECOND);
    assert_eq!(*got(poll(&mut first, &Bell::new())).owner(), joe);
}

// ---- user code that panics ----

fn panicking_waker() -> Waker {
    Waker::from(Arc::new(Then(|| panic!("a waker"))))
}

fn panics(what: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(what)).is_err());
}

#[test]
fn a_policy_that_panics_leaves_no_waiter_behind() {
    let (_, leases) = table();
    let [jane, joe, kim] = owners();
    let held = leases.try_acquire_now("r", &jane, Expiry::Never).unwrap();
    let mut first = leases.acquire("r", &joe, Expiry::custom(|_| panic!("a policy")));
    let mut second = leases.acquire("r", &kim, SECOND);
    let bell = Bell::new();
    assert!(poll(&mut first, &Bell::new()).is_pending());
    assert!(poll(&mut second, &bell).is_pending());
    panics(|| leases.release_now(&held).unwrap());
    assert!(bell.rings() > 0, "the resource is free, but kim is not woken");
    got(poll(&mut second, &bell));
    assert!(matches!(poll(&mut first, &Bell::new()), Poll::Ready(Err(AcquireError::Refused { .. }))));
}

#[test]
fn a_policy_that_panics_in_a_tick_leaves_no_waiter_behind() {
    let (clock, leases) = table();
    let [jane, joe, kim] = owners();
    leases.try_acquire_now("r", &jane, SECOND).unwrap();
    let mut first = leases.acquire("r", &joe, Expiry::custom(|_| panic!("a policy")));
    let mut second = leases.acquire("r", &kim, SECOND);
    let bell = Bell::new();
    assert!(poll(&mut first, &Bell::new()).is_pending());
    assert!(poll(&mut second, &bell).is_pending());
    clock.advance(SECOND);
    panics(|| {
        let _ = leases.tick();
    });
    leases.tick();
    assert!(bell.rings() > 0, "the resource is free, but kim is not woken");
    got(poll(&mut second, &bell));
}

#[test]
fn a_policy_that_panics_does_not_stop_the_hand_off_of_the_sessions_other_leases() {
    let (_, leases) = table();
    let [jane, joe, kim] = owners();
    for resource in ["a", "b", "c"] {
        leases.try_acquire_now(resource, &jane, Expiry::Never).unwrap();
    }
    let mut refused = leases.acquire("b", &joe, Expiry::custom(|_| panic!("a policy")));
    assert!(poll(&mut refused, &Bell::new()).is_pending());
    let bells = [Bell::new(), Bell::new()];
    let mut others = [leases.acquire("a", &kim, SECOND), leases.acquire("c", &kim, SECOND)];
    for (other, bell) in others.iter_mut().zip(&bells) {
        assert!(poll(other, bell).is_pending());
    }
    panics(|| drop(leases.release_all_now(&jane)));
    assert_eq!(bells.map(|bell| bell.rings()), [1, 1], "the resource is free, but kim is not woken");
}

#[test]
fn a_waker_that_panics_does_not_stop_the_hand_off_of_the_sessions_other_leases() {
    let (_, leases) = table();
    let [jane, joe, kim] = owners();
    for resource in ["a", "b", "c"] {
        leases.try_acquire_now(resource, &jane, Expiry::Never).unwrap();
    }
    let mut first = leases.acquire("b", &joe, SECOND);
    assert!(poll_with(&mut first, &panicking_waker()).is_pending());
    let bells = [Bell::new(), Bell::new()];
    let mut others = [leases.acquire("a", &kim, SECOND), leases.acquire("c", &kim, SECOND)];
    for (other, bell) in others.iter_mut().zip(&bells) {
        assert!(poll(other, bell).is_pending());
    }
    panics(|| drop(leases.release_all_now(&jane)));
    assert_eq!(bells.map(|bell| bell.rings()), [1, 1], "the resource is free, but kim is not woken");
}

#[test]
fn a_waker_of_lost_that_panics_in_a_tick_leaves_no_waiter_behind() {
    let (clock, leases) = table();
    let [jane, joe] = owners();
    let held = leases.hold_blocking("r", &jane, SECOND).unwrap();
    let mut lost = held.lost();
    assert!(poll_with(&mut lost, &panicking_waker()).is_pending());
    let mut next = leases.acquire("r", &joe, SECOND);
    let bell = Bell::new();
    assert!(poll(&mut next, &bell).is_pending());
    clock.advance(SECOND);
    panics(|| {
        let _ = leases.tick();
    });
    leases.tick();
    assert!(bell.rings() > 0, "the resource is free, but joe is not woken");
    got(poll(&mut next, &bell));
}

#[test]
fn all_others_are_woken_even_if_one_waker_panics() {
    let (_, leases) = table();
    let [jane] = owners();
    let held = leases.hold_blocking("r", &jane, SECOND).unwrap();
    let bells = [Bell::new(), Bell::new()];
    let mut lost = [held.lost(), held.lost(), held.lost()];
    assert!(poll(&mut lost[0], &bells[0]).is_pending());
    assert!(poll_with(&mut lost[1], &panicking_waker()).is_pending());
    assert!(poll(&mut lost[2], &bells[1]).is_pending());
    panics(|| leases.release_as_now("r", &jane).unwrap());
    assert_eq!(bells.map(|bell| bell.rings()), [1, 1]);
}

/// A policy that panics when it is dropped.
struct PanicsWhenDropped(AtomicBool);

impl ExpiryPolicy for PanicsWhenDropped {
    fn remaining(&self, _: Duration) -> Option<Duration> {
        Some(SECOND)
    }
}

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        assert!(!*self.0.get_mut(), "a policy");
    }
}

#[test]
fn a_policy_that_panics_when_it_is_dropped_leaves_no_waiter_behind() {
    let (clock, leases) = table();
    let [jane, joe, kim] = owners();
    drop(leases.try_acquire_now("r", &jane, Expiry::custom(PanicsWhenDropped(AtomicBool::new(true)))).unwrap());
    let mut first = leases.acquire("r", &joe, Expiry::custom(|_| Some(SECOND)));
    let mut second = leases.acquire("r", &kim, SECOND);
    assert!(poll(&mut first, &Bell::new()).is_pending());
    assert!(poll(&mut second, &Bell::new()).is_pending());
    clock.advance(SECOND);
    let _ = catch_unwind(AssertUnwindSafe(|| leases.status_now("r")));
    assert_eq!(*got(poll(&mut first, &Bell::new())).owner(), joe);
    clock.advance(SECOND);
    assert_eq!(*got(poll(&mut second, &Bell::new())).owner(), kim);
}

/// A panic during a panic ends the process, so this test runs in its own process.
#[cfg(not(miri))]
#[test]
fn two_wakers_that_panic_do_not_end_the_process() {
    const CHILD: &str = "KEYLATCH_LEASE_TWO_PANICS";
    if std::env::var_os(CHILD).is_none() {
        let this = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(this);
        child.args(["--exact", "two_wakers_that_panic_do_not_end_the_process"]).env(CHILD, "1");
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        return;
    }
    let (_, leases) = table();
    let [jane] = owners();
    let held = leases.hold_blocking("r", &jane, SECOND).unwrap();
    let mut lost = [held.lost(), held.lost()];
    for lost in &mut lost {
        assert!(poll_with(lost, &panicking_waker()).is_pending());
    }
    panics(|| leases.release_as_now("r", &jane).unwrap());
}

/// A clock that panics once.
#[derive(Clone, Default)]
struct Panicky(ManualClock, Arc<AtomicBool>);

impl Clock for Panicky {
    fn now(&self) -> Duration {
        assert!(!self.1.swap(false, SeqCst), "a clock");
        self.0.now()
    }
}

#[test]
fn a_clock_that_panics_when_a_request_is_dropped_leaves_no_waiter_in_line() {
    let clock = Panicky::default();
    let leases = Leases::in_memory_with(clock.clone());
    let [jane, joe, kim] = owners();
    let held = leases.try_acquire_now("r", &jane, Expiry::Never).unwrap();
    let mut first = leases.acquire("r", &joe, Expiry::Never);
    let mut second = leases.acquire("r", &kim, Expiry::Never);
    assert!(poll(&mut first, &Bell::new()).is_pending());
    assert!(poll(&mut second, &Bell::new()).is_pending());
    clock.1.store(true, SeqCst);
    panics(|| drop(first));
    leases.release_now(&held).unwrap();
    assert_eq!(*got(poll(&mut second, &Bell::new())).owner(), kim);
}

#[test]
fn work_that_panics_leaves_the_lease_as_it_is() {
    let (clock, leases) = table();
    let [jane, joe] = owners();
    let mut held = leases.hold_blocking("r", &jane, 3 * SECOND).unwrap();
    panics(|| {
        let _ = poll(&mut held.run(async { panic!("work") }), &Bell::new());
    });
    assert!(held.check().is_ok());
    assert_eq!(leases.tick(), Some(3 * SECOND), "nothing renews the lease any more");
    let mut run = held.run(pending::<()>());
    assert!(poll(&mut run, &Bell::new()).is_pending());
    clock.advance(SECOND);
    assert!(poll(&mut run, &Bell::new()).is_pending());
    drop(run);
    assert!(held.check_for(3 * SECOND).is_ok(), "the lease has been renewed");
    drop(held);
    leases.try_acquire_now("r", &joe, SECOND).unwrap();
}

// ---- waiters in memory ----

#[test]
fn a_request_that_gave_up_leaves_the_line_even_if_its_future_is_kept() {
    let (_, leases) = table();
    let [jane, joe, kim] = owners();
    let held = leases.try_acquire_now("r", &jane, Expiry::Never).unwrap();
    let mut gave_up = leases.acquire("r", &joe, Expiry::Never).until(ready(()));
    assert!(matches!(poll(&mut gave_up, &Bell::new()), Poll::Ready(Err(AcquireError::Limit { .. }))));
    assert_eq!(leases.status_now("r").unwrap().unwrap().waiters(), 0);
    let mut next = leases.acquire("r", &kim, SECOND);
    assert!(poll(&mut next, &Bell::new()).is_pending());
    leases.release_now(&held).unwrap();
    assert_eq!(*got(poll(&mut next, &Bell::new())).owner(), kim);
    drop(gave_up);
}

#[test]
fn a_hold_that_gave_up_leaves_the_line_even_if_its_future_is_kept() {
    let (_, leases) = table();
    let [jane, joe, kim] = owners();
    let held = leases.try_acquire_now("r", &jane, Expiry::Never).unwrap();
    let mut gave_up = leases.hold("r", &joe, SECOND).until(ready(()));
    assert!(matches!(poll(&mut gave_up, &Bell::new()), Poll::Ready(Err(AcquireError::Limit { .. }))));
    let mut next = leases.acquire("r", &kim, SECOND);
    assert!(poll(&mut next, &Bell::new()).is_pending());
    leases.release_now(&held).unwrap();
    assert_eq!(*got(poll(&mut next, &Bell::new())).owner(), kim);
    drop(gave_up);
}

#[test]
fn a_waiting_request_can_be_given_a_limit() {
    let (_, leases) = table();
    let [jane, joe] = owners();
    leases.try_acquire_now("r", &jane, Expiry::Never).unwrap();
    let mut waits = leases.acquire("r", &joe, Expiry::Never);
    assert!(poll(&mut waits, &Bell::new()).is_pending());
    let polled = poll(&mut waits.until(ready(())), &Bell::new());
    assert!(matches!(polled, Poll::Ready(Err(AcquireError::Limit { .. }))));
}

#[test]
fn a_tick_serves_waiters_that_were_woken_and_not_polled() {
    let (clock, leases) = table();
    let [jane, joe, kim, lee] = owners();
    leases.try_acquire_now("r", &jane, SECOND).unwrap();
    let mut line = [&joe, &kim, &lee].map(|owner| Some(leases.acquire("r", owner, SECOND)));
    let bells = [Bell::new(), Bell::new(), Bell::new()];
    for (waits, bell) in line.iter_mut().flatten().zip(&bells) {
        assert!(poll(waits, bell).is_pending());
    }
    line[0] = None;
    // Kim's task does not poll.
    clock.advance(SECOND);
    assert_eq!(leases.tick(), Some(SECOND), "kim has it");
    clock.advance(SECOND);
    leases.tick();
    assert!(bells[2].rings() > 0, "the resource is free, but lee is not woken");
    got(poll(line[2].as_mut().unwrap(), &bells[2]));
}

/// Jane has the lease for an hour, and joe and kim wait. Then the lease gets an earlier end, and joe's task does not
/// poll.
#[cfg(not(miri))]
#[test]
fn a_task_that_does_not_poll_does_not_deprive_others_of_their_timers() {
    let leases = Leases::in_memory();
    let [jane, joe, kim] = owners();
    let moment = Duration::from_millis(100);
    leases.try_acquire_now("r", &jane, 3600 * SECOND).unwrap();
    let mut idle = leases.acquire("r", &joe, moment);
    assert!(poll(&mut idle, &Bell::new()).is_pending());
    thread::scope(|scope| {
        let waits = scope.spawn(|| leases.acquire_for("r", &kim, moment, 3 * SECOND));
        while leases.status_now("r").unwrap().unwrap().waiters() < 2 {
            thread::yield_now();
        }
        leases.try_acquire("r", &jane, moment).fresh_token().now().unwrap();
        waits.join().unwrap().expect("the resource is free, but kim waits for an hour");
    });
}

#[cfg(not(miri))]
#[test]
fn a_task_that_does_not_poll_delays_others_no_longer_than_its_lease() {
    let leases = Leases::in_memory();
    let [jane, joe, kim, lee] = owners();
    let moment = Duration::from_millis(100);
    let held = leases.try_acquire_now("r", &jane, 3600 * SECOND).unwrap();
    let mut idle = [leases.acquire("r", &joe, moment), leases.acquire("r", &kim, moment)];
    for idle in &mut idle {
        assert!(poll(idle, &Bell::new()).is_pending());
    }
    thread::scope(|scope| {
        let waits = scope.spawn(|| leases.acquire_for("r", &lee, moment, 3 * SECOND));
        while leases.status_now("r").unwrap().unwrap().waiters() < 3 {
            thread::yield_now();
        }
        leases.release_now(&held).unwrap();
        waits.join().unwrap().expect("the resource is free, but lee waits for an hour");
    });
}

/// The waker of a served request drops that request, while another call of its owner acquires the lease.
#[test]
fn a_tenure_that_another_call_of_the_owner_got_is_not_passed_on() {
    type Kept = Arc<Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>>;
    let (clock, leases) = table();
    let leases = Arc::new(leases);
    let [jane, joe, kim] = owners();
    leases.try_acquire_now("r", &jane, SECOND).unwrap();
    let first: Kept = Kept::default();
    let (table, owner) = (leases.clone(), joe.clone());
    *first.lock().unwrap() = Some(Box::pin(async move {
        let _ = table.acquire("r", &owner, 9 * SECOND).await;
    }));
    let to_drop = first.clone();
    let waker = Waker::from(Arc::new(Then(move || drop(to_drop.lock().unwrap().take()))));
    assert!(poll_with(first.lock().unwrap().as_mut().unwrap(), &waker).is_pending());
    let mut next = leases.acquire("r", &kim, 9 * SECOND);
    assert!(poll(&mut next, &Bell::new()).is_pending());
    clock.advance(SECOND);
    let grant = leases.try_acquire_now("r", &joe, 9 * SECOND).expect("it was joe's turn");
    let status = leases.status_now("r").unwrap().unwrap();
    assert_eq!((status.owner(), status.token()), (&joe, grant.token()), "joe's call has returned the lease");
    assert!(poll(&mut next, &Bell::new()).is_pending());
}

#[test]
fn a_tenure_that_another_call_of_the_owner_renewed_is_not_passed_on() {
    let (_, leases) = table();
    let [jane, joe, kim] = owners();
    let held = leases.try_acquire_now("r", &jane, SECOND).unwrap();
    let mut first = leases.acquire("r", &joe, 9 * SECOND);
    let mut next = leases.acquire("r", &kim, 9 * SECOND);
    assert!(poll(&mut first, &Bell::new()).is_pending());
    assert!(poll(&mut next, &Bell::new()).is_pending());
    leases.release_now(&held).unwrap();
    let grant = leases.owned_by_now(&joe).unwrap().remove(0);
    leases.renew_now(&grant).unwrap();
    drop(first);
    assert_eq!(leases.status_now("r").unwrap().unwrap().token(), grant.token());
}

#[test]
fn a_tenure_that_no_call_of_its_owner_has_seen_is_passed_on() {
    let (_, leases) = table();
    let [jane, joe, kim] = owners();
    let held = leases.try_acquire_now("r", &jane, SECOND).unwrap();
    let mut both = [Some(leases.acquire("r", &joe, Expiry::Never)), Some(leases.acquire("r", &joe, Expiry::Never))];
    for one in both.iter_mut().flatten() {
        assert!(poll(one, &Bell::new()).is_pending());
    }
    let mut next = leases.acquire("r", &kim, Expiry::Never);
    let bell = Bell::new();
    assert!(poll(&mut next, &bell).is_pending());
    leases.release_now(&held).unwrap();
    both[0] = None;
    assert_eq!(*leases.status_now("r").unwrap().unwrap().owner(), joe);
    both[1] = None;
    assert_eq!(bell.rings(), 1);
    assert_eq!(*got(poll(&mut next, &bell)).owner(), kim);
}

#[test]
fn a_replaced_tenure_that_no_call_has_seen_is_not_released() {
    let (_, leases) = table();
    let [jane, joe, kim] = owners();
    let held = leases.try_acquire_now("r", &jane, SECOND).unwrap();
    let mut first = leases.acquire("r", &joe, Expiry::Never);
    assert!(poll(&mut first, &Bell::new()).is_pending());
    let mut next = leases.acquire("r", &kim, Expiry::Never);
    assert!(poll(&mut next, &Bell::new()).is_pending());
    leases.release_now(&held).unwrap();
    let fresh = leases.try_acquire("r", &joe, Expiry::Never).fresh_token().now().unwrap();
    drop(first);
    let status = leases.status_now("r").unwrap().unwrap();
    assert_eq!((status.owner(), status.token()), (&joe, fresh.token()));
}

#[test]
fn two_successive_tenures_served_to_one_owner_are_each_returned_once() {
    let (clock, leases) = table();
    let [jane, joe] = owners();
    leases.try_acquire_now("r", &jane, SECOND).unwrap();
    let mut holds = [leases.hold("r", &joe, SECOND), leases.hold("r", &joe, SECOND)];
    for hold in &mut holds {
        assert!(poll(hold, &Bell::new()).is_pending());
    }
    clock.advance(SECOND);
    leases.tick();
    let first = leases.status_now("r").unwrap().unwrap().token();
    clock.advance(SECOND);
    leases.tick();
    let second = leases.status_now("r").unwrap().unwrap().token();
    assert!(second > first);
    let held = got(poll(&mut holds[1], &Bell::new()));
    assert_eq!(held.token(), second);
    assert!(poll(&mut holds[0], &Bell::new()).is_pending(), "its tenure has ended, so it asks again");
    drop(held);
    assert!(got(poll(&mut holds[0], &Bell::new())).token() > second);
}

/// The reference count of a policy shows whether a request is still kept.
#[test]
fn served_refused_and_dropped_requests_leave_nothing() {
    let (clock, leases) = table();
    let [jane, joe, kim] = owners();
    let grants = Arc::new(AtomicBool::new(true));
    let policy: Arc<dyn ExpiryPolicy> = {
        let grants = grants.clone();
        Arc::new(move |_: Duration| grants.load(SeqCst).then_some(SECOND))
    };
    let expiry = || Expiry::Custom(policy.clone());
    fn poll_all<F: Future + Unpin>(line: &mut [Option<F>]) {
        for waits in line {
            if waits.as_mut().is_some_and(|waits| poll(waits, &Bell::new()).is_ready()) {
                *waits = None;
            }
        }
    }
    for round in 0..64 {
        let resource = format!("r{round}");
        let held = leases.try_acquire_now(&resource, &jane, Expiry::Never).unwrap();
        let mut line = [&joe, &kim, &joe, &kim, &joe].map(|owner| Some(leases.acquire(&resource, owner, expiry())));
        for waits in line.iter_mut().flatten() {
            assert!(poll(waits, &Bell::new()).is_pending());
        }
        drop(line[round % 5].take());
        grants.store(round % 3 > 0, SeqCst);
        leases.release_now(&held).unwrap();
        drop(line[(round + 1) % 5].take());
        if round % 2 == 0 {
            poll_all(&mut line);
        }
        clock.advance(SECOND);
        if round % 4 < 2 {
            poll_all(&mut line);
        }
        drop(line);
        grants.store(true, SeqCst);
        clock.advance(SECOND);
    }
    assert_eq!(leases.len(), 0);
    assert_eq!(leases.tick(), None);
    assert_eq!(Arc::strong_count(&policy), 1);
}

// ---- time ----

/// A clock that advances with each reading. A test that reads it too often fails.
struct Restless(AtomicU64);

impl Clock for Restless {
    fn now(&self) -> Duration {
        let now = self.0.fetch_add(1, SeqCst);
        assert!(now != 1_000_000, "the clock is read in a loop");
        Duration::from_nanos(now)
    }
}

#[test]
fn renewals_do_not_starve_the_work_however_short_the_lease() {
    let leases = Leases::in_memory_with(Restless(AtomicU64::new(0)));
    let [jane] = owners();
    for ttl in 1..100 {
        let Ok(mut held) = leases.hold_blocking("r", &jane, ttl * NANO) else { continue };
        let mut polls = 0;
        let work = poll_fn(|_| {
            polls += 1;
            Poll::<()>::Pending
        });
        let mut run = held.run(work);
        for _ in 0..10 {
            if poll(&mut run, &Bell::new()).is_ready() {
                break;
            }
        }
    }
}

#[test]
fn times_at_the_end_of_a_durations_range_work() {
    const MAX: Duration = Duration::MAX;
    let (clock, leases) = table();
    let [jane, joe, kim] = owners();
    clock.advance(10 * SECOND);
    for (at, expiry) in [
        Expiry::Fixed(MAX),
        Expiry::Sliding(MAX),
        Expiry::SlidingUpTo { idle: MAX, total: MAX },
        Expiry::SlidingUpTo { idle: NANO, total: MAX },
        Expiry::custom(|_| Some(MAX)),
    ]
    .into_iter()
    .enumerate()
    {
        let resource = at.to_string();
        let grant = leases.try_acquire_now(&resource, &jane, expiry).unwrap();
        let _ = leases.renew_now(&grant);
        let mut next = leases.acquire(&resource, &joe, MAX);
        assert!(poll(&mut next, &Bell::new()).is_pending());
        leases.tick();
    }
    let mut held = leases.hold_blocking("held", &kim, MAX).unwrap();
    assert!(held.check_for(MAX).is_ok());
    assert!(poll(&mut held.lost(), &Bell::new()).is_pending());
    assert_eq!(poll(&mut held.run(ready(7)), &Bell::new()), Poll::Ready(Ok(7)));
    leases.try_acquire_now("last", &jane, MAX - 10 * SECOND).unwrap();
    clock.advance(MAX);
    assert_eq!(leases.status_now("last").unwrap(), None);
    leases.try_acquire_now("last", &joe, NANO).unwrap();
    assert_eq!(leases.status_now("last").unwrap().unwrap().remaining(), None, "the lease never ends");
    assert_eq!(leases.tick(), None);
    assert!(held.check().is_ok());
}

#[test]
fn a_lease_ends_at_its_end_and_not_a_nanosecond_later() {
    let (clock, leases) = table();
    let [jane, joe, kim] = owners();
    let held = leases.hold_blocking("r", &jane, 3 * NANO).unwrap();
    let mut next = leases.acquire("r", &joe, NANO);
    let mut last = leases.acquire("r", &kim, NANO);
    assert!(poll(&mut next, &Bell::new()).is_pending());
    assert!(poll(&mut last, &Bell::new()).is_pending());
    clock.advance(2 * NANO);
    assert_eq!(leases.tick(), Some(NANO));
    assert!(held.check_for(NANO).is_ok());
    clock.advance(NANO);
    assert_eq!(held.check(), Err(Lost::Expired));
    assert_eq!(leases.tick(), Some(NANO));
    assert_eq!(*leases.status_now("r").unwrap().unwrap().owner(), joe);
    clock.advance(NANO);
    assert_eq!(leases.tick(), Some(NANO));
    assert_eq!(*got(poll(&mut last, &Bell::new())).owner(), kim);
    assert!(poll(&mut next, &Bell::new()).is_pending(), "joe came too late, and asks again");
    clock.advance(NANO);
    assert_eq!(*got(poll(&mut next, &Bell::new())).owner(), joe);
}

#[test]
fn an_expired_lease_is_never_renewed() {
    let (clock, leases) = table();
    let [jane] = owners();
    let grant = leases.try_acquire_now("r", &jane, SECOND).unwrap();
    let held = leases.hold_blocking("h", &jane, SECOND).unwrap();
    clock.advance(SECOND);
    assert_eq!(leases.renew_now(&grant), Err(RenewError::Lost(Lost::Expired)));
    assert_eq!(poll(&mut held.renewal(), &Bell::new()), Poll::Ready(Lost::Expired));
    let again = leases.try_acquire_now("r", &jane, SECOND).unwrap();
    assert!(!again.is_resumed() && again.token() > grant.token());
    assert_eq!(leases.renew_now(&grant), Err(RenewError::Lost(Lost::Expired)));
    assert_eq!(leases.release_now(&grant), Err(ReleaseError::NotOwner { resource: "r".into(), owner: jane.clone() }));
    assert_eq!(leases.release_now(&again), Ok(()));
    assert_eq!(leases.release_now(&again), Err(ReleaseError::NotHeld { resource: "r".into() }));
}

// ---- holds ----

#[test]
fn renewals_end_when_a_held_becomes_a_grant_and_the_lease_stays() {
    let (clock, leases) = table();
    let leases = Arc::new(leases);
    let [jane, joe] = owners();
    let held = got(poll(&mut leases.hold_arc("r", &jane, 3 * SECOND), &Bell::new()));
    let bell = Bell::new();
    let mut renewal = held.renewal();
    assert!(poll(&mut renewal, &bell).is_pending());
    let grant = held.into_grant();
    assert_eq!(bell.rings(), 1);
    assert_eq!(poll(&mut renewal, &bell), Poll::Ready(Lost::Released));
    clock.advance(2 * SECOND);
    leases.renew_now(&grant).unwrap();
    assert!(leases.try_acquire_now("r", &joe, SECOND).is_err());
    clock.advance(3 * SECOND);
    leases.try_acquire_now("r", &joe, SECOND).unwrap();
}

#[test]
fn a_renewal_first_polled_after_the_loss_ends() {
    let (_, leases) = table();
    let leases = Arc::new(leases);
    let [jane] = owners();
    let held = got(poll(&mut leases.hold_arc("r", &jane, 3 * SECOND), &Bell::new()));
    let mut renewal = held.renewal();
    drop(held);
    let again = got(poll(&mut leases.hold_arc("r", &jane, 3 * SECOND), &Bell::new()));
    assert_eq!(poll(&mut renewal, &Bell::new()), Poll::Ready(Lost::Released));
    assert!(again.check().is_ok());
}

#[test]
fn the_earlier_of_two_holds_is_lost_and_its_drop_leaves_the_later_alone() {
    let (_, leases) = table();
    let [jane] = owners();
    let earlier = leases.hold_blocking("r", &jane, 3 * SECOND).unwrap();
    let bell = Bell::new();
    let mut lost = earlier.lost();
    assert!(poll(&mut lost, &bell).is_pending());
    let later = leases.hold_blocking("r", &jane, 3 * SECOND).unwrap();
    assert_eq!(bell.rings(), 1);
    assert_eq!(poll(&mut lost, &bell), Poll::Ready(Lost::TakenOver));
    drop(lost);
    drop(earlier);
    assert!(later.check().is_ok());
    assert!(later.release().wait().is_ok());
}

#[test]
fn a_held_extended_by_another_request_of_its_owner_has_the_new_end() {
    let (clock, leases) = table();
    let [jane] = owners();
    let held = leases.hold_blocking("r", &jane, 3 * SECOND).unwrap();
    assert!(leases.try_acquire_now("r", &jane, 60 * SECOND).unwrap().is_resumed());
    clock.advance(10 * SECOND);
    assert!(held.check_for(50 * SECOND).is_ok());
    leases.release_as_now("r", &jane).unwrap();
    assert_eq!(held.check(), Err(Lost::Released));
}

#[test]
fn work_under_a_lease_that_is_lost_is_never_polled() {
    let (clock, leases) = table();
    let [jane, joe] = owners();
    let mut held = leases.hold_blocking("r", &jane, SECOND).unwrap();
    clock.advance(SECOND);
    leases.try_acquire_now("r", &joe, SECOND).unwrap();
    let work = poll_fn(|_| -> Poll<()> { panic!("the work must not be polled") });
    assert_eq!(poll(&mut held.run(work), &Bell::new()), Poll::Ready(Err(Lost::Expired)));
    drop(held);
    assert_eq!(*leases.status_now("r").unwrap().unwrap().owner(), joe);
}

// ---- properties of the futures ----

#[test]
fn futures_are_send_and_borrow_only_the_leases() {
    fn send<T: Send>(future: T) -> T {
        future
    }
    fn unpin<T: Unpin>(_: &T) {}
    let (_, leases) = table();
    let leases = Arc::new(leases);
    let (acquire, try_acquire, hold, renewal, release);
    {
        let [jane] = owners();
        let resource = Resource::from("r");
        acquire = send(leases.acquire(&resource, &jane, SECOND).until(ready(())));
        try_acquire = send(leases.try_acquire(&resource, &jane, SECOND));
        hold = send(leases.hold_arc(&resource, &jane, SECOND));
    }
    unpin(&acquire);
    unpin(&try_acquire);
    unpin(&hold);
    done(try_acquire).unwrap();
    let mut held = thread::spawn(move || done(hold).unwrap()).join().unwrap();
    assert_eq!(done(send(held.run(async { 1 }))), Ok(1));
    drop(send(held.lost()));
    renewal = send(held.renewal());
    release = send(held.release());
    thread::spawn(move || done(release).unwrap()).join().unwrap();
    thread::spawn(move || assert_eq!(done(renewal), Lost::Released)).join().unwrap();
    done(acquire).unwrap();
}

// ---- a model ----

/// A request in the model, which waits or has been served.
struct Waiter {
    number: usize,
    owner: usize,
    is_fresh: bool,
    ttl: u32,
}

/// A tenure of the model.
struct Tenure {
    number: usize,
    owner: usize,
    end: u32,
    /// Whether a call of its owner has returned the tenure.
    is_known: bool,
    /// The requests that were served with the tenure and have not been polled since.
    served: Vec<usize>,
}

/// A slow and literal model of the rules for one resource. Times are in seconds.
#[derive(Default)]
struct Model {
    now: u32,
    tenures: usize,
    line: Vec<Waiter>,
    tenure: Option<Tenure>,
    /// The served requests by number, with the number of the tenure.
    served: HashMap<usize, (usize, Waiter)>,
}

impl Model {
    fn begin(&mut self, owner: usize, ttl: u32, is_known: bool) -> &mut Tenure {
        self.tenures += 1;
        let (number, end) = (self.tenures, self.now + ttl);
        self.tenure.insert(Tenure { number, owner, end, is_known, served: Vec::new() })
    }

    /// Ends an expired tenure, and serves the waiters.
    fn settle(&mut self) {
        if self.tenure.as_ref().is_some_and(|tenure| tenure.end <= self.now) {
            self.tenure = None;
        }
        if self.tenure.is_none() {
            if self.line.is_empty() {
                return;
            }
            let first = self.line.remove(0);
            let tenure = self.begin(first.owner, first.ttl, false);
            tenure.served.push(first.number);
            let number = tenure.number;
            self.served.insert(first.number, (number, first));
        }
        let Some(tenure) = &mut self.tenure else { unreachable!() };
        for at in (0..self.line.len()).rev() {
            if self.line[at].owner == tenure.owner && !self.line[at].is_fresh {
                let other = self.line.remove(at);
                tenure.end = tenure.end.max(self.now + other.ttl);
                tenure.served.push(other.number);
                self.served.insert(other.number, (tenure.number, other));
            }
        }
    }

    /// Acquires without waiting. Returns whether it gets the lease.
    fn try_acquire(&mut self, owner: usize, is_fresh: bool, ttl: u32) -> bool {
        self.settle();
        match &mut self.tenure {
            None => drop(self.begin(owner, ttl, true)),
            Some(tenure) if tenure.owner == owner && is_fresh => drop(self.begin(owner, ttl, true)),
            Some(tenure) if tenure.owner == owner => {
                tenure.end = tenure.end.max(self.now + ttl);
                tenure.is_known = true;
            }
            Some(_) => return false,
        }
        self.settle();
        true
    }

    /// Polls a request. Returns whether it gets the lease.
    fn poll(&mut self, number: usize) -> bool {
        self.settle();
        loop {
            let Some((tenure, waiter)) = self.served.remove(&number) else { return false };
            if let Some(now) = self.tenure.as_mut().filter(|now| now.number == tenure) {
                now.served.retain(|&served| served != number);
                now.is_known = true;
                return true;
            }
            self.line.insert(0, waiter);
            self.settle();
        }
    }

    fn drop(&mut self, number: usize) {
        self.line.retain(|waiter| waiter.number != number);
        let tenure = self.served.remove(&number).map(|(tenure, _)| tenure);
        if let Some(now) = self.tenure.as_mut().filter(|now| Some(now.number) == tenure) {
            now.served.retain(|&served| served != number);
            if now.served.is_empty() && !now.is_known {
                self.tenure = None;
            }
        }
        self.settle();
    }

    fn release(&mut self, owner: usize) -> bool {
        self.settle();
        let is_its = self.tenure.as_ref().is_some_and(|tenure| tenure.owner == owner);
        if is_its {
            self.tenure = None;
        }
        self.settle();
        is_its
    }
}

/// Random requests, polled late or never, must have the results that the model predicts.
#[test]
fn random_calls_agree_with_the_model() {
    let runs = if cfg!(miri) { 2 } else { 300 };
    for seed in 1..=runs {
        let (clock, leases) = table();
        let owners: [Owner; 4] = owners();
        let mut model = Model::default();
        let mut random = Random(seed << 20 ^ 0x5DEE_CE66);
        let mut requests = Vec::new();
        let mut last = 0;
        for step in 0..300_usize {
            let owner = random.below(4) as usize;
            let ttl = 1 + random.below(5) as u32;
            let is_fresh = random.below(4) == 0;
            match random.below(10) {
                0..=2 => {
                    let mut request = leases.acquire("r", &owners[owner], ttl * SECOND);
                    if is_fresh {
                        request = request.fresh_token();
                    }
                    let bell = Bell::new();
                    let gets = poll(&mut request, &bell).is_ready();
                    assert_eq!(gets, model.try_acquire(owner, is_fresh, ttl), "acquire in step {step} of {seed}");
                    if !gets {
                        model.line.push(Waiter { number: step, owner, is_fresh, ttl });
                        requests.push((step, request, bell));
                    }
                }
                3 => {
                    let request = leases.try_acquire("r", &owners[owner], ttl * SECOND);
                    let got = if is_fresh { request.fresh_token().now() } else { request.now() };
                    assert_eq!(got.is_ok(), model.try_acquire(owner, is_fresh, ttl), "try in step {step} of {seed}");
                }
                4 => {
                    let released = leases.release_as_now("r", &owners[owner]).is_ok();
                    assert_eq!(released, model.release(owner), "release in step {step} of {seed}");
                }
                5 | 6 if !requests.is_empty() => {
                    let at = random.below(requests.len() as u64) as usize;
                    let (number, request, bell) = &mut requests[at];
                    let polled = poll(request, bell);
                    assert_eq!(polled.is_ready(), model.poll(*number), "poll in step {step} of {seed}");
                    if polled.is_ready() {
                        assert_eq!(got(polled).owner(), &owners[model.tenure.as_ref().unwrap().owner]);
                        drop(requests.swap_remove(at));
                    }
                }
                7 if !requests.is_empty() => {
                    let (number, request, _) = requests.swap_remove(random.below(requests.len() as u64) as usize);
                    drop(request);
                    model.drop(number);
                }
                8 | 9 => {
                    clock.advance(SECOND);
                    model.now += 1;
                    leases.tick();
                    model.settle();
                }
                _ => {}
            }
            // This is checked before a call looks at the resource, because that call would serve the waiters itself.
            for (number, _, bell) in &requests {
                let is_told = !model.served.contains_key(number) || bell.rings() > 0;
                assert!(is_told, "request {number} was served but not woken, in step {step} of {seed}");
            }
            if random.below(4) > 0 {
                continue;
            }
            let status = leases.status_now("r").unwrap();
            let seen = status.as_ref().map(|status| (status.owner().clone(), status.remaining(), status.waiters()));
            let waiters = model.line.len();
            let predicted = model
                .tenure
                .as_ref()
                .map(|tenure| (owners[tenure.owner].clone(), Some((tenure.end - model.now) * SECOND), waiters));
            assert_eq!(seen, predicted, "after step {step} of {seed}");
            let token = status.map_or(last, |status| status.token().get());
            assert!(token >= last, "tokens grow");
            last = token;
        }
        drop(requests);
        for owner in &owners {
            leases.release_all_now(owner).unwrap();
        }
        assert_eq!((leases.len(), leases.tick()), (0, None));
    }
}

// ---- threads ----

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The holder of a resource and its last token, as the threads see them.
#[derive(Default)]
struct Seen {
    holder: AtomicUsize,
    last: AtomicU64,
}

impl Seen {
    fn enter(&self, who: usize, grant: &Grant) {
        assert!(!grant.is_resumed());
        let before = self.holder.swap(who, SeqCst);
        assert_eq!(before, 0, "{before} has it, and so has {who}");
        let last = self.last.swap(grant.token().get(), SeqCst);
        assert!(last < grant.token().get(), "tokens grow");
    }

    fn leave(&self, who: usize) {
        assert_eq!(self.holder.swap(0, SeqCst), who);
    }
}

/// Threads acquire, wait, give up and release at random. A resource has at most one holder at a time, tokens grow, and
/// no waiter is left behind.
#[cfg(not(miri))]
#[test]
fn random_threads_have_one_holder_and_leave_no_waiter() {
    const THREADS: usize = 8;
    let leases = Leases::in_memory();
    let seen: [Seen; 3] = Default::default();
    let until = Instant::now() + 4 * SECOND;
    thread::scope(|scope| {
        for who in 1..=THREADS {
            let (leases, seen) = (&leases, &seen);
            scope.spawn(move || {
                let owner = Owner::named(format!("thread {who}"));
                let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (who as u64) << 17);
                while Instant::now() < until {
                    let at = random.below(3) as usize;
                    let resource = ["a", "b", "c"][at];
                    let policy =
                        if random.below(4) == 0 { Expiry::custom(|_| Some(3600 * SECOND)) } else { Expiry::Never };
                    let got = match random.below(4) {
                        0 => leases.try_acquire_now(resource, &owner, policy),
                        1 => {
                            // The request is polled a few times, and then dropped.
                            let mut acquire = leases.acquire(resource, &owner, policy);
                            let mut polled = Poll::Pending;
                            for _ in 0..random.below(4) {
                                polled = poll(&mut acquire, &Bell::new());
                                if polled.is_ready() {
                                    break;
                                }
                                thread::yield_now();
                            }
                            let Poll::Ready(got) = polled else { continue };
                            got
                        }
                        2 => leases.acquire_for(resource, &owner, policy, Duration::from_micros(random.below(300))),
                        _ => leases.acquire_for(resource, &owner, policy, 30 * SECOND).map_err(|error| {
                            assert!(!matches!(error, AcquireError::Limit { .. }), "{owner} is left waiting");
                            error
                        }),
                    };
                    let Ok(grant) = got else { continue };
                    seen[at].enter(who, &grant);
                    if random.below(3) == 0 {
                        thread::yield_now();
                    }
                    seen[at].leave(who);
                    match random.below(3) {
                        0 => leases.release_now(&grant).unwrap(),
                        1 => leases.release_as_now(resource, &owner).unwrap(),
                        _ => assert_eq!(leases.release_all_now(&owner), Ok(1)),
                    }
                }
            });
        }
    });
    assert_eq!(leases.len(), 0);
    assert_eq!(leases.tick(), None);
}

/// Waiters for leases that expire get in eventually, unless they give up first.
#[cfg(not(miri))]
#[test]
fn random_threads_with_expiring_leases_leave_no_waiter() {
    let leases = Leases::in_memory();
    let last = AtomicU64::new(0);
    let until = Instant::now() + 3 * SECOND;
    thread::scope(|scope| {
        for who in 0..6_u64 {
            let (leases, last) = (&leases, &last);
            scope.spawn(move || {
                let owner = Owner::named(format!("thread {who}"));
                let mut random = Random(77 + who);
                while Instant::now() < until {
                    let ttl = Duration::from_micros(1 + random.below(2000));
                    match random.below(3) {
                        0 => {
                            let held = leases.hold(("r", "1"), &owner, ttl).until(pending::<()>()).wait().unwrap();
                            last.fetch_max(held.token().get(), SeqCst);
                            if random.below(2) == 0 {
                                held.lost().wait();
                            }
                        }
                        1 => {
                            drop(leases.acquire_for(("r", "1"), &owner, ttl, Duration::from_micros(random.below(500))))
                        }
                        _ => {
                            let grant =
                                leases.acquire_for(("r", "1"), &owner, ttl, 20 * SECOND).expect("its turn comes");
                            last.fetch_max(grant.token().get(), SeqCst);
                        }
                    }
                }
            });
        }
    });
    thread::sleep(Duration::from_millis(5));
    assert_eq!(leases.len(), 0);
    assert_eq!(leases.tick(), None);
}

/// Two threads share an owner. When one of them gives up, a lease that the other has acquired is not passed on.
#[cfg(not(miri))]
#[test]
fn a_request_that_gives_up_at_random_takes_nothing_from_its_owner() {
    let leases = Leases::in_memory();
    let [jane, joe] = owners();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let mut acquire = leases.acquire("r", &joe, Expiry::Never);
                let _ = poll(&mut acquire, &Bell::new());
                thread::yield_now();
            }
        });
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                if let Ok(grant) = leases.acquire_for("r", &jane, Expiry::Never, Duration::from_micros(200)) {
                    let _ = leases.release_now(&grant);
                }
            }
        });
        let until = Instant::now() + 3 * SECOND;
        let mut wrong = 0;
        while Instant::now() < until {
            if let Ok(grant) = leases.try_acquire_now("r", &joe, Expiry::Never) {
                let status = leases.status_now("r").unwrap();
                wrong += usize::from(status.is_none_or(|status| status.token() != grant.token()));
                let _ = leases.release_as_now("r", &joe);
            }
        }
        is_over.store(true, SeqCst);
        assert_eq!(wrong, 0, "joe's call returned the lease, but joe does not have it");
    });
}

/// All leases of a session end at one instant: `release_all` returns their number, and afterwards none of them is left.
#[cfg(not(miri))]
#[test]
fn all_leases_of_a_session_end_at_one_instant() {
    let leases = Leases::in_memory();
    let [jane, joe] = owners();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                // While joe has "b", it must not be among the leases of jane's session.
                if let Ok(b) = leases.try_acquire_now("b", &joe, Expiry::Never) {
                    let a = leases.owned_by_now(&jane).unwrap();
                    assert!(a.iter().all(|grant| grant.resource().key() != "b"));
                    leases.release_now(&b).unwrap();
                }
            }
        });
        let until = Instant::now() + SECOND;
        while Instant::now() < until {
            let mut had = 0;
            for resource in ["a", "b"] {
                had += usize::from(leases.try_acquire_now(resource, &jane, Expiry::Never).is_ok());
            }
            assert_eq!(leases.release_all_now(&jane), Ok(had));
            assert_eq!(leases.owned_by_now(&jane), Ok(vec![]));
        }
        is_over.store(true, SeqCst);
    });
}

/// Each renewal in a batch reports the time left, by the engine's clock, or `Left::Nothing` if the tenure has ended.
#[test]
fn a_batch_of_renewals_reports_the_time_left_of_each() {
    let memory = Memory::new(ManualClock::new());
    let (resource, other) = (Resource::from("r"), Resource::from("other"));
    let [jane] = owners();
    let expiry = Expiry::Sliding(SECOND);
    let term = keylatch_lease::Term { idle: Some(SECOND), total: None };
    let want = keylatch_lease::engine::Want::Any;
    let ask = Ask {
        resource: &resource,
        owner: &jane,
        want,
        term: Some(term),
        expiry: &expiry,
        waiting: false,
        at: Duration::ZERO,
    };
    let Ok(Answer::Granted { token, .. }) = done(memory.acquire(ask)) else { panic!("the resource is free") };
    let renewal = |resource| Renewal { resource, owner: &jane, token, term: Some(term), left: Left::Forever };
    let mut batch = [renewal(&resource), renewal(&other)];
    done(memory.renew(&mut batch, Duration::ZERO)).unwrap();
    assert_eq!(batch.map(|renewal| renewal.left), [Left::For(SECOND), Left::Nothing]);
}
