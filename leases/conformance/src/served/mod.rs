//! The engine in memory for other processes: a server, and an engine that is its client. It is for tests and
//! demonstrations, not for production.
//!
//! The server is small: a thread for each connection, no authentication, nothing on disk. Anything that can go wrong
//! between an engine and its server can go wrong between these two, and the methods of [`Server`] cause such faults. A
//! killed server closes its connections and its port at any point of its work. It keeps what it has granted, like a
//! server with a disk, or forgets it, like a server without one.
//!
//! ```
//! use std::time::Duration;
//!
//! use keylatch_lease::{AcquireError, Leases, Owner};
//! use keylatch_lease_conformance::served::{Remote, Served};
//!
//! let server = Served::start(Duration::ZERO)?;
//! // In this process and in any other: all users of a namespace share its leases.
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
//! A client first sends a line with its namespace. After that, each message is a line whose fields are separated by
//! tabs. A request begins with a number, and its answer with the same number. A line that begins with `!` reports the
//! end of a tenure.

mod locked;
mod remote;
mod wire;

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    io::{self, BufRead, BufReader, Write},
    mem,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use futures_lite::future::block_on;
use keylatch_lease::{
    Clock, Expiry, Memory, Resource, StdClock, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Owned, Record, Renewal, Want},
};

use self::locked::lock;
pub use self::remote::{Remote, Unreachable};
use self::wire::{Fields, name, record, text, time};
use crate::{Failure, Server};

// ---- The server -----------------------------------------------------------------------------------------------------

/// A server in this process, on a free port of 127.0.0.1. Its [`Server`] methods inflict faults on it; when it is
/// dropped, it is killed.
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
    /// The connections whose clients wait for a resource.
    waiting: HashMap<(String, Resource), Vec<Weak<Connection>>>,
    /// The end of the quarantine that follows when the server has forgotten everything.
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
    /// Starts a server. When the server has been made to [forget](Server::forget), it grants nothing for as long as
    /// `quarantine`.
    ///
    /// # Errors
    /// Fails if no port is free, or if no thread can be started.
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

    /// Returns the address for [`Remote::connect`]; a restart does not change it.
    ///
    /// # Examples
    /// See the [module's page](self).
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of the server's connections from clients of this namespace.
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
        let _ = TcpStream::connect(self.address); // wakes the accepting thread, which then ends
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

/// A tenure that has ended.
struct Freed {
    resource: Resource,
    token: Token,
    /// `released`, or `taken over` by another tenure of the same owner.
    how: &'static str,
    /// Whether the holder itself has ended it. If so, only waiters are notified. Otherwise every connection of the
    /// namespace is, because one of them may be the holder's.
    by_holder: bool,
}

impl Book {
    /// Answers a request of this connection. Tenures that the request ends are added to `freed`.
    fn answer(
        &mut self,
        namespace: &str,
        question: &str,
        connection: &Arc<Connection>,
        freed: &mut Vec<Freed>,
    ) -> String {
        let Book { namespaces, waiting, silent_until } = self;
        let memory = namespaces.entry(namespace.to_owned()).or_insert_with(|| Memory::new(StdClock::new()));
        let mut fields = Fields(question.split('\t'));
        let what = fields.word();
        let mut question = Question { memory, fields, at: StdClock::new().now(), freed };
        match what {
            "acquire" => question.acquire(*silent_until, |resource| {
                let who = waiting.entry((namespace.to_owned(), resource)).or_default();
                who.retain(|other| other.upgrade().is_some_and(|other| !Arc::ptr_eq(&other, connection)));
                who.push(Arc::downgrade(connection));
            }),
            "renew" => question.renew(),
            "release" => question.release(false),
            "release token" => question.release(true),
            "release all" => question.release_all(),
            "look" => question.look(),
            "owned" => question.owned(),
            "sweep" => question.sweep(),
            _ => UNTHINKABLE.to_owned(),
        }
    }
}

/// The answer to a request that no client sends.
const UNTHINKABLE: &str = "unthinkable";

/// A request whose first word has been read: one action of the engine in memory.
struct Question<'a> {
    memory: &'a Memory<StdClock>,
    fields: Fields<'a>,
    at: Duration,
    /// The tenures that end with the request.
    freed: &'a mut Vec<Freed>,
}

