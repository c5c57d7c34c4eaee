use std::{future::Future, sync::Arc, time::Duration};

use keylatch_lease_remote::{BoxError, Core, Settings};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{Client, Connection};
#[cfg(feature = "tokio")]
use tokio_postgres::{
    Config, Socket,
    tls::{MakeTlsConnect, TlsConnect},
};

use crate::{driver::drive, postgres::Postgres, session::Place};

/// The first pause between two polls of a waiter, if the engine has no session.
const FIRST_POLL: Duration = Duration::from_millis(100);

/// Settings of the engine and its connection: see [`Postgres::in_namespace`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_postgres::Postgres;
///
/// let options = Postgres::in_namespace("shop")
///     .timeout(Duration::from_secs(2)) // of each operation, instead of 5 s
///     .fallback(Duration::from_secs(10)) // between two requests of a waiter that was not notified, instead of 5 s
///     .sweeps(None); // another program sweeps
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is connected until one of its `connect`s is called"]
pub struct Options {
    settings: Settings,
    trusts_failovers: bool,
    is_shared: bool,
}

impl Postgres {
    /// Returns options for the leases of this namespace. Leases of different namespaces are independent. A program that
    /// has the database to itself may use `""`.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes or contains a NUL character.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease_postgres::Postgres;
    ///
    /// let options = Postgres::in_namespace("shop").timeout(Duration::from_secs(2));
    /// ```
    pub fn in_namespace(name: impl Into<String>) -> Options {
        let settings = Settings::new(name, Some(Duration::from_secs(60)));
        assert!(!settings.namespace.contains('\0'), "the name of a namespace must not contain a NUL character");
        Options { settings, trusts_failovers: false, is_shared: false }
    }
}

impl Options {
    keylatch_lease_remote::setters! { settings;
        /// Sets the time limit of an operation, including the wait for a connection: 5 s if not set. When it has
        /// passed, the operation fails. The server cancels a statement after half of this time.
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
        /// # use keylatch_lease_postgres::Postgres;
        /// let options = Postgres::in_namespace("shop").timeout(Duration::from_secs(2));
        /// ```
        pub fn timeout(time: Duration);

        /// Sets the longest time that a waiter sleeps before it asks again without being notified: 5 s if not set.
        ///
        /// The setting matters only when no notification arrives: when a server stops answering and keeps its
        /// connections open; and [without a session](Self::without_session), where it is the longest pause between two
        /// polls.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_postgres::Postgres;
        /// let options = Postgres::in_namespace("shop").fallback(Duration::from_secs(30));
        /// ```
        pub fn fallback(time: Duration);

        /// Sets the interval at which the driver removes the rows of leases that ended more than a minute ago, a
        /// thousand with each statement: 60 s if not set. With `None` it never does; some program must then call
        /// `Leases::release_expired` now and then.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use keylatch_lease_postgres::Postgres;
        /// let options = Postgres::in_namespace("shop").sweeps(None);
        /// ```
        pub fn sweeps(every: Option<Duration>);

        /// Sets the quarantine, during which nothing is granted because the database may have forgotten leases: 60 s if
        /// not set. No lease should last longer from one renewal to the next; the quarantine does not cover a longer
        /// one. See [the crate's page](crate#when-the-database-forgets).
        ///
        /// All programs that use the table should have the same quarantine: while they differ, the shortest may apply.
        /// With zero, two owners may hold the same resource after the database has forgotten leases.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_postgres::Postgres;
        /// let options = Postgres::in_namespace("shop").quarantine(Duration::from_secs(600));
        /// ```
        pub fn quarantine(time: Duration);
    }

    /// Sets whether a server that takes the place of another is trusted to have everything that the other had
    /// confirmed, so that no quarantine is needed: `false` if not set.
    ///
    /// This requires that every replica that may be promoted is replicated synchronously, that the programs' role has
    /// no `synchronous_commit = local`, and that the database is never restored to an earlier state, which looks like a
    /// failover. A restart of the same server is not a failover, and is always trusted. All programs that use the table
    /// should have the same setting.
    ///
    /// # Examples
    /// ```
    /// # use keylatch_lease_postgres::Postgres;
    /// let options = Postgres::in_namespace("shop").trusts_failovers(true);
    /// ```
    pub fn trusts_failovers(mut self, trusts: bool) -> Self {
        self.trusts_failovers = trusts;
        self
    }

