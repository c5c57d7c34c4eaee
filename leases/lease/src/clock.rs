use alloc::sync::Arc;
use core::time::Duration;

use crate::sync::Unseen;

/// Where a table of leases takes its time from.
///
/// With `std` that is `StdClock` unless told otherwise. [`ManualClock`] is for tests. On a target without an operating
/// system, implement this for the timer you have.
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
    /// The time since an origin of the clock's own.
    ///
    /// It must never go back, neither in one thread nor from one thread to another: a lease that had expired would be
    /// valid again, beside the one that followed it. A clock that can be set, such as the time of day, will not do. It
    /// is read in every call, under a lock at times, so it should be quick, and must not use the leases itself.
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

    /// Whether time passes in this clock as it does in the timers of the standard library.
    ///
    /// If so, those who wait for a lease have timers of their own. If not, which is the default, somebody must call
    /// `tick` on the table: then those are served whose turn has come.
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
/// All copies tell the same time, and setting the time of day does not touch it.
///
/// Whether the time a machine spends suspended counts, so that a lease may expire while it sleeps, depends on the
/// system:
///
/// | system | the clock | origin | suspended time |
/// |---|---|---|---|
/// | Linux, Android | `CLOCK_BOOTTIME` | the boot | counts |
/// | Windows | [`Instant`](std::time::Instant), there `QueryPerformanceCounter` | the first use in this process | counts |
/// | macOS, iOS | `Instant`, there `CLOCK_UPTIME_RAW` | the first use in this process | does not count |
/// | others | `Instant` | the first use in this process | as `Instant` has it |
///
/// What `Instant` reads is documented by the standard library as its current choice, and what these calls count by
/// Microsoft and Apple.
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
    /// The clock of the system.
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
    // `Instant` is CLOCK_MONOTONIC here, which stands still while the machine is suspended: the leases of a laptop would
    // be hours behind those who wait for them.
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

/// A clock that stands still until it is told to advance: for tests, and for programs whose time is simulated.
///
/// Clones share the time, so keep one and give the other to the table. The clock starts at zero.
///
/// # Examples
///
/// ```
/// use core::time::Duration;
/// use keylatch_lease::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let of_the_table = clock.clone();
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(of_the_table.now(), Duration::from_secs(30));
/// ```
#[derive(Clone, Default)]
pub struct ManualClock {
    now: Arc<Unseen<Duration>>,
}

impl ManualClock {
    /// A clock at zero.
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

    /// Moves the time on, for all clones. It stops at [`Duration::MAX`].
    ///
    /// Nobody is woken by this: those who wait for a lease are served at the table's next `tick`.
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
