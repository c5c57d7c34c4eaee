//! Models of a map whose values end. Loom reports an access to a value that is not ordered after the last change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst}; // for the clock, whose accesses are not steps of the model
use std::time::Duration;

use keylatch::{Clock, Evicted};
use loom::future::block_on;

use super::map::{Cell, Map, beside, builder, number};
use crate::model;

/// A clock that only the models move.
#[derive(Clone, Default)]
pub(super) struct Time(Arc<AtomicU64>);

impl Clock for Time {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(SeqCst))
    }
}

impl Time {
    /// Lets ten seconds pass: in the models of this file, the time of every value runs out.
    pub(super) fn pass(&self) {
        self.0.fetch_add(10, SeqCst);
    }
}

/// Makes a map in which key 7 has the value 10, which ends when the time passes.
fn map() -> (Arc<Map<Cell>>, Time) {
    let time = Time::default();
    let map = Arc::new(builder().time_to_live(Duration::from_secs(10)).clock(time.clone()).build());
    assert!(map.insert_blocking(&7, Cell::new(10)).is_none());
    (map, time)
}

/// Makes the call with this number, and returns what it has found.
fn found(map: &Arc<Map<Cell>>, call: u8) -> Option<u64> {
    match call {
        0 => number(map.get_blocking(&7)),
        1 => block_on(map.read(&7)).value().map(Cell::get),
        2 => block_on(map.write(&7)).value_mut().map(|value| {
            value.bump();
            value.get()
        }),
        3 => map.upgradable_read_blocking(&7).value().map(Cell::get),
        4 => number(map.remove_blocking(&7)),
        5 => block_on(map.walk().next_read()).map(|guard| guard.value().unwrap().get()),
        6 => map.tick().map(|_| 0),
        _ => map.contains_key(&7).then_some(0),
    }
}

fn assert_empty(map: &Map<Cell>) {
    assert!(!map.is_locked(&7) && map.is_empty());
    map.tick();
    assert_eq!(map.entries(), 0);
}

/// Neither call mistakes the other's hold for that of a caller that has found the value in time.
#[test]
fn no_two_calls_show_each_other_a_value_that_has_ended() {
    for (one, other) in [(1, 1), (1, 2), (2, 0), (3, 1), (4, 1), (6, 1), (6, 2), (7, 2), (5, 1), (0, 1)] {
        model(move || {
            let (map, time) = map();
            time.pass();
            let other = beside(&map, move |map| found(map, other), |map| assert_eq!(found(map, one), None));
            assert_eq!(other, None);
            assert_empty(&map);
        });
    }
}

/// The calls of handles and of futures acquire the key without the shard lock.
#[test]
fn no_two_users_of_handles_show_each_other_a_value_that_has_ended() {
    for writes in [false, true] {
        model(move || {
            let (map, time) = map();
            let (handle, read) = (map.handle_arc(&7), map.read_arc(&7));
            time.pass();
            let other = move |_: &Arc<Map<Cell>>| block_on(read).value().is_some();
            let other = beside(&map, other, move |_| {
                let is_there = if writes {
                    block_on(handle.write()).value().is_some()
                } else {
                    block_on(handle.read()).value().is_some()
                };
                assert!(!is_there);
            });
            assert!(!other);
            assert_empty(&map);
        });
    }
}

/// A reader that has found the value keeps it. The value ends when the reader leaves.
#[test]
fn a_value_ends_beside_a_reader() {
    for call in [0, 1, 2, 3, 6, 7] {
        model(move || {
            let (map, time) = map();
            let read = |map: &Arc<Map<Cell>>| {
                let guard = block_on(map.read(&7));
                let (first, version) = (guard.value().map(Cell::get), guard.version());
                assert_eq!((guard.value().map(Cell::get), guard.version()), (first, version));
            };
            let passes = time.clone();
            beside(&map, read, |map| {
                passes.pass();
                let found = found(map, call);
                assert!(found.is_none() || call != 2, "a writer waits until the reader has gone");
            });
            assert_eq!(map.len(), 0);
            assert_empty(&map);
        });
    }
}

/// Either reader may be the last one that sees the value.
#[test]
fn two_readers_leave_a_value_whose_time_has_passed() {
    model(|| {
        let (map, time) = map();
        let (one, other) = (block_on(map.read_arc(&7)), block_on(map.read_arc(&7)));
        time.pass();
        beside(&map, |_| drop(other), |_| drop(one));
        assert_eq!((map.len(), map.entries()), (0, 0));
    });
}

/// The writer that was handed the key finds no value, and displaces the one that is still in memory.
#[test]
fn a_writer_waits_for_a_reader_until_the_value_has_ended() {
    model(|| {
        let (map, time) = map();
        let reader = block_on(map.read_arc(&7));
        let write = |map: &Arc<Map<Cell>>| {
            let mut guard = block_on(map.write(&7));
            number(guard.insert(Cell::new(20)))
        };
        time.pass();
        let old = beside(&map, write, |_| {
            assert_eq!(reader.value().map(Cell::get), Some(10));
            drop(reader);
        });
        assert_eq!(old, None);
        assert_eq!(number(map.get_blocking(&7)), Some(20));
    });
}

/// Every value that has ended is handed over once, with its key, however it leaves.
#[test]
fn a_value_that_has_ended_is_handed_over_once() {
    for call in 0..3 {
        model(move || {
            let (time, told) = (Time::default(), Arc::new(AtomicU64::new(0)));
            let tells = Arc::clone(&told);
            let tell = move |key: u64, value: Arc<()>, cause| {
                assert_eq!((key, cause, Arc::strong_count(&value)), (7, Evicted::Expired, 2));
                tells.fetch_add(1, SeqCst);
            };
            let builder = builder().time_to_live(Duration::from_secs(10)).clock(time.clone()).on_evict(tell);
            let (map, token) = (Arc::new(builder.build()), Arc::new(()));
            map.insert_blocking(&7, Arc::clone(&token));
            time.pass();
            let other = move |map: &Arc<Map<Arc<()>>>| match call {
                0 => drop(map.tick()),
                1 => assert!(map.get_blocking(&7).is_none_or(|value| Arc::strong_count(&value) > 1)),
                _ => drop(map.remove_blocking(&7)),
            };
            beside(&map, other, |map| assert!(map.insert_blocking(&7, Arc::new(())).is_none()));
            map.tick();
            assert_eq!((told.load(SeqCst), Arc::strong_count(&token)), (1, 1));
        });
    }
}

/// The deadline of a new value is not that of the one before.
#[test]
fn a_value_is_stored_beside_a_call_that_ends_the_one_before() {
    for call in [0, 1, 6] {
        model(move || {
            let (map, time) = map();
            time.pass();
            let end = move |map: &Arc<Map<Cell>>| found(map, call);
            let seen = beside(&map, end, |map| {
                map.insert_blocking(&7, Cell::new(20));
            });
            assert!(matches!(seen, None | Some(20)) || call == 6);
            assert_eq!(number(map.get_blocking(&7)), Some(20));
            time.pass();
            assert_empty(&map);
        });
    }
}
