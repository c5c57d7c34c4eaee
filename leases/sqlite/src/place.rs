//! The file: where it is, and whether it is still the one that was opened.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use keylatch_lease_remote::{Failure, Settings};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, TransactionBehavior};

use crate::{busy, clock, error::Error, synchronous::Synchronous};

/// The version of the tables in `schema.sql`.
const VERSION: i64 = 1;

/// The pause between two attempts at something for which SQLite does not wait by itself.
const PAUSE: Duration = Duration::from_millis(2);

/// Two clocks agree if their measurements differ by at most this much, in microseconds. The time of day is adjusted now
/// and then.
const AGREED: i64 = 60_000_000;

/// The state that all connections of an engine share.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) namespace: String,
    /// The time for which a statement waits while another process has the file locked.
    pub(crate) patience: Duration,
    synchronous: Synchronous,
    /// The length of the log at which it is written back to the file.
    log_pages: u32,
    /// The file that was opened first.
    identity: OnceLock<Identity>,
    /// SQLite's log and its index, which lie beside the file while it is open.
    log: Mutex<Vec<(PathBuf, Identity)>>,
    /// Whether the log was taken away.
    is_astray: AtomicBool,
}

/// The identity of a file, which stays the same when the file is moved.
pub(crate) type Identity = (u64, u64);

#[cfg(unix)]
pub(crate) fn identity(path: &Path) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt;

    fs::metadata(path).map(|of| (of.dev(), of.ino()))
}

/// Fails if the file is gone. Nothing else is checked, because outside Unix an open file cannot be replaced.
#[cfg(not(unix))]
pub(crate) fn identity(path: &Path) -> io::Result<Identity> {
    fs::metadata(path).map(|_| (0, 0))
}

impl Place {
    pub(crate) fn new(path: &Path, settings: &Settings, synchronous: Synchronous, log_pages: u32) -> io::Result<Self> {
        Ok(Place {
            path: std::path::absolute(path)?, // the program may change its working folder
            namespace: settings.namespace.clone(),
            // The engine must learn of the lock before the operation's own limit.
            patience: settings.timeout.mul_f64(0.75),
            synchronous,
            log_pages,
            identity: OnceLock::new(),
            log: Mutex::default(),
            is_astray: AtomicBool::new(false),
        })
    }

    /// Opens the file, and creates the tables if they are missing. Only the first call may create the file itself.
    pub(crate) fn open(&self) -> Result<Connection, Error> {
        let until = Instant::now() + self.patience;
        // Only the file is compared, and not its log. The log may be a new one, because the last connection to close
        // the file removes the log.
        if self.identity.get().is_some() && !self.is_same() {
            return Err(self.replaced());
        }
        self.refuse_network()?;
        busy::set_deadline(until);
        let mut connection = self.connect().map_err(|error| self.error(error))?;
        if connection.is_readonly("main").map_err(|error| self.error(error))? {
            return Err(Error::ReadOnly { path: self.path.clone() });
        }
        self.set_modes(&connection, until)?;
        self.prepare(&mut connection)?;
        let found = identity(&self.path).map_err(|_| self.replaced())?;
        if *self.identity.get_or_init(|| found) != found {
            return Err(self.replaced());
        }
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = self.find_log().map_err(|_| self.replaced())?;
        Ok(connection)
    }

    fn find_log(&self) -> io::Result<Vec<(PathBuf, Identity)>> {
        let file = self.path.canonicalize()?; // SQLite follows symbolic links, too
        let mut log = Vec::new();
        for end in ["-wal", "-shm"] {
            let mut path = file.clone().into_os_string();
            path.push(end);
            let path = PathBuf::from(path);
            let found = identity(&path)?;
            log.push((path, found));
        }
        Ok(log)
    }

    /// Returns the paths of SQLite's log and its index.
    pub(crate) fn log(&self) -> Vec<PathBuf> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.iter().map(|(path, _)| path.clone()).collect()
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if self.identity.get().is_none() {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let mut connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_handler(Some(busy::wait))?;
        Ok(connection)
    }

