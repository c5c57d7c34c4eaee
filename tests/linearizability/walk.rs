//! A walk: one caller that makes random calls of every kind that a table offers, except those that block and those for
//! several keys, and records them.
//!
//! Waiters are polled by hand, woken or not, and holds are kept for a random time. So a queue reaches all of its
//! states, and no caller's progress depends on another.
#![allow(unreachable_pub)] // shared by several test programs

use std::sync::Arc;
use std::task::Poll;

use keylatch::futures::{AcquirePermitArc, LockArc, ReadArc, UpgradableReadArc, Upgrade, WriteArc};
use keylatch::{
    Fairness, KeyHandleArc, KeyedMutex, KeyedRwLock, KeyedSemaphore, MutexGuardArc, PermitGuardArc, ReadGuardArc,
    UpgradableGuardArc, WriteGuardArc,
};

use crate::common::contract::take;
use crate::common::{Bell, poll_with};
use crate::spec::{Id, Log, Op, Record, Rules, Want};

/// A hasher without random state, so that a schedule can be replayed.
pub type Hasher = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
pub type Mutex = KeyedMutex<u64, Hasher>;
pub type RwLock = KeyedRwLock<u64, Hasher>;
pub type Semaphore = KeyedSemaphore<u64, Hasher>;

/// The kind of table that a walk uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Mutex,
    RwLock,
    Semaphore(usize),
}

#[derive(Clone)]
pub enum Table {
    Mutex(Arc<Mutex>),
    RwLock(Arc<RwLock>),
    Semaphore(Arc<Semaphore>),
}

/// Makes the same call on any table, handle, request or hold.
macro_rules! each {
    ($Enum:ident, $on:expr, $it:ident => $call:expr, $($Variant:ident),+) => {
        match $on {
            $($Enum::$Variant($it) => $call,)+
        }
    };
}

impl Table {
    pub fn new(kind: Kind, fairness: Fairness) -> (Table, Rules) {
        // One shard and a small pool, so that the keys interfere with each other more.
        macro_rules! build {
            ($builder:expr) => {
                Arc::new($builder.shards(1).pool_capacity(1).fairness(fairness).hasher(Hasher::default()).build())
            };
        }
        let (table, permits) = match kind {
            Kind::Mutex => (Table::Mutex(build!(KeyedMutex::builder())), 0),
            Kind::RwLock => (Table::RwLock(build!(KeyedRwLock::builder())), 0),
            Kind::Semaphore(permits) => (Table::Semaphore(build!(KeyedSemaphore::builder(permits))), permits),
        };
        (table, Rules { fairness, permits })
    }

    fn handle(&self, key: u64) -> Handle {
        match self {
            Table::Mutex(table) => Handle::Mutex(table.handle_arc(&key)),
            Table::RwLock(table) => Handle::RwLock(table.handle_arc(&key)),
            Table::Semaphore(table) => Handle::Semaphore(table.handle_arc(&key)),
        }
    }

    fn request(&self, key: u64, want: Want) -> Request {
        match (self, want) {
            (Table::Mutex(table), _) => Request::Lock(table.lock_arc(&key)),
            (Table::RwLock(table), Want::Read) => Request::Read(table.read_arc(&key)),
            (Table::RwLock(table), Want::Recursive) => Request::Read(table.read_recursive_arc(&key)),
            (Table::RwLock(table), Want::Upgradable) => Request::Upgradable(table.upgradable_read_arc(&key)),
            (Table::RwLock(table), _) => Request::Write(table.write_arc(&key)),
            (Table::Semaphore(table), want) => Request::Permit(table.acquire_n_arc(&key, want.weight())),
        }
    }

    fn attempt(&self, key: u64, want: Want) -> Option<Hold> {
        match (self, want) {
            (Table::Mutex(table), _) => table.try_lock_arc(&key).map(Hold::Mutex),
            (Table::RwLock(table), Want::Read) => table.try_read_arc(&key).map(Hold::Read),
            (Table::RwLock(table), Want::Recursive) => table.try_read_recursive_arc(&key).map(Hold::Read),
            (Table::RwLock(table), Want::Upgradable) => table.try_upgradable_read_arc(&key).map(Hold::Upgradable),
            (Table::RwLock(table), _) => table.try_write_arc(&key).map(Hold::Write),
            (Table::Semaphore(table), want) => table.try_acquire_n_arc(&key, want.weight()).map(Hold::Permit),
        }
    }

