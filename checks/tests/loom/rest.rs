//! Models of values at rest, in a map whose shard has another entry. In a model, each use without a hold lets a value
//! come to rest, and a guard, a handle, a future or a visit moves it to a slot. Loom reports an access to a value that
//! is not ordered after the last change.

use std::sync::Arc;

use keylatch::{LockMap, Version};
use loom::future::block_on;
use loom::thread;

use super::map::{Cell, Map, beside, number};
use crate::{Hasher, model};

/// The key of the shard's first entry, whose value never rests.
const FIRST: u64 = 1;
/// A key whose value is at rest when a model begins.
const KEY: u64 = 2;
/// Another such key.
const OTHER: u64 = 3;
/// A key that a model adds.
const NEW: u64 = 4;

/// Makes a map in which these keys have a value at rest, and another key has a value in a slot.
fn map_of<const N: usize>(keys: [u64; N]) -> Arc<Map<Cell>> {
    // Where memory is reserved for entries, no value rests.
    let builder = LockMap::builder().shards(1).capacity(0).pool_capacity(2).hasher(Hasher::default());
    let map = Arc::new(builder.build());
    for key in [FIRST].into_iter().chain(keys) {
        assert!(map.insert_blocking(&key, Cell::new(10 * key)).is_none());
    }
    map
}

fn get(map: &Map<Cell>, key: u64) -> Option<u64> {
    number(map.get_blocking(&key))
}

fn get_versioned(map: &Map<Cell>, key: u64) -> Option<(u64, Version)> {
    map.get_versioned_blocking(&key).map(|(value, version)| (value.get(), version))
}

fn insert(map: &Map<Cell>, key: u64, n: u64) -> Option<u64> {
    number(map.insert_blocking(&key, Cell::new(n)))
}

fn bump_by_guard(map: &Map<Cell>, key: u64) -> Option<u64> {
    let mut guard = block_on(map.write(&key));
    let value = guard.value_mut()?;
    value.bump();
    Some(value.get())
}

/// Checks a map without users.
fn assert_free(map: &Map<Cell>) {
    assert_eq!(map.entries(), map.len());
    assert!([FIRST, KEY, OTHER, NEW].iter().all(|key| !map.is_locked(key)));
}

/// A value that comes to rest releases its entry, and so raises the version after which later entries begin.
#[test]
fn the_values_of_these_models_rest() {
    model(|| {
        let map = map_of([KEY]);
        assert_eq!(bump_by_guard(&map, KEY), Some(21));
        let (_, version) = get_versioned(&map, KEY).unwrap();
        insert(&map, NEW, 40);
        assert!(get_versioned(&map, NEW).unwrap().1 > version);
    });
}

#[test]
fn a_value_comes_to_rest_beside_a_writer() {
    model(|| {
        let map = map_of([KEY]);
        beside(
            &map,
            |map| assert_eq!(bump_by_guard(map, KEY), Some(21)),
            |map| {
                let seen = (get(map, KEY), get(map, KEY));
                assert!(matches!(seen, (Some(20), Some(20 | 21)) | (Some(21), Some(21))), "{seen:?}");
            },
        );
        assert_eq!(get(&map, KEY), Some(21));
        assert_free(&map);
    });
}

/// The value is at rest, or in the slot of the reader, or comes to rest when the reader has left.
#[test]
fn a_value_at_rest_is_written_over_and_removed_beside_a_reader() {
    for removes in [false, true] {
        model(move || {
            let map = map_of([KEY]);
            let read = |map: &Arc<Map<Cell>>| {
                let guard = block_on(map.read(&KEY));
                let seen = guard.value().map(Cell::get);
                assert_eq!(guard.value().map(Cell::get), seen);
                seen
            };
            let seen = beside(&map, read, |map| {
                if removes {
                    number(map.remove_blocking(&KEY)).map(|old| assert_eq!(old, 20)).unwrap();
                } else {
                    assert_eq!((insert(map, KEY, 30), insert(map, KEY, 40)), (Some(20), Some(30)));
                }
            });
            match removes {
                true => assert!(matches!(seen, None | Some(20))),
                false => assert!(matches!(seen, Some(20 | 30 | 40))),
            }
            assert_eq!(get(&map, KEY), (!removes).then_some(40));
            assert_free(&map);
        });
    }
}

