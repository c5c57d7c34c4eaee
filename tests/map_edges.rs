//! Lines of the map's code that seem unnecessary: each test fails if one of them is removed.

mod common;

use std::cell::RefCell;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use common::ready;
use keylatch::{LockMap, Version};

fn version(map: &LockMap<u64, u64>, key: u64) -> Version {
    map.try_read(&key).unwrap().version().unwrap()
}

/// Creates a map of one shard, so that the bound is exact, with values for these keys, oldest first.
fn bounded(most: usize, keys: impl IntoIterator<Item = u64>) -> LockMap<u64, u64> {
    let map = LockMap::builder().shards(1).max_values(most).build();
    for key in keys {
        map.insert_blocking(&key, key);
    }
    map
}

/// Gives keys 1 and 2 values.
fn fill(map: &LockMap<u64, u64>) {
    for key in [1, 2] {
        map.insert_blocking(&key, 0);
    }
}

fn keys(map: &LockMap<u64, u64>) -> Vec<u64> {
    (0..1000).filter(|key| map.contains_key(key)).collect()
}

#[test]
fn extend_gives_each_value_a_new_version_and_keeps_no_claim() {
    let mut map = LockMap::builder().shards(1).build();
    map.insert_blocking(&7, 1);
    let first = version(&map, 7);
    map.extend([(7, 2)]);
    let second = version(&map, 7);
    assert!(second > first, "the new value has an old version");
    assert_eq!(map.remove_blocking(&7), Some(2));
    assert_eq!(map.entries(), 0);
    map.extend([(7, 3)]);
    assert!(version(&map, 7) > second, "a version was used again after a removal");
    assert!(map.update_if_blocking(&7, second, 9).is_err());
    map.extend([(7, 4)]);
    map.extend([(7, 5), (8, 6)]);
    assert_eq!((map.clear(), map.entries()), (0, 0));
    // An entry without a value that a forgotten reader keeps.
    std::mem::forget(map.read_blocking(&9));
    map.insert_blocking(&10, 1);
    let seen = version(&map, 10);
    map.remove_blocking(&10);
    map.extend([(9, 1), (10, 1)]);
    assert!(version(&map, 10) > seen);
    let before = map.try_read(&9).unwrap().version().unwrap();
    map.extend([(9, 2)]);
    assert!(version(&map, 9) > before);
}

/// A hasher that hashes all keys alike.
#[derive(Default)]
struct Same;

impl Hasher for Same {
    fn finish(&self) -> u64 {
        7
    }

    fn write(&mut self, _: &[u8]) {}
}

impl BuildHasher for Same {
    type Hasher = Same;

    fn build_hasher(&self) -> Same {
        Same
    }
}

#[test]
fn a_batch_tells_keys_of_one_hash_apart() {
    let map: LockMap<u64, u64, Same> = LockMap::builder().hasher(Same).build();
    let made = map.batch().insert(&1, 10).insert(&2, 20).check_absent(&3).commit_blocking().unwrap();
    assert_eq!((map.get_blocking(&1), map.get_blocking(&2), map.get_blocking(&3)), (Some(10), Some(20), None));
    map.batch().update_if(&1, made[0].unwrap(), 11).remove(&2).insert(&1, 12).commit_blocking().unwrap();
    assert_eq!((map.get_blocking(&1), map.get_blocking(&2)), (Some(12), None));
}

#[test]
fn an_old_key_is_dropped_when_its_slot_is_reused() {
    let map: LockMap<Arc<u64>, u64> = LockMap::builder().shards(1).recycle_keys(true).build();
    let names: Vec<Arc<u64>> = (0..6).map(Arc::new).collect();
    ready(Box::pin(map.insert(&names[0], 0)));
    ready(Box::pin(map.remove(&names[0])));
    // A key can be inserted in several ways: at once, under the shard lock; into an entry that a future created; with a
    // computed value; or by a guard.
    ready(Box::pin(map.insert(&names[1], 1)));
    ready(Box::pin(map.remove(&names[1])));
    drop(ready(Box::pin(map.get_or_insert_with(&names[2], async || 2))));
    ready(Box::pin(map.remove(&names[2])));
    ready(Box::pin(map.add_or_update(&names[3], 3)));
    ready(Box::pin(map.remove(&names[3])));
    map.write_blocking(&names[4]).insert(4);
    map.remove_blocking(&names[4]);
    map.insert_blocking(&names[5], 5);
    map.remove_blocking(&names[5]);
    drop(map);
    assert!(names.iter().all(|name| Arc::strong_count(name) == 1), "a key was leaked");
}

