//! Questions that wait for the connection at the same moment, and are sent together.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    convert::Infallible,
    fmt,
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use keylatch_lease::Resource;

/// Collects the questions that arrive while a request is under way, and sends them together when that request has been
/// answered.
///
/// A question that arrives while nothing is under way is sent at once, without waiting for others. Dropping the future
/// of a question that has not been sent yet withdraws the question. If another question about the same resource is
/// waiting or under way, the caller sends its question itself, as it would without this type.
///
/// The connection's driver sends the questions, so it does not matter whether the callers are polled.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use futures_lite::future::{block_on, or, zip};
/// use keylatch_lease::Resource;
/// use keylatch_lease_remote::{Together, Turn};
///
/// let together = Together::<u32, u32>::new(64);
/// // The server doubles numbers.
/// let carried = together.carry(|batch| async move { batch.iter().map(|number| Some(2 * *number)).collect() });
/// let (a, b) = (Resource::from("a"), Resource::from("b"));
///
/// let ended = async { carried.await };
/// let questions = async {
///     let both = zip(together.ask(&a, 1), together.ask(&b, 2)).await;
///     assert!(matches!(both, (Turn::Answered(2), Turn::Answered(4))));
/// };
/// block_on(or(ended, questions));
/// assert!(matches!(block_on(together.ask(&a, 1)), Turn::Alone)); // nothing carries questions any more
/// ```
pub struct Together<Q, A> {
    state: Mutex<State<Q, A>>,
    most: usize,
    batches: usize,
}

/// The outcome of [`Together::ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<A> {
    /// The question was sent: this is its answer.
    Answered(A),
    /// The caller must send the question itself: its batch brought no answer to it, or nothing carries questions, or
    /// another question about the same resource is waiting or under way.
    Alone,
    /// The connection has ended, and the question was not sent.
    NotSent,
    /// The connection has ended, and the question may have been sent.
    Lost,
}

struct State<Q, A> {
    /// Whether questions are being carried.
    is_carried: bool,
    /// The number of batches under way.
    under_way: usize,
    /// Whether a batch has been taken out of the queue, and may not be on the connection yet.
    is_sending: bool,
    /// The tasks that wait until that batch is on the connection.
    behind: Vec<Waker>,
    /// Whether sending has been stopped.
    is_stopped: bool,
    /// Whether there is a permit to send a question without the driver.
    is_at_once: bool,
    /// The resources of the questions that wait or are under way. There is only one question about each.
    resources: HashSet<Resource>,
    /// The questions that have not been sent yet, in order of arrival.
    waiting: VecDeque<Waiting<Q>>,
    /// The callers that wait for a [`Turn`], or have not fetched it yet.
    callers: HashMap<u64, Caller<A>>,
    last: u64,
    carrier: Option<Waker>,
}

struct Waiting<Q> {
    id: u64,
    resource: Resource,
    question: Q,
}

#[derive(Debug)]
struct Caller<A> {
    turn: Option<Turn<A>>,
    waker: Option<Waker>,
}

impl<Q, A> State<Q, A> {
    /// Gives a caller its turn, and returns its waker.
    fn tell(&mut self, id: u64, turn: Turn<A>) -> Option<Waker> {
        let caller = self.callers.get_mut(&id)?;
        caller.turn = Some(turn);
        caller.waker.take()
    }
}

impl<Q, A> fmt::Debug for Together<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Together").field("most", &self.most).finish_non_exhaustive()
    }
}

impl<Q, A> Together<Q, A> {
    /// Returns a collection for batches of at most this many questions. Until [`carry`](Self::carry) is polled, each
    /// caller must send its own question.
    ///
    /// # Panics
    /// If `most` is 0.
    ///
    /// # Examples
    /// See [`Together`].
    #[must_use]
    pub fn new(most: usize) -> Self {
        assert!(most > 0, "a batch has at least one question");
        let state = State {
            is_carried: false,
            under_way: 0,
            is_sending: false,
            behind: Vec::new(),
            is_stopped: false,
            is_at_once: false,
            resources: HashSet::new(),
            waiting: VecDeque::new(),
            callers: HashMap::new(),
            last: 0,
            carrier: None,
        };
        Together { state: Mutex::new(state), most, batches: 1 }
    }

