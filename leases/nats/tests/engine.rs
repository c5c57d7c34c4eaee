//! Tests of the engine against a real server, which they start, and which some of them kill and pause.

mod common;

use std::{
    fs,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_nats::jetstream::{
    self,
    stream::{Config, DiscardPolicy, RetentionPolicy, StorageType},
};
use common::{Server, shared};
use futures_lite::{
    StreamExt,
    future::{block_on, poll_once},
};
use keylatch_lease::{
    AcquireError, Expiry, Leases, LookError, Lost, Owner, ReleaseError, RenewError, Resource,
    engine::{Engine, Left, Renewal},
};
use keylatch_lease_conformance::{
    engine_tests,
    servers::{
        self, LATE, MINUTE, SECOND, Settings, TestServer, cases, insist, is_quarantined, lock, millis, namespace,
        on_tokio, sliding,
    },
};
use keylatch_lease_nats::{ConnectOptions, Error, Nats, Options};
use tokio::{runtime::Runtime, time::sleep};

/// A desk whose client is the stream.
type Desk = servers::Desk<Server>;

/// Options with a timeout that is long enough for a server to start on a busy machine, and with such a long fallback
/// that no waiter asks again unless it is notified.
fn options(namespace: &str) -> Options {
    Nats::in_namespace(namespace).sweeps(None).timeout(20 * SECOND).fallback(LATE)
}

/// Settings with the values of [`options`].
fn settings() -> Settings {
    Settings::new(namespace(), None).timeout(20 * SECOND).fallback(LATE)
}

/// Runs a test on the shared server.
fn at_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    servers::at_desk(&shared(), settings(), test);
}

/// Runs a test on a server of its own.
fn at_desk_of_its_own<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    servers::at_desk(&Arc::new(Server::set_up()), settings(), test);
}

engine_tests! { at_desk;
    all_operations_agree_with_each_other
    each_renewal_of_a_batch_has_its_own_term
    a_new_namespace_grants_nothing_until_it_is_opened_or_its_quarantine_has_ended
    any_text_can_name_a_resource_or_an_owner
    owned_by_lists_the_policies
    competing_owners_hold_the_resource_one_at_a_time
    a_dropped_held_lease_is_released
    dropped_requests_leave_nothing_behind
    dropping_the_last_clone_of_an_engine_closes_the_connection
}

/// The messages of the desk's namespace in the stream.
trait Stored {
    async fn messages(&self) -> usize;
    async fn last_sequence(&self) -> u64;
    fn subject(&self, key_in_base64: &str) -> String;
}

impl Stored for Desk {
    /// Returns the number of messages that belong to resources.
    async fn messages(&self) -> usize {
        let filter = format!("keylatch_lease.lease.{}.*.*", self.namespace);
        let mut info = self.client.info_with_subjects(filter).await.unwrap();
        let mut count = 0;
        while let Some(subject) = info.next().await {
            count += subject.unwrap().1;
        }
        count
    }

    async fn last_sequence(&self) -> u64 {
        self.client.get_info().await.unwrap().state.last_sequence
    }

    /// Returns the subject of a resource without an entity.
    fn subject(&self, key_in_base64: &str) -> String {
        format!("keylatch_lease.lease.{}.e.k{key_in_base64}", self.namespace)
    }
}

#[test]
fn a_message_contains_the_owner_the_token_and_the_duration() {
    at_desk(|desk| async move {
        let Desk { here, client: stream, jane, .. } = &*desk;
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        let subject = desk.subject("cmVwb3J0");
        let message = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
        let stored: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
        assert_eq!(stored["owner"], jane.id());
        assert_eq!(stored["token"], grant.token().get());
        assert_eq!(stored["idle"], 60_000_000_000_u64);
        here.renew(&grant).await.unwrap();
        let message = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
        let stored: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
        assert_eq!(stored["token"], grant.token().get());
        here.release(&grant).await.unwrap();
        assert_eq!(desk.messages().await, 1);
    });
}

