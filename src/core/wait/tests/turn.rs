//! The order of a queue with priorities, and its effects on the rules of the policies.

use alloc::vec::Vec;
use core::task::Waker;

use proptest::prelude::*;

use crate::Fairness;
use crate::core::wait::policy::{Cause, WaitState};
use crate::core::wait::queue::Queues;
use crate::core::wait::turn::{RISE, Turns};
use crate::core::wait::word::{Access, Holds, Want};
use crate::core::wait::{CountKind, Presence, Rules, Ticket, Waiter, WakeBatch};

use Access::{Exclusive as W, Shared as R, Upgradable as U};
use Presence::{SleepingThread as Sleeps, SpinningThread as Looks, Task};

/// The waiters of one key.
struct Line {
    queues: Queues,
    queue: u32,
    rules: Rules,
    tickets: Vec<Ticket>,
}

impl Line {
    fn new(fairness: Fairness, counted: CountKind) -> Line {
        let mut queues = Queues::new();
        let rules = Rules { fairness, counted };
        let queue = queues.open_queue(rules.limit());
        Line { queues, queue, rules, tickets: Vec::new() }
    }

    fn of(fairness: Fairness, waiting: &[(Access, u8)]) -> Line {
        let mut line = Line::new(fairness, CountKind::Readers);
        waiting.iter().for_each(|&(access, priority)| line.push(access, priority, Task));
        line
    }

    fn push(&mut self, access: Access, priority: u8, presence: Presence) {
        let (want, waker) = (Want::Hold(access), Waker::noop().clone());
        self.tickets.push(self.queues.push(self.queue, want, priority, presence, &self.rules, waker));
        self.queues.check(self.queue);
    }

    fn goes_first(&mut self, holds: Holds, access: Access, priority: u8) -> bool {
        self.queues.goes_first(self.queue, priority, holds, access, &self.rules)
    }

    /// Releases a writer's hold, and returns the waiters that are granted theirs, by the number of their arrival.
    fn release(&mut self) -> Vec<usize> {
        let granted = |line: &Line| {
            let states = line.tickets.iter().map(|&ticket| line.queues.state(ticket));
            states.map(|state| state == WaitState::Granted).collect::<Vec<_>>()
        };
        let before = granted(self);
        self.queues.admit(self.queue, Holds::NONE, &self.rules, Cause::WriterLeft, &mut WakeBatch::default());
        let after = granted(self);
        (0..after.len()).filter(|&at| after[at] && !before[at]).collect()
    }

    fn head(&self) -> usize {
        let is_waiting = |ticket: Ticket| self.queues.state(ticket) != WaitState::Granted;
        let mut tickets = self.tickets.iter();
        let head = tickets.position(|&ticket| is_waiting(ticket) && self.queues.is_head(self.queue, ticket));
        head.expect("somebody waits")
    }
}

#[test]
fn the_highest_priority_goes_first_and_then_the_first_to_arrive() {
    let mut line = Line::of(Fairness::Fifo, &[(W, 0), (W, 3), (W, 255), (W, 0), (W, 3), (W, 1)]);
    let order = (0..6).flat_map(|_| line.release()).collect::<Vec<_>>();
    assert_eq!(order, [2, 1, 4, 5, 0, 3]);
}

#[test]
fn a_waiter_is_passed_by_16_requests_for_each_level_and_by_no_more() {
    for (waits, comes) in [(0, 1), (0, 3), (2, 3), (7, 255), (0, 255)] {
        let mut line = Line::of(Fairness::Fifo, &[(W, waits)]);
        let (mut passed, most) = (0, 16 * u64::from(comes - waits));
        loop {
            line.push(W, comes, Task);
            if line.release() == [0] {
                break;
            }
            passed += 1;
            assert!(passed <= most, "{comes} passes {waits}");
        }
        // If the waiter has a priority, its own arrival is one of the counted ones.
        assert_eq!(passed, if waits == 0 { most } else { most - 1 }, "{comes} passes {waits}");
    }
}

#[test]
fn requests_that_pass_without_queueing_make_the_waiters_rise() {
    for fairness in [Fairness::Adaptive, Fairness::Bounded(0), Fairness::Fifo] {
        let mut line = Line::of(fairness, &[(W, 0)]);
        for _ in 0..RISE {
            assert!(line.goes_first(Holds::NONE, W, 1));
        }
        assert!(!line.goes_first(Holds::NONE, W, 1), "{fairness:?}");
        assert!(line.goes_first(Holds::NONE, W, 2), "{fairness:?}");
    }
}

#[test]
fn requests_without_a_priority_make_no_waiter_rise() {
    let mut line = Line::of(Fairness::Fifo, &[(W, 0); 500]);
    line.push(W, 1, Task);
    assert_eq!(line.release(), [500]);
}

#[test]
fn a_reader_that_no_waiter_before_its_place_keeps_out_gets_in() {
    let one = Holds::NONE.with(R);
    let upgradable = one.with(U);
    for fairness in [Fairness::Adaptive, Fairness::Bounded(0)] {
        assert!(Line::of(fairness, &[(W, 1)]).goes_first(one, R, 2), "{fairness:?}");
        assert!(!Line::of(fairness, &[(W, 1)]).goes_first(one, R, 1), "{fairness:?}");
        // An upgradable reader at the head does not keep a reader out.
        assert!(Line::of(fairness, &[(U, 9), (W, 0)]).goes_first(upgradable, R, 2), "{fairness:?}");
        assert!(!Line::of(fairness, &[(U, 9), (W, 0)]).goes_first(Holds::NONE, W, 2), "{fairness:?}");
    }
    assert!(!Line::of(Fairness::Fifo, &[(U, 9), (W, 0)]).goes_first(upgradable, R, 2));
}

