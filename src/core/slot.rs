//! Slots: the memory of entries. The only module with unsafe code.
//!
//! Slots are allocated by *chunks* and never move, so that guards can point at them and at their keys. Who may touch a slot is
//! a matter of *tokens*, none of which can be copied:
//!
//! - [`Spare`]: sole owner of a slot that serves no key. It may still own an old key (`Word::DEAD_KEYED`). A slot that is marked
//!   free in its chunk belongs to the chunk in the same way.
//! - [`Resident`], or [`Filed`], which is a resident by its number: the table's pointer to a live slot; at most one per slot,
//!   and it stays behind the shard lock.
//! - [`Claim`]: one unit of a live slot's word: a hold, or a reference of another kind.
//!
//! The invariants that every `unsafe` below refers to:
//!
//! 1. A slot is live from [`Spare::publish`] to [`Resident::vacate`]; while it is live its key is initialised.
//! 2. The units in a live slot's word are as many as the claims in existence (forgotten ones included): every function
//!    here that changes the number of units makes or consumes a claim in the same step.
//! 3. A slot dies only in `vacate`, which owns the resident and the last claim ([`Last`]). New claims come from a resident,
//!    under the shard lock, or from another claim, so none can appear meanwhile.
//! 4. Between `vacate` and the next `publish` one token or the chunk's mark speaks for the slot: that is unique ownership.
//! 5. A claim is kept only beside a reference or an `Arc` to its table, so it does not outlive the table, whose drop frees
//!    the slots of forgotten claims.
//! 6. A chunk and the spares and residents of its slots stay in one shard. A chunk is dropped when all its slots are marked
//!    free, or with its shard: then nobody has a token of its slots any more, or uses it (5).

#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::{marker::PhantomData, mem::MaybeUninit, ptr::NonNull};

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

/// A slot's number in its shard: that of its chunk, and its place in the chunk.
#[derive(Clone, Copy)]
struct Number(u32);

/// How many bits of a [`Number`] are the place in the chunk.
const PLACE: u32 = 4;

/// Some slots in one allocation.
pub(super) struct Chunk<K> {
    /// The first of `len`.
    slots: Ptr<K>,
    len: u16,
    /// One bit for each slot: whether it is free.
    free: Places,
    /// Which of the free slots still own an old key that is worth keeping.
    keyed: Places,
}

/// A set of places in a chunk.
type Places = u16;
const _: () = assert!(1 << PLACE == Places::BITS);

/// A slot that serves no key, ready for use.
#[must_use = "a slot that is neither used nor put back is lost to its chunk"]
pub(super) struct Spare<K>(Ptr<K>, Number);

/// The table's own pointer to a live slot.
pub(super) struct Resident<K>(Ptr<K>, Number);

/// A [`Resident`] in the form that a hash table keeps: half the size of a pointer.
pub(super) struct Filed(Number);

/// A look at a live slot, under the shard lock.
pub(super) struct Live<'a, K>(Ptr<K>, PhantomData<&'a K>);

/// One unit of a live slot. `pub` because sealed traits name it; nobody outside can.
#[must_use = "a claim that is forgotten keeps its entry for ever"]
#[allow(unreachable_pub)]
pub struct Claim<K>(Ptr<K>);

/// The last unit of a live slot: a claim, and the knowledge that there is no other.
///
/// Only the shard lock keeps it true: it is made and used under it.
pub(super) struct Last<K>(Claim<K>);

// SAFETY: a chunk owns its slots and the keys in them, as a `Box<[K]>` would.
unsafe impl<K: Send> Send for Chunk<K> {}
// SAFETY: a spare owns its slot and the key in it, as a `Box<K>` would.
unsafe impl<K: Send> Send for Spare<K> {}
// SAFETY: residents and claims of one slot give `&K` to several threads, and any of them may be the one that drops or
// recycles the key, so both `Send` and `Sync` of `K` are asked for. All else in a slot is atomic.
unsafe impl<K: Send + Sync> Send for Resident<K> {}
// SAFETY: as above; `&Claim` gives `&K` and atomics.
unsafe impl<K: Send + Sync> Send for Claim<K> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync> Sync for Claim<K> {}

