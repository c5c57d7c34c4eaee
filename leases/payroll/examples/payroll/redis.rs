//! Redis: a private server, and the engine.

use keylatch_lease_redis::Redis;
use redis::{Client, InfoDict};
use tokio::runtime::{Builder, Runtime};

use crate::{lock::Error, private::Private};

/// Creates a runtime for the client. It lives as long as the process.
fn runtime() -> Result<&'static Runtime, Error> {
    Ok(Box::leak(Box::new(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)))
}

fn connect(address: &str) -> Result<(&'static Runtime, Redis), Error> {
    let runtime = runtime()?;
    let _context = runtime.enter();
    Ok((runtime, Redis::in_namespace("payroll").connect(Client::open(address)?)))
}

pub(crate) fn engine(address: &str) -> Result<Redis, Error> {
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
        let private = Private::start("redis")?;
        let mut connection = Client::open(&*private.address)?.get_connection()?;
        let info: InfoDict = redis::cmd("INFO").arg("server").query(&mut connection)?;
        let version = info.get("redis_version").unwrap_or_default();
        // The server is new, so no lease can exist.
        let (runtime, engine) = connect(&private.address)?;
        runtime.block_on(engine.init())?;
        Ok(Server { private, version })
    }

    pub(crate) fn name(&self) -> String {
        format!("redis {}", self.version)
    }

    pub(crate) fn address(&self) -> String {
        self.private.address.clone()
    }
}
