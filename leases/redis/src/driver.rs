//! The driver: it connects, and receives notifications.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use keylatch_lease_remote::{BoxError, Driving, Failure, Link, Told};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value, aio::MultiplexedConnection};

use crate::{
    convert, decide,
    error::{Error, unusable},
    session::{Ended, Place, Session},
};

/// The number of requests for which the connection has room before it writes them. A request that had to wait for room
/// could be overtaken by a later one.
const BUFFER: usize = 1 << 20;

/// Runs until all clones of the engine have been dropped, and the abandoned tenures have been released if possible.
pub(crate) async fn drive<C, F, D>(driving: Driving<Session>, place: Arc<Place>, mut dial: C)
where
    C: FnMut(AsyncConnectionConfig) -> F,
    F: Future<Output = Result<(MultiplexedConnection, D), BoxError>>,
    D: Future<Output = ()>,
{
    keylatch_lease_remote::drive(driving, |link| {
        let (place, ended) = (Arc::clone(&place), Arc::new(Ended::default()));
        let dialled = dial(config(Arc::clone(link), Arc::clone(&ended)));
        async move {
            let (connection, moves) = dialled.await.map_err(unusable)?;
            let mut moves = Box::pin({
                let ended = Arc::clone(&ended);
                async move { ended.after(moves).await }
            });
            let mut opened = pin!(Session::open(connection, place, ended));
            let session = poll_fn(|cx| {
                let has_ended = moves.as_mut().poll(cx).is_ready();
                match opened.as_mut().poll(cx) {
                    Poll::Pending | Poll::Ready(Ok(_)) if has_ended => Poll::Ready(Err(Error::unconnected(None))),
                    opened => opened,
                }
            });
            let session = session.await?;
            let (carried, together) = (decide::carry(session.clone()), Arc::clone(&session.together));
            Ok((session, async move {
                let mut carried = pin!(carried);
                poll_fn(|cx| {
                    let ended = moves.as_mut().poll(cx);
                    if ended.is_ready() {
                        together.stop(); // what still waits can go to the next connection
                    }
                    // This poll comes last, so that the answers and errors that came with the end are passed on.
                    let _never = carried.as_mut().poll(cx);
                    ended
                })
                .await;
                Error::unconnected(None)
            }))
        }
    })
    .await;
}

/// Returns a configuration with which a connection passes its messages to the watchers, and reports its own end. The
/// connection has no timeouts: the engine has its own time limits.
fn config(link: Arc<Link<Session>>, ended: Arc<Ended>) -> AsyncConnectionConfig {
    let told = move |PushInfo { kind, data }: PushInfo| {
        match kind {
            PushKind::Message => link.watchers().hear(told(&data)),
            PushKind::Disconnection => ended.end(),
            _ => {}
        }
        Ok::<_, ()>(())
    };
    AsyncConnectionConfig::new()
        .set_pipeline_buffer_size(BUFFER)
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_push_sender(told)
}

/// Parses the content of a message, which comes after its channel.
fn told(message: &[Value]) -> Option<Told> {
    match message {
        [_, Value::BulkString(told)] => convert::told(told),
        _ => None,
    }
}
