//! Work that must be done where no lock is held: wakers run and are dropped there, and so are other values of the user, for
//! any of it may call us again.

use alloc::vec::Vec;
use core::task::Waker;

use crate::{Expiry, panics};

/// Collected under a lock, done when dropped: so it must be made before the lock is taken.
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
    /// If a waker panics, the others are woken all the same.
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
