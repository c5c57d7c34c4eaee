//! Random schedules of futures, tries, releases and cancels on few keys, checked step by step against a model of the
//! contract that is small enough to be read.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Poll;

use common::{Bell, poll_with};
use keylatch::futures::Lock;
use keylatch::{Fairness, KeyHandle, KeyedMutex, MutexGuard};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Start(u8),
    StartByHandle(usize),
    Poll(usize),
    Cancel(usize),
    Try(u8),
    TryByHandle(usize),
    Release(usize),
    ReleaseFair(usize),
    Handle(u8),
    DropHandle(usize),
    Move(usize),
}

const KEYS: u8 = 3;

fn op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS;
    let any = any::<usize>;
    prop_oneof![
        4 => key.clone().prop_map(Op::Start),
        1 => any().prop_map(Op::StartByHandle),
        8 => any().prop_map(Op::Poll),
        2 => any().prop_map(Op::Cancel),
        3 => key.clone().prop_map(Op::Try),
        1 => any().prop_map(Op::TryByHandle),
        5 => any().prop_map(Op::Release),
        1 => any().prop_map(Op::ReleaseFair),
        1 => key.prop_map(Op::Handle),
        1 => any().prop_map(Op::DropHandle),
        1 => any().prop_map(Op::Move),
    ]
}

fn fairness() -> impl Strategy<Value = Fairness> {
    prop_oneof![Just(Fairness::Fifo), (0u8..4).prop_map(Fairness::Bounded), Just(Fairness::Barging)]
}

/// What the contract says of one key.
#[derive(Default)]
struct Model {
    /// A holder, or a waiter that the key was handed to.
    held: bool,
    granted: Option<u32>,
    /// Waiters in order of arrival, and how many have passed each at the head.
    queue: VecDeque<(u32, u32)>,
}

impl Model {
    /// Somebody who is not at the head asks while the key is free: may it get in?
    fn pass(&mut self, fairness: Fairness) -> bool {
        let Some((_, passed)) = self.queue.front_mut() else { return true };
        let may = match fairness {
            Fairness::Fifo => false,
            Fairness::Bounded(n) => *passed < u32::from(n),
            Fairness::Barging => true,
        };
        *passed += u32::from(may);
        may
    }

    fn try_lock(&mut self, fairness: Fairness) -> bool {
        let gets_in = !self.held && self.pass(fairness);
        self.held |= gets_in;
        gets_in
    }

    fn poll(&mut self, id: u32, fairness: Fairness) -> bool {
        if self.granted == Some(id) {
            self.granted = None;
            return true;
        }
        let place = self.queue.iter().position(|waiter| waiter.0 == id);
        let gets_in = !self.held && (place == Some(0) || self.pass(fairness));
        match (gets_in, place) {
            (true, Some(place)) => drop(self.queue.remove(place)),
            (false, None) => self.queue.push_back((id, 0)),
            _ => {}
        }
        self.held |= gets_in;
        gets_in
    }

    fn release(&mut self, fairness: Fairness, fair: bool) {
        self.held = false;
        let Some(&(id, passed)) = self.queue.front() else { return };
        let grant = fair
            || match fairness {
                Fairness::Fifo => true,
                Fairness::Bounded(n) => passed >= u32::from(n),
                Fairness::Barging => false,
            };
        if grant {
            self.queue.pop_front();
            self.granted = Some(id);
            self.held = true;
        }
    }

    fn cancel(&mut self, id: u32, fairness: Fairness) {
        if self.granted == Some(id) {
            self.granted = None;
            // What was reserved for it goes to the next, not to whoever comes first.
            self.release(fairness, true);
        }
        self.queue.retain(|waiter| waiter.0 != id);
    }
}

struct Pending<'a> {
    id: u32,
    key: u8,
    future: Lock<'a, u8>,
    bell: Arc<Bell>,
    /// Whether it was woken since its last poll.
    woken: bool,
}

