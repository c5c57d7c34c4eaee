use std::{
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use keylatch_lease_remote::{BoxError, Core, Settings};
use redis::{AsyncConnectionConfig, Client, ProtocolVersion, RedisConnectionInfo, aio::MultiplexedConnection};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{driver::drive, engine::Redis, session::Place};

/// Settings of the engine and its connection: see [`Redis::in_namespace`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_redis::Redis;
///
/// let options = Redis::in_namespace("shop")
///     .timeout(Duration::from_secs(2)) // of each operation, instead of 5 s
///     .fallback(Duration::from_secs(10)) // between two requests of a waiter that was not notified, instead of 5 s
///     .quarantine(Duration::from_secs(600)) // instead of 60 s, because leases last up to ten minutes
///     .sweeps(None); // another program sweeps
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is connected until one of its `connect`s is called"]
pub struct Options {
    settings: Settings,
    trusts_restarts: bool,
}

impl Redis {
    /// Returns options for the leases of this namespace. Leases of different namespaces are independent. A program that
    /// has the database to itself may use `""`.
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
        /// # use keylatch_lease_redis::Redis;
        /// let options = Redis::in_namespace("shop").timeout(Duration::from_secs(2));
        /// ```
        pub fn timeout(time: Duration);

        /// Sets the longest time that a waiter sleeps before it asks again without being notified: 5 s if not set.
        ///
        /// The setting matters only when no message arrives: when a server stops answering and keeps its connections
        /// open.
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

        /// Sets the interval at which the driver removes leases that have ended, a thousand with each request: 60 s if
        /// not set. Each grant also removes up to two of them, so that the interval matters only when nothing is
        /// granted any more. With `None` the driver never does; then some program may call `Leases::release_expired`
        /// now and then.
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
        /// not set. No lease of the namespace should last longer from one renewal to the next; the quarantine does not
        /// cover a longer one. See [the crate's page](crate#when-the-server-forgets).
        ///
        /// All programs that use the namespace should have the same quarantine: while they differ, the shortest may
        /// apply. With zero, two owners may hold the same resource after each restart of the server.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_redis::Redis;
        /// let options = Redis::in_namespace("shop").quarantine(Duration::from_secs(600));
        /// ```
        pub fn quarantine(time: Duration);
    }

    /// Sets whether the server is trusted to have, after a restart, everything that it had confirmed before, so that no
    /// quarantine is needed: `false` if not set.
    ///
    /// That requires `appendonly yes` with `appendfsync always`; and no mechanism that puts an asynchronous replica in
    /// the server's place, such as Sentinel. The engine still detects a restart with no data left. All programs that
    /// use the namespace should have the same setting.
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

    /// Returns an engine and its driver, which must be spawned on some runtime. The driver gets a stream from `dial`,
    /// and another one when the connection is lost. Without a running driver, operations wait until they time out; once
    /// it is dropped, they fail with [`Error::Stopped`](crate::Error::Stopped).
    ///
    /// Each call of `dial` has the same time limit as an operation. The settings contain user, password and database; the
    /// protocol is always RESP3.
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
        self.connect_with_settings(move || {
            let (settings, stream) = (settings.clone(), dial());
            async move { Ok((settings, stream.await?)) }
        })
    }

    /// Works like [`connect_with`](Self::connect_with), but the function also returns the settings, which may differ
    /// from those of the last connection. So passwords may be replaced while the program runs.
    ///
    /// # Examples
    /// ```no_run
    /// use keylatch_lease_redis::Redis;
    /// use redis::RedisConnectionInfo;
    /// use tokio_util::compat::FuturesAsyncReadCompatExt;
    ///
    /// let (redis, driver) = Redis::in_namespace("shop").connect_with_settings(|| async {
    ///     let password = std::fs::read_to_string("/run/secrets/redis")?;
    ///     let settings = RedisConnectionInfo::default().set_username("shop").set_password(password.trim_end());
    ///     let stream = smol::net::TcpStream::connect("db.example:6379").await?;
    ///     Ok((settings, stream.compat()))
    /// });
    /// smol::spawn(driver).detach();
    /// ```
    pub fn connect_with_settings<C, F, S>(self, mut dial: C) -> (Redis, impl Future<Output = ()> + Send + use<C, F, S>)
    where
        C: FnMut() -> F + Send,
        F: Future<Output = Result<(RedisConnectionInfo, S), BoxError>> + Send,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.start(move |config| {
            let dialled = dial();
            async move {
                let (settings, stream) = dialled.await?;
                let settings = settings.set_protocol(ProtocolVersion::RESP3);
                let (connection, moves) = MultiplexedConnection::new_with_config(&settings, stream, config).await?;
                // Boxing gives the future a type that does not borrow the settings.
                let moves: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(moves);
                Ok((connection, moves))
            }
        })
    }

    /// Returns an engine whose driver is spawned on tokio. The driver connects as the client does, but always over
    /// RESP3, and connects again when the connection is lost. This call does not wait for the connection: see
    /// [`Redis::ready`].
    ///
    /// # Panics
    /// If the call is made outside a tokio runtime.
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
        self.connect_from(move || ready(Ok(client.clone())))
    }

    /// Works like [`connect`](Self::connect), but a function makes a new client for each connection. So passwords and
    /// certificates may be replaced while the program runs, and the server may move.
    ///
    /// The function has the same time limit as an operation. If it fails, so does the attempt to connect, and the
    /// driver tries again, after 50 ms to 2 s. The server does not end the connections of a user whose password
    /// changes, so the function is called the next time that the connection is lost.
    ///
    /// # Panics
    /// If the call is made outside a tokio runtime.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use keylatch_lease_redis::Redis;
    /// use redis::{Client, IntoConnectionInfo};
    ///
    /// let redis = Redis::in_namespace("shop").connect_from(|| async {
    ///     let password = std::fs::read_to_string("/run/secrets/redis")?;
    ///     let info = "redis://db.example".into_connection_info()?;
    ///     let settings = info.redis_settings().clone().set_username("shop").set_password(password.trim_end());
    ///     Ok(Client::open(info.set_redis_settings(settings))?)
    /// });
    /// redis.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn connect_from<C, F>(self, mut client: C) -> Redis
    where
        C: FnMut() -> F + Send + 'static,
        F: Future<Output = Result<Client, BoxError>> + Send + 'static,
    {
        let (redis, driver) = self.start(move |config| {
            let client = client();
            async move {
                let info = client.await?.get_connection_info().clone();
                let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
                let client = Client::open(info.set_redis_settings(settings))?;
                let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
                // The client has spawned the future that drives the connection.
                Ok((connection, std::future::pending()))
            }
        });
        tokio::spawn(driver);
        redis
    }

    /// Returns the engine and its driver. `dial` makes a connection, and a future that drives it.
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
