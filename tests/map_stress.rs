//! Threads and smol tasks on the same keys of a map. The sanitizers run these tests, too. Each test terminates on its
//! own and fails by its counts, never by the clock.

mod common;

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use common::Random;
use futures_lite::future::{block_on, or, yield_now};
use keylatch::{Fairness, LockMap};

const ALL: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Bounded(16), Fairness::Barging];

const ROUNDS: u64 = 2000;
const THREADS: u64 = 2;
const TASKS: u64 = 4;

/// Runs `thread` on several threads, and `task` in several tasks that two more threads run.
fn run_threads_and_tasks<F: Future<Output = ()> + Send>(
    thread: impl Fn(Random) + Sync,
    task: impl Fn(Random) -> F + Sync,
) {
    let seed = |by: u64| Random(0x9e37_79b9 * (by + 1));
    let (executor, (stop, stopped)) = (smol::Executor::new(), async_channel::bounded::<()>(1));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| block_on(executor.run(stopped.recv())));
        }
        let _stops = Stops(stop);
        let threads: Vec<_> = (0..THREADS)
            .map(|by| {
                scope.spawn({
                    let thread = &thread;
                    move || thread(seed(by))
                })
            })
            .collect();
        let tasks: Vec<_> = (0..TASKS).map(|by| executor.spawn(task(seed(THREADS + by)))).collect();
        for task in tasks {
            block_on(task);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Ends the threads that run the tasks, even if a check has failed.
struct Stops(async_channel::Sender<()>);

impl Drop for Stops {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The value loaded for a key. Each has a clone of the token, whose strong count therefore tells how many pages exist.
struct Page {
    name: String,
    #[allow(dead_code)]
    token: Arc<()>,
}

struct Pages {
    map: LockMap<String, Page>,
    token: Arc<()>,
    names: Vec<String>,
    /// The number of loads in progress for each key.
    loading: Vec<AtomicUsize>,
    loads: AtomicUsize,
    hits: AtomicUsize,
}

/// A load in progress, until it completes, fails, panics or is dropped.
struct Load<'a>(&'a AtomicUsize);

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Pages {
    fn new(keys: usize, fairness: Fairness, most: Option<usize>) -> Pages {
        let builder = LockMap::builder().shards(1).pool_capacity(1 + keys / 2).fairness(fairness);
        Pages {
            map: if let Some(most) = most { builder.max_values(most).build() } else { builder.build() },
            token: Arc::new(()),
            names: (0..keys).map(|key| format!("page {key}")).collect(),
            loading: (0..keys).map(|_| AtomicUsize::new(0)).collect(),
            loads: AtomicUsize::new(0),
            hits: AtomicUsize::new(0),
        }
    }

    fn load(&self, key: usize) -> Load<'_> {
        assert_eq!(self.loading[key].fetch_add(1, Relaxed), 0, "two callers load the same page");
        Load(&self.loading[key])
    }

    fn loaded(&self, key: usize, load: Load<'_>) -> Page {
        self.loads.fetch_add(1, Relaxed);
        drop(load);
        Page { name: self.names[key].clone(), token: Arc::clone(&self.token) }
    }

    fn hit(&self, key: usize, page: Option<&Page>) {
        assert_eq!(page.expect("the page has been loaded").name, self.names[key]);
        self.hits.fetch_add(1, Relaxed);
    }

    fn key(&self, random: &mut Random) -> (usize, &str) {
        let key = random.next(self.names.len() as u64) as usize;
        (key, &self.names[key])
    }

    /// Makes one random call that does not wait. Many of these calls remove values.
    fn remove_some(&self, random: &mut Random) {
        let (_, name) = self.key(random);
        match random.next(12) {
            0 => drop(self.map.clear()),
            1 => drop(self.map.retain(|other, page| other != name && page.name == *other)),
            2 => drop(self.map.for_each_value(|other, page, _| assert_eq!(*other, page.name))),
            3..6 => drop(self.map.try_write(name).map(|mut guard| guard.remove())),
            6 => drop(self.map.handle(name)),
            _ => drop(self.map.read(name)),
        }
    }

    fn thread(&self, mut random: Random) {
        for _ in 0..ROUNDS {
            let (key, name) = self.key(&mut random);
            match random.next(10) {
                0 => drop(self.map.remove_blocking(name)),
                1 => {
                    let seen = self.map.read_blocking(name).version();
                    if let Some(seen) = seen {
                        drop(self.map.remove_if_blocking(name, seen));
                    }
                }
                2 => self.remove_some(&mut random),
                3 => {
                    let panics = || {
                        let guard = self.map.get_or_insert_with_blocking(name, || {
                            let _load = self.load(key);
                            resume_unwind(Box::new("in the middle of a load"));
                        });
                        self.hit(key, guard.value());
                    };
                    drop(catch_unwind(AssertUnwindSafe(panics)));
                }
                fails => {
                    let result = self.map.get_or_try_insert_with_blocking(name, || {
                        let load = self.load(key);
                        std::thread::yield_now();
                        if fails == 4 { Err(()) } else { Ok(self.loaded(key, load)) }
                    });
                    if let Ok(guard) = result {
                        self.hit(key, guard.value());
                    }
                }
            }
        }
    }

    async fn task(&self, mut random: Random) {
        for _ in 0..ROUNDS {
            let (key, name) = self.key(&mut random);
            let what = random.next(10);
            let request = async {
                let load = async || {
                    let load = self.load(key);
                    yield_now().await;
                    yield_now().await;
                    if what == 4 { Err(()) } else { Ok(self.loaded(key, load)) }
                };
                if let Ok(guard) = self.map.get_or_try_insert_with(name, load).await {
                    self.hit(key, guard.value());
                    yield_now().await;
                    self.hit(key, guard.value());
                }
            };
            match what {
                0 => drop(self.map.remove(name).await),
                1 => self.remove_some(&mut random),
                // The call is dropped halfway, while it waits or loads.
                2 | 3 => or(request, async { yield_now().await }).await,
                _ => request.await,
            }
        }
    }
}

