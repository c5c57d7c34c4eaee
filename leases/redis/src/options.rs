use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use keylatch_lease_remote::{BoxError, Core, Settings};
use redis::{AsyncConnectionConfig, Client, ProtocolVersion, RedisConnectionInfo, aio::MultiplexedConnection};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{driver::drive, engine::Redis, session::Place};

/// Settings of the engine, and how it connects: see [`Redis::in_namespace`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_redis::Redis;
///
/// let options = Redis::in_namespace("shop")
///     .timeout(Duration::from_secs(2)) // of each operation, instead of 5 s
///     .fallback(Duration::from_secs(10)) // between two looks of who waits, instead of 5 s
///     .quarantine(Duration::from_secs(600)) // no lease lasts longer, instead of 60 s
///     .sweeps(None); // another program sweeps
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is connected until one of its `connect`s is called"]
pub struct Options {
    settings: Settings,
    trusts_restarts: bool,
}

impl Redis {
    /// The leases of this namespace. Those of different namespaces have nothing to do with each other; a program that has the database
    /// for itself may take `""`.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease_redis::Redis;
    ///
    /// let options = Redis::in_namespace("shop").timeout(Duration::from_secs(2));
    /// ```
    pub fn in_namespace(name: impl Into<String>) -> Options {
        Options { settings: Settings::new(name, Some(Duration::from_secs(60))), trusts_restarts: false }
    }
}

impl Options {
    keylatch_lease_remote::setters! { settings;
        /// Sets the time limit of an operation, including the wait for a connection: 5 s if not set. After it the
        /// operation fails.
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
        /// # use keylatch_lease_redis::Redis;
        /// let options = Redis::in_namespace("shop").timeout(Duration::from_secs(2));
        /// ```
        pub fn timeout(time: Duration);

        /// Sets the longest time that a waiter sleeps before it asks again without being notified: 5 s if not set.
        ///
        /// It matters only where a message is not heard: when a server that does not answer keeps its connections open.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_redis::Redis;
        /// let options = Redis::in_namespace("shop").fallback(Duration::from_secs(30));
        /// ```
        pub fn fallback(time: Duration);

        /// Sets how often the driver removes leases that have ended, a thousand with each request: every 60 s if not
        /// set. Each grant forgets two of them as well, so that it matters only where nothing is granted any more.
        /// `None`: never. Then `Leases::release_expired` may be called now and then, by whatever program.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use keylatch_lease_redis::Redis;
        /// let options = Redis::in_namespace("shop").sweeps(None);
        /// ```
        pub fn sweeps(every: Option<Duration>);

        /// Sets the quarantine, during which nothing is granted because the server may have forgotten leases: 60 s if
        /// not set. No lease of the namespace should last longer from one renewal to the next; one that does is not
        /// waited for. See [the crate's page](crate#when-the-server-forgets).
        ///
        /// It should be the same in all programs that use the namespace: while they differ, the shortest may count.
        /// Zero: two may hold one resource after each restart of the server.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_redis::Redis;
        /// let options = Redis::in_namespace("shop").quarantine(Duration::from_secs(600));
        /// ```
        pub fn quarantine(time: Duration);
    }

    /// Whether the server comes back from a restart with all that it had confirmed, so that nothing has to be waited for: `false` if not set.
    ///
    /// That takes `appendonly yes` with `appendfsync always`; and nothing that puts an asynchronous replica in its place, such as Sentinel. If
    /// it comes back with nothing at all, that is noticed all the same. It should be the same in all programs that use the namespace.
    ///
    /// # Examples
    /// ```
    /// # use keylatch_lease_redis::Redis;
    /// let options = Redis::in_namespace("shop").trusts_restarts(true);
    /// ```
    pub fn trusts_restarts(mut self, trusts: bool) -> Self {
        self.trusts_restarts = trusts;
        self
    }

    /// An engine on whatever runtime, and its driver, which is to be spawned there: it makes a stream by this function, and again when the
    /// connection is lost. Without it nothing happens; when it is dropped, operations fail with [`Error::Stopped`](crate::Error::Stopped).
    ///
    /// The function has as long as an operation has. User, password and database are those of the settings; the protocol is always RESP3.
    ///
    /// # Examples
    /// ```no_run
    /// use keylatch_lease::Leases;
    /// use keylatch_lease_redis::Redis;
    /// use redis::RedisConnectionInfo;
    /// use tokio_util::compat::FuturesAsyncReadCompatExt;
    ///
    /// let settings = RedisConnectionInfo::default().set_username("shop").set_password("open sesame");
    /// let (redis, driver) = Redis::in_namespace("shop").connect_with(settings, || async {
    ///     let stream = smol::net::TcpStream::connect("db.example:6379").await?;
    ///     Ok(stream.compat()) // with the traits of tokio's streams
    /// });
    /// smol::spawn(driver).detach();
    /// let leases = Leases::with_engine(redis);
    /// ```
    pub fn connect_with<C, F, S>(
        self,
        settings: RedisConnectionInfo,
        mut dial: C,
    ) -> (Redis, impl Future<Output = ()> + Send + use<C, F, S>)
    where
        C: FnMut() -> F + Send,
        F: Future<Output = Result<S, BoxError>> + Send,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        self.start(move |config| {
            let (settings, stream) = (settings.clone(), dial());
            async move {
                let connected = MultiplexedConnection::new_with_config(&settings, stream.await?, config);
                let (connection, moves) = connected.await?;
                // In a box it does not borrow the settings.
                let moves: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(moves);
                Ok((connection, moves))
            }
        })
    }

    /// An engine on tokio, whose driver is spawned. It connects as the client does, but always over RESP3, and again when the connection is
    /// lost; this call itself does not wait for it. See [`Redis::ready`].
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use keylatch_lease_redis::Redis;
    ///
    /// let redis = Redis::in_namespace("shop").connect(redis::Client::open("redis://db.example")?);
    /// redis.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn connect(self, client: Client) -> Redis {
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.set_redis_settings(settings);
        let (redis, driver) = self.start(move |config| {
            let info = info.clone();
            async move {
                let connection = Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
                // It has been spawned.
                Ok((connection, std::future::pending()))
            }
        });
        tokio::spawn(driver);
        redis
    }

    /// With what makes a connection, and a future that moves it.
    fn start<C, F, D>(self, dial: C) -> (Redis, impl Future<Output = ()> + Send + use<C, F, D>)
    where
        C: FnMut(AsyncConnectionConfig) -> F + Send,
        F: Future<Output = Result<(MultiplexedConnection, D), BoxError>> + Send,
        D: Future<Output = ()> + Send,
    {
        let Options { settings, trusts_restarts } = self;
        let place = Arc::new(Place::new(&settings, trusts_restarts));
        let (core, driving) = Core::new(settings);
        (Redis { core }, drive(driving, place, dial))
    }
}
