//! What the contract says of one key when calls come one at a time: who gets in, who waits, and who holds without having
//! come for it yet.
//!
//! It is written from the tables in the documentation of [`Fairness`], as a queue in a vector and a few numbers. It is exact:
//! given what has happened so far, there is one outcome that a call may have. Every test that predicts outcomes goes by it,
//! so each rule stands here and nowhere else.

use keylatch::{Fairness, Status};

/// What a request asks for, or what a holder has. A mutex is a writer that never meets a reader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Want {
    Read,
    Upgradable,
    Write,
    /// So many permits.
    Permits(u32),
    /// By the upgradable reader, who becomes a writer.
    Upgrade,
}

use Want::{Permits, Read, Upgradable, Upgrade, Write};

impl Want {
    /// For how many holders, or permits, one that has this counts.
    pub fn weight(self) -> usize {
        if let Permits(n) = self { n as usize } else { 1 }
    }

    /// Whether both ask for the same thing, be it for more or fewer of it.
    pub fn is_like(self, other: Want) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// Names a request, from its first poll to its end.
pub type Id = u32;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    pub fairness: Fairness,
    /// For a semaphore.
    pub permits: usize,
}

/// Who holds a key.
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
            Read => &mut self.readers,
            Upgradable => &mut self.upgradable,
            Write | Upgrade => &mut self.writers,
            Permits(_) => &mut self.permits,
        }
    }

    fn admit(&self, want: Want, permits: usize) -> bool {
        match want {
            Read => self.writers == 0,
            Upgradable => self.writers + self.upgradable == 0,
            Write => self.writers + self.upgradable + self.readers == 0,
            Upgrade => self.upgradable == 1 && self.readers == 0,
            Permits(n) => self.permits + n as usize <= permits,
        }
    }

    fn enter(&mut self, want: Want) {
        *self.of(want) += want.weight();
        if want == Upgrade {
            self.upgradable -= 1;
        }
    }

    /// Whether all of these may hold at once.
    pub fn go_together(&self, permits: usize) -> bool {
        let Holds { readers, upgradable, writers, permits: held } = *self;
        held <= permits && writers + upgradable <= 1 && (writers == 0 || readers == 0)
    }
}

/// What a status says.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Readers, upgradable readers, writers, permits.
    pub holders: [usize; 4],
    /// The same, and upgrades.
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

/// A task that waits, or a thread. (That a thread looks for a while is as if it asked at each release.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Waiter {
    pub id: Id,
    pub want: Want,
    /// A thread that has been woken comes. A task may not.
    is_thread: bool,
    /// Whether it has been woken since it came last.
    pub woken: bool,
    /// How often it has come in vain after it had been woken.
    visits: u32,
    /// How many have got in before it while it stood at the head, and had been woken, or had not.
    passed_woken: u32,
    passed_asleep: u32,
    /// Whether an upgradable reader that came later has got in with a phase.
    passed_in_phase: bool,
}

impl Waiter {
    /// It has been woken, and may never come.
    fn is_idle(&self) -> bool {
        self.woken && !self.is_thread
    }
}

/// So many visits in vain, and a waiter is handed what it wants.
const VISITS: u32 = 4;

/// So many get in before a head that is kept out by those who hold, under the default policy.
const PASSES_OF_THE_ABSENT: u32 = 16;

/// For whom a hold is given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum For {
    Anybody,
    /// By `unlock_fair`.
    Waiter,
    /// By one that had been handed it, and gives up.
    NextWaiter,
}

/// Why those who wait are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// One of them has got in or given up.
    Settled,
    /// Somebody has released, but no writer.
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
    /// In order of arrival, but for an upgrade, which stands before all.
    pub queue: Vec<Waiter>,
    /// Those of them who sleep: who has come in vain goes before the others.
    asleep: Vec<Id>,
    /// Those of them who are handed what they want as soon as it is free, wherever they stand.
    handed: Vec<Id>,
    /// Those who hold, but have not come for it yet; in order of their names.
    pub granted: Vec<Id>,
}

impl Key {
    pub fn new(rules: Rules) -> Self {
        Key { rules, holds: Holds::default(), queue: vec![], asleep: vec![], handed: vec![], granted: vec![] }
    }

    /// Whether the holds admit this one, whoever waits.
    fn admits(&self, want: Want) -> bool {
        self.holds.admit(want, self.rules.permits)
    }

    /// Whether the one at the head of the queue is kept out if somebody gets in who wants this.
    pub fn keeps_out_the_head(&self, want: Want) -> bool {
        match (want, self.queue[0].want) {
            (Read, Read | Upgradable) | (Upgradable, Read) => false,
            (Permits(n), Permits(head)) => self.holds.permits + (n + head) as usize > self.rules.permits,
            _ => true,
        }
    }