#[test]
fn an_upgrade_stands_before_every_priority() {
    let mut line = Line::of(Fairness::Adaptive, &[(W, 255)]);
    let (held, waker) = (Holds::NONE.with(U), Waker::noop().clone());
    let upgrade = line.queues.push(line.queue, Want::Upgrade, 0, Task, &line.rules, waker);
    assert!(line.queues.is_head(line.queue, upgrade));
    assert!(!line.goes_first(held, R, 255));
}

#[test]
fn a_readers_phase_is_for_readers_whose_priority_is_not_lower_than_the_writers() {
    for fairness in [Fairness::Adaptive, Fairness::Bounded(4)] {
        let mut line = Line::of(fairness, &[(R, 0), (W, 2), (R, 2), (R, 1), (R, 3), (U, 1)]);
        assert_eq!(line.release(), [2, 4], "{fairness:?}");
        let mut line = Line::of(fairness, &[(R, 0), (W, 2), (U, 2)]);
        assert_eq!(line.release(), if fairness == Fairness::Adaptive { &[][..] } else { &[2] }, "{fairness:?}");
        assert_eq!(line.head(), 1);
        // Readers that have risen above the writer get in, as without a phase.
        let mut line = Line::of(fairness, &[(R, 0)]);
        for _ in 0..RISE {
            assert!(line.goes_first(Holds::NONE, W, 1));
        }
        line.push(W, 1, Task);
        assert_eq!(line.release(), [0], "{fairness:?}");
    }
}

#[test]
fn a_spinning_thread_is_not_handed_the_key_past_a_head_of_a_higher_priority() {
    for fairness in [Fairness::Adaptive, Fairness::Bounded(999)] {
        let mut line = Line::of(fairness, &[(W, 2)]);
        line.push(W, 1, Looks);
        assert_eq!(line.release(), [], "{fairness:?}");
        line.push(W, 2, Looks);
        line.push(W, 0, Looks);
        assert_eq!(line.release(), [2], "{fairness:?}");
        assert_eq!(line.head(), 0);
    }
}

#[test]
fn spinning_threads_are_handed_the_key_in_order_of_their_priorities() {
    let mut line = Line::of(Fairness::Adaptive, &[(W, 0)]);
    for priority in [0, 7, 3] {
        line.push(W, priority, Looks);
    }
    assert_eq!((0..3).flat_map(|_| line.release()).collect::<Vec<_>>(), [2, 3, 1]);
}

/// Threads that go back to sleep must not be woken in the order in which they did so.
#[test]
fn sleepers_are_woken_in_order_of_their_priorities() {
    let mut line = Line::new(Fairness::Adaptive, CountKind::Permits(1));
    for priority in [9, 1, 5, 3] {
        line.push(Access::Permits(1), priority, Looks);
    }
    for at in [1, 2, 3, 0] {
        let mut batch = WakeBatch::default();
        batch.fresh = Some(Waker::noop().clone());
        let waiter = Waiter { presence: if at == 0 { Task } else { Sleeps }, waker: Waker::noop() };
        assert!(line.queues.stay(line.queue, line.tickets[at], waiter, &line.rules, &mut batch));
        line.queues.check(line.queue);
    }
    // The first is an idle task, so each release wakes one more waiter.
    let mut woken = Vec::new();
    for _ in 0..4 {
        line.queues.admit(line.queue, Holds::NONE, &line.rules, Cause::Released, &mut WakeBatch::default());
        woken.extend(
            (0..4).filter(|at| !woken.contains(at) && !line.queues.sleeps(line.tickets[*at])).collect::<Vec<_>>(),
        );
    }
    assert_eq!(woken, [0, 2, 3, 1]);
}

/// A waiter keeps its counts while a waiter with a priority is at the head: when it is first again, they do not start
/// from zero.
#[test]
fn a_waiter_that_is_first_again_keeps_its_counts() {
    let mut line = Line::of(Fairness::Bounded(2), &[(W, 0)]);
    let passes = |line: &mut Line| line.queues.bypass(line.queue, Holds::NONE, W, &line.rules);
    assert!(passes(&mut line));
    line.push(W, 1, Task);
    assert!(passes(&mut line) && passes(&mut line) && !passes(&mut line), "another has come to the head");
    assert_eq!(line.release(), [1]);
    assert!(passes(&mut line) && !passes(&mut line));
    assert_eq!(line.release(), [0]);
}

proptest! {
    /// The turns agree with the documentation of priorities.
    #[test]
    fn turns_order_requests_by_priority_and_by_the_requests_that_came_meanwhile(
        arrivals in proptest::collection::vec(prop_oneof![Just(0_u8), 0..4_u8, any::<u8>()], 1..200),
    ) {
        let mut turns = Turns::new();
        let mut earlier = Vec::new();
        let mut urgent = 0_u64;
        for priority in arrivals {
            let turn = turns.take(priority);
            prop_assert_eq!(turn.priority(), priority);
            for &(other, before, came) in &earlier {
                let levels = u64::from(priority.saturating_sub(before));
                prop_assert_eq!(turn.is_before(other), urgent - came < RISE * levels);
                prop_assert_eq!(other.is_before(turn), urgent - came >= RISE * levels);
            }
            earlier.push((turn, priority, urgent));
            urgent += u64::from(priority > 0);
        }
    }
}
