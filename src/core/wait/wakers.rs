//! Wakers that leave a queue. They are user code, so they run and are dropped after every lock is released.

use alloc::vec::Vec;
use core::task::Waker;

/// User code that must run outside every lock, when the caller's own state is consistent: wakers to call, and wakers to
/// drop. Dropping the batch handles all of them, even if some panic.
///
/// Two wakers need no allocation, and a release of a mutex never wakes more.
///
/// `pub` because sealed traits name it; other crates cannot.
#[derive(Default)]
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct WakeBatch {
    wakers: [Option<Waker>; 2],
    more: Vec<Waker>,
    /// The former waker of a waiter, to be dropped.
    pub(super) old: Option<Waker>,
    /// A clone of the caller's waker, made before the lock was taken.
    pub(super) fresh: Option<Waker>,
}

impl WakeBatch {
    /// Makes a batch that contains a clone of the caller's waker, so that none is cloned under a lock.
    #[cfg(target_has_atomic = "ptr")] // for tracked requests
    pub(crate) fn with_fresh(waker: Waker) -> Self {
        let mut batch = WakeBatch::default();
        batch.fresh = Some(waker);
        batch
    }

    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        match &mut self.wakers {
            [place @ None, _] | [_, place @ None] => *place = Some(waker),
            _ => self.more.push(waker),
        }
    }

    /// Adds a waker that is called before all others.
    pub(super) fn wake_first(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        let next = self.wakers[0].replace(waker);
        self.wake(next);
    }

    /// Returns whether `count` more wakers fit without an allocation.
    #[inline]
    pub(super) fn fits(&self, count: usize) -> bool {
        let [first, second] = &self.wakers;
        let free = usize::from(first.is_none()) + usize::from(second.is_none());
        count <= free || count <= free + self.more.capacity() - self.more.len()
    }

    pub(super) fn reserve(&mut self, count: usize) {
        self.more.reserve(count);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.wakers.iter().flatten().count() + self.more.len()
    }

    /// Handles all wakers, even if one of them panics.
    #[cold]
    #[inline(never)]
    fn empty(&mut self) {
        let woken =
            self.wakers.iter_mut().filter_map(Option::take).chain(self.more.drain(..)).map(|waker| (waker, true));
        let done = self.old.take().into_iter().chain(self.fresh.take()).map(|waker| (waker, false));
        crate::panics::run_all(
            woken.chain(done).map(|(waker, wakes)| move || if wakes { waker.wake() } else { drop(waker) }),
        );
    }
}

impl Drop for WakeBatch {
    #[inline]
    fn drop(&mut self) {
        let [first, second] = &mut self.wakers;
        let several = second.is_some() || self.fresh.is_some() || first.is_some() && self.old.is_some();
        // A single call may panic, unless the thread is already panicking: a second panic would abort.
        if several || (first.is_some() || self.old.is_some()) && crate::panics::panicking() {
            self.empty();
        } else if let Some(waker) = first.take() {
            waker.wake();
        } // otherwise an old waker is dropped with its field
    }
}
