//! The queue's rules for all modes, without concurrency.

use alloc::vec;
use alloc::vec::Vec;
use core::task::Waker;

use crate::Fairness;
use crate::core::wait::policy::{Cause, WaitState};
use crate::core::wait::queue::{Admitted, Queues};
use crate::core::wait::word::{Access, Holds, Unit, Want, Word};
use crate::core::wait::{CountKind, Presence, Rules, Ticket, Waiter, WakeBatch};

fn holds(modes: &[Access]) -> Holds {
    modes.iter().fold(Holds::NONE, |holds, &mode| holds.with(mode))
}

/// Returns the rules of a table whose waiters want these accesses: a semaphore, or a reader-writer lock.
fn rules(fairness: Fairness, accesses: &[Access]) -> Rules {
    let counted = if accesses.contains(&P) { CountKind::Permits(3) } else { CountKind::Readers };
    Rules { fairness, counted }
}

/// Creates a queue of waiters for these accesses, in this order.
fn queue(modes: &[Access]) -> (Queues, u32, Vec<Ticket>) {
    let mut queues = Queues::new();
    let rules = rules(Fairness::default(), modes);
    let queue = queues.open_queue(rules.limit());
    let tickets = modes.iter().map(|&mode| push(&mut queues, queue, mode, Presence::Task, &rules, Waker::noop()));
    let tickets = tickets.collect();
    (queues, queue, tickets)
}

fn push(queues: &mut Queues, queue: u32, mode: Access, presence: Presence, rules: &Rules, waker: &Waker) -> Ticket {
    queues.push(queue, Want::Hold(mode), 0, presence, rules, waker.clone())
}

/// Polls a waiter that cannot get in.
fn stay(queues: &mut Queues, queue: u32, ticket: Ticket, presence: Presence, rules: &Rules) {
    let mut batch = WakeBatch::default();
    batch.fresh = Some(Waker::noop().clone());
    let waiter = Waiter { presence, waker: Waker::noop() };
    assert!(queues.stay(queue, ticket, waiter, rules, &mut batch));
}

/// The position of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Position {
    Granted,
    Head,
    Behind,
}

fn position(queues: &Queues, queue: u32, ticket: Ticket) -> Position {
    match queues.state(ticket) == WaitState::Granted {
        true => Granted,
        false if queues.is_head(queue, ticket) => Head,
        false => Behind,
    }
}

fn places(queues: &Queues, queue: u32, tickets: &[Ticket]) -> Vec<Position> {
    tickets.iter().map(|&ticket| position(queues, queue, ticket)).collect()
}

use Access::{Exclusive as W, Shared as R, Upgradable as U};
use Position::{Behind, Granted, Head};

const P: Access = Access::Permits(1);

/// Checks the positions of the waiters after `cause`, with these holds left.
#[track_caller]
fn admits(fairness: Fairness, left: &[Access], cause: Cause, waiting: &[Access], expected: &[Position]) -> Admitted {
    let (mut queues, queue, tickets) = queue(waiting);
    let admitted = queues.admit(queue, holds(left), &rules(fairness, waiting), cause, &mut WakeBatch::default());
    assert_eq!(places(&queues, queue, &tickets), expected);
    assert_eq!(admitted.granted, expected.iter().filter(|&&place| place == Granted).count());
    assert_eq!(admitted.queued, expected.iter().any(|&place| place != Granted));
    admitted
}

#[test]
fn fifo_grants_in_order_of_arrival_neighbouring_readers_together() {
    let fifo = Fairness::Fifo;
    admits(fifo, &[], Cause::WriterLeft, &[W, R, W], &[Granted, Head, Behind]);
    admits(fifo, &[], Cause::WriterLeft, &[R, R, W, R], &[Granted, Granted, Head, Behind]);
    admits(fifo, &[], Cause::WriterLeft, &[R, U, R, U, R], &[Granted, Granted, Granted, Head, Behind]);
    admits(fifo, &[P, P], Cause::QueueChanged, &[P, P], &[Granted, Head]);
    admits(fifo, &[R], Cause::QueueChanged, &[W, R], &[Head, Behind]);
}

