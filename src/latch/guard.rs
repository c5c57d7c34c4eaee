#[cfg(target_has_atomic = "ptr")]
use alloc::{format, string::String};
use core::fmt;

#[cfg(target_has_atomic = "ptr")]
use crate::core::{Access, Identity};
use crate::core::{LatchWord, ReleaseFor, WakeBatch};
use crate::fairness::Fairness;
use crate::mode::{Exclusive, HandOver, Mode, ReadOrWrite, Shared, Upgradable};

/// A hold on a [`Latch`](crate::Latch), or on a stripe of a [`Striped`](crate::Striped), released when the guard is
/// dropped. `M` is its [mode](crate::mode): use the aliases [`LatchReadGuard`], [`LatchUpgradableGuard`] and
/// [`LatchWriteGuard`].
///
/// It is `Send` and `Sync`, and may be dropped in a thread or task other than the one that acquired it. A drop during a
/// panic releases the latch, too: there is no poisoning. A forgotten guard keeps its latch locked for good.
///
/// # Examples
/// ```
/// use keylatch::{Latch, LatchWriteGuard};
///
/// static CONFIG: Latch = Latch::new();
///
/// fn reload(_proof: &LatchWriteGuard<'_>) { /* only a holder can call this */ }
///
/// let guard = CONFIG.write_blocking();
/// reload(&guard);
/// ```
#[must_use = "the latch is released at once if the guard is not kept"]
#[clippy::has_significant_drop]
pub struct LatchGuard<'a, M: Mode> {
    word: &'a LatchWord,
    fairness: Fairness,
    mode: M,
}

/// A reader's hold on a latch, shared with other readers. See [`LatchGuard`].
pub type LatchReadGuard<'a> = LatchGuard<'a, Shared>;

/// An upgradable reader's hold on a latch, shared with other readers: it may become a writer's. See [`LatchGuard`].
pub type LatchUpgradableGuard<'a> = LatchGuard<'a, Upgradable>;

/// A writer's hold on a latch, with no other holder. See [`LatchGuard`].
pub type LatchWriteGuard<'a> = LatchGuard<'a, Exclusive>;

impl<'a, M: Mode> LatchGuard<'a, M> {
    /// Makes the guard of a hold that the word counts and that has no other guard.
    #[inline]
    pub(super) fn new(word: &'a LatchWord, fairness: Fairness, mode: M) -> Self {
        LatchGuard { word, fairness, mode }
    }

    #[inline]
    pub(super) fn word(&self) -> &'a LatchWord {
        self.word
    }

    #[inline]
    pub(super) fn fairness(&self) -> Fairness {
        self.fairness
    }

    /// Retypes the guard as one of `mode`. The word must already count the hold in that mode.
    #[inline]
    pub(super) fn rename<N: Mode>(self, mode: N) -> LatchGuard<'a, N> {
        let LatchGuard { word, fairness, .. } = self;
        core::mem::forget(self);
        LatchGuard { word, fairness, mode }
    }

    /// Takes the hold out of the guard. The caller must make another guard for the hold, on the same latch.
    #[cfg(target_has_atomic = "ptr")] // for owned guards
    pub(super) fn into_hold(self) -> M {
        let mode = self.mode;
        core::mem::forget(self);
        mode
    }

    /// Releases the hold, and adds the wakers that must be called to `batch`.
    pub(super) fn release_into(self, batch: &mut WakeBatch) {
        self.release_for(ReleaseFor::Anybody, Some(batch));
    }

    /// Releases the hold for `whom`. Puts the wakers of the admitted waiters into `batch`, if there is one; otherwise
    /// calls them.
    pub(super) fn release_for(self, whom: ReleaseFor, batch: Option<&mut WakeBatch>) {
        let LatchGuard { word, fairness, .. } = self;
        let access = self.mode.access();
        core::mem::forget(self);
        word.release(access, whom, fairness, batch);
    }

    /// Replaces the hold with a weaker one.
    pub(super) fn downgraded<N: Mode>(self, mode: N) -> LatchGuard<'a, N> {
        let mut batch = WakeBatch::default();
        self.word.downgrade(self.mode.access(), mode.access(), self.fairness, &mut batch);
        let weaker = self.rename(mode);
        drop(batch); // if a waker panics, the weaker hold is released while unwinding
        weaker
    }
}

impl<'a> LatchGuard<'a, ReadOrWrite> {
    pub(crate) fn writes(&self) -> bool {
        self.mode.writes
    }

    /// Retypes the guard according to its mode: `Ok` for a reader, `Err` for a writer.
    pub(crate) fn sort(self) -> Result<LatchReadGuard<'a>, LatchWriteGuard<'a>> {
        if self.mode.writes { Err(self.rename(Exclusive::NEW)) } else { Ok(self.rename(Shared::NEW)) }
    }
}

impl<'a> LatchWriteGuard<'a> {
    /// Downgrades to a reader. No writer gets in between; for the policy this counts as a writer leaving.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Latch;
    ///
    /// let latch = Latch::new();
    /// let writer = latch.write_blocking();
    /// let reader = writer.downgrade();
    /// assert!(latch.try_read().is_some());
    /// assert!(latch.try_write().is_none());
    /// # drop(reader);
    /// ```
    pub fn downgrade(self) -> LatchReadGuard<'a> {
        self.downgraded(Shared::NEW)
    }

    /// Downgrades to an upgradable reader. No writer gets in between; for the policy this counts as a writer leaving.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Latch;
    ///
    /// let latch = Latch::new();
    /// let reader = latch.write_blocking().downgrade_to_upgradable();
    /// assert!(latch.try_read().is_some());
    /// let writer = reader.try_upgrade().unwrap();
    /// # drop(writer);
    /// ```
    pub fn downgrade_to_upgradable(self) -> LatchUpgradableGuard<'a> {
        self.downgraded(Upgradable::NEW)
    }
}

impl<M: HandOver> LatchGuard<'_, M> {
    /// Hands the latch over to the waiters that the policy admits next, with no newcomer in between. See [`Fairness`].
    /// The last of several readers hands it over; the others only leave.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Latch;
    ///
    /// let latch = Latch::new();
    /// latch.write_blocking().unlock_fair();
    /// latch.read_blocking().unlock_fair();
    /// assert!(!latch.is_locked());
    /// ```
    pub fn unlock_fair(self) {
        self.release_for(ReleaseFor::Waiter, None);
    }
}

/// For guards that are [tracked](crate::deadlock).
#[cfg(target_has_atomic = "ptr")]
impl<M: Mode> LatchGuard<'_, M> {
    /// Passes the hold on to the next waiter.
    pub(crate) fn pass_on(self) {
        self.release_for(ReleaseFor::NextWaiter, None);
    }

    pub(crate) fn identity(&self) -> Identity {
        self.word.identity()
    }

    pub(crate) fn access(&self) -> Access {
        self.mode.access()
    }

    /// Returns the description of the latch in reports.
    pub(crate) fn describe(&self) -> String {
        describe(self.word)
    }
}

/// Returns the description of a latch in reports: its address, because it has no key.
#[cfg(target_has_atomic = "ptr")]
pub(super) fn describe(word: &LatchWord) -> String {
    format!("the latch at {:#x}", core::ptr::from_ref(word).addr())
}

impl<M: Mode> Drop for LatchGuard<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.word.release(self.mode.access(), ReleaseFor::Anybody, self.fairness, None);
    }
}

impl<M: Mode> fmt::Debug for LatchGuard<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchGuard").field("mode", &self.mode.access()).finish_non_exhaustive()
    }
}
