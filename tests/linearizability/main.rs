//! Linearizability: whatever threads and tasks do to a key at the same time, there is an order in which the calls could
//! have been made one by one, with the same outcomes. In that order, a call that returned before another was invoked
//! also comes before the other.
//!
//! Short histories of calls on few keys are recorded with a logical clock and checked against the sequential
//! specification of a key ([`spec`]) by the Wing-Gong search with Lowe's improvements. The checker is that of
//! `todc-utils`; the histories that it must accept and those that it must reject are tested here, too.
//!
//! ```text
//! KEYLATCH_HISTORIES=100000 cargo test --release --test linearizability -- --nocapture
//! ```
//!
//! `checks/tests/shuttle` checks the same kind of histories under schedules that it controls.

#[path = "../common/mod.rs"]
mod common;
mod latch;
mod map;
mod spec;
mod walk;

use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylatch::Fairness;
use spec::{Clock, Id, Log, Op, Record, Rules, Seen, Want, is_linearizable};
use walk::{Kind, Met, RwLock, Semaphore, Table, Walk};

const KINDS: [Kind; 5] = [Kind::Mutex, Kind::RwLock, Kind::Semaphore(1), Kind::Semaphore(2), Kind::Semaphore(3)];
const POLICIES: [Fairness; 6] = [
    Fairness::Adaptive,
    Fairness::Bounded(0),
    Fairness::Bounded(1),
    Fairness::Bounded(16),
    Fairness::Fifo,
    Fairness::Barging,
];

/// The number of histories that most tests record of each kind of table, unless `KEYLATCH_HISTORIES` is set.
const HISTORIES: u64 = if cfg!(debug_assertions) { 500 } else { 5000 };

fn histories() -> u64 {
    std::env::var("KEYLATCH_HISTORIES").map_or(HISTORIES, |n| n.parse().expect("KEYLATCH_HISTORIES is a number"))
}

/// A small generator of random numbers.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }

    /// Yields, or spins for a random time, so that other threads run between two steps.
    fn pause(&mut self) {
        match self.below(64) {
            0 => std::thread::yield_now(),
            rounds => (0..rounds / 8).for_each(|_| std::hint::spin_loop()),
        }
    }
}

/// A barrier that lets threads start at the same time: histories are short, so a thread that is still asleep would miss
/// its history.
struct Start(AtomicUsize);

impl Start {
    fn new(threads: usize) -> Self {
        Start(AtomicUsize::new(threads))
    }

