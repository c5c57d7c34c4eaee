//! Single-call operations, such as `get` and `insert`. Most lock a key only while the call runs.

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
use crate::core::VersionOf;
use crate::guard::Guard;
use crate::key::ToKey;
use crate::mode::{Exclusive, Shared, Upgradable};
use crate::plumbing::TableRef;
use crate::plumbing::sealed::TablePtrInside as _;

/// The operations, generic over the manner of waiting and over the way to find the entry. They drop their remaining
/// arguments and guards explicitly before they return: if such a drop panics, the unwinding drops the result, which
/// would otherwise leak.
///
/// They are methods of the reference, not of the map, so that their futures do not require the hasher to be `Sync`.
/// They consume `entry`, the way to find the entry, before they wait, so that a waiting future does not keep a key.
impl<'a, K, V, S> Map<'a, K, V, S> {
    /// Looks at the value of a key as a reader; if the value owns nothing and the entry is not in use, under an
    /// internal lock.
    async fn look_as<R>(
        self,
        entry: impl Find<'a, K, V, S>,
        look: impl Fn(&V, VersionOf<'_, K, V>) -> R + Copy,
        manner: impl Manner,
    ) -> Option<R> {
        let found;
        {
            let mut entry = entry;
            if !needs_drop::<V>() {
                entry = match entry.peek(self, look) {
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
        let request = match found {
            Ok(guard) => return seen(guard, look),
            Err(request) => request,
        };
        seen(manner.acquire(request).await, look)
    }

    fn get_as(self, entry: impl Find<'a, K, V, S>, manner: impl Manner) -> impl Future<Output = Option<V>>
    where
        V: Clone,
    {
        self.look_as(entry, |value, _| value.clone(), manner)
    }

    fn get_versioned_as(
        self,
        entry: impl Find<'a, K, V, S>,
        manner: impl Manner,
    ) -> impl Future<Output = Option<(V, Version)>>
    where
        V: Clone,
    {
        let look = |value: &V, version: VersionOf<'_, K, V>| (value.clone(), Version::new(version.get()));
        self.look_as(entry, look, manner)
    }

    async fn insert_as(self, entry: impl FindOrMake<'a, K, V, S>, value: V, manner: impl Manner) -> Option<V> {
        let (kept, found);
        match entry.insert(self, value) {
            Ok(old) => return old,
            Err((entry, value)) => {
                kept = value;
                found = entry.enter(self, Exclusive::NEW);
            }
        }
        let request = match found {
            Ok(guard) => return inserted(guard, kept),
            Err(request) => request,
        };
        inserted(manner.acquire(request).await, kept)
    }

    async fn insert_if_absent_as(
        self,
        entry: impl FindOrMake<'a, K, V, S>,
        value: V,
        manner: impl Manner,
    ) -> Result<Version, V> {
        let found = match entry.make(self, Upgradable::NEW) {
            Ok(writer) => return Ok(stored(writer, value)),
            Err(Ok(reader)) if reader.value().is_some() => {
                drop(reader);
                return Err(value);
            }
            Err(found) => found,
        };
        let reader = match found {
            Ok(reader) => reader,
            Err(request) => manner.acquire(request).await,
        };
        if reader.value().is_some() {
            drop(reader);
            return Err(value);
        }
        Ok(stored(manner.upgrade(reader).await, value))
    }

    async fn update_as<R>(
        self,
        entry: impl Find<'a, K, V, S>,
        change: impl FnOnce(&mut V) -> R,
        manner: impl Manner,
    ) -> Option<R> {
        let found = entry.find(self, Exclusive::NEW).ok();
        let request = match found? {
            Ok(guard) => return changed(guard, change),
            Err(request) => request,
        };
        changed(manner.acquire(request).await, change)
    }

    async fn remove_as(self, entry: impl Find<'a, K, V, S>, manner: impl Manner) -> Option<V> {
        let found = match entry.remove(self) {
            Ok(removed) => return removed,
            Err(entry) => entry.find(self, Exclusive::NEW).ok(),
        };
        let request = match found? {
            Ok(guard) => return removed(guard),
            Err(request) => request,
        };
        removed(manner.acquire(request).await)
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
        let writer = match entry.make(self, Upgradable::NEW) {
            Ok(writer) => writer,
            Err(found) => {
                let reader = match found {
                    Ok(reader) => reader,
                    Err(request) => manner.acquire(request).await,
                };
                if reader.value() == Some(&value) {
                    drop(reader);
                    drop(value);
                    return AddOrUpdate::Unchanged;
                }
                manner.upgrade(reader).await
            }
        };
        inserted(writer, value).map_or(AddOrUpdate::Added, AddOrUpdate::Updated)
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
                let version = version_of(writer);
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

// The last steps of operations. They are functions, so that a guard that is acquired without waiting never becomes part
// of a future.

#[inline]
fn seen<K, V, S, R>(guard: Guard<Map<'_, K, V, S>, Shared>, look: impl Fn(&V, VersionOf<'_, K, V>) -> R) -> Option<R> {
    let seen = guard.value().map(|value| look(value, VersionOf::Entry(guard.live())));
    drop(guard);
    seen
}

#[inline]
fn inserted<K, V, S>(mut guard: Guard<Map<'_, K, V, S>, Exclusive>, value: V) -> Option<V> {
    let old = guard.insert(value);
    drop(guard);
    old
}

#[inline]
fn changed<K, V, S, R>(mut guard: Guard<Map<'_, K, V, S>, Exclusive>, change: impl FnOnce(&mut V) -> R) -> Option<R> {
    let mut changed = None;
    if let Some(value) = guard.value_mut() {
        changed = Some(change(value));
    } // otherwise `change` is dropped at the end, after the guard
    drop(guard);
    changed
}

#[inline]
fn removed<K, V, S>(mut guard: Guard<Map<'_, K, V, S>, Exclusive>) -> Option<V> {
    let removed = guard.remove();
    drop(guard);
    removed
}

#[inline]
fn stored<K, V, S>(mut writer: Guard<Map<'_, K, V, S>, Exclusive>, value: V) -> Version {
    writer.insert(value);
    version_of(writer)
}

/// Releases a key whose value has just been stored, and returns the value's version.
fn version_of<K, V, S>(writer: Guard<Map<'_, K, V, S>, Exclusive>) -> Version {
    writer.version().expect("a value that has just been stored has a version")
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

/// Defines a single-call operation, as a future and as a blocking call.
macro_rules! one_call {
    ($(
        // The operation's summary without a full stop, and the rest of its docs.
        #[doc = $does:literal]
        $(#[doc = $more:literal])*
        async $call:ident, blocking $call_blocking:ident $(for $borrow:lifetime)? by $call_as:ident $(<$($Generic:ident),+>)? ($($argument:ident: $Argument:ty),*) -> $Output:ty $(, errors $errors:literal)?
        where [$($bound:tt)*], found $by:ident, asked with [$($asked:tt)+],
        // (`for 'a`: the output of the blocking form borrows the map.)
        // For the examples: the lines before the call, its arguments, and its result.
        example = [$($before:literal),*], $arguments:literal, $gives:literal;
    )+) => {
        /// Single-call operations. Most lock a key only while the call runs.
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
            /// Panics as [`LockMap`](LockMap#panics) does.
            ///
            /// # Examples
            /// ```
            /// # futures_lite::future::block_on(async {
            /// let map = keylatch::LockMap::<String, u32>::new();
            $(#[doc = $before])*
            #[doc = concat!("assert_eq!(map.", stringify!($call), "(", $arguments, ").await", $gives, ");")]
            /// # });
            /// ```
            pub fn $call<'a, Q $($(, $Generic)+)?>(
                &'a self,
                key: &Q,
                $($argument: $Argument,)*
            ) -> impl Future<Output = $Output> + use<'a, Q, K, V, S $($(, $Generic)+)?>
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
            /// Blocks like [`read_blocking`](LockMap::read_blocking). Do not call this in a task; there, use
            #[doc = concat!("[`", stringify!($call), "`](Self::", stringify!($call), ").")]
            ///
            /// # Panics
            /// Panics as [`LockMap`](LockMap#panics) does.
            ///
            /// # Examples
            /// ```
            /// let map = keylatch::LockMap::<String, u32>::new();
            $(#[doc = $before])*
            #[doc = concat!("assert_eq!(map.", stringify!($call_blocking), "(", $arguments, ")", $gives, ");")]
            /// ```
            #[cfg(all(feature = "std", not(target_family = "wasm")))]
            #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
            pub fn $call_blocking<$($borrow,)? Q $($(, $Generic)+)?>(&$($borrow)? self, key: &Q, $($argument: $Argument),*) -> $Output
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
    /// [`needs_drop`](core::mem::needs_drop) is false) may be cloned under an internal lock, so its `clone` must not
    /// use the map.
    async get, blocking get_blocking by get_as() -> Option<V>
    where [V: Clone,], found by_claim, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\"", ", Some(7)";

    /// Returns a clone of a key's value, and the value's version; `None` if the key has no value
    /// Both are from the same instant, so the version can be the condition of an [`update_if`](Self::update_if). A `V`
    /// that owns nothing may be cloned under an internal lock: see [`get`](Self::get).
    async get_versioned, blocking get_versioned_blocking by get_versioned_as() -> Option<(V, Version)>
    where [V: Clone,], found by_claim, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);", "let version = map.try_read(\"a\").unwrap().version().unwrap();"],
    "\"a\"", ", Some((7, version))";

    /// Stores a value for a key and returns the old one
    ///
    async insert, blocking insert_blocking by insert_as(value: V) -> Option<V>
    where [], found by_claim_or_key, asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\", 8", ", Some(7)";

    /// Stores a value for a key that has none, and returns the value's version
    /// Otherwise nothing changes, and the error is the value that was not stored. The key is locked for [upgradable
    /// reading](Self::upgradable_read) while the call looks for a value, so a call that finds one keeps no plain
    /// readers out.
    async insert_if_absent, blocking insert_if_absent_blocking by insert_if_absent_as(value: V) -> Result<Version, V>, errors "If the key has a value: returns the one that was not stored."
    where [], found by_claim_or_key, asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\", 8", ", Err(8)";

    /// Returns a reader's guard of a key, and first stores this value if the key has none
    /// It works like [`get_or_insert_with`](Self::get_or_insert_with). If the key has a value, `value` is dropped while
    /// the call holds the key for reading, so its `Drop` must not write that key.
    async get_or_insert, blocking get_or_insert_blocking for 'a by get_or_insert_as(value: V) -> MapReadGuard<'a, K, V, S>
    where [], found by_claim_or_key, asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\", 8", ".value(), Some(&7)";

    /// Returns a reader's guard of a key, and first stores the default value if the key has none
    /// It works like [`get_or_insert_with`](Self::get_or_insert_with): [`Default::default`] is called in place of
    /// `init`, and must not request the same key.
    async get_or_default, blocking get_or_default_blocking for 'a by get_or_default_as() -> MapReadGuard<'a, K, V, S>
    where [V: Default,], found by_claim_or_key, asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    example = [], "\"a\"", ".value(), Some(&0)";

    /// Changes a key's value in place, and returns what `change` returns; `None` if the key has no value
    /// The value gets a new version. `change` runs while this call holds the key as a writer: it may use other keys,
    /// but a request for this one would wait for ever. If `change` panics, the value stays in the state in which
    /// `change` left it, with a new version, and the key is free. To change a value across an `.await`, use
    /// [`write`](Self::write); to insert or remove it in the same step, use [`compute`](Self::compute).
    async update, blocking update_blocking by update_as<R, F>(change: F) -> Option<R>
    where [F: FnOnce(&mut V) -> R,], found by_claim, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);", "let double = |value: &mut u32| std::mem::replace(value, 2 * *value);"],
    "\"a\", double", ", Some(7)";

    /// Removes a key's value and returns it
    ///
    async remove, blocking remove_blocking by remove_as() -> Option<V>
    where [], found by_claim, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\"", ", Some(7)";

    /// Stores a value for a key, unless the key has an equal value
    /// The key is locked for [upgradable reading](Self::upgradable_read) until the values have been compared, so a call
    /// that changes nothing keeps no plain readers out.
    async add_or_update, blocking add_or_update_blocking by add_or_update_as(value: V) -> AddOrUpdate<V>
    where [V: PartialEq,], found by_claim_or_key, asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\", 8", ", keylatch::AddOrUpdate::Updated(7)";

    /// Stores a value for a key, if its present value has this version, and returns the new version
    /// Otherwise nothing changes, and the [`Conflict`] contains the value that was not written. The key is locked for
    /// [upgradable reading](Self::upgradable_read) until the version has been compared, so a call that ends in a
    /// conflict keeps no plain readers out.
    async update_if, blocking update_if_blocking by update_if_as(version: Version, value: V) -> Result<Version, Conflict<V>>, errors "If the value has another version, or the key has no value."
    where [], found by_claim, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);", "let seen = map.try_read(\"a\").unwrap().version().unwrap();"],
    "\"a\", seen, 8", ".unwrap(), map.try_read(\"a\").unwrap().version().unwrap()";

    /// Removes a key's value, if it has this version, and returns it
    /// Otherwise nothing changes. The key is locked for [upgradable reading](Self::upgradable_read) until the version
    /// has been compared, so a call that ends in a conflict keeps no plain readers out.
    async remove_if, blocking remove_if_blocking by remove_if_as(version: Version) -> Result<V, Conflict<()>>, errors "If the value has another version, or the key has no value."
    where [], found by_claim, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);", "let seen = map.try_read(\"a\").unwrap().version().unwrap();"],
    "\"a\", seen", ".unwrap(), 7";
}
