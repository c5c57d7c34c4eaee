//! Tables that can be closed.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::blocking::{Wait, block, deadline_after};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::{Contention, Waiter};
use crate::futures::LatchAcquire;
use crate::latch::Gate;
use crate::mode::Shared;

/// A table that can be closed: closing it ends every waiting and every later request with [`Closed`], and lets holders
/// finish.
///
/// It is meant for shutting down: a program stops granting keys, and waits only for the work that has begun. `T` may be
/// any table, an `Arc` of a table, a [`Latch`](crate::Latch), or a struct with several tables, which are closed
/// together. Tables that need no closing stay as they are, and pay nothing.
///
/// | form | call |
/// |---|---|
/// | async | [`acquire`](Closable::acquire) |
/// | without waiting | [`try_acquire`](Closable::try_acquire) |
/// | blocking | [`acquire_blocking`](Closable::acquire_blocking) |
/// | blocking, with a limit | [`try_acquire_for`](Closable::try_acquire_for), [`try_acquire_until`](Closable::try_acquire_until) |
///
/// Each takes a closure that makes the request, so every call of the table can be used: `lock`, `read`, `acquire`,
/// `lock_many`, and the owned forms with `T = Arc<_>`. Requests that are made on [`get_ref`](Closable::get_ref) are not
/// affected by closing.
///
/// # What closing means
/// After [`close`](Closable::close) has returned, no request succeeds: a future ends with [`Closed`] at its next poll,
/// even if it has been granted the key, which passes on to the next waiter. A request that acquires its key while the
/// table is being closed releases it again, by dropping the output. Guards stay valid, and their holders can upgrade
/// and downgrade. A closed table cannot be opened again.
///
/// # Panics
/// Fewer than [`MAX_USERS`](crate::MAX_USERS) requests of one `Closable`, and calls of [`closed`](Closable::closed),
/// can wait at the same time, whatever their keys are; one more panics. (In practice this is a limit only on 32-bit
/// targets.)
///
/// # Examples
/// ```
/// use keylatch::{Closable, Closed, KeyedMutex};
///
/// # futures_lite::future::block_on(async {
/// let files = Closable::new(KeyedMutex::<String>::new());
/// let guard = files.acquire(|files| files.lock("a.txt")).await?;
///
/// // Another task waits for the same file.
/// let waiting = files.acquire(|files| files.lock("a.txt"));
/// files.close();
/// assert_eq!(waiting.await.unwrap_err(), Closed);
/// assert_eq!(files.try_acquire(|files| files.try_lock("b.txt")).unwrap_err(), Closed);
///
/// drop(guard); // the holder has finished
/// # Ok::<_, Closed>(())
/// # }).unwrap();
/// ```
pub struct Closable<T> {
    table: T,
    /// Opened when the table is closed.
    closing: Gate,
}

impl<T> Closable<T> {
    /// Wraps a table. It is not closed yet.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Closable, KeyedSemaphore};
    ///
    /// let downloads = Closable::new(KeyedSemaphore::<String>::new(4));
    /// assert!(!downloads.is_closed());
    /// ```
    #[must_use]
    pub fn new(table: T) -> Self {
        Closable { table, closing: Gate::new() }
    }

    /// Closes the table, and wakes all waiting requests. Later calls do nothing.
    ///
    /// It does not wait for the holders. If the table [is empty](crate::KeyedMutex::is_empty) afterwards, no key is
    /// held, and none will be.
    ///
    /// # Panics
    /// If the waker of a waiting task panics. By then all waiting tasks have been woken.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Closable, KeyedMutex};
    ///
    /// let files = Closable::new(KeyedMutex::<String>::new());
    /// files.close();
    /// files.close();
    /// assert!(files.is_closed());
    /// ```
    pub fn close(&self) {
        self.closing.open();
    }

