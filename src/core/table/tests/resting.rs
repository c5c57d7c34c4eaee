//! Tests that check which values come to rest, and when.

use alloc::boxed::Box;
use std::hash::RandomState;

use super::values::config;
use crate::core::table::{Config, Core, Key, Position, Valued};
use crate::mode::sealed::ModeInside;
use crate::mode::{Exclusive, Shared};
use crate::sync::LOOKS_TO_REST;

type Table<T> = Core<u64, Valued<T>>;

/// The number of keys besides the first one, which never rests.
const KEYS: u64 = 10;

struct Fixture<T> {
    core: Table<T>,
    hasher: RandomState,
}

impl<T> Fixture<T> {
    fn new(config: Config, value: impl Fn(u64) -> T) -> Self {
        let fixture = Fixture { core: Core::new(config, None, None, None), hasher: RandomState::new() };
        // The first entry needs a slot, and so an allocation.
        let mut first = fixture.hold(0);
        fixture.core.insert(&mut first, value(0));
        fixture.core.release(first, None);
        (1..=KEYS).for_each(|key| fixture.insert(key, value(key)));
        fixture
    }

    fn insert(&self, key: u64, value: T) {
        if let Err(busy) = self.core.insert_at_once(&mut Key::new(&key, &self.hasher), value) {
            let mut hold = self.hold(key);
            self.core.insert(&mut hold, busy.0);
            self.core.release(hold, None);
        }
    }

    fn hold(&self, key: u64) -> crate::core::Hold<u64, Valued<T>, Exclusive> {
        self.core.try_hold(&mut Key::new(&key, &self.hasher), Exclusive::ONE).ok().expect("nobody holds the key")
    }

    /// Returns the version of a key's value.
    fn look(&self, key: u64) -> Option<u64> {
        self.core.peek(&Key::new(&key, &self.hasher), |_, version| version.get()).expect("nobody uses the key")
    }

    fn at_rest(&self) -> usize {
        self.core.shards()[0].with(|shard| shard.resting.len())
    }
}

fn all_at_rest() -> Fixture<u64> {
    let fixture = Fixture::new(config(1, None), |key| key);
    assert_eq!(fixture.at_rest(), KEYS as usize);
    fixture
}

#[test]
fn a_value_leaves_rest_with_its_version_when_it_is_held_and_one_of_many_looks_lets_it_return() {
    let fixture = all_at_rest();
    let version = fixture.look(1).unwrap();
    let mut hold = fixture.hold(1);
    assert_eq!((fixture.at_rest(), hold.live().version()), (KEYS as usize - 1, Some(version)));
    *fixture.core.value_mut(&mut hold).unwrap() += 1;
    fixture.core.release(hold, None);
    assert_eq!(fixture.at_rest(), KEYS as usize - 1);
    let looks = (1..).find(|_| {
        assert_eq!(fixture.look(1), Some(version + 1));
        fixture.at_rest() == KEYS as usize
    });
    assert!(looks <= Some(LOOKS_TO_REST));
    assert_eq!(fixture.look(1), Some(version + 1));
    assert_eq!((fixture.core.len(), fixture.core.values()), (KEYS as usize + 1, KEYS as usize + 1));
}

#[test]
fn one_of_many_insertions_lets_the_value_that_it_replaces_come_to_rest() {
    let fixture = all_at_rest();
    let mut version = fixture.look(1).unwrap();
    fixture.core.release(fixture.hold(1), None);
    for value in 0..LOOKS_TO_REST.into() {
        fixture.insert(1, value);
        version += 1;
        assert_eq!(fixture.core.peek(&Key::new(&1, &fixture.hasher), |&value, _| value).unwrap(), Some(value));
        assert_eq!(fixture.look(1), Some(version));
    }
    assert_eq!(fixture.at_rest(), KEYS as usize);
}

#[test]
fn a_value_that_is_kept_by_a_claim_does_not_come_to_rest() {
    let fixture = all_at_rest();
    let claim = fixture.core.find_claim(&Key::new(&1, &fixture.hasher)).unwrap();
    for _ in 0..2 * LOOKS_TO_REST {
        assert!(fixture.core.peek(&Key::new(&1, &fixture.hasher), |_, _| ()).is_err());
    }
    assert_eq!((fixture.at_rest(), claim.live().key()), (KEYS as usize - 1, &1));
    fixture.core.withdraw(claim);
}

#[test]
fn the_first_entry_does_not_come_to_rest() {
    let fixture = all_at_rest();
    (0..2 * LOOKS_TO_REST).for_each(|_| _ = fixture.look(0));
    assert_eq!(fixture.at_rest(), KEYS as usize);
}

