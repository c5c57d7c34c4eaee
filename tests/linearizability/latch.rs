//! Latches and stripes: histories of readers and writers without keys, checked against the specification of a key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use keylatch::futures::LatchAcquire;
use keylatch::mode::{Exclusive, Shared};
use keylatch::{Fairness, Latch, LatchReadGuard, LatchWriteGuard, Striped};

use crate::common::poll;
use crate::spec::{self, Clock, Id, Log, Op, Record, Rules, Want};
use crate::{CORES, POLICIES, Random, Start, histories, overlaps};

enum Lock {
    Latch(Latch),
    Stripe(Striped<u64>),
}

macro_rules! each {
    ($lock:expr, $call:ident) => {
        match $lock {
            Lock::Latch(latch) => latch.$call(),
            Lock::Stripe(striped) => striped.$call(&7),
        }
    };
}

enum Request<'a> {
    Read(LatchAcquire<'a, Shared>),
    Write(LatchAcquire<'a, Exclusive>),
}

enum Hold<'a> {
    Read(#[allow(dead_code)] LatchReadGuard<'a>),
    Write(LatchWriteGuard<'a>),
}

impl Hold<'_> {
    fn want(&self) -> Want {
        if let Hold::Read(_) = self { Want::Read } else { Want::Write }
    }
}

fn step<'a>(
    lock: &'a Lock,
    log: &mut Log,
    random: &mut Random,
    pending: &mut BTreeMap<Id, (Request<'a>, Want, bool)>,
    held: &mut Vec<Hold<'a>>,
) {
    let any = random.below(64) as usize;
    let nth = |pending: &BTreeMap<Id, (Request<'a>, Want, bool)>| pending.keys().nth(any % pending.len()).copied();
    match random.below(13) {
        0 => {
            let got = log.call(0, || each!(lock, try_read), |got| Op::Try { want: Want::Read, got: got.is_some() });
            held.extend(got.map(Hold::Read));
        }
        12 => {
            let try_read = || each!(lock, try_read_recursive);
            let got = log.call(0, try_read, |got| Op::Try { want: Want::Recursive, got: got.is_some() });
            held.extend(got.map(Hold::Read));
        }
        1 => {
            let got = log.call(0, || each!(lock, try_write), |got| Op::Try { want: Want::Write, got: got.is_some() });
            held.extend(got.map(Hold::Write));
        }
        2..=3 => {
            let request = match random.below(5) {
                0..=1 => (Request::Read(each!(lock, read)), Want::Read, false),
                2 => (Request::Read(each!(lock, read_recursive)), Want::Recursive, false),
                _ => (Request::Write(each!(lock, write)), Want::Write, false),
            };
            pending.insert(log.id(), request);
        }
        4..=7 if !pending.is_empty() => {
            let Some(id) = nth(pending) else { return };
            let Some((request, want, is_polled)) = pending.get_mut(&id) else { return };
            *is_polled = true;
            let (want, ready) = (*want, |hold: &Poll<Hold<'_>>| hold.is_ready());
            let poll = || match request {
                Request::Read(request) => poll(request).map(Hold::Read),
                Request::Write(request) => poll(request).map(Hold::Write),
            };
            if let Poll::Ready(hold) = log.call(0, poll, |hold| Op::Poll { id, want, priority: 0, ready: ready(hold) })
            {
                pending.remove(&id);
                held.push(hold);
            }
        }
        8 if !pending.is_empty() => {
            let Some((id, (request, want, is_polled))) = nth(pending).and_then(|id| Some((id, pending.remove(&id)?)))
            else {
                return;
            };
            if is_polled {
                log.call(0, || drop(request), |()| Op::Cancel { id, want });
            }
        }
        9 => drop(log.call(0, || each!(lock, is_locked), |&locked| Op::IsLocked(locked))),
        _ if !held.is_empty() => {
            let hold = held.swap_remove(any % held.len());
            let want = hold.want();
            match (hold, random.below(4)) {
                (Hold::Write(guard), 0) => {
                    let change = Op::Change { from: Want::Write, to: Want::Read };
                    held.push(Hold::Read(log.call(0, || guard.downgrade(), |_| change)));
                }
                (Hold::Write(guard), 1) => {
                    log.call(0, || guard.unlock_fair(), |()| Op::Release { held: want, fair: true });
                }
                (hold, _) => log.call(0, || drop(hold), |()| Op::Release { held: want, fair: false }),
            }
        }
        _ => {}
    }
}

fn walks(lock: impl Fn(Fairness) -> (Lock, Fairness)) {
    let _cores = CORES.lock();
    let (mut overlapping, mut calls) = (0, 0);
    for seed in 0..histories() {
        let (lock, fairness) = lock(POLICIES[seed as usize / 2 % POLICIES.len()]);
        let rules = Rules { fairness, permits: 0 };
        let threads = 2 + seed as usize % 2;
        let (clock, start) = (Arc::new(Clock::default()), Start::new(threads));
        let records: Vec<Record> = std::thread::scope(|scope| {
            let walk = |by: usize| {
                let (lock, start, clock) = (&lock, &start, &clock);
                scope.spawn(move || {
                    let (mut log, mut random) = (Log::new(clock, by), Random::new(seed * 64 + by as u64));
                    let (mut pending, mut held) = (BTreeMap::new(), Vec::new());
                    start.wait();
                    for _ in 0..24 {
                        step(lock, &mut log, &mut random, &mut pending, &mut held);
                        random.pause();
                    }
                    // The guards and requests that remain are released and cancelled in the record, too.
                    for (id, (request, want, is_polled)) in pending {
                        if is_polled {
                            log.call(0, || drop(request), |()| Op::Cancel { id, want });
                        }
                    }
                    for hold in held {
                        let held = hold.want();
                        log.call(0, || drop(hold), |()| Op::Release { held, fair: false });
                    }
                    log.records
                })
            };
            let walks: Vec<_> = (0..threads).map(walk).collect();
            walks.into_iter().flat_map(|walk| walk.join().unwrap()).collect()
        });
        assert!(!each!(&lock, is_locked));
        overlapping += overlaps(&records);
        calls += records.len();
        spec::check(rules, records);
    }
    println!("{} histories, {calls} operations, {overlapping} pairs at the same time", histories());
}

#[test]
fn walks_on_a_latch_are_linearizable() {
    walks(|_| (Lock::Latch(Latch::new()), Fairness::Adaptive));
}

#[test]
fn walks_on_a_stripe_are_linearizable_under_every_policy() {
    walks(|fairness| (Lock::Stripe(Striped::builder(1).fairness(fairness).build()), fairness));
}
