/// The stored part of a key's hash: enough to find the entry again without hashing the key.
///
/// `pub` because sealed traits name it; other crates cannot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(unreachable_pub)]
pub struct Tag(u32);

impl Tag {
    /// Mixes the caller's hash, so that even the hashes of a weak hasher (the identity, say) are spread over shards and
    /// buckets.
    #[inline]
    pub(crate) fn of(hash: u64) -> Tag {
        // Folded multiplication: every bit of the hash reaches every bit of the tag.
        let wide = u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        Tag(((wide >> 64) as u64 ^ wide as u64) as u32)
    }

    #[inline]
    pub(in crate::core) fn from_bits(bits: u32) -> Tag {
        Tag(bits)
    }

    /// Returns the bits that a slot keeps. The low ones choose the queue lock.
    #[inline]
    pub(in crate::core) fn bits(self) -> u32 {
        self.0
    }

    /// Returns the index of the shard, which the high bits choose.
    #[inline]
    pub(in crate::core) fn shard(self, shift: u32) -> usize {
        (u64::from(self.0) >> shift) as usize
    }

    /// Returns the hash for the hash tables of a shard. Its low bits choose the bucket; its high bits, which hashbrown
    /// compares first, depend on all bits of the tag.
    #[inline]
    pub(crate) fn bucket_hash(self) -> u64 {
        u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
