//! Tracked guards.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use super::record::{HoldGuard, LATCH, Record, Records};
use crate::core::{Access, Identity, TypedAccess};
use crate::guard::Guard;
use crate::latch::{LatchGuard, LatchReadGuard, LatchWriteGuard};
use crate::mode::{HandOver, Mode, Permit};
use crate::plumbing::TablePtr;

/// A guard whose hold a [detector](super::Detector) tracks.
///
/// It dereferences to the guard. Dropping it releases the hold. The methods that return another guard return a tracked
/// one, except for [`into_inner`](Tracked::into_inner).
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, MutexGuard, deadlock::{Detector, Tracked}};
///
/// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
/// let party = detector.party("import");
/// let guard: Tracked<MutexGuard<'_, u64>> = party.acquire_blocking(locks.lock(&7)).unwrap();
/// assert_eq!(guard.key(), &7);
/// ```
#[must_use = "the key, or the permit, is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Tracked<G> {
    // Dropped first: a hold without a record is treated as one that is about to be released, which is true here.
    pub(super) record: Record,
    pub(super) guard: G,
}

impl<G> Tracked<G> {
    /// Returns the guard, which is no longer tracked: the detector does not find a cycle through its hold.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// let guard = detector.party("import").acquire_blocking(locks.lock(&7)).unwrap();
    /// let guard = guard.into_inner();
    /// # drop(guard);
    /// ```
    #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
    pub fn into_inner(self) -> G {
        self.guard
    }
}

impl<G> Tracked<G> {
    /// Sets a new label, like [`TrackedRequest::label`](super::TrackedRequest::label). Use it for a guard that a
    /// blocking call or a `try_` call returned, or when the work has reached another stage.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::builder().name_holders(true).build());
    /// let guard = detector.party("import").acquire_blocking(locks.lock(&7)).unwrap();
    /// guard.label("rows");
    /// assert_eq!(detector.dump().parties()[0].holds()[0].holder().unwrap().label(), Some("rows"));
    /// # drop(guard);
    /// ```
    pub fn label(&self, label: impl Into<Cow<'static, str>>) {
        self.record.set_label(label.into());
    }
}

impl<G> core::ops::Deref for Tracked<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G: fmt::Debug> fmt::Debug for Tracked<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracked").field("party", &self.record.member.name).field("guard", &self.guard).finish()
    }
}

/// The guards of several keys, whose holds a [detector](super::Detector) tracks: the output of a tracked `_many` call.
///
/// It dereferences to the guards. Dropping it releases all of them. [`IntoIterator`] takes it apart into [`Tracked`]
/// guards.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, deadlock::Detector};
///
/// let (locks, detector) = (KeyedMutex::<String>::new(), Detector::new());
/// let party = detector.party("transfer");
/// let both = party.acquire_blocking(locks.lock_many(["savings", "cash"])).unwrap();
/// assert_eq!(both.get("cash").unwrap().key(), "cash");
///
/// let [savings, cash] = both.into_iter().collect::<Vec<_>>().try_into().unwrap();
/// savings.unlock_fair();
/// assert!(party.acquire_blocking(locks.lock("cash")).unwrap_err().is_reentry());
/// # drop(cash);
/// ```
#[must_use = "the keys are released when the guards are dropped"]
#[clippy::has_significant_drop]
pub struct TrackedMany<G> {
    // Dropped first, like the record of a single guard.
    pub(super) records: Records,
    pub(super) guards: G,
}

impl<G> TrackedMany<G> {
    /// Returns the guards, which are no longer tracked: the detector does not find a cycle through their holds.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// let guards = detector.party("import").acquire_blocking(locks.lock_many([&7, &8])).unwrap();
    /// assert_eq!(guards.into_inner().len(), 2);
    /// ```
    #[must_use = "bind it: `let _guards = …` (`let _ = …` releases them at once)"]
    pub fn into_inner(self) -> G {
        self.guards
    }
}

impl<G> core::ops::Deref for TrackedMany<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guards
    }
}

impl<G: fmt::Debug> fmt::Debug for TrackedMany<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedMany").field("party", &self.records.member.name).field("guards", &self.guards).finish()
    }
}

impl<G: IntoIterator> IntoIterator for TrackedMany<G> {
    type Item = Tracked<G::Item>;
    type IntoIter = TrackedIntoIter<G::IntoIter>;

    fn into_iter(self) -> Self::IntoIter {
        TrackedIntoIter { records: self.records, guards: self.guards.into_iter() }
    }
}

/// The iterator that takes [`TrackedMany`] apart. Dropping it releases the guards that are left.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, deadlock::Detector};
///
/// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
/// let mut guards = detector.party("import").acquire_blocking(locks.lock_many([&7, &8])).unwrap().into_iter();
/// let seven = guards.next().unwrap();
/// drop(guards);
/// assert!(locks.is_locked(&7) && !locks.is_locked(&8));
/// # drop(seven);
/// ```
pub struct TrackedIntoIter<I> {
    // Dropped first, like the record of a single guard.
    records: Records,
    guards: I,
}

impl<I: Iterator> Iterator for TrackedIntoIter<I> {
    type Item = Tracked<I::Item>;

    fn next(&mut self) -> Option<Tracked<I::Item>> {
        let guard = self.guards.next()?;
        Some(Tracked { record: self.records.next(), guard })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.guards.size_hint()
    }
}

