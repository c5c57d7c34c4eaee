//! The engine in memory for other processes: a server, and an engine that is its client. For tests and demonstrations, not for production.
//!
//! The server is small: a thread for each connection, no authentication, nothing on disk. All can go wrong between the two that can go wrong
//! between an engine and its client, and as a [`Server`] it can be made to. Killed, it closes its connections and its port wherever it is
//! just then; what it has granted it keeps, as a server with a disk does, or forgets, as one without.
//!
//! ```
//! use std::time::Duration;
//!
//! use keylatch_lease::{AcquireError, Leases, Owner};
//! use keylatch_lease_conformance::served::{Remote, Served};
//!
//! let server = Served::start(Duration::ZERO)?;
//! // In this process and in any other: whoever uses the same namespace shares the leases.
//! let ours = Leases::with_engine(Remote::connect("shop", server.address())?);
//! let theirs = Leases::with_engine(Remote::connect("shop", server.address())?);
//!
//! let ten = Duration::from_secs(10);
//! let grant = ours.acquire_blocking("till", &Owner::named("ann"), ten)?;
//! let refused = theirs.try_acquire_blocking("till", &Owner::named("bob"), ten);
//! assert!(matches!(refused, Err(AcquireError::Busy { owner, .. }) if owner.name() == "ann"));
//! ours.release_blocking(&grant)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On the wire
//! A line is a message, and its fields have tabs between them. A question begins with a number, and so does its answer; a line that begins
//! with `!` says that a tenure has ended, and which.

use std::{
    collections::HashMap,
    convert::Infallible,
    error::Error,
    fmt,
    future::{Future, poll_fn},
    io::{self, BufRead, BufReader, Write},
    mem,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use async_io::Timer;
use futures_lite::{FutureExt, future::block_on};
use keylatch_lease::{
    Clock, Expiry, Lost, Memory, Owner, Resource, StdClock, Term, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Notice, Owned, Record, Renewal, Want},
};
use keylatch_lease_remote::Watchers;

use crate::{Failure, Server};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// ---- The words ---------------------------------------------------------------------------------------------------------

fn text(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n")
}

fn un_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        plain.push(match char {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                _ => '\\',
            },
            char => char,
        });
    }
    plain
}

fn time(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| time.as_nanos().to_string())
}

/// A message that is read, field by field.
struct Fields<'a>(std::str::Split<'a, char>);

impl<'a> Fields<'a> {
    fn word(&mut self) -> &'a str {
        self.0.next().unwrap_or("")
    }

    fn text(&mut self) -> String {
        un_text(self.word())
    }

    fn resource(&mut self) -> Resource {
        let entity = self.text();
        Resource::new(entity, self.text())
    }

    fn owner(&mut self) -> Owner {
        Owner::from_id(&self.text())
    }

    fn number(&mut self) -> u64 {
        self.word().parse().unwrap_or(0)
    }

    fn token(&mut self) -> Option<Token> {
        Token::new(self.number())
    }

    fn time(&mut self) -> Option<Duration> {
        let nanos: u128 = self.word().parse().ok()?;
        Some(Duration::new((nanos / 1_000_000_000) as u64, (nanos % 1_000_000_000) as u32))
    }

    fn term(&mut self) -> Option<Term> {
        let is_there = self.word() == "term";
        let (idle, total) = (self.time(), self.time());
        is_there.then_some(Term { idle, total })
    }
}

fn name(resource: &Resource) -> String {
    format!("{}\t{}", text(resource.entity()), text(resource.key()))
}

fn term(term: &Option<Term>) -> String {
    match term {
        Some(Term { idle, total }) => format!("term\t{}\t{}", time(*idle), time(*total)),
        None => "none\t-\t-".to_owned(),
    }
}

// ---- The server --------------------------------------------------------------------------------------------------------

/// A server in this process, on a free port of 127.0.0.1. What can be done to it is in [`Server`]; dropped, it is killed.
pub struct Served {
    shared: Arc<Shared>,
    address: SocketAddr,
    quarantine: Duration,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("address", &self.address).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Runs,
    Paused,
    Dead,
}

struct Shared {
    mood: Mutex<Mood>,
    changed: Condvar,
    book: Mutex<Book>,
    connections: Mutex<Vec<Arc<Connection>>>,
}

