//! The protocol of leases in etcd: transactions with comparisons, etcd leases that are used again, the mark of the
//! namespace, and the revoking of what is left over. A few clients, whose requests are late and doubled, whose calls are
//! dropped, and which die; a cluster that elects leaders, is restored from a snapshot, or loses all keys.
//!
//! Real time passes in ticks. The clients' clocks have rates that differ from the leader's by almost one percent. A lease
//! lasts for two ticks; an expired etcd lease is removed within the next tick.
//!
//! The engine's decisions are parts of its requests, so they are written here once more; the table in
//! `docs/verification.md` says what each of them stands for. A client's step is one request with its answer; what it does
//! with the answer it may do much later, so a slow answer needs no step of its own. All leases have the same length, so
//! no tenure moves to another etcd lease. A holder learns at once that a release has ended its tenure, which in the
//! engine the watch tells it a moment later.

use stateright::{Model, Property};

/// The time of a lease, and of a quarantine, in milliseconds.
const TTL: u64 = 1000;

/// What the leader's clock gains in a tick, in milliseconds.
const RATE: u64 = 500;

/// How often a call is tried if its connection ends.
const TRIES: u8 = 2;

/// The time by which the clocks of the leader and of a client may differ until an etcd lease is restarted.
const DRIFT: u64 = 10;

/// The first base of tokens, and the least number of microseconds that pass in a tick or while the cluster is replaced:
/// more than there are revisions.
const BASE: u64 = 1000;
const PASSED: u64 = 100;

/// The setup of a model.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// By how much an etcd lease is longer than the tenures that use it, in milliseconds.
    pub slack: u64,
    /// The rate of each client's clock.
    pub clocks: &'static [u64],
    /// The number of ticks.
    pub ticks: u8,
    /// The calls that each client may make, in this order.
    pub calls: &'static [&'static [Call]],
    /// The numbers of times that a client's requests are late, and that one of them arrives twice.
    pub late: u8,
    pub doubled: u8,
    /// The number of clients that may die.
    pub deaths: u8,
    /// The number of new leaders.
    pub elections: u8,
    /// The numbers of times that a snapshot is restored, and that all keys are deleted.
    pub restores: u8,
    pub wipes: u8,
    /// A fault of the protocol, which a property must reveal.
    pub fault: Option<Fault>,
}

/// A fault of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The transaction that begins a tenure does not check that the resource is free.
    LockNotCompared,
    /// That transaction does not compare the mark.
    MarkNotCompared,
    /// A cluster that may have forgotten leases grants others at once.
    NoQuarantine,
    /// Each new connection begins a quarantine.
    AlwaysQuarantine,
    /// A new mark has the same base of tokens.
    BaseNotRaised,
    /// An owner has a lease again that began before the cluster forgot something.
    NoDoubt,
    /// An etcd lease that is kept is revoked all the same.
    RevokesWhatIsKept,
    /// An etcd lease is revoked although an unanswered transaction may have used it.
    RevokesInDoubt,
    /// The doubt is settled without a mark that makes the unanswered transaction fail.
    NoMarkOfRevoked,
    /// An etcd lease is used again without a restart of its time.
    NoRestart,
    /// The answer to a restart is ignored.
    RestartIgnored,
    /// A holder counts its deadline from the answer.
    DeadlineFromAnswer,
    /// A release ends whatever tenure there is.
    ReleasesAnything,
    /// An owner that has the lease is refused as others are.
    RefusesItsOwner,
    /// A keep-alive restarts an etcd lease that has ended but was not removed yet.
    KeepAliveRevives,
    /// A keep-alive counts without another look at the tenure.
    NotConfirmed,
    /// The keys of a tenure are not attached to its etcd lease.
    NotAttached,
    /// The network repeats the requests with which a tenure begins.
    Repeats,
}

/// An etcd lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lease {
    id: u8,
    /// When it ends, by the leader's clock.
    end: u64,
}

/// The keys of a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lock {
    owner: u8,
    created: u64,
    base: u64,
    lease: u8,
}

/// The mark of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Mark {
    /// The cluster, which its ID and the length of its log identify.
    cluster: u8,
    base: u64,
    modified: u64,
}

/// What the cluster stores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Store {
    revision: u64,
    mark: Option<Mark>,
    /// The etcd lease of the key that exists during a quarantine.
    quarantine: Option<u8>,
    lock: Option<Lock>,
    /// The etcd leases that are marked as about to be revoked.
    revoked: Vec<u8>,
    leases: Vec<Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Acquire,
    Renew,
    Release,
}

