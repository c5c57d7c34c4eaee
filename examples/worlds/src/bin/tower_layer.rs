//! A Tower layer that takes a key from each request, and serves requests with the same key one after another.
//!
//! Charges to accounts: the service under the layer reads a balance and later writes it, with no lock of its own. It
//! serves two requests at a time, and those that wait for their key take neither place.
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

/// Every service that it makes, and every clone of those, shares the table.
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

    /// Always ready: the inner service is asked once the key is held. If its places were reserved here, requests that wait
    /// for one hot key could take all of them. To bound how many wait, put a limit around this service.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The future is `'static`: so it owns its guard, and a clone of the service, which `oneshot` makes ready.
        let lock = self.layer.locks.lock_arc((self.layer.key_of)(&request));
        let inner = self.inner.clone();
        Box::pin(async move {
            let _held = lock.await; // for as long as the inner future runs
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

/// Look, think, store: if two charges for one account did that at a time, one would be lost.
async fn charge(balances: Arc<Mutex<HashMap<String, u64>>>, charge: Charge) -> Result<u64, Infallible> {
    let before = balances.lock().unwrap().get(&charge.account).copied().unwrap_or(0);
    yield_now().await; // a bank is asked
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

    // A clerk has alice's account, so her charges wait. They take neither of the two places, and bob's goes on.
    let clerk = locks.lock("alice").await;
    let mut charges: JoinSet<_> = (0..50).map(|n| send("alice", n)).collect();
    until_waiters(50).await;
    println!("50 charges wait for alice; bob's balance is {}", send("bob", 7).await.unwrap());

    // A caller that goes away no longer waits.
    let leaving = tokio::spawn(send("alice", 1_000_000));
    until_waiters(51).await;
    leaving.abort();
    until_waiters(50).await;

    drop(clerk);
    (0..50).for_each(|n| _ = charges.spawn(send("bob", n)));
    charges.join_all().await;
    let balances = balances.lock().unwrap();
    println!("alice {}, bob {}; entries left: {}", balances["alice"], balances["bob"], locks.len());
    assert_eq!((balances["alice"], balances["bob"]), ((0..50).sum(), 7 + (0..50).sum::<u64>()), "none is lost");
    assert!(locks.is_empty());
}
