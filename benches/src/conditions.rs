//! The conditions under which the threads of a scenario run. A lock that was tuned on an idle machine may be slow on
//! a busy one, or where a wake-up takes longer.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::load::{pin_to_core, round_trips};
use crate::system::Slow;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    AsItIs,
    /// Each core also has a thread that never waits.
    BusyCores,
    /// All threads share one core.
    OneCore,
    /// A woken thread continues later: see [`crate::system`].
    SlowWake,
}

impl Condition {
    pub const ALL: [Self; 4] = [Condition::AsItIs, Condition::BusyCores, Condition::OneCore, Condition::SlowWake];

    pub fn name(self) -> &'static str {
        match self {
            Condition::AsItIs => "as it is",
            Condition::BusyCores => "busy cores",
            Condition::OneCore => "one core",
            Condition::SlowWake => "slow wake",
        }
    }

    /// Returns whether this system supports the condition.
    pub fn is_possible(self) -> bool {
        match self {
            Condition::AsItIs | Condition::BusyCores => true,
            // On other systems a new thread does not stay on its creator's core.
            Condition::OneCore => cfg!(target_os = "linux"),
            Condition::SlowWake => Slow::begin().is_some(),
        }
    }

    /// Runs `work` under this condition, which also applies to the threads that it starts.
    pub fn run<T: Send>(self, work: impl FnOnce() -> T + Send) -> T {
        match self {
            Condition::AsItIs => work(),
            Condition::BusyCores => {
                let busy = AtomicBool::new(true);
                thread::scope(|scope| {
                    let _end = End(&busy);
                    for core in 0..thread::available_parallelism().map_or(1, usize::from) {
                        let busy = &busy;
                        scope.spawn(move || {
                            pin_to_core(core);
                            // This uses no spin hint, because that might yield the core to another thread.
                            let mut n = 0_u64;
                            while busy.load(Ordering::Relaxed) {
                                n = black_box(n + 1);
                            }
                        });
                    }
                    work()
                })
            }
            // A separate thread, because the caller's must not stay pinned. Threads started by a pinned thread stay
            // on its core.
            Condition::OneCore => thread::scope(|scope| {
                let pinned = scope.spawn(|| {
                    pin_to_core(0);
                    work()
                });
                pinned.join().expect("no operation panics")
            }),
            Condition::SlowWake => {
                let _slow = Slow::begin().expect("this system supports slow wake-ups");
                work()
            }
        }
    }

    /// Returns the microseconds that it takes to wake a thread and be woken by it.
    pub fn round_trip(self) -> f64 {
        self.run(|| round_trips(Duration::from_millis(50))) / 1e3
    }
}

/// Ends the other threads together with the work, even if that panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Describes how long it takes to wake a thread and be woken by it, under each condition that this system supports,
/// and which conditions it does not support.
pub fn wakes() -> String {
    let (possible, missing): (Vec<_>, Vec<_>) = Condition::ALL.into_iter().partition(|one| one.is_possible());
    let told = possible.into_iter().map(|one| format!("{:.0} µs ({})", one.round_trip(), one.name()));
    let told = told.collect::<Vec<_>>().join(", ");
    let missing = missing.into_iter().map(|one| format!(" This system cannot have the condition \"{}\".", one.name()));
    format!("Waking a thread and being woken by it takes {told}.{}", missing.collect::<String>())
}
