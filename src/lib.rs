//! Keyed locks: operations exclude each other only when they name the same key.
//!
//! A key takes memory only while it is in use: held, waited for, named by a handle or an unfinished future, or, in a
//! [`LockMap`], with a value. One table serves async tasks on any runtime, plain threads, and non-blocking callers, at
//! the same time and on the same keys.
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
//! This page is the reference: the guarantees and their exceptions. For an introduction with examples, read
//! `docs/guide.md` in the package or the repository.
//!
//! # Computing a missing value once per key
//! The most common use: the first request for a missing value computes it, and concurrent requests for that value wait
//! and then find it. If the values are in a map in memory, a [`LockMap`] is both the store and its locks:
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
//! If the store is something else, such as a database, put a keyed lock beside it:
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
//!         let _held = self.locks.lock(name).await; // one caller at a time for each name
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
//! - in a struct whose guards are moved elsewhere (into a task, a blocking thread, another struct): a field
//!   `locks: Arc<KeyedMutex<String>>`; a guard that is stored in a field is a `MutexGuardArc<String>`:
//!   [more](KeyedMutex#a-table-in-a-struct);
//! - in a `static`, wrapped in a `LazyLock`: [more](KeyedMutex#a-table-in-a-static).
//!
//! A function that needs its caller to hold a key takes the guard, as [proof](Guard#proof-that-a-key-is-held). The page
//! of [`ToKey`] says which types can be keys, and by which borrowed types they are looked up.
//!
//! # Which lock do I want?
//! | | holders per key | for |
//! |---|---|---|
//! | [`KeyedMutex`] | one | work that must not run twice at once for the same key: render, fetch, write |
//! | [`KeyedRwLock`] | many readers, or one writer | data that is read more often than it is changed |
//! | [`KeyedSemaphore`] | up to `n` | limits: connections per host, jobs per user |
//! | [`LockMap`] | many readers, or one writer | values in memory, one for each key: caches, stocks, sessions |
//! | [`Striped`] | many readers, or one writer, of all keys that share a stripe | very many keys in fixed memory; keys that cannot be cloned or stored. Two keys may share a stripe: holding one key while asking for another may deadlock, so use a `_many` call |
//! | [`Latch`] | many readers, or one writer; there is no key | the lock alone, in one word and with no data inside, shared by tasks and threads: in a `static`, or in each of a million objects |
//!
//! If in doubt, use the mutex, or the map if you lock a value in memory. A reader-writer lock pays off only if readers
//! hold the key for a while: acquiring a key exclusively costs no more than acquiring it as a reader.
//!
//! While no request waits for a key of a [`KeyedRwLock`] or a [`LockMap`], only its holders determine whether a call
//! acquires the key at once:
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
//! An upgradable reader can become a writer with no other writer in between ([`upgrade`](Guard::upgrade)): read first,
//! and write only if needed. The future of `upgrade` owns the guard: dropping it before it has finished releases the
//! hold. To stop waiting and keep the upgradable hold, use [`upgrade_mut`](Guard::upgrade_mut), or
//! [`upgrade().until(limit)`](futures::Upgrade::until).
//!
//! # The forms
//! Each operation (`lock`, `read`, `upgradable_read`, `write`, `acquire`) has these forms:
//!
//! | form | call, for a mutex | needs `std` |
//! |---|---|---|
//! | async | [`lock`](KeyedMutex::lock) | |
//! | async with a limit: a timer, a cancellation token | [`lock(..).until(limit)`](futures::Acquire::until) | |
//! | with a priority | [`lock(..).priority(9)`](futures::Acquire::priority), which is used like `lock(..)` itself; to block, [`wait`](futures::Acquire::wait) and its forms | the blocking ones |
//! | without waiting | [`try_lock`](KeyedMutex::try_lock) | |
//! | blocking | [`lock_blocking`](KeyedMutex::lock_blocking) | yes |
//! | blocking with a limit | [`try_lock_for`], [`try_lock_until`] | yes |
//! | with an owned, `'static` guard | [`lock_arc`](KeyedMutex::lock_arc) and its forms | the blocking ones |
//! | repeatedly on one key | [`handle`](KeyedMutex::handle) | the blocking ones |
//! | several keys, all or none | [`lock_many`](KeyedMutex::lock_many) and its forms | the blocking ones |
//!
//! ([`Latch`] and [`Striped`] have no handles and no priorities, and no observer watches them. A [`Striped`] has no
//! owned guards: if it is in an `Arc`, move the `Arc` into the task and acquire the lock there.)
//!
//! [`try_lock_for`]: KeyedMutex::try_lock_for
//! [`try_lock_until`]: KeyedMutex::try_lock_until
//!
//! # Guarantees
//! 1. *Exclusion.* A key never has incompatible holders, whatever mix of forms is used on the table.
//! 2. *No leaks.* An entry is removed together with its last user: a holder, a waiter, a handle, an unfinished future,
//!    or a call of [`for_each_key`](KeyedMutex::for_each_key) that is visiting it. Once all users are gone,
//!    [`len`](KeyedMutex::len) is 0, even if some of them were cancelled, timed out or panicked. Every future can be
//!    dropped at any moment; if it has already been granted its key, the key passes to the next waiter. (In a
//!    [`LockMap`] a stored value keeps its entry, too.)
//! 3. *No starvation.* Under the default policy no waiter that is polled starves: if it was woken four times without
//!    acquiring the key, the next suitable release hands it the key, before any newcomer. With the exceptions that
//!    [`Fairness`] lists, no key is reserved for a task that is not polled: every other request passes a task that was
//!    woken but is not polled. [`Fairness`] also has policies with a numeric bound. No clock is involved. (A bounded
//!    number of requests with a higher [priority](futures::Acquire::priority) may pass a waiter. Readers that call
//!    [`read_recursive`](KeyedRwLock::read_recursive) pass it without a bound, and can starve it.)
//! 4. *Phase fairness.* In a [`KeyedRwLock`], a waiting writer keeps later readers out (except a few: see
//!    [`Fairness`]), and when a writer leaves, all readers that are waiting at that moment get in before the next
//!    writer, unless that writer has a higher [priority](futures::Acquire::priority) than they have. When a writer
//!    gives up, the readers that it kept out get in. (Under `Fifo` only the order of arrival and of priorities counts,
//!    and `Barging` promises nothing.)
//! 5. *User code runs outside the internal locks.* Hashing, cloning and dropping keys, calling an observer, and waking,
//!    cloning and dropping wakers happen outside every internal lock, so all of them may use the table, and a waker may
//!    run its task inside `wake`. The exceptions, which must not use the table, are the key's `Equivalent` (or `Eq`);
//!    the [`to_key`](ToKey::to_key) of a key type that owns nothing (for which [`needs_drop`](::core::mem::needs_drop)
//!    is false); with [`recycle_keys(true)`](Builder::recycle_keys), [`to_key_into`](ToKey::to_key_into) and everything
//!    that it calls; and the clone of a value that owns nothing, as in [`LockMap::get`]. If user code panics, the panic
//!    reaches the caller, and the table stays usable. If a waker panics, the other waiters are still woken. (Wakers
//!    that run their tasks inside `wake` nest: each task that releases a key runs the next one inside its release, so a
//!    long chain of them needs a deep stack.)
//! 6. *No poisoning.* A panic while a key is held drops the guard, and the key is free.
//! 7. *Not reentrant.* A request for a key that the caller already holds waits: see [below](#re-entry).
//! 8. *Memory follows use.* The memory that a burst of keys took is freed as the keys are released, except for a
//!    bounded pool of free entries ([`Builder::pool_capacity`]). Entries are allocated in chunks of up to 16, and a key
//!    in use keeps its chunk: while one key in forty of a burst is still held, up to a third of the memory may remain.
//!    Waiters are allocated in pages of 64, and a long-lived waiter keeps its page.
//! 9. *No allocation on the fast path.* In steady state, acquiring and releasing a key does not allocate if the key
//!    owns nothing or is recycled ([`Builder::recycle_keys`]). Waiting, with or without a priority, allocates only in
//!    two cases: when more than two waiters may be woken at once (by a release, or because another waiter gave up), and
//!    when more than 64 requests wait at once. (A call for several keys allocates its lists, and a [detector](deadlock)
//!    its records.)
//!
//! # Cancel safety
//! Every future can be dropped at any moment: the table is then as if the request had never been made, and a key that
//! the future was already granted passes to the next waiter. So a lock future may be used in `select!`, under a
//! timeout, or in a task that may be aborted. There is one exception: an [`upgrade`](Guard::upgrade) takes over the
//! hold of the guard, so dropping its future before it has finished releases that hold.
//!
//! # Idle futures
//! Dropping a future is safe; *keeping* one without polling it is a trap, known as futurelock. Once a lock future has
//! been polled, it is a waiter in its key's queue, and it acquires the key only when it is polled again. If its task
//! does something else in the meantime that needs the same key, the task can deadlock with its own idle future.
//!
//! | | what happens |
//! |---|---|
//! | `select!` in a loop over `&mut lock` | While another branch's handler runs, the future is idle. Under every policy but the default and `Barging`, a handler that uses the same key may hang, at once or after some rounds. |
//! | `join_all`, or `zip`, of two lock futures for one key | The join keeps the first guard until it has the second, and the second future waits for that guard: the join hangs. This is [re-entry](#re-entry), not an idle future, and no policy helps. Futures that lock, work *and unlock* can be joined. |
//! | a stream of lock futures (`FuturesUnordered`, `buffered`) | The futures are idle between two polls of the stream, that is, while the body of the loop runs; and the body also holds a guard. A body that waits for the key of that guard hangs; a body that waits for another key of the stream may hang, as above. |
//! | a future in a struct, a channel, a variable | Idle until it is polled. Before its first poll it is not a waiter, and harmless. |
//!
//! How a waiter that is not polled affects others depends on the [policy](Fairness):
//! - [`Adaptive`](Fairness::Adaptive), the default: every other request passes it, for ever, so the code that forgot it
//!   can continue. But a wake-up that goes to it is wasted, and the waiters behind it have to wait for the next
//!   release. Moreover, a reader that was waiting when a writer left has been granted the key and holds it: see
//!   [`Fairness`].
//! - [`Barging`](Fairness::Barging): every newcomer passes it, for ever, but the waiters behind it are not woken in its
//!   place. A writer that leaves grants the key to no reader.
//! - [`Bounded(n)`](Fairness::Bounded): `n` later requests pass it. Then the key is reserved for it until it is polled
//!   or dropped. So tests may pass while production hangs.
//! - [`Fifo`](Fairness::Fifo): the first suitable release hands it the key, which stays with it until it is
//!   polled or dropped.
//!
//! Code that is correct under `Fifo` is correct under every policy, so write code that is correct under `Fifo`.
//!
//! Remedies:
//! - do not keep the future: give it to `select!` by value, so that it is dropped when another branch completes first;
//!   the next round makes a new request, at the end of the queue;
//! - drop the future before its task uses the key in another way;
//! - move the work to a task of its own, which locks with an owned form ([`lock_arc`](KeyedMutex::lock_arc)), works and
//!   unlocks;
//! - use [`until`](futures::Acquire::until) instead of a `select!` between the lock and a limit: it owns the future.
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
//! The locks are not reentrant. A holder that requests its key again waits for itself: an async or blocking call never
//! returns, and a `try_` call fails. This is true of readers, too: a reader that requests the key again may wait behind
//! a writer that waits for that reader. (Under the default policy sixteen requests pass that writer and the next one
//! hangs, so tests may pass.) Remedies:
//! - pass the guard, or a reference to it, down to the functions that need the key to be held;
//! - find the key once with [`handle`](KeyedMutex::handle), lock it in one place, and pass the handle to code that only
//!   needs the key;
//! - use a `try_` form, and treat failure as "held, perhaps by me";
//! - for readers alone: use [`read_recursive`](KeyedRwLock::read_recursive), which passes waiting writers, and can
//!   starve them;
//! - request the key through a [deadlock detector](deadlock), which reports a second request for a key as an error.
//!
//! If a program hangs, [`dump`](KeyedMutex::dump) shows the number of holders and waiters of each key, and how it is
//! held.
//!
//! A task that is suspended while it holds a guard keeps the key until the task is polled or dropped, and threads that
//! block on that key wait until then. Stop an executor only when its tasks have finished or been dropped.
//!
//! # Several keys
//! A caller that holds one key and requests a second can deadlock with a caller that takes them in the opposite order.
//! A call with `_many` in its name acquires all of its keys or none, and such calls on one table never wait for each
//! other in a cycle, in whatever order they name the keys, and however they read and write. Keys need no `Ord`: the
//! table has an order of its own.
//!
//! ```
//! use keylatch::KeyedMutex;
//!
//! let accounts = KeyedMutex::<String>::new();
//! // No transfer waits for ever, although another goes the opposite way.
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
//! | what you lock | what to call |
//! |---|---|
//! | one key at a time | [`lock`](KeyedMutex::lock) and the other forms |
//! | one key, again and again | a [`handle`](KeyedMutex::handle) |
//! | several keys of one table, known when the first is taken | [`lock_many`](KeyedMutex::lock_many), [`read_many`](KeyedRwLock::read_many), [`write_many`](KeyedRwLock::write_many), [`acquire_many`](KeyedSemaphore::acquire_many) |
//! | several keys of a [`Striped`] | [`write_many`](Striped::write_many) and its forms: a caller that holds one stripe and requests another in a separate call may wait for itself |
//! | several keys, some to read and others to write | [`read_write_many`](KeyedRwLock::read_write_many) |
//! | keys of several tables | one `_many` call for each table, and the tables in the same order everywhere |
//! | keys that become known only while others are held | a `try_` form for each further key, starting over if it fails; or a [detector](deadlock), which reports a deadlock instead of hanging |
//!
//! - A key that is named twice is acquired once; if it is in both lists of `read_write_many`, it is acquired for
//!   writing.
//! - The [policy](Fairness) applies to each key as it does in calls for a single key.
//! - While a call waits for one key, it holds the keys before it in the table's order, and other callers may wait for
//!   those. So its future must be polled or dropped, whatever the policy is. If you can, lock a hot key in a call of
//!   its own.
//! - A `try_` form that fails, a limit that is reached, a dropped future and a panic release the keys acquired so far.
//! - A caller that already holds a key and requests several more can still deadlock. Take all of them in one call, or
//!   make both requests through a [detector](deadlock), which tracks calls for several keys, too.
//!
//! # Seeing contention
//! [`status`](KeyedMutex::status) returns the holders and waiters of one key,
//! [`for_each_key`](KeyedMutex::for_each_key) those of all keys, and [`dump`](KeyedMutex::dump) prints them for a
//! person. An observer, set by [`Builder::on_wait`], is called whenever a request begins to wait, and when that wait
//! ends: use it to count, log or trace. It costs nothing while no request waits.
//!
//! # Poisoning
//! Locks are not poisoned. A panic while a key is held drops the guard, and the key is free. The data that the key
//! protects may then be half changed; if that matters, apply each change so that a panic cannot leave it half done.
//!
//! # Hashing
//! The key is hashed once per look-up: not at a release or a hand-off, and not when the table grows. A handle's key is
//! not hashed again. The table mixes the hash once more, so an identity hash is good enough. See
//! [`DefaultHashBuilder`] for the default, and for keys chosen by an adversary.
//!
//! `Hash`, `Eq` and `Equivalent` must agree, as for any hash table. If they do not, the wrong keys may exclude each
//! other; memory safety does not depend on them.
//!
//! # Versions
//! Each change of a value of a [`LockMap`] makes a new [`Version`]. A caller can read a value, compute with nothing
//! locked, and store the result only if the value has not changed since: one value, or a [`Batch`] of them, all or
//! nothing. See [its page](LockMap#versions).
//!
//! # Features
//! | feature | default | meaning |
//! |---|---|---|
//! | `std` | yes | blocking and timed calls (not on WebAssembly: there the crate builds without these calls); without it the crate is `no_std` and needs `alloc` |
//! | `portable-atomic` | no | targets without native compare-and-swap |
//! | `critical-section` | no | implies `portable-atomic`; internal locks become critical sections |
//! | `tracing` | no | `WaitEvent::trace`: an event of the `tracing` crate for each wait that begins or ends; needs a target with compare-and-swap |
//!
//! With `critical-section` a lock may be tried and released inside an interrupt handler. Without it, do not call into a
//! table from an interrupt handler (or a signal handler) that may have interrupted a call on the same table, nor use
//! any [`Latch`] or [`Striped`] if the handler may have interrupted a call on any of them: the handler would spin on a
//! lock whose holder it has interrupted.
//!
//! # When to use something else
//! - *One lock, or a handful known in advance:* if it protects a value, `RwLock<T>` of `async-lock` (for tasks and
//!   threads), `parking_lot` or `std`. A [`Latch`] has no value inside. It takes one word, follows a policy, has calls
//!   with a time limit, and, with `critical-section`, can be used by interrupt handlers.
//! - *A map of values that are only read and written for a moment:* a concurrent map (`dashmap`, `scc`) is just as
//!   good. A [`LockMap`] pays off if an entry is held for longer, perhaps by tasks, or if a change must depend on the
//!   value not having changed since it was read.
//! - *Many short critical sections, in threads only, where different keys may exclude each other:* an array of mutexes,
//!   indexed by the hash, is as good as a [`Striped`], and can have values inside.
//! - *A lock held by a person or a worker across requests and crashes, or seen by several processes or machines:* the
//!   locks of this crate live in one process. Use a lease: `keylatch-lease`, in memory, in SQLite, in a bucket, or on
//!   Postgres, Redis, etcd or NATS.
//!
//! # Implementation
//! The `core` module of the source has an overview: the life of an entry, which lock protects which state, and why no
//! wake-up is lost. Unsafe code is confined to one of its modules, `slot`, the memory of entries.
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Every item that needs a feature has its own `doc(cfg)`: by default rustdoc would also name the targets at every
// call, and the option that hides them differs between nightlies.
#![cfg_attr(docsrs, doc(auto_cfg = false))]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod acquire;
mod builder;
mod clock;
mod closable;
mod core;
#[cfg(target_has_atomic = "ptr")]
pub mod deadlock;
mod dump;
mod evicted;
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
mod stats;
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
    pub use crate::closable::UntilClosed;
    pub use crate::guards::ManyMode;
    pub use crate::latch::{LatchAcquire, LatchAcquireMany, LatchManyMode, LatchUpgrade};
    #[cfg(target_has_atomic = "ptr")]
    pub use crate::latch::{LatchAcquireArc, LatchUpgradeArc};
    pub use crate::locks::{
        AcquirePermit, Lock, MapRead, MapUpgradableRead, MapWrite, Read, UpgradableRead, WalkNext, Write,
    };
    #[cfg(target_has_atomic = "ptr")]
    pub use crate::locks::{
        AcquirePermitArc, LockArc, MapReadArc, MapUpgradableReadArc, MapWriteArc, ReadArc, UpgradableReadArc, WriteArc,
    };
    pub use crate::upgrade::{Upgrade, UpgradeMut};
}

