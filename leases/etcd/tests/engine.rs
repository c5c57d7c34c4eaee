//! Tests of the behaviour that only leases in etcd have.

mod common;

use std::{
    collections::BTreeSet,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::{Duration, Instant},
};

use common::{Server, api};
use futures_util::future::{Either, join_all, select};
use keylatch_lease::{
    AcquireError, Expiry, Leases, LookError, Lost, Owner, ReleaseError, RenewError, Resource, Term, Token,
    engine::{Answer, Ask, Engine, Gone, Record, Want},
};
use keylatch_lease_conformance::{
    engine_tests,
    servers::{
        self, LATE, MINUTE, SECOND, Settings, Shared, TestServer, cases, insist, is_quarantined, lock, millis,
        namespace, on_tokio,
    },
};
use keylatch_lease_etcd::{
    Client, ConnectOptions, Error, Etcd,
    client::{Compare, CompareOp, KeyValue, Keys, OpAnswer, Txn, TxnOp},
};
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_secs(600);
const PAUSE: Duration = millis(20);

/// The server that the tests share.
static SHARED: Shared<Server> = Shared::new();

type Desk = servers::Desk<Server>;

fn key_of(kv: &KeyValue) -> String {
    String::from_utf8(kv.key().to_vec()).unwrap()
}

/// The keys and etcd leases on the server.
trait Kept {
    async fn keys(&self) -> Vec<(String, i64)>;
    async fn existing_leases(&self) -> BTreeSet<i64>;
    async fn until_no_lease_is_unused(&self, before: &BTreeSet<i64>);
}

impl Kept for Desk {
    /// Returns the keys of the namespace, except the mark, and their etcd leases. The namespace must need no escaping.
    async fn keys(&self) -> Vec<(String, i64)> {
        let got = api::list(&self.client, format!("keylatch-lease/{}/", self.namespace)).await;
        let all = got.iter().map(|kv| (key_of(kv), kv.lease()));
        all.filter(|(key, _)| !key.ends_with("/l/mark")).collect()
    }

    async fn existing_leases(&self) -> BTreeSet<i64> {
        let existing = self.client.call(api::LeaseLeases {}).await.unwrap();
        existing.leases.iter().map(|lease| lease.id).collect()
    }

    /// Waits until no etcd lease is unused, apart from those that existed before.
    async fn until_no_lease_is_unused(&self, before: &BTreeSet<i64>) {
        let start = Instant::now();
        loop {
            let (marks, keys): (Vec<_>, Vec<_>) =
                self.keys().await.into_iter().partition(|(key, _)| key.contains("/x/"));
            let used: BTreeSet<_> = keys.into_iter().map(|(_, lease)| lease).collect();
            let unused: Vec<_> = self
                .existing_leases()
                .await
                .into_iter()
                .filter(|id| !used.contains(id) && !before.contains(id))
                .collect();
            if unused.is_empty() && marks.is_empty() {
                return;
            }
            assert!(start.elapsed() < 20 * SECOND, "unused etcd leases and marks: {unused:?}, {marks:?}");
            sleep(PAUSE).await;
        }
    }
}

/// Runs a test at a desk on this server.
fn at<F: Future<Output = ()>>(server: &Arc<Server>, test: impl FnOnce(Arc<Desk>) -> F) {
    servers::at_desk(server, Settings::new(namespace(), None).timeout(5 * SECOND), test);
}

fn at_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    at(&SHARED.get(Server::set_up), test);
}

/// Runs a test at a desk at which no waiter asks again without a message.
fn at_patient_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    let settings = Settings::new(namespace(), None).timeout(20 * SECOND).fallback(LATE);
    servers::at_desk(&SHARED.get(Server::set_up), settings, test);
}

/// Runs a test at a desk on a server of its own, which the test may stop, pause or restore.
fn at_desk_of_its_own<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    at(&Arc::new(Server::set_up()), test);
}

engine_tests! { at_patient_desk;
    all_operations_agree_with_each_other
    each_renewal_of_a_batch_has_its_own_term
    a_new_namespace_grants_nothing_until_it_is_opened_or_its_quarantine_has_ended
    any_text_can_name_a_resource_or_an_owner
    owned_by_lists_the_policies
    competing_owners_hold_the_resource_one_at_a_time
    a_dropped_held_lease_is_released
}

/// Returns the output of a future, or `None` if it is not ready after this many polls: then it is dropped.
async fn after_polls<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let (mut future, mut count) = (pin!(future), 0);
    poll_fn(|cx| {
        if count == polls {
            return Poll::Ready(None);
        }
        count += 1;
        match future.as_mut().poll(cx) {
            Poll::Pending if count == polls => Poll::Ready(None),
            polled => polled.map(Some),
        }
    })
    .await
}

async fn record(leases: &Leases<Etcd>, resource: impl Into<Resource>) -> Option<Record> {
    let engine = leases.engine();
    engine.look(&resource.into(), engine.now()).await.unwrap()
}

async fn left(leases: &Leases<Etcd>, resource: impl Into<Resource>) -> Duration {
    record(leases, resource).await.unwrap().remaining.unwrap()
}

#[test]
fn each_tenure_has_an_etcd_lease_of_its_own() {
    at_desk(|desk| async move {
        desk.here.try_acquire("fixed", &desk.jane, Expiry::Fixed(MINUTE)).await.unwrap();
        let sliding = desk.here.try_acquire("sliding", &desk.jane, MINUTE).await.unwrap();
        desk.here.try_acquire("never", &desk.jane, Expiry::Never).await.unwrap();
        let keys = desk.keys().await;
        let leases: BTreeSet<_> = keys.iter().map(|(_, lease)| *lease).collect();
        assert_eq!((keys.len(), leases.len()), (6, 3), "{keys:?}");
        assert!(leases.contains(&0), "a tenure that never expires is attached to an etcd lease");
        sleep(4 * SECOND).await;
        desk.here.renew(&sliding).await.unwrap();
        let (renewed, fixed) = (left(&desk.there, "sliding").await, left(&desk.there, "fixed").await);
        assert!(fixed <= 56 * SECOND, "a renewal of another resource extended it");
        assert!(renewed >= fixed + 2 * SECOND, "{renewed:?}, {fixed:?}");
    });
}

