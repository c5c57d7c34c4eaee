//! A map of values under keyed locks beside other shared maps and caches.
//!
//! `cargo bench --bench map`, ten minutes on two free cores; `-- read` runs the scenarios whose names contain `read`.
//! A ratio is the median of the ratios of all rounds. The goals are keylatch's; the output says whether they are met,
//! and nothing depends on it.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylatch_benches::heap::{Counted, Growth};
use keylatch_benches::load::{timed, together};
use keylatch_benches::maps::{
    Act, Bounded, BoundedLockable, BoundedLockmap, BoundedMoka, BoundedQuick, Ending, EndingByTicks, LockedMap, Make,
    MakeCache, Map, Moka, Papaya, ROOM, Sharded, Values,
};
use keylatch_benches::report::{figure, median};
use lockable::{LockableHashMap, LockableLruCache};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

#[global_allocator]
static HEAP: Counted = Counted;

const ROUNDS: usize = 13;
const SPAN: Duration = Duration::from_millis(20);

/// The candidates. The goals apply to the first.
const CANDIDATES: [(&str, Make); 10] = [
    ("keylatch", make::<keylatch::LockMap<u64, u64>>),
    ("lockmap", make::<lockmap::LockMap<u64, u64>>),
    ("lockable hash map", make::<LockableHashMap<u64, u64>>),
    ("lockable LRU", make::<LockableLruCache<u64, u64>>),
    ("dashmap", make::<dashmap::DashMap<u64, u64, foldhash::fast::RandomState>>),
    ("scc", make::<scc::HashMap<u64, u64, foldhash::fast::RandomState>>),
    ("moka", make::<Moka>),
    ("papaya", make::<Papaya>),
    ("RwLock<HashMap>", make::<LockedMap>),
    ("64 x RwLock<HashMap>", make::<Sharded>),
];

fn make<M: Values>() -> Box<dyn Map> {
    Box::new(M::empty())
}

/// A measurement of all candidates, and the goals: upper bounds of keylatch's time relative to that of others.
struct Scenario {
    name: &'static str,
    act: Act,
    threads: usize,
    /// Whether all requested keys have values.
    filled: bool,
    keys: Keys,
    goals: &'static [(&'static str, f64)],
}

#[derive(Clone, Copy)]
enum Keys {
    /// One key for all threads.
    Hot,
    /// Ten thousand keys, drawn from a Zipf distribution with exponent 0.99.
    Zipf,
    /// Separate keys for each thread.
    Own,
}

const KEYS: u64 = 10_000;
const LENGTH: usize = 1 << 16;

impl Keys {
    fn list(self, thread: usize) -> Vec<u64> {
        match self {
            Keys::Hot => vec![7; 1_000],
            Keys::Zipf => zipf(KEYS, 0.99, LENGTH, thread as u64),
            Keys::Own => (0..1_000).map(|key| key * 64 + thread as u64).collect(),
        }
    }
}

/// Returns a list of keys out of `0..keys`. Keys of neighbouring ranks are not neighbouring numbers.
fn zipf(keys: u64, skew: f64, length: usize, seed: u64) -> Vec<u64> {
    let zipf = Zipf::new(keys as f64, skew).expect("the arguments are in range");
    let mut random = SmallRng::seed_from_u64(seed);
    (0..length).map(|_| zipf.sample(&mut random) as u64 * 7_919 % keys).collect()
}

const fn case(
    name: &'static str,
    act: Act,
    threads: usize,
    keys: Keys,
    goals: &'static [(&'static str, f64)],
) -> Scenario {
    let filled = !matches!(act, Act::InsertAndRemove | Act::GetOrInsertAndRemove);
    Scenario { name, act, threads, filled, keys, goals }
}

