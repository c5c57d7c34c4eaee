//! A connection that is ready for use, and the requests that it sends.
//!
//! Every change of a lease is one message, which the server stores only if the last one of the resource is still the
//! expected one.

mod acquire;
mod clock;
mod listening;
mod listing;
mod marks;
mod messages;
mod pulse;

pub(crate) use marks::carry;
pub(crate) use pulse::beat;

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use async_nats::{Client, jetstream};
use futures_util::{StreamExt, stream};
use jetstream::stream::{Config, DiscardPolicy, PersistenceMode, RawMessage, RetentionPolicy, StorageType};
use keylatch_lease::{
    Clock, Expiry, Lost, Owner, Resource, StdClock, Term, Token,
    engine::{Answer, Fail, Gone, Left, Record},
};
use keylatch_lease_remote::{Tenure as Dropped, Together};
use serde::Deserialize;
use tokio::sync::watch::{Receiver, Sender};

use crate::{
    error::Error,
    known::{Known, Memory},
    mark::Mark,
    record::{Message, NEVER, Tenure},
    server_time::{Reading, ServerTime},
    subjects::{Subjects, resource},
    topics::Topics,
};

/// The greatest number of requests of one operation that run at the same time.
const LANES: usize = 64;

/// The number of leases that one part of an operation on all leases reads. Each part counts as a separate answer, so
/// that the connection is not given up during a long operation.
pub(crate) const PART: usize = 2 * LANES;

/// The header of a message that ends a tenure: how it ends, and its token. The resource is free now, or may become free
/// earlier than expected.
const FREED: &str = "Keylatch-Freed";
/// The header of the first message of a resource: the token of its tenure. All earlier tenures have ended. On a mark it
/// is zero, and means that there was no mark.
const BEGINS: &str = "Keylatch-Begins";
/// The code of the error of a stream that could not store a message, for example because it is full.
const FULL: u64 = 10077;

/// The greatest age of a reading of the server's clock that is used for tokens. A token from a reading of this age is
/// usually behind the server's time by less than a second.
const ABOUT: Duration = Duration::from_secs(60);

const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// The stream and the namespace of the leases, and the rules for sweeps and the quarantine.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) stream: String,
    pub(crate) subjects: Subjects,
    /// The interval from a sweep, by any process, to the next; `None` if this process never sweeps.
    pub(crate) sweeps: Option<Duration>,
    /// The length of a quarantine.
    pub(crate) quarantine: Duration,
    /// Whether restarts are trusted to forget nothing.
    pub(crate) trusts: bool,
    /// The last connection's knowledge of the stream.
    pub(crate) before: Mutex<Option<Before>>,
}

/// A connection's knowledge of the stream.
#[derive(Debug)]
pub(crate) struct Before {
    mark: Mark,
    seen: Arc<Seen>,
}

/// The greatest sequence seen in a stream. A later message has a greater one.
#[derive(Debug, Default)]
pub(crate) struct Seen(AtomicU64);

impl Seen {
    fn get(&self) -> u64 {
        self.0.load(SeqCst)
    }

    pub(crate) fn sees(&self, sequence: u64) {
        self.0.fetch_max(sequence, SeqCst);
    }

    /// Records that the stream is an older copy, or a different one, so that this is known even if its sequences grow
    /// past the old ones before the check.
    pub(crate) fn went_back(&self) {
        self.sees(u64::MAX);
    }
}

/// The end of a connection: whether it has ended, and a way to end it.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) over: Receiver<bool>,
    /// The connection's event callback owns the sender.
    pub(crate) tell: Weak<Sender<bool>>,
}

impl End {
    fn bring(&self) {
        if let Some(tell) = self.tell.upgrade() {
            tell.send_replace(true);
        }
    }
}

/// The greatest number of callers that one reading of the mark serves.
const MOST: usize = 1024;

/// The mark, and its sequence, which is zero if there is none.
type Read = (u64, Option<Mark>);

/// The callers that wait for a reading of the mark.
pub(crate) type Reads = Together<(), Result<Read, Error>>;

