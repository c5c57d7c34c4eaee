//! Tests of requests that wait for the connection at the same moment.

mod common;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use common::Server;
use futures_lite::future::{or, poll_once};
use keylatch_lease::{
    AcquireError, Expiry, Grant, Leases, Owner, ReleaseError, Resource,
    engine::{Engine, Gone},
};
use keylatch_lease_conformance::servers::{LATE, MINUTE, SECOND, TestServer, millis, on_tokio};
use keylatch_lease_redis::{Error, Redis};
use redis::RedisConnectionInfo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, duplex, split},
    net::TcpStream,
    time::sleep,
};

const LEASES: &str = "{keylatch:desk}:leases";
const ENDS: &str = "{keylatch:desk}:ends";
const OWNED: &str = "{keylatch:desk}:owned";

type Acquired = Result<Grant, AcquireError<Error>>;
type Acquire<'a> = Pin<Box<dyn Future<Output = Acquired> + Send + 'a>>;

/// A gate on the way to the server: it can keep the server's answers back, and can cut the connection.
#[derive(Default)]
struct Gate {
    is_closed: AtomicBool,
    /// The number of chunks of the server's output that may pass although the gate is closed.
    passes: AtomicUsize,
    cuts: AtomicUsize,
}

impl Gate {
    async fn carry(self: Arc<Self>, stream: DuplexStream, server: TcpStream) {
        let cuts = self.cuts.load(SeqCst);
        let ((mut requests, mut answers), (mut from, mut to)) = (split(stream), server.into_split());
        let up = async {
            let _ = copy(&mut requests, &mut to).await;
        };
        let down = async {
            let mut buffer = vec![0; 65536];
            while let Ok(size @ 1..) = from.read(&mut buffer).await {
                let pass = || self.passes.load(SeqCst) > 0 && self.passes.fetch_sub(1, SeqCst) > 0;
                while self.is_closed.load(SeqCst) && !pass() {
                    sleep(millis(1)).await;
                }
                answers.write_all(&buffer[..size]).await.unwrap();
            }
        };
        let cut = async {
            while self.cuts.load(SeqCst) == cuts {
                sleep(millis(1)).await;
            }
        };
        or(cut, or(up, down)).await;
    }
}

/// Two processes; one of them reaches the server through a gate.
struct Desk {
    server: Server,
    gate: Arc<Gate>,
    here: Leases<Redis>,
    there: Leases<Redis>,
    jane: Owner,
    joe: Owner,
}

impl Desk {
    async fn new() -> Self {
        let (server, gate) = (Server::start(), Arc::new(Gate::default()));
        let options = Redis::in_namespace("desk").sweeps(None).timeout(20 * SECOND);
        let there = server.leases(options.clone());
        there.engine().init().await.unwrap();
        let (address, way) = (server.address(), Arc::clone(&gate));
        let dial = move || {
            let way = Arc::clone(&way);
            async move {
                let (ours, theirs) = duplex(1 << 20);
                tokio::spawn(way.carry(theirs, TcpStream::connect(address).await?));
                Ok((RedisConnectionInfo::default(), ours))
            }
        };
        let (engine, driver) = options.connect_with_settings(dial);
        tokio::spawn(driver);
        engine.ready().await.unwrap();
        let here = Leases::with_engine(engine);
        Desk { server, gate, here, there, jane: Owner::named("jane"), joe: Owner::named("joe") }
    }

