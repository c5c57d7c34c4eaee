//! Walks, which visit all values, and wait for those that are locked.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::LockMap;
use super::find::Map;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use super::{MapReadGuard, MapWriteGuard};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::blocking::block;
use crate::acquire::future::race;
use crate::acquire::request::Request;
use crate::builder::DefaultHashBuilder;
use crate::core::{Position, Presence, Waiter};
use crate::guard::Guard;
use crate::mode::{Exclusive, Mode, Shared, Unmarked};
use crate::plumbing::TableRef;
use crate::plumbing::sealed::TablePtrInside as _;

/// A walk over all values of a [`LockMap`], one after another. It waits for values that are locked.
///
/// Each `next_…` call returns a guard of the next key that has a value, and `None` at the end. A walk locks one key at
/// a time: while it waits for a key, it holds none, unless the caller has kept an earlier guard.
///
/// # What it visits
/// A key that has a value from the beginning of the walk ([`LockMap::walk`]) to its end is visited exactly once,
/// however often the value is changed. That includes a key whose writer takes the value out for a moment, and stores it
/// again before releasing the key, as [`compute`](LockMap::compute) does. A key that gets or loses its value meanwhile
/// is visited at most once. The order is that of the entries in memory, and has no meaning.
///
/// A walk is not a snapshot: each value is as it is when its key is locked. To see several keys at one instant, use
/// [`read_many`](LockMap::read_many). To visit only what is not locked, without waiting, use
/// [`for_each_value`](LockMap::for_each_value).
///
/// A visit counts neither as a use of the value ([`max_values`](crate::Builder::max_values)) nor as a look-up
/// ([`record_stats`](crate::Builder::record_stats)).
///
/// A walk neither calls the keys' `Hash` or `Eq` nor clones a value.
///
/// # Waiting for oneself
/// A walk waits for every key that a writer holds, even if the key has no value at the moment: the writer may have
/// taken the value out. So a caller that holds a key as a writer waits for itself. The caller may keep the guards of a
/// walk while the walk continues, because no key is visited twice, and may lock other keys meanwhile. But then the
/// caller holds several keys in no fixed order; if another caller does so, too, each may wait for the other for ever.
///
/// # Memory
/// A walk has a position in the map, not a list of keys. While it is in one of the map's
/// [shards](crate::Builder::shards), it needs one bit for each slot of that shard, all in one allocation, and none of
/// the shard's values is [at rest](LockMap#memory). The call that enters a shard moves all of its values to entries,
/// and the call that leaves it, or the drop of the walk, moves them back. In between, `get` is slower there. Drop a
/// walk that is no longer needed: until then each new key of its shard costs a few instructions more. If a walk is
/// forgotten ([`core::mem::forget`]), its last shard stays in this state until the map is dropped, which also frees the
/// walk's bits. Nothing stays locked.
///
/// # Examples
/// ```
/// # futures_lite::future::block_on(async {
/// let stock: keylatch::LockMap<u64, u32> = [(7, 1), (8, 2)].into_iter().collect();
/// let mut walk = stock.walk();
/// while let Some(mut guard) = walk.next_write().await {
///     *guard.value_mut().unwrap() *= 10;
/// }
/// drop(walk);
/// assert_eq!((stock.get(&7).await, stock.get(&8).await), (Some(10), Some(20)));
/// # });
/// ```
#[must_use = "a walk visits nothing until one of its `next_…` methods is called"]
pub struct Walk<'a, K, V, S = DefaultHashBuilder> {
    map: Map<'a, K, V, S>,
    position: Position,
}

/// The guard of a key that does not count as visited yet.
type Found<'a, K, V, S, M> = Guard<Map<'a, K, V, S>, Unmarked<M>>;
type Waiting<'a, K, V, S, M> = Request<Map<'a, K, V, S>, Unmarked<M>>;
/// The guard of the next key; `None` at the end.
type Next<'a, K, V, S, M> = Option<Guard<Map<'a, K, V, S>, M>>;