    /// Lets this many batches be under way at the same time, instead of one. With two, the server works on one batch
    /// while the answers to the other are read and the next questions are asked.
    ///
    /// # Panics
    /// If `batches` is 0.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease_remote::Together;
    ///
    /// let together = Together::<u32, u32>::new(64).with_batches(2);
    /// ```
    #[must_use]
    pub fn with_batches(mut self, batches: usize) -> Self {
        assert!(batches > 0, "at least one batch must be allowed");
        self.batches = batches;
        self
    }

    fn lock(&self) -> MutexGuard<'_, State<Q, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a permit if no question waits or is under way, and there is no other permit: the caller may then send
    /// its question itself, at once, without a detour through the driver. It drops the permit when it has the answer.
    ///
    /// Other questions do not wait for the answer to a question sent in this way, because its caller might not poll for
    /// the answer. The driver sends the questions that arrive in the meantime.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease_remote::Together;
    ///
    /// let together = Together::<u32, u32>::new(64);
    /// let permit = together.at_once();
    /// assert!(permit.is_some() && together.at_once().is_none());
    /// drop(permit);
    /// assert!(together.at_once().is_some());
    /// ```
    pub fn at_once(&self) -> Option<AtOnce<'_, Q, A>> {
        let mut state = self.lock();
        let is_free = state.resources.is_empty() && !state.is_at_once;
        state.is_at_once |= is_free;
        drop(state);
        is_free.then(|| AtOnce { together: self })
    }

    /// Sends a question about a resource, and waits for its answer.
    ///
    /// # Cancel safety
    /// If the future is dropped, a question that is still waiting is not sent; if it has been sent, its answer is
    /// ignored.
    ///
    /// # Examples
    /// See [`Together`].
    pub async fn ask(&self, resource: &Resource, question: Q) -> Turn<A> {
        let placed = {
            let mut state = self.lock();
            if !state.is_carried || !state.resources.insert(resource.clone()) {
                None
            } else {
                state.last += 1;
                let id = state.last;
                state.waiting.push_back(Waiting { id, resource: resource.clone(), question });
                state.callers.insert(id, Caller { turn: None, waker: None });
                Some((id, if state.under_way < self.batches { state.carrier.take() } else { None }))
            }
        };
        let Some((id, carrier)) = placed else {
            self.sent().await;
            return Turn::Alone;
        };
        let _called = Called { together: self, id };
        if let Some(carrier) = carrier {
            carrier.wake();
        }
        poll_fn(|cx| {
            let mut state = self.lock();
            let Some(caller) = state.callers.get_mut(&id) else { return Poll::Ready(Turn::Lost) };
            if let Some(turn) = caller.turn.take() {
                return Poll::Ready(turn);
            }
            let before = caller.waker.replace(cx.waker().clone());
            drop(state);
            drop(before); // the waker's drop may run other code
            Poll::Pending
        })
        .await
    }

    /// Waits while a batch is being sent. A request that the caller sends afterwards follows that batch on the
    /// connection. This matters if the batch contains a question that the same caller gave up before it went on to this
    /// request.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use keylatch_lease_remote::Together;
    ///
    /// Together::<u32, u32>::new(64).sent().await; // nothing is being sent
    /// # });
    /// ```
    pub async fn sent(&self) {
        poll_fn(|cx| {
            if !self.lock().is_sending {
                return Poll::Ready(());
            }
            let waker = cx.waker().clone();
            let mut state = self.lock();
            if state.is_sending {
                state.behind.push(waker);
                return Poll::Pending;
            }
            drop(state);
            Poll::Ready(())
        })
        .await;
    }

    /// Stops sending. When [`carry`](Self::carry) is dropped, the questions that still wait count as [not
    /// sent](Turn::NotSent).
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use futures_lite::future::{or, pending, poll_once};
    /// use keylatch_lease::Resource;
    /// use keylatch_lease_remote::{Together, Turn};
    ///
    /// let together = Together::new(64);
    /// let mut carried = Box::pin(together.carry(|_: std::sync::Arc<[u32]>| pending::<Vec<Option<u32>>>()));
    /// assert!(poll_once(&mut carried).await.is_none());
    /// let resource = Resource::from("report");
    /// let mut asked = Box::pin(together.ask(&resource, 21));
    /// assert!(poll_once(&mut asked).await.is_none());
    /// together.stop(); // the connection has ended
    /// assert!(poll_once(&mut carried).await.is_none());
    /// drop(carried);
    /// assert_eq!(asked.await, Turn::NotSent);
    /// # });
    /// ```
    pub fn stop(&self) {
        self.lock().is_stopped = true;
    }

    /// Carries the questions, for as long as the connection lasts: the connection's driver polls this future.
    ///
    /// `send` sends a batch of questions, each about a different resource, and returns their answers in the same order.
    /// If a question has no answer, its caller must send it. One batch is under way at a time, or as many as
    /// [`with_batches`](Self::with_batches) allows. If requests that are sent [later](Self::sent) must follow the
    /// batch, the first poll of the future must put the batch on the connection.
    ///
    /// # Examples
    /// See [`Together`].
    pub async fn carry<F>(&self, send: impl Fn(Arc<[Q]>) -> F) -> !
    where
        F: Future<Output = Vec<Option<A>>>,
    {
        self.lock().is_carried = true;
        let mut carrying = Carrying { together: self, batches: Vec::new(), has_yielded: false };
        let carried = poll_fn(|cx| {
            carrying.read(cx);
            carrying.send(cx, &send);
            Poll::<Infallible>::Pending
        });
        match carried.await {}
    }
}

