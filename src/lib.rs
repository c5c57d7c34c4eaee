//! Keyed locks: operations exclude each other only when they name the same key.
//!
//! A key costs memory only while somebody holds it or waits for it. One table serves async tasks on any runtime, plain
//! threads, and callers that only try, all at once and on the same keys.
//!
//! ```
//! use keylatch::KeyedMutex;
//!
//! let users = KeyedMutex::<String>::new();
//!
//! // In a thread:
//! let guard = users.lock_blocking("alice");
//! assert!(users.try_lock("alice").is_none());
//! assert!(users.try_lock("bob").is_some());
//! drop(guard);
//!
//! // In a task:
//! # futures_lite::future::block_on(async {
//! let guard = users.lock("alice").await;
//! # drop(guard);
//! # });
//! ```
//!
//! This page is the reference: what holds, and with what exceptions. A guide that explains it all with examples, to be read
//! from top to bottom, is `docs/guide.md` in the package and in the repository.
//!
//! # Look, compute, store: once for each key
//! The commonest job: what is missing is made by whoever asks first, while the others who ask for the same wait, and
//! then find it. Where the store is a map in memory, a [`LockMap`] is the store and its locks in one:
//!
//! ```
//! use keylatch::LockMap;
//!
//! let pages = LockMap::<String, String>::new();
//! # smol::block_on(async {
//! let page = pages.get_or_insert_with("alice", async || render("alice").await).await;
//! assert_eq!(page.value().unwrap(), "the page of alice");
//! # });
//! # async fn render(name: &str) -> String {
//! #     smol::future::yield_now().await;
//! #     format!("the page of {name}")
//! # }
//! ```
//!
//! Where it is something else, a keyed lock stands beside it:
//!
//! ```
//! use std::{collections::HashMap, sync::RwLock};
//!
//! use keylatch::KeyedMutex;
//!
//! #[derive(Default)]
//! struct Pages {
//!     locks: KeyedMutex<String>,
//!     store: RwLock<HashMap<String, String>>, // a database, a directory of files
//! }
//!
//! impl Pages {
//!     async fn get(&self, name: &str) -> String {
//!         let _held = self.locks.lock(name).await; // one at a time for each name
//!         if let Some(page) = self.store.read().unwrap().get(name) {
//!             return page.clone();
//!         }
//!         let page = render(name).await;
//!         self.store.write().unwrap().insert(name.to_owned(), page.clone());
//!         page
//!     }
//! }
//! # async fn render(name: &str) -> String {
//! #     smol::future::yield_now().await;
//! #     format!("the page of {name}")
//! # }
//! # fn is_send(_: impl Send) {}
//! # is_send(Pages::default().get("alice"));
//! # let pages = Pages::default();
//! # let both = smol::future::zip(pages.get("alice"), pages.get("alice"));
//! # assert_eq!(smol::block_on(both).1, "the page of alice");
//! # assert!(pages.locks.is_empty());
//! ```
//!
//! Where the table lives:
//! - in a struct that is shared: a field as above, `locks: KeyedMutex<String>`;
//! - in a struct whose guards go elsewhere (into a task, a blocking thread, another struct): a field
//!   `locks: Arc<KeyedMutex<String>>`, and a guard in a field is a `MutexGuardArc<String>`:
//!   [more](KeyedMutex#a-table-in-a-struct);
//! - in a `static`, in a `LazyLock`: [more](KeyedMutex#a-table-in-a-static).
//!
//! A function that needs its caller to hold a key takes the guard, as [proof](Guard#proof-that-a-key-is-held). What can
//! be a key, and what it is locked with, is on the page of [`ToKey`].
//!
//! # Which lock do I want?
//! | | holders per key | for |
//! |---|---|---|
//! | [`KeyedMutex`] | one | whatever must not happen twice at once: render, fetch, write |
//! | [`KeyedRwLock`] | many readers, or one writer | things that are looked at more often than changed |
//! | [`KeyedSemaphore`] | up to `n` | limits: connections per host, jobs per user |
//! | [`LockMap`] | many readers, or one writer | values in memory, one for each key: caches, stocks, sessions |
//! | [`Striped`] | many readers, or one writer, of all keys that share a stripe | very many keys in fixed memory; keys that cannot be cloned or stored. Two keys may share a stripe: to hold one key and ask for another may deadlock, so use a `_many` call |
//! | [`Latch`] | many readers, or one writer; there is no key | the lock alone, in one word, with no data inside: for what tasks and threads share, in a `static` or in each of a million objects |
//!
//! If in doubt, the mutex; or the map, where what is locked is a value in memory. A reader-writer lock pays only where readers stay for a while: to hold a key for some
//! nanoseconds exclusively costs no more than to share it.
//!
//! In a [`KeyedRwLock`], and in a [`LockMap`], whether a call gets in depends on who holds the key:
//!
//! | held by | [`read`] | [`upgradable_read`] | [`write`] |
//! |---|---|---|---|
//! | nobody | yes | yes | yes |
//! | readers | yes | yes | waits |
//! | an upgradable reader, with or without readers | yes | waits | waits |
//! | a writer | waits | waits | waits |
//!
//! [`read`]: KeyedRwLock::read
//! [`upgradable_read`]: KeyedRwLock::upgradable_read
//! [`write`]: KeyedRwLock::write
//!
//! An upgradable reader may become a writer with no other writer in between ([`upgrade`](Guard::upgrade)): look first,
//! write only if needed. The future of `upgrade` owns the guard: dropping it before it has finished releases the hold.
//! To stop waiting and keep the upgradable hold, use [`upgrade_mut`](Guard::upgrade_mut), or
//! [`upgrade().until(limit)`](futures::Upgrade::until).
//!
//! # The forms
//! Each operation `op` (`lock`, `read`, `upgradable_read`, `write`, `acquire`) has these forms:
//!
//! | form | call, for a mutex | needs `std` |
//! |---|---|---|
//! | async | [`lock`](KeyedMutex::lock) | |
//! | async with a limit: a timer, a cancellation token | [`lock(..).until(limit)`](futures::Acquire::until) | |
//! | without waiting | [`try_lock`](KeyedMutex::try_lock) | |
//! | blocking | [`lock_blocking`](KeyedMutex::lock_blocking) | yes |
//! | blocking with a limit | [`try_lock_for`], [`try_lock_until`] | yes |
//! | with an owned, `'static` guard | [`lock_arc`](KeyedMutex::lock_arc) and its like | as above |
//! | again and again on one key | [`handle`](KeyedMutex::handle) | as above |
//! | several keys at once, all or none | [`lock_many`](KeyedMutex::lock_many) and its like | as above |
//!
//! (A [`Latch`] and a [`Striped`] have no owned guards and no handles, and no detector watches them. Where the lock is in an `Arc`, move that
//! into the task, and lock there.)
//!
//! [`try_lock_for`]: KeyedMutex::try_lock_for
//! [`try_lock_until`]: KeyedMutex::try_lock_until
//!
//! # Guarantees
//! 1. *Exclusion.* A key never has holders that do not go together, whatever mix of forms is used on the table.
//! 2. *No leaks.* An entry goes with the last of its holders, waiters, handles and unfinished futures, and of the calls
//!    of [`for_each_key`](KeyedMutex::for_each_key) that are looking at it: when they are gone,
//!    [`len`](KeyedMutex::len) is 0, whatever was cancelled, timed out or panicked on the way. Every future can be
//!    dropped at any moment; a key that it had been handed already goes to the next waiter. (In a [`LockMap`] a value keeps
//!    its entry, too.)
//! 3. *Nobody who comes starves, and nothing is kept for one that does not.* Under the default policy a waiter that was
//!    woken in vain four times is handed the key by the next release that it fits, before any newcomer; a task that is
//!    woken and not polled is passed by everybody who asks. See [`Fairness`] for the rest, and for policies with a bound
//!    in numbers. No clock is involved.
//! 4. *Phase fairness.* In a [`KeyedRwLock`], a waiting writer keeps later readers out (but for a few: [`Fairness`]), and
//!    when a writer leaves, the readers who wait by then all get in before the next writer. When a writer gives up, the
//!    readers that it kept out get in. (Under `Fifo` order of arrival is all, and `Barging` promises nothing.)
//! 5. *User code runs outside.* Hashing, cloning and dropping keys, calling an observer, and waking, cloning and dropping wakers happen
//!    outside every internal lock, so all of them may use the table, and a waker may run its task on the spot. There
//!    are exceptions, which must not use the table: the key's `Equivalent` (or `Eq`), the [`to_key`](ToKey::to_key) of
//!    a key type that owns nothing (for which [`needs_drop`](::core::mem::needs_drop) is false), and, where
//!    [`recycle_keys(true)`](Builder::recycle_keys) was asked for, [`to_key_into`](ToKey::to_key_into), with whatever it
//!    calls; and what [`LockMap::get`] clones, if that owns nothing. If user code panics, the panic reaches the caller, and the table stays usable. If a waker panics, the others that were due are still woken. (Wakers that run their tasks
//!    on the spot nest: each task that releases a key runs the next one inside its release, so a long chain of them
//!    needs a deep stack.)
//! 6. *No poisoning.* A panic while a key is held drops the guard, and the key is free.
//! 7. *No re-entry.* Asking again for a key that one holds waits: see [below](#re-entry).
//! 8. *Memory follows use.* After a burst the memory that it took is given back, in step with the releases, but for a
//!    bounded pool of free entries ([`Builder::pool_capacity`]). Entries come in chunks of up to 16, and a key in use
//!    keeps its chunk: with one key in forty of a burst still held a third of the memory may stay. Waiters come in
//!    pages of 64, and one that waits for long keeps its page.
//! 9. *No allocation on the fast path.* In steady state acquiring and releasing a key allocates nothing, if the key
//!    owns nothing, or is recycled ([`Builder::recycle_keys`]). Nor does waiting, but for a release that wakes several
//!    waiters at once, and where crowds of more than 64 waiters come and go.
//!
//! # Cancel safety
//! Every future can be dropped at any moment: it leaves the table as if it had never asked, and a key that it had been
//! handed already goes to the next waiter. So a lock future may stand in `select!`, under a timeout, or in a task that
//! is aborted. Only the future of [`upgrade`](Guard::upgrade) owns a hold while it waits: dropping it before it has
//! finished releases that hold.
//!
//! # Idle futures
//! To drop a future is safe; to *keep* one and not poll it is a trap, known as futurelock. Once a lock future has been
//! polled it is a waiter: it stands in its key's queue, and only a poll can take the key for it. If its task turns to
//! something else meanwhile, and that needs the same key, the task may wait for a key that waits for the task.
//!
//! | | what happens |
//! |---|---|
//! | `select!` in a loop over `&mut lock` | While another branch's handler runs the future is idle. A handler that uses the same key may hang, at once or after some rounds: under every policy but the default and `Barging`. |
//! | `join_all`, or `zip`, of two lock futures for one key | The first guard is kept until the second is there, which waits for the first: it hangs. That is [re-entry](#re-entry), not an idle future, and no policy helps. Futures that lock, work *and unlock* can be joined. |
//! | a stream of lock futures (`FuturesUnordered`, `buffered`) | Between two polls of the stream its futures are idle: in the body of the loop, which also has a guard in its hands. A body that waits for the key of that guard hangs; one that waits for another key of the stream may, as above. |
//! | a future in a struct, a channel, a variable | Idle until somebody polls it. Before its first poll it is no waiter, and harmless. |
//!
//! What a waiter that is not polled does to others depends on the [policy](Fairness):
//! - [`Adaptive`](Fairness::Adaptive), the default: everybody who asks passes it, for ever, so the code that forgot it can
//!   go on. The wake-up went to it, though: those who sleep behind it are woken by the next release, not by this one. And
//!   a reader that waited when a writer left has been let in, alone or with others, and does hold the key: see [`Fairness`].
//! - [`Barging`](Fairness::Barging): the same, but those who sleep behind it are not woken in its place.
//! - [`Bounded(n)`](Fairness::Bounded): `n` later requests pass it. Then the key is kept for it, until it is polled or
//!   dropped. So tests pass, and production hangs.
//! - [`Fifo`](Fairness::Fifo): the key is handed to it by the first release that it fits, and stays with it until it is
//!   polled or dropped.
//!
//! Code that is right under `Fifo` is right under every policy, and that is the code to write.
//!
//! The ways out:
//! - do not keep it: give the future to `select!` by value, so that it is dropped when another branch is first; it asks
//!   anew in the next round, at the end of the queue;
//! - drop it before the key is used in another way;
//! - let something else poll it: a task of its own, which locks with an owned form
//!   ([`lock_arc`](KeyedMutex::lock_arc)), works and unlocks;
//! - [`until`](futures::Acquire::until) instead of a `select!` that has only a limit beside the lock: it owns the
//!   future.
//!
//! ```
//! use futures_lite::future::{block_on, poll_once};
//! use keylatch::{Fairness, KeyedMutex};
//!
//! let locks = KeyedMutex::<u64>::builder().fairness(Fairness::Fifo).build();
//! let guard = locks.try_lock(&7).unwrap();
//! let mut idle = locks.lock(&7);
//! assert!(block_on(poll_once(&mut idle)).is_none()); // polled once: it is in the queue
//! drop(guard); // handed over
//! assert!(locks.try_lock(&7).is_none()); // and kept for a future that nobody polls
//! drop(idle);
//! assert!(locks.try_lock(&7).is_some());
//! ```
//!
//! # Re-entry
//! The locks are not reentrant. Asking again for a key that one holds waits for oneself: an async or blocking call
//! never returns, and a `try_` call fails. That is true of readers as well: one who asks again waits behind a writer
//! that waits for it. (Under the default policy sixteen get in past that writer, and the next hangs: so tests may pass.) The ways out:
//! - pass the guard, or a reference to it, down to whoever needs the key to be held;
//! - find the key once with [`handle`](KeyedMutex::handle), lock it in one place, and pass the handle to those who only
//!   need the key;
//! - ask with a `try_` form, and treat failure as "held, perhaps by me";
//! - ask through a [detector of deadlocks](deadlock), where asking again is an error that says so.
//!
//! If a program hangs, [`dump`](KeyedMutex::dump) shows for each key how many hold it, in what way, and how many wait.
//!
//! A task that is suspended while it holds a guard holds the key for as long as nobody polls or drops it; threads that
//! block on that key wait as long. Stop an executor only when its tasks are done or dropped.
//!
//! # Several keys
//! Who holds one key and asks for a second can deadlock with somebody who has taken them the other way round. A call with
//! `_many` in its name takes all of its keys, or none, and such calls on one table never wait for each other in a circle, in
//! whatever order they name the keys, and however they read and write. Keys need no `Ord`: the table has an order of its own.
//!
//! ```
//! use keylatch::KeyedMutex;
//!
//! let accounts = KeyedMutex::<String>::new();
//! // Nobody waits for ever, though another transfer goes the other way.
//! std::thread::scope(|scope| {
//!     for (from, to) in [("alice", "bob"), ("bob", "alice"), ("bob", "bob")] {
//!         let accounts = &accounts;
//!         scope.spawn(move || {
//!             let guards = accounts.lock_many_blocking([from, to]);
//!             assert!(guards.get(from).is_some() && guards.get(to).is_some());
//!         });
//!     }
//! });
//! ```
//!
//! | what you have | what you need |
//! |---|---|
//! | one key at a time | [`lock`](KeyedMutex::lock) and the other forms |
//! | one key, again and again | a [`handle`](KeyedMutex::handle) |
//! | several keys of one table, known when the first is taken | [`lock_many`](KeyedMutex::lock_many), [`read_many`](KeyedRwLock::read_many), [`write_many`](KeyedRwLock::write_many), [`acquire_many`](KeyedSemaphore::acquire_many) |
//! | several keys of a [`Striped`] | [`write_many`](Striped::write_many) and its like: whoever holds one stripe, and asks for another by a call of its own, may wait for itself |
//! | some of them to read, and others to write | [`read_write_many`](KeyedRwLock::read_write_many) |
//! | keys of several tables | one `_many` call for each table, and the tables in the same order everywhere |
//! | keys that are only known when others are held already | ask for the next with a `try_` form, and begin again if it fails; or ask through a [detector](deadlock), which reports a deadlock instead of suffering it |
//!
//! - A key that is named twice is taken once; in both lists of `read_write_many` it is written.
//! - The [policy](Fairness) of each key holds as for single calls.
//! - A caller that waits for one key holds those before it in the table's order, and others wait for them: so its future must be
//!   polled, or dropped, under every policy. A hot key is best locked alone.
//! - A `try_` form that fails, a limit that is reached, a dropped future and a panic release what is held by then.
//! - Somebody who holds a key already, and asks for several, can still deadlock, and a [detector](deadlock) does not see it.
//!   Take all of them in one call.
//!
//! # Seeing contention
//! [`status`](KeyedMutex::status) says of one key who holds it and who waits, [`for_each_key`](KeyedMutex::for_each_key) of all,
//! and [`dump`](KeyedMutex::dump) says it to a person. An observer, [`Builder::on_wait`], is told whenever a request begins
//! to wait, and how that ended: to count, log or trace. It costs nothing where nobody waits.
//!
//! # Poisoning
//! There is none. A panic while a key is held drops the guard, and the key is free. What the key protects may then be
//! half changed; if that matters, make the changes such that it does not.
//!
//! # Hashing
//! A hasher is called once for each look-up, and never for a release, a hand-over or a growing table. Keys of handles
//! are not hashed again at all. The hash is mixed once more by the table, so an identity hash will do. See
//! [`DefaultHashBuilder`] for the default, and for keys that an adversary chooses.
//!
//! `Hash`, `Eq` and `Equivalent` must agree, as for any hash table. If they do not, keys may exclude each other too
//! much or too little; memory safety does not depend on them.
//!
//! # Versions
//! Each change of a value of a [`LockMap`] makes a new [`Version`]: so one can look, think with nothing locked, and change it only
//! if it is still as it was seen, one value or a [`Batch`] of them, all or nothing. See [its page](LockMap#versions).
//!
//! # Features
//! | feature | default | meaning |
//! |---|---|---|
//! | `std` | yes | blocking and timed calls (not on WebAssembly, where it builds without them); without it the crate is `no_std` and needs `alloc` |
//! | `portable-atomic` | no | targets without native compare-and-swap |
//! | `critical-section` | no | implies `portable-atomic`; internal locks become critical sections |
//! | `tracing` | no | `WaitEvent::trace`: an event of the `tracing` crate for each wait that begins or ends; needs a target with compare-and-swap |
//!
//! With `critical-section` a lock may be tried and released inside an interrupt handler. Without it, do not call into a
//! table from an interrupt handler (or a signal handler) that may have interrupted a call on the same table,
//! nor use any [`Latch`] or [`Striped`] if it may have interrupted a call on another: the internal spin lock would wait for the code
//! that it has interrupted.
//!
//! # When to use something else
//! - *One lock, or a handful known in advance:* where it protects a value, `RwLock<T>` of `async-lock` (for tasks and threads), `parking_lot` or
//!   `std`. A [`Latch`] has no value inside; it has one word, calls with a time limit, a policy, and, with `critical-section`, interrupt
//!   handlers.
//! - *A map of values that are only read and written for a moment:* a concurrent map (`dashmap`, `scc`) does that as well as a
//!   [`LockMap`], which pays where an entry is held for longer, by tasks too, or changed only if it is as it was seen. A
//!   cache that forgets values with time, or weighs them, is `moka`.
//! - *Many short critical sections of threads alone, that need not be exact about the key:* an array of mutexes, chosen by the hash, is
//!   as good as a [`Striped`], and has values inside.
//! - *A person or a worker holds it, across requests and crashes; or several processes or machines must see it:* these locks live in
//!   one process, and belong to a piece of a running program. That is a lease: `keylatch-lease`, in memory or on Postgres,
//!   Redis, etcd or NATS.
//!
//! # Implementation
//! The `core` module of the source has an overview: how an entry lives and dies, who may change what under which lock,
//! and why no wake-up is lost. Unsafe code is confined to one module of it, the entries' memory.
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
// What needs a feature says so by a `doc(cfg)` of its own: by itself rustdoc would name the targets as well, at every call, and
// how to hide them differs from one nightly to the next.
#![cfg_attr(docsrs, doc(auto_cfg = false))]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod acquire;
mod builder;
mod core;
#[cfg(target_has_atomic = "ptr")]
pub mod deadlock;
mod dump;
mod fairness;
mod guard;
mod guards;
mod handle;
mod key;
mod latch;
mod list;
mod locks;
pub mod mode;
mod panics;
mod plumbing;
mod status;
mod sync;
mod upgrade;
mod wait_event;

