//! A request for several stripes: all or none, each once, in the order of their indices.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

use super::guard::{LatchGuard, LatchReadGuard, LatchWriteGuard};
use super::request::Request;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::blocking::{Wait, block, deadline_after};
use crate::acquire::future::race;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::{LatchWord, Presence, Waiter, WakeBatch};
use crate::fairness::Fairness;
use crate::list::{self, List};
use crate::mode::{Exclusive, Mode, ReadOrWrite, Shared};

/// The guards that the `_many` calls of [`Striped`](crate::Striped) return: one for each distinct stripe, in no
/// specified order. There may be fewer guards than keys. Keys are not stored, so a guard cannot be found by a key.
///
/// Dropping a `LatchGuards` releases all of its stripes, and then wakes their waiters. [`IntoIterator`] takes the
/// guards out, and each is an ordinary one.
///
/// # Examples
/// ```
/// use keylatch::Striped;
///
/// let locks = Striped::<str>::new(64);
/// let guards = locks.write_many_blocking(["a", "b", "a"]);
/// assert!((1..=2).contains(&guards.len()));
/// drop(guards);
/// ```
#[must_use = "the stripes are released at once if the guards are not kept"]
#[clippy::has_significant_drop]
pub struct LatchGuards<'a, M: Mode> {
    guards: List<LatchGuard<'a, M>>,
}

impl<'a, M: Mode> LatchGuards<'a, M> {
    #[cfg(target_has_atomic = "ptr")] // for tracked requests
    pub(crate) fn of(guards: List<LatchGuard<'a, M>>) -> Self {
        LatchGuards { guards }
    }

    #[cfg(target_has_atomic = "ptr")] // for tracked guards
    pub(crate) fn as_slice(&self) -> &[LatchGuard<'a, M>] {
        self.guards.as_slice()
    }
}

impl<M: Mode> LatchGuards<'_, M> {
    /// Returns the number of stripes that are held: at most the number of keys.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Striped;
    ///
    /// let locks = Striped::<str>::new(1);
    /// assert_eq!(locks.read_many_blocking(["a", "b"]).len(), 1);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.guards.as_slice().len()
    }

    /// Returns whether there are no guards, because no key was named, or because `read_write_many` writes all stripes
    /// that it was to read.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Striped;
    ///
    /// let locks = Striped::<str>::new(64);
    /// let none: [&str; 0] = [];
    /// assert!(locks.read_many_blocking(none).is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.guards.as_slice().is_empty()
    }
}

impl<'a, M: Mode> LatchGuards<'a, M> {
    /// Returns an iterator over the guards, one for each stripe.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Striped;
    ///
    /// let locks = Striped::<str>::new(64);
    /// assert_eq!(locks.read_many_blocking(["a"]).iter().count(), 1);
    /// ```
    pub fn iter(&self) -> core::slice::Iter<'_, LatchGuard<'a, M>> {
        self.guards.as_slice().iter()
    }
}

impl<'g, 'a, M: Mode> IntoIterator for &'g LatchGuards<'a, M> {
    type Item = &'g LatchGuard<'a, M>;
    type IntoIter = core::slice::Iter<'g, LatchGuard<'a, M>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, M: Mode> IntoIterator for LatchGuards<'a, M> {
    type Item = LatchGuard<'a, M>;
    type IntoIter = LatchGuardsIter<'a, M>;

    fn into_iter(mut self) -> Self::IntoIter {
        LatchGuardsIter(core::mem::take(&mut self.guards).into_iter())
    }
}

/// The iterator that takes [`LatchGuards`] apart. Dropping it releases the guards that are left.
///
/// # Examples
/// ```
/// use keylatch::Striped;
///
/// let locks = Striped::<str>::new(64);
/// for guard in locks.write_many_blocking(["a", "b"]) {
///     drop(guard.downgrade());
/// }
/// ```
pub struct LatchGuardsIter<'a, M: Mode>(list::IntoIter<LatchGuard<'a, M>>);

