//! A slab: values at stable indices. Pools keep their chunks of slots in a slab, queues keep their waiters in pages,
//! each of which is a slab, and a deadlock detector keeps its parties and its records in slabs.

use alloc::vec::Vec;

/// The number that stands for no index.
pub(crate) const NONE: u32 = u32::MAX;

/// Values and a free list. The last place is always in use, so that after a burst the memory beyond the last remaining
/// value can be freed.
pub(crate) struct Slab<T> {
    items: Vec<Item<T>>,
    /// The first free place.
    free: u32,
}

enum Item<T> {
    /// A link of the free list. The list is doubly linked, because places at the end are taken out of it.
    Free {
        prev: u32,
        next: u32,
    },
    Used(T),
}

/// The number of values for which a slab keeps room when it shrinks.
const KEPT: usize = 64;

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab::new()
    }
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Slab { items: Vec::new(), free: NONE }
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        // Memory runs out long before four billion values.
        let index = self.items.len() as u32;
        if self.free != NONE || self.items.len() == self.items.capacity() {
            return self.insert_slowly(value);
        }
        self.items.push(Item::Used(value));
        index
    }

    #[inline(never)]
    fn insert_slowly(&mut self, value: T) -> u32 {
        let index = self.free;
        if index == NONE {
            // Doubles the capacity, starting at one rather than four: a microcontroller may never need more.
            self.items.reserve_exact(self.items.len().max(1));
            self.items.push(Item::Used(value));
            return self.items.len() as u32 - 1;
        }
        self.unlink(index);
        self.items[index as usize] = Item::Used(value);
        index
    }

    #[cfg_attr(not(target_has_atomic = "ptr"), allow(dead_code))] // for the detector of deadlocks
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let item = core::mem::replace(&mut self.items[index as usize], Item::Free { prev: NONE, next: NONE });
        self.delete(index);
        match item {
            Item::Used(value) => value,
            Item::Free { .. } => gone(),
        }
    }

    /// Removes and drops a value.
    #[inline]
    pub(crate) fn delete(&mut self, index: u32) {
        if index as usize + 1 == self.items.len() {
            self.items.truncate(index as usize);
            if let Some(Item::Free { .. }) = self.items.last() {
                self.trim();
            }
        } else {
            self.items[index as usize] = Item::Free { prev: NONE, next: self.free };
            self.relink(self.free, |prev, _| *prev = index);
            self.free = index;
        }
        if self.items.capacity() > KEPT && self.items.len() < self.items.capacity() / 4 {
            self.shrink();
        }
    }

    #[cold]
    fn shrink(&mut self) {
        self.items.shrink_to(KEPT.max(2 * self.items.len()));
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        match self.items.get(index as usize) {
            Some(Item::Used(value)) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.items.get_mut(index as usize) {
            Some(Item::Used(value)) => Some(value),
            _ => None,
        }
    }

    /// Removes free places from the end.
    #[inline(never)]
    fn trim(&mut self) {
        while let Some(Item::Free { .. }) = self.items.last() {
            self.unlink(self.items.len() as u32 - 1);
            self.items.pop();
        }
    }

    /// Returns whether one more value fits if there may be at most `places` places.
    #[inline]
    pub(crate) fn has_room(&self, places: u32) -> bool {
        self.free != NONE || self.items.len() < places as usize
    }

    /// Returns the number of places, including free ones.
    pub(crate) fn places(&self) -> usize {
        self.items.len()
    }

    /// Returns the number of values for which memory is allocated.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.items.capacity()
    }

    /// Takes a place out of the free list.
    fn unlink(&mut self, index: u32) {
        if let Item::Free { prev, next } = self.items[index as usize] {
            match prev {
                NONE => self.free = next,
                prev => self.relink(prev, |_, after| *after = next),
            }
            self.relink(next, |before, _| *before = prev);
        }
    }

    fn relink(&mut self, index: u32, change: impl FnOnce(&mut u32, &mut u32)) {
        if let Some(Item::Free { prev, next }) = self.items.get_mut(index as usize) {
            change(prev, next);
        }
    }
}

#[cfg(test)]
#[path = "slab_tests.rs"]
mod tests;

#[cold]
#[inline(never)]
fn gone() -> ! {
    unreachable!("an index is used from insert to remove")
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        self.get(index).unwrap_or_else(|| gone())
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).unwrap_or_else(|| gone())
    }
}
