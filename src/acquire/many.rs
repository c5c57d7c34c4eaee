//! Requests for several keys of one table, which are acquired one after another, in the order of the addresses of their
//! entries.
//!
//! Each is an ordinary [`Request`] for one key. A call waits only for a key that comes after all keys that it holds, in
//! an order that is the same for all calls, so such calls never wait for each other in a cycle. An entry does not move
//! while it has a claim, and a call has all its claims before it sorts them.
//!
//! A call that does not wait need not follow the order. So a blocking call, a call that never waits, and the first poll
//! of a future first acquire free keys in the order in which they are named. If all keys are free, the call is done.
//! Otherwise it releases the keys again and sorts its requests.

use alloc::boxed::Box;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use super::blocking::{Wait, block, deadline_after};
use super::future::race;
use super::request::Request;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::{Access, ClaimIn, Ending, Presence, Source, Waiter, Want};
use crate::guard::{Guard, Released};
use crate::guards::{Guards, ManyMode};
use crate::list::List;
use crate::mode::Mode;
use crate::panics::{Panics, run_all};
use crate::plumbing::{ClaimOf, CoreOf, HoldOf, PayloadOf, TablePtr};

/// Several operations on one table, before the manner of waiting is chosen.
pub(crate) struct Calls<P, I> {
    table: P,
    /// The sources of the entries, each with the requested mode.
    wanted: I,
}

/// Claims of the entries of several keys, each with the requested mode, in the order in which they were named.
struct Claims<P: TablePtr, M: Mode> {
    table: P,
    list: List<(ClaimIn<P>, M)>,
}

/// Requests for several keys, all or none. Dropping this gives up its holds and its waiting request.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Requests<P: TablePtr, M: Mode> {
    table: P,
    /// The guards, in the order in which the keys were named; those of keys that are not held yet are vacant. `None`
    /// when they have been returned.
    guards: Option<Guards<P, M>>,
    /// The requests that have not acquired their keys yet, the next one last.
    wanted: List<Wanted<P, M>>,
    /// The current request, which comes before those in `wanted`, and its index among the guards.
    current: Option<(Request<P, M>, usize)>,
}

/// A key that is still to be acquired. The claim keeps its entry in the table.
struct Wanted<P: TablePtr, M> {
    claim: ClaimIn<P>,
    mode: M,
    /// The index among the guards.
    place: usize,
}

#[inline]
fn kept<P: TablePtr, M>((claim, mode): (ClaimOf<P>, M)) -> (ClaimIn<P>, M) {
    (ClaimIn::new(claim), mode)
}

impl<P: TablePtr, M: Mode> Wanted<P, M> {
    #[inline]
    fn address(&self) -> usize {
        self.claim.live().address()
    }

    /// Returns the rank of a request among those for the same key. The one with the lowest rank is kept: a request to
    /// write, or else the one named first.
    #[inline]
    fn rank(&self) -> (bool, usize) {
        (self.mode.access() == Access::Shared, self.place)
    }
}

/// The keys that were acquired, in the order in which they were named, and the first that could not be acquired.
type Entered<P, M> = (Guards<P, M>, (ClaimOf<P>, M));

/// Acquires free keys in the order in which they are named. The order does not matter, because this never waits.
///
/// # Errors
/// Returns the acquired keys, and the first key that could not be acquired, or that is already among them.
#[inline]
fn enter<P: TablePtr, M: Mode, T>(
    table: &P,
    wanted: &mut impl Iterator<Item = (T, M)>,
    mut enter: impl FnMut(T, M, &[Guard<P, M>]) -> Result<HoldOf<P, M>, ClaimOf<P>>,
) -> Result<Guards<P, M>, Entered<P, M>> {
    let Some((what, mode)) = wanted.next() else { return Ok(Guards::new(List::default())) };
    let first = match enter(what, mode, &[]) {
        Ok(hold) => Guard::new(table.clone(), hold),
        Err(claim) => return Err((Guards::new(List::default()), (claim, mode))),
    };
    let mut next = wanted.next();
    if next.is_none() {
        return Ok(Guards::new(List::Few(Some(first))));
    }
    let mut guards = List::room_for(wanted.size_hint().0.saturating_add(2));
    guards.push(first);
    // If user code panics from here on, wakers run after all keys are released.
    let mut guards = Guards::new(List::Many(guards));
    while let Some((what, mode)) = next {
        match enter(what, mode, guards.as_slice()) {
            Ok(hold) => guards.push(Guard::new(table.clone(), hold)),
            Err(claim) => return Err((guards, (claim, mode))),
        }
        next = wanted.next();
    }
    Ok(guards)
}

