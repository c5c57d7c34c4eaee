//! The rules of the policies, and every number in them: how often a waiter may be passed, and when it must be granted its hold.
//!
//! Nothing here knows of queues: a [`Standing`] is what one waiter has been through. No clock is involved.

use super::word::Access;
use crate::fairness::Fairness;

/// The rules of the queues, the same for all keys of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    pub(crate) fairness: Fairness,
    pub(crate) counted: CountKind,
}

/// The kind of holds that a word counts: a table has readers, or it has permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CountKind {
    Readers,
    /// At most so many for each key.
    Permits(usize),
}

/// The kind of waiter, and what it does meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    /// It comes when it is woken, or later, or never.
    Task,
    /// It is on a core, and will see at once that it has been handed what it wants.
    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for those who block
    LookingThread,
    /// It sleeps, or is about to. Once it is woken it comes.
    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for those who block
    SleepingThread,
}

/// The history of a waiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) state: WaitState,
    pub(super) presence: Presence,
    /// The number of times that it was woken and did not get the hold.
    visits: u8,
    /// The number of later requests that passed it while it was at the head: before it was woken, and after.
    passed: [u16; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitState {
    /// It is in the queue, and has not been woken since it came last.
    Asleep,
    /// It is in the queue, and has been woken: the key was left open for it.
    Woken,
    /// The hold is its own already; it is in no queue.
    Granted,
}

/// A waiter that has come in vain so often is handed what it wants. Then the cost of its visits stays in proportion, and it cannot
/// starve, however it is that others are always quicker.
const VISITS: u8 = 4;

/// The number of later requests that pass a head that has not been woken, because the holders keep it out. It cannot enter, so it
/// must be seen to that the holds end: such as those of readers that overlap.
const PASSES_OF_THE_ABSENT: u16 = 16;

/// The number of later requests that pass a thread that has been woken. A thread always runs again, so this is reached only if it does not
/// run for long.
const PASSES_OF_A_THREAD: u16 = 1024;

/// While a head that has been woken is on its way, one more sleeper is woken at each so many passes.
const PASSES_TO_WAKE_ONE_MORE: u16 = 4;

impl Standing {
    pub(super) fn new(presence: Presence) -> Self {
        Standing { state: WaitState::Asleep, presence, visits: 0, passed: [0; 2] }
    }

    #[inline]
    pub(super) fn is_asleep(&self) -> bool {
        self.state == WaitState::Asleep
    }

    #[inline]
    pub(super) fn is_woken(&self) -> bool {
        self.state == WaitState::Woken
    }

    #[inline]
    pub(super) fn is_looking(&self) -> bool {
        self.presence == Presence::LookingThread
    }

    fn is_thread(&self) -> bool {
        self.presence != Presence::Task
    }

    /// It has been woken, and may never come.
    pub(super) fn is_idle(&self) -> bool {
        self.is_woken() && !self.is_thread()
    }

    /// Whether it has come in vain before.
    pub(super) fn has_come(&self) -> bool {
        self.visits > 0
    }

    /// It has asked, and did not get in: it waits on.
    pub(super) fn stays(&mut self, presence: Presence) {
        if self.is_woken() {
            self.visits = self.visits.saturating_add(1);
        }
        self.state = WaitState::Asleep;
        self.presence = presence;
    }

    /// A later request gets in before it, which stands at the head.
    pub(super) fn is_passed(&mut self) {
        let passed = &mut self.passed[usize::from(self.is_woken())];
        *passed = passed.wrapping_add(1); // of a task without a bound, over and over
    }

    /// Whether a later request has got in before it when it had not been woken: then others may have queued because of it.
    pub(super) fn was_passed_asleep(&self) -> bool {
        let [absent, _] = self.passed;
        absent > 0
    }

    /// Whether it is handed what it wants as soon as that is free, before any newcomer.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_looking() || self.visits >= VISITS
    }

    /// It has been woken, and is at the head, and somebody releases what it wants: whether that one wakes the next as well.
    ///
    /// A task may never come, and those behind it must not wait for it. A thread comes, and so do others who have been let in just
    /// now: then it is enough to see to it that some of those who sleep are on their way.
    pub(super) fn lets_wake_the_next(&self, others_come: bool) -> bool {
        let [_, passed] = self.passed;
        !(self.is_thread() || others_come) || passed > 0 && passed % PASSES_TO_WAKE_ONE_MORE == 0
    }
}

