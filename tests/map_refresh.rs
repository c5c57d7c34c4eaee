//! Values that are refreshed: one caller makes the next value when a value is old, and the others get the old one.

#![allow(dropping_copy_types, clippy::type_complexity)] // some calls are made only for their effect

mod common;

use std::cell::Cell;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use futures_lite::future::{block_on, pending as never, yield_now};
use keylatch::{Builder, Evicted, LockMap, ManualClock, table::MapKind};

use common::{pending, ready};

type Map = LockMap<String, u64>;

const SECOND: Duration = Duration::from_secs(1);

/// The time for which a value is fresh.
const FRESH: Duration = Duration::from_secs(10);

/// Makes a map whose values have an age, and its clock.
fn built(with: impl FnOnce(Builder<MapKind<u64>, String>) -> Builder<MapKind<u64>, String>) -> (Map, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let builder = LockMap::builder().record_ages().clock(Arc::clone(&clock)).shards(1);
    (with(builder).build(), clock)
}

fn map() -> (Map, Arc<ManualClock>) {
    built(|builder| builder)
}

/// Makes a map whose only value, 7 at "a", is old.
fn old() -> (Map, Arc<ManualClock>) {
    let (map, clock) = map();
    map.insert_blocking("a", 7);
    clock.advance(FRESH);
    (map, clock)
}

/// Asks for the value, and gets the one that is there.
fn found(map: &Map) -> u64 {
    map.get_or_refresh_with_blocking("a", FRESH, || panic!("there is nothing to make"))
}

/// Asks for the value, and makes it.
fn made(map: &Map, value: u64) -> u64 {
    let mut is_made = false;
    let make = || {
        is_made = true;
        value
    };
    let got = map.get_or_refresh_with_blocking("a", FRESH, make);
    assert!(is_made, "the value should have been made");
    got
}

/// Begins to refresh the value at "a". The future waits in its `init` until a result is sent, which `init` returns.
macro_rules! refresher {
    ($map:expr, $sender:ident, $future:ident) => {
        let ($sender, receiver) = mpsc::channel::<Result<u64, &str>>();
        let init = async || loop {
            match receiver.try_recv() {
                Ok(value) => break value,
                Err(_) => yield_now().await,
            }
        };
        let mut $future = Box::pin($map.get_or_try_refresh_with("a", FRESH, init));
        pending(&mut $future);
    };
}

// ---- missing, fresh and old values ----------------------------------------------------------------------------------

#[test]
fn a_missing_value_is_made() {
    let (map, _clock) = map();
    assert_eq!(made(&map, 1), 1);
    assert_eq!(map.get_blocking("a"), Some(1));
    assert_eq!(block_on(map.get_or_refresh_with("b", FRESH, async || 2)), 2);
    assert_eq!(map.get_or_try_refresh_with_blocking("c", FRESH, || Ok::<_, Infallible>(3)), Ok(3));
    assert_eq!(block_on(map.get_or_try_refresh_with("d", FRESH, async || Err("no"))), Err("no"));
    assert_eq!((map.len(), map.entries()), (3, 3));
}

#[test]
fn callers_that_miss_a_value_wait_for_the_one_that_makes_it() {
    let (map, _clock) = map();
    refresher!(map, sender, first);
    let mut second = Box::pin(map.get_or_refresh_with("a", FRESH, async || panic!("another caller makes it")));
    pending(&mut second);
    sender.send(Ok(1)).unwrap();
    assert_eq!(ready(&mut first), Ok(1));
    assert_eq!(ready(&mut second), 1);
}

#[test]
fn a_value_is_fresh_until_its_age_is_reached() {
    let (map, clock) = map();
    assert_eq!(made(&map, 1), 1);
    clock.advance(FRESH - Duration::from_nanos(1));
    assert_eq!(found(&map), 1);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(made(&map, 2), 2);
    assert_eq!(found(&map), 2);
    assert_eq!(map.get_blocking("a"), Some(2));
}

#[test]
fn the_age_begins_anew_with_each_refresh() {
    let (map, clock) = map();
    for round in 0..10 {
        assert_eq!(made(&map, round), round);
        clock.advance(FRESH / 2);
        assert_eq!(found(&map), round);
        clock.advance(FRESH / 2);
    }
}