/// Traits that abstract over tables: needed only in signatures that accept any table.
///
/// The traits are sealed, so the only tables are those of this crate.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use keylatch::table::TablePtr;
/// use keylatch::{Guard, KeyedMutex, KeyedRwLock, mode::Exclusive};
///
/// /// Accepts an exclusive guard of any table, borrowed or owned.
/// fn file_name<P: TablePtr<Key = String>>(held: &Guard<P, Exclusive>) -> String {
///     format!("{}.png", held.key())
/// }
///
/// let images = KeyedMutex::<String>::new();
/// assert_eq!(file_name(&images.try_lock("a").unwrap()), "a.png");
/// let pages = Arc::new(KeyedRwLock::<String>::new());
/// assert_eq!(file_name(&pages.try_write_arc("b").unwrap()), "b.png");
/// ```
///
/// # Lifetimes
/// Guards, [`Guards`], handles, and the futures of [`futures`] and of a [detector] are covariant in the lifetime for
/// which they borrow their table, and in the type of its keys (except those that borrow a guard or a walk mutably, such
/// as [`UpgradeMut`](crate::futures::UpgradeMut)): a guard of a `static` table fits into a struct with a lifetime, and
/// guards of two tables into one list.
///
/// ```
/// use keylatch::MutexGuard;
///
/// struct Job<'a> {
///     held: MutexGuard<'a, &'a str>,
///     name: &'a str,
/// }
///
/// fn job<'a>(held: MutexGuard<'static, &'static str>, name: &'a str) -> Job<'a> {
///     Job { held, name }
/// }
/// ```
///
/// They are invariant in the type of a map's values, like a `&mut`. That includes readers' guards, because all guards
/// of a map refer to it by the same type:
///
/// ```compile_fail
/// use keylatch::MapWriteGuard;
///
/// fn shorten<'a>(guard: MapWriteGuard<'a, u64, &'static str>) -> MapWriteGuard<'a, u64, &'a str> {
///     guard
/// }
/// ```
/// ```compile_fail
/// use keylatch::MapReadGuard;
///
/// fn shorten<'a>(guard: MapReadGuard<'a, u64, &'static str>) -> MapReadGuard<'a, u64, &'a str> {
///     guard
/// }
/// ```
///
/// A table and an owned guard are invariant in the type of the keys, because a call on the table can add a key:
///
/// ```compile_fail
/// use keylatch::KeyedMutex;
///
/// fn shorten<'a>(locks: &'a KeyedMutex<&'static str>) -> &'a KeyedMutex<&'a str> {
///     locks
/// }
/// ```
/// ```compile_fail
/// use keylatch::MutexGuardArc;
///
/// fn shorten<'a>(guard: MutexGuardArc<&'static str>) -> MutexGuardArc<&'a str> {
///     guard
/// }
/// ```
///
/// No lifetime can be lengthened:
///
/// ```compile_fail
/// use keylatch::MutexGuard;
///
/// fn lengthen<'a>(guard: MutexGuard<'a, u64>) -> MutexGuard<'static, u64> {
///     guard
/// }
/// ```
/// ```compile_fail
/// use keylatch::{KeyHandle, KeyedMutex};
///
/// fn lengthen<'a>(handle: KeyHandle<'a, KeyedMutex<u64>>) -> KeyHandle<'static, KeyedMutex<u64>> {
///     handle
/// }
/// ```
/// ```compile_fail
/// use keylatch::futures::Lock;
///
/// fn lengthen<'a>(future: Lock<'a, &'a str>) -> Lock<'a, &'static str> {
///     future
/// }
/// ```
/// ```compile_fail,E0597
/// use keylatch::KeyedMutex;
///
/// let locks = KeyedMutex::<&str>::new();
/// let guard = {
///     let word = String::from("a");
///     locks.lock_blocking(&word.as_str())
/// };
/// drop(guard);
/// ```
/// ```compile_fail,E0505
/// use keylatch::KeyedMutex;
///
/// let locks = KeyedMutex::<u64>::new();
/// let guard = locks.lock_blocking(&7);
/// drop(locks);
/// drop(guard);
/// ```
///
/// [`Guards`]: crate::Guards
/// [`futures`]: crate::futures
/// [detector]: crate::deadlock
pub mod table {
    pub use crate::locks::{IntoIter, MapKind, MutexKind, RwLockKind, SemaphoreKind};
    pub use crate::plumbing::{Kind, Map, ReaderWriter, Table, TablePtr, TableRef, TableTypes, TypesOf};
}

