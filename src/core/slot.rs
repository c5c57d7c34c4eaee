//! Slots: the memory of entries. The only module with unsafe code.
//!
//! A slot is one heap allocation that never moves, so that guards can point at it and at its key. Who may touch it is
//! a matter of *tokens*, none of which can be copied:
//!
//! - [`Spare`]: sole owner of a slot that serves no key. It may still own an old key (`Word::DEAD_KEYED`).
//! - [`Resident`]: the table's pointer to a live slot; at most one per slot, and it stays behind the shard lock.
//! - [`Claim`]: one unit of a live slot's word: a hold, or a reference of another kind.
//!
//! The invariants that every `unsafe` below refers to:
//!
//! 1. A slot is live from [`Spare::publish`] to [`Resident::vacate`]; while it is live its key is initialised.
//! 2. The units in a live slot's word are as many as the claims in existence (forgotten ones included): every function
//!    here that changes the number of units makes or consumes a claim in the same step.
//! 3. A slot dies only in `vacate`, which owns the resident and the last claim ([`Last`]). New claims come from a resident,
//!    under the shard lock, or from another claim, so none can appear meanwhile.
//! 4. Between `vacate` and the next `publish` the slot has one pointer, a `Spare`: that is unique ownership.
//! 5. A claim is kept only beside a reference or an `Arc` to its table, so it does not outlive the table, whose drop frees
//!    the slots of forgotten claims.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::{mem::MaybeUninit, ptr::NonNull};

use super::word::{Unit, Word};
use crate::sync::{AtomicU32, AtomicUsize, Ordering, UnsafeCell};

struct Slot<K> {
    word: AtomicUsize,
    /// What is kept of the key's hash. Written only while the slot is a `Spare`.
    tag: AtomicU32,
    /// Where the room keeps the queue of this entry. Read and written under the room lock only.
    queue: AtomicU32,
    key: UnsafeCell<MaybeUninit<K>>,
}

type Ptr<K> = NonNull<Slot<K>>;

/// A slot that serves no key, ready for use.
pub(super) struct Spare<K>(Ptr<K>);

/// The table's own pointer to a live slot.
pub(super) struct Resident<K>(Ptr<K>);

/// One unit of a live slot. `pub` because sealed traits name it; nobody outside can.
#[must_use = "a claim that is forgotten keeps its entry for ever"]
#[allow(unreachable_pub)]
pub struct Claim<K>(Ptr<K>);

/// The last unit of a live slot: a claim, and the knowledge that there is no other.
///
/// Only the shard lock keeps it true: it is made and used under it.
pub(super) struct Last<K>(Claim<K>);

// SAFETY: a spare owns its slot and the key in it, as a `Box<K>` would.
unsafe impl<K: Send> Send for Spare<K> {}
// SAFETY: residents and claims of one slot give `&K` to several threads, and any of them may be the one that drops or
// recycles the key, so both `Send` and `Sync` of `K` are asked for. All else in a slot is atomic.
unsafe impl<K: Send + Sync> Send for Resident<K> {}
// SAFETY: as above; `&Claim` gives `&K` and atomics.
unsafe impl<K: Send + Sync> Send for Claim<K> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync> Sync for Claim<K> {}

impl<K> Spare<K> {
    pub(super) fn alloc() -> Spare<K> {
        let slot = Box::new(Slot {
            word: AtomicUsize::new(Word::DEAD.bits()),
            tag: AtomicU32::new(0),
            queue: AtomicU32::new(0),
            key: UnsafeCell::new(MaybeUninit::uninit()),
        });
        Spare(NonNull::from(Box::leak(slot)))
    }

    #[inline]
    fn slot(&self) -> &Slot<K> {
        // SAFETY: a spare's slot is allocated until the spare is dropped (4).
        unsafe { self.0.as_ref() }
    }

    fn is_keyed(&self) -> bool {
        self.slot().word.load(Ordering::Relaxed) == Word::DEAD_KEYED.bits()
    }

    /// The old key, if one was left in the slot.
    pub(super) fn key_mut(&mut self) -> Option<&mut K> {
        // SAFETY: the key is initialised, and we are the slot's only owner, borrowed exclusively (4).
        self.is_keyed().then(|| self.slot().key.with_mut(|key| unsafe { (*key).assume_init_mut() }))
    }

