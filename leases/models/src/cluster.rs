//! The protocol of leases in etcd: transactions with comparisons, etcd leases that are used again, the mark of the
//! namespace, and the revocation of etcd leases that are left over. There are a few clients, which may die, whose
//! requests may be late or duplicated, and whose calls may be dropped; the cluster may elect leaders, be restored from
//! a snapshot, or lose all keys.
//!
//! Real time passes in ticks. The clients' clocks have rates that differ from the leader's by almost one percent. A
//! lease lasts for two ticks; an expired etcd lease is removed within the next tick.
//!
//! The engine's decisions are parts of its requests, so they are written here once more; the table in
//! `docs/verification.md` says what each of them stands for. A client's step is one request with its answer. The client
//! may act on the answer much later, so a slow answer needs no step of its own. All leases have the same length, so no
//! tenure moves to another etcd lease. If a release ends a tenure that its owner has resumed, the holder learns of it
//! at once; in the engine the watch reports it a moment later.

use stateright::{Model, Property};

use self::{
    client::{Beginning, Beside, Client, Next, Running, Session, TTL, is_young},
    state::{Event, call_of, delay, expire, me, next, tidy, unused},
    store::{Answer, Lock, Mark, Now, Store},
};
pub use self::{
    client::{Call, Leftover, Part},
    fault::Fault,
    state::State,
    store::Request,
};

use crate::{
    RATE,
    rules::{Holder, Protocol, rules},
};

mod client;
mod fault;
mod state;
mod store;

/// The number of times that a call is tried, if its connection ends each time.
const TRIES: u8 = 2;

/// The time by which the leader's clock and a client's may drift apart before an etcd lease is restarted.
const DRIFT: u64 = 10;

/// The first base of tokens, and the smallest number of microseconds that pass in a tick or while the cluster is
/// replaced. Both are greater than the number of revisions.
const BASE: u64 = 1000;
const PASSED: u64 = 100;

/// The setup of a model.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The time by which an etcd lease is longer than the tenures that use it, in milliseconds.
    pub slack: u64,
    /// The rate of each client's clock.
    pub clocks: &'static [u64],
    /// The number of ticks.
    pub ticks: u8,
    /// The calls that each client may make, in this order.
    pub calls: &'static [&'static [Call]],
    /// The number of times that a client's request may be late, and the number of times that one may arrive twice.
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
    /// The revoker's next request about this etcd lease is carried out.
    Revoke(u8, Leftover),
    Die(u8),
    Elect,
    /// A snapshot is saved, between two calls.
    Save,
    Restore,
    Wipe,
}

/// The steps of the cluster.
impl Setup {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn now(&self, state: &State) -> Now {
        Now { clock: state.clock, end: state.clock + TTL + self.slack, fault: self.fault }
    }

    /// Restarts the time of all etcd leases.
    fn restart_all(&self, state: &mut State) {
        let end = self.now(state).end;
        state.store.leases.iter_mut().for_each(|lease| lease.end = end);
    }

    /// Carries out a request, and notes which rules that breaks.
    fn serve(&self, state: &mut State, request: Request) -> Answer {
        let now = self.now(state);
        let (before, live) = (state.store.lock, state.store.live(state.clock));
        let answer = state.store.serve(request, now);
        match (request, answer) {
            (Request::KeepAlive { lease }, Answer::Yes { .. })
                if live.is_none() && before.is_some_and(|lock| lock.lease == lease) =>
            {
                state.broken = Some("no revival");
            }
            (Request::Begin { owner, base, .. }, Answer::Yes { at, .. }) => {
                let token = base + at;
                if token <= state.greatest {
                    state.broken = Some("tokens grow");
                }
                if live.is_some_and(|live| (live.owner, live.base) == (owner, base)) {
                    state.broken = Some("idempotent acquire");
                }
                let had = |client: &Client| client.grant.is_some_and(|(token, _)| token == state.greatest);
                if state.clients.iter().any(|client| client.is_dead && had(client)) {
                    state.happened = Some(Event::TakenOver);
                }
                state.greatest = state.greatest.max(token);
            }
            // The watch tells the holder.
            (Request::Release { created }, Answer::Yes { .. }) => {
                let released = before.filter(|lock| lock.created == created).map(|lock| lock.token());
                for client in &mut state.clients {
                    client.grant = client.grant.filter(|(token, _)| Some(*token) != released);
                }
            }
            _ => {}
        }
        answer
    }

