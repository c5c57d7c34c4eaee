//! Postgres: a private server, the engine, and advisory locks.

use keylatch_lease::Token;
use keylatch_lease_postgres::{NoTls, Postgres};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config};

use crate::{
    lock::{Error, Lock, Taken},
    private::Private,
};

/// Creates a runtime for the client. It lives as long as the process.
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

pub(crate) struct Server {
    private: Private,
    version: String,
}

impl Server {
    pub(crate) fn start() -> Result<Self, Error> {
        let private = Private::start("postgres")?;
        let (runtime, client) = connect(&private.address)?;
        runtime.block_on(Postgres::create_table(&client))?;
        // The server is new, so no lease can exist.
        runtime.block_on(engine(&private.address)?.init())?;
        let version: String = runtime.block_on(client.query_one("SHOW server_version", &[]))?.get(0);
        let version = version.split(' ').next().unwrap_or_default().to_owned();
        Ok(Server { private, version })
    }

    pub(crate) fn name(&self) -> String {
        format!("postgres {}", self.version)
    }

    pub(crate) fn address(&self) -> String {
        self.private.address.clone()
    }

    /// Counts the advisory locks.
    pub(crate) fn count_advisory(&self) -> Result<usize, Error> {
        let (runtime, client) = connect(&self.private.address)?;
        let query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
        let count: i64 = runtime.block_on(client.query_one(query, &[]))?.get(0);
        Ok(usize::try_from(count)?)
    }
}

// --- Advisory locks --------------------------------------------------------------------------------------------------

/// Advisory locks. They end with the session, so each worker has its own session. They have no tokens.
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

    /// Checks that the session is open. There is no other way to check the lock.
    fn check(&self) -> Result<(), String> {
        if self.client.is_closed() { Err("closed".to_owned()) } else { Ok(()) }
    }

    fn release(self: Box<Self>) -> Result<(), Error> {
        self.runtime.block_on(self.client.query("SELECT pg_advisory_unlock($1)", &[&self.key]))?;
        Ok(())
    }
}
