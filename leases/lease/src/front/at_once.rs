//! The calls that an engine in this process answers at once.

use core::time::Duration;

use super::{GrantInfo, Leases, Request, Tidier, Turn, at_once, deadline, remaining, term_of_renewal};
use crate::{
    Grant, Owner, Resource, Term, Token,
    engine::{Ask, Engine, Gone, Left, Renewal},
};

impl<E: Engine> Leases<E> {
    #[inline]
    pub(super) fn is_at_once(&self, resource: &Resource, owner: &Owner) -> bool {
        E::LOCAL && !self.is_attended(resource) && resource.check().is_ok() && owner.check().is_ok()
    }

    #[inline]
    pub(crate) fn acquired_at_once(&self, request: &Request) -> Option<GrantInfo> {
        let Request { resource, owner, expiry, .. } = request;
        let arrived = self.arrivals();
        if !self.is_at_once(resource, owner) {
            return None;
        }
        let term = Some(expiry.term()?);
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let want = request.want(Turn::Outside);
        let answer = at_once(self.engine.acquire(Ask { resource, owner, want, term, expiry, waiting: false, at }));
        let info = GrantInfo::new(&answer.ok()?, at, E::LOCAL)?;
        if info.resumed && self.arrivals() != arrived {
            return None;
        }
        if !info.resumed {
            self.ended(resource, at);
        }
        Some(info)
    }

    /// The lease's new end.
    #[inline]
    pub(crate) fn renewed_at_once(&self, grant: &Grant) -> Option<Option<Duration>> {
        let term = term_of_renewal(grant.expiry.as_ref())?;
        self.extended_at_once(grant, Some(term))
    }

    #[inline]
    pub(super) fn extended_at_once(&self, held: &Grant, term: Option<Term>) -> Option<Option<Duration>> {
        let Grant { resource, owner, token, .. } = held;
        if !self.is_at_once(resource, owner) {
            return None;
        }
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let mut batch = [Renewal { resource, owner, token: *token, term, left: Left::Nothing }];
        at_once(self.engine.renew(&mut batch, at)).ok()?;
        let remaining = remaining(batch[0].left)?;
        self.extended(resource, *token, at);
        Some(deadline(remaining, at, E::LOCAL))
    }

    #[inline]
    pub(crate) fn released_at_once(&self, resource: &Resource, owner: &Owner, token: Option<Token>) -> Option<()> {
        if !self.is_at_once(resource, owner) {
            return None;
        }
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let gone = at_once(self.engine.release(resource, owner, token, at));
        matches!(gone, Ok(Gone::Released)).then(|| self.ended(resource, at))
    }
}
