use alloc::borrow::ToOwned;
#[cfg(target_has_atomic = "ptr")]
use alloc::sync::Arc;
use core::fmt;
use core::hash::{BuildHasher, Hash};
#[cfg(feature = "std")]
use std::time::{Duration, Instant};

use equivalent::Equivalent;

use crate::builder::{Builder, Kind};
use crate::core::{Core, Tag};
use crate::futures::Lock;
use crate::guard::MutexGuard;
use crate::handle::{Handle, KeyHandle};
use crate::mode::Exclusive;
use crate::owner::{Owner, Table, TableRef};
use crate::request::{Call, Key};
use crate::{DefaultHashBuilder, Status};
#[cfg(target_has_atomic = "ptr")]
use crate::{futures::LockArc, guard::MutexGuardArc, handle::KeyHandleArc};

/// A mutex for each key: at most one holder per key, any number of keys.
///
/// A key has an entry in the table only while somebody holds it, waits for it, or has a [handle](KeyedMutex::handle) or an
/// unfinished future for it. A new table has no entries and needs no list of keys.
///
/// The forms of locking can be mixed freely on one table and one key: tasks wait in [`lock`](KeyedMutex::lock), threads in
/// [`lock_blocking`](KeyedMutex::lock_blocking), and [`try_lock`](KeyedMutex::try_lock) does not wait.
///
/// Not reentrant: whoever asks for a key that it holds waits for itself. Not poisoned: a panic while a key is held
/// releases it, like any other drop of the guard. See the [crate's page](crate) for both, and for what all forms guarantee.
///
/// # Keys
/// A call that may make an entry takes `&Q`, where `Q` is what `K` is borrowed as: `KeyedMutex<String>` is locked with
/// `"a"`, `KeyedMutex<u64>` with `&7`. The owned key is made from it by `to_owned`, and only when the key has no entry. Keys
/// that [`ToOwned`] cannot make are not supported: an `Arc<str>` cannot be locked by `"a"`, nor a key that is not `Clone`.
///
/// # Panics
/// Every form panics if the key cannot count one more holder or waiter (see [`MAX_HOLDERS`](crate::MAX_HOLDERS)), and passes
/// on a panic of the key's `Hash`, `Eq`, `ToOwned` or `Drop`. The table stays usable, and nothing stays locked.
///
/// # Examples
/// ```
/// use keylatch::KeyedMutex;
///
/// let accounts = KeyedMutex::<u64>::new();
/// let first = accounts.lock_blocking(&1);
/// let second = accounts.lock_blocking(&2); // another key: no wait
/// assert!(accounts.try_lock(&1).is_none());
/// drop((first, second));
/// assert!(accounts.is_empty());
/// ```
pub struct KeyedMutex<K, S = DefaultHashBuilder> {
    core: Core<K>,
    hasher: S,
}

/// The kind of table that [`KeyedMutex::builder`] makes.
#[derive(Debug)]
pub enum MutexKind {}

impl Kind for MutexKind {
    type Table<K, S> = KeyedMutex<K, S>;

    fn table<K, S>(core: Core<K>, hasher: S) -> KeyedMutex<K, S> {
        KeyedMutex { core, hasher }
    }
}

impl<K, S> Table for KeyedMutex<K, S> {
    type Key = K;

    #[inline]
    fn core(&self) -> &Core<K> {
        &self.core
    }
}

impl<K> KeyedMutex<K> {
    /// A table with the default settings.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// assert!(locks.is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings for a table.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::builder().shards(1).build();
    /// # drop(locks);
    /// ```
    pub fn builder() -> Builder<MutexKind, K> {
        Builder::new(0)
    }
}

impl<K, S> KeyedMutex<K, S> {
    /// A table with the default settings and this hasher.
    ///
    /// # Examples
    /// ```
    /// use std::hash::RandomState;
    ///
    /// // SipHash instead of foldhash
    /// let locks = keylatch::KeyedMutex::<String, _>::with_hasher(RandomState::new());
    /// assert!(locks.try_lock("a").is_some());
    /// ```
    #[must_use]
    pub fn with_hasher(hasher: S) -> Self {
        KeyedMutex::builder().hasher(hasher).build()
    }