/// A request that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Request {
    Grant { lease: u8 },
    KeepAlive { lease: u8 },
    Mark { cluster: u8, base: u64, behind: u64, lease: u8 },
    Begin { owner: u8, lease: u8, base: u64, mark: u64, is_fresh: bool },
    Confirm { created: u64, lease: u8 },
    Release { created: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    /// It was carried out at this revision. `ended` is the etcd lease of the tenure that it has ended.
    Yes { at: u64, ended: Option<u8> },
    /// The comparisons failed. This is the tenure that the resource has.
    No(Option<Lock>),
    /// The etcd lease does not exist.
    NoLease,
}

/// The request about the etcd lease that is sent beside the transaction that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Beside {
    Grant,
    Restart,
    /// It was answered, or is not needed. Whether the etcd lease is there.
    Over(bool),
}

/// The beginning of a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Beginning {
    lease: u8,
    is_fresh: bool,
    /// When the etcd lease was restarted, or a moment before.
    restarted: u64,
    beside: Beside,
    /// The answer to the transaction.
    answer: Option<Answer>,
}

/// The next requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// A new connection reads the mark.
    Recall,
    /// It requests the etcd lease of a quarantine, to write a new mark instead of this one.
    Quarantine(Option<Mark>),
    Mark {
        base: u64,
        cluster: u8,
        behind: u64,
        lease: u8,
    },
    Begin(Beginning),
    /// The mark and the quarantine, after a tenure could not begin.
    Standing {
        is_fresh: bool,
    },
    Find,
    KeepAlive(Lock),
    Confirm(Lock),
    Release {
        created: u64,
    },
}

/// A call that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Running {
    call: Call,
    /// The time of the call.
    at: u64,
    tries: u8,
    /// The token to renew or to release.
    token: u64,
    next: Next,
}

/// The etcd leases of a connection that a tenure uses, and those that are kept, with the times of their last restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Session {
    used: Vec<(u8, u64)>,
    kept: Vec<(u8, u64)>,
}

/// An etcd lease to revoke, once it is certain that no tenure uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Leftover {
    lease: u8,
    is_in_doubt: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    is_dead: bool,
    clock: u64,
    calls: u8,
    /// The mark that the last connection found.
    mark: Mark,
    session: Option<Session>,
    leftovers: Vec<Leftover>,
    running: Option<Running>,
    /// The token of the grant, and the holder's deadline.
    grant: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    ticks: u8,
    /// The leader's clock.
    clock: u64,
    /// The number of the cluster, of those that were restored.
    cluster: u8,
    store: Store,
    saved: Option<Store>,
    /// The greatest token of a tenure that has begun.
    greatest: u64,
    clients: Vec<Client>,
    /// The requests that are late.
    late: Vec<Request>,
    delayed: u8,
    doubled: u8,
    deaths: u8,
    elections: u8,
    wipes: u8,
    broken: Option<&'static str>,
    /// Something that must be possible, and happened in the last step.
    happened: Option<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    TakenOver,
    Resumed,
    Quarantined,
    UsedAgain,
    Restarted,
    InUse,
}

/// One of the requests that a client has under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Main,
    /// The request about the etcd lease, beside the transaction that uses it.
    Beside,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes. etcd leases that had ended before are removed.
    Tick,
    /// The etcd leases that have ended are removed.
    Expire,
    Call(u8),
    /// A client's request is carried out, and answered.
    Step(u8, Part),
    /// The client's requests are on their way, and its connection ends.
    Delay(u8),
    /// The client's requests are on their way, and its call is dropped.
    Drop(u8),
    /// The client's request is carried out, and a copy of it is on its way.
    Double(u8, Part),
    Arrive(Request),
    /// An etcd lease has been kept long enough.
    Retire(u8),
    /// The revoker carries out its next request about this etcd lease.
    Revoke(u8, Leftover),
    Die(u8),
    Elect,
    Save,
    Restore,
    Wipe,
}

impl Request {
    fn lease(self) -> Option<u8> {
        match self {
            Request::Grant { lease }
            | Request::KeepAlive { lease }
            | Request::Mark { lease, .. }
            | Request::Begin { lease, .. }
            | Request::Confirm { lease, .. } => Some(lease),
            Request::Release { .. } => None,
        }
    }
}

impl Next {
    fn lease(self) -> Option<u8> {
        match self {
            Next::Begin(Beginning { lease, .. }) | Next::Mark { lease, .. } => Some(lease),
            Next::KeepAlive(lock) | Next::Confirm(lock) => Some(lock.lease),
            _ => None,
        }
    }
}

impl Lock {
    fn token(&self) -> u64 {
        self.base + self.created
    }
}

impl Store {
    fn has(&self, lease: u8) -> bool {
        self.leases.iter().any(|one| one.id == lease)
    }

    /// Returns when an etcd lease ends; 0 if it does not exist.
    fn end(&self, lease: u8) -> u64 {
        self.leases.iter().find(|one| one.id == lease).map_or(0, |one| one.end)
    }

