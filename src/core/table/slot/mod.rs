//! Slots: the memory of entries. The only module with unsafe code; [`covariant`] is a part of it.
//!
//! Slots are allocated by *chunks* and never move, so that guards can point at them and at their keys. The right to
//! access a slot is represented by *tokens*, none of which can be copied:
//!
//! - [`Spare`]: sole owner of a slot that serves no key. It may still own an old key (`Word::DEAD_KEYED`). A slot that
//!   is marked free in its chunk belongs to the chunk in the same way.
//! - [`SlotRef`], or [`SlotIndex`], its form as a number: the table's pointer to a live slot; at most one per slot, and
//!   it stays behind the shard lock.
//! - [`Claim`] and [`Hold`]: units of a live slot's word. [`UnitOf`] is either of them, for code that knows which one
//!   it has.
//!
//! The invariants to which every `unsafe` below refers:
//!
//! 1. A slot is live from [`Spare::publish`] to [`SlotRef::vacate`]; while it is live its key is initialised.
//! 2. The units in a live slot's word are those of the tokens in existence (forgotten ones included), where a hold of
//!    permits is as many units as its amount says. A token is made in the step that counts its units, and used up in
//!    the step that takes them away. A token may also be split in two, and two may be merged, if the sum of the amounts
//!    stays the same.
//! 3. A slot dies only in `vacate`, which owns the `SlotRef` and the last unit ([`Last`]). New units come from a
//!    `SlotRef`, under the shard lock, or from another unit, so none can appear in between.
//! 4. Between `vacate` and the next `publish` exactly one token, or the chunk's mark, represents the slot. It is the
//!    slot's sole owner.
//! 5. A unit is kept only alongside a reference or an `Arc` to its table, so it does not outlive the table, whose drop
//!    frees the slots of forgotten units.
//! 6. A chunk, and the spares and `SlotRef`s of its slots, stay in one shard. A chunk is dropped when all its slots are
//!    marked free, because then no token of them exists, or with its shard, because then no token is used any more (5).
//! 7. A hold's mode is the kind of access that the word counts it as. While the word counts an exclusive hold, it
//!    counts no other hold.
//! 8. A slot's value is initialised while its marks say that it is stored (present, or ended), which they say only of
//!    live slots. A stored value comes with a claim of its own, for which there is no token: storing the value consumes
//!    a claim, and taking it out returns one. Both are done under the shard lock, or by the owner of the table, so a
//!    caller that has locked the shard and finds a value stored knows that one of the units is the value's claim. (This
//!    matters because the claim of a handle, unlike that of a value, lets its owner in without the lock.)
//! 9. Only a caller with *exclusive use* of an entry stores, changes or takes out its value: the owner of an exclusive
//!    hold (7), a caller that finds under the shard lock that the value's own claim is the only unit ([`Unshared`]; 3),
//!    or the owner of the table (5). Only a caller with a hold, or with exclusive use, reads the value.
//! 10. A [`ClaimIn`] or a [`HoldIn`] is made from a token of an entry whose types are those of its `P`, and is kept
//!     alongside a reference to the entry's table. `P` may since have become a supertype of what it was. A type and its
//!     supertype differ in lifetimes only, and a value of the type can be used as one of the supertype: so the slot's
//!     key can be used, in place, as a key of the supertype. Values keep their type, in which `P` is invariant.
//! 11. A [`CoreRef`] is made from a reference to a table, and its `R` may since have become a supertype of what it was.
//!     So no key of the type that `R` now names may enter the table through it. It is used only with a token, whose
//!     entry has its key already, or by public calls, which make a new `CoreRef` from the table itself, so that `R` is
//!     exact. Values always have the table's own type, because `R` is invariant in it.
//! 12. A key's own limit of permits comes with a claim of its own, for which there is no token. The call that sets the
//!     limit has two claims, and one of them becomes the limit's; the call that takes the limit away gets it back. The
//!     queue lock decides which calls these are.
//! 13. In a table whose values end, have ages or are weighed, a stored value comes with a second claim, that of its
//!     deadline, for which there is no token either. So the value's own claim is never the only unit, and calls that
//!     require this fail. The call that stores the value gives the claim away under its exclusive hold, before any
//!     other caller has exclusive use; the call that takes the value out, or has exclusive use and is about to, gets it
//!     back.

