//! A private server for the tests of one binary.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use async_nats::{
    Client,
    jetstream::{self, stream::Stream},
};
use keylatch_lease::Leases;
use keylatch_lease_conformance::{
    ByHand, Failure, Heard,
    servers::{PrivateServer, Settings, Shared, TestServer, apart},
};
use keylatch_lease_nats::{ConnectOptions, Nats, Options};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::watch,
};

pub(crate) const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

pub(crate) struct Server(PrivateServer);

impl Server {
    /// Starts a server without the stream, with these lines in its configuration.
    pub(crate) fn with(more: &str) -> Self {
        Server(PrivateServer::new(SCRIPT, "nats").file("more.conf", more).start())
    }

    /// Returns a connection that is driven on the current tokio runtime.
    pub(crate) async fn client(&self) -> Client {
        async_nats::connect(self.address().to_string()).await.unwrap()
    }

    /// Returns the usual stream, and creates it if it is missing.
    pub(crate) async fn create_stream(&self) -> Stream {
        let context = jetstream::new(self.client().await);
        context.get_or_create_stream(Nats::stream("keylatch_lease")).await.unwrap()
    }

    pub(crate) fn leases(&self, options: Options) -> Leases<Nats> {
        Leases::with_engine(options.connect(self.address().to_string(), ConnectOptions::new).unwrap())
    }

    /// Returns an engine on a new namespace that has been opened.
    pub(crate) async fn opened(&self, options: Options) -> Leases<Nats> {
        let leases = self.leases(options);
        leases.engine().init().await.unwrap();
        leases
    }

    /// Returns the number of messages that the server has received from the one client of this name.
    pub(crate) fn received(&self, name: &str) -> u64 {
        self.clients(name).unwrap()[0]["in_msgs"].as_u64().unwrap()
    }

    /// Returns the number of messages that the server has sent to the one client of this name.
    pub(crate) fn sent(&self, name: &str) -> u64 {
        self.clients(name).unwrap()[0]["out_msgs"].as_u64().unwrap()
    }

    /// Returns the subjects to which the one client of this name is subscribed, other than its inboxes.
    pub(crate) fn subscriptions(&self, name: &str) -> BTreeSet<String> {
        let subjects = self.clients(name).unwrap()[0]["subscriptions_list"].clone();
        let subjects: Vec<String> = serde_json::from_value(subjects).unwrap();
        subjects.into_iter().filter(|subject| !subject.starts_with("_INBOX.")).collect()
    }

    /// Returns an engine whose client has this name.
    pub(crate) fn named(&self, options: Options, name: &str) -> Leases<Nats> {
        let name = name.to_owned();
        let connect = move || ConnectOptions::new().name(&name);
        Leases::with_engine(options.connect(self.address().to_string(), connect).unwrap())
    }

    /// Returns what the monitor shows about the clients of this name.
    fn clients(&self, name: &str) -> Option<Vec<serde_json::Value>> {
        let log = fs::read_to_string(self.0.folder().join("server.log")).ok()?;
        let address = log.lines().rev().find_map(|line| line.split("Starting http monitor on ").nth(1))?;
        let mut stream = TcpStream::connect(address.trim()).ok()?;
        stream.write_all(b"GET /connz?limit=10000&subs=1 HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let told: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        Some(told["connections"].as_array()?.iter().filter(|client| client["name"] == name).cloned().collect())
    }
}

impl TestServer for Server {
    type Engine = Nats;
    type Client = Stream;

    const NAME: &'static str = "NATS 2.9";

    fn set_up() -> Self {
        let server = Server::with("");
        apart(async || server.create_stream().await);
        server
    }

    fn private(&self) -> &PrivateServer {
        &self.0
    }

    fn connect(settings: Settings, address: SocketAddr) -> Nats {
        let Settings { namespace: name, timeout, fallback, sweeps, quarantine } = settings;
        let options = Nats::in_namespace(&name).timeout(timeout).fallback(fallback).sweeps(sweeps);
        let connect = move || ConnectOptions::new().name(&name);
        options.quarantine(quarantine).connect(address.to_string(), connect).expect("the address is valid")
    }

    async fn ready(engine: &Nats) -> Result<(), Failure> {
        Ok(engine.ready().await?)
    }

    async fn open(engine: &Nats) -> Result<(), Failure> {
        Ok(engine.init().await?)
    }

    async fn client(&self) -> Stream {
        self.create_stream().await
    }

    /// Makes the server forget everything, and creates the stream again.
    fn forget(&self) {
        self.run("forget");
        apart(async || self.create_stream().await);
    }

    fn empty(&self) -> Result<(), Failure> {
        apart(async || self.create_stream().await.purge().await)?;
        Ok(())
    }

    fn by_hand() -> Vec<ByHand> {
        vec![ByHand { what: "messages", heard: Heard::WhenAsked, notice: Duration::from_millis(500) }]
    }

    async fn take_away(&self, namespace: &str, _: &str) -> Result<(), Failure> {
        let stream = self.create_stream().await;
        stream.purge().filter(format!("keylatch_lease.lease.{namespace}.>")).await?;
        Ok(())
    }

    fn connections(&self, namespace: &str) -> Option<u64> {
        u64::try_from(self.clients(namespace)?.len()).ok()
    }
}

/// Returns the server, with its stream, that the tests share while any of them runs.
pub(crate) fn shared() -> Arc<Server> {
    static SHARED: Shared<Server> = Shared::new();

    SHARED.get(Server::set_up)
}

/// Starts a proxy that passes connections on to a server, and holds back what the server sends while `held` is true.
/// Returns the proxy's address, and the number of connections so far.
pub(crate) async fn proxy(server: SocketAddr, held: watch::Receiver<bool>) -> (SocketAddr, watch::Receiver<u32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            count.send_modify(|count| *count += 1);
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = tokio::net::TcpStream::connect(server).await.unwrap().into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let mut held = held.clone();
            tokio::spawn(async move {
                let mut read = vec![0; 1 << 16];
                while let Ok(count @ 1..) = from_server.read(&mut read).await {
                    let _ = held.wait_for(|held| !held).await;
                    if to_client.write_all(&read[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, counted)
}
