//! Models of a map whose user evicts the values. Loom reports an access to a value that is not ordered after the last
//! change.

use std::sync::Arc;

use loom::future::block_on;

use super::map::{Cell, Map, beside, builder, number};
use crate::model;

/// Makes a map whose bound is one value, with values 10 and 20 for the keys 1 and 2: one too many.
fn of_two() -> Arc<Map<Cell>> {
    let map = Arc::new(builder().max_values(1).evict_by_hand().build());
    for key in [1, 2] {
        map.insert_blocking(&key, Cell::new(10 * key));
    }
    map
}

/// Evicts the next value, and returns its key and its number.
fn evict(map: &Arc<Map<Cell>>) -> Option<(u64, u64)> {
    let mut guard = map.try_next_eviction()?;
    let seen = guard.value().unwrap().get();
    guard.value_mut().unwrap().bump();
    assert_eq!(number(guard.remove()), Some(seen + 1));
    Some((*guard.key(), seen))
}

/// Evicts values while there are too many, as every user of such a map does when it has finished.
fn make_room(map: &Arc<Map<Cell>>) {
    while map.excess() > 0 && evict(map).is_some() {}
}

#[test]
fn two_callers_evict_different_values() {
    model(|| {
        let map = of_two();
        let mut one = None;
        let other = beside(&map, evict, |map| one = evict(map));
        assert_ne!(one, other);
        assert!(one.is_some() && other.is_some(), "there is a value for each");
        assert_eq!((map.len(), map.entries(), map.excess()), (0, 0, 0));
    });
}

/// A future keeps the entry, but does not use the value until it is polled: then it acquires the key, or waits for the
/// eviction.
#[test]
fn a_value_is_evicted_by_hand_while_a_future_requests_it() {
    for writes in [false, true] {
        model(move || {
            let map = of_two();
            map.remove_blocking(&2);
            let (read, write) = (map.read_arc(&1), map.write_arc(&1));
            let evicted = beside(&map, evict, |_| {
                if writes {
                    drop(read);
                    if let Some(value) = block_on(write).value_mut() {
                        value.bump();
                    }
                } else {
                    drop(write);
                    assert!(matches!(number(block_on(read).value().cloned()), None | Some(10)));
                }
            });
            // If the future had the key when the caller looked for a value, the value stays.
            assert_eq!(evicted.is_some(), map.is_empty());
            assert_eq!(map.len(), map.entries());
            assert!(map.is_empty() || evict(&map).is_some(), "the value can be evicted later");
        });
    }
}

/// `get`, `insert` and `remove` use the value under the shard lock alone, if the entry has no users.
#[test]
fn a_value_is_evicted_by_hand_beside_a_call() {
    for call in 0..3 {
        model(move || {
            let map = of_two();
            map.remove_blocking(&2);
            let mut taken = None;
            let evicted = beside(&map, evict, |map| match call {
                0 => assert!(matches!(number(map.get_blocking(&1)), None | Some(10))),
                1 => taken = number(map.insert_blocking(&1, Cell::new(30))),
                _ => taken = number(map.remove_blocking(&1)),
            });
            match (call, evicted, taken) {
                (0, Some((1, 10)), None) => assert!(map.is_empty()),
                (1, Some((1, 10)), None) | (1, None, Some(10)) => assert_eq!(map.len(), 1),
                (1, Some((1, 30)), Some(10)) => assert!(map.is_empty()),
                (2, Some((1, 10)), None) | (2, None, Some(10)) => assert!(map.is_empty()),
                (0, None, None) => assert_eq!(map.len(), 1), // `get` held the key
                other => panic!("a value was lost or doubled: {other:?}"),
            }
            assert_eq!(map.len(), map.entries());
        });
    }
}

/// If every user evicts when it has finished, there are never too many values in the end.
#[test]
fn no_excess_stays_when_every_user_evicts() {
    for by_guard in [false, true] {
        model(move || {
            let map = of_two();
            map.remove_blocking(&1);
            let other = |map: &Arc<Map<Cell>>| {
                map.insert_blocking(&1, Cell::new(10));
                make_room(map);
            };
            beside(&map, other, |map| {
                match by_guard {
                    true => drop(block_on(map.write(&3)).insert(Cell::new(30))),
                    false => map.set_max_values(2),
                }
                make_room(map);
            });
            let most = map.max_values().unwrap();
            assert!(map.excess() == 0 && map.len() <= most, "{} values", map.len());
            assert_eq!(map.len(), map.entries());
        });
    }
}
