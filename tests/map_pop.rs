//! `peek`, `pop` and `set_max_values`: reads that do not count as a use, explicit eviction, and bounds that change.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use keylatch::{Equivalent, LockMap, ToKey};

mod common;
use common::{Fixed, poll};

type Map = LockMap<u64, u64>;

/// Makes a map with one shard and these keys.
fn bounded(most: usize, keys: impl IntoIterator<Item = u64>) -> Map {
    let map = LockMap::builder().shards(1).max_values(most).build();
    for key in keys {
        map.insert_blocking(&key, 10 * key);
    }
    map
}

fn has(map: &Map) -> Vec<u64> {
    (0..1000).filter(|key| map.contains_key(key)).collect()
}

fn pop_all(map: &Map) -> Vec<u64> {
    std::iter::from_fn(|| map.pop()).map(|(key, _)| key).collect()
}

// ---- peek ---------------------------------------------------------------------------------------------------------

#[test]
fn a_peek_returns_the_value_as_a_get_does() {
    let map = LockMap::<String, String>::new();
    assert_eq!((map.peek_blocking("a"), block_on(map.peek("a"))), (None, None));
    map.insert_blocking("a", "x".into());
    assert_eq!(map.peek_blocking("a").as_deref(), Some("x"));
    assert_eq!(block_on(map.peek("a")).as_deref(), Some("x"));
    // A key without a value, in use.
    let _guard = map.read_blocking("b");
    assert_eq!((map.peek_blocking("b"), block_on(map.peek("b"))), (None, None));
    assert_eq!((map.len(), map.entries()), (1, 2));
}

#[test]
fn a_get_keeps_a_value_from_eviction_and_a_peek_does_not() {
    type Peek = fn(&Map);
    let peeks: [Peek; 4] = [
        |map| {
            map.peek_blocking(&1);
        },
        |map| {
            block_on(map.peek(&1));
        },
        // Because of the claim of the unpolled future, the peek acquires a hold.
        |map| {
            let unpolled = map.read(&1);
            map.peek_blocking(&1);
            drop(unpolled);
        },
        |map| {
            let mut peek = Box::pin(map.peek(&1));
            assert_eq!(poll(&mut peek), Poll::Ready(Some(10)));
        },
    ];
    for peek in peeks {
        let map = bounded(2, [1, 2]);
        peek(&map);
        map.insert_blocking(&3, 30);
        assert_eq!(has(&map), [2, 3]);
    }
    let map = bounded(2, [1, 2]);
    map.get_blocking(&1);
    map.insert_blocking(&3, 30);
    assert_eq!(has(&map), [1, 3]);
}

#[test]
fn a_peek_does_not_clear_the_mark_of_a_use() {
    let map = bounded(2, [1, 2]);
    map.get_blocking(&1);
    map.peek_blocking(&1);
    block_on(map.peek(&1));
    map.insert_blocking(&3, 30);
    assert_eq!(has(&map), [1, 3]);
}

#[test]
fn a_peek_waits_for_a_writer_and_leaves_nothing_when_dropped() {
    let map = bounded(2, [1]);
    let mut writer = map.write_blocking(&1);
    let mut peek = Box::pin(map.peek(&1));
    assert!(poll(&mut peek).is_pending());
    let dropped = Box::pin(map.peek(&1));
    writer.insert(11);
    assert_eq!(map.status(&1).unwrap().waiting_readers(), 1);
    drop(writer);
    assert_eq!(poll(&mut peek), Poll::Ready(Some(11)));
    drop((peek, dropped));
    map.remove_blocking(&1);
    assert_eq!(map.entries(), 0);
}

