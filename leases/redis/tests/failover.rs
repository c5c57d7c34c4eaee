//! Failovers to a replica, under load, and what each of them may lose.

mod common;

use std::{net::SocketAddr, time::Duration};

use common::Server;
use keylatch_lease::{AcquireError, Fence, Leases, Owner, RenewError};
use keylatch_lease_conformance::{
    Proxy,
    servers::{
        LATE, PrivateServer, SECOND, TestServer, insist, is_quarantined, millis, on_tokio, only_the_fence_decides,
        replace_a_dead_primary, work_during,
    },
};
use keylatch_lease_redis::{Error, Options, Redis};
use redis::RedisConnectionInfo;
use tokio::net::TcpStream;

const TTL: Duration = SECOND;

/// A quarantine that is longer than most failovers take, so that the leases of the two servers do not overlap.
const LONG: Duration = Duration::from_secs(4);

/// A primary and its replica, with a proxy between them, and an address that leads to one of them.
struct Pair {
    primary: Server,
    replica: Server,
    link: Proxy,
    address: Proxy,
}

impl Pair {
    fn start() -> Self {
        let (primary, replica) = (eager(), Server::start());
        let [link, address] = [(); 2].map(|()| Proxy::new(primary.address()).unwrap());
        let () = replica.ask(&["REPLICAOF", "127.0.0.1", &link.address().port().to_string()]);
        let pair = Pair { primary, replica, link, address };
        pair.until_in_step();
        pair
    }

    /// Waits until the replica has received everything.
    fn until_in_step(&self) {
        let told = || -> String { self.replica.ask(&["INFO", "replication"]) };
        let offset = |told: &str| -> u64 {
            told.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).unwrap().trim().parse().unwrap()
        };
        let sent = offset(&self.primary.ask::<String>(&["INFO", "replication"]));
        wait(|| {
            let told = told();
            told.contains("master_link_status:up") && offset(&told) >= sent
        });
    }

    /// Moves the address to the replica, and promotes it.
    fn promote(&self) {
        self.address.lead_to(self.replica.address());
        let () = self.replica.ask(&["REPLICAOF", "NO", "ONE"]);
    }

    fn leases(&self, options: Options) -> Leases<Redis> {
        Leases::with_engine(options.connect(common::client(self.address.address())))
    }
}

/// Returns a server that sends its data to a new replica at once.
fn eager() -> Server {
    let server = Server::start();
    let () = server.ask(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    server
}

fn options() -> Options {
    Redis::in_namespace("shop").timeout(SECOND).quarantine(TTL).sweeps(None)
}

fn wait(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(millis(10));
    }
}

#[test]
fn one_owner_at_a_time_has_a_lease_while_a_replica_takes_the_place_of_a_dead_primary() {
    let pair = Pair::start();
    on_tokio(async {
        let [here, there] = [(); 2].map(|()| pair.leases(options().quarantine(LONG)));
        here.engine().init().await.unwrap();
        replace_a_dead_primary(LONG, [&here, &there], &pair.link, || {
            pair.primary.run("kill");
            pair.promote();
        });
    });
}

/// The replica has not received the last three grants.
#[test]
fn a_grant_that_the_replica_had_not_received_is_covered_by_the_quarantine_and_only_by_it() {
    let pair = Pair::start();
    on_tokio(async {
        let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
        let in_namespace = |name: &str, quarantine| {
            let options = || Redis::in_namespace(name).timeout(20 * SECOND).quarantine(quarantine).sweeps(None);
            [(); 2].map(|()| pair.leases(options()))
        };
        let [here, there] = in_namespace("long", LATE);
        let [short, other] = in_namespace("short", TTL);
        let [hasty, hastier] = in_namespace("none", Duration::ZERO);
        for leases in [&here, &short, &hasty] {
            leases.engine().init().await.unwrap();
        }
        let kept = here.try_acquire("kept", &jane, LATE).await.unwrap();
        pair.until_in_step();
        pair.link.hold();
        let lost = here.try_acquire("lost", &jane, LATE).await.unwrap();
        let brief = short.try_acquire("lost", &jane, TTL).await.unwrap();
        let careless = hasty.try_acquire("lost", &jane, LATE).await.unwrap();
        pair.primary.run("kill");
        pair.promote();
        // During the quarantine leases are renewed, if the replica has them.
        assert!(is_quarantined(&there.try_acquire("lost", &joe, LATE).await));
        here.renew(&kept).await.unwrap();
        assert!(matches!(here.renew(&lost).await, Err(RenewError::Lost(_))));
        // After the quarantine the forgotten lease has ended for its holder, too.
        let next = insist(&other, "lost", &joe).await;
        assert_eq!(short.remaining(&brief), Some(Duration::ZERO));
        assert!(next.token() > brief.token());
        // Without a quarantine there are two holders, and the fence decides.
        let second = insist(&hastier, "lost", &joe).await;
        assert!(hasty.remaining(&careless).is_some_and(|left| left > 10 * SECOND), "there must be two holders");
        let fence = Fence::new();
        assert_eq!(fence.admit(second.resource(), second.token()), Ok(()));
        assert!(fence.admit(careless.resource(), careless.token()).is_err());
    });
}

