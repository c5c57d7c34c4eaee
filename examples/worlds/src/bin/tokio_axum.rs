//! tokio and axum: a service that makes reports, one at a time for each user, however many requests arrive.
//!
//! The guard moves with the work, into a task and on into a blocking thread. A client that disconnects while it waits
//! leaves the queue, and no report is made for it. The requests are real ones over TCP, sent by this program.
//!
//! ```text
//! cargo run --bin tokio_axum
//! ```

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::{Router, routing::post, serve};
use keylatch::{KeyedMutex, MutexGuardArc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, spawn_blocking, yield_now};
use tokio::time::timeout;

/// The `Arc` is around the table, because owned guards need it there.
#[derive(Clone, Default)]
struct Service {
    users: Arc<KeyedMutex<String>>,
    seen: Arc<Mutex<Seen>>,
}

/// Statistics that are checked at the end.
#[derive(Default)]
struct Seen {
    in_work: HashSet<String>,
    most_at_once: usize,
    reports: usize,
}

/// Handles `POST /reports/{user}`.
async fn report(State(service): State<Service>, Path(user): Path<String>) -> String {
    // If the client disconnects here, hyper drops this future, and the wait ends.
    let held = service.users.lock_arc(&user).await;
    // From here on the work is done even if the client disconnects: dropping a task's handle does not stop the task.
    let work = tokio::spawn(async move {
        yield_now().await; // a database query
        spawn_blocking(move || render(held, &service.seen)).await.unwrap()
    });
    work.await.unwrap()
}

/// Renders a report, in a blocking thread. The guard proves that no other work for this user is in progress. It is
/// released at the end.
fn render(user: MutexGuardArc<String>, seen: &Mutex<Seen>) -> String {
    {
        let mut seen = seen.lock().unwrap();
        assert!(seen.in_work.insert(user.key().clone()), "two reports at once for {}", user.key());
        seen.most_at_once = seen.most_at_once.max(seen.in_work.len());
    }
    let checksum = (0..20_000).fold(7_u32, |sum, n| sum.rotate_left(5) ^ n);
    let mut seen = seen.lock().unwrap();
    seen.in_work.remove(user.key());
    seen.reports += 1;
    format!("report for {}, checksum {checksum:08x}", user.key())
}

/// Sends a client's request. Returns the body of the response.
async fn order(address: SocketAddr, user: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("POST /reports/{user} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.rsplit("\r\n").next().unwrap().to_owned()
}

/// Returns when `n` requests wait for the user's key.
async fn until_waiters(n: usize, users: &KeyedMutex<String>, user: &str) {
    let there = async {
        while users.status(user).map_or(0, |status| status.waiters()) != n {
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), there).await.expect("the number of waiters was not reached in time");
}

#[tokio::main]
async fn main() {
    let service = Service::default();
    let (users, seen) = (service.users.clone(), service.seen.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/reports/{user}", post(report)).with_state(service);
    tokio::spawn(async move { serve(listener, router).await });

    // A nightly job holds alice's key, so her client waits. Bob's does not.
    let nightly = users.lock("alice").await;
    let client = tokio::spawn(order(address, "alice"));
    until_waiters(1, &users, "alice").await;
    println!("while alice's client waits: {}", order(address, "bob").await);

    client.abort(); // closes its connection
    until_waiters(0, &users, "alice").await;
    println!("alice's client has disconnected, and her key has no waiters");
    drop(nightly);
    assert!(users.is_empty());

    let mut clients = JoinSet::new();
    for n in 0..60 {
        clients.spawn(order(address, ["alice", "bob", "carol"][n % 3]));
    }
    let answers = clients.join_all().await;
    let seen = seen.lock().unwrap();
    println!("{} more answers, at most {} reports in work at once", answers.len(), seen.most_at_once);
    assert_eq!(seen.reports, 1 + 60, "a report was made for the disconnected client");
    assert!(users.is_empty(), "an entry outlived its last user");
}
