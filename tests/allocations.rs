//! Guarantee 8 (memory follows use) and guarantee 9 (no allocation on the fast path), checked by counting calls of the
//! allocator. This is one test without the usual harness, because the counters are global, and the harness has its own
//! thread, which allocates at any time.
#![allow(unsafe_code)] // a global allocator that counts

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::SeqCst};
use std::task::Waker;
use std::time::Duration;

use common::{pending, poll_with, ready};
use futures_lite::future::block_on;
use keylatch::deadlock::Detector;
use keylatch::{AddOrUpdate, Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, Latch, LockMap, Striped};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, SeqCst);
        BYTES.fetch_add(layout.size() as isize, SeqCst);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, SeqCst);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations of a hundred runs of `f`, after one run to warm up.
fn allocations(mut f: impl FnMut(u64)) -> usize {
    f(0);
    let before = CALLS.load(SeqCst);
    (1..=100).for_each(&mut f);
    CALLS.load(SeqCst) - before
}

/// Returns the number of allocations of one run of `f`.
fn calls(f: impl FnOnce()) -> usize {
    let before = CALLS.load(SeqCst);
    f();
    CALLS.load(SeqCst) - before
}

fn bytes() -> isize {
    BYTES.load(SeqCst)
}

const NAME: &str = "a key of forty bytes: 0123456789abcdefghi";

fn main() {
    guarantee_9_uncontended_calls_allocate_nothing();
    a_map_in_steady_state_allocates_nothing();
    a_bounded_map_with_capacity_allocates_nothing_until_it_is_full();
    memory_of_a_map_follows_its_values();
    ages_take_memory_only_in_maps_that_record_them();
    a_walk_allocates_a_bit_for_each_slot_and_frees_it();
    a_walk_moves_the_values_of_one_shard_to_slots();
    capacity_is_permanent_although_a_value_is_removed();
    capacity_is_permanent_although_all_values_are_removed();
    capacity_is_permanent_although_all_values_are_visited();
    capacity_is_permanent_although_values_are_used_with_guards();
    capacity_suffices_while_values_are_replaced();
    capacity_suffices_while_values_are_used_in_turn_by_guards_and_gets();
    memory_follows_use_whatever_removes();
    asking_for_the_status_of_keys_takes_no_memory();
    one_value_in_each_chunk_that_is_not_read_does_not_double_the_memory();
    values_that_are_replaced_take_no_more_memory_than_those_that_were_stored();
    several_keys_allocate_only_their_lists();
    a_latch_and_its_stripes_allocate_nothing_but_lists();
    waiting_allocates_nothing_in_steady_state();
    a_release_that_wakes_one_waiter_allocates_nothing_on_any_table();
    a_hand_over_to_at_most_two_waiters_allocates_nothing_with_priorities_or_without();
    an_owned_key_costs_only_its_own_allocation();
    as_many_keys_are_recycled_as_free_entries_are_kept();
    with_capacity_the_first_keys_allocate_nothing();
    capacity_suffices_while_keys_are_replaced();
    pool_capacity_is_the_number_of_free_entries_kept();
    guarantee_8_memory_follows_use();
    a_release_or_a_cancellation_that_wakes_no_waiter_allocates_nothing();
    a_cancellation_that_admits_many_waiters_allocates_once_for_their_wakers();
    guarantee_8_memory_of_waiters_follows_use_while_another_key_has_a_waiter();
    guarantee_8_memory_of_a_detector_follows_use();
}

fn guarantee_9_uncontended_calls_allocate_nothing() {
    // One shard, so that one run warms up the memory that all keys use.
    let locks = KeyedMutex::<u64>::builder().shards(1).build();
    assert_eq!(allocations(|key| drop(locks.lock_blocking(&key))), 0);
    assert_eq!(allocations(|key| drop(locks.try_lock(&key))), 0);
    assert_eq!(allocations(|key| drop(ready(locks.lock(&key)))), 0);
    assert_eq!(allocations(|key| drop(locks.handle(&key).lock_blocking())), 0);
    assert_eq!(allocations(|key| drop((locks.try_lock(&key), locks.try_lock(&(key + 1000))))), 0);
    let locks = Arc::new(locks);
    assert_eq!(allocations(|key| drop(locks.lock_arc_blocking(&key))), 0);
    assert_eq!(allocations(|key| drop(ready(locks.lock_arc(&key)))), 0);
    assert_eq!(allocations(|key| drop(locks.handle_arc(&key).try_lock())), 0);

    let pages = KeyedRwLock::<u64>::builder().shards(1).build();
    assert_eq!(allocations(|key| drop((pages.read_blocking(&key), pages.try_upgradable_read(&key)))), 0);
    assert_eq!(allocations(|key| drop(pages.upgradable_read_blocking(&key).upgrade_blocking().downgrade())), 0);
    let hosts = KeyedSemaphore::<u64>::builder(2).shards(1).build();
    assert_eq!(allocations(|key| drop((hosts.acquire_blocking(&key), hosts.try_acquire(&key)))), 0);
    assert_eq!(allocations(|key| drop(hosts.acquire_n_blocking(&key, 2).split(1))), 0);

    let names = KeyedMutex::<String>::builder().shards(1).recycle_keys(true).build();
    assert_eq!(allocations(|_| drop(names.lock_blocking(NAME))), 0);
    assert_eq!(allocations(|n| drop(names.lock_blocking(&NAME[..40 - n as usize % 40]))), 0);
    assert_eq!(allocations(|_| drop(ready(names.lock(NAME)))), 0);
    let bytes = KeyedMutex::<Vec<u8>>::builder().shards(1).recycle_keys(true).build();
    assert_eq!(allocations(|n| drop(bytes.lock_blocking(&NAME.as_bytes()[..40 - n as usize % 40]))), 0);
    let interned = KeyedMutex::<Arc<str>>::builder().shards(1).build();
    let name: Arc<str> = NAME.into();
    assert_eq!(allocations(|_| drop(interned.lock_blocking(&name))), 0);
}