#[test]
fn the_keys_of_a_map_are_dropped_with_it_even_if_its_values_own_nothing() {
    let name = Arc::new(7);
    let map: LockMap<Arc<u64>, u64> = [(Arc::clone(&name), 1)].into_iter().collect();
    drop(map);
    assert_eq!(Arc::strong_count(&name), 1);
    let map: LockMap<Arc<u64>, u64> = [(Arc::clone(&name), 1), (Arc::new(8), 2)].into_iter().collect();
    let mut left = map.into_iter();
    left.next();
    drop(left);
    assert_eq!(Arc::strong_count(&name), 1);
}

/// A key whose drop is counted, and panics.
#[derive(PartialEq, Eq, Hash)]
struct Bomb(u64, Counter);

#[derive(Clone)]
struct Counter(Arc<AtomicUsize>);

impl PartialEq for Counter {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Counter {}

impl Hash for Counter {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.1.0.fetch_add(1, SeqCst);
        resume_unwind(Box::new(self.0));
    }
}

#[test]
fn keys_whose_drops_panic_are_dropped_with_the_map_even_if_its_values_own_nothing() {
    let counter = Counter(Arc::default());
    let map = || {
        let mut map = LockMap::<Bomb, u64>::builder().shards(1).build();
        map.extend((0..5).map(|n| (Bomb(n, counter.clone()), n)));
        map
    };
    let all = map();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(all))).is_err());
    assert_eq!(counter.0.swap(0, SeqCst), 5);
    let mut left = map().into_iter();
    std::mem::forget(left.next());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(left))).is_err());
    assert_eq!(counter.0.swap(0, SeqCst), 4);
}

#[test]
fn the_size_hint_of_an_iterator_is_correct() {
    for shards in [1, 4] {
        let mut map: LockMap<u64, u64> = LockMap::builder().shards(shards).build();
        map.extend((0..20).map(|key| (key, key)));
        let mut values = map.into_iter();
        for left in (0..20).rev() {
            values.next().unwrap();
            let (least, most) = values.size_hint();
            assert!(
                least <= left && most.unwrap() >= left,
                "{left} values are left, but the hint is {least} to {most:?}"
            );
        }
    }
}

/// A value whose drop counts how many of the keys 1 to 3 are locked.
struct Probe {
    map: Weak<LockMap<u64, Probe>>,
    locked: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let Some(map) = self.map.upgrade() else { return };
        self.dropped.fetch_add(1, SeqCst);
        let locked = (1..4).filter(|key| map.try_write(key).is_none()).count();
        self.locked.fetch_add(locked, SeqCst);
    }
}

