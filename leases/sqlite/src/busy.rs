//! The wait for another process that has the file locked.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
    thread,
    time::{Duration, Instant},
};

/// The first and the longest pause before SQLite tries the lock again; the pauses double in between. The real pause is
/// between half of that and all of it, at random.
const SHORTEST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(5);

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Sets the time until which the statements of this thread wait.
pub(crate) fn set_deadline(deadline: Instant) {
    DEADLINE.set(Some(deadline));
}

/// Pauses, and returns whether to try again: SQLite's busy handler. SQLite tells it how often it has been called for
/// this lock.
pub(crate) fn wait(times: i32) -> bool {
    if DEADLINE.get().is_none_or(|deadline| Instant::now() >= deadline) {
        return false;
    }
    let longest = SHORTEST.saturating_mul(1 << times.clamp(0, 10)).min(LONGEST);
    let random = RandomState::new().hash_one(times) % 1000;
    thread::sleep(longest.mul_f64(0.5 + random as f64 / 2000.0));
    true
}
