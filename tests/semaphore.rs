//! `KeyedSemaphore`: never too many, and in the promised order; with a model of its own.

mod common;

use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

use common::{Bell, pending, poll, poll_with, ready};
use futures_lite::future::{block_on, yield_now};
use keylatch::futures::AcquirePermit;
use keylatch::{Fairness, KeyedSemaphore, MAX_PERMITS, PermitGuard, PermitGuardArc};
use proptest::prelude::*;

#[test]
fn every_form_takes_one_permit() {
    let hosts = Arc::new(KeyedSemaphore::<String>::new(11));
    let handle = hosts.handle("a");
    let owned = hosts.handle_arc("a");
    let hour = Duration::from_secs(3600);
    let deadline = Instant::now() + hour;
    let borrowed: Vec<PermitGuard<'_, String>> = vec![
        hosts.acquire_blocking("a"),
        hosts.try_acquire("a").unwrap(),
        hosts.try_acquire_for("a", hour).unwrap(),
        hosts.try_acquire_until("a", deadline).unwrap(),
        ready(hosts.acquire("a")),
        handle.acquire_blocking(),
    ];
    let shared: Vec<PermitGuardArc<String>> = vec![
        hosts.acquire_arc_blocking("a"),
        hosts.try_acquire_arc("a").unwrap(),
        hosts.try_acquire_arc_for("a", hour).unwrap(),
        ready(hosts.acquire_arc("a")),
        owned.try_acquire().unwrap(),
    ];
    assert_eq!(hosts.status("a").unwrap().permits(), 11);
    assert!(hosts.try_acquire("a").is_none() && handle.try_acquire().is_none());
    assert!(hosts.try_acquire_for("a", Duration::ZERO).is_none());
    assert!(hosts.try_acquire_until("a", Instant::now()).is_none());
    assert!(hosts.try_acquire_arc_until("a", Instant::now()).is_none());
    assert!(block_on(hosts.acquire("a").until(std::future::ready(()))).is_err());
    assert!(hosts.try_acquire("b").is_some());
    drop((borrowed, shared, handle, owned));
    assert!(hosts.is_empty());
}

#[test]
fn nonsense_is_refused_with_a_message_that_names_it() {
    assert_eq!(KeyedSemaphore::<u64>::new(MAX_PERMITS).permits(), MAX_PERMITS);
    for permits in [0, MAX_PERMITS + 1, usize::MAX] {
        let outcome = catch_unwind(|| KeyedSemaphore::<u64>::new(permits));
        let message = *outcome.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("permits") && message.contains(&MAX_PERMITS.to_string()), "{message}");
    }
}

#[test]
fn fifo_serves_strictly_in_order_of_arrival() {
    let hosts = KeyedSemaphore::<u64>::builder(2).fairness(Fairness::Fifo).build();
    let (first, second) = (hosts.try_acquire(&7).unwrap(), hosts.try_acquire(&7).unwrap());
    let mut waiters: Vec<_> = (0..4).map(|_| hosts.acquire(&7)).collect();
    waiters.iter_mut().for_each(pending);
    drop(first);
    assert!(hosts.try_acquire(&7).is_none());
    waiters[1..].iter_mut().for_each(pending);
    let third = ready(&mut waiters[0]);
    drop(second);
    waiters[2..].iter_mut().for_each(pending);
    let fourth = ready(&mut waiters[1]);
    drop((third, fourth));
    assert_eq!(hosts.status(&7).unwrap().permits(), 2);
    drop(waiters);
    assert!(hosts.is_empty());
}

#[test]
fn a_permit_that_a_newcomer_leaves_for_the_waiter_is_no_bypass() {
    let hosts = KeyedSemaphore::<u64>::builder(3).fairness(Fairness::Bounded(1)).build();
    let mut held: Vec<_> = (0..3).map(|_| hosts.try_acquire(&7).unwrap()).collect();
    let mut waiter = hosts.acquire(&7);
    pending(&mut waiter);
    held.truncate(1); // two are free, and the waiter is woken
    for _ in 0..9 {
        drop(hosts.try_acquire(&7).unwrap());
    }
    let third = hosts.try_acquire(&7).unwrap();
    let last = hosts.try_acquire(&7).unwrap(); // keeps the waiter out: once
    pending(&mut waiter);
    drop(last);
    assert!(hosts.try_acquire(&7).is_none(), "the bound");
    drop(ready(&mut waiter));
    drop((third, held, waiter));
    assert!(hosts.is_empty());
}