#[test]
fn a_peek_needs_no_owned_key() {
    struct NoClone(u64);
    #[derive(Hash)]
    struct Number(u64);
    impl PartialEq for NoClone {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }
    impl Eq for NoClone {}
    impl std::hash::Hash for NoClone {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl Equivalent<NoClone> for Number {
        fn equivalent(&self, key: &NoClone) -> bool {
            self.0 == key.0
        }
    }
    let map: LockMap<NoClone, u64> = [(NoClone(7), 1)].into_iter().collect();
    assert_eq!(map.peek_blocking(&Number(7)), Some(1));
    assert_eq!(block_on(map.peek(&Number(7))), Some(1));
    assert_eq!(block_on(map.peek(&Number(8))), None);
}

// ---- pop ----------------------------------------------------------------------------------------------------------

#[test]
fn a_pop_takes_the_value_that_would_be_evicted_next() {
    for uses in [&[][..], &[1], &[1, 2, 3], &[3, 5], &[1, 2, 3, 4, 5]] {
        let [popped, evicted] = [(); 2].map(|()| {
            let map = bounded(5, 1..=5);
            uses.iter().for_each(|key| {
                map.get_blocking(key);
            });
            map
        });
        let (key, value) = popped.pop().unwrap();
        assert_eq!(value, 10 * key);
        evicted.insert_blocking(&6, 60);
        assert!(!evicted.contains_key(&key), "{uses:?}: {key} was popped, and {:?} stayed", has(&evicted));
        assert_eq!((popped.len(), popped.entries()), (4, 4));
        // The next pop continues where the first one left the hand.
        let (next, _) = popped.pop().unwrap();
        evicted.insert_blocking(&7, 70);
        assert!(!evicted.contains_key(&next), "{uses:?}: then {next}, and {:?} stayed", has(&evicted));
    }
}

#[test]
fn pops_empty_a_map_in_order_of_eviction() {
    let map = bounded(1000, 1..=300);
    map.get_blocking(&1);
    map.get_blocking(&300);
    assert_eq!(pop_all(&map), (2..300).chain([1, 300]).collect::<Vec<_>>());
    assert_eq!((map.len(), map.entries(), map.pop()), (0, 0, None));
    map.insert_blocking(&1, 10);
    assert_eq!(map.pop(), Some((1, 10)));
}

#[test]
fn a_value_in_use_is_not_popped() {
    let map = Arc::new(bounded(100, 1..=6));
    let reader = map.read_blocking(&1);
    let handle = map.handle_arc(&2);
    let mut writer = map.write_blocking(&3);
    let mut waiter = Box::pin(map.read(&3));
    assert!(poll(&mut waiter).is_pending());
    let unpolled = map.write(&4);
    writer.insert(31);
    map.write_blocking(&7).insert(70);
    assert_eq!(pop_all(&map), [5, 6, 7]);
    assert_eq!(map.len(), 4);
    drop((reader, handle, unpolled));
    // The values of 1, 2 and 4 are no longer in use.
    let popped = pop_all(&map);
    assert_eq!(popped.len(), 3);
    assert!([1, 2, 4].iter().all(|key| popped.contains(key)));
    drop(writer);
    assert_eq!(map.pop(), None, "it was handed to the waiter");
    drop(poll(&mut waiter));
    assert_eq!(map.pop(), Some((3, 31)));
    drop(waiter);
    assert_eq!(map.entries(), 0);
}

#[test]
fn a_parked_value_can_be_popped_after_its_release() {
    let map = bounded(1, [1]);
    let reader = map.read_blocking(&1);
    map.insert_blocking(&2, 20); // the hand passes the value that is in use
    map.insert_blocking(&3, 30);
    assert_eq!(has(&map), [1, 3]);
    assert_eq!(map.pop(), Some((3, 30)));
    assert_eq!(map.pop(), None);
    drop(reader);
    assert_eq!(map.pop(), Some((1, 10)));
}

#[test]
fn a_pop_that_passes_a_value_in_use_keeps_its_place_in_the_order() {
    let map = bounded(3, [1, 2, 3]);
    let reader = map.read_blocking(&1);
    assert_eq!(map.pop(), Some((2, 20)));
    drop(reader);
    map.insert_blocking(&4, 40);
    // The order is 1, 3, 4, with the hand at 3; 1 was used.
    assert_eq!(pop_all(&map), [3, 4, 1]);
}

#[test]
fn a_map_without_a_bound_cannot_be_popped() {
    let map: Map = [(1, 10)].into_iter().collect();
    assert_eq!((map.pop(), map.len(), map.max_values()), (None, 1, None));
    // A map with a bound can be popped, even if it never evicts.
    let map = bounded(usize::MAX, 0..1000);
    assert_eq!((map.len(), map.max_values()), (1000, Some(usize::MAX)));
    assert_eq!(pop_all(&map), (0..1000).collect::<Vec<_>>());
}

#[test]
fn pops_take_turns_among_shards_and_find_every_value() {
    let map: Map = LockMap::builder().shards(8).max_values(1000).build();
    (0..400).for_each(|key| {
        map.insert_blocking(&key, key);
    });
    let first: Vec<_> = (0..80).map(|_| map.pop().unwrap().0).collect();
    let mut all = pop_all(&map);
    all.extend(first);
    all.sort_unstable();
    assert_eq!(all, (0..400).collect::<Vec<_>>());
    assert_eq!((map.len(), map.entries()), (0, 0));
}

#[test]
fn a_pop_returns_the_owned_key_even_if_keys_are_recycled() {
    for recycle in [false, true] {
        let builder = LockMap::builder().shards(1).max_values(100).recycle_keys(recycle).pool_capacity(4);
        let map: LockMap<String, Arc<()>, Fixed> = builder.hasher(Fixed::default()).build();
        let token = Arc::new(());
        for round in 0..3 {
            for n in 0..50 {
                map.insert_blocking(format!("{round} {n}").as_str(), Arc::clone(&token));
            }
            for n in 0..50 {
                let (key, value) = map.pop().unwrap();
                assert_eq!(key, format!("{round} {n}"));
                assert!(Arc::ptr_eq(&value, &token));
            }
            assert_eq!((map.pop(), map.entries()), (None, 0));
        }
        assert_eq!(Arc::strong_count(&token), 1);
    }
}

#[test]
fn a_popped_key_gets_later_versions_when_inserted_again() {
    let map = bounded(10, [1]);
    let before = map.read_blocking(&1).version();
    assert_eq!(map.pop(), Some((1, 10)));
    map.insert_blocking(&1, 11);
    assert!(map.read_blocking(&1).version() > before);
}

#[test]
fn a_pop_ends_while_other_threads_keep_using_all_values() {
    let map = Arc::new(bounded(1000, 0..300));
    let stop = Arc::new(AtomicUsize::new(0));
    let users: Vec<_> = (0..2)
        .map(|_| {
            let (map, stop) = (Arc::clone(&map), Arc::clone(&stop));
            thread::spawn(move || {
                while stop.load(Relaxed) == 0 {
                    (0..300).for_each(|key| {
                        map.get_blocking(&key);
                    });
                }
            })
        })
        .collect();
    let mut popped = 0;
    while popped < 300 {
        popped += usize::from(map.pop().is_some());
    }
    stop.store(1, Relaxed);
    users.into_iter().for_each(|user| user.join().unwrap());
    assert_eq!((map.len(), map.entries()), (0, 0));
}

// ---- set_max_values -----------------------------------------------------------------------------------------------

#[test]
fn a_smaller_bound_evicts_unused_values_at_once() {
    let map = bounded(10, 1..=10);
    map.get_blocking(&2);
    map.get_blocking(&9);
    map.set_max_values(3);
    assert_eq!((has(&map), map.max_values(), map.entries()), (vec![2, 9, 10], Some(3), 3));
    map.insert_blocking(&11, 0);
    assert_eq!(map.len(), 3);
}

#[test]
fn a_larger_bound_is_reached_by_insertions() {
    let map = bounded(2, 1..=4);
    map.set_max_values(5);
    assert_eq!(has(&map), [3, 4]);
    (10..20).for_each(|key| {
        map.insert_blocking(&key, key);
    });
    assert_eq!(map.len(), 5);
    map.set_max_values(usize::MAX);
    (100..900).for_each(|key| {
        map.insert_blocking(&key, key);
    });
    assert_eq!(map.len(), 805);
}

#[test]
fn a_value_in_use_when_the_bound_shrinks_is_evicted_after_its_release() {
    let map = bounded(10, 1..=10);
    let readers: Vec<_> = (1..=5).map(|key| map.read_blocking(&key)).collect();
    let handle = map.handle(&6);
    map.set_max_values(2);
    assert_eq!(has(&map), [1, 2, 3, 4, 5, 6]);
    for (released, reader) in readers.into_iter().enumerate() {
        drop(reader);
        // The value that was just released stays.
        assert_eq!(map.len(), 6 - released);
    }
    drop(handle);
    assert_eq!(map.len(), 2);
    map.insert_blocking(&20, 0);
    assert_eq!(map.len(), 2);
}

#[test]
fn a_new_bound_is_divided_among_the_shards() {
    let map: Map = LockMap::builder().shards(8).max_values(800).build();
    (0..5000).for_each(|key| {
        map.insert_blocking(&key, key);
    });
    assert_eq!(map.len(), 800);
    for most in [83, 16, 500, 8] {
        map.set_max_values(most);
        assert!(map.len() <= most, "{} of {most}", map.len());
        (0..5000).for_each(|key| {
            map.insert_blocking(&key, key);
        });
        assert_eq!(map.len(), most);
    }
    // Less than one value for each shard: a shard whose part is 0 keeps the value that was inserted last.
    map.set_max_values(3);
    assert_eq!(map.len(), 3);
    (0..5000).for_each(|key| {
        map.insert_blocking(&key, key);
    });
    assert!((3..=8).contains(&map.len()), "{}", map.len());
}

#[test]
fn bounds_set_at_once_leave_parts_of_the_same_bound_in_all_shards() {
    let map: Arc<Map> = Arc::new(LockMap::builder().shards(16).max_values(1600).build());
    for _ in 0..200 {
        let setters: Vec<_> = [160, 320]
            .map(|most| {
                let map = Arc::clone(&map);
                thread::spawn(move || map.set_max_values(most))
            })
            .into_iter()
            .collect();
        setters.into_iter().for_each(|setter| setter.join().unwrap());
    }
    (0..20_000).for_each(|key| {
        map.insert_blocking(&key, key);
    });
    assert_eq!(Some(map.len()), map.max_values());
}

fn message(refused: Box<dyn std::any::Any + Send>) -> String {
    let literal = refused.downcast_ref::<&str>().map(ToString::to_string);
    literal.or_else(|| refused.downcast_ref::<String>().cloned()).unwrap()
}

#[test]
fn a_bound_of_zero_and_a_bound_for_an_unbounded_map_are_refused() {
    let map = bounded(2, [1, 2]);
    let refused = message(catch_unwind(AssertUnwindSafe(|| map.set_max_values(0))).unwrap_err());
    assert!(refused.contains("max_values") && refused.contains('1') && refused.contains('0'), "{refused}");
    assert_eq!((map.max_values(), map.len()), (Some(2), 2));
    let map: Map = [(1, 1)].into_iter().collect();
    let refused = message(catch_unwind(AssertUnwindSafe(|| map.set_max_values(5))).unwrap_err());
    assert!(refused.contains("set_max_values") && refused.contains("usize::MAX"), "{refused}");
    assert_eq!((map.max_values(), map.len()), (None, 1));
}

// ---- user code ----------------------------------------------------------------------------------------------------

/// A value that uses the map when it is dropped, and panics if the test says so.
struct Nosy {
    map: std::sync::Weak<LockMap<u64, Nosy>>,
    drops: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Nosy {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Relaxed);
        if let Some(map) = self.map.upgrade() {
            // The keys that the test has inserted: none of their shards is locked.
            (0..10).for_each(|key| drop(map.try_write(&key).expect("no key is held while a value is dropped")));
            map.insert_blocking(&5000, Nosy { map: Default::default(), drops: Arc::default(), panics: false });
        }
        if self.panics {
            resume_unwind(Box::new("dropped"));
        }
    }
}

