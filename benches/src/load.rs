//! How candidates are put under load, and what is measured meanwhile.

use std::borrow::Borrow;
use std::hint::{black_box, spin_loop};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, LazyLock, mpsc};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use smol::{Executor, LocalExecutor};

use crate::candidates::{Key, Locks, poll};
use crate::heap::Growth;
use crate::system::thread_time;

/// The keys that somebody asks for, one after the other and round again. Read from memory and not made up, so that they
/// cost all candidates the same.
pub struct Walk<Q: ?Sized + Key> {
    keys: Arc<[Q::Owned]>,
    next: usize,
}

impl<Q: ?Sized + Key> Walk<Q> {
    pub fn new(keys: Arc<[Q::Owned]>) -> Self {
        Walk { keys, next: 0 }
    }

    /// The same keys, begun elsewhere: for one of many who walk them.
    pub fn new_nth(keys: Arc<[Q::Owned]>, nth: usize, of: usize) -> Self {
        let next = nth * keys.len() / of;
        Walk { keys, next }
    }

    pub fn one(key: &Q) -> Self {
        Walk::new(Arc::new([key.to_owned()]))
    }

    #[inline]
    fn next(&mut self) -> &Q {
        let key = &self.keys[self.next];
        self.next = if self.next + 1 == self.keys.len() { 0 } else { self.next + 1 };
        black_box(key.borrow())
    }
}

/// [`Locks`] as scenarios need it. They have candidates of different types in one list; so operations are done `n` at a
/// time behind one virtual call, which then costs nothing.
pub trait Table<Q: ?Sized + Key>: Send + Sync {
    fn blocking(&self, walk: &mut Walk<Q>, section: Section, n: u64);

    /// The same, with a note of how many nanoseconds each wait took.
    fn waits(&self, key: &Q, section: Section, n: u64, waits: &mut Vec<u64>);

    fn tries(&self, key: &Q, n: u64);

    fn polls(&self, key: &Q, n: u64);

    /// Tries that fail, measured while the key is held.
    fn busy_tries(&self, key: &Q, span: Duration) -> f64;

    /// Waiters that register and give up, measured while the key is held.
    fn cancels(&self, key: &Q, span: Duration) -> f64;

    /// Has a waiter for each key that gives up after the holder has left. What stays: how many entries, if it tells,
    /// and how many bytes for each key.
    fn late_cancels(&self, keys: &[Q::Owned]) -> [f64; 2];

    /// Holds all keys at once, and releases them in the same order.
    fn hold_all(&self, keys: &[Q::Owned]) -> Hoard;

    /// Nanoseconds from the beginning of a release until a waiting thread has the key: the median.
    fn hand_offs(&self, key: &Q, hold: Hold, span: Duration) -> f64;

    /// Nanoseconds from one of two tasks that want the same key to the other. One thread runs both.
    fn task_hand_offs(&self, key: &Q, span: Duration) -> f64;

    /// A task that visits keys until it is stopped, and says how often it did.
    fn visitor(self: Arc<Self>, walk: Walk<Q>, visit: Visit) -> Visitor;
}

/// What it is like to have very many keys.
pub struct Hoard {
    pub bytes_held: f64,
    pub bytes_kept: f64,
    pub bytes_kept_later: f64,
    pub acquire_nanos: f64,
    pub release_nanos: f64,
}

/// For how long a key is held that another thread waits for.
#[derive(Clone, Copy)]
pub enum Hold {
    /// So briefly that the waiter is still spinning, if it spins.
    Spinning,
    /// Until the waiter sleeps.
    Parked,
}

impl<Q: ?Sized + Key, L: Locks<Q>> Table<Q> for L {
    fn blocking(&self, walk: &mut Walk<Q>, section: Section, n: u64) {
        for _ in 0..n {
            let guard = self.lock_blocking(walk.next());
            section.run();
            drop(guard);
        }
    }

