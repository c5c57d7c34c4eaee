//! Calls that refresh a value when it is old: one caller makes the new value, and the others get the old one meanwhile.

use core::future::Future;
use core::hash::{BuildHasher, Hash};
use core::time::Duration;

use equivalent::Equivalent;

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use super::find::ByKey;
use super::find::{ByClaim, FindOrMake, Map};
use super::get_or::always;
use super::{LockMap, MapKind, MapReadGuard};
use crate::acquire::manner::{Awaiting, Manner};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::manner::{Blocking, run};
use crate::builder::Builder;
use crate::core::Refresh;
use crate::key::ToKey;
use crate::mode::Exclusive;
use crate::plumbing::TableRef;
use crate::plumbing::sealed::TablePtrInside as _;

/// The task of refreshing a value, which one caller has at a time. When this is dropped, another caller may refresh the
/// value.
struct Refresher<'a, K, V, S> {
    map: Map<'a, K, V, S>,
    refresh: Refresh,
}

impl<'a, K, V, S> Refresher<'a, K, V, S> {
    /// Begins to refresh the value of a guard, if the value is old and nobody else is refreshing it.
    fn begin(map: Map<'a, K, V, S>, found: &MapReadGuard<'a, K, V, S>, fresh_for: Duration) -> Option<Self> {
        map.core().begin_refresh(found.live(), fresh_for).map(|refresh| Refresher { map, refresh })
    }
}

impl<K, V, S> Drop for Refresher<'_, K, V, S> {
    fn drop(&mut self) {
        self.map.core().end_refresh(self.refresh);
    }
}

/// The operation. It drops its arguments explicitly: see the [other operations](super::calls).
impl<'a, K, V: Clone, S> Map<'a, K, V, S> {
    async fn get_or_try_refresh_as<E, F: Future<Output = Result<V, E>>>(
        self,
        entry: impl FindOrMake<'a, K, V, S>,
        fresh_for: Duration,
        init: impl FnOnce() -> F,
        manner: impl Manner,
    ) -> Result<V, E> {
        let mut init = Some(init);
        let make = || init.take().map_or_else(|| unreachable!("a missing value is made once"), |init| init());
        let found = self.get_or_try_insert_as(entry, make, manner).await?;
        // A value that this call has just made is not refreshed.
        let refresher = if init.is_some() { Refresher::begin(self, &found, fresh_for) } else { None };
        let Some(refresher) = refresher else {
            let value = found.value().cloned();
            drop(found);
            drop(init);
            return Ok(value.expect("there was a value, or it has been made"));
        };

        // The claim keeps the entry, but no lock is held while the value is made.
        let entry = ByClaim::of(self, &found);
        drop(found);
        let made = match init {
            Some(init) => init().await,
            None => unreachable!("it has not been called"),
        };
        let value = match made {
            Ok(value) => value,
            Err(error) => {
                drop(entry);
                drop(refresher);
                return Err(error);
            }
        };
        let copy = value.clone();
        let mut writer = manner.acquire(entry.into_request(Exclusive::NEW)).await;
        if refresher.refresh.is_of(writer.live()) {
            let old = writer.insert(value);
            drop(writer);
            drop(refresher);
            drop(old);
            return Ok(copy);
        }
        // A later value stays. A removal stands, too: it may mean that the data that `init` has read is out of date.
        let later = writer.value().cloned();
        drop(writer);
        drop(refresher);
        drop(value);
        let Some(later) = later else { return Ok(copy) };
        drop(copy);
        Ok(later)
    }
}

