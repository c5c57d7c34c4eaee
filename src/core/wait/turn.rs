//! The order of the waiters of a queue: by arrival, and by priority.
//!
//! The order is settled when a request arrives, by one number, its [`Turn`]; a lower number comes first. The number of
//! a request without a priority (that is, of priority 0) is the count of arrivals. A priority moves a request forward:
//! for each level, its number is lower by the amount that [`RISE`] requests with a priority add to the count.
//!
//! So a request passes those of a lower priority, unless they have waited for a long time, measured by the number of
//! later requests that have a priority, not by a clock. No number changes while a request waits, and waiters need no
//! counters: as the count goes on, all waiting requests rise together relative to all that will come.
//!
//! | bits | count |
//! |---|---|
//! | 32 to 63 | arrivals of requests with a priority |
//! | 8 to 31 | arrivals of requests without one. The 16 millionth carries, and so counts as one with a priority |
//! | 0 to 7 | in a turn: the priority. Two turns are never equal: if the bits above are, the priorities differ |

/// The number of later requests with a priority after which a waiter has risen by one level. So at most
/// `RISE * (q - p)` requests of priority `q` pass a waiter of priority `p` by their priority.
pub(super) const RISE: u64 = 16;

const PLAIN: u64 = 1 << 8;
const URGENT: u64 = 1 << 32;
const LEVEL: u64 = RISE * URGENT;

/// The place of a request in the order of its queue. Two turns are compared correctly if fewer than two billion
/// requests with a priority arrived between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn(u64);

impl Turn {
    #[inline]
    pub(crate) fn is_before(self, other: Turn) -> bool {
        (self.0.wrapping_sub(other.0) as i64) < 0
    }

    #[inline]
    pub(crate) fn priority(self) -> u8 {
        self.0 as u8
    }

    /// Returns whether a reader with this turn gets in with a readers' phase before this writer. It does not pass a
    /// writer of a higher priority, unless its own turn comes first.
    pub(crate) fn joins_phase_before(self, writer: Turn) -> bool {
        self.priority() >= writer.priority() || self.is_before(writer)
    }
}

/// The turns of a queue: the count of arrivals.
pub(super) struct Turns {
    count: u64,
}

impl Turns {
    pub(super) const fn new() -> Self {
        Turns { count: 0 }
    }

    /// Returns whether a request with a priority has arrived. (After 16 million requests without one, the answer is
    /// `true`, too, and lists are sorted needlessly. A separate flag would make each queue larger than 128 bytes, the
    /// most that are moved without a call.)
    #[inline]
    pub(super) fn has_priorities(&self) -> bool {
        self.count >= URGENT
    }

    /// Returns the turn of a request that arrives now.
    #[inline]
    pub(super) fn next(&self, priority: u8) -> Turn {
        Turn(self.count.wrapping_sub(u64::from(priority) * (LEVEL - 1)))
    }

    /// Counts an arrival, and returns its turn.
    #[inline]
    pub(super) fn take(&mut self, priority: u8) -> Turn {
        let turn = self.next(priority);
        self.count = self.count.wrapping_add(if priority > 0 { URGENT } else { PLAIN });
        turn
    }
}