#[test]
fn unlock_fair_gives_the_permit_to_the_one_who_waits() {
    for fairness in [Fairness::Fifo, Fairness::Bounded(99), Fairness::Barging] {
        let hosts = KeyedSemaphore::<u64>::builder(2).fairness(fairness).build();
        let (first, _second) = (hosts.try_acquire(&7).unwrap(), hosts.try_acquire(&7).unwrap());
        let mut waiter = hosts.acquire(&7);
        pending(&mut waiter);
        first.unlock_fair();
        assert!(hosts.try_acquire(&7).is_none(), "{fairness:?}");
        drop(ready(&mut waiter));
    }
}

#[test]
fn fifty_tasks_with_five_permits_never_see_a_sixth_holder() {
    const TASKS: usize = 50;
    const ROUNDS: usize = if cfg!(debug_assertions) { 1_000 } else { 10_000 };
    for fairness in [Fairness::Fifo, Fairness::default(), Fairness::Barging] {
        let hosts = KeyedSemaphore::<u64>::builder(5).fairness(fairness).build();
        let (inside, entered, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let executor = smol::Executor::new();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (hosts, inside, entered, most) = (&hosts, &inside, &entered, &most);
                executor.spawn(async move {
                    for round in 0..ROUNDS {
                        let permit = hosts.acquire(&7).await;
                        let now = inside.fetch_add(1, SeqCst) + 1;
                        assert!(now <= 5, "{now} holders of 5 permits");
                        most.fetch_max(now, SeqCst);
                        entered.fetch_add(1, SeqCst);
                        if (task + round) % 3 == 0 {
                            yield_now().await;
                        }
                        inside.fetch_sub(1, SeqCst);
                        drop(permit);
                    }
                })
            })
            .collect();
        std::thread::scope(|scope| {
            let (stop, stopped) = async_channel::bounded::<()>(1);
            for _ in 0..2 {
                let (executor, stopped) = (&executor, stopped.clone());
                scope.spawn(move || block_on(executor.run(stopped.recv())));
            }
            block_on(async {
                for task in tasks {
                    task.await;
                }
            });
            drop(stop);
        });
        assert_eq!(entered.load(SeqCst), TASKS * ROUNDS);
        assert_eq!(most.load(SeqCst), 5, "all permits were out at some time");
        assert!(hosts.is_empty());
    }
}

// ---- a model ----------------------------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Op {
    Start,
    Poll(usize),
    Cancel(usize),
    Try,
    Release(usize),
    ReleaseFair(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let any = any::<usize>;
    prop_oneof![
        3 => Just(Op::Start),
        6 => any().prop_map(Op::Poll),
        2 => any().prop_map(Op::Cancel),
        3 => Just(Op::Try),
        5 => any().prop_map(Op::Release),
        1 => any().prop_map(Op::ReleaseFair),
    ]
}

struct Model {
    fairness: Fairness,
    free: usize,
    granted: Vec<u32>,
    /// Who waits, and how many have passed it.
    queue: VecDeque<(u32, u32)>,
}

impl Model {
    fn pass(&mut self) -> bool {
        let last = self.free == 1;
        let Some((_, passed)) = self.queue.front_mut() else { return true };
        match self.fairness {
            Fairness::Fifo => false,
            Fairness::Barging => true,
            Fairness::Bounded(_) if !last => true,
            Fairness::Bounded(n) if *passed < u32::from(n) => {
                *passed += 1;
                true
            }
            Fairness::Bounded(_) => false,
        }
    }

    fn try_acquire(&mut self) -> bool {
        let gets_in = self.free > 0 && self.pass();
        self.free -= usize::from(gets_in);
        gets_in
    }

    fn poll(&mut self, id: u32) -> bool {
        if self.granted.contains(&id) {
            self.granted.retain(|&granted| granted != id);
            return true;
        }
        let place = self.queue.iter().position(|waiter| waiter.0 == id);
        let gets_in = self.free > 0 && (place == Some(0) || self.pass());
        match (gets_in, place) {
            (true, Some(place)) => drop(self.queue.remove(place)),
            (false, None) => self.queue.push_back((id, 0)),
            _ => {}
        }
        self.free -= usize::from(gets_in);
        if gets_in && place.is_some() {
            self.settle(false);
        }
        gets_in
    }

