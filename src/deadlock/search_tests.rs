//! A search runs for a party only if another request may wait for that party, no matter for how many parties its own
//! request waits. So the cost of a wait does not grow with the queue that it joins.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use super::{Detector, Party};
use crate::{Fairness, KeyedMutex, KeyedRwLock};

const CROWD: u64 = 200;

/// Polls a future once. It must begin to wait.
fn waiting<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(poll(&mut future).is_pending(), "it should wait");
    future
}

fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<F: Future>(future: F) -> F::Output {
    match poll(&mut Box::pin(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it should be ready"),
    }
}

fn searches(detector: &Detector) -> usize {
    detector.shared.registry.with(|registry| registry.searches)
}

fn parties(detector: &Detector, count: u64) -> Vec<Party> {
    (0..count).map(|n| detector.party(format!("party {n}"))).collect()
}

#[test]
fn a_crowd_at_one_key_starts_no_search_and_a_cycle_through_it_is_found() {
    for fairness in [Fairness::Adaptive, Fairness::Fifo, Fairness::Barging] {
        let (detector, locks) = (Detector::new(), KeyedMutex::<u64>::builder().fairness(fairness).build());
        let holder = detector.party("holder");
        let hot = ready(holder.acquire(locks.lock(&CROWD))).unwrap();
        let crowd = parties(&detector, CROWD);
        let own: Vec<_> =
            (0..).zip(&crowd).map(|(key, party)| ready(party.acquire(locks.lock(&key))).unwrap()).collect();
        let queue: Vec<_> = crowd.iter().map(|party| waiting(party.acquire(locks.lock(&CROWD)))).collect();
        assert_eq!(searches(&detector), 0);
        // Others wait for the holder, so its request starts a search. The request completes a cycle, because the last
        // party in the queue holds the wanted key.
        let Poll::Ready(Err(deadlock)) = poll(&mut Box::pin(holder.acquire(locks.lock(&(CROWD - 1))))) else {
            panic!("it should fail")
        };
        assert_eq!((deadlock.cycle().len(), searches(&detector)), (2, 1));
        drop((queue, own, hot));
        assert!(locks.is_empty());
    }
}

#[test]
fn a_chain_built_from_either_end_searches_at_most_once_for_each_party() {
    for from_far_end in [true, false] {
        let (detector, locks) = (Detector::new(), KeyedMutex::<u64>::new());
        let chain = parties(&detector, CROWD);
        let own: Vec<_> =
            (0..).zip(&chain).map(|(key, party)| ready(party.acquire(locks.lock(&key))).unwrap()).collect();
        let mut links: Vec<u64> = (0..CROWD - 1).collect();
        if from_far_end {
            links.reverse();
        }
        let waits: Vec<_> = links.iter().map(|&n| waiting(chain[n as usize].acquire(locks.lock(&(n + 1))))).collect();
        // From the near end each party but the first is waited for by the one before it, and finds that the next one
        // does not wait.
        assert_eq!(searches(&detector), if from_far_end { 0 } else { CROWD as usize - 2 });
        // The request of the last party completes the cycle.
        let last = &chain[CROWD as usize - 1];
        assert!(matches!(poll(&mut Box::pin(last.acquire(locks.lock(&0)))), Poll::Ready(Err(_))));
        drop((waits, own));
        assert!(locks.is_empty());
    }
}

#[test]
fn a_party_with_many_requests_starts_no_search() {
    let (detector, locks) = (Detector::new(), KeyedRwLock::<u64>::new());
    let (busy, others) = (detector.party("busy"), detector.party("others"));
    let held: Vec<_> = (0..CROWD).map(|key| ready(others.acquire(locks.write(&key))).unwrap()).collect();
    let own = ready(busy.acquire(locks.write(&CROWD))).unwrap();
    let mut requests: Vec<_> = (0..CROWD).map(|key| waiting(busy.acquire(locks.read(&key)))).collect();
    assert_eq!(searches(&detector), 0);
    // The requests get in one by one, while other requests of the same party wait.
    for (guard, request) in held.into_iter().zip(&mut requests) {
        drop(guard);
        assert!(matches!(poll(request), Poll::Ready(Ok(_))));
    }
    assert_eq!(searches(&detector), 0);
    drop((own, requests));
    assert!(locks.is_empty());
}

#[test]
fn a_wait_behind_an_untracked_crowd_starts_no_search() {
    let (detector, locks) = (Detector::new(), KeyedMutex::<u64>::new());
    let party = detector.party("tracked");
    let own = ready(party.acquire(locks.lock(&1))).unwrap();
    let held = locks.try_lock(&0);
    let crowd: Vec<_> = (0..CROWD).map(|_| waiting(locks.lock(&0))).collect();
    let request = waiting(party.acquire(locks.lock(&0)));
    assert_eq!(searches(&detector), 0);
    drop((request, crowd, held, own));
    assert!(locks.is_empty());
}

#[test]
fn a_search_runs_only_while_another_party_waits_for_this_one() {
    let (detector, locks) = (Detector::new(), KeyedMutex::<u64>::new());
    let [ann, bob, cid] = ["ann", "bob", "cid"].map(|name| detector.party(name));
    let blue = ready(ann.acquire(locks.lock(&1))).unwrap();
    let held = locks.try_lock(&2);
    for round in 1..=5 {
        // Bob waits for ann, and gives up. In every second round cid waits behind him.
        let first = waiting(bob.acquire(locks.lock(&1)));
        let second = (round % 2 == 0).then(|| waiting(cid.acquire(locks.lock(&1))));
        let before = searches(&detector);
        drop(waiting(ann.acquire(locks.lock(&2))));
        assert_eq!(searches(&detector), before + 1, "bob waits for ann");
        drop((first, second));
        drop(waiting(ann.acquire(locks.lock(&2))));
        assert_eq!(searches(&detector), before + 1, "no party waits for ann any more");
    }
    drop((blue, held));
    assert!(locks.is_empty());
}
