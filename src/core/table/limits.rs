//! The limits of permits: see [the wait layer](crate::core::wait::limits). Here are the calls that change them, and the
//! function of the key that a table may have.

use alloc::boxed::Box;
use core::fmt;

use super::Core;
use super::lookup::{Ask, Join, Source};
use super::payload::Payload;
use super::slot::Live;
use super::visit::Visit;
use crate::core::wait::word::MAX_UNITS;
use crate::core::wait::{Access, WakeBatch, Want};
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

    fn rise(&self, limit: usize) {
        self.most.fetch_max(limit, Ordering::Relaxed);
    }
}

impl<K, V: Payload> Core<K, V> {
    /// Returns the default limit of permits; 0 if there are no permits.
    pub(crate) fn default_limit(&self) -> usize {
        self.waits.default_limit()
    }

    /// Returns the greatest limit that a key can have had until now.
    #[inline]
    pub(crate) fn greatest_limit(&self) -> usize {
        self.limits.most.load(Ordering::Relaxed)
    }

    /// Returns the limit of permits for a request without a claim.
    #[inline(always)]
    pub(super) fn default_limit_of(&self, access: Access) -> usize {
        if let Access::Permits(_) = access { self.default_limit() } else { 0 }
    }

    /// Returns the limit that the table's function gives the key, if there is one. Calls user code.
    #[inline(always)]
    pub(super) fn limit_of(&self, entry: Live<'_, K, V>, want: Want) -> Option<usize> {
        match (want, &self.limits.of) {
            (Want::Hold(Access::Permits(_)), Some(of)) => Some(of.limit(entry.key())),
            _ => None,
        }
    }

    /// Returns whether the limit of a key depends on user code, which needs a claim and must not run under a lock.
    #[inline(always)]
    pub(crate) fn asks_for_limits(&self) -> bool {
        self.limits.of.is_some()
    }

    /// Returns how a request joins an entry: as a claim only, if a new entry might not have a permit for it.
    #[inline(always)]
    pub(super) fn limited(&self, join: Join, access: Access) -> Join {
        match access {
            Access::Permits(_) if self.asks_for_limits() || self.default_limit() == 0 => Join::Claim,
            _ => join,
        }
    }

    /// Sets the limit of permits of a key. The key has an entry until the limit is [taken away](Self::reset_limit).
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`] units.
    pub(crate) fn set_limit(&self, source: &mut impl Source<K, V>, limit: usize) {
        self.limits.rise(limit);
        let mut caller = Visit::new(self, self.claim(source));
        let Some(entry) = caller.claim().as_ref().map(|claim| claim.live()) else { return };
        let mut kept = Visit::new(self, self.claim(&mut { entry }));
        let mut batch = WakeBatch::default();
        if self.waits.set_own_limit(entry.state(), limit, &mut batch) {
            if let Some(claim) = kept.claim().take() {
                claim.leave_to_limit();
            }
        }
    }

    /// Takes the limit of a key away. Returns whether it had one.
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`] units.
    pub(crate) fn reset_limit(&self, key: &impl Ask<K>) -> bool {
        let Some(claim) = self.find_claim(key) else { return false };
        let mut caller = Visit::new(self, claim);
        let Some(entry) = caller.claim().as_ref().map(|claim| claim.live()) else { return false };
        let limit = self.limit_of(entry, Want::Hold(Access::Permits(1)));
        let mut batch = WakeBatch::default();
        let had_one = self.waits.reset_limit(entry.state(), limit, &mut batch);
        let _kept = had_one.then(|| Visit::new(self, entry.claim_of_limit()));
        drop(batch); // the claims are given up after the wakers have run, and even if one panics
        had_one
    }

    /// Sets the default limit of permits.
    ///
    /// # Panics
    /// If an entry has [`MAX_UNITS`] units.
    pub(crate) fn set_default_limit(&self, limit: usize) {
        self.limits.rise(limit);
        self.waits.set_default_limit(limit);
        if self.asks_for_limits() {
            return; // no key has the default limit
        }
        self.visit(
            |entry| entry.state().word().is_queued().then_some(()),
            |mut visited, ()| {
                if let Some(claim) = visited.claim() {
                    self.waits.adopt_default_limit(claim.live().state(), &mut WakeBatch::default());
                }
            },
        );
    }
}
