//! The search for a cycle.
//!
//! # When a party is stuck
//! By the definition in the docs of the module `deadlock`, all parties that do not wait, and all untracked holders,
//! release their holds; the queues admit the waiters that can get in; and this is repeated until nothing changes. A
//! party that still waits is stuck. The search simulates this only for the parties on which the party in question
//! depends, directly or through others. Before that party began to wait, none of them was stuck, because that would
//! have been found earlier. So if that party is stuck now, it is on a cycle of stuck parties, and no party is stuck
//! any more when its request is removed. (A request that passes others by its priority may change the order in which
//! they will get in, so that one of them will complete a cycle. The cycle is found when that one gets in.)
//!
//! The search takes pictures of the queues, one after another, while untracked requests come and go. If the pictures
//! show that the party can proceed, it can: a stuck request stays in its place, and every picture of its queue would
//! show that nothing admits it. The party counts as stuck only if a second reading of the queues in which the stuck
//! parties wait shows the same: then all of it was true at some moment between the two readings.
//!
//! # What it costs
//! A search holds the lock for a time proportional to the number of waiters and holders that it visits: each is
//! admitted at most once, and is not examined again after it has been admitted or found to be stuck.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::task::Waker;

use hashbrown::{HashMap, HashSet};

use super::registry::{Record, Registry, Wait, What};
use super::report::{Deadlock, Link, Reason};
use crate::core::slab::NONE;
use crate::core::{Access, Holds, Identity, PlaceState, Queued, Rules, Ticket, Want};
use crate::fairness::Fairness;

impl Registry {
    /// Returns the cycle that a request completes by beginning to wait, if there is one. If the request will get in
    /// instead, and so completes cycles with other requests of its party, those other requests fail.
    pub(super) fn closes(&mut self, record: u32, wakers: &mut Vec<Waker>) -> Option<Deadlock> {
        let party = self.records[record].party;
        while self.can_be_waited_for(party, record) && self.is_waited_for(party, record) {
            let (deadlock, request) = self
                .cycle(party, Some(record))
                .or_else(|| self.others_wait(party).then(|| self.cycle(party, None))?)?;
            if request == record {
                return Some(deadlock);
            }
            self.fail(request, deadlock, wakers);
        }
        None
    }

    /// Returns whether more than one request of the party waits.
    fn others_wait(&self, party: u32) -> bool {
        self.parties[party].waits > 1
    }

    /// Handles a hold that the party has acquired while its other requests wait: for each cycle that this completes,
    /// one of these requests fails. Adds the wakers of the failed requests to `wakers`.
    pub(super) fn got_in(&mut self, party: u32, wakers: &mut Vec<Waker>) {
        while self.parties[party].waits > 0 && self.is_waited_for(party, NONE) {
            let Some((deadlock, request)) = self.cycle(party, None) else { return };
            self.fail(request, deadlock, wakers);
        }
    }

    fn fail(&mut self, request: u32, deadlock: Deadlock, wakers: &mut Vec<Waker>) {
        let wait = self.wait_mut(request);
        wait.failed = Some(deadlock);
        wakers.extend(wait.waker.take());
    }

    /// Returns a cycle through the party, if it is stuck, and the request of the party with which the cycle begins.
    fn cycle(&mut self, party: u32, request: Option<u32>) -> Option<(Deadlock, u32)> {
        #[cfg(test)]
        {
            self.searches += 1;
        }
        let mut before = None;
        loop {
            let scene = Scene::around(self, party);
            let mut after = scene.clone();
            after.reduce(party);
            if !after.stuck.contains_key(&party) {
                return None;
            }
            let seen = Some(scene.of_stuck(&after.stuck));
            if seen == before {
                return after.shortest_cycle(self, party, request);
            }
            before = seen;
        }
    }
}

/// A picture of the queues that a party depends on.
#[derive(Clone, Default, PartialEq)]
struct Scene {
    entries: Vec<Seen>,
    /// The waiting parties, each with the number of its waiting requests.
    stuck: HashMap<u32, usize>,
}

