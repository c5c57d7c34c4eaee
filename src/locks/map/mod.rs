//! A map whose values are protected by keyed locks.

use core::hash::Hash;
use core::marker::PhantomData;

use equivalent::Equivalent;

use super::forms::{constructors, downgrades, forms, many, table};
use crate::builder::DefaultHashBuilder;
use crate::core::{Core, Valued};
use crate::key::ToKey;
use crate::mode::{Exclusive, ReadOrWrite, Shared};
use crate::plumbing::{Kind, Map, ReaderWriter, Table, TableRef, TypesOf, sealed};

mod batch;
mod bound;
mod by_hand;
mod calls;
mod compute;
mod ending;
mod find;
mod get_or;
pub(crate) mod guard;
mod looking;
mod peek;
mod refresh;
mod stats;
mod value_slot;
mod version;
mod walk;
mod weight;

pub use self::batch::{Batch, BatchConflict, TryBatchError};
pub use self::looking::IntoIter;
pub use self::value_slot::ValueSlot;
pub use self::version::{AddOrUpdate, Conflict, Version};
pub use self::walk::{Walk, WalkNext};

/// A map whose values are protected by keyed locks: each key has a reader-writer lock, which contains a value or
/// nothing.
///
/// ```
/// use keylatch::LockMap;
///
/// let stock = LockMap::<String, u32>::new();
/// stock.insert_blocking("apples", 7);
///
/// // The guard holds the key's lock while it lives:
/// let mut shelf = stock.write_blocking("apples");
/// *shelf.value_mut().unwrap() -= 1;
/// drop(shelf);
///
/// // Computes and stores the value only if there is none; one caller per key does so.
/// let pears = stock.get_or_insert_with_blocking("pears", || 100);
/// assert_eq!(pears.value(), Some(&100));
/// # drop(pears);
/// # assert_eq!(stock.get_blocking("apples"), Some(6));
/// ```
///
/// An entry lives while it has a value or its key has users; a guard of a key without a value is an ordinary lock on
/// the key. The lock and the value are in one entry, so there is no second map and no second hash. The locks behave
/// like those of a [`KeyedRwLock`](crate::KeyedRwLock): compatible holders, forms, upgrades and downgrades, fairness
/// and cancellation are the same. They are not reentrant either, and there is no poisoning. The page of [`ToKey`] lists
/// the types that can be keys.
///
/// # The forms
/// | form | call |
/// |---|---|
/// | async | [`read`](LockMap::read), [`upgradable_read`](LockMap::upgradable_read), [`write`](LockMap::write); with a limit [`.until(limit)`](crate::futures::Acquire::until) |
/// | without waiting | [`try_read`](LockMap::try_read), [`try_upgradable_read`](LockMap::try_upgradable_read), [`try_write`](LockMap::try_write) |
/// | blocking | [`read_blocking`](LockMap::read_blocking), [`upgradable_read_blocking`](LockMap::upgradable_read_blocking), [`write_blocking`](LockMap::write_blocking); with a limit `try_…_for`, `try_…_until` |
/// | with owned guards, several keys, handles | as for a [`KeyedRwLock`](crate::KeyedRwLock#the-forms) |
/// | in a single call | [`get`](LockMap::get), [`get_versioned`](LockMap::get_versioned), [`peek`](LockMap::peek), [`insert`](LockMap::insert), [`insert_if_absent`](LockMap::insert_if_absent), [`update`](LockMap::update), [`compute`](LockMap::compute), [`remove`](LockMap::remove), [`get_or_insert`](LockMap::get_or_insert), [`get_or_default`](LockMap::get_or_default), [`get_or_insert_with`](LockMap::get_or_insert_with), [`get_or_try_insert_with`](LockMap::get_or_try_insert_with), [`get_or_refresh_with`](LockMap::get_or_refresh_with), [`get_or_try_refresh_with`](LockMap::get_or_try_refresh_with), [`add_or_update`](LockMap::add_or_update), [`update_if`](LockMap::update_if), [`remove_if`](LockMap::remove_if); `…_blocking` |
/// | several changes, all or none | [`batch`](LockMap::batch) |
/// | all values | [`walk`](LockMap::walk), [`for_each_value`](LockMap::for_each_value), [`retain`](LockMap::retain), [`clear`](LockMap::clear), [`tick`](LockMap::tick), [`len`](LockMap::len) |
///
/// # Values
/// | guard | method | |
/// |---|---|---|
/// | any | [`value`](crate::Guard::value) | the value; `None` if the key has none |
/// | any | [`version`](crate::Guard::version) | the version of the value |
/// | any | [`versioned`](crate::Guard::versioned) | both |
/// | writer | [`value_mut`](crate::Guard::value_mut) | a mutable reference to the value; makes a new version |
/// | writer | [`insert`](crate::Guard::insert), [`remove`](crate::Guard::remove) | the old value |
/// | writer | [`get_or_insert_with`](crate::Guard::get_or_insert_with) | a mutable reference to the value, stored first if there is none; makes a new version |
/// | writer | [`value_slot`](crate::Guard::value_slot) | the value as an `Option` that can be changed; makes a new version |
///
/// The output of [`upgrade_mut`](crate::Guard::upgrade_mut) has all of these methods except `versioned`. A guard cannot
/// be dereferenced, because a key may have no value: use `guard.value()`, not `*guard`.
///
/// A guard created in the scrutinee of a `match` or an `if let` lives to the end of the statement:
/// `match map.read_blocking("a").value() { None => map.insert_blocking("a", 1), … }` waits for itself. Use
/// [`get_or_insert_with`](LockMap::get_or_insert_with), or bind the guard, and drop it first.
///
/// # Versions
/// Each change of a value makes a new [`Version`]. So a caller can read a value, compute with no lock held, and then
/// change the value only if it has not changed since: [`update_if`](LockMap::update_if),
/// [`remove_if`](LockMap::remove_if), and several such changes at once in a [`batch`](LockMap::batch).
///
/// ```
/// # let stock = keylatch::LockMap::<String, u32>::new();
/// stock.insert_blocking("apples", 7);
/// loop {
///     let seen = stock.read_blocking("apples");
///     let (&apples, version) = seen.versioned().unwrap();
///     drop(seen);
///     let fewer = apples - 1; // computed while others may read and write
///     match stock.update_if_blocking("apples", version, fewer) {
///         Ok(_) => break,
///         Err(conflict) => println!("again: {conflict}"),
///     }
/// }
/// # assert_eq!(stock.get_blocking("apples"), Some(6));
/// ```
///
/// # Bounds
/// A map evicts no value to make room, unless its builder bounds the number of values, by
/// [`max_values`](crate::Builder::max_values), or the sum of their weights (such as their sizes), by
/// [`max_weight`](crate::Builder::max_weight). [`set_max_values`](LockMap::set_max_values) and
/// [`set_max_weight`](LockMap::set_max_weight) change the bound later, [`pop`](LockMap::pop) removes the value that
/// would be evicted next, and [`peek`](LockMap::peek) reads a value without marking it as used. The map can hand
/// evicted values [to a function](crate::Builder::on_evict), or leave eviction [to the
/// caller](crate::Builder::evict_by_hand), and [count](LockMap::stats) how often values were found, and how many were
/// evicted.
///
/// # Values that end
/// [`time_to_live`](crate::Builder::time_to_live), [`time_to_idle`](crate::Builder::time_to_idle) and
/// [`expire_with`](crate::Builder::expire_with) let values end. No call that begins after a value's time has passed
/// finds the value (unless a caller that has found it still holds the key), and [`tick`](LockMap::tick) frees the
/// memory of all such values at once, except those that a user of the key still keeps.
/// [`get_or_refresh_with`](LockMap::get_or_refresh_with) replaces a value before it ends, while other callers get the
/// old one without waiting.
///
/// # Memory
/// A value is usually part of its key's entry, which is what a guard holds. A small value that owns nothing, such as a
/// number, can also be *at rest*: stored without an entry. In a large map, calls without guards then take about half as
/// long. [`insert_blocking`](LockMap::insert_blocking) stores most new values at rest. A guard, a handle and most async
/// calls move a value to an entry. Of the calls of `get_blocking`, `get_versioned_blocking` and `insert_blocking` that
/// find a value in an entry that nobody uses, about one in 32 moves it back. [`walk`](LockMap::walk),
/// [`for_each_value`](LockMap::for_each_value) and the other calls that visit all entries move the values to entries,
/// and back, one shard after another. Nothing else depends on where a value is: a value at rest counts as an entry, and
/// keeps its version.
///
/// Values rest only in maps that have no bound, no times, no weights, no counters and no reserved
/// [`capacity`](crate::Builder::capacity), and only if key and value together take at most 24 bytes, padding included,
/// and [`needs_drop::<V>()`](core::mem::needs_drop) is false. In a map with
/// [`recycle_keys`](crate::Builder::recycle_keys), the keys must not own memory, either.
///
/// # User code
/// `V`'s `Drop` runs with no lock held for every value that the map itself drops: values that were evicted or have
/// ended, that `update_if`, `extend`, a refresh or a batch has overwritten, that a batch, `retain` or `clear` has
/// removed, or that `add_or_update`, a refresh or a batch has not stored. If such a drop panics, the change stands, and
/// the other values are still dropped. A call that releases several keys drops values only after it has released all of
/// them and woken the admitted waiters. (But [`get_or_insert`](LockMap::get_or_insert) drops a value that it does not
/// need while it holds the key for reading, because it returns that hold.) `V`'s `Clone`, `PartialEq` and `Default`,
/// and closures such as `init`, run under the lock of their key (except the `init` of a refresh and the clone of its
/// result), and may use other keys. But the `clone` of a `V` that owns nothing must not use the map at all (see
/// [`get`](LockMap::get)).
///
/// The [clock](crate::Builder::clock) and the functions of [`expire_with`](crate::Builder::expire_with) and
/// [`max_weight`](crate::Builder::max_weight) are called with no internal lock held, but the call may hold its own key
/// meanwhile.
///
/// # Panics
/// Panics as [`KeyedMutex`](crate::KeyedMutex#panics) does, and if `V`'s own code panics. A panic under a key's lock
/// frees the key, and leaves the value as it was, or in the state in which a writer left it; only a panic in
/// [`compute`](LockMap::compute) loses the value.
///
/// # Examples
/// A counter for each key:
/// ```
/// let visits = keylatch::LockMap::<String, u64>::new();
/// for page in ["home", "news", "home"] {
///     *visits.write_blocking(page).get_or_insert_with(|| 0) += 1;
/// }
/// assert_eq!(visits.get_blocking("home"), Some(2));
/// ```
#[doc(alias = "cache")]
#[doc(alias = "hashmap")]
pub struct LockMap<K, V, S = DefaultHashBuilder> {
    core: Core<K, Valued<V>>,
    hasher: S,
}

