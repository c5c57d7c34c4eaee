//! A connection that is ready for use, and what is asked on it.
//!
//! Whatever changes a lease is one message, that the server stores only if the last one of the resource is still the expected one.

use std::{
    collections::HashMap,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use async_nats::{Client, HeaderMap, Request, jetstream};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{
    StreamExt,
    future::{Either, select},
    stream,
};
use jetstream::stream::{Config, DiscardPolicy, PersistenceMode, RawMessage, RetentionPolicy, StorageType};
use keylatch_lease::{
    Clock, Expiry, Lost, Owner, Resource, StdClock, Term, Token,
    engine::{Answer, Ask, Fail, Gone, Left, Owned, Record, Want},
};
use keylatch_lease_remote::Tenure as Dropped;
use serde::Deserialize;
use tokio::sync::watch::{Receiver, Sender};

use crate::{
    error::{Error, refused},
    known::{Known, Memory},
    listing::Listing,
    mark::Mark,
    record::{Message, NEVER, Tenure},
    server_time::{FRESH, Now, Reading, ServerTime},
    subjects::{Subjects, resource},
};

/// So many requests of one operation are under way at a time.
const LANES: usize = 64;

/// So many leases are looked at in one go, by what looks at all of them. Each go is an answer of its own: a connection on which there is one now and
/// then is not given up.
pub(crate) const PART: usize = 2 * LANES;

/// What a message has on it by which a tenure is over, and its resource may have come free, or will earlier than it was to: which tenure.
const FREED: &str = "Keylatch-Freed";
/// What the first message of a resource says: the token of its tenure. Those before it are over. Of a mark: zero; there was none.
const BEGINS: &str = "Keylatch-Begins";
/// The error of a stream that is full.
const FULL: u64 = 10077;

/// How old a reading of the server's clock may be that tokens start from. Then they are behind by less than a second.
const ABOUT: Duration = Duration::from_secs(60);

const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// Where the leases are.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) stream: String,
    pub(crate) namespace: String,
    pub(crate) subjects: Subjects,
    /// How long after the last sweep of whatever process the next is due.
    pub(crate) sweeps: Option<Duration>,
    /// How long nothing is granted when something may have been forgotten.
    pub(crate) quarantine: Duration,
    /// Whether a restart forgets nothing.
    pub(crate) trusts: bool,
    /// What the last connection knew.
    pub(crate) before: Mutex<Option<Before>>,
}

/// What a connection knew of the stream.
#[derive(Debug)]
pub(crate) struct Before {
    mark: Mark,
    seen: Arc<Seen>,
}

/// The greatest sequence that a stream has told of. A later message has a greater one.
#[derive(Debug, Default)]
pub(crate) struct Seen(AtomicU64);

impl Seen {
    fn get(&self) -> u64 {
        self.0.load(SeqCst)
    }

    pub(crate) fn sees(&self, sequence: u64) {
        self.0.fetch_max(sequence, SeqCst);
    }

    /// The stream is an older copy, or another one, whatever it has stored until that is looked at.
    pub(crate) fn went_back(&self) {
        self.sees(u64::MAX);
    }
}

/// A connection's end: whether it has come, and how to bring it about.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) over: Receiver<bool>,
    /// The connection has the other hold of it.
    pub(crate) tell: Weak<Sender<bool>>,
}

impl End {
    fn bring(&self) {
        if let Some(tell) = self.tell.upgrade() {
            tell.send_replace(true);
        }
    }
}

pub(crate) struct Session {
    client: Client,
    place: Arc<Place>,
    end: End,
    seen: Arc<Seen>,
    /// As it was read last. `None`: it could not be written.
    mark: Mutex<Option<Mark>>,
    /// When the stream was made, and which run of the server has it.
    origin: (String, String),
    clock: StdClock,
    time: ServerTime,
    memory: Memory,
    /// What the driver's sweep has still to look at.
    unswept: Mutex<Vec<String>>,
}

