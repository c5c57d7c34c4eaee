//! The measurements.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use keylatch_lease::{Leases, Owner};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::case::{Case, Error};
use crate::counted::{Counted, Counts};
use crate::crowd::{Crowd, LONG, Manner, RESOURCE, Visit, hand_overs, now};
use crate::engines::{Running, Subject};
use crate::worker::{Progress, Worker};

/// The time for which each member of a crowd holds the resource, except in the case of hand-offs.
const HOLD: Duration = Duration::from_millis(2);

/// The longest time to wait for the next step of a case.
const PATIENCE: Duration = Duration::from_secs(300);

/// Starts the engine's server, and runs the requested cases on it.
pub fn run<S: Subject>(case: &Case<'_>) -> Result<(), Error> {
    let runtime = Runtime::new()?;
    let done = runtime.block_on(async {
        let running = S::start().await?;
        case.describe(S::NAME, &running.version);
        sleep(case.scale.idle / 20).await; // lets the connections of the preparations end
        if case.is_asked_for("one process") {
            one_process::<S>(case, &running).await?;
        }
        if case.is_asked_for("many processes") {
            many_processes::<S>(case, &running).await?;
        }
        if case.is_asked_for("hand-off") {
            hand_over::<S>(case, &running).await?;
        }
        if case.is_asked_for("take-over") {
            take_over::<S>(case, &running).await?;
        }
        if case.is_asked_for("renewals") {
            renewals::<S>(case, &running).await?;
        }
        Ok(())
    });
    runtime.shutdown_background();
    done
}

type Client<S> = Arc<Leases<Counted<<S as Subject>::Engine>>>;

async fn client<S: Subject>(running: &Running, namespace: &str) -> Result<Client<S>, Error> {
    let engine = S::connect(&running.address, namespace).await?;
    Ok(Arc::new(Leases::with_engine(Counted::new(engine))))
}

/// Waits until the condition holds.
async fn until(mut is_so: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > PATIENCE {
            return Err(format!("the case is not finished after {PATIENCE:?}").into());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Counts the connections of this machine to the port, if the system reports them.
fn connections(port: u16) -> Option<usize> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let remote = format!(":{port:04X}");
    let is_one = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        fields.next().is_some_and(|address| address.ends_with(&remote)) && fields.next() == Some("01")
    };
    Some(table.lines().filter(is_one).count())
}

/// Returns the number of new connections. The server may have had some connections to itself before.
fn more(connections: Option<usize>, before: Option<usize>) -> String {
    let more = connections.zip(before).map(|(now, before)| now.saturating_sub(before));
    more.map_or_else(|| "–".to_owned(), |more| more.to_string())
}

fn number(value: f64) -> String {
    format!("{value:.6}")
}

fn per(count: u64, of: usize) -> String {
    number(count as f64 / of as f64)
}

fn millis(times: &Histogram<u64>, percentile: f64) -> String {
    number(times.value_at_percentile(percentile) as f64 / 1e3)
}

/// Measures a crowd in one process. Each member holds the resource once.
async fn one_process<S: Subject>(case: &Case<'_>, running: &Running) -> Result<(), Error> {
    let count = case.scale.crowd;
    let others = connections(running.port);
    let leases = client::<S>(running, "one process").await?;
    let first = Owner::incarnation("first");
    let grant = leases.acquire(RESOURCE, &first, LONG).await?;
    let crowd = Crowd::gather(&leases, count, Manner { hold: HOLD, pause: None });
    until(|| Ok(crowd.progress()?.0 == count)).await?;
    sleep(case.scale.idle / 10).await; // by then each task has been told that the resource is busy
    let (before, connections) = (leases.engine().counts(), more(connections(running.port), others));
    leases.release(&grant).await?;
    until(|| Ok(crowd.progress()?.1 == count)).await?;
    let after = leases.engine().counts();
    let times = hand_overs(crowd.visits(), false);
    let figures = [
        ("wait", count.to_string()),
        ("acquires for each hand-off", per(after.acquires - before.acquires, count)),
        ("requests for each hand-off", per(after.all - before.all, count)),
        ("p50, ms", millis(&times, 50.0)),
        ("p99, ms", millis(&times, 99.0)),
        ("connections", connections),
    ];
    case.note(S::NAME, "one process", &figures);
    Ok(())
}