    fn wait(&self) {
        self.0.fetch_sub(1, SeqCst);
        let mut rounds = 0;
        while self.0.load(SeqCst) > 0 {
            rounds += 1;
            if rounds % 1000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

// ---- recorded histories ---------------------------------------------------------------------------------------------

/// Returns the number of pairs of overlapping operations on the same key by different callers.
fn overlaps(records: &[Record]) -> usize {
    let overlap =
        |a: &Record, b: &Record| a.by < b.by && a.key == b.key && a.invoked < b.returned && b.invoked < a.returned;
    records.iter().map(|a| records.iter().filter(|b| overlap(a, b)).count()).sum()
}

/// Only one test at a time records histories: calls overlap only if threads really run in parallel.
static CORES: Mutex<()> = Mutex::new(());

/// Lets threads take random walks: see [`Walk`].
fn walks(kind: Kind, keys: u64) {
    const STEPS: usize = 24;
    let _cores = CORES.lock();
    let (mut met, mut overlapping, mut calls) = (Met::default(), 0, 0);
    for seed in 0..histories() {
        let fairness = POLICIES[seed as usize / 2 % POLICIES.len()];
        let threads = 2 + seed as usize % 2;
        let (table, rules) = Table::new(kind, fairness);
        let (clock, start) = (Arc::new(Clock::default()), Start::new(threads));
        let walks = std::thread::scope(|scope| {
            let walk = |by: usize| {
                let mut walk = Walk::new(table.clone(), keys, Log::new(&clock, by));
                walk.has_priorities = seed / 16 % 4 == 3;
                walk.changes_permits = seed / 64 % 2 == 1;
                let mut random = Random::new(seed * 64 + by as u64);
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..STEPS {
                        walk.step(&mut |n| random.below(n));
                        random.pause();
                    }
                    walk
                })
            };
            let walks: Vec<_> = (0..threads).map(walk).collect();
            walks.into_iter().map(|walk| walk.join().unwrap()).collect::<Vec<_>>()
        });
        let (records, met_here) = walk::finish(walks, fairness);
        met += met_here;
        overlapping += overlaps(&records);
        calls += records.len();
        spec::check(rules, records);
    }
    println!(
        "{kind:?}: at least {} histories, {calls} operations, {overlapping} pairs at the same time; {met:?}",
        histories()
    );
    let both = |[no, yes]: [usize; 2]| no > 0 && yes > 0;
    assert!(both(met.tries) && both(met.polls) && met.cancels > 0, "{met:?}");
    assert!(kind != Kind::RwLock || both(met.upgrades) && met.changes > 0, "{met:?}");
}

#[test]
fn walks_on_a_mutex_are_linearizable() {
    walks(Kind::Mutex, 2);
}

#[test]
fn walks_on_a_reader_writer_lock_are_linearizable() {
    walks(Kind::RwLock, 1);
}

#[test]
fn walks_on_a_semaphore_are_linearizable() {
    walks(Kind::Semaphore(1), 1);
    walks(Kind::Semaphore(2), 1);
    walks(Kind::Semaphore(3), 1);
}

/// A caller that blocks or awaits, in any form, and holds at most one key at a time.
struct Caller {
    table: Table,
    keys: u64,
    log: Log,
    random: Random,
}

/// Returns the operations of a call that may wait.
fn waited(id: Id, want: Want, thread: bool, got: bool) -> [Op; 2] {
    [Op::Queue { id, want, thread }, if got { Op::Enter { id, want } } else { Op::GiveUp { id, want } }]
}

/// Is pending for this many polls.
async fn after(polls: u64) {
    for _ in 0..polls {
        futures_lite::future::yield_now().await;
    }
}

/// `$form` is the blocking call, `$timed` the timed one, `$future` the async one, `$try` the one that does not wait.
macro_rules! acquire {
    ($caller:ident, $on:expr, $key:ident $(($n:ident))?, $want:expr, $future:ident, $form:ident, $timed:ident, $try:ident) => {{
        let Caller { log, random, .. } = $caller;
        let (id, want) = (log.id(), $want);
        let polls = random.below(3);
        let both = |thread: bool, got: bool| waited(id, want, thread, got).map(|op| ($key, op));
        match random.below(5) {
            0 => log.call($key, || $on.$try(&$key $(, $n)?), |got| Op::Try { want, got: got.is_some() }),
            1 => {
                let limit = Duration::from_micros(random.below(20));
                log.call_all(|| $on.$timed(&$key, $($n,)? limit), |got| both(true, got.is_some()))
            }
            2 => log.call_all(
                || futures_lite::future::block_on($on.$future(&$key $(, $n)?).until(after(polls))).ok(),
                |got| both(false, got.is_some()),
            ),
            3 => Some(log.call_all(|| futures_lite::future::block_on($on.$future(&$key $(, $n)?)), |_| both(false, true))),
            _ => Some(log.call_all(|| $on.$form(&$key $(, $n)?), |_| both(true, true))),
        }
    }};
}

impl Caller {
    /// Makes one call, works under the hold, and releases it.
    fn step(&mut self) {
        let key = self.random.below(self.keys);
        match self.table.clone() {
            Table::Mutex(table) => {
                let guard = acquire!(self, table, key, Want::Write, lock, lock_blocking, try_lock_for, try_lock);
                if let Some(guard) = guard {
                    self.look(key);
                    let fair = self.random.below(4) == 0;
                    self.release(key, Want::Write, fair, || if fair { guard.unlock_fair() } else { drop(guard) });
                }
            }
            Table::Semaphore(table) => self.permit(&table, key),
            Table::RwLock(table) => match self.random.below(5) {
                4 => {
                    let guard = acquire!(
                        self,
                        table,
                        key,
                        Want::Recursive,
                        read_recursive,
                        read_recursive_blocking,
                        try_read_recursive_for,
                        try_read_recursive
                    );
                    if let Some(guard) = guard {
                        self.look(key);
                        self.release(key, Want::Read, false, || drop(guard));
                    }
                }
                0..2 => {
                    let guard = acquire!(self, table, key, Want::Read, read, read_blocking, try_read_for, try_read);
                    if let Some(guard) = guard {
                        self.look(key);
                        self.release(key, Want::Read, false, || drop(guard));
                    }
                }
                2 => {
                    let guard =
                        acquire!(self, table, key, Want::Write, write, write_blocking, try_write_for, try_write);
                    if let Some(guard) = guard {
                        self.look(key);
                        match self.random.below(3) {
                            0 => {
                                let change = Op::Change { from: Want::Write, to: Want::Read };
                                let guard = self.log.call(key, || guard.downgrade(), |_| change);
                                self.look(key);
                                self.release(key, Want::Read, false, || drop(guard));
                            }
                            1 => self.release(key, Want::Write, true, || guard.unlock_fair()),
                            _ => self.release(key, Want::Write, false, || drop(guard)),
                        }
                    }
                }
                _ => self.upgrade(&table, key),
            },
        }
    }