/// Turns a claim into a hold, if that is possible without waiting and none of `held` holds the key. (An exclusive hold
/// keeps out a second one anyway.) Fails, too, where this is not known: if each key's limit of permits is given by a
/// function, which may panic, or if there are too many held keys to compare.
#[inline]
fn take<P: TablePtr, M: Mode>(
    core: &CoreOf<P>,
    claim: ClaimOf<P>,
    mode: M,
    held: &[Guard<P, M>],
) -> Result<HoldOf<P, M>, ClaimOf<P>> {
    let again = M::ONE.access() != Access::Exclusive
        && (core.asks_for_limits() // which may panic
            || core.holds(claim.live()).count() > 0 && may_be_among::<P, M>(claim.live().address(), held));
    match if again { None } else { core.enter(claim.live(), Want::Hold(mode.access())) } {
        Some(entered) => Ok(claim.into_hold(entered, mode)),
        None => Err(claim),
    }
}

/// The largest number of held keys that are compared one by one. Among more, sorting finds duplicates faster.
const MOST_COMPARED: usize = 64;

/// Returns whether the entry at this address may be that of a held key: `true` if there are too many keys to compare.
fn may_be_among<P: TablePtr, M: Mode>(address: usize, held: &[Guard<P, M>]) -> bool {
    held.len() > MOST_COMPARED || held.iter().any(|guard| guard.live().address() == address)
}

impl<P: TablePtr, M: Mode, S, I> Calls<P, I>
where
    S: Source<P::Key, PayloadOf<P>>,
    I: Iterator<Item = (S, M)>,
{
    #[inline]
    pub(crate) fn new(table: P, wanted: I) -> Self {
        Calls { table, wanted }
    }

    /// Acquires all wanted keys, if all are free. Otherwise returns requests for them, which hold nothing.
    ///
    /// # Panics
    /// Panics as [`future`](Self::future) does.
    #[inline]
    fn enter(self) -> Result<Guards<P, M>, Requests<P, M>> {
        let Calls { table, mut wanted } = self;
        let core = table.core();
        let entered = enter(&table, &mut wanted, |mut source, mode: M, held: &[Guard<P, M>]| {
            if held.is_empty() || M::ONE.access() == Access::Exclusive {
                return core.hold_or_claim(&mut source, mode);
            }
            core.make_or_claim(&mut source, mode).or_else(|claim| take(core, claim, mode, held))
        });
        match entered {
            Ok(guards) => {
                // The list is dropped before the result is returned, because a panic of this drop would leak the
                // result.
                drop(wanted);
                Ok(guards)
            }
            Err(entered) => Err(Self::line_up(table, entered, wanted)),
        }
    }

    #[cold]
    #[inline(never)]
    fn line_up(table: P, (guards, refused): Entered<P, M>, rest: I) -> Requests<P, M> {
        let mut claims = Claims { table, list: List::Few(Some(kept(refused))) };
        claims.put_back(guards);
        claims.extend(rest);
        claims.line_up()
    }
}

impl<P: TablePtr, M: Mode> Claims<P, M> {
    /// Collects the claim of a request that has not been polled, and those of further keys.
    fn of<S: Source<P::Key, PayloadOf<P>>>(
        first: Request<P, M>,
        second: (S, M),
        more: impl Iterator<Item = (S, M)>,
    ) -> Self {
        let expected = more.size_hint().0.saturating_add(2);
        let (table, first) = first.into_claim();
        let mut list = List::room_for(expected);
        list.push(kept(first));
        let mut claims = Claims { table, list: List::Many(list) };
        claims.extend(core::iter::once(second));
        claims.extend(more);
        claims
    }