// The examples of the README and of the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide.md")]
struct Guide;

/// The futures of the async forms.
pub mod futures {
    pub use crate::acquire::future::Acquire;
    pub use crate::acquire::many::AcquireMany;
    pub use crate::guards::ManyMode;
    pub use crate::latch::{LatchAcquire, LatchAcquireMany, LatchManyMode};
    pub use crate::locks::{AcquirePermit, Lock, MapRead, MapUpgradableRead, MapWrite, Read, UpgradableRead, Write};
    #[cfg(target_has_atomic = "ptr")]
    pub use crate::locks::{
        AcquirePermitArc, LockArc, MapReadArc, MapUpgradableReadArc, MapWriteArc, ReadArc, UpgradableReadArc, WriteArc,
    };
    pub use crate::upgrade::{Upgrade, UpgradeMut};
}

/// What is generic over tables: needed only to name types in signatures that take any table.
///
/// The traits are sealed: the tables are those of this crate.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use keylatch::table::TablePtr;
/// use keylatch::{Guard, KeyedMutex, KeyedRwLock, mode::Exclusive};
///
/// /// For the only holder of a key, of whatever table, by a borrowed guard or by an owned one.
/// fn file_name<P: TablePtr<Key = String>>(held: &Guard<P, Exclusive>) -> String {
///     format!("{}.png", held.key())
/// }
///
/// let images = KeyedMutex::<String>::new();
/// assert_eq!(file_name(&images.try_lock("a").unwrap()), "a.png");
/// let pages = Arc::new(KeyedRwLock::<String>::new());
/// assert_eq!(file_name(&pages.try_write_arc("b").unwrap()), "b.png");
/// ```
pub mod table {
    pub use crate::locks::{IntoIter, MapKind, MutexKind, RwLockKind, SemaphoreKind};
    pub use crate::plumbing::{Kind, Map, ReaderWriter, Table, TablePtr, TableRef};
}