    fn permit(&mut self, table: &Semaphore, key: u64) {
        // Usually one permit.
        let n = 1 + (self.random.below(2) * self.random.below(table.permits() as u64)) as usize;
        let want = Want::Permits(n as u32);
        let permit =
            acquire!(self, table, key(n), want, acquire_n, acquire_n_blocking, try_acquire_n_for, try_acquire_n);
        let Some(mut permits) = permit else { return };
        self.look(key);
        if n > 1 && self.random.below(2) == 0 {
            let part = permits.split(1);
            self.release(key, Want::Permits(1), false, || drop(part));
            self.look(key);
        }
        let (held, fair) = (Want::Permits(permits.permits() as u32), self.random.below(4) == 0);
        self.release(key, held, fair, || if fair { permits.unlock_fair() } else { drop(permits) });
    }

    fn upgrade(&mut self, table: &RwLock, key: u64) {
        let guard = acquire!(
            self,
            table,
            key,
            Want::Upgradable,
            upgradable_read,
            upgradable_read_blocking,
            try_upgradable_read_for,
            try_upgradable_read
        );
        let Some(mut guard) = guard else { return };
        self.look(key);
        let (id, want, random) = (self.log.id(), Want::Upgrade, self.random.below(20));
        let both = |thread: bool, got: bool| waited(id, want, thread, got).map(|op| (key, op));
        let limit = Duration::from_micros(random);
        let back = Op::Change { from: Want::Write, to: Want::Upgradable };
        let upgraded = match random % 4 {
            0 => Ok(self.log.call_all(|| guard.upgrade_blocking(), |_| both(true, true))),
            1 => self.log.call_all(|| guard.try_upgrade_for(limit), |got| both(true, got.is_ok())),
            2 => self.log.call_all(
                || futures_lite::future::block_on(guard.upgrade().until(after(random % 3))).map_err(|(_, guard)| guard),
                |got| both(false, got.is_ok()),
            ),
            _ => {
                let writer = self.log.call_all(|| guard.upgrade_mut_blocking(), |_| both(true, true));
                self.log.call(key, || drop(writer), |()| back);
                Err(guard)
            }
        };
        match upgraded {
            Ok(writer) => {
                let guard = self.log.call(key, || writer.downgrade_to_upgradable(), |_| back);
                self.release(key, Want::Upgradable, false, || drop(guard));
            }
            Err(guard) => self.release(key, Want::Upgradable, false, || drop(guard)),
        }
    }

    fn look(&mut self, key: u64) {
        self.random.pause();
        if self.random.below(3) == 0 {
            self.log.call(key, || self.table.status(key), |status| Op::Look(status.map(Into::into)));
        }
    }

    fn release(&mut self, key: u64, held: Want, fair: bool, release: impl FnOnce()) {
        self.log.call(key, release, |()| Op::Release { held, fair });
    }
}

/// Lets threads make calls that wait.
fn calls(kind: Kind) {
    const THREADS: usize = 3;
    const STEPS: usize = 4;
    let _cores = CORES.lock();
    let (mut overlapping, mut operations) = (0, 0);
    for seed in 0..100 * histories() {
        // Records more histories on a machine so busy that no calls have overlapped yet.
        if seed >= histories() && overlapping > 0 {
            break;
        }
        let fairness = POLICIES[seed as usize / 2 % POLICIES.len()];
        let (table, rules) = Table::new(kind, fairness);
        let (clock, start) = (Arc::new(Clock::default()), Start::new(THREADS));
        let records: Vec<Record> = std::thread::scope(|scope| {
            let call = |by: usize| {
                let random = Random::new(seed * 64 + by as u64);
                let mut caller = Caller { table: table.clone(), keys: 1, log: Log::new(&clock, by), random };
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..STEPS {
                        caller.step();
                        caller.random.pause();
                    }
                    caller.log.records
                })
            };
            let callers: Vec<_> = (0..THREADS).map(call).collect();
            callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
        });
        assert_eq!(table.len(), 0, "an entry remained");
        overlapping += overlaps(&records);
        operations += records.len();
        spec::check(rules, records);
    }
    println!(
        "{kind:?}: at least {} histories, {operations} operations, {overlapping} pairs at the same time",
        histories()
    );
    assert!(overlapping > 0, "nothing happened at the same time");
}

#[test]
fn calls_that_wait_are_linearizable() {
    for kind in KINDS {
        calls(kind);
    }
}

