//! The counters of a map that records statistics.

use alloc::boxed::Box;

use crossbeam_utils::CachePadded;

use crate::stats::Stats;
use crate::sync::Lock;

/// Something that is counted.
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// A look-up found a value.
    Hit,
    /// A look-up found none.
    Miss,
    /// A value was stored for a key that had none.
    Inserted,
    /// The map evicted a value because its values exceeded the bound.
    EvictedForSize,
    /// The map ended a value because its time had passed.
    Expired,
    /// A request or an upgrade joined the queue of its key.
    Waited,
}

const EVENTS: usize = 6;

/// The numbers of events, by kind.
type Counts = [u64; EVENTS];

/// The counters of all shards. Each shard has its own, so that callers that use different keys rarely contend.
///
/// Each shard's counters have a lock, because some targets have no 64-bit atomics, and smaller ones would wrap around.
/// This lock may be taken under the shard lock.
///
/// `pub` because sealed traits name it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Counters(Box<[CachePadded<Lock<Counts>>]>);

impl Counters {
    pub(super) fn new(shards: usize) -> Self {
        Counters((0..shards).map(|_| CachePadded::new(Lock::new([0; EVENTS]))).collect())
    }

    #[cold]
    #[inline(never)]
    pub(super) fn count(&self, shard: usize, event: Event) {
        self.0[shard].with(|counts| counts[event as usize] += 1);
    }

    /// Returns the numbers of events. Each of them is at least as large as in any earlier answer.
    pub(super) fn stats(&self) -> Stats {
        let mut sums = [0; EVENTS];
        for shard in &self.0 {
            let counts = shard.with(|counts| *counts);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let of = |event| sums[event as usize];
        Stats {
            hits: of(Event::Hit),
            misses: of(Event::Miss),
            insertions: of(Event::Inserted),
            evicted_for_size: of(Event::EvictedForSize),
            expired: of(Event::Expired),
            waits: of(Event::Waited),
        }
    }
}