impl<Q, A> Together<Q, A> {
    fn answered(&self, sent: Vec<(u64, Resource)>, answers: Vec<Option<A>>) {
        let mut answers = answers.into_iter();
        self.tell(sent, || answers.next().flatten().map_or(Turn::Alone, Turn::Answered));
    }

    /// Notes that the batch is on the connection.
    fn is_sent(&self) {
        let behind = {
            let mut state = self.lock();
            state.is_sending = false;
            mem::take(&mut state.behind)
        };
        behind.into_iter().for_each(Waker::wake);
    }

    /// Gives each caller whose question was sent its turn.
    fn tell(&self, sent: Vec<(u64, Resource)>, mut turn: impl FnMut() -> Turn<A>) {
        let turns: Vec<_> = sent.into_iter().map(|(id, resource)| (id, resource, turn())).collect();
        let wakers: Vec<_> = {
            let mut state = self.lock();
            turns
                .into_iter()
                .filter_map(|(id, resource, turn)| {
                    state.resources.remove(&resource);
                    state.tell(id, turn)
                })
                .collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A permit to send one question without the driver: see [`Together::at_once`].
///
/// # Examples
/// See [`Together::at_once`].
#[must_use = "the permit ends when it is dropped"]
pub struct AtOnce<'a, Q, A> {
    together: &'a Together<Q, A>,
}

impl<Q, A> fmt::Debug for AtOnce<'_, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtOnce").finish_non_exhaustive()
    }
}

impl<Q, A> Drop for AtOnce<'_, Q, A> {
    fn drop(&mut self) {
        self.together.lock().is_at_once = false;
    }
}

/// A caller that waits. When this is dropped, a question that has not been sent yet is withdrawn.
struct Called<'a, Q, A> {
    together: &'a Together<Q, A>,
    id: u64,
}

