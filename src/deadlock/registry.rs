//! Who holds what, and who waits for what, as far as it is tracked; and the search for a circle.
//!
//! All of it is behind the lock of its detector, under which no user code runs. A record is made when a tracked request gets its
//! hold, or begins to wait, and is removed before the hold is released. So what is not recorded, but will be in a moment, looks
//! like something that nobody tracks: like a holder who is going to leave, which raises no alarm. It is looked at again
//! when its record is made.
//!
//! # When somebody is stuck
//! By the contract: all parties that do not wait, and all whom nobody tracks, release what they hold; the queues let in whom
//! they can; and again, until nothing changes. Who still waits is stuck. Here it is done for those parties only
//! that the one in question depends on, directly or through others. Before it began to wait, nobody of them was stuck, because that would have been
//! found when it came about. So if it is stuck now it is on a circle of those who are, and when its
//! request is taken out nobody is.
//!
//! The queues are looked at one after another, while those whom nobody tracks come and go. What was seen is taken for granted
//! only if a second look shows the same: then all of it was true at the moment between the two.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::task::Waker;

use hashbrown::{HashMap, HashSet, HashTable, hash_table::Entry};

use super::report::{Deadlock, Link, Reason};
use crate::builder::DefaultHashBuilder;
use crate::core::slab::{NONE, Slab};
use crate::core::{Access, Holds, Identity, Place, Queued, Rules, Stand, Ticket, Want};
use crate::fairness::Fairness;

pub(super) struct Registry {
    parties: Slab<Party>,
    records: Slab<Record>,
    /// The entries that have records, but for those that are not indexed.
    entries: HashTable<Indexed>,
    /// The first of those: they are in one list instead.
    unindexed: u32,
    hasher: DefaultHashBuilder,
    /// How many circles were looked for.
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
    /// The first of them.
    first: u32,
    /// How many of them wait.
    waits: u32,
}

struct Party {
    name: Cow<'static, str>,
    /// The first of its records.
    first: u32,
    /// How many of them wait.
    waits: u32,
    /// How many of them are met by a wait.
    met: u32,
}

struct Record {
    party: u32,
    entry: Identity,
    what: What,
    /// Whether it is in the list of its entry.
    indexed: bool,
    /// Whether a request waits for the same entry, other than this one: it may wait for what this record says.
    met: bool,
    /// Neighbours in the lists of its party and of its entry: before it, and after it.
    links: [[u32; 2]; 2],
}

enum What {
    Holds(Access),
    Waits(Box<Wait>),
}

/// A request that waits.
pub(super) struct Wait {
    pub(super) want: Want,
    pub(super) place: Place,
    pub(super) key: String,
    pub(super) table: &'static str,
    /// To wake it when it has failed.
    pub(super) waker: Option<Waker>,
    /// It has failed, and has not come for this.
    pub(super) failed: Option<Deadlock>,
}

/// The table of entries keeps this many buckets.
const BUCKETS_KEPT: usize = 64;

const OF_PARTY: usize = 0;
const OF_ENTRY: usize = 1;

impl Registry {
    pub(super) fn add_party(&mut self, name: Cow<'static, str>) -> u32 {
        self.parties.insert(Party { name, first: NONE, waits: 0, met: 0 })
    }