impl<'a, M: Mode> Iterator for LatchGuardsIter<'a, M> {
    type Item = LatchGuard<'a, M>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<M: Mode> ExactSizeIterator for LatchGuardsIter<'_, M> {}

impl<M: Mode> fmt::Debug for LatchGuardsIter<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchGuardsIter").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<M: Mode> Drop for LatchGuards<'_, M> {
    fn drop(&mut self) {
        release(core::mem::take(&mut self.guards));
    }
}

/// Releases all guards, and then wakes the waiters.
fn release<M: Mode>(guards: List<LatchGuard<'_, M>>) {
    let mut batch = WakeBatch::default();
    guards.into_iter().for_each(|guard| guard.release_into(&mut batch));
}

impl<M: Mode> fmt::Debug for LatchGuards<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchGuards").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The mode in which a call acquires several stripes, and the type of its guards. Sealed.
pub trait LatchManyMode: Mode {
    /// The type of the guards that a call in this mode returns: one list, or two.
    type Guards<'a>;

    #[doc(hidden)]
    fn gather(guards: List<LatchGuard<'_, Self>>) -> Self::Guards<'_>;
}

impl LatchManyMode for Shared {
    type Guards<'a> = LatchGuards<'a, Shared>;

    fn gather(guards: List<LatchGuard<'_, Self>>) -> Self::Guards<'_> {
        LatchGuards { guards }
    }
}

impl LatchManyMode for Exclusive {
    type Guards<'a> = LatchGuards<'a, Exclusive>;

    fn gather(guards: List<LatchGuard<'_, Self>>) -> Self::Guards<'_> {
        LatchGuards { guards }
    }
}

impl LatchManyMode for ReadOrWrite {
    type Guards<'a> = (LatchGuards<'a, Shared>, LatchGuards<'a, Exclusive>);

    fn gather(guards: List<LatchGuard<'_, Self>>) -> Self::Guards<'_> {
        let mut sorted = (List::<LatchReadGuard<'_>>::default(), List::<LatchWriteGuard<'_>>::default());
        let writes = guards.as_slice().iter().filter(|guard| guard.writes()).count();
        sorted.0.reserve(guards.as_slice().len() - writes);
        sorted.1.reserve(writes);
        for guard in guards {
            match guard.sort() {
                Ok(reader) => sorted.0.push(reader),
                Err(writer) => sorted.1.push(writer),
            }
        }
        (LatchGuards { guards: sorted.0 }, LatchGuards { guards: sorted.1 })
    }
}

/// Requests for several stripes, acquired one after the other. While a call waits for one stripe, it holds only stripes
/// that come before that one in an order that is the same for all calls. So such calls never wait for each other in a
/// cycle.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Requests<'a, M: Mode> {
    latches: &'a [LatchWord],
    fairness: Fairness,
    /// The stripes still to acquire, in reverse order.
    wanted: List<(usize, M)>,
    current: Option<Request<'a, M>>,
    /// The acquired guards; `None` after all have been acquired and returned.
    guards: Option<List<LatchGuard<'a, M>>>,
}

impl<'a, M: Mode> Requests<'a, M> {
    /// Makes requests for the `wanted` stripes, which may be in any order and named several times. A stripe that is
    /// both read and written is written.
    pub(super) fn new(
        latches: &'a [LatchWord],
        fairness: Fairness,
        mut wanted: List<(usize, M)>,
        writes: fn(&M) -> bool,
    ) -> Self {
        wanted
            .as_mut_slice()
            .sort_unstable_by_key(|(stripe, mode)| (core::cmp::Reverse(*stripe), core::cmp::Reverse(writes(mode))));
        wanted.dedup_by_key(|(stripe, _)| *stripe);
        let mut guards = List::default();
        guards.reserve(wanted.as_slice().len());
        Requests { latches, fairness, wanted, current: None, guards: Some(guards) }
    }