/// Runs tasks of one executor, and a thread, on the same keys.
#[test]
fn tasks_and_threads_are_linearizable() {
    let _cores = CORES.lock();
    let polls = AtomicUsize::new(0);
    for seed in 0..histories() / 2 {
        let fairness = POLICIES[seed as usize / 2 % POLICIES.len()];
        let (table, rules) = Table::new(Kind::Mutex, fairness);
        let Table::Mutex(locks) = &table else { unreachable!() };
        let clock = Arc::new(Clock::default());
        let task = |by: usize| {
            let (mut log, mut random) = (Log::new(&clock, by), Random::new(seed * 64 + by as u64));
            let polls = &polls;
            async move {
                for _ in 0..3 {
                    let key = random.below(2);
                    let (id, want) = (log.id(), Want::Write);
                    let mut future = locks.lock(&key);
                    // The task gives up after this many polls; if the number is 0, never.
                    let mut patience = random.below(5);
                    let guard = std::future::poll_fn(|cx| {
                        polls.fetch_add(1, Relaxed);
                        let poll = log.call(
                            key,
                            || std::pin::Pin::new(&mut future).poll(cx),
                            |poll| Op::Poll { id, want, priority: 0, ready: poll.is_ready() },
                        );
                        patience = patience.wrapping_sub(1);
                        match poll {
                            std::task::Poll::Pending if patience == 0 => std::task::Poll::Ready(None),
                            poll => poll.map(Some),
                        }
                    });
                    match guard.await {
                        Some(guard) => {
                            after(random.below(2)).await;
                            log.call(key, || drop(guard), |()| Op::Release { held: Want::Write, fair: false });
                        }
                        None => log.call(key, || drop(future), |()| Op::Cancel { id, want }),
                    }
                }
                log.records
            }
        };
        let executor = smol::Executor::new();
        let tasks: Vec<_> = (0..3).map(|by| executor.spawn(task(by))).collect();
        let mut caller = Caller { table: table.clone(), keys: 2, log: Log::new(&clock, 3), random: Random::new(seed) };
        let records = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                (0..3).for_each(|_| caller.step());
                caller.log.records
            });
            let mut records = smol::block_on(executor.run(async {
                let mut records = vec![];
                for task in tasks {
                    records.extend(task.await);
                }
                records
            }));
            records.extend(thread.join().unwrap());
            records
        });
        assert_eq!(table.len(), 0, "an entry remained");
        spec::check(rules, records);
    }
    println!("at least {} histories, {} polls by tasks", histories() / 2, polls.load(Relaxed));
}

/// Lets threads change a map. The values they see must be those of some sequential order.
fn maps(most: Option<usize>) {
    const THREADS: usize = 3;
    const STEPS: usize = 6;
    let _cores = CORES.lock();
    let (mut calls, mut overlapping) = (0, 0);
    for seed in 0..100 * histories() {
        // Records more histories on a machine so busy that no calls have overlapped yet.
        if seed >= histories() && overlapping > 0 {
            break;
        }
        let rests = most.is_none() && seed % 2 == 0;
        let map = map::map(POLICIES[seed as usize / 2 % POLICIES.len()], most, rests);
        let (clock, start) = (Arc::default(), Start::new(THREADS));
        let records: Vec<map::Record> = std::thread::scope(|scope| {
            let call = |by: usize| {
                let mut caller = map::Caller::new(&map, &clock, by, true);
                let mut random = Random::new(seed * 64 + by as u64);
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..STEPS {
                        futures_lite::future::block_on(caller.step(&mut |n| random.below(n)));
                        random.pause();
                    }
                    caller.records
                })
            };
            let callers: Vec<_> = (0..THREADS).map(call).collect();
            callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
        });
        map::finish(&map, most);
        calls += records.len();
        let overlap =
            |a: &map::Record, b: &map::Record| a.by < b.by && a.invoked < b.returned && b.invoked < a.returned;
        overlapping += records.iter().map(|a| records.iter().filter(|b| overlap(a, b)).count()).sum::<usize>();
        map::check(most.is_some(), records);
    }
    println!("at least {} histories, {calls} calls, {overlapping} pairs at the same time", histories());
    assert!(overlapping > 0, "nothing happened at the same time");
}

#[test]
fn calls_on_a_map_are_linearizable() {
    maps(None);
}

#[test]
fn calls_on_a_map_with_room_for_one_value_are_linearizable() {
    maps(Some(1));
}

// ---- what the checker must accept and reject ------------------------------------------------------------------------

/// Returns whether the checker accepts a handwritten history on one key: (invoked, returned, operation).
fn accepts(rules: Rules, history: &[(u64, u64, Op)]) -> bool {
    let record = |(by, &(invoked, returned, op))| Record { key: 0, invoked, returned, by, op };
    is_linearizable(rules, &history.iter().enumerate().map(record).collect::<Vec<_>>())
}