    pub(super) fn remove_party(&mut self, party: u32) -> Cow<'static, str> {
        self.parties.remove(party).name
    }

    /// A request of the party has its hold.
    #[inline]
    pub(super) fn add_hold(&mut self, party: u32, entry: Identity, access: Access) -> u32 {
        self.add(party, entry, What::Holds(access))
    }

    /// A request of the party begins to wait.
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

    /// The hold is going to be released, or is not watched any more; or the request does not wait any more. Returns its wait, to be
    /// dropped outside the lock.
    #[inline]
    pub(super) fn remove(&mut self, record: u32) -> Option<Box<Wait>> {
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
        match what {
            What::Holds(_) => None,
            What::Waits(wait) => {
                self.parties[party].waits -= 1;
                if indexed {
                    self.count_wait(entry, false);
                }
                Some(wait)
            }
        }
    }

    /// One request more waits for the entry, or one less: which records are met.
    fn count_wait(&mut self, entry: Identity, comes: bool) {
        let hash = self.hasher.hash_one(entry);
        let Some(indexed) = self.entries.find_mut(hash, |other| other.entry == entry) else { return };
        if comes {
            indexed.waits += 1;
        } else {
            indexed.waits -= 1;
        }
        // With the first wait holds are met, and with the second waits are: beyond that, one more is one more.
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

    /// So many requests wait for the entry of this record.
    fn meet(&mut self, record: u32, waits: u32) {
        let Record { party, what, met, .. } = &mut self.records[record];
        let others = waits - u32::from(matches!(what, What::Waits(_)));
        let count = &mut self.parties[*party].met;
        *count -= u32::from(*met);
        *met = others > 0;
        *count += u32::from(*met);
    }

    /// The entry's list begins with another record, or ends.
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
        // After a burst. It moves at most an eighth of what the table had room for, once for at least as many removals. The buckets
        // are counted, because removed entries lower the capacity without freeing memory.
        if entries.num_buckets() > BUCKETS_KEPT && entries.len() < entries.num_buckets() / 8 {
            entries.shrink_to(2 * entries.len(), |indexed| hasher.hash_one(indexed.entry));
        }
    }

    /// Puts each record into the list of its entry. Most are gone before anybody looks for them, so it is left until somebody does.
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

    /// The hold has become another.
    pub(super) fn set_access(&mut self, record: u32, access: Access) {
        self.records[record].what = What::Holds(access);
    }

    pub(super) fn wait_mut(&mut self, record: u32) -> &mut Wait {
        match &mut self.records[record].what {
            What::Waits(wait) => wait,
            What::Holds(_) => unreachable!("a request waits until its record is removed"),
        }
    }

    /// Whether a request of the party waits.
    #[inline]
    pub(super) fn waits(&self, party: u32) -> bool {
        self.parties[party].waits > 0
    }

    /// Whether there is anything that others could wait for while the party waits.
    fn can_be_waited_for(&self, party: u32) -> bool {
        let first = self.parties[party].first;
        first != NONE && self.records[first].links[OF_PARTY][1] != NONE
    }

    /// Whether somebody may wait for the party, who began to wait with this request, if it is one. If nobody does, no circle goes
    /// through the party: so none is looked for, however many the party itself waits for.
    ///
    /// Nobody who is tracked waits behind a request that has just queued: queueing and this are one step under the detector's lock.
    /// But those before it may have to wait for what it gets, if its party then waits for something else: a phase of readers
    /// lets it in before a writer.
    fn is_waited_for(&mut self, party: u32, request: u32) -> bool {
        self.index();
        let Party { waits, met, .. } = self.parties[party];
        let own = request != NONE && self.records[request].met;
        met > u32::from(own) || own && waits > 1
    }

    /// A request of the party has begun to wait: the circle that it closes, if it does. If it will get in, and so closes circles
    /// with other requests of its party, those fail.
    pub(super) fn closes(&mut self, record: u32, wakers: &mut Vec<Waker>) -> Option<Deadlock> {
        let party = self.records[record].party;
        while self.can_be_waited_for(party) && self.is_waited_for(party, record) {
            let (deadlock, request) = self
                .circle(party, Some(record))
                .or_else(|| self.others_wait(party).then(|| self.circle(party, None))?)?;
            if request == record {
                return Some(deadlock);
            }
            self.fail(request, deadlock, wakers);
        }
        None
    }

    /// Whether more than one request of the party waits.
    fn others_wait(&self, party: u32) -> bool {
        self.parties[party].waits > 1
    }

    /// The party has got in while other requests of it wait: each circle that this closes makes one of them fail. Returns the wakers of
    /// those.
    pub(super) fn got_in(&mut self, party: u32, wakers: &mut Vec<Waker>) {
        while self.parties[party].waits > 0 && self.is_waited_for(party, NONE) {
            let Some((deadlock, request)) = self.circle(party, None) else { return };
            self.fail(request, deadlock, wakers);
        }
    }

    fn fail(&mut self, request: u32, deadlock: Deadlock, wakers: &mut Vec<Waker>) {
        let wait = self.wait_mut(request);
        wait.failed = Some(deadlock);
        wakers.extend(wait.waker.take());
    }

    fn of_party(&self, party: u32) -> impl Iterator<Item = (u32, &Record)> {
        self.list(self.parties[party].first, OF_PARTY)
    }

    fn of_entry(&self, entry: Identity) -> impl Iterator<Item = (u32, &Record)> {
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

    /// A circle through the party, if it is stuck; and with which of its requests that begins.
    fn circle(&mut self, party: u32, request: Option<u32>) -> Option<(Deadlock, u32)> {
        #[cfg(test)]
        {
            self.searches += 1;
        }
        let mut scene = Scene::around(self, party);
        loop {
            let mut after = scene.clone();
            after.reduce();
            if !after.stuck.contains_key(&party) {
                return None;
            }
            let again = Scene::around(self, party);
            if again == scene {
                return after.shortest_circle(self, party, request);
            }
            scene = again;
        }
    }
}