pub use self::{
    builder::{Builder, DefaultHashBuilder, MAX_CAPACITY, MAX_SHARDS},
    dump::Dump,
    fairness::Fairness,
    guard::Guard,
    guards::Guards,
    handle::{Handle, KeyHandle},
    key::ToKey,
    latch::{
        Latch, LatchGuard, LatchGuards, LatchGuardsIter, LatchReadGuard, LatchWriteGuard, MAX_STRIPES, Striped,
        StripedBuilder,
    },
    locks::{
        AddOrUpdate, Batch, BatchConflict, Conflict, KeyedMutex, KeyedRwLock, KeyedSemaphore, LockMap, MAX_PERMITS,
        MAX_USERS, MapReadGuard, MapUpgradableGuard, MapWriteGuard, MutexGuard, PermitGuard, ReadGuard, TryBatchError,
        UpgradableGuard, Version, WriteGuard,
    },
    status::Status,
    upgrade::Upgraded,
    wait_event::{WaitEvent, WaitId, WaitMode, WaitPhase},
};
#[cfg(target_has_atomic = "ptr")]
pub use self::{
    handle::KeyHandleArc,
    locks::{
        MapReadGuardArc, MapUpgradableGuardArc, MapWriteGuardArc, MutexGuardArc, PermitGuardArc, ReadGuardArc,
        UpgradableGuardArc, WriteGuardArc,
    },
};
pub use equivalent::Equivalent;
