//! Models of a map whose values end while tasks use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst}; // for the clock, whose accesses are not steps of the model
use std::time::Duration;

use keylatch::{Clock, LockMap};
use shuttle::future::{block_on, yield_now};
use shuttle::thread;

use crate::walk::Hasher;
use crate::{any_policy, explore, join, random};

const KEYS: u64 = 2;

/// The time for which a value lives.
const LIFE: u64 = 3;

/// A clock that the tasks move.
#[derive(Clone, Default)]
pub struct Time(Arc<AtomicU64>);

impl Clock for Time {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(SeqCst))
    }
}

impl Time {
    fn now(&self) -> u64 {
        self.0.load(SeqCst)
    }

    /// Lets this many seconds pass.
    pub fn pass(&self, seconds: u64) {
        self.0.fetch_add(seconds, SeqCst);
    }
}

/// A value that records when its writer began to store it, and that is counted while it is alive.
struct Value {
    born: u64,
    alive: Arc<AtomicU64>,
}

impl Value {
    fn new(born: u64, alive: &Arc<AtomicU64>) -> Self {
        alive.fetch_add(1, SeqCst);
        Value { born, alive: Arc::clone(alive) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

type Map = LockMap<u64, Value, Hasher>;

/// Makes random calls. Guards are held while time passes.
async fn use_map(map: &Map, time: &Time, alive: &Arc<AtomicU64>) {
    for _ in 0..4 {
        let key = random(KEYS);
        match random(8) {
            0 => drop(map.insert(&key, Value::new(time.now(), alive)).await),
            1 => {
                let guard = map.read(&key).await;
                let seen = (guard.value().map(|value| value.born), guard.version());
                yield_now().await;
                let again = (guard.value().map(|value| value.born), guard.version());
                assert_eq!(seen, again, "a value ended under a guard");
            }
            2 => {
                let mut guard = map.write(&key).await;
                let had = guard.value().is_some();
                yield_now().await;
                assert_eq!(guard.value().is_some(), had, "a value ended under a guard");
                if random(2) == 0 {
                    guard.insert(Value::new(time.now(), alive));
                } else {
                    guard.remove();
                }
            }
            3 => {
                let guard = map.get_or_insert_with(&key, async || Value::new(time.now(), alive)).await;
                yield_now().await;
                assert!(guard.value().is_some());
            }
            4 => drop(map.tick()),
            5 => {
                let mut walk = map.walk();
                while let Some(guard) = walk.next_read().await {
                    assert!(guard.value().is_some(), "a walk visited a key without a value");
                }
            }
            6 => drop(map.remove(&key).await),
            _ => {
                time.0.fetch_add(1 + random(LIFE), SeqCst);
            }
        }
    }
}

/// No value is dropped too early, twice or never, no key stays locked, and nothing is left when the time has passed.
#[test]
fn values_end_while_tasks_use_them() {
    explore(|| {
        let (time, alive) = (Time::default(), Arc::new(AtomicU64::new(0)));
        let (told, tells) = (Arc::new(AtomicU64::new(0)), random(2) == 0);
        let mut builder = LockMap::<u64, Value>::builder()
            .shards(1)
            .capacity(KEYS as usize)
            .pool_capacity(KEYS as usize)
            .fairness(any_policy())
            .time_to_live(Duration::from_secs(LIFE))
            .clock(time.clone());
        if tells {
            let told = Arc::clone(&told);
            builder = builder.on_evict(move |_, _, _| {
                told.fetch_add(1, SeqCst);
            });
        }
        let map: Arc<Map> = Arc::new(builder.hasher(Hasher::default()).build());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (map, time, alive) = (Arc::clone(&map), time.clone(), Arc::clone(&alive));
                thread::spawn(move || block_on(use_map(&map, &time, &alive)))
            })
            .collect();
        join(threads);
        let stored = map.len() as u64;
        assert!(alive.load(SeqCst) >= stored, "a value was dropped too early");
        time.0.fetch_add(LIFE, SeqCst);
        assert!(map.is_empty() && (0..KEYS).all(|key| !map.contains_key(&key) && !map.is_locked(&key)));
        map.tick();
        assert_eq!((map.entries(), alive.load(SeqCst)), (0, 0), "something is left of a value that has ended");
    });
}

/// A call that begins after the end of a value does not find it, however many others begin at the same time.
#[test]
fn calls_that_begin_after_the_end_find_no_value() {
    explore(|| {
        let (time, alive) = (Time::default(), Arc::new(AtomicU64::new(0)));
        let builder = LockMap::<u64, Value>::builder().shards(1).capacity(1).pool_capacity(1).fairness(any_policy());
        let builder = builder.time_to_live(Duration::from_secs(LIFE)).clock(time.clone());
        let map: Arc<Map> = Arc::new(builder.hasher(Hasher::default()).build());
        block_on(map.insert(&0, Value::new(0, &alive)));
        time.0.fetch_add(LIFE, SeqCst);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let map = Arc::clone(&map);
                let call = random(6);
                thread::spawn(move || {
                    block_on(async {
                        let is_there = match call {
                            0 => map.read(&0).await.value().is_some(),
                            1 => map.write(&0).await.value().is_some(),
                            2 => map.upgradable_read(&0).await.value().is_some(),
                            3 => map.remove(&0).await.is_some(),
                            4 => map.walk().next_read().await.is_some(),
                            _ => map.contains_key(&0) || map.tick().is_some(),
                        };
                        assert!(!is_there, "call {call} found a value that has ended");
                    });
                })
            })
            .collect();
        join(threads);
        assert_eq!(map.len(), 0);
        map.tick(); // the calls that only look dispose of nothing
        assert_eq!((map.entries(), alive.load(SeqCst)), (0, 0));
    });
}