fn under(fairness: Fairness) -> Rules {
    Rules { fairness, permits: 2 }
}

fn tried(want: Want, got: bool) -> Op {
    Op::Try { want, got }
}

fn polled(id: Id, want: Want, ready: bool) -> Op {
    Op::Poll { id, want, priority: 0, ready }
}

fn released(held: Want) -> Op {
    Op::Release { held, fair: false }
}

fn saw(holders: [usize; 4], waiters: [usize; 5]) -> Op {
    Op::Look(Some(Seen { holders, waiters }))
}

use Want::{Permits, Read, Upgradable, Upgrade, Write};

#[test]
fn two_holders_at_once_are_rejected() {
    let rules = under(Fairness::Barging);
    let one_after_the_other =
        [(1, 2, tried(Write, true)), (3, 6, released(Write)), (4, 5, tried(Write, true)), (7, 8, released(Write))];
    assert!(accepts(rules, &one_after_the_other));
    let at_once =
        [(1, 2, tried(Write, true)), (5, 6, released(Write)), (3, 4, tried(Write, true)), (7, 8, released(Write))];
    assert!(!accepts(rules, &at_once));
    let by_waiting = |release| {
        [
            (1, 2, tried(Write, true)),
            (3, 6, Op::Enter { id: 1, want: Write }),
            (3, 6, Op::Queue { id: 1, want: Write, thread: true }),
            release,
        ]
    };
    assert!(accepts(rules, &by_waiting((4, 5, released(Write)))));
    assert!(!accepts(rules, &by_waiting((7, 8, released(Write)))));
}

#[test]
fn a_failed_try_on_a_free_key_is_rejected() {
    let rules = under(Fairness::Barging);
    // The key was held at some instant of the attempt, if only by a call that has not returned yet.
    assert!(accepts(rules, &[(1, 4, tried(Write, true)), (2, 3, tried(Write, false))]));
    assert!(accepts(rules, &[(1, 2, tried(Write, true)), (3, 6, released(Write)), (4, 5, tried(Write, false))]));
    assert!(!accepts(rules, &[(1, 2, tried(Write, true)), (3, 4, released(Write)), (5, 6, tried(Write, false))]));
    assert!(!accepts(rules, &[(1, 2, tried(Write, false)), (3, 4, tried(Write, true))]));
    assert!(!accepts(rules, &[(1, 2, tried(Read, true)), (3, 4, tried(Read, false))]));
    // Two overlapping attempts cannot both fail.
    assert!(!accepts(rules, &[(1, 4, tried(Write, false)), (2, 3, tried(Write, false))]));
}

#[test]
fn a_release_that_is_not_seen_is_rejected() {
    let rules = under(Fairness::Fifo);
    let history = |look| [(1, 2, tried(Write, true)), (3, 6, released(Write)), look];
    assert!(accepts(rules, &history((4, 5, Op::IsLocked(true)))));
    assert!(accepts(rules, &history((4, 5, Op::IsLocked(false)))));
    assert!(!accepts(rules, &history((7, 8, Op::IsLocked(true)))));
    assert!(!accepts(rules, &history((7, 8, saw([0, 0, 1, 0], [0; 5])))));
    // A release that was seen stays seen.
    let twice = |first, second| {
        let looks = [(4, 5, Op::IsLocked(first)), (6, 7, Op::IsLocked(second))];
        [(1, 2, tried(Write, true)), (3, 8, released(Write)), looks[0], looks[1]]
    };
    assert!(accepts(rules, &twice(true, false)));
    assert!(!accepts(rules, &twice(false, true)));
}

#[test]
fn a_waiter_admitted_out_of_turn_is_rejected() {
    let history = |first: Id, second: Id| {
        [
            (1, 2, tried(Write, true)),
            (3, 4, polled(1, Write, false)),
            (5, 6, polled(2, Write, false)),
            (7, 8, released(Write)),
            (9, 10, polled(first, Write, true)),
            (11, 12, polled(second, Write, false)),
        ]
    };
    assert!(accepts(under(Fairness::Fifo), &history(1, 2)));
    assert!(!accepts(under(Fairness::Fifo), &history(2, 1)));
    assert!(accepts(under(Fairness::Barging), &history(2, 1)));
    // Either order is right if both arrive at the same time.
    let mut at_once = history(2, 1);
    at_once[1].1 = 6;
    at_once[2].0 = 4;
    at_once[2].1 = 5;
    assert!(accepts(under(Fairness::Fifo), &at_once));
}