    /// Removes an etcd lease and the keys that are attached to it.
    fn remove(&mut self, lease: u8) {
        self.leases.retain(|one| one.id != lease);
        self.lock = self.lock.filter(|lock| lock.lease != lease);
        self.quarantine = self.quarantine.filter(|&id| id != lease);
        self.revoked.retain(|&id| id != lease);
    }

    /// Returns the tenure whose etcd lease has not ended.
    fn live(&self, clock: u64) -> Option<Lock> {
        self.lock.filter(|lock| self.end(lock.lease) > clock)
    }
}

impl Client {
    fn leave(&mut self, lease: u8, is_in_doubt: bool) {
        self.leftovers.push(Leftover { lease, is_in_doubt });
        self.leftovers.sort_unstable();
        self.leftovers.dedup();
    }

    /// Keeps an etcd lease that nothing uses, and returns whether it is kept.
    fn keep(&mut self, lease: u8, restarted: u64) -> bool {
        match &mut self.session {
            Some(session) if is_young(self.clock, restarted) => {
                session.kept.push((lease, restarted));
                true
            }
            _ => false,
        }
    }

    /// The tenure that used this etcd lease has ended.
    fn has_ended(&mut self, lease: u8, also_revokes: bool) {
        let used = self.session.as_mut().and_then(|session| {
            let place = session.used.iter().position(|(id, _)| *id == lease)?;
            Some(session.used.remove(place))
        });
        if !used.is_some_and(|(_, restarted)| self.keep(lease, restarted)) || also_revokes {
            self.leave(lease, false);
        }
    }

    /// Returns whether a check of the lease succeeds.
    fn holds(&self) -> bool {
        !self.is_dead && self.grant.is_some_and(|(_, deadline)| self.clock < deadline)
    }

    /// Returns a request that the client has under way.
    fn request(&self, number: u8, part: Part) -> Option<Request> {
        match (self.running?.next, part) {
            (Next::Begin(Beginning { lease, beside, .. }), Part::Beside) => match beside {
                Beside::Grant => Some(Request::Grant { lease }),
                Beside::Restart => Some(Request::KeepAlive { lease }),
                Beside::Over(_) => None,
            },
            (_, Part::Beside) => None,
            (Next::Begin(Beginning { lease, is_fresh, answer: None, .. }), _) => {
                let Mark { base, modified, .. } = self.mark;
                Some(Request::Begin { owner: number, lease, base, mark: modified, is_fresh })
            }
            (Next::Mark { cluster, base, behind, lease }, _) => Some(Request::Mark { cluster, base, behind, lease }),
            (Next::KeepAlive(lock), _) => Some(Request::KeepAlive { lease: lock.lease }),
            (Next::Confirm(lock), _) => Some(Request::Confirm { created: lock.created, lease: lock.lease }),
            (Next::Release { created }, _) => Some(Request::Release { created }),
            _ => None,
        }
    }
}

fn me(state: &mut State, client: u8) -> &mut Client {
    &mut state.clients[usize::from(client)]
}

fn next(state: &mut State, client: u8, next: Next) {
    me(state, client).running.as_mut().expect("it runs").next = next;
}

fn call_of(state: &State, client: u8) -> Running {
    state.clients[usize::from(client)].running.expect("it runs")
}

/// A request is on its way.
fn delay(state: &mut State, request: Request) {
    state.late.push(request);
    state.late.sort_unstable();
    state.late.dedup();
}

/// Returns an ID for an etcd lease that occurs nowhere.
fn unused(state: &State) -> u8 {
    let stores = [Some(&state.store), state.saved.as_ref()];
    let stored = stores.into_iter().flatten().flat_map(|store| store.leases.iter().map(|lease| lease.id));
    let known = state.clients.iter().flat_map(|client| {
        let sessions = client.session.iter().flat_map(|session| session.used.iter().chain(&session.kept));
        let left = client.leftovers.iter().map(|left| left.lease);
        let running = client.running.and_then(|running| running.next.lease());
        sessions.map(|(lease, _)| *lease).chain(left).chain(running)
    });
    let late = state.late.iter().filter_map(|request| request.lease());
    let all: Vec<u8> = stored.chain(known).chain(late).collect();
    (1..=u8::MAX).find(|id| !all.contains(id)).expect("there are few etcd leases")
}

/// Removes what can have no effect any more.
fn tidy(state: &mut State) {
    let State { store, saved, clients, late, .. } = state;
    let exists = |lease: u8| {
        let is_saved = saved.as_ref().is_some_and(|saved| saved.has(lease));
        store.has(lease) || is_saved || late.contains(&Request::Grant { lease })
    };
    for me in clients {
        let clock = me.clock;
        me.leftovers.retain(|left| exists(left.lease));
        if let Some(session) = &mut me.session {
            session.used.retain(|(_, restarted)| is_young(clock, *restarted));
        }
    }
}

