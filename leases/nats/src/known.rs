//! The last messages of the resources that this connection has used recently: knowing them saves a request. The
//! knowledge may be out of date: the server decides, because it stores no message unless the last one is the expected
//! one.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keylatch_lease::Resource;

use crate::record::Tenure;

/// The greatest number of remembered resources: when it is reached, all are forgotten.
const MOST: usize = 1024;

/// The last message of a resource.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// The message says that the resource is free, and contains the token of the last tenure.
    Free { sequence: u64, token: u64 },
    /// There is a message, but its content is not remembered.
    Some,
    /// The message belongs to this tenure.
    Held {
        sequence: u64,
        owner: String,
        token: u64,
        /// The time, by the clock of this process, until which the tenure has certainly not expired.
        until: Duration,
        /// The tenure by the server's time, if that was read.
        tenure: Option<Tenure>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<Resource, Known>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, HashMap<Resource, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns what is known about a resource. A caller that changes the resource remembers the new state.
    pub(crate) fn take(&self, resource: &Resource) -> Option<Known> {
        self.lock().remove(resource)
    }

    pub(crate) fn keep(&self, resource: &Resource, known: Known) {
        let mut all = self.lock();
        let forgotten = if all.len() >= MOST { std::mem::take(&mut *all) } else { HashMap::new() };
        all.insert(resource.clone(), known);
        drop(all);
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, MOST, Memory};
    use keylatch_lease::Resource;

    #[test]
    fn the_memory_does_not_grow_without_bound() {
        let memory = Memory::default();
        for at in 0..10 * MOST {
            memory.keep(&Resource::from(at.to_string()), Known::Free { sequence: 1, token: 1 });
            assert!(memory.lock().len() <= MOST);
        }
        let last = Resource::from((10 * MOST - 1).to_string());
        assert!(matches!(memory.take(&last), Some(Known::Free { sequence: 1, .. })));
        assert!(memory.take(&last).is_none());
    }
}