#[test]
fn every_change_begins_the_age_anew_and_a_look_does_not() {
    type Change = fn(&Map);
    let changes: [Change; 6] = [
        |map| drop(map.insert_blocking("a", 8)),
        |map| *map.write_blocking("a").value_mut().unwrap() = 8,
        |map| drop(map.update_blocking("a", |value| *value = 8)),
        |map| drop(map.compute_blocking("a", |_| Some(8))),
        |map| drop(map.batch().insert("a", 8).commit_blocking()),
        |map| *map.upgradable_read_blocking("a").upgrade_mut_blocking().value_mut().unwrap() = 8,
    ];
    for change in changes {
        let (map, _clock) = old();
        change(&map);
        assert_eq!(found(&map), 8);
    }
    let looks: [Change; 4] = [
        |map| assert_eq!(map.get_blocking("a"), Some(7)),
        |map| drop(map.write_blocking("a")),
        |map| assert!(map.contains_key("a") && map.peek_blocking("a") == Some(7)),
        |map| drop(map.tick()),
    ];
    for look in looks {
        let (map, _clock) = old();
        look(&map);
        assert_eq!(made(&map, 8), 8);
    }
}

#[test]
fn each_caller_says_how_old_a_value_may_be() {
    let (map, clock) = map();
    map.insert_blocking("a", 1);
    clock.advance(5 * SECOND);
    assert_eq!(map.get_or_refresh_with_blocking("a", 6 * SECOND, || panic!("it is fresh")), 1);
    assert_eq!(map.get_or_refresh_with_blocking("a", 5 * SECOND, || 2), 2);
    assert_eq!(map.get_or_refresh_with_blocking("a", Duration::ZERO, || 3), 3);
    clock.set(Duration::MAX);
    assert_eq!(map.get_or_refresh_with_blocking("a", Duration::MAX, || panic!("nothing is that old")), 3);
}

#[test]
fn a_value_tells_its_age() {
    let (map, clock) = built(|builder| builder.time_to_live(2 * FRESH));
    map.insert_blocking("a", 0);
    map.remove_blocking("a");
    assert_eq!(map.age("a"), None);
    let mut writer = map.write_blocking("a");
    assert_eq!(map.age("a"), None);
    clock.advance(SECOND);
    writer.insert(1);
    assert_eq!(map.age("a"), Some(Duration::ZERO));
    clock.advance(SECOND);
    drop(writer);
    assert_eq!(map.age("a"), Some(Duration::ZERO));
    clock.advance(SECOND);
    assert_eq!((map.get_blocking("a"), map.age("a")), (Some(1), Some(SECOND)));
    clock.advance(FRESH - SECOND);
    assert_eq!(made(&map, 2), 2);
    assert_eq!(map.age("a"), Some(Duration::ZERO));
    clock.advance(2 * FRESH - SECOND);
    assert_eq!(map.age("a"), Some(2 * FRESH - SECOND));
    clock.advance(SECOND);
    assert_eq!(map.age("a"), None);
}

#[test]
fn each_key_has_an_age_of_its_own() {
    let (map, clock) = map();
    for key in 0..40_u64 {
        map.insert_blocking(&key.to_string(), key);
        clock.advance(SECOND);
    }
    for key in 0..40_u64 {
        let got = map.get_or_refresh_with_blocking(&key.to_string(), 20 * SECOND, || 100 + key);
        assert_eq!(got, if key <= 20 { 100 + key } else { key });
    }
}

#[test]
fn a_map_that_was_extended_has_ages() {
    let (mut map, clock) = map();
    map.extend([("a".to_string(), 1)]);
    assert_eq!(found(&map), 1);
    clock.advance(FRESH);
    assert_eq!(made(&map, 2), 2);
    assert_eq!(map.into_iter().collect::<Vec<_>>(), [("a".to_string(), 2)]);
}

// ---- one refresher --------------------------------------------------------------------------------------------------

