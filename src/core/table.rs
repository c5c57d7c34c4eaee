//! The shards: how an entry is found, made and removed.

use hashbrown::HashTable;

use super::pool::Pool;
use super::slot::{Chunk, Claim, Filed, Live, Resident, Spare};
use super::word::Word;

/// What is kept of a key's hash: enough to find the entry again without asking the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u32);

impl Tag {
    /// Mixes the caller's hash, so that a weak hasher (the identity, say) spreads over shards and buckets as well.
    #[inline]
    pub(crate) fn of(hash: u64) -> Tag {
        // Folded multiplication: every bit of the hash reaches every bit of the tag.
        let wide = u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        Tag(((wide >> 64) as u64 ^ wide as u64) as u32)
    }

    #[inline]
    pub(super) fn of_claim<K>(claim: &Claim<K>) -> Tag {
        Tag(claim.tag())
    }

    pub(super) fn of_live<K>(live: Live<'_, K>) -> Tag {
        Tag(live.tag())
    }

    /// What a slot keeps of it.
    #[inline]
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// The high bits choose the shard, ...
    #[inline]
    pub(crate) fn shard(self, shift: u32) -> usize {
        (u64::from(self.0) >> shift) as usize
    }

    /// ... the low bits choose the room, ...
    #[inline]
    pub(crate) fn room(self, mask: u32) -> usize {
        (self.0 & mask) as usize
    }

    /// ... and the low bits of this choose the bucket, while its high bits, which hashbrown compares first, depend on all.
    #[inline]
    fn hash(self) -> u64 {
        u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A shard's entries and its free slots, behind the shard lock.
pub(super) struct Shard<K> {
    /// One entry has its place in the shard itself: in an uncontended cycle the hash table is not touched at all.
    first: Option<Resident<K>>,
    first_tag: u32,
    /// How many free slots are kept for reuse, `hot` included; and for twice as many entries `rest` keeps its room.
    spares_kept: u32,
    rest: HashTable<Filed>,
    /// The slot that was given up last, where it is at hand.
    hot: Option<Spare<K>>,
    pool: Pool<K>,
}

/// A table with more room than this many entries gives some back when it is nearly empty.
const REST_KEPT: usize = 112;

impl<K> Shard<K> {
    /// A shard that holds `capacity` entries before anything is allocated.
    pub(super) fn new(capacity: usize, spares_kept: usize) -> Self {
        Shard {
            first: None,
            first_tag: 0,
            spares_kept: u32::try_from(spares_kept).unwrap_or(u32::MAX),
            // Twice the room: a table that is more than half full when removals have worn it out grows instead of tidying up.
            rest: HashTable::with_capacity(2 * capacity.saturating_sub(1)),
            hot: None,
            pool: Pool::new(capacity),
        }
    }

    #[inline]
    pub(super) fn find(&self, tag: Tag, mut eq: impl FnMut(&K) -> bool) -> Option<Live<'_, K>> {
        if let Some(first) = &self.first {
            if self.first_tag == tag.0 && eq(first.live().key()) {
                return Some(first.live());
            }
        }
        if self.rest.is_empty() { None } else { self.find_rest(tag, eq) }
    }

    // The hash table's code is kept out of line: the cycle of a key that is alone in its shard is a few dozen
    // instructions, and would carry the table's registers and branches.

    #[inline(never)]
    fn find_rest(&self, tag: Tag, mut eq: impl FnMut(&K) -> bool) -> Option<Live<'_, K>> {
        let is_it = |filed: &Filed| {
            let live = self.pool.look(filed);
            live.tag() == tag.0 && eq(live.key())
        };
        self.rest.find(tag.hash(), is_it).map(|filed| self.pool.look(filed))
    }

    /// Makes an entry. The caller has seen, under the same lock, that the key has none.
    #[inline]
    pub(super) fn insert(&mut self, tag: Tag, resident: Resident<K>) {
        if self.first.is_none() {
            self.first_tag = tag.0;
            self.first = Some(resident);
        } else {
            self.insert_rest(tag, resident);
        }
    }