    fn waits(&self, key: &Q, section: Section, n: u64, waits: &mut Vec<u64>) {
        for _ in 0..n {
            let start = Instant::now();
            let guard = self.lock_blocking(black_box(key));
            waits.push(start.elapsed().as_nanos() as u64);
            section.run();
            drop(guard);
        }
    }

    fn tries(&self, key: &Q, n: u64) {
        for _ in 0..n {
            let guard = self.try_lock(black_box(key));
            assert!(guard.is_some(), "nobody else has the key");
        }
    }

    fn polls(&self, key: &Q, n: u64) {
        for _ in 0..n {
            let guard = poll(pin!(for_tasks(self, black_box(key))));
            assert!(guard.is_ready(), "nobody else has the key");
        }
    }

    fn busy_tries(&self, key: &Q, span: Duration) -> f64 {
        let _guard = self.try_lock(key).expect("nobody else has the key");
        timed(span, |n| {
            for _ in 0..n {
                assert!(self.try_lock(black_box(key)).is_none(), "the key is held");
            }
        })
    }

    fn cancels(&self, key: &Q, span: Duration) -> f64 {
        let _guard = poll(pin!(for_tasks(self, key)));
        timed(span, |n| {
            for _ in 0..n {
                assert!(poll(pin!(for_tasks(self, black_box(key)))).is_pending(), "the key is held");
            }
        })
    }

    fn late_cancels(&self, keys: &[Q::Owned]) -> [f64; 2] {
        let growth = Growth::start();
        for key in keys {
            let guard = poll(pin!(for_tasks(self, key.borrow())));
            let mut waiter = pin!(for_tasks(self, key.borrow()));
            assert!(guard.is_ready() && poll(waiter.as_mut()).is_pending());
            drop(guard);
            // And now the waiter.
        }
        [self.entries().map_or(f64::NAN, |n| n as f64), growth.bytes() / keys.len() as f64]
    }

    fn hold_all(&self, keys: &[Q::Owned]) -> Hoard {
        let n = keys.len() as f64;
        // Made before anything is counted: what a guard takes in its user's memory is not the table's.
        let mut guards = Vec::with_capacity(keys.len());

        let growth = Growth::start();
        guards.extend(keys.iter().map(|key| self.lock_blocking(key.borrow())));
        let bytes_held = growth.bytes() / n;
        guards.clear();
        let bytes_kept = growth.bytes() / n;
        for key in keys {
            drop(self.lock_blocking(key.borrow()));
        }
        let bytes_kept_later = growth.bytes() / n;
        drop(growth);

        // A second time, without the costs of counting.
        let start = Instant::now();
        guards.extend(keys.iter().map(|key| self.lock_blocking(key.borrow())));
        let held = Instant::now();
        guards.clear();
        let acquire_nanos = nanos(held - start, keys.len() as u64);
        Hoard {
            bytes_held,
            bytes_kept,
            bytes_kept_later,
            acquire_nanos,
            release_nanos: nanos(held.elapsed(), keys.len() as u64),
        }
    }

    fn hand_offs(&self, key: &Q, hold: Hold, span: Duration) -> f64 {
        let start = Instant::now();
        // The number of the hand-over that the one has begun, the other has asked for, and the other has got; and when
        // the release began.
        let [begun, asked, got, released] = [const { AtomicU64::new(0) }; 4];
        // Each has a core of its own, so neither keeps the other from going on.
        let await_turn = |turn: &AtomicU64, number| {
            while turn.load(Ordering::Acquire) < number {
                spin_loop();
            }
        };
        let taker = || {
            pin_to_core(1);
            let mut latencies = Vec::new();
            for number in 1.. {
                await_turn(&begun, number);
                if begun.load(Ordering::Acquire) == u64::MAX {
                    break;
                }
                asked.store(number, Ordering::Release);
                let guard = self.lock_blocking(key);
                let now = start.elapsed().as_nanos() as u64;
                latencies.push(now - released.load(Ordering::Relaxed));
                drop(guard);
                got.store(number, Ordering::Release);
            }
            latencies
        };
        let giver = || {
            pin_to_core(0);
            for number in 1.. {
                if start.elapsed() >= span && number > 1 {
                    break;
                }
                let guard = self.lock_blocking(key);
                begun.store(number, Ordering::Release);
                await_turn(&asked, number);
                hold.run();
                released.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                drop(guard);
                await_turn(&got, number);
            }
            begun.store(u64::MAX, Ordering::Release);
        };
        let latencies = thread::scope(|scope| {
            let taker = scope.spawn(taker);
            // A thread of its own, because the caller's is not to be pinned for good.
            scope.spawn(giver);
            taker.join().expect("no operation panics")
        });
        quantile(latencies, 0.5)
    }

