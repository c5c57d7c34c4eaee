//! Threads and tasks, most of them with the system's clock, and with leases so short that they may end at any point.
//! The checks must hold whatever the timing is.
//!
//! No test relies on how long anything takes. A lease may end between a check and the next action, so the data is
//! guarded as it must be outside of a test: by a [`Fence`], at each read and each write.
#![cfg(feature = "std")] // threads that block

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use keylatch_lease::{
    AcquireError, Clock, Expiry, Fence, Grant, Leases, Lost, ManualClock, Memory, Owner, Resource, Token,
};

const ROUNDS: u64 = if cfg!(debug_assertions) { 1_000 } else { 10_000 };
const RESOURCES: usize = 3;

const fn us(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// The data that the leases guard: a number that is read, and written back later.
struct Guarded {
    resource: Resource,
    fence: Fence,
    value: Mutex<u64>,
    written: AtomicU64,
    /// The greatest token that any call has reported as held so far.
    confirmed: AtomicU64,
}

impl Guarded {
    fn all() -> [Guarded; RESOURCES] {
        std::array::from_fn(|n| Guarded {
            resource: Resource::new("stress", n.to_string()),
            fence: Fence::new(),
            value: Mutex::new(0),
            written: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
        })
    }

    fn read(&self, token: Token) -> Option<u64> {
        let value = self.value.lock().unwrap();
        self.fence.admit(&self.resource, token).ok().map(|()| *value)
    }

    fn write(&self, token: Token, new: u64) -> bool {
        let mut value = self.value.lock().unwrap();
        let admitted = self.fence.admit(&self.resource, token).is_ok();
        if admitted {
            *value = new;
            self.written.fetch_add(1, SeqCst);
        }
        admitted
    }

    /// Asks whether the tenure with this token is held. If it is, checks that no later tenure had been reported as held
    /// before the question.
    fn confirm(&self, token: Token, is_held: impl FnOnce() -> bool) -> bool {
        let before = self.confirmed.load(SeqCst);
        let held = is_held();
        if held {
            assert!(token.get() >= before, "{token} is held, and {before} was before");
            self.confirmed.fetch_max(token.get(), SeqCst);
        }
        held
    }

    /// Acquires, and checks that the tenure, new or resumed, is not older than one that was held before the request.
    fn acquired<X>(&self, acquire: impl FnOnce() -> Result<Grant, X>) -> Result<Grant, X> {
        let before = self.confirmed.load(SeqCst);
        let acquired = acquire();
        if let Ok(grant) = &acquired {
            assert!(grant.token().get() >= before, "{grant:?} after {before}");
        }
        acquired
    }

    /// Takes a turn with the lease: reads, waits and writes, and asks before, between and after whether it is held.
    fn turn(&self, token: Token, think: impl FnOnce(), is_held: impl Fn() -> bool) {
        self.confirm(token, &is_held);
        let Some(value) = self.read(token) else { return };
        think();
        self.confirm(token, &is_held);
        self.write(token, value + 1);
        self.confirm(token, &is_held);
    }

    fn check(&self) {
        assert_eq!(*self.value.lock().unwrap(), self.written.load(SeqCst), "updates were lost");
    }
}

/// Returns whether `status` reports this tenure.
fn is_held<C: Clock>(table: &Leases<Memory<C>>, guarded: &Guarded, token: Token) -> bool {
    table.status_now(&guarded.resource).unwrap().is_some_and(|status| status.token() == token)
}

#[test]
fn threads_with_short_leases_lose_no_update_and_no_wake_up() {
    let table = Leases::in_memory();
    let all = Guarded::all();
    let turns = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (table, all, turns) = (&table, &all, &turns);
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                let owner = Owner::named(format!("owner {thread}"));
                for _ in 0..ROUNDS {
                    let guarded = &all[random.next(RESOURCES as u64) as usize];
                    let resource = &guarded.resource;
                    let ttl = us(50 + random.next(2000));
                    let think = random.next(200);
                    let think =
                        || if think < 20 { std::thread::sleep(us(think * 100)) } else { std::thread::yield_now() };
                    let acquired = match random.next(6) {
                        0 => {
                            let held = table.hold_blocking(resource, &owner, ttl).unwrap();
                            guarded.turn(held.token(), think, || held.check().is_ok());
                            continue;
                        }
                        1 => guarded.acquired(|| table.try_acquire_now(resource, &owner, ttl)),
                        2 => guarded.acquired(|| table.acquire_for(resource, &owner, ttl, us(random.next(3000)))),
                        3 => guarded.acquired(|| table.acquire(resource, &owner, ttl).fresh_token().wait()),
                        4 => {
                            // The request may be dropped at any moment.
                            let mut future = Box::pin(table.acquire(resource, &owner, ttl));
                            let mut poll = || future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                            match poll() {
                                Poll::Ready(acquired) => acquired,
                                Poll::Pending => {
                                    think();
                                    match poll() {
                                        Poll::Ready(acquired) => acquired,
                                        Poll::Pending => continue,
                                    }
                                }
                            }
                        }
                        _ => guarded.acquired(|| table.acquire_blocking(resource, &owner, ttl)),
                    };
                    match acquired {
                        Ok(grant) => {
                            turns.fetch_add(1, SeqCst);
                            guarded.turn(grant.token(), think, || is_held(table, guarded, grant.token()));
                            match random.next(4) {
                                0 => {} // the holder dies, and releases nothing
                                1 => drop(table.renew_now(&grant).map(|grant| table.release_now(&grant))),
                                _ => drop(table.release_now(&grant)),
                            }
                        }
                        Err(AcquireError::Busy { .. } | AcquireError::Limit { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                    if random.next(50) == 0 {
                        table.release_all_now(&owner).unwrap();
                    }
                }
                table.release_all_now(&owner).unwrap();
            });
        }
    });
    all.iter().for_each(Guarded::check);
    assert!(turns.load(SeqCst) > 0);
    assert_eq!(table.len(), 0);
    assert_eq!(table.tick(), None);
}