    /// Starts an acquire and polls it once, which sends it or puts it in line.
    async fn started(&self, resource: impl Into<Resource>, expiry: impl Into<Expiry>) -> Acquire<'_> {
        let mut acquire: Acquire<'_> = Box::pin(self.here.try_acquire(resource, &self.jane, expiry).into_future());
        assert!(poll_once(&mut acquire).await.is_none());
        acquire
    }

    /// Makes the connection busy: a request that was sent at once is under way, and so is the greatest number of
    /// batches, and no answer arrives.
    async fn plugged(&self) -> Vec<Acquire<'_>> {
        self.gate.is_closed.store(true, SeqCst);
        let mut acquires = Vec::new();
        for resource in ["first plug", "second plug", "third plug"] {
            acquires.push(self.started(resource, Expiry::Never).await);
            while self.owner_of(resource).await.is_none() {
                sleep(millis(1)).await; // the server decides, and its answer is kept back
            }
        }
        acquires
    }

    /// Lets the answers arrive, and releases the leases that made the connection busy.
    async fn unplugged(&self, plug: Vec<Acquire<'_>>) {
        self.gate.is_closed.store(false, SeqCst);
        for grant in all(plug).await {
            self.there.release(&grant.unwrap()).await.unwrap();
        }
    }

    async fn owner_of(&self, resource: impl Into<Resource>) -> Option<Owner> {
        self.there.status(resource).await.unwrap().map(|status| status.owner().clone())
    }

    /// Returns how many scripts have acquired one lease, or decided about several requests, since this was last called.
    fn scripts(&self) -> u64 {
        let stats: String = self.server.ask(&["INFO", "commandstats"]);
        let () = self.server.ask(&["CONFIG", "RESETSTAT"]);
        // Each of these scripts makes one HMGET, for the namespace's state and the leases. Other scripts make none.
        let calls = |line: &str| line.split(['=', ',']).nth(1)?.parse::<u64>().ok();
        stats.lines().find(|line| line.starts_with("cmdstat_hmget:")).and_then(calls).unwrap_or(0)
    }
}

/// Runs a test on a server of its own.
fn at_desk(test: impl AsyncFnOnce(&Desk)) {
    on_tokio(async { test(&Desk::new().await).await });
}

async fn all(acquires: Vec<Acquire<'_>>) -> Vec<Acquired> {
    let mut acquired = Vec::new();
    for acquire in acquires {
        acquired.push(acquire.await);
    }
    acquired
}

#[test]
fn requests_that_wait_for_the_connection_become_one_script() {
    at_desk(async |desk| {
        let busy = desk.there.try_acquire("busy", &desk.joe, MINUTE).await.unwrap();
        let held = desk.here.try_acquire("held", &desk.jane, MINUTE).await.unwrap();
        let same = desk.here.try_acquire("same", &desk.jane, MINUTE).await.unwrap();
        let plug = desk.plugged().await;
        desk.scripts();
        let mut acquires = Vec::new();
        for i in 0..50 {
            acquires.push(desk.started(("page", &*i.to_string()), MINUTE).await);
        }
        let (resumed, refused) = (desk.started("same", 2 * MINUTE).await, desk.started("busy", MINUTE).await);
        let mut release = Box::pin(desk.here.release(&held).into_future());
        assert!(poll_once(&mut release).await.is_none());
        desk.unplugged(plug).await;
        let grants: Vec<_> = all(acquires).await.into_iter().map(Result::unwrap).collect();
        release.await.unwrap();
        assert_eq!(desk.scripts(), 1);
        let resumed = resumed.await.unwrap();
        assert!(resumed.is_resumed() && resumed.token() == same.token());
        let Err(AcquireError::Busy { owner, remaining: Some(left), .. }) = refused.await else { panic!("it was free") };
        assert!(owner == desk.joe && left > MINUTE / 2 && left <= MINUTE);

        // Everybody else sees what separate requests would have done.
        let mut tokens: Vec<_> = grants.iter().map(Grant::token).collect();
        tokens.dedup();
        assert!(tokens.is_sorted() && tokens.len() == 50, "each tenure has a greater token than those before");
        for (i, grant) in grants.iter().enumerate() {
            let status = desk.there.status(("page", &*i.to_string())).await.unwrap().unwrap();
            assert_eq!((status.owner(), status.token(), grant.is_resumed()), (&desk.jane, grant.token(), false));
        }
        assert_eq!(desk.owner_of("held").await, None);
        let left = desk.there.status("same").await.unwrap().unwrap().remaining().unwrap();
        assert!(left > MINUTE && left <= 2 * MINUTE);
        assert_eq!(desk.there.release_all(&desk.jane).await.unwrap(), 51);
        desk.there.release(&busy).await.unwrap();
        let left: Vec<String> = desk.server.ask(&["KEYS", "*"]);
        assert_eq!(left, [LEASES]);
    });
}