pub(crate) struct Session {
    client: Client,
    place: Arc<Place>,
    end: End,
    topics: Topics<Session>,
    seen: Arc<Seen>,
    /// The time, by the clock of this process and in nanoseconds, of the last request whose answer was to show the last
    /// sequence of the stream.
    known_at: AtomicU64,
    /// Whether a single server has the stream.
    is_alone: bool,
    /// The mark as it was last read; `None` if it could not be written.
    mark: Mutex<Option<Mark>>,
    /// The creation time of the stream, and the run of the server that has it.
    origin: (String, String),
    clock: StdClock,
    time: ServerTime,
    memory: Memory,
    /// The callers that wait for a reading of the mark.
    reads: Arc<Reads>,
    /// The subjects that the driver's sweep still has to visit.
    unswept: Mutex<Vec<String>>,
}

/// The last message of a resource.
#[derive(Debug)]
struct Last {
    /// The sequence of the message; zero if there is none.
    sequence: u64,
    /// The greatest token that the resource is known to have had.
    token: u64,
    tenure: Option<Tenure>,
}

impl Last {
    fn free(sequence: u64, token: u64) -> Self {
        Last { sequence, token, tenure: None }
    }

    fn held(sequence: u64, tenure: Tenure) -> Self {
        Last { sequence, token: tenure.token, tenure: Some(tenure) }
    }
}

/// The outcome of storing a message.
enum Put {
    Stored(u64),
    /// Another message came first.
    Changed,
}

/// The outcome of an attempt to continue a tenure.
enum On {
    /// The tenure goes on: its state from the time `at` on.
    Goes { tenure: Tenure, at: u64 },
    /// The tenure had ended. This is the sequence of the last message now.
    Over { last: u64 },
    /// Another message came first.
    Changed,
}

#[derive(Deserialize)]
struct Answered<T> {
    error: Option<jetstream::Error>,
    #[serde(flatten)]
    value: Option<T>,
}

#[derive(Deserialize)]
struct Acknowledged {
    seq: u64,
}

#[derive(Deserialize)]
struct Found {
    message: RawMessage,
}

#[derive(Deserialize)]
struct Deleted {
    success: bool,
}

#[derive(Deserialize)]
struct Described {
    config: Config,
    created: String,
    state: Subjected,
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct Shown {
    created: String,
    state: Subjected,
}

#[derive(Deserialize)]
struct Cluster {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    total: usize,
    state: Subjected,
}

#[derive(Deserialize)]
struct Subjected {
    last_seq: u64,
    subjects: Option<HashMap<String, u64>>,
}

/// Converts the error of a request. If the connection broke, the operation may have been carried out, and is tried
/// again, even if it had only read so far. Often the engine itself has ended the connection, because the stream is a
/// different one.
pub(crate) fn perhaps(error: Error) -> Fail<Error> {
    match error {
        Error::Closed | Error::Timeout => Fail::Unknown(error),
        error => Fail::NotDone(error),
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Refused { source } if says_full(source))
}

/// Returns whether the stream is full. The server has the same code for everything that keeps a message from being
/// stored.
fn says_full(error: &jetstream::Error) -> bool {
    let says = error.to_string();
    error.error_code().0 == FULL
        && ["maximum messages exceeded", "maximum bytes exceeded"].iter().any(|why| says.contains(why))
}

pub(crate) fn stream_config(name: &str) -> Config {
    Config {
        name: name.to_owned(),
        description: Some("Leases of keylatch-lease-nats".into()),
        subjects: vec![format!("{name}.lease.>"), format!("{name}.clock.>")],
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        num_replicas: 1,
        republish: Some(jetstream::stream::Republish {
            source: format!("{name}.lease.>"),
            destination: format!("{name}.told.>"),
            headers_only: true,
        }),
        ..Config::default()
    }
}

/// Returns a setting that would lose leases, or prevent notifications. `is_from` says whether the server has this
/// version or a later one.
fn unsuitable(is: &Config, name: &str, is_from: impl Fn(i64, i64, i64) -> bool) -> Option<&'static str> {
    let must = stream_config(name);
    let is_limited = is.max_messages > 0 || is.max_bytes > 0;
    // An earlier server may store two messages after the same one: at the same time, or while the leader changes.
    let has_sound_replicas = is_from(2, 11, 0);
    // An earlier server counts fewer bytes than a message takes, so it stores one too many, and deletes the oldest.
    let counts_bytes = is_from(2, 10, 5);
    let wrong = [
        (is.storage != StorageType::File, "storage"),
        (is.persist_mode == Some(PersistenceMode::Async), "persist_mode"),
        (is.retention != RetentionPolicy::Limits, "retention"),
        (is.max_messages_per_subject != 1, "max_msgs_per_subject"),
        (!is.max_age.is_zero(), "max_age"),
        (is.max_bytes > 0 && !counts_bytes, "max_bytes"),
        (is_limited && is.discard != DiscardPolicy::New, "discard"),
        (is.discard_new_per_subject, "discard_new_per_subject"),
        (is.no_ack, "no_ack"),
        (is.sealed, "sealed"),
        (is.deny_delete, "deny_delete"),
        (is.mirror.is_some(), "mirror"),
        (is.sources.as_ref().is_some_and(|sources| !sources.is_empty()), "sources"),
        (is.num_replicas > 1 && !has_sound_replicas, "num_replicas"),
        (must.subjects.iter().any(|subject| !is.subjects.contains(subject)), "subjects"),
        (is.republish != must.republish, "republish"),
    ];
    wrong.into_iter().find_map(|(is_wrong, setting)| is_wrong.then_some(setting))
}