/// The picture of one entry.
#[derive(Clone, PartialEq)]
struct Seen {
    entry: Identity,
    rules: Rules,
    /// Whether a writer, tracked or not, holds the entry.
    writer: bool,
    /// The entry's tracked holders: each party, and the access of its hold.
    holders: Vec<(u32, Access)>,
    /// The queue, up to the last tracked waiter, and one reader behind that waiter, if there is one.
    queue: Vec<Waiter>,
    foreseen: Foreseen,
}

/// The changes of an entry during the simulation.
#[derive(Clone, Default, PartialEq)]
struct Foreseen {
    /// The holds of stuck parties.
    held: Held,
    /// The number of writers that have left.
    left: usize,
    /// The number of these writers whose readers' phase has been simulated.
    phases: usize,
    /// For each [`Class`], the place before which every waiter of the class is known to get in.
    passed: [usize; 3],
    /// The places of waiters that take hand-offs although others before them cannot get in.
    passing: Vec<usize>,
}

/// A class of waiters. Apart from hand-offs and readers' phases, the waiters of a class are admitted in the order of
/// the queue.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Reader,
    Upgradable,
    /// A waiter that keeps out all waiters behind it, if it cannot get in.
    Blocks,
}

/// The holds that stuck parties have, by party: the entry, the access, and whether the hold was acquired during the
/// simulation.
type Kept = HashMap<u32, Vec<(usize, Access, bool)>>;

#[derive(Clone, PartialEq)]
struct Waiter {
    queued: Queued,
    /// The waiter's party and record, if it is tracked.
    tracked: Option<(u32, u32)>,
    /// Whether the waiter gets in when the parties that are not stuck release their holds.
    gets_in: bool,
}

/// The holds of stuck parties.
#[derive(Clone, Copy, Default, PartialEq)]
struct Held {
    readers: usize,
    upgradable: usize,
    writers: usize,
    permits: usize,
}

impl Held {
    fn add(&mut self, access: Access) {
        let (count, amount) = self.count(access);
        *count += amount;
    }

    fn remove(&mut self, access: Access) {
        let (count, amount) = self.count(access);
        *count -= amount;
    }

    fn count(&mut self, access: Access) -> (&mut usize, usize) {
        match access {
            Access::Shared => (&mut self.readers, 1),
            Access::Upgradable => (&mut self.upgradable, 1),
            Access::Exclusive => (&mut self.writers, 1),
            Access::Permits(amount) => (&mut self.permits, amount as usize),
        }
    }

    /// Returns whether a waiter with this want can get in beside these holds. They are counted separately, and not in
    /// one word, because foreseen holds may be incompatible with each other.
    fn allows(&self, want: Want, limit: usize) -> bool {
        let kinds = [
            (self.readers, Access::Shared),
            (self.upgradable, Access::Upgradable),
            (self.writers, Access::Exclusive),
            (self.permits, Access::Permits(self.permits as u32)),
        ];
        if matches!(want, Want::Hold(Access::Permits(_))) && limit == 0 {
            return true; // the request waits for a call that raises the limit, not for a holder
        }
        kinds.into_iter().filter(|(count, _)| *count > 0).all(|(_, access)| Holds::NONE.with(access).allow(want, limit))
    }
}

/// Returns the access that a waiter with this want has once it has got in.
fn access_of(want: Want) -> Access {
    match want {
        Want::Hold(access) => access,
        Want::Upgrade => Access::Exclusive,
    }
}

/// Returns whether a waiter with the want `want` has to wait for a holder with the access `held`.
fn excludes(want: Want, held: Access) -> bool {
    // With a limit of 0, a request for permits counts as waiting for every holder of permits.
    !Holds::NONE.with(held).allow(want, 0)
}

