//! Timers, and a time limit for the steps of an operation.

use std::{
    future::{Future, poll_fn},
    hash::{BuildHasher, RandomState},
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use async_io::Timer;

use crate::deadline::Deadline;

/// A time limit that all steps of an operation share.
///
/// # Examples
/// ```
/// use std::{future, time::Duration};
///
/// use futures_lite::future::block_on;
/// use keylatch_lease_remote::Limit;
///
/// let mut limit = Limit::after(Duration::from_millis(1));
/// assert_eq!(block_on(limit.of(async { 1 })), Some(1));
/// assert_eq!(block_on(limit.of(future::pending::<()>())), None);
/// ```
#[derive(Debug)]
pub struct Limit {
    deadline: Deadline,
}

impl Limit {
    /// Returns a limit that is reached when this much time has passed.
    ///
    /// # Examples
    /// See [`Limit`].
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Limit { deadline: Deadline::at(Instant::now().checked_add(time)) }
    }

    /// Returns the output of the future; `None` if the limit is reached first. The future is polled at least once.
    ///
    /// # Examples
    /// See [`Limit`].
    pub async fn of<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            self.deadline.poll(cx).map(|()| None)
        })
        .await
    }
}

/// Waits for this long.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// use keylatch_lease_remote::sleep;
///
/// futures_lite::future::block_on(sleep(Duration::from_millis(1)));
/// ```
pub async fn sleep(time: Duration) {
    Timer::after(time).await;
}

/// Returns a random time between half of `time` and all of it.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// use keylatch_lease_remote::jittered;
///
/// let time = jittered(Duration::from_secs(2));
/// assert!(time >= Duration::from_secs(1) && time <= Duration::from_secs(2));
/// ```
#[must_use]
pub fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 1000;
    time.mul_f64(0.5 + random as f64 / 2000.0)
}

#[cfg(test)]
mod tests {
    use super::Limit;
    use futures_lite::future::{block_on, yield_now};
    use std::{future::pending, time::Duration};

    #[test]
    fn a_future_is_polled_once_after_the_limit() {
        let mut limit = Limit::after(Duration::ZERO);
        assert_eq!(block_on(limit.of(pending::<()>())), None);
        assert_eq!(block_on(limit.of(async { 7 })), Some(7));
        assert_eq!(block_on(limit.of(yield_now())), None);
    }
}