/// The last message of a resource.
#[derive(Debug)]
struct Last {
    /// Zero: there is none.
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

/// What became of a message.
enum Put {
    Stored(u64),
    /// Another came first.
    Changed,
}

/// What becomes of a tenure that is to go on.
enum On {
    /// It lasts so long from then on.
    Goes { tenure: Tenure, at: u64 },
    /// It had ended. The last message by now is this one.
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

fn not_done(error: Error) -> Fail<Error> {
    Fail::NotDone(error)
}

/// A connection that broke may have done it; what the server has refused it has not done.
fn perhaps(error: Error) -> Fail<Error> {
    match error {
        Error::Closed | Error::Timeout => Fail::Unknown(error),
        error => Fail::NotDone(error),
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Refused { source } if says_full(source))
}

/// The server has the same code for whatever kept a message from being stored.
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

/// What would lose leases, or tell nobody, on a server that is of a version or later as the function says.
fn unsuitable(is: &Config, name: &str, is_from: impl Fn(i64, i64, i64) -> bool) -> Option<&'static str> {
    let must = stream_config(name);
    let is_limited = is.max_messages > 0 || is.max_bytes > 0;
    // Before, it may store two messages behind the same one: both at once, or while another becomes the leader.
    let has_sound_replicas = is_from(2, 11, 0);
    // Before, it counts less than a message takes, stores it, and deletes the oldest one for that.
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

/// What kept a connection from being used.
fn unusable(error: Error) -> Error {
    match error {
        Error::Closed => Error::Unconnected { source: None },
        error => error,
    }
}

/// What a republished message says of the tenures before it, if they are over: of which resource, up to which one, and how it ended.
pub(crate) fn ended(message: &async_nats::Message) -> Option<(Resource, Token, Lost)> {
    let headers = message.headers.as_ref()?;
    let (token, how) = match headers.get(FREED).map(|freed| freed.as_str().split_at_checked(1)) {
        Some(freed) => {
            let (how, token) = freed?;
            (token.parse().ok()?, if how == "t" { Lost::TakenOver } else { Lost::Released })
        }
        // It is the first: what was there before it somebody has deleted, or it was over.
        None => (headers.get(BEGINS)?.as_str().parse::<u64>().ok()?.checked_sub(1)?, Lost::EngineForgot),
    };
    Some((resource(&message.subject)?, Token::new(token)?, how))
}

/// Whether a republished message says that the namespace had no mark: all that was in it may have been deleted.
pub(crate) fn is_forgotten(message: &async_nats::Message) -> bool {
    let begins = message.headers.as_ref().is_some_and(|headers| headers.get(BEGINS).is_some());
    begins && resource(&message.subject).is_none()
}

impl Session {
    /// The stream must be there, and suitable.
    pub(crate) async fn open(client: Client, place: Arc<Place>, end: End) -> Result<Self, Error> {
        let mut session = Session {
            client,
            place,
            end,
            seen: Arc::default(),
            mark: Mutex::default(),
            origin: Default::default(),
            clock: StdClock::new(),
            time: ServerTime::default(),
            memory: Memory::default(),
            unswept: Mutex::default(),
        };
        let described: Described = match session.api("INFO", &serde_json::json!({})).await {
            // It may be there in a moment.
            Err(Error::Closed) => return Err(Error::Unconnected { source: None }),
            described => described?,
        };
        let is_from = |major, minor, patch| session.client.is_server_compatible(major, minor, patch);
        if let Some(setting) = unsuitable(&described.config, &session.place.stream, is_from) {
            return Err(Error::Unsuitable { setting });
        }
        // Of a cluster there is no telling whether the node that has the stream was started anew.
        let is_alone = described.cluster.and_then(|cluster| cluster.name).is_none_or(|name| name.is_empty());
        let run = if is_alone { session.client.server_info().server_id } else { "-".into() };
        session.origin = (described.created, run);
        session.seen.sees(described.state.last_seq);
        // So that it has room for the time, even when it is full: later ones replace these.
        for subject in [session.place.subjects.clock(), session.place.subjects.swept()] {
            match session.put(subject, Some(0), Vec::new(), None, None).await {
                Ok(_) | Err(Error::Refused { .. }) => {}
                Err(error) => return Err(unusable(error)),
            }
        }
        match session.recall(described.state.last_seq).await {
            // What there is can be released all the same.
            Ok(()) | Err(Error::Refused { .. }) => Ok(session),
            Err(error) => Err(unusable(error)),
        }
    }

