//! The payload of an entry: its contents besides the key.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::convert::Infallible;

use super::counters::Counters;
use super::hooks::{Hooks, Time, Weigher};
use super::resting::Resting;
use super::value::{Excess, Kept, Marks, Valued};

/// The payload of an entry: nothing in a table of locks; in a map a value, or none.
///
/// An entry lives with or without a value. The slot contains the value's memory and its *marks*: atomics, readable
/// without a hold, that tell whether there is a value, and its version. A table of locks pays nothing for this.
///
/// `pub` because sealed traits name it; other crates cannot.
#[allow(unreachable_pub)]
pub trait Payload: Sized {
    /// Whether entries can have values.
    const VALUES: bool;

    /// The payload itself.
    type Value;

    /// The state of the payload that can be read without a hold.
    type Marks;

    /// The state that each shard keeps for all its entries, past and present.
    type Kept;

    /// The values that a shard keeps outside their entries, with keys of type `K`: see [`Parted`].
    type Parted<K>: Default;

    /// The values of a shard that are at rest, with keys of type `K`.
    type Resting<K>: Default;

    /// The state that the table keeps for all its shards.
    type Excess;

    /// The user's functions that a table with keys `K` may have.
    type Hooks<K>: Default + Sync;

    /// The counters that a table may have.
    type Counters: Sync;

    /// Makes the marks of a slot that serves no key.
    fn dead() -> Self::Marks;

    /// Makes the state of a shard with at most `most` values, which together weigh at most `weight`, and memory for
    /// `capacity` of them. `counts` tells whether the table has counters, and `timed` whether its values end or have
    /// ages.
    fn kept(most: Option<usize>, weight: Option<u64>, capacity: usize, counts: bool, timed: bool) -> Self::Kept;

    /// Makes the state of a table that has `shards` shards and should have at most `most` values. With `by_hand` the
    /// shards do not evict values. `timed` tells whether values end or have ages.
    fn no_excess(shards: usize, most: Option<usize>, by_hand: bool, timed: bool) -> Self::Excess;

    /// Makes the counters of a table with `shards` shards, if `counts`.
    fn new_counters(shards: usize, counts: bool) -> Self::Counters;

    fn counters(counters: &Self::Counters) -> Option<&Counters>;

    fn marks(marks: &Self::Marks) -> Option<&Marks>;

    fn keeps(kept: &mut Self::Kept) -> Option<&mut Kept>;

    fn parted<K>(parted: &mut Self::Parted<K>) -> Option<&mut Parted<K, Self::Value>>;

    fn resting<K>(resting: &mut Self::Resting<K>) -> Option<&mut Resting<K, Self::Value>>;

    fn excess(excess: &Self::Excess) -> Option<&Excess>;

    /// Returns the user's functions, if there are any.
    fn hooks<K>(hooks: &Self::Hooks<K>) -> Option<&Hooks<K, Self::Value>>;

    /// Completes the user's functions before the table is built.
    ///
    /// # Panics
    /// If values end or have ages, and there is no clock, not even a default one.
    #[track_caller]
    fn complete<K>(_: &mut Self::Hooks<K>) {}

    /// Returns the settings for values that end or have ages, if there are any.
    #[inline(always)]
    fn time<K>(hooks: &Self::Hooks<K>) -> Option<&Time<K, Self::Value>> {
        Self::hooks(hooks)?.time.as_ref()
    }

    /// Returns the function that weighs values, with the bound, if values are weighed.
    fn weigher<K>(hooks: &Self::Hooks<K>) -> Option<&Weigher<K, Self::Value>> {
        Self::hooks(hooks)?.weigher.as_ref()
    }

    /// Begins an entry without a value, in the slot with this number. Called under the shard lock.
    #[inline(always)]
    fn begin(number: u32, marks: &Self::Marks, kept: &mut Self::Kept) {
        if let (Some(marks), Some(kept)) = (Self::marks(marks), Self::keeps(kept)) {
            marks.begin(kept);
            kept.walks.note_made(number);
        }
    }

    /// Ends an entry, which has no value. Called under the shard lock.
    #[inline(always)]
    fn end(marks: &Self::Marks, kept: &mut Self::Kept) {
        if let (Some(marks), Some(kept)) = (Self::marks(marks), Self::keeps(kept)) {
            kept.end(marks);
        }
    }

    /// Forgets a freed chunk of slots. The numbers of the remaining chunks are smaller than `end`.
    fn forget_chunk(kept: &mut Self::Kept, chunk: u32, end: usize) {
        let Some(kept) = Self::keeps(kept) else { return };
        if let Some(bound) = &mut kept.bound {
            bound.sieve.forget_chunk(chunk as usize, end);
        }
        if let Some(deadlines) = &mut kept.deadlines {
            deadlines.forget_chunk(chunk as usize, end);
        }
    }

    /// Returns whether there is a value. The answer is exact for a caller that has the shard lock, or a hold (which
    /// must pin the value, if values end); otherwise it is a snapshot.
    #[inline(always)]
    fn is_present(marks: &Self::Marks) -> bool {
        Self::marks(marks).is_some_and(Marks::is_present)
    }

    /// Returns whether the slot has a value in its memory: one that is present, or one that has ended.
    #[inline(always)]
    fn is_stored(marks: &Self::Marks) -> bool {
        Self::marks(marks).is_some_and(Marks::is_stored)
    }

