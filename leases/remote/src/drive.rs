//! The driver: it connects, reconnects, and does the work that no caller waits for.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use crate::{
    backlog::Abandoned,
    limit::{Limit, jittered, sleep},
    link::{Driving, Failure, Link, Live, Session},
};

/// The pause between two attempts to connect grows from the first of these to the second. The actual pause is chosen at
/// random between half of that and all of it.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The greatest number of tenures that are released at the same time.
const TOGETHER: usize = 64;

/// The pause before a failed release is tried again, and between two sweeps while there is more to sweep.
const PAUSE: Duration = Duration::from_millis(50);

/// Connects, and reconnects whenever the connection is lost, after a random pause of 50 ms to 2 s. Releases the
/// abandoned tenures, and sweeps. Runs until the [`Handle`](crate::Handle) has been dropped, and either all tenures
/// have been released, or the connection is lost or cannot be made.
///
/// `connect` may take as long as an operation. It returns the session, and a future that does the connection's work.
/// The driver polls that future for as long as it uses the session. The future may call the link's
/// [`watchers`](Link::watchers). It completes when the connection has ended, and returns the reason.
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
            None => S::Error::unconnected(Some("connecting took too long".into())),
            Some(Err(error)) => error,
            Some(Ok((session, moves))) => {
                let start = Instant::now();
                let failure = serve(link, Arc::new(Live::new(session)), moves).await;
                // A connection that ends within two seconds counts as a failed attempt.
                if start.elapsed() >= LONGEST_PAUSE {
                    failures = 0;
                }
                failure
            }
        };
        link.disconnected(failure);
        if link.is_closed() {
            return; // tenures that are still unreleased expire
        }
        Limit::after(pause(failures)).of(closed(link)).await;
        failures += 1;
    }
}

/// Returns a pause that grows with the number of failures, and differs between the processes that lost the same server.
fn pause(failures: u32) -> Duration {
    jittered(SHORTEST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE))
}

async fn closed<S: Session>(link: &Link<S>) {
    poll_fn(|cx| {
        link.set_driver(cx);
        if link.is_closed() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Serves a connection until it ends, or is no longer needed.
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

/// Releases abandoned tenures, and sweeps now and then. Ends when the engine has been dropped and every tenure has been
/// released.
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
                return Poll::Pending; // `serve` notices the end of the connection
            }
            if under_way.len() == before {
                break;
            }
        }
        if link.is_closed() && under_way.is_empty() && !link.has_abandoned() {
            return Poll::Ready(());
        }
        if let Some(sweeps) = &mut sweeps {
            let _ = sweeps.as_mut().poll(cx); // the sweeps never end
        }
        Poll::Pending
    })
    .await;
}

/// Releases a tenure. The wait for the answer counts as silence of the server, as for any other request, because there
/// may be no other request to show that the server is silent.
async fn give_back<S: Session>(link: &Link<S>, session: &Live<S>, abandoned: Abandoned) {
    let mut hand = InHand { link, abandoned: Some(abandoned), is_done: false };
    let Some(Abandoned { tenure, .. }) = &hand.abandoned else { unreachable!("the tenure is taken only by `drop`") };
    let answer = link.answer(session, &mut Limit::after(link.timeout()), session.give_back(tenure)).await;
    hand.is_done = answer == Some(true);
    if !hand.is_done && session.is_usable() {
        sleep(PAUSE).await;
    }
}

/// The tenure that is being released. If the release fails, or the connection ends during it, the tenure is queued
/// again.
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
        // A failed sweep does not matter, because there will be another one.
        let is_more = link.answer(session, &mut Limit::after(link.timeout()), session.sweep()).await;
        pause = if is_more == Some(true) { time.min(PAUSE) } else { time };
    }
}
