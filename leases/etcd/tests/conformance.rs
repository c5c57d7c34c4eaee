//! The conformance suite, on a private server that is killed, paused and cut off.

mod common;

use std::{
    collections::HashSet,
    env,
    net::SocketAddr,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use common::api::LeaseRevoke;
use keylatch_lease_conformance::{ByHand, Caps, Failure, Fixture, Heard, Proxy, Server, worker};
use keylatch_lease_etcd::{Etcd, client::Keys};
use tokio::runtime::Runtime;

/// The environment variables of a worker.
const NAMESPACE: &str = "LEASE_WORKER";
const ADDRESS: &str = "LEASE_SERVER";

/// Short, but longer than [its case](keylatch_lease_conformance#cases) needs.
const QUARANTINE: Duration = Duration::from_secs(5);

keylatch_lease_conformance::conformance!(OnEtcd::start());

/// Serves the suite if this binary was started as a worker. As a test it does nothing.
#[test]
fn is_a_worker() {
    let (Ok(namespace), Ok(address)) = (env::var(NAMESPACE), env::var(ADDRESS)) else { return };
    let runtime = runtime();
    let engine = {
        let _context = runtime.enter();
        connected(&namespace, address.parse().expect("an address"))
    };
    worker::serve_on(engine, move |future| runtime.block_on(future)).expect("the suite is connected");
}

struct OnEtcd {
    server: Arc<common::Server>,
    runtime: Runtime,
    /// The namespaces that were opened and may have leases. They must not be opened again without a quarantine.
    known: Mutex<HashSet<String>>,
}

impl OnEtcd {
    fn start() -> Self {
        OnEtcd { server: common::shared(), runtime: runtime(), known: Mutex::default() }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn connected(namespace: &str, address: SocketAddr) -> Etcd {
    let endpoint = format!("http://{address}");
    // The fallback is so long that a waiter which is not notified fails its case.
    Etcd::in_namespace(namespace)
        .timeout(Duration::from_secs(3))
        .fallback(Duration::from_secs(60))
        .quarantine(QUARANTINE)
        .connect([endpoint], None)
}

impl Fixture for OnEtcd {
    type Engine = Etcd;

    fn name(&self) -> String {
        "etcd".into()
    }

    fn caps(&self) -> Caps {
        let mut caps = Caps::new(Duration::from_secs(2));
        // etcd counts whole seconds, and looks for expired leases twice a second.
        caps.delta = Duration::from_secs(2);
        caps.processes = 32;
        caps.quarantine = QUARANTINE;
        caps
    }

    async fn connect(&self, namespace: &str, through: Option<&Proxy>) -> Result<Etcd, Failure> {
        let engine = connected(namespace, through.map_or(self.server.address(), Proxy::address));
        engine.ready().await?;
        let is_new = common::lock(&self.known).insert(namespace.to_owned());
        if is_new {
            engine.init().await?;
        }
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

    /// Deleting all keys comes last, because it deletes the namespace's mark too.
    fn by_hand(&self) -> Vec<ByHand> {
        let way = |what| ByHand { what, heard: Heard::AtOnce, notice: Duration::from_millis(500) };
        vec![way("etcd leases"), way("keys")]
    }

    async fn take_away(&self, namespace: &str, what: &str) -> Result<(), Failure> {
        let client = self.server.client().await;
        let all = Keys::prefix(format!("keylatch-lease/{namespace}/"));
        if what == "keys" {
            client.delete(all).await?;
            return Ok(());
        }
        let found = client.get(all).await?;
        for id in found.iter().map(|kv| kv.lease()).filter(|id| *id != 0) {
            // Two keys are attached to each etcd lease, so the second revocation fails.
            let _ = client.call(LeaseRevoke { id }).await;
        }
        Ok(())
    }

    fn worker(&self, namespace: &str, address: Option<SocketAddr>) -> Option<Command> {
        let mut command = worker::this_binary("is_a_worker").ok()?;
        command.env(NAMESPACE, namespace).env(ADDRESS, address?.to_string());
        Some(command)
    }
}

impl Server for OnEtcd {
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
        Ok(())
    }

    fn empty(&self) -> Result<(), Failure> {
        self.server.empty();
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