#[test]
fn a_bypass_beyond_the_bound_is_rejected() {
    let history = |passes: u64| {
        let mut history = vec![(1, 2, tried(Write, true)), (3, 4, polled(1, Write, false))];
        for pass in 0..passes {
            history.push((5 + 4 * pass, 6 + 4 * pass, released(Write)));
            history.push((7 + 4 * pass, 8 + 4 * pass, tried(Write, true)));
        }
        history
    };
    for bound in 0..4 {
        let rules = under(Fairness::Bounded(bound));
        assert!(accepts(rules, &history(bound.into())));
        assert!(!accepts(rules, &history(u64::from(bound) + 1)));
        // Within the bound, no request is refused.
        let refused =
            |passes| [history(passes), vec![(100, 101, released(Write)), (102, 103, tried(Write, false))]].concat();
        assert!(accepts(rules, &refused(bound.into())));
        assert!(bound == 0 || !accepts(rules, &refused(u64::from(bound) - 1)));
    }
    assert!(!accepts(under(Fairness::Fifo), &history(1)));
    assert!(accepts(under(Fairness::Barging), &history(20)));
}

#[test]
fn readers_beside_a_writer_are_rejected() {
    let rules = under(Fairness::default());
    let beside = |other| [(1, 2, tried(other, true)), (3, 4, tried(Read, true))];
    assert!(accepts(rules, &beside(Read)));
    assert!(accepts(rules, &beside(Upgradable)));
    assert!(!accepts(rules, &beside(Write)));
    assert!(!accepts(rules, &[(1, 2, tried(Upgradable, true)), (3, 4, tried(Upgradable, true))]));
    assert!(!accepts(rules, &[(1, 2, tried(Read, true)), (3, 4, tried(Write, true))]));
}

#[test]
fn a_writer_between_a_reader_and_its_upgrade_is_rejected() {
    let rules = under(Fairness::Barging);
    let upgrade = [
        (1, 2, tried(Upgradable, true)),
        (3, 10, Op::Queue { id: 1, want: Upgrade, thread: true }),
        (3, 10, Op::Enter { id: 1, want: Upgrade }),
    ];
    let with = |more: &[(u64, u64, Op)]| [&upgrade, more].concat();
    assert!(accepts(rules, &with(&[(4, 5, tried(Read, true)), (6, 7, released(Read))])));
    assert!(!accepts(rules, &with(&[(4, 5, tried(Write, true)), (6, 7, released(Write))])));
    // Nor is a writer allowed beside a reader that still holds the key.
    assert!(!accepts(rules, &with(&[(4, 5, tried(Read, true)), (11, 12, released(Read))])));
}

#[test]
fn a_downgrade_that_lets_a_writer_in_is_rejected() {
    let rules = under(Fairness::Barging);
    let history = |next| {
        [(1, 2, tried(Write, true)), (3, 4, Op::Change { from: Write, to: Read }), (5, 6, next), (7, 8, released(Read))]
    };
    assert!(accepts(rules, &history(tried(Read, true))));
    assert!(accepts(rules, &history(tried(Write, false))));
    assert!(!accepts(rules, &history(tried(Write, true))));
    assert!(!accepts(rules, &history(tried(Read, false))));
}

#[test]
fn a_readers_phase_that_omits_a_reader_is_rejected() {
    let history = |reader_in| {
        [
            (1, 2, tried(Write, true)),
            (3, 4, polled(1, Write, false)),
            (5, 6, polled(2, Read, false)),
            (7, 8, released(Write)),
            (9, 10, polled(2, Read, reader_in)),
            (11, 12, polled(1, Write, !reader_in)),
        ]
    };
    for bound in [0, 1, 16] {
        assert!(accepts(under(Fairness::Bounded(bound)), &history(true)));
        assert!(!accepts(under(Fairness::Bounded(bound)), &history(false)));
    }
    assert!(accepts(under(Fairness::Fifo), &history(false)));
    assert!(!accepts(under(Fairness::Fifo), &history(true)));
}

#[test]
fn one_permit_too_many_is_rejected() {
    let rules = under(Fairness::default());
    let two = [(1, 2, tried(Permits(1), true)), (3, 4, tried(Permits(1), true))];
    let with = |third| [two[0], two[1], third];
    assert!(accepts(rules, &with((5, 6, tried(Permits(1), false)))));
    assert!(!accepts(rules, &with((5, 6, tried(Permits(1), true)))));
    assert!(!accepts(rules, &[two[0], (3, 4, tried(Permits(1), false))]));
}

