//! The state that an engine and its driver share: the connection, if there is one, and the work that each hands to the
//! other.

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    future::{Future, poll_fn, ready},
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use keylatch_lease::engine::{Ask, Want};

use crate::{
    backlog::{Abandoned, Backlog},
    limit::Limit,
    silence::Silence,
    tenure::Tenure,
    watch::Watchers,
};

/// The error of a connection attempt.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The errors that a [`Link`] creates. An engine's error type implements this trait.
///
/// # Examples
/// See the [crate's page](crate).
pub trait Failure: Clone + Send + Sync + 'static {
    /// Returns the error of an operation that has no connection. `cause` is the reason, if it is known.
    fn unconnected(cause: Option<BoxError>) -> Self;

    /// Returns the error of an operation that got no answer in time.
    fn timeout() -> Self;

    /// Returns the error of an operation after the driver was dropped, so that nothing connects any more.
    fn stopped() -> Self;

    /// Returns whether waiting for the next connection is useless. Operations then fail at once.
    fn is_lasting(&self) -> bool {
        false
    }
}

/// A connection that is ready for use.
///
/// # Examples
/// See the [crate's page](crate).
pub trait Session: Send + Sync + 'static {
    /// The error of an operation.
    type Error: Failure;

    /// Returns whether the connection has ended, or must not be used any more.
    fn is_closed(&self) -> bool;

    /// Returns the reason that the connection must not be used any more, if the session itself has found one.
    fn failure(&self) -> Option<Self::Error> {
        None
    }

    /// Releases an abandoned tenure. Returns whether nothing is left to do. Otherwise the driver tries again a moment
    /// later, up to a hundred times in all.
    fn give_back(&self, tenure: &Tenure) -> impl Future<Output = bool> + Send;

    /// Removes some of the records of tenures that ended long ago, and returns whether there are more. The default does
    /// nothing.
    fn sweep(&self) -> impl Future<Output = bool> + Send {
        ready(false)
    }
}

/// A connection that is in use. It derefs to the [`Session`].
///
/// # Examples
/// See [`Link::session`].
#[derive(Debug)]
pub struct Live<S> {
    session: S,
    /// Whether the server has stopped answering.
    is_silent: AtomicBool,
    /// The number of answers so far.
    answers: AtomicU64,
    silence: Mutex<Silence>,
}

impl<S> Deref for Live<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.session
    }
}

impl<S: Session> Live<S> {
    pub(crate) fn new(session: S) -> Self {
        let (is_silent, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        Live { session, is_silent, answers, silence: Mutex::default() }
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.is_silent.load(SeqCst) && !self.session.is_closed()
    }
}

/// A request that waits for its answer.
struct Waits<'a, S: Session> {
    link: &'a Link<S>,
    session: &'a Live<S>,
    is_answered: bool,
    /// Whether the caller gave up before the answer arrived and before the time limit was reached.
    is_dropped: bool,
}

impl<'a, S: Session> Waits<'a, S> {
    fn begin(link: &'a Link<S>, session: &'a Live<S>, now: Instant) -> Self {
        session.silence.lock().unwrap_or_else(PoisonError::into_inner).begin(now);
        Waits { link, session, is_answered: false, is_dropped: true }
    }
}

impl<S: Session> Drop for Waits<'_, S> {
    fn drop(&mut self) {
        if self.is_answered {
            self.session.answers.fetch_add(1, SeqCst);
        }
        let now = Instant::now();
        let silence = self.session.silence.lock().unwrap_or_else(PoisonError::into_inner).end(now, self.is_answered);
        if self.is_dropped && silence >= self.link.timeout {
            self.link.give_up(self.session);
        }
    }
}

/// One connection for all tasks. [`drive`](crate::drive()) opens it, and reopens it when it is lost.
///
/// No waker is called or dropped under a lock.
///
/// # Examples
/// See the [crate's page](crate).
pub struct Link<S: Session> {
    timeout: Duration,
    pub(crate) sweeps: Option<Duration>,
    watchers: Watchers,
    state: Mutex<State<S>>,
}

