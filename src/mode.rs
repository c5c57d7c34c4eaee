//! The modes of a [`Guard`](crate::Guard): the access that its holder has.

use core::fmt::Debug;

use crate::core::{Access, Core, Ending, Hold, Payload, ReleaseFor, Ticket, TypedAccess, WakeBatch, Want};
use crate::panics::Panics;
use crate::wait_event::WaitId;

/// The methods of the sealed trait. Other crates can neither name nor implement it.
pub(crate) mod sealed {
    use super::{Core, Hold, Payload, ReleaseFor, TypedAccess};

    #[allow(unreachable_pub)] // the supertrait of a public trait
    pub trait ModeInside: TypedAccess {
        /// The mode of a newly acquired hold.
        const ONE: Self;

        /// Whether acquiring a key marks its value as used.
        const USES_VALUE: bool = true;

        /// Whether acquiring a key counts as a look-up of its value.
        const LOOKS_UP: bool = false;

        /// Merges the modes of two requests for one key. By default the first one wins, because requests to write are
        /// sorted before requests to read. Of two amounts of permits, the larger one wins.
        #[inline]
        fn both(self, _: Self) -> Self {
            self
        }

        /// Releases a hold of this mode.
        #[inline]
        fn release<K, V: Payload>(core: &Core<K, V>, hold: Hold<K, V, Self>) {
            core.release(hold, None);
        }

        /// Hands a hold of this mode over to the next waiter.
        #[inline]
        fn hand_over<K, V: Payload>(core: &Core<K, V>, hold: Hold<K, V, Self>) {
            core.release_for(ReleaseFor::Waiter, hold);
        }
    }
}

/// The access that a guard gives. Sealed: see the types of this [module](self).
pub trait Mode: sealed::ModeInside + Debug {}

/// A mode whose hold [`unlock_fair`](crate::Guard::unlock_fair) can hand over to a waiter. Every guard has such a mode.
/// Sealed.
pub trait HandOver: Mode {}

/// Exclusive access: that of a mutex's holder, or of a writer.
#[derive(Clone, Copy, Debug)]
pub struct Exclusive(());

/// Read access, shared with other readers.
#[derive(Clone, Copy, Debug)]
pub struct Shared(());

/// Read access that is shared with other readers, and whose holder may become a writer. A key has at most one such
/// holder.
#[derive(Clone, Copy, Debug)]
pub struct Upgradable {
    pub(crate) upgrading: Upgrading,
    /// The id of the waiting upgrade, after its start has been reported to the table's observer.
    pub(crate) told: Option<WaitId>,
}

/// One or more permits of a semaphore.
#[derive(Clone, Copy, Debug)]
pub struct Permit {
    amount: u32,
}

/// The mode of the `read_write_many` calls, in which each key is read or written. No guard has this mode.
#[derive(Clone, Copy, Debug)]
pub struct ReadOrWrite {
    pub(crate) writes: bool,
}

/// The access of mode `M`, except that acquiring a key does not mark its value as used. No guard with this mode is ever
/// handed out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unmarked<M>(pub(crate) M);

/// The state of an upgradable hold's upgrade.
///
/// It is kept in the guard, not in the future or in the hold that [`Guard::upgrade_mut`](crate::Guard::upgrade_mut)
/// returns: those can be forgotten, and the guard's drop must still know what to release.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Upgrading {
    /// No upgrade has been requested.
    No,
    /// The upgrade waits at this position in the queue.
    Waiting(Ticket),
    /// The hold is exclusive now.
    Done,
}

impl Upgrading {
    pub(crate) fn is_no(self) -> bool {
        matches!(self, Upgrading::No)
    }
}

impl Exclusive {
    pub(crate) const NEW: Exclusive = Exclusive(());
}

impl Shared {
    pub(crate) const NEW: Shared = Shared(());
}

impl Upgradable {
    pub(crate) const NEW: Upgradable = Upgradable { upgrading: Upgrading::No, told: None };
}

impl Permit {
    pub(crate) const NEW: Permit = Permit { amount: 1 };

    /// Makes the mode of a hold of `n` of the `limit` permits of a key.
    ///
    /// # Panics
    /// If `n` is 0 or more than `limit`.
    #[inline]
    #[track_caller]
    pub(crate) fn checked(n: usize, limit: usize) -> Permit {
        assert!(
            (1..=limit).contains(&n),
            "keylatch: n must be between 1 and {limit}, the permits of a key, but is {n}"
        );
        Permit { amount: n as u32 } // `MAX_PERMITS` fits a `u32`
    }

    #[inline]
    pub(crate) fn amount(self) -> usize {
        self.amount as usize
    }

