use core::hash::Hash;

use equivalent::Equivalent;

use super::forms::{constructors, downgrades, forms, lock_table, many, table};
use crate::builder::DefaultHashBuilder;
use crate::core::Core;
use crate::key::ToKey;
use crate::mode::{Exclusive, ReadOrWrite, Shared};
use crate::plumbing::{ReaderWriter, TablePtr, TableRef};

/// A reader-writer lock for each key: many readers, or one writer. One of the readers may be upgradable to a writer.
///
/// | held by | `read` | `upgradable_read` | `write` |
/// |---|---|---|---|
/// | nobody | yes | yes | yes |
/// | readers | yes | yes | waits |
/// | an upgradable reader, with or without readers | yes | waits | waits |
/// | a writer | waits | waits | waits |
///
/// An *upgradable* reader can [become a writer](crate::Guard::upgrade) with no other writer in between. Use it to read
/// first, and to write only if needed. A key has at most one upgradable reader, because two of them would wait for each
/// other for ever.
///
/// The rest is as for [`KeyedMutex`](crate::KeyedMutex): entries live only while they are used, the forms can be mixed,
/// and the [same types](crate::KeyedMutex#keys) can be keys. The lock is not reentrant, not even for readers: a reader
/// that requests the key again may wait behind a writer that waits for that reader (see
/// [`read_recursive`](KeyedRwLock::read_recursive)). There is no poisoning.
///
/// # The forms
/// | form | call |
/// |---|---|
/// | async | [`read`](KeyedRwLock::read), [`upgradable_read`](KeyedRwLock::upgradable_read), [`write`](KeyedRwLock::write) |
/// | async, with a limit: a timer, a cancellation token | [`read(..).until(limit)`](crate::futures::Acquire::until) |
/// | without waiting | [`try_read`](KeyedRwLock::try_read), [`try_upgradable_read`](KeyedRwLock::try_upgradable_read), [`try_write`](KeyedRwLock::try_write) |
/// | blocking | [`read_blocking`](KeyedRwLock::read_blocking), [`upgradable_read_blocking`](KeyedRwLock::upgradable_read_blocking), [`write_blocking`](KeyedRwLock::write_blocking) |
/// | blocking, with a limit | [`try_read_for`](KeyedRwLock::try_read_for), [`try_read_until`](KeyedRwLock::try_read_until), [`try_upgradable_read_for`](KeyedRwLock::try_upgradable_read_for), [`try_upgradable_read_until`](KeyedRwLock::try_upgradable_read_until), [`try_write_for`](KeyedRwLock::try_write_for), [`try_write_until`](KeyedRwLock::try_write_until) |
/// | async, with an owned guard | [`read_arc`](KeyedRwLock::read_arc), [`upgradable_read_arc`](KeyedRwLock::upgradable_read_arc), [`write_arc`](KeyedRwLock::write_arc) |
/// | the others with an owned guard | `try_…_arc`, `…_arc_blocking`, `try_…_arc_for`, `try_…_arc_until` |
/// | several keys at once, all or none | [`read_many`](KeyedRwLock::read_many), [`write_many`](KeyedRwLock::write_many), and [`read_write_many`](KeyedRwLock::read_write_many) for keys of both kinds; with a limit [`.until(limit)`](crate::futures::AcquireMany::until) |
/// | the others with several keys | `…_many_blocking`, `try_…_many`, `try_…_many_for`, `try_…_many_until`; with owned guards `…_many_arc`, `…_many_arc_blocking`, `try_…_many_arc`, `try_…_many_arc_for`, `try_…_many_arc_until` |
/// | as a reader that passes waiting writers | `read_recursive` in place of `read`, in each form but those for several keys: [`read_recursive`](KeyedRwLock::read_recursive), [`read_recursive_blocking`](KeyedRwLock::read_recursive_blocking), … |
/// | repeatedly on one key | all forms for a single key but the owned ones, without the key argument, on [`handle`](KeyedRwLock::handle); with owned guards on [`handle_arc`](KeyedRwLock::handle_arc) |
///
/// Blocking calls need the feature `std`. All forms for a single key produce a [`ReadGuard`], an [`UpgradableGuard`] or
/// a [`WriteGuard`], inside an `Option` or a `Result` if they can fail. The owned forms take the table as an `Arc` and
/// produce a [`ReadGuardArc`] and so on. The forms for several keys produce [`Guards`](crate::Guards): see [Several
/// keys](crate#several-keys).
///
/// # Upgrades and downgrades
/// These are methods of the guards. They are atomic: no writer gets in between.
///
/// | from | to | call |
/// |---|---|---|
/// | upgradable | writer | [`upgrade`](crate::Guard::upgrade), [`upgrade_blocking`](crate::Guard::upgrade_blocking), [`try_upgrade`](crate::Guard::try_upgrade), [`try_upgrade_for`](crate::Guard::try_upgrade_for), [`try_upgrade_until`](crate::Guard::try_upgrade_until) |
/// | upgradable | writer, and back when the writer is dropped | [`upgrade_mut`](crate::Guard::upgrade_mut), [`upgrade_mut_blocking`](crate::Guard::upgrade_mut_blocking), [`try_upgrade_mut`](crate::Guard::try_upgrade_mut) |
/// | upgradable | reader | [`downgrade`](UpgradableGuard#method.downgrade) |
/// | writer | reader | [`downgrade`](WriteGuard#method.downgrade) |
/// | writer | upgradable | [`downgrade_to_upgradable`](WriteGuard#method.downgrade_to_upgradable) |
///
/// # Fairness
/// Under the default policy, and under [`Fairness::Bounded`](crate::Fairness::Bounded), the lock is also *phase-fair*:
/// a waiting writer keeps later readers out (except 16, or the number that the bound allows, and those that call
/// [`read_recursive`](KeyedRwLock::read_recursive)). When a writer leaves, all readers that are waiting at that moment
/// get in before the next writer, unless that writer has a higher [priority](crate::futures::Acquire::priority). An
/// upgradable reader gets in with them if no other upgradable reader holds the key. (A writer at the head lets only one
/// later upgradable reader pass it in this way, because a chain of upgrades would begin a new phase each time.) So
/// neither side starves the other. When a writer gives up, the readers that it kept out get in, and an upgradable
/// reader that it kept out is woken and competes for the key. See [`Fairness`](crate::Fairness) for the other policies.
///
/// The idea of phases, without the bound, is from B. Brandenburg and J. Anderson, "Spin-based reader-writer
/// synchronization for multiprocessor real-time systems", 2010.
///
/// # Panics
/// Panics as [`KeyedMutex`](crate::KeyedMutex#panics) does.
///
/// # Examples
/// ```
/// use keylatch::KeyedRwLock;
///
/// let pages = KeyedRwLock::<String>::new();
/// let (first, second) = (pages.read_blocking("home"), pages.read_blocking("home"));
/// assert!(pages.try_write("home").is_none());
/// drop((first, second));
///
/// let page = pages.upgradable_read_blocking("home");
/// let out_of_date = true; // checked while others may read, too
/// if out_of_date {
///     let page = page.upgrade_blocking(); // the only holder now; no other writer came in between
///     drop(page);
/// }
/// assert!(pages.is_empty());
/// ```
#[doc(alias = "map")]
#[doc(alias = "rwlock")]
pub struct KeyedRwLock<K, S = DefaultHashBuilder> {
    core: Core<K, ()>,
    hasher: S,
}

