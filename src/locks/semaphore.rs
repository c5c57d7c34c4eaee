use core::hash::Hash;

use equivalent::Equivalent;

use super::forms::{forms, lock_table, many, table};
use crate::builder::{Builder, DefaultHashBuilder};
use crate::core::{Core, CountKind, MAX_UNITS};
use crate::key::ToKey;
use crate::mode::Permit;
use crate::plumbing::TablePtr;

/// A semaphore for each key: a number of permits, the same for every key; each call takes one of them, or as many as it
/// asks for.
///
/// For limits such as "at most four requests to one host at a time". All else is as for
/// [`KeyedMutex`](crate::KeyedMutex), which is a semaphore with one permit: entries live only while they are used, the
/// forms can be mixed, and keys are what [they](crate::KeyedMutex#keys) are there. Not reentrant: one who holds all
/// permits of a key and asks for another waits for itself.
///
/// # The forms
/// | form | call |
/// |---|---|
/// | async | [`acquire`](KeyedSemaphore::acquire) |
/// | async, with a limit: a timer, a cancellation token | [`acquire(..).until(limit)`](crate::futures::Acquire::until) |
/// | without waiting | [`try_acquire`](KeyedSemaphore::try_acquire) |
/// | blocking | [`acquire_blocking`](KeyedSemaphore::acquire_blocking) |
/// | blocking, with a limit | [`try_acquire_for`](KeyedSemaphore::try_acquire_for), [`try_acquire_until`](KeyedSemaphore::try_acquire_until) |
/// | async, with an owned guard | [`acquire_arc`](KeyedSemaphore::acquire_arc) |
/// | the others with an owned guard | [`try_acquire_arc`](KeyedSemaphore::try_acquire_arc), [`acquire_arc_blocking`](KeyedSemaphore::acquire_arc_blocking), [`try_acquire_arc_for`](KeyedSemaphore::try_acquire_arc_for), [`try_acquire_arc_until`](KeyedSemaphore::try_acquire_arc_until) |
/// | several permits at once | each of these with `_n` after `acquire`, and the number after the key: [`acquire_n`](KeyedSemaphore::acquire_n), [`try_acquire_n`](KeyedSemaphore::try_acquire_n), [`acquire_n_blocking`](KeyedSemaphore::acquire_n_blocking), [`try_acquire_n_for`](KeyedSemaphore::try_acquire_n_for), [`try_acquire_n_until`](KeyedSemaphore::try_acquire_n_until), [`acquire_n_arc`](KeyedSemaphore::acquire_n_arc), [`try_acquire_n_arc`](KeyedSemaphore::try_acquire_n_arc), [`acquire_n_arc_blocking`](KeyedSemaphore::acquire_n_arc_blocking), [`try_acquire_n_arc_for`](KeyedSemaphore::try_acquire_n_arc_for), [`try_acquire_n_arc_until`](KeyedSemaphore::try_acquire_n_arc_until) |
/// | one permit of each of several keys, all or none | [`acquire_many`](KeyedSemaphore::acquire_many), [`acquire_many(..).until(limit)`](crate::futures::AcquireMany::until), [`try_acquire_many`](KeyedSemaphore::try_acquire_many), [`acquire_many_blocking`](KeyedSemaphore::acquire_many_blocking), [`try_acquire_many_for`](KeyedSemaphore::try_acquire_many_for), [`try_acquire_many_until`](KeyedSemaphore::try_acquire_many_until); with owned guards [`acquire_many_arc`](KeyedSemaphore::acquire_many_arc), [`acquire_many_arc_blocking`](KeyedSemaphore::acquire_many_arc_blocking), [`try_acquire_many_arc`](KeyedSemaphore::try_acquire_many_arc), [`try_acquire_many_arc_for`](KeyedSemaphore::try_acquire_many_arc_for), [`try_acquire_many_arc_until`](KeyedSemaphore::try_acquire_many_arc_until) |
/// | several permits of each of several keys, all or none | each of these with `_n` after `acquire`, and pairs of a key and a number: [`acquire_n_many`](KeyedSemaphore::acquire_n_many), [`acquire_n_many(..).until(limit)`](crate::futures::AcquireMany::until), [`try_acquire_n_many`](KeyedSemaphore::try_acquire_n_many), [`acquire_n_many_blocking`](KeyedSemaphore::acquire_n_many_blocking), [`try_acquire_n_many_for`](KeyedSemaphore::try_acquire_n_many_for), [`try_acquire_n_many_until`](KeyedSemaphore::try_acquire_n_many_until); with owned guards [`acquire_n_many_arc`](KeyedSemaphore::acquire_n_many_arc), [`acquire_n_many_arc_blocking`](KeyedSemaphore::acquire_n_many_arc_blocking), [`try_acquire_n_many_arc`](KeyedSemaphore::try_acquire_n_many_arc), [`try_acquire_n_many_arc_for`](KeyedSemaphore::try_acquire_n_many_arc_for), [`try_acquire_n_many_arc_until`](KeyedSemaphore::try_acquire_n_many_arc_until) |
/// | again and again on one key | all but the owned ones, without a key, on [`handle`](KeyedSemaphore::handle); with owned guards on [`handle_arc`](KeyedSemaphore::handle_arc) |
///
/// Blocking calls need the feature `std`. The output is a [`PermitGuard`], in an `Option` or a `Result` where there is
/// a limit; that of the owned forms is a [`PermitGuardArc`], and they take the table as an `Arc`. Several keys give
/// [`Guards`](crate::Guards): see [Several keys](crate#several-keys).
///
/// # Fairness
/// Under [`Fairness::Fifo`](crate::Fairness::Fifo) permits are given strictly in order of arrival. Under
/// [`Fairness::Adaptive`](crate::Fairness::Adaptive) and [`Fairness::Bounded`](crate::Fairness::Bounded) a newcomer that
/// takes the last free permit passes the waiter at the head, which is counted; one that leaves a permit for it does not.
///
/// # Several permits of one key
/// [`acquire_n`](KeyedSemaphore::acquire_n) takes `n` permits of a key, all of them or none, for work that counts as much as
/// `n` others. Its guard holds them all ([`permits`](PermitGuard::permits) tells how many), and can be
/// [split](PermitGuard::split) into two, to give some of them back earlier or to pass them on, and
/// [merged](PermitGuard::merge) with another of the same key.
///
/// A request is one waiter in the key's queue, however many it asks for. Nothing is put aside for it permit by permit: it
/// gets in when enough are free at once. So that small requests, each of which finds a permit, do not keep it waiting for
/// ever, those behind it in the queue wait when it is at the head, and newcomers pass it only as often as the
/// [policy](crate::Fairness) says: 16 times by default, `n` times under `Bounded(n)`, never under `Fifo`. When it gives up,
/// those that it kept out get in at once.
///
/// To hold some permits of a key while asking for more is a way to deadlock, as with any lock that is not reentrant: ask
/// for all of them in one call.
///
/// ```
/// use keylatch::KeyedSemaphore;
///
/// let disks = KeyedSemaphore::<String>::new(4);
/// let mut copy = disks.acquire_n_blocking("sda", 3);
/// assert!(disks.try_acquire_n("sda", 2).is_none());
/// drop(copy.split(1).unwrap()); // the rest of the work needs two
/// assert!(disks.try_acquire_n("sda", 2).is_some());
/// assert_eq!(copy.permits(), 2);
/// ```
///
/// # Panics
/// As [`KeyedMutex`](crate::KeyedMutex#panics). And the calls for `n` permits if `n` is 0 or more than
/// [`permits`](KeyedSemaphore::permits): at the call, in every form.
///
/// # Examples
/// ```
/// use keylatch::KeyedSemaphore;
///
/// let hosts = KeyedSemaphore::<String>::new(2);
/// let (first, second) = (hosts.try_acquire("a").unwrap(), hosts.try_acquire("a").unwrap());
/// assert!(hosts.try_acquire("a").is_none());
/// assert!(hosts.try_acquire("b").is_some());
/// drop(first);
/// assert!(hosts.try_acquire("a").is_some());
/// # drop(second);
/// ```
#[doc(alias = "map")]
#[doc(alias = "limit")]
#[doc(alias = "semaphore")]
pub struct KeyedSemaphore<K, S = DefaultHashBuilder> {
    core: Core<K, ()>,
    hasher: S,
}

