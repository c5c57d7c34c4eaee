//! Tests that fail: promises that values at rest break. (Those marked `ignore` print figures.)
#![allow(unsafe_code, missing_docs, clippy::drop_non_drop, dropping_copy_types)] // a global allocator that counts

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;

use keylatch::LockMap;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as isize);
        PEAK.set(PEAK.get().max(BYTES.get()));
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size() as isize);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn calls(f: impl FnOnce()) -> usize {
    let before = CALLS.get();
    f();
    CALLS.get() - before
}

/// Returns by how much memory was greater than at the beginning, at most, while `f` ran.
fn peak(f: impl FnOnce()) -> isize {
    let before = BYTES.get();
    PEAK.set(before);
    f();
    PEAK.get() - before
}

fn with_capacity(n: usize) -> LockMap<u64, u64> {
    LockMap::builder().shards(1).capacity(n).build()
}

fn fill(map: &LockMap<u64, u64>, n: u64) -> usize {
    calls(|| (0..n).for_each(|key| drop(map.insert_blocking(&key, key))))
}

#[test]
fn capacity_is_permanent_although_a_value_is_removed() {
    let map = with_capacity(1000);
    fill(&map, 2);
    map.remove_blocking(&1); // the second value was at rest
    assert_eq!(fill(&map, 1000), 0);
}

#[test]
fn capacity_is_permanent_although_all_values_are_removed() {
    let map = with_capacity(1000);
    assert_eq!(fill(&map, 1000), 0);
    let gone = calls(|| (0..1000).for_each(|key| drop(map.remove_blocking(&key))));
    assert_eq!((gone, fill(&map, 1000)), (0, 0));
}

#[test]
fn capacity_is_permanent_although_all_values_are_visited() {
    let map = with_capacity(1000);
    fill(&map, 10);
    map.for_each_value(|_, _, _| {});
    assert_eq!(fill(&map, 1000), 0);
}

#[test]
fn capacity_is_permanent_although_values_are_used_with_guards() {
    let map = with_capacity(1000);
    fill(&map, 1000);
    let guards = calls(|| (0..1000).for_each(|key| drop(map.read_blocking(&key))));
    let gets = calls(|| (0..4000).for_each(|key| drop(map.get_blocking(&(key / 4)))));
    assert_eq!((guards, gets), (0, 0));
}

#[test]
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

#[test]
fn capacity_suffices_while_values_are_used_in_turn_by_guards_and_gets() {
    let mut failures = Vec::new();
    for capacity in [28, 112, 113, 448, 896, 1792] {
        let map = with_capacity(capacity);
        fill(&map, capacity as u64);
        let turns = calls(|| {
            for key in (0..50 * capacity as u64).map(|n| n % capacity as u64) {
                drop(map.read_blocking(&key));
                (0..4).for_each(|_| drop(map.get_blocking(&key)));
            }
        });
        if turns != 0 {
            failures.push((capacity, turns));
        }
    }
    assert!(failures.is_empty(), "(capacity, allocations): {failures:?}");
}

#[test]
fn a_walk_takes_a_bit_for_each_slot() {
    let map = LockMap::<u64, u64>::builder().shards(1).build();
    fill(&map, 100_000);
    let took = peak(|| {
        let mut walk = map.walk();
        drop(walk.next_read_blocking());
    });
    assert!(took < 64_000, "{took} bytes for one step of a walk");
}