struct State<S: Session> {
    session: Option<Arc<Live<S>>>,
    /// The reason that there is no connection.
    failure: Option<S::Error>,
    /// The wakers of operations that wait for a connection, or until a tenure has been released.
    asking: HashMap<u64, Waker>,
    last: u64,
    driver: Option<Waker>,
    backlog: Backlog,
    /// Whether the engine has been dropped.
    is_closed: bool,
    /// Whether the driver has been dropped.
    is_stopped: bool,
}

impl<S: Session> State<S> {
    fn wake_all(&mut self) -> Vec<Waker> {
        self.asking.drain().map(|(_, waker)| waker).collect()
    }

    fn wake(&mut self, ids: Vec<u64>) -> Vec<Waker> {
        ids.iter().filter_map(|id| self.asking.remove(id)).collect()
    }

    fn has_lasting_failure(&self) -> bool {
        self.failure.as_ref().is_some_and(Failure::is_lasting)
    }
}

impl<S: Session> fmt::Debug for Link<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("timeout", &self.timeout).field("sweeps", &self.sweeps).finish_non_exhaustive()
    }
}

impl<S: Session> Link<S> {
    /// Returns the two ends of a link that is not connected yet: the engine's and the driver's. `timeout` limits each
    /// operation, and the driver sweeps at the interval `sweeps`.
    ///
    /// # Examples
    /// See the [crate's page](crate).
    #[must_use]
    #[allow(clippy::new_ret_no_self)] // a link has two ends
    pub fn new(timeout: Duration, sweeps: Option<Duration>) -> (Handle<S>, Driving<S>) {
        let state = State {
            session: None,
            failure: None,
            asking: HashMap::new(),
            last: 0,
            driver: None,
            backlog: Backlog::default(),
            is_closed: false,
            is_stopped: false,
        };
        let link = Arc::new(Link { timeout, sweeps, watchers: Watchers::default(), state: Mutex::new(state) });
        (Handle(Arc::clone(&link)), Driving(link))
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time limit of an operation.
    ///
    /// # Examples
    /// See the [crate's page](crate).
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the waiters and holders to notify. When a connection is made, all of them are notified, because messages
    /// may have been lost before.
    ///
    /// # Examples
    /// See [`Watchers`].
    #[must_use]
    pub fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Waits for the connection and returns it.
    ///
    /// # Errors
    /// The reason that there is no connection, once the limit is reached, or at once if waiting is useless.
    ///
    /// # Examples
    /// See the [crate's page](crate).
    pub async fn session(&self, limit: &mut Limit) -> Result<Arc<Live<S>>, S::Error> {
        let asking = Asking { link: self, id: self.next_id() };
        let session = poll_fn(|cx| {
            let mut state = self.lock();
            if state.is_stopped {
                return Poll::Ready(Err(S::Error::stopped()));
            }
            if let Some(session) = state.session.as_ref().filter(|session| session.is_usable()) {
                return Poll::Ready(Ok(Arc::clone(session)));
            }
            if state.has_lasting_failure() {
                return Poll::Ready(Err(state.failure.clone().unwrap_or_else(|| S::Error::unconnected(None))));
            }
            let before = state.asking.insert(asking.id, cx.waker().clone());
            drop(state);
            drop(before); // the waker's drop may run other code
            Poll::Pending
        });
        limit.of(session).await.unwrap_or_else(|| Err(self.failure()))
    }

    fn next_id(&self) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        state.last
    }

    fn failure(&self) -> S::Error {
        self.lock().failure.clone().unwrap_or_else(|| S::Error::unconnected(None))
    }

