//! Tests of the engine against real servers. The tests start these themselves, and some tests also kill, pause and
//! empty them.

mod common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use common::Server;
use futures_lite::future::{poll_once, zip};
use keylatch_lease::{
    AcquireError, Expiry, Leases, LookError, Owner, ReleaseError, RenewError, Resource,
    engine::{Ask, Engine, Gone, Left, Renewal, Want},
};
use keylatch_lease_conformance::{
    engine_tests,
    servers::{
        self, LATE, MINUTE, SECOND, Settings, TestServer, ask, cases, is_about, is_quarantined, lock, millis, on_tokio,
        sliding,
    },
    turns,
};
use keylatch_lease_redis::{BoxError, Error, Options, Redis};
use redis::{RedisConnectionInfo, Value};
use tokio::time::sleep;

const LEASES: &str = "{keylatch:desk}:leases";
const ENDS: &str = "{keylatch:desk}:ends";
const OWNED: &str = "{keylatch:desk}:owned";
const CHANNEL: &str = "{keylatch:desk}:free";

type Desk = servers::Desk<Server>;

/// Settings with a timeout that is long enough for a server to start on a busy machine.
fn settings() -> Settings {
    Settings::new("desk", None).timeout(20 * SECOND)
}

/// Options with the values of [`settings`].
fn options() -> Options {
    Redis::in_namespace("desk").sweeps(None).timeout(20 * SECOND)
}

async fn desk(server: Server, settings: Settings) -> Desk {
    Desk::new(Arc::new(server), settings).await
}

fn trusting() -> Options {
    options().quarantine(LATE).trusts_restarts(true)
}

/// Returns a desk on a server of its own, with engines that trust restarts.
async fn trusting_desk() -> Desk {
    let server = Arc::new(Server::start());
    let client = server.client();
    Desk::with(server, settings(), || trusting().connect(client.clone())).await
}

/// Runs a test on a server of its own.
fn at_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    at_desk_with(settings(), test);
}

fn at_desk_with<F: Future<Output = ()>>(settings: Settings, test: impl FnOnce(Arc<Desk>) -> F) {
    servers::at_desk(&Arc::new(Server::start()), settings, test);
}

/// Runs a test with such a long fallback that no waiter asks again unless it is notified.
fn at_patient_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    at_desk_with(settings().fallback(LATE), test);
}

fn at_hasty_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    at_desk_with(settings().timeout(millis(300)), test);
}

engine_tests! { at_patient_desk; all }

engine_tests! { at_patient_desk; a_new_namespace_grants_nothing_until_it_is_opened_or_its_quarantine_has_ended }

engine_tests! { at_hasty_desk; a_silent_server_is_an_error_in_time }

/// The data of the desk's namespace, on the server.
trait Stored {
    fn open_ahead(&self, time: Duration);
    fn stored(&self) -> [usize; 3];
}

impl Stored for Desk {
    /// Changes the data as if the namespace had been opened while the server's clock was ahead by this time: both the
    /// end of the quarantine and the tokens in doubt are in the future.
    fn open_ahead(&self, time: Duration) {
        let meta: String = self.server.ask(&["HGET", LEASES, "meta"]);
        let (seconds, _): (u64, u64) = self.server.ask(&["TIME"]);
        let ahead = ((seconds + time.as_secs()) * 1_000_000).to_string();
        let mut words: Vec<_> = meta.split(' ').collect();
        let [.., barred, doubt, _, _] = &mut words[..] else { panic!("{meta}") };
        (*barred, *doubt) = (&ahead, &ahead);
        let () = self.server.ask(&["HSET", LEASES, "meta", &words.join(" ")]);
    }

    /// Returns the number of leases, and the numbers of entries in the indices of ends and of owners.
    fn stored(&self) -> [usize; 3] {
        let leases: usize = self.server.ask(&["HLEN", LEASES]);
        [leases - 1, self.server.ask(&["ZCARD", ENDS]), self.server.ask(&["ZCARD", OWNED])]
    }
}

fn is_refused<T>(answer: &Result<T, AcquireError<Error>>, expected: &str) -> bool {
    matches!(answer, Err(AcquireError::Engine(Error::Refused { source })) if source.code() == Some(expected))
}

// --- Answers --------------------------------------------------------------------------------------------------------

/// Lua's numbers are floats.
#[test]
fn a_term_of_centuries_is_kept_to_the_microsecond() {
    at_desk(|desk| async move {
        let (engine, report, jane) = (desk.here.engine(), Resource::from("report"), &desk.jane);
        let token = desk.here.try_acquire(&report, jane, MINUTE).await.unwrap().token();
        let renew = async |term| {
            let mut batch = [Renewal { resource: &report, owner: jane, token, term, left: Left::Nothing }];
            engine.renew(&mut batch, Duration::ZERO).await.unwrap();
            batch[0].left
        };
        // A century is represented exactly.
        let century = Duration::from_secs(100 * 365 * 24 * 60 * 60) + Duration::from_micros(1);
        assert_eq!(renew(sliding(century).1).await, Left::For(century));
        // An end beyond 2^53 is still valid. Only every other microsecond is representable there, so the end may be
        // rounded up by one.
        let longer = Duration::from_secs(280 * 365 * 24 * 60 * 60);
        for term in [sliding(longer).1, None] {
            let left = renew(term).await;
            let is_rounded = matches!(left, Left::For(left) if is_about(Some(left), longer + Duration::from_micros(1)));
            assert!(is_rounded, "{left:?}");
        }
        // A lease that never expires is not in the index of ends.
        desk.here.try_acquire(&report, jane, Expiry::Never).await.unwrap();
        assert_eq!(desk.stored(), [1, 0, 1]);
    });
}