#[test]
fn a_value_with_a_version_beyond_32_bits_does_not_rest() {
    let fixture = all_at_rest();
    let mut hold = fixture.hold(1);
    let version = hold.live().last_version();
    fixture.core.skip_versions(&mut hold, u64::from(u32::MAX) - version - 1);
    *fixture.core.value_mut(&mut hold).unwrap() += 1;
    fixture.core.release(hold, None);
    (0..2 * LOOKS_TO_REST).for_each(|_| _ = fixture.look(1));
    assert_eq!((fixture.look(1), fixture.at_rest()), (Some(u32::MAX.into()), KEYS as usize));
    // The next version does not fit in a value at rest.
    fixture.insert(1, 7);
    (0..2 * LOOKS_TO_REST).for_each(|_| _ = fixture.look(1));
    assert_eq!((fixture.look(1), fixture.at_rest()), (Some(1 << 32), KEYS as usize - 1));
    // Nor does the version of a new value, after a value with so late a version was removed.
    assert_eq!(fixture.core.remove_at_once(&Key::new(&1, &fixture.hasher)).unwrap(), Some(7));
    fixture.insert(KEYS + 1, 8);
    assert_eq!((fixture.look(KEYS + 1), fixture.at_rest()), (Some((1 << 32) + 1), KEYS as usize - 1));
}

#[test]
fn a_version_is_never_reused_after_a_removal_at_rest() {
    let fixture = all_at_rest();
    let mut last = 0;
    for _ in 0..100 {
        fixture.insert(1, 1);
        let version = fixture.look(1).unwrap();
        assert!(version > last);
        last = version;
        assert_eq!(fixture.core.remove_at_once(&Key::new(&1, &fixture.hasher)).unwrap(), Some(1));
        assert_eq!((fixture.look(1), fixture.at_rest()), (None, KEYS as usize - 1));
    }
}

#[test]
fn a_visit_moves_values_to_slots_and_back() {
    let fixture = all_at_rest();
    let versions = |fixture: &Fixture<u64>| (0..=KEYS).map(|key| fixture.look(key)).collect::<std::vec::Vec<_>>();
    let before = versions(&fixture);
    let mut position = Position::default();
    let mut visited = std::vec![];
    while let Some(found) = fixture.core.walk_on(&mut position, Shared::NEW) {
        assert_eq!(fixture.at_rest(), 0);
        let hold = found.ok().expect("nobody holds the key");
        visited.push(*hold.live().key());
        if *hold.live().key() == 1 {
            fixture.insert(KEYS + 1, 1); // a new value does not rest during the visit
        }
        fixture.core.release(hold, None);
        position.pass();
        if visited.len() == 2 {
            fixture.core.release(fixture.hold(5), None);
        }
    }
    fixture.core.end_walk(&mut position);
    visited.sort_unstable();
    assert_eq!(visited, (0..=KEYS).collect::<std::vec::Vec<_>>());
    assert_eq!(fixture.at_rest(), KEYS as usize);
    assert_eq!(versions(&fixture), before);
    let held = fixture.hold(5);
    fixture.core.for_each(|_, _| assert_eq!(fixture.at_rest(), 0));
    assert_eq!(fixture.at_rest(), KEYS as usize - 1);
    fixture.core.release(held, None);
}

/// The hash table of a shard is not shrunk while a visit goes through its buckets.
#[test]
fn removals_while_a_visit_begins_leave_no_value_at_rest() {
    let fixture = all_at_rest();
    (KEYS..2_000).for_each(|key| fixture.insert(key, key));
    let shard = &fixture.core.shards()[0];
    let promote = |from| shard.with(|shard| shard.promote_some(from, 64));
    shard.with(|shard| shard.resting.close());
    let mut next = promote(0);
    for key in (1..2_000).filter(|key| key % 50 != 0) {
        fixture.core.remove_at_once(&Key::new(&key, &fixture.hasher)).unwrap();
    }
    while let Some(from) = next {
        next = promote(from);
    }
    assert_eq!((fixture.at_rest(), fixture.core.len()), (0, 40));
    fixture.core.end_gathering(0);
    assert_eq!(fixture.at_rest(), 39);
}

#[test]
fn values_rest_again_at_the_end_of_the_last_of_visits_that_overlap() {
    let fixture = all_at_rest();
    let shard = &fixture.core.shards()[0];
    fixture.core.begin_gathering(0);
    fixture.core.begin_gathering(0);
    fixture.core.end_gathering(0);
    assert_eq!(fixture.at_rest(), 0, "the other visit needs them in slots");
    // A third visit begins when the second one has ended, but has not moved all values yet.
    assert!(shard.with(|shard| shard.resting.open()), "there are values to move");
    let next = shard.with(|shard| shard.demote_visited(shard.end(), 2));
    let moved = fixture.at_rest();
    assert!(moved < KEYS as usize && next.is_some());
    fixture.core.begin_gathering(0);
    assert_eq!(shard.with(|shard| shard.demote_visited(next.unwrap(), 2)), None, "the third visit goes on with it");
    assert_eq!(fixture.at_rest(), 0);
    fixture.core.end_gathering(0);
    assert_eq!(fixture.at_rest(), KEYS as usize);
}

#[test]
fn values_that_are_recorded_that_own_something_or_that_are_large_never_rest() {
    assert_eq!(Fixture::new(config(1, Some(100)), |key| key).at_rest(), 0);
    assert_eq!(Fixture::new(Config { counts: true, ..config(1, None) }, |key| key).at_rest(), 0);
    assert_eq!(Fixture::new(config(1, None), Box::new).at_rest(), 0);
    assert_eq!(Fixture::new(config(1, None), |key| [key; 2]).at_rest(), KEYS as usize);
    assert_eq!(Fixture::new(config(1, None), |key| [key; 3]).at_rest(), 0);
}
