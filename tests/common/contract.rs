//! The contract of one key when calls are made one at a time: which request acquires it, which one waits, and which
//! one has been granted a hold that it has not taken yet.
//!
//! The model is written from the tables in the documentation of [`Fairness`], as a queue in a vector and a few
//! counters. It is exact: given what has happened so far, a call has exactly one possible outcome. Every test that
//! predicts outcomes uses this model, so each rule is stated here and nowhere else.

use keylatch::{Fairness, Status};

/// The kind of a request or of a hold. A mutex is modelled as a writer that never meets a reader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Want {
    Read,
    /// A read that passes all waiters. Its hold, and its place in the queue, are a reader's.
    Recursive,
    Upgradable,
    Write,
    /// This many permits.
    Permits(u32),
    /// The upgrade of an upgradable reader to a writer.
    Upgrade,
}

use Want::{Permits, Read, Recursive, Upgradable, Upgrade, Write};

impl Want {
    /// Returns the number of holders or permits that a hold of this kind counts as.
    pub fn weight(self) -> usize {
        if let Permits(n) = self { n as usize } else { 1 }
    }

    /// Returns whether both are of the same kind, whatever the number of permits.
    pub fn is_like(self, other: Want) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// Identifies a request, from its first poll to its end.
pub type Id = u32;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    pub fairness: Fairness,
    /// The number of permits of a semaphore.
    pub permits: usize,
}

/// The holds on a key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Holds {
    pub readers: usize,
    pub upgradable: usize,
    pub writers: usize,
    pub permits: usize,
}

impl Holds {
    pub fn of(&mut self, held: Want) -> &mut usize {
        match held {
            Read | Recursive => &mut self.readers,
            Upgradable => &mut self.upgradable,
            Write | Upgrade => &mut self.writers,
            Permits(_) => &mut self.permits,
        }
    }

    fn admit(&self, want: Want, permits: usize) -> bool {
        match want {
            Read | Recursive => self.writers == 0,
            Upgradable => self.writers + self.upgradable == 0,
            Write => self.writers + self.upgradable + self.readers == 0,
            Upgrade => self.upgradable == 1 && self.readers == 0,
            // A request for more than the limit gets in when it is alone.
            Permits(n) => self.permits + n as usize <= permits || self.permits == 0 && permits > 0,
        }
    }

    fn enter(&mut self, want: Want) {
        *self.of(want) += want.weight();
        if want == Upgrade {
            self.upgradable -= 1;
        }
    }

    /// Returns whether all of these may be held at once.
    pub fn are_compatible(&self, permits: usize) -> bool {
        let Holds { readers, upgradable, writers, permits: held } = *self;
        held <= permits && writers + upgradable <= 1 && (writers == 0 || readers == 0)
    }
}

/// The counts in a status.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Readers, upgradable readers, writers, permits.
    pub holders: [usize; 4],
    /// The waiters: readers, upgradable readers, writers, requests for permits, upgrades.
    pub waiters: [usize; 5],
}

impl From<Status> for Seen {
    fn from(status: Status) -> Seen {
        Seen {
            holders: [status.readers(), status.upgradable(), status.writers(), status.permits()],
            waiters: [
                status.waiting_readers(),
                status.waiting_upgradable(),
                status.waiting_writers(),
                status.waiting_permits(),
                status.waiting_upgrades(),
            ],
        }
    }
}

/// A waiting task or thread. (The spinning of a thread is modelled as a new attempt at each release.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Waiter {
    pub id: Id,
    pub want: Want,
    pub priority: u8,
    /// The number of requests with a priority that had come before this waiter.
    came: u64,
    /// Whether the waiter is a thread: a woken thread always runs again, but a woken task may never be polled.
    is_thread: bool,
    /// Whether the waiter has been woken since its last attempt.
    pub woken: bool,
    /// The number of attempts that failed after a wake-up.
    failed_wakeups: u32,
    /// The number of requests that passed the waiter while it was at the head: after it was woken, and before that.
    passed_woken: u32,
    passed_asleep: u32,
    /// Whether an upgradable reader that arrived later has acquired the key in a readers' phase.
    passed_in_phase: bool,
}

