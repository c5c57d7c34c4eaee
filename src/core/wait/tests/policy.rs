//! The policies for threads, and for waiters whose attempts fail after they were woken. (The model in `tests/` also
//! tests the policies for tasks.)

use alloc::vec::Vec;
use core::task::Waker;
use std::sync::{Arc, Mutex};
use std::task::Wake;

use crate::Fairness;
use crate::core::wait::policy::{Cause, WaitState};
use crate::core::wait::queue::Queues;
use crate::core::wait::word::{Access, Holds, Want};
use crate::core::wait::{CountKind, Presence, Rules, Ticket, Waiter, WakeBatch};

use Access::{Exclusive as W, Shared as R};
use Presence::{SleepingThread as Sleeps, SpinningThread as Looks, Task};

const HANDING_OVER: [Fairness; 2] = [Fairness::Adaptive, Fairness::Bounded(999)];

/// A queue of waiters for one key.
struct Hot {
    queues: Queues,
    queue: u32,
    rules: Rules,
    tickets: Vec<Ticket>,
}

impl Hot {
    fn new(fairness: Fairness, counted: CountKind, wanted: Access, waiting: &[Presence]) -> Hot {
        let (mut queues, rules) = (Queues::new(), Rules { fairness, counted });
        let queue = queues.open_queue(rules.limit());
        let push = |&presence| queues.push(queue, Want::Hold(wanted), 0, presence, &rules, Waker::noop().clone());
        let tickets = waiting.iter().map(push).collect();
        Hot { queues, queue, rules, tickets }
    }

    fn mutex(fairness: Fairness, waiting: &[Presence]) -> Hot {
        Hot::new(fairness, CountKind::Readers, W, waiting)
    }

    /// Releases everything, and returns the waiters that have been granted their holds.
    fn release(&mut self) -> Vec<usize> {
        self.admit(Holds::NONE, Cause::WriterLeft)
    }

    fn admit(&mut self, holds: Holds, cause: Cause) -> Vec<usize> {
        self.queues.admit(self.queue, holds, &self.rules, cause, &mut WakeBatch::default());
        (0..self.tickets.len()).filter(|&at| self.queues.state(self.tickets[at]) == WaitState::Granted).collect()
    }

    fn woken(&self) -> Vec<usize> {
        (0..self.tickets.len()).filter(|&at| self.queues.state(self.tickets[at]) == WaitState::Woken).collect()
    }

    /// Polls a waiter while the key is held, so that it stays.
    fn ask_in_vain(&mut self, at: usize, presence: Presence) {
        let mut batch = WakeBatch::default();
        batch.fresh = Some(Waker::noop().clone());
        let waiter = Waiter { presence, waker: Waker::noop() };
        let stays = self.queues.stay(self.queue, self.tickets[at], waiter, &self.rules, &mut batch);
        assert!(stays);
    }

    /// Lets a newcomer try to pass the queue while the key is free.
    fn is_passed(&mut self) -> bool {
        self.queues.bypass(self.queue, Holds::NONE, W, &self.rules)
    }
}

#[test]
fn a_release_hands_the_key_to_a_spinning_thread_at_any_position_and_wakes_the_head() {
    for fairness in HANDING_OVER {
        let mut hot = Hot::mutex(fairness, &[Sleeps, Task, Looks, Looks]);
        assert_eq!(hot.release(), [2], "{fairness:?}");
        assert_eq!(hot.woken(), [0], "{fairness:?}");
        assert_eq!(hot.release(), [2, 3]);
        assert_eq!(hot.release(), [2, 3], "no thread spins any more");
    }
    for fairness in [Fairness::Barging, Fairness::Fifo] {
        let mut hot = Hot::mutex(fairness, &[Task, Looks]);
        assert_ne!(hot.release(), [1], "{fairness:?}");
    }
}

/// Waking a sleeping head may take a system call, and the key would be idle meanwhile.
#[test]
fn a_thread_that_was_handed_the_key_is_woken_before_the_head() {
    struct Bell(u8, Arc<Mutex<Vec<u8>>>);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }
    let mut hot = Hot::mutex(Fairness::Adaptive, &[]);
    let rung = Arc::new(Mutex::new(Vec::new()));
    for (bell, presence) in [(0, Sleeps), (1, Looks)] {
        let waker = Waker::from(Arc::new(Bell(bell, Arc::clone(&rung))));
        hot.tickets.push(hot.queues.push(hot.queue, Want::Hold(W), 0, presence, &hot.rules, waker));
    }
    assert_eq!(hot.release(), [1]);
    assert_eq!(*rung.lock().unwrap(), [1, 0]);
}

#[test]
fn a_spinning_thread_at_the_head_is_handed_the_key() {
    for fairness in HANDING_OVER {
        let mut hot = Hot::mutex(fairness, &[Looks, Looks]);
        assert_eq!(hot.release(), [0], "{fairness:?}");
    }
}