    /// Sets whether there is a value. The caller has exclusive use of the entry. With `sole` it has the shard lock, and
    /// the value's claim is the entry's only unit, so a plain store suffices.
    #[inline(always)]
    fn set_present(marks: &Self::Marks, present: bool, sole: bool) {
        if let Some(marks) = Self::marks(marks) {
            marks.set_present(present, sole);
        }
    }

    /// Returns whether there is nothing to note when the entry is used.
    #[inline(always)]
    fn is_quiet(marks: &Self::Marks) -> bool {
        Self::marks(marks).is_none_or(Marks::is_quiet)
    }

    /// Notes a use of the value, if there is one. `always` says whether each use has to be noted.
    #[inline(always)]
    fn note_use(marks: &Self::Marks, always: bool) {
        if let Some(marks) = Self::marks(marks) {
            marks.note_use(always);
        }
    }

    /// Counts a new handle (`comes`), or a dropped one.
    #[inline(always)]
    fn note_handle(marks: &Self::Marks, comes: bool) {
        if let Some(marks) = Self::marks(marks) {
            marks.note_handle(comes);
        }
    }

    /// Returns whether this shard may need a sweep.
    #[inline(always)]
    fn exceeds(excess: &Self::Excess, shard: usize) -> bool {
        Self::excess(excess).is_some_and(|excess| excess.is_in(shard))
    }
}

/// Values that have ended and are no longer in their entries, until a sweep disposes of them. Each comes with its key,
/// or a copy of the key, if the user's function needs one. The list is in a box, because most shards never have such
/// values.
#[allow(unreachable_pub)]
pub type Parted<K, T> = Option<Box<Vec<(Option<K>, T)>>>;

impl Payload for () {
    const VALUES: bool = false;

    /// `Infallible` is uninhabited, so that an optional value takes no space, and its checks are optimised away.
    type Value = Infallible;
    type Marks = ();
    type Kept = ();
    type Parted<K> = ();
    type Resting<K> = ();
    type Excess = ();
    type Hooks<K> = ();
    type Counters = ();

    fn dead() {}

    fn kept(_: Option<usize>, _: Option<u64>, _: usize, _: bool, _: bool) {}

    fn no_excess(_: usize, _: Option<usize>, _: bool, _: bool) {}

    fn new_counters(_: usize, _: bool) {}

    #[inline(always)]
    fn counters((): &()) -> Option<&Counters> {
        None
    }

    #[inline(always)]
    fn marks((): &()) -> Option<&Marks> {
        None
    }

    #[inline(always)]
    fn keeps((): &mut ()) -> Option<&mut Kept> {
        None
    }

    fn parted<K>((): &mut ()) -> Option<&mut Parted<K, Infallible>> {
        None
    }

    #[inline(always)]
    fn resting<K>((): &mut ()) -> Option<&mut Resting<K, Infallible>> {
        None
    }

    #[inline(always)]
    fn excess((): &()) -> Option<&Excess> {
        None
    }

    #[inline(always)]
    fn hooks<K>((): &()) -> Option<&Hooks<K, Infallible>> {
        None
    }
}

impl<T> Payload for Valued<T> {
    const VALUES: bool = true;

    type Value = T;
    type Marks = Marks;
    type Kept = Kept;
    type Parted<K> = Parted<K, T>;
    type Resting<K> = Resting<K, T>;
    type Excess = Excess;
    type Hooks<K> = Option<Box<Hooks<K, T>>>;
    type Counters = Option<Counters>;

    fn dead() -> Marks {
        Marks::dead()
    }

    fn kept(most: Option<usize>, weight: Option<u64>, capacity: usize, counts: bool, timed: bool) -> Kept {
        Kept::new(most, weight, capacity, counts, timed)
    }

    fn no_excess(shards: usize, most: Option<usize>, by_hand: bool, timed: bool) -> Excess {
        Excess::new(shards, most, by_hand, timed)
    }

    fn new_counters(shards: usize, counts: bool) -> Option<Counters> {
        counts.then(|| Counters::new(shards))
    }

    #[inline(always)]
    fn counters(counters: &Option<Counters>) -> Option<&Counters> {
        counters.as_ref()
    }

    #[inline(always)]
    fn marks(marks: &Marks) -> Option<&Marks> {
        Some(marks)
    }

    #[inline(always)]
    fn keeps(kept: &mut Kept) -> Option<&mut Kept> {
        Some(kept)
    }

    fn parted<K>(parted: &mut Parted<K, T>) -> Option<&mut Parted<K, T>> {
        Some(parted)
    }

    #[inline(always)]
    fn resting<K>(resting: &mut Resting<K, T>) -> Option<&mut Resting<K, T>> {
        Some(resting)
    }

    #[inline(always)]
    fn excess(excess: &Excess) -> Option<&Excess> {
        Some(excess)
    }

    #[inline(always)]
    fn hooks<K>(hooks: &Option<Box<Hooks<K, T>>>) -> Option<&Hooks<K, T>> {
        hooks.as_deref()
    }

    #[track_caller]
    fn complete<K>(hooks: &mut Option<Box<Hooks<K, T>>>) {
        if let Some(hooks) = hooks {
            hooks.complete();
        }
    }
}
