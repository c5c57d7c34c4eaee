//! Tasks that all want the same resource.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use keylatch_lease::engine::Engine;
use keylatch_lease::{AcquireError, Clock, Leases, Owner, StdClock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::case::Error;

/// An expiry that no case reaches.
pub const LONG: Duration = Duration::from_secs(600);

pub const RESOURCE: &str = "crowd";

/// The behaviour of each task.
#[derive(Clone, Copy)]
pub struct Manner {
    /// The time for which it holds the resource.
    pub hold: Duration,
    /// The time until it asks again; `None` if it does not.
    pub pause: Option<Duration>,
}

/// The times at which a task asked for the resource, got it, and began to release it.
#[derive(Clone, Copy)]
pub struct Visit {
    pub token: u64,
    pub process: usize,
    pub asked: Duration,
    pub granted: Duration,
    pub released: Duration,
}

pub fn now() -> Duration {
    StdClock::new().now()
}

/// The tasks. They end when this is dropped.
pub struct Crowd {
    tasks: JoinSet<()>,
    news: Arc<News>,
}

#[derive(Default)]
struct News {
    visits: Mutex<Vec<Visit>>,
    asking: AtomicUsize,
    failed: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crowd {
    pub fn gather<E: Engine + 'static>(leases: &Arc<Leases<E>>, count: usize, manner: Manner) -> Self {
        let (mut tasks, news) = (JoinSet::new(), Arc::new(News::default()));
        for _ in 0..count {
            let (leases, news) = (Arc::clone(leases), Arc::clone(&news));
            tasks.spawn(async move {
                let owner = Owner::incarnation("visitor");
                loop {
                    match news.visit(&leases, &owner, manner).await {
                        Ok(()) => {}
                        Err(error) => *lock(&news.failed) = Some(error.to_string()),
                    }
                    match manner.pause {
                        Some(pause) => sleep(pause).await,
                        None => return,
                    }
                }
            });
        }
        Crowd { tasks, news }
    }

    /// Returns the number of requests so far, and the number of finished visits.
    pub fn progress(&self) -> Result<(usize, usize), Error> {
        match &*lock(&self.news.failed) {
            Some(error) => Err(error.clone().into()),
            None => Ok((self.news.asking.load(SeqCst), lock(&self.news.visits).len())),
        }
    }

    pub fn visits(&self) -> Vec<Visit> {
        lock(&self.news.visits).clone()
    }

    pub fn end(&mut self) {
        self.tasks.abort_all();
    }
}

impl News {
    async fn visit<E: Engine>(
        &self,
        leases: &Leases<E>,
        owner: &Owner,
        manner: Manner,
    ) -> Result<(), AcquireError<E::Error>> {
        let asked = now();
        let asking = leases.acquire(RESOURCE, owner, LONG);
        self.asking.fetch_add(1, SeqCst);
        let grant = asking.await?;
        let granted = now();
        sleep(manner.hold).await;
        let visit = Visit { token: grant.token().get(), process: 0, asked, granted, released: now() };
        // A failed release does not matter here: the lease was released or lost.
        _ = leases.release(&grant).await;
        lock(&self.visits).push(visit);
        Ok(())
    }
}

/// Returns the times, in microseconds, from each release until the next task, which was already waiting, had the
/// resource. If `among_processes`, only hand-offs to another process count.
pub fn hand_overs(mut visits: Vec<Visit>, among_processes: bool) -> Histogram<u64> {
    visits.sort_by_key(|visit| visit.token);
    let mut times = Histogram::new_with_max(600_000_000, 3).expect("ten minutes, three digits");
    for pair in visits.windows(2) {
        let [from, to] = [pair[0], pair[1]];
        if to.asked < from.released && !(among_processes && from.process == to.process) {
            times.saturating_record(to.granted.saturating_sub(from.released).as_micros() as u64);
        }
    }
    times
}
