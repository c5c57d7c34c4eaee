//! One call each: the key is locked for the length of the call.

use core::convert::Infallible;
use core::future::Future;
use core::hash::{BuildHasher, Hash};
use core::mem::needs_drop;

use equivalent::Equivalent;

use super::version::{AddOrUpdate, Conflict, Version};
use super::{LockMap, MapReadGuard};
use crate::acquire::manner::{Awaiting, Manner};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::manner::{Blocking, run};
use crate::acquire::request::Request;
use crate::core::{Ask, Busy, Claim, ClaimIn, OwnedKey, Source, Valued};
use crate::guard::Guard;
use crate::key::ToKey;
use crate::mode::{Exclusive, Mode, Shared, Upgradable};
use crate::plumbing::TableRef;
use crate::plumbing::sealed::TablePtrInside as _;

type Map<'a, K, V, S> = TableRef<'a, LockMap<K, V, S>>;

/// What the entry of a call is found by.
trait Way<'a, K, V, S>: Sized {
    /// A copy of the value, if nobody uses the entry.
    fn peek(self, map: Map<'a, K, V, S>, copy: impl FnOnce(&V) -> V) -> Result<Option<V>, Self>;

    /// Takes the value out, if nobody uses the entry.
    fn remove(self, map: Map<'a, K, V, S>) -> Result<Option<V>, Self>;

    /// A guard of an entry that there is, or a request for one.
    fn find<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Result<Found<'a, K, V, S, M>, Self>;
}

/// The same, of a call that makes an entry where there is none.
trait Makes<'a, K, V, S>: Way<'a, K, V, S> {
    /// Stores a value, and gives the old one, if nobody uses the entry and nothing has to be made first.
    fn insert(self, map: Map<'a, K, V, S>, value: V) -> Result<Option<V>, (Self, V)>;

    /// A guard of an entry that is made, or a request for one that there is.
    fn make<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Made<'a, K, V, S, M>;
}

type Found<'a, K, V, S, M> = Result<Guard<Map<'a, K, V, S>, M>, Request<Map<'a, K, V, S>, M>>;
type Made<'a, K, V, S, M> = Result<Guard<Map<'a, K, V, S>, Exclusive>, Request<Map<'a, K, V, S>, M>>;

/// A key, which is looked up when the call asks. It is dropped while what has been found is in a local, and so is not leaked if that
/// panics.
struct ByKey<A>(A);

impl<'a, K, V, S, A: Ask<K>> Way<'a, K, V, S> for ByKey<A> {
    #[inline]
    fn peek(self, map: Map<'a, K, V, S>, copy: impl FnOnce(&V) -> V) -> Result<Option<V>, Self> {
        match map.core().peek(&self.0, copy) {
            Ok(seen) => {
                drop(self);
                Ok(seen)
            }
            Err(Busy(())) => Err(self),
        }
    }

    #[inline]
    fn remove(self, map: Map<'a, K, V, S>) -> Result<Option<V>, Self> {
        match map.core().remove_at_once(&self.0) {
            Ok(removed) => {
                drop(self);
                Ok(removed)
            }
            Err(Busy(())) => Err(self),
        }
    }

    #[inline]
    fn find<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Result<Found<'a, K, V, S, M>, Self> {
        let found = match map.core().find_hold(&self.0, mode) {
            Some(Ok(hold)) => Ok(Guard::new(map, hold)),
            Some(Err(claim)) => Err(Request::new(map, claim, mode)),
            None => return Err(self),
        };
        drop(self);
        Ok(found)
    }
}

impl<'a, K, V, S, A: Ask<K> + Source<K, Valued<V>>> Makes<'a, K, V, S> for ByKey<A> {
    #[inline]
    fn insert(mut self, map: Map<'a, K, V, S>, value: V) -> Result<Option<V>, (Self, V)> {
        match map.core().insert_at_once(&mut self.0, value) {
            Ok(old) => {
                drop(self);
                Ok(old)
            }
            Err(Busy(value)) => Err((self, value)),
        }
    }

    #[inline]
    fn make<M: Mode>(mut self, map: Map<'a, K, V, S>, mode: M) -> Made<'a, K, V, S, M> {
        let made = match map.core().make_or_claim(&mut self.0, Exclusive::NEW) {
            Ok(hold) => Ok(Guard::new(map, hold)),
            Err(claim) => Err(Request::new(map, claim, mode)),
        };
        drop(self);
        made
    }
}

/// The entry that the key of a future had when the call was made: a claim keeps it, so that no key is needed any more. `None` if it had
/// none, or when the claim is used up.
struct Spotted<'a, K, V, S> {
    map: Map<'a, K, V, S>,
    claim: Option<ClaimIn<Map<'a, K, V, S>>>,
}

impl<'a, K, V, S> Spotted<'a, K, V, S> {
    #[inline]
    fn new(map: Map<'a, K, V, S>, key: &impl Ask<K>) -> Self {
        Spotted { map, claim: map.core().find_claim(key).map(ClaimIn::new) }
    }

    #[inline]
    fn take(&mut self) -> Option<Claim<K, Valued<V>>> {
        self.claim.take().map(ClaimIn::into_claim)
    }

    #[inline]
    fn put_back(mut self, claim: Claim<K, Valued<V>>) -> Self {
        self.claim = Some(ClaimIn::new(claim));
        self
    }
}

impl<K, V, S> Drop for Spotted<'_, K, V, S> {
    #[inline]
    fn drop(&mut self) {
        if let Some(claim) = self.take() {
            self.map.core().withdraw(claim);
        }
    }
}

