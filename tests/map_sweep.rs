//! Functions and drops that use the map while it disposes of a value: each value is disposed of, and the stack does not
//! grow with the number of values.

#![allow(dropping_copy_types)] // many calls are made only for their effect

#[path = "common/panics.rs"]
mod panics;

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::time::Duration;

use keylatch::{LockMap, ManualClock};
use panics::{Expected, panics};

const SECOND: Duration = Duration::from_secs(1);

/// The largest number of disposals by one thread, one within the other, in a map of one shard.
const MOST: usize = 4;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static DEEPEST: Cell<usize> = const { Cell::new(0) };
    static STORED: Cell<u64> = const { Cell::new(0) };
}

/// Runs `f`, and records how deeply calls of this function are nested.
fn note_depth(f: impl FnOnce()) {
    DEPTH.set(DEPTH.get() + 1);
    DEEPEST.set(DEEPEST.get().max(DEPTH.get()));
    f();
    DEPTH.set(DEPTH.get() - 1);
}

type Cellar = LockMap<u64, u64>;

/// Builds a map of one shard whose `on_evict` function uses the map.
fn reentrant(most: usize, uses: fn(&Cellar)) -> (Arc<Cellar>, Arc<ManualClock>, Arc<AtomicUsize>) {
    reentrant_of(1, most, uses)
}

fn reentrant_of(shards: usize, most: usize, uses: fn(&Cellar)) -> (Arc<Cellar>, Arc<ManualClock>, Arc<AtomicUsize>) {
    let (clock, told, cell) =
        (Arc::new(ManualClock::new()), Arc::new(AtomicUsize::new(0)), Arc::new(OnceLock::<Weak<Cellar>>::new()));
    let (tells, map) = (Arc::clone(&told), Arc::clone(&cell));
    let builder = LockMap::builder().time_to_live(SECOND).max_values(most).shards(shards).clock(Arc::clone(&clock));
    let builder = builder.on_evict(move |_, _, _| {
        tells.fetch_add(1, Relaxed);
        note_depth(|| map.get().and_then(Weak::upgrade).iter().for_each(|map| uses(map)));
    });
    let map = Arc::new(builder.build());
    assert!(cell.set(Arc::downgrade(&map)).is_ok());
    (map, clock, told)
}

const USES: [fn(&Cellar); 5] = [
    |map| drop(map.try_read(&u64::MAX)),
    |map| drop(map.try_read(&0)),
    |map| drop(map.tick()),
    |map| drop(map.pop()),
    |map| map.set_max_values(usize::MAX),
];

#[test]
fn disposing_of_values_that_have_ended_does_not_recurse() {
    for uses in USES {
        let (map, clock, told) = reentrant(usize::MAX, uses);
        for key in 0..3000 {
            map.insert_blocking(&key, key);
        }
        clock.advance(SECOND);
        assert_eq!(map.tick(), None);
        assert_eq!((map.len(), map.entries(), told.load(Relaxed)), (0, 0, 3000));
        assert!(DEEPEST.get() <= MOST);
    }
}

#[test]
fn an_eviction_does_not_recurse() {
    for uses in USES.into_iter().take(3) {
        let (map, clock, told) = reentrant(usize::MAX, uses);
        for key in 0..300 {
            map.insert_blocking(&key, key);
        }
        map.set_max_values(1);
        assert_eq!((map.len(), told.load(Relaxed)), (1, 299));
        assert!(DEEPEST.get() <= MOST);
        clock.advance(SECOND);
        map.tick();
        assert_eq!(told.load(Relaxed), 300);
    }
}

#[test]
fn slow_disposals_do_not_keep_others_from_disposing() {
    const SLOW: usize = 6;
    let (gate, told) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
    let (waits, tells) = (Arc::clone(&gate), Arc::clone(&told));
    let (begins, begun) = mpsc::channel();
    let builder = LockMap::<u64, u64>::builder().max_values(1).shards(1).time_to_live(SECOND);
    let map = builder
        .clock(ManualClock::new())
        .on_evict(move |_, _, _| {
            if tells.fetch_add(1, Relaxed) < SLOW {
                let _ = begins.send(());
                drop(waits.lock());
            }
        })
        .build();
    map.insert_blocking(&0, 0);
    std::thread::scope(|scope| {
        let closed = gate.lock();
        for key in 1..=SLOW as u64 {
            let map = &map;
            scope.spawn(move || map.insert_blocking(&key, key));
        }
        for _ in 0..SLOW {
            begun.recv_timeout(Duration::from_secs(60)).expect("each insertion disposes of a value");
        }
        for key in 100..200 {
            map.insert_blocking(&key, key);
        }
        assert_eq!((map.len(), told.load(Relaxed)), (1, SLOW + 100));
        drop(closed);
    });
}