#[test]
fn a_value_is_loaded_by_one_caller_at_a_time() {
    for (fairness, most) in ALL.into_iter().flat_map(|fairness| [(fairness, None), (fairness, Some(2))]) {
        let pages = Pages::new(5, fairness, most);
        run_threads_and_tasks(|random| pages.thread(random), |random| pages.task(random));
        let left = pages.map.len();
        assert_eq!(pages.map.entries(), left, "an entry remained");
        assert!(most.is_none_or(|most| left <= most), "{left} values, {most:?} at most");
        assert_eq!(Arc::strong_count(&pages.token), 1 + left, "a value was leaked, or dropped twice");
        assert!(pages.loads.load(Relaxed) > 0 && pages.hits.load(Relaxed) > pages.loads.load(Relaxed));
        assert_eq!(pages.map.clear(), 0);
        assert_eq!((pages.map.entries(), Arc::strong_count(&pages.token)), (0, 1));
    }
}

/// The value is a plain number, which only its version or its lock protects.
#[test]
fn no_increment_is_lost() {
    for fairness in ALL {
        let map = LockMap::<u64, u64>::builder().shards(2).fairness(fairness).build();
        let thread = |mut random: Random| {
            for _ in 0..ROUNDS {
                let key = random.next(3);
                loop {
                    let (n, version) = {
                        let seen = map.get_or_insert_with_blocking(&key, || 0);
                        (*seen.value().unwrap(), seen.version().unwrap())
                    };
                    let done = match random.next(3) {
                        0 => map.update_if_blocking(&key, version, n + 1).is_ok(),
                        1 => map.batch().update_if(&key, version, n + 1).insert(&9, n).commit_blocking().is_ok(),
                        _ => match map.try_upgradable_read(&key) {
                            Some(mut reader) => reader.try_upgrade_mut().is_some_and(|mut writer| {
                                *writer.value_mut().unwrap() += 1;
                                true
                            }),
                            None => false,
                        },
                    };
                    if done {
                        break;
                    }
                }
            }
        };
        let task = |mut random: Random| {
            let map = &map;
            async move {
                for _ in 0..ROUNDS {
                    let key = random.next(3);
                    if random.next(2) == 0 {
                        *map.write(&key).await.get_or_insert_with(|| 0) += 1;
                        continue;
                    }
                    loop {
                        let seen = map.get_or_insert_with(&key, async || 0).await;
                        let (n, version) = (*seen.value().unwrap(), seen.version().unwrap());
                        drop(seen);
                        if map.update_if(&key, version, n + 1).await.is_ok() {
                            break;
                        }
                    }
                }
            }
        };
        run_threads_and_tasks(thread, task);
        let sum: u64 = (0..3).filter_map(|key| map.get_blocking(&key)).sum();
        assert_eq!(sum, (THREADS + TASKS) * ROUNDS);
    }
}