    pub(crate) fn current(&mut self) -> Option<&mut Request<'a, M>> {
        if self.current.is_none() {
            let (stripe, mode) = self.wanted.pop()?;
            self.current = Some(Request::new(&self.latches[stripe], self.fairness, mode));
        }
        self.current.as_mut()
    }

    /// Acquires the stripes in order, until `step` returns `None` or all are acquired.
    fn proceed(
        &mut self,
        mut step: impl FnMut(&mut Request<'a, M>) -> Option<LatchGuard<'a, M>>,
    ) -> Option<List<LatchGuard<'a, M>>> {
        while let Some(request) = self.current() {
            let guard = step(request)?;
            self.accept(guard);
        }
        self.guards.take()
    }

    /// Keeps the guard that the current request has acquired. Returns its index among the guards.
    pub(crate) fn accept(&mut self, guard: LatchGuard<'a, M>) -> usize {
        self.current = None;
        let Some(guards) = &mut self.guards else { return 0 };
        guards.push(guard);
        guards.as_slice().len() - 1
    }

    /// Returns whether the guards have been taken out.
    #[cfg(target_has_atomic = "ptr")] // for tracked requests
    pub(crate) fn is_done(&self) -> bool {
        self.guards.is_none()
    }

    /// Returns the guards that have been acquired.
    #[cfg(target_has_atomic = "ptr")] // for tracked requests
    pub(crate) fn held(&self) -> &[LatchGuard<'a, M>] {
        self.guards.as_ref().map_or(&[], List::as_slice)
    }

    /// Takes the guards out; `None` if they have been taken before.
    #[cfg(target_has_atomic = "ptr")] // for tracked requests
    pub(crate) fn take_guards(&mut self) -> Option<List<LatchGuard<'a, M>>> {
        self.guards.take()
    }

    /// Polls the requests. If a waker panics, all holds and requests are given up while unwinding.
    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<List<LatchGuard<'a, M>>> {
        struct Polled<'r, 'a, M: Mode>(&'r mut Requests<'a, M>);
        impl<M: Mode> Drop for Polled<'_, '_, M> {
            fn drop(&mut self) {
                self.0.give_up();
            }
        }
        assert!(self.guards.is_some(), "keylatch: a lock future was polled after it had finished");
        let polled = Polled(self);
        let guards = polled.0.proceed(|request| match request.poll(waiter) {
            Poll::Ready(guard) => Some(guard),
            Poll::Pending => None,
        });
        core::mem::forget(polled);
        guards.map_or(Poll::Pending, Poll::Ready)
    }

    fn attempt(&mut self) -> Option<List<LatchGuard<'a, M>>> {
        self.proceed(Request::attempt)
    }
}

impl<'a, M: LatchManyMode> Requests<'a, M> {
    pub(super) fn try_all(mut self) -> Option<M::Guards<'a>> {
        self.attempt().map(M::gather)
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<'a, M: LatchManyMode> Requests<'a, M> {
    pub(super) fn block(self) -> M::Guards<'a> {
        self.enter_or(|requests| block(requests, None)).expect("a wait without a deadline ends with the holds")
    }

    pub(super) fn block_for(self, timeout: Duration) -> Option<M::Guards<'a>> {
        self.enter_or(|requests| block(requests, deadline_after(timeout)))
    }

    pub(super) fn block_until(self, deadline: Instant) -> Option<M::Guards<'a>> {
        self.enter_or(|requests| block(requests, Some(deadline)))
    }

    /// Tries all stripes without waiting, because usually all are free, and calls `block` if some are not.
    fn enter_or(mut self, block: impl FnOnce(Self) -> Option<List<LatchGuard<'a, M>>>) -> Option<M::Guards<'a>> {
        self.attempt().or_else(|| block(self)).map(M::gather)
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<'a, M: Mode> Wait for Requests<'a, M> {
    type Output = List<LatchGuard<'a, M>>;

    fn contention(&mut self) -> Contention {
        self.current().map_or(Contention::Free, |request| request.contention())
    }

    fn attempt(&mut self) -> Option<Self::Output> {
        Requests::attempt(self)
    }

    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Self::Output> {
        Requests::poll(self, waiter)
    }
}

impl<M: Mode> Requests<'_, M> {
    /// Gives up all holds and requests, and then wakes the waiters.
    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        let mut batch = WakeBatch::default();
        for guard in self.guards.take().into_iter().flatten() {
            guard.release_into(&mut batch);
        }
        if let Some(mut request) = self.current.take() {
            request.give_up_into(&mut batch);
        }
        self.wanted = List::default();
    }
}

