//! The calls that read and change the limits of permits: see the wait layer's file of the same name.

use super::Core;
use super::lookup::{Ask, Join, Source};
use super::payload::Payload;
use super::slot::Live;
use super::visit::Visit;
use crate::core::wait::{Access, WakeBatch, Want};

impl<K, V: Payload> Core<K, V> {
    /// Returns the default limit of permits; 0 if there are no permits.
    pub(crate) fn default_limit(&self) -> usize {
        self.waits.default_limit()
    }

    /// Returns the greatest limit that any key can have had so far.
    #[inline]
    pub(crate) fn greatest_limit(&self) -> usize {
        self.limits.greatest()
    }

    /// Returns the limit of permits for a request without a claim; 0 if the request is not for permits.
    #[inline(always)]
    pub(super) fn default_limit_of(&self, access: Access) -> usize {
        if let Access::Permits(_) = access { self.default_limit() } else { 0 }
    }

    /// Returns the limit that the table's function gives the key; `None` if there is no such function, or if the
    /// request is not for permits. Calls user code.
    #[inline(always)]
    pub(super) fn limit_of(&self, entry: Live<'_, K, V>, want: Want) -> Option<usize> {
        match want {
            Want::Hold(Access::Permits(_)) => self.limits.of(entry.key()),
            Want::Hold(_) | Want::Upgrade => None,
        }
    }

    /// Returns whether the limit of a key depends on user code, which needs a claim and must not run under a lock.
    #[inline(always)]
    pub(crate) fn asks_for_limits(&self) -> bool {
        self.limits.asks()
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
    /// If the entry has no room for two more units (see [`MAX_UNITS`](crate::core::MAX_UNITS)), or if a new entry is
    /// needed and the shard is full.
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
    /// If the entry has [`MAX_UNITS`](crate::core::MAX_UNITS) units, or if the table's function panics.
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
    /// If an entry with waiters or a limit of its own has [`MAX_UNITS`](crate::core::MAX_UNITS) units.
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
