//! Three nodes, and what happens to one of them under load.

mod common;

use std::{process::Command, time::Duration};

use common::{Server, peers::Peers};
use keylatch_lease::{Leases, Owner};
use keylatch_lease_conformance::{
    Progress,
    servers::{LATE, SECOND, apart, millis, on_tokio, work_during},
};
use keylatch_lease_etcd::Etcd;
use tokio::{task::block_in_place, time::sleep};

/// The shortest lease that is possible with etcd's usual election timeout.
const TTL: Duration = Duration::from_secs(2);

/// Lets owners of two clients work during the trouble, prints their ledger, and checks it: nothing is forgotten, so
/// there is no quarantine. Each client knows the nodes at these places in the list.
fn work(trouble: impl FnOnce(&Server, &Peers, usize, &Progress<'_>), knows: impl FnOnce(usize) -> [Vec<usize>; 2]) {
    let (server, peers) = Server::of_three();
    on_tokio(async {
        let leader = server.leader().await;
        let clients = knows(leader).map(|nodes| {
            let endpoints: Vec<_> = nodes.into_iter().map(|node| server.endpoints().swap_remove(node)).collect();
            Leases::with_engine(Etcd::in_namespace("shop").timeout(SECOND).quarantine(LATE).connect(endpoints, None))
        });
        clients[0].engine().init().await.unwrap();
        let clients = [&clients[0], &clients[1]];
        let ledger = work_during(TTL, clients, |progress| trouble(&server, &peers, leader, progress));
        assert_eq!(ledger.verdict(), Ok(()));
        assert_eq!(ledger.quarantined(), 0, "{ledger}");
    });
}

/// Lets both clients know all nodes, and begin with the leader.
fn all(leader: usize) -> [Vec<usize>; 2] {
    [(); 2].map(|()| (0..3).map(|at| (leader + at) % 3).collect())
}

/// Lets one client know only this node, and the other client only the other nodes.
fn apart_from(node: usize) -> [Vec<usize>; 2] {
    [vec![node], vec![(node + 1) % 3, (node + 2) % 3]]
}

#[test]
fn one_owner_at_a_time_has_a_lease_while_the_leader_is_killed() {
    let trouble = |server: &Server, _: &Peers, leader, progress: &Progress<'_>| {
        progress.more(20);
        server.run_on(leader, "kill");
        progress.more(20);
        server.run_on(leader, "start");
    };
    work(trouble, all);
}

/// Returns whether a leader that stood still, and was succeeded, may revoke leases that were renewed in between: etcd
/// issue 15247, rare since 3.4.31 and 3.5.12. Then two owners may rely on a lease at once, and only the fence helps.
fn may_revoke_what_was_renewed() -> bool {
    let told = Command::new("etcd").arg("--version").output().expect("etcd is installed").stdout;
    let told = String::from_utf8(told).expect("etcd tells its version in ASCII");
    let version = told.split_whitespace().find_map(|word| {
        let numbers: Result<Vec<u32>, _> = word.split('.').map(str::parse).collect();
        numbers.ok().filter(|numbers| numbers.len() == 3)
    });
    let version = version.unwrap_or_else(|| panic!("no version: {told}"));
    version < vec![3, 4, 31] || version >= vec![3, 5, 0] && version < vec![3, 5, 12]
}

#[test]
fn one_owner_at_a_time_has_a_lease_while_the_leader_stands_still() {
    if may_revoke_what_was_renewed() {
        println!("not run: it needs etcd 3.4.31 or 3.5.12");
        return;
    }
    let trouble = |server: &Server, _: &Peers, leader, progress: &Progress<'_>| {
        progress.more(20);
        server.run_on(leader, "pause");
        progress.more(20);
        // The old leader still takes itself for the leader.
        server.run_on(leader, "resume");
        progress.more(20);
    };
    work(trouble, all);
}

/// These callers give up each request long before the engine would stop waiting for its answer.
#[test]
fn callers_that_give_up_early_leave_a_leader_that_stands_still() {
    let (server, _peers) = Server::of_three();
    on_tokio(async {
        let leader = server.leader().await;
        let endpoints: Vec<_> = (0..3).map(|at| server.endpoints().swap_remove((leader + at) % 3)).collect();
        let engine = Etcd::in_namespace("shop").timeout(SECOND).connect(endpoints, None);
        engine.init().await.unwrap();
        let (leases, owner) = (Leases::with_engine(engine), Owner::named("clerk"));
        block_in_place(|| {
            server.run_on(leader, "pause");
            while leases.acquire_for("door", &owner, TTL, millis(100)).is_err() {}
        });
    });
}

/// Cuts a node off from the others until it knows that it has no leader, and work has gone on without it.
fn part(server: &Server, peers: &Peers, node: usize, progress: &Progress<'_>) {
    progress.more(20);
    apart(async || {
        let (id, _) = server.status(node).await.unwrap();
        peers.part(node, id);
        while server.status(node).await.is_none_or(|(_, leader)| leader != 0) {
            sleep(millis(20)).await;
        }
    });
    progress.more(20);
    peers.join();
    progress.more(20);
}

/// The leader is cut off, and one client knows no other node.
#[test]
fn one_owner_at_a_time_has_a_lease_while_the_leader_is_parted_from_the_others() {
    let trouble =
        |server: &Server, peers: &Peers, leader, progress: &Progress<'_>| part(server, peers, leader, progress);
    work(trouble, apart_from);
}

/// A follower is cut off, and one client knows no other node.
#[test]
fn one_owner_at_a_time_has_a_lease_while_a_follower_is_parted_from_the_others() {
    let follower = |leader| (leader + 1) % 3;
    let trouble = |server: &Server, peers: &Peers, leader, progress: &Progress<'_>| {
        part(server, peers, follower(leader), progress);
    };
    work(trouble, |leader| apart_from(follower(leader)));
}
