//! A bank whose tasks and threads move money between accounts at the same time, in three ways.
//!
//! ```text
//! cargo run --release --example transfer
//! ```
//!
//! A transfer locks both of its accounts, and takes a while, because the bank makes an inquiry. The three ways:
//! - one account after the other, the paying one first, which is the wrong order half of the time. Two transfers could
//!   wait for each other for ever. A detector notices that in advance: one of them fails, releases its account, and
//!   tries again;
//! - both accounts at once with `lock_many`, which locks them in an order of its own;
//! - one lock for all accounts.
//!
//! At the end, no money may have been lost.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use keylatch::KeyedMutex;
use keylatch::deadlock::{Deadlock, Detector, Party};
use smol::{Executor, Timer};

const ACCOUNTS: usize = 32;
const START: u64 = 1_000;

const TASKS: usize = 12;
const THREADS: usize = 4;
/// The number of transfers of each task and thread.
const TRANSFERS: usize = 100;

/// The duration of an inquiry.
const ASKING: Duration = Duration::from_micros(200);

struct Bank {
    accounts: KeyedMutex<usize>,
    all: KeyedMutex<()>,
    detector: Detector,
    /// The balances. Each is read and written in two steps, so money is lost if two transfers of an account overlap.
    balances: [AtomicU64; ACCOUNTS],
    deadlocks: AtomicUsize,
    first: Mutex<Option<Deadlock>>,
}

#[derive(Clone, Copy)]
enum Way {
    Detected,
    Many,
    Global,
}

#[derive(Clone, Copy)]
struct Transfer {
    from: usize,
    to: usize,
    amount: u64,
}

impl Bank {
    fn new() -> Self {
        Bank {
            accounts: KeyedMutex::new(),
            all: KeyedMutex::new(),
            detector: Detector::new(),
            balances: std::array::from_fn(|_| AtomicU64::new(START)),
            deadlocks: AtomicUsize::new(0),
            first: Mutex::new(None),
        }
    }

    fn sum(&self) -> u64 {
        self.balances.iter().map(|balance| balance.load(Relaxed)).sum()
    }

    /// Returns the new balances, or `None` if the paying account has too little. The caller holds both accounts.
    fn look(&self, transfer: Transfer) -> Option<[u64; 2]> {
        let [from, to] = [transfer.from, transfer.to].map(|account| self.balances[account].load(Relaxed));
        Some([from.checked_sub(transfer.amount)?, to + transfer.amount])
    }

    fn book(&self, transfer: Transfer, [from, to]: [u64; 2]) {
        self.balances[transfer.from].store(from, Relaxed);
        self.balances[transfer.to].store(to, Relaxed);
    }

    /// Makes a transfer. The caller holds both accounts.
    async fn make(&self, transfer: Transfer) {
        let Some(after) = self.look(transfer) else { return };
        Timer::after(ASKING).await;
        self.book(transfer, after);
    }

    /// Does the same as `make`, in a thread.
    fn make_blocking(&self, transfer: Transfer) {
        let Some(after) = self.look(transfer) else { return };
        thread::sleep(ASKING);
        self.book(transfer, after);
    }

    fn avoided(&self, deadlock: Deadlock) {
        self.deadlocks.fetch_add(1, Relaxed);
        self.first.lock().unwrap().get_or_insert(deadlock);
    }

    async fn transfer(&self, way: Way, party: &Party, transfer: Transfer) {
        let Transfer { from, to, .. } = transfer;
        match way {
            Way::Detected => loop {
                let paying = party.acquire(self.accounts.lock(&from)).await;
                let paying = paying.expect("a party that holds nothing cannot deadlock");
                match party.acquire(self.accounts.lock(&to)).await {
                    Ok(_paid) => return self.make(transfer).await,
                    Err(deadlock) => self.avoided(deadlock),
                }
                // Hands the account to its waiter. Otherwise this loop could lock it again at once.
                paying.unlock_fair();
            },
            Way::Many => {
                let _both = self.accounts.lock_many([&from, &to]).await;
                self.make(transfer).await;
            }
            Way::Global => {
                let _all = self.all.lock(&()).await;
                self.make(transfer).await;
            }
        }
    }

    fn transfer_blocking(&self, way: Way, party: &Party, transfer: Transfer) {
        let Transfer { from, to, .. } = transfer;
        match way {
            Way::Detected => loop {
                let paying = party.acquire_blocking(self.accounts.lock(&from));
                let paying = paying.expect("a party that holds nothing cannot deadlock");
                match party.acquire_blocking(self.accounts.lock(&to)) {
                    Ok(_paid) => return self.make_blocking(transfer),
                    Err(deadlock) => self.avoided(deadlock),
                }
                paying.unlock_fair();
            },
            Way::Many => {
                let _both = self.accounts.lock_many_blocking([&from, &to]);
                self.make_blocking(transfer);
            }
            Way::Global => {
                let _all = self.all.lock_blocking(&());
                self.make_blocking(transfer);
            }
        }
    }

    /// Makes the transfers of all tasks and threads. Returns the time they took.
    fn run(&self, way: Way) -> Duration {
        let start = Instant::now();
        let executor = &Executor::new();
        thread::scope(|scope| {
            for number in 0..THREADS {
                scope.spawn(move || {
                    let party = self.detector.party(format!("thread {number}"));
                    transfers(number).for_each(|transfer| self.transfer_blocking(way, &party, transfer));
                });
            }
            let tasks: Vec<_> = (0..TASKS)
                .map(|number| {
                    executor.spawn(async move {
                        let party = self.detector.party(format!("task {number}"));
                        for transfer in transfers(THREADS + number) {
                            self.transfer(way, &party, transfer).await;
                        }
                    })
                })
                .collect();
            smol::block_on(executor.run(async {
                for task in tasks {
                    task.await;
                }
            }));
        });
        start.elapsed()
    }
}

/// Returns random transfers, the same in each run.
fn transfers(seed: usize) -> impl Iterator<Item = Transfer> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed as u64 + 1);
    let mut below = move |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as usize
    };
    (0..TRANSFERS).map(move |_| {
        let from = below(ACCOUNTS);
        let to = (from + 1 + below(ACCOUNTS - 1)) % ACCOUNTS;
        Transfer { from, to, amount: 1 + below(100) as u64 }
    })
}

fn main() {
    println!("{ACCOUNTS} accounts, {TASKS} tasks and {THREADS} threads, {TRANSFERS} transfers each");
    println!("{:<34}{:>12}{:>16}{:>12}", "way", "deadlocks", "transfers/s", "money lost");
    let ways = [
        (Way::Detected, "one after the other, detected"),
        (Way::Many, "both at once, lock_many"),
        (Way::Global, "one lock for all"),
    ];
    let mut sentence = None;
    for (way, name) in ways {
        let bank = Bank::new();
        let took = bank.run(way);
        let rate = ((TASKS + THREADS) * TRANSFERS) as f64 / took.as_secs_f64();
        let lost = (ACCOUNTS as u64 * START).abs_diff(bank.sum());
        println!("{name:<34}{:>12}{rate:>16.0}{lost:>12}", bank.deadlocks.load(Relaxed));
        assert_eq!(lost, 0, "money was lost");
        assert!(bank.accounts.is_empty() && bank.all.is_empty(), "an account stayed locked");
        sentence = sentence.or(bank.first.into_inner().unwrap());
    }
    if let Some(deadlock) = sentence {
        println!("\nThe first deadlock that was avoided: {deadlock}.");
    }
}
