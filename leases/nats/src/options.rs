use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::{ConnectOptions, ToServerAddrs};
use keylatch_lease_remote::{Core, Settings};

use crate::{driver::drive, nats::Nats, session::Place, subjects::Subjects};

/// Settings of the engine, and how it connects: see [`Nats::in_namespace`].
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
///     .fallback(Duration::from_secs(10)) // between two looks of who waits, instead of 5 s
///     .quarantine(Duration::from_secs(600)) // no lease lasts longer, instead of 60 s
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
    /// The leases of this namespace. Those of different namespaces have nothing to do with each other; a program that has the stream
    /// for itself may take `""`.
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
    /// The stream: `keylatch_lease` if not set. It has to be there: see [`Nats::stream`].
    ///
    /// # Panics
    /// If it is empty, longer than 255 bytes, or has other characters than ASCII letters, digits, `_` and `-`.
    ///
    /// # Examples
    /// ```
    /// # use keylatch_lease_nats::Nats;
    /// let options = Nats::in_namespace("shop").stream("leases-of-the-shop");
    /// ```
    pub fn stream(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        assert!(is_plain && !name.is_empty(), "the name of a stream must have ASCII letters, digits, `_` and `-` only");
        assert!(name.len() <= 255, "the name of a stream must not be longer than 255 bytes");
        self.stream = name;
        self
    }

    keylatch_lease_remote::setters! { settings;
        /// Sets the time limit of an operation, including the wait for a connection: 5 s if not set. After it the
        /// operation fails. What concerns all leases of an owner, and sweeps, takes that long for each 128 leases of
        /// the namespace.
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
        /// # use keylatch_lease_nats::Nats;
        /// let options = Nats::in_namespace("shop").timeout(Duration::from_secs(2));
        /// ```
        pub fn timeout(time: Duration);

        /// Sets the longest time that a waiter sleeps before it asks again without being notified: 5 s if not set.
        ///
        /// It matters only where a message is not heard: when a server that does not answer keeps its connections open,
        /// or where the stream's leader changes at the moment of a release.
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

        /// Sets how often one of the processes of the namespace deletes the messages of leases that have ended: every 5
        /// minutes if not set. Each time it asks for the last message of each resource. `None`: this process never
        /// does. Then `Leases::release_expired` is to be called now and then, by whatever program.
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
        /// not set. No lease of the namespace should last longer from one renewal to the next; one that does is not
        /// waited for. See [the crate's page](crate#when-the-stream-forgets).
        ///
        /// It should be the same in all programs that use the namespace: while they differ, the shortest may count.
        /// Zero: two may hold one resource after the stream has forgotten something.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_nats::Nats;
        /// let options = Nats::in_namespace("shop").quarantine(Duration::from_secs(600));
        /// ```
        pub fn quarantine(time: Duration);
    }

    /// Whether the server comes back from a restart with all that it had confirmed, so that nothing has to be waited for: `true` if not set.
    ///
    /// That is so when its process is killed. It is not so when its machine loses its power, unless it has `sync_interval: always`; nor when an
    /// older copy of its folder is put in the place of the present one. With `false` there is a quarantine after each restart of a single
    /// server; in a cluster it makes no difference. It should be the same in all programs that use the namespace.
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

    /// An engine, whose connection is driven on tokio. This call itself does not wait for it: see [`Nats::ready`].
    ///
    /// The function is called for each connection, when one is lost for another; `ConnectOptions::new` is one for servers without
    /// authentication. Its `event_callback` and `max_reconnects` are the engine's. Connections are not shared with other clients: a
    /// client hides that it was disconnected, and those who wait have to know.
    ///
    /// # Errors
    /// The addresses are none.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
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