#[test]
fn the_end_is_never_brought_forward_and_a_later_end_needs_another_etcd_lease() {
    at_desk_of_its_own(|desk| async move {
        let before = desk.existing_leases().await;
        let first = desk.here.try_acquire("form", &desk.jane, 10 * SECOND).await.unwrap();
        let longer = desk.there.try_acquire("form", &desk.jane, 100 * SECOND).await.unwrap();
        assert_eq!(longer.token(), first.token());
        assert!(left(&desk.here, "form").await > 90 * SECOND);
        desk.here.renew(&first).await.unwrap();
        assert!(left(&desk.here, "form").await > 90 * SECOND, "a renewal shortened the lease");
        desk.here.try_acquire("form", &desk.jane, 10 * SECOND).await.unwrap();
        assert!(left(&desk.here, "form").await > 90 * SECOND, "acquiring for less time shortened the lease");
        let forever = desk.here.try_acquire("form", &desk.jane, Expiry::Never).await.unwrap();
        assert_eq!((forever.token(), desk.here.remaining(&forever)), (first.token(), None));
        desk.here.try_acquire("form", &desk.jane, 10 * SECOND).await.unwrap();
        assert_eq!(record(&desk.there, "form").await.unwrap().remaining, None);
        desk.until_no_lease_is_unused(&before).await;
        desk.there.release(&first).await.unwrap();
        assert_eq!(desk.keys().await, []);
    });
}

#[test]
fn a_total_limit_is_kept_to_a_few_seconds() {
    at_desk(|desk| async move {
        let expiry = Expiry::SlidingUpTo { idle: 4 * SECOND, total: 7 * SECOND };
        let start = Instant::now();
        let mut grant = desk.here.try_acquire("form", &desk.jane, expiry).await.unwrap();
        loop {
            sleep(millis(300)).await;
            match desk.there.renew(&grant).await {
                Ok(renewed) => grant = renewed,
                Err(RenewError::Lost(Lost::Expired)) => break,
                Err(error) => panic!("{error}"),
            }
            assert!(start.elapsed() < 30 * SECOND, "the lease does not end");
        }
        assert!(start.elapsed() >= 5 * SECOND, "the lease ended after {:?}", start.elapsed());
        assert!(start.elapsed() <= 25 * SECOND, "the lease ended after {:?}", start.elapsed());
    });
}

#[test]
fn fresh_tenures_alternate_between_two_slots() {
    at_desk_of_its_own(|desk| async move {
        let before = desk.existing_leases().await;
        let mut last = desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        let mut seen = BTreeSet::new();
        for _ in 0..5 {
            let fresh = desk.there.try_acquire("form", &desk.jane, LONG).fresh_token().await.unwrap();
            assert!(fresh.token() > last.token());
            assert!(matches!(desk.here.renew(&last).await, Err(RenewError::Lost(Lost::TakenOver))));
            let keys = desk.keys().await;
            assert_eq!(keys.len(), 2, "{keys:?}");
            seen.extend(keys.into_iter().map(|(key, _)| key));
            let refused = desk.there.try_acquire("form", &desk.joe, LONG).fresh_token().await;
            assert!(matches!(refused, Err(AcquireError::Busy { owner, .. }) if owner == desk.jane));
            last = fresh;
        }
        assert_eq!(seen.len(), 4);
        desk.until_no_lease_is_unused(&before).await;
    });
}

#[test]
fn a_refused_acquire_leaves_no_etcd_lease() {
    at_desk_of_its_own(|desk| async move {
        let before = desk.existing_leases().await;
        desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        for _ in 0..20 {
            let refused = desk.there.try_acquire("form", &desk.joe, LONG).await;
            let Err(AcquireError::Busy { owner, remaining: Some(left), .. }) = refused else { panic!("{refused:?}") };
            assert!(owner == desk.jane && left <= LONG && left > LONG / 2);
        }
        for _ in 0..20 {
            desk.there.acquire("form", &desk.joe, LONG).until(sleep(PAUSE)).await.unwrap_err();
        }
        desk.until_no_lease_is_unused(&before).await;
    });
}

#[test]
fn an_acquire_that_is_dropped_at_any_point_leaves_no_unused_etcd_lease() {
    at_desk_of_its_own(|desk| async move {
        let before = desk.existing_leases().await;
        desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        let prefix = format!("keylatch-lease/{}/l/free/", desk.namespace);
        let mut deleted = api::watch_deletions(&desk.client, &prefix).await.unwrap();
        // Every 24th round runs to its end, however many polls that takes.
        let polls_of = |round: u32| if round % 24 == 23 { u32::MAX } else { round % 24 };
        for round in 0..72 {
            let polls = polls_of(round);
            let longer = LONG + Duration::from_secs(round.into());
            after_polls(polls, desk.there.try_acquire("form", &desk.joe, LONG)).await;
            after_polls(polls, desk.there.try_acquire("form", &desk.jane, longer)).await;
            // The tenure begins without the caller knowing, or it does not begin.
            let free = Resource::new("free", round.to_string());
            after_polls(polls, desk.there.try_acquire(&free, &desk.jane, LONG)).await;
            desk.there.try_acquire(&free, &desk.jane, LONG).await.unwrap();
        }
        desk.until_no_lease_is_unused(&before).await;
        assert_eq!(record(&desk.here, "form").await.unwrap().owner, desk.jane);
        // The second acquire found the tenure that the dropped one had begun: nothing was deleted before this release.
        desk.here.release_as(("free", "7"), &desk.jane).await.unwrap();
        let first = deleted.next().await.unwrap().unwrap();
        let keys: Vec<_> = first.events.iter().map(|event| key_of(event.kv.as_ref().unwrap())).collect();
        assert_eq!(keys, [format!("{prefix}7/0")]);
        for round in 0..24 {
            // The new policy needs no etcd lease, so the old one becomes unused.
            let endless = Resource::new("endless", round.to_string());
            desk.here.try_acquire(&endless, &desk.jane, LONG).await.unwrap();
            after_polls(polls_of(round), desk.there.try_acquire(&endless, &desk.jane, Expiry::Never)).await;
        }
        desk.until_no_lease_is_unused(&before).await;
    });
}

#[test]
fn an_acquire_that_a_silent_server_did_not_answer_leaves_no_unused_etcd_lease() {
    at_desk_of_its_own(|desk| async move {
        let before = desk.existing_leases().await;
        desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        desk.server.run("pause");
        let dropped = async {
            for round in 0..20 {
                let acquire = desk.there.try_acquire("form", &desk.joe, LONG);
                let _ = timeout(millis(4 * round), acquire).await;
            }
        };
        let (refused, moved, ()) = tokio::join!(
            desk.there.try_acquire("form", &desk.joe, LONG),
            desk.there.try_acquire("form", &desk.jane, LONG * 2),
            dropped
        );
        assert!(refused.is_err() && moved.is_err(), "{refused:?} {moved:?}");
        desk.server.run("resume");
        // The earlier requests have arrived once a later one is answered.
        let other = desk.there.try_acquire("other", &desk.jane, LONG).await.unwrap();
        desk.there.release(&other).await.unwrap();
        desk.until_no_lease_is_unused(&before).await;
        assert_eq!(record(&desk.here, "form").await.unwrap().owner, desk.jane);
    });
}

