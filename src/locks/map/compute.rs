//! Inserting, changing or removing a value in one step.

use core::future::Future;
use core::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::LockMap;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use super::find::ByKey;
use super::find::{FindOrMake, Map};
use super::version::Version;
use crate::acquire::manner::{Awaiting, Manner};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::manner::{Blocking, run};
use crate::key::ToKey;
use crate::mode::Exclusive;
use crate::plumbing::TableRef;

impl<'a, K, V, S> Map<'a, K, V, S> {
    async fn compute_as<F: Future<Output = Option<V>>>(
        self,
        entry: impl FindOrMake<'a, K, V, S>,
        change: impl FnOnce(Option<V>) -> F,
        manner: impl Manner,
    ) -> Option<Version> {
        let found = entry.enter(self, Exclusive::NEW);
        let mut writer = match found {
            Ok(writer) => writer,
            Err(request) => manner.acquire(request).await,
        };
        // If `change` panics, or is dropped while it waits, the slot is empty, and so the key has no value.
        let mut slot = writer.value_slot();
        let value = slot.take();
        *slot = change(value).await;
        drop(slot);
        let version = writer.version();
        drop(writer);
        version
    }
}

/// Inserting, changing or removing a value in one step.
impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {
    /// Replaces a key's value with the result of `change`, and returns the version of the new value; `None` if there is
    /// none.
    ///
    /// `change` is called with the value (`None` if the key has none), and returns the new value (`None` to leave the
    /// key without one). So one step can insert, change or remove. A value that is returned gets a new version, even if
    /// it is equal to the old one.
    ///
    /// `change` returns a future (`async |value| …`); for the [blocking form](Self::compute_blocking) it returns the
    /// value. It runs while this call holds the key as a writer: it may use other keys, but a request for this one
    /// would wait for ever.
    ///
    /// # The value belongs to `change`
    /// While `change` runs, calls that do not wait for the key, such as [`contains_key`](Self::contains_key), see no
    /// value. If `change` panics, or if the future is dropped meanwhile, the value that `change` was given is lost,
    /// unless `change` has put it somewhere else. Either way, the key is then free, and has no value, as after a
    /// [`remove`](Self::remove). A change that must not lose the value must be made in place, by
    /// [`update`](Self::update) or under the guard of [`write`](Self::write).
    ///
    /// This call hashes the key, and copies it only if it has no entry or owns nothing, so the future does not borrow
    /// it. The request starts at the first poll. A future that has not copied the key keeps the entry in the map until
    /// it finishes, but not its value.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. If it has not called `change` yet, it has changed nothing; if `change`
    /// has not finished, the value is lost (see above). A `change` that does not wait is never interrupted.
    ///
    /// # Panics
    /// Panics as [`LockMap`](LockMap#panics) does, and if `change` panics.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let stock = keylatch::LockMap::<String, u32>::new();
    /// let sell_one = async |left: Option<u32>| left.map(|left| left - 1).filter(|&left| left > 0);
    /// stock.insert("apples", 2).await;
    /// assert!(stock.compute("apples", sell_one).await.is_some());
    /// assert_eq!(stock.get("apples").await, Some(1));
    /// assert_eq!(stock.compute("apples", sell_one).await, None); // the last one: removes the value
    /// assert!(!stock.contains_key("apples"));
    /// # });
    /// ```
    #[doc(alias = "alter")]
    #[doc(alias = "entry")]
    pub fn compute<'a, Q, C, F>(
        &'a self,
        key: &Q,
        change: C,
    ) -> impl Future<Output = Option<Version>> + use<'a, Q, K, V, S, C, F>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
        C: FnOnce(Option<V>) -> F,
        F: Future<Output = Option<V>>,
    {
        TableRef::new(self).compute_as(self.by_claim_or_key(key), change, Awaiting)
    }

    /// Replaces a key's value with the result of `change`, and returns the version of the new value; `None` if there is
    /// none. It blocks the thread while it waits.
    ///
    /// See [`compute`](Self::compute), including the effect of a panic in `change`.
    ///
    /// # Blocking
    /// Blocks like [`read_blocking`](Self::read_blocking). Do not call this in a task; there, use
    /// [`compute`](Self::compute).
    ///
    /// # Panics
    /// Panics as [`LockMap`](LockMap#panics) does, and if `change` panics.
    ///
    /// # Examples
    /// ```
    /// let stock = keylatch::LockMap::<String, u32>::new();
    /// let version = stock.compute_blocking("apples", |left| Some(left.unwrap_or(0) + 7));
    /// assert_eq!(stock.get_versioned_blocking("apples"), version.map(|version| (7, version)));
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn compute_blocking<Q>(&self, key: &Q, change: impl FnOnce(Option<V>) -> Option<V>) -> Option<Version>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
    {
        let change = |value| core::future::ready(change(value));
        run(TableRef::new(self).compute_as(ByKey(self.key(key)), change, Blocking))
    }
}