impl Number {
    #[inline]
    fn new(chunk: u32, place: u32) -> Number {
        Number(chunk << PLACE | place)
    }

    #[inline]
    fn chunk(self) -> u32 {
        self.0 >> PLACE
    }

    #[inline]
    fn place(self) -> u32 {
        self.0 & ((1 << PLACE) - 1)
    }
}

impl<K> Drop for Slot<K> {
    fn drop(&mut self) {
        if self.word.load(Ordering::Relaxed) != Word::DEAD.bits() {
            // SAFETY: the slot is live or keeps an old key, so its key is initialised (1), and it is not used again (6).
            self.key.with_mut(|key| unsafe { (*key).assume_init_drop() });
        }
    }
}

impl<K> Chunk<K> {
    /// How many slots a chunk has at the most. A key that is held for long keeps its whole chunk, and in larger ones there would
    /// hardly be less to do for each slot.
    pub(super) const MOST: usize = 1 << PLACE;

    /// How many chunks can be told apart.
    pub(super) const CHUNKS: usize = 1 << (u32::BITS - PLACE) as usize;

    /// All its slots are free.
    pub(super) fn alloc(len: usize) -> Chunk<K> {
        assert!((1..=Self::MOST).contains(&len));
        let slot = |_| Slot {
            word: AtomicUsize::new(Word::DEAD.bits()),
            tag: AtomicU32::new(0),
            queue: AtomicU32::new(0),
            key: UnsafeCell::new(MaybeUninit::uninit()),
        };
        let slots: Box<[Slot<K>]> = (0..len).map(slot).collect();
        let len = len as u16;
        Chunk { slots: NonNull::from(Box::leak(slots)).cast(), len, free: Self::all(len), keyed: 0 }
    }

    fn all(len: u16) -> Places {
        Places::MAX >> (Places::BITS as u16 - len)
    }

    /// Whether all slots are free.
    pub(super) fn is_idle(&self) -> bool {
        self.free == Self::all(self.len)
    }

    /// How many slots are free.
    pub(super) fn free(&self) -> u32 {
        self.free.count_ones()
    }

    /// How many of them have an old key.
    pub(super) fn keyed(&self) -> u32 {
        self.keyed.count_ones()
    }

    /// Takes an old key out of a chunk that is in no pool any more.
    pub(super) fn take_key(&mut self) -> Option<K> {
        self.take(0)?.take_key()
    }

    #[inline]
    fn slot(&self, place: u32) -> Ptr<K> {
        assert!(place < self.len.into());
        // SAFETY: the place is in the allocation, which lasts as long as the chunk (6).
        unsafe { self.slots.add(place as usize) }
    }

    /// Takes a free slot out of this chunk, which is the shard's chunk number `id`: one with an old key, if there is one.
    pub(super) fn take(&mut self, id: u32) -> Option<Spare<K>> {
        let from = if self.keyed != 0 { self.keyed } else { self.free };
        if from == 0 {
            return None;
        }
        let place = from.trailing_zeros();
        let spare = Spare(self.slot(place), Number::new(id, place));
        self.free &= !(1 << place);
        self.keyed &= !(1 << place);
        Some(spare)
    }

    /// Marks a slot of this chunk free.
    pub(super) fn put(&mut self, spare: Spare<K>) {
        let place = spare.1.place();
        assert!(self.slot(place) == spare.0, "a spare goes back to its own chunk");
        self.free |= 1 << place;
        if core::mem::needs_drop::<K>() && spare.is_keyed() {
            self.keyed |= 1 << place;
        }
    }

    #[inline]
    pub(super) fn look(&self, filed: &Filed) -> Live<'_, K> {
        Live(self.slot(filed.0.place()), PhantomData)
    }

    #[inline]
    pub(super) fn recall(&self, filed: Filed) -> Resident<K> {
        Resident(self.slot(filed.0.place()), filed.0)
    }
}