#[derive(Default)]
struct Book {
    namespaces: HashMap<String, Memory<StdClock>>,
    /// Who wants to be told of a resource.
    waiting: HashMap<(String, Resource), Vec<Weak<Connection>>>,
    /// It forgot everything, and grants nothing until then.
    silent_until: Duration,
}

struct Connection {
    stream: TcpStream,
    writer: Mutex<TcpStream>,
    is_closed: AtomicBool,
    namespace: OnceLock<String>,
}

impl Connection {
    fn close(&self) {
        self.is_closed.store(true, SeqCst);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn say(&self, line: &str) {
        if lock(&self.writer).write_all(format!("{line}\n").as_bytes()).is_err() {
            self.close();
        }
    }
}

impl Served {
    /// Starts one. After it was told to [forget](Server::forget) it grants nothing for the time of its `quarantine`.
    ///
    /// # Errors
    /// It gets no port, or no thread.
    ///
    /// # Examples
    /// See the [module's page](self).
    pub fn start(quarantine: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            mood: Mutex::new(Mood::Runs),
            changed: Condvar::new(),
            book: Mutex::default(),
            connections: Mutex::default(),
        });
        let served = Served { shared, address, quarantine };
        served.listen(listener)?;
        Ok(served)
    }

    /// Where [`Remote::connect`] finds it; a restart does not change it.
    ///
    /// # Examples
    /// See the [module's page](self).
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it has whose clients use this namespace.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease_conformance::served::Served;
    ///
    /// let server = Served::start(Duration::ZERO)?;
    /// assert_eq!(server.connections("shop"), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn connections(&self, namespace: &str) -> usize {
        let connections = lock(&self.shared.connections);
        let is_it = |connection: &&Arc<Connection>| {
            !connection.is_closed.load(SeqCst) && connection.namespace.get().is_some_and(|of| of == namespace)
        };
        connections.iter().filter(is_it).count()
    }

    fn listen(&self, listener: TcpListener) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new().spawn(move || shared.accept(&listener))?;
        Ok(())
    }

    fn end(&self) {
        if mem::replace(&mut *lock(&self.shared.mood), Mood::Dead) == Mood::Dead {
            return;
        }
        self.shared.changed.notify_all();
        lock(&self.shared.connections).drain(..).for_each(|connection| connection.close());
        let _ = TcpStream::connect(self.address); // who accepts finds out
    }

    fn mood(&self, mood: Mood) {
        *lock(&self.shared.mood) = mood;
        self.shared.changed.notify_all();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

impl Server for Served {
    fn kill(&self) -> Result<(), Failure> {
        self.end();
        Ok(())
    }

    fn restart(&self) -> Result<(), Failure> {
        let mut tries = 0;
        let listener = loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(error) if tries == 200 => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
            tries += 1;
        };
        self.mood(Mood::Runs);
        self.listen(listener)?;
        Ok(())
    }

    fn forget(&self) -> Result<(), Failure> {
        self.kill()?;
        let silent_until = StdClock::new().now() + self.quarantine;
        *lock(&self.shared.book) = Book { silent_until, ..Book::default() };
        self.restart()
    }

    fn pause(&self) -> Result<(), Failure> {
        self.mood(Mood::Paused);
        Ok(())
    }

    fn resume(&self) -> Result<(), Failure> {
        self.mood(Mood::Runs);
        Ok(())
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if *lock(&self.mood) == Mood::Dead {
                return;
            }
            let Ok(stream) = stream else { continue };
            let Ok(writer) = stream.try_clone() else { continue };
            let _ = stream.set_nodelay(true);
            let connection = Connection {
                stream,
                writer: Mutex::new(writer),
                is_closed: AtomicBool::new(false),
                namespace: OnceLock::new(),
            };
            let connection = Arc::new(connection);
            {
                let mut connections = lock(&self.connections);
                connections.retain(|connection| !connection.is_closed.load(SeqCst));
                connections.push(Arc::clone(&connection));
            }
            let shared = Arc::clone(&self);
            thread::spawn(move || {
                let _ = shared.serve(&connection);
                connection.close();
            });
        }
    }

    fn all_of(&self, namespace: &str) -> Vec<Weak<Connection>> {
        let connections = lock(&self.connections);
        let of_it = |connection: &&Arc<Connection>| connection.namespace.get().is_some_and(|of| of == namespace);
        connections.iter().filter(of_it).map(Arc::downgrade).collect()
    }

    fn serve(&self, connection: &Arc<Connection>) -> io::Result<()> {
        let mut lines = BufReader::new(connection.stream.try_clone()?).lines();
        let Some(hello) = lines.next() else { return Ok(()) };
        let namespace = connection.namespace.get_or_init(|| hello.unwrap_or_default()).clone();
        for line in lines {
            let line = line?;
            {
                let mut mood = lock(&self.mood);
                while *mood == Mood::Paused {
                    mood = self.changed.wait(mood).unwrap_or_else(PoisonError::into_inner);
                }
            }
            if connection.is_closed.load(SeqCst) {
                return Ok(());
            }
            let (id, question) = line.split_once('\t').unwrap_or((&line, ""));
            let mut freed = Vec::new();
            let (answer, told) = {
                let mut book = lock(&self.book);
                let answer = book.answer(&namespace, question, connection, &mut freed);
                let told: Vec<_> = freed
                    .into_iter()
                    .map(|Freed { resource, token, how, by_holder }| {
                        let waiting = book.waiting.remove(&(namespace.clone(), resource.clone()));
                        let told = if by_holder { waiting.unwrap_or_default() } else { self.all_of(&namespace) };
                        (format!("{}\t{token}\t{how}", name(&resource)), told)
                    })
                    .collect();
                (answer, told)
            };
            for (freed, connections) in told {
                for connection in connections.iter().filter_map(Weak::upgrade) {
                    connection.say(&format!("!\t{freed}"));
                }
            }
            connection.say(&format!("{id}\t{answer}"));
        }
        Ok(())
    }
}