/// Values that are refreshed.
impl<V, K, S> Builder<MapKind<V>, K, S> {
    /// Records when each value was stored or changed, for [`get_or_refresh_with`](LockMap::get_or_refresh_with) and
    /// [`age`](LockMap::age).
    ///
    /// The age of a value is counted from the moment at which its writer releases the key or becomes a reader, not from
    /// the start of `init` or the insertion. So a value that took a minute to make is new when it is stored.
    ///
    /// Values need not [end](Self::time_to_live) for this. But like a map whose values end, the map needs a
    /// [clock](Self::clock), and its calls take as long as those of such a map. If the values end, too, each takes 16
    /// bytes more than it would otherwise; if they do not, about 50 bytes more. In other maps this feature costs
    /// nothing.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch::LockMap;
    ///
    /// let rates: LockMap<String, f64> = LockMap::builder()
    ///     .record_ages()
    ///     .time_to_live(Duration::from_secs(3600)) // nobody gets a value that is older than that
    ///     .build();
    /// let rate = rates.get_or_refresh_with_blocking("EUR", Duration::from_secs(60), || 1.08);
    /// assert_eq!(rate, 1.08);
    /// ```
    pub fn record_ages(mut self) -> Self
    where
        K: Clone,
    {
        self.hooks().get_or_insert_default().time().ages = true;
        self
    }
}

/// The ages of values.
impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {
    /// Returns the time since a key's value was stored or changed; `None` if the key has no value.
    ///
    /// The call does not wait for a writer that has locked the key, and the answer may be out of date when it arrives.
    /// The call does not count as a use of the value.
    ///
    /// # Panics
    /// Panics if the map was built without [`record_ages`](crate::Builder::record_ages), and as
    /// [`LockMap`](LockMap#panics) does.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use keylatch::{LockMap, ManualClock};
    ///
    /// let clock = Arc::new(ManualClock::new());
    /// let rates: LockMap<String, f64> = LockMap::builder().record_ages().clock(Arc::clone(&clock)).build();
    /// rates.insert_blocking("EUR", 1.08);
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(rates.age("EUR"), Some(Duration::from_secs(60)));
    /// assert_eq!(rates.age("USD"), None);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn age<Q: ?Sized + Hash + Equivalent<K>>(&self, key: &Q) -> Option<Duration> {
        self.assert_ages("age");
        self.core.age(&self.key(key))
    }

    #[track_caller]
    fn assert_ages(&self, call: &str) {
        assert!(
            self.core.records_ages(),
            "keylatch: {call} needs the ages of values: build the map with `Builder::record_ages`"
        );
    }
}