impl<M: Mode> Drop for Requests<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if self.guards.is_some() {
            self.give_up();
        }
    }
}

/// The future of [`Striped::read_many`](crate::Striped::read_many), [`Striped::write_many`](crate::Striped::write_many)
/// and [`Striped::read_write_many`](crate::Striped::read_write_many), which acquires several stripes, all or none. Its
/// output is the guards.
///
/// It keeps the stripes that it has acquired while it waits for the rest, so it must be polled, or dropped. If a poll
/// panics (because a waker does), the future has given up all of its stripes.
///
/// # Cancel safety
/// The future can be dropped at any moment, and then holds nothing. Nothing is acquired before its first poll.
///
/// # Panics
/// The future panics if it is polled after it has finished, or after a poll that panicked.
///
/// # Examples
/// ```
/// use keylatch::Striped;
///
/// # futures_lite::future::block_on(async {
/// let accounts = Striped::<u64>::new(1024);
/// let both = accounts.write_many([&7, &12]).await;
/// # drop(both);
/// # });
/// ```
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct LatchAcquireMany<'a, M: LatchManyMode> {
    requests: Requests<'a, M>,
}

impl<'a, M: LatchManyMode> LatchAcquireMany<'a, M> {
    pub(super) fn new(requests: Requests<'a, M>) -> Self {
        LatchAcquireMany { requests }
    }

    #[cfg(target_has_atomic = "ptr")] // for tracked requests
    pub(crate) fn into_requests(self) -> Requests<'a, M> {
        self.requests
    }

    /// Waits for the stripes until `limit` is ready. Any future may be the limit, such as a timer of any runtime or a
    /// cancellation token. If both are ready, the result is `Ok`.
    ///
    /// # Errors
    /// Returns the output of `limit`. No stripe is held then.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment, like [`LatchAcquireMany`] itself.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Striped;
    ///
    /// # futures_lite::future::block_on(async {
    /// let accounts = Striped::<u64>::new(1024);
    /// let seven = accounts.write(&7).await;
    /// let both = accounts.write_many([&7, &12]).until(async { "no time" }).await;
    /// assert_eq!(both.err(), Some("no time"));
    /// # drop(seven);
    /// # });
    /// ```
    #[doc(alias = "timeout")]
    #[must_use = "bind it: `let result = …`; the guards may be in it (`let _ = …` releases them at once)"]
    pub async fn until<F: Future>(mut self, limit: F) -> Result<M::Guards<'a>, F::Output> {
        let outcome = race(&mut self, limit).await;
        // The requests are dropped before the outcome is returned: see `race`.
        drop(self);
        outcome
    }
}

impl<'a, M: LatchManyMode> Future for LatchAcquireMany<'a, M> {
    type Output = M::Guards<'a>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.requests.poll(Waiter { presence: Presence::Task, waker: cx.waker() }).map(M::gather)
    }
}

impl<M: LatchManyMode> fmt::Debug for LatchAcquireMany<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requests { wanted, current, guards, .. } = &self.requests;
        f.debug_struct("LatchAcquireMany")
            .field("to_come", &(wanted.as_slice().len() + usize::from(current.is_some())))
            .field("done", &guards.is_none())
            .finish_non_exhaustive()
    }
}
