//! A slab: values at indices that stay the same. Rooms keep their waiters in one, and shards their chunks of slots.

use alloc::vec::Vec;

/// No index.
pub(super) const NONE: u32 = u32::MAX;

/// Values and a free list. The last place is always in use, so that the memory of a burst is given back when it is over, as
/// far as the last value that is still there.
pub(super) struct Slab<T> {
    items: Vec<Item<T>>,
    /// The first free place.
    free: u32,
}

enum Item<T> {
    /// A link of the free list, which goes both ways, because places at the end leave it.
    Free {
        prev: u32,
        next: u32,
    },
    Used(T),
}

/// A slab keeps room for this many values.
const KEPT: usize = 64;

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { items: Vec::new(), free: NONE }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> u32 {
        let index = self.free;
        if index == NONE {
            if self.items.len() == self.items.capacity() {
                // Twice the room, but from one on, and not from four: on a microcontroller there may never be more.
                self.items.reserve_exact(self.items.len().max(1));
            }
            self.items.push(Item::Used(value));
            // Memory ends long before four billion of them.
            return self.items.len() as u32 - 1;
        }
        self.unlink(index);
        self.items[index as usize] = Item::Used(value);
        index
    }

    pub(super) fn remove(&mut self, index: u32) -> T {
        let link = Item::Free { prev: NONE, next: self.free };
        let item = core::mem::replace(&mut self.items[index as usize], link);
        self.relink(self.free, |prev, _| *prev = index);
        self.free = index;
        while let Some(Item::Free { .. }) = self.items.last() {
            self.unlink(self.items.len() as u32 - 1);
            self.items.pop();
        }
        if self.items.capacity() > KEPT && self.items.len() < self.items.capacity() / 4 {
            self.items.shrink_to(KEPT.max(2 * self.items.len()));
        }
        match item {
            Item::Used(value) => value,
            Item::Free { .. } => unreachable!("an index is used from insert to remove"),
        }
    }

    /// How many places there are, free ones included.
    pub(super) fn places(&self) -> usize {
        self.items.len()
    }

    /// For how many values there is memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
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

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        match &self.items[index as usize] {
            Item::Used(value) => value,
            Item::Free { .. } => unreachable!("an index is used from insert to remove"),
        }
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        match &mut self.items[index as usize] {
            Item::Used(value) => value,
            Item::Free { .. } => unreachable!("an index is used from insert to remove"),
        }
    }
}
