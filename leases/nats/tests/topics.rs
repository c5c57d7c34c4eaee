//! Tests of the messages that a process receives, and of the pulse of its connection.

mod common;

use std::{collections::BTreeSet, pin::pin, sync::Arc};

use common::{Server, proxy, shared};
use futures_lite::future::poll_once;
use futures_util::future::join_all;
use keylatch_lease::{Leases, Lost, Resource, engine::Engine};
use keylatch_lease_conformance::servers::{self, LATE, MINUTE, SECOND, Settings, TestServer, millis, namespace};
use keylatch_lease_nats::{Nats, Options};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

type Desk = servers::Desk<Server>;

fn at_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    servers::at_desk(&shared(), Settings::new(namespace(), None).timeout(20 * SECOND).fallback(LATE), test);
}

/// Options of an engine that sends no pulse during a test, and whose waiters ask again only when they are notified.
fn without_pulse(namespace: &str) -> Options {
    Nats::in_namespace(namespace).sweeps(None).timeout(LATE).fallback(LATE)
}

/// Options of an engine that sends a pulse every 200 ms.
fn with_pulse(namespace: &str) -> Options {
    without_pulse(namespace).timeout(SECOND)
}

/// Returns the subjects about the mark and these resources.
fn told<const COUNT: usize>(namespace: &str, resources: [&str; COUNT]) -> BTreeSet<String> {
    let names = ["mark"].into_iter().chain(resources);
    names.map(|name| format!("keylatch_lease.told.{namespace}.{name}")).collect()
}

#[test]
fn a_process_receives_messages_only_about_what_it_waits_for_or_holds() {
    at_desk(|desk| async move {
        let Desk { server, namespace, here, jane, joe, .. } = &*desk;
        let name = format!("{namespace}-apart");
        let leases = server.named(without_pulse(namespace), &name);
        leases.engine().ready().await.unwrap();
        assert_eq!(server.subscriptions(&name), told(namespace, []));
        // A grant is nobody's business but its owner's.
        let grant = leases.try_acquire("granted", joe, MINUTE).await.unwrap();
        leases.release(&grant).await.unwrap();
        assert_eq!(server.subscriptions(&name), told(namespace, []));

        let held = leases.hold("held", joe, MINUTE).await.unwrap();
        assert_eq!(server.subscriptions(&name), told(namespace, ["e.kaGVsZA"]));
        let other = here.try_acquire("waited", jane, MINUTE).await.unwrap();
        let mut waiting = pin!(leases.acquire("waited", joe, MINUTE).into_future());
        assert!(timeout(millis(50), waiting.as_mut()).await.is_err());
        assert_eq!(server.subscriptions(&name), told(namespace, ["e.kaGVsZA", "e.kd2FpdGVk"]));

        let before = server.sent(&name);
        for _ in 0..20 {
            let grant = here.try_acquire("other", jane, MINUTE).await.unwrap();
            here.release(&grant).await.unwrap();
        }
        // The answers to this call, three at most, would come after any messages about the other resource.
        assert!(leases.status("held").await.unwrap().is_some());
        let sent = server.sent(&name) - before;
        assert!(sent <= 3, "{sent} messages");

        here.release(&other).await.unwrap();
        waiting.await.unwrap();
        here.release_as("held", joe).await.unwrap();
        while held.check().is_ok() {
            sleep(millis(5)).await;
        }
        assert_eq!(held.check(), Err(Lost::Released));
    });
}

#[test]
fn a_subscription_ends_after_the_last_waiter_and_holder() {
    at_desk(|desk| async move {
        let Desk { server, namespace, here, jane, joe, .. } = &*desk;
        let name = format!("{namespace}-gone");
        let leases = server.named(with_pulse(namespace), &name);
        let held = leases.hold("held", joe, MINUTE).await.unwrap();
        here.try_acquire("waited", jane, MINUTE).await.unwrap();
        {
            let mut waiting = pin!(leases.acquire("waited", joe, MINUTE).into_future());
            while server.subscriptions(&name) != told(namespace, ["e.kaGVsZA", "e.kd2FpdGVk"]) {
                assert!(timeout(millis(20), waiting.as_mut()).await.is_err());
            }
        }
        while server.subscriptions(&name) != told(namespace, ["e.kaGVsZA"]) {
            sleep(millis(20)).await;
        }
        held.release().await.unwrap();
        while server.subscriptions(&name) != told(namespace, []) {
            sleep(millis(20)).await;
        }
    });
}

