//! The distribution of hashes, the memory of a shard, and the fate of an old key.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::vec;
use std::vec::Vec;

use crate::core::table::shard::Shard;
use crate::core::table::slot::Chunk;
use crate::core::table::{Core, Payload, Tag};
use crate::core::wait::word::{Unit, Word};

/// Compiles if a core is `Sync` under the bounds under which a [`CoreRef`](crate::core::CoreRef) can be sent to another
/// thread.
#[allow(dead_code)]
fn a_core_is_sync<K, V>() -> impl Sized
where
    K: Send + Sync,
    V: Payload<Value: Send + Sync, Marks: Send + Sync, Kept: Send, Excess: Sync, Parted<K>: Send, Resting<K>: Send>,
{
    fn is_sync<T: Sync>() {}
    is_sync::<Core<K, V>>
}

/// A hasher may return numbers that count up in some of their bits. Even so, their tags are spread over shards and over
/// queue locks as if at random, and hardly any two are equal.
#[test]
fn weak_hashes_are_spread_over_shards_and_queue_locks() {
    const HASHES: usize = 1 << 14;
    for shift in [0, 3, 8, 16, 32, 47] {
        let (mut shards, mut locks) = (vec![0; 64], vec![0; 16]);
        let mut tags = vec![];
        for hash in 0..HASHES as u64 {
            let tag = Tag::of(hash << shift);
            shards[tag.shard(u32::BITS - 6)] += 1;
            locks[(tag.bits() & 15) as usize] += 1;
            tags.push(tag.bits());
        }
        for counts in [shards, locks] {
            let mean = HASHES / counts.len();
            let even = mean / 2..2 * mean;
            assert!(counts.iter().all(|count| even.contains(count)), "shifted by {shift}: {counts:?}");
        }
        tags.sort_unstable();
        tags.dedup();
        assert!(tags.len() > HASHES - 8, "shifted by {shift}: {} different tags", tags.len());
    }
}

/// After a burst, the table shrinks each time that more than seven eighths of the buckets are free, until it is small.
/// It keeps room for at least twice the remaining entries.
#[test]
fn the_table_shrinks_in_a_few_steps() {
    let mut shard = Shard::<u32, ()>::new(0, 4, false, ());
    let enter = |key: u32| {
        let tag = Tag::of(key.into());
        let spare = shard.take_spare().or_else(|| shard.supply(Chunk::alloc(shard.wanted()), &mut None));
        shard.insert_key(tag, spare.expect("there is room"), key, Unit::Claim)
    };
    let claims: Vec<_> = (0..1001).map(enter).collect();
    assert_eq!((shard.len(), shard.memory()), (1001, 1792));
    let mut steps = Vec::new();
    for claim in claims {
        let before = shard.memory();
        let spare = shard.retire(claim, Word::born(Unit::Claim)).ok().expect("it is the last");
        shard.keep(spare, &mut None);
        // A removal that leaves a tombstone changes the figure by one.
        if shard.memory() < before - 1 {
            steps.push((shard.len(), shard.memory()));
        }
    }
    assert_eq!(steps, [(255, 896), (127, 448), (63, 224)]);
    assert_eq!(shard.len(), 0);
}

/// The slot stays in its place, and its key stays in the state in which the panic left it.
#[test]
fn an_old_key_whose_overwriting_panics_stays_available() {
    let mut shard = Shard::<String, ()>::new(1, 1, false, ());
    let tag = Tag::of(1);
    assert!(shard.insert_recycled(tag, |_| unreachable!(), Unit::Claim).is_none(), "there is no old key");
    let mut spare = shard.take_spare().expect("there is room for one");
    let slot = spare.chunk();
    assert!(spare.put_key(String::from("old")).is_none());
    shard.keep(spare, &mut None);
    let write = |old: &mut String| {
        old.push_str(" and new");
        std::panic::resume_unwind(std::boxed::Box::new("half-way"));
    };
    assert!(catch_unwind(AssertUnwindSafe(|| _ = shard.insert_recycled(tag, write, Unit::Claim))).is_err());
    assert_eq!(shard.len(), 0);
    let claim = shard.insert_recycled(tag, |old| *old += "er", Unit::Claim).expect("it is still there");
    assert_eq!((claim.live().key().as_str(), shard.len()), ("old and newer", 1));
    let spare = shard.retire(claim, Word::born(Unit::Claim)).ok().expect("it is the last");
    assert_eq!(spare.chunk(), slot);
    shard.keep(spare, &mut None);
}