#![allow(unsafe_code)]

use core::{convert::Infallible, marker::PhantomData, mem::MaybeUninit, ptr::NonNull};

use super::number::Number;
use super::payload::Payload;
use crate::core::wait::Entered;
use crate::core::wait::state::State;
use crate::core::wait::word::{Access, Refusal, Unit, Word};
use crate::sync::UnsafeCell;

mod chunk;
mod covariant;
mod deadline;
mod limit;

pub(super) use self::chunk::{Chunk, Chunks};
pub(crate) use self::covariant::{ClaimIn, CoreRef, EntryTypes, HoldIn, IsCore};

struct Slot<K, V: Payload> {
    state: State,
    marks: V::Marks,
    key: UnsafeCell<MaybeUninit<K>>,
    value: UnsafeCell<MaybeUninit<V::Value>>,
}

type Ptr<K, V> = NonNull<Slot<K, V>>;

/// A slot that serves no key, ready for use.
#[must_use = "a slot that is neither used nor put back is lost to its chunk"]
pub(super) struct Spare<K, V: Payload>(Ptr<K, V>, Number);

/// The table's own pointer to a live slot.
pub(super) struct SlotRef<K, V: Payload>(Ptr<K, V>, Number);

/// A [`SlotRef`] in the form that a hash table keeps: half the size of a pointer.
pub(super) struct SlotIndex(Number);

/// A reference to a live slot, under the shard lock or with a unit of it.
pub(crate) struct Live<'a, K, V: Payload>(Ptr<K, V>, PhantomData<&'a (K, V)>);

/// One unit of a live slot, a claim or a hold: the code that owns it knows which.
#[must_use = "a unit that is forgotten keeps its entry for ever"]
pub(crate) struct UnitOf<K, V: Payload>(Ptr<K, V>);

/// A unit of a live slot that is not a hold: that of a handle, a future, a waiter or a visit.
///
/// `pub` because sealed traits name it; other crates cannot.
#[must_use = "a claim that is forgotten keeps its entry for ever"]
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Claim<K, V: Payload>(UnitOf<K, V>);

/// A hold, which the word counts as the access of its mode.
///
/// `pub` because sealed traits name it; other crates cannot.
#[must_use = "a hold that is forgotten keeps its key locked for ever"]
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
#[repr(transparent)] // for `HoldIn`
pub struct Hold<K, V: Payload, M> {
    erased: ErasedHold<M>,
    types: PhantomData<UnitOf<K, V>>,
}

/// A [`Hold`] without the types of its entry, on which its layout does not depend.
struct ErasedHold<M> {
    unit: UnitOf<Infallible, ()>,
    mode: M,
}

/// The mode of a hold. It determines which access the word counts the hold as. `pub` because sealed traits name it;
/// other crates cannot.
#[allow(unreachable_pub)]
pub trait TypedAccess: Copy + Unpin {
    /// Returns the access. It is the same for all holds of a type, except for a number of permits, an upgradable hold
    /// that is upgraded temporarily, and a hold that either reads or writes.
    fn access(&self) -> Access;
}

/// Exclusive use of an entry without a hold: its only unit is the claim of its value, and the shard stays locked; or
/// the caller owns the table.
pub(super) struct Unshared<'a, K, V: Payload>(Live<'a, K, V>);

/// The last unit of a live slot: a unit, and the knowledge that there is no other one.
///
/// That stays true only under the shard lock, so a `Last` is made and used under that lock.
pub(super) struct Last<K, V: Payload>(UnitOf<K, V>);

// SAFETY: a spare owns its slot and the key in it, as a `Box<K>` would.
unsafe impl<K: Send, V: Payload<Value: Send, Marks: Send>> Send for Spare<K, V> {}
// SAFETY: `SlotRef`s and units of one slot give `&K` to several threads, and any of these may drop or recycle the key,
// so `K` must be `Send` and `Sync`, and so must the value. All other fields of a slot are atomic.
unsafe impl<K: Send + Sync, V: Payload<Value: Send + Sync, Marks: Sync>> Send for SlotRef<K, V> {}
// SAFETY: as above: a `&UnitOf` gives `&K` and access to atomics, and to a holder also a `&` to the value.
unsafe impl<K: Send + Sync, V: Payload<Value: Send + Sync, Marks: Sync>> Send for UnitOf<K, V> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync, V: Payload<Value: Send + Sync, Marks: Sync>> Sync for UnitOf<K, V> {}

