//! The owned guards of a `Latch`: random schedules against the contract of a key, every form, upgrades, and panics.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::contract::{For, Key, Rules, Seen, Want};
use common::{Bell, Random, pending, poll, poll_with, ready};
use futures_lite::future::{block_on, poll_once};
use keylatch::futures::{LatchAcquireArc, LatchUpgradeArc};
use keylatch::mode::{Exclusive, Shared, Upgradable};
use keylatch::{Fairness, Latch, LatchReadGuardArc, LatchUpgradableGuardArc, LatchWriteGuardArc};

enum Held {
    Read(#[allow(dead_code)] LatchReadGuardArc),
    Upgradable(LatchUpgradableGuardArc),
    Write(LatchWriteGuardArc),
}

enum Asking {
    Read(LatchAcquireArc<Shared>, Want),
    Upgradable(LatchAcquireArc<Upgradable>),
    Write(LatchAcquireArc<Exclusive>),
    Upgrade(LatchUpgradeArc),
}

impl Asking {
    fn want(&self) -> Want {
        match self {
            Asking::Read(_, want) => *want,
            Asking::Upgradable(_) => Want::Upgradable,
            Asking::Write(_) => Want::Write,
            Asking::Upgrade(_) => Want::Upgrade,
        }
    }

    fn poll(&mut self) -> Poll<Held> {
        match self {
            Asking::Read(request, _) => poll(request).map(Held::Read),
            Asking::Upgradable(request) => poll(request).map(Held::Upgradable),
            Asking::Write(request) => poll(request).map(Held::Write),
            Asking::Upgrade(request) => poll(request).map(Held::Write),
        }
    }
}

fn asks(latch: &Arc<Latch>, which: u64) -> Asking {
    match which {
        0 => Asking::Read(latch.read_arc(), Want::Read),
        1 => Asking::Read(latch.read_recursive_arc(), Want::Recursive),
        2 => Asking::Upgradable(latch.upgradable_read_arc()),
        _ => Asking::Write(latch.write_arc()),
    }
}

fn tries(latch: &Arc<Latch>, which: u64) -> (Option<Held>, Want) {
    match which {
        0 => (latch.try_read_arc().map(Held::Read), Want::Read),
        1 => (latch.try_read_recursive_arc().map(Held::Read), Want::Recursive),
        2 => (latch.try_upgradable_read_arc().map(Held::Upgradable), Want::Upgradable),
        _ => (latch.try_write_arc().map(Held::Write), Want::Write),
    }
}

/// A latch with its model, and the holds and requests of both. A request's id is 0 until its first poll.
struct World {
    latch: Arc<Latch>,
    key: Key,
    held: Vec<Held>,
    asking: Vec<(Asking, u32)>,
    next: u32,
}

impl World {
    fn new() -> World {
        let key = Key::new(Rules { fairness: Fairness::Adaptive, permits: 0 });
        World { latch: Arc::default(), key, held: vec![], asking: vec![], next: 1 }
    }

    fn step(&mut self, random: &mut Random) {
        let any = random.next(64) as usize;
        match random.next(10) {
            0..=1 => {
                let (got, want) = tries(&self.latch, random.next(4));
                assert_eq!(got.is_some(), self.key.attempt(want));
                self.held.extend(got);
            }
            2..=3 if self.asking.len() < 8 => self.asking.push((asks(&self.latch, random.next(4)), 0)),
            4..=6 if !self.asking.is_empty() => self.poll(any % self.asking.len()),
            7 if !self.asking.is_empty() => self.cancel(any % self.asking.len(), random.next(2) == 0),
            _ if !self.held.is_empty() => {
                let held = self.held.swap_remove(any % self.held.len());
                self.release(held, random.next(4));
            }
            _ => {}
        }
        assert_eq!(Seen::from(self.latch.status()), self.key.seen());
        assert_eq!(Arc::strong_count(&self.latch), 1 + self.held.len() + self.asking.len());
    }

    fn poll(&mut self, at: usize) {
        let (asking, id) = &mut self.asking[at];
        if *id == 0 {
            *id = self.next;
            self.next += 1;
        }
        let got = asking.poll();
        assert_eq!(got.is_ready(), self.key.poll(*id, asking.want()));
        if let Poll::Ready(got) = got {
            self.asking.swap_remove(at);
            self.held.push(got);
        }
    }

