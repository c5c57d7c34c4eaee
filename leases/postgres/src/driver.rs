//! What connects, and connects again; hears what is told; and does what nobody waits for.

use std::{
    future::{Future, poll_fn},
    hash::{BuildHasher, RandomState},
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{AsyncMessage, Client, Connection, types::ToSql};

use crate::{
    convert,
    error::{BoxError, Error, unusable},
    session::Session,
    shared::{Abandoned, Shared},
    wait::{Limit, sleep},
};

const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How often a tenure is given back in vain.
const TRIES: u32 = 100;

/// How long after each time it is tried again; and between two sweeps, as long as there is more to sweep.
const PAUSE: Duration = Duration::from_millis(50);

/// How many rows go at a time.
const SWEEP: i64 = 1000;

/// Runs until nobody has the engine any more.
pub(crate) async fn drive<C, F, S, T>(running: Running, mut dial: C)
where
    C: FnMut() -> F,
    F: Future<Output = Result<(Client, Connection<S, T>), BoxError>>,
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let shared = &*running.0;
    let mut failures = 0;
    loop {
        if shared.is_closed() && !shared.has_abandoned() {
            return;
        }
        let dialled = Limit::after(shared.timeout).of(dial()).await;
        let failure = match dialled {
            None => unusable("it took too long".into()),
            Some(Err(error)) => unusable(error),
            Some(Ok((client, mut connection))) => match set_up(shared, client, &mut connection).await {
                Err(failure) => failure,
                Ok(session) => {
                    failures = 0;
                    serve(shared, Arc::new(session), &mut connection).await
                }
            },
        };
        shared.disconnected(Some(failure));
        if shared.is_closed() {
            return; // what is left expires
        }
        Limit::after(pause(failures)).of(closed(shared)).await;
        failures += 1;
    }
}

/// That there is a driver, polled or not.
pub(crate) struct Running(Arc<Shared>);

impl Running {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Running(shared)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stopped();
    }
}

/// Longer and longer, and not the same for all who lost the same server.
fn pause(failures: u32) -> Duration {
    let longest = SHORTEST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    let random = RandomState::new().hash_one(failures) % 1000;
    longest.mul_f64(0.5 + random as f64 / 2000.0)
}

async fn closed(shared: &Shared) {
    poll_fn(|cx| {
        shared.set_driver(cx);
        if shared.is_closed() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Moves what is to be moved. Ready when the connection has ended.
fn pump<S, T>(shared: &Shared, connection: &mut Connection<S, T>, cx: &mut Context<'_>) -> Poll<Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match connection.poll_message(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(AsyncMessage::Notification(told)))) => match convert::resource(told.payload()) {
                Some(resource) => shared.watchers.tell(&resource),
                None => shared.watchers.tell_all(),
            },
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(error))) => return Poll::Ready(unusable(error.into())),
            Poll::Ready(None) => return Poll::Ready(Error::Unconnected { source: None }),
        }
    }
}

async fn set_up<S, T>(shared: &Shared, client: Client, connection: &mut Connection<S, T>) -> Result<Session, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut limit = Limit::after(shared.timeout);
    let mut opened = pin!(limit.of(Session::open(client, &shared.channel, shared.timeout)));
    poll_fn(|cx| {
        let ended = pump(shared, connection, cx);
        if let Poll::Ready(opened) = opened.as_mut().poll(cx) {
            return Poll::Ready(match opened {
                None => Err(unusable("it took too long".into())),
                Some(opened) => opened.map_err(|error| unusable(error.into())),
            });
        }
        ended.map(Err)
    })
    .await
}

/// Until the connection ends, or is not wanted any more.
async fn serve<S, T>(shared: &Shared, session: Arc<Session>, connection: &mut Connection<S, T>) -> Error
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    shared.connected(Arc::clone(&session));
    let mut chores = pin!(chores(shared, &session));
    poll_fn(|cx| {
        shared.set_driver(cx);
        if let Poll::Ready(error) = pump(shared, connection, cx) {
            return Poll::Ready(error);
        }
        if !session.is_usable() {
            return Poll::Ready(Error::Timeout);
        }
        chores.as_mut().poll(cx).map(|()| Error::Stopped)
    })
    .await
}

enum Chore {
    Release(Abandoned),
    Sweep,
}

/// Gives back what was abandoned, and sweeps now and then. Ends when nobody has the engine any more, and everything is done.
async fn chores(shared: &Shared, session: &Session) {
    let mut until_sweep = shared.sweeps.map(|time| Box::pin(sleep(time)));
    loop {
        let chore = poll_fn(|cx| {
            shared.set_driver(cx);
            if let Some(abandoned) = shared.next_abandoned() {
                return Poll::Ready(Some(Chore::Release(abandoned)));
            }
            if shared.is_closed() {
                return Poll::Ready(None);
            }
            match &mut until_sweep {
                Some(time) => time.as_mut().poll(cx).map(|()| Some(Chore::Sweep)),
                None => Poll::Pending,
            }
        })
        .await;
        match chore {
            None => return,
            Some(Chore::Release(abandoned)) => {
                let mut hand = InHand { shared, abandoned: Some(abandoned) };
                if give_back(shared, session, hand.abandoned.as_ref()).await {
                    hand.abandoned = None;
                } else if session.is_usable() {
                    sleep(PAUSE).await;
                }
            }
            Some(Chore::Sweep) => {
                // Whatever comes of it: there will be another.
                let parameters: [&(dyn ToSql + Sync); 2] = [&shared.namespace, &SWEEP];
                let question = session.client.query_one(&session.sweep, &parameters);
                // Nobody else may be there to notice that the server is silent.
                let row = shared.answer(session, &mut Limit::after(shared.timeout), question).await;
                let is_more = row.is_some_and(|row| row.is_ok_and(|row| row.get::<_, i64>(0) >= SWEEP));
                let pause = |time: Duration| if is_more { time.min(PAUSE) } else { time };
                until_sweep = shared.sweeps.map(|time| Box::pin(sleep(pause(time))));
            }
        }
        if !session.client.is_closed() {
            continue;
        }
        return std::future::pending().await; // the connection's end is noticed elsewhere
    }
}

/// What is being given back. If that fails, or the connection ends meanwhile, it is tried again.
struct InHand<'a> {
    shared: &'a Shared,
    abandoned: Option<Abandoned>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        if let Some(abandoned) = self.abandoned.take().filter(|abandoned| abandoned.tries < TRIES) {
            self.shared.abandon(Abandoned { tries: abandoned.tries + 1, ..abandoned });
        }
    }
}

async fn give_back(shared: &Shared, session: &Session, abandoned: Option<&Abandoned>) -> bool {
    let Some(Abandoned { resource, owner, token, .. }) = abandoned else { return true };
    let Ok(token) = i64::try_from(token.get()) else { return true };
    let (entity, key, owner) = (resource.entity().as_bytes(), resource.key().as_bytes(), owner.id().as_bytes());
    let parameters: [&(dyn ToSql + Sync); 6] = [&shared.namespace, &entity, &key, &owner, &token, &shared.channel];
    let question = session.client.query_one(&session.release, &parameters);
    let row = shared.answer(session, &mut Limit::after(shared.timeout), question).await;
    row.is_some_and(|row| row.is_ok_and(|row| row.get::<_, i8>(0) != b't' as i8))
}
