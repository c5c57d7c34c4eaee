//! Postgres: a private server, the engine, and advisory locks.

use std::{
    env,
    net::TcpListener,
    path::PathBuf,
    process::{self, Child, Command, Stdio},
};

use keylatch_lease::Token;
use keylatch_lease_postgres::{NoTls, Postgres};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config};

use crate::lock::{Error, Lock, Taken};

/// In the checkout that this was built in.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// The client needs one. It lives as long as the process.
fn runtime() -> Result<&'static Runtime, Error> {
    Ok(Box::leak(Box::new(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)))
}

fn connect(address: &str) -> Result<(&'static Runtime, Client), Error> {
    let (runtime, config) = (runtime()?, address.parse::<Config>()?);
    let (client, connection) = runtime.block_on(config.connect(NoTls))?;
    runtime.spawn(connection);
    Ok((runtime, client))
}

pub(crate) fn engine(address: &str) -> Result<Postgres, Error> {
    let runtime = runtime()?;
    let _context = runtime.enter();
    let engine = Postgres::in_namespace("payroll").connect(address.parse()?, NoTls);
    runtime.block_on(engine.ready())?;
    Ok(engine)
}

// --- The server ------------------------------------------------------------------------------------------------------

/// A server that is stopped, and removed, when it is dropped; and also if this process dies before.
pub(crate) struct Server {
    address: String,
    version: String,
    _watchdog: Watchdog,
}

impl Server {
    pub(crate) fn start() -> Result<Self, Error> {
        let folder = env::temp_dir().join(format!("keylatch-payroll-{}", process::id()));
        // Somebody else may take the port before the server does: then it does not start, and says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let watchdog = Watchdog::start(folder)?;
        // It says itself what is missing.
        let output = Command::new(SCRIPT)
            .args(["start", "postgres"])
            .arg(&watchdog.folder)
            .arg(port)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("{SCRIPT}: {error}"))?;
        if !output.status.success() {
            return Err(format!("there is no server: leases/servers/run has failed: {}", output.status).into());
        }
        let address = String::from_utf8(output.stdout)?.trim().to_owned();
        let (runtime, client) = connect(&address)?;
        runtime.block_on(Postgres::create_table(&client))?;
        let version: String = runtime.block_on(client.query_one("SHOW server_version", &[]))?.get(0);
        let version = version.split(' ').next().unwrap_or_default().to_owned();
        Ok(Server { address, version, _watchdog: watchdog })
    }

    pub(crate) fn name(&self) -> String {
        format!("postgres {}", self.version)
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    /// How many advisory locks there are.
    pub(crate) fn count_advisory(&self) -> Result<usize, Error> {
        let (runtime, client) = connect(&self.address)?;
        let query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
        let count: i64 = runtime.block_on(client.query_one(query, &[]))?.get(0);
        Ok(usize::try_from(count)?)
    }
}

/// A shell that reads from a pipe of this process until there is nobody to write to it, whatever has become of the process; then it
/// stops the server, and removes the folder.
struct Watchdog {
    folder: PathBuf,
    shell: Child,
}

impl Watchdog {
    fn start(folder: PathBuf) -> Result<Self, Error> {
        let script = "trap '' HUP INT TERM; cat >/dev/null; \"$0\" stop postgres \"$1\"; rm -rf \"$1\"";
        let shell = Command::new("bash")
            .args(["-c", script, SCRIPT])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("bash, which is to stop the server: {error}"))?;
        Ok(Watchdog { folder, shell })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // There is nobody left to tell if it fails.
        _ = self.shell.wait();
    }
}

// --- Advisory locks --------------------------------------------------------------------------------------------------

/// They end with the session, so each worker has one of its own. There are no tokens.
pub(crate) struct Advisory {
    runtime: &'static Runtime,
    client: &'static Client,
}

impl Advisory {
    pub(crate) fn connect(address: &str) -> Result<Self, Error> {
        let (runtime, client) = connect(address)?;
        Ok(Advisory { runtime, client: Box::leak(Box::new(client)) })
    }
}

impl Lock for Advisory {
    fn take(&self, account: usize, waits: bool) -> Result<Option<Box<dyn Taken>>, Error> {
        let Advisory { runtime, client } = *self;
        let key = i64::try_from(account)?;
        if waits {
            runtime.block_on(client.query("SELECT pg_advisory_lock($1)", &[&key]))?;
        } else {
            let row = runtime.block_on(client.query_one("SELECT pg_try_advisory_lock($1)", &[&key]))?;
            if !row.get::<_, bool>(0) {
                return Ok(None);
            }
        }
        Ok(Some(Box::new(Locked { runtime, client, key })))
    }
}

struct Locked {
    runtime: &'static Runtime,
    client: &'static Client,
    key: i64,
}

impl Taken for Locked {
    fn token(&self) -> Option<Token> {
        None
    }

    /// The server has ended the session, or has not: there is no asking what it would say now.
    fn check(&self) -> Result<(), String> {
        if self.client.is_closed() { Err("closed".to_owned()) } else { Ok(()) }
    }

    fn release(self: Box<Self>) -> Result<(), Error> {
        self.runtime.block_on(self.client.query("SELECT pg_advisory_unlock($1)", &[&self.key]))?;
        Ok(())
    }
}
