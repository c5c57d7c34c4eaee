//! Models of requests with priorities. Their order is checked in the [histories](crate::histories); this checks that
//! every request is served, beside others that give up at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use keylatch::{Fairness, KeyedRwLock};
use shuttle::future::{block_on, spawn, yield_now};

use crate::book::{after, impatient};
use crate::walk::Hasher;
use crate::{any_policy, explore, random};

/// The number of holders, as counted by the holders themselves.
#[derive(Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
}

impl Inside {
    async fn read(&self) {
        self.readers.fetch_add(1, Relaxed);
        assert_eq!(self.writers.load(Relaxed), 0);
        yield_now().await;
        self.readers.fetch_sub(1, Relaxed);
    }

    async fn write(&self) {
        assert_eq!((self.writers.fetch_add(1, Relaxed), self.readers.load(Relaxed)), (0, 0));
        yield_now().await;
        self.writers.fetch_sub(1, Relaxed);
    }
}

async fn step(locks: &KeyedRwLock<u64, Hasher>, inside: &Inside) {
    let priority = [0, 0, 1, 2, 9, 255][random(6) as usize];
    match random(8) {
        0 | 1 => {
            let guard = locks.read(&7).priority(priority).await;
            inside.read().await;
            drop(guard);
        }
        2 | 3 => {
            let guard = locks.write(&7).priority(priority).await;
            inside.write().await;
            if random(2) == 0 { drop(guard) } else { guard.unlock_fair() }
        }
        4 => {
            let guard = locks.upgradable_read(&7).priority(priority).await;
            let guard = guard.upgrade().await;
            inside.write().await;
            drop(guard);
        }
        5 => {
            if let Some(guard) = impatient(random(4), locks.write(&7).priority(priority)).await {
                inside.write().await;
                drop(guard);
            }
        }
        6 => {
            if let Ok(guard) = locks.read(&7).priority(priority).until(after(random(3))).await {
                inside.read().await;
                drop(guard);
            }
        }
        _ => {
            if let Some(guard) = locks.try_write(&7) {
                inside.write().await;
                drop(guard);
            }
        }
    }
}

fn mixed(fairness: Fairness) {
    let locks = KeyedRwLock::builder().shards(1).fairness(fairness).hasher(Hasher::default()).build();
    let (locks, inside) = (Arc::new(locks), Arc::new(Inside::default()));
    let tasks = (0..4).map(|_| {
        let (locks, inside) = (Arc::clone(&locks), Arc::clone(&inside));
        spawn(async move {
            for _ in 0..3 {
                step(&locks, &inside).await;
            }
        })
    });
    let tasks = tasks.collect::<Vec<_>>();
    block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(locks.is_empty(), "an entry remained");
}

#[test]
fn every_request_is_served() {
    explore(|| mixed(any_policy()));
}
