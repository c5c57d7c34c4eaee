//! Acquiring and renewing: the requests to the engine.

use alloc::{sync::Arc, vec::Vec};
use core::{future::Future, time::Duration};

use super::{
    Asked, Ending, GrantInfo, Leases, Request, TRIES, Tidier, Turn, as_term, ask, deadline, remaining, term_of_renewal,
};
use crate::{
    AcquireError, Grant, Lost, Owner, Resource, Term,
    engine::{Answer, Ask, Engine, Fail, Left, Renewal, Want, at_once},
    tenure::Tenure,
    wait_list::WaitList,
};

impl<E: Engine> Leases<E> {
    /// Sends a request to the engine, and sends it again if the answer was lost. If the engine is in this process,
    /// serves the waiters of the resource first. The flag in the result says whether an answer was lost.
    #[inline]
    pub(super) async fn ask<T, F>(
        &self,
        resource: Option<&Resource>,
        at: Duration,
        make: &(impl Fn() -> F + Sync),
    ) -> Result<(T, bool), E::Error>
    where
        F: Future<Output = Result<T, Fail<E::Error>>> + Send,
    {
        self.ask_with(resource, at, |_| None, make).await
    }

    /// Does the same as [`ask`](Self::ask), except that with an engine in this process the wait list may give the
    /// answer instead, through `unless`.
    #[inline]
    pub(super) async fn ask_with<T, F>(
        &self,
        resource: Option<&Resource>,
        at: Duration,
        unless: impl FnOnce(&WaitList) -> Option<T> + Send,
        make: &(impl Fn() -> F + Sync),
    ) -> Result<(T, bool), E::Error>
    where
        F: Future<Output = Result<T, Fail<E::Error>>> + Send,
    {
        if E::LOCAL {
            let answer = match resource.filter(|resource| self.is_attended(resource)) {
                Some(resource) => {
                    self.settled(resource, at, |wait_list, _| unless(wait_list).map_or_else(|| at_once(make()), Ok))
                }
                None => at_once(make()),
            };
            return answer.map(|answer| (answer, false)).map_err(Fail::into_cause);
        }
        let (mut tries, mut was_lost) = (1, false);
        loop {
            match make().await {
                Ok(answer) => return Ok((answer, was_lost)),
                Err(Fail::Unknown(_)) if tries < TRIES => (tries, was_lost) = (tries + 1, true),
                Err(Fail::Undone(_)) if tries < TRIES => tries += 1,
                Err(fail) => return Err(fail.into_cause()),
            }
        }
    }

    /// Requests a lease, and notifies waiters and watchers if a tenure has begun.
    #[inline]
    pub(super) async fn ask_for(
        &self,
        request: &Request,
        want: Want,
        term: &Option<Term>,
        turn: Turn,
    ) -> Result<(Answer, Duration), E::Error> {
        let Request { resource, owner, expiry, .. } = request;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let ending = Ending::new(self, resource, at);
        let ask = Ask { resource, owner, want, term: *term, expiry, waiting: turn == Turn::First, at };
        // While the policy of the first in line is being asked, a free resource is reserved for it.
        let is_promised = |wait_list: &WaitList| {
            let place = wait_list.find(resource).filter(|&place| want != Want::Mine && wait_list.is_asking(place))?;
            let owner = wait_list.wait(wait_list.first(place)?).owner.clone();
            let is_free = matches!(at_once(self.engine.look(resource, at)), Ok(None));
            is_free.then_some(Answer::Busy { owner, remaining: Some(Duration::ZERO) })
        };
        let question = || self.engine.acquire(ask);
        let (mut answer, was_lost) = self.ask_with(Some(resource), at, is_promised, &question).await?;
        match &mut answer {
            // The lost answer may have been a grant. If it was not, another request of this owner has acquired the
            // lease.
            Answer::Busy { owner: other, .. } if was_lost && want == Want::New && other == owner => {
                let (record, _) = self.ask(Some(resource), at, &|| self.engine.look(resource, at)).await?;
                let began_since = |held_for: Duration| held_for <= self.engine.now().saturating_sub(at);
                if record.is_some_and(|record| record.owner == *owner && began_since(record.held_for)) {
                    let ask = Ask { want: Want::Fresh, ..ask };
                    answer = self.ask(Some(resource), at, &|| self.engine.acquire(ask)).await?.0;
                }
            }
            Answer::Granted { resumed, held_for, .. } if was_lost => {
                *resumed &= *held_for > self.engine.now().saturating_sub(at);
            }
            _ => {}
        }
        ending.over();
        if let Answer::Granted { resumed: false, .. } = answer {
            self.ended(resource, at);
        }
        Ok((answer, at))
    }