#[test]
fn tasks_with_short_leases_lose_no_update_and_no_wake_up() {
    let table = Arc::new(Leases::in_memory());
    let all = Arc::new(Guarded::all());
    let executor = Arc::new(smol::Executor::new());
    let tasks: Vec<_> = (0..30)
        .map(|n| {
            let (table, all) = (table.clone(), all.clone());
            executor.spawn(async move {
                let mut random = Random(n + 100);
                let owner = Owner::named(format!("owner {}", n % 20)); // some tasks share an owner
                for _ in 0..ROUNDS / 10 {
                    let guarded = &all[random.next(RESOURCES as u64) as usize];
                    let resource = &guarded.resource;
                    let ttl = us(100 + random.next(3000));
                    let pause = us(random.next(300));
                    match random.next(4) {
                        0 => {
                            let Ok(mut held) =
                                table.hold(resource, &owner, ttl).until(smol::Timer::after(us(5000))).await
                            else {
                                continue;
                            };
                            let token = held.token();
                            let work = async {
                                let value = guarded.read(token);
                                smol::Timer::after(pause * 3).await;
                                value.map(|value| guarded.write(token, value + 1))
                            };
                            let _lost_perhaps = held.run(work).await;
                            guarded.confirm(token, || held.check().is_ok());
                        }
                        1 => {
                            let held = table.hold_arc(resource, &owner, ttl).await.unwrap();
                            let renewal = smol::spawn(held.renewal());
                            let token = held.token();
                            let value = guarded.read(token);
                            smol::Timer::after(pause).await;
                            if guarded.confirm(token, || held.check().is_ok()) {
                                value.map(|value| guarded.write(token, value + 1));
                            }
                            drop(held);
                            renewal.await;
                        }
                        _ => {
                            let limit = smol::Timer::after(us(random.next(5000)));
                            let Ok(grant) = table.acquire(resource, &owner, ttl).until(limit).await else { continue };
                            let value = guarded.read(grant.token());
                            smol::Timer::after(pause).await;
                            // Two tasks of one owner may have the same tenure, and then the fence admits both. So here
                            // only tasks that do not share their owner write.
                            if n % 20 >= 10 {
                                value.map(|value| guarded.write(grant.token(), value + 1));
                            }
                            guarded.confirm(grant.token(), || is_held(&table, guarded, grant.token()));
                            if random.next(4) != 0 {
                                let _stale_perhaps = table.release(&grant).await;
                            }
                        }
                    }
                }
            })
        })
        .collect();
    std::thread::scope(|scope| {
        let done = smol::channel::bounded::<()>(1);
        for _ in 0..2 {
            let (executor, done) = (executor.clone(), done.1.clone());
            scope.spawn(move || smol::block_on(executor.run(done.recv())).is_err());
        }
        for task in tasks {
            smol::block_on(task);
        }
        drop(done.0);
    });
    all.iter().for_each(Guarded::check);
    std::thread::sleep(Duration::from_millis(10)); // so that the leases that were not released expire
    assert_eq!(table.len(), 0);
    for guarded in all.iter() {
        table.try_acquire_now(&guarded.resource, &Owner::named("last"), us(1)).unwrap();
    }
}