/// The largest number of permits that a key of a [`KeyedSemaphore`] can have: [`MAX_USERS`](crate::MAX_USERS).
pub const MAX_PERMITS: usize = MAX_UNITS;

impl<K> KeyedSemaphore<K> {
    /// A table with `permits` permits for each key, and the default settings.
    ///
    /// # Panics
    /// If `permits` is 0 or more than [`MAX_PERMITS`].
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedSemaphore::<String>::new(3);
    /// assert_eq!(locks.permits(), 3);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(permits: usize) -> Self {
        Self::builder(permits).build()
    }

    /// Settings for a table with `permits` permits for each key.
    ///
    /// # Panics
    /// If `permits` is 0 or more than [`MAX_PERMITS`].
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedSemaphore::<u64>::builder(3).shards(1).build();
    /// assert!(locks.is_empty());
    /// ```
    #[track_caller]
    pub fn builder(permits: usize) -> Builder<SemaphoreKind, K> {
        assert!(
            (1..=MAX_PERMITS).contains(&permits),
            "keylatch: permits must be between 1 and {MAX_PERMITS}, but is {permits}"
        );
        Builder::new(CountKind::Permits(permits))
    }
}

impl<K, S> KeyedSemaphore<K, S> {
    /// A table with `permits` permits for each key, the default settings, and this hasher.
    ///
    /// # Panics
    /// If `permits` is 0 or more than [`MAX_PERMITS`].
    ///
    /// # Examples
    /// ```
    /// use std::hash::RandomState;
    ///
    /// let locks = keylatch::KeyedSemaphore::<String, _>::with_hasher(3, RandomState::new());
    /// assert!(locks.is_empty());
    /// ```
    #[must_use]
    #[track_caller]
    pub fn with_hasher(permits: usize, hasher: S) -> Self {
        KeyedSemaphore::builder(permits).hasher(hasher).build()
    }

