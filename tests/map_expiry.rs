//! Values that end: a value whose time has passed is not there for any call.

mod common;

use std::future::ready;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_lite::future::block_on;
use keylatch::{AddOrUpdate, Evicted, Fairness, LockMap, ManualClock, MapReadGuard, MapWriteGuard};

use common::poll;

type Map = LockMap<String, u64>;

const SECOND: Duration = Duration::from_secs(1);

/// Makes a map whose values live for ten seconds, and its clock.
fn map() -> (Map, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let map = LockMap::builder().time_to_live(10 * SECOND).clock(Arc::clone(&clock)).shards(1).build();
    (map, clock)
}

/// Makes a map whose only value, 7 at "a", has ended, but is still in memory.
fn over() -> (Map, Arc<ManualClock>) {
    let (map, clock) = map();
    map.insert_blocking("a", 7);
    clock.advance(10 * SECOND);
    (map, clock)
}

#[test]
fn a_value_is_there_until_its_time_has_passed() {
    let (map, clock) = map();
    map.insert_blocking("a", 7);
    clock.advance(10 * SECOND - Duration::from_nanos(1));
    assert_eq!((map.get_blocking("a"), map.len(), map.contains_key("a")), (Some(7), 1, true));
    clock.advance(Duration::from_nanos(1));
    assert_eq!((map.len(), map.contains_key("a"), map.is_empty()), (0, false, true));
    assert_eq!(map.get_blocking("a"), None);
    assert_eq!(map.entries(), 0);
}

#[test]
fn no_call_finds_a_value_that_is_over() {
    assert_eq!(over().0.get_blocking("a"), None);
    assert_eq!(over().0.peek_blocking("a"), None);
    assert_eq!(over().0.get_versioned_blocking("a"), None);
    assert_eq!(over().0.insert_blocking("a", 8), None);
    assert_eq!(over().0.remove_blocking("a"), None);
    assert_eq!(over().0.update_blocking("a", |value| *value += 1), None);
    assert!(over().0.insert_if_absent_blocking("a", 8).is_ok());
    assert_eq!(over().0.add_or_update_blocking("a", 7), AddOrUpdate::Added);
    assert_eq!(over().0.get_or_insert_blocking("a", 8).value(), Some(&8));
    assert_eq!(over().0.get_or_insert_with_blocking("a", || 8).value(), Some(&8));
    assert!(
        over()
            .0
            .compute_blocking("a", |value| {
                assert_eq!(value, None);
                None
            })
            .is_none()
    );
    assert_eq!(over().0.read_blocking("a").value(), None);
    assert_eq!(over().0.upgradable_read_blocking("a").version(), None);
    assert_eq!(over().0.write_blocking("a").value_mut(), None);
    assert_eq!(over().0.try_read_recursive("a").unwrap().value(), None);
    assert_eq!(over().0.pop(), None);
    assert_eq!(over().0.walk().next_read_blocking().map(|guard| guard.key().clone()), None);
    assert_eq!(over().0.for_each_value(|_, _, _| unreachable!("it is over")), 0);
    assert_eq!(over().0.retain(|_, _| unreachable!("it is over")), 0);
    assert_eq!(over().0.into_iter().next(), None);
    let (map, _clock) = over();
    let (reads, writes) = map.read_write_many_blocking(["b"], ["a"]);
    assert!(reads.iter().chain([]).all(|guard| guard.value().is_none()));
    assert!(writes.iter().all(|guard| guard.value().is_none()));
}

#[test]
fn no_async_call_finds_a_value_that_is_over() {
    block_on(async {
        assert_eq!(over().0.get("a").await, None);
        assert_eq!(over().0.peek("a").await, None);
        assert_eq!(over().0.insert("a", 8).await, None);
        assert_eq!(over().0.remove("a").await, None);
        assert_eq!(over().0.read("a").await.value(), None);
        assert_eq!(over().0.get_or_insert_with("a", async || 8).await.value(), Some(&8));
        let (map, _clock) = over();
        assert!(map.walk().next_write().until(ready(())).await.unwrap().is_none());
    });
}

#[test]
fn a_future_that_was_made_before_the_end_finds_no_value_after_it() {
    let (map, clock) = map();
    map.insert_blocking("a", 7);
    let (get, read, peek) = (map.get("a"), map.read("a"), map.peek("a"));
    let remove = map.remove("a");
    clock.advance(10 * SECOND);
    assert_eq!(block_on(get), None);
    assert_eq!(block_on(read).value(), None);
    assert_eq!(block_on(peek), None);
    assert_eq!(block_on(remove), None);
    assert_eq!((map.len(), map.entries()), (0, 0));
}