/// A tenure has ended.
struct Freed {
    resource: Resource,
    token: Token,
    /// `released`, or `taken over` by another of the same owner.
    how: &'static str,
    /// Its holder has done it, and those who wait are told. Otherwise all are: one of them may hold it.
    by_holder: bool,
}

impl Book {
    /// One action of the engine.
    fn answer(
        &mut self,
        namespace: &str,
        question: &str,
        connection: &Arc<Connection>,
        freed: &mut Vec<Freed>,
    ) -> String {
        let clock = StdClock::new();
        let memory = self.namespaces.entry(namespace.to_owned()).or_insert_with(|| Memory::new(StdClock::new()));
        let mut fields = Fields(question.split('\t'));
        let at = clock.now();
        match fields.word() {
            "acquire" => {
                let (resource, owner) = (fields.resource(), fields.owner());
                let want = match fields.word() {
                    "any" => Want::Any,
                    "fresh" => Want::Fresh,
                    "mine" => Want::Mine,
                    _ => Want::New,
                };
                let (term, waiting) = (fields.term(), fields.word() == "waiting");
                if at < self.silent_until {
                    return format!("quarantined\t{}", time(Some(self.silent_until - at)));
                }
                let expiry = &Expiry::Never; // the term says it all
                let before = block_on(memory.look(&resource, at)).unwrap_or_else(never);
                let ask = Ask { resource: &resource, owner: &owner, want, term, expiry, waiting, at };
                match block_on(memory.acquire(ask)).unwrap_or_else(never) {
                    Answer::Granted { token, resumed, held_for, remaining } => {
                        // It may end earlier than the one before, and those who wait do not know.
                        let before = before.filter(|before| before.token != token);
                        freed.extend(before.map(|Record { token, .. }| Freed {
                            resource,
                            token,
                            how: "taken over",
                            by_holder: false,
                        }));
                        let (held, left) = (time(Some(held_for)), time(remaining));
                        format!("granted\t{token}\t{}\t{held}\t{left}", if resumed { "resumed" } else { "new" })
                    }
                    Answer::Busy { owner, remaining } => {
                        if waiting {
                            let who = self.waiting.entry((namespace.to_owned(), resource)).or_default();
                            who.retain(|other| other.upgrade().is_some_and(|other| !Arc::ptr_eq(&other, connection)));
                            who.push(Arc::downgrade(connection));
                        }
                        format!("busy\t{}\t{}", text(owner.id()), time(remaining))
                    }
                    Answer::Free => "free".to_owned(),
                    Answer::Quarantined { .. } | Answer::TooShort { .. } => "unthinkable".to_owned(),
                }
            }
            "renew" => {
                let mut said = Vec::new();
                for _ in 0..fields.number() {
                    let (resource, owner) = (fields.resource(), fields.owner());
                    let (token, term) = (fields.token(), fields.term());
                    let Some(token) = token else { return "unthinkable".to_owned() };
                    let mut batch = [Renewal { resource: &resource, owner: &owner, token, term, left: Left::Nothing }];
                    block_on(memory.renew(&mut batch, at)).unwrap_or_else(never);
                    said.push(match batch[0].left {
                        Left::Nothing => "nothing".to_owned(),
                        Left::For(left) => time(Some(left)),
                        Left::Forever => "-".to_owned(),
                    });
                }
                said.join("\t")
            }
            asked @ ("release" | "release token") => {
                let (resource, owner, token) = (fields.resource(), fields.owner(), fields.token());
                let before = block_on(memory.look(&resource, at)).unwrap_or_else(never);
                let gone = match token.filter(|_| asked == "release token") {
                    Some(token) => block_on(memory.release_token(&resource, token, at)),
                    None => block_on(memory.release(&resource, &owner, token, at)),
                };
                match gone.unwrap_or_else(never) {
                    Gone::Released => {
                        let by_holder = asked == "release" && token.is_some();
                        freed.extend(before.map(|Record { token, .. }| Freed {
                            resource,
                            token,
                            how: "released",
                            by_holder,
                        }));
                        "released".to_owned()
                    }
                    Gone::NotHeld => "not held".to_owned(),
                    Gone::NotOwner(owner) => format!("not owner\t{}", text(owner.id())),
                }
            }
            "release all" => {
                let owner = fields.owner();
                let before = block_on(memory.owned_by(&owner, at)).unwrap_or_else(never);
                let released = block_on(memory.release_all(&owner, at)).unwrap_or_else(never);
                let said: Vec<_> = released.iter().map(name).collect();
                freed.extend(before.into_iter().map(|Owned { resource, record, .. }| Freed {
                    resource,
                    token: record.token,
                    how: "released",
                    by_holder: false,
                }));
                format!("{}\t{}", said.len(), said.join("\t"))
            }
            "look" => match block_on(memory.look(&fields.resource(), at)).unwrap_or_else(never) {
                Some(found) => format!("found\t{}", record(&found)),
                None => "free".to_owned(),
            },
            "owned" => {
                let owned = block_on(memory.owned_by(&fields.owner(), at)).unwrap_or_else(never);
                let said: Vec<_> =
                    owned.iter().map(|owned| format!("{}\t{}", name(&owned.resource), record(&owned.record))).collect();
                format!("{}\t{}", said.len(), said.join("\t"))
            }
            "sweep" => {
                let limit = usize::try_from(fields.number()).unwrap_or(0);
                block_on(Engine::sweep(&*memory, limit, at)).unwrap_or_else(never).to_string()
            }
            _ => "unthinkable".to_owned(),
        }
    }
}

