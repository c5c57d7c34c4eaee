//! The clock by which leases end. All processes of the machine share it. On Linux it goes on while the machine is
//! suspended, and nobody can set it; elsewhere it is the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

/// An instant, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The time by the clock that counts from the machine's start; where there is no such clock, the time of day.
    pub(crate) clock: i64,
    /// The time of day, since 1970.
    pub(crate) day: i64,
}

pub(crate) fn now() -> Now {
    let day = day();
    Now { clock: since_start().unwrap_or(day), day }
}

fn day() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Returns the time since the machine's start, if it has a clock that counts it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_start() -> Option<i64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Some(time.tv_sec * 1_000_000 + time.tv_nsec / 1000)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_start() -> Option<i64> {
    None
}

/// Returns the name of this start of the machine. Each restart brings a new name, and some containers have their own.
/// Where the time of day is the clock, all starts have the same name.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn boot() -> String {
    // If no process has access to the name, leases are counted as if the machine had never been restarted: those from
    // before a restart last too long, because the clock began again.
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn boot() -> String {
    String::new()
}
