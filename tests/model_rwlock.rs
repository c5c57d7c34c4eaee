//! Random schedules of readers, upgradable readers, writers, upgrades and downgrades on one key, checked step by step against
//! a model of the contract.

mod common;

use std::sync::Arc;
use std::task::Poll;

use common::{Bell, poll_with};
use keylatch::futures::{Read, UpgradableRead, Upgrade, Write};
use keylatch::{Fairness, KeyedRwLock, ReadGuard, TableRef, UpgradableGuard, WriteGuard};
use proptest::prelude::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Want {
    Read,
    Upgradable,
    Write,
    /// By the upgradable reader.
    Upgrade,
}

#[derive(Clone, Debug)]
enum Op {
    Start(Want),
    Poll(usize),
    Cancel(usize),
    Try(Want),
    Release(usize),
    ReleaseFair,
    StartUpgrade,
    TryUpgrade,
    /// To a reader.
    Downgrade,
    DowngradeToUpgradable,
    /// `upgrade_mut`, if it is possible at once, and back.
    UpgradeMut,
}

fn op() -> impl Strategy<Value = Op> {
    let want = prop_oneof![4 => Just(Want::Read), 2 => Just(Want::Upgradable), 3 => Just(Want::Write)];
    prop_oneof![
        5 => want.clone().prop_map(Op::Start),
        8 => any::<usize>().prop_map(Op::Poll),
        2 => any::<usize>().prop_map(Op::Cancel),
        3 => want.prop_map(Op::Try),
        6 => any::<usize>().prop_map(Op::Release),
        1 => Just(Op::ReleaseFair),
        2 => Just(Op::StartUpgrade),
        1 => Just(Op::TryUpgrade),
        1 => Just(Op::Downgrade),
        1 => Just(Op::DowngradeToUpgradable),
        1 => Just(Op::UpgradeMut),
    ]
}

fn fairness() -> impl Strategy<Value = Fairness> {
    prop_oneof![Just(Fairness::Fifo), (0u8..4).prop_map(Fairness::Bounded), Just(Fairness::Barging)]
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    id: u32,
    want: Want,
    passed: u32,
    /// Whether an upgradable reader that came later has got in with a phase.
    passed_in_phase: bool,
}

/// What the contract says of one key.
#[derive(Debug)]
struct Model {
    fairness: Fairness,
    readers: usize,
    upgradable: bool,
    writer: bool,
    queue: Vec<Waiter>,
    /// Those who hold, but have not come for it yet.
    granted: Vec<u32>,
}

impl Model {
    fn admits(&self, want: Want) -> bool {
        match want {
            Want::Read => !self.writer,
            Want::Upgradable => !self.writer && !self.upgradable,
            Want::Write => !self.writer && !self.upgradable && self.readers == 0,
            Want::Upgrade => self.readers == 0,
        }
    }

    fn enter(&mut self, want: Want) {
        match want {
            Want::Read => self.readers += 1,
            Want::Upgradable => self.upgradable = true,
            Want::Write => self.writer = true,
            Want::Upgrade => (self.upgradable, self.writer) = (false, true),
        }
    }

    fn leave(&mut self, held: Want) {
        match held {
            Want::Read => self.readers -= 1,
            Want::Upgradable => self.upgradable = false,
            Want::Write | Want::Upgrade => self.writer = false,
        }
    }

    /// Somebody asks who is not at the head, and whom the holds admit.
    fn pass(&mut self, want: Want) -> bool {
        if self.queue.is_empty() || want == Want::Upgrade {
            return true;
        }
        let bound = match self.fairness {
            Fairness::Fifo => return false,
            Fairness::Barging => return true,
            Fairness::Bounded(bound) => u32::from(bound),
        };
        let keeps_out = self.queue.iter().any(|waiter| matches!(waiter.want, Want::Write | Want::Upgrade))
            || !matches!(
                (want, self.queue[0].want),
                (Want::Read, Want::Read | Want::Upgradable) | (Want::Upgradable, Want::Read)
            );
        if !keeps_out {
            return true;
        }
        let passes = if self.queue[0].want == Want::Upgrade { 2 } else { 1 };
        let may = self.queue.iter().take(passes).all(|waiter| waiter.passed < bound);
        if may {
            self.queue.iter_mut().take(passes).for_each(|waiter| waiter.passed += 1);
        }
        may
    }