    /// Looks at the namespace's mark. If there is none, or it is not that of this stream, or the stream has gone back, something may have been
    /// forgotten: then there is a new one, and nothing is granted until what was granted has ended.
    async fn recall(&self, last: u64) -> Result<(), Error> {
        let (stream, run) = &self.origin;
        let Place { quarantine, trusts, before, .. } = &*self.place;
        let has_gone_back = |mark: &Mark| {
            let before = before.lock().unwrap_or_else(PoisonError::into_inner);
            before.as_ref().is_some_and(|before| before.mark.is_same(mark) && last < before.seen.get())
        };
        loop {
            let (behind, found) = self.find_mark().await?;
            let mark = match found {
                Some(mark) if mark.stream == *stream && (*trusts || mark.run == *run) && !has_gone_back(&mark) => mark,
                found => {
                    let now = self.now_anew().await?.latest;
                    let until = now.saturating_add(u64::try_from(quarantine.as_nanos()).unwrap_or(u64::MAX));
                    let new = Mark::new(stream, run, until, now, found.as_ref());
                    if !self.put_mark(behind, &new).await? {
                        continue;
                    }
                    new
                }
            };
            let known = Before { mark: mark.clone(), seen: Arc::clone(&self.seen) };
            *before.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
            self.keep_mark(mark);
            return Ok(());
        }
    }

    fn known_mark(&self) -> Option<Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep_mark(&self, mark: Mark) {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark);
    }

    /// The mark, and its sequence. Zero: there is none.
    async fn find_mark(&self) -> Result<(u64, Option<Mark>), Error> {
        match self.message(&serde_json::json!({ "last_by_subj": self.place.subjects.mark() })).await? {
            None => Ok((0, None)),
            Some(raw) => {
                let mark = STANDARD.decode(&raw.payload).ok().and_then(|bytes| Mark::from_bytes(&bytes));
                Ok((raw.sequence, Some(mark.ok_or(Error::Foreign)?)))
            }
        }
    }

    /// Whether nobody else has written one meanwhile.
    async fn put_mark(&self, behind: u64, mark: &Mark) -> Result<bool, Error> {
        let put = self
            .put(self.place.subjects.mark(), Some(behind), mark.to_bytes(), None, (behind == 0).then_some(0))
            .await?;
        Ok(matches!(put, Put::Stored(_)))
    }

    /// The stream is not what it was, and it is not known what became of a request: another connection is to look what has been forgotten.
    fn is_another(&self) -> Error {
        self.end.bring();
        Error::Closed
    }

    /// The mark as it is now, if nothing has been forgotten since it was first read.
    async fn same_mark(&self) -> Result<(u64, Mark), Error> {
        let (sequence, found) = self.find_mark().await?;
        match (found, self.known_mark()) {
            (Some(found), Some(known)) if found.is_same(&known) => Ok((sequence, found)),
            _ => Err(self.is_another()),
        }
    }

    /// Changes the mark, unless there is nothing to be changed.
    async fn change_mark(&self, change: impl Fn(&mut Mark)) -> Result<(), Error> {
        loop {
            let (behind, mark) = self.same_mark().await?;
            let mut new = mark.clone();
            change(&mut new);
            if new == mark || self.put_mark(behind, &new).await? {
                self.keep_mark(new);
                return Ok(());
            }
        }
    }

    /// Nothing has been forgotten that anybody still goes by.
    pub(crate) async fn end_quarantine(&self) -> Result<(), Error> {
        self.marked().await?;
        self.change_mark(|mark| mark.until = 0).await
    }

    /// The mark as it was read last. If it could not be written because there was no room, that is tried again.
    async fn marked(&self) -> Result<Mark, Error> {
        loop {
            if let Some(mark) = self.known_mark() {
                return Ok(mark);
            }
            // What is seldom done is in a box: it would make all futures large.
            Box::pin(async { self.recall(self.last_sequence().await?).await }).await?;
        }
    }

    /// For how long nothing is granted, if that is so.
    async fn quarantined(&self) -> Result<Option<Duration>, Error> {
        match self.marked().await?.until {
            0 => Ok(None),
            _ => Box::pin(self.quarantine_left()).await,
        }
    }

