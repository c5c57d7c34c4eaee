//! Giving up units, and retiring the entry with the last unit.

use super::Core;
use super::on_evict::OnEvict;
use super::payload::Payload;
use super::shard::Shard;
use super::slot::{Chunk, Claim, Hold, Live, Spare, TypedAccess, UnitOf};
use super::tag::Tag;
use super::value::Excess;
use crate::core::wait::state::State;
use crate::core::wait::word::{Unit, Word};
use crate::core::wait::{Access, Left, ReleaseFor, Ticket, WakeBatch};
use crate::evicted::Evicted;
use crate::panics::Panics;

impl<K, V: Payload> Core<K, V> {
    /// Releases a hold. Adds the wakers of the admitted waiters to `batch`, if there is one; otherwise calls them.
    #[inline]
    pub(crate) fn release<M: TypedAccess>(&self, hold: Hold<K, V, M>, batch: Option<&mut WakeBatch>) {
        let mode = hold.mode();
        let access = mode.access();
        let sole = Word::born(Unit::Hold(access));
        let unit = hold.into_unit();
        if V::VALUES {
            // Usually the entry has a value and no other user.
            let left = self.entry_address(unit.live());
            if unit.live().state().replace(sole.keep(), Word::born(Unit::Claim)) {
                // A call that releases several keys handles the values at its end.
                if let (Some(left), None) = (self.to_sweep(left), batch) {
                    self.sweep_now(left);
                }
                return;
            }
            return self.release_valued(unit.into_hold(mode), batch);
        }
        self.release_slowly(unit, access, batch);
    }

    /// Releases a hold of an entry that may have to be retired.
    #[inline(always)]
    fn release_slowly(&self, unit: UnitOf<K, V>, access: Access, batch: Option<&mut WakeBatch>) {
        let sole = Word::born(Unit::Hold(access));
        let unit = if unit.live().state().word() == sole { self.retire(unit, sole) } else { Err(unit) };
        match (unit, batch) {
            (Ok(()), _) => {}
            (Err(unit), None) => self.leave(unit, access, ReleaseFor::Anybody),
            // A call that releases several keys handles the values at its end.
            (Err(unit), Some(batch)) => self.leave_into(unit, access, ReleaseFor::Anybody, batch),
        }
    }

    /// Releases a hold of an entry in a table with values, if the fast path was not possible. Out of line, because the
    /// fast path needs few registers.
    #[inline(never)]
    fn release_valued<M: TypedAccess>(&self, hold: Hold<K, V, M>, batch: Option<&mut WakeBatch>) {
        if self.has_records() {
            return self.release_recorded(hold, batch);
        }
        let access = hold.mode().access();
        self.release_slowly(hold.into_unit(), access, batch);
    }

    /// Releases a hold in a table that [has records](Core::has_records) of its values.
    #[cold]
    #[inline(never)]
    fn release_recorded<M: TypedAccess>(&self, hold: Hold<K, V, M>, batch: Option<&mut WakeBatch>) {
        let mut panics = Panics::default();
        let hold = match if batch.is_none() { self.leave_at_once(hold, &mut panics) } else { Err(hold) } {
            Ok(()) => return panics.resume(),
            Err(hold) => hold,
        };
        self.before_leaving(&hold, &mut panics);
        let (access, unit) = (hold.mode().access(), hold.into_unit());
        let left = EntryAddress::of(unit.live());
        let is_last = unit.live().state().word() == Word::born(Unit::Hold(access));
        let sweeps = is_last && batch.is_none();
        panics.run(|| self.release_slowly(unit, access, batch));
        if sweeps {
            panics.run(|| self.sweep_now(left)); // for values that the holder has displaced
        }
        panics.resume();
    }

