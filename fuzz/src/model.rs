//! What the contract says of one key, for all three tables: who gets in, who waits, and who must have been woken.

use keylatch::{Fairness, Status};

/// What a request asks for, or what a holder has. A mutex is a writer that never meets a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    Read,
    Upgradable,
    Write,
    Permit,
    /// By the upgradable reader, who becomes a writer.
    Upgrade,
}

use Want::{Permit, Read, Upgradable, Upgrade, Write};

/// Who holds a key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
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
            Upgrade => self.readers == 0,
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

#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    pub id: u32,
    pub want: Want,
    passed: u32,
    /// Whether an upgradable reader that came later has got in with a phase.
    passed_in_phase: bool,
}

#[derive(Clone, Debug)]
pub struct Model {
    fairness: Fairness,
    permits: usize,
    pub holds: Holds,
    /// In order of arrival, but for an upgrade, which stands before all.
    pub queue: Vec<Waiter>,
    /// Those who hold, but have not come for it yet.
    pub granted: Vec<u32>,
}

impl Model {
    pub fn new(fairness: Fairness, permits: usize) -> Self {
        Model { fairness, permits, holds: Holds::default(), queue: vec![], granted: vec![] }
    }

    pub fn admits(&self, want: Want) -> bool {
        self.holds.admit(want, self.permits)
    }

    /// Whether somebody with this hold is in the way of `other`, in a key with room for `free` more.
    pub fn keeps_out(want: Want, other: Want, free: usize) -> bool {
        match (want, other) {
            (Read, Read | Upgradable) | (Upgradable, Read) => false,
            (Permit, Permit) => free <= 1,
            _ => true,
        }
    }

    pub fn free(&self) -> usize {
        self.permits - self.holds.permits
    }

    /// Somebody asks who is not at the head, and whom the holds admit: does the policy let it in?
    fn pass(&mut self, want: Want) -> bool {
        if self.queue.is_empty() || want == Upgrade {
            return true;
        }
        let bound = match self.fairness {
            Fairness::Fifo => return false,
            Fairness::Barging => return true,
            Fairness::Bounded(bound) => u32::from(bound),
        };
        let writer_waits = self.queue.iter().any(|waiter| matches!(waiter.want, Write | Upgrade));
        if !writer_waits && !Self::keeps_out(want, self.queue[0].want, self.free()) {
            return true;
        }
        // An upgrade at the head does not hide the first in the queue.
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

    /// Whether that would succeed.
    pub fn would_admit(&self, want: Want) -> bool {
        self.clone().attempt(want)
    }

    /// Polls a request: it gets in, or has its place in the queue.
    pub fn poll(&mut self, id: u32, want: Want) -> bool {
        if let Some(at) = self.granted.iter().position(|&granted| granted == id) {
            self.granted.swap_remove(at);
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

    fn grant(&mut self, at: usize) {
        let waiter = self.queue.remove(at);
        self.holds.enter(waiter.want);
        self.granted.push(waiter.id);
    }

    /// Lets in whoever must get in without being asked.
    fn settle(&mut self, writer_left: bool, mut fair: bool) {
        if writer_left && matches!(self.fairness, Fairness::Bounded(_)) {
            // One upgradable reader, the first; but before a writer that came earlier only once.
            if let Some(at) = self.queue.iter().position(|waiter| waiter.want == Upgradable) {
                let writer = self.queue[..at].iter_mut().find(|waiter| waiter.want == Write);
                let passes = writer.is_none_or(|writer| !std::mem::replace(&mut writer.passed_in_phase, true));
                if passes && self.admits(Upgradable) {
                    self.grant(at);
                }
            }
            while let Some(at) = self.queue.iter().position(|waiter| waiter.want == Read) {
                self.grant(at);
            }
        }
        // The first grant of a fair release is the one exception to what the policy says.
        for due in self.admissible() {
            let at = self.queue.iter().position(|waiter| waiter.id == due.id).expect("it waits");
            let grant = std::mem::take(&mut fair)
                || match self.fairness {
                    Fairness::Fifo => true,
                    Fairness::Bounded(n) => matches!(due.want, Read | Upgrade) || due.passed >= u32::from(n),
                    Fairness::Barging => false,
                };
            if grant {
                self.grant(at);
            }
        }
    }

    /// Those who could get in now, one after another, in the order of the queue. An upgradable reader whose place is taken
    /// does not stand in the way, unless order is all that counts.
    pub fn admissible(&self) -> Vec<Waiter> {
        let mut holds = self.holds;
        let mut due = vec![];
        for waiter in &self.queue {
            if holds.admit(waiter.want, self.permits) {
                holds.enter(waiter.want);
                due.push(*waiter);
            } else if waiter.want != Upgradable || self.fairness == Fairness::Fifo {
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

    /// Gives up a place in the queue. `true` if what was wanted had been granted already.
    pub fn leave_queue(&mut self, id: u32) -> bool {
        if let Some(at) = self.granted.iter().position(|&granted| granted == id) {
            self.granted.swap_remove(at);
            return true;
        }
        if let Some(at) = self.queue.iter().position(|waiter| waiter.id == id) {
            self.queue.remove(at);
            self.settle(false, false);
        }
        false
    }

    pub fn waiting(&self, want: Want) -> usize {
        self.queue.iter().filter(|waiter| waiter.want == want).count()
    }

    /// # Panics
    /// If this is not what a snapshot of the key says.
    pub fn assert_is(&self, status: Option<Status>) {
        let seen = status.map_or([0; 9], |status| {
            assert_eq!(status.holders(), status.readers() + status.upgradable() + status.writers() + status.permits());
            [
                status.readers(),
                status.upgradable(),
                status.writers(),
                status.permits(),
                status.waiting_readers(),
                status.waiting_upgradable(),
                status.waiting_writers(),
                status.waiting_permits(),
                status.waiting_upgrades(),
            ]
        });
        let Holds { readers, upgradable, writers, permits } = self.holds;
        let [r, u, w, p, up] = [Read, Upgradable, Write, Permit, Upgrade].map(|want| self.waiting(want));
        assert_eq!(seen, [readers, upgradable, writers, permits, r, u, w, p, up], "{self:?}");
        assert_eq!(status.map_or(0, |status| status.waiters()), self.queue.len());
    }
}
