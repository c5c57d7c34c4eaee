//! A bounded map remembers evicted keys: if a key comes back soon, its value is kept longer.

mod common;

use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use common::{Fixed, Random};
use keylatch::{LockMap, ManualClock};

type Map<S = Fixed> = LockMap<u64, u64, S>;

/// Creates a map of one shard, so that the bound is exact, with values for these keys, inserted in this order.
fn bounded(most: usize, keys: impl IntoIterator<Item = u64>) -> Map {
    let map = LockMap::builder().shards(1).max_values(most).hasher(Fixed::default()).build();
    insert(&map, keys);
    map
}

fn insert(map: &Map, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        map.insert_blocking(&key, key);
    }
}

fn has(map: &Map) -> Vec<u64> {
    (0..1000).filter(|key| map.contains_key(key)).collect()
}

/// Creates a map that is evicted by hand, with values for the keys 2, 3 and 1, in this order. Key 1 was evicted before.
fn recalled() -> Map {
    let map = LockMap::builder().shards(1).max_values(3).evict_by_hand().hasher(Fixed::default()).build();
    insert(&map, 1..=3);
    assert_eq!(map.try_next_eviction().unwrap().remove(), Some(1));
    insert(&map, [1]);
    map
}

/// Chooses the next value to evict, `n` times, and returns the keys. Nothing is evicted.
fn turns(map: &Map, n: usize) -> Vec<u64> {
    (0..n).map(|_| *map.try_next_eviction().unwrap().key()).collect()
}

#[test]
fn a_value_whose_key_was_evicted_lately_is_passed_over_once() {
    let map = bounded(3, 1..=4);
    insert(&map, [1]);
    assert_eq!(has(&map), [1, 3, 4], "1 and 2 were evicted, and 1 is back");
    insert(&map, 5..=7);
    assert_eq!(has(&map), [1, 6, 7], "5 was inserted after 1, but evicted before it");
    assert_eq!(turns(&recalled(), 8), [2, 3, 2, 3, 1, 2, 3, 1]);
}

#[test]
fn such_a_value_gains_a_pass_each_time_it_is_found_used() {
    let map = recalled();
    assert_eq!(turns(&map, 5), [2, 3, 2, 3, 1]);
    for _ in 0..3 {
        map.get_blocking(&1);
        map.get_blocking(&1);
        assert_eq!(turns(&map, 7), [2, 3, 2, 3, 2, 3, 1]);
    }
    // A value can have two passes.
    for _ in 0..5 {
        map.get_blocking(&1);
        assert_eq!(turns(&map, 2), [2, 3]);
    }
    assert_eq!(turns(&map, 5), [2, 3, 2, 3, 1]);
}

#[test]
fn so_does_any_other_value_that_was_found_used_before() {
    let map = bounded(3, 1..=3);
    map.get_blocking(&1);
    assert_eq!(turns(&map, 5), [2, 3, 1, 2, 3]);
    map.get_blocking(&1);
    assert_eq!(turns(&map, 5), [2, 3, 2, 3, 1]);
}

#[test]
fn a_key_is_remembered_once_for_each_eviction() {
    let map = bounded(3, 1..=4);
    insert(&map, [1]);
    map.remove_blocking(&1);
    insert(&map, [1, 5, 6, 7]);
    assert_eq!(has(&map), [5, 6, 7], "it came back, was removed, and was inserted once more");
}

#[test]
fn only_evictions_are_remembered() {
    let clock = std::sync::Arc::new(ManualClock::new());
    let map: Map = LockMap::builder()
        .shards(1)
        .max_values(3)
        .time_to_live(Duration::from_secs(1))
        .clock(clock.clone())
        .hasher(Fixed::default())
        .build();
    insert(&map, [1, 2]);
    map.remove_blocking(&1);
    clock.advance(Duration::from_secs(2));
    map.tick();
    insert(&map, [1, 2, 3, 4, 5]);
    assert_eq!(has(&map), [3, 4, 5], "1 had been removed, and 2 had ended");
}

#[test]
fn popped_keys_and_those_evicted_by_hand_are_remembered() {
    let popped = bounded(10, 1..=3);
    assert_eq!(popped.pop(), Some((1, 1)));
    insert(&popped, [1]);
    for map in [popped, recalled()] {
        insert(&map, [4]);
        let order: Vec<_> = std::iter::from_fn(|| map.pop()).map(|(key, _)| key).collect();
        assert_eq!(order, [2, 3, 4, 1]);
    }
}

#[test]
fn a_pop_takes_the_value_that_would_be_evicted_next_also_after_evictions() {
    let mut random = Random(5);
    for _ in 0..500 {
        let uses: Vec<_> = (0..200).map(|_| (random.next(2), random.next(30))).collect();
        let [popped, evicted] = [(); 2].map(|()| {
            let map = bounded(9, []);
            for &(what, key) in &uses {
                if what == 0 {
                    map.get_blocking(&key);
                } else {
                    map.insert_blocking(&key, key);
                }
            }
            map
        });
        let (key, _) = popped.pop().unwrap();
        insert(&evicted, [500]);
        assert!(!evicted.contains_key(&key), "{key} was popped, and {:?} stayed: {uses:?}", has(&evicted));
    }
}

#[test]
fn keys_with_the_same_hash_cost_only_hits() {
    #[derive(Default)]
    struct Constant;
    impl Hasher for Constant {
        fn finish(&self) -> u64 {
            7
        }

        fn write(&mut self, _: &[u8]) {}
    }
    let hasher = BuildHasherDefault::<Constant>::default();
    let map: Map<_> = LockMap::builder().shards(1).max_values(20).hasher(hasher).build();
    let mut random = Random(3);
    for key in 0..3000 {
        for key in [random.next(60), 1000 + key] {
            map.insert_blocking(&key, key);
            assert!(map.contains_key(&key) && map.len() <= 20);
            map.get_blocking(&random.next(60));
        }
    }
    let mut popped = 0;
    while map.pop().is_some() {
        popped += 1;
    }
    assert_eq!((popped, map.entries()), (20, 0));
}
