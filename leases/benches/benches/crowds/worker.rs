//! The worker processes, and the commands that the bench sends them.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use keylatch_lease::{Leases, Owner};
use tokio::runtime::Builder;

use crate::case::Error;
use crate::counted::{Counted, Counts};
use crate::crowd::{Crowd, Manner, Visit};
use crate::engines::Subject;

const ORDER: &str = "KEYLATCH_CROWDS_WORKER";

/// The task of this process, if it is a worker and not the bench itself.
pub struct Order {
    pub engine: String,
    pub namespace: String,
    pub address: String,
}

pub fn order() -> Option<Order> {
    let text = env::var(ORDER).ok()?;
    let [engine, namespace, address] = text.splitn(3, '\t').collect::<Vec<_>>().try_into().ok()?;
    Some(Order { engine: engine.to_owned(), namespace: namespace.to_owned(), address: address.to_owned() })
}

/// Carries out the commands on the standard input until it ends. A command is one line, and so is its answer.
pub fn serve<S: Subject>(address: &str, namespace: &str) -> Result<(), Error> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let engine = runtime.block_on(S::connect(address, namespace))?;
    let leases = Arc::new(Leases::with_engine(Counted::new(engine)));
    let mut crowd = None;
    let mut held = vec![];
    println!("ready");
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<_> = line.split(' ').collect();
        let millis = |word: &str| word.parse().map(Duration::from_millis);
        let answer = match *words.as_slice() {
            ["crowd", count, hold, pause] => {
                let manner = Manner { hold: millis(hold)?, pause: millis(pause).ok() };
                let _context = runtime.enter();
                crowd = Some(Crowd::gather(&leases, count.parse()?, manner));
                "ok".to_owned()
            }
            ["progress"] => {
                let (asking, visits) = crowd.as_ref().map_or(Ok((0, 0)), Crowd::progress)?;
                let Counts { acquires, all, .. } = leases.engine().counts();
                format!("{asking} {visits} {acquires} {all}")
            }
            ["end"] => {
                let visits = crowd.as_mut().map_or_else(Vec::new, |crowd: &mut Crowd| {
                    crowd.end();
                    crowd.visits()
                });
                let time = |time: Duration| time.as_nanos();
                let told = visits.iter().map(|visit| {
                    let Visit { token, asked, granted, released, .. } = *visit;
                    format!("{token}:{}:{}:{}", time(asked), time(granted), time(released))
                });
                told.collect::<Vec<_>>().join(" ")
            }
            ["hold", resource, ttl] => {
                let owner = Owner::incarnation("holder");
                let one = runtime.block_on(leases.hold_arc(resource, &owner, millis(ttl)?))?;
                runtime.spawn(one.renewal());
                held.push(one);
                "ok".to_owned()
            }
            _ => return Err(format!("not a command: {line}").into()),
        };
        println!("{answer}");
    }
    runtime.shutdown_background();
    Ok(())
}

/// A worker process, as the bench sees it. The process is killed when this is dropped.
pub struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The progress of a process's crowd.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    pub asking: usize,
    pub visits: usize,
    pub counts: Counts,
}

impl Worker {
    /// Starts this many workers, which connect at the same time.
    pub fn start_all<S: Subject>(count: usize, address: &str, namespace: &str) -> Result<Vec<Self>, Error> {
        let mut workers = vec![];
        for _ in 0..count {
            let mut command = Command::new(env::current_exe()?);
            command.env(ORDER, format!("{}\t{namespace}\t{address}", S::NAME));
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let (input, output) = (child.stdin.take(), child.stdout.take());
            let (Some(input), Some(output)) = (input, output) else {
                return Err("a worker process has no pipes".into());
            };
            workers.push(Worker { child, input, output: BufReader::new(output) });
        }
        for worker in &mut workers {
            if worker.answer()? != "ready" {
                return Err("a worker process did not connect".into());
            }
        }
        Ok(workers)
    }

    /// Sends a command, and waits for the answer.
    pub fn tell(&mut self, command: &str) -> Result<String, Error> {
        writeln!(self.input, "{command}")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("a worker process has ended unexpectedly".into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    pub fn progress(&mut self) -> Result<Progress, Error> {
        let line = self.tell("progress")?;
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [asking, visits, acquires, all] = numbers[..] else {
            return Err("a worker sent an invalid answer to `progress`".into());
        };
        let counts = Counts { acquires, all, ..Counts::default() };
        Ok(Progress { asking: asking as usize, visits: visits as usize, counts })
    }

    /// Ends the crowd of the process, and returns its visits.
    pub fn end(&mut self, process: usize) -> Result<Vec<Visit>, Error> {
        let line = self.tell("end")?;
        let visits = line.split_whitespace().map(|visit| {
            let numbers: Vec<u64> = visit.split(':').map(str::parse).collect::<Result<_, _>>()?;
            let [token, times @ ..] = &numbers[..] else { return Err("a worker sent an invalid visit".into()) };
            let [asked, granted, released] = times else { return Err("a worker sent an invalid visit".into()) };
            let [asked, granted, released] = [asked, granted, released].map(|time| Duration::from_nanos(*time));
            Ok(Visit { token: *token, process, asked, granted, released })
        });
        visits.collect()
    }

    /// Kills the process, as `kill -9` does.
    pub fn kill(&mut self) -> Result<(), Error> {
        Ok(self.child.kill()?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
