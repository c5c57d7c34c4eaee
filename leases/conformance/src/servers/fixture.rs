//! The suite's fixture for an engine on a private server.

use std::{
    any,
    collections::HashSet,
    env, fmt,
    net::SocketAddr,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::runtime::Runtime;

use super::{Settings, Shared, TestServer, lock, runtime};
use crate::{ByHand, Caps, Failure, Fixture, Proxy, Server, worker as process};

/// The environment variables of a worker: its namespace, and the address of the server.
const NAMESPACE: &str = "LEASE_WORKER";
const ADDRESS: &str = "LEASE_SERVER";

/// The name of the test that is a worker if these variables are set. [`on_server!`](crate::on_server) defines that
/// test.
const WORKER: &str = "is_a_worker";

/// The quarantine: short, but no shorter than what any lease that expires in a case has left when it is granted or
/// renewed. In case 29 that is up to twice *T*.
const QUARANTINE: Duration = Duration::from_secs(5);

/// The [`Fixture`] of an engine on a private server.
///
/// # Examples
/// See [`on_server!`](crate::on_server).
pub struct OnServer<S> {
    server: Arc<S>,
    runtime: Runtime,
    /// The namespaces that may have leases. They must not be opened again without a quarantine.
    known: Mutex<HashSet<String>>,
}

impl<S> fmt::Debug for OnServer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnServer").field("server", &any::type_name::<S>()).finish_non_exhaustive()
    }
}

impl<S: TestServer> OnServer<S> {
    /// Starts the server, unless a running test uses it already.
    ///
    /// # Examples
    /// See [`on_server!`](crate::on_server).
    #[must_use]
    pub fn start(shared: &Shared<S>) -> Self {
        OnServer { server: shared.get(S::set_up), runtime: runtime(), known: Mutex::default() }
    }
}

/// Returns the settings of the suite's engines. The fallback is so long that a case fails if its waiter is not
/// notified.
fn settings(namespace: &str) -> Settings {
    Settings::new(namespace, Some(Duration::from_secs(60)))
        .timeout(Duration::from_secs(3))
        .fallback(Duration::from_secs(60))
        .quarantine(QUARANTINE)
}

/// Serves the suite if this process is one of its workers, and returns at once if it is not.
///
/// # Panics
/// If the suite cannot be reached.
///
/// # Examples
/// See [`on_server!`](crate::on_server).
pub fn worker<S: TestServer>() {
    let (Ok(namespace), Ok(address)) = (env::var(NAMESPACE), env::var(ADDRESS)) else { return };
    let runtime = runtime();
    let engine = {
        let _context = runtime.enter();
        S::connect(settings(&namespace), address.parse().expect("an address"))
    };
    process::serve_on(engine, move |future| runtime.block_on(future)).expect("the suite is connected");
}

impl<S: TestServer> Fixture for OnServer<S> {
    type Engine = S::Engine;

    fn name(&self) -> String {
        S::NAME.into()
    }

    fn caps(&self) -> Caps {
        let mut caps = Caps::new(Duration::from_secs(2));
        caps.processes = 32;
        caps.quarantine = QUARANTINE;
        S::adjust(&mut caps);
        caps
    }

    async fn connect(&self, namespace: &str, through: Option<&Proxy>) -> Result<S::Engine, Failure> {
        let engine = S::connect(settings(namespace), through.map_or(self.server.address(), Proxy::address));
        S::ready(&engine).await?;
        let is_new = lock(&self.known).insert(namespace.to_owned());
        if is_new {
            S::open(&engine).await?;
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

    fn by_hand(&self) -> Vec<ByHand> {
        S::by_hand()
    }

    async fn take_away(&self, namespace: &str, what: &str) -> Result<(), Failure> {
        self.server.take_away(namespace, what).await
    }

    fn connections(&self, namespace: &str) -> Option<u64> {
        self.server.connections(namespace)
    }

    fn worker(&self, namespace: &str, address: Option<SocketAddr>) -> Option<Command> {
        let mut command = process::this_binary(WORKER).ok()?;
        command.env(NAMESPACE, namespace).env(ADDRESS, address?.to_string());
        Some(command)
    }
}

impl<S: TestServer> OnServer<S> {
    /// Calls the server's script. Panics if that fails, which fails the case.
    fn run(&self, action: &str) -> Result<(), Failure> {
        self.server.run(action);
        Ok(())
    }
}

impl<S: TestServer> Server for OnServer<S> {
    fn kill(&self) -> Result<(), Failure> {
        self.run("kill")
    }

    fn restart(&self) -> Result<(), Failure> {
        self.run("start")
    }

    fn forget(&self) -> Result<(), Failure> {
        self.server.forget();
        Ok(())
    }

    fn empty(&self) -> Result<(), Failure> {
        self.server.empty()
    }

    fn back_up(&self) -> Result<(), Failure> {
        self.run("copy")
    }

    fn put_back(&self) -> Result<(), Failure> {
        self.run("restore")
    }

    fn pause(&self) -> Result<(), Failure> {
        self.run("pause")
    }

    fn resume(&self) -> Result<(), Failure> {
        self.run("resume")
    }
}

/// Makes a test of each [case](crate#cases), on a private server, and the test `is_a_worker`, which the suite's other
/// processes run. It must be called in the root module of a test binary.
///
/// # Examples
/// See the [module's page](crate::servers).
#[macro_export]
macro_rules! on_server {
    ($Server:ty) => {
        $crate::conformance!({
            static SHARED: $crate::servers::Shared<$Server> = $crate::servers::Shared::new();
            $crate::servers::OnServer::start(&SHARED)
        });

        /// Serves the suite if this binary was started as a worker. As a test it does nothing.
        #[test]
        fn is_a_worker() {
            $crate::servers::worker::<$Server>();
        }
    };
}
