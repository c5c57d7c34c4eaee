use core::fmt;

use crate::core::{CountKind, Snapshot};

/// A snapshot of one key: the numbers of its holders and waiters.
///
/// All of its numbers were true at one instant during the call that made it, and may have changed since: use it for
/// monitoring and tests, not to decide whether a lock can be taken. A request is counted once, as a holder or as a
/// waiter, with two exceptions: a holder of several permits counts once for each, and an upgradable holder that waits
/// for its upgrade counts as both. Handles, futures that have not been polled, and threads that have not queued yet are
/// not counted. The holder of a mutex's key counts as a writer. `Debug` and `Display` show only the numbers that are
/// not zero.
///
/// # Examples
/// ```
/// let locks = keylatch::KeyedMutex::<u32>::new();
/// let guard = locks.try_lock(&7).unwrap();
/// let status = locks.status(&7).unwrap();
/// assert_eq!((status.writers(), status.holders(), status.waiters()), (1, 1, 0));
/// assert_eq!(format!("{status:?}"), "Status { writers: 1 }");
/// assert_eq!(format!("{status}"), "1 writer");
/// drop(guard);
/// assert!(locks.status(&7).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status {
    readers: usize,
    writers: usize,
    upgradable: usize,
    permits: usize,
    waiting_readers: usize,
    waiting_writers: usize,
    waiting_upgradable: usize,
    waiting_upgrades: usize,
    waiting_permits: usize,
}

impl Status {
    pub(crate) fn new(snapshot: Snapshot) -> Status {
        let Snapshot { holds, waiting, counted } = snapshot;
        let (readers, permits) = match counted {
            CountKind::Readers => (holds.count(), 0),
            CountKind::Permits(_) => (0, holds.count()),
        };
        Status {
            readers,
            writers: usize::from(holds.writer()),
            upgradable: usize::from(holds.upgradable()),
            permits,
            waiting_readers: waiting.readers,
            waiting_writers: waiting.writers,
            waiting_upgradable: waiting.upgradable,
            waiting_upgrades: waiting.upgrades,
            waiting_permits: waiting.permits,
        }
    }
}

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        impl Status {$(
            $(#[doc = $doc])+
            ///
            /// # Examples
            /// See [`Status`].
            #[must_use]
            pub fn $name(&self) -> usize {
                self.$name
            }
        )+}

        impl fmt::Debug for Status {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut status = f.debug_struct("Status");
                $(if self.$name > 0 {
                    status.field(stringify!($name), &self.$name);
                })+
                status.finish()
            }
        }
    };
}

counts! {
    /// Returns the number of readers that hold the key.
    readers;
    /// Returns the number of writers that hold the key: 0 or 1. A mutex's holder counts as a writer.
    writers;
    /// Returns the number of upgradable readers that hold the key: 0 or 1.
    upgradable;
    /// Returns the number of permits of the key that are held.
    permits;
    /// Returns the number of requests that wait to read.
    waiting_readers;
    /// Returns the number of requests that wait to write, or to lock a mutex.
    waiting_writers;
    /// Returns the number of requests that wait for an upgradable hold.
    waiting_upgradable;
    /// Returns the number of upgradable holders that wait to become writers: 0 or 1. [`upgradable`](Status::upgradable)
    /// counts such a holder, too.
    waiting_upgrades;
    /// Returns the number of requests that wait for permits, each for one or for several.
    waiting_permits;
}

/// Writes the holders and then the waiters: "2 readers; waiting: 1 to write, 3 to read".
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holders = [
            (self.readers, "reader", "readers"),
            (self.writers, "writer", "writers"),
            (self.upgradable, "upgradable reader", "upgradable readers"),
            (self.permits, "permit", "permits"),
        ];
        if self.holders() == 0 {
            f.write_str("nobody")?;
        }
        let mut separator = "";
        for (count, one, many) in holders.into_iter().filter(|(count, ..)| *count > 0) {
            write!(f, "{separator}{count} {}", if count == 1 { one } else { many })?;
            separator = ", ";
        }
        let waiters = [
            (self.waiting_upgrades, "to upgrade"),
            (self.waiting_writers, "to write"),
            (self.waiting_upgradable, "for an upgradable read"),
            (self.waiting_readers, "to read"),
            (self.waiting_permits, "to acquire"),
        ];
        let mut separator = "; waiting: ";
        for (count, what) in waiters.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {what}")?;
            separator = ", ";
        }
        Ok(())
    }
}

impl Status {
    /// Returns the number of holders of the key, of all kinds. Each held permit counts as one holder.
    ///
    /// # Examples
    /// See [`Status`].
    #[must_use]
    pub fn holders(&self) -> usize {
        self.readers + self.writers + self.upgradable + self.permits
    }

    /// Returns the number of waiters for the key, of all kinds.
    ///
    /// # Examples
    /// See [`Status`].
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.waiting_readers
            + self.waiting_writers
            + self.waiting_upgradable
            + self.waiting_upgrades
            + self.waiting_permits
    }
}
