//! The tenures that are renewed, and who renews them together.
//!
//! Whoever renews a lease on an engine elsewhere takes others of this process along that are due soon: one request for all. Nobody depends
//! on that. Those who were taken along come when they would have come anyway, or a moment later, and see that they have been renewed; or
//! they have not been, for whatever reason, and ask themselves.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::time::Duration;

use crate::{Grant, Lost, Owner, Resource, Token, sync::Mutex};

/// How many go in one request, at most.
const TOGETHER: usize = 256;

/// After each time that it was in vain so many times fewer: in the end one alone.
const FEWER: u32 = 8;

/// What a [`Held`](crate::Held) shares with the futures that renew it.
pub(crate) struct Tenure {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) state: Mutex<State>,
}

pub(crate) struct State {
    /// As it was renewed last.
    pub(crate) grant: Grant,
    /// When that was asked for.
    pub(crate) renewed: Duration,
    /// Somebody else asks for it, or has asked in vain.
    pub(crate) is_along: bool,
    /// The Held has ended, or an engine in another process has said that the lease is lost.
    pub(crate) over: Option<Lost>,
}

impl Tenure {
    pub(crate) fn new(grant: Grant) -> Self {
        Tenure {
            resource: grant.resource.clone(),
            owner: grant.owner.clone(),
            token: grant.token,
            state: Mutex::new(State { renewed: grant.start, grant, is_along: false, over: None }),
        }
    }

    /// It was renewed up to this end, which was asked for then. What is over at the moment, by `now`, is not renewed.
    pub(crate) fn renewed(&self, end: Option<Duration>, asked: Duration, now: Option<Duration>) {
        let mut state = self.state.lock();
        let is_over = |end: Duration| now.is_some_and(|now| end <= now);
        if state.grant.end.is_some_and(is_over) {
            return;
        }
        // Another renewal may have been faster.
        state.grant.end = end.zip(state.grant.end).map(|(new, old)| new.max(old));
        state.renewed = state.renewed.max(asked);
        state.is_along = false;
    }
}

/// When a tenure is due, and which it is of those.
pub(crate) type Place = (Duration, u64);

/// Those who are to be renewed, by when they are.
pub(crate) struct Roster {
    due: BTreeMap<Place, Arc<Tenure>>,
    last: u64,
}

impl Roster {
    pub(crate) const fn new() -> Self {
        Roster { due: BTreeMap::new(), last: 0 }
    }

    /// Writes down a tenure. The place is gone when it is taken along.
    pub(crate) fn enter(&mut self, due: Duration, tenure: &Arc<Tenure>) -> Place {
        self.last += 1;
        let place = (due, self.last);
        self.due.insert(place, Arc::clone(tenure));
        place
    }

    pub(crate) fn leave(&mut self, place: Place) -> Option<Arc<Tenure>> {
        self.due.remove(&place)
    }

    /// Those who are due by then, the earliest first, for who renews one more and has tried that so often.
    pub(crate) fn take(&mut self, by: Duration, in_vain: u32) -> Vec<Arc<Tenure>> {
        let most = FEWER.checked_pow(in_vain).map_or(0, |fewer| TOGETHER / fewer as usize);
        let mut along = Vec::new();
        while along.len() + 1 < most {
            match self.due.first_entry() {
                Some(first) if first.key().0 <= by => {
                    let tenure = first.remove();
                    tenure.state.lock().is_along = true;
                    along.push(tenure);
                }
                _ => break,
            }
        }
        along
    }
}
