//! The protocol of leases in a bucket: a few clients, which may die, and whose requests may be late, lost, duplicated
//! or given up.
//!
//! Real time passes in ticks. The clients' clocks have rates that differ by almost two percent, and their times of day
//! may be wrong. A lease lasts for two ticks.
//!
//! The model has one resource, whose object is created, taken over, renewed and released, but not deleted. Each client
//! is an owner of its own, so no request of the same owner can follow a write whose answer was lost; the engine's tests
//! cover that.

use std::time::Duration;

use keylatch_lease::{
    Expiry, Owner, Term, Token,
    engine::{Answer, Gone, Left, Want},
};
use keylatch_lease_remote::Policy;
use object_store::UpdateVersion;
use stateright::{Model, Property};

use crate::{
    decide::{self, Extension, Now, Request, Seen, Step},
    record::{Lease, Nonce, Record},
    rules::{Holder, Protocol, rules},
};

/// The length of a lease.
const TTL: Duration = Duration::from_millis(1000);

/// The setup of a model.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The rate of each client's clock, and its time of day in microseconds since 1970.
    pub clocks: &'static [(u64, i64)],
    /// The number of ticks.
    pub ticks: u8,
    /// The number of calls that each client may make.
    pub calls: &'static [u8],
    /// The numbers of messages that may be lost, of writes that may be duplicated, and of requests that may be given
    /// up.
    pub lost: u8,
    pub doubled: u8,
    pub given_up: u8,
    /// The number of clients that may die.
    pub deaths: u8,
    /// A fault of the protocol, which a property must reveal.
    pub fault: Option<Fault>,
}

/// A fault of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store ignores the conditions of writes.
    Unconditional,
    /// A renewal does not change the object's version. That would happen in a store whose versions are hashes of the
    /// content, if the content had no random number.
    SameVersion,
    /// A holder counts its deadline from the answer.
    DeadlineFromAnswer,
    /// A client counts the object as seen at the time of its question, not at that of the answer.
    SeenWhenAsked,
    /// Neither holders nor waiters allow for the differences between the rates of the clocks.
    NoMargin,
    /// A released object does not keep its token.
    ForgottenToken,
}

/// The object, in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Object {
    /// The number of the write.
    write: u8,
    /// The number of the write before it.
    after: u8,
    token: u64,
    /// The client that has the lease; `None` if the resource is free.
    owner: Option<u8>,
    /// The length of the lease, counted from the write, in milliseconds.
    lasts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    Get,
    Put { before: u8, object: Object },
    Got { object: Option<Object> },
    Done { is_done: bool },
}

/// A message, with the number that the client has given to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sent {
    client: u8,
    request: u8,
    message: Message,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Acquire,
    Renew,
    Release,
}

/// The answer that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// The object's content, asked for at this time.
    Read { asked: u64 },
    /// The outcome of a write.
    Write { object: Object },
    /// The object's content, to learn what became of a write that was given up or refused.
    Check { object: Object, asked: u64 },
}

/// A call that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Running {
    call: Call,
    /// The time of the call.
    at: u64,
    /// The time at which the current write was first sent.
    sent: u64,
    step: Phase,
}

/// A version as the client has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    object: Object,
    at: u64,
    sent: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    is_dead: bool,
    clock: u64,
    calls: u8,
    request: u8,
    running: Option<Running>,
    known: Option<Known>,
    /// The token of the grant, and the holder's deadline.
    grant: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    ticks: u8,
    writes: u8,
    object: Option<Object>,
    /// The greatest token of a tenure that has begun.
    greatest: u64,
    clients: Vec<Client>,
    /// The messages on their way, in order.
    network: Vec<Sent>,
    lost: u8,
    doubled: u8,
    given_up: u8,
    deaths: u8,
    /// A rule that was broken.
    broken: Option<&'static str>,
    /// Whether each of the things that must be possible has happened.
    was_taken_over: bool,
    was_cleared_up: bool,
    was_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    Call(u8, Call),
    /// A message arrives, at the store or at the client.
    Arrive(Sent),
    /// A write arrives, and a copy of it stays on its way.
    ArriveTwice(Sent),
    Lose(Sent),
    GiveUp(u8),
    Die(u8),
}