    fn settle(&mut self, mut fair: bool) {
        let mut left = self.free;
        let mut at = 0;
        while left > 0 && at < self.queue.len() {
            left -= 1;
            let grant = std::mem::take(&mut fair)
                || match self.fairness {
                    Fairness::Fifo => true,
                    Fairness::Bounded(n) => self.queue[at].1 >= u32::from(n),
                    Fairness::Barging => false,
                };
            if grant {
                self.granted.extend(self.queue.remove(at).map(|waiter| waiter.0));
                self.free -= 1;
            } else {
                at += 1;
            }
        }
    }

    fn release(&mut self, fair: bool) {
        self.free += 1;
        self.settle(fair);
    }

    fn cancel(&mut self, id: u32) {
        if self.granted.contains(&id) {
            self.granted.retain(|&granted| granted != id);
            // What was reserved for it goes to the next, not to whoever comes first.
            self.release(true);
        } else {
            let before = self.queue.len();
            self.queue.retain(|waiter| waiter.0 != id);
            if self.queue.len() < before {
                self.settle(false);
            }
        }
    }
}

fn run(ops: &[Op], permits: usize, fairness: Fairness) {
    let hosts = KeyedSemaphore::<u8>::builder(permits).shards(1).fairness(fairness).build();
    let mut model = Model { fairness, free: permits, granted: vec![], queue: VecDeque::new() };
    let mut futures: Vec<(u32, AcquirePermit<'_, u8>, Arc<Bell>, bool)> = vec![];
    let mut held = vec![];
    for (op, id) in ops.iter().zip(0..) {
        match *op {
            Op::Start => futures.push((id, hosts.acquire(&7), Bell::new().0, false)),
            Op::Poll(at) if !futures.is_empty() => {
                let at = at % futures.len();
                let (id, future, bell, woken) = &mut futures[at];
                let expected = model.poll(*id);
                *woken = false;
                bell.take();
                match poll_with(future, &bell.clone().into()) {
                    Poll::Ready(permit) => {
                        assert!(expected, "{op:?}: got in, but should wait");
                        held.push(permit);
                        drop(futures.swap_remove(at));
                    }
                    Poll::Pending => assert!(!expected, "{op:?}: waits, but should get in"),
                }
            }
            Op::Cancel(at) if !futures.is_empty() => {
                let (id, ..) = futures.swap_remove(at % futures.len());
                model.cancel(id);
            }
            Op::Try => {
                let permit = hosts.try_acquire(&7);
                assert_eq!(permit.is_some(), model.try_acquire(), "{op:?}");
                held.extend(permit);
            }
            Op::Release(at) if !held.is_empty() => {
                drop(held.swap_remove(at % held.len()));
                model.release(false);
            }
            Op::ReleaseFair(at) if !held.is_empty() => {
                held.swap_remove(at % held.len()).unlock_fair();
                model.release(true);
            }
            _ => {}
        }
        let status = hosts.status(&7);
        assert_eq!(status.map_or(0, |status| status.permits()), permits - model.free, "{op:?}");
        assert_eq!(status.map_or(0, |status| status.waiting_permits()), model.queue.len(), "{op:?}");
        for (_, _, bell, woken) in &mut futures {
            *woken |= bell.take() > 0;
        }
        // Nobody sleeps for whom there is a permit.
        let first = model.queue.iter().take(model.free).map(|waiter| waiter.0);
        for due in first.chain(model.granted.iter().copied()) {
            assert!(futures.iter().any(|(id, _, _, woken)| *id == due && *woken), "a lost wake-up after {op:?}");
        }
    }
    drop((futures, held));
    assert!(hosts.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn a_random_schedule_does_what_the_model_says(
        ops in proptest::collection::vec(op(), 1..120),
        permits in 1usize..4,
        fairness in prop_oneof![
            Just(Fairness::Fifo),
            (0u8..4).prop_map(Fairness::Bounded),
            Just(Fairness::Barging),
        ],
    ) {
        run(&ops, permits, fairness);
    }
}

#[test]
fn a_released_permit_goes_past_a_waiter_that_gave_up() {
    let hosts = KeyedSemaphore::<u64>::builder(1).fairness(Fairness::Fifo).build();
    let permit = hosts.try_acquire(&7).unwrap();
    let (mut first, mut second) = (hosts.acquire(&7), hosts.acquire(&7));
    pending(&mut first);
    pending(&mut second);
    drop(permit);
    drop(first);
    assert!(poll(&mut second).is_ready());
}