    /// Releases a hold of a call that holds several entries. Wakes and drops nothing yet: the wakers that must be
    /// called are added to `batch`. The returned claim keeps the entry until the caller has released all holds and
    /// woken all waiters, and then [withdraws](Core::withdraw) the claim. There is no claim if nothing would be dropped
    /// when this user leaves, or if the entry has [`MAX_UNITS`](crate::core::MAX_UNITS) units: in the latter case the
    /// owners of the other units retire it. Panics of user code are added to `panics`.
    #[inline]
    pub(crate) fn unlock<M: TypedAccess>(
        &self,
        hold: Hold<K, V, M>,
        whom: ReleaseFor,
        batch: &mut WakeBatch,
        panics: &mut Panics,
    ) -> Option<Claim<K, V>> {
        if whom == ReleaseFor::Anybody && !self.is_bounded() && V::is_present(hold.live().marks()) {
            self.release(hold, Some(batch));
            return None;
        }
        // A call that has given up skips this step: it has not seen the value.
        if whom == ReleaseFor::Anybody && self.has_records() {
            self.before_leaving(&hold, panics);
        }
        let (access, unit) = (hold.mode().access(), hold.into_unit());
        let counted = self.rules().counted;
        if unit.live().state().update(|word| word.unlock(access, counted)).is_ok() {
            return Some(unit.into_claim());
        }
        let claim = self.join_as_claim(unit.live());
        self.leave_into(unit, access, whom, batch);
        claim.ok().map(UnitOf::into_claim)
    }

    /// Returns whether leaving an entry never drops a key or a value.
    #[inline]
    pub(crate) fn drops_nothing(&self) -> bool {
        !core::mem::needs_drop::<K>() && !self.is_bounded()
    }

    /// Returns whether the table's values are bounded, end, or have ages.
    #[inline]
    fn is_bounded(&self) -> bool {
        V::excess(&self.excess).is_some_and(Excess::is_bounded)
    }

    /// Returns the address that a leaving user needs if it does the sweep itself: after it has left, it asks whether
    /// there is something [to sweep](Core::to_sweep), and it [sweeps](Core::sweep_now) last of all. `None` if the table
    /// has no values.
    #[inline]
    fn entry_address(&self, entry: Live<'_, K, V>) -> Option<EntryAddress> {
        V::VALUES.then(|| EntryAddress::of(entry))
    }

    #[inline]
    fn to_sweep(&self, left: Option<EntryAddress>) -> Option<EntryAddress> {
        left.filter(|left| self.exceeds(left.tag))
    }

    #[inline(never)]
    fn sweep_now(&self, EntryAddress { tag, address }: EntryAddress) {
        self.sweep(tag, address);
    }