    /// Returns the kinds of holds that a caller may request.
    fn wants(&self) -> &'static [Want] {
        match self {
            Table::Mutex(_) => &[Want::Write],
            Table::RwLock(_) => &[Want::Read, Want::Read, Want::Recursive, Want::Write, Want::Upgradable],
            Table::Semaphore(table) => match table.permits() {
                1 => &[Want::Permits(1)],
                2 => &[Want::Permits(1), Want::Permits(1), Want::Permits(2)],
                _ => &[Want::Permits(1), Want::Permits(1), Want::Permits(2), Want::Permits(3)],
            },
        }
    }

    pub fn status(&self, key: u64) -> Option<keylatch::Status> {
        each!(Table, self, table => table.status(&key), Mutex, RwLock, Semaphore)
    }

    fn is_locked(&self, key: u64) -> bool {
        each!(Table, self, table => table.is_locked(&key), Mutex, RwLock, Semaphore)
    }

    pub fn len(&self) -> usize {
        each!(Table, self, table => table.len(), Mutex, RwLock, Semaphore)
    }

    fn statuses(&self, keys: u64) -> Vec<(u64, Op)> {
        let mut seen = vec![None; keys as usize];
        let mut see = |key: &u64, status: keylatch::Status| {
            assert!(seen[*key as usize].replace(status.into()).is_none(), "an entry was visited twice");
        };
        each!(Table, self, table => table.for_each_key(&mut see), Mutex, RwLock, Semaphore);
        (0..).zip(seen.into_iter().map(Op::Look)).collect()
    }
}

enum Handle {
    Mutex(KeyHandleArc<Mutex>),
    RwLock(KeyHandleArc<RwLock>),
    Semaphore(KeyHandleArc<Semaphore>),
}

impl Handle {
    fn request(&self, want: Want) -> Request {
        match (self, want) {
            (Handle::Mutex(handle), _) => Request::Lock(handle.lock()),
            (Handle::RwLock(handle), Want::Read) => Request::Read(handle.read()),
            (Handle::RwLock(handle), Want::Recursive) => Request::Read(handle.read_recursive()),
            (Handle::RwLock(handle), Want::Upgradable) => Request::Upgradable(handle.upgradable_read()),
            (Handle::RwLock(handle), _) => Request::Write(handle.write()),
            (Handle::Semaphore(handle), want) => Request::Permit(handle.acquire_n(want.weight())),
        }
    }

    fn attempt(&self, want: Want) -> Option<Hold> {
        match (self, want) {
            (Handle::Mutex(handle), _) => handle.try_lock().map(Hold::Mutex),
            (Handle::RwLock(handle), Want::Read) => handle.try_read().map(Hold::Read),
            (Handle::RwLock(handle), Want::Recursive) => handle.try_read_recursive().map(Hold::Read),
            (Handle::RwLock(handle), Want::Upgradable) => handle.try_upgradable_read().map(Hold::Upgradable),
            (Handle::RwLock(handle), _) => handle.try_write().map(Hold::Write),
            (Handle::Semaphore(handle), want) => handle.try_acquire_n(want.weight()).map(Hold::Permit),
        }
    }
}

enum Request {
    Lock(LockArc<u64, Hasher>),
    Read(ReadArc<u64, Hasher>),
    Upgradable(UpgradableReadArc<u64, Hasher>),
    Write(WriteArc<u64, Hasher>),
    Permit(AcquirePermitArc<u64, Hasher>),
    Upgrade(Upgrade<Arc<RwLock>>),
}

impl Request {
    fn priority(self, priority: u8) -> Self {
        match self {
            Request::Lock(future) => Request::Lock(future.priority(priority)),
            Request::Read(future) => Request::Read(future.priority(priority)),
            Request::Upgradable(future) => Request::Upgradable(future.priority(priority)),
            Request::Write(future) => Request::Write(future.priority(priority)),
            Request::Permit(future) => Request::Permit(future.priority(priority)),
            Request::Upgrade(future) => Request::Upgrade(future),
        }
    }
}

enum Hold {
    Mutex(MutexGuardArc<u64, Hasher>),
    Read(ReadGuardArc<u64, Hasher>),
    Upgradable(UpgradableGuardArc<u64, Hasher>),
    Write(WriteGuardArc<u64, Hasher>),
    Permit(PermitGuardArc<u64, Hasher>),
}

impl Hold {
    fn want(&self) -> Want {
        match self {
            Hold::Mutex(_) | Hold::Write(_) => Want::Write,
            Hold::Read(_) => Want::Read,
            Hold::Upgradable(_) => Want::Upgradable,
            Hold::Permit(guard) => Want::Permits(guard.permits() as u32),
        }
    }

