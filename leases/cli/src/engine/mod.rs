//! The engine behind a URL.
//!
//! `server` has what engines on servers have in common: passwords and certificates.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "etcd", feature = "nats"))]
mod hosts;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "server")]
mod server;

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use keylatch_lease::{Leases, engine::Engine};
use keylatch_lease_sqlite::Sqlite;

#[cfg(feature = "server")]
use self::server::Server;
use crate::{
    args::Place,
    failure::{Failure, OS_ERROR, USAGE},
};

/// All leases of this program are in one namespace.
const NAMESPACE: &str = "keylatch";

/// The length of SQLite's log, which a command must read before it starts.
const LOG_PAGES: u32 = 100;

/// Something to do with leases on any engine. The result is the exit code.
pub(crate) trait Task {
    fn run<E: Engine + 'static>(self, leases: Leases<E>) -> Result<u8, Failure>;
}

/// The engines: what a URL of each looks like, and whether it is built in.
pub(crate) const ENGINES: [(&str, &str, bool); 5] = [
    ("sqlite", "sqlite:/var/lib/shop/leases.db", true),
    ("postgres", "postgres://user:password@host/database?sslmode=require", cfg!(feature = "postgres")),
    ("redis", "redis://user:password@host:6379, rediss://… with TLS", cfg!(feature = "redis")),
    ("etcd", "etcd://user:password@host:2379,host2:2379, etcd+tls://…", cfg!(feature = "etcd")),
    ("nats", "nats://user:password@host:4222,host2:4222, nats+tls://…", cfg!(feature = "nats")),
];

/// Does something with the leases behind this URL, or with those in the user's own file.
pub(crate) fn with(place: &Place, task: impl Task) -> Result<u8, Failure> {
    let Some(url) = place.engine.as_deref() else { return task.run(in_file(&own_file()?)?) };
    // A URL may contain a password, so no message repeats it.
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => {
            let path = path.strip_prefix("//").unwrap_or(path);
            task.run(in_file(Path::new(path))?)
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => on_server(place, task, postgres::connect),
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss", _)) => on_server(place, task, redis::connect),
        #[cfg(feature = "etcd")]
        Some(("etcd" | "etcd+tls", _)) => on_server(place, task, etcd::connect),
        #[cfg(feature = "nats")]
        Some(("nats" | "nats+tls", _)) => on_server(place, task, nats::connect),
        Some((scheme, _)) if ENGINES.iter().any(|(name, ..)| *name == scheme.trim_end_matches("+tls")) => {
            let why = "is not built in, or its URL is incomplete: see `keylatch engines`";
            Err(Failure::new(USAGE, format_args!("the engine {scheme} {why}")))
        }
        _ => Err(Failure::new(USAGE, "the URL of the engine is unknown: see `keylatch engines`")),
    }
}

/// Prepares an engine that nobody has used yet. Its caller vouches for that.
pub(crate) fn init(place: &Place) -> Result<u8, Failure> {
    match place.engine.as_deref().and_then(|url| url.split_once(':')) {
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => prepare(place, async |server| postgres::init(server).await),
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss", _)) => {
            prepare(place, async |server| redis::connect(server)?.init().await.map_err(Failure::engine))
        }
        #[cfg(feature = "etcd")]
        Some(("etcd" | "etcd+tls", _)) => {
            prepare(place, async |server| etcd::connect(server)?.init().await.map_err(Failure::engine))
        }
        #[cfg(feature = "nats")]
        Some(("nats" | "nats+tls", _)) => prepare(place, async |server| nats::init(server).await),
        // A file is made when it is opened.
        _ => with(place, Opened),
    }
}

struct Opened;

impl Task for Opened {
    fn run<E: Engine + 'static>(self, _: Leases<E>) -> Result<u8, Failure> {
        Ok(0)
    }
}

/// Connects to a server, and does something with its leases.
#[cfg(feature = "server")]
fn on_server<E: Engine + 'static>(
    place: &Place,
    task: impl Task,
    connect: impl FnOnce(&Server<'_>) -> Result<E, Failure>,
) -> Result<u8, Failure> {
    let server = Server::at(place, NAMESPACE)?;
    let _runtime = runtime()?.enter();
    task.run(Leases::with_engine(connect(&server)?))
}

#[cfg(feature = "server")]
fn prepare(place: &Place, init: impl AsyncFnOnce(&Server<'_>) -> Result<(), Failure>) -> Result<u8, Failure> {
    let server = Server::at(place, NAMESPACE)?;
    runtime()?.block_on(init(&server)).map(|()| 0)
}

/// Makes a runtime for the client of a server. It lives as long as the process.
#[cfg(feature = "server")]
fn runtime() -> Result<&'static tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    built.map(|runtime| &*Box::leak(Box::new(runtime))).map_err(|error| Failure::system("no thread", error))
}

fn in_file(path: &Path) -> Result<Leases<Sqlite>, Failure> {
    // Many processes may contend on a busy machine. Each reads the log when it opens the file.
    let options = Sqlite::in_namespace(NAMESPACE).timeout(Duration::from_secs(30)).log_pages(LOG_PAGES);
    options.open(path).map(Leases::with_engine).map_err(Failure::engine)
}

/// Returns the file that is used if no engine is named, and makes its folder.
fn own_file() -> Result<PathBuf, Failure> {
    let folder = own_folder().ok_or_else(|| {
        Failure::new(USAGE, "there is no place for the leases: set HOME, or name an engine (--engine, KEYLATCH_ENGINE)")
    })?;
    fs::create_dir_all(&folder).map_err(|error| {
        Failure::new(OS_ERROR, format_args!("the folder {} could not be made: {error}", folder.display()))
    })?;
    Ok(folder.join("leases.db"))
}

fn own_folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/keylatch".into());
    }
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("keylatch"))
}