#[test]
fn acquiring_and_releasing_again_takes_three_requests() {
    at_desk(|desk| async move {
        let name = format!("{}-counted", desk.namespace);
        // No pulse is due during the test.
        let leases = desk.server.named(options(&desk.namespace).timeout(LATE), &name);
        for _ in 0..2 {
            let grant = leases.try_acquire("report", &desk.jane, MINUTE).await.unwrap();
            leases.release(&grant).await.unwrap();
        }
        let before = desk.server.received(&name);
        for _ in 0..10 {
            let grant = leases.try_acquire("report", &desk.jane, MINUTE).await.unwrap();
            leases.release(&grant).await.unwrap();
        }
        assert_eq!(desk.server.received(&name) - before, 30);
    });
}

#[test]
fn a_renewal_that_is_stored_after_the_end_revives_nothing() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        let grant = here.try_acquire("report", jane, 3 * SECOND).await.unwrap();
        let grant = here.renew(&grant).await.unwrap();
        // The engine's reading of the server's clock is too old by then, so the renewal is sent.
        sleep(millis(4500)).await;
        let before = desk.last_sequence().await;
        let engine = here.engine();
        let mut batch = [Renewal {
            resource: grant.resource(),
            owner: jane,
            token: grant.token(),
            term: sliding(MINUTE).1,
            left: Left::Forever,
        }];
        engine.renew(&mut batch, engine.now()).await.unwrap();
        assert_eq!(batch[0].left, Left::Nothing);
        assert!(desk.last_sequence().await > before, "the renewal was not sent");
        assert!(there.status("report").await.unwrap().is_none());
        let renewed = there.renew(&grant).await;
        assert!(matches!(renewed, Err(RenewError::Lost(Lost::Expired))), "{renewed:?}");
        let next = there.try_acquire("report", joe, MINUTE).await.unwrap();
        assert!(next.token() > grant.token());
    });
}

#[test]
fn an_acquire_after_the_end_does_not_take_the_lease_from_a_successor() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        for pause in [0, 2500] {
            let grant = here.try_acquire("report", jane, 3 * SECOND).await.unwrap();
            here.renew(&grant).await.unwrap();
            sleep(3 * SECOND + millis(200)).await;
            let next = there.try_acquire("report", joe, MINUTE).await.unwrap();
            sleep(millis(pause)).await;
            let again = here.try_acquire("report", jane, MINUTE).await;
            assert!(matches!(&again, Err(AcquireError::Busy { owner, .. }) if owner == joe), "{again:?}");
            assert_eq!(there.status("report").await.unwrap().unwrap().token(), next.token());
            there.release(&next).await.unwrap();
        }
    });
}

#[test]
fn tokens_grow_across_sweeps_and_crashes() {
    at_desk_of_its_own(|desk| async move {
        let Desk { server, here, jane, .. } = &*desk;
        // Tokens of different resources are not comparable: both may be the successor of the greatest one swept.
        let mut last = [None; 2];
        for _ in 0..4 {
            for (key, last) in ["a", "b"].into_iter().zip(&mut last) {
                let grant = here.try_acquire(key, jane, MINUTE).await.unwrap();
                assert!(*last < Some(grant.token()), "{} after {last:?}", grant.token());
                *last = Some(grant.token());
                here.release(&grant).await.unwrap();
            }
            assert_eq!(here.release_expired().await.unwrap(), 2);
            assert_eq!(desk.messages().await, 0);
            let before = desk.last_sequence().await;
            server.run("kill");
            server.run("start");
            here.engine().ready().await.unwrap();
            assert!(server.create_stream().await.get_info().await.unwrap().state.last_sequence >= before);
        }
    });
}

