//! A proxy that can be told to misbehave.
//!
//! Each connection has two threads, one for each direction, so that the proxy depends on no runtime. A thread checks
//! its instructions before it reads, and again before it forwards what it has read. A connection whose bytes were
//! swallowed is useless afterwards: it is *spoilt*. When the proxy forwards again, it closes such a connection, like a
//! router that has forgotten it.

use std::{
    fmt, io,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// A TCP proxy to an engine's server that can be told to misbehave.
///
/// It listens on a free port of this machine until it is dropped, which closes all connections.
///
/// # Examples
/// ```
/// use std::{
///     io::{Read, Write},
///     net::{TcpListener, TcpStream},
/// };
///
/// use keylatch_lease_conformance::Proxy;
///
/// let server = TcpListener::bind("127.0.0.1:0").unwrap();
/// let proxy = Proxy::new(server.local_addr().unwrap()).unwrap();
/// let mut client = TcpStream::connect(proxy.address()).unwrap();
/// let (mut there, _) = server.accept().unwrap();
///
/// client.write_all(b"ping").unwrap();
/// let mut four = [0; 4];
/// there.read_exact(&mut four).unwrap();
/// assert_eq!(&four, b"ping");
///
/// proxy.cut();
/// assert!(matches!(client.read(&mut four), Ok(0) | Err(_)));
/// ```
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: Mutex<SocketAddr>,
    way: Mutex<Way>,
    changed: Condvar,
    links: Mutex<Vec<Arc<Link>>>,
    is_over: AtomicBool,
    swallowed: AtomicU64,
}

/// The treatment of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    Late(Duration),
    /// Bytes are kept until they may be forwarded.
    Held,
    /// Bytes are swallowed.
    Black,
    /// Bytes from the server are swallowed.
    Deaf,
    /// Connections are closed.
    Cut,
}

/// The proxy's two connections for one client: one with the client, one with the server.
struct Link {
    client: TcpStream,
    server: Mutex<Option<TcpStream>>,
    is_spoilt: AtomicBool,
    is_closed: AtomicBool,
}

impl Link {
    fn close(&self) {
        self.is_closed.store(true, SeqCst);
        let server = lock(&self.server);
        for stream in [Some(&self.client), server.as_ref()].into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The interval at which a reading thread checks for new instructions.
const LOOK: Duration = Duration::from_millis(10);

impl Proxy {
    /// Returns a proxy to this address, which forwards everything.
    ///
    /// # Errors
    /// Fails if no port is free, or if no thread can be started.
    ///
    /// # Examples
    /// See [`Proxy`].
    pub fn new(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            way: Mutex::new(Way::Open),
            changed: Condvar::new(),
            links: Mutex::default(),
            is_over: AtomicBool::new(false),
            swallowed: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        thread::Builder::new().name("proxy".into()).spawn(move || accepting.accept(&listener))?;
        Ok(Proxy { address, shared })
    }

    /// Returns the address at which the proxy listens.
    ///
    /// # Examples
    /// See [`Proxy`].
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards everything from now on. Bytes that were [held](Self::hold) arrive now; connections with swallowed bytes
    /// are closed.
    ///
    /// # Examples
    /// See [`Proxy`].
    pub fn pass(&self) {
        self.go(Way::Open);
    }

    /// Forwards everything, but delays each piece by this time. Connections with swallowed bytes are closed.
    ///
    /// # Examples
    /// See [`Proxy`].
    pub fn delay(&self, by: Duration) {
        self.go(Way::Late(by));
    }

    /// Holds everything back until another of these methods is called: connections stay open, and bytes arrive late,
    /// after [`pass`](Self::pass).
    ///
    /// # Examples
    /// See [`Proxy`].
    pub fn hold(&self) {
        self.go(Way::Held);
    }

    /// Swallows everything: connections stay open, new ones are accepted, and no byte ever arrives.
    ///
    /// # Examples
    /// See [`Proxy`].
    pub fn blackhole(&self) {
        self.go(Way::Black);
    }

    /// Forwards requests and swallows the answers.
    ///
    /// # Examples
    /// See [`Proxy`].
    pub fn swallow_answers(&self) {
        self.go(Way::Deaf);
    }

    /// Closes all connections, and from now on every new one immediately.
    ///
    /// # Examples
    /// See [`Proxy`].
    pub fn cut(&self) {
        self.go(Way::Cut);
    }

    /// Closes all connections, and leads new ones to another server, like an address that moves to a promoted replica.
    ///
    /// # Examples
    /// ```
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// use keylatch_lease_conformance::Proxy;
    ///
    /// let [old, new] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    /// let proxy = Proxy::new(old.local_addr().unwrap()).unwrap();
    /// proxy.lead_to(new.local_addr().unwrap());
    /// let _client = TcpStream::connect(proxy.address()).unwrap();
    /// new.accept().unwrap();
    /// ```
    pub fn lead_to(&self, upstream: SocketAddr) {
        // The address is set first. A new connection joins the links before it looks up the address, so it is closed
        // here, or leads to the new server.
        *lock(&self.shared.upstream) = upstream;
        for link in lock(&self.shared.links).drain(..) {
            link.close();
        }
    }

    /// Returns the number of swallowed bytes.
    ///
    /// # Examples
    /// See [`Proxy`].
    #[must_use]
    pub fn swallowed(&self) -> u64 {
        self.shared.swallowed.load(SeqCst)
    }

    fn go(&self, way: Way) {
        *lock(&self.shared.way) = way;
        self.shared.changed.notify_all();
        let mut links = lock(&self.shared.links);
        for link in links.iter() {
            let passes = matches!(way, Way::Open | Way::Late(_));
            if way == Way::Cut || passes && link.is_spoilt.load(SeqCst) {
                link.close();
            }
        }
        links.retain(|link| !link.is_closed.load(SeqCst));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        self.go(Way::Cut);
        let _ = TcpStream::connect(self.address); // wakes the accepting thread, which then ends
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).field("way", &*lock(&self.shared.way)).finish()
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.is_over.load(SeqCst) {
                return;
            }
            let Ok(client) = client else { continue };
            let link = Link {
                client,
                server: Mutex::default(),
                is_spoilt: AtomicBool::new(false),
                is_closed: AtomicBool::new(false),
            };
            let (link, shared) = (Arc::new(link), Arc::clone(&self));
            {
                let mut links = lock(&self.links); // locked before the way is read
                links.retain(|link| !link.is_closed.load(SeqCst));
                links.push(Arc::clone(&link));
            }
            let run = {
                let link = Arc::clone(&link);
                move || shared.serve(&link)
            };
            if thread::Builder::new().name("proxy".into()).spawn(run).is_err() {
                link.close();
            }
        }
    }

