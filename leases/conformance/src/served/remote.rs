//! The client: an engine that sends requests to the server.

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    future::{Future, poll_fn},
    io::{self, BufRead, BufReader, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use async_io::Timer;
use futures_lite::FutureExt;
use keylatch_lease::{
    Clock, Lost, Owner, Resource, StdClock, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Notice, Owned, Record, Renewal, Want},
};
use keylatch_lease_remote::Watchers;

use super::{
    locked::lock,
    wire::{Fields, gone, name, term, text, un_record},
};

/// The reason that a [`Remote`] got no answer.
#[derive(Debug)]
pub struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server cannot be reached: {}", self.0)
    }
}

impl Error for Unreachable {}

/// The time limit for a connection to be made, and for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The engine of a process that uses a [`Served`](super::Served): it has one connection at a time, and makes a new one
/// when the old one breaks.
///
/// A request that is not answered within two seconds fails. [`connect`](Self::connect) blocks the thread while it
/// connects, and so does the next call after the connection has broken.
pub struct Remote {
    pub(super) namespace: String,
    pub(super) address: SocketAddr,
    pub(super) clock: StdClock,
    pub(super) link: Mutex<Option<Arc<Link>>>,
    pub(super) watchers: Arc<Watchers>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Remote { namespace, address, .. } = self;
        f.debug_struct("Remote").field("namespace", namespace).field("address", address).finish_non_exhaustive()
    }
}

pub(super) struct Link {
    pub(super) stream: TcpStream,
    pub(super) writer: Mutex<TcpStream>,
    /// The requests that wait for an answer. `None` if the connection is broken.
    pub(super) asked: Mutex<Option<Asked>>,
    pub(super) next: AtomicU64,
}

/// The requests by their numbers. A slot is filled with `None` if the connection breaks.
pub(super) type Asked = HashMap<u64, Arc<Slot<Option<String>>>>;

/// A value that will be filled in, and a task that waits for it.
pub(super) struct Slot<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Slot<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Slot(Mutex::new((None, None))))
    }

    pub(super) fn fill(&self, with: T) {
        let waker = {
            let mut slot = lock(&self.0);
            slot.0 = Some(with);
            slot.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    pub(super) async fn get(&self) -> T {
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
    /// Connects to a server. Different namespaces have separate leases.
    ///
    /// # Errors
    /// Fails if the server cannot be reached.
    ///
    /// # Examples
    /// See [`Served`](super::Served).
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

    pub(super) fn link(&self) -> io::Result<Arc<Link>> {
        let (link, is_new) = self.linked()?;
        if is_new {
            self.watchers.tell_all(); // notifications may have been lost before
        }
        Ok(link)
    }

    pub(super) fn linked(&self) -> io::Result<(Arc<Link>, bool)> {
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

    /// Sends a request, and reads the answer.
    pub(super) async fn ask<T>(
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
        read(&mut Fields(answer.split('\t'))).ok_or_else(|| unknown("the answer cannot be read"))
    }
}

impl Link {
    /// Sends a request, and returns the slot of its answer; `None` if the connection is broken.
    pub(super) fn ask(&self, question: &str) -> Option<Arc<Slot<Option<String>>>> {
        let (id, slot) = (self.next.fetch_add(1, SeqCst), Slot::new());
        lock(&self.asked).as_mut()?.insert(id, Arc::clone(&slot));
        let sent = lock(&self.writer).write_all(format!("{id}\t{question}\n").as_bytes());
        if sent.is_err() {
            self.close();
        }
        Some(slot)
    }

    pub(super) fn read(&self, stream: TcpStream, watchers: &Watchers) -> io::Result<()> {
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

    pub(super) fn close(&self) {
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
        // Without a connection the tenure expires.
        let link = lock(&self.link).clone();
        if let Some(link) = link {
            link.ask(&format!("release\t{}\t{}\t{token}", name(resource), text(owner.id())));
        }
    }
}