/// A call stores or removes the value at rest, while another changes it: through a guard, by `update` or by `compute`.
#[test]
fn an_insert_and_a_remove_at_rest_beside_a_change() {
    for removes in [false, true] {
        for change in 0..3 {
            model(move || {
                let map = map_of([KEY]);
                let call = move |map: &Arc<Map<Cell>>| {
                    if removes { number(map.remove_blocking(&KEY)) } else { insert(map, KEY, 30) }
                };
                let mut changed = None;
                let old = beside(&map, call, |map| {
                    let bump = |value: &mut Cell| {
                        value.bump();
                        value.get()
                    };
                    changed = match change {
                        0 => bump_by_guard(map, KEY),
                        1 => block_on(map.update(&KEY, bump)),
                        _ => {
                            let mut changed = None;
                            map.compute_blocking(&KEY, |value| {
                                let mut value = value?;
                                changed = Some(bump(&mut value));
                                Some(value)
                            });
                            changed
                        }
                    };
                });
                let left = get(&map, KEY);
                match (removes, changed) {
                    (true, Some(21)) => assert_eq!((old, left), (Some(21), None)),
                    (true, None) => assert_eq!((old, left), (Some(20), None)),
                    (false, Some(21)) => assert_eq!((old, left), (Some(21), Some(30))),
                    (false, Some(31)) => assert_eq!((old, left), (Some(20), Some(31))),
                    other => panic!("a value that was never stored: {other:?}"),
                }
                assert_eq!(map.len(), 1 + usize::from(!removes));
                assert_free(&map);
            });
        }
    }
}

/// The value is removed and stored again at rest beside calls that find it, or make the entry.
#[test]
fn a_value_at_rest_goes_and_comes_beside_a_call_that_stores_a_missing_one() {
    for asks in [false, true] {
        model(move || {
            let map = map_of([KEY]);
            let change = |map: &Arc<Map<Cell>>| {
                assert!(matches!(number(map.remove_blocking(&KEY)), Some(20)));
                insert(map, KEY, 30)
            };
            let mut stored = false;
            let old = beside(&map, change, |map| {
                stored = if asks {
                    let guard = map.get_or_insert_with_blocking(&KEY, || Cell::new(40));
                    guard.value().unwrap().get() == 40
                } else {
                    block_on(map.insert_if_absent(&KEY, Cell::new(40))).is_ok()
                };
            });
            assert_eq!(old, stored.then_some(40));
            assert_eq!((get(&map, KEY), map.len()), (Some(30), 2));
            assert_free(&map);
        });
    }
}

/// The keys own memory, so a key is cloned between two look-ups. Meanwhile another caller makes the entry, and lets
/// its value come to rest. Each copy of the key is dropped once.
#[test]
fn a_value_comes_to_rest_while_another_caller_makes_its_entry() {
    for removes in [false, true] {
        model(move || {
            type ByArc = LockMap<Arc<u64>, Cell, Hasher>;
            let builder = LockMap::builder().shards(1).capacity(0).pool_capacity(0).hasher(Hasher::default());
            let (map, [first, key]): (Arc<ByArc>, _) = (Arc::new(builder.build()), [FIRST, KEY].map(Arc::new));
            map.insert_blocking(&first, Cell::new(10));
            let other = {
                let (map, key) = (Arc::clone(&map), Arc::clone(&key));
                thread::spawn(move || {
                    let old = number(map.insert_blocking(&key, Cell::new(20)));
                    (
                        old,
                        number(map.get_blocking(&key)),
                        if removes { number(map.remove_blocking(&key)) } else { None },
                    )
                })
            };
            let found = block_on(map.write(&key)).insert(Cell::new(30)).map(|value| value.get());
            let left = number(map.get_blocking(&key));
            let outcome = (found, other.join().unwrap());
            match (removes, outcome) {
                (false, (None, (Some(30), Some(20), None))) => {}
                (false, (Some(20), (None, Some(20 | 30), None))) => assert_eq!(left, Some(30)),
                (true, (None, (Some(30), Some(20), Some(20)))) => {}
                (true, (None, (None, Some(20), Some(20)))) => assert_eq!(left, Some(30)),
                (true, (Some(20), (None, Some(20 | 30), Some(30)))) => {}
                _ => panic!("the calls had no order: {outcome:?}"),
            }
            let left = usize::from(map.contains_key(&key));
            assert_eq!((map.len(), map.entries()), (1 + left, 1 + left));
            assert_eq!(Arc::strong_count(&key), 1 + left, "a copy of the key was not dropped exactly once");
        });
    }
}