/// Refreshing a value that is old, once per key.
impl<K: Eq + Hash, V: Clone, S: BuildHasher> LockMap<K, V, S> {
    /// Returns a clone of a key's value. If the key has none, `init` makes one; if the value is old, one caller makes
    /// the next one, while all others get the old value.
    ///
    /// | the value | this call |
    /// |---|---|
    /// | is missing or has ended | works as [`get_or_insert_with`](Self::get_or_insert_with): one caller for each key runs `init`, while it holds the key as a writer, and the others wait |
    /// | is younger than `fresh_for` | returns it |
    /// | is `fresh_for` old or older, and nobody refreshes it | refreshes it: runs `init`, and returns the new value |
    /// | is that old, and is being refreshed | returns it |
    ///
    /// A cache that works like this is called *stale-while-revalidate*. The map must be built with
    /// [`record_ages`](crate::Builder::record_ages). Different callers may pass different values of `fresh_for`; with
    /// [`Duration::ZERO`] every value is old. [`time_to_live`](crate::Builder::time_to_live) sets the age beyond which
    /// nobody gets a value, even if no refresh succeeds.
    ///
    /// # The refresher
    /// The caller that refreshes a value waits for its own `init`: the map has no executor that could run it in the
    /// background. The caller holds no lock meanwhile, so others read and write as usual. Then it acquires the key as a
    /// writer, and stores the new value, whose age begins then. Like any writer, it waits for those who hold the key at
    /// that moment, and requests that come then may have to wait for it. So hold guards of the map briefly.
    ///
    /// If `init` panics, or the refresher's future is dropped, the old value stays, and the next caller that finds it
    /// old refreshes it. If the future is forgotten ([`core::mem::forget`]), or its `init` never ends, nobody else
    /// refreshes the value, which gets older until it is changed or removed, or ends.
    ///
    /// # Changes meanwhile
    /// A refresh replaces only the value that was there when it began, as an [`update_if`](Self::update_if) with that
    /// value's version would:
    ///
    /// - If the value was changed, even in place, or replaced, the refresher drops its own value and returns the later
    ///   one.
    /// - If the key has no value any more, it stays without one, and the refresher returns its own value, which nobody
    ///   else gets: a removal may mean that the data that `init` has read is out of date. The same is true if the value
    ///   has ended or was evicted. So a `time_to_live`, if there is one, should exceed `fresh_for` by more than the
    ///   time that `init` takes.
    ///
    /// So another caller can refresh a later value of the key, or make a missing one, while the first refresher still
    /// runs its `init`.
    ///
    /// # The call
    /// `init` returns a future (`async || …`); for the [blocking form](Self::get_or_refresh_with_blocking) it returns
    /// the value. It may use other keys, but must not request the same key: if the value is missing, that request would
    /// wait for ever. For the same reason the caller must hold no guard of the key. (While the value is fresh, a
    /// reader's guard does no harm, but a caller that becomes the refresher would wait for its own guard.)
    ///
    /// This call hashes the key, and copies it only if it has no entry or owns nothing, so the future does not borrow
    /// it. The request starts at the first poll. A future that has not copied the key, and a refresher, keep the entry
    /// in the map until they finish, but not its value, unless the map has a function
    /// [`on_evict`](crate::Builder::on_evict), which needs the key. The call counts as a use of the value, and as a hit
    /// if there is one.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. If it had not finished, it has changed nothing.
    ///
    /// # Panics
    /// Panics as [`LockMap`](LockMap#panics) does, if the map was built without
    /// [`record_ages`](crate::Builder::record_ages), and if `init` panics.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use keylatch::{LockMap, ManualClock};
    ///
    /// const MINUTE: Duration = Duration::from_secs(60);
    ///
    /// let clock = Arc::new(ManualClock::new());
    /// let rates: LockMap<String, f64> = LockMap::builder().record_ages().clock(Arc::clone(&clock)).build();
    /// assert_eq!(rates.get_or_refresh_with("EUR", MINUTE, async || 1.08).await, 1.08);
    /// assert_eq!(rates.get_or_refresh_with("EUR", MINUTE, async || 1.09).await, 1.08); // still fresh
    ///
    /// clock.advance(MINUTE);
    /// let ask_again = async || {
    ///     // Another caller does not wait for the new rate:
    ///     assert_eq!(rates.get_or_refresh_with("EUR", MINUTE, async || 1.10).await, 1.08);
    ///     1.09
    /// };
    /// assert_eq!(rates.get_or_refresh_with("EUR", MINUTE, ask_again).await, 1.09);
    /// # });
    /// ```
    #[doc(alias = "stale-while-revalidate")]
    #[doc(alias = "refresh_after_write")]
    #[track_caller]
    pub fn get_or_refresh_with<'a, Q, I, F>(
        &'a self,
        key: &Q,
        fresh_for: Duration,
        init: I,
    ) -> impl Future<Output = V> + use<'a, Q, K, V, S, I, F>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
        I: FnOnce() -> F,
        F: Future<Output = V>,
    {
        self.assert_ages("get_or_refresh_with");
        let (map, key) = (TableRef::new(self), self.by_claim_or_key(key));
        async move {
            let init = async || Ok(init().await);
            always(map.get_or_try_refresh_as(key, fresh_for, init, Awaiting).await)
        }
    }

    /// Returns a clone of a key's value. If the key has none, `init` makes one, or fails; if the value is old, one
    /// caller makes the next one, or fails, while all others get the old value.
    ///
    /// It works like [`get_or_refresh_with`](Self::get_or_refresh_with). If the `init` of a refresher fails, the old
    /// value stays, and the next caller that finds it old refreshes it. So while a source is down, there is one attempt
    /// at a time.
    ///
    /// # Errors
    /// Returns the error of `init`, only to the caller whose `init` it was. That caller can still
    /// [`get`](Self::get) the old value.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. If it had not finished, it has changed nothing.
    ///
    /// # Panics
    /// Panics as [`get_or_refresh_with`](Self::get_or_refresh_with) does.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use std::time::Duration;
    ///
    /// let rates: keylatch::LockMap<String, f64> = keylatch::LockMap::builder().record_ages().build();
    /// rates.insert("EUR", 1.08).await;
    /// let rate = match rates.get_or_try_refresh_with("EUR", Duration::ZERO, async || Err("no connection")).await {
    ///     Ok(rate) => Some(rate),
    ///     Err(_) => rates.get("EUR").await, // the old one will do
    /// };
    /// assert_eq!(rate, Some(1.08));
    /// # });
    /// ```
    #[track_caller]
    pub fn get_or_try_refresh_with<'a, Q, E, I, F>(
        &'a self,
        key: &Q,
        fresh_for: Duration,
        init: I,
    ) -> impl Future<Output = Result<V, E>> + use<'a, Q, K, V, S, E, I, F>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
        I: FnOnce() -> F,
        F: Future<Output = Result<V, E>>,
    {
        self.assert_ages("get_or_try_refresh_with");
        TableRef::new(self).get_or_try_refresh_as(self.by_claim_or_key(key), fresh_for, init, Awaiting)
    }

    /// Returns a clone of a key's value. If the key has none, `init` makes one; if the value is old, one caller makes
    /// the next one, while all others get the old value. The call blocks the thread while it waits.
    ///
    /// See [`get_or_refresh_with`](Self::get_or_refresh_with).
    ///
    /// # Blocking
    /// Blocks like [`read_blocking`](Self::read_blocking), and, if there is no value, while another caller runs its
    /// `init`. A refresher also blocks like [`write_blocking`](Self::write_blocking).
    ///
    /// # Panics
    /// Panics as [`get_or_refresh_with`](Self::get_or_refresh_with) does.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let rates: keylatch::LockMap<String, f64> = keylatch::LockMap::builder().record_ages().build();
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(rates.get_or_refresh_with_blocking("EUR", minute, || 1.08), 1.08);
    /// assert_eq!(rates.get_or_refresh_with_blocking("EUR", minute, || 1.09), 1.08); // fresh
    /// assert_eq!(rates.get_or_refresh_with_blocking("EUR", Duration::ZERO, || 1.09), 1.09); // old
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[track_caller]
    pub fn get_or_refresh_with_blocking<Q>(&self, key: &Q, fresh_for: Duration, init: impl FnOnce() -> V) -> V
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
    {
        self.assert_ages("get_or_refresh_with_blocking");
        always(self.get_or_try_refresh_with_blocking(key, fresh_for, || Ok(init())))
    }

    /// Returns a clone of a key's value. If the key has none, `init` makes one, or fails; if the value is old, one
    /// caller makes the next one, or fails, while all others get the old value. The call blocks the thread while it
    /// waits.
    ///
    /// See [`get_or_try_refresh_with`](Self::get_or_try_refresh_with).
    ///
    /// # Errors
    /// Returns the error of `init`, only to the caller whose `init` it was.
    ///
    /// # Blocking
    /// Blocks as [`get_or_refresh_with_blocking`](Self::get_or_refresh_with_blocking) does.
    ///
    /// # Panics
    /// Panics as [`get_or_refresh_with`](Self::get_or_refresh_with) does.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let rates: keylatch::LockMap<String, f64> = keylatch::LockMap::builder().record_ages().build();
    /// rates.insert_blocking("EUR", 1.08);
    /// let rate = rates.get_or_try_refresh_with_blocking("EUR", Duration::ZERO, || Err("no connection"));
    /// assert_eq!(rate, Err("no connection"));
    /// assert_eq!(rates.get_blocking("EUR"), Some(1.08));
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[track_caller]
    pub fn get_or_try_refresh_with_blocking<Q, E>(
        &self,
        key: &Q,
        fresh_for: Duration,
        init: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
    {
        self.assert_ages("get_or_try_refresh_with_blocking");
        let entry = ByKey(self.key(key));
        run(TableRef::new(self).get_or_try_refresh_as(entry, fresh_for, || core::future::ready(init()), Blocking))
    }
}