/// What is seen of the queues that a party depends on.
#[derive(Clone, Default, PartialEq)]
struct Scene {
    entries: Vec<Seen>,
    /// Those parties that wait, and how many of their requests do.
    stuck: HashMap<u32, usize>,
}

/// An entry.
#[derive(Clone, PartialEq)]
struct Seen {
    entry: Identity,
    rules: Rules,
    /// Whether a writer holds it, tracked or not.
    writer: bool,
    /// How many writers have left whose readers' phase is over.
    phases: usize,
    /// Who holds it: parties, and what they hold.
    holders: Vec<(u32, Access)>,
    /// As far as anybody in it is tracked.
    queue: Vec<Waiter>,
}

#[derive(Clone, PartialEq)]
struct Waiter {
    queued: Queued,
    /// Its party and its record, if it is tracked.
    tracked: Option<(u32, u32)>,
    /// It gets in when those release who are not stuck.
    gets_in: bool,
}

impl Waiter {
    fn writes(&self) -> bool {
        access_of(self.queued.want) == Access::Exclusive
    }

    /// Whether it keeps what it gets.
    fn keeps(&self, stuck: &HashMap<u32, usize>) -> bool {
        self.tracked.is_some_and(|(party, _)| stuck.contains_key(&party))
    }
}

/// What those hold who are stuck.
#[derive(Clone, Copy, Default)]
struct Held {
    readers: usize,
    upgradable: usize,
    writers: usize,
    permits: usize,
}

impl Held {
    fn add(&mut self, access: Access) {
        match access {
            Access::Shared => self.readers += 1,
            Access::Upgradable => self.upgradable += 1,
            Access::Exclusive => self.writers += 1,
            Access::Permits(amount) => self.permits += amount as usize,
        }
    }

    /// Each by itself, and not as one word has them: in what is foreseen there may be two that cannot be at once.
    fn allows(&self, want: Want, limit: usize) -> bool {
        let kinds = [
            (self.readers, Access::Shared),
            (self.upgradable, Access::Upgradable),
            (self.writers, Access::Exclusive),
            (self.permits, Access::Permits(self.permits.min(limit) as u32)),
        ];
        kinds.into_iter().filter(|(count, _)| *count > 0).all(|(_, access)| Holds::NONE.with(access).allow(want, limit))
    }
}

/// What one has who has got in.
fn access_of(want: Want) -> Access {
    match want {
        Want::Hold(access) => access,
        Want::Upgrade => Access::Exclusive,
    }
}

