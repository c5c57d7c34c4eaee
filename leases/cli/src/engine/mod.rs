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
    output::tell,
};

/// All leases of this program are in one namespace.
const NAMESPACE: &str = "keylatch";

/// The length, in pages, at which SQLite's log is written back to the file. It is short, because a command may have to
/// read the whole log before it starts.
const LOG_PAGES: u32 = 100;

/// Something to do with leases on any engine. The result is the exit code.
pub(crate) trait Task {
    /// Whether the task shows or ends the leases of other commands. If so, and the file does not exist, the URL
    /// probably names the wrong file, and the user is told that it was made.
    const LOOKS: bool = false;

    fn run<E: Engine + 'static>(self, leases: Leases<E>) -> Result<u8, Failure>;
}

/// The engines, each with an example of its URL and whether it is built in.
pub(crate) const ENGINES: [(&str, &str, bool); 5] = [
    ("sqlite", "sqlite:/var/lib/shop/leases.db", true),
    ("postgres", "postgres://user:password@host/database?sslmode=require", cfg!(feature = "postgres")),
    ("redis", "redis://user:password@host:6379, rediss://… with TLS", cfg!(feature = "redis")),
    ("etcd", "etcd://user:password@host:2379,host2:2379, etcd+tls://…", cfg!(feature = "etcd")),
    ("nats", "nats://user:password@host:4222,host2:4222, nats+tls://…", cfg!(feature = "nats")),
];

/// Does something with the leases behind this URL, or with those in the user's own file.
pub(crate) fn with(place: &Place, task: impl Task) -> Result<u8, Failure> {
    let Some(url) = url(place) else { return task.run(in_file(&own_file()?)?) };
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => on_file(path, task),
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => on_server(place, task, postgres::connect),
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss", _)) => on_server(place, task, redis::connect),
        #[cfg(feature = "etcd")]
        Some(("etcd" | "etcd+tls", _)) => on_server(place, task, etcd::connect),
        #[cfg(feature = "nats")]
        Some(("nats" | "nats+tls", _)) => on_server(place, task, nats::connect),
        _ => Err(Failure::new(USAGE, misunderstood(url))),
    }
}

/// Returns the URL that was given.
fn url(place: &Place) -> Option<&str> {
    place.engine.as_deref().filter(|url| !url.is_empty())
}

/// Returns the reason that a URL is not understood. The URL may contain a password, so it is not repeated.
fn misunderstood(url: &str) -> String {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let known = ENGINES.iter().find(|(name, ..)| scheme.strip_suffix("+tls").unwrap_or(scheme) == *name);
    match known {
        Some(_) if rest.is_empty() => format!("the URL of {scheme} is incomplete: see `keylatch engines`"),
        Some((name, ..)) => format!("{scheme} is not built in: install keylatch with `--features {name}`"),
        None if url.starts_with(['/', '.', '~']) => "the URL of a file begins with `sqlite:`".into(),
        None => "the URL of the engine has an unknown scheme: see `keylatch engines`".into(),
    }
}

/// Returns the URL of the leases that are used. That of a server is shortened: the user's name, the password and the
/// query are left out.
pub(crate) fn used(place: &Place) -> Result<String, Failure> {
    let Some(url) = url(place) else { return Ok(format!("sqlite:{}", own_path()?.display())) };
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    if scheme == "sqlite" {
        return Ok(url.into());
    }
    let rest = rest.rsplit_once('@').map_or_else(|| rest.trim_start_matches('/'), |(_, rest)| rest);
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    Ok(format!("{scheme}://{rest}"))
}

fn on_file<T: Task>(path: &str, task: T) -> Result<u8, Failure> {
    let path = Path::new(path.strip_prefix("//").unwrap_or(path));
    let is_new = !path.exists();
    let leases = in_file(path)?;
    if T::LOOKS && is_new {
        tell(&format!("{} did not exist, and has been made", path.display()));
    }
    task.run(leases)
}

/// Prepares an engine that nobody has used yet. Its caller vouches for that.
pub(crate) fn init(place: &Place) -> Result<u8, Failure> {
    match url(place).and_then(|url| url.split_once(':')) {
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
    connect: impl FnOnce(&Server) -> Result<E, Failure>,
) -> Result<u8, Failure> {
    let server = Server::at(place, NAMESPACE)?;
    let _runtime = runtime()?.enter();
    let done = task.run(Leases::with_engine(connect(&server)?));
    done.map_err(|failure| with_hints(failure.with_hint("missing", "run `keylatch init` once")))
}

#[cfg(feature = "server")]
fn with_hints(failure: Failure) -> Failure {
    failure.with_hint("password missing", "name the file with it, with --password-file or KEYLATCH_PASSWORD_FILE")
}

#[cfg(feature = "server")]
fn prepare(place: &Place, init: impl AsyncFnOnce(&Server) -> Result<(), Failure>) -> Result<u8, Failure> {
    let server = Server::at(place, NAMESPACE)?;
    runtime()?.block_on(init(&server)).map(|()| 0).map_err(with_hints)
}

/// Makes a runtime for the client of a server. The runtime lives as long as the process. Also chooses the
/// implementation of cryptography, because a build that has two of them would choose neither.
#[cfg(feature = "server")]
fn runtime() -> Result<&'static tokio::runtime::Runtime, Failure> {
    let _ = rustls::crypto::ring::default_provider().install_default(); // it fails if one was chosen before
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
    let path = own_path()?;
    let folder = path.parent().unwrap_or(&path);
    fs::create_dir_all(folder).map_err(|error| {
        Failure::new(OS_ERROR, format_args!("the folder {} could not be made: {error}", folder.display()))
    })?;
    Ok(path)
}

fn own_path() -> Result<PathBuf, Failure> {
    let folder = own_folder().ok_or_else(|| {
        Failure::new(USAGE, "there is no place for the leases: set HOME, or name an engine (--engine, KEYLATCH_ENGINE)")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Place {
        Place { engine: Some(url.into()), password_file: None, ca: None, cert: None, key: None }
    }

    #[test]
    fn the_engine_in_use_is_named_without_its_password() {
        let used = |url| used(&place(url)).ok().unwrap();
        assert_eq!(used("sqlite:/srv/leases.db"), "sqlite:/srv/leases.db");
        assert_eq!(used("redis://ann:s3cret@host:6379/1"), "redis://host:6379/1");
        assert_eq!(used("postgres://ann@host/shop?password=s3cret"), "postgres://host/shop");
        assert_eq!(used("etcd://one,two"), "etcd://one,two");
    }

    #[test]
    fn a_url_that_is_not_understood_is_explained() {
        assert!(misunderstood("mongo://ann:s3cret@host").contains("unknown scheme"));
        assert!(misunderstood("/srv/leases.db").contains("begins with `sqlite:`"));
        assert!(misunderstood("redis:").contains("incomplete"));
        assert!(misunderstood("etcd+tls://host").contains("--features etcd"));
    }
}