impl<'a, K, V, S> Way<'a, K, V, S> for Spotted<'a, K, V, S> {
    #[inline]
    fn peek(mut self, map: Map<'a, K, V, S>, copy: impl FnOnce(&V) -> V) -> Result<Option<V>, Self> {
        let Some(claim) = self.take() else { return Ok(None) };
        map.core().peek_by(claim, copy).map(Some).map_err(|Busy(claim)| self.put_back(claim))
    }

    #[inline]
    fn remove(mut self, map: Map<'a, K, V, S>) -> Result<Option<V>, Self> {
        let Some(claim) = self.take() else { return Ok(None) };
        map.core().remove_by(claim).map(Some).map_err(|Busy(claim)| self.put_back(claim))
    }

    #[inline]
    fn find<M: Mode>(mut self, map: Map<'a, K, V, S>, mode: M) -> Result<Found<'a, K, V, S, M>, Self> {
        self.take().map(|claim| Err(Request::new(map, claim, mode))).ok_or(self)
    }
}

/// The entry of a future's key, or where it has none, and where that costs nothing, a key of its own.
enum Sought<'a, K, V, S> {
    Entry(Spotted<'a, K, V, S>),
    Key(ByKey<OwnedKey<K>>),
}

impl<'a, K: Eq, V, S> Way<'a, K, V, S> for Sought<'a, K, V, S> {
    #[inline]
    fn peek(self, map: Map<'a, K, V, S>, copy: impl FnOnce(&V) -> V) -> Result<Option<V>, Self> {
        match self {
            Sought::Entry(entry) => entry.peek(map, copy).map_err(Sought::Entry),
            Sought::Key(key) => key.peek(map, copy).map_err(Sought::Key),
        }
    }

    #[inline]
    fn remove(self, map: Map<'a, K, V, S>) -> Result<Option<V>, Self> {
        match self {
            Sought::Entry(entry) => entry.remove(map).map_err(Sought::Entry),
            Sought::Key(key) => key.remove(map).map_err(Sought::Key),
        }
    }

    #[inline]
    fn find<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Result<Found<'a, K, V, S, M>, Self> {
        match self {
            Sought::Entry(entry) => entry.find(map, mode).map_err(Sought::Entry),
            Sought::Key(key) => key.find(map, mode).map_err(Sought::Key),
        }
    }
}