/// Returns whether an etcd lease can be used again.
fn is_young(clock: u64, restarted: u64) -> bool {
    clock - restarted < TTL / 2
}

/// Removes the etcd leases that have ended.
fn expire(state: &mut State) {
    let clock = state.clock;
    let ended: Vec<u8> = state.store.leases.iter().filter(|one| one.end <= clock).map(|one| one.id).collect();
    for lease in ended {
        state.store.remove(lease);
    }
}

/// What the cluster does.
impl Setup {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Restarts the time of all etcd leases.
    fn restart_all(&self, state: &mut State) {
        let end = state.clock + TTL + self.slack;
        state.store.leases.iter_mut().for_each(|lease| lease.end = end);
    }

    fn serve(&self, state: &mut State, request: Request) -> Answer {
        let end = state.clock + TTL + self.slack;
        let store = &mut state.store;
        match request {
            Request::Grant { lease } => {
                if !store.has(lease) {
                    store.leases.push(Lease { id: lease, end });
                    store.leases.sort_unstable_by_key(|lease| lease.id);
                }
                Answer::Yes { at: store.revision, ended: None }
            }
            Request::KeepAlive { lease } => {
                // It is answered when the etcd lease has been removed.
                if store.end(lease) <= state.clock && !(self.has(Fault::KeepAliveRevives) && store.has(lease)) {
                    store.remove(lease);
                    return Answer::NoLease;
                }
                if store.lock.is_some_and(|lock| lock.lease == lease) && store.live(state.clock).is_none() {
                    state.broken = Some("no revival");
                }
                store.leases.iter_mut().filter(|one| one.id == lease).for_each(|one| one.end = end);
                Answer::Yes { at: store.revision, ended: None }
            }
            Request::Mark { cluster, base, behind, lease } => {
                if store.mark.map_or(0, |mark| mark.modified) != behind {
                    return Answer::No(None);
                }
                if !store.has(lease) {
                    return Answer::NoLease;
                }
                store.revision += 1;
                store.mark = Some(Mark { cluster, base, modified: store.revision });
                store.quarantine = Some(lease).filter(|_| !self.has(Fault::NoQuarantine));
                Answer::Yes { at: store.revision, ended: None }
            }
            Request::Begin { .. } => self.begins(state, request),
            Request::Confirm { created, lease } => match store.lock {
                Some(lock) if (lock.created, lock.lease) == (created, lease) => {
                    Answer::Yes { at: store.revision, ended: None }
                }
                lock => Answer::No(lock),
            },
            Request::Release { created } => match store.lock {
                Some(lock) if lock.created == created || self.has(Fault::ReleasesAnything) => {
                    store.revision += 1;
                    store.lock = None;
                    if lock.created == created {
                        let is_it = |client: &&mut Client| client.grant.is_some_and(|(token, _)| token == lock.token());
                        state.clients.iter_mut().filter(is_it).for_each(|client| client.grant = None);
                    }
                    Answer::Yes { at: state.store.revision, ended: Some(lock.lease) }
                }
                lock => Answer::No(lock),
            },
        }
    }

    /// Carries out the transaction that begins a tenure.
    fn begins(&self, state: &mut State, request: Request) -> Answer {
        let Request::Begin { owner, lease, base, mark, is_fresh } = request else { unreachable!("it begins a tenure") };
        let live = state.store.live(state.clock);
        let store = &mut state.store;
        let is_same = store.mark.is_some_and(|found| found.modified == mark) || self.has(Fault::MarkNotCompared);
        let is_free = store.lock.is_none_or(|lock| is_fresh && lock.owner == owner) || self.has(Fault::LockNotCompared);
        if !is_same || store.quarantine.is_some() || store.revoked.contains(&lease) || !is_free {
            return Answer::No(store.lock);
        }
        if !store.has(lease) {
            return Answer::NoLease;
        }
        store.revision += 1;
        let ended = store.lock.map(|lock| lock.lease);
        let attached = if self.has(Fault::NotAttached) { 0 } else { lease };
        let new = Lock { owner, created: store.revision, base, lease: attached };
        store.lock = Some(new);
        if new.token() <= state.greatest {
            state.broken = Some("tokens grow");
        }
        if live.is_some_and(|live| (live.owner, live.base) == (owner, base)) {
            state.broken = Some("idempotent acquire");
        }
        let had_it = |client: &Client| client.is_dead && client.grant.is_some_and(|(token, _)| token == state.greatest);
        if state.clients.iter().any(had_it) {
            state.happened = Some(Event::TakenOver);
        }
        state.greatest = state.greatest.max(new.token());
        Answer::Yes { at: new.created, ended }
    }

