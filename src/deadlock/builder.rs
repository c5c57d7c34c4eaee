//! The settings of a detector.

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use core::time::Duration;

use super::Detector;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use super::holder::HoldEvent;
use super::holder::Watchdog;
use super::record::Shared;
use super::registry::Registry;
use crate::sync::Lock;

/// Builds a [`Detector`] with settings other than the defaults.
///
/// # Examples
/// ```
/// use keylatch::deadlock::Detector;
///
/// let detector = Detector::builder().name_holders(true).build();
/// # drop(detector);
/// ```
#[must_use = "a builder does nothing until `build` is called"]
#[derive(Default)]
pub struct DetectorBuilder {
    names_holders: bool,
    watchdog: Option<Watchdog>,
}

impl DetectorBuilder {
    /// Sets whether reports and dumps show, for each hold, its key, its age, the source line that requested it, and its
    /// [label](super::TrackedRequest::label).
    ///
    /// Each tracked acquire then runs the key's `Debug`, allocates, and reads the clock. The default is `false`: then a
    /// [dump](Detector::dump) names a held key only if a party waits for it, or if one of its tracked holders had to
    /// wait for it. Without `std`, and on WebAssembly, there is no clock, so the age of a hold is not shown.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<String>::new(), Detector::builder().name_holders(true).build());
    /// let party = detector.party("import");
    /// let held = party.try_acquire(locks.lock("a")).unwrap();
    /// assert_eq!(detector.dump().parties()[0].holds()[0].key(), Some("\"a\""));
    ///
    /// let deadlock = party.acquire_blocking(locks.lock("a")).unwrap_err().to_string();
    /// assert!(deadlock.starts_with("import waits for \"a\", which import holds (for "));
    /// # drop(held);
    /// ```
    pub fn name_holders(mut self, name: bool) -> Self {
        self.names_holders = name;
        self
    }

    /// Calls `f` when a request of a party begins to wait for a key that parties have held for `limit` or longer, once
    /// for each such hold. This also [names the holders](Self::name_holders), even if that is set to `false`.
    ///
    /// The detector looks only when a party begins to wait: a key for which no party waits may be held for any length
    /// of time, and a holder that passes the limit after the last waiter has begun to wait is not reported.
    ///
    /// `f` is called by the thread or task that begins to wait, with no internal lock held. It may use the detector and
    /// the tables, but should not wait for keys, because the caller is in a queue. If `f` owns a clone of the detector,
    /// neither is ever dropped. If `f` panics, the panic reaches the caller of the request: a blocking call gives up; a
    /// future for one key keeps its place until it is dropped, and a future for several keys gives up.
    ///
    /// # Examples
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    ///
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (reports, reported) = channel();
    /// let detector = Detector::builder()
    ///     .on_long_hold(Duration::from_millis(1), move |event| reports.send(event.clone()).unwrap())
    ///     .build();
    /// let (locks, import, export) = (KeyedMutex::<u64>::new(), detector.party("import"), detector.party("export"));
    /// let held = import.try_acquire(locks.lock(&7)).unwrap();
    /// std::thread::sleep(Duration::from_millis(2));
    /// assert!(export.try_acquire_for(locks.lock(&7), Duration::from_millis(1)).unwrap().is_none());
    ///
    /// let event = reported.recv().unwrap();
    /// assert_eq!((event.party(), event.waiter(), event.key()), ("import", "export", "7"));
    /// assert!(event.to_string().starts_with("export waits for 7, which import holds (for "));
    /// # drop(held);
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn on_long_hold(mut self, limit: Duration, f: impl Fn(&HoldEvent) + Send + Sync + 'static) -> Self {
        self.watchdog = Some(Watchdog { limit, call: Box::new(f) });
        self
    }

    /// Makes the detector, without parties.
    ///
    /// # Examples
    /// ```
    /// let detector = keylatch::deadlock::Detector::builder().build();
    /// let party = detector.party("import");
    /// ```
    #[must_use]
    pub fn build(self) -> Detector {
        let DetectorBuilder { names_holders, watchdog } = self;
        // An event contains data about the hold that only a detector that names its holders records.
        let names_holders = names_holders || watchdog.is_some();
        Detector { shared: Arc::new(Shared { registry: Lock::new(Registry::default()), names_holders, watchdog }) }
    }
}

impl fmt::Debug for DetectorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetectorBuilder")
            .field("name_holders", &self.names_holders)
            .field("on_long_hold", &self.watchdog.as_ref().map(|watchdog| watchdog.limit))
            .finish()
    }
}

impl Detector {
    /// Returns a builder for a detector with other settings: one that names holders, or reports long holds.
    ///
    /// # Examples
    /// See [`DetectorBuilder`].
    pub fn builder() -> DetectorBuilder {
        DetectorBuilder::default()
    }
}

impl Default for Detector {
    fn default() -> Self {
        DetectorBuilder::default().build()
    }
}