#[test]
fn a_value_that_is_not_a_lease_is_an_error_of_its_own_request() {
    at_desk(async |desk| {
        let held = desk.here.try_acquire("held", &desk.jane, MINUTE).await.unwrap();
        let () = desk.server.ask(&["HSET", LEASES, "0:bad", "something else"]);
        let plug = desk.plugged().await;
        let mut acquires = Vec::new();
        for resource in ["one", "bad", "other"] {
            acquires.push(desk.started(resource, MINUTE).await);
        }
        let mut release = Box::pin(desk.here.release(&held).into_future());
        assert!(poll_once(&mut release).await.is_none());
        desk.unplugged(plug).await;
        let [one, bad, other] = all(acquires).await.try_into().unwrap();
        release.await.unwrap();
        let Err(AcquireError::Engine(error @ Error::Refused { .. })) = bad else { panic!("{bad:?}") };
        assert!(error.to_string().contains("the value that is stored for the resource is not a lease"), "{error}");
        for grant in [one.unwrap(), other.unwrap()] {
            assert_eq!(desk.owner_of(grant.resource()).await, Some(desk.jane.clone()));
        }
        assert_eq!(desk.server.ask::<String>(&["HGET", LEASES, "0:bad"]), "something else");
    });
}

/// A key of the wrong type is an error for all requests that need the key.
#[test]
fn a_refused_batch_has_changed_nothing_and_each_request_gets_its_own_answer() {
    at_desk(async |desk| {
        let busy = desk.there.try_acquire("busy", &desk.joe, MINUTE).await.unwrap();
        let held = desk.here.try_acquire("held", &desk.jane, MINUTE).await.unwrap();
        let plug = desk.plugged().await;
        let () = desk.server.ask(&["RENAME", OWNED, "aside"]);
        let () = desk.server.ask(&["SET", OWNED, "mine"]);
        let (new, refused) = (desk.started("new", MINUTE).await, desk.started("busy", MINUTE).await);
        let mut release = Box::pin(desk.here.release(&held).into_future());
        assert!(poll_once(&mut release).await.is_none());
        desk.gate.is_closed.store(false, SeqCst);
        let new = new.await;
        assert!(
            matches!(&new, Err(AcquireError::Engine(Error::Refused { source })) if source.code() == Some("WRONGTYPE"))
        );
        assert!(matches!(refused.await, Err(AcquireError::Busy { .. })));
        assert!(matches!(release.await, Err(ReleaseError::Engine(Error::Refused { .. }))));
        let () = desk.server.ask(&["RENAME", "aside", OWNED]);
        desk.unplugged(plug).await;
        assert_eq!(desk.owner_of("new").await, None);
        desk.there.release(&held).await.unwrap();
        desk.there.release(&busy).await.unwrap();
        let left: Vec<String> = desk.server.ask(&["KEYS", "*"]);
        assert_eq!(left, [LEASES]);
    });
}