impl<K, V: Payload> Slot<K, V> {
    fn is_keyed(&self) -> bool {
        self.state.word() == Word::DEAD_KEYED
    }
}

impl<K, V: Payload> Drop for Slot<K, V> {
    fn drop(&mut self) {
        let word = self.state.word();
        if word != Word::DEAD {
            // SAFETY: the slot is live or keeps an old key, so its key is initialised (1), and it is not used again
            // (6).
            self.key.with_mut(|key| unsafe { (*key).assume_init_drop() });
        }
        if V::is_stored(&self.marks) {
            // SAFETY: the value is initialised (8), and the slot is not used again (6).
            self.value.with_mut(|value| unsafe { (*value).assume_init_drop() });
        }
    }
}

impl SlotIndex {
    #[inline]
    pub(super) fn chunk(&self) -> u32 {
        self.0.chunk()
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.0.0
    }
}

impl<K, V: Payload> Spare<K, V> {
    pub(super) fn chunk(&self) -> u32 {
        self.1.chunk()
    }

    /// Returns whether the slot has an old key that must be dropped.
    #[inline]
    pub(super) fn has_old_key(&self) -> bool {
        core::mem::needs_drop::<K>() && self.slot().is_keyed()
    }

    #[inline]
    fn slot(&self) -> &Slot<K, V> {
        // SAFETY: the chunk stays allocated while one of its slots is not marked free (6).
        unsafe { self.0.as_ref() }
    }

    /// Returns the old key, if one was left in the slot.
    pub(super) fn key_mut(&mut self) -> Option<&mut K> {
        // SAFETY: the key is initialised, and we are the slot's only owner, borrowed exclusively (4).
        self.slot().is_keyed().then(|| self.slot().key.with_mut(|key| unsafe { (*key).assume_init_mut() }))
    }

    /// Takes the old key out, if one was left in the slot.
    #[inline]
    pub(super) fn take_key(&mut self) -> Option<K> {
        if !self.slot().is_keyed() {
            return None;
        }
        self.slot().state.end(Word::DEAD);
        // SAFETY: the key was initialised and is read once: the word says now that it is gone (4).
        Some(self.slot().key.with_mut(|key| unsafe { (*key).assume_init_read() }))
    }

    /// Puts a key in, for [`Spare::publish_kept`]. Returns the old key.
    pub(super) fn put_key(&mut self, key: K) -> Option<K> {
        let old = self.take_key();
        self.write_key(key);
        self.slot().state.end(Word::DEAD_KEYED);
        old
    }

    #[inline]
    fn write_key(&self, key: K) {
        self.slot().key.with_mut(|place| {
            // SAFETY: we are the slot's only owner (4).
            unsafe { (*place).write(key) };
        });
    }
}

impl<K, V: Payload> Spare<K, V> {
    /// Makes the slot live for `key`, with one unit. An old key that is still in the slot is forgotten, not dropped.
    #[inline]
    pub(super) fn publish(self, key: K, tag: u32, unit: Unit, kept: &mut V::Kept) -> Published<K, V> {
        self.write_key(key);
        self.start(tag, unit, kept)
    }

    /// Makes the slot live for the key that it contains.
    #[inline]
    pub(super) fn publish_kept(self, tag: u32, unit: Unit, kept: &mut V::Kept) -> Published<K, V> {
        assert!(self.slot().is_keyed(), "an entry has a key");
        self.start(tag, unit, kept)
    }

    /// Makes the slot live. Its key has been initialised (1).
    #[inline]
    fn start(self, tag: u32, unit: Unit, kept: &mut V::Kept) -> Published<K, V> {
        V::begin(self.1.0, &self.slot().marks, kept);
        self.slot().state.begin(tag, unit);
        (SlotRef(self.0, self.1), UnitOf(self.0))
    }
}

/// The parts that a live slot begins with: the table's pointer, and one unit.
type Published<K, V> = (SlotRef<K, V>, UnitOf<K, V>);