    /// Opens a connection that is used only for reading.
    pub(crate) fn open_reader(&self) -> Result<Connection, Error> {
        let open = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_handler(Some(busy::wait))?;
            Ok(connection)
        };
        open().map_err(|error| self.error(error))
    }

    /// Sets the modes of the connection. SQLite does not wait for other connections while it changes the mode of the
    /// journal, which happens once in the life of a file.
    fn set_modes(&self, connection: &Connection, until: Instant) -> Result<(), Error> {
        let set = || {
            let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
            connection.pragma_update(None, "synchronous", self.synchronous.name())?;
            connection.pragma_update(None, "wal_autocheckpoint", self.log_pages)?;
            Ok(mode)
        };
        loop {
            match set() {
                Ok(mode) if mode == "wal" => return Ok(()),
                Ok(mode) => {
                    let reason = format!("the file system allows only the journal mode {mode}, and not WAL");
                    return Err(Error::unconnected(Some(reason.into())));
                }
                Err(error) if is_busy(&error) && Instant::now() < until => std::thread::sleep(PAUSE),
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    /// Creates the tables if they are missing. After a restart of the machine, moves leases to its new clock.
    fn prepare(&self, connection: &mut Connection) -> Result<(), Error> {
        let (boot, error) = (clock::boot(), |error| self.error(error));
        match Stored::read(connection).map_err(error)? {
            Some(found) if found.version > VERSION => return Err(found.newer()),
            Some(found) if found.is_of_this_start(&boot) => return Ok(()),
            _ => {}
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error)?;
        // Another process may have been faster.
        match Stored::read(&transaction).map_err(error)? {
            Some(found) if found.version > VERSION => return Err(found.newer()),
            Some(found) if found.is_of_this_start(&boot) => {}
            Some(found) => found.restarted(&transaction, &boot).map_err(error)?,
            None => create(&transaction, &boot).map_err(error)?,
        }
        transaction.commit().map_err(error)
    }

    /// Fails if the path does not lead to the file that was opened, or if SQLite's log was taken away from beside it:
    /// processes that open the file after that have another log, and do not see what is written to this one.
    ///
    /// To be called only while there is a connection, which keeps the log where it is.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if !log.iter().all(|(path, known)| identity(path).is_ok_and(|found| found == *known)) {
            self.is_astray.store(true, SeqCst);
        }
        drop(log);
        if self.is_same() { Ok(()) } else { Err(self.replaced()) }
    }

    fn is_same(&self) -> bool {
        !self.is_astray.load(SeqCst)
            && identity(&self.path).is_ok_and(|found| self.identity.get().is_none_or(|known| *known == found))
    }

    /// Returns whether this is the file that was opened.
    pub(crate) fn is_known(&self, found: Identity) -> bool {
        self.identity.get() == Some(&found)
    }

    pub(crate) fn error(&self, error: rusqlite::Error) -> Error {
        Error::of(error, &self.path)
    }

    fn replaced(&self) -> Error {
        Error::Replaced { path: self.path.clone() }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn refuse_network(&self) -> Result<(), Error> {
        /// The magic numbers of network file systems: from `linux/magic.h`, and from the sources of those that are not
        /// in it.
        const NETWORK: [(i64, &str); 10] = [
            (0x6969, "NFS"),
            (0x517b, "SMB"),
            (0xff53_4d42, "CIFS"),
            (0xfe53_4d42, "SMB2"),
            (0x5346_414f, "AFS"),
            (0x7375_7245, "Coda"),
            (0x0102_1997, "9P"),
            (0x00c3_6400, "Ceph"),
            (0x0bd0_0bd0, "Lustre"),
            (0x7461_636f, "OCFS2"),
        ];
        let folder = self.path.parent().unwrap_or(&self.path);
        let found = rustix::fs::statfs(&self.path).or_else(|_| rustix::fs::statfs(folder));
        // If neither exists, opening the file fails with a better reason.
        let Ok(found) = found else { return Ok(()) };
        #[allow(clippy::unnecessary_cast, clippy::cast_lossless, trivial_numeric_casts)] // its type differs by target
        let kind = i64::from(found.f_type as u32);
        match NETWORK.iter().find(|(magic, _)| *magic == kind) {
            Some((_, kind)) => Err(Error::NetworkFileSystem { path: self.path.clone(), kind }),
            None => Ok(()),
        }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn refuse_network(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// The row that describes the file.
struct Stored {
    version: i64,
    /// The start of the machine by whose clock the instants are counted.
    boot: String,
    /// The two clocks at the same moment.
    clock: i64,
    day: i64,
}

impl Stored {
    /// Returns `None` if there are no tables.
    fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'keylatch_lease_file'";
        if connection.query_row(sql, [], |row| row.get::<_, i64>(0))? == 0 {
            return Ok(None);
        }
        let sql = "SELECT version, boot, clock, day FROM keylatch_lease_file";
        let read = |row: &Row<'_>| {
            Ok(Stored { version: row.get(0)?, boot: row.get(1)?, clock: row.get(2)?, day: row.get(3)? })
        };
        connection.query_row(sql, [], read).optional()
    }

    fn newer(&self) -> Error {
        Error::Newer { found: self.version, known: VERSION }
    }

    /// Returns whether the machine has not been restarted.
    ///
    /// A different name of its start does not prove a restart: a process may have no access to the name, or be in a
    /// container that has a name of its own. In that case both clocks have gone on, and agree on how much time has
    /// passed. A restart that goes unnoticed makes leases last longer, by [`AGREED`] at most.
    fn is_of_this_start(&self, boot: &str) -> bool {
        let now = clock::now();
        let (passed, by_day) = (now.clock - self.clock, now.day - self.day);
        self.boot == boot || passed >= 0 && (by_day - passed).abs() <= AGREED
    }

    /// Moves all instants to the clock of this start of the machine. The time of day says how much time has passed, but
    /// at least the time since the start is counted. If the time of day was set back, leases last longer.
    fn restarted(&self, connection: &Connection, boot: &str) -> rusqlite::Result<()> {
        let now = clock::now();
        let passed = (now.day - self.day).max(now.clock).max(0);
        let shift = now.clock - (self.clock + passed);
        connection.execute("UPDATE keylatch_lease SET since = since + ?1, until = until + ?1", [shift])?;
        let sql = "UPDATE keylatch_lease_file SET boot = ?1, clock = ?2, day = ?3";
        connection.execute(sql, (boot, now.clock, now.day)).map(|_| ())
    }
}

fn create(connection: &Connection, boot: &str) -> rusqlite::Result<()> {
    connection.execute_batch(include_str!("schema.sql"))?;
    let now = clock::now();
    connection.execute(
        "INSERT INTO keylatch_lease_file VALUES (1, ?1, ?2, ?3, ?4, 0)",
        (VERSION, boot, now.clock, now.day),
    )?;
    Ok(())
}
