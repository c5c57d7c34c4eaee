//! What time it is on the server, as far as that can be known from here.
//!
//! The server writes the time on each message that it stores, and there is no other way to ask it. A message was stored after it was sent, and before
//! the answer: so by a clock of one's own that runs about as fast, the server's time is known between two bounds.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How old a reading may be, usually. Until then clocks differ by 10 ms at most, and one that was set is noticed.
pub(crate) const FRESH: Duration = Duration::from_secs(1);

/// By as many parts two clocks run apart at most.
const PARTS: u32 = 100;

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Nanoseconds since 1970, by the server.
    time: u64,
    /// By the clock of this process: it was not earlier.
    from: Duration,
    /// And not later.
    to: Duration,
}

/// What was read last.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Mutex<Option<Reading>>);

/// Nanoseconds since 1970, by the server: it is not earlier than the one, and not later than the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    pub(crate) earliest: u64,
    pub(crate) latest: u64,
}

impl Now {
    /// Whether an end is past, if that is sure.
    pub(crate) fn is_past(&self, end: u64) -> Option<bool> {
        match (self.earliest >= end, self.latest >= end) {
            (true, _) => Some(true),
            (false, false) => Some(false),
            (false, true) => None,
        }
    }
}

impl ServerTime {
    fn lock(&self) -> MutexGuard<'_, Option<Reading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message of this time was asked for at `from`, and known to be there at `to`.
    pub(crate) fn read(&self, time: u64, from: Duration, to: Duration) {
        let mut last = self.lock();
        if last.is_none_or(|last| last.to <= to) {
            *last = Some(Reading { time, from, to });
        }
    }

    /// By a reading of this age at most; `None`: there is none.
    pub(crate) fn now(&self, here: Duration, age: Duration) -> Option<Now> {
        let Reading { time, from, to } = (*self.lock())?;
        let (most, least) = (here.checked_sub(from)?, here.checked_sub(to)?);
        if most > age {
            return None;
        }
        let after = |passed: Duration| time.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX));
        Some(Now { earliest: after(least - least / PARTS), latest: after(most + most / PARTS) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FRESH, Now, ServerTime};

    #[test]
    fn it_is_known_between_two_bounds() {
        let (time, at) = (ServerTime::default(), Duration::from_millis);
        assert_eq!(time.now(at(0), FRESH), None);
        time.read(5_000_000_000, at(100), at(200));
        assert_eq!(time.now(at(200), FRESH), Some(Now { earliest: 5_000_000_000, latest: 5_101_000_000 }));
        assert_eq!(time.now(at(300), FRESH), Some(Now { earliest: 5_099_000_000, latest: 5_202_000_000 }));
        assert_eq!(time.now(at(1200), FRESH), None, "too old");
        // A question that was answered earlier says nothing new.
        time.read(1, at(0), at(150));
        assert_eq!(time.now(at(200), FRESH).map(|now| now.earliest), Some(5_000_000_000));
    }

    #[test]
    fn an_end_is_past_or_not_or_nobody_knows() {
        let now = Now { earliest: 10, latest: 20 };
        assert_eq!([5, 10, 11, 20, 21].map(|end| now.is_past(end)), [Some(true), Some(true), None, None, Some(false)]);
    }
}
