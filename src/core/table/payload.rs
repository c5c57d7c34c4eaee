//! The payload of an entry: its contents besides the key.

use core::convert::Infallible;

use super::counters::Counters;
use super::on_evict::OnEvict;
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

    /// The state that the table keeps for all its shards.
    type Excess;

    /// The function to which a table with keys `K` hands evicted values, if the table may have one.
    type OnEvict<K>: Default + Sync;

    /// The counters that a table may have.
    type Counters: Sync;

    /// Makes the marks of a slot that serves no key.
    fn dead() -> Self::Marks;

    /// Makes the state of a shard with at most `most` values, and memory for `capacity` of them. `counts` tells whether
    /// the table has counters.
    fn kept(most: Option<usize>, capacity: usize, counts: bool) -> Self::Kept;

    /// Makes the state of a table with `shards` shards, which should have at most `most` values. With `by_hand` the
    /// shards do not evict values.
    fn no_excess(shards: usize, most: Option<usize>, by_hand: bool) -> Self::Excess;

    /// Makes the counters of a table with `shards` shards, if `counts`.
    fn new_counters(shards: usize, counts: bool) -> Self::Counters;

    fn counters(counters: &Self::Counters) -> Option<&Counters>;

    fn marks(marks: &Self::Marks) -> Option<&Marks>;

    fn keeps(kept: &mut Self::Kept) -> Option<&mut Kept>;

    fn excess(excess: &Self::Excess) -> Option<&Excess>;

    /// Returns the function to which evicted values are handed, if there is one.
    fn on_evict<K>(on_evict: &Self::OnEvict<K>) -> Option<&OnEvict<K, Self::Value>>;

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
        if let Some(bound) = Self::keeps(kept).and_then(|kept| kept.bound.as_mut()) {
            bound.sieve.forget_chunk(chunk as usize, end);
        }
    }

    /// Returns whether there is a value. The answer is exact for a caller that has a hold, or has the shard lock of an
    /// entry without holders; otherwise it is a snapshot.
    #[inline(always)]
    fn is_present(marks: &Self::Marks) -> bool {
        Self::marks(marks).is_some_and(Marks::is_present)
    }

    /// Sets whether there is a value. The caller has exclusive use of the entry. If `sole`, it established that under
    /// the shard lock, and a plain store suffices.
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

    /// Notes a use of the value, if there is one. `counts` says whether the table has counters.
    #[inline(always)]
    fn note_use(marks: &Self::Marks, counts: bool) {
        if let Some(marks) = Self::marks(marks) {
            marks.note_use(counts);
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

impl Payload for () {
    const VALUES: bool = false;

    /// `Infallible` is uninhabited, so that an optional value takes no space, and its checks are optimised away.
    type Value = Infallible;
    type Marks = ();
    type Kept = ();
    type Excess = ();
    type OnEvict<K> = ();
    type Counters = ();

    fn dead() {}

    fn kept(_: Option<usize>, _: usize, _: bool) {}

    fn no_excess(_: usize, _: Option<usize>, _: bool) {}

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

    #[inline(always)]
    fn excess((): &()) -> Option<&Excess> {
        None
    }

    #[inline(always)]
    fn on_evict<K>((): &()) -> Option<&OnEvict<K, Infallible>> {
        None
    }
}

impl<T> Payload for Valued<T> {
    const VALUES: bool = true;

    type Value = T;
    type Marks = Marks;
    type Kept = Kept;
    type Excess = Excess;
    type OnEvict<K> = Option<OnEvict<K, T>>;
    type Counters = Option<Counters>;

    fn dead() -> Marks {
        Marks::dead()
    }

    fn kept(most: Option<usize>, capacity: usize, counts: bool) -> Kept {
        Kept::new(most, capacity, counts)
    }

    fn no_excess(shards: usize, most: Option<usize>, by_hand: bool) -> Excess {
        Excess::new(shards, most, by_hand)
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

    #[inline(always)]
    fn excess(excess: &Excess) -> Option<&Excess> {
        Some(excess)
    }

    fn on_evict<K>(on_evict: &Option<OnEvict<K, T>>) -> Option<&OnEvict<K, T>> {
        on_evict.as_ref()
    }
}
