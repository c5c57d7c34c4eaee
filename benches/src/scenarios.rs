//! What the candidates go through.

use std::hint::{black_box, spin_loop};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use keylatch::KeyedMutex;
use lockable::LockPool;
use lockmap::LockMap;

use crate::candidates::{HOT, HOT_STR, Key, Locks, OneHandle, StdMap, poll, recycling};

/// The candidate that the others are compared with. Every scenario begins with it.
pub const SUBJECT: &str = "keylatch";

/// One kind of load, and those who bear it.
pub struct Scenario {
    pub name: String,
    pub unit: Unit,
    pub cases: Vec<Case>,
}

/// A candidate in a scenario.
pub struct Case {
    pub name: &'static str,
    /// What the ratio of the subject to this peer should be: at most this, or at least, as the unit has it.
    pub target: Option<f64>,
    run: Box<dyn Fn(Duration) -> f64>,
}

impl Case {
    /// The nanoseconds of one operation, from a run of this length on a new table. A new one each time, because how
    /// keys fall into shards is luck, which several runs should even out.
    ///
    /// The length is a time and not a number of operations: threads that meet may be a hundred times as slow as one
    /// alone, and what is enough for them may be over before the last of them has begun.
    pub fn nanos(&self, span: Duration) -> f64 {
        (self.run)(span)
    }
}

/// How a result is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds per operation: less is better.
    Nanos,
    /// Millions of operations per second, of all threads together: more is better.
    Millions,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Nanos => "ns",
            Unit::Millions => "M/s",
        }
    }

    pub fn of(self, nanos: f64) -> f64 {
        match self {
            Unit::Nanos => nanos,
            Unit::Millions => 1e3 / nanos,
        }
    }
}

impl Scenario {
    fn new<Q: ?Sized + Key>(
        name: String,
        unit: Unit,
        candidates: Vec<Candidate<Q>>,
        run: impl Fn(&dyn Table<Q>, Duration) -> f64 + Copy + 'static,
    ) -> Self {
        let case =
            |Candidate { name, table }| Case { name, target: None, run: Box::new(move |span| run(&*table(), span)) };
        Scenario { name, unit, cases: candidates.into_iter().map(case).collect() }
    }

    fn with(mut self, case: Case) -> Self {
        self.cases.push(case);
        self
    }

    /// Sets the ratio that the subject should reach beside a peer.
    fn target(mut self, peer: &str, ratio: f64) -> Self {
        let case =
            self.cases.iter_mut().find(|case| case.name == peer).expect("a target is set for a peer that takes part");
        case.target = Some(ratio);
        self
    }
}

/// How a scenario gets the tables that it measures.
struct Candidate<Q: ?Sized> {
    name: &'static str,
    table: fn() -> Box<dyn Table<Q>>,
}

impl<Q: ?Sized> Candidate<Q> {
    fn new(name: &'static str, table: fn() -> Box<dyn Table<Q>>) -> Self {
        Candidate { name, table }
    }
}

/// Those that can be made for any type of key, and more.
fn candidates<Q: ?Sized + Key, const N: usize>(more: [Candidate<Q>; N]) -> Vec<Candidate<Q>> {
    let mut all = vec![
        Candidate::<Q>::new(SUBJECT, || Box::new(KeyedMutex::<Q::Owned>::new())),
        Candidate::<Q>::new("lockable", || Box::new(LockPool::<Q::Owned>::new())),
        Candidate::<Q>::new("std map", || Box::new(StdMap::<Q::Owned>::default())),
    ];
    all.extend(more);
    all
}

fn any_key() -> Vec<Candidate<u64>> {
    candidates([Candidate::new("lockmap", || Box::new(LockMap::<u64, ()>::new()))])
}

/// With those that know one key only.
fn one_key() -> Vec<Candidate<u64>> {
    let mut all = any_key();
    all.push(Candidate::new("keylatch handle", || Box::new(OneHandle::default())));
    all.push(Candidate::new("lone parking_lot", || Box::new(parking_lot::Mutex::new(()))));
    all
}