    /// How many keys have an entry now: those that are held, waited for, or kept by a handle or an unfinished future.
    ///
    /// The shards are counted one after another: the sum is exact if nothing changes meanwhile.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// let guard = locks.try_lock(&7);
    /// assert_eq!(locks.len(), 1);
    /// drop(guard);
    /// assert_eq!(locks.len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Whether no key has an entry. As exact as [`len`](KeyedMutex::len).
    ///
    /// # Examples
    /// ```
    /// assert!(keylatch::KeyedMutex::<u64>::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with every live entry: its key, and its status at the time when the entry was looked up.
    ///
    /// `f` runs outside every internal lock and may use the table. An entry is kept alive until `f` has seen it. An entry
    /// that comes or goes during the call may be seen or not; one that is there all the time is seen once.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// let _guards = (locks.try_lock(&1), locks.try_lock(&2));
    /// let mut keys = vec![];
    /// locks.for_each_key(|&key, status| {
    ///     assert_eq!(status.holders(), 1);
    ///     keys.push(key);
    /// });
    /// keys.sort();
    /// assert_eq!(keys, [1, 2]);
    /// ```
    pub fn for_each_key(&self, f: impl FnMut(&K, Status)) {
        self.core.for_each(f);
    }
}

impl<K: Eq + Hash, S: BuildHasher> KeyedMutex<K, S> {
    #[inline]
    fn tag<Q: ?Sized + Hash>(&self, key: &Q) -> Tag {
        Tag::of(self.hasher.hash_one(key))
    }

    #[inline]
    fn call<'q, Q: ?Sized + Hash>(&self, key: &'q Q) -> Call<TableRef<'_, Self>, Key<'q, Q>, Exclusive> {
        Call::new(TableRef::new(self), Key { tag: self.tag(key), key })
    }

    /// Locks a key: a future whose output is the guard.
    ///
    /// The key is hashed, and its entry found or made, by this call and not by the poll, so the future does not borrow
    /// the key. Nothing is acquired before the first poll.
    ///
    /// With [`until`](crate::futures::Acquire::until) the wait has a limit.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment: see [`Acquire`](crate::futures::Acquire#cancel-safety).
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let guard = locks.lock("a").await;
    /// // ... only one task is here for "a" ...
    /// drop(guard);
    /// # });
    /// ```
    pub fn lock<Q>(&self, key: &Q) -> Lock<'_, K, S>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call(key).future()
    }

    /// Locks a key if that is possible at once.
    ///
    /// `None` if the key is held; if it has been handed to a waiter that has not run yet; or if others wait for it and the
    /// [policy](crate::Fairness) lets nobody pass them any more. It never fails spuriously, and it waits for nobody but those
    /// who are inside the table for some dozen instructions.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let guard = locks.try_lock("a").unwrap();
    /// assert!(locks.try_lock("a").is_none());
    /// assert!(locks.try_lock("b").is_some());
    /// # drop(guard);
    /// ```
    pub fn try_lock<Q>(&self, key: &Q) -> Option<MutexGuard<'_, K, S>>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call(key).attempt()
    }

    /// Finds the entry of a key, or makes it, and keeps it in the table: for keys that are locked again and again.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let a = locks.handle("a");
    /// let guard = a.try_lock().unwrap();
    /// assert!(locks.try_lock("a").is_none());
    /// # drop(guard);
    /// ```
    pub fn handle<Q>(&self, key: &Q) -> KeyHandle<'_, Self>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call(key).handle()
    }

    /// Whether somebody holds the key now.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let guard = locks.try_lock("a");
    /// assert!(locks.is_locked("a") && !locks.is_locked("b"));
    /// # drop(guard);
    /// ```
    #[must_use]
    pub fn is_locked<Q>(&self, key: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.status(key).is_some_and(|status| status.holders() > 0)
    }

    /// Who holds the key and who waits for it: `None` if it has no entry.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// assert!(locks.status("a").is_none());
    /// let guard = locks.try_lock("a");
    /// assert_eq!(locks.status("a").unwrap().writers(), 1);
    /// # drop(guard);
    /// ```
    #[must_use]
    pub fn status<Q>(&self, key: &Q) -> Option<Status>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.core.status(self.tag(key), |other| key.equivalent(other))
    }
}

