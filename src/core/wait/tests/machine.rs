//! Random steps of the holders and waiters of one key. The waiters are tasks and threads, which want permits of a
//! semaphore, or the access of a writer, a reader or an upgradable reader, or an upgrade. The model (`tests/model`)
//! checks which waiters get in; this test checks that the lists match the waiters, that the head does not sleep when it
//! could get in, and that no step hands out more wakers than were announced.

use alloc::vec::Vec;
use core::task::Waker;

use proptest::prelude::*;

use crate::Fairness;
use crate::core::wait::policy::{Cause, ReleaseFor, WaitState};
use crate::core::wait::queue::Queues;
use crate::core::wait::word::{Access, Holds, Want};
use crate::core::wait::{CountKind, Presence, Rules, Ticket, Waiter, WakeBatch};

/// The largest number of permits that a request wants, and the largest limit.
const MOST: u8 = 9;

/// An operation, with its target and a detail.
type Step = (u8, u8, u8);

struct Machine {
    queues: Queues,
    queue: Option<u32>,
    rules: Rules,
    /// The number of spinning threads among four newcomers that queue, on average.
    spinners: u8,
    has_priorities: bool,
    /// Whether the queue has a limit of its own, and so stays when it has no waiters.
    is_limited: bool,
    held: Vec<Access>,
    waiting: Vec<(Ticket, Want)>,
}

impl Machine {
    fn new(fairness: Fairness, counted: CountKind, spinners: u8, has_priorities: bool) -> Self {
        let (queues, rules) = (Queues::new(), Rules { fairness, counted });
        Machine {
            queues,
            queue: None,
            rules,
            spinners,
            has_priorities,
            is_limited: false,
            held: Vec::new(),
            waiting: Vec::new(),
        }
    }

    fn holds(&self) -> Holds {
        self.held.iter().fold(Holds::NONE, |holds, &access| holds.with(access))
    }

    fn enter(&mut self, want: Want) {
        assert!(matches!(want, Want::Upgrade) || self.holds().allow(want, self.rules.limit()), "{want:?} is kept out");
        match want {
            Want::Hold(access) => self.held.push(access),
            Want::Upgrade => {
                let upgradable = self.held.iter_mut().find(|held| **held == Access::Upgradable);
                *upgradable.expect("it is what waits") = Access::Exclusive;
            }
        }
    }

    /// Returns whether the holds and the policy admit a request that is not at the head.
    fn passes(&mut self, want: Want) -> bool {
        let holds = self.holds();
        holds.allow(want, self.rules.limit())
            && match (want, self.queue) {
                (Want::Hold(access), Some(queue)) => self.queues.bypass(queue, holds, access, &self.rules),
                _ => true,
            }
    }

    /// Returns whether the holds and the priority admit a newcomer.
    fn goes_first(&mut self, want: Want, priority: u8) -> bool {
        let holds = self.holds();
        match (want, self.queue) {
            (Want::Hold(access), Some(queue)) if priority > 0 && holds.allow(want, self.rules.limit()) => {
                self.queues.goes_first(queue, priority, holds, access, &self.rules)
            }
            _ => false,
        }
    }

    fn wanted(&self, which: u8) -> Want {
        let upgrades = self.waiting.iter().any(|&(_, want)| want == Want::Upgrade);
        match self.rules.counted {
            // Half of the requests are for one permit, the others for any number up to `MOST`.
            CountKind::Permits(_) if which >= 128 => Want::Hold(Access::Permits(1)),
            CountKind::Permits(_) => Want::Hold(Access::Permits(1 + u32::from(which % MOST))),
            CountKind::Readers if which % 4 == 3 && self.held.contains(&Access::Upgradable) && !upgrades => {
                Want::Upgrade
            }
            CountKind::Readers => {
                Want::Hold([Access::Exclusive, Access::Shared, Access::Upgradable][usize::from(which) % 3])
            }
        }
    }

    fn step(&mut self, (what, whom, how): Step) {
        match what % 10 {
            0..3 => self.arrive(self.wanted(whom), whom >= 224, how),
            3..5 if !self.waiting.is_empty() => self.retry(usize::from(whom) % self.waiting.len(), how),
            5..7 if !self.held.is_empty() => self.release(usize::from(whom) % self.held.len(), how),
            7 if !self.waiting.is_empty() => self.give_up(usize::from(whom) % self.waiting.len()),
            8 => self.merge(),
            9 => self.set_limit(usize::from(whom % (MOST + 1)), how % 2 == 0),
            _ => {}
        }
    }

    /// Adds a newcomer, which gets in, waits, or fails. A reader may be recursive.
    fn arrive(&mut self, want: Want, is_recursive: bool, how: u8) {
        let is_recursive = is_recursive && want == Want::Hold(Access::Shared);
        let priority =
            if self.has_priorities && want != Want::Upgrade { [0, 1, 9, 255][usize::from(how / 8) % 4] } else { 0 };
        if is_recursive && self.holds().allow(want, self.rules.limit())
            || self.goes_first(want, priority)
            || self.passes(want)
        {
            self.enter(want);
        } else if how % 2 == 0 && self.waiting.len() < 12 {
            let queue = *self.queue.get_or_insert_with(|| self.queues.open_queue(self.rules.limit()));
            let presence = if how / 2 % 4 >= self.spinners { Presence::Task } else { Presence::SpinningThread };
            let waker = Waker::noop().clone();
            self.waiting.push((self.queues.push(queue, want, priority, presence, &self.rules, waker), want));
        }
    }

