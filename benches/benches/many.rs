//! Several keys at once, and holds that a detector tracks: compared with single calls and with lockmap's batch.
//!
//! `cargo bench --bench many`, half a minute on two free cores. A ratio is the median of the ratios of all rounds.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use keylatch::deadlock::Detector;
use keylatch::{KeyedMutex, MutexGuard};
use keylatch_benches::candidates::poll;
use keylatch_benches::cases::{Case, case, compare};
use keylatch_benches::load::{timed, together};
use lockmap::LockMap;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const ROUNDS: usize = 13;
const SPAN: Duration = Duration::from_millis(30);

/// Returns the cases: `count` keys, all free, acquired and released by one caller.
fn free(count: usize) -> Vec<Case> {
    let keys: Arc<[u64]> = (0..count as u64).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let of = |work: fn(&KeyedMutex<u64>, &[u64])| {
        let keys = Arc::clone(&keys);
        move || {
            let locks = KeyedMutex::new();
            timed(SPAN, |n| (0..n).for_each(|_| work(&locks, black_box(&keys))))
        }
    };
    let batches = Arc::clone(&keys);
    vec![
        case("single calls, blocking", &[], of(singles)),
        case(
            "lock_many_blocking",
            &["single calls, blocking", "lockmap, batch_lock"],
            of(|locks, keys| drop(locks.lock_many_blocking(keys))),
        ),
        case("try_lock_many", &["single calls, blocking"], of(|locks, keys| drop(locks.try_lock_many(keys)))),
        case("single calls, polled", &[], of(polled_singles)),
        case(
            "lock_many, polled",
            &["single calls, polled"],
            of(|locks, keys| {
                assert!(poll(pin!(locks.lock_many(keys))).is_ready());
            }),
        ),
        case("lockmap, batch_lock", &[], move || {
            let map = LockMap::<u64, ()>::new();
            timed(SPAN, |n| {
                for _ in 0..n {
                    let keys = black_box(&batches).iter().copied().collect::<BTreeSet<_>>();
                    drop(map.batch_lock::<Vec<_>>(keys));
                }
            })
        }),
    ]
}

fn singles(locks: &KeyedMutex<u64>, keys: &[u64]) {
    if let [key] = keys {
        return drop(locks.lock_blocking(key));
    }
    drop(keys.iter().map(|key| locks.lock_blocking(key)).collect::<Vec<MutexGuard<'_, u64>>>());
}

fn polled_singles(locks: &KeyedMutex<u64>, keys: &[u64]) {
    let lock = |key| match poll(pin!(locks.lock(key))) {
        std::task::Poll::Ready(guard) => guard,
        std::task::Poll::Pending => unreachable!("the key is free"),
    };
    if let [key] = keys {
        return drop(lock(key));
    }
    drop(keys.iter().map(lock).collect::<Vec<_>>());
}

/// Returns the cases: two threads, each of which needs two of a thousand keys, chosen at random.
fn meeting() -> Vec<Case> {
    fn run(work: impl Fn([u64; 2]) + Sync) -> f64 {
        let shares = together(2, SPAN, |thread| {
            let mut random = SmallRng::seed_from_u64(thread as u64);
            let work = &work;
            move |n, (): &mut ()| {
                for _ in 0..n {
                    let first = random.random_range(0..1000);
                    work([first, (first + random.random_range(1..1000)) % 1000]);
                }
            }
        });
        shares.nanos
    }
    vec![
        case("two single calls, by the order of the keys", &[], || {
            let locks = KeyedMutex::<u64>::new();
            run(|[a, b]| {
                let first = locks.lock_blocking(&a.min(b));
                drop((locks.lock_blocking(&a.max(b)), first));
            })
        }),
        case("lock_many_blocking", &["two single calls, by the order of the keys", "lockmap, batch_lock"], || {
            let locks = KeyedMutex::<u64>::new();
            run(|keys| drop(locks.lock_many_blocking(&keys)))
        }),
        case("lockmap, batch_lock", &[], || {
            let map = LockMap::<u64, ()>::new();
            run(|keys| drop(map.batch_lock::<Vec<_>>(BTreeSet::from(keys))))
        }),
    ]
}

/// Returns the cases: a free key, acquired and released with and without a party.
fn tracked() -> Vec<Case> {
    vec![
        case("plain", &[], || {
            let locks = KeyedMutex::<u64>::new();
            timed(SPAN, |n| (0..n).for_each(|_| drop(locks.lock_blocking(black_box(&7)))))
        }),
        case("tracked", &["plain"], || {
            let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
            let party = detector.party("bench");
            timed(SPAN, |n| (0..n).for_each(|_| drop(party.acquire_blocking(locks.lock(black_box(&7))))))
        }),
        case("plain, polled", &[], || {
            let locks = KeyedMutex::<u64>::new();
            timed(SPAN, |n| (0..n).for_each(|_| drop(poll(pin!(locks.lock(black_box(&7)))))))
        }),
        case("tracked, polled", &["plain, polled"], || {
            let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
            let party = detector.party("bench");
            timed(SPAN, |n| (0..n).for_each(|_| drop(poll(pin!(party.acquire(locks.lock(black_box(&7))))))))
        }),
        case("tracked, polled, while the party holds another", &["plain, polled"], || {
            let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
            let party = detector.party("bench");
            let held = party.acquire_blocking(locks.lock(&8));
            let time = timed(SPAN, |n| (0..n).for_each(|_| drop(poll(pin!(party.acquire(locks.lock(black_box(&7))))))));
            drop(held);
            time
        }),
    ]
}

fn main() {
    compare(
        ROUNDS,
        [
            ("one free key", free(1)),
            ("2 free keys", free(2)),
            ("10 free keys", free(10)),
            ("two threads, 2 keys of 1,000", meeting()),
            ("one free key, tracked", tracked()),
        ],
    );
}
