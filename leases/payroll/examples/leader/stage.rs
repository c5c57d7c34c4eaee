//! The first process: it starts the candidates, interferes with the leader, and keeps the data behind the fence.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    process::{self, Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use keylatch_lease::{Fence, Resource, Token};
use rustix::process::{Pid, Signal, kill_process};

use crate::Error;

/// The first argument of a candidate.
pub(crate) const CANDIDATE: &str = "--candidate";

/// The time to live of the leader's lease.
pub(crate) const TTL: Duration = Duration::from_secs(1);

/// A time limit that is reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of writes before the next event.
const WRITES: usize = 20;

const NAMES: [&str; 3] = ["ann", "bob", "cleo"];

/// A candidate's report.
enum Report {
    Leads(Token),
    Writes(Token),
    Lost(String),
}

impl Report {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let what = words.next()?;
        let token = Token::new(words.next()?.parse().ok()?)?;
        match what {
            "leads" => Some(Report::Leads(token)),
            "writes" => Some(Report::Writes(token)),
            "lost" => Some(Report::Lost(words.next()?.to_owned())),
            _ => None,
        }
    }
}

struct Stage {
    addresses: Vec<String>,
    candidates: Vec<Child>,
    sender: Sender<(usize, Report)>,
    reports: Receiver<(usize, Report)>,
    fence: Fence,
    /// The candidate that leads, and its token.
    leader: Option<(usize, Token)>,
    admitted: usize,
    refused: usize,
}

impl Stage {
    fn new(addresses: Vec<String>) -> Result<Self, Error> {
        let (sender, reports) = channel();
        let mut stage = Stage {
            addresses,
            candidates: Vec::new(),
            sender,
            reports,
            fence: Fence::new(),
            leader: None,
            admitted: 0,
            refused: 0,
        };
        for at in 0..NAMES.len() {
            let child = stage.start(at)?;
            stage.candidates.push(child);
        }
        stage.until("somebody leads", |stage, _, report| {
            matches!(report, Report::Writes(token) if stage.leader.is_some_and(|(_, leads)| leads == *token))
        })?;
        Ok(stage)
    }

    fn start(&self, at: usize) -> Result<Child, Error> {
        let mut command = Command::new(env::current_exe()?);
        command.args([CANDIDATE, NAMES[at], &self.addresses[at]]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let sender = self.sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if Report::parse(&line).is_none_or(|report| sender.send((at, report)).is_err()) {
                    return;
                }
            }
        });
        Ok(child)
    }

    /// Takes reports until one fits.
    fn until(&mut self, what: &str, fits: impl Fn(&Self, usize, &Report) -> bool) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let (at, report) = self.reports.recv_timeout(left).map_err(|_| format!("not within a minute: {what}"))?;
            match &report {
                Report::Leads(token) => self.leader = Some((at, *token)),
                Report::Writes(token) => match self.fence.admit(&Resource::from("data"), *token) {
                    Ok(()) => self.admitted += 1,
                    Err(_) => self.refused += 1,
                },
                Report::Lost(how) => println!("  {} notices: {how}", NAMES[at]),
            }
            if fits(self, at, &report) {
                return Ok(());
            }
        }
    }

    fn leader(&self) -> (usize, Token) {
        self.leader.expect("somebody leads since the beginning")
    }

    fn signal(&self, at: usize, signal: Signal) -> Result<(), Error> {
        Ok(kill_process(Pid::from_child(&self.candidates[at]), signal)?)
    }

    /// Interferes with the leader, waits until another one leads and has written, and then undoes the interference.
    fn act(
        &mut self,
        what: &str,
        act: impl FnOnce(&mut Self, usize) -> Result<(), Error>,
        undo: impl FnOnce(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let ((at, old), refused, start) = (self.leader(), self.refused, Instant::now());
        println!("{} leads with the token {old}, and {what}", NAMES[at]);
        act(self, at)?;
        self.until("another one leads", |_, now, report| matches!(report, Report::Leads(_)) && now != at)?;
        let (next, token) = self.leader();
        if token <= old {
            return Err("the token is not greater".into());
        }
        println!("  {} leads with the token {token}, after {:.2?}", NAMES[next], start.elapsed());
        let before = self.admitted;
        self.until("it writes", |stage, _, report| {
            matches!(report, Report::Writes(written) if *written == token) && stage.admitted >= before + WRITES
        })?;
        undo(self, at)?;
        if self.refused > refused {
            println!("  late writes that the fence refused: {}", self.refused - refused);
        }
        Ok(())
    }

    fn play(&mut self, part: Option<&dyn Fn(usize, bool)>) -> Result<(), Error> {
        let resign = |stage: &mut Self, at: usize| {
            let input = stage.candidates[at].stdin.as_mut().ok_or("no input")?;
            Ok(writeln!(input, "resign").and_then(|()| input.flush())?)
        };
        self.act("resigns", resign, |_, _| Ok(()))?;
        let kill = |stage: &mut Self, at: usize| {
            stage.signal(at, Signal::KILL)?;
            stage.candidates[at].wait()?;
            Ok(())
        };
        let start = |stage: &mut Self, at: usize| {
            stage.candidates[at] = stage.start(at)?;
            Ok(())
        };
        self.act("is killed", kill, start)?;
        let lost = |stage: &mut Self, at: usize| {
            stage.until("the old leader notices", |_, now, report| now == at && matches!(report, Report::Lost(_)))
        };
        self.act(
            "is stopped",
            |stage, at| stage.signal(at, Signal::STOP),
            |stage, at| {
                stage.signal(at, Signal::CONT)?;
                lost(stage, at)
            },
        )?;
        if let Some(part) = part {
            let cut = |stage: &mut Self, at: usize| {
                part(at, true);
                lost(stage, at)
            };
            let mend = |_: &mut Self, at: usize| {
                part(at, false);
                Ok(())
            };
            self.act("is parted from the server", cut, mend)?;
        }
        println!("writes that the fence admitted: {}, and refused: {}", self.admitted, self.refused);
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in &mut self.candidates {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn on_sqlite() -> Result<(), Error> {
    let folder = env::temp_dir().join(format!("keylatch-leader-{}", process::id()));
    fs::create_dir_all(&folder)?;
    let address = format!("sqlite:{}", folder.join("leases.db").display());
    let played = Stage::new(vec![address; NAMES.len()]).and_then(|mut stage| stage.play(None));
    fs::remove_dir_all(&folder)?;
    played
}

#[cfg(feature = "redis")]
pub(crate) fn on_redis() -> Result<(), Error> {
    use keylatch_lease_conformance::{Proxy, servers::PrivateServer};
    use keylatch_lease_redis::Redis;

    let server = PrivateServer::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run"), "redis").start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let context = runtime.enter();
    let engine = Redis::in_namespace("leader").connect(redis::Client::open(format!("redis://{}", server.address()))?);
    runtime.block_on(engine.init())?; // the server is new
    drop(context);
    let proxies: Result<Vec<_>, _> = NAMES.iter().map(|_| Proxy::new(server.address())).collect();
    let proxies = proxies?;
    let mut stage = Stage::new(proxies.iter().map(|proxy| format!("redis://{}", proxy.address())).collect())?;
    let part = |at: usize, is_parted: bool| if is_parted { proxies[at].blackhole() } else { proxies[at].pass() };
    stage.play(Some(&part))
}