    /// Returns whether the table has been closed.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Closable, KeyedMutex};
    ///
    /// let files = Closable::new(KeyedMutex::<String>::new());
    /// assert!(!files.is_closed());
    /// ```
    #[must_use]
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closing.is_open()
    }

    /// Waits until the table is closed.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Closable, KeyedMutex};
    ///
    /// # futures_lite::future::block_on(async {
    /// let files = Closable::new(KeyedMutex::<String>::new());
    /// # files.close();
    /// files.closed().await; // ends when another task has called `close`
    /// # });
    /// ```
    pub async fn closed(&self) {
        let _ = self.closing.opened().await;
    }

    /// Returns the table. Requests that are made on it are not affected by closing.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Closable, KeyedMutex};
    ///
    /// let files = Closable::new(KeyedMutex::<String>::new());
    /// let guard = files.try_acquire(|files| files.try_lock("a.txt")).unwrap();
    /// files.close();
    /// assert!(!files.get_ref().is_empty()); // a holder has not finished
    /// # drop(guard);
    /// ```
    #[must_use]
    #[inline]
    pub fn get_ref(&self) -> &T {
        &self.table
    }

    /// Returns the table, which is no longer closed.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Closable, KeyedMutex};
    ///
    /// let files = Closable::new(KeyedMutex::<String>::new());
    /// files.close();
    /// let files = files.into_inner();
    /// assert!(files.try_lock("a.txt").is_some());
    /// ```
    #[must_use]
    pub fn into_inner(self) -> T {
        self.table
    }

    /// Acquires a key. The output of the future is the output of the request, or [`Closed`].
    ///
    /// `request` is called at once, and makes a future of the table. It is not called if the table is closed.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment, like the table's own futures.
    ///
    /// # Errors
    /// The output is [`Closed`] if the table is closed before the key has been acquired.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch::{Closable, Closed, KeyedRwLock};
    ///
    /// # futures_lite::future::block_on(async {
    /// let pages = Closable::new(Arc::new(KeyedRwLock::<String>::new()));
    /// let reader = pages.acquire(|pages| pages.read_arc("index")).await?;
    /// // Futures that must be pinned, such as those of an `async` block, are boxed.
    /// let key = pages.acquire(|pages| Box::pin(async { pages.write("news").await.key().clone() })).await?;
    /// assert_eq!(key, "news");
    /// # drop(reader);
    /// # Ok::<_, Closed>(())
    /// # }).unwrap();
    /// ```
    #[inline]
    pub fn acquire<'a, F>(&'a self, request: impl FnOnce(&'a T) -> F) -> UntilClosed<'a, F>
    where
        F: Future + Unpin,
    {
        // If the table is closed, the request is not even made: it would keep an entry in the table until the future's
        // first poll.
        let request = if self.is_closed() { None } else { Some(request(&self.table)) };
        UntilClosed { request, closing: &self.closing, closed: None, is_finished: false }
    }

    /// Acquires a key if that is possible without waiting. `request` is not called if the table is closed.
    ///
    /// # Errors
    /// Returns [`Closed`] if the table is closed.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Closable, Closed, KeyedMutex};
    ///
    /// let files = Closable::new(KeyedMutex::<String>::new());
    /// let guard = files.try_acquire(|files| files.try_lock("a.txt"))?;
    /// assert!(guard.is_some());
    /// assert!(files.try_acquire(|files| files.try_lock("a.txt"))?.is_none());
    /// # Ok::<_, Closed>(())
    /// ```
    #[inline]
    pub fn try_acquire<'a, R>(&'a self, request: impl FnOnce(&'a T) -> R) -> Result<R, Closed> {
        if self.is_closed() { Err(Closed) } else { self.closing.unless_open(request(&self.table)) }
    }
}

/// Blocking and timed calls.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl<T> Closable<T> {
    /// Acquires a key, and blocks the thread while it waits.
    ///
    /// `request` makes a future of the table, such as that of `lock`; it is not called if the table is closed.
    ///
    /// # Blocking
    /// Do not call this in a task: it blocks the executor's thread. Use [`acquire`](Closable::acquire).
    ///
    /// # Errors
    /// Returns [`Closed`] if the table is closed before the key has been acquired.
    ///
    /// # Examples
    /// ```
    /// use std::thread;
    ///
    /// use keylatch::{Closable, Closed, KeyedMutex};
    ///
    /// let files = Closable::new(KeyedMutex::<String>::new());
    /// let guard = files.acquire_blocking(|files| files.lock("a.txt"))?;
    /// thread::scope(|scope| {
    ///     let waiting = scope.spawn(|| files.acquire_blocking(|files| files.lock("a.txt")).is_err());
    ///     files.close();
    ///     assert!(waiting.join().unwrap());
    /// });
    /// # drop(guard);
    /// # Ok::<_, Closed>(())
    /// ```
    pub fn acquire_blocking<'a, F>(&'a self, request: impl FnOnce(&'a T) -> F) -> Result<F::Output, Closed>
    where
        F: Future + Unpin,
    {
        block(self.acquire(request), None).expect("a wait without a deadline ends with the request")
    }

    /// Acquires a key, and blocks the thread for at most `timeout`. Returns `None` after the timeout.
    ///
    /// It tries at least once. A timeout that is too long for the clock means no limit.
    ///
    /// # Blocking
    /// Do not call this in a task: see [`acquire_blocking`](Closable::acquire_blocking).
    ///
    /// # Errors
    /// Returns [`Closed`] if the table is closed before the key has been acquired.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch::{Closable, Closed, KeyedMutex};
    ///
    /// let files = Closable::new(KeyedMutex::<String>::new());
    /// let guard = files.try_acquire_for(Duration::from_secs(5), |files| files.lock("a.txt"))?;
    /// assert!(guard.is_some());
    /// # Ok::<_, Closed>(())
    /// ```
    pub fn try_acquire_for<'a, F>(
        &'a self,
        timeout: Duration,
        request: impl FnOnce(&'a T) -> F,
    ) -> Result<Option<F::Output>, Closed>
    where
        F: Future + Unpin,
    {
        block(self.acquire(request), deadline_after(timeout)).transpose()
    }

    /// Acquires a key, and blocks the thread until `deadline` at the latest. Returns `None` after the deadline.
    ///
    /// It tries at least once.
    ///
    /// # Blocking
    /// Do not call this in a task: see [`acquire_blocking`](Closable::acquire_blocking).
    ///
    /// # Errors
    /// Returns [`Closed`] if the table is closed before the key has been acquired.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// use keylatch::{Closable, Closed, KeyedMutex};
    ///
    /// let files = Closable::new(KeyedMutex::<String>::new());
    /// let guard = files.try_acquire_until(Instant::now(), |files| files.lock("a.txt"))?;
    /// assert!(guard.is_some());
    /// # Ok::<_, Closed>(())
    /// ```
    pub fn try_acquire_until<'a, F>(
        &'a self,
        deadline: Instant,
        request: impl FnOnce(&'a T) -> F,
    ) -> Result<Option<F::Output>, Closed>
    where
        F: Future + Unpin,
    {
        block(self.acquire(request), Some(deadline)).transpose()
    }
}

