//! Proxies between the nodes of a cluster, which can cut a node off from the others.
//!
//! A connection between two nodes carries messages in one direction or in both, whichever node has made it. So a proxy
//! must know both of its ends. The node that made the connection names itself in a header of its first request.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use keylatch_lease_conformance::servers::lock;

/// The header with the sender's member ID.
const FROM: &str = "x-server-from: ";

pub(crate) struct Peers {
    ports: Vec<u16>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The node that is cut off from the others, and its member ID.
    parted: Mutex<Option<(usize, u64)>>,
    links: Mutex<Vec<Arc<Link>>>,
}

struct Link {
    ends: [TcpStream; 2],
    to: usize,
    from: Option<u64>,
}

impl Peers {
    /// Starts a proxy to each of these ports of this machine, on which the nodes listen. The proxies end with the
    /// process.
    pub(crate) fn start(nodes: impl IntoIterator<Item = u16>) -> Self {
        let shared = Arc::new(Shared::default());
        let start = |(to, upstream)| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.serve(client, to, upstream));
                }
            });
            port
        };
        let ports = nodes.into_iter().enumerate().map(start).collect();
        Peers { ports, shared }
    }

    /// Returns the ports at which the nodes reach each other, separated by spaces.
    pub(crate) fn ports(&self) -> String {
        self.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
    }

    /// Swallows everything that passes between this node, whose member ID is `id`, and the others.
    pub(crate) fn part(&self, node: usize, id: u64) {
        *lock(&self.shared.parted) = Some((node, id));
    }

    /// Forwards everything again. Closes the connections whose bytes were swallowed, and perhaps others.
    pub(crate) fn join(&self) {
        let parted = lock(&self.shared.parted).take();
        for link in lock(&self.shared.links).iter() {
            if parted.is_some_and(|node| link.concerns(node)) {
                link.close();
            }
        }
    }
}

impl Link {
    fn concerns(&self, (node, id): (usize, u64)) -> bool {
        self.to == node || self.from == Some(id)
    }

    fn close(&self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn serve(self: Arc<Self>, mut client: TcpStream, to: usize, upstream: u16) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            head.extend(next(&mut client, &mut [0; 1024])?);
        }
        let text = String::from_utf8_lossy(&head).to_lowercase();
        let from = text.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(FROM)?, 16).ok());
        let server = TcpStream::connect(("127.0.0.1", upstream))?;
        let link = Arc::new(Link { ends: [client, server], to, from });
        lock(&self.links).push(Arc::clone(&link));
        let back = {
            let (shared, link) = (Arc::clone(&self), Arc::clone(&link));
            thread::spawn(move || shared.pump(&link, 1, Vec::new()))
        };
        let done = self.pump(&link, 0, head);
        let _ = back.join();
        lock(&self.links).retain(|other| !Arc::ptr_eq(other, &link));
        done
    }

    /// Forwards these bytes, and then all that come from this end, until an end closes.
    fn pump(&self, link: &Link, end: usize, first: Vec<u8>) -> io::Result<()> {
        let forward = |mut bytes: Vec<u8>| {
            let (mut from, mut to) = (&link.ends[end], &link.ends[1 - end]);
            let mut buffer = [0; 16 * 1024];
            loop {
                let parted = *lock(&self.parted); // unlocked before it writes, because a node may stand still
                if !parted.is_some_and(|node| link.concerns(node)) {
                    to.write_all(&bytes)?;
                }
                bytes = next(&mut from, &mut buffer)?.to_vec();
            }
        };
        let done = forward(first);
        link.close();
        done
    }
}

fn next<'b>(from: &mut impl Read, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    match from.read(buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => Ok(&buffer[..length]),
    }
}
