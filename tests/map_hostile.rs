//! A map with keys and values whose code panics, at each place in turn, or uses the map: guarantee 5 for `V`, and the
//! promises about the drops of values that the map itself discards.

#![allow(dropping_copy_types, clippy::drop_non_drop, clippy::type_complexity)] // many calls are made only for their effect

mod common;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::task::Poll;

use common::hostile::{Hostile, LIVE, LIVE_VALUES, Value, disarm, hook, panic_after, panic_in};
use common::poll;
use futures_lite::future::block_on;
use keylatch::{LockMap, ToKey};

type Map = LockMap<Hostile, Value>;

const PLACES: [&str; 8] = ["hash", "eq", "clone", "clone_from", "drop", "value's drop", "value's clone", "value's eq"];

/// Creates a key to call the map with.
fn key(n: u32) -> Hostile {
    Hostile::new(n)
}

/// Polls a future once.
fn once<F: Future>(future: F) {
    let mut future = Box::pin(future);
    if let Poll::Ready(output) = poll(&mut future) {
        drop(output);
    }
}

/// Returns the operations, for a map in which the keys 1 and 2 have values, 3 has none, and 4 is held by a writer.
fn operations() -> Vec<(&'static str, fn(&Map))> {
    vec![
        ("insert", |map| drop(map.insert_blocking(&key(3), Value::new(3)))),
        ("insert over", |map| drop(map.insert_blocking(&key(1), Value::new(3)))),
        ("remove", |map| drop(map.remove_blocking(&key(1)))),
        ("remove nothing", |map| drop(map.remove_blocking(&key(3)))),
        ("get", |map| drop(map.get_blocking(&key(2)))),
        ("make", |map| drop(map.get_or_insert_with_blocking(&key(3), || Value::new(3)))),
        ("find", |map| drop(map.get_or_insert_with_blocking(&key(1), || Value::new(3)))),
        ("fail", |map| drop(map.get_or_try_insert_with_blocking(&key(3), || Err(Value::new(3))))),
        ("add", |map| drop(map.add_or_update_blocking(&key(3), Value::new(3)))),
        ("update", |map| drop(map.add_or_update_blocking(&key(1), Value::new(3)))),
        ("the same", |map| drop(map.add_or_update_blocking(&key(1), Value::new(1)))),
        ("update if", |map| {
            let seen = map.read_blocking(&key(1)).version().unwrap();
            drop(map.update_if_blocking(&key(1), seen, Value::new(3)));
            drop(map.update_if_blocking(&key(1), seen, Value::new(4)));
            drop(map.update_if_blocking(&key(3), seen, Value::new(4)));
        }),
        ("remove if", |map| {
            let seen = map.read_blocking(&key(1)).version().unwrap();
            drop(map.remove_if_blocking(&key(1), seen));
            drop(map.remove_if_blocking(&key(1), seen));
        }),
        ("async insert", |map| once(map.insert(&key(3), Value::new(3)))),
        ("async insert over", |map| once(map.insert(&key(1), Value::new(3)))),
        ("async remove", |map| once(map.remove(&key(1)))),
        ("async get", |map| once(map.get(&key(2)))),
        ("async make", |map| once(map.get_or_insert_with(&key(3), async || Value::new(3)))),
        ("async find", |map| once(map.get_or_insert_with(&key(1), async || Value::new(3)))),
        ("async fail", |map| once(map.get_or_try_insert_with(&key(3), async || Err(Value::new(3))))),
        ("async add", |map| once(map.add_or_update(&key(3), Value::new(3)))),
        ("async update", |map| once(map.add_or_update(&key(1), Value::new(3)))),
        ("async wait", |map| {
            once(map.insert(&key(4), Value::new(3)));
            once(map.get_or_insert_with(&key(4), async || Value::new(3)));
            once(map.batch().insert(&key(3), Value::new(3)).insert(&key(4), Value::new(4)).commit());
        }),
        ("unpolled", |map| {
            drop(map.insert(&key(3), Value::new(3)));
            drop(map.batch().insert(&key(3), Value::new(3)).commit());
        }),
        ("guard", |map| {
            let mut guard = map.write_blocking(&key(3));
            guard.insert(Value::new(3));
            guard.get_or_insert_with(|| Value::new(4));
            drop(guard.insert(Value::new(5)));
            drop(guard.downgrade());
            let mut guard = map.upgradable_read_blocking(&key(1));
            drop(guard.upgrade_mut_blocking().remove());
        }),
        ("many", |map| {
            let mut guards = map.write_many_blocking(&[key(1), key(3), key(1)]);
            guards.iter_mut().for_each(|guard| drop(guard.insert(Value::new(3))));
        }),
        ("handle", |map| drop(map.handle(&key(3)).write_blocking().insert(Value::new(3)))),
        ("batch", |map| {
            let batch = map.batch().insert(&key(3), Value::new(3)).remove(&key(1)).insert(&key(3), Value::new(4));
            drop(batch.remove(&key(5)).check_absent(&key(5)).insert(&key(2), Value::new(5)).commit_blocking());
        }),
        ("async batch", |map| {
            once(map.batch().insert(&key(3), Value::new(3)).remove(&key(1)).insert(&key(2), Value::new(5)).commit());
        }),
        ("batch in conflict", |map| {
            let batch = map.batch().insert(&key(3), Value::new(3)).remove(&key(1)).check_absent(&key(2));
            drop(batch.insert(&key(5), Value::new(4)).try_commit());
        }),
        ("busy batch", |map| {
            drop(map.batch().insert(&key(3), Value::new(3)).insert(&key(4), Value::new(4)).try_commit());
        }),
        ("retain", |map| drop(map.retain(|key, _| key.0 == 2))),
        ("clear", |map| drop(map.clear())),
        ("look", |map| {
            drop(map.for_each_value(|_, value, _| drop(value.clone())));
            assert!(!map.contains_key(&key(7)));
        }),
    ]
}

