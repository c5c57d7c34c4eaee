//! A shard's slots, by chunks: tracks the free slots, and decides when a chunk is freed. Used under the shard lock.

use super::lowest::Lowest;
use super::number::Number;
use super::payload::Payload;
use super::slot::{Chunk, Chunks, Live, SlotIndex, SlotRef, Spare};

/// The chunks of a shard.
///
/// Among the chunks with a free slot, the one with the lowest number is used, unless slots with old keys are preferred;
/// a new chunk gets the lowest unused number. So after a burst the chunks with high numbers fall out of use and are
/// freed, and arrays indexed by chunk number shrink.
pub(super) struct Pool<K, V: Payload> {
    chunks: Chunks<K, V>,
    /// The [sets](VACANT) of chunk numbers.
    numbers: Lowest<3>,
    /// The number of free slots, over all chunks.
    free: u32,
    /// The number of free slots that have an old key.
    keyed: u32,
}

/// The sets: unused numbers; numbers of chunks with a free slot; numbers of chunks with a free slot that has an old
/// key.
const VACANT: usize = 0;
const FREE: usize = 1;
const KEYED: usize = 2;

impl<K, V: Payload> Pool<K, V> {
    /// Makes a pool with `capacity` slots.
    pub(super) fn new(capacity: usize) -> Self {
        let mut pool = Pool { chunks: Chunks::default(), numbers: Lowest::default(), free: 0, keyed: 0 };
        let mut missing = capacity;
        while missing > 0 {
            let slots = missing.min(Chunk::<K, V>::MOST);
            if pool.add(Chunk::alloc(slots)).is_err() {
                break;
            }
            missing -= slots;
        }
        pool
    }

    /// Returns the size of the next chunk: 1, 1, 2, 4, …, which roughly doubles the pool, up to [`Chunk::MOST`]. It is
    /// not greater than `kept`, the number of free slots to keep (or 8, if that is more), so that a chunk is not made
    /// and freed repeatedly.
    pub(super) fn wanted(&self, kept: u32) -> usize {
        let doublings = self.chunks.end().saturating_sub(1);
        let as_many = 1 << doublings.min(Chunk::<K, V>::MOST.trailing_zeros() as usize);
        as_many.min(kept.max(8) as usize)
    }

    /// Adds a chunk. Fails if the highest possible chunk number is in use.
    #[cold]
    pub(super) fn add(&mut self, chunk: Chunk<K, V>) -> Result<(), Chunk<K, V>> {
        if self.chunks.end() + 1 >= Chunk::<K, V>::CHUNKS {
            return Err(chunk);
        }
        self.free += chunk.free();
        let id = self.numbers.first(VACANT).unwrap_or(self.chunks.end() as u32);
        self.numbers.remove(VACANT, id);
        self.chunks.add(id, chunk);
        self.numbers.insert(FREE, id);
        Ok(())
    }

    /// Returns the number of free slots.
    #[inline]
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Takes a free slot; if `keyed`, preferably one with an old key.
    pub(super) fn take(&mut self, keyed: bool) -> Option<Spare<K, V>> {
        let first = if keyed { self.numbers.first(KEYED) } else { None };
        let id = first.or_else(|| self.numbers.first(FREE))?;
        self.change(id, |chunk| chunk.take(id))
    }

    /// Puts a slot back. Removes and returns its chunk if all of the chunk's slots are free, and enough slots are free
    /// without it: `kept` of them, counting one outside the pool. The caller drops the chunk outside the lock, because
    /// it may contain old keys.
    pub(super) fn put(&mut self, spare: Spare<K, V>, kept: u32) -> Option<Chunk<K, V>> {
        let id = spare.chunk();
        self.change(id, |chunk| chunk.put(spare));
        let (free, keyed) = (self.chunk(id).free(), self.chunk(id).keyed());
        if !self.chunk(id).is_idle() || self.free - free + 1 < kept {
            return None;
        }
        self.free -= free;
        self.keyed -= keyed;
        self.remove(id)
    }

    #[cold]
    fn remove(&mut self, id: u32) -> Option<Chunk<K, V>> {
        let end = self.chunks.end();
        let chunk = self.chunks.remove(id);
        self.numbers.insert(VACANT, id);
        self.numbers.remove(FREE, id);
        self.numbers.remove(KEYED, id);
        if self.chunks.end() < end {
            self.numbers.truncate(self.chunks.end());
        }
        chunk
    }

    /// Returns a number larger than that of every chunk.
    pub(super) fn end(&self) -> usize {
        self.chunks.end()
    }

    fn chunk(&self, id: u32) -> &Chunk<K, V> {
        match self.chunks.get(id) {
            Some(chunk) => chunk,
            None => unreachable!("a chunk stays while its slots are in use"),
        }
    }

    /// Returns the number of free slots that have an old key.
    pub(super) fn keyed(&self) -> u32 {
        self.keyed
    }

    /// Returns the live slot with this number, if there is one.
    pub(super) fn look_at(&self, number: u32) -> Option<Live<'_, K, V>> {
        self.chunks.get(Number(number).chunk())?.look_at(number)
    }

    #[inline]
    pub(super) fn look(&self, slot_index: &SlotIndex) -> Live<'_, K, V> {
        self.chunks.look(slot_index)
    }

    #[inline]
    pub(super) fn recall(&self, slot_index: SlotIndex) -> SlotRef<K, V> {
        self.chunks.recall(slot_index)
    }

    /// Changes a chunk, and updates the sums and sets.
    fn change<R>(&mut self, id: u32, change: impl FnOnce(&mut Chunk<K, V>) -> R) -> R {
        let Some(chunk) = self.chunks.get_mut(id) else {
            unreachable!("a chunk with a free or used slot is in the pool")
        };
        let before = [chunk.free(), chunk.keyed()];
        let result = change(chunk);
        let after = [chunk.free(), chunk.keyed()];
        let sums = [(&mut self.free, FREE), (&mut self.keyed, KEYED)];
        for (((sum, set), before), after) in sums.into_iter().zip(before).zip(after) {
            *sum = *sum - before + after;
            match (before, after) {
                (0, 1..) => self.numbers.insert(set, id),
                (1.., 0) => self.numbers.remove(set, id),
                _ => {}
            }
        }
        result
    }
}