fn str_key() -> Vec<Candidate<str>> {
    candidates([
        Candidate::new("lockmap", || Box::new(LockMap::<String, ()>::new())),
        Candidate::new("keylatch recycle_keys", || Box::new(recycling())),
    ])
}

/// Without those that cannot be locked by tasks.
fn for_tasks<Q: ?Sized + Key>(mut all: Vec<Candidate<Q>>, key: &Q) -> Vec<Candidate<Q>> {
    all.retain(|candidate| (candidate.table)().is_for_tasks(key));
    all
}

/// All of them, with the targets that keylatch has set itself.
pub fn scenarios() -> Vec<Scenario> {
    let micro = Section::microseconds("1 us", 1);
    let two_disjoint = disjoint(2).cases.swap_remove(0);
    vec![
        alone("blocking, u64", one_key(), |table, n| table.blocking(&HOT, Section::EMPTY, n)).target("lockmap", 0.50),
        alone("blocking, 40-byte str", str_key(), |table, n| table.blocking(HOT_STR, Section::EMPTY, n)),
        alone("try, u64", one_key(), |table, n| table.tries(&HOT, n)),
        alone("async poll, u64", for_tasks(one_key(), &HOT), |table, n| table.polls(&HOT, n)).target("lockable", 0.40),
        alone("async poll, 40-byte str", for_tasks(str_key(), HOT_STR), |table, n| table.polls(HOT_STR, n)),
        hot(2, Section::EMPTY).target("lockable", 10.0).target("lockmap", 0.7),
        hot(8, Section::EMPTY),
        hot(2, micro).target("lone parking_lot", 0.8),
        hot(8, micro),
        disjoint(2),
        disjoint(8)
            .with(Case { name: "keylatch, 2 threads", ..two_disjoint })
            .target("lockable", 3.0)
            .target("lockmap", 2.0)
            .target("keylatch, 2 threads", 0.8),
    ]
}

fn hot(threads: u64, section: Section) -> Scenario {
    let name = format!("hot key, {threads} threads, {} section", section.name);
    together(name, threads, one_key(), move |table, _, n| table.blocking(&HOT, section, n))
}

fn disjoint(threads: u64) -> Scenario {
    let name = format!("disjoint keys, {threads} threads");
    together(name, threads, any_key(), |table, thread, n| table.blocking(&thread, Section::EMPTY, n))
}

/// One thread does operations, so many at a time.
fn alone<Q: ?Sized + Key>(
    name: &str,
    candidates: Vec<Candidate<Q>>,
    work: impl Fn(&dyn Table<Q>, u64) + Copy + 'static,
) -> Scenario {
    const BATCH: u64 = 1_000;
    Scenario::new(name.to_owned(), Unit::Nanos, candidates, move |table, span| {
        let start = Instant::now();
        let mut n = 0;
        loop {
            work(table, BATCH);
            n += BATCH;
            let elapsed = start.elapsed();
            if elapsed >= span {
                return nanos(elapsed, n);
            }
        }
    })
}

/// Some threads do operations at the same time. `work` is told on which thread it is.
fn together<Q: ?Sized + Key>(
    name: String,
    threads: u64,
    candidates: Vec<Candidate<Q>>,
    work: impl Fn(&dyn Table<Q>, u64, u64) + Copy + Sync + 'static,
) -> Scenario {
    // Few, so that all end soon after they have been stopped.
    const BATCH: u64 = 16;
    Scenario::new(name, Unit::Millions, candidates, move |table, span| {
        let (begin, stop) = (Barrier::new(threads as usize + 1), AtomicBool::new(false));
        let run = |thread| {
            pin_to_core(thread);
            begin.wait();
            let start = Instant::now();
            let mut n = 0;
            loop {
                work(table, thread, BATCH);
                n += BATCH;
                if stop.load(Ordering::Relaxed) {
                    return (start, Instant::now(), n);
                }
            }
        };
        thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            begin.wait();
            thread::sleep(span);
            stop.store(true, Ordering::Relaxed);
            running
                .into_iter()
                .map(|thread| thread.join().expect("no operation panics"))
                .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1), a.2 + b.2))
                .map_or(f64::NAN, |(start, end, n)| nanos(end - start, n))
        })
    })
}