fn a_map_in_steady_state_allocates_nothing() {
    for most in [None, Some(1000), Some(2), Some(1)] {
        let map: LockMap<u64, u64> = match most {
            Some(most) => LockMap::builder().shards(1).max_values(most).build(),
            None => LockMap::builder().shards(1).build(),
        };
        macro_rules! nothing {
            ($(|$key:ident| $do:expr),+ $(,)?) => {$(
                assert_eq!(allocations(|$key| { let _done = $do; }), 0, "most {most:?}: {}", stringify!($do));
            )+};
        }
        // Keys that are inserted and removed.
        nothing!(
            |key| (map.insert_blocking(&key, 1), map.remove_blocking(&key)),
            |key| (block_on(map.insert(&key, 1)), block_on(map.remove(&key))),
            |key| {
                map.write_blocking(&key).insert(1);
                map.write_blocking(&key).remove()
            },
            |key| {
                drop(map.get_or_insert_with_blocking(&key, || 1));
                map.remove_blocking(&key)
            },
            |key| (map.add_or_update_blocking(&key, 1), map.remove_blocking(&key)),
            |key| (map.read_blocking(&key), map.try_upgradable_read(&key)),
            |key| map.handle(&key).try_write(),
        );
        map.clear();
        map.insert_blocking(&7, 1);
        // A key that stays.
        nothing!(
            |key| map.insert_blocking(&7, key),
            |key| *map.write_blocking(&7).value_mut().unwrap() += key,
            |_key| map.get_blocking(&7),
            |_key| block_on(map.get(&7)),
            |_key| map.read_blocking(&7).value().copied(),
            |_key| ready(map.read(&7)),
            |_key| map.upgradable_read_blocking(&7).upgrade_blocking().downgrade(),
            |key| map.add_or_update_blocking(&7, key),
            |key| block_on(map.add_or_update(&7, key)),
            |_key| map.get_or_insert_with_blocking(&7, || 1),
            |_key| block_on(map.get_or_insert_with(&7, async || 1)),
            |key| {
                let seen = map.try_read(&7).unwrap().version().unwrap();
                map.update_if_blocking(&7, seen, key).unwrap()
            },
        );
    }
    // Evicted values make room for new ones.
    let map: LockMap<u64, u64> = LockMap::builder().shards(1).max_values(20).build();
    // The shard's hash table grows once more, to double capacity, when removals have filled it with tombstones.
    for key in 1000..2000 {
        map.insert_blocking(&key, key);
    }
    assert_eq!(
        allocations(|key| {
            map.insert_blocking(&key, key);
        }),
        0
    );
    assert_eq!(map.len(), 20);
    let names = LockMap::<String, u64>::new();
    names.insert_blocking(NAME, 1);
    // A call on a key that is in the map makes no second `String`, and neither does a look-up that finds nothing.
    assert_eq!(allocations(|_| assert!(block_on(names.get(NAME)).is_some())), 0);
    assert_eq!(allocations(|n| assert!(block_on(names.insert(NAME, n)).is_some())), 0);
    assert_eq!(allocations(|n| assert!(block_on(names.add_or_update(NAME, n)) != AddOrUpdate::Added)), 0);
    assert_eq!(allocations(|_| drop(block_on(names.get_or_insert_with(NAME, async || 1)))), 0);
    assert_eq!(allocations(|_| assert!(block_on(names.get(&NAME[1..])).is_none())), 0);
    assert_eq!(allocations(|_| assert!(block_on(names.remove(&NAME[1..])).is_none())), 0);
    let names = LockMap::<String, u64>::builder().shards(1).recycle_keys(true).build();
    assert_eq!(
        allocations(|n| {
            names.insert_blocking(NAME, n);
            names.remove_blocking(NAME);
        }),
        0
    );
}

fn a_bounded_map_with_capacity_allocates_nothing_until_it_is_full() {
    for capacity in [10, 1000] {
        let builder = LockMap::<u64, u64>::builder().shards(1).capacity(capacity);
        let map: LockMap<u64, u64> = builder.max_values(capacity).build();
        let (mut key, before) = (0, CALLS.load(SeqCst));
        while key < capacity as u64 {
            map.insert_blocking(&key, key);
            key += 1;
        }
        assert_eq!((CALLS.load(SeqCst) - before, map.len()), (0, capacity));
    }
}

