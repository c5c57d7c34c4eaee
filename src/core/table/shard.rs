//! The shards: finding, making and removing entries.

use alloc::vec::Vec;

use hashbrown::HashTable;

use super::number::SLOTS;
use super::payload::Payload;
use super::pool::Pool;
use super::resting::{AtRest, small};
use super::shrink::{self, is_nearly_empty};
use super::slot::{Chunk, Claim, Live, SlotIndex, SlotRef, Spare, UnitOf, Unshared};
use super::tag::Tag;
use crate::core::wait::word::{Unit, Word};

/// A shard's entries and its free slots, behind the shard lock.
pub(super) struct Shard<K, V: Payload> {
    /// One entry is stored in the shard itself, so that an uncontended cycle does not touch the hash table.
    first: Option<SlotRef<K, V>>,
    first_tag: Tag,
    /// The number of free slots kept for reuse, `hot` included; when `filed` shrinks, it keeps room for twice as many
    /// entries, or for [`shrink::KEPT`] if that is more.
    spares_kept: u32,
    filed: HashTable<SlotIndex>,
    /// A free slot that is kept outside the pool, for quick reuse.
    hot: Option<Spare<K, V>>,
    /// Whether a slot that is freed goes into `hot`, if that is empty, and slots with old keys are reused first.
    keeps_hot: bool,
    pool: Pool<K, V>,
    /// The values at rest.
    pub(super) resting: V::Resting<K>,
    /// Ended values that are no longer in their entries.
    pub(super) parted: V::Parted<K>,
    /// The state kept for the entries' payloads.
    pub(super) kept: V::Kept,
}

