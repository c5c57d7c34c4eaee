//! Requests that wait in line.

use alloc::boxed::Box;
use core::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    AcquireError, Grant, Leases,
    engine::Engine,
    front::{Asked, Ending, Request, Turn},
    panics::{self, Panics},
    timer::{Timer, give_way},
    wait_list::{Look, Outcome},
};

/// The time that the next in line waits after a lease has begun, before it asks the engine. It asks so that the engine
/// will notify it of the end.
///
/// Most leases with waiters end sooner, by a call in this process, and that call wakes the first in line. So a hand-off
/// usually takes one request. If a call in another process ends the tenure within this time, the next in line notices
/// it when the time has passed.
const REST: Duration = Duration::from_millis(50);

/// The delay after the end of a lease before the waiters behind the first one check. The first checks when the lease
/// ends; the others matter only if the first is not polled. The delay is the first constant, or the second times the
/// length of the line if that is longer, so that together they check at most 100,000 times a second.
const GRACE: Duration = Duration::from_millis(10);
const GRACE_FOR_EACH: Duration = Duration::from_micros(10);

/// A request's place in line, or its outcome. A dropped ticket leaves nothing behind: if it was served, the lease
/// passes to the next in line, unless its owner knows of the tenure through another request.
struct Ticket<'a, E: Engine> {
    leases: &'a Leases<E>,
    request: &'a Request,
    /// `None` after the ticket has left the line.
    wait: Option<u32>,
    timer: Timer,
}

/// The next step of a waiting request.
enum Step {
    Done(Outcome),
    /// It is the request's turn to ask an engine on a server.
    Ask,
    /// Sleep until this time, or until the task is woken.
    Sleep(Option<Duration>),
}

impl<'a, E: Engine> Ticket<'a, E> {
    fn join(leases: &'a Leases<E>, request: &'a Request) -> Self {
        let Request { resource, owner, expiry, is_fresh, .. } = request;
        let wait = leases.with_wait_list(|wait_list, _| wait_list.join(resource, owner, expiry, *is_fresh));
        Ticket { leases, request, wait: Some(wait), timer: Timer::new() }
    }

    /// Polls until the request has been served, or should ask the engine.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            let at = self.leases.engine().now();
            match self.step(at, cx) {
                Step::Sleep(until) => {
                    if !self.leases.is_real_time || self.timer.poll(until, at, cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                step => return Poll::Ready(step),
            }
        }
    }

    fn step(&mut self, at: Duration, cx: &Context<'_>) -> Step {
        let Some(wait) = self.wait else { unreachable!("a ticket is not polled after it has left the line") };
        let resource = &self.request.resource;
        loop {
            let mut waker = Some(cx.waker().clone());
            let step = self.leases.settled(resource, at, |wait_list, deferred| {
                let Some(outcome) = wait_list.outcome(wait) else {
                    wait_list.wake_by(wait, &mut waker, deferred);
                    let place = wait_list.find(resource)?;
                    if wait_list.is_asking(place) {
                        return Some(Step::Sleep(None)); // the call that asks the policy wakes it
                    }
                    let (look, waiting) = (wait_list.place(place).look, wait_list.place(place).waiting);
                    let is_first = wait_list.first(place) == Some(wait);
                    if !E::LOCAL && is_first && look.is_due(at) {
                        return Some(Step::Ask);
                    }
                    if look.is_due(at) {
                        wait_list.wake_first(place, deferred); // the first in line is the one to check
                    }
                    let grace = GRACE.max(GRACE_FOR_EACH.saturating_mul(waiting as u32));
                    let grace = if is_first { Duration::ZERO } else { grace };
                    let until = look.time().and_then(|until| until.checked_add(grace));
                    return Some(Step::Sleep(until.filter(|&until| until > at)));
                };
                let mut outcome = outcome.clone();
                if let Outcome::Granted(grant) = &mut outcome {
                    // A waiter that is polled only after the tenure has ended waits again, as the first in line.
                    let Some(end) = self.leases.extended_at(grant, None, at) else {
                        wait_list.join_again(wait);
                        return None;
                    };
                    grant.end = end; // another request of its owner may have extended it
                }
                wait_list.leave(wait, deferred);
                self.wait = None;
                Some(Step::Done(outcome))
            });
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Leaves the line with a lease until `end`, which an engine on a server has granted.
    fn leave(&mut self, end: Option<Duration>) {
        let next = self.next_look(end); // if the clock panics, the ticket leaves when it is dropped
        let Some(wait) = self.wait.take() else { return };
        self.leases.with_wait_list(|wait_list, deferred| wait_list.leave_served(wait, next, deferred));
    }

    /// Leaves the line because the engine has failed: usually it has not answered.
    fn leave_unanswered(&mut self) {
        let Some(wait) = self.wait.take() else { return };
        self.leases.with_wait_list(|wait_list, deferred| wait_list.leave_unanswered(wait, deferred));
    }

    /// Returns the time at which the next in line asks for a lease that has just begun and lasts until `end`.
    fn next_look(&self, end: Option<Duration>) -> Look {
        let engine = self.leases.engine();
        if !self.leases.is_real_time || !cfg!(feature = "std") {
            return Look::Now; // there is no timer that would wake it
        }
        let rest = engine.fallback().map_or(REST, |fallback| fallback.min(REST));
        engine.now().checked_add(rest).map_or(Look::Now, |rest| Look::At(end.map_or(rest, |end| end.min(rest))))
    }

    /// Changes the time at which the line checks again.
    fn looks(&self, look: impl FnOnce(Look) -> Look) {
        self.leases.with_wait_list(|wait_list, _| {
            let Some(place) = wait_list.find(&self.request.resource) else { return };
            wait_list.look(place, look(wait_list.place(place).look));
        });
    }
}

impl<E: Engine> Drop for Ticket<'_, E> {
    fn drop(&mut self) {
        let Some(wait) = self.wait else { return };
        let Request { resource, owner, .. } = self.request;
        let leases = self.leases;
        let engine = leases.engine();
        let leave = |at| {
            // This is dropped after the lock has been released and the deferred work done, even if a waker panics.
            let mut ending = None;
            leases.with_wait_list(|wait_list, deferred| {
                let Some(token) = wait_list.leave(wait, deferred) else { return };
                ending = Some(Ending::new(leases, resource, at));
                engine.abandon(resource, owner, token);
            });
        };
        // If the clock panics, the ticket still leaves.
        let mut panics = Panics::new();
        if let Some(at) = panics.catch(|| panics::or_else(|| engine.now(), || leave(Duration::ZERO))) {
            panics.catch(|| leave(at));
        }
        panics.resume();
    }
}

impl<E: Engine> Leases<E> {
    pub(crate) async fn acquired(&self, request: Request) -> Result<Grant, AcquireError<E::Error>> {
        match self.attempt(&request, Turn::Outside).await? {
            Asked::Granted(info) => Ok(request.into_grant(info)),
            Asked::Busy { .. } => self.wait_for(&request).await,
        }
    }

