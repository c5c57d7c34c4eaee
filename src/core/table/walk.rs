//! Walks: visits of all values, one after another. A walk waits for values that are locked.
//!
//! A walk goes shard by shard, and in a shard from slot to slot, in the order of their numbers. While it is in a shard,
//! no value is at rest there (see [`gather`](super::gather)). An entry with a value keeps its slot, so a value that
//! exists during the whole walk is found in its slot exactly once, and for such values the walk need only remember its
//! position. A key whose value is removed and stored again may get another slot, though, and must not be visited in
//! both. This is prevented by the following rules:
//!
//! 1. *A key stays in its shard.* So only the entries of one shard at a time matter: a key's entry there either existed
//!    when the walk arrived at the shard, or was made later.
//! 2. *An entry that was made after the arrival is not visited.* Its key had no entry at some moment since the walk
//!    began, so the key need not be visited. And an earlier entry of the key may have been visited already.
//! 3. *A slot is visited once.* An entry that existed at the arrival has had one slot ever since. So a key is visited
//!    in the one entry that it had at the arrival, if any.
//!
//! For rule 2 the walk has a [`Stay`] in the shard, with one bit for each slot, which is set when an entry is made in
//! the slot. Slots that the shard gets after the arrival have no bit, and are not visited. (Versions cannot replace the
//! bits: a new entry's version is greater than the version of every dead entry, but perhaps not greater than that of a
//! live one. And a value that is changed in place has a new version, too, and must be visited.) A shard without walks
//! pays one comparison for a new entry.
//!
//! A writer may have taken a value out for a moment, in order to store it again. So a walk also waits for an entry
//! without a value that a writer holds.

use super::Core;
use super::lookup::{Join, Joined, Source};
use super::shard::Shard;
use super::slot::{Claim, Hold, Live, TypedAccess};
use super::stay::Stay;
use super::value::Valued;
use crate::core::wait::Access;
use crate::sync::give_way;

/// The number of slots that a walk looks at in a row under the shard lock.
const LOOKED_AT: u32 = 256;

/// The position of a walk.
#[derive(Debug, Default)]
pub(crate) struct Position {
    /// The index of the shard.
    shard: usize,
    /// `None` if the walk has not arrived at the shard yet.
    slot: Option<SlotPosition>,
}

/// A position in a shard.
#[derive(Debug)]
struct SlotPosition {
    /// The address of the walk's [`Stay`] in the shard.
    stay: usize,
    /// The number of the slot that the walk looks at next.
    next: u32,
    /// The number of the slot at which the walk leaves the shard.
    end: u32,
}

impl Position {
    /// Moves past the entry that was found.
    pub(crate) fn pass(&mut self) {
        if let Some(slot) = &mut self.slot {
            slot.next += 1;
        }
    }
}

impl<K, T> Core<K, Valued<T>> {
    /// Goes on to the next entry that the walk must visit, and returns a hold of it if that is possible at once, else a
    /// claim. Returns `None` at the end. The position stays at the entry until the caller passes it.
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`](crate::core::MAX_UNITS) units.
    #[allow(clippy::type_complexity)] // an alias would hide more than it tells
    pub(crate) fn walk_on<M: TypedAccess>(
        &self,
        position: &mut Position,
        mode: M,
    ) -> Option<Result<Hold<K, Valued<T>, M>, Claim<K, Valued<T>>>> {
        let now = self.time();
        loop {
            let shard = self.shards().get(position.shard)?;
            let Some(slot) = &mut position.slot else {
                self.arrive(position);
                continue;
            };
            match shard.with(|shard| self.look(shard, slot, mode.access(), now)) {
                Some(joined) => return Some(joined.hold_or_claim(mode)),
                None if slot.next >= slot.end => self.depart(position),
                None => give_way(),
            }
        }
    }

    /// Looks at the next slots of a shard, and joins the first entry that must be visited.
    fn look(
        &self,
        shard: &mut Shard<K, Valued<T>>,
        slot: &mut SlotPosition,
        access: Access,
        now: Option<u64>,
    ) -> Option<Joined<K, Valued<T>>> {
        if let (Some(deadlines), Some(now)) = (&mut shard.kept.deadlines, now) {
            deadlines.advance(now);
        }
        let Some(stay) = shard.kept.walks.stay(slot.stay) else { unreachable!("a stay lasts until the walk departs") };
        // If there are fewer slots than at the arrival, those beyond the end have no entries, or new ones.
        slot.end = slot.end.min(shard.end());
        let until = slot.end.min(slot.next.saturating_add(LOOKED_AT));
        while slot.next < until {
            let is_over = || shard.kept.deadlines.as_ref().is_some_and(|deadlines| deadlines.is_over(slot.next));
            let is_next =
                |&entry: &Live<'_, K, Valued<T>>| is_to_visit(entry) && !stay.was_made(slot.next) && !is_over();
            let entry = shard.look_at(slot.next).filter(is_next);
            if let Some(mut entry) = entry {
                return Some(Source::join(&mut entry, self, Join::Enter, access));
            }
            slot.next += 1;
        }
        None
    }

    /// Begins the visit of a shard, or skips it if it is empty.
    fn arrive(&self, position: &mut Position) {
        let shard = &self.shards()[position.shard];
        if shard.with(|shard| shard.len() == 0) {
            position.shard += 1;
            return;
        }
        self.begin_gathering(position.shard);
        // Every entry that existed when the walk began, and still exists, has a smaller number.
        let end = shard.with(|shard| shard.end());
        let stay = Stay::new(end);
        position.slot = Some(SlotPosition { stay: stay.address(), next: 0, end });
        shard.with(|shard| shard.kept.walks.begin(stay));
    }

    /// Ends the visit of a shard.
    fn depart(&self, position: &mut Position) {
        if let Some(slot) = position.slot.take() {
            let ended = self.shards()[position.shard].with(|shard| shard.kept.walks.end(slot.stay));
            drop(ended);
            self.end_gathering(position.shard);
            position.shard += 1;
        }
    }

    /// Ends a walk.
    pub(crate) fn end_walk(&self, position: &mut Position) {
        self.depart(position);
        position.shard = self.shards().len();
    }
}

/// Returns whether the entry has a value, or a writer that may have taken it out.
fn is_to_visit<K, T>(entry: Live<'_, K, Valued<T>>) -> bool {
    entry.has_value() || !entry.state().word().holds().fits(Access::Shared, 0)
}
