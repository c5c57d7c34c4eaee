//! Values of entries: storing, taking, reading and evicting them.

use core::convert::Infallible;

use super::Core;
use super::counters::Event;
use super::lookup::{Ask, OwnedKey, Source, VersionOf};
use super::on_evict::OnEvict;
use super::payload::Payload;
use super::resting::{AtRest, small};
use super::retire::Dead;
use super::room::Room;
use super::shard::{Drained, Shard, Stored};
use super::slot::{Claim, Hold, Live, TypedAccess, Unshared};
use super::tag::Tag;
use super::value::{Kept, Marks, Valued};
use crate::core::wait::word::{Unit, Word};
use crate::core::wait::{Access, Holds, ReleaseFor, WakeBatch};
use crate::panics::Panics;

/// The error of a call that is not possible without a hold, because the entry is in use or needs an allocation, or
/// because the table [has records](Core::has_records): the caller has to acquire the key.
#[derive(Debug)]
pub(crate) struct Busy<T>(pub(crate) T);

/// The mode of the hold with which a call takes a value out of an entry that another user keeps.
#[derive(Clone, Copy)]
pub(super) struct Alone;

impl TypedAccess for Alone {
    #[inline]
    fn access(&self) -> Access {
        Access::Exclusive
    }
}

/// Operations of a caller that has an exclusive hold.
impl<K, T> Core<K, Valued<T>> {
    /// Stores a value and returns the old one.
    #[inline]
    pub(crate) fn insert<M: TypedAccess>(&self, hold: &mut Hold<K, Valued<T>, M>, value: T) -> Option<T> {
        self.insert_after(hold, value, 1, None)
    }

    /// Stores a value whose version is `versions` more than the last one, in the room that the caller may have made.
    pub(crate) fn insert_after<M: TypedAccess>(
        &self,
        hold: &mut Hold<K, Valued<T>, M>,
        value: T,
        versions: u64,
        room: Option<Room<'_, K, Valued<T>>>,
    ) -> Option<T> {
        if let Some(place) = hold.value_mut() {
            let old = core::mem::replace(place, value);
            hold.live().marks().renew(versions);
            self.note_use(hold.live());
            return Some(old);
        }
        self.store(hold, value, versions, room);
        self.count(tag_of(hold.live()), Event::Inserted);
        None
    }

    /// Puts back a value that was taken out for a moment, with a new version. It does not count as an insertion.
    pub(crate) fn put_back<M: TypedAccess>(&self, hold: &mut Hold<K, Valued<T>, M>, value: T) {
        self.store(hold, value, 1, None);
        self.note_use(hold.live());
    }

    /// Stores a value for a key that has none.
    fn store<M: TypedAccess>(
        &self,
        hold: &mut Hold<K, Valued<T>, M>,
        value: T,
        versions: u64,
        room: Option<Room<'_, K, Valued<T>>>,
    ) {
        let room = if self.has_records() { room.or_else(|| self.make_room(hold)) } else { None };
        hold.live().marks().renew(versions);
        let tag = tag_of(hold.live());
        self.shard(tag).with(|shard| {
            let claim = hold.live().claim_for_value();
            hold.store(value, claim);
            // The value is in use, so in a bounded table it is parked.
            shard.kept.values += 1;
            if room.is_some() {
                self.begin_deadline(shard, hold.live());
            }
            self.note_excess(shard, tag);
        });
        room.into_iter().for_each(Room::leave_to_deadline);
    }

    /// Takes the value out.
    pub(crate) fn remove<M: TypedAccess>(&self, hold: &mut Hold<K, Valued<T>, M>) -> Option<T> {
        if !hold.live().has_value() {
            return None;
        }
        let (tag, address) = (tag_of(hold.live()), hold.live().address());
        let (value, claim) = self.shard(tag).with(|shard| {
            let taken = hold.take()?;
            self.uncount(shard, tag, address);
            Some(taken)
        })?;
        if self.has_records() {
            self.leave_claim(hold.live().claim_of_deadline().into_unit());
        }
        self.leave_claim(claim.into_unit());
        Some(value)
    }

