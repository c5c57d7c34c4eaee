//! The versions of objects that this process has seen.
//!
//! An entry may be dropped at any time without harm to exclusion: its lease then counts from the next look at it. But a
//! lease whose entry is always dropped before the next look is never taken over. So an entry is kept for a while after
//! its lease has ended, and the table is cleaned up only when it has grown to twice the number of entries that the last
//! clean-up left.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keylatch_lease::Resource;

use crate::decide::{Now, Seen};

/// A table with fewer entries than this is not cleaned up.
const FEW: usize = 1024;

/// An entry is kept for at least this long after it was last used.
const KEPT: Duration = Duration::from_secs(300);

/// The table.
#[derive(Debug)]
pub(crate) struct Table(Mutex<Entries>);

#[derive(Debug)]
struct Entries {
    seen: HashMap<Resource, Entry>,
    /// The number of entries at which the next clean-up is due.
    limit: usize,
    /// The time for which the entry of a lease is kept after its last use, and after the lease has ended.
    kept: Duration,
}

/// An object in the version that was seen last.
#[derive(Debug)]
struct Entry {
    seen: Seen,
    used: Duration,
}

impl Table {
    /// Returns a table for a process that sweeps at this interval.
    pub(crate) fn new(sweeps: Option<Duration>) -> Self {
        let kept = sweeps.map_or(KEPT, |every| every.saturating_mul(2).max(KEPT));
        Table(Mutex::new(Entries { seen: HashMap::new(), limit: FEW, kept }))
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the version of a resource's object that was seen last.
    pub(crate) fn last(&self, resource: &Resource, now: Duration) -> Option<Seen> {
        let mut entries = self.lock();
        let entry = entries.seen.get_mut(resource)?;
        entry.used = now;
        Some(entry.seen.clone())
    }

    /// Notes that the object was read with a request sent at this time. Returns what is known about the version that
    /// was read.
    pub(crate) fn read(&self, resource: &Resource, asked: Duration, seen: Option<Seen>, now: Now) -> Option<Seen> {
        let mut entries = self.lock();
        let known = entries.seen.get(resource).map(|entry| &entry.seen);
        let Some(seen) = seen else {
            if known.is_none_or(|known| known.at < asked) {
                entries.seen.remove(resource);
            }
            return None;
        };
        match known {
            // The version is that of the answer, in case somebody has put a copy of the object in its place.
            Some(known) if known.record == seen.record => {
                let known = Seen { version: seen.version, modified: seen.modified, ..known.clone() };
                entries.seen.insert(resource.clone(), Entry { seen: known.clone(), used: now.clock });
                Some(known)
            }
            // Which of the two is newer is unknown: the known version was written or read after this one was asked for.
            Some(known) if known.at >= asked => Some(seen),
            _ => {
                entries.note(resource, seen.clone(), now);
                Some(seen)
            }
        }
    }

    /// Notes that this process has written the object.
    pub(crate) fn wrote(&self, resource: &Resource, seen: Seen, now: Now) {
        self.lock().note(resource, seen, now);
    }
}

impl Entries {
    fn note(&mut self, resource: &Resource, seen: Seen, now: Now) {
        self.seen.insert(resource.clone(), Entry { seen, used: now.clock });
        if self.seen.len() < self.limit {
            return;
        }
        let is_old = |at: Duration, kept: Duration| now.clock.saturating_sub(at) >= kept;
        let kept = self.kept;
        self.seen.retain(|_, Entry { seen, used }| {
            // For a resource that is free, or whose lease never ends, the next look shows just as much.
            let free_at = seen.record.lease.as_ref().and_then(|lease| seen.free_at(lease));
            free_at.map_or(!is_old(*used, KEPT), |free_at| !is_old(free_at.max(*used), kept))
        });
        self.limit = (2 * self.seen.len()).max(FEW);
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW, KEPT, Table};
    use crate::{
        decide::{Now, Seen},
        record::{Lease, Nonce, Record},
    };
    use keylatch_lease::{Expiry, Resource};
    use keylatch_lease_remote::Policy;
    use object_store::UpdateVersion;
    use std::time::Duration;

