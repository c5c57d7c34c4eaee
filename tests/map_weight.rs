//! `max_weight`: what a value weighs, when it is weighed, and which values are evicted, kept, or not kept at all.

#![allow(dropping_copy_types, clippy::type_complexity)] // many calls are made only for their effect

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use futures_lite::future::block_on;
use keylatch::{Builder, Evicted, LockMap, ManualClock, table::MapKind};

/// A map whose values are their weights.
type Map = LockMap<u64, u64>;

const SECOND: Duration = Duration::from_secs(1);

fn builder(most: u64) -> Builder<MapKind<u64>, u64> {
    LockMap::builder().max_weight(most, |_, &value: &u64| value.try_into().unwrap_or(u32::MAX))
}

fn map(most: u64, values: impl IntoIterator<Item = (u64, u64)>) -> Map {
    let map = builder(most).build();
    values.into_iter().for_each(|(key, value)| drop(map.insert_blocking(&key, value)));
    map
}

fn has(map: &Map) -> Vec<u64> {
    (0..1000).filter(|key| map.contains_key(key)).collect()
}

/// Checks that the weight is the sum of those of all values, and returns it.
fn weight(map: &Map) -> u64 {
    let mut sum = 0;
    assert_eq!(map.for_each_value(|_, value, _| sum += value), 0);
    assert_eq!(map.weight(), sum);
    sum
}

fn message(refused: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(refused)).unwrap_err();
    let message = payload.downcast_ref::<String>().cloned();
    message.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap()
}