/// Whether somebody who wants this waits for a holder of that.
fn excludes(want: Want, held: Access) -> bool {
    // No limit is enough for permits: those that others hold are always waited for.
    !Holds::NONE.with(held).allow(want, 0)
}

impl Scene {
    /// What there is to see of all on whom the party depends.
    fn around(registry: &Registry, party: u32) -> Scene {
        let mut scene = Scene::default();
        let mut seen = HashSet::<Identity>::new();
        let mut parties = VecDeque::from([party]);
        let mut met = HashSet::<u32>::from_iter([party]);
        while let Some(party) = parties.pop_front() {
            let mut waits = 0;
            for (_, record) in registry.of_party(party) {
                let What::Waits(wait) = &record.what else { continue };
                if wait.failed.is_some() || wait.place.stand() == Stand::Granted {
                    continue;
                }
                waits += 1;
                if seen.insert(record.entry) {
                    scene.see(registry, record.entry, wait, |other| {
                        if registry.parties[other].waits > 0 && met.insert(other) {
                            parties.push_back(other);
                        }
                    });
                }
            }
            if waits > 0 {
                scene.stuck.insert(party, waits);
            }
        }
        scene
    }

    fn see(&mut self, registry: &Registry, entry: Identity, wait: &Wait, mut meet: impl FnMut(u32)) {
        let rules = *wait.place.rules();
        let mut queue = Vec::new();
        let writer = wait.place.look(|queued| queue.push(Waiter { queued, tracked: None, gets_in: false }));
        let places = queue.iter().enumerate().map(|(at, waiter)| (waiter.queued.ticket, at));
        let places = places.collect::<HashMap<Ticket, usize>>();
        let mut holders = Vec::new();
        let mut gone = Vec::new();
        for (index, record) in registry.of_entry(entry) {
            meet(record.party);
            match &record.what {
                What::Holds(access) => holders.push((record.party, *access)),
                What::Waits(wait) if wait.place.stand() == Stand::Granted => {
                    if wait.failed.is_none() {
                        holders.push((record.party, access_of(wait.want)));
                    }
                }
                What::Waits(wait) => {
                    let Some(&at) = places.get(&wait.place.ticket()) else { continue };
                    match wait.failed {
                        None => queue[at].tracked = Some((record.party, index)),
                        // It is about to leave.
                        Some(_) => gone.push(at),
                    }
                }
            }
        }
        let untracked_upgrade = |waiter: &Waiter| waiter.tracked.is_none() && waiter.queued.want == Want::Upgrade;
        let mut at = 0;
        queue.retain(|waiter| {
            at += 1;
            // It belongs to a holder whom nobody tracks, who is taken to leave.
            !gone.contains(&(at - 1)) && !untracked_upgrade(waiter)
        });
        let end = queue.iter().rposition(|waiter| waiter.tracked.is_some()).map_or(0, |last| last + 1);
        // Behind them it may matter that there is a reader: with one an upgradable reader gets in, too.
        let reader = queue[end..].iter().find(|waiter| waiter.queued.want == READ).cloned();
        queue.truncate(end);
        queue.extend(reader);
        self.entries.push(Seen { entry, rules, writer, phases: 0, holders, queue });
    }

    /// Lets all release who are not stuck, until nothing changes.
    fn reduce(&mut self) {
        loop {
            let mut changed = false;
            for entry in &mut self.entries {
                changed |= entry.let_in(&mut self.stuck);
            }
            self.stuck.retain(|_, waits| *waits > 0);
            if !changed {
                return;
            }
        }
    }

