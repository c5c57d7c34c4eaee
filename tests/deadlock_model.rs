//! Random schedules of parties and of untracked callers, against a model of deadlocks.
//!
//! The model knows the holders, the waiters in the order in which they began to wait, and the policy, but not the
//! detector's state. It predicts for each request that begins to wait whether it is deadlocked. At the end of a
//! schedule, all parties that do not wait release their holds, again and again: then no request may be left.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use keylatch::deadlock::{Deadlock, Detector, Party, Tracked};
use keylatch::{Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, PermitGuardArc, UpgradableGuardArc, WriteGuardArc};
use proptest::prelude::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    Read,
    Upgradable,
    Write,
    Permits(usize),
}
use Access::{Permits, Read, Upgradable, Write};

/// A table and a key.
type Entry = (usize, u64);
const MUTEX: usize = 0;
const SEMAPHORE: usize = 2;
const LIMIT: usize = 3;
const PARTIES: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    who: Option<usize>,
    entry: Entry,
    access: Access,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wait {
    who: Option<usize>,
    entry: Entry,
    access: Access,
    /// 0, or so high that a waiter without a priority does not rise above it in a short schedule.
    priority: u8,
    /// The upgradable hold, if this wait is for an upgrade.
    of: Option<usize>,
}

impl Wait {
    /// The place of the wait with this number among others: a lower one comes first.
    fn place(&self, id: usize) -> (bool, Reverse<u8>, usize) {
        (self.of.is_none(), Reverse(self.priority), id)
    }

    fn is_writer(&self) -> bool {
        self.access == Write && self.of.is_none()
    }
}

/// The holds, and the waits in the order in which they began.
#[derive(Clone, Default, Debug)]
struct Model {
    holds: BTreeMap<usize, Held>,
    waits: BTreeMap<usize, Wait>,
    /// The waiting writers that a later upgradable reader has passed in a readers' phase. A writer is passed in only
    /// one phase.
    passed: BTreeSet<usize>,
}

impl Model {
    fn waits_somewhere(&self, who: usize) -> bool {
        self.waits.values().any(|wait| wait.who == Some(who))
    }

    fn allows(&self, wait: &Wait) -> bool {
        let beside = || self.holds.iter().filter(|&(id, held)| held.entry == wait.entry && Some(*id) != wait.of);
        match wait.access {
            Read => beside().all(|(_, held)| held.access != Write),
            Upgradable => beside().all(|(_, held)| held.access == Read),
            Write => beside().next().is_none(),
            Permits(n) => {
                let held = |held: &Held| if let Permits(n) = held.access { n } else { 0 };
                n + beside().map(|(_, other)| held(other)).sum::<usize>() <= LIMIT
            }
        }
    }

    fn grant(&mut self, id: usize) {
        let Wait { who, entry, access, of, .. } = self.waits.remove(&id).unwrap();
        self.holds.insert(of.unwrap_or(id), Held { who, entry, access });
    }

    /// Records that an upgradable reader that has waited is admitted. Returns `false` if the writer that came before it
    /// was passed already.
    fn passes(&mut self, id: usize, entry: Entry) -> bool {
        let place = self.waits[&id].place(id);
        let writers = self.waits.iter().filter(|(_, wait)| wait.entry == entry && wait.is_writer());
        let first = writers.map(|(id, wait)| wait.place(*id)).min().filter(|writer| *writer < place);
        first.is_none_or(|(.., writer)| self.passed.insert(writer))
    }

    /// Admits waiters of an entry. `phase` is set if a writer has just left.
    fn serve(&mut self, entry: Entry, fairness: Fairness, phase: bool) {
        let queue = || self.waits.iter().filter(|(_, wait)| wait.entry == entry).map(|(id, wait)| (*id, *wait));
        let mut queue = queue().collect::<Vec<_>>();
        queue.sort_by_key(|(id, wait)| wait.place(*id));
        let phases = matches!(fairness, Fairness::Adaptive | Fairness::Bounded(_));
        let reads = |wait: &Wait| wait.access == Read;
        if phase && phases && queue.iter().any(|(_, wait)| matches!(wait.access, Read | Upgradable)) {
            // A reader does not pass a writer of a higher priority.
            let rival = queue.iter().position(|(_, wait)| wait.is_writer());
            let joins =
                |at: usize| rival.is_none_or(|rival| at < rival || queue[at].1.priority >= queue[rival].1.priority);
            let any = (0..queue.len()).any(|at| reads(&queue[at].1) && joins(at));
            let upgradable = queue.iter().find(|(_, wait)| wait.access == Upgradable).map(|(id, _)| *id);
            for (at, (id, wait)) in queue.iter().enumerate() {
                let enters = reads(wait) || (any || fairness != Fairness::Adaptive) && Some(*id) == upgradable;
                if enters && joins(at) && self.allows(wait) && (reads(wait) || self.passes(*id, entry)) {
                    self.grant(*id);
                }
            }
            return;
        }
        for (id, wait) in queue {
            if self.allows(&wait) {
                self.grant(id);
                if wait.access == Write {
                    return;
                }
            } else if fairness == Fairness::Fifo || !matches!(wait.access, Read | Upgradable) {
                return;
            }
        }
    }