pub use self::{
    builder::{Builder, DefaultHashBuilder, MAX_CAPACITY, MAX_SHARDS},
    clock::{Clock, ManualClock},
    closable::{Closable, Closed},
    dump::Dump,
    evicted::Evicted,
    fairness::Fairness,
    guard::Guard,
    guards::Guards,
    handle::{Handle, KeyHandle},
    key::ToKey,
    latch::{
        Latch, LatchGuard, LatchGuards, LatchGuardsIter, LatchReadGuard, LatchUpgradableGuard, LatchWriteGuard,
        MAX_STRIPES, Striped, StripedBuilder,
    },
    locks::{
        AddOrUpdate, Batch, BatchConflict, Conflict, KeyedMutex, KeyedRwLock, KeyedSemaphore, LockMap, MAX_PERMITS,
        MAX_USERS, MapReadGuard, MapReadGuards, MapUpgradableGuard, MapWriteGuard, MapWriteGuards, MutexGuard,
        MutexGuards, PermitGuard, PermitGuards, ReadGuard, ReadGuards, TryBatchError, UpgradableGuard, ValueSlot,
        Version, Walk, WriteGuard, WriteGuards,
    },
    stats::Stats,
    status::Status,
    upgrade::Upgraded,
    wait_event::{WaitEvent, WaitId, WaitMode, WaitPhase},
};
#[cfg(target_has_atomic = "ptr")]
pub use self::{
    handle::KeyHandleArc,
    latch::{LatchGuardArc, LatchReadGuardArc, LatchUpgradableGuardArc, LatchWriteGuardArc},
    locks::{
        MapReadGuardArc, MapReadGuardsArc, MapUpgradableGuardArc, MapWriteGuardArc, MapWriteGuardsArc, MutexGuardArc,
        MutexGuardsArc, PermitGuardArc, PermitGuardsArc, ReadGuardArc, ReadGuardsArc, UpgradableGuardArc,
        WriteGuardArc, WriteGuardsArc,
    },
};
pub use equivalent::Equivalent;
