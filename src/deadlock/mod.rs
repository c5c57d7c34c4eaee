//! Detection of deadlocks: a request that would close a circle of waits fails with a report.
//!
//! A caller that holds one key while it acquires another may wait for ever for a caller that acquires them in the
//! opposite order. The best remedy is to acquire both in one call: see [`lock_many`](crate::KeyedMutex::lock_many) and
//! the other `_many` calls. If that is impossible, because the second key becomes known only while the first is held, a
//! [`Detector`] finds the request that would close a circle of waits. That request fails with a [`Deadlock`], which
//! names each party and the key it waits for, and the program can release a key and try again.
//!
//! It is opt-in. A [`Party`] is a line of work that takes several keys, such as a request or a task. Its requests through
//! [`Party::acquire`] are tracked; all other requests, on the same tables, work as before and pay nothing.
//!
//! # Examples
//! ```
//! use keylatch::{KeyedMutex, deadlock::Detector};
//!
//! let (files, detector) = (KeyedMutex::<String>::new(), Detector::new());
//! let (import, export) = (detector.party("import"), detector.party("export"));
//!
//! let a = import.acquire_blocking(files.lock("a")).unwrap();
//! let b = export.acquire_blocking(files.lock("b")).unwrap();
//! std::thread::scope(|scope| {
//!     let waiting = scope.spawn(|| export.acquire_blocking(files.lock("a")).map(drop));
//!     # while files.status("a").unwrap().waiters() == 0 { std::thread::yield_now() }
//!     let deadlock = import.acquire_blocking(files.lock("b")).unwrap_err();
//!     assert_eq!(
//!         deadlock.to_string(),
//!         "import waits for \"b\", which export holds; export waits for \"a\", which import holds"
//!     );
//!     a.unlock_fair(); // lets export continue; import tries again later
//!     waiting.join().unwrap().unwrap();
//! });
//! # drop(b);
//! ```
//!
//! # Trying again
//! After a failure the party still holds its keys. It should hand them over to the waiters before it tries again:
//!
//! ```
//! use keylatch::{KeyedMutex, deadlock::{Detector, Party}};
//!
//! async fn transfer(accounts: &KeyedMutex<String>, party: &Party, from: &str, to: &str) {
//!     loop {
//!         let first = party.acquire(accounts.lock(from)).await.expect("a party that holds nothing cannot deadlock");
//!         match party.acquire(accounts.lock(to)).await {
//!             Ok(_second) => return, // both are held: transfer the money
//!             Err(_deadlock) => first.unlock_fair(),
//!         }
//!     }
//! }
//! # futures_lite::future::block_on(async {
//! # let party = Detector::new().party("transfer");
//! # transfer(&KeyedMutex::new(), &party, "alice", "bob").await;
//! # });
//! ```
//!
//! [`unlock_fair`](Tracked::unlock_fair) matters: if the guard is merely dropped, as by `?`, the key is free for the
//! first request, which is most likely the one of this loop, before a waiting task has run; so the loop would fail
//! again and again. If the guard has no `unlock_fair`, as for readers, or if `?` leaves the function, yield before the
//! next attempt (`yield_now` of your runtime). A request of a party that holds nothing and has no other waiting request
//! never fails.
//!
//! # Definition of a deadlock
//! Suppose that all untracked holders, and all parties that do not wait, release everything, and that the queues then admit waiters as
//! their [policy](crate::Fairness) says; and that this repeats until nothing changes. The parties that still wait are deadlocked. This
//! covers readers and writers, upgrades, permits, and queues: a reader behind a writer that waits for that reader's own hold. In particular:
//! - A party waits if any of its requests does. (If it needs only one of several, as with `select!`, the report may be
//!   premature.)
//! - An untracked holder is assumed to release its key eventually. It causes no report, and a circle through it is not
//!   found. An untracked *waiter* is followed to the key that it waits for, but has no link of its own in the report.
//!   Calls for several keys at once (`lock_many`) cannot be tracked: a party and such a call that wait for each other's
//!   keys wait for ever. Use one or the other on a table.
//! - A request with a limit counts like any other until the limit is reached, even if it would have given up in time.
//! - Parties of another detector are not tracked by this one. Use one detector for all tables whose keys are held
//!   together.
//!
//! # The request that fails
//! A request that would close a circle fails when it would begin to wait. It leaves the queue, and nothing else
//! changes: its party keeps its holds, and the other parties continue to wait. If a party closes a circle by acquiring
//! a key, or by being granted one, while another of its requests waits, then that other request fails and is woken. One
//! request fails for each circle; without a circle no request fails.
//!
//! # Cost
//! Each tracked acquire takes the detector's lock when it ends, and at each step if it has to wait; so does each release.
//! Untracked requests do none of this.
//!
//! A request that begins to wait looks for a circle only if another request may wait for its party. The search follows
//! the party's dependencies and ends as soon as the party turns out to be able to proceed. Its time is proportional to
//! the number of waiters and holders that it visits, and it holds the detector's lock: on the machine of
//! `docs/performance.md` about 30 ns for each untracked waiter and 150 ns for each tracked one. So a party that others
//! wait for, and that queues behind 7,000 tracked waiters, keeps other parties from their next tracked step for a
//! millisecond.
//!
//! The module needs [`Arc`], so it exists only on targets with pointer-sized compare-and-swap.

