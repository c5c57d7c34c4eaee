//! The use of the wait list by the calls: serving waiters, and notifying waiters and watchers.

use core::time::Duration;

use super::{Asking, Attending, GrantInfo, Leases, Prepared, Question, Request, Tidier, as_term};
use crate::{
    Expiry, Resource, Term,
    deferred::Deferred,
    engine::{Ask, Engine, Want, at_once},
    panics::{self, Panics},
    wait_list::{Look, Outcome, Wait, WaitList},
};

impl<E: Engine> Leases<E> {
    pub(crate) fn with_wait_list<R>(&self, operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R) -> R {
        let _tidier = Tidier(&self.engine);
        let mut deferred = Deferred::new(); // runs when the lock is released
        self.locked(&mut deferred, operation)
    }

    pub(super) fn locked<R>(
        &self,
        deferred: &mut Deferred,
        operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R,
    ) -> R {
        operation(&mut self.wait_list.lock(), deferred)
    }

    /// Serves the waiters of a resource, if the engine is in this process, and then runs an operation under the same
    /// lock.
    pub(crate) fn settled<R>(
        &self,
        resource: &Resource,
        at: Duration,
        operation: impl FnOnce(&mut WaitList, &mut Deferred) -> R,
    ) -> R {
        self.settled_with(None, resource, at, operation)
    }

    /// Does the same as [`settled`](Self::settled), with the answer of a policy that has been asked.
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
                match self.settle(wait_list, resource, at, prepared.take().as_ref(), since, deferred) {
                    Some(question) => Err(question),
                    None => Ok(operation.take().map(|operation| operation(wait_list, deferred))),
                }
            });
            match settled {
                Ok(Some(result)) => break result,
                Ok(None) => unreachable!("the loop ends when the operation has run"),
                // A panic of the policy counts as a refusal: otherwise its request would keep all others waiting.
                Err(Question { serial, policy, held_for, is_resumed }) => {
                    let answered = Prepared { serial, is_resumed, answer: None };
                    let mut asking = Asking { leases: self, resource, at, answered: Some(answered) };
                    asking.answer(panics.catch(|| policy.remaining(held_for)).flatten());
                    panics.catch(|| drop(policy));
                    // The tenure begins when its policy has answered, however long that took.
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

    /// Serves the waiters in line that can have the lease now, or returns the policy that must be asked first. Requests
    /// that joined the line after `since` may not know when to check again, because a policy was being asked when they
    /// joined.
    fn settle(
        &self,
        wait_list: &mut WaitList,
        resource: &Resource,
        at: Duration,
        prepared: Option<&Prepared>,
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
            // While the lease is held, only other requests of its owner enter: they resume its tenure.
            let next = record.as_ref().map_or(Some(first), |record| wait_list.first_of(place, &record.owner));
            let Some(wait) = next else {
                let end = record.and_then(|record| at.checked_add(record.remaining?));
                self.put_off(wait_list, place, end, since, has_served, deferred);
                break;
            };
            let held_for = record.map(|record| record.held_for);
            let term = match term_of(wait_list.wait(wait), held_for, prepared) {
                Ok(term) => term,
                Err(question) => {
                    wait_list.ask(place, question.serial, since);
                    return Some(question);
                }
            };
            let outcome = self.hand_over(resource, wait_list.wait(wait), term, held_for.is_some(), at);
            if matches!(&outcome, Outcome::Granted(grant) if !grant.is_resumed()) {
                wait_list.ended(place, deferred);
                has_served = true;
            }
            wait_list.finish(wait, outcome, deferred);
        }
        None
    }

    /// Records that no request in line can be served before `end`, and wakes the waiters that must set their timers
    /// anew.
    fn put_off(
        &self,
        wait_list: &mut WaitList,
        place: u32,
        end: Option<Duration>,
        since: Option<u64>,
        has_served: bool,
        deferred: &mut Deferred,
    ) {
        // A waiter with a timer learns of a later end when its timer fires.
        let known = wait_list.place(place).look.time();
        let is_sooner = end.is_some_and(|end| known.is_none_or(|known| end < known));
        wait_list.look(place, Look::at(end));
        if !self.is_real_time {
            return;
        }
        match since {
            _ if is_sooner => wait_list.wake_line(place, deferred),
            Some(since) => wait_list.wake_since(place, since, deferred),
            None => {}
        }
        if has_served {
            wait_list.wake_first(place, deferred);
        }
    }

    /// Acquires the lease for a waiting request: a new tenure, or the one that its owner has.
    fn hand_over(
        &self,
        resource: &Resource,
        wait: &Wait,
        term: Option<Term>,
        is_resumed: bool,
        at: Duration,
    ) -> Outcome {
        if term.is_none() && !is_resumed {
            return Outcome::Refused;
        }
        let Wait { owner, expiry, .. } = wait;
        let want = if is_resumed { Want::Mine } else { Want::New };
        let ask = Ask { resource, owner, want, term, expiry, waiting: true, at };
        let answer = at_once(self.engine.acquire(ask)).ok();
        let Some(info) = answer.and_then(|answer| GrantInfo::new(&answer, at, E::LOCAL)) else {
            return Outcome::AskAlone;
        };
        Outcome::Granted(Request::new(resource.clone(), owner.clone(), expiry.clone()).into_grant(info))
    }

    /// Serves the waiters and wakes the watchers of a resource after a tenure has ended or begun.
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

    /// Makes the first in line send a request, because an engine on a server has answered that the resource is free.
    pub(super) fn found_free(&self, resource: &Resource) {
        if !E::LOCAL && self.is_attended(resource) {
            self.with_wait_list(|wait_list, deferred| {
                wait_list.find(resource).into_iter().for_each(|place| wait_list.send_first(place, deferred))
            });
        }
    }

    /// Serves the waiters of expired leases, and wakes the watches that are due.
    pub(crate) fn attend(&self, at: Duration) {
        let _tidier = Tidier(&self.engine);
        let mut deferred = Deferred::new(); // runs when all have been served
        if self.attendance.is_any() && self.locked(&mut deferred, |wait_list, _| wait_list.begin_attending(at)) {
            let due = Attending { leases: self, deferred: &mut deferred, is_over: false };
            panics::each(due, |(resource, at)| self.settled(&resource, at, |_, _| ()));
        }
    }
}

/// Returns the term of a waiting request, or the question if its policy must be asked first. `held_for` is the time for
/// which its owner has held the lease; `None` if the resource is free.
fn term_of(wait: &Wait, held_for: Option<Duration>, prepared: Option<&Prepared>) -> Result<Option<Term>, Question> {
    let Expiry::Custom(policy) = &wait.expiry else { return Ok(wait.expiry.term()) };
    let (serial, is_resumed) = (wait.serial, held_for.is_some());
    match prepared.filter(|prepared| (prepared.serial, prepared.is_resumed) == (serial, is_resumed)) {
        Some(prepared) => Ok(as_term(prepared.answer)),
        None => Err(Question { serial, policy: policy.clone(), held_for: held_for.unwrap_or_default(), is_resumed }),
    }
}