    /// Returns a guard that sweeps the values when it is dropped, for a user that is about to leave. It must be dropped
    /// after the wake batch, because the drop of a value may wait for a key that was granted to a waiter that has not
    /// been woken yet. It also sweeps while unwinding.
    #[inline]
    pub(crate) fn sweeping(&self, entry: Live<'_, K, V>) -> Sweeping<'_, K, V> {
        Sweeping { core: self, left: self.entry_address(entry) }
    }

    /// Releases a hold to the recipient `whom`.
    pub(crate) fn release_for<M: TypedAccess>(&self, whom: ReleaseFor, hold: Hold<K, V, M>) {
        let mut panics = Panics::default();
        if self.has_records() {
            self.before_leaving(&hold, &mut panics);
        }
        let access = hold.mode().access();
        panics.run(|| self.leave(hold.into_unit(), access, whom));
        panics.resume();
    }

    /// Releases a hold, for a caller that sweeps the values itself.
    pub(crate) fn release_unswept<M: TypedAccess>(&self, whom: ReleaseFor, hold: Hold<K, V, M>) {
        let mut panics = Panics::default();
        if self.has_records() {
            self.before_leaving(&hold, &mut panics);
        }
        let access = hold.mode().access();
        panics.run(|| self.leave_unswept(hold.into_unit(), access, whom));
        panics.resume();
    }

    /// Gives up a hold of an entry that may have other units.
    #[inline(never)]
    fn leave(&self, hold: UnitOf<K, V>, access: Access, whom: ReleaseFor) {
        let _sweeping = self.sweeping(hold.live());
        self.leave_as(hold, access, |state| self.waits.hand_over(state, access, whom));
    }

    #[inline(never)]
    fn leave_unswept(&self, hold: UnitOf<K, V>, access: Access, whom: ReleaseFor) {
        self.leave_as(hold, access, |state| self.waits.hand_over(state, access, whom));
    }

    /// Gives up a hold. The wakers that must be called are added to `batch`.
    #[inline(never)]
    pub(super) fn leave_into(&self, hold: UnitOf<K, V>, access: Access, whom: ReleaseFor, batch: &mut WakeBatch) {
        self.leave_as(hold, access, |state| self.waits.hand_over_into(state, access, whom, batch));
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

    /// Gives up a claim.
    pub(crate) fn withdraw(&self, claim: Claim<K, V>) {
        let _sweeping = self.sweeping(claim.live());
        self.leave_claim(claim.into_unit());
    }

    /// Gives up a claim, for a caller that sweeps the values itself.
    #[inline]
    pub(super) fn leave_claim(&self, mut unit: UnitOf<K, V>) {
        let leave = |word: Word| if word.is_only(Unit::Claim) { Err(()) } else { Ok(word.leave(Unit::Claim)) };
        while unit.live().state().update(leave).is_err() {
            match self.retire(unit, Word::born(Unit::Claim)) {
                Ok(()) => return,
                Err(again) => unit = again,
            }
        }
    }

    /// Cancels a request: gives up its claim, its position in the queue, and a hold that it was already granted, which
    /// passes to the next waiter.
    pub(crate) fn cancel<M: TypedAccess>(&self, claim: Claim<K, V>, mode: M, ticket: Ticket) {
        // The guard is dropped after the batch, so it sweeps once the wakers have run.
        let _sweeping = self.sweeping(claim.live());
        let mut batch = WakeBatch::default();
        match self.leave_queue(claim.live(), ticket, &mut batch) {
            // The hold passes to the next waiter, not to the first newcomer.
            Some(entered) => {
                let hold = claim.into_hold(entered, mode);
                self.leave_unswept(hold.into_unit(), mode.access(), ReleaseFor::NextWaiter);
            }
            None => self.leave_claim(claim.into_unit()),
        }
    }

    /// Removes the entry with its last unit. Fails if the entry has other units by now.
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
            core::mem::forget(dead); // saves the call of its drop if the key was kept
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

/// The remains of an entry, to be dropped outside the shard lock: its key, its value, and perhaps a chunk. It is passed
/// by reference, because it is large and usually empty.
pub(super) struct Dead<K, V: Payload> {
    pub(super) key: Option<K>,
    pub(super) value: Option<V::Value>,
    chunk: Option<Chunk<K, V>>,
}

/// See [`Core::sweeping`].
#[must_use = "bind it: it works when it is dropped at the end of the step"]
pub(crate) struct Sweeping<'a, K, V: Payload> {
    core: &'a Core<K, V>,
    left: Option<EntryAddress>,
}

impl<K, V: Payload> Drop for Sweeping<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        if let Some(left) = self.core.to_sweep(self.left) {
            self.core.sweep_now(left);
        }
    }
}

/// The address of an entry, taken before its user leaves it.
#[derive(Clone, Copy)]
struct EntryAddress {
    tag: Tag,
    address: usize,
}

impl EntryAddress {
    #[inline]
    fn of<K, V: Payload>(entry: Live<'_, K, V>) -> Self {
        EntryAddress { tag: Tag::from_bits(entry.state().tag()), address: entry.address() }
    }
}

impl<K, V: Payload> Default for Dead<K, V> {
    #[inline]
    fn default() -> Self {
        Dead { key: None, value: None, chunk: None }
    }
}

impl<K, V: Payload> Drop for Dead<K, V> {
    #[inline]
    fn drop(&mut self) {
        // A single key is dropped with its field, unless the thread is panicking: then a panic of that drop would
        // abort.
        if core::mem::needs_drop::<(K, V::Value)>()
            && (self.chunk.is_some() || self.value.is_some() || crate::panics::panicking())
        {
            self.drop_all();
        }
    }
}

impl<K, V: Payload> Dead<K, V> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.key.is_none() && self.value.is_none() && self.chunk.is_none()
    }

    /// Hands an evicted value and its key to the user's function.
    pub(super) fn hand_to(&mut self, on_evict: &OnEvict<K, V::Value>, cause: Evicted) {
        if let (Some(key), Some(value)) = (self.key.take(), self.value.take()) {
            on_evict.tell(key, value, cause);
        }
    }

    /// Drops the value and all of the keys, even if one drop panics.
    #[cold]
    #[inline(never)]
    fn drop_all(&mut self) {
        let Dead { key, value, chunk } = self;
        let mut value = value.take();
        let keys = core::iter::from_fn(|| key.take().or_else(|| chunk.as_mut()?.take_key()));
        let parts = core::iter::once_with(|| (value.take(), None)).chain(keys.map(|key| (None, Some(key))));
        crate::panics::run_all(parts.map(|part| move || drop(part)));
    }
}