impl Waiter {
    fn new(id: Id, want: Want, priority: u8, came: u64) -> Self {
        let (is_thread, woken, failed_wakeups) = (false, false, 0);
        let (passed_woken, passed_asleep, passed_in_phase) = (0, 0, false);
        Waiter {
            id,
            want,
            priority,
            came,
            is_thread,
            woken,
            failed_wakeups,
            passed_woken,
            passed_asleep,
            passed_in_phase,
        }
    }

    /// Returns whether the waiter has been woken and may never run.
    fn is_idle(&self) -> bool {
        self.woken && !self.is_thread
    }
}

/// Under `Adaptive` and `Bounded`, a waiter is handed its hold after this many failed attempts.
const MAX_FAILED_WAKEUPS: u32 = 4;

/// Under the default policy, up to this many requests pass a head that the current holders keep out.
const PASSES_OF_A_SLEEPING_HEAD: u32 = 16;

/// A waiter rises by one level after this many requests with a priority.
const RISE: u64 = 16;

/// The request for which a released hold is meant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum For {
    Anyone,
    /// For the first waiter that the other holds allow: the hold was released by `unlock_fair`.
    Waiter,
    /// For the next waiter: a request that had been handed the hold gave it up.
    NextWaiter,
}

/// The event after which the waiters are examined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// A waiter has acquired the key or, except in the case below, given up.
    Settled,
    /// A hold that is not a writer's was released, the number of permits was set, or a waiter gave up that had been
    /// woken or, in a semaphore, passed while it slept.
    Released,
    WriterLeft,
}

impl Cause {
    fn of_leaving(held: Want) -> Cause {
        if matches!(held, Write | Upgrade) { Cause::WriterLeft } else { Cause::Released }
    }
}

/// The state of a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub rules: Rules,
    pub holds: Holds,
    /// In order of priority and arrival, except that an upgrade comes first.
    pub queue: Vec<Waiter>,
    /// The sleeping waiters. A waiter whose attempt failed goes to the front; in a queue with priorities, to its place
    /// among those whose attempts failed.
    asleep: Vec<Id>,
    /// The waiters that are handed their hold when it becomes free, at any position in the queue. In a queue with
    /// priorities they are in the order of the queue.
    handed: Vec<Id>,
    /// The number of requests with a priority that have come while there were waiters.
    urgent: u64,
    /// Whether a request with a priority has come to this queue.
    pub has_priorities: bool,
    /// Whether the key has its own number of permits.
    pub is_limited: bool,
    /// The requests that have been granted a hold and have not taken it yet, ordered by id.
    pub granted: Vec<Id>,
}

impl Key {
    pub fn new(rules: Rules) -> Self {
        let (asleep, handed, granted) = Default::default();
        let (holds, queue, urgent, has_priorities, is_limited) = Default::default();
        Key { rules, holds, queue, asleep, handed, granted, urgent, has_priorities, is_limited }
    }

    /// Sets the number of permits, which is either the key's own or the default.
    pub fn set_permits(&mut self, permits: usize, own: bool) {
        // If there are no waiters, the queue begins or ends here.
        self.has_priorities &= !self.queue.is_empty() || self.is_limited && own;
        self.is_limited = own;
        self.rules.permits = permits;
        self.settle(Cause::Released, For::Anyone);
    }

    /// Returns whether the current holders admit this request, regardless of waiters.
    fn admits(&self, want: Want) -> bool {
        self.holds.admit(want, self.rules.permits)
    }

    /// Returns whether a request of this kind, if it were let in, would keep out the head of the queue.
    pub fn keeps_out_the_head(&self, want: Want) -> bool {
        match (want, self.queue[0].want) {
            (Read, Read | Upgradable) | (Upgradable, Read) => false,
            (Permits(n), Permits(head)) => self.holds.permits + (n + head) as usize > self.rules.permits,
            _ => true,
        }
    }

    /// Returns the place in the queue of a request that arrives now: before the waiters of a lower priority, except
    /// those that have risen to its level.
    fn place_of_newcomer(&self, priority: u8) -> usize {
        let passes = |waiter: &Waiter| {
            let levels = u64::from(priority.saturating_sub(waiter.priority));
            waiter.want != Upgrade && self.urgent - waiter.came < RISE * levels
        };
        self.queue.iter().position(passes).unwrap_or(self.queue.len())
    }

