//! A request that waits in line.

use alloc::boxed::Box;
use core::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    AcquireError, Grant, Leases, Token,
    engine::Engine,
    front::{Asked, Request, Turn, at_once},
    panics::{self, Panics},
    timer::{Timer, give_way},
    wait_list::{Look, Outcome},
};

/// The time that the next in line lets the one before it have the lease before it asks, in order to be told of the end.
///
/// Most leases that others wait for end sooner, by a call in this process; and whoever ends one here wakes the first in line. So a
/// hand-over takes one question. A call in another process that ends the tenure within this time is noticed when it is over.
const REST: Duration = Duration::from_millis(50);

/// The first in line looks when the lease ends. The others look later by this much, in case nobody polls the first; or by the second
/// constant times the length of the line, if that is more, so that together they look at most 100,000 times a second.
const GRACE: Duration = Duration::from_millis(10);
const GRACE_FOR_EACH: Duration = Duration::from_micros(10);

/// A place in line, or what came of it. Dropped, it leaves nothing behind: what it was served with goes to the next, if nobody else
/// of its owner knows of it.
struct Ticket<'a, E: Engine> {
    leases: &'a Leases<E>,
    request: &'a Request,
    /// `None`: it has left.
    wait: Option<u32>,
    timer: Timer,
}

/// The next step of a waiting request.
enum Step {
    Done(Outcome),
    /// It is its turn to ask an engine that is not in this process.
    Ask,
    /// It sleeps until that time, if nobody wakes it before.
    Sleep(Option<Duration>),
}

impl<'a, E: Engine> Ticket<'a, E> {
    fn join(leases: &'a Leases<E>, request: &'a Request) -> Self {
        let Request { resource, owner, expiry, is_fresh, .. } = request;
        let wait = leases.with_wait_list(|wait_list, _| wait_list.join(resource, owner, expiry, *is_fresh));
        Ticket { leases, request, wait: Some(wait), timer: Timer::new() }
    }

    /// Ready when it has been served, or should ask.
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
        let Some(wait) = self.wait else { unreachable!("it is polled no more when it has left") };
        let resource = &self.request.resource;
        let engine = self.leases.engine();
        loop {
            let mut waker = Some(cx.waker().clone());
            let step = self.leases.settled(resource, at, |wait_list, deferred| {
                let Some(outcome) = wait_list.outcome(wait) else {
                    wait_list.wake_by(wait, &mut waker, deferred);
                    let place = wait_list.find(resource)?;
                    if wait_list.is_asking(place) {
                        return Some(Step::Sleep(None)); // whoever asks wakes it
                    }
                    let (look, waiting) = (wait_list.place(place).look, wait_list.place(place).waiting);
                    let is_first = wait_list.first(place) == Some(wait);
                    if !E::LOCAL && is_first && look.is_due(at) {
                        return Some(Step::Ask);
                    }
                    if look.is_due(at) {
                        wait_list.wake_first(place, deferred); // it is the one to look
                    }
                    let grace = GRACE.max(GRACE_FOR_EACH.saturating_mul(waiting as u32));
                    let grace = if is_first { Duration::ZERO } else { grace };
                    let until = look.time().and_then(|until| until.checked_add(grace));
                    return Some(Step::Sleep(until.filter(|&until| until > at)));
                };
                let mut outcome = outcome.clone();
                if let Outcome::Granted(grant) = &mut outcome {
                    // A waiter that comes too late for it asks again, before all others.
                    let is_current = if E::LOCAL {
                        let record = at_once(engine.look(resource, at)).ok().flatten();
                        let record = record.filter(|record| record.token == grant.token());
                        // Somebody else of its owner may have extended it.
                        grant.end = record.as_ref().and_then(|record| at.checked_add(record.remaining?));
                        record.is_some()
                    } else {
                        grant.end.is_none_or(|end| at < end)
                    };
                    if !is_current {
                        wait_list.join_again(wait);
                        return None;
                    }
                }
                wait_list.fetch(wait, deferred);
                self.wait = None;
                Some(Step::Done(outcome))
            });
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// It has what it asked for, until then.
    fn leave(&mut self, end: Option<Duration>) {
        let next = self.next_look(end); // if the clock panics, it leaves as one that is dropped
        let Some(wait) = self.wait.take() else { return };
        self.leases.with_wait_list(|wait_list, deferred| wait_list.leave_served(wait, next, deferred));
    }

    /// The engine has not answered.
    fn leave_unanswered(&mut self) {
        let Some(wait) = self.wait.take() else { return };
        self.leases.with_wait_list(|wait_list, deferred| wait_list.leave_unanswered(wait, deferred));
    }

    /// When the next in line asks, of a lease that began just now and lasts until then.
    fn next_look(&self, end: Option<Duration>) -> Look {
        let engine = self.leases.engine();
        if !self.leases.is_real_time || !cfg!(feature = "std") {
            return Look::Now; // nothing would wake it
        }
        let rest = engine.fallback().map_or(REST, |fallback| fallback.min(REST));
        engine.now().checked_add(rest).map_or(Look::Now, |rest| Look::At(end.map_or(rest, |end| end.min(rest))))
    }

    /// When it is to look again, as `look` decides from what is known.
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
            // Dropped behind the lock and what is done there, even if a waker panics.
            let mut passed_on = None;
            leases.with_wait_list(|wait_list, deferred| {
                let Some(unknown) = wait_list.leave(wait, deferred) else { return };
                if E::LOCAL {
                    let _ = at_once(engine.release(resource, owner, Some(unknown), at));
                }
                passed_on = Some(PassedOn { ticket: self, token: unknown, at });
            });
        };
        // A clock that panics has no say in whether it leaves.
        let mut panics = Panics::new();
        if let Some(at) = panics.catch(|| panics::or_else(|| engine.now(), || leave(Duration::ZERO))) {
            panics.catch(|| leave(at));
        }
        panics.resume();
    }
}

/// A tenure that nobody of its owner knows of has ended: the next in line gets it.
struct PassedOn<'a, 'b, E: Engine> {
    ticket: &'a Ticket<'b, E>,
    token: Token,
    at: Duration,
}

impl<E: Engine> Drop for PassedOn<'_, '_, E> {
    fn drop(&mut self) {
        let Ticket { leases, request: Request { resource, owner, .. }, .. } = self.ticket;
        if !E::LOCAL {
            leases.engine().abandon(resource, owner, self.token);
        }
        leases.ended(resource, self.at);
    }
}

impl<E: Engine> Leases<E> {
    pub(crate) async fn acquired(&self, request: Request) -> Result<Grant, AcquireError<E::Error>> {
        match self.attempt(&request, Turn::Outside).await? {
            Asked::Granted(info) => Ok(request.into_grant(info)),
            Asked::Busy { .. } => self.wait_for(&request).await,
        }
    }

    /// Waits for what somebody else has.
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
                            // Unless it has been told meanwhile.
                            ticket.looks(|look| if look == Look::WhenTold { next } else { look });
                            // An engine that answers at once, and is always worth asking, must not keep the task.
                            give_way().await;
                        }
                    }
                }
                Step::Sleep(_) => unreachable!("it is asleep until it is something else"),
            }
        }
    }
}

/// Polls a future, if there is one, and forgets it when it is ready.
fn poll_once_more<F: Future>(future: &mut Option<Pin<Box<F>>>, cx: &mut Context<'_>) -> Poll<F::Output> {
    let Some(running) = future else { return Poll::Pending };
    let polled = running.as_mut().poll(cx);
    if polled.is_ready() {
        *future = None;
    }
    polled
}