impl<K, V: Payload> SlotRef<K, V> {
    #[inline]
    pub(super) fn live(&self) -> Live<'_, K, V> {
        Live(self.0, PhantomData)
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.1.0
    }

    #[inline]
    pub(super) fn file(self) -> SlotIndex {
        SlotIndex(self.1)
    }
}

impl<K, V: Payload> SlotRef<K, V> {
    /// Ends the entry together with its table, and returns its key and its value, even if that has ended. The caller
    /// owns the table, so any units that remain have been forgotten (5).
    pub(super) fn abandon(self) -> (K, Option<V::Value>) {
        let mut spare = Spare(self.0, self.1);
        let value = V::is_stored(&spare.slot().marks).then(|| self.live().take(false).0);
        spare.slot().state.end(Word::DEAD_KEYED);
        match spare.take_key() {
            Some(key) => (key, value),
            None => unreachable!("an entry has a key"),
        }
    }

    /// Ends the entry: the table and the last unit give up the slot, which keeps its key.
    #[inline]
    pub(super) fn vacate(self, last: Last<K, V>, kept: &mut V::Kept) -> Spare<K, V> {
        assert!(self.live().is(last.live()), "an entry is retired by its own last unit");
        let spare = Spare(self.0, self.1);
        assert!(!V::is_stored(&spare.slot().marks), "a value has a claim of its own");
        V::end(&spare.slot().marks, kept);
        spare.slot().state.end(Word::DEAD_KEYED);
        spare
    }
}

impl<K, V: Payload> Clone for Live<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V: Payload> Copy for Live<'_, K, V> {}

impl<'a, K, V: Payload> Live<'a, K, V> {
    #[inline]
    fn slot(self) -> &'a Slot<K, V> {
        // SAFETY: a slot with a `SlotRef` or a unit is live (2, 3), or its table is being dropped and the unit is not
        // used (5).
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn key(self) -> &'a K {
        // SAFETY: a live slot's key is initialised and not written (1).
        self.slot().key.with(|key| unsafe { (*key).assume_init_ref() })
    }

    #[inline]
    pub(in crate::core) fn state(self) -> &'a State {
        &self.slot().state
    }

    /// Returns whether both are the same entry. An entry does not move while it has a unit, so its address identifies
    /// it.
    #[inline]
    pub(crate) fn is(self, other: Live<'_, K, V>) -> bool {
        self.0 == other.0
    }

    /// Returns the address of the entry. Addresses order the entries of a table while each of these has a unit.
    #[inline]
    pub(crate) fn address(self) -> usize {
        self.0.addr().get()
    }

    #[inline]
    pub(crate) fn marks(self) -> &'a V::Marks {
        &self.slot().marks
    }

    /// Makes the claim of a value that is stored under an exclusive hold. There is always room for it: see
    /// [`Word::keep`].
    #[inline]
    pub(super) fn claim_for_value(self) -> Claim<K, V> {
        let claimed = self.join(|word| Ok(word.keep()));
        claimed.unwrap_or_else(|_| unreachable!("there is room for the claim of a value")).into_claim()
    }

    /// Returns exclusive use of the entry, if it has a value, for the owner of the table: all units except the caller's
    /// own have been forgotten (5). The value may have ended.
    pub(super) fn owned(self) -> Option<Unshared<'a, K, V>> {
        V::is_stored(self.marks()).then_some(Unshared(self))
    }

    /// Returns exclusive use of the entry, if its only unit is its value's claim. The caller has locked the shard.
    #[inline]
    pub(super) fn unshared(self) -> Option<Unshared<'a, K, V>> {
        let unshared = V::is_present(self.marks()) && self.state().is_sole(Word::born(Unit::Claim));
        unshared.then_some(Unshared(self))
    }

    /// Makes a new unit, which `step` counts.
    #[inline]
    pub(super) fn join(self, step: impl FnMut(Word) -> Result<Word, Refusal>) -> Result<UnitOf<K, V>, Refusal> {
        self.state().update(step).map(|_| UnitOf(self.0))
    }
}

