//! Giving up units, and the entry with the last of them.

use super::Core;
use super::payload::Payload;
use super::shard::Shard;
use super::slot::{Chunk, Claim, Hold, Spare, TypedAccess, UnitOf};
use super::tag::Tag;
use crate::core::wait::state::State;
use crate::core::wait::word::{Unit, Word};
use crate::core::wait::{Access, For, Left, Ticket, WakeBatch};

impl<K, V: Payload> Core<K, V> {
    /// A holder leaves. Whoever is to be woken is left in the batch, if there is one.
    #[inline]
    pub(crate) fn release<M: TypedAccess>(&self, hold: Hold<K, V, M>, batch: Option<&mut WakeBatch>) {
        let access = hold.mode().access();
        let sole = Word::born(Unit::Hold(access));
        let unit = hold.into_unit();
        let unit = if unit.live().state().word() == sole { self.retire(unit, sole) } else { Err(unit) };
        match (unit, batch) {
            (Ok(()), _) => {}
            (Err(unit), None) => self.leave(unit, access, For::Anybody),
            (Err(unit), Some(batch)) => self.leave_into(unit, access, batch),
        }
    }

    /// A holder leaves, and whoever the policy lets in next gets in before any newcomer.
    pub(crate) fn release_for<M: TypedAccess>(&self, whom: For, hold: Hold<K, V, M>) {
        let access = hold.mode().access();
        self.leave(hold.into_unit(), access, whom);
    }

    /// A holder leaves, and others may have units of the entry.
    #[inline(never)]
    fn leave(&self, hold: UnitOf<K, V>, access: Access, whom: For) {
        self.leave_as(hold, access, |state| self.waits.hand_over(state, access, whom));
    }

    /// The same. Whoever is to be woken is left in the batch.
    #[inline(never)]
    fn leave_into(&self, hold: UnitOf<K, V>, access: Access, batch: &mut WakeBatch) {
        self.leave_as(hold, access, |state| self.waits.hand_over_into(state, access, For::Anybody, batch));
    }

    #[inline(always)]
    fn leave_as(&self, mut hold: UnitOf<K, V>, access: Access, mut hand_over: impl FnMut(&State) -> bool) {
        loop {
            let state = hold.live().state();
            if self.waits.leave(state, access, || hand_over(state)) == Left::Gone {
                return;
            }
            match self.retire(hold, Word::born(Unit::Hold(access))) {
                Ok(()) => return,
                Err(again) => hold = again,
            }
        }
    }

    /// A claim is given up.
    pub(crate) fn withdraw(&self, claim: Claim<K, V>) {
        let mut unit = claim.into_unit();
        let leave = |word: Word| if word.is_only(Unit::Claim) { Err(()) } else { Ok(word.leave(Unit::Claim)) };
        while unit.live().state().update(leave).is_err() {
            match self.retire(unit, Word::born(Unit::Claim)) {
                Ok(()) => return,
                Err(again) => unit = again,
            }
        }
    }

    /// The one way out of the acquire machine without what was wanted. A request gives up its claim, its position in the queue,
    /// and a hold that was already granted, which goes to the next.
    pub(crate) fn cancel<M: TypedAccess>(&self, claim: Claim<K, V>, mode: M, ticket: Ticket) {
        // Dropped last: wakers run when everything is in order.
        let mut batch = WakeBatch::default();
        match self.leave_queue(claim.live(), ticket, &mut batch) {
            // What was reserved for this one is for the next one that waits, not for whoever comes first.
            Some(entered) => self.release_for(For::NextWaiter, claim.into_hold(entered, mode)),
            None => self.withdraw(claim),
        }
    }

    /// The last unit goes, and the entry with it: `Err` if it has others by now.
    #[inline]
    fn retire(&self, last: UnitOf<K, V>, sole: Word) -> Result<(), UnitOf<K, V>> {
        let tag = Tag::from_bits(last.live().state().tag());
        let mut dead = Dead::default();
        let retired = self.shard(tag).with(|shard| {
            let spare = shard.retire(last, sole)?;
            self.put_away(shard, spare, &mut dead);
            Ok(())
        });
        if core::mem::needs_drop::<K>() && dead.is_empty() {
            core::mem::forget(dead); // its drop is a call, for nothing where the key was kept
        }
        retired
    }

    /// Keeps a slot for reuse.
    #[inline]
    pub(super) fn put_away(&self, shard: &mut Shard<K, V>, mut spare: Spare<K, V>, dead: &mut Dead<K, V>) {
        if core::mem::needs_drop::<K>() && !(self.recycle_keys && shard.keeps_keys()) {
            dead.key = spare.take_key();
        }
        shard.keep(spare, &mut dead.chunk);
    }
}

/// What the end of an entry leaves to be dropped outside the shard lock: its key, and a chunk if there are slots enough. It is
/// handed out by reference, because it is mostly empty, and large.
pub(super) struct Dead<K, V> {
    key: Option<K>,
    chunk: Option<Chunk<K, V>>,
}

impl<K, V> Default for Dead<K, V> {
    #[inline]
    fn default() -> Self {
        Dead { key: None, chunk: None }
    }
}

impl<K, V> Drop for Dead<K, V> {
    #[inline]
    fn drop(&mut self) {
        // A key alone goes with its field, unless the thread is panicking: then a panic of its own would abort.
        if core::mem::needs_drop::<K>() && (self.chunk.is_some() || crate::panics::panicking()) {
            self.drop_keys();
        }
    }
}

impl<K, V> Dead<K, V> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.key.is_none() && self.chunk.is_none()
    }

    /// All of the keys, even if the drop of one panics.
    #[cold]
    #[inline(never)]
    fn drop_keys(&mut self) {
        let Dead { key, chunk } = self;
        let keys = core::iter::from_fn(|| key.take().or_else(|| chunk.as_mut()?.take_key()));
        crate::panics::run_all(keys.map(|key| move || drop(key)));
    }
}