#[test]
fn a_cancellation_that_keeps_a_handed_over_hold_is_rejected() {
    let rules = under(Fairness::Fifo);
    let history = |locked| {
        [
            (1, 2, tried(Write, true)),
            (3, 4, polled(1, Write, false)),
            (5, 6, released(Write)),
            (7, 8, Op::Cancel { id: 1, want: Write }),
            (9, 10, Op::IsLocked(locked)),
        ]
    };
    assert!(accepts(rules, &history(false)));
    assert!(!accepts(rules, &history(true)));
    // The same answer is right before the cancellation, while the hold belongs to the waiter.
    let mut before = history(true);
    before.swap(3, 4);
    (before[3].0, before[3].1, before[4].0, before[4].1) = (7, 8, 9, 10);
    assert!(accepts(rules, &before));
}

#[test]
fn a_call_that_gives_up_on_a_free_key_is_rejected() {
    let rules = under(Fairness::default());
    let gives_up = |at: (u64, u64)| waited(1, Write, true, false).map(|op| (at.0, at.1, op));
    let held = [(2, 3, tried(Write, true)), (6, 7, released(Write))];
    assert!(accepts(rules, &[held.as_slice(), &gives_up((4, 5))].concat()));
    assert!(accepts(rules, &[held.as_slice(), &gives_up((1, 8))].concat()));
    assert!(!accepts(rules, &[held.as_slice(), &gives_up((8, 9))].concat()));
    assert!(!accepts(rules, &[held.as_slice(), &gives_up((0, 1))].concat()));
}

/// This history was seen in a real run. Upgradable reader 2003 passes a writer that has been woken, with another writer
/// asleep behind that one. The sleeping writer does not count as passed, because the one before it is a thread, which
/// always runs again.
#[test]
fn a_writer_behind_a_thread_that_has_been_woken_is_not_passed_yet() {
    let history = |thread: bool| -> Vec<_> {
        let waits =
            |invoked, returned, id, want, got| waited(id, want, thread, got).map(|op| (invoked, returned, op)).to_vec();
        let one = |invoked: u64, returned: u64, op| vec![(invoked, returned, op)];
        [
            waits(0, 2, 2001, Write, true),
            waits(1, 15, 1, Upgradable, true),
            one(3, 4, Op::Change { from: Write, to: Read }),
            one(5, 6, saw([1, 1, 0, 0], [0, 0, 0, 0, 0])),
            one(7, 8, released(Read)),
            waits(9, 25, 2002, Write, true),
            waits(10, 11, 1001, Read, true),
            one(12, 13, released(Read)),
            waits(14, 40, 1002, Write, true),
            one(16, 17, saw([0, 1, 0, 0], [0, 0, 2, 0, 0])),
            waits(18, 19, 2, Upgrade, true),
            one(20, 21, Op::Change { from: Write, to: Upgradable }),
            one(22, 23, released(Upgradable)),
            waits(24, 54, 3, Write, true),
            one(26, 27, saw([0, 0, 1, 0], [0, 0, 2, 0, 0])),
            one(28, 29, released(Write)),
            waits(30, 31, 2003, Upgradable, true),
            waits(32, 33, 2004, Upgrade, true),
            one(34, 35, Op::Change { from: Write, to: Upgradable }),
            one(36, 37, released(Upgradable)),
            waits(38, 39, 2005, Write, false),
            one(41, 42, released(Write)),
            waits(43, 44, 1003, Upgradable, true),
            one(45, 46, saw([0, 1, 0, 0], [0, 0, 1, 0, 0])),
            waits(47, 48, 1004, Upgrade, true),
            one(49, 50, Op::Change { from: Write, to: Upgradable }),
            one(51, 52, released(Upgradable)),
            waits(53, 57, 1005, Read, true),
            one(55, 56, released(Write)),
            one(58, 59, saw([1, 0, 0, 0], [0, 0, 0, 0, 0])),
            one(60, 63, tried(Read, true)),
            one(61, 62, released(Read)),
            one(64, 65, released(Read)),
            waits(66, 67, 5, Read, true),
            one(68, 69, released(Read)),
        ]
        .concat()
    };
    assert!(accepts(under(Fairness::Bounded(1)), &history(true)));
    assert!(!accepts(under(Fairness::Bounded(1)), &history(false)));
}