    fn task_hand_offs(&self, key: &Q, span: Duration) -> f64 {
        let (start, stop) = (Instant::now(), AtomicBool::new(false));
        let executor = LocalExecutor::new();
        let visits = || async {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                let guard = for_tasks(self, key).await;
                // The other asks, and has to wait.
                smol::future::yield_now().await;
                drop(guard);
                // It has the key, and now this one asks.
                smol::future::yield_now().await;
                n += 1;
                if n % 64 == 0 && start.elapsed() >= span {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            n
        };
        let tasks = [executor.spawn(visits()), executor.spawn(visits())];
        let n = smol::block_on(executor.run(async {
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            sum
        }));
        nanos(start.elapsed(), n)
    }

    fn visitor(self: Arc<Self>, mut walk: Walk<Q>, visit: Visit) -> Visitor {
        Box::pin(async move {
            let mut n = 0;
            while n < visit.most && !visit.stop.load(Ordering::Relaxed) {
                let guard = for_tasks(&*self, walk.next()).await;
                if visit.yields_inside {
                    visit.runtime.yield_now().await;
                }
                drop(guard);
                n += 1;
                visit.runtime.yield_now().await;
            }
            n
        })
    }
}

/// Scenarios for tasks have only candidates for which this does not panic.
fn for_tasks<Q: ?Sized, L: Locks<Q>>(locks: &L, key: &Q) -> impl Future<Output = impl Send> + Send {
    locks.lock(key).expect("it is for tasks")
}

impl Hold {
    fn run(self) {
        match self {
            Hold::Spinning => Section::nanoseconds(500.0).run(),
            Hold::Parked => thread::sleep(Duration::from_micros(150)),
        }
    }
}

/// What a task does at a key.
#[derive(Clone)]
pub struct Visit {
    pub runtime: Runtime,
    /// Whether it holds the key while others have their turn, so that they wait for it.
    pub yields_inside: bool,
    /// How many visits a task is done after.
    pub most: u64,
    pub stop: Arc<AtomicBool>,
}

pub type Visitor = Pin<Box<dyn Future<Output = u64> + Send>>;

/// Who runs tasks, on two threads.
#[derive(Clone, Copy)]
pub enum Runtime {
    Smol,
    Tokio,
}

impl Runtime {
    async fn yield_now(self) {
        match self {
            Runtime::Smol => smol::future::yield_now().await,
            Runtime::Tokio => tokio::task::yield_now().await,
        }
    }