    /// Takes the old key out, if one was left in the slot.
    #[inline]
    pub(super) fn take_key(&mut self) -> Option<K> {
        if !self.is_keyed() {
            return None;
        }
        self.slot().word.store(Word::DEAD.bits(), Ordering::Relaxed);
        // SAFETY: the key was initialised and is read once: the word says now that it is gone (4).
        Some(self.slot().key.with_mut(|key| unsafe { (*key).assume_init_read() }))
    }

    /// Puts a key in, for [`Spare::publish_kept`]. Returns the one that was there.
    pub(super) fn put_key(&mut self, key: K) -> Option<K> {
        let old = self.take_key();
        self.slot().key.with_mut(|place| {
            // SAFETY: we are the slot's only owner, and no key is in it now (4).
            unsafe { (*place).write(key) };
        });
        self.slot().word.store(Word::DEAD_KEYED.bits(), Ordering::Relaxed);
        old
    }

    /// Makes the slot live for `key`, with one unit. An old key that is still in the slot is forgotten, not dropped.
    #[inline]
    pub(super) fn publish(self, key: K, tag: u32, unit: Unit) -> (Resident<K>, Claim<K>) {
        self.slot().key.with_mut(|place| {
            // SAFETY: we are the slot's only owner (4).
            unsafe { (*place).write(key) };
        });
        self.start(tag, unit)
    }

    /// Makes the slot live for the key that is in it. Gives the spare back if there is none.
    pub(super) fn publish_kept(self, tag: u32, unit: Unit) -> Result<(Resident<K>, Claim<K>), Spare<K>> {
        if self.is_keyed() { Ok(self.start(tag, unit)) } else { Err(self) }
    }

    /// Makes the slot live. Its key has been initialised (1).
    #[inline]
    fn start(self, tag: u32, unit: Unit) -> (Resident<K>, Claim<K>) {
        // Plain stores: nobody else sees the slot before the shard lock, under which we are, is released.
        self.slot().tag.store(tag, Ordering::Relaxed);
        self.slot().word.store(Word::born(unit).bits(), Ordering::Relaxed);
        let slot = core::mem::ManuallyDrop::new(self).0;
        (Resident(slot), Claim(slot))
    }
}

impl<K> Drop for Spare<K> {
    fn drop(&mut self) {
        let keyed = self.is_keyed();
        // SAFETY: the slot came from a box, and we are its only owner (4).
        unsafe { free(self.0, keyed) };
    }
}

/// Frees a slot, with its key if it is `keyed`.
///
/// # Safety
/// The caller is the only owner of `slot` and does not use it again; `keyed` tells whether its key is initialised.
unsafe fn free<K>(slot: Ptr<K>, keyed: bool) {
    // SAFETY: every slot comes from `Box::leak`.
    let slot = unsafe { Box::from_raw(slot.as_ptr()) };
    if keyed {
        // SAFETY: the key is initialised, and not used again. If its drop panics, the box is freed all the same.
        slot.key.with_mut(|key| unsafe { (*key).assume_init_drop() });
    }
}

