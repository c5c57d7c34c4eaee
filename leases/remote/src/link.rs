//! What an engine and its driver share: the connection, if there is one, and what each wants of the other.

use std::{
    collections::{HashMap, VecDeque},
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

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Ask, Want},
};

use crate::{limit::Limit, watch::Watchers};

/// What a way to connect may fail with.
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

    /// Whether the connection has ended.
    fn is_closed(&self) -> bool;

    /// Ends a tenure for which nobody waits. Whether that is done with: if not, it is tried again a moment later, a hundred times at most.
    fn give_back(&self, tenure: &Tenure) -> impl Future<Output = bool> + Send;

    /// Forgets a part of what ended long ago, and says whether there is more. By default nothing.
    fn sweep(&self) -> impl Future<Output = bool> + Send {
        ready(false)
    }
}

/// A tenure that was dropped: what [`Engine::abandon`](keylatch_lease::engine::Engine::abandon) is told.
///
/// # Examples
/// See [`Link::abandon`].
#[derive(Clone, Debug)]
pub struct Tenure {
    /// Of what.
    pub resource: Resource,
    /// Whose.
    pub owner: Owner,
    /// Its number.
    pub token: Token,
}

/// A tenure to be given back, and how often that was tried in vain.
pub(crate) struct Abandoned {
    pub(crate) tenure: Tenure,
    pub(crate) tries: u32,
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
    /// How many answers there have been.
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
    /// Operations that wait for a connection.
    asking: HashMap<u64, Waker>,
    last: u64,
    driver: Option<Waker>,
    abandoned: VecDeque<Abandoned>,
    /// Which of them is being given back.
    in_hand: Option<Tenure>,
    /// There is no engine any more.
    is_closed: bool,
    /// There is no driver any more.
    is_stopped: bool,
}

impl<S: Session> State<S> {
    fn wake_all(&mut self) -> Vec<Waker> {
        self.asking.drain().map(|(_, waker)| waker).collect()
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
            abandoned: VecDeque::new(),
            in_hand: None,
            is_closed: false,
            is_stopped: false,
        };
        let link = Arc::new(Link { timeout, sweeps, watchers: Watchers::default(), state: Mutex::new(state) });
        (Handle(Arc::clone(&link)), Driving(link))
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long an operation may take.
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

    /// What the server answers; `None` if it does not in time. If it has not answered anybody meanwhile, the connection is given up: it may
    /// only be busy with what others have asked. A question that had less than half of the [timeout](Self::timeout) left says nothing of it.
    ///
    /// # Examples
    /// See the [crate's page](crate).
    pub async fn answer<F: Future>(&self, session: &Live<S>, limit: &mut Limit, question: F) -> Option<F::Output> {
        let (asked, answers) = (Instant::now(), session.answers.load(SeqCst));
        let answer = limit.of(question).await;
        if answer.is_some() {
            session.answers.fetch_add(1, SeqCst);
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
        self.abandon_again(Abandoned { tenure, tries: 0 });
    }

    pub(crate) fn abandon_again(&self, abandoned: Abandoned) {
        {
            let mut state = self.lock();
            if state.is_stopped {
                return;
            }
            state.abandoned.push_back(abandoned);
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

    /// What [`acquire`](keylatch_lease::engine::Engine::acquire) was asked, but for a fresh tenure if one of this owner is still to be given
    /// back: that may end at any moment, and must not be resumed. It is not given back again.
    ///
    /// # Examples
    /// ```
    /// # use keylatch_lease::engine::{Answer, Ask, Fail};
    /// # use keylatch_lease_remote::{Link, Session};
    /// # async fn send<E>(_: Ask<'_>) -> Result<Answer, Fail<E>> { Ok(Answer::Free) }
    /// async fn acquire<S: Session>(link: &Link<S>, ask: Ask<'_>) -> Result<Answer, Fail<S::Error>> {
    ///     send(link.afresh(ask)).await
    /// }
    /// ```
    #[must_use]
    pub fn afresh<'a>(&self, ask: Ask<'a>) -> Ask<'a> {
        match ask.want {
            Want::Any if self.forgo(ask.resource, ask.owner) => Ask { want: Want::Fresh, ..ask },
            _ => ask,
        }
    }

    /// Whether a tenure of this is still to be given back, which will not be tried again.
    fn forgo(&self, resource: &Resource, owner: &Owner) -> bool {
        let is_it = |tenure: &Tenure| (&tenure.resource, &tenure.owner) == (resource, owner);
        let (found, in_hand) = {
            let mut state = self.lock();
            let at = state.abandoned.iter().position(|abandoned| is_it(&abandoned.tenure));
            let in_hand = if state.in_hand.as_ref().is_some_and(is_it) { state.in_hand.take() } else { None };
            (at.and_then(|at| state.abandoned.remove(at)), in_hand)
        };
        found.is_some() || in_hand.is_some()
    }

    pub(crate) fn next_abandoned(&self) -> Option<Abandoned> {
        let mut state = self.lock();
        let next = state.abandoned.pop_front();
        state.in_hand = next.as_ref().map(|abandoned| abandoned.tenure.clone());
        next
    }

    /// It has been given back, or not: then it is tried again, unless somebody has asked for it anew.
    pub(crate) fn is_wanted_back(&self) -> bool {
        self.lock().in_hand.take().is_some()
    }

    /// Whether there is nobody for whom to connect.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    pub(crate) fn has_abandoned(&self) -> bool {
        !self.lock().abandoned.is_empty()
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

/// An operation that waits for a connection, until it does not.
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
