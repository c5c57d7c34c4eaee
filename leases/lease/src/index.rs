//! Finding records by name, in tables that grow and shrink a part at a time: when a table of a million names moves into one of
//! twice the size, who happens to cause it waits for all of them to be hashed again; here, for a sixty-fourth.

use hashbrown::HashTable;

const PARTS: usize = 64;

/// Below so many places a part is not worth shrinking.
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
        // Hashbrown itself looks at the lowest bits and the seven highest.
        &mut self.parts[(hash >> 40) as usize % PARTS]
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.parts[(hash >> 40) as usize % PARTS].find(hash, |&id| is(id)).copied()
    }

    /// Of a name that is not in it.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        self.part(hash).insert_unique(hash, id, |&id| hash_of(id));
    }

    /// A removed record must still have its name, because others may have to be hashed again.
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
