//! A future that can also be waited for by blocking.

use alloc::boxed::Box;
use core::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// A future of a [`Held`](crate::Held), [`Leadership`](crate::Leadership), [`List`](crate::List) or
/// [`Watch`](crate::Watch): await it, or block on it with `wait`.
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct Waiting<F>(pub(super) Pin<Box<F>>);

impl<F: Future> Waiting<F> {
    pub(crate) fn new(future: F) -> Self {
        Waiting(Box::pin(future))
    }
}

impl<F: Future> Future for Waiting<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<F> fmt::Debug for Waiting<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

#[cfg(feature = "std")]
impl<F: Future> Waiting<F> {
    /// Blocks the thread until the future is ready, and returns its output.
    ///
    /// # Blocking
    /// Do not call it in a task.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Lost, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let held = leases.hold_blocking("report", &Owner::named("jane"), Duration::from_millis(10)).unwrap();
    /// assert_eq!(held.lost().wait(), Lost::Expired);
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[allow(clippy::must_use_candidate)] // waiting may be the whole purpose: for a release, for example
    pub fn wait(self) -> F::Output {
        async_io::block_on(self.0)
    }
}