    /// Returns the server's answer; `None` if there is none within the limit. In that case the connection is given up,
    /// unless the server has answered another request since this one was sent, because it may then just be busy. A
    /// request that had less than half of the [timeout](Self::timeout) left does not count against the server.
    ///
    /// # Cancel safety
    /// The future can be dropped. If requests have then been waiting for a whole timeout in total, without any answer
    /// from the server, the connection is given up, however briefly each of them waited.
    ///
    /// # Examples
    /// See the [crate's page](crate).
    pub async fn answer<F: Future>(&self, session: &Live<S>, limit: &mut Limit, question: F) -> Option<F::Output> {
        self.answer_if(session, limit, question, |_| true).await
    }

    /// Does the same as [`answer`](Self::answer), for a future whose output may be something other than an answer of
    /// the server. The output shows that the server is there only if `is_answer` returns `true` for it.
    pub(crate) async fn answer_if<F: Future>(
        &self,
        session: &Live<S>,
        limit: &mut Limit,
        question: F,
        is_answer: impl FnOnce(&F::Output) -> bool,
    ) -> Option<F::Output> {
        let (asked, answers) = (Instant::now(), session.answers.load(SeqCst));
        let mut waits = Waits::begin(self, session, asked);
        let answer = limit.of(question).await;
        waits.is_answered = answer.as_ref().is_some_and(is_answer);
        waits.is_dropped = false;
        drop(waits);
        if answer.is_some() {
            if !session.is_usable() {
                self.wake_driver();
            }
        } else if session.answers.load(SeqCst) == answers && asked.elapsed() >= self.timeout / 2 {
            self.give_up(session);
        }
        answer
    }

    /// Gives up the connection to a server that has stopped answering.
    fn give_up(&self, session: &Live<S>) {
        session.is_silent.store(true, SeqCst);
        self.wake_driver();
    }

    /// Leaves a tenure to the driver, which releases it when it can.
    ///
    /// # Examples
    /// ```
    /// # use keylatch_lease::{Owner, Resource, Token};
    /// # use keylatch_lease_remote::{Link, Session, Tenure};
    /// fn abandon<S: Session>(link: &Link<S>, resource: &Resource, owner: &Owner, token: Token) {
    ///     link.abandon(Tenure { resource: resource.clone(), owner: owner.clone(), token });
    /// }
    /// ```
    pub fn abandon(&self, tenure: Tenure) {
        {
            let mut state = self.lock();
            if state.is_stopped {
                return;
            }
            state.backlog.add(tenure);
        }
        self.wake_driver();
    }

