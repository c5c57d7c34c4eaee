//! Puts candidates under load, and measures them.

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

/// The keys that a caller requests, one after another, in a cycle. They are read from memory and not computed, so
/// that they cost the same for all candidates.
pub struct Walk<Q: ?Sized + Key> {
    keys: Arc<[Q::Owned]>,
    next: usize,
}

impl<Q: ?Sized + Key> Walk<Q> {
    pub fn new(keys: Arc<[Q::Owned]>) -> Self {
        Walk { keys, next: 0 }
    }

    /// Creates a walk over the same keys from a different start, for the `nth` of several callers.
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

/// [`Locks`] in the form that scenarios need: candidates of different types in one list. Each virtual call performs
/// `n` operations, so that its cost does not matter.
pub trait Table<Q: ?Sized + Key>: Send + Sync {
    fn blocking(&self, walk: &mut Walk<Q>, section: Section, n: u64);

    /// Does the same as [`blocking`](Self::blocking), and records the nanoseconds of each wait.
    fn waits(&self, key: &Q, section: Section, n: u64, waits: &mut Vec<u64>);

    fn tries(&self, key: &Q, n: u64);

    fn polls(&self, key: &Q, n: u64);

    /// Returns the nanoseconds of a try that fails, measured while the key is held.
    fn busy_tries(&self, key: &Q, span: Duration) -> f64;

    /// Returns the nanoseconds that it takes a waiter to register and to give up, measured while the key is held.
    fn cancels(&self, key: &Q, span: Duration) -> f64;

    /// For each key, creates a waiter that gives up after the holder has left. Returns the number of entries that
    /// remain, if the candidate reports it, and the remaining bytes per key.
    fn late_cancels(&self, keys: &[Q::Owned]) -> [f64; 2];

    /// Holds all keys at once, and releases them in the same order.
    fn hold_all(&self, keys: &[Q::Owned]) -> Hoard;

    /// Returns the median nanoseconds from the beginning of a release until a waiting thread has the key.
    fn hand_offs(&self, key: &Q, hold: Hold, span: Duration) -> f64;

    /// Returns the nanoseconds of a hand-off between two tasks that want the same key. One thread runs both.
    fn task_hand_offs(&self, key: &Q, span: Duration) -> f64;

    /// Returns a task that visits keys until it is stopped or has made `visit.most` visits. Its output is the number of
    /// visits.
    fn visitor(self: Arc<Self>, walk: Walk<Q>, visit: Visit) -> Visitor;
}

/// The costs of very many keys.
pub struct Hoard {
    pub bytes_held: f64,
    pub bytes_kept: f64,
    pub bytes_kept_later: f64,
    pub acquire_nanos: f64,
    pub release_nanos: f64,
}

/// The time for which a key is held while another thread waits for it.
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
            assert!(guard.is_some(), "the key is free");
        }
    }

    fn polls(&self, key: &Q, n: u64) {
        for _ in 0..n {
            let guard = poll(pin!(for_tasks(self, black_box(key))));
            assert!(guard.is_ready(), "the key is free");
        }
    }

    fn busy_tries(&self, key: &Q, span: Duration) -> f64 {
        let _guard = self.try_lock(key).expect("the key is free");
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
            // The waiter is dropped last.
        }
        [self.entries().map_or(f64::NAN, |n| n as f64), growth.bytes() / keys.len() as f64]
    }

    fn hold_all(&self, keys: &[Q::Owned]) -> Hoard {
        let n = keys.len() as f64;
        // Allocated before the count begins: the user's memory for guards is not part of the table.
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

        // This is measured a second time, without the overhead of counting.
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
        // The numbers of the latest hand-offs that the giver has begun, the taker has requested, and the taker has
        // received; and the time when the release began.
        let [begun, asked, got, released] = [const { AtomicU64::new(0) }; 4];
        // Each thread has its own core, so neither delays the other.
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
            // A separate thread, because the caller's must not stay pinned.
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
                // The other task requests the key, and has to wait.
                smol::future::yield_now().await;
                drop(guard);
                // The other task has the key, and now this one requests it.
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

/// Locks in a task. Panics if the candidate has no locks for tasks; scenarios for tasks leave such candidates out.
fn for_tasks<Q: ?Sized, L: Locks<Q>>(locks: &L, key: &Q) -> impl Future<Output = impl Send> + Send {
    locks.lock(key).expect("the candidate supports tasks")
}

impl Hold {
    fn run(self) {
        match self {
            Hold::Spinning => Section::nanoseconds(500.0).run(),
            Hold::Parked => thread::sleep(Duration::from_micros(150)),
        }
    }
}

/// How the tasks visit keys, and when they stop.
#[derive(Clone)]
pub struct Visit {
    pub runtime: Runtime,
    /// Whether a task yields while it holds a key, so that others wait for the key.
    pub yields_inside: bool,
    /// The maximum number of visits of a task.
    pub most: u64,
    pub stop: Arc<AtomicBool>,
}

pub type Visitor = Pin<Box<dyn Future<Output = u64> + Send>>;

/// The runtime of the tasks, on two threads.
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

    /// Runs tasks until they end, or for `span` and then until they notice `stop`. Returns the nanoseconds per visit.
    pub fn run(self, tasks: impl Iterator<Item = Visitor>, span: Duration, stop: &AtomicBool) -> f64 {
        // Each task sends its count when it ends. The channel is closed when the last task has ended.
        let (sender, counts) = mpsc::channel();
        let tasks = tasks.map(move |task| {
            let sender = sender.clone();
            async move { sender.send(task.await).expect("the receiver exists") }
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
                            // Fails when the channel is closed, which ends the run.
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
                let runtime = runtime.expect("the runtime starts");
                let start = Instant::now();
                tasks.for_each(|task| drop(runtime.spawn(task)));
                collect(start)
            }
        }
    }
}

