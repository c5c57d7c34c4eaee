use alloc::boxed::Box;
use core::time::Duration;

use super::{LockMap, MapKind};
use crate::builder::Builder;
use crate::clock::Clock;

/// Values that end.
///
/// | setting | a value ends |
/// |---|---|
/// | [`time_to_live`](Builder::time_to_live) | a fixed time after it was stored or changed |
/// | [`time_to_idle`](Builder::time_to_idle) | a fixed time after it was last used |
/// | [`expire_with`](Builder::expire_with) | after the time that a function of the key and the value returns |
///
/// If several are set, the earliest time counts. [`time_to_live`](Builder::time_to_live) explains what it means for a
/// value to end.
impl<V, K, S> Builder<MapKind<V>, K, S> {
    /// Lets each value end when `time` has passed since it was stored or changed.
    ///
    /// A value that has ended is gone for every caller: each call compares the value's time with the clock, so no call
    /// that begins later finds the value, whether or not its memory has been freed. A
    /// [`check_absent`](crate::Batch::check_absent) succeeds, and a later value of the key has a later
    /// [version](LockMap#versions).
    ///
    /// # Values in use
    /// A value does not end while a caller that has found it holds its key: a guard that has a value keeps it. If its
    /// time passes meanwhile, the value ends when the last such guard is dropped, before any waiter gets the key. Until
    /// then, other calls find it, too, if they need no lock, or can read it beside the holder. So readers that overlap
    /// without a gap keep a value alive. Hold the guards of a cache only briefly, or copy values with
    /// [`get`](LockMap::get), which holds the key only while it clones the value.
    ///
    /// The time of a value is counted from the moment at which its writer releases the key or becomes a reader, not
    /// from the insertion.
    ///
    /// # Memory
    /// Ended values are dropped in passing: each call that releases a key of the same shard drops a few, and
    /// [`tick`](LockMap::tick) drops all. (A reader that drops its guard may do so without reading the clock. A value
    /// whose time has passed under the guard has ended by then, but may stay in memory until another call for a key of
    /// the shard reads the clock.) Values are dropped with no lock held. If the map has a function
    /// [`on_evict`](Builder::on_evict), the function is handed each value, with
    /// [`Evicted::Expired`](crate::Evicted::Expired). An ended value whose key has a [handle](crate::KeyHandle) stays
    /// in memory until the handle is dropped or another value is stored. So does one whose key is kept by an unpolled
    /// future or a [refresher](LockMap::get_or_refresh_with), if the map has an `on_evict`, which needs the key. If a
    /// caller stores a new value while the ended one is still in memory, `on_evict` is handed a clone of the key.
    ///
    /// In a map with [`max_values`](Builder::max_values) or [`max_weight`](Builder::max_weight), values that have ended
    /// are dropped before live ones are evicted.
    ///
    /// A value that ends takes about 50 to 60 bytes more than one that does not. In a map whose values do not end, this
    /// feature costs no memory, and at most three instructions a call.
    ///
    /// # Time
    /// Calls for values take longer: they read the clock, which takes longer than the rest of a
    /// [`get`](LockMap::get), and those that acquire a key take an internal lock more often. If a coarser time will do,
    /// set a [`clock`](Builder::clock) that costs less. Without `std`, and on WebAssembly, there is no default clock,
    /// and one must be set.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch::LockMap;
    ///
    /// let pages: LockMap<String, String> = LockMap::builder().time_to_live(Duration::from_secs(60)).build();
    /// let page = pages.get_or_insert_with_blocking("home", || "rendered at most once a minute".to_string());
    /// # drop(page);
    /// ```
    #[doc(alias = "ttl")]
    #[doc(alias = "expiration")]
    pub fn time_to_live(mut self, time: Duration) -> Self
    where
        K: Clone,
    {
        self.hooks().get_or_insert_default().time().live = Some(time);
        self
    }

    /// Lets each value end when `time` has passed since it was last used, stored or changed.
    ///
    /// A use is a call that finds the value, as for [`max_values`](Builder::max_values): so [`peek`](LockMap::peek),
    /// [`contains_key`](LockMap::contains_key), [`walk`](LockMap::walk) and [`for_each_value`](LockMap::for_each_value)
    /// do not extend a value's life. After a use, the time is counted from the moment at which the call acquires the
    /// key. See [`time_to_live`](Self::time_to_live) for everything else.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use keylatch::{LockMap, ManualClock};
    ///
    /// let clock = Arc::new(ManualClock::new());
    /// let sessions: LockMap<u64, &str> =
    ///     LockMap::builder().time_to_idle(Duration::from_secs(600)).clock(Arc::clone(&clock)).build();
    /// sessions.insert_blocking(&1, "alice");
    /// clock.advance(Duration::from_secs(599));
    /// assert_eq!(sessions.get_blocking(&1), Some("alice")); // ten minutes more
    /// clock.advance(Duration::from_secs(599));
    /// assert_eq!(sessions.peek_blocking(&1), Some("alice")); // not a use
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(sessions.get_blocking(&1), None);
    /// ```
    #[doc(alias = "tti")]
    pub fn time_to_idle(mut self, time: Duration) -> Self
    where
        K: Clone,
    {
        self.hooks().get_or_insert_default().time().idle = Some(time);
        self
    }