    /// Returns the requests that wait for ever even if every party that does not wait releases its holds.
    fn deadlocked(&self, fairness: Fairness) -> BTreeSet<usize> {
        let mut model = self.clone();
        loop {
            let before = (model.holds.len(), model.waits.len());
            let leaves = |model: &Model, held: &Held| held.who.is_none_or(|who| !model.waits_somewhere(who));
            let gone = model.holds.iter().filter(|(_, held)| leaves(&model, held));
            let gone = gone.map(|(id, held)| (*id, *held)).collect::<Vec<_>>();
            for (id, _) in &gone {
                model.holds.remove(id);
            }
            let entries = model.waits.values().map(|wait| wait.entry).collect::<BTreeSet<_>>();
            for entry in entries {
                let phase = gone.iter().any(|(_, held)| held.entry == entry && held.access == Write);
                model.serve(entry, fairness, phase);
            }
            if before == (model.holds.len(), model.waits.len()) {
                return model.waits.keys().copied().collect();
            }
        }
    }
}

enum Guard {
    Upgradable(Tracked<UpgradableGuardArc<u64>>),
    Write(Tracked<WriteGuardArc<u64>>),
    Permits(Tracked<PermitGuardArc<u64>>),
    Other(#[allow(dead_code)] Box<dyn Any>),
}

type Request = Pin<Box<dyn Future<Output = Result<Guard, (Deadlock, Option<Guard>)>>>>;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct World {
    fairness: Fairness,
    locks: Arc<KeyedMutex<u64>>,
    pages: Arc<KeyedRwLock<u64>>,
    hosts: Arc<KeyedSemaphore<u64>>,
    parties: Vec<Party>,
    model: Model,
    guards: BTreeMap<usize, Guard>,
    requests: BTreeMap<usize, (Request, Arc<Woken>)>,
    next: usize,
    /// Whether there may be a cycle that only a later grant completes, so that it is found only then: an upgrade, a
    /// cancellation, a request that passes others by its priority, or a reader that enables an upgradable reader to be
    /// admitted has changed the order of service.
    ahead: bool,
    failures: usize,
}

fn name(who: usize) -> String {
    format!("party {who}")
}

macro_rules! request {
    ($world:ident, $who:ident, $future:expr, $guard:expr) => {{
        let future = $future;
        match $who {
            None => Box::pin(async move { Ok(Guard::Other(Box::new(future.await))) }) as Request,
            Some(who) => {
                let tracked = $world.parties[who].acquire(future);
                Box::pin(async move { tracked.await.map($guard).map_err(|deadlock| (deadlock, None)) })
            }
        }
    }};
}

impl World {
    fn new(fairness: Fairness) -> Self {
        let detector = Detector::new();
        World {
            fairness,
            locks: Arc::new(KeyedMutex::builder().fairness(fairness).build()),
            pages: Arc::new(KeyedRwLock::builder().fairness(fairness).build()),
            hosts: Arc::new(KeyedSemaphore::builder(LIMIT).fairness(fairness).build()),
            parties: (0..PARTIES).map(|who| detector.party(name(who))).collect(),
            model: Model::default(),
            guards: BTreeMap::new(),
            requests: BTreeMap::new(),
            next: 0,
            ahead: false,
            failures: 0,
        }
    }

    fn statuses(&self) -> String {
        let keys = || 0..2;
        let locks = keys().map(|key| self.locks.status(&key)).collect::<Vec<_>>();
        let pages = keys().map(|key| self.pages.status(&key)).collect::<Vec<_>>();
        let hosts = keys().map(|key| self.hosts.status(&key)).collect::<Vec<_>>();
        format!("{locks:?} {pages:?} {hosts:?}")
    }

