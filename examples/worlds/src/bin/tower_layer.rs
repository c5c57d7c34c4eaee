//! A Tower layer that derives a key from each request, and serves requests with the same key one after another.
//!
//! Charges to accounts: the service under the layer reads a balance and later writes it, without a lock of its own.
//! It serves two requests at a time, and requests that wait for their key do not take up these slots.
//!
//! ```text
//! cargo run --bin tower_layer
//! ```

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use keylatch::KeyedMutex;
use tokio::task::{JoinSet, yield_now};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

/// A layer whose services, and all their clones, share one table.
#[derive(Clone)]
struct OnePerKey<F> {
    locks: Arc<KeyedMutex<String>>,
    key_of: F,
}

impl<S, F: Clone> Layer<S> for OnePerKey<F> {
    type Service = OneAtATime<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        OneAtATime { inner, layer: self.clone() }
    }
}

#[derive(Clone)]
struct OneAtATime<S, F> {
    inner: S,
    layer: OnePerKey<F>,
}

impl<S, F, R> Service<R> for OneAtATime<S, F>
where
    S: Service<R, Future: Send> + Clone + Send + 'static,
    F: Fn(&R) -> &str,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    /// Always ready: the inner service is made ready only once the key is held. If its capacity were reserved here,
    /// requests that wait for one hot key could take all of it. To bound the number of waiters, put a limit around
    /// this service.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The future is `'static`: it owns its guard, and a clone of the service, which `oneshot` makes ready.
        let lock = self.layer.locks.lock_arc((self.layer.key_of)(&request));
        let inner = self.inner.clone();
        Box::pin(async move {
            let _held = lock.await; // held while the inner future runs
            inner.oneshot(request).await
        })
    }
}

struct Charge {
    account: String,
    cents: u64,
}

fn account_of(charge: &Charge) -> &str {
    &charge.account
}

/// Reads a balance, makes an inquiry, and stores: if two charges to one account overlapped, one would be lost.
async fn charge(balances: Arc<Mutex<HashMap<String, u64>>>, charge: Charge) -> Result<u64, Infallible> {
    let before = balances.lock().unwrap().get(&charge.account).copied().unwrap_or(0);
    yield_now().await; // a request to a bank
    balances.lock().unwrap().insert(charge.account, before + charge.cents);
    Ok(before + charge.cents)
}

#[tokio::main]
async fn main() {
    let (locks, balances) = (Arc::new(KeyedMutex::new()), Arc::default());
    let bank = Arc::clone(&balances);
    let service = ServiceBuilder::new()
        .layer(OnePerKey { locks: locks.clone(), key_of: account_of })
        .concurrency_limit(2)
        .service_fn(move |request| charge(Arc::clone(&bank), request));
    let send = |account: &str, cents| service.clone().oneshot(Charge { account: account.to_owned(), cents });
    let until_waiters = async |n| {
        while locks.status("alice").map_or(0, |status| status.waiters()) != n {
            yield_now().await;
        }
    };

    // A clerk holds alice's account, so her charges wait. They take neither of the two slots, and bob's charge
    // proceeds.
    let clerk = locks.lock("alice").await;
    let mut charges: JoinSet<_> = (0..50).map(|n| send("alice", n)).collect();
    until_waiters(50).await;
    println!("50 charges wait for alice; bob's balance is {}", send("bob", 7).await.unwrap());

    // A cancelled caller no longer waits.
    let leaving = tokio::spawn(send("alice", 1_000_000));
    until_waiters(51).await;
    leaving.abort();
    until_waiters(50).await;

    drop(clerk);
    (0..50).for_each(|n| _ = charges.spawn(send("bob", n)));
    charges.join_all().await;
    let balances = balances.lock().unwrap();
    println!("alice {}, bob {}; entries left: {}", balances["alice"], balances["bob"], locks.len());
    assert_eq!((balances["alice"], balances["bob"]), ((0..50).sum(), 7 + (0..50).sum::<u64>()), "a charge was lost");
    assert!(locks.is_empty());
}