    /// Runs tasks until they end, or for `span` and then until they heed `stop`: the nanoseconds of a visit.
    pub fn run(self, tasks: impl Iterator<Item = Visitor>, span: Duration, stop: &AtomicBool) -> f64 {
        // Each task sends its count when it ends. The channel is closed when the last one is gone.
        let (sender, counts) = mpsc::channel();
        let tasks = tasks.map(move |task| {
            let sender = sender.clone();
            async move { sender.send(task.await).expect("somebody counts") }
        });
        let collect = |start: Instant| {
            let mut n = 0;
            loop {
                match counts.recv_timeout(span.saturating_sub(start.elapsed())) {
                    Ok(more) => n += more,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return nanos(start.elapsed(), n),
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        stop.store(true, Ordering::Relaxed);
                        n += counts.iter().sum::<u64>();
                        return nanos(start.elapsed(), n);
                    }
                }
            }
        };
        match self {
            Runtime::Smol => {
                let (executor, (close, closed)) = (Executor::new(), smol::channel::bounded::<()>(1));
                thread::scope(|scope| {
                    for thread in 0..2 {
                        let (executor, closed) = (&executor, &closed);
                        scope.spawn(move || {
                            pin_to_core(thread);
                            // Fails when it is closed, which is how it ends.
                            smol::block_on(executor.run(closed.recv())).unwrap_err();
                        });
                    }
                    let start = Instant::now();
                    tasks.for_each(|task| executor.spawn(task).detach());
                    let nanos = collect(start);
                    drop(close);
                    nanos
                })
            }
            Runtime::Tokio => {
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
                let runtime = runtime.expect("the system has threads for it");
                let start = Instant::now();
                tasks.for_each(|task| drop(runtime.spawn(task)));
                collect(start)
            }
        }
    }
}

/// The nanoseconds of an operation that one thread does again and again, `n` times at each call.
///
/// The length is a time and not a number of operations: threads that meet may be a hundred times as slow as one alone,
/// and what is enough for them may be over before the last of them has begun.
pub fn timed(span: Duration, mut work: impl FnMut(u64)) -> f64 {
    const BATCH: u64 = 1_000;
    let start = Instant::now();
    let mut n = 0;
    loop {
        work(BATCH);
        n += BATCH;
        let elapsed = start.elapsed();
        if elapsed >= span {
            return nanos(elapsed, n);
        }
    }
}

/// What threads did that worked at the same time.
pub struct Shares<T> {
    /// Of an operation, all of them together.
    pub nanos: f64,
    /// How often the most busy thread had its turn for each of the least busy one.
    pub most_to_least: f64,
    /// How many cores they have kept busy.
    pub cores: f64,
    /// What they have noted.
    pub notes: Vec<T>,
}

/// Some threads do operations at the same time. `work` is given a thread's number, and makes what that thread does: so
/// many operations at a call, with something to note things in.
pub fn together<T: Default + Send, W: FnMut(u64, &mut T)>(
    threads: usize,
    span: Duration,
    work: impl Fn(usize) -> W + Sync,
) -> Shares<T> {
    // Few, so that all end soon after they have been stopped.
    const BATCH: u64 = 16;
    let (begin, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let run = |thread| {
        pin_to_core(thread);
        let (mut work, mut note) = (work(thread), T::default());
        begin.wait();
        let (start, before) = (Instant::now(), thread_time());
        let mut n = 0;
        loop {
            work(BATCH, &mut note);
            n += BATCH;
            if stop.load(Ordering::Relaxed) {
                let busy = thread_time().zip(before).map(|(after, before)| after - before);
                return Share { start, end: Instant::now(), busy, n, note };
            }
        }
    };
    let shares: Vec<Share<T>> = thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        begin.wait();
        thread::sleep(span);
        stop.store(true, Ordering::Relaxed);
        running.into_iter().map(|thread| thread.join().expect("no operation panics")).collect()
    });
    let counts = || shares.iter().map(|share| share.n);
    let start = shares.iter().map(|share| share.start).min().expect("there are threads");
    let end = shares.iter().map(|share| share.end).max().expect("there are threads");
    let most_to_least = counts().max().unwrap_or(0) as f64 / counts().min().unwrap_or(0) as f64;
    let busy = shares.iter().map(|share| share.busy.map_or(f64::NAN, |time| time.as_secs_f64())).sum::<f64>();
    Shares {
        nanos: nanos(end - start, counts().sum()),
        most_to_least,
        cores: busy / (end - start).as_secs_f64(),
        notes: shares.into_iter().map(|share| share.note).collect(),
    }
}

