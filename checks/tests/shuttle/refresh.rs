//! Models of a map whose values are refreshed while a writer changes and removes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst}; // for the source, whose accesses are not steps of the model
use std::time::Duration;

use keylatch::LockMap;
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::thread;

use crate::expiry::Time;
use crate::walk::Hasher;
use crate::{any_policy, explore, random};

const KEY: u64 = 7;

/// The time for which a value is fresh. In some maps a value ends after twice this time.
const FRESH: Duration = Duration::from_secs(2);

type Map = LockMap<u64, u64, Hasher>;

/// The source from which values are read.
#[derive(Default)]
struct Source {
    latest: AtomicU64,
    /// The last change of the source that the writer has reported to the map.
    told: AtomicU64,
}

/// Reads the value from the source, which takes a while.
async fn read(source: &Source) -> Result<u64, ()> {
    let value = source.latest.load(SeqCst);
    yield_now().await;
    if random(4) == 0 { Err(()) } else { Ok(value) }
}

/// Looks at the value several times. No look finds a value older than the last one of which the map had been told.
async fn look(map: &Map, source: &Source, time: &Time) {
    for _ in 0..4 {
        let told = source.told.load(SeqCst);
        let seen = match random(4) {
            0 => map.get(&KEY).await,
            1 => {
                time.pass(random(3));
                None
            }
            _ => map.get_or_try_refresh_with(&KEY, FRESH, || read(source)).await.ok(),
        };
        assert!(seen.is_none_or(|seen| seen >= told), "a refresh has undone a change");
        yield_now().await;
    }
}

/// Changes the source, and tells the map.
async fn write(map: &Map, source: &Source) {
    for change in 1..4 {
        source.latest.store(change, SeqCst);
        match random(3) {
            0 => drop(map.remove(&KEY).await),
            1 => drop(map.insert(&KEY, change).await),
            _ => {
                if let Some(value) = map.write(&KEY).await.value_mut() {
                    *value = change;
                }
            }
        }
        source.told.store(change, SeqCst);
        yield_now().await;
    }
}

/// A change or a removal is never undone by a refresh that began before it. When all refreshes have ended or been
/// dropped, the next caller refreshes.
#[test]
fn values_are_refreshed_while_a_writer_changes_them() {
    explore(|| {
        let (time, source) = (Time::default(), Arc::new(Source::default()));
        let builder = LockMap::<u64, u64>::builder().shards(1).capacity(1).pool_capacity(1).fairness(any_policy());
        let mut builder = builder.record_ages().clock(time.clone());
        if random(2) == 0 {
            builder = builder.time_to_live(2 * FRESH);
        }
        let map: Arc<Map> = Arc::new(builder.hasher(Hasher::default()).build());
        block_on(map.insert(&KEY, 0));
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let (map, source, time) = (Arc::clone(&map), Arc::clone(&source), time.clone());
                spawn(async move { look(&map, &source, &time).await })
            })
            .collect();
        let writer = {
            let (map, source) = (Arc::clone(&map), Arc::clone(&source));
            thread::spawn(move || block_on(write(&map, &source)))
        };
        block_on(async {
            for (at, task) in tasks.into_iter().enumerate() {
                if at == 0 {
                    for _ in 0..random(6) {
                        yield_now().await;
                    }
                    task.abort();
                }
                let _ = task.await;
            }
        });
        writer.join().unwrap();
        assert!(!map.is_locked(&KEY));
        let made = block_on(map.get_or_refresh_with(&KEY, Duration::ZERO, async || 100));
        assert_eq!((made, block_on(map.get(&KEY)), map.entries()), (100, Some(100), 1), "no caller refreshes any more");
    });
}
