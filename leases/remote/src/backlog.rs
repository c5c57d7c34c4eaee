//! The abandoned tenures that have not been released yet.

use std::collections::{HashMap, VecDeque};

use keylatch_lease::{Owner, Resource};

use crate::tenure::Tenure;

/// The number of failed attempts to release a tenure, after which the driver gives up.
const TRIES: u32 = 100;

/// A tenure to be released, and the number of failed attempts.
pub(crate) struct Abandoned {
    pub(crate) tenure: Tenure,
    id: u64,
    tries: u32,
}

/// All abandoned tenures, including those that are being released.
#[derive(Default)]
pub(crate) struct Backlog {
    queue: VecDeque<Abandoned>,
    of: HashMap<Resource, Vec<Entry>>,
    last: u64,
}

struct Entry {
    id: u64,
    owner: Owner,
    /// The operations that wait until the tenure has been released.
    waiting: Vec<u64>,
}

impl Backlog {
    pub(crate) fn add(&mut self, tenure: Tenure) {
        self.last += 1;
        let entry = Entry { id: self.last, owner: tenure.owner.clone(), waiting: Vec::new() };
        self.of.entry(tenure.resource.clone()).or_default().push(entry);
        self.queue.push_back(Abandoned { tenure, id: self.last, tries: 0 });
    }

    /// Takes the next tenure to release. The caller returns it with [`done`](Self::done) or
    /// [`put_back`](Self::put_back).
    pub(crate) fn next(&mut self) -> Option<Abandoned> {
        self.queue.pop_front()
    }

    pub(crate) fn has_next(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Puts a tenure that could not be released back into the queue. After too many attempts, drops it instead, and
    /// returns the operations that waited for it.
    pub(crate) fn put_back(&mut self, abandoned: Abandoned) -> Vec<u64> {
        if abandoned.tries + 1 >= TRIES {
            return self.done(abandoned);
        }
        self.queue.push_back(Abandoned { tries: abandoned.tries + 1, ..abandoned });
        Vec::new()
    }

    /// Forgets a tenure that has been released or given up on. Returns the operations that waited for it.
    pub(crate) fn done(&mut self, Abandoned { tenure: Tenure { resource, .. }, id, .. }: Abandoned) -> Vec<u64> {
        let Some(entries) = self.of.get_mut(&resource) else { return Vec::new() };
        let Some(at) = entries.iter().position(|entry| entry.id == id) else { return Vec::new() };
        let waiting = entries.swap_remove(at).waiting;
        if entries.is_empty() {
            self.of.remove(&resource);
        }
        waiting
    }

    /// Returns the ID of this owner's last tenure of the resource that has not been released.
    pub(crate) fn last_of(&self, resource: &Resource, owner: &Owner) -> Option<u64> {
        self.of.get(resource)?.iter().filter(|entry| entry.owner == *owner).map(|entry| entry.id).max()
    }

    /// Returns whether a tenure of this owner, with an ID of at most `last`, has not been released yet. If so,
    /// registers the operation `who` to be woken when that tenure has been released. Repeated calls register it only
    /// once.
    pub(crate) fn keeps_waiting(&mut self, resource: &Resource, owner: &Owner, last: u64, who: u64) -> bool {
        let mut entries = self.of.get_mut(resource).into_iter().flatten();
        let Some(entry) = entries.find(|entry| entry.owner == *owner && entry.id <= last) else { return false };
        if !entry.waiting.contains(&who) {
            entry.waiting.push(who);
        }
        true
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.of.clear();
    }
}

#[cfg(test)]
mod tests {
    use keylatch_lease::{Owner, Resource, Token};

    use super::{Backlog, TRIES};
    use crate::tenure::Tenure;

    fn tenure(owner: &Owner) -> Tenure {
        Tenure { resource: Resource::from("r"), owner: owner.clone(), token: Token::new(1).unwrap() }
    }

    #[test]
    fn an_operation_waits_only_for_earlier_tenures_of_its_owner() {
        let mut backlog = Backlog::default();
        let (r, ann, bob) = (Resource::from("r"), Owner::named("ann"), Owner::named("bob"));
        backlog.add(tenure(&bob));
        assert_eq!(backlog.last_of(&r, &ann), None);
        backlog.add(tenure(&ann));
        let last = backlog.last_of(&r, &ann).unwrap();
        backlog.add(tenure(&ann)); // after the operation has begun to wait
        assert!(backlog.keeps_waiting(&r, &ann, last, 7));
        assert!(backlog.keeps_waiting(&r, &ann, last, 7));
        let bobs = backlog.next().unwrap();
        assert!(backlog.done(bobs).is_empty());
        let anns = backlog.next().unwrap();
        assert!(backlog.put_back(anns).is_empty()); // it is queued behind the later one
        let _later = backlog.next().unwrap();
        let anns = backlog.next().unwrap();
        assert_eq!(backlog.done(anns), [7]);
        assert!(!backlog.keeps_waiting(&r, &ann, last, 7));
    }

    #[test]
    fn an_operation_stops_waiting_when_a_release_is_given_up() {
        let mut backlog = Backlog::default();
        let (r, ann) = (Resource::from("r"), Owner::named("ann"));
        backlog.add(tenure(&ann));
        let last = backlog.last_of(&r, &ann).unwrap();
        for _ in 1..TRIES {
            assert!(backlog.keeps_waiting(&r, &ann, last, 7));
            let anns = backlog.next().unwrap();
            assert!(backlog.put_back(anns).is_empty());
        }
        let anns = backlog.next().unwrap();
        assert_eq!(backlog.put_back(anns), [7]);
        assert!(!backlog.has_next());
        assert!(backlog.of.is_empty());
    }
}
