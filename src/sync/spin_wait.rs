use std::sync::OnceLock;
use std::time::Instant;

use super::cpus;

/// The spinning of a thread before it sleeps: first with growing pauses (unless there is only one CPU), then by
/// yielding its time slice twice.
///
/// Growing pauses help a hot key with short sections: each check takes the cache line from the holder, so a waiter that
/// rarely checks lets the holder run many sections at full speed.
pub(crate) struct SpinWait {
    looks: u32,
}

/// The number of pauses. They last 1, 2, 4, 4, 4, 4, 4 and 4 [ticks](pause), not quite three microseconds in all.
/// Longer pauses would gain a few per cent of throughput, and double the longest of a thousand waits.
const PAUSES: u32 = 8;
const LONGEST_PAUSE: u32 = 4;

const YIELDS: u32 = 2;

impl SpinWait {
    pub(crate) fn new() -> Self {
        SpinWait { looks: if cpus() == Some(1) { PAUSES } else { 0 } }
    }

    /// Waits a little. Returns `false` when the wait has been long enough.
    pub(crate) fn spin(&mut self) -> bool {
        self.looks += 1;
        if self.looks <= PAUSES {
            pause((1 << (self.looks - 1)).min(LONGEST_PAUSE));
        } else if self.looks <= PAUSES + YIELDS {
            std::thread::yield_now();
        } else {
            return false;
        }
        true
    }
}

/// The number of [ticks](pause) for which a thread watches its own word: about six microseconds. Watching disturbs no
/// other thread, so the thread checks after each tick. With a smaller number, threads would go to sleep a moment before
/// a section ends; with a larger one, they would waste CPU time.
const WATCH: u32 = 60;

/// Spins until `has_happened` returns `true`, and returns whether it did in time.
pub(crate) fn watch(mut has_happened: impl FnMut() -> bool) -> bool {
    let ticks = if cpus() == Some(1) { 0 } else { WATCH };
    (0..ticks).any(|_| {
        pause(1);
        has_happened()
    }) || has_happened()
}

/// Pauses for `ticks` ticks of about 100 nanoseconds, however long the machine's pause instruction takes.
fn pause(ticks: u32) {
    for _ in 0..ticks * *hints_per_tick() {
        hint();
    }
}

/// Returns the number of spin hints in a tick, from the quickest of a few timed runs, because a run may be interrupted.
/// The runs take about ten microseconds, once per process, when a thread first finds a key held.
fn hints_per_tick() -> &'static u32 {
    static HINTS: OnceLock<u32> = OnceLock::new();
    HINTS.get_or_init(|| {
        let run = |_| {
            let start = Instant::now();
            (0..RUN).for_each(|_| hint());
            start.elapsed().as_nanos()
        };
        hints_at((0..5).map(run).min().unwrap_or_default())
    })
}

/// The number of hints that are timed together.
const RUN: u32 = 64;

/// Returns the number of hints in a tick if [`RUN`] of them take this many nanoseconds: at least one, and at most one
/// for each nanosecond, even if the clock is too coarse to measure.
fn hints_at(nanos: u128) -> u32 {
    let nanos = u32::try_from(nanos).unwrap_or(u32::MAX).max(RUN);
    (RUN * TICK / nanos).max(1)
}

/// The length of a tick, in nanoseconds.
const TICK: u32 = 100;

#[inline]
fn hint() {
    if cfg!(keylatch_short_pause) {
        core::hint::black_box(());
    } else {
        core::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_has_as_many_hints_as_fit_and_at_least_one() {
        let nanoseconds_for_each_hint = [(1, 100), (4, 25), (24, 4), (47, 2), (100, 1), (140, 1)];
        for (each, hints) in nanoseconds_for_each_hint {
            assert_eq!(hints_at(u128::from(RUN) * each), hints);
        }
        assert_eq!(hints_at(0), 100, "a clock that stands still");
        assert_eq!(hints_at(u128::MAX), 1, "a debugger");
    }
}