/// Each map stores the values that it evicts in the next map.
#[test]
fn maps_that_store_in_each_other_what_they_evict_keep_their_bounds() {
    let mut lower: Option<Arc<Cellar>> = None;
    let mut maps = Vec::new();
    for _ in 0..8 {
        let below = lower.take();
        let builder = LockMap::builder().max_values(1).shards(1).time_to_live(SECOND).clock(ManualClock::new());
        let builder = builder.on_evict(move |key, value, _| {
            below.iter().for_each(|map| drop(map.insert_blocking(&key, value)));
        });
        let map = Arc::new(builder.build());
        maps.push(Arc::clone(&map));
        lower = Some(map);
    }
    for key in 0..20 {
        maps[7].insert_blocking(&key, key);
    }
    assert!(maps.iter().all(|map| map.len() == 1));
}

#[test]
fn a_sweep_disposes_of_what_its_function_leaves_behind() {
    // Each eviction stores a value, until there are enough.
    let (map, clock, told) = reentrant(2, |map| {
        if STORED.get() < 20 {
            STORED.set(STORED.get() + 1);
            map.insert_blocking(&(100 + STORED.get()), 0);
        }
    });
    for key in 0..3 {
        map.insert_blocking(&key, key);
    }
    assert_eq!((map.len(), told.load(Relaxed)), (2, 21));
    assert!(DEEPEST.get() <= MOST);

    // A value ends while another one is handed over, and a nested `tick` leaves it to the outer sweep.
    clock.advance(SECOND);
    let (map, clock, told) = reentrant(usize::MAX, |map| drop(map.tick()));
    map.insert_blocking(&1, 1);
    let (reader, handle) = (map.read_blocking(&1), map.handle(&1));
    map.insert_blocking(&2, 2);
    clock.advance(SECOND);
    drop(reader);
    drop(handle);
    assert_eq!((map.len(), map.entries(), told.load(Relaxed)), (0, 0, 2));
}

#[test]
fn a_tick_evicts_what_is_left_to_it_and_nothing_else() {
    // The innermost call stores too many values, once. Its sweeps leave the excess to the ticks.
    let (map, clock, told) = reentrant(10, |map| {
        if DEPTH.get() < MOST {
            map.tick();
        } else if STORED.replace(1) == 0 {
            (100..115).for_each(|key| drop(map.insert_blocking(&key, key)));
        }
    });
    for key in 0..10 {
        map.insert_blocking(&key, key);
    }
    clock.advance(SECOND);
    map.tick();
    assert_eq!((map.len(), map.entries(), told.load(Relaxed)), (10, 10, 15));

    // Values in use are in excess until they are released.
    let guards: Vec<_> = (200..220).map(|key| map.get_or_insert_blocking(&key, key)).collect();
    let before = map.len();
    map.tick();
    assert_eq!(map.len(), before);
    drop(guards);
    assert_eq!(map.len(), 10);
}

#[test]
fn a_value_that_ends_in_a_nested_call_is_left_to_the_calls_around_it() {
    let (clock, told, cell) =
        (Arc::new(ManualClock::new()), Arc::new(AtomicUsize::new(0)), Arc::new(OnceLock::<Weak<Cellar>>::new()));
    let (time, tells, map) = (Arc::clone(&clock), Arc::clone(&told), Arc::clone(&cell));
    let builder = LockMap::builder().shards(1).clock(Arc::clone(&clock));
    let builder = builder.expire_with(|&key, _| Some(if key == 100 { 2 * SECOND } else { SECOND }));
    let builder = builder.on_evict(move |_, _, _| {
        tells.fetch_add(1, Relaxed);
        let map = map.get().and_then(Weak::upgrade).expect("the map is in use");
        note_depth(|| {
            if DEPTH.get() < MOST {
                map.tick();
            } else {
                time.advance(SECOND);
                assert!(map.read_blocking(&100).value().is_none());
            }
        });
    });
    let map = Arc::new(builder.build());
    assert!(cell.set(Arc::downgrade(&map)).is_ok());
    for key in (0..MOST as u64).chain([100]) {
        map.insert_blocking(&key, key);
    }
    clock.advance(SECOND);
    map.tick();
    assert_eq!((map.entries(), told.load(Relaxed)), (0, MOST + 1));
}

