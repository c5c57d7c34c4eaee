//! The user's functions that only some maps have: to receive evicted values, to tell when values end, and to weigh
//! them.

use alloc::boxed::Box;
use core::time::Duration;

use super::deadlines::NEVER;
use super::on_evict::OnEvict;
use crate::clock::Clock;
use crate::sync::Lock;

/// See the [module](self). `pub` because sealed traits name it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Hooks<K, T> {
    pub(crate) on_evict: Option<OnEvict<K, T>>,
    pub(crate) time: Option<Time<K, T>>,
    pub(crate) weigher: Option<Weigher<K, T>>,
    /// The clock: the user's, or else the default one, which `complete` sets.
    pub(crate) clock: Option<Box<dyn Clock>>,
}

/// The settings that decide when values end, and whether their ages are recorded. They include user code, which is
/// called with no internal lock held. `pub` because sealed traits name it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Time<K, T> {
    /// Values end this long after they were stored or changed, ...
    pub(crate) live: Option<Duration>,
    /// ... this long after they were last used, ...
    pub(crate) idle: Option<Duration>,
    /// ... or when this function says.
    pub(crate) expire: Option<Box<Expire<K, T>>>,
    /// Whether the ages of values are recorded.
    pub(crate) ages: bool,
    /// Copies the key of a value that has ended while its key is in use.
    pub(super) copy_key: fn(&K) -> K,
}

/// The user's function that weighs values, called with no internal lock held, and the bound. `pub` because sealed
/// traits name it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Weigher<K, T> {
    /// The largest total weight of the values. It is in a lock, because some targets have no 64-bit atomics. A shard
    /// reads it under its own lock.
    most: Lock<u64>,
    weigh: Box<Weigh<K, T>>,
}

type Weigh<K, T> = dyn Fn(&K, &T) -> u32 + Send + Sync;

type Expire<K, T> = dyn Fn(&K, &T) -> Option<Duration> + Send + Sync;

// The functions are only called while the table is consistent.
impl<K, T> core::panic::UnwindSafe for Hooks<K, T> {}
impl<K, T> core::panic::RefUnwindSafe for Hooks<K, T> {}

impl<K, T> Default for Hooks<K, T> {
    fn default() -> Self {
        Hooks { on_evict: None, time: None, weigher: None, clock: None }
    }
}

impl<K, T> Hooks<K, T> {
    /// Returns the settings of a map whose values end, or have an age.
    pub(crate) fn time(&mut self) -> &mut Time<K, T>
    where
        K: Clone,
    {
        self.time.get_or_insert_with(|| Time { live: None, idle: None, expire: None, ages: false, copy_key: K::clone })
    }

    /// Returns whether the map records something about each value: when it ends, its age, or its weight.
    pub(super) fn has_records(&self) -> bool {
        self.time.is_some() || self.weigher.is_some()
    }

    /// Returns whether there is a function to ask about a value that has changed.
    pub(super) fn asks(&self) -> bool {
        self.weigher.is_some() || self.time.as_ref().is_some_and(|time| time.expire.is_some())
    }

    /// Completes the settings: a map whose values end, or have an age, needs a clock.
    ///
    /// # Panics
    /// If there is no clock, and no default one.
    #[track_caller]
    pub(crate) fn complete(&mut self) {
        if self.time.is_none() || self.clock.is_some() {
            return;
        }
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        {
            self.clock = Some(Box::new(crate::clock::Monotonic::new()));
        }
        #[cfg(not(all(feature = "std", not(target_family = "wasm"))))]
        panic!(
            "keylatch: a map whose values end, or whose ages are recorded, needs a clock, and there is no default one \
             without `std`: set one with `Builder::clock`"
        );
    }

    /// Reads the clock, in nanoseconds; 0 if there is none.
    pub(super) fn now(&self) -> u64 {
        self.clock.as_ref().map_or(0, |clock| nanoseconds(clock.now()))
    }
}

impl<K, T> Time<K, T> {
    /// Returns whether values end.
    pub(crate) fn ends(&self) -> bool {
        self.live.is_some() || self.idle.is_some() || self.expire.is_some()
    }

    /// Returns two times for a value that is being stored or changed: when it ends, and when it ends unless it is used
    /// before. `own` is the time until its end according to the user's function.
    pub(super) fn deadline(&self, now: u64, own: Option<Duration>) -> (u64, u64) {
        let ends = [self.live, own].into_iter().flatten().map(|span| after(now, span)).min();
        (ends.unwrap_or(NEVER), self.idle_deadline(now))
    }

    pub(super) fn idle_deadline(&self, now: u64) -> u64 {
        self.idle.map_or(NEVER, |idle| after(now, idle))
    }

    /// Asks the user's function, if there is one, when the value ends.
    pub(super) fn ask(&self, key: &K, value: &T) -> Option<Duration> {
        self.expire.as_ref().and_then(|expire| expire(key, value))
    }
}

impl<K, T> Weigher<K, T> {
    pub(crate) fn new(most: u64, weigh: impl Fn(&K, &T) -> u32 + Send + Sync + 'static) -> Self {
        Weigher { most: Lock::new(most), weigh: Box::new(weigh) }
    }

    pub(crate) fn most(&self) -> u64 {
        self.most.with(|most| *most)
    }

    pub(super) fn set_most(&self, n: u64) {
        self.most.with(|most| *most = n);
    }

    /// Asks the user's function for the weight of a value.
    pub(super) fn ask(&self, key: &K, value: &T) -> u32 {
        (self.weigh)(key, value)
    }
}

fn after(now: u64, span: Duration) -> u64 {
    now.saturating_add(nanoseconds(span))
}

/// Returns a time in nanoseconds; at most `u64::MAX`, which is 584 years.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}
