//! Models of latches. They use stripes, because stripes have all policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use keylatch::{Fairness, LatchReadGuard, LatchWriteGuard, Striped};
use shuttle::future::{block_on, yield_now};
use shuttle::thread;

use crate::book::{Book, Held, after, impatient};
use crate::spec::Want::{Read, Write};
use crate::walk::Hasher;
use crate::{any_policy, explore, join, random, reaches, run_tasks_and_threads};

struct World {
    locks: Striped<u64, Hasher>,
    /// One key of each stripe.
    keys: [u64; 2],
    book: Arc<Book>,
}

impl World {
    fn new(fairness: Fairness) -> Arc<World> {
        let locks = Striped::builder(2).fairness(fairness).hasher(Hasher::default()).build();
        let keys = [0, 1].map(|stripe| (0..).find(|key| locks.stripe_of(key) == stripe).unwrap());
        Arc::new(World { locks, keys, book: Book::new(fairness, 0) })
    }

    fn close(&self) -> usize {
        assert!(self.keys.iter().all(|key| !self.locks.is_locked(key)), "something is locked");
        self.book.close()
    }

    async fn step(self: &Arc<Self>) {
        let World { locks, keys, book } = &**self;
        // Three of four steps take the same key.
        let key = keys[random(4) as usize / 3];
        match random(9) {
            0 => drop(book.tried(key, Read, || locks.try_read(&key))),
            1 => {
                if let Some(held) = book.tried(key, Write, || locks.try_write(&key)) {
                    written(held).await;
                }
            }
            2 => {
                let until = locks.read(&key).until(after(random(3)));
                drop(book.asked_until(key, Read, until, |output| output).await);
            }
            3 => {
                let until = locks.write(&key).until(after(random(3)));
                if let Ok(held) = book.asked_until(key, Write, until, |output| output).await {
                    written(held).await;
                }
            }
            // The future is dropped while it waits, perhaps after the hand-off.
            4 => match random(2) {
                0 => drop(impatient(random(4), book.asked(key, Read, locks.read(&key))).await),
                _ => drop(impatient(random(4), book.asked(key, Write, locks.write(&key))).await),
            },
            5 | 6 => {
                if let Ok(held) = book.asked(key, Write, locks.write(&key)).await {
                    written(held).await;
                }
            }
            _ => {
                if let Ok(held) = book.asked(key, Read, locks.read(&key)).await {
                    reading(held).await;
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

async fn reading(held: Held<LatchReadGuard<'_>>) {
    yield_now().await;
    drop(held);
}

async fn written(held: Held<LatchWriteGuard<'_>>) {
    yield_now().await;
    match random(3) {
        0 => held.release(|guard| guard.unlock_fair()),
        1 => reading(held.weaken(Read, |guard| guard.downgrade())).await,
        _ => drop(held),
    }
}

/// Threads and tasks make random calls, and two tasks are aborted halfway.
pub fn everything() {
    let world = World::new(any_policy());
    run_tasks_and_threads(|| Arc::clone(&world).steps(3), 5);
    world.close();
}

#[test]
fn everything_at_once() {
    explore(everything);
}

#[test]
fn a_writer_at_the_head_is_passed_exactly_as_often_as_the_bound_allows() {
    reaches::<3>(|fairness| {
        // The world is leaked, because the requests and the guards of this model borrow it.
        let world: &'static World = Box::leak(Box::new(Arc::into_inner(World::new(fairness)).unwrap()));
        let World { locks, keys: [key, _], book } = world;
        let reader = book.tried(*key, Read, || locks.try_read(key));
        let mut head = book.asked(*key, Write, locks.write(key));
        assert!(head.poll_once().is_pending());
        let head = thread::spawn(move || drop(block_on(head)));
        let come = |how: fn(&'static World)| thread::spawn(move || (0..4).for_each(|_| how(world)));
        let newcomers = [
            come(|World { locks, keys: [key, _], book }| drop(block_on(book.asked(*key, Read, locks.read(key))))),
            come(|World { locks, keys: [key, _], book }| drop(book.tried(*key, Write, || locks.try_write(key)))),
            come(|World { locks, keys: [key, _], book }| drop(book.tried(*key, Read, || locks.try_read(key)))),
        ];
        drop(reader);
        head.join().unwrap();
        join(newcomers);
        world.close()
    });
}

/// Threads lock both stripes, with their keys in either order, or a single stripe.
#[test]
fn several_stripes_at_once() {
    explore(|| {
        let world = World::new(any_policy());
        let inside = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let threads = [0, 1, 2].map(|_| {
            let (world, inside) = (Arc::clone(&world), Arc::clone(&inside));
            thread::spawn(move || {
                let World { locks, keys: [one, two], .. } = &*world;
                let alone = |stripes: &[usize]| {
                    stripes.iter().for_each(|&stripe| assert_eq!(inside[stripe].fetch_add(1, Relaxed), 0));
                    thread::yield_now();
                    for &stripe in stripes {
                        inside[stripe].fetch_sub(1, Relaxed);
                    }
                };
                for _ in 0..2 {
                    match random(5) {
                        0 => {
                            let _both = block_on(locks.write_many(&[*two, *one]));
                            alone(&[0, 1]);
                        }
                        1 => {
                            if let Some(_both) = locks.try_write_many(&[*one, *two]) {
                                alone(&[0, 1]);
                            }
                        }
                        2 => {
                            let limit = after(random(3));
                            if let Ok(_both) = block_on(locks.write_many(&[*one, *two]).until(limit)) {
                                alone(&[0, 1]);
                            }
                        }
                        3 => {
                            let (_reads, _writes) = block_on(locks.read_write_many(&[*one], &[*two]));
                            alone(&[1]);
                        }
                        _ => {
                            let _one = block_on(locks.write(one));
                            alone(&[0]);
                        }
                    }
                }
            })
        });
        join(threads);
        world.close();
    });
}