/// A batch moves an amount from one key to another. No reader sees the amount at both keys, or at neither.
#[test]
fn a_sum_over_several_keys_stays_the_same() {
    const KEYS: u64 = 4;
    const SUM: u64 = 100 * KEYS;
    for fairness in ALL {
        let mut map = LockMap::<u64, u64>::builder().shards(2).fairness(fairness).build();
        map.extend((0..KEYS).map(|key| (key, 100)));
        let (map, moves) = (&map, AtomicUsize::new(0));
        let moves = &moves;
        let keys: Vec<u64> = (0..KEYS).collect();
        let keys = &keys;
        let pair = |random: &mut Random| {
            let from = random.next(KEYS);
            (from, (from + 1 + random.next(KEYS - 1)) % KEYS)
        };
        let thread = |mut random: Random| {
            for _ in 0..ROUNDS {
                let (from, to) = pair(&mut random);
                let [of_from, of_to] = [from, to].map(|key| {
                    let seen = map.read_blocking(&key);
                    (*seen.value().unwrap(), seen.version().unwrap())
                });
                let n = random.next(of_from.0 + 1);
                let batch = map.batch().update_if(&from, of_from.1, of_from.0 - n);
                let result = batch.update_if(&to, of_to.1, of_to.0 + n).commit_blocking();
                moves.fetch_add(usize::from(result.is_ok()), Relaxed);
                let sum: u64 = map.read_many_blocking(keys).iter().map(|guard| *guard.value().unwrap()).sum();
                assert_eq!(sum, SUM);
            }
        };
        let task = |mut random: Random| async move {
            for _ in 0..ROUNDS {
                if random.next(2) == 0 {
                    let guards = map.read_many(keys).await;
                    yield_now().await;
                    assert_eq!(guards.iter().map(|guard| *guard.value().unwrap()).sum::<u64>(), SUM);
                    continue;
                }
                let (from, to) = pair(&mut random);
                let mut guards = map.write_many(&[from, to]).await;
                let mut values = guards.iter_mut().map(|guard| guard.value_mut().unwrap());
                let (one, other) = (values.next().unwrap(), values.next().unwrap());
                let n = random.next(*one + 1);
                (*one, *other) = (*one - n, *other + n);
            }
        };
        run_threads_and_tasks(thread, task);
        let sum: u64 = keys.iter().map(|key| map.get_blocking(key).unwrap()).sum();
        assert_eq!((sum, map.len()), (SUM, KEYS as usize));
        assert!(moves.load(Relaxed) > 0);
    }
}