    #[inline(never)]
    fn insert_rest(&mut self, tag: Tag, resident: Resident<K>) {
        self.rest.insert_unique(tag.hash(), resident.file(), |filed| Tag::of_live(self.pool.look(filed)).hash());
    }

    /// The entry dies with its last claim, which is all that its word counts: `sole`. `Err` if others have a claim by now.
    #[inline]
    pub(super) fn retire(&mut self, claim: Claim<K>, sole: Word) -> Result<Spare<K>, Claim<K>> {
        let last = claim.last(sole)?;
        let resident = match &self.first {
            Some(first) if first.is_of(last.claim()) => self.first.take(),
            _ => self.remove_rest(last.claim()),
        };
        match resident {
            Some(resident) => Ok(resident.vacate(last)),
            None => unreachable!("a claimed entry is in the table"),
        }
    }

    #[inline(never)]
    fn remove_rest(&mut self, last: &Claim<K>) -> Option<Resident<K>> {
        let found = self.rest.find_entry(Tag::of_claim(last).hash(), |filed| self.pool.look(filed).is_of(last));
        let (filed, _) = found.ok()?.remove();
        let resident = self.pool.recall(filed);
        // Twice, because a table has more room than it was asked for: else it would try again and again.
        if self.rest.capacity() > 2 * self.rest_kept() && self.rest.len() < self.rest.capacity() / 8 {
            self.shrink_rest();
        }
        Some(resident)
    }

    #[inline]
    fn rest_kept(&self) -> usize {
        (self.spares_kept as usize).saturating_mul(2).clamp(REST_KEPT, usize::MAX / 2)
    }

    /// After a burst. Moving `n` entries is paid for by the `3 n` releases, at least, since the table was that full.
    #[cold]
    fn shrink_rest(&mut self) {
        let room = (self.rest.len() * 2).max(self.rest_kept());
        self.rest.shrink_to(room, |filed| Tag::of_live(self.pool.look(filed)).hash());
    }

    /// Whether [`Shard::take_spare`] has one.
    #[inline]
    pub(super) fn has_spare(&mut self) -> bool {
        if self.hot.is_none() {
            self.hot = self.pool.take();
        }
        self.hot.is_some()
    }

    #[inline]
    pub(super) fn take_spare(&mut self) -> Option<Spare<K>> {
        self.hot.take().or_else(|| self.pool.take())
    }

    /// Keeps a slot for reuse. If there are enough, a chunk is `idle`, to be dropped outside the lock.
    #[inline]
    pub(super) fn keep(&mut self, spare: Spare<K>, idle: &mut Option<Chunk<K>>) {
        if self.hot.is_none() && self.spares_kept > 0 {
            self.hot = Some(spare);
        } else {
            self.keep_more(spare, idle);
        }
    }

    #[inline(never)]
    fn keep_more(&mut self, spare: Spare<K>, idle: &mut Option<Chunk<K>>) {
        *idle = self.pool.put(spare, self.spares_kept);
    }

    /// Whether a key that is given up now may stay with its slot.
    pub(super) fn keeps_keys(&self) -> bool {
        // `hot` has one, if it is there.
        self.pool.keyed() + u32::from(self.hot.is_some()) < self.spares_kept
    }

    /// How many slots should be [supplied](Shard::supply) next.
    pub(super) fn wanted(&self) -> usize {
        self.pool.wanted(self.spares_kept)
    }

    /// Takes a slot of a new chunk. If there is one by now without it, or no room for it, gives the chunk back, to be dropped
    /// outside the lock.
    pub(super) fn supply(&mut self, chunk: Chunk<K>) -> (Option<Spare<K>>, Option<Chunk<K>>) {
        match self.take_spare() {
            Some(spare) => (Some(spare), Some(chunk)),
            None => {
                let too_many = self.pool.add(chunk).err();
                (self.pool.take(), too_many)
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// For how many entries the hash table has memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.rest.capacity()
    }

    /// The live entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = Live<'_, K>> {
        self.first.iter().map(Resident::live).chain(self.rest.iter().map(|filed| self.pool.look(filed)))
    }
}