    fn key(&self) -> u64 {
        *each!(Hold, self, guard => guard.key(), Mutex, Read, Upgradable, Write, Permit)
    }

    /// Releases by `unlock_fair` where the guard has it.
    fn unlock_fair(self) {
        match self {
            Hold::Mutex(guard) => guard.unlock_fair(),
            Hold::Write(guard) => guard.unlock_fair(),
            Hold::Permit(guard) => guard.unlock_fair(),
            Hold::Read(_) | Hold::Upgradable(_) => {}
        }
    }
}

struct Pending {
    id: Id,
    key: u64,
    want: Want,
    priority: u8,
    request: Request,
    bell: Arc<Bell>,
    polled: bool,
    /// Whether the request was woken since its last poll.
    woken: bool,
}

impl Pending {
    fn poll(&mut self) -> Poll<Hold> {
        let waker = self.bell.clone().into();
        match &mut self.request {
            Request::Lock(future) => poll_with(future, &waker).map(Hold::Mutex),
            Request::Read(future) => poll_with(future, &waker).map(Hold::Read),
            Request::Upgradable(future) => poll_with(future, &waker).map(Hold::Upgradable),
            Request::Write(future) => poll_with(future, &waker).map(Hold::Write),
            Request::Permit(future) => poll_with(future, &waker).map(Hold::Permit),
            Request::Upgrade(future) => poll_with(future, &waker).map(Hold::Write),
        }
    }
}

/// The number of interesting events during a walk.
#[derive(Clone, Copy, Default, Debug)]
pub struct Met {
    pub tries: [usize; 2],
    pub polls: [usize; 2],
    pub cancels: usize,
    pub upgrades: [usize; 2],
    pub changes: usize,
    pub limits: usize,
}

impl std::ops::AddAssign for Met {
    fn add_assign(&mut self, other: Met) {
        for at in [0, 1] {
            self.tries[at] += other.tries[at];
            self.polls[at] += other.polls[at];
            self.upgrades[at] += other.upgrades[at];
        }
        self.cancels += other.cancels;
        self.changes += other.changes;
        self.limits += other.limits;
    }
}

pub struct Walk {
    table: Table,
    keys: u64,
    log: Log,
    pending: Vec<Pending>,
    held: Vec<Hold>,
    handle: Option<(u64, Handle)>,
    pub has_priorities: bool,
    /// Whether the walk changes the number of permits.
    pub changes_permits: bool,
    pub met: Met,
}

impl Walk {
    pub fn new(table: Table, keys: u64, log: Log) -> Self {
        Walk {
            table,
            keys,
            log,
            pending: vec![],
            held: vec![],
            handle: None,
            has_priorities: false,
            changes_permits: false,
            met: Met::default(),
        }
    }

    /// Makes one call, or a few that belong together. `random(n)` returns a number below `n`.
    pub fn step(&mut self, random: &mut impl FnMut(u64) -> u64) {
        let key = random(self.keys);
        let wants = self.table.wants();
        let want = wants[random(wants.len() as u64) as usize];
        let at = random(64) as usize;
        if self.changes_permits && random(8) == 0 {
            return self.set_permits(key, random(6) as usize);
        }
        match random(20) {
            0..5 => {
                let priority = if self.has_priorities { [0, 0, 1, 9][random(4) as usize] } else { 0 };
                let request = self.request(key, want).priority(priority);
                let id = self.log.id();
                let bell = Bell::new().0;
                self.pending.push(Pending { id, key, want, priority, request, bell, polled: false, woken: false });
                if at > 0 {
                    self.poll(self.pending.len() - 1);
                }
            }
            5..8 if !self.pending.is_empty() => {
                let at = at % self.pending.len();
                if random(4) == 0 {
                    // The future is polled with another waker, as if it had moved to another task: the table must
                    // forget the old waker.
                    self.pending[at].bell = Bell::new().0;
                }
                self.poll(at);
            }
            8 if !self.pending.is_empty() => self.cancel(at % self.pending.len()),
            9..11 => {
                let got = self.log.call(
                    key,
                    || match &self.handle {
                        Some((of, handle)) if *of == key => handle.attempt(want),
                        _ => self.table.attempt(key, want),
                    },
                    |got| Op::Try { want, got: got.is_some() },
                );
                self.met.tries[usize::from(got.is_some())] += 1;
                self.held.extend(got);
            }
            11..15 if !self.held.is_empty() => self.release(at % self.held.len(), random(5) == 0),
            15..17 if self.held.iter().any(|hold| matches!(hold, Hold::Upgradable(_) | Hold::Write(_))) => {
                self.change(random(5));
            }
            15 => self.split(),
            16 => self.merge(),
            17 => drop(self.log.call(key, || self.table.status(key), |status| Op::Look(status.map(Into::into)))),
            18 => drop(self.log.call(key, || self.table.is_locked(key), |&locked| Op::IsLocked(locked))),
            _ if at % 2 == 0 => {
                let (table, keys) = (&self.table, self.keys);
                self.log.call_all(|| table.statuses(keys), Clone::clone);
            }
            _ => self.handle = if self.handle.is_some() { None } else { Some((key, self.table.handle(key))) },
        }
    }

