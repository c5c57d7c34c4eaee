//! Chunks of slots, and a shard's list of them. A part of the module [`slot`](super), to whose invariants the comments
//! refer by number.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::{marker::PhantomData, mem::MaybeUninit, ptr::NonNull};

use super::{Live, Ptr, Slot, SlotIndex, SlotRef, Spare};
use crate::core::table::number::{INDEX_BITS, Number, SLOTS};
use crate::core::table::payload::Payload;
use crate::core::wait::state::State;
use crate::core::wait::word::Word;
use crate::sync::UnsafeCell;

/// Some slots in one allocation.
pub(in crate::core::table) struct Chunk<K, V: Payload> {
    /// The first of the `len` slots.
    slots: Ptr<K, V>,
    len: u16,
    /// The free slots, one bit each.
    free: Indices,
    /// The free slots that still own an old key that is worth keeping.
    keyed: Indices,
}

/// A set of indices in a chunk.
type Indices = u16;
const _: () = assert!(1 << INDEX_BITS == Indices::BITS);

/// A shard's chunks by number. The last place is in use.
pub(in crate::core::table) struct Chunks<K, V: Payload> {
    chunks: Vec<Option<Chunk<K, V>>>,
    /// The first slot of each chunk; an arbitrary pointer if the place is free. A look-up reads only this list. So in a
    /// table that is bigger than a core's cache, the list stays in the cache for longer.
    first_slots: Vec<Ptr<K, V>>,
}

// SAFETY: a chunk owns its slots and their contents, as a `Box<[(K, V)]>` would; marks are atomics.
unsafe impl<K: Send, V: Payload<Value: Send, Marks: Send>> Send for Chunk<K, V> {}
// SAFETY: the pointers are those of the chunks.
unsafe impl<K, V: Payload> Send for Chunks<K, V> where Chunk<K, V>: Send {}

impl<K, V: Payload> Chunk<K, V> {
    /// The largest number of slots in a chunk. A key that is held for a long time keeps its whole chunk, and larger
    /// chunks would hardly reduce the work for each slot.
    pub(in crate::core::table) const MOST: usize = SLOTS;

    /// The number of chunks that a [`Number`] can tell apart.
    pub(in crate::core::table) const CHUNKS: usize = 1 << (u32::BITS - INDEX_BITS) as usize;

    /// Allocates a chunk, all of whose slots are free.
    pub(in crate::core::table) fn alloc(len: usize) -> Chunk<K, V> {
        assert!((1..=Self::MOST).contains(&len));
        let slot = |_| Slot {
            state: State::dead(),
            marks: V::dead(),
            key: UnsafeCell::new(MaybeUninit::uninit()),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        };
        let slots: Box<[Slot<K, V>]> = (0..len).map(slot).collect();
        let len = len as u16;
        Chunk { slots: NonNull::from(Box::leak(slots)).cast(), len, free: Self::all(len), keyed: 0 }
    }

    fn all(len: u16) -> Indices {
        Indices::MAX >> (Indices::BITS as u16 - len)
    }

    /// Returns whether all slots are free.
    pub(in crate::core::table) fn is_idle(&self) -> bool {
        self.free == Self::all(self.len)
    }

    /// Returns the number of free slots.
    pub(in crate::core::table) fn free(&self) -> u32 {
        self.free.count_ones()
    }

    /// Returns the number of free slots that have an old key.
    pub(in crate::core::table) fn keyed(&self) -> u32 {
        self.keyed.count_ones()
    }

    /// Takes an old key out of a chunk that is no longer in a pool.
    pub(in crate::core::table) fn take_key(&mut self) -> Option<K> {
        self.take(0)?.take_key()
    }

    #[inline]
    fn slot(&self, index: u32) -> Ptr<K, V> {
        assert!(index < self.len.into());
        // SAFETY: the index is in the allocation, which lasts as long as the chunk (6).
        unsafe { self.slots.add(index as usize) }
    }

    /// Takes a free slot out of this chunk, which is the shard's chunk number `id`: one with an old key, if there is
    /// one.
    pub(in crate::core::table) fn take(&mut self, id: u32) -> Option<Spare<K, V>> {
        let from = if self.keyed != 0 { self.keyed } else { self.free };
        if from == 0 {
            return None;
        }
        let index = from.trailing_zeros();
        let spare = Spare(self.slot(index), Number::new(id, index));
        self.free &= !(1 << index);
        self.keyed &= !(1 << index);
        Some(spare)
    }

    /// Marks a slot of this chunk free.
    pub(in crate::core::table) fn put(&mut self, spare: Spare<K, V>) {
        let index = spare.1.index();
        assert!(self.slot(index) == spare.0, "a spare goes back to its own chunk");
        self.free |= 1 << index;
        if core::mem::needs_drop::<K>() && spare.slot().is_keyed() {
            self.keyed |= 1 << index;
        }
    }