    fn begin(&mut self, who: Option<usize>, entry: Entry, access: Access, priority: u8) {
        let key = &entry.1;
        let request = match (entry.0, access) {
            (MUTEX, _) => {
                request!(self, who, self.locks.lock_arc(key).priority(priority), |guard| Guard::Other(Box::new(guard)))
            }
            (_, Read) => {
                request!(self, who, self.pages.read_arc(key).priority(priority), |guard| Guard::Other(Box::new(guard)))
            }
            (_, Upgradable) => {
                request!(self, who, self.pages.upgradable_read_arc(key).priority(priority), Guard::Upgradable)
            }
            (_, Write) => request!(self, who, self.pages.write_arc(key).priority(priority), Guard::Write),
            (_, Permits(1)) => request!(self, who, self.hosts.acquire_arc(key).priority(priority), Guard::Permits),
            (_, Permits(n)) => request!(self, who, self.hosts.acquire_n_arc(key, n).priority(priority), Guard::Permits),
        };
        self.begin_request(Wait { who, entry, access, priority, of: None }, request);
    }

    /// Polls a request for the first time. It must fail if it would be deadlocked, and only then.
    fn begin_request(&mut self, wait: Wait, request: Request) {
        let id = self.next;
        self.next += 1;
        self.ahead |= wait.access == Read && self.fairness == Fairness::Adaptive;
        let before = (self.statuses(), self.model.clone());
        self.model.waits.insert(id, wait);
        let stuck = self.model.deadlocked(self.fairness);
        self.requests.insert(id, (request, Arc::new(Woken(AtomicBool::new(false)))));
        match self.poll(id, false) {
            None => {
                assert!(self.ahead || !stuck.contains(&id), "{id} is deadlocked: {:?}", self.model);
                self.ahead |= wait.priority > 0;
            }
            Some(Err(deadlock)) => {
                let was = |model: &Model| format!("{model:?}");
                // The model does not know that an upgradable reader that has passed the writer at the head once does
                // not pass it again.
                let once = wait.access == Upgradable && !stuck.is_empty();
                assert!(stuck.contains(&id) || once, "{id} is not deadlocked: {:?} {deadlock}", before.1);
                assert_eq!((self.statuses(), was(&self.model)), (before.0, was(&before.1)));
                let mut then = before.1;
                then.waits.insert(id, wait);
                check_report(&then, wait, &deadlock);
            }
            Some(Ok(())) => {}
        }
        self.settle();
    }

    /// Returns `None` if the request still waits.
    fn poll(&mut self, id: usize, has_waited: bool) -> Option<Result<(), Deadlock>> {
        let Wait { entry, access, .. } = self.model.waits[&id];
        let (request, woken) = self.requests.get_mut(&id).unwrap();
        woken.0.store(false, Relaxed);
        let waker = Waker::from(Arc::clone(woken));
        let Poll::Ready(result) = request.as_mut().poll(&mut Context::from_waker(&waker)) else { return None };
        self.requests.remove(&id);
        let hold = self.model.waits[&id].of.unwrap_or(id);
        match result {
            Ok(guard) => {
                if access == Upgradable && has_waited {
                    self.model.passes(id, entry);
                }
                self.model.grant(id);
                self.guards.insert(hold, guard);
                Some(Ok(()))
            }
            Err((deadlock, guard)) => {
                self.failures += 1;
                self.model.waits.remove(&id);
                self.guards.extend(guard.map(|guard| (hold, guard)));
                Some(Err(deadlock))
            }
        }
    }

    /// Polls all woken requests.
    fn settle(&mut self) {
        while let Some(id) = self.requests.iter().find(|(_, (_, woken))| woken.0.load(Relaxed)).map(|(id, _)| *id) {
            self.poll_woken(id);
        }
        let stuck = self.model.deadlocked(self.fairness);
        self.ahead &= !stuck.is_empty();
        assert!(stuck.is_empty() || self.ahead, "{stuck:?} are deadlocked: {:?}", self.model);
    }

    fn poll_woken(&mut self, id: usize) {
        let (wait, then) = (self.model.waits[&id], self.model.clone());
        if let Some(Err(deadlock)) = self.poll(id, true) {
            self.ahead = true;
            // The request failed because its party acquired another key, by another request.
            let who = wait.who.unwrap();
            let others =
                self.model.waits.values().map(|wait| wait.who).chain(self.model.holds.values().map(|held| held.who));
            assert!(others.into_iter().any(|other| other == Some(who)), "{deadlock}");
            assert_eq!(deadlock.cycle()[0].key(), wait.entry.1.to_string(), "{deadlock}: {then:?}");
        }
    }

    fn release(&mut self, id: usize) {
        self.model.holds.remove(&id);
        drop(self.guards.remove(&id));
        self.settle();
    }

