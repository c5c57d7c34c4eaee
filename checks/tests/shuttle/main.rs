//! Larger models than loom's, under thousands of schedules that shuttle chooses at random, or by probabilistic
//! concurrency testing (PCT: a random order of the tasks, which changes a few times at random moments).
//!
//! ```text
//! cd checks
//! RUSTFLAGS="--cfg shuttle" cargo test --release --test shuttle
//! ```
//!
//! Every run tries different schedules. `KEYLATCH_SCHEDULES` sets the number for each test and scheduler.
//!
//! # Replaying a failure
//! A failing test prints its schedule after the words "failing schedule". Pass that schedule, as it was printed or as
//! the path of a file that contains it, to the same test:
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" KEYLATCH_REPLAY=91010a... cargo test --release --test shuttle -- --exact mutex::everything_at_once
//! ```
//!
//! A failing test also prints the seed of the scheduler. With `SHUTTLE_RANDOM_SEED` set to it, and the same number of
//! schedules, the test runs the same schedules again.
//!
//! # The contents of a model
//! Threads and tasks make random calls on a table (by shuttle's random numbers, which are replayed, too) and record
//! their requests and holds in a [`Book`](book::Book). At the end the book is checked: no two incompatible holds
//! overlapped, no request was passed too often, and nothing is left. There is no check that every request is served,
//! because shuttle reports it if all threads sleep.
//!
//! Blocking calls that may have to wait are left out: they sleep on `event-listener`, which shuttle does not know. Loom
//! runs them. Shuttle treats every atomic operation as sequentially consistent, so loom and ThreadSanitizer check the
//! orderings.
#![cfg(shuttle)]
#![allow(unreachable_pub)] // nothing here is exported

mod book;
mod by_hand;
#[path = "../../../tests/common/mod.rs"]
mod common;
mod deadlock;
mod expiry;
mod histories;
mod latch;
mod many;
mod map;
#[path = "../../../tests/linearizability/map.rs"]
mod map_calls;
mod map_walk;
mod mutex;
mod priority;
mod refresh;
mod rest;
mod rwlock;
mod semaphore;
#[path = "../../../tests/linearizability/spec.rs"]
mod spec;
#[path = "../../../tests/linearizability/walk.rs"]
mod walk;
mod weight;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use keylatch::Fairness;
use shuttle::future::{block_on, spawn};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, Runner};

use crate::book::after;

/// The number of schedules that each test tries with each scheduler, unless `KEYLATCH_SCHEDULES` is set.
const SCHEDULES: usize = if cfg!(debug_assertions) { 300 } else { 4000 };

/// One more than the number of times PCT changes the order of the tasks.
const DEPTH: usize = 4;

const REPLAY: &str = "KEYLATCH_REPLAY";

/// Returns whether only one schedule is replayed, in which case statements about all schedules cannot be checked.
fn replays() -> bool {
    std::env::var_os(REPLAY).is_some()
}

/// Runs a model under many schedules, or under the one that is replayed.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_for(1, model);
}

/// Runs a model under `times` as many schedules. Returns the seed, for a test that may fail afterwards on the
/// statistics of all runs.
fn explore_for(times: u8, model: impl Fn() + Send + Sync + 'static) -> Option<Seed> {
    let model = Arc::new(model);
    if let Ok(replay) = std::env::var(REPLAY) {
        let schedule = std::fs::read_to_string(&replay).unwrap_or(replay);
        run(ReplayScheduler::new_from_encoded(&schedule), &model);
        return None;
    }
    let schedules =
        std::env::var("KEYLATCH_SCHEDULES").map_or(SCHEDULES, |n| n.parse().expect("KEYLATCH_SCHEDULES is a number"));
    let schedules = schedules * usize::from(times);
    let seed = Seed::new();
    run(RandomScheduler::new_from_seed(seed.0, schedules), &model);
    run(PctScheduler::new_from_seed(seed.0, DEPTH, schedules), &model);
    Some(seed)
}

fn run(scheduler: impl Scheduler + 'static, model: &Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    // The warning says that shuttle does not check orderings. The documentation of this file says that, too.
    config.silence_warnings = true;
    let model = Arc::clone(model);
    Runner::new(scheduler, config).run(move || model());
}