impl<K, V: Payload> UnitOf<K, V> {
    #[inline]
    pub(super) fn live(&self) -> Live<'_, K, V> {
        Live(self.0, PhantomData)
    }

    /// Returns the unit as the last one, if the word is `sole`. Called under the shard lock.
    #[inline]
    pub(super) fn last(self, sole: Word) -> Result<Last<K, V>, UnitOf<K, V>> {
        if self.live().state().is_sole(sole) { Ok(Last(self)) } else { Err(self) }
    }

    /// Makes the token of a claim. The word already counts the unit as one.
    #[inline]
    pub(super) fn into_claim(self) -> Claim<K, V> {
        Claim(self)
    }

    /// Makes the token of a hold of this mode. The word already counts the unit as one.
    #[inline]
    pub(super) fn into_hold<M: TypedAccess>(self, mode: M) -> Hold<K, V, M> {
        Hold { erased: ErasedHold { unit: UnitOf(self.0.cast()), mode }, types: PhantomData }
    }
}

impl<K, V: Payload> Last<K, V> {
    #[inline]
    pub(super) fn live(&self) -> Live<'_, K, V> {
        self.0.live()
    }
}

impl<K, V: Payload> Claim<K, V> {
    #[inline]
    pub(crate) fn live(&self) -> Live<'_, K, V> {
        self.0.live()
    }

    /// Makes the token of the hold that the claim has become.
    #[inline]
    pub(crate) fn into_hold<M: TypedAccess>(self, _: Entered, mode: M) -> Hold<K, V, M> {
        self.0.into_hold(mode)
    }

    #[inline]
    pub(super) fn into_unit(self) -> UnitOf<K, V> {
        self.0
    }

    /// Gives up the claim, if the value's own claim is the only other unit. Called under the shard lock.
    #[inline]
    pub(super) fn into_unshared<'s>(self) -> Result<Unshared<'s, K, V>, Self> {
        let live = Live(self.0.0, PhantomData);
        let left = Word::born(Unit::Claim);
        if V::is_stored(live.marks()) && live.state().replace(left.keep(), left) {
            Ok(Unshared(live))
        } else {
            Err(self)
        }
    }

    /// Stores the value of an entry that has none, for the owner of the table: all other units have been forgotten (5).
    pub(super) fn store_as_owner(self, value: V::Value) {
        Live(self.0.0, PhantomData).store(value, self, false);
    }

    /// Stores the first value of an entry that has just been made and has no other unit. Called under the shard lock.
    /// Gives exclusive use of the entry until another unit is made, or the lock is released: see `Shard::store`.
    #[inline]
    pub(super) fn store<'s>(self, value: V::Value) -> Unshared<'s, K, V> {
        let live = Live(self.0.0, PhantomData);
        assert!(live.state().is_sole(Word::born(Unit::Claim)), "a new entry has a single unit");
        live.store(value, self, true);
        Unshared(live)
    }
}