    /// Somebody may have ended it meanwhile.
    async fn quarantine_left(&self) -> Result<Option<Duration>, Error> {
        let (_, mut mark) = self.same_mark().await?;
        let now = self.now().await?.earliest;
        let left = Duration::from_nanos(mark.until.saturating_sub(now));
        if left > self.place.quarantine.saturating_add(FRESH) {
            // The clock has been set back since.
            let until = now.saturating_add(u64::try_from(self.place.quarantine.as_nanos()).unwrap_or(u64::MAX));
            self.change_mark(|mark| mark.until = mark.until.min(until)).await?;
            return Ok(Some(self.place.quarantine));
        }
        if left.is_zero() {
            mark.until = 0;
        }
        self.keep_mark(mark);
        Ok((!left.is_zero()).then_some(left))
    }

    /// A token for a new tenure, greater than this one.
    async fn next_token(&self, last: u64) -> Result<u64, Error> {
        let now = match self.time.about(self.clock.now(), ABOUT) {
            Some(now) => now,
            None => Box::pin(self.now_anew()).await?,
        };
        Ok(self.marked().await?.token(last, now.earliest))
    }

    /// Looks, once a grant is stored, whether the namespace is still the one that was looked at before; and whether a tenure with a greater
    /// token has come and gone meanwhile.
    async fn stands(&self, token: u64) -> Result<bool, Error> {
        let (_, mark) = self.same_mark().await?;
        let is_greatest = token > mark.swept;
        if !is_greatest {
            self.keep_mark(mark);
        }
        Ok(is_greatest)
    }

    pub(crate) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    async fn request(&self, subject: String, headers: HeaderMap, payload: Vec<u8>) -> Result<Vec<u8>, Error> {
        if keylatch_lease_remote::Session::is_closed(self) {
            return Err(Error::Unconnected { source: None });
        }
        // The engine has timers of its own, so that it runs everywhere.
        let request = Request::new().headers(headers).payload(payload.into()).timeout(None);
        let asked = pin!(self.client.send_request(subject, request));
        let mut over = self.end.over.clone();
        let over = pin!(over.wait_for(|over| *over));
        match select(asked, over).await {
            Either::Left((Ok(answer), _)) => Ok(answer.payload.to_vec()),
            Either::Left((Err(error), _)) => match error.kind() {
                // Nobody got it.
                async_nats::RequestErrorKind::NoResponders => Err(Error::Unconnected { source: Some(Arc::new(error)) }),
                _ => Err(Error::Closed),
            },
            Either::Right(_) => Err(Error::Closed),
        }
    }

    fn read<T: serde::de::DeserializeOwned>(answer: &[u8]) -> Result<T, Error> {
        let answered: Answered<T> = serde_json::from_slice(answer).map_err(|_| Error::Closed)?;
        match (answered.error, answered.value) {
            (Some(error), _) => Err(refused(error)),
            (None, Some(value)) => Ok(value),
            (None, None) => Err(Error::Closed),
        }
    }

    /// A question about the stream.
    async fn api<T: serde::de::DeserializeOwned>(&self, what: &str, about: &serde_json::Value) -> Result<T, Error> {
        let subject = format!("$JS.API.STREAM.{what}.{}", self.place.stream);
        // In a box, or each step of each operation makes the futures of users larger.
        Self::read(&Box::pin(self.request(subject, HeaderMap::new(), about.to_string().into_bytes())).await?)
    }

