//! The queue's rules for all modes, without any concurrency.

use alloc::vec::Vec;
use core::task::Waker;

use crate::Fairness;
use crate::core::queue::{Bin, Place, Room, Rules, Settled, Ticket, Turn};
use crate::core::word::{Holds, Mode, Unit, Want, Word};

fn holds(modes: &[Mode]) -> Holds {
    modes.iter().fold(Holds::NONE, |holds, &mode| holds.with(mode))
}

fn rules(fairness: Fairness) -> Rules {
    Rules { fairness, permits: 3 }
}

/// A queue of these modes, in this order.
fn queue(modes: &[Mode]) -> (Room, u32, Vec<Ticket>) {
    let mut room = Room::default();
    let queue = room.open_queue();
    let tickets = modes.iter().map(|&mode| room.push(queue, Want::Hold(mode), Waker::noop().clone())).collect();
    (room, queue, tickets)
}

fn places(room: &Room, tickets: &[Ticket]) -> Vec<Place> {
    tickets.iter().map(|&ticket| room.place(ticket)).collect()
}

use Mode::{Exclusive as W, Permit as P, Shared as R, Upgradable as U};
use Place::{Behind, Granted, Head};

/// After `turn`, with these holds left, in which places are those who queued?
#[track_caller]
fn settles(fairness: Fairness, left: &[Mode], turn: Turn, waiting: &[Mode], expected: &[Place]) -> Settled {
    let (mut room, queue, tickets) = queue(waiting);
    let settled = room.settle(queue, holds(left), &rules(fairness), turn, &mut Bin::default());
    assert_eq!(places(&room, &tickets), expected);
    assert_eq!(settled.granted, expected.iter().filter(|&&place| place == Granted).count());
    assert_eq!(settled.queued, expected.iter().any(|&place| place != Granted));
    settled
}

#[test]
fn fifo_grants_in_order_of_arrival_neighbouring_readers_together() {
    let fifo = Fairness::Fifo;
    settles(fifo, &[], Turn::WriterLeft, &[W, R, W], &[Granted, Head, Behind]);
    settles(fifo, &[], Turn::WriterLeft, &[R, R, W, R], &[Granted, Granted, Head, Behind]);
    settles(fifo, &[], Turn::WriterLeft, &[R, U, R, U, R], &[Granted, Granted, Granted, Head, Behind]);
    settles(fifo, &[P, P], Turn::Any, &[P, P], &[Granted, Head]);
    settles(fifo, &[R], Turn::Any, &[W, R], &[Head, Behind]);
}

#[test]
fn bounded_opens_for_a_writer_and_grants_when_it_was_passed_often_enough() {
    settles(Fairness::Bounded(1), &[], Turn::WriterLeft, &[W, W], &[Head, Behind]);
    settles(Fairness::Bounded(0), &[], Turn::WriterLeft, &[W, W], &[Granted, Head]);
    let bounded = rules(Fairness::Bounded(1));
    let (mut room, queue, tickets) = queue(&[W, W]);
    assert!(room.pass(queue, Holds::NONE, W, &bounded));
    assert!(!room.pass(queue, Holds::NONE, W, &bounded), "the bound is one");
    room.settle(queue, Holds::NONE, &bounded, Turn::WriterLeft, &mut Bin::default());
    assert_eq!(places(&room, &tickets), [Granted, Head]);
    assert!(room.pass(queue, Holds::NONE, W, &bounded), "a new head starts from zero");
}

#[test]
fn bounded_lets_all_waiting_readers_in_when_a_writer_leaves() {
    let bounded = Fairness::Bounded(4);
    settles(bounded, &[], Turn::WriterLeft, &[W, R, W, R, U, U], &[Head, Granted, Behind, Granted, Granted, Behind]);
    settles(bounded, &[], Turn::WriterLeft, &[U, W, R], &[Granted, Head, Granted]);
    settles(bounded, &[U], Turn::WriterLeft, &[W, R, U], &[Head, Granted, Behind]);
    settles(Fairness::Bounded(0), &[], Turn::WriterLeft, &[W, R, W], &[Head, Granted, Behind]);
}

#[test]
fn readers_get_in_when_the_writer_that_kept_them_out_gives_up() {
    for fairness in [Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(4)] {
        settles(fairness, &[R], Turn::Any, &[R, R, W, R], &[Granted, Granted, Head, Behind]);
    }
    // An upgradable reader whose place is taken keeps no reader out, except in strict order.
    settles(Fairness::Bounded(4), &[U], Turn::Any, &[U, R, W, R], &[Head, Granted, Behind, Behind]);
    settles(Fairness::Fifo, &[U], Turn::Any, &[U, R, W, R], &[Head, Behind, Behind, Behind]);
}

#[test]
fn barging_reserves_nothing() {
    let barging = Fairness::Barging;
    settles(barging, &[], Turn::WriterLeft, &[W, R], &[Head, Behind]);
    settles(barging, &[], Turn::WriterLeft, &[R, R, W], &[Head, Behind, Behind]);
    settles(barging, &[P], Turn::Any, &[P, P, P], &[Head, Behind, Behind]);
}

