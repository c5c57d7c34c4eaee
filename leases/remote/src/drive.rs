//! The driver: it connects, reconnects, and does the work that no caller waits for.

use std::{
    future::{Future, poll_fn},
    hash::{BuildHasher, RandomState},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use crate::{
    backlog::Abandoned,
    limit::{Limit, sleep},
    link::{Driving, Failure, Link, Live, Session},
};

/// Half of it, at random.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The number of tenures released at the same time.
const TOGETHER: usize = 64;

/// The pause before a failed release is tried again, and between two sweeps while there is more to sweep.
const PAUSE: Duration = Duration::from_millis(50);

/// Connects, and again whenever the connection is lost, after 50 ms to 2 s, at random; gives back what was abandoned, and sweeps. Runs until the
/// [`Handle`](crate::Handle) is dropped, and everything has been given back or the connection is lost.
///
/// `connect` has as long as an operation has. It gives the session, and what moves the connection: a future that is polled beside it, and
/// ready, with the reason, when the connection has ended; it may call the link's [`watchers`](Link::watchers).
///
/// # Examples
/// See the [crate's page](crate).
pub async fn drive<S, C, F, P>(driving: Driving<S>, mut connect: C)
where
    S: Session,
    C: FnMut(&Arc<Link<S>>) -> F,
    F: Future<Output = Result<(S, P), S::Error>>,
    P: Future<Output = S::Error>,
{
    let link = driving.link();
    let mut failures = 0;
    loop {
        if link.is_closed() && !link.has_abandoned() {
            return;
        }
        let failure = match Limit::after(link.timeout()).of(connect(link)).await {
            None => S::Error::unconnected(Some("it took too long".into())),
            Some(Err(error)) => error,
            Some(Ok((session, moves))) => {
                let start = Instant::now();
                let failure = serve(link, Arc::new(Live::new(session)), moves).await;
                // One that goes at once is no better than none.
                if start.elapsed() >= LONGEST_PAUSE {
                    failures = 0;
                }
                failure
            }
        };
        link.disconnected(failure);
        if link.is_closed() {
            return; // what is left expires
        }
        Limit::after(pause(failures)).of(closed(link)).await;
        failures += 1;
    }
}

/// Longer and longer, and not the same for all who lost the same server.
fn pause(failures: u32) -> Duration {
    let longest = SHORTEST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    let random = RandomState::new().hash_one(failures) % 1000;
    longest.mul_f64(0.5 + random as f64 / 2000.0)
}

async fn closed<S: Session>(link: &Link<S>) {
    poll_fn(|cx| {
        link.set_driver(cx);
        if link.is_closed() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Until the connection ends, or is not wanted any more.
async fn serve<S: Session>(link: &Link<S>, session: Arc<Live<S>>, moves: impl Future<Output = S::Error>) -> S::Error {
    link.connected(Arc::clone(&session));
    let mut moves = pin!(moves);
    let mut chores = pin!(chores(link, &session));
    poll_fn(|cx| {
        link.set_driver(cx);
        if let Poll::Ready(error) = moves.as_mut().poll(cx) {
            return Poll::Ready(error);
        }
        if !session.is_usable() {
            return Poll::Ready(session.failure().unwrap_or_else(S::Error::timeout));
        }
        chores.as_mut().poll(cx).map(|()| S::Error::stopped())
    })
    .await
}

/// Gives back what was abandoned, and sweeps now and then. Ends when nobody has the engine any more, and everything is given back.
async fn chores<S: Session>(link: &Link<S>, session: &Live<S>) {
    let mut under_way = Vec::new();
    let mut sweeps = link.sweeps.map(|time| Box::pin(sweeps(link, session, time)));
    poll_fn(|cx| {
        link.set_driver(cx);
        loop {
            while under_way.len() < TOGETHER && session.is_usable() {
                let Some(abandoned) = link.next_abandoned() else { break };
                under_way.push(Box::pin(give_back(link, session, abandoned)));
            }
            let before = under_way.len();
            under_way.retain_mut(|one| one.as_mut().poll(cx).is_pending());
            if !session.is_usable() {
                return Poll::Pending; // the connection's end is noticed elsewhere
            }
            if under_way.len() == before {
                break;
            }
        }
        if link.is_closed() && under_way.is_empty() && !link.has_abandoned() {
            return Poll::Ready(());
        }
        if let Some(sweeps) = &mut sweeps {
            let _ = sweeps.as_mut().poll(cx); // it never ends
        }
        Poll::Pending
    })
    .await;
}

/// Nobody else may be there to notice that the server is silent: so this is an answer like any other.
async fn give_back<S: Session>(link: &Link<S>, session: &Live<S>, abandoned: Abandoned) {
    let mut hand = InHand { link, abandoned: Some(abandoned), is_done: false };
    let Some(Abandoned { tenure, .. }) = &hand.abandoned else { unreachable!("it is there until it is dropped") };
    let answer = link.answer(session, &mut Limit::after(link.timeout()), session.give_back(tenure)).await;
    hand.is_done = answer == Some(true);
    if !hand.is_done && session.is_usable() {
        sleep(PAUSE).await;
    }
}

/// The tenure that is being released. If that fails, or the connection ends meanwhile, it is tried again.
struct InHand<'a, S: Session> {
    link: &'a Link<S>,
    abandoned: Option<Abandoned>,
    is_done: bool,
}

impl<S: Session> Drop for InHand<'_, S> {
    fn drop(&mut self) {
        if let Some(abandoned) = self.abandoned.take() {
            self.link.has_tried(abandoned, self.is_done);
        }
    }
}

async fn sweeps<S: Session>(link: &Link<S>, session: &Live<S>, time: Duration) -> ! {
    let mut pause = time;
    loop {
        sleep(pause).await;
        // Whatever comes of it: there will be another.
        let is_more = link.answer(session, &mut Limit::after(link.timeout()), session.sweep()).await;
        pause = if is_more == Some(true) { time.min(PAUSE) } else { time };
    }
}
