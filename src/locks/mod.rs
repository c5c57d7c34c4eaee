//! The lock tables. Each file is a table: its docs, its struct, and the list of its operations.

mod forms;
mod mutex;
mod rwlock;
mod semaphore;

pub use self::mutex::{KeyedMutex, Lock, MutexGuard, MutexKind};
#[cfg(target_has_atomic = "ptr")]
pub use self::mutex::{LockArc, MutexGuardArc};
pub use self::rwlock::{KeyedRwLock, Read, ReadGuard, RwLockKind, UpgradableGuard, UpgradableRead, Write, WriteGuard};
#[cfg(target_has_atomic = "ptr")]
pub use self::rwlock::{ReadArc, ReadGuardArc, UpgradableGuardArc, UpgradableReadArc, WriteArc, WriteGuardArc};
pub use self::semaphore::{AcquirePermit, KeyedSemaphore, PermitGuard, SemaphoreKind};
#[cfg(target_has_atomic = "ptr")]
pub use self::semaphore::{AcquirePermitArc, PermitGuardArc};
