//! Tests of requests that wait for the connection at the same moment, and of etcd leases that are used again.

mod common;

use std::{collections::BTreeSet, future::Future, pin::Pin, sync::Arc, time::Duration};

use common::{Server, api};
use futures_lite::future::{poll_once, zip};
use keylatch_lease::{AcquireError, Expiry, Grant, Leases, Owner, Resource};
use keylatch_lease_conformance::servers::{self, MINUTE, SECOND, Settings, TestServer, millis, namespace};
use keylatch_lease_etcd::{Error, Etcd};
use tokio::time::sleep;

type Desk = servers::Desk<Server>;
type Acquired = Result<Grant, AcquireError<Error>>;
type Acquire<'a> = Pin<Box<dyn Future<Output = Acquired> + Send + 'a>>;

/// Runs a test at a desk on a server of its own, which the test may pause or kill.
fn at_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    servers::at_desk(&Arc::new(Server::set_up()), Settings::new(namespace(), None).timeout(20 * SECOND), test);
}

/// Starts an acquire and polls it once, which sends it or puts it in line.
async fn started<'a>(leases: &'a Leases<Etcd>, resource: impl Into<Resource>, owner: &Owner) -> Acquire<'a> {
    started_for(leases, resource, owner, Expiry::Never).await
}

async fn started_for<'a>(
    leases: &'a Leases<Etcd>,
    resource: impl Into<Resource>,
    owner: &Owner,
    expiry: impl Into<Expiry>,
) -> Acquire<'a> {
    let mut acquire: Acquire<'a> = Box::pin(leases.try_acquire(resource, owner, expiry).into_future());
    assert!(poll_once(&mut acquire).await.is_none());
    acquire
}

/// A connection that is busy, because the server is paused while two transactions are under way: one that was sent at
/// once, and one that others wait for.
struct Plug<'a> {
    desk: &'a Desk,
    acquires: Vec<Acquire<'a>>,
}

impl<'a> Plug<'a> {
    async fn new(desk: &'a Desk) -> Self {
        // A reading of the stopwatch is good for some seconds, so that nothing but the transactions is sent.
        let warm = desk.here.try_acquire("warm", &desk.jane, Expiry::Never).await.unwrap();
        desk.here.release(&warm).await.unwrap();
        desk.server.run("pause");
        let mut acquires = Vec::new();
        for resource in ["plug", "second plug"] {
            acquires.push(started(&desk.here, resource, &desk.jane).await);
        }
        sleep(millis(100)).await; // the driver sends the second one
        Plug { desk, acquires }
    }

    /// Ends the pause, and waits for the transactions that were under way.
    async fn pull(self) {
        self.desk.server.run("resume");
        for grant in all(self.acquires).await {
            self.desk.there.release(&grant.unwrap()).await.unwrap();
        }
    }
}

async fn all(acquires: Vec<Acquire<'_>>) -> Vec<Acquired> {
    let mut acquired = Vec::new();
    for acquire in acquires {
        acquired.push(acquire.await);
    }
    acquired
}

/// Returns the number of changes to the cluster's keys so far, including one that this call makes.
async fn revision(desk: &Desk) -> i64 {
    desk.client.put("counted", "").await.unwrap()
}

async fn owner_of(desk: &Desk, resource: impl Into<Resource>) -> Option<Owner> {
    desk.there.status(resource).await.unwrap().map(|status| status.owner().clone())
}

/// Returns the etcd leases that keys of the namespace are attached to.
async fn used(desk: &Desk) -> BTreeSet<i64> {
    let keys = api::list(&desk.client, format!("keylatch-lease/{}/", desk.namespace)).await;
    keys.iter().map(|kv| kv.lease()).filter(|&id| id != 0).collect()
}

#[test]
fn requests_that_wait_for_the_connection_become_one_transaction() {
    at_desk(|desk| async move {
        let busy = desk.there.try_acquire("busy", &desk.joe, MINUTE).await.unwrap();
        let held = desk.here.try_acquire("held", &desk.jane, MINUTE).await.unwrap();
        let before = revision(&desk).await;
        let plug = Plug::new(&desk).await;
        let mut acquires = Vec::new();
        for i in 0..50 {
            acquires.push(started(&desk.here, ("page", &*i.to_string()), &desk.jane).await);
        }
        let refused = started(&desk.here, "busy", &desk.jane).await;
        let mut release = Box::pin(desk.here.release(&held).into_future());
        assert!(poll_once(&mut release).await.is_none());
        plug.pull().await;
        let grants: Vec<_> = all(acquires).await.into_iter().map(Result::unwrap).collect();
        release.await.unwrap();
        let Err(AcquireError::Busy { owner, remaining: Some(left), .. }) = refused.await else { panic!("it was free") };
        assert!(owner == desk.joe && left > MINUTE / 2 && left <= MINUTE);
        // A tenure of "warm", two of the plug, and their ends; the transaction that followed; and the counter.
        assert_eq!(revision(&desk).await - before, 8);

        // Everybody else sees what separate transactions would have done.
        for (i, grant) in grants.iter().enumerate() {
            let status = desk.there.status(("page", &*i.to_string())).await.unwrap().unwrap();
            assert_eq!((status.owner(), status.token(), grant.is_resumed()), (&desk.jane, grant.token(), false));
            desk.there.release(grant).await.unwrap();
        }
        assert_eq!(owner_of(&desk, "held").await, None);
        desk.there.release(&busy).await.unwrap();
    });
}