/// What one of these threads did.
struct Share<T> {
    start: Instant,
    end: Instant,
    /// For how long it had a core meanwhile, if the system tells.
    busy: Option<Duration>,
    /// How many operations.
    n: u64,
    note: T,
}

/// Gives the threads of a scenario their cores in turn. Left to itself the scheduler may keep two of them on one core,
/// where they take turns of some milliseconds and hardly meet.
pub fn pin_to_core(thread: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if !cores.is_empty() {
        core_affinity::set_for_current(cores[thread % cores.len()]);
    }
}

fn nanos(elapsed: Duration, n: u64) -> f64 {
    elapsed.as_nanos() as f64 / n as f64
}

pub fn quantile(mut values: Vec<u64>, quantile: f64) -> f64 {
    let index = ((values.len() as f64 * quantile) as usize).min(values.len() - 1);
    *values.select_nth_unstable(index).1 as f64
}

/// What is done while a key is held.
#[derive(Clone, Copy)]
pub struct Section {
    pauses: u32,
}

/// The nanoseconds that a [`spin_loop`] takes. Spinning is counted and not timed, so that a thread that loses its core
/// in a section has still to do the rest.
pub static PAUSE: LazyLock<f64> = LazyLock::new(|| {
    let many = Section { pauses: 10_000 };
    let time = |_| {
        let start = Instant::now();
        many.run();
        start.elapsed()
    };
    // The quickest of many is one that nothing has interrupted.
    let quickest = (0..50).map(time).min().unwrap_or_default();
    nanos(quickest, u64::from(many.pauses))
});

impl Section {
    pub const EMPTY: Self = Section { pauses: 0 };

    pub fn microseconds(n: u32) -> Self {
        Section::nanoseconds(f64::from(n) * 1e3)
    }

    fn nanoseconds(n: f64) -> Self {
        Section { pauses: (n / *PAUSE).round() as u32 }
    }

    #[inline]
    fn run(self) {
        for _ in 0..self.pauses {
            spin_loop();
        }
    }
}

/// How many cores two threads have together at this moment. Where others have the rest, threads meet less than they
/// should.
pub fn cores() -> f64 {
    let section = Section::microseconds(5_000);
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                pin_to_core(thread);
                section.run();
            });
        }
    });
    2.0 * 5e-3 / start.elapsed().as_secs_f64()
}

/// The nanoseconds from when a thread wakes another one until it is woken by that one, each on a core of its own: the
/// median.
pub fn round_trips(span: Duration) -> f64 {
    // How often the ball has been played: by the one thread at odd numbers, by the other at even ones.
    let plays = &AtomicU64::new(0);
    let await_play = move |number| {
        while plays.load(Ordering::Acquire) < number {
            thread::park();
        }
    };
    let play = move |number, other: &Thread| {
        plays.store(number, Ordering::Release);
        other.unpark();
    };
    let (introduce, introduced) = mpsc::channel();
    // Neither starts the other, because a thread that is started by a pinned one has no other core to go to.
    let answer = move || {
        pin_to_core(1);
        let other = introduced.recv().expect("the other introduces itself");
        for number in (1..).step_by(2) {
            await_play(number);
            if plays.load(Ordering::Acquire) == u64::MAX {
                break;
            }
            play(number + 1, &other);
        }
    };
    let ask = |other: Thread| {
        pin_to_core(0);
        introduce.send(thread::current()).expect("the other waits for it");
        let (start, mut trips) = (Instant::now(), Vec::new());
        for number in (1..).step_by(2) {
            let before = Instant::now();
            play(number, &other);
            await_play(number + 1);
            trips.push(before.elapsed().as_nanos() as u64);
            if start.elapsed() >= span {
                break;
            }
        }
        play(u64::MAX, &other);
        trips
    };
    let trips = thread::scope(|scope| {
        let other = scope.spawn(answer).thread().clone();
        scope.spawn(|| ask(other)).join().expect("no operation panics")
    });
    quantile(trips, 0.5)
}
