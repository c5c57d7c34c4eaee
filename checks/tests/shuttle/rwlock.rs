//! Models of the reader-writer lock.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use keylatch::{Fairness, KeyedRwLock, ReadGuard, UpgradableGuard, WriteGuard};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::thread;

use crate::book::{Asked, Book, Held, after, impatient};
use crate::spec::Want::{Read, Upgradable, Write};
use crate::walk::{Hasher, RwLock};
use crate::{any_policy, explore, join, random, reaches, run_tasks_and_threads};

struct World {
    locks: Arc<RwLock>,
    book: Arc<Book>,
}

impl World {
    fn new(fairness: Fairness) -> Arc<World> {
        let builder = KeyedRwLock::builder().shards(1).pool_capacity(1).fairness(fairness);
        let book = Book::new(fairness, 0);
        let locks = Arc::new(builder.on_wait(book.observer()).hasher(Hasher::default()).build());
        Arc::new(World { locks, book })
    }

    /// Checks the end of a run. Returns the largest number of bypasses.
    fn close(&self) -> usize {
        assert_eq!(self.locks.len(), 0, "an entry remained");
        self.book.close()
    }

    /// Makes one random call of a task or a thread.
    async fn step(self: &Arc<Self>) {
        let World { locks, book } = &**self;
        // Three of four steps take the same key.
        let key = random(4) / 3;
        match random(12) {
            0 => drop(book.tried(key, Read, || locks.try_read(&key))),
            1 => {
                if let Some(held) = book.tried(key, Write, || locks.try_write(&key)) {
                    self.written(key, held).await;
                }
            }
            2 => {
                if let Some(held) = book.tried(key, Upgradable, || locks.try_upgradable_read(&key)) {
                    self.upgradable(key, held).await;
                }
            }
            3 => {
                let until = locks.read(&key).until(after(random(3)));
                drop(book.asked_until(key, Read, until, |output| output).await);
            }
            4 => {
                let until = locks.write(&key).until(after(random(3)));
                if let Ok(held) = book.asked_until(key, Write, until, |output| output).await {
                    self.written(key, held).await;
                }
            }
            // The future is dropped while it waits, perhaps after the hand-off.
            5 => match random(3) {
                0 => drop(impatient(random(4), book.asked(key, Read, locks.read(&key))).await),
                1 => drop(impatient(random(4), book.asked(key, Write, locks.write(&key))).await),
                _ => drop(impatient(random(4), book.asked(key, Upgradable, locks.upgradable_read(&key))).await),
            },
            6 => {
                let handle = locks.handle(&key);
                let held = book.asked(key, Read, handle.read()).await;
                drop(handle);
                yield_now().await;
                drop(held);
            }
            7 => {
                book.look(locks.status(&key));
                locks.for_each_key(|_, status| book.look(Some(status)));
            }
            8 => {
                if let Ok(held) = book.asked(key, Upgradable, locks.upgradable_read(&key)).await {
                    self.upgradable(key, held).await;
                }
            }
            9 => {
                if let Ok(held) = book.asked(key, Write, locks.write(&key)).await {
                    self.written(key, held).await;
                }
            }
            _ => {
                if let Ok(held) = book.asked(key, Read, locks.read(&key)).await {
                    self.reading(key, &held).await;
                }
            }
        }
    }

    async fn reading(&self, key: u64, _held: &Held<ReadGuard<'_, u64, Hasher>>) {
        let status = self.locks.status(&key).expect("the key is held");
        assert!(status.readers() >= 1 && status.writers() == 0, "{status:?}");
        yield_now().await;
    }

    /// Checks the key's status while a writer holds it, and then ends the hold in a random way: by a fair release, a
    /// downgrade, or a drop.
    async fn written(&self, key: u64, held: Held<WriteGuard<'_, u64, Hasher>>) {
        let status = self.locks.status(&key).expect("the key is held");
        assert_eq!((status.writers(), status.holders()), (1, 1));
        yield_now().await;
        match random(4) {
            0 => held.release(|guard| guard.unlock_fair()),
            1 => self.reading(key, &held.weaken(Read, |guard| guard.downgrade())).await,
            2 => {
                let held = held.weaken(Upgradable, |guard| guard.downgrade_to_upgradable());
                let status = self.locks.status(&key).expect("the key is held");
                assert_eq!((status.upgradable(), status.writers()), (1, 0));
                Box::pin(self.upgradable(key, held)).await;
            }
            _ => drop(held),
        }
    }