/// Returns the sum of the workers' progress.
fn progress(workers: &mut [Worker]) -> Result<Progress, Error> {
    let mut sum = Progress::default();
    for worker in workers {
        let one = worker.progress()?;
        sum.asking += one.asking;
        sum.visits += one.visits;
        sum.counts.acquires += one.counts.acquires;
        sum.counts.all += one.counts.all;
    }
    Ok(sum)
}

fn visits(workers: &mut [Worker]) -> Result<Vec<Visit>, Error> {
    let mut visits = vec![];
    for (process, worker) in workers.iter_mut().enumerate() {
        visits.extend(worker.end(process)?);
    }
    Ok(visits)
}

/// Measures a crowd in several processes.
async fn many_processes<S: Subject>(case: &Case<'_>, running: &Running) -> Result<(), Error> {
    let (processes, each) = case.scale.crowds;
    let count = processes * each;
    let others = connections(running.port);
    let leases = client::<S>(running, "many processes").await?;
    let first = Owner::incarnation("first");
    let grant = leases.acquire(RESOURCE, &first, LONG).await?;
    let mut workers = Worker::start_all::<S>(processes, &running.address, "many processes")?;
    for worker in &mut workers {
        worker.tell(&format!("crowd {each} {} -", HOLD.as_millis()))?;
    }
    until(|| Ok(progress(&mut workers)?.asking == count)).await?;
    sleep(case.scale.idle / 10).await;

    // The resource is held, and nothing happens.
    let (before, start) = (progress(&mut workers)?, Instant::now());
    let connections = more(connections(running.port), others);
    sleep(case.scale.idle).await;
    let after = progress(&mut workers)?;
    let idle = (after.counts.all - before.counts.all) as f64 / start.elapsed().as_secs_f64() / processes as f64;

    leases.release(&grant).await?;
    until(|| Ok(progress(&mut workers)?.visits == count)).await?;
    let end = progress(&mut workers)?;
    let times = hand_overs(visits(&mut workers)?, false);
    let figures = [
        ("processes × waiting in each", format!("{processes} × {each}")),
        ("acquires for each hand-off", per(end.counts.acquires - after.counts.acquires, count)),
        ("requests for each hand-off", per(end.counts.all - after.counts.all, count)),
        ("p50, ms", millis(&times, 50.0)),
        ("p99, ms", millis(&times, 99.0)),
        ("requests of each process in a second in which nothing happens", number(idle)),
        ("connections", connections),
    ];
    case.note(S::NAME, "many processes", &figures);
    Ok(())
}

/// Measures hand-offs among processes. Each process has one waiter, which asks again a while after it has held the
/// resource.
async fn hand_over<S: Subject>(case: &Case<'_>, running: &Running) -> Result<(), Error> {
    let mut figures = vec![];
    for &processes in case.scale.pairs {
        let namespace = format!("hand-off {processes}");
        let mut workers = Worker::start_all::<S>(processes, &running.address, &namespace)?;
        for worker in &mut workers {
            worker.tell("crowd 1 20 5")?;
        }
        until(|| Ok(progress(&mut workers)?.visits >= case.scale.hand_overs)).await?;
        let times = hand_overs(visits(&mut workers)?, true);
        for percentile in [50.0, 99.0] {
            figures.push((format!("{processes} processes: p{percentile}, ms"), millis(&times, percentile)));
        }
    }
    let figures: Vec<_> = figures.iter().map(|(measure, value)| (measure.as_str(), value.clone())).collect();
    case.note(S::NAME, "hand-off", &figures);
    Ok(())
}