    fn cancel(&mut self, id: usize) {
        let wait = self.model.waits.remove(&id).unwrap();
        if let Some(hold) = wait.of {
            self.model.holds.remove(&hold);
        }
        self.requests.remove(&id);
        self.ahead = true;
        self.settle();
    }

    /// Upgrades, downgrades or splits a guard.
    fn change(&mut self, id: usize, how: u8) {
        let Some(guard) = self.guards.remove(&id) else { return };
        self.ahead = true;
        let Held { who, entry, .. } = self.model.holds[&id];
        let (guard, access) = match guard {
            Guard::Upgradable(guard) if how > 0 => {
                let upgrade = guard.upgrade();
                let request = Box::pin(async move {
                    let result = upgrade.await;
                    result.map(Guard::Write).map_err(|(deadlock, guard)| (deadlock, Some(Guard::Upgradable(guard))))
                });
                return self.begin_request(Wait { who, entry, access: Write, priority: 0, of: Some(id) }, request);
            }
            Guard::Upgradable(guard) => (Guard::Other(Box::new(guard.downgrade())), Read),
            Guard::Write(guard) if how > 0 => (Guard::Upgradable(guard.downgrade_to_upgradable()), Upgradable),
            Guard::Write(guard) => (Guard::Other(Box::new(guard.downgrade())), Read),
            Guard::Permits(mut guard) => {
                if let Some(part) = guard.split(1) {
                    let id = self.next;
                    self.next += 1;
                    self.guards.insert(id, Guard::Permits(part));
                    self.model.holds.insert(id, Held { who, entry, access: Permits(1) });
                }
                let rest = guard.permits();
                (Guard::Permits(guard), Permits(rest))
            }
            Guard::Other(guard) => (Guard::Other(guard), self.model.holds[&id].access),
        };
        self.guards.insert(id, guard);
        self.model.holds.get_mut(&id).unwrap().access = access;
        self.settle();
    }

