//! What one key of a lock table does when calls come one at a time: the sequential specification. And the history of calls
//! that did not, to be checked against it.
//!
//! It is written from the tables in the documentation of [`Fairness`], as a queue in a vector and a few numbers. It is exact:
//! given the outcomes so far, there is one outcome that a call may have. So a try that fails while nothing is in its way is
//! an error, and so is a status that counts somebody twice, or one newcomer too many before a waiter.
//!
//! Most calls are one operation. Some are two, that take effect at two instants of the same call:
//!
//! | call | operations |
//! |---|---|
//! | a blocking call, or a timed one that succeeds | [`Queue`](Op::Queue), which is nothing if the call got in at once, and [`Enter`](Op::Enter) |
//! | a call that gives up by its limit | [`Queue`](Op::Queue), [`GiveUp`](Op::GiveUp) |
//! | the drop of an upgrade's future | [`StopUpgrade`](Op::StopUpgrade), [`EndUpgrade`](Op::EndUpgrade) |
#![allow(dead_code)] // those who include it do not record every kind of call

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use keylatch::{Fairness, Status};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Want {
    Read,
    Upgradable,
    /// A writer, or the holder of a mutex.
    Write,
    Permit,
    /// By the upgradable reader.
    Upgrade,
}

/// Names a request, from its first poll to its end.
pub type Id = u32;

/// A call, or one of the two things that it does, with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// The first in every history.
    Make(Rules),
    Try {
        want: Want,
        got: bool,
    },
    Poll {
        id: Id,
        want: Want,
        ready: bool,
    },
    /// The request takes its place in the queue, unless it has got in already.
    Queue {
        id: Id,
        want: Want,
    },
    Enter {
        id: Id,
        want: Want,
    },
    /// A request that has queued gives up. If it was an upgrade, the upgradable hold stays.
    GiveUp {
        id: Id,
        want: Want,
    },
    /// A future is dropped: one that has been polled, or not.
    Cancel {
        id: Id,
        want: Want,
    },
    /// The future of an upgrade is dropped: it leaves the queue, ...
    StopUpgrade(Id),
    /// ... and its hold goes.
    EndUpgrade(Id),
    Release {
        held: Want,
        fair: bool,
    },
    /// A downgrade, or the end of an `upgrade_mut` hold.
    Change {
        from: Want,
        to: Want,
    },
    Look(Option<Seen>),
    IsLocked(bool),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    pub fairness: Fairness,
    /// For a semaphore.
    pub permits: usize,
}

/// What a status says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
struct Waiter {
    id: Id,
    want: Want,
    /// How many have got in before it while it stood at the head.
    passed: u32,
    /// Whether an upgradable reader that came later has got in with a phase.
    passed_in_phase: bool,
}

/// The state of a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    rules: Rules,
    readers: usize,
    upgradable: bool,
    writer: bool,
    permits: usize,
    queue: Vec<Waiter>,
    /// Those who hold but have not come for it yet, in order of their names.
    granted: Vec<Id>,
    /// Requests that have got in, whose `Queue` has not been met yet.
    early: Vec<Id>,
    /// Upgrades that have left the queue, and what they still hold.
    stopped: Vec<(Id, Want)>,
}

fn take<T>(from: &mut Vec<T>, is_it: impl FnMut(&T) -> bool) -> Option<T> {
    from.iter().position(is_it).map(|at| from.remove(at))
}

impl Key {
    fn new(rules: Rules) -> Key {
        Key {
            rules,
            readers: 0,
            upgradable: false,
            writer: false,
            permits: 0,
            queue: vec![],
            granted: vec![],
            early: vec![],
            stopped: vec![],
        }
    }

    /// Whether the holds admit this one.
    fn admits(&self, want: Want) -> bool {
        match want {
            Want::Read => !self.writer,
            Want::Upgradable => !self.writer && !self.upgradable,
            Want::Write => !self.writer && !self.upgradable && self.readers == 0,
            Want::Permit => self.permits < self.rules.permits,
            Want::Upgrade => self.readers == 0,
        }
    }

    fn enter(&mut self, want: Want) {
        match want {
            Want::Read => self.readers += 1,
            Want::Upgradable => self.upgradable = true,
            Want::Write => self.writer = true,
            Want::Permit => self.permits += 1,
            Want::Upgrade => (self.upgradable, self.writer) = (false, true),
        }
    }

    fn leave(&mut self, held: Want) {
        match held {
            Want::Read => self.readers -= 1,
            Want::Upgradable => self.upgradable = false,
            Want::Write | Want::Upgrade => self.writer = false,
            Want::Permit => self.permits -= 1,
        }
    }

    /// Whether the head, which wants this, is kept out when somebody gets in who wants that.
    fn keeps_out(&self, head: Want, newcomer: Want) -> bool {
        match (head, newcomer) {
            (Want::Read, Want::Read | Want::Upgradable) | (Want::Upgradable, Want::Read) => false,
            (Want::Permit, _) => self.permits + 1 == self.rules.permits,
            _ => true,
        }
    }