    /// Returns the live slot of this number, if there is one. Called under the shard lock, so that the slot stays live.
    #[inline]
    pub(in crate::core::table) fn look_at(&self, number: u32) -> Option<Live<'_, K, V>> {
        let index = Number(number).index();
        if index >= u32::from(self.len) {
            return None;
        }
        let live = Live(self.slot(index), PhantomData);
        let word = live.state().word();
        (word != Word::DEAD && word != Word::DEAD_KEYED).then_some(live)
    }
}

impl<K, V: Payload> Drop for Chunk<K, V> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        let slots = core::ptr::slice_from_raw_parts_mut(self.slots.as_ptr(), self.len as usize);
        // SAFETY: the slots come from a boxed slice of this length, and are not used again (6).
        drop(unsafe { Box::from_raw(slots) });
    }
}

/// The number of chunks for which a list that shrinks keeps room.
const KEPT: usize = 64;

impl<K, V: Payload> Default for Chunks<K, V> {
    fn default() -> Self {
        Chunks { chunks: Vec::new(), first_slots: Vec::new() }
    }
}

impl<K, V: Payload> Chunks<K, V> {
    /// Returns a number larger than that of every chunk.
    #[inline]
    pub(in crate::core::table) fn end(&self) -> usize {
        self.chunks.len()
    }

    #[inline]
    pub(in crate::core::table) fn get(&self, id: u32) -> Option<&Chunk<K, V>> {
        self.chunks.get(id as usize)?.as_ref()
    }

    #[inline]
    pub(in crate::core::table) fn get_mut(&mut self, id: u32) -> Option<&mut Chunk<K, V>> {
        self.chunks.get_mut(id as usize)?.as_mut()
    }

    /// Adds a chunk. Its number is that of a free place, or the end.
    pub(in crate::core::table) fn add(&mut self, id: u32, chunk: Chunk<K, V>) {
        let id = id as usize;
        if id == self.chunks.len() {
            // Doubles the capacity, starting at one rather than four: a microcontroller may never need more.
            if id == self.chunks.capacity() {
                self.chunks.reserve_exact(id.max(1));
                self.first_slots.reserve_exact(id.max(1));
            }
            self.chunks.push(None);
            self.first_slots.push(chunk.slots);
        }
        assert!(self.chunks[id].is_none(), "a chunk gets a free place");
        self.first_slots[id] = chunk.slots;
        self.chunks[id] = Some(chunk);
    }

    /// Removes a chunk. Free places at the end are removed with it.
    pub(in crate::core::table) fn remove(&mut self, id: u32) -> Option<Chunk<K, V>> {
        let chunk = self.chunks[id as usize].take();
        while let Some(None) = self.chunks.last() {
            self.chunks.pop();
        }
        let end = self.chunks.len();
        self.first_slots.truncate(end);
        if self.chunks.capacity() > KEPT && end < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(KEPT.max(2 * end));
            self.first_slots.shrink_to(KEPT.max(2 * end));
        }
        chunk
    }

    #[inline]
    pub(in crate::core::table) fn look(&self, slot_index: &SlotIndex) -> Live<'_, K, V> {
        Live(self.slot(slot_index), PhantomData)
    }

    #[inline]
    pub(in crate::core::table) fn recall(&self, slot_index: SlotIndex) -> SlotRef<K, V> {
        SlotRef(self.slot(&slot_index), slot_index.0)
    }

    #[inline]
    fn slot(&self, slot_index: &SlotIndex) -> Ptr<K, V> {
        let Number(number) = slot_index.0;
        let first = self.first_slots[Number(number).chunk() as usize];
        debug_assert!(self.get(slot_index.chunk()).is_some_and(|chunk| Number(number).index() < chunk.len.into()));
        // SAFETY: the index is that of a slot that `Chunk::take` took out of the chunk of this number, in this shard,
        // and which has not been put back. So that chunk is still here, and the index is in its allocation (6).
        unsafe { first.add(Number(number).index() as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Chunk, Chunks, KEPT};

    #[test]
    fn both_lists_grow_and_shrink_together() {
        let mut chunks = Chunks::<u32, ()>::default();
        for _ in 0..3 {
            for id in 0..1000 {
                chunks.add(id, Chunk::alloc(1));
                assert_eq!(chunks.first_slots.len(), chunks.end());
            }
            for id in (0..1000).rev() {
                assert!(chunks.remove(id).is_some());
                assert_eq!(chunks.first_slots.len(), chunks.end());
                let most = KEPT.max(4 * chunks.end() + 3);
                assert!(chunks.first_slots.capacity() <= most);
                assert!(chunks.chunks.capacity() <= most);
            }
        }
    }
}
