//! A shard's slots, by chunks: which of them are free, and when a chunk is given back. Under the shard lock.

use super::payload::Payload;
use super::slot::{Chunk, Filed, Live, Resident, Spare, chunk_of};
use crate::core::slab::{NONE, Slab};

/// The chunks of a shard.
pub(super) struct Pool<K, V: Payload> {
    chunks: Slab<Linked<K, V>>,
    /// The first chunk of each [`List`].
    heads: [u32; 2],
    /// How many slots are free, over all chunks.
    free: u32,
    /// How many of them have an old key.
    keyed: u32,
}

struct Linked<K, V: Payload> {
    chunk: Chunk<K, V>,
    /// Neighbours in the list.
    prev: u32,
    next: u32,
}

/// Chunks that have a free slot are in a list: those first of which an old key can be had.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Keyed,
    Free,
}

impl<K, V: Payload> Linked<K, V> {
    fn list(&self) -> Option<List> {
        match &self.chunk {
            chunk if chunk.keyed() > 0 => Some(List::Keyed),
            chunk if chunk.free() > 0 => Some(List::Free),
            _ => None,
        }
    }
}

impl<K, V: Payload> Pool<K, V> {
    /// A pool that has so many slots.
    pub(super) fn new(capacity: usize) -> Self {
        let mut pool = Pool { chunks: Slab::default(), heads: [NONE; 2], free: 0, keyed: 0 };
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

    /// How many slots the next chunk should have, if so many free ones are kept: 1, 1, 2, 4, …, as many as there are already,
    /// roughly; but hardly more than are kept, so that a chunk is not made and given back again and again.
    pub(super) fn wanted(&self, kept: u32) -> usize {
        let doublings = self.chunks.places().saturating_sub(1);
        let as_many = 1 << doublings.min(Chunk::<K, V>::MOST.trailing_zeros() as usize);
        as_many.min(kept.max(8) as usize)
    }

    /// `Err` if there are as many chunks as can be told apart.
    #[cold]
    pub(super) fn add(&mut self, chunk: Chunk<K, V>) -> Result<(), Chunk<K, V>> {
        if self.chunks.places() + 1 >= Chunk::<K, V>::CHUNKS {
            return Err(chunk);
        }
        self.free += chunk.free();
        let id = self.chunks.insert(Linked { chunk, prev: NONE, next: NONE });
        self.link(id, List::Free);
        Ok(())
    }

    /// A free slot: one with an old key, if there is one.
    pub(super) fn take(&mut self) -> Option<Spare<K, V>> {
        let id = *self.heads.iter().find(|&&head| head != NONE)?;
        self.change(id, |chunk| chunk.take(id))
    }

    /// Returns the slot's chunk if it is idle and there are enough free slots without it, `kept` of them and one beside the
    /// pool. It is to be dropped outside the lock: it may have old keys.
    pub(super) fn put(&mut self, spare: Spare<K, V>, kept: u32) -> Option<Chunk<K, V>> {
        let id = spare.chunk();
        self.change(id, |chunk| chunk.put(spare));
        let linked = &self.chunks[id];
        let (free, keyed) = (linked.chunk.free(), linked.chunk.keyed());
        if !linked.chunk.is_idle() || self.free - free + 1 < kept {
            return None;
        }
        if let Some(list) = linked.list() {
            self.unlink(id, list);
        }
        self.free -= free;
        self.keyed -= keyed;
        Some(self.chunks.remove(id).chunk)
    }

    /// How many free slots have an old key.
    pub(super) fn keyed(&self) -> u32 {
        self.keyed
    }

    /// The live slot of this number, if it is live.
    pub(super) fn look_at(&self, number: u32) -> Option<Live<'_, K, V>> {
        self.chunks.get(chunk_of(number))?.chunk.look_at(number)
    }

    pub(super) fn look(&self, filed: &Filed) -> Live<'_, K, V> {
        self.chunks[filed.chunk()].chunk.look(filed)
    }

    pub(super) fn recall(&self, filed: Filed) -> Resident<K, V> {
        self.chunks[filed.chunk()].chunk.recall(filed)
    }

    /// Changes a chunk, moves it to the list where it belongs then, and keeps the sums.
    fn change<R>(&mut self, id: u32, change: impl FnOnce(&mut Chunk<K, V>) -> R) -> R {
        let linked = &mut self.chunks[id];
        let before = linked.list();
        self.free -= linked.chunk.free();
        self.keyed -= linked.chunk.keyed();
        let result = change(&mut linked.chunk);
        self.free += linked.chunk.free();
        self.keyed += linked.chunk.keyed();
        let after = linked.list();
        if before != after {
            if let Some(list) = before {
                self.unlink(id, list);
            }
            if let Some(list) = after {
                self.link(id, list);
            }
        }
        result
    }

    fn link(&mut self, id: u32, list: List) {
        let next = core::mem::replace(&mut self.heads[list as usize], id);
        let linked = &mut self.chunks[id];
        (linked.prev, linked.next) = (NONE, next);
        if next != NONE {
            self.chunks[next].prev = id;
        }
    }

    fn unlink(&mut self, id: u32, list: List) {
        let Linked { prev, next, .. } = self.chunks[id];
        match prev {
            NONE => self.heads[list as usize] = next,
            prev => self.chunks[prev].next = next,
        }
        if next != NONE {
            self.chunks[next].prev = prev;
        }
    }
}