    /// Returns the value, to be changed.
    #[inline]
    pub(crate) fn value_mut<'h, M: TypedAccess>(&self, hold: &'h mut Hold<K, Valued<T>, M>) -> Option<&'h mut T> {
        if Valued::<T>::is_present(hold.live().marks()) {
            hold.live().marks().renew(1);
        }
        hold.value_mut()
    }

    /// Leaves this many versions unused.
    pub(crate) fn skip_versions<M: TypedAccess>(&self, hold: &mut Hold<K, Valued<T>, M>, versions: u64) {
        assert!(hold.mode().access() == Access::Exclusive, "versions are used up by an exclusive hold");
        hold.live().marks().renew(versions);
    }
}

impl<K, T> Live<'_, K, Valued<T>> {
    /// Returns the version of the value, if there is one. The caller has a hold.
    #[inline]
    pub(crate) fn version(self) -> Option<u64> {
        self.has_value().then(|| self.marks().version())
    }

    /// Returns the version of the last value, even if that value has been removed. The caller has a hold.
    #[inline]
    pub(crate) fn last_version(self) -> u64 {
        self.marks().version()
    }

    /// Returns whether there is a value. The answer is a snapshot.
    #[inline]
    pub(crate) fn has_value(self) -> bool {
        Valued::<T>::is_present(self.marks())
    }
}