/// Gives the threads of a scenario their cores in turn. Left to itself the scheduler may keep two of them on one core,
/// where they take turns of some milliseconds and hardly meet.
fn pin_to_core(thread: u64) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if !cores.is_empty() {
        core_affinity::set_for_current(cores[thread as usize % cores.len()]);
    }
}

fn nanos(elapsed: Duration, n: u64) -> f64 {
    elapsed.as_nanos() as f64 / n as f64
}

/// What is done while a key is held.
#[derive(Clone, Copy)]
struct Section {
    name: &'static str,
    pauses: u32,
}

/// How often [`spin_loop`] has to be called for a microsecond. Spinning is counted and not timed, so that a thread that
/// loses its core in a section has still to do the rest.
static PAUSES: LazyLock<u32> = LazyLock::new(|| {
    let many = Section { name: "", pauses: 10_000 };
    let time = |_| {
        let start = Instant::now();
        many.run();
        start.elapsed()
    };
    // The quickest of many is one that nothing has interrupted.
    let quickest = (0..50).map(time).min().unwrap_or_default();
    (f64::from(many.pauses) / quickest.as_secs_f64() / 1e6) as u32
});

impl Section {
    const EMPTY: Self = Section { name: "empty", pauses: 0 };

    fn microseconds(name: &'static str, n: u32) -> Self {
        Section { name, pauses: n * *PAUSES }
    }

    #[inline]
    fn run(self) {
        for _ in 0..self.pauses {
            spin_loop();
        }
    }
}

/// [`Locks`] as scenarios need it. They have candidates of different types in one list; so operations are done `n` at a
/// time behind one virtual call, which then costs nothing.
trait Table<Q: ?Sized>: Sync {
    fn blocking(&self, key: &Q, section: Section, n: u64);
    fn tries(&self, key: &Q, n: u64);
    fn polls(&self, key: &Q, n: u64);
    fn is_for_tasks(&self, key: &Q) -> bool;
}

impl<Q: ?Sized, L: Locks<Q>> Table<Q> for L {
    fn blocking(&self, key: &Q, section: Section, n: u64) {
        for _ in 0..n {
            let guard = self.lock_blocking(black_box(key));
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
            let guard = poll(pin!(self.lock(black_box(key)).expect("it is for tasks")));
            assert!(guard.is_ready(), "nobody else has the key");
        }
    }

    fn is_for_tasks(&self, key: &Q) -> bool {
        self.lock(key).is_some()
    }
}

/// How many cores two threads have together at this moment. Where others have the rest, threads meet less than they
/// should.
pub fn cores() -> f64 {
    let section = Section::microseconds("", 5_000);
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

/// How many keys have a waiter that is cancelled after the holder has left.
pub const LATE_CANCELS: u64 = 1_000;

/// How many of those keys still have an entry afterwards, for each candidate.
pub fn late_cancels() -> [(&'static str, usize); 3] {
    fn left<L: Locks<u64>>(locks: L, entries: impl FnOnce(&L) -> usize) -> usize {
        for key in 0..LATE_CANCELS {
            let guard = locks.try_lock(&key);
            let mut waiter = pin!(locks.lock(&key).expect("it is for tasks"));
            assert!(guard.is_some() && poll(waiter.as_mut()).is_pending());
            drop(guard);
            // And now the waiter.
        }
        entries(&locks)
    }
    [
        (SUBJECT, left(KeyedMutex::new(), KeyedMutex::len)),
        ("lockable", left(LockPool::new(), LockPool::num_locked)),
        ("std map", left(StdMap::default(), StdMap::entries)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs() {
        for scenario in scenarios() {
            assert_eq!(scenario.cases[0].name, SUBJECT);
            for case in &scenario.cases {
                assert!(case.nanos(Duration::from_millis(1)) > 0.0, "{} in {}", case.name, scenario.name);
            }
        }
    }
}
