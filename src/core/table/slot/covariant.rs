//! Tokens and references that are covariant in the type of the keys, so that guards, handles and futures are covariant,
//! too. They erase the types of entries and restore them, as the parent's invariants 10 and 11 allow.

use core::{convert::Infallible, marker::PhantomData, ptr::NonNull};

use super::{Claim, Hold, Live, TypedAccess, UnitOf};
use crate::core::table::payload::Payload;

/// The types of a table's entries, as named by a reference to the table. `pub` because sealed traits name it; other
/// crates cannot.
#[allow(unreachable_pub)]
pub trait EntryTypes {
    type EntryKey;
    type Payload: Payload;
}

/// A [`Claim`] that is kept alongside a `P`, which refers to its table (10).
///
/// It is covariant in `P`, because its fields do not mention `P::EntryKey`: an associated type would make it invariant.
#[must_use = "a claim that is forgotten keeps its entry for ever"]
pub(crate) struct ClaimIn<P>(Claim<Infallible, ()>, PhantomData<P>);

/// A [`Hold`] that is kept alongside a `P`, which refers to its table (10). It is covariant in `P`, like a [`ClaimIn`].
#[must_use = "a hold that is forgotten keeps its key locked for ever"]
pub(crate) struct HoldIn<P, M>(Hold<Infallible, (), M>, PhantomData<P>);

impl<P: EntryTypes> ClaimIn<P> {
    #[inline]
    pub(crate) fn new(claim: Claim<P::EntryKey, P::Payload>) -> Self {
        ClaimIn(Claim(UnitOf(claim.0.0.cast())), PhantomData)
    }

    #[inline]
    pub(crate) fn live(&self) -> Live<'_, P::EntryKey, P::Payload> {
        Live(self.0.0.0.cast(), PhantomData)
    }

    #[inline]
    pub(crate) fn into_claim(self) -> Claim<P::EntryKey, P::Payload> {
        Claim(UnitOf(self.0.0.0.cast()))
    }
}

impl<P: EntryTypes, M: TypedAccess> HoldIn<P, M> {
    #[inline]
    pub(crate) fn new(hold: Hold<P::EntryKey, P::Payload, M>) -> Self {
        HoldIn(Hold { erased: hold.erased, types: PhantomData }, PhantomData)
    }

    #[inline]
    pub(crate) fn into_hold(self) -> Hold<P::EntryKey, P::Payload, M> {
        Hold { erased: self.0.erased, types: PhantomData }
    }

    #[inline]
    pub(crate) fn as_hold(&self) -> &Hold<P::EntryKey, P::Payload, M> {
        // SAFETY: both types are transparent wrappers of the same `ErasedHold`, whose slot has the entry's types (10).
        unsafe { NonNull::from(&self.0).cast().as_ref() }
    }

    #[inline]
    pub(crate) fn as_hold_mut(&mut self) -> &mut Hold<P::EntryKey, P::Payload, M> {
        // SAFETY: as above, and we are borrowed exclusively.
        unsafe { NonNull::from(&mut self.0).cast().as_mut() }
    }
}

/// The core of a table. Only [`Core`](super::super::Core) implements this. It is a trait because this module must not
/// import `Core`, which imports this module.
pub(crate) trait IsCore<K, V: Payload> {}

/// A reference to the core of a table whose entries have the types `R`. It is covariant in `R`, and so in the type of
/// the keys, in which a plain reference to the core is invariant.
pub(crate) struct CoreRef<'a, R> {
    /// The core of a table whose keys have the type that `R` names, or a subtype of it.
    core: NonNull<()>,
    borrowed: PhantomData<&'a ()>,
    types: PhantomData<fn() -> R>,
}

impl<'a, R: EntryTypes> CoreRef<'a, R> {
    #[inline]
    pub(crate) fn new<C: IsCore<R::EntryKey, R::Payload>>(core: &'a C) -> Self {
        CoreRef { core: NonNull::from(core).cast(), borrowed: PhantomData, types: PhantomData }
    }

    #[inline]
    pub(crate) fn core<C: IsCore<R::EntryKey, R::Payload>>(&self) -> &C {
        // SAFETY: the pointer comes from a reference that is valid for `'a`. The table's keys can be used as keys of
        // the type that `R` names, and no key of that type is put into the table (11).
        unsafe { self.core.cast().as_ref() }
    }
}

impl<R> Clone for CoreRef<'_, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for CoreRef<'_, R> {}

/// The values outside their entries, in a shard of a table whose entries have the types `R`.
type PartedOf<R> = <<R as EntryTypes>::Payload as Payload>::Parted<<R as EntryTypes>::EntryKey>;
/// The values at rest, in a shard of such a table.
type RestingOf<R> = <<R as EntryTypes>::Payload as Payload>::Resting<<R as EntryTypes>::EntryKey>;

// SAFETY: this is a reference to a core, which is `Sync` under these bounds: `a_core_is_sync`, in the tests of the
// table, compiles only if it is.
unsafe impl<R> Send for CoreRef<'_, R>
where
    R: EntryTypes<
            EntryKey: Send + Sync,
            Payload: Payload<Value: Send + Sync, Marks: Send + Sync, Kept: Send, Excess: Sync>,
        >,
    PartedOf<R>: Send,
    RestingOf<R>: Send,
{
}
// SAFETY: as above.
unsafe impl<R> Sync for CoreRef<'_, R>
where
    R: EntryTypes<
            EntryKey: Send + Sync,
            Payload: Payload<Value: Send + Sync, Marks: Send + Sync, Kept: Send, Excess: Sync>,
        >,
    PartedOf<R>: Send,
    RestingOf<R>: Send,
{
}
