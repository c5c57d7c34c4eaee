//! Files for the tests of one binary, and a fixture for the suite.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use keylatch_lease_conformance::{Caps, Failure, Fixture, Proxy, worker};
use keylatch_lease_sqlite::Sqlite;
use rusqlite::Connection;

/// The variables that tell a process that it is a worker: the file, and the namespace.
const FILE: &str = "KEYLATCH_SQLITE_FILE";
const NAMESPACE: &str = "KEYLATCH_SQLITE_NAMESPACE";

/// Longer than any test waits for a lock, even if many processes contend for it on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A folder that is removed when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);

        let name = format!("keylatch-sqlite-{}-{}", std::process::id(), LAST.fetch_add(1, SeqCst));
        let path = env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("leases.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens the file with SQLite alone.
pub(crate) fn by_hand(file: &Path) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection.busy_timeout(TIMEOUT).unwrap();
    connection
}

/// Lets time pass for the leases of a namespace.
pub(crate) fn pass(file: &Path, namespace: &str, time: Duration) {
    let sql = "UPDATE keylatch_lease SET since = since - ?2, until = until - ?2 WHERE ns = ?1";
    by_hand(file).execute(sql, (namespace, i64::try_from(time.as_micros()).unwrap())).unwrap();
}

/// The engine on one file, for the suite.
pub(crate) struct OneFile(Folder);

impl OneFile {
    /// Makes the folder. The suite never drops its fixture, so a shell removes the folder when this process ends.
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' HUP INT TERM; cat >/dev/null; rm -rf \"$0\""]).arg(folder.path());
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::mem::forget(shell); // its input is closed when this process ends
        OneFile(folder)
    }
}

impl Fixture for OneFile {
    type Engine = Sqlite;

    fn name(&self) -> String {
        "SQLite".into()
    }

    fn caps(&self) -> Caps {
        let mut caps = Caps::new(Duration::from_secs(1));
        caps.noise = TIMEOUT;
        caps
    }

    async fn connect(&self, namespace: &str, _: Option<&Proxy>) -> Result<Sqlite, Failure> {
        Ok(Sqlite::in_namespace(namespace).timeout(TIMEOUT).open(self.0.file())?)
    }

    fn worker(&self, namespace: &str, _: Option<std::net::SocketAddr>) -> Option<Command> {
        let mut command = worker::this_binary("is_a_worker").ok()?;
        command.env(FILE, self.0.file()).env(NAMESPACE, namespace);
        Some(command)
    }
}

/// Serves the suite if this process is one of its workers.
pub(crate) fn serve() {
    let (Ok(file), Ok(namespace)) = (env::var(FILE), env::var(NAMESPACE)) else { return };
    worker::serve(Sqlite::in_namespace(namespace).timeout(TIMEOUT).open(file).unwrap()).unwrap();
}
