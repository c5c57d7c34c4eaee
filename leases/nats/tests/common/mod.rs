//! A private server for the tests of one binary.

#![allow(dead_code, reason = "each test binary uses some of it")]

use async_nats::{Client, jetstream};
use std::{
    env,
    ffi::OsStr,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use keylatch_lease::Leases;
use keylatch_lease_nats::{ConnectOptions, Nats, Options};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// A server that is stopped, and removed, when it is dropped; and by somebody else if this process dies before.
pub(crate) struct Server {
    folder: PathBuf,
    port: u16,
    /// Its death is what the watchdog waits for.
    watchdog: process::Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        Server::with("")
    }

    /// With this in its configuration.
    pub(crate) fn with(more: &str) -> Self {
        static STARTED: AtomicU64 = AtomicU64::new(0);

        let name = format!("keylatch-nats-{}-{}", process::id(), STARTED.fetch_add(1, SeqCst));
        let folder = env::temp_dir().join(name);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("more.conf"), more).unwrap();
        // It reads from a pipe that this process holds, until there is nobody to write to it.
        let watchdog = Command::new("bash")
            .args(["-c", "trap '' HUP INT TERM; cat >/dev/null; \"$0\" kill nats \"$1\" && rm -rf \"$1\""])
            .arg(SCRIPT)
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { folder, port, watchdog };
        server.run("start");
        server
    }

    /// `start`, `stop`, `kill`, `pause`, `resume`, `forget`, `copy` or `restore`.
    pub(crate) fn run(&self, action: &str) {
        let port = self.port.to_string();
        let mut arguments = vec![OsStr::new(action), OsStr::new("nats"), self.folder.as_os_str()];
        arguments.extend((action == "start").then_some(OsStr::new(&port)));
        let output = Command::new(SCRIPT).args(arguments).output().unwrap();
        assert!(output.status.success(), "{action}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// A connection of one's own, on the tokio runtime that runs this.
    pub(crate) async fn client(&self) -> Client {
        async_nats::connect(self.address().to_string()).await.unwrap()
    }

    /// With the usual stream.
    pub(crate) async fn create_stream(&self) -> jetstream::stream::Stream {
        let context = jetstream::new(self.client().await);
        context.get_or_create_stream(Nats::stream("keylatch_lease")).await.unwrap()
    }

    /// The usual stream, from wherever this is called, made if it is not there.
    pub(crate) fn with_stream<T: Send>(&self, then: impl AsyncFnOnce(jetstream::stream::Stream) -> T + Send) -> T {
        // Not on the runtime that may run a test.
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async { then(self.create_stream().await).await })
            });
            done.join().unwrap()
        })
    }

    /// All that it had is gone, and the stream is made anew.
    pub(crate) fn forget(&self) {
        self.run("forget");
        self.with_stream(async |_| ());
    }

    pub(crate) fn leases(&self, options: Options) -> Leases<Nats> {
        Leases::with_engine(options.connect(self.address().to_string(), ConnectOptions::new).unwrap())
    }

    /// Of a namespace that is new, and has been opened.
    pub(crate) async fn opened(&self, options: Options) -> Leases<Nats> {
        let leases = self.leases(options);
        leases.engine().init().await.unwrap();
        leases
    }

    /// How many connections it has from clients of this name.
    pub(crate) fn connections(&self, name: &str) -> Option<u64> {
        u64::try_from(self.clients(name)?.len()).ok()
    }

    /// How many messages it has got from the one client of this name.
    pub(crate) fn received(&self, name: &str) -> u64 {
        self.clients(name).unwrap()[0]["in_msgs"].as_u64().unwrap()
    }

    fn clients(&self, name: &str) -> Option<Vec<serde_json::Value>> {
        let log = fs::read_to_string(self.folder.join("server.log")).ok()?;
        let address = log.lines().rev().find_map(|line| line.split("Starting http monitor on ").nth(1))?;
        let mut stream = TcpStream::connect(address.trim()).ok()?;
        stream.write_all(b"GET /connz?limit=10000 HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let told: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        Some(told["connections"].as_array()?.iter().filter(|client| client["name"] == name).cloned().collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// The one server that the tests share while any of them runs, with the stream.
pub(crate) fn shared() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

    let mut shared = lock(&SHARED);
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(Server::start());
    server.with_stream(async |_| ());
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
