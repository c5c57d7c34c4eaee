//! Calls that return a reader's guard of a value, and make a missing value, once per key.

use core::convert::Infallible;
use core::future::{Future, ready};
use core::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use super::find::ByKey;
use super::find::{FindOrMake, Map};
use super::{LockMap, MapReadGuard};
use crate::acquire::manner::{Awaiting, Manner};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::manner::{Blocking, run};
use crate::acquire::request::Request;
use crate::key::ToKey;
use crate::mode::{Shared, Upgradable};
use crate::plumbing::TableRef;
use crate::plumbing::sealed::TablePtrInside as _;

/// The operations. They drop their arguments explicitly: see the [other operations](super::calls).
impl<'a, K, V, S> Map<'a, K, V, S> {
    pub(super) async fn get_or_try_insert_as<E, F: Future<Output = Result<V, E>>>(
        self,
        entry: impl FindOrMake<'a, K, V, S>,
        init: impl FnOnce() -> F,
        manner: impl Manner,
    ) -> Result<MapReadGuard<'a, K, V, S>, E> {
        // Calls that find a value share the key.
        let found = match entry.make(self, Shared::NEW) {
            Err(Ok(reader)) if reader.value().is_some() => {
                drop(init);
                return Ok(reader);
            }
            found => found,
        };
        let mut writer = match found {
            Ok(writer) => {
                self.core().note_look_up(writer.live());
                writer
            }
            Err(reader) => {
                let reader = match reader {
                    Ok(reader) => reader,
                    Err(request) => manner.acquire(request).await,
                };
                if reader.value().is_some() {
                    drop(init);
                    return Ok(reader);
                }
                // Only one caller at a time gets past this request, and it keeps readers out only from its upgrade on.
                // When it has stored the value and continues as a reader, the other callers get in and find the value.
                let claim = self.core().claim(&mut reader.live());
                let request = Request::new(self, claim, Upgradable::NEW);
                drop(reader);
                let reader = manner.acquire(request).await;
                if reader.value().is_some() {
                    let reader = reader.downgrade();
                    drop(init);
                    return Ok(reader);
                }
                manner.upgrade(reader).await
            }
        };
        let made = init().await;
        match made {
            Ok(value) => {
                writer.insert(value);
                Ok(writer.downgrade())
            }
            Err(error) => {
                drop(writer);
                Err(error)
            }
        }
    }

    pub(super) async fn get_or_insert_as(
        self,
        entry: impl FindOrMake<'a, K, V, S>,
        value: V,
        manner: impl Manner,
    ) -> MapReadGuard<'a, K, V, S> {
        always(self.get_or_try_insert_as(entry, || ready(Ok(value)), manner).await)
    }

    pub(super) async fn get_or_default_as(
        self,
        entry: impl FindOrMake<'a, K, V, S>,
        manner: impl Manner,
    ) -> MapReadGuard<'a, K, V, S>
    where
        V: Default,
    {
        always(self.get_or_try_insert_as(entry, || ready(Ok(V::default())), manner).await)
    }
}

