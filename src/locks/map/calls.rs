//! Operations that lock a key only while the call runs, such as `get` and `insert`; and `get_or_insert_with`, which
//! returns a reader's guard.

use core::convert::Infallible;
use core::future::Future;
use core::hash::{BuildHasher, Hash};
use core::mem::needs_drop;

use equivalent::Equivalent;

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use super::find::ByKey;
use super::find::{Find, FindOrMake, Map};
use super::version::{AddOrUpdate, Conflict, Version};
use super::{LockMap, MapReadGuard};
use crate::acquire::manner::{Awaiting, Manner};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::manner::{Blocking, run};
use crate::acquire::request::Request;
use crate::guard::Guard;
use crate::key::ToKey;
use crate::mode::{Exclusive, Shared, Upgradable};
use crate::plumbing::TableRef;
use crate::plumbing::sealed::TablePtrInside as _;

/// The operations, generic over the manner of waiting and over the way to the entry. They drop their remaining arguments
/// and guards explicitly before they return: if such a drop panics, the result is dropped while unwinding, and not
/// leaked.
///
/// They are methods of the reference, not of the map, because they do not need the hasher to be `Sync`. They consume
/// `entry`, the way to the entry, before they wait, so that a waiting future does not keep a key.
impl<'a, K, V, S> Map<'a, K, V, S> {
    async fn get_as(self, entry: impl Find<'a, K, V, S>, manner: impl Manner) -> Option<V>
    where
        V: Clone,
    {
        let found;
        {
            let mut entry = entry;
            if !needs_drop::<V>() {
                entry = match entry.peek(self, V::clone) {
                    Ok(seen) => return seen,
                    Err(entry) => entry,
                };
            }
            found = entry.find(self, Shared::NEW).ok();
        }
        let Some(found) = found else {
            self.core().count_miss();
            return None;
        };
        let guard = match found {
            Ok(guard) => guard,
            Err(request) => manner.acquire(request).await,
        };
        let value = guard.value().cloned();
        drop(guard);
        value
    }

    async fn insert_as(self, entry: impl FindOrMake<'a, K, V, S>, value: V, manner: impl Manner) -> Option<V> {
        let (kept, made);
        match entry.insert(self, value) {
            Ok(old) => return old,
            Err((entry, value)) => {
                kept = value;
                made = entry.make(self, Exclusive::NEW);
            }
        }
        let mut guard = match made {
            Ok(guard) => guard,
            Err(request) => manner.acquire(request).await,
        };
        let old = guard.insert(kept);
        drop(guard);
        old
    }

    async fn remove_as(self, entry: impl Find<'a, K, V, S>, manner: impl Manner) -> Option<V> {
        let found = match entry.remove(self) {
            Ok(removed) => return removed,
            Err(entry) => entry.find(self, Exclusive::NEW).ok(),
        };
        let mut guard = match found? {
            Ok(guard) => guard,
            Err(request) => manner.acquire(request).await,
        };
        let removed = guard.remove();
        drop(guard);
        removed
    }

    async fn get_or_try_insert_as<E, F: Future<Output = Result<V, E>>>(
        self,
        entry: impl FindOrMake<'a, K, V, S>,
        init: impl FnOnce() -> F,
        manner: impl Manner,
    ) -> Result<MapReadGuard<'a, K, V, S>, E> {
        // Calls that find a value share the key.
        let found = match entry.find(self, Shared::NEW) {
            Ok(reader) => Err(reader),
            Err(entry) => entry.make(self, Shared::NEW).map_err(Err),
        };
        let mut writer = match found {
            Ok(writer) => {
                self.core().count_miss();
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
                // Only one caller at a time computes the value, beside readers. When it has stored the value and
                // continues as a reader, the others get in and find the value.
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

    async fn add_or_update_as(
        self,
        entry: impl FindOrMake<'a, K, V, S>,
        value: V,
        manner: impl Manner,
    ) -> AddOrUpdate<V>
    where
        V: PartialEq,
    {
        let made = entry.make(self, Upgradable::NEW);
        let mut writer = match made {
            Ok(writer) => writer,
            Err(request) => {
                let reader = manner.acquire(request).await;
                if reader.value() == Some(&value) {
                    drop(reader);
                    drop(value);
                    return AddOrUpdate::Unchanged;
                }
                manner.upgrade(reader).await
            }
        };
        let old = writer.insert(value);
        drop(writer);
        old.map_or(AddOrUpdate::Added, AddOrUpdate::Updated)
    }

    /// Locks the key for writing, if the value has this version. Fails with the version found.
    async fn write_if(
        self,
        entry: impl Find<'a, K, V, S>,
        version: Version,
        manner: impl Manner,
    ) -> Result<Guard<Self, Exclusive>, Option<Version>> {
        let found = entry.find(self, Upgradable::NEW).ok();
        let reader = match found {
            None => return Err(None),
            Some(Ok(reader)) => reader,
            Some(Err(request)) => manner.acquire(request).await,
        };
        let found = reader.version();
        if found == Some(version) {
            return Ok(manner.upgrade(reader).await);
        }
        drop(reader);
        Err(found)
    }

    async fn update_if_as(
        self,
        entry: impl Find<'a, K, V, S>,
        version: Version,
        value: V,
        manner: impl Manner,
    ) -> Result<Version, Conflict<V>> {
        match self.write_if(entry, version, manner).await {
            Ok(mut writer) => {
                let old = writer.insert(value);
                let version = writer.version().expect("a value that has just been stored has a version");
                drop(writer);
                drop(old);
                Ok(version)
            }
            Err(found) => Err(Conflict::new(found, value)),
        }
    }

    async fn remove_if_as(
        self,
        entry: impl Find<'a, K, V, S>,
        version: Version,
        manner: impl Manner,
    ) -> Result<V, Conflict<()>> {
        match self.write_if(entry, version, manner).await {
            Ok(mut writer) => {
                let removed = writer.remove();
                drop(writer);
                Ok(removed.expect("a version belongs to a value"))
            }
            Err(found) => Err(Conflict::new(found, ())),
        }
    }
}

/// The sentences of the docs that say when the future of a call finds its entry.
macro_rules! found_when {
    (by_claim) => {
        "This call hashes the key and finds its entry, so the future neither borrows nor copies the key. The request starts \
         at the first poll. A key that has no entry at the call has no value for the future, even if another call stores one \
         before the first poll. If the key has an entry, the future keeps it in the map until it finishes, but not its \
         value."
    };
    (by_claim_or_key) => {
        "This call hashes the key, and copies it only if it has no entry or owns nothing, so the future does not borrow it. \
         The request starts at the first poll. A future that has not copied the key keeps the entry in the map until it \
         finishes, but not its value."
    };
}

/// Defines an operation of a single call, as a future and blocking.
macro_rules! one_call {
    ($(
        // The operation's summary without a full stop, and the rest of its docs.
        #[doc = $does:literal]
        $(#[doc = $more:literal])*
        async $call:ident, blocking $call_blocking:ident by $call_as:ident ($($argument:ident: $Argument:ty),*) -> $Output:ty $(, errors $errors:literal)?
        where [$($bound:tt)*], found $by:ident, asked with [$($asked:tt)+],
        // For the examples: the lines before the call, its arguments, and its result.
        example = [$($before:literal),*], $arguments:literal, $gives:literal;
    )+) => {
        /// Operations that lock a key only while the call runs.
        impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {$(
            #[doc = concat!($does, ".")]
            ///
            $(#[doc = $more])*
            ///
            #[doc = found_when!($by)]
            ///
            $(
                /// # Errors
                #[doc = $errors]
                ///
            )?
            /// # Cancel safety
            /// The future can be dropped at any moment. If it had not finished, it has changed nothing.
            ///
            /// # Panics
            /// As [`LockMap`](LockMap#panics).
            ///
            /// # Examples
            /// ```
            /// # futures_lite::future::block_on(async {
            /// let map = keylatch::LockMap::<String, u32>::new();
            $(#[doc = $before])*
            #[doc = concat!("assert_eq!(map.", stringify!($call), "(", $arguments, ").await", $gives, ");")]
            /// # });
            /// ```
            pub fn $call<'a, Q>(
                &'a self,
                key: &Q,
                $($argument: $Argument,)*
            ) -> impl Future<Output = $Output> + use<'a, Q, K, V, S>
            where
                Q: $($asked)+,
                $($bound)*
            {
                TableRef::new(self).$call_as(self.$by(key), $($argument,)* Awaiting)
            }

            #[doc = concat!($does, ", blocking the thread while it waits.")]
            ///
            $(#[doc = $more])*
            ///
            $(
                /// # Errors
                #[doc = $errors]
                ///
            )?
            /// # Blocking
            /// As [`read_blocking`](LockMap::read_blocking). Not for use inside a task: there, use
            #[doc = concat!("[`", stringify!($call), "`](Self::", stringify!($call), ").")]
            ///
            /// # Panics
            /// As [`LockMap`](LockMap#panics).
            ///
            /// # Examples
            /// ```
            /// let map = keylatch::LockMap::<String, u32>::new();
            $(#[doc = $before])*
            #[doc = concat!("assert_eq!(map.", stringify!($call_blocking), "(", $arguments, ")", $gives, ");")]
            /// ```
            #[cfg(all(feature = "std", not(target_family = "wasm")))]
            #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
            pub fn $call_blocking<Q>(&self, key: &Q, $($argument: $Argument),*) -> $Output
            where
                Q: $($asked)+,
                $($bound)*
            {
                run(TableRef::new(self).$call_as(ByKey(self.key(key)), $($argument,)* Blocking))
            }
        )+}
    };
}

one_call! {
    /// Returns a clone of a key's value; `None` if it has none
    /// To read the value without cloning it, use [`read`](Self::read). A `V` that owns nothing (for which
    /// [`needs_drop`](core::mem::needs_drop) is false) may be cloned under an internal lock, so its `clone` must not use the map.
    async get, blocking get_blocking by get_as() -> Option<V>
    where [V: Clone,], found by_claim, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\"", ", Some(7)";

    /// Stores a value for a key and returns the old one
    ///
    async insert, blocking insert_blocking by insert_as(value: V) -> Option<V>
    where [], found by_claim_or_key, asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\", 8", ", Some(7)";

    /// Removes a key's value and returns it
    ///
    async remove, blocking remove_blocking by remove_as() -> Option<V>
    where [], found by_claim, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\"", ", Some(7)";

    /// Stores a value for a key, unless the key has an equal value
    /// The key is locked for [upgradable reading](Self::upgradable_read) until the values have been compared: so an
    /// unchanged value keeps no plain readers out.
    async add_or_update, blocking add_or_update_blocking by add_or_update_as(value: V) -> AddOrUpdate<V>
    where [V: PartialEq,], found by_claim_or_key, asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\", 8", ", keylatch::AddOrUpdate::Updated(7)";

    /// Stores a value for a key, if its present value has this version, and returns the new version
    /// Otherwise nothing changes, and the [`Conflict`] contains the value that was not written. The key is locked for
    /// [upgradable reading](Self::upgradable_read) until the version has been compared: so a conflict keeps no plain
    /// readers out.
    async update_if, blocking update_if_blocking by update_if_as(version: Version, value: V) -> Result<Version, Conflict<V>>, errors "If the value has another version, or the key has no value."
    where [], found by_claim, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);", "let seen = map.try_read(\"a\").unwrap().version().unwrap();"],
    "\"a\", seen, 8", ".unwrap(), map.try_read(\"a\").unwrap().version().unwrap()";

    /// Removes a key's value, if it has this version, and returns it
    /// Otherwise nothing changes. The key is locked for [upgradable reading](Self::upgradable_read) until the version has
    /// been compared: so a conflict keeps no plain readers out.
    async remove_if, blocking remove_if_blocking by remove_if_as(version: Version) -> Result<V, Conflict<()>>, errors "If the value has another version, or the key has no value."
    where [], found by_claim, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);", "let seen = map.try_read(\"a\").unwrap().version().unwrap();"],
    "\"a\", seen", ".unwrap(), 7";
}

/// Computing a missing value once per key.
impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {
    /// Returns a reader's guard of a key that has a value; if there is none, `init` makes it.
    ///
    /// One caller for each key runs `init`, while it holds the key as a writer; concurrent callers for the same key
    /// wait, and then find its value. No caller waits for the guard that another such call has returned, unless a
    /// writer waits for the key in between: then the [policy](crate::Fairness) decides. If `init` panics, or its
    /// caller's future is dropped, the next caller runs its own `init`.
    ///
    /// `init` returns a future (`async || …`); for the [blocking form](Self::get_or_insert_with_blocking) it returns
    /// the value. It must not request the same key, which would wait for ever. It may use other keys.
    ///
    /// This call hashes the key, and copies it only if it has no entry or owns nothing, so the future does not borrow it.
    /// The request starts at the first poll. A future that has not copied the key keeps the entry in the map until it
    /// finishes, but not its value.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. If it had not finished, it has changed nothing.
    ///
    /// # Panics
    /// As [`LockMap`](LockMap#panics), and if `init` panics.
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

    /// Returns a reader's guard of a key that has a value; if there is none, `init` makes it, or fails.
    ///
    /// It works as [`get_or_insert_with`](Self::get_or_insert_with). If `init` fails, the next caller runs its own.
    ///
    /// # Errors
    /// Returns the error of `init`.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. If it had not finished, it has changed nothing.
    ///
    /// # Panics
    /// As [`LockMap`](LockMap#panics), and if `init` panics.
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

    /// Returns a reader's guard of a key that has a value; if there is none, `init` makes it. It blocks the thread
    /// while it waits.
    ///
    /// See [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// # Blocking
    /// As [`read_blocking`](Self::read_blocking), and while another caller runs its `init`.
    ///
    /// # Panics
    /// As [`LockMap`](LockMap#panics), and if `init` panics.
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

    /// Returns a reader's guard of a key that has a value; if there is none, `init` makes it, or fails. It blocks the
    /// thread while it waits.
    ///
    /// See [`get_or_try_insert_with`](Self::get_or_try_insert_with).
    ///
    /// # Errors
    /// Returns the error of `init`.
    ///
    /// # Blocking
    /// As [`read_blocking`](Self::read_blocking), and while another caller runs its `init`.
    ///
    /// # Panics
    /// As [`LockMap`](LockMap#panics), and if `init` panics.
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
        run(TableRef::new(self).get_or_try_insert_as(ByKey(self.key(key)), || core::future::ready(init()), Blocking))
    }
}

fn always<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