    /// Gives a key of a semaphore this number of permits, or the default number if `permits` is 4 or more.
    fn set_permits(&mut self, key: u64, permits: usize) {
        let Table::Semaphore(table) = self.table.clone() else { return };
        let default = table.permits();
        self.met.limits += 1;
        if permits >= 4 {
            let reset = Op::SetPermits { permits: default, own: false };
            self.log.call_maybe(key, || table.reset_permits(&key), |had| had.then_some(reset));
            return;
        }
        self.log.call(key, || table.set_permits(&key, permits), |()| Op::SetPermits { permits, own: true });
    }

    fn request(&self, key: u64, want: Want) -> Request {
        match &self.handle {
            Some((of, handle)) if *of == key => handle.request(want),
            _ => self.table.request(key, want),
        }
    }

    fn poll(&mut self, at: usize) {
        let pending = &mut self.pending[at];
        let Pending { id, key, want, priority, .. } = *pending;
        pending.bell.take();
        pending.polled = true;
        let poll =
            self.log.call(key, || pending.poll(), |poll| Op::Poll { id, want, priority, ready: poll.is_ready() });
        self.met.polls[usize::from(poll.is_ready())] += 1;
        self.met.upgrades[usize::from(poll.is_ready())] += usize::from(want == Want::Upgrade);
        if let Poll::Ready(hold) = poll {
            assert_eq!(hold.key(), key);
            self.held.push(hold);
            self.pending.swap_remove(at);
        }
    }

    fn cancel(&mut self, at: usize) {
        let Pending { id, key, want, request, .. } = self.pending.swap_remove(at);
        self.met.cancels += 1;
        match want {
            Want::Upgrade => {
                self.log.call_all(|| drop(request), |()| [(key, Op::StopUpgrade(id)), (key, Op::EndUpgrade(id))]);
            }
            _ => self.log.call(key, || drop(request), |()| Op::Cancel { id, want }),
        }
    }

    fn release(&mut self, at: usize, fair: bool) {
        let hold = self.held.swap_remove(at);
        let (key, held) = (hold.key(), hold.want());
        let fair = fair && matches!(held, Want::Write | Want::Permits(_));
        self.log.call(key, || if fair { hold.unlock_fair() } else { drop(hold) }, |()| Op::Release { held, fair });
    }

    /// Splits one permit off several, which the table does not notice.
    fn split(&mut self) {
        let part =
            self.held.iter_mut().find_map(|hold| if let Hold::Permit(guard) = hold { guard.split(1) } else { None });
        self.held.extend(part.map(Hold::Permit));
    }

    /// Merges the permits of one key into one hold.
    fn merge(&mut self) {
        let Some(Hold::Permit(mut guard)) = take(&mut self.held, |hold| matches!(hold, Hold::Permit(_))) else {
            return;
        };
        while let Some(at) = self.held.iter().position(|hold| hold.key() == *guard.key()) {
            if let Hold::Permit(other) = self.held.swap_remove(at) {
                guard.merge(other);
            }
        }
        self.held.push(Hold::Permit(guard));
    }

