//! A connection that is ready for use: it listens to the namespace's channel, and knows which run of the server it has
//! reached.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Poll, Waker},
};

use keylatch_lease_remote::{Failure, Settings, Tenure};
use redis::{FromRedisValue, InfoDict, RedisError, RedisResult, aio::MultiplexedConnection};
use tokio::task::unconstrained;

use crate::{
    convert,
    error::{self, Error},
    scripts::{ACQUIRE, DECIDE, LOOK, OPEN, OWNED_BY, RELEASE, RELEASE_ALL, RENEW, SWEEP, Script},
    together::{self, Question, Together},
};

/// The greatest number of leases that one request of the driver's sweep removes.
const AT_A_TIME: usize = 1000;

/// The keys and the channel of a namespace, and the rules for its quarantine.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) keys: [String; 3],
    pub(crate) channel: String,
    /// The length of a quarantine, in microseconds.
    pub(crate) quarantine: String,
    /// Whether restarts are trusted to forget nothing.
    pub(crate) trusts: bool,
}

impl Place {
    pub(crate) fn new(settings: &Settings, trusts: bool) -> Self {
        let prefix = convert::prefix(&settings.namespace);
        Place {
            keys: ["leases", "ends", "owned"].map(|name| format!("{prefix}:{name}")),
            channel: format!("{prefix}:free"),
            quarantine: convert::micros(Some(settings.quarantine)),
            trusts,
        }
    }

    pub(crate) fn trusts(&self) -> &'static str {
        flag(self.trusts)
    }
}

pub(crate) fn flag(is_set: bool) -> &'static str {
    if is_set { "1" } else { "0" }
}

/// A connection that is ready for use. Its clones are the same connection.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) place: Arc<Place>,
    connection: MultiplexedConnection,
    /// The identifier of the server's run, which changes with each restart.
    pub(crate) run: Arc<str>,
    ended: Arc<Ended>,
    pub(crate) together: Arc<Together>,
}

/// Whether a connection has ended, and the waker of the driver.
#[derive(Default)]
pub(crate) struct Ended {
    has_ended: AtomicBool,
    driver: Mutex<Option<Waker>>,
}

impl Ended {
    pub(crate) fn end(&self) {
        self.has_ended.store(true, SeqCst);
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner).take();
        driver.into_iter().for_each(Waker::wake);
    }

    /// Drives the connection until it has ended.
    pub(crate) async fn after(&self, moves: impl Future<Output = ()>) {
        let mut moves = pin!(moves);
        poll_fn(|cx| {
            let before = self.driver.lock().unwrap_or_else(PoisonError::into_inner).replace(cx.waker().clone());
            drop(before);
            if self.has_ended.load(SeqCst) { Poll::Ready(()) } else { moves.as_mut().poll(cx) }
        })
        .await;
    }
}

impl Session {
    pub(crate) async fn open(
        mut connection: MultiplexedConnection,
        place: Arc<Place>,
        ended: Arc<Ended>,
    ) -> Result<Self, Error> {
        let unusable = |error: RedisError| error::unusable(error.into());
        let info: InfoDict = redis::cmd("INFO").query_async(&mut connection).await.map_err(unusable)?;
        let says = |field: &str| info.get::<String>(field).unwrap_or_default();
        if says("role") == "slave" {
            return Err(Error::unconnected(Some("the server is a replica: connect to its primary".into())));
        }
        let policy = says("maxmemory_policy");
        if policy.starts_with("allkeys") && says("maxmemory") != "0" {
            return Err(Error::Evicts { policy });
        }
        let run = says("run_id");
        if run.is_empty() {
            return Err(Error::unconnected(Some("the server's INFO contains no run_id".into())));
        }
        connection.subscribe(&place.channel).await.map_err(unusable)?;
        // With these scripts loaded, even their first use is only one round trip. If the user may not load them, the
        // text of each is sent at its first use.
        for script in [&ACQUIRE, &RELEASE, &DECIDE, &RENEW, &RELEASE_ALL, &LOOK, &OWNED_BY, &SWEEP] {
            let loaded =
                redis::cmd("SCRIPT").arg("LOAD").arg(&script.source).query_async::<String>(&mut connection).await;
            drop(loaded);
        }
        let together = Arc::new(Together::new(together::MOST).with_batches(together::BATCHES));
        let session = Session { place, connection, run: run.into(), ended, together };
        match session.open_namespace(false).await {
            Err(error) if error.code().is_none() || is_over(&error) => Err(unusable(error)),
            // A server that is out of memory cannot record the run, but can release. It refuses an acquire for the same
            // reason.
            _ => Ok(session),
        }
    }

    /// Detects forgotten leases at once, and not only at the next request. If `init` is set, ends the quarantine.
    /// Returns the remaining time of the quarantine, in microseconds.
    pub(crate) async fn open_namespace(&self, init: bool) -> RedisResult<i64> {
        let Place { quarantine, channel, .. } = &*self.place;
        self.call(&OPEN, &[&self.run, quarantine, self.place.trusts(), flag(init), channel]).await
    }

    /// Runs a script. Sends its text if the server does not know the script.
    pub(crate) async fn call<T: FromRedisValue>(&self, script: &Script, arguments: &[&str]) -> RedisResult<T> {
        self.together.sent().await;
        match self.call_known(script, arguments).await {
            Err(error) if is_unknown(&error) => self.query("EVAL", &script.source, arguments).await,
            answer => answer,
        }
    }

    /// Runs a script that the server [knows](is_unknown).
    pub(crate) async fn call_known<T: FromRedisValue>(&self, script: &Script, arguments: &[&str]) -> RedisResult<T> {
        self.query("EVALSHA", &script.hash, arguments).await
    }

    async fn query<T: FromRedisValue>(&self, name: &str, script: &str, arguments: &[&str]) -> RedisResult<T> {
        let mut connection = self.connection.clone();
        let command = self.command(name, script, arguments);
        // Tokio's budget must not keep the first poll from sending the command: the order of requests depends on it.
        let answer = unconstrained(command.query_async(&mut connection)).await;
        if answer.as_ref().is_err_and(is_over) {
            self.ended.end();
        }
        answer
    }

    fn command(&self, name: &str, script: &str, arguments: &[&str]) -> redis::Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.place.keys.len()).arg(&self.place.keys).arg(arguments);
        command
    }

    pub(crate) async fn sweep(&self, limit: usize) -> RedisResult<usize> {
        self.call(&SWEEP, &[&limit.to_string()]).await
    }
}

/// Returns whether the server does not know the script.
pub(crate) fn is_unknown(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Returns whether another connection is needed, because this one is gone, or because its server is a replica, or is
/// still loading its data.
fn is_over(error: &RedisError) -> bool {
    match error.code() {
        Some(code) => ["READONLY", "LOADING", "MASTERDOWN"].contains(&code),
        None => error.is_io_error() || error.is_unrecoverable_error(),
    }
}

impl keylatch_lease_remote::Session for Session {
    type Error = Error;

    fn is_closed(&self) -> bool {
        self.ended.has_ended.load(SeqCst)
    }

    async fn give_back(&self, Tenure { resource, owner, token }: &Tenure) -> bool {
        self.decide_one(&Question::release(resource, Some(owner), Some(*token))).await.is_ok()
    }

    async fn sweep(&self) -> bool {
        self.sweep(AT_A_TIME).await.is_ok_and(|forgotten| forgotten >= AT_A_TIME)
    }
}