#[test]
fn conditions_of_batches_see_the_end() {
    let (map, clock) = map();
    map.insert_blocking("a", 7);
    let version = map.read_blocking("a").version().unwrap();
    assert!(map.batch().check("a", version).commit_blocking().is_ok());
    assert!(map.batch().check_absent("a").commit_blocking().is_err());
    clock.advance(10 * SECOND);
    let conflict = map.batch().check("a", version).insert("b", 1).commit_blocking().unwrap_err();
    assert_eq!((conflict.key().as_str(), conflict.found()), ("a", None));
    map.insert_blocking("a", 8);
    clock.advance(10 * SECOND);
    assert!(map.batch().check_absent("a").update_if("b", version, 1).commit_blocking().is_err());
    assert_eq!(map.batch().check_absent("a").insert("b", 1).commit_blocking().unwrap().len(), 2);
    assert_eq!(map.update_if_blocking("a", version, 1).unwrap_err().found(), None);
    assert_eq!(map.remove_if_blocking("a", version).unwrap_err().found(), None);
}

#[test]
fn a_version_never_comes_again() {
    let (map, clock) = map();
    let mut last = None;
    for round in 0..20 {
        map.insert_blocking("a", round);
        let version = map.read_blocking("a").version();
        assert!(version > last);
        last = version;
        clock.advance(10 * SECOND);
        if round % 2 == 0 {
            assert_eq!(map.get_blocking("a"), None);
        }
    }
}

#[test]
fn a_change_begins_the_time_anew() {
    let (map, clock) = map();
    map.insert_blocking("a", 1);
    for n in 0..5_u64 {
        clock.advance(9 * SECOND);
        match n {
            0 => drop(map.insert_blocking("a", 2)),
            1 => *map.write_blocking("a").value_mut().unwrap() += 1,
            2 => assert!(map.update_blocking("a", |value| *value += 1).is_some()),
            3 => assert!(map.compute_blocking("a", |value| value).is_some()),
            _ => assert!(map.batch().insert("a", 5).commit_blocking().is_ok()),
        }
    }
    clock.advance(9 * SECOND);
    assert_eq!(map.get_blocking("a"), Some(5)); // a read is no change
    drop(map.write_blocking("a")); // nor is a writer that changes nothing
    clock.advance(SECOND);
    assert_eq!(map.get_blocking("a"), None);
}

#[test]
fn the_time_begins_when_the_writer_releases_the_key_or_becomes_a_reader() {
    let (map, clock) = map();
    let mut writer = map.write_blocking("a");
    writer.insert(7);
    clock.advance(20 * SECOND);
    assert!(map.contains_key("a") && map.len() == 1);
    assert_eq!(writer.value(), Some(&7));
    let reader = writer.downgrade();
    clock.advance(9 * SECOND);
    drop(reader);
    assert_eq!(map.get_blocking("a"), Some(7));
    clock.advance(SECOND);
    assert_eq!(map.get_blocking("a"), None);

    let mut reader = map.upgradable_read_blocking("a");
    reader.upgrade_mut_blocking().insert(8);
    clock.advance(9 * SECOND);
    assert_eq!(map.get_blocking("a"), Some(8));
    clock.advance(SECOND);
    drop(reader);
    assert_eq!(map.get_blocking("a"), None);
}

#[test]
fn a_value_does_not_end_under_a_guard_and_is_over_when_the_guard_goes() {
    let (map, clock) = map();
    map.insert_blocking("a", 7);
    let reader = map.read_blocking("a");
    clock.advance(20 * SECOND);
    assert_eq!(reader.value(), Some(&7));
    assert_eq!((map.get_blocking("a"), map.len(), map.contains_key("a")), (Some(7), 1, true));
    assert_eq!(map.tick(), None);
    let second = map.read_blocking("a");
    drop(reader);
    assert_eq!(second.value(), Some(&7));
    drop(second);
    assert_eq!((map.len(), map.entries()), (0, 0));

    map.insert_blocking("a", 8);
    let mut writer = map.write_blocking("a");
    clock.advance(20 * SECOND);
    assert_eq!(writer.remove(), Some(8));
    writer.insert(9);
    drop(writer);
    assert_eq!(map.get_blocking("a"), Some(9));
    let writer = map.write_blocking("a");
    clock.advance(20 * SECOND);
    drop(writer); // it has changed nothing
    assert_eq!(map.get_blocking("a"), None);
}

