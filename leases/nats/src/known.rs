//! What this connection knows of the resources that it has just dealt with: it spares the question for the last message. Whether that is still
//! so decides the server, which stores nothing behind another message than the expected one.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keylatch_lease::Resource;

use crate::record::Tenure;

/// With more than so many, all are forgotten.
const MOST: usize = 1024;

/// The last message of a resource.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// It says that the resource is free, and which token the last tenure had.
    Free { sequence: u64, token: u64 },
    /// There is one, but which was not written down.
    Some,
    /// It is of this tenure.
    Held {
        sequence: u64,
        owner: String,
        token: u64,
        /// By the clock of this process, until then it has surely not expired.
        until: Duration,
        /// Whose it is by the server's time, where that was asked for.
        tenure: Option<Tenure>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<Resource, Known>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, HashMap<Resource, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the known state, in order to change it.
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
    fn it_does_not_grow_without_end() {
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
