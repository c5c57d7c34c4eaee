//! The protocol of leases on a server that decides: SQLite, Postgres, Redis. There are a few clients, which may die,
//! and whose requests may be late, lost, duplicated or given up; the server's clock may be set back, and the server
//! replaced by an older copy.
//!
//! Real time passes in ticks. The clients' clocks have rates that differ from the server's by almost one percent. A
//! lease lasts for two ticks.
//!
//! The server decides in SQL or in Lua, so the decisions are written here once more, in [`Setup::decide`]; the table in
//! `docs/verification.md` says what each of them stands for. A holder acts on an answer as the front end does.

use stateright::{Model, Property};

use crate::{
    RATE,
    rules::{Holder, Protocol, rules},
};

/// The length of a lease, and of a quarantine, in milliseconds.
const TTL: u64 = 1000;

/// The time by which the server's clock is set back, in milliseconds.
const BACK: u64 = 700;

/// The number of times that a request is sent, if no answer comes.
const TRIES: u8 = 2;

/// The way in which a server remembers the greatest token that a resource has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// One number for all resources: SQLite and Redis.
    Counter,
    /// The row of the resource, which stays after a release. A sweep notes the token of the rows that it removes:
    /// Postgres.
    Row,
}

/// The setup of a model.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub memory: Memory,
    /// Whether an owner can resume its lease during a quarantine: on Postgres, but not on Redis.
    pub resumes_in_quarantine: bool,
    /// The rate of each client's clock.
    pub clocks: &'static [u64],
    /// The number of ticks.
    pub ticks: u8,
    /// The number of calls that each client may make.
    pub calls: &'static [u8],
    /// The numbers of messages that may be lost, of requests that may be duplicated, and of requests that may be given
    /// up.
    pub lost: u8,
    pub doubled: u8,
    pub given_up: u8,
    /// The number of clients that may die.
    pub deaths: u8,
    /// The number of times that an older copy may replace the server.
    pub restores: u8,
    /// The number of times that the clock may be set back.
    pub set_back: u8,
    /// A fault of the protocol, which a property must reveal.
    pub fault: Option<Fault>,
}

/// A fault of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A renewal continues a lease that has ended, if nobody has acquired the resource.
    RenewsWhatEnded,
    /// The token of a resource is forgotten when its lease is released, or its row swept.
    ForgottenToken,
    /// A holder counts its deadline from the answer.
    DeadlineFromAnswer,
    /// A holder does not allow for the rates of the clocks.
    NoMargin,
    /// A server that may have forgotten leases grants new ones at once.
    NoQuarantine,
    /// A server that may have forgotten leases lets owners resume theirs.
    NoDoubt,
    /// A release ends whatever tenure there is.
    ReleasesAnything,
    /// An owner that has the lease is refused, like any other owner.
    RefusesItsOwner,
    /// A lease keeps others out until it is swept.
    EndsWhenSwept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lease {
    owner: u8,
    token: u64,
    /// The time at which it ends, by the server's clock; zero if it was released.
    until: u64,
}

/// The data of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Data {
    /// The lease, or what is left of it.
    lease: Option<Lease>,
    /// The greatest token of all, or of those that were swept.
    last: u64,
    /// The mark: the copy that wrote it, the time until which nothing is granted, and the greatest token that is in
    /// doubt.
    copy: u8,
    barred: u64,
    doubt: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    Acquire,
    Renew {
        token: u64,
    },
    Release {
        token: u64,
    },
    Granted {
        token: u64,
        remaining: u64,
    },
    Busy {
        owner: u8,
    },
    Quarantined,
    /// The lease has ended, or was released.
    Ended,
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

