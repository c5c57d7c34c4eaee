//! The time that a thread has spent on a core. The time of other programs is not included.

use std::time::{Duration, Instant};

use keylatch_benches::system::thread_time;

pub struct Stopwatch {
    /// The thread's time at the start; `None` if the system does not report it, and the elapsed time is used instead.
    thread: Option<Duration>,
    start: Instant,
}

impl Stopwatch {
    pub fn start() -> Self {
        Stopwatch { start: Instant::now(), thread: thread_time() }
    }

    pub fn elapsed(&self) -> Duration {
        self.thread.zip(thread_time()).map_or_else(|| self.start.elapsed(), |(before, after)| after - before)
    }
}

/// Returns how many nanoseconds an operation takes. `work` runs the operation as many times as its argument says, and
/// is called again and again for `span`.
pub fn timed(span: Duration, mut work: impl FnMut(u64)) -> f64 {
    const BATCH: u64 = 1_000;
    let start = Stopwatch::start();
    let mut n = 0;
    loop {
        work(BATCH);
        n += BATCH;
        let elapsed = start.elapsed();
        if elapsed >= span {
            return elapsed.as_nanos() as f64 / n as f64;
        }
    }
}
