//! What this process has seen of the bucket.
//!
//! An entry may be dropped at any time without harm to exclusion: its lease then counts from the next look at it. So
//! the table is cleaned up only when it has grown to twice the entries that were in use.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keylatch_lease::Resource;

use crate::decide::{Now, Seen};

/// The number of entries up to which nothing is cleaned up.
const FEW: usize = 1024;

/// An entry is kept for at least this long after it was last used.
const KEPT: Duration = Duration::from_secs(300);

/// The table.
#[derive(Debug)]
pub(crate) struct Table(Mutex<Entries>);

#[derive(Debug)]
struct Entries {
    seen: HashMap<Resource, Seen>,
    /// The polls of waiters that were in vain: how many, and when the last one was.
    polls: HashMap<Resource, (u32, Duration)>,
    /// The number of entries at which the next clean-up is due.
    limit: usize,
}

impl Table {
    pub(crate) fn new() -> Self {
        Table(Mutex::new(Entries { seen: HashMap::new(), polls: HashMap::new(), limit: FEW }))
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the version of a resource's object that was seen last.
    pub(crate) fn last(&self, resource: &Resource) -> Option<Seen> {
        self.lock().seen.get(resource).cloned()
    }

    /// Notes that the object was read with a request sent at this time. Returns what is known about the version that
    /// was read.
    pub(crate) fn read(&self, resource: &Resource, asked: Duration, seen: Option<Seen>, now: Now) -> Option<Seen> {
        let mut entries = self.lock();
        let known = entries.seen.get(resource);
        let Some(seen) = seen else {
            if known.is_none_or(|known| known.at < asked) {
                entries.seen.remove(resource);
            }
            return None;
        };
        match known {
            // The version is that of the answer, in case that somebody has put a copy of the object in its place.
            Some(known) if known.record == seen.record => {
                let known = Seen { version: seen.version, modified: seen.modified, ..known.clone() };
                entries.seen.insert(resource.clone(), known.clone());
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
        let mut entries = self.lock();
        if seen.record.lease.is_some() {
            entries.polls.remove(resource);
        }
        entries.note(resource, seen, now);
    }

    /// Returns the number of polls for a resource that were in vain since a waiter came.
    pub(crate) fn polls(&self, resource: &Resource, now: Duration) -> u32 {
        let entries = self.lock();
        let recent = entries.polls.get(resource).filter(|(_, last)| now.saturating_sub(*last) < KEPT / 5);
        recent.map_or(0, |(count, _)| *count)
    }

    /// Notes a poll in vain.
    pub(crate) fn polled(&self, resource: &Resource, now: Duration) {
        let count = self.polls(resource, now).saturating_add(1);
        self.lock().polls.insert(resource.clone(), (count, now));
    }
}

impl Entries {
    fn note(&mut self, resource: &Resource, seen: Seen, now: Now) {
        self.seen.insert(resource.clone(), seen);
        if self.seen.len() + self.polls.len() < self.limit {
            return;
        }
        let is_old = |at: Duration| now.clock.saturating_sub(at) >= KEPT;
        self.seen.retain(|_, seen| {
            let until_free = seen.record.lease.as_ref().map(|lease| seen.until_free(lease, now));
            // A lease that never ends is as good after the next look.
            !is_old(seen.at) || until_free.flatten().is_some_and(|time| !time.is_zero())
        });
        self.polls.retain(|_, (_, last)| !is_old(*last));
        self.limit = (2 * (self.seen.len() + self.polls.len())).max(FEW);
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW, KEPT, Table};
    use crate::{
        decide::{Now, Seen},
        record::{Nonce, Record},
    };
    use keylatch_lease::Resource;
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
        let (table, report) = (Table::new(), Resource::from("report"));
        let first = seen(5);
        table.read(&report, Duration::from_secs(4), Some(first.clone()), now(5));
        let again = Seen { at: Duration::from_secs(9), ..first };
        let known = table.read(&report, Duration::from_secs(8), Some(again), now(9)).unwrap();
        assert_eq!(known.at, Duration::from_secs(5));
    }

    #[test]
    fn an_answer_that_comes_late_replaces_no_newer_version() {
        let (table, report) = (Table::new(), Resource::from("report"));
        table.wrote(&report, seen(5), now(5));
        let late = table.read(&report, Duration::from_secs(4), Some(seen(6)), now(6)).unwrap();
        assert_eq!(late.at, Duration::from_secs(6));
        assert_eq!(table.last(&report).unwrap().at, Duration::from_secs(5));
        table.read(&report, Duration::from_secs(4), None, now(6));
        assert!(table.last(&report).is_some());
        table.read(&report, Duration::from_secs(7), None, now(8));
        assert!(table.last(&report).is_none());
    }

    #[test]
    fn entries_that_are_no_longer_used_are_dropped() {
        let table = Table::new();
        for key in 0..100 * FEW as u64 {
            let at = key * KEPT.as_secs() / 100; // a hundred of them are in use at a time
            table.wrote(&Resource::new("n", key.to_string()), seen(at), now(at));
        }
        assert!(table.lock().seen.len() <= FEW);
    }
}
