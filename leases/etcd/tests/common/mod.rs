//! A private server for the tests of one binary.

#![allow(dead_code, reason = "each test binary uses some of it")]

pub(crate) mod api;
pub(crate) mod peers;

use std::{net::SocketAddr, time::Duration};

use api::LeaseRevoke;
use keylatch_lease::Leases;
use keylatch_lease_conformance::{
    ByHand, Caps, Failure, Heard,
    servers::{PrivateServer, Settings, TestServer, apart},
};
use keylatch_lease_etcd::{Client, Etcd, Options, client::Keys};
use peers::Peers;
use tokio::time::sleep;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// A server of one node or more.
pub(crate) struct Server {
    private: PrivateServer,
    nodes: u16,
}

impl Server {
    /// Starts a server with this number of nodes, and these additional arguments for each of them.
    pub(crate) fn start(nodes: u16, flags: &str) -> Self {
        let private = PrivateServer::new(SCRIPT, "etcd").ports(2 * nodes).env("NODES", nodes.to_string());
        Server { private: private.env("ETCD_FLAGS", flags).start(), nodes }
    }

    /// Starts a server of three nodes, with proxies between them.
    pub(crate) fn of_three() -> (Self, Peers) {
        let private = PrivateServer::new(SCRIPT, "etcd").ports(6).env("NODES", "3");
        let first = private.address().port();
        let peers = Peers::start(first + 3..first + 6);
        (Server { private: private.env("PEERS", peers.ports()).start(), nodes: 3 }, peers)
    }

    /// Returns the member ID of a node, and that of the leader as it knows it; 0 if it knows none.
    pub(crate) async fn status(&self, node: usize) -> Option<(u64, u64)> {
        let client = Client::connect([self.endpoints().swap_remove(node)], None).await.ok()?;
        let status = client.call(api::Status {}).await.ok()?;
        Some((status.header?.member_id, status.leader))
    }

    /// Returns the node that is the leader.
    pub(crate) async fn leader(&self) -> usize {
        for _ in 0..500 {
            for node in 0..self.endpoints().len() {
                if self.status(node).await.is_some_and(|(id, leader)| leader == id) {
                    return node;
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("no node is the leader");
    }

    /// Runs an action of the script on one node.
    pub(crate) fn run_on(&self, node: usize, action: &str) {
        self.private.run_with(&[("NODE", &node.to_string())], action);
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        let first = self.address().port();
        (0..self.nodes).map(|node| format!("http://127.0.0.1:{}", first + node)).collect()
    }

    pub(crate) fn leases(&self, options: Options) -> Leases<Etcd> {
        Leases::with_engine(options.connect(self.endpoints(), None))
    }

    /// Returns leases of a namespace that is new, and opens it.
    pub(crate) async fn opened(&self, options: Options) -> Leases<Etcd> {
        let leases = self.leases(options);
        leases.engine().init().await.unwrap();
        leases
    }
}

impl TestServer for Server {
    type Engine = Etcd;
    type Client = Client;

    const NAME: &'static str = "etcd";

    fn set_up() -> Self {
        Server::start(1, "")
    }

    fn private(&self) -> &PrivateServer {
        &self.private
    }

    fn connect(settings: Settings, address: SocketAddr) -> Etcd {
        let Settings { namespace, timeout, fallback, quarantine, .. } = settings;
        let options = Etcd::in_namespace(namespace).timeout(timeout).fallback(fallback).quarantine(quarantine);
        options.connect([format!("http://{address}")], None)
    }

    async fn ready(engine: &Etcd) -> Result<(), Failure> {
        Ok(engine.ready().await?)
    }

    async fn open(engine: &Etcd) -> Result<(), Failure> {
        Ok(engine.init().await?)
    }

    async fn client(&self) -> Client {
        Client::connect([&self.endpoints()[0]], None).await.unwrap()
    }

    /// Allows for the accuracy of etcd, which counts whole seconds, and looks for expired leases twice a second.
    fn adjust(caps: &mut Caps) {
        caps.delta = Duration::from_secs(2);
    }

    fn empty(&self) -> Result<(), Failure> {
        apart(async || self.client().await.delete(Keys::prefix("")).await)?;
        Ok(())
    }

    /// Returns the ways to take leases away by hand. Deleting all keys comes last, because it deletes the namespace's
    /// mark too.
    fn by_hand() -> Vec<ByHand> {
        let way = |what| ByHand { what, heard: Heard::AtOnce, notice: Duration::from_millis(500) };
        vec![way("etcd leases"), way("keys")]
    }

    async fn take_away(&self, namespace: &str, what: &str) -> Result<(), Failure> {
        let client = self.client().await;
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
}
