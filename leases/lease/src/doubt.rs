//! Tenures of which the engine may have missed something, and how they are looked at: together.
//!
//! When a connection is lost and made again, every tenure of the process is in doubt at once. A future that finds its own in doubt takes up to 255
//! others along, and asks about all of them in one request. If it is dropped before the answer, they are in doubt again.

use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

use crate::{
    Grant, Leases, Lost,
    engine::{Engine, Left, Renewal},
    notice::{Ear, Notice},
    sync::Mutex,
    tenure::{TOGETHER, Tenure},
};

/// The tenures of a table that are in doubt. Some may not be any more, and some may be gone.
pub(crate) struct Doubts(Mutex<Vec<Weak<Tenure>>>);

impl Default for Doubts {
    fn default() -> Self {
        Doubts(Mutex::new(Vec::new()))
    }
}

impl Doubts {
    pub(crate) fn add(&self, tenure: Weak<Tenure>) {
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain(|tenure| tenure.strong_count() > 0);
        }
        all.push(tenure);
    }

    /// Some that are to be looked at beside one.
    fn take(&self) -> Vec<Arc<Tenure>> {
        let some = {
            let mut all = self.0.lock();
            let rest = all.len().saturating_sub(TOGETHER - 1);
            all.split_off(rest)
        };
        let is_open = |tenure: &Arc<Tenure>| tenure.notice.as_ref().is_some_and(|notice| notice.take());
        some.iter().filter_map(Weak::upgrade).filter(is_open).collect()
    }
}

/// Tenures that are being looked at.
struct Looking<'a, E: Engine> {
    leases: &'a Leases<E>,
    tenures: Vec<Arc<Tenure>>,
}

impl<'a, E: Engine> Looking<'a, E> {
    /// This one, and others.
    fn new(leases: &'a Leases<E>, one: &Arc<Tenure>) -> Self {
        let mut tenures = leases.doubts().take();
        tenures.push(Arc::clone(one));
        Looking { leases, tenures }
    }

    /// Looks at all of them in one request, and tells those whose tenure is not there. If there is no answer their next renewals tell, or the
    /// next notice.
    async fn run(mut self) {
        let grants: Vec<Grant> = self.tenures.iter().map(|tenure| tenure.state.lock().grant.clone()).collect();
        let look = grants.iter().map(|Grant { resource, owner, token, .. }| Renewal {
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
        let is_gone: Vec<bool> = batch.iter().map(is_gone).collect();
        let how = match is_gone.iter().position(|is_gone| *is_gone) {
            // Of several it is not asked how each was lost.
            Some(at) if is_gone.iter().filter(|is_gone| **is_gone).count() == 1 => self.leases.lost(&grants[at]).await,
            _ => Lost::EngineForgot,
        };
        for (tenure, is_gone) in self.tenures.drain(..).zip(is_gone) {
            let Some(notice) = &tenure.notice else { continue };
            if is_gone {
                notice.ended(tenure.token, how);
            }
            notice.is_looked_at();
        }
    }
}

impl<E: Engine> Drop for Looking<'_, E> {
    fn drop(&mut self) {
        Notice::doubt_all(self.tenures.iter().filter_map(|tenure| tenure.notice.as_deref()));
    }
}

impl Tenure {
    /// Polls what ends when the tenure is lost, whenever the engine tells something of it; and looks at the tenure if it is in doubt.
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
            ear.wake_by(cx.waker()); // before it looks
            loop {
                if looking.is_none() && notice.take() {
                    looking = Some(Box::pin(Looking::new(leases, self).run()));
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