#[test]
fn fresh_and_resumed_tenures_travel_with_new_ones() {
    at_desk(|desk| async move {
        let old = desk.here.try_acquire("fresh", &desk.jane, MINUTE).await.unwrap();
        let same = desk.here.try_acquire("same", &desk.jane, MINUTE).await.unwrap();
        let plug = Plug::new(&desk).await;
        let new = started(&desk.here, "new", &desk.jane).await;
        let resumed = started_for(&desk.here, "same", &desk.jane, MINUTE).await;
        let acquire = desk.here.try_acquire("fresh", &desk.jane, Expiry::Never).fresh_token();
        let mut fresh: Acquire<'_> = Box::pin(acquire.into_future());
        assert!(poll_once(&mut fresh).await.is_none());
        plug.pull().await;
        let [new, resumed, fresh] = all(vec![new, resumed, fresh]).await.try_into().unwrap();
        let (new, resumed, fresh) = (new.unwrap(), resumed.unwrap(), fresh.unwrap());
        assert!(!new.is_resumed() && resumed.is_resumed() && resumed.token() == same.token());
        assert!(fresh.token() > old.token());
        assert!(desk.there.renew(&old).await.is_err() && desk.there.renew(&fresh).await.is_ok());
    });
}

#[test]
fn a_batch_that_etcd_refuses_fails_only_for_the_one_at_fault() {
    at_desk(|desk| async move {
        for round in 0..5 {
            let held = desk.here.try_acquire("held", &desk.jane, Expiry::Never).await.unwrap();
            let first = desk.here.try_acquire("first", &desk.jane, MINUTE).await.unwrap();
            let [id] = used(&desk).await.into_iter().collect::<Vec<_>>().try_into().unwrap();
            desk.here.release(&first).await.unwrap();
            // The etcd lease is kept for the next tenure. etcd refuses a transaction as a whole if any part of it uses
            // that etcd lease.
            desk.client.call(api::LeaseRevoke { id }).await.unwrap();
            let plug = Plug::new(&desk).await;
            let mut acquires = vec![started_for(&desk.here, "second", &desk.jane, MINUTE).await];
            for i in 0..5 {
                acquires.push(started(&desk.here, Resource::new("other", i.to_string()), &desk.jane).await);
            }
            let mut release = Box::pin(desk.here.release(&held).into_future());
            assert!(poll_once(&mut release).await.is_none());
            plug.pull().await;
            let grants: Vec<_> = all(acquires).await.into_iter().map(Result::unwrap).collect();
            release.await.unwrap();
            assert_eq!(owner_of(&desk, "held").await, None);
            for grant in grants {
                assert_eq!(owner_of(&desk, grant.resource()).await, Some(desk.jane.clone()), "round {round}");
                desk.here.release(&grant).await.unwrap();
            }
            sleep(2 * SECOND).await; // no etcd lease is kept any more
        }
    });
}

#[test]
fn a_release_succeeds_without_space_beside_an_acquire_that_needs_some() {
    let server = Arc::new(Server::start(1, "--quota-backend-bytes=4194304"));
    servers::at_desk(&server, Settings::new(namespace(), None).timeout(20 * SECOND), |desk| async move {
        let mut grants = Vec::new();
        for i in 0..4 {
            grants.push(desk.here.try_acquire(i.to_string(), &desk.jane, Expiry::Never).await.unwrap());
        }
        let text = "x".repeat(1 << 20);
        for at in 0..20 {
            if desk.client.put(format!("fill-{at}"), text.as_str()).await.is_err() {
                break;
            }
        }
        desk.server.run("pause");
        let mut releases: Vec<_> =
            grants.iter().map(|grant| Box::pin(desk.here.release(grant).into_future())).collect();
        let [first, second, others @ ..] = &mut releases[..] else { unreachable!() };
        assert!(poll_once(first).await.is_none() && poll_once(second).await.is_none());
        sleep(millis(100)).await; // the driver sends the second one, and the others wait
        for release in others {
            assert!(poll_once(release).await.is_none());
        }
        // Its transaction waits with them, and etcd will refuse the etcd lease that it needs.
        let mut acquire = started_for(&desk.here, "more", &desk.jane, MINUTE).await;
        sleep(millis(50)).await;
        assert!(poll_once(&mut acquire).await.is_none());
        desk.server.run("resume");
        for release in releases {
            release.await.unwrap();
        }
        let refused = acquire.await;
        assert!(matches!(refused, Err(AcquireError::Engine(Error::Refused { .. }))), "{refused:?}");
        assert_eq!(desk.there.status("3").await.unwrap(), None);
    });
}

