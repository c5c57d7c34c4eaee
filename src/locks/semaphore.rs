use core::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::forms::{forms, lock_table, many, table};
use crate::builder::{Builder, DefaultHashBuilder};
use crate::core::{Core, CountKind, Key, MAX_UNITS};
use crate::key::ToKey;
use crate::mode::Permit;
use crate::plumbing::TablePtr;

/// A semaphore for each key. Every key has the same number of permits, unless another number is set for it. Each call
/// acquires one permit of a key, or a given number of them.
///
/// Use it for limits such as "at most four requests to one host at a time". The rest is as for
/// [`KeyedMutex`](crate::KeyedMutex), which behaves as a semaphore with one permit: entries live only while they are
/// used, the forms can be mixed, and the [same types](crate::KeyedMutex#keys) can be keys. It is not reentrant: a
/// caller that holds all permits of a key and requests another waits for itself.
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
/// | several permits of each of several keys, all or none | each of these with `_n` after `acquire`, and with pairs of a key and a number: [`acquire_n_many`](KeyedSemaphore::acquire_n_many), [`acquire_n_many(..).until(limit)`](crate::futures::AcquireMany::until), [`try_acquire_n_many`](KeyedSemaphore::try_acquire_n_many), [`acquire_n_many_blocking`](KeyedSemaphore::acquire_n_many_blocking), [`try_acquire_n_many_for`](KeyedSemaphore::try_acquire_n_many_for), [`try_acquire_n_many_until`](KeyedSemaphore::try_acquire_n_many_until); with owned guards [`acquire_n_many_arc`](KeyedSemaphore::acquire_n_many_arc), [`acquire_n_many_arc_blocking`](KeyedSemaphore::acquire_n_many_arc_blocking), [`try_acquire_n_many_arc`](KeyedSemaphore::try_acquire_n_many_arc), [`try_acquire_n_many_arc_for`](KeyedSemaphore::try_acquire_n_many_arc_for), [`try_acquire_n_many_arc_until`](KeyedSemaphore::try_acquire_n_many_arc_until) |
/// | repeatedly on one key | all forms for a single key but the owned ones, without the key argument, on [`handle`](KeyedSemaphore::handle); with owned guards on [`handle_arc`](KeyedSemaphore::handle_arc) |
///
/// Blocking calls need the feature `std`. All forms for a single key produce a [`PermitGuard`], inside an `Option` or a
/// `Result` if they can fail. The owned forms take the table as an `Arc` and produce a [`PermitGuardArc`]. The forms
/// for several keys produce [`Guards`](crate::Guards): see [Several keys](crate#several-keys).
///
/// # Fairness
/// Under [`Fairness::Fifo`](crate::Fairness::Fifo) permits are given strictly in order of arrival, and of
/// [priorities](crate::futures::Acquire::priority). Under [`Fairness::Adaptive`](crate::Fairness::Adaptive) and
/// [`Fairness::Bounded`](crate::Fairness::Bounded) a newcomer that leaves too few permits for the waiter at the head
/// passes that waiter, and counts towards the bound; a newcomer that leaves enough does neither.
///
/// # Several permits of one key
/// [`acquire_n`](KeyedSemaphore::acquire_n) takes `n` permits of a key, all of them or none, for a job that counts as
/// `n` jobs. Its guard holds them all ([`permits`](PermitGuard::permits) returns their number). It can be
/// [split](PermitGuard::split) in two, to release some permits earlier or to pass them on, and
/// [merged](PermitGuard::merge) with another guard of the same key.
///
/// A request is one waiter in the key's queue, whatever number it requests. Permits are not set aside for it one by
/// one: it gets in when enough are free at once. Small requests, each of which finds a free permit, must not keep it
/// waiting for ever. So while it is at the head, the requests behind it wait, and newcomers pass it only as often as
/// the [policy](crate::Fairness) allows: 16 times by default, `n` times under `Bounded(n)`, never under `Fifo`, without
/// limit under `Barging`. When it gives up, the requests that it kept out are woken or let in at once, as after a
/// release.
///
/// A caller that holds some permits of a key and requests more can deadlock, as with any lock that is not reentrant:
/// request all of them in one call.
///
/// ```
/// use keylatch::KeyedSemaphore;
///
/// let disks = KeyedSemaphore::<String>::new(4);
/// let mut copy = disks.acquire_n_blocking("sda", 3);
/// assert!(disks.try_acquire_n("sda", 2).is_none());
/// drop(copy.split(1).unwrap()); // the rest of the work needs only two
/// assert!(disks.try_acquire_n("sda", 2).is_some());
/// assert_eq!(copy.permits(), 2);
/// ```
///
/// # Changing the limit
/// The number of permits can be changed while the table is in use, up or down:
///
/// | for | by |
/// |---|---|
/// | a key | [`set_permits`](KeyedSemaphore::set_permits), until [`reset_permits`](KeyedSemaphore::reset_permits) |
/// | keys, by a rule | [`permits_for`](crate::Builder::permits_for), when the table is built |
/// | all other keys | [`set_default_permits`](KeyedSemaphore::set_default_permits) |
///
/// If the number rises, the call wakes as many waiters as the number now allows, or hands them their permits, as a
/// release does. If it falls, holders are not interrupted: nobody gets in until enough permits have come back. A
/// request that is made while `set_default_permits` runs may still get in under the former number.
///
/// A request for more permits than the key has *now*, but no more than a key of this table has ever had, does not
/// panic, because the number may have been lowered while the request was on its way. It waits until nobody holds a
/// permit of the key, and then gets in alone. So lowering the number never leaves a request waiting for ever, unless
/// the number is 0, which keeps all requests out.
///
/// A [deadlock detector](crate::deadlock) uses the limit at the time of its search, and never counts a key without
/// permits as part of a deadlock. Changing a limit does not start a search.
///
/// # Panics
/// Panics as [`KeyedMutex`](crate::KeyedMutex#panics) does. In addition, every form of a call for `n` permits panics if
/// `n` is 0, or more than any key of the table has ever had. That maximum is the greatest number that has been the
/// table's default ([`permits`](KeyedSemaphore::permits)) or has been [set](#changing-the-limit) for a key; in a table
/// with [`permits_for`](crate::Builder::permits_for) it is [`MAX_PERMITS`]. The async forms panic at the call, not at
/// the poll.
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

