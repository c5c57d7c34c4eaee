//! The growth with a deadlock detector: the cost for each party of a waiting crowd, and for a party that depends on
//! such a crowd.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use keylatch::KeyedMutex;
use keylatch::deadlock::{Detector, Party};

use crate::timed;

/// The key that the crowd waits for. Each party of the crowd may hold a key of its own, from 0 on.
const HOT: u64 = u64::MAX;

/// The key that the measured party holds.
const OWN: u64 = HOT - 1;

/// The party that acts, its measured action, and a function that measures the action with a crowd of a given size.
type Scenario = (&'static str, &'static str, fn(usize) -> Duration);

pub const SCENARIOS: [Scenario; 8] = [
    ("a party with a hold", "waits behind a crowd that nobody tracks", |n| joins(n, false, false)),
    ("a party that is waited for", "waits behind a crowd that nobody tracks", |n| joins(n, false, true)),
    ("a party with a hold", "waits behind parties with a key each", |n| joins(n, true, false)),
    ("a party that is waited for", "waits behind parties with a key each", |n| joins(n, true, true)),
    ("parties with a key each", "queue at one mutex", queue),
    ("parties with a key each", "wait in a chain, from its far end", |n| chain(n, true)),
    ("parties with a key each", "wait in a chain, from its near end", |n| chain(n, false)),
    ("one party", "has so many requests", requests),
];

/// Returns a future that waits.
fn waiting<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "the request does not wait");
    future
}

fn parties(detector: &Detector, n: usize) -> Vec<Party> {
    (0..n).map(|_| detector.party("one of many")).collect()
}

/// Acquires a free key.
macro_rules! held {
    ($locks:expr, $party:expr, $key:expr) => {
        $party.acquire_blocking($locks.lock(&$key)).expect("the key is free")
    };
}

/// Measures the time until one wait has begun behind a crowd of `n`.
fn joins(n: usize, tracked: bool, waited_for: bool) -> Duration {
    let (detector, locks) = (Detector::new(), KeyedMutex::<u64>::new());
    let _hot = locks.try_lock(&HOT);
    let (party, other) = (detector.party("one"), detector.party("other"));
    let _own = held!(locks, party, OWN);
    let _waits = waited_for.then(|| waiting(other.acquire(locks.lock(&OWN))));
    let crowd = if tracked { parties(&detector, n) } else { Vec::new() };
    let _keys: Vec<_> = (0..).zip(&crowd).map(|(key, party)| held!(locks, party, key)).collect();
    let _tracked: Vec<_> = crowd.iter().map(|party| waiting(party.acquire(locks.lock(&HOT)))).collect();
    let _untracked: Vec<_> = (0..if tracked { 0 } else { n }).map(|_| waiting(locks.lock(&HOT))).collect();
    let mut request = Box::pin(party.acquire(locks.lock(&HOT)));
    timed(|| {
        let poll = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_pending(), "the request does not wait");
    })
}

/// Lets parties, each of which holds its own key, wait for one key that is held.
fn queue(n: usize) -> Duration {
    let (detector, locks) = (Detector::new(), KeyedMutex::<u64>::new());
    let _hot = locks.try_lock(&HOT);
    let crowd = parties(&detector, n);
    let _keys: Vec<_> = (0..).zip(&crowd).map(|(key, party)| held!(locks, party, key)).collect();
    let mut waits = Vec::with_capacity(n);
    timed(|| waits.extend(crowd.iter().map(|party| waiting(party.acquire(locks.lock(&HOT))))))
}

/// Lets each party wait for the key of the next, and the last party for a key that is held.
fn chain(n: usize, from_far_end: bool) -> Duration {
    let (detector, locks) = (Detector::new(), KeyedMutex::<u64>::new());
    let _end = locks.try_lock(&(n as u64));
    let chain = parties(&detector, n);
    let _keys: Vec<_> = (0..).zip(&chain).map(|(key, party)| held!(locks, party, key)).collect();
    let mut links: Vec<usize> = (0..n).collect();
    if from_far_end {
        links.reverse();
    }
    let mut waits = Vec::with_capacity(n);
    timed(|| waits.extend(links.iter().map(|&link| waiting(chain[link].acquire(locks.lock(&(link as u64 + 1)))))))
}

/// Lets one party wait for `n` keys at the same time, and acquire them one by one.
fn requests(n: usize) -> Duration {
    let (detector, locks) = (Detector::new(), KeyedMutex::<u64>::new());
    let (party, other) = (detector.party("one"), detector.party("other"));
    let _own = held!(locks, party, OWN);
    let held: Vec<_> = (0..n as u64).map(|key| held!(locks, other, key)).collect();
    let mut waits = Vec::with_capacity(n);
    timed(|| {
        waits.extend((0..n as u64).map(|key| waiting(party.acquire(locks.lock(&key)))));
        for (guard, request) in held.into_iter().zip(&mut waits) {
            drop(guard);
            let poll = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(poll.is_ready(), "the request is granted");
        }
    })
}