    pub(crate) fn connected(&self, session: Arc<Live<S>>) {
        // The watchers are told before the session is known. A watch that is made later misses no message, and must not
        // be notified.
        self.watchers.tell_all();
        let wakers = {
            let mut state = self.lock();
            state.session = Some(session);
            state.failure = None;
            state.wake_all()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn disconnected(&self, failure: S::Error) {
        let (session, wakers) = {
            let mut state = self.lock();
            state.failure = Some(failure);
            let wakers = if state.has_lasting_failure() { state.wake_all() } else { Vec::new() };
            (state.session.take(), wakers)
        };
        drop(session);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn stopped(&self) {
        let (session, wakers) = {
            let mut state = self.lock();
            state.is_stopped = true;
            state.backlog.clear();
            (state.session.take(), state.wake_all())
        };
        drop(session);
        wakers.into_iter().for_each(Waker::wake);
        self.watchers.tell_all();
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.wake_driver();
    }

    /// Waits before an [`acquire`](keylatch_lease::engine::Engine::acquire) until the owner's
    /// [abandoned](Self::abandon) tenures of the resource have been released or given up, because such a tenure may end
    /// at any moment, and must not be resumed. An acquire that always begins a new tenure need not wait.
    ///
    /// # Errors
    /// The reason that such a tenure could not be released within the limit.
    ///
    /// # Examples
    /// ```
    /// # use keylatch_lease::engine::{Answer, Ask, Fail};
    /// # use keylatch_lease_remote::{Limit, Link, Session};
    /// # async fn send<E>(_: Ask<'_>) -> Result<Answer, Fail<E>> { Ok(Answer::Free) }
    /// async fn acquire<S: Session>(link: &Link<S>, ask: Ask<'_>) -> Result<Answer, Fail<S::Error>> {
    ///     link.settled(&mut Limit::after(link.timeout()), &ask).await.map_err(Fail::NotDone)?;
    ///     send(ask).await
    /// }
    /// ```
    pub async fn settled(&self, limit: &mut Limit, ask: &Ask<'_>) -> Result<(), S::Error> {
        let Ask { resource, owner, want, .. } = *ask;
        if matches!(want, Want::Fresh | Want::New) {
            return Ok(());
        }
        let Some(last) = self.lock().backlog.last_of(resource, owner) else { return Ok(()) };
        let asking = Asking { link: self, id: self.next_id() };
        let settled = poll_fn(|cx| {
            let mut state = self.lock();
            // Without a driver or the prospect of a connection there is nothing to wait for, and the operation itself
            // then fails.
            if state.has_lasting_failure() || !state.backlog.keeps_waiting(resource, owner, last, asking.id) {
                return Poll::Ready(());
            }
            let before = state.asking.insert(asking.id, cx.waker().clone());
            drop(state);
            drop(before);
            Poll::Pending
        });
        match limit.of(settled).await {
            Some(()) => Ok(()),
            None if self.lock().session.is_some() => Err(S::Error::timeout()),
            None => Err(self.failure()),
        }
    }

    pub(crate) fn next_abandoned(&self) -> Option<Abandoned> {
        self.lock().backlog.next()
    }

    /// Notes whether an abandoned tenure has been released. If not, queues it again, or drops it after too many
    /// attempts.
    pub(crate) fn has_tried(&self, abandoned: Abandoned, is_done: bool) {
        let wakers = {
            let mut state = self.lock();
            let waiting = if is_done { state.backlog.done(abandoned) } else { state.backlog.put_back(abandoned) };
            state.wake(waiting)
        };
        wakers.into_iter().for_each(Waker::wake);
        self.wake_driver();
    }

    /// Returns whether the engine has been dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    pub(crate) fn has_abandoned(&self) -> bool {
        self.lock().backlog.has_next()
    }

    pub(crate) fn set_driver(&self, cx: &Context<'_>) {
        let waker = cx.waker();
        let mut state = self.lock();
        if !state.driver.as_ref().is_some_and(|known| known.will_wake(waker)) {
            let before = state.driver.replace(waker.clone());
            drop(state);
            drop(before);
        }
    }

    fn wake_driver(&self) {
        let driver = self.lock().driver.clone();
        driver.into_iter().for_each(Waker::wake);
    }
}

/// An operation that waits. When it is dropped, its waker is removed.
struct Asking<'a, S: Session> {
    link: &'a Link<S>,
    id: u64,
}

impl<S: Session> Drop for Asking<'_, S> {
    fn drop(&mut self) {
        let waker = self.link.lock().asking.remove(&self.id);
        drop(waker);
    }
}

/// The engine's end of a [`Link`], to which it derefs. When it is dropped, the driver releases the abandoned tenures,
/// and ends.
///
/// # Examples
/// See the [crate's page](crate).
#[derive(Debug)]
pub struct Handle<S: Session>(Arc<Link<S>>);

impl<S: Session> Deref for Handle<S> {
    type Target = Link<S>;

    fn deref(&self) -> &Link<S> {
        &self.0
    }
}

impl<S: Session> Drop for Handle<S> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The driver's end of a [`Link`]. When it is dropped, in [`drive`](crate::drive()) or before, operations fail with
/// [`stopped`](Failure::stopped).
///
/// # Examples
/// See the [crate's page](crate).
pub struct Driving<S: Session>(Arc<Link<S>>);

impl<S: Session> fmt::Debug for Driving<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driving").finish_non_exhaustive()
    }
}

impl<S: Session> Driving<S> {
    pub(crate) fn link(&self) -> &Arc<Link<S>> {
        &self.0
    }
}

impl<S: Session> Drop for Driving<S> {
    fn drop(&mut self) {
        self.0.stopped();
    }
}