#[test]
fn a_large_batch_is_renewed_in_scripts_of_a_thousand() {
    at_desk(|desk| async move {
        let (engine, jane) = (desk.here.engine(), &desk.jane);
        let names: Vec<_> = (0..1100).map(|i| Resource::new("page", i.to_string())).collect();
        let mut tokens = Vec::new();
        for name in &names {
            tokens.push(desk.here.try_acquire(name, jane, MINUTE).await.unwrap().token());
        }
        let hour = sliding(60 * MINUTE).1;
        let renewal = |(resource, &token)| Renewal { resource, owner: jane, token, term: hour, left: Left::Forever };
        let mut batch: Vec<_> = names.iter().zip(&tokens).map(renewal).collect();
        // The same lease twice: the later end counts.
        batch.push(Renewal { term: sliding(MINUTE).1, ..batch[10].clone() });
        let calls = || {
            let stats: String = desk.server.ask(&["INFO", "commandstats"]);
            let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
            line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap()
        };
        engine.renew(&mut batch[..1], Duration::ZERO).await.unwrap(); // loads the script
        let before = calls();
        engine.renew(&mut batch, Duration::ZERO).await.unwrap();
        assert_eq!(calls() - before, 2);
        for (i, renewal) in batch.iter().enumerate() {
            match (i, renewal.left) {
                (1100, Left::For(left)) => assert!(is_about(Some(left), 60 * MINUTE)),
                (_, left) => assert_eq!(left, Left::For(60 * MINUTE), "{i}"),
            }
        }
    });
}

#[test]
fn namespaces_are_independent() {
    let server = Server::start();
    on_tokio(async {
        let names = ["", "a", "a}", "{a", "a%7d", "}:leases", "漢 \0\r\n*"];
        let mut all = Vec::new();
        for name in names {
            let leases = server.leases(Redis::in_namespace(name));
            leases.engine().init().await.unwrap();
            assert_eq!(leases.engine().namespace(), name);
            leases.try_acquire("report", &Owner::named(name.len().to_string() + name), MINUTE).await.unwrap();
            all.push(leases);
        }
        for (leases, name) in all.iter().zip(names) {
            let status = leases.status("report").await.unwrap().unwrap();
            assert_eq!(*status.owner(), Owner::named(name.len().to_string() + name));
        }
        // The keys of each namespace are in one slot.
        let mut keys: Vec<String> = server.ask(&["KEYS", "*"]);
        assert_eq!(keys.len(), 3 * names.len());
        keys.sort();
        for keys in keys.chunks(3) {
            let tag = |key: &String| key[..=key.find('}').unwrap()].to_owned();
            assert!(keys.iter().all(|key| tag(key) == tag(&keys[0])), "{keys:?}");
        }
    });
}

// --- Data on the server ---------------------------------------------------------------------------------------------

#[test]
fn grants_remove_expired_leases() {
    at_desk(|desk| async move {
        let Desk { here, jane, joe, .. } = &*desk;
        for i in 0..100 {
            here.try_acquire(("old", i.to_string()), &Owner::named(format!("owner-{}", i % 7)), SECOND).await.unwrap();
        }
        here.try_acquire("kept", jane, Expiry::Never).await.unwrap();
        desk.pass(MINUTE).await;
        assert_eq!(desk.stored(), [101, 100, 101]);
        assert_eq!(here.release_all(&Owner::named("owner-3")).await.unwrap(), 0);
        for i in 0..60 {
            here.try_acquire(("new", i.to_string()), joe, MINUTE).await.unwrap();
        }
        assert_eq!(desk.stored(), [61, 60, 61]);
        assert_eq!(here.release_all(joe).await.unwrap(), 60);
        assert_eq!(here.release_all(jane).await.unwrap(), 1);
        assert_eq!(desk.stored(), [0; 3]);
        let keys: Vec<String> = desk.server.ask(&["KEYS", "*"]);
        assert_eq!(keys, [LEASES]);
    });
}

#[test]
fn a_sweep_removes_expired_leases_and_the_driver_sweeps_by_itself() {
    at_desk(|desk| async move {
        let Desk { here, jane, .. } = &*desk;
        for _ in 0..2 {
            for i in 0..1500 {
                here.try_acquire(i.to_string(), jane, MINUTE).await.unwrap();
            }
            desk.pass(2 * MINUTE).await;
            here.try_acquire("kept", jane, Expiry::Never).fresh_token().await.unwrap(); // removes two
            assert_eq!(here.release_expired().await.unwrap(), 1498);
            assert_eq!(desk.stored(), [1, 0, 1]);
        }
        for i in 0..2500 {
            here.try_acquire(i.to_string(), jane, MINUTE).await.unwrap();
        }
        desk.pass(2 * MINUTE).await;
        let sweeping = desk.server.leases(options().sweeps(Some(millis(500))));
        sweeping.engine().ready().await.unwrap();
        while desk.stored() != [1, 0, 1] {
            sleep(millis(20)).await;
        }
    });
}

#[test]
fn tokens_grow_although_the_clock_is_set_back() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        let before = here.try_acquire("report", jane, MINUTE).await.unwrap().token().get();
        // Changes the data as if the clock had been an hour ahead when the lease was granted.
        let meta: String = desk.server.ask(&["HGET", LEASES, "meta"]);
        let future = before + 3_600_000_000;
        let ahead = meta.replacen(&before.to_string(), &future.to_string(), 1);
        assert_ne!(ahead, meta);
        let () = desk.server.ask(&["HSET", LEASES, "meta", &ahead]);
        here.release_as("report", jane).await.unwrap();
        assert_eq!(there.try_acquire("report", joe, MINUTE).await.unwrap().token().get(), future + 1);
        assert_eq!(there.try_acquire("report", joe, MINUTE).fresh_token().await.unwrap().token().get(), future + 2);
    });
}

#[test]
fn a_clock_that_is_set_back_does_not_prolong_a_quarantine() {
    at_desk_with(settings().quarantine(3 * SECOND), |desk| async move {
        let Desk { here, there, jane, .. } = &*desk;
        desk.open_ahead(LATE);
        let started = Instant::now();
        let refused = here.try_acquire("report", jane, MINUTE).await;
        assert!(
            matches!(&refused, Err(AcquireError::Quarantined { remaining, .. }) if *remaining <= 3 * SECOND),
            "{refused:?}"
        );
        let grant = loop {
            match there.try_acquire("report", jane, MINUTE).await {
                Ok(grant) => break grant,
                refused => assert!(is_quarantined(&refused), "{refused:?}"),
            }
            assert!(started.elapsed() < 20 * SECOND);
            sleep(millis(20)).await;
        };
        assert!(started.elapsed() >= millis(2900));
        assert_eq!(here.try_acquire("report", jane, MINUTE).await.unwrap().token(), grant.token());
        // A new connection does not see a longer quarantine either.
        desk.open_ahead(LATE);
        let third = desk.server.leases(options().quarantine(3 * SECOND));
        third.engine().ready().await.unwrap();
        let meta: String = desk.server.ask(&["HGET", LEASES, "meta"]);
        let (seconds, _): (u64, u64) = desk.server.ask(&["TIME"]);
        let barred: u64 = meta.split(' ').nth(2).unwrap().parse().unwrap();
        assert!(barred <= (seconds + 4) * 1_000_000, "{meta}");
    });
}

