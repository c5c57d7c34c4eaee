//! The engine in this process.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use keylatch_lease::{ManualClock, Memory, StdClock};
use keylatch_lease_conformance::{Caps, Failure, Fixture, Proxy};

/// The engine with a clock for each namespace, which only the suite moves.
#[derive(Default)]
pub(crate) struct Virtual {
    clocks: Mutex<HashMap<String, ManualClock>>,
}

impl Virtual {
    fn clock(&self, namespace: &str) -> ManualClock {
        let mut clocks = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.entry(namespace.to_owned()).or_default().clone()
    }
}

impl Fixture for Virtual {
    type Engine = Memory<ManualClock>;

    fn name(&self) -> String {
        "memory, virtual time".to_owned()
    }

    fn caps(&self) -> Caps {
        Caps::new(Duration::from_secs(10))
    }

    async fn connect(&self, namespace: &str, _: Option<&Proxy>) -> Result<Self::Engine, Failure> {
        Ok(Memory::new(self.clock(namespace)))
    }

    async fn pass(&self, namespace: &str, time: Duration) {
        self.clock(namespace).advance(time);
    }
}

/// The engine with the system's clock.
pub(crate) struct Real;

impl Fixture for Real {
    type Engine = Memory;

    fn name(&self) -> String {
        "memory, real time".to_owned()
    }

    fn caps(&self) -> Caps {
        Caps::new(Duration::from_millis(500))
    }

    async fn connect(&self, _: &str, _: Option<&Proxy>) -> Result<Memory, Failure> {
        Ok(Memory::new(StdClock::new()))
    }
}
