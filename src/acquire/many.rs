//! Requests for several keys of one table, which are acquired one after another, in an order that the table has by itself: that
//! of its entries in memory.
//!
//! Each of them is the [`Request`] that there is for one key. What is waited for comes after all that is held, in an order that
//! is the same for all who do so: so these never wait for each other in a circle. An entry stays where it is while anybody has
//! a claim of it, and all claims are there before the order is asked for.
//!
//! A call that does not wait need not follow an order. So a blocking call, or one that never waits, first acquires the free keys as they come,
//! which for keys that are free is all there is to do; and when something is not free they give it up again, and line up.

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
use crate::core::{Access, Ending, Presence, Source, Waiter, Want};
use crate::guard::{Guard, Released};
use crate::guards::{Guards, ManyMode};
use crate::list::List;
use crate::mode::Mode;
use crate::panics::{Panics, run_all};
use crate::plumbing::{ClaimOf, CoreOf, HoldOf, PayloadOf, TablePtr};

/// Several operations on one table, before it is decided how to wait.
pub(crate) struct Calls<P, I> {
    table: P,
    /// Where the entries come from, and what is wanted of each.
    wanted: I,
}

/// Claims of the entries of several keys, and what is wanted of each, in the order in which they were mentioned.
struct Claims<P: TablePtr, M: Mode> {
    table: P,
    list: List<(ClaimOf<P>, M)>,
}

/// Requests for several keys, of which all are granted or none. To drop them gives up what they hold, and what they wait for.
struct Requests<P: TablePtr, M: Mode> {
    table: P,
    /// In the order in which the keys were mentioned; vacant are those that are not held yet. `None` when they are given out.
    guards: Option<Guards<P, M>>,
    /// The requests that are not held yet, the next one last.
    wanted: List<Wanted<P, M>>,
    /// The one that comes before these, and its place among the guards.
    current: Option<(Request<P, M>, usize)>,
}

/// A key that is wanted. Its entry is kept in the table.
struct Wanted<P: TablePtr, M> {
    claim: ClaimOf<P>,
    mode: M,
    /// Among the guards.
    place: usize,
}

impl<P: TablePtr, M: Mode> Wanted<P, M> {
    #[inline]
    fn address(&self) -> usize {
        self.claim.live().address()
    }

    /// Of those for one key the least is acquired: who writes, and then who was mentioned first.
    #[inline]
    fn rank(&self) -> (bool, usize) {
        (self.mode.access() == Access::Shared, self.place)
    }
}

/// The keys that were entered in the order of mention, and those that could not be.
type Entered<P, M> = (Guards<P, M>, (ClaimOf<P>, M));

/// Acquires what is free, as it comes: nobody waits here, so the order does not matter.
///
/// # Errors
/// The acquired keys, and the first one that could not be acquired, or that is among them already.
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
    // If user code panics from now on, wakers run when all are released.
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

/// A claim becomes a hold if that is possible at once, and the key is not held by one of these. (A hold that excludes all others
/// excludes a second one as well.)
#[inline]
fn take<P: TablePtr, M: Mode>(
    core: &CoreOf<P>,
    claim: ClaimOf<P>,
    mode: M,
    held: &[Guard<P, M>],
) -> Result<HoldOf<P, M>, ClaimOf<P>> {
    let again = M::ONE.access() != Access::Exclusive
        && core.holds(claim.live()).count() > 0
        && may_be_among::<P, M>(claim.live().address(), held);
    match if again { None } else { core.enter(claim.live(), Want::Hold(mode.access())) } {
        Some(entered) => Ok(claim.into_hold(entered, mode)),
        None => Err(claim),
    }
}

/// One that may be among more than these is found by putting all in order.
const MOST_COMPARED: usize = 64;

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

    /// Acquires all that was wanted, if all is free. Else there are requests for it, which hold nothing.
    ///
    /// # Panics
    /// As [`future`](Self::future).
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
                // Not later: what is on its way to the caller is leaked if something that is dropped then panics.
                drop(wanted);
                Ok(guards)
            }
            Err(entered) => Err(Self::line_up(table, entered, wanted)),
        }
    }

    #[cold]
    #[inline(never)]
    fn line_up(table: P, (guards, refused): Entered<P, M>, rest: I) -> Requests<P, M> {
        let mut claims = Claims { table, list: List::Few(Some(refused)) };
        claims.put_back(guards);
        claims.extend(rest);
        claims.line_up()
    }
}

