//! Latches and stripes, compared with other single locks, arrays of them, and a table.
//!
//! `cargo bench --bench latch`, half a minute on two free cores. A ratio is the median of the ratios of all rounds.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::pin::pin;
use std::time::Duration;

use keylatch::{DefaultHashBuilder, KeyedMutex, KeyedRwLock, Latch, Striped};
use keylatch_benches::candidates::poll;
use keylatch_benches::cases::{Case, case, compare};
use keylatch_benches::load::{timed, together};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const ROUNDS: usize = 13;
const SPAN: Duration = Duration::from_millis(30);
const STRIPES: usize = 1024;

/// One free lock, used by one thread.
macro_rules! alone {
    ($new:expr, $lock:ident => $cycle:expr) => {
        || {
            let lock = black_box($new);
            let $lock = &lock;
            timed(SPAN, |n| (0..n).for_each(|_| drop($cycle)))
        }
    };
}

fn blocking() -> Vec<Case> {
    vec![
        case("parking_lot::RwLock, write", &[], alone!(parking_lot::RwLock::new(()), lock => black_box(lock).write())),
        case("parking_lot::RwLock, read", &[], alone!(parking_lot::RwLock::new(()), lock => black_box(lock).read())),
        case("std::sync::RwLock, write", &[], alone!(std::sync::RwLock::new(()), lock => black_box(lock).write())),
        case(
            "Latch, write",
            &["parking_lot::RwLock, write", "std::sync::RwLock, write"],
            alone!(Latch::new(), latch => black_box(latch).write_blocking()),
        ),
        case(
            "Latch, read",
            &["parking_lot::RwLock, read"],
            alone!(Latch::new(), latch => black_box(latch).read_blocking()),
        ),
    ]
}

fn polled() -> Vec<Case> {
    vec![
        case(
            "async_lock::RwLock, write",
            &[],
            alone!(async_lock::RwLock::new(()), lock => poll(pin!(black_box(lock).write()))),
        ),
        case(
            "async_lock::RwLock, read",
            &[],
            alone!(async_lock::RwLock::new(()), lock => poll(pin!(black_box(lock).read()))),
        ),
        case(
            "tokio::sync::RwLock, write",
            &[],
            alone!(tokio::sync::RwLock::new(()), lock => poll(pin!(black_box(lock).write()))),
        ),
        case(
            "tokio::sync::RwLock, read",
            &[],
            alone!(tokio::sync::RwLock::new(()), lock => poll(pin!(black_box(lock).read()))),
        ),
        case(
            "Latch, write",
            &["async_lock::RwLock, write", "tokio::sync::RwLock, write"],
            alone!(Latch::new(), latch => poll(pin!(black_box(latch).write()))),
        ),
        case(
            "Latch, read",
            &["async_lock::RwLock, read", "tokio::sync::RwLock, read"],
            alone!(Latch::new(), latch => poll(pin!(black_box(latch).read()))),
        ),
    ]
}

/// An array of locks as it is commonly written by hand.
struct ByHand {
    locks: Box<[parking_lot::RwLock<()>]>,
    hasher: DefaultHashBuilder,
}

impl ByHand {
    fn new() -> Self {
        let locks = (0..STRIPES).map(|_| parking_lot::RwLock::new(())).collect();
        ByHand { locks, hasher: DefaultHashBuilder::default() }
    }

    fn of(&self, key: u64) -> &parking_lot::RwLock<()> {
        &self.locks[self.hasher.hash_one(key) as usize % STRIPES]
    }
}

/// Returns the cases: random keys, used by `threads` threads that hardly contend.
fn many_keys(threads: usize) -> Vec<Case> {
    fn run(threads: usize, work: impl Fn(u64) + Sync) -> f64 {
        let shares = together(threads, SPAN, |thread| {
            let mut random = SmallRng::seed_from_u64(thread as u64);
            let work = &work;
            move |n, (): &mut ()| (0..n).for_each(|_| work(random.random_range(0..100_000)))
        });
        shares.nanos
    }
    vec![
        case("array of parking_lot::RwLock, write", &[], move || {
            let locks = ByHand::new();
            run(threads, |key| drop(locks.of(key).write()))
        }),
        case("KeyedMutex", &[], move || {
            let locks = KeyedMutex::<u64>::new();
            run(threads, |key| drop(locks.lock_blocking(&key)))
        }),
        case("KeyedRwLock, write", &[], move || {
            let locks = KeyedRwLock::<u64>::new();
            run(threads, |key| drop(locks.write_blocking(&key)))
        }),
        case(
            "Striped, write",
            &["array of parking_lot::RwLock, write", "KeyedMutex", "KeyedRwLock, write"],
            move || {
                let locks = Striped::<u64>::new(STRIPES);
                run(threads, |key| drop(locks.write_blocking(&key)))
            },
        ),
    ]
}

/// Returns the cases: one lock that several threads use constantly.
fn hot(threads: usize) -> Vec<Case> {
    fn run(threads: usize, work: impl Fn() + Sync) -> f64 {
        together(threads, SPAN, |_| {
            let work = &work;
            move |n, (): &mut ()| (0..n).for_each(|_| work())
        })
        .nanos
    }
    vec![
        case("KeyedMutex", &[], move || {
            let locks = KeyedMutex::<u64>::new();
            run(threads, || drop(locks.lock_blocking(black_box(&7))))
        }),
        case("KeyedRwLock, write", &[], move || {
            let locks = KeyedRwLock::<u64>::new();
            run(threads, || drop(locks.write_blocking(black_box(&7))))
        }),
        case("parking_lot::RwLock, write", &[], move || {
            let lock = parking_lot::RwLock::new(());
            run(threads, || drop(lock.write()))
        }),
        case("Latch, write", &["KeyedMutex", "KeyedRwLock, write", "parking_lot::RwLock, write"], move || {
            let latch = Latch::new();
            run(threads, || drop(latch.write_blocking()))
        }),
    ]
}

fn main() {
    compare(
        ROUNDS,
        [
            ("one free lock, blocking", blocking()),
            ("one free lock, polled", polled()),
            ("100,000 keys, one thread", many_keys(1)),
            ("100,000 keys, two threads", many_keys(2)),
            ("one hot lock, two threads", hot(2)),
            ("one hot lock, eight threads", hot(8)),
        ],
    );
    println!("\nA latch takes {} bytes, and a stripe as many.", size_of::<Latch>());
}
