//! The state of values: in the entries of a map, and in their shard.

use alloc::boxed::Box;
use core::marker::PhantomData;

use super::deadlines::Deadlines;
use super::history::History;
use super::sieve::Sieve;
use super::stay::Walks;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};

/// The payload of a map: an entry has a value of type `T`, or none.
///
/// `pub` because sealed traits name it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // there is no value of this type
pub struct Valued<T>(PhantomData<T>);

/// The state of an entry's value that can be read without a hold.
///
/// | bits of `high` | meaning |
/// |---|---|
/// | 0 | `PRESENT`: there is a value |
/// | 1 | `QUIET`: there is nothing to note when the entry is used |
/// | 2 | `USED`: in a table in which no entry is quiet, the value was used since it was last considered for eviction |
/// | 2 | `VISITED`: in a table whose values may rest, the value was at rest and got its slot for a visit of the shard |
/// | 3 | `ENDED`: there is no value, but one that has ended is still in the slot |
/// | 4 to 9 | the number of handles of the entry; 63 means 63 or more |
/// | 10 to 31 | the high bits of the version, the low ones of which are `low` |
///
/// Most tables have nothing to note if there is no value, or if a use of it has been noted already. So there, `QUIET`
/// together with `PRESENT` means that the value was used. In a table with counters, and in one whose values end or have
/// ages, each use has to be noted, and no entry is quiet. So other tables pay nothing for that.
///
/// The version is that of the last value, even if that value has been removed, so later versions continue from it. Only
/// a caller with exclusive use of the entry changes the version. `PRESENT` changes only under the shard lock: such a
/// caller sets or clears it, and a call that ends the value clears it. The other bits may change at any time. The
/// entry's word, or the shard lock, orders accesses of the version.
#[allow(unreachable_pub, missing_debug_implementations)]
pub struct Marks {
    low: AtomicU32,
    high: AtomicU32,
}

const PRESENT: u32 = 1;
const QUIET: u32 = 1 << 1;
const USED: u32 = 1 << 2;
const ENDED: u32 = 1 << 3;
const VISITED: u32 = USED;
const HANDLE_ONE: u32 = 1 << 4;
const HANDLES: u32 = (1 << VERSION_SHIFT) - HANDLE_ONE;
const VERSION_SHIFT: u32 = 10;

/// The state of a shard of a map.
#[allow(unreachable_pub, missing_debug_implementations)]
pub struct Kept {
    /// The high-water mark: no dead entry of the shard had a later version.
    high_water: u64,
    /// The number of values.
    pub(super) values: usize,
    /// The initial marks of an entry: `QUIET`, or 0 in a table in which no entry is quiet.
    unused: u32,
    /// Whether there is something to do when a value is stored: there is a bound, or the table has counters.
    pub(super) is_watched: bool,
    /// Whether there are lists of the values: an order of eviction, or deadlines.
    pub(super) is_listed: bool,
    /// The number of sweeps of the shard that have something to do.
    pub(super) sweeps: u8,
    /// Whether a sweep that should also evict values has left its part to the shard's other sweeps.
    pub(super) is_left: bool,
    /// The deadlines, ages and weights of the values, if any of these are recorded.
    pub(super) deadlines: Option<Box<Deadlines>>,
    /// The bound on the number of values, if there is one.
    pub(super) bound: Option<Box<Bound>>,
    /// The walks that are in the shard.
    pub(super) walks: Walks,
}

/// The state of a shard whose number of values is bounded.
///
/// Each value is either in the sieve or *parked*: its entry is in use, or was in use when the sieve's hand last reached
/// it. (The number of parked values is [`Kept::values`] minus the length of the sieve.) The last user of a parked value
/// puts it into the sieve. So each use costs a constant number of steps, however many values are in use. Where values
/// are [weighed](super::weights), those without weight are neither in the sieve nor parked, and do not count here.
pub(super) struct Bound {
    /// The largest number of values. Where they are weighed: 0 while they are too heavy, otherwise `usize::MAX`.
    pub(super) most: usize,
    pub(super) sieve: Sieve,
    pub(super) history: History,
    /// Whether the table's [`Excess`] contains the shard.
    exceeds: bool,
    /// The number of values that the shard has added to [`Whole::values`].
    counted: usize,
}

/// The shards of a table that have parked values, or too many values. A release in any other shard need not sweep.
/// Empty if values are not bounded, do not end and have no ages. Contains all shards if values end or have ages.
#[allow(unreachable_pub, missing_debug_implementations)]
pub struct Excess(Box<[AtomicU32]>, Option<Box<Whole>>);

/// The state of a table whose number of values is bounded.
///
/// It has its own allocation, because every pop writes to it, and most of the table's other fields are only read.
pub(super) struct Whole {
    /// The largest number of values in all shards. A shard reads it under its lock.
    pub(super) most: AtomicUsize,
    /// The index of the shard with which the next pop begins, modulo the number of shards.
    pub(super) next: AtomicUsize,
    /// The number of values in all shards, if the map leaves eviction to its user, who asks for this number often.
    pub(super) values: Option<AtomicUsize>,
}

