//! An entry's payload lives as long as its entry, and what its shard keeps outlives both.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::hash::RandomState;

use crate::core::table::{Config, Core, Key, Payload};
use crate::core::wait::{Counted, Rules};
use crate::fairness::Fairness;
use crate::mode::Exclusive;
use crate::mode::sealed::ModeInside;

/// Numbered by its shard. A tally of those that live comes with the first.
struct Numbered {
    number: usize,
    living: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Shard {
    begun: usize,
    ended: Vec<usize>,
    living: Arc<AtomicUsize>,
}

impl Payload for Numbered {
    type Kept = Shard;

    fn begin(kept: &mut Shard) -> Self {
        kept.begun += 1;
        kept.living.fetch_add(1, Ordering::Relaxed);
        Numbered { number: kept.begun, living: Arc::clone(&kept.living) }
    }

    fn end(self, kept: &mut Shard) {
        kept.ended.push(self.number);
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.living.fetch_sub(1, Ordering::Relaxed);
    }
}

fn table() -> Core<String, Numbered> {
    let rules = Rules { fairness: Fairness::default(), counted: Counted::Readers };
    Core::new(Config { shards: 1, capacity: 0, spares: None, recycle_keys: false, rules })
}

fn living(core: &Core<String, Numbered>) -> usize {
    core.shards[0].with(|shard| shard.kept.living.load(Ordering::Relaxed))
}

#[test]
fn a_payload_begins_and_ends_with_its_entry() {
    let (core, hasher) = (table(), RandomState::new());
    let hold = core.try_hold(&Key::new("a", &hasher), Exclusive::ONE).ok().unwrap();
    let first = core.claim(&Key::new("a", &hasher));
    let other = core.claim(&Key::new("b", &hasher));
    assert_eq!(living(&core), 2, "one for each entry, not for each user");
    core.release(hold, None);
    assert_eq!(living(&core), 2);
    core.withdraw(first);
    assert_eq!(living(&core), 1);
    core.withdraw(other);
    let again = core.claim(&Key::new("a", &hasher));
    let (begun, ended) = core.shards[0].with(|shard| (shard.kept.begun, shard.kept.ended.clone()));
    assert_eq!((begun, ended.as_slice()), (3, &[1, 2][..]), "what the shard keeps outlives the entries");
    core.withdraw(again);
    assert_eq!(living(&core), 0);
}

#[test]
fn the_payload_of_a_forgotten_user_is_dropped_with_the_table() {
    let (core, hasher) = (table(), RandomState::new());
    let tally = core.shards[0].with(|shard| Arc::clone(&shard.kept.living));
    let _forgotten = core.claim(&Key::new("a", &hasher)); // a claim is given up by `withdraw` only
    core.withdraw(core.claim(&Key::new("b", &hasher)));
    assert_eq!(tally.load(Ordering::Relaxed), 1);
    drop(core);
    assert_eq!(tally.load(Ordering::Relaxed), 0);
}