    /// Returns the present treatment of bytes. While bytes are held back, the thread waits here.
    fn way(&self, link: &Link) -> Way {
        let mut way = lock(&self.way);
        while *way == Way::Held && !link.is_closed.load(SeqCst) {
            way = self.changed.wait(way).unwrap_or_else(PoisonError::into_inner);
        }
        *way
    }

    fn serve(self: Arc<Self>, link: &Arc<Link>) {
        if self.run(link).is_err() {
            link.close();
        }
    }

    fn run(self: &Arc<Self>, link: &Arc<Link>) -> io::Result<()> {
        match self.way(link) {
            Way::Cut => return Err(io::ErrorKind::ConnectionReset.into()),
            Way::Black => {
                link.is_spoilt.store(true, SeqCst);
                return self.pump(link, &link.client.try_clone()?, None);
            }
            Way::Open | Way::Late(_) | Way::Held | Way::Deaf => {}
        }
        let server = TcpStream::connect(*lock(&self.upstream))?;
        server.set_nodelay(true)?;
        link.client.set_nodelay(true)?;
        *lock(&link.server) = Some(server.try_clone()?);
        if link.is_closed.load(SeqCst) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let (back, client) = (server.try_clone()?, link.client.try_clone()?);
        let (shared, other) = (Arc::clone(self), Arc::clone(link));
        thread::Builder::new().name("proxy".into()).spawn(move || {
            if shared.pump(&other, &back, Some((&client, true))).is_err() {
                other.close();
            }
        })?;
        self.pump(link, &link.client.try_clone()?, Some((&server, false)))
    }

    /// Forwards bytes in one direction, until either end closes. Without a destination, swallows them.
    fn pump(&self, link: &Link, mut from: &TcpStream, to: Option<(&TcpStream, bool)>) -> io::Result<()> {
        from.set_read_timeout(Some(LOOK))?;
        let mut buffer = [0; 16 * 1024];
        loop {
            self.way(link); // held bytes are not even read
            let length = match from.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
                Ok(length) => length,
                Err(error) if is_in_vain(&error) => {
                    if link.is_closed.load(SeqCst) {
                        return Ok(());
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            let way = self.way(link);
            let swallows = match (way, to) {
                (Way::Cut, _) => return Err(io::ErrorKind::ConnectionReset.into()),
                (Way::Black, _) | (_, None) => true,
                (Way::Deaf, Some((_, from_server))) => from_server,
                (Way::Open | Way::Late(_) | Way::Held, _) => link.is_spoilt.load(SeqCst),
            };
            if swallows {
                link.is_spoilt.store(true, SeqCst);
                self.swallowed.fetch_add(length as u64, SeqCst);
                if matches!(*lock(&self.way), Way::Open | Way::Late(_)) {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                continue;
            }
            if let Way::Late(by) = way {
                thread::sleep(by);
            }
            if let Some((mut to, _)) = to {
                to.write_all(&buffer[..length])?;
            }
        }
    }
}

fn is_in_vain(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
