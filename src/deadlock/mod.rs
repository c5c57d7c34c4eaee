//! Detection of deadlocks: a request that would complete a cycle of waits fails with a report.
//!
//! A caller that holds one key while it acquires another may wait for ever for a caller that acquires them in the
//! opposite order. The best remedy is to acquire both in one call: see [`lock_many`](crate::KeyedMutex::lock_many) and
//! the other `_many` calls. If that is impossible, because the second key becomes known only while the first is held, a
//! [`Detector`] finds the request that would complete a cycle of waits. That request fails with a [`Deadlock`], which
//! names each party and the key it waits for, and the program can release a key and try again.
//!
//! Detection is opt-in. A [`Party`] is a line of work that takes several keys, such as a request or a task. Its
//! requests through [`Party::acquire`] are tracked; all other requests, on the same tables, work as before and pay
//! nothing.
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
//! [`unlock_fair`](Tracked::unlock_fair) matters: if the guard is merely dropped, as by `?`, the key goes to the first
//! request that finds it free. That is most likely the next one of this loop, because a waiting task has to be
//! scheduled first. So the loop would fail again and again. If the guard is dropped by `?`, yield before the next
//! attempt (`yield_now` of your runtime). A request for one key never fails if its party holds nothing and has no other
//! waiting request. (A request for several keys may, because it waits for one while it holds another.)
//!
//! # Definition of a deadlock
//! Suppose that all untracked holders, and all parties that do not wait, release everything; that the queues then admit
//! waiters as their [policy](crate::Fairness) says; and that this is repeated until nothing changes. The parties that
//! still wait are deadlocked. This covers readers and writers, upgrades, permits, and queues (for example, a reader
//! behind a writer that waits for a hold of the reader's own party). In particular:
//! - A party waits if any of its requests does. (If it needs only one of several, as with `select!`, the report may be
//!   premature.)
//! - An untracked holder is assumed to release its key eventually. It causes no report, and a cycle through it is not
//!   found. An untracked *waiter* is followed to the holders that it waits for, but has no link of its own in the
//!   report. (An untracked call for several keys that waits for one of them counts as an untracked holder of the
//!   keys before that one.) A guard that was acquired without the detector can be [adopted](Party::adopt).
//! - Waiters that a request passes by its [priority](crate::futures::Acquire::priority) wait for it, too. But if an
//!   untracked request passes a tracked one, and so completes a cycle, no request fails until a party of the cycle
//!   makes another one.
//! - A request with a limit counts like any other until the limit is reached, even if it would have given up in time.
//! - Parties of another detector are not tracked by this one. Use one detector for all tables whose keys are held
//!   together.
//!
//! # The request that fails
//! A request that would complete a cycle fails when it would begin to wait. It leaves the queue, and nothing else
//! changes: its party keeps its holds, and the other parties continue to wait. If a party completes a cycle by
//! acquiring a key, or by being granted one, while another of its requests waits, then that other request fails and is
//! woken. One request fails for each cycle; without a cycle no request fails.
//!
//! A request for several keys (`lock_many`) acquires them one after another. When it fails, it releases those that it
//! has acquired. Such requests never complete a cycle with each other. They may complete one with a party that acquires
//! keys one by one, or with holds that their own parties had before.
//!
//! # Looking
//! If a program hangs and no request has failed, [`Detector::dump`] shows what each party holds, and what it waits for.
//! Perhaps a holder waits for something that is not a lock. A detector that [names its
//! holders](DetectorBuilder::name_holders) also records when, from which source line and with which label each key was
//! acquired. It includes these data in its reports, and can [report long holds](DetectorBuilder::on_long_hold).
//!
//! # Cost
//! Each tracked acquire takes the detector's lock when it ends, and at each step if it has to wait. Each release takes
//! it, too. Untracked requests do none of this.
//!
//! A request that begins to wait looks for a cycle only if another request may wait for its party. The search follows
//! the party's dependencies and ends as soon as the party turns out to be able to proceed. It holds the detector's
//! lock, and takes time proportional to the number of waiters and holders that it visits: on the machine of
//! `docs/performance.md`, about 30 ns for each untracked waiter and 150 ns for each tracked one. So a party that others
//! wait for, and that queues behind 7,000 tracked waiters, keeps other parties from their next tracked step for a
//! millisecond.
//!
//! The module needs [`Arc`], so it exists only on targets with pointer-sized compare-and-swap.

mod acquire;
mod adopt;
mod builder;
mod dump;
mod holder;
mod many;
mod one;
mod record;
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
use alloc::sync::Arc;
use core::fmt;

pub use self::acquire::{Trackable, TrackedAcquire, TrackedRequest};
pub use self::adopt::Adoptable;
pub use self::builder::DetectorBuilder;
pub use self::dump::{DetectorDump, HoldDump, PartyDump, WaitDump};
pub use self::holder::{HoldEvent, Holder};
pub use self::report::{Deadlock, Link, Refused};
pub use self::tracked::{Tracked, TrackedIntoIter, TrackedMany};
pub use self::upgrade::TrackedUpgrade;

use self::record::{Member, Shared};

/// Finds cycles of waits between its parties. See the [module](self).
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
#[derive(Clone)]
pub struct Detector {
    shared: Arc<Shared>,
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

    /// Returns a list of each party's holds and waits, as text and as data. Use it if a program hangs although no
    /// deadlock was reported.
    ///
    /// The list shows the parties that hold or wait for anything, in the order of their registration, except that a new
    /// party may take the place of one that is gone. It is a snapshot of one instant, because the call takes the
    /// detector's lock.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// # futures_lite::future::block_on(async {
    /// let (files, detector) = (KeyedMutex::<String>::new(), Detector::new());
    /// let (import, export) = (detector.party("import"), detector.party("export"));
    /// let a = import.acquire(files.lock("a")).await.unwrap();
    /// let mut waiting = export.acquire(files.lock("a"));
    /// assert!(futures_lite::future::poll_once(&mut waiting).await.is_none());
    ///
    /// assert_eq!(detector.dump().to_string(), "\
    /// import
    ///   holds \"a\" (write)
    /// export
    ///   waits for \"a\" (write), which import holds
    /// ");
    /// # drop((a, waiting));
    /// # });
    /// ```
    #[must_use]
    pub fn dump(&self) -> DetectorDump {
        self.shared.registry.with(DetectorDump::of)
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
