//! Models of the semaphore.

use std::sync::Arc;

use keylatch::{Fairness, KeyedSemaphore};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::thread;

use crate::book::{Book, after, impatient};
use crate::spec::Want::{self, Permits};
use crate::walk::{Hasher, Semaphore};
use crate::{any_policy, explore, join, quit_and_stay, random, reaches, run_tasks_and_threads};

const ONE: Want = Permits(1);

struct World {
    hosts: Arc<Semaphore>,
    book: Arc<Book>,
}

impl World {
    fn new(permits: usize, fairness: Fairness) -> Arc<World> {
        let builder = KeyedSemaphore::builder(permits).shards(1).pool_capacity(1).fairness(fairness);
        let book = Book::new(fairness, permits);
        let hosts = Arc::new(builder.on_wait(book.observer()).hasher(Hasher::default()).build());
        Arc::new(World { hosts, book })
    }

    /// Checks the end of a run: every permit is available again.
    fn close(&self) -> usize {
        assert_eq!(self.hosts.len(), 0, "an entry remained");
        let permits: Vec<_> = (0..self.hosts.permits()).map(|_| self.hosts.try_acquire(&0)).collect();
        assert!(permits.iter().all(Option::is_some) && self.hosts.try_acquire(&0).is_none());
        self.book.close()
    }

    /// Makes one random call of a task or a thread.
    async fn step(self: &Arc<Self>) {
        let World { hosts, book } = &**self;
        // Three of four steps take the same key. Usually they take one permit.
        let key = random(4) / 3;
        let n = 1 + (random(2) * random(hosts.permits() as u64)) as usize;
        let want = Permits(n as u32);
        match random(9) {
            0 => {
                let permits = [0; 2].map(|_| book.tried(key, ONE, || hosts.try_acquire(&key)));
                let several = book.tried(key, want, || hosts.try_acquire_n(&key, n));
                yield_now().await;
                drop((permits, several));
            }
            1 => {
                let until = hosts.acquire_n(&key, n).until(after(random(3)));
                drop(book.asked_until(key, want, until, |output| output).await);
            }
            // The future is dropped while it waits, perhaps after the hand-off.
            2 => drop(impatient(random(4), book.asked(key, want, hosts.acquire_n(&key, n))).await),
            3 => {
                let handle = hosts.handle(&key);
                let held = book.asked(key, want, handle.acquire_n(n)).await;
                drop(handle);
                yield_now().await;
                drop(held);
            }
            4 => {
                if let Ok(held) = book.asked(key, want, hosts.acquire_n(&key, n)).await {
                    yield_now().await;
                    held.release(|permits| permits.unlock_fair());
                }
            }
            5 => {
                book.look(hosts.status(&key));
                hosts.for_each_key(|_, status| book.look(Some(status)));
            }
            6 => {
                if let Ok(mut held) = book.asked(key, want, hosts.acquire_n(&key, n)).await {
                    let part = held.split(1, |permits| permits.split(1));
                    yield_now().await;
                    drop(held);
                    yield_now().await;
                    drop(part);
                }
            }
            _ => {
                if let Ok(_held) = book.asked(key, ONE, hosts.acquire(&key)).await {
                    let status = hosts.status(&key).expect("the key is held");
                    assert!((1..=hosts.permits()).contains(&status.permits()), "{status:?}");
                    yield_now().await;
                }
            }
        }
    }

    async fn steps(self: Arc<Self>, steps: usize) {
        for _ in 0..steps {
            self.step().await;
        }
    }
}

/// Threads and tasks make random calls, and two tasks are aborted halfway.
pub fn everything() {
    let world = World::new(1 + random(3) as usize, any_policy());
    run_tasks_and_threads(|| Arc::clone(&world).steps(3), 4);
    world.close();
}

#[test]
fn everything_at_once() {
    explore(everything);
}

#[test]
fn a_waiter_at_the_head_is_passed_exactly_as_often_as_the_bound_allows() {
    reaches::<3>(|fairness| {
        let world = World::new(1, fairness);
        let World { hosts, book } = &*world;
        let first = book.tried(0, ONE, || hosts.try_acquire_arc(&0));
        let mut head = book.asked(0, ONE, hosts.acquire_arc(&0));
        assert!(head.poll_once().is_pending());
        let head = thread::spawn(move || drop(block_on(head)));
        let newcomers = [true, false].map(|tries| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let World { hosts, book } = &*world;
                for _ in 0..4 {
                    match tries {
                        true => drop(book.tried(0, ONE, || hosts.try_acquire(&0))),
                        false => drop(block_on(book.asked(0, ONE, hosts.acquire(&0)))),
                    }
                }
            })
        });
        drop(first);
        head.join().unwrap();
        join(newcomers);
        world.close()
    });
}

/// A request for all permits is at the head while small ones come and go: they pass it as often as the bound allows.
#[test]
fn a_request_for_all_permits_at_the_head_is_passed_as_often_as_the_bound_allows() {
    reaches::<3>(|fairness| {
        let world = World::new(2, fairness);
        let World { hosts, book } = &*world;
        let held = [0; 2].map(|_| book.tried(0, ONE, || hosts.try_acquire_arc(&0)));
        let mut head = book.asked(0, Permits(2), hosts.acquire_n_arc(&0, 2));
        assert!(head.poll_once().is_pending());
        let head = thread::spawn(move || drop(block_on(head)));
        let newcomers = [true, false].map(|tries| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let World { hosts, book } = &*world;
                for _ in 0..4 {
                    match tries {
                        true => drop(book.tried(0, ONE, || hosts.try_acquire(&0))),
                        false => drop(block_on(book.asked(0, ONE, hosts.acquire(&0)))),
                    }
                }
            })
        });
        let releasers = held.map(|permit| thread::spawn(move || drop(permit)));
        head.join().unwrap();
        join(newcomers);
        join(releasers);
        world.close()
    });
}

/// Several permits are released while some of the requests to which they are handed give up.
#[test]
fn released_permits_reach_the_requests_that_remain() {
    explore(|| {
        let world = World::new(2, any_policy());
        let World { hosts, book } = &*world;
        let held = [0; 2].map(|_| book.tried(0, ONE, || hosts.try_acquire_arc(&0)));
        let wait = |n: u32| {
            let asked = book.asked(0, Permits(n), hosts.acquire_n_arc(&0, n as usize));
            spawn(async move {
                let _held = asked.await;
                yield_now().await;
            })
        };
        let any = || wait(1 + random(2) as u32);
        let (quitters, stayers) = ([any(), wait(1)], [wait(1), any(), any()]);
        let releasers = held.map(|permit| thread::spawn(move || drop(permit)));
        quit_and_stay(quitters, stayers);
        join(releasers);
        world.close();
    });
}
