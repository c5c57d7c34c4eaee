//! A stream with three replicas, and what happens to the node that leads it under load. These tests need servers of
//! 2.11 or later. If those in `PATH` are older, `KEYLATCH_NATS` names the folder of another `nats-server`; without one,
//! these tests report that they do not apply.

mod common;

use std::{env, process::Command, time::Duration};

use async_nats::jetstream::{
    self,
    stream::{Config, Stream},
};
use keylatch_lease::{Leases, Owner, Resource};
use keylatch_lease_conformance::{
    Progress, Proxy,
    servers::{LATE, MINUTE, PrivateServer, SECOND, apart, millis, on_tokio, work_during},
};
use keylatch_lease_nats::{ConnectOptions, Nats};
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(2);

/// Three nodes, with a proxy for each direction between any two of them.
struct Cluster {
    nodes: Vec<PrivateServer>,
    /// The proxies by which each node reaches each of the others.
    routes: Vec<Vec<Proxy>>,
}

impl Cluster {
    /// Starts the nodes. Returns `None` if replicas are not safe with the server's version.
    fn start() -> Option<Self> {
        let mut path = env::var("PATH").unwrap() + ":/usr/sbin:/usr/local/sbin";
        if let Ok(folder) = env::var("KEYLATCH_NATS") {
            path = format!("{folder}:{path}");
        }
        let told = Command::new("nats-server").arg("--version").env("PATH", &path).output();
        let told = told.map_or(String::new(), |output| String::from_utf8(output.stdout).unwrap());
        let version = told.trim().rsplit('v').next().and_then(|version| {
            let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
            Some((parts.next()??, parts.next()??))
        });
        if version < Some((2, 11)) {
            eprintln!("does not apply: the server is {told:?}, and replicas need 2.11 or later (KEYLATCH_NATS)");
            return None;
        }
        let nodes: Vec<_> =
            (0..3).map(|_| PrivateServer::new(common::SCRIPT, "nats").ports(2).env("PATH", path.clone())).collect();
        let port = |node: &PrivateServer| node.address().port() + 1;
        let reach = |node: &PrivateServer| Proxy::new(([127, 0, 0, 1], port(node)).into()).unwrap();
        let routes: Vec<Vec<_>> = nodes.iter().map(|_| nodes.iter().map(reach).collect()).collect();
        let start = |(at, node): (usize, PrivateServer)| {
            let others = routes[at].iter().enumerate().filter(|&(other, _)| other != at);
            let urls: Vec<_> = others.map(|(_, proxy)| format!("\"nats://{}\"", proxy.address())).collect();
            // Nodes and clients reach a node only as the test says: it tells nobody where it really listens.
            let cluster = format!(
                "cluster {{ name: leases, listen: \"127.0.0.1:{}\", advertise: \"127.0.0.1:1\", no_advertise: true, \
                 routes: [{}] }}",
                port(&node),
                urls.join(", ")
            );
            node.file("more.conf", &cluster).start()
        };
        let nodes = nodes.into_iter().enumerate().map(start).collect();
        Some(Cluster { nodes, routes })
    }

    fn addresses(&self, nodes: impl IntoIterator<Item = usize>) -> Vec<String> {
        nodes.into_iter().map(|node| self.nodes[node].address().to_string()).collect()
    }

    /// Returns the stream, and creates it when the cluster is ready for that.
    async fn stream(&self, node: usize) -> Stream {
        let config = Config { num_replicas: 3, ..Nats::stream("keylatch_lease") };
        let client = async_nats::connect(self.nodes[node].address().to_string()).await.unwrap();
        let context = jetstream::new(client);
        loop {
            match context.get_or_create_stream(config.clone()).await {
                Ok(stream) => return stream,
                Err(_) => sleep(millis(100)).await,
            }
        }
    }

    /// Returns the node that leads the stream, according to the node `told_by`.
    async fn leader(&self, told_by: usize) -> usize {
        let mut stream = self.stream(told_by).await;
        loop {
            let told = stream.info().await.ok().and_then(|info| info.cluster.as_ref()?.leader.clone());
            let is_it = |node: &PrivateServer| told == Some(format!("private-{}", node.address().port()));
            if let Some(leader) = self.nodes.iter().position(is_it) {
                return leader;
            }
            sleep(millis(100)).await;
        }
    }