    #[inline]
    fn extend<S: Source<P::Key, PayloadOf<P>>>(&mut self, wanted: impl Iterator<Item = (S, M)>) {
        self.list.reserve(wanted.size_hint().0);
        for (mut source, mode) in wanted {
            let claim = self.table.core().claim(&mut source);
            self.list.push(kept((claim, mode)));
        }
    }

    /// Acquires all wanted keys, if all are free. Otherwise returns requests for them, which hold nothing.
    #[inline]
    fn enter(mut self) -> Result<Guards<P, M>, Requests<P, M>> {
        let mut wanted = core::mem::take(&mut self.list).into_iter();
        let core = self.table.core();
        let entered = enter(&self.table, &mut wanted, |claim: ClaimIn<P>, mode, held: &[Guard<P, M>]| {
            take(core, claim.into_claim(), mode, held)
        });
        entered.map_err(|entered| self.line_up_again(entered, wanted))
    }

    #[cold]
    #[inline(never)]
    fn line_up_again(
        mut self,
        (guards, refused): Entered<P, M>,
        rest: impl Iterator<Item = (ClaimIn<P>, M)>,
    ) -> Requests<P, M> {
        self.list = core::iter::once(kept(refused)).chain(rest).collect();
        self.put_back(guards);
        self.line_up()
    }

    /// Releases the acquired keys, and puts claims of their entries before the other claims.
    fn put_back(&mut self, guards: Guards<P, M>) {
        let core = self.table.core();
        self.list.reserve(guards.len());
        for guard in &guards {
            self.list.push(kept((core.claim(&mut guard.live()), guard.mode())));
        }
        self.list.as_mut_slice().rotate_right(guards.len());
        drop(guards);
    }

    /// Makes sorted requests from the claims, one for each key.
    fn line_up(mut self) -> Requests<P, M> {
        let list = core::mem::take(&mut self.list).into_iter().enumerate();
        let wanted = list.map(|(place, (claim, mode))| Wanted { claim, mode, place }).collect();
        let mut requests = Requests { table: self.table.clone(), guards: None, wanted, current: None };
        let wanted = requests.wanted.as_mut_slice();
        wanted.sort_unstable_by(|left, right| {
            right.address().cmp(&left.address()).then_with(|| right.rank().cmp(&left.rank()))
        });
        if wanted.windows(2).any(|pair| pair[0].address() == pair[1].address()) {
            requests.mention_once();
        }
        let vacant = requests.wanted.as_slice().iter().map(|_| Guard::vacant());
        requests.guards = Some(Guards::new(vacant.collect()));
        requests
    }
}

impl<P: TablePtr, M: Mode> Drop for Claims<P, M> {
    #[inline]
    fn drop(&mut self) {
        if !self.list.as_slice().is_empty() {
            let (core, list) = (self.table.core(), core::mem::take(&mut self.list));
            run_all(list.into_iter().map(|(claim, _)| move || core.withdraw(claim.into_claim())));
        }
    }
}

impl<P: TablePtr, M: Mode> Requests<P, M> {
    /// Gives up duplicate requests for the same key.
    #[cold]
    fn mention_once(&mut self) {
        let mut left = core::mem::take(&mut self.wanted);
        let mut again = List::default();
        self.wanted.reserve(left.as_slice().len());
        while let Some(wanted) = left.pop() {
            match self.wanted.as_mut_slice().last_mut() {
                Some(last) if last.address() == wanted.address() => {
                    last.mode = last.mode.both(wanted.mode);
                    again.push(wanted);
                }
                _ => self.wanted.push(wanted),
            }
        }
        self.wanted.as_mut_slice().sort_unstable_by_key(|wanted| wanted.place);
        for (place, wanted) in self.wanted.as_mut_slice().iter_mut().enumerate() {
            wanted.place = place;
        }
        self.wanted.as_mut_slice().sort_unstable_by_key(|wanted| core::cmp::Reverse(wanted.address()));
        // The remaining requests have claims of the same entries, so no key is dropped.
        for Wanted { claim, .. } in again {
            self.table.core().withdraw(claim.into_claim());
        }
    }

