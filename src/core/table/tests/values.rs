//! The state of a shard's values: their number, and versions that outlast the entries.

use alloc::string::String;
use alloc::sync::Arc;
use std::hash::RandomState;

use crate::core::table::value::{Kept, Marks};
use crate::core::table::{Config, Core, Key, Valued};
use crate::core::wait::{CountKind, Rules};
use crate::fairness::Fairness;
use crate::mode::Exclusive;
use crate::mode::sealed::ModeInside;

type Table<T> = Core<String, Valued<T>>;

pub(super) fn config(shards: usize, values: Option<usize>) -> Config {
    let rules = Rules { fairness: Fairness::default(), counted: CountKind::Readers };
    Config { shards, capacity: 0, spares: None, recycle_keys: false, values, by_hand: false, counts: false, rules }
}

fn table<T>() -> Table<T> {
    Core::new(config(1, None), None, None, None)
}

#[test]
fn a_version_is_never_reused_after_its_entry_is_removed() {
    let (core, hasher) = (table::<u32>(), RandomState::new());
    let mut last = 0;
    for round in 0..100 {
        let mut hold = core.try_hold(&mut Key::new("a", &hasher), Exclusive::ONE).ok().unwrap();
        core.insert(&mut hold, round);
        let version = hold.live().version().unwrap();
        assert!(version > last, "a version is never used again");
        last = version;
        assert_eq!(core.remove(&mut hold), Some(round));
        core.release(hold, None);
        assert_eq!((core.len(), core.values()), (0, 0));
    }
}

#[test]
fn a_version_counts_on_beyond_32_bits() {
    let (core, hasher) = (table::<u32>(), RandomState::new());
    for key in ["a", "b"] {
        let mut hold = core.try_hold(&mut Key::new(key, &hasher), Exclusive::ONE).ok().unwrap();
        let before = hold.live().last_version();
        core.skip_versions(&mut hold, u64::from(u32::MAX) - 1);
        core.insert(&mut hold, 0);
        core.insert(&mut hold, 1);
        assert_eq!(hold.live().version(), Some(before + u64::from(u32::MAX) + 1));
        core.remove(&mut hold);
        core.release(hold, None);
    }
}

#[test]
fn the_value_of_a_forgotten_holder_is_dropped_with_the_table() {
    let (core, hasher) = (table::<Arc<()>>(), RandomState::new());
    let value = Arc::new(());
    let mut forgotten = core.try_hold(&mut Key::new("a", &hasher), Exclusive::ONE).ok().unwrap();
    core.insert(&mut forgotten, Arc::clone(&value));
    let mut other = core.try_hold(&mut Key::new("b", &hasher), Exclusive::ONE).ok().unwrap();
    core.insert(&mut other, Arc::clone(&value));
    core.release(other, None);
    assert_eq!(Arc::strong_count(&value), 3);
    drop(core);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn a_version_beyond_32_bits_outlasts_its_entry() {
    let (first, second, mut kept) = (Marks::dead(), Marks::dead(), Kept::new(None, None, 0, false, false));
    first.begin(&kept);
    first.renew(5 << 40 | 7);
    kept.end(&first);
    second.begin(&kept);
    assert_eq!(second.version(), 5 << 40 | 7);
    assert!(!second.is_present() && !second.has_handle(true));
}

#[test]
fn more_handles_than_fit_the_count_change_only_the_count() {
    let (marks, kept) = (Marks::dead(), Kept::new(None, None, 0, false, false));
    marks.begin(&kept);
    marks.set_present(true, false);
    for comes in [true, false] {
        for _ in 0..200 {
            marks.note_handle(comes);
            assert_eq!((marks.version(), marks.is_present()), (0, true));
        }
    }
    // The count has been saturated, so a handle is still reported until the value's claim is the only unit.
    assert!(marks.has_handle(true));
    assert!(!marks.has_handle(false) && !marks.has_handle(true));
    marks.note_handle(true);
    assert!(marks.has_handle(false));
    marks.note_handle(false);
    assert!(!marks.has_handle(true));
}

#[test]
fn a_value_in_use_causes_sweeps_only_in_its_own_shard() {
    let core = Core::<u64, Valued<u32>>::new(config(4, Some(100)), None, None, None);
    let hasher = RandomState::new();
    let tag = |key: &u64| Key::new(key, &hasher).tag();
    let mut held = core.try_hold(&mut Key::new(&0, &hasher), Exclusive::ONE).ok().unwrap();
    core.insert(&mut held, 0); // the value is in use, and so parked
    let shard_of = |key: &u64| tag(key).shard(core.shift);
    for key in 0..100 {
        assert_eq!(core.exceeds(tag(&key)), shard_of(&key) == shard_of(&0));
    }
    core.release(held, None);
    assert!((0..100).all(|key| !core.exceeds(tag(&key))));
}

#[test]
fn a_value_is_unused_until_a_use_is_noted_with_counters_or_without() {
    for counts in [false, true] {
        let (marks, kept) = (Marks::dead(), Kept::new(None, None, 0, counts, false));
        marks.begin(&kept);
        for sole in [false, true, false] {
            assert!(!marks.is_present() && marks.is_quiet() != counts);
            marks.set_present(true, sole);
            assert!(!marks.is_quiet() && !marks.take_used());
            for _ in 0..2 {
                marks.note_use(counts);
                assert!(marks.is_quiet() != counts);
            }
            assert!(marks.take_used() && !marks.take_used() && !marks.is_quiet());
            marks.note_use(counts);
            marks.set_present(false, sole);
            marks.note_use(counts); // of an entry without a value
            marks.renew(1);
        }
        assert_eq!((marks.version(), marks.has_handle(false)), (3, false));
    }
}