#[test]
fn a_dropped_acquire_leaves_no_etcd_lease_after_its_time() {
    at_desk_of_its_own(|desk| async move {
        let before = desk.existing_leases().await;
        for round in 0..40 {
            let resource = Resource::new("dropped", round.to_string());
            let acquire = desk.here.try_acquire(resource, &desk.jane, 3 * SECOND);
            let _ = timeout(Duration::from_micros(100 * round), acquire).await;
        }
        desk.until_no_lease_is_unused(&before).await;
        let start = Instant::now();
        while !desk.keys().await.is_empty() {
            assert!(start.elapsed() < 20 * SECOND);
            sleep(PAUSE).await;
        }
        desk.until_no_lease_is_unused(&before).await;
    });
}

#[test]
fn a_lease_that_is_too_short_is_refused_with_the_shortest_time() {
    at_desk(|desk| async move {
        for time in [Duration::from_nanos(1), millis(900), SECOND] {
            let refused = desk.here.try_acquire("form", &desk.jane, time).await;
            let is_right = matches!(refused, Err(AcquireError::TtlTooShort { min, .. }) if min == 2 * SECOND);
            assert!(is_right, "{refused:?}");
        }
        assert_eq!(desk.keys().await, []);
        // etcd's time is rounded up to whole seconds; the grant counts the requested time.
        let grant = desk.here.try_acquire("form", &desk.jane, millis(1001)).await.unwrap();
        assert!(desk.here.remaining(&grant).unwrap() <= millis(1001));
        let very_long = desk.here.try_acquire("other", &desk.jane, Duration::MAX / 2).await.unwrap();
        assert_eq!(record(&desk.there, "other").await.unwrap().remaining, None);
        desk.here.release(&very_long).await.unwrap();
    });
}

/// Returns the number of leases that were released, and the number of revisions that this took.
async fn release_all_of(desk: &Desk, owner: &Owner, count: usize) -> (usize, usize) {
    for at in 0..count {
        desk.here.try_acquire(("row", format!("{owner} {at}")), owner, LONG).await.unwrap();
    }
    let prefix = format!("keylatch-lease/{}/l/", desk.namespace);
    let mut heard = api::watch_deletions(&desk.client, &prefix).await.unwrap();
    let released = desk.there.release_all(owner).await.unwrap();
    let (mut revisions, mut events) = (BTreeSet::new(), 0);
    while events < released {
        let message = heard.next().await.unwrap().unwrap();
        events += message.events.len();
        revisions.extend(message.events.iter().map(|event| event.kv.as_ref().unwrap().mod_revision()));
    }
    (released, revisions.len())
}

#[test]
fn up_to_127_leases_are_released_at_one_instant_and_more_in_portions() {
    at_desk(|desk| async move {
        let (ann, bob, cid) = (Owner::named("ann"), Owner::named("bob"), Owner::named("cid"));
        desk.here.try_acquire("other", &cid, LONG).await.unwrap();
        assert_eq!(release_all_of(&desk, &ann, 127).await, (127, 1));
        assert_eq!(release_all_of(&desk, &bob, 128).await, (128, 2));
        assert_eq!(release_all_of(&desk, &bob, 300).await, (300, 5));
        assert_eq!(desk.here.owned_by(&bob).await.unwrap(), []);
        assert_eq!(desk.there.release_all(&bob).await.unwrap(), 0);
        assert_eq!(desk.here.owned_by(&cid).await.unwrap().len(), 1);
        assert_eq!(desk.keys().await.len(), 2);
    });
}

#[test]
fn a_tenure_acquired_during_a_release_all_is_never_halved() {
    at_desk(|desk| async move {
        let (here, there) = (&desk.here, &desk.there);
        let acquire = async {
            for at in 0..600 {
                here.try_acquire(("n", at.to_string()), &desk.jane, Expiry::Never).await.unwrap();
                sleep(millis(at % 16)).await;
            }
        };
        let release = async {
            loop {
                there.release_all(&desk.jane).await.unwrap();
            }
        };
        futures_lite::future::or(acquire, release).await;
        let owned = there.owned_by(&desk.jane).await.unwrap();
        for at in 0..600 {
            let resource = Resource::new("n", at.to_string());
            if there.status(&resource).await.unwrap().is_some() {
                assert!(owned.iter().any(|owned| *owned.resource() == resource), "{at}: half of it is gone");
                there.release_as(&resource, &desk.jane).await.unwrap();
            }
        }
        assert_eq!(desk.keys().await, []);
    });
}

#[test]
fn a_tenure_whose_owners_key_was_deleted_can_be_released() {
    at_desk(|desk| async move {
        let key = format!("keylatch-lease/{}/o/{}//form/0", desk.namespace, desk.jane.id());
        for is_dropped in [false, true] {
            let held = desk.here.hold("form", &desk.jane, LONG).await.unwrap();
            assert_eq!(desk.client.delete(key.clone()).await.unwrap(), 1);
            let wrong = desk.there.release_as("form", &desk.joe).await;
            assert!(matches!(wrong, Err(ReleaseError::NotOwner { .. })), "{wrong:?}");
            if is_dropped {
                drop(held)
            } else {
                held.release().await.unwrap()
            }
            let grant = timeout(20 * SECOND, desk.there.acquire("form", &desk.joe, LONG)).await.unwrap().unwrap();
            desk.there.release(&grant).await.unwrap();
        }
        assert_eq!(desk.keys().await, []);
    });
}

#[test]
fn an_expired_tenure_is_not_revived_by_another_etcd_lease() {
    at_desk(|desk| async move {
        let Desk { here, jane, .. } = &*desk;
        let expiry = &Expiry::SlidingUpTo { idle: 2 * SECOND, total: MINUTE };
        let late = join_all((0..40).map(|at| async move {
            sleep(25 * at * millis(1)).await;
            let grant = here.try_acquire(at.to_string(), jane, expiry).await.unwrap();
            sleep(millis(2100)).await;
            here.renew(&grant).await
        }));
        for renewed in late.await {
            assert!(matches!(renewed, Err(RenewError::Lost(Lost::Expired))), "{renewed:?}");
        }
    });
}