mod registry;
mod report;
mod search;
#[cfg(test)]
mod search_tests;
mod step;
mod tracked;
mod upgrade;
mod value;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::task::Waker;

pub use self::report::{Deadlock, Link, Refused};
pub use self::tracked::{Tracked, TrackedAcquire};
pub use self::upgrade::TrackedUpgrade;

use self::registry::{Registry, Wait};
use crate::core::slab::NONE;
use crate::core::{Access, Identity};
use crate::panics::run_all;
use crate::sync::Lock;

/// Finds circles of waits between its parties. See the [module](self).
///
/// One detector serves tables of any types. Clones share the same detector.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, KeyedRwLock, deadlock::Detector};
///
/// let (users, pages) = (KeyedMutex::<u64>::new(), KeyedRwLock::<String>::new());
/// let detector = Detector::new();
/// let party = detector.party("GET /");
/// let user = party.acquire_blocking(users.lock(&7)).unwrap();
/// let page = party.acquire_blocking(pages.read("home")).unwrap();
/// assert_eq!((user.key(), page.key()), (&7, &"home".to_string()));
/// ```
#[derive(Clone, Default)]
pub struct Detector {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Lock<Registry>,
}

impl Default for Shared {
    fn default() -> Self {
        Shared { registry: Lock::new(Registry::default()) }
    }
}

impl Detector {
    /// Makes a detector without parties.
    ///
    /// # Examples
    /// ```
    /// let detector = keylatch::deadlock::Detector::new();
    /// let party = detector.party("import");
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a party: a line of work that takes several keys, such as a request, a task or a thread. Its name appears
    /// in reports, and need not be unique.
    ///
    /// # Examples
    /// ```
    /// let detector = keylatch::deadlock::Detector::new();
    /// let parties = [detector.party("import"), detector.party(format!("worker {}", 3))];
    /// assert_eq!(parties[1].name(), "worker 3");
    /// ```
    #[must_use]
    pub fn party(&self, name: impl Into<Cow<'static, str>>) -> Party {
        let name = name.into();
        let index = self.shared.registry.with(|registry| registry.add_party(name.clone()));
        Party { member: Arc::new(Member { shared: Arc::clone(&self.shared), name, index }) }
    }
}

impl fmt::Debug for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detector").finish_non_exhaustive()
    }
}

/// A line of work that takes several keys.
///
/// It may have several requests at once, but these must not wait for each other: if one thread or task may wait for
/// another, each needs its own party. After the party is dropped, its holds stay tracked, under its name, until they
/// are released.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, deadlock::Detector};
///
/// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
/// let party = detector.party("import");
/// let first = party.acquire_blocking(locks.lock(&7)).unwrap();
/// let second = party.acquire_blocking(locks.lock(&8)).unwrap();
/// # drop((first, second));
/// ```
pub struct Party {
    member: Arc<Member>,
}

/// The party's registration, which lives as long as the party or any of its requests or holds.
struct Member {
    shared: Arc<Shared>,
    name: Cow<'static, str>,
    index: u32,
}

impl Party {
    /// Returns the party's name in reports.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(keylatch::deadlock::Detector::new().party("import").name(), "import");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.member.name
    }
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Party").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // The name is dropped outside the lock.
        let _name = self.shared.registry.with(|registry| registry.remove_party(self.index));
    }
}

/// The detector's record of a hold or a wait of a party. Dropping this removes the record.
struct Record {
    member: Arc<Member>,
    /// `NONE` if there is no record.
    index: u32,
}

impl Record {
    fn none(member: Arc<Member>) -> Self {
        Record { member, index: NONE }
    }

    #[inline]
    fn is_some(&self) -> bool {
        self.index != NONE
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Registry) -> R) -> R {
        self.member.shared.registry.with(f)
    }

    /// Makes the record of a hold that the party has acquired.
    #[inline]
    fn of_hold(member: Arc<Member>, entry: Identity, access: Access) -> Self {
        let mut record = Record::none(member);
        record.holds(entry, access);
        record
    }

    /// Records the hold, whose request no longer waits. If the hold closes circles, the requests that fail are woken.
    #[inline]
    fn holds(&mut self, entry: Identity, access: Access) {
        let mut wakers = Vec::new();
        let party = self.member.index;
        let index = self.member.shared.registry.with(|registry| {
            let index = registry.add_hold(party, entry, access);
            if registry.waits(party) {
                registry.got_in(party, &mut wakers);
            }
            index
        });
        self.index = index;
        if !wakers.is_empty() {
            wake(wakers);
        }
    }

    /// Records a new number of held permits.
    fn set_access(&self, access: Access) {
        let mut wakers = Vec::new();
        self.with(|registry| {
            registry.set_access(self.index, access);
            registry.got_in(self.member.index, &mut wakers);
        });
        wake(wakers);
    }
}

fn wake(wakers: Vec<Waker>) {
    if !wakers.is_empty() {
        run_all(wakers.into_iter().map(|waker| || waker.wake()));
    }
}

impl Drop for Record {
    #[inline]
    fn drop(&mut self) {
        if self.is_some() {
            // It contains a waker, which is dropped outside the lock.
            let _wait: Option<Box<Wait>> = self.with(|registry| registry.remove(self.index));
        }
    }
}