/// The kind of table that [`LockMap::builder`] makes.
#[derive(Debug)]
pub struct MapKind<V>(PhantomData<fn() -> V>);

impl<V> Kind for MapKind<V> {
    type Table<K, S> = LockMap<K, V, S>;
}

impl<V> sealed::KindInside for MapKind<V> {
    type Payload = Valued<V>;
}

impl<K, V, S> sealed::Assembled<K, S> for LockMap<K, V, S> {
    type Payload = Valued<V>;

    fn assemble(core: Core<K, Valued<V>>, hasher: S) -> Self {
        LockMap { core, hasher }
    }
}

impl<K, V, S> Table for LockMap<K, V, S> {
    type Key = K;
    type Types = TypesOf<MapKind<V>, K, S>;
}

impl<K, V, S> ReaderWriter for LockMap<K, V, S> {}

impl<K, V, S> Map for LockMap<K, V, S> {
    type Value = V;
}

impl<K, V, S> sealed::TableInside<K> for LockMap<K, V, S> {
    type Payload = Valued<V>;

    #[inline]
    fn core(&self) -> &Core<K, Valued<V>> {
        &self.core
    }
}

constructors!(LockMap[V], MapKind, new = "LockMap::<String, u32>::new()", built = "LockMap<String, u32");

forms! {
    LockMap [V], Shared, handles [],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "LockMap::<String, u32>::new()", excludes = "try_write",
    /// A reader's guard of a key of a [`LockMap`]
    guards MapReadGuard, MapReadGuardArc, futures MapRead, MapReadArc,
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
    LockMap [V], Shared, handles [],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "LockMap::<String, u32>::new()", excludes = "try_write",
    guards MapReadGuard, MapReadGuardArc, futures MapRead, MapReadArc,
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
    LockMap [V], Upgradable, handles [],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "LockMap::<String, u32>::new()", excludes = "try_upgradable_read",
    /// The guard of a key of a [`LockMap`] for the one reader that may become a writer
    guards MapUpgradableGuard, MapUpgradableGuardArc, futures MapUpgradableRead, MapUpgradableReadArc,
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
    LockMap [V], Exclusive, handles [],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "LockMap::<String, u32>::new()", excludes = "try_read",
    /// A writer's guard of a key of a [`LockMap`]
    guards MapWriteGuard, MapWriteGuardArc, futures MapWrite, MapWriteArc,
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
    LockMap [V], Shared, SharedGuards,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "LockMap::<String, u32>::new()", excludes = "try_write",
    lists [keys: Shared::NEW], given = "[\"a\", \"b\"]",
    /// Acquires several keys for reading
    /// Other readers may hold them at the same time. These readers see all of a [`batch`](Self::batch), or nothing of
    /// it.
    async read_many, blocking read_many_blocking,
    try try_read_many, for try_read_many_for, until try_read_many_until,
    arc read_many_arc, read_many_arc_blocking, try_read_many_arc, try_read_many_arc_for, try_read_many_arc_until,
}

