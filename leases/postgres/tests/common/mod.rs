//! A private server for the tests of one binary.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::{future::poll_fn, net::SocketAddr, sync::Arc, time::Duration};

use keylatch_lease::{Leases, Resource};
use keylatch_lease_conformance::{
    ByHand, Caps, Failure, Heard,
    servers::{Messages, PrivateServer, Settings, Shared, TestServer, apart},
};
use keylatch_lease_postgres::{NoTls, Options, Postgres, SCHEMA};
use tokio_postgres::{AsyncMessage, Client, Config};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

pub(crate) struct Server(PrivateServer);

impl Server {
    /// Starts a server without the table.
    pub(crate) fn start() -> Self {
        Server(PrivateServer::new(SCRIPT, "postgres").start())
    }

    /// Starts a pooler in front of this server, with this number of connections to it.
    pub(crate) fn pooler(&self, mode: &str, connections: usize) -> Self {
        let pooler = PrivateServer::new(SCRIPT, "pgbouncer").env("UPSTREAM", self.address().port().to_string());
        Server(pooler.env("MODE", mode).env("POOL", connections.to_string()).start())
    }

    /// Starts a streaming replica that reaches this server at an address.
    pub(crate) fn replica(&self, at: SocketAddr) -> Self {
        Server(PrivateServer::new(SCRIPT, "postgres").env("PRIMARY", at.port().to_string()).start())
    }

    pub(crate) fn config(&self) -> Config {
        config(self.address())
    }

    /// Returns a connection that is driven on the current tokio runtime.
    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = self.config().connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Creates the table, and opens it.
    pub(crate) async fn create_table(&self) {
        Postgres::create_table(&self.client().await).await.unwrap();
        self.leases(Postgres::in_namespace("").timeout(Duration::from_secs(20))).engine().init().await.unwrap();
    }

    /// Runs statements. It may be called from any thread.
    pub(crate) fn execute(&self, sql: &str) {
        apart(async || self.client().await.batch_execute(sql).await.unwrap());
    }

    pub(crate) fn leases(&self, options: Options) -> Leases<Postgres> {
        Leases::with_engine(options.connect(self.config(), NoTls))
    }
}

impl TestServer for Server {
    type Engine = Postgres;
    type Client = Client;

    const NAME: &'static str = "Postgres";

    fn set_up() -> Self {
        let server = Server::start();
        apart(async || server.create_table().await);
        server
    }

    fn private(&self) -> &PrivateServer {
        &self.0
    }

    fn connect(settings: Settings, address: SocketAddr) -> Postgres {
        let mut config = config(address);
        config.application_name(&settings.namespace);
        options(settings).connect(config, NoTls)
    }

    async fn ready(engine: &Postgres) -> Result<(), Failure> {
        Ok(engine.ready().await?)
    }

    async fn client(&self) -> Client {
        Server::client(self).await
    }

    fn forget(&self) {
        self.run("forget");
        self.execute(SCHEMA);
    }

    fn empty(&self) -> Result<(), Failure> {
        self.execute("TRUNCATE keylatch_lease");
        Ok(())
    }

    fn by_hand() -> Vec<ByHand> {
        vec![ByHand { what: "rows", heard: Heard::AtOnce, notice: Duration::from_millis(500) }]
    }

    async fn take_away(&self, namespace: &str, _: &str) -> Result<(), Failure> {
        self.client().await.execute("DELETE FROM keylatch_lease WHERE ns = $1", &[&namespace]).await?;
        Ok(())
    }

    fn connections(&self, namespace: &str) -> Option<u64> {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
        let row = apart(async || self.client().await.query_one(query, &[&namespace]).await);
        u64::try_from(row.ok()?.get::<_, i64>(0)).ok()
    }

    async fn pass(&self, namespace: &str, time: Duration) {
        let sql = "UPDATE keylatch_lease SET since = since - $2 * interval '1 second', until = until - $2 * interval '1 second' WHERE ns = $1";
        self.client().await.execute(sql, &[&namespace, &time.as_secs_f64()]).await.unwrap();
    }

