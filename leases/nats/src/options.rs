use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::{ConnectOptions, ToServerAddrs};
use keylatch_lease_remote::{Core, Settings};

use crate::{driver::drive, nats::Nats, session::Place, subjects::Subjects};

/// Settings of the engine and its connection: see [`Nats::in_namespace`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_nats::Nats;
///
/// let options = Nats::in_namespace("shop")
///     .stream("leases") // instead of "keylatch_lease"
///     .timeout(Duration::from_secs(2)) // of each operation, instead of 5 s
///     .fallback(Duration::from_secs(10)) // between two requests of a waiter that was not notified, instead of 5 s
///     .quarantine(Duration::from_secs(600)) // instead of 60 s, because leases last up to ten minutes
///     .sweeps(None); // another program sweeps
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is connected until `connect` is called"]
pub struct Options {
    settings: Settings,
    stream: String,
    trusts_restarts: bool,
}

impl Nats {
    /// Returns options for the leases of this namespace. Leases of different namespaces are independent. A program that
    /// has the stream to itself may use `""`.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease_nats::Nats;
    ///
    /// let options = Nats::in_namespace("shop").timeout(Duration::from_secs(2));
    /// ```
    pub fn in_namespace(name: impl Into<String>) -> Options {
        let settings = Settings::new(name, Some(Duration::from_secs(300)));
        Options { settings, stream: "keylatch_lease".into(), trusts_restarts: true }
    }
}

impl Options {
    /// Sets the name of the stream: `keylatch_lease` if not set. The stream must exist: see [`Nats::stream`].
    ///
    /// # Panics
    /// If the name is empty, is longer than 255 bytes, or has characters other than ASCII letters, digits, `_` and `-`.
    ///
    /// # Examples
    /// ```
    /// # use keylatch_lease_nats::Nats;
    /// let options = Nats::in_namespace("shop").stream("leases-of-the-shop");
    /// ```
    pub fn stream(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        assert!(
            is_plain && !name.is_empty(),
            "the name of a stream must consist of ASCII letters, digits, `_` and `-`, and must not be empty"
        );
        assert!(name.len() <= 255, "the name of a stream must not be longer than 255 bytes");
        self.stream = name;
        self
    }

    keylatch_lease_remote::setters! { settings;
        /// Sets the time limit of an operation, including the wait for a connection: 5 s if not set. When it has
        /// passed, the operation fails. For an operation on all leases of an owner, and for a sweep, this limit applies
        /// to each batch of 128 leases of the namespace.
        ///
        /// The calls of `Leases` send a request up to three times if it may have been carried out despite the timeout,
        /// so they may take three times as long.
        ///
        /// A fifth of this time is the interval of the connection's [pulse](crate#how-it-works).
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_nats::Nats;
        /// let options = Nats::in_namespace("shop").timeout(Duration::from_secs(2));
        /// ```
        pub fn timeout(time: Duration);

        /// Sets the longest time that a waiter sleeps before it asks again without being notified: 5 s if not set.
        ///
        /// The setting matters only when a message is lost: when the stream's leader changes at the moment of a
        /// release.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_nats::Nats;
        /// let options = Nats::in_namespace("shop").fallback(Duration::from_secs(30));
        /// ```
        pub fn fallback(time: Duration);

        /// Sets the interval at which one of the namespace's processes deletes the messages of leases that have ended:
        /// 5 minutes if not set. Each sweep reads the last message of each resource. With `None` this process never
        /// does; if none does, some program must call `Leases::release_expired` now and then.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use keylatch_lease_nats::Nats;
        /// let options = Nats::in_namespace("shop").sweeps(None);
        /// ```
        pub fn sweeps(every: Option<Duration>);

        /// Sets the quarantine, during which nothing is granted because the stream may have forgotten leases: 60 s if
        /// not set. No lease of the namespace should last longer from one renewal to the next; the quarantine does not
        /// cover a longer one. See [the crate's page](crate#when-the-stream-forgets).
        ///
        /// All programs that use the namespace should have the same quarantine: while they differ, the shortest may
        /// apply. With zero, two owners may hold the same resource after the stream has forgotten leases.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_nats::Nats;
        /// let options = Nats::in_namespace("shop").quarantine(Duration::from_secs(600));
        /// ```
        pub fn quarantine(time: Duration);
    }

    /// Sets whether the server is trusted to have, after a restart, everything that it had confirmed before, so that no
    /// quarantine is needed: `true` if not set.
    ///
    /// After its process was killed, the server still has everything, apart from [a release that was
    /// swept](crate#what-weakens-which-guarantee). It may lack changes after its machine lost power, unless it has
    /// `sync_interval: always`, or after an older copy of its data folder was put back. With `false` there is a
    /// quarantine after each restart of a single server; in a cluster the setting makes no difference. All programs
    /// that use the namespace should have the same setting.
    ///
    /// # Examples
    /// ```
    /// # use keylatch_lease_nats::Nats;
    /// let options = Nats::in_namespace("shop").trusts_restarts(false);
    /// ```
    pub fn trusts_restarts(mut self, trusts: bool) -> Self {
        self.trusts_restarts = trusts;
        self
    }

    /// Returns an engine whose driver is spawned on tokio. This call does not wait for the connection: see
    /// [`Nats::ready`].
    ///
    /// The function is called for each connection, including those that replace a lost one; for servers without
    /// authentication, pass `ConnectOptions::new`. The engine sets the options' `event_callback` and `max_reconnects`
    /// itself. It does not share a connection with your own client, because a client hides lost connections, and
    /// waiters must know about those.
    ///
    /// # Errors
    /// Fails if the addresses cannot be parsed.
    ///
    /// # Panics
    /// If the call is made outside a tokio runtime.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(password: String) -> Result<(), Box<dyn std::error::Error>> {
    /// use keylatch_lease_nats::{ConnectOptions, Nats};
    ///
    /// let options = move || ConnectOptions::with_user_and_password("shop".into(), password.clone());
    /// let nats = Nats::in_namespace("shop").connect("tls://nats.example", options)?;
    /// nats.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect<O>(self, addresses: impl ToServerAddrs, options: O) -> io::Result<Nats>
    where
        O: Fn() -> ConnectOptions + Send + Sync + 'static,
    {
        let Options { settings, stream, trusts_restarts } = self;
        let addresses = addresses.to_server_addrs()?.collect();
        let place = Arc::new(Place {
            subjects: Subjects::new(&stream, &settings.namespace),
            stream,
            sweeps: settings.sweeps,
            quarantine: settings.quarantine,
            trusts: trusts_restarts,
            before: Mutex::default(),
        });
        let (core, driving) = Core::new(settings);
        tokio::spawn(drive(driving, place, addresses, options));
        Ok(Nats { core })
    }
}
