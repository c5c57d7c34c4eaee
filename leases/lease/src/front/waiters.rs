//! The calls' use of the wait list: which waiter asks next, and the effect of an answer on the others.

use core::time::Duration;

use super::{Asking, Attending, GrantInfo, Leases, Prepared, Question, Request, Tidier, as_term, at_once};
use crate::{
    Expiry, Resource, Token,
    deferred::Deferred,
    engine::{Answer, Ask, Engine, Want},
    panics::{self, Panics},
    wait_list::{Look, Outcome, WaitList},
};

impl<E: Engine> Leases<E> {
    pub(crate) fn with_wait_list<R>(&self, operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R) -> R {
        let _tidier = Tidier(&self.engine);
        let mut deferred = Deferred::new(); // done behind the lock
        self.locked(&mut deferred, operation)
    }

    pub(super) fn locked<R>(
        &self,
        deferred: &mut Deferred,
        operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R,
    ) -> R {
        let mut wait_list = self.wait_list.lock();
        let result = operation(&mut wait_list, deferred);
        wait_list.publish();
        result
    }

    /// An operation on a resource, those who waited for it being served before.
    pub(crate) fn settled<R>(
        &self,
        resource: &Resource,
        at: Duration,
        operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R,
    ) -> R {
        self.settled_with(None, resource, at, operation)
    }

    /// The same, when a policy has been asked.
    pub(super) fn settled_with<R>(
        &self,
        mut prepared: Option<Prepared>,
        resource: &Resource,
        mut at: Duration,
        operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R,
    ) -> R {
        let mut operation = Some(operation);
        let mut panics = Panics::new();
        let mut deferred = Deferred::new();
        let result = loop {
            let settled = self.locked(&mut deferred, |wait_list, deferred| {
                let since = prepared.as_ref().and_then(|prepared| wait_list.has_asked(resource, prepared.serial));
                match self.settle(wait_list, resource, at, prepared.take(), since, deferred) {
                    Some(question) => Err(question),
                    None => Ok(operation.take().map(|operation| operation(wait_list, deferred))),
                }
            });
            match settled {
                Ok(Some(result)) => break result,
                Ok(None) => unreachable!("it is settled once"),
                // If the policy panics, that is a no: or its request would keep all others waiting.
                Err(Question { serial, policy, held_for, is_resumed }) => {
                    let answered = Prepared { serial, is_resumed, answer: None };
                    let mut asking = Asking { leases: self, resource, at, answered: Some(answered) };
                    asking.answer(panics.catch(|| policy.remaining(held_for)).flatten());
                    panics.catch(|| drop(policy));
                    // A tenure counts from when its policy has answered, however long that took.
                    at = panics.catch(|| self.engine.now()).map_or(at, |now| now.max(at));
                    prepared = asking.answered.take();
                }
            }
        };
        panics.catch(|| drop(deferred));
        panics.catch(|| self.engine.tidy());
        panics.resume();
        result
    }