#[test]
fn acquiring_again_resumes_the_tenure_although_the_clock_was_set_back() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, .. } = &*desk;
        desk.open_ahead(LATE);
        here.engine().init().await.unwrap();
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        let again = there.try_acquire("report", jane, MINUTE).await.unwrap();
        assert!(again.is_resumed());
        assert_eq!(again.token(), grant.token());
        here.release(&grant).await.unwrap();
    });
}

// --- Waiters --------------------------------------------------------------------------------------------------------

/// Another program may publish anything on the channel.
#[test]
fn a_message_that_cannot_be_read_wakes_every_watch() {
    at_desk(|desk| async move {
        let engine = desk.here.engine();
        let (one, other) = (Resource::from("one"), Resource::from("other"));
        let (mut one, other) = (std::pin::pin!(engine.watch(&one)), std::pin::pin!(engine.watch(&other)));
        let () = desk.server.ask(&["PUBLISH", CHANNEL, "r7 0:third"]);
        desk.here.status("third").await.unwrap(); // its answer comes after the message
        assert!(poll_once(&mut one).await.is_none());
        let () = desk.server.ask(&["PUBLISH", CHANNEL, "?"]);
        zip(one, other).await;
    });
}

// --- Forgotten leases -----------------------------------------------------------------------------------------------

/// Three ways to make the server forget leases: a restart without persistence, a command, and the loss of the key
/// `LEASES`.
#[test]
fn a_server_that_forgot_is_quarantined() {
    at_desk_with(settings().quarantine(LATE), |desk| async move {
        let Desk { here, there, jane, joe, server, .. } = &*desk;
        for way in [&[][..], &["FLUSHALL"], &["DEL", LEASES]] {
            let old = here.try_acquire("report", jane, MINUTE).await.unwrap();
            here.try_acquire("form", jane, Expiry::Never).await.unwrap();
            match way {
                [] => server.run("forget"),
                command => server.ask(command),
            }
            for _ in 0..2 {
                assert!(is_quarantined(&there.try_acquire("report", joe, MINUTE).await), "{way:?}");
                assert!(is_quarantined(&here.try_acquire("report", jane, MINUTE).await), "{way:?}");
            }
            assert_eq!(desk.stored(), [0; 3], "{way:?}");
            assert!(matches!(here.renew(&old).await, Err(RenewError::Lost(_))), "{way:?}");
            assert_eq!(here.owned_by(jane).await.unwrap(), [], "{way:?}");
            there.engine().init().await.unwrap();
            let new = there.try_acquire("report", joe, MINUTE).await.unwrap();
            assert!(new.token() > old.token(), "{way:?}");
            there.release(&new).await.unwrap();
            here.release_all(jane).await.unwrap();
        }
    });
}

/// The server may have forgotten the changes of the last second.
#[test]
fn leases_survive_a_restart_and_none_begins_in_its_quarantine() {
    at_desk_with(settings().quarantine(LATE), |desk| async move {
        let Desk { here, there, jane, joe, server, .. } = &*desk;
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        here.try_acquire("form", jane, Expiry::Never).await.unwrap();
        let mut waiting = there.acquire("report", joe, MINUTE);
        while !desk.is_wanted("report").await {
            assert!(poll_once(&mut waiting).await.is_none());
            sleep(millis(5)).await;
        }
        server.run("kill");
        server.run("start");
        let grant = here.renew(&grant).await.unwrap();
        let busy = there.try_acquire("report", joe, MINUTE).await;
        assert!(matches!(busy, Err(AcquireError::Busy { .. })), "{busy:?}");
        assert!(is_quarantined(&there.try_acquire("other", joe, MINUTE).await));
        // The server may have forgotten that Jane released it, and that another owner had it.
        assert!(is_quarantined(&here.try_acquire("report", jane, MINUTE).await));
        assert!(is_quarantined(&here.try_acquire("report", jane, MINUTE).fresh_token().await));
        assert_eq!(here.owned_by(jane).await.unwrap().len(), 2);
        here.release(&grant).await.unwrap();
        assert!(is_quarantined(&waiting.await));
        here.engine().init().await.unwrap();
        assert!(there.try_acquire("report", joe, MINUTE).await.unwrap().token() > grant.token());
        // The server may have forgotten a release of "form", so acquiring it again begins another tenure, which is then
        // resumed.
        assert!(!here.try_acquire("form", jane, Expiry::Never).await.unwrap().is_resumed());
        assert!(here.try_acquire("form", jane, Expiry::Never).await.unwrap().is_resumed());
        // There is one quarantine for each restart.
        let third = server.leases(options().quarantine(LATE));
        third.try_acquire("third", joe, MINUTE).await.unwrap();
    });
}

#[test]
fn a_trusted_restart_causes_no_quarantine() {
    on_tokio(async {
        let desk = trusting_desk().await;
        let Desk { here, there, jane, joe, server, .. } = &desk;
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        server.run("stop");
        server.run("start");
        assert!(here.try_acquire("report", jane, MINUTE).await.unwrap().is_resumed());
        here.release(&grant).await.unwrap();
        assert!(there.try_acquire("report", joe, MINUTE).await.unwrap().token() > grant.token());
        // A restart with no data left still causes a quarantine.
        server.run("forget");
        assert!(is_quarantined(&there.try_acquire("other", joe, MINUTE).await));
    });
}

