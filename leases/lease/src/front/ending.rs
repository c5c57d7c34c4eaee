//! Releasing and looking up, and the consequences of a lost lease.

use alloc::sync::Arc;
use core::time::Duration;

use super::{Ending, LeaseStatus, Leases, SWEEP, Tidier, as_term, deadline, term_of_renewal};
use crate::{
    Expiry, Grant, LookError, Lost, Owner, ReleaseError, RenewError, Resource, Token,
    engine::{Engine, Gone, Owned, Record, at_once},
    panics::{self, Panics},
    tenure::Tenure,
};

impl<E: Engine> Leases<E> {
    /// Returns how a tenure ended.
    pub(crate) async fn lost(&self, grant: &Grant) -> Lost {
        let _tidier = Tidier(&self.engine);
        // The clock is read again: the engine may have seen a later time than the caller when it answered that the
        // tenure has ended.
        let at = self.engine.now();
        if grant.end.is_some_and(|end| end <= at) {
            return Lost::Expired;
        }
        match self.ask(Some(&grant.resource), at, &|| self.engine.look(&grant.resource, at)).await {
            Ok((Some(_), _)) => Lost::TakenOver,
            Ok((None, _)) => Lost::Released,
            // The tenure is known to have ended, but the look-up of the cause has failed.
            Err(_) => Lost::EngineForgot,
        }
    }

    /// Renews a lease and returns its new end. The tenures in `batched` are renewed in the same request: see
    /// [`tenure`](crate::tenure).
    #[inline]
    pub(crate) async fn renewed(
        &self,
        grant: &Grant,
        batched: &[Arc<Tenure>],
    ) -> Result<Option<Duration>, RenewError<E::Error>> {
        grant.resource.check()?;
        grant.owner.check()?;
        let mut term = term_of_renewal(grant.expiry.as_ref());
        let mut policy = match &grant.expiry {
            Some(Expiry::Custom(policy)) => Some(policy),
            _ => None,
        };
        loop {
            let end = self.extend(grant, term, batched).await.map_err(RenewError::Engine)?.map_err(RenewError::Lost)?;
            if term.is_some() {
                return Ok(end);
            }
            // The policy is asked only now, so that it is not asked about a lease that is lost.
            let Some(policy) = policy.take() else {
                return Err(RenewError::NotRenewable { resource: grant.resource.clone() });
            };
            term = as_term(policy.remaining(self.engine.now().saturating_sub(grant.start)));
        }
    }

    #[inline]
    pub(crate) async fn released(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
    ) -> Result<(), ReleaseError<E::Error>> {
        resource.check()?;
        owner.check()?;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let ending = Ending::new(self, resource, at);
        let release = || self.engine.release(resource, owner, token, at);
        let released = self.ask(Some(resource), at, &release).await;
        ending.over();
        self.has_released(resource, token, at, released)
    }

    pub(crate) async fn released_token(&self, resource: &Resource, token: Token) -> Result<(), ReleaseError<E::Error>> {
        resource.check()?;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let ending = Ending::new(self, resource, at);
        let release = || self.engine.release_token(resource, token, at);
        let released = self.ask(Some(resource), at, &release).await;
        ending.over();
        self.has_released(resource, Some(token), at, released)
    }

    /// Notifies waiters and watchers of the outcome of a release, and converts it to the call's result. The flag beside
    /// the engine's answer says whether an earlier answer was lost.
    pub(super) fn has_released(
        &self,
        resource: &Resource,
        token: Option<Token>,
        at: Duration,
        released: Result<(Gone, bool), E::Error>,
    ) -> Result<(), ReleaseError<E::Error>> {
        match released {
            Ok((Gone::NotHeld, false)) => self.found_free(resource),
            Ok((Gone::NotOwner(_), false)) => {}
            // The lost answer may have been positive.
            _ => self.ended(resource, at),
        }
        match released.map_err(ReleaseError::Engine)? {
            (Gone::Released, _) => {}
            // The lost answer was positive, unless the tenure ended in another way; in either case it has ended.
            (_, true) if token.is_some() => {}
            (Gone::NotHeld, _) => return Err(ReleaseError::NotHeld { resource: resource.clone() }),
            (Gone::NotOwner(owner), _) => return Err(ReleaseError::NotOwner { resource: resource.clone(), owner }),
        }
        Ok(())
    }

