//! A private server for the tests of one binary.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::{
    env,
    ffi::OsStr,
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use keylatch_lease::Leases;
use keylatch_lease_postgres::{NoTls, Options, Postgres};
use tokio_postgres::{Client, Config};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// A server that is stopped, and removed, when it is dropped; and by somebody else if this process dies before.
pub(crate) struct Server {
    kind: &'static str,
    folder: PathBuf,
    port: u16,
    settings: Vec<(&'static str, String)>,
    /// Its death is what the watchdog waits for.
    watchdog: process::Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        Server::start_as("postgres", Vec::new())
    }

    /// A pooler before this server, with so many connections to it.
    pub(crate) fn pooler(&self, mode: &str, connections: usize) -> Self {
        let settings =
            vec![("UPSTREAM", self.port.to_string()), ("MODE", mode.into()), ("POOL", connections.to_string())];
        Server::start_as("pgbouncer", settings)
    }

    fn start_as(kind: &'static str, settings: Vec<(&'static str, String)>) -> Self {
        static STARTED: AtomicU64 = AtomicU64::new(0);

        let name = format!("keylatch-{kind}-{}-{}", process::id(), STARTED.fetch_add(1, SeqCst));
        let folder = env::temp_dir().join(name);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        fs::create_dir_all(&folder).unwrap();
        // It reads from a pipe that this process holds, until there is nobody to write to it.
        let watchdog = Command::new("bash")
            .args(["-c", "trap '' HUP INT TERM; cat >/dev/null; \"$0\" kill \"$1\" \"$2\" && rm -rf \"$2\""])
            .args([SCRIPT, kind])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { kind, folder, port, settings, watchdog };
        server.run("start");
        server
    }

    /// `start`, `stop`, `kill`, `pause` or `resume`.
    pub(crate) fn run(&self, action: &str) {
        let port = self.port.to_string();
        let mut arguments = vec![OsStr::new(action), OsStr::new(self.kind), self.folder.as_os_str()];
        arguments.extend((action == "start").then_some(OsStr::new(&port)));
        let output = Command::new(SCRIPT).envs(self.settings.iter().cloned()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{action}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub(crate) fn config(&self) -> Config {
        let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port);
        config.parse().unwrap()
    }

    /// A connection of one's own, on the tokio runtime that runs this.
    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = self.config().connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// And opens it.
    pub(crate) async fn create_table(&self) {
        Postgres::create_table(&self.client().await).await.unwrap();
        self.leases(Postgres::in_namespace("").timeout(Duration::from_secs(20))).engine().init().await.unwrap();
    }

    /// From wherever it is called.
    pub(crate) fn execute(&self, sql: &'static str) {
        // Not on the runtime that may run a test.
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async { self.client().await.batch_execute(sql).await.unwrap() });
            });
            done.join().unwrap();
        });
    }

    pub(crate) fn leases(&self, options: Options) -> Leases<Postgres> {
        Leases::with_engine(options.connect(self.config(), NoTls))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// The one server that the tests share while any of them runs, with the table.
pub(crate) fn shared() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

    let mut shared = lock(&SHARED);
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(Server::start());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        server.create_table().await;
    });
    *shared = Arc::downgrade(&server);
    server
}

/// A namespace that nobody else has.
pub(crate) fn namespace() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);

    format!("test-{}", LAST.fetch_add(1, SeqCst))
}

pub(crate) fn on_tokio<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let output = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await });
    runtime.shutdown_background();
    output.expect("it takes too long")
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
