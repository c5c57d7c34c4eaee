//! Prints the most contended keys of a running load as a table: a use of `Builder::on_wait`.
//!
//! ```text
//! cargo run --release --example hot_keys
//! ```
//!
//! Threads and tasks lock the accounts of a shop, a few of them much more often than the rest. For each key, an
//! observer counts the waits, the largest number of waiters at the same time, and the time spent waiting. The table is
//! printed twice a second, and the output of `dump` once, halfway through. The program exits with an error if a wait
//! never ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keylatch::{KeyedMutex, WaitEvent, WaitId, WaitPhase};

const ACCOUNTS: usize = 1_000;
const THREADS: u64 = 6;
const TASKS: u64 = 200;
const RUN: Duration = Duration::from_secs(3);

/// The statistics of one key.
#[derive(Clone, Default)]
struct Counts {
    waits: u64,
    given_up: u64,
    waiting: u64,
    longest_queue: u64,
    waited: Duration,
}

/// The statistics of all keys. One mutex for them is enough, because only calls that have to wait anyway lock it.
#[derive(Default)]
struct HotKeys {
    keys: HashMap<String, Counts>,
    begun: HashMap<WaitId, Instant>,
}

impl HotKeys {
    fn tell(&mut self, event: &WaitEvent<'_, String>) {
        if !self.keys.contains_key(event.key()) {
            self.keys.insert(event.key().clone(), Counts::default());
        }
        let counts = self.keys.get_mut(event.key()).expect("the key was inserted above");
        if event.phase() == WaitPhase::Started {
            counts.waits += 1;
            counts.waiting += 1;
            counts.longest_queue = counts.longest_queue.max(counts.waiting);
            self.begun.insert(event.id(), Instant::now());
        } else {
            counts.given_up += u64::from(event.phase() == WaitPhase::GivenUp);
            counts.waiting -= 1;
            counts.waited += self.begun.remove(&event.id()).expect("a wait begins before it ends").elapsed();
        }
    }

    fn hottest(&self, n: usize) -> Vec<(&String, &Counts)> {
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_by_key(|(key, counts)| (std::cmp::Reverse(counts.waits), *key));
        keys.truncate(n);
        keys
    }

    fn print(&self, after: Duration) {
        println!("\nafter {:.1} s", after.as_secs_f64());
        println!(
            "{:<14}{:>9}{:>10}{:>9}{:>15}{:>14}",
            "key", "waits", "given up", "waiting", "longest queue", "mean wait"
        );
        for (key, Counts { waits, given_up, waiting, longest_queue, waited }) in self.hottest(10) {
            let mean = waited.as_secs_f64() * 1e6 / (waits - waiting).max(1) as f64;
            println!("{key:<14}{waits:>9}{given_up:>10}{waiting:>9}{longest_queue:>15}{mean:>11.0} µs");
        }
    }
}

/// A shop whose first few accounts are used much more often than the rest, the first three in a ratio of about
/// 1 : 0.6 : 0.4.
struct Shop {
    accounts: KeyedMutex<String>,
    is_open: AtomicBool,
}

fn account(state: &mut u64) -> String {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    let uniform = (*state >> 11) as f64 / (1_u64 << 53) as f64;
    format!("account {}", (ACCOUNTS as f64).powf(uniform) as usize)
}

impl Shop {
    fn serve_in_thread(&self, mut state: u64) {
        while self.is_open.load(Relaxed) {
            // Some callers give up, as users do when a page takes too long.
            if let Some(_guard) = self.accounts.try_lock_for(&account(&mut state), Duration::from_millis(2)) {
                std::thread::sleep(Duration::from_micros(200)); // a database query
            }
        }
    }

    async fn serve_in_task(&self, mut state: u64) {
        while self.is_open.load(Relaxed) {
            let _guard = self.accounts.lock(&account(&mut state)).await;
            smol::Timer::after(Duration::from_micros(200)).await;
        }
    }
}

fn main() {
    let hot_keys: Arc<Mutex<HotKeys>> = Arc::default();
    let told = Arc::clone(&hot_keys);
    let accounts = KeyedMutex::builder().on_wait(move |event| told.lock().unwrap().tell(event)).build();
    let shop = Arc::new(Shop { accounts, is_open: AtomicBool::new(true) });

    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let shop = &shop;
            scope.spawn(move || shop.serve_in_thread(thread * 0x9E37_79B9));
        }
        scope.spawn(|| {
            let executor = smol::LocalExecutor::new();
            let tasks: Vec<_> =
                (1..=TASKS).map(|task| executor.spawn(shop.serve_in_task(task * 0x85EB_CA6B))).collect();
            smol::block_on(executor.run(async {
                for task in tasks {
                    task.await;
                }
            }));
        });
        let begun = Instant::now();
        for half_second in 1.. {
            std::thread::sleep(Duration::from_millis(500));
            hot_keys.lock().unwrap().print(begun.elapsed());
            if half_second == 3 {
                print!("\n{:.5}", shop.accounts.dump());
            }
            if begun.elapsed() >= RUN {
                break;
            }
        }
        shop.is_open.store(false, Relaxed);
    });

    let hot_keys = hot_keys.lock().unwrap();
    let waits: u64 = hot_keys.keys.values().map(|counts| counts.waits).sum();
    println!("\n{waits} waits for {} keys", hot_keys.keys.len());
    assert!(waits > 0, "no caller had to wait");
    assert!(
        hot_keys.begun.is_empty() && hot_keys.keys.values().all(|counts| counts.waiting == 0),
        "a wait never ended"
    );
    assert!(shop.accounts.is_empty());
}