/// The time leaps while other threads make calls, so that calls often come exactly at the end of a lease.
#[test]
fn threads_with_leaping_time_lose_no_update_and_no_wake_up() {
    let clock = ManualClock::new();
    let table = Leases::in_memory_with(clock.clone());
    let all = Guarded::all();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..5)
            .map(|thread| {
                let (table, all) = (&table, &all);
                scope.spawn(move || {
                    let mut random = Random(thread + 7);
                    let owner = Owner::named(format!("owner {thread}"));
                    for _ in 0..ROUNDS {
                        let guarded = &all[random.next(RESOURCES as u64) as usize];
                        let ttl = us(1 + random.next(50));
                        if random.next(3) == 0 {
                            let held = table.hold_blocking(&guarded.resource, &owner, ttl).unwrap();
                            guarded.turn(held.token(), std::thread::yield_now, || held.check().is_ok());
                        } else {
                            let expiry = if random.next(2) == 0 {
                                Expiry::Sliding(ttl)
                            } else {
                                Expiry::SlidingUpTo { idle: ttl, total: ttl * 3 }
                            };
                            let grant = guarded.acquired(|| table.acquire_blocking(&guarded.resource, &owner, expiry));
                            let grant = grant.unwrap();
                            let is_held = || is_held(table, guarded, grant.token());
                            guarded.turn(grant.token(), std::thread::yield_now, is_held);
                            let renewed = table.renew_now(&grant);
                            assert!(renewed.is_err() || renewed.is_ok_and(|renewed| renewed.token() == grant.token()));
                            if random.next(2) == 0 {
                                let _stale_perhaps = table.release_now(&grant);
                            }
                        }
                    }
                    table.release_all_now(&owner).unwrap();
                })
            })
            .collect();
        let (clock, table, over) = (&clock, &table, &over);
        scope.spawn(move || {
            let mut random = Random(99);
            while !over.load(SeqCst) {
                clock.advance(us(random.next(20)));
                if let Some(next) = table.tick() {
                    if random.next(2) == 0 {
                        clock.advance(next);
                    }
                }
                if random.next(100) == 0 {
                    table.release_expired_now().unwrap();
                }
                std::thread::yield_now();
            }
        });
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        over.store(true, SeqCst);
        assert!(ended.iter().all(Result::is_ok));
    });
    all.iter().for_each(Guarded::check);
    assert_eq!(table.len(), 0);
    assert_eq!(table.tick(), None);
}

