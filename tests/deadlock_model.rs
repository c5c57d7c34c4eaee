//! Random schedules of parties and of untracked callers, against a model of deadlocks.
//!
//! The model knows the holders, the waiters in the order in which they began to wait, and the policy, but not the
//! detector's state. It predicts for each request that begins to wait whether it is deadlocked. An attempt may fail
//! only if it would have had to wait. At the end of a schedule, all parties that do not wait keep releasing their
//! holds. After that, no request may be left.
//!
//! A call for both keys of a table is modelled as a request for one key after the other, in the order of the table,
//! which the test determines beforehand. The first key is its party's hold while it waits for the second.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use keylatch::deadlock::{
    Adoptable, Deadlock, Detector, Party, Refused, Trackable, Tracked, TrackedAcquire, TrackedMany,
};
use keylatch::mode::Mode;
use keylatch::table::TablePtr;
use keylatch::{
    Fairness, Guards, KeyHandleArc, KeyedMutex, KeyedRwLock, KeyedSemaphore, MutexGuardArc, PermitGuardArc,
    ReadGuardArc, UpgradableGuardArc, WriteGuardArc,
};
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
    /// The upgradable hold, if this wait is for an upgrade.
    of: Option<usize>,
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
        let Wait { who, entry, access, of } = self.waits.remove(&id).unwrap();
        self.holds.insert(of.unwrap_or(id), Held { who, entry, access });
    }

    /// Records that an upgradable reader that has waited is admitted. Returns `false` if the writer that came before it
    /// has been passed already.
    fn passes(&mut self, id: usize, entry: Entry) -> bool {
        let is_writer = |wait: &Wait| wait.entry == entry && wait.access == Write && wait.of.is_none();
        let writer = self.waits.range(..id).find(|(_, wait)| is_writer(wait)).map(|(id, _)| *id);
        writer.is_none_or(|writer| self.passed.insert(writer))
    }

    /// Admits waiters of an entry. `phase` is set if a writer has just left.
    fn serve(&mut self, entry: Entry, fairness: Fairness, phase: bool) {
        let queue = || self.waits.iter().filter(|(_, wait)| wait.entry == entry).map(|(id, wait)| (*id, *wait));
        let mut queue = queue().collect::<Vec<_>>();
        queue.sort_by_key(|(_, wait)| wait.of.is_none());
        let phases = matches!(fairness, Fairness::Adaptive | Fairness::Bounded(_));
        let reads = |wait: &Wait| wait.access == Read;
        if phase && phases && queue.iter().any(|(_, wait)| matches!(wait.access, Read | Upgradable)) {
            let any = queue.iter().any(|(_, wait)| reads(wait));
            let upgradable = queue.iter().find(|(_, wait)| wait.access == Upgradable).map(|(id, _)| *id);
            for (id, wait) in &queue {
                let enters = reads(wait) || (any || fairness != Fairness::Adaptive) && Some(*id) == upgradable;
                if enters && self.allows(wait) && (reads(wait) || self.passes(*id, entry)) {
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

/// A guard, tracked or not.
enum Own<G> {
    Plain(G),
    Tracked(Tracked<G>),
}

impl<G: Adoptable<Tracked = Tracked<G>>> Own<G> {
    /// Passes the hold on to a party, or to an untracked caller.
    fn pass(self, to: Option<&Party>) -> Self {
        let guard = match self {
            Own::Plain(guard) => guard,
            Own::Tracked(guard) => guard.into_inner(),
        };
        match to {
            Some(party) => Own::Tracked(party.adopt(guard)),
            None => Own::Plain(guard),
        }
    }
}

impl<P: TablePtr<Key = u64>, M: Mode> Own<keylatch::Guard<P, M>> {
    fn key(&self) -> u64 {
        match self {
            Own::Plain(guard) => *guard.key(),
            Own::Tracked(guard) => *guard.key(),
        }
    }
}

/// Makes the enum of the guards of all locks, and the conversion of the outputs of requests into these guards.
macro_rules! guards {
    ($($Variant:ident $Guard:ident),+) => {
        enum Guard {
            $($Variant(Own<$Guard<u64>>),)+
        }

        impl Guard {
            fn key(&self) -> u64 {
                match self {
                    $(Guard::$Variant(guard) => guard.key(),)+
                }
            }

            fn pass(self, to: Option<&Party>) -> Self {
                match self {
                    $(Guard::$Variant(guard) => Guard::$Variant(guard.pass(to)),)+
                }
            }
        }

        $(
            impl Acquired for $Guard<u64> {
                fn guards(self) -> Vec<Guard> {
                    vec![Guard::$Variant(Own::Plain(self))]
                }
            }

            impl Acquired for Tracked<$Guard<u64>> {
                fn guards(self) -> Vec<Guard> {
                    vec![Guard::$Variant(Own::Tracked(self))]
                }
            }
        )+
    };
}

guards!(
    Mutex MutexGuardArc, Read ReadGuardArc, Upgradable UpgradableGuardArc, Write WriteGuardArc, Permits PermitGuardArc
);

/// The output of a request.
trait Acquired {
    fn guards(self) -> Vec<Guard>;
}

impl<P: TablePtr, M: Mode> Acquired for Guards<P, M>
where
    keylatch::Guard<P, M>: Acquired,
{
    fn guards(self) -> Vec<Guard> {
        self.into_iter().flat_map(Acquired::guards).collect()
    }
}

impl<P: TablePtr, M: Mode> Acquired for TrackedMany<Guards<P, M>>
where
    Tracked<keylatch::Guard<P, M>>: Acquired,
{
    fn guards(self) -> Vec<Guard> {
        self.into_iter().flat_map(Acquired::guards).collect()
    }
}

impl<A: Acquired, B: Acquired> Acquired for (A, B) {
    fn guards(self) -> Vec<Guard> {
        self.0.guards().into_iter().chain(self.1.guards()).collect()
    }
}

/// The failure of a request. `deadlock` is `None` if its limit was reached. A failed upgrade returns its guard.
struct Failure {
    deadlock: Option<Deadlock>,
    guard: Option<Guard>,
}

impl From<Refused<()>> for Failure {
    fn from(refused: Refused<()>) -> Self {
        let deadlock = match refused {
            Refused::Deadlock(deadlock) => Some(deadlock),
            Refused::Limit(()) => None,
        };
        Failure { deadlock, guard: None }
    }
}

type Outcome = Result<Vec<Guard>, Failure>;

/// A limit, which is reached when the schedule says so.
#[derive(Clone, Default)]
struct Limit(Arc<AtomicBool>);

impl Future for Limit {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.0.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The way in which a request waits. Attempts, and requests that are late, do not begin to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Wait,
    Limited,
    Try,
    /// A future whose limit has been reached already.
    Late,
    /// A thread whose deadline has passed already.
    LateThread,
}

struct Request {
    future: Pin<Box<dyn Future<Output = Outcome>>>,
    woken: Arc<Woken>,
    limit: Option<Limit>,
    /// The key that a call for several keys requests after the one that it waits for.
    next: Option<(Entry, Access)>,
    /// The hold that a call for several keys has acquired.
    held: Option<usize>,
}

impl Request {
    fn new(future: impl Future<Output = Outcome> + 'static, limit: Option<Limit>) -> Self {
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        Request { future: Box::pin(future), woken, limit, next: None, held: None }
    }
}

/// The result of a poll of a request.
enum Polled {
    /// It waits, under this number.
    Waits(usize),
    Acquired,
    /// Its limit was reached.
    Expired,
    /// It failed, either while it waited under this number, or when it would have begun to wait under it. The model is
    /// a copy from that moment.
    Failed(Deadlock, usize, Model),
}

/// A request that has been made: it may wait, or it is done, with its guards or, if it failed without waiting, `None`.
enum Asked {
    Waiting(Request),
    Done(Option<Vec<Guard>>),
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

type Handles =
    ([KeyHandleArc<KeyedMutex<u64>>; 2], [KeyHandleArc<KeyedRwLock<u64>>; 2], [KeyHandleArc<KeyedSemaphore<u64>>; 2]);

struct World {
    fairness: Fairness,
    locks: Arc<KeyedMutex<u64>>,
    pages: Arc<KeyedRwLock<u64>>,
    hosts: Arc<KeyedSemaphore<u64>>,
    parties: Vec<Party>,
    model: Model,
    guards: BTreeMap<usize, Guard>,
    requests: BTreeMap<usize, Request>,
    /// The handles that keep the order of the keys of each table, and that order, if there are calls for several keys.
    order: Option<(Handles, [[u64; 2]; 3])>,
    next: usize,
    /// Whether there may be a cycle that only a later grant completes, and that is therefore found only then. This can
    /// happen when the order of service has changed: by an upgrade, by a cancellation, or by a reader that enables an
    /// upgradable reader to be admitted.
    ahead: bool,
    failures: usize,
}

fn name(who: usize) -> String {
    format!("party {who}")
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
            order: None,
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

    /// Returns whether the caller waits, and so must not make another request: in any case if `single` is set,
    /// otherwise only if it waits in a call for several keys.
    fn is_busy(&self, who: Option<usize>, single: bool) -> bool {
        let of_several = |(id, request): (&usize, &Request)| {
            self.model.waits[id].who == who && (request.next.is_some() || request.held.is_some())
        };
        who.is_some_and(|who| self.model.waits_somewhere(who)) && (single || self.requests.iter().any(of_several))
    }

    fn waiters(&self, (table, key): Entry) -> usize {
        let status = match table {
            MUTEX => self.locks.status(&key),
            SEMAPHORE => self.hosts.status(&key),
            _ => self.pages.status(&key),
        };
        status.map_or(0, |status| status.waiters())
    }

    /// Makes the calls for several keys possible: finds the order of the keys of each table.
    fn find_order(&mut self) {
        fn handles<T>(handle: impl Fn(&u64) -> T) -> [T; 2] {
            [handle(&0), handle(&1)]
        }
        let (locks, pages, hosts) = (&self.locks, &self.pages, &self.hosts);
        let kept =
            (handles(|k| locks.handle_arc(k)), handles(|k| pages.handle_arc(k)), handles(|k| hosts.handle_arc(k)));
        let held = (
            handles(|k| locks.try_lock(k).unwrap()),
            handles(|k| pages.try_write(k).unwrap()),
            handles(|k| hosts.try_acquire_n(k, LIMIT).unwrap()),
        );
        let keys = [&0, &1];
        let probes = (locks.lock_many(keys), pages.write_many(keys), hosts.acquire_many(keys));
        let mut probes = (Box::pin(probes.0), Box::pin(probes.1), Box::pin(probes.2));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(probes.0.as_mut().poll(context).is_pending());
        assert!(probes.1.as_mut().poll(context).is_pending());
        assert!(probes.2.as_mut().poll(context).is_pending());
        // Each probe waits for the first key in the order of its table.
        let order = [0, 1, 2].map(|table| if self.waiters((table, 0)) == 1 { [0, 1] } else { [1, 0] });
        drop((probes, held));
        self.order = Some((kept, order));
    }

    /// Makes a request by a future of a table.
    fn ask<F>(&self, who: Option<usize>, how: How, mut future: F) -> Asked
    where
        F: Trackable<Tracked: Acquired> + Future<Output: Acquired> + Unpin + 'static,
        TrackedAcquire<F>: Future<Output = Result<F::Tracked, Deadlock>> + 'static,
    {
        let limit = (how == How::Limited).then(Limit::default);
        let until = limit.clone();
        let Some(party) = who.map(|who| &self.parties[who]) else {
            let waiting = async move {
                let Some(mut limit) = until else { return Ok(future.await.guards()) };
                std::future::poll_fn(|cx| match Pin::new(&mut future).poll(cx) {
                    Poll::Ready(output) => Poll::Ready(Ok(output.guards())),
                    Poll::Pending => Pin::new(&mut limit).poll(cx).map(|()| Err(Refused::Limit(()).into())),
                })
                .await
            };
            return Asked::Waiting(Request::new(waiting, limit));
        };
        match how {
            How::Wait => {
                let tracked = party.acquire(future);
                let waiting =
                    async move { tracked.await.map(Acquired::guards).map_err(|d| Refused::Deadlock(d).into()) };
                Asked::Waiting(Request::new(waiting, None))
            }
            How::Limited => {
                let tracked = party.acquire(future).until(until.unwrap());
                let waiting = async move { tracked.await.map(Acquired::guards).map_err(Failure::from) };
                Asked::Waiting(Request::new(waiting, limit))
            }
            How::Try => Asked::Done(party.try_acquire(future).map(Acquired::guards)),
            How::LateThread => {
                let outcome = party.try_acquire_until(future, Instant::now());
                Asked::Done(outcome.expect("a late request does not wait").map(Acquired::guards))
            }
            How::Late => {
                let mut late = Box::pin(party.acquire(future).until(std::future::ready(())));
                match late.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Ok(output)) => Asked::Done(Some(output.guards())),
                    Poll::Ready(Err(Refused::Limit(()))) => Asked::Done(None),
                    _ => panic!("a late request begins to wait"),
                }
            }
        }
    }

    fn begin(&mut self, who: Option<usize>, entry: Entry, access: Access, how: How) {
        let key = &entry.1;
        let asked = match (entry.0, access) {
            (MUTEX, _) => self.ask(who, how, self.locks.lock_arc(key)),
            (_, Read) => self.ask(who, how, self.pages.read_arc(key)),
            (_, Upgradable) => self.ask(who, how, self.pages.upgradable_read_arc(key)),
            (_, Write) => self.ask(who, how, self.pages.write_arc(key)),
            (_, Permits(1)) => self.ask(who, how, self.hosts.acquire_arc(key)),
            (_, Permits(n)) => self.ask(who, how, self.hosts.acquire_n_arc(key, n)),
        };
        self.begin_asked(who, &[(entry, access)], asked);
    }

    /// Begins a call for both keys of a table.
    fn begin_several(&mut self, who: Option<usize>, table: usize, accesses: [Access; 2], how: How) {
        let keys = [&0, &1];
        let asked = match (table, accesses) {
            (MUTEX, _) => self.ask(who, how, self.locks.lock_many_arc(keys)),
            (SEMAPHORE, _) => self.ask(who, how, self.hosts.acquire_many_arc(keys)),
            (_, [Read, Read]) => self.ask(who, how, self.pages.read_many_arc(keys)),
            (_, [Write, Write]) => self.ask(who, how, self.pages.write_many_arc(keys)),
            (_, [Read, _]) => self.ask(who, how, self.pages.read_write_many_arc([&0], [&1])),
            (_, _) => self.ask(who, how, self.pages.read_write_many_arc([&1], [&0])),
        };
        let order = self.order.as_ref().unwrap().1[table];
        let asked_for = order.map(|key| ((table, key), accesses[key as usize]));
        self.begin_asked(who, &asked_for, asked);
    }

    fn begin_asked(&mut self, who: Option<usize>, asked_for: &[(Entry, Access)], asked: Asked) {
        let (entry, access) = asked_for[0];
        match asked {
            Asked::Waiting(mut request) => {
                request.next = asked_for.get(1).copied();
                self.begin_request(Wait { who, entry, access, of: None }, request);
            }
            Asked::Done(guards) => self.attempted(who, asked_for, guards),
        }
    }

    /// Records the outcome of a request that did not wait. It may fail only if a key was held, or if others waited for
    /// it.
    fn attempted(&mut self, who: Option<usize>, asked_for: &[(Entry, Access)], guards: Option<Vec<Guard>>) {
        let waits = asked_for.iter().map(|&(entry, access)| Wait { who, entry, access, of: None });
        let Some(mut guards) = guards else {
            let must_wait =
                |wait: Wait| !self.model.allows(&wait) || self.model.waits.values().any(|w| w.entry == wait.entry);
            assert!(waits.into_iter().any(must_wait), "{asked_for:?} failed: {:?}", self.model);
            return self.settle();
        };
        assert_eq!(guards.len(), asked_for.len());
        for wait in waits {
            let id = self.next;
            self.next += 1;
            self.model.waits.insert(id, wait);
            self.grant(id);
            let place = guards.iter().position(|guard| guard.key() == wait.entry.1).unwrap();
            self.guards.insert(id, guards.remove(place));
        }
        self.settle();
    }

    /// Polls a request for the first time. It must fail if it would be deadlocked, and only then, except where the
    /// model is not exact (`ahead` and `once`).
    fn begin_request(&mut self, wait: Wait, request: Request) {
        let id = self.next;
        self.next += 1;
        let reads = |access| access == Read && self.fairness == Fairness::Adaptive;
        self.ahead |= reads(wait.access) || request.next.is_some_and(|(_, access)| reads(access));
        let before = (self.statuses(), format!("{:?}", self.model));
        self.model.waits.insert(id, wait);
        self.requests.insert(id, request);
        match self.poll(id, false) {
            Polled::Waits(id) => {
                let stuck = self.model.deadlocked(self.fairness);
                assert!(self.ahead || !stuck.contains(&id), "{id} is deadlocked: {:?}", self.model);
            }
            Polled::Failed(deadlock, id, then) => {
                let stuck = then.deadlocked(self.fairness);
                // This part of the model does not know that an upgradable reader passes the writer at the head only
                // once.
                let once = wait.access == Upgradable && !stuck.is_empty();
                assert!(stuck.contains(&id) || once, "{id} is not deadlocked: {then:?} {deadlock}");
                assert_eq!((self.statuses(), format!("{:?}", self.model)), before);
                check_report(&then, then.waits[&id], &deadlock);
            }
            Polled::Acquired => {}
            Polled::Expired => panic!("a limit is reached only when the schedule says so"),
        }
        self.settle();
    }

    /// Records a hold, which must be compatible with the others.
    fn grant(&mut self, id: usize) {
        assert!(self.model.allows(&self.model.waits[&id]), "{id} was acquired: {:?}", self.model);
        self.model.grant(id);
    }

    /// Continues a call for several keys that has acquired the first key. Returns the number of its wait for the next.
    fn advance(&mut self, id: usize, request: &mut Request) -> usize {
        let Wait { who, .. } = self.model.waits[&id];
        self.grant(id);
        request.held = Some(id);
        let (entry, access) = request.next.take().unwrap();
        let id = self.next;
        self.next += 1;
        self.model.waits.insert(id, Wait { who, entry, access, of: None });
        id
    }

    fn poll(&mut self, id: usize, has_waited: bool) -> Polled {
        let wait = self.model.waits[&id];
        let mut request = self.requests.remove(&id).unwrap();
        request.woken.0.store(false, Relaxed);
        let waiters = |world: &Self, request: &Request| request.next.map_or(0, |(entry, _)| world.waiters(entry));
        let before = waiters(self, &request);
        let waker = Waker::from(Arc::clone(&request.woken));
        let outcome = match request.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                let waits_for_next = waiters(self, &request) > before;
                let id = if waits_for_next { self.advance(id, &mut request) } else { id };
                self.requests.insert(id, request);
                return Polled::Waits(id);
            }
        };
        match outcome {
            Ok(mut guards) => {
                let id = if request.next.is_some() { self.advance(id, &mut request) } else { id };
                if wait.access == Upgradable && has_waited {
                    self.model.passes(id, wait.entry);
                }
                self.grant(id);
                for hold in request.held.into_iter().chain([wait.of.unwrap_or(id)]) {
                    let key = self.model.holds[&hold].entry.1;
                    let has_key = |guard: &Guard| guard.key() == key;
                    assert_eq!(guards.iter().filter(|guard| has_key(guard)).count(), 1);
                    self.guards.insert(hold, guards.remove(guards.iter().position(has_key).unwrap()));
                }
                Polled::Acquired
            }
            Err(Failure { deadlock, guard }) => {
                // The report says for which of its keys a call for several keys waited.
                let failed_at = deadlock.as_ref().map(|deadlock| deadlock.cycle()[0].key().to_string());
                let advances = request.next.is_some_and(|(entry, _)| failed_at == Some(entry.1.to_string()));
                let id = if advances { self.advance(id, &mut request) } else { id };
                let then = self.model.clone();
                self.model.waits.remove(&id);
                request.held.map(|held| self.model.holds.remove(&held));
                self.guards.extend(guard.map(|guard| (wait.of.unwrap(), guard)));
                let Some(deadlock) = deadlock else { return Polled::Expired };
                self.failures += 1;
                Polled::Failed(deadlock, id, then)
            }
        }
    }

    fn first_woken(&self) -> Option<usize> {
        self.requests.iter().find(|(_, request)| request.woken.0.load(Relaxed)).map(|(id, _)| *id)
    }

    /// Polls all woken requests. Then compares the waiters with the model, and checks that no deadlock was missed.
    fn settle(&mut self) {
        while let Some(id) = self.first_woken() {
            self.poll_woken(id);
        }
        for entry in (MUTEX..=SEMAPHORE).flat_map(|table| [(table, 0), (table, 1)]) {
            let waits = self.model.waits.values().filter(|wait| wait.entry == entry).count();
            assert_eq!(self.waiters(entry), waits, "waiters of {entry:?}: {:?}", self.model);
        }
        let stuck = self.model.deadlocked(self.fairness);
        self.ahead &= !stuck.is_empty();
        assert!(stuck.is_empty() || self.ahead, "{stuck:?} are deadlocked: {:?}", self.model);
    }

    fn poll_woken(&mut self, id: usize) {
        let wait = self.model.waits[&id];
        let polled = self.poll(id, true);
        // While others are woken, the model does not know which of them have been granted their keys.
        let predicts = self.first_woken().is_none();
        match polled {
            Polled::Waits(new) if new != id && predicts => {
                let stuck = self.model.deadlocked(self.fairness);
                assert!(self.ahead || !stuck.contains(&new), "{new} is deadlocked: {:?}", self.model);
            }
            Polled::Failed(deadlock, new, then) if new != id => {
                let stuck = then.deadlocked(self.fairness);
                assert!(!predicts || stuck.contains(&new), "{new} is not deadlocked: {then:?} {deadlock}");
                check_report(&then, then.waits[&new], &deadlock);
            }
            Polled::Failed(deadlock, _, then) => {
                self.ahead = true;
                // The request failed because its party acquired another key, by another request.
                let who = wait.who.unwrap();
                let others = self.model.waits.values().map(|wait| wait.who);
                let others = others.chain(self.model.holds.values().map(|held| held.who));
                assert!(others.into_iter().any(|other| other == Some(who)), "{deadlock}");
                assert_eq!(deadlock.cycle()[0].key(), wait.entry.1.to_string(), "{deadlock}: {then:?}");
            }
            Polled::Expired => panic!("a limit is reached only when the schedule says so"),
            Polled::Waits(_) | Polled::Acquired => {}
        }
    }

    fn release(&mut self, id: usize) {
        self.model.holds.remove(&id);
        drop(self.guards.remove(&id));
        self.settle();
    }

    fn cancel(&mut self, id: usize) {
        let wait = self.model.waits.remove(&id).unwrap();
        let request = self.requests.remove(&id).unwrap();
        for hold in wait.of.into_iter().chain(request.held) {
            self.model.holds.remove(&hold);
        }
        drop(request);
        self.ahead = true;
        self.settle();
    }

    /// Lets a request reach its limit, so that it ends.
    fn expire(&mut self, id: usize) {
        let Some(limit) = &self.requests[&id].limit else { return };
        limit.0.store(true, Relaxed);
        self.ahead = true;
        assert!(!matches!(self.poll(id, true), Polled::Waits(_)), "{id} waits after its limit");
        self.settle();
    }

    /// Passes a hold on to a party, which adopts it, or to an untracked caller.
    fn pass(&mut self, id: usize, to: Option<usize>) {
        let guard = self.guards.remove(&id).unwrap().pass(to.map(|to| &self.parties[to]));
        self.guards.insert(id, guard);
        self.model.holds.get_mut(&id).unwrap().who = to;
        self.settle();
    }

    /// Upgrades, downgrades or splits a tracked guard.
    fn change(&mut self, id: usize, how: Change) {
        let Some(guard) = self.guards.remove(&id) else { return };
        self.ahead = true;
        let Held { who, entry, access } = self.model.holds[&id];
        let (guard, access) = match guard {
            Guard::Upgradable(Own::Tracked(guard)) => match how {
                Change::Down => (read(guard.downgrade()), Read),
                Change::Up | Change::UpLimited => {
                    return self.begin_request(Wait { who, entry, access: Write, of: Some(id) }, upgrade(guard, how));
                }
                Change::TryUp | Change::UpLate => return self.try_upgrade(id, guard, how),
            },
            Guard::Write(Own::Tracked(guard)) if how == Change::Down => (read(guard.downgrade()), Read),
            Guard::Write(Own::Tracked(guard)) => {
                (Guard::Upgradable(Own::Tracked(guard.downgrade_to_upgradable())), Upgradable)
            }
            Guard::Permits(Own::Tracked(mut guard)) => {
                if let Some(part) = guard.split(1) {
                    let id = self.next;
                    self.next += 1;
                    self.guards.insert(id, Guard::Permits(Own::Tracked(part)));
                    self.model.holds.insert(id, Held { who, entry, access: Permits(1) });
                }
                let rest = guard.permits();
                (Guard::Permits(Own::Tracked(guard)), Permits(rest))
            }
            other => (other, access),
        };
        self.guards.insert(id, guard);
        self.model.holds.get_mut(&id).unwrap().access = access;
        self.settle();
    }

    /// Upgrades without waiting. That fails only if there are other readers.
    fn try_upgrade(&mut self, id: usize, guard: Tracked<UpgradableGuardArc<u64>>, how: Change) {
        let upgraded = if how == Change::TryUp {
            guard.try_upgrade()
        } else {
            guard.try_upgrade_until(Instant::now()).map_err(|(refused, guard)| {
                assert_eq!(refused, Refused::Limit(()), "a late upgrade does not wait");
                guard
            })
        };
        let Held { who, entry, .. } = self.model.holds[&id];
        let allowed = self.model.allows(&Wait { who, entry, access: Write, of: Some(id) });
        assert_eq!(upgraded.is_ok(), allowed, "{:?}", self.model);
        let guard = match upgraded {
            Ok(writer) => {
                self.model.holds.get_mut(&id).unwrap().access = Write;
                Guard::Write(Own::Tracked(writer))
            }
            Err(guard) => Guard::Upgradable(Own::Tracked(guard)),
        };
        self.guards.insert(id, guard);
        self.settle();
    }

    /// Keeps releasing the holds of all parties that do not wait, until no request is left.
    fn end(mut self) {
        loop {
            let leaves = |held: &Held| held.who.is_none_or(|who| !self.model.waits_somewhere(who));
            // The holds without a guard are those of calls for several keys that have not finished.
            let mut guards = self.guards.keys().copied();
            if let Some(id) = guards.find(|id| leaves(&self.model.holds[id])) {
                self.release(id);
                continue;
            }
            // A deadlock with an untracked call for several keys is not found: the detector assumes that the call will
            // release its hold.
            let holds =
                |(id, request): &(&usize, &Request)| request.held.is_some() && self.model.waits[id].who.is_none();
            let Some(id) = self.requests.iter().find(holds).map(|(id, _)| *id) else { break };
            self.cancel(id);
        }
        assert!(self.model.waits.is_empty(), "left: {:?}", self.model);
        self.order = None;
        assert!(self.locks.is_empty() && self.pages.is_empty() && self.hosts.is_empty());
    }
}

fn read(guard: Tracked<ReadGuardArc<u64>>) -> Guard {
    Guard::Read(Own::Tracked(guard))
}

fn upgrade(guard: Tracked<UpgradableGuardArc<u64>>, how: Change) -> Request {
    let limit = (how == Change::UpLimited).then(Limit::default);
    let until = limit.clone();
    let future = async move {
        let upgrade = guard.upgrade();
        let result = match until {
            Some(limit) => upgrade.until(limit).await,
            None => upgrade.await.map_err(|(deadlock, guard)| (Refused::Deadlock(deadlock), guard)),
        };
        let failure = |(refused, guard)| Failure {
            guard: Some(Guard::Upgradable(Own::Tracked(guard))),
            ..Failure::from(refused)
        };
        result.map(Acquired::guards).map_err(failure)
    };
    Request::new(future, limit)
}

/// Checks that in each link the party waits for the link's key, and that the next party holds it or waits for it, too.
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

/// A change of a hold: an upgrade or a downgrade. A change of permits is a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Down,
    Up,
    UpLimited,
    TryUp,
    UpLate,
}

