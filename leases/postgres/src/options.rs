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

/// Settings of the engine, and how it connects: see [`Postgres::in_namespace`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_postgres::Postgres;
///
/// let options = Postgres::in_namespace("shop")
///     .timeout(Duration::from_secs(2)) // of each operation, instead of 5 s
///     .fallback(Duration::from_secs(10)) // between two looks of who waits, instead of 5 s
///     .sweeps(None); // another program sweeps
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is connected until one of its `connect`s is called"]
pub struct Options {
    settings: Settings,
    trusts_failovers: bool,
}

impl Postgres {
    /// The leases of this namespace. Those of different namespaces have nothing to do with each other; a program that has the database
    /// for itself may take `""`.
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
        Options { settings, trusts_failovers: false }
    }
}

impl Options {
    keylatch_lease_remote::setters! { settings;
        /// Sets the time limit of an operation, including the wait for a connection: 5 s if not set. After it the
        /// operation fails. The server has half of that for a statement.
        ///
        /// The calls of `Leases` ask up to three times if it may have been done all the same, so that they end after
        /// three times as long.
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
        /// It matters only where a notification is not sent, or not heard: when a server that does not answer keeps its
        /// connections open.
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

        /// Sets how often the driver removes leases that ended more than a minute ago, a thousand with each statement:
        /// every 60 s if not set. `None`: never. Then `Leases::release_expired` is to be called now and then, by
        /// whatever program.
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
        /// not set. No lease should last longer from one renewal to the next; one that does is not waited for. See [the
        /// crate's page](crate#when-the-database-forgets).
        ///
        /// It should be the same in all programs that use the table: while they differ, the shortest may count. Zero:
        /// two may hold one resource after the database has forgotten something.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_postgres::Postgres;
        /// let options = Postgres::in_namespace("shop").quarantine(Duration::from_secs(600));
        /// ```
        pub fn quarantine(time: Duration);
    }

    /// Whether a server that takes the place of another has all that the other had confirmed, so that nothing has to be waited for: `false` if not
    /// set.
    ///
    /// That takes synchronous replication, to whichever replica is promoted; and no restore to a point of time in the past, which looks the same.
    /// A restart of the same server is none of these, and always trusted. It should be the same in all programs that use the table.
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

    /// An engine on whatever runtime, and its driver, which is to be spawned there: it connects by this function, and again when the
    /// connection is lost. Without it nothing happens; when it is dropped, operations fail with [`Error::Stopped`](crate::Error::Stopped).
    ///
    /// The function makes a stream and shakes hands, as [`tokio_postgres::Config::connect_raw`] does on any stream. It has as long
    /// as an operation has. A pooler between must not share the connection: see [the crate's page](crate#poolers).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn stream() -> std::io::Result<tokio::io::DuplexStream> { unimplemented!() }
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
        let Options { settings, trusts_failovers } = self;
        let place = Arc::new(Place::new(&settings, trusts_failovers));
        let (core, driving) = Core::new(settings);
        (Postgres { core }, drive(driving, place, dial))
    }

    /// An engine on tokio, whose driver is spawned. It connects as the configuration says, and again when the connection is lost; this
    /// call itself does not wait for it. See [`Postgres::ready`].
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
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