#[test]
fn bounded_opens_for_a_writer_and_grants_when_it_was_passed_often_enough() {
    admits(Fairness::Bounded(1), &[], Cause::WriterLeft, &[W, W], &[Head, Behind]);
    admits(Fairness::Bounded(0), &[], Cause::WriterLeft, &[W, W], &[Granted, Head]);
    let bounded = rules(Fairness::Bounded(1), &[W]);
    let (mut queues, queue, tickets) = queue(&[W, W]);
    assert!(queues.bypass(queue, Holds::NONE, W, &bounded));
    assert!(!queues.bypass(queue, Holds::NONE, W, &bounded), "the bound is one");
    queues.admit(queue, Holds::NONE, &bounded, Cause::WriterLeft, &mut WakeBatch::default());
    assert_eq!(places(&queues, queue, &tickets), [Granted, Head]);
    assert!(queues.bypass(queue, Holds::NONE, W, &bounded), "a new head starts from zero");
}

#[test]
fn bounded_lets_all_waiting_readers_in_when_a_writer_leaves() {
    let bounded = Fairness::Bounded(4);
    admits(bounded, &[], Cause::WriterLeft, &[W, R, W, R, U, U], &[Head, Granted, Behind, Granted, Granted, Behind]);
    admits(bounded, &[], Cause::WriterLeft, &[U, W, R], &[Granted, Head, Granted]);
    admits(bounded, &[U], Cause::WriterLeft, &[W, R, U], &[Head, Granted, Behind]);
    admits(Fairness::Bounded(0), &[], Cause::WriterLeft, &[W, R, W], &[Head, Granted, Behind]);
}

/// Hand-offs may pass a head that wants more permits than are free, but only as often as the policy lets newcomers pass
/// it.
#[test]
fn hand_offs_pass_the_head_within_the_bound() {
    for (fairness, bound) in [(Fairness::Bounded(0), 0), (Fairness::Bounded(2), 2), (Fairness::Adaptive, 16)] {
        let rules = Rules { fairness, counted: CountKind::Permits(3) };
        let mut queues = Queues::new();
        let queue = queues.open_queue(rules.limit());
        let head = push(&mut queues, queue, Access::Permits(3), Presence::Task, &rules, Waker::noop());
        let waiters: Vec<Ticket> =
            (0..20).map(|_| push(&mut queues, queue, P, Presence::SpinningThread, &rules, Waker::noop())).collect();
        // One permit of three becomes free, again and again.
        for round in 0..waiters.len() {
            let left = holds(&[P, P]);
            let admitted = queues.admit(queue, left, &rules, Cause::Released, &mut WakeBatch::default());
            assert_eq!(admitted.granted, usize::from(round < bound), "{fairness:?}, round {round}");
        }
        assert_eq!(position(&queues, queue, head), Head);
        assert!(
            waiters.iter().enumerate().all(|(n, &waiter)| (position(&queues, queue, waiter) == Granted) == (n < bound))
        );
    }
}

#[test]
fn readers_get_in_when_the_writer_that_kept_them_out_gives_up() {
    for fairness in [Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(4)] {
        admits(fairness, &[R], Cause::QueueChanged, &[R, R, W, R], &[Granted, Granted, Head, Behind]);
    }
    // A waiting upgradable reader that another one keeps out does not keep readers out, except under `Fifo`.
    admits(Fairness::Bounded(4), &[U], Cause::QueueChanged, &[U, R, W, R], &[Head, Granted, Behind, Behind]);
    admits(Fairness::Fifo, &[U], Cause::QueueChanged, &[U, R, W, R], &[Head, Behind, Behind, Behind]);
}

#[test]
fn barging_reserves_nothing() {
    let barging = Fairness::Barging;
    admits(barging, &[], Cause::WriterLeft, &[W, R], &[Head, Behind]);
    admits(barging, &[], Cause::WriterLeft, &[R, R, W], &[Head, Behind, Behind]);
    admits(barging, &[P], Cause::QueueChanged, &[P, P, P], &[Head, Behind, Behind]);
}