    /// Carries out a request of the task that revokes etcd leases.
    fn revoke(&self, state: &mut State, client: u8, left: Leftover) {
        me(state, client).leftovers.retain(|other| *other != left);
        let Leftover { lease, is_in_doubt } = left;
        if !is_in_doubt || self.has(Fault::RevokesInDoubt) {
            state.store.remove(lease);
        } else if state.store.has(lease) {
            let now = self.now(state);
            if state.store.mark_revoked(lease, now) {
                me(state, client).leave(lease, false);
            } else {
                state.happened = Some(Event::InUse);
            }
        } else {
            me(state, client).leave(lease, true); // the request for it is still under way
        }
    }
}

/// The steps of a client.
impl Setup {
    /// Goes to the first request of a call that has a connection.
    fn start(&self, state: &mut State, client: u8) {
        let Running { call, token, .. } = call_of(state, client);
        let base = me(state, client).mark.base;
        match call {
            // Usually the resource is free, so that is the first guess.
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
            Call::Release => me.grant = None, // from here on the client does not rely on its lease
        }
        me.running = Some(Running { call, at: me.clock, tries: 1, token, next: Next::Recall });
        if me.session.is_some() {
            self.start(state, client);
        } else {
            me.session = Some(Session::default());
        }
    }

    /// Ends the connection, and tries the call again if it has tries left.
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

    /// Hands the etcd lease of an unanswered call over to the revoker.
    fn settle(&self, state: &mut State, client: u8) {
        let me = me(state, client);
        match me.running.map(|running| running.next) {
            Some(Next::Begin(begun)) => me.leave(begun.lease, true),
            // The etcd lease may be that of a quarantine, which must not end early, so it is left to expire.
            Some(Next::Mark { lease, .. }) if self.has(Fault::RevokesTheQuarantine) => me.leave(lease, false),
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
            None => (unused(state), clock, Beside::Grant),
        };
        next(state, client, Next::Begin(Beginning { lease, is_fresh, restarted, beside, answer: None }));
    }

    /// Notes the answer to one of the requests that begin a tenure.
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

    /// Continues the beginning of a tenure once all its requests are answered.
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
                // If the etcd lease is gone, there is nothing to revoke.
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

    /// Continues a call once it is known which tenure the resource has.
    fn go_on(&self, state: &mut State, client: u8, found: Option<Lock>) {
        let Running { call, token, .. } = call_of(state, client);
        let mark = me(state, client).mark;
        match (call, found) {
            (Call::Acquire, None) => self.begin(state, client, false),
            (Call::Acquire, Some(lock)) if lock.owner != client => {
                if state.store.lock == Some(lock) && !state.store.has(lock.lease) {
                    state.broken = Some("bounded take-over"); // nothing would ever end the tenure
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

    /// Returns the requests that a client has under way, each with its part.
    fn under_way(state: &State, client: u8) -> impl Iterator<Item = (Part, Request)> {
        let me = &state.clients[usize::from(client)];
        [Part::Main, Part::Beside].into_iter().filter_map(move |part| Some((part, me.request(client, part)?)))
    }

    /// Delays the requests that a client has under way.
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
                // The engine relies on its connection not to repeat requests of these kinds.
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
            let is_calm = state.clients.iter().all(|client| client.running.is_none());
            match state.saved {
                Some(_) => actions.push(Action::Restore),
                None => actions.extend(is_calm.then_some(Action::Save)),
            }
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
                state.late.clear(); // the late requests were for the other cluster
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
        fn has(state: &State, event: Event) -> bool {
            state.happened == Some(event)
        }
        let mut properties = rules();
        properties.extend([
            Property::sometimes("a dead client's lease is taken over", |_, state: &State| has(state, Event::TakenOver)),
            Property::sometimes("a lease is resumed", |_, state: &State| has(state, Event::Resumed)),
            Property::sometimes("a quarantine refuses", |_, state: &State| has(state, Event::Quarantined)),
            Property::sometimes("an etcd lease is used again", |_, state: &State| has(state, Event::UsedAgain)),
            Property::sometimes("an etcd lease is restarted", |_, state: &State| has(state, Event::Restarted)),
            Property::sometimes("an etcd lease in doubt is in use", |_, state: &State| has(state, Event::InUse)),
        ]);
        properties
    }
}

impl Protocol for Setup {
    fn holders(state: &State) -> impl Iterator<Item = Holder> {
        (0..).zip(&state.clients).filter_map(|(number, client)| client.holds().then_some((number, client.grant?.0)))
    }

    fn leased(&self, state: &State) -> Option<Holder> {
        state.store.live(state.clock).map(|live| (live.owner, live.token()))
    }

    fn may_have_forgotten(state: &State) -> bool {
        state.cluster > 0 || state.wipes > 0
    }

    fn broken(state: &State) -> Option<&'static str> {
        state.broken
    }
}
