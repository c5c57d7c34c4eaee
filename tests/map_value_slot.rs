//! `value_slot`: the value of a key as an `Option` that its writer can change, fill or empty.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use futures_lite::future::block_on;
use keylatch::deadlock::Detector;
use keylatch::{Guard, LockMap, ValueSlot, mode::Exclusive, table};

type Map = LockMap<u64, Arc<u64>>;

#[test]
fn a_slot_contains_the_value_and_its_contents_become_the_value() {
    let map = Map::new();
    let mut guard = map.write_blocking(&1);
    assert_eq!(*guard.value_slot(), None);
    *guard.value_slot() = Some(Arc::new(7));
    assert_eq!(guard.value(), Some(&Arc::new(7)));
    assert_eq!(guard.value_slot().replace(Arc::new(8)), Some(Arc::new(7)));
    *Arc::make_mut(guard.value_slot().as_mut().unwrap()) += 1;
    assert_eq!(guard.value_slot().as_deref(), Some(&9));
    assert_eq!(guard.value_slot().take(), Some(Arc::new(9)));
    assert_eq!((guard.value(), guard.version()), (None, None));
    assert_eq!(format!("{:?}", guard.value_slot()), "ValueSlot(None)");
    drop(guard);
    assert_eq!((map.len(), map.entries()), (0, 0));
}

#[test]
fn a_value_written_back_from_a_slot_has_a_new_version() {
    let map = Map::new();
    let mut guard = map.write_blocking(&1);
    guard.insert(Arc::new(1));
    let mut last = guard.version();
    for step in 0..6 {
        match step % 3 {
            0 => drop(guard.value_slot()), // unchanged
            1 => *guard.value_slot() = Some(Arc::new(step)),
            _ => {
                guard.value_slot().take();
                assert_eq!(guard.version(), None);
                *guard.value_slot() = Some(Arc::new(step));
            }
        }
        assert!(guard.version() > last, "{step}");
        last = guard.version();
    }
}

#[test]
fn while_a_slot_lives_its_value_is_not_counted_and_the_key_is_locked() {
    let map: Map = [(1, Arc::new(1)), (2, Arc::new(2))].into_iter().collect();
    let mut guard = map.write_blocking(&1);
    let slot = guard.value_slot();
    assert_eq!((map.len(), map.entries(), map.contains_key(&1)), (1, 2, false));
    assert!(map.try_read(&1).is_none());
    drop(slot);
    assert_eq!((map.len(), map.entries(), map.contains_key(&1)), (2, 2, true));
    drop(guard);
    assert_eq!(map.get_blocking(&1), Some(Arc::new(1)));
}

#[test]
fn a_slot_is_written_back_when_its_borrower_panics() {
    let map: Map = [(1, Arc::new(1))].into_iter().collect();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = map.write_blocking(&1);
        let mut slot = guard.value_slot();
        *slot = Some(Arc::new(2));
        resume_unwind(Box::new("half way"));
    }));
    assert!(panicked.is_err());
    assert_eq!((map.get_blocking(&1), map.is_locked(&1)), (Some(Arc::new(2)), false));
}

#[test]
fn a_forgotten_slot_leaves_a_key_without_a_value() {
    let token = Arc::new(1);
    let map: Map = [(1, Arc::clone(&token))].into_iter().collect();
    let mut guard = map.write_blocking(&1);
    forget(guard.value_slot());
    assert_eq!(guard.value(), None);
    guard.insert(Arc::new(2));
    drop(guard);
    assert_eq!((map.get_blocking(&1), map.len()), (Some(Arc::new(2)), 1));
    assert_eq!(Arc::strong_count(&token), 2, "it is leaked");
    map.clear();
    assert_eq!(map.entries(), 0);
}

#[test]
fn no_value_is_leaked_or_dropped_twice() {
    let token = Arc::new(1);
    let map: LockMap<u64, Arc<u64>> = LockMap::builder().shards(1).max_values(2).build();
    for key in 0..10 {
        let mut guard = map.write_blocking(&key);
        *guard.value_slot() = Some(Arc::clone(&token));
        *guard.value_slot() = Some(Arc::clone(&token));
        drop(guard);
        assert_eq!(Arc::strong_count(&token), 1 + map.len());
        assert_eq!(map.len(), 2.min(key as usize + 1), "the bound counts it");
        assert!(map.contains_key(&key), "the value that was just put in stays");
    }
    drop(map);
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn a_value_changed_in_a_slot_counts_as_used() {
    let map: LockMap<u64, u64> = LockMap::builder().shards(1).max_values(2).build();
    map.insert_blocking(&1, 1);
    map.insert_blocking(&2, 2);
    *map.write_blocking(&1).value_slot().as_mut().unwrap() += 1;
    map.insert_blocking(&3, 3);
    map.insert_blocking(&4, 4);
    assert!(map.contains_key(&1) && map.contains_key(&4));
}

#[test]
fn upgrade_mut_holds_and_tracked_guards_have_slots() {
    let map = LockMap::<u64, u64>::new();
    let mut reader = map.upgradable_read_blocking(&1);
    *reader.upgrade_mut_blocking().value_slot() = Some(7);
    assert_eq!(reader.value(), Some(&7));
    drop(reader);
    let party = Detector::new().party("one");
    let mut tracked = block_on(party.acquire(map.write(&1))).unwrap();
    assert_eq!(tracked.value_slot().take(), Some(7));
    drop(tracked);
    assert_eq!(map.entries(), 0);
}

/// Returns the slot, as a method of a user's wrapper would.
fn entry<P: table::TablePtr<Table: table::Map<Value = u64>>>(
    guard: &mut Guard<P, Exclusive>,
) -> ValueSlot<'_, P, Exclusive> {
    guard.value_slot()
}

#[test]
fn a_slot_derefs_to_a_mutable_option() {
    fn add(value: &mut Option<u64>) {
        *value.get_or_insert(0) += 1;
    }
    let map = Arc::new(LockMap::<u64, u64>::new());
    let mut owned = map.write_arc_blocking(&1);
    add(&mut entry(&mut owned));
    add(&mut owned.value_slot());
    drop(owned);
    add(&mut entry(&mut map.write_blocking(&1)));
    assert_eq!(map.get_blocking(&1), Some(3));
}
