//! Models of a map whose values are refreshed by one caller at a time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst}; // for counters, whose accesses are not steps of the model
use std::time::Duration;

use loom::future::block_on;

use super::expiry::Time;
use super::map::{Cell, Map, beside, builder, number};
use crate::{model, poll};

/// The time for which a value is fresh. [`Time::pass`] lets as much time pass.
const FRESH: Duration = Duration::from_secs(10);

/// Makes a map in which key 7 has the value 10, which is old.
fn map() -> (Arc<Map<Cell>>, Time) {
    let time = Time::default();
    let map = Arc::new(builder().record_ages().clock(time.clone()).build());
    assert!(map.insert_blocking(&7, Cell::new(10)).is_none());
    time.pass();
    (map, time)
}

/// Asks for the value. If this call is the one that makes the next value, it makes `value`.
fn ask(map: &Map<Cell>, value: u64, made: &AtomicU64) -> u64 {
    let make = async || {
        made.fetch_add(1, SeqCst);
        Cell::new(value)
    };
    block_on(map.get_or_refresh_with(&7, FRESH, make)).get()
}

/// One call refreshes the value. The other gets the old value, or the new one if it comes later.
#[test]
fn one_of_two_callers_refreshes() {
    for blocks in [false, true] {
        model(move || {
            let ((map, _time), made) = (map(), Arc::new(AtomicU64::new(0)));
            let makes = Arc::clone(&made);
            let other = move |map: &Arc<Map<Cell>>| ask(map, 20, &makes);
            let other = beside(&map, other, |map| {
                if blocks {
                    let make = || {
                        made.fetch_add(1, SeqCst);
                        Cell::new(20)
                    };
                    assert!([10, 20].contains(&map.get_or_refresh_with_blocking(&7, FRESH, make).get()));
                } else {
                    assert!([10, 20].contains(&ask(map, 20, &made)));
                }
            });
            assert!([10, 20].contains(&other));
            assert_eq!((made.load(SeqCst), number(map.get_blocking(&7))), (1, Some(20)));
        });
    }
}

/// A refresher is dropped while another caller wants to refresh, too. The next caller can refresh.
#[test]
fn a_refresher_that_gives_up_leaves_the_refresh_to_the_next_caller() {
    model(|| {
        let ((map, time), made) = (map(), Arc::new(AtomicU64::new(0)));
        let makes = Arc::clone(&made);
        let other = move |map: &Arc<Map<Cell>>| ask(map, 20, &makes);
        let other = beside(&map, other, |map| {
            let mut quits = Box::pin(map.get_or_refresh_with(&7, FRESH, pending::<Cell>));
            // The call is ready if the other one has already refreshed the value.
            let _ = poll(&mut quits);
        });
        assert!([10, 20].contains(&other));
        time.pass();
        assert_eq!(ask(&map, 30, &made), 30);
        assert!(!map.is_locked(&7) && map.entries() == 1);
    });
}

/// The refresher of an earlier value gives up, while the refresher of a later value stays the only one.
#[test]
fn a_refresher_of_an_earlier_value_ends_only_its_own_refresh() {
    model(|| {
        let ((map, time), made) = (map(), Arc::new(AtomicU64::new(0)));
        let mut earlier = Box::pin(map.get_or_refresh_with(&7, FRESH, pending::<Cell>));
        assert!(poll(&mut earlier).is_pending());
        map.insert_blocking(&7, Cell::new(20));
        time.pass();
        let makes = Arc::clone(&made);
        let other = move |map: &Arc<Map<Cell>>| ask(map, 30, &makes);
        let other = beside(&map, other, |map| {
            drop(earlier);
            assert!([20, 30].contains(&ask(map, 30, &made)));
        });
        assert!([20, 30].contains(&other));
        assert_eq!((made.load(SeqCst), number(map.get_blocking(&7))), (1, Some(30)));
    });
}

/// The refresher began before the write, so it never overwrites the written value.
#[test]
fn a_write_beside_the_end_of_a_refresh_stands() {
    for removes in [false, true] {
        model(move || {
            let (map, _time) = map();
            let (mut is_made, shared) = (false, Arc::clone(&map));
            let make = || {
                // Ready at the second poll.
                std::future::poll_fn(move |_| {
                    let ready = std::mem::replace(&mut is_made, true);
                    if ready { std::task::Poll::Ready(Cell::new(20)) } else { std::task::Poll::Pending }
                })
            };
            let mut refresher = Box::pin(shared.get_or_refresh_with(&7, FRESH, make));
            assert!(poll(&mut refresher).is_pending());
            let write = move |map: &Arc<Map<Cell>>| {
                if removes { map.remove_blocking(&7) } else { map.insert_blocking(&7, Cell::new(30)) }
            };
            let old = beside(&map, write, |_| {
                let got = block_on(refresher).get();
                assert!(got == 20 || (got == 30 && !removes));
            });
            assert!([10, 20].contains(&number(old).unwrap()));
            assert_eq!(number(map.get_blocking(&7)), (!removes).then_some(30));
            assert_eq!(map.entries(), usize::from(!removes));
        });
    }
}

/// The value may end before the refresher has begun, while it makes the next value, or when that value is stored.
#[test]
fn a_value_ends_beside_its_refresh() {
    model(|| {
        let (time, made) = (Time::default(), Arc::new(AtomicU64::new(0)));
        let builder = builder().record_ages().time_to_live(2 * FRESH).clock(time.clone());
        let map = Arc::new(builder.build());
        map.insert_blocking(&7, Cell::new(10));
        time.pass();
        let makes = Arc::clone(&made);
        let other = move |map: &Arc<Map<Cell>>| ask(map, 20, &makes);
        let other = beside(&map, other, |map| {
            time.pass();
            assert!(matches!(number(map.get_blocking(&7)), None | Some(20)));
        });
        assert_eq!((other, made.load(SeqCst)), (20, 1));
        time.pass();
        time.pass();
        assert!(map.is_empty() && !map.is_locked(&7));
        map.tick();
        assert_eq!(map.entries(), 0);
    });
}
