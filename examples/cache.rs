//! A read-mostly cache of pages, used by tasks and threads at the same time: a map whose values are under keyed locks.
//!
//! ```text
//! cargo run --release --example cache
//! ```
//!
//! A caller only ever waits for other users of the same page:
//! - **read**: the first reader loads a missing page while the others wait for it. Each reader keeps the page
//!   locked while serving it, so no reader serves the old page once an update or a delete has returned;
//! - **add**: stores a page if there is none, with or without a time limit;
//! - **add or update**: stores a page unless an equal one is stored already. Usually one is, and then no reader is kept
//!   out;
//! - **delete**.
//!
//! At the end, the pages and bytes in the cache must match what was stored and not removed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use keylatch::{AddOrUpdate, LockMap, MapWriteGuard};
use smol::{Executor, Timer, future};

const KEYS: [&str; 4] = ["home", "news", "prices", "contact"];
const OPERATIONS: usize = 5000; // per task and thread
const PATIENCE: Duration = Duration::from_micros(50);

#[derive(Default)]
struct Cache {
    pages: LockMap<String, String>,
    /// For each outcome, the number of times that it occurred and the bytes that it added to the cache.
    tally: Mutex<BTreeMap<&'static str, (usize, isize)>>,
}

async fn task(cache: &Cache, seed: u64) {
    let pages = &cache.pages;
    for (dice, key, text) in operations(seed) {
        match dice {
            0..2 => cache.add(pages.write(key).await, text),
            2..4 => match pages.write(key).until(Timer::after(PATIENCE)).await {
                Ok(page) => cache.add(page, text),
                Err(_late) => cache.done("timed out", 0),
            },
            4..6 => cache.deleted(pages.remove(key).await),
            6..20 => cache.stored(text.len(), pages.add_or_update(key, text).await),
            _ => {
                let load = async || {
                    future::yield_now().await;
                    cache.loaded(text)
                };
                let page = pages.get_or_insert_with(key, load).await;
                let version = page.version();
                future::yield_now().await; // serves the page
                assert_eq!(page.version(), version, "the page was replaced while it was served");
                cache.done("served", 0);
            }
        }
    }
}

/// Does the same as `task`, in a thread.
fn thread(cache: &Cache, seed: u64) {
    let pages = &cache.pages;
    for (dice, key, text) in operations(seed) {
        match dice {
            0..2 => cache.add(pages.write_blocking(key), text),
            2..4 => match pages.try_write_for(key, PATIENCE) {
                Some(page) => cache.add(page, text),
                None => cache.done("timed out", 0),
            },
            4..6 => cache.deleted(pages.remove_blocking(key)),
            6..20 => cache.stored(text.len(), pages.add_or_update_blocking(key, text)),
            _ => {
                let load = || {
                    thread::yield_now();
                    cache.loaded(text)
                };
                let page = pages.get_or_insert_with_blocking(key, load);
                let version = page.version();
                thread::yield_now();
                assert_eq!(page.version(), version, "the page was replaced while it was served");
                cache.done("served", 0);
            }
        }
    }
}

/// Tasks and threads wait in different ways, and then do the same thing.
impl Cache {
    fn add(&self, mut page: MapWriteGuard<'_, String, String>, text: String) {
        if page.value().is_some() {
            return self.done("refused", 0);
        }
        self.done("added", text.len() as isize);
        page.insert(text);
    }

    fn stored(&self, bytes: usize, answer: AddOrUpdate<String>) {
        match answer {
            AddOrUpdate::Added => self.done("added", bytes as isize),
            AddOrUpdate::Updated(old) => self.done("updated", bytes as isize - old.len() as isize),
            AddOrUpdate::Unchanged => self.done("unchanged", 0),
        }
    }

    fn deleted(&self, old: Option<String>) {
        match old {
            Some(old) => self.done("deleted", -(old.len() as isize)),
            None => self.done("refused", 0),
        }
    }

    fn loaded(&self, text: String) -> String {
        self.done("loaded", text.len() as isize);
        text
    }

    fn done(&self, what: &'static str, bytes: isize) {
        let mut tally = self.tally.lock().expect("nothing panics under this lock");
        let (times, won) = tally.entry(what).or_default();
        (*times, *won) = (*times + 1, *won + bytes);
    }
}

/// Returns random operations, the same in each run. Each consists of a number below 100 that selects the operation, a
/// page, and a text that is the same nine times out of ten.
fn operations(seed: u64) -> impl Iterator<Item = (usize, &'static str, String)> {
    let mut state = seed;
    let mut below = move |limit: usize| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % limit
    };
    let text = |dice: usize| ["the same as ever", "something new"][dice / 9].to_string();
    (0..OPERATIONS).map(move |_| (below(100), KEYS[below(KEYS.len())], text(below(10))))
}

fn main() {
    let cache = &Cache::default();
    thread::scope(|scope| {
        // If an assertion fails, the tasks and their guards are dropped before the scope waits for its threads.
        let executor = Executor::new();
        for seed in 0..4 {
            scope.spawn(move || thread(cache, seed));
        }
        let tasks: Vec<_> = (4..16).map(|seed| executor.spawn(task(cache, seed))).collect();
        smol::block_on(executor.run(async {
            for task in tasks {
                task.await;
            }
        }));
    });

    let tally = cache.tally.lock().expect("nothing panics under this lock");
    for (what, (times, _)) in &*tally {
        println!("{what:<10}{times:>8}");
    }
    let (mut pages, mut bytes) = (0, 0);
    cache.pages.for_each_value(|_, text, _| (pages, bytes) = (pages + 1, bytes + text.len() as isize));
    println!("{pages} pages, {bytes} bytes, {} entries in the map", cache.pages.entries());

    let times = |what| tally.get(what).map_or(0, |(times, _)| *times);
    assert_eq!(times("added") + times("loaded"), times("deleted") + pages, "a page was stored twice or lost");
    assert_eq!(tally.values().map(|(_, won)| won).sum::<isize>(), bytes, "an update was lost");
    assert_eq!(cache.pages.entries(), pages, "an entry outlived its last user");
}
