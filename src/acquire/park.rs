//! The primitive on which a blocked thread sleeps.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;

use event_listener::{Event, Listener, listener};

use crate::sync::{AtomicUsize, Ordering, thread_local, watch};

/// The parker of one thread.
pub(super) struct Parker {
    state: AtomicUsize,
    event: Event,
}

const EMPTY: usize = 0;
const NOTIFIED: usize = 1;
const ASLEEP: usize = 2;

impl Parker {
    /// Spins for a short while, and returns whether a notification arrived.
    pub(super) fn watch(&self) -> bool {
        let notified = watch(|| self.state.load(Ordering::Relaxed) == NOTIFIED);
        if notified {
            self.state.swap(EMPTY, Ordering::AcqRel);
        }
        notified
    }

    /// Sleeps until a notification arrives, or until the deadline.
    pub(super) fn park(&self, deadline: Option<Instant>) {
        loop {
            listener!(self.event => listener);
            // The listener is registered before the flag is checked, so that a notification in between is not missed.
            if self.state.compare_exchange(EMPTY, ASLEEP, Ordering::AcqRel, Ordering::Acquire) == Err(NOTIFIED) {
                break;
            }
            let woken = match deadline {
                None => {
                    listener.wait();
                    true
                }
                Some(deadline) => listener.wait_deadline(deadline).is_some(),
            };
            if !woken || self.state.load(Ordering::Acquire) == NOTIFIED {
                break;
            }
        }
        self.state.swap(EMPTY, Ordering::AcqRel);
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            self.event.notify(1);
        }
    }
}

/// A parker, and its waker.
pub(super) struct Parking {
    pub(super) parker: Arc<Parker>,
    pub(super) waker: Waker,
}

impl Parking {
    fn new() -> Self {
        let parker = Arc::new(Parker { state: AtomicUsize::new(EMPTY), event: Event::new() });
        Parking { waker: Waker::from(Arc::clone(&parker)), parker }
    }
}

thread_local! {
    // Loom's macro cannot be `const`.
    #[allow(clippy::missing_const_for_thread_local)]
    static PARKING: Cell<Option<Parking>> = Cell::new(None);
}

/// The thread's parker while a call uses it. A nested call (from a waker, say), and a call in the destructor of a
/// thread-local variable, each get another parker.
pub(super) struct CachedParker(Option<Parking>);

impl CachedParker {
    pub(super) fn take() -> Self {
        let kept = PARKING.try_with(Cell::take).ok().flatten();
        CachedParker(Some(kept.unwrap_or_else(Parking::new)))
    }
}

impl core::ops::Deref for CachedParker {
    type Target = Parking;
    fn deref(&self) -> &Parking {
        self.0.as_ref().expect("the parker is given back on drop only")
    }
}

impl Drop for CachedParker {
    fn drop(&mut self) {
        let parking = self.0.take();
        // A late notification may still arrive. It ends a later sleep early, which only costs one more poll.
        let _ = PARKING.try_with(|kept| kept.set(parking));
    }
}