    /// Carries out a request of the task that revokes etcd leases.
    fn revoke(&self, state: &mut State, client: u8, left: Leftover) {
        let me = &mut state.clients[usize::from(client)];
        me.leftovers.retain(|other| *other != left);
        let Leftover { lease, is_in_doubt } = left;
        if !is_in_doubt || self.has(Fault::RevokesInDoubt) {
            return state.store.remove(lease);
        }
        let store = &mut state.store;
        if store.lock.is_some_and(|lock| lock.lease == lease) {
            state.happened = Some(Event::InUse);
        } else if store.has(lease) {
            if !self.has(Fault::NoMarkOfRevoked) && !store.revoked.contains(&lease) {
                store.revoked.push(lease);
                store.revoked.sort_unstable();
            }
            me.leave(lease, false);
        } else if state.late.contains(&Request::Grant { lease }) {
            me.leave(lease, true); // the request for it is still under way
        }
    }
}

/// What a client does.
impl Setup {
    /// Returns the first request of a call that has a connection.
    fn start(&self, state: &mut State, client: u8) {
        let Running { call, token, .. } = call_of(state, client);
        let base = me(state, client).mark.base;
        match call {
            // Usually the resource is free: the first guess.
            Call::Acquire => self.begin(state, client, false),
            Call::Renew => next(state, client, Next::Find),
            Call::Release => {
                let created = token.checked_sub(base).unwrap_or(u64::MAX);
                next(state, client, Next::Release { created });
            }
        }
    }

    fn call(&self, state: &mut State, client: u8) {
        let me = me(state, client);
        let call = self.calls[usize::from(client)][usize::from(me.calls)];
        me.calls += 1;
        let token = me.grant.map_or(0, |(token, _)| token);
        match call {
            Call::Acquire => {}
            _ if me.grant.is_none() => return, // there is nothing to renew or release
            Call::Renew => {}
            Call::Release => me.grant = None, // from here on it does not rely on its lease
        }
        me.running = Some(Running { call, at: me.clock, tries: 1, token, next: Next::Recall });
        if me.session.is_some() {
            self.start(state, client);
        } else {
            me.session = Some(Session::default());
        }
    }

    /// The connection ends. The call is tried again.
    fn reconnect(&self, state: &mut State, client: u8) {
        self.settle(state, client);
        let me = me(state, client);
        let kept = me.session.take().map_or(Vec::new(), |session| session.kept);
        kept.into_iter().for_each(|(lease, _)| me.leave(lease, false));
        match &mut me.running {
            Some(running) if running.tries < TRIES => {
                running.tries += 1;
                running.next = Next::Recall;
                me.session = Some(Session::default());
            }
            // A holder still relies on the grant that it had.
            running => *running = None,
        }
    }

    /// Leaves the etcd lease of a call that gets no answer.
    fn settle(&self, state: &mut State, client: u8) {
        let me = me(state, client);
        match me.running.map(|running| running.next) {
            Some(Next::Begin(begun)) => me.leave(begun.lease, true),
            Some(Next::Mark { lease, .. }) => me.leave(lease, false),
            _ => {}
        }
    }

    /// Ends a call with a grant of this token, or without one.
    fn end(&self, state: &mut State, client: u8, granted: Option<u64>) {
        let me = me(state, client);
        let Some(running) = me.running.take() else { return };
        let known = me.grant.take();
        let Some(token) = granted else { return };
        let from = if self.has(Fault::DeadlineFromAnswer) { me.clock } else { running.at };
        // A renewal that is answered after the deadline comes too late for the holder.
        let is_late = running.call == Call::Renew && known.is_none_or(|(_, deadline)| deadline <= me.clock);
        if !is_late {
            me.grant = Some((token, from + TTL - TTL / 100));
        }
    }

    /// Begins a tenure, with an etcd lease that is kept or a new one.
    fn begin(&self, state: &mut State, client: u8, is_fresh: bool) {
        let me = &mut state.clients[usize::from(client)];
        let clock = me.clock;
        let spare = me.session.as_mut().and_then(|session| {
            let place = session.kept.iter().rposition(|(_, restarted)| is_young(clock, *restarted))?;
            Some(session.kept.remove(place))
        });
        let (lease, restarted, beside) = match spare {
            Some((lease, before)) => {
                let is_long_enough = clock - before + DRIFT < self.slack;
                if is_long_enough || self.has(Fault::NoRestart) {
                    (lease, before, Beside::Over(true))
                } else {
                    (lease, clock, Beside::Restart)
                }
            }
            None => {
                (unused(state), clock, Beside::Grant)
            }
        };
        next(state, client, Next::Begin(Beginning { lease, is_fresh, restarted, beside, answer: None }));
    }