#[test]
fn unlock_fair_grants_the_next_one_under_every_policy() {
    let left = Turn::Fair { writer_left: true };
    for fairness in [Fairness::Fifo, Fairness::Bounded(9), Fairness::Barging] {
        settles(fairness, &[], left, &[W, W], &[Granted, Head]);
        settles(fairness, &[P, P], Turn::Fair { writer_left: false }, &[P, P], &[Granted, Head]);
    }
    settles(Fairness::Bounded(9), &[], left, &[W, R], &[Head, Granted]);
}

/// How many wakers a call hands out, and the places afterwards.
#[track_caller]
fn wakes(fairness: Fairness, left: &[Mode], waiting: &[Mode], expected: usize) {
    let (bell, waker) = bell();
    let mut room = Room::default();
    let queue = room.open_queue();
    for &mode in waiting {
        room.push(queue, Want::Hold(mode), waker.clone());
    }
    // A table has permits, or readers and writers.
    let permits = if waiting.contains(&P) { 3 } else { 0 };
    let rules = Rules { fairness, permits };
    let mut holds = holds(left);
    for expected in [expected, 0] {
        let mut bin = Bin::default();
        let most = room.most_due(queue, holds, &rules);
        bin.reserve(most);
        holds = room.settle(queue, holds, &rules, Turn::Any, &mut bin).holds;
        assert!(bin.count() <= most, "more wakers than announced");
        drop(bin);
        assert_eq!(
            bell.0.swap(0, std::sync::atomic::Ordering::SeqCst),
            expected,
            "the second time nobody is left to wake"
        );
        if room.is_idle() {
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
fn a_newcomer_that_keeps_nobody_out_is_not_counted() {
    let bounded = rules(Fairness::Bounded(1));
    let (mut room, queue, _) = queue(&[P]);
    for _ in 0..9 {
        assert!(room.pass(queue, holds(&[P]), P, &bounded), "there is a permit left for the waiter");
    }
    assert!(room.pass(queue, holds(&[P, P]), P, &bounded));
    assert!(!room.pass(queue, holds(&[P, P]), P, &bounded));
    let (mut room, queue, _) = self::queue(&[U]);
    for _ in 0..9 {
        assert!(room.pass(queue, holds(&[U]), R, &bounded), "readers do not keep an upgradable reader out");
    }
}

#[test]
fn a_waiting_writer_keeps_later_readers_out_within_the_bound() {
    let (mut room, queue, tickets) = queue(&[U, W]);
    let bounded = rules(Fairness::Bounded(1));
    assert!(room.pass(queue, holds(&[U]), R, &bounded));
    assert!(!room.pass(queue, holds(&[U, R]), R, &bounded));
    drop(room.remove(queue, tickets[1]));
    assert!(room.pass(queue, holds(&[U, R]), R, &bounded));
}

#[test]
fn waiters_are_counted_by_what_they_wait_for() {
    let (mut room, queue, tickets) = queue(&[W, R, R, U, P]);
    let waiting = room.waiting(queue);
    assert_eq!((waiting.writers, waiting.readers, waiting.upgradable, waiting.permits), (1, 2, 1, 1));
    for (ticket, place) in tickets.into_iter().zip([Head, Head, Head, Head, Head]) {
        assert_eq!(room.place(ticket), place, "whoever is removed was the first that was left");
        drop(room.remove(queue, ticket));
    }
    let waiting = room.waiting(queue);
    assert_eq!((waiting.writers, waiting.readers, waiting.upgradable, waiting.permits), (0, 0, 0, 0));
}

#[test]
fn memory_is_given_back_when_a_burst_of_waiters_is_over() {
    let (mut room, queue, tickets) = queue(&[W; 1000]);
    assert!(room.memory() >= 1000);
    for ticket in tickets {
        drop(room.remove(queue, ticket));
    }
    let settled = room.settle(queue, Holds::NONE, &rules(Fairness::Fifo), Turn::Any, &mut Bin::default());
    assert!(!settled.queued && settled.granted == 0);
    assert!(room.memory() <= 64);
    assert_eq!(Word::born(Unit::Claim).regrant(settled.holds, 0, settled.queued), Word::born(Unit::Claim));
}

#[test]
fn an_upgradable_reader_gets_in_with_a_phase_before_a_waiting_writer_once() {
    let rules = rules(Fairness::Bounded(4));
    let (mut room, queue, tickets) = queue(&[W, U, U, R]);
    for expected in [[Head, Granted, Behind, Granted], [Head, Granted, Behind, Granted]] {
        room.settle(queue, Holds::NONE, &rules, Turn::WriterLeft, &mut Bin::default());
        assert_eq!(places(&room, &tickets), expected);
    }
}

#[test]
fn memory_is_given_back_after_a_burst_although_somebody_still_waits() {
    let (mut room, queue, mut tickets) = queue(&[W; 1000]);
    let lingers = tickets.remove(0);
    for ticket in tickets {
        drop(room.remove(queue, ticket));
    }
    assert!(room.memory() <= 64);
    assert_eq!(room.place(lingers), Head);
    let again: Vec<_> = (0..100).map(|_| room.push(queue, Want::Hold(W), Waker::noop().clone())).collect();
    assert!(again.iter().all(|&ticket| room.place(ticket) == Behind));
}