#[test]
fn a_process_with_very_many_leases_subscribes_to_all() {
    at_desk(|desk| async move {
        let Desk { server, namespace, here, jane, joe, .. } = &*desk;
        let name = format!("{namespace}-big");
        let leases = server.named(without_pulse(namespace).timeout(10 * SECOND), &name); // with a pulse every 2 s
        let all = (0..1100).map(|at| leases.hold(at.to_string(), joe, 10 * MINUTE).into_future());
        let all: Vec<_> = join_all(all).await.into_iter().map(Result::unwrap).collect();
        while server.subscriptions(&name) != told(namespace, ["*.*"]) {
            sleep(millis(20)).await;
        }
        let other = here.try_acquire("waited", jane, MINUTE).await.unwrap();
        let mut waiting = pin!(leases.acquire("waited", joe, MINUTE).into_future());
        assert!(timeout(millis(50), waiting.as_mut()).await.is_err());
        here.release(&other).await.unwrap();
        waiting.await.unwrap();
        for held in [&all[0], &all[1099]] {
            here.release_as(held.resource(), joe).await.unwrap();
            while held.check().is_ok() {
                sleep(millis(5)).await;
            }
        }
        assert!(all[1].check().is_ok());
        join_all(all.into_iter().map(|held| held.release().into_future())).await;
    });
}

#[test]
fn a_new_connection_is_subscribed_to_what_is_held() {
    at_desk(|desk| async move {
        let Desk { server, namespace, joe, .. } = &*desk;
        let (hold, held_back) = watch::channel(false);
        let (address, connections) = proxy(server.address(), held_back).await;
        let settings = Settings::new(format!("{namespace}-again"), None).timeout(SECOND).fallback(LATE);
        let leases = Leases::with_engine(Server::connect(settings.clone(), address));
        leases.engine().init().await.unwrap();
        let held = leases.hold("held", joe, 10 * MINUTE).await.unwrap();
        hold.send_replace(true);
        while *connections.borrow() < 2 {
            sleep(millis(5)).await;
        }
        hold.send_replace(false);
        let name = &settings.namespace;
        leases.engine().ready().await.unwrap();
        while server.connections(name) != Some(1) {
            sleep(millis(5)).await;
        }
        assert_eq!(server.subscriptions(name), told(name, ["e.kaGVsZA"]));
        // Nobody polls the holder.
        let there = desk.more(settings);
        there.release_as("held", joe).await.unwrap();
        while held.check().is_ok() {
            sleep(millis(5)).await;
        }
    });
}

/// Nobody asks anything, and the connection stays open.
#[test]
fn the_pulse_notices_that_the_server_has_fallen_silent() {
    at_desk(|desk| async move {
        let (hold, held_back) = watch::channel(false);
        let (address, connections) = proxy(desk.server.address(), held_back).await;
        let leases = Leases::with_engine(Server::connect(desk.settings.clone().timeout(SECOND), address));
        leases.engine().ready().await.unwrap();
        let report = Resource::from("report");
        let mut watch = pin!(leases.engine().watch(&report));
        let grant = desk.here.try_acquire(&report, &desk.jane, MINUTE).await.unwrap();
        assert!(leases.status(&report).await.unwrap().is_some());
        assert!(poll_once(watch.as_mut()).await.is_none());
        hold.send_replace(true);
        desk.here.release(&grant).await.unwrap();
        while *connections.borrow() < 2 {
            sleep(millis(5)).await;
        }
        hold.send_replace(false);
        watch.await;
    });
}

#[test]
fn the_pulse_notices_that_the_stream_was_created_again() {
    at_desk(|desk| async move {
        let context = async_nats::jetstream::new(desk.server.client().await);
        context.create_stream(Nats::stream("renewed")).await.unwrap();
        let leases = desk.server.named(with_pulse("x").stream("renewed"), "renewed");
        leases.engine().init().await.unwrap();
        context.delete_stream("renewed").await.unwrap();
        let stream = context.create_stream(Nats::stream("renewed")).await.unwrap();
        // Nobody asks anything, but the new stream gets a mark.
        while stream.get_last_raw_message_by_subject("renewed.lease.x.mark").await.is_err() {
            sleep(millis(20)).await;
        }
    });
}
