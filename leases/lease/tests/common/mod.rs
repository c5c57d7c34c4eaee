//! Helpers that several tests share: leases on a clock that the test moves, polling by hand, and wakers that count.
#![allow(dead_code, unreachable_pub)] // no test program uses all of it

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use keylatch_lease::{
    AcquireError, Expiry, ExpiryPolicy, Grant, Leases, Lost, ManualClock, Memory, Owner, ReleaseError, RenewError,
    Resource, Token,
};

pub type Table = Leases<Memory<ManualClock>>;
pub type Acquired = Result<Grant, AcquireError<Infallible>>;

/// Returns leases in memory, and their clock, which the test moves.
pub fn table() -> (Table, ManualClock) {
    let clock = ManualClock::new();
    (Leases::in_memory_with(clock.clone()), clock)
}

pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The smallest step of time.
pub const TICK: Duration = Duration::from_nanos(1);
pub const HOUR: Duration = secs(3600);

/// Returns owners with different names.
pub fn owners<const N: usize>() -> [Owner; N] {
    const NAMES: [&str; 8] = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"];
    std::array::from_fn(|n| Owner::named(NAMES[n]))
}

// ---- polling --------------------------------------------------------------------------------------------------------

/// Polls once, with this waker.
pub fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls once, with a waker that does nothing.
pub fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_with(future, Waker::noop())
}

/// Returns the output of a future that must be ready.
#[track_caller]
pub fn ready<F: Future>(future: F) -> F::Output {
    match poll(&mut pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future should be ready"),
    }
}

/// Panics if the future is ready.
#[track_caller]
pub fn pending<F: Future + Unpin>(future: &mut F) {
    assert!(poll(future).is_pending(), "the future should wait");
}

/// Polls a future once, checks that it is pending, and returns it.
#[track_caller]
pub fn waiting<F: Future>(future: F) -> Pin<Box<F>> {
    waiting_with(future, Waker::noop())
}

#[track_caller]
pub fn waiting_with<F: Future>(future: F, waker: &Waker) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(poll_with(&mut future, waker).is_pending(), "the future should wait");
    future
}

/// Yields to other threads until `done` returns true.
pub fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

pub fn assert_send<T: Send>(value: T) -> T {
    value
}

// ---- wakers ---------------------------------------------------------------------------------------------------------

/// A waker that counts its wakes.
#[derive(Default)]
pub struct Bell {
    rung: AtomicUsize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, SeqCst);
    }
}

impl Bell {
    pub fn new() -> (Arc<Bell>, Waker) {
        let bell = Arc::new(Bell::default());
        (bell.clone(), Waker::from(bell))
    }

    /// Returns the number of wakes since the last call.
    pub fn take(&self) -> usize {
        self.rung.swap(0, SeqCst)
    }
}

// ---- the state of the leases ----------------------------------------------------------------------------------------

/// The owner of a resource, its token, and the time left (`None` if the lease never expires); `None` if no owner has
/// it.
pub type Seen = Option<(Owner, Token, Option<Duration>)>;

#[track_caller]
pub fn seen(table: &Table, resource: impl Into<Resource>) -> Seen {
    let status = table.status_now(resource).unwrap();
    status.map(|status| (status.owner().clone(), status.token(), status.remaining()))
}

/// Returns the owner of a resource.
#[track_caller]
pub fn holder(table: &Table, resource: impl Into<Resource>) -> Option<Owner> {
    seen(table, resource).map(|(owner, ..)| owner)
}

/// Returns the time left of a lease that ends; zero if the resource is free.
#[track_caller]
pub fn left(table: &Table, resource: impl Into<Resource>) -> Duration {
    seen(table, resource).map_or(Duration::ZERO, |(.., left)| left.expect("it never ends"))
}

#[track_caller]
pub fn waiters(table: &Table, resource: impl Into<Resource>) -> usize {
    table.status_now(resource).unwrap().map_or(0, |status| status.waiters())
}

