//! The [`models`] through every interleaving, with at most `LOOM_MAX_PREEMPTIONS` preemptions:
//!
//! ```text
//! cd leases/checks
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release --test loom
//! ```
//!
//! That is some 160,000 interleavings, in a minute or two.
//!
//! The leases protect a loom cell, so that a missing happens-before between two tenures is reported, too.
#![cfg(loom)]

mod models;

mod checker {
    #![allow(unsafe_code)] // data that only a lease protects

    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use loom::cell::UnsafeCell;
    pub(crate) use loom::future::block_on;
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};

    /// The size of a stack, in words. A table is too large for loom's default stacks, including that of the first
    /// thread.
    const STACK: usize = 1 << 14;

    pub(crate) mod thread {
        pub(crate) use loom::thread::JoinHandle;

        pub(crate) fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
            loom::thread::Builder::new().stack_size(super::STACK).spawn(run).unwrap()
        }
    }

    pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let model = Arc::new(model);
        loom::model(move || {
            counted.fetch_add(1, Relaxed);
            let model = Arc::clone(&model);
            thread::spawn(move || model()).join().unwrap();
        });
        let name = std::thread::current().name().map(String::from);
        println!("{}: {} interleavings", name.unwrap_or_default(), runs.load(Relaxed));
    }

    /// The value that the leases protect: loom reports two concurrent or unordered accesses.
    pub(crate) struct Shared(UnsafeCell<usize>);

    // SAFETY: loom checks every access.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    impl Shared {
        pub(crate) fn new() -> Arc<Self> {
            Arc::new(Shared(UnsafeCell::new(0)))
        }

        pub(crate) fn bump(&self) {
            // SAFETY: the pointer is the cell's, and loom reports any other access at this time.
            self.0.with_mut(|count| unsafe { *count += 1 });
        }

        pub(crate) fn count(&self) -> usize {
            // SAFETY: as above.
            self.0.with(|count| unsafe { *count })
        }
    }
}