/// Returns the reason that a connection cannot be used.
fn unusable(error: Error) -> Error {
    match error {
        Error::Closed => Error::Unconnected { source: None },
        error => error,
    }
}

/// Parses a republished message that ends tenures: the resource, the token up to which its tenures have ended, and how
/// they ended.
pub(crate) fn ended(message: &async_nats::Message) -> Option<(Resource, Token, Lost)> {
    let headers = message.headers.as_ref()?;
    let (token, how) = match headers.get(FREED).map(|freed| freed.as_str().split_at_checked(1)) {
        Some(freed) => {
            let (how, token) = freed?;
            (token.parse().ok()?, if how == "t" { Lost::TakenOver } else { Lost::Released })
        }
        // This is the first message of the resource: earlier ones were deleted by hand, or swept after their tenures
        // had ended.
        None => (headers.get(BEGINS)?.as_str().parse::<u64>().ok()?.checked_sub(1)?, Lost::EngineForgot),
    };
    Some((resource(&message.subject)?, Token::new(token)?, how))
}

/// Returns whether a republished message says that the namespace had no mark: all its leases may have been deleted.
pub(crate) fn is_forgotten(message: &async_nats::Message) -> bool {
    let begins = message.headers.as_ref().is_some_and(|headers| headers.get(BEGINS).is_some());
    begins && resource(&message.subject).is_none()
}

impl Session {
    /// Prepares a connection. Fails if the stream is missing or unsuitable.
    pub(crate) async fn open(
        client: Client,
        place: Arc<Place>,
        end: End,
        topics: Topics<Session>,
    ) -> Result<Self, Error> {
        let mut session = Session {
            client,
            place,
            end,
            topics,
            seen: Arc::default(),
            known_at: AtomicU64::new(0),
            is_alone: false,
            mark: Mutex::default(),
            origin: Default::default(),
            clock: StdClock::new(),
            time: ServerTime::default(),
            memory: Memory::default(),
            reads: Arc::new(Reads::new(MOST)),
            unswept: Mutex::default(),
        };
        let described: Described = match session.api("INFO", &serde_json::json!({})).await {
            // JetStream may be available in a moment.
            Err(Error::Closed) => return Err(Error::Unconnected { source: None }),
            described => described?,
        };
        let is_from = |major, minor, patch| session.client.is_server_compatible(major, minor, patch);
        if let Some(setting) = unsuitable(&described.config, &session.place.stream, is_from) {
            return Err(Error::Unsuitable { setting });
        }
        // In a cluster it is not known whether the node that has the stream was restarted.
        session.is_alone = described.cluster.and_then(|cluster| cluster.name).is_none_or(|name| name.is_empty());
        let run = if session.is_alone { session.client.server_info().server_id } else { "-".into() };
        session.origin = (described.created, run);
        session.seen.sees(described.state.last_seq);
        // These messages reserve room for the later ones, which replace them, even when the stream is full.
        for subject in [session.place.subjects.clock(), session.place.subjects.swept()] {
            match session.put(subject, Some(0), Vec::new(), None, None).await {
                Ok(_) | Err(Error::Refused { .. }) => {}
                Err(error) => return Err(unusable(error)),
            }
        }
        match session.recall(described.state.last_seq).await {
            // Existing leases can still be released.
            Ok(()) | Err(Error::Refused { .. }) => Ok(session),
            Err(error) => Err(unusable(error)),
        }
    }

