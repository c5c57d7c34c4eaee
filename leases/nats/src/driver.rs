//! The driver: it connects, and receives notifications.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use futures_util::{
    FutureExt, StreamExt,
    future::{Either, select},
    stream::SelectAll,
};
use keylatch_lease_remote::{Driving, Failure, Watchers};
use tokio::sync::{mpsc::UnboundedReceiver, watch};

use crate::{
    error::Error,
    session::{End, Place, Seen, Session, beat, carry, ended, is_forgotten},
    topics::{Heard, Topic, Topics},
};

/// The number of times that the client tries each server after it has lost its connection. The client is soon dropped,
/// because the driver makes a new one for each connection.
const TRIES: usize = 32;

/// Runs until all clones of the engine have been dropped, and the abandoned tenures have been released if possible.
pub(crate) async fn drive<O>(driving: Driving<Session>, place: Arc<Place>, addresses: Vec<ServerAddr>, options: O)
where
    O: Fn() -> ConnectOptions,
{
    keylatch_lease_remote::drive(driving, |link| {
        let (link, place) = (Arc::clone(link), Arc::clone(&place));
        let dialled = dial(addresses.clone(), options());
        async move {
            let (client, end) = dialled.await?;
            // Subscribe before the first request, so that no waiter misses a notification.
            let subjects = place.subjects.clone();
            let (topics, begun) =
                Topics::open(client.clone(), subjects, Arc::downgrade(&link)).await.map_err(unusable)?;
            let session = Session::open(client, place, end.clone(), topics).await?;
            let (seen, reads) = (session.seen(), session.reads());
            let moves = async move {
                let carried = pin!(carry(Arc::clone(&link), reads).map(|never| match never {}));
                let beats = pin!(beat(Arc::clone(&link)).map(|never| match never {}));
                let heard = pin!(hear(begun, end, &seen, link.watchers()));
                let others = select(carried, beats).map(|other| other.factor_first().0);
                select(heard, others).await.factor_first().0
            };
            Ok((session, moves))
        }
    })
    .await;
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::unconnected(Some(Box::new(error)))
}

/// Returns a client, and a handle on the end of its connection. A connection that the client makes after that end is
/// not used, because notifications were lost in between.
fn dial(addresses: Vec<ServerAddr>, options: ConnectOptions) -> impl Future<Output = Result<(Client, End), Error>> {
    let (tell, over) = watch::channel(false);
    let tell = Arc::new(tell);
    let end = End { over, tell: Arc::downgrade(&tell) };
    let options = options.max_reconnects(TRIES).event_callback(move |event| {
        let tell = Arc::clone(&tell);
        async move {
            // A slow consumer has lost messages too.
            if matches!(event, Event::Disconnected | Event::Closed | Event::SlowConsumer(_)) {
                tell.send_replace(true);
            }
        }
    });
    async move { Ok((options.connect(addresses).await.map_err(unusable)?, end)) }
}

/// Notifies the waiters and holders, until the connection is lost. The first subscriptions have begun already.
async fn hear(mut begun: UnboundedReceiver<Topic>, mut end: End, seen: &Seen, watchers: &Watchers) -> Error {
    let mut over = pin!(end.over.wait_for(|over| *over));
    let mut topics = SelectAll::new();
    let mut next = poll_fn(|cx| {
        while let Poll::Ready(Some(topic)) = begun.poll_recv(cx) {
            topics.push(topic);
        }
        topics.poll_next_unpin(cx)
    });
    loop {
        match select(&mut next, over.as_mut()).await {
            Either::Left((Some(Heard { message, sequence, is_behind }), _)) => {
                // The stream is a different one, or an older copy, or, in a cluster, has a different leader. The next
                // connection finds out which.
                if is_behind {
                    return Error::unconnected(None);
                }
                sequence.into_iter().for_each(|sequence| seen.sees(sequence));
                if let Some((resource, token, how)) = ended(&message) {
                    watchers.tell_end(&resource, token, how);
                } else if is_forgotten(&message) {
                    watchers.tell_all();
                }
            }
            Either::Left((None, _)) | Either::Right(_) => return Error::unconnected(None),
        }
    }
}
