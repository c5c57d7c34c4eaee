//! The engine in memory behind a server: with connections that break, a server that dies, and other processes.

use std::{io, net::SocketAddr, process::Command, time::Duration};

use keylatch_lease_conformance::{
    Caps, Failure, Fixture, Proxy, Server,
    served::{Remote, Served},
    worker,
};

/// The time for which the server grants nothing after it has forgotten its leases.
const QUARANTINE: Duration = Duration::from_millis(1500);

pub(crate) struct OnServed {
    server: Served,
}

impl OnServed {
    pub(crate) fn start() -> io::Result<Self> {
        Ok(OnServed { server: Served::start(QUARANTINE)? })
    }
}

impl Fixture for OnServed {
    type Engine = Remote;

    fn name(&self) -> String {
        "served".to_owned()
    }

    fn caps(&self) -> Caps {
        let mut caps = Caps::new(Duration::from_millis(600));
        caps.quarantine = QUARANTINE;
        caps.processes = 32;
        caps
    }

    async fn connect(&self, namespace: &str, through: Option<&Proxy>) -> Result<Remote, Failure> {
        Ok(Remote::connect(namespace, through.map_or(self.server.address(), Proxy::address))?)
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.server.address())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.server)
    }

    fn connections(&self, namespace: &str) -> Option<u64> {
        Some(self.server.connections(namespace) as u64)
    }

    fn worker(&self, namespace: &str, address: Option<SocketAddr>) -> Option<Command> {
        let mut command = worker::this_binary("is_a_worker").ok()?;
        command.env("LEASE_WORKER", namespace).env("LEASE_SERVER", address?.to_string());
        Some(command)
    }
}

/// Serves the suite if this binary was started as a worker.
pub(crate) fn be_a_worker() {
    let (Ok(namespace), Ok(address)) = (std::env::var("LEASE_WORKER"), std::env::var("LEASE_SERVER")) else { return };
    let address = address.parse().expect("an address");
    let remote = Remote::connect(&namespace, address).expect("the server runs");
    worker::serve(remote).expect("the suite is connected");
}
