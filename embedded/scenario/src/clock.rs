//! Ticks, and futures that wait for them: the simplest sufficient clock.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Poll, Waker};

use critical_section::Mutex;

/// The number of tasks that can sleep at the same time.
const SLEEPERS: usize = 8;

static TICKS: Mutex<Cell<u32>> = Mutex::new(Cell::new(0));
static ASLEEP: Mutex<RefCell<[Option<Waker>; SLEEPERS]>> = Mutex::new(RefCell::new([const { None }; SLEEPERS]));

/// Counts a tick and wakes the sleepers, which check the time. Called by the interrupt handler.
pub(crate) fn tick() {
    critical_section::with(|cs| TICKS.borrow(cs).set(TICKS.borrow(cs).get() + 1));
    for place in 0..SLEEPERS {
        let waker = critical_section::with(|cs| ASLEEP.borrow_ref_mut(cs)[place].take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

pub(crate) fn ticks() -> u32 {
    critical_section::with(|cs| TICKS.borrow(cs).get())
}

/// Completes after `n` ticks.
pub(crate) async fn sleep(n: u32) {
    let end = ticks() + n;
    poll_fn(|cx| {
        critical_section::with(|cs| {
            if TICKS.borrow(cs).get() >= end {
                return Poll::Ready(());
            }
            let mut asleep = ASLEEP.borrow_ref_mut(cs);
            let known = asleep.iter().flatten().any(|waker| waker.will_wake(cx.waker()));
            if !known {
                let place = asleep.iter_mut().find(|place| place.is_none()).expect("a place for every sleeper");
                *place = Some(cx.waker().clone());
            }
            Poll::Pending
        })
    })
    .await;
}