    /// Returns the current request.
    #[inline]
    pub(crate) fn current(&mut self) -> Option<&mut Request<P, M>> {
        if self.current.is_none() {
            let Wanted { claim, mode, place } = self.wanted.pop()?;
            self.current = Some((Request::new(self.table.clone(), claim.into_claim(), mode), place));
        }
        self.current.as_mut().map(|(request, _)| request)
    }

    /// Acquires the keys one after another with `step`. Returns `None` if `step` fails; the next call retries the same
    /// request.
    #[inline]
    fn proceed(&mut self, mut step: impl FnMut(&mut Request<P, M>) -> Option<Guard<P, M>>) -> Option<Guards<P, M>> {
        while let Some(request) = self.current() {
            let guard = step(request)?;
            self.accept(guard);
        }
        self.guards.take()
    }

    /// Keeps the guard that the current request has acquired. Returns its index among the guards.
    #[inline]
    pub(crate) fn accept(&mut self, guard: Guard<P, M>) -> usize {
        let (Some((_, place)), Some(guards)) = (self.current.take(), &mut self.guards) else { return 0 };
        guards.as_mut_slice()[place] = guard;
        place
    }

    #[inline]
    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Guards<P, M>> {
        let guards = self.proceed(|request| match request.poll(waiter) {
            Poll::Ready(guard) => Some(guard),
            Poll::Pending => None,
        });
        guards.map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns the number of keys that are not held yet.
    fn to_come(&self) -> usize {
        self.wanted.as_slice().len() + usize::from(self.current.is_some())
    }

    /// Tries once, without joining a queue. Keeps the keys that it could acquire.
    #[inline]
    fn attempt(&mut self) -> Option<Guards<P, M>> {
        self.proceed(Request::attempt)
    }
}

impl<P: TablePtr, M: Mode> Drop for Requests<P, M> {
    #[inline]
    fn drop(&mut self) {
        if self.guards.is_some() || !self.wanted.as_slice().is_empty() {
            self.give_up();
        }
    }
}

impl<P: TablePtr, M: Mode> Requests<P, M> {
    /// Gives up all holds and requests together: see [`Released`]. Then reports the end of the waiting request to the
    /// observer.
    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        let (mut released, mut ending, mut panics) = (Released::default(), None, Panics::default());
        if let Some(mut guards) = self.guards.take() {
            released.release(guards.take_all());
        }
        for Wanted { claim, .. } in core::mem::take(&mut self.wanted) {
            released.withdraw(&self.table, claim.into_claim());
        }
        if let Some((mut request, _)) = self.current.take() {
            panics.run(|| ending = request.take_ending(self.table.core()));
            request.give_up_into(&mut released);
        }
        panics.run(|| drop(released));
        panics.run(|| ending.map_or((), Ending::tell));
        panics.resume();
    }
}