/// What never happens in memory.
fn never<T>(fail: Fail<Infallible>) -> T {
    let (Fail::NotDone(never) | Fail::Unknown(never)) = fail;
    match never {}
}

fn record(record: &Record) -> String {
    let Record { owner, token, held_for, remaining } = record;
    format!("{}\t{token}\t{}\t{}", text(owner.id()), time(Some(*held_for)), time(*remaining))
}

fn un_record(fields: &mut Fields<'_>) -> Option<Record> {
    let (owner, token) = (fields.owner(), fields.token()?);
    Some(Record { owner, token, held_for: fields.time()?, remaining: fields.time() })
}

fn gone(fields: &mut Fields<'_>) -> Option<Gone> {
    Some(match fields.word() {
        "released" => Gone::Released,
        "not held" => Gone::NotHeld,
        "not owner" => Gone::NotOwner(fields.owner()),
        _ => return None,
    })
}

// ---- The client --------------------------------------------------------------------------------------------------------

/// Why a [`Remote`] has no answer.
#[derive(Debug)]
pub struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server cannot be reached: {}", self.0)
    }
}

impl Error for Unreachable {}

/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The engine of a process that uses a [`Served`]: one connection at a time, and a new one when that breaks.
///
/// A question that has no answer after two seconds fails. Connecting blocks the thread, here and in whatever call comes after a breakdown.
pub struct Remote {
    namespace: String,
    address: SocketAddr,
    clock: StdClock,
    link: Mutex<Option<Arc<Link>>>,
    watchers: Arc<Watchers>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Remote { namespace, address, .. } = self;
        f.debug_struct("Remote").field("namespace", namespace).field("address", address).finish_non_exhaustive()
    }
}