#[test]
fn a_waiter_gets_the_key_without_the_value_that_has_ended_while_it_waited() {
    let clock = Arc::new(ManualClock::new());
    let map: Map =
        LockMap::builder().time_to_live(10 * SECOND).clock(Arc::clone(&clock)).fairness(Fairness::Fifo).build();
    map.insert_blocking("a", 7);
    let reader = map.read_blocking("a");
    let mut writer = pin!(map.write("a"));
    let mut others = [(); 2].map(|()| Box::pin(map.read("a")));
    assert!(poll(&mut writer).is_pending());
    assert!(others.iter_mut().all(|other| poll(other).is_pending()));
    let mut walk = map.walk();
    let mut next = walk.next_read();
    assert!(poll(&mut next).is_pending());
    clock.advance(10 * SECOND);
    assert_eq!(reader.value(), Some(&7));
    drop(reader);
    let writer: MapWriteGuard<'_, _, _> = block_on(writer);
    assert_eq!((writer.value(), writer.version()), (None, None));
    drop(writer);
    let others: Vec<MapReadGuard<'_, _, _>> = others.into_iter().map(block_on).collect();
    assert!(others.iter().all(|reader| reader.value().is_none()));
    assert!(block_on(next).is_none());
}

#[test]
fn a_waiter_that_stores_a_value_displaces_the_one_that_has_ended() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (clock, tells) = (Arc::new(ManualClock::new()), Arc::clone(&told));
    let map: LockMap<String, Arc<u64>> = LockMap::builder()
        .time_to_live(10 * SECOND)
        .clock(Arc::clone(&clock))
        .on_evict(move |key, value, cause| tells.lock().unwrap().push((key, value, cause)))
        .build();
    let value = Arc::new(7);
    map.insert_blocking("a", Arc::clone(&value));
    let reader = map.read_blocking("a");
    let mut writer = pin!(map.write("a"));
    assert!(poll(&mut writer).is_pending());
    clock.advance(10 * SECOND);
    drop(reader);
    let mut writer = block_on(writer);
    assert!(writer.insert(Arc::new(8)).is_none());
    assert!(told.lock().unwrap().is_empty(), "not while the key is held");
    drop(writer);
    let told = std::mem::take(&mut *told.lock().unwrap());
    assert_eq!(told, [("a".to_string(), value, Evicted::Expired)]);
    assert_eq!(map.get_blocking("a"), Some(Arc::new(8)));
}

#[test]
fn a_use_extends_the_life_of_a_value_that_ends_when_idle() {
    let clock = Arc::new(ManualClock::new());
    let map: Map =
        LockMap::builder().time_to_live(100 * SECOND).time_to_idle(10 * SECOND).clock(Arc::clone(&clock)).build();
    map.insert_blocking("a", 7);
    for uses in 0..10 {
        clock.advance(9 * SECOND);
        match uses % 3 {
            0 => drop(map.read_blocking("a")),
            1 => drop(map.write_blocking("a")),
            _ => assert_eq!(map.get_blocking("a"), Some(7)),
        }
    }
    clock.advance(9 * SECOND);
    assert_eq!(map.get_blocking("a"), Some(7)); // after 99 seconds
    clock.advance(SECOND);
    assert_eq!(map.get_blocking("a"), None); // its whole life is over

    map.insert_blocking("a", 8);
    clock.advance(9 * SECOND);
    assert_eq!(map.peek_blocking("a"), Some(8));
    assert!(map.contains_key("a"));
    assert_eq!(map.for_each_value(|_, _, _| {}), 0);
    assert!(map.walk().next_read_blocking().is_some());
    clock.advance(SECOND);
    assert_eq!(map.get_blocking("a"), None); // none of these was a use
}

