//! The server's time, as far as it can be known here.
//!
//! The server writes the time on each message that it stores, and there is no other way to read its clock. A message
//! was stored after it was sent and before the answer arrived. So, by the process's own clock, which runs at about the
//! same rate, the server's time is known to lie between two bounds.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The greatest age at which a reading is usually good enough. Within that time two clocks drift apart by at most 10
/// ms, and once it has passed, a change of the server's clock is noticed.
pub(crate) const FRESH: Duration = Duration::from_secs(1);

/// The denominator of the greatest relative error between two clocks: they drift apart by 1 % at most.
const PARTS: u32 = 100;

/// The server's time, as one message shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) sequence: u64,
    /// The server's time, in nanoseconds since 1970.
    pub(crate) time: u64,
    /// The earliest time of the reading, by the clock of this process.
    pub(crate) from: Duration,
    /// The latest time of the reading, by the clock of this process.
    pub(crate) to: Duration,
}

impl Reading {
    /// Returns the current time by this reading, unless the reading is older than `age`.
    pub(crate) fn now(&self, here: Duration, age: Duration) -> Option<Now> {
        let Reading { sequence, time, from, to } = *self;
        let (most, least) = (here.checked_sub(from)?, here.checked_sub(to)?);
        if most > age {
            return None;
        }
        let after = |passed: Duration| time.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX));
        Some(Now { sequence, earliest: after(least - least / PARTS), latest: after(most + most / PARTS) })
    }
}

/// The last reading; `None` if there is none yet.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Mutex<Option<Reading>>);

/// Two bounds of the server's time, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// The sequence of the message that was read.
    pub(crate) sequence: u64,
    pub(crate) earliest: u64,
    pub(crate) latest: u64,
}

impl Now {
    /// Returns whether the end that the message with this sequence has set is past; `None` if that is not certain. A
    /// reading from before that message was stored cannot show that the end is past, because the server's clock may
    /// have been set back in between.
    pub(crate) fn is_past(&self, end: u64, sequence: u64) -> Option<bool> {
        match (self.earliest >= end, self.latest >= end) {
            (true, _) => (sequence <= self.sequence).then_some(true),
            (false, false) => Some(false),
            (false, true) => None,
        }
    }
}

impl ServerTime {
    fn lock(&self) -> MutexGuard<'_, Option<Reading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read(&self, reading: Reading) {
        let mut last = self.lock();
        if last.is_none_or(|last| last.to <= reading.to) {
            *last = Some(reading);
        }
    }

    /// Returns the current time by a fresh reading; `None` if there is none.
    pub(crate) fn now(&self, here: Duration) -> Option<Now> {
        self.about(here, FRESH)
    }

    /// Returns the current time by a reading that is not older than `age`; `None` if there is none.
    pub(crate) fn about(&self, here: Duration, age: Duration) -> Option<Now> {
        (*self.lock())?.now(here, age)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Now, Reading, ServerTime};

    const SECOND: u64 = 1_000_000_000;

    fn reading(sequence: u64, time: u64, from: u64, to: u64) -> Reading {
        Reading { sequence, time, from: Duration::from_millis(from), to: Duration::from_millis(to) }
    }

    #[test]
    fn the_servers_time_is_known_between_two_bounds() {
        let (time, at) = (ServerTime::default(), Duration::from_millis);
        let now = |earliest, latest| Some(Now { sequence: 7, earliest, latest });
        assert_eq!(time.now(at(0)), None);
        time.read(reading(7, 5 * SECOND, 100, 200));
        assert_eq!(time.now(at(200)), now(5_000_000_000, 5_101_000_000));
        assert_eq!(time.now(at(300)), now(5_099_000_000, 5_202_000_000));
        assert_eq!(time.now(at(1200)), None, "the reading is too old");
        // An earlier reading does not replace a later one.
        time.read(reading(6, 1, 0, 150));
        assert_eq!(time.now(at(200)).map(|now| now.earliest), Some(5_000_000_000));
    }

    #[test]
    fn an_end_is_past_or_not_or_uncertain() {
        let now = Now { sequence: 7, earliest: 10, latest: 20 };
        let past = |sequence| [5, 10, 11, 20, 21].map(|end| now.is_past(end, sequence));
        assert_eq!(past(7), [Some(true), Some(true), None, None, Some(false)]);
        assert_eq!(past(8), [None, None, None, None, Some(false)]);
    }

    #[test]
    fn a_reading_from_before_the_clock_was_set_back_ends_no_later_tenure() {
        let time = ServerTime::default();
        time.read(reading(7, 100 * SECOND, 0, 1));
        // The tenure was stored at 40 s, for 10 s.
        let now = time.now(Duration::from_millis(300)).unwrap();
        assert_eq!(now.is_past(50 * SECOND, 8), None);
        // The previous tenure had ended.
        assert_eq!(now.is_past(50 * SECOND, 6), Some(true));
    }
}