#[test]
fn a_call_that_is_dropped_while_it_waits_is_not_sent_and_one_under_way_holds_up_nobody() {
    at_desk(|desk| async move {
        let plug = Plug::new(&desk).await;
        let dropped = started(&desk.here, "dropped", &desk.jane).await;
        let kept = started(&desk.here, "kept", &desk.jane).await;
        drop(dropped);
        drop(plug.acquires);
        desk.server.run("resume");
        kept.await.unwrap();
        assert_eq!(owner_of(&desk, "dropped").await, None);
        let again = desk.here.try_acquire("dropped", &desk.joe, MINUTE).await.unwrap();
        desk.here.release(&again).await.unwrap();
    });
}

#[test]
fn a_batch_whose_answer_is_lost_is_asked_for_again() {
    at_desk(|desk| async move {
        let held = desk.here.try_acquire("held", &desk.jane, MINUTE).await.unwrap();
        let plug = Plug::new(&desk).await;
        let mut acquires = Vec::new();
        for i in 0..10 {
            acquires.push(started(&desk.here, i.to_string(), &desk.jane).await);
        }
        let mut release = Box::pin(desk.here.release(&held).into_future());
        assert!(poll_once(&mut release).await.is_none());
        desk.server.run("kill");
        let restarted = async {
            desk.server.run("start");
        };
        let (grants, ()) = zip(all(acquires), restarted).await;
        for (i, grant) in grants.into_iter().enumerate() {
            let grant = grant.unwrap();
            assert_eq!(desk.there.status(i.to_string()).await.unwrap().unwrap().token(), grant.token());
        }
        release.await.unwrap();
        assert!(all(plug.acquires).await.iter().all(Result::is_ok));
        assert_eq!(owner_of(&desk, "held").await, None);
    });
}

#[test]
fn more_than_a_transaction_may_contain_travels_in_several() {
    at_desk(|desk| async move {
        // Each slash is three characters of a key, and each name is in several conditions and operations.
        for name in ["short".to_owned(), "/".repeat(1000)] {
            let plug = Plug::new(&desk).await;
            let mut acquires = Vec::new();
            let owner = Owner::named(name.as_str());
            for i in 0..200 {
                acquires.push(started(&desk.here, Resource::new(i.to_string(), name.as_str()), &owner).await);
            }
            plug.pull().await;
            let grants: Vec<_> = all(acquires).await.into_iter().map(Result::unwrap).collect();
            let tokens: BTreeSet<_> = grants.iter().map(|grant| grant.token()).collect();
            assert!((4..20).contains(&tokens.len()), "{} transactions", tokens.len());
            assert_eq!(desk.here.release_all(&owner).await.unwrap(), 200);
        }
    });
}

#[test]
fn a_tenure_uses_the_etcd_lease_of_an_ended_one_for_its_whole_time() {
    at_desk(|desk| async move {
        for time in [4 * SECOND, 20 * SECOND] {
            let mut ids = BTreeSet::new();
            for _ in 0..20 {
                let grant = desk.here.try_acquire("form", &desk.jane, time).await.unwrap();
                sleep(millis(200)).await;
                ids.append(&mut used(&desk).await);
                desk.here.release(&grant).await.unwrap();
                let grant = desk.here.try_acquire("other", &desk.jane, Expiry::Fixed(time)).await.unwrap();
                let (left, mine) = (record_left(&desk, "other").await, desk.here.remaining(&grant).unwrap());
                assert!(left + SECOND >= mine && left <= time, "{left:?}, {mine:?}");
                ids.append(&mut used(&desk).await);
                desk.here.release(&grant).await.unwrap();
            }
            assert!(ids.len() < 40, "each of 40 tenures has had an etcd lease of its own");
        }
    });
}

async fn record_left(desk: &Desk, resource: &str) -> Duration {
    desk.there.status(resource).await.unwrap().unwrap().remaining().unwrap()
}

#[test]
fn an_etcd_lease_that_two_processes_know_is_not_used_again() {
    at_desk(|desk| async move {
        let before = used(&desk).await;
        for round in 0..9 {
            let begins = if round % 3 == 0 { &desk.there } else { &desk.here };
            let first = begins.try_acquire("form", &desk.jane, MINUTE).await.unwrap();
            let old: BTreeSet<_> = used(&desk).await.difference(&before).copied().collect();
            match round % 3 {
                0 => desk.here.release(&first).await.unwrap(),
                1 => desk.there.release(&first).await.unwrap(),
                _ => {
                    desk.there.try_acquire("form", &desk.jane, 2 * MINUTE).await.unwrap(); // moves it
                    desk.here.release(&first).await.unwrap();
                }
            }
            let mut grants = Vec::new();
            for i in 0..3 {
                grants.push(desk.here.try_acquire(i.to_string(), &desk.joe, MINUTE).await.unwrap());
            }
            assert!(used(&desk).await.is_disjoint(&old));
            for grant in grants {
                desk.there.release(&grant).await.unwrap();
            }
        }
    });
}