#[test]
fn a_renewal_during_a_move_to_a_shorter_etcd_lease_keeps_its_promise() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, .. } = &*desk;
        let all = join_all((0..100).map(|at| async move {
            let resource = &Resource::new("moved", at.to_string());
            let grant = here.try_acquire(resource, jane, 20 * SECOND).await.unwrap();
            sleep(9 * SECOND).await;
            let moved = there.try_acquire(resource, jane, 12 * SECOND);
            let (renewed, moved) = futures_lite::future::zip(here.renew(&grant), moved).await;
            moved.unwrap();
            (left(there, resource).await, here.remaining(&renewed.unwrap()).unwrap())
        }));
        let wrong: Vec<_> = all.await.into_iter().filter(|(left, told)| *left + SECOND < *told).collect();
        assert_eq!(wrong, []);
    });
}

#[test]
fn a_resource_with_keys_in_both_slots_is_released_once() {
    at_desk(|desk| async move {
        let root = format!("keylatch-lease/{}", desk.namespace);
        desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        desk.here.try_acquire("form", &desk.jane, LONG).fresh_token().await.unwrap();
        assert_eq!(desk.client.delete(format!("{root}/l//form/1")).await.unwrap(), 1);
        desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        assert_eq!(desk.keys().await.len(), 3);
        assert_eq!(desk.there.owned_by(&desk.jane).await.unwrap().len(), 1);
        assert_eq!(desk.there.release_all(&desk.jane).await.unwrap(), 1);
        assert_eq!(desk.keys().await, []);
    });
}

#[test]
fn owned_by_lists_the_policy_of_the_last_acquire() {
    at_desk(|desk| async move {
        let engine = desk.there.engine();
        for time in [LONG, 2 * LONG, LONG] {
            desk.here.try_acquire("form", &desk.jane, time).await.unwrap();
            let owned = engine.owned_by(&desk.jane, engine.now()).await.unwrap();
            assert_eq!(owned[0].expiry, Some(Expiry::Sliding(time)));
        }
    });
}

#[test]
fn any_text_is_a_namespace_and_namespaces_are_independent() {
    at_desk(|desk| async move {
        let names = ["", "/", "a", "a/l", "a/l/x", "%", "%2F", "\0", "\u{1f512}", " ", "keylatch-lease"];
        let all: Vec<_> =
            names.iter().map(|name| desk.server.leases(Etcd::in_namespace(format!("odd-{name}")))).collect();
        for (leases, name) in all.iter().zip(names) {
            leases.engine().init().await.unwrap();
            let grant = leases.try_acquire("form", &desk.jane, LONG).await.unwrap();
            assert!(!grant.is_resumed(), "{name:?}");
        }
        for leases in &all {
            assert_eq!(leases.release_all(&desk.jane).await.unwrap(), 1);
        }
    });
}

#[test]
#[should_panic(expected = "longer than 255 bytes")]
fn a_namespace_that_is_too_long_panics() {
    let _ = Etcd::in_namespace("n".repeat(256));
}

#[test]
fn a_foreign_value_is_an_error_and_stays() {
    at_desk(|desk| async move {
        let root = format!("keylatch-lease/{}", desk.namespace);
        for key in [format!("{root}/l//form/0"), format!("{root}/l//other/x"), format!("{root}/l/odd"), root.clone()] {
            desk.client.put(key, "\u{0}hello").await.unwrap();
        }
        for resource in ["form", "other"] {
            let refused = desk.here.try_acquire(resource, &desk.jane, LONG).await;
            assert!(matches!(refused, Err(AcquireError::Engine(Error::Unreadable))), "{refused:?}");
            let status = desk.here.status(resource).await;
            assert!(matches!(status, Err(LookError::Engine(Error::Unreadable))), "{status:?}");
        }
        let grant = desk.here.try_acquire("third", &desk.jane, LONG).await.unwrap();
        desk.here.release(&grant).await.unwrap();
        assert_eq!(desk.keys().await.len(), 3);
    });
}

#[test]
fn deleting_half_a_tenure_by_hand_harms_no_other_tenure() {
    at_desk(|desk| async move {
        let root = format!("keylatch-lease/{}", desk.namespace);
        let old = desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        desk.here.try_acquire("other", &desk.jane, LONG).await.unwrap();
        desk.client.delete(format!("{root}/l//form/0")).await.unwrap();
        assert!(matches!(desk.here.renew(&old).await, Err(RenewError::Lost(_))));
        let new = desk.there.try_acquire("form", &desk.joe, LONG).await.unwrap();
        assert!(new.token() > old.token());
        assert_eq!(desk.here.owned_by(&desk.jane).await.unwrap().len(), 1);
        assert!(matches!(desk.here.release(&old).await, Err(ReleaseError::NotOwner { .. })));
        assert_eq!(desk.here.release_all(&desk.jane).await.unwrap(), 1);
        assert_eq!(desk.there.status("form").await.unwrap().unwrap().token(), new.token());
    });
}

#[test]
fn revoking_the_etcd_lease_frees_the_resource_by_force() {
    at_desk(|desk| async move {
        let old = desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        let there = &desk.there;
        let waiting = there.acquire("form", &desk.joe, LONG);
        let force = async {
            while there.status("form").await.unwrap().unwrap().waiters() == 0 {
                sleep(PAUSE).await;
            }
            let id = desk.keys().await[0].1;
            desk.client.call(api::LeaseRevoke { id }).await.unwrap();
        };
        let (new, ()) = futures_lite::future::zip(waiting, force).await;
        assert!(new.unwrap().token() > old.token());
        assert!(matches!(desk.here.renew(&old).await, Err(RenewError::Lost(Lost::TakenOver))));
    });
}

#[test]
fn a_guarded_transaction_succeeds_only_under_the_lease() {
    at_desk(|desk| async move {
        let key = format!("guarded-{}", desk.namespace);
        let grant = desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        let write = async |grant, text| {
            let put = TxnOp::put(key.clone(), text);
            let txn = Txn::new().when([desk.there.engine().guard(grant)]).and_then([put]);
            desk.client.txn(txn).await.unwrap().succeeded()
        };
        assert!(write(&grant, "a").await);
        let longer = desk.here.try_acquire("form", &desk.jane, 2 * LONG).await.unwrap();
        assert!(
            write(&grant, "b").await && write(&longer, "c").await,
            "moving the tenure to another etcd lease made the guard stale"
        );
        let fresh = desk.here.try_acquire("form", &desk.jane, LONG).fresh_token().await.unwrap();
        assert!(!write(&grant, "d").await, "the guard of an earlier tenure passed");
        assert!(write(&fresh, "e").await);
        desk.here.release(&fresh).await.unwrap();
        assert!(!write(&fresh, "f").await, "a guard passed after the release");
        let next = desk.there.try_acquire("form", &desk.joe, LONG).await.unwrap();
        assert!(!write(&fresh, "g").await, "a guard passed under a successor");
        assert!(write(&next, "h").await);
        let beyond = Token::new(u64::MAX).unwrap();
        let engine = desk.here.engine();
        let gone = engine.release(&"form".into(), &desk.joe, Some(beyond), engine.now()).await.unwrap();
        assert_eq!(gone, Gone::NotOwner(desk.joe.clone()));
        assert_eq!(desk.client.get(key.clone()).await.unwrap()[0].value(), b"h");
    });
}