    /// Splits into `n` permits and the rest, if neither is empty.
    #[inline]
    pub(crate) fn split(self, n: usize) -> Option<(Permit, Permit)> {
        let amount = u32::try_from(n).ok().filter(|amount| (1..self.amount).contains(amount))?;
        Some((Permit { amount }, Permit { amount: self.amount - amount }))
    }

    /// Adds the two amounts.
    #[inline]
    pub(crate) fn merge(self, other: Permit) -> Permit {
        Permit { amount: self.amount + other.amount }
    }
}

impl ReadOrWrite {
    pub(crate) const READ: ReadOrWrite = ReadOrWrite { writes: false };
    pub(crate) const WRITE: ReadOrWrite = ReadOrWrite { writes: true };
}

impl TypedAccess for Exclusive {
    #[inline]
    fn access(&self) -> Access {
        Access::Exclusive
    }
}

impl TypedAccess for Shared {
    #[inline]
    fn access(&self) -> Access {
        Access::Shared
    }
}

impl<M: Mode> TypedAccess for Unmarked<M> {
    #[inline]
    fn access(&self) -> Access {
        self.0.access()
    }
}

impl TypedAccess for Upgradable {
    #[inline]
    fn access(&self) -> Access {
        match self.upgrading {
            Upgrading::No | Upgrading::Waiting(_) => Access::Upgradable,
            Upgrading::Done => Access::Exclusive,
        }
    }
}

impl TypedAccess for Permit {
    #[inline]
    fn access(&self) -> Access {
        Access::Permits(self.amount)
    }
}

impl TypedAccess for ReadOrWrite {
    #[inline]
    fn access(&self) -> Access {
        if self.writes { Access::Exclusive } else { Access::Shared }
    }
}

impl sealed::ModeInside for Exclusive {
    const ONE: Self = Exclusive::NEW;
}

impl sealed::ModeInside for Shared {
    const ONE: Self = Shared::NEW;
    const LOOKS_UP: bool = true;
}

impl<M: Mode> sealed::ModeInside for Unmarked<M> {
    const ONE: Self = Unmarked(M::ONE);
    const USES_VALUE: bool = false;
}

impl sealed::ModeInside for Upgradable {
    const ONE: Self = Upgradable::NEW;

    /// Releases the hold with its current access, and gives up a waiting upgrade.
    fn release<K, V: Payload>(core: &Core<K, V>, mut hold: Hold<K, V, Self>) {
        let Upgradable { upgrading, told } = hold.mode();
        let ticket = match upgrading {
            Upgrading::Waiting(ticket) => ticket,
            _ if told.is_none() => return core.release(hold, None),
            // A waker panicked before the end of the wait was reported.
            _ => Ticket::NONE,
        };
        let (mut ending, mut panics) = (None, Panics::default());
        panics.run(|| ending = told.and_then(|id| core.ending(hold.live(), Want::Upgrade, id)));
        panics.run(|| {
            // `_sweeping` is dropped after the batch, so the sweep runs after the wakers.
            let _sweeping = core.sweeping(hold.live());
            let mut batch = WakeBatch::default();
            if core.leave_queue(hold.live(), ticket, &mut batch).is_some() {
                hold.set_mode(Upgradable { upgrading: Upgrading::Done, told: None });
                // The reservation passes to the next waiter, not to the first newcomer.
                core.release_unswept(ReleaseFor::NextWaiter, hold);
            } else {
                core.release_unswept(ReleaseFor::Anybody, hold);
            }
        });
        panics.run(|| ending.map_or((), Ending::tell));
        panics.resume();
    }

    fn hand_over<K, V: Payload>(core: &Core<K, V>, hold: Hold<K, V, Self>) {
        match hold.mode() {
            // The upgrade was forgotten while it waited, or the end of its wait has not been reported. It is given up,
            // and the hold is released like any other.
            Upgradable { upgrading: Upgrading::Waiting(_), .. } | Upgradable { told: Some(_), .. } => {
                Self::release(core, hold);
            }
            _ => core.release_for(ReleaseFor::Waiter, hold),
        }
    }
}

impl sealed::ModeInside for Permit {
    const ONE: Self = Permit::NEW;

    /// Returns the larger of the two amounts.
    #[inline]
    fn both(self, other: Self) -> Self {
        if other.amount > self.amount { other } else { self }
    }
}

impl sealed::ModeInside for ReadOrWrite {
    const ONE: Self = ReadOrWrite::READ;
}

impl Mode for Exclusive {}
impl Mode for Shared {}
impl<M: Mode> Mode for Unmarked<M> {}
impl Mode for Upgradable {}
impl Mode for Permit {}
impl Mode for ReadOrWrite {}

impl HandOver for Exclusive {}
impl HandOver for Shared {}
impl HandOver for Upgradable {}
impl HandOver for Permit {}
