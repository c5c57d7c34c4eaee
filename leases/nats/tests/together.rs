//! Tests of requests that many tasks send over one connection at the same moment.

mod common;

use std::sync::Arc;

use common::{Server, proxy};
use futures_util::future::join_all;
use keylatch_lease::Leases;
use keylatch_lease_conformance::servers::{self, MINUTE, SECOND, Settings, TestServer, millis, namespace};
use tokio::{sync::watch, time::sleep};

#[test]
fn one_reading_of_the_mark_serves_all_grants_that_wait_for_it() {
    const COUNT: usize = 50;
    let settings = Settings::new(namespace(), None).timeout(20 * SECOND);
    servers::at_desk(&Arc::new(Server::set_up()), settings, |desk| async move {
        let (hold, held) = watch::channel(false);
        let name = format!("{}-behind-a-proxy", desk.namespace);
        let (address, _) = proxy(desk.server.address(), held).await;
        let leases = &Leases::with_engine(Server::connect(Settings::new(&name, None).timeout(20 * SECOND), address));
        leases.engine().init().await.unwrap();
        // The first acquire reads the server's clock.
        let first = leases.try_acquire("first", &desk.jane, MINUTE).await.unwrap();
        leases.release(&first).await.unwrap();
        let before = desk.server.received(&name);
        hold.send_replace(true);
        let acquires =
            join_all((0..COUNT).map(|i| leases.try_acquire(i.to_string(), &desk.jane, MINUTE).into_future()));
        let all_stored = async {
            while desk.server.received(&name) < before + COUNT as u64 {
                sleep(millis(5)).await;
            }
            hold.send_replace(false);
        };
        let (grants, ()) = futures_util::future::join(acquires, all_stored).await;
        let readings = desk.server.received(&name) - before - COUNT as u64;
        assert!((1..COUNT as u64 / 2).contains(&readings), "{readings} readings");
        let watching = Leases::with_engine(Server::connect(Settings::new(&name, None), desk.server.address()));
        for grant in grants {
            let grant = grant.unwrap();
            assert_eq!(watching.status(grant.resource()).await.unwrap().unwrap().token(), grant.token());
        }
        assert_eq!(leases.release_all(&desk.jane).await.unwrap(), COUNT);
    });
}

#[test]
fn a_changed_mark_is_noticed_by_every_grant_that_waits_for_the_reading() {
    let settings = Settings::new(namespace(), None).timeout(20 * SECOND).quarantine(MINUTE);
    servers::at_desk(&Arc::new(Server::set_up()), settings, |desk| async move {
        let (hold, held) = watch::channel(false);
        let name = format!("{}-behind-a-proxy", desk.namespace);
        let (address, _) = proxy(desk.server.address(), held).await;
        let leases = &Leases::with_engine(Server::connect(Settings::new(&name, None).timeout(20 * SECOND), address));
        leases.engine().init().await.unwrap();
        let first = leases.try_acquire("first", &desk.jane, MINUTE).await.unwrap();
        leases.release(&first).await.unwrap();
        let before = desk.server.received(&name);
        hold.send_replace(true);
        let acquires = join_all((0..20).map(|i| leases.try_acquire(i.to_string(), &desk.jane, MINUTE).into_future()));
        let purged = async {
            while desk.server.received(&name) < before + 20 {
                sleep(millis(5)).await;
            }
            desk.server.take_away(&name, "messages").await.unwrap();
            hold.send_replace(false);
        };
        let (grants, ()) = futures_util::future::join(acquires, purged).await;
        for grant in grants {
            assert!(servers::is_quarantined(&grant), "{grant:?}");
        }
    });
}