/// After a panic at any place, nothing is leaked, nothing stays locked, and the map works.
#[test]
fn a_panic_at_any_place_of_any_operation_leaves_the_map_consistent() {
    let mut panics = 0;
    for (recycle, most) in [(false, None), (true, None), (false, Some(1)), (true, Some(2))] {
        for (name, operation) in operations() {
            for place in PLACES {
                for at in 0..8 {
                    let what = format!("{name}, {place} {at}, recycle {recycle}, most {most:?}");
                    let before = (LIVE.get(), LIVE_VALUES.get());
                    let builder = LockMap::builder().shards(1).pool_capacity(2).recycle_keys(recycle);
                    let map: Map = if let Some(most) = most { builder.max_values(most) } else { builder }.build();
                    let keys = [1, 2, 3, 4].map(key);
                    // Key 4 is held. Key 1 has a handle while the values are inserted, so that two values exist
                    // whatever the bound is.
                    let held = map.write_blocking(&keys[3]);
                    let handle = map.handle(&keys[0]);
                    map.insert_blocking(&keys[0], Value::new(1));
                    map.insert_blocking(&keys[1], Value::new(2));
                    drop(handle);
                    panic_after(place, at);
                    panics += usize::from(catch_unwind(AssertUnwindSafe(|| operation(&map))).is_err());
                    disarm();
                    assert_eq!(LIVE_VALUES.get() - before.1, map.len(), "{what}: live values");
                    assert_eq!(map.entries(), map.len() + 1, "{what}: entries");
                    assert!(LIVE.get() - before.0 >= 4 + map.entries(), "{what}: live keys");
                    if !recycle {
                        assert_eq!(LIVE.get() - before.0, 4 + map.entries(), "{what}: live keys");
                    }
                    assert_eq!(map.status(&keys[3]).map(|status| (status.holders(), status.waiters())), Some((1, 0)));
                    drop(held);
                    for key in &keys {
                        drop(map.try_write(key).unwrap_or_else(|| panic!("{what}: {key:?} stays locked")));
                    }
                    assert!(most.is_none_or(|most| map.len() <= most.max(1)), "{what}: the bound is exceeded");
                    map.insert_blocking(&keys[2], Value::new(7));
                    assert_eq!(map.get_blocking(&keys[2]).map(|value| value.0), Some(7), "{what}");
                    assert!(most.is_none_or(|most| map.len() <= most), "{what}: the bound is exceeded");
                    assert_eq!((map.clear(), map.entries()), (0, 0), "{what}");
                    drop((map, keys));
                    assert_eq!(
                        (LIVE.get(), LIVE_VALUES.get()),
                        before,
                        "{what}: a key or a value was leaked or dropped twice"
                    );
                }
            }
        }
    }
    assert!(panics > 1000, "{panics}");
}

