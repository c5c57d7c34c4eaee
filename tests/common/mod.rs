//! Helpers shared by several tests: observable wakers, polling by hand, and the contract of one key.
#![allow(dead_code, unreachable_pub)] // no test program uses all of it

pub mod contract;
pub mod hostile;

use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

/// A hasher that is the same in each run, for tests whose outcome depends on the hashes of their keys. A key's hash
/// chooses its shard, and the fingerprint by which a map remembers that it has evicted the key. A key that shares its
/// fingerprint with another key may be evicted later than the test expects.
pub type Fixed = BuildHasherDefault<DefaultHasher>;

/// A waker that counts its wake-ups.
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

    /// Returns the number of wake-ups since the last call.
    pub fn take(&self) -> usize {
        self.rung.swap(0, SeqCst)
    }
}

/// Polls once, with this waker.
pub fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls once, with a waker that does nothing.
pub fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_with(future, Waker::noop())
}

/// Returns the output of a future that must be ready.
pub fn ready<F: Future + Unpin>(mut future: F) -> F::Output {
    match poll(&mut future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future should be ready"),
    }
}

/// Panics if the future is ready.
pub fn pending<F: Future + Unpin>(future: &mut F) {
    assert!(poll(future).is_pending(), "the future should wait");
}

/// Yields to other threads until `done` returns true, for tests that need another thread to make progress.
pub fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

/// A sequence of bytes, followed by endless zeros.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    pub fn next(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A small deterministic generator. The seed must not be zero.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}
