//! Deadlines: one timer serves the whole process.
//!
//! Nearly all operations end long before their deadline. A timer for each would cost a system call, and would wake the
//! thread that waits for timers. So the deadlines are in a map, and one timer is set to the earliest. An operation that
//! ends takes its deadline out of the map and leaves the timer alone, which may then fire for nothing.

use std::{
    collections::BTreeMap,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Instant,
};

use async_io::Timer;

static DEADLINES: LazyLock<Arc<Deadlines>> = LazyLock::new(Arc::default);

/// The deadlines that have a waker, and the timer. No waker is called or dropped under a lock. No thread waits for the
/// lock of the timer under another lock.
#[derive(Default)]
struct Deadlines {
    due: Mutex<Due>,
    timer: Mutex<Option<Set>>,
    /// The number of requests to set the timer since a thread began to do so; 0 if no thread is doing it.
    asked: AtomicUsize,
}

#[derive(Default)]
struct Due {
    wakers: BTreeMap<(Instant, u64), Waker>,
    last: u64,
}

/// The time to which the timer has been set, and the timer.
type Set = (Instant, Timer);

impl Deadlines {
    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timer(&self) -> MutexGuard<'_, Option<Set>> {
        self.timer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the earliest deadline if the timer has not been set, or is set to a later time.
    fn missed(&self, set: Option<&Set>) -> Option<Instant> {
        let earliest = self.due().wakers.first_key_value().map(|(&(at, _), _)| at)?;
        set.is_none_or(|&(at, _)| earliest < at).then_some(earliest)
    }

    /// Sets the timer to the earliest deadline, unless it is already set to that time or an earlier one.
    fn set(self: &Arc<Self>) {
        if self.asked.fetch_add(1, SeqCst) > 0 {
            return; // the thread that is setting it looks again
        }
        loop {
            let asked = self.asked.load(SeqCst);
            let mut set = self.timer();
            let mut is_reached = false;
            while let Some(at) = self.missed(set.as_ref()).filter(|_| !is_reached) {
                let mut timer = Timer::at(at);
                let waker = Waker::from(Arc::clone(self));
                is_reached = Pin::new(&mut timer).poll(&mut Context::from_waker(&waker)).is_ready();
                if !is_reached {
                    *set = Some((at, timer));
                }
            }
            drop(set);
            if is_reached {
                self.wake_due();
            } else if self.asked.compare_exchange(asked, 0, SeqCst, SeqCst).is_ok() {
                return;
            }
        }
    }

