//! Work that must be done with no lock held: calling wakers, and dropping wakers and policies. All of this runs user
//! code, which may call the leases again.

use alloc::vec::Vec;
use core::task::Waker;

use crate::{Expiry, panics};

/// Work that is collected under a lock and done on drop. It must be created before the lock is taken, so that it is
/// dropped after the lock has been released.
#[derive(Default)]
pub(crate) struct Deferred {
    wakes: Vec<Waker>,
    dead_wakers: Vec<Waker>,
    dead_policies: Vec<Expiry>,
}

enum Task {
    Wake(Waker),
    DropWaker(Waker),
    DropPolicy(Expiry),
}

impl Deferred {
    pub(crate) fn new() -> Self {
        Deferred::default()
    }

    pub(crate) fn wake(&mut self, waker: impl IntoIterator<Item = Waker>) {
        self.wakes.extend(waker);
    }

    pub(crate) fn bury_waker(&mut self, waker: Option<Waker>) {
        self.dead_wakers.extend(waker);
    }

    pub(crate) fn bury_policy(&mut self, expiry: Expiry) {
        if let Expiry::Custom(_) = expiry {
            self.dead_policies.push(expiry);
        }
    }
}

impl Drop for Deferred {
    /// Does the work. If a waker panics, the others are still called.
    fn drop(&mut self) {
        let Deferred { wakes, dead_wakers, dead_policies } = self;
        if wakes.is_empty() && dead_wakers.is_empty() && dead_policies.is_empty() {
            return;
        }
        let dead = dead_wakers.drain(..).map(Task::DropWaker).chain(dead_policies.drain(..).map(Task::DropPolicy));
        panics::each(wakes.drain(..).map(Task::Wake).chain(dead), |task| match task {
            Task::Wake(waker) => waker.wake(),
            Task::DropWaker(waker) => drop(waker),
            Task::DropPolicy(policy) => drop(policy),
        });
    }
}