/// The result of looking a key up in a shard.
pub(super) enum Stored<'s, K, V: Payload> {
    /// An entry, and whether it is in the hash table.
    Entry(Live<'s, K, V>, bool),
    AtRest(&'s mut AtRest<K, V::Value>),
}

/// The contents of a shard whose table is dropped or taken apart.
pub(crate) struct Drained<K, T> {
    pub(crate) entries: Vec<(K, Option<T>)>,
    /// The values that have ended. One that has left its entry comes with its key, if the user's function needs that.
    pub(crate) ended: Vec<(Option<K>, T)>,
}

impl<K, V: Payload> Shard<K, V> {
    /// Makes a shard with memory for `capacity` entries. `kept` is the state kept for their payloads.
    pub(super) fn new(capacity: usize, spares_kept: usize, recycle_keys: bool, mut kept: V::Kept) -> Self {
        let mut resting = V::Resting::default();
        // Values do not rest if slots may contain old keys that must be dropped: a value that leaves rest needs a slot
        // without one. Nor do they rest if memory is reserved for entries: none is reserved for values at rest.
        let needs_slots = recycle_keys && core::mem::needs_drop::<K>() || capacity > 0;
        if !needs_slots && V::keeps(&mut kept).is_some_and(|kept| kept.records_nothing()) {
            V::resting(&mut resting).into_iter().for_each(|resting| resting.allow());
        }
        Shard {
            first: None,
            first_tag: Tag::from_bits(0),
            spares_kept: u32::try_from(spares_kept).unwrap_or(u32::MAX),
            // Twice the capacity: when tombstones have used up the room of a table that is more than half full, it
            // grows instead of rehashing in place.
            filed: HashTable::with_capacity(2 * capacity.saturating_sub(1)),
            hot: None,
            keeps_hot: spares_kept > 0,
            pool: Pool::new(capacity),
            resting,
            parted: Default::default(),
            kept,
        }
    }

    #[inline]
    pub(super) fn find(&self, tag: Tag, mut eq: impl FnMut(&K) -> bool) -> Option<Live<'_, K, V>> {
        if let Some(first) = &self.first {
            if self.first_tag == tag && eq(first.live().key()) {
                return Some(first.live());
            }
        }
        if self.filed.is_empty() {
            None
        } else if V::VALUES {
            self.find_filed_inline(tag, eq)
        } else {
            self.find_filed(tag, eq)
        }
    }

    // The hash table's code is kept out of line: locking and releasing a key that is alone in its shard takes a few
    // dozen instructions, and the table's code, if inlined, would burden them with its registers and branches. In a
    // map, however, an entry with a value stays, so most entries are in the hash table.

    #[inline(never)]
    fn find_filed(&self, tag: Tag, eq: impl FnMut(&K) -> bool) -> Option<Live<'_, K, V>> {
        self.find_filed_inline(tag, eq)
    }

    #[inline(always)]
    fn find_filed_inline(&self, tag: Tag, eq: impl FnMut(&K) -> bool) -> Option<Live<'_, K, V>> {
        find_in(&self.filed, &self.pool, tag, eq)
    }

    /// Looks a key up among the entries that have a slot, and then among the values at rest.
    #[inline(always)]
    pub(super) fn look_up(&mut self, tag: Tag, mut eq: impl FnMut(&K) -> bool) -> Option<Stored<'_, K, V>> {
        if let Some(first) = &self.first {
            if self.first_tag == tag && eq(first.live().key()) {
                return Some(Stored::Entry(first.live(), false));
            }
        }
        if !self.filed.is_empty() {
            if let Some(entry) = find_in(&self.filed, &self.pool, tag, &mut eq) {
                return Some(Stored::Entry(entry, true));
            }
        }
        V::resting(&mut self.resting)?.find(tag, eq).map(Stored::AtRest)
    }

    /// Passes the entry of a key to `join`, if the key has one. A value at rest is moved to a slot first.
    #[inline(always)]
    pub(super) fn enter<R>(
        &mut self,
        tag: Tag,
        mut eq: impl FnMut(&K) -> bool,
        join: impl FnOnce(Live<'_, K, V>) -> R,
    ) -> Option<R> {
        if let Some(entry) = self.find(tag, &mut eq) {
            return Some(join(entry));
        }
        let bucket = V::resting(&mut self.resting)?.bucket_of(tag, eq)?;
        // The slot is allocated first, so that nothing is lost if that fails.
        let spare = self.take_spare_or_add()?;
        let at_rest = V::resting(&mut self.resting)?.take_at(bucket)?;
        Some(join(self.promote(at_rest, spare, false).live()))
    }

    /// Returns whether a key has an entry or a value at rest.
    pub(super) fn contains(&mut self, tag: Tag, eq: impl FnMut(&K) -> bool) -> bool {
        self.look_up(tag, eq).is_some()
    }

    /// Moves a value that was at rest to a slot. `for_visit` says whether a visit needs the slot, rather than a user of
    /// the value.
    #[inline(never)]
    fn promote(&mut self, at_rest: AtRest<K, V::Value>, spare: Spare<K, V>, for_visit: bool) -> Unshared<'_, K, V> {
        let (tag, version) = (at_rest.tag(), at_rest.version());
        let claim = self.insert_key(tag, spare, at_rest.key, Unit::Claim).into_claim();
        let unshared = self.store(claim, at_rest.value);
        if let Some(marks) = V::marks(unshared.live().marks()) {
            marks.restore(version, for_visit);
        }
        unshared
    }

    /// Stores the first value of an entry of this shard that has just been made. Until another unit is made, or the
    /// shard lock is released, the caller has exclusive use of the entry.
    #[inline]
    pub(super) fn store(&self, claim: Claim<K, V>, value: V::Value) -> Unshared<'_, K, V> {
        claim.store(value)
    }

    /// Takes a slot for a value that was at rest. If no slot is free, adds a chunk. This allocates under the shard
    /// lock, as the growth of a hash table does. Returns `None` if the shard is full.
    #[inline]
    fn take_spare_or_add(&mut self) -> Option<Spare<K, V>> {
        self.take_spare().or_else(|| self.add_chunk())
    }

    #[cold]
    fn add_chunk(&mut self) -> Option<Spare<K, V>> {
        let chunk = Chunk::alloc(self.wanted());
        self.pool.add(chunk).ok()?;
        self.take_free()
    }

    /// Moves the values at rest in some buckets to slots, for a visit of the shard. Returns the bucket at which to go
    /// on, if there are more.
    pub(super) fn promote_some(&mut self, from: usize, most: usize) -> Option<usize> {
        let buckets = V::resting(&mut self.resting)?.buckets();
        let until = buckets.min(from.saturating_add(most));
        for bucket in from..until {
            if V::resting(&mut self.resting)?.has_at(bucket) {
                let spare = self.take_spare_or_add()?;
                let at_rest = V::resting(&mut self.resting)?.take_at(bucket)?;
                self.promote(at_rest, spare, true);
                V::resting(&mut self.resting)?.note_visited();
            }
        }
        (until < buckets).then_some(until)
    }

    /// Counts a look at the value of an entry in the hash table, and lets the value come to rest if its turn has come.
    #[inline]
    pub(super) fn note_look(&mut self, tag: Tag, address: usize) {
        if V::resting(&mut self.resting).is_some_and(|resting| resting.is_turn()) {
            self.demote_at(tag, address);
        }
    }

    /// Lets the value of an entry come to rest.
    #[cold]
    #[inline(never)]
    fn demote_at(&mut self, tag: Tag, address: usize) {
        let number = self.find_at(tag, address).map(|(_, number)| number);
        number.into_iter().for_each(|number| self.demote(number));
        // Values that nobody looks at would keep alive chunks that are mostly free by now.
        for _ in 0..2 {
            let (free, end) = (self.pool.free(), self.end());
            if free as usize <= self.in_slots().max(self.spares_kept as usize) {
                break;
            }
            let number = V::resting(&mut self.resting).map(|resting| resting.next_down(end));
            number.into_iter().for_each(|number| self.demote(number));
        }
    }

    /// Examines up to `most` slots below `end`, and lets those values come to rest that were moved there for a visit of
    /// the shard. Returns the `end` at which to go on: `None` or 0 if no slot is left, `None` if another visit has
    /// begun.
    pub(super) fn demote_visited(&mut self, end: u32, most: u32) -> Option<u32> {
        let end = end.min(self.end());
        for number in (end.saturating_sub(most)..end).rev() {
            let resting = V::resting(&mut self.resting)?;
            if !resting.is_open() {
                resting.note_visited(); // another visit has begun: these values come to rest when it ends
                return None;
            }
            let marks = self.look_at(number).and_then(|entry| V::marks(entry.marks()));
            if marks.is_some_and(|marks| marks.is_visited()) {
                self.demote(number);
            }
        }
        end.checked_sub(most)
    }

    /// Lets the value in a slot come to rest, if nobody uses it and its version is not too large. The value of the
    /// entry outside the hash table stays: it is found even faster there.
    fn demote(&mut self, number: u32) {
        // Room is made first, so that nothing is lost if that fails.
        V::resting(&mut self.resting).into_iter().for_each(|resting| resting.reserve());
        let is_first = self.first.as_ref().is_some_and(|first| first.number() == number);
        let Some(entry) = self.look_at(number).filter(|_| !is_first) else { return };
        let tag = tag_of(entry);
        let version = V::marks(entry.marks()).and_then(|marks| small(marks.version()));
        let (Some(version), Some(unshared)) = (version, entry.unshared()) else { return };
        let (value, claim) = unshared.take();
        let mut spare = self.retire_sole(claim);
        let Some(key) = spare.take_key() else { unreachable!("an entry has a key") };
        if let Some(resting) = V::resting(&mut self.resting) {
            resting.insert(AtRest::new(tag, key, value, version));
        }
        // A chunk that is freed has no old keys here, so nothing is dropped but memory.
        self.keep(spare, &mut None);
    }

    /// Returns whether there is an entry that is not in the hash table.
    #[inline]
    pub(super) fn has_first(&self) -> bool {
        self.first.is_some()
    }

    /// Like [`find`](Self::find), and returns the number of the entry's slot, too.
    pub(super) fn find_numbered(&self, tag: Tag, mut eq: impl FnMut(&K) -> bool) -> Option<(Live<'_, K, V>, u32)> {
        let mut is_it = |live: Live<'_, K, V>| tag_of(live) == tag && eq(live.key());
        if let Some(first) = self.first.as_ref().filter(|first| is_it(first.live())) {
            return Some((first.live(), first.number()));
        }
        let found = self.filed.find(tag.bucket_hash(), |slot_index| is_it(self.pool.look(slot_index)));
        found.map(|slot_index| (self.pool.look(slot_index), slot_index.number()))
    }

    /// Gives up a claim of an entry of this shard, if the only other unit is the value's own claim.
    #[inline]
    pub(super) fn unshared(&self, claim: Claim<K, V>) -> Result<Unshared<'_, K, V>, Claim<K, V>> {
        claim.into_unshared()
    }

    /// Makes an entry of a spare slot that already contains the entry's key. The caller has seen, under the same lock,
    /// that the key has no entry.
    #[inline]
    pub(super) fn insert(&mut self, tag: Tag, spare: Spare<K, V>, unit: Unit) -> UnitOf<K, V> {
        let published = spare.publish_kept(tag.bits(), unit, &mut self.kept);
        self.file(tag, published)
    }

    /// Makes an entry with this key in a spare slot. If the slot contains an old key, that key must own nothing: it is
    /// overwritten, not dropped.
    #[inline]
    pub(super) fn insert_key(&mut self, tag: Tag, spare: Spare<K, V>, key: K, unit: Unit) -> UnitOf<K, V> {
        let published = spare.publish(key, tag.bits(), unit, &mut self.kept);
        self.file(tag, published)
    }

    /// Makes an entry in the next free slot, and lets `write` overwrite the old key in that slot with the new one.
    /// Returns `None` if no slot is free, or if that slot has no old key. If `write` panics, the slot stays free, with
    /// its key in whatever state `write` left it.
    #[inline]
    pub(super) fn insert_recycled(&mut self, tag: Tag, write: impl FnOnce(&mut K), unit: Unit) -> Option<UnitOf<K, V>> {
        if !self.has_spare() {
            return None;
        }
        write(self.hot.as_mut()?.key_mut()?);
        let spare = self.hot.take()?;
        Some(self.insert(tag, spare, unit))
    }

    #[inline]
    fn file(&mut self, tag: Tag, (slot_ref, unit): (SlotRef<K, V>, UnitOf<K, V>)) -> UnitOf<K, V> {
        if self.first.is_none() {
            self.first_tag = tag;
            self.first = Some(slot_ref);
        } else {
            self.file_in_table(tag, slot_ref);
        }
        unit
    }

    #[inline(never)]
    fn file_in_table(&mut self, tag: Tag, slot_ref: SlotRef<K, V>) {
        self.filed.insert_unique(tag.bucket_hash(), slot_ref.file(), |slot_index| {
            tag_of(self.pool.look(slot_index)).bucket_hash()
        });
    }

    /// Removes an entry with its last unit, if the word is `sole`. Fails if the entry has other units by now.
    #[inline]
    pub(super) fn retire(&mut self, unit: UnitOf<K, V>, sole: Word) -> Result<Spare<K, V>, UnitOf<K, V>> {
        let last = unit.last(sole)?;
        let slot_ref = match &self.first {
            Some(first) if first.live().is(last.live()) => self.first.take(),
            _ => self.remove_filed(last.live()),
        };
        match slot_ref {
            Some(slot_ref) => Ok(slot_ref.vacate(last, &mut self.kept)),
            None => unreachable!("an entry with a unit is in the table"),
        }
    }

    /// Removes an entry whose only unit is this claim. Its value has been taken out.
    #[inline(always)]
    pub(super) fn retire_sole(&mut self, claim: Claim<K, V>) -> Spare<K, V> {
        match self.retire(claim.into_unit(), Word::born(Unit::Claim)) {
            Ok(spare) => spare,
            Err(_) => unreachable!("the only unit of an entry whose shard is locked stays the only one"),
        }
    }

    #[inline(never)]
    fn remove_filed(&mut self, last: Live<'_, K, V>) -> Option<SlotRef<K, V>> {
        let found = self.filed.find_entry(tag_of(last).bucket_hash(), |slot_index| self.pool.look(slot_index).is(last));
        let (slot_index, _) = found.ok()?.remove();
        let slot_ref = self.pool.recall(slot_index);
        if is_nearly_empty(self.filed.num_buckets(), self.filed.len(), self.room_kept()) {
            self.shrink_filed();
        }
        Some(slot_ref)
    }

    #[inline]
    fn room_kept(&self) -> usize {
        (self.spares_kept as usize).saturating_mul(2).clamp(shrink::KEPT, usize::MAX / 2)
    }

    #[cold]
    fn shrink_filed(&mut self) {
        let room = shrink::room(self.filed.len(), self.room_kept());
        self.filed.shrink_to(room, |slot_index| tag_of(self.pool.look(slot_index)).bucket_hash());
    }

    /// Returns whether [`Shard::take_spare`] would return a slot.
    #[inline]
    pub(super) fn has_spare(&mut self) -> bool {
        if self.hot.is_none() {
            self.hot = self.take_free();
        }
        self.hot.is_some()
    }

    /// Returns whether the slot that [`take_spare`](Self::take_spare) would return next still has an old key, which
    /// must be dropped. Called after [`has_spare`](Self::has_spare).
    #[inline]
    pub(super) fn next_is_keyed(&self) -> bool {
        self.hot.as_ref().is_some_and(Spare::has_old_key)
    }

    #[inline]
    pub(super) fn take_spare(&mut self) -> Option<Spare<K, V>> {
        self.hot.take().or_else(|| self.take_free())
    }

    fn take_free(&mut self) -> Option<Spare<K, V>> {
        // If chunks are to be freed, a slot with an old key is not preferred: recycling a key saves less than the
        // memory of the chunk that would be kept for it.
        let spare = self.pool.take(self.keeps_hot);
        self.look_at_pool();
        spare
    }

    /// Decides the order in which slots are reused. If at least as many slots are free as are kept for reuse, and at
    /// least a quarter as many as there are entries, the order is one in which chunks can be freed.
    fn look_at_pool(&mut self) {
        let free = self.pool.free();
        let is_sparse = free >= self.spares_kept && 4 * free as usize >= self.in_slots();
        self.keeps_hot = self.spares_kept > 0 && !is_sparse;
    }

    /// Keeps a slot for reuse. If its chunk is unused now, and enough other slots are free, stores the chunk in `idle`,
    /// to be dropped outside the lock.
    #[inline]
    pub(super) fn keep(&mut self, spare: Spare<K, V>, idle: &mut Option<Chunk<K, V>>) {
        if self.hot.is_none() && self.keeps_hot {
            self.hot = Some(spare);
        } else {
            self.keep_more(spare, idle);
        }
    }

    #[inline(never)]
    fn keep_more(&mut self, spare: Spare<K, V>, idle: &mut Option<Chunk<K, V>>) {
        let chunk = spare.chunk();
        *idle = self.pool.put(spare, self.spares_kept);
        self.look_at_pool();
        if idle.is_some() {
            V::forget_chunk(&mut self.kept, chunk, self.pool.end());
        }
    }

    /// Returns whether a slot that is freed now may keep its key.
    pub(super) fn keeps_keys(&self) -> bool {
        // The slot in `hot`, if there is one, is counted as if it had an old key.
        self.pool.keyed() + u32::from(self.hot.is_some()) < self.spares_kept
    }

    /// Returns the number of slots that should be [supplied](Shard::supply) next.
    pub(super) fn wanted(&self) -> usize {
        self.pool.wanted(self.spares_kept)
    }

    /// Adds a new chunk and takes a slot of it. If another slot is free by now, takes that one instead. A chunk that is
    /// not added is stored in `left`, to be dropped outside the lock. Returns `None` if the shard is full.
    pub(super) fn supply(&mut self, chunk: Chunk<K, V>, left: &mut Option<Chunk<K, V>>) -> Option<Spare<K, V>> {
        let spare = self.take_spare();
        if spare.is_some() {
            *left = Some(chunk);
            return spare;
        }
        *left = self.pool.add(chunk).err();
        self.take_free()
    }

    /// Returns the number of entries, values at rest included.
    pub(super) fn len(&mut self) -> usize {
        self.in_slots() + V::resting(&mut self.resting).map_or(0, |resting| resting.len())
    }

    /// Returns the number of entries that have a slot.
    fn in_slots(&self) -> usize {
        usize::from(self.first.is_some()) + self.filed.len()
    }

    /// Returns the entry at this address, if it still exists, and the number of its slot.
    pub(super) fn find_at(&self, tag: Tag, address: usize) -> Option<(Live<'_, K, V>, u32)> {
        match &self.first {
            Some(first) if first.live().address() == address => Some((first.live(), first.number())),
            _ => {
                let slot_index =
                    self.filed.find(tag.bucket_hash(), |slot_index| self.pool.look(slot_index).address() == address)?;
                Some((self.pool.look(slot_index), slot_index.number()))
            }
        }
    }

    /// Returns the entry whose slot has this number, if there is one.
    pub(super) fn look_at(&self, number: u32) -> Option<Live<'_, K, V>> {
        self.pool.look_at(number)
    }

    /// Takes all keys and values out, for the owner of the table.
    pub(super) fn drain(&mut self) -> Drained<K, V::Value> {
        let mut entries = Vec::with_capacity(self.len());
        if let Some(resting) = V::resting(&mut self.resting) {
            entries.extend(resting.take().into_iter().map(|at_rest| (at_rest.key, Some(at_rest.value))));
        }
        let mut ended = V::parted(&mut self.parted).and_then(Option::take).map_or_else(Vec::new, |parted| *parted);
        let pool = &self.pool;
        let rest = self.filed.drain().map(|slot_index| pool.recall(slot_index));
        for slot_ref in self.first.take().into_iter().chain(rest) {
            let is_present = V::is_present(slot_ref.live().marks());
            let (key, value) = slot_ref.abandon();
            let (value, over) = if is_present { (value, None) } else { (None, value) };
            entries.push((key, value));
            ended.extend(over.map(|value| (None, value)));
        }
        Drained { entries, ended }
    }

    /// Returns the number of entries for which the hash table has memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.filed.capacity()
    }

    /// Returns a number larger than that of every slot.
    pub(super) fn end(&self) -> u32 {
        u32::try_from(self.pool.end() * SLOTS).unwrap_or(u32::MAX)
    }
}

/// Finds an entry in the hash table of a shard with this pool.
#[inline(always)]
fn find_in<'s, K, V: Payload>(
    filed: &HashTable<SlotIndex>,
    pool: &'s Pool<K, V>,
    tag: Tag,
    mut eq: impl FnMut(&K) -> bool,
) -> Option<Live<'s, K, V>> {
    let is_it = |slot_index: &SlotIndex| {
        let live = pool.look(slot_index);
        tag_of(live) == tag && eq(live.key())
    };
    filed.find(tag.bucket_hash(), is_it).map(|slot_index| pool.look(slot_index))
}

#[inline]
fn tag_of<K, V: Payload>(live: Live<'_, K, V>) -> Tag {
    Tag::from_bits(live.state().tag())
}
