//! A private server for the tests of one binary.

#![allow(dead_code, reason = "each test binary uses some of it")]

pub(crate) mod api;

use std::{
    env,
    ffi::OsStr,
    fs,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{self, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use keylatch_lease::Leases;
use keylatch_lease_etcd::{Client, Etcd, Options, client::Keys};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// A server that is stopped and removed when it is dropped. If this process dies first, the watchdog does it.
pub(crate) struct Server {
    folder: PathBuf,
    port: u16,
    nodes: u16,
    flags: &'static str,
    /// The process that stops and removes the server when the end of its input arrives.
    watchdog: process::Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(1, "")
    }

    /// Starts a server with this number of nodes, and these additional arguments for each of them.
    pub(crate) fn start_with(nodes: u16, flags: &'static str) -> Self {
        static STARTED: AtomicU64 = AtomicU64::new(0);

        let name = format!("keylatch-etcd-{}-{}", process::id(), STARTED.fetch_add(1, SeqCst));
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        // The watchdog reads from a pipe whose writing end only this process has, so its input ends when this process
        // dies.
        let watchdog = Command::new("bash")
            .args(["-c", "trap '' HUP INT TERM; cat >/dev/null; \"$0\" kill etcd \"$1\" && rm -rf \"$1\""])
            .arg(SCRIPT)
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { folder, port: free_ports(2 * nodes), nodes, flags, watchdog };
        server.run("start");
        server
    }

    /// Runs an action of the script: `start`, `stop`, `kill`, `pause`, `resume`, `forget`, `copy` or `restore`.
    pub(crate) fn run(&self, action: &str) {
        self.run_on(None, action);
    }

    /// Runs an action on one node; without a node, on all of them.
    pub(crate) fn run_on(&self, node: Option<usize>, action: &str) {
        let port = self.port.to_string();
        let mut arguments = vec![OsStr::new(action), OsStr::new("etcd"), self.folder.as_os_str()];
        arguments.extend((action == "start").then_some(OsStr::new(&port)));
        let mut command = Command::new(SCRIPT);
        command.env("NODES", self.nodes.to_string()).env("ETCD_FLAGS", self.flags);
        if let Some(node) = node {
            command.env("NODE", node.to_string());
        }
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{action}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        (0..self.nodes).map(|node| format!("http://127.0.0.1:{}", self.port + node)).collect()
    }

    /// Connects a client of the test's own.
    pub(crate) async fn client(&self) -> Client {
        Client::connect([&self.endpoints()[0]], None).await.unwrap()
    }

    pub(crate) fn leases(&self, options: Options) -> Leases<Etcd> {
        Leases::with_engine(options.connect(self.endpoints(), None))
    }

    /// Returns leases of a namespace that is new, and opens it.
    pub(crate) async fn opened(&self, options: Options) -> Leases<Etcd> {
        let leases = self.leases(options);
        leases.engine().init().await.unwrap();
        leases
    }

    /// Deletes all keys. It may be called anywhere, also on a runtime.
    pub(crate) fn empty(&self) {
        // A thread of its own, because the runtime of the test cannot block on a future.
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    self.client().await.delete(Keys::prefix("")).await.unwrap();
                });
            });
            done.join().unwrap();
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// Returns the first of `count` free ports in a row, below the ports that the system chooses itself.
fn free_ports(count: u16) -> u16 {
    static LAST: AtomicU64 = AtomicU64::new(0);

    let start = u64::from(process::id()) * 64;
    loop {
        let number = start + LAST.fetch_add(1, SeqCst) * 8;
        let first = 20_000 + u16::try_from(number % 12_000).unwrap();
        // All sockets are bound at the same time, because a port that was just bound may not be bound again at once.
        if (first..first + count).map(|port| TcpListener::bind(("127.0.0.1", port))).all(|socket| socket.is_ok()) {
            return first;
        }
    }
}

/// Returns the one server that the tests share; it stops when no test uses it.
pub(crate) fn shared() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

    let mut shared = lock(&SHARED);
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(Server::start());
    *shared = Arc::downgrade(&server);
    server
}

/// Returns a namespace that no other test has.
pub(crate) fn namespace() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);

    format!("test-{}", LAST.fetch_add(1, SeqCst))
}

pub(crate) fn on_tokio<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let output = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await });
    runtime.shutdown_background();
    output.expect("the test takes longer than a minute")
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