    /// Serves those in line, as far as the resource is free: or asks for a policy's answer first. Requests that came later than `since` may not
    /// know when to look, because a policy was being asked.
    pub(super) fn settle(
        &self,
        wait_list: &mut WaitList,
        resource: &Resource,
        at: Duration,
        prepared: Option<Prepared>,
        since: Option<u64>,
        deferred: &mut Deferred,
    ) -> Option<Question> {
        if !E::LOCAL {
            return None;
        }
        let place = wait_list.find(resource)?;
        if wait_list.is_asking(place) {
            return None;
        }
        let mut has_served = false;
        while let Some(first) = wait_list.first(place) {
            let Ok(record) = at_once(self.engine.look(resource, at)) else {
                wait_list.finish(first, Outcome::AskAlone, deferred);
                continue;
            };
            // The owner of the lease, and another request with the same owner.
            let wait = record.as_ref().map_or(Some(first), |record| wait_list.first_of(place, &record.owner));
            let Some(wait) = wait else {
                let look = Look::at(record.and_then(|record| at.checked_add(record.remaining?)));
                // A waiter with a timer learns of a later end when the timer fires.
                let known = wait_list.place(place).look.time();
                let is_sooner = look.time().is_some_and(|at| known.is_none_or(|known| at < known));
                wait_list.look(place, look);
                if self.is_real_time {
                    match since {
                        _ if is_sooner => wait_list.wake_line(place, deferred),
                        Some(since) => wait_list.wake_since(place, since, deferred),
                        None => {}
                    }
                    if has_served {
                        wait_list.wake_first(place, deferred);
                    }
                }
                break;
            };
            let asks = wait_list.wait(wait);
            let (held_for, is_resumed) =
                record.as_ref().map_or((Duration::ZERO, false), |record| (record.held_for, true));
            let term = match &asks.expiry {
                Expiry::Custom(policy) => {
                    let serial = asks.serial;
                    let is_it = |asked: &&Prepared| (asked.serial, asked.is_resumed) == (serial, is_resumed);
                    match prepared.as_ref().filter(is_it) {
                        Some(asked) => as_term(asked.answer),
                        None => {
                            let question = Question { serial, policy: policy.clone(), held_for, is_resumed };
                            wait_list.ask(place, serial, since);
                            return Some(question);
                        }
                    }
                }
                expiry => expiry.term(),
            };
            if term.is_none() && !is_resumed {
                wait_list.finish(wait, Outcome::Refused, deferred);
                continue;
            }
            let want = if is_resumed { Want::Mine } else { Want::New };
            let ask = Ask { resource, owner: &asks.owner, want, term, expiry: &asks.expiry, waiting: true, at };
            let outcome = match at_once(self.engine.acquire(ask)) {
                Ok(answer @ Answer::Granted { resumed, .. }) => {
                    let (owner, expiry) = (asks.owner.clone(), asks.expiry.clone());
                    if !resumed {
                        wait_list.ended(place, deferred);
                        has_served = true;
                    }
                    let request = Request { resource: resource.clone(), owner, expiry, is_fresh: false, is_new: false };
                    let info = GrantInfo::new(&answer, at, E::LOCAL);
                    info.map_or(Outcome::AskAlone, |info| Outcome::Granted(request.into_grant(info)))
                }
                _ => Outcome::AskAlone,
            };
            wait_list.finish(wait, outcome, deferred);
        }
        None
    }

    /// A tenure of this resource has ended, or a new one has begun.
    #[inline]
    pub(crate) fn ended(&self, resource: &Resource, at: Duration) {
        if self.is_attended(resource) {
            self.tell_of_an_end(resource, at);
        }
    }

    #[cold]
    pub(super) fn tell_of_an_end(&self, resource: &Resource, at: Duration) {
        self.settled(resource, at, |wait_list, deferred| {
            let Some(place) = wait_list.find(resource) else { return };
            wait_list.ended(place, deferred);
            if !E::LOCAL {
                wait_list.send_first(place, deferred);
            }
        });
    }

    /// An engine elsewhere has said that nobody has the resource.
    pub(super) fn found_free(&self, resource: &Resource) {
        if !E::LOCAL && self.is_attended(resource) {
            self.with_wait_list(|wait_list, deferred| {
                wait_list.find(resource).into_iter().for_each(|place| wait_list.send_first(place, deferred))
            });
        }
    }

    /// A tenure has been looked at, or extended, by somebody who knows of it.
    pub(super) fn extended(&self, resource: &Resource, token: Token, at: Duration) {
        if self.is_attended(resource) {
            self.settled(resource, at, |wait_list, _| wait_list.know(resource, token));
        }
    }

    /// Serves those who waited for what has expired, and wakes those who wanted to be woken by now.
    pub(crate) fn attend(&self, at: Duration) {
        let _tidier = Tidier(&self.engine);
        let mut deferred = Deferred::new(); // done when all have been served
        if self.attendance.is_any() && self.locked(&mut deferred, |wait_list, _| wait_list.begin_attending(at)) {
            let due = Attending { leases: self, deferred: &mut deferred, is_over: false };
            panics::each(due, |(resource, at)| self.settled(&resource, at, |_, _| ()));
        }
    }
}
