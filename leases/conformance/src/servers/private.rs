//! A server that a script runs.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    net::{SocketAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU16, AtomicU64, Ordering::Relaxed},
    },
};

/// The watchdog. It waits for the end of its input, which comes when the test process closes the pipe or dies. Then it
/// kills the server, and removes its folder. Its arguments are the script, the kind of server and the folder.
const WATCHDOG: &str = "trap '' HUP INT TERM; cat >/dev/null; \"$0\" kill \"$1\" \"$2\" && rm -rf \"$2\"";

/// A server that a script starts, stops and harms. When this is dropped, or the test process dies, the server is killed
/// and its folder removed.
///
/// The script is called with an action, the kind of server, a folder for it, and, for `start`, the port on which it
/// must listen: `run start redis /tmp/folder 6379`. The actions are `start`, `stop`, `kill`, `pause`, `resume`,
/// `forget`, `copy` and `restore`.
///
/// # Panics
/// All methods that call the script panic if it fails.
///
/// # Examples
/// ```no_run
/// use keylatch_lease_conformance::servers::PrivateServer;
///
/// let server = PrivateServer::new("leases/servers/run", "redis").file("redis.conf", "appendonly yes\n").start();
/// println!("it listens at {}", server.address());
/// server.run("pause");
/// server.run("resume");
/// ```
#[derive(Debug)]
pub struct PrivateServer {
    script: &'static str,
    kind: &'static str,
    folder: PathBuf,
    port: u16,
    environment: Vec<(&'static str, String)>,
    watchdog: Child,
}

impl PrivateServer {
    /// Makes a folder for a server of this kind, which is not started yet.
    ///
    /// # Examples
    /// See [`PrivateServer`].
    #[must_use]
    pub fn new(script: &'static str, kind: &'static str) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);

        let folder = format!("keylatch-{kind}-{}-{}", process::id(), MADE.fetch_add(1, Relaxed));
        let folder = env::temp_dir().join(folder);
        fs::create_dir_all(&folder).expect("a folder for the server");
        let watchdog = Command::new("bash")
            .args(["-c", WATCHDOG, script, kind])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash");
        PrivateServer { script, kind, folder, port: free_ports(1), environment: Vec::new(), watchdog }
    }

    /// Gives the server this many consecutive free ports, instead of one.
    ///
    /// # Examples
    /// See [`env`](Self::env).
    #[must_use]
    pub fn ports(mut self, count: u16) -> Self {
        self.port = free_ports(count);
        self
    }

    /// Sets a variable in the script's environment.
    ///
    /// # Examples
    /// ```no_run
    /// use keylatch_lease_conformance::servers::PrivateServer;
    ///
    /// let cluster = PrivateServer::new("leases/servers/run", "etcd").ports(6).env("NODES", "3").start();
    /// cluster.run_with(&[("NODE", "1")], "kill");
    /// ```
    #[must_use]
    pub fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Writes a file into the server's folder.
    ///
    /// # Examples
    /// See [`PrivateServer`].
    #[must_use]
    pub fn file(self, name: &str, contents: &str) -> Self {
        fs::write(self.folder.join(name), contents).expect("a file in the server's folder");
        self
    }

    /// Starts the server.
    ///
    /// # Examples
    /// See [`PrivateServer`].
    #[must_use = "the server ends when this is dropped"]
    pub fn start(self) -> Self {
        self.run("start");
        self
    }

    /// Calls the script with this action.
    ///
    /// # Examples
    /// See [`PrivateServer`].
    pub fn run(&self, action: &str) {
        self.run_with(&[], action);
    }

    /// Calls the script with this action, and with more variables in its environment.
    ///
    /// # Examples
    /// See [`env`](Self::env).
    pub fn run_with(&self, environment: &[(&str, &str)], action: &str) {
        let port = self.port.to_string();
        let mut arguments = vec![OsStr::new(action), OsStr::new(self.kind), self.folder.as_os_str()];
        arguments.extend((action == "start").then_some(OsStr::new(&port)));
        let mut command = Command::new(self.script);
        command.envs(self.environment.iter().cloned()).envs(environment.iter().copied()).args(arguments);
        let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", self.script));
        assert!(output.status.success(), "{} {action}: {}", self.script, String::from_utf8_lossy(&output.stderr));
    }

    /// Returns the server's folder.
    ///
    /// # Examples
    /// See [`PrivateServer`].
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the address at which the server listens; if it has several, the first one.
    ///
    /// # Examples
    /// See [`PrivateServer`].
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// Returns the first of this many consecutive free ports. They are below the range from which the system itself chooses
/// ports, including those for outgoing connections. Until this process ends, no other call returns them, in any
/// process.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::servers::free_ports;
///
/// let port = free_ports(2);
/// assert!(std::net::TcpListener::bind(("127.0.0.1", port + 1)).is_ok());
/// ```
#[must_use]
pub fn free_ports(count: u16) -> u16 {
    static LAST: AtomicU16 = AtomicU16::new(0);
    // A server takes its port some time after this call, and until then another process could choose the same one. So
    // each process keeps the UDP ports with the same numbers, which no server uses.
    static RESERVED: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

    let start = u64::from(process::id()) * 64;
    loop {
        let number = start + u64::from(LAST.fetch_add(1, Relaxed)) * 8;
        let first = 20_000 + u16::try_from(number % 12_000).expect("less than 12,000");
        let ports = first..first + count;
        let reserved = ports.clone().map(|port| UdpSocket::bind(("127.0.0.1", port)));
        let Ok(reserved) = reserved.collect::<io::Result<Vec<_>>>() else { continue };
        // All sockets are bound at the same time, because a port that was just bound may not be bound again at once.
        let sockets: Vec<_> = ports.map(|port| TcpListener::bind(("127.0.0.1", port))).collect();
        if sockets.iter().all(Result::is_ok) {
            RESERVED.lock().unwrap_or_else(PoisonError::into_inner).extend(reserved);
            return first;
        }
    }
}
