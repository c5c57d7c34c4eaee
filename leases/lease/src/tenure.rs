//! The tenures of [`Held`](crate::Held)s, and the queue from which renewals are batched.
//!
//! The renewal of a lease on a server includes other leases held through the same `Leases` that are due soon, in one
//! request. No lease depends on this. The future of an included lease wakes when it would have anyway, and finds that
//! the lease has been renewed. If the lease has not been renewed yet, the future waits a little for the request that
//! includes it, at most twice, and then sends its own.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::time::Duration;

use crate::{Grant, Lost, Owner, Resource, Token, notice::Notice, sync::Mutex};

/// The largest number of leases in one request.
pub(crate) const MAX_BATCH: usize = 256;

/// The factor by which each refusal reduces the number of leases in the next request, down to one.
const FEWER: u32 = 8;

/// The time within which a failed request counts as refused. If it takes longer, the engine is unreachable or slow.
const REFUSED: Duration = Duration::from_secs(1);

/// The state that a [`Held`](crate::Held) shares with the futures that renew it.
pub(crate) struct Tenure {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) state: Mutex<State>,
    /// The subscription to the engine's notices; `None` if the engine is local, or does not notify.
    pub(crate) notice: Option<Arc<Notice>>,
}

pub(crate) struct State {
    /// The grant of the last renewal.
    pub(crate) grant: Grant,
    /// The time at which that renewal was requested.
    pub(crate) renewed: Duration,
    /// The number of requests for other leases that have included this one since then.
    pub(crate) rides: u32,
    /// The number of refused requests since then, for this lease or for another one whose request included it.
    pub(crate) refusals: u32,
    /// The way in which the lease was lost, once the `Held` has ended or, with a server, a loss has been found.
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

    /// Records that a renewal requested at `asked` has moved the end. If `now` is given, a lease that has expired by
    /// then stays expired.
    pub(crate) fn renewed(&self, end: Option<Duration>, asked: Duration, now: Option<Duration>) {
        let mut state = self.state.lock();
        let is_over = |end: Duration| now.is_some_and(|now| end <= now);
        if state.grant.end.is_some_and(is_over) {
            return;
        }
        // The answer to another renewal may have arrived first.
        state.grant.end = end.zip(state.grant.end).map(|(new, old)| new.max(old));
        state.renewed = state.renewed.max(asked);
        (state.rides, state.refusals) = (0, 0);
    }

    /// Counts the failure of a renewal requested at `asked` as a refusal, if it came within [`REFUSED`].
    pub(crate) fn not_renewed(&self, asked: Duration, now: Duration) {
        if now < asked.saturating_add(REFUSED) {
            self.state.lock().refusals += 1;
        }
    }
}

/// The time at which a tenure is due, and a number that distinguishes it from others due at that time.
pub(crate) type Place = (Duration, u64);

/// The leases to be renewed, ordered by due time.
pub(crate) struct RenewalQueue {
    due: BTreeMap<Place, Entry>,
    last: u64,
}

struct Entry {
    tenure: Arc<Tenure>,
    /// The time of the tenure's last renewal before it entered the queue. If the tenure has been renewed since, this
    /// entry is no longer due.
    renewed: Duration,
    /// Whether another request includes the tenure. If so, no further request takes it before it is due.
    is_batched: bool,
}

impl RenewalQueue {
    pub(crate) const fn new() -> Self {
        RenewalQueue { due: BTreeMap::new(), last: 0 }
    }

    /// Adds a tenure. Its place is removed when another tenure's request takes it.
    pub(crate) fn enter(&mut self, due: Duration, tenure: &Arc<Tenure>, renewed: Duration, is_batched: bool) -> Place {
        self.last += 1;
        let place = (due, self.last);
        self.due.insert(place, Entry { tenure: Arc::clone(tenure), renewed, is_batched });
        place
    }

    pub(crate) fn leave(&mut self, place: Place) -> Option<Arc<Tenure>> {
        Some(self.due.remove(&place)?.tenure)
    }

    /// Takes the tenures that are due within `moment`, the earliest first, to be renewed together with `one`. After
    /// refusals it takes fewer, because one of the tenures may be the reason.
    pub(crate) fn take(
        &mut self,
        one: &Arc<Tenure>,
        now: Duration,
        moment: Duration,
        refusals: u32,
    ) -> Vec<Arc<Tenure>> {
        let most = FEWER.checked_pow(refusals).map_or(0, |fewer| MAX_BATCH / fewer as usize).saturating_sub(1);
        let by = (now.saturating_add(moment), u64::MAX);
        let is_due = |(place, entry): &(&Place, &Entry)| {
            (place.0 <= now || !entry.is_batched)
                && !Arc::ptr_eq(&entry.tenure, one)
                && entry.tenure.state.lock().renewed == entry.renewed
        };
        let places: Vec<Place> = self.due.range(..=by).filter(is_due).map(|(place, _)| *place).take(most).collect();
        let batched: Vec<_> = places.into_iter().filter_map(|place| self.leave(place)).collect();
        batched.iter().for_each(|tenure| tenure.state.lock().rides += 1);
        batched
    }
}