#[test]
fn memory_follows_use_whatever_removes() {
    let ways: [(&str, fn(&LockMap<u64, u64>, u64)); 8] = [
        ("remove", |map, n| (0..n).for_each(|key| drop(map.remove_blocking(&key)))),
        ("clear", |map, _| assert_eq!(map.clear(), 0)),
        ("retain", |map, _| assert_eq!(map.retain(|_, _| false), 0)),
        ("guards", |map, n| (0..n).for_each(|key| drop(map.write_blocking(&key).remove()))),
        ("walk", |map, _| {
            let mut walk = map.walk();
            while let Some(mut guard) = walk.next_write_blocking() {
                guard.remove();
            }
        }),
        ("guards then gets then remove", |map, n| {
            (0..n).for_each(|key| drop(map.read_blocking(&key)));
            (0..4 * n).for_each(|key| drop(map.get_blocking(&(key % n))));
            (0..n).for_each(|key| drop(map.remove_blocking(&key)));
        }),
        ("walk, then remove", |map, n| {
            map.for_each_value(|_, _, _| {});
            (0..n).for_each(|key| drop(map.remove_blocking(&key)));
        }),
        ("a nested walk that is forgotten", |map, n| {
            let mut walk = map.walk();
            drop(walk.next_read_blocking());
            std::mem::forget(walk);
            map.for_each_value(|_, _, _| {});
            (0..n).for_each(|key| drop(map.remove_blocking(&key)));
        }),
    ];
    let mut failures = Vec::new();
    for (name, way) in ways {
        for n in [1000, 1793, 20_000, 60_000] {
            for left in [0, 10] {
                let map = LockMap::<u64, u64>::builder().shards(1).build();
                let empty = BYTES.get();
                fill(&map, n);
                let full = BYTES.get() - empty;
                way(&map, n);
                fill(&map, left);
                for key in 0..n {
                    map.insert_blocking(&(key + n), 1);
                    map.remove_blocking(&(key + n));
                }
                let kept = BYTES.get() - empty;
                if 3 * kept >= full {
                    failures.push((name, n, left, kept, full));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn asking_for_the_status_of_keys_takes_no_memory() {
    let map = LockMap::<u64, u64>::builder().shards(1).build();
    fill(&map, 10_000);
    let before = BYTES.get();
    let asks = calls(|| (0..10_000).for_each(|key| assert!(map.status(&key).is_some_and(|status| status.holders() == 0))));
    assert_eq!((asks, BYTES.get() - before), (0, 0), "(allocations, bytes)");
}

#[test]
fn a_value_with_many_handles_that_are_gone_is_evicted_although_a_future_keeps_its_entry() {
    let map: LockMap<u64, u64> = LockMap::builder().shards(1).max_values(1).build();
    map.insert_blocking(&1, 1);
    let future = map.get(&1); // not polled, so not a use
    drop((0..20).map(|_| map.handle(&1)).collect::<Vec<_>>());
    map.insert_blocking(&2, 2);
    assert_eq!(map.len(), 1);
    drop(future);
}

#[test]
fn one_value_in_each_chunk_that_is_not_read_does_not_double_the_memory() {
    let map = LockMap::<u64, u64>::builder().shards(1).build();
    let empty = BYTES.get();
    (0..100_000).for_each(|key| drop(map.write_blocking(&key).insert(key)));
    let slots = BYTES.get() - empty;
    for _ in 0..150 {
        for key in (0..100_000).filter(|key| key % 16 != 0) {
            map.get_blocking(&key);
        }
    }
    let mixed = BYTES.get() - empty;
    assert!(mixed < slots * 5 / 4, "{slots} bytes before some of the values came to rest, {mixed} bytes after");
}

/// The time for each value must not grow with their number.
#[test]
fn a_visit_takes_time_in_proportion_to_the_number_of_values() {
    let each = |n: u64| {
        let map = LockMap::<u64, u64>::builder().shards(1).build();
        fill(&map, n);
        let visit = || {
            let begin = std::time::Instant::now();
            map.for_each_value(|_, _, _| {});
            begin.elapsed().as_secs_f64() / n as f64
        };
        visit().min(visit())
    };
    let (few, many) = (each(200_000), each(6_400_000));
    assert!(many < 4.0 * few, "{:.0} ns each for 200000 values, {:.0} ns each for 6400000", few * 1e9, many * 1e9);
}

#[test]
#[ignore = "prints figures"]
fn pauses() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::{Duration, Instant};
    for n in [100_000_u64, 1_000_000, 4_000_000] {
        let map = LockMap::<u64, u64>::builder().shards(1).build();
        fill(&map, n);
        let is_over = AtomicBool::new(false);
        let (longest, above) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut longest, mut above, mut key) = (Duration::ZERO, 0, 0);
                while !is_over.load(SeqCst) {
                    key = (key + 7919) % n;
                    let begin = Instant::now();
                    map.get_blocking(&key);
                    let took = begin.elapsed();
                    longest = longest.max(took);
                    above += u32::from(took > Duration::from_micros(200));
                }
                (longest, above)
            });
            map.for_each_value(|_, _, _| {});
            is_over.store(true, SeqCst);
            reader.join().unwrap()
        });
        println!("{n}: a `get` during a visit takes up to {longest:?}; {above} took more than 200 us");
        let mut longest = Duration::ZERO;
        for key in 0..n {
            let begin = Instant::now();
            drop(map.read_blocking(&key));
            longest = longest.max(begin.elapsed());
        }
        println!("{n}: `read` takes up to {longest:?}");
        let mut longest = Duration::ZERO;
        for key in 0..4 * n {
            let begin = Instant::now();
            map.get_blocking(&(key / 4));
            longest = longest.max(begin.elapsed());
        }
        println!("{n}: `get` takes up to {longest:?}");
    }
}