/// The schedulers' seed, printed if the test fails.
struct Seed(u64);

impl Seed {
    fn new() -> Self {
        use std::hash::BuildHasher;
        let random = std::hash::RandomState::new().hash_one(0);
        Seed(std::env::var("SHUTTLE_RANDOM_SEED").map_or(random, |seed| seed.parse().expect("a seed is a number")))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the schedulers were seeded with SHUTTLE_RANDOM_SEED={}", self.0);
        }
    }
}

/// Explores a model that returns the largest number of bypasses, under each of these policies, and passes the maximum
/// over all schedules to `look`. The schedule chooses the policy, so that a failure can be replayed.
fn most<const N: usize>(
    policies: [Fairness; N],
    model: impl Fn(Fairness) -> usize + Send + Sync + 'static,
    mut look: impl FnMut(Fairness, usize),
) {
    let most = Arc::new([const { AtomicUsize::new(0) }; N]);
    let seen = Arc::clone(&most);
    let _seed = explore_for(N as u8, move || {
        let at = random(N as u64) as usize;
        seen[at].fetch_max(model(policies[at]), Relaxed);
    });
    if !replays() {
        policies.into_iter().zip(&*most).for_each(|(policy, most)| look(policy, most.load(Relaxed)));
    }
}

/// Like [`most`], for the bounds below `N`: each bound must be reached, because a bound that is never reached shows
/// nothing. The model itself fails if a bound is exceeded.
fn reaches<const N: usize>(model: impl Fn(Fairness) -> usize + Send + Sync + 'static) {
    most(std::array::from_fn::<_, N, _>(|bound| Fairness::Bounded(bound as u16)), model, |policy, most| {
        assert_eq!(policy, Fairness::Bounded(most as u16), "the bound was not reached: at most {most} bypasses");
    });
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Runs four tasks and two threads that all do `steps`. Two of the tasks are aborted, one after the other, each after a
/// wait of fewer than `turns` turns.
fn run_tasks_and_threads<F: Future<Output = ()> + Send + 'static>(steps: impl Fn() -> F, turns: u64) {
    let tasks: Vec<_> = (0..4).map(|_| spawn(steps())).collect();
    let threads = [steps(), steps()].map(|steps| thread::spawn(move || block_on(steps)));
    block_on(async {
        for (at, task) in tasks.into_iter().enumerate() {
            if at < 2 {
                after(random(turns)).await;
                task.abort();
            }
            assert!(task.await.is_ok() || at < 2);
        }
    });
    join(threads);
}

/// Aborts the quitters one after another, and checks that the stayers get the holds for which they wait.
fn quit_and_stay(
    quitters: impl IntoIterator<Item = shuttle::future::JoinHandle<()>>,
    stayers: impl IntoIterator<Item = shuttle::future::JoinHandle<()>>,
) {
    block_on(async {
        for quitter in quitters {
            after(random(3)).await;
            quitter.abort();
            drop(quitter.await);
        }
        for stayer in stayers {
            stayer.await.unwrap();
        }
    });
}

/// Returns a number below `n`, the same in every replay of the schedule.
fn random(n: u64) -> u64 {
    thread_rng().gen_range(0..n)
}

/// The policies. The bounds are small, because a small model cannot exceed a larger one.
const POLICIES: [Fairness; 6] = [
    Fairness::Adaptive,
    Fairness::Bounded(0),
    Fairness::Bounded(1),
    Fairness::Bounded(2),
    Fairness::Fifo,
    Fairness::Barging,
];

fn any_policy() -> Fairness {
    POLICIES[random(POLICIES.len() as u64) as usize]
}

/// Checks that each model is deterministic for a given schedule; otherwise a failing schedule could not be replayed.
#[test]
fn models_depend_on_nothing_but_the_schedule() {
    for model in [
        mutex::everything as fn(),
        rwlock::everything,
        semaphore::everything,
        many::everything,
        map::everything,
        map_walk::everything,
        rest::everything,
        latch::everything,
        histories::walks,
    ] {
        shuttle::check_uncontrolled_nondeterminism(model, 100);
    }
}
