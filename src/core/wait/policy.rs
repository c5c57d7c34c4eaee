//! The rules of the policies, and every number in them: how many times a waiter may be passed, and when it must be
//! granted its hold.
//!
//! Nothing here knows of queues: a [`Standing`] is the history of one waiter. No clock is involved.

use super::word::{Access, CountKind};
use crate::fairness::Fairness;

/// The rules of a queue. They are the same for all keys of a table, except that a key can have a limit of permits of
/// its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    pub(crate) fairness: Fairness,
    pub(crate) counted: CountKind,
}

/// The kind of a waiter, and what it does while it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    /// A task: it may poll soon after it is woken, late, or never.
    Task,
    /// A thread that spins on a core, and notices a hand-off at once.
    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for threads that block
    SpinningThread,
    /// A thread that sleeps, or is about to. It always polls after it is woken.
    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for threads that block
    SleepingThread,
}

/// The history of a waiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) state: WaitState,
    pub(super) presence: Presence,
    /// The number of times that the waiter was woken and did not get the hold.
    failed_wakeups: u8,
    /// The numbers of bypasses that this waiter has counted: while it was asleep, and while it was woken.
    passed: [u16; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitState {
    /// The waiter is in the queue, and has not been woken since its last poll.
    Asleep,
    /// The waiter is in the queue, and has been woken: the key was left open for it.
    Woken,
    /// The waiter has been granted its hold; it is in no queue.
    Granted,
}

/// The number of failed wake-ups after which a waiter takes hand-offs. This bounds the cost of wake-ups, and prevents
/// starvation by quicker requests.
const MAX_FAILED_WAKEUPS: u8 = 4;

/// The number of later requests that, under `Adaptive`, may pass a head that the holders keep out, and that therefore
/// has not been woken. Without a bound, it might never get in: overlapping readers could keep it out for ever.
const PASSES_OF_A_SLEEPER: u16 = 16;

/// The number of later requests that, under `Adaptive`, may pass a thread at the head that has been woken. A thread
/// always runs again, so this number is reached only if it does not get a core for a long time.
const PASSES_OF_A_THREAD: u16 = 1024;

/// The number of passes after which one more sleeping waiter is woken, while a woken head has not run yet.
const PASSES_TO_WAKE_ONE_MORE: u16 = 4;

impl Standing {
    pub(super) fn new(presence: Presence) -> Self {
        Standing { state: WaitState::Asleep, presence, failed_wakeups: 0, passed: [0; 2] }
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
    pub(super) fn is_spinning(&self) -> bool {
        self.presence == Presence::SpinningThread
    }

    fn is_thread(&self) -> bool {
        self.presence != Presence::Task
    }

    /// Returns whether this is a task that has been woken and may never poll.
    pub(super) fn is_idle(&self) -> bool {
        self.is_woken() && !self.is_thread()
    }

    /// Returns whether the waiter was woken before without getting in.
    pub(super) fn has_retried(&self) -> bool {
        self.failed_wakeups > 0
    }

    /// Records a poll that failed, so the waiter stays in the queue.
    pub(super) fn stays(&mut self, presence: Presence) {
        if self.is_woken() {
            self.failed_wakeups = self.failed_wakeups.saturating_add(1);
        }
        self.state = WaitState::Asleep;
        self.presence = presence;
    }

    /// Records that a later request passes the waiter.
    pub(super) fn is_passed(&mut self) {
        let passed = &mut self.passed[usize::from(self.is_woken())];
        *passed = passed.wrapping_add(1); // wraps for a task that is passed without a bound
    }

    /// Returns whether a later request passed the waiter while it was asleep. If so, further requests may have queued
    /// because they were not allowed to pass it.
    pub(super) fn was_passed_asleep(&self) -> bool {
        let [absent, _] = self.passed;
        absent > 0
    }

    /// Returns whether the waiter is granted a freed hold at once, before any newcomer.
    #[inline]
    pub(super) fn takes_hand_off(&self) -> bool {
        self.is_spinning() || self.failed_wakeups >= MAX_FAILED_WAKEUPS
    }

    /// Returns whether a release that finds this head already woken wakes the next waiter, too.
    ///
    /// A task may never poll, and the waiters behind it must not depend on it. But a thread does poll, and so do
    /// waiters that have just been admitted. In those cases it is enough to wake another waiter now and then.
    pub(super) fn lets_wake_the_next(&self, others_come: bool) -> bool {
        let [_, passed] = self.passed;
        !(self.is_thread() || others_come) || passed > 0 && passed % PASSES_TO_WAKE_ONE_MORE == 0
    }
}

impl Rules {
    /// Returns the number of permits; 0 if the rules are not those of a semaphore.
    #[inline]
    pub(crate) fn limit(&self) -> usize {
        match self.counted {
            CountKind::Readers => 0,
            CountKind::Permits(limit) => limit,
        }
    }

    /// Returns whether a waiter at the head that may get in is granted its hold. (This does not apply to readers, which
    /// are granted theirs unless the policy is `Barging`.)
    #[inline]
    pub(super) fn grants(&self, standing: &Standing) -> bool {
        let [absent, woken] = standing.passed;
        match self.fairness {
            Fairness::Fifo => true,
            Fairness::Barging => false,
            Fairness::Bounded(bound) => {
                standing.takes_hand_off() || u32::from(absent) + u32::from(woken) >= u32::from(bound)
            }
            Fairness::Adaptive => standing.takes_hand_off() || standing.is_thread() && woken >= PASSES_OF_A_THREAD,
        }
    }

    /// Returns whether a later request may pass this waiter.
    #[inline]
    pub(super) fn lets_pass(&self, standing: &Standing) -> bool {
        let [absent, woken] = standing.passed;
        match self.fairness {
            Fairness::Fifo => false,
            Fairness::Barging => true,
            Fairness::Bounded(bound) => u32::from(absent) + u32::from(woken) < u32::from(bound),
            Fairness::Adaptive if !standing.is_woken() => absent < PASSES_OF_A_SLEEPER,
            Fairness::Adaptive => !standing.is_thread() || woken < PASSES_OF_A_THREAD,
        }
    }

    /// Returns whether the policy [hands over](Standing::takes_hand_off) free holds at any position in the queue. Under
    /// the same policies a departing writer begins a readers' phase.
    #[inline]
    pub(crate) fn hands_over(&self) -> bool {
        matches!(self.fairness, Fairness::Adaptive | Fairness::Bounded(_))
    }

    /// Returns whether the policy avoids, where possible, reserving a hold for a task that may never poll.
    #[inline]
    pub(crate) fn keeps_nothing_for_the_idle(&self) -> bool {
        self.fairness == Fairness::Adaptive
    }

    /// Returns whether a waiting upgrade is granted its hold when the last reader has left.
    #[inline]
    pub(super) fn grants_upgrade(&self, standing: &Standing) -> bool {
        matches!(self.fairness, Fairness::Bounded(_)) || self.grants(standing)
    }
}

/// The recipient of a released hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReleaseFor {
    /// The waiter to which the policy grants the hold; if there is none, the first request to come.
    Anybody,
    /// A waiter: no newcomer gets in before it.
    Waiter,
    /// The next waiter, because a waiter that had been granted the hold gave it up. (One exception: under `Adaptive`,
    /// if the head is a task that was woken and has not polled since, nothing is reserved, and this is like `Anybody`.)
    NextWaiter,
}

/// The reason why [`Queues::admit`](super::queue::Queues::admit) is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A waiter entered, or gave up.
    QueueChanged,
    /// A hold that is not exclusive was released or weakened, the limit of permits was set, or a waiter gave up after
    /// it had been woken in place of others, or had kept others out behind an idle head.
    Released,
    /// An exclusive hold was released or weakened.
    WriterLeft,
    /// A hold was released for waiters: the first that can get in must get in before any newcomer, with the exception
    /// of [`ReleaseFor::NextWaiter`]. If permits were released, this applies to the first waiters in order, for as many
    /// permits.
    Fair { writer_left: bool, passed_on: bool, permits: u32 },
}

impl Cause {
    /// Returns the cause for a hold that is released, or becomes a weaker one.
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

    /// Returns whether a readers' phase begins.
    pub(super) fn begins_phase(self, rules: &Rules) -> bool {
        matches!(self, Cause::WriterLeft | Cause::Fair { writer_left: true, .. }) && rules.hands_over()
    }

    /// Returns the number of permits kept for the waiters.
    pub(super) fn kept(self) -> u32 {
        if let Cause::Fair { permits, .. } = self { permits } else { 0 }
    }

    /// Returns whether the first waiter that can get in is granted its hold under every policy. `woken` is the head, if
    /// it has been woken before.
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