#[test]
fn a_function_is_asked_once_for_each_change() {
    let (clock, asked) = (Arc::new(ManualClock::new()), Arc::new(AtomicUsize::new(0)));
    let asks = Arc::clone(&asked);
    let map: Map = LockMap::builder()
        .expire_with(move |key: &String, value: &u64| {
            assert_eq!(key, "a");
            asks.fetch_add(1, Relaxed);
            (*value > 0).then(|| Duration::from_secs(*value))
        })
        .clock(Arc::clone(&clock))
        .build();
    map.insert_blocking("a", 5);
    map.get_blocking("a");
    drop((map.read_blocking("a"), map.try_upgradable_read("a")));
    drop(map.write_blocking("a"));
    assert_eq!(asked.load(Relaxed), 1);
    map.update_blocking("a", |value| *value = 3);
    assert_eq!(asked.load(Relaxed), 2);
    clock.advance(3 * SECOND);
    assert_eq!(map.get_blocking("a"), None);
    map.insert_blocking("a", 0); // never
    clock.advance(1000 * SECOND);
    assert_eq!((map.get_blocking("a"), asked.load(Relaxed)), (Some(0), 3));
    assert_eq!(map.tick(), None);
    let mut writer = map.write_blocking("a");
    for n in 1..5 {
        writer.insert(n);
    }
    drop(writer);
    assert_eq!(asked.load(Relaxed), 4);
}

#[test]
fn the_earliest_of_several_times_counts() {
    let clock = Arc::new(ManualClock::new());
    let map: LockMap<u64, Option<Duration>> = LockMap::builder()
        .time_to_live(10 * SECOND)
        .expire_with(|_, value: &Option<Duration>| *value)
        .clock(Arc::clone(&clock))
        .build();
    map.insert_blocking(&1, Some(5 * SECOND));
    map.insert_blocking(&2, Some(50 * SECOND));
    map.insert_blocking(&3, None);
    map.insert_blocking(&4, Some(Duration::ZERO));
    map.insert_blocking(&5, Some(Duration::MAX));
    assert_eq!(map.len(), 4);
    assert_eq!(map.tick(), Some(5 * SECOND));
    clock.advance(5 * SECOND);
    assert_eq!(map.tick(), Some(5 * SECOND));
    assert_eq!((map.len(), map.entries()), (3, 3));
    clock.advance(5 * SECOND);
    assert!(map.is_empty());
}

#[test]
fn tick_disposes_of_all_ended_values_in_all_shards() {
    let clock = Arc::new(ManualClock::new());
    let map: LockMap<u64, u64> = LockMap::builder()
        .expire_with(|_, seconds| Some(Duration::from_secs(*seconds)))
        .clock(Arc::clone(&clock))
        .shards(8)
        .build();
    for key in 0..1000 {
        map.insert_blocking(&key, 1 + key % 10);
    }
    for second in 1..=10 {
        assert_eq!(map.tick(), Some(SECOND));
        clock.advance(SECOND);
        assert_eq!(map.len(), 1000 - 100 * second);
        map.tick();
        assert_eq!(map.entries(), 1000 - 100 * second);
    }
    assert_eq!(map.tick(), None);
}

#[test]
fn ended_values_are_reclaimed_in_passing() {
    let (map, clock) = map();
    for n in 0..1000 {
        map.insert_blocking(&format!("{n}"), n);
    }
    clock.advance(10 * SECOND);
    for n in 0..500 {
        map.insert_blocking(&format!("new {n}"), n);
    }
    assert_eq!((map.len(), map.entries()), (500, 500));
}

#[test]
fn ended_values_are_handed_over_with_their_cause() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (clock, tells) = (Arc::new(ManualClock::new()), Arc::clone(&told));
    let map: Map = LockMap::builder()
        .time_to_live(10 * SECOND)
        .max_values(2)
        .shards(1)
        .record_stats()
        .clock(Arc::clone(&clock))
        .on_evict(move |key, value, cause| tells.lock().unwrap().push((key, value, cause)))
        .build();
    let take = || std::mem::take(&mut *told.lock().unwrap());
    map.insert_blocking("a", 1);
    map.insert_blocking("b", 2);
    map.insert_blocking("c", 3);
    assert_eq!(take(), [("a".to_string(), 1, Evicted::Size)]);
    map.remove_blocking("b");
    clock.advance(10 * SECOND);
    assert_eq!((map.len(), take()), (0, vec![]));
    assert_eq!(map.tick(), None);
    assert_eq!(take(), [("c".to_string(), 3, Evicted::Expired)]);
    map.insert_blocking("d", 4);
    clock.advance(10 * SECOND);
    map.insert_blocking("d", 5);
    assert_eq!(take(), [("d".to_string(), 4, Evicted::Expired)]);
    let stats = map.stats().unwrap();
    assert_eq!((stats.evictions(Evicted::Size), stats.evictions(Evicted::Expired)), (1, 2));
    assert_eq!(stats.insertions(), 5);
}