/// The calls around the `tick` dispose of only a few values each, except for those that are left to them.
#[test]
fn a_nested_tick_leaves_all_values_where_they_are_to_the_calls_around_it() {
    const VALUES: u64 = 500;
    let (map, clock, told) = reentrant(usize::MAX, |map| {
        if DEPTH.get() < MOST {
            drop(map.read_blocking(&(VALUES + DEPTH.get() as u64)));
        } else {
            let entries = map.entries();
            assert_ne!(map.tick(), Some(Duration::ZERO));
            assert_eq!(map.entries(), entries);
        }
    });
    (0..VALUES).for_each(|key| drop(map.insert_blocking(&key, key)));
    clock.advance(SECOND);
    drop(map.read_blocking(&VALUES));
    assert_eq!((map.entries(), told.load(Relaxed)), (0, VALUES as usize));
    assert_eq!((DEEPEST.get(), map.tick()), (MOST, None));
}

#[test]
fn a_panic_ends_a_sweep() {
    let (map, clock, told) = reentrant(1, |_| resume_unwind(Box::new(Expected)));
    map.insert_blocking(&1, 1);
    assert!(panics(|| drop(map.insert_blocking(&2, 2))));
    assert!(panics(|| drop(map.insert_blocking(&3, 3))));
    clock.advance(SECOND);
    assert!(panics(|| drop(map.tick())));
    assert_eq!((map.len(), told.load(Relaxed)), (0, 3));
}

#[test]
fn the_stack_grows_with_the_shards_and_not_with_the_values() {
    const SHARDS: usize = 16;
    let (map, clock, told) = reentrant_of(SHARDS, usize::MAX, |map| drop(map.tick()));
    for key in 0..3000 {
        map.insert_blocking(&key, key);
    }
    clock.advance(SECOND);
    map.tick();
    assert_eq!((map.len(), map.entries(), told.load(Relaxed)), (0, 0, 3000));
    assert!(DEEPEST.get() <= MOST + SHARDS);
}

/// A value that uses its map when it is dropped.
struct Uses(Weak<LockMap<u64, Uses>>, fn(&LockMap<u64, Uses>));

impl Drop for Uses {
    fn drop(&mut self) {
        STORED.set(STORED.get() + 1);
        note_depth(|| self.0.upgrade().iter().for_each(|map| (self.1)(map)));
    }
}

#[test]
fn drops_that_use_the_map_do_not_recurse() {
    let uses: [fn(&LockMap<u64, Uses>); 2] = [|map| drop(map.tick()), |map| drop(map.try_read(&u64::MAX))];
    for uses in uses {
        STORED.set(0);
        let clock = Arc::new(ManualClock::new());
        let map = Arc::new(LockMap::builder().time_to_live(SECOND).shards(1).clock(Arc::clone(&clock)).build());
        for key in 0..3000 {
            map.insert_blocking(&key, Uses(Arc::downgrade(&map), uses));
        }
        clock.advance(SECOND);
        map.tick();
        assert_eq!((map.len(), map.entries(), STORED.get()), (0, 0, 3000));
        assert!(DEEPEST.get() <= MOST);
    }
}

/// Threads whose sweeps nest too deeply in the same shard leave the rest to each other.
#[test]
fn threads_that_dispose_of_values_lose_none() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 300;
    for uses in USES.into_iter().take(3) {
        let (map, clock, told) = reentrant(20, uses);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (map, clock) = (&map, &clock);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        map.insert_blocking(&(round * THREADS + thread), 0);
                        if round % 8 == 0 {
                            clock.advance(SECOND / 2);
                        }
                        if round % 32 == 0 {
                            map.tick();
                        }
                    }
                });
            }
        });
        assert!(map.len() <= 20);
        clock.advance(SECOND);
        map.tick();
        assert_eq!((map.len(), map.entries(), told.load(Relaxed)), (0, 0, (THREADS * ROUNDS) as usize));
    }
}