/// The map has a few of the counts, and the store has the others: every user evicts when it has finished. The map's own
/// eviction, with `on_evict`, is in `tests/map_evict.rs`.
#[test]
fn no_count_is_lost_between_a_map_that_is_evicted_by_hand_and_its_store() {
    const KEYS: u64 = 6;
    for fairness in ALL {
        let builder = LockMap::<u64, u64>::builder().shards(2).fairness(fairness).max_values(2);
        let map = builder.evict_by_hand().record_stats().build();
        let store: Vec<_> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
        let (map, store, evicted) = (&map, &store, &AtomicUsize::new(0));
        let load = |key: u64| store[key as usize].load(Relaxed) as u64;
        let make_room = |random: &mut Random| {
            while map.excess() > 0 {
                let Some(mut next) = map.try_next_eviction() else { return };
                let (key, count) = (*next.key(), *next.value().expect("it has a value"));
                if random.next(8) == 0 {
                    return; // as if the store had failed
                }
                assert!(load(key) <= count, "the store has a newer count than the map");
                store[key as usize].store(count as usize, Relaxed);
                std::thread::yield_now();
                assert_eq!(next.remove(), Some(count));
                evicted.fetch_add(1, Relaxed);
            }
        };
        let thread = |mut random: Random| {
            for round in 0..ROUNDS {
                let key = random.next(KEYS);
                *map.write_blocking(&key).get_or_insert_with(|| load(key)) += 1;
                make_room(&mut random);
                if round % 16 == 0 {
                    map.set_max_values(1 + random.next(3) as usize);
                }
                drop(map.get_or_insert_with_blocking(&key, || load(key)));
            }
        };
        let task = |mut random: Random| async move {
            for _ in 0..ROUNDS {
                let key = random.next(KEYS);
                let mut guard = map.write(&key).await;
                let before = *guard.get_or_insert_with(|| load(key));
                yield_now().await;
                assert_eq!(guard.value(), Some(&before), "the value was changed or evicted beside its holder");
                guard.insert(before + 1);
                drop(guard);
                make_room(&mut random);
            }
        };
        run_threads_and_tasks(thread, task);
        let stats = map.stats().unwrap();
        assert_eq!(stats.hits() + stats.misses(), THREADS * ROUNDS);
        assert_eq!(stats.insertions(), (evicted.load(Relaxed) + map.len()) as u64);
        while let Some(mut next) = map.try_next_eviction() {
            store[*next.key() as usize].store(next.remove().unwrap() as usize, Relaxed);
        }
        assert_eq!((map.len(), map.entries(), map.excess()), (0, 0, 0));
        assert_eq!((0..KEYS).map(load).sum::<u64>(), (THREADS + TASKS) * ROUNDS);
        assert!(evicted.load(Relaxed) > 0);
    }
}

/// A value weighs up to one and a half times the first bound on the weight of all values. Threads change the bound, and
/// writers change the weights.
#[test]
fn no_weight_is_lost_or_counted_twice() {
    const KEYS: u64 = 8;
    const MOST: u64 = 20;
    for (fairness, tells) in ALL.into_iter().zip([true, false].into_iter().cycle()) {
        let told = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&told);
        let mut builder =
            LockMap::<u64, Vec<u8>>::builder().fairness(fairness).max_weight(MOST, |_, value| value.len() as u32);
        if tells {
            builder = builder.on_evict(move |_, _, _| {
                counted.fetch_add(1, Relaxed);
            });
        }
        let map = builder.build();
        let map = &map;
        let new = |random: &mut Random| vec![0; random.next(MOST * 3 / 2) as usize];
        let thread = |mut random: Random| {
            for _ in 0..ROUNDS {
                let key = random.next(KEYS);
                match random.next(6) {
                    0 => drop(map.insert_blocking(&key, new(&mut random))),
                    1 => drop(map.update_blocking(&key, |value| value.resize(random.next(9) as usize, 0))),
                    2 => map.set_max_weight(MOST / 2 + random.next(MOST / 2)),
                    3 => drop(map.remove_blocking(&key)),
                    4 => drop(map.pop()),
                    _ => drop(map.get_or_insert_with_blocking(&key, || new(&mut random))),
                }
            }
        };
        let task = |mut random: Random| async move {
            for _ in 0..ROUNDS {
                let key = random.next(KEYS);
                let mut writer = map.write(&key).await;
                writer.insert(new(&mut random));
                let reader = writer.downgrade();
                let seen = reader.value().map(Vec::len);
                yield_now().await;
                assert_eq!(reader.value().map(Vec::len), seen, "a value was evicted or changed beside its reader");
            }
        };
        run_threads_and_tasks(thread, task);
        assert!(map.weight() <= map.max_weight().unwrap());
        assert_eq!(map.len(), map.entries());
        let mut sum = 0;
        assert_eq!(map.for_each_value(|_, value, _| sum += value.len() as u64), 0);
        assert_eq!(map.weight(), sum);
        assert_eq!((map.clear(), map.weight(), map.entries()), (0, 0, 0));
        assert_eq!(told.load(Relaxed) > 0, tells);
    }
}

