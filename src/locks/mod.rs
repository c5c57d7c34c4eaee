//! The lock tables. Each has a file, or a folder, with its docs, its struct, and the list of its operations. [`forms`]
//! contains the code that they share, and [`several`] the aliases for the guards of several keys.

mod forms;
mod map;
mod mutex;
mod rwlock;
mod semaphore;
mod several;

use crate::core::MAX_UNITS;

#[cfg(target_has_atomic = "ptr")] // for tracked guards
pub(crate) use self::map::guard::writer;
pub use self::map::{
    AddOrUpdate, Batch, BatchConflict, Conflict, IntoIter, LockMap, MapKind, MapRead, MapReadGuard, MapUpgradableGuard,
    MapUpgradableRead, MapWrite, MapWriteGuard, TryBatchError, ValueSlot, Version, Walk, WalkNext,
};
#[cfg(target_has_atomic = "ptr")]
pub use self::map::{
    MapReadArc, MapReadGuardArc, MapUpgradableGuardArc, MapUpgradableReadArc, MapWriteArc, MapWriteGuardArc,
};
pub use self::mutex::{KeyedMutex, Lock, MutexGuard, MutexKind};
#[cfg(target_has_atomic = "ptr")]
pub use self::mutex::{LockArc, MutexGuardArc};
pub use self::rwlock::{KeyedRwLock, Read, ReadGuard, RwLockKind, UpgradableGuard, UpgradableRead, Write, WriteGuard};
#[cfg(target_has_atomic = "ptr")]
pub use self::rwlock::{ReadArc, ReadGuardArc, UpgradableGuardArc, UpgradableReadArc, WriteArc, WriteGuardArc};
pub use self::semaphore::{AcquirePermit, KeyedSemaphore, MAX_PERMITS, PermitGuard, SemaphoreKind};
#[cfg(target_has_atomic = "ptr")]
pub use self::semaphore::{AcquirePermitArc, PermitGuardArc};
pub use self::several::{MapReadGuards, MapWriteGuards, MutexGuards, PermitGuards, ReadGuards, WriteGuards};
#[cfg(target_has_atomic = "ptr")]
pub use self::several::{
    MapReadGuardsArc, MapWriteGuardsArc, MutexGuardsArc, PermitGuardsArc, ReadGuardsArc, WriteGuardsArc,
};

/// The largest number of users of a key: 2^30 − 1 on 64-bit targets, 16,383 on 32-bit ones.
///
/// The users of a key are its holders, waiters, handles and unfinished futures, and the calls, such as `for_each_key`,
/// that are visiting it. A stored value takes the place of one or two users, and a number of permits that is
/// [set](KeyedSemaphore::set_permits) for the key takes the place of one. Holders of permits do not count: their number
/// is limited by the permits. For a [`Latch`](crate::Latch), and for each stripe of a [`Striped`](crate::Striped), this
/// is the largest number of holders and waiters.
///
/// A call that would add one more user panics, in every form, and changes nothing.
pub const MAX_USERS: usize = MAX_UNITS;
