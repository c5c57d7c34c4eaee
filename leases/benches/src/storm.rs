//! Very many leases that end within a second, and a bystander that uses other leases in the meantime.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use keylatch_benches::load::pin_to_core;
use keylatch_lease::{Expiry, Leases, Owner, Resource};

use crate::heap::Growth;
use crate::time::Stopwatch;

#[derive(Clone, Copy)]
pub struct Storm {
    pub leases: u64,
    /// The time from the first end to the last.
    pub spread: Duration,
    /// The time from the first end to the end of the measurement.
    pub span: Duration,
    /// Whether a thread calls `tick` again after each delay that `tick` returns.
    pub ticks: bool,
    /// The time between two cycles of the bystander; zero if it makes no pause.
    pub pace: Duration,
}

/// The measured times, in nanoseconds.
pub struct Weather {
    /// The times of an acquire and a release.
    pub calls: Histogram<u64>,
    /// The same times, counted from when each cycle was due. They include the delay that a slow call causes for the
    /// cycles behind it.
    pub due: Histogram<u64>,
    /// The times that the calls spent on a core, without waiting and without other programs.
    pub busy: Histogram<u64>,
    pub ticks: Histogram<u64>,
    /// The share of the leases' bytes that is still in use a little after the end.
    pub kept: f64,
}

/// The time for which the bystander goes on after the measurement.
const AFTER: Duration = Duration::from_millis(50);

impl Storm {
    pub fn watch(self) -> Weather {
        // The time that is allowed for creating all leases. If creating them takes longer, the measurement starts again
        // with more time.
        let mut setup = Duration::from_millis(300) + Duration::from_micros(2 * self.leases);
        loop {
            if let Some(weather) = self.watch_after(setup) {
                return weather;
            }
            setup *= 2;
        }
    }

    fn watch_after(self, setup: Duration) -> Option<Weather> {
        let [mut calls, mut due, mut busy, mut ticks] = [(); 4].map(|()| histogram());
        let growth = Growth::start();
        let leases = Leases::in_memory();
        let start = Instant::now();
        let owners: Vec<_> = (0..1_000).map(|i| Owner::named(format!("session-{i}"))).collect();
        for i in 0..self.leases {
            // Leases that end one after the other do not have neighbouring numbers.
            let nth = i.wrapping_mul(7_919) % self.leases;
            let end = setup + self.spread.mul_f64(nth as f64 / self.leases as f64);
            let left = end.checked_sub(start.elapsed()).filter(|left| !left.is_zero())?;
            let owner = &owners[i as usize % owners.len()];
            let grant = leases.try_acquire_now(("order", i.to_string().as_str()), owner, Expiry::Fixed(left));
            grant.expect("no other owner has the lease");
        }
        let bytes = growth.bytes();
        let first_end = start + setup;
        let wait = first_end.checked_duration_since(Instant::now())?;

        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let ticker = self.ticks.then(|| scope.spawn(|| tick(&leases, &over, &mut ticks)));
            let bystander = scope.spawn(|| {
                pin_to_core(0);
                thread::sleep(wait.saturating_sub(Duration::from_millis(20)));
                self.stand_by(&leases, first_end, [&mut calls, &mut due, &mut busy]);
            });
            bystander.join().expect("no operation panics");
            over.store(true, Ordering::Relaxed);
            if let Some(ticker) = ticker {
                ticker.thread().unpark();
            }
        });
        let kept = growth.bytes() / bytes;
        Some(Weather { calls, due, busy, ticks, kept })
    }

    /// Acquires and releases, and records the times for the fields of [`Weather`].
    fn stand_by(self, leases: &Leases, first_end: Instant, [calls, late, busy]: [&mut Histogram<u64>; 3]) {
        let owner = Owner::named("bystander");
        let resources: Vec<_> = (0..1_000).map(|i| Resource::new("other", i.to_string())).collect();
        let mut resources = resources.iter().cycle();
        let mut due = Instant::now();
        let last = first_end + self.span;
        while due < last + AFTER {
            while Instant::now() < due {
                spin_loop();
            }
            let resource = resources.next().expect("the iterator is endless").clone();
            // The stopwatch itself takes too long for a bystander that makes no pause.
            let on_core = (!self.pace.is_zero()).then(Stopwatch::start);
            let begin = Instant::now();
            let grant = leases.try_acquire_now(resource, &owner, Duration::from_secs(300));
            leases.release_now(&grant.expect("no other owner has the lease")).expect("the lease has not expired");
            let end = Instant::now();
            let on_core = on_core.map(|watch| watch.elapsed());
            // The cycles before the first lease ends are only a warm-up.
            if (first_end..last).contains(&due) {
                calls.saturating_record((end - begin).as_nanos() as u64);
                late.saturating_record((end - due).as_nanos() as u64);
                if let Some(on_core) = on_core {
                    busy.saturating_record(on_core.as_nanos() as u64);
                }
            }
            due = if self.pace.is_zero() { end } else { due + self.pace };
        }
    }
}

fn tick(leases: &Leases, over: &AtomicBool, ticks: &mut Histogram<u64>) {
    pin_to_core(1);
    while !over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let next = leases.tick();
        ticks.saturating_record(begin.elapsed().as_nanos() as u64);
        thread::park_timeout(next.unwrap_or(Duration::from_secs(1)));
    }
}

/// Creates a histogram for times of up to a minute, with three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid")
}

/// Describes the important quantiles, in microseconds.
pub fn describe(histogram: &Histogram<u64>) -> String {
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| micros(histogram, quantile));
    format!("p50 {p50:.2}, p99 {p99:.2}, p99.9 {p999:.2}, max {:.0}", histogram.max() as f64 / 1e3)
}

pub fn micros(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1e3
}