fn millis(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn name(client: u8) -> Owner {
    Owner::named(format!("client {client}"))
}

impl Setup {
    fn now(&self, state: &State, client: u8) -> Now {
        Now {
            clock: millis(state.clients[usize::from(client)].clock),
            day: self.clocks[usize::from(client)].1,
            store: None,
        }
    }

    fn seen(&self, known: Known, is_own: bool) -> Seen {
        let Object { token, owner, lasts, .. } = known.object;
        let lease = owner.map(|owner| Lease {
            resource: "report".into(),
            owner: name(owner).id().into(),
            lasts: Some(i64::try_from(lasts * 1000).unwrap()),
            held: 0,
            written: self.clocks[usize::from(owner)].1,
            policy: Policy::of(&Expiry::Sliding(TTL)),
        });
        let record = Record { token, nonce: Nonce::new(), after: vec![], lease };
        let early = if self.fault == Some(Fault::NoMargin) && !is_own { TTL / 100 } else { Duration::ZERO };
        let version = UpdateVersion { e_tag: None, version: None };
        Seen {
            version,
            record,
            at: millis(known.at).saturating_sub(early),
            sent: known.sent.map(millis),
            modified: None,
        }
    }

    /// Asks the engine for the next step.
    fn decide(&self, state: &State, client: u8, running: &Running) -> Step<Answer> {
        let me = &state.clients[usize::from(client)];
        let is_own = me.known.is_some_and(|known| known.object.owner == Some(client));
        let seen = me.known.map(|known| self.seen(known, is_own));
        let (now, term) = (self.now(state, client), Some(Term { idle: Some(TTL), total: None }));
        match running.call {
            Call::Acquire => {
                let request = Request {
                    resource: "report".into(),
                    owner: name(client),
                    want: Want::Any,
                    term,
                    expiry: Expiry::Sliding(TTL),
                    is_waiting: true,
                    at: millis(running.at),
                };
                decide::acquire(&request, seen.as_ref(), now)
            }
            Call::Renew => {
                let token = me.grant.and_then(|(token, _)| Token::new(token)).expect("only a holder renews");
                let granted = |left| match left {
                    Left::For(left) => {
                        Answer::Granted { token, resumed: true, held_for: Duration::ZERO, remaining: Some(left) }
                    }
                    _ => Answer::Free,
                };
                let extension = Extension { owner: name(client), token, term };
                match decide::renew(&extension, seen.as_ref(), now) {
                    Step::Write(record, left) => Step::Write(record, granted(left)),
                    Step::Say(left) => Step::Say(granted(left)),
                    Step::Undone => Step::Undone,
                }
            }
            Call::Release => match decide::release(Some(&name(client)), None, seen.as_ref(), now) {
                Step::Write(record, Gone::Released) => Step::Write(record, Answer::Free),
                Step::Write(..) => unreachable!("a write releases"),
                Step::Say(_) => Step::Say(Answer::Free),
                Step::Undone => Step::Undone,
            },
        }
    }

    fn send(&self, state: &mut State, client: u8, message: Message) {
        let me = &mut state.clients[usize::from(client)];
        me.request += 1;
        state.network.push(Sent { client, request: me.request, message });
        state.network.sort_unstable();
    }

    /// Takes the next step of a call. `is_present` says whether the client has just read the object.
    fn go_on(&self, state: &mut State, client: u8, mut running: Running, is_present: bool) {
        let clock = state.clients[usize::from(client)].clock;
        let known = state.clients[usize::from(client)].known;
        let step = if is_present || known.is_some() { Some(self.decide(state, client, &running)) } else { None };
        match step {
            Some(Step::Write(record, answer)) => {
                if running.call == Call::Renew {
                    let sent = known.and_then(|known| known.sent);
                    if sent.is_some_and(|sent| clock >= sent + u64::try_from(TTL.as_millis()).unwrap()) {
                        state.broken = Some("no revival");
                    }
                }
                if let (Call::Acquire, Answer::Granted { resumed: false, token, .. }) = (running.call, &answer) {
                    debug_assert!(token.get() > 0);
                }
                state.writes += 1;
                let lasts = record.lease.as_ref().and_then(Lease::lasts).unwrap_or_default();
                let mut object = Object {
                    write: state.writes,
                    after: known.map_or(0, |known| known.object.write),
                    token: record.token,
                    owner: record.lease.as_ref().map(|_| client),
                    lasts: u64::try_from(lasts.as_millis()).unwrap(),
                };
                if let (Some(Fault::SameVersion), Call::Renew, Some(known)) = (self.fault, running.call, known) {
                    object.write = known.object.write;
                }
                if self.fault == Some(Fault::ForgottenToken) && object.owner.is_none() {
                    object.token = 0;
                }
                running.sent = clock;
                running.step = Phase::Write { object };
                let before = known.map_or(0, |known| known.object.write);
                state.clients[usize::from(client)].running = Some(running);
                self.send(state, client, Message::Put { before, object });
            }
            Some(Step::Say(answer)) if is_present => self.end(state, client, running, &answer),
            _ => {
                running.step = Phase::Read { asked: clock };
                state.clients[usize::from(client)].running = Some(running);
                self.send(state, client, Message::Get);
            }
        }
    }

    /// Ends a call that needed no write.
    fn end(&self, state: &mut State, client: u8, running: Running, answer: &Answer) {
        let me = &mut state.clients[usize::from(client)];
        me.running = None;
        match (running.call, answer) {
            (_, Answer::Busy { owner, .. }) => {
                let known = me.known.expect("somebody has it");
                if *owner == name(client) {
                    state.broken = Some("idempotent acquire");
                }
                let long = TTL.as_millis() + TTL.as_millis() / 100;
                if u128::from(me.clock - known.at) >= long {
                    state.broken = Some("bounded take-over");
                }
            }
            (Call::Acquire, _) => unreachable!("an acquire writes, or the resource is busy"),
            (Call::Renew, _) => me.grant = None,
            (Call::Release, _) => {}
        }
    }

    /// Ends a call whose write was carried out.
    fn has_written(&self, state: &mut State, client: u8, running: Running, object: Object) {
        let me = &mut state.clients[usize::from(client)];
        me.running = None;
        me.known = Some(Known { object, at: me.clock, sent: Some(running.sent) });
        if object.owner.is_some() {
            let from = if self.fault == Some(Fault::DeadlineFromAnswer) { me.clock } else { running.at };
            let margin = if self.fault == Some(Fault::NoMargin) { 0 } else { object.lasts / 100 };
            let deadline = from + object.lasts - margin;
            // A renewal that is answered after the deadline comes too late for the holder.
            let is_lost = running.call == Call::Renew && me.grant.is_none_or(|(_, known)| known <= me.clock);
            me.grant = if is_lost { None } else { Some((object.token, deadline)) };
        }
    }

    /// Carries out a request and sends the answer, or delivers an answer.
    fn serve(&self, state: &mut State, sent: Sent) {
        let answer = match sent.message {
            Message::Get => Message::Got { object: state.object },
            Message::Put { before, object } => {
                let is_same = state.object.map_or(0, |object| object.write) == before;
                let is_done = is_same || self.fault == Some(Fault::Unconditional);
                if is_done {
                    let old = state.object;
                    let begins = object.owner.is_some()
                        && old.is_none_or(|old| (old.token, old.owner) != (object.token, object.owner));
                    if begins {
                        if object.token <= state.greatest {
                            state.broken = Some("tokens grow");
                        }
                        state.greatest = state.greatest.max(object.token);
                        let dead = |owner: u8| state.clients[usize::from(owner)].is_dead;
                        state.was_taken_over |= old.and_then(|old| old.owner).is_some_and(dead);
                    }
                    state.object = Some(object);
                } else {
                    let me = &state.clients[usize::from(sent.client)];
                    state.was_late |= me.request != sent.request;
                }
                Message::Done { is_done }
            }
            Message::Got { .. } | Message::Done { .. } => return self.hear(state, sent),
        };
        if !state.clients[usize::from(sent.client)].is_dead {
            state.network.push(Sent { message: answer, ..sent });
            state.network.sort_unstable();
        }
    }

    /// Notes what a client has read.
    fn note(&self, state: &mut State, client: u8, asked: u64, object: Option<Object>) {
        let me = &mut state.clients[usize::from(client)];
        let at = if self.fault == Some(Fault::SeenWhenAsked) { asked } else { me.clock };
        me.known = object.map(|object| match me.known {
            Some(known) if known.object.write == object.write => known,
            _ => Known { object, at, sent: None },
        });
    }

    /// Delivers an answer to its client.
    fn hear(&self, state: &mut State, sent: Sent) {
        let me = &state.clients[usize::from(sent.client)];
        let Some(running) = me.running.filter(|_| me.request == sent.request && !me.is_dead) else { return };
        let (client, clock) = (sent.client, me.clock);
        match (running.step, sent.message) {
            (Phase::Read { asked }, Message::Got { object }) => {
                self.note(state, client, asked, object);
                self.go_on(state, client, running, true);
            }
            (Phase::Write { object }, Message::Done { is_done: true }) => {
                self.has_written(state, client, running, object);
            }
            (Phase::Write { object }, Message::Done { is_done: false }) => {
                let step = Phase::Check { object, asked: clock };
                state.clients[usize::from(client)].running = Some(Running { step, ..running });
                self.send(state, client, Message::Get);
            }
            (Phase::Check { object: mine, asked }, Message::Got { object }) => {
                if object.is_some_and(|object| object.write == mine.write) {
                    state.was_cleared_up = true;
                    return self.has_written(state, client, running, mine);
                }
                self.note(state, client, asked, object);
                if object.is_some_and(|object| object.after == mine.write) && mine.owner.is_none() {
                    state.clients[usize::from(client)].running = None; // released, and then acquired by another client
                } else if object.map_or(0, |object| object.write) == mine.after {
                    // The object is still what it was, so the same write is sent once more.
                    let step = Phase::Write { object: mine };
                    state.clients[usize::from(client)].running = Some(Running { step, ..running });
                    self.send(state, client, Message::Put { before: mine.after, object: mine });
                } else {
                    self.go_on(state, client, running, true);
                }
            }
            _ => unreachable!("an answer of another kind"),
        }
    }

    fn call(&self, state: &mut State, client: u8, call: Call) {
        let me = &mut state.clients[usize::from(client)];
        me.calls += 1;
        let at = me.clock;
        if call == Call::Release {
            me.grant = None; // from here on the client does not rely on its lease
        }
        let running = Running { call, at, sent: at, step: Phase::Read { asked: at } };
        self.go_on(state, client, running, false);
    }

    fn give_up(&self, state: &mut State, client: u8) {
        state.given_up += 1;
        let me = &mut state.clients[usize::from(client)];
        let Some(running) = me.running else { return };
        match running.step {
            Phase::Write { object } => {
                let step = Phase::Check { object, asked: me.clock };
                me.running = Some(Running { step, ..running });
                self.send(state, client, Message::Get);
            }
            // The call ends, because the next call can repeat a read.
            _ => {
                me.running = None;
                me.request += 1; // no answer is heard any more
                if running.call == Call::Renew {
                    me.grant = None;
                }
            }
        }
    }
}

/// Returns whether a client's check of its lease succeeds.
fn holds(client: &Client) -> bool {
    !client.is_dead && client.grant.is_some_and(|(_, deadline)| client.clock < deadline)
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client { is_dead: false, clock: 0, calls: 0, request: 0, running: None, known: None, grant: None };
        vec![State {
            ticks: 0,
            writes: 0,
            object: None,
            greatest: 0,
            clients: vec![client; self.clocks.len()],
            network: Vec::new(),
            lost: 0,
            doubled: 0,
            given_up: 0,
            deaths: 0,
            broken: None,
            was_taken_over: false,
            was_cleared_up: false,
            was_late: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.ticks < self.ticks {
            actions.push(Action::Tick);
        }
        for (client, me) in (0..).zip(&state.clients) {
            if me.is_dead {
                continue;
            }
            if me.running.is_none() && me.calls < self.calls[usize::from(client)] {
                if me.grant.is_some() {
                    actions.extend([Action::Call(client, Call::Renew), Action::Call(client, Call::Release)]);
                } else {
                    actions.push(Action::Call(client, Call::Acquire));
                }
            }
            if me.running.is_some() && state.given_up < self.given_up {
                actions.push(Action::GiveUp(client));
            }
            if state.deaths < self.deaths {
                actions.push(Action::Die(client));
            }
        }
        for &sent in &state.network {
            actions.push(Action::Arrive(sent));
            let is_request = matches!(sent.message, Message::Put { .. });
            if is_request && state.doubled < self.doubled {
                actions.push(Action::ArriveTwice(sent));
            }
            if state.lost < self.lost {
                actions.push(Action::Lose(sent));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let remove = |state: &mut State, sent: Sent| state.network.retain(|other| *other != sent);
        match action {
            Action::Tick => {
                state.ticks += 1;
                for (me, (rate, _)) in state.clients.iter_mut().zip(self.clocks) {
                    me.clock += rate;
                }
            }
            Action::Call(client, call) => self.call(&mut state, client, call),
            Action::Arrive(sent) => {
                remove(&mut state, sent);
                self.serve(&mut state, sent);
            }
            Action::ArriveTwice(sent) => {
                state.doubled += 1;
                self.serve(&mut state, sent);
            }
            Action::Lose(sent) => {
                state.lost += 1;
                remove(&mut state, sent);
            }
            Action::GiveUp(client) => self.give_up(&mut state, client),
            Action::Die(client) => {
                state.deaths += 1;
                let me = &mut state.clients[usize::from(client)];
                *me = Client { is_dead: true, running: None, known: None, grant: None, ..*me };
                state
                    .network
                    .retain(|sent| sent.client != client || matches!(sent.message, Message::Get | Message::Put { .. }));
            }
        }
        state.network.dedup();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = rules();
        properties.extend([
            Property::sometimes("a dead client's lease is taken over", |_, state: &State| state.was_taken_over),
            Property::sometimes("a lost answer is cleared up", |_, state: &State| state.was_cleared_up),
            Property::sometimes("a late write is refused", |_, state: &State| state.was_late),
        ]);
        properties
    }
}

impl Protocol for Setup {
    fn holders(state: &State) -> impl Iterator<Item = Holder> {
        (0..).zip(&state.clients).filter_map(|(number, client)| holds(client).then_some((number, client.grant?.0)))
    }

    fn leased(&self, state: &State) -> Option<Holder> {
        state.object.and_then(|object| Some((object.owner?, object.token)))
    }

    fn broken(state: &State) -> Option<&'static str> {
        state.broken
    }
}
