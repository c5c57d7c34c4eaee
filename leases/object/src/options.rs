use std::{future, sync::Arc, time::Duration};

use keylatch_lease_remote::{Core, Driving, Limit, Settings, drive};
use object_store::{ObjectStore, path::Path};
use tokio::runtime::Handle;

use crate::{bucket::Bucket, error::Error, place::Place, session::Session, store_clock::StoreClock, table::Table};

/// The factor by which an operation that reads the whole namespace may take longer than others.
const LONG: u32 = 10;

/// Settings of the engine: see [`Bucket::in_namespace`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_object::Bucket;
///
/// let options = Bucket::in_namespace("shop")
///     .prefix("infra/leases") // of the objects' paths
///     .polls(Duration::from_secs(1), Duration::from_secs(30)); // waiters cost less, and are served later
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is opened until `open` is called"]
pub struct Options {
    settings: Settings,
    prefix: Path,
    /// The first pause of a waiter between two polls. The longest one is the fallback.
    first: Duration,
    is_probed: bool,
    store_clock: Option<Duration>,
}

impl Bucket {
    /// Opens the leases in this bucket with the default settings, in the namespace `""`; see [`Options::open`].
    ///
    /// # Errors
    /// The reason that the bucket cannot be used.
    ///
    /// # Panics
    /// If the call is made outside a tokio runtime.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use keylatch_lease::{Leases, Owner};
    /// use keylatch_lease_object::{Bucket, object_store::memory::InMemory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = Arc::new(InMemory::new()); // for S3: AmazonS3Builder::from_env().with_bucket_name("shop").build()?
    /// let leases = Leases::with_engine(Bucket::open(store).await?);
    /// let jane = Owner::named("session-42");
    /// let grant = leases.try_acquire("report", &jane, Duration::from_secs(60)).await?;
    /// leases.release(&grant).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open(store: Arc<dyn ObjectStore>) -> Result<Bucket, Error> {
        Bucket::in_namespace("").open(store).await
    }

    /// Returns options for the leases of this namespace. Leases of different namespaces are independent.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch_lease_object::{Bucket, object_store::memory::InMemory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), keylatch_lease_object::Error> {
    /// let bucket = Bucket::in_namespace("shop").open(Arc::new(InMemory::new())).await?;
    /// assert_eq!(bucket.namespace(), "shop");
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_namespace(name: impl Into<String>) -> Options {
        let settings = Settings::new(name, None).fallback(Duration::from_secs(5));
        let first = Duration::from_millis(500);
        Options { settings, prefix: Path::from("keylatch"), first, is_probed: true, store_clock: None }
    }
}

impl Options {
    keylatch_lease_remote::setters! { settings;
        /// Sets the time limit of an operation: 5 s if not set. When it has passed, the operation fails. The limit
        /// includes the attempts that the store's client makes by itself: see `RetryConfig` of [`object_store`], whose
        /// default is three minutes.
        ///
        /// The calls of `Leases` ask up to three times if a request may have been carried out despite the timeout, so
        /// they may take three times as long. `list`, `owned_by`, `release_all` and `release_expired`, which read many
        /// objects, have ten times the limit.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_object::Bucket;
        /// let options = Bucket::in_namespace("shop").timeout(Duration::from_secs(30));
        /// ```
        pub fn timeout(time: Duration);

        /// Sets the interval at which this process frees the resources whose leases have expired. If not set, it never
        /// does. That does no harm, but `list`, `owned_by` and `release_all` then read every object of a lease that has
        /// expired and was neither released nor taken over. A sweep costs as much as `release_expired` does. It goes
        /// through the namespace in steps of 1,000 objects, each with the [time limit](Self::timeout) of an operation;
        /// if a step is cut off, the next sweep continues from there.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_object::Bucket;
        /// let options = Bucket::in_namespace("shop").sweeps(Some(Duration::from_secs(3600)));
        /// ```
        pub fn sweeps(every: Option<Duration>);
    }