const SCENARIOS: [Scenario; 19] = [
    case("read through a guard, one key", Act::Read, 1, Keys::Hot, &[("lockmap", 0.5)]),
    case("read through a guard, 10,000 keys", Act::Read, 1, Keys::Zipf, &[("lockmap", 0.5)]),
    case("read through a guard, one key, 2 threads", Act::Read, 2, Keys::Hot, &[("lockmap", 1.0 / 1.5)]),
    case("read through a guard, 10,000 keys, 2 threads", Act::Read, 2, Keys::Zipf, &[]),
    case("get, one key", Act::Get, 1, Keys::Hot, &[("lockmap", 1.0), ("dashmap", 1.0)]),
    case("get, 10,000 keys", Act::Get, 1, Keys::Zipf, &[("lockmap", 1.0), ("dashmap", 1.0)]),
    case("get, one key, 2 threads", Act::Get, 2, Keys::Hot, &[]),
    case("get, 10,000 keys, 2 threads", Act::Get, 2, Keys::Zipf, &[]),
    case("write in place, one key", Act::Add, 1, Keys::Hot, &[("lockmap", 0.55)]),
    case("write in place, 10,000 keys", Act::Add, 1, Keys::Zipf, &[("lockmap", 0.55)]),
    case("write in place, one key, 2 threads", Act::Add, 2, Keys::Hot, &[]),
    case("update, one key", Act::Update, 1, Keys::Hot, &[("dashmap", 1.0), ("scc", 1.0)]),
    case("update, 10,000 keys", Act::Update, 1, Keys::Zipf, &[("dashmap", 1.0), ("scc", 1.0)]),
    case("insert and remove, one key", Act::InsertAndRemove, 1, Keys::Hot, &[("lockmap", 0.8)]),
    case("insert and remove, 10,000 keys", Act::InsertAndRemove, 1, Keys::Zipf, &[("lockmap", 0.8)]),
    case("insert and remove, 10,000 keys, 2 threads", Act::InsertAndRemove, 2, Keys::Zipf, &[]),
    case("get_or_insert_with, there, one key, 8 threads", Act::GetOrInsert, 8, Keys::Hot, &[]),
    case("get_or_insert_with, there, 10,000 keys, 8 threads", Act::GetOrInsert, 8, Keys::Zipf, &[]),
    case("get_or_insert_with, not there, and remove, 8 threads", Act::GetOrInsertAndRemove, 8, Keys::Own, &[]),
];

impl Scenario {
    /// Returns the nanoseconds per operation, of all threads together.
    fn run(&self, map: &dyn Map, lists: &[Vec<u64>]) -> f64 {
        if self.filled {
            match self.keys {
                Keys::Hot => map.fill(&mut [7].into_iter()),
                Keys::Zipf | Keys::Own => map.fill(&mut (0..KEYS)),
            }
        }
        run_lists(map, self.act, lists, SPAN)
    }
}

/// Returns the nanoseconds per operation, of all threads together. Each thread has a list of keys.
fn run_lists(map: &dyn Map, act: Act, lists: &[Vec<u64>], span: Duration) -> f64 {
    let work = |list: &[u64], next: &mut usize, n: usize| {
        if *next + n > list.len() {
            *next = 0;
        }
        map.run(act, &list[*next..*next + n]);
        *next += n;
    };
    if let [list] = lists {
        let mut next = 0;
        return timed(span, |n| work(list, &mut next, n as usize));
    }
    let shares = together(lists.len(), span, |thread| {
        let (list, mut next) = (&lists[thread], 0);
        let work = &work;
        move |n, (): &mut ()| work(list, &mut next, n as usize)
    });
    shares.nanos
}

/// Measures every candidate in every round.
fn rounds(candidates: usize, rounds: usize, mut run: impl FnMut(usize) -> f64) -> Vec<Vec<f64>> {
    let mut figures = vec![Vec::new(); candidates];
    for round in 0..rounds {
        for i in 0..candidates {
            // Each round starts with a different candidate, so that none is always measured first.
            let i = (i + round) % candidates;
            figures[i].push(run(i));
        }
    }
    figures
}

/// Prints the time of each candidate, the first candidate's time relative to it, and whether that ratio meets a goal.
fn print(scenario: &str, names: &[&str], figures: &[Vec<f64>], goals: &[(&str, f64)]) {
    for (name, own) in names.iter().zip(figures) {
        let ratios: Vec<_> = figures[0].iter().zip(own).map(|(first, own)| first / own).collect();
        let ratio = median(&ratios);
        let goal = goals.iter().find(|(other, _)| other == name);
        let (goal, met) = goal.map_or_else(Default::default, |(_, most)| {
            (format!("≤ {most:.2}"), if ratio <= *most { "yes" } else { "NO" })
        });
        let best = own.iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "| {scenario} | {name} | {} | {} | {} | {goal} | {met} |",
            figure(median(own)),
            figure(best),
            figure(ratio)
        );
    }
}

/// The candidates of the scenarios with many keys. The maps that are far behind with few keys are left out.
const OF_MANY: [&str; 6] = ["keylatch", "lockmap", "dashmap", "scc", "papaya", "64 x RwLock<HashMap>"];