impl Question<'_> {
    fn acquire(&mut self, silent_until: Duration, waits: impl FnOnce(Resource)) -> String {
        let (resource, owner) = (self.fields.resource(), self.fields.owner());
        let want = match self.fields.word() {
            "any" => Want::Any,
            "fresh" => Want::Fresh,
            "mine" => Want::Mine,
            _ => Want::New,
        };
        let (term, waiting, at) = (self.fields.term(), self.fields.word() == "waiting", self.at);
        if at < silent_until {
            return format!("quarantined\t{}", time(Some(silent_until - at)));
        }
        let expiry = &Expiry::Never; // only the term matters
        let before = block_on(self.memory.look(&resource, at)).unwrap_or_else(never);
        let ask = Ask { resource: &resource, owner: &owner, want, term, expiry, waiting, at };
        match block_on(self.memory.acquire(ask)).unwrap_or_else(never) {
            Answer::Granted { token, resumed, held_for, remaining } => {
                // The new tenure may end earlier than the one before, and the waiters do not know that.
                if let Some(before) = before.filter(|before| before.token != token) {
                    self.frees(resource, before.token, "taken over", false);
                }
                let (held, left) = (time(Some(held_for)), time(remaining));
                format!("granted\t{token}\t{}\t{held}\t{left}", if resumed { "resumed" } else { "new" })
            }
            Answer::Busy { owner, remaining } => {
                if waiting {
                    waits(resource);
                }
                format!("busy\t{}\t{}", text(owner.id()), time(remaining))
            }
            Answer::Free => "free".to_owned(),
            Answer::Quarantined { .. } | Answer::TooShort { .. } => UNTHINKABLE.to_owned(),
        }
    }

    fn frees(&mut self, resource: Resource, token: Token, how: &'static str, by_holder: bool) {
        self.freed.push(Freed { resource, token, how, by_holder });
    }

    fn renew(&mut self) -> String {
        let mut said = Vec::new();
        for _ in 0..self.fields.number() {
            let (resource, owner) = (self.fields.resource(), self.fields.owner());
            let (token, term) = (self.fields.token(), self.fields.term());
            let Some(token) = token else { return UNTHINKABLE.to_owned() };
            let mut batch = [Renewal { resource: &resource, owner: &owner, token, term, left: Left::Nothing }];
            block_on(self.memory.renew(&mut batch, self.at)).unwrap_or_else(never);
            said.push(match batch[0].left {
                Left::Nothing => "nothing".to_owned(),
                Left::For(left) => time(Some(left)),
                Left::Forever => "-".to_owned(),
            });
        }
        said.join("\t")
    }

    fn release(&mut self, by_token_alone: bool) -> String {
        let (resource, owner, token) = (self.fields.resource(), self.fields.owner(), self.fields.token());
        let before = block_on(self.memory.look(&resource, self.at)).unwrap_or_else(never);
        let gone = match token.filter(|_| by_token_alone) {
            Some(token) => block_on(self.memory.release_token(&resource, token, self.at)),
            None => block_on(self.memory.release(&resource, &owner, token, self.at)),
        };
        match gone.unwrap_or_else(never) {
            Gone::Released => {
                if let Some(Record { token: ended, .. }) = before {
                    self.frees(resource, ended, "released", !by_token_alone && token.is_some());
                }
                "released".to_owned()
            }
            Gone::NotHeld => "not held".to_owned(),
            Gone::NotOwner(owner) => format!("not owner\t{}", text(owner.id())),
        }
    }

    fn release_all(&mut self) -> String {
        let owner = self.fields.owner();
        let before = block_on(self.memory.owned_by(&owner, self.at)).unwrap_or_else(never);
        let released = block_on(self.memory.release_all(&owner, self.at)).unwrap_or_else(never);
        for Owned { resource, record, .. } in before {
            self.frees(resource, record.token, "released", false);
        }
        counted(&released.iter().map(name).collect::<Vec<_>>())
    }

    fn look(&mut self) -> String {
        match block_on(self.memory.look(&self.fields.resource(), self.at)).unwrap_or_else(never) {
            Some(found) => format!("found\t{}", record(&found)),
            None => "free".to_owned(),
        }
    }

    fn owned(&mut self) -> String {
        let owned = block_on(self.memory.owned_by(&self.fields.owner(), self.at)).unwrap_or_else(never);
        let said = owned.iter().map(|owned| format!("{}\t{}", name(&owned.resource), record(&owned.record)));
        counted(&said.collect::<Vec<_>>())
    }

    fn sweep(&mut self) -> String {
        let limit = usize::try_from(self.fields.number()).unwrap_or(0);
        block_on(Engine::sweep(self.memory, limit, self.at)).unwrap_or_else(never).to_string()
    }
}

/// Writes a list, preceded by its length.
fn counted(all: &[String]) -> String {
    format!("{}\t{}", all.len(), all.join("\t"))
}

/// Handles an error of the engine in memory, which never occurs.
fn never<T>(fail: Fail<Infallible>) -> T {
    let (Fail::NotDone(never) | Fail::Unknown(never)) = fail;
    match never {}
}

// ---- The client -----------------------------------------------------------------------------------------------------