impl Marks {
    /// Makes the marks of a slot that serves no key.
    pub(super) fn dead() -> Marks {
        Marks { low: AtomicU32::new(0), high: AtomicU32::new(0) }
    }

    /// Begins an entry without a value.
    #[inline]
    pub(super) fn begin(&self, kept: &Kept) {
        self.low.store(kept.high_water as u32, Ordering::Relaxed);
        let version = (kept.high_water >> u32::BITS) as u32;
        self.high.store(version << VERSION_SHIFT | kept.unused, Ordering::Relaxed);
    }

    /// Returns whether there is a value.
    #[inline]
    pub(super) fn is_present(&self) -> bool {
        self.high.load(Ordering::Relaxed) & PRESENT != 0
    }

    /// Returns whether there is a value in the slot, even if it has ended.
    #[inline]
    pub(super) fn is_stored(&self) -> bool {
        self.high.load(Ordering::Relaxed) & (PRESENT | ENDED) != 0
    }

    /// Turns the value into one that has ended. The caller has the shard lock, and no holder sees the value.
    pub(super) fn end_value(&self) {
        let step = |high: u32| Some(high & !(PRESENT | USED) | ENDED);
        let _ = self.high.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
    }

    /// Sets whether there is a value. With `sole` the caller has the shard lock, and the value's claim is the entry's
    /// only unit, so no other bit can change, and a plain store suffices.
    #[inline]
    pub(super) fn set_present(&self, present: bool, sole: bool) {
        // A value that has just been stored is unused, so the entry is no longer quiet. The caller has exclusive use of
        // the entry, and while there is no value, nobody else changes that bit.
        let high = self.high.load(Ordering::Relaxed);
        match (present, sole) {
            (true, false) => drop(self.high.fetch_xor(PRESENT | high & QUIET, Ordering::Relaxed)),
            (false, false) => drop(self.high.fetch_and(!(PRESENT | USED | ENDED), Ordering::Relaxed)),
            (true, true) => self.high.store((high | PRESENT) & !QUIET, Ordering::Relaxed),
            (false, true) => self.high.store(high & !(PRESENT | USED | ENDED), Ordering::Relaxed),
        }
    }

    /// Returns whether there is nothing to note when the entry is used.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.high.load(Ordering::Relaxed) & QUIET != 0
    }

    /// Notes a use of the value, if there is one. `always` says whether each use has to be noted. If so, no entry is
    /// quiet.
    #[inline]
    pub(super) fn note_use(&self, always: bool) {
        if !always {
            self.high.fetch_or(QUIET, Ordering::Relaxed);
        } else if self.high.load(Ordering::Relaxed) & (PRESENT | USED) == PRESENT {
            self.high.fetch_or(USED, Ordering::Relaxed);
        }
    }

    pub(super) fn note_handle(&self, comes: bool) {
        let step = |high: u32| match high & HANDLES {
            HANDLES => None, // saturated: the last handle cannot be recognised
            _ if comes => Some(high + HANDLE_ONE),
            _ => Some(high - HANDLE_ONE),
        };
        let _ = self.high.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
    }

    /// Returns the version of the value, or of the last value if there is none.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        let high = self.high.load(Ordering::Relaxed) >> VERSION_SHIFT;
        u64::from(high) << u32::BITS | u64::from(self.low.load(Ordering::Relaxed))
    }

    /// Raises the version by `by`. The caller has exclusive use of the entry.
    #[inline]
    pub(super) fn renew(&self, by: u64) {
        let version = self.version() + by;
        let carried = (version >> u32::BITS) as u32 - (self.high.load(Ordering::Relaxed) >> VERSION_SHIFT);
        self.low.store(version as u32, Ordering::Relaxed);
        if carried != 0 {
            self.high.fetch_add(carried << VERSION_SHIFT, Ordering::Relaxed);
        }
    }

    /// Completes the entry of a value that was at rest. The caller has locked the shard, and the entry has no other
    /// user, so plain stores suffice.
    #[inline]
    pub(super) fn restore(&self, version: u64, for_visit: bool) {
        let visited = if for_visit { VISITED } else { 0 };
        let version_high = ((version >> u32::BITS) as u32) << VERSION_SHIFT;
        self.low.store(version as u32, Ordering::Relaxed);
        self.high.store(version_high | PRESENT | QUIET | visited, Ordering::Relaxed);
    }

    /// Returns whether the value was at rest, and got its slot for a visit of the shard.
    pub(super) fn is_visited(&self) -> bool {
        self.high.load(Ordering::Relaxed) & VISITED != 0
    }

    /// Returns whether the value, which must be present, was used since the last call.
    pub(super) fn take_used(&self) -> bool {
        const ANY: u32 = QUIET | USED;
        self.high.load(Ordering::Relaxed) & ANY != 0 && self.high.fetch_and(!ANY, Ordering::Relaxed) & ANY != 0
    }

    /// Returns whether the entry may have a handle. `claimed` says whether it has units besides the claims of its
    /// value.
    pub(super) fn has_handle(&self, claimed: bool) -> bool {
        match self.high.load(Ordering::Relaxed) & HANDLES {
            0 => false,
            HANDLES if !claimed => {
                self.high.fetch_and(!HANDLES, Ordering::Relaxed);
                false
            }
            _ => true,
        }
    }
}