    /// Returns whether a request's priority lets it in past the waiters: the holds admit the request, and none of the
    /// waiters before its place keeps it out.
    pub fn goes_first(&self, want: Want, priority: u8) -> bool {
        let place = self.place_of_newcomer(priority);
        if priority == 0 || self.queue.is_empty() || self.queue[0].want == Upgrade || !self.admits(want) {
            return false;
        }
        let mut holds = self.holds;
        let mut lets_a_reader_pass = |waiter: &Waiter| match waiter.want {
            Read => true,
            Upgradable if self.rules.fairness == Fairness::Fifo => {
                let fits = holds.admit(Upgradable, 0);
                holds.enter(Upgradable);
                fits
            }
            Upgradable => true,
            _ => false,
        };
        place == 0 || want == Read && self.queue[..place].iter().all(&mut lets_a_reader_pass)
    }

    fn count_arrival(&mut self, priority: u8) {
        self.urgent += u64::from(priority > 0);
        self.has_priorities |= priority > 0;
    }

    /// Returns whether the policy hands the key over to waiters whose attempts have failed too often.
    fn hands_over(&self) -> bool {
        matches!(self.rules.fairness, Fairness::Adaptive | Fairness::Bounded(_))
    }

    fn lets_pass(&self, head: &Waiter) -> bool {
        match self.rules.fairness {
            Fairness::Fifo => false,
            Fairness::Barging => true,
            Fairness::Bounded(bound) => head.passed_asleep + head.passed_woken < u32::from(bound),
            Fairness::Adaptive => head.woken || head.passed_asleep < PASSES_OF_A_SLEEPING_HEAD,
            other => panic!("a contract of {other:?} is not written"),
        }
    }

    /// Returns whether an admissible waiter is granted its hold, as opposed to being woken to try.
    fn grants(&self, waiter: &Waiter) -> bool {
        let due = waiter.failed_wakeups >= MAX_FAILED_WAKEUPS;
        match self.rules.fairness {
            Fairness::Fifo => true,
            Fairness::Barging => false,
            Fairness::Bounded(_) if matches!(waiter.want, Read | Upgrade) => true,
            Fairness::Bounded(bound) => due || waiter.passed_asleep + waiter.passed_woken >= u32::from(bound),
            Fairness::Adaptive => due || waiter.want == Read,
            other => panic!("a contract of {other:?} is not written"),
        }
    }

    /// Returns whether the policy lets in a request that is not at the head and that the holds admit. If so, counts the
    /// bypass.
    fn pass(&mut self, want: Want) -> bool {
        if self.queue.is_empty() || matches!(want, Upgrade | Recursive) {
            return true;
        }
        if !self.hands_over() {
            return self.rules.fairness == Fairness::Barging;
        }
        let writer_waits = self.queue.iter().any(|waiter| matches!(waiter.want, Write | Upgrade));
        let keeps_out_the_head = writer_waits || self.keeps_out_the_head(want);
        // While an upgrade is at the head, the first waiter in the queue behind it is passed, too. While the head has
        // been woken but not polled, and so keeps nobody out, readers pass the first sleeping writer, too; and
        // requests for permits pass the next waiter for permits if the current holders keep that one out.
        let second = match want {
            _ if self.queue[0].want == Upgrade => (self.queue.len() > 1).then_some(1),
            Read | Upgradable if self.queue[0].is_idle() => self.first_asleep(Write),
            Permits(_) if self.queue[0].is_idle() => {
                let due = self.handed.first().map(|&due| self.place(due));
                due.or_else(|| self.first_asleep(want)).filter(|&next| !self.admits(self.queue[next].want))
            }
            _ => None,
        };
        let passed = [keeps_out_the_head.then_some(0), second].into_iter().flatten();
        let may = passed.clone().all(|at| self.lets_pass(&self.queue[at]));
        for at in passed.filter(|_| may) {
            let waiter = &mut self.queue[at];
            *(if waiter.woken { &mut waiter.passed_woken } else { &mut waiter.passed_asleep }) += 1;
        }
        may
    }

    /// Makes an attempt that takes no place in the queue.
    pub fn attempt(&mut self, want: Want) -> bool {
        let gets_in = self.admits(want) && self.pass(want);
        if gets_in {
            self.holds.enter(want);
        }
        gets_in
    }

