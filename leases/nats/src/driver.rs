//! The driver: it connects, and receives notifications.

use std::{future::Future, pin::pin, sync::Arc};

use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber, header};
use futures_util::{
    FutureExt, StreamExt,
    future::{Either, select},
};
use keylatch_lease_remote::{Driving, Failure, Watchers};
use tokio::sync::watch;

use crate::{
    error::Error,
    session::{End, Place, Seen, Session, carry, ended, is_forgotten},
};

/// The number of times that the client tries each server after it has lost its connection. The client is soon dropped,
/// because the driver makes a new one for each connection.
const TRIES: usize = 32;

/// Runs until all clones of the engine have been dropped.
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
            let told = client.subscribe(place.subjects.told()).await.map_err(unusable)?;
            let session = Session::open(client, place, end.clone()).await?;
            let (seen, reads) = (session.seen(), session.reads());
            let moves = async move {
                let carried = carry(Arc::clone(&link), reads).map(|never| match never {});
                let heard = hear(told, end, &seen, link.watchers());
                select(pin!(heard), pin!(carried)).await.factor_first().0
            };
            Ok((session, moves))
        }
    })
    .await;
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::unconnected(Some(Box::new(error)))
}

/// Returns a client, and the end of its connection. A connection that the client makes after that end is not used,
/// because notifications were lost in between.
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

/// Notifies the waiters and holders, until the connection is lost.
async fn hear(mut told: Subscriber, mut end: End, seen: &Seen, watchers: &Watchers) -> Error {
    let mut over = pin!(end.over.wait_for(|over| *over));
    let mut last = 0;
    loop {
        match select(told.next(), over.as_mut()).await {
            Either::Left((Some(message), _)) => {
                if let Some(sequence) = sequence(&message) {
                    // The stream is a different one, or an older copy, or, in a cluster, has a different leader. The
                    // next connection finds out which.
                    if sequence <= last {
                        return Error::unconnected(None);
                    }
                    last = sequence;
                    seen.sees(sequence);
                }
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

/// Returns the sequence of the republished message.
fn sequence(message: &async_nats::Message) -> Option<u64> {
    message.headers.as_ref()?.get(header::NATS_SEQUENCE)?.as_str().parse().ok()
}