#[test]
fn unlock_fair_grants_the_next_one_under_every_policy() {
    let left = Cause::Fair { writer_left: true, passed_on: false, permits: 0 };
    for fairness in [Fairness::Fifo, Fairness::Bounded(9), Fairness::Barging] {
        admits(fairness, &[], left, &[W, W], &[Granted, Head]);
        admits(
            fairness,
            &[P, P],
            Cause::Fair { writer_left: false, passed_on: false, permits: 1 },
            &[P, P],
            &[Granted, Head],
        );
    }
    admits(Fairness::Bounded(9), &[], left, &[W, R], &[Head, Granted]);
}

/// Checks the number of wakers that a call of `admit` hands out, and that a second call hands out none.
#[track_caller]
fn wakes(fairness: Fairness, left: &[Access], waiting: &[Access], expected: usize) {
    let (bell, waker) = bell();
    let mut queues = Queues::new();
    let rules = rules(fairness, waiting);
    let queue = queues.open_queue(rules.limit());
    for &mode in waiting {
        push(&mut queues, queue, mode, Presence::Task, &rules, &waker);
    }
    let mut holds = holds(left);
    for expected in [expected, 0] {
        let mut bin = WakeBatch::default();
        let most = queues.most_wakers(queue, Ticket::NONE, holds, &rules, Cause::QueueChanged);
        bin.reserve(most);
        holds = queues.admit(queue, holds, &rules, Cause::QueueChanged, &mut bin).holds;
        assert!(bin.count() <= most, "more wakers than announced");
        drop(bin);
        assert_eq!(bell.0.swap(0, std::sync::atomic::Ordering::SeqCst), expected, "the second call woke somebody");
        if queues.is_idle() {
            return;
        }
    }
}