/// A call that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Running {
    request: Message,
    /// The time of the call.
    at: u64,
    tries: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    is_dead: bool,
    clock: u64,
    calls: u8,
    request: u8,
    running: Option<Running>,
    /// The token of the grant, and the holder's deadline.
    grant: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    ticks: u8,
    /// The server's clock.
    clock: u64,
    /// The number of the copy that is now the server.
    copy: u8,
    data: Data,
    /// A copy of the data.
    saved: Option<Data>,
    /// The greatest token that was given out.
    greatest: u64,
    clients: Vec<Client>,
    /// The messages on their way, in order.
    network: Vec<Sent>,
    lost: u8,
    doubled: u8,
    given_up: u8,
    deaths: u8,
    set_back: u8,
    /// A rule that was broken.
    broken: Option<&'static str>,
    /// Whether each of the things that must be possible has happened.
    was_taken_over: bool,
    was_resumed: bool,
    was_quarantined: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    Call(u8, Call),
    /// A message arrives, at the server or at the client.
    Arrive(Sent),
    /// A request arrives, and a copy of it stays on its way.
    ArriveTwice(Sent),
    Lose(Sent),
    GiveUp(u8),
    Die(u8),
    /// The server's data are copied.
    Save,
    /// The copy replaces the server.
    Restore,
    SetBack,
    Sweep,
}

impl Data {
    fn live(&self, clock: u64) -> Option<Lease> {
        self.lease.filter(|lease| lease.until > clock)
    }
}

impl Setup {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Reads the mark. If another copy wrote it, leases may have been forgotten.
    fn recall(&self, state: &mut State) {
        let State { clock, copy, data, .. } = state;
        if data.copy != *copy {
            let doubt = if self.has(Fault::NoDoubt) { 0 } else { (*clock).max(data.doubt + 1) };
            let barred = if self.has(Fault::NoQuarantine) { 0 } else { *clock + TTL };
            (data.copy, data.barred, data.doubt) = (*copy, barred, doubt);
        }
        data.barred = data.barred.min(*clock + TTL); // the clock may have been set back
    }

    fn next_token(&self, data: &Data, clock: u64) -> u64 {
        let kept = data.lease.map_or(0, |lease| lease.token);
        let last = if self.memory == Memory::Row { kept.max(data.last) } else { data.last };
        clock.max(data.doubt.max(last) + 1)
    }

    /// Decides about a request. The server's clock stands still during the decision.
    fn decide(&self, state: &mut State, client: u8, request: Message) -> Message {
        let clock = state.clock;
        if matches!(request, Message::Acquire) {
            self.recall(state);
        }
        let data = &mut state.data;
        let live = data.live(clock);
        match request {
            Message::Acquire => {
                let is_kept = |lease: &Lease| self.has(Fault::EndsWhenSwept) && lease.until > 0;
                if let Some(lease) = live.or(data.lease.filter(is_kept)) {
                    if lease.owner != client || self.has(Fault::RefusesItsOwner) {
                        return Message::Busy { owner: lease.owner };
                    }
                    if data.barred > clock && !self.resumes_in_quarantine {
                        return Message::Quarantined;
                    }
                    if lease.token > data.doubt {
                        let until = lease.until.max(clock + TTL);
                        data.lease = Some(Lease { until, ..lease });
                        return Message::Granted { token: lease.token, remaining: until - clock };
                    }
                }
                if data.barred > clock {
                    return Message::Quarantined;
                }
                let token = self.next_token(data, clock);
                data.lease = Some(Lease { owner: client, token, until: clock + TTL });
                if self.memory == Memory::Counter {
                    data.last = token;
                }
                Message::Granted { token, remaining: TTL }
            }
            Message::Renew { token } => {
                let known = if self.has(Fault::RenewsWhatEnded) { data.lease } else { live };
                match known.filter(|lease| (lease.owner, lease.token) == (client, token)) {
                    None => Message::Ended,
                    Some(lease) => {
                        let until = lease.until.max(clock + TTL);
                        data.lease = Some(Lease { until, ..lease });
                        Message::Granted { token, remaining: until - clock }
                    }
                }
            }
            Message::Release { token } => {
                let is_it =
                    |lease: &Lease| (lease.owner, lease.token) == (client, token) || self.has(Fault::ReleasesAnything);
                if let Some(lease) = live.filter(is_it) {
                    data.lease = match self.memory {
                        Memory::Counter => None,
                        Memory::Row => Some(Lease { until: 0, ..lease }),
                    };
                    if self.has(Fault::ForgottenToken) {
                        (data.lease, data.last) = (None, 0);
                    }
                }
                Message::Ended
            }
            _ => unreachable!("an answer is not for the server"),
        }
    }

