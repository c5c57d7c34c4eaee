//! The suite for engines, on a private server that is killed, paused and cut off.

mod common;

use std::{env, net::SocketAddr, process::Command, sync::Arc, time::Duration};

use keylatch_lease_conformance::{ByHand, Caps, Failure, Fixture, Heard, Proxy, Server, worker};
use keylatch_lease_postgres::{NoTls, Postgres, SCHEMA};
use tokio::runtime::Runtime;
use tokio_postgres::Config;

/// What a worker finds in its environment.
const NAMESPACE: &str = "LEASE_WORKER";
const ADDRESS: &str = "LEASE_SERVER";

/// Short, but longer than what [the case](keylatch_lease_conformance#cases) of it needs.
const QUARANTINE: Duration = Duration::from_secs(5);

keylatch_lease_conformance::conformance!(OnPostgres::start());

/// In another process this is one; here it is nothing.
#[test]
fn is_a_worker() {
    let (Ok(namespace), Ok(address)) = (env::var(NAMESPACE), env::var(ADDRESS)) else { return };
    let runtime = runtime();
    let engine = {
        let _context = runtime.enter();
        connected(&namespace, address.parse().expect("an address"))
    };
    worker::serve_on(engine, move |future| runtime.block_on(future)).expect("the suite is there");
}

struct OnPostgres {
    server: Arc<common::Server>,
    runtime: Runtime,
}

impl OnPostgres {
    fn start() -> Self {
        OnPostgres { server: common::shared(), runtime: runtime() }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The namespace is what the server calls its connection.
fn connected(namespace: &str, address: SocketAddr) -> Postgres {
    let mut config = Config::new();
    config.host(address.ip().to_string()).port(address.port()).user("postgres").dbname("postgres");
    config.application_name(namespace);
    // Who waits is told, or the case fails: it does not look again by itself in time.
    Postgres::in_namespace(namespace)
        .timeout(Duration::from_secs(3))
        .fallback(Duration::from_secs(60))
        .quarantine(QUARANTINE)
        .connect(config, NoTls)
}

impl Fixture for OnPostgres {
    type Engine = Postgres;

    fn name(&self) -> String {
        "Postgres".into()
    }

    fn caps(&self) -> Caps {
        let mut caps = Caps::new(Duration::from_secs(2));
        caps.processes = 32;
        caps.quarantine = QUARANTINE;
        caps
    }

    async fn connect(&self, namespace: &str, through: Option<&Proxy>) -> Result<Postgres, Failure> {
        let engine = connected(namespace, through.map_or(self.server.address(), Proxy::address));
        engine.ready().await?;
        Ok(engine)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.server.address())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    fn by_hand(&self) -> Vec<ByHand> {
        vec![ByHand { what: "rows", heard: Heard::AtOnce, notice: Duration::from_millis(500) }]
    }

    async fn take_away(&self, namespace: &str, _: &str) -> Result<(), Failure> {
        let client = self.server.client().await;
        client.execute("DELETE FROM keylatch_lease WHERE ns = $1", &[&namespace]).await?;
        Ok(())
    }

    fn connections(&self, namespace: &str) -> Option<u64> {
        let (config, namespace) = (self.server.config(), namespace.to_owned());
        // Not on the runtime that may run the case.
        let count = std::thread::spawn(move || {
            runtime().block_on(async {
                let (client, connection) = config.connect(NoTls).await.ok()?;
                tokio::spawn(connection);
                let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
                let row = client.query_one(query, &[&namespace]).await.ok()?;
                u64::try_from(row.get::<_, i64>(0)).ok()
            })
        });
        count.join().ok()?
    }

    fn worker(&self, namespace: &str, address: Option<SocketAddr>) -> Option<Command> {
        let mut command = worker::this_binary("is_a_worker").ok()?;
        command.env(NAMESPACE, namespace).env(ADDRESS, address?.to_string());
        Some(command)
    }
}

impl Server for OnPostgres {
    fn kill(&self) -> Result<(), Failure> {
        self.server.run("kill");
        Ok(())
    }

    fn restart(&self) -> Result<(), Failure> {
        self.server.run("start");
        Ok(())
    }

    fn forget(&self) -> Result<(), Failure> {
        self.server.run("forget");
        self.server.execute(SCHEMA);
        Ok(())
    }

    fn empty(&self) -> Result<(), Failure> {
        self.server.execute("TRUNCATE keylatch_lease");
        Ok(())
    }

    fn back_up(&self) -> Result<(), Failure> {
        self.server.run("copy");
        Ok(())
    }

    fn put_back(&self) -> Result<(), Failure> {
        self.server.run("restore");
        Ok(())
    }

    fn pause(&self) -> Result<(), Failure> {
        self.server.run("pause");
        Ok(())
    }

    fn resume(&self) -> Result<(), Failure> {
        self.server.run("resume");
        Ok(())
    }
}