    fn try_enter(&mut self, want: Want) -> bool {
        let gets_in = self.admits(want) && self.pass(want);
        if gets_in {
            self.enter(want);
        }
        gets_in
    }

    fn poll(&mut self, id: u32, want: Want) -> bool {
        if let Some(at) = self.granted.iter().position(|&granted| granted == id) {
            self.granted.swap_remove(at);
            return true;
        }
        let place = self.queue.iter().position(|waiter| waiter.id == id);
        if self.admits(want) && (place == Some(0) || self.pass(want)) {
            self.enter(want);
            if let Some(place) = place {
                self.queue.remove(place);
                self.settle(false, false);
            }
            return true;
        }
        if place.is_none() {
            let at = if want == Want::Upgrade { 0 } else { self.queue.len() };
            self.queue.insert(at, Waiter { id, want, passed: 0, passed_in_phase: false });
        }
        false
    }

    fn grant(&mut self, at: usize) {
        let waiter = self.queue.remove(at);
        self.enter(waiter.want);
        self.granted.push(waiter.id);
    }

    /// Lets in whoever must get in without being asked.
    fn settle(&mut self, writer_left: bool, mut fair: bool) {
        let bounded = matches!(self.fairness, Fairness::Bounded(_));
        if writer_left && bounded {
            // One upgradable reader, the first; but before a writer that came earlier only once.
            let upgradable = self.queue.iter().position(|waiter| waiter.want == Want::Upgradable);
            if let Some(at) = upgradable {
                let writer = self.queue[..at].iter_mut().find(|waiter| waiter.want == Want::Write);
                let passes = writer.is_none_or(|writer| !std::mem::replace(&mut writer.passed_in_phase, true));
                if passes && self.admits(Want::Upgradable) {
                    self.grant(at);
                }
            }
            while let Some(at) = self.queue.iter().position(|waiter| waiter.want == Want::Read) {
                self.grant(at);
            }
        }
        // Those who were merely woken count as if they had come, for those behind them.
        let mut expected = Model { queue: vec![], granted: vec![], ..*self };
        let mut at = 0;
        while at < self.queue.len() {
            let Waiter { want, passed, .. } = self.queue[at];
            if !expected.admits(want) {
                if want != Want::Upgradable || self.fairness == Fairness::Fifo {
                    return;
                }
                at += 1;
                continue;
            }
            expected.enter(want);
            let grant = std::mem::take(&mut fair)
                || match self.fairness {
                    Fairness::Fifo => true,
                    Fairness::Bounded(bound) => {
                        matches!(want, Want::Read | Want::Upgrade) || passed >= u32::from(bound)
                    }
                    Fairness::Barging => false,
                };
            if grant { self.grant(at) } else { at += 1 }
        }
    }

    fn release(&mut self, held: Want, fair: bool) {
        self.leave(held);
        self.settle(matches!(held, Want::Write | Want::Upgrade), fair);
    }

    fn change(&mut self, from: Want, to: Want) {
        self.leave(from);
        self.enter(to);
        self.settle(from == Want::Write, false);
    }

    /// Gives up a request. An upgrade that gives up releases its hold, too.
    fn cancel(&mut self, id: u32, want: Want) {
        if let Some(at) = self.granted.iter().position(|&granted| granted == id) {
            self.granted.swap_remove(at);
            // What was reserved for it goes to the next, not to whoever comes first. An upgrade had a hold before.
            return self.release(want, want != Want::Upgrade);
        }
        let waited = self.queue.iter().any(|waiter| waiter.id == id);
        self.queue.retain(|waiter| waiter.id != id);
        if waited {
            self.settle(false, false);
        }
        if want == Want::Upgrade {
            self.release(Want::Upgradable, false);
        }
    }
}

type Table = KeyedRwLock<u8>;
type Borrowed<'a> = TableRef<'a, Table>;

