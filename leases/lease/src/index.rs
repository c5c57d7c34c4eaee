//! An index of records by name, in 64 parts that grow and shrink separately. If a single table of a million names
//! doubled its size, the call that made it grow would wait until all names were hashed again. Here it waits for a
//! sixty-fourth of them.

use hashbrown::HashTable;

const PARTS: usize = 64;

/// A part with at most this capacity is not worth shrinking.
const SMALL: usize = 32;

/// The numbers of records, by the hash of their names.
pub(crate) struct Index {
    parts: [HashTable<u32>; PARTS],
}

impl Index {
    pub(crate) const fn new() -> Self {
        Index { parts: [const { HashTable::new() }; PARTS] }
    }

    #[inline]
    fn part(&mut self, hash: u64) -> &mut HashTable<u32> {
        // Hashbrown itself uses the lowest bits and the seven highest.
        &mut self.parts[(hash >> 40) as usize % PARTS]
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.parts[(hash >> 40) as usize % PARTS].find(hash, |&id| is(id)).copied()
    }

    /// Inserts a record whose name is not yet in the index.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        self.part(hash).insert_unique(hash, id, |&id| hash_of(id));
    }

    /// Removes a record. The other records of its part must still have their names, which may be hashed again.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        let part = self.part(hash);
        if let Ok(entry) = part.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        if part.capacity() > SMALL && part.len() < part.capacity() / 8 {
            part.shrink_to(part.len() * 2, |&id| hash_of(id));
        }
    }
}
