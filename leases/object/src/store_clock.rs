//! The store's clock, as far as a client can know it: a store notes when it wrote an object.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The time for which a reading is used.
const FRESH: Duration = Duration::from_secs(60);

/// The last reading of the store's clock.
#[derive(Debug)]
pub(crate) struct StoreClock {
    /// The longest difference between two clocks of the store, in microseconds.
    error: i64,
    /// A moment by this process's clock, and the same moment or an earlier one by the store's clock.
    reading: Mutex<Option<(Duration, i64)>>,
}

impl StoreClock {
    pub(crate) fn new(error: Duration) -> Self {
        let error = i64::try_from(error.as_micros()).unwrap_or(i64::MAX);
        StoreClock { error, reading: Mutex::new(None) }
    }

    fn reading(&self) -> Option<(Duration, i64)> {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the clock was read less than a minute before this time.
    pub(crate) fn is_fresh(&self, now: Duration) -> bool {
        self.reading().is_some_and(|(at, _)| now.saturating_sub(at) < FRESH)
    }

    /// Notes that an object that existed at the time `at`, by this process's clock, was written at `store`, by the
    /// store's.
    pub(crate) fn reads(&self, at: Duration, store: i64) {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, store));
    }

    /// Returns a time by the store's clock that is not later than this time by this process's, whose rate may differ by
    /// one percent.
    pub(crate) fn at(&self, now: Duration) -> Option<i64> {
        let (at, store) = self.reading()?;
        let since = now.checked_sub(at)?;
        let passed = i64::try_from((since - since / 100).as_micros()).ok()?;
        store.checked_add(passed)?.checked_sub(self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::StoreClock;
    use std::time::Duration;

    #[test]
    fn a_reading_goes_on_more_slowly_than_any_clock() {
        let clock = StoreClock::new(Duration::from_secs(2));
        let at = Duration::from_secs;
        assert!(clock.at(at(5)).is_none() && !clock.is_fresh(at(5)));
        clock.reads(at(5), 1_000_000_000);
        assert_eq!(clock.at(at(5)), Some(998_000_000));
        assert_eq!(clock.at(at(105)), Some(998_000_000 + 99_000_000));
        assert_eq!(clock.at(at(4)), None);
        assert!(clock.is_fresh(at(64)) && !clock.is_fresh(at(65)));
    }
}