#[test]
fn a_bound_that_makes_no_sense_is_refused_with_a_message_that_names_the_argument() {
    let refused: [(&[&str], fn()); 6] = [
        (&["max_weight", "0", "1"], || drop(builder(0))),
        (&["max_weight", "max_values"], || drop(builder(1).max_values(1))),
        (&["max_weight", "max_values"], || drop(Map::builder().max_values(1).max_weight(1, |_, _| 1))),
        (&["max_weight", "0", "1"], || map(1, []).set_max_weight(0)),
        (&["set_max_weight", "max_weight"], || Map::builder().max_values(1).build().set_max_weight(1)),
        (&["set_max_values", "max_values"], || map(1, []).set_max_values(1)),
    ];
    for (words, refused) in refused {
        let message = message(refused);
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    assert_eq!((map(7, []).max_weight(), map(7, []).max_values()), (Some(7), None));
    let plain = Map::builder().max_values(7).build();
    plain.insert_blocking(&1, 1);
    assert_eq!((plain.max_weight(), plain.weight(), plain.max_values()), (None, 0, Some(7)));
}

/// Stores a value, in the way that has this number.
fn store(map: &Map, way: u64, key: u64, value: u64) {
    match way {
        0 => drop(map.insert_blocking(&key, value)),
        1 => drop(block_on(map.insert(&key, value))),
        2 => drop(map.write_blocking(&key).insert(value)),
        3 => drop(map.add_or_update_blocking(&key, value)),
        4 => drop(map.batch().insert(&key, value).commit_blocking().unwrap()),
        5 => drop(map.upgradable_read_blocking(&key).upgrade_mut_blocking().insert(value)),
        6 => map.write_many_blocking([&key]).iter_mut().for_each(|guard| drop(guard.insert(value))),
        7 => drop(map.compute_blocking(&key, |_| Some(value))),
        8 => *map.write_blocking(&key).value_slot() = Some(value),
        9 => *map.write_blocking(&key).get_or_insert_with(|| 1) = value,
        10 => {
            let mut writer = map.write_blocking(&key);
            writer.insert(value);
            drop(writer.downgrade_to_upgradable().downgrade());
        }
        11 => {
            let mut writer = map.write_blocking(&key);
            writer.insert(value);
            writer.unlock_fair();
        }
        12 => {
            let mut writer = map.handle(&key).write_blocking();
            writer.insert(value);
        }
        _ => {
            map.insert_if_absent_blocking(&key, 1).ok();
            map.update_blocking(&key, |old| *old = value);
        }
    }
}

const WAYS: u64 = 14;

#[test]
fn with_one_shard_the_bound_is_exact_for_every_way_to_store_a_value() {
    for most in [5, 20, 300] {
        let map = map(most, []);
        for step in 0..2000 {
            let (key, value) = (step * 7 % 50, 1 + step * 13 % 5);
            store(&map, step % WAYS, key, value);
            assert!(map.contains_key(&key), "the value just stored was evicted: {step}");
            assert!(weight(&map) <= most, "{step}");
            assert_eq!(map.entries(), map.len());
        }
        // Values are evicted only if the total weight would exceed the bound.
        assert!(map.weight() + 5 > most.min(150 - 45), "{} of {most}", map.weight());
        assert_eq!((map.clear(), map.weight(), map.entries()), (0, 0, 0));
    }
}

#[test]
fn calls_that_make_missing_values_weigh_them() {
    let map = Map::builder()
        .max_weight(10, |_, &value| value as u32)
        .record_ages()
        .clock(Arc::new(ManualClock::new()))
        .build();
    drop(map.get_or_insert_with_blocking(&1, || 4));
    drop(map.get_or_insert_blocking(&2, 5));
    drop(map.get_or_default_blocking(&3));
    assert_eq!(weight(&map), 9);
    assert_eq!(map.get_or_refresh_with_blocking(&1, Duration::ZERO, || 3), 3);
    assert_eq!(weight(&map), 8);
    assert_eq!(block_on(map.get_or_refresh_with(&4, SECOND, async || 2)), 2);
    assert_eq!(weight(&map), 10);
    assert_eq!(block_on(map.get_or_refresh_with(&4, Duration::ZERO, async || 3)), 3);
    assert!(weight(&map) <= 10 && map.contains_key(&4));
}

#[test]
fn the_owner_of_a_map_stores_values_that_are_weighed() {
    let mut map = map(10, [(1, 3)]);
    std::mem::forget(map.write_blocking(&2));
    map.extend([(1, 4), (2, 2), (3, 1)]);
    assert_eq!(map.weight(), 7);
    map.extend([(2, 5)]);
    assert_eq!(map.weight(), 10);
    map.extend([(4, 4)]);
    assert_eq!((map.weight(), map.contains_key(&2)), (9, true), "a locked value counts, and stays");
    let mut values: Vec<_> = map.into_iter().collect();
    values.sort_unstable();
    assert_eq!(values, [(2, 5), (4, 4)]);
}

#[test]
fn a_value_is_weighed_once_for_each_change() {
    let weighed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&weighed);
    let map: Map = LockMap::builder()
        .max_weight(100, move |_, _| {
            counted.fetch_add(1, Relaxed);
            1
        })
        .build();
    let calls = |f: &dyn Fn(&Map)| {
        weighed.store(0, Relaxed);
        f(&map);
        weighed.load(Relaxed)
    };
    assert_eq!(calls(&|map| drop(map.insert_blocking(&1, 1))), 1);
    assert_eq!(calls(&|map| drop(map.insert_blocking(&1, 1))), 1);
    let reads: [fn(&Map); 8] = [
        |map| drop(map.get_blocking(&1)),
        |map| drop(map.read_blocking(&1)),
        |map| drop(map.write_blocking(&1)),
        |map| drop(map.get_or_insert_with_blocking(&1, || 1)),
        |map| drop(map.peek_blocking(&1)),
        |map| drop(map.batch().check(&1, map.read_blocking(&1).version().unwrap()).commit_blocking().unwrap()),
        |map| drop(map.insert_if_absent_blocking(&1, 7)),
        |map| drop(map.write_blocking(&2)), // no value
    ];
    assert!(reads.iter().all(|read| calls(read) == 0));
    let changes = |map: &Map| {
        let mut writer = map.write_blocking(&1);
        writer.insert(2);
        *writer.value_mut().unwrap() += 1;
        writer.remove();
        writer.insert(2);
        drop(writer.downgrade()); // weighed when it becomes a reader, and not again
    };
    assert_eq!(calls(&changes), 1);
    assert_eq!(calls(&|map| drop(map.remove_blocking(&1))), 0);
}