#[test]
fn a_panic_does_not_stop_the_drop_of_a_map_or_its_iterator() {
    for place in ["drop", "value's drop"] {
        for at in 0..12 {
            for whole in [true, false] {
                let before = (LIVE.get(), LIVE_VALUES.get());
                let map: Map = (0..6).map(|n| (key(n), Value::new(n))).collect();
                std::mem::forget(map.write_blocking(&key(77)));
                panic_after(place, at);
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    if whole {
                        drop(map);
                    } else {
                        let mut rest = map.into_iter();
                        drop(rest.next());
                        drop(rest);
                    }
                }));
                assert_eq!(outcome.is_err(), !disarm());
                assert_eq!(outcome.is_err(), at < 6 || (at == 6 && place == "drop"), "{place} {at}");
                assert_eq!((LIVE.get(), LIVE_VALUES.get()), before, "{place} {at}: leaked");
            }
        }
    }
}

#[test]
fn extend_leaks_nothing_on_any_panic() {
    for place in PLACES {
        for at in 0..8 {
            for most in [None, Some(1)] {
                let before = (LIVE.get(), LIVE_VALUES.get());
                let builder = LockMap::builder().shards(1);
                let mut map: Map = if let Some(most) = most { builder.max_values(most) } else { builder }.build();
                let values: Vec<_> = [1, 2, 1, 3].map(|n| (key(n), Value::new(n))).into();
                panic_after(place, at);
                let _ = catch_unwind(AssertUnwindSafe(|| map.extend(values)));
                disarm();
                assert_eq!(
                    (LIVE.get() - before.0, LIVE_VALUES.get() - before.1),
                    (map.entries(), map.len()),
                    "{place}"
                );
                assert_eq!(map.entries(), map.len(), "{place} {at}");
                map.extend([(key(7), Value::new(7))]);
                assert_eq!(map.get_blocking(&key(7)).map(|value| value.0), Some(7));
                drop(map);
                assert_eq!((LIVE.get(), LIVE_VALUES.get()), before, "{place} {at}: leaked");
            }
        }
    }
}

/// While a call returns a value, a key's drop panics. Then no values are alive but those in the map.
#[test]
fn a_returned_value_is_not_leaked_when_the_drop_of_its_key_panics() {
    let calls: [fn(&Map); 10] = [
        |map| drop(map.remove_blocking(&key(1))),
        |map| once(map.remove(&key(1))),
        |map| drop(map.write_blocking(&key(1)).remove()),
        |map| once(map.insert(&key(1), Value::new(2))),
        |map| once(map.get(&key(1))),
        |map| once(map.add_or_update(&key(1), Value::new(2))),
        |map| {
            let seen = map.read_blocking(&key(1)).version().unwrap();
            once(map.remove_if(&key(1), seen));
        },
        |map| {
            let seen = map.read_blocking(&key(1)).version().unwrap();
            drop(map.remove_if_blocking(&key(1), seen));
        },
        |map| drop(map.get_or_try_insert_with_blocking(&key(3), || Err(Value::new(3)))),
        |map| once(map.get_or_try_insert_with(&key(3), async || Err(Value::new(3)))),
    ];
    let mut panics = 0;
    for call in calls {
        for at in 0..4 {
            let before = LIVE_VALUES.get();
            let map: Map = [(key(1), Value::new(1))].into_iter().collect();
            panic_after("drop", at);
            panics += usize::from(catch_unwind(AssertUnwindSafe(|| call(&map))).is_err());
            disarm();
            assert_eq!(LIVE_VALUES.get() - before, map.len());
            assert_eq!(map.entries(), map.len());
        }
    }
    assert!(panics > 10, "{panics}");
}

// ---- drops that panic together --------------------------------------------------------------------------------------

thread_local! {
    static BAD: Cell<bool> = const { Cell::new(false) };
    static DROPPED: Cell<usize> = const { Cell::new(0) };
}

/// A type whose drops all panic while `BAD` is set, even if the thread is already panicking.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Bad(u32);

