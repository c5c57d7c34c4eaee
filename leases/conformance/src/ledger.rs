//! Owners that work under leases while something happens to their server, and the ledger of their work.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use futures_lite::future::block_on;
use keylatch_lease::{AcquireError, Fence, Grant, Leases, Owner, RenewError, Resource, Token, engine::Engine};

use crate::{
    history::{Sure, no_overlap},
    trial::Random,
};

/// The resources that the owners work on. With two clients or more, there are fewer of them than there are owners.
const RESOURCES: [&str; 3] = ["door", "form", "till"];

/// The number of tenures of each resource that must follow the trouble.
const AFTER: usize = 3;

/// The longest time to wait for a number of tenures. An engine that takes longer has not recovered.
const PATIENCE: Duration = Duration::from_secs(50);

/// The record of owners that worked under leases while something happened to their server.
///
/// Each client has two owners, each on a thread of its own. An owner acquires one of three resources, writes to a store
/// behind a fence, renews, and releases. One tenure in six is abandoned: its owner neither renews nor releases it, and
/// relies on it until it ends or the owner requests the resource again. Whenever an owner writes to a resource in a new
/// tenure, it also sends a late write, with the token of its previous tenure.
///
/// The ledger contains the time during which each owner relied on each lease: from the answer until the owner released
/// the lease or learned of its loss, or until the lease's deadline by the owner's own clock.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease::Leases;
/// use keylatch_lease_conformance::Ledger;
///
/// let ttl = Duration::from_millis(100);
/// let leases = Leases::in_memory();
/// let ledger = Ledger::keep(&[&leases], ttl, |progress| progress.more(20)); // nothing happens to this engine
/// assert_eq!(ledger.verdict(), Ok(()));
///
/// // Two servers that do not know of each other grant each resource twice.
/// let (one, other) = (Leases::in_memory(), Leases::in_memory());
/// let ledger = Ledger::keep(&[&one, &other], ttl, |progress| progress.more(50));
/// assert!(ledger.verdict().is_err());
/// ```
#[derive(Debug)]
pub struct Ledger {
    holds: Vec<Sure>,
    counts: Counts,
    wrong: Vec<String>,
}

/// The numbers of events.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    tenures: usize,
    renewals: usize,
    writes: usize,
    late_writes: usize,
    quarantined: usize,
    failed: usize,
    lost: usize,
}

/// The progress of a [`Ledger`]'s owners, for the code that makes trouble in the meantime.
#[derive(Debug)]
pub struct Progress<'a> {
    desk: &'a Desk,
}

