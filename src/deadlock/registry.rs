//! The tracked holds and waits.
//!
//! The registry is behind the lock of its detector, under which no user code runs. A record is made when a tracked
//! request acquires its hold, or begins to wait, and is removed before the hold is released. So a hold whose record is
//! about to be made looks like that of an untracked holder, which is assumed to leave: it causes no report until it is
//! examined again, when its record is made.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::task::Waker;
use core::time::Duration;

use hashbrown::{HashTable, hash_table::Entry};

use super::holder::{HoldEvent, Holder, Moment, Origin};
use super::report::Deadlock;
use crate::builder::DefaultHashBuilder;
use crate::core::slab::{NONE, Slab};
use crate::core::{Access, Identity, Place, Want};

pub(super) struct Registry {
    pub(super) parties: Slab<Party>,
    pub(super) records: Slab<Record>,
    /// The entries that have indexed records.
    entries: HashTable<Indexed>,
    /// The first record that is not indexed. All such records form one list.
    unindexed: u32,
    hasher: DefaultHashBuilder,
    /// The number of searches.
    #[cfg(test)]
    pub(super) searches: usize,
}

impl Default for Registry {
    fn default() -> Self {
        Registry {
            parties: Slab::default(),
            records: Slab::default(),
            entries: HashTable::new(),
            unindexed: NONE,
            hasher: DefaultHashBuilder::default(),
            #[cfg(test)]
            searches: 0,
        }
    }
}

/// An entry that has records.
struct Indexed {
    entry: Identity,
    /// The first of these records.
    first: u32,
    /// The number of these records that are waits.
    waits: u32,
}

pub(super) struct Party {
    pub(super) name: Cow<'static, str>,
    /// The first of the party's records.
    first: u32,
    /// The number of these records that are waits.
    pub(super) waits: u32,
    /// The number of the party's records whose `met` is set.
    met: u32,
}

pub(super) struct Record {
    pub(super) party: u32,
    pub(super) entry: Identity,
    pub(super) what: What,
    /// Whether the record is in the list of its entry.
    indexed: bool,
    /// Whether another request waits for the same entry, and so perhaps for the party of this record.
    met: bool,
    /// The record's neighbours in two lists, that of its party, and that of its entry or of the records that are not
    /// indexed: in each the one before it, and the one after it.
    links: [[u32; 2]; 2],
}

pub(super) enum What {
    Holds(Held),
    Waits(Box<Wait>),
}

/// A hold.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) access: Access,
    /// The type of the table.
    pub(super) table: &'static str,
    pub(super) note: Option<Box<Note>>,
}

/// Further data of a hold or a wait, for reports.
#[derive(Clone, Default)]
pub(super) struct Note {
    /// The key's `Debug` output.
    pub(super) key: String,
    /// The request's origin, if the detector names holders.
    pub(super) origin: Option<Origin>,
    /// The moment at which the hold was acquired or adopted, if the detector names holders.
    pub(super) since: Option<Moment>,
}

impl Held {
    /// Returns the key's `Debug` output, if it is known.
    pub(super) fn key(&self) -> Option<&String> {
        self.note.as_ref().map(|note| &note.key)
    }

    /// Returns the origin and the age of the hold in their public form, if they are known.
    pub(super) fn holder(&self) -> Option<Holder> {
        let Note { origin, since, .. } = &**self.note.as_ref()?;
        let Origin { location, label } = origin.as_ref()?;
        Some(Holder { location, held_for: since.and_then(Moment::elapsed), label: label.clone() })
    }
}

/// A request that waits.
pub(super) struct Wait {
    pub(super) want: Want,
    pub(super) place: Place,
    /// The data for reports; `None` once they have moved to the record of the hold.
    pub(super) note: Option<Box<Note>>,
    pub(super) table: &'static str,
    /// The waker, to wake the request when it has failed.
    pub(super) waker: Option<Waker>,
    /// The failure that the request has not taken yet.
    pub(super) failed: Option<Deadlock>,
}

/// The table of entries is never shrunk while it has at most this many buckets.
const BUCKETS_KEPT: usize = 64;

const OF_PARTY: usize = 0;
const OF_ENTRY: usize = 1;

impl Wait {
    /// Returns the key's `Debug` output.
    pub(super) fn key(&self) -> String {
        self.note.as_ref().map(|note| note.key.clone()).unwrap_or_default()
    }
}

impl Registry {
    pub(super) fn add_party(&mut self, name: Cow<'static, str>) -> u32 {
        self.parties.insert(Party { name, first: NONE, waits: 0, met: 0 })
    }