/// The largest number of permits that a key of a [`KeyedSemaphore`] can have: 2^30 − 1 on 64-bit targets, 16,383 on
/// 32-bit ones. Waiters do not reduce this number.
pub const MAX_PERMITS: usize = MAX_UNITS;

impl<K> KeyedSemaphore<K> {
    /// Makes a table with `permits` permits for each key, and the default settings.
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

    /// Returns a builder for a table with `permits` permits for each key.
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
    /// Makes a table with `permits` permits for each key, the given hasher, and otherwise the default settings.
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

    /// Returns the default number of permits of a key, which was set when the table was made, or by the last
    /// [`set_default_permits`](KeyedSemaphore::set_default_permits).
    ///
    /// # Examples
    /// ```
    /// assert_eq!(keylatch::KeyedSemaphore::<u64>::new(3).permits(), 3);
    /// ```
    #[must_use]
    pub fn permits(&self) -> usize {
        self.core.default_limit()
    }

    /// Sets the number of permits of a key, in place of the default: see [changing the
    /// limit](KeyedSemaphore#changing-the-limit). With 0, no request gets in until the number is changed again.
    ///
    /// From then on the key has an entry, whether or not it is in use, until
    /// [`reset_permits`](KeyedSemaphore::reset_permits) is called for it. The limit counts as one of the key's users
    /// (see [`MAX_USERS`](crate::MAX_USERS)). While a key has a limit of its own, each request for it and each release
    /// passes through the lock of its queue, so each takes about twice as long.
    ///
    /// # Panics
    /// If `n` is more than [`MAX_PERMITS`], or if the key has [`MAX_USERS`](crate::MAX_USERS) users already, or one
    /// fewer: the call itself counts as a user while it runs.
    ///
    /// # Examples
    /// ```
    /// let hosts = keylatch::KeyedSemaphore::<String>::new(2);
    /// hosts.set_permits("a", 3);
    /// let three = hosts.try_acquire_n("a", 3).unwrap();
    /// hosts.set_permits("a", 1); // applies as permits come back
    /// drop(three);
    /// let one = hosts.try_acquire("a").unwrap();
    /// assert!(hosts.try_acquire("a").is_none());
    /// # drop(one);
    /// ```
    #[track_caller]
    pub fn set_permits<Q>(&self, key: &Q, n: usize)
    where
        Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
        S: BuildHasher,
    {
        check(n);
        self.core.set_limit(&mut Key::new(key, &self.hasher), n);
    }

