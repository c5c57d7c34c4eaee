use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use keylatch_lease_remote::{BoxError, Core, Settings};

use crate::{
    client::{Client, ConnectOptions},
    driver::drive,
    etcd::Etcd,
    place::Place,
};

/// Settings of the engine and its connection: see [`Etcd::in_namespace`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_etcd::Etcd;
///
/// let options = Etcd::in_namespace("shop")
///     .timeout(Duration::from_secs(2)) // of each operation, instead of 5 s
///     .fallback(Duration::from_secs(10)); // between two requests of a waiter that was not notified, instead of 5 s
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is connected until one of its `connect`s is called"]
pub struct Options {
    settings: Settings,
}

impl Etcd {
    /// Returns options for the leases of this namespace. Leases of different namespaces are independent. A program that
    /// has the cluster to itself may use `""`.
    ///
    /// The keys of the namespace begin with `keylatch-lease/NAMESPACE/`, where all characters but ASCII letters, digits
    /// and `-_.~:@+=,` are escaped as in URLs.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease_etcd::Etcd;
    ///
    /// let options = Etcd::in_namespace("shop").timeout(Duration::from_secs(2));
    /// ```
    pub fn in_namespace(name: impl Into<String>) -> Options {
        Options { settings: Settings::new(name, None) }
    }
}

impl Options {
    keylatch_lease_remote::setters! { settings;
        /// Sets the time limit of an operation, including the wait for a connection: 5 s if not set. When it has
        /// passed, the operation fails.
        ///
        /// The calls of `Leases` send a request up to three times if it may have been carried out despite the timeout,
        /// so they may take three times as long.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_etcd::Etcd;
        /// let options = Etcd::in_namespace("shop").timeout(Duration::from_secs(2));
        /// ```
        pub fn timeout(time: Duration);

        /// Sets the longest time that a waiter sleeps before it asks again without being notified: 5 s if not set.
        ///
        /// The setting matters only when the watch is silent: when a node stops answering and keeps its connections
        /// open.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_etcd::Etcd;
        /// let options = Etcd::in_namespace("shop").fallback(Duration::from_secs(30));
        /// ```
        pub fn fallback(time: Duration);

        /// Sets the quarantine, during which nothing is granted because the cluster may have forgotten leases: 60 s if
        /// not set, in whole seconds. No lease of the namespace should last longer from one renewal to the next; the
        /// quarantine does not cover a longer one. See [the crate's page](crate#when-the-cluster-forgets).
        ///
        /// All programs that use the namespace should have the same quarantine: while they differ, the shortest may
        /// apply.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_etcd::Etcd;
        /// let options = Etcd::in_namespace("shop").quarantine(Duration::from_secs(600));
        /// ```
        pub fn quarantine(time: Duration);
    }

    /// Returns an engine and its driver, which must be spawned on tokio. The driver gets a client from `dial`, and
    /// another one when the connection is lost. Without a running driver, operations wait until they time out; once it
    /// is dropped, they fail with [`Error::Stopped`](crate::Error::Stopped).
    ///
    /// Each call of `dial` has the same time limit as an operation. Each client should have a single endpoint, and each
    /// new client a different one: a client with several endpoints also sends requests to those that are down. With
    /// [`ConnectOptions::with_require_leader`] the driver leaves a node that is cut off from its cluster.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() {
    /// use keylatch_lease::Leases;
    /// use keylatch_lease_etcd::{Client, ConnectOptions, Etcd};
    ///
    /// let (etcd, driver) = Etcd::in_namespace("shop").connect_with(|| async {
    ///     let options = ConnectOptions::new().with_require_leader(true);
    ///     Ok(Client::connect(["http://etcd.example:2379"], Some(options)).await?)
    /// });
    /// tokio::spawn(driver);
    /// let leases = Leases::with_engine(etcd);
    /// # }
    /// ```
    pub fn connect_with<C, F>(self, dial: C) -> (Etcd, impl Future<Output = ()> + Send + use<C, F>)
    where
        C: FnMut() -> F + Send,
        F: Future<Output = Result<Client, BoxError>> + Send,
    {
        let place = Arc::new(Place::new(&self.settings));
        let (core, driving) = Core::new(self.settings);
        let driver = drive(driving, Arc::clone(&place), dial);
        (Etcd { core, place }, driver)
    }

    /// Returns an engine whose driver is spawned on tokio. The driver connects to one of these endpoints, and to the
    /// next one when the connection is lost or the node has no leader. This call does not wait for the connection: see
    /// [`Etcd::ready`].
    ///
    /// An endpoint is a URL, `http://` or, with the feature `tls`, `https://`. The options contain user, password and
    /// certificates.
    ///
    /// # Panics
    /// If there is no endpoint, or if the call is made outside a tokio runtime.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use keylatch_lease_etcd::{ConnectOptions, Etcd};
    ///
    /// let endpoints = ["http://etcd-1.example:2379", "http://etcd-2.example:2379", "http://etcd-3.example:2379"];
    /// let options = ConnectOptions::new().with_user("shop", "secret");
    /// let etcd = Etcd::in_namespace("shop").connect(endpoints, Some(options));
    /// etcd.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn connect<S: Into<String>>(
        self,
        endpoints: impl IntoIterator<Item = S>,
        options: Option<ConnectOptions>,
    ) -> Etcd {
        let endpoints: Arc<[String]> = endpoints.into_iter().map(Into::into).collect();
        assert!(!endpoints.is_empty(), "at least one endpoint is needed");
        let options = options.unwrap_or_default().with_require_leader(true);
        let dials = AtomicUsize::new(0);
        let (etcd, driver) = self.connect_with(move || {
            let (endpoints, options) = (Arc::clone(&endpoints), options.clone());
            let at = dials.fetch_add(1, Relaxed) % endpoints.len();
            async move { Ok(Client::connect([&endpoints[at]], Some(options)).await?) }
        });
        tokio::spawn(driver);
        etcd
    }
}