impl<P: TablePtr, M: Mode> Claims<P, M> {
    /// Of what a request is for that has not been polled, and of more.
    fn of<S: Source<P::Key, PayloadOf<P>>>(
        first: Request<P, M>,
        second: (S, M),
        more: impl Iterator<Item = (S, M)>,
    ) -> Self {
        let expected = more.size_hint().0.saturating_add(2);
        let (table, first) = first.into_claim();
        let mut list = List::room_for(expected);
        list.push(first);
        let mut claims = Claims { table, list: List::Many(list) };
        claims.extend(core::iter::once(second));
        claims.extend(more);
        claims
    }

    #[inline]
    fn extend<S: Source<P::Key, PayloadOf<P>>>(&mut self, wanted: impl Iterator<Item = (S, M)>) {
        self.list.expect(wanted.size_hint().0);
        for (mut source, mode) in wanted {
            let claim = self.table.core().claim(&mut source);
            self.list.push((claim, mode));
        }
    }

    /// Acquires all that was wanted, if all is free. Else there are requests for it, which hold nothing.
    #[inline]
    fn enter(mut self) -> Result<Guards<P, M>, Requests<P, M>> {
        let mut wanted = core::mem::take(&mut self.list).into_iter();
        let core = self.table.core();
        let entered =
            enter(&self.table, &mut wanted, |claim, mode, held: &[Guard<P, M>]| take(core, claim, mode, held));
        entered.map_err(|entered| self.line_up_again(entered, wanted))
    }

    #[cold]
    #[inline(never)]
    fn line_up_again(
        mut self,
        (guards, refused): Entered<P, M>,
        rest: impl Iterator<Item = (ClaimOf<P>, M)>,
    ) -> Requests<P, M> {
        self.list = core::iter::once(refused).chain(rest).collect();
        self.put_back(guards);
        self.line_up()
    }

    /// The entered keys are given up, and claimed again before the others.
    fn put_back(&mut self, guards: Guards<P, M>) {
        let core = self.table.core();
        self.list.expect(guards.len());
        for guard in &guards {
            self.list.push((core.claim(&mut guard.live()), guard.mode()));
        }
        self.list.as_mut_slice().rotate_right(guards.len());
        drop(guards);
    }

    /// Puts them in order, each key once.
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
            run_all(list.into_iter().map(|(claim, _)| move || core.withdraw(claim)));
        }
    }
}

impl<P: TablePtr, M: Mode> Requests<P, M> {
    /// Gives up what is wanted a second time.
    #[cold]
    fn mention_once(&mut self) {
        let mut left = core::mem::take(&mut self.wanted);
        let mut again = List::default();
        self.wanted.expect(left.as_slice().len());
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
        // Others have units of these entries, so no key is dropped.
        for Wanted { claim, .. } in again {
            self.table.core().withdraw(claim);
        }
    }

    /// The request whose turn it is.
    #[inline]
    fn current(&mut self) -> Option<&mut Request<P, M>> {
        if self.current.is_none() {
            let Wanted { claim, mode, place } = self.wanted.pop()?;
            self.current = Some((Request::new(self.table.clone(), claim, mode), place));
        }
        self.current.as_mut().map(|(request, _)| request)
    }

    /// Acquires one after another, as `step` says. `None` if that stops at one; it is asked again for that one.
    #[inline]
    fn proceed(&mut self, mut step: impl FnMut(&mut Request<P, M>) -> Option<Guard<P, M>>) -> Option<Guards<P, M>> {
        while let Some(request) = self.current() {
            let guard = step(request)?;
            if let (Some((_, place)), Some(guards)) = (self.current.take(), &mut self.guards) {
                guards.as_mut_slice()[place] = guard;
            }
        }
        self.guards.take()
    }

    #[inline]
    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Guards<P, M>> {
        let guards = self.proceed(|request| match request.poll(waiter) {
            Poll::Ready(guard) => Some(guard),
            Poll::Pending => None,
        });
        guards.map_or(Poll::Pending, Poll::Ready)
    }

