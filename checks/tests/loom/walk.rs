//! Models of walks over all values of a map. Loom reports an access to a value that is not ordered after the last
//! change.

use std::sync::Arc;

use keylatch::Walk;
use loom::future::block_on;

use super::map::{Cell, Map, beside, builder, number};
use crate::{Hasher, model, poll};

/// Makes a map with values 10 and 20 for the keys 1 and 2.
fn map_of_two() -> Arc<Map<Cell>> {
    let map = Arc::new(builder().build());
    fill(&map);
    map
}

fn fill(map: &Map<Cell>) {
    for key in [1, 2] {
        map.insert_blocking(&key, Cell::new(10 * key));
    }
}

/// Visits the next key, and looks at its value; a writer changes the value, too.
fn visit(walk: &mut Walk<'_, u64, Cell, Hasher>, writes: bool) -> Option<(u64, u64)> {
    if writes {
        let mut guard = block_on(walk.next_write())?;
        let seen = guard.value().unwrap().get();
        guard.value_mut().unwrap().bump();
        Some((*guard.key(), seen))
    } else {
        let guard = block_on(walk.next_read())?;
        Some((*guard.key(), guard.value().unwrap().get()))
    }
}

/// Walks to the end, and returns how often each of the keys 1, 2 and 3 was visited.
fn visits(map: &Map<Cell>, writes: bool) -> [u32; 3] {
    let (mut walk, mut visits) = (map.walk(), [0; 3]);
    while let Some((key, seen)) = visit(&mut walk, writes) {
        assert!((10 * key..10 * key + 3).contains(&seen));
        visits[key as usize - 1] += 1;
    }
    visits
}

/// Checks a map without users.
fn assert_free(map: &Map<Cell>) {
    assert_eq!(map.entries(), map.len());
    assert!([1, 2].iter().all(|key| !map.is_locked(key)));
}

#[test]
fn a_walk_visits_values_that_are_changed_meanwhile_exactly_once() {
    for writes in [false, true] {
        for change in 0..2 {
            model(move || {
                let map = map_of_two();
                let other = move |map: &Arc<Map<Cell>>| match change {
                    0 => block_on(map.write(&1)).value_mut().unwrap().bump(),
                    _ => {
                        // Takes the value out for a moment.
                        let mut guard = block_on(map.write(&1));
                        let value = guard.remove().unwrap();
                        value.bump();
                        guard.insert(value);
                    }
                };
                beside(&map, other, |map| assert_eq!(visits(map, writes), [1, 1, 0]));
                let bumps = u64::from(writes);
                assert_eq!(number(map.get_blocking(&1)), Some(11 + bumps));
                assert_eq!(number(map.get_blocking(&2)), Some(20 + bumps));
                assert_free(&map);
            });
        }
    }
}

/// Both keys are removed and stored again, each in the other's slot.
#[test]
fn a_walk_visits_keys_that_change_their_slots_at_most_once() {
    model(|| {
        let map = map_of_two();
        let swap = |map: &Arc<Map<Cell>>| {
            let _ = (map.remove_blocking(&1), map.remove_blocking(&2));
            map.insert_blocking(&2, Cell::new(20));
            map.insert_blocking(&1, Cell::new(10));
        };
        beside(&map, swap, |map| assert!(visits(map, false).iter().all(|&visits| visits <= 1)));
        assert_eq!(map.len(), 2);
        assert_free(&map);
    });
}

/// One key is added, for which the shard needs more slots; another is removed; the third stays.
#[test]
fn a_walk_beside_keys_that_come_and_go() {
    for writes in [false, true] {
        model(move || {
            let map = map_of_two();
            let other = |map: &Arc<Map<Cell>>| {
                map.insert_blocking(&3, Cell::new(30));
                number(map.remove_blocking(&1))
            };
            let removed = beside(&map, other, |map| {
                let [goes, stays, comes] = visits(map, writes);
                assert!(goes <= 1 && stays == 1 && comes <= 1);
            });
            assert!(matches!(removed, Some(10 | 11)));
            assert_eq!(map.len(), 2);
            assert_free(&map);
        });
    }
}

/// The bound, or the map's user, evicts a value meanwhile.
#[test]
fn a_walk_beside_an_eviction() {
    for by_hand in [false, true] {
        model(move || {
            let builder = builder().max_values(2);
            let map: Arc<Map<Cell>> = Arc::new(if by_hand { builder.evict_by_hand().build() } else { builder.build() });
            fill(&map);
            let evict = move |map: &Arc<Map<Cell>>| {
                if by_hand {
                    let mut guard = map.try_next_eviction()?;
                    guard.value_mut().unwrap().bump();
                    return guard.remove().map(|_| *guard.key());
                }
                map.insert_blocking(&3, Cell::new(30));
                None
            };
            let mut seen = [0; 3];
            let evicted = beside(&map, evict, |map| seen = visits(map, false));
            assert!(seen.iter().all(|&visits| visits <= 1));
            // A key that has a value now had it during the whole walk.
            for key in [1, 2] {
                assert!(evicted.is_none_or(|evicted| evicted != key) || !map.contains_key(&key));
                assert!(seen[key as usize - 1] == 1 || !map.contains_key(&key), "a value that stayed was not visited");
            }
            assert!(map.len() <= 2);
            assert_free(&map);
        });
    }
}

#[test]
fn two_walks_of_one_shard_visit_everything() {
    model(|| {
        let map = map_of_two();
        beside(&map, |map| assert_eq!(visits(map, true), [1, 1, 0]), |map| assert_eq!(visits(map, true), [1, 1, 0]));
        assert_eq!((number(map.get_blocking(&1)), number(map.get_blocking(&2))), (Some(12), Some(22)));
        assert_free(&map);
    });
}

/// A step that waits is dropped, perhaps together with its walk, while the writer that it waits for leaves.
#[test]
fn a_dropped_step_leaves_nothing_locked() {
    for removes in [false, true] {
        for continues in [false, true] {
            model(move || {
                let map = map_of_two();
                map.remove_blocking(&2);
                let mut writer = map.try_write_arc(&1).unwrap();
                let leave = move |_: &Arc<Map<Cell>>| {
                    if removes {
                        assert_eq!(number(writer.remove()), Some(10));
                    }
                    drop(writer);
                };
                beside(&map, leave, |map| {
                    let mut walk = map.walk();
                    let mut step = walk.next_write();
                    let is_first = poll(&mut step).is_pending();
                    drop(step);
                    if continues && is_first {
                        assert_eq!(visit(&mut walk, false).map(|(key, _)| key), (!removes).then_some(1));
                        assert!(block_on(walk.next_read()).is_none());
                    }
                });
                assert_eq!(map.len(), usize::from(!removes));
                assert_free(&map);
            });
        }
    }
}