impl Drop for Bad {
    fn drop(&mut self) {
        if BAD.get() {
            DROPPED.set(DROPPED.get() + 1);
            resume_unwind(Box::new("a bad drop"));
        }
    }
}

/// Returns the number of drops during `f`, all of which panic.
fn dropped(f: impl FnOnce()) -> usize {
    BAD.set(true);
    DROPPED.set(0);
    let outcome = catch_unwind(AssertUnwindSafe(f));
    BAD.set(false);
    assert_eq!(outcome.is_err(), DROPPED.get() > 0, "the first panic did not reach the caller");
    DROPPED.get()
}

#[test]
fn several_values_whose_drops_panic_are_all_dropped_without_an_abort() {
    let full = || -> LockMap<u32, Bad> { (0..5).map(|n| (n, Bad(n))).collect() };
    let map = full();
    assert_eq!((dropped(|| drop(map.clear())), map.len(), map.entries()), (5, 0, 0));
    let map = full();
    assert_eq!((dropped(|| drop(map.retain(|&key, _| key == 3))), map.len(), map.entries()), (4, 1, 1));
    let map = full();
    assert_eq!(dropped(|| drop(map)), 5);
    let map = full();
    assert_eq!(dropped(|| drop(map.into_iter())), 5);
    // A batch that commits drops the previous values, and those that a later step overwrites.
    let map = full();
    let batch = map.batch().insert(&1, Bad(6)).remove(&2).insert(&3, Bad(7)).insert(&3, Bad(8)).insert(&9, Bad(9));
    assert_eq!(
        dropped(|| drop(batch.commit_blocking())),
        4,
        "three previous values, and one that was overwritten in the batch"
    );
    assert_eq!((map.len(), map.entries()), (5, 5));
    assert_eq!(map.read_blocking(&3).value(), Some(&Bad(8)));
    // A batch that fails drops all values given to it.
    let batch = map.batch().insert(&1, Bad(6)).insert(&2, Bad(7)).check_absent(&1).insert(&9, Bad(9));
    assert_eq!(dropped(|| drop(batch.commit_blocking())), 3);
    let batch = map.batch().insert(&1, Bad(6)).insert(&2, Bad(7)).check_absent(&1).insert(&9, Bad(9));
    assert_eq!(dropped(|| drop(block_on(batch.commit()))), 3);
    assert_eq!((map.len(), map.entries()), (5, 5));
    // Several values are evicted at once.
    let map: LockMap<u32, Bad> = LockMap::builder().shards(1).max_values(1).build();
    let guards: Vec<_> = (0..5)
        .map(|n| {
            map.insert_blocking(&n, Bad(n));
            map.read_blocking(&n)
        })
        .collect();
    let evicted = dropped(|| drop(guards));
    assert!((1..=4).contains(&evicted));
    assert_eq!((map.len(), map.entries(), 5 - evicted), (1, 1, 1));
}

#[test]
fn several_keys_whose_drops_panic_are_all_dropped_without_an_abort() {
    let full = || -> LockMap<Bad, Bad> { (0..5).map(|n| (Bad(n), Bad(n))).collect() };
    let map = full();
    assert_eq!((dropped(|| drop(map.clear())), map.len(), map.entries()), (10, 0, 0));
    let map = full();
    assert_eq!((dropped(|| drop(map.retain(|key, _| key.0 == 3))), map.len(), map.entries()), (8, 1, 1));
    let map = full();
    assert_eq!(dropped(|| drop(map)), 10);
}

// ---- code that uses the map -----------------------------------------------------------------------------------------

