//! Reading a value without marking it as used.

use core::future::Future;
use core::hash::{BuildHasher, Hash};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use core::mem::needs_drop;

use equivalent::Equivalent;

use super::LockMap;
use crate::acquire::manner::{Awaiting, Manner};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::manner::{Blocking, run};
use crate::acquire::request::Request;
use crate::guard::Guard;
use crate::mode::{Shared, Unmarked};
use crate::plumbing::TableRef;

/// The mode of a reader that does not mark the value as used.
const PEEK: Unmarked<Shared> = Unmarked(Shared::NEW);

/// Reads that do not count as a use.
impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {
    /// Returns a clone of a key's value, and does not mark the value as used; `None` if the key has none.
    ///
    /// It is [`get`](Self::get) for callers that must not affect the order of eviction, such as a monitor or a scan. In
    /// all other respects it is a reader: it waits for a writer, and a value is not evicted while it is being read.
    /// In a map that has no bound, no [`time_to_idle`](crate::Builder::time_to_idle) and no counters, it is the same as
    /// `get`.
    ///
    /// This call looks the key up, and never copies it. If the key has no entry now, the future returns `None`, even if
    /// a value is inserted before the first poll. Otherwise the value is read when the future is polled.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. It changes nothing.
    ///
    /// # Panics
    /// Panics as [`LockMap`](LockMap#panics) does.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let pages = keylatch::LockMap::<u64, &str>::builder().max_values(2).shards(1).build();
    /// pages.insert(&1, "a").await;
    /// pages.insert(&2, "b").await;
    /// assert_eq!(pages.peek(&1).await, Some("a")); // does not count as a use
    /// pages.insert(&3, "c").await;
    /// assert!(!pages.contains_key(&1));
    /// # });
    /// ```
    pub fn peek<'a, Q>(&'a self, key: &Q) -> impl Future<Output = Option<V>> + use<'a, Q, K, V, S>
    where
        Q: ?Sized + Hash + Equivalent<K>,
        V: Clone,
    {
        let claim = self.core.find_claim(&self.key(key));
        let request = claim.map(|claim| Request::new(TableRef::new(self), claim, PEEK));
        async move { copy(Awaiting.acquire(request?).await) }
    }

    /// Returns a clone of a key's value, and does not mark the value as used; `None` if the key has none. Blocks the
    /// thread while it waits.
    ///
    /// See [`peek`](Self::peek). A `V` that owns nothing (for which [`needs_drop`] is false) is usually cloned under an
    /// internal lock, so its `clone` must not use the map.
    ///
    /// # Blocking
    /// Blocks like [`read_blocking`](Self::read_blocking). Do not call this in a task; there, use [`peek`](Self::peek).
    ///
    /// # Panics
    /// Panics as [`LockMap`](LockMap#panics) does.
    ///
    /// # Examples
    /// ```
    /// let pages = keylatch::LockMap::<u64, &str>::builder().max_values(2).shards(1).build();
    /// pages.insert_blocking(&1, "a");
    /// pages.insert_blocking(&2, "b");
    /// assert_eq!(pages.peek_blocking(&1), Some("a")); // does not count as a use
    /// pages.insert_blocking(&3, "c");
    /// assert!(!pages.contains_key(&1));
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn peek_blocking<Q>(&self, key: &Q) -> Option<V>
    where
        Q: ?Sized + Hash + Equivalent<K>,
        V: Clone,
    {
        let key = self.key(key);
        if !needs_drop::<V>() {
            if let Ok(seen) = self.core.glance(&key, V::clone) {
                return seen;
            }
        }
        copy(match self.core.find_hold(&key, PEEK)? {
            Ok(hold) => Guard::new(TableRef::new(self), hold),
            Err(claim) => run(Blocking.acquire(Request::new(TableRef::new(self), claim, PEEK))),
        })
    }
}

/// Clones the value, and releases the key before it returns the clone: if the release panics, the unwinding drops the
/// clone.
fn copy<K, V: Clone, S>(guard: Guard<TableRef<'_, LockMap<K, V, S>>, Unmarked<Shared>>) -> Option<V> {
    let value = guard.value().cloned();
    drop(guard);
    value
}