impl<K, S> ReaderWriter for KeyedRwLock<K, S> {}

constructors!(KeyedRwLock [], RwLockKind, new = "KeyedRwLock::<String>::new()", built = "KeyedRwLock<String");

forms! {
    KeyedRwLock [], Shared, handles [P: TablePtr<Table: ReaderWriter>],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedRwLock::<String>::new()", excludes = "try_write",
    /// A reader's guard of a key of a [`KeyedRwLock`]
    guards ReadGuard, ReadGuardArc, futures Read, ReadArc,
    /// Acquires a key for reading
    /// Other readers may hold it at the same time.
    async read, blocking read_blocking,
    /// Returns `None` if a writer holds the key or has been handed it, or if a writer or an upgrade (under
    /// [`Fifo`](crate::Fairness::Fifo): any request) waits for it and the [policy](crate::Fairness) lets no newcomer
    /// pass.
    try try_read, for try_read_for, until try_read_until,
    arc read_arc, read_arc_blocking, try_read_arc, try_read_arc_for, try_read_arc_until,
    aliases ["blocking_read", "read_owned", "try_read_owned"],
}

forms! {
    KeyedRwLock [], Shared, handles [P: TablePtr<Table: ReaderWriter>],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedRwLock::<String>::new()", excludes = "try_write",
    guards ReadGuard, ReadGuardArc, futures Read, ReadArc,
    /// Acquires a key for reading, past all waiters
    /// Unlike [`read`](Self::read), this call waits only for a writer that holds the key, not for writers and upgrades
    /// that are waiting. So it never waits if the key is held by readers, even if the caller is one of them. (`read`
    /// could then wait for a writer that itself waits for the caller's first hold.)
    ///
    /// This can starve writers. Under every [policy](crate::Fairness) any number of these readers pass a waiting
    /// writer, and while such readers overlap, that writer never gets in. Use this call only where the key may already
    /// be held for reading on the caller's behalf, and `read` everywhere else. If a writer holds the key, the call
    /// waits in the queue like any reader.
    async read_recursive, blocking read_recursive_blocking,
    /// Returns `None` if a writer holds the key or has been handed it.
    try try_read_recursive, for try_read_recursive_for, until try_read_recursive_until,
    arc read_recursive_arc, read_recursive_arc_blocking, try_read_recursive_arc, try_read_recursive_arc_for,
    try_read_recursive_arc_until,
    aliases ["blocking_read_recursive", "read_recursive_owned", "try_read_recursive_owned"],
    passing recursive,
}