struct Link {
    stream: TcpStream,
    writer: Mutex<TcpStream>,
    /// Who waits for an answer. `None`: it is broken.
    asked: Mutex<Option<Asked>>,
    next: AtomicU64,
}

/// Who waits for an answer; there is none if the connection breaks.
type Asked = HashMap<u64, Arc<Slot<Option<String>>>>;

/// Something that will be there.
struct Slot<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Slot<T> {
    fn new() -> Arc<Self> {
        Arc::new(Slot(Mutex::new((None, None))))
    }

    fn fill(&self, with: T) {
        let waker = {
            let mut slot = lock(&self.0);
            slot.0 = Some(with);
            slot.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    async fn get(&self) -> T {
        poll_fn(|cx| {
            let mut slot = lock(&self.0);
            match slot.0.take() {
                Some(there) => Poll::Ready(there),
                None => {
                    slot.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Remote {
    /// Connects to a server. Who uses another namespace has other leases.
    ///
    /// # Errors
    /// There is no server.
    ///
    /// # Examples
    /// See the [module's page](self).
    pub fn connect(namespace: &str, address: SocketAddr) -> io::Result<Self> {
        let remote = Remote {
            namespace: namespace.to_owned(),
            address,
            clock: StdClock::new(),
            link: Mutex::default(),
            watchers: Arc::default(),
        };
        remote.link()?;
        Ok(remote)
    }

    fn link(&self) -> io::Result<Arc<Link>> {
        let (link, is_new) = self.linked()?;
        if is_new {
            self.watchers.tell_all(); // nobody heard what was told meanwhile
        }
        Ok(link)
    }

    fn linked(&self) -> io::Result<(Arc<Link>, bool)> {
        let mut link = lock(&self.link);
        if let Some(link) = link.as_ref().filter(|link| lock(&link.asked).is_some()) {
            return Ok((Arc::clone(link), false));
        }
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.write_all(format!("{}\n", self.namespace).as_bytes())?;
        let new = Arc::new(Link {
            writer: Mutex::new(stream.try_clone()?),
            stream: stream.try_clone()?,
            asked: Mutex::new(Some(HashMap::new())),
            next: AtomicU64::new(0),
        });
        let (reading, watchers) = (Arc::clone(&new), Arc::clone(&self.watchers));
        thread::Builder::new().spawn(move || {
            let _ = reading.read(stream, &watchers);
            reading.close();
            watchers.tell_all();
        })?;
        *link = Some(Arc::clone(&new));
        Ok((new, true))
    }

    /// Asks, and reads the answer.
    async fn ask<T>(
        &self,
        question: String,
        read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
    ) -> Result<T, Fail<Unreachable>> {
        let link = self.link().map_err(|error| Fail::NotDone(Unreachable(error.to_string())))?;
        let unknown = |why: &str| Fail::Unknown(Unreachable(why.to_owned()));
        let answer = link.ask(&question).ok_or_else(|| unknown("the connection broke"))?;
        let late = async {
            Timer::after(PATIENCE).await;
            link.close();
            None
        };
        let answer = answer.get().or(late).await.ok_or_else(|| unknown("the answer was lost"))?;
        read(&mut Fields(answer.split('\t'))).ok_or_else(|| unknown("the answer makes no sense"))
    }
}

impl Link {
    /// A place for the answer; `None` if the connection is broken.
    fn ask(&self, question: &str) -> Option<Arc<Slot<Option<String>>>> {
        let (id, slot) = (self.next.fetch_add(1, SeqCst), Slot::new());
        lock(&self.asked).as_mut()?.insert(id, Arc::clone(&slot));
        let sent = lock(&self.writer).write_all(format!("{id}\t{question}\n").as_bytes());
        if sent.is_err() {
            self.close();
        }
        Some(slot)
    }

    fn read(&self, stream: TcpStream, watchers: &Watchers) -> io::Result<()> {
        for line in BufReader::new(stream).lines() {
            let line = line?;
            let (id, rest) = line.split_once('\t').unwrap_or((&line, ""));
            if id == "!" {
                let fields = &mut Fields(rest.split('\t'));
                let (resource, token) = (fields.resource(), fields.token());
                let how = if fields.word() == "released" { Lost::Released } else { Lost::TakenOver };
                token.into_iter().for_each(|token| watchers.tell_end(&resource, token, how));
            } else if let Ok(id) = id.parse() {
                let slot = lock(&self.asked).as_mut().and_then(|asked| asked.remove(&id));
                slot.into_iter().for_each(|slot| slot.fill(Some(rest.to_owned())));
            }
        }
        Ok(())
    }

    fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        let asked = lock(&self.asked).take();
        asked.into_iter().flatten().for_each(|(_, slot)| slot.fill(None));
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        lock(&self.link).take().into_iter().for_each(|link| link.close());
    }
}

impl Engine for Remote {
    type Error = Unreachable;

    fn now(&self) -> Duration {
        self.clock.now()
    }

    async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<Unreachable>> {
        let want = match ask.want {
            Want::Any => "any",
            Want::Fresh => "fresh",
            Want::Mine => "mine",
            Want::New => "new",
        };
        let (resource, owner, term) = (name(ask.resource), text(ask.owner.id()), term(&ask.term));
        let waiting = if ask.waiting { "waiting" } else { "passing" };
        let read = |fields: &mut Fields<'_>| {
            Some(match fields.word() {
                "granted" => Answer::Granted {
                    token: fields.token()?,
                    resumed: fields.word() == "resumed",
                    held_for: fields.time()?,
                    remaining: fields.time(),
                },
                "busy" => Answer::Busy { owner: fields.owner(), remaining: fields.time() },
                "free" => Answer::Free,
                "quarantined" => Answer::Quarantined { remaining: fields.time()? },
                _ => return None,
            })
        };
        self.ask(format!("acquire\t{resource}\t{owner}\t{want}\t{term}\t{waiting}"), read).await
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Result<(), Fail<Unreachable>> {
        let all: Vec<_> = batch
            .iter()
            .map(|Renewal { resource, owner, token, term: of, .. }| {
                format!("{}\t{}\t{token}\t{}", name(resource), text(owner.id()), term(of))
            })
            .collect();
        let read = |fields: &mut Fields<'_>| {
            for renewal in batch {
                renewal.left = match fields.word() {
                    "nothing" => Left::Nothing,
                    "-" => Left::Forever,
                    nanos => Left::For(Fields(nanos.split('\t')).time()?),
                };
            }
            Some(())
        };
        self.ask(format!("renew\t{}\t{}", all.len(), all.join("\t")), read).await
    }

    async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        _: Duration,
    ) -> Result<Gone, Fail<Unreachable>> {
        let token = token.map_or(0, Token::get);
        self.ask(format!("release\t{}\t{}\t{token}", name(resource), text(owner.id())), gone).await
    }

    async fn release_token(&self, resource: &Resource, token: Token, _: Duration) -> Result<Gone, Fail<Unreachable>> {
        self.ask(format!("release token\t{}\t\t{token}", name(resource)), gone).await
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Result<Vec<Resource>, Fail<Unreachable>> {
        let read = |fields: &mut Fields<'_>| Some((0..fields.number()).map(|_| fields.resource()).collect());
        self.ask(format!("release all\t{}", text(owner.id())), read).await
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Result<Option<Record>, Fail<Unreachable>> {
        let read = |fields: &mut Fields<'_>| match fields.word() {
            "found" => Some(Some(un_record(fields)?)),
            "free" => Some(None),
            _ => None,
        };
        self.ask(format!("look\t{}", name(resource)), read).await
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Result<Vec<Owned>, Fail<Unreachable>> {
        let read = |fields: &mut Fields<'_>| {
            let one = |fields: &mut Fields<'_>| {
                Some(Owned { resource: fields.resource(), record: un_record(fields)?, expiry: None })
            };
            (0..fields.number()).map(|_| one(fields)).collect()
        };
        self.ask(format!("owned\t{}", text(owner.id())), read).await
    }

    async fn sweep(&self, limit: usize, _: Duration) -> Result<usize, Fail<Unreachable>> {
        self.ask(format!("sweep\t{limit}"), |fields| fields.word().parse().ok()).await
    }

    fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
        self.watchers.watch(resource)
    }

    fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) -> bool {
        self.watchers.subscribe(resource, notice);
        true
    }

    fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        self.watchers.unsubscribe(resource, notice);
    }

    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        // If there is no connection it expires.
        let link = lock(&self.link).clone();
        if let Some(link) = link {
            link.ask(&format!("release\t{}\t{}\t{token}", name(resource), text(owner.id())));
        }
    }
}
