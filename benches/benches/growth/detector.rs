//! The same with a detector of deadlocks: what parties pay who wait in a crowd, depend on one, or are one.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use keylatch::KeyedMutex;
use keylatch::deadlock::{Detector, Party};

use crate::timed;

/// Where the crowd is. Each of it may have a key of its own, from 0 on.
const HOT: u64 = u64::MAX;

/// What the party holds that is looked at.
const OWN: u64 = HOT - 1;

/// Who waits, what happens, and how long it takes with so many.
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

/// A future that waits.
fn waiting<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it waits");
    future
}

fn parties(detector: &Detector, n: usize) -> Vec<Party> {
    (0..n).map(|_| detector.party("one of many")).collect()
}

/// Holds a key that is free.
macro_rules! held {
    ($locks:expr, $party:expr, $key:expr) => {
        $party.acquire_blocking($locks.lock(&$key)).expect("it is free")
    };
}

/// How long one wait takes to begin behind so many.
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
        assert!(poll.is_pending(), "it waits");
    })
}

/// All who have a key wait for one that somebody holds.
fn queue(n: usize) -> Duration {
    let (detector, locks) = (Detector::new(), KeyedMutex::<u64>::new());
    let _hot = locks.try_lock(&HOT);
    let crowd = parties(&detector, n);
    let _keys: Vec<_> = (0..).zip(&crowd).map(|(key, party)| held!(locks, party, key)).collect();
    let mut waits = Vec::with_capacity(n);
    timed(|| waits.extend(crowd.iter().map(|party| waiting(party.acquire(locks.lock(&HOT))))))
}

/// Each waits for the key of the next, and the last for one that somebody holds.
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

/// Waits for so many keys at a time, and gets them one by one.
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
            assert!(poll.is_ready(), "it has its key");
        }
    })
}
