//! The queues of a table, or of all latches.

use core::ops::Deref;

use crossbeam_utils::CachePadded;

use super::policy::Rules;
use super::queue::{Queues, SharedQueues};
use super::word::CountKind;
use crate::sync::{AtomicUsize, Lock};

/// Queues, each behind its lock, and the default limit of permits.
pub(in crate::core) trait QueueShards {
    /// Returns the default limit; `None` if there are no permits.
    fn default_limit(&self) -> Option<&AtomicUsize>;
}

/// The queues of a table.
pub(in crate::core) struct TableQueues {
    shared: SharedQueues,
    default_limit: Option<AtomicUsize>,
}

impl TableQueues {
    pub(super) fn new(shared: SharedQueues, rules: Rules) -> Self {
        let default_limit = match rules.counted {
            CountKind::Readers => None,
            CountKind::Permits(limit) => Some(AtomicUsize::new(limit)),
        };
        TableQueues { shared, default_limit }
    }

    #[cfg(target_has_atomic = "ptr")]
    pub(super) fn shared(&self) -> &SharedQueues {
        &self.shared
    }
}

impl Deref for TableQueues {
    type Target = [CachePadded<Lock<Queues>>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.shared
    }
}

impl QueueShards for TableQueues {
    #[inline]
    fn default_limit(&self) -> Option<&AtomicUsize> {
        self.default_limit.as_ref()
    }
}

/// The queues of all latches.
impl<H> QueueShards for &'static [CachePadded<Lock<H>>] {
    #[inline]
    fn default_limit(&self) -> Option<&AtomicUsize> {
        None
    }
}
