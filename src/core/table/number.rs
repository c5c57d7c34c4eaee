//! The numbers of slots.

/// A slot's number in its shard: its chunk's number, and its index in the chunk.
#[derive(Clone, Copy)]
pub(super) struct Number(pub(super) u32);

/// The number of bits of a [`Number`] that are the index in the chunk.
pub(super) const INDEX_BITS: u32 = 4;

/// The largest number of slots in a chunk.
pub(super) const SLOTS: usize = 1 << INDEX_BITS;

impl Number {
    #[inline]
    pub(super) fn new(chunk: u32, index: u32) -> Number {
        Number(chunk << INDEX_BITS | index)
    }

    #[inline]
    pub(super) fn chunk(self) -> u32 {
        self.0 >> INDEX_BITS
    }

    #[inline]
    pub(super) fn index(self) -> u32 {
        self.0 & ((1 << INDEX_BITS) - 1)
    }
}
