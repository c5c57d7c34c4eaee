//! A read-mostly cache of pages, used by tasks and threads at once: a map, and a reader-writer lock for each key.
//!
//! ```text
//! cargo run --release --example cache
//! ```
//!
//! Why both: the lock of the map is held for one access to the map, never while somebody waits. The lock of a key is
//! held for all of what is done with its page, and no other page is concerned. A reader keeps it while it serves the
//! page: when an update or a delete has returned, nobody serves the old page any more. [`Cache::add_or_update`] keeps
//! it from the load to the write: a page is loaded by one at a time, and no update is lost. Both are asserted below.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, RwLock};
use std::thread;

use keylatch::mode::Mode;
use keylatch::table::TableRef;
use keylatch::{Guard, KeyedRwLock, ReadGuard, UpgradableGuard, WriteGuard};
use smol::{Executor, future};

const KEYS: [&str; 4] = ["home", "news", "prices", "contact"];
const OPERATIONS: usize = 5000; // of each task and thread

struct Page {
    /// 1 when the page is added, and one more with each update.
    version: usize,
    text: String,
}

/// What has come of an operation.
enum Outcome {
    Hit,
    Miss,
    Added,
    Updated,
    Unchanged,
    Deleted,
    /// To add what is there, or to update or delete what is not.
    Refused,
}

use Outcome::{Added, Deleted, Hit, Miss, Refused, Unchanged, Updated};

#[derive(Default)]
struct Cache {
    locks: KeyedRwLock<String>,
    pages: RwLock<HashMap<String, Arc<Page>>>,
    outcomes: [AtomicUsize; 7],
    upgrade_waits: AtomicUsize,
}

/// Tasks and threads wait for a guard in different ways, and then do the same with it. So most operations take the
/// guard: the proof that a key is held, and in the mode that the operation needs.
impl Cache {
    fn get<M: Mode>(&self, held: &Guard<TableRef<'_, KeyedRwLock<String>>, M>) -> Option<Arc<Page>> {
        self.pages.read().unwrap().get(held.key()).cloned()
    }

    fn add(&self, held: &WriteGuard<'_, String>, text: String) -> Outcome {
        if self.get(held).is_some() { Refused } else { self.put(held, Page { version: 1, text }) }
    }

    fn update(&self, held: &WriteGuard<'_, String>, text: String) -> Outcome {
        self.get(held).map_or(Refused, |old| self.put(held, Page { version: old.version + 1, text }))
    }

    fn delete(&self, held: &WriteGuard<'_, String>) -> Outcome {
        self.pages.write().unwrap().remove(held.key()).map_or(Refused, |_| Deleted)
    }

    /// Loads a page, and writes it if it is not what is there already.
    ///
    /// Most loads bring nothing new, so readers are let in until it is known that there is something to write. And
    /// nobody writes between that look and the write, as somebody might if the reader's lock were released first.
    async fn add_or_update(&self, key: &str, load: impl Future<Output = String>) -> Outcome {
        let reader = self.locks.upgradable_read(key).await;
        let Some(page) = self.changed(&reader, load.await) else { return Unchanged };
        let writer = match reader.try_upgrade() {
            Ok(writer) => writer,
            Err(reader) => {
                self.upgrade_waits.fetch_add(1, Relaxed);
                reader.upgrade().await
            }
        };
        self.put(&writer, page)
    }

    /// The same in a thread.
    fn add_or_update_blocking(&self, key: &str, load: impl FnOnce() -> String) -> Outcome {
        let reader = self.locks.upgradable_read_blocking(key);
        let Some(page) = self.changed(&reader, load()) else { return Unchanged };
        let writer = reader.try_upgrade().unwrap_or_else(|reader| {
            self.upgrade_waits.fetch_add(1, Relaxed);
            reader.upgrade_blocking()
        });
        self.put(&writer, page)
    }