/// Operations of a caller without a hold: under the shard lock, an unshared entry can be used as if the caller had an
/// exclusive hold.
impl<K, T> Core<K, Valued<T>> {
    /// Looks up the value of a key. Fails if the entry is in use, or if the table [has records](Self::has_records).
    /// `look` runs under the shard lock.
    #[inline]
    pub(crate) fn peek<R>(
        &self,
        key: &impl Ask<K>,
        look: impl FnOnce(&T, VersionOf<'_, K, T>) -> R,
    ) -> Result<Option<R>, Busy<()>> {
        let Some(shard) = self.plain_shard(key.tag()) else { return Err(Busy(())) };
        shard.with(|shard| match shard.look_up(key.tag(), |other| key.is(other)) {
            Some(Stored::Entry(entry, is_in_table)) => {
                let Some(unshared) = entry.unshared() else { return Err(Busy(())) };
                let (seen, address) = (self.look_at(&unshared, look), entry.address());
                if is_in_table {
                    shard.note_look(key.tag(), address);
                }
                Ok(Some(seen))
            }
            Some(Stored::AtRest(at_rest)) => Ok(Some(look(&at_rest.value, VersionOf::AtRest(at_rest.version())))),
            None => {
                self.count(key.tag(), Event::Miss);
                Ok(None)
            }
        })
    }

    /// Looks up the value of an entry for the owner of a claim. The claim is given up, or returned if it and the
    /// value's own are not the only units. `look` runs under the shard lock.
    #[inline]
    pub(crate) fn peek_by<R>(
        &self,
        claim: Claim<K, Valued<T>>,
        look: impl FnOnce(&T, VersionOf<'_, K, T>) -> R,
    ) -> Result<R, Busy<Claim<K, Valued<T>>>> {
        let (tag, address) = (tag_of(claim.live()), claim.live().address());
        let seen = self.shard(tag).with(|shard| {
            let unshared = shard.unshared(claim)?;
            Ok(self.look_at(&unshared, look))
        });
        self.sweep_after(seen, tag, address)
    }

    /// Stores a value and returns the old one.
    #[inline]
    pub(crate) fn insert_at_once(
        &self,
        key: &mut (impl Ask<K> + Source<K, Valued<T>>),
        value: T,
    ) -> Result<Option<T>, Busy<T>> {
        let tag = key.tag();
        // If the table has records, a holder must store its values.
        let Some(shard) = self.plain_shard(tag) else { return Err(Busy(value)) };
        let (mut address, mut value) = (0, Some(value));
        let old = shard.with(|shard| {
            match shard.look_up(tag, |other| key.is(other)) {
                Some(Stored::Entry(entry, is_in_table)) => {
                    let mut entry = entry.unshared()?;
                    address = entry.live().address();
                    let old = self.write_over(&mut entry, value.take()?);
                    if is_in_table {
                        shard.note_look(tag, address);
                    }
                    return Some(Some(old));
                }
                Some(Stored::AtRest(at_rest)) => return Some(Some(at_rest.write_over(&mut value)?)),
                None => {}
            }
            if shard.has_first() && shard.resting.is_open() {
                if let Some(version) = small(shard.kept.high_water() + 1) {
                    shard.resting.insert(AtRest::new(tag, key.give()?, value.take()?, version));
                    shard.kept.values += 1;
                    return Some(None);
                }
            }
            if !shard.has_spare() || shard.next_is_keyed() {
                return None;
            }
            let new = key.give()?;
            let Some(spare) = shard.take_spare() else { unreachable!("there is one") };
            let claim = shard.insert_key(tag, spare, new, Unit::Claim).into_claim();
            address = claim.live().address();
            claim.live().marks().renew(1);
            shard.store(claim, value.take()?);
            shard.kept.values += 1;
            if shard.kept.is_watched {
                let number = shard.find_at(tag, address).map(|(_, number)| number);
                self.unpark(shard, number);
                self.note_excess(shard, tag);
                self.count(tag, Event::Inserted);
            }
            Some(None)
        });
        match (old, value) {
            (Some(old), _) => {
                if self.exceeds(tag) {
                    // If the drop of an evicted value panics, the replaced value is still dropped.
                    self.sweep(tag, address);
                }
                Ok(old)
            }
            (None, Some(value)) => Err(Busy(value)),
            (None, None) => unreachable!("a value that was not stored is kept in its variable"),
        }
    }

    /// Replaces the value of an entry for the owner of a claim, and returns the old value. The claim is given up, or
    /// returned if it and the value's own are not the only units.
    #[inline]
    #[allow(clippy::type_complexity)] // an alias would hide more than it tells
    pub(crate) fn insert_by(&self, claim: Claim<K, Valued<T>>, value: T) -> Result<T, Busy<(Claim<K, Valued<T>>, T)>> {
        let (tag, address) = (tag_of(claim.live()), claim.live().address());
        let old = self.shard(tag).with(|shard| match shard.unshared(claim) {
            Ok(mut entry) => Ok(self.write_over(&mut entry, value)),
            Err(claim) => Err((claim, value)),
        });
        self.sweep_after(old, tag, address)
    }

    /// Sweeps, if the claim of the entry at this address has been given up and there may be something to sweep.
    #[inline]
    fn sweep_after<R, E>(&self, left: Result<R, E>, tag: Tag, address: usize) -> Result<R, Busy<E>> {
        if left.is_ok() && self.exceeds(tag) {
            // If the drop of an evicted value panics, the result is still dropped.
            self.sweep(tag, address);
        }
        left.map_err(Busy)
    }

    /// Takes the value of a key out.
    #[inline]
    pub(crate) fn remove_at_once(&self, key: &impl Ask<K>) -> Result<Option<T>, Busy<()>> {
        let Some(shard) = self.plain_shard(key.tag()) else { return Err(Busy(())) };
        let mut dead = Dead::default();
        let removed = shard.with(|shard| {
            let (address, (value, claim)) = match shard.look_up(key.tag(), |other| key.is(other)) {
                Some(Stored::Entry(entry, _)) => {
                    let Some(unshared) = entry.unshared() else { return Err(Busy(())) };
                    (entry.address(), unshared.take())
                }
                Some(Stored::AtRest(_)) => {
                    // Nothing is found this time if `Eq` contradicts itself.
                    let removed = shard.resting.remove(key.tag(), |other| key.is(other));
                    let Some(at_rest) = removed else { return Ok(None) };
                    shard.kept.raise(at_rest.version());
                    shard.kept.values -= 1;
                    dead.key = Some(at_rest.key);
                    return Ok(Some(at_rest.value));
                }
                None => return Ok(None),
            };
            self.retire_valued(shard, key.tag(), address, claim, &mut dead);
            Ok(Some(value))
        });
        // If the drop of the key panics, the value is still dropped.
        drop(dead);
        removed
    }

    /// Takes the value of an entry out for the owner of a claim. The claim is given up, or returned if it and the
    /// value's own are not the only units.
    #[inline]
    pub(crate) fn remove_by(&self, claim: Claim<K, Valued<T>>) -> Result<T, Busy<Claim<K, Valued<T>>>> {
        let (tag, address) = (tag_of(claim.live()), claim.live().address());
        let mut dead = Dead::default();
        let removed = self.shard(tag).with(|shard| {
            let (value, claim) = shard.unshared(claim).map_err(Busy)?.take();
            self.retire_valued(shard, tag, address, claim, &mut dead);
            Ok(value)
        });
        // If the drop of the key panics, the value is still dropped.
        drop(dead);
        removed
    }

    #[inline]
    fn look_at<R>(&self, entry: &Unshared<'_, K, Valued<T>>, look: impl FnOnce(&T, VersionOf<'_, K, T>) -> R) -> R {
        self.note_look_up(entry.live());
        look(entry.value(), VersionOf::Entry(entry.live()))
    }

    /// Replaces the value and returns the old one.
    #[inline]
    fn write_over(&self, entry: &mut Unshared<'_, K, Valued<T>>, value: T) -> T {
        entry.live().marks().renew(1);
        self.note_use(entry.live());
        core::mem::replace(entry.value_mut(), value)
    }
}

/// The bound.
impl<K, V: Payload> Core<K, V> {
    /// Takes a removed value out of the shard's count and lists.
    #[inline(always)]
    pub(super) fn uncount(&self, shard: &mut Shard<K, V>, tag: Tag, address: usize) {
        match V::keeps(&mut shard.kept) {
            Some(kept) if kept.is_listed => self.uncount_listed(shard, tag, address),
            Some(kept) => kept.values -= 1,
            None => {}
        }
    }