    /// Whether the policy keeps a key for those who have waited for long.
    fn hands_over(&self) -> bool {
        matches!(self.rules.fairness, Fairness::Adaptive | Fairness::Bounded(_))
    }

    fn lets_pass(&self, head: &Waiter) -> bool {
        match self.rules.fairness {
            Fairness::Fifo => false,
            Fairness::Barging => true,
            Fairness::Bounded(bound) => head.passed_asleep + head.passed_woken < u32::from(bound),
            Fairness::Adaptive => head.woken || head.passed_asleep < PASSES_OF_THE_ABSENT,
            other => panic!("a contract of {other:?} is not written"),
        }
    }

    /// Whether a waiter that may get in is given its hold, or is woken to come for it.
    fn grants(&self, waiter: &Waiter) -> bool {
        let due = waiter.visits >= VISITS;
        match self.rules.fairness {
            Fairness::Fifo => true,
            Fairness::Barging => false,
            Fairness::Bounded(_) if matches!(waiter.want, Read | Upgrade) => true,
            Fairness::Bounded(bound) => due || waiter.passed_asleep + waiter.passed_woken >= u32::from(bound),
            Fairness::Adaptive => due || waiter.want == Read,
            other => panic!("a contract of {other:?} is not written"),
        }
    }

    /// Somebody asks who is not at the head, and whom the holds admit: does the policy let it in? Counts it if so.
    fn pass(&mut self, want: Want) -> bool {
        if self.queue.is_empty() || want == Upgrade {
            return true;
        }
        if !self.hands_over() {
            return self.rules.fairness == Fairness::Barging;
        }
        let writer_waits = self.queue.iter().any(|waiter| matches!(waiter.want, Write | Upgrade));
        let keeps_out_the_head = writer_waits || self.keeps_out_the_head(want);
        // While an upgrade stands before it, the first in the queue is passed as well. While the head does not come, and so keeps
        // nobody out, so is the first writer that sleeps, by readers; and the next for permits, if those who hold keep it out.
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

    /// Asks without a place in the queue.
    pub fn attempt(&mut self, want: Want) -> bool {
        let gets_in = self.admits(want) && self.pass(want);
        if gets_in {
            self.holds.enter(want);
        }
        gets_in
    }

    /// Polls a request: it gets in, or has its place in the queue.
    pub fn poll(&mut self, id: Id, want: Want) -> bool {
        if take(&mut self.granted, |&granted| granted == id).is_some() {
            return true;
        }
        let place = self.queue.iter().position(|waiter| waiter.id == id);
        if self.admits(want) && (place == Some(0) || self.pass(want)) {
            self.holds.enter(want);
            if place.is_some() {
                self.take_out(id);
                self.settle(Cause::Settled, For::Anybody);
            }
            return true;
        }
        match place {
            None => {
                let at = if want == Upgrade { 0 } else { self.queue.len() };
                let passed_in_phase = false;
                let (passed_woken, passed_asleep) = (0, 0);
                let (is_thread, woken, visits) = (false, false, 0);
                let waiter =
                    Waiter { id, want, is_thread, woken, visits, passed_woken, passed_asleep, passed_in_phase };
                self.queue.insert(at, waiter);
                self.asleep.push(id);
            }
            Some(place) if self.queue[place].woken => {
                let waiter = &mut self.queue[place];
                waiter.woken = false;
                waiter.visits += 1;
                if waiter.visits >= VISITS && matches!(want, Write | Upgradable | Permits(_)) && self.hands_over() {
                    self.handed.push(id);
                } else {
                    self.asleep.insert(0, id);
                }
            }
            Some(_) => {}
        }
        false
    }

    /// The waiter with this name is a thread.
    pub fn is_a_thread(&mut self, id: Id) {
        self.queue.iter_mut().filter(|waiter| waiter.id == id).for_each(|waiter| waiter.is_thread = true);
    }

    fn take_out(&mut self, id: Id) -> Option<Waiter> {
        self.asleep.retain(|&asleep| asleep != id);
        self.handed.retain(|&handed| handed != id);
        take(&mut self.queue, |waiter| waiter.id == id)
    }

    fn grant(&mut self, id: Id) {
        let waiter = self.take_out(id).expect("whoever is let in has waited");
        self.holds.enter(waiter.want);
        let at = self.granted.partition_point(|&granted| granted < id);
        self.granted.insert(at, id);
    }

    fn wake(&mut self, id: Id) {
        self.asleep.retain(|&asleep| asleep != id);
        self.queue.iter_mut().filter(|waiter| waiter.id == id).for_each(|waiter| waiter.woken = true);
    }

    fn place(&self, id: Id) -> usize {
        self.queue.iter().position(|waiter| waiter.id == id).expect("it waits")
    }

    /// The first of those that sleep and want this, or more or fewer of it.
    fn first_asleep(&self, want: Want) -> Option<usize> {
        self.asleep.iter().map(|&id| self.place(id)).find(|&place| self.queue[place].want.is_like(want))
    }

    /// Lets in whoever gets in without being polled.
    fn settle(&mut self, cause: Cause, whom: For) {
        self.settle_after(cause, whom, 1);
    }

    /// So many were given up.
    fn settle_after(&mut self, cause: Cause, whom: For, given_up: usize) {
        let Some(&head) = self.queue.first() else { return };
        let keeps_nothing = self.rules.fairness == Fairness::Adaptive && head.is_idle();
        let mut fair = whom == For::Waiter || whom == For::NextWaiter && !keeps_nothing;
        if cause == Cause::WriterLeft && self.hands_over() {
            // The readers' phase. One upgradable reader, the first; but before a writer that came earlier only once. By default
            // none without readers.
            let alone = self.waiting(Read) == 0 && self.rules.fairness == Fairness::Adaptive;
            if let Some(at) = self.queue.iter().position(|waiter| waiter.want == Upgradable) {
                if self.admits(Upgradable) && !alone {
                    let writer = self.queue[..at].iter_mut().find(|waiter| waiter.want == Write);
                    if writer.is_none_or(|writer| !std::mem::replace(&mut writer.passed_in_phase, true)) {
                        self.grant(self.queue[at].id);
                    }
                }
            }
            while let Some(reader) = self.queue.iter().find(|waiter| waiter.want == Read) {
                self.grant(reader.id);
            }
        }
        // The first grant of a fair release is the one exception to what the policy says.
        let mut others_come = false;
        if let Permits(_) = head.want {
            // Of permits all that were given up are for those who wait. By default none are for one that does not come.
            let mut kept = if whom == For::Anybody { 0 } else { given_up };
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
                // The others are woken for what those leave that have been woken already.
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

    /// Hands what is free to those who have come in vain too often, as if they asked for it now.
    fn hand_over(&mut self) -> bool {
        let before = self.holds;
        for next in self.handed.clone() {
            let want = self.queue[self.place(next)].want;
            if self.admits(want) && self.pass(want) {
                self.grant(next);
            } else if !matches!(want, Permits(_)) || self.holds.permits == self.rules.permits {
                break; // of permits, those that are left may be enough for the next
            }
        }
        self.holds != before
    }

    /// The head had been woken before this release, and has not come: it may never come, so the next is woken as well; not by
    /// every release if others are on their way.
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

    /// Those who could get in now, one after another, in the order of the queue. An upgradable reader whose place is taken
    /// does not stand in the way, unless order is all that counts. (For permits the head alone: the others are woken for what those
    /// leave who have been woken, wherever these stand.)
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

    /// A hold becomes a weaker one.
    pub fn change(&mut self, from: Want, to: Want) {
        *self.holds.of(from) -= 1;
        *self.holds.of(to) += 1;
        self.settle(Cause::of_leaving(from), For::Anybody);
    }

    /// Gives up a place in the queue. `None` if there was none, else whether what was wanted had been granted already.
    pub fn leave_queue(&mut self, id: Id) -> Option<bool> {
        if take(&mut self.granted, |&granted| granted == id).is_some() {
            return Some(true);
        }
        let waiter = self.take_out(id)?;
        // It may have been woken in the place of others, or those for permits may have queued because of it.
        let kept_out = matches!(waiter.want, Permits(_)) && waiter.passed_asleep > 0;
        self.settle(if waiter.woken || kept_out { Cause::Released } else { Cause::Settled }, For::Anybody);
        Some(false)
    }

    /// A request for a hold is dropped. What was reserved for it goes to the next, not to whoever comes first.
    pub fn cancel(&mut self, id: Id, want: Want) {
        if self.leave_queue(id) == Some(true) {
            self.release(want, For::NextWaiter);
        }
    }

    /// What the upgradable reader has whose upgrade left the queue with this outcome; and for whom it gives that up, as any
    /// request that had been granted.
    pub fn held_after_upgrade(left: Option<bool>) -> (Want, For) {
        if left == Some(true) { (Write, For::NextWaiter) } else { (Upgradable, For::Anybody) }
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

/// Takes the first such element out.
pub fn take<T>(from: &mut Vec<T>, is_it: impl FnMut(&T) -> bool) -> Option<T> {
    from.iter().position(is_it).map(|at| from.remove(at))
}
