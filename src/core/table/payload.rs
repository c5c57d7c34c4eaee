//! The payload of an entry: its contents besides the key.

use core::convert::Infallible;

use super::value::{Excess, Kept, Marks, Valued};

/// The payload of an entry: nothing in a table of locks; in a map a value, or none.
///
/// An entry lives with or without a value. The value's memory is the slot's, and so are its *marks*, atomics that say whether
/// there is one and which; whoever looks at an entry can read them. So nothing here costs a table of locks.
///
/// `pub` because sealed traits name it; nobody outside can.
#[allow(unreachable_pub)]
pub trait Payload: Sized {
    /// Whether there are values at all.
    const VALUES: bool;

    /// The payload itself.
    type Value;

    /// The facts about it that can be read without a hold.
    type Marks;

    /// The state that each shard keeps for all its entries, past and present.
    type Kept;

    /// The state that the table keeps for all its shards.
    type Excess;

    /// Of a slot that serves no key.
    fn dead() -> Self::Marks;

    /// Of a shard that should have at most so many values, and holds `capacity` of them before anything is allocated.
    fn kept(most: Option<usize>, capacity: usize) -> Self::Kept;

    /// Of a table with so many shards, which should have at most so many values.
    fn no_excess(shards: usize, most: Option<usize>) -> Self::Excess;

    fn marks(marks: &Self::Marks) -> Option<&Marks>;

    fn keeps(kept: &mut Self::Kept) -> Option<&mut Kept>;

    fn excess(excess: &Self::Excess) -> Option<&Excess>;

    /// An entry begins, without a value. Under the shard lock.
    #[inline(always)]
    fn begin(marks: &Self::Marks, kept: &mut Self::Kept) {
        if let (Some(marks), Some(kept)) = (Self::marks(marks), Self::keeps(kept)) {
            marks.begin(kept);
        }
    }

    /// An entry dies, without a value. Under the shard lock.
    #[inline(always)]
    fn end(marks: &Self::Marks, kept: &mut Self::Kept) {
        if let (Some(marks), Some(kept)) = (Self::marks(marks), Self::keeps(kept)) {
            kept.end(marks);
        }
    }

    /// A chunk of slots is given back; the numbers of those that are left are smaller than `end`.
    fn forget_chunk(kept: &mut Self::Kept, chunk: u32, end: usize) {
        if let Some(bound) = Self::keeps(kept).and_then(|kept| kept.bound.as_mut()) {
            bound.sieve.forget_chunk(chunk as usize, end);
        }
    }

    /// Whether there is a value. The truth for who has a hold, or the shard lock and no holder to fear; else at a glance.
    #[inline(always)]
    fn is_present(marks: &Self::Marks) -> bool {
        Self::marks(marks).is_some_and(Marks::is_present)
    }

    /// Says whether there is a value. For who has the entry alone; who is `sole` has found that out under the shard lock, and needs
    /// no atomic step.
    #[inline(always)]
    fn set_present(marks: &Self::Marks, present: bool, sole: bool) {
        if let Some(marks) = Self::marks(marks) {
            marks.set_present(present, sole);
        }
    }

    /// Somebody has acquired the entry.
    #[inline(always)]
    fn note_use(marks: &Self::Marks) {
        if let Some(marks) = Self::marks(marks) {
            marks.note_use();
        }
    }

    /// A handle comes, or goes.
    #[inline(always)]
    fn note_handle(marks: &Self::Marks, comes: bool) {
        if let Some(marks) = Self::marks(marks) {
            marks.note_handle(comes);
        }
    }

    /// Whether there may be something to sweep in this shard.
    #[inline(always)]
    fn exceeds(excess: &Self::Excess, shard: usize) -> bool {
        Self::excess(excess).is_some_and(|excess| excess.is_in(shard))
    }
}

impl Payload for () {
    const VALUES: bool = false;

    /// Nothing can be one: so what may have one is as small as what has none, and nobody asks whether it has.
    type Value = Infallible;
    type Marks = ();
    type Kept = ();
    type Excess = ();

    fn dead() {}

    fn kept(_: Option<usize>, _: usize) {}

    fn no_excess(_: usize, _: Option<usize>) {}

    #[inline(always)]
    fn marks((): &()) -> Option<&Marks> {
        None
    }

    #[inline(always)]
    fn keeps((): &mut ()) -> Option<&mut Kept> {
        None
    }

    #[inline(always)]
    fn excess((): &()) -> Option<&Excess> {
        None
    }
}

impl<T> Payload for Valued<T> {
    const VALUES: bool = true;

    type Value = T;
    type Marks = Marks;
    type Kept = Kept;
    type Excess = Excess;

    fn dead() -> Marks {
        Marks::dead()
    }

    fn kept(most: Option<usize>, capacity: usize) -> Kept {
        Kept::new(most, capacity)
    }

    fn no_excess(shards: usize, most: Option<usize>) -> Excess {
        Excess::new(shards, most)
    }

    #[inline(always)]
    fn marks(marks: &Marks) -> Option<&Marks> {
        Some(marks)
    }

    #[inline(always)]
    fn keeps(kept: &mut Kept) -> Option<&mut Kept> {
        Some(kept)
    }

    #[inline(always)]
    fn excess(excess: &Excess) -> Option<&Excess> {
        Some(excess)
    }
}
