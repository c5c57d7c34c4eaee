//! The time that one thread has had a core. What else the machine does meanwhile is not in there.

use std::time::{Duration, Instant};

use keylatch_benches::system::thread_time;

pub struct Stopwatch {
    /// Where nobody knows it, the time that has passed must do.
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

/// The nanoseconds of an operation that this thread does again and again, `n` times at each call.
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