#[test]
fn a_thread_that_has_stopped_spinning_is_handed_nothing() {
    for fairness in HANDING_OVER {
        let mut hot = Hot::mutex(fairness, &[Task, Looks, Sleeps]);
        hot.ask_in_vain(1, Sleeps);
        assert_eq!(hot.release(), [], "{fairness:?}");
        // The thread is also in the list of sleeping waiters.
        assert_eq!((hot.release(), hot.woken()), (Vec::new(), [0, 1].into()));
        assert_eq!((hot.release(), hot.woken()), (Vec::new(), [0, 1, 2].into()));
    }
}

#[test]
fn a_hand_off_behind_the_head_counts_as_passing_the_head() {
    let mut hot = Hot::mutex(Fairness::Bounded(2), &[Sleeps, Looks, Looks, Looks]);
    assert_eq!(hot.release(), [1]);
    assert_eq!(hot.release(), [1, 2]);
    assert_eq!(hot.release(), [0, 1, 2], "it has been passed twice");
}

#[test]
fn a_waiter_that_was_woken_four_times_without_getting_in_is_handed_the_key_before_any_newcomer() {
    for fairness in HANDING_OVER {
        for presence in [Task, Sleeps] {
            let mut hot = Hot::mutex(fairness, &[presence]);
            for _ in 0..4 {
                assert_eq!(hot.release(), [], "{fairness:?}");
                assert!(hot.is_passed());
                hot.ask_in_vain(0, presence);
            }
            assert_eq!(hot.release(), [0], "{fairness:?}");
        }
        // This holds at any position: here the head has been woken, and does not poll.
        let mut hot = Hot::mutex(fairness, &[Task, Task]);
        hot.release();
        for _ in 0..4 {
            assert_eq!(hot.release(), [], "{fairness:?}");
            assert_eq!(hot.woken(), [0, 1]);
            hot.ask_in_vain(1, Task);
        }
        assert_eq!(hot.release(), [1], "{fairness:?}");
    }
}

#[test]
fn a_failed_poll_counts_only_after_a_wakeup() {
    let mut hot = Hot::mutex(Fairness::Adaptive, &[Task]);
    (0..9).for_each(|_| hot.ask_in_vain(0, Task));
    assert_eq!(hot.release(), []);
}

#[test]
fn by_default_a_thread_that_was_woken_is_passed_1024_times_and_a_task_without_end() {
    let mut hot = Hot::mutex(Fairness::Adaptive, &[Sleeps]);
    hot.release();
    for _ in 0..1024 {
        assert_eq!(hot.release(), []);
        assert!(hot.is_passed());
    }
    assert!(!hot.is_passed());
    assert_eq!(hot.release(), [0]);

    let mut hot = Hot::mutex(Fairness::Adaptive, &[Task]);
    hot.release();
    for _ in 0..100_000 {
        assert!(hot.is_passed());
        assert_eq!(hot.release(), []);
    }
}

#[test]
fn by_default_a_head_that_is_kept_out_is_passed_16_times_until_it_is_woken() {
    for presence in [Task, Sleeps] {
        let mut hot = Hot::mutex(Fairness::Adaptive, &[presence]);
        for _ in 0..16 {
            assert!(hot.queues.bypass(hot.queue, Holds::NONE.with(R), R, &hot.rules));
        }
        assert!(!hot.queues.bypass(hot.queue, Holds::NONE.with(R), R, &hot.rules));
        assert_eq!(hot.admit(Holds::NONE, Cause::Released), []);
        assert!(hot.is_passed(), "the waiter has been woken, so it is not protected");
    }
}

#[test]
fn behind_a_woken_task_that_is_not_polled_each_release_wakes_one_more() {
    let mut hot = Hot::mutex(Fairness::Adaptive, &[Task, Task, Sleeps, Task]);
    for woken in 1..=4 {
        hot.release();
        assert_eq!(hot.woken(), (0..woken).collect::<Vec<_>>());
    }
}

#[test]
fn behind_a_woken_thread_that_has_not_run_every_fourth_pass_wakes_one_more() {
    let mut hot = Hot::mutex(Fairness::Adaptive, &[Sleeps; 4]);
    hot.release();
    for passes in 1..=12 {
        assert!(hot.is_passed());
        hot.release();
        assert_eq!(hot.woken().len(), 1 + passes / 4);
    }
}

#[test]
fn a_woken_waiter_that_gives_up_wakes_the_next() {
    let mut hot = Hot::mutex(Fairness::Adaptive, &[Task; 3]);
    hot.release();
    hot.release();
    assert_eq!(hot.woken(), [0, 1]);
    let gone = hot.tickets.remove(1);
    drop(hot.queues.remove(hot.queue, gone));
    hot.admit(Holds::NONE, Cause::Released);
    assert_eq!(hot.woken(), [0, 1]);
}