    /// Polls a request: it either acquires the key or has a place in the queue. Returns whether it acquired the key.
    pub fn poll(&mut self, id: Id, want: Want) -> bool {
        self.poll_with_priority(id, want, 0)
    }

    /// Polls a request that has a priority.
    pub fn poll_with_priority(&mut self, id: Id, want: Want, priority: u8) -> bool {
        if take(&mut self.granted, |&granted| granted == id).is_some() {
            return true;
        }
        let place = self.queue.iter().position(|waiter| waiter.id == id);
        // A recursive reader has no priority. Once it waits, it is a reader like any other.
        let priority = if want == Recursive { 0 } else { priority };
        let want = if place.is_some() && want == Recursive { Read } else { want };
        let goes_first = place.is_none() && self.goes_first(want, priority);
        if goes_first {
            self.count_arrival(priority);
        }
        if self.admits(want) && (place == Some(0) || goes_first || self.pass(want)) {
            self.holds.enter(want);
            if place.is_some() {
                self.take_out(id);
                self.settle(Cause::Settled, For::Anyone);
            }
            return true;
        }
        match place {
            None => {
                self.has_priorities &= !self.queue.is_empty() || self.is_limited;
                let at = if want == Upgrade { 0 } else { self.place_of_newcomer(priority) };
                let want = if want == Recursive { Read } else { want };
                self.queue.insert(at, Waiter::new(id, want, priority, self.urgent));
                self.count_arrival(priority);
                self.asleep.push(id);
            }
            Some(place) if self.queue[place].woken => {
                let waiter = &mut self.queue[place];
                waiter.woken = false;
                waiter.failed_wakeups += 1;
                if waiter.failed_wakeups >= MAX_FAILED_WAKEUPS
                    && matches!(want, Write | Upgradable | Permits(_))
                    && self.hands_over()
                {
                    let at = self.handed.iter().rposition(|&other| !self.has_priorities || self.place(other) < place);
                    self.handed.insert(at.map_or(0, |at| at + 1), id);
                } else {
                    let stays_behind = |&other: &Id| {
                        let at = self.place(other);
                        let waiter = &self.queue[at];
                        waiter.want.is_like(want) && !(self.has_priorities && waiter.failed_wakeups > 0 && at < place)
                    };
                    let at = self.asleep.iter().position(stays_behind).unwrap_or(self.asleep.len());
                    self.asleep.insert(at, id);
                }
            }
            Some(_) => {}
        }
        false
    }

    /// Marks the waiter with this id as a thread.
    pub fn mark_as_thread(&mut self, id: Id) {
        self.queue.iter_mut().filter(|waiter| waiter.id == id).for_each(|waiter| waiter.is_thread = true);
    }

    fn take_out(&mut self, id: Id) -> Option<Waiter> {
        self.asleep.retain(|&asleep| asleep != id);
        self.handed.retain(|&handed| handed != id);
        take(&mut self.queue, |waiter| waiter.id == id)
    }

    fn grant(&mut self, id: Id) {
        let waiter = self.take_out(id).expect("only a waiter is granted a hold");
        self.holds.enter(waiter.want);
        let at = self.granted.partition_point(|&granted| granted < id);
        self.granted.insert(at, id);
    }

    fn wake(&mut self, id: Id) {
        self.asleep.retain(|&asleep| asleep != id);
        self.queue.iter_mut().filter(|waiter| waiter.id == id).for_each(|waiter| waiter.woken = true);
    }

    fn place(&self, id: Id) -> usize {
        self.queue.iter().position(|waiter| waiter.id == id).expect("the request waits")
    }

    /// Returns the place of a sleeping waiter of this kind, whatever its number of permits. There are two candidates:
    /// of those whose attempts failed, the first in `asleep`; of those that have never been woken, the first in the
    /// queue. The candidate that comes first in the queue is chosen.
    fn first_asleep(&self, want: Want) -> Option<usize> {
        let places = self.asleep.iter().map(|&id| self.place(id));
        let mut like = places.filter(|&place| self.queue[place].want.is_like(want));
        let retries = |place: &usize| self.queue[*place].failed_wakeups > 0;
        let failed = like.clone().find(retries);
        let fresh = like.by_ref().filter(|place| !retries(place)).min();
        failed.into_iter().chain(fresh).min()
    }