#[test]
fn tokens_grow_across_a_purge_of_the_stream() {
    at_desk_of_its_own(|desk| async move {
        let Desk { here, there, client: stream, jane, joe, .. } = &*desk;
        let old = here.try_acquire("report", jane, MINUTE).await.unwrap();
        stream.purge().await.unwrap();
        assert!(is_quarantined(&there.try_acquire("report", joe, MINUTE).await));
        there.engine().init().await.unwrap();
        let new = there.try_acquire("report", joe, MINUTE).await.unwrap();
        assert!(new.token() > old.token());
        let released = here.release(&old).await;
        assert!(matches!(&released, Err(ReleaseError::NotOwner { owner, .. }) if owner == joe), "{released:?}");
    });
}

#[test]
fn a_stream_that_is_created_again_under_a_connection_is_quarantined() {
    at_desk(|desk| async move {
        let context = jetstream::new(desk.server.client().await);
        // In the second round the sequences show nothing: the new stream soon has more messages than the old one ever
        // had.
        for fill in [0, 100] {
            context.create_stream(Nats::stream("again")).await.unwrap();
            let connected = |time| desk.server.leases(options("x").stream("again").quarantine(time));
            // The quarantine is longer than a busy machine needs from the first notice of the new stream to the last
            // assertion of a quarantine.
            let here = connected(10 * SECOND);
            here.engine().init().await.unwrap();
            // This engine has seen no quarantine, and has not read the server's clock yet.
            let there = connected(10 * SECOND);
            there.engine().ready().await.unwrap();
            let mut old = here.try_acquire("report", &desk.jane, MINUTE).await.unwrap();
            old = here.try_acquire("report", &desk.jane, MINUTE).fresh_token().await.unwrap_or(old);
            context.delete_stream("again").await.unwrap();
            context.create_stream(Nats::stream("again")).await.unwrap();
            let mut stored = Vec::new();
            for _ in 0..fill {
                stored.push(context.publish("again.clock.y.z", "".into()).await.unwrap());
            }
            for stored in stored {
                stored.await.unwrap();
            }
            let refused = there.try_acquire("report", &desk.joe, MINUTE).await;
            assert!(is_quarantined(&refused), "{refused:?}");
            assert!(is_quarantined(&here.try_acquire("other", &desk.joe, MINUTE).await));
            let new = insist(&there, "other", &desk.joe).await;
            assert!(new.token() > old.token(), "{} after {}", new.token(), old.token());
            context.delete_stream("again").await.unwrap();
        }
    });
}

#[test]
fn programs_that_were_connected_notice_an_older_copy_of_the_stream() {
    // Any of these programs may be the first to notice, and then its quarantine counts.
    servers::at_desk(&Arc::new(Server::set_up()), settings().quarantine(2 * SECOND), |desk| async move {
        let Desk { server, here, namespace, jane, joe, .. } = &*desk;
        let idle = format!("{namespace}-idle");
        let there = &server.named(options(namespace).timeout(5 * SECOND).quarantine(2 * SECOND), &idle);
        let kept = here.try_acquire("kept", jane, MINUTE).await.unwrap();
        there.engine().ready().await.unwrap();
        server.run("copy");
        for leases in [here, there] {
            insist(leases, "kept", jane).await;
        }
        for _ in 0..20 {
            let grant = insist(here, "often", jane).await;
            here.release(&grant).await.unwrap();
        }
        let old = insist(here, "report", jane).await;
        // When the second pulse is sent, the first has been answered.
        let before = server.received(&idle);
        while server.received(&idle) < before + 2 {
            sleep(millis(20)).await;
        }
        server.run("restore");
        here.engine().ready().await.unwrap();
        // This engine has made no request in the meantime, but its pulse has noticed.
        assert!(is_quarantined(&there.try_acquire("report", joe, MINUTE).await));
        // A tenure that the copy contains can be renewed.
        here.renew(&kept).await.unwrap();
        let new = insist(there, "report", joe).await;
        assert!(new.token() > old.token(), "{} after {}", new.token(), old.token());
        // The copy may lack the release of this tenure, so acquiring again begins another one.
        let again = insist(here, "kept", jane).await;
        assert!(again.token() > old.token() && !again.is_resumed());
        let again_resumed = insist(here, "kept", jane).await;
        assert!(again_resumed.is_resumed());
    });
}