    /// Releases the holds of all parties that do not wait, again and again, until no request is left.
    fn end(mut self) {
        loop {
            let leaves = |held: &Held| held.who.is_none_or(|who| !self.model.waits_somewhere(who));
            let Some(id) = self.model.holds.iter().find(|(_, held)| leaves(held)).map(|(id, _)| *id) else { break };
            self.release(id);
        }
        assert!(self.model.waits.is_empty(), "left: {:?}", self.model);
        assert!(self.locks.is_empty() && self.pages.is_empty() && self.hosts.is_empty());
    }
}

/// Checks that in each link the party waits for this key, and that the next party holds it or waits for it, too.
fn check_report(model: &Model, failed: Wait, deadlock: &Deadlock) {
    let links = deadlock.cycle();
    assert_eq!(links[0].party(), name(failed.who.unwrap()));
    for (at, link) in links.iter().enumerate() {
        let next = links[(at + 1) % links.len()].party();
        let table = ["KeyedMutex", "KeyedRwLock", "KeyedSemaphore"].iter().position(|name| link.table().contains(name));
        let entry = (table.unwrap(), link.key().parse().unwrap());
        let is = |who: Option<usize>, party: &str| who.is_some_and(|who| name(who) == party);
        assert!(model.waits.values().any(|wait| wait.entry == entry && is(wait.who, link.party())), "{deadlock}");
        let holds = model.holds.values().any(|held| held.entry == entry && is(held.who, next));
        let waits = model.waits.values().any(|wait| wait.entry == entry && is(wait.who, next));
        assert!(holds || waits, "{deadlock}: {model:?}");
        if at == 0 {
            assert_eq!(entry, failed.entry);
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Begin(Option<usize>, Entry, Access, u8),
    Release(usize),
    Cancel(usize),
    Come(usize),
    Change(usize, u8),
}

/// Runs a schedule. If `single` is set, a party that waits makes no other request.
fn run(fairness: Fairness, single: bool, ops: &[Op]) -> usize {
    let mut world = World::new(fairness);
    fn pick<T>(map: &BTreeMap<usize, T>, n: usize) -> Option<usize> {
        map.keys().nth(n % map.len().max(1)).copied()
    }
    for op in ops {
        match *op {
            Op::Begin(Some(who), ..) if single && world.model.waits_somewhere(who) => {}
            Op::Begin(who, entry, access, priority) => world.begin(who, entry, access, priority),
            Op::Release(n) => {
                let Some(id) = pick(&world.guards, n) else { continue };
                world.release(id);
            }
            Op::Cancel(n) => {
                let Some(id) = pick(&world.requests, n) else { continue };
                world.cancel(id);
            }
            Op::Come(n) => {
                let Some(id) = pick(&world.requests, n) else { continue };
                world.poll_woken(id);
                world.settle();
            }
            Op::Change(n, how) => {
                let Some(id) = pick(&world.guards, n) else { continue };
                let who = world.model.holds[&id].who;
                if !(single && who.is_some_and(|who| world.model.waits_somewhere(who))) {
                    world.change(id, how);
                }
            }
        }
    }
    let failures = world.failures;
    world.end();
    failures
}

fn request(tables: std::ops::Range<usize>) -> impl Strategy<Value = (Entry, Access)> {
    (tables, 0..2_u64, 0..6_u8, 1..=LIMIT).prop_map(|(table, key, kind, n)| {
        let access = match (table, kind) {
            (MUTEX, _) => Write,
            (SEMAPHORE, _) => Permits(n),
            (_, 0..=2) => Read,
            (_, 3) => Upgradable,
            _ => Write,
        };
        ((table, key), access)
    })
}

fn op(tables: std::ops::Range<usize>) -> impl Strategy<Value = Op> {
    let priority = prop_oneof![2 => Just(0), 1 => Just(100)];
    let who = prop_oneof![8 => (0..PARTIES).prop_map(Some), 2 => Just(None)];
    prop_oneof![
        10 => (who, request(tables), priority).prop_map(|(who, (entry, access), priority)| {
            // A cycle that an untracked request completes by its priority is not found.
            Op::Begin(who, entry, access, if who.is_some() { priority } else { 0 })
        }),
        2 => any::<usize>().prop_map(Op::Release),
        1 => any::<usize>().prop_map(Op::Cancel),
        1 => any::<usize>().prop_map(Op::Come),
        3 => (any::<usize>(), 0..3_u8).prop_map(|(n, how)| Op::Change(n, how)),
    ]
}

fn policy() -> impl Strategy<Value = Fairness> {
    use Fairness::{Adaptive, Barging, Bounded, Fifo};
    prop_oneof![Just(Adaptive), Just(Bounded(0)), Just(Bounded(2)), Just(Fifo), Just(Barging)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { std::env::var("KEYLATCH_CASES").map_or(2000, |cases| cases.parse().unwrap()) }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutexes_with_one_request_of_each_party(fairness in policy(), ops in prop::collection::vec(op(MUTEX..1), 1..40)) {
        run(fairness, true, &ops);
    }

    #[test]
    fn all_tables_with_one_request_of_each_party(fairness in policy(), ops in prop::collection::vec(op(MUTEX..3), 1..60)) {
        run(fairness, true, &ops);
    }

    #[test]
    fn all_tables_with_several_requests_of_each_party(fairness in policy(), ops in prop::collection::vec(op(MUTEX..3), 1..60)) {
        run(fairness, false, &ops);
    }

    #[test]
    fn one_reader_writer_lock_and_a_mutex(fairness in policy(), ops in prop::collection::vec(op(MUTEX..2), 1..60)) {
        run(fairness, false, &ops);
    }
}

/// An upgradable reader passes a writer that came earlier in one phase only.
#[test]
fn a_writer_that_was_passed_once_is_not_passed_again() {
    let ops = [
        Op::Begin(Some(1), (0, 0), Write, 0),
        Op::Begin(None, (1, 1), Write, 0),
        Op::Begin(Some(2), (1, 1), Read, 0),
        Op::Begin(Some(1), (1, 1), Write, 0),
        Op::Begin(Some(3), (1, 1), Upgradable, 0),
        Op::Release(1),
        Op::Begin(Some(0), (1, 1), Upgradable, 0),
        Op::Change(2, 1),
        Op::Begin(Some(0), (0, 0), Write, 0),
    ];
    for fairness in [Fairness::Bounded(0), Fairness::Bounded(16), Fairness::Adaptive] {
        assert_eq!(run(fairness, false, &ops), 0);
    }
}

/// An upgrade that is granted and released has also released its upgradable hold by the time a phase begins behind
/// it.
#[test]
fn an_upgradable_reader_behind_an_upgrade_is_admitted_in_its_phase() {
    let ops = [
        Op::Begin(Some(1), (0, 0), Write, 0),
        Op::Begin(Some(2), (1, 0), Read, 0),
        Op::Begin(Some(1), (1, 0), Write, 0),
        Op::Begin(Some(3), (1, 0), Upgradable, 0),
        Op::Change(2, 1),
        Op::Begin(Some(0), (1, 0), Upgradable, 0),
        Op::Begin(Some(0), (0, 0), Write, 0),
    ];
    for fairness in [Fairness::Bounded(2), Fairness::Bounded(16)] {
        assert_eq!(run(fairness, false, &ops), 1);
    }
}