impl<K> Drop for Chunk<K> {
    fn drop(&mut self) {
        let slots = core::ptr::slice_from_raw_parts_mut(self.slots.as_ptr(), self.len as usize);
        // SAFETY: the slots come from a boxed slice of this length, and are not used again (6).
        drop(unsafe { Box::from_raw(slots) });
    }
}

impl Filed {
    #[inline]
    pub(super) fn chunk(&self) -> u32 {
        self.0.chunk()
    }
}

impl<K> Spare<K> {
    pub(super) fn chunk(&self) -> u32 {
        self.1.chunk()
    }

    #[inline]
    fn slot(&self) -> &Slot<K> {
        // SAFETY: the chunk stays allocated while one of its slots is not marked free (6).
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
        self.write(key);
        self.slot().word.store(Word::DEAD_KEYED.bits(), Ordering::Relaxed);
        old
    }

    /// Makes the slot live for `key`, with one unit. An old key that is still in the slot is forgotten, not dropped.
    #[inline]
    pub(super) fn publish(self, key: K, tag: u32, unit: Unit) -> (Resident<K>, Claim<K>) {
        self.write(key);
        self.start(tag, unit)
    }

    /// Makes the slot live for the key that is in it.
    #[inline]
    pub(super) fn publish_kept(self, tag: u32, unit: Unit) -> (Resident<K>, Claim<K>) {
        assert!(self.is_keyed(), "an entry has a key");
        self.start(tag, unit)
    }

    /// Makes the slot live. Its key has been initialised (1).
    #[inline]
    fn start(self, tag: u32, unit: Unit) -> (Resident<K>, Claim<K>) {
        // Plain stores: nobody else sees the slot before the shard lock, under which we are, is released.
        self.slot().tag.store(tag, Ordering::Relaxed);
        self.slot().word.store(Word::born(unit).bits(), Ordering::Relaxed);
        (Resident(self.0, self.1), Claim(self.0))
    }

    #[inline]
    fn write(&self, key: K) {
        self.slot().key.with_mut(|place| {
            // SAFETY: we are the slot's only owner (4).
            unsafe { (*place).write(key) };
        });
    }
}

impl<K> Resident<K> {
    #[inline]
    pub(super) fn live(&self) -> Live<'_, K> {
        Live(self.0, PhantomData)
    }

    #[inline]
    pub(super) fn file(self) -> Filed {
        Filed(self.1)
    }

    /// Whether `claim` is one of this slot's.
    #[inline]
    pub(super) fn is_of(&self, claim: &Claim<K>) -> bool {
        self.live().is_of(claim)
    }

    /// The entry dies: its slot is given up by the table and by the last claim, and keeps its key.
    #[inline]
    pub(super) fn vacate(self, last: Last<K>) -> Spare<K> {
        assert!(self.is_of(&last.0), "an entry is retired by its own last claim");
        let spare = Spare(self.0, self.1);
        spare.slot().word.store(Word::DEAD_KEYED.bits(), Ordering::Relaxed);
        spare
    }
}

impl<K> Clone for Live<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Live<'_, K> {}

impl<'a, K> Live<'a, K> {
    #[inline]
    fn slot(self) -> &'a Slot<K> {
        // SAFETY: a slot with a resident is live (3).
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn key(self) -> &'a K {
        // SAFETY: a live slot's key is initialised and not written (1).
        self.slot().key.with(|key| unsafe { (*key).assume_init_ref() })
    }

    #[inline]
    pub(super) fn tag(self) -> u32 {
        self.slot().tag.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn word(self) -> Word {
        Word::from_bits(self.slot().word.load(Ordering::Relaxed))
    }

    pub(super) fn queue(self) -> u32 {
        self.slot().queue.load(Ordering::Relaxed)
    }

    /// Whether `claim` is one of this slot's.
    #[inline]
    pub(super) fn is_of(self, claim: &Claim<K>) -> bool {
        self.0 == claim.0
    }

    /// Takes a new unit, as `step` says.
    #[inline]
    pub(super) fn join<E>(self, step: impl FnMut(Word) -> Result<Word, E>) -> Result<Claim<K>, E> {
        join(self.0, self.slot(), step)
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
