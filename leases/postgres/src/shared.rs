//! What the engine and its driver share: the connection, if there is one, and what each wants of the other.

use std::{
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use keylatch_lease::{Owner, Resource, Token};

use crate::{error::Error, session::Session, wait::Limit, watch::Watchers};

/// A tenure that is to be released when there is time.
pub(crate) struct Abandoned {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) tries: u32,
}

pub(crate) struct Shared {
    pub(crate) namespace: String,
    pub(crate) channel: String,
    pub(crate) timeout: Duration,
    pub(crate) fallback: Duration,
    pub(crate) sweeps: Option<Duration>,
    pub(crate) watchers: Watchers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// Why there is none.
    failure: Option<Error>,
    /// Operations that wait for a connection.
    asking: HashMap<u64, Waker>,
    last: u64,
    driver: Option<Waker>,
    abandoned: VecDeque<Abandoned>,
    /// There is no engine any more.
    is_closed: bool,
    /// There is no driver any more.
    is_stopped: bool,
}

impl State {
    fn wake_all(&mut self) -> Vec<Waker> {
        self.asking.drain().map(|(_, waker)| waker).collect()
    }
}

impl Shared {
    pub(crate) fn new(
        namespace: String,
        channel: String,
        timeout: Duration,
        fallback: Duration,
        sweeps: Option<Duration>,
    ) -> Self {
        let (watchers, state) = (Watchers::default(), Mutex::default());
        Shared { namespace, channel, timeout, fallback, sweeps, watchers, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection, as soon as there is one.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, Error> {
        let asking = Asking { shared: self, id: self.next_id() };
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.is_stopped {
                return Poll::Ready(Err(Error::Stopped));
            }
            if let Some(session) = state.session.as_ref().filter(|session| session.is_usable()) {
                return Poll::Ready(Ok(Arc::clone(session)));
            }
            if let Some(error @ Error::Missing { .. }) = &state.failure {
                return Poll::Ready(Err(error.clone()));
            }
            let before = state.asking.insert(asking.id, cx.waker().clone());
            drop(state);
            drop(before); // with which another request may go
            Poll::Pending
        })
        .await
    }

    fn next_id(&self) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        state.last
    }

    /// Why there was no connection.
    pub(crate) fn failure(&self) -> Error {
        self.lock().failure.clone().unwrap_or(Error::Unconnected { source: None })
    }

    pub(crate) fn connected(&self, session: Arc<Session>) {
        let wakers = {
            let mut state = self.lock();
            state.session = Some(session);
            state.failure = None;
            state.wake_all()
        };
        wakers.into_iter().for_each(Waker::wake);
        // What was told before, nobody heard.
        self.watchers.tell_all();
    }

    pub(crate) fn disconnected(&self, failure: Option<Error>) {
        let (session, wakers) = {
            let mut state = self.lock();
            state.failure = failure;
            let wakers =
                if matches!(state.failure, Some(Error::Missing { .. })) { state.wake_all() } else { Vec::new() };
            (state.session.take(), wakers)
        };
        drop(session);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn stopped(&self) {
        let (session, wakers) = {
            let mut state = self.lock();
            state.is_stopped = true;
            (state.session.take(), state.wake_all())
        };
        drop(session);
        wakers.into_iter().for_each(Waker::wake);
        self.watchers.tell_all();
    }

    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.wake_driver();
    }

    pub(crate) fn abandon(&self, abandoned: Abandoned) {
        {
            let mut state = self.lock();
            if state.is_stopped {
                return;
            }
            state.abandoned.push_back(abandoned);
        }
        self.wake_driver();
    }

    pub(crate) fn next_abandoned(&self) -> Option<Abandoned> {
        self.lock().abandoned.pop_front()
    }

    /// Whether there is nobody for whom to connect.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    pub(crate) fn has_abandoned(&self) -> bool {
        !self.lock().abandoned.is_empty()
    }

    /// What the server answers; `None` if it does not in time. If it has not answered anybody meanwhile, the connection is given up: it may
    /// only be busy with what others have asked.
    pub(crate) async fn answer<F: Future>(
        &self,
        session: &Session,
        limit: &mut Limit,
        question: F,
    ) -> Option<F::Output> {
        let answers = session.answers();
        let answer = limit.of(question).await;
        if answer.is_some() {
            session.has_answered();
        } else if session.answers() == answers {
            session.mark_silent();
            self.wake_driver();
        }
        answer
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

    pub(crate) fn wake_driver(&self) {
        let driver = self.lock().driver.clone();
        driver.into_iter().for_each(Waker::wake);
    }
}

/// An operation that waits for a connection, until it does not.
struct Asking<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let waker = self.shared.lock().asking.remove(&self.id);
        drop(waker);
    }
}
