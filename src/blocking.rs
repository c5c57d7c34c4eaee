//! The forms that block a thread: the same requests as the async ones, polled with a waker that unparks the thread.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

use event_listener::{Event, Listener, listener};

use crate::core::{Ask, Entry, full};
use crate::guard::Guard;
use crate::mode::Mode;
use crate::plumbing::TablePtr;
use crate::request::{Call, Request, Source};
use crate::sync::{AtomicUsize, Ordering, Patience, thread_local};

impl<P: TablePtr, S: Source<P::Key>, M: Mode> Call<P, S, M> {
    /// A hold if that is possible at once, else a request that has not been polled.
    #[inline]
    fn enter(self) -> Result<Guard<P, M>, Request<P, M>> {
        match self.source.ask(self.table.core(), Ask::Enter(M::MODE)) {
            Entry::Held(hold) => Ok(Guard::new(self.table, hold)),
            Entry::Claimed(claim) => Err(Request::new(self.table, claim)),
            Entry::Refused | Entry::Full => full(),
        }
    }

    #[inline]
    pub(crate) fn blocking(self) -> Guard<P, M> {
        match self.enter() {
            Ok(guard) => guard,
            Err(request) => block(request, None).expect("a wait without a deadline ends with the hold"),
        }
    }

    pub(crate) fn deadline(self, deadline: Instant) -> Option<Guard<P, M>> {
        self.enter().map_or_else(|request| block(request, Some(deadline)), Some)
    }

    pub(crate) fn timeout(self, timeout: Duration) -> Option<Guard<P, M>> {
        self.enter().map_or_else(|request| block(request, deadline_after(timeout)), Some)
    }
}

/// A timeout that is too long for the clock is none.
pub(crate) fn deadline_after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// What a thread can wait for: a request, or an upgrade.
pub(crate) trait Wait {
    type Output;

    /// Whether somebody who is not in the queue may get in at all; and whether it seems that this one may, now. Both at a
    /// glance, and without a promise.
    fn glance(&self) -> (bool, bool);

    /// Tries once, without a place in the queue.
    fn attempt(&mut self) -> Option<Self::Output>;

    fn poll(&mut self, waker: &Waker) -> Poll<Self::Output>;
}

impl<P: TablePtr, M: Mode> Wait for Request<P, M> {
    type Output = Guard<P, M>;

    fn glance(&self) -> (bool, bool) {
        self.glance()
    }

    fn attempt(&mut self) -> Option<Guard<P, M>> {
        self.attempt()
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Guard<P, M>> {
        self.poll(waker)
    }
}

/// Waits. `None` if the deadline was reached first.
#[inline(never)]
pub(crate) fn block<W: Wait>(mut wait: W, deadline: Option<Instant>) -> Option<W::Output> {
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return wait.attempt();
    }
    // Not yet in the queue, so not under a policy that has no place for those who do not queue.
    let mut patience = Patience::new();
    while let (true, free) = wait.glance() {
        if let Some(output) = free.then(|| wait.attempt()).flatten() {
            return Some(output);
        }
        if !patience.wait() {
            break;
        }
    }
    let parker = Lease::new();
    loop {
        if let Poll::Ready(output) = wait.poll(&parker.waker) {
            return Some(output);
        }
        if !parker.state.park(deadline) {
            // It may have been handed over a moment ago.
            return match wait.poll(&parker.waker) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            };
        }
    }
}

/// What one thread sleeps on.
struct Parker {
    state: AtomicUsize,
    event: Event,
}

const EMPTY: usize = 0;
const NOTIFIED: usize = 1;
const ASLEEP: usize = 2;

impl Parker {
    /// Sleeps until it is notified. `false` if the deadline was reached first.
    fn park(&self, deadline: Option<Instant>) -> bool {
        let mut patience = Patience::new();
        while self.state.load(Ordering::Relaxed) != NOTIFIED && patience.wait() {}
        let notified = loop {
            listener!(self.event => listener);
            // Listen first, then look: a notification in between is seen by one of the two.
            if self.state.compare_exchange(EMPTY, ASLEEP, Ordering::AcqRel, Ordering::Acquire) == Err(NOTIFIED) {
                break true;
            }
            let woken = match deadline {
                None => {
                    listener.wait();
                    true
                }
                Some(deadline) => listener.wait_deadline(deadline).is_some(),
            };
            if self.state.load(Ordering::Acquire) == NOTIFIED {
                break true;
            }
            if !woken {
                break false;
            }
        };
        self.state.swap(EMPTY, Ordering::AcqRel);
        notified
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
struct Parking {
    state: Arc<Parker>,
    waker: Waker,
}

impl Parking {
    fn new() -> Self {
        let state = Arc::new(Parker { state: AtomicUsize::new(EMPTY), event: Event::new() });
        Parking { waker: Waker::from(Arc::clone(&state)), state }
    }
}

thread_local! {
    // Not `const`: loom's macro does not know that.
    #[allow(clippy::missing_const_for_thread_local)]
    static PARKING: Cell<Option<Parking>> = Cell::new(None);
}

/// The thread's parker while one call uses it. A call inside that one (from a waker, say), and one in the destructor of a
/// thread-local variable, get a parker of their own.
struct Lease(Option<Parking>);

impl Lease {
    fn new() -> Self {
        let kept = PARKING.try_with(Cell::take).ok().flatten();
        Lease(Some(kept.unwrap_or_else(Parking::new)))
    }
}

impl core::ops::Deref for Lease {
    type Target = Parking;
    fn deref(&self) -> &Parking {
        self.0.as_ref().expect("the parker is given back on drop only")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let parking = self.0.take();
        // A late wake-up may still arrive. It ends a later wait early, which then polls once more for nothing.
        let _ = PARKING.try_with(|kept| kept.set(parking));
    }
}