    /// Carries out a request, notes which rules the decision breaks, and sends the answer.
    fn serve(&self, state: &mut State, sent: Sent) {
        let (clock, before) = (state.clock, state.data);
        let live = before.live(clock);
        let answer = self.decide(state, sent.client, sent.message);
        let mine = live.filter(|lease| lease.owner == sent.client);
        match (sent.message, answer) {
            (Message::Acquire, Message::Granted { token, .. }) => {
                let is_resumed = mine.is_some_and(|lease| lease.token == token);
                if mine.is_some_and(|lease| !is_resumed && lease.token > state.data.doubt) {
                    state.broken = Some("idempotent acquire");
                }
                if token < state.greatest || token == state.greatest && !is_resumed {
                    state.broken = Some("tokens grow");
                }
                state.was_resumed |= is_resumed;
                state.greatest = state.greatest.max(token);
                let dead = |lease: Lease| lease.owner != sent.client && state.clients[usize::from(lease.owner)].is_dead;
                state.was_taken_over |= before.lease.is_some_and(dead);
            }
            (Message::Acquire, Message::Busy { owner }) => {
                if owner == sent.client {
                    state.broken = Some("idempotent acquire");
                }
                if live.is_none() {
                    state.broken = Some("bounded take-over");
                }
            }
            (Message::Acquire, Message::Quarantined) => {
                state.was_quarantined = true;
                if state.copy == 0 || state.data.barred > clock + TTL {
                    state.broken = Some("bounded take-over");
                }
            }
            (Message::Renew { .. }, Message::Granted { .. }) if live.is_none() => state.broken = Some("no revival"),
            _ => {}
        }
        if !state.clients[usize::from(sent.client)].is_dead {
            send(state, Sent { message: answer, ..sent });
        }
    }

    /// Delivers an answer to its client.
    fn hear(&self, state: &mut State, sent: Sent) {
        let me = &mut state.clients[usize::from(sent.client)];
        let Some(running) = me.running.filter(|_| me.request == sent.request && !me.is_dead) else { return };
        me.running = None;
        let known = me.grant.take();
        if let Message::Granted { token, remaining } = sent.message {
            let from = if self.has(Fault::DeadlineFromAnswer) { me.clock } else { running.at };
            let margin = if self.has(Fault::NoMargin) { 0 } else { remaining / 100 };
            // A renewal that is answered after the deadline comes too late for the holder.
            let is_renewal = running.request != Message::Acquire;
            if !is_renewal || known.is_some_and(|(_, deadline)| deadline > me.clock) {
                me.grant = Some((token, from + remaining - margin));
            }
        }
    }

    fn call(&self, state: &mut State, client: u8, call: Call) {
        let me = &mut state.clients[usize::from(client)];
        me.calls += 1;
        let token = me.grant.map_or(0, |(token, _)| token);
        let request = match call {
            Call::Acquire => Message::Acquire,
            Call::Renew => Message::Renew { token },
            Call::Release => {
                me.grant = None; // from here on the client does not rely on its lease
                Message::Release { token }
            }
        };
        self.ask(state, client, Running { request, at: state.clients[usize::from(client)].clock, tries: 0 });
    }

    fn ask(&self, state: &mut State, client: u8, running: Running) {
        let me = &mut state.clients[usize::from(client)];
        me.request += 1;
        me.running = Some(Running { tries: running.tries + 1, ..running });
        let sent = Sent { client, request: me.request, message: running.request };
        send(state, sent);
    }

    /// Ends a client's wait for an answer. The client sends its request once more, if it has tries left.
    fn give_up(&self, state: &mut State, client: u8) {
        state.given_up += 1;
        let me = &mut state.clients[usize::from(client)];
        match me.running.take() {
            Some(running) if running.tries < TRIES => self.ask(state, client, running),
            _ => me.request += 1, // no answer is heard any more
        }
    }
}

