//! Models of the mutex. Its keys are strings, which are dropped or recycled. So entries are created in two steps,
//! except those whose key overwrites an old one.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use keylatch::{Fairness, KeyedMutex};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::thread::{self, JoinHandle};

use crate::book::{Book, after, impatient};
use crate::spec::Want::Write;
use crate::walk::Hasher;
use crate::{any_policy, explore, join, most, quit_and_stay, random, reaches, run_tasks_and_threads};

type Table = KeyedMutex<String, Hasher>;

const NAMES: [&str; 2] = ["a", "b"];

struct World {
    locks: Arc<Table>,
    book: Arc<Book>,
    /// The threads that tasks have started. They continue even if the task is aborted.
    others: Mutex<Vec<JoinHandle<()>>>,
}

impl World {
    fn new(fairness: Fairness) -> Arc<World> {
        let builder = KeyedMutex::builder().shards(1).pool_capacity(random(2) as usize).recycle_keys(random(2) == 0);
        let book = Book::new(fairness, 0);
        let builder = builder.fairness(fairness).on_wait(book.observer());
        let locks = Arc::new(builder.hasher(Hasher::default()).build());
        Arc::new(World { locks, book, others: Mutex::default() })
    }

    /// Checks the end of a run.
    fn close(&self) -> usize {
        let others = std::mem::take(&mut *self.others.lock().unwrap());
        join(others);
        assert_eq!(self.locks.len(), 0, "an entry remained");
        self.book.close()
    }

    /// Starts a thread that is joined in the end. The lock is not one of shuttle's, because no step of the model
    /// happens under it.
    fn start(&self, run: impl FnOnce() + Send + 'static) {
        let other = thread::spawn(run);
        self.others.lock().unwrap().push(other);
    }