    pub(super) fn remove_party(&mut self, party: u32) -> Cow<'static, str> {
        self.parties.remove(party).name
    }

    /// Records a hold of the party.
    #[inline]
    pub(super) fn add_hold(&mut self, party: u32, entry: Identity, held: Held) -> u32 {
        self.add(party, entry, What::Holds(held))
    }

    /// Records a part of a recorded hold.
    pub(super) fn add_part(&mut self, of: u32, access: Access) -> u32 {
        let Record { party, entry, ref what, .. } = self.records[of];
        let held = match what {
            What::Holds(held) => Held { access, ..held.clone() },
            What::Waits(_) => unreachable!("only a hold has parts"),
        };
        self.add_hold(party, entry, held)
    }

    /// Records a request of the party that begins to wait.
    pub(super) fn add_wait(&mut self, party: u32, entry: Identity, wait: Box<Wait>) -> u32 {
        self.parties[party].waits += 1;
        self.add(party, entry, What::Waits(wait))
    }

    #[inline]
    fn add(&mut self, party: u32, entry: Identity, what: What) -> u32 {
        let Registry { parties, records, unindexed, .. } = self;
        let party_of = &mut parties[party];
        let links = [[NONE, party_of.first], [NONE, *unindexed]];
        let record = records.insert(Record { party, entry, what, indexed: false, met: false, links });
        for (list, [_, next]) in links.into_iter().enumerate() {
            if next != NONE {
                records[next].links[list][0] = record;
            }
        }
        party_of.first = record;
        *unindexed = record;
        record
    }

    /// Removes the record of a hold that is about to be released or is no longer tracked, or of a wait that has ended.
    /// Returns its content, to be dropped outside the lock.
    #[inline]
    pub(super) fn remove(&mut self, record: u32) -> What {
        let Record { party, entry, what, indexed, met, links } = self.records.remove(record);
        self.parties[party].met -= u32::from(met);
        for (list, [before, after]) in links.into_iter().enumerate() {
            if after != NONE {
                self.records[after].links[list][0] = before;
            }
            if before != NONE {
                self.records[before].links[list][1] = after;
                continue;
            }
            match list {
                OF_PARTY => self.parties[party].first = after,
                _ if indexed => self.set_first(entry, after),
                _ => self.unindexed = after,
            }
        }
        if let What::Waits(_) = what {
            self.parties[party].waits -= 1;
            if indexed {
                self.count_wait(entry, false);
            }
        }
        what
    }

    /// Counts a request that begins or ends its wait for the entry, and updates the `met` of the entry's records.
    fn count_wait(&mut self, entry: Identity, comes: bool) {
        let hash = self.hasher.hash_one(entry);
        let Some(indexed) = self.entries.find_mut(hash, |other| other.entry == entry) else { return };
        if comes {
            indexed.waits += 1;
        } else {
            indexed.waits -= 1;
        }
        // The first wait meets the holds, and the second meets the first wait. A further wait changes only its own
        // record.
        let (first, waits) = (indexed.first, indexed.waits);
        if waits <= if comes { 2 } else { 1 } {
            let mut next = first;
            while next != NONE {
                self.meet(next, waits);
                next = self.records[next].links[OF_ENTRY][1];
            }
        } else if comes {
            self.meet(first, waits);
        }
    }

    /// Updates the `met` of a record whose entry `waits` requests wait for.
    fn meet(&mut self, record: u32, waits: u32) {
        let Record { party, what, met, .. } = &mut self.records[record];
        let others = waits - u32::from(matches!(what, What::Waits(_)));
        let count = &mut self.parties[*party].met;
        *count -= u32::from(*met);
        *met = others > 0;
        *count += u32::from(*met);
    }

    /// Sets the first record of the entry's list. If there is none, removes the entry.
    fn set_first(&mut self, entry: Identity, record: u32) {
        let hash = self.hasher.hash_one(entry);
        if let Ok(mut indexed) = self.entries.find_entry(hash, |other| other.entry == entry) {
            if record != NONE {
                indexed.get_mut().first = record;
                return;
            }
            indexed.remove();
        }
        let Registry { entries, hasher, .. } = self;
        // Shrinks after a burst. That moves fewer entries than an eighth of the buckets, and since the last time there
        // have been at least three removals for every four entries that are moved. The condition looks at the buckets,
        // because removed entries lower the capacity without freeing memory.
        if entries.num_buckets() > BUCKETS_KEPT && entries.len() < entries.num_buckets() / 8 {
            entries.shrink_to(2 * entries.len(), |indexed| hasher.hash_one(indexed.entry));
        }
    }

    /// Puts each record into the list of its entry. Most records are removed before any search, so this is deferred
    /// until the lists are needed.
    fn index(&mut self) {
        while self.unindexed != NONE {
            let Registry { records, unindexed, entries, hasher, .. } = self;
            let record = *unindexed;
            let Record { entry, links, .. } = records[record];
            let is_wait = matches!(records[record].what, What::Waits(_));
            *unindexed = links[OF_ENTRY][1];
            let hash = hasher.hash_one(entry);
            let slot = entries.entry(hash, |other| other.entry == entry, |indexed| hasher.hash_one(indexed.entry));
            let (next, waits) = match slot {
                Entry::Occupied(mut indexed) => {
                    let Indexed { first, waits, .. } = indexed.get_mut();
                    (core::mem::replace(first, record), *waits)
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(Indexed { entry, first: record, waits: 0 });
                    (NONE, 0)
                }
            };
            if next != NONE {
                records[next].links[OF_ENTRY][0] = record;
            }
            records[record].links[OF_ENTRY] = [NONE, next];
            records[record].indexed = true;
            if is_wait {
                self.count_wait(entry, true);
            } else {
                self.meet(record, waits);
            }
        }
    }

    /// Changes the access of a recorded hold.
    pub(super) fn set_access(&mut self, record: u32, access: Access) {
        if let What::Holds(held) = &mut self.records[record].what {
            held.access = access;
        }
    }

    pub(super) fn wait_mut(&mut self, record: u32) -> &mut Wait {
        match &mut self.records[record].what {
            What::Waits(wait) => wait,
            What::Holds(_) => unreachable!("a request waits until its record is removed"),
        }
    }

    /// Returns whether a request of the party waits.
    #[inline]
    pub(super) fn waits(&self, party: u32) -> bool {
        self.parties[party].waits > 0
    }

    /// Returns whether the party, which has begun to wait with `request`, has a record that others could wait for:
    /// another record, or that of `request`, if the request may have passed others by its priority.
    pub(super) fn can_be_waited_for(&self, party: u32, request: u32) -> bool {
        let first = self.parties[party].first;
        first != NONE && self.records[first].links[OF_PARTY][1] != NONE || self.has_priority(request)
    }

    fn has_priority(&self, request: u32) -> bool {
        matches!(&self.records[request].what, What::Waits(wait) if wait.place.has_priority())
    }

    /// Returns whether a tracked request may wait for the party, which has begun to wait with `request`. If none does,
    /// no cycle goes through the party, so no search is needed, however many parties it waits for.
    ///
    /// No tracked request waits behind a request that has just queued, unless the latter has a priority, because
    /// queueing and this check are one step under the detector's lock. But an earlier request may have to wait for the
    /// hold that the new one gets, if the party of the new one then waits elsewhere: for example, if a readers' phase
    /// admits the new request before a writer.
    pub(super) fn is_waited_for(&mut self, party: u32, request: u32) -> bool {
        self.index();
        let Party { waits, met, .. } = self.parties[party];
        let own = request != NONE && self.records[request].met;
        met > u32::from(own) || own && (waits > 1 || self.has_priority(request))
    }

    /// Sets the label of a recorded hold, or of one that is waited for. Returns the label to drop outside the lock: the
    /// old one, or the new one if the record has no origin to label.
    pub(super) fn set_label(&mut self, record: u32, label: Cow<'static, str>) -> Option<Cow<'static, str>> {
        let note = match &mut self.records[record].what {
            What::Holds(held) => &mut held.note,
            What::Waits(wait) => &mut wait.note,
        };
        match note.as_mut().and_then(|note| note.origin.as_mut()) {
            Some(origin) => origin.label.replace(label),
            None => Some(label),
        }
    }

    /// Returns an event for each hold of the request's key that has lasted for `limit` or longer. If the request is an
    /// upgrade, the hold that it `continues` does not count.
    pub(super) fn long_holds(&mut self, request: u32, continues: Option<u32>, limit: Duration) -> Vec<HoldEvent> {
        self.index();
        let Record { party: waiter, entry, .. } = self.records[request];
        let others = self.of_entry(entry).filter(|(index, _)| Some(*index) != continues);
        let holds = others.filter_map(|(_, record)| match &record.what {
            What::Holds(held) => Some((record.party, held, held.holder()?)),
            What::Waits(_) => None,
        });
        let long = holds.filter(|(.., holder)| holder.held_for.is_some_and(|held_for| held_for >= limit));
        let events = long.map(|(party, held, holder)| HoldEvent {
            party: self.parties[party].name.clone(),
            key: held.key().cloned().unwrap_or_default(),
            table: held.table,
            holder,
            waiter: self.parties[waiter].name.clone(),
        });
        events.collect()
    }

    /// Puts each record into the list of its entry, and then calls `f` with each party that has records.
    pub(super) fn each_party(&mut self, mut f: impl FnMut(&Self, u32, &str)) {
        self.index();
        for index in 0..self.parties.places() as u32 {
            if let Some(Party { name, .. }) = self.parties.get(index).filter(|party| party.first != NONE) {
                f(self, index, name);
            }
        }
    }

    pub(super) fn of_party(&self, party: u32) -> impl Iterator<Item = (u32, &Record)> {
        self.list(self.parties[party].first, OF_PARTY)
    }

    pub(super) fn of_entry(&self, entry: Identity) -> impl Iterator<Item = (u32, &Record)> {
        let indexed = self.entries.find(self.hasher.hash_one(entry), |other| other.entry == entry);
        self.list(indexed.map_or(NONE, |indexed| indexed.first), OF_ENTRY)
    }

    fn list(&self, first: u32, list: usize) -> impl Iterator<Item = (u32, &Record)> {
        let mut next = first;
        core::iter::from_fn(move || {
            let record = (next != NONE).then_some(next)?;
            next = self.records[record].links[list][1];
            Some((record, &self.records[record]))
        })
    }
}
