//! A shard's slots, by chunks: which of them are free, and when a chunk is given back. Under the shard lock.

use super::slab::{NONE, Slab};
use super::slot::{Chunk, Filed, Live, Resident, Spare};

/// The chunks of a shard.
pub(super) struct Pool<K> {
    chunks: Slab<Linked<K>>,
    /// The first chunk that has a free slot.
    open: u32,
    /// How many slots are free, over all chunks.
    free: u32,
    /// How many free slots are kept for reuse.
    kept: u32,
}

struct Linked<K> {
    chunk: Chunk<K>,
    /// Neighbours among the chunks that have a free slot.
    prev: u32,
    next: u32,
}

impl<K> Pool<K> {
    /// A pool that has so many slots and keeps so many free ones.
    pub(super) fn new(capacity: usize, kept: usize) -> Self {
        let mut pool =
            Pool { chunks: Slab::default(), open: NONE, free: 0, kept: u32::try_from(kept).unwrap_or(u32::MAX) };
        let mut missing = capacity;
        while missing > 0 {
            let slots = missing.min(Chunk::<K>::MOST);
            pool.add(Chunk::alloc(slots));
            missing -= slots;
        }
        pool
    }

    /// How many slots the next chunk should have: 1, 1, 2, 4, …, as many as there are already, roughly; but not more than are
    /// kept, so that a chunk is not made and given back again and again.
    pub(super) fn wanted(&self) -> usize {
        let doublings = self.chunks.places().saturating_sub(1);
        let as_many = 1 << doublings.min(Chunk::<K>::MOST.trailing_zeros() as usize);
        as_many.min(self.kept.max(1) as usize)
    }

    #[cold]
    pub(super) fn add(&mut self, chunk: Chunk<K>) {
        self.free += chunk.len();
        let id = self.chunks.insert(Linked { chunk, prev: NONE, next: NONE });
        self.open(id);
    }

    pub(super) fn take(&mut self) -> Option<Spare<K>> {
        let id = self.open;
        if id == NONE {
            return None;
        }
        let chunk = &mut self.chunks[id].chunk;
        let spare = chunk.take(id);
        let is_full = chunk.is_full();
        self.free -= 1;
        if is_full {
            self.close(id);
        }
        spare
    }

    /// Returns the slot's chunk if it is idle and not worth keeping, to be dropped outside the lock: it may still have old
    /// keys.
    pub(super) fn put(&mut self, spare: Spare<K>) -> Option<Chunk<K>> {
        let id = spare.chunk();
        let chunk = &mut self.chunks[id].chunk;
        let (was_full, len) = (chunk.is_full(), chunk.len());
        chunk.put(spare);
        let is_idle = chunk.is_idle();
        self.free += 1;
        if was_full {
            self.open(id);
        }
        // One more is kept beside the pool.
        if !is_idle || self.free - len + 1 < self.kept {
            return None;
        }
        self.close(id);
        self.free -= len;
        Some(self.chunks.remove(id).chunk)
    }

    /// Whether old keys may stay in one more slot than there are free ones, and in the one beside the pool.
    pub(super) fn may_keep_another_key(&self) -> bool {
        self.free + 1 < self.kept
    }

    /// Whether free slots are kept at all.
    #[inline]
    pub(super) fn keeps(&self) -> bool {
        self.kept > 0
    }

    pub(super) fn look(&self, filed: &Filed) -> Live<'_, K> {
        self.chunks[filed.chunk()].chunk.look(filed)
    }

    pub(super) fn recall(&self, filed: Filed) -> Resident<K> {
        self.chunks[filed.chunk()].chunk.recall(filed)
    }

    fn open(&mut self, id: u32) {
        let next = core::mem::replace(&mut self.open, id);
        let linked = &mut self.chunks[id];
        (linked.prev, linked.next) = (NONE, next);
        if next != NONE {
            self.chunks[next].prev = id;
        }
    }

    fn close(&mut self, id: u32) {
        let Linked { prev, next, .. } = self.chunks[id];
        match prev {
            NONE => self.open = next,
            prev => self.chunks[prev].next = next,
        }
        if next != NONE {
            self.chunks[next].prev = prev;
        }
    }
}
