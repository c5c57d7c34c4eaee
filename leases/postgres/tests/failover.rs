//! Failovers to a replica, under load, and what each of them may lose.

mod common;

use std::time::Duration;

use common::{Server, config};
use keylatch_lease::{AcquireError, Fence, Leases, Owner, RenewError};
use keylatch_lease_conformance::{
    Proxy,
    servers::{
        LATE, SECOND, TestServer, insist, is_quarantined, millis, on_tokio, only_the_fence_decides,
        replace_a_dead_primary, work_during,
    },
};
use keylatch_lease_postgres::{Error, NoTls, Options, Postgres};
use tokio::{task::block_in_place, time::sleep};

const TTL: Duration = SECOND;

/// A quarantine that is longer than most failovers take, so that the leases of the two servers do not overlap.
const LONG: Duration = Duration::from_secs(4);

/// A primary and its streaming replica, with a proxy between them, and an address that leads to one of them.
struct Pair {
    primary: Server,
    replica: Server,
    link: Proxy,
    address: Proxy,
}

impl Pair {
    fn start() -> Self {
        let primary = Server::set_up();
        let [link, address] = [(); 2].map(|()| Proxy::new(primary.address()).unwrap());
        let replica = primary.replica(link.address());
        Pair { primary, replica, link, address }
    }

    /// Makes each commit wait for the replica.
    async fn synchronise(&self) {
        let client = self.primary.client().await;
        client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
        client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let is_so = "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'";
        while !client.query_one(is_so, &[]).await.unwrap().get::<_, bool>(0) {
            sleep(millis(10)).await;
        }
    }

    /// Waits until the replica has received everything.
    async fn until_in_step(&self) {
        let (primary, replica) = (self.primary.client().await, self.replica.client().await);
        let sent: String = primary.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap().get(0);
        let is_there = format!("SELECT coalesce(pg_last_wal_replay_lsn() >= '{sent}', false)");
        while !replica.query_one(&is_there, &[]).await.unwrap().get::<_, bool>(0) {
            sleep(millis(10)).await;
        }
    }

    /// Moves the address to the replica, and promotes it.
    fn promote(&self) {
        self.address.lead_to(self.replica.address());
        self.replica.execute("SELECT pg_promote()");
    }

    fn leases(&self, options: Options) -> Leases<Postgres> {
        Leases::with_engine(options.connect(config(self.address.address()), NoTls))
    }
}

fn options() -> Options {
    Postgres::in_namespace("shop").timeout(SECOND).quarantine(TTL).sweeps(None)
}

#[test]
fn one_owner_at_a_time_has_a_lease_while_a_replica_takes_the_place_of_a_dead_primary() {
    let pair = Pair::start();
    on_tokio(async {
        let [here, there] = [(); 2].map(|()| pair.leases(options().quarantine(LONG)));
        replace_a_dead_primary(LONG, [&here, &there], &pair.link, || {
            pair.primary.run("kill");
            pair.promote();
        });
    });
}

/// The replica has not received the last two grants.
#[test]
fn a_grant_that_the_replica_had_not_received_is_covered_by_the_quarantine_and_only_by_it() {
    let pair = Pair::start();
    on_tokio(async {
        let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
        let options =
            |quarantine| Postgres::in_namespace("shop").timeout(20 * SECOND).quarantine(quarantine).sweeps(None);
        let [here, there] = [(); 2].map(|()| pair.leases(options(2 * TTL)));
        // This engine trusts a replica that does not deserve it.
        let trusting = pair.leases(options(2 * TTL).trusts_failovers(true));
        let kept = here.try_acquire("kept", &jane, LATE).await.unwrap();
        pair.until_in_step().await;
        pair.link.hold();
        let lost = here.try_acquire("lost", &jane, 2 * TTL).await.unwrap();
        let careless = here.try_acquire("careless", &jane, LATE).await.unwrap();
        pair.primary.run("kill");
        block_in_place(|| pair.promote());
        // Without a quarantine there are two holders, and the fence decides.
        let second = insist(&trusting, "careless", &joe).await;
        assert!(here.remaining(&careless).is_some_and(|left| left > 10 * SECOND), "there must be two holders");
        let fence = Fence::new();
        assert_eq!(fence.admit(second.resource(), second.token()), Ok(()));
        assert!(fence.admit(careless.resource(), careless.token()).is_err());
        // The other engines begin a quarantine with their next request. During it, leases that the replica has are
        // renewed.
        let asked = there.try_acquire("other", &joe, TTL).await;
        assert!(is_quarantined(&asked), "{asked:?}");
        here.renew(&kept).await.unwrap();
        assert!(matches!(here.renew(&lost).await, Err(RenewError::Lost(_))));
        // After the quarantine the forgotten lease has ended for its holder, too.
        let next = insist(&there, "lost", &joe).await;
        assert_eq!(here.remaining(&lost), Some(Duration::ZERO));
        assert!(next.token() > lost.token());
    });
}

/// With a synchronous replica nothing is forgotten, so the engine may trust the failover and needs no quarantine.
#[test]
fn a_synchronous_replica_needs_no_quarantine() {
    let pair = Pair::start();
    on_tokio(async {
        pair.synchronise().await;
        let [here, there] = [(); 2].map(|()| pair.leases(options().quarantine(LATE).trusts_failovers(true)));
        let ledger = work_during(TTL, [&here, &there], |progress| {
            progress.more(30);
            pair.primary.run("kill");
            pair.promote();
        });
        assert_eq!(ledger.verdict(), Ok(()));
        assert_eq!(ledger.quarantined(), 0, "{ledger}");
    });
}

/// The primary is alive, but cut off from its synchronous replica, which is promoted. Some programs still reach the
/// primary, which confirms nothing to them.
#[test]
fn a_primary_that_is_parted_from_its_synchronous_replica_grants_nothing() {
    let pair = Pair::start();
    on_tokio(async {
        pair.synchronise().await;
        let options = || options().quarantine(LATE).trusts_failovers(true);
        let (here, there) = (pair.primary.leases(options()), pair.leases(options()));
        let ledger = work_during(TTL, [&here, &there], |progress| {
            progress.more(30);
            pair.link.hold();
            pair.promote();
            progress.more(30);
        });
        assert_eq!(ledger.verdict(), Ok(()));
        assert_eq!(ledger.quarantined(), 0, "{ledger}");
        let jane = Owner::named("jane");
        for _ in 0..2 {
            let asked = here.try_acquire("other", &jane, LATE).await;
            assert!(
                matches!(asked, Err(AcquireError::Engine(Error::Timeout | Error::Unconnected { .. }))),
                "{asked:?}"
            );
            // If an operator cancels the waiting commits, the server keeps grants that the replica does not have. Such
            // a grant is not confirmed to its owner either.
            let others = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            pair.primary
                .client()
                .await
                .batch_execute(&format!("SELECT pg_cancel_backend(pid) {others}"))
                .await
                .unwrap();
        }
        there.try_acquire("other", &Owner::named("joe"), LATE).await.unwrap();
    });
}

/// The same with an asynchronous replica: nothing but the fence keeps the two holders apart.
#[test]
fn a_primary_that_still_grants_beside_a_promoted_replica_is_noticed_by_the_fence_only() {
    let pair = Pair::start();
    on_tokio(async {
        let (here, there) = (pair.primary.leases(options()), pair.leases(options()));
        pair.until_in_step().await;
        pair.link.hold();
        block_in_place(|| pair.promote());
        only_the_fence_decides(&here, &there).await;
    });
}