/// Measures take-overs: kills processes that renew their leases, while a waiter waits for each.
async fn take_over<S: Subject>(case: &Case<'_>, running: &Running) -> Result<(), Error> {
    let (kills, ttl) = (case.scale.kills, S::TTL);
    let leases = client::<S>(running, "take-over").await?;
    let mut workers = Worker::start_all::<S>(kills, &running.address, "take-over")?;
    let mut waiting = JoinSet::new();
    for (at, worker) in workers.iter_mut().enumerate() {
        worker.tell(&format!("hold job-{at} {}", ttl.as_millis()))?;
        let leases = Arc::clone(&leases);
        waiting.spawn(async move {
            let grant = leases.acquire(format!("job-{at}"), &Owner::incarnation("waiter"), ttl).await?;
            let granted = now();
            _ = leases.release(&grant).await;
            Ok::<_, Error>((at, granted))
        });
    }
    sleep(ttl * 3 / 2 / case.scale.haste).await; // on the full scale, long enough for renewals
    let mut killed = vec![];
    for worker in &mut workers {
        killed.push(now());
        worker.kill()?;
        sleep(ttl / 7).await; // so that the kills are at different times after a renewal
    }
    let mut times = vec![];
    while let Some(waited) = waiting.join_next().await {
        let (at, granted) = waited??;
        // No waiter may get the lease while its holder is alive.
        let time = granted.checked_sub(killed[at]).ok_or("a lease was lost before its holder was killed")?;
        times.push(time.as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let last = times[times.len() - 1];
    let figures = [
        ("ttl, s", number(ttl.as_secs_f64())),
        ("kills", kills.to_string()),
        ("shortest, s", number(times[0])),
        ("median, s", number(times[times.len() / 2])),
        ("longest, s", number(last)),
        ("longest, in ttl", number(last / ttl.as_secs_f64())),
    ];
    case.note(S::NAME, "take-over", &figures);
    Ok(())
}

/// Measures the renewals of one process that holds very many leases.
async fn renewals<S: Subject>(case: &Case<'_>, running: &Running) -> Result<(), Error> {
    let (count, ttl) = (case.scale.leases, case.scale.lease);
    let leases = client::<S>(running, "renewals").await?;
    let owner = Owner::incarnation("holder");
    let mut takers = JoinSet::new();
    let lanes = 64;
    for lane in 0..lanes {
        let (leases, owner) = (Arc::clone(&leases), owner.clone());
        takers.spawn(async move {
            let mut held = vec![];
            for at in (lane..count).step_by(lanes) {
                let one = leases.hold_arc(("job", at.to_string().as_str()), &owner, ttl).await?;
                // The lease is renewed from the start, even after this task has ended, until the renewal is aborted.
                let renewal = tokio::spawn(one.renewal());
                held.push((one, renewal));
            }
            Ok::<_, Error>(held)
        });
    }
    let start = Instant::now();
    let mut held = vec![];
    while let Some(taken) = takers.join_next().await {
        held.extend(taken??);
    }
    let acquired = start.elapsed();
    let (before, start) = (leases.engine().counts(), Instant::now());
    sleep(case.scale.renewing).await;
    let (after, seconds) = (leases.engine().counts(), start.elapsed().as_secs_f64());
    let lost = held.iter().filter(|(one, renewal)| renewal.is_finished() || one.check().is_err()).count();
    let Counts { renewals, renewed, .. } = after;
    let (requests, leases_renewed) = (renewals - before.renewals, renewed - before.renewed);
    let figures = [
        ("leases", count.to_string()),
        ("acquired in, s", number(acquired.as_secs_f64())),
        ("requests/s", number(requests as f64 / seconds)),
        ("leases in a request", number(leases_renewed as f64 / requests.max(1) as f64)),
        ("one by one: requests/s", number(count as f64 * 3.0 / ttl.as_secs_f64())),
        ("lost", lost.to_string()),
    ];
    case.note(S::NAME, "renewals", &figures);
    for (one, renewal) in held {
        renewal.abort();
        _ = one.into_grant(); // so that the drop does not release each lease separately
    }
    _ = leases.release_all(&owner).await;
    Ok(())
}