#[test]
fn one_of_many_threads_refreshes_and_the_others_get_the_old_value() {
    const THREADS: usize = 8;
    for _ in 0..50 {
        let (map, _clock) = old();
        let (begin, others, inits) = (Barrier::new(THREADS), AtomicUsize::new(0), AtomicUsize::new(0));
        let ask = || {
            begin.wait();
            let init = || {
                inits.fetch_add(1, SeqCst);
                // The other callers return while the refresher is in its `init`, unless there are several refreshers.
                while others.load(SeqCst) < THREADS - 1 && inits.load(SeqCst) == 1 {
                    thread::yield_now();
                }
                8
            };
            let got = map.get_or_refresh_with_blocking("a", FRESH, init);
            others.fetch_add(1, SeqCst);
            got
        };
        let mut got: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        got.sort_unstable();
        assert_eq!((&got[..THREADS - 1], got[THREADS - 1]), (&[7; THREADS - 1][..], 8));
        assert_eq!((inits.load(SeqCst), map.get_blocking("a")), (1, Some(8)));
    }
}

#[test]
fn a_refresher_holds_no_lock_while_it_makes_the_value() {
    let (map, clock) = old();
    refresher!(map, sender, refresher);
    assert!(!map.is_locked("a"));
    assert_eq!(found(&map), 7);
    assert_eq!(ready(pin!(map.get_or_refresh_with("a", FRESH, async || panic!("another caller does")))), 7);
    assert_eq!(map.get_blocking("a"), Some(7));
    clock.advance(100 * FRESH);
    assert_eq!(found(&map), 7);
    drop(map.try_write("a").unwrap());
    sender.send(Ok(8)).unwrap();
    assert_eq!(ready(&mut refresher), Ok(8));
    assert_eq!(found(&map), 8);
}

#[test]
fn the_new_value_is_stored_when_the_readers_have_gone() {
    let (map, _clock) = old();
    refresher!(map, sender, refresher);
    let reader = map.read_blocking("a");
    sender.send(Ok(8)).unwrap();
    pending(&mut refresher);
    assert_eq!(reader.value(), Some(&7));
    drop(reader);
    assert_eq!(ready(&mut refresher), Ok(8));
    assert_eq!(map.get_blocking("a"), Some(8));
}

#[test]
fn a_caller_that_asks_for_its_own_key_while_it_refreshes_gets_the_old_value() {
    let (map, _clock) = old();
    let got = map.get_or_refresh_with_blocking("a", FRESH, || found(&map) + 1);
    assert_eq!((got, map.get_blocking("a")), (8, Some(8)));
}

// ---- attempts that come to nothing ----------------------------------------------------------------------------------

#[test]
fn a_refresher_that_fails_leaves_the_old_value_and_lets_another_try() {
    let (map, _clock) = old();
    for _ in 0..3 {
        assert_eq!(map.get_or_try_refresh_with_blocking("a", FRESH, || Err("no")), Err("no"));
        assert_eq!(block_on(map.get_or_try_refresh_with("a", FRESH, async || Err("no"))), Err("no"));
        assert_eq!((map.get_blocking("a"), map.entries(), map.is_locked("a")), (Some(7), 1, false));
    }
    assert_eq!(made(&map, 8), 8);
}

#[test]
fn a_refresher_that_panics_leaves_the_old_value_and_lets_another_try() {
    let (map, _clock) = old();
    let refresh = || map.get_or_refresh_with_blocking("a", FRESH, || panic!("in init"));
    assert!(catch_unwind(AssertUnwindSafe(refresh)).is_err());
    let refresh = || block_on(map.get_or_refresh_with("a", FRESH, async || panic!("in init")));
    assert!(catch_unwind(AssertUnwindSafe(refresh)).is_err());
    assert_eq!((map.get_blocking("a"), map.entries(), map.is_locked("a")), (Some(7), 1, false));
    assert_eq!(made(&map, 8), 8);
}

#[test]
fn a_refresher_that_is_dropped_leaves_the_old_value_and_lets_another_try() {
    let (map, _clock) = old();
    refresher!(map, _sender, refresher);
    assert_eq!(found(&map), 7);
    drop(refresher);
    assert_eq!((map.get_blocking("a"), map.entries()), (Some(7), 1));
    assert_eq!(made(&map, 8), 8);
}

#[test]
fn a_refresher_that_is_dropped_while_it_waits_for_readers_lets_another_try() {
    let (map, _clock) = old();
    refresher!(map, sender, refresher);
    let reader = map.read_blocking("a");
    sender.send(Ok(8)).unwrap();
    pending(&mut refresher);
    drop(refresher);
    drop(reader);
    assert_eq!(map.get_blocking("a"), Some(7));
    assert_eq!(made(&map, 9), 9);
}