struct Bell(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

fn bell() -> (std::sync::Arc<Bell>, Waker) {
    let bell = std::sync::Arc::new(Bell(Default::default()));
    (bell.clone(), bell.into())
}

#[test]
fn a_waiter_that_may_get_in_is_woken_once() {
    for fairness in [Fairness::Bounded(9), Fairness::Barging] {
        wakes(fairness, &[], &[W, W], 1);
        wakes(fairness, &[P], &[P, P, P], 2);
        wakes(fairness, &[P, P, P], &[P], 0);
    }
    wakes(Fairness::Barging, &[], &[R, R, W, R], 2);
    wakes(Fairness::Bounded(9), &[], &[R, R, W, R], 2);
    wakes(Fairness::Fifo, &[], &[R, R, W, R], 2);
}

#[test]
fn a_newcomer_that_keeps_no_waiter_out_is_not_counted() {
    let bounded = rules(Fairness::Bounded(1), &[P]);
    let (mut queues, queue, _) = queue(&[P]);
    for _ in 0..9 {
        assert!(queues.bypass(queue, holds(&[P]), P, &bounded), "there is a permit left for the waiter");
    }
    assert!(queues.bypass(queue, holds(&[P, P]), P, &bounded));
    assert!(!queues.bypass(queue, holds(&[P, P]), P, &bounded));
    let bounded = rules(Fairness::Bounded(1), &[U]);
    let (mut queues, queue, _) = self::queue(&[U]);
    for _ in 0..9 {
        assert!(queues.bypass(queue, holds(&[U]), R, &bounded), "readers do not keep an upgradable reader out");
    }
}

#[test]
fn a_waiting_writer_keeps_later_readers_out_within_the_bound() {
    let (mut queues, queue, tickets) = queue(&[U, W]);
    let bounded = rules(Fairness::Bounded(1), &[W]);
    assert!(queues.bypass(queue, holds(&[U]), R, &bounded));
    assert!(!queues.bypass(queue, holds(&[U, R]), R, &bounded));
    drop(queues.remove(queue, tickets[1]));
    assert!(queues.bypass(queue, holds(&[U, R]), R, &bounded));
}

#[test]
fn waiters_are_counted_by_what_they_wait_for() {
    let (mut queues, queue, tickets) = queue(&[W, R, R, U]);
    let waiting = queues.waiting(queue, CountKind::Readers);
    assert_eq!((waiting.writers, waiting.readers, waiting.upgradable, waiting.permits), (1, 2, 1, 0));
    for (ticket, place) in tickets.into_iter().zip([Head; 4]) {
        assert_eq!(
            position(&queues, queue, ticket),
            place,
            "a waiter is not the head after those before it were removed"
        );
        drop(queues.remove(queue, ticket));
    }
    let waiting = queues.waiting(queue, CountKind::Readers);
    assert_eq!((waiting.writers, waiting.readers, waiting.upgradable, waiting.permits), (0, 0, 0, 0));
}

#[test]
fn memory_is_freed_after_a_burst_of_waiters() {
    let (mut queues, queue, tickets) = queue(&[W; 1000]);
    assert!(queues.memory() >= 1000);
    for ticket in tickets {
        drop(queues.remove(queue, ticket));
    }
    let admitted =
        queues.admit(queue, Holds::NONE, &rules(Fairness::Fifo, &[W]), Cause::QueueChanged, &mut WakeBatch::default());
    assert!(!admitted.queued && admitted.granted == 0);
    assert!(queues.memory() <= 64);
    assert_eq!(Word::born(Unit::Claim).admit(admitted.holds, 0, admitted.queued), Word::born(Unit::Claim));
}

#[test]
fn an_upgradable_reader_gets_in_with_a_phase_before_a_waiting_writer_once() {
    let rules = rules(Fairness::Bounded(4), &[W]);
    let (mut queues, queue, tickets) = queue(&[W, U, U, R]);
    for expected in [[Head, Granted, Behind, Granted], [Head, Granted, Behind, Granted]] {
        queues.admit(queue, Holds::NONE, &rules, Cause::WriterLeft, &mut WakeBatch::default());
        assert_eq!(places(&queues, queue, &tickets), expected);
    }
}

#[test]
fn memory_is_freed_after_a_burst_although_one_waiter_remains() {
    let (mut queues, queue, mut tickets) = queue(&[W; 1000]);
    let lingers = tickets.remove(0);
    for ticket in tickets {
        drop(queues.remove(queue, ticket));
    }
    assert!(queues.memory() <= 64);
    assert_eq!(position(&queues, queue, lingers), Head);
    let rules = rules(Fairness::default(), &[W]);
    let push = |_| push(&mut queues, queue, W, Presence::Task, &rules, Waker::noop());
    let again: Vec<_> = (0..100).map(push).collect();
    assert!(again.iter().all(|&ticket| position(&queues, queue, ticket) == Behind));
}

/// Creates a queue of requests for one permit each, and rules under which nothing is reserved.
fn permits(waiting: usize) -> (Queues, u32, Vec<Ticket>, Rules) {
    let (queues, queue, tickets) = self::queue(&vec![P; waiting]);
    (queues, queue, tickets, rules(Fairness::Barging, &[P]))
}

#[track_caller]
fn admit_wakes(queues: &mut Queues, queue: u32, holds: Holds, rules: &Rules, expected: usize) {
    let mut batch = WakeBatch::default();
    queues.admit(queue, holds, rules, Cause::QueueChanged, &mut batch);
    assert_eq!(batch.count(), expected);
}

#[test]
fn permits_that_a_woken_waiter_does_not_take_wake_the_next() {
    let (mut queues, queue, tickets, rules) = permits(6);
    admit_wakes(&mut queues, queue, Holds::NONE, &rules, 3);
    admit_wakes(&mut queues, queue, Holds::NONE, &rules, 0);
    for &ticket in &tickets[..3] {
        drop(queues.remove(queue, ticket));
    }
    admit_wakes(&mut queues, queue, Holds::NONE, &rules, 3);
}

#[test]
fn a_waiter_that_was_woken_without_getting_in_is_woken_first_the_next_time() {
    let (mut queues, queue, tickets, rules) = permits(4);
    admit_wakes(&mut queues, queue, Holds::NONE, &rules, 3);
    // Newcomers acquire the permits first, and the woken waiters fail.
    for &ticket in tickets[..3].iter().rev() {
        stay(&mut queues, queue, ticket, Presence::Task, &rules);
    }
    admit_wakes(&mut queues, queue, holds(&[P]), &rules, 2);
    let asleep = |queues: &Queues| tickets.iter().map(|&ticket| queues.sleeps(ticket)).collect::<Vec<_>>();
    assert_eq!(asleep(&queues), [false, false, true, true]);
    admit_wakes(&mut queues, queue, Holds::NONE, &rules, 1);
    assert_eq!(asleep(&queues), [false, false, false, true]);
}
