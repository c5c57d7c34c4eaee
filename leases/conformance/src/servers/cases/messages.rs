//! Tests of the server's messages to waiters and holders.

use std::sync::Arc;

use futures_lite::{StreamExt, future::poll_once};
use keylatch_lease::{
    Expiry, Resource,
    engine::{Ask, Engine, Want},
};
use tokio::time::sleep;

use super::super::{Desk, LATE, MINUTE, TestServer, ask, millis, sliding};

/// However a lease is released, a message wakes the waiter, long before it would ask again.
pub async fn a_waiter_is_notified_of_a_release<S: TestServer>(desk: Arc<Desk<S>>) {
    let leases = desk.more(desk.settings.clone().fallback(LATE));
    let grant = desk.here.try_acquire("report", &desk.jane, Expiry::Never).await.unwrap();
    for round in 0..4 {
        let mut waiting = leases.acquire("report", &desk.joe, MINUTE);
        while !desk.is_wanted("report").await {
            assert!(poll_once(&mut waiting).await.is_none());
            sleep(millis(5)).await;
        }
        match round {
            0 => desk.here.release(&grant).await.unwrap(),
            1 => assert_eq!(desk.here.release_all(&desk.jane).await.unwrap(), 1),
            2 => {
                let token = desk.here.status("report").await.unwrap().unwrap().token();
                desk.here.engine().abandon(&Resource::from("report"), &desk.jane, token);
            }
            _ => desk.there.release_as("report", &desk.jane).await.unwrap(),
        }
        let served = waiting.await.unwrap();
        leases.release(&served).await.unwrap();
        desk.here.try_acquire("report", &desk.jane, Expiry::Never).await.unwrap();
    }
}

/// Makes Joe a waiter for Jane's report.
async fn wait<S: TestServer>(desk: &Desk<S>, report: &Resource) {
    let (expiry, term) = sliding(MINUTE);
    desk.here.try_acquire(report, &desk.jane, MINUTE).await.unwrap();
    let waits = Ask { waiting: true, ..ask(report, &desk.joe, Want::Any, &expiry, term) };
    desk.there.engine().acquire(waits).await.unwrap();
}

/// The server sends no message about a resource without waiters, unless a call other than the holder's own release ends
/// the tenure.
pub async fn no_message_is_sent_about_a_resource_without_waiters<S: TestServer>(desk: Arc<Desk<S>>) {
    let Desk { here, jane, joe, .. } = &*desk;
    let mut told = desk.server.listen(&desk.namespace).await;
    let (quiet, report) = (Resource::from("quiet"), Resource::from("report"));
    let grant = here.try_acquire(&quiet, jane, MINUTE).await.unwrap();
    here.try_acquire(&quiet, joe, MINUTE).await.unwrap_err();
    wait(&desk, &report).await;
    // Neither another acquire by Jane nor another tenure of hers makes the server forget the waiter.
    let old = here.try_acquire(&report, jane, MINUTE).await.unwrap();
    let new = here.try_acquire(&report, jane, MINUTE).fresh_token().await.unwrap();
    here.release(&grant).await.unwrap();
    here.release(&new).await.unwrap();
    // A waiter that has been notified must ask again before it is notified once more.
    let again = here.try_acquire(&report, jane, MINUTE).await.unwrap();
    here.release(&again).await.unwrap();
    // A holder is notified when another call releases its lease.
    let held = here.try_acquire("z", jane, MINUTE).await.unwrap();
    here.release_as("z", jane).await.unwrap();
    for expected in [("n", &old), ("r", &new), ("r", &held)] {
        let (letter, grant) = expected;
        assert_eq!(told.next().await.unwrap(), format!("{letter} {} {}", grant.token(), grant.resource().key()));
    }
}

/// Waiters are notified each time that a tenure is replaced by one that ends sooner, but not by one that ends later.
pub async fn a_waiter_is_notified_only_of_a_tenure_that_ends_sooner<S: TestServer>(desk: Arc<Desk<S>>) {
    let Desk { here, jane, .. } = &*desk;
    let report = Resource::from("report");
    let mut told = desk.server.listen(&desk.namespace).await;
    wait(&desk, &report).await;
    here.try_acquire(&report, jane, 2 * MINUTE).fresh_token().await.unwrap();
    here.try_acquire(&report, jane, Expiry::Never).fresh_token().await.unwrap();
    // These messages are for holders only.
    for _ in 0..2 {
        assert!(told.next().await.unwrap().starts_with('n'));
    }
    for time in [2 * MINUTE, MINUTE] {
        let before = here.status(&report).await.unwrap().unwrap().token();
        here.try_acquire(&report, jane, time).fresh_token().await.unwrap();
        assert_eq!(told.next().await.unwrap(), format!("t {before} report"));
    }
    assert!(desk.is_wanted("report").await);
}

/// The server still knows of the waiter when a new tenure begins after the previous one has expired.
pub async fn a_new_tenure_after_an_expiry_keeps_the_waiter_registered<S: TestServer>(desk: Arc<Desk<S>>) {
    let report = Resource::from("report");
    wait(&desk, &report).await;
    desk.pass(2 * MINUTE).await;
    desk.here.try_acquire(&report, &desk.jane, MINUTE).await.unwrap();
    assert!(desk.is_wanted("report").await);
}