fn memory_of_a_map_follows_its_values() {
    for most in [None, Some(100_000), Some(10)] {
        for shards in [1, 16] {
            let builder = LockMap::<u64, Box<[u64; 4]>>::builder().shards(shards);
            let map: LockMap<u64, Box<[u64; 4]>> =
                if let Some(most) = most { builder.max_values(most) } else { builder }.build();
            let keys = 1500 * shards as u64;
            let round = || {
                (0..keys).for_each(|key| _ = map.insert_blocking(&key, Box::default()));
                let full = bytes();
                (0..keys).for_each(|key| _ = map.remove_blocking(&key));
                assert_eq!((map.len(), map.entries()), (0, 0));
                (0..keys).for_each(|key| drop(map.write_blocking(&key)));
                full
            };
            let empty = bytes();
            let full = round();
            let kept = bytes() - empty;
            if most != Some(10) {
                assert!(3 * kept < full - empty, "most {most:?}, {shards} shards: {kept} of {} are kept", full - empty);
            }
            // Memory does not grow from round to round, including rounds of `clear` and of evictions.
            let limit = if most == Some(10) { 4 * kept } else { (full - empty) / 3 };
            for _ in 0..3 {
                round();
            }
            assert!(bytes() - empty < limit, "most {most:?}, {shards} shards: {} after rounds", bytes() - empty);
            (0..keys).for_each(|key| _ = map.insert_blocking(&key, Box::default()));
            assert_eq!(map.clear(), 0);
            (0..keys).for_each(|key| drop(map.write_blocking(&key)));
            assert!(bytes() - empty < limit, "most {most:?}, {shards} shards: {} after clear", bytes() - empty);
            drop(map);
            assert!(bytes() <= empty, "most {most:?}, {shards} shards: leaked");
        }
    }
    // Evicted values free their memory: a map with room for few values becomes small again, however many it has held.
    let before = bytes();
    let map: LockMap<u64, Box<[u64; 16]>> = LockMap::builder().shards(1).max_values(10).build();
    let empty = bytes();
    let guards: Vec<_> = (0..5000)
        .map(|key| {
            map.insert_blocking(&key, Box::default());
            map.read_blocking(&key)
        })
        .collect();
    let full = bytes();
    drop(guards);
    (0..5000).for_each(|key| drop(map.write_blocking(&key)));
    let kept = bytes() - empty;
    assert_eq!(map.len(), 10);
    assert!(6 * kept < full - empty, "{kept} of {} are kept", full - empty);
    drop(map);
    assert_eq!(bytes(), before);
    // Values that remain keep their chunks, and little else.
    let map = LockMap::<u64, u64>::builder().shards(1).build();
    let empty = bytes();
    for key in 0..20_000 {
        map.insert_blocking(&key, key);
    }
    let full = bytes();
    assert_eq!(map.retain(|key, _| key % 128 == 0), 0);
    (0..20_000).for_each(|key| drop(map.read_blocking(&key)));
    let kept = bytes() - empty;
    assert!(3 * kept < full - empty, "{kept} of {} are kept", full - empty);
}

fn ages_take_memory_only_in_maps_that_record_them() {
    const VALUES: isize = 1600;
    let full = |record_ages: bool, ends: bool| {
        let mut builder = LockMap::<u64, u64>::builder().shards(1).capacity(VALUES as usize);
        builder = if record_ages { builder.record_ages() } else { builder };
        builder = if ends { builder.time_to_live(Duration::from_secs(1)) } else { builder };
        let (map, empty): (LockMap<u64, u64>, _) = (builder.build(), bytes());
        for key in 0..VALUES as u64 {
            map.insert_blocking(&key, key);
        }
        let full = bytes() - empty;
        if record_ages {
            let refresh = |key| assert_eq!(map.get_or_refresh_with_blocking(&key, Duration::ZERO, || 1), 1);
            assert_eq!(allocations(refresh), 0);
        }
        full
    };
    assert_eq!(full(false, false), 0);
    let (ages, ends) = (full(true, false), full(false, true));
    assert!((48 * VALUES..51 * VALUES).contains(&ages), "{ages} bytes for {VALUES} values with an age");
    let more = full(true, true) - ends;
    assert!((16 * VALUES..17 * VALUES).contains(&more), "{more} bytes more for {VALUES} values that end");
}

fn a_latch_and_its_stripes_allocate_nothing_but_lists() {
    static LATCH: Latch = Latch::new();
    let (latch, striped) = (&LATCH, Striped::<u64>::new(1024));
    assert_eq!(allocations(|_| drop(latch.read_blocking())), 0);
    assert_eq!(allocations(|_| drop(latch.write_blocking().downgrade())), 0);
    assert_eq!(allocations(|_| drop(ready(latch.write()))), 0);
    assert_eq!(allocations(|_| drop(latch.try_read())), 0);
    assert_eq!(allocations(|key| drop(striped.write_blocking(&key))), 0);
    assert_eq!(allocations(|key| drop(ready(striped.read(&key)))), 0);
    // Waits that end in a hand-off, and waits that are given up.
    assert_eq!(allocations(|_| assert!(latch.try_write().is_some_and(|_guard| latch.try_read().is_none()))), 0);
    let waits = allocations(|_| {
        let guard = latch.write_blocking();
        let (mut next, mut gives_up) = (latch.write(), latch.read());
        pending(&mut next);
        pending(&mut gives_up);
        drop(gives_up);
        drop(guard);
        drop(ready(next));
    });
    assert_eq!(waits, 0);
    // A call for several keys allocates two lists, or up to five for readers and writers; a call for one key allocates
    // nothing.
    assert_eq!(allocations(|key| drop(striped.write_many_blocking([&key]))), 0);
    assert_eq!(allocations(|key| drop(ready(striped.read_many([&key])))), 0);
    assert_eq!(allocations(|key| drop(striped.try_read_write_many([], [&key]))), 0);
    for count in [2, 10, 500] {
        let keys: Vec<u64> = (0..count).collect();
        assert_eq!(allocations(|_| drop(striped.write_many_blocking(&keys))), 200);
        assert_eq!(allocations(|_| drop(ready(striped.write_many(&keys)))), 200);
        assert!(allocations(|_| drop(striped.try_read_write_many(&keys, &keys))) <= 500);
    }
}

