//! Tests of an engine on real servers, which the tests start, harm and remove. Only with the feature `servers`.
//!
//! An engine's tests describe in a [`TestServer`] how its server is started, and how the engine connects. That gives
//! three things:
//!
//! - [`on_server!`](crate::on_server) runs [the suite](crate#cases) on the server, with workers in other processes.
//! - [`at_desk`] runs one of the engine's own tests at a [`Desk`]: two engines on one namespace, like those of two
//!   processes.
//! - [`engine_tests!`](crate::engine_tests) makes tests of behaviour that all engines on servers share, and that the
//!   suite cannot see: the server's messages, connections that are cut, the end of a driver. See [`cases`].
//!
//! A [`PrivateServer`] is run by a script; `leases/servers/run` of this project is one.
//!
//! # Examples
//! The tests of an engine for Redis:
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use keylatch_lease_conformance::{Failure, servers::{PrivateServer, Settings, TestServer}};
//!
//! # mod keylatch_lease_redis {
//! #     use std::time::Duration;
//! #     use keylatch_lease::{Owner, Resource, Token, engine::*};
//! #     #[derive(Clone, Debug)]
//! #     pub enum Error { Lost }
//! #     impl std::fmt::Display for Error {
//! #         fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("lost") }
//! #     }
//! #     impl std::error::Error for Error {}
//! #     impl keylatch_lease_remote::Failure for Error {
//! #         fn unconnected(_: Option<keylatch_lease_remote::BoxError>) -> Self { Error::Lost }
//! #         fn timeout() -> Self { Error::Lost }
//! #         fn stopped() -> Self { Error::Lost }
//! #     }
//! #     #[derive(Clone)]
//! #     pub struct Redis;
//! #     impl Redis {
//! #         pub async fn ready(&self) -> Result<(), Error> { Ok(()) }
//! #     }
//! #     type Done<T> = Result<T, Fail<Error>>;
//! #     impl Engine for Redis {
//! #         type Error = Error;
//! #         fn now(&self) -> Duration { Duration::ZERO }
//! #         async fn acquire(&self, _: Ask<'_>) -> Done<Answer> { Ok(Answer::Free) }
//! #         async fn renew(&self, _: &mut [Renewal<'_>], _: Duration) -> Done<()> { Ok(()) }
//! #         async fn release(&self, _: &Resource, _: &Owner, _: Option<Token>, _: Duration) -> Done<Gone> { Ok(Gone::NotHeld) }
//! #         async fn release_all(&self, _: &Owner, _: Duration) -> Done<Vec<Resource>> { Ok(vec![]) }
//! #         async fn look(&self, _: &Resource, _: Duration) -> Done<Option<Record>> { Ok(None) }
//! #         async fn owned_by(&self, _: &Owner, _: Duration) -> Done<Vec<Owned>> { Ok(vec![]) }
//! #         async fn sweep(&self, _: usize, _: Duration) -> Done<usize> { Ok(0) }
//! #     }
//! # }
//! use keylatch_lease_redis::Redis;
//!
//! struct RedisServer(PrivateServer);
//!
//! impl TestServer for RedisServer {
//!     type Engine = Redis;
//!     type Client = ();
//!
//!     const NAME: &'static str = "Redis";
//!
//!     fn set_up() -> Self {
//!         RedisServer(PrivateServer::new("leases/servers/run", "redis").start())
//!     }
//!
//!     fn private(&self) -> &PrivateServer {
//!         &self.0
//!     }
//!
//!     fn connect(settings: Settings, address: SocketAddr) -> Redis {
//! # /*
//!         let Settings { namespace, timeout, fallback, sweeps, quarantine } = settings;
//!         let options = Redis::in_namespace(namespace).timeout(timeout).fallback(fallback).sweeps(sweeps);
//!         options.quarantine(quarantine).connect(redis::Client::open(format!("redis://{address}")).unwrap())
//! # */
//! #       let _ = (settings, address); Redis
//!     }
//!
//!     async fn ready(engine: &Redis) -> Result<(), Failure> {
//!         Ok(engine.ready().await?)
//!     }
//!
//!     async fn client(&self) {}
//! }
//!
//! // At the top of a test binary:
//! keylatch_lease_conformance::on_server!(RedisServer);
//! ```

pub mod cases;
mod desk;
mod failover;
mod fixture;
mod private;

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_lite::Stream;
use keylatch_lease::{Resource, engine::Engine};
use keylatch_lease_remote::Failure as Failed;
pub use keylatch_lease_remote::Settings;

pub use self::{
    desk::{Desk, LATE, MINUTE, SECOND, ask, at_desk, insist, is_about, is_quarantined, millis, policies, sliding},
    failover::{only_the_fence_decides, replace_a_dead_primary, work_during},
    fixture::{OnServer, worker},
    private::{PrivateServer, free_ports},
};
use crate::{ByHand, Caps, Failure};