impl<T: Default> Default for Closable<T> {
    fn default() -> Self {
        Closable::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Closable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closable").field("table", &self.table).field("is_closed", &self.is_closed()).finish()
    }
}

/// The error of a request to a [`Closable`] that has been closed.
///
/// # Examples
/// ```
/// assert_eq!(keylatch::Closed.to_string(), "the table has been closed");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the table has been closed")
    }
}

impl core::error::Error for Closed {}

impl Gate {
    /// Returns `acquired`, or drops it if the table has been closed in the meantime.
    ///
    /// After closing the table, a caller may check whether any key is in use. If that check misses this request,
    /// because the request takes its key only afterwards, then the check here comes later still, and sees that the
    /// table is closed.
    #[inline]
    fn unless_open<G>(&self, acquired: G) -> Result<G, Closed> {
        if self.is_open() { Err(Closed) } else { Ok(acquired) }
    }
}

/// The future of [`Closable::acquire`]: a request that ends when its table is closed.
///
/// # Panics
/// The future panics if it is polled after it has finished.
///
/// # Examples
/// ```
/// use keylatch::futures::{Lock, UntilClosed};
/// use keylatch::{Closable, Closed, KeyedMutex};
///
/// let files = Closable::new(KeyedMutex::<u64>::new());
/// let request: UntilClosed<'_, Lock<'_, u64>> = files.acquire(|files| files.lock(&7));
/// assert!(futures_lite::future::block_on(request).is_ok());
/// ```
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct UntilClosed<'a, F> {
    /// `None` if the table was already closed when `acquire` was called, or if the future has finished.
    request: Option<F>,
    closing: &'a Gate,
    /// The wait for the table to be closed. It begins when the request has to wait.
    closed: Option<LatchAcquire<'a, Shared>>,
    is_finished: bool,
}

impl<F: Future + Unpin> Future for UntilClosed<'_, F> {
    type Output = Result<F::Output, Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(!this.is_finished, "keylatch: a request to a closable table was polled after it had finished");
        if !this.closing.is_open() {
            if let Some(Poll::Ready(output)) = this.request.as_mut().map(|request| Pin::new(request).poll(cx)) {
                this.finish();
                return Poll::Ready(this.closing.unless_open(output));
            }
            let closing = this.closing;
            if Pin::new(this.closed.get_or_insert_with(|| closing.opened())).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        this.finish();
        Poll::Ready(Err(Closed))
    }
}

impl<F> UntilClosed<'_, F> {
    /// Drops the request together with its claim, its place in the queue, or a hold that it was granted.
    fn finish(&mut self) {
        self.is_finished = true;
        self.closed = None;
        self.request = None;
    }
}

impl<F> fmt::Debug for UntilClosed<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilClosed").field("is_closed", &self.closing.is_open()).finish_non_exhaustive()
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<F: Future + Unpin> Wait for UntilClosed<'_, F> {
    type Output = Result<F::Output, Closed>;

    /// Returns `MustQueue`, because only a poll can tell whether the request succeeds.
    fn contention(&mut self) -> Contention {
        Contention::MustQueue
    }

    fn attempt(&mut self) -> Option<Self::Output> {
        match Pin::new(self).poll(&mut Context::from_waker(core::task::Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Polls the request as a task, which need not know whether the thread spins or sleeps.
    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Self::Output> {
        Pin::new(self).poll(&mut Context::from_waker(waiter.waker))
    }
}