impl<I: DoubleEndedIterator> DoubleEndedIterator for TrackedIntoIter<I> {
    fn next_back(&mut self) -> Option<Tracked<I::Item>> {
        let guard = self.guards.next_back()?;
        Some(Tracked { record: self.records.next_back(), guard })
    }
}

impl<I: ExactSizeIterator> ExactSizeIterator for TrackedIntoIter<I> {}
impl<I: core::iter::FusedIterator> core::iter::FusedIterator for TrackedIntoIter<I> {}

impl<I: fmt::Debug> fmt::Debug for TrackedIntoIter<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedIntoIter")
            .field("party", &self.records.member.name)
            .field("guards", &self.guards)
            .finish()
    }
}

#[allow(private_interfaces)]
impl<P: TablePtr, M: Mode> HoldGuard for Guard<P, M>
where
    P::Key: fmt::Debug,
{
    #[inline]
    fn identity(&self) -> Identity {
        Guard::identity(self)
    }

    #[inline]
    fn access(&self) -> Access {
        self.mode().access()
    }

    fn key(&self) -> String {
        format!("{:?}", Guard::key(self))
    }

    #[inline]
    fn table(&self) -> &'static str {
        core::any::type_name::<P::Table>()
    }

    fn pass_on(self) {
        Guard::pass_on(self);
    }
}

#[allow(private_interfaces)]
impl<M: Mode> HoldGuard for LatchGuard<'_, M> {
    #[inline]
    fn identity(&self) -> Identity {
        LatchGuard::identity(self)
    }

    #[inline]
    fn access(&self) -> Access {
        LatchGuard::access(self)
    }

    fn key(&self) -> String {
        self.describe()
    }

    #[inline]
    fn table(&self) -> &'static str {
        LATCH
    }

    fn pass_on(self) {
        LatchGuard::pass_on(self);
    }
}

impl<P: TablePtr, M: HandOver> Tracked<Guard<P, M>> {
    /// Hands the key over to the waiter that the policy admits next, as [`Guard::unlock_fair`] does.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// detector.party("import").acquire_blocking(locks.lock(&7)).unwrap().unlock_fair();
    /// assert!(!locks.is_locked(&7));
    /// ```
    pub fn unlock_fair(self) {
        self.into_inner().unlock_fair();
    }
}

impl<M: HandOver> Tracked<LatchGuard<'_, M>> {
    /// Hands the latch over to the waiters that the policy admits next, as [`LatchGuard::unlock_fair`] does.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Latch, deadlock::Detector};
    ///
    /// let (latch, detector) = (Latch::new(), Detector::new());
    /// detector.party("import").acquire_blocking(latch.write()).unwrap().unlock_fair();
    /// assert!(!latch.is_locked());
    /// ```
    pub fn unlock_fair(self) {
        self.into_inner().unlock_fair();
    }
}

impl<'a> Tracked<LatchWriteGuard<'a>> {
    /// Downgrades to a reader, as [`LatchGuard::downgrade`] does.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Latch, deadlock::Detector};
    ///
    /// let (latch, detector) = (Latch::new(), Detector::new());
    /// let reader = detector.party("import").acquire_blocking(latch.write()).unwrap().downgrade();
    /// assert!(latch.try_read().is_some());
    /// # drop(reader);
    /// ```
    #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
    pub fn downgrade(self) -> Tracked<LatchReadGuard<'a>> {
        let Tracked { record, guard } = self;
        // The record may understate the hold for a moment, but never overstates it.
        record.set_access(Access::Shared);
        Tracked { record, guard: guard.downgrade() }
    }
}

/// Methods for permits.
impl<P: TablePtr> Tracked<Guard<P, Permit>> {
    /// Moves `n` of the permits into a tracked guard of their own, as [`Guard::split`] does.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedSemaphore, deadlock::Detector};
    ///
    /// let (hosts, detector) = (KeyedSemaphore::<u64>::new(3), Detector::new());
    /// let mut three = detector.party("crawler").acquire_blocking(hosts.acquire_n(&7, 3)).unwrap();
    /// let one = three.split(1).unwrap();
    /// assert_eq!((one.permits(), three.permits()), (1, 2));
    /// ```
    #[must_use = "the permits are released at once unless they are kept"]
    pub fn split(&mut self, n: usize) -> Option<Self> {
        let part = self.guard.split(n)?;
        self.record.set_access(self.guard.mode().access());
        Some(Tracked { record: self.record.part(part.mode().access()), guard: part })
    }

    /// Adds the permits of `other` to this guard, as [`Guard::merge`] does.
    ///
    /// # Panics
    /// If `other` belongs to another party, another table or another key. The permits of `other` are then released.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedSemaphore, deadlock::Detector};
    ///
    /// let (hosts, detector) = (KeyedSemaphore::<u64>::new(3), Detector::new());
    /// let party = detector.party("crawler");
    /// let mut permits = party.acquire_blocking(hosts.acquire(&7)).unwrap();
    /// permits.merge(party.acquire_blocking(hosts.acquire_n(&7, 2)).unwrap());
    /// assert_eq!(permits.permits(), 3);
    /// ```
    #[track_caller]
    pub fn merge(&mut self, other: Self) {
        let (own, its) = (&self.record.member, &other.record.member);
        assert!(
            Arc::ptr_eq(own, its),
            "keylatch: permits of the party {:?} cannot be merged with those of another party, {:?}",
            own.name,
            its.name
        );
        self.guard.merge(other.into_inner());
        self.record.set_access(self.guard.mode().access());
    }
}
