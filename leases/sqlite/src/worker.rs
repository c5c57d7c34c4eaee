//! The thread that calls SQLite. A separate thread does this because the calls block.

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

/// The greatest number of jobs that are done in one transaction.
const TOGETHER: usize = 64;

/// The outcome of an operation.
pub(crate) type Done<T> = Result<T, Fail<Error>>;

/// An operation to carry out. Jobs that write and are waiting at the same moment share a transaction, and so one write
/// to the disk.
trait Job: Send {
    /// Returns whether the job needs the write lock.
    fn writes(&self) -> bool;

    /// Returns the latest time at which the job may begin.
    fn deadline(&self) -> Instant;

    /// Returns whether its caller has gone.
    fn is_dropped(&self) -> bool;

    /// Carries the job out. The answer is kept until the transaction is committed.
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
    /// Starts a thread that carries out the jobs on this connection.
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

    /// Carries out work in a transaction, and returns its answer once that is committed. If a transaction is rolled
    /// back, its work may be carried out once more in another one.
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
        let jobs = [job].into_iter().chain(waiting.try_iter().take(TOGETHER - 1)).filter_map(due);
        let (writes, reads): (Vec<_>, Vec<_>) = jobs.partition(|job| job.writes());
        // Jobs that only read need no lock, and do not wait for it with the others.
        reads.into_iter().for_each(|job| read(&connection, place, job));
        if !writes.is_empty() {
            write(&mut connection, place, writes);
        }
    }
}

/// Returns the job if it is still to be carried out. If it is too late, tells the caller.
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

/// Carries out the jobs in one transaction. No job fails because of another one. If the time of some has passed before
/// the file is unlocked, the others continue to wait. If one cannot be carried out, the transaction is rolled back, and
/// each job gets its own.
fn write(connection: &mut Connection, place: &Place, mut jobs: Vec<Box<dyn Job>>) {
    let deadline = jobs.iter().map(|job| job.deadline()).min();
    busy::set_deadline(deadline.unwrap_or_else(Instant::now));
    let mut has_told = false;
    let failure = transact(connection, place, &mut jobs, &mut has_told).err();
    if jobs.len() > 1 && matches!(failure, Some(Fail::NotDone(Error::Refused { .. } | Error::Full { .. }))) {
        return jobs.into_iter().for_each(|job| write(connection, place, vec![job]));
    }
    if matches!(failure, Some(Fail::NotDone(Error::Locked { .. }))) {
        let now = Instant::now();
        let (over, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.deadline() <= now);
        let has_waited = !over.is_empty(); // otherwise SQLite has not waited for the lock
        over.into_iter().for_each(|job| job.finish(failure.clone()));
        if has_waited && !others.is_empty() {
            return write(connection, place, others);
        }
        jobs = others;
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
    // A process that opens the path now must find this commit. A file that is replaced later is noticed later.
    place.check().map_err(Fail::Unknown)
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use keylatch_lease_remote::Settings;

    use super::*;
    use crate::synchronous::Synchronous;

    type Caller<T> = async_channel::Receiver<Done<T>>;

    fn job(writes: bool, patience: Duration) -> (Box<dyn Job>, Caller<usize>) {
        let (caller, answer) = async_channel::bounded(1);
        let work =
            move |table: &mut Table<'_>| if writes { table.sweep(1) } else { table.has_expired().map(usize::from) };
        let deadline = Instant::now() + patience;
        (Box::new(Question { work, writes, deadline, answer: None, caller }), answer)
    }

    /// Runs a test with two connections to a file.
    fn with_file(name: &str, test: impl FnOnce(&Place, Connection, &mut Connection)) {
        let folder = std::env::temp_dir().join(format!("keylatch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let place =
            Place::new(&folder.join("leases.db"), &Settings::new("", None), Synchronous::Normal, 1_000).unwrap();
        let (one, mut other) = (place.open().unwrap(), place.open().unwrap());
        test(&place, one, &mut other);
        drop(other);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_job_whose_time_is_over_does_not_fail_those_that_have_come_later() {
        with_file("later", |place, mut connection, other| {
            let lock = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            let (first, over) = job(true, Duration::from_millis(1));
            let (second, done) = job(true, Duration::from_secs(60));
            thread::scope(|scope| {
                scope.spawn(|| write(&mut connection, place, vec![first, second]));
                let over = over.recv_blocking().unwrap();
                assert!(matches!(over, Err(Fail::NotDone(Error::Locked { .. }))), "{over:?}");
                drop(lock);
                assert_eq!(done.recv_blocking().unwrap().unwrap(), 0);
            });
        });
    }

    #[test]
    fn a_job_that_only_reads_does_not_wait_for_the_lock_with_those_that_write() {
        with_file("reads", |place, connection, other| {
            let lock = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            let (first, second) = (job(true, Duration::from_secs(60)), job(false, Duration::from_secs(60)));
            let (jobs, waiting) = mpsc::channel();
            jobs.send(first.0).unwrap();
            jobs.send(second.0).unwrap();
            drop(jobs);
            thread::scope(|scope| {
                scope.spawn(move || serve(connection, place, &waiting));
                assert_eq!(second.1.recv_blocking().unwrap().unwrap(), 0);
                drop(lock);
                assert_eq!(first.1.recv_blocking().unwrap().unwrap(), 0);
            });
        });
    }
}