/// The server restarts with an old snapshot, and cannot tell that it is old.
#[test]
fn a_server_with_an_old_snapshot_is_quarantined() {
    let server = Server::start_with("save \"\"\nappendonly no\n");
    on_tokio(async {
        let desk = desk(server, settings().quarantine(6 * SECOND)).await;
        let Desk { here, there, jane, joe, server, .. } = &desk;
        let kept = here.try_acquire("kept", jane, 5 * SECOND).await.unwrap();
        let () = server.ask(&["SAVE"]);
        here.release(&kept).await.unwrap();
        let taken = there.hold("kept", joe, 5 * SECOND).await.unwrap();
        let lost = there.hold("lost", joe, 5 * SECOND).await.unwrap();
        server.run("kill");
        server.run("start");
        // The server has forgotten both of Joe's leases, and still has Jane's lease of the first resource.
        let (mut first, mut second) = (None, None);
        while first.is_none() || second.is_none() {
            for (resource, got, held) in [("kept", &mut first, &taken), ("lost", &mut second, &lost)] {
                if let (None, Ok(grant)) = (&got, here.try_acquire(resource, jane, MINUTE).await) {
                    assert!(held.check().is_err(), "{resource} was granted while Joe could rely on his lease");
                    *got = Some(grant);
                }
            }
            sleep(millis(10)).await;
        }
        assert!(first.unwrap().token() > taken.token());
        assert!(second.unwrap().token() > lost.token());
    });
}

/// Another owner had a greater token after the release that was forgotten.
#[test]
fn acquiring_a_lease_whose_release_was_forgotten_gives_a_new_token() {
    let server = Server::start_with("save \"\"\nappendonly no\n");
    on_tokio(async {
        let desk = desk(server, settings().quarantine(LATE)).await;
        let Desk { here, there, jane, joe, server, .. } = &desk;
        let first = here.try_acquire("report", jane, LATE).await.unwrap();
        let () = server.ask(&["SAVE"]);
        here.release(&first).await.unwrap();
        let second = there.try_acquire("report", joe, LATE).await.unwrap();
        server.run("kill");
        server.run("start");
        here.engine().init().await.unwrap();
        assert_eq!(*here.status("report").await.unwrap().unwrap().owner(), *jane);
        let third = here.try_acquire("report", jane, LATE).await.unwrap();
        assert!(third.token() > second.token());
    });
}

/// With a custom policy the owner first asks whether it has the lease. That request alone begins another tenure.
#[test]
fn a_tenure_that_begins_after_a_restart_is_not_resumed() {
    at_desk(|desk| async move {
        let Desk { here, jane, server, .. } = &*desk;
        let policy = || Expiry::custom(|_| Some(MINUTE));
        let before = here.try_acquire("report", jane, policy()).await.unwrap();
        server.run("kill");
        server.run("start");
        here.engine().init().await.unwrap();
        let after = here.try_acquire("report", jane, policy()).await.unwrap();
        assert!(after.token() > before.token());
        assert!(!after.is_resumed());
        let again = here.try_acquire("report", jane, policy()).await.unwrap();
        assert_eq!(again.token(), after.token());
        assert!(again.is_resumed());
    });
}

// --- Errors of the server -------------------------------------------------------------------------------------------

#[test]
fn a_server_that_would_evict_leases_is_an_error_at_once_until_its_policy_is_changed() {
    let server = Server::start();
    let () = server.ask(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    on_tokio(async {
        let leases = server.leases(options().timeout(LATE));
        let asked = leases.try_acquire("report", &Owner::named("jane"), MINUTE).await;
        let Err(AcquireError::Engine(error)) = &asked else { panic!("{asked:?}") };
        assert!(matches!(error, Error::Evicts { policy } if policy == "allkeys-lru"));
        let text = "Redis: the server would evict leases: set its maxmemory-policy to noeviction (it is allkeys-lru)";
        assert_eq!(error.to_string(), text);
        // Leases have no time to live, so with this policy none can be evicted.
        let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
        while let Err(error) = leases.engine().init().await {
            assert!(matches!(error, Error::Evicts { .. }), "{error:?}");
            sleep(millis(20)).await;
        }
        leases.try_acquire("report", &Owner::named("jane"), MINUTE).await.unwrap();
    });
}

#[test]
fn a_server_that_is_out_of_memory_releases_and_grants_nothing() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, server, .. } = &*desk;
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        here.try_acquire("form", jane, MINUTE).await.unwrap();
        let () = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
        let refused = there.try_acquire("other", joe, MINUTE).await;
        assert!(is_refused(&refused, "OOM"), "{refused:?}");
        assert!(matches!(here.renew(&grant).await, Err(RenewError::Engine(Error::Refused { .. }))));
        assert_eq!(desk.stored(), [2; 3]);
        here.release(&grant).await.unwrap();
        assert_eq!(here.release_all(jane).await.unwrap(), 1);
        assert_eq!(desk.stored(), [0; 3]);
        let () = server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        there.try_acquire("report", joe, MINUTE).await.unwrap();
    });
}

#[test]
fn a_server_that_restarts_out_of_memory_releases() {
    at_desk_with(settings().timeout(5 * SECOND), |desk| async move {
        let Desk { here, there, jane, joe, server, .. } = &*desk;
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        here.try_acquire("form", jane, MINUTE).await.unwrap();
        server.run("kill");
        let config = server.private().folder().join("redis.conf");
        let full = std::fs::read_to_string(&config).unwrap() + "maxmemory 1\n";
        std::fs::write(config, full).unwrap();
        server.run("start");
        here.release(&grant).await.unwrap();
        assert_eq!(here.status("form").await.unwrap().unwrap().owner(), jane);
        let refused = there.try_acquire("other", joe, MINUTE).await;
        assert!(is_refused(&refused, "OOM"), "{refused:?}");
        assert_eq!(there.release_all(jane).await.unwrap(), 1);
        // The restart is noticed once there is memory to record it.
        let () = server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(is_quarantined(&there.try_acquire("other", joe, MINUTE).await));
    });
}