/// The state that all owners share.
#[derive(Debug)]
struct Desk {
    start: Instant,
    is_over: AtomicBool,
    /// The number of tenures of each resource.
    begun: [AtomicUsize; RESOURCES.len()],
    fence: Fence,
    /// The owner of each token that the fence has admitted.
    writers: Mutex<HashMap<(Resource, Token), Owner>>,
    ledger: Mutex<Ledger>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// Lets two owners of each client work until three tenures have begun, then while `trouble` runs, and then until
    /// each resource has had three more tenures. The clients must be connected to one namespace, as separate processes
    /// would be. A failed attempt is repeated.
    ///
    /// # Panics
    /// If the first three tenures, or the last three of a resource, take longer than 50 s, or an owner panics.
    ///
    /// # Blocking
    /// Blocks until the work has ended.
    ///
    /// # Examples
    /// See [`Ledger`].
    pub fn keep<E: Engine>(clients: &[&Leases<E>], ttl: Duration, trouble: impl FnOnce(&Progress<'_>)) -> Self {
        let desk = Desk {
            start: Instant::now(),
            is_over: AtomicBool::new(false),
            begun: [const { AtomicUsize::new(0) }; RESOURCES.len()],
            fence: Fence::new(),
            writers: Mutex::default(),
            ledger: Mutex::new(Ledger { holds: Vec::new(), counts: Counts::default(), wrong: Vec::new() }),
        };
        thread::scope(|scope| {
            let stop = Stop(&desk.is_over); // stops the owners even if the trouble panics
            for (number, &leases) in clients.iter().chain(clients).enumerate() {
                let desk = &desk;
                scope.spawn(move || {
                    let _stop = Stop(&desk.is_over); // if this owner panics, nobody waits for more tenures
                    let owner = Owner::named(format!("worker {number}"));
                    let random = Random(1 + number as u64);
                    Hand { leases, ttl, owner, desk, random, abandoned: HashMap::new(), last: HashMap::new() }.work();
                });
            }
            let progress = Progress { desk: &desk };
            progress.more(RESOURCES.len());
            trouble(&progress);
            let before: Vec<_> = desk.begun.iter().map(|begun| begun.load(SeqCst)).collect();
            for (begun, before) in desk.begun.iter().zip(before) {
                desk.until(|| begun.load(SeqCst) >= before + AFTER);
            }
            drop(stop);
        });
        desk.ledger.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether the leases were kept.
    ///
    /// # Errors
    /// Returns a text that says what is wrong: two owners relied on one resource at the same time; a token was not
    /// greater than an earlier one, or had two owners; or the fence refused a write of an owner that relied on its
    /// lease.
    ///
    /// # Examples
    /// See [`Ledger`].
    pub fn verdict(&self) -> Result<(), String> {
        match self.wrong.first() {
            Some(wrong) => Err(wrong.clone()),
            None => no_overlap(&self.holds),
        }
    }

    /// Returns the number of requests that were refused because of a quarantine.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use keylatch_lease::Leases;
    /// # use keylatch_lease_conformance::Ledger;
    /// let leases = Leases::in_memory();
    /// let ledger = Ledger::keep(&[&leases], Duration::from_millis(100), |_| ());
    /// assert_eq!(ledger.quarantined(), 0); // the engine in memory has no quarantine
    /// ```
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.counts.quarantined
    }
}

/// Writes the numbers of events, and the verdict.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { tenures, renewals, writes, late_writes, quarantined, failed, lost } = self.counts;
        write!(
            f,
            "{tenures} tenures, {renewals} renewals, {lost} leases lost, {writes} writes and {late_writes} late ones, which the \
             fence refused; {quarantined} requests refused in a quarantine, {failed} failed; "
        )?;
        match self.verdict() {
            Ok(()) => f.write_str("one holder at a time"),
            Err(wrong) => write!(f, "WRONG: {wrong}"),
        }
    }
}

