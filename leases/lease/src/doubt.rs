//! Tenures in doubt: the engine may have missed a notification about them. They are looked up together.
//!
//! When a connection is lost and made again, every tenure that is held through it is in doubt at once. A future that
//! finds its own tenure in doubt takes up to 255 others with it, and asks about all of them in one request. If the
//! future is dropped before the answer, they are in doubt again.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

use crate::{
    Grant, Leases, Lost,
    engine::{Engine, Left, Renewal},
    notice::{Ear, Notice},
    tenure::{MAX_BATCH, Tenure},
};

/// The tenures that one request looks up.
struct Looking<'a, E: Engine> {
    leases: &'a Leases<E>,
    notices: Vec<Arc<Notice>>,
}

impl<'a, E: Engine> Looking<'a, E> {
    /// Takes other tenures in doubt, to be looked up together with this one.
    fn new(leases: &'a Leases<E>, one: &Arc<Notice>) -> Self {
        let mut notices = leases.doubts().take(MAX_BATCH - 1);
        notices.push(Arc::clone(one));
        Looking { leases, notices }
    }

    /// Looks up the tenures of all `notices` in one request, and notifies the holders of those that have ended. If
    /// there is no answer, a loss is found by the next renewal or the next notification.
    async fn run(mut self) {
        let grants: Vec<(usize, Grant)> =
            self.notices.iter().enumerate().filter_map(|(at, notice)| Some((at, notice.grant()?))).collect();
        let look = grants.iter().map(|(_, Grant { resource, owner, token, .. })| Renewal {
            resource,
            owner,
            token: *token,
            term: None,
            left: Left::Nothing,
        });
        let mut batch: Vec<Renewal<'_>> = look.collect();
        let engine = self.leases.engine();
        let answer = engine.renew(&mut batch, engine.now()).await;
        let is_gone = |renewal: &Renewal<'_>| answer.is_ok() && renewal.left == Left::Nothing;
        let gone: Vec<&(usize, Grant)> =
            grants.iter().zip(&batch).filter_map(|(one, renewal)| is_gone(renewal).then_some(one)).collect();
        let how = match gone[..] {
            [(_, grant)] => self.leases.lost(grant).await,
            // If several tenures are lost, the engine is not asked how each of them was lost.
            _ => Lost::EngineForgot,
        };
        gone.iter().for_each(|(at, grant)| self.notices[*at].ended(grant.token, how));
        self.notices.drain(..).for_each(|notice| notice.is_looked_at());
    }
}

impl<E: Engine> Drop for Looking<'_, E> {
    fn drop(&mut self) {
        Notice::doubt_all(self.notices.iter().map(|notice| &**notice));
    }
}

impl Tenure {
    /// Runs a future that ends when the tenure is lost: polls it at each notification of the engine, and looks at the
    /// tenure if it is in doubt.
    pub(crate) async fn heeding<E: Engine>(
        self: &Arc<Self>,
        leases: &Leases<E>,
        until_lost: impl Future<Output = Lost>,
    ) -> Lost {
        let Some(notice) = &self.notice else { return until_lost.await };
        let mut until_lost = pin!(until_lost);
        let mut ear = Ear::new(Arc::clone(notice));
        let mut looking: Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = None;
        poll_fn(|cx| {
            ear.wake_by(cx.waker()); // before the check, so that no notification is missed
            loop {
                if looking.is_none() && notice.take() {
                    looking = Some(Box::pin(Looking::new(leases, notice).run()));
                }
                match looking.as_mut().map(|looking| looking.as_mut().poll(cx)) {
                    Some(Poll::Ready(())) => looking = None,
                    Some(Poll::Pending) | None => break,
                }
            }
            until_lost.as_mut().poll(cx)
        })
        .await
    }
}