    /// Notes an answer for the beginning of a tenure.
    fn has_begun(&self, state: &mut State, client: u8, mut begun: Beginning, part: Part, answer: Answer) {
        match part {
            Part::Main => begun.answer = Some(answer),
            Part::Beside => {
                // The transaction may have overtaken the request for the etcd lease.
                if begun.beside == Beside::Grant && begun.answer == Some(Answer::NoLease) {
                    begun.answer = None;
                }
                let is_there = matches!(answer, Answer::Yes { .. });
                // The etcd lease has ended, and the tenure with it.
                let is_over = !is_there && matches!(begun.answer, Some(Answer::Yes { .. }));
                if is_over && !self.has(Fault::RestartIgnored) {
                    begun.answer = Some(Answer::NoLease);
                }
                if begun.beside == Beside::Restart && is_there {
                    state.happened = Some(Event::Restarted);
                }
                begun.beside = Beside::Over(is_there);
            }
        }
        match (begun.beside, begun.answer) {
            (Beside::Over(is_there), Some(answer)) => self.begun(state, client, begun, is_there, answer),
            _ => next(state, client, Next::Begin(begun)),
        }
    }

    /// Goes on with a beginning when all is answered.
    fn begun(&self, state: &mut State, client: u8, begun: Beginning, is_there: bool, answer: Answer) {
        let Beginning { lease, is_fresh, restarted, .. } = begun;
        let is_left = state.store.has(lease);
        let me = me(state, client);
        match answer {
            Answer::Yes { at, ended } => {
                if let Some(ended) = ended {
                    me.has_ended(ended, false);
                }
                if let Some(session) = me.session.as_mut().filter(|_| is_there) {
                    session.used.push((lease, restarted));
                }
                let token = me.mark.base + at;
                self.end(state, client, Some(token));
            }
            Answer::No(found) => {
                // If it is gone, there is nothing to revoke.
                if !(is_there && me.keep(lease, restarted)) && is_left {
                    me.leave(lease, false);
                }
                if found.is_none_or(|lock| is_fresh && lock.owner == client) {
                    next(state, client, Next::Standing { is_fresh });
                } else {
                    self.go_on(state, client, found);
                }
            }
            Answer::NoLease => {
                if is_left {
                    me.leave(lease, false);
                }
                self.begin(state, client, false);
            }
        }
    }

    /// Goes on with a call that knows which tenure the resource has.
    fn go_on(&self, state: &mut State, client: u8, found: Option<Lock>) {
        let Running { call, token, .. } = call_of(state, client);
        let mark = me(state, client).mark;
        match (call, found) {
            (Call::Acquire, None) => self.begin(state, client, false),
            (Call::Acquire, Some(lock)) if lock.owner != client => {
                if state.store.lock == Some(lock) && !state.store.has(lock.lease) {
                    state.broken = Some("bounded take-over"); // nothing would ever end it
                }
                self.end(state, client, None);
            }
            (Call::Acquire, Some(lock)) => {
                if self.has(Fault::RefusesItsOwner) {
                    state.broken = Some("idempotent acquire");
                }
                if lock.base != mark.base && !self.has(Fault::NoDoubt) {
                    self.begin(state, client, true);
                } else {
                    next(state, client, Next::KeepAlive(lock));
                }
            }
            (_, Some(lock)) if (lock.owner, lock.token()) == (client, token) => {
                next(state, client, Next::KeepAlive(lock));
            }
            _ => self.end(state, client, None),
        }
    }