/// The behaviour that moka documents for its weigher: an insertion evicts as many values as it must, an update counts
/// with the new weight, an update that makes a value heavier evicts others, and the total weight is known.
#[test]
fn a_heavy_value_takes_the_place_of_several_and_a_value_that_grows_evicts_others() {
    let map = map(31, [(1, 10), (2, 15), (3, 5)]);
    map.get_blocking(&3);
    map.insert_blocking(&4, 15); // 45: the first two are too many
    assert_eq!((has(&map), weight(&map)), (vec![3, 4], 20));
    map.insert_blocking(&2, 10);
    map.get_blocking(&2);
    map.get_blocking(&3);
    map.insert_blocking(&2, 20); // 40
    assert_eq!((has(&map), weight(&map)), (vec![2, 3], 25));
    map.insert_blocking(&1, 6);
    map.insert_blocking(&2, 15);
    assert_eq!((has(&map), weight(&map)), (vec![1, 2, 3], 26));
    map.remove_blocking(&1);
    assert_eq!((map.len(), weight(&map)), (2, 20));
}

#[test]
fn a_value_that_is_heavier_than_the_bound_is_not_kept_and_no_other_is_evicted_for_it() {
    for way in 0..WAYS {
        let map = map(10, [(1, 4), (2, 5)]);
        store(&map, way, 3, 11);
        assert_eq!((has(&map), weight(&map), map.entries()), (vec![1, 2], 9, 2), "way {way}");
        store(&map, way, 2, 11); // a value that grows is evicted itself
        assert_eq!((has(&map), weight(&map)), (vec![1], 4), "way {way}");
        store(&map, way, 2, u64::from(u32::MAX));
        assert_eq!((has(&map), weight(&map)), (vec![1], 4), "way {way}");
        store(&map, way, 2, 6);
        assert_eq!((has(&map), weight(&map)), (vec![1, 2], 10), "way {way}");
    }
}

#[test]
fn a_value_that_is_too_heavy_is_there_while_it_is_used() {
    let map = map(10, [(1, 4), (2, 5)]);
    let reader = map.get_or_insert_with_blocking(&3, || 11);
    let (handle, other) = (map.handle(&3), map.read_blocking(&3));
    map.insert_blocking(&4, 1); // the others fit beside it
    assert_eq!((has(&map), weight(&map)), (vec![1, 2, 3, 4], 21));
    drop(reader);
    drop(handle);
    assert_eq!(map.get_blocking(&3), Some(11));
    drop(other);
    assert_eq!((has(&map), weight(&map)), (vec![1, 2, 4], 10));

    let handle = map.handle(&3);
    map.insert_blocking(&3, 12);
    assert_eq!(map.get_blocking(&3), Some(12));
    assert_eq!((has(&map), weight(&map)), (vec![1, 2, 3, 4], 22));
    drop(handle);
    assert_eq!((has(&map), weight(&map)), (vec![1, 2, 4], 10));

    // An unpolled future does not use the value.
    map.insert_blocking(&3, 1);
    let future = map.get(&3);
    store(&map, 2, 3, 12);
    assert!(!map.contains_key(&3));
    assert_eq!(block_on(future), None);
    assert_eq!(map.entries(), map.len());
}

#[test]
fn a_value_that_is_too_heavy_is_kept_if_the_bound_is_raised_while_it_is_used() {
    let map = map(10, [(1, 4)]);
    let reader = map.get_or_insert_with_blocking(&2, || 11);
    map.set_max_weight(15);
    drop(reader);
    assert_eq!((has(&map), weight(&map)), (vec![1, 2], 15));
    let reader = map.read_blocking(&2);
    map.set_max_weight(10);
    assert_eq!((has(&map), map.weight()), (vec![1, 2], 15), "what is used stays, and nothing else goes for it");
    map.insert_blocking(&3, 1);
    drop(reader);
    assert_eq!((has(&map), weight(&map)), (vec![1, 3], 5));
}

