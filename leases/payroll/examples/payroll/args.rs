//! The command line.

use std::{fmt::Display, str::FromStr, time::Duration};

pub(crate) const HELP: &str = "\
Worker processes pay each account exactly once, although worker A is killed while it pays, and worker B is stopped while it pays.

Usage: payroll [OPTIONS]

  --engine NAME  the place of the leases (default: memory)
                   memory    this process, which serves them to the workers over TCP
                   sqlite    a file that all workers open
                   etcd      a private server, which is started for the run (needs the feature etcd)
                   nats      likewise (needs the feature nats)
                   object    a bucket of a private S3 (needs the feature object)
                   postgres  likewise (needs the feature postgres)
                   redis     likewise (needs the feature redis)
  --lock NAME    the lock that keeps workers from paying the same account at the same time (default: lease)
                   lease     leases of keylatch-lease
                   none      no lock; accounts are then paid twice
                   advisory  pg_advisory_lock of Postgres
  --no-fence     the ledger admits every write; an account is then paid twice
  --workers N    the number of worker processes, 3 to 26 (default: 4)
  --accounts N   the number of accounts, 10 to 10000 (default: 300)
  --ttl MS       the time after which a lease expires unless it is renewed, at least 300 ms (default: 2000)
  --slack MS     the time after that within which an account must be taken over (default: 500, or 2000 with etcd, which has
                 whole seconds, and with object, where waiters poll)
  --help         print this text

Exit code: 0; 1 if a number is not as it must be, as with --no-fence, --lock none and --lock advisory; 2 if an argument is
invalid or the run failed.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Etcd,
    Memory,
    Nats,
    Object,
    Postgres,
    Redis,
    Sqlite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    Lease,
    None,
    Advisory,
}

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) engine: Engine,
    pub(crate) lock: Locking,
    pub(crate) is_fenced: bool,
    pub(crate) workers: usize,
    pub(crate) accounts: usize,
    pub(crate) ttl: Duration,
    pub(crate) slack: Duration,
    /// The arguments that the program passes to itself when it starts a worker.
    pub(crate) worker: Option<Worker>,
}

#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) name: String,
    /// The address of the ledger.
    pub(crate) ledger: String,
    /// The address of the engine.
    pub(crate) server: String,
}

impl Args {
    /// Parses the command line; `None` if it asks for help.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut parsed = Args {
            engine: Engine::Memory,
            lock: Locking::Lease,
            is_fenced: true,
            workers: 4,
            accounts: 300,
            ttl: Duration::from_secs(2),
            slack: Duration::ZERO,
            worker: None,
        };
        let mut slack = None;
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
            match &*flag {
                "--engine" => {
                    parsed.engine = match &*value()? {
                        "etcd" => Engine::Etcd,
                        "memory" => Engine::Memory,
                        "nats" => Engine::Nats,
                        "object" => Engine::Object,
                        "postgres" => Engine::Postgres,
                        "redis" => Engine::Redis,
                        "sqlite" => Engine::Sqlite,
                        other => {
                            return Err(format!(
                                "--engine {other}: must be etcd, memory, nats, object, postgres, redis or sqlite"
                            ));
                        }
                    }
                }
                "--lock" => {
                    parsed.lock = match &*value()? {
                        "lease" => Locking::Lease,
                        "none" => Locking::None,
                        "advisory" => Locking::Advisory,
                        other => return Err(format!("--lock {other}: must be lease, none or advisory")),
                    }
                }
                "--no-fence" => parsed.is_fenced = false,
                "--workers" => parsed.workers = number(&flag, &value()?, 3, 26)?,
                "--accounts" => parsed.accounts = number(&flag, &value()?, 10, 10_000)?,
                "--ttl" => parsed.ttl = Duration::from_millis(number(&flag, &value()?, 300, 60_000)?),
                "--slack" => slack = Some(Duration::from_millis(number(&flag, &value()?, 0, 60_000)?)),
                "--help" => return Ok(None),
                "--worker" => {
                    parsed.worker = Some(Worker { name: value()?, ledger: value()?, server: value()? });
                }
                _ => return Err(format!("{flag}: no such option")),
            }
        }
        if parsed.lock == Locking::Advisory && parsed.engine != Engine::Postgres {
            return Err("--lock advisory needs --engine postgres".to_owned());
        }
        let (name, is_built_in) = match parsed.engine {
            Engine::Etcd => ("etcd", cfg!(feature = "etcd")),
            Engine::Memory => ("memory", true),
            Engine::Nats => ("nats", cfg!(feature = "nats")),
            Engine::Object => ("object", cfg!(feature = "object")),
            Engine::Postgres => ("postgres", cfg!(feature = "postgres")),
            Engine::Redis => ("redis", cfg!(feature = "redis")),
            Engine::Sqlite => ("sqlite", true),
        };
        if !is_built_in {
            let command = format!("cargo run --release --example payroll --features {name} -- --engine {name}");
            return Err(format!("--engine {name} is not built in: {command}"));
        }
        let usual = if matches!(parsed.engine, Engine::Etcd | Engine::Object) { 2000 } else { 500 };
        parsed.slack = slack.unwrap_or(Duration::from_millis(usual));
        Ok(Some(parsed))
    }

    /// Returns the arguments that all workers share. The arguments of the single worker follow them.
    pub(crate) fn for_workers(&self) -> Vec<String> {
        let engine = match self.engine {
            Engine::Etcd => "etcd",
            Engine::Memory => "memory",
            Engine::Nats => "nats",
            Engine::Object => "object",
            Engine::Postgres => "postgres",
            Engine::Redis => "redis",
            Engine::Sqlite => "sqlite",
        };
        let lock = match self.lock {
            Locking::Lease => "lease",
            Locking::None => "none",
            Locking::Advisory => "advisory",
        };
        let ttl = self.ttl.as_millis().to_string();
        ["--engine", engine, "--lock", lock, "--ttl", &ttl, "--worker"].map(str::to_owned).to_vec()
    }
}

fn number<T: FromStr + PartialOrd + Display>(flag: &str, text: &str, least: T, most: T) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number >= least && *number <= most);
    number.ok_or_else(|| format!("{flag} {text}: must be a number from {least} to {most}"))
}
