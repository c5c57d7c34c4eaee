//! The script of the demonstration: it starts, kills and stops the workers, and reports the result.

use std::{
    env,
    fmt::Display,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use keylatch_lease_conformance::served::{Remote, Served};

use crate::{
    args::{Args, Locking},
    ledger::{BANK, Book, Ledger, Scene},
    lock::{self, Error},
};

/// The time after which something must be wrong, not counting the time of the bank.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the demonstration, and returns whether every number is as it should be.
pub(crate) fn run(args: &Args) -> Result<bool, Error> {
    // Declared first, so that the workers are dropped before the server.
    let server = Server::start(args)?;
    let (killed_at, paused_at) = (args.accounts * 39 / 100, args.accounts * 2 / 3);
    let scene = |worker, account| Scene { worker, account, has_begun: false, is_over: false };
    let scenes = vec![scene("A", killed_at), scene("B", paused_at)];
    let ledger = Ledger::new(args.accounts, args.workers, args.is_fenced, scenes);

    let begin = Instant::now();
    let mut company = Company::start(args, Arc::clone(&ledger), &server.address())?;
    let killed = company.kill("A", killed_at, args.ttl)?;
    let paused = company.pause("B", paused_at, args.ttl)?;
    company.finish()?;
    let wall = begin.elapsed();
    let leases_left = server.count(args)?;

    let run = Run { killed_at, killed, paused_at, paused, leases_left, wall };
    Ok(run.report(args, &server.name(), &ledger.book()))
}

/// The server that keeps the leases.
enum Server {
    #[cfg(feature = "etcd")]
    Etcd(crate::etcd::Server),
    Memory(Served),
    #[cfg(feature = "nats")]
    Nats(crate::nats::Server),
    #[cfg(feature = "object")]
    Object(crate::object::Server),
    #[cfg(feature = "postgres")]
    Postgres(crate::postgres::Server),
    #[cfg(feature = "redis")]
    Redis(crate::redis::Server),
    Sqlite(crate::sqlite::Folder),
}

impl Server {
    fn start(args: &Args) -> Result<Self, Error> {
        match args.engine {
            #[cfg(feature = "nats")]
            crate::args::Engine::Nats => Ok(Server::Nats(crate::nats::Server::start()?)),
            #[cfg(feature = "object")]
            crate::args::Engine::Object => Ok(Server::Object(crate::object::Server::start()?)),
            #[cfg(feature = "etcd")]
            crate::args::Engine::Etcd => Ok(Server::Etcd(crate::etcd::Server::start()?)),
            #[cfg(feature = "postgres")]
            crate::args::Engine::Postgres => Ok(Server::Postgres(crate::postgres::Server::start()?)),
            #[cfg(feature = "redis")]
            crate::args::Engine::Redis => Ok(Server::Redis(crate::redis::Server::start()?)),
            crate::args::Engine::Sqlite => Ok(Server::Sqlite(crate::sqlite::Folder::new()?)),
            _ => Ok(Server::Memory(Served::start(Duration::ZERO)?)),
        }
    }

    fn name(&self) -> String {
        match self {
            #[cfg(feature = "etcd")]
            Server::Etcd(server) => server.name(),
            Server::Memory(_) => "memory".to_owned(),
            #[cfg(feature = "nats")]
            Server::Nats(server) => server.name(),
            #[cfg(feature = "object")]
            Server::Object(_) => "a bucket of an S3 (moto)".to_owned(),
            #[cfg(feature = "postgres")]
            Server::Postgres(server) => server.name(),
            #[cfg(feature = "redis")]
            Server::Redis(server) => server.name(),
            Server::Sqlite(_) => "sqlite".to_owned(),
        }
    }

    /// Returns the address for the workers.
    fn address(&self) -> String {
        match self {
            #[cfg(feature = "etcd")]
            Server::Etcd(server) => server.address(),
            Server::Memory(served) => served.address().to_string(),
            #[cfg(feature = "nats")]
            Server::Nats(server) => server.address(),
            #[cfg(feature = "object")]
            Server::Object(server) => server.address(),
            #[cfg(feature = "postgres")]
            Server::Postgres(server) => server.address(),
            #[cfg(feature = "redis")]
            Server::Redis(server) => server.address(),
            Server::Sqlite(folder) => folder.file(),
        }
    }

    /// Counts the locks that are left.
    fn count(&self, args: &Args) -> Result<Option<usize>, Error> {
        match (args.lock, self) {
            (Locking::None, _) => Ok(None),
            #[cfg(feature = "etcd")]
            (_, Server::Etcd(server)) => Ok(Some(lock::count(crate::etcd::engine(&server.address())?, args.accounts)?)),
            (_, Server::Memory(served)) => {
                Ok(Some(lock::count(Remote::connect("payroll", served.address())?, args.accounts)?))
            }
            #[cfg(feature = "nats")]
            (_, Server::Nats(server)) => Ok(Some(lock::count(crate::nats::engine(&server.address())?, args.accounts)?)),
            #[cfg(feature = "object")]
            (_, Server::Object(server)) => {
                Ok(Some(lock::count(crate::object::engine(&server.address())?, args.accounts)?))
            }
            #[cfg(feature = "postgres")]
            (Locking::Advisory, Server::Postgres(server)) => Ok(Some(server.count_advisory()?)),
            #[cfg(feature = "postgres")]
            (Locking::Lease, Server::Postgres(server)) => {
                Ok(Some(lock::count(crate::postgres::engine(&server.address())?, args.accounts)?))
            }
            #[cfg(feature = "redis")]
            (_, Server::Redis(server)) => {
                Ok(Some(lock::count(crate::redis::engine(&server.address())?, args.accounts)?))
            }
            (_, Server::Sqlite(folder)) => {
                Ok(Some(lock::count(crate::sqlite::engine(&folder.file())?, args.accounts)?))
            }
        }
    }
}

// --- The workers -----------------------------------------------------------------------------------------------------

/// All workers. Those that are left are killed when this is dropped.
struct Company {
    ledger: Arc<Ledger>,
    workers: Vec<(String, Child)>,
    patience: Duration,
}

/// The worker that read the account after another worker was killed or stopped, and the time in between.
struct TakenOver {
    by: String,
    after: Duration,
}

struct Paused {
    for_: Duration,
    taken_over: Option<TakenOver>,
}

impl Company {
    fn start(args: &Args, ledger: Arc<Ledger>, server: &str) -> Result<Self, Error> {
        let address = ledger.listen()?.to_string();
        let program = env::current_exe()?;
        // A single worker would wait for the bank once for each account.
        let patience = PATIENCE + BANK * u32::try_from(args.accounts)?;
        let mut company = Company { ledger, workers: Vec::new(), patience };
        for name in ('A'..='Z').take(args.workers).map(String::from) {
            let mut command = Command::new(&program);
            command.args(args.for_workers()).args([&name, &address, server]).stdin(Stdio::null());
            let child = command.spawn().map_err(|error| format!("worker {name} cannot be started: {error}"))?;
            company.workers.push((name, child));
        }
        Ok(company)
    }

    /// Kills the worker, as `kill -9` does, as soon as it is between reading and writing this account.
    fn kill(&mut self, worker: &'static str, account: usize, ttl: Duration) -> Result<Option<TakenOver>, Error> {
        self.wait_for_scene(account)?;
        let since = Instant::now();
        let place = self.place(worker)?;
        let (_, child) = &mut self.workers[place];
        child.kill()?;
        child.wait()?;
        self.workers.remove(place);
        self.ledger.redo(account);
        self.ledger.end_scene(account);
        self.taken_over(worker, account, since, since + ttl + PATIENCE)
    }

    /// Stops the worker as soon as it is between reading and writing this account, for twice the time of a lease.
    fn pause(&mut self, worker: &'static str, account: usize, ttl: Duration) -> Result<Paused, Error> {
        self.wait_for_scene(account)?;
        let since = Instant::now();
        let place = self.place(worker)?;
        let asked = self.ledger.book().asked.get(worker).copied();
        stop(&self.workers[place].1)?;
        self.ledger.redo(account);
        // The bank answers while the worker is stopped.
        self.ledger.end_scene(account);
        let taken_over = self.taken_over(worker, account, since, since + 2 * ttl)?;
        thread::sleep((since + 2 * ttl).saturating_duration_since(Instant::now()));
        let for_ = since.elapsed();
        go_on(&self.workers[place].1)?;
        // The worker writes, and gets the ledger's answer, before it asks for the next account.
        let is_through = |book: &Book| (book.asked.get(worker).copied() != asked).then_some(());
        match self.wait_until(Instant::now() + self.patience, is_through)? {
            Some(()) => Ok(Paused { for_, taken_over }),
            None => Err(format!("worker {worker} did not go on after it was resumed").into()),
        }
    }

    fn place(&self, worker: &str) -> Result<usize, Error> {
        let place = self.workers.iter().position(|(name, _)| name == worker);
        place.ok_or_else(|| format!("worker {worker} is not running").into())
    }

    fn wait_for_scene(&mut self, account: usize) -> Result<(), Error> {
        let has_begun = |book: &Book| {
            let mut scenes = book.scenes.iter();
            scenes.any(|scene| scene.account == account && scene.has_begun).then_some(())
        };
        let begun = self.wait_until(Instant::now() + self.patience, has_begun)?;
        begun.ok_or_else(|| format!("no worker reached account #{account} in time").into())
    }

    /// Waits until another worker has read the account; `None` if the limit comes first.
    fn taken_over(
        &mut self,
        worker: &str,
        account: usize,
        since: Instant,
        limit: Instant,
    ) -> Result<Option<TakenOver>, Error> {
        self.wait_until(limit, |book: &Book| {
            let read = book.reads.iter().find(|read| read.account == account && read.worker != worker)?;
            Some(TakenOver { by: read.worker.clone(), after: read.at.saturating_duration_since(since) })
        })
    }

    /// Waits until `look` finds something in the book; `None` if the limit comes first. Fails if a worker fails.
    fn wait_until<T>(&mut self, limit: Instant, look: impl Fn(&Book) -> Option<T>) -> Result<Option<T>, Error> {
        let ledger = Arc::clone(&self.ledger);
        let mut book = ledger.book();
        loop {
            if let Some(seen) = look(&book) {
                return Ok(Some(seen));
            }
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            for (name, child) in &mut self.workers {
                is_well(name, child.try_wait()?)?;
            }
            // A worker that fails does not notify the ledger, so check the workers from time to time.
            book = ledger.wait(book, left.min(Duration::from_millis(50)));
        }
    }

    /// Waits until all workers have ended.
    fn finish(&mut self) -> Result<(), Error> {
        let limit = Instant::now() + self.patience;
        while !self.workers.is_empty() {
            let mut left = Vec::new();
            for (name, mut child) in self.workers.drain(..) {
                match child.try_wait()? {
                    None => left.push((name, child)),
                    status => is_well(&name, status)?,
                }
            }
            self.workers = left;
            if Instant::now() > limit {
                return Err(format!("{} workers did not end in time", self.workers.len()).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        for (_, child) in &mut self.workers {
            // A failure cannot be reported to anybody.
            _ = child.kill();
            _ = child.wait();
        }
    }
}

fn is_well(name: &str, status: Option<ExitStatus>) -> Result<(), Error> {
    match status {
        Some(status) if !status.success() => Err(format!("worker {name} has failed: {status}").into()),
        _ => Ok(()),
    }
}

/// Stops a worker, and returns when it has stopped.
#[cfg(unix)]
fn stop(child: &Child) -> Result<(), Error> {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

    let id = Pid::from_child(child);
    kill_process(id, Signal::STOP)?;
    match waitpid(Some(id), WaitOptions::UNTRACED)? {
        Some((_, status)) if status.stopped() => Ok(()),
        _ => Err("a worker ended before it could be stopped".into()),
    }
}

#[cfg(unix)]
fn go_on(child: &Child) -> Result<(), Error> {
    use rustix::process::{Pid, Signal, kill_process};

    Ok(kill_process(Pid::from_child(child), Signal::CONT)?)
}

#[cfg(not(unix))]
fn stop(_: &Child) -> Result<(), Error> {
    Err("stopping a process needs Unix".into())
}

#[cfg(not(unix))]
fn go_on(_: &Child) -> Result<(), Error> {
    Ok(())
}

// --- The table -------------------------------------------------------------------------------------------------------

struct Run {
    killed_at: usize,
    killed: Option<TakenOver>,
    paused_at: usize,
    paused: Paused,
    leases_left: Option<usize>,
    wall: Duration,
}

#[derive(Default)]
struct Table {
    is_unsound: bool,
}

impl Table {
    fn row(&mut self, label: &str, value: impl Display, must: &str, is_met: bool) {
        self.is_unsound |= !is_met;
        let must = if must.is_empty() { String::new() } else { format!("  must be {must}") };
        println!("{label:<34}{value:>16}{must}{}", if is_met { "" } else { ": FAILED" });
    }

    fn take_over(&mut self, taken_over: Option<&TakenOver>, limit: Duration) {
        let must = format!("below {}", seconds(limit));
        match taken_over {
            Some(TakenOver { by, after }) => {
                self.row(&format!("  taken over by {by} after"), seconds(*after), &must, *after < limit);
            }
            None => self.row("  taken over after", "not at all", &must, false),
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

impl Run {
    fn report(&self, args: &Args, engine: &str, book: &Book) -> bool {
        let mut table = Table::default();
        let lock = match (args.lock, args.is_fenced) {
            (Locking::Lease, true) => "lease and fence",
            (Locking::Lease, false) => "lease, no fence",
            (Locking::None, _) => "none",
            (Locking::Advisory, _) => "advisory",
        };
        table.row("engine", engine, "", true);
        table.row("lock", lock, "", true);
        table.row("workers", args.workers, "", true);
        let payments = book.payments.len();
        table.row("payments", payments, &args.accounts.to_string(), payments == args.accounts);
        let (twice, never) = (book.count(|paid| paid > 1), book.count(|paid| paid == 0));
        table.row("accounts paid more than once", twice, "0", twice == 0);
        table.row("accounts not paid", never, "0", never == 0);

        let limit = args.ttl + args.slack;
        table.row("A killed while paying", format!("#{}", self.killed_at), "", true);
        table.take_over(self.killed.as_ref(), limit);
        let Paused { for_, taken_over } = &self.paused;
        table.row(&format!("B stopped while paying #{} for", self.paused_at), seconds(*for_), "", true);
        table.take_over(taken_over.as_ref(), limit);
        let is_it = |worker: &str, account| worker == "B" && account == self.paused_at;
        let refused = book.refused.iter().find(|refused| is_it(&refused.worker, refused.account));
        let lost = book.lost.iter().find(|lost| is_it(&lost.worker, lost.account));
        let is_paid = book.payments.iter().any(|payment| is_it(&payment.worker, payment.account));
        match (refused, taken_over) {
            (Some(refused), _) => {
                table.row("  its late write", "refused", "refused", true);
                table.row("  with the token", refused.token, "", true);
                table.row("  which is behind the newest,", refused.newest, "", true);
            }
            (None, _) if !is_paid => table.row("  its late write", "not made", "refused", false),
            (None, Some(_)) => table.row("  its late write", "admitted", "refused", false),
            // No other worker has taken the account over, so the write is not late.
            (None, None) => table.row("  its write when it goes on", "admitted", "", true),
        }
        if args.lock == Locking::Lease {
            let said = lost.map_or("nothing", |lost| &*lost.why);
            table.row("  its own check of the lease says", said, "that it is lost", lost.is_some());
        }
        if let Some(left) = self.leases_left {
            table.row("locks left", left, "0", left == 0);
        }
        table.row("wall time", seconds(self.wall), "", true);
        !table.is_unsound
    }
}