impl Progress<'_> {
    /// Waits until this many more tenures have begun, or an owner has panicked.
    ///
    /// # Panics
    /// If it takes longer than 50 s.
    ///
    /// # Examples
    /// See [`Ledger`].
    pub fn more(&self, tenures: usize) {
        let begun = || self.desk.begun.iter().map(|begun| begun.load(SeqCst)).sum::<usize>();
        let before = begun();
        self.desk.until(|| begun() >= before + tenures);
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Desk {
    fn until(&self, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() && !self.is_over.load(SeqCst) {
            assert!(start.elapsed() < PATIENCE, "the engine has not recovered: {}", lock(&self.ledger));
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn counts(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut lock(&self.ledger).counts);
    }

    fn is_wrong(&self, what: String) {
        lock(&self.ledger).wrong.push(what);
    }
}

/// An owner at work.
struct Hand<'a, E: Engine> {
    leases: &'a Leases<E>,
    ttl: Duration,
    owner: Owner,
    desk: &'a Desk,
    random: Random,
    /// Leases that the owner still relies on, without renewing or releasing them.
    abandoned: HashMap<&'static str, Tenure>,
    /// The token of the last tenure of each resource that the owner had and did not lose.
    last: HashMap<&'static str, Token>,
}

/// A lease that the owner relies on.
struct Tenure {
    grant: Grant,
    sure: Sure,
    /// The end of the lease by the holder's own clock.
    deadline: Duration,
}

impl<E: Engine> Hand<'_, E> {
    fn now(&self) -> Duration {
        self.desk.start.elapsed()
    }

    fn work(mut self) {
        while !self.desk.is_over.load(SeqCst) {
            let at = usize::try_from(self.random.next(RESOURCES.len() as u64)).unwrap_or(0);
            let name = RESOURCES[at];
            if let Some(mut abandoned) = self.abandoned.remove(name) {
                if self.relies(&mut abandoned) && self.random.next(8) != 0 {
                    self.abandoned.insert(name, abandoned);
                    self.pause(5);
                    continue;
                }
                // The request may end the tenure, so the owner no longer relies on it.
                self.ends(abandoned);
            }
            match self.leases.acquire_for(name, &self.owner, self.ttl, Duration::from_millis(100)) {
                Ok(grant) => {
                    let now = self.now();
                    let sure = Sure { resource: grant.resource().clone(), token: grant.token(), from: now, until: now };
                    let mut tenure = Tenure { grant, sure, deadline: now };
                    // If the answer came too late, there is nothing to rely on.
                    if self.relies(&mut tenure) {
                        self.desk.counts(|counts| counts.tenures += 1);
                        self.desk.begun[at].fetch_add(1, SeqCst);
                        self.use_it(name, tenure);
                    }
                }
                Err(AcquireError::Limit { .. }) => {}
                Err(error) => {
                    let is_quarantined = matches!(error, AcquireError::Quarantined { .. });
                    self.desk.counts(|counts| match is_quarantined {
                        true => counts.quarantined += 1,
                        false => counts.failed += 1,
                    });
                    self.pause(20);
                }
            }
        }
        for (_, tenure) in std::mem::take(&mut self.abandoned) {
            self.ends(tenure);
        }
    }

    fn pause(&mut self, longest: u64) {
        thread::sleep(Duration::from_millis(self.random.next(longest)));
    }

    /// Records that the owner no longer relies on a lease.
    fn ends(&self, Tenure { mut sure, deadline, .. }: Tenure) {
        sure.until = deadline.min(self.now());
        lock(&self.desk.ledger).holds.push(sure);
    }

    /// Returns whether the lease is valid by the holder's own clock.
    fn relies(&self, tenure: &mut Tenure) -> bool {
        let now = self.now();
        let left = self.leases.remaining(&tenure.grant).unwrap_or(self.ttl);
        if !left.is_zero() {
            tenure.deadline = now + left;
        }
        !left.is_zero()
    }

    fn use_it(&mut self, name: &'static str, mut tenure: Tenure) {
        for _ in 0..=self.random.next(5) {
            self.write(name, &mut tenure);
            self.pause(8);
            if self.random.next(3) == 0 {
                match block_on(self.leases.renew(&tenure.grant)) {
                    Ok(grant) => {
                        tenure.grant = grant;
                        self.desk.counts(|counts| counts.renewals += 1);
                    }
                    Err(RenewError::Lost(_)) => {
                        self.desk.counts(|counts| counts.lost += 1);
                        return self.ends(tenure);
                    }
                    Err(_) => self.desk.counts(|counts| counts.failed += 1),
                }
            }
            if !self.relies(&mut tenure) {
                return self.ends(tenure);
            }
        }
        self.last.insert(name, tenure.grant.token());
        if self.random.next(6) == 0 {
            self.abandoned.insert(name, tenure);
            return;
        }
        let grant = tenure.grant.clone();
        self.ends(tenure);
        // If the release fails, the lease expires, or the owner's next request resumes it.
        drop(block_on(self.leases.release(&grant)));
    }

    /// Writes to the store under the lease, and once more with the token of the owner's previous tenure, if any.
    fn write(&mut self, name: &'static str, tenure: &mut Tenure) {
        let (resource, token) = (tenure.sure.resource.clone(), tenure.sure.token);
        if self.desk.fence.admit(&resource, token).is_err() {
            if self.relies(tenure) {
                self.desk.is_wrong(format!(
                    "{} relies on its lease of {resource}, but the fence has seen a greater token than {token}",
                    self.owner
                ));
            }
            return;
        }
        self.desk.counts(|counts| counts.writes += 1);
        let writer =
            lock(&self.desk.writers).entry((resource.clone(), token)).or_insert_with(|| self.owner.clone()).clone();
        if writer != self.owner {
            self.desk.is_wrong(format!("{writer} and {} have the token {token} of {resource}", self.owner));
        }
        if let Some(last) = self.last.get(name).copied().filter(|&last| last != token) {
            self.desk.counts(|counts| counts.late_writes += 1);
            if self.desk.fence.admit(&resource, last).is_ok() {
                self.desk.is_wrong(format!("the fence has admitted {last} of {resource} after {token}"));
            }
        }
    }
}