#[test]
fn a_value_that_weighs_nothing_is_never_evicted() {
    let map = map(10, (0..500).map(|key| (key, 0)));
    for key in 500..600 {
        map.insert_blocking(&key, 4);
    }
    assert_eq!((map.len(), weight(&map)), (502, 8));
    assert_eq!(std::iter::from_fn(|| map.pop()).count(), 2);
    assert_eq!((map.len(), weight(&map), map.pop()), (500, 0, None));
    map.set_max_weight(1);
    assert_eq!(map.len(), 500);
    // A change gives a value a weight, and takes it away again.
    *map.write_blocking(&7).value_mut().unwrap() = 1;
    assert_eq!(weight(&map), 1);
    *map.write_blocking(&8).value_mut().unwrap() = 1;
    assert_eq!((map.len(), weight(&map), map.contains_key(&7)), (499, 1, false));
    *map.write_blocking(&8).value_mut().unwrap() = 0;
    assert_eq!((weight(&map), map.pop()), (0, None));
    assert_eq!((map.remove_blocking(&8), map.clear(), map.entries()), (Some(0), 0, 0));
}

#[test]
fn values_in_use_count_and_are_not_evicted() {
    let map = map(10, [(1, 4), (2, 4)]);
    let (reader, handle) = (map.read_blocking(&1), map.handle(&2));
    for key in 3..10 {
        map.insert_blocking(&key, 4); // the bound gives way: only the last one stays
        assert_eq!((has(&map), map.weight()), (vec![1, 2, key], 12));
    }
    drop(reader); // the bound is restored, by evicting values other than the one that was just released
    assert_eq!((has(&map), map.weight()), (vec![1, 2], 8));
    let writer = map.write_blocking(&1);
    map.insert_blocking(&3, 6);
    assert_eq!(map.weight(), 14);
    drop(handle);
    assert_eq!((map.contains_key(&3), map.weight()), (false, 8));
    drop(writer);
    assert_eq!(map.weight(), 8);
}

#[test]
fn a_change_under_a_guard_counts_when_the_guard_goes() {
    let map = map(10, [(1, 4), (2, 4)]);
    let mut writer = map.write_blocking(&2);
    *writer.value_mut().unwrap() = 7;
    assert_eq!((map.weight(), map.len()), (8, 2));
    let reader = writer.downgrade();
    assert_eq!((map.weight(), map.len()), (11, 2), "values are evicted when a key is released");
    drop(reader);
    assert_eq!((has(&map), weight(&map)), (vec![2], 7));

    let mut writer = map.write_blocking(&3);
    writer.insert(3);
    assert_eq!((map.weight(), map.len()), (7, 2));
    writer.remove();
    drop(writer);
    assert_eq!(weight(&map), 7);
}

#[test]
fn a_batch_makes_room_for_all_its_values_at_once() {
    let map = map(10, [(1, 4), (2, 4)]);
    map.batch().insert(&3, 3).insert(&4, 3).remove(&1).commit_blocking().unwrap();
    assert_eq!((has(&map), weight(&map)), (vec![2, 3, 4], 10));
    map.batch().insert(&5, 11).insert(&3, 1).commit_blocking().unwrap();
    assert_eq!((has(&map), weight(&map)), (vec![2, 3, 4], 8));
}

#[test]
fn the_bound_can_be_changed() {
    let map = map(100, (1..=10).map(|key| (key, 10)));
    map.get_blocking(&1);
    map.set_max_weight(35);
    assert_eq!((map.max_weight(), has(&map), weight(&map)), (Some(35), vec![1, 9, 10], 30));
    map.set_max_weight(u64::MAX);
    (20..40).for_each(|key| drop(map.insert_blocking(&key, u64::from(u32::MAX))));
    assert_eq!(weight(&map), 30 + 20 * u64::from(u32::MAX));
    map.set_max_weight(1);
    assert_eq!((map.len(), weight(&map)), (0, 0));
}

