//! The lock tables. Each file is a table: its docs, its struct, and the list of its operations.

mod forms;
mod mutex;
mod rwlock;
mod semaphore;

pub use self::mutex::{KeyedMutex, MutexKind};
pub use self::rwlock::{KeyedRwLock, RwLockKind};
pub use self::semaphore::{KeyedSemaphore, SemaphoreKind};
