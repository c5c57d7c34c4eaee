//! The engines. To add one, implement [`Subject`] and add it to `ENGINES` in `main.rs`.

use std::any::Any;
use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs, process};

use keylatch_lease::engine::Engine;
use keylatch_lease_conformance::served::{Remote, Served};
use keylatch_lease_etcd::{Client, Etcd};
use keylatch_lease_nats::{ConnectOptions, Nats};
use keylatch_lease_postgres::{NoTls, Postgres};
use keylatch_lease_redis::Redis;
use keylatch_lease_sqlite::Sqlite;

use crate::case::Error;
use crate::server::Private;

pub trait Subject: 'static {
    /// The name on the command line.
    const NAME: &'static str;
    /// The expiry of the leases whose holders are killed: two seconds, or the shortest that the engine supports if that
    /// is longer.
    const TTL: Duration = Duration::from_secs(2);
    type Engine: Engine + 'static;

    /// Starts a private server, or prepares a folder for an engine that has no server.
    fn start() -> impl Future<Output = Result<Running, Error>>;

    /// Creates a client with its own connection, and waits until it is connected.
    fn connect(address: &str, namespace: &str) -> impl Future<Output = Result<Self::Engine, Error>> + Send;
}

/// A server that runs until this is dropped.
pub struct Running {
    pub address: String,
    /// The port on 127.0.0.1.
    pub port: u16,
    pub version: String,
    _server: Box<dyn Any>,
}

impl Running {
    fn of(server: Private, version: &str) -> Self {
        let (address, version) = (server.address.clone(), version.to_owned());
        Running { address, port: server.port, version, _server: Box::new(server) }
    }
}

/// The timeout of an operation. It is long, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The engine in memory, served over TCP by a thread for each connection. It shows the cost of leases when the engine
/// costs almost nothing.
pub struct Memory;

impl Subject for Memory {
    const NAME: &'static str = "memory";
    type Engine = Remote;

    async fn start() -> Result<Running, Error> {
        let served = Served::start(Duration::ZERO)?;
        let (address, version) = (served.address(), "of this checkout".to_owned());
        Ok(Running { address: address.to_string(), port: address.port(), version, _server: Box::new(served) })
    }

    async fn connect(address: &str, namespace: &str) -> Result<Remote, Error> {
        Ok(Remote::connect(namespace, address.parse()?)?)
    }
}

/// The engine in a file. It has no server and no connections.
pub struct InSqlite;

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Subject for InSqlite {
    const NAME: &'static str = "sqlite";
    type Engine = Sqlite;

    async fn start() -> Result<Running, Error> {
        let folder = env::temp_dir().join(format!("keylatch-crowds-sqlite-{}", process::id()));
        fs::create_dir_all(&folder)?;
        let address = folder.join("leases.db").display().to_string();
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(); // nobody listens there
        let version = rusqlite::version().to_owned();
        Ok(Running { address, port, version, _server: Box::new(Folder(folder)) })
    }

    async fn connect(address: &str, namespace: &str) -> Result<Sqlite, Error> {
        Ok(Sqlite::in_namespace(namespace).timeout(TIMEOUT).open(address)?)
    }
}

pub struct InPostgres;

impl Subject for InPostgres {
    const NAME: &'static str = "postgres";
    type Engine = Postgres;

    async fn start() -> Result<Running, Error> {
        let server = Private::start(Self::NAME)?;
        let (client, connection) = tokio_postgres::connect(&server.address, NoTls).await?;
        let connection = tokio::spawn(connection);
        Postgres::create_table(&client).await?;
        let version: String = client.query_one("SHOW server_version", &[]).await?.get(0);
        drop(client);
        connection.await??; // so that this connection is not counted
        Ok(Running::of(server, version.split(' ').next().unwrap_or_default()))
    }

    async fn connect(address: &str, namespace: &str) -> Result<Postgres, Error> {
        let options = Postgres::in_namespace(namespace).timeout(TIMEOUT);
        let postgres = options.connect(address.parse()?, NoTls);
        postgres.init().await?; // no program has used the table before
        Ok(postgres)
    }
}

pub struct InRedis;

impl Subject for InRedis {
    const NAME: &'static str = "redis";
    type Engine = Redis;

    async fn start() -> Result<Running, Error> {
        let server = Private::start(Self::NAME)?;
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or_default();
        Ok(Running::of(server, version))
    }

    async fn connect(address: &str, namespace: &str) -> Result<Redis, Error> {
        let redis = Redis::in_namespace(namespace).timeout(TIMEOUT).connect(redis::Client::open(address)?);
        redis.init().await?; // no program has used the namespace before
        Ok(redis)
    }
}

pub struct InEtcd;

impl Subject for InEtcd {
    const NAME: &'static str = "etcd";
    type Engine = Etcd;

    async fn start() -> Result<Running, Error> {
        let server = Private::start(Self::NAME)?;
        let client = Client::connect([&server.address], None).await?;
        let version = client.version().await?;
        Ok(Running::of(server, &version))
    }

    async fn connect(address: &str, namespace: &str) -> Result<Etcd, Error> {
        let etcd = Etcd::in_namespace(namespace).timeout(TIMEOUT).connect([address], None);
        etcd.init().await?; // no program has used the namespace before
        Ok(etcd)
    }
}

pub struct InNats;

impl Subject for InNats {
    const NAME: &'static str = "nats";
    type Engine = Nats;

    async fn start() -> Result<Running, Error> {
        let server = Private::start(Self::NAME)?;
        let client = async_nats::connect(&server.address).await?;
        let version = client.server_info().version;
        async_nats::jetstream::new(client).create_stream(Nats::stream("keylatch_lease")).await?;
        Ok(Running::of(server, &version))
    }

    async fn connect(address: &str, namespace: &str) -> Result<Nats, Error> {
        let nats = Nats::in_namespace(namespace).timeout(TIMEOUT).connect(address, ConnectOptions::new)?;
        nats.init().await?; // no program has used the namespace before
        Ok(nats)
    }
}