/// Runs scenarios with keys that are drawn evenly, in maps of 1,000 values up to far more than the processor's caches
/// have room for.
fn scale(words: &[String]) {
    const LENGTH: usize = 1 << 20;
    const SPAN: Duration = Duration::from_millis(40);
    const ROUNDS: usize = 7;
    let made: Vec<_> =
        OF_MANY.map(|name| CANDIDATES.iter().find(|(other, _)| *other == name)).into_iter().flatten().collect();
    let names: Vec<_> = made.iter().map(|(name, _)| *name).collect();
    let acts = [
        ("get", Act::Get),
        ("write in place", Act::Add),
        ("update", Act::Update),
        ("remove and insert", Act::RemoveAndInsert),
    ];
    for keys in [1_000, 16_000, 256_000, 1_000_000, 4_000_000] {
        let cases: Vec<_> = [1, 2, 8]
            .into_iter()
            .flat_map(|threads| {
                acts.map(|(name, act)| (format!("scale: {name}, {keys} keys, {threads} threads"), act, threads))
            })
            .filter(|(name, ..)| words.iter().all(|word| name.contains(word.as_str())))
            .collect();
        if cases.is_empty() {
            continue;
        }
        let maps: Vec<_> = made.iter().map(|(_, make)| make()).collect();
        // Keys that are neighbouring numbers are not added one after the other.
        maps.iter().for_each(|map| map.fill(&mut (0..keys).map(|key| key * 7_919 % keys)));
        for (name, act, threads) in cases {
            // Each thread has its own keys, because a key that one thread has removed would be missing for the others
            // for a moment.
            let list = |thread: u64| {
                let mut random = SmallRng::seed_from_u64(thread);
                let own = keys / threads;
                (0..LENGTH / threads as usize)
                    .map(|_| random.random_range(0..own) * threads + thread)
                    .collect::<Vec<_>>()
            };
            let lists: Vec<_> = (0..threads).map(list).collect();
            let run = |i: usize| run_lists(&*maps[i], act, &lists, SPAN);
            print(&name, &names, &rounds(names.len(), ROUNDS, run), &[("dashmap", 1.0)]);
        }
    }
}