#[test]
fn tokens_grow_across_an_older_copy_that_no_program_notices() {
    at_desk_of_its_own(|desk| async move {
        let Desk { server, namespace, here, there, jane, joe, .. } = Arc::into_inner(desk).unwrap();
        server.run("copy");
        let mut old = insist(&here, "report", &jane).await;
        for _ in 0..20 {
            here.release(&old).await.unwrap();
            old = insist(&here, "report", &jane).await;
        }
        drop((here, there));
        server.run("restore");
        let new = server.leases(options(&namespace));
        let new = new.try_acquire("report", &joe, MINUTE).await.unwrap();
        assert!(new.token() > old.token(), "{} after {}", new.token(), old.token());
        // An engine that does not trust restarts has a quarantine.
        let careful = server.leases(options(&namespace).trusts_restarts(false).quarantine(SECOND));
        server.run("kill");
        server.run("start");
        assert!(is_quarantined(&careful.try_acquire("other", &joe, MINUTE).await));
        insist(&careful, "other", &joe).await;
    });
}

#[test]
fn a_grant_after_a_concurrent_sweep_has_a_greater_token() {
    at_desk(|desk| async move {
        let Desk { here, jane, client: stream, .. } = &*desk;
        here.try_acquire("first", jane, MINUTE).await.unwrap();
        // Changes the mark as if a tenure whose token is ahead of the clock had begun, ended and been swept.
        let subject = format!("keylatch_lease.lease.{}.mark", desk.namespace);
        let message = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
        let mut mark: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
        let swept = mark["swept"].as_u64().unwrap() + 3_600_000_000;
        mark["swept"] = swept.into();
        let context = jetstream::new(desk.server.client().await);
        context.publish(subject, mark.to_string().into()).await.unwrap().await.unwrap();
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        assert!(grant.token().get() > swept);
        assert_eq!(here.status("report").await.unwrap().unwrap().token(), grant.token());
        here.release(&grant).await.unwrap();
    });
}

#[test]
fn a_sweep_deletes_exactly_the_ended_leases() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        let kept = here.try_acquire("kept", jane, MINUTE).await.unwrap();
        let never = here.try_acquire("never", jane, Expiry::Never).await.unwrap();
        let short = here.try_acquire("short", joe, millis(300)).await.unwrap();
        let gone = here.try_acquire("gone", joe, MINUTE).await.unwrap();
        here.release(&gone).await.unwrap();
        sleep(millis(500)).await;
        assert_eq!(there.release_expired().await.unwrap(), 2);
        assert_eq!(desk.messages().await, 2);
        for grant in [&kept, &never] {
            assert_eq!(there.status(grant.resource()).await.unwrap().unwrap().token(), grant.token());
        }
        // This connection's knowledge of these resources is out of date.
        for old in [short, gone] {
            assert!(here.try_acquire(old.resource(), joe, MINUTE).await.unwrap().token() > old.token());
        }
    });
}

#[test]
fn the_driver_of_one_process_sweeps_by_itself() {
    at_desk(|desk| async move {
        let every = options(&desk.namespace).sweeps(Some(millis(200)));
        let others = [desk.server.leases(every.clone()), desk.server.leases(every)];
        for at in 0..20 {
            let grant = others[at % 2].try_acquire(at.to_string(), &desk.jane, MINUTE).await.unwrap();
            others[at % 2].release(&grant).await.unwrap();
        }
        let kept = desk.here.try_acquire("kept", &desk.jane, MINUTE).await.unwrap();
        while desk.messages().await > 1 {
            sleep(millis(50)).await;
        }
        assert_eq!(desk.there.status("kept").await.unwrap().unwrap().token(), kept.token());
    });
}