    pub(crate) async fn released_all(&self, owner: Owner) -> Result<usize, LookError<E::Error>> {
        owner.check()?;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let release = || self.engine.release_all(&owner, at);
        let released = self.ask(None, at, &release).await;
        if !E::LOCAL && !matches!(released, Ok((_, false))) {
            // The lost answer may have named any resource.
            self.with_wait_list(|wait_list, deferred| wait_list.wake_all(deferred));
        }
        let (released, _) = released.map_err(LookError::Engine)?;
        panics::each(&released, |resource| self.ended(resource, at));
        Ok(released.len())
    }

    pub(crate) async fn swept(&self) -> Result<usize, LookError<E::Error>> {
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let mut removed = 0;
        loop {
            let swept = self.ask(None, at, &|| self.engine.sweep(SWEEP, at)).await.map_err(LookError::Engine)?.0;
            removed += swept;
            if swept < SWEEP {
                break;
            }
        }
        self.attend(at);
        Ok(removed)
    }

    pub(crate) async fn looked(&self, resource: Resource) -> Result<Option<LeaseStatus>, LookError<E::Error>> {
        resource.check()?;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let look = || self.engine.look(&resource, at);
        let (record, _) = self.ask(Some(&resource), at, &look).await.map_err(LookError::Engine)?;
        if record.is_none() {
            self.found_free(&resource);
        }
        let waiters = || {
            self.with_wait_list(|wait_list, _| {
                wait_list.find(&resource).map_or(0, |place| wait_list.place(place).waiting)
            })
        };
        Ok(record.map(|Record { owner, token, held_for, remaining }| {
            let waiters = if self.is_attended(&resource) { waiters() } else { 0 };
            LeaseStatus { owner, token, since: at.saturating_sub(held_for), held_for, remaining, waiters }
        }))
    }

    pub(crate) async fn grants_of(&self, owner: Owner) -> Result<alloc::vec::Vec<Grant>, LookError<E::Error>> {
        owner.check()?;
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let (owned, _) = self.ask(None, at, &|| self.engine.owned_by(&owner, at)).await.map_err(LookError::Engine)?;
        let grant = |owned: Owned| {
            let Record { owner, token, held_for, remaining } = owned.record;
            let (start, end) = (at.saturating_sub(held_for), deadline(remaining, at, E::LOCAL));
            Grant::new(owned.resource, owner, token, true, start, end, owned.expiry)
        };
        Ok(owned.into_iter().map(grant).collect())
    }

    /// Returns the end of this tenure, or how it was lost. With an engine on a server, makes no request: the result is
    /// what this process knows.
    pub(crate) fn check(&self, grant: &Grant) -> Result<Option<Duration>, Lost> {
        if let Some(end) = self.extended_at_once(grant, None) {
            return Ok(end);
        }
        if E::LOCAL {
            return match at_once(self.extend(grant, None, &[])) {
                Ok(looked) => looked,
                Err(_) => Err(Lost::EngineForgot),
            };
        }
        let at = self.engine.now();
        if grant.end.is_some_and(|end| end <= at) { Err(Lost::Expired) } else { Ok(grant.end) }
    }

    /// Releases a tenure as far as possible without waiting for an answer.
    pub(crate) fn let_go(&self, resource: &Resource, owner: &Owner, token: Token) {
        // If the clock panics, the tenure is released as of the latest time that the engine has seen.
        let now = || panics::or_else(|| self.engine.now(), || self.let_go_at(resource, owner, token, Duration::ZERO));
        let mut panics = Panics::new();
        if let Some(at) = panics.catch(now) {
            self.let_go_at(resource, owner, token, at);
        }
        panics.resume();
    }

    pub(super) fn let_go_at(&self, resource: &Resource, owner: &Owner, token: Token, at: Duration) {
        let _tidier = Tidier(&self.engine);
        panics::each([true, false], |is_first| match is_first {
            true if E::LOCAL => {
                // If the lease is lost, there is nothing to release.
                let release = || self.engine.release(resource, owner, Some(token), at);
                let _ = at_once(self.ask(Some(resource), at, &release));
            }
            true => self.engine.abandon(resource, owner, token),
            false => self.ended(resource, at),
        });
    }

    /// Wakes the watchers of a resource.
    pub(crate) fn wake_watches(&self, resource: &Resource) {
        if self.is_attended(resource) {
            self.with_wait_list(|wait_list, deferred| {
                wait_list.find(resource).into_iter().for_each(|place| wait_list.ended(place, deferred))
            });
        }
    }
}