enum Future<'a> {
    Read(Read<'a, u8>),
    Upgradable(UpgradableRead<'a, u8>),
    Write(Write<'a, u8>),
    Upgrade(Upgrade<Borrowed<'a>>),
}

enum Held<'a> {
    Read(ReadGuard<'a, u8>),
    Upgradable(UpgradableGuard<'a, u8>),
    Write(WriteGuard<'a, u8>),
}

impl Held<'_> {
    fn want(&self) -> Want {
        match self {
            Held::Read(_) => Want::Read,
            Held::Upgradable(_) => Want::Upgradable,
            Held::Write(_) => Want::Write,
        }
    }
}

struct Pending<'a> {
    id: u32,
    want: Want,
    future: Future<'a>,
    bell: Arc<Bell>,
    woken: bool,
}

impl<'a> Pending<'a> {
    fn poll(&mut self) -> Poll<Held<'a>> {
        self.bell.take();
        self.woken = false;
        let waker = self.bell.clone().into();
        match &mut self.future {
            Future::Read(future) => poll_with(future, &waker).map(Held::Read),
            Future::Upgradable(future) => poll_with(future, &waker).map(Held::Upgradable),
            Future::Write(future) => poll_with(future, &waker).map(Held::Write),
            Future::Upgrade(future) => poll_with(future, &waker).map(Held::Write),
        }
    }
}

fn position(held: &[Held<'_>], want: Want) -> Option<usize> {
    held.iter().position(|held| held.want() == want)
}

fn run(ops: &[Op], fairness: Fairness) {
    let locks = Table::builder().shards(1).fairness(fairness).build();
    let mut model = Model { fairness, readers: 0, upgradable: false, writer: false, queue: vec![], granted: vec![] };
    let mut futures: Vec<Pending<'_>> = vec![];
    let mut held: Vec<Held<'_>> = vec![];
    let mut id = 0;
    let mut pending = |want, future| {
        id += 1;
        Pending { id, want, future, bell: Bell::new().0, woken: false }
    };
    for op in ops {
        match *op {
            Op::Start(want) => futures.push(pending(
                want,
                match want {
                    Want::Read => Future::Read(locks.read(&7)),
                    Want::Upgradable => Future::Upgradable(locks.upgradable_read(&7)),
                    _ => Future::Write(locks.write(&7)),
                },
            )),
            Op::Poll(at) if !futures.is_empty() => {
                let at = at % futures.len();
                let expected = model.poll(futures[at].id, futures[at].want);
                match futures[at].poll() {
                    Poll::Ready(guard) => {
                        assert!(expected, "{op:?}: got in, but should wait");
                        held.push(guard);
                        futures.swap_remove(at);
                    }
                    Poll::Pending => assert!(!expected, "{op:?}: waits, but should get in"),
                }
            }
            Op::Cancel(at) if !futures.is_empty() => {
                let request = futures.swap_remove(at % futures.len());
                model.cancel(request.id, request.want);
            }
            Op::Try(want) => {
                let guard = match want {
                    Want::Read => locks.try_read(&7).map(Held::Read),
                    Want::Upgradable => locks.try_upgradable_read(&7).map(Held::Upgradable),
                    _ => locks.try_write(&7).map(Held::Write),
                };
                assert_eq!(guard.is_some(), model.try_enter(want), "{op:?}");
                held.extend(guard);
            }
            Op::Release(at) if !held.is_empty() => {
                let guard = held.swap_remove(at % held.len());
                model.release(guard.want(), false);
            }
            Op::ReleaseFair => {
                if let Some(at) = position(&held, Want::Write) {
                    model.release(Want::Write, true);
                    if let Held::Write(guard) = held.swap_remove(at) {
                        guard.unlock_fair();
                    }
                }
            }
            Op::StartUpgrade => {
                if let Some(at) = position(&held, Want::Upgradable) {
                    if let Held::Upgradable(guard) = held.swap_remove(at) {
                        futures.push(pending(Want::Upgrade, Future::Upgrade(guard.upgrade())));
                    }
                }
            }
            Op::TryUpgrade => {
                if let Some(at) = position(&held, Want::Upgradable) {
                    if let Held::Upgradable(guard) = held.swap_remove(at) {
                        let expected = model.try_enter(Want::Upgrade);
                        match guard.try_upgrade() {
                            Ok(guard) => held.push(Held::Write(guard)),
                            Err(guard) => held.push(Held::Upgradable(guard)),
                        }
                        assert_eq!(held.last().unwrap().want() == Want::Write, expected);
                    }
                }
            }
            Op::Downgrade => {
                let at = position(&held, Want::Write).or(position(&held, Want::Upgradable));
                if let Some(at) = at {
                    model.change(held[at].want(), Want::Read);
                    let reader = match held.swap_remove(at) {
                        Held::Read(guard) => guard,
                        Held::Upgradable(guard) => guard.downgrade(),
                        Held::Write(guard) => guard.downgrade(),
                    };
                    held.push(Held::Read(reader));
                }
            }
            Op::DowngradeToUpgradable => {
                if let Some(at) = position(&held, Want::Write) {
                    model.change(Want::Write, Want::Upgradable);
                    if let Held::Write(guard) = held.swap_remove(at) {
                        held.push(Held::Upgradable(guard.downgrade_to_upgradable()));
                    }
                }
            }
            Op::UpgradeMut => {
                if let Some(at) = position(&held, Want::Upgradable) {
                    let expected = model.try_enter(Want::Upgrade);
                    if let Held::Upgradable(guard) = &mut held[at] {
                        let upgraded = guard.try_upgrade_mut();
                        assert_eq!(upgraded.is_some(), expected);
                        if upgraded.is_some() {
                            let status = locks.status(&7).unwrap();
                            assert_eq!((status.writers(), status.upgradable(), status.readers()), (1, 0, 0));
                            model.change(Want::Write, Want::Upgradable);
                        }
                    }
                }
            }
            _ => {}
        }
        for request in &mut futures {
            request.woken |= request.bell.take() > 0;
        }
        check(&locks, &model, &futures, &held, op);
    }
    drop((futures, held));
    assert_eq!(locks.len(), 0, "an entry was left");
}

fn check(locks: &Table, model: &Model, futures: &[Pending<'_>], held: &[Held<'_>], op: &Op) {
    let status = locks.status(&7);
    assert_eq!(status.is_some(), !futures.is_empty() || !held.is_empty(), "{op:?}");
    let Some(status) = status else { return };
    let waiting = |want| model.queue.iter().filter(|waiter| waiter.want == want).count();
    let seen = [status.readers(), status.upgradable(), status.writers()];
    assert_eq!(seen, [model.readers, model.upgradable.into(), model.writer.into()], "{op:?}, {model:?}");
    let seen =
        [status.waiting_readers(), status.waiting_upgradable(), status.waiting_writers(), status.waiting_upgrades()];
    let expected = [Want::Read, Want::Upgradable, Want::Write, Want::Upgrade].map(waiting);
    assert_eq!(seen, expected, "{op:?}, {model:?}");
    assert!(!(model.writer && (model.upgradable || model.readers > 0)));
    // Nobody sleeps who could get in: not those who were granted, and not a head that the holds admit.
    let head = model.queue.first().filter(|head| model.admits(head.want)).map(|head| head.id);
    for id in model.granted.iter().copied().chain(head) {
        let request = futures.iter().find(|request| request.id == id).unwrap();
        assert!(request.woken, "a lost wake-up after {op:?}");
    }
    // A reader waits only behind somebody who keeps it out.
    if model.fairness != Fairness::Fifo && !model.writer {
        let kept_out = model.queue.iter().position(|waiter| matches!(waiter.want, Want::Write | Want::Upgrade));
        let readers = model.queue.iter().take(kept_out.unwrap_or(model.queue.len()));
        for reader in readers.filter(|waiter| waiter.want == Want::Read) {
            let request = futures.iter().find(|request| request.id == reader.id).unwrap();
            assert!(model.fairness == Fairness::Barging && request.woken, "a reader is kept out by nobody: {model:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]
    #[test]
    fn a_random_schedule_does_what_the_model_says(
        ops in proptest::collection::vec(op(), 1..120),
        fairness in fairness(),
    ) {
        run(&ops, fairness);
    }
}