/// A private server of an engine's tests, with everything on it that the engine needs.
///
/// All tests need the methods that have no default. Most of the other methods make more tests possible, in the suite
/// and in [`cases`]. By default, `pass`, `is_wanted`, `cut` and `listen` panic.
///
/// # Examples
/// See the [module's page](self).
pub trait TestServer: Sized + Send + Sync + 'static {
    /// The engine that is tested.
    type Engine: Engine<Error: Failed> + Clone + 'static;

    /// A connection to the server that bypasses the engine.
    type Client: Send + Sync;

    /// The engine's name in reports.
    const NAME: &'static str;

    /// Starts a server, and sets it up.
    fn set_up() -> Self;

    /// Returns the server that the script runs.
    fn private(&self) -> &PrivateServer;

    /// Returns an engine at this address, on the current tokio runtime. Its connection should have the namespace as its
    /// name on the server.
    fn connect(settings: Settings, address: SocketAddr) -> Self::Engine;

    /// Waits until an engine is connected.
    fn ready(engine: &Self::Engine) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Opens a new namespace, without a quarantine. The default does nothing.
    fn open(engine: &Self::Engine) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = engine;
        async { Ok(()) }
    }

    /// Returns a connection to the server that bypasses the engine.
    fn client(&self) -> impl Future<Output = Self::Client> + Send;

    /// Adjusts what the suite expects of the engine.
    fn adjust(caps: &mut Caps) {
        let _ = caps;
    }

    /// Returns the address at which the server listens.
    fn address(&self) -> SocketAddr {
        self.private().address()
    }

    /// Runs an action of the script on the server: see [`PrivateServer`].
    ///
    /// # Panics
    /// If the script fails.
    fn run(&self, action: &str) {
        self.private().run(action);
    }

    /// Kills the server and starts it without any of its data.
    fn forget(&self) {
        self.run("forget");
    }

    /// Deletes all leases while the server runs.
    ///
    /// # Errors
    /// Fails if the server cannot be emptied.
    fn empty(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be emptied"))
    }

    /// Returns the ways of [`Fixture::by_hand`](crate::Fixture::by_hand).
    #[must_use]
    fn by_hand() -> Vec<ByHand> {
        Vec::new()
    }

    /// Takes away all leases of a namespace, as [`Fixture::take_away`](crate::Fixture::take_away) does.
    ///
    /// # Errors
    /// Fails if the leases could not be taken away.
    fn take_away(&self, namespace: &str, what: &str) -> impl Future<Output = Result<(), Failure>> + Send {
        let failure = Failure::does_not_apply(format!("{what} of {namespace} cannot be taken away"));
        async { Err(failure) }
    }

    /// Returns the number of connections from engines of this namespace, if the server knows it.
    fn connections(&self, namespace: &str) -> Option<u64> {
        let _ = namespace;
        None
    }

    /// Changes the namespace's data on the server as if this time had passed.
    fn pass(&self, namespace: &str, time: Duration) -> impl Future<Output = ()> + Send {
        let _ = (namespace, time);
        async { panic!("this server's data cannot be changed as if time had passed") }
    }

    /// Returns whether the server knows of a waiter for this resource.
    fn is_wanted(&self, namespace: &str, resource: &Resource) -> impl Future<Output = bool> + Send {
        let _ = (namespace, resource);
        async { panic!("this server does not know of waiters") }
    }

    /// Ends the connections of all engines of this namespace, and returns their number.
    fn cut(&self, namespace: &str) -> impl Future<Output = u64> + Send {
        let _ = namespace;
        async { panic!("this server cannot cut connections") }
    }

    /// Returns all messages to the engines of a namespace from now on. Each consists of the letter of
    /// [`Told`](keylatch_lease_remote::Told), the token and the key of the resource, separated by spaces.
    fn listen(&self, namespace: &str) -> impl Future<Output = Messages> + Send {
        let _ = namespace;
        async { panic!("this server's messages cannot be listened to") }
    }
}

/// Messages of a server: see [`TestServer::listen`].
pub type Messages = Pin<Box<dyn Stream<Item = String> + Send>>;

/// A server that the tests of a binary share while any of them runs.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use keylatch_lease_conformance::servers::Shared;
///
/// static SHARED: Shared<String> = Shared::new();
///
/// let first = SHARED.get(|| "a server".to_owned());
/// assert!(Arc::ptr_eq(&first, &SHARED.get(|| unreachable!("the server has been started"))));
/// ```
#[derive(Debug)]
pub struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    /// Returns a shared server that has not been started.
    ///
    /// # Examples
    /// See [`Shared`].
    #[must_use]
    pub const fn new() -> Self {
        Shared(Mutex::new(Weak::new()))
    }

    /// Returns the server, and starts it if no test uses it.
    ///
    /// # Examples
    /// See [`Shared`].
    pub fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = lock(&self.0);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(start());
        *shared = Arc::downgrade(&server);
        server
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Shared::new()
    }
}

/// Returns a namespace that no other caller in this process has.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::servers::namespace;
///
/// assert_ne!(namespace(), namespace());
/// ```
#[must_use]
pub fn namespace() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);

    format!("test-{}", LAST.fetch_add(1, Relaxed))
}

/// Runs a test on a tokio runtime of its own.
///
/// # Panics
/// If the test panics, or takes longer than a minute.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::servers::on_tokio;
///
/// assert_eq!(on_tokio(async { 42 }), 42);
/// ```
pub fn on_tokio<F: Future>(test: F) -> F::Output {
    let runtime = runtime();
    let output = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await });
    runtime.shutdown_background();
    output.expect("the test takes longer than a minute")
}

/// Runs a future to its end on a thread and a tokio runtime of its own: for calls from a thread that may already run a
/// runtime.
///
/// # Panics
/// If the future panics.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::servers::{apart, on_tokio};
///
/// on_tokio(async {
///     assert_eq!(apart(async || 42), 42);
/// });
/// ```
pub fn apart<T: Send>(run: impl AsyncFnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(run())
        });
        done.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Locks a mutex, even if a test has panicked while it held the lock.
///
/// # Examples
/// ```
/// use std::sync::Mutex;
///
/// use keylatch_lease_conformance::servers::lock;
///
/// assert_eq!(*lock(&Mutex::new(7)), 7);
/// ```
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