/// A walk uses memory only for the shard that it is visiting, until it ends or is dropped.
fn a_walk_allocates_a_bit_for_each_slot_and_frees_it() {
    const SHARDS: usize = 4;
    // Values that own something never rest, so all of them are in slots anyway.
    let map = LockMap::<u64, Box<u64>>::builder().shards(SHARDS).build();
    (0..10_000).for_each(|key| _ = map.insert_blocking(&key, Box::new(key)));
    let before = bytes();
    let calls = allocations(|_| {
        let (mut walk, mut visits) = (map.walk(), 0);
        while walk.next_read_blocking().is_some() {
            visits += 1;
            assert!(bytes() - before < 1000, "the bits of some 3,000 slots");
        }
        assert_eq!((visits, bytes()), (10_000, before));
    });
    assert_eq!(calls, 100 * 2 * SHARDS, "in each shard a stay and its bits");
    let mut walk = map.walk();
    assert!(walk.next_write_blocking().is_some() && bytes() > before);
    drop(walk);
    assert_eq!(bytes(), before);
}

/// A walk moves the values of one shard at a time to slots. When it has left the shard, they rest again.
fn a_walk_moves_the_values_of_one_shard_to_slots() {
    const SHARDS: usize = 16;
    let map = LockMap::<u64, u64>::builder().shards(SHARDS).build();
    let empty = bytes();
    (0..100_000).for_each(|key| _ = map.insert_blocking(&key, key));
    let before = bytes();
    let mut left = before;
    for _ in 0..3 {
        let (mut walk, mut visits, mut most) = (map.walk(), 0, 0);
        while walk.next_read_blocking().is_some() {
            visits += 1;
            most = most.max(bytes());
        }
        drop(walk);
        assert_eq!(visits, 100_000);
        assert!(
            most - left < (before - empty) / 4,
            "one shard of {SHARDS}: {most}, {left} before, {before} with values"
        );
        // The first walk leaves a pool of slots in each shard.
        left = if left == before { bytes() } else { left };
        assert!(bytes() <= left && left - before < (before - empty) / 8, "{} after a walk, {before} before", bytes());
    }
}

fn with_capacity(n: usize) -> LockMap<u64, u64> {
    LockMap::builder().shards(1).capacity(n).build()
}

/// Stores `n` values, and returns the number of allocations.
fn fill(map: &LockMap<u64, u64>, n: u64) -> usize {
    calls(|| (0..n).for_each(|key| _ = map.insert_blocking(&key, key)))
}

fn capacity_is_permanent_although_a_value_is_removed() {
    let map = with_capacity(1000);
    fill(&map, 2);
    map.remove_blocking(&1); // the second value was at rest
    assert_eq!(fill(&map, 1000), 0);
}

fn capacity_is_permanent_although_all_values_are_removed() {
    let map = with_capacity(1000);
    assert_eq!(fill(&map, 1000), 0);
    let gone = calls(|| (0..1000).for_each(|key| _ = map.remove_blocking(&key)));
    assert_eq!((gone, fill(&map, 1000)), (0, 0));
}

fn capacity_is_permanent_although_all_values_are_visited() {
    let map = with_capacity(1000);
    fill(&map, 10);
    map.for_each_value(|_, _, _| {});
    assert_eq!(fill(&map, 1000), 0);
}

fn capacity_is_permanent_although_values_are_used_with_guards() {
    let map = with_capacity(1000);
    fill(&map, 1000);
    let guards = calls(|| (0..1000).for_each(|key| drop(map.read_blocking(&key))));
    let gets = calls(|| (0..4000).for_each(|key| _ = map.get_blocking(&(key / 4))));
    assert_eq!((guards, gets), (0, 0));
}

fn capacity_suffices_while_values_are_replaced() {
    let mut failures = Vec::new();
    for capacity in [28, 56, 57, 112, 113, 448, 449, 896, 897, 1792, 1793] {
        let map = with_capacity(capacity);
        let mut window = VecDeque::with_capacity(capacity + 1);
        let sliding = calls(|| {
            for key in 0..50 * capacity as u64 {
                if window.len() == capacity {
                    map.remove_blocking(&window.pop_front().unwrap());
                }
                window.push_back(key);
                map.insert_blocking(&key, key);
            }
        });
        if sliding != 0 {
            failures.push((capacity, sliding));
        }
    }
    assert!(failures.is_empty(), "(capacity, allocations): {failures:?}");
}

