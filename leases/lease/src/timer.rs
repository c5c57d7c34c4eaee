//! Timers for waiters, on any runtime or none.

use core::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

/// A timer whose time may change from poll to poll. Without the feature `std` it never wakes the task.
#[derive(Default)]
pub(crate) struct Timer {
    #[cfg(feature = "std")]
    armed: Option<(Duration, async_io::Timer)>,
}

impl Timer {
    pub(crate) fn new() -> Self {
        Timer::default()
    }

    /// Returns `Ready` if `due` may have come; `now` is the time of the caller's clock. Without a `due` time it is
    /// always pending.
    #[cfg(feature = "std")]
    pub(crate) fn poll(&mut self, due: Option<Duration>, now: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = due else {
            self.armed = None;
            return Poll::Pending;
        };
        if due <= now {
            self.armed = None;
            return Poll::Ready(());
        }
        let timer = match &mut self.armed {
            Some((at, timer)) if *at == due => timer,
            armed => &mut armed.insert((due, async_io::Timer::after(due - now))).1,
        };
        let fired = core::future::Future::poll(core::pin::Pin::new(timer), cx);
        if fired.is_ready() {
            self.armed = None;
        }
        fired.map(|_| ())
    }

    #[cfg(not(feature = "std"))]
    pub(crate) fn poll(&mut self, due: Option<Duration>, now: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        if due.is_some_and(|due| due <= now) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Yields to other tasks once.
pub(crate) async fn give_way() {
    let mut has_given = false;
    poll_fn(|cx| {
        if core::mem::replace(&mut has_given, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