#[test]
fn each_shard_has_its_part_of_the_bound() {
    let map = builder(83).shards(8).build();
    for key in 0..2000 {
        map.insert_blocking(&key, 1 + key % 3);
        assert!(map.contains_key(&key) && map.weight() <= 83);
    }
    assert!(weight(&map) > 60);
    map.insert_blocking(&1, 12); // more than a shard's part
    assert!(!map.contains_key(&1));
    map.set_max_weight(8);
    assert!(weight(&map) <= 8);
    map.set_max_weight(800);
    map.insert_blocking(&1, 100);
    assert!(map.contains_key(&1));
}

#[test]
fn a_map_that_is_evicted_by_hand_tells_the_weight_that_is_too_much() {
    let map = builder(10).evict_by_hand().build();
    for (key, value) in [(1, 4), (2, 0), (3, 20), (4, 5)] {
        map.insert_blocking(&key, value);
    }
    assert_eq!((has(&map), weight(&map), map.excess()), (vec![1, 2, 3, 4], 29, 19));
    map.set_max_weight(12);
    assert_eq!(map.excess(), 17);
    map.get_blocking(&1);
    let mut gone = vec![];
    while map.excess() > 0 {
        let mut next = map.try_next_eviction().unwrap();
        gone.push(*next.key());
        next.remove();
    }
    assert_eq!((gone, has(&map), weight(&map)), (vec![3], vec![1, 2, 4], 9));
    map.set_max_weight(1);
    while let Some(mut next) = map.try_next_eviction() {
        next.remove();
    }
    assert_eq!((has(&map), map.excess()), (vec![2], 0));
    map.set_max_weight(u64::MAX);
    map.insert_blocking(&1, u64::from(u32::MAX));
    assert_eq!(map.excess(), 0);
}

#[test]
fn values_that_have_ended_weigh_nothing_and_go_before_live_ones() {
    let clock = Arc::new(ManualClock::new());
    let map = builder(100)
        .expire_with(|&key, _| (10..100).contains(&key).then_some(SECOND))
        .clock(Arc::clone(&clock))
        .build();
    (0..100).for_each(|key| drop(map.insert_blocking(&key, u64::from(key != 99))));
    let reader = map.read_blocking(&20);
    clock.advance(SECOND);
    assert_eq!((map.weight(), map.len()), (11, 11));
    map.batch().insert(&100, 30).insert(&101, 50).commit_blocking().unwrap();
    assert!((0..10).all(|key| map.contains_key(&key)));
    assert_eq!(weight(&map), 91);
    drop(reader);
    assert_eq!(weight(&map), 90);
    map.tick();
    assert_eq!((map.entries(), map.len()), (12, 12));
    map.set_max_weight(50);
    assert!(weight(&map) <= 50);
}

#[test]
fn evictions_for_weight_are_handed_over_and_counted_as_those_for_number_are() {
    let gone = Arc::new(Mutex::new(vec![]));
    let tells = Arc::clone(&gone);
    let map = builder(10)
        .on_evict(move |key, value, cause| {
            assert_eq!(cause, Evicted::Size);
            tells.lock().unwrap().push((key, value));
        })
        .record_stats()
        .build();
    for (key, value) in [(1, 4), (2, 4), (3, 4), (4, 20), (5, 0)] {
        map.insert_blocking(&key, value);
    }
    assert_eq!(*gone.lock().unwrap(), [(1, 4), (4, 20)]);
    let stats = map.stats().unwrap();
    assert_eq!((stats.evictions(Evicted::Size), stats.insertions()), (2, 5));

    // A future that has not been polled needs the key of its entry, so the value stays as long as the future does.
    let map: LockMap<String, u64> =
        LockMap::builder().max_weight(10, |_, &value| value as u32).on_evict(|_, _, _| {}).build();
    map.insert_blocking("a", 1);
    let future = map.get("a");
    map.insert_blocking("a", 11);
    map.insert_blocking("b", 9);
    assert_eq!((map.len(), map.weight()), (2, 20));
    drop(future);
    assert_eq!((map.len(), map.weight(), map.entries()), (1, 9, 1));
}