fn capacity_suffices_while_values_are_used_in_turn_by_guards_and_gets() {
    let mut failures = Vec::new();
    for capacity in [28, 112, 113, 448, 896, 1792] {
        let map = with_capacity(capacity);
        fill(&map, capacity as u64);
        let turns = calls(|| {
            for key in (0..50 * capacity as u64).map(|n| n % capacity as u64) {
                drop(map.read_blocking(&key));
                (0..4).for_each(|_| _ = map.get_blocking(&key));
            }
        });
        if turns != 0 {
            failures.push((capacity, turns));
        }
    }
    assert!(failures.is_empty(), "(capacity, allocations): {failures:?}");
}

fn memory_follows_use_whatever_removes() {
    type Way = fn(&LockMap<u64, u64>, u64);
    let ways: [(&str, Way); 8] = [
        ("remove", |map, n| (0..n).for_each(|key| _ = map.remove_blocking(&key))),
        ("clear", |map, _| assert_eq!(map.clear(), 0)),
        ("retain", |map, _| assert_eq!(map.retain(|_, _| false), 0)),
        ("guards", |map, n| (0..n).for_each(|key| _ = map.write_blocking(&key).remove())),
        ("walk", |map, _| {
            let mut walk = map.walk();
            while let Some(mut guard) = walk.next_write_blocking() {
                guard.remove();
            }
        }),
        ("guards then gets then remove", |map, n| {
            (0..n).for_each(|key| drop(map.read_blocking(&key)));
            (0..4 * n).for_each(|key| _ = map.get_blocking(&(key % n)));
            (0..n).for_each(|key| _ = map.remove_blocking(&key));
        }),
        ("walk, then remove", |map, n| {
            map.for_each_value(|_, _, _| {});
            (0..n).for_each(|key| _ = map.remove_blocking(&key));
        }),
        ("a nested walk that is forgotten", |map, n| {
            let mut walk = map.walk();
            drop(walk.next_read_blocking());
            std::mem::forget(walk);
            map.for_each_value(|_, _, _| {});
            (0..n).for_each(|key| _ = map.remove_blocking(&key));
        }),
    ];
    let mut failures = Vec::new();
    for (name, way) in ways {
        for n in [1000, 1793, 20_000, 60_000] {
            for left in [0, 10] {
                let map = LockMap::<u64, u64>::builder().shards(1).build();
                let empty = bytes();
                fill(&map, n);
                let full = bytes() - empty;
                way(&map, n);
                fill(&map, left);
                for key in 0..n {
                    map.insert_blocking(&(key + n), 1);
                    map.remove_blocking(&(key + n));
                }
                let kept = bytes() - empty;
                if 3 * kept >= full {
                    failures.push((name, n, left, kept, full));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

fn asking_for_the_status_of_keys_takes_no_memory() {
    let map = LockMap::<u64, u64>::builder().shards(1).build();
    fill(&map, 10_000);
    let before = bytes();
    let asks =
        calls(|| (0..10_000).for_each(|key| assert!(map.status(&key).is_some_and(|status| status.holders() == 0))));
    assert_eq!((asks, bytes() - before), (0, 0), "(allocations, bytes)");
}

fn one_value_in_each_chunk_that_is_not_read_does_not_double_the_memory() {
    let map = LockMap::<u64, u64>::builder().shards(1).build();
    let empty = bytes();
    (0..100_000).for_each(|key| _ = map.write_blocking(&key).insert(key));
    let slots = bytes() - empty;
    for _ in 0..150 {
        for key in (0..100_000).filter(|key| key % 16 != 0) {
            map.get_blocking(&key);
        }
    }
    let mixed = bytes() - empty;
    assert!(mixed < slots * 5 / 4, "{slots} bytes before some of the values came to rest, {mixed} bytes after");
}

/// Removed values leave tombstones in a hash table. Instead of growing, the table sweeps them out, as long as that
/// frees a lot of room.
fn values_that_are_replaced_take_no_more_memory_than_those_that_were_stored() {
    let map = LockMap::<u64, u64>::builder().shards(1).build();
    let empty = bytes();
    fill(&map, 60_000);
    let full = bytes() - empty;
    for key in 0..300_000 {
        map.remove_blocking(&key);
        map.insert_blocking(&(key + 60_000), key);
    }
    assert!(bytes() - empty <= full * 21 / 20, "{full} bytes, and {} after the values were replaced", bytes() - empty);
}

fn several_keys_allocate_only_their_lists() {
    let locks = Arc::new(KeyedMutex::<u64>::builder().shards(1).capacity(500).build());
    let pages = KeyedRwLock::<u64>::builder().shards(1).capacity(500).build();
    let hosts = KeyedSemaphore::<u64>::builder(2).shards(1).capacity(500).build();
    let named = KeyedMutex::<String>::builder().shards(1).build();
    let bounded = LockMap::<u64, u64>::builder().shards(1).capacity(500).max_values(1).build();
    // A call for one key allocates nothing, even if it has to wait.
    assert_eq!(allocations(|key| drop(locks.lock_many_blocking([&key]))), 0);
    assert_eq!(allocations(|key| drop(locks.try_lock_many([&key]))), 0);
    assert_eq!(allocations(|key| drop(ready(locks.lock_many([&key])))), 0);
    assert_eq!(allocations(|key| drop(locks.lock_many_arc_blocking([&key]))), 0);
    assert_eq!(allocations(|key| drop(pages.read_many_blocking([&key]))), 0);
    assert_eq!(allocations(|key| drop(pages.try_read_write_many([], [&key]))), 0);
    assert_eq!(allocations(|key| drop(hosts.acquire_many_blocking([&key]))), 0);
    assert_eq!(allocations(|_| drop(locks.try_lock_many::<u64>([]))), 0);
    let guard = locks.try_lock(&7);
    assert_eq!(allocations(|_| pending(&mut locks.lock_many([&7]))), 0);
    assert_eq!(allocations(|_| assert!(locks.try_lock_many([&7]).is_none())), 0);
    assert_eq!(allocations(|_| assert!(locks.try_lock_many_for([&7], Duration::from_micros(200)).is_none())), 0);
    drop(guard);

    for keys in [2, 10, 500] {
        let keys: Vec<u64> = (0..keys).collect();
        let (first, last) = (&keys[0], &keys[keys.len() - 1]);
        // A blocking call allocates the list of guards; a future allocates the list of claims, too.
        assert_eq!(allocations(|_| drop(locks.lock_many_blocking(&keys))), 100);
        assert_eq!(allocations(|_| drop(locks.try_lock_many(&keys))), 100);
        assert_eq!(allocations(|_| drop(locks.try_lock_many_arc_for(&keys, Duration::ZERO))), 100);
        assert_eq!(allocations(|_| drop(ready(locks.lock_many(&keys)))), 200);
        assert_eq!(allocations(|_| drop(pages.read_many_blocking(&keys))), 100);
        assert_eq!(allocations(|_| drop(hosts.acquire_many_blocking(&keys))), 100);
        // Releasing entries that own memory, or a map's values that may exceed the bound, needs no more allocations.
        let names: Vec<String> = keys.iter().map(u64::to_string).collect();
        let handles: Vec<_> = names.iter().map(|name| named.handle(name)).collect();
        assert_eq!(allocations(|_| drop(named.lock_many_blocking(&names))), 100);
        assert_eq!(allocations(|_| drop(bounded.write_many_blocking(&keys))), 100);
        drop(handles);
        // A call that has to wait makes a few more allocations. Their number does not depend on the number of keys.
        let waits = |key: &u64| {
            allocations(|_| {
                let guard = locks.try_lock(key);
                let mut future = locks.lock_many(&keys);
                pending(&mut future);
                drop(guard);
                drop(ready(future));
            })
        };
        let fails = |key: &u64| {
            let _guard = locks.try_lock(key);
            allocations(|_| assert!(locks.try_lock_many(&keys).is_none()))
        };
        let again = allocations(|_| drop(locks.lock_many_blocking(keys.iter().chain(&keys))));
        let all = [waits(first), waits(last), fails(first), fails(last)];
        assert!(all.iter().all(|&all| all <= 600), "{all:?} for {} keys", keys.len());
        // If keys are named again, the list of repeated keys grows, too.
        assert!(again <= 1000 + 100 * keys.len().ilog2() as usize, "{again} for {} keys", keys.len());
    }
}

fn waiting_allocates_nothing_in_steady_state() {
    for fairness in [Fairness::Fifo, Fairness::default(), Fairness::Barging] {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        let contended = allocations(|_| {
            let guard = locks.try_lock(&7).unwrap();
            let mut waiter = locks.lock(&7);
            assert!(poll_with(&mut waiter, Waker::noop()).is_pending());
            drop(guard);
            drop(ready(&mut waiter));
        });
        assert_eq!(contended, 0, "{fairness:?}");
        let guard = locks.try_lock(&7).unwrap();
        let cancelled = allocations(|_| {
            let mut waiter = locks.lock(&7);
            assert!(poll_with(&mut waiter, Waker::noop()).is_pending());
        });
        assert_eq!(cancelled, 0, "{fairness:?}");
        // A thread that sleeps until its time is up.
        let asleep = allocations(|_| assert!(locks.try_lock_for(&7, Duration::from_micros(200)).is_none()));
        assert_eq!(asleep, 0, "{fairness:?}");
        drop(guard);
    }
}

fn a_release_that_wakes_one_waiter_allocates_nothing_on_any_table() {
    let hosts = KeyedSemaphore::<u64>::new(2);
    let semaphore = allocations(|_| {
        let guards = (hosts.try_acquire(&7).unwrap(), hosts.try_acquire(&7).unwrap());
        let (mut first, mut second) = (hosts.acquire(&7), hosts.acquire(&7));
        assert!(poll_with(&mut first, Waker::noop()).is_pending());
        assert!(poll_with(&mut second, Waker::noop()).is_pending());
        drop(guards);
        drop((ready(&mut first), ready(&mut second)));
    });
    assert_eq!(semaphore, 0);
    let pages = KeyedRwLock::<u64>::new();
    let reader = allocations(|_| {
        let guard = pages.try_write(&7).unwrap();
        let mut reader = pages.read(&7);
        assert!(poll_with(&mut reader, Waker::noop()).is_pending());
        drop(guard);
        drop(ready(&mut reader));
    });
    assert_eq!(reader, 0);
}

fn a_hand_over_to_at_most_two_waiters_allocates_nothing_with_priorities_or_without() {
    let hosts = KeyedSemaphore::<u64>::new(3);
    for priorities in [[0, 0, 0], [1, 0, 2]] {
        for (waiters, expected) in [(1, 0), (2, 0), (3, 100)] {
            let allocated = allocations(|_| {
                let guard = hosts.try_acquire_n(&7, 3).unwrap();
                let mut futures = priorities.map(|priority| hosts.acquire(&7).priority(priority));
                futures[..waiters].iter_mut().for_each(pending);
                guard.unlock_fair();
                assert!(hosts.try_acquire_n(&7, 4 - waiters).is_none());
                futures[..waiters].iter_mut().for_each(|future| drop(ready(future)));
            });
            assert_eq!(allocated, expected, "{waiters} of {priorities:?}");
        }
    }
}

fn a_release_or_a_cancellation_that_wakes_no_waiter_allocates_nothing() {
    let pages = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(0)).build();
    // Three readers behind a writer that holds the key; another writer behind them gives up.
    let writer = pages.try_write(&7);
    let mut readers = [pages.read(&7), pages.read(&7), pages.read(&7)];
    readers.iter_mut().for_each(pending);
    let cancels = allocations(|_| pending(&mut pages.write(&7)));
    drop((writer, readers));
    // Three readers behind a writer that waits for many readers, of which all but one leave.
    let mut crowd: Vec<_> = (0..102).map(|_| pages.try_read(&7)).collect();
    let mut writer = pages.write(&7);
    pending(&mut writer);
    let mut readers = [pages.read(&7), pages.read(&7), pages.read(&7)];
    readers.iter_mut().for_each(pending);
    let releases = allocations(|_| drop(crowd.pop()));
    assert_eq!((crowd.len(), pages.status(&7).unwrap().waiters()), (1, 4));
    assert_eq!((cancels, releases), (0, 0));
}

/// The buffer has room for two wakers. It is enlarged once, before any waiter is admitted, because memory is allocated
/// outside the locks.
fn a_cancellation_that_admits_many_waiters_allocates_once_for_their_wakers() {
    let pages = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(0)).build();
    let reader = pages.try_read(&7);
    let mut writer = pages.write(&7);
    pending(&mut writer);
    let mut readers: [_; 40] = std::array::from_fn(|_| pages.read(&7));
    readers.iter_mut().for_each(pending);
    let before = CALLS.load(SeqCst);
    drop(writer);
    assert_eq!(CALLS.load(SeqCst) - before, 1);
    drop((readers.map(ready), reader));
}

fn an_owned_key_costs_only_its_own_allocation() {
    let names = KeyedMutex::<String>::builder().shards(1).build();
    assert_eq!(allocations(|_| drop(names.lock_blocking(NAME))), 100);
    let guard = names.lock_blocking(NAME);
    assert_eq!(allocations(|_| drop(names.try_lock(NAME))), 0, "a key with an entry was cloned");
    drop(guard);
}

fn as_many_keys_are_recycled_as_free_entries_are_kept() {
    let names: [String; 20] = std::array::from_fn(|n| format!("{n:1000}"));
    let builder = || KeyedMutex::<String>::builder().shards(1).recycle_keys(true);
    let round = |locks: &KeyedMutex<String>| drop(names.each_ref().map(|name| locks.lock_blocking(name.as_str())));

    let locks = builder().build();
    assert_eq!(allocations(|_| round(&locks)), 0, "a key of the previous round was not recycled");
    // After a burst, slots without an old key are not used before those that have one.
    let burst: [String; 190] = std::array::from_fn(|n| format!("{n:1000}"));
    drop(burst.each_ref().map(|name| locks.lock_blocking(name.as_str())));
    assert_eq!(allocations(|_| round(&locks)), 0, "a key of the previous round was not recycled after a burst");
    for pool in [0, 1, 4, 7] {
        let locks = builder().pool_capacity(pool as usize).build();
        let empty = bytes();
        round(&locks);
        // Everything else that is kept is smaller than one of these keys. Some old keys were dropped with a freed
        // group of entries.
        let kept = (bytes() - empty) / 1000;
        assert!((pool * 2 / 3..=pool).contains(&kept), "a pool of {pool}: {kept}");
    }
}

fn with_capacity_the_first_keys_allocate_nothing() {
    for (shards, most) in [(1, 55), (4, 70), (64, 160)] {
        let empty = bytes();
        let locks = KeyedMutex::<u64>::builder().shards(shards).capacity(1000).build();
        // Keys are spread unevenly over the shards, so a table with many shards needs more room, but not unreasonably
        // more.
        let each = (bytes() - empty) / 1000;
        assert!(each < most, "{shards} shards: {each} bytes for each key");
        let mut guards = Vec::with_capacity(1000);
        let before = CALLS.load(SeqCst);
        for _ in 0..3 {
            guards.extend((0..1000).map(|key| locks.lock_blocking(&key)));
            guards.clear();
        }
        assert_eq!(CALLS.load(SeqCst), before, "{shards} shards");
    }
}

fn capacity_suffices_while_keys_are_replaced() {
    for capacity in [28, 57, 113, 449, 897, 1793] {
        let locks = KeyedMutex::<u64>::builder().shards(1).capacity(capacity).build();
        let mut guards = Vec::with_capacity(capacity);
        let before = CALLS.load(SeqCst);
        for round in 0..20 {
            guards.extend((0..capacity as u64).map(|key| locks.lock_blocking(&(3 * key + round))));
            guards.clear();
        }
        let mut window = std::collections::VecDeque::with_capacity(capacity + 1);
        let sliding = CALLS.load(SeqCst);
        for key in 0..20 * capacity as u64 {
            if window.len() == capacity {
                window.pop_front();
            }
            window.push_back(locks.lock_blocking(&key));
        }
        assert_eq!(CALLS.load(SeqCst) - sliding, 0, "capacity {capacity}, a sliding window");
        assert_eq!(sliding - before, 1, "capacity {capacity}, rounds (one allocation is the window's)");
    }
}

fn pool_capacity_is_the_number_of_free_entries_kept() {
    /// A key so large that the number of entries can be derived from the bytes.
    type Key = [u64; 8192];
    let kept = |pool| {
        let locks = KeyedMutex::<Key>::builder().shards(4).pool_capacity(pool).build();
        let empty = bytes();
        let mut guards = Vec::new();
        for _ in 0..2 {
            guards.extend((0..100).map(|key| locks.lock_blocking(&[key; 8192])));
            guards.clear();
        }
        drop(guards);
        (bytes() - empty) / size_of::<Key>() as isize
    };
    assert_eq!(kept(0), 0);
    // A shard allocates entries in groups, here of up to eight, and may keep nearly two more groups.
    assert!((10..=10 + 4 * 14).contains(&kept(10)), "{}", kept(10));
    // The pool has room for all entries that existed. Some were allocated together with others that were needed.
    assert!((100..=200).contains(&kept(400)), "{}", kept(400));
}

fn guarantee_8_memory_follows_use() {
    for shards in [1, 16] {
        let locks = KeyedMutex::<u64>::builder().shards(shards).build();
        let keys = 1500 * shards as u64;
        let mut guards = Vec::with_capacity(keys as usize);
        let empty = bytes();
        guards.extend((0..keys).map(|key| locks.lock_blocking(&key)));
        let full = bytes();
        guards.clear();
        for key in 0..keys {
            drop(locks.lock_blocking(&key));
        }
        let (took, kept) = (full - empty, bytes() - empty);
        assert!(took > 24 * keys as isize);
        assert!(3 * kept < took, "{shards} shards: {kept} bytes of {took} are kept");

        // As above, but with some keys still held. Each of them keeps the group of 16 slots in which its entry is.
        let empty = bytes();
        guards.extend((0..keys).map(|key| locks.lock_blocking(&key)));
        let full = bytes();
        let mut n = 0;
        guards.retain(|_| {
            n += 1;
            n % 64 == 0
        });
        for key in 0..keys {
            drop(locks.try_lock(&(key + keys)));
        }
        let (took, kept) = (full - empty, bytes() - empty);
        assert!(3 * kept < took, "{shards} shards: {kept} bytes of {took} are kept");
        guards.clear();
    }
    // After a large burst much less is kept: the hash tables and lists shrink, too.
    for pool in [0, 4, 64] {
        let locks = KeyedMutex::<u64>::builder().shards(1).pool_capacity(pool).build();
        let mut guards = Vec::with_capacity(100_000);
        let empty = bytes();
        guards.extend((0..100_000).map(|key| locks.lock_blocking(&key)));
        let full = bytes();
        guards.clear();
        let (took, kept) = (full - empty, bytes() - empty);
        assert!(8 * kept < took, "a pool of {pool}: {kept} bytes of {took} are kept");
    }
    // The memory of waiters is freed, too.
    let locks = KeyedMutex::<u64>::new();
    let empty = bytes();
    let guard = locks.try_lock(&7);
    let mut waiters: Vec<_> = (0..2000).map(|_| locks.lock(&7)).collect();
    waiters.iter_mut().for_each(|waiter| assert!(poll_with(waiter, Waker::noop()).is_pending()));
    let full = bytes();
    drop((guard, waiters));
    assert!(3 * (bytes() - empty) < full - empty);
}

fn guarantee_8_memory_of_waiters_follows_use_while_another_key_has_a_waiter() {
    // On 32-bit targets a key can have fewer waiters.
    const WAITERS: usize = if keylatch::MAX_USERS > 20_000 { 20_000 } else { 10_000 };
    let locks = KeyedMutex::<u64>::builder().shards(1).build();
    let _guards = [7, 8].map(|key| locks.try_lock(&key));
    let wait = |key| {
        let mut waiter = locks.lock(&key);
        pending(&mut waiter);
        waiter
    };
    let mut waiters = Vec::with_capacity(WAITERS);
    let empty = bytes();
    waiters.extend((0..WAITERS).map(|_| wait(7)));
    let full = bytes();
    // This waiter arrived last and stays.
    let _other = wait(8);
    waiters.clear();
    (0..WAITERS).for_each(|_| drop(wait(7)));
    let (took, kept) = (full - empty, bytes() - empty);
    assert!(3 * kept < took, "{kept} bytes of {took} are kept");
}

fn guarantee_8_memory_of_a_detector_follows_use() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("import");
    let other = ready(locks.lock(&0));
    let begin = bytes();
    let holds = (1..=20_000).map(|key| block_on(party.acquire(locks.lock(&key))).unwrap()).collect::<Vec<_>>();
    {
        // The search for a cycle puts all holds into the detector's table.
        let mut waiting = std::pin::pin!(party.acquire(locks.lock(&0)));
        pending(&mut waiting);
    }
    let peak = bytes() - begin;
    // Only the detector's memory is left.
    drop(holds);
    drop(other);
    drop(locks);
    let left = bytes() - begin;
    assert!(left * 20 < peak, "{left} of {peak} bytes remain");
}
