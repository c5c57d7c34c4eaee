//! The sequential specification, against which histories of concurrent calls are checked: the
//! [contract](crate::common::contract) of calls that are made one at a time. It is exact, so it also finds errors such
//! as an attempt that fails although nothing is in its way, a status that counts a request twice, or a waiter that is
//! passed by one newcomer too many.
//!
//! Most calls are one operation. Some are two operations, which take effect at two instants of the same call:
//!
//! | call | operations |
//! |---|---|
//! | a blocking call, or a timed one that succeeds | [`Queue`](Op::Queue), which is nothing if the call got in at once, and [`Enter`](Op::Enter) |
//! | a call that gives up at its limit | [`Queue`](Op::Queue), [`GiveUp`](Op::GiveUp) |
//! | the drop of an upgrade's future | [`StopUpgrade`](Op::StopUpgrade), [`EndUpgrade`](Op::EndUpgrade) |
#![allow(dead_code, unreachable_pub)] // not every program that includes it records every kind of call

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use keylatch::Fairness;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use crate::common::contract::{For, Holds, Key, take};
pub use crate::common::contract::{Id, Rules, Seen, Want};

/// A call, or one of the operations of which a call consists, with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// The first operation of every history.
    Make(Rules),
    Try {
        want: Want,
        got: bool,
    },
    Poll {
        id: Id,
        want: Want,
        priority: u8,
        ready: bool,
    },
    /// The request takes its place in the queue, unless it has already acquired the key.
    Queue {
        id: Id,
        want: Want,
        thread: bool,
    },
    Enter {
        id: Id,
        want: Want,
    },
    /// A queued request gives up. After an upgrade the upgradable hold remains.
    GiveUp {
        id: Id,
        want: Want,
    },
    /// A future is dropped, polled or not.
    Cancel {
        id: Id,
        want: Want,
    },
    /// The future of an upgrade is dropped: first it leaves the queue ...
    StopUpgrade(Id),
    /// ... and then its hold is released.
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
    /// The key gets its own number of permits, or the default one.
    SetPermits {
        permits: usize,
        own: bool,
    },
    Look(Option<Seen>),
    IsLocked(bool),
}

/// The state of a key, and of the calls that have had one of their two effects.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    key: Key,
    /// Requests that have acquired the key before their `Queue` took effect.
    early: Vec<Id>,
    /// The upgrades that have left the queue, with the holds that they still have.
    stopped: Vec<(Id, (Want, For))>,
}

impl State {
    fn new(rules: Rules) -> State {
        State { key: Key::new(rules), early: vec![], stopped: vec![] }
    }

    /// Applies an operation. Returns whether its outcome was the one possible outcome.
    fn apply(&mut self, op: Op) -> bool {
        match op {
            Op::Make(rules) => *self = State::new(rules),
            Op::Try { want, got } => return self.key.attempt(want) == got,
            Op::Poll { id, want, priority, ready } => {
                return self.key.poll_with_priority(id, want, priority) == ready;
            }
            Op::Queue { id, want, thread } => {
                if take(&mut self.early, |&early| early == id).is_some() {
                    return true;
                }
                let waits = !self.key.poll(id, want);
                if waits && thread {
                    self.key.mark_as_thread(id);
                }
                return waits;
            }
            Op::Enter { id, want } => {
                let queued = self.key.granted.contains(&id) || self.key.queue.iter().any(|waiter| waiter.id == id);
                if queued {
                    return self.key.poll(id, want);
                }
                let at = self.early.partition_point(|&early| early < id);
                self.early.insert(at, id);
                return self.key.attempt(want);
            }
            Op::GiveUp { id, want } => match self.key.leave_queue(id) {
                None => return false,
                Some(true) if want == Want::Upgrade => self.key.change(Want::Write, Want::Upgradable),
                Some(true) => self.key.release(want, For::NextWaiter),
                Some(false) => {}
            },
            Op::Cancel { id, want } => self.key.cancel(id, want),
            Op::StopUpgrade(id) => {
                let held = Key::held_after_upgrade(self.key.leave_queue(id));
                let at = self.stopped.partition_point(|&(stopped, _)| stopped < id);
                self.stopped.insert(at, (id, held));
            }
            Op::EndUpgrade(id) => match take(&mut self.stopped, |&(stopped, _)| stopped == id) {
                Some((_, (held, whom))) => self.key.release(held, whom),
                None => return false,
            },
            // A hold that does not exist cannot be released: the history is wrong before this point.
            Op::Release { held, .. } | Op::Change { from: held, .. } if *self.key.holds.of(held) < held.weight() => {
                return false;
            }
            Op::Release { held, fair } => self.key.release(held, if fair { For::Waiter } else { For::Anyone }),
            Op::Change { from, to } => self.key.change(from, to),
            Op::SetPermits { permits, own } => self.key.set_permits(permits, own),
            // A key without an entry and a key whose entry a handle keeps have the same status here.
            Op::Look(seen) => return seen.unwrap_or_default() == self.key.seen(),
            Op::IsLocked(locked) => return (self.key.holds != Holds::default()) == locked,
        }
        true
    }
}

impl Specification for State {
    type State = State;
    type Operation = Op;

    fn init() -> State {
        State::new(Rules { fairness: Fairness::Fifo, permits: 0 })
    }

    fn apply(op: &Op, state: &State) -> (bool, State) {
        let mut state = state.clone();
        let legal = state.apply(*op);
        (legal, state)
    }
}

/// The logical clock: every invocation and every return has its own instant.
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
    /// The number of the caller. It is not checked; it is for people who read a printed history.
    pub by: usize,
    pub op: Op,
}

/// The recorded operations of one caller.
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

    /// Returns the id of a new request.
    pub fn id(&mut self) -> Id {
        self.last_id += 1;
        self.last_id
    }

    /// Records a call that is one operation.
    pub fn call<T>(&mut self, key: u64, call: impl FnOnce() -> T, op: impl FnOnce(&T) -> Op) -> T {
        self.call_all(call, |outcome| [(key, op(outcome))])
    }

    /// Records a call that is one operation, or none.
    pub fn call_maybe<T>(&mut self, key: u64, call: impl FnOnce() -> T, op: impl FnOnce(&T) -> Option<Op>) -> T {
        self.call_all(call, |outcome| op(outcome).map(|op| (key, op)))
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

/// Returns whether some order of these operations on one key agrees with the specification, and with the order of the
/// calls wherever one returned before the other was invoked.
pub fn is_linearizable(rules: Rules, records: &[Record]) -> bool {
    // Each operation is a separate process, because two operations of one call overlap. The times alone order the calls
    // of one caller.
    let events = records.iter().zip(1..).flat_map(|(record, process)| {
        [(record.invoked, process, Action::Call(record.op)), (record.returned, process, Action::Response(record.op))]
    });
    let mut events: Vec<_> = events.collect();
    events.sort_by_key(|&(time, ..)| time);
    let made = [Action::Call(Op::Make(rules)), Action::Response(Op::Make(rules))].map(|action| (0, action));
    let actions = made.into_iter().chain(events.into_iter().map(|(_, process, action)| (process, action)));
    WGLChecker::<State>::is_linearizable(History::from_actions(actions.collect()))
}

/// Panics and shows the history if no order explains the operations on some key.
///
/// A history is linearizable if its part for each key is: keys are independent of each other.
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
            panic!("key {key} under {rules:?}: no order of these operations explains their outcomes:\n{shown}");
        }
    }
}
