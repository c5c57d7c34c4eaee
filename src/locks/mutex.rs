use core::hash::Hash;

use equivalent::Equivalent;

use super::forms::{constructors, forms, table};
use crate::builder::DefaultHashBuilder;
use crate::core::Core;
use crate::key::ToKey;

/// A mutex for each key: at most one holder per key, any number of keys.
///
/// A key has an entry in the table only while somebody holds it, waits for it, or has a [handle](KeyedMutex::handle) or
/// an unfinished future for it. A new table has no entries and needs no list of keys.
///
/// The forms of locking can be mixed freely on one table and one key: tasks wait in [`lock`](KeyedMutex::lock), threads
/// in [`lock_blocking`](KeyedMutex::lock_blocking), and [`try_lock`](KeyedMutex::try_lock) does not wait.
///
/// Not reentrant: whoever asks for a key that it holds waits for itself. Not poisoned: a panic while a key is held
/// releases it, like any other drop of the guard. See the [crate's page](crate) for both, and for what all forms
/// guarantee.
///
/// # Keys
/// A call that may make an entry takes `&Q`, where `Q` is what `K` is borrowed as: `KeyedMutex<String>` is locked with
/// `"a"`, `KeyedMutex<u64>` with `&7`. The owned key is made from it by `to_owned`, and only when the key has no entry.
/// Keys that [`ToOwned`](alloc::borrow::ToOwned) cannot make are not supported: an `Arc<str>` cannot be locked by
/// `"a"`, nor a key that is not `Clone`.
///
/// `Eq` (or `Equivalent`), and the `to_owned` of a key type that has nothing to drop, run inside an internal lock and
/// must not use the table. All else that is a key's own may: `Hash`, other clones, and `Drop`.
///
/// # Panics
/// Every form panics if the key has [`MAX_USERS`](crate::MAX_USERS) users already, and passes on a panic of the key's
/// `Hash`, `Eq`, `ToOwned` or `Drop`. The table stays usable, and nothing stays locked.
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
    core: Core<K, ()>,
    hasher: S,
}

constructors!(KeyedMutex, MutexKind);

forms! {
    KeyedMutex, Exclusive,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedMutex::<String>::new()", excludes = "try_lock",
    /// The hold of a key of a [`KeyedMutex`].
    guards MutexGuard, MutexGuardArc, futures Lock, LockArc,
    /// Locks a key.
    async lock, blocking lock_blocking,
    /// `None` if the key is held; if it has been handed to a waiter that has not run yet; or if others wait for it and
    /// the [policy](crate::Fairness) lets nobody pass them any more.
    try try_lock, for try_lock_for, until try_lock_until,
    arc lock_arc, lock_arc_blocking, try_lock_arc, try_lock_arc_for, try_lock_arc_until,
    aliases ["blocking_lock", "lock_owned", "try_lock_owned"],
}

table! {
    KeyedMutex, MutexKind,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedMutex::<String>::new()", hold = "try_lock",
}
