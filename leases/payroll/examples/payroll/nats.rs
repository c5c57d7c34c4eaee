//! NATS: a private server, and the engine.

use async_nats::jetstream;
use keylatch_lease_nats::{ConnectOptions, Nats};
use tokio::runtime::{Builder, Runtime};

use crate::{lock::Error, private::Private};

/// Creates a runtime for the client. It lives as long as the process.
fn runtime() -> Result<&'static Runtime, Error> {
    Ok(Box::leak(Box::new(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)))
}

fn connect(address: &str) -> Result<(&'static Runtime, Nats), Error> {
    let runtime = runtime()?;
    let _context = runtime.enter();
    Ok((runtime, Nats::in_namespace("payroll").connect(address, ConnectOptions::new)?))
}

pub(crate) fn engine(address: &str) -> Result<Nats, Error> {
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
        let private = Private::start("nats")?;
        let version = runtime()?.block_on(async {
            let client = async_nats::connect(&private.address).await?;
            let version = client.server_info().version;
            jetstream::new(client).create_stream(Nats::stream("keylatch_lease")).await?;
            Ok::<_, Error>(version)
        })?;
        // The server is new, so no lease can exist.
        let (runtime, engine) = connect(&private.address)?;
        runtime.block_on(engine.init())?;
        Ok(Server { private, version })
    }

    pub(crate) fn name(&self) -> String {
        format!("nats {}", self.version)
    }

    pub(crate) fn address(&self) -> String {
        self.private.address.clone()
    }
}