impl<P: TablePtr, M: ManyMode, S, I> Calls<P, I>
where
    S: Source<P::Key, PayloadOf<P>>,
    I: Iterator<Item = (S, M)>,
{
    /// Makes the future that acquires the keys.
    ///
    /// # Panics
    /// If a key has [`MAX_USERS`](crate::MAX_USERS) users already, or if user code of the keys or of the list panics.
    #[inline]
    pub(crate) fn future(self) -> AcquireMany<P, M> {
        let Calls { table, mut wanted } = self;
        let state = match wanted.next() {
            None => State::Unpolled(Claims { table, list: List::default() }),
            Some((mut source, mode)) => {
                let claim = table.core().claim(&mut source);
                let first = Request::new(table, claim, mode);
                match wanted.next() {
                    None => State::One(first),
                    Some(second) => return AcquireMany { state: State::Unpolled(Claims::of(first, second, wanted)) },
                }
            }
        };
        // The list is dropped before the result is returned, because a panic of this drop would leak the result.
        drop(wanted);
        AcquireMany { state }
    }

    /// Acquires all keys, if that is possible without waiting.
    #[inline]
    pub(crate) fn attempt(self) -> Option<M::Guards<P>> {
        self.enter().map_or_else(|mut requests| requests.attempt(), Some).map(M::gather)
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<P: TablePtr, M: ManyMode, S, I> Calls<P, I>
where
    S: Source<P::Key, PayloadOf<P>>,
    I: Iterator<Item = (S, M)>,
{
    #[inline]
    pub(crate) fn blocking(self) -> M::Guards<P> {
        match self.enter() {
            Ok(guards) => M::gather(guards),
            Err(requests) => M::gather(block(requests, None).expect("a wait without a deadline ends with the holds")),
        }
    }

    pub(crate) fn deadline(self, deadline: Instant) -> Option<M::Guards<P>> {
        self.enter().map_or_else(|requests| block(requests, Some(deadline)), Some).map(M::gather)
    }

    pub(crate) fn timeout(self, timeout: Duration) -> Option<M::Guards<P>> {
        self.enter().map_or_else(|requests| block(requests, deadline_after(timeout)), Some).map(M::gather)
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<P: TablePtr, M: Mode> Wait for Requests<P, M> {
    type Output = Guards<P, M>;

    fn contention(&mut self) -> Contention {
        self.current().map_or(Contention::Free, |request| request.contention())
    }

    fn attempt(&mut self) -> Option<Guards<P, M>> {
        Requests::attempt(self)
    }

    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Guards<P, M>> {
        Requests::poll(self, waiter)
    }
}

/// A future that acquires several keys of one table and yields their guards, all or none.
///
/// `P` is the reference to the table, and `M` the [mode](crate::mode) in which the keys are acquired. The output is
/// [`Guards`](crate::Guards); for `read_write_many` it is a pair of them.
///
/// Until its first poll it holds nothing, and only keeps the entries of its keys in the table. The first poll acquires
/// all keys if all are free. Otherwise it acquires them one after another, in the table's own order. While it waits for
/// one key, it holds the keys before that one, and others may wait for those. So it must be polled, or dropped, under
/// every [policy](crate::Fairness). See [several keys](crate#several-keys), and [idle futures](crate#idle-futures).
///
/// If a poll panics (because a waker does), the future has given up all of its holds and its place in the queue. With a
/// single key, the future behaves like [`Acquire`](crate::futures::Acquire).
///
/// # Cancel safety
/// The future can be dropped at any moment: the table is then as if the request had never been made. The keys that the
/// future held are released, and a key that had been handed to it passes to the next waiter.
///
/// # Panics
/// The future panics if it is polled after it has finished, or after a poll that panicked.
///
/// # Examples
/// ```
/// use keylatch::KeyedMutex;
///
/// let locks = KeyedMutex::<u64>::new();
/// let future = locks.lock_many([&7, &8]);
/// let guards = futures_lite::future::block_on(future);
/// assert!(locks.is_locked(&7) && locks.is_locked(&8));
/// # drop(guards);
/// ```
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct AcquireMany<P: TablePtr, M: ManyMode> {
    state: State<P, M>,
}

enum State<P: TablePtr, M: Mode> {
    /// A request for a single key.
    One(Request<P, M>),
    /// Requests that have not been polled.
    Unpolled(Claims<P, M>),
    /// Requests that have been polled. Boxed, so that the future is cheap to move.
    Waiting(Box<Requests<P, M>>),
    Done,
}

impl<P: TablePtr, M: ManyMode> AcquireMany<P, M> {
    /// Waits for the keys until `limit` is ready. Any future may be the limit, such as a timer of any runtime or a
    /// cancellation token.
    ///
    /// The limit is for all of the keys together. Each poll tries the keys first, and once more when the limit is
    /// ready: if both are ready, the result is the guards. So the keys are tried at least once, even if the limit has
    /// already been reached.
    ///
    /// # Errors
    /// Returns the output of `limit` if it was ready and not all keys could be acquired. Then none is held.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment, like [`AcquireMany`] itself.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let b = locks.lock("b").await;
    /// assert_eq!(locks.lock_many(["a", "b"]).until(async { "too late" }).await.err(), Some("too late"));
    /// assert!(!locks.is_locked("a"));
    /// # drop(b);
    /// # });
    /// ```
    #[doc(alias = "timeout")]
    #[must_use = "bind it: `let result = …`; the guards may be in it (`let _ = …` releases them at once)"]
    pub async fn until<F: Future>(mut self, limit: F) -> Result<M::Guards<P>, F::Output> {
        let outcome = race(&mut self, limit).await;
        // The request is dropped before the outcome is returned: see `race`.
        drop(self);
        outcome
    }
}

impl<P: TablePtr, M: ManyMode> Future for AcquireMany<P, M> {
    type Output = M::Guards<P>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let waiter = Waiter { presence: Presence::Task, waker: cx.waker() };
        if let State::One(request) = &mut self.state {
            return request.poll(waiter).map(|guard| M::gather(Guards::new(List::Few(Some(guard)))));
        }
        if let State::Unpolled(_) = self.state {
            let State::Unpolled(claims) = core::mem::replace(&mut self.state, State::Done) else {
                return Poll::Pending;
            };
            match claims.enter() {
                Ok(guards) => return Poll::Ready(M::gather(guards)),
                Err(requests) => self.state = State::Waiting(Box::new(requests)),
            }
        }
        // If a waker panics, all holds are released while unwinding.
        let State::Waiting(mut requests) = core::mem::replace(&mut self.state, State::Done) else {
            panic!("keylatch: a lock future was polled after it had finished")
        };
        match requests.poll(waiter) {
            Poll::Ready(guards) => Poll::Ready(M::gather(guards)),
            Poll::Pending => {
                self.state = State::Waiting(requests);
                Poll::Pending
            }
        }
    }
}

impl<P: TablePtr, M: ManyMode> fmt::Debug for AcquireMany<P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to_come, done) = match &self.state {
            State::One(request) => (usize::from(!request.is_done()), request.is_done()),
            State::Unpolled(claims) => (claims.list.as_slice().len(), false),
            State::Waiting(requests) => (requests.to_come(), false),
            State::Done => (0, true),
        };
        f.debug_struct("AcquireMany").field("to_come", &to_come).field("done", &done).finish_non_exhaustive()
    }
}

