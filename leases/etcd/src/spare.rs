//! Etcd leases that are ready for another tenure.
//!
//! A tenure that begins needs an etcd lease, and leaves it behind when it ends. Requesting one and revoking it are
//! changes of the cluster, each as expensive as the tenure's own transaction; restarting the time of an existing one is
//! not. So an etcd lease whose tenure has ended is kept for a moment, and the next tenure of the same length uses it
//! again.
//!
//! That is safe if no other request can revoke the etcd lease or attach a key to it. So only an etcd lease that this
//! connection requested is used again, and only if both transactions were answered: the one that attached it to its
//! tenure, and the one that ended that tenure. An etcd lease from which a tenure *moved* is never used again, because
//! another process may have lost the answer to such a move, and may yet revoke that etcd lease. The reuse also relies
//! on the network not repeating requests, and HTTP/2 repeats none: if a request for an etcd lease were carried out
//! twice, it could bring back one that has expired.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use keylatch_lease::{Clock, StdClock};
use keylatch_lease_remote::sleep;
use tokio::sync::Notify;

use crate::{
    lock::{seconds, slack},
    place::Place,
};

/// The time for which an etcd lease is kept.
const KEPT: Duration = Duration::from_secs(1);

/// The greatest number of etcd leases that are kept.
const MOST: usize = 128;

/// The greatest age, counted from the last restart of its time, at which an etcd lease is used again. It is less if the
/// etcd lease is short: half of its time is a safe distance from its end.
const OLDEST: Duration = Duration::from_secs(5);

/// The time by which the clocks of the leader and of this process may drift apart after the time of an etcd lease was
/// restarted.
const DRIFT: Duration = Duration::from_millis(100);

/// The etcd leases of a connection that can be used again. When it is dropped, with the connection, the etcd leases are
/// left to the next connection. That one revokes them instead of using them, because it may lead to an older copy of
/// the cluster.
pub(crate) struct Spare {
    place: Arc<Place>,
    state: Mutex<State>,
    come: Notify,
}

#[derive(Default)]
struct State {
    /// The etcd leases that tenures use, by ID. Those that are too old to be used again are removed.
    used: HashMap<i64, Restarted>,
    /// The etcd leases in `used`, and some that are no longer used, in the order in which tenures began to use them.
    order: VecDeque<(i64, Restarted)>,
    /// The etcd leases that are kept, and since when; the one that has been kept longest is first.
    kept: VecDeque<(i64, Restarted, Instant)>,
}

/// The moment at which the time of an etcd lease was restarted, or one shortly before, and the length of that etcd
/// lease in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restarted {
    pub(crate) seconds: i64,
    /// The moment, by [`StdClock`], which on Linux and Windows goes on while the machine sleeps, as the etcd lease
    /// does.
    at: Duration,
}

impl Restarted {
    pub(crate) fn now(seconds: i64) -> Self {
        Restarted { seconds, at: StdClock::new().now() }
    }

    fn age(&self) -> Duration {
        StdClock::new().now().saturating_sub(self.at)
    }

    /// Returns whether a tenure can begin now without restarting the time: the etcd lease still lasts as long as the
    /// tenure.
    pub(crate) fn is_long_enough(&self) -> bool {
        self.age() + DRIFT < seconds(slack(self.seconds))
    }

    fn is_young(&self) -> bool {
        self.age() < OLDEST.min(seconds(self.seconds) / 2)
    }
}

impl Spare {
    pub(crate) fn new(place: Arc<Place>) -> Self {
        Spare { place, state: Mutex::default(), come: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a tenure has begun to use an etcd lease, and that the transaction that began it was answered.
    pub(crate) fn is_used(&self, lease: i64, restarted: Restarted) {
        let mut state = self.lock();
        while let Some((old, then)) = state.order.front().copied().filter(|(_, then)| !then.is_young()) {
            state.order.pop_front();
            if state.used.get(&old) == Some(&then) {
                state.used.remove(&old);
            }
        }
        state.used.insert(lease, restarted);
        state.order.push_back((lease, restarted));
    }

    /// Notes that the tenure that used this etcd lease has ended, and that no tenure uses it now. The etcd lease is
    /// kept, or revoked.
    pub(crate) fn has_ended(&self, lease: i64) {
        let used = self.lock().used.remove(&lease);
        if !used.is_some_and(|restarted| self.keep(lease, restarted)) {
            self.place.leftovers.add(lease);
        }
    }

    /// Keeps an etcd lease that nothing uses or will use, if it is young and there is room. Returns whether it is kept.
    pub(crate) fn keep(&self, lease: i64, restarted: Restarted) -> bool {
        let mut state = self.lock();
        let is_kept = state.kept.len() < MOST && restarted.is_young();
        if is_kept {
            state.kept.push_back((lease, restarted, Instant::now()));
            if state.kept.len() == 1 {
                drop(state);
                self.come.notify_one();
            }
        }
        is_kept
    }

    /// Takes an etcd lease of this length: the one that was kept last.
    pub(crate) fn take(&self, seconds: i64) -> Option<(i64, Restarted)> {
        let mut state = self.lock();
        let is_it = |(_, restarted, _): &(_, Restarted, _)| restarted.seconds == seconds && restarted.is_young();
        let place = state.kept.iter().rposition(is_it)?;
        state.kept.remove(place).map(|(lease, restarted, _)| (lease, restarted))
    }

    /// Waits until an etcd lease has been kept long enough, and takes it.
    pub(crate) async fn next(&self) -> i64 {
        loop {
            let come = self.come.notified();
            let left = {
                let mut state = self.lock();
                match state.kept.front().map(|(.., since)| KEPT.saturating_sub(since.elapsed())) {
                    Some(Duration::ZERO) => {
                        if let Some((lease, ..)) = state.kept.pop_front() {
                            return lease;
                        }
                        None
                    }
                    left => left,
                }
            };
            match left {
                Some(left) => sleep(left).await,
                None => come.await,
            }
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut self.lock().kept);
        kept.into_iter().for_each(|(lease, ..)| self.place.leftovers.add(lease));
    }
}
