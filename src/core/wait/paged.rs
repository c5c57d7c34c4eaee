//! Values at stable indices, in pages that are freed one by one.

use alloc::vec::Vec;

use crate::core::slab::{NONE, Slab};

/// A [`Slab`] for the first 64 values, which suffices for most programs, and further pages of 64. Each of these is
/// freed with its last value, so a long-lived value keeps only its own page.
pub(super) struct Paged<T> {
    near: Slab<T>,
    far: Vec<Slab<T>>,
    open: OpenPages,
}

/// A list of the far pages that have a free place. Empty pages, which have no memory, come last.
struct OpenPages {
    /// The neighbours of each page.
    links: Vec<[u32; 2]>,
    /// The first and the last page of the list.
    ends: [u32; 2],
}

/// The number of values in a page.
const PAGE: u32 = 64;

/// The indices of the two ends of the list, in `OpenPages::ends`; also of the two neighbours of a page, in its links.
const FIRST: usize = 0;
const LAST: usize = 1;

impl<T> Paged<T> {
    pub(super) const fn new() -> Self {
        let open = OpenPages { links: Vec::new(), ends: [NONE; 2] };
        Paged { near: Slab::new(), far: Vec::new(), open }
    }

    #[inline]
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if self.near.has_room(PAGE) { self.near.insert(value) } else { self.insert_far(value) }
    }

    #[inline]
    pub(super) fn delete(&mut self, index: u32) {
        if index < PAGE { self.near.delete(index) } else { self.delete_far(index) }
    }

    // These functions are out of line, so that the code for the common case, the first page, is short.

    #[cold]
    #[inline(never)]
    fn far(&self, index: u32) -> &T {
        &self.far[page_of(index) as usize][index % PAGE]
    }

    #[cold]
    #[inline(never)]
    fn insert_far(&mut self, value: T) -> u32 {
        let mut page = self.open.ends[FIRST];
        if page == NONE {
            page = self.far.len() as u32;
            self.far.push(Slab::default());
            self.open.links.push([NONE; 2]);
            self.open.link(page, FIRST);
        }
        let values = &mut self.far[page as usize];
        let index = values.insert(value);
        if !values.has_room(PAGE) {
            self.open.unlink(page);
        }
        (page + 1) * PAGE + index
    }

    #[cold]
    #[inline(never)]
    fn delete_far(&mut self, index: u32) {
        let page = page_of(index);
        let values = &mut self.far[page as usize];
        let was_full = !values.has_room(PAGE);
        values.delete(index % PAGE);
        if values.places() == 0 {
            *values = Slab::default();
            self.open.unlink(page);
            self.open.link(page, LAST);
            while self.far.last().is_some_and(|last| last.places() == 0) {
                self.far.pop();
                self.open.unlink(self.far.len() as u32);
                self.open.links.pop();
            }
            if self.far.len() < self.far.capacity() / 4 {
                self.far.shrink_to(2 * self.far.len());
                self.open.links.shrink_to(2 * self.far.len());
            }
        } else if was_full {
            self.open.link(page, FIRST);
        }
    }

    /// Returns the number of values for which memory is allocated.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.near.memory() + self.far.iter().map(Slab::memory).sum::<usize>()
    }

    /// Returns whether there are no values.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.near.places() == 0 && self.far.is_empty()
    }
}

impl<T> core::ops::Index<u32> for Paged<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        match self.near.get(index) {
            Some(value) => value,
            None => self.far(index),
        }
    }
}

impl<T> core::ops::IndexMut<u32> for Paged<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        let Paged { near, far, .. } = self;
        match near.get_mut(index) {
            Some(value) => value,
            None => far_mut(far, index),
        }
    }
}

#[cold]
#[inline(never)]
fn far_mut<T>(far: &mut [Slab<T>], index: u32) -> &mut T {
    &mut far[page_of(index) as usize][index % PAGE]
}

/// Returns the far page of an index.
fn page_of(index: u32) -> u32 {
    (index / PAGE).wrapping_sub(1)
}

impl OpenPages {
    /// Puts a page at one end of the list.
    fn link(&mut self, page: u32, end: usize) {
        let neighbour = core::mem::replace(&mut self.ends[end], page);
        self.links[page as usize][end] = NONE;
        self.links[page as usize][1 - end] = neighbour;
        match neighbour {
            NONE => self.ends[1 - end] = page,
            neighbour => self.links[neighbour as usize][end] = page,
        }
    }

    fn unlink(&mut self, page: u32) {
        let [before, after] = self.links[page as usize];
        for (end, neighbour, other) in [(FIRST, before, after), (LAST, after, before)] {
            match neighbour {
                NONE => self.ends[end] = other,
                neighbour => self.links[neighbour as usize][1 - end] = other,
            }
        }
    }
}
