//! The engine behind a URL.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use keylatch_lease::{Leases, engine::Engine};
use keylatch_lease_sqlite::Sqlite;

use crate::failure::{Failure, OS_ERROR, USAGE};

/// All leases of this program are in one namespace.
const NAMESPACE: &str = "keylatch";

/// The length of SQLite's log, which a command must read before it starts.
const LOG_PAGES: u32 = 100;

/// Something to do with leases on any engine. The result is the exit code.
pub(crate) trait Task {
    fn run<E: Engine + 'static>(self, leases: Leases<E>) -> Result<u8, Failure>;
}

/// The engines: what a URL of each looks like, and whether it is built in.
pub(crate) const ENGINES: [(&str, &str, bool); 3] = [
    ("sqlite", "sqlite:/var/lib/shop/leases.db", true),
    ("redis", "redis://user:password@host:6379", cfg!(feature = "redis")),
    ("postgres", "postgres://user:password@host/database", cfg!(feature = "postgres")),
];

/// Does something with the leases behind this URL, or with those in the user's own file.
pub(crate) fn with(url: Option<&str>, task: impl Task) -> Result<u8, Failure> {
    let Some(url) = url else { return task.run(in_file(&own_file()?)?) };
    // A URL may contain a password, so no message repeats it.
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => {
            let path = path.strip_prefix("//").unwrap_or(path);
            task.run(in_file(Path::new(path))?)
        }
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss", _)) => {
            let client = redis::Client::open(url).map_err(|error| invalid("redis", error))?;
            let _runtime = runtime()?.enter();
            task.run(Leases::with_engine(keylatch_lease_redis::Redis::in_namespace(NAMESPACE).connect(client)))
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            let config = url.parse::<tokio_postgres::Config>().map_err(|error| invalid("postgres", error))?;
            let options = keylatch_lease_postgres::Postgres::in_namespace(NAMESPACE);
            let _runtime = runtime()?.enter();
            task.run(Leases::with_engine(options.connect(config, keylatch_lease_postgres::NoTls)))
        }
        Some((scheme, _)) if ENGINES.iter().any(|(name, ..)| *name == scheme) => Err(Failure::new(
            USAGE,
            format_args!("the engine {scheme} is not built in, or its URL is incomplete: see `keylatch engines`"),
        )),
        _ => Err(Failure::new(USAGE, "the URL of the engine is unknown: see `keylatch engines`")),
    }
}

/// Prepares an engine that nobody has used yet. Its caller vouches for that.
pub(crate) fn init(url: Option<&str>) -> Result<u8, Failure> {
    match url.and_then(|url| url.split_once(':')) {
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss", _)) => {
            let client = redis::Client::open(url.unwrap_or_default()).map_err(|error| invalid("redis", error))?;
            let runtime = runtime()?;
            let _runtime = runtime.enter();
            let engine = keylatch_lease_redis::Redis::in_namespace(NAMESPACE).connect(client);
            runtime.block_on(engine.init()).map(|()| 0).map_err(Failure::engine)
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            use keylatch_lease_postgres::{NoTls, Postgres};

            let config = url.unwrap_or_default().parse::<tokio_postgres::Config>();
            let config = config.map_err(|error| invalid("postgres", error))?;
            let runtime = runtime()?;
            let _runtime = runtime.enter();
            runtime.block_on(async {
                let (client, connection) = config.connect(NoTls).await.map_err(Failure::engine)?;
                tokio::spawn(connection);
                Postgres::create_table(&client).await.map_err(Failure::engine)?;
                let engine = Postgres::in_namespace(NAMESPACE).connect(config, NoTls);
                engine.init().await.map(|()| 0).map_err(Failure::engine)
            })
        }
        // A file is made when it is opened.
        _ => with(url, Opened),
    }
}

struct Opened;

impl Task for Opened {
    fn run<E: Engine + 'static>(self, _: Leases<E>) -> Result<u8, Failure> {
        Ok(0)
    }
}

#[cfg(any(feature = "postgres", feature = "redis"))]
fn invalid(name: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(USAGE, format_args!("the URL of the engine {name} is invalid: {error}"))
}

/// Makes a runtime for the client of a server. It lives as long as the process.
#[cfg(any(feature = "postgres", feature = "redis"))]
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
