//! The keep-alives of etcd leases that are used again. One stream carries all of them.
//!
//! Such an etcd lease is far from its end. A renewal, however, may be about one that has just expired. etcd does not
//! answer its keep-alive before it has removed the etcd lease, and in this stream all other keep-alives would wait for
//! that answer. So each renewal has its own stream.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::stream;
use keylatch_lease_remote::Failure;
use tokio::sync::{mpsc, oneshot};

use crate::{
    client::{Client, messages::LeaseKeepAliveRequest},
    error::{Error, Trouble, unusable},
};

/// The callers that wait, by the ID of the etcd lease; `None` once the stream has ended.
type Waiting = Mutex<Option<HashMap<i64, oneshot::Sender<bool>>>>;

fn lock(waiting: &Waiting) -> MutexGuard<'_, Option<HashMap<i64, oneshot::Sender<bool>>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The callers' end of the stream.
pub(crate) struct Restarts {
    requests: mpsc::UnboundedSender<LeaseKeepAliveRequest>,
    waiting: Arc<Waiting>,
}

/// The driver's end of the stream. When it is dropped, no caller waits any longer.
pub(crate) struct Restarting {
    requests: Option<mpsc::UnboundedReceiver<LeaseKeepAliveRequest>>,
    waiting: Arc<Waiting>,
}

impl Restarts {
    pub(crate) fn new() -> (Self, Restarting) {
        let (sender, requests) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        (Restarts { requests: sender, waiting: Arc::clone(&waiting) }, Restarting { requests: Some(requests), waiting })
    }

    /// Restarts the time of an etcd lease that nobody else uses, and returns whether it still existed.
    pub(crate) async fn restart(&self, id: i64) -> Result<bool, Trouble> {
        let (caller, answer) = oneshot::channel();
        if let Some(waiting) = &mut *lock(&self.waiting) {
            waiting.insert(id, caller);
        }
        let _ = self.requests.send(LeaseKeepAliveRequest { id }); // if the stream has ended, so has the wait
        answer.await.map_err(|_| Trouble::Broken(Error::unconnected(None)))
    }
}

impl Restarting {
    /// Sends the keep-alives until the stream ends.
    pub(crate) async fn run(mut self, client: Client) -> Error {
        let Some(mut requests) = self.requests.take() else { return Error::unconnected(None) };
        let requests = stream::poll_fn(move |cx| requests.poll_recv(cx));
        let mut answers = match client.stream(requests).await {
            Ok(answers) => answers,
            Err(error) => return unusable(error.into()),
        };
        loop {
            match answers.next().await {
                Ok(Some(answer)) => {
                    let caller = lock(&self.waiting).as_mut().and_then(|waiting| waiting.remove(&answer.id));
                    let _ = caller.map(|caller| caller.send(answer.ttl > 0)); // the caller may have gone
                }
                Ok(None) => return Error::unconnected(None),
                Err(error) => return unusable(error.into()),
            }
        }
    }
}

impl Drop for Restarting {
    fn drop(&mut self) {
        let waiting = lock(&self.waiting).take();
        drop(waiting);
    }
}
