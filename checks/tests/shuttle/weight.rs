//! Models of a map that weighs its values while tasks use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst}; // for a counter, whose accesses are not steps of the model

use keylatch::LockMap;
use shuttle::future::{block_on, yield_now};
use shuttle::thread;

use crate::walk::Hasher;
use crate::{any_policy, explore, join, random};

const KEYS: u64 = 3;

/// The first and largest bound on the weight of all values. A single value weighs at most one more.
const MOST: u64 = 4;

/// A value that is counted while it is alive.
struct Value {
    weight: u64,
    alive: Arc<AtomicU64>,
}

impl Value {
    fn new(alive: &Arc<AtomicU64>) -> Self {
        alive.fetch_add(1, SeqCst);
        Value { weight: random(MOST + 2), alive: Arc::clone(alive) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

type Map = LockMap<u64, Value, Hasher>;

async fn use_map(map: &Map, alive: &Arc<AtomicU64>) {
    for _ in 0..4 {
        let key = random(KEYS);
        match random(8) {
            0 => drop(map.insert(&key, Value::new(alive)).await),
            1 => {
                let guard = map.read(&key).await;
                let seen = guard.value().map(|value| value.weight);
                yield_now().await;
                assert_eq!(guard.value().map(|value| value.weight), seen, "a value was evicted under a guard");
            }
            2 => {
                let mut guard = map.write(&key).await;
                if let Some(value) = guard.value_mut() {
                    value.weight = random(MOST + 2);
                }
                yield_now().await;
                let reader = guard.downgrade();
                yield_now().await;
                drop(reader);
            }
            3 => {
                let guard = map.get_or_insert_with(&key, async || Value::new(alive)).await;
                yield_now().await;
                assert!(guard.value().is_some());
            }
            4 => {
                let handle = map.handle(&key);
                yield_now().await;
                handle.write().await.insert(Value::new(alive));
                yield_now().await;
                drop(handle);
            }
            5 => {
                let mut walk = map.walk();
                while let Some(guard) = walk.next_read().await {
                    assert!(guard.value().is_some());
                }
            }
            6 => {
                let batch = map.batch().insert(&key, Value::new(alive)).remove(&random(KEYS));
                assert!(batch.commit().await.is_ok());
            }
            _ => map.set_max_weight(1 + random(MOST)),
        }
    }
}

/// No weight is lost or counted twice, and when all users have left, the bound holds.
#[test]
fn values_are_weighed_while_tasks_use_them() {
    explore(|| {
        let alive = Arc::new(AtomicU64::new(0));
        let mut builder = LockMap::<u64, Value>::builder()
            .capacity(KEYS as usize)
            .pool_capacity(KEYS as usize)
            .fairness(any_policy())
            .max_weight(MOST, |_, value| value.weight as u32);
        if random(2) == 0 {
            builder = builder.on_evict(|_, value, _| drop(value));
        }
        let map: Arc<Map> = Arc::new(builder.hasher(Hasher::default()).build());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (map, alive) = (Arc::clone(&map), Arc::clone(&alive));
                thread::spawn(move || block_on(use_map(&map, &alive)))
            })
            .collect();
        join(threads);
        assert!(map.weight() <= map.max_weight().unwrap(), "too heavy, and nobody uses the map");
        assert_eq!((map.len() as u64, map.entries() as u64), (alive.load(SeqCst), alive.load(SeqCst)));
        let mut sum = 0;
        assert_eq!(map.for_each_value(|_, value, _| sum += value.weight), 0);
        assert_eq!(map.weight(), sum);
        assert_eq!((map.clear(), map.weight(), alive.load(SeqCst)), (0, 0, 0));
    });
}
