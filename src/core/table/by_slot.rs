//! A list with an item for each slot of a shard.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::number::{Number, SLOTS};

/// An item for each slot, by the number of the slot's chunk. The items of a chunk are allocated when one of them is
/// first changed.
#[derive(Default)]
pub(super) struct BySlot<T>(Vec<Option<Box<[T; SLOTS]>>>);

impl<T: Copy + Default> BySlot<T> {
    pub(super) fn get(&self, number: u32) -> T {
        match self.0.get(Number(number).chunk() as usize) {
            Some(Some(chunk)) => chunk[Number(number).index() as usize],
            _ => T::default(),
        }
    }

    /// Returns the item of a slot, to be changed.
    #[inline]
    pub(super) fn at(&mut self, number: u32) -> &mut T {
        let chunk = Number(number).chunk() as usize;
        if !matches!(self.0.get(chunk), Some(Some(_))) {
            self.add(chunk);
        }
        let Some(items) = &mut self.0[chunk] else { unreachable!("the items were added above") };
        &mut items[Number(number).index() as usize]
    }

    /// Adds the items of a chunk.
    #[cold]
    #[inline(never)]
    fn add(&mut self, chunk: usize) {
        if chunk >= self.0.len() {
            self.0.resize_with(chunk + 1, || None);
        }
        self.0[chunk] = Some(Box::new([T::default(); SLOTS]));
    }

    /// Returns a number larger than that of every slot whose item was changed.
    pub(super) fn end(&self) -> u32 {
        (self.0.len() * SLOTS) as u32
    }

    /// Resets the item of a slot.
    pub(super) fn forget(&mut self, number: u32) {
        if let Some(Some(chunk)) = self.0.get_mut(Number(number).chunk() as usize) {
            chunk[Number(number).index() as usize] = T::default();
        }
    }

    /// Forgets a freed chunk. The numbers of the remaining chunks are smaller than `end`.
    pub(super) fn forget_chunk(&mut self, chunk: usize, end: usize) {
        if let Some(items) = self.0.get_mut(chunk) {
            *items = None;
        }
        self.0.truncate(end);
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(2 * self.0.len());
        }
    }
}
