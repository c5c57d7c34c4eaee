//! Checking, watching and renewing a tenure that is held.

use alloc::sync::Arc;
use core::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use super::{RENEWED_AFTER, Ride, SHORTEST, Slot};
use crate::{
    Leases, Lost, RenewError,
    engine::Engine,
    local_watch::LocalWatch,
    tenure::Tenure,
    timer::{Timer, give_way},
};

impl Tenure {
    /// Returns the end of the lease, or the way in which it was lost.
    ///
    /// With a server, a lost lease stays lost: a renewal whose answer comes after the deadline does not revive it.
    pub(super) fn check<E: Engine>(&self, leases: &Leases<E>) -> Result<Option<Duration>, Lost> {
        loop {
            let grant = {
                let state = self.state.lock();
                if let Some(lost) = state.over {
                    return Err(lost);
                }
                state.grant.clone()
            };
            let told = self.notice.as_ref().and_then(|notice| notice.lost(self.token));
            let checked = leases.check(&grant).and_then(|end| told.map_or(Ok(end), Err));
            let state = &mut *self.state.lock();
            match (checked, state.over) {
                (Ok(end), _) => {
                    if end != grant.end && state.grant.end == grant.end {
                        state.grant.end = end; // another call of its owner has extended the lease
                    }
                    return Ok(end);
                }
                // The `Held` has been released or dropped since the state was read.
                (Err(_), Some(over)) => return Err(over),
                (Err(lost), None) if E::LOCAL => return Err(lost),
                // The lease has been renewed since the state was read.
                (Err(_), None) if state.grant.end != grant.end => {}
                (Err(lost), None) => {
                    state.over = Some(lost);
                    return Err(lost);
                }
            }
        }
    }

    pub(super) fn over(&self) -> Option<Lost> {
        self.state.lock().over
    }

    /// Waits until the lease is lost, and returns how it was lost.
    pub(super) async fn lost<E: Engine>(&self, leases: &Leases<E>) -> Lost {
        loop {
            let end = match self.check(leases) {
                Ok(end) => end,
                Err(lost) => return lost,
            };
            if let Some(lost) = self.pause(leases, end).await {
                return lost;
            }
        }
    }

    /// Ends the hold. If the lease is known to have been lost before, returns how.
    pub(super) fn close(&self) -> Option<Lost> {
        let over = &mut self.state.lock().over;
        let before = *over;
        over.get_or_insert(Lost::Released);
        before
    }

    /// Sleeps until `due`, and returns `None`. If the lease is lost earlier, returns how it was lost.
    pub(super) async fn pause<E: Engine>(&self, leases: &Leases<E>, due: Option<Duration>) -> Option<Lost> {
        let mut watch = LocalWatch::new(leases, &self.resource);
        let mut timer = Timer::new();
        poll_fn(|cx| {
            loop {
                watch.wake_by(due, cx); // before the check, so that no loss is missed
                if let Err(lost) = self.check(leases) {
                    return Poll::Ready(Some(lost));
                }
                let now = leases.engine().now();
                if due.is_some_and(|due| due <= now) {
                    return Poll::Ready(None);
                }
                if !leases.is_real_time || timer.poll(due, now, cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Renews until the lease is lost, and returns how it was lost.
    pub(super) async fn renewal<E: Engine>(self: &Arc<Self>, leases: &Leases<E>, ttl: Duration) -> Lost {
        let pause = (ttl / RENEWED_AFTER).max(SHORTEST);
        let moment = (pause / 4).max(SHORTEST);
        let mut failed: Option<Duration> = None;
        let mut ride = Ride { number: 0, until: Duration::ZERO };
        loop {
            let (grant, renewed, due) = {
                let state = self.state.lock();
                let due = match failed {
                    // The last request failed, but the next may succeed. There is time for several before the end.
                    Some(asked) if asked > state.renewed => asked.checked_add(moment),
                    _ => state.renewed.checked_add(pause),
                };
                if ride.number != state.rides {
                    ride = Ride::new(state.rides, due.max(Some(leases.engine().now())), moment);
                }
                (state.grant.clone(), state.renewed, due.map(|due| due.max(ride.until)))
            };
            let slot = Slot::new(leases, self, due, renewed, ride.is_on());
            if let Some(lost) = self.pause(leases, due).await {
                return lost;
            }
            let is_there = slot.leave();
            let refusals = {
                let state = self.state.lock();
                if !is_there || (state.renewed, state.rides) != (renewed, ride.number) {
                    continue; // another request has renewed the lease, or is about to
                }
                state.refusals
            };
            let batched = Slot::batched(leases, self, moment, refusals);
            let asked = leases.engine().now();
            // The lease may expire while the engine does not answer.
            let answer = {
                let mut renewing = pin!(leases.renewed(&grant, &batched));
                let mut losing = pin!(self.lost(leases));
                poll_fn(|cx| {
                    // An engine in this process answers on the first poll. The answer of a server may come too late, so
                    // check for the loss first.
                    if !E::LOCAL {
                        if let Poll::Ready(lost) = losing.as_mut().poll(cx) {
                            return Poll::Ready(Err(lost));
                        }
                    }
                    match renewing.as_mut().poll(cx) {
                        Poll::Ready(answer) => Poll::Ready(Ok(answer)),
                        Poll::Pending if E::LOCAL => losing.as_mut().poll(cx).map(Err),
                        Poll::Pending => Poll::Pending,
                    }
                })
                .await
            };
            match answer {
                Err(lost) => return lost,
                Ok(Ok(end)) => self.renewed(end, asked, None),
                Ok(Err(RenewError::Lost(lost))) => {
                    if E::LOCAL {
                        return self.over().unwrap_or(lost);
                    }
                    let lost = *self.state.lock().over.get_or_insert(lost);
                    leases.wake_watches(&self.resource);
                    return lost;
                }
                Ok(Err(_)) => {
                    failed = Some(asked);
                    let now = leases.engine().now();
                    batched.iter().chain([self]).for_each(|tenure| tenure.not_renewed(asked, now));
                }
            }
            if leases.engine().now() >= asked.saturating_add(moment) {
                give_way().await; // the engine is slow or the lease is very short, and the work must have its turn
            }
        }
    }
}
