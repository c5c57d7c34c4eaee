//! Models of walks over all values of a map: which keys they visit, beside calls that store, change, remove and evict
//! values, in shards that grow and shrink.

use std::sync::Arc;

use keylatch::{LockMap, MapReadGuard, MapWriteGuard};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::thread;

use crate::book::after;
use crate::walk::Hasher;
use crate::{any_policy, explore, join, random};

/// Each key below this one has a value, which is even, except while a writer holds the key.
const STAY: u64 = 2;

/// The number of keys: more than the slots with which a shard begins.
const KEYS: u64 = 7;

type Map = LockMap<u64, u64, Hasher>;

#[derive(Clone, Copy)]
enum Evicts {
    Never,
    ByBound,
    ByHand,
}

fn map(evicts: Evicts) -> Arc<Map> {
    // A shard keeps at most one chunk none of whose slots is in use, and frees the others.
    let builder = LockMap::builder().shards(1 + random(2) as usize).pool_capacity(random(2) as usize);
    let builder = builder.fairness(any_policy()).hasher(Hasher::default());
    let map: Arc<Map> = Arc::new(match evicts {
        Evicts::Never => builder.build(),
        Evicts::ByBound => builder.max_values(3).build(),
        Evicts::ByHand => builder.max_values(3).evict_by_hand().build(),
    });
    (0..STAY).for_each(|key| _ = block_on(map.insert(&key, 0)));
    map
}

async fn reads(guard: &MapReadGuard<'_, u64, u64, Hasher>) {
    let before = guard.value().copied();
    assert!(before.is_some_and(|value| value % 2 == 0), "a reader beside a writer");
    yield_now().await;
    assert_eq!(guard.value().copied(), before, "a writer beside a reader");
}

/// A writer's guard, whose value is odd until the writer has finished or is aborted.
struct Writing<'g, 'm>(&'g mut MapWriteGuard<'m, u64, u64, Hasher>);

impl Drop for Writing<'_, '_> {
    fn drop(&mut self) {
        *self.0.value_mut().expect("it has a value") += 1;
    }
}

async fn writes(guard: &mut MapWriteGuard<'_, u64, u64, Hasher>) {
    let value = guard.value_mut().expect("it has a value");
    assert_eq!(*value % 2, 0, "a writer beside a writer");
    *value += 1;
    let _writing = Writing(guard);
    yield_now().await;
}

/// Walks to the end. Some steps are given up, and made again.
async fn walk(map: &Map) {
    let (mut walk, mut visits) = (map.walk(), [0; KEYS as usize]);
    loop {
        let (writes_it, gives_up) = (random(2) == 0, random(4) == 0);
        let limit = async {
            match gives_up {
                true => after(random(3)).await,
                false => std::future::pending().await,
            }
        };
        let key = if writes_it {
            match walk.next_write().until(Box::pin(limit)).await {
                Err(()) => continue,
                Ok(None) => break,
                Ok(Some(mut guard)) => {
                    writes(&mut guard).await;
                    *guard.key()
                }
            }
        } else {
            match walk.next_read().until(Box::pin(limit)).await {
                Err(()) => continue,
                Ok(None) => break,
                Ok(Some(guard)) => {
                    reads(&guard).await;
                    *guard.key()
                }
            }
        };
        visits[key as usize] += 1;
    }
    let (stay, others) = visits.split_at(STAY as usize);
    assert!(stay.iter().all(|&visits| visits == 1), "keys that stay were visited {stay:?} times");
    assert!(others.iter().all(|&visits| visits <= 1), "keys that come and go were visited {others:?} times");
}

/// Changes or reads a value that stays, and changes one that comes and goes.
async fn change(map: &Map) {
    let (stays, comes) = (random(STAY), STAY + random(KEYS - STAY));
    match random(5) {
        0 => assert!(
            map.compute(&stays, async |value| {
                yield_now().await;
                value
            })
            .await
            .is_some()
        ),
        1 => {
            let mut guard = map.write(&stays).await;
            let value = guard.remove().expect("it stays");
            yield_now().await;
            guard.insert(value + 2);
        }
        2 => writes(&mut map.write(&stays).await).await,
        3 => assert!(map.insert(&stays, 0).await.is_some()),
        _ => reads(&map.read(&stays).await).await,
    }
    match random(4) {
        0 => drop(map.remove(&comes).await),
        1 => drop(map.write(&comes).await.remove()),
        _ => drop(map.insert(&comes, 0).await),
    }
}

/// Evicts a value that nobody uses, if there is one and the map leaves eviction to its user.
async fn evict(map: &Map, evicts: Evicts) {
    if let Evicts::ByHand = evicts {
        let Some(mut guard) = map.try_next_eviction() else { return };
        assert!(*guard.key() >= STAY, "a value in use was chosen");
        yield_now().await;
        guard.remove();
    }
}

fn everything_with(evicts: Evicts) {
    let map = map(evicts);
    // Values whose keys have handles are not evicted.
    let handles: Vec<_> = (0..STAY).map(|key| map.handle(&key)).collect();
    let changers = [2, 1].map(|steps| {
        let map = Arc::clone(&map);
        thread::spawn(move || {
            block_on(async {
                for _ in 0..steps {
                    change(&map).await;
                    evict(&map, evicts).await;
                }
            });
        })
    });
    let quits = {
        let map = Arc::clone(&map);
        spawn(async move { walk(&map).await })
    };
    let walker = {
        let map = Arc::clone(&map);
        thread::spawn(move || block_on(walk(&map)))
    };
    block_on(async {
        after(random(8)).await;
        quits.abort();
        drop(quits.await);
    });
    join(changers);
    join([walker]);
    assert!((0..KEYS).all(|key| !map.is_locked(&key)), "a key remained locked");
    assert!((0..STAY).all(|key| map.contains_key(&key)));
    drop(handles);
    assert_eq!(map.entries(), map.len(), "an entry remained");
}

pub fn everything() {
    everything_with([Evicts::Never, Evicts::ByBound, Evicts::ByHand][random(3) as usize]);
}

#[test]
fn a_value_that_stays_is_visited_once_and_any_other_key_at_most_once() {
    explore(everything);
}