/// Returns the nanoseconds of an operation that one thread repeats; `work` repeats it the given number of times.
///
/// As in [`together`], the length of the measurement is a time and not a number of operations. Threads that contend may
/// be a hundred times slower than a single one: the first thread would finish a number of operations that suits
/// contending threads before the last thread has started.
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

/// The results of threads that worked at the same time.
pub struct Shares<T> {
    /// The nanoseconds of the run, divided by the number of operations of all threads.
    pub nanos: f64,
    /// The ratio of the busiest thread's operations to those of the least busy.
    pub most_to_least: f64,
    /// The number of cores that they kept busy.
    pub cores: f64,
    /// The records of the threads.
    pub notes: Vec<T>,
}

/// Runs operations on several threads at the same time. `work` gets a thread's number and returns the function of
/// that thread, which performs a number of operations per call and gets a place for records.
pub fn together<T: Default + Send, W: FnMut(u64, &mut T)>(
    threads: usize,
    span: Duration,
    work: impl Fn(usize) -> W + Sync,
) -> Shares<T> {
    // Few, so that all threads end soon after they are stopped.
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

/// The results of one thread of [`together`].
struct Share<T> {
    start: Instant,
    end: Instant,
    /// Its CPU time during the run, if the system provides it.
    busy: Option<Duration>,
    /// The number of operations.
    n: u64,
    note: T,
}

/// Pins the calling thread, which has this number in its scenario, to a core: the threads get the cores in turn.
/// Without this the scheduler may keep two threads on one core, where they alternate every few milliseconds and hardly
/// contend.
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

/// The work that is done while a key is held.
#[derive(Clone, Copy)]
pub struct Section {
    pauses: u32,
}

/// The nanoseconds of a [`spin_loop`]. Spins are counted and not timed, so that a thread that is preempted in a
/// section still has to do the rest.
pub static PAUSE: LazyLock<f64> = LazyLock::new(|| {
    let many = Section { pauses: 10_000 };
    let time = |_| {
        let start = Instant::now();
        many.run();
        start.elapsed()
    };
    // The quickest of many runs was not interrupted.
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

/// Returns the number of cores that two threads have together at this moment. If other programs use the rest, threads
/// contend less than they should.
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

/// Returns the median nanoseconds of a round trip: a thread wakes another one, which runs on another core, and is woken
/// by it in turn.
pub fn round_trips(span: Duration) -> f64 {
    // The number of wake-ups so far. One thread makes those with odd numbers, the other those with even numbers.
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
    // Neither thread starts the other, because a thread that is started by a pinned one stays on its core.
    let answer = move || {
        pin_to_core(1);
        let other = introduced.recv().expect("the other thread sends its handle");
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
        introduce.send(thread::current()).expect("the other thread receives it");
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