    pub(crate) fn reads(&self) -> Arc<Reads> {
        Arc::clone(&self.reads)
    }

    pub(crate) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    /// Continues the tenure of the last message: stores another message after it, which counts if the server stores it
    /// before the tenure's end.
    async fn go_on(
        &self,
        resource: &Resource,
        behind: u64,
        tenure: &Tenure,
        term: Term,
        expiry: Option<&Expiry>,
    ) -> Result<On, Fail<Error>> {
        if self.is_surely_over(tenure, behind) {
            return Ok(On::Over { last: behind });
        }
        let message = Message::go_on(tenure, term, expiry);
        let from = self.clock.now();
        let sequence = match self.put_lease(resource, behind, &message, None).await.map_err(perhaps)? {
            Put::Stored(sequence) => sequence,
            Put::Changed => return Ok(On::Changed),
        };
        let to = self.clock.now();
        // Read the time at which the message was stored.
        let raw = self.message(&serde_json::json!({ "seq": sequence })).await.map_err(Fail::Unknown)?;
        let Some(raw) = raw else { return Ok(On::Changed) };
        let at = stored_at(&raw);
        self.time.read(Reading { sequence, time: at, from, to });
        let Some(tenure) = message.tenure(at) else { return Ok(On::Over { last: sequence }) };
        let known = Known::Held {
            sequence,
            owner: tenure.owner.clone(),
            token: tenure.token,
            until: Self::sure(from, tenure.remaining(at)),
            tenure: Some(tenure.clone()),
        };
        self.memory.keep(resource, known);
        Ok(On::Goes { tenure, at })
    }

    pub(crate) async fn renew(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Token,
        term: Option<Term>,
    ) -> Result<Left, Fail<Error>> {
        let is_it = |tenure: &Tenure| tenure.owner == owner.id() && tenure.token == token.get();
        let mut last = match self.memory.take(resource) {
            Some(Known::Held { sequence, tenure: Some(tenure), .. })
                if is_it(&tenure) && term.is_some() && tenure.end != NEVER =>
            {
                Last::held(sequence, tenure)
            }
            _ => self.last(resource).await.map_err(perhaps)?,
        };
        loop {
            let Some(tenure) = last.tenure.filter(is_it) else { return Ok(Left::Nothing) };
            if tenure.end == NEVER {
                return Ok(Left::Forever);
            }
            let Some(term) = term else {
                let (is_over, now) = self.is_over(&tenure, last.sequence).await.map_err(perhaps)?;
                return Ok(if is_over { Left::Nothing } else { left(&tenure, now.latest) });
            };
            match self.go_on(resource, last.sequence, &tenure, term, None).await? {
                On::Goes { tenure, at } => return Ok(left(&tenure, at)),
                On::Over { .. } => return Ok(Left::Nothing),
                On::Changed => last = self.last(resource).await.map_err(perhaps)?,
            }
        }
    }

    /// Stores the end of a tenure, if the message `behind` is still the last one. Returns whether it was.
    async fn end(&self, resource: &Resource, behind: u64, token: u64) -> Result<bool, Fail<Error>> {
        let frees = Some((token, Lost::Released));
        match self.put_lease(resource, behind, &Message::free(token), frees).await.map_err(perhaps)? {
            Put::Stored(sequence) => {
                self.memory.keep(resource, Known::Free { sequence, token });
                Ok(true)
            }
            Put::Changed => Ok(false),
        }
    }