many! {
    LockMap [V], Exclusive, ExclusiveGuards,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "LockMap::<String, u32>::new()", excludes = "try_read",
    lists [keys: Exclusive::NEW], given = "[\"a\", \"b\"]",
    /// Acquires several keys for writing
    /// The keys have no other holder at the same time.
    async write_many, blocking write_many_blocking,
    try try_write_many, for try_write_many_for, until try_write_many_until,
    arc write_many_arc, write_many_arc_blocking, try_write_many_arc, try_write_many_arc_for, try_write_many_arc_until,
}

many! {
    LockMap [V], ReadOrWrite, ReadWriteGuards,
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "LockMap::<String, u32>::new()", excludes = "try_read",
    lists [reads: ReadOrWrite::READ, writes: ReadOrWrite::WRITE], given = "[\"b\"], [\"a\"]",
    /// Acquires some keys for reading and others for writing
    /// A key that is in both lists is acquired for writing, and its guard is among those of the writers.
    async read_write_many, blocking read_write_many_blocking,
    try try_read_write_many, for try_read_write_many_for, until try_read_write_many_until,
    arc read_write_many_arc, read_write_many_arc_blocking, try_read_write_many_arc, try_read_write_many_arc_for, try_read_write_many_arc_until,
}

table! {
    LockMap [V],
    asked with [?Sized + Hash + Equivalent<K> + ToKey<K>],
    new = "LockMap::<String, u32>::new()", hold = "try_write",
}

downgrades! {
    new = "LockMap::<String, u32>::new()",
    ['a, K, V, S] TableRef<'a, LockMap<K, V, S>>;
    #[cfg(target_has_atomic = "ptr")]
    [K, V, S] alloc::sync::Arc<LockMap<K, V, S>>;
}