impl<'a, K: Eq, V, S> Makes<'a, K, V, S> for Sought<'a, K, V, S> {
    #[inline]
    fn insert(self, map: Map<'a, K, V, S>, value: V) -> Result<Option<V>, (Self, V)> {
        match self {
            Sought::Entry(mut entry) => {
                let Some(claim) = entry.take() else { unreachable!("an entry that was sought is there") };
                let old = map.core().insert_by(claim, value).map(Some);
                old.map_err(|Busy((claim, value))| (Sought::Entry(entry.put_back(claim)), value))
            }
            Sought::Key(key) => key.insert(map, value).map_err(|(key, value)| (Sought::Key(key), value)),
        }
    }

    #[inline]
    fn make<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Made<'a, K, V, S, M> {
        match self {
            Sought::Entry(mut entry) => {
                let Some(claim) = entry.take() else { unreachable!("an entry that was sought is there") };
                Err(Request::new(map, claim, mode))
            }
            Sought::Key(key) => key.make(map, mode),
        }
    }
}

/// The operations, in whatever manner they wait, and whatever their entry is found by. What is still in their hands when they return is
/// dropped before that: if such a drop panics, what they return is dropped on the way out, and not leaked.
///
/// They are the reference's, and not the map's, because it does not matter to them whether the hasher is `Sync`. A key that they ask
/// with is used up before they wait, so that a future that waits does not keep it.
impl<'a, K, V, S> Map<'a, K, V, S> {
    async fn get_as(self, way: impl Way<'a, K, V, S>, manner: impl Manner) -> Option<V>
    where
        V: Clone,
    {
        let found;
        {
            let mut way = way;
            if !needs_drop::<V>() {
                way = match way.peek(self, V::clone) {
                    Ok(seen) => return seen,
                    Err(way) => way,
                };
            }
            found = way.find(self, Shared::NEW).ok();
        }
        let guard = match found? {
            Ok(guard) => guard,
            Err(request) => manner.acquire(request).await,
        };
        let value = guard.value().cloned();
        drop(guard);
        value
    }

    async fn insert_as(self, way: impl Makes<'a, K, V, S>, value: V, manner: impl Manner) -> Option<V> {
        let (kept, made);
        match way.insert(self, value) {
            Ok(old) => return old,
            Err((way, value)) => {
                kept = value;
                made = way.make(self, Exclusive::NEW);
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

    async fn remove_as(self, way: impl Way<'a, K, V, S>, manner: impl Manner) -> Option<V> {
        let found = match way.remove(self) {
            Ok(removed) => return removed,
            Err(way) => way.find(self, Exclusive::NEW).ok(),
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
        way: impl Makes<'a, K, V, S>,
        init: impl FnOnce() -> F,
        manner: impl Manner,
    ) -> Result<MapReadGuard<'a, K, V, S>, E> {
        // Hits share the key.
        let found = match way.find(self, Shared::NEW) {
            Ok(reader) => Err(reader),
            Err(way) => way.make(self, Shared::NEW).map_err(Err),
        };
        let mut writer = match found {
            Ok(writer) => writer,
            Err(reader) => {
                let reader = match reader {
                    Ok(reader) => reader,
                    Err(request) => manner.acquire(request).await,
                };
                if reader.value().is_some() {
                    drop(init);
                    return Ok(reader);
                }
                // One at a time, but beside readers: when the first has stored its value, and reads on, the others get in and
                // find it.
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

    async fn add_or_update_as(self, way: impl Makes<'a, K, V, S>, value: V, manner: impl Manner) -> AddOrUpdate<V>
    where
        V: PartialEq,
    {
        let made = way.make(self, Upgradable::NEW);
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

    /// A writer, if the value has this version.
    async fn write_if(
        self,
        way: impl Way<'a, K, V, S>,
        version: Version,
        manner: impl Manner,
    ) -> Result<Guard<Self, Exclusive>, Option<Version>> {
        let found = way.find(self, Upgradable::NEW).ok();
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
        way: impl Way<'a, K, V, S>,
        version: Version,
        value: V,
        manner: impl Manner,
    ) -> Result<Version, Conflict<V>> {
        match self.write_if(way, version, manner).await {
            Ok(mut writer) => {
                let old = writer.insert(value);
                let version = writer.version().expect("it has just been stored");
                drop(writer);
                drop(old);
                Ok(version)
            }
            Err(found) => Err(Conflict::new(found, value)),
        }
    }

    async fn remove_if_as(
        self,
        way: impl Way<'a, K, V, S>,
        version: Version,
        manner: impl Manner,
    ) -> Result<V, Conflict<()>> {
        match self.write_if(way, version, manner).await {
            Ok(mut writer) => {
                let removed = writer.remove();
                drop(writer);
                Ok(removed.expect("it has that version"))
            }
            Err(found) => Err(Conflict::new(found, ())),
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {
    /// For a future that makes no entry.
    fn spot<Q: ?Sized + Hash + Equivalent<K>>(&self, key: &Q) -> Spotted<'_, K, V, S> {
        Spotted::new(TableRef::new(self), &self.key(key))
    }

    /// For a future that makes an entry where there is none.
    fn seek<Q: ?Sized + Hash + Equivalent<K> + ToKey<K>>(&self, key: &Q) -> Sought<'_, K, V, S> {
        let key = self.key(key);
        // A key that owns nothing is made for nothing.
        if needs_drop::<K>() {
            let entry = Spotted::new(TableRef::new(self), &key);
            if entry.claim.is_some() {
                return Sought::Entry(entry);
            }
        }
        Sought::Key(ByKey(key.owned()))
    }
}

/// How the future of a call finds the entry, and when: for the documentation.
macro_rules! found {
    (spot) => {
        "The key is hashed, and its entry found, by this call, so the future neither borrows nor copies it; it asks at its first poll. \
         A key that has no entry when the call is made has no value, even if it gets one before the poll. Until it is done the future \
         keeps the entry in the map, though not its value."
    };
    (seek) => {
        "The key is hashed by this call, and a key of the map's type made only if it has no entry, or owns nothing: so the future does not \
         borrow it. It asks at its first poll. Until it is done it keeps an entry that was there in the map, though not its value."
    };
}

/// An operation that is one call: as a future, and blocking.
macro_rules! one_call {
    ($(
        // What it does, without a full stop, and what else is to be said.
        #[doc = $does:literal]
        $(#[doc = $more:literal])*
        async $call:ident, blocking $call_blocking:ident by $call_as:ident ($($argument:ident: $Argument:ty),*) -> $Output:ty $(, errors $errors:literal)?
        where [$($bound:tt)*], by $by:ident, asked with [$($asked:tt)+],
        // For the examples: what comes before, the arguments, and what the call gives.
        example = [$($before:literal),*], $arguments:literal, $gives:literal;
    )+) => {
        /// One call each: the key is locked for the length of the call.
        impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {$(
            #[doc = concat!($does, ".")]
            ///
            $(#[doc = $more])*
            ///
            #[doc = found!($by)]
            ///
            $(
                /// # Errors
                #[doc = $errors]
                ///
            )?
            /// # Cancel safety
            /// The future can be dropped at any moment. If it was not done, it has changed nothing.
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
    /// A copy of a key's value, `None` if it has none
    /// To look at the value without copying it, use [`read`](Self::read). A `V` that owns nothing (for which
    /// [`needs_drop`](core::mem::needs_drop) is false) is mostly copied under an internal lock, so its `clone` must not use the map.
    async get, blocking get_blocking by get_as() -> Option<V>
    where [V: Clone,], by spot, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\"", ", Some(7)";

    /// Stores a value for a key, and returns the old one
    ///
    async insert, blocking insert_blocking by insert_as(value: V) -> Option<V>
    where [], by seek, asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\", 8", ", Some(7)";

    /// Removes a key's value, and returns it
    ///
    async remove, blocking remove_blocking by remove_as() -> Option<V>
    where [], by spot, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\"", ", Some(7)";

    /// Stores a value for a key, unless it has an equal one
    /// The key is locked as by an [upgradable reader](Self::upgradable_read) until it is clear that there is something to write: so
    /// plain readers stay in.
    async add_or_update, blocking add_or_update_blocking by add_or_update_as(value: V) -> AddOrUpdate<V>
    where [V: PartialEq,], by seek, asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);"], "\"a\", 8", ", keylatch::AddOrUpdate::Updated(7)";

    /// Stores a value for a key, if the value that it has still has this version, and returns the new version
    /// Else nothing is changed, and the [`Conflict`] has the value that was not written. The key is locked as by an
    /// [upgradable reader](Self::upgradable_read) until it is clear that there is something to write: a conflict keeps no reader
    /// out.
    async update_if, blocking update_if_blocking by update_if_as(version: Version, value: V) -> Result<Version, Conflict<V>>, errors "If the value has another version by now, or is gone."
    where [], by spot, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);", "let seen = map.try_read(\"a\").unwrap().version().unwrap();"],
    "\"a\", seen, 8", ".unwrap(), map.try_read(\"a\").unwrap().version().unwrap()";

    /// Removes a key's value, if it still has this version, and returns it
    /// Else nothing is changed. The key is locked as by an [upgradable reader](Self::upgradable_read) until it is clear that there is
    /// something to remove: a conflict keeps no reader out.
    async remove_if, blocking remove_if_blocking by remove_if_as(version: Version) -> Result<V, Conflict<()>>, errors "If the value has another version by now, or is gone."
    where [], by spot, asked with [?Sized + Hash + Equivalent<K>],
    example = ["map.try_write(\"a\").unwrap().insert(7);", "let seen = map.try_read(\"a\").unwrap().version().unwrap();"],
    "\"a\", seen", ".unwrap(), 7";
}

/// Look, compute, store: once for each key.
impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {
    /// The value of a key, as a reader's guard; if there is none, `init` makes it.
    ///
    /// One caller for each key runs `init`, while it holds the key as a writer; others who ask for the same key wait, and get its
    /// value. None of them waits for a guard that another call has returned, whenever they began, unless a writer waits for the
    /// key in between: then the [policy](crate::Fairness) decides. If `init` panics, or its caller is dropped, the next one runs
    /// its own.
    ///
    /// `init` gives a future (`async || …`); the [blocking form](Self::get_or_insert_with_blocking) takes one that gives the value. It must
    /// not ask for the same key: that would never return. It may use other keys.
    ///
    /// The key is hashed by this call, and a key of the map's type made only if it has no entry, or owns nothing: so the future does not
    /// borrow it. It asks at its first poll. Until it is done it keeps an entry that was there in the map, though not its value.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. If it was not done, it has changed nothing.
    ///
    /// # Panics
    /// As [`LockMap`](LockMap#panics), and if `init` does.
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
        let (map, key) = (TableRef::new(self), self.seek(key));
        async move {
            let init = async || Ok(init().await);
            always(map.get_or_try_insert_as(key, init, Awaiting).await)
        }
    }

    /// The value of a key, as a reader's guard; if there is none, `init` makes it, or fails.
    ///
    /// As [`get_or_insert_with`](Self::get_or_insert_with); after an error the next caller runs its own `init`.
    ///
    /// # Errors
    /// That of `init`.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. If it was not done, it has changed nothing.
    ///
    /// # Panics
    /// As [`LockMap`](LockMap#panics), and if `init` does.
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
        TableRef::new(self).get_or_try_insert_as(self.seek(key), init, Awaiting)
    }

    /// The value of a key, as a reader's guard; if there is none, `init` makes it. It blocks the thread while it waits.
    ///
    /// See [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// # Blocking
    /// As [`read_blocking`](Self::read_blocking), and while another caller runs its `init`.
    ///
    /// # Panics
    /// As [`LockMap`](LockMap#panics), and if `init` does.
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

    /// The value of a key, as a reader's guard; if there is none, `init` makes it, or fails. It blocks the thread while it waits.
    ///
    /// See [`get_or_try_insert_with`](Self::get_or_try_insert_with).
    ///
    /// # Errors
    /// That of `init`.
    ///
    /// # Blocking
    /// As [`read_blocking`](Self::read_blocking), and while another caller runs its `init`.
    ///
    /// # Panics
    /// As [`LockMap`](LockMap#panics), and if `init` does.
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