/// The primary is alive, but cut off from its replica, which is promoted. Some programs still reach the primary.
#[test]
fn a_primary_that_needs_a_replica_grants_nothing_once_it_is_parted_from_it() {
    let pair = Pair::start();
    for setting in [["min-replicas-to-write", "1"], ["min-replicas-max-lag", "1"]] {
        let () = pair.primary.ask(&["CONFIG", "SET", setting[0], setting[1]]);
    }
    let write = || redis::cmd("SET").arg("x").arg(1).query::<()>(&mut pair.primary.client().get_connection().unwrap());
    wait(|| write().is_ok()); // the replica has reported how far it is
    on_tokio(async {
        let (here, there) = (pair.primary.leases(options()), pair.leases(options()));
        here.engine().init().await.unwrap();
        let ledger = work_during(TTL, [&here, &there], |progress| {
            progress.more(30);
            pair.link.hold();
            // The replica must not be promoted before the primary has noticed that it is cut off.
            wait(|| write().is_err());
            pair.promote();
            progress.more(10);
        });
        assert_eq!(ledger.verdict(), Ok(()));
        assert!(ledger.quarantined() > 0, "{ledger}");
        let refused = here.try_acquire("other", &Owner::named("jane"), TTL).await;
        assert!(
            matches!(&refused, Err(AcquireError::Engine(Error::Refused { source })) if source.code() == Some("NOREPLICAS")),
            "{refused:?}"
        );
    });
}

/// The same without `min-replicas-to-write`: nothing but the fence keeps the two holders apart.
#[test]
fn a_primary_that_still_grants_beside_a_promoted_replica_is_noticed_by_the_fence_only() {
    let pair = Pair::start();
    on_tokio(async {
        let (here, there) = (pair.primary.leases(options()), pair.leases(options()));
        here.engine().init().await.unwrap();
        pair.until_in_step();
        pair.link.hold();
        pair.promote();
        only_the_fence_decides(&here, &there).await;
    });
}

/// Asks the sentinels for the primary, as a program that uses sentinels does, and connects to it.
async fn dial(sentinels: Vec<SocketAddr>) -> Result<TcpStream, keylatch_lease_redis::BoxError> {
    for sentinel in sentinels {
        let Ok(mut connection) = common::client(sentinel).get_multiplexed_async_connection().await else { continue };
        let question = ["GET-MASTER-ADDR-BY-NAME", "leases"];
        let Ok((host, port)) =
            redis::cmd("SENTINEL").arg(&question).query_async::<(String, u16)>(&mut connection).await
        else {
            continue;
        };
        return Ok(TcpStream::connect((host, port)).await?);
    }
    Err("no sentinel answers".into())
}

#[test]
fn programs_that_ask_sentinels_follow_a_failover() {
    let (primary, replica) = (eager(), Server::start());
    let () = replica.ask(&["REPLICAOF", "127.0.0.1", &primary.address().port().to_string()]);
    let port = primary.address().port().to_string();
    let sentinel = || PrivateServer::new(common::SCRIPT, "sentinel").env("PRIMARY", port.clone()).start();
    let sentinels = [(); 3].map(|()| sentinel());
    let addresses: Vec<_> = sentinels.iter().map(PrivateServer::address).collect();
    for &address in &addresses {
        // Each knows the replica and the other two.
        let told = || -> Vec<String> {
            let mut connection = common::client(address).get_connection().unwrap();
            redis::cmd("SENTINEL").arg(&["MASTER", "leases"]).query(&mut connection).unwrap()
        };
        let says = |told: &[String], what: &str| told.windows(2).any(|pair| format!("{}={}", pair[0], pair[1]) == what);
        wait(|| {
            let told = told();
            says(&told, "num-slaves=1") && says(&told, "num-other-sentinels=2")
        });
    }
    on_tokio(async {
        let leases = || {
            let addresses = addresses.clone();
            let (redis, driver) =
                options().connect_with(RedisConnectionInfo::default(), move || dial(addresses.clone()));
            tokio::spawn(driver);
            Leases::with_engine(redis)
        };
        let (here, there) = (leases(), leases());
        here.engine().init().await.unwrap();
        let ledger = work_during(TTL, [&here, &there], |progress| {
            progress.more(30);
            primary.run("kill");
            wait(|| replica.ask::<String>(&["INFO", "replication"]).contains("role:master"));
            // At first the old primary takes itself for the primary, but the sentinels know better.
            primary.run("start");
            progress.more(30);
        });
        assert_eq!(ledger.verdict(), Ok(()));
        assert!(ledger.quarantined() > 0, "{ledger}");
    });
}
