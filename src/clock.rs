use core::fmt;
use core::time::Duration;

use crate::sync::Lock;

/// The clock of a [`LockMap`](crate::LockMap) whose values end or have an age, set by
/// [`Builder::clock`](crate::Builder::clock).
///
/// A map reads its clock in almost every call that concerns a value, so a reading should take only a few nanoseconds.
/// The clock is read with no internal lock held, but the call may hold its key, so `now` must not wait for keys of the
/// map.
///
/// # Examples
/// A clock that counts the ticks of a timer interrupt:
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use std::time::Duration;
///
/// use keylatch::{Clock, LockMap};
///
/// static TICKS: AtomicU32 = AtomicU32::new(0);
///
/// struct Ticks;
///
/// impl Clock for Ticks {
///     fn now(&self) -> Duration {
///         Duration::from_millis(10) * TICKS.load(Relaxed)
///     }
/// }
///
/// let readings: LockMap<u8, i32> = LockMap::builder().time_to_live(Duration::from_secs(1)).clock(Ticks).build();
/// readings.try_write(&7).unwrap().insert(21);
/// assert!(readings.contains_key(&7));
/// TICKS.fetch_add(100, Relaxed);
/// assert!(!readings.contains_key(&7));
/// ```
pub trait Clock: Send + Sync {
    /// Returns the time since some fixed moment, such as the start of the program.
    ///
    /// It should never decrease. If it does, each part of the map goes on with the latest time that it has read, so a
    /// value that has ended stays ended.
    fn now(&self) -> Duration;
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Duration {
        (**self).now()
    }
}

#[cfg(target_has_atomic = "ptr")]
impl<C: Clock + ?Sized> Clock for alloc::sync::Arc<C> {
    fn now(&self) -> Duration {
        (**self).now()
    }
}

/// A clock that stands still until it is set, for tests.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use keylatch::{LockMap, ManualClock};
///
/// let clock = Arc::new(ManualClock::new());
/// let pages: LockMap<u64, &str> =
///     LockMap::builder().time_to_live(Duration::from_secs(60)).clock(Arc::clone(&clock)).build();
/// pages.insert_blocking(&1, "home");
/// clock.advance(Duration::from_secs(59));
/// assert_eq!(pages.get_blocking(&1), Some("home"));
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(pages.get_blocking(&1), None);
/// ```
pub struct ManualClock(Lock<Duration>);

impl ManualClock {
    /// Creates a clock that shows 0.
    ///
    /// # Examples
    /// See [`ManualClock`].
    #[must_use]
    pub fn new() -> Self {
        ManualClock(Lock::new(Duration::ZERO))
    }

    /// Moves the clock forward.
    ///
    /// # Examples
    /// See [`ManualClock`].
    pub fn advance(&self, by: Duration) {
        self.0.with(|now| *now = now.saturating_add(by));
    }

    /// Sets the clock, forward or backward.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch::{Clock, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// clock.set(Duration::from_secs(7));
    /// assert_eq!(clock.now(), Duration::from_secs(7));
    /// ```
    pub fn set(&self, now: Duration) {
        self.0.with(|time| *time = now);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        ManualClock::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        self.0.with(|now| *now)
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

/// The default clock: the monotonic time since it was made.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
pub(crate) struct Monotonic(std::time::Instant);

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl Monotonic {
    pub(crate) fn new() -> Self {
        Monotonic(std::time::Instant::now())
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl Clock for Monotonic {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