#[test]
fn a_request_that_is_counted_twice_or_not_at_all_is_rejected() {
    let history =
        |seen| [(1, 2, tried(Write, true)), (3, 4, polled(1, Write, false)), (5, 6, released(Write)), (7, 8, seen)];
    let (waits, holds) = (saw([0; 4], [0, 0, 1, 0, 0]), saw([0, 0, 1, 0], [0; 5]));
    let (both, neither) = (saw([0, 0, 1, 0], [0, 0, 1, 0, 0]), Op::Look(None));
    assert!(accepts(under(Fairness::Fifo), &history(holds)));
    assert!(!accepts(under(Fairness::Fifo), &history(waits)));
    assert!(accepts(under(Fairness::Barging), &history(waits)));
    assert!(!accepts(under(Fairness::Barging), &history(holds)));
    for fairness in POLICIES {
        assert!(!accepts(under(fairness), &history(both)));
        assert!(!accepts(under(fairness), &history(neither)));
    }
}

/// Returns whether the checker accepts a handwritten history on a map: (invoked, returned, what each step saw and did).
fn map_accepts(bounded: bool, history: &[(u64, u64, &[map::Step])]) -> bool {
    let record = |(by, &(invoked, returned, steps)): (usize, &(u64, u64, &[map::Step]))| map::Record {
        invoked,
        returned,
        by,
        op: map::Op::Steps(steps.to_vec()),
    };
    map::is_linearizable(bounded, &history.iter().enumerate().map(record).collect::<Vec<_>>())
}

#[test]
fn a_value_that_was_never_stored_and_a_lost_change_are_rejected() {
    use map::{Did, Saw};
    let get = |value| [(0, Saw::Value(value), Did::Nothing)];
    let insert = [(0, Saw::Value(None), Did::Store(1, None))];
    for bounded in [false, true] {
        assert!(map_accepts(bounded, &[(1, 2, &insert), (3, 4, &get(Some(1)))]));
        assert!(!map_accepts(bounded, &[(1, 2, &insert), (3, 4, &get(Some(2)))]));
        assert!(!map_accepts(bounded, &[(3, 4, &insert), (1, 2, &get(Some(1)))]));
        // A value disappears without a removal, and reappears.
        assert_eq!(map_accepts(bounded, &[(1, 2, &insert), (3, 4, &get(None))]), bounded);
        assert!(!map_accepts(bounded, &[(1, 2, &insert), (3, 4, &get(None)), (5, 6, &get(Some(1)))]));
        // Two insertions both found no value.
        assert_eq!(map_accepts(bounded, &[(1, 4, &insert), (2, 3, &insert)]), bounded);
    }
}

#[test]
fn a_version_that_does_not_grow_is_rejected() {
    use map::{Did, Saw};
    let store = |version| [(0, Saw::Nothing, Did::Store(1, Some(version)))];
    let look = |version| [(0, Saw::All(Some((1, version))), Did::Nothing)];
    let remove = [(0, Saw::Value(Some(1)), Did::Remove)];
    let update = |old, new| [(0, Saw::Is(old), Did::Store(2, Some(new)))];
    for bounded in [false, true] {
        assert!(map_accepts(bounded, &[(1, 2, &store(1)), (3, 4, &look(1)), (5, 6, &remove), (7, 8, &store(2))]));
        assert!(!map_accepts(bounded, &[(1, 2, &store(1)), (3, 4, &look(2))]));
        assert!(!map_accepts(bounded, &[(1, 2, &store(1)), (5, 6, &remove), (7, 8, &store(1))]));
        // Two updates cannot both be conditional on the same version.
        assert!(map_accepts(bounded, &[(1, 2, &store(1)), (3, 6, &update(1, 2)), (4, 5, &update(2, 3))]));
        assert!(!map_accepts(bounded, &[(1, 2, &store(1)), (3, 6, &update(1, 2)), (4, 5, &update(1, 3))]));
        // A conflict without a conflicting version.
        let conflict = |found| [(0, Saw::IsNot(1, found), Did::Nothing)];
        assert!(!map_accepts(bounded, &[(1, 2, &store(1)), (3, 4, &conflict(Some(1)))]));
        assert!(map_accepts(bounded, &[(1, 2, &store(1)), (3, 4, &store(2)), (5, 6, &conflict(Some(2)))]));
        assert_eq!(map_accepts(bounded, &[(1, 2, &store(1)), (3, 4, &conflict(None))]), bounded);
    }
}

#[test]
fn a_half_applied_batch_is_rejected() {
    use map::{Did, Saw};
    let batch = [0, 1].map(|key| (key, Saw::Nothing, Did::Store(1, None)));
    let look = |values: [Option<u64>; 2]| [0, 1].map(|key| (key, Saw::Value(values[key as usize]), Did::Nothing));
    for values in [[None, None], [Some(1), Some(1)]] {
        assert!(map_accepts(false, &[(1, 4, &batch), (2, 3, &look(values))]));
    }
    for values in [[None, Some(1)], [Some(1), None]] {
        assert!(!map_accepts(false, &[(1, 4, &batch), (2, 3, &look(values))]));
    }
}