    pub(crate) async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
    ) -> Result<Gone, Fail<Error>> {
        let is_it = |number: u64| token.is_none_or(|token| token.get() == number);
        if let Some(Known::Held { sequence, owner: whose, token, until, .. }) = self.memory.take(resource) {
            let is_mine = whose == owner.id() && is_it(token) && self.clock.now() < until;
            if is_mine && self.end(resource, sequence, token).await? {
                return Ok(Gone::Released);
            }
        }
        loop {
            let last = self.last(resource).await.map_err(perhaps)?;
            let Some(tenure) = last.tenure else { return Ok(Gone::NotHeld) };
            if self.is_over(&tenure, last.sequence).await.map_err(perhaps)?.0 {
                return Ok(Gone::NotHeld);
            }
            if tenure.owner != owner.id() || !is_it(tenure.token) {
                return Ok(Gone::NotOwner(Owner::from_id(&tenure.owner)));
            }
            if self.end(resource, last.sequence, tenure.token).await? {
                return Ok(Gone::Released);
            }
        }
    }

    pub(crate) async fn look(&self, resource: &Resource) -> Result<Option<Record>, Error> {
        let last = self.last(resource).await?;
        match last.tenure {
            None => Ok(None),
            Some(tenure) => self.record(&tenure, last.sequence).await,
        }
    }

    async fn record(&self, tenure: &Tenure, sequence: u64) -> Result<Option<Record>, Error> {
        let (is_over, now) = self.is_over(tenure, sequence).await?;
        Ok((!is_over).then(|| Record {
            owner: Owner::from_id(&tenure.owner),
            token: number(tenure.token),
            held_for: tenure.held_for(now.latest),
            remaining: tenure.remaining(now.latest),
        }))
    }
}

/// Returns the outputs of the futures, in order. At most `lanes` of them run at the same time.
pub(crate) async fn side_by_side<F: Future>(each: Vec<F>, lanes: usize) -> Vec<F::Output> {
    stream::iter(each).buffered(lanes).collect().await
}

/// Returns the time at which a message was stored, in nanoseconds since 1970.
fn stored_at(raw: &RawMessage) -> u64 {
    u64::try_from(raw.time.unix_timestamp_nanos()).unwrap_or(0)
}

fn number(token: u64) -> Token {
    Token::new(token).unwrap_or_else(|| unreachable!("no tenure has the token zero"))
}

fn granted(tenure: &Tenure, resumed: bool, now: u64, at: u64) -> Answer {
    Answer::Granted {
        token: number(tenure.token),
        resumed,
        held_for: tenure.held_for(now),
        remaining: tenure.remaining(at),
    }
}

fn left(tenure: &Tenure, at: u64) -> Left {
    tenure.remaining(at).map_or(Left::Forever, Left::For)
}

impl keylatch_lease_remote::Session for Session {
    type Error = Error;

    fn is_closed(&self) -> bool {
        // Without its sender the connection has ended too.
        *self.end.over.borrow() || self.end.over.has_changed().is_err()
    }

    async fn give_back(&self, dropped: &Dropped) -> bool {
        self.release(&dropped.resource, &dropped.owner, Some(dropped.token)).await.is_ok()
    }

    async fn sweep(&self) -> bool {
        match self.place.sweeps {
            Some(every) => self.sweep_part(every).await.unwrap_or(false),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{stream_config, unsuitable};
    use async_nats::jetstream::stream::{Config, PersistenceMode, Source};

    #[test]
    fn a_setting_that_an_old_server_handles_wrongly_is_refused() {
        let one = stream_config("leases");
        let three = Config { num_replicas: 3, ..one.clone() };
        let small = Config { max_bytes: 1_000_000, ..one.clone() };
        let old_and_new = |config: &Config, version: (i64, i64, i64)| {
            let before = (version.0, version.1, version.2 - 1);
            [before, version].map(|is| unsuitable(config, "leases", |major, minor, patch| is >= (major, minor, patch)))
        };
        assert_eq!(old_and_new(&one, (2, 9, 1)), [None, None]);
        assert_eq!(old_and_new(&three, (2, 11, 0)), [Some("num_replicas"), None]);
        assert_eq!(old_and_new(&small, (2, 10, 5)), [Some("max_bytes"), None]);
    }

    #[test]
    fn a_stream_that_writes_late_or_has_sources_is_refused() {
        let good = stream_config("leases");
        let late = Config { persist_mode: Some(PersistenceMode::Async), ..good.clone() };
        let fed = Config { sources: Some(vec![Source::default()]), ..good.clone() };
        let told = |config: &Config, name: &str| unsuitable(config, name, |_, _, _| true);
        assert_eq!(told(&late, "leases"), Some("persist_mode"));
        assert_eq!(told(&fed, "leases"), Some("sources"));
        assert_eq!(told(&Config { sources: Some(Vec::new()), ..good.clone() }, "leases"), None);
        assert_eq!(told(&good, "other"), Some("subjects"));
    }
}
