//! Models of the map. Its values are loom cells: loom reports an access that is not ordered after the last change.

use std::sync::Arc;
use std::task::Poll;

use keylatch::table::MapKind;
use keylatch::{Builder, LockMap};
use loom::cell::UnsafeCell;
use loom::future::block_on;
use loom::thread;

use crate::{Hasher, model, one_chunk, poll};

/// A number that only its key's lock protects. It has no destructor, so a call can read it under the shard lock if no
/// holder is in the way.
pub(super) struct Cell(UnsafeCell<u64>);

// SAFETY: loom checks every access.
unsafe impl Sync for Cell {}
// SAFETY: as above.
unsafe impl Send for Cell {}

impl Cell {
    pub(super) fn new(n: u64) -> Self {
        const { assert!(!std::mem::needs_drop::<Cell>()) }
        Cell(UnsafeCell::new(n))
    }

    pub(super) fn get(&self) -> u64 {
        // SAFETY: the pointer is the cell's, and loom reports any concurrent write.
        self.0.with(|n| unsafe { *n })
    }

    pub(super) fn bump(&self) {
        // SAFETY: the pointer is the cell's, and loom reports any concurrent access.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }
}

impl Clone for Cell {
    fn clone(&self) -> Self {
        Cell::new(self.get())
    }
}

/// A value that owns memory. It has a clone of an `Arc`, whose strong count tells how many values exist.
#[derive(Clone)]
struct Owned(#[allow(dead_code)] Arc<()>);

pub(super) type Map<V> = LockMap<u64, V, Hasher>;

pub(super) fn builder<V>() -> Builder<MapKind<V>, u64, Hasher> {
    one_chunk(LockMap::builder())
}

fn map<V>() -> Arc<Map<V>> {
    Arc::new(builder().build())
}

/// Creates a map with one value, 10, for key 7.
fn map_of_one() -> Arc<Map<Cell>> {
    let map = map();
    assert!(map.insert_blocking(&7, Cell::new(10)).is_none());
    map
}

/// Returns the number in a value that was removed or read.
pub(super) fn number(value: Option<Cell>) -> Option<u64> {
    value.map(|value| value.get())
}

/// Runs `other` in a separate thread, beside the second closure.
pub(super) fn beside<V: Send + Sync + 'static, T: 'static>(
    map: &Arc<Map<V>>,
    other: impl FnOnce(&Arc<Map<V>>) -> T + Send + 'static,
    one: impl FnOnce(&Arc<Map<V>>),
) -> T {
    let other = {
        let map = Arc::clone(map);
        thread::spawn(move || other(&map))
    };
    one(map);
    other.join().unwrap()
}

#[test]
fn a_value_is_never_changed_beside_a_reader() {
    model(|| {
        let map = map_of_one();
        let read = |map: &Arc<Map<Cell>>| {
            let guard = block_on(map.read(&7));
            let (first, version) = (guard.value().unwrap().get(), guard.version());
            assert_eq!((guard.value().unwrap().get(), guard.version()), (first, version));
            assert!((10..=11).contains(&first));
        };
        beside(&map, read, |map| {
            let mut guard = block_on(map.write(&7));
            let before = guard.version();
            guard.value_mut().unwrap().bump();
            assert!(guard.version() > before);
        });
        assert_eq!(number(map.get_blocking(&7)), Some(11));
    });
}

#[test]
fn a_value_is_never_changed_by_an_upgrade_beside_a_reader() {
    model(|| {
        let map = map_of_one();
        let read = |map: &Arc<Map<Cell>>| {
            let guard = block_on(map.read(&7));
            assert!((10..=11).contains(&guard.value().unwrap().get()));
        };
        beside(&map, read, |map| {
            let mut guard = block_on(map.upgradable_read(&7));
            assert_eq!(guard.value().unwrap().get(), 10);
            block_on(guard.upgrade_mut()).value_mut().unwrap().bump();
            assert_eq!(guard.value().unwrap().get(), 11);
        });
    });
}

/// A user of a handle acquires the key and changes its value without the shard lock, but takes that lock to store a
/// value where there is none, and to remove one. `get` reads under that lock alone if no user is in the way.
#[test]
fn a_get_beside_a_handle_that_changes_the_value() {
    model(|| {
        let map = map_of_one();
        let handle = map.handle_arc(&7);
        let get = |map: &Arc<Map<Cell>>| assert!((10..=11).contains(&number(map.get_blocking(&7)).unwrap()));
        beside(&map, get, move |_| {
            let mut guard = block_on(handle.write());
            drop(handle);
            guard.value_mut().unwrap().bump();
        });
    });
}

#[test]
fn a_get_beside_a_handle_that_stores_the_first_value() {
    model(|| {
        let map = map::<Cell>();
        let handle = map.handle_arc(&7);
        let get = |map: &Arc<Map<Cell>>| assert!(number(map.get_blocking(&7)).is_none_or(|n| n == 11));
        beside(&map, get, move |_| {
            let mut guard = block_on(handle.write());
            guard.insert(Cell::new(10));
            guard.value_mut().unwrap().bump();
        });
    });
}

/// The value is removed and another stored, while `get` looks at the state word and at the presence of the value one
/// after the other.
#[test]
fn a_get_beside_a_handle_that_removes_the_value_and_stores_another() {
    model(|| {
        let map = map_of_one();
        let handle = map.handle_arc(&7);
        let get = |map: &Arc<Map<Cell>>| assert!(matches!(number(map.get_blocking(&7)), None | Some(10 | 20)));
        beside(&map, get, move |_| {
            assert_eq!(number(block_on(handle.write()).remove()), Some(10));
            block_on(handle.write()).insert(Cell::new(20));
        });
        assert_eq!(number(map.get_blocking(&7)), Some(20));
    });
}

/// A pending call whose upgradable reader finds no value becomes a writer without the shard lock.
#[test]
fn a_get_beside_a_call_that_inserts_a_missing_value() {
    model(|| {
        let map = map::<Cell>();
        let reader = map.try_read_arc(&7).unwrap();
        let get = |map: &Arc<Map<Cell>>| assert!(number(map.get_blocking(&7)).is_none_or(|n| n == 10));
        let mut inserting = Box::pin(map.get_or_insert_with(&7, || std::future::ready(Cell::new(10))));
        // The call waits for `reader` to be dropped.
        assert!(poll(&mut inserting).is_pending());
        beside(&map, get, |_| {
            drop(reader);
            let guard = block_on(inserting);
            assert_eq!(guard.value().unwrap().get(), 10);
        });
    });
}

/// A call stores or removes under the shard lock alone if the entry has no users.
#[test]
fn an_insert_and_a_remove_beside_a_new_handle_that_writes() {
    for removes in [false, true] {
        model(move || {
            let map = map_of_one();
            let call = move |map: &Arc<Map<Cell>>| {
                number(if removes { map.remove_blocking(&7) } else { map.insert_blocking(&7, Cell::new(20)) })
            };
            let mut seen = None;
            let old = beside(&map, call, |map| {
                let handle = map.handle(&7);
                let mut guard = block_on(handle.write());
                seen = guard.value().map(Cell::get);
                if let Some(value) = guard.value_mut() {
                    value.bump();
                }
            });
            let left = number(map.get_blocking(&7));
            match (removes, seen) {
                (true, Some(10)) => assert_eq!((old, left), (Some(11), None)),
                (true, None) => assert_eq!((old, left), (Some(10), None)),
                (false, Some(10)) => assert_eq!((old, left), (Some(11), Some(20))),
                (false, Some(20)) => assert_eq!((old, left), (Some(10), Some(21))),
                _ => panic!("a value that was never stored: {seen:?}"),
            }
            assert_eq!((map.len(), map.entries()), if removes { (0, 0) } else { (1, 1) });
        });
    }
}

#[test]
fn an_insert_and_a_remove_beside_the_last_reader_leaving() {
    for removes in [false, true] {
        model(move || {
            let map = map_of_one();
            let reader = map.try_read_arc(&7).unwrap();
            let call = move |map: &Arc<Map<Cell>>| {
                let old = if removes { map.remove_blocking(&7) } else { map.insert_blocking(&7, Cell::new(20)) };
                old.unwrap().bump();
            };
            beside(&map, call, |_| {
                assert_eq!(reader.value().unwrap().get(), 10);
                drop(reader);
            });
            assert_eq!(number(map.get_blocking(&7)), if removes { None } else { Some(20) });
            assert_eq!((map.len(), map.entries()), if removes { (0, 0) } else { (1, 1) });
        });
    }
}

/// The entry is retired once. A call that finds the entry before that uses it, and a later call creates another. The
/// value is dropped once.
#[test]
fn a_guard_removes_while_another_finds_the_key() {
    for finds in 0..3 {
        model(move || {
            let (map, value) = (map::<Owned>(), Arc::new(()));
            map.insert_blocking(&7, Owned(Arc::clone(&value)));
            let find = {
                let value = Arc::clone(&value);
                move |map: &Arc<Map<Owned>>| match finds {
                    0 => drop(map.get_blocking(&7)),
                    1 => drop(map.insert_blocking(&7, Owned(value))),
                    _ => drop(block_on(map.handle(&7).read())),
                }
            };
            beside(&map, find, |map| {
                let mut guard = block_on(map.write(&7));
                drop(guard.remove());
            });
            let left = map.len();
            assert!(left == 0 || left == 1 && finds == 1);
            assert_eq!((map.entries(), Arc::strong_count(&value)), (left, 1 + left));
            drop(map);
            assert_eq!(Arc::strong_count(&value), 1);
        });
    }
}

#[test]
fn one_of_two_callers_computes_the_value() {
    for blocking in [false, true] {
        model(move || {
            let map = map::<Cell>();
            let ask = move |map: &Arc<Map<Cell>>| {
                let mut made = false;
                let mut init = || {
                    made = true;
                    Cell::new(10)
                };
                let guard = match blocking {
                    true => map.get_or_insert_with_blocking(&7, init),
                    false => block_on(map.get_or_insert_with(&7, async || init())),
                };
                assert_eq!(guard.value().unwrap().get(), 10);
                drop(guard);
                made
            };
            let mut made = false;
            let other = beside(&map, ask, |map| made = ask(map));
            assert!(made ^ other, "not exactly one call ran its `init`");
            assert_eq!((map.len(), map.entries()), (1, 1));
        });
    }
}

/// One thread stores a value if there is none, while the other removes the value and then changes the one that it
/// finds. At first the key has a value, or is new.
#[test]
fn calls_that_may_make_the_entry_see_each_others_values() {
    for removed_before in [false, true] {
        model(move || {
            let map = if removed_before { map_of_one() } else { map() };
            let insert = |map: &Arc<Map<Cell>>| {
                let inserted = map.insert_if_absent_blocking(&7, Cell::new(20));
                inserted.map_err(|_| ())
            };
            let (mut removed, mut computed) = (None, None);
            let inserted = beside(&map, insert, |map| {
                removed = map.remove_blocking(&7).map(|value| value.get());
                computed = map.compute_blocking(&7, |value| value.inspect(Cell::bump));
            });
            match (removed, inserted) {
                // Stored before the removal.
                (Some(20), Ok(_)) => assert!(computed.is_none() && map.is_empty()),
                // Stored after the removal, before the change or after it.
                (None | Some(10), Ok(_)) => {
                    let left = map.get_blocking(&7).unwrap().get();
                    assert_eq!(left, 20 + u64::from(computed.is_some()));
                }
                (Some(10), Err(())) => assert!(computed.is_none() && map.is_empty()),
                other => unreachable!("removed and inserted: {other:?}"),
            }
            assert_eq!(map.len(), map.entries());
        });
    }
}

/// The call that computes the value is dropped halfway, or fails. Then the other call computes the value.
#[test]
fn a_caller_that_gives_up_computing_a_value_leaves_it_to_the_next() {
    for fails in [false, true] {
        model(move || {
            let map = map::<Cell>();
            let mut quits = Box::pin(map.get_or_try_insert_with(&7, || {
                let mut polls = 0;
                std::future::poll_fn(move |_| {
                    polls += 1;
                    if fails && polls == 2 { Poll::Ready(Err(())) } else { Poll::Pending }
                })
            }));
            assert!(poll(&mut quits).is_pending());
            let ask = |map: &Arc<Map<Cell>>| {
                let guard = block_on(map.get_or_insert_with(&7, || std::future::ready(Cell::new(10))));
                assert_eq!(guard.value().unwrap().get(), 10);
            };
            beside(&map, ask, |_| {
                if fails {
                    assert!(matches!(poll(&mut quits), Poll::Ready(Err(()))));
                }
                drop(quits);
            });
            assert_eq!((map.len(), map.entries()), (1, 1));
        });
    }
}

fn bounded(most: usize) -> Arc<Map<Cell>> {
    Arc::new(builder().max_values(most).build())
}

/// Checks the number of values in a map without users.
fn assert_bound(map: &Map<Cell>, most: usize) {
    assert!((1..=most).contains(&map.len()), "{} values, but the bound is {most}", map.len());
    assert_eq!(map.len(), map.entries());
    assert_eq!(map.clear(), 0);
    assert_eq!((map.len(), map.entries()), (0, 0));
}

/// Lets a user of a value leave while another value is stored. If the first value were unused, it would be evicted. The
/// call that finishes last restores the bound.
fn a_user_leaves_beside_an_insert<T: Send + 'static>(
    uses: impl Fn(&Arc<Map<Cell>>) -> T + Send + Sync + Copy + 'static,
    leaves: impl Fn(T) + Send + Sync + Copy + 'static,
) {
    for by_guard in [false, true] {
        model(move || {
            let map = bounded(1);
            map.insert_blocking(&1, Cell::new(1));
            let using = uses(&map);
            let store = move |map: &Arc<Map<Cell>>| match by_guard {
                true => drop(block_on(map.write(&2)).insert(Cell::new(2))),
                false => drop(map.insert_blocking(&2, Cell::new(2))),
            };
            beside(&map, store, |_| leaves(using));
            assert_bound(&map, 1);
        });
    }
}

#[test]
fn a_reader_leaves_while_an_excess_value_is_stored() {
    a_user_leaves_beside_an_insert(|map| map.try_read_arc(&1).unwrap(), drop);
}

#[test]
fn a_handle_is_dropped_while_an_excess_value_is_stored() {
    a_user_leaves_beside_an_insert(|map| map.handle_arc(&1), drop);
}

#[test]
fn the_last_two_users_leave_while_an_excess_value_is_stored() {
    a_user_leaves_beside_an_insert(
        |map| (map.handle_arc(&1), map.try_read_arc(&1).unwrap()),
        |(handle, reader)| {
            drop(handle);
            drop(reader);
        },
    );
}

#[test]
fn several_guards_are_dropped_while_an_excess_value_is_stored() {
    a_user_leaves_beside_an_insert(|map| map.try_read_many_arc([&1]).unwrap(), drop);
    a_user_leaves_beside_an_insert(|map| map.try_read_many_arc([&1, &3]).unwrap(), drop);
}

/// Both users leave: a reader, and either a waiter, which gives up, or a handle.
#[test]
fn two_users_leave_an_excess_value_at_once() {
    for waits in [false, true] {
        model(move || {
            let map = bounded(1);
            map.insert_blocking(&1, Cell::new(1));
            let reader = map.try_read_arc(&1).unwrap();
            map.insert_blocking(&2, Cell::new(2));
            assert_eq!(map.len(), 2);
            if waits {
                let mut waiter = map.write_arc(&1);
                assert!(poll(&mut waiter).is_pending());
                beside(&map, move |_| drop(waiter), |_| drop(reader));
            } else {
                let other = map.handle_arc(&1);
                beside(&map, move |_| drop(other), |_| drop(reader));
            }
            assert_bound(&map, 1);
        });
    }
}

/// A future that has not been polled keeps the entry, but not the value. It requests the key while the value is being
/// evicted.
#[test]
fn a_value_is_evicted_while_a_future_requests_it() {
    for writes in [false, true] {
        model(move || {
            let map = bounded(1);
            map.insert_blocking(&1, Cell::new(1));
            let (read, write) = (map.read_arc(&1), map.write_arc(&1));
            let store = |map: &Arc<Map<Cell>>| {
                map.insert_blocking(&2, Cell::new(2));
            };
            beside(&map, store, move |_| {
                if writes {
                    drop(read);
                    let mut guard = block_on(write);
                    if let Some(value) = guard.value_mut() {
                        value.bump();
                    }
                    assert!(guard.insert(Cell::new(3)).is_none_or(|value| value.get() == 2));
                } else {
                    drop(write);
                    let guard = block_on(read);
                    assert!(guard.value().is_none_or(|value| value.get() == 1));
                }
            });
            assert_bound(&map, 1);
        });
    }
}

/// Two values are stored at the same time in a map with room for one: each value just stored stays until its call
/// returns.
#[test]
fn two_values_are_stored_at_once_where_there_is_room_for_one() {
    for by_guard in [false, true] {
        model(move || {
            let map = bounded(1);
            let store = move |map: &Arc<Map<Cell>>, key: u64| match by_guard {
                true => {
                    let mut guard = block_on(map.write(&key));
                    guard.insert(Cell::new(key));
                    assert_eq!(guard.value().unwrap().get(), key);
                }
                false => drop(map.insert_blocking(&key, Cell::new(key))),
            };
            beside(&map, move |map| store(map, 1), |map| store(map, 2));
            assert_bound(&map, 1);
        });
    }
}

/// Versions grow across an eviction, which frees the entry, and across values stored in between.
#[test]
fn a_version_grows_while_the_value_is_evicted() {
    model(|| {
        let map = bounded(1);
        map.insert_blocking(&1, Cell::new(1));
        let version = map.try_read(&1).unwrap().version().unwrap();
        let store = |map: &Arc<Map<Cell>>| {
            map.insert_blocking(&2, Cell::new(2));
        };
        beside(&map, store, |map| {
            if let Err(conflict) = map.update_if_blocking(&1, version, Cell::new(3)) {
                assert_eq!((conflict.found(), conflict.into_value().get()), (None, 3));
                let mut guard = map.write_blocking(&1);
                guard.insert(Cell::new(4));
                assert!(guard.version() > Some(version));
            }
        });
        assert_bound(&map, 1);
    });
}

#[test]
fn a_reader_of_two_keys_sees_all_of_a_batch_or_none() {
    model(|| {
        let map = map::<Cell>();
        for key in [1, 2] {
            map.insert_blocking(&key, Cell::new(0));
        }
        let commit = |map: &Arc<Map<Cell>>| {
            let batch = map.batch().insert(&2, Cell::new(1)).insert(&1, Cell::new(1));
            assert!(block_on(batch.commit()).is_ok());
        };
        beside(&map, commit, |map| {
            let guards = block_on(map.read_many([&1, &2]));
            let seen: Vec<_> = guards.iter().map(|guard| guard.value().unwrap().get()).collect();
            assert_eq!(seen[0], seen[1], "the reader saw half of a batch");
        });
        assert_eq!((map.len(), map.entries()), (2, 2));
    });
}

/// The batches name the keys in opposite orders, and require that the values are unchanged: one of the two succeeds.
#[test]
fn one_of_two_batches_meets_its_conditions() {
    for blocking in [false, true] {
        model(move || {
            let map = map::<Cell>();
            let versions = [1, 2].map(|key| {
                map.insert_blocking(&key, Cell::new(0));
                map.try_read(&key).unwrap().version().unwrap()
            });
            let commit = move |map: &Arc<Map<Cell>>, [first, second]: [u64; 2]| {
                let [of_first, of_second] = [first, second].map(|key| versions[key as usize - 1]);
                let batch = map.batch().update_if(&first, of_first, Cell::new(first));
                let batch = batch.update_if(&second, of_second, Cell::new(first));
                match blocking {
                    true => batch.commit_blocking().is_ok(),
                    false => block_on(batch.commit()).is_ok(),
                }
            };
            let mut one = false;
            let other = beside(&map, move |map| commit(map, [2, 1]), |map| one = commit(map, [1, 2]));
            assert!(one ^ other, "not exactly one batch succeeded");
            let [of_one, of_two] = [1, 2].map(|key| number(map.get_blocking(&key)).unwrap());
            assert_eq!((of_one, of_two), if one { (1, 1) } else { (2, 2) });
        });
    }
}

/// `for_each_value` and `retain` claim the entries, and other calls run in between.
#[test]
fn values_are_visited_while_they_change() {
    for removes in [false, true] {
        model(move || {
            let map = map_of_one();
            let change = |map: &Arc<Map<Cell>>| {
                if let Some(value) = map.remove_blocking(&7) {
                    value.bump();
                }
                map.insert_blocking(&7, Cell::new(20));
            };
            beside(&map, change, |map| {
                let passed_over = match removes {
                    true => map.retain(|_, value| value.get() == 20),
                    false => map.for_each_value(|_, value, _| assert!(matches!(value.get(), 10 | 20))),
                };
                assert!(passed_over <= 1);
            });
            assert_eq!(number(map.get_blocking(&7)), Some(20));
            assert_eq!((map.len(), map.entries()), (1, 1));
        });
    }
}

/// Two changes are conditional on the same version: one is made.
#[test]
fn one_of_two_conditional_changes_is_made() {
    for removes in [false, true] {
        model(move || {
            let map = map_of_one();
            let version = map.try_read(&7).unwrap().version().unwrap();
            let update = move |map: &Arc<Map<Cell>>| block_on(map.update_if(&7, version, Cell::new(20))).is_ok();
            let mut made = false;
            let updated = beside(&map, update, |map| {
                made = match removes {
                    true => block_on(map.remove_if(&7, version)).is_ok_and(|value| value.get() == 10),
                    false => block_on(map.update_if(&7, version, Cell::new(30))).is_ok(),
                };
            });
            assert!(updated ^ made);
            let left = match (updated, removes) {
                (true, _) => Some(20),
                (false, true) => None,
                (false, false) => Some(30),
            };
            assert_eq!(number(map.get_blocking(&7)), left);
            assert_eq!(map.entries(), map.len());
        });
    }
}