#[test]
fn a_future_that_is_not_polled_refreshes_nothing() {
    let (map, _clock) = old();
    let unpolled = map.get_or_refresh_with("a", FRESH, async || 8);
    assert_eq!(made(&map, 9), 9);
    assert_eq!(block_on(unpolled), 9);
}

#[test]
fn a_refresh_that_never_ends_ends_with_the_life_of_its_value() {
    let (map, clock) = built(|builder| builder.time_to_live(6 * FRESH));
    map.insert_blocking("a", 7);
    clock.advance(5 * FRESH);
    let mut stuck = Box::pin(map.get_or_refresh_with("a", FRESH, never::<u64>));
    pending(&mut stuck);
    assert_eq!(found(&map), 7);
    clock.advance(FRESH);
    assert_eq!(made(&map, 8), 8);
    clock.advance(FRESH);
    assert_eq!(made(&map, 9), 9);
    drop(stuck);
    assert_eq!(found(&map), 9);
}

// ---- changes during a refresh ---------------------------------------------------------------------------------------

#[test]
fn a_change_during_a_refresh_stands() {
    type Change = fn(&Map);
    let changes: [Change; 4] = [
        |map| drop(map.insert_blocking("a", 8)),
        |map| *map.write_blocking("a").value_mut().unwrap() += 1,
        |map| drop(map.compute_blocking("a", |value| value.map(|value| value + 1))),
        |map| {
            map.remove_blocking("a");
            map.insert_blocking("a", 8);
        },
    ];
    for change in changes {
        let (map, _clock) = old();
        refresher!(map, sender, refresher);
        change(&map);
        let version = map.read_blocking("a").version();
        sender.send(Ok(100)).unwrap();
        assert_eq!(ready(&mut refresher), Ok(8), "the later value is returned");
        assert_eq!(map.read_blocking("a").version(), version);
        assert_eq!(found(&map), 8);
    }
}

#[test]
fn a_removal_during_a_refresh_stands() {
    type Change = fn(&Map);
    let removals: [Change; 6] = [
        |map| drop(map.remove_blocking("a")),
        |map| drop(map.write_blocking("a").remove()),
        |map| drop(map.compute_blocking("a", |_| None)),
        |map| drop(map.batch().remove("a").commit_blocking()),
        |map| drop(map.retain(|_, _| false)),
        |map| drop(map.clear()),
    ];
    for remove in removals {
        let (map, _clock) = old();
        refresher!(map, sender, refresher);
        remove(&map);
        assert_eq!(map.len(), 0);
        sender.send(Ok(8)).unwrap();
        assert_eq!(ready(&mut refresher), Ok(8), "the refresher returns what it has made");
        assert_eq!((map.get_blocking("a"), map.len(), map.entries()), (None, 0, 0));
    }
}

#[test]
fn a_value_that_is_missing_during_a_refresh_is_made_by_another_caller() {
    let (map, _clock) = old();
    refresher!(map, sender, refresher);
    map.remove_blocking("a");
    assert_eq!(made(&map, 9), 9);
    sender.send(Ok(8)).unwrap();
    assert_eq!(ready(&mut refresher), Ok(9));
    assert_eq!(found(&map), 9);
}

#[test]
fn a_value_that_ends_during_its_refresh_is_not_replaced() {
    for finds_end in [false, true] {
        let (map, clock) = built(|builder| builder.time_to_live(2 * FRESH));
        map.insert_blocking("a", 7);
        clock.advance(FRESH);
        refresher!(map, sender, refresher);
        clock.advance(FRESH);
        if finds_end {
            assert_eq!((map.get_blocking("a"), map.len()), (None, 0));
        }
        sender.send(Ok(8)).unwrap();
        assert_eq!(ready(&mut refresher), Ok(8));
        assert_eq!((map.len(), map.entries()), (0, 0));
        assert_eq!(made(&map, 9), 9);
    }
}

#[test]
fn a_value_that_another_caller_makes_after_the_end_stands() {
    let (map, clock) = built(|builder| builder.time_to_live(2 * FRESH));
    map.insert_blocking("a", 7);
    clock.advance(FRESH);
    refresher!(map, sender, refresher);
    clock.advance(FRESH);
    assert_eq!(made(&map, 9), 9);
    sender.send(Ok(8)).unwrap();
    assert_eq!(ready(&mut refresher), Ok(9));
}