    /// Like [`uncount`](Self::uncount), for a table that has lists of its values.
    #[inline(never)]
    fn uncount_listed(&self, shard: &mut Shard<K, V>, tag: Tag, address: usize) {
        let number = shard.find_at(tag, address).map(|(_, number)| number);
        if let Some(kept) = V::keeps(&mut shard.kept) {
            kept.forget(number);
        }
        self.note_excess(shard, tag);
    }

    /// Returns whether an entry with a value and this word is in use: held, waited for, or kept by a handle.
    pub(super) fn is_used(&self, entry: Live<'_, K, V>, word: Word) -> bool {
        word.holds() != Holds::NONE
            || word.is_queued()
            || V::marks(entry.marks()).is_some_and(|marks| marks.has_handle(word != self.claims_of_value()))
    }

    /// Returns the word of an entry whose only units are the claims of its value.
    pub(super) fn claims_of_value(&self) -> Word {
        let claim = Word::born(Unit::Claim);
        if self.has_records() { claim.keep() } else { claim }
    }

    /// Records whether there is something to sweep in this shard, to which the tag belongs.
    #[inline]
    pub(super) fn note_excess(&self, shard: &mut Shard<K, V>, tag: Tag) {
        if let (Some(kept), Some(excess)) = (V::keeps(&mut shard.kept), V::excess(&self.excess)) {
            kept.note_excess(excess, tag.shard(self.shift));
        }
    }

    /// Retires an entry whose value has been removed, and whose only unit is the value's claim.
    fn retire_valued(
        &self,
        shard: &mut Shard<K, V>,
        tag: Tag,
        address: usize,
        claim: Claim<K, V>,
        dead: &mut Dead<K, V>,
    ) {
        self.uncount(shard, tag, address);
        self.retire_sole(shard, claim, dead);
    }

    /// Retires an entry whose value has been removed and uncounted, and whose only unit is the value's claim.
    #[inline(always)]
    pub(super) fn retire_sole(&self, shard: &mut Shard<K, V>, claim: Claim<K, V>, dead: &mut Dead<K, V>) {
        let spare = shard.retire_sole(claim);
        self.put_away(shard, spare, dead);
    }

    /// Like [`retire_valued`](Self::retire_valued), but also takes the key out, even if keys are recycled.
    pub(super) fn retire_with_key(
        &self,
        shard: &mut Shard<K, V>,
        tag: Tag,
        address: usize,
        claim: Claim<K, V>,
        dead: &mut Dead<K, V>,
    ) -> K {
        self.uncount(shard, tag, address);
        self.retire_keyed(shard, claim, dead)
    }