impl Rules {
    /// The number of permits of a key.
    #[inline]
    pub(crate) fn limit(&self) -> usize {
        match self.counted {
            CountKind::Readers => 0,
            CountKind::Permits(limit) => limit,
        }
    }

    /// Whether a waiter at the head that may get in is given its hold. (Readers are, unless the policy is `Barging`.)
    #[inline]
    pub(super) fn grants(&self, standing: &Standing) -> bool {
        let [absent, woken] = standing.passed;
        match self.fairness {
            Fairness::Fifo => true,
            Fairness::Barging => false,
            Fairness::Bounded(bound) => standing.is_due() || u32::from(absent) + u32::from(woken) >= u32::from(bound),
            Fairness::Adaptive => standing.is_due() || standing.is_thread() && woken >= PASSES_OF_A_THREAD,
        }
    }

    /// Whether a later request may get in before a waiter at the head.
    #[inline]
    pub(super) fn lets_pass(&self, standing: &Standing) -> bool {
        let [absent, woken] = standing.passed;
        match self.fairness {
            Fairness::Fifo => false,
            Fairness::Barging => true,
            Fairness::Bounded(bound) => u32::from(absent) + u32::from(woken) < u32::from(bound),
            Fairness::Adaptive if !standing.is_woken() => absent < PASSES_OF_THE_ABSENT,
            Fairness::Adaptive => !standing.is_thread() || woken < PASSES_OF_A_THREAD,
        }
    }

    /// Whether what is free is handed over to those who are [due](Standing::is_due) wherever they stand, and a writer that leaves
    /// begins a phase of readers.
    #[inline]
    pub(crate) fn hands_over(&self) -> bool {
        matches!(self.fairness, Fairness::Adaptive | Fairness::Bounded(_))
    }

    /// Whether nothing is kept for a task that may not come, where that can be helped.
    #[inline]
    pub(crate) fn keeps_nothing_for_the_idle(&self) -> bool {
        self.fairness == Fairness::Adaptive
    }

    /// Whether a waiting upgrade is given its hold when the last reader has left.
    #[inline]
    pub(super) fn grants_upgrade(&self, standing: &Standing) -> bool {
        matches!(self.fairness, Fairness::Bounded(_)) || self.grants(standing)
    }
}

/// For whom a hold is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReleaseFor {
    /// For whom the policy says, or who comes first.
    Anybody,
    /// For one that waits: no newcomer gets in before.
    Waiter,
    /// The same, by one that had been handed it and gives up. It goes to nobody who has been woken and has not come.
    NextWaiter,
}

/// Why [`Queues::admit`](super::queue::Queues::admit) is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A waiter entered, or gave up.
    Settled,
    /// A hold that is not exclusive was released; or a waiter gave up that had been woken in place of others.
    Released,
    /// A writer has left.
    WriterLeft,
    /// The first that can get in must get in, before any newcomer. Where permits are given up: the first of those who wait, in their
    /// order, for as many.
    Fair { writer_left: bool, passed_on: bool, permits: u32 },
}

impl Cause {
    /// A hold is given up, or becomes a weaker one.
    pub(crate) fn of_leaving(access: Access, whom: ReleaseFor) -> Cause {
        let writer_left = access == Access::Exclusive;
        let permits = if let Access::Permits(amount) = access { amount } else { 0 };
        match whom {
            ReleaseFor::Anybody if writer_left => Cause::WriterLeft,
            ReleaseFor::Anybody => Cause::Released,
            ReleaseFor::Waiter => Cause::Fair { writer_left, passed_on: false, permits },
            ReleaseFor::NextWaiter => Cause::Fair { writer_left, passed_on: true, permits },
        }
    }

    /// Whether a phase of readers begins.
    pub(super) fn begins_phase(self, rules: &Rules) -> bool {
        matches!(self, Cause::WriterLeft | Cause::Fair { writer_left: true, .. }) && rules.hands_over()
    }

    /// The number of permits kept for the waiters.
    pub(super) fn kept(self) -> u32 {
        if let Cause::Fair { permits, .. } = self { permits } else { 0 }
    }

    /// Whether the first that can get in is given its hold, whatever the policy. `woken` is the head, if it has been woken before.
    pub(super) fn is_fair(self, rules: &Rules, woken: Option<&Standing>) -> bool {
        match self {
            Cause::Fair { passed_on: true, .. } => {
                !(rules.keeps_nothing_for_the_idle() && woken.is_some_and(Standing::is_idle))
            }
            Cause::Fair { .. } => true,
            _ => false,
        }
    }
}