/// Another program has written values of another type, or with another meaning, to the namespace's keys.
#[test]
fn a_foreign_value_is_an_error_and_stays() {
    at_desk(|desk| async move {
        let Desk { here, jane, server, .. } = &*desk;
        for key in [ENDS, OWNED] {
            let () = server.ask(&["SET", key, "mine"]);
            for policy in [Expiry::Never, Expiry::Sliding(MINUTE)] {
                let refused = here.try_acquire("report", jane, policy).await;
                assert!(is_refused(&refused, "WRONGTYPE"), "{key}: {refused:?}");
                assert_eq!(here.status("report").await.unwrap(), None);
            }
            assert_eq!(server.ask::<String>(&["GET", key]), "mine");
            let () = server.ask(&["DEL", key]);
        }
        let () = server.ask(&["HSET", LEASES, "0:report", "something else"]);
        let refused = here.try_acquire("report", jane, MINUTE).await;
        let Err(AcquireError::Engine(error @ Error::Refused { .. })) = refused else { panic!("{refused:?}") };
        let text = error.to_string();
        assert!(
            text.starts_with("Redis: the server refused the command: ERR")
                && text.contains("the value that is stored for the resource is not a lease"),
            "{text}"
        );
        assert!(matches!(here.release_as("report", jane).await, Err(ReleaseError::Engine(Error::Refused { .. }))));
        assert_eq!(server.ask::<String>(&["HGET", LEASES, "0:report"]), "something else");
        here.try_acquire("other", jane, MINUTE).await.unwrap();
        let () = server.ask(&["SET", LEASES, "mine"]);
        let refused = here.try_acquire("report", jane, MINUTE).await;
        assert!(is_refused(&refused, "WRONGTYPE"), "{refused:?}");
        assert_eq!(server.ask::<String>(&["GET", LEASES]), "mine");
    });
}

#[test]
fn a_lease_that_cannot_be_read_does_not_affect_other_leases() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, server, .. } = &*desk;
        let (a, form) = (Resource::from("a"), Resource::from("form"));
        for nonsense in [
            "something else",
            "0 1 - 0 n:-:- name:jane",
            "99999999999999999999 1 - 0 n:-:- name:jane",
            "9007199254740993 1 - 0 n:-:- name:jane",
            "7 99999999999999999999 - 0 n:-:- name:jane",
            "7 1 18014398509481984 0 n:-:- name:jane",
            "7 1 soon 0 n:-:- name:jane",
            "7 1 -1 0 n:-:- name:jane",
        ] {
            let old = here.try_acquire(&a, jane, SECOND).await.unwrap().token();
            let kept = here.try_acquire(&form, jane, MINUTE).await.unwrap().token();
            desk.pass(2 * SECOND).await;
            let () = server.ask(&["HSET", LEASES, "0:a", nonsense]);
            let looked = here.status(&a).await;
            assert!(matches!(looked, Err(LookError::Engine(Error::Refused { .. }))), "{nonsense}: {looked:?}");
            let grant = there.try_acquire("b", joe, MINUTE).await.unwrap();
            let () = server.ask(&["ZADD", ENDS, "1", "0:a"]);
            assert_eq!(here.release_expired().await.unwrap(), 0);
            assert_eq!(here.owned_by(jane).await.unwrap().len(), 1);
            let renewal = |resource, token| Renewal {
                resource,
                owner: jane,
                token,
                term: sliding(2 * MINUTE).1,
                left: Left::Forever,
            };
            let mut batch = [renewal(&a, old), renewal(&form, kept)];
            here.engine().renew(&mut batch, Duration::ZERO).await.unwrap();
            assert_eq!(batch.map(|renewal| renewal.left), [Left::Nothing, Left::For(2 * MINUTE)]);
            assert_eq!(here.release_all(jane).await.unwrap(), 1);
            there.release(&grant).await.unwrap();
            assert_eq!(server.ask::<String>(&["HGET", LEASES, "0:a"]), nonsense);
            let () = server.ask(&["HDEL", LEASES, "0:a"]);
        }
    });
}

#[test]
fn a_refused_release_ends_no_lease() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, server, .. } = &*desk;
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        for key in [ENDS, OWNED] {
            let () = server.ask(&["RENAME", key, "aside"]);
            let () = server.ask(&["SET", key, "mine"]);
            let released = here.release(&grant).await;
            assert!(matches!(released, Err(ReleaseError::Engine(Error::Refused { .. }))), "{key}: {released:?}");
            let released = here.release_all(jane).await;
            assert!(matches!(released, Err(LookError::Engine(Error::Refused { .. }))), "{key}: {released:?}");
            assert_eq!(here.status("report").await.unwrap().unwrap().token(), grant.token(), "{key}");
            let refused = there.try_acquire("other", joe, MINUTE).await;
            assert!(is_refused(&refused, "WRONGTYPE"), "{key}: {refused:?}");
            let () = server.ask(&["RENAME", "aside", key]);
        }
        // The refused acquires have left no entry.
        assert_eq!(desk.stored()[2], 1);
        here.release(&grant).await.unwrap();
        assert_eq!(desk.stored(), [0; 3]);
    });
}

#[test]
fn a_user_that_may_not_publish_cannot_end_a_lease_with_waiters() {
    at_desk(|desk| async move {
        let Desk { here, jane, joe, server, .. } = &*desk;
        let () = server.ask(&["ACL", "SETUSER", "secretary", "on", ">secret", "~*", "&*", "+@all", "-publish"]);
        let client = redis::Client::open(format!("redis://secretary:secret@{}", server.address())).unwrap();
        let mute = Leases::with_engine(options().connect(client));
        let report = Resource::from("report");
        let quiet = mute.try_acquire("quiet", jane, MINUTE).await.unwrap();
        let grant = mute.try_acquire(&report, jane, MINUTE).await.unwrap();
        let (expiry, term) = sliding(MINUTE);
        let waits = Ask { waiting: true, ..ask(&report, joe, Want::Any, &expiry, term) };
        here.engine().acquire(waits).await.unwrap();
        assert!(matches!(mute.release(&grant).await, Err(ReleaseError::Engine(Error::Refused { .. }))));
        assert!(matches!(mute.release_all(jane).await, Err(LookError::Engine(Error::Refused { .. }))));
        let sooner = mute.try_acquire(&report, jane, SECOND).fresh_token().await;
        assert!(matches!(sooner, Err(AcquireError::Engine(Error::Refused { .. }))), "{sooner:?}");
        assert_eq!(here.status(&report).await.unwrap().unwrap().token(), grant.token());
        assert_eq!(here.status("quiet").await.unwrap().unwrap().token(), quiet.token());
        assert_eq!(here.release_all(jane).await.unwrap(), 2);
    });
}