    /// Like [`retire_sole`](Self::retire_sole), but also takes the key out.
    pub(super) fn retire_keyed(&self, shard: &mut Shard<K, V>, claim: Claim<K, V>, dead: &mut Dead<K, V>) -> K {
        let mut spare = shard.retire_sole(claim);
        let Some(key) = spare.take_key() else { unreachable!("an entry has a key") };
        self.put_away(shard, spare, dead);
        key
    }

    /// Returns the function to which evicted values are handed, if there is one.
    pub(super) fn on_evict(&self) -> Option<&OnEvict<K, V::Value>> {
        V::hooks(&self.hooks)?.on_evict.as_ref()
    }

    /// Returns exclusive use of an entry, if its only units are the claims of its value. The caller has locked the
    /// shard, and takes the value out.
    pub(super) fn unshared<'s>(&self, entry: Live<'s, K, V>) -> Option<Unshared<'s, K, V>> {
        entry.unshared().or_else(|| self.unshared_timed(entry))
    }

    /// Puts the value of this slot back into the sieve, if it is not in use.
    pub(super) fn unpark(&self, shard: &mut Shard<K, V>, number: Option<u32>) {
        let is_bounded = V::keeps(&mut shard.kept).is_some_and(|kept| kept.bound.is_some());
        let Some(number) = number.filter(|_| is_bounded) else { return };
        let Some(entry) = shard.look_at(number) else { return };
        // A user that leaves after this check calls this function, too.
        let idle = V::is_present(entry.marks()) && !self.is_used(entry, entry.state().word());
        let tag = tag_of(entry);
        if let Some(kept) = V::keeps(&mut shard.kept).filter(|_| idle) {
            kept.unpark(number, tag);
        }
    }

    /// Evicts a value, if there are too many, or one that is excessive. The value of the slot `not` is evicted only if
    /// it is excessive. Examines at most [`LOOKED_AT`] other values.
    pub(super) fn evict(&self, shard: &mut Shard<K, V>, not: Option<u32>) -> Eviction<K, V> {
        if V::keeps(&mut shard.kept).is_none_or(|kept| kept.bound.is_none()) {
            return Eviction::Nothing;
        }
        if let Some(evicted) = self.evict_excessive(shard, not) {
            return Eviction::Done(evicted);
        }
        for _ in 0..LOOKED_AT {
            if let Some(number) = V::keeps(&mut shard.kept).and_then(Kept::take_outgrown) {
                if let Some(evicted) = self.evict_excessive(shard, Some(number)) {
                    return Eviction::Done(evicted);
                }
                // The value is in use, and its last user evicts it; or the bound has been raised again.
                self.unpark(shard, Some(number));
                continue;
            }
            let next = |shard: &mut Shard<K, V>| V::keeps(&mut shard.kept)?.next(not);
            let Some((number, has_pass)) = next(shard) else { return Eviction::Nothing };
            let Some(entry) = shard.look_at(number) else { unreachable!("an entry with a value is live") };
            // This exchange changes nothing, but a user that leaves after it sees that there is something to sweep.
            let Ok(word) = entry.state().update(Ok::<_, Infallible>);
            if self.is_used(entry, word) {
                V::keeps(&mut shard.kept).into_iter().for_each(|kept| kept.park(number));
                continue;
            }
            let was_used = V::marks(entry.marks()).is_some_and(Marks::take_used);
            if was_used || has_pass {
                V::keeps(&mut shard.kept).into_iter().for_each(|kept| kept.spare(was_used));
                continue;
            }
            let tag = tag_of(entry);
            if let Some(evicted) = self.evict_value(shard, number) {
                V::keeps(&mut shard.kept).into_iter().for_each(|kept| kept.remember(tag));
                return Eviction::Done(evicted);
            }
            V::keeps(&mut shard.kept).into_iter().for_each(|kept| kept.park(number));
        }
        Eviction::More
    }

    /// Takes the value of this slot, which is not in use, out of its entry, if that is possible.
    pub(super) fn evict_value(&self, shard: &mut Shard<K, V>, number: u32) -> Option<Evicted<K, V>> {
        let entry = shard.look_at(number)?;
        let (tag, address) = (tag_of(entry), entry.address());
        let mut dead = Dead::default();
        if let Some(unshared) = self.unshared(entry) {
            let (value, claim) = unshared.take();
            dead.value = Some(value);
            if self.on_evict().is_some() {
                dead.key = Some(self.retire_with_key(shard, tag, address, claim, &mut dead));
            } else {
                self.retire_valued(shard, tag, address, claim, &mut dead);
            }
            return Some((dead, None));
        }
        // Another user keeps the entry with an unpolled future, or is visiting it. That user needs the key, which
        // therefore cannot be handed out.
        let alone = || entry.join(|word| word.hold(Access::Exclusive, 1)).ok();
        let mut hold = self.on_evict().is_none().then(alone).flatten()?.into_hold(Alone);
        let Some((value, claim)) = hold.take() else { unreachable!("it has a value") };
        dead.value = Some(value);
        self.uncount(shard, tag, address);
        if self.has_records() {
            self.leave_claim(hold.live().claim_of_deadline().into_unit());
        }
        // The hold is released while the shard is still locked, so a request that has no claim yet does not find the
        // key held. The value's claim is still a unit.
        let mut batch = WakeBatch::default();
        self.leave_into(hold.into_unit(), Access::Exclusive, ReleaseFor::Anybody, &mut batch);
        Some((dead, Some((claim, batch))))
    }
}