#[test]
fn a_value_that_is_evicted_during_its_refresh_is_not_replaced() {
    let (map, clock) = built(|builder| builder.max_values(1));
    map.insert_blocking("a", 7);
    clock.advance(FRESH);
    refresher!(map, sender, refresher);
    for round in 0..3 {
        map.insert_blocking("b", round);
        map.insert_blocking("c", round);
    }
    assert!(!map.contains_key("a"), "a refresh does not keep its value from being evicted");
    sender.send(Ok(8)).unwrap();
    assert_eq!(ready(&mut refresher), Ok(8));
    assert_eq!((map.get_blocking("a"), map.len(), map.entries()), (None, 1, 1));
}

#[test]
fn a_replaced_value_is_not_handed_over_as_evicted() {
    let told = Arc::new(AtomicUsize::new(0));
    let tells = Arc::clone(&told);
    let tell = move |_, value, cause| {
        assert_eq!((value, cause), (8, Evicted::Expired));
        tells.fetch_add(1, SeqCst);
    };
    let (map, clock) = built(|builder| builder.time_to_live(2 * FRESH).on_evict(tell));
    map.insert_blocking("a", 7);
    clock.advance(FRESH);
    assert_eq!(made(&map, 8), 8);
    clock.advance(2 * FRESH);
    map.tick();
    assert_eq!((told.load(SeqCst), map.entries()), (1, 0));
}

#[test]
fn a_later_value_is_refreshed_beside_the_refresher_of_an_earlier_one() {
    let (map, clock) = old();
    refresher!(map, first, one);
    map.insert_blocking("a", 8);
    clock.advance(FRESH);
    refresher!(map, second, two);
    // The end of the first refresh does not end the second.
    drop(first);
    drop(one);
    assert_eq!(found(&map), 8);
    second.send(Ok(9)).unwrap();
    assert_eq!(ready(&mut two), Ok(9));
}

// ---- other settings -------------------------------------------------------------------------------------------------

#[test]
fn values_without_an_end_stay() {
    let (map, clock) = old();
    clock.set(Duration::MAX);
    assert_eq!((map.tick(), map.len(), map.get_blocking("a")), (None, 1, Some(7)));
}

#[test]
fn a_refresh_extends_the_life_of_a_value() {
    let (map, clock) = built(|builder| builder.time_to_live(2 * FRESH));
    made(&map, 0);
    for round in 1..10 {
        clock.advance(FRESH);
        assert_eq!(made(&map, round), round);
    }
    clock.advance(2 * FRESH);
    assert_eq!(map.get_blocking("a"), None);
}

#[test]
fn a_call_counts_as_a_hit_or_as_a_miss() {
    let (map, clock) = built(Builder::record_stats);
    let counts = |map: &Map| map.stats().map(|stats| (stats.hits(), stats.misses(), stats.insertions())).unwrap();
    made(&map, 1);
    assert_eq!(counts(&map), (0, 1, 1));
    found(&map);
    assert_eq!(counts(&map), (1, 1, 1));
    clock.advance(FRESH);
    made(&map, 2);
    assert_eq!(counts(&map), (2, 1, 1));
}

#[test]
fn a_map_that_records_no_ages_refuses_the_calls() {
    let map: Map = LockMap::builder().time_to_live(SECOND).build();
    type Call = fn(&Map);
    let calls: [(&str, Call); 5] = [
        ("age", |map| drop(map.age("a"))),
        ("get_or_refresh_with", |map| drop(map.get_or_refresh_with("a", FRESH, async || 1))),
        ("get_or_try_refresh_with", |map| drop(map.get_or_try_refresh_with("a", FRESH, async || Ok::<_, ()>(1)))),
        ("get_or_refresh_with_blocking", |map| drop(map.get_or_refresh_with_blocking("a", FRESH, || 1))),
        ("get_or_try_refresh_with_blocking", |map| {
            drop(map.get_or_try_refresh_with_blocking("a", FRESH, || Ok::<_, ()>(1)));
        }),
    ];
    for (name, call) in calls {
        let panic = catch_unwind(AssertUnwindSafe(|| call(&map))).unwrap_err();
        let expected = format!("keylatch: {name} needs the ages of values: build the map with `Builder::record_ages`");
        assert_eq!(panic.downcast_ref::<String>(), Some(&expected));
        assert_eq!(map.entries(), 0);
    }
}