/// Values that the map itself discards are dropped with no lock held, not even that of their own key.
#[test]
fn values_that_the_map_discards_are_dropped_with_no_lock_held() {
    let operations: [(&str, bool, fn(&Map)); 10] = [
        ("update_if", false, |map| {
            let seen = map.read_blocking(&key(1)).version().unwrap();
            map.update_if_blocking(&key(1), seen, Value::new(9)).unwrap();
        }),
        ("async update_if", false, |map| {
            let seen = map.read_blocking(&key(1)).version().unwrap();
            once(map.update_if(&key(1), seen, Value::new(9)));
        }),
        ("unchanged", false, |map| drop(map.add_or_update_blocking(&key(1), Value::new(1)))),
        ("batch", false, |map| {
            drop(
                map.batch()
                    .insert(&key(1), Value::new(9))
                    .insert(&key(1), Value::new(8))
                    .remove(&key(2))
                    .commit_blocking(),
            );
        }),
        ("async batch", false, |map| once(map.batch().insert(&key(1), Value::new(9)).remove(&key(2)).commit())),
        ("conflict", false, |map| {
            drop(map.batch().insert(&key(1), Value::new(9)).check_absent(&key(2)).commit_blocking());
        }),
        ("retain", false, |map| drop(map.retain(|key, _| key.0 == 2))),
        ("clear", false, |map| drop(map.clear())),
        ("eviction by a call", true, |map| drop(map.insert_blocking(&key(5), Value::new(5)))),
        ("eviction by a guard", true, |map| drop(map.write_blocking(&key(5)).insert(Value::new(5)))),
    ];
    for (name, bounded, operation) in operations {
        let builder = LockMap::builder().shards(1);
        let map: Rc<Map> = Rc::new(if bounded { builder.max_values(3) } else { builder }.build());
        for n in 1..=3 {
            map.insert_blocking(&key(n), Value::new(n));
        }
        let drops = Rc::new(Cell::new(0));
        let (inside, counted) = (map.clone(), drops.clone());
        hook(Some(Rc::new(move |place| {
            if place == "value's drop" {
                counted.set(counted.get() + 1);
                for n in 1..=6 {
                    let guard = inside.try_write(&key(n));
                    assert!(guard.is_some(), "{n} is locked");
                }
                inside.insert_blocking(&key(50), Value::new(50));
                drop(inside.remove_blocking(&key(50)));
                assert!(inside.for_each_value(|_, _, _| {}) == 0 && inside.entries() == inside.len());
            }
        })));
        operation(&map);
        hook(None);
        assert!(drops.get() > 0, "{name}");
        assert_eq!(map.entries(), map.len(), "{name}");
    }
}

#[test]
fn clone_and_eq_of_a_value_and_init_may_use_other_keys() {
    let map: Rc<Map> = Rc::new((1..=3).map(|n| (key(n), Value::new(n))).collect());
    let inside = map.clone();
    let use_others = move || {
        inside.insert_blocking(&key(50), Value::new(50));
        assert_eq!(inside.get_blocking(&key(2)).unwrap().0, 2);
        drop(inside.batch().insert(&key(51), Value::new(51)).remove(&key(50)).commit_blocking());
        drop((inside.remove_blocking(&key(51)), inside.write_blocking(&key(52))));
        assert_eq!((inside.contains_key(&key(1)), inside.entries() >= inside.len()), (true, true));
    };
    let others = use_others.clone();
    let places = Rc::new(RefCell::new(Vec::new()));
    let recorded = Rc::clone(&places);
    hook(Some(Rc::new(move |place| {
        if matches!(place, "value's clone" | "value's eq") {
            recorded.borrow_mut().push(place);
            others();
        }
    })));
    assert_eq!(map.get_blocking(&key(1)).unwrap().0, 1);
    drop(map.add_or_update_blocking(&key(1), Value::new(1)));
    drop(block_on(map.add_or_update(&key(1), Value::new(2))));
    hook(None);
    assert_eq!(*places.borrow(), ["value's clone", "value's eq", "value's eq"]);
    drop(map.get_or_insert_with_blocking(&key(9), || {
        use_others();
        Value::new(9)
    }));
    drop(block_on(map.get_or_insert_with(&key(10), async || {
        use_others();
        Value::new(10)
    })));
    assert_eq!(map.clear(), 0);
    assert_eq!(map.entries(), 0);
}

#[test]
fn a_panic_in_init_leaves_the_key_free_for_the_next_caller() {
    let map = Map::new();
    for _ in 0..3 {
        let made = || map.get_or_insert_with_blocking(&key(1), || resume_unwind(Box::new("init")));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(made()))).is_err());
        let made = || block_on(map.get_or_insert_with(&key(1), async || resume_unwind(Box::new("init"))));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(made()))).is_err());
        assert_eq!((map.len(), map.entries()), (0, 0));
    }
    assert_eq!(map.get_or_insert_with_blocking(&key(1), || Value::new(1)).value().unwrap().0, 1);
}

