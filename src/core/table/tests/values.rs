//! What a shard keeps of values: how many there are, and versions that outlast the entries.

use alloc::string::String;
use alloc::sync::Arc;
use std::hash::RandomState;

use crate::core::table::{Config, Core, Key, Valued};
use crate::core::wait::{Counted, Rules};
use crate::fairness::Fairness;
use crate::mode::Exclusive;
use crate::mode::sealed::ModeInside;

type Table<T> = Core<String, Valued<T>>;

fn table<T>() -> Table<T> {
    let rules = Rules { fairness: Fairness::default(), counted: Counted::Readers };
    Core::new(Config { shards: 1, capacity: 0, spares: None, recycle_keys: false, values: None, rules }, None)
}

#[test]
fn a_version_outlasts_its_entry_and_that_of_others() {
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
