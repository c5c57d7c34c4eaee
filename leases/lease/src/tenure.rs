//! The tenures that are renewed, and who renews them together.
//!
//! Whoever renews a lease on an engine elsewhere takes others of this process along that are due soon: one request for all. Nobody depends
//! on that. Those who were taken along come when they would have come anyway, and see that they have been renewed; or they wait a little,
//! twice at most, for whoever has them in hand, and then ask themselves.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::time::Duration;

use crate::{Grant, Lost, Owner, Resource, Token, notice::Notice, sync::Mutex};

/// The largest number in one request.
pub(crate) const TOGETHER: usize = 256;

/// After each time that it was refused so many times fewer: in the end one alone.
const FEWER: u32 = 8;

/// A request that takes longer is not refused: the engine is unreachable, or slow.
const REFUSED: Duration = Duration::from_secs(1);

/// The state that a [`Held`](crate::Held) shares with the futures that renew it.
pub(crate) struct Tenure {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) state: Mutex<State>,
    /// The subscription at an engine elsewhere, if that engine notifies.
    pub(crate) notice: Option<Arc<Notice>>,
}

pub(crate) struct State {
    /// As it was renewed last.
    pub(crate) grant: Grant,
    /// When that was asked for.
    pub(crate) renewed: Duration,
    /// The number of requests of others since then.
    pub(crate) rides: u32,
    /// The number of times that this, or its own request, was refused.
    pub(crate) refusals: u32,
    /// The Held has ended, or an engine in another process has said that the lease is lost.
    pub(crate) over: Option<Lost>,
}

impl Tenure {
    pub(crate) fn new(grant: Grant, notice: Option<Arc<Notice>>) -> Self {
        notice.iter().for_each(|notice| notice.is_of(grant.clone()));
        Tenure {
            resource: grant.resource.clone(),
            owner: grant.owner.clone(),
            token: grant.token,
            state: Mutex::new(State { renewed: grant.start, grant, rides: 0, refusals: 0, over: None }),
            notice,
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
        (state.rides, state.refusals) = (0, 0);
    }

    /// It was not renewed, by a request that was made then.
    pub(crate) fn not_renewed(&self, asked: Duration, now: Duration) {
        if now < asked.saturating_add(REFUSED) {
            self.state.lock().refusals += 1;
        }
    }
}

/// When a tenure is due, and which it is of those.
pub(crate) type Place = (Duration, u64);

/// The leases to be renewed, by time.
pub(crate) struct RenewalQueue {
    due: BTreeMap<Place, Entry>,
    last: u64,
}

struct Entry {
    tenure: Arc<Tenure>,
    /// When it had been renewed. If that is another time now, it is not due any more.
    renewed: Duration,
    /// Somebody has it in hand: nobody else takes it before it is due.
    is_along: bool,
}

impl RenewalQueue {
    pub(crate) const fn new() -> Self {
        RenewalQueue { due: BTreeMap::new(), last: 0 }
    }

    /// Writes down a tenure. The place is gone when it is taken along.
    pub(crate) fn enter(&mut self, due: Duration, tenure: &Arc<Tenure>, renewed: Duration, is_along: bool) -> Place {
        self.last += 1;
        let place = (due, self.last);
        self.due.insert(place, Entry { tenure: Arc::clone(tenure), renewed, is_along });
        place
    }

    pub(crate) fn leave(&mut self, place: Place) -> Option<Arc<Tenure>> {
        Some(self.due.remove(&place)?.tenure)
    }

    /// Those who are due in a moment, the earliest first, for who renews this one. They are fewer if that was refused: one of them may be the
    /// reason.
    pub(crate) fn take(
        &mut self,
        one: &Arc<Tenure>,
        now: Duration,
        moment: Duration,
        refusals: u32,
    ) -> Vec<Arc<Tenure>> {
        let most = FEWER.checked_pow(refusals).map_or(0, |fewer| TOGETHER / fewer as usize).saturating_sub(1);
        let by = (now.saturating_add(moment), u64::MAX);
        let is_due = |(place, entry): &(&Place, &Entry)| {
            (place.0 <= now || !entry.is_along)
                && !Arc::ptr_eq(&entry.tenure, one)
                && entry.tenure.state.lock().renewed == entry.renewed
        };
        let places: Vec<Place> = self.due.range(..=by).filter(is_due).map(|(place, _)| *place).take(most).collect();
        let along: Vec<_> = places.into_iter().filter_map(|place| self.leave(place)).collect();
        along.iter().for_each(|tenure| tenure.state.lock().rides += 1);
        along
    }
}
