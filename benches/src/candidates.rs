//! The candidates.

use std::future::Pending;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use key_lock::KeyLock;
use keyed_lock::{r#async::KeyedLock as KeyedTaskLock, sync::KeyedLock as KeyedThreadLock};
use keylatch::{KeyHandle, KeyedMutex, ToKey};
use lockable::LockPool;
use lockmap::LockMap;

pub use crate::dash_map::TokioDashMap;
pub use crate::references::{BareTable, Stripes};
pub use crate::std_map::StdMap;

/// The key in scenarios with a single key.
pub const HOT: u64 = 7;

/// The corresponding `&str` key, of 40 bytes.
pub const HOT_STR: &str = "tenant-000042/customer-000815/invoice-07";
const _: () = assert!(HOT_STR.len() == 40);

/// A borrowed key, with the traits that all candidates together require.
pub trait Key:
    Eq + Hash + Sync + ToOwned<Owned: Eq + Hash + Clone + Send + Sync + 'static> + ToKey<<Self as ToOwned>::Owned> + 'static
{
}

impl Key for u64 {}
impl Key for str {}

/// A feature that a scenario may require of a candidate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Threads that wait for a key.
    Block,
    /// Tasks that wait for a key.
    Async,
    Try,
    /// Requests that find their key held.
    Contention,
    /// More than one key.
    Keys,
    /// Very many keys held at once.
    ManyHeld,
}

/// A keyed lock. Its user has a borrowed key, and wants a guard.
pub trait Locks<Q: ?Sized>: Send + Sync + 'static {
    /// The features that it lacks, each with the reason in a word or two.
    const LACKS: &'static [(Need, &'static str)] = &[];

    fn lock_blocking(&self, key: &Q) -> impl Sized;

    /// Returns `None` if the key is held, or if there is no such call.
    fn try_lock(&self, _: &Q) -> Option<impl Sized> {
        None::<()>
    }

    /// Returns `None` if the lock is for threads only.
    fn lock(&self, _: &Q) -> Option<impl Future<Output = impl Send> + Send> {
        None::<Pending<()>>
    }

    /// Returns the number of keys with an entry, if the lock reports it.
    fn entries(&self) -> Option<usize> {
        None
    }
}

/// Polls a future with a waker that does nothing.
pub fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

impl<Q: ?Sized + Key> Locks<Q> for KeyedMutex<Q::Owned> {
    fn lock_blocking(&self, key: &Q) -> impl Sized {
        self.lock_blocking(key)
    }

    fn try_lock(&self, key: &Q) -> Option<impl Sized> {
        self.try_lock(key)
    }

    fn lock(&self, key: &Q) -> Option<impl Future<Output = impl Send> + Send> {
        Some(self.lock(key))
    }

    fn entries(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// Creates a table that keeps the memory of old keys, so that a new key needs no allocation.
pub fn recycling() -> KeyedMutex<String> {
    KeyedMutex::builder().recycle_keys(true).build()
}

/// A [`KeyedMutex`] that is locked through a handle of [`HOT`]. The key of a call is ignored.
pub struct OneHandle(KeyHandle<'static, KeyedMutex<u64>>);

impl Default for OneHandle {
    fn default() -> Self {
        // Leaked, because a struct cannot contain a table and a borrow of it. A handle that shares the table would
        // work, but then the `Arc` of each guard would be measured, too.
        OneHandle(Box::leak(Box::new(KeyedMutex::new())).handle(&HOT))
    }
}

impl Locks<u64> for OneHandle {
    const LACKS: &'static [(Need, &'static str)] = &[(Need::Keys, "one key")];

    fn lock_blocking(&self, _: &u64) -> impl Sized {
        self.0.lock_blocking()
    }

    fn try_lock(&self, _: &u64) -> Option<impl Sized> {
        self.0.try_lock()
    }

    fn lock(&self, _: &u64) -> Option<impl Future<Output = impl Send> + Send> {
        Some(self.0.lock())
    }
}

impl Locks<u64> for LockMap<u64, ()> {
    const LACKS: &'static [(Need, &'static str)] = &[(Need::Async, "no async")];

    fn lock_blocking(&self, key: &u64) -> impl Sized {
        self.entry(*key)
    }

    fn try_lock(&self, key: &u64) -> Option<impl Sized> {
        self.try_entry(*key)
    }
}

// Its calls by reference need a key type that implements `From` for references, which integers do not.
impl Locks<str> for LockMap<String, ()> {
    const LACKS: &'static [(Need, &'static str)] = <LockMap<u64, ()> as Locks<u64>>::LACKS;

    fn lock_blocking(&self, key: &str) -> impl Sized {
        self.entry_by_ref(key)
    }

    fn try_lock(&self, key: &str) -> Option<impl Sized> {
        self.try_entry_by_ref(key)
    }
}

/// The two lock types of one crate. They are independent of each other, so no scenario may mix threads and tasks.
pub struct KeyedLocks<K: Eq + Hash + Clone + Send> {
    threads: KeyedThreadLock<K>,
    tasks: KeyedTaskLock<K>,
}

impl<K: Eq + Hash + Clone + Send> Default for KeyedLocks<K> {
    fn default() -> Self {
        KeyedLocks { threads: KeyedThreadLock::new(), tasks: KeyedTaskLock::new() }
    }
}

impl<Q: ?Sized + Key> Locks<Q> for KeyedLocks<Q::Owned> {
    const LACKS: &'static [(Need, &'static str)] = &[(Need::Try, "no try")];

    fn lock_blocking(&self, key: &Q) -> impl Sized {
        self.threads.lock(key.to_owned())
    }

    fn lock(&self, key: &Q) -> Option<impl Future<Output = impl Send> + Send> {
        Some(self.tasks.lock(key.to_owned()))
    }
}

impl<Q: ?Sized + Key> Locks<Q> for LockPool<Q::Owned> {
    fn lock_blocking(&self, key: &Q) -> impl Sized {
        self.blocking_lock(key.to_owned())
    }

    fn try_lock(&self, key: &Q) -> Option<impl Sized> {
        self.try_lock(key.to_owned())
    }

    fn lock(&self, key: &Q) -> Option<impl Future<Output = impl Send> + Send> {
        Some(self.async_lock(key.to_owned()))
    }

    fn entries(&self) -> Option<usize> {
        Some(self.num_locked())
    }
}

impl<Q: ?Sized + Key> Locks<Q> for KeyLock<Q::Owned> {
    // It scans all entries once per 1,000 accesses, which takes minutes with a million of them.
    const LACKS: &'static [(Need, &'static str)] = &[(Need::ManyHeld, "too slow")];

    fn lock_blocking(&self, key: &Q) -> impl Sized {
        self.blocking_lock(key.to_owned())
    }

    fn try_lock(&self, key: &Q) -> Option<impl Sized> {
        self.blocking_try_lock(key.to_owned()).ok()
    }

    fn lock(&self, key: &Q) -> Option<impl Future<Output = impl Send> + Send> {
        Some(self.lock(key.to_owned()))
    }
}
