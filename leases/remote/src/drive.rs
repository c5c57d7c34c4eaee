//! What connects, and connects again; and does what nobody waits for.

use std::{
    future::{Future, pending, poll_fn},
    hash::{BuildHasher, RandomState},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use crate::{
    limit::{Limit, sleep},
    link::{Abandoned, Driving, Failure, Link, Live, Session},
};

/// Half of it, at random.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How often a tenure is given back in vain.
const TRIES: u32 = 100;

/// How long after each time it is tried again; and between two sweeps, as long as there is more to sweep.
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
            return Poll::Ready(S::Error::timeout());
        }
        chores.as_mut().poll(cx).map(|()| S::Error::stopped())
    })
    .await
}

enum Chore {
    Release(Abandoned),
    Sweep,
}

/// Gives back what was abandoned, and sweeps now and then. Ends when nobody has the engine any more, and everything is done.
async fn chores<S: Session>(link: &Link<S>, session: &Live<S>) {
    let mut until_sweep = link.sweeps.map(|time| Box::pin(sleep(time)));
    loop {
        let chore = poll_fn(|cx| {
            link.set_driver(cx);
            if let Some(abandoned) = link.next_abandoned() {
                return Poll::Ready(Some(Chore::Release(abandoned)));
            }
            if link.is_closed() {
                return Poll::Ready(None);
            }
            match &mut until_sweep {
                Some(time) => time.as_mut().poll(cx).map(|()| Some(Chore::Sweep)),
                None => Poll::Pending,
            }
        })
        .await;
        // Nobody else may be there to notice that the server is silent: so both are answers like any other.
        match chore {
            None => return,
            Some(Chore::Release(abandoned)) => {
                let mut hand = InHand { link, abandoned: Some(abandoned) };
                if give_back(link, session, hand.abandoned.as_ref()).await {
                    hand.abandoned = None;
                } else if session.is_usable() {
                    sleep(PAUSE).await;
                }
            }
            Some(Chore::Sweep) => {
                // Whatever comes of it: there will be another.
                let is_more = link.answer(session, &mut Limit::after(link.timeout()), session.sweep()).await;
                let pause = |time: Duration| if is_more == Some(true) { time.min(PAUSE) } else { time };
                until_sweep = link.sweeps.map(|time| Box::pin(sleep(pause(time))));
            }
        }
        if session.is_closed() {
            return pending().await; // the connection's end is noticed elsewhere
        }
    }
}

/// What is being given back. If that fails, or the connection ends meanwhile, it is tried again.
struct InHand<'a, S: Session> {
    link: &'a Link<S>,
    abandoned: Option<Abandoned>,
}

impl<S: Session> Drop for InHand<'_, S> {
    fn drop(&mut self) {
        let is_wanted = self.link.is_wanted_back();
        if let Some(abandoned) = self.abandoned.take().filter(|abandoned| is_wanted && abandoned.tries < TRIES) {
            self.link.abandon_again(Abandoned { tries: abandoned.tries + 1, ..abandoned });
        }
    }
}

async fn give_back<S: Session>(link: &Link<S>, session: &Live<S>, abandoned: Option<&Abandoned>) -> bool {
    let Some(abandoned) = abandoned else { return true };
    let question = session.give_back(&abandoned.tenure);
    link.answer(session, &mut Limit::after(link.timeout()), question).await == Some(true)
}
