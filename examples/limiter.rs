//! A crawler that opens a limited number of connections to each host at a time, and any number in total.
//!
//! ```text
//! cargo run --release --example limiter
//! ```
//!
//! One of the hosts hangs: it accepts connections and never answers. Requests to it wait for a permit, or give up
//! after a while. The crawl of the other hosts is not affected.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use keylatch::{KeyedSemaphore, PermitGuard};
use smol::{Executor, Task, Timer, future};

/// The number of connections to one host that may be open at a time.
const LIMIT: usize = 4;

/// The number of pages on each host.
const PAGES: u64 = 60;

/// The time that an impatient request waits for a permit.
const PATIENCE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Host {
    name: &'static str,
    requests: AtomicUsize,
    gave_up: AtomicUsize,
    open: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Host {
    fn new(name: &'static str) -> Self {
        Host { name, ..Host::default() }
    }
}

/// An open connection. It owns its permit, so there is no connection without a permit, and the permit is returned
/// with the connection, even if the task is cancelled.
struct Connection<'a> {
    host: &'a Host,
    _permit: PermitGuard<'a, String>,
}

impl<'a> Connection<'a> {
    fn open(host: &'a Host, permit: PermitGuard<'a, String>) -> Self {
        let open = host.open.fetch_add(1, Relaxed) + 1;
        host.most_at_once.fetch_max(open, Relaxed);
        Connection { host, _permit: permit }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // Counted while the permit is still held: fields are dropped after this call.
        self.host.open.fetch_sub(1, Relaxed);
    }
}

/// Fetches a page in a task. Every third request is impatient.
async fn fetch(permits: &KeyedSemaphore<String>, host: &Host, page: u64) {
    host.requests.fetch_add(1, Relaxed);
    let limit = if page % 3 == 0 { Timer::after(PATIENCE) } else { Timer::never() };
    match permits.acquire(host.name).until(limit).await {
        Ok(permit) => {
            let _connection = Connection::open(host, permit);
            Timer::after(Duration::from_millis(1 + page % 5)).await;
        }
        Err(_) => _ = host.gave_up.fetch_add(1, Relaxed),
    }
}

/// Checks the health of the hosts in turn, from a thread: with the same permits, and without async code.
fn monitor(permits: &KeyedSemaphore<String>, hosts: [&Host; 4]) {
    for host in hosts.into_iter().cycle().take(40) {
        host.requests.fetch_add(1, Relaxed);
        match permits.try_acquire_for(host.name, PATIENCE) {
            Some(permit) => {
                let _connection = Connection::open(host, permit);
                thread::sleep(Duration::from_millis(1));
            }
            None => _ = host.gave_up.fetch_add(1, Relaxed),
        }
    }
}

async fn join(tasks: Vec<Task<()>>) {
    for task in tasks {
        task.await;
    }
}

fn main() {
    let permits = &KeyedSemaphore::new(LIMIT);
    let [a, b, c, hanging] = &["a.example", "b.example", "c.example", "hangs.example"].map(Host::new);
    let executor = &Executor::new();
    let crawl = |host| (0..PAGES).map(move |page| executor.spawn(fetch(permits, host, page)));

    // Opens as many connections as allowed, none of which is ever answered.
    hanging.requests.fetch_add(LIMIT, Relaxed);
    let open = |_| Connection::open(hanging, permits.acquire_blocking(hanging.name));
    let unanswered: Vec<_> = (0..LIMIT).map(open).collect();

    thread::scope(|scope| {
        scope.spawn(|| monitor(permits, [a, b, c, hanging]));
        let stuck = crawl(hanging).collect();
        let others = [a, b, c].into_iter().flat_map(crawl).collect();
        // The other hosts must be crawled to the end although one hangs. That takes far less than a minute.
        let too_late = async {
            Timer::after(Duration::from_secs(60)).await;
            panic!("one hanging host has blocked the others");
        };
        smol::block_on(executor.run(future::or(join(others), too_late)));
        let waiting = permits.status(hanging.name).map_or(0, |status| status.waiters());
        println!("The other hosts are done. {waiting} requests wait for {}.\n", hanging.name);

        drop(unanswered);
        smol::block_on(executor.run(join(stuck)));
    });

    println!("{:<16}{:>9}{:>9}{:>14}", "host", "requests", "gave up", "most at once");
    for host in [a, b, c, hanging] {
        let [requests, gave_up, most] = [&host.requests, &host.gave_up, &host.most_at_once].map(|n| n.load(Relaxed));
        println!("{:<16}{requests:>9}{gave_up:>9}{most:>14}", host.name);
        assert!(most <= LIMIT, "{} had too many connections", host.name);
    }
    println!("entries left in the table: {}", permits.len());
    assert!(permits.is_empty(), "an entry outlived its last permit");
}
