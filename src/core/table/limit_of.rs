//! The function by which a table of semaphores may give each key its own limit, and the greatest limit of the keys.

use alloc::boxed::Box;
use core::fmt;

use crate::core::wait::word::MAX_UNITS;
use crate::sync::{AtomicUsize, Ordering};

/// The limits of a table besides the default one.
pub(super) struct Limits<K> {
    of: Option<LimitOf<K>>,
    /// The greatest limit that a key of this table can have had until now. A request for more is a mistake.
    most: AtomicUsize,
}

/// User code that returns the number of permits of a key. It is called with no internal lock held.
pub(crate) struct LimitOf<K>(Box<dyn Fn(&K) -> u32 + Send + Sync>);

// The function is only called while the table is consistent.
impl<K> core::panic::UnwindSafe for LimitOf<K> {}
impl<K> core::panic::RefUnwindSafe for LimitOf<K> {}

impl<K> LimitOf<K> {
    pub(crate) fn new(of: impl Fn(&K) -> u32 + Send + Sync + 'static) -> Self {
        LimitOf(Box::new(of))
    }

    /// Calls the function.
    ///
    /// # Panics
    /// If the function panics, or returns a number that cannot be counted.
    #[cold]
    fn limit(&self, key: &K) -> usize {
        let limit = (self.0)(key) as usize;
        assert!(
            limit <= MAX_UNITS,
            "keylatch: the function given to `permits_for` must return at most {MAX_UNITS}, but returned {limit}"
        );
        limit
    }
}

impl<K> fmt::Debug for LimitOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitOf").finish_non_exhaustive()
    }
}

impl<K> Limits<K> {
    pub(super) fn new(of: Option<LimitOf<K>>, limit: usize) -> Self {
        let most = if of.is_some() { MAX_UNITS } else { limit };
        Limits { of, most: AtomicUsize::new(most) }
    }

    /// Returns whether the limit of each key is given by a function.
    #[inline]
    pub(super) fn asks(&self) -> bool {
        self.of.is_some()
    }

    /// Asks the function for the limit of the key, if there is a function.
    #[inline]
    pub(super) fn of(&self, key: &K) -> Option<usize> {
        self.of.as_ref().map(|of| of.limit(key))
    }

    #[inline]
    pub(super) fn greatest(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    pub(super) fn rise(&self, limit: usize) {
        self.most.fetch_max(limit, Ordering::Relaxed);
    }
}