    /// Makes the engine work through a pooler that shares the sessions of the server among its clients, such as
    /// PgBouncer in transaction mode. Each operation is then one transaction, which relies on nothing in the session in
    /// which it runs, and leaves nothing there. By default such a pooler is refused with
    /// [`Error::Pooled`](crate::Error::Pooled).
    ///
    /// The server then cannot notify the engine. Waiters poll: they ask after 0.1 s, and then with longer and longer
    /// pauses, up to the [fallback](Self::fallback). A holder learns that another call has ended its lease when it
    /// renews it. See [the crate's page](crate#poolers) for what that costs. Engines with and without a session can use
    /// the same table.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use keylatch_lease_postgres::Postgres;
    /// let options = Postgres::in_namespace("shop").without_session().fallback(Duration::from_secs(30));
    /// ```
    pub fn without_session(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// Returns an engine and its driver, which must be spawned on some runtime. The driver connects with `dial`, and
    /// connects again when the connection is lost. Without a running driver, operations wait until they time out; once
    /// it is dropped, they fail with [`Error::Stopped`](crate::Error::Stopped).
    ///
    /// `dial` opens a stream and performs the handshake, which [`tokio_postgres::Config::connect_raw`] does on any
    /// stream. Each call of `dial` has the same time limit as an operation. A pooler in front of the server must not share
    /// the session among clients, unless the engine works [without one](Self::without_session).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn stream() -> std::io::Result<tokio::io::DuplexStream> { Ok(tokio::io::duplex(1).0) }
    /// use keylatch_lease::Leases;
    /// use keylatch_lease_postgres::{NoTls, Postgres};
    ///
    /// let config: tokio_postgres::Config = "user=shop dbname=shop".parse().unwrap();
    /// let (postgres, driver) = Postgres::in_namespace("shop").connect_with(move || {
    ///     let config = config.clone();
    ///     async move { Ok(config.connect_raw(stream().await?, NoTls).await?) }
    /// });
    /// smol::spawn(driver).detach();
    /// let leases = Leases::with_engine(postgres);
    /// ```
    pub fn connect_with<C, F, S, T>(self, dial: C) -> (Postgres, impl Future<Output = ()> + Send + use<C, F, S, T>)
    where
        C: FnMut() -> F + Send,
        F: Future<Output = Result<(Client, Connection<S, T>), BoxError>> + Send,
        S: AsyncRead + AsyncWrite + Unpin + Send,
        T: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let Options { settings, trusts_failovers, is_shared } = self;
        let place = Arc::new(Place::new(&settings, trusts_failovers, is_shared));
        let (core, driving) = if is_shared { Core::polling(settings, FIRST_POLL) } else { Core::new(settings) };
        (Postgres { core }, drive(driving, place, dial))
    }

    /// Returns an engine whose driver is spawned on tokio. The driver connects as the configuration says, and connects
    /// again when the connection is lost. This call does not wait for the connection: see [`Postgres::ready`].
    ///
    /// # Panics
    /// If the call is made outside a tokio runtime.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use keylatch_lease_postgres::{NoTls, Postgres};
    ///
    /// let postgres = Postgres::in_namespace("shop").connect("host=db.example user=shop".parse()?, NoTls);
    /// postgres.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    #[must_use]
    pub fn connect<T>(self, config: Config, tls: T) -> Postgres
    where
        T: MakeTlsConnect<Socket> + Clone + Send + 'static,
        T::TlsConnect: Send,
        T::Stream: Send + 'static,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let (postgres, driver) = self.connect_with(move || {
            let (config, tls) = (config.clone(), tls.clone());
            async move { Ok(config.connect(tls).await?) }
        });
        tokio::spawn(driver);
        postgres
    }
}