/// A handle, or a future that has not been polled, keeps the entry, and so its value does not come to rest.
#[test]
fn a_user_that_keeps_the_entry_beside_gets() {
    for waits in [false, true] {
        model(move || {
            let map = map_of([KEY]);
            let (handle, future) =
                if waits { (None, Some(map.write_arc(&KEY))) } else { (Some(map.handle_arc(&KEY)), None) };
            let gets = |map: &Arc<Map<Cell>>| (get(map, KEY), get(map, KEY));
            let seen = beside(&map, gets, |_| {
                let mut guard = match (&handle, future) {
                    (_, Some(future)) => block_on(future),
                    (Some(handle), None) => block_on(handle.write()),
                    (None, None) => unreachable!(),
                };
                drop(handle);
                guard.value_mut().unwrap().bump();
            });
            assert!(matches!(seen, (Some(20), Some(20 | 21)) | (Some(21), Some(21))), "{seen:?}");
            assert_eq!(get(&map, KEY), Some(21));
            assert_free(&map);
        });
    }
}

/// The entry stays when its value is removed, and when another is stored.
#[test]
fn a_future_that_keeps_the_entry_beside_a_remove_and_an_insert() {
    for stores in [false, true] {
        model(move || {
            let map = map_of([KEY]);
            let version = get_versioned(&map, KEY).unwrap().1;
            let future = map.write_arc(&KEY);
            let change = move |map: &Arc<Map<Cell>>| {
                let removed = number(map.remove_blocking(&KEY));
                (removed, stores.then(|| insert(map, KEY, 30)))
            };
            let mut found = None;
            let (removed, replaced) = beside(&map, change, |_| {
                let mut guard = block_on(future);
                found = guard.insert(Cell::new(40)).map(|value| value.get());
                assert!(guard.version() > Some(version));
            });
            match (found, removed, replaced) {
                // The future was first, or last, or in between.
                (Some(20), Some(40), None | Some(None)) | (Some(30), Some(20), Some(None)) => {}
                (None, Some(20), None | Some(Some(40))) => {}
                other => panic!("the calls had no order: {other:?}"),
            }
            let left = get_versioned(&map, KEY);
            assert!(left.is_none_or(|(_, left)| left > version));
            assert_eq!(
                left.map(|(n, _)| n),
                match (found, stores) {
                    (Some(20), false) => None,
                    (None, false) | (Some(30), _) => Some(40),
                    _ => Some(30),
                }
            );
            assert_free(&map);
        });
    }
}

/// A value gets a new version when it is stored over another one, and when it is stored again after a removal, whether
/// at rest or through a guard.
#[test]
fn each_change_has_a_version_of_its_own() {
    for by_guard in [false, true] {
        model(move || {
            let map = map_of([KEY]);
            let (_, first) = get_versioned(&map, KEY).unwrap();
            let change = move |map: &Arc<Map<Cell>>| {
                if by_guard {
                    let mut guard = block_on(map.write(&KEY));
                    guard.insert(Cell::new(30));
                    return Some((30, guard.version().unwrap()));
                }
                insert(map, KEY, 30);
                get_versioned(map, KEY)
            };
            let mut seen = vec![(20, first)];
            let other = beside(&map, change, |map| {
                map.remove_blocking(&KEY);
                insert(map, KEY, 40);
                seen.extend(get_versioned(map, KEY));
            });
            seen.extend(other);
            seen.extend(get_versioned(&map, KEY));
            assert!(seen[1..].iter().all(|&(_, version)| version > first), "{seen:?}");
            for (n, version) in &seen {
                assert!(seen.iter().all(|(other, of)| (n == other) == (version == of)), "{seen:?}");
            }
            assert!(seen.iter().all(|(_, version)| *version <= seen[seen.len() - 1].1), "{seen:?}");
        });
    }
}

