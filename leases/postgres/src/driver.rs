//! The driver: it connects, drives the connection, and receives notifications.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use keylatch_lease_remote::{BoxError, Driving, Failure, Link, Watchers};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{AsyncMessage, Client, Connection};

use crate::{
    convert,
    decide::carry,
    error::{Error, unusable},
    session::{Place, Session},
};

/// Runs until all clones of the engine have been dropped, and the abandoned tenures have been released if possible.
pub(crate) async fn drive<C, F, S, T>(driving: Driving<Session>, place: Arc<Place>, mut dial: C)
where
    C: FnMut() -> F,
    F: Future<Output = Result<(Client, Connection<S, T>), BoxError>>,
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    keylatch_lease_remote::drive(driving, |link| {
        let (link, place, dialled) = (Arc::clone(link), Arc::clone(&place), dial());
        async move {
            let (client, mut connection) = dialled.await.map_err(unusable)?;
            let session = set_up(&link, Arc::clone(&place), client, &mut connection).await?;
            let carried = carry(Arc::clone(&link), Arc::clone(&session.batches));
            let moves = async move {
                let mut carried = pin!(carried);
                poll_fn(|cx| match carried.as_mut().poll(cx) {
                    Poll::Ready(never) => never,
                    Poll::Pending => pump(link.watchers(), &place.namespace, &mut connection, cx),
                })
                .await
            };
            Ok((session, moves))
        }
    })
    .await;
}

/// Drives the connection and passes its notifications to the watchers. Returns `Ready` when the connection has ended.
fn pump<S, T>(
    watchers: &Watchers,
    namespace: &str,
    connection: &mut Connection<S, T>,
    cx: &mut Context<'_>,
) -> Poll<Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match connection.poll_message(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(AsyncMessage::Notification(told)))) => match convert::told(told.payload()) {
                Some((_, Some(of))) if of != namespace => {}
                told => watchers.hear(told.map(|(told, _)| told)),
            },
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(error))) => return Poll::Ready(unusable(error.into())),
            Poll::Ready(None) => return Poll::Ready(Error::unconnected(None)),
        }
    }
}

async fn set_up<S, T>(
    link: &Link<Session>,
    place: Arc<Place>,
    client: Client,
    connection: &mut Connection<S, T>,
) -> Result<Session, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut opened = pin!(Session::open(client, Arc::clone(&place), link.timeout()));
    poll_fn(|cx| {
        let ended = pump(link.watchers(), &place.namespace, connection, cx);
        if let Poll::Ready(opened) = opened.as_mut().poll(cx) {
            return Poll::Ready(opened);
        }
        ended.map(Err)
    })
    .await
}