    /// Returns the number of permits of each key, which was set when the table was made.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(keylatch::KeyedSemaphore::<u64>::new(3).permits(), 3);
    /// ```
    #[must_use]
    pub fn permits(&self) -> usize {
        self.core.rules().limit()
    }
}

forms! {
    KeyedSemaphore [], Permit, handles [K, S, P: TablePtr<Table = KeyedSemaphore<K, S>, Key = K>],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedSemaphore::<String>::new(1)", excludes = "try_acquire",
    /// A permit of a key of a [`KeyedSemaphore`]
    guards PermitGuard, PermitGuardArc, futures AcquirePermit, AcquirePermitArc,
    /// Acquires one permit of a key
    async acquire, blocking acquire_blocking,
    /// `None` if all permits of the key are held, or have been handed to waiters that have not run yet; or if others
    /// wait for one and the [policy](crate::Fairness) lets nobody pass them any more.
    try try_acquire, for try_acquire_for, until try_acquire_until,
    arc acquire_arc, acquire_arc_blocking, try_acquire_arc, try_acquire_arc_for, try_acquire_arc_until,
    aliases ["blocking_acquire", "acquire_owned", "try_acquire_owned"],
}

forms! {
    KeyedSemaphore [], Permit, handles [K, S, P: TablePtr<Table = KeyedSemaphore<K, S>, Key = K>],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedSemaphore::<String>::new(3)", excludes = "try_acquire",
    guards PermitGuard, PermitGuardArc, futures AcquirePermit, AcquirePermitArc,
    /// Acquires `n` permits of a key, all of them or none
    ///
    /// The guard holds them all, and [can be split](PermitGuard::split). A request is one waiter, however many it asks for:
    /// see [several permits of one key](KeyedSemaphore#several-permits-of-one-key).
    async acquire_n, blocking acquire_n_blocking,
    /// `None` if fewer than `n` permits of the key are free, or the rest has been handed to waiters that have not run yet;
    /// or if others wait and the [policy](crate::Fairness) lets nobody pass them any more.
    try try_acquire_n, for try_acquire_n_for, until try_acquire_n_until,
    arc acquire_n_arc, acquire_n_arc_blocking, try_acquire_n_arc, try_acquire_n_arc_for, try_acquire_n_arc_until,
    aliases ["blocking_acquire_many", "acquire_many_owned", "try_acquire_many_owned"],
    takes n: usize = "3",
}

many! {
    KeyedSemaphore [], Permit, PermitGuards,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedSemaphore::<String>::new(1)", excludes = "try_acquire",
    lists [keys: Permit::NEW], given = "[\"a\", \"b\"]",
    /// Acquires one permit of each of several keys
    async acquire_many, blocking acquire_many_blocking,
    try try_acquire_many, for try_acquire_many_for, until try_acquire_many_until,
    arc acquire_many_arc, acquire_many_arc_blocking, try_acquire_many_arc, try_acquire_many_arc_for, try_acquire_many_arc_until,
}

many! {
    KeyedSemaphore [], Permit, PermitGuards,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedSemaphore::<String>::new(2)", excludes = "try_acquire",
    lists [keys [n]: Permit::several], given = "[(\"a\", 2), (\"b\", 1)]",
    /// Acquires a number of permits of each of several keys
    /// The list has pairs, of a reference to a key and the number of its permits: `[("a", 2), (name.as_str(), 1)]`. As with [`acquire_n`](Self::acquire_n), a key's permits
    /// are taken all at once or not at all, and one guard holds them. Of a key that is named more than once the largest number is
    /// taken, not the sum. A number of 0, or of more than [`permits`](Self::permits), panics: at the call, in every form, and then
    /// nothing is held.
    async acquire_n_many, blocking acquire_n_many_blocking,
    try try_acquire_n_many, for try_acquire_n_many_for, until try_acquire_n_many_until,
    arc acquire_n_many_arc, acquire_n_many_arc_blocking, try_acquire_n_many_arc, try_acquire_n_many_arc_for,
    try_acquire_n_many_arc_until,
}

table! {
    KeyedSemaphore [],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedSemaphore::<String>::new(1)", hold = "try_acquire",
}

lock_table! {
    KeyedSemaphore, SemaphoreKind,
    new = "KeyedSemaphore::<String>::new(1)", hold = "try_acquire",
}
