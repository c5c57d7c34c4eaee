//! The thread that asks SQLite, which blocks.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Instant,
};

use keylatch_lease::engine::Fail;
use rusqlite::{Connection, TransactionBehavior};

use crate::{busy, decide::Table, error::Error, messages, place::Place};

/// The number of jobs that are done in one transaction.
const TOGETHER: usize = 64;

/// The outcome of an operation.
pub(crate) type Done<T> = Result<T, Fail<Error>>;

/// An operation to carry out. Those that write and are waiting at the same moment share a transaction, and so a write
/// to the disk.
trait Job: Send {
    /// Whether it needs the write lock.
    fn writes(&self) -> bool;

    /// The time after which it is not begun any more.
    fn deadline(&self) -> Instant;

    /// Whether its caller has gone.
    fn is_dropped(&self) -> bool;

    /// Carries it out. The answer is kept until the transaction is committed.
    fn run(&mut self, table: &mut Table<'_>) -> rusqlite::Result<()>;

    /// Gives the answer to the caller, or the reason that there is none.
    fn finish(self: Box<Self>, failure: Option<Fail<Error>>);
}

struct Question<T, F> {
    work: F,
    writes: bool,
    deadline: Instant,
    answer: Option<T>,
    caller: async_channel::Sender<Done<T>>,
}

impl<T, F> Job for Question<T, F>
where
    T: Send,
    F: FnMut(&mut Table<'_>) -> rusqlite::Result<T> + Send,
{
    fn writes(&self) -> bool {
        self.writes
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_dropped(&self) -> bool {
        self.caller.is_closed()
    }

    fn run(&mut self, table: &mut Table<'_>) -> rusqlite::Result<()> {
        self.answer = Some((self.work)(table)?);
        Ok(())
    }

    fn finish(self: Box<Self>, failure: Option<Fail<Error>>) {
        let answer = match (failure, self.answer) {
            (None, Some(answer)) => Ok(answer),
            (failure, _) => Err(failure.unwrap_or(Fail::Unknown(Error::Stopped))),
        };
        let _ = self.caller.try_send(answer); // the caller may have gone
    }
}

/// The caller's end of the thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: Sender<Box<dyn Job>>,
}

impl Worker {
    /// Starts a thread that asks this connection.
    pub(crate) fn start(connection: Connection, place: Arc<Place>) -> std::io::Result<Self> {
        let (jobs, waiting) = mpsc::channel();
        thread::Builder::new().name("keylatch-sqlite".into()).spawn(move || serve(connection, &place, &waiting))?;
        Ok(Worker { jobs })
    }

    /// Carries out work that only reads, and returns its answer.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        place: &Place,
        work: impl FnMut(&mut Table<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Done<T> {
        self.ask(place, false, work).await
    }

    /// Carries out work in a transaction, and returns its answer once that is committed. If a transaction is rolled back,
    /// its work may be carried out once more in another one.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        place: &Place,
        work: impl FnMut(&mut Table<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Done<T> {
        self.ask(place, true, work).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        place: &Place,
        writes: bool,
        work: impl FnMut(&mut Table<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Done<T> {
        let (caller, answer) = async_channel::bounded(1);
        let deadline = Instant::now() + place.patience;
        let job = Box::new(Question { work, writes, deadline, answer: None, caller });
        self.jobs.send(job).map_err(|_| Fail::NotDone(Error::Stopped))?;
        answer.recv().await.unwrap_or(Err(Fail::Unknown(Error::Stopped)))
    }
}

fn serve(mut connection: Connection, place: &Place, waiting: &Receiver<Box<dyn Job>>) {
    for job in waiting {
        let Some(job) = due(job) else { continue };
        if job.writes() {
            let mut jobs = vec![job];
            jobs.extend(waiting.try_iter().take(TOGETHER - 1).filter_map(due));
            write(&mut connection, place, jobs);
        } else {
            read(&connection, place, job);
        }
    }
}

/// Returns a job that is still to be carried out.
fn due(job: Box<dyn Job>) -> Option<Box<dyn Job>> {
    if job.is_dropped() {
        return None;
    }
    if Instant::now() >= job.deadline() {
        job.finish(Some(Fail::NotDone(Error::Timeout)));
        return None;
    }
    Some(job)
}

fn read(connection: &Connection, place: &Place, mut job: Box<dyn Job>) {
    busy::set_deadline(job.deadline());
    let done = job.run(&mut Table::new(connection, &place.namespace));
    let failure = done.err().map(|error| place.error(error)).or_else(|| place.check().err());
    job.finish(failure.map(Fail::NotDone));
}

/// Carries out the jobs in one transaction. If one of them cannot be carried out, it is rolled back, and each has a
/// transaction of its own, so that no job fails for another one's sake.
fn write(connection: &mut Connection, place: &Place, mut jobs: Vec<Box<dyn Job>>) {
    let deadline = jobs.iter().map(|job| job.deadline()).min();
    busy::set_deadline(deadline.unwrap_or_else(Instant::now));
    let mut has_told = false;
    let failure = transact(connection, place, &mut jobs, &mut has_told).err();
    if jobs.len() > 1 && matches!(failure, Some(Fail::NotDone(Error::Refused { .. } | Error::Full { .. }))) {
        return jobs.into_iter().for_each(|job| write(connection, place, vec![job]));
    }
    if has_told && failure.is_none() {
        messages::announce(&place.path);
    }
    for job in jobs {
        job.finish(failure.clone());
    }
}

fn transact(
    connection: &mut Connection,
    place: &Place,
    jobs: &mut [Box<dyn Job>],
    has_told: &mut bool,
) -> Result<(), Fail<Error>> {
    let not_done = |error| Fail::NotDone(place.error(error));
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(not_done)?;
    let mut table = Table::new(&transaction, &place.namespace);
    for job in jobs {
        job.run(&mut table).map_err(not_done)?;
    }
    *has_told = table.has_told;
    transaction.commit().map_err(|error| Fail::Unknown(place.error(error)))?;
    // Whoever looks at the path now must find what was written. A file that is replaced later is noticed later.
    place.check().map_err(Fail::Unknown)
}