impl<K, V, S> LockMap<K, V, S> {
    /// Starts a [`Walk`], which visits all values one after another, and waits for those that are locked.
    ///
    /// # Examples
    /// ```
    /// let stock: keylatch::LockMap<u64, u32> = [(7, 1), (8, 2)].into_iter().collect();
    /// let (mut walk, mut sum) = (stock.walk(), 0);
    /// while let Some(guard) = walk.next_read_blocking() {
    ///     sum += guard.value().unwrap();
    /// }
    /// assert_eq!(sum, 3);
    /// ```
    #[doc(alias = "iter")]
    #[doc(alias = "iter_mut")]
    #[doc(alias = "lock_all_entries")]
    pub fn walk(&self) -> Walk<'_, K, V, S> {
        Walk { map: TableRef::new(self), position: Position::default() }
    }
}

macro_rules! next {
    (
        // `$does` says how a key is locked, `$alike` is the map's method that waits in the same way, and `$uses` is a
        // line of the examples that uses the guard.
        $does:literal, $next:ident, $next_blocking:ident, $Mode:ident, $Guard:ident, $alike:literal, $uses:literal
    ) => {
        #[doc = concat!("Locks the next key that has a value for ", $does, ": a future, whose output is `None` at the end.")]
        ///
        /// Waits as
        #[doc = concat!("[`", $alike, "`](LockMap::", $alike, ")")]
        /// does. [`.until(limit)`](WalkNext::until) limits the wait.
        ///
        /// # Cancel safety
        /// The future can be dropped at any moment: then nothing is locked, and the walk continues with the same key.
        ///
        /// # Panics
        /// Panics as [`LockMap`](LockMap#panics) does.
        ///
        /// # Examples
        /// ```
        /// # futures_lite::future::block_on(async {
        /// let map: keylatch::LockMap<u64, u32> = [(7, 1), (8, 2)].into_iter().collect();
        /// let mut walk = map.walk();
        #[doc = concat!("while let Some(mut guard) = walk.", stringify!($next), "().await {")]
        #[doc = concat!("    ", $uses)]
        /// }
        /// # });
        /// ```
        #[inline]
        pub fn $next(&mut self) -> WalkNext<'_, 'a, K, V, S, $Mode> {
            WalkNext { walk: self, request: None, mode: Unmarked($Mode::NEW) }
        }

        #[doc = concat!("Locks the next key that has a value for ", $does, ", and blocks the thread while it waits. Returns `None` at the end.")]
        ///
        /// # Blocking
        /// Blocks like
        #[doc = concat!("[`", $alike, "_blocking`](LockMap::", $alike, "_blocking).")]
        /// Do not call this in a task; there, use
        #[doc = concat!("[`", stringify!($next), "`](Self::", stringify!($next), ").")]
        ///
        /// # Panics
        /// Panics as [`LockMap`](LockMap#panics) does.
        ///
        /// # Examples
        /// ```
        /// let map: keylatch::LockMap<u64, u32> = [(7, 1), (8, 2)].into_iter().collect();
        /// let mut walk = map.walk();
        #[doc = concat!("while let Some(mut guard) = walk.", stringify!($next_blocking), "() {")]
        #[doc = concat!("    ", $uses)]
        /// }
        /// ```
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        pub fn $next_blocking(&mut self) -> Option<$Guard<'a, K, V, S>> {
            let wait = |request| Ok(block(request, None).expect("a wait without a deadline ends with the hold"));
            match self.$next().poll_by(wait) {
                Poll::Ready(guard) => guard,
                Poll::Pending => unreachable!("a thread waits until it has the hold"),
            }
        }
    };
}

impl<'a, K, V, S> Walk<'a, K, V, S> {
    next!(
        "reading",
        next_read,
        next_read_blocking,
        Shared,
        MapReadGuard,
        "read",
        "println!(\"{} -> {:?}\", guard.key(), guard.value());"
    );

    next!("writing", next_write, next_write_blocking, Exclusive, MapWriteGuard, "write", "guard.remove();");

    /// Finds the next key to visit. Returns the key's guard if the key is free, else a request for the key; `None` at
    /// the end.
    #[allow(clippy::type_complexity)] // an alias would hide more than it tells
    fn find<M: Mode>(&mut self, mode: Unmarked<M>) -> Option<Result<Found<'a, K, V, S, M>, Waiting<'a, K, V, S, M>>> {
        Some(match self.map.core().walk_on(&mut self.position, mode)? {
            Ok(hold) => Ok(Guard::unmarked(self.map, hold)),
            Err(claim) => Err(Request::new(self.map, claim, mode)),
        })
    }

