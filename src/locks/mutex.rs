use core::hash::Hash;

use equivalent::Equivalent;

use super::forms::{constructors, forms, lock_table, many, table};
use crate::builder::DefaultHashBuilder;
use crate::core::Core;
use crate::key::ToKey;
use crate::mode::Exclusive;
use crate::plumbing::TablePtr;

/// A mutex for each key: at most one holder per key, any number of keys.
///
/// A key has an entry in the table only while it is held, waited for, kept by a [handle](KeyedMutex::handle) or an
/// unfinished future, or visited by [`for_each_key`](KeyedMutex::for_each_key). A new table has no entries and needs no
/// list of keys.
///
/// The forms of locking can be mixed freely on one table and one key: tasks wait in [`lock`](KeyedMutex::lock), threads
/// wait in [`lock_blocking`](KeyedMutex::lock_blocking), and [`try_lock`](KeyedMutex::try_lock) does not wait.
///
/// The mutex is not reentrant: a caller that requests a key that it already holds waits for itself. There is no
/// poisoning: a panic while a key is held drops the guard, which releases the key as usual. The [crate's page](crate)
/// has more on both, and the guarantees of all forms.
///
/// # The forms
/// | form | call |
/// |---|---|
/// | async | [`lock`](KeyedMutex::lock) |
/// | async, with a limit: a timer, a cancellation token | [`lock(..).until(limit)`](crate::futures::Acquire::until) |
/// | without waiting | [`try_lock`](KeyedMutex::try_lock) |
/// | blocking | [`lock_blocking`](KeyedMutex::lock_blocking) |
/// | blocking, with a limit | [`try_lock_for`](KeyedMutex::try_lock_for), [`try_lock_until`](KeyedMutex::try_lock_until) |
/// | async, with an owned guard | [`lock_arc`](KeyedMutex::lock_arc) |
/// | the others with an owned guard | [`try_lock_arc`](KeyedMutex::try_lock_arc), [`lock_arc_blocking`](KeyedMutex::lock_arc_blocking), [`try_lock_arc_for`](KeyedMutex::try_lock_arc_for), [`try_lock_arc_until`](KeyedMutex::try_lock_arc_until) |
/// | several keys at once, all or none | [`lock_many`](KeyedMutex::lock_many), [`lock_many(..).until(limit)`](crate::futures::AcquireMany::until), [`try_lock_many`](KeyedMutex::try_lock_many), [`lock_many_blocking`](KeyedMutex::lock_many_blocking), [`try_lock_many_for`](KeyedMutex::try_lock_many_for), [`try_lock_many_until`](KeyedMutex::try_lock_many_until); with owned guards [`lock_many_arc`](KeyedMutex::lock_many_arc), [`lock_many_arc_blocking`](KeyedMutex::lock_many_arc_blocking), [`try_lock_many_arc`](KeyedMutex::try_lock_many_arc), [`try_lock_many_arc_for`](KeyedMutex::try_lock_many_arc_for), [`try_lock_many_arc_until`](KeyedMutex::try_lock_many_arc_until) |
/// | repeatedly on one key | all forms for a single key but the owned ones, without the key argument, on [`handle`](KeyedMutex::handle); with owned guards on [`handle_arc`](KeyedMutex::handle_arc) |
///
/// Blocking calls need the feature `std`. All forms for a single key produce a [`MutexGuard`], inside an `Option` or a
/// `Result` if they can fail. The owned forms take the table as an `Arc` and produce a [`MutexGuardArc`]. The forms for
/// several keys produce [`Guards`](crate::Guards): see [Several keys](crate#several-keys).
///
/// # Keys
/// A call that may make an entry takes `&Q`, where a key can be [made from `Q`](crate::ToKey): `KeyedMutex<String>` and
/// `KeyedMutex<Arc<str>>` are locked with `"a"`, `KeyedMutex<u64>` with `&7`. The key is made only if it has no entry.
/// The page of [`ToKey`](crate::ToKey) has a table of key types with the call for each, and recipes: pairs, keys that
/// ignore case, newtypes, keys that are not `Clone`.
///
/// The following code of a key type runs under an internal lock, and must not use the table: `Eq` (or `Equivalent`);
/// the `to_key` of a key type that owns nothing (for which [`needs_drop`](core::mem::needs_drop) is false); and, with
/// [`recycle_keys`](crate::Builder::recycle_keys), `to_key_into` and everything that it calls. The rest may use it:
/// `Hash`, every other `to_key`, and `Drop`.
///
/// # A table in a `static`
/// ```
/// use std::path::{Path, PathBuf};
/// use std::sync::LazyLock;
///
/// use keylatch::{KeyedMutex, MutexGuard};
///
/// static FILES: LazyLock<KeyedMutex<PathBuf>> = LazyLock::new(KeyedMutex::new);
///
/// // The guard borrows a table that lives for ever: no owned form is needed to send it elsewhere.
/// let guard: MutexGuard<'static, PathBuf> = FILES.lock_blocking(Path::new("a.txt"));
/// std::thread::spawn(move || drop(guard)).join().unwrap();
/// ```
///
/// `new` is not `const`, because it allocates the shards (whose number depends on how many CPUs the machine has), and
/// because the default hasher is seeded at random.
///
/// # A table in a struct
/// Owned guards need the table in an `Arc`, so put the `Arc` around the table, not around the struct that contains it:
///
/// ```
/// use std::sync::Arc;
///
/// use keylatch::{KeyedMutex, MutexGuardArc};
///
/// struct Queue {
///     locks: Arc<KeyedMutex<String>>,
/// }
///
/// struct Job {
///     held: MutexGuardArc<String>, // no lifetime: it keeps the table alive
/// }
///
/// impl Queue {
///     fn start(&self, id: &str) -> Option<Job> {
///         Some(Job { held: self.locks.try_lock_arc(id)? })
///     }
/// }
///
/// let queue = Queue { locks: Arc::default() };
/// let job = queue.start("a").unwrap();
/// assert!(queue.start("a").is_none());
/// assert_eq!(job.held.key(), "a");
/// ```
///
/// If only the struct is in an `Arc`, the compiler reports that the table has no such method (E0599). Do not follow its
/// suggestion to wrap the table at the call: that would make a new table, which no other caller shares.
///
/// ```compile_fail,E0599
/// # use std::sync::Arc;
/// # use keylatch::KeyedMutex;
/// struct App {
///     locks: KeyedMutex<String>, // should be Arc<KeyedMutex<String>>
/// }
///
/// let app = Arc::new(App { locks: KeyedMutex::new() });
/// let guard = app.locks.try_lock_arc("a");
/// ```
///
/// # Panics
/// Every form panics if it would give the key more than [`MAX_USERS`](crate::MAX_USERS) users, and passes on a panic of
/// the key's `Hash`, `Eq`, `ToKey` or `Drop`. The table stays usable, and nothing stays locked.
///
/// # Examples
/// ```
/// use keylatch::KeyedMutex;
///
/// let accounts = KeyedMutex::<u64>::new();
/// let first = accounts.lock_blocking(&1);
/// let second = accounts.lock_blocking(&2); // another key: does not wait
/// assert!(accounts.try_lock(&1).is_none());
/// drop((first, second));
/// assert!(accounts.is_empty());
/// ```
#[doc(alias = "map")]
#[doc(alias = "mutex")]
pub struct KeyedMutex<K, S = DefaultHashBuilder> {
    core: Core<K, ()>,
    hasher: S,
}