/// Returns the keys of the owner's leases.
#[track_caller]
pub fn owned(table: &Table, owner: &Owner) -> Vec<String> {
    let grants = table.owned_by_now(owner).unwrap();
    let mut keys: Vec<_> = grants.iter().map(|grant| grant.resource().key().to_string()).collect();
    keys.sort();
    keys
}

/// Acquires at once a resource that no other owner has.
#[track_caller]
pub fn take(table: &Table, resource: impl Into<Resource>, owner: &Owner, expiry: impl Into<Expiry>) -> Grant {
    table.try_acquire_now(resource, owner, expiry).expect("it should be free")
}

/// Checks that the result is `Busy`, and returns the owner and the time left.
#[track_caller]
pub fn busy(acquired: Acquired) -> (Owner, Option<Duration>) {
    match acquired {
        Err(AcquireError::Busy { owner, remaining, .. }) => (owner, remaining),
        other => panic!("it should be busy: {other:?}"),
    }
}

#[track_caller]
pub fn lost(renewed: Result<Grant, RenewError<Infallible>>) -> Lost {
    match renewed {
        Err(RenewError::Lost(lost)) => lost,
        other => panic!("it should be lost: {other:?}"),
    }
}

#[track_caller]
pub fn not_renewable(renewed: Result<Grant, RenewError<Infallible>>) -> Resource {
    match renewed {
        Err(RenewError::NotRenewable { resource, .. }) => resource,
        other => panic!("it should not be renewable: {other:?}"),
    }
}

#[track_caller]
pub fn not_held(released: Result<(), ReleaseError<Infallible>>) -> Resource {
    match released {
        Err(ReleaseError::NotHeld { resource, .. }) => resource,
        other => panic!("it should not be held: {other:?}"),
    }
}

/// Checks that the result is `NotOwner`, and returns the owner that has the resource.
#[track_caller]
pub fn not_owner(released: Result<(), ReleaseError<Infallible>>) -> Owner {
    match released {
        Err(ReleaseError::NotOwner { owner, .. }) => owner,
        other => panic!("it should be another's: {other:?}"),
    }
}

#[track_caller]
pub fn refused(acquired: Acquired) -> Resource {
    match acquired {
        Err(AcquireError::Refused { resource, .. }) => resource,
        other => panic!("it should be refused: {other:?}"),
    }
}

// ---- policies -------------------------------------------------------------------------------------------------------

/// A policy that calls a function.
pub struct By<F>(pub F);

impl<F: Fn(Duration) -> Option<Duration> + Send + Sync> ExpiryPolicy for By<F> {
    fn remaining(&self, held_for: Duration) -> Option<Duration> {
        (self.0)(held_for)
    }
}

pub fn by(policy: impl Fn(Duration) -> Option<Duration> + Send + Sync + 'static) -> Expiry {
    Expiry::Custom(Arc::new(By(policy)))
}

/// A policy that records its questions, and gives the answer that the test has set.
#[derive(Default)]
pub struct Scripted {
    asked: Mutex<Vec<Duration>>,
    answer: Mutex<Option<Duration>>,
}

impl Scripted {
    pub fn new(answer: Option<Duration>) -> Arc<Scripted> {
        Arc::new(Scripted { asked: Mutex::default(), answer: Mutex::new(answer) })
    }

    pub fn answers(&self, answer: Option<Duration>) {
        *self.answer.lock().unwrap() = answer;
    }

    /// Returns the questions since the last call.
    pub fn asked(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    pub fn expiry(self: &Arc<Self>) -> Expiry {
        Expiry::Custom(self.clone())
    }
}

impl ExpiryPolicy for Scripted {
    fn remaining(&self, held_for: Duration) -> Option<Duration> {
        self.asked.lock().unwrap().push(held_for);
        *self.answer.lock().unwrap()
    }
}

/// A small random number generator, so that every run is the same. The seed must not be zero.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}