    /// Lets each value end when the time that `f` returns has passed since the value was stored or changed, or never if
    /// `f` returns `None`.
    ///
    /// `f` is called once for each writer that has stored or changed a value, when that writer releases the key or
    /// becomes a reader. Meanwhile the writer holds the key, but no internal lock, so `f` may use other keys, but a
    /// request for its own key would wait for ever. A guard's [`value_mut`](crate::Guard::value_mut) counts as a
    /// change.
    ///
    /// If several times are set, the earliest counts. See [`time_to_live`](Self::time_to_live) for everything else.
    ///
    /// # Panics
    /// If `f` panics, the panic reaches the call that releases the key. The key is free then, and the value stays, as
    /// if `f` had returned `None`. Without `std` a panic is not caught.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use keylatch::{LockMap, ManualClock};
    ///
    /// struct Answer {
    ///     text: &'static str,
    ///     max_age: Option<Duration>, // as the server says
    /// }
    ///
    /// let clock = Arc::new(ManualClock::new());
    /// let answers: LockMap<String, Answer> = LockMap::builder()
    ///     .expire_with(|_, answer: &Answer| answer.max_age)
    ///     .clock(Arc::clone(&clock))
    ///     .build();
    /// answers.insert_blocking("a", Answer { text: "news", max_age: Some(Duration::from_secs(5)) });
    /// answers.insert_blocking("b", Answer { text: "history", max_age: None });
    /// clock.advance(Duration::from_secs(5));
    /// assert!(answers.read_blocking("a").value().is_none());
    /// assert_eq!(answers.read_blocking("b").value().unwrap().text, "history");
    /// ```
    pub fn expire_with(mut self, f: impl Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static) -> Self
    where
        K: Clone,
    {
        self.hooks().get_or_insert_default().time().expire = Some(Box::new(f));
        self
    }

    /// Sets the clock that decides when values [end](Self::time_to_live), and measures their [ages](Self::record_ages).
    ///
    /// By default it is a monotonic clock of the standard library. Without `std`, and on WebAssembly, there is no
    /// default clock, and a map whose values end, or whose ages are recorded, must be given one; otherwise
    /// [`build`](Builder::build) panics. In any other map the clock is never read.
    ///
    /// The clock is never read under an internal lock, but a call may hold its own key meanwhile. If the clock panics,
    /// the panic reaches the call, which releases its key; a call that is releasing a key then compares the value's
    /// time with the latest time that any call has seen in the key's shard. Without `std` a panic is not caught.
    ///
    /// # Examples
    /// See [`Clock`] and [`ManualClock`](crate::ManualClock).
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.hooks().get_or_insert_default().clock = Some(Box::new(clock));
        self
    }
}

/// Values that end.
impl<K, V, S> LockMap<K, V, S> {
    /// Disposes of all values that have ended, and returns the time until the next one may end; `None` if no value has
    /// an end.
    ///
    /// No other call depends on this: a value that has ended is not found, whether or not its memory has been freed. A
    /// map that is used disposes of ended values in passing. If their memory should be freed, or
    /// [`on_evict`](Builder::on_evict) called, sooner than that, call this now and then, or after the returned time.
    ///
    /// Values that are in use stay, and so do those that a handle, an unpolled future or a refresher keeps, as
    /// [`time_to_live`](Builder::time_to_live) explains. The returned time may be too short, for instance because a
    /// value was used since; it is never 0. A value does not count if its time has passed but it is in use, or if the
    /// writer that stored it has not released the key yet.
    ///
    /// `on_evict` and the drop of a value may call this. If such calls are nested, the innermost ones leave values to
    /// those around them, or to another thread that is disposing of values of the same [shard](Builder::shards), so
    /// that the stack does not grow with the number of values. It may grow with the number of shards, by one level
    /// each.
    ///
    /// This call waits for no holder, only for calls that hold an internal lock for a few dozen instructions, and it
    /// holds the internal locks equally briefly itself.
    ///
    /// # Panics
    /// If the clock panics; then nothing has changed. If drops of values or keys, or `on_evict`, panic, all ended
    /// values are still disposed of, and then the first panic resumes.
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
    /// clock.advance(Duration::from_secs(20));
    /// pages.insert_blocking(&2, "news");
    /// assert_eq!(pages.tick(), Some(Duration::from_secs(40)));
    /// clock.advance(Duration::from_secs(40));
    /// assert_eq!((pages.len(), pages.entries()), (1, 2)); // the memory of the first page is still there
    /// assert_eq!(pages.tick(), Some(Duration::from_secs(20)));
    /// assert_eq!(pages.entries(), 1);
    /// ```
    #[doc(alias = "run_pending_tasks")]
    #[doc(alias = "purge")]
    pub fn tick(&self) -> Option<Duration> {
        self.core.tick()
    }
}