constructors!(KeyedMutex [], MutexKind, new = "KeyedMutex::<String>::new()", built = "KeyedMutex<String");

forms! {
    KeyedMutex [], Exclusive, handles [K, S, P: TablePtr<Table = KeyedMutex<K, S>, Key = K>],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedMutex::<String>::new()", excludes = "try_lock",
    /// The guard of a key of a [`KeyedMutex`]
    guards MutexGuard, MutexGuardArc, futures Lock, LockArc,
    /// Locks a key
    async lock, blocking lock_blocking,
    /// Returns `None` if the key is held, if it has been handed to a waiter that has not run yet, or if others wait for
    /// it and the [policy](crate::Fairness) lets no newcomer pass them.
    try try_lock, for try_lock_for, until try_lock_until,
    arc lock_arc, lock_arc_blocking, try_lock_arc, try_lock_arc_for, try_lock_arc_until,
    aliases ["blocking_lock", "lock_owned", "try_lock_owned"],
}

many! {
    KeyedMutex [], Exclusive, ExclusiveGuards,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedMutex::<String>::new()", excludes = "try_lock",
    lists [keys: Exclusive::NEW], given = "[\"a\", \"b\"]",
    /// Locks several keys
    async lock_many, blocking lock_many_blocking,
    try try_lock_many, for try_lock_many_for, until try_lock_many_until,
    arc lock_many_arc, lock_many_arc_blocking, try_lock_many_arc, try_lock_many_arc_for, try_lock_many_arc_until,
}

table! {
    KeyedMutex [],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedMutex::<String>::new()", hold = "try_lock",
}

lock_table! {
    KeyedMutex, MutexKind,
    new = "KeyedMutex::<String>::new()", hold = "try_lock",
}