    /// Checks the key's status while an upgradable reader holds it, and then ends or changes the hold in a random way.
    async fn upgradable(&self, key: u64, mut held: Held<UpgradableGuard<'_, u64, Hasher>>) {
        yield_now().await;
        match random(8) {
            0 => self.reading(key, &held.weaken(Read, |guard| guard.downgrade())).await,
            1 => match held.try_upgrade(|guard| guard.try_upgrade()) {
                Ok(held) => self.written(key, held).await,
                Err(held) => drop(held),
            },
            2 => {
                let upgraded = held
                    .upgrade_until(
                        |guard| guard.upgrade().until(after(random(3))),
                        |output| output.map_err(|((), guard)| guard),
                    )
                    .await;
                match upgraded {
                    Ok(held) => self.written(key, held).await,
                    Err(held) => {
                        let status = self.locks.status(&key).expect("the key is held");
                        assert_eq!((status.upgradable(), status.writers(), status.waiting_upgrades()), (1, 0, 0));
                        drop(held);
                    }
                }
            }
            3 => {
                let upgraded = held.upgrade_mut(|guard| guard.upgrade_mut()).await;
                let status = self.locks.status(&key).expect("the key is held");
                assert_eq!((status.writers(), status.holders()), (1, 1));
                yield_now().await;
                drop(upgraded);
                let status = self.locks.status(&key).expect("the key is held");
                assert_eq!((status.upgradable(), status.writers()), (1, 0));
            }
            // The future is dropped while it waits; the hold stays.
            4 => {
                drop(impatient(random(3), held.upgrade_mut(|guard| guard.upgrade_mut())).await);
                let status = self.locks.status(&key).expect("the key is held");
                assert_eq!((status.upgradable(), status.writers(), status.waiting_upgrades()), (1, 0, 0));
            }
            // The future is dropped while it waits; the hold is released.
            5 => drop(impatient(random(3), held.upgrade(|guard| guard.upgrade(), Ok::<_, ()>)).await),
            6 => drop(held),
            _ => {
                if let Ok(held) = held.upgrade(|guard| guard.upgrade(), Ok::<_, ()>).await {
                    self.written(key, held).await;
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
    run_tasks_and_threads(|| Arc::clone(&world).steps(3), 5);
    world.close();
}

#[test]
fn everything_at_once() {
    explore(everything);
}

/// Starts newcomers: a reader, a caller that tries to write, and one that tries to read. Each comes several times.
fn newcomers(world: &Arc<World>) -> [thread::JoinHandle<()>; 3] {
    let come = |how: fn(&World)| {
        let world = Arc::clone(world);
        thread::spawn(move || (0..4).for_each(|_| how(&world)))
    };
    [
        come(|World { locks, book }| drop(block_on(book.asked(0, Read, locks.read(&0))))),
        come(|World { locks, book }| drop(book.tried(0, Write, || locks.try_write(&0)))),
        come(|World { locks, book }| drop(book.tried(0, Read, || locks.try_read(&0)))),
    ]
}

/// Lets a request wait at the head while a reader leaves and others come and go. Returns the largest number of requests
/// that passed one at the head.
fn passes<F, G, R>(world: &Arc<World>, mut head: Asked<F, G, R>, reader: impl Sized) -> usize
where
    F: Future + Send + 'static,
    G: Send + 'static,
    R: Send + 'static,
{
    assert!(head.poll_once().is_pending());
    let head = thread::spawn(move || drop(block_on(head)));
    let newcomers = newcomers(world);
    drop(reader);
    head.join().unwrap();
    join(newcomers);
    world.close()
}

#[test]
fn a_writer_at_the_head_is_passed_exactly_as_often_as_the_bound_allows() {
    reaches::<3>(|fairness| {
        let world = World::new(fairness);
        let World { locks, book } = &*world;
        let reader = book.tried(0, Read, || locks.try_read_arc(&0));
        let head = book.asked(0, Write, locks.write_arc(&0));
        passes(&world, head, reader)
    });
}

#[test]
fn a_waiting_upgrade_is_passed_by_as_many_readers_as_the_bound_allows_and_no_writer() {
    reaches::<3>(|fairness| {
        let world = World::new(fairness);
        let World { locks, book } = &*world;
        let upgradable = book.tried(0, Upgradable, || locks.try_upgradable_read_arc(&0)).unwrap();
        let reader = book.tried(0, Read, || locks.try_read_arc(&0));
        let head = upgradable.upgrade(|guard| guard.upgrade(), Ok::<_, ()>);
        passes(&world, head, reader)
    });
}

#[test]
fn readers_that_wait_when_a_writer_leaves_are_admitted_before_the_next() {
    explore(|| {
        let world = World::new(Fairness::Bounded(random(3) as u16));
        let World { locks, book } = &*world;
        let writer = book.tried(0, Write, || locks.try_write_arc(&0)).unwrap();
        let inside = Arc::new(AtomicUsize::new(0));
        // One writer is before the readers, one behind them, and one is a newcomer.
        let next_writer = || {
            let (asked, inside) = (book.asked(0, Write, locks.write_arc(&0)), Arc::clone(&inside));
            (asked, async move |held| {
                assert_eq!(inside.load(Relaxed), 2, "a writer entered before the waiting readers");
                drop(held);
            })
        };
        let (mut before, before_enters) = next_writer();
        assert!(before.poll_once().is_pending());
        let readers = [0; 2].map(|_| {
            let mut asked = book.asked(0, Read, locks.read_arc(&0));
            assert!(asked.poll_once().is_pending());
            asked
        });
        let (mut behind, behind_enters) = next_writer();
        assert!(behind.poll_once().is_pending());
        let (newcomer, newcomer_enters) = next_writer();
        let writers = [
            thread::spawn(move || block_on(async { before_enters(before.await).await })),
            thread::spawn(move || block_on(async { behind_enters(behind.await).await })),
            thread::spawn(move || block_on(async { newcomer_enters(newcomer.await).await })),
        ];
        let readers = readers.map(|asked| {
            let inside = Arc::clone(&inside);
            thread::spawn(move || {
                let _held = block_on(asked);
                inside.fetch_add(1, Relaxed);
                thread::yield_now();
            })
        });
        match random(4) {
            0 => writer.release(|guard| guard.unlock_fair()),
            1 => drop(writer.weaken(Read, |guard| guard.downgrade())),
            2 => drop(writer.weaken(Upgradable, |guard| guard.downgrade_to_upgradable())),
            _ => drop(writer),
        }
        join(readers);
        join(writers);
        world.close();
    });
}

#[test]
fn readers_are_admitted_when_the_writers_that_keep_them_out_give_up() {
    explore(|| {
        let world = World::new(any_policy());
        let World { locks, book } = &*world;
        // This reader stays throughout the model, so only the end of the writers' waits can admit another reader.
        let reader = book.tried(0, Read, || locks.try_read_arc(&0));
        let writers = [0; 2].map(|_| {
            let asked = book.asked(0, Write, locks.write_arc(&0));
            spawn(async move { drop(asked.await) })
        });
        let readers = [0; 2].map(|_| {
            let asked = book.asked(0, Read, locks.read_arc(&0));
            spawn(async move { drop(asked.await) })
        });
        let upgradable = book.asked(0, Upgradable, locks.upgradable_read_arc(&0));
        let upgradable = spawn(async move { drop(upgradable.await) });
        block_on(async {
            for writer in writers {
                after(random(3)).await;
                writer.abort();
                drop(writer.await);
            }
            for reader in readers {
                reader.await.unwrap();
            }
            upgradable.await.unwrap();
        });
        drop(reader);
        world.close();
    });
}

/// An upgrade is dropped when it has been granted, or is about to be.
#[test]
fn an_upgrade_that_gives_up_admits_the_others() {
    explore(|| {
        let world = World::new(any_policy());
        let World { locks, book } = &*world;
        let upgradable = book.tried(0, Upgradable, || locks.try_upgradable_read_arc(&0)).unwrap();
        let reader = book.tried(0, Read, || locks.try_read_arc(&0));
        let upgrade = upgradable.upgrade(|guard| guard.upgrade(), Ok::<_, ()>);
        let upgrade = spawn(async move { drop(upgrade.await) });
        let others = [Read, Write, Upgradable].map(|want| {
            let world = Arc::clone(&world);
            spawn(async move {
                let World { locks, book } = &*world;
                match want {
                    Read => drop(book.asked(0, Read, locks.read(&0)).await),
                    Write => drop(book.asked(0, Write, locks.write(&0)).await),
                    _ => drop(book.asked(0, Upgradable, locks.upgradable_read(&0)).await),
                }
            })
        });
        let leaver = thread::spawn(move || drop(reader));
        block_on(async {
            after(random(3)).await;
            upgrade.abort();
            drop(upgrade.await);
            for other in others {
                other.await.unwrap();
            }
        });
        leaver.join().unwrap();
        world.close();
    });
}