    async fn message(&self, which: &serde_json::Value) -> Result<Option<RawMessage>, Error> {
        const NONE: u64 = 10037;
        match self.api("MSG.GET", which).await {
            Ok(Found { message }) => {
                self.seen.sees(message.sequence);
                Ok(Some(message))
            }
            Err(Error::Refused { source }) if source.error_code().0 == NONE => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Behind that one; zero: behind none; `None`: whatever there is.
    /// `frees`: the tenure that is over by it, and how. `begins`: the token of the tenure that it begins, where it is the first of its subject.
    async fn put(
        &self,
        subject: String,
        behind: Option<u64>,
        payload: Vec<u8>,
        frees: Option<(u64, Lost)>,
        begins: Option<u64>,
    ) -> Result<Put, Error> {
        const CHANGED: [u64; 2] = [10071, 10164];
        let mut headers = HeaderMap::new();
        if let Some(sequence) = behind {
            headers.insert(EXPECTED, sequence.to_string().as_str());
        }
        if let Some((token, how)) = frees {
            let how = if how == Lost::TakenOver { 't' } else { 'r' };
            headers.insert(FREED, format!("{how}{token}").as_str());
        }
        if let Some(token) = begins {
            headers.insert(BEGINS, token.to_string().as_str());
        }
        let before = self.seen.get();
        let answer = Box::pin(self.request(subject, headers, payload)).await?;
        match Self::read(&answer) {
            Ok(Acknowledged { seq }) if seq <= before => {
                self.seen.went_back();
                Err(self.is_another())
            }
            Ok(Acknowledged { seq }) => {
                self.seen.sees(seq);
                Ok(Put::Stored(seq))
            }
            Err(Error::Refused { source }) if CHANGED.contains(&source.error_code().0) => Ok(Put::Changed),
            // It is not known how far it got.
            Err(Error::Refused { source }) if source.code() >= 500 && !says_full(&source) => Err(Error::Closed),
            Err(error) => Err(error),
        }
    }

    async fn put_lease(
        &self,
        resource: &Resource,
        behind: u64,
        message: &Message,
        frees: Option<(u64, Lost)>,
    ) -> Result<Put, Error> {
        let begins = (behind == 0 && message.token() > 0).then(|| message.token());
        self.put(self.place.subjects.lease(resource), Some(behind), message.to_bytes(), frees, begins).await
    }

    async fn last(&self, resource: &Resource) -> Result<Last, Error> {
        self.last_of(&self.place.subjects.lease(resource)).await
    }

    async fn last_of(&self, subject: &str) -> Result<Last, Error> {
        match self.message(&serde_json::json!({ "last_by_subj": subject })).await? {
            None => Ok(Last::free(0, 0)),
            Some(raw) => {
                let message = STANDARD.decode(&raw.payload).ok().and_then(|bytes| Message::from_bytes(&bytes));
                let message = message.ok_or(Error::Foreign)?;
                let (sequence, token) = (raw.sequence, message.token());
                Ok(Last { sequence, token, tenure: message.tenure(stored_at(&raw)) })
            }
        }
    }

    /// Reads the server's clock.
    async fn read_time(&self) -> Result<Reading, Error> {
        let subject = self.place.subjects.clock();
        let from = self.clock.now();
        let Put::Stored(put) = self.put(subject.clone(), None, Vec::new(), None, None).await? else {
            return Err(Error::Closed);
        };
        // It may be another's, and later, by now.
        let raw = self.message(&serde_json::json!({ "last_by_subj": subject })).await?;
        let raw = raw.filter(|raw| raw.sequence >= put).ok_or(Error::Closed)?;
        let reading = Reading { sequence: raw.sequence, time: stored_at(&raw), from, to: self.clock.now() };
        self.time.read(reading);
        Ok(reading)
    }

    async fn now(&self) -> Result<Now, Error> {
        match self.time.now(self.clock.now()) {
            Some(now) => Ok(now),
            None => self.now_anew().await,
        }
    }

    async fn now_anew(&self) -> Result<Now, Error> {
        self.read_time().await?.now(self.clock.now(), Duration::MAX).ok_or(Error::Closed)
    }

    /// What time it is, and whether the tenure has ended that the message of this sequence is of.
    async fn is_over(&self, tenure: &Tenure, sequence: u64) -> Result<(bool, Now), Error> {
        let now = self.now().await?;
        match now.is_past(tenure.end, sequence) {
            _ if tenure.end == NEVER => Ok((false, now)),
            Some(is_past) => Ok((is_past, now)),
            None => {
                let now = self.now_anew().await?;
                Ok((now.is_past(tenure.end, sequence) == Some(true), now))
            }
        }
    }

    /// Whether it is known, without asking, that the tenure has ended.
    fn is_surely_over(&self, tenure: &Tenure, sequence: u64) -> bool {
        let now = self.time.now(self.clock.now());
        tenure.end != NEVER && now.and_then(|now| now.is_past(tenure.end, sequence)) == Some(true)
    }

    /// Until when, by the clock of this process, something has surely not ended that lasts so long from `from` on at least.
    fn sure(from: Duration, remaining: Option<Duration>) -> Duration {
        remaining.map_or(Duration::MAX, |left| from.saturating_add(left - left / 100))
    }

    /// The last message is of this tenure; another is put behind it, which counts if the server stores it before the end.
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
        // When it was.
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

    pub(crate) async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<Error>> {
        let Ask { resource, want, term, .. } = ask;
        let mut last = match self.memory.take(resource) {
            Some(Known::Free { sequence, token }) if want != Want::Mine => Last::free(sequence, token),
            Some(Known::Held { sequence, owner, tenure: Some(tenure), .. })
                if owner == ask.owner.id() && want != Want::New && term.is_some() =>
            {
                Last::held(sequence, tenure)
            }
            // Mostly there is none. If there is, it is asked for.
            None if want != Want::Mine => Last::free(0, 0),
            _ => self.last(resource).await.map_err(not_done)?,
        };
        loop {
            let (mut behind, mut frees) = (last.sequence, None);
            if let Some(tenure) = last.tenure {
                let is_mine = tenure.owner == ask.owner.id();
                // It may have been released, and another tenure with a greater token may have begun, in what was forgotten.
                let is_in_doubt = is_mine && tenure.token <= self.marked().await.map_err(not_done)?.doubt;
                match (want, term) {
                    // Those who hold it do not know; and those who wait until it ends may have to wait for less.
                    (Want::Fresh, _) if is_mine => frees = Some((tenure.token, Lost::TakenOver)),
                    (Want::Any, Some(_)) if is_in_doubt => frees = Some((tenure.token, Lost::TakenOver)),
                    (Want::Mine, _) if is_in_doubt => return Ok(Answer::Free),
                    (Want::Any | Want::Mine, Some(term)) if is_mine => {
                        if let Some(remaining) = self.quarantined().await.map_err(not_done)? {
                            return Ok(Answer::Quarantined { remaining });
                        }
                        match self.go_on(resource, behind, &tenure, term, Some(ask.expiry)).await? {
                            On::Goes { tenure, at } => {
                                self.same_mark().await.map_err(Fail::Unknown)?;
                                return Ok(granted(&tenure, true, at, at));
                            }
                            On::Over { last } => behind = last,
                            On::Changed => {
                                last = self.last(resource).await.map_err(not_done)?;
                                continue;
                            }
                        }
                    }
                    _ => {
                        let (is_over, now) = self.is_over(&tenure, behind).await.map_err(not_done)?;
                        if !is_over && is_mine && want != Want::New {
                            return Ok(granted(&tenure, true, now.latest, now.latest));
                        }
                        if !is_over {
                            self.memory.keep(resource, Known::Some);
                            let owner = Owner::from_id(&tenure.owner);
                            return Ok(Answer::Busy { owner, remaining: tenure.remaining(now.earliest) });
                        }
                    }
                }
            }
            let (Want::Any | Want::Fresh | Want::New, Some(term)) = (want, term) else { return Ok(Answer::Free) };
            if let Some(remaining) = self.quarantined().await.map_err(perhaps)? {
                return Ok(Answer::Quarantined { remaining });
            }
            let token = self.next_token(last.token).await.map_err(not_done)?;
            let message = Message::begin(ask.owner.id(), token, term, ask.expiry);
            let from = self.clock.now();
            match self.put_lease(resource, behind, &message, frees).await.map_err(perhaps)? {
                Put::Changed => last = self.last(resource).await.map_err(not_done)?,
                Put::Stored(sequence) => {
                    if !self.stands(token).await.map_err(Fail::Unknown)? {
                        last = Last::free(sequence, token);
                        continue;
                    }
                    // As of the time at which it was stored, whenever that was.
                    let Some(tenure) = message.tenure(0) else { return Ok(Answer::Free) };
                    let known = Known::Held {
                        sequence,
                        owner: tenure.owner.clone(),
                        token: tenure.token,
                        until: Self::sure(from, tenure.remaining(0)),
                        tenure: None,
                    };
                    self.memory.keep(resource, known);
                    return Ok(granted(&tenure, false, 0, 0));
                }
            }
        }
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
            _ => self.last(resource).await.map_err(not_done)?,
        };
        loop {
            let Some(tenure) = last.tenure.filter(is_it) else { return Ok(Left::Nothing) };
            if tenure.end == NEVER {
                return Ok(Left::Forever);
            }
            let Some(term) = term else {
                let (is_over, now) = self.is_over(&tenure, last.sequence).await.map_err(not_done)?;
                return Ok(if is_over { Left::Nothing } else { left(&tenure, now.latest) });
            };
            match self.go_on(resource, last.sequence, &tenure, term, None).await? {
                On::Goes { tenure, at } => return Ok(left(&tenure, at)),
                On::Over { .. } => return Ok(Left::Nothing),
                On::Changed => last = self.last(resource).await.map_err(not_done)?,
            }
        }
    }

    /// Puts the end behind the last message.
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
            let last = self.last(resource).await.map_err(not_done)?;
            let Some(tenure) = last.tenure else { return Ok(Gone::NotHeld) };
            if self.is_over(&tenure, last.sequence).await.map_err(not_done)?.0 {
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

    /// The subjects of all resources that have a message.
    pub(crate) async fn subjects(&self) -> Result<Vec<String>, Error> {
        let mut listing = Listing::default();
        loop {
            let about =
                serde_json::json!({ "subjects_filter": self.place.subjects.leases(), "offset": listing.offset() });
            let Listed { total, state } = self.api("INFO", &about).await?;
            if listing.add(state.subjects.unwrap_or_default().into_keys(), total) {
                return Ok(listing.all());
            }
        }
    }

    /// The stream's.
    async fn last_sequence(&self) -> Result<u64, Error> {
        let Listed { state, .. } = self.api("INFO", &serde_json::json!({})).await?;
        Ok(state.last_seq)
    }

    /// The last messages of these, side by side. What others have written there is nobody's.
    async fn all_of(&self, subjects: &[String]) -> Result<Vec<(Resource, Last)>, Error> {
        let each = subjects.iter().map(|subject| async move {
            let Some(resource) = resource(subject) else { return Ok(None) };
            match self.last_of(subject).await {
                Ok(last) => Ok(Some((resource, last))),
                Err(Error::Foreign) => Ok(None),
                Err(error) => Err(error),
            }
        });
        side_by_side(each.collect(), LANES).await.into_iter().filter_map(Result::transpose).collect()
    }

    pub(crate) async fn owned_by(&self, owner: &Owner, subjects: &[String]) -> Result<Vec<Owned>, Error> {
        let mut owned = Vec::new();
        for (resource, last) in self.all_of(subjects).await? {
            if let Some(tenure) = last.tenure.filter(|tenure| tenure.owner == owner.id()) {
                let expiry = tenure.expiry();
                owned.extend(self.record(&tenure, last.sequence).await?.map(|record| Owned {
                    resource,
                    record,
                    expiry,
                }));
            }
        }
        Ok(owned)
    }

    /// What this releases it adds, whatever comes of the rest.
    pub(crate) async fn release_all(
        &self,
        owner: &Owner,
        subjects: &[String],
        released: &mut Vec<Resource>,
    ) -> Result<(), Fail<Error>> {
        let all = self.all_of(subjects).await.map_err(not_done)?;
        let mine = all.into_iter().filter_map(|(resource, last)| {
            let tenure = last.tenure.filter(|tenure| tenure.owner == owner.id())?;
            Some((resource, Token::new(tenure.token)?))
        });
        let each = mine.map(|(resource, token)| async move {
            let gone = self.release(&resource, owner, Some(token)).await?;
            Ok((gone == Gone::Released).then_some(resource))
        });
        let mut failed = Ok(());
        for one in side_by_side(each.collect(), LANES).await {
            match one {
                Ok(one) => released.extend(one),
                Err(fail) => failed = Err(fail),
            }
        }
        failed
    }

    /// Deletes up to so many messages of what is free or has expired.
    pub(crate) async fn sweep_some(&self, subjects: &[String], limit: usize) -> Result<usize, Error> {
        // The stream's last message is never deleted, so that a server that crashes knows its number.
        let (now, newest) = match self.now_anew().await {
            Ok(now) => (now.earliest, now.sequence),
            // There is no room for the time. Of what is free it makes no difference.
            Err(error) if is_full(&error) => (0, self.last_sequence().await?),
            Err(error) => return Err(error),
        };
        let mut old = Vec::new();
        for (_, last) in self.all_of(subjects).await? {
            let is_over = last.tenure.is_none_or(|tenure| tenure.end != NEVER && now >= tenure.end);
            if is_over && last.sequence > 0 && last.sequence < newest {
                old.push((last.token, last.sequence));
            }
        }
        old.truncate(limit);
        // Before they go: whoever is granted something meanwhile looks there. Without a mark nobody is.
        let (greatest, is_marked) = (old.iter().map(|(token, _)| *token).max(), self.known_mark().is_some());
        if let Some(greatest) = greatest.filter(|_| is_marked) {
            self.change_mark(|mark| mark.swept = mark.swept.max(greatest)).await?;
        }
        let each = old.into_iter().map(|(_, sequence)| async move {
            match self.api("MSG.DELETE", &serde_json::json!({ "seq": sequence, "no_erase": true })).await {
                Ok(Deleted { success }) => Ok(usize::from(success)),
                // Something came behind it meanwhile, and it is gone already.
                Err(Error::Refused { .. }) => Ok(0),
                Err(error) => Err(error),
            }
        });
        side_by_side(each.collect(), LANES).await.into_iter().sum()
    }

    /// The driver's sweep, in parts. One process sweeps, the others see that it has.
    async fn sweep_part(&self, every: Duration) -> Result<bool, Error> {
        let mut part = self.take_unswept();
        if part.is_empty() && self.is_sweep_due(every).await? {
            let all = self.subjects().await?;
            *self.unswept.lock().unwrap_or_else(PoisonError::into_inner) = all;
            part = self.take_unswept();
        }
        if !part.is_empty() {
            self.sweep_some(&part, part.len()).await?;
        }
        Ok(!self.unswept.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
    }

    fn take_unswept(&self) -> Vec<String> {
        let mut unswept = self.unswept.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = unswept.len().saturating_sub(PART);
        unswept.split_off(rest)
    }

    async fn is_sweep_due(&self, every: Duration) -> Result<bool, Error> {
        let subject = self.place.subjects.swept();
        let last = self.message(&serde_json::json!({ "last_by_subj": subject })).await?;
        let now = match self.now().await {
            Err(error) if is_full(&error) => return Ok(true),
            now => now?,
        };
        // Half of the time, as nobody's timers are exact. A clock that was set back says nothing of when it was.
        let half = u64::try_from(every.as_nanos() / 2).unwrap_or(u64::MAX);
        if last.as_ref().is_some_and(|last| now.earliest.abs_diff(stored_at(last)) < half) {
            return Ok(false);
        }
        let behind = last.map_or(0, |last| last.sequence);
        match self.put(subject, Some(behind), Vec::new(), None, None).await {
            Err(error) if is_full(&error) => Ok(true),
            put => Ok(matches!(put?, Put::Stored(_))),
        }
    }
}

/// What they give, in their order, with so many of them under way at a time.
pub(crate) async fn side_by_side<F: Future>(each: Vec<F>, lanes: usize) -> Vec<F::Output> {
    stream::iter(each).buffered(lanes).collect().await
}

/// Nanoseconds since 1970.
fn stored_at(raw: &RawMessage) -> u64 {
    u64::try_from(raw.time.unix_timestamp_nanos()).unwrap_or(0)
}

fn number(token: u64) -> Token {
    Token::new(token).unwrap_or_else(|| unreachable!("it is given to nobody, and not read"))
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
        // If what tells is gone, it is over as well.
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
    fn what_a_server_of_that_version_does_wrong_is_refused() {
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
    fn what_writes_late_or_is_written_by_others_is_refused() {
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