#[test]
fn a_namespace_of_another_version_stays_as_it_is() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, server, .. } = &*desk;
        here.try_acquire("report", jane, SECOND).await.unwrap();
        desk.pass(MINUTE).await;
        let known: String = server.ask(&["HGET", LEASES, "meta"]);
        let (_, rest) = known.split_once(' ').unwrap();
        for meta in ["", "something else", rest, &format!("v2 {rest}"), "v1 99999999999999999999 0 0 run"] {
            let () = server.ask(&["HSET", LEASES, "meta", meta]);
            let new = server.leases(options());
            for leases in [here, there, &new] {
                let refused = leases.try_acquire("other", joe, MINUTE).await;
                assert!(is_refused(&refused, "ERR"), "{meta}: {refused:?}");
                assert!(matches!(leases.engine().init().await, Err(Error::Refused { .. })), "{meta}");
                let swept = leases.release_expired().await;
                assert!(matches!(swept, Err(LookError::Engine(Error::Refused { .. }))), "{meta}: {swept:?}");
            }
            assert_eq!(server.ask::<String>(&["HGET", LEASES, "meta"]), meta);
            assert_eq!(desk.stored(), [1; 3], "{meta}");
        }
        let () = server.ask(&["HSET", LEASES, "meta", &known]);
        there.try_acquire("other", joe, MINUTE).await.unwrap();
    });
}

#[test]
fn scripts_that_the_server_does_not_know_are_sent_again() {
    at_desk(|desk| async move {
        let Desk { here, jane, server, .. } = &*desk;
        for _ in 0..3 {
            let () = server.ask(&["SCRIPT", "FLUSH"]);
            let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
            let () = server.ask(&["SCRIPT", "FLUSH"]);
            here.release(&grant).await.unwrap();
        }
    });
}

/// The rights are those that the crate's page lists.
#[test]
fn a_user_needs_only_the_listed_rights() {
    const RIGHTS: &str = "on >secret ~{keylatch:desk}:* &{keylatch:desk}:* +info +subscribe +publish +eval +evalsha +time +hget +hmget \
        +hset +hdel +hlen +del +zadd +zrem +zscore +zrangebyscore +zrangebylex";
    let server = Server::start();
    on_tokio(async {
        let mut words = vec!["ACL", "SETUSER", "secretary"];
        words.extend(RIGHTS.split(' '));
        let () = server.ask(&words);
        let client = redis::Client::open(format!("redis://secretary:secret@{}", server.address())).unwrap();
        let leases = Leases::with_engine(options().connect(client));
        leases.engine().init().await.unwrap();
        let jane = Owner::named("jane");
        let held = leases.hold("report", &jane, MINUTE).await.unwrap();
        let mut waiting = leases.acquire("report", &Owner::named("joe"), MINUTE);
        assert!(poll_once(&mut waiting).await.is_none());
        held.release().await.unwrap();
        let grant = waiting.await.unwrap();
        leases.renew(&grant).await.unwrap();
        leases.release_expired().await.unwrap();
        assert_eq!(leases.owned_by(grant.owner()).await.unwrap().len(), 1);
        assert_eq!(leases.release_all(grant.owner()).await.unwrap(), 1);
        // Without its keys the user is denied.
        let () = server.ask(&["ACL", "SETUSER", "secretary", "resetkeys"]);
        let refused = leases.try_acquire("report", &jane, MINUTE).await;
        assert!(matches!(refused, Err(AcquireError::Engine(Error::Denied { .. }))), "{refused:?}");
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("NOPERM"), "{text}");
    });
}

/// The operation does not wait for its timeout, because waiting changes nothing.
#[test]
fn a_denied_user_is_an_error_at_once_with_the_reason() {
    let server = Server::start();
    on_tokio(async {
        let () = server.ask(&["ACL", "SETUSER", "secretary", "on", ">secret", "~*", "&*", "+@all"]);
        let () = server.ask(&["ACL", "SETUSER", "visitor", "on", ">secret", "~*", "&*", "-@all", "+hello", "+client"]);
        for (user, password, code) in [("secretary", "wrong", "WRONGPASS"), ("visitor", "secret", "NOPERM")] {
            let url = format!("redis://{user}:{password}@{}", server.address());
            // This timeout is far longer than a test may take.
            let options = options().timeout(Duration::from_secs(600));
            let leases = Leases::with_engine(options.connect(redis::Client::open(url).unwrap()));
            let denied = leases.try_acquire("report", &Owner::named("jane"), MINUTE).await.unwrap_err();
            assert!(matches!(denied, AcquireError::Engine(Error::Denied { .. })), "{denied:?}");
            let text = denied.to_string();
            assert!(text.contains("Redis") && text.contains(code) && !text.contains("secret@"), "{text}");
        }
    });
}

/// The server keeps the connections of a user whose password changes, so the test cuts them.
#[test]
fn each_connection_uses_the_credentials_of_its_time() {
    let server = Server::start();
    on_tokio(async {
        let set_password = |password: &str| {
            let password = format!(">{password}");
            let () = server.ask(&["ACL", "SETUSER", "clerk", "on", "resetpass", &password, "~*", "&*", "+@all"]);
        };
        set_password("old");
        let source = Arc::new(Mutex::new("old"));
        let (known, address) = (Arc::clone(&source), server.address());
        let secrets = Arc::clone(&source);
        let from = options().connect_from(move || {
            let password = *lock(&known);
            async move { Ok(redis::Client::open(format!("redis://clerk:{password}@{address}"))?) }
        });
        let (with, driver) = options().connect_with_settings(move || {
            let settings = RedisConnectionInfo::default().set_username("clerk").set_password(*lock(&secrets));
            async move { Ok((settings, tokio::net::TcpStream::connect(address).await?)) }
        });
        tokio::spawn(driver);
        from.init().await.unwrap();
        let (from, with) = (Leases::with_engine(from), Leases::with_engine(with));
        let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
        let first = from.try_acquire("first", &jane, MINUTE).await.unwrap();
        let second = with.try_acquire("second", &jane, MINUTE).await.unwrap();
        let both = [(&from, &first), (&with, &second)];

        // The new password is on the server, and not yet at its source.
        set_password("new");
        for (leases, grant) in both {
            leases.renew(grant).await.unwrap();
        }
        assert_eq!(server.cut("desk").await, 2);
        for (leases, grant) in both {
            while !matches!(leases.renew(grant).await, Err(RenewError::Engine(Error::Denied { .. }))) {
                sleep(millis(10)).await;
            }
        }
        *lock(&source) = "new";
        for (leases, grant) in both {
            while leases.renew(grant).await.is_err() {
                sleep(millis(10)).await;
            }
            let busy = leases.try_acquire(grant.resource(), &joe, MINUTE).await;
            assert!(matches!(busy, Err(AcquireError::Busy { .. })), "{busy:?}");
            assert_eq!(leases.status(grant.resource()).await.unwrap().unwrap().token(), grant.token());
        }
    });
}