    fn cancel(&mut self, at: usize, by_limit: bool) {
        let (asking, id) = self.asking.swap_remove(at);
        match asking {
            Asking::Upgrade(upgrade) if by_limit => {
                let id = if id == 0 { self.next } else { id };
                self.next += 1;
                // The upgrade makes one attempt, and another one at its limit.
                let expected = self.key.poll(id, Want::Upgrade) || self.key.poll(id, Want::Upgrade);
                let result = block_on(upgrade.until(async {}));
                assert_eq!(result.is_ok(), expected);
                self.held.push(result.map_or_else(|((), guard)| Held::Upgradable(guard), Held::Write));
                assert!(expected || self.key.leave_queue(id) == Some(false));
            }
            Asking::Upgrade(upgrade) => {
                drop(upgrade);
                let (held, whom) = Key::held_after_upgrade(if id == 0 { None } else { self.key.leave_queue(id) });
                self.key.release(held, whom);
            }
            asking => {
                let want = asking.want();
                drop(asking);
                if id != 0 {
                    self.key.cancel(id, want);
                }
            }
        }
    }

    fn release(&mut self, held: Held, how: u64) {
        match (held, how) {
            (Held::Read(_), _) => self.key.release(Want::Read, For::Anyone),
            (Held::Upgradable(guard), 0) => {
                self.held.push(Held::Read(guard.downgrade()));
                self.key.change(Want::Upgradable, Want::Read);
            }
            (Held::Upgradable(guard), 1) => self.asking.push((Asking::Upgrade(guard.upgrade()), 0)),
            (Held::Upgradable(guard), 2) => {
                let got = guard.try_upgrade();
                assert_eq!(got.is_ok(), self.key.attempt(Want::Upgrade));
                self.held.push(got.map_or_else(Held::Upgradable, Held::Write));
            }
            (Held::Upgradable(_), _) => self.key.release(Want::Upgradable, For::Anyone),
            (Held::Write(guard), 0) => {
                self.held.push(Held::Read(guard.downgrade()));
                self.key.change(Want::Write, Want::Read);
            }
            (Held::Write(guard), 1) => {
                self.held.push(Held::Upgradable(guard.downgrade_to_upgradable()));
                self.key.change(Want::Write, Want::Upgradable);
            }
            (Held::Write(guard), 2) => {
                guard.unlock_fair();
                self.key.release(Want::Write, For::Waiter);
            }
            (Held::Write(_), _) => self.key.release(Want::Write, For::Anyone),
        }
    }
}

#[test]
fn owned_guards_follow_the_contract_of_a_key() {
    for seed in 1..2000 {
        let (mut random, mut world) = (Random(seed), World::new());
        for _ in 0..200 {
            world.step(&mut random);
        }
        let World { latch, held, asking, .. } = world;
        drop((held, asking));
        assert!(!latch.is_locked());
        assert_eq!(Arc::strong_count(&latch), 1);
    }
}

/// Returns whether there is a guard, which is dropped at once.
fn some<T>(guard: Option<T>) -> bool {
    guard.is_some()
}

#[test]
fn every_owned_form_acquires_the_latch_and_fails_while_it_is_held() {
    let latch = Arc::new(Latch::new());
    let (zero, now) = (Duration::ZERO, Instant::now());
    macro_rules! forms {
        ($op:ident, $blocking:ident, $try:ident, $for:ident, $until:ident) => {{
            drop(latch.$blocking());
            let guards = [
                some(latch.$try()),
                some(latch.$for(zero)),
                some(latch.$until(now)),
                some(block_on(poll_once(latch.$op()))),
                some(block_on(latch.$op().until(async {})).ok()),
            ];
            assert_eq!(guards, [true; 5], stringify!($op));
            let writer = latch.write_arc_blocking();
            let guards = [
                some(latch.$try()),
                some(latch.$for(zero)),
                some(latch.$until(now)),
                some(block_on(poll_once(latch.$op()))),
                some(block_on(latch.$op().until(async {})).ok()),
            ];
            assert_eq!(guards, [false; 5], stringify!($op));
            drop(writer);
            assert!(!latch.is_locked());
        }};
    }
    forms!(read_arc, read_arc_blocking, try_read_arc, try_read_arc_for, try_read_arc_until);
    forms!(
        read_recursive_arc,
        read_recursive_arc_blocking,
        try_read_recursive_arc,
        try_read_recursive_arc_for,
        try_read_recursive_arc_until
    );
    forms!(
        upgradable_read_arc,
        upgradable_read_arc_blocking,
        try_upgradable_read_arc,
        try_upgradable_read_arc_for,
        try_upgradable_read_arc_until
    );
    forms!(write_arc, write_arc_blocking, try_write_arc, try_write_arc_for, try_write_arc_until);
}

#[test]
fn an_owned_guard_outlives_its_latch_and_may_be_dropped_in_another_thread() {
    let latch = Arc::new(Latch::new());
    let guard = latch.write_arc_blocking();
    assert!(Arc::ptr_eq(guard.latch(), &latch));
    let mut reader = latch.read_arc();
    pending(&mut reader);
    drop(latch);
    thread::spawn(move || drop(guard)).join().unwrap();
    let reader = ready(reader);
    assert_eq!(reader.latch().status().readers(), 1);
}

#[test]
fn an_owned_upgradable_reader_upgrades_in_every_form() {
    let latch = Arc::new(Latch::new());
    let one = || latch.try_upgradable_read_arc().unwrap();
    let other = latch.try_read_arc().unwrap();
    let reader = one().try_upgrade().unwrap_err();
    let reader = reader.try_upgrade_for(Duration::ZERO).unwrap_err();
    let reader = reader.try_upgrade_until(Instant::now()).unwrap_err();
    let (_, reader) = block_on(reader.upgrade().until(async {})).unwrap_err();
    let mut upgrade = reader.upgrade();
    pending(&mut upgrade);
    drop(other);
    let is_writer = |writer: LatchWriteGuardArc| assert_eq!(latch.status().writers(), 1, "{writer:?}");
    is_writer(ready(upgrade));
    is_writer(one().try_upgrade().unwrap());
    is_writer(one().try_upgrade_for(Duration::ZERO).unwrap());
    is_writer(one().try_upgrade_until(Instant::now()).unwrap());
    is_writer(one().upgrade_blocking());
    assert!(!latch.is_locked() && Arc::strong_count(&latch) == 1);
}

#[test]
fn a_waiting_future_keeps_its_place_and_forgets_its_old_waker() {
    let latch = Arc::new(Latch::new());
    let held = latch.write_arc_blocking();
    let (mut first, mut second) = (latch.write_arc(), latch.write_arc());
    let ((old, old_waker), (new, new_waker)) = (Bell::new(), Bell::new());
    assert!(poll_with(&mut first, &old_waker).is_pending());
    pending(&mut second);
    assert!(poll_with(&mut first, &new_waker).is_pending());
    assert_eq!(Arc::strong_count(&old), 2, "the future has dropped the first waker");
    drop(held);
    assert_eq!((old.take(), new.take()), (0, 1));
    drop(ready(first));
    drop(ready(second));
}

/// A waker that panics when it is woken.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a waker panics");
    }
}