    /// Makes one random call of a task or a thread.
    async fn step(self: &Arc<Self>) {
        let World { locks, book, .. } = &**self;
        let key = random(2);
        let name = NAMES[key as usize];
        match random(10) {
            0 => {
                let held = book.tried(key, Write, || locks.try_lock(name));
                if held.is_some() {
                    yield_now().await;
                }
            }
            1 => {
                let until = locks.lock(name).until(after(random(3)));
                if let Ok(_held) = book.asked_until(key, Write, until, |output| output).await {
                    yield_now().await;
                }
            }
            // The future is dropped while it waits, perhaps after the hand-off.
            2 => drop(impatient(random(4), book.asked(key, Write, locks.lock(name))).await),
            3 => {
                let handle = locks.handle(name);
                let held = book.asked(key, Write, handle.lock()).await;
                drop(handle);
                yield_now().await;
                drop(held);
            }
            4 => {
                let handle = locks.handle_arc(name);
                drop(book.tried(key, Write, || handle.try_lock()));
                drop(book.asked(key, Write, handle.clone().lock()).await);
            }
            5 => {
                if let Ok(held) = book.asked(key, Write, locks.lock(name)).await {
                    yield_now().await;
                    held.release(|guard| guard.unlock_fair());
                }
            }
            // The guard is released by another thread.
            6 => {
                let held = book.asked(key, Write, locks.lock_arc(name)).await;
                self.start(move || drop(held));
            }
            // The request begins here with this task's waker, and is finished by another thread.
            7 => {
                let mut asked = impatient(1, book.asked(key, Write, locks.lock_arc(name)));
                if (&mut asked).await.is_none() {
                    self.start(move || drop(block_on(asked.into_inner())));
                }
            }
            8 => {
                book.look(locks.status(name));
                let mut visited = 0;
                locks.for_each_key(|name, status| {
                    assert!(NAMES.contains(&name.as_str()));
                    book.look(Some(status));
                    visited += 1;
                });
                assert!(visited <= NAMES.len(), "a key has two entries");
            }
            _ => {
                if let Ok(mut held) = book.asked(key, Write, locks.lock(name)).await {
                    assert_eq!(held.guard().key(), name);
                    let status = locks.status(name).expect("the key is held");
                    assert_eq!((status.writers(), status.holders()), (1, 1));
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
    let world = World::new(any_policy());
    run_tasks_and_threads(|| Arc::clone(&world).steps(3), 4);
    world.close();
}

#[test]
fn everything_at_once() {
    explore(everything);
}

/// Lets a request wait at the head while others come and go. Returns the largest number that passed one at the head.
fn passes(fairness: Fairness) -> usize {
    let world = World::new(fairness);
    let World { locks, book, .. } = &*world;
    let first = book.tried(0, Write, || locks.try_lock_arc("a"));
    let mut head = book.asked(0, Write, locks.lock_arc("a"));
    assert!(head.poll_once().is_pending());
    assert_eq!(locks.status("a").unwrap().waiters(), 1);
    // The future is polled in a different task from before.
    let head = thread::spawn(move || drop(block_on(head)));
    let newcomer = |tries| {
        let world = Arc::clone(&world);
        async move {
            for _ in 0..4 {
                let World { locks, book, .. } = &*world;
                if tries {
                    drop(book.tried(0, Write, || locks.try_lock("a")));
                } else {
                    drop(book.asked(0, Write, locks.lock("a")).await);
                }
            }
        }
    };
    let (tries, waits) = (newcomer(true), newcomer(false));
    let newcomers = [thread::spawn(move || block_on(tries)), thread::spawn(move || block_on(waits))];
    drop(first);
    head.join().unwrap();
    join(newcomers);
    world.close()
}

#[test]
fn a_waiter_at_the_head_is_passed_exactly_as_often_as_the_bound_allows() {
    reaches::<4>(passes);
}

#[test]
fn a_waiter_in_a_fifo_queue_is_never_passed() {
    most([Fairness::Fifo], passes, |_, most| assert_eq!(most, 0));
}

#[test]
fn a_waiter_is_passed_without_a_bound_under_barging() {
    most([Fairness::Barging], passes, |_, most| assert!(most > 4));
}

/// Waiters give up at any moment, perhaps after they were handed the key, and others still acquire it.
#[test]
fn a_key_handed_to_a_waiter_that_gives_up_goes_to_the_next() {
    explore(|| {
        let world = World::new(any_policy());
        let World { locks, book, .. } = &*world;
        let first = book.tried(0, Write, || locks.try_lock_arc("a"));
        let wait = || {
            let asked = book.asked(0, Write, locks.lock_arc("a"));
            spawn(async move { drop(asked.await) })
        };
        let (quitters, stayers) = ([wait(), wait(), wait()], [wait(), wait()]);
        let releaser = thread::spawn(move || drop(first));
        quit_and_stay(quitters, stayers);
        releaser.join().unwrap();
        world.close();
    });
}

#[test]
fn unlock_fair_admits_no_newcomer_in_between() {
    explore(|| {
        let world = World::new(any_policy());
        let World { locks, book, .. } = &*world;
        let first = book.tried(0, Write, || locks.try_lock_arc("a")).unwrap();
        let mut next = book.asked(0, Write, locks.lock_arc("a"));
        assert!(next.poll_once().is_pending());
        let entered = Arc::new(AtomicUsize::new(0));
        let newcomers = [true, false].map(|tries| {
            let (world, entered) = (Arc::clone(&world), Arc::clone(&entered));
            thread::spawn(move || {
                let World { locks, book, .. } = &*world;
                let held = match tries {
                    true => book.tried(0, Write, || locks.try_lock("a")),
                    false => block_on(book.asked(0, Write, locks.lock("a"))).ok(),
                };
                entered.fetch_add(usize::from(held.is_some()), Relaxed);
            })
        });
        let next = {
            let entered = Arc::clone(&entered);
            thread::spawn(move || {
                let _held = block_on(next);
                assert_eq!(entered.load(Relaxed), 0, "a newcomer acquired the key in between");
            })
        };
        first.release(|guard| guard.unlock_fair());
        next.join().unwrap();
        join(newcomers);
        world.close();
    });
}

/// Threads that hold many keys at the same time: slots are allocated and freed in groups, which several threads use.
#[test]
fn slots_are_allocated_and_freed_in_groups() {
    explore(|| {
        let pool = random(12) as usize;
        let builder = KeyedMutex::builder().shards(1).pool_capacity(pool).recycle_keys(random(2) == 0);
        let locks: Arc<Table> = Arc::new(builder.hasher(Hasher::default()).build());
        let book = Book::new(Fairness::default(), 0);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (locks, book) = (Arc::clone(&locks), Arc::clone(&book));
                thread::spawn(move || {
                    let mut held = Vec::new();
                    for _ in 0..16 {
                        // Releases a key in one step of four, so that the thread comes to hold several. With nine keys
                        // held, always releases one.
                        if held.len() > 8 || !held.is_empty() && random(4) == 0 {
                            drop(held.swap_remove(random(held.len() as u64) as usize));
                        } else {
                            let key = random(24);
                            let name = key.to_string();
                            if let Some(mut guard) = book.tried(key, Write, || locks.try_lock_arc(name.as_str())) {
                                assert_eq!(*guard.guard().key(), name);
                                held.push(guard);
                            }
                        }
                    }
                    for mut held in held {
                        assert_eq!(held.guard().key().parse(), Ok(held.key()));
                    }
                })
            })
            .collect();
        join(threads);
        assert_eq!(locks.len(), 0, "an entry remained");
        book.close();
    });
}

/// Three threads create, find and retire the entries of the same two keys, with no waiters.
#[test]
fn entries_are_created_and_retired_once() {
    explore(|| {
        let world = World::new(any_policy());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let World { locks, book, .. } = &*world;
                    for _ in 0..4 {
                        let key = random(2);
                        let name = NAMES[key as usize];
                        match random(4) {
                            0 => drop(locks.handle(name)),
                            1 => drop(locks.lock(name)),
                            _ => {
                                if let Some(mut held) = book.tried(key, Write, || locks.try_lock(name)) {
                                    assert!(locks.try_lock(name).is_none());
                                    assert_eq!(held.guard().key(), name);
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        join(threads);
        world.close();
    });
}