    /// Grants holds to waiters, or wakes them, after `cause`.
    fn settle(&mut self, cause: Cause, whom: For) {
        self.settle_after(cause, whom, 1);
    }

    /// Like `settle`, after the release of `given_up` holds or permits.
    fn settle_after(&mut self, cause: Cause, whom: For, given_up: usize) {
        let Some(&head) = self.queue.first() else { return };
        let keeps_nothing = self.rules.fairness == Fairness::Adaptive && head.is_idle();
        let mut fair = whom == For::Waiter || whom == For::NextWaiter && !keeps_nothing;
        if cause == Cause::WriterLeft && self.hands_over() {
            // The readers' phase. It includes at most one upgradable reader, the first one, and lets it pass a writer
            // that arrived earlier only once. Under the default policy it needs at least one plain reader.
            // A reader does not pass a writer of a higher priority, unless its place is before the writer's.
            let rival = self.queue.iter().position(|waiter| waiter.want == Write);
            let joins =
                |at: usize| rival.is_none_or(|to| at < to || self.queue[at].priority >= self.queue[to].priority);
            let places = 0..self.queue.len();
            let readers = places.filter(|&at| self.queue[at].want == Read && joins(at)).map(|at| self.queue[at].id);
            let readers = readers.collect::<Vec<_>>();
            let alone = readers.is_empty() && self.rules.fairness == Fairness::Adaptive;
            if let Some(at) = self.queue.iter().position(|waiter| waiter.want == Upgradable) {
                if self.admits(Upgradable) && !alone && joins(at) {
                    let writer = self.queue[..at].iter_mut().find(|waiter| waiter.want == Write);
                    if writer.is_none_or(|writer| !std::mem::replace(&mut writer.passed_in_phase, true)) {
                        self.grant(self.queue[at].id);
                    }
                }
            }
            readers.into_iter().for_each(|reader| self.grant(reader));
        }
        // There is one exception to the policy: after a fair release, or when a grant was given up, the first waiter is
        // granted its hold. In a semaphore, waiters are granted as many permits as were released.
        let mut others_come = false;
        if let Permits(_) = head.want {
            // Permits that were released by `unlock_fair`, or that a request had been handed and gave up, are reserved
            // for waiters. Under the default policy, those that were given up are not reserved for a head that has been
            // woken and not polled.
            let mut kept = if whom == For::Anyone { 0 } else { given_up };
            while let Some(&first) = self.queue.first().filter(|first| self.admits(first.want)) {
                let keeps_nothing =
                    self.rules.fairness == Fairness::Adaptive && whom == For::NextWaiter && first.is_idle();
                if kept > 0 && !keeps_nothing || self.grants(&first) {
                    kept = kept.saturating_sub(first.want.weight());
                    self.grant(first.id);
                    continue;
                }
                self.wake(first.id);
                others_come = self.hand_over();
                // More waiters are woken, as long as those that have been woken leave enough permits over.
                while let Some(place) = self.first_asleep(head.want) {
                    let woken: usize =
                        self.queue.iter().filter(|waiter| waiter.woken).map(|waiter| waiter.want.weight()).sum();
                    if self.holds.permits + woken + self.queue[place].want.weight() > self.rules.permits {
                        break;
                    }
                    self.wake(self.queue[place].id);
                    others_come = true;
                }
                break;
            }
        } else {
            for due in self.due() {
                if std::mem::take(&mut fair) || self.grants(&due) {
                    self.grant(due.id);
                } else {
                    self.wake(due.id);
                }
            }
        }
        let left = self.holds;
        others_come |= head.want != Upgrade && self.hand_over();
        if head.woken && cause != Cause::Settled && self.hands_over() {
            self.wake_next(head.id, left, others_come);
        }
    }

