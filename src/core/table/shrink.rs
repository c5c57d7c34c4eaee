//! The rules by which the hash tables of a shard give memory back after a burst.

/// The number of entries for which a hash table that shrinks keeps memory, at least.
pub(super) const KEPT: usize = 112;

/// Returns whether a hash table should shrink if it has `len` entries in this many `buckets`, and is to keep memory for
/// `kept` entries.
///
/// Shrunk to a capacity of `n`, a table has up to 16/7 `n` buckets. The factor 4 is greater than that; otherwise the
/// table would be shrunk again and again without any effect. The condition looks at the buckets, because removed
/// entries lower the capacity without freeing memory.
#[inline]
pub(super) fn is_nearly_empty(buckets: usize, len: usize, kept: usize) -> bool {
    buckets > kept.saturating_mul(4) && len < buckets / 8
}

/// Returns the capacity to which such a table shrinks. Moving `n` entries is amortised over at least `2 n` removals,
/// which have taken place since the table needed the room that it now gives up.
pub(super) fn room(len: usize, kept: usize) -> usize {
    (2 * len).max(kept)
}