    /// Upgrades or downgrades a hold.
    fn change(&mut self, how: u64) {
        let at = self.held.iter().position(|hold| matches!(hold, Hold::Upgradable(_) | Hold::Write(_)));
        let hold = self.held.swap_remove(at.expect("the caller has looked"));
        let (key, from) = (hold.key(), hold.want());
        let change = |to| move |_: &Hold| Op::Change { from, to };
        self.met.changes += 1;
        let hold = match (hold, how) {
            (Hold::Write(guard), 0..3) => {
                self.log.call(key, || Hold::Upgradable(guard.downgrade_to_upgradable()), change(Want::Upgradable))
            }
            (Hold::Write(guard), _) => self.log.call(key, || Hold::Read(guard.downgrade()), change(Want::Read)),
            (Hold::Upgradable(guard), 0) => self.log.call(key, || Hold::Read(guard.downgrade()), change(Want::Read)),
            (Hold::Upgradable(guard), 1) => {
                let tried = self.log.call(
                    key,
                    || guard.try_upgrade(),
                    |tried| Op::Try { want: Want::Upgrade, got: tried.is_ok() },
                );
                tried.map_or_else(Hold::Upgradable, Hold::Write)
            }
            (Hold::Upgradable(mut guard), 2) => {
                self.upgrade_mut(key, &mut guard);
                Hold::Upgradable(guard)
            }
            (Hold::Upgradable(guard), _) => {
                let id = self.log.id();
                let request = Request::Upgrade(guard.upgrade());
                let bell = Bell::new().0;
                let want = Want::Upgrade;
                self.pending.push(Pending { id, key, want, priority: 0, request, bell, polled: false, woken: false });
                return self.poll(self.pending.len() - 1);
            }
            (hold, _) => hold,
        };
        self.held.push(hold);
    }

    /// Starts an upgrade that borrows the guard, polls it once, and drops it.
    fn upgrade_mut(&mut self, key: u64, guard: &mut UpgradableGuardArc<u64, Hasher>) {
        let (id, want) = (self.log.id(), Want::Upgrade);
        let mut future = guard.upgrade_mut();
        let poll = self.log.call(
            key,
            || poll_with(&mut future, std::task::Waker::noop()),
            |poll| Op::Poll { id, want, priority: 0, ready: poll.is_ready() },
        );
        self.met.upgrades[usize::from(poll.is_ready())] += 1;
        match poll {
            Poll::Ready(hold) => {
                let back = Op::Change { from: Want::Write, to: Want::Upgradable };
                self.log.call(key, || drop(hold), |()| back);
            }
            Poll::Pending => self.log.call(key, || drop(future), |()| Op::GiveUp { id, want }),
        }
    }

    /// Polls the requests that were woken, as an executor does, until none is left.
    fn run(&mut self) {
        while let Some(at) = self.pending.iter_mut().position(|pending| {
            pending.woken |= pending.bell.take() > 0;
            pending.polled && pending.woken
        }) {
            self.pending[at].woken = false;
            self.poll(at);
        }
    }
}

/// Finishes the walks when no other caller is active, and checks that all required wake-ups happened and nothing is
/// left. Returns the records of all, and the numbers of events.
pub fn finish(mut walks: Vec<Walk>, fairness: Fairness) -> (Vec<Record>, Met) {
    let mut all = walks.pop().expect("there is a walk");
    for walk in walks {
        all.pending.extend(walk.pending);
        all.held.extend(walk.held);
        all.log.records.extend(walk.log.records);
        all.met += walk.met;
    }
    all.handle = None;
    if all.changes_permits {
        (0..all.keys).for_each(|key| all.set_permits(key, 4));
    }
    // The walks have polled with different wakers: wake-ups before the last poll do not count, later ones do.
    loop {
        all.run();
        check_quiet(&all, fairness);
        match all.held.len() {
            0 => break,
            held => all.release(held - 1, held % 3 == 0),
        }
    }
    all.pending.retain(|pending| pending.polled);
    assert!(all.pending.is_empty(), "a request sleeps although nothing is held: {:?}", all.log.records);
    assert_eq!(all.table.len(), 0, "an entry remained");
    (all.log.records, all.met)
}

/// Checks, after all woken requests have been polled, that each remaining waiter has a reason to wait.
fn check_quiet(walk: &Walk, fairness: Fairness) {
    for key in 0..walk.keys {
        let Some(status) = walk.table.status(key) else { continue };
        let held = walk.held.iter().filter(|hold| hold.key() == key);
        let holders: usize = held.map(|hold| hold.want().weight()).sum();
        let upgrading = walk.pending.iter().filter(|pending| pending.key == key && pending.want == Want::Upgrade);
        assert_eq!(
            status.holders(),
            holders + upgrading.count(),
            "a request was granted a hold and not woken: {status:?}"
        );
        assert!(
            holders > 0 || status.waiters() == 0 || status.upgradable() > 0,
            "a request waits although nothing keeps it out: {status:?}"
        );
        let kept_out = status.writers() + status.waiting_writers() + status.waiting_upgrades() > 0;
        assert!(
            kept_out || status.waiting_readers() == 0 || fairness == Fairness::Fifo,
            "readers wait although nothing keeps them out: {status:?}"
        );
        assert!(
            status.waiting_upgrades() == 0 || status.readers() > 0,
            "an upgrade waits although nothing keeps it out: {status:?}"
        );
    }
}
