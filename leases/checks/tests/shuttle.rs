//! The [`models`] under many random schedules, and a crowd that is too large for loom:
//!
//! ```text
//! cd leases/checks
//! RUSTFLAGS="--cfg shuttle" cargo test --release --test shuttle
//! ```
//!
//! `KEYLATCH_SCHEDULES` says how many schedules each test tries with each scheduler. A test that fails prints its seed,
//! for `SHUTTLE_RANDOM_SEED`.
#![cfg(shuttle)]

mod crowd;
mod models;

mod checker {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    pub(crate) use shuttle::future::block_on;
    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
    pub(crate) use shuttle::thread;

    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::{Config, Runner};

    /// The default number of schedules that each test tries with each scheduler.
    const SCHEDULES: usize = if cfg!(debug_assertions) { 300 } else { 4000 };

    /// PCT's depth: one more than the number of times that it changes the order of the threads.
    const DEPTH: usize = 4;

    pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
        let model = Arc::new(model);
        let schedules = std::env::var("KEYLATCH_SCHEDULES")
            .map_or(SCHEDULES, |n| n.parse().expect("KEYLATCH_SCHEDULES is a number"));
        let seed = Seed::new();
        run(RandomScheduler::new_from_seed(seed.0, schedules), &model);
        run(PctScheduler::new_from_seed(seed.0, DEPTH, schedules), &model);
    }

    fn run(scheduler: impl Scheduler + 'static, model: &Arc<impl Fn() + Send + Sync + 'static>) {
        let mut config = Config::new();
        config.stack_size = 1 << 18;
        // Shuttle treats every atomic operation as sequentially consistent: orderings are left to loom.
        config.silence_warnings = true;
        let model = Arc::clone(model);
        Runner::new(scheduler, config).run(move || model());
    }

    /// A seed, which is printed if the test fails.
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

    /// The value that the leases protect. It detects two concurrent accesses.
    pub(crate) struct Shared {
        inside: AtomicUsize,
        count: AtomicUsize,
    }

    impl Shared {
        pub(crate) fn new() -> Arc<Self> {
            Arc::new(Shared { inside: AtomicUsize::new(0), count: AtomicUsize::new(0) })
        }

        pub(crate) fn bump(&self) {
            assert_eq!(self.inside.fetch_add(1, SeqCst), 0, "two threads hold the lease");
            self.count.fetch_add(1, SeqCst);
            thread::yield_now();
            self.inside.fetch_sub(1, SeqCst);
        }

        pub(crate) fn count(&self) -> usize {
            self.count.load(SeqCst)
        }
    }
}