/// Blocking and timed calls.
#[cfg(feature = "std")]
impl<K: Eq + Hash, S: BuildHasher> KeyedMutex<K, S> {
    /// Locks a key, and blocks the thread until it has it.
    ///
    /// # Blocking
    /// A caller that has to wait tries again for about a microsecond, gives up its time slice a few times, and then sleeps
    /// until the key is free. Not for use inside a task, which would block its executor: there, use
    /// [`lock`](KeyedMutex::lock).
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let guard = locks.lock_blocking("a");
    /// // ... only one thread is here for "a" ...
    /// drop(guard);
    /// ```
    #[inline]
    pub fn lock_blocking<Q>(&self, key: &Q) -> MutexGuard<'_, K, S>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call(key).blocking()
    }

    /// Locks a key, and blocks the thread for at most `timeout`: `None` if the key could not be had in that time.
    ///
    /// The lock is tried at least once, also with a timeout of zero. A timeout that is too long for the clock, such as
    /// [`Duration::MAX`], is no limit.
    ///
    /// # Blocking
    /// As [`lock_blocking`](KeyedMutex::lock_blocking), for at most `timeout`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let guard = locks.try_lock_for("a", Duration::from_millis(1)).unwrap();
    /// assert!(locks.try_lock_for("a", Duration::from_millis(1)).is_none());
    /// # drop(guard);
    /// ```
    pub fn try_lock_for<Q>(&self, key: &Q, timeout: Duration) -> Option<MutexGuard<'_, K, S>>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call(key).timeout(timeout)
    }

    /// Locks a key, and blocks the thread until `deadline` at the longest: `None` if the key could not be had by then.
    ///
    /// The lock is tried at least once, also with a deadline in the past.
    ///
    /// # Blocking
    /// As [`lock_blocking`](KeyedMutex::lock_blocking), until `deadline` at the longest.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// let guard = locks.try_lock_until("a", deadline).unwrap();
    /// assert!(locks.try_lock_until("a", deadline).is_none());
    /// # drop(guard);
    /// ```
    pub fn try_lock_until<Q>(&self, key: &Q, deadline: Instant) -> Option<MutexGuard<'_, K, S>>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call(key).deadline(deadline)
    }
}

/// Owned guards, which keep the table alive instead of borrowing it.
#[cfg(target_has_atomic = "ptr")]
impl<K: Eq + Hash, S: BuildHasher> KeyedMutex<K, S> {
    #[inline]
    fn call_arc<'q, Q: ?Sized + Hash>(self: &Arc<Self>, key: &'q Q) -> Call<Arc<Self>, Key<'q, Q>, Exclusive> {
        Call::new(Arc::clone(self), Key { tag: self.tag(key), key })
    }

    /// [`lock`](KeyedMutex::lock) with an owned guard, and an owned future.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use std::sync::Arc;
    ///
    /// let locks = Arc::new(keylatch::KeyedMutex::<String>::new());
    /// let guard = locks.lock_arc("a").await;
    /// std::thread::spawn(move || drop(guard)).join().unwrap();
    /// # });
    /// ```
    pub fn lock_arc<Q>(self: &Arc<Self>, key: &Q) -> LockArc<K, S>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call_arc(key).future()
    }

    /// [`try_lock`](KeyedMutex::try_lock) with an owned guard.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// let locks = Arc::new(keylatch::KeyedMutex::<String>::new());
    /// let guard = locks.try_lock_arc("a").unwrap();
    /// assert!(locks.try_lock_arc("a").is_none());
    /// # drop(guard);
    /// ```
    pub fn try_lock_arc<Q>(self: &Arc<Self>, key: &Q) -> Option<MutexGuardArc<K, S>>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call_arc(key).attempt()
    }

    /// [`handle`](KeyedMutex::handle) that owns a share of the table, and has owned guards.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// let locks = Arc::new(keylatch::KeyedMutex::<String>::new());
    /// let a = locks.handle_arc("a");
    /// drop(locks);
    /// let guard = a.try_lock().unwrap();
    /// # drop(guard);
    /// ```
    pub fn handle_arc<Q>(self: &Arc<Self>, key: &Q) -> KeyHandleArc<Self>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call_arc(key).handle()
    }
}