/// The largest number of values that one step of a search for a victim examines under the shard lock. The lock is
/// released between two steps.
pub(super) const LOOKED_AT: usize = 128;

pub(super) enum Eviction<K, V: Payload> {
    Done(Evicted<K, V>),
    /// This step took no value out, but has not examined all of them: the next step continues behind those that it has
    /// examined.
    More,
    /// No value has to be taken out, or every value that would have to go is in use.
    Nothing,
}

/// The value that was taken out, to be dropped outside the lock; and, if another user keeps the entry, the value's
/// claim, to be given up before the drop, with the wakers of waiters that queued in between.
pub(super) type Evicted<K, V> = (Dead<K, V>, Option<(Claim<K, V>, WakeBatch)>);

impl Kept {
    /// Forgets the removed value of this slot.
    pub(super) fn forget(&mut self, number: Option<u32>) {
        self.values -= 1;
        let Some(number) = number else { return };
        if let Some(bound) = &mut self.bound {
            bound.sieve.remove(number);
            bound.history.fit(self.values);
        }
        if let Some(deadlines) = &mut self.deadlines {
            deadlines.forget(number);
            self.note_weights();
        }
    }

    /// Puts a value that is no longer in use into the sieve, if it [belongs there](Self::is_ordered).
    fn unpark(&mut self, number: u32, tag: Tag) {
        let is_ordered = self.is_ordered(number);
        if let Some(bound) = self.bound.as_mut().filter(|_| is_ordered) {
            bound.sieve.push(number, || bound.history.take(tag));
        }
    }

    /// Remembers the key of a value that is evicted.
    pub(super) fn remember(&mut self, tag: Tag) {
        let are_weighed = self.are_weighed();
        if let Some(bound) = &mut self.bound {
            bound.history.add(tag, if are_weighed { self.values } else { self.values.min(bound.most) });
        }
    }

    /// Parks a value that is in use when the hand reaches it.
    pub(super) fn park(&mut self, number: u32) {
        if let Some(bound) = &mut self.bound {
            bound.sieve.remove(number);
        }
    }

    /// Returns whether there are too many values.
    pub(super) fn is_too_full(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| self.values > bound.most)
    }

    /// Returns the value to consider next for eviction, other than `not`, if there are too many values, and whether it
    /// has a pass.
    fn next(&mut self, not: Option<u32>) -> Option<(u32, bool)> {
        let bound = self.bound.as_mut().filter(|bound| self.values > bound.most)?;
        let mut number = bound.sieve.hand()?;
        if Some(number) == not {
            bound.sieve.pass();
            number = bound.sieve.hand().filter(|&number| Some(number) != not)?;
        }
        Some((number, self.has_pass(number)))
    }

    /// Returns whether a value has a pass, so that it stays even if it was not used.
    pub(super) fn has_pass(&self, number: u32) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.sieve.has_pass(number))
    }

    /// Moves on from a value that stays because it was `used`, or has a pass.
    pub(super) fn spare(&mut self, used: bool) {
        if let Some(bound) = &mut self.bound {
            bound.sieve.spare(used);
        }
    }

    /// Moves on to the next value.
    pub(super) fn pass(&mut self) {
        if let Some(bound) = &mut self.bound {
            bound.sieve.pass();
        }
    }
}