#[test]
fn a_guard_has_the_values_that_any_other_client_must_compare() {
    at_desk(|desk| async move {
        let grant = desk.here.try_acquire("form", &Owner::named("ann"), LONG).await.unwrap();
        let guard = desk.here.engine().guard(&grant);
        let is_met = async |revision| {
            let compare = Compare::create_revision(Keys::prefix(guard.key_prefix()), CompareOp::Equal, revision);
            desk.client.txn(Txn::new().when([compare])).await.unwrap().succeeded()
        };
        assert!(is_met(guard.create_revision()).await);
        desk.here.release(&grant).await.unwrap();
        assert!(!is_met(guard.create_revision()).await);
        assert!(is_met(0).await, "a key exists without a tenure");
    });
}

#[test]
fn a_transaction_answers_each_of_its_operations() {
    at_desk(|desk| async move {
        let key = |name: &str| format!("txn-{}/{name}", desk.namespace);
        let (client, all) = (&desk.client, Keys::prefix(key("")));
        let puts = ["a", "b"].map(|name| TxnOp::put(key(name), name));
        let is_new = Compare::version(all.clone(), CompareOp::Equal, 0);
        assert!(client.txn(Txn::new().when([is_new.clone()]).and_then(puts)).await.unwrap().succeeded());
        let inner =
            Txn::new().when([Compare::value(key("a"), CompareOp::Equal, "a")]).and_then([TxnOp::take(key("a"))]);
        let otherwise =
            [TxnOp::get(all.clone()), TxnOp::get_keys(key("b")), TxnOp::txn(inner), TxnOp::put(key("c"), "c")];
        let answer = client.txn(Txn::new().when([is_new]).or_else(otherwise)).await.unwrap();
        assert!(!answer.succeeded() && answer.revision() > 0);
        let [OpAnswer::Got(got), OpAnswer::Got(without_values), OpAnswer::Txn(inner), OpAnswer::Put] = answer.answers()
        else {
            panic!("{answer:?}")
        };
        assert_eq!(got.iter().map(KeyValue::value).collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!((without_values.len(), without_values[0].value()), (1, &b""[..]));
        assert!(inner.succeeded());
        let [OpAnswer::Deleted { count: 1, previous }] = inner.answers() else { panic!("{inner:?}") };
        assert_eq!(previous[0].value(), b"a");
        assert_eq!(client.delete(all).await.unwrap(), 2);
    });
}

#[test]
fn a_waiter_is_notified_of_a_release_after_a_compaction() {
    at_desk_of_its_own(|desk| async move {
        let grant = desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        let (there, client) = (&desk.there, &desk.client);
        let waiting = there.acquire("form", &desk.joe, LONG);
        let release = async {
            while there.status("form").await.unwrap().unwrap().waiters() == 0 {
                sleep(PAUSE).await;
            }
            let revision = client.put("something", "else").await.unwrap();
            client.call(api::Compact { revision }).await.unwrap();
            desk.here.release(&grant).await.unwrap();
        };
        let (new, ()) = futures_lite::future::zip(waiting, release).await;
        assert!(new.unwrap().token() > grant.token());
    });
}

/// Returns the number of open connections to this port.
fn connections(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!(":{port:04X}");
    let is_it = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(2).is_some_and(|address| address.ends_with(&remote)) && words.get(3) == Some(&"01")
    };
    table.lines().filter(is_it).count()
}

#[test]
#[cfg(target_os = "linux")]
fn an_engine_has_one_connection_for_any_number_of_waiters() {
    let server = Arc::new(Server::set_up());
    on_tokio(async {
        let port = server.address().port();
        let before = connections(port); // those of the server itself
        let leases = server.leases(Etcd::in_namespace("one"));
        let (ann, bob) = (Owner::named("ann"), Owner::named("bob"));
        leases.engine().init().await.unwrap();
        assert_eq!(connections(port), before + 1);
        for at in 0..50 {
            leases.try_acquire(at.to_string(), &ann, LONG).await.unwrap();
        }
        let waiting = (0..50).map(|at| leases.acquire(at.to_string(), &bob, LONG).until(sleep(SECOND)));
        let mut waiting: Vec<_> = waiting.map(|waiting| Box::pin(async { waiting.await.is_err() })).collect();
        for waiting in &mut waiting {
            assert!(futures_lite::future::poll_once(waiting).await.is_none());
        }
        sleep(SECOND).await;
        assert_eq!(connections(port), before + 1);
        drop(waiting);
        drop(leases);
        let start = Instant::now();
        while connections(port) > before {
            assert!(start.elapsed() < 20 * SECOND, "the connection stays open after the engine was dropped");
            sleep(PAUSE).await;
        }
    });
}

#[test]
fn a_restart_keeps_leases_and_restarts_their_time() {
    at_desk_of_its_own(|desk| async move {
        let grant = desk.here.try_acquire("form", &desk.jane, Expiry::Fixed(30 * SECOND)).await.unwrap();
        sleep(4 * SECOND).await;
        let before = record(&desk.there, "form").await.unwrap();
        assert!(before.held_for >= 3 * SECOND && before.remaining <= Some(26 * SECOND), "{before:?}");
        desk.server.run("kill");
        desk.server.run("start");
        let after = record(&desk.there, "form").await.unwrap();
        assert_eq!(after.token, grant.token());
        assert!(after.remaining > before.remaining && after.held_for < before.held_for, "{after:?}");
        // The holder still counts the time that it was given.
        assert!(desk.here.remaining(&grant).unwrap() <= 26 * SECOND);
        desk.here.release(&grant).await.unwrap();
        assert!(desk.there.try_acquire("form", &desk.joe, LONG).await.unwrap().token() > grant.token());
    });
}

#[test]
fn an_unreachable_server_is_an_error_in_time_that_contains_no_address() {
    on_tokio(async {
        let user = ConnectOptions::new().with_user("bob", "secret");
        for options in [None, Some(user)] {
            let engine = Etcd::in_namespace("x").timeout(millis(300)).connect(["http://127.0.0.1:1"], options);
            let text = cases::an_unreachable_server_is_an_error_in_time::<Server>(engine).await;
            assert!(!text.contains("127") && !text.contains("bob"), "{text}");
        }
    });
}