#[test]
fn an_engine_leaves_a_replica() {
    at_desk_with(settings().timeout(SECOND), |desk| async move {
        let Desk { here, jane, server, .. } = &*desk;
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        let () = server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
        // The connection is open but useless, so the engine gives it up: the next one might lead to the primary.
        while !matches!(here.release(&grant).await, Err(ReleaseError::Engine(Error::Unconnected { .. }))) {
            sleep(millis(10)).await;
        }
        let () = server.ask(&["REPLICAOF", "NO", "ONE"]);
        while let Err(error) = here.release(&grant).await {
            assert!(matches!(error, ReleaseError::Engine(_)), "{error:?}");
        }
    });
}

/// A replica is promoted and grants leases. Then the first server becomes a primary again, before it has received the
/// other's data: it was not restarted, and does not know these leases.
#[test]
fn a_primary_that_was_a_replica_for_a_while_is_quarantined() {
    let other = Server::start();
    on_tokio(async {
        let desk = trusting_desk().await;
        let Desk { here, there, jane, joe, server, .. } = &desk;
        let follow = |server: &Server, other: &Server| {
            let () = server.ask(&["REPLICAOF", "127.0.0.1", &other.address().port().to_string()]);
        };
        let told = |server: &Server, what: &str| server.ask::<String>(&["INFO", "replication"]).contains(what);
        let before = here.try_acquire("report", jane, MINUTE).await.unwrap();
        follow(&other, server);
        while !told(&other, "master_link_status:up") {
            sleep(millis(20)).await;
        }
        // A new replica causes no quarantine, although the history of the data has a new name.
        let mut last = there.try_acquire("other", joe, MINUTE).await.unwrap();
        while !told(&other, &format!("master_repl_offset:{}", offset(server))) {
            sleep(millis(20)).await;
        }
        let () = other.ask(&["REPLICAOF", "NO", "ONE"]);
        let others = other.leases(trusting());
        others.engine().init().await.unwrap();
        let granted = others.try_acquire("door", joe, MINUTE).await.unwrap();
        assert!(granted.token() > last.token());
        // The server follows the other one, and becomes a primary again before it receives the other's data: its
        // connections stay open.
        let mut there_and_back = redis::pipe();
        there_and_back.atomic().cmd("REPLICAOF").arg("127.0.0.1").arg(other.address().port());
        there_and_back.cmd("REPLICAOF").arg("NO").arg("ONE");
        let () = there_and_back.query(&mut server.client().get_connection().unwrap()).unwrap();
        assert!(told(server, "role:master"));
        assert!(
            is_quarantined(&here.try_acquire("door", jane, MINUTE).await),
            "the server granted Joe's lease to Jane"
        );
        assert!(is_quarantined(&there.try_acquire("other", joe, MINUTE).fresh_token().await));
        here.renew(&before).await.unwrap();
        here.release(&before).await.unwrap();
        // There is only one quarantine.
        here.engine().init().await.unwrap();
        for _ in 0..3 {
            let next = there.try_acquire("other", joe, MINUTE).fresh_token().await.unwrap();
            assert!(next.token() > last.token());
            last = next;
        }
    });
}

fn offset(server: &Server) -> u64 {
    let told: String = server.ask(&["INFO", "replication"]);
    let offset = told.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
    offset.unwrap().parse().unwrap()
}

/// When the last replica has been gone for a long time, the history of the data gets a new name without a promotion.
#[test]
fn a_primary_whose_last_replica_is_gone_still_grants() {
    let other = Server::start();
    at_desk_with(settings().quarantine(LATE), |desk| async move {
        let Desk { here, jane, server, .. } = &*desk;
        let history = || -> String {
            let told: String = server.ask(&["INFO", "replication"]);
            told.lines().find_map(|line| line.strip_prefix("master_replid:")).unwrap().to_owned()
        };
        let mut names = vec![history()];
        let () = server.ask(&["CONFIG", "SET", "repl-backlog-ttl", "1"]);
        let () = other.ask(&["REPLICAOF", "127.0.0.1", &server.address().port().to_string()]);
        for _ in 0..2 {
            while names.contains(&history()) {
                sleep(millis(20)).await;
            }
            names.push(history());
            let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
            here.release(&grant).await.unwrap();
            let () = other.ask(&["REPLICAOF", "NO", "ONE"]);
        }
    });
}

#[test]
fn an_unreachable_server_is_an_error_in_time_that_contains_no_password() {
    on_tokio(async {
        let client = redis::Client::open("redis://secretary:secret@127.0.0.1:1").unwrap();
        let engine = options().timeout(millis(300)).connect(client);
        let text = cases::an_unreachable_server_is_an_error_in_time::<Server>(engine).await;
        assert!(text.contains("there is no connection to the server"), "{text}");
    });
}