#[test]
fn a_waiter_is_notified_of_a_release() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        for _ in 0..20 {
            let grant = here.try_acquire("report", jane, 60 * MINUTE).await.unwrap();
            let mut waiting = Box::pin(there.acquire("report", joe, MINUTE));
            assert!(poll_once(tokio::time::timeout(millis(20), &mut waiting)).await.is_none());
            here.release(&grant).await.unwrap();
            there.release(&waiting.await.unwrap()).await.unwrap();
        }
    });
}

#[test]
fn a_waiter_asks_again_after_the_server_died() {
    at_desk_of_its_own(|desk| async move {
        let Desk { server, here, there, jane, joe, .. } = &*desk;
        let _grant = here.try_acquire("report", jane, 3 * SECOND).await.unwrap();
        let other = Resource::from("other");
        let watch = there.engine().watch(&other);
        let waiting = there.acquire("report", joe, MINUTE);
        let waits = async {
            waiting.await.unwrap();
            watch.await;
        };
        let dies = async {
            sleep(millis(300)).await;
            server.run("kill");
            server.run("start");
        };
        futures_lite::future::zip(waits, dies).await;
    });
}

#[test]
fn a_silent_server_is_an_error_in_time() {
    at_desk_of_its_own(|desk| async move {
        let leases = desk.server.leases(options(&desk.namespace).timeout(SECOND));
        leases.engine().ready().await.unwrap();
        desk.server.run("pause");
        let start = Instant::now();
        let looked = leases.status("report").await;
        assert!(matches!(looked, Err(LookError::Engine(Error::Timeout | Error::Unconnected { .. }))), "{looked:?}");
        assert!(start.elapsed() < 20 * SECOND);
        desk.server.run("resume");
        while leases.status("report").await.is_err() {
            sleep(millis(20)).await;
        }
    });
}

#[test]
fn an_unreachable_server_is_an_error_in_time_that_contains_no_address() {
    on_tokio(async {
        let secret = || ConnectOptions::with_user_and_password("bob".into(), "secret".into());
        let engine = Nats::in_namespace("x").timeout(millis(300)).connect("127.0.0.1:1", secret).unwrap();
        let text = cases::an_unreachable_server_is_an_error_in_time::<Server>(engine).await;
        assert!(!text.contains("127") && !text.contains("bob"), "{text}");
    });
}

#[test]
fn a_missing_stream_is_an_error_at_once_until_it_is_created() {
    at_desk(|desk| async move {
        let leases = desk.server.leases(options("x").stream("missing"));
        let looked = leases.status("report").await;
        assert!(matches!(looked, Err(LookError::Engine(Error::Missing { .. }))), "{looked:?}");
        let context = jetstream::new(desk.server.client().await);
        context.create_stream(Nats::stream("missing")).await.unwrap();
        while leases.status("report").await.is_err() {
            sleep(millis(20)).await;
        }
        leases.engine().init().await.unwrap();
        leases.try_acquire("report", &desk.jane, MINUTE).await.unwrap();
        context.delete_stream("missing").await.unwrap();
        let asked = leases.try_acquire("other", &desk.jane, MINUTE).await;
        assert!(matches!(asked, Err(AcquireError::Engine(_))), "{asked:?}");
    });
}

#[test]
fn a_stream_that_would_lose_leases_is_refused() {
    at_desk(|desk| async move {
        let context = jetstream::new(desk.server.client().await);
        let good = || Nats::stream("odd");
        let cases = [
            ("storage", Config { storage: StorageType::Memory, ..good() }),
            ("retention", Config { retention: RetentionPolicy::Interest, ..good() }),
            ("max_msgs_per_subject", Config { max_messages_per_subject: 2, ..good() }),
            ("max_age", Config { max_age: MINUTE, ..good() }),
            ("discard", Config { max_messages: 10, discard: DiscardPolicy::Old, ..good() }),
            ("deny_delete", Config { deny_delete: true, ..good() }),
            ("subjects", Config { subjects: vec!["odd.lease.>".into()], ..good() }),
            ("republish", Config { republish: None, ..good() }),
        ];
        for (setting, config) in cases {
            context.create_stream(config).await.unwrap();
            let leases = desk.server.leases(options("x").stream("odd"));
            let ready = leases.engine().ready().await;
            assert!(
                matches!(ready, Err(Error::Unsuitable { setting: told }) if told == setting),
                "{setting}: {ready:?}"
            );
            context.delete_stream("odd").await.unwrap();
        }
        let client = desk.server.client().await;
        context.create_stream(Config { max_bytes: 1_000_000, ..good() }).await.unwrap();
        let ready = desk.server.leases(options("x").stream("odd")).engine().ready().await;
        let is_refused = matches!(ready, Err(Error::Unsuitable { setting: "max_bytes" }));
        assert_eq!(is_refused, !client.is_server_compatible(2, 10, 5), "{ready:?}");
    });
}

