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
    Permit,
    /// By the upgradable reader, who becomes a writer.
    Upgrade,
}

use Want::{Permit, Read, Upgradable, Upgrade, Write};

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
            Permit => &mut self.permits,
        }
    }

    fn admit(&self, want: Want, permits: usize) -> bool {
        match want {
            Read => self.writers == 0,
            Upgradable => self.writers + self.upgradable == 0,
            Write => self.writers + self.upgradable + self.readers == 0,
            Upgrade => self.upgradable == 1 && self.readers == 0,
            Permit => self.permits < permits,
        }
    }

    fn enter(&mut self, want: Want) {
        *self.of(want) += 1;
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

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Waiter {
    pub id: Id,
    pub want: Want,
    /// How many have got in before it while it stood at the head.
    passed: u32,
    /// Whether an upgradable reader that came later has got in with a phase.
    passed_in_phase: bool,
}

/// The state of a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub rules: Rules,
    pub holds: Holds,
    /// In order of arrival, but for an upgrade, which stands before all.
    pub queue: Vec<Waiter>,
    /// Those who hold, but have not come for it yet; in order of their names.
    pub granted: Vec<Id>,
}

impl Key {
    pub fn new(rules: Rules) -> Self {
        Key { rules, holds: Holds::default(), queue: vec![], granted: vec![] }
    }

    /// Whether the holds admit this one, whoever waits.
    fn admits(&self, want: Want) -> bool {
        self.holds.admit(want, self.rules.permits)
    }

    /// Whether the one at the head of the queue is kept out if somebody gets in who wants this.
    pub fn keeps_out_the_head(&self, want: Want) -> bool {
        match (want, self.queue[0].want) {
            (Read, Read | Upgradable) | (Upgradable, Read) => false,
            (Permit, Permit) => self.holds.permits + 1 == self.rules.permits,
            _ => true,
        }
    }

    /// Somebody asks who is not at the head, and whom the holds admit: does the policy let it in? Counts it if so.
    fn pass(&mut self, want: Want) -> bool {
        if self.queue.is_empty() || want == Upgrade {
            return true;
        }
        let bound = match self.rules.fairness {
            Fairness::Fifo => return false,
            Fairness::Barging => return true,
            Fairness::Bounded(bound) => u32::from(bound),
            other => panic!("a contract of {other:?} is not written"),
        };
        let writer_waits = self.queue.iter().any(|waiter| matches!(waiter.want, Write | Upgrade));
        if !writer_waits && !self.keeps_out_the_head(want) {
            return true;
        }
        // While an upgrade stands before it, the first in the queue is passed as well.
        let heads = if self.queue[0].want == Upgrade { 2 } else { 1 };
        let may = self.queue.iter().take(heads).all(|waiter| waiter.passed < bound);
        self.queue.iter_mut().take(heads).for_each(|waiter| waiter.passed += u32::from(may));
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
            if let Some(place) = place {
                self.queue.remove(place);
                self.settle(false, false);
            }
            return true;
        }
        if place.is_none() {
            let at = if want == Upgrade { 0 } else { self.queue.len() };
            self.queue.insert(at, Waiter { id, want, passed: 0, passed_in_phase: false });
        }
        false
    }

    fn grant(&mut self, id: Id) {
        let waiter = take(&mut self.queue, |waiter| waiter.id == id).expect("whoever is let in has waited");
        self.holds.enter(waiter.want);
        let at = self.granted.partition_point(|&granted| granted < id);
        self.granted.insert(at, id);
    }

    /// Lets in whoever gets in without being polled.
    fn settle(&mut self, writer_left: bool, mut fair: bool) {
        let bounded = matches!(self.rules.fairness, Fairness::Bounded(_));
        if writer_left && bounded {
            // The readers' phase. One upgradable reader, the first; but before a writer that came earlier only once.
            if let Some(at) = self.queue.iter().position(|waiter| waiter.want == Upgradable) {
                if self.admits(Upgradable) {
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
        for due in self.due() {
            // The first grant of a fair release is the one exception to what the policy says.
            let grant = std::mem::take(&mut fair)
                || match self.rules.fairness {
                    Fairness::Fifo => true,
                    Fairness::Bounded(bound) => matches!(due.want, Read | Upgrade) || due.passed >= u32::from(bound),
                    Fairness::Barging => false,
                    other => panic!("a contract of {other:?} is not written"),
                };
            if grant {
                self.grant(due.id);
            }
        }
    }

    /// Those who could get in now, one after another, in the order of the queue. An upgradable reader whose place is taken
    /// does not stand in the way, unless order is all that counts.
    pub fn due(&self) -> Vec<Waiter> {
        let mut holds = self.holds;
        let mut due = vec![];
        for waiter in &self.queue {
            if holds.admit(waiter.want, self.rules.permits) {
                holds.enter(waiter.want);
                due.push(*waiter);
            } else if waiter.want != Upgradable || self.rules.fairness == Fairness::Fifo {
                break;
            }
        }
        due
    }

    pub fn release(&mut self, held: Want, fair: bool) {
        *self.holds.of(held) -= 1;
        self.settle(matches!(held, Write | Upgrade), fair);
    }

    /// A hold becomes a weaker one.
    pub fn change(&mut self, from: Want, to: Want) {
        *self.holds.of(from) -= 1;
        *self.holds.of(to) += 1;
        self.settle(from == Write, false);
    }

    /// Gives up a place in the queue. `None` if there was none, else whether what was wanted had been granted already.
    pub fn leave_queue(&mut self, id: Id) -> Option<bool> {
        if take(&mut self.granted, |&granted| granted == id).is_some() {
            return Some(true);
        }
        take(&mut self.queue, |waiter| waiter.id == id)?;
        self.settle(false, false);
        Some(false)
    }

    /// A request for a hold is dropped. What was reserved for it goes to the next, not to whoever comes first.
    pub fn cancel(&mut self, id: Id, want: Want) {
        if self.leave_queue(id) == Some(true) {
            self.release(want, true);
        }
    }

    /// What the upgradable reader has whose upgrade left the queue with this outcome; and whether giving that up is a fair
    /// release, as it is for any request that had been granted.
    pub fn held_after_upgrade(left: Option<bool>) -> (Want, bool) {
        if left == Some(true) { (Write, true) } else { (Upgradable, false) }
    }

    pub fn waiting(&self, want: Want) -> usize {
        self.queue.iter().filter(|waiter| waiter.want == want).count()
    }

    pub fn seen(&self) -> Seen {
        let Holds { readers, upgradable, writers, permits } = self.holds;
        let waiters = [Read, Upgradable, Write, Permit, Upgrade].map(|want| self.waiting(want));
        Seen { holders: [readers, upgradable, writers, permits], waiters }
    }
}

/// Takes the first such element out.
pub fn take<T>(from: &mut Vec<T>, is_it: impl FnMut(&T) -> bool) -> Option<T> {
    from.iter().position(is_it).map(|at| from.remove(at))
}