/// Each fault is inflicted again and again, while four owners in two processes take turns.
#[test]
fn one_owner_at_a_time_has_the_lease_whatever_is_done_to_the_server() {
    const TTL: Duration = Duration::from_secs(1);
    const OFTEN: Duration = Duration::from_millis(50);
    let ways: [(Duration, &[&[&str]]); 5] = [
        (OFTEN, &[&["CLIENT", "KILL", "TYPE", "normal"], &["CLIENT", "KILL", "TYPE", "pubsub"]]),
        (OFTEN, &[&["SCRIPT", "FLUSH"]]),
        (OFTEN, &[&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]]),
        (TTL, &[&["FLUSHALL"]]),
        (TTL, &[&["DEL", LEASES], &["DEL", ENDS], &["DEL", OWNED]]),
    ];
    at_desk_with(settings().quarantine(TTL).timeout(2 * SECOND), |desk| async move {
        for (every, commands) in ways {
            let trouble = || {
                for command in commands.iter().cycle().take((2 * TTL).div_duration_f64(every) as usize) {
                    let _: Value = desk.server.ask(command);
                    std::thread::sleep(every);
                }
            };
            tokio::task::block_in_place(|| turns(&[&desk.here, &desk.there], TTL, trouble));
        }
    });
}

#[test]
fn dropped_requests_leave_no_connection() {
    at_desk(|desk| async move {
        cases::dropped_requests_leave_nothing_behind(Arc::clone(&desk)).await;
        assert_eq!(desk.server.connections("desk"), Some(2));
    });
}

// --- The driver -----------------------------------------------------------------------------------------------------

#[test]
fn an_engine_without_a_driver_is_stopped() {
    on_tokio(async {
        let dial = || async { std::future::pending::<Result<(_, tokio::net::TcpStream), BoxError>>().await };
        let (engine, driver) = options().connect_with_settings(dial);
        cases::an_engine_without_a_driver_is_stopped::<Server>(engine, driver).await;
    });
}

/// The driver sees the last answer and the end of the connection in the same poll.
#[test]
fn a_connection_that_ends_with_the_answer_that_opens_it_is_replaced() {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};

    async fn request(stream: &mut BufReader<DuplexStream>) -> Vec<String> {
        async fn number(stream: &mut BufReader<DuplexStream>) -> usize {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            line[1..].trim_end().parse().unwrap()
        }
        let mut words = Vec::new();
        for _ in 0..number(stream).await {
            let mut word = vec![0; number(stream).await + 2];
            stream.read_exact(&mut word).await.unwrap();
            words.push(String::from_utf8(word).unwrap().trim_end().to_owned());
        }
        words
    }

    /// Answers like a server until it has answered the first script, and then closes the connection.
    async fn serve(stream: DuplexStream, answers: Arc<AtomicUsize>) {
        let mut stream = BufReader::new(stream);
        loop {
            let words = request(&mut stream).await;
            let answer = match &*words[0] {
                "HELLO" => "%1\r\n+proto\r\n:3\r\n",
                "INFO" => "$31\r\nrole:master\r\nrun_id:the-first\r\n\r\n",
                "SUBSCRIBE" => ">3\r\n+subscribe\r\n+free\r\n:1\r\n",
                "EVALSHA" => ":0\r\n",
                _ => "+OK\r\n",
            };
            stream.write_all(answer.as_bytes()).await.unwrap();
            if words[0] == "EVALSHA" {
                answers.fetch_add(1, SeqCst);
                break;
            }
        }
    }

    // With one thread, the driver does not run between the answer and the end of the connection.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let answers = Arc::new(AtomicUsize::new(0));
        let dial = || async {
            let (ours, theirs) = duplex(65536);
            tokio::spawn(serve(theirs, Arc::clone(&answers)));
            Ok((RedisConnectionInfo::default(), ours))
        };
        let (engine, driver) = options().connect_with_settings(dial);
        let answered = async {
            while answers.load(SeqCst) < 3 {
                sleep(millis(5)).await;
            }
        };
        let mut driver = std::pin::pin!(driver);
        let both =
            futures_lite::future::or(answered, async { panic!("the driver ended: {:?}", driver.as_mut().await) });
        tokio::time::timeout(20 * SECOND, both).await.expect("the driver does not connect again");
        drop(engine);
    });
}

/// The engine needs no tokio runtime, and its calls can be made in their blocking form.
#[test]
fn the_engine_runs_on_another_runtime() {
    use tokio_util::compat::FuturesAsyncReadCompatExt;

    let server = Server::start();
    let address = server.address();
    let dial = move || async move {
        let stream = smol::net::TcpStream::connect(address).await?;
        Ok((RedisConnectionInfo::default(), stream.compat()))
    };
    let (engine, driver) = options().connect_with_settings(dial);
    let driver = smol::spawn(driver);
    smol::block_on(engine.init()).unwrap();
    let leases = Leases::with_engine(engine);
    let grant = cases::the_engine_runs_on_another_runtime(&leases);
    smol::block_on(async {
        // The connection is cut, and made again.
        assert_eq!(server.cut("desk").await, 1);
        leases.release(&grant).await.unwrap();
        drop(leases);
        driver.await;
    });
    assert_eq!(server.connections("desk"), Some(0));
}

#[test]
fn the_driver_of_a_dropped_engine_ends_although_the_server_is_silent() {
    let server = Server::start();
    let address = server.address();
    let connect = |sweeps| {
        let dial =
            move || async move { Ok((RedisConnectionInfo::default(), tokio::net::TcpStream::connect(address).await?)) };
        Redis::in_namespace("desk").sweeps(sweeps).timeout(5 * SECOND).connect_with_settings(dial)
    };
    on_tokio(cases::the_driver_of_a_dropped_engine_ends_although_the_server_is_silent(&server, connect));
}

/// A release may be carried out late.
#[test]
fn a_late_release_with_a_token_ends_only_that_tenure() {
    at_desk(|desk| async move {
        let engine = desk.here.engine();
        let report = Resource::from("report");
        let old = desk.here.try_acquire(&report, &desk.jane, MINUTE).await.unwrap().token();
        let new = desk.here.try_acquire(&report, &desk.jane, MINUTE).fresh_token().await.unwrap().token();
        let release = |token| engine.release(&report, &desk.jane, Some(token), Duration::ZERO);
        assert_eq!(release(old).await.unwrap(), Gone::NotOwner(desk.jane.clone()));
        assert_eq!(release(new).await.unwrap(), Gone::Released);
        assert_eq!(release(new).await.unwrap(), Gone::NotHeld);
    });
}