/// A condition on the version of a value that was seen at rest holds, if nothing has changed the value.
#[test]
fn a_conditional_change_of_a_value_that_was_seen_at_rest() {
    for other in 0..3 {
        model(move || {
            let map = map_of([KEY]);
            let change = move |map: &Arc<Map<Cell>>| match other {
                0 => insert(map, KEY, 30),
                1 => {
                    let removed = number(map.remove_blocking(&KEY));
                    insert(map, KEY, 20);
                    removed
                }
                _ => get(map, KEY),
            };
            let mut made = (false, 0);
            let seen_by_other = beside(&map, change, |map| {
                let Some((seen, version)) = get_versioned(map, KEY) else { return };
                made = (block_on(map.update_if(&KEY, version, Cell::new(seen + 5))).is_ok(), seen);
            });
            let left = get(&map, KEY);
            match (other, made) {
                (0, (true, 20)) => assert_eq!((seen_by_other, left), (Some(25), Some(30))),
                (0, (true, 30)) => assert_eq!((seen_by_other, left), (Some(20), Some(35))),
                (0, (false, 20)) => assert_eq!((seen_by_other, left), (Some(20), Some(30))),
                (1, (true, _)) if seen_by_other == Some(25) => assert_eq!(left, Some(20)),
                (1, (true, _)) => assert_eq!((seen_by_other, left), (Some(20), Some(25))),
                (1, (false, _)) => assert_eq!((seen_by_other, left), (Some(20), Some(20))),
                (2, (true, 20)) => assert!(matches!((seen_by_other, left), (Some(20 | 25), Some(25)))),
                other => panic!("the calls had no order: {other:?}"),
            }
            assert_free(&map);
        });
    }
}

/// Walks to the end, and returns how often each key was visited.
fn visits(map: &Map<Cell>, writes: bool) -> [u32; 5] {
    let (mut walk, mut visits) = (map.walk(), [0; 5]);
    loop {
        let (key, seen) = if writes {
            let Some(mut guard) = block_on(walk.next_write()) else { return visits };
            let seen = guard.value().unwrap().get();
            guard.value_mut().unwrap().bump();
            (*guard.key(), seen)
        } else {
            let Some(guard) = block_on(walk.next_read()) else { return visits };
            (*guard.key(), guard.value().unwrap().get())
        };
        assert!((10 * key..10 * key + 3).contains(&seen));
        visits[key as usize] += 1;
    }
}

/// The step that a thread takes while another one visits all values. The key [`OTHER`] keeps its value.
#[derive(Clone, Copy)]
enum Beside {
    /// The value of [`KEY`] is removed and stored again.
    Again,
    /// Another key is added, and a value may come to rest.
    New,
    /// A value is used through a guard, and then without one.
    Use,
    /// A key with a value at rest is removed.
    Remove,
}

const ALL: [Beside; 4] = [Beside::Again, Beside::New, Beside::Use, Beside::Remove];

impl Beside {
    fn run(self, map: &Map<Cell>) {
        match self {
            Beside::Again => {
                map.remove_blocking(&KEY);
                insert(map, KEY, 10 * KEY);
            }
            Beside::New => {
                insert(map, NEW, 10 * NEW);
                assert!(get(map, OTHER).is_some());
            }
            Beside::Use => {
                assert!(bump_by_guard(map, OTHER).is_some());
                assert!(get(map, OTHER).is_some());
            }
            Beside::Remove => drop(map.remove_blocking(&KEY)),
        }
    }

    /// Checks which keys were visited.
    fn check(self, [_, first, key, other, new]: [u32; 5]) {
        assert_eq!((first, other), (1, 1), "a value that stayed was not visited exactly once");
        match self {
            Beside::Again => assert!(key <= 1 && new == 0),
            Beside::New => assert!(key == 1 && new <= 1),
            Beside::Use => assert!(key == 1 && new == 0),
            Beside::Remove => assert!(key <= 1 && new == 0),
        }
    }

