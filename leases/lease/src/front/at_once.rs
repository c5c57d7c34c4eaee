//! The calls that an engine in this process answers at once.
//!
//! The most common calls take this path when there are no waiters or watches: they call the engine without a future
//! around the call. They return `None` if they cannot take this path, or if the engine has refused or failed. In that
//! case nothing has been done, apart from steps that may be repeated, and the caller takes the general path.

use core::time::Duration;

use super::{GrantInfo, Leases, Request, Tidier, Turn, deadline, remaining, term_of_renewal};
use crate::{
    Grant, Owner, Resource, Term, Token,
    engine::{Ask, Engine, Gone, Left, Renewal, at_once},
};

impl<E: Engine> Leases<E> {
    /// Returns whether a call may ask the engine without the wait list. Invalid names take the general path, which
    /// reports the error.
    #[inline]
    pub(super) fn is_at_once(&self, resource: &Resource, owner: &Owner) -> bool {
        E::LOCAL && !self.is_attended(resource) && resource.check().is_ok() && owner.check().is_ok()
    }

    #[inline]
    pub(crate) fn acquired_at_once(&self, request: &Request) -> Option<GrantInfo> {
        let Request { resource, owner, expiry, .. } = request;
        if !self.is_at_once(resource, owner) {
            return None;
        }
        let term = Some(expiry.term()?);
        let _tidier = Tidier(&self.engine);
        let at = self.engine.now();
        let want = request.want(Turn::Outside);
        let answer = at_once(self.engine.acquire(Ask { resource, owner, want, term, expiry, waiting: false, at }));
        let info = GrantInfo::new(&answer.ok()?, at, E::LOCAL)?;
        if !info.resumed {
            self.ended(resource, at);
        }
        Some(info)
    }

    /// Renews a lease and returns its new end.
    #[inline]
    pub(crate) fn renewed_at_once(&self, grant: &Grant) -> Option<Option<Duration>> {
        let term = term_of_renewal(grant.expiry.as_ref())?;
        self.extended_at_once(grant, Some(term))
    }

    #[inline]
    pub(super) fn extended_at_once(&self, held: &Grant, term: Option<Term>) -> Option<Option<Duration>> {
        if !self.is_at_once(&held.resource, &held.owner) {
            return None;
        }
        let _tidier = Tidier(&self.engine);
        self.extended_at(held, term, self.engine.now())
    }

    /// Extends a lease, or only looks at it if there is no term. Returns its end; `None` if it is lost or the engine
    /// has failed.
    #[inline]
    pub(crate) fn extended_at(&self, held: &Grant, term: Option<Term>, at: Duration) -> Option<Option<Duration>> {
        let Grant { resource, owner, token, .. } = held;
        let mut batch = [Renewal { resource, owner, token: *token, term, left: Left::Nothing }];
        at_once(self.engine.renew(&mut batch, at)).ok()?;
        Some(deadline(remaining(batch[0].left)?, at, E::LOCAL))
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
