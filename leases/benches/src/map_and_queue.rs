//! The obvious code without keylatch-lease: a map of the leases under one mutex, and tokio's queue of delays.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keylatch_lease::{Owner, Resource};
use tokio::runtime::{EnterGuard, Runtime};
use tokio::time::Instant;
use tokio_util::time::{DelayQueue, delay_queue};

/// The least that an acquire and a release need. It supports neither waiting nor sweeping, which would cost more.
pub struct MapAndQueue<S = RandomState> {
    state: Mutex<State<S>>,
    runtime: Runtime,
}

struct State<S> {
    held: HashMap<Resource, Held, S>,
    ends: DelayQueue<Resource>,
    last_token: u64,
}

struct Held {
    owner: Owner,
    token: u64,
    end: Instant,
    timer: delay_queue::Key,
}

impl<S: BuildHasher + Default> Default for MapAndQueue<S> {
    fn default() -> Self {
        let state = State { held: HashMap::default(), ends: DelayQueue::new(), last_token: 0 };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        MapAndQueue { state: Mutex::new(state), runtime: runtime.expect("the system has a clock for the runtime") }
    }
}

impl<S: BuildHasher> MapAndQueue<S> {
    /// Enters the runtime, in which timers must be created.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Acquires a lease, and returns its token; `None` if another owner has it.
    pub fn acquire(&self, resource: Resource, owner: &Owner, ttl: Duration) -> Option<u64> {
        let now = Instant::now();
        let end = now + ttl;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { held, ends, last_token } = &mut *state;
        match held.entry(resource) {
            Entry::Vacant(vacant) => {
                *last_token += 1;
                let timer = ends.insert_at(vacant.key().clone(), end);
                vacant.insert(Held { owner: owner.clone(), token: *last_token, end, timer });
                Some(*last_token)
            }
            Entry::Occupied(mut occupied) => {
                let held = occupied.get_mut();
                let expired = held.end <= now;
                if !expired && held.owner != *owner {
                    return None;
                }
                if expired {
                    *last_token += 1;
                    held.token = *last_token;
                    held.owner = owner.clone();
                }
                held.end = end;
                ends.reset_at(&held.timer, end);
                Some(held.token)
            }
        }
    }

    /// Releases a lease. Returns whether it was this owner's, with this token, and had not expired.
    pub fn release(&self, resource: &Resource, owner: &Owner, token: u64) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { held, ends, .. } = &mut *state;
        // Removed before the checks, so that the resource is hashed only once.
        let Some((resource, old)) = held.remove_entry(resource) else { return false };
        if old.token != token || old.owner != *owner {
            held.insert(resource, old);
            return false;
        }
        ends.remove(&old.timer);
        old.end > now
    }

    pub fn renew(&self, resource: &Resource, owner: &Owner, token: u64, ttl: Duration) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { held, ends, .. } = &mut *state;
        match held.get_mut(resource) {
            Some(held) if held.token == token && held.owner == *owner && held.end > now => {
                held.end = now + ttl;
                ends.reset_at(&held.timer, held.end);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_grants_renews_and_releases_leases() {
        let peer = MapAndQueue::<RandomState>::default();
        let _context = peer.enter();
        let resource = Resource::new("order", "17");
        let [ann, bob] = ["ann", "bob"].map(Owner::named);
        let ttl = Duration::from_secs(60);
        let token = peer.acquire(resource.clone(), &ann, ttl).expect("no owner has the lease");
        assert_eq!(peer.acquire(resource.clone(), &bob, ttl), None);
        assert_eq!(peer.acquire(resource.clone(), &ann, ttl), Some(token));
        assert!(!peer.release(&resource, &bob, token));
        assert!(peer.renew(&resource, &ann, token, ttl));
        assert!(peer.release(&resource, &ann, token));
        assert!(peer.acquire(resource, &bob, ttl) > Some(token));
    }
}