#[test]
fn spinning_threads_are_handed_the_permits_that_are_left() {
    let one = Access::Permits(1);
    for fairness in HANDING_OVER {
        let mut hot = Hot::new(fairness, CountKind::Permits(2), one, &[Task, Looks, Looks]);
        assert_eq!(hot.admit(Holds::NONE.with(one), Cause::Released), [1], "{fairness:?}");
        assert_eq!(hot.woken(), [0]);
        assert_eq!(hot.admit(Holds::NONE.with(one), Cause::Released), [1, 2]);
    }
}

/// Creates a queue of waiters, each of which wants a given number of the four permits.
fn several(fairness: Fairness, waiting: &[(Presence, u32)]) -> Hot {
    let mut hot = Hot::new(fairness, CountKind::Permits(4), W, &[]);
    for &(presence, n) in waiting {
        let want = Want::Hold(Access::Permits(n));
        hot.tickets.push(hot.queues.push(hot.queue, want, 0, presence, &hot.rules, Waker::noop().clone()));
    }
    hot
}

#[test]
fn a_hand_off_skips_a_spinning_thread_that_does_not_find_enough_permits() {
    let one = Holds::NONE.with(Access::Permits(1));
    for fairness in HANDING_OVER {
        let mut hot = several(fairness, &[(Task, 4), (Looks, 4), (Looks, 2), (Looks, 2), (Looks, 1), (Looks, 1)]);
        assert_eq!(hot.admit(one, Cause::Released), [2, 4], "{fairness:?}");
    }
}

#[test]
fn behind_a_woken_task_that_is_not_polled_a_large_request_is_passed_16_times() {
    let one = Holds::NONE.with(Access::Permits(1));
    let newcomer = |hot: &mut Hot, held| hot.queues.bypass(hot.queue, held, Access::Permits(1), &hot.rules);
    for kept_out in [Task, Sleeps, Looks] {
        let mut hot = several(Fairness::Adaptive, &[(Task, 1), (kept_out, 4), (Task, 1)]);
        for _ in 0..99 {
            assert!(newcomer(&mut hot, one), "the head has not been woken, and a permit is left for it");
        }
        hot.admit(one, Cause::Released);
        assert_eq!(hot.woken()[0], 0);
        for _ in 0..16 {
            assert!(newcomer(&mut hot, one));
        }
        assert!(!newcomer(&mut hot, one));
        assert!(newcomer(&mut hot, Holds::NONE), "it is not kept out");
        hot.admit(Holds::NONE, Cause::Released);
        assert_eq!(hot.woken().contains(&1), kept_out != Looks);
        assert!(newcomer(&mut hot, one), "the waiter has been woken, so it is not protected");
    }
}

#[test]
fn a_woken_thread_protects_no_waiter_behind_it() {
    let one = Holds::NONE.with(Access::Permits(1));
    let mut hot = several(Fairness::Adaptive, &[(Sleeps, 1), (Task, 4)]);
    hot.admit(one, Cause::Released);
    for _ in 0..99 {
        assert!(
            hot.queues.bypass(hot.queue, one, Access::Permits(1), &hot.rules),
            "the woken waiter acquires its permit, and then the other is the head"
        );
    }
}

#[test]
fn permits_released_to_waiters_are_all_granted() {
    let given_up = |permits| Cause::Fair { writer_left: false, passed_on: false, permits };
    for fairness in HANDING_OVER.into_iter().chain([Fairness::Barging]) {
        let waiting = [(Task, 1), (Task, 2), (Task, 1)];
        // The released permits are granted to waiters in order. The last of these waiters gets all that it wants, even
        // if that is more than is left of the released permits.
        assert_eq!(several(fairness, &waiting).admit(Holds::NONE, given_up(1)), [0], "{fairness:?}");
        assert_eq!(several(fairness, &waiting).admit(Holds::NONE, given_up(2)), [0, 1], "{fairness:?}");
        assert_eq!(several(fairness, &waiting).admit(Holds::NONE, given_up(4)), [0, 1, 2], "{fairness:?}");
        let two = Holds::NONE.with(Access::Permits(2));
        assert_eq!(
            several(fairness, &waiting).admit(two, given_up(2)),
            [0],
            "{fairness:?}: the second finds only one permit"
        );
    }
    // A hold that was granted to a waiter that gives up does not go to a woken waiter that has not run since.
    let passed_on = Cause::Fair { writer_left: false, passed_on: true, permits: 4 };
    let mut hot = several(Fairness::Adaptive, &[(Task, 1), (Task, 1), (Task, 2)]);
    hot.admit(Holds::NONE.with(Access::Permits(2)), Cause::Released);
    assert_eq!(hot.woken(), [0, 1]);
    hot.ask_in_vain(0, Task);
    assert_eq!(hot.admit(Holds::NONE, passed_on), [0]);
}

#[test]
fn behind_a_woken_task_that_is_not_polled_a_task_is_woken_before_threads_that_arrived_later() {
    let mut hot = Hot::mutex(Fairness::Adaptive, &[Task, Task, Looks]);
    hot.ask_in_vain(2, Sleeps);
    hot.release();
    hot.release();
    assert_eq!(hot.woken(), [0, 1]);
}
