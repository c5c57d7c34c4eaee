//! Guards that a party adopts.

use alloc::sync::Arc;
use core::fmt;

use super::Party;
use super::holder::Origin;
use super::record::{Member, Record, Records};
use super::tracked::{Tracked, TrackedMany};
use crate::guard::Guard;
use crate::guards::Guards;
use crate::latch::{LatchGuard, LatchGuards};
use crate::mode::Mode;
use crate::plumbing::TablePtr;

/// A guard, or the guards of several keys, that a party can [adopt](Party::adopt). Sealed.
///
/// | guard | adopted |
/// |---|---|
/// | [`Guard`], [`LatchGuard`] | [`Tracked`] |
/// | [`Guards`], [`LatchGuards`] | [`TrackedMany`] |
///
/// The keys must be `Debug`.
///
/// # Examples
/// See [`Party::adopt`].
pub trait Adoptable: sealed::Adopt<Output = <Self as Adoptable>::Tracked> {
    /// The tracked form of the guard.
    type Tracked;
}

/// The methods of the sealed trait. Other crates can neither name nor implement it.
pub(crate) mod sealed {
    use super::{Arc, Member, Origin};

    #[allow(unreachable_pub)] // the supertrait of a public trait
    pub trait Adopt: Sized {
        type Output;

        fn adopt(self, member: Arc<Member>, origin: &Origin) -> Self::Output;
    }
}

impl Party {
    /// Makes the hold of a guard a hold of this party. The detector knows of it from now on.
    ///
    /// Use it for a guard that was acquired without the detector, or that another party has acquired and passes on
    /// ([`into_inner`](Tracked::into_inner) ends its tracking there). The hold itself does not change. If the party has
    /// a request that waits, and the hold completes a cycle, then that request fails.
    ///
    /// # Panics
    /// If the key's `Debug` panics, which runs only if the detector [names its
    /// holders](super::DetectorBuilder::name_holders). The guard is then dropped.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// let party = detector.party("import");
    /// let guard = party.adopt(locks.lock_blocking(&7));
    /// assert!(party.acquire_blocking(locks.lock(&7)).unwrap_err().is_reentry());
    /// # drop(guard);
    /// ```
    #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
    #[track_caller]
    pub fn adopt<G: Adoptable>(&self, guard: G) -> G::Tracked {
        guard.adopt(Arc::clone(&self.member), &Origin::here())
    }
}

impl<P: TablePtr, M: Mode> Adoptable for Guard<P, M>
where
    P::Key: fmt::Debug,
{
    type Tracked = Tracked<Self>;
}

impl<P: TablePtr, M: Mode> sealed::Adopt for Guard<P, M>
where
    P::Key: fmt::Debug,
{
    type Output = Tracked<Self>;

    fn adopt(self, member: Arc<Member>, origin: &Origin) -> Tracked<Self> {
        Tracked { record: Record::of_hold(member, &self, origin), guard: self }
    }
}

impl<M: Mode> Adoptable for LatchGuard<'_, M> {
    type Tracked = Tracked<Self>;
}

impl<M: Mode> sealed::Adopt for LatchGuard<'_, M> {
    type Output = Tracked<Self>;

    fn adopt(self, member: Arc<Member>, origin: &Origin) -> Tracked<Self> {
        Tracked { record: Record::of_hold(member, &self, origin), guard: self }
    }
}

impl<P: TablePtr, M: Mode> Adoptable for Guards<P, M>
where
    P::Key: fmt::Debug,
{
    type Tracked = TrackedMany<Self>;
}

impl<P: TablePtr, M: Mode> sealed::Adopt for Guards<P, M>
where
    P::Key: fmt::Debug,
{
    type Output = TrackedMany<Self>;

    fn adopt(self, member: Arc<Member>, origin: &Origin) -> TrackedMany<Self> {
        TrackedMany { records: Records::of_holds(member, self.as_slice(), origin), guards: self }
    }
}

impl<M: Mode> Adoptable for LatchGuards<'_, M> {
    type Tracked = TrackedMany<Self>;
}

impl<M: Mode> sealed::Adopt for LatchGuards<'_, M> {
    type Output = TrackedMany<Self>;

    fn adopt(self, member: Arc<Member>, origin: &Origin) -> TrackedMany<Self> {
        TrackedMany { records: Records::of_holds(member, self.as_slice(), origin), guards: self }
    }
}