    fn now(seconds: u64) -> Now {
        Now { clock: Duration::from_secs(seconds), day: 0, store: None }
    }

    fn seen(at: u64) -> Seen {
        let record = Record { token: 1, nonce: Nonce::new(), after: Vec::new(), lease: None };
        let version = UpdateVersion { e_tag: None, version: None };
        Seen { version, record, at: Duration::from_secs(at), sent: None, modified: None }
    }

    #[test]
    fn a_version_counts_from_when_it_was_first_seen() {
        let (table, report) = (Table::new(None), Resource::from("report"));
        let first = seen(5);
        table.read(&report, Duration::from_secs(4), Some(first.clone()), now(5));
        let again = Seen { at: Duration::from_secs(9), ..first };
        let known = table.read(&report, Duration::from_secs(8), Some(again), now(9)).unwrap();
        assert_eq!(known.at, Duration::from_secs(5));
    }

    #[test]
    fn an_answer_that_comes_late_replaces_no_newer_version() {
        let (table, report) = (Table::new(None), Resource::from("report"));
        table.wrote(&report, seen(5), now(5));
        let late = table.read(&report, Duration::from_secs(4), Some(seen(6)), now(6)).unwrap();
        assert_eq!(late.at, Duration::from_secs(6));
        assert_eq!(table.last(&report, Duration::ZERO).unwrap().at, Duration::from_secs(5));
        table.read(&report, Duration::from_secs(4), None, now(6));
        assert!(table.last(&report, Duration::ZERO).is_some());
        table.read(&report, Duration::from_secs(7), None, now(8));
        assert!(table.last(&report, Duration::ZERO).is_none());
    }

    #[test]
    fn entries_that_are_no_longer_used_are_dropped() {
        let table = Table::new(None);
        for key in 0..100 * FEW as u64 {
            let at = key * KEPT.as_secs() / 100; // a hundred of them are in use at a time
            table.wrote(&Resource::new("n", key.to_string()), seen(at), now(at));
        }
        assert!(table.lock().seen.len() <= FEW);
    }

    /// Uses so many other entries at this time that the table is cleaned up.
    fn fill(table: &Table, at: u64) {
        for key in 0..2 * FEW as u64 {
            table.wrote(&Resource::new("other", format!("{at}-{key}")), seen(at), now(at));
        }
    }

    /// Returns whether a table still knows, `at` seconds after the start, a lease of 100 s that was seen at 0 s and
    /// used after `used` seconds.
    fn knows(sweeps: Option<Duration>, used: u64, at: u64) -> bool {
        let (table, report) = (Table::new(sweeps), Resource::from("report"));
        let (lasts, policy) = (Some(100_000_000), Policy::of(&Expiry::Never));
        let lease = Lease { resource: report.clone(), owner: "n:jane".into(), lasts, held: 0, written: 1, policy };
        let known = seen(0);
        let known = Seen { record: Record { lease: Some(lease), ..known.record }, ..known };
        table.read(&report, Duration::ZERO, Some(known), now(0));
        assert!(table.last(&report, Duration::from_secs(used)).is_some());
        fill(&table, at);
        table.lock().seen.contains_key(&report)
    }

    #[test]
    fn a_lease_is_known_for_a_while_after_its_end_and_after_its_last_use() {
        let kept = KEPT.as_secs();
        assert!(knows(None, 0, 101 + kept - 1), "a caller that comes again could not take it over");
        assert!(!knows(None, 0, 101 + kept));
        assert!(knows(None, 500, 500 + kept - 1), "somebody asks for it now and then");
        assert!(!knows(None, 500, 500 + kept));
    }

    #[test]
    fn a_lease_is_known_until_the_next_sweep() {
        let hour = Some(Duration::from_secs(3600));
        assert!(knows(hour, 0, 2 * 3600));
        assert!(!knows(hour, 0, 101 + 2 * 3600));
    }
}