impl<K, V: Payload, M: TypedAccess> Hold<K, V, M> {
    #[inline]
    pub(crate) fn live(&self) -> Live<'_, K, V> {
        Live(self.erased.unit.0.cast(), PhantomData)
    }

    #[inline]
    pub(crate) fn mode(&self) -> M {
        self.erased.mode
    }

    /// Sets the mode: the access that the word counts, or the state of an upgrade.
    #[inline]
    pub(crate) fn set_mode(&mut self, mode: M) {
        self.erased.mode = mode;
    }

    /// Splits the hold in two: this hold keeps the permits of `rest`, and the returned one has those of `part`. The
    /// word counts the two as it counted the one.
    pub(crate) fn split(&mut self, rest: M, part: M) -> Hold<K, V, M> {
        assert!(self.mode().access().is_sum(rest.access(), part.access()), "a split keeps the sum of the permits");
        self.erased.mode = rest;
        UnitOf(self.live().0).into_hold(part)
    }

    /// Merges two holds of the same entry into one. The word counts the one as it counted the two.
    pub(crate) fn merge(&mut self, other: Hold<K, V, M>, sum: M) {
        assert!(self.live().is(other.live()), "merged holds belong to one entry");
        let keeps_sum = sum.access().is_sum(self.mode().access(), other.mode().access());
        assert!(keeps_sum, "a merge keeps the sum of the permits");
        self.erased.mode = sum;
    }

    /// Gives the hold the type of its new mode. The word already counts it in that mode.
    #[inline]
    pub(crate) fn into_mode<N: TypedAccess>(self, mode: N) -> Hold<K, V, N> {
        self.into_unit().into_hold(mode)
    }

    #[inline]
    pub(super) fn into_unit(self) -> UnitOf<K, V> {
        UnitOf(self.erased.unit.0.cast())
    }

    /// Returns the entry's value, if there is one.
    #[inline]
    pub(crate) fn value(&self) -> Option<&V::Value> {
        // SAFETY: we have a hold, so no other caller has exclusive use of the entry (7, 9), and the value is
        // initialised (8).
        V::is_present(self.live().marks())
            .then(|| self.live().slot().value.with(|value| unsafe { (*value).assume_init_ref() }))
    }

    /// Checks that the hold is exclusive. The following methods rely on that.
    #[inline]
    #[track_caller]
    fn assert_alone(&self) {
        assert!(self.mode().access() == Access::Exclusive, "a value is changed by an exclusive hold");
    }

    /// Returns the entry's value by mutable reference, if it has one. The caller must renew its version.
    #[inline]
    pub(super) fn value_mut(&mut self) -> Option<&mut V::Value> {
        self.assert_alone();
        // SAFETY: we have exclusive use of the entry (7, 9), for as long as the hold is borrowed, and the value is
        // initialised (8).
        V::is_present(self.live().marks())
            .then(|| self.live().slot().value.with_mut(|value| unsafe { (*value).assume_init_mut() }))
    }

    /// Stores the value of an entry that has none. Called under the shard lock (8).
    #[inline]
    pub(super) fn store(&mut self, value: V::Value, claim: Claim<K, V>) {
        self.assert_alone();
        self.live().store(value, claim, false);
    }

    /// Takes the value out, if there is one. Called under the shard lock (8).
    #[inline]
    pub(super) fn take(&mut self) -> Option<(V::Value, Claim<K, V>)> {
        self.assert_alone();
        V::is_stored(self.live().marks()).then(|| self.live().take(false))
    }
}

/// Operations with exclusive use of the entry, under the shard lock or by the owner of the table (8).
impl<K, V: Payload> Live<'_, K, V> {
    #[inline]
    fn store(self, value: V::Value, claim: Claim<K, V>, sole: bool) {
        assert!(
            self.is(claim.live()) && !V::is_stored(self.marks()),
            "a value is stored once, with a claim of its entry"
        );
        self.slot().value.with_mut(|place| {
            // SAFETY: the caller has exclusive use of the entry (9).
            unsafe { (*place).write(value) };
        });
        V::set_present(self.marks(), true, sole);
        // The claim is the value's now (8).
        let Claim(UnitOf(_)) = claim;
    }

    #[inline]
    fn take(self, sole: bool) -> (V::Value, Claim<K, V>) {
        assert!(V::is_stored(self.marks()), "a value is taken out once");
        V::set_present(self.marks(), false, sole);
        // SAFETY: the caller has exclusive use of the entry (9), and the value was initialised (8); the marks say that
        // it is gone now.
        let value = self.slot().value.with_mut(|value| unsafe { (*value).assume_init_read() });
        (value, Claim(UnitOf(self.0)))
    }
}

impl<'a, K, V: Payload> Unshared<'a, K, V> {
    #[inline]
    pub(super) fn live(&self) -> Live<'a, K, V> {
        self.0
    }

    #[inline]
    pub(super) fn value(&self) -> &V::Value {
        // SAFETY: we have exclusive use of the entry (9), and the value is present.
        self.0.slot().value.with(|value| unsafe { (*value).assume_init_ref() })
    }

    #[inline]
    pub(super) fn value_mut(&mut self) -> &mut V::Value {
        // SAFETY: we have exclusive use of the entry (9), and the value is present.
        self.0.slot().value.with_mut(|value| unsafe { (*value).assume_init_mut() })
    }

    /// Makes a new unit, which `step` counts. No exchange is needed: other units come from the table, whose shard is
    /// locked, or from a unit, and the only one is the value's claim, which has no token (3, 8).
    #[inline]
    pub(super) fn join<E>(self, step: impl FnOnce(Word) -> Result<Word, E>) -> Result<UnitOf<K, V>, E> {
        self.0.state().set(step(Word::born(Unit::Claim))?);
        Ok(UnitOf(self.0.0))
    }

    /// Takes the value out.
    #[inline]
    pub(super) fn take(self) -> (V::Value, Claim<K, V>) {
        self.0.take(true)
    }
}