/// A map whose values rest when nobody uses them. Some of them are counters, which stay; the others come and go.
struct Resting<K> {
    map: LockMap<K, u64>,
    keys: Vec<K>,
    /// The number of times that each counter was increased.
    increases: Vec<AtomicUsize>,
    /// The sum of the other values that were stored, minus that of those that were written over or removed.
    stored: AtomicU64,
    last: AtomicU64,
}

impl<K: Clone + Eq + Hash + Debug + Send + Sync> Resting<K> {
    const COUNTERS: usize = 4;
    const KEYS: u64 = 8;
    /// A value comes to rest after fewer calls than this.
    const ENOUGH: u32 = 40;

    fn new(fairness: Fairness, key: impl Fn(u64) -> K) -> Self {
        // The keys share one shard, or two.
        let map = LockMap::builder().fairness(fairness).shards(1 + usize::from(fairness == Fairness::Fifo)).build();
        let keys: Vec<_> = (0..Self::KEYS).map(key).collect();
        keys[..Self::COUNTERS].iter().for_each(|key| assert!(map.insert_blocking(key, 0).is_none()));
        let increases = keys[..Self::COUNTERS].iter().map(|_| AtomicUsize::new(0)).collect();
        Resting { map, keys, increases, stored: AtomicU64::new(0), last: AtomicU64::new(1) }
    }

    fn is_counter(&self, key: &K) -> bool {
        self.keys[..Self::COUNTERS].contains(key)
    }

    fn increased(&self, key: &K) {
        self.increases[self.keys.iter().position(|other| other == key).unwrap()].fetch_add(1, Relaxed);
    }

    /// Returns a counter, and one of the other keys.
    fn pick(&self, random: &mut Random) -> (&K, &K) {
        let (counters, others) = self.keys.split_at(Self::COUNTERS);
        (&counters[random.next(counters.len() as u64) as usize], &others[random.next(others.len() as u64) as usize])
    }

    fn new_value(&self) -> u64 {
        let value = self.last.fetch_add(1, Relaxed);
        self.stored.fetch_add(value, Relaxed);
        value
    }

    fn gone(&self, value: Option<u64>) {
        self.stored.fetch_sub(value.unwrap_or(0), Relaxed);
    }

    /// Visits the values without waiting, so it passes over those whose keys it cannot lock.
    fn visit(&self, random: &mut Random) {
        let mut seen = vec![];
        if random.next(2) == 0 {
            let passed_over = self.map.for_each_value(|key, _, _| seen.push(key.clone()));
            let counters = seen.iter().filter(|key| self.is_counter(key)).count();
            assert!(counters + passed_over >= Self::COUNTERS);
        } else {
            let mut removed = 0;
            let _ = self.map.retain(|key, value| {
                seen.push(key.clone());
                let keeps = self.is_counter(key) || value % 4 > 0;
                removed += if keeps { 0 } else { *value };
                keeps
            });
            self.gone(Some(removed));
        }
        self.check_visited(&seen);
    }

    /// Checks that no key was visited twice, and returns the number of visited counters.
    fn check_visited(&self, seen: &[K]) -> usize {
        for key in &self.keys {
            let visits = seen.iter().filter(|other| *other == key).count();
            assert!(visits <= 1, "{key:?} was visited {visits} times");
        }
        seen.iter().filter(|key| self.is_counter(key)).count()
    }