/// For requests that are [tracked](crate::deadlock).
#[cfg(target_has_atomic = "ptr")]
impl<P: TablePtr, M: ManyMode> AcquireMany<P, M> {
    /// Returns the requests for the individual keys; `None` if all keys have been acquired.
    pub(crate) fn into_requests(self) -> Option<Requests<P, M>> {
        match self.state {
            State::One(request) => {
                let table = request.table()?.clone();
                let guards = Some(Guards::new(List::Few(Some(Guard::vacant()))));
                Some(Requests { table, guards, wanted: List::default(), current: Some((request, 0)) })
            }
            State::Unpolled(claims) => Some(claims.line_up()),
            State::Waiting(requests) => Some(*requests),
            State::Done => None,
        }
    }
}

/// For requests that are [tracked](crate::deadlock).
#[cfg(target_has_atomic = "ptr")]
impl<P: TablePtr, M: Mode> Requests<P, M> {
    /// Returns the guards. Those of keys that are not held yet are vacant.
    pub(crate) fn held(&self) -> &[Guard<P, M>] {
        self.guards.as_ref().map_or(&[], Guards::as_slice)
    }

    /// Takes the guards out; `None` if they have been taken before.
    pub(crate) fn take_guards(&mut self) -> Option<Guards<P, M>> {
        self.guards.take()
    }
}