#[test]
fn a_panicking_closure_leaves_nothing_held_and_undoes_no_removal() {
    let map: Map = (0..6).map(|n| (key(n), Value::new(n))).collect();
    let mut calls = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        map.retain(|_, _| {
            calls += 1;
            if calls == 4 { resume_unwind(Box::new("keep")) } else { false }
        })
    }));
    assert!(outcome.is_err());
    assert_eq!((map.len(), map.entries(), LIVE_VALUES.get()), (3, 3, 3));
    let outcome = catch_unwind(AssertUnwindSafe(|| map.for_each_value(|_, _, _| resume_unwind(Box::new("look")))));
    assert!(outcome.is_err());
    assert_eq!(map.clear(), 0);
    assert_eq!((map.entries(), LIVE_VALUES.get()), (0, 0));
}

/// A value without a destructor is copied under the internal lock. If the copy panics, the lock is released.
#[test]
fn a_clone_of_a_plain_value_that_panics_leaves_the_map_usable() {
    #[derive(Debug, PartialEq)]
    struct Plain(u32);
    #[allow(clippy::non_canonical_clone_impl)]
    impl Clone for Plain {
        fn clone(&self) -> Self {
            common::hostile::maybe_panic("plain");
            Plain(self.0)
        }
    }
    let map = LockMap::<u32, Plain>::builder().shards(1).build();
    map.insert_blocking(&1, Plain(1));
    for _ in 0..3 {
        panic_in("plain");
        assert!(catch_unwind(AssertUnwindSafe(|| map.get_blocking(&1))).is_err());
        panic_in("plain");
        assert!(catch_unwind(AssertUnwindSafe(|| block_on(map.get(&1)))).is_err());
        assert_eq!((map.get_blocking(&1), map.entries()), (Some(Plain(1)), 1));
        assert!(map.try_write(&1).is_some());
    }
}

/// A borrowed form whose `to_key` can be told to panic or to use the map.
#[derive(Hash, Clone, Copy)]
struct Asked(u32);

impl keylatch::Equivalent<Hostile> for Asked {
    fn equivalent(&self, key: &Hostile) -> bool {
        self.0 == key.0
    }
}

impl ToKey<Hostile> for Asked {
    fn to_key(&self) -> Hostile {
        common::hostile::maybe_panic("to_key");
        Hostile::new(self.0)
    }
}

// Hashes every key and every borrowed form to 0.
#[derive(Default, Clone)]
struct Zero;

impl std::hash::BuildHasher for Zero {
    type Hasher = Zero;

    fn build_hasher(&self) -> Zero {
        Zero
    }
}

impl std::hash::Hasher for Zero {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn a_to_key_may_panic_or_use_the_map() {
    let map: Rc<LockMap<Hostile, Value, Zero>> = Rc::default();
    let calls: [fn(&LockMap<Hostile, Value, Zero>); 6] = [
        |map| drop(map.insert_blocking(&Asked(1), Value::new(1))),
        |map| once(map.insert(&Asked(1), Value::new(1))),
        |map| drop(map.get_or_insert_with_blocking(&Asked(1), || Value::new(1))),
        |map| once(map.get_or_insert_with(&Asked(1), async || Value::new(1))),
        |map| drop(map.batch().insert(&Asked(1), Value::new(1)).commit_blocking()),
        |map| drop(map.write_blocking(&Asked(1)).insert(Value::new(1))),
    ];
    for call in calls {
        panic_in("to_key");
        assert!(catch_unwind(AssertUnwindSafe(|| call(&map))).is_err());
        assert!(!disarm());
        assert_eq!((map.len(), map.entries(), LIVE.get(), LIVE_VALUES.get()), (0, 0, 0, 0));
        // Meanwhile `to_key` itself creates the same entry.
        let inside = map.clone();
        hook(Some(Rc::new(move |place| {
            if place == "to_key" {
                drop(inside.insert_blocking(&Asked(1), Value::new(7)));
            }
        })));
        call(&map);
        hook(None);
        assert_eq!((map.entries(), LIVE.get(), LIVE_VALUES.get()), (1, 1, 1));
        assert_eq!((map.clear(), LIVE.get(), LIVE_VALUES.get()), (0, 0, 0));
    }
}
