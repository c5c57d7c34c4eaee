//! Wakers that leave a queue: they are user code, so they are run and dropped when every lock is released.

use alloc::vec::Vec;
use core::task::Waker;

/// User code that must run outside every lock, after the caller's own state is in order: wakers to wake,
/// and wakers that are done with. Dropping the batch wakes the ones and drops the others, all of them, even if some panic.
///
/// Two wakers that are due need no allocation, and a mutex never has more.
///
/// `pub` because sealed traits name it; nobody outside can.
#[derive(Default)]
#[allow(unreachable_pub, missing_debug_implementations)] // nobody outside has one to print
pub struct WakeBatch {
    due: [Option<Waker>; 2],
    more: Vec<Waker>,
    /// The waker that a waiter had until now.
    pub(super) old: Option<Waker>,
    /// A clone of the caller's waker, made before the lock was taken.
    pub(super) fresh: Option<Waker>,
}

impl WakeBatch {
    /// With a clone of the caller's waker, so that none is cloned later.
    #[cfg(target_has_atomic = "ptr")] // for those who are tracked
    pub(crate) fn with_fresh(waker: Waker) -> Self {
        let mut batch = WakeBatch::default();
        batch.fresh = Some(waker);
        batch
    }

    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        match &mut self.due {
            [place @ None, _] | [_, place @ None] => *place = Some(waker),
            _ => self.more.push(waker),
        }
    }

    /// Before all others.
    pub(super) fn wake_first(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        let next = self.due[0].replace(waker);
        self.wake(next);
    }

    /// Whether `count` more wakers fit without an allocation.
    #[inline]
    pub(super) fn fits(&self, count: usize) -> bool {
        let [first, second] = &self.due;
        let free = usize::from(first.is_none()) + usize::from(second.is_none());
        count <= free || count <= free + self.more.capacity() - self.more.len()
    }

    pub(super) fn reserve(&mut self, count: usize) {
        self.more.reserve(count);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.due.iter().flatten().count() + self.more.len()
    }

    /// Many, so that one that panics must not keep the others from it.
    #[cold]
    #[inline(never)]
    fn empty(&mut self) {
        let due = self.due.iter_mut().filter_map(Option::take).chain(self.more.drain(..)).map(|waker| (waker, true));
        let done = self.old.take().into_iter().chain(self.fresh.take()).map(|waker| (waker, false));
        crate::panics::run_all(
            due.chain(done).map(|(waker, is_due)| move || if is_due { waker.wake() } else { drop(waker) }),
        );
    }
}

impl Drop for WakeBatch {
    #[inline]
    fn drop(&mut self) {
        let [first, second] = &mut self.due;
        let several = second.is_some() || self.fresh.is_some() || first.is_some() && self.old.is_some();
        // One that panics now is the only one; but a second panic of this thread would abort.
        if several || (first.is_some() || self.old.is_some()) && crate::panics::panicking() {
            self.empty();
        } else if let Some(due) = first.take() {
            due.wake();
        } // else the old one, if there is one, goes with its field
    }
}