#[test]
fn releases_that_are_refused_together_end_no_lease() {
    at_desk(async |desk| {
        for key in [ENDS, OWNED] {
            let mut grants = Vec::new();
            for i in 0..3 {
                grants.push(desk.here.try_acquire(i.to_string(), &desk.jane, MINUTE).await.unwrap());
            }
            let before: Vec<Vec<String>> = [ENDS, OWNED].map(|key| desk.server.ask(&["ZRANGE", key, "0", "-1"])).into();
            let plug = desk.plugged().await;
            let () = desk.server.ask(&["RENAME", key, "aside"]);
            let () = desk.server.ask(&["SET", key, "mine"]);
            let mut releases: Vec<_> =
                grants.iter().map(|grant| Box::pin(desk.here.release(grant).into_future())).collect();
            for release in &mut releases {
                assert!(poll_once(release).await.is_none());
            }
            desk.gate.is_closed.store(false, SeqCst);
            for release in releases {
                assert!(matches!(release.await, Err(ReleaseError::Engine(Error::Refused { .. }))), "{key}");
            }
            let () = desk.server.ask(&["RENAME", "aside", key]);
            desk.unplugged(plug).await;
            for grant in &grants {
                assert_eq!(desk.owner_of(grant.resource().clone()).await, Some(desk.jane.clone()), "{key}");
            }
            if key == ENDS {
                let after: Vec<Vec<String>> =
                    [ENDS, OWNED].map(|key| desk.server.ask(&["ZRANGE", key, "0", "-1"])).into();
                assert_eq!(after, before);
            }
            assert_eq!(desk.there.release_all(&desk.jane).await.unwrap(), 3);
        }
    });
}

#[test]
fn a_server_that_is_out_of_memory_releases_beside_acquires_that_it_refuses() {
    at_desk(async |desk| {
        let held = desk.here.try_acquire("held", &desk.jane, MINUTE).await.unwrap();
        let plug = desk.plugged().await;
        let () = desk.server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
        let new = desk.started("new", MINUTE).await;
        let mut release = Box::pin(desk.here.release(&held).into_future());
        assert!(poll_once(&mut release).await.is_none());
        desk.unplugged(plug).await;
        let new = new.await;
        assert!(matches!(&new, Err(AcquireError::Engine(Error::Refused { source })) if source.code() == Some("OOM")));
        release.await.unwrap();
        assert_eq!((desk.owner_of("held").await, desk.owner_of("new").await), (None, None));
    });
}

#[test]
fn a_call_that_is_dropped_while_it_waits_is_not_sent_and_one_under_way_holds_up_nobody() {
    at_desk(async |desk| {
        let plug = desk.plugged().await;
        let (dropped, kept) = (desk.started("dropped", MINUTE).await, desk.started("kept", MINUTE).await);
        drop(dropped);
        drop(plug);
        desk.gate.is_closed.store(false, SeqCst);
        kept.await.unwrap();
        assert_eq!(desk.owner_of("dropped").await, None);
        assert_eq!(desk.owner_of("first plug").await, Some(desk.jane.clone()), "it was under way");
    });
}

/// The earlier call is dropped, so that nobody reads its answer.
#[test]
fn requests_about_a_resource_are_decided_in_the_order_in_which_they_were_sent() {
    at_desk(async |desk| {
        drop(desk.plugged().await);
        // These requests are in batches that are under way, and later requests do not wait for the answers.
        for resource in ["second plug", "third plug"] {
            let mut release = Box::pin(desk.here.release_as(resource, &desk.jane).into_future());
            assert!(poll_once(&mut release).await.is_none());
            while desk.owner_of(resource).await.is_some() {
                sleep(millis(1)).await;
            }
        }
        let mut release = Box::pin(desk.here.release_as("first plug", &desk.jane).into_future());
        assert!(poll_once(&mut release).await.is_none());
        desk.gate.is_closed.store(false, SeqCst);
        release.await.unwrap();
        assert_eq!(desk.owner_of("first plug").await, None);
    });
}

