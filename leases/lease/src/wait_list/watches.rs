//! The watches of a resource.

use core::{task::Waker, time::Duration};

use super::{NONE, Next, WaitList, Watch};
use crate::{Resource, deferred::Deferred, wheel::Links};

/// The methods for watches.
impl WaitList {
    /// Registers this task to be woken when a tenure of the resource has begun or ended, or at `at` if that is earlier.
    /// Returns the number of the watch. If there is a `known` watch, it is replaced and keeps its number.
    pub(crate) fn watch(
        &mut self,
        resource: &Resource,
        known: Option<u32>,
        at: Option<Duration>,
        waker: Waker,
        deferred: &mut Deferred,
    ) -> u32 {
        let (id, old) = match known {
            Some(id) => {
                let watch = &mut self.watches[id];
                deferred.bury_waker(watch.waker.replace(waker));
                (id, core::mem::replace(&mut watch.at, at))
            }
            None => {
                let place = self.find_or_make(resource);
                let first = self.places[place].watches;
                let next = Next { before: NONE, behind: first };
                let id = self.watches.insert(Watch { place, at, waker: Some(waker), next, links: Links::new() });
                self.places[place].watches = id;
                if first != NONE {
                    self.watches[first].next.before = id;
                }
                (id, None)
            }
        };
        self.alarms.reschedule(&mut self.watches, id, old);
        id
    }

    /// Returns whether the task of a watch has been woken, or is about to be, since it was registered.
    pub(crate) fn has_woken(&self, id: u32) -> bool {
        self.watches[id].waker.is_none()
    }

    pub(crate) fn unwatch(&mut self, id: u32, deferred: &mut Deferred) {
        self.alarms.remove(&mut self.watches, id);
        let Watch { place, waker, next: Next { before, behind }, .. } = self.watches.remove(id);
        deferred.bury_waker(waker);
        if behind != NONE {
            self.watches[behind].next.before = before;
        }
        match before {
            NONE => self.places[place].watches = behind,
            before => self.watches[before].next.behind = behind,
        }
        self.vacate(place);
    }

    /// Wakes the watches of a resource of which a tenure has begun or ended.
    pub(crate) fn ended(&mut self, place: u32, deferred: &mut Deferred) {
        let mut next = self.places[place].watches;
        while next != NONE {
            let watch = &mut self.watches[next];
            deferred.wake(watch.waker.take());
            next = watch.next.behind;
        }
    }
}
