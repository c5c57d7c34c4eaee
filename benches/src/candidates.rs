//! Who takes part.

use std::future::Pending;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use keylatch::{KeyHandle, KeyedMutex};
use lockable::LockPool;
use lockmap::LockMap;

pub use crate::std_map::StdMap;

/// The key where there is one.
pub const HOT: u64 = 7;

/// The same as `&str`, of 40 bytes.
pub const HOT_STR: &str = "tenant-000042/customer-000815/invoice-07";
const _: () = assert!(HOT_STR.len() == 40);

/// A borrowed key, as all candidates together ask for it.
pub trait Key: Eq + Hash + ToOwned<Owned: Eq + Hash + Clone + Send + Sync + 'static> + 'static {}

impl Key for u64 {}
impl Key for str {}

/// A keyed lock. Its user has a borrowed key, and wants a guard.
pub trait Locks<Q: ?Sized>: Sync {
    fn lock_blocking(&self, key: &Q) -> impl Sized;

    fn try_lock(&self, key: &Q) -> Option<impl Sized>;

    /// `None` if it is for threads only.
    fn lock(&self, _: &Q) -> Option<impl Future<Output = impl Sized>> {
        None::<Pending<()>>
    }
}

/// Polls a future, with nobody to wake.
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

    fn lock(&self, key: &Q) -> Option<impl Future<Output = impl Sized>> {
        Some(self.lock(key))
    }
}

/// A table that keeps the memory of old keys, so that a new key needs none.
pub fn recycling() -> KeyedMutex<String> {
    KeyedMutex::builder().recycle_keys(true).build()
}

/// A [`KeyedMutex`] that is locked through a handle of [`HOT`]. The key that a call names is ignored.
pub struct OneHandle(KeyHandle<'static, KeyedMutex<u64>>);

impl Default for OneHandle {
    fn default() -> Self {
        // Leaked, because a struct cannot have a table and a borrow of it. A handle that shares the table would do, but
        // then the `Arc` of each guard would be measured too.
        OneHandle(Box::leak(Box::new(KeyedMutex::new())).handle(&HOT))
    }
}

impl Locks<u64> for OneHandle {
    fn lock_blocking(&self, _: &u64) -> impl Sized {
        self.0.lock_blocking()
    }

    fn try_lock(&self, _: &u64) -> Option<impl Sized> {
        self.0.try_lock()
    }

    fn lock(&self, _: &u64) -> Option<impl Future<Output = impl Sized>> {
        Some(self.0.lock())
    }
}

impl Locks<u64> for LockMap<u64, ()> {
    fn lock_blocking(&self, key: &u64) -> impl Sized {
        self.entry(*key)
    }

    fn try_lock(&self, key: &u64) -> Option<impl Sized> {
        self.try_entry(*key)
    }
}

// Its calls by reference are for keys that can be made `From` one, which integers cannot.
impl Locks<str> for LockMap<String, ()> {
    fn lock_blocking(&self, key: &str) -> impl Sized {
        self.entry_by_ref(key)
    }

    fn try_lock(&self, key: &str) -> Option<impl Sized> {
        self.try_entry_by_ref(key)
    }
}

impl<Q: ?Sized + Key> Locks<Q> for LockPool<Q::Owned> {
    fn lock_blocking(&self, key: &Q) -> impl Sized {
        self.blocking_lock(key.to_owned())
    }

    fn try_lock(&self, key: &Q) -> Option<impl Sized> {
        self.try_lock(key.to_owned())
    }

    fn lock(&self, key: &Q) -> Option<impl Future<Output = impl Sized>> {
        Some(self.async_lock(key.to_owned()))
    }
}

/// One lock for all keys: the yardstick for waiting.
impl Locks<u64> for parking_lot::Mutex<()> {
    fn lock_blocking(&self, _: &u64) -> impl Sized {
        self.lock()
    }

    fn try_lock(&self, _: &u64) -> Option<impl Sized> {
        self.try_lock()
    }
}