    fn thread(&self, mut random: Random) {
        let map = &self.map;
        for round in 0..ROUNDS {
            let (counter, other) = self.pick(&mut random);
            match random.next(8) {
                0 => {
                    *map.write_blocking(counter).value_mut().unwrap() += 1;
                    self.increased(counter);
                }
                1 => {
                    assert!(map.update_blocking(counter, |value| *value += 1).is_some());
                    self.increased(counter);
                }
                2 => {
                    let (value, version) = map.get_versioned_blocking(counter).unwrap();
                    if map.update_if_blocking(counter, version, value + 1).is_ok() {
                        self.increased(counter);
                    }
                }
                3 => {
                    let mut last = 0;
                    for _ in 0..Self::ENOUGH {
                        let seen = map.get_blocking(counter).expect("it stays");
                        assert!(seen >= last, "a counter went back");
                        last = seen;
                    }
                }
                4 => self.gone(map.remove_blocking(other)),
                5 if round % 16 == 0 => self.visit(&mut random),
                _ => self.gone(map.insert_blocking(other, self.new_value())),
            }
        }
    }

    async fn task(&self, mut random: Random) {
        let map = &self.map;
        for round in 0..ROUNDS {
            let (counter, other) = self.pick(&mut random);
            match random.next(8) {
                0 | 1 => {
                    let mut guard = map.write(counter).await;
                    let before = guard.version();
                    *guard.value_mut().unwrap() += 1;
                    assert!(guard.version() > before);
                    if random.next(8) == 0 {
                        yield_now().await;
                    }
                    drop(guard);
                    self.increased(counter);
                }
                2 => {
                    let handle = map.handle(other);
                    yield_now().await;
                    let mut guard = handle.write().await;
                    drop(handle);
                    self.gone(guard.insert(self.new_value()));
                }
                3 => {
                    // The future keeps the entry until it is dropped.
                    let _future = map.read(other);
                    assert!(map.get(counter).await.is_some());
                }
                4 => self.gone(map.remove(other).await),
                5 if round % 16 == 0 => {
                    let (mut walk, mut seen) = (map.walk(), vec![]);
                    while let Some(mut guard) = walk.next_write().await {
                        seen.push(guard.key().clone());
                        if self.is_counter(guard.key()) {
                            *guard.value_mut().unwrap() += 1;
                            self.increased(guard.key());
                        }
                    }
                    assert_eq!(self.check_visited(&seen), Self::COUNTERS);
                }
                _ => self.gone(map.insert(other, self.new_value()).await),
            }
        }
    }

    fn run(self) {
        run_threads_and_tasks(|random| self.thread(random), |random| self.task(random));
        for (key, increases) in self.keys.iter().zip(&self.increases) {
            assert_eq!(self.map.get_blocking(key), Some(increases.load(Relaxed) as u64), "an increase was lost");
        }
        let (len, entries) = (self.map.len(), self.map.entries());
        let (mut seen, mut sum) = (0, 0);
        let passed_over = self.map.for_each_value(|key, value, _| {
            seen += 1;
            sum += if self.is_counter(key) { 0 } else { *value };
        });
        assert_eq!((passed_over, seen, entries), (0, len, len));
        assert_eq!(sum, self.stored.load(Relaxed), "a value was lost or is there twice");
        let left: u64 = self
            .map
            .into_iter()
            .filter(|(key, _)| self.keys[Self::COUNTERS..].contains(key))
            .map(|(_, value)| value)
            .sum();
        assert_eq!(left, sum);
    }
}

#[test]
fn no_value_is_lost_that_comes_to_rest_and_is_used_again() {
    for fairness in ALL {
        Resting::new(fairness, |key| key).run();
        // A value whose key is larger, such as a `String`, would not rest.
        Resting::new(fairness, |key| key.to_string().into_boxed_str()).run();
    }
}