#[test]
fn an_ended_value_makes_room_before_others_are_evicted() {
    let clock = Arc::new(ManualClock::new());
    let map: LockMap<u64, u64> = LockMap::builder()
        .expire_with(|_, seconds| Some(Duration::from_secs(*seconds)))
        .max_values(3)
        .shards(1)
        .clock(Arc::clone(&clock))
        .build();
    for (key, seconds) in [(1, 100), (2, 1), (3, 100)] {
        map.insert_blocking(&key, seconds);
    }
    clock.advance(SECOND);
    map.insert_blocking(&4, 100);
    assert!([1, 3, 4].iter().all(|key| map.contains_key(key)));
    map.insert_blocking(&5, 100);
    assert_eq!(map.len(), 3);
    assert!(!map.contains_key(&1));
}

#[test]
fn values_that_are_evicted_by_hand_end_too() {
    let clock = Arc::new(ManualClock::new());
    let map: Map = LockMap::builder()
        .time_to_live(10 * SECOND)
        .max_values(1)
        .shards(1)
        .evict_by_hand()
        .clock(Arc::clone(&clock))
        .build();
    map.insert_blocking("a", 1);
    clock.advance(5 * SECOND);
    map.insert_blocking("b", 2);
    map.insert_blocking("c", 3);
    assert_eq!(map.excess(), 2);
    clock.advance(5 * SECOND);
    assert_eq!(map.excess(), 1);
    let mut next = map.try_next_eviction().unwrap();
    assert_eq!(next.key(), "b");
    clock.advance(5 * SECOND); // does not end under the guard
    assert_eq!(next.remove(), Some(2));
    drop(next);
    assert!(map.try_next_eviction().is_none());
    assert_eq!((map.excess(), map.len()), (0, 0));
}

#[test]
fn a_handle_keeps_the_entry_and_the_memory_of_an_ended_value() {
    for tells in [false, true] {
        let (clock, told) = (Arc::new(ManualClock::new()), Arc::new(AtomicUsize::new(0)));
        let mut builder = LockMap::<String, Arc<()>>::builder().time_to_live(10 * SECOND).clock(Arc::clone(&clock));
        if tells {
            let told = Arc::clone(&told);
            builder = builder.on_evict(move |_, _, _| {
                told.fetch_add(1, Relaxed);
            });
        }
        let map = builder.build();
        let value = Arc::new(());
        let handle = map.handle("a");
        map.insert_blocking("a", Arc::clone(&value));
        clock.advance(10 * SECOND);
        map.tick();
        assert_eq!((map.len(), map.entries()), (0, 1));
        assert_eq!(handle.read_blocking().value(), None);
        assert_eq!(Arc::strong_count(&value), 2);
        assert!(handle.try_write().is_some());
        drop(handle);
        assert_eq!((map.entries(), Arc::strong_count(&value)), (0, 1));
        assert_eq!(told.load(Relaxed), usize::from(tells));
    }
}

#[test]
fn a_cancelled_waiter_leaves_the_end_of_the_value_to_others() {
    let (map, clock) = map();
    map.insert_blocking("a", 7);
    let reader = map.read_blocking("a");
    let mut writer = Box::pin(map.write("a"));
    assert!(poll(&mut writer).is_pending());
    clock.advance(10 * SECOND);
    drop(reader); // hands the key over to the writer
    drop(writer);
    assert_eq!((map.len(), map.entries()), (0, 0));

    map.insert_blocking("a", 7);
    let first = map.write_blocking("a");
    let mut second = Box::pin(map.read("a"));
    assert!(poll(&mut second).is_pending());
    drop(first);
    drop(second); // was granted, and has not settled
    let reader = map.read_blocking("a");
    clock.advance(10 * SECOND);
    assert_eq!(reader.value(), Some(&7));
    drop(reader);
    assert_eq!(map.get_blocking("a"), None);
}

#[test]
fn a_map_can_be_extended_and_taken_apart() {
    let (mut map, clock) = map();
    map.extend([("a".to_string(), 1), ("b".to_string(), 2)]);
    clock.advance(9 * SECOND);
    map.extend([("a".to_string(), 3)]);
    clock.advance(SECOND);
    assert_eq!((map.len(), map.get_blocking("b")), (1, None));
    assert_eq!(map.into_iter().collect::<Vec<_>>(), [("a".to_string(), 3)]);

    let (mut map, clock) = self::map();
    map.insert_blocking("a", 1);
    std::mem::forget(map.read_blocking("a"));
    std::mem::forget(map.write_blocking("c"));
    clock.advance(10 * SECOND);
    map.extend([("a".to_string(), 2), ("c".to_string(), 3)]);
    let mut values: Vec<_> = map.into_iter().collect();
    values.sort_unstable();
    assert_eq!(values, [("a".to_string(), 2), ("c".to_string(), 3)]);
}

