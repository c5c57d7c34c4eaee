//! Another process, which carries out the suite's commands, line by line.
//!
//! The program of a [`Fixture::worker`](crate::Fixture::worker) connects to the engine and calls [`serve`], which reads
//! commands from the standard input and answers on the standard output until the input ends. [`this_binary`] turns a
//! test into such a program, so a test needs no other program.

use std::{
    collections::HashMap,
    env, fmt,
    future::Future,
    io,
    io::{BufRead, BufReader, Write},
    pin::Pin,
    process::{Child, ChildStdin, Command, Stdio},
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use keylatch_lease::{AcquireError, Grant, Held, Leases, Owner, engine::Engine};

use crate::{Failure, observed::Observed};

/// The beginning of each answer, because a test's standard output has other lines too.
const MARK: &str = "lease: ";

/// The first answer, before any command.
const READY: &str = "ready";

/// Carries out the suite's commands from the standard input, until it ends.
///
/// `block_on` runs futures, like [`Fixture::block_on`](crate::Fixture::block_on). For an engine that needs no runtime,
/// see [`serve`].
///
/// # Errors
/// Fails if the input cannot be read, or if the first line of the output cannot be written.
///
/// # Examples
/// ```
/// use keylatch_lease::{Memory, StdClock};
/// use keylatch_lease_conformance::worker;
///
/// // In a program whose standard input comes from the suite. Here it ends at once.
/// worker::serve_on(Memory::new(StdClock::new()), async_io::block_on).unwrap();
/// ```
pub fn serve_on<E, B>(engine: E, block_on: B) -> io::Result<()>
where
    E: Engine + 'static,
    B: Fn(Pin<Box<dyn Future<Output = String> + Send>>) -> String + Send + Sync + 'static,
{
    let worker = Arc::new(Worker {
        leases: Arc::new(Leases::with_engine(Observed::new(engine, None))),
        grants: Mutex::default(),
        held: Mutex::default(),
    });
    let block_on = Arc::new(block_on);
    answer(READY)?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (worker, block_on) = (Arc::clone(&worker), Arc::clone(&block_on));
        // A slow operation does not delay others.
        thread::spawn(move || {
            let (id, command) = line.split_once(' ').unwrap_or((&line, ""));
            let command = command.to_owned();
            let text = block_on(Box::pin(async move { worker.run(&command).await }));
            let _ = answer(&format!("{id} {text}"));
        });
    }
    Ok(())
}

/// Carries out the suite's commands from the standard input, until it ends. This is for an engine that needs no
/// runtime; see [`serve_on`] for others.
///
/// # Errors
/// Fails if the input cannot be read, or if the first line of the output cannot be written.
///
/// # Examples
/// ```
/// use keylatch_lease::{Memory, StdClock};
/// use keylatch_lease_conformance::worker;
///
/// // In a program whose standard input comes from the suite. Here it ends at once.
/// worker::serve(Memory::new(StdClock::new())).unwrap();
/// ```
pub fn serve<E: Engine + 'static>(engine: E) -> io::Result<()> {
    serve_on(engine, async_io::block_on)
}

/// Returns a command that runs one test of this test binary, alone and without capturing its output. This is for a
/// worker that is one of the tests.
///
/// That test must find out from its environment whether it should be a worker, and do nothing if not.
///
/// # Errors
/// Fails if the path of this binary cannot be determined.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::worker;
///
/// let mut command = worker::this_binary("is_a_worker").unwrap();
/// command.env("WORKER", "127.0.0.1:5432");
///
/// // #[test]
/// fn is_a_worker() {
///     let Ok(_address) = std::env::var("WORKER") else { return };
///     // worker::serve(connect(address)).unwrap();
/// }
/// ```
pub fn this_binary(test: &str) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    Ok(command)
}

fn answer(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    // A test's own output may have left an unfinished line.
    writeln!(out, "\n{MARK}{text}")?;
    out.flush()
}

struct Worker<E: Engine + 'static> {
    leases: Arc<Leases<Observed<E>>>,
    grants: Mutex<HashMap<String, Grant>>,
    held: Mutex<HashMap<String, Arc<Held<'static, Observed<E>>>>>,
}