/// Blocking and timed calls with owned guards.
#[cfg(all(feature = "std", target_has_atomic = "ptr"))]
impl<K: Eq + Hash, S: BuildHasher> KeyedMutex<K, S> {
    /// [`lock_blocking`](KeyedMutex::lock_blocking) with an owned guard.
    ///
    /// # Blocking
    /// As [`lock_blocking`](KeyedMutex::lock_blocking).
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// let locks = Arc::new(keylatch::KeyedMutex::<String>::new());
    /// let guard = locks.lock_arc_blocking("a");
    /// std::thread::spawn(move || drop(guard)).join().unwrap();
    /// ```
    pub fn lock_arc_blocking<Q>(self: &Arc<Self>, key: &Q) -> MutexGuardArc<K, S>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call_arc(key).blocking()
    }

    /// [`try_lock_for`](KeyedMutex::try_lock_for) with an owned guard.
    ///
    /// # Blocking
    /// As [`lock_blocking`](KeyedMutex::lock_blocking), for at most `timeout`.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let locks = Arc::new(keylatch::KeyedMutex::<String>::new());
    /// assert!(locks.try_lock_arc_for("a", Duration::ZERO).is_some());
    /// ```
    pub fn try_lock_arc_for<Q>(self: &Arc<Self>, key: &Q, timeout: Duration) -> Option<MutexGuardArc<K, S>>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call_arc(key).timeout(timeout)
    }

    /// [`try_lock_until`](KeyedMutex::try_lock_until) with an owned guard.
    ///
    /// # Blocking
    /// As [`lock_blocking`](KeyedMutex::lock_blocking), until `deadline` at the longest.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::Arc, time::Instant};
    ///
    /// let locks = Arc::new(keylatch::KeyedMutex::<String>::new());
    /// assert!(locks.try_lock_arc_until("a", Instant::now()).is_some());
    /// ```
    pub fn try_lock_arc_until<Q>(self: &Arc<Self>, key: &Q, deadline: Instant) -> Option<MutexGuardArc<K, S>>
    where
        Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
    {
        self.call_arc(key).deadline(deadline)
    }
}

impl<K, S, O: Owner<Table = KeyedMutex<K, S>, Key = K>> Handle<O> {
    /// Locks the key: see [`KeyedMutex::lock`].
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment: see [`Acquire`](crate::futures::Acquire#cancel-safety).
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let a = locks.handle("a");
    /// let guard = a.lock().await;
    /// # drop(guard);
    /// # });
    /// ```
    pub fn lock(&self) -> crate::futures::Acquire<O, Exclusive> {
        self.call().future()
    }

    /// Locks the key if that is possible at once: see [`KeyedMutex::try_lock`].
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let a = locks.handle("a");
    /// assert!(a.try_lock().is_some());
    /// ```
    pub fn try_lock(&self) -> Option<crate::Guard<O, Exclusive>> {
        self.call().attempt()
    }

    /// Locks the key, and blocks the thread until it has it: see [`KeyedMutex::lock_blocking`].
    ///
    /// # Blocking
    /// As [`KeyedMutex::lock_blocking`].
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let a = locks.handle("a");
    /// let guard = a.lock_blocking();
    /// # drop(guard);
    /// ```
    #[cfg(feature = "std")]
    pub fn lock_blocking(&self) -> crate::Guard<O, Exclusive> {
        self.call().blocking()
    }

    /// Locks the key, and blocks the thread for at most `timeout`: see [`KeyedMutex::try_lock_for`].
    ///
    /// # Blocking
    /// As [`KeyedMutex::lock_blocking`], for at most `timeout`.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let a = locks.handle("a");
    /// assert!(a.try_lock_for(std::time::Duration::ZERO).is_some());
    /// ```
    #[cfg(feature = "std")]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<crate::Guard<O, Exclusive>> {
        self.call().timeout(timeout)
    }

    /// Locks the key, and blocks the thread until `deadline` at the longest: see [`KeyedMutex::try_lock_until`].
    ///
    /// # Blocking
    /// As [`KeyedMutex::lock_blocking`], until `deadline` at the longest.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let a = locks.handle("a");
    /// assert!(a.try_lock_until(std::time::Instant::now()).is_some());
    /// ```
    #[cfg(feature = "std")]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<crate::Guard<O, Exclusive>> {
        self.call().deadline(deadline)
    }
}

impl<K, S: Default> Default for KeyedMutex<K, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K, S> fmt::Debug for KeyedMutex<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedMutex").field("len", &self.len()).finish_non_exhaustive()
    }
}