impl Scene {
    /// Collects the picture of everything that the party depends on.
    fn around(registry: &Registry, party: u32) -> Scene {
        let mut scene = Scene::default();
        let mut seen = HashSet::<Identity>::new();
        let mut parties = VecDeque::from([party]);
        let mut met = HashSet::<u32>::from_iter([party]);
        while let Some(party) = parties.pop_front() {
            let mut waits = 0;
            for (_, record) in registry.of_party(party) {
                let What::Waits(wait) = &record.what else { continue };
                if wait.failed.is_some() || wait.place.state() == PlaceState::Granted {
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
        let mut queue = Vec::new();
        let (rules, writer) = wait.place.look(|queued| queue.push(Waiter { queued, tracked: None, gets_in: false }));
        let places = queue.iter().enumerate().map(|(at, waiter)| (waiter.queued.ticket, at));
        let places = places.collect::<HashMap<Ticket, usize>>();
        let mut holders = Vec::new();
        let mut gone = HashSet::new();
        for (index, record) in registry.of_entry(entry) {
            meet(record.party);
            match &record.what {
                What::Holds(held) => holders.push((record.party, held.access)),
                What::Waits(wait) if wait.place.state() == PlaceState::Granted => {
                    if wait.failed.is_none() {
                        holders.push((record.party, access_of(wait.want)));
                    }
                }
                What::Waits(wait) => {
                    let Some(&at) = places.get(&wait.place.ticket()) else { continue };
                    match wait.failed {
                        None => queue[at].tracked = Some((record.party, index)),
                        // A request that has failed is about to leave the queue.
                        Some(_) => drop(gone.insert(at)),
                    }
                }
            }
        }
        let untracked_upgrade = |waiter: &Waiter| waiter.tracked.is_none() && waiter.queued.want == Want::Upgrade;
        let mut at = 0;
        queue.retain(|waiter| {
            at += 1;
            // An untracked upgrade belongs to an untracked holder, which is assumed to leave.
            !gone.contains(&(at - 1)) && !untracked_upgrade(waiter)
        });
        let end = queue.iter().rposition(|waiter| waiter.tracked.is_some()).map_or(0, |last| last + 1);
        // One reader behind the last tracked waiter is kept, because it may matter to the tracked waiters that there is
        // one: an upgradable reader gets in together with readers.
        let readers = queue[end..].iter().filter(|waiter| waiter.queued.want == READ);
        let reader = readers.max_by_key(|waiter| waiter.queued.turn.priority()).cloned();
        queue.truncate(end);
        queue.extend(reader);
        self.entries.push(Seen { entry, rules, writer, holders, queue, foreseen: Foreseen::default() });
    }

    /// Returns the picture of the entries in which stuck parties wait. Whether these parties are stuck depends on
    /// nothing else.
    fn of_stuck(mut self, stuck: &HashMap<u32, usize>) -> Vec<Seen> {
        let is_stuck = |waiter: &Waiter| waiter.tracked.is_some_and(|(party, _)| stuck.contains_key(&party));
        self.entries.retain(|seen| seen.queue.iter().any(is_stuck));
        self.entries
    }

    /// Simulates that all parties that are not stuck release their holds, until nothing changes any more, or until
    /// `party` is no longer stuck.
    fn reduce(&mut self, party: u32) {
        let Scene { entries, stuck } = self;
        let mut kept = Kept::new();
        for (at, entry) in entries.iter_mut().enumerate() {
            for (holder, access) in entry.holders.iter().filter(|(holder, _)| stuck.contains_key(holder)) {
                entry.foreseen.held.add(*access);
                kept.entry(*holder).or_default().push((at, *access, false));
            }
            entry.foreseen.left = usize::from(entry.writer);
            let passing = entry.queue.iter().enumerate().filter(|(_, waiter)| waiter.queued.passes);
            entry.foreseen.passing = passing.map(|(at, _)| at).collect();
        }
        let mut changed = (0..entries.len()).collect::<Vec<_>>();
        let mut free = Vec::new();
        while let Some(at) = changed.pop() {
            entries[at].let_in(at, stuck, &mut kept, &mut free);
            if !free.is_empty() {
                changed.push(at);
            }
            while let Some(party) = free.pop() {
                for (at, access, waited) in kept.remove(&party).into_iter().flatten() {
                    let Foreseen { held, left, .. } = &mut entries[at].foreseen;
                    held.remove(access);
                    *left += usize::from(waited && access == Access::Exclusive);
                    changed.push(at);
                }
            }
            if !stuck.contains_key(&party) {
                return;
            }
        }
    }

    /// Returns a shortest cycle through the party, and the request with which it begins. Searches breadth first, from
    /// stuck parties to the parties that they wait for.
    fn shortest_cycle(&self, registry: &Registry, party: u32, request: Option<u32>) -> Option<(Deadlock, u32)> {
        let mut waits = HashMap::<u32, Vec<(usize, usize, u32)>>::new();
        for (entry, seen) in self.entries.iter().enumerate() {
            for (at, waiter) in seen.queue.iter().enumerate().filter(|(_, waiter)| !waiter.gets_in) {
                if let Some((party, record)) = waiter.tracked {
                    waits.entry(party).or_default().push((entry, at, record));
                }
            }
        }
        // For each entry and each kind of want, the place up to which the queue has been followed: the waiters up to
        // that place wait for no further party.
        let mut followed = HashMap::<(usize, Kind), usize>::new();
        // For each party, the party that waits for it on the path that was found first, with its request and the
        // reason.
        let mut came_from = HashMap::<u32, (u32, u32, Reason)>::new();
        let mut parties = VecDeque::from([party]);
        while let Some(from) = parties.pop_front() {
            for &(entry, at, record) in waits.get(&from).into_iter().flatten() {
                if from == party && request.is_some_and(|request| request != record) {
                    continue;
                }
                let seen = &self.entries[entry];
                let kind = Kind::of(seen.queue[at].queued.want);
                let is_followed = |kind| followed.get(&(entry, kind)).is_some_and(|&end| at <= end);
                if is_followed(kind) || is_followed(Kind::Excludes) {
                    continue;
                }
                // The party's own permits are a reason only if they alone would keep the waiter out. Otherwise the
                // waiter waits for the permits of others.
                let has_room = seen.leaves_room(at, from);
                for (to, reason) in seen.waits_for(at, has_room.then_some(from), &self.stuck) {
                    if came_from.contains_key(&to) {
                        continue;
                    }
                    came_from.insert(to, (from, record, reason));
                    if to == party {
                        return Some(self.report(registry, party, &came_from));
                    }
                    parties.push_back(to);
                }
                if !has_room && kind != Kind::Upgrade {
                    followed.insert((entry, kind), at);
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
                let entry = registry.records[request].entry;
                let holds = registry.of_entry(entry).filter(|(_, record)| record.party == at);
                let holder = holds.filter(|_| reason == Reason::Holds).find_map(|(_, record)| match &record.what {
                    What::Holds(held) => held.holder(),
                    What::Waits(_) => None,
                });
                cycle.push(Link { party, key: wait.key(), table: wait.table, reason, holder });
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
    /// Returns whether the party of this request already holds the key, or requests it behind an earlier request of its
    /// own that keeps it out.
    fn asks_again(&self, registry: &Registry, request: u32) -> bool {
        let Record { party, entry, .. } = registry.records[request];
        let Some(seen) = self.entries.iter().find(|seen| seen.entry == entry) else { return false };
        let Some(at) = seen.queue.iter().position(|waiter| waiter.tracked == Some((party, request))) else {
            return false;
        };
        let want = seen.queue[at].queued.want;
        // An upgrade does not wait for the party's own upgradable hold, but turns it into an exclusive one.
        let holds = |&(holder, access)| holder == party && !(want == Want::Upgrade && access == Access::Upgradable);
        let own = |waiter: &Waiter| waiter.tracked.is_some_and(|(other, _)| other == party);
        seen.holders.iter().any(holds)
            || seen.queue[..at].iter().any(|waiter| own(waiter) && excludes(want, access_of(waiter.queued.want)))
    }
}

impl Seen {
    /// Returns whether a waiter that cannot get in keeps out those behind it.
    fn blocks(&self, want: Want) -> bool {
        self.rules.fairness == Fairness::Fifo || !matches!(want, Want::Hold(Access::Shared | Access::Upgradable))
    }

    /// Admits the waiters that get in beside the holds of stuck parties, and counts down the waiting requests of their
    /// parties. A party whose last request gets in is added to `free`. The function then returns before it admits a
    /// waiter that blocks others, because the holds of that party have to be released first.
    fn let_in(&mut self, entry: usize, stuck: &mut HashMap<u32, usize>, kept: &mut Kept, free: &mut Vec<u32>) {
        let mut enter = |seen: &mut Seen, at: usize, free: &mut Vec<u32>| {
            let Waiter { queued, tracked, ref mut gets_in } = seen.queue[at];
            *gets_in = true;
            let access = access_of(queued.want);
            // Parties that also wait elsewhere keep what they get.
            if let Some((party, waits)) = tracked.and_then(|(party, _)| Some((party, stuck.get_mut(&party)?))) {
                *waits -= 1;
                if *waits > 0 {
                    kept.entry(party).or_default().push((entry, access, true));
                    seen.foreseen.held.add(access);
                    return;
                }
                stuck.remove(&party);
                free.push(party);
            }
            seen.foreseen.left += usize::from(access == Access::Exclusive);
        };
        while self.foreseen.held.writers == 0 && free.is_empty() {
            let phase = self.phase();
            if !phase.is_empty() {
                phase.into_iter().for_each(|at| enter(self, at, free));
                continue;
            }
            let first = self.next(Class::Blocks);
            let before = |at: &usize| first.is_none_or(|first| *at < first);
            while let Some(at) = self.next(Class::Reader).filter(before) {
                enter(self, at, free);
            }
            while self.foreseen.held.upgradable == 0 {
                let Some(at) = self.next(Class::Upgradable).filter(before) else { break };
                enter(self, at, free);
            }
            if !free.is_empty() {
                return;
            }
            let Some(first) = first else { return };
            if self.has_room(first) {
                enter(self, first, free);
                continue;
            }
            let mut passing = core::mem::take(&mut self.foreseen.passing);
            passing.retain(|&at| !self.queue[at].gets_in);
            let passes = passing.iter().copied().find(|&at| at > first && self.has_room(at));
            self.foreseen.passing = passing;
            let Some(at) = passes else { return };
            enter(self, at, free);
        }
    }

    fn has_room(&self, at: usize) -> bool {
        self.foreseen.held.allows(self.queue[at].queued.want, self.rules.limit())
    }

    fn class(&self, want: Want) -> Class {
        match want {
            _ if self.blocks(want) => Class::Blocks,
            READ => Class::Reader,
            _ => Class::Upgradable,
        }
    }

    /// Returns the place of the first waiter of this class that is not known to get in.
    fn next(&mut self, class: Class) -> Option<usize> {
        let from = self.foreseen.passed[class as usize];
        let waits = |waiter: &Waiter| !waiter.gets_in && self.class(waiter.queued.want) == class;
        let end = self.queue[from..].iter().position(waits).map_or(self.queue.len(), |at| from + at);
        self.foreseen.passed[class as usize] = end;
        (end < self.queue.len()).then_some(end)
    }

    /// Returns the waiters that a readers' phase admits, if the policy has phases and a writer has left since the last
    /// one.
    fn phase(&mut self) -> Vec<usize> {
        let mut phase = Vec::new();
        let Foreseen { held, left, phases, .. } = &mut self.foreseen;
        if !self.rules.hands_over() || *left <= *phases {
            return phase;
        }
        *phases = *left;
        let is_free = held.upgradable == 0;
        let is_writer = |waiter: &Waiter| waiter.queued.want == Want::Hold(Access::Exclusive);
        let blocks = self.next(Class::Blocks).unwrap_or(self.queue.len());
        let rival = self.queue[blocks..].iter().find(|waiter| !waiter.gets_in && is_writer(waiter));
        let rival = rival.map(|writer| writer.queued.turn);
        let joins = |waiter: &Waiter| rival.is_none_or(|rival| waiter.queued.turn.joins_phase_before(rival));
        if let Some(first) = self.next(Class::Reader) {
            let reads = |waiter: &Waiter| !waiter.gets_in && waiter.queued.want == READ && joins(waiter);
            phase.extend((first..self.queue.len()).filter(|&at| reads(&self.queue[at])));
        }
        let none = self.rules.keeps_nothing_for_the_idle() && phase.is_empty();
        let upgradable = self.next(Class::Upgradable).filter(|&at| is_free && !none && joins(&self.queue[at]));
        if let Some(at) = upgradable {
            let first = blocks.min(at);
            let writer = self.queue[first..at].iter_mut().find(|waiter| !waiter.gets_in && is_writer(waiter));
            let mark = writer.map(|writer| &mut writer.queued.passed_in_phase);
            if !mark.is_some_and(|mark| core::mem::replace(mark, true)) {
                phase.push(at);
            }
        }
        phase
    }

    /// Returns the stuck parties for which the waiter in this place waits. The holds of the party `own` do not keep out
    /// its own request.
    fn waits_for(&self, at: usize, own: Option<u32>, stuck: &HashMap<u32, usize>) -> Vec<(u32, Reason)> {
        // The accesses wanted by the waiter itself, and by untracked waiters before it.
        let mut wants = alloc::vec![self.queue[at].queued.want];
        let excluded = |wants: &[Want], held: Access| wants.iter().any(|&want| excludes(want, held));
        let mut before = Vec::new();
        for &Waiter { queued, tracked, gets_in } in self.queue[..at].iter().rev() {
            match tracked {
                _ if gets_in || !self.blocks(queued.want) => {}
                // Readers do not exclude each other, and wait for the same parties.
                _ if queued.want == READ && wants.iter().all(|&want| want == READ) => {}
                Some((party, _)) => before.push((party, Reason::WaitsBefore)),
                None if wants[1..].iter().any(|&want| Kind::of(want) == Kind::of(queued.want)) => {}
                None => wants.push(queued.want),
            }
        }
        // A request that gets in while its party waits elsewhere keeps this waiter out, even if it is behind this
        // waiter in the queue now.
        for &Waiter { queued, tracked, gets_in } in &self.queue {
            if let Some((party, _)) = tracked.filter(|(party, _)| gets_in && stuck.contains_key(party)) {
                if excluded(&wants, access_of(queued.want)) {
                    before.push((party, Reason::WaitsBefore));
                }
            }
        }
        let holders = self.holders.iter().filter(|&&(party, access)| {
            let wants = if own == Some(party) { &wants[1..] } else { &wants[..] };
            stuck.contains_key(&party) && excluded(wants, access)
        });
        holders.map(|&(party, _)| (party, Reason::Holds)).chain(before).collect()
    }
}

impl Seen {
    /// Returns whether the waiter in this place wants permits, and finds enough of them beside those that the party
    /// holds.
    fn leaves_room(&self, at: usize, party: u32) -> bool {
        let Want::Hold(wanted @ Access::Permits(_)) = self.queue[at].queued.want else { return false };
        let mut held = Held::default();
        self.holders.iter().filter(|(holder, _)| *holder == party).for_each(|(_, access)| held.add(*access));
        held.allows(Want::Hold(wanted), self.rules.limit())
    }
}

/// A want without its number of permits: all waiters of one kind wait for the same parties.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Reads,
    Upgradable,
    /// Waits for all holders.
    Excludes,
    /// Waits for all holds, except for its own upgradable one.
    Upgrade,
}

impl Kind {
    fn of(want: Want) -> Self {
        match want {
            READ => Kind::Reads,
            Want::Hold(Access::Upgradable) => Kind::Upgradable,
            Want::Hold(Access::Exclusive | Access::Permits(_)) => Kind::Excludes,
            Want::Upgrade => Kind::Upgrade,
        }
    }
}

const READ: Want = Want::Hold(Access::Shared);