    /// The page to write, if this text is not what is there already.
    fn changed(&self, held: &UpgradableGuard<'_, String>, text: String) -> Option<Page> {
        match self.get(held) {
            Some(old) if old.text == text => None,
            old => Some(Page { version: old.map_or(1, |old| old.version + 1), text }),
        }
    }

    fn put(&self, held: &WriteGuard<'_, String>, page: Page) -> Outcome {
        let made_from = page.version - 1;
        let replaced = self.pages.write().unwrap().insert(held.key().clone(), Arc::new(page));
        assert_eq!(replaced.as_ref().map_or(0, |old| old.version), made_from, "an update was lost");
        replaced.map_or(Added, |_| Updated)
    }

    /// To be called with what [`get`](Cache::get) gave, when that has been served.
    fn served(&self, held: &ReadGuard<'_, String>, page: Option<Arc<Page>>) -> Outcome {
        let now = self.get(held);
        assert_eq!(now.as_ref().map(Arc::as_ptr), page.as_ref().map(Arc::as_ptr), "replaced while it was served");
        page.map_or(Miss, |_| Hit)
    }
}

async fn task(cache: &Cache, mut random: Random) {
    for _ in 0..OPERATIONS {
        let (dice, key, text) = random.operation();
        let outcome = match dice {
            0..2 => cache.add(&cache.locks.write(key).await, text),
            2..4 => cache.update(&cache.locks.write(key).await, text),
            4..5 => cache.delete(&cache.locks.write(key).await),
            5..20 => cache.add_or_update(key, slow(text)).await,
            _ => {
                let held = cache.locks.read(key).await;
                let page = slow(cache.get(&held)).await;
                cache.served(&held, page)
            }
        };
        cache.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }
}

fn thread(cache: &Cache, mut random: Random) {
    for _ in 0..OPERATIONS {
        let (dice, key, text) = random.operation();
        let outcome = match dice {
            0..2 => cache.add(&cache.locks.write_blocking(key), text),
            2..4 => cache.update(&cache.locks.write_blocking(key), text),
            4..5 => cache.delete(&cache.locks.write_blocking(key)),
            5..20 => cache.add_or_update_blocking(key, || slow_blocking(text)),
            _ => {
                let held = cache.locks.read_blocking(key);
                let page = slow_blocking(cache.get(&held));
                cache.served(&held, page)
            }
        };
        cache.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }
}

/// To load and to serve takes a while, in which others get on.
async fn slow<T>(value: T) -> T {
    future::yield_now().await;
    value
}

fn slow_blocking<T>(value: T) -> T {
    thread::yield_now();
    value
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % limit
    }

    /// Which operation, in percent; on which page; and the text, which is the same nine times in ten.
    fn operation(&mut self) -> (usize, &'static str, String) {
        (self.below(100), KEYS[self.below(KEYS.len())], format!("edition {}", self.below(10) / 9))
    }
}

fn main() {
    let cache = &Cache::default();
    thread::scope(|scope| {
        // If an assertion fails, the tasks go with it, and their guards, before the scope waits for its threads.
        let executor = Executor::new();
        for seed in 0..4 {
            scope.spawn(move || thread(cache, Random(seed)));
        }
        let tasks: Vec<_> = (4..16).map(|seed| executor.spawn(task(cache, Random(seed)))).collect();
        smol::block_on(executor.run(async {
            for task in tasks {
                task.await;
            }
        }));
    });

    let outcomes = cache.outcomes.each_ref().map(|count| count.load(Relaxed));
    let [hits, misses, added, updated, unchanged, deleted, refused] = outcomes;
    let (pages, entries) = (cache.pages.read().unwrap().len(), cache.locks.len());
    println!("{hits} hits, {misses} misses");
    println!("{added} added, {updated} updated, {unchanged} unchanged, {deleted} deleted, {refused} refused");
    println!("{} upgrades had to wait for readers", cache.upgrade_waits.load(Relaxed));
    println!("{pages} pages in the cache, {entries} entries in the lock table");
    assert_eq!(pages, added - deleted, "the map does not agree with what was done");
    assert_eq!(entries, 0, "an entry outlived its last use");
}