    /// Gives a key the default number of permits again, or the number that the table's
    /// [function](crate::Builder::permits_for) returns for it. Returns whether the key had a number of its own.
    ///
    /// # Panics
    /// If the key has [`MAX_USERS`](crate::MAX_USERS) users already, or if the table's function panics or returns more
    /// than [`MAX_PERMITS`].
    ///
    /// # Examples
    /// ```
    /// let hosts = keylatch::KeyedSemaphore::<String>::new(2);
    /// hosts.set_permits("a", 0);
    /// assert!(hosts.try_acquire("a").is_none());
    /// assert!(hosts.reset_permits("a"));
    /// assert!(hosts.try_acquire("a").is_some());
    /// assert!(hosts.is_empty()); // the limit kept an entry
    /// ```
    pub fn reset_permits<Q>(&self, key: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<K>,
        S: BuildHasher,
    {
        self.core.reset_limit(&Key::new(key, &self.hasher))
    }

    /// Sets the number of permits of all keys that have no number of their own: see [changing the
    /// limit](KeyedSemaphore#changing-the-limit). With 0, no request gets in until the number is changed again.
    ///
    /// This visits all entries of the table, so it takes time proportional to their number. In a table with
    /// [`permits_for`](crate::Builder::permits_for) no key uses the default.
    ///
    /// # Panics
    /// If `n` is more than [`MAX_PERMITS`], or if a key that is waited for, or has a number of its own, has
    /// [`MAX_USERS`](crate::MAX_USERS) users already. (In the latter case, the waiters of some keys have not been told
    /// of the new number yet; the call can be repeated.)
    ///
    /// # Examples
    /// ```
    /// let hosts = keylatch::KeyedSemaphore::<u64>::new(1);
    /// let first = hosts.try_acquire(&7).unwrap();
    /// assert!(hosts.try_acquire(&7).is_none());
    /// hosts.set_default_permits(2);
    /// assert!(hosts.try_acquire(&7).is_some());
    /// # drop(first);
    /// ```
    #[track_caller]
    pub fn set_default_permits(&self, n: usize) {
        check(n);
        self.core.set_default_limit(n);
    }

    /// Returns the greatest number of permits that a request can ask for.
    #[inline]
    pub(crate) fn most_permits(&self) -> usize {
        self.core.greatest_limit()
    }
}

/// Checks the number of permits of a new limit.
///
/// # Panics
/// If it is more than [`MAX_PERMITS`].
#[track_caller]
fn check(n: usize) {
    assert!(n <= MAX_PERMITS, "keylatch: the number of permits must be between 0 and {MAX_PERMITS}, but is {n}");
}

impl<K, S> Builder<SemaphoreKind, K, S> {
    /// Sets a function that returns the number of permits of each key, in place of the number that was given to
    /// [`KeyedSemaphore::builder`]. If `f` returns 0 for a key, no request for that key gets in.
    ///
    /// Each request calls `f` once or a few times, with no internal lock held. `f` should be quick, and return the same
    /// number for a key each time: while requests wait for a key, the number that `f` returned for the first of them
    /// applies. [`set_permits`](KeyedSemaphore::set_permits) overrides `f` for a key.
    ///
    /// # Panics
    /// A request for a key panics, and leaves nothing behind, if `f` panics, or returns more than [`MAX_PERMITS`].
    ///
    /// # Examples
    /// ```
    /// use keylatch::KeyedSemaphore;
    ///
    /// let hosts: KeyedSemaphore<String> =
    ///     KeyedSemaphore::builder(2).permits_for(|host: &String| if host.ends_with(".local") { 8 } else { 2 }).build();
    /// assert!(hosts.try_acquire_n("db.local", 8).is_some());
    /// let two = hosts.try_acquire_n("example.org", 2).unwrap();
    /// assert!(hosts.try_acquire("example.org").is_none());
    /// # drop(two);
    /// ```
    pub fn permits_for(self, f: impl Fn(&K) -> u32 + Send + Sync + 'static) -> Self {
        self.limit_of(f)
    }
}

forms! {
    KeyedSemaphore [], Permit, handles [K, S, P: TablePtr<Table = KeyedSemaphore<K, S>, Key = K>],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedSemaphore::<String>::new(1)", excludes = "try_acquire",
    /// One or more permits of a key of a [`KeyedSemaphore`]
    guards PermitGuard, PermitGuardArc, futures AcquirePermit, AcquirePermitArc,
    /// Acquires one permit of a key
    async acquire, blocking acquire_blocking,
    /// Returns `None` if all permits of the key are held or have been handed to waiters that have not run yet, or if
    /// others wait for a permit and the [policy](crate::Fairness) lets no newcomer pass them.
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
    /// The guard holds all `n` permits, and [can be split](PermitGuard::split). A request is one waiter, whatever `n`
    /// is: see [several permits of one key](KeyedSemaphore#several-permits-of-one-key).
    async acquire_n, blocking acquire_n_blocking,
    /// Returns `None` if fewer than `n` permits of the key are free (permits handed to waiters that have not run yet
    /// are not free; if the key has fewer than `n` permits [now](KeyedSemaphore#changing-the-limit), all of them must
    /// be free), or if others wait and the [policy](crate::Fairness) lets no newcomer pass them.
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
    lists [keys [n]: Permit::checked], given = "[(\"a\", 2), (\"b\", 1)]",
    /// Acquires a number of permits of each of several keys
    /// The list has pairs of a key and a number of permits: `[("a", 2), (name.as_str(), 1)]`. As with
    /// [`acquire_n`](Self::acquire_n), a key's permits are acquired at once, and one guard holds them. A key that is
    /// named more than once gets the largest of its numbers, not their sum. If a number is 0 or [too
    /// large](KeyedSemaphore#panics), the call itself panics, in every form, and nothing is held.
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