#[test]
fn a_silent_server_is_an_error_in_time() {
    at_desk_of_its_own(|desk| async move {
        let leases = desk.server.opened(Etcd::in_namespace("x").timeout(SECOND)).await;
        desk.server.run("pause");
        let start = Instant::now();
        let refused = leases.try_acquire("form", &"ann".into(), LONG).await;
        assert!(matches!(refused, Err(AcquireError::Engine(_))), "{refused:?}");
        assert!(start.elapsed() < 20 * SECOND);
        desk.server.run("resume");
        let start = Instant::now();
        while leases.try_acquire("form", &"ann".into(), LONG).await.is_err() {
            assert!(start.elapsed() < 30 * SECOND);
        }
    });
}

#[test]
fn an_engine_without_a_driver_is_stopped() {
    on_tokio(async {
        let (engine, driver) = Etcd::in_namespace("x").connect_with(std::future::pending);
        cases::an_engine_without_a_driver_is_stopped::<Server>(engine, driver).await;
    });
}

#[test]
fn the_engine_runs_on_another_runtime() {
    at_desk(|desk| async move {
        tokio::task::block_in_place(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| cases::the_engine_runs_on_another_runtime(&desk.here));
            });
        });
    });
}

#[test]
fn the_driver_of_a_dropped_engine_ends_although_the_server_is_silent() {
    let server = Server::set_up();
    let connect = |_| {
        let endpoint = server.endpoints().remove(0);
        let dial = move || {
            let endpoint = endpoint.clone();
            async move { Ok(Client::connect([endpoint], None).await?) }
        };
        Etcd::in_namespace("x").timeout(5 * SECOND).connect_with(dial)
    };
    on_tokio(cases::the_driver_of_a_dropped_engine_ends_although_the_server_is_silent(&server, connect));
}

#[test]
fn a_role_needs_only_the_prefix_and_a_wrong_password_is_an_error_at_once() {
    at_desk_of_its_own(|desk| async move {
        let client = &desk.client;
        api::add_user(client, "root", "root").await;
        client.call(api::RoleAdd { name: "shop".into() }).await.unwrap();
        let (kind, key) = (api::Permission::READ_AND_WRITE, "keylatch-lease/shop/");
        let permission = Some(api::Permission { kind, key: key.into(), range_end: api::end_of(key) });
        client.call(api::RoleGrantPermission { name: "shop".into(), permission }).await.unwrap();
        api::add_user(client, "clerk", "shop").await;
        client.call(api::AuthEnable {}).await.unwrap();
        let connect = |namespace: &str, password: &str| {
            let options = ConnectOptions::new().with_user("clerk", password);
            let etcd = Etcd::in_namespace(namespace).timeout(MINUTE).connect(desk.server.endpoints(), Some(options));
            Leases::with_engine(etcd)
        };
        let leases = connect("shop", "secret");
        leases.engine().init().await.unwrap();
        let grant = leases.try_acquire("form", &desk.jane, LONG).await.unwrap();
        let waiting = leases.acquire("form", &desk.joe, LONG);
        let release = async {
            leases.renew(&grant).await.unwrap();
            leases.release(&grant).await.unwrap();
        };
        let (next, ()) = futures_lite::future::zip(waiting, release).await;
        assert!(next.unwrap().token() > grant.token());
        assert_eq!(leases.release_all(&desk.joe).await.unwrap(), 1);
        for (namespace, password) in [("shop", "wrong"), ("other", "secret")] {
            let start = Instant::now();
            let refused = connect(namespace, password).try_acquire("form", &desk.jane, LONG).await;
            let is_right = matches!(refused, Err(AcquireError::Engine(Error::Refused { .. })));
            assert!(is_right, "{namespace}: {refused:?}");
            assert!(start.elapsed() < 30 * SECOND, "{namespace}: the error took {:?}", start.elapsed());
        }
    });
}

#[test]
fn an_engine_survives_a_change_of_roles_with_tokens_that_contain_a_revision() {
    let key = std::env::temp_dir().join(format!("keylatch-etcd-jwt-{}", std::process::id()));
    std::fs::write(&key, "a secret of no worth").unwrap();
    let flags = format!("--auth-token=jwt,sign-method=HS256,priv-key={}", key.display());
    at(&Arc::new(Server::start(1, flags.leak())), |desk| async move {
        for user in ["root", "clerk"] {
            api::add_user(&desk.client, user, "root").await;
        }
        desk.client.call(api::AuthEnable {}).await.unwrap();
        let user = |name: &str| Some(ConnectOptions::new().with_user(name, "secret"));
        let root = Client::connect(desk.server.endpoints(), user("root")).await.unwrap();
        let clerk = Etcd::in_namespace("shop").connect(desk.server.endpoints(), user("clerk"));
        let (ann, leases) = (Owner::named("ann"), Leases::with_engine(clerk));
        leases.engine().init().await.unwrap();
        let grant = leases.try_acquire("form", &ann, LONG).await.unwrap();
        let another = || "another".to_owned();
        root.call(api::RoleAdd { name: another() }).await.unwrap();
        leases.renew(&grant).await.unwrap();
        // The client's login token is older than this change too, so the client logs in again.
        root.call(api::RoleDelete { role: another() }).await.unwrap();
        leases.release(&grant).await.unwrap();
    });
    std::fs::remove_file(key).unwrap();
}

/// The server forgets the login tokens of a user whose password changes.
#[test]
fn each_connection_uses_the_credentials_of_its_time() {
    at_desk_of_its_own(|desk| async move {
        for user in ["root", "clerk"] {
            api::add_user(&desk.client, user, "root").await;
        }
        desk.client.call(api::AuthEnable {}).await.unwrap();
        let user = |name: &str, password: &str| Some(ConnectOptions::new().with_user(name, password));
        let root = Client::connect(desk.server.endpoints(), user("root", "secret")).await.unwrap();

        let source = Arc::new(Mutex::new("secret"));
        let (known, endpoints) = (Arc::clone(&source), desk.server.endpoints());
        let (etcd, driver) = Etcd::in_namespace("shop").timeout(5 * SECOND).connect_with(move || {
            let (endpoints, options) = (endpoints.clone(), user("clerk", *lock(&known)));
            async move { Ok(Client::connect(endpoints, options).await?) }
        });
        tokio::spawn(driver);
        let leases = Leases::with_engine(etcd);
        leases.engine().init().await.unwrap();
        let grant = leases.try_acquire("form", &desk.jane, LONG).await.unwrap();

        // The new password is on the server, and not yet at its source.
        root.call(api::UserChangePassword { name: "clerk".into(), password: "new".into() }).await.unwrap();
        while !matches!(leases.renew(&grant).await, Err(RenewError::Engine(Error::Refused { .. }))) {
            sleep(PAUSE).await;
        }
        *lock(&source) = "new";
        while leases.renew(&grant).await.is_err() {
            sleep(PAUSE).await;
        }
        assert_eq!(leases.status("form").await.unwrap().unwrap().token(), grant.token());
    });
}