/// `on_evict` stores in the same map, nested so deep that a sweep leaves its part to the sweeps around it.
#[test]
fn values_that_nested_evictions_store_obey_the_bound_even_if_they_are_too_heavy() {
    for heavy in [2, 9, 30] {
        let (cell, left) = (Arc::new(OnceLock::<Weak<Map>>::new()), Arc::new(AtomicUsize::new(0)));
        let (inner, counted) = (Arc::clone(&cell), Arc::clone(&left));
        let map = builder(10).on_evict(move |key, _, _| {
            let Some(map) = inner.get().and_then(Weak::upgrade) else { return };
            let left = counted.load(Relaxed);
            if left > 0 {
                counted.store(left - 1, Relaxed);
                map.insert_blocking(&(100 + key % 50 + left as u64), if left % 3 == 0 { heavy } else { 4 });
            }
        });
        let map = Arc::new(map.build());
        assert!(cell.set(Arc::downgrade(&map)).is_ok());
        for key in 0..20 {
            left.store(key, Relaxed);
            map.insert_blocking(&(key as u64), 4);
            assert!(weight(&map) <= 10, "{}", map.weight());
        }
        assert_eq!(map.entries(), map.len());
    }
}

#[test]
fn a_value_that_a_lower_bound_makes_too_heavy_goes_and_no_other_goes_for_it() {
    for uses in [false, true] {
        let map = map(100, (1..=20).map(|key| (key, 2)));
        map.insert_blocking(&0, 60);
        if uses {
            (0..=20).for_each(|key| drop(map.get_blocking(&key)));
        }
        map.set_max_weight(50);
        assert_eq!((has(&map), weight(&map)), ((1..=20).collect(), 40));
    }
}

#[test]
fn a_value_in_use_that_a_lower_bound_makes_too_heavy_goes_when_its_last_user_leaves() {
    let map = map(100, (1..=20).map(|key| (key, 2)));
    map.insert_blocking(&0, 60);
    let reader = map.read_blocking(&0);
    map.set_max_weight(50);
    assert_eq!(map.weight(), 100);
    (21..=25).for_each(|key| drop(map.insert_blocking(&key, 2)));
    assert_eq!((map.weight(), map.len()), (110, 26));
    drop(reader);
    assert_eq!((has(&map), weight(&map)), ((1..=25).collect(), 50));
}

#[test]
fn a_value_in_use_counts_when_the_bound_is_raised_beyond_its_weight() {
    let map = map(10, [(2, 10)]);
    let handle = map.handle(&1);
    handle.write_blocking().insert(11);
    assert_eq!((map.weight(), has(&map)), (21, vec![1, 2]), "it is too heavy, so nothing goes for it");
    map.set_max_weight(20);
    assert_eq!((map.weight(), has(&map)), (11, vec![1]));
}

#[test]
fn a_value_that_the_bound_has_outgrown_for_a_moment_is_evicted_in_its_turn() {
    let this: Arc<OnceLock<Weak<Map>>> = Arc::default();
    let raised = Arc::clone(&this);
    let raise = move |_, _, _| {
        let map = raised.get().and_then(Weak::upgrade).unwrap();
        map.set_max_weight(10);
    };
    let map = Arc::new(builder(10).shards(1).on_evict(raise).build());
    this.set(Arc::downgrade(&map)).unwrap();
    map.insert_blocking(&1, 3);
    map.insert_blocking(&2, 3);
    // Both are heavier than the new bound. The eviction of one of them raises the bound again.
    map.set_max_weight(2);
    assert_eq!((map.len(), map.max_weight()), (1, Some(10)));
    map.insert_blocking(&3, 9);
    assert_eq!((has(&map), weight(&map)), (vec![3], 9));
}