#[test]
fn a_request_that_was_given_up_is_not_sent_again_behind_a_later_one() {
    at_desk(async |desk| {
        let held = desk.here.try_acquire("held", &desk.jane, MINUTE).await.unwrap();
        let plug = desk.plugged().await;
        // The server forgets the scripts, except the one that the acquire of another program brings back.
        let () = desk.server.ask(&["SCRIPT", "FLUSH"]);
        desk.there.try_acquire("other", &desk.joe, MINUTE).await.unwrap();
        let () = desk.server.ask(&["CONFIG", "RESETSTAT"]);
        let mut release = Box::pin(desk.here.release(&held).into_future());
        let mut another = Box::pin(desk.here.release_as("another", &desk.jane).into_future());
        assert!(poll_once(&mut release).await.is_none() && poll_once(&mut another).await.is_none());
        // The answers for the plug arrive, so that the batch is sent. The batch's answer, that the script is not known,
        // is kept back.
        desk.gate.passes.store(2, SeqCst);
        while !desk.server.ask::<String>(&["INFO", "errorstats"]).contains("NOSCRIPT") {
            sleep(millis(1)).await;
        }
        drop(release);
        let again = desk.started("held", MINUTE).await;
        desk.gate.is_closed.store(false, SeqCst);
        assert_eq!(again.await.unwrap().token(), held.token());
        assert!(another.await.is_err(), "nobody had it");
        assert_eq!(desk.owner_of("held").await, Some(desk.jane.clone()));
        desk.unplugged(plug).await;
    });
}

#[test]
fn requests_that_wait_when_the_connection_ends_go_to_the_next_one() {
    at_desk(async |desk| {
        let plug = desk.plugged().await;
        let resources: Vec<_> = (0..10).map(|i| Resource::from(i.to_string())).collect();
        let mut releases = Vec::new();
        for resource in &resources {
            // The engine is called directly, because the front end would send a lost request again.
            let mut release = Box::pin(desk.here.engine().release(resource, &desk.jane, None, SECOND));
            assert!(poll_once(&mut release).await.is_none());
            releases.push(release);
        }
        desk.gate.cuts.fetch_add(1, SeqCst);
        desk.gate.is_closed.store(false, SeqCst);
        for release in releases {
            assert!(matches!(release.await, Ok(Gone::NotHeld)));
        }
        desk.unplugged(plug).await;
    });
}

#[test]
fn requests_whose_answers_are_lost_are_sent_again() {
    at_desk(async |desk| {
        let held = desk.here.try_acquire("held", &desk.jane, MINUTE).await.unwrap();
        let plug = desk.plugged().await;
        let mut acquires = Vec::new();
        for i in 0..10 {
            acquires.push(desk.started(i.to_string(), LATE).await);
        }
        let mut release = Box::pin(desk.here.release(&held).into_future());
        assert!(poll_once(&mut release).await.is_none());
        // The answers for the plug arrive, so that a batch is sent. It is decided, but its answer is lost.
        desk.gate.passes.store(2, SeqCst);
        while desk.owner_of("held").await.is_some() {
            sleep(millis(1)).await;
        }
        let late = desk.started("late", LATE).await; // it waits, or is under way
        desk.gate.cuts.fetch_add(1, SeqCst);
        desk.gate.is_closed.store(false, SeqCst);
        for (i, grant) in all(acquires).await.into_iter().enumerate() {
            let grant = grant.unwrap();
            assert!(!grant.is_resumed(), "the tenure began with this call");
            assert_eq!(desk.there.status(i.to_string()).await.unwrap().unwrap().token(), grant.token());
        }
        release.await.unwrap();
        assert_eq!(desk.owner_of("held").await, None);
        for grant in all(plug).await.into_iter().chain([late.await]) {
            let grant = grant.unwrap();
            assert_eq!(desk.there.status(grant.resource().clone()).await.unwrap().unwrap().token(), grant.token());
        }
    });
}

#[test]
fn more_than_a_batch_may_contain_travels_in_several() {
    at_desk(async |desk| {
        let plug = desk.plugged().await;
        desk.scripts();
        let mut acquires = Vec::new();
        for i in 0..300 {
            acquires.push(desk.started(i.to_string(), MINUTE).await);
        }
        desk.gate.is_closed.store(false, SeqCst);
        for grant in all(acquires).await {
            grant.unwrap();
        }
        let scripts = desk.scripts();
        assert!((3..10).contains(&scripts), "{scripts} scripts");
        desk.unplugged(plug).await;
        assert_eq!(desk.there.release_all(&desk.jane).await.unwrap(), 300);
    });
}
