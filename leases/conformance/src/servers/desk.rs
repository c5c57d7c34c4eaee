//! Two engines on one namespace, for a test.

use std::{
    fmt,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use keylatch_lease::{
    AcquireError, Expiry, Grant, Leases, Owner, Resource, Term,
    engine::{Ask, Engine, Want},
};
use tokio::time::sleep;

use super::{Failure, Settings, TestServer, on_tokio};

/// A second.
pub const SECOND: Duration = Duration::from_secs(1);

/// A minute: a lease of this length lasts longer than a test.
pub const MINUTE: Duration = Duration::from_secs(60);

/// An hour: no timer of this length fires during a test.
pub const LATE: Duration = Duration::from_secs(3600);

/// The longest time that an engine may need to connect. An engine whose own time limit is short may exceed that limit
/// on a busy machine, and is asked again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two engines on one namespace, like those of two processes, and two owners.
///
/// # Examples
/// See [`at_desk`].
pub struct Desk<S: TestServer> {
    /// The server.
    pub server: Arc<S>,
    /// The settings of both engines.
    pub settings: Settings,
    /// The namespace of both engines.
    pub namespace: String,
    /// The engine of one process.
    pub here: Leases<S::Engine>,
    /// The engine of the other process.
    pub there: Leases<S::Engine>,
    /// A connection to the server that bypasses the engines.
    pub client: S::Client,
    /// One owner.
    pub jane: Owner,
    /// The other owner.
    pub joe: Owner,
}

impl<S: TestServer> fmt::Debug for Desk<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Runs a test on tokio, at a desk on this server. Opens the namespace of the settings.
///
/// # Panics
/// If the test panics or takes longer than a minute, or if the engines cannot connect.
///
/// # Examples
/// ```no_run
/// use std::sync::Arc;
///
/// use keylatch_lease_conformance::servers::{MINUTE, Settings, TestServer, at_desk, namespace};
///
/// fn a_lease_is_granted_once<S: TestServer>(server: Arc<S>) {
///     at_desk(&server, Settings::new(namespace(), None), |desk| async move {
///         desk.here.try_acquire("report", &desk.jane, MINUTE).await.unwrap();
///         desk.there.try_acquire("report", &desk.joe, MINUTE).await.unwrap_err();
///     });
/// }
/// ```
pub fn at_desk<S: TestServer, F: Future<Output = ()>>(
    server: &Arc<S>,
    settings: Settings,
    test: impl FnOnce(Arc<Desk<S>>) -> F,
) {
    on_tokio(async { test(Arc::new(Desk::new(Arc::clone(server), settings).await)).await });
}

impl<S: TestServer> Desk<S> {
    /// Makes the engines, and opens their namespace.
    ///
    /// # Panics
    /// If the engines cannot connect.
    ///
    /// # Examples
    /// See [`at_desk`].
    pub async fn new(server: Arc<S>, settings: Settings) -> Self {
        let (these, address) = (settings.clone(), server.address());
        Desk::with(server, settings, || S::connect(these.clone(), address)).await
    }

    /// Does the same as [`new`](Self::new), with engines that a function makes. They may have options beyond the
    /// settings.
    ///
    /// # Panics
    /// If the engines cannot connect.
    ///
    /// # Examples
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use keylatch_lease_conformance::servers::{Desk, Settings, TestServer};
    /// # async fn example<S: TestServer>(server: Arc<S>, settings: Settings) {
    /// let other = S::connect(settings.clone(), server.address()); // with options beyond the settings
    /// let desk = Desk::with(server, settings, || other.clone()).await;
    /// # }
    /// ```
    pub async fn with(server: Arc<S>, settings: Settings, connect: impl Fn() -> S::Engine) -> Self {
        let (here, there) = (Leases::with_engine(connect()), Leases::with_engine(connect()));
        for leases in [&here, &there] {
            patiently(|| S::ready(leases.engine())).await;
        }
        patiently(|| S::open(here.engine())).await;
        let client = server.client().await;
        let namespace = settings.namespace.clone();
        let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
        Desk { server, settings, namespace, here, there, client, jane, joe }
    }

    /// Returns one more engine with these settings, such as a changed copy of the desk's [`settings`](Self::settings).
    ///
    /// # Examples
    /// ```no_run
    /// # use keylatch_lease_conformance::servers::{Desk, LATE, TestServer};
    /// # fn example<S: TestServer>(desk: Desk<S>) {
    /// let patient = desk.more(desk.settings.clone().fallback(LATE));
    /// # }
    /// ```
    #[must_use]
    pub fn more(&self, settings: Settings) -> Leases<S::Engine> {
        Leases::with_engine(S::connect(settings, self.server.address()))
    }

    /// Lets time pass for all leases of the namespace: see [`TestServer::pass`].
    ///
    /// # Examples
    /// See [`at_desk`].
    pub async fn pass(&self, time: Duration) {
        self.server.pass(&self.namespace, time).await;
    }

    /// Returns whether the server knows of a waiter: see [`TestServer::is_wanted`].
    ///
    /// # Examples
    /// See [`at_desk`].
    pub async fn is_wanted(&self, resource: impl Into<Resource>) -> bool {
        self.server.is_wanted(&self.namespace, &resource.into()).await
    }

    /// Ends the connections of the engines: see [`TestServer::cut`].
    ///
    /// # Examples
    /// See [`at_desk`].
    pub async fn cut(&self) -> u64 {
        self.server.cut(&self.namespace).await
    }
}

/// Returns this number of milliseconds.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::servers::{SECOND, millis};
///
/// assert_eq!(millis(1000), SECOND);
/// ```
#[must_use]
pub const fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// Returns a request of a caller that does not wait.
///
/// # Examples
/// ```
/// use keylatch_lease::engine::Want;
/// use keylatch_lease_conformance::servers::{MINUTE, ask, sliding};
///
/// let (expiry, term) = sliding(MINUTE);
/// assert!(!ask(&"report".into(), &"jane".into(), Want::Any, &expiry, term).waiting);
/// ```
#[must_use]
pub fn ask<'a>(
    resource: &'a Resource,
    owner: &'a Owner,
    want: Want,
    expiry: &'a Expiry,
    term: Option<Term>,
) -> Ask<'a> {
    Ask { resource, owner, want, term, expiry, waiting: false, at: Duration::ZERO }
}