#[test]
fn a_full_stream_refuses_new_leases_and_keeps_the_others() {
    at_desk(|desk| async move {
        let context = jetstream::new(desk.server.client().await);
        context.create_stream(Config { max_messages: 6, ..Nats::stream("full") }).await.unwrap();
        let leases = desk.server.opened(options("x").stream("full")).await;
        let first = leases.try_acquire("0", &desk.jane, MINUTE).await.unwrap();
        let mut refused = 0;
        for key in 1..5 {
            match leases.try_acquire(key.to_string(), &desk.jane, MINUTE).await {
                Ok(_) => {}
                Err(AcquireError::Engine(Error::Refused { .. })) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        // Three of the six messages are the engine's own: one to read the time, one for the time of the last sweep, and
        // the mark.
        assert_eq!(refused, 2);
        leases.renew(&first).await.unwrap();
        let asked = leases.try_acquire("0", &desk.joe, MINUTE).await;
        assert!(matches!(asked, Err(AcquireError::Busy { .. })), "{asked:?}");
        leases.release(&first).await.unwrap();
        let other = leases.try_acquire("1", &desk.jane, MINUTE).await.unwrap();
        leases.release(&other).await.unwrap();
        leases.try_acquire("1", &desk.jane, millis(1)).await.unwrap();
        sleep(millis(100)).await;
        leases.try_acquire("1", &desk.joe, MINUTE).await.unwrap();
        assert_eq!(leases.release_expired().await.unwrap(), 1);
        leases.try_acquire("4", &desk.joe, MINUTE).await.unwrap();
    });
}

#[test]
fn a_stream_that_was_full_before_is_swept_of_free_resources() {
    at_desk(|desk| async move {
        let context = jetstream::new(desk.server.client().await);
        let stream = context.create_stream(Config { max_messages: 2, ..Nats::stream("packed") }).await.unwrap();
        for key in ["MA", "MQ"] {
            let subject = format!("packed.lease.x.e.k{key}");
            context.publish(subject, "{\"v\":2}".into()).await.unwrap().await.unwrap();
        }
        let leases = desk.server.leases(options("x").stream("packed"));
        // There is no room for the mark.
        let asked = leases.try_acquire("new", &desk.jane, MINUTE).await;
        assert!(matches!(asked, Err(AcquireError::Engine(Error::Refused { .. }))), "{asked:?}");
        // The last message of the stream stays.
        assert_eq!(leases.release_expired().await.unwrap(), 1);
        assert_eq!(stream.get_info().await.unwrap().state.messages, 1);
    });
}

#[test]
fn a_program_needs_only_the_listed_permissions() {
    let permissions = r#"{
        publish: [
            "keylatch_lease.lease.shop.>", "keylatch_lease.clock.shop.>", "$JS.API.STREAM.INFO.keylatch_lease",
            "$JS.API.STREAM.MSG.GET.keylatch_lease", "$JS.API.STREAM.MSG.DELETE.keylatch_lease"
        ]
        subscribe: ["keylatch_lease.told.shop.>", "_INBOX.>"]
    }"#;
    let program = format!("{{ user: program, password: secret, permissions: {permissions} }}");
    let users = format!("authorization {{ users: [{{ user: all, password: all }}, {program}] }}\nno_auth_user: all");
    let server = Server::with(&users);
    on_tokio(async {
        server.create_stream().await;
        let secret = || ConnectOptions::with_user_and_password("program".into(), "secret".into());
        let options = options("shop").timeout(5 * SECOND);
        let leases = Leases::with_engine(options.connect(server.address().to_string(), secret).unwrap());
        let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
        leases.engine().init().await.unwrap();
        let grant = leases.try_acquire("report", &jane, MINUTE).await.unwrap();
        let asked = leases.try_acquire("report", &joe, MINUTE).await;
        assert!(matches!(asked, Err(AcquireError::Busy { .. })), "{asked:?}");
        let grant = leases.renew(&grant).await.unwrap();
        let mut waiting = Box::pin(leases.acquire("report", &joe, MINUTE));
        assert!(poll_once(tokio::time::timeout(millis(200), &mut waiting)).await.is_none());
        leases.release(&grant).await.unwrap();
        waiting.await.unwrap();
        assert_eq!(leases.owned_by(&joe).await.unwrap().len(), 1);
        assert_eq!(leases.release_all(&joe).await.unwrap(), 1);
        leases.try_acquire("other", &joe, MINUTE).await.unwrap();
        assert_eq!(leases.release_expired().await.unwrap(), 1);
    });
}

/// The server closes the connections of a user whose password changes.
#[test]
fn each_connection_uses_the_credentials_of_its_time() {
    let users = |password: &str| {
        let clerk = format!("{{ user: clerk, password: {password} }}");
        format!("authorization {{ users: [{{ user: all, password: all }}, {clerk}] }}\nno_auth_user: all")
    };
    let server = Server::with(&users("old"));
    on_tokio(async {
        server.create_stream().await;
        let source = Arc::new(Mutex::new("old"));
        let known = Arc::clone(&source);
        let secret = move || ConnectOptions::with_user_and_password("clerk".into(), (*lock(&known)).into());
        let options = options("shop").timeout(5 * SECOND);
        let leases = Leases::with_engine(options.connect(server.address().to_string(), secret).unwrap());
        leases.engine().init().await.unwrap();
        let grant = leases.try_acquire("report", &Owner::named("jane"), MINUTE).await.unwrap();

        // The new password is on the server, and not yet at its source.
        let folder = server.private().folder();
        fs::write(folder.join("more.conf"), users("new")).unwrap();
        let pid = fs::read_to_string(folder.join("nats.pid")).unwrap();
        assert!(Command::new("kill").args(["-HUP", pid.trim()]).status().unwrap().success());
        while leases.renew(&grant).await.is_ok() {
            sleep(millis(10)).await;
        }
        *lock(&source) = "new";
        while leases.renew(&grant).await.is_err() {
            sleep(millis(10)).await;
        }
        assert_eq!(leases.status("report").await.unwrap().unwrap().token(), grant.token());
    });
}

#[test]
fn a_foreign_message_is_an_error_and_stays() {
    at_desk(|desk| async move {
        let Desk { here, client: stream, jane, .. } = &*desk;
        let context = jetstream::new(desk.server.client().await);
        let subject = desk.subject("cmVwb3J0");
        let mine = here.try_acquire("mine", jane, MINUTE).await.unwrap();
        for payload in ["", "hello", "{\"v\":1}"] {
            let sequence = context.publish(subject.clone(), payload.into()).await.unwrap().await.unwrap().sequence;
            let asked = here.try_acquire("report", jane, MINUTE).await;
            assert!(matches!(asked, Err(AcquireError::Engine(Error::Foreign))), "{asked:?}");
            assert_eq!(here.owned_by(jane).await.unwrap().len(), 1);
            assert_eq!(here.release_expired().await.unwrap(), 0);
            assert_eq!(stream.get_last_raw_message_by_subject(&subject).await.unwrap().sequence, sequence);
        }
        // A message on a subject that is not a resource's does no harm.
        let odd = format!("keylatch_lease.lease.{}.x.y", desk.namespace);
        context.publish(odd, "hello".into()).await.unwrap().await.unwrap();
        assert_eq!(here.release_all(jane).await.unwrap(), 1);
        assert!(matches!(here.release(&mine).await, Err(ReleaseError::NotHeld { .. })));
    });
}

#[test]
fn any_text_is_a_namespace_and_namespaces_are_independent() {
    at_desk(|desk| async move {
        let names = ["", ".", "*", ">", "a.b", "a b", "=", "=2E", "\u{1f512}", "A", "a", &"n".repeat(255)];
        let mut tokens = Vec::new();
        for name in names {
            let leases = desk.server.opened(options(name)).await;
            let resource = Resource::new("form", &desk.namespace);
            tokens.push(leases.try_acquire(&resource, &desk.jane, MINUTE).await.unwrap().token());
            assert_eq!(leases.owned_by(&desk.jane).await.unwrap().len(), 1, "{name:?}");
        }
        tokens.dedup();
        assert_eq!(tokens.len(), names.len());
    });
}

#[test]
fn release_all_and_owned_by_see_all_of_many_leases() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        let all = (0..1500).map(|at| async move {
            let owner = if at % 3 == 0 { joe } else { jane };
            here.try_acquire(("row", at.to_string()), owner, 10 * MINUTE).await.unwrap();
        });
        futures_util::future::join_all(all).await;
        assert_eq!(there.owned_by(joe).await.unwrap().len(), 500);
        assert_eq!(there.release_all(jane).await.unwrap(), 1000);
        assert_eq!(there.owned_by(jane).await.unwrap().len(), 0);
        assert_eq!(here.release_expired().await.unwrap(), 1000);
        assert_eq!(here.owned_by(joe).await.unwrap().len(), 500);
    });
}

