//! Waiting: for a while, and until told.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use async_io::Timer;

/// A time by which something has to be done.
pub(crate) struct Limit(Timer);

impl Limit {
    pub(crate) fn after(time: Duration) -> Self {
        Limit(Timer::after(time))
    }

    /// What the future gives; `None` if the limit comes first.
    pub(crate) async fn of<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            Pin::new(&mut self.0).poll(cx).map(|_| None)
        })
        .await
    }
}

/// Lets time go by.
pub(crate) async fn sleep(time: Duration) {
    Timer::after(time).await;
}