    fn len(self) -> usize {
        match self {
            Beside::Again | Beside::Use => 3,
            Beside::New => 4,
            Beside::Remove => 2,
        }
    }
}

#[test]
fn a_walk_visits_values_at_rest_exactly_once() {
    for beside_it in ALL {
        let writes = matches!(beside_it, Beside::Use);
        model(move || {
            let map = map_of([KEY, OTHER]);
            beside(&map, move |map| beside_it.run(map), |map| beside_it.check(visits(map, writes)));
            let bumps = 2 * u64::from(writes);
            assert_eq!(get(&map, OTHER), Some(10 * OTHER + bumps));
            assert_eq!(map.len(), beside_it.len());
            assert_free(&map);
        });
    }
}

/// Neither walk ends the other's stay in the shard: the values come to rest when the last walk departs.
#[test]
fn two_walks_of_one_shard_visit_values_at_rest_exactly_once() {
    for writes in [false, true] {
        model(move || {
            let map = map_of([KEY]);
            let walk = move |map: &Map<Cell>| assert_eq!(visits(map, writes), [0, 1, 1, 0, 0]);
            beside(&map, move |map| walk(map), |map| walk(map));
            assert_eq!(get(&map, KEY), Some(20 + 2 * u64::from(writes)));
            assert_free(&map);
        });
    }
}

/// A walk that has arrived stays while another departs, and then a value is used without a hold.
#[test]
fn a_walk_goes_on_where_another_has_departed() {
    model(|| {
        let map = map_of([KEY, OTHER]);
        let mut walk = map.walk();
        let first = block_on(walk.next_read()).map(|guard| *guard.key()).unwrap();
        let other = |map: &Arc<Map<Cell>>| {
            assert_eq!(map.for_each_value(|_, _, _| {}), 0);
            [FIRST, KEY, OTHER].iter().for_each(|&key| assert_eq!(get(map, key), Some(10 * key)));
        };
        beside(&map, other, |_| {
            let mut seen = vec![first];
            while let Some(guard) = block_on(walk.next_read()) {
                seen.push(*guard.key());
            }
            seen.sort_unstable();
            assert_eq!(seen, [FIRST, KEY, OTHER]);
        });
        assert_free(&map);
    });
}

/// `for_each_value` passes over a key that a writer holds. A call is such a writer if it found the entry in use, or
/// needed a slot for the value.
#[test]
fn all_values_at_rest_are_visited_at_once() {
    for beside_it in ALL {
        model(move || {
            let map = map_of([KEY, OTHER]);
            beside(
                &map,
                move |map| beside_it.run(map),
                |map| {
                    let mut seen = [0; 5];
                    let passed_over = map.for_each_value(|&key, value, _| {
                        assert!((10 * key..10 * key + 2).contains(&value.get()));
                        seen[key as usize] += 1;
                    });
                    assert!(passed_over <= 1);
                    if let Beside::Use = beside_it {
                        seen[OTHER as usize] += passed_over as u32;
                    }
                    beside_it.check(seen);
                },
            );
            assert_eq!(map.len(), beside_it.len());
            assert_free(&map);
        });
    }
}

/// `retain` runs beside calls on the value that it removes.
#[test]
fn values_at_rest_are_removed_at_once() {
    for change in 0..3 {
        model(move || {
            let map = map_of([KEY]);
            let other = move |map: &Arc<Map<Cell>>| match change {
                0 => get(map, KEY),
                1 => insert(map, KEY, 30),
                _ => bump_by_guard(map, KEY),
            };
            let mut passed_over = 0;
            let seen = beside(&map, other, |map| passed_over = map.retain(|_, value| !(20..30).contains(&value.get())));
            let left = get(&map, KEY);
            match (change, seen) {
                (0, Some(20)) => assert_eq!(left, (passed_over == 1).then_some(20)),
                (1, _) => assert_eq!(left, Some(30)),
                (2, Some(21)) => assert_eq!(left, (passed_over == 1).then_some(21)),
                (_, None) => assert_eq!((left, passed_over), (None, 0)),
                other => panic!("a value that was never stored: {other:?}"),
            }
            assert_free(&map);
        });
    }
}