#[test]
fn a_new_bound_drops_all_evicted_values_with_no_lock_held_even_if_one_panics() {
    for panics in [false, true] {
        let map: Arc<LockMap<u64, Nosy>> = Arc::new(LockMap::builder().shards(4).max_values(400).build());
        let drops = Arc::<AtomicUsize>::default();
        for key in 0..10 {
            let value = Nosy { map: Arc::downgrade(&map), drops: Arc::clone(&drops), panics: panics && key % 3 == 0 };
            map.insert_blocking(&key, value);
        }
        let result = catch_unwind(AssertUnwindSafe(|| map.set_max_values(4)));
        assert_eq!(result.is_err(), panics);
        assert!(drops.load(Relaxed) >= 6);
        assert!(map.len() <= 4 + 4, "{}", map.len());
        while catch_unwind(AssertUnwindSafe(|| map.pop().is_some())).unwrap_or(true) {}
        assert_eq!((map.entries(), drops.load(Relaxed)), (0, 10));
    }
}

/// A key whose drop panics if its number is 77. (A pop may free a chunk, and so drop the old keys in it.)
#[derive(PartialEq, Eq, Hash)]
struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 == 77 {
            resume_unwind(Box::new(self.0));
        }
    }
}

#[derive(PartialEq, Eq, Hash)]
struct Number(u64);

