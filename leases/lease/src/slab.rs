//! A slab: records, each with a number, so that links and indexes can use numbers instead of pointers.
//!
//! Records lie in chunks of 64. Growing adds a chunk and moves no record, so that no call stalls because the table is
//! large. A chunk is freed when its last record is removed, so that memory follows the number of records down as well
//! as up. One empty chunk is kept as a spare: otherwise a number of records that swings around a multiple of 64 would
//! allocate at every swing.
//!
//! A chunk has a bitmap of the places in use. The chunks with room are in a doubly linked list; the table entries whose
//! chunks have been freed are in another. So inserting and removing take constant time, apart from the allocator's time
//! and from growing and shrinking the table of chunks (24 bytes for every 64 records, amortized).
//!
//! A place is an `Option<T>`, which is no larger than the record itself if the record has a niche (a box, a reference,
//! an enum, a `bool`).
//!
//! The crate `slab` and the slab of `keylatch` keep all records in one `Vec`: they move every record when they grow,
//! and a record at the end keeps the memory of all records before it allocated. That suits `keylatch`, whose slabs are
//! small and must not take 64 places for one value.
use alloc::{boxed::Box, vec::Vec};
use core::{
    iter,
    ops::{Index, IndexMut},
};

#[cfg(test)]
#[path = "slab_tests.rs"]
mod tests;

/// The number of places in a chunk: one for each bit of its bitmap.
const PLACES: usize = 64;
/// The largest number of chunks. The last chunk that `u32` could number is not used, so that `u32::MAX` can stand for
/// "none".
const MAX_CHUNKS: usize = u32::MAX as usize / PLACES;
/// The capacity up to which the table of chunks is not shrunk.
const SMALL: usize = 16;
/// The number that stands for no chunk.
const NONE: u32 = u32::MAX;

type Places<T> = Box<[Option<T>; PLACES]>;

/// An entry in the table of chunks.
struct Chunk<T> {
    /// The places; `None` while the chunk is freed.
    places: Option<Places<T>>,
    /// A bit for each place in use.
    used: u64,
    /// Neighbours in the list of chunks with room, or in that of freed chunks. A full chunk is in neither, nor is the
    /// spare.
    prev: u32,
    next: u32,
}