impl Excess {
    pub(super) fn new(shards: usize, most: Option<usize>, by_hand: bool, timed: bool) -> Excess {
        let flagged = if most.is_some() || timed { shards } else { 0 };
        let values = by_hand.then(|| AtomicUsize::new(0));
        let whole = |most| Box::new(Whole { most: AtomicUsize::new(most), next: AtomicUsize::new(0), values });
        Excess((0..flagged).map(|_| AtomicU32::new(timed.into())).collect(), most.map(whole))
    }

    /// Returns the state of the whole table; `None` if values are not bounded.
    pub(super) fn whole(&self) -> Option<&Whole> {
        self.1.as_deref()
    }

    /// Returns whether the table's values are bounded, end, or have ages.
    #[inline]
    pub(super) fn is_bounded(&self) -> bool {
        !self.0.is_empty()
    }

    #[inline]
    pub(super) fn is_in(&self, shard: usize) -> bool {
        self.0.get(shard).is_some_and(|exceeds| exceeds.load(Ordering::Relaxed) != 0)
    }
}

impl Whole {
    /// Returns whether values are evicted only by the map's user.
    pub(super) fn is_by_hand(&self) -> bool {
        self.values.is_some()
    }
}

impl Kept {
    /// Makes the state of a shard with at most `most` values, which together weigh at most `weight`, and memory for
    /// `capacity` of them. `counts` tells whether the table has counters, and `timed` whether its values end or have
    /// ages.
    pub(super) fn new(most: Option<usize>, weight: Option<u64>, capacity: usize, counts: bool, timed: bool) -> Kept {
        let has_records = timed || weight.is_some();
        let bound = |most| {
            let (sieve, history) = (Sieve::with_capacity(capacity), History::with_capacity(capacity.min(most)));
            Box::new(Bound { most, sieve, history, exceeds: timed, counted: 0 })
        };
        Kept {
            high_water: 0,
            values: 0,
            unused: if counts || timed { 0 } else { QUIET },
            is_watched: most.is_some() || counts,
            is_listed: most.is_some() || timed,
            sweeps: 0,
            is_left: false,
            deadlines: has_records.then(|| Box::new(Deadlines::new(timed, weight))),
            bound: most.map(bound),
            walks: Walks::default(),
        }
    }

    /// Returns whether nothing at all is recorded about the values, so that they may rest: there is no bound, no
    /// deadline, no age and no counter.
    pub(super) fn records_nothing(&self) -> bool {
        !self.is_watched && !self.is_listed
    }

    /// Returns the version from which those of a new entry continue.
    #[inline]
    pub(super) fn high_water(&self) -> u64 {
        self.high_water
    }

    /// Raises the high-water mark to the version of a value that is removed.
    #[inline]
    pub(super) fn raise(&mut self, version: u64) {
        self.high_water = self.high_water.max(version);
    }

    /// Returns whether the time of a value may have passed, or whether such values have been left to sweeps.
    pub(super) fn has_ended(&self) -> bool {
        let due = |deadlines: &Deadlines| deadlines.are_left || deadlines.is_any_due();
        self.deadlines.as_deref().is_some_and(due)
    }

    /// Ends an entry: raises the high-water mark.
    #[inline]
    pub(super) fn end(&mut self, marks: &Marks) {
        self.raise(marks.version());
    }

    /// Records in the table's [`Excess`] whether this shard needs a sweep. Called whenever the number of values, the
    /// length of the sieve, or the bound may have changed.
    pub(super) fn note_excess(&mut self, excess: &Excess, shard: usize) {
        let Some(bound) = &mut self.bound else { return };
        if let Some(values) = excess.whole().and_then(|whole| whole.values.as_ref()) {
            // If the number has become smaller, the difference wraps around, and so does the sum.
            values.fetch_add(self.values.wrapping_sub(bound.counted), Ordering::Relaxed);
            bound.counted = self.values;
        }
        let deadlines = self.deadlines.as_deref();
        let ordered = self.values - deadlines.map_or(0, Deadlines::weightless);
        let exceeds =
            deadlines.is_some_and(Deadlines::is_timed) || ordered > bound.sieve.len() || self.values > bound.most;
        if exceeds != bound.exceeds {
            bound.exceeds = exceeds;
            excess.0[shard].store(exceeds.into(), Ordering::Relaxed);
        }
    }
}