/// Many threads take turns. Every thread gets its turn, although no lease ever expires.
#[test]
fn every_release_admits_the_next_thread() {
    let table = Leases::in_memory();
    let count = Mutex::new(0);
    const THREADS: u64 = 8;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, count) = (&table, &count);
            scope.spawn(move || {
                let owner = Owner::named(format!("owner {thread}"));
                for _ in 0..ROUNDS / 4 {
                    let grant = table.acquire_blocking("a", &owner, Expiry::Never).unwrap();
                    *count.try_lock().expect("no other owner has the lease") += 1;
                    table.release_now(&grant).unwrap();
                }
            });
        }
    });
    assert_eq!(*count.lock().unwrap(), THREADS * (ROUNDS / 4));
    assert_eq!(table.len(), 0);
}

/// Only `release_all` ends the tenures of ann, so its counts must add up to the number of tenures that began. The other
/// owner's leases stay.
#[test]
fn release_all_counts_each_tenure_once_while_others_begin() {
    const KEYS: u64 = 50;
    let table = Leases::in_memory();
    let (ann, bob) = (Owner::named("ann"), Owner::named("bob"));
    let of_bob: Vec<_> =
        (0..KEYS).map(|n| table.try_acquire_now(("bob's", &*n.to_string()), &bob, Expiry::Never).unwrap()).collect();
    let (begun, released) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (table, ann, begun, released) = (&table, &ann, &begun, &released);
            scope.spawn(move || {
                let mut random = Random(thread + 31);
                let waiter = Owner::named(format!("waiter {thread}"));
                for _ in 0..ROUNDS * 2 {
                    let key = random.next(KEYS).to_string();
                    if random.next(40) == 0 {
                        released.fetch_add(table.release_all_now(ann).unwrap() as u64, SeqCst);
                    } else if random.next(10) == 0 {
                        assert!(table.try_acquire_now(("bob's", &*key), ann, Expiry::Never).is_err());
                    } else if random.next(10) == 0 {
                        // Another owner waits for ann's resource, and gives up.
                        let limit = table.acquire(("ann's", &*key), &waiter, Expiry::Never).wait_for(Duration::ZERO);
                        limit.into_iter().for_each(|grant| table.release_now(&grant).unwrap());
                    } else {
                        match table.try_acquire_now(("ann's", &*key), ann, Expiry::Never) {
                            Ok(grant) if !grant.is_resumed() => drop(begun.fetch_add(1, SeqCst)),
                            Ok(_) | Err(AcquireError::Busy { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            });
        }
    });
    released.fetch_add(table.release_all_now(&ann).unwrap() as u64, SeqCst);
    assert_eq!(begun.load(SeqCst), released.load(SeqCst));
    for grant in &of_bob {
        table.renew_now(grant).unwrap();
    }
    assert_eq!(table.release_all_now(&bob).unwrap() as u64, KEYS);
    assert_eq!(table.len(), 0);
}

/// One thread waits for the loss of a lease, and another causes the loss at a random moment.
#[test]
fn no_loss_is_missed() {
    let table = Leases::in_memory();
    let owner = Owner::named("owner");
    let round = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (table, owner, round) = (&table, &owner, &round);
        scope.spawn(move || {
            let mut random = Random(5);
            for n in 1..=ROUNDS {
                while round.load(SeqCst) < n {
                    std::thread::yield_now();
                }
                (0..random.next(300)).for_each(|_| std::hint::spin_loop());
                assert_eq!(table.release_all_now(owner).unwrap(), 1);
            }
        });
        for n in 1..=ROUNDS {
            // If the release were missed, `lost` would be `Expired` after a minute; a renewal or a run would last 20 s.
            let mut held = table.hold_blocking("a", owner, Duration::from_secs(60)).unwrap();
            round.store(n, SeqCst);
            let lost = match n % 3 {
                0 => held.lost().wait(),
                1 => held.renewal().wait(),
                _ => held.run(std::future::pending::<()>()).wait().unwrap_err(),
            };
            assert_eq!(lost, Lost::Released);
        }
    });
    assert_eq!(table.len(), 0);
}
