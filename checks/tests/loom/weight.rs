//! Models of a map that weighs its values. A value's weight is the number in its cell, so loom reports a value that
//! is weighed while a writer changes it.

use std::sync::Arc;

use loom::future::block_on;

use super::map::{Cell, Map, beside, builder};
use crate::{model, poll};

fn weighed(most: u64) -> Arc<Map<Cell>> {
    Arc::new(builder().max_weight(most, |_, value: &Cell| value.get() as u32).build())
}

/// Checks the weights in a map that nobody uses, and clears the map.
fn assert_weighed(map: &Map<Cell>, most: u64) {
    let weight = map.weight();
    assert!(weight <= most, "a weight of {weight}, but the bound is {most}");
    assert_eq!(map.len(), map.entries());
    let mut sum = 0;
    assert_eq!(map.for_each_value(|_, value, _| sum += value.get()), 0);
    assert_eq!(map.weight(), sum);
    assert_eq!(map.clear(), 0);
    assert_eq!((map.weight(), map.entries()), (0, 0));
}

/// The last user evicts the value, whatever kind of user it is; the other value stays.
#[test]
fn two_users_leave_a_value_that_is_too_heavy_at_once() {
    for kind in 0..4 {
        model(move || {
            let map = weighed(5);
            map.insert_blocking(&1, Cell::new(3));
            let mut writer = map.try_write_arc(&2).unwrap();
            writer.insert(Cell::new(9));
            if kind == 0 {
                let handle = map.handle_arc(&2);
                beside(&map, move |_| drop(handle), |_| drop(writer));
            } else {
                let reader = writer.downgrade();
                let other = map.try_read_arc(&2).unwrap();
                let mut waiter = map.write_arc(&2);
                match kind {
                    1 => {
                        drop(waiter);
                        beside(&map, move |_| drop(other), |_| drop(reader));
                    }
                    2 => {
                        assert!(poll(&mut waiter).is_pending());
                        drop(other);
                        beside(&map, move |_| drop(waiter), |_| drop(reader));
                    }
                    _ => {
                        drop((waiter, other));
                        let handle = map.handle_arc(&2);
                        beside(&map, move |_| drop(handle), |_| drop(reader));
                    }
                }
            }
            assert_eq!((map.len(), map.weight()), (1, 3));
            assert_weighed(&map, 5);
        });
    }
}

/// Each value fits alone, but both together are too heavy. The call that ends last restores the bound.
#[test]
fn two_values_are_stored_at_once_where_there_is_room_for_one() {
    for by_guard in [false, true] {
        model(move || {
            let map = weighed(5);
            let store = move |map: &Arc<Map<Cell>>, key: u64| match by_guard {
                true => drop(block_on(map.write(&key)).insert(Cell::new(2 + key))),
                false => drop(map.insert_blocking(&key, Cell::new(2 + key))),
            };
            beside(&map, move |map| store(map, 1), |map| store(map, 2));
            assert!(!map.is_empty());
            assert_weighed(&map, 5);
        });
    }
}

/// A value gets a weight, or another one, while another value is stored, or while a call reads or removes this one.
#[test]
fn a_value_grows_beside_another_call() {
    for (before, call) in [(0, 0), (2, 0), (5, 1), (0, 1), (2, 2), (5, 2)] {
        model(move || {
            let map = weighed(5);
            map.insert_blocking(&1, Cell::new(before));
            let other = move |map: &Arc<Map<Cell>>| match call {
                0 => drop(map.insert_blocking(&2, Cell::new(3))),
                1 => assert!(map.get_blocking(&1).is_none_or(|value| value.get() >= before)),
                _ => drop(map.remove_blocking(&1)),
            };
            beside(&map, other, |map| {
                if let Some(value) = block_on(map.write(&1)).value_mut() {
                    value.bump();
                }
            });
            assert_weighed(&map, 5);
        });
    }
}

/// A future that has not been polled keeps the entry, but not the value. It requests the key while the value, which is
/// too heavy, is being evicted.
#[test]
fn a_value_that_is_too_heavy_is_evicted_while_a_future_requests_it() {
    model(|| {
        let map = weighed(5);
        map.insert_blocking(&1, Cell::new(1));
        let read = map.read_arc(&1);
        let store = |map: &Arc<Map<Cell>>| {
            map.insert_blocking(&1, Cell::new(9));
        };
        beside(&map, store, move |_| {
            assert!(block_on(read).value().is_none_or(|value| [1, 9].contains(&value.get())));
        });
        assert!(map.is_empty());
        assert_weighed(&map, 5);
    });
}