#[test]
fn a_value_that_a_batch_does_not_store_is_dropped_with_no_key_locked() {
    let map: Arc<LockMap<u64, Probe>> = Arc::default();
    let (locked, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let probe = || Probe { map: Arc::downgrade(&map), locked: Arc::clone(&locked), dropped: Arc::clone(&dropped) };
    map.insert_blocking(&1, probe());
    let old = map.try_read(&1).unwrap().version().unwrap();
    drop(map.insert_blocking(&1, probe()));
    assert_eq!(dropped.swap(0, SeqCst), 1);
    // The value of the conflicting step is dropped, and so are those of the steps around it.
    let batch = map.batch().insert(&2, probe()).update_if(&1, old, probe()).insert(&3, probe());
    assert_eq!(batch.commit_blocking().unwrap_err().step(), 1);
    assert_eq!((dropped.swap(0, SeqCst), locked.load(SeqCst)), (3, 0));
    // A value that a later step overwrites is dropped, too.
    map.batch().insert(&2, probe()).insert(&2, probe()).commit_blocking().unwrap();
    assert_eq!((dropped.swap(0, SeqCst), locked.load(SeqCst)), (1, 0));
}

#[test]
fn a_value_that_was_inserted_after_a_removal_has_not_been_used() {
    let map = bounded(2, [1, 2]);
    let mut guard = map.write_blocking(&1); // a use of the old value
    guard.remove();
    guard.insert(9);
    drop(guard); // 1 is the newest now
    map.get_blocking(&2);
    map.insert_blocking(&3, 3);
    assert_eq!(keys(&map), [2, 3]);
}

#[test]
fn overwriting_a_value_counts_as_a_use() {
    let map = bounded(2, []);
    let mut guard = map.write_blocking(&1);
    guard.insert(1);
    guard.insert(2);
    drop(guard);
    map.insert_blocking(&2, 2);
    map.insert_blocking(&3, 3);
    assert_eq!(keys(&map), [1, 3], "overwritten by the guard that had inserted it");

    let map = bounded(2, [1, 2]);
    map.insert_blocking(&1, 10);
    map.insert_blocking(&3, 3);
    assert_eq!(keys(&map), [1, 3], "overwritten by a call");
}

#[test]
fn a_locked_key_without_a_value_is_not_counted_as_skipped() {
    let map: LockMap<u64, u64> = LockMap::builder().shards(1).build();
    fill(&map);
    let removed = RefCell::new(None);
    let passed_over = map.for_each_value(|key, _, _| {
        let mut guard = map.try_write(&(3 - key)).unwrap();
        guard.remove().unwrap();
        assert!(removed.replace(Some(guard)).is_none(), "more than one value was left");
    });
    assert_eq!(passed_over, 0);
    // If there is a value, the key is counted as skipped.
    drop(removed.into_inner());
    fill(&map);
    let locked = RefCell::new(None);
    let passed_over = map.for_each_value(|key, _, _| drop(locked.replace(map.try_write(&(3 - key)))));
    assert_eq!(passed_over, 1);
}

#[test]
fn a_bound_that_cannot_be_divided_evenly_is_not_exceeded() {
    for (most, shards) in [(10, 4), (7, 2), (100, 64)] {
        let map: LockMap<u64, u64> = LockMap::builder().shards(shards).max_values(most).build();
        for key in 0..5_000 {
            map.insert_blocking(&key, key);
            assert!(map.len() <= most, "{} values, of at most {most} in {shards} shards", map.len());
        }
    }
}

/// More values than are examined under one lock.
const MANY: u64 = 10_000;

#[test]
fn with_very_many_used_values_one_is_evicted_for_a_new_one() {
    let map = bounded(MANY as usize, 0..MANY);
    for key in 0..MANY {
        assert_eq!(map.get_blocking(&key), Some(key));
    }
    map.insert_blocking(&MANY, MANY);
    assert_eq!(map.len(), MANY as usize);
    assert_eq!(map.get_blocking(&0), None, "all values were used, so the oldest is evicted");
}

#[test]
fn with_very_many_locked_values_one_is_evicted_once_it_is_free() {
    let map = bounded(MANY as usize, 0..MANY);
    let readers: Vec<_> = (0..MANY).map(|key| map.try_read(&key).unwrap()).collect();
    map.insert_blocking(&MANY, MANY);
    map.insert_blocking(&(MANY + 1), MANY);
    drop(readers);
    assert_eq!(map.len(), MANY as usize);
}

#[test]
fn very_many_values_are_visited_once_each_while_others_change() {
    for shards in [1, 16] {
        let map: LockMap<u64, u64> = LockMap::builder().shards(shards).build();
        for key in 0..MANY {
            map.insert_blocking(&key, key);
        }
        let mut seen = vec![0; MANY as usize];
        let mut next = MANY;
        let passed_over = map.for_each_value(|&key, _, _| {
            if let Some(seen) = seen.get_mut(key as usize) {
                *seen += 1;
            }
            // Slots are freed and reused.
            map.insert_blocking(&next, next);
            if next > MANY + 3 {
                map.remove_blocking(&(next - 3));
            }
            next += 1;
        });
        assert_eq!(passed_over, 0);
        assert!(seen.iter().all(|&times| times == 1));
        let mut keys = 0;
        map.for_each_key(|_, _| keys += 1);
        assert_eq!(keys, map.len());
    }
}