#[test]
fn operations_can_be_awaited_without_a_runtime() {
    let server = shared();
    let runtime = Runtime::new().unwrap();
    let leases = {
        let _context = runtime.enter();
        server.leases(options(&namespace()))
    };
    let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
    block_on(async {
        leases.engine().init().await.unwrap();
        let grant = leases.try_acquire("report", &jane, MINUTE).await.unwrap();
        assert!(leases.try_acquire("report", &joe, MINUTE).await.is_err());
        let grant = leases.renew(&grant).await.unwrap();
        assert!(leases.status("report").await.unwrap().is_some());
        assert_eq!(leases.owned_by(&jane).await.unwrap().len(), 1);
        leases.release(&grant).await.unwrap();
        assert_eq!(leases.release_all(&jane).await.unwrap(), 0);
        assert_eq!(leases.release_expired().await.unwrap(), 1);
        drop(leases.hold("report", &jane, MINUTE).await.unwrap());
        leases.acquire("report", &joe, MINUTE).await.unwrap();
    });
    drop(leases);
}

#[test]
fn an_engine_whose_runtime_was_shut_down_is_stopped() {
    let server = shared();
    let runtime = Runtime::new().unwrap();
    let leases = {
        let _context = runtime.enter();
        server.leases(options(&namespace()))
    };
    block_on(leases.engine().ready()).unwrap();
    runtime.shutdown_timeout(10 * SECOND);
    let looked = block_on(leases.status("report"));
    assert!(matches!(looked, Err(LookError::Engine(Error::Stopped))), "{looked:?}");
}

#[test]
fn an_invalid_name_of_a_stream_panics() {
    for name in ["", "a.b", "a b", "*", &"s".repeat(256)] {
        let options = std::panic::catch_unwind(|| Nats::in_namespace("x").stream(name));
        assert!(options.is_err(), "{name:?}");
    }
    assert!(std::panic::catch_unwind(|| Nats::in_namespace("n".repeat(256))).is_err());
    assert!(std::panic::catch_unwind(|| Nats::in_namespace("x").timeout(Duration::ZERO)).is_err());
}