#[test]
fn the_debug_output_of_a_builder_shows_ages_and_ends_separately() {
    let debug = format!("{:?}", LockMap::<u8, u8>::builder().record_ages());
    assert!(debug.contains("expires: false") && debug.contains("record_ages: true"), "{debug}");
}

// ---- drops and clones of the value ----------------------------------------------------------------------------------

/// A value that looks at the map when it is dropped, and panics when it is cloned if the test says so.
struct Spy {
    map: Option<Arc<LockMap<u64, Spy>>>,
    /// Whether the key was locked at each drop.
    drops: mpsc::Sender<bool>,
    panics: bool,
}

impl Clone for Spy {
    fn clone(&self) -> Self {
        assert!(!self.panics, "in clone");
        Spy { map: None, drops: self.drops.clone(), panics: false }
    }
}

impl Drop for Spy {
    fn drop(&mut self) {
        if let Some(map) = &self.map {
            let _ = self.drops.send(map.is_locked(&7));
        }
    }
}

fn spies() -> (Arc<LockMap<u64, Spy>>, Arc<ManualClock>, impl Fn() -> Spy, mpsc::Receiver<bool>) {
    let clock = Arc::new(ManualClock::new());
    let map: Arc<LockMap<u64, Spy>> = Arc::new(LockMap::builder().record_ages().clock(Arc::clone(&clock)).build());
    let (drops, dropped) = mpsc::channel();
    let spied = Arc::clone(&map);
    let spy = move || Spy { map: Some(Arc::clone(&spied)), drops: drops.clone(), panics: false };
    (map, clock, spy, dropped)
}

#[test]
fn values_are_dropped_with_no_lock_held() {
    let (map, clock, spy, dropped) = spies();
    drop(map.get_or_refresh_with_blocking(&7, FRESH, &spy));
    clock.advance(FRESH);
    drop(map.get_or_refresh_with_blocking(&7, FRESH, &spy)); // drops the value that it replaces
    clock.advance(FRESH);
    let change = || {
        map.insert_blocking(&7, spy());
        spy()
    };
    drop(map.get_or_refresh_with_blocking(&7, FRESH, change)); // drops its own value
    drop(map.remove_blocking(&7));
    assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [false; 4]);
}

#[test]
fn a_clone_that_panics_leaves_the_old_value_and_lets_another_try() {
    let (map, clock, spy, dropped) = spies();
    map.insert_blocking(&7, spy());
    clock.advance(FRESH);
    let refresh = || {
        map.get_or_refresh_with_blocking(&7, FRESH, || {
            let mut bad = spy();
            bad.map = None;
            bad.panics = true;
            bad
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(refresh)).is_err());
    assert_eq!(dropped.try_iter().count(), 0);
    drop(map.get_or_refresh_with_blocking(&7, FRESH, &spy));
    assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [false], "the old value was replaced");
    drop(map.remove_blocking(&7));
}

/// A value that is counted, and may panic when it is dropped.
struct Counted {
    alive: Arc<AtomicUsize>,
    panics: bool,
    /// Whether the next clone of this value panics when that clone is dropped.
    has_bad_clone: Cell<bool>,
}

impl Counted {
    fn new(alive: &Arc<AtomicUsize>, has_bad_clone: bool) -> Self {
        alive.fetch_add(1, SeqCst);
        Counted { alive: Arc::clone(alive), panics: false, has_bad_clone: Cell::new(has_bad_clone) }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        let mut clone = Counted::new(&self.alive, false);
        clone.panics = self.has_bad_clone.take();
        clone
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
        assert!(!self.panics, "in drop");
    }
}

#[test]
fn a_drop_that_panics_leaks_no_later_value() {
    let (alive, clock) = (Arc::new(AtomicUsize::new(0)), Arc::new(ManualClock::new()));
    let map: LockMap<u64, Counted> = LockMap::builder().record_ages().clock(Arc::clone(&clock)).build();
    map.insert_blocking(&7, Counted::new(&alive, false));
    clock.advance(FRESH);
    let refresh = || {
        map.get_or_refresh_with_blocking(&7, FRESH, || {
            map.insert_blocking(&7, Counted::new(&alive, false));
            Counted::new(&alive, true)
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(refresh)).is_err());
    drop(map);
    assert_eq!(alive.load(SeqCst), 0);
}