    /// The number of keys that are not held yet.
    fn to_come(&self) -> usize {
        self.wanted.as_slice().len() + usize::from(self.current.is_some())
    }

    /// Tries once, without a position in a queue. What could be acquired is kept.
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
    /// All of it at once: see [`Released`]. Then its observer is told of the end of the request that waited.
    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        let (mut released, mut ending, mut panics) = (Released::default(), None, Panics::default());
        if let Some(mut guards) = self.guards.take() {
            released.release(guards.take_all());
        }
        for Wanted { claim, .. } in core::mem::take(&mut self.wanted) {
            released.withdraw(&self.table, claim);
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
    /// # Panics
    /// If a key cannot count one more user; and whatever user code of the keys, or of their source, panics with.
    #[inline]
    pub(crate) fn future(self) -> AcquireMany<P, M> {
        let Calls { table, mut wanted } = self;
        let state = match wanted.next() {
            None => State::ManyMode(Claims { table, list: List::default() }),
            Some((mut source, mode)) => {
                let claim = table.core().claim(&mut source);
                let first = Request::new(table, claim, mode);
                match wanted.next() {
                    None => State::One(first),
                    Some(second) => return AcquireMany { state: State::ManyMode(Claims::of(first, second, wanted)) },
                }
            }
        };
        // Not later: what is on its way to the caller is leaked if something that is dropped then panics.
        drop(wanted);
        AcquireMany { state }
    }

    /// All, if that is possible at once.
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
/// `P` is how the table is referred to, and `M` the [mode](crate::mode) in which the keys are acquired. The output is
/// [`Guards`](crate::Guards); that of `read_write_many` is a pair of them.
///
/// Until its first poll it holds nothing, and only keeps the entries of its keys in the table. The first poll acquires all of them
/// if all are free. Else they are acquired one after another, in an order of the table's own. So the future holds those before the
/// one that it waits for, and somebody has to go on polling it, or drop it: others may wait for what it holds, and that is so under
/// every [policy](crate::Fairness). See [several keys](crate#several-keys), and [idle futures](crate#idle-futures).
///
/// If a poll panics (because a waker does), the future holds nothing any more, and waits for nothing. One for a single key is the
/// future [`Acquire`](crate::futures::Acquire) in all but its output.
///
/// # Cancel safety
/// The future can be dropped at any moment. It leaves the table as if it had never asked: what it held is released, and a key
/// that had been handed to it goes to the next waiter.
///
/// # Panics
/// When it is polled after it has finished, or after a poll that panicked.
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
    /// Only one key is wanted.
    One(Request<P, M>),
    /// It has not been polled.
    ManyMode(Claims<P, M>),
    /// Apart, so that the future is small to move.
    Waiting(Box<Requests<P, M>>),
    Done,
}

impl<P: TablePtr, M: ManyMode> AcquireMany<P, M> {
    /// Waits until `limit` is ready, at the latest: any future may be the limit, such as a timer of any runtime or a
    /// cancellation token.
    ///
    /// It is one limit for all of the keys. They are tried first, and once more when the limit is ready: when both are, the
    /// guards win. So they are tried at least once, even if the limit has been reached already.
    ///
    /// # Errors
    /// The output of `limit`, if that was ready and not all keys were to be had. Then none is held.
    ///
    /// # Cancel safety
    /// As that of the future itself.
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
        // Not later: see `race`.
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
        if let State::ManyMode(_) = self.state {
            let State::ManyMode(claims) = core::mem::replace(&mut self.state, State::Done) else {
                return Poll::Pending;
            };
            match claims.enter() {
                Ok(guards) => return Poll::Ready(M::gather(guards)),
                Err(requests) => self.state = State::Waiting(Box::new(requests)),
            }
        }
        // If a waker panics, all that is held is given up on the way out.
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
            State::ManyMode(claims) => (claims.list.as_slice().len(), false),
            State::Waiting(requests) => (requests.to_come(), false),
            State::Done => (0, true),
        };
        f.debug_struct("AcquireMany").field("to_come", &to_come).field("done", &done).finish_non_exhaustive()
    }
}