    async fn is_wanted(&self, namespace: &str, resource: &Resource) -> bool {
        let sql = "SELECT wanted FROM keylatch_lease WHERE ns = $1 AND key = $2";
        self.client().await.query_one(sql, &[&namespace, &resource.key().as_bytes()]).await.unwrap().get(0)
    }

    async fn cut(&self, namespace: &str) -> u64 {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
        self.client().await.execute(sql, &[&namespace]).await.unwrap()
    }

    async fn listen(&self, namespace: &str) -> Messages {
        let (client, mut connection) = self.config().connect(NoTls).await.unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(told) = message {
                    sender.send(plain(told.payload())).unwrap();
                }
            }
        });
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = namespace.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
        client.batch_execute(&format!("LISTEN keylatch_lease_{hash:016x}")).await.unwrap();
        Box::pin(futures_lite::stream::poll_fn(move |cx| {
            let _connected = &client;
            receiver.poll_recv(cx)
        }))
    }
}

/// A server behind a pooler in transaction mode, for engines without a session.
pub(crate) struct Pooled {
    pub(crate) server: Server,
    pub(crate) pooler: Server,
}

impl Pooled {
    /// Puts a pooler with this number of connections in front of a server.
    pub(crate) fn of(server: Server, connections: usize) -> Self {
        let pooler = server.pooler("transaction", connections);
        Pooled { server, pooler }
    }
}

impl TestServer for Pooled {
    type Engine = Postgres;
    type Client = Client;

    const NAME: &'static str = "Postgres behind PgBouncer";

    fn set_up() -> Self {
        Pooled::of(Server::set_up(), 2)
    }

    fn private(&self) -> &PrivateServer {
        self.server.private()
    }

    fn address(&self) -> SocketAddr {
        self.pooler.address()
    }

    /// Connects an engine whose waiters poll at least about three times a second.
    fn connect(settings: Settings, address: SocketAddr) -> Postgres {
        let mut config = config(address);
        config.application_name(&settings.namespace);
        options(settings).without_session().fallback(Duration::from_millis(300)).connect(config, NoTls)
    }

    async fn ready(engine: &Postgres) -> Result<(), Failure> {
        Ok(engine.ready().await?)
    }

    fn adjust(caps: &mut Caps) {
        caps.notice = None; // holders learn of the end when they renew
    }

    async fn client(&self) -> Client {
        self.server.client().await
    }

    fn forget(&self) {
        self.server.forget();
    }

    fn empty(&self) -> Result<(), Failure> {
        self.server.empty()
    }

    async fn pass(&self, namespace: &str, time: Duration) {
        self.server.pass(namespace, time).await;
    }

    async fn is_wanted(&self, namespace: &str, resource: &Resource) -> bool {
        self.server.is_wanted(namespace, resource).await
    }
}

/// Decodes a notification: `/7265706f7274/7/r` becomes `r 7 report`.
fn plain(payload: &str) -> String {
    let [_, key, token, letter] = payload.split('/').collect::<Vec<_>>()[..] else { panic!("{payload}") };
    let bytes = (0..key.len()).step_by(2).map(|at| u8::from_str_radix(&key[at..at + 2], 16).unwrap());
    format!("{letter} {token} {}", String::from_utf8(bytes.collect()).unwrap())
}

pub(crate) fn options(settings: Settings) -> Options {
    let Settings { namespace, timeout, fallback, sweeps, quarantine } = settings;
    Postgres::in_namespace(namespace).timeout(timeout).fallback(fallback).sweeps(sweeps).quarantine(quarantine)
}

pub(crate) fn config(address: SocketAddr) -> Config {
    format!("host=127.0.0.1 port={} user=postgres dbname=postgres", address.port()).parse().unwrap()
}

/// Returns the server that the tests share while any of them runs, with the table.
pub(crate) fn shared() -> Arc<Server> {
    static SHARED: Shared<Server> = Shared::new();

    SHARED.get(Server::set_up)
}