#[test]
fn a_waker_that_panics_during_a_poll_or_a_release_leaves_nothing_held() {
    let latch = Arc::new(Latch::new());
    let held = latch.write_arc_blocking();
    let mut reader = latch.read_arc();
    assert!(poll_with(&mut reader, &Waker::from(Arc::new(Bomb))).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| held.downgrade())).is_err());
    drop(ready(reader));
    assert!(!latch.is_locked() && Arc::strong_count(&latch) == 1);
}

#[test]
#[should_panic = "polled after it had finished"]
fn a_finished_future_panics_when_it_is_polled() {
    let latch = Arc::new(Latch::new());
    let mut reader = latch.read_arc();
    drop(poll(&mut reader));
    drop(poll(&mut reader));
}

#[test]
fn debug_output_of_owned_guards_and_futures() {
    let latch = Arc::new(Latch::new());
    let mut reader = latch.upgradable_read_arc();
    assert_eq!(format!("{reader:?}"), "LatchAcquireArc { done: false, .. }");
    let guard = match poll(&mut reader) {
        Poll::Ready(guard) => guard,
        Poll::Pending => unreachable!(),
    };
    assert_eq!(format!("{reader:?}"), "LatchAcquireArc { done: true, .. }");
    assert_eq!(format!("{guard:?}"), "LatchGuardArc { mode: Upgradable, .. }");
    assert_eq!(format!("{:?}", guard.upgrade()), "LatchUpgradeArc { done: false, .. }");
}
