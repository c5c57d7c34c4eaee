use alloc::sync::Arc;
use core::time::Duration;

use crate::sync::Unseen;

/// The source of time for [`Leases`](crate::Leases).
///
/// With `std` the default is `StdClock`. [`ManualClock`] is for tests. On a target without an operating system,
/// implement this trait for the timer of the target.
///
/// # Examples
///
/// A clock for embassy:
///
/// ```
/// use core::time::Duration;
/// use keylatch_lease::Clock;
///
/// # mod embassy_time {
/// #     pub struct Instant;
/// #     impl Instant {
/// #         pub fn now() -> Self { Instant }
/// #         pub fn as_micros(&self) -> u64 { 1_500_000 }
/// #     }
/// # }
/// struct EmbassyClock;
///
/// impl Clock for EmbassyClock {
///     fn now(&self) -> Duration {
///         Duration::from_micros(embassy_time::Instant::now().as_micros())
///     }
/// }
///
/// assert_eq!(EmbassyClock.now(), Duration::from_millis(1500));
/// ```
pub trait Clock: Send + Sync {
    /// Returns the time since an origin that the clock chooses.
    ///
    /// The time must never go back, neither in one thread nor from one thread to another: otherwise an expired lease
    /// could become valid again, alongside the lease that followed it. A clock that can be set, such as the time of
    /// day, will not do. Every call reads the clock, sometimes under a lock, so reading must be quick and must not use
    /// the leases itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Clock, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let earlier = clock.now();
    /// assert!(clock.now() >= earlier);
    /// ```
    fn now(&self) -> Duration;

    /// Returns whether this clock advances in real time, like the clocks of the standard library.
    ///
    /// If so, the waiters for a lease have their own timers (with the feature `std`). If not, which is the default, or
    /// without `std`, the program must call [`Leases::tick`](crate::Leases::tick), which serves the waiters that are
    /// due.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Clock, ManualClock};
    ///
    /// assert!(!ManualClock::new().is_real_time());
    /// # #[cfg(feature = "std")]
    /// assert!(keylatch_lease::StdClock::new().is_real_time());
    /// ```
    fn is_real_time(&self) -> bool {
        false
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Duration {
        (**self).now()
    }

    fn is_real_time(&self) -> bool {
        (**self).is_real_time()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Duration {
        (**self).now()
    }

    fn is_real_time(&self) -> bool {
        (**self).is_real_time()
    }
}

/// The steady clock of the operating system.
///
/// All copies show the same time, and setting the time of day does not affect it.
///
/// The system determines whether the time that a machine spends suspended counts, and so whether a lease may expire
/// while the machine sleeps:
///
/// | system | the clock | origin | suspended time |
/// |---|---|---|---|
/// | Linux, Android | `CLOCK_BOOTTIME` | the boot | counts |
/// | Windows | [`Instant`](std::time::Instant), there `QueryPerformanceCounter` | the first use in this process | counts |
/// | macOS, iOS | `Instant`, there `CLOCK_UPTIME_RAW` | the first use in this process | does not count |
/// | others | `Instant` | the first use in this process | as for `Instant` |
///
/// The standard library documents which system clock `Instant` currently reads; Microsoft and Apple document what those
/// clocks count.
///
/// # Examples
///
/// ```
/// use core::time::Duration;
/// use keylatch_lease::{Clock, StdClock};
///
/// let clock = StdClock::new();
/// let before = clock.now();
/// std::thread::sleep(Duration::from_millis(5));
/// assert!(clock.now() - before >= Duration::from_millis(5));
/// ```
#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
#[derive(Clone, Copy, Debug, Default)]
pub struct StdClock(());

#[cfg(feature = "std")]
impl StdClock {
    /// Returns the clock of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Clock, StdClock};
    ///
    /// let earlier = StdClock::new().now();
    /// assert!(StdClock::new().now() >= earlier);
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl Clock for StdClock {
    // `Instant` is CLOCK_MONOTONIC here, which stands still while the machine is suspended: the leases of a laptop
    // would expire hours too late for their waiters.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};

        clock_gettime(ClockId::Boottime).try_into().expect("the time since the boot is not negative")
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn now(&self) -> Duration {
        use std::sync::OnceLock;
        use std::time::Instant;

        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        ORIGIN.get_or_init(Instant::now).elapsed()
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

/// A clock that stands still until [`advance`](Self::advance) is called: for tests, and for programs that simulate
/// time.
///
/// Clones share the time, so keep one and give the other to the [`Leases`](crate::Leases). The clock starts at zero.
///
/// # Examples
///
/// ```
/// use core::time::Duration;
/// use keylatch_lease::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let clock_of_the_leases = clock.clone();
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(clock_of_the_leases.now(), Duration::from_secs(30));
/// ```
#[derive(Clone, Default)]
pub struct ManualClock {
    now: Arc<Unseen<Duration>>,
}

impl ManualClock {
    /// Creates a clock at zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use core::time::Duration;
    /// use keylatch_lease::{Clock, ManualClock};
    ///
    /// assert_eq!(ManualClock::new().now(), Duration::ZERO);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the time forward, for all clones. The time stops at [`Duration::MAX`].
    ///
    /// This wakes no waiter: waiters are served at the next [`Leases::tick`](crate::Leases::tick).
    ///
    /// # Examples
    ///
    /// ```
    /// use core::time::Duration;
    /// use keylatch_lease::{Clock, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// clock.advance(Duration::from_secs(30));
    /// clock.advance(Duration::from_millis(500));
    /// assert_eq!(clock.now(), Duration::from_millis(30_500));
    /// ```
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock();
        *now = now.saturating_add(by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.now.lock()
    }
}

impl core::fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}