/// Returns the heap bytes per value, for a million values.
fn bytes(map: &dyn Map) -> f64 {
    const VALUES: u64 = 1_000_000;
    let growth = Growth::start();
    map.fill(&mut (0..VALUES).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    growth.bytes() / VALUES as f64
}

/// The candidates of the scenarios with a bound.
const BOUNDED: [(&str, Make); 3] =
    [("keylatch", make::<Bounded>), ("moka", make::<BoundedMoka>), ("quick_cache", make::<BoundedQuick>)];

/// Measures `get` in caches that are not full, and the memory of caches that have evicted as many values as they
/// contain.
fn bounded(words: &[String]) {
    let asked_for = |name: &str| words.iter().all(|word| name.contains(word.as_str()));
    let (names, goals) = (BOUNDED.map(|(name, _)| name), [("moka", 1.0), ("quick_cache", 1.0)]);
    for (name, threads) in [("bounded: get, 10,000 keys", 1), ("bounded: get, 10,000 keys, 8 threads", 8)] {
        if asked_for(name) {
            let scenario = case(name, Act::Get, threads, Keys::Zipf, &[]);
            let lists: Vec<_> = (0..threads).map(|thread| Keys::Zipf.list(thread)).collect();
            print(name, &names, &rounds(BOUNDED.len(), ROUNDS, |i| scenario.run(&*BOUNDED[i].1(), &lists)), &goals);
        }
    }
    let name = "bounded: heap for a value, bytes, 1,000,000 of them";
    if asked_for(name) {
        let bytes = |i: usize| {
            let growth = Growth::start();
            let map = BOUNDED[i].1();
            map.fill(&mut (0..2 * ROOM as u64).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            growth.bytes() / ROOM as f64
        };
        print(name, &names, &rounds(BOUNDED.len(), 1, bytes), &goals[1..]);
    }
}

const CACHES: [(&str, MakeCache); 7] = [
    ("keylatch", |most| Box::new(Bounded(keylatch::LockMap::builder().max_values(most).build()))),
    ("keylatch, one shard", |most| Box::new(Bounded(keylatch::LockMap::builder().max_values(most).shards(1).build()))),
    ("moka", |most| Box::new(BoundedMoka::of(most))),
    ("quick_cache", |most| Box::new(BoundedQuick::of(most))),
    ("lockable LRU", |most| {
        let most = NonZeroUsize::new(most).expect("the capacity is not zero");
        Box::new(BoundedLockable(Arc::new(LockableLruCache::new()), most))
    }),
    ("lockmap LRU", |most| Box::new(BoundedLockmap(lockmap::LruLockMap::new(most)))),
    ("lockmap LRU, one shard", |most| Box::new(BoundedLockmap(lockmap::LruLockMap::with_options(most, 0, 1)))),
];

/// Returns sequences of requested keys, each with a name and the capacity of the caches.
fn traces() -> Vec<(String, Vec<u64>, usize)> {
    const KEYS: u64 = 100_000;
    const LENGTH: usize = 1_000_000;
    let mut traces = Vec::new();
    for skew in [0.7, 0.99] {
        for (part, room) in [("1 %", 1_000), ("10 %", 10_000)] {
            let plain = zipf(KEYS, skew, LENGTH, 1);
            // After every ten thousand requests, a scan of as many keys as the cache has room for, none of which is
            // requested again.
            let mut scan = KEYS..;
            let scanned = plain
                .chunks(10_000)
                .flat_map(|chunk| chunk.iter().copied().chain(scan.by_ref().take(room).collect::<Vec<_>>()));
            let scanned = scanned.collect();
            traces.push((format!("zipf {skew}, room for {part}"), plain, room));
            traces.push((format!("zipf {skew} and scans, room for {part}"), scanned, room));
        }
    }
    // The popular keys change.
    let mut random = SmallRng::seed_from_u64(3);
    let shifting = zipf(KEYS, 0.99, LENGTH, 2);
    let shift: Vec<u64> = (0..10).map(|_| random.random_range(0..KEYS)).collect();
    let shifting = shifting.iter().enumerate().map(|(i, key)| (key + shift[i / (LENGTH / 10)]) % KEYS).collect();
    traces.push(("zipf 0.99 that shifts, room for 1 %".to_owned(), shifting, 1_000));
    traces
}

fn main() {
    // The words that the names must contain. Options are ignored, because cargo adds one.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let asked_for = |name: &str| words.iter().all(|word| name.contains(word.as_str()));

    let names = CANDIDATES.map(|(name, _)| name);
    println!("| scenario | candidate | time, ns | best | keylatch's to it | goal | met |");
    println!("| --- | --- | ---: | ---: | ---: | --- | --- |");
    for scenario in SCENARIOS.iter().filter(|scenario| asked_for(scenario.name)) {
        let lists: Vec<_> = (0..scenario.threads).map(|thread| scenario.keys.list(thread)).collect();
        let run = |i: usize| scenario.run(&*CANDIDATES[i].1(), &lists);
        print(scenario.name, &names, &rounds(CANDIDATES.len(), ROUNDS, run), scenario.goals);
    }

    let compared = [
        ("keylatch, time_to_live", make::<Ending> as Make),
        ("keylatch", make::<keylatch::LockMap<u64, u64>>),
        ("keylatch, time_to_live by a counter of ticks", make::<EndingByTicks>),
    ];
    for (name, act, keys) in [
        ("values that end: get, one key", Act::Get, Keys::Hot),
        ("values that end: get, 10,000 keys", Act::Get, Keys::Zipf),
        ("values that end: read through a guard, one key", Act::Read, Keys::Hot),
    ] {
        if asked_for(name) {
            let scenario = case(name, act, 1, keys, &[("keylatch", 1.3)]);
            let lists = [keys.list(0)];
            let figures = rounds(compared.len(), ROUNDS, |i| scenario.run(&*compared[i].1(), &lists));
            print(name, &compared.map(|(name, _)| name), &figures, scenario.goals);
        }
    }
    if asked_for("values that end: the clock alone") {
        let clock = Instant::now();
        let read = |_| timed(SPAN, |n| (0..n).for_each(|_| _ = black_box(black_box(&clock).elapsed())));
        print("values that end: the clock alone", &["std"], &rounds(1, ROUNDS, read), &[]);
    }

    bounded(&words);
    scale(&words);

    if asked_for("bytes") {
        println!("\n| scenario | candidate | bytes | best | keylatch's to it | goal | met |");
        println!("| --- | --- | ---: | ---: | ---: | --- | --- |");
        let figures = rounds(CANDIDATES.len(), 1, |i| bytes(&*CANDIDATES[i].1()));
        print("heap for a value, bytes, 1,000,000 of them", &names, &figures, &[("lockmap", 1.1)]);
    }

    if asked_for("hits") {
        println!("\n| trace | cache | hits, % | time, ns | goal | met |");
        println!("| --- | --- | ---: | ---: | --- | --- |");
        for (name, trace, room) in traces() {
            let mut rates = Vec::new();
            for (cache, make) in CACHES {
                let mut made = make(room);
                let start = Instant::now();
                let hits = trace.iter().filter(|key| made.hit(*black_box(*key))).count();
                let nanos = start.elapsed().as_nanos() as f64 / trace.len() as f64;
                rates.push((cache, 100.0 * hits as f64 / trace.len() as f64, nanos));
            }
            let peers = rates.iter().filter(|(cache, ..)| ["moka", "quick_cache"].contains(cache));
            let goal = peers.map(|(_, rate, _)| *rate - 0.5).fold(0.0, f64::max);
            for (cache, rate, nanos) in rates {
                let (goal, met) = if cache.starts_with("keylatch") {
                    (format!("≥ {goal:.1}"), if rate >= goal { "yes" } else { "NO" })
                } else {
                    Default::default()
                };
                println!("| {name} | {cache} | {rate:.1} | {} | {goal} | {met} |", figure(nanos));
            }
        }
    }
}
