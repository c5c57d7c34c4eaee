//! Tenures that were dropped, until they have been given back.

use std::collections::{HashMap, VecDeque};

use keylatch_lease::{Owner, Resource};

use crate::tenure::Tenure;

/// The number of failed releases of a tenure before it is given up.
const TRIES: u32 = 100;

/// A tenure to be given back, and how often that was tried in vain.
pub(crate) struct Abandoned {
    pub(crate) tenure: Tenure,
    id: u64,
    tries: u32,
}

/// All of them, those that are being given back included.
#[derive(Default)]
pub(crate) struct Backlog {
    queue: VecDeque<Abandoned>,
    of: HashMap<Resource, Vec<Entry>>,
    last: u64,
}

struct Entry {
    id: u64,
    owner: Owner,
    /// The tasks that wait until it has been released.
    waiting: Vec<u64>,
}

impl Backlog {
    pub(crate) fn add(&mut self, tenure: Tenure) {
        self.last += 1;
        let entry = Entry { id: self.last, owner: tenure.owner.clone(), waiting: Vec::new() };
        self.of.entry(tenure.resource.clone()).or_default().push(entry);
        self.queue.push_back(Abandoned { tenure, id: self.last, tries: 0 });
    }

    /// The next to be given back. It comes back by [`done`](Self::done), or [`put_back`](Self::put_back).
    pub(crate) fn next(&mut self) -> Option<Abandoned> {
        self.queue.pop_front()
    }

    pub(crate) fn has_next(&self) -> bool {
        !self.queue.is_empty()
    }

    /// It could not be given back. Gives back who waited for it, if it will not be tried again.
    pub(crate) fn put_back(&mut self, abandoned: Abandoned) -> Vec<u64> {
        if abandoned.tries + 1 >= TRIES {
            return self.done(abandoned);
        }
        self.queue.push_back(Abandoned { tries: abandoned.tries + 1, ..abandoned });
        Vec::new()
    }

    /// It has been given back. Gives back who waited for that.
    pub(crate) fn done(&mut self, Abandoned { tenure: Tenure { resource, .. }, id, .. }: Abandoned) -> Vec<u64> {
        let Some(entries) = self.of.get_mut(&resource) else { return Vec::new() };
        let Some(at) = entries.iter().position(|entry| entry.id == id) else { return Vec::new() };
        let waiting = entries.swap_remove(at).waiting;
        if entries.is_empty() {
            self.of.remove(&resource);
        }
        waiting
    }

    /// The last tenure of this owner that has not been given back.
    pub(crate) fn last_of(&self, resource: &Resource, owner: &Owner) -> Option<u64> {
        self.of.get(resource)?.iter().filter(|entry| entry.owner == *owner).map(|entry| entry.id).max()
    }

    /// Whether there is one up to that. `who` waits for it then, once for all times that it asks.
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
    fn who_waits_does_so_for_what_was_there_before_and_of_its_owner() {
        let mut backlog = Backlog::default();
        let (r, ann, bob) = (Resource::from("r"), Owner::named("ann"), Owner::named("bob"));
        backlog.add(tenure(&bob));
        assert_eq!(backlog.last_of(&r, &ann), None);
        backlog.add(tenure(&ann));
        let last = backlog.last_of(&r, &ann).unwrap();
        backlog.add(tenure(&ann)); // later
        assert!(backlog.keeps_waiting(&r, &ann, last, 7));
        assert!(backlog.keeps_waiting(&r, &ann, last, 7));
        let bobs = backlog.next().unwrap();
        assert!(backlog.done(bobs).is_empty());
        let anns = backlog.next().unwrap();
        assert!(backlog.put_back(anns).is_empty()); // behind the later one
        let _later = backlog.next().unwrap();
        let anns = backlog.next().unwrap();
        assert_eq!(backlog.done(anns), [7]);
        assert!(!backlog.keeps_waiting(&r, &ann, last, 7));
    }

    #[test]
    fn what_cannot_be_given_back_is_waited_for_no_longer_than_it_is_tried() {
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