#[derive(Clone, Debug)]
enum Op {
    Begin(Option<usize>, Entry, Access, How),
    Several(Option<usize>, usize, [Access; 2], How),
    Release(usize),
    Cancel(usize),
    Expire(usize),
    Come(usize),
    Change(usize, Change),
    Pass(usize, Option<usize>),
}

/// Runs a schedule. If `single` is set, a party that waits makes no other request. Returns the number of deadlocks.
fn run(fairness: Fairness, single: bool, ops: &[Op]) -> usize {
    let mut world = World::new(fairness);
    if ops.iter().any(|op| matches!(op, Op::Several(..))) {
        world.find_order();
    }
    fn pick<T>(map: &BTreeMap<usize, T>, n: usize) -> Option<usize> {
        map.keys().nth(n % map.len().max(1)).copied()
    }
    for op in ops {
        let request = |n| pick(&world.requests, n);
        let guard = |n| pick(&world.guards, n);
        match *op {
            Op::Begin(who, ..) if world.is_busy(who, single) => {}
            Op::Begin(who, entry, access, how) => world.begin(who, entry, access, how),
            // The model does not know which of the party's requests fails if a call for several keys acquires one
            // of its keys.
            Op::Several(who, ..) if world.is_busy(who, true) => {}
            Op::Several(who, table, accesses, how) => world.begin_several(who, table, accesses, how),
            Op::Release(n) => guard(n).map_or((), |id| world.release(id)),
            Op::Cancel(n) => request(n).map_or((), |id| world.cancel(id)),
            Op::Expire(n) => request(n).map_or((), |id| world.expire(id)),
            Op::Come(n) => {
                let Some(id) = request(n) else { continue };
                world.poll_woken(id);
                world.settle();
            }
            Op::Change(n, how) => {
                let Some(id) = guard(n) else { continue };
                if !world.is_busy(world.model.holds[&id].who, single) {
                    world.change(id, how);
                }
            }
            Op::Pass(n, to) => {
                let Some(id) = guard(n) else { continue };
                if !world.is_busy(to, single) {
                    world.pass(id, to);
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

fn who() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![8 => (0..PARTIES).prop_map(Some), 2 => Just(None)]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        6 => Just(How::Wait),
        3 => Just(How::Limited),
        2 => Just(How::Try),
        1 => Just(How::Late),
        1 => Just(How::LateThread),
    ]
}

fn op(tables: std::ops::Range<usize>) -> impl Strategy<Value = Op> {
    let change = prop_oneof![
        2 => Just(Change::Down),
        3 => Just(Change::Up),
        2 => Just(Change::UpLimited),
        1 => Just(Change::TryUp),
        1 => Just(Change::UpLate),
    ];
    prop_oneof![
        20 => (who(), request(tables), how()).prop_map(|(who, (entry, access), how)| Op::Begin(who, entry, access, how)),
        4 => any::<usize>().prop_map(Op::Release),
        2 => any::<usize>().prop_map(Op::Cancel),
        1 => any::<usize>().prop_map(Op::Expire),
        2 => any::<usize>().prop_map(Op::Come),
        6 => (any::<usize>(), change).prop_map(|(n, how)| Op::Change(n, how)),
        2 => (any::<usize>(), who()).prop_map(|(n, to)| Op::Pass(n, to)),
    ]
}

/// Returns operations, a quarter of which are calls for both keys of a table.
fn op_of_several(tables: std::ops::Range<usize>) -> impl Strategy<Value = Op> {
    let access = |writes| if writes { Write } else { Read };
    let several = (who(), tables.clone(), any::<[bool; 2]>(), how()).prop_map(move |(who, table, writes, how)| {
        let accesses = match table {
            MUTEX => [Write; 2],
            SEMAPHORE => [Permits(1); 2],
            _ => writes.map(access),
        };
        Op::Several(who, table, accesses, how)
    });
    prop_oneof![3 => op(tables), 1 => several]
}

fn policy() -> impl Strategy<Value = Fairness> {
    use Fairness::{Adaptive, Barging, Bounded, Fifo};
    prop_oneof![Just(Adaptive), Just(Bounded(0)), Just(Bounded(2)), Just(Fifo), Just(Barging)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { std::env::var("KEYLATCH_CASES").map_or(1200, |cases| cases.parse().unwrap()) }, failure_persistence: None, ..ProptestConfig::default() })]

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
    fn all_tables_with_calls_for_several_keys(
        fairness in policy(),
        single in any::<bool>(),
        ops in prop::collection::vec(op_of_several(MUTEX..3), 1..60),
    ) {
        run(fairness, single, &ops);
    }

    #[test]
    fn mutexes_with_calls_for_several_keys(fairness in policy(), ops in prop::collection::vec(op_of_several(MUTEX..1), 1..40)) {
        run(fairness, true, &ops);
    }

    #[test]
    fn one_reader_writer_lock_and_a_mutex(fairness in policy(), ops in prop::collection::vec(op(MUTEX..2), 1..60)) {
        run(fairness, false, &ops);
    }
}

/// An upgradable reader passes a writer that came before it, but only in one phase.
#[test]
fn a_writer_that_was_passed_once_is_not_passed_again() {
    let ops = [
        Op::Begin(Some(1), (0, 0), Write, How::Wait),
        Op::Begin(None, (1, 1), Write, How::Wait),
        Op::Begin(Some(2), (1, 1), Read, How::Wait),
        Op::Begin(Some(1), (1, 1), Write, How::Wait),
        Op::Begin(Some(3), (1, 1), Upgradable, How::Wait),
        Op::Release(1),
        Op::Begin(Some(0), (1, 1), Upgradable, How::Wait),
        Op::Change(2, Change::Up),
        Op::Begin(Some(0), (0, 0), Write, How::Wait),
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
        Op::Begin(Some(1), (0, 0), Write, How::Wait),
        Op::Begin(Some(2), (1, 0), Read, How::Wait),
        Op::Begin(Some(1), (1, 0), Write, How::Wait),
        Op::Begin(Some(3), (1, 0), Upgradable, How::Wait),
        Op::Change(2, Change::Up),
        Op::Begin(Some(0), (1, 0), Upgradable, How::Wait),
        Op::Begin(Some(0), (0, 0), Write, How::Wait),
    ];
    for fairness in [Fairness::Bounded(2), Fairness::Bounded(16)] {
        assert_eq!(run(fairness, false, &ops), 1);
    }
}