forms! {
    KeyedRwLock [], Upgradable, handles [P: TablePtr<Table: ReaderWriter>],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedRwLock::<String>::new()", excludes = "try_upgradable_read",
    /// The guard of a key of a [`KeyedRwLock`] for the one reader that may become a writer
    guards UpgradableGuard, UpgradableGuardArc, futures UpgradableRead, UpgradableReadArc,
    /// Acquires a key for upgradable reading
    /// Other readers may hold it at the same time, but only this one may become a writer.
    async upgradable_read, blocking upgradable_read_blocking,
    /// Returns `None` if a writer or another upgradable reader holds the key or has been handed it, or if this call
    /// would keep a waiter out (under [`Fifo`](crate::Fairness::Fifo): if any request waits) and the
    /// [policy](crate::Fairness) lets no newcomer pass.
    try try_upgradable_read, for try_upgradable_read_for, until try_upgradable_read_until,
    arc upgradable_read_arc, upgradable_read_arc_blocking, try_upgradable_read_arc, try_upgradable_read_arc_for,
    try_upgradable_read_arc_until,
    aliases ["blocking_upgradable_read", "upgradable_read_owned", "try_upgradable_read_owned"],
}

forms! {
    KeyedRwLock [], Exclusive, handles [P: TablePtr<Table: ReaderWriter>],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedRwLock::<String>::new()", excludes = "try_read",
    /// A writer's guard of a key of a [`KeyedRwLock`]
    guards WriteGuard, WriteGuardArc, futures Write, WriteArc,
    /// Acquires a key for writing
    /// There is no other holder at the same time.
    async write, blocking write_blocking,
    /// Returns `None` if the key is held or has been handed to a waiter, or if others wait for it and the
    /// [policy](crate::Fairness) lets no newcomer pass them.
    try try_write, for try_write_for, until try_write_until,
    arc write_arc, write_arc_blocking, try_write_arc, try_write_arc_for, try_write_arc_until,
    aliases ["blocking_write", "write_owned", "try_write_owned"],
}

many! {
    KeyedRwLock [], Shared, SharedGuards,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedRwLock::<String>::new()", excludes = "try_write",
    lists [keys: Shared::NEW], given = "[\"a\", \"b\"]",
    /// Acquires several keys for reading
    /// Other readers may hold them at the same time.
    async read_many, blocking read_many_blocking,
    try try_read_many, for try_read_many_for, until try_read_many_until,
    arc read_many_arc, read_many_arc_blocking, try_read_many_arc, try_read_many_arc_for, try_read_many_arc_until,
}

many! {
    KeyedRwLock [], Exclusive, ExclusiveGuards,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedRwLock::<String>::new()", excludes = "try_read",
    lists [keys: Exclusive::NEW], given = "[\"a\", \"b\"]",
    /// Acquires several keys for writing
    /// The keys have no other holder at the same time.
    async write_many, blocking write_many_blocking,
    try try_write_many, for try_write_many_for, until try_write_many_until,
    arc write_many_arc, write_many_arc_blocking, try_write_many_arc, try_write_many_arc_for, try_write_many_arc_until,
}

many! {
    KeyedRwLock [], ReadOrWrite, ReadWriteGuards,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedRwLock::<String>::new()", excludes = "try_read",
    lists [reads: ReadOrWrite::READ, writes: ReadOrWrite::WRITE], given = "[\"b\"], [\"a\"]",
    /// Acquires some keys for reading and others for writing
    /// A key that is in both lists is acquired for writing, and its guard is among those of the writers.
    async read_write_many, blocking read_write_many_blocking,
    try try_read_write_many, for try_read_write_many_for, until try_read_write_many_until,
    arc read_write_many_arc, read_write_many_arc_blocking, try_read_write_many_arc, try_read_write_many_arc_for, try_read_write_many_arc_until,
}

table! {
    KeyedRwLock [],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "KeyedRwLock::<String>::new()", hold = "try_write",
}

lock_table! {
    KeyedRwLock, RwLockKind,
    new = "KeyedRwLock::<String>::new()", hold = "try_write",
}

downgrades! {
    new = "KeyedRwLock::<String>::new()",
    ['a, K, S] TableRef<'a, KeyedRwLock<K, S>>;
    #[cfg(target_has_atomic = "ptr")]
    [K, S] alloc::sync::Arc<KeyedRwLock<K, S>>;
}