#[test]
#[ignore = "prints figures"]
fn figures() {
    use std::time::Instant;
    fn time(what: &str, n: u64, f: impl FnOnce()) {
        let (begin, before, calls) = (Instant::now(), BYTES.get(), CALLS.get());
        PEAK.set(before);
        f();
        let t = begin.elapsed();
        println!(
            "{what}: {t:?}, {:.1} ns each; peak +{:.1} bytes each, left {:.1} bytes each, {} allocations",
            t.as_nanos() as f64 / n as f64,
            (PEAK.get() - before) as f64 / n as f64,
            (BYTES.get() - before) as f64 / n as f64,
            CALLS.get() - calls,
        );
    }
    for n in [100_000_u64, 1_000_000, 4_000_000] {
        for shards in [1, 16] {
            println!("--- {n} values, {shards} shards");
            let map = LockMap::<u64, u64>::builder().shards(shards).build();
            time("fill", n, || drop(fill(&map, n)));
            time("get", n, || (0..n).for_each(|key| drop(map.get_blocking(&key))));
            time("one step of a walk", n, || {
                let mut walk = map.walk();
                drop(walk.next_read_blocking());
            });
            time("for_each_value", n, || drop(map.for_each_value(|_, _, _| {})));
            time("for_each_value again", n, || drop(map.for_each_value(|_, _, _| {})));
            let mut walk = map.walk();
            time("walk", n, || while walk.next_read_blocking().is_some() {});
            drop(walk);
            time("is_locked", n, || (0..n).for_each(|key| assert!(!map.is_locked(&key))));
            time("read guards", n, || (0..n).for_each(|key| drop(map.read_blocking(&key))));
            time("4 gets each", 4 * n, || (0..n).for_each(|key| (0..4).for_each(|_| drop(map.get_blocking(&key)))));
            time("guard, get x4 each", 5 * n, || {
                (0..n).for_each(|key| {
                    drop(map.read_blocking(&key));
                    (0..4).for_each(|_| drop(map.get_blocking(&key)));
                });
            });
            time("clear", n, || drop(map.clear()));
        }
    }
    println!("--- one key beside another, a guard and then gets");
    for gets in [1, 3, 4, 5, 8] {
        let map = LockMap::<u64, u64>::builder().shards(1).build();
        fill(&map, 100);
        time(&format!("{gets} gets per guard"), 1_000_000, || {
            for _ in 0..1_000_000 {
                drop(map.read_blocking(&50));
                (0..gets).for_each(|_| drop(map.get_blocking(&50)));
            }
        });
    }
    println!("--- random keys of 1000000, 1 guard per 5 calls");
    let map = LockMap::<u64, u64>::builder().build();
    fill(&map, 1_000_000);
    let mut x = 1_u64;
    let mut next = || {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 33) % 1_000_000
    };
    for round in 0..3 {
        time(&format!("mixed {round}"), 10_000_000, || {
            for n in 0..10_000_000 {
                let key = next();
                if n % 5 == 0 { drop(map.read_blocking(&key)) } else { drop(map.get_blocking(&key)) }
            }
        });
    }
    println!("--- capacity");
    for n in [1000, 1_000_000] {
        time(&format!("capacity({n})"), n as u64, || std::mem::forget(with_capacity(n)));
    }
}

#[test]
#[ignore = "prints figures"]
fn memory_of_values_that_are_replaced() {
    fn window<V: Copy>(what: &str, n: u64, value: V) {
        let map = LockMap::<u64, V>::builder().shards(1).build();
        let empty = BYTES.get();
        (0..n).for_each(|key| drop(map.insert_blocking(&key, value)));
        let filled = (BYTES.get() - empty) as f64 / n as f64;
        PEAK.set(BYTES.get());
        for key in n..21 * n {
            map.remove_blocking(&(key - n));
            map.insert_blocking(&key, value);
        }
        let [replaced, peak] = [BYTES.get(), PEAK.get()].map(|bytes| (bytes - empty) as f64 / n as f64);
        println!("{what}, {n} values: {filled:.1} bytes each, {replaced:.1} when replaced, at most {peak:.1}");
    }
    for n in [1000, 1792, 57_344, 60_000, 100_000] {
        window("u64", n, 0_u64);
        window("[u64; 3]", n, [0_u64; 3]);
    }
}

thread_local! {
    /// Called by the next clone of a [`Cloned`].
    static IN_CLONE: Cell<Option<fn()>> = const { Cell::new(None) };
}

#[derive(PartialEq, Eq, Hash)]
struct Cloned(Box<u64>);

impl Clone for Cloned {
    fn clone(&self) -> Self {
        IN_CLONE.take().into_iter().for_each(|call| call());
        Cloned(self.0.clone())
    }
}

/// Another caller makes the entry while this one copies the key, outside every lock.
#[test]
fn two_callers_that_make_the_entry_of_a_key_at_once_do_not_both_hold_it() {
    use keylatch::{KeyedMutex, MutexGuard};
    use std::sync::LazyLock;
    static LOCKS: LazyLock<KeyedMutex<Cloned>> = LazyLock::new(|| KeyedMutex::builder().shards(1).build());
    thread_local! {
        static OTHER: Cell<Option<MutexGuard<'static, Cloned>>> = const { Cell::new(None) };
    }
    let first = LOCKS.try_lock(&Cloned(Box::new(1)));
    IN_CLONE.set(Some(|| OTHER.set(LOCKS.try_lock(&Cloned(Box::new(2))))));
    let this = LOCKS.try_lock(&Cloned(Box::new(2)));
    let other = OTHER.take();
    assert!(first.is_some() && other.is_some());
    assert!(this.is_none(), "two guards of one key");
}