    /// Requests a lease without waiting for it.
    ///
    /// Usually one request to the engine is enough. A request with a custom policy, or behind waiters, first asks
    /// whether its owner has the lease already.
    #[inline]
    pub(crate) async fn attempt(&self, request: &Request, turn: Turn) -> Result<Asked, AcquireError<E::Error>> {
        request.check()?;
        let Request { resource, expiry, is_fresh, .. } = request;
        let as_it_comes = request.want(turn);
        // An engine on a server does not know the waiters of this process, which go first.
        let is_behind = !E::LOCAL && turn == Turn::Outside && self.first_in_line(resource).is_some();
        let mut question = match expiry.term() {
            Some(term) if !is_behind => (as_it_comes, Some(term)),
            _ => (Want::Mine, None),
        };
        let mut begun = None;
        let (mut answer, at) = loop {
            let (want, asked) = &question;
            let (answer, at) = self.ask_for(request, *want, asked, turn).await.map_err(AcquireError::Engine)?;
            if let Answer::Granted { token, resumed: false, .. } = answer {
                begun = Some(token);
            }
            question = match answer {
                // The owner resumes its tenure if its policy grants more time.
                Answer::Granted { held_for, .. } if asked.is_none() && !is_fresh => {
                    match expiry.term().or_else(|| as_term(ask(expiry, held_for))) {
                        Some(resumed) => (Want::Mine, Some(resumed)),
                        None => break (answer, at),
                    }
                }
                Answer::Free if is_behind => {
                    self.found_free(resource);
                    match self.first_in_line(resource) {
                        Some(owner) => return Ok(Asked::Busy { owner, remaining: Some(Duration::ZERO) }),
                        None => (as_it_comes, expiry.term()),
                    }
                }
                Answer::Granted { .. } if asked.is_some() => break (answer, at),
                // A new tenure is needed.
                Answer::Granted { .. } | Answer::Free => (as_it_comes, expiry.term()),
                answer => break (answer, at),
            };
            if question.1.is_none() {
                question.1 = as_term(ask(expiry, Duration::ZERO));
                if question.1.is_none() {
                    return Err(AcquireError::Refused { resource: resource.clone() });
                }
            }
        };
        // An engine that lost its memory may begin a new tenure when it is asked for an existing one.
        if let Answer::Granted { token, resumed, .. } = &mut answer {
            *resumed &= begun != Some(*token);
        }
        self.asked(request, answer, at)
    }

    #[inline]
    pub(super) fn asked(
        &self,
        request: &Request,
        answer: Answer,
        at: Duration,
    ) -> Result<Asked, AcquireError<E::Error>> {
        let resource = || request.resource.clone();
        match answer {
            Answer::Busy { owner, remaining } => Ok(Asked::Busy { owner, remaining }),
            Answer::Quarantined { remaining } => Err(AcquireError::Quarantined { resource: resource(), remaining }),
            Answer::TooShort { min } => Err(AcquireError::TtlTooShort { resource: resource(), min }),
            answer => match GrantInfo::new(&answer, at, E::LOCAL) {
                Some(info) => Ok(Asked::Granted(info)),
                None => unreachable!("only a request for an existing tenure is answered with `Free`"),
            },
        }
    }

    pub(super) fn first_in_line(&self, resource: &Resource) -> Option<Owner> {
        if !self.is_attended(resource) {
            return None;
        }
        self.with_wait_list(|wait_list, _| {
            Some(wait_list.wait(wait_list.first(wait_list.find(resource)?)?).owner.clone())
        })
    }

    #[inline]
    pub(crate) async fn tried(&self, request: &Request) -> Result<GrantInfo, AcquireError<E::Error>> {
        match self.attempt(request, Turn::Outside).await? {
            Asked::Granted(info) => Ok(info),
            Asked::Busy { owner, remaining } => {
                Err(AcquireError::Busy { resource: request.resource.clone(), owner, remaining })
            }
        }
    }

    /// Extends a lease, or only looks at it if there is no term. Returns its end, or how it was lost. The tenures in
    /// `batched` are renewed in the same request.
    #[inline]
    pub(super) async fn extend(
        &self,
        held: &Grant,
        term: Option<Term>,
        batched: &[Arc<Tenure>],
    ) -> Result<Result<Option<Duration>, Lost>, E::Error> {
        let Grant { resource, owner, token, .. } = held;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let renewal = Renewal { resource, owner, token: *token, term, left: Left::Nothing };
        let renew = || async {
            if !batched.is_empty() {
                return self.extend_together(renewal.clone(), batched, at).await;
            }
            let mut batch = [renewal.clone()];
            self.engine.renew(&mut batch, at).await?;
            Ok(batch[0].left)
        };
        let (left, _) = self.ask(Some(resource), at, &renew).await?;
        let Some(remaining) = remaining(left) else { return Ok(Err(self.lost(held).await)) };
        Ok(Ok(self.new_end(held.end, remaining, at)))
    }

    /// Extends a lease and the tenures in `batched`, and updates those tenures in `batched` that were extended.
    #[cold]
    pub(super) async fn extend_together(
        &self,
        first: Renewal<'_>,
        batched: &[Arc<Tenure>],
        at: Duration,
    ) -> Result<Left, Fail<E::Error>> {
        let grants: Vec<Grant> = batched.iter().map(|tenure| tenure.state.lock().grant.clone()).collect();
        let others = grants.iter().map(|grant| Renewal {
            resource: &grant.resource,
            owner: &grant.owner,
            token: grant.token,
            term: term_of_renewal(grant.expiry.as_ref()),
            left: Left::Nothing,
        });
        let mut batch: Vec<Renewal<'_>> = core::iter::once(first).chain(others).collect();
        self.engine.renew(&mut batch, at).await?;
        for ((renewal, grant), tenure) in batch[1..].iter().zip(&grants).zip(batched) {
            if let Some(remaining) = remaining(renewal.left) {
                tenure.renewed(self.new_end(grant.end, remaining, at), at, Some(self.engine.now()));
            }
        }
        Ok(batch[0].left)
    }

    /// Returns the end of a lease that had the time `remaining` left when the engine was asked, at the time `at`.
    pub(super) fn new_end(
        &self,
        known: Option<Duration>,
        remaining: Option<Duration>,
        at: Duration,
    ) -> Option<Duration> {
        let end = deadline(remaining, at, E::LOCAL)?;
        if E::LOCAL {
            return Some(end);
        }
        // The known end may be later than the new one, from which one percent of the time left was subtracted. But the
        // result must not be later than the engine's end.
        let latest = remaining.and_then(|left| self.engine.now().checked_add(left));
        let known = known.into_iter().chain(latest).min();
        Some(known.map_or(end, |known| known.max(end)))
    }
}