    /// Waits for a lease that another owner has.
    pub(crate) async fn wait_for(&self, request: &Request) -> Result<Grant, AcquireError<E::Error>> {
        let mut ticket = Ticket::join(self, request);
        let mut watch = None;
        loop {
            let step = poll_fn(|cx| {
                if poll_once_more(&mut watch, cx).is_ready() {
                    ticket.looks(|_| Look::Now);
                }
                ticket.poll(cx)
            });
            match step.await {
                Step::Done(Outcome::Granted(grant)) => return Ok(grant),
                Step::Done(Outcome::Refused) => {
                    return Err(AcquireError::Refused { resource: request.resource.clone() });
                }
                Step::Done(Outcome::AskAlone) => match self.attempt(request, Turn::Outside).await? {
                    Asked::Granted(info) => return Ok(request.clone().into_grant(info)),
                    Asked::Busy { .. } => ticket = Ticket::join(self, request),
                },
                Step::Ask => {
                    watch = Some(Box::pin(self.engine().watch(&request.resource))); // before it asks
                    ticket.looks(|_| Look::WhenTold);
                    let at = self.engine().now();
                    match self.attempt(request, Turn::First).await {
                        Ok(Asked::Granted(info)) => {
                            ticket.leave(info.end);
                            return Ok(request.clone().into_grant(info));
                        }
                        Err(error) => {
                            if matches!(error, AcquireError::Engine(_)) {
                                ticket.leave_unanswered();
                            }
                            return Err(error);
                        }
                        Ok(Asked::Busy { remaining, .. }) => {
                            let sleep = remaining.into_iter().chain(self.engine().fallback()).min();
                            let next = Look::at(sleep.and_then(|sleep| at.checked_add(sleep)));
                            // Sets the time of the next check, unless the request has been notified in the meantime.
                            ticket.looks(|look| if look == Look::WhenTold { next } else { look });
                            // Yields even if the engine answers at once and must be asked again each time.
                            give_way().await;
                        }
                    }
                }
                Step::Sleep(_) => unreachable!("`poll` is pending while the request sleeps"),
            }
        }
    }
}

/// Polls a future, if there is one, and drops it when it is ready.
fn poll_once_more<F: Future>(future: &mut Option<Pin<Box<F>>>, cx: &mut Context<'_>) -> Poll<F::Output> {
    let Some(running) = future else { return Poll::Pending };
    let polled = running.as_mut().poll(cx);
    if polled.is_ready() {
        *future = None;
    }
    polled
}