    /// Whether somebody who is not at the head, and whom the holds admit, may get in. Counts it if so.
    fn pass(&mut self, want: Want) -> bool {
        if self.queue.is_empty() || want == Want::Upgrade {
            return true;
        }
        let bound = match self.rules.fairness {
            Fairness::Fifo => return false,
            Fairness::Barging => return true,
            Fairness::Bounded(bound) => u32::from(bound),
        };
        let writers_wait = self.queue.iter().any(|waiter| matches!(waiter.want, Want::Write | Want::Upgrade));
        if !writers_wait && !self.keeps_out(self.queue[0].want, want) {
            return true;
        }
        // While an upgrade stands before it, the first in the queue is passed as well.
        let passed = if self.queue[0].want == Want::Upgrade { 2 } else { 1 };
        let may = self.queue.iter().take(passed).all(|waiter| waiter.passed < bound);
        if may {
            self.queue.iter_mut().take(passed).for_each(|waiter| waiter.passed += 1);
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

    fn poll(&mut self, id: Id, want: Want) -> bool {
        if take(&mut self.granted, |&granted| granted == id).is_some() {
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
        let at = self.granted.partition_point(|&id| id < waiter.id);
        self.granted.insert(at, waiter.id);
    }

    /// Lets in whoever gets in without being polled.
    fn settle(&mut self, writer_left: bool, mut fair: bool) {
        if writer_left && matches!(self.rules.fairness, Fairness::Bounded(_)) {
            // The readers' phase. One upgradable reader, the first; but before a writer that came earlier only once.
            if let Some(at) = self.queue.iter().position(|waiter| waiter.want == Want::Upgradable) {
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
        // Those who are merely woken count as if they had come, for those behind them.
        let mut expected = Key { queue: vec![], ..self.clone() };
        let mut at = 0;
        while at < self.queue.len() {
            let Waiter { want, passed, .. } = self.queue[at];
            if !expected.admits(want) {
                if want != Want::Upgradable || self.rules.fairness == Fairness::Fifo {
                    return;
                }
                at += 1;
                continue;
            }
            expected.enter(want);
            let grants = std::mem::take(&mut fair)
                || match self.rules.fairness {
                    Fairness::Fifo => true,
                    Fairness::Bounded(bound) => {
                        matches!(want, Want::Read | Want::Upgrade) || passed >= u32::from(bound)
                    }
                    Fairness::Barging => false,
                };
            if grants { self.grant(at) } else { at += 1 }
        }
    }

    fn release(&mut self, held: Want, fair: bool) {
        self.leave(held);
        self.settle(held == Want::Write, fair);
    }

    /// A hold goes whose owner never came for it. What was reserved for it is for the next one, not for whoever comes first.
    fn hand_on(&mut self, held: Want) {
        self.release(held, true);
    }

    fn change(&mut self, from: Want, to: Want) {
        self.leave(from);
        self.enter(to);
        self.settle(from == Want::Write, false);
    }

    /// Leaves the queue. `None` if it was not there, else whether it had been let in.
    fn leave_queue(&mut self, id: Id) -> Option<bool> {
        if take(&mut self.granted, |&granted| granted == id).is_some() {
            return Some(true);
        }
        take(&mut self.queue, |waiter| waiter.id == id)?;
        self.settle(false, false);
        Some(false)
    }

    fn seen(&self) -> Seen {
        let waiting = |want| self.queue.iter().filter(|waiter| waiter.want == want).count();
        Seen {
            holders: [self.readers, self.upgradable.into(), self.writer.into(), self.permits],
            waiters: [Want::Read, Want::Upgradable, Want::Write, Want::Permit, Want::Upgrade].map(waiting),
        }
    }

    /// Does what the call did. Whether its outcome is the one that it had to have.
    fn apply(&mut self, op: Op) -> bool {
        match op {
            Op::Make(rules) => *self = Key::new(rules),
            Op::Try { want, got } => return self.try_enter(want) == got,
            Op::Poll { id, want, ready } => return self.poll(id, want) == ready,
            Op::Queue { id, want } => {
                return take(&mut self.early, |&early| early == id).is_some() || !self.poll(id, want);
            }
            Op::Enter { id, want } => {
                let queued = self.granted.contains(&id) || self.queue.iter().any(|waiter| waiter.id == id);
                if queued {
                    return self.poll(id, want);
                }
                let at = self.early.partition_point(|&early| early < id);
                self.early.insert(at, id);
                return self.try_enter(want);
            }
            Op::GiveUp { id, want } => match self.leave_queue(id) {
                None => return false,
                Some(true) if want == Want::Upgrade => self.change(Want::Write, Want::Upgradable),
                // What was reserved for it goes to the next, not to whoever comes first.
                Some(true) => self.release(want, true),
                Some(false) => {}
            },
            Op::Cancel { id, want } => {
                if self.leave_queue(id) == Some(true) {
                    self.release(want, true);
                }
            }
            Op::StopUpgrade(id) => {
                let held = if self.leave_queue(id) == Some(true) { Want::Write } else { Want::Upgradable };
                let at = self.stopped.partition_point(|&(stopped, _)| stopped < id);
                self.stopped.insert(at, (id, held));
            }
            Op::EndUpgrade(id) => match take(&mut self.stopped, |&(stopped, _)| stopped == id) {
                Some((_, held)) => self.release(held, false),
                None => return false,
            },
            Op::Release { held, fair } => {
                // What was not to be had is not to be released: the history is wrong before this.
                let holds = match held {
                    Want::Read => self.readers > 0,
                    Want::Upgradable => self.upgradable,
                    Want::Write | Want::Upgrade => self.writer,
                    Want::Permit => self.permits > 0,
                };
                if !holds {
                    return false;
                }
                self.release(held, fair);
            }
            Op::Change { from, to } => {
                let holds = if from == Want::Write { self.writer } else { self.upgradable };
                if !holds {
                    return false;
                }
                self.change(from, to);
            }
            // A key without an entry, and one whose entry is kept by a handle, look the same here.
            Op::Look(seen) => return seen.unwrap_or(Key::new(self.rules).seen()) == self.seen(),
            Op::IsLocked(locked) => return (self.seen().holders != [0; 4]) == locked,
        }
        true
    }
}

impl Specification for Key {
    type State = Key;
    type Operation = Op;

    fn init() -> Key {
        Key::new(Rules { fairness: Fairness::Fifo, permits: 0 })
    }

    fn apply(op: &Op, state: &Key) -> (bool, Key) {
        let mut state = state.clone();
        let legal = state.apply(*op);
        (legal, state)
    }
}

/// The logical clock: every invocation and every return has an instant of its own.
#[derive(Default)]
pub struct Clock(AtomicU64);

impl Clock {
    fn tick(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

/// An operation on a key, and the call during which it took effect.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub key: u64,
    pub invoked: u64,
    pub returned: u64,
    /// Who called. For those who read a history.
    pub by: usize,
    pub op: Op,
}

/// What one caller did.
pub struct Log {
    clock: Arc<Clock>,
    by: usize,
    last_id: Id,
    pub records: Vec<Record>,
}

impl Log {
    pub fn new(clock: &Arc<Clock>, by: usize) -> Self {
        Log { clock: Arc::clone(clock), by, last_id: 1000 * by as Id, records: vec![] }
    }

    /// A name for a new request.
    pub fn id(&mut self) -> Id {
        self.last_id += 1;
        self.last_id
    }

    /// Records a call that is one operation.
    pub fn call<T>(&mut self, key: u64, call: impl FnOnce() -> T, op: impl FnOnce(&T) -> Op) -> T {
        self.call_all(call, |outcome| [(key, op(outcome))])
    }

    /// Records a call that is several operations.
    pub fn call_all<T, I: IntoIterator<Item = (u64, Op)>>(
        &mut self,
        call: impl FnOnce() -> T,
        ops: impl FnOnce(&T) -> I,
    ) -> T {
        let invoked = self.clock.tick();
        let outcome = call();
        let returned = self.clock.tick();
        let by = self.by;
        self.records.extend(ops(&outcome).into_iter().map(|(key, op)| Record { key, invoked, returned, by, op }));
        outcome
    }
}

/// Whether there is an order of these operations on one key that agrees with the order of the calls, wherever one returned
/// before the other was invoked, and with the specification.
pub fn is_linearizable(rules: Rules, records: &[Record]) -> bool {
    // Each operation is a process of its own: two operations of one call overlap. The order of one caller's calls is that of
    // their times anyway.
    let events = records.iter().zip(1..).flat_map(|(record, process)| {
        [(record.invoked, process, Action::Call(record.op)), (record.returned, process, Action::Response(record.op))]
    });
    let mut events: Vec<_> = events.collect();
    events.sort_by_key(|&(time, ..)| time);
    let made = [Action::Call(Op::Make(rules)), Action::Response(Op::Make(rules))].map(|action| (0, action));
    let actions = made.into_iter().chain(events.into_iter().map(|(_, process, action)| (process, action)));
    WGLChecker::<Key>::is_linearizable(History::from_actions(actions.collect()))
}

/// Panics, and shows the history, if the operations on some key cannot be brought in order.
///
/// A history is in order if it is for each key: keys know nothing of each other.
pub fn check(rules: Rules, records: impl IntoIterator<Item = Record>) {
    let mut keys = BTreeMap::<u64, Vec<Record>>::new();
    for record in records {
        keys.entry(record.key).or_default().push(record);
    }
    for (key, records) in &mut keys {
        if !is_linearizable(rules, records) {
            records.sort_by_key(|record| record.invoked);
            let mut shown = String::new();
            for Record { invoked, returned, by, op, .. } in records {
                writeln!(shown, "{invoked:>5} ..{returned:>5}  caller {by}  {op:?}").unwrap();
            }
            panic!("key {key} under {rules:?}: no order of these explains their outcomes:\n{shown}");
        }
    }
}