impl Equivalent<Bomb> for Number {
    fn equivalent(&self, key: &Bomb) -> bool {
        self.0 == key.0
    }
}

impl ToKey<Bomb> for Number {
    fn to_key(&self) -> Bomb {
        Bomb(self.0)
    }
}

#[test]
fn the_drop_of_a_popped_key_panics_in_its_caller() {
    let map: LockMap<Bomb, u64> = LockMap::builder().shards(1).max_values(10).build();
    map.insert_blocking(&Number(77), 7);
    let popped = map.pop().unwrap();
    assert_eq!((popped.1, map.entries()), (7, 0));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(popped))).is_err());
    map.insert_blocking(&Number(1), 7);
    assert_eq!(map.len(), 1);
}

#[test]
fn pops_and_changes_of_the_bound_beside_other_calls_leak_nothing() {
    let token = Arc::new(());
    let map: Arc<LockMap<u64, Arc<()>>> = Arc::new(LockMap::builder().shards(2).max_values(8).build());
    let deadline = std::time::Instant::now() + Duration::from_millis(300);
    let threads: Vec<_> = (0..4_u64)
        .map(|by| {
            let (map, token) = (Arc::clone(&map), Arc::clone(&token));
            thread::spawn(move || {
                let mut random = common::Random(by + 1);
                while std::time::Instant::now() < deadline {
                    let key = random.next(16);
                    match random.next(8) {
                        0 => drop(map.pop()),
                        1 => map.set_max_values(1 + random.next(12) as usize),
                        2 => drop(map.remove_blocking(&key)),
                        3 => drop(map.peek_blocking(&key)),
                        4 => {
                            let guard = map.read_blocking(&key);
                            let before = guard.value().is_some();
                            thread::yield_now();
                            assert_eq!(guard.value().is_some(), before);
                        }
                        _ => drop(map.insert_blocking(&key, Arc::clone(&token))),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(map.len() <= map.max_values().unwrap().max(2));
    assert_eq!((map.entries(), Arc::strong_count(&token)), (map.len(), map.len() + 1));
    while map.pop().is_some() {}
    assert_eq!((map.entries(), Arc::strong_count(&token)), (0, 1));
}