fn send(state: &mut State, sent: Sent) {
    state.network.push(sent);
    state.network.sort_unstable();
    state.network.dedup();
}

fn is_request(message: Message) -> bool {
    matches!(message, Message::Acquire | Message::Renew { .. } | Message::Release { .. })
}

/// Returns whether a client's check of its lease succeeds.
fn holds(client: &Client) -> bool {
    !client.is_dead && client.grant.is_some_and(|(_, deadline)| client.clock < deadline)
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client { is_dead: false, clock: 0, calls: 0, request: 0, running: None, grant: None };
        vec![State {
            ticks: 0,
            clock: TTL,
            copy: 0,
            data: Data::default(),
            saved: None,
            greatest: 0,
            clients: vec![client; self.clocks.len()],
            network: Vec::new(),
            lost: 0,
            doubled: 0,
            given_up: 0,
            deaths: 0,
            set_back: 0,
            broken: None,
            was_taken_over: false,
            was_resumed: false,
            was_quarantined: false,
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
                actions.push(Action::Call(client, Call::Acquire));
                if me.grant.is_some() {
                    actions.extend([Action::Call(client, Call::Renew), Action::Call(client, Call::Release)]);
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
            if is_request(sent.message) && state.doubled < self.doubled {
                actions.push(Action::ArriveTwice(sent));
            }
            if state.lost < self.lost {
                actions.push(Action::Lose(sent));
            }
        }
        if state.copy < self.restores {
            let is_new = state.saved != Some(state.data);
            actions.extend(is_new.then_some(Action::Save));
            actions.extend(state.saved.map(|_| Action::Restore));
        }
        if state.set_back < self.set_back {
            actions.push(Action::SetBack);
        }
        // A row stays while its token is ahead of the clock.
        let ended = state.data.lease.filter(|lease| lease.until <= state.clock && lease.token <= state.clock);
        actions.extend(ended.map(|_| Action::Sweep));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let remove = |state: &mut State, sent: Sent| state.network.retain(|other| *other != sent);
        match action {
            Action::Tick => {
                state.ticks += 1;
                state.clock += RATE;
                for (me, rate) in state.clients.iter_mut().zip(self.clocks) {
                    me.clock += rate;
                }
            }
            Action::Call(client, call) => self.call(&mut state, client, call),
            Action::Arrive(sent) => {
                remove(&mut state, sent);
                if is_request(sent.message) { self.serve(&mut state, sent) } else { self.hear(&mut state, sent) }
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
                *me = Client { is_dead: true, running: None, grant: None, ..*me };
                state.network.retain(|sent| sent.client != client || is_request(sent.message));
            }
            Action::Save => state.saved = Some(state.data),
            Action::Restore => {
                state.copy += 1;
                state.data = state.saved.take()?;
            }
            Action::SetBack => {
                state.set_back += 1;
                state.clock -= BACK.min(state.clock);
            }
            Action::Sweep => {
                let swept = state.data.lease.take()?;
                if !self.has(Fault::ForgottenToken) {
                    state.data.last = state.data.last.max(swept.token);
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = rules();
        properties.extend([
            Property::sometimes("a dead client's lease is taken over", |_, state: &State| state.was_taken_over),
            Property::sometimes("a lease is resumed", |_, state: &State| state.was_resumed),
            Property::sometimes("a quarantine refuses", |_, state: &State| state.was_quarantined),
        ]);
        properties
    }
}

impl Protocol for Setup {
    fn holders(state: &State) -> impl Iterator<Item = Holder> {
        (0..).zip(&state.clients).filter_map(|(number, client)| holds(client).then_some((number, client.grant?.0)))
    }

    fn leased(&self, state: &State) -> Option<Holder> {
        state.data.live(state.clock).map(|lease| (lease.owner, lease.token))
    }

    /// A copy does not know of leases that were granted after it was made.
    fn may_have_forgotten(state: &State) -> bool {
        state.copy > 0
    }

    fn broken(state: &State) -> Option<&'static str> {
        state.broken
    }
}