impl<K> Resident<K> {
    #[inline]
    fn slot(&self) -> &Slot<K> {
        // SAFETY: a slot with a resident is live (3).
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn key(&self) -> &K {
        // SAFETY: a live slot's key is initialised and not written (1).
        self.slot().key.with(|key| unsafe { (*key).assume_init_ref() })
    }

    #[inline]
    pub(super) fn tag(&self) -> u32 {
        self.slot().tag.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn word(&self) -> Word {
        Word::from_bits(self.slot().word.load(Ordering::Relaxed))
    }

    pub(super) fn queue(&self) -> u32 {
        self.slot().queue.load(Ordering::Relaxed)
    }

    /// Whether `claim` is one of this slot's.
    #[inline]
    pub(super) fn is_of(&self, claim: &Claim<K>) -> bool {
        self.0 == claim.0
    }

    /// Takes a new unit, as `step` says.
    #[inline]
    pub(super) fn join<E>(&self, step: impl FnMut(Word) -> Result<Word, E>) -> Result<Claim<K>, E> {
        join(self.0, self.slot(), step)
    }

    /// The entry dies: its slot is given up by the table and by the last claim, and keeps its key.
    #[inline]
    pub(super) fn vacate(self, last: Last<K>) -> Spare<K> {
        assert!(self.is_of(&last.0), "an entry is retired by its own last claim");
        self.slot().word.store(Word::DEAD_KEYED.bits(), Ordering::Relaxed);
        Spare(core::mem::ManuallyDrop::new(self).0)
    }
}

impl<K> Drop for Resident<K> {
    /// Only a table that is dropped itself drops residents: those of forgotten claims.
    fn drop(&mut self) {
        // SAFETY: the table is gone, and with it all claims that could still be used (5); a live slot has a key (1).
        unsafe { free(self.0, true) };
    }
}

/// Adds a unit to a live slot, as `step` says, and makes the claim that stands for it.
#[inline]
fn join<K, E>(ptr: Ptr<K>, slot: &Slot<K>, mut step: impl FnMut(Word) -> Result<Word, E>) -> Result<Claim<K>, E> {
    let mut old = Word::from_bits(slot.word.load(Ordering::Relaxed));
    loop {
        let new = step(old)?;
        debug_assert_eq!(new.units(), old.units() + 1);
        match exchange(&slot.word, old, new) {
            Ok(()) => return Ok(Claim(ptr)),
            Err(now) => old = now,
        }
    }
}

/// Acquire: a hold comes after what earlier holders did. Release: what we did comes before later holds, and before the
/// retirement that drops the key.
///
/// Of the slot it is given the word alone, because the slot may be freed by others as soon as our unit is given up here.
#[inline]
fn exchange(word: &AtomicUsize, old: Word, new: Word) -> Result<(), Word> {
    word.compare_exchange_weak(old.bits(), new.bits(), Ordering::AcqRel, Ordering::Relaxed)
        .map(drop)
        .map_err(Word::from_bits)
}

impl<K> Last<K> {
    #[inline]
    pub(super) fn claim(&self) -> &Claim<K> {
        &self.0
    }
}

impl<K> Claim<K> {
    #[inline]
    fn slot(&self) -> &Slot<K> {
        // SAFETY: a slot with a claim is live (2, 3), or its table is being dropped and the claim is not used (5).
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        // SAFETY: a live slot's key is initialised and not written (1).
        self.slot().key.with(|key| unsafe { (*key).assume_init_ref() })
    }

    #[inline]
    pub(super) fn tag(&self) -> u32 {
        self.slot().tag.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn word(&self) -> Word {
        Word::from_bits(self.slot().word.load(Ordering::Relaxed))
    }

    pub(super) fn queue(&self) -> u32 {
        self.slot().queue.load(Ordering::Relaxed)
    }

    /// Under the room lock.
    pub(super) fn set_queue(&self, queue: u32) {
        self.slot().queue.store(queue, Ordering::Relaxed);
    }

    /// Whether this claim is all that keeps the entry alive: all that the word counts is `sole`. Under the shard lock.
    ///
    /// Acquire: what others did with the key before they left comes before its drop.
    #[inline]
    pub(super) fn last(self, sole: Word) -> Result<Last<K>, Claim<K>> {
        debug_assert_eq!(sole.units(), 1);
        if self.slot().word.load(Ordering::Acquire) == sole.bits() { Ok(Last(self)) } else { Err(self) }
    }

    /// Takes one more unit, as `step` says.
    pub(super) fn join<E>(&self, step: impl FnMut(Word) -> Result<Word, E>) -> Result<Claim<K>, E> {
        join(self.0, self.slot(), step)
    }

    /// Changes what the units are, not how many there are.
    #[inline]
    pub(super) fn convert<E>(&self, mut step: impl FnMut(Word) -> Result<Word, E>) -> Result<Word, E> {
        let mut old = self.word();
        loop {
            let new = step(old)?;
            debug_assert_eq!(new.units(), old.units());
            match exchange(&self.slot().word, old, new) {
                Ok(()) => return Ok(new),
                Err(now) => old = now,
            }
        }
    }

    /// Gives this unit up, as `step` says, unless it is the last one. Afterwards the slot is somebody else's.
    #[inline]
    pub(super) fn leave<E>(self, mut step: impl FnMut(Word) -> Result<Word, E>) -> Result<(), (Claim<K>, E)> {
        let mut old = self.word();
        loop {
            let new = match step(old) {
                Ok(new) => new,
                Err(error) => return Err((self, error)),
            };
            debug_assert!(new.units() > 0 && new.units() + 1 == old.units());
            match exchange(&self.slot().word, old, new) {
                Ok(()) => return Ok(()),
                Err(now) => old = now,
            }
        }
    }

    /// Changes the word so that it seems to count other units than there are. The test that does so undoes it.
    #[cfg(test)]
    pub(crate) fn pretend(&self, step: impl Fn(Word) -> Word) {
        self.slot().word.store(step(self.word()).bits(), Ordering::Relaxed);
    }
}
