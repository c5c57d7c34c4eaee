//! An open file, as the [`Link`](keylatch_lease_remote::Link) of the engine uses it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use keylatch_lease::engine::Fail;
use keylatch_lease_remote::{BoxError, Driving, Failure, Link, Tenure, drive};
use rusqlite::Connection;

use crate::{
    changes::Changes,
    error::Error,
    messages::Reader,
    place::Place,
    worker::{Done, Worker},
};

/// The greatest number of expired leases that a sweep removes in one transaction.
const AT_A_TIME: usize = 1000;

#[derive(Debug)]
pub(crate) struct Session {
    worker: Worker,
    pub(crate) place: Arc<Place>,
    is_replaced: AtomicBool,
}

impl Session {
    /// Carries out work that only reads.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut crate::decide::Table<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Done<T> {
        self.noted(self.worker.read(&self.place, work).await)
    }

    /// Carries out work in a transaction.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut crate::decide::Table<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Done<T> {
        self.noted(self.worker.write(&self.place, work).await)
    }

    fn noted<T>(&self, done: Done<T>) -> Done<T> {
        if let Err(Fail::NotDone(Error::Replaced { .. }) | Fail::Unknown(Error::Replaced { .. })) = done {
            self.is_replaced.store(true, SeqCst);
        }
        done
    }

    pub(crate) async fn sweep(&self, limit: usize) -> Done<usize> {
        // Usually nothing has expired, and then the file is not locked.
        if !self.read(|table| table.has_expired()).await? {
            return Ok(0);
        }
        self.write(move |table| table.sweep(limit)).await
    }
}

impl keylatch_lease_remote::Session for Session {
    type Error = Error;

    fn is_closed(&self) -> bool {
        self.is_replaced.load(SeqCst)
    }

    fn failure(&self) -> Option<Error> {
        self.is_closed().then(|| Error::Replaced { path: self.place.path.clone() })
    }

    async fn give_back(&self, tenure: &Tenure) -> bool {
        let Tenure { resource, owner, token } = tenure.clone();
        self.write(move |table| table.release(&resource, Some(&owner), Some(token))).await.is_ok()
    }

    async fn sweep(&self) -> bool {
        Session::sweep(self, AT_A_TIME).await.is_ok_and(|count| count == AT_A_TIME)
    }
}

/// Runs the engine's driver on a thread of its own, until the engine is dropped. The first connection is open already.
pub(crate) fn start(driving: Driving<Session>, place: Arc<Place>, first: Connection) -> std::io::Result<()> {
    let run = move || {
        let mut first = Some(first);
        async_io::block_on(drive(driving, |link: &Arc<Link<Session>>| {
            // Nothing else runs on this thread while it opens the file.
            let opened = first.take().map_or_else(|| place.open(), Ok).and_then(|connection| open(connection, &place));
            let link = Arc::clone(link);
            async move {
                let (session, reader) = opened?;
                let place = Arc::clone(&session.place);
                let moves: Pin<Box<dyn Future<Output = Error> + Send>> =
                    Box::pin(async move { listen(&link, &place, reader).await });
                Ok((session, moves))
            }
        }));
    };
    std::thread::Builder::new().name("keylatch-lease".into()).spawn(run).map(|_| ())
}

fn open(connection: Connection, place: &Arc<Place>) -> Result<(Session, Reader), Error> {
    let reader = Reader::new(place.open_reader()?).map_err(|error| place.error(error))?;
    let worker = Worker::start(connection, Arc::clone(place)).map_err(|error| {
        let error: BoxError = error.into();
        Error::unconnected(Some(error))
    })?;
    let session = Session { worker, place: Arc::clone(place), is_replaced: AtomicBool::new(false) };
    Ok((session, reader))
}

/// Tells the waiters and holders of this process what happens in the file, until that fails. Returns the reason.
async fn listen(link: &Link<Session>, place: &Place, mut reader: Reader) -> Error {
    let (watchers, mut changes) = (link.watchers(), Changes::new());
    loop {
        changes.next(place).await;
        let heard = place.check().and_then(|()| {
            if changes.is_reported() || reader.has_changed().map_err(|error| place.error(error))? {
                reader.read(&place.namespace, watchers).map_err(|error| place.error(error))?;
            }
            Ok(())
        });
        if let Err(error) = heard {
            watchers.tell_all(); // they ask, and learn the reason
            return error;
        }
    }
}