impl<E: Engine + 'static> Worker<E> {
    async fn run(&self, command: &str) -> String {
        self.obey(command).await.unwrap_or_else(|failure| format!("failed {failure}"))
    }

    async fn obey(&self, command: &str) -> Result<String, Failure> {
        let words: Vec<_> = command.split(' ').collect();
        let leases = &self.leases;
        let lock =
            |grants: &'_ Mutex<HashMap<String, Grant>>| grants.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let grant = |name: &str| lock(&self.grants).get(name).cloned().ok_or_else(|| Failure::new("no such grant"));
        let held = |name: &str| {
            let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.get(name).cloned().ok_or_else(|| Failure::new("there is no held lease of that name"))
        };
        let keep = |resource: &str, grant: Grant| {
            let said = format!("granted {} {}", grant.token(), grant.is_resumed());
            self.grants.lock().unwrap_or_else(PoisonError::into_inner).insert(resource.to_owned(), grant);
            said
        };
        Ok(match *words.as_slice() {
            ["acquire", resource, owner, ttl] => {
                keep(resource, leases.acquire(resource, &Owner::named(owner), millis(ttl)?).await?)
            }
            ["try", resource, owner, ttl] => {
                match leases.try_acquire(resource, &Owner::named(owner), millis(ttl)?).await {
                    Ok(grant) => keep(resource, grant),
                    Err(AcquireError::Busy { owner, .. }) => format!("busy {owner}"),
                    Err(error) => return Err(error.into()),
                }
            }
            ["visit", resource, owner, ttl] => {
                let grant = leases.acquire(resource, &Owner::named(owner), millis(ttl)?).await?;
                leases.release(&grant).await?;
                format!("visited {}", grant.token())
            }
            // Writes with the token of its lease, whether or not the lease is still valid.
            ["write", resource] => format!("writes {}", held(resource)?.token()),
            ["hold", resource, owner, ttl] => {
                let held = leases.hold_arc(resource, &Owner::named(owner), millis(ttl)?).await?;
                let said = format!("granted {} false", held.token());
                self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(resource.to_owned(), Arc::new(held));
                said
            }
            ["keep", resource] => format!("lost {:?}", held(resource)?.renewal().await),
            ["check", resource] => match held(resource)?.check() {
                Ok(token) => format!("yes {token}"),
                Err(lost) => format!("lost {lost:?}"),
            },
            ["renew", resource] => keep(resource, leases.renew(&grant(resource)?).await?),
            ["release", resource] => {
                leases.release(&grant(resource)?).await?;
                "released".to_owned()
            }
            ["time-of-day"] => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs().to_string(),
            ["requests"] => leases.engine().requests().to_string(),
            _ => return Err(Failure::new(format!("not a command: {command}"))),
        })
    }
}

fn millis(text: &str) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(u64::from_str(text)?))
}

/// The suite's side of a worker.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Answers that arrived before they were asked for.
    early: HashMap<u64, String>,
    asked: u64,
}

/// A handle for an answer that has not arrived yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

impl Process {
    /// Starts a worker, and waits until it is ready for commands.
    pub(crate) fn start(mut command: Command, patience: Duration) -> Result<Self, Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("a worker has no input or output"));
        };
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                let Some(text) = line.strip_prefix(MARK) else { continue };
                if send.send(text.to_owned()).is_err() {
                    return;
                }
            }
        });
        let mut process = Process { child, input: Some(input), lines, early: HashMap::new(), asked: 0 };
        match process.lines.recv_timeout(patience) {
            Ok(line) if line == READY => Ok(process),
            Ok(line) => Err(Failure::new(format!("a worker began with {line:?}"))),
            Err(_) => {
                process.kill();
                Err(Failure::new("a worker did not start"))
            }
        }
    }

    /// Sends a command without waiting for the answer.
    pub(crate) fn ask(&mut self, command: impl fmt::Display) -> Result<Ticket, Failure> {
        self.asked += 1;
        let Some(input) = &mut self.input else { return Err(Failure::new("the worker has ended")) };
        writeln!(input, "{} {command}", self.asked)?;
        input.flush()?;
        Ok(Ticket(self.asked))
    }

    /// Returns the answer, if it arrives in time.
    pub(crate) fn poll(&mut self, ticket: Ticket, patience: Duration) -> Result<Option<String>, Failure> {
        let end = Instant::now() + patience;
        loop {
            if let Some(text) = self.early.remove(&ticket.0) {
                return Ok(Some(text));
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let (id, text) = line.split_once(' ').unwrap_or((&line, ""));
                    self.early.insert(u64::from_str(id)?, text.to_owned());
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("the worker has ended")),
            }
        }
    }

    pub(crate) fn answer(&mut self, ticket: Ticket, patience: Duration) -> Result<String, Failure> {
        self.poll(ticket, patience)?.ok_or_else(|| Failure::new("the worker did not answer in time"))
    }

    pub(crate) fn tell(&mut self, command: impl fmt::Display, patience: Duration) -> Result<String, Failure> {
        let ticket = self.ask(command)?;
        self.answer(ticket, patience)
    }

    pub(crate) fn kill(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops the process, as `SIGSTOP` does.
    pub(crate) fn stop(&self) -> Result<(), Failure> {
        self.signal(false)
    }

    /// Lets the process continue, as `SIGCONT` does.
    pub(crate) fn go_on(&self) -> Result<(), Failure> {
        self.signal(true)
    }

    #[cfg(unix)]
    fn signal(&self, goes_on: bool) -> Result<(), Failure> {
        use rustix::process::{Pid, Signal, kill_process};

        let signal = if goes_on { Signal::CONT } else { Signal::STOP };
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    #[cfg(not(unix))]
    fn signal(&self, _: bool) -> Result<(), Failure> {
        Err(Failure::does_not_apply("processes cannot be stopped here"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.go_on();
        self.kill();
    }
}