/// All values.
impl<K, T> Core<K, Valued<T>> {
    /// Returns whether a key has a value, locked or not.
    pub(crate) fn contains(&self, key: &impl Ask<K>) -> bool {
        if self.is_timed() {
            return self.contains_alive(key);
        }
        self.shard(key.tag()).with(|shard| match shard.look_up(key.tag(), |other| key.is(other)) {
            Some(Stored::Entry(entry, _)) => entry.has_value(),
            Some(Stored::AtRest(_)) => true,
            None => false,
        })
    }

    /// Stores a value for the owner of the table, even if guards of the key have been forgotten, and returns the old
    /// one, even if that has ended.
    ///
    /// # Panics
    /// If the entry has as many units as can be counted, or if a new entry is needed and the shard is full. A panic of
    /// the user's function that weighs values, of the one to which evicted values are handed, or of the drop of one of
    /// these, resumes after the value has been stored.
    pub(crate) fn put(&mut self, key: &mut OwnedKey<K>, value: T) -> Option<T>
    where
        K: Eq,
    {
        let claim = self.claim(key);
        let (tag, address) = (tag_of(claim.live()), claim.live().address());
        let number_in = |shard: &Shard<K, Valued<T>>| shard.find_at(tag, address).map(|(_, number)| number);
        let (mut weight, mut panics) = (None, Panics::default());
        if let Some(weigher) = self.weigher() {
            panics.run(|| weight = Some(weigher.ask(claim.live().key(), &value)));
        }
        let (old, left) = self.shard(tag).with(|shard| {
            let mut ended = None;
            if let Some(mut entry) = claim.live().owned() {
                if entry.live().has_value() {
                    entry.live().marks().renew(1);
                    let old = core::mem::replace(entry.value_mut(), value);
                    let number = number_in(shard);
                    number.into_iter().for_each(|number| self.set_weight(shard, claim.live(), number, weight));
                    return (Some(old), Some(claim));
                }
                ended = Some(entry.take());
            } else if self.has_records() {
                self.join_as_claim(claim.live())
                    .ok()
                    .into_iter()
                    .for_each(|unit| unit.into_claim().leave_to_deadline());
            }
            claim.live().marks().renew(1);
            self.begin_deadline(shard, claim.live());
            let number = number_in(shard);
            let version = claim.live().marks().version();
            claim.store_as_owner(value);
            shard.kept.values += 1;
            number.into_iter().for_each(|number| shard.kept.set_weight(number, version, weight));
            self.note_excess(shard, tag);
            self.count(tag, Event::Inserted);
            ended.map_or((None, None), |(ended, claim)| (Some(ended), Some(claim)))
        });
        left.into_iter().for_each(|claim| self.leave_claim(claim.into_unit()));
        if self.exceeds(tag) {
            panics.run(|| self.sweep(tag, address));
        }
        panics.resume();
        old
    }

    /// Returns the number of values in the `entries` that [`drain`](Self::drain) will return, whatever the time is.
    pub(crate) fn undrained(&self) -> usize {
        self.shards().iter().map(|shard| shard.with(|shard| shard.kept.values)).sum()
    }

    /// Empties a shard for the owner of the table, and returns its contents; `None` if there is no such shard.
    pub(crate) fn drain(&mut self, shard: usize) -> Option<Drained<K, T>> {
        Some(self.shards().get(shard)?.with(|shard| {
            (shard.kept.values, shard.kept.deadlines) = (0, None);
            shard.drain()
        }))
    }
}

pub(super) fn tag_of<K, V: Payload>(entry: Live<'_, K, V>) -> Tag {
    Tag::from_bits(entry.state().tag())
}