impl<Q, A> Drop for Called<'_, Q, A> {
    fn drop(&mut self) {
        let mut state = self.together.lock();
        let caller = state.callers.remove(&self.id);
        let place = state.waiting.iter().position(|one| one.id == self.id);
        let question = place.and_then(|place| state.waiting.remove(place));
        if let Some(Waiting { resource, .. }) = &question {
            state.resources.remove(resource);
        }
        drop(state);
        drop((caller, question));
    }
}

/// The questions that are under way. When this is dropped, with the connection, all waiting callers get their turn.
struct Carrying<'a, Q, A, F> {
    together: &'a Together<Q, A>,
    batches: Vec<Batch<F>>,
    /// Whether the tasks that were ready have run since the last batch was sent.
    has_yielded: bool,
}

/// A batch that is under way: its questions, and the future of its answers.
struct Batch<F> {
    sent: Vec<(u64, Resource)>,
    answers: Pin<Box<F>>,
}

impl<Q, A, F: Future<Output = Vec<Option<A>>>> Carrying<'_, Q, A, F> {
    /// Reads the answers that have arrived.
    fn read(&mut self, cx: &mut Context<'_>) {
        let mut at = 0;
        while let Some(batch) = self.batches.get_mut(at) {
            match batch.answers.as_mut().poll(cx) {
                Poll::Ready(answers) => {
                    let Batch { sent, .. } = self.batches.remove(at);
                    self.together.answered(sent, answers);
                }
                Poll::Pending => at += 1,
            }
        }
    }

    /// Sends as many of the waiting questions as may be sent now.
    fn send(&mut self, cx: &mut Context<'_>, send: &impl Fn(Arc<[Q]>) -> F) {
        while let Some(questions) = self.next(cx) {
            let (sent, questions): (_, Vec<_>) =
                questions.into_iter().map(|Waiting { id, resource, question }| ((id, resource), question)).unzip();
            self.batches.push(Batch { sent, answers: Box::pin(send(questions.into())) });
            self.read(cx);
            self.together.is_sent();
        }
    }

    fn next(&mut self, cx: &Context<'_>) -> Option<Vec<Waiting<Q>>> {
        let mut state = self.together.lock();
        let has_questions = !state.waiting.is_empty() && !state.is_stopped;
        let may_send = has_questions && self.batches.len() < self.together.batches;
        // While the server has work, the tasks that are ready run before the next batch is sent: most of them have just
        // been answered, and are about to ask again.
        if may_send && !self.batches.is_empty() && !self.has_yielded {
            self.has_yielded = true;
            drop(state);
            cx.waker().wake_by_ref();
            return None;
        }
        self.has_yielded = false;
        if may_send {
            let count = state.waiting.len().min(self.together.most);
            state.under_way = self.batches.len() + 1;
            state.is_sending = true;
            return Some(state.waiting.drain(..count).collect());
        }
        state.under_way = self.batches.len();
        let before = state.carrier.replace(cx.waker().clone());
        drop(state);
        drop(before);
        None
    }
}

impl<Q, A, F> Drop for Carrying<'_, Q, A, F> {
    fn drop(&mut self) {
        for Batch { sent, .. } in self.batches.drain(..) {
            self.together.tell(sent, || Turn::Lost);
        }
        let mut state = self.together.lock();
        (state.is_carried, state.under_way) = (false, 0);
        state.resources.clear();
        let (waiting, carrier) = (mem::take(&mut state.waiting), state.carrier.take());
        let wakers: Vec<_> = waiting.iter().filter_map(|one| state.tell(one.id, Turn::NotSent)).collect();
        drop(state);
        drop((waiting, carrier));
        wakers.into_iter().for_each(Waker::wake);
        self.together.is_sent();
    }
}

#[cfg(test)]
#[path = "together_tests.rs"]
mod tests;