    /// Moves the walk past the key that was found. Returns its guard if the key has a value.
    fn visit<M: Mode>(&mut self, found: Found<'a, K, V, S, M>) -> Next<'a, K, V, S, M> {
        self.position.pass();
        found.value()?;
        Some(found.into_mode())
    }
}

impl<K, V, S> Drop for Walk<'_, K, V, S> {
    fn drop(&mut self) {
        self.map.core().end_walk(&mut self.position);
    }
}

impl<K, V, S> fmt::Debug for Walk<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").finish_non_exhaustive()
    }
}

/// A future that locks the next key of a [`Walk`]. Its output is the key's guard, or `None` at the end of the walk.
///
/// It finds the key at the first poll, and then waits for it as [`Acquire`](crate::futures::Acquire) does.
///
/// # Cancel safety
/// The future can be dropped at any moment: then nothing is locked, and the walk continues with the same key.
///
/// A future that is kept, and not polled, is not cancelled: see [idle futures](crate#idle-futures). One that is
/// forgotten ([`core::mem::forget`]) while it waits is idle for good: it keeps its place in the key's queue. The walk
/// continues with the same key, behind that place.
///
/// # Examples
/// See [`Walk::next_read`].
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct WalkNext<'w, 'a, K, V, S, M: Mode> {
    walk: &'w mut Walk<'a, K, V, S>,
    /// The request for the key that has been found.
    request: Option<Waiting<'a, K, V, S, M>>,
    mode: Unmarked<M>,
}

impl<'a, K, V, S, M: Mode> WalkNext<'_, 'a, K, V, S, M> {
    /// Waits at most until `limit` is ready. Any future may be the limit: see
    /// [`Acquire::until`](crate::futures::Acquire::until).
    ///
    /// # Errors
    /// Returns the output of `limit` if it was ready and the next key could not be locked. The walk can continue, with
    /// the same key.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment, like [`WalkNext`] itself.
    ///
    /// # Examples
    /// ```
    /// use std::future::ready;
    ///
    /// # futures_lite::future::block_on(async {
    /// let map: keylatch::LockMap<u64, u32> = [(7, 1)].into_iter().collect();
    /// let writer = map.write(&7).await;
    /// let mut walk = map.walk();
    /// assert_eq!(walk.next_read().until(ready("too late")).await.err(), Some("too late"));
    /// drop(writer);
    /// assert!(walk.next_read().until(ready("too late")).await.unwrap().is_some());
    /// # });
    /// ```
    #[must_use = "bind it: `let result = …`; the guard may be in it (`let _ = …` releases it at once)"]
    pub async fn until<F: Future>(mut self, limit: F) -> Result<Next<'a, K, V, S, M>, F::Output> {
        let outcome = race(&mut self, limit).await;
        // The request is dropped before the outcome is returned: see `race`.
        drop(self);
        outcome
    }

    /// Continues until a key with a value is locked, the walk ends, or `wait` returns a request, which then has to
    /// wait.
    fn poll_by(
        &mut self,
        mut wait: impl FnMut(Waiting<'a, K, V, S, M>) -> Result<Found<'a, K, V, S, M>, Waiting<'a, K, V, S, M>>,
    ) -> Poll<Next<'a, K, V, S, M>> {
        loop {
            let found = match self.request.take() {
                Some(request) => Err(request),
                None => match self.walk.find(self.mode) {
                    Some(found) => found,
                    None => return Poll::Ready(None),
                },
            };
            match found.or_else(&mut wait) {
                Ok(found) => {
                    // The key's value may have been removed while the walk waited.
                    if let Some(guard) = self.walk.visit(found) {
                        return Poll::Ready(Some(guard));
                    }
                }
                Err(request) => {
                    self.request = Some(request);
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<'a, K, V, S, M: Mode> Future for WalkNext<'_, 'a, K, V, S, M> {
    type Output = Next<'a, K, V, S, M>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_by(|mut request| match request.poll(Waiter { presence: Presence::Task, waker: cx.waker() }) {
            Poll::Ready(guard) => Ok(guard),
            Poll::Pending => Err(request),
        })
    }
}

impl<K, V, S, M: Mode> fmt::Debug for WalkNext<'_, '_, K, V, S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WalkNext").field("waits", &self.request.is_some()).finish_non_exhaustive()
    }
}