    /// Carries out a client's request, and gives it the answer.
    fn step(&self, state: &mut State, client: u8, part: Part) {
        let index = usize::from(client);
        let Running { call, next: step, token, .. } = call_of(state, client);
        let request = state.clients[index].request(client, part);
        let answer = request.map(|request| self.serve(state, request));
        let is_yes = matches!(answer, Some(Answer::Yes { .. }));
        match step {
            Next::Recall => self.recall(state, client),
            Next::Quarantine(found) => {
                let (lease, revision) = (unused(state), state.store.revision);
                self.serve(state, Request::Grant { lease });
                let passed = u64::from(state.ticks) + u64::from(state.cluster) + u64::from(state.wipes);
                let least = found.map_or(0, |mark| mark.base + revision) + 1;
                let raised = least.max(BASE + PASSED * passed);
                let base = found.filter(|_| self.has(Fault::BaseNotRaised)).map_or(raised, |mark| mark.base);
                let behind = found.map_or(0, |mark| mark.modified);
                next(state, client, Next::Mark { base, cluster: state.cluster, behind, lease });
            }
            Next::Mark { lease, .. } => {
                if !is_yes {
                    me(state, client).leave(lease, false);
                }
                next(state, client, Next::Recall);
                if is_yes && self.has(Fault::AlwaysQuarantine) {
                    me(state, client).mark = state.store.mark.expect("it was written");
                    self.start(state, client);
                }
            }
            Next::Begin(begun) => {
                let answer = answer.expect("it was under way");
                let is_again = part == Part::Main && !begun.is_fresh && begun.beside == Beside::Over(true);
                if is_again && is_yes && begun.restarted < state.clients[index].clock {
                    state.happened = Some(Event::UsedAgain);
                }
                self.has_begun(state, client, begun, part, answer);
            }
            Next::Standing { is_fresh } => {
                if state.store.mark != Some(state.clients[index].mark) {
                    self.reconnect(state, client);
                } else if state.store.quarantine.is_none() {
                    self.begin(state, client, is_fresh);
                } else {
                    state.happened = Some(Event::Quarantined);
                    if state.cluster == 0 && state.wipes == 0 {
                        state.broken = Some("bounded take-over");
                    }
                    self.end(state, client, None);
                }
            }
            Next::Find => self.go_on(state, client, state.store.lock),
            Next::KeepAlive(lock) => match is_yes {
                true if self.has(Fault::NotConfirmed) => self.end(state, client, Some(lock.token())),
                true => next(state, client, Next::Confirm(lock)),
                false => next(state, client, Next::Find),
            },
            Next::Confirm(lock) => {
                if is_yes {
                    if call == Call::Acquire {
                        state.happened = Some(Event::Resumed);
                    }
                    self.end(state, client, Some(lock.token()));
                } else {
                    next(state, client, Next::Find);
                }
            }
            Next::Release { created } => match answer {
                // The tenure began before the cluster forgot something.
                Some(Answer::No(Some(lock)))
                    if (lock.owner, lock.token()) == (client, token) && lock.created != created =>
                {
                    next(state, client, Next::Release { created: lock.created });
                }
                Some(Answer::Yes { ended: Some(lease), .. }) => {
                    me(state, client).has_ended(lease, self.has(Fault::RevokesWhatIsKept));
                    self.end(state, client, None);
                }
                _ => self.end(state, client, None),
            },
        }
    }

    /// Reads the mark on a new connection.
    fn recall(&self, state: &mut State, client: u8) {
        let found = state.store.mark;
        match found.filter(|mark| mark.cluster == state.cluster && !self.has(Fault::AlwaysQuarantine)) {
            Some(mark) => {
                me(state, client).mark = mark;
                self.start(state, client);
            }
            None => next(state, client, Next::Quarantine(found)),
        }
    }

    /// Returns the requests that a client has under way, and which of them they are.
    fn under_way(state: &State, client: u8) -> impl Iterator<Item = (Part, Request)> {
        let me = &state.clients[usize::from(client)];
        [Part::Main, Part::Beside].into_iter().filter_map(move |part| Some((part, me.request(client, part)?)))
    }