    /// Sets the folder of the bucket in which the namespaces are: `keylatch` if not set.
    ///
    /// # Examples
    /// See [`Options`].
    pub fn prefix(mut self, prefix: impl Into<Path>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the first and the longest pause between two requests of a waiter: half a second and five seconds if not
    /// set. The pauses grow by half each time. Each pause is shortened at random, by up to half.
    ///
    /// A waiter in a different process from the holder learns of a release at its next poll. See [what polling
    /// costs](crate#what-it-costs).
    ///
    /// # Panics
    /// If the first one is zero, or longer than the longest one.
    ///
    /// # Examples
    /// See [`Options`].
    pub fn polls(mut self, first: Duration, longest: Duration) -> Self {
        assert!(
            !first.is_zero() && first <= longest,
            "the first pause must not be zero, or longer than the longest one"
        );
        self.first = first;
        self.settings = self.settings.fallback(longest);
        self
    }

    /// Sets whether [`open`](Self::open) tries out the conditional writes of the store: `true` if not set.
    ///
    /// Some stores accept the conditions and ignore them. In such a store every lease could have several owners. Set it
    /// to `false` only to save the seven requests at each start, for a store that was tried out before.
    ///
    /// # Examples
    /// ```
    /// # use keylatch_lease_object::Bucket;
    /// let options = Bucket::in_namespace("shop").tries_out(false);
    /// ```
    pub fn tries_out(mut self, tries: bool) -> Self {
        self.is_probed = tries;
        self
    }

    /// Trusts the store's clock: the clocks of the store's servers differ by at most this much. A take-over is then
    /// possible as soon as, by the store's clock, the lease is older than its time plus one percent, this difference
    /// and a second. So a newcomer need not watch a dead holder's lease for its whole time. Without this setting no
    /// clock of the store is believed.
    ///
    /// The clock is that of `Last-Modified`. The engine reads it by writing an empty object, `clock` in the folder of
    /// the namespace, and reading it: a PUT and a GET when another owner has a resource, once a minute at most.
    ///
    /// If the store's clocks differ by more, two owners may have the resource at the same time (1); the token tells
    /// them apart.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use keylatch_lease_object::Bucket;
    /// let options = Bucket::in_namespace("shop").trusts_clock(Duration::from_secs(5));
    /// ```
    pub fn trusts_clock(mut self, difference: Duration) -> Self {
        self.store_clock = Some(difference);
        self
    }

    /// Opens the leases in this bucket: tries out its conditional writes, and spawns the engine's driver on tokio. All
    /// requests to the store run on the tokio runtime of this call, so the calls of `Leases` may be made from anywhere,
    /// as long as the runtime runs.
    ///
    /// # Errors
    /// The reason that the bucket cannot be used: [`Error::Unsupported`] if it lacks conditional writes, as a local
    /// folder does; [`Error::Denied`] without the permissions that the [crate's page](crate#what-the-store-needs)
    /// names; [`Error::Timeout`] if the store has not answered after ten times the [timeout](Self::timeout).
    ///
    /// # Panics
    /// If the call is made outside a tokio runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, a small object named `probe-` and a number may stay in the folder of the namespace. It
    /// does no harm.
    ///
    /// # Examples
    /// See [`Bucket::open`].
    pub async fn open(self, store: Arc<dyn ObjectStore>) -> Result<Bucket, Error> {
        let Options { settings, prefix, first, is_probed, store_clock } = self;
        let (runtime, long) = (Handle::current(), settings.timeout.saturating_mul(LONG));
        let place = Arc::new(Place::new(
            store,
            &prefix,
            &settings.namespace,
            runtime.clone(),
            store_clock.map(StoreClock::new),
            Table::new(settings.sweeps),
        ));
        if is_probed {
            place.probe(Limit::after(long)).await?;
        }
        let (core, driving) = Core::polling(settings, first);
        runtime.spawn(run(driving, Arc::clone(&place)));
        core.ready().await?;
        Ok(Bucket { core, place, long })
    }
}

/// Runs until all clones of the engine have been dropped, and the abandoned tenures have been released if possible.
async fn run(driving: Driving<Session>, place: Arc<Place>) {
    drive(driving, |_| {
        let session = Session::new(Arc::clone(&place));
        async move { Ok((session, future::pending())) }
    })
    .await;
}