#[test]
fn hits_and_misses_agree_with_the_end() {
    let clock = Arc::new(ManualClock::new());
    let map: Map = LockMap::builder().time_to_live(SECOND).record_stats().clock(Arc::clone(&clock)).build();
    map.insert_blocking("a", 1);
    map.get_blocking("a");
    drop(map.read_blocking("a"));
    clock.advance(SECOND);
    map.get_blocking("a");
    drop(map.read_blocking("a"));
    let stats = map.stats().unwrap();
    assert_eq!((stats.hits(), stats.misses()), (2, 2));
}

#[test]
fn the_default_clock_runs() {
    let map: Map = LockMap::builder().time_to_live(Duration::from_millis(1)).build();
    map.insert_blocking("a", 7);
    let began = std::time::Instant::now();
    while map.contains_key("a") {
        assert!(began.elapsed() < Duration::from_secs(60), "the value does not end");
        std::thread::yield_now();
    }
    assert!(began.elapsed() >= Duration::from_millis(1) || map.is_empty());

    let map: Map = LockMap::builder().time_to_live(Duration::MAX).build();
    map.insert_blocking("a", 7);
    assert_eq!((map.get_blocking("a"), map.tick()), (Some(7), None));
}

#[test]
fn a_map_whose_values_do_not_end_never_reads_its_clock() {
    let reads = Arc::new(AtomicU64::new(0));
    struct Counts(Arc<AtomicU64>);
    impl keylatch::Clock for Counts {
        fn now(&self) -> Duration {
            Duration::from_secs(self.0.fetch_add(1, Relaxed))
        }
    }
    let map: Map = LockMap::builder().clock(Counts(Arc::clone(&reads))).build();
    map.insert_blocking("a", 7);
    assert_eq!((map.get_blocking("a"), map.len(), map.tick()), (Some(7), 1, None));
    assert_eq!(reads.load(Relaxed), 0, "the values of this map do not end");
}

#[test]
fn values_that_are_taken_out_one_by_one_no_longer_end() {
    let (map, clock) = map();
    for key in ["a", "b", "c"] {
        map.insert_blocking(key, 7);
    }
    let mut values = map.into_iter();
    assert_eq!(values.size_hint().0, 3);
    assert!(values.next().is_some());
    clock.advance(10 * SECOND);
    let (least, most) = values.size_hint();
    let rest: Vec<_> = values.collect();
    assert!(least <= rest.len() && most.is_none_or(|most| rest.len() <= most), "{least}, {most:?}, {}", rest.len());
    assert_eq!(rest.len(), 2);
}

#[test]
fn a_value_that_had_many_handles_is_evicted_again() {
    let map = LockMap::<u64, u64>::builder().max_values(1).shards(1).expire_with(|_, _| None).build();
    map.insert_blocking(&1, 1);
    drop((0..64).map(|_| map.handle(&1)).collect::<Vec<_>>());
    for key in 2..20 {
        map.insert_blocking(&key, key);
    }
    assert_eq!((map.len(), map.contains_key(&1)), (1, false));
}

#[test]
fn a_call_that_finds_no_value_disposes_of_others_that_have_ended() {
    let (map, clock) = map();
    for key in 0..100_u64 {
        map.insert_blocking(&key.to_string(), key);
    }
    clock.advance(10 * SECOND);
    for _ in 0..100 {
        drop(map.write_blocking("another"));
    }
    assert_eq!(map.entries(), 0);
}

#[test]
fn a_value_that_no_longer_ends_is_not_waited_for() {
    let clock = Arc::new(ManualClock::new());
    let map: LockMap<u64, Option<u64>> = LockMap::builder()
        .expire_with(|_, value: &Option<u64>| value.map(Duration::from_secs))
        .clock(Arc::clone(&clock))
        .build();
    map.insert_blocking(&1, Some(1));
    map.insert_blocking(&1, None);
    clock.advance(2 * SECOND);
    assert_eq!(map.tick(), None);
    map.insert_blocking(&1, Some(3));
    assert_eq!(map.tick(), Some(3 * SECOND));
}
