//! The report of a deadlock.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::holder::Holder;

/// A cycle of parties that wait for each other: the error of the request that would have completed it.
///
/// Only this request has failed: its party keeps its holds, and the other parties continue to wait. The party should
/// release a key that they wait for, and may then try again: see [trying again](super#trying-again).
///
/// `Display` writes one sentence.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, deadlock::Detector};
///
/// let (locks, detector) = (KeyedMutex::<String>::new(), Detector::new());
/// let import = detector.party("import");
/// let held = import.acquire_blocking(locks.lock("b")).unwrap();
///
/// let deadlock = import.acquire_blocking(locks.lock("b")).unwrap_err();
/// assert_eq!(deadlock.to_string(), "import waits for \"b\", which import holds");
/// # drop(held);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Deadlock {
    pub(super) cycle: Vec<Link>,
    pub(super) reentry: bool,
}

/// One wait of a cycle: a party, and the key that it waits for.
///
/// # Examples
/// See [`Deadlock::cycle`].
#[derive(Clone, PartialEq, Eq)]
pub struct Link {
    pub(super) party: Cow<'static, str>,
    pub(super) key: String,
    pub(super) table: &'static str,
    pub(super) reason: Reason,
    pub(super) holder: Option<Holder>,
}

/// The reason why a party waits for the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// The next party holds the key.
    Holds,
    /// The next party waits for the same key, and goes before this one.
    WaitsBefore,
}

impl Deadlock {
    /// Returns the waits that make up the cycle, beginning with the request that failed. If there are several cycles,
    /// it is a shortest one.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// let party = detector.party("import");
    /// let held = party.acquire_blocking(locks.lock(&7)).unwrap();
    /// let deadlock = party.acquire_blocking(locks.lock(&7)).unwrap_err();
    ///
    /// let [link] = deadlock.cycle() else { panic!() };
    /// assert_eq!((link.party(), link.key()), ("import", "7"));
    /// assert!(link.table().contains("KeyedMutex"));
    /// # drop(held);
    /// ```
    #[must_use]
    pub fn cycle(&self) -> &[Link] {
        &self.cycle
    }

    /// Returns whether the party already holds the key that it requests (not counting a hold that it wants to upgrade),
    /// or has an earlier request for the same key that keeps the new one out. Another party may be in between: for
    /// example, a writer that waits for this party's hold, with the new request behind it. A party may legitimately
    /// hold some permits of a semaphore and request more. The result is `true` in that case, too, and the
    /// [cycle](Self::cycle) shows whether other parties are involved.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// let party = detector.party("import");
    /// let held = party.acquire_blocking(locks.lock(&7)).unwrap();
    /// assert!(party.acquire_blocking(locks.lock(&7)).unwrap_err().is_reentry());
    /// # drop(held);
    /// ```
    #[must_use]
    pub fn is_reentry(&self) -> bool {
        self.reentry
    }
}

impl Link {
    /// Returns the name of the party that waits.
    ///
    /// # Examples
    /// See [`Deadlock::cycle`].
    #[must_use]
    pub fn party(&self) -> &str {
        &self.party
    }

    /// Returns the key that the party waits for, as its `Debug` shows it.
    ///
    /// # Examples
    /// See [`Deadlock::cycle`].
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns when, from which source line and with which label the next party acquired the key, if it holds the key
    /// and the detector [names its holders](super::DetectorBuilder::name_holders).
    ///
    /// # Examples
    /// See [`Holder`].
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Returns the type of the key's table, as [`core::any::type_name`] names it; for a latch, `keylatch::Latch`.
    ///
    /// # Examples
    /// See [`Deadlock::cycle`].
    #[must_use]
    pub fn table(&self) -> &str {
        self.table
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, link) in self.cycle.iter().enumerate() {
            let next = &self.cycle[(at + 1) % self.cycle.len()].party;
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{} waits for {}, ", link.party, link.key)?;
            match link.reason {
                Reason::Holds => write!(f, "which {next} holds")?,
                Reason::WaitsBefore => write!(f, "for which {next} is ahead of it in the queue")?,
            }
            if let Some(holder) = &link.holder {
                write!(f, " ({holder})")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadlock").field("cycle", &self.cycle).finish()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("party", &self.party).field("key", &self.key).field("table", &self.table).finish()
    }
}

impl core::error::Error for Deadlock {}

/// The error of a tracked request with a limit.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, deadlock::{Detector, Refused}};
///
/// # futures_lite::future::block_on(async {
/// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
/// let held = locks.lock(&7).await;
/// let party = detector.party("import");
/// let refused = party.acquire(locks.lock(&7)).until(async { "too late" }).await.unwrap_err();
/// assert_eq!(refused, Refused::Limit("too late"));
/// # drop(held);
/// # });
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused<L> {
    /// The request would have completed a cycle of waits.
    Deadlock(Deadlock),
    /// The limit was reached. The variant contains its output.
    Limit(L),
}

impl<L> fmt::Display for Refused<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Deadlock(deadlock) => deadlock.fmt(f),
            Refused::Limit(_) => f.write_str("gave up waiting: the limit of the wait was reached"),
        }
    }
}

impl<L: fmt::Debug> core::error::Error for Refused<L> {}

impl<L> From<Deadlock> for Refused<L> {
    fn from(deadlock: Deadlock) -> Self {
        Refused::Deadlock(deadlock)
    }
}