/// Returns a sliding policy, and the term of a lease that begins with it.
///
/// # Examples
/// See [`ask`].
#[must_use]
pub fn sliding(time: Duration) -> (Expiry, Option<Term>) {
    (Expiry::Sliding(time), Some(Term { idle: Some(time), total: None }))
}

/// Returns a policy of each kind except custom ones, with this time. The total of [`Expiry::SlidingUpTo`] is twice as
/// long.
///
/// # Examples
/// ```
/// use keylatch_lease::Expiry;
/// use keylatch_lease_conformance::servers::{MINUTE, policies};
///
/// assert!(policies(MINUTE).contains(&Expiry::Fixed(MINUTE)));
/// ```
#[must_use]
pub fn policies(time: Duration) -> [Expiry; 4] {
    [Expiry::Fixed(time), Expiry::Sliding(time), Expiry::SlidingUpTo { idle: time, total: 2 * time }, Expiry::Never]
}

/// Returns whether a remaining time is the expected one, or shorter by less than ten seconds.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::servers::{MINUTE, SECOND, is_about};
///
/// assert!(is_about(Some(MINUTE - SECOND), MINUTE));
/// assert!(!is_about(Some(MINUTE + SECOND), MINUTE));
/// assert!(!is_about(None, MINUTE));
/// ```
#[must_use]
pub fn is_about(remaining: Option<Duration>, expected: Duration) -> bool {
    remaining.is_some_and(|remaining| remaining <= expected && remaining + 10 * SECOND > expected)
}

/// Returns whether a request was refused because of a quarantine.
///
/// # Examples
/// ```
/// use keylatch_lease::{AcquireError, Grant};
/// use keylatch_lease_conformance::servers::is_quarantined;
///
/// fn told(asked: &Result<Grant, AcquireError<std::io::Error>>) -> &'static str {
///     if is_quarantined(asked) { "wait a minute" } else { "there is no quarantine" }
/// }
/// ```
pub fn is_quarantined<T, X>(asked: &Result<T, AcquireError<X>>) -> bool {
    matches!(asked, Err(AcquireError::Quarantined { .. }))
}

/// Keeps requesting a lease of a minute, until there is neither a quarantine nor an error of the engine.
///
/// # Panics
/// If the request is refused for any reason other than a quarantine: for example, if another owner has the resource.
///
/// # Examples
/// ```no_run
/// # use keylatch_lease_conformance::servers::{Desk, TestServer, insist};
/// # async fn example<S: TestServer>(desk: &Desk<S>) {
/// let grant = insist(&desk.here, "report", &desk.jane).await;
/// # }
/// ```
pub async fn insist<E: Engine<Error: fmt::Debug>>(leases: &Leases<E>, resource: &str, owner: &Owner) -> Grant {
    loop {
        match leases.try_acquire(resource, owner, MINUTE).await {
            Ok(grant) => return grant,
            Err(AcquireError::Quarantined { .. } | AcquireError::Engine(_)) => sleep(millis(20)).await,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Repeats a call until it succeeds.
///
/// # Panics
/// If it still fails after [`PATIENCE`].
async fn patiently<F: Future<Output = Result<(), Failure>>>(call: impl Fn() -> F) {
    let start = Instant::now();
    while let Err(failure) = call().await {
        assert!(start.elapsed() < PATIENCE, "{failure}");
        sleep(Duration::from_millis(50)).await;
    }
}