    /// From each party that is stuck to those that it waits for, breadth first.
    fn shortest_circle(&self, registry: &Registry, party: u32, request: Option<u32>) -> Option<(Deadlock, u32)> {
        // Who waits for each party, and by which request, on the way that was found first.
        let mut came_from = HashMap::<u32, (u32, u32, Reason)>::new();
        let mut parties = VecDeque::from([party]);
        while let Some(from) = parties.pop_front() {
            for entry in &self.entries {
                for (at, waiter) in entry.queue.iter().enumerate() {
                    let Some((whose, record)) = waiter.tracked.filter(|_| !waiter.gets_in) else { continue };
                    if whose != from || from == party && request.is_some_and(|request| request != record) {
                        continue;
                    }
                    for (to, reason) in entry.waits_for(at, &self.stuck) {
                        if came_from.contains_key(&to) {
                            continue;
                        }
                        came_from.insert(to, (from, record, reason));
                        if to == party {
                            return Some(self.report(registry, party, &came_from));
                        }
                        parties.push_back(to);
                    }
                }
            }
        }
        None
    }

    fn report(&self, registry: &Registry, party: u32, came_from: &HashMap<u32, (u32, u32, Reason)>) -> (Deadlock, u32) {
        let mut cycle = Vec::new();
        let mut at = party;
        loop {
            let (from, request, reason) = came_from[&at];
            if let What::Waits(wait) = &registry.records[request].what {
                let party = registry.parties[from].name.clone();
                cycle.push(Link { party, key: wait.key.clone(), table: wait.table, reason });
            }
            at = from;
            if at == party {
                cycle.reverse();
                let reentry = cycle.len() == 1 || self.asks_again(registry, request);
                return (Deadlock { cycle, reentry }, request);
            }
        }
    }
}

impl Scene {
    /// Whether the party of this request holds already what it asks for, or asks behind a request of its own that keeps it out.
    fn asks_again(&self, registry: &Registry, request: u32) -> bool {
        let Record { party, entry, .. } = registry.records[request];
        let Some(seen) = self.entries.iter().find(|seen| seen.entry == entry) else { return false };
        let Some(at) = seen.queue.iter().position(|waiter| waiter.tracked == Some((party, request))) else {
            return false;
        };
        let want = seen.queue[at].queued.want;
        // An upgrade continues the one upgradable hold that there is.
        let holds = |&(holder, access)| holder == party && !(want == Want::Upgrade && access == Access::Upgradable);
        let own = |waiter: &Waiter| waiter.tracked.is_some_and(|(other, _)| other == party);
        seen.holders.iter().any(holds)
            || seen.queue[..at].iter().any(|waiter| own(waiter) && excludes(want, access_of(waiter.queued.want)))
    }
}

impl Seen {
    /// Whether one that waits and cannot get in keeps out those behind it.
    fn blocks(&self, want: Want) -> bool {
        self.rules.fairness == Fairness::Fifo || !matches!(want, Want::Hold(Access::Shared | Access::Upgradable))
    }

    /// Lets in who gets in beside those who are stuck. Counts their requests down.
    fn let_in(&mut self, stuck: &mut HashMap<u32, usize>) -> bool {
        let mut held = Held::default();
        for (_, access) in self.holders.iter().filter(|(party, _)| stuck.contains_key(party)) {
            held.add(*access);
        }
        // What they get they keep, as long as they wait for something else.
        for waiter in self.queue.iter().filter(|waiter| waiter.gets_in && waiter.keeps(stuck)) {
            held.add(access_of(waiter.queued.want));
        }
        let phase = self.phase(&held, stuck);
        let (mut changed, mut blocked) = (false, false);
        for at in 0..self.queue.len() {
            let Waiter { queued, tracked, gets_in } = self.queue[at];
            if gets_in {
                continue;
            }
            let turn = if phase.is_empty() { !blocked || queued.passes } else { phase.contains(&at) };
            if !turn || !held.allows(queued.want, self.rules.limit()) {
                blocked |= self.blocks(queued.want);
                continue;
            }
            self.queue[at].gets_in = true;
            changed = true;
            if let Some((party, _)) = tracked {
                if let Some(waits) = stuck.get_mut(&party) {
                    *waits -= 1;
                    held.add(access_of(queued.want));
                }
            }
            if self.queue[at].writes() {
                break; // when it leaves, others may go before those behind it
            }
        }
        changed
    }