    /// Swallows everything between this node and the others, or forwards it again.
    fn part(&self, node: usize, is_parted: bool) {
        for other in (0..3).filter(|&other| other != node) {
            for proxy in [&self.routes[node][other], &self.routes[other][node]] {
                if is_parted { proxy.blackhole() } else { proxy.pass() }
            }
        }
    }
}

/// Lets owners of two clients work during the trouble, prints their ledger, and checks it: nothing is forgotten, so
/// there is no quarantine. `knows` is given the leader, and returns the nodes that each client knows.
fn work(trouble: impl FnOnce(&Cluster, usize, &Progress<'_>), knows: impl FnOnce(usize) -> [Vec<usize>; 2]) {
    let Some(cluster) = Cluster::start() else { return };
    on_tokio(async {
        let leader = cluster.leader(0).await;
        let clients = knows(leader).map(|nodes| {
            let options = Nats::in_namespace("shop").timeout(SECOND).quarantine(LATE).sweeps(None);
            Leases::with_engine(options.connect(cluster.addresses(nodes), ConnectOptions::new).unwrap())
        });
        while clients[0].engine().init().await.is_err() {}
        let clients = [&clients[0], &clients[1]];
        let ledger = work_during(TTL, clients, |progress| trouble(&cluster, leader, progress));
        assert_eq!(ledger.verdict(), Ok(()));
        assert_eq!(ledger.quarantined(), 0, "{ledger}");
    });
}

fn all(_: usize) -> [Vec<usize>; 2] {
    [(); 2].map(|()| vec![0, 1, 2])
}

#[test]
fn one_owner_at_a_time_has_a_lease_while_the_leader_is_killed() {
    let trouble = |cluster: &Cluster, leader: usize, progress: &Progress<'_>| {
        progress.more(20);
        cluster.nodes[leader].run("kill");
        progress.more(20);
        cluster.nodes[leader].run("start");
    };
    work(trouble, all);
}

#[test]
fn one_owner_at_a_time_has_a_lease_while_the_leader_stands_still() {
    let trouble = |cluster: &Cluster, leader: usize, progress: &Progress<'_>| {
        progress.more(20);
        cluster.nodes[leader].run("pause");
        // Waits until another node leads.
        apart(async || while cluster.leader((leader + 1) % 3).await == leader {});
        progress.more(20);
        cluster.nodes[leader].run("resume");
        progress.more(20);
    };
    work(trouble, all);
}

/// The leader is cut off from the others, and one client knows no other node.
#[test]
fn one_owner_at_a_time_has_a_lease_while_a_clients_node_is_parted_from_the_others() {
    let trouble = |cluster: &Cluster, leader: usize, progress: &Progress<'_>| {
        progress.more(20);
        cluster.part(leader, true);
        apart(async || while cluster.leader((leader + 1) % 3).await == leader {});
        progress.more(20);
        cluster.part(leader, false);
        progress.more(20);
    };
    work(trouble, |leader| [vec![leader], vec![(leader + 1) % 3, (leader + 2) % 3]]);
}

/// The waiter's subscription must have reached the leader before the waiter asks.
#[test]
fn a_waiter_on_another_node_than_the_leader_is_notified() {
    let Some(cluster) = Cluster::start() else { return };
    on_tokio(async {
        let leader = cluster.leader(0).await;
        let [here, there] = [leader, (leader + 1) % 3].map(|node| {
            let options = Nats::in_namespace("shop").timeout(20 * SECOND).fallback(LATE).sweeps(None);
            Leases::with_engine(options.connect(cluster.addresses([node]), ConnectOptions::new).unwrap())
        });
        while here.engine().init().await.is_err() {}
        let [jane, joe] = ["jane", "joe"].map(Owner::named);
        for key in 0..20 {
            // Each of these resources is new to both programs.
            let resource = Resource::from(key.to_string());
            let grant = here.try_acquire(&resource, &jane, 60 * MINUTE).await.unwrap();
            let waiting = there.acquire(&resource, &joe, MINUTE).into_future();
            let release = async {
                // The waiter has asked by then, or soon will.
                there.status("other").await.unwrap();
                here.release(&grant).await.unwrap();
            };
            let (granted, ()) = futures_lite::future::zip(waiting, release).await;
            assert!(granted.unwrap().token() > grant.token());
        }
    });
}