/// Computing a missing value once per key.
impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {
    /// Returns a reader's guard of a key; if the key has no value, `init` makes one first.
    ///
    /// One caller for each key runs `init`, while it holds the key as a writer; concurrent callers for the same key
    /// wait, and then find its value. No caller waits for a guard that another such call has returned, unless a writer
    /// is waiting for the key. Then the [policy](crate::Fairness) decides. If `init` panics, or its caller's future is
    /// dropped, the next caller runs its own `init`.
    ///
    /// `init` returns a future (`async || …`); for the [blocking form](Self::get_or_insert_with_blocking) it returns
    /// the value. It may use other keys, but a request for the same key would wait for ever.
    ///
    /// This call hashes the key, and copies it only if it has no entry or owns nothing, so the future does not borrow
    /// it. The request starts at the first poll. A future that has not copied the key keeps the entry in the map until
    /// it finishes, but not its value.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. If it had not finished, it has changed nothing.
    ///
    /// # Panics
    /// Panics as [`LockMap`](LockMap#panics) does, and if `init` panics.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let pages = keylatch::LockMap::<String, String>::new();
    /// let page = pages.get_or_insert_with("home", async || "rendered".to_string()).await;
    /// assert_eq!(page.value().unwrap(), "rendered");
    /// # });
    /// ```
    pub fn get_or_insert_with<'a, Q, I, F>(
        &'a self,
        key: &Q,
        init: I,
    ) -> impl Future<Output = MapReadGuard<'a, K, V, S>> + use<'a, Q, K, V, S, I, F>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
        I: FnOnce() -> F,
        F: Future<Output = V>,
    {
        let (map, key) = (TableRef::new(self), self.by_claim_or_key(key));
        async move {
            let init = async || Ok(init().await);
            always(map.get_or_try_insert_as(key, init, Awaiting).await)
        }
    }

    /// Returns a reader's guard of a key; if the key has no value, `init` makes one first, or fails.
    ///
    /// It works like [`get_or_insert_with`](Self::get_or_insert_with). If `init` fails, the next caller runs its own
    /// `init`.
    ///
    /// # Errors
    /// Returns the error of `init`.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. If it had not finished, it has changed nothing.
    ///
    /// # Panics
    /// Panics as [`LockMap`](LockMap#panics) does, and if `init` panics.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let pages = keylatch::LockMap::<String, String>::new();
    /// let page = pages.get_or_try_insert_with("home", async || Err("no connection")).await;
    /// assert_eq!(page.err(), Some("no connection"));
    /// assert!(!pages.contains_key("home"));
    /// # });
    /// ```
    pub fn get_or_try_insert_with<'a, Q, E, I, F>(
        &'a self,
        key: &Q,
        init: I,
    ) -> impl Future<Output = Result<MapReadGuard<'a, K, V, S>, E>> + use<'a, Q, K, V, S, E, I, F>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
        I: FnOnce() -> F,
        F: Future<Output = Result<V, E>>,
    {
        TableRef::new(self).get_or_try_insert_as(self.by_claim_or_key(key), init, Awaiting)
    }

    /// Returns a reader's guard of a key; if the key has no value, `init` makes one first. The call blocks the thread
    /// while it waits.
    ///
    /// See [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// # Blocking
    /// Blocks like [`read_blocking`](Self::read_blocking), and while another caller runs its `init`.
    ///
    /// # Panics
    /// Panics as [`LockMap`](LockMap#panics) does, and if `init` panics.
    ///
    /// # Examples
    /// ```
    /// let pages = keylatch::LockMap::<String, String>::new();
    /// let page = pages.get_or_insert_with_blocking("home", || "rendered".to_string());
    /// assert_eq!(page.value().unwrap(), "rendered");
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[must_use = "bind it: `let page = …` (`let _ = …` releases it at once)"]
    pub fn get_or_insert_with_blocking<Q>(&self, key: &Q, init: impl FnOnce() -> V) -> MapReadGuard<'_, K, V, S>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
    {
        always(self.get_or_try_insert_with_blocking(key, || Ok(init())))
    }

    /// Returns a reader's guard of a key; if the key has no value, `init` makes one first, or fails. The call blocks
    /// the thread while it waits.
    ///
    /// See [`get_or_try_insert_with`](Self::get_or_try_insert_with).
    ///
    /// # Errors
    /// Returns the error of `init`.
    ///
    /// # Blocking
    /// Blocks like [`read_blocking`](Self::read_blocking), and while another caller runs its `init`.
    ///
    /// # Panics
    /// Panics as [`LockMap`](LockMap#panics) does, and if `init` panics.
    ///
    /// # Examples
    /// ```
    /// let pages = keylatch::LockMap::<String, String>::new();
    /// let page = pages.get_or_try_insert_with_blocking("home", || Err("no connection"));
    /// assert_eq!(page.err(), Some("no connection"));
    /// let page = pages.get_or_try_insert_with_blocking("home", || Ok::<_, std::io::Error>("rendered".to_string()))?;
    /// assert_eq!(page.value().unwrap(), "rendered");
    /// # Ok::<_, std::io::Error>(())
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn get_or_try_insert_with_blocking<Q, E>(
        &self,
        key: &Q,
        init: impl FnOnce() -> Result<V, E>,
    ) -> Result<MapReadGuard<'_, K, V, S>, E>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
    {
        run(TableRef::new(self).get_or_try_insert_as(ByKey(self.key(key)), || ready(init()), Blocking))
    }
}

pub(super) fn always<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
