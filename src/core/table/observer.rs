//! The observer of a table's waits.

use alloc::boxed::Box;
use core::fmt;

use crate::core::wait::word::{Access, Want};
use crate::sync::{AtomicU32, Ordering};
use crate::wait_event::{WaitEvent, WaitId, WaitMode, WaitPhase};

/// User code that is called when a wait begins and when it ends, with no internal lock held.
pub(crate) struct Observer<K> {
    /// The number of the last wait. It is not part of a protocol, so accesses to it are relaxed.
    last: AtomicU32,
    call: Box<Call<K>>,
}

type Call<K> = dyn Fn(&WaitEvent<'_, K>) + Send + Sync;

// The observer is only called while the table is consistent.
impl<K> core::panic::UnwindSafe for Observer<K> {}
impl<K> core::panic::RefUnwindSafe for Observer<K> {}

impl<K> Observer<K> {
    pub(crate) fn new(call: impl Fn(&WaitEvent<'_, K>) + Send + Sync + 'static) -> Self {
        Observer { last: AtomicU32::new(0), call: Box::new(call) }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn tell(&self, key: &K, want: Want, phase: WaitPhase, id: WaitId) {
        (self.call)(&WaitEvent::new(key, wait_mode(want), phase, id));
    }

    /// Returns the id of a wait that begins.
    pub(super) fn next(&self) -> WaitId {
        loop {
            if let Some(id) = WaitId::new(self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1)) {
                return id;
            }
        }
    }
}

impl<K> fmt::Debug for Observer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

/// Returns the public form of a want.
pub(crate) fn wait_mode(want: Want) -> WaitMode {
    match want {
        Want::Upgrade => WaitMode::Upgrade,
        Want::Hold(Access::Exclusive) => WaitMode::Write,
        Want::Hold(Access::Upgradable) => WaitMode::UpgradableRead,
        Want::Hold(Access::Shared) => WaitMode::Read,
        Want::Hold(Access::Permits(amount)) => WaitMode::Permits(amount as usize),
    }
}