    /// Lets the requests that a client has under way be late.
    fn delay(&self, state: &mut State, client: u8) {
        state.delayed += 1;
        let requests: Vec<_> = Self::under_way(state, client).collect();
        requests.into_iter().for_each(|(_, request)| delay(state, request));
    }
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // The namespace was opened by its operator, and all clients are connected.
        let mark = Mark { cluster: 0, base: BASE, modified: 1 };
        let client = Client {
            is_dead: false,
            clock: 0,
            calls: 0,
            mark,
            session: Some(Session::default()),
            leftovers: Vec::new(),
            running: None,
            grant: None,
        };
        let store = Store {
            revision: 1,
            mark: Some(mark),
            quarantine: None,
            lock: None,
            revoked: Vec::new(),
            leases: Vec::new(),
        };
        vec![State {
            ticks: 0,
            clock: 0,
            cluster: 0,
            store,
            saved: None,
            greatest: 0,
            clients: vec![client; self.clocks.len()],
            late: Vec::new(),
            delayed: 0,
            doubled: 0,
            deaths: 0,
            elections: 0,
            wipes: 0,
            broken: None,
            happened: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.ticks < self.ticks {
            actions.push(Action::Tick);
        }
        if state.store.leases.iter().any(|lease| lease.end <= state.clock) {
            actions.push(Action::Expire);
        }
        for (client, me) in (0..).zip(&state.clients).filter(|(_, me)| !me.is_dead) {
            match &me.running {
                None if usize::from(me.calls) < self.calls[usize::from(client)].len() => {
                    actions.push(Action::Call(client));
                }
                Some(Running {
                    next: Next::Recall | Next::Quarantine(_) | Next::Standing { .. } | Next::Find, ..
                }) => {
                    actions.push(Action::Step(client, Part::Main));
                }
                _ => {}
            }
            for (part, request) in Self::under_way(state, client) {
                actions.push(Action::Step(client, part));
                // The engine relies on a connection that does not repeat these.
                let is_once = matches!(request, Request::Begin { .. } | Request::Grant { .. });
                let repeats = !is_once || self.has(Fault::Repeats);
                if repeats && state.doubled < self.doubled {
                    actions.push(Action::Double(client, part));
                }
                if state.delayed < self.late && !actions.contains(&Action::Delay(client)) {
                    actions.extend([Action::Delay(client), Action::Drop(client)]);
                }
            }
            if let Some(session) = &me.session {
                actions.extend(me.leftovers.iter().map(|left| Action::Revoke(client, *left)));
                actions.extend(session.kept.first().map(|_| Action::Retire(client)));
            }
            if state.deaths < self.deaths {
                actions.push(Action::Die(client));
            }
        }
        actions.extend(state.late.iter().copied().map(Action::Arrive));
        if state.elections < self.elections {
            actions.push(Action::Elect);
        }
        if state.cluster < self.restores {
            actions.push(if state.saved.is_some() { Action::Restore } else { Action::Save });
        }
        if state.wipes < self.wipes && state.store.lock.is_some() {
            actions.push(Action::Wipe);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = State { happened: None, ..last.clone() };
        match action {
            Action::Tick => {
                expire(&mut state);
                state.ticks += 1;
                state.clock += RATE;
                for (me, rate) in state.clients.iter_mut().zip(self.clocks) {
                    me.clock += rate;
                }
            }
            Action::Expire => expire(&mut state),
            Action::Call(client) => self.call(&mut state, client),
            Action::Step(client, part) => self.step(&mut state, client, part),
            Action::Delay(client) => {
                self.delay(&mut state, client);
                self.reconnect(&mut state, client);
            }
            Action::Drop(client) => {
                self.delay(&mut state, client);
                self.settle(&mut state, client);
                me(&mut state, client).running = None;
            }
            Action::Double(client, part) => {
                state.doubled += 1;
                delay(&mut state, last.clients[usize::from(client)].request(client, part)?);
                self.step(&mut state, client, part);
            }
            Action::Arrive(request) => {
                state.late.retain(|other| *other != request);
                self.serve(&mut state, request);
            }
            Action::Retire(client) => {
                let me = me(&mut state, client);
                let (lease, _) = me.session.as_mut()?.kept.remove(0);
                me.leave(lease, false);
            }
            Action::Revoke(client, left) => self.revoke(&mut state, client, left),
            Action::Die(client) => {
                state.deaths += 1;
                let me = me(&mut state, client);
                (me.is_dead, me.session, me.running) = (true, None, None);
                me.leftovers.clear();
            }
            Action::Elect => {
                state.elections += 1;
                self.restart_all(&mut state);
            }
            Action::Save => state.saved = Some(state.store.clone()),
            Action::Restore => {
                state.cluster += 1;
                state.store = state.saved.take()?;
                self.restart_all(&mut state);
                state.late.clear(); // they were on their way to the other cluster
                for client in 0..u8::try_from(state.clients.len()).ok()? {
                    self.reconnect(&mut state, client);
                }
            }
            Action::Wipe => {
                state.wipes += 1;
                let store = &mut state.store;
                store.revision += 1;
                (store.mark, store.quarantine, store.lock) = (None, None, None);
                store.revoked.clear();
            }
        }
        tidy(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn is_kept(state: &State, rule: &str) -> bool {
            state.broken != Some(rule)
        }
        fn has(state: &State, event: Event) -> bool {
            state.happened == Some(event)
        }
        vec![
            Property::always("exclusion", |_, state: &State| {
                state.clients.iter().filter(|client| client.holds()).count() <= 1
            }),
            Property::always("conservative holder", |_, state: &State| {
                let live = state.store.live(state.clock);
                let is_so = |(number, client): (u8, &Client)| {
                    let token = client.grant.map(|(token, _)| token);
                    live.is_some_and(|live| live.owner == number && Some(live.token()) == token)
                };
                // A cluster that has forgotten something does not know of all leases.
                let has_forgotten = state.cluster > 0 || state.wipes > 0;
                has_forgotten || (0..).zip(&state.clients).filter(|(_, client)| client.holds()).all(is_so)
            }),
            Property::always("tokens grow", |_, state: &State| is_kept(state, "tokens grow")),
            Property::always("no revival", |_, state: &State| is_kept(state, "no revival")),
            Property::always("idempotent acquire", |_, state: &State| is_kept(state, "idempotent acquire")),
            Property::always("bounded take-over", |_, state: &State| is_kept(state, "bounded take-over")),
            Property::sometimes("a dead client's lease is taken over", |_, state: &State| has(state, Event::TakenOver)),
            Property::sometimes("a lease is resumed", |_, state: &State| has(state, Event::Resumed)),
            Property::sometimes("a quarantine refuses", |_, state: &State| has(state, Event::Quarantined)),
            Property::sometimes("an etcd lease is used again", |_, state: &State| has(state, Event::UsedAgain)),
            Property::sometimes("an etcd lease is restarted", |_, state: &State| has(state, Event::Restarted)),
            Property::sometimes("an etcd lease in doubt is in use", |_, state: &State| has(state, Event::InUse)),
        ]
    }
}
