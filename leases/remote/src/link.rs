//! The state that an engine and its driver share: the connection, if there is one, and the requests of each to the other.

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
    tenure::Tenure,
    watch::Watchers,
};

/// The error of a connection attempt.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An engine's error, as far as a [`Link`] has to make one.
///
/// # Examples
/// See the [crate's page](crate).
pub trait Failure: Clone + Send + Sync + 'static {
    /// There is no connection: why not, if that is known.
    fn unconnected(cause: Option<BoxError>) -> Self;

    /// There was no answer in time.
    fn timeout() -> Self;

    /// The driver is gone: nobody connects any more.
    fn stopped() -> Self;

    /// Whether it is of no use to wait for the next connection: operations then fail at once.
    fn is_lasting(&self) -> bool {
        false
    }
}

/// A connection that is ready for use.
///
/// # Examples
/// See the [crate's page](crate).
pub trait Session: Send + Sync + 'static {
    /// Why an operation fails.
    type Error: Failure;

    /// Whether the connection has ended, or must not be used any more.
    fn is_closed(&self) -> bool;

    /// Why it must not be used any more, if the session itself has found that.
    fn failure(&self) -> Option<Self::Error> {
        None
    }

    /// Ends a tenure for which nobody waits. Whether that is done with: if not, it is tried again a moment later, a hundred times at most.
    fn give_back(&self, tenure: &Tenure) -> impl Future<Output = bool> + Send;

    /// Forgets a part of what ended long ago, and says whether there is more. By default nothing.
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
}

impl<S> Deref for Live<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.session
    }
}

impl<S: Session> Live<S> {
    pub(crate) fn new(session: S) -> Self {
        Live { session, is_silent: AtomicBool::new(false), answers: AtomicU64::new(0) }
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.is_silent.load(SeqCst) && !self.session.is_closed()
    }
}

/// One connection for all tasks, that is made again when it is lost. [`drive`](crate::drive()) does that.
///
/// No waker is called, and none is dropped, under a lock.
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
    /// Why there is none.
    failure: Option<S::Error>,
    /// Operations that wait for a connection, or for a tenure to be given back.
    asking: HashMap<u64, Waker>,
    last: u64,
    driver: Option<Waker>,
    backlog: Backlog,
    /// There is no engine any more.
    is_closed: bool,
    /// There is no driver any more.
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
    /// A link that is not connected yet: for the engine, and for its driver. Operations take so long at most; the driver sweeps every so
    /// often.
    ///
    /// # Examples
    /// See the [crate's page](crate).
    #[must_use]
    #[allow(clippy::new_ret_no_self)] // it has two ends
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

    /// The time limit of an operation.
    ///
    /// # Examples
    /// See the [crate's page](crate).
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Who is to be told. All are when a connection is made, as nobody heard what was told before.
    ///
    /// # Examples
    /// See [`Watchers`].
    #[must_use]
    pub fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// The connection, as soon as there is one.
    ///
    /// # Errors
    /// Why there is none, when the limit has come, or when waiting is of no use.
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
            drop(before); // with which another request may go
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

    /// Returns the server's answer; `None` if there is none in time. If it has not answered anybody meanwhile, the connection is given up: it may
    /// only be busy with what others have asked. A question that had less than half of the [timeout](Self::timeout) left says nothing of it.
    ///
    /// # Examples
    /// See the [crate's page](crate).
    pub async fn answer<F: Future>(&self, session: &Live<S>, limit: &mut Limit, question: F) -> Option<F::Output> {
        let (asked, answers) = (Instant::now(), session.answers.load(SeqCst));
        let answer = limit.of(question).await;
        if answer.is_some() {
            session.answers.fetch_add(1, SeqCst);
            if !session.is_usable() {
                self.wake_driver();
            }
        } else if session.answers.load(SeqCst) == answers && asked.elapsed() >= self.timeout / 2 {
            session.is_silent.store(true, SeqCst);
            self.wake_driver();
        }
        answer
    }

    /// The driver gives this tenure back when it can.
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
        let wakers = {
            let mut state = self.lock();
            state.session = Some(session);
            state.failure = None;
            state.wake_all()
        };
        wakers.into_iter().for_each(Waker::wake);
        self.watchers.tell_all();
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

    /// Waits, before [`acquire`](keylatch_lease::engine::Engine::acquire) is answered, until what this owner [abandoned](Self::abandon) of the
    /// resource has been given back: it may end at any moment, and must not be resumed. Whoever asks for another tenure in any case
    /// need not wait.
    ///
    /// # Errors
    /// Why it could not be given back within the limit.
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
            // Without a driver, and where there will be no connection, the operation itself says so.
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

    /// It has been given back, or not: then it is tried again.
    pub(crate) fn has_tried(&self, abandoned: Abandoned, is_done: bool) {
        let wakers = {
            let mut state = self.lock();
            let waiting = if is_done { state.backlog.done(abandoned) } else { state.backlog.put_back(abandoned) };
            state.wake(waiting)
        };
        wakers.into_iter().for_each(Waker::wake);
        self.wake_driver();
    }

    /// Whether there is nobody for whom to connect.
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

/// An operation that waits, until it does not.
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

/// The engine's end of a [`Link`], to which it derefs. When it is dropped the driver gives back what was abandoned, and ends.
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