#[test]
fn a_client_whose_token_the_server_forgot_logs_in_again() {
    at_desk_of_its_own(|desk| async move {
        api::add_user(&desk.client, "root", "root").await;
        desk.client.call(api::AuthEnable {}).await.unwrap();
        let user = ConnectOptions::new().with_user("root", "secret");
        let root = Client::connect(desk.server.endpoints(), Some(user)).await.unwrap();
        root.put("a", "b").await.unwrap();
        // Login tokens of the default kind exist only in the node's memory.
        desk.server.run("kill");
        desk.server.run("start");
        let start = Instant::now();
        while let Err(error) = root.put("a", "c").await {
            assert!(error.code().is_none() && start.elapsed() < 20 * SECOND, "{error}");
            sleep(PAUSE).await;
        }
    });
}

#[test]
fn leases_survive_the_death_of_the_leader() {
    let server = Arc::new(Server::start(3, ""));
    on_tokio(async {
        let leases = || server.leases(Etcd::in_namespace("three").timeout(5 * SECOND));
        let (here, there) = (Arc::new(leases()), Arc::new(leases()));
        here.engine().init().await.unwrap();
        let (ann, bob) = (Owner::named("ann"), Owner::named("bob"));
        let mut last = None;
        for _ in 0..2 {
            let mut held = here.hold("form", &ann, 12 * SECOND).await.unwrap();
            assert!(last < Some(held.token()));
            let waiting = {
                let (there, bob) = (Arc::clone(&there), bob.clone());
                tokio::spawn(async move {
                    loop {
                        match there.acquire("form", &bob, LONG).await {
                            Ok(grant) => return grant,
                            Err(AcquireError::Engine(_)) => sleep(PAUSE).await,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            };
            let leader = server.leader().await;
            let fell = async {
                server.run_on(leader, "kill");
                // This is longer than the lease lasts, so the new leader must renew the lease.
                sleep(14 * SECOND).await;
            };
            held.run(fell).await.unwrap();
            assert!(!waiting.is_finished(), "another owner has the held resource");
            let token = held.token();
            held.release().await.unwrap();
            let next = timeout(20 * SECOND, waiting).await.unwrap().unwrap();
            assert!(next.token() > token);
            last = Some(next.token());
            there.release(&next).await.unwrap();
            server.run_on(leader, "start");
        }
    });
}

#[test]
fn an_engine_leaves_a_node_that_is_cut_off_from_its_cluster() {
    let server = Arc::new(Server::start(3, ""));
    on_tokio(async {
        let leases = server.opened(Etcd::in_namespace("three").timeout(10 * SECOND)).await;
        let ann = Owner::named("ann");
        let grant = leases.try_acquire("form", &ann, LONG).await.unwrap();
        for node in 0..3 {
            server.run_on(node, "pause");
            let start = Instant::now();
            while leases.renew(&grant).await.is_err() {
                assert!(start.elapsed() < 40 * SECOND, "node {node}");
            }
            server.run_on(node, "resume");
        }
        leases.release(&grant).await.unwrap();
    });
}

#[test]
fn each_want_gets_its_answer() {
    at_desk(|desk| async move {
        let (ann, bob) = (&Owner::named("ann"), &Owner::named("bob"));
        let (resource, expiry) = (&Resource::from("form"), &Expiry::Sliding(LONG));
        let term = Some(Term { idle: Some(LONG), total: None });
        let engine = desk.here.engine();
        for waiting in [false, true] {
            let ask = async |owner, want, term| {
                engine.acquire(Ask { resource, owner, want, term, expiry, waiting, at: engine.now() }).await.unwrap()
            };
            assert_eq!(ask(ann, Want::Mine, term).await, Answer::Free);
            let Answer::Granted { token, resumed: false, .. } = ask(ann, Want::New, term).await else { panic!() };
            for want in [Want::Any, Want::Mine] {
                let again = ask(ann, want, term).await;
                assert!(matches!(again, Answer::Granted { token: of, resumed: true, .. } if of == token), "{again:?}");
                assert!(matches!(ask(bob, want, term).await, Answer::Busy { owner, .. } if owner == *ann));
            }
            assert!(matches!(ask(ann, Want::New, term).await, Answer::Busy { owner, .. } if owner == *ann));
            assert!(matches!(ask(bob, Want::Fresh, term).await, Answer::Busy { owner, .. } if owner == *ann));
            let Answer::Granted { token: fresh, resumed: false, .. } = ask(ann, Want::Fresh, term).await else {
                panic!()
            };
            assert!(fresh > token);
            assert_eq!(engine.release(resource, ann, Some(fresh), engine.now()).await.unwrap(), Gone::Released);
            let Answer::Granted { resumed: false, .. } = ask(bob, Want::Fresh, term).await else { panic!() };
            assert_eq!(engine.release(resource, bob, None, engine.now()).await.unwrap(), Gone::Released);
        }
    });
}

#[test]
fn leases_are_renewed_and_released_over_a_new_connection_without_space() {
    let server = Arc::new(Server::start(1, "--quota-backend-bytes=4194304"));
    at(&Arc::clone(&server), |desk| async move {
        let (kept, other) = (
            desk.here.try_acquire("kept", &desk.jane, LONG).await.unwrap(),
            desk.here.try_acquire("other", &desk.jane, LONG).await,
        );
        let text = "x".repeat(1 << 20);
        for at in 0..20 {
            if desk.client.put(format!("fill-{at}"), text.as_str()).await.is_err() {
                break;
            }
        }
        let refused = desk.here.try_acquire("more", &desk.jane, LONG).await;
        assert!(matches!(refused, Err(AcquireError::Engine(Error::Refused { .. }))), "{refused:?}");
        for leases in [&desk.here, &server.leases(Etcd::in_namespace(desk.namespace.as_str()))] {
            leases.renew(&kept).await.unwrap();
        }
        let new = server.leases(Etcd::in_namespace(desk.namespace.as_str()));
        new.release(&kept).await.unwrap();
        new.release(&other.unwrap()).await.unwrap();
        assert_eq!(desk.keys().await, []);
    });
}

#[test]
fn a_namespace_that_is_emptied_under_a_connection_is_quarantined() {
    at_desk_of_its_own(|desk| async move {
        let old = desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        desk.server.empty().unwrap();
        assert!(is_quarantined(&desk.there.try_acquire("form", &desk.joe, LONG).await));
        assert!(is_quarantined(&desk.here.try_acquire("other", &desk.joe, LONG).await));
        desk.here.engine().init().await.unwrap();
        assert!(desk.there.try_acquire("form", &desk.joe, LONG).await.unwrap().token() > old.token());
    });
}

#[test]
fn programs_that_were_connected_notice_an_older_copy_of_the_cluster() {
    // Any of these programs may be the first to notice, and then its quarantine counts.
    let settings = Settings::new(namespace(), None).timeout(5 * SECOND).quarantine(3 * SECOND);
    servers::at_desk(&Arc::new(Server::set_up()), settings, |desk| async move {
        let Desk { server, here, there, .. } = &*desk;
        let kept = here.try_acquire("kept", &desk.jane, LONG).await.unwrap();
        let guard = here.engine().guard(&kept);
        assert!(desk.client.txn(Txn::new().when([guard])).await.unwrap().succeeded());
        server.run("copy");
        let mut old = insist(here, "form", &desk.jane).await;
        for _ in 0..20 {
            here.release(&old).await.unwrap();
            old = insist(here, "form", &desk.jane).await;
        }
        while there.status("form").await.is_err() {}
        server.run("restore");
        while !matches!(there.try_acquire("form", &desk.joe, LONG).await, Err(AcquireError::Quarantined { .. })) {
            assert!(
                there.status("form").await.is_ok_and(|status| status.is_none()),
                "the older copy granted the resource"
            );
        }
        // A tenure that the copy contains can be renewed.
        here.renew(&kept).await.unwrap();
        let new = insist(there, "form", &desk.joe).await;
        assert!(new.token() > old.token(), "{} after {}", new.token(), old.token());
        // The copy may lack the release of this tenure, so acquiring again begins another one.
        let again = insist(here, "kept", &desk.jane).await;
        assert!(again.token() > old.token() && !again.is_resumed());
        assert!(insist(here, "kept", &desk.jane).await.is_resumed());
        here.release(&again).await.unwrap();
        there.release(&new).await.unwrap();
        assert_eq!(desk.keys().await, []);
    });
}

/// The log's index and the revision are read one after the other, so a program that opens a namespace while others
/// write must not take the log entries of their writes for entries without a revision.
#[test]
fn a_mark_that_was_written_while_others_wrote_is_no_cause_for_a_quarantine() {
    at_desk(|desk| async move {
        let Desk { server, client, namespace, .. } = &*desk;
        for at in 0..40 {
            let leases = || server.leases(Etcd::in_namespace(format!("{namespace}/{at}")).timeout(20 * SECOND));
            let writes = join_all((0..32).map(|_| async {
                loop {
                    client.put("elsewhere", "x").await.unwrap();
                }
            }));
            let first = leases();
            let Either::Right((opened, _)) = select(pin!(writes), pin!(first.engine().init())).await else { panic!() };
            opened.unwrap();
            leases().try_acquire("form", &desk.jane, LONG).await.unwrap();
        }
    });
}

#[test]
fn a_tenure_from_before_a_new_mark_can_be_released() {
    at_desk_of_its_own(|desk| async move {
        let kept = desk.here.try_acquire("kept", &desk.jane, LONG).await.unwrap();
        let all = desk.here.try_acquire("all", &desk.jane, LONG).await.unwrap();
        let mark = format!("keylatch-lease/{}/l/mark", desk.namespace);
        desk.client.delete(mark).await.unwrap();
        assert!(is_quarantined(&desk.there.try_acquire("form", &desk.jane, LONG).await));
        desk.there.release(&kept).await.unwrap();
        assert_eq!(desk.there.owned_by(&desk.jane).await.unwrap()[0].token(), all.token());
        assert_eq!(desk.there.release_all(&desk.jane).await.unwrap(), 1);
    });
}

/// The test changes the mark so that it no longer fits the cluster, as after a restore: the log has begun again, or the
/// cluster has a different ID.
#[test]
fn every_program_notices_a_cluster_restored_from_a_snapshot() {
    at_desk(|desk| async move {
        let key = format!("keylatch-lease/{}/l/mark", desk.namespace);
        let client = &desk.client;
        let grant = desk.here.try_acquire("form", &desk.jane, LONG).await.unwrap();
        for at in [1, 2] {
            let got = client.get(key.as_str()).await.unwrap();
            let text = std::str::from_utf8(got[0].value()).unwrap();
            let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            words[at] = if at == 1 { "1".into() } else { "1000000".into() };
            client.put(key.as_str(), words.join(" ")).await.unwrap();
            let new = desk.server.leases(Etcd::in_namespace(desk.namespace.as_str()));
            assert!(is_quarantined(&new.try_acquire("other", &desk.jane, LONG).await));
            assert!(is_quarantined(&desk.here.try_acquire("other", &desk.jane, LONG).await));
            new.engine().init().await.unwrap();
            let next = desk.here.try_acquire("other", &desk.jane, LONG).await.unwrap();
            assert!(next.token() > grant.token());
            desk.here.release(&next).await.unwrap();
        }
    });
}

#[test]
fn leases_work_while_the_cluster_is_compacted_and_defragmented() {
    at_desk_of_its_own(|desk| async move {
        let inside = &AtomicUsize::new(0);
        let tokens = &Mutex::new(Vec::new());
        let workers = (0..4).map(|at| {
            let leases = if at % 2 == 0 { &desk.here } else { &desk.there };
            async move {
                let owner = Owner::named(format!("owner {at}"));
                for _ in 0..40 {
                    let grant = leases.acquire("form", &owner, LONG).await.unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    tokens.lock().unwrap().push(grant.token());
                    leases.renew(&grant).await.unwrap();
                    inside.fetch_sub(1, SeqCst);
                    leases.release(&grant).await.unwrap();
                }
            }
        });
        let client = &desk.client;
        let (mut rounds, mut work) = (0, pin!(join_all(workers)));
        loop {
            let harm = async {
                let revision = client.put("elsewhere", "x").await.unwrap();
                client.call(api::Compact { revision }).await.unwrap();
                client.call(api::Defragment {}).await.unwrap();
            };
            // Compactions and the workers go on side by side, until the workers are done.
            if let Either::Left(_) = select(work.as_mut(), pin!(harm)).await {
                break;
            }
            rounds += 1;
        }
        assert!(rounds > 0);
        let tokens = tokens.lock().unwrap();
        assert!(tokens.len() == 160 && tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    });
}