    /// Those in the queue who get in before all others because a writer has left. Asked once for each that leaves.
    fn phase(&mut self, held: &Held, stuck: &HashMap<u32, usize>) -> Vec<usize> {
        let left = |waiter: &&Waiter| waiter.gets_in && waiter.writes() && !waiter.keeps(stuck);
        let writers_left = usize::from(self.writer) + self.queue.iter().filter(left).count();
        if !self.rules.hands_over() || held.writers > 0 || writers_left <= self.phases {
            return Vec::new();
        }
        self.phases = writers_left;
        let waiting = |wanted: Want| {
            let waits = move |waiter: &Waiter| !waiter.gets_in && waiter.queued.want == wanted;
            self.queue.iter().enumerate().filter(move |(_, waiter)| waits(waiter)).map(|(at, _)| at)
        };
        let mut phase = waiting(READ).collect::<Vec<_>>();
        let none = self.rules.keeps_nothing_for_the_idle() && phase.is_empty();
        let upgradable = waiting(Want::Hold(Access::Upgradable)).next().filter(|_| held.upgradable == 0 && !none);
        let writer = waiting(Want::Hold(Access::Exclusive)).next();
        if let Some(at) = upgradable {
            let passed = writer.filter(|&writer| writer < at);
            let mark = passed.map(|writer| &mut self.queue[writer].queued.passed_in_phase);
            if !mark.is_some_and(|mark| core::mem::replace(mark, true)) {
                phase.push(at);
            }
        }
        phase
    }

    /// For which parties, of those that are stuck, the waiter in this place waits.
    fn waits_for(&self, at: usize, stuck: &HashMap<u32, usize>) -> Vec<(u32, Reason)> {
        // What is wanted by the waiter itself, and by those before it whom nobody tracks.
        let mut wants = alloc::vec![self.queue[at].queued.want];
        let excluded = |wants: &[Want], held: Access| wants.iter().any(|&want| excludes(want, held));
        let mut before = Vec::new();
        for &Waiter { queued, tracked, gets_in } in self.queue[..at].iter().rev() {
            match tracked {
                _ if gets_in || !self.blocks(queued.want) => {}
                // Readers stand beside each other, and wait for the same.
                _ if queued.want == READ && wants.iter().all(|&want| want == READ) => {}
                Some((party, _)) => before.push((party, Reason::WaitsBefore)),
                None => wants.push(queued.want),
            }
        }
        // Who gets in, and then waits for something else, may stand behind it now.
        for &Waiter { queued, tracked, gets_in } in &self.queue {
            if let Some((party, _)) = tracked.filter(|(party, _)| gets_in && stuck.contains_key(party)) {
                if excluded(&wants, access_of(queued.want)) {
                    before.push((party, Reason::WaitsBefore));
                }
            }
        }
        // Its own permits are a reason only if they are enough to keep it out: else it is those of others as well.
        let own = self.queue[at].tracked.map(|(party, _)| party).filter(|&party| self.leaves_room(at, party));
        let holders = self.holders.iter().filter(|&&(party, access)| {
            let wants = if own == Some(party) { &wants[1..] } else { &wants[..] };
            stuck.contains_key(&party) && excluded(wants, access)
        });
        holders.map(|&(party, _)| (party, Reason::Holds)).chain(before).collect()
    }
}

impl Seen {
    /// Whether the waiter in this place finds enough permits beside those that the party holds.
    fn leaves_room(&self, at: usize, party: u32) -> bool {
        let Want::Hold(wanted @ Access::Permits(_)) = self.queue[at].queued.want else { return false };
        let mut held = Held::default();
        self.holders.iter().filter(|(holder, _)| *holder == party).for_each(|(_, access)| held.add(*access));
        held.allows(Want::Hold(wanted), self.rules.limit())
    }
}

const READ: Want = Want::Hold(Access::Shared);