/// Records of type `T`, addressed by number.
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// The empty chunk that is kept until the others have no room.
    spare: u32,
    /// The first of the chunks that have a record and room for more.
    room: u32,
    /// The first of the entries whose chunks have been freed.
    void: u32,
    len: u32,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), spare: NONE, room: NONE, void: NONE, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the numbers of all records, in order. Visits all chunks.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.ids_from(0)
    }

    /// Returns the numbers of the records from this number on, in order. Visits all chunks from there on.
    pub(crate) fn ids_from(&self, first: u32) -> impl Iterator<Item = u32> {
        let (skipped, _) = split(first);
        let used = |chunk: &Chunk<T>| if chunk.places.is_some() { chunk.used } else { 0 };
        let of = |(at, used): (usize, u64)| {
            (0..PLACES).filter(move |place| used >> place & 1 == 1).map(move |place| (at * PLACES + place) as u32)
        };
        self.chunks.iter().map(used).enumerate().skip(skipped).flat_map(of).skip_while(move |id| *id < first)
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        let (chunk, place) = split(id);
        self.chunks.get(chunk)?.places.as_ref()?[place].as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let (chunk, place) = split(id);
        self.chunks.get_mut(chunk)?.places.as_mut()?[place].as_mut()
    }

    /// # Panics
    ///
    /// If there is no number left.
    pub(crate) fn insert(&mut self, record: T) -> u32 {
        self.insert_with(|| record)
    }

    /// Inserts a record that is created after its place has been found.
    ///
    /// # Panics
    ///
    /// If there is no number left.
    #[inline]
    pub(crate) fn insert_with(&mut self, record: impl FnOnce() -> T) -> u32 {
        if self.room == NONE {
            self.make_room();
        }
        let at = self.room;
        let chunk = &mut self.chunks[at as usize];
        let place = chunk.used.trailing_ones();
        // The record is created last, and the old value is not dropped, so that the compiler can create the record in
        // its place.
        let places = chunk.places.as_mut().expect("a chunk with room has places");
        core::mem::forget(places[place as usize].replace(record()));
        chunk.used |= 1 << place;
        if chunk.used == u64::MAX {
            unlink(&mut self.chunks, &mut self.room, at);
        }
        self.len += 1;
        at * PLACES as u32 + place
    }

    /// # Panics
    ///
    /// If there is no such record.
    #[inline]
    pub(crate) fn remove(&mut self, id: u32) -> T {
        let record = self.slot(id).and_then(Option::take);
        let Some(record) = record else { panic!("keylatch-lease: internal error: no record {id}") };
        self.vacate(id);
        record
    }

    /// Drops a record in its place, without moving it.
    ///
    /// # Panics
    ///
    /// If there is no such record.
    #[inline]
    pub(crate) fn forget(&mut self, id: u32) {
        let slot = self.slot(id).filter(|slot| slot.is_some());
        let Some(slot) = slot else { panic!("keylatch-lease: internal error: no record {id}") };
        *slot = None;
        self.vacate(id);
    }

    #[inline]
    fn slot(&mut self, id: u32) -> Option<&mut Option<T>> {
        let (at, place) = split(id);
        Some(&mut self.chunks.get_mut(at)?.places.as_mut()?[place])
    }

    /// Frees the place of a record that has been removed.
    #[inline]
    fn vacate(&mut self, id: u32) {
        let (at, place) = split(id);
        let chunk = &mut self.chunks[at];
        let was_full = chunk.used == u64::MAX;
        chunk.used &= !(1 << place);
        self.len -= 1;
        if was_full {
            link(&mut self.chunks, &mut self.room, at as u32);
        } else if chunk.used == 0 {
            self.empty_chunk(at as u32);
        }
    }

    /// Puts the spare chunk, or a new one if there is no spare, into the list of chunks with room. It is called when
    /// that list is empty.
    fn make_room(&mut self) {
        let spare = core::mem::replace(&mut self.spare, NONE);
        let at = if spare == NONE { self.add_chunk() } else { spare };
        link(&mut self.chunks, &mut self.room, at);
    }

    /// Allocates an empty chunk and returns its entry in the table.
    #[cold]
    fn add_chunk(&mut self) -> u32 {
        let at = if self.void == NONE {
            let at = number(self.chunks.len());
            self.chunks.push(Chunk { places: None, used: 0, prev: NONE, next: NONE });
            at
        } else {
            let at = self.void;
            unlink(&mut self.chunks, &mut self.void, at);
            at
        };
        // The array is collected, because a boxed array would be built on the stack first.
        let places: Box<[Option<T>]> = iter::repeat_with(|| None).take(PLACES).collect();
        let places = places.try_into().unwrap_or_else(|_| unreachable!("as many as were taken"));
        self.chunks[at as usize].places = Some(places);
        at
    }

    /// Makes the chunk `at`, which has become empty, the spare. If there is a spare already, frees the later of the
    /// two.
    fn empty_chunk(&mut self, at: u32) {
        unlink(&mut self.chunks, &mut self.room, at);
        let other = core::mem::replace(&mut self.spare, at);
        if other != NONE {
            self.spare = at.min(other);
            self.give_back(at.max(other));
        }
    }

    /// Frees the chunk of the entry `at`, which is in no list, and truncates the table after its last used entry.
    #[cold]
    fn give_back(&mut self, at: u32) {
        self.chunks[at as usize].places = None;
        link(&mut self.chunks, &mut self.void, at);
        while self.chunks.last().is_some_and(|chunk| chunk.places.is_none()) {
            let last = self.chunks.len() as u32 - 1;
            unlink(&mut self.chunks, &mut self.void, last);
            self.chunks.pop();
        }
        // After it has shrunk, the table is so far from its next growth that shrinking and growing take amortized
        // constant time.
        if self.chunks.capacity() > SMALL && self.chunks.len() <= self.chunks.capacity() / 4 {
            self.chunks.shrink_to(SMALL.max(self.chunks.len() * 2));
        }
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: u32) -> &T {
        self.get(id).unwrap_or_else(|| panic!("keylatch-lease: internal error: no record {id}"))
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        self.get_mut(id).unwrap_or_else(|| panic!("keylatch-lease: internal error: no record {id}"))
    }
}

/// Returns the chunk of a record, and its place in the chunk.
fn split(id: u32) -> (usize, usize) {
    (id as usize / PLACES, id as usize % PLACES)
}

/// Returns the number of the next chunk, when there are `chunks` already.
fn number(chunks: usize) -> u32 {
    assert!(chunks < MAX_CHUNKS, "keylatch-lease: more than {} leases or waiters", MAX_CHUNKS * PLACES);
    chunks as u32
}

/// Inserts a chunk, which must be in no list, at the front of the list that begins at `head`.
fn link<T>(chunks: &mut [Chunk<T>], head: &mut u32, at: u32) {
    let chunk = &mut chunks[at as usize];
    chunk.prev = NONE;
    chunk.next = *head;
    if *head != NONE {
        chunks[*head as usize].prev = at;
    }
    *head = at;
}

/// Takes a chunk out of the list that begins at `head`.
fn unlink<T>(chunks: &mut [Chunk<T>], head: &mut u32, at: u32) {
    let Chunk { prev, next, .. } = chunks[at as usize];
    if next != NONE {
        chunks[next as usize].prev = prev;
    }
    if prev == NONE {
        *head = next;
    } else {
        chunks[prev as usize].next = next;
    }
}
