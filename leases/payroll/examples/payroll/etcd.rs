//! etcd: a private server, and the engine.

use keylatch_lease_etcd::{Client, Etcd};
use tokio::runtime::{Builder, Runtime};

use crate::{lock::Error, private::Private};

/// Creates a runtime for the client. It lives as long as the process.
fn runtime() -> Result<&'static Runtime, Error> {
    Ok(Box::leak(Box::new(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)))
}

fn connect(address: &str) -> Result<(&'static Runtime, Etcd), Error> {
    let runtime = runtime()?;
    let _context = runtime.enter();
    Ok((runtime, Etcd::in_namespace("payroll").connect(address.split(','), None)))
}

pub(crate) fn engine(address: &str) -> Result<Etcd, Error> {
    let (runtime, engine) = connect(address)?;
    runtime.block_on(engine.ready())?;
    Ok(engine)
}

pub(crate) struct Server {
    private: Private,
    version: String,
}

impl Server {
    pub(crate) fn start() -> Result<Self, Error> {
        let private = Private::start("etcd")?;
        let endpoints: Vec<_> = private.address.split(',').collect();
        let version = runtime()?.block_on(async {
            let client = Client::connect(&endpoints[..1], None).await?;
            Ok::<_, Error>(client.version().await?)
        })?;
        // The server is new, so no lease can exist.
        let (runtime, engine) = connect(&private.address)?;
        runtime.block_on(engine.init())?;
        Ok(Server { private, version })
    }

    pub(crate) fn name(&self) -> String {
        format!("etcd {}", self.version)
    }

    pub(crate) fn address(&self) -> String {
        self.private.address.clone()
    }
}
