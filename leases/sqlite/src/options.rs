use std::{path::Path, sync::Arc, time::Duration};

use keylatch_lease_remote::{Core, Failure, Settings};

use crate::{engine::Sqlite, error::Error, place::Place, session, synchronous::Synchronous};

/// Settings of the engine: see [`Sqlite::in_namespace`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_sqlite::{Sqlite, Synchronous};
///
/// let options = Sqlite::in_namespace("shop")
///     .timeout(Duration::from_secs(30)) // of each operation, instead of 5 s
///     .synchronous(Synchronous::Full); // no confirmed lease is lost if the power fails
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is opened until `open` is called"]
pub struct Options {
    settings: Settings,
    synchronous: Synchronous,
    log_pages: u32,
}

impl Sqlite {
    /// Opens the file at this path with the default settings, in the namespace `""`, and creates it if it does not
    /// exist. The call may block for as long as an operation; see [`Options::open`].
    ///
    /// # Errors
    /// The reason that the file cannot be opened.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    /// use keylatch_lease_sqlite::Sqlite;
    ///
    /// # let path = std::env::temp_dir().join(format!("keylatch-open-{}.db", std::process::id()));
    /// let leases = Leases::with_engine(Sqlite::open(&path)?);
    /// let jane = Owner::named("session-42");
    /// let grant = leases.try_acquire("report", &jane, Duration::from_secs(60)).wait().unwrap();
    /// leases.release(&grant).wait().unwrap();
    /// # drop(leases);
    /// # for end in ["", "-wal", "-shm"] { let _ = std::fs::remove_file(format!("{}{end}", path.display())); }
    /// # Ok::<(), keylatch_lease_sqlite::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Sqlite, Error> {
        Sqlite::in_namespace("").open(path)
    }

    /// Returns options for the leases of this namespace. Leases of different namespaces are independent.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes.
    ///
    /// # Examples
    /// See [`Options`].
    pub fn in_namespace(name: impl Into<String>) -> Options {
        let settings = Settings::new(name, Some(Duration::from_secs(60)));
        Options { settings, synchronous: Synchronous::Normal, log_pages: 1_000 }
    }
}

impl Options {
    keylatch_lease_remote::setters! { settings;
        /// Sets the time limit of an operation: 5 s if not set. When it has passed, the operation fails. An operation
        /// waits for up to three quarters of this time while another process has the file locked.
        ///
        /// The calls of `Leases` ask up to three times if a request may have been carried out despite the timeout, so
        /// they may take three times as long.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// See [`Options`].
        pub fn timeout(time: Duration);

        /// Sets the longest time that a waiter sleeps before it asks again without being notified: 5 s if not set.
        ///
        /// The setting matters only when a process is killed after it has released a lease, and before it has announced
        /// the release.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use std::time::Duration;
        /// # use keylatch_lease_sqlite::Sqlite;
        /// let options = Sqlite::in_namespace("shop").fallback(Duration::from_secs(1));
        /// ```
        pub fn fallback(time: Duration);

        /// Sets the interval at which the engine removes leases that have ended, a thousand in each transaction: 60 s
        /// if not set. With `None` it never does; then some program may call `Leases::release_expired` now and then.
        ///
        /// # Panics
        /// If it is zero.
        ///
        /// # Examples
        /// ```
        /// # use keylatch_lease_sqlite::Sqlite;
        /// let options = Sqlite::in_namespace("shop").sweeps(None);
        /// ```
        pub fn sweeps(every: Option<Duration>);
    }

    /// Sets which events a confirmed lease survives: [`Synchronous::Normal`] if not set. All programs that use the file
    /// should have the same setting.
    ///
    /// # Examples
    /// See [`Options`].
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets the number of pages, of 4 KiB each, after which SQLite's log is written back to the file, as `PRAGMA
    /// wal_autocheckpoint` does: 1,000 if not set. An acquire and a release add about ten.
    ///
    /// A process that opens the file while no other has it open reads the whole log, which takes about a millisecond
    /// for a hundred pages, unless the last process that had it open dropped its engine before it ended. A program that
    /// runs again and again, each time for a moment only, should set a smaller number; writing the log back waits for
    /// the disk.
    ///
    /// # Panics
    /// If `pages` is zero.
    ///
    /// # Examples
    /// ```
    /// # use keylatch_lease_sqlite::Sqlite;
    /// let options = Sqlite::in_namespace("shop").log_pages(100);
    /// ```
    pub fn log_pages(mut self, pages: u32) -> Self {
        assert!(pages > 0, "pages must not be zero");
        self.log_pages = pages;
        self
    }

    /// Opens the file at this path, and creates it if it does not exist; its folder must exist. Starts two threads, one
    /// for SQLite and one that listens for the changes of other processes, which end when the last clone of the engine
    /// is dropped.
    ///
    /// # Blocking
    /// The call blocks while another process has the file locked, for three quarters of the [timeout](Self::timeout) at
    /// most.
    ///
    /// # Errors
    /// The reason that the file cannot be opened.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease_sqlite::{Error, Sqlite};
    ///
    /// let refused = Sqlite::in_namespace("shop").open("/no/such/folder/leases.db");
    /// assert!(matches!(refused, Err(Error::Unconnected { .. })));
    /// ```
    pub fn open(self, path: impl AsRef<Path>) -> Result<Sqlite, Error> {
        let Options { settings, synchronous, log_pages } = self;
        let lost = |error: std::io::Error| Error::unconnected(Some(error.into()));
        let place = Arc::new(Place::new(path.as_ref(), &settings, synchronous, log_pages).map_err(lost)?);
        let first = place.open()?;
        let (core, driving) = Core::new(settings);
        session::start(driving, Arc::clone(&place), first).map_err(lost)?;
        Ok(Sqlite { core, place })
    }
}