    /// Lets a waiter try again: it gets in, or stays in the queue.
    fn retry(&mut self, at: usize, how: u8) {
        let (ticket, want) = self.waiting[at];
        let Some(queue) = self.queue else { unreachable!("somebody waits") };
        let is_head = self.queues.is_head(queue, ticket);
        if self.holds().allow(want, self.rules.limit()) && (is_head || self.passes(want)) {
            let holds = self.holds().after(want);
            self.enter(want);
            self.admit(ticket, holds, Cause::QueueChanged);
        } else {
            let presence = [Presence::Task, Presence::SpinningThread, Presence::SleepingThread][usize::from(how) % 3];
            let mut batch = WakeBatch::default();
            batch.fresh = Some(Waker::noop().clone());
            let waiter = Waiter { presence, waker: Waker::noop() };
            assert!(self.queues.stay(queue, ticket, waiter, &self.rules, &mut batch));
        }
    }

    /// Merges all permits but those of one holder into one hold, so that they are released together.
    fn merge(&mut self) {
        let CountKind::Permits(_) = self.rules.counted else { return };
        let Some(one) = self.held.pop() else { return };
        let amounts = self.held.drain(..).map(|held| if let Access::Permits(amount) = held { amount } else { 0 });
        let sum = amounts.sum();
        self.held.extend((sum > 0).then_some(Access::Permits(sum)));
        self.held.push(one);
    }

    /// Sets the limit of permits, which is the key's own, or the default one.
    fn set_limit(&mut self, limit: usize, own: bool) {
        let CountKind::Permits(_) = self.rules.counted else { return };
        self.rules.counted = CountKind::Permits(limit);
        if own {
            self.queue.get_or_insert_with(|| self.queues.open_queue(limit));
        }
        let Some(queue) = self.queue else { return };
        self.queues.set_limit(queue, limit, own);
        self.is_limited = own;
        assert_eq!(self.queues.rules_of(queue, &self.rules), self.rules);
        self.admit(Ticket::NONE, self.holds(), Cause::Released);
    }

    /// Releases a hold, or turns it into a weaker one.
    fn release(&mut self, at: usize, how: u8) {
        let access = self.held[at];
        if access == Access::Upgradable && self.waiting.iter().any(|&(_, want)| want == Want::Upgrade) {
            return; // its upgrade is waiting
        }
        self.held.swap_remove(at);
        let mut whom = [ReleaseFor::Anybody, ReleaseFor::Anybody, ReleaseFor::Waiter, ReleaseFor::NextWaiter]
            [usize::from(how) % 4];
        if how >= 192 && matches!(access, Access::Exclusive | Access::Upgradable) {
            self.held.push(Access::Shared);
            whom = ReleaseFor::Anybody;
        }
        self.admit(Ticket::NONE, self.holds(), Cause::of_leaving(access, whom));
    }

    fn give_up(&mut self, at: usize) {
        let (ticket, _) = self.waiting[at];
        self.admit(ticket, self.holds(), self.queues.cause_of_giving_up(ticket));
    }

    /// Admits waiters after `gone` has left the queue.
    fn admit(&mut self, gone: Ticket, holds: Holds, cause: Cause) {
        let Some(queue) = self.queue else { return };
        let most = self.queues.most_wakers(queue, gone, holds, &self.rules, cause);
        if gone.is_some() {
            drop(self.queues.remove(queue, gone));
            self.waiting.retain(|&(ticket, _)| ticket != gone);
        }
        let mut batch = WakeBatch::default();
        let admitted = self.queues.admit(queue, holds, &self.rules, cause, &mut batch);
        assert!(batch.count() <= most, "{} wakers, and {most} were announced", batch.count());

        let mut granted = Vec::new();
        let queues = &mut self.queues;
        self.waiting.retain(|&(ticket, want)| {
            let waits = queues.state(ticket) != WaitState::Granted;
            if !waits {
                drop(queues.discard(ticket));
                granted.push(want);
            }
            waits
        });
        granted.into_iter().for_each(|want| self.enter(want));
        let stays = self.is_limited || !self.waiting.is_empty();
        assert_eq!((admitted.holds, admitted.queued), (self.holds(), stays));
        if !admitted.queued {
            self.queue = None;
        }
    }

    fn check(&self) {
        let (holds, limit) = (self.holds(), self.rules.limit());
        assert!(holds.writer() <= (holds.count() == 0 && !holds.upgradable()));
        let Some(queue) = self.queue else { return };
        self.queues.check(queue);
        for &(ticket, want) in &self.waiting {
            let sleeps = self.queues.is_head(queue, ticket) && self.queues.sleeps(ticket);
            assert!(!(sleeps && holds.allow(want, limit)), "the head sleeps although the holds allow its request");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn the_lists_say_what_the_waiters_are_and_no_waker_is_unannounced(
        policy in 0..6_usize,
        permits in 0..9_usize,
        spinners in 1..5_u8,
        has_priorities in any::<bool>(),
        steps in proptest::collection::vec(any::<Step>(), 1..300),
    ) {
        use Fairness::{Adaptive, Barging, Bounded, Fifo};
        let fairness = [Adaptive, Adaptive, Bounded(0), Bounded(3), Fifo, Barging][policy];
        let counted = if permits == 0 { CountKind::Readers } else { CountKind::Permits(permits) };
        let mut machine = Machine::new(fairness, counted, spinners, has_priorities);
        for step in steps {
            machine.step(step);
            machine.check();
        }
    }
}