    /// Grants free holds to the waiters in `handed`, whose attempts have failed [`MAX_FAILED_WAKEUPS`] times. They are
    /// treated like newcomers: the policy must let them pass the waiters before them.
    fn hand_over(&mut self) -> bool {
        let before = self.holds;
        for next in self.handed.clone() {
            let want = self.queue[self.place(next)].want;
            if self.admits(want) && self.pass(want) {
                self.grant(next);
            } else if !matches!(want, Permits(_)) || self.holds.permits >= self.rules.permits {
                // No more holds are free. (If permits are left, they may be enough for the next waiter.)
                break;
            }
        }
        self.holds != before
    }

    /// Wakes the next waiter, too, if the head was woken before this release and has not run since, because the head
    /// may never run. Not every release does so if other waiters are already about to run.
    fn wake_next(&mut self, head: Id, left: Holds, others_come: bool) {
        let Some(head) = self.queue.iter().find(|waiter| waiter.id == head && waiter.woken) else { return };
        if others_come && (head.passed_woken == 0 || head.passed_woken % 4 != 0) {
            return;
        }
        let firsts = [Read, Upgradable, Write, Permits(1)].into_iter().filter_map(|want| self.first_asleep(want));
        if let Some(place) = firsts.filter(|&first| left.admit(self.queue[first].want, self.rules.permits)).min() {
            self.wake(self.queue[place].id);
        }
    }

    /// Returns the waiters that could acquire the key now, one after another, in queue order. Except under `Fifo`, an
    /// upgradable reader whose place is taken does not block those behind it. (For permits, returns only the head: the
    /// others are woken for the permits that woken waiters leave, at any position.)
    pub fn due(&self) -> Vec<Waiter> {
        let mut holds = self.holds;
        let mut due = vec![];
        for waiter in &self.queue {
            if holds.admit(waiter.want, self.rules.permits) {
                holds.enter(waiter.want);
                due.push(*waiter);
                if matches!(waiter.want, Permits(_)) {
                    break;
                }
            } else if waiter.want != Upgradable || self.rules.fairness == Fairness::Fifo {
                break;
            }
        }
        due
    }

    pub fn release(&mut self, held: Want, whom: For) {
        *self.holds.of(held) -= held.weight();
        self.settle_after(Cause::of_leaving(held), whom, held.weight());
    }

    /// Replaces a hold by a weaker one.
    pub fn change(&mut self, from: Want, to: Want) {
        *self.holds.of(from) -= 1;
        *self.holds.of(to) += 1;
        self.settle(Cause::of_leaving(from), For::Anyone);
    }

    /// Gives up a place in the queue. Returns `None` if the request had none, otherwise whether its hold had been
    /// granted already.
    pub fn leave_queue(&mut self, id: Id) -> Option<bool> {
        if take(&mut self.granted, |&granted| granted == id).is_some() {
            return Some(true);
        }
        let waiter = self.take_out(id)?;
        // The waiter may have been woken instead of another one, or requests for permits may have queued because of it.
        let kept_out = matches!(waiter.want, Permits(_)) && waiter.passed_asleep > 0;
        self.settle(if waiter.woken || kept_out { Cause::Released } else { Cause::Settled }, For::Anyone);
        Some(false)
    }

    /// Drops a request for a hold. A hold that was reserved for it goes to the next waiter, not to the first
    /// newcomer.
    pub fn cancel(&mut self, id: Id, want: Want) {
        if self.leave_queue(id) == Some(true) {
            self.release(want, For::NextWaiter);
        }
    }

    /// Returns the hold that an upgradable reader has after its upgrade left the queue with this outcome. Also returns
    /// the recipient for which that hold is released.
    pub fn held_after_upgrade(left: Option<bool>) -> (Want, For) {
        if left == Some(true) { (Write, For::NextWaiter) } else { (Upgradable, For::Anyone) }
    }

    pub fn waiting(&self, want: Want) -> usize {
        self.queue.iter().filter(|waiter| waiter.want.is_like(want)).count()
    }

    pub fn seen(&self) -> Seen {
        let Holds { readers, upgradable, writers, permits } = self.holds;
        let waiters = [Read, Upgradable, Write, Permits(1), Upgrade].map(|want| self.waiting(want));
        Seen { holders: [readers, upgradable, writers, permits], waiters }
    }
}

/// Removes and returns the first matching element.
pub fn take<T>(from: &mut Vec<T>, is_it: impl FnMut(&T) -> bool) -> Option<T> {
    from.iter().position(is_it).map(|at| from.remove(at))
}
