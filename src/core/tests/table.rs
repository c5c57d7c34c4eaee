//! How hashes are spread.

use std::vec;

use crate::core::table::Tag;

/// Hashes of a hasher that hides nothing, which count up in some of their bits: over shards and over rooms they are spread as if at
/// random, and no two of these have the same tag.
#[test]
fn weak_hashes_are_spread_over_shards_and_rooms() {
    const HASHES: usize = 1 << 14;
    for shift in [0, 3, 8, 16, 32, 47] {
        let (mut shards, mut rooms) = (vec![0; 64], vec![0; 16]);
        let mut tags = vec![];
        for hash in 0..HASHES as u64 {
            let tag = Tag::of(hash << shift);
            shards[tag.shard(u32::BITS - 6)] += 1;
            rooms[tag.room(15)] += 1;
            tags.push(tag.bits());
        }
        for counts in [shards, rooms] {
            let mean = HASHES / counts.len();
            let even = mean / 2..2 * mean;
            assert!(counts.iter().all(|count| even.contains(count)), "shifted by {shift}: {counts:?}");
        }
        tags.sort_unstable();
        tags.dedup();
        assert!(tags.len() > HASHES - 8, "shifted by {shift}: {} different tags", tags.len());
    }
}
