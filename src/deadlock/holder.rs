//! The data about a holder apart from its party: when and where it acquired its key, and under which label.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::panic::Location;
use core::time::Duration;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::Instant;

/// The origin of a hold: when, from which source line, and with which label its key was acquired.
///
/// A detector that was built with [`name_holders`](super::DetectorBuilder::name_holders) knows the origin of every
/// hold, and includes it in its [reports](super::Link::holder), in its [dump](super::HoldDump::holder), and in a
/// [`HoldEvent`].
///
/// `Display` writes it in one line: `for 3.2s, at src/import.rs:40, "rows"`.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, deadlock::Detector};
///
/// # futures_lite::future::block_on(async {
/// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::builder().name_holders(true).build());
/// let party = detector.party("import");
/// let held = party.acquire(locks.lock(&7)).label("rows").await.unwrap();
/// let dump = detector.dump();
/// let holder = dump.parties()[0].holds()[0].holder().unwrap();
/// assert_eq!(holder.location().file(), file!());
/// assert_eq!(holder.label(), Some("rows"));
/// assert!(holder.held_for().unwrap().as_secs() < 60);
/// # drop(held);
/// # });
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Holder {
    pub(super) location: &'static Location<'static>,
    pub(super) held_for: Option<Duration>,
    pub(super) label: Option<Cow<'static, str>>,
}

impl Holder {
    /// Returns the source line of the call that made the request: of `party.acquire(..)`, not of the poll that acquired
    /// the key. For an [adopted](super::Party::adopt) guard it is the call of `adopt`.
    ///
    /// # Examples
    /// See [`Holder`].
    #[must_use]
    pub fn location(&self) -> &'static Location<'static> {
        self.location
    }

    /// Returns how long the key had been held when the report was made. For an [adopted](super::Party::adopt) guard the
    /// time begins with the adoption. `None` without `std` and on WebAssembly, where there is no clock.
    ///
    /// # Examples
    /// See [`Holder`].
    #[must_use]
    pub fn held_for(&self) -> Option<Duration> {
        self.held_for
    }

    /// Returns the [label](super::TrackedRequest::label) of the request, or the last one that its guard was
    /// [given](super::Tracked::label) since, if there is one.
    ///
    /// # Examples
    /// See [`Holder`].
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(held_for) = self.held_for {
            write!(f, "for {held_for:.1?}, ")?;
        }
        write!(f, "at {}:{}", self.location.file(), self.location.line())?;
        match &self.label {
            Some(label) => write!(f, ", {label:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A hold that had already lasted long when a party began to wait for its key: the argument of the function set
/// by [`on_long_hold`](super::DetectorBuilder::on_long_hold).
///
/// # Examples
/// See [`on_long_hold`](super::DetectorBuilder::on_long_hold).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldEvent {
    pub(super) party: Cow<'static, str>,
    pub(super) key: String,
    pub(super) table: &'static str,
    pub(super) holder: Holder,
    pub(super) waiter: Cow<'static, str>,
}

impl HoldEvent {
    /// Returns the name of the party that holds the key.
    ///
    /// # Examples
    /// See [`on_long_hold`](super::DetectorBuilder::on_long_hold).
    #[must_use]
    pub fn party(&self) -> &str {
        &self.party
    }

    /// Returns the held key, as its `Debug` shows it.
    ///
    /// # Examples
    /// See [`on_long_hold`](super::DetectorBuilder::on_long_hold).
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the type of the key's table, as [`core::any::type_name`] names it; for a latch, `keylatch::Latch`.
    ///
    /// # Examples
    /// See [`on_long_hold`](super::DetectorBuilder::on_long_hold).
    #[must_use]
    pub fn table(&self) -> &str {
        self.table
    }

    /// Returns when, from which source line and with which label the party acquired the key.
    ///
    /// # Examples
    /// See [`on_long_hold`](super::DetectorBuilder::on_long_hold).
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Returns the name of the party that begins to wait for the key.
    ///
    /// # Examples
    /// See [`on_long_hold`](super::DetectorBuilder::on_long_hold).
    #[must_use]
    pub fn waiter(&self) -> &str {
        &self.waiter
    }
}

impl fmt::Display for HoldEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HoldEvent { party, key, holder, waiter, .. } = self;
        write!(f, "{waiter} waits for {key}, which {party} holds ({holder})")
    }
}

/// The user's function that is called for long holds, and the age at which a hold counts as long.
pub(super) struct Watchdog {
    pub(super) limit: Duration,
    pub(super) call: Box<dyn Fn(&HoldEvent) + Send + Sync>,
}

/// The origin of a request: the source line of the call that made it, and its label.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[derive(Clone, Debug)]
#[allow(unreachable_pub)]
pub struct Origin {
    pub(super) location: &'static Location<'static>,
    pub(super) label: Option<Cow<'static, str>>,
}

impl Origin {
    #[track_caller]
    pub(super) fn here() -> Self {
        Origin { location: Location::caller(), label: None }
    }
}

/// A moment in time. Empty without `std` and on WebAssembly, where there is no clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    instant: Instant,
}

impl Moment {
    pub(super) fn now() -> Self {
        Moment {
            #[cfg(all(feature = "std", not(target_family = "wasm")))]
            instant: Instant::now(),
        }
    }

    /// Returns the time that has passed since this moment; `None` if there is no clock.
    #[allow(clippy::unnecessary_wraps)] // where there is a clock
    pub(super) fn elapsed(self) -> Option<Duration> {
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        return Some(self.instant.elapsed());
        #[cfg(not(all(feature = "std", not(target_family = "wasm"))))]
        None
    }
}