    /// Wakes the operations whose deadlines have been reached.
    fn wake_due(&self) {
        let reached = {
            let mut due = self.due();
            let later = due.wakers.split_off(&(Instant::now(), u64::MAX));
            mem::replace(&mut due.wakers, later)
        };
        for waker in reached.into_values() {
            // A waker that panics must not keep the others from being called.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

impl Wake for Deadlines {
    fn wake(self: Arc<Self>) {
        let fired = self.timer().take();
        drop(fired);
        self.wake_due();
        self.set();
    }
}

/// A point in time at which a task is woken. It leaves nothing behind when it is dropped.
#[derive(Debug)]
pub(crate) struct Deadline {
    /// The point in time; `None` if it never comes.
    at: Option<Instant>,
    /// The deadline's number in the map, and its waker there, once it is in the map.
    waiting: Option<(u64, Waker)>,
}

impl Deadline {
    pub(crate) fn at(at: Option<Instant>) -> Self {
        Deadline { at, waiting: None }
    }

    /// Becomes ready when the time has been reached, and stays ready.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Pending };
        if Instant::now() >= at {
            return Poll::Ready(());
        }
        let (is_new, waker, kept) = match &mut self.waiting {
            Some((_, known)) if known.will_wake(cx.waker()) => return Poll::Pending,
            waiting => (waiting.is_none(), cx.waker().clone(), cx.waker().clone()),
        };
        let before = {
            let mut due = DEADLINES.due();
            due.last += u64::from(is_new);
            let id = self.waiting.as_ref().map_or(due.last, |&(id, _)| id);
            let before = due.wakers.insert((at, id), waker);
            (before, self.waiting.replace((id, kept)))
        };
        drop(before); // a waker's drop may run other code
        DEADLINES.set();
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let (Some(at), Some((id, _))) = (self.at, &self.waiting) else { return };
        let waker = DEADLINES.due().wakers.remove(&(at, *id));
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    /// Counts how many times it is woken, and may panic.
    #[derive(Default)]
    struct Woken(AtomicUsize, bool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
            assert!(!self.1, "a waker panics");
        }
    }

    fn after(millis: u64) -> Deadline {
        Deadline::at(Instant::now().checked_add(Duration::from_millis(millis)))
    }

    fn is_reached(deadline: &mut Deadline, woken: &Arc<Woken>) -> bool {
        deadline.poll(&Context::from_waker(&Waker::from(Arc::clone(woken)))).is_ready()
    }

    fn await_all(woken: &[Arc<Woken>]) {
        let start = Instant::now();
        for woken in woken {
            while woken.0.load(SeqCst) == 0 {
                assert!(start.elapsed() < Duration::from_secs(20), "a task is never woken");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn each_task_is_woken_when_its_time_is_reached_and_not_before() {
        // Each deadline is earlier than those before it, so the timer must be set again each time.
        let mut all: Vec<_> = (0..20).rev().map(|i| (after(100 + 10 * i), Arc::new(Woken::default()))).collect();
        assert!(all.iter_mut().all(|(deadline, woken)| !is_reached(deadline, woken)));
        for (deadline, woken) in all.iter_mut().rev() {
            await_all(&[Arc::clone(woken)]);
            assert!(is_reached(deadline, woken) && is_reached(deadline, woken));
        }
    }

    #[test]
    fn the_timer_is_set_for_those_that_come_after_the_earliest_has_been_dropped() {
        let woken = Arc::new(Woken::default());
        let (mut first, mut second) = (after(20), after(60));
        assert!(!is_reached(&mut first, &woken));
        drop(first);
        assert!(!is_reached(&mut second, &woken));
        await_all(&[Arc::clone(&woken)]);
        assert!(is_reached(&mut second, &woken));
        assert_eq!(woken.0.load(SeqCst), 1);
    }

    #[test]
    fn a_waker_that_panics_hides_no_other_deadline() {
        let (bad, good) = (Arc::new(Woken(AtomicUsize::new(0), true)), Arc::new(Woken::default()));
        let at = Instant::now() + Duration::from_millis(50);
        let (mut one, mut other) = (Deadline::at(Some(at)), Deadline::at(Some(at)));
        assert!(!is_reached(&mut one, &bad) && !is_reached(&mut other, &good));
        await_all(&[bad, good]);
    }

    #[test]
    fn the_last_task_that_polls_is_the_one_that_is_woken() {
        let (one, other) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let mut deadline = after(50);
        assert!(!is_reached(&mut deadline, &one) && !is_reached(&mut deadline, &other));
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (1, 3));
        await_all(&[Arc::clone(&other)]);
        assert_eq!(one.0.load(SeqCst), 0);
    }

    #[test]
    fn a_dropped_deadline_leaves_nothing_behind() {
        let woken = Arc::new(Woken::default());
        let mut deadline = after(1_000_000);
        assert!(!is_reached(&mut deadline, &woken));
        drop(deadline);
        assert_eq!(Arc::strong_count(&woken), 1);
        assert!(!is_reached(&mut Deadline::at(None), &woken));
        assert_eq!(Arc::strong_count(&woken), 1);
    }

    #[test]
    fn many_threads_set_the_timer() {
        thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for round in 0..50 {
                        let (mut deadline, woken) = (after((thread * 7 + round * 3) % 10), Arc::new(Woken::default()));
                        if !is_reached(&mut deadline, &woken) {
                            await_all(&[Arc::clone(&woken)]);
                            assert!(is_reached(&mut deadline, &woken));
                        }
                    }
                });
            }
        });
    }
}
