//! The cases to be measured, and their scale.

use std::cell::RefCell;
use std::time::Duration;

use keylatch_lease_benches::figures::Figures;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The sizes of all cases.
pub struct Scale {
    /// The number of waiters in one process.
    pub crowd: usize,
    /// The number of processes, and of waiters in each of them.
    pub crowds: (usize, usize),
    /// The time for which nothing happens.
    pub idle: Duration,
    /// The numbers of processes among which the resource is handed over.
    pub pairs: &'static [usize],
    pub hand_overs: usize,
    pub kills: usize,
    /// The divisor of the time after which a holder is killed; with 1, the holder has renewed by then.
    pub haste: u32,
    pub leases: usize,
    pub lease: Duration,
    pub renewing: Duration,
}

pub const FULL: Scale = Scale {
    crowd: 1_000,
    crowds: (50, 20),
    idle: Duration::from_secs(10),
    pairs: &[2, 64],
    hand_overs: 300,
    kills: 10,
    haste: 1,
    leases: 10_000,
    lease: Duration::from_secs(30),
    renewing: Duration::from_secs(25),
};
pub const SMOKE: Scale = Scale {
    crowd: 5,
    crowds: (2, 2),
    idle: Duration::from_millis(50),
    pairs: &[2],
    hand_overs: 3,
    kills: 1,
    haste: 20,
    leases: 20,
    lease: Duration::from_secs(30),
    renewing: Duration::from_millis(50),
};

/// The cases to run, and the figures so far.
pub struct Case<'a> {
    pub scale: &'a Scale,
    pub only: Option<String>,
    pub figures: RefCell<Figures>,
}

impl Case<'_> {
    pub fn is_asked_for(&self, case: &str) -> bool {
        self.only.as_ref().is_none_or(|only| case.contains(only.as_str()))
    }

    /// Sets the version of an engine's server.
    pub fn describe(&self, engine: &str, version: &str) {
        self.figures.borrow_mut().describe(engine, version);
    }

    /// Replaces the figures of an engine for the case of this name.
    pub fn note(&self, engine: &str, case: &str, figures: &[(&str, String)]) {
        self.figures.borrow_mut().replace(engine, case, figures);
    }
}