fn run(ops: &[Op], fairness: Fairness) {
    let locks = KeyedMutex::<u8>::builder().shards(1).fairness(fairness).pool_capacity(2).build();
    let mut models: BTreeMap<u8, Model> = (0..KEYS).map(|key| (key, Model::default())).collect();
    let mut futures: Vec<Pending<'_>> = vec![];
    let mut guards: Vec<MutexGuard<'_, u8>> = vec![];
    let mut handles: Vec<KeyHandle<'_, KeyedMutex<u8>>> = vec![];
    let mut next_id = 0;
    let mut start = |key, future| {
        next_id += 1;
        let (bell, _) = Bell::new();
        Pending { id: next_id, key, future, bell, woken: false }
    };
    for op in ops {
        match *op {
            Op::Start(key) => futures.push(start(key, locks.lock(&key))),
            Op::StartByHandle(at) if !handles.is_empty() => {
                let handle = &handles[at % handles.len()];
                futures.push(start(*handle.key(), handle.lock()));
            }
            Op::Poll(at) if !futures.is_empty() => {
                let at = at % futures.len();
                let waiter = &mut futures[at];
                waiter.woken = false;
                waiter.bell.take();
                let expected = models.get_mut(&waiter.key).unwrap().poll(waiter.id, fairness);
                match poll_with(&mut waiter.future, &waiter.bell.clone().into()) {
                    Poll::Ready(guard) => {
                        assert!(expected, "{op:?}: got in, but should wait");
                        assert_eq!(*guard.key(), waiter.key);
                        guards.push(guard);
                        futures.swap_remove(at);
                    }
                    Poll::Pending => assert!(!expected, "{op:?}: waits, but should get in"),
                }
            }
            Op::Cancel(at) if !futures.is_empty() => {
                let waiter = futures.swap_remove(at % futures.len());
                models.get_mut(&waiter.key).unwrap().cancel(waiter.id, fairness);
            }
            Op::Try(key) => {
                let guard = locks.try_lock(&key);
                assert_eq!(guard.is_some(), models.get_mut(&key).unwrap().try_lock(fairness), "{op:?}");
                guards.extend(guard);
            }
            Op::TryByHandle(at) if !handles.is_empty() => {
                let handle = &handles[at % handles.len()];
                let guard = handle.try_lock();
                assert_eq!(guard.is_some(), models.get_mut(handle.key()).unwrap().try_lock(fairness), "{op:?}");
                guards.extend(guard);
            }
            Op::Release(at) if !guards.is_empty() => {
                let guard = guards.swap_remove(at % guards.len());
                models.get_mut(guard.key()).unwrap().release(fairness, false);
                drop(guard);
            }
            Op::ReleaseFair(at) if !guards.is_empty() => {
                let guard = guards.swap_remove(at % guards.len());
                models.get_mut(guard.key()).unwrap().release(fairness, true);
                guard.unlock_fair();
            }
            Op::Handle(key) => handles.push(locks.handle(&key)),
            Op::DropHandle(at) if !handles.is_empty() => drop(handles.swap_remove(at % handles.len())),
            // A future that moves to another task: the old waker must be forgotten.
            Op::Move(at) if !futures.is_empty() => {
                let at = at % futures.len();
                futures[at].bell = Bell::new().0;
                let waiter = &mut futures[at];
                let expected = models.get_mut(&waiter.key).unwrap().poll(waiter.id, fairness);
                match poll_with(&mut waiter.future, &waiter.bell.clone().into()) {
                    Poll::Ready(guard) => {
                        assert!(expected);
                        guards.push(guard);
                        futures.swap_remove(at);
                    }
                    Poll::Pending => {
                        assert!(!expected);
                        waiter.woken = false;
                    }
                }
            }
            _ => {}
        }
        for waiter in &mut futures {
            waiter.woken |= waiter.bell.take() > 0;
        }
        check(&locks, &models, &futures, &guards, &handles, op);
    }
    drop((futures, guards, handles));
    assert_eq!(locks.len(), 0, "an entry was left");
}

fn check(
    locks: &KeyedMutex<u8>,
    models: &BTreeMap<u8, Model>,
    futures: &[Pending<'_>],
    guards: &[MutexGuard<'_, u8>],
    handles: &[KeyHandle<'_, KeyedMutex<u8>>],
    op: &Op,
) {
    let mut live = 0;
    for (key, model) in models {
        let used = guards.iter().any(|guard| guard.key() == key)
            || futures.iter().any(|waiter| waiter.key == *key)
            || handles.iter().any(|handle| handle.key() == key);
        live += usize::from(used);
        assert!(guards.iter().filter(|guard| guard.key() == key).count() <= 1, "two holders after {op:?}");
        let status = locks.status(key);
        assert_eq!(status.is_some(), used, "{op:?}");
        assert_eq!(status.map_or(0, |status| status.writers()), usize::from(model.held), "{op:?}");
        assert_eq!(status.map_or(0, |status| status.waiters()), model.queue.len(), "{op:?}");
        assert_eq!(locks.is_locked(key), model.held);
        // Nobody sleeps who could get in: not the one that was granted, not the head of a free key.
        let due = model.granted.or(model.queue.front().filter(|_| !model.held).map(|head| head.0));
        if let Some(id) = due {
            let waiter = futures.iter().find(|waiter| waiter.id == id).unwrap();
            assert!(waiter.woken, "a lost wake-up after {op:?}");
        }
    }
    assert_eq!(locks.len(), live, "{op:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn a_random_schedule_does_what_the_model_says(
        ops in proptest::collection::vec(op(), 1..120),
        fairness in fairness(),
    ) {
        run(&ops, fairness);
    }
}
