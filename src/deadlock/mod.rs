//! Deadlocks that are reported instead of suffered.
//!
//! Who takes one key, and then another while it holds the first, may wait for somebody who does it the other way round, for ever. The
//! best remedy is to take them at once: see [`lock_many`](crate::KeyedMutex::lock_many) and its like. Where that is not possible,
//! because the second key is known only when the first is held, a [`Detector`] sees the circle when it would close: that request
//! fails with a [`Deadlock`] that names who waits for what, and the program can release something and try again.
//!
//! It is opt-in. A [`Party`] is a line of work that takes several keys, such as a request or a task. What it acquires through
//! [`Party::acquire`] is tracked; all else goes on as ever, on the same tables, and pays nothing.
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
//!     a.unlock_fair(); // a way out: export goes on, and import tries again later
//!     waiting.join().unwrap().unwrap();
//! });
//! # drop(b);
//! ```
//!
//! # Trying again
//! Who has failed holds what it held, and gives it to those who wait before it asks again:
//!
//! ```
//! use keylatch::{KeyedMutex, deadlock::{Detector, Party}};
//!
//! async fn transfer(accounts: &KeyedMutex<String>, party: &Party, from: &str, to: &str) {
//!     loop {
//!         let first = party.acquire(accounts.lock(from)).await.expect("nobody waits for who holds nothing");
//!         match party.acquire(accounts.lock(to)).await {
//!             Ok(_second) => return, // both are held: now the money can move
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
//! [`unlock_fair`](Tracked::unlock_fair) matters: what is dropped plainly, as by `?`, is free for whoever asks first, and that is
//! most likely this loop, before a task that waits has run: it would fail again and again. Where there is no `unlock_fair`, as
//! for readers, or where `?` leaves the function, yield before the next attempt (`yield_now` of your runtime). The first request
//! of a party that holds nothing and waits for nothing never fails.
//!
//! # What is a deadlock
//! Let all holders who are not tracked, and all parties that do not wait, release everything; let the queues let in whom their
//! [policy](crate::Fairness) lets in; and again, until nothing changes. Who still waits is deadlocked. So this covers
//! readers and writers, upgrades, permits, and queues: a reader behind a writer who waits for that reader's own hold. In particular:
//! - A party waits if any of its requests does. (Of several that are under way it may want only the first: with `select!` an alarm
//!   may come too early.)
//! - A holder who is not tracked is taken to leave one day. There is no alarm because of it, and a circle through it is not
//!   seen. A *waiter* who is not tracked is followed to what it waits for, but has no link of its own in the report.
//!   Calls for several keys at once (`lock_many`) cannot be tracked: who holds a key and waits for one that such a call holds,
//!   while that waits for the first, waits for ever. Use one or the other on a table.
//! - A request with a limit counts like any other until the limit is reached, also where it would have gone away in time.
//! - Parties of another detector are not tracked by this one. Use one for all tables whose keys are taken together.
//!
//! # Who fails
//! The request that closes the circle, when it would begin to wait. It gives up its place, and nothing else changes: its party
//! holds what it held, and the others wait on. If a circle is closed by a party that gets in, or is going to, while another request of
//! it waits, that other request fails, and is woken. One request fails for each circle, and none without one.
//!
//! # Cost
//! Each tracked acquire takes a lock of the detector's when it ends, and at each step if it has to wait; so does each release.
//! Nothing of this is on the path of those who are not tracked.
//!
//! A request that begins to wait looks for a circle only if somebody may wait for its party. The search follows whom the party depends on,
//! and ends as soon as the party turns out to be free. Its time is in proportion to the waiters and holders that it meets, and the
//! detector's lock is held meanwhile: on the machine of `docs/performance.md` about 30 ns for each untracked waiter and 150 ns for each
//! tracked one. So a party that others wait for, and that queues behind 7,000 tracked waiters, keeps other parties from their next tracked
//! step for a millisecond.
//!
//! The module needs [`Arc`], so it is there where the target has compare-and-swap of pointers.

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

/// Sees when parties would wait for each other in a circle. See the [module](self).
///
/// One is enough for all tables, of whatever types. Clones are the same detector.
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
    /// A detector that knows nobody.
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

    /// A line of work that takes several keys: a request, a task, a thread. Its name is for the reports; it need not be the only
    /// one of that name.
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
/// It may have several requests under way at once. These must not wait for each other: two threads, or tasks, of which one may
/// wait for the other need a party each. When it is dropped what it has acquired stays tracked, under its name, until it is
/// released.
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

/// A party, for as long as anything of it is there.
struct Member {
    shared: Arc<Shared>,
    name: Cow<'static, str>,
    index: u32,
}

impl Party {
    /// What it is called in reports.
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
        // The name is dropped outside.
        let _name = self.shared.registry.with(|registry| registry.remove_party(self.index));
    }
}

/// A record of a party's. While it is there the detector knows of what it is about; it goes when this is dropped.
struct Record {
    member: Arc<Member>,
    /// `NONE` when there is none (any more).
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

    /// Of a hold that the party has got.
    #[inline]
    fn of_hold(member: Arc<Member>, entry: Identity, access: Access) -> Self {
        let mut record = Record::none(member);
        record.holds(entry, access);
        record
    }

    /// The hold is there, and whatever waited for it waits no more. If that closes circles, it is seen to that the requests that fail are woken.
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

    /// What is held has become more, or less.
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
            // It has a waker, which is dropped outside.
            let _wait: Option<Box<Wait>> = self.with(|registry| registry.remove(self.index));
        }
    }
}
