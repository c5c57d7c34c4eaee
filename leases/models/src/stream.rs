//! The protocol of leases in a stream of NATS: the messages of a resource, each stored only if the last one is the one
//! that its sender knows, the mark of the namespace, and sweeps. There are a few clients, which may die; their writes
//! may be delayed or duplicated, and the answers lost; the stream may be created again, and the server replaced by an
//! older copy.
//!
//! Real time passes in ticks. The clients' clocks have rates that differ from the server's by almost one percent. A
//! lease lasts for two ticks.
//!
//! The messages and marks are those of the engine. A client's step is one request with its answer. The client may act
//! on the answer much later, so a slow answer needs no step of its own.

use std::time::Duration;

use keylatch_lease::{Expiry, Term};

pub use self::explore::Action;
use self::{
    mark::Mark,
    record::{Message, Tenure},
};

mod explore;
#[allow(dead_code, reason = "the model needs some of it")]
#[path = "../../nats/src/mark.rs"]
mod mark;
#[allow(dead_code, reason = "the model needs some of it")]
#[path = "../../nats/src/record.rs"]
mod record;

/// The length of a lease, and of a quarantine, in milliseconds.
const TTL: u64 = 1000;

/// The number of times that an operation is tried, if its connection ends each time.
const TRIES: u8 = 2;

/// The number of messages that others store in a new stream: more than the old stream ever had.
const FILLED: u64 = 1000;

const NANOS: u64 = 1_000_000;

/// The setup of a model.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The rate of each client's clock.
    pub clocks: &'static [u64],
    /// The number of ticks.
    pub ticks: u8,
    /// The calls that each client may make, in this order.
    pub calls: &'static [&'static [Call]],
    /// The numbers of writes that are carried out late, and twice.
    pub late: u8,
    pub doubled: u8,
    /// The number of clients that may die.
    pub deaths: u8,
    /// The numbers of times that the stream is created again, and that an older copy replaces it.
    pub created_again: u8,
    pub restores: u8,
    /// A fault of the protocol, which a property must reveal.
    pub fault: Option<Fault>,
}

/// A fault of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server stores a message whatever the last one is.
    Unconditional,
    /// A grant counts without another look at the mark.
    NoSecondLook,
    /// A sweep deletes messages before it has noted their tokens.
    NotesAfterDeletion,
    /// A stream that may have forgotten leases grants new ones at once.
    NoQuarantine,
    /// A renewal that was stored too late counts.
    LateRenewal,
    /// A holder counts its deadline from the answer.
    DeadlineFromAnswer,
    /// A tenure keeps others out until it is swept.
    EndsWhenSwept,
    /// An owner that has the lease is refused, like any other owner.
    RefusesItsOwner,
}

/// The last message of a subject: its sequence, its content, and when it was stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stored {
    sequence: u64,
    content: String,
    at: u64,
}

/// The stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Stream {
    /// The number of the stream among those that have had the name.
    id: u8,
    /// The last sequence.
    last: u64,
    lease: Option<Stored>,
    mark: Option<Stored>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Acquire,
    Renew,
    Release,
    Sweep,
}

/// The last message of the resource, as a client knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Last {
    sequence: u64,
    stored: Option<Stored>,
}

/// The next request of a client. Unless it writes, the text of a variant says what it reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// A new connection asks for the creation time of the stream, and reads the mark.
    Info,
    Recall,
    /// The connection reads the clock, to write a new mark after the one with this sequence.
    Date {
        behind: u64,
    },
    /// The last message of the resource.
    Last,
    /// The clock, to learn whether a tenure has ended.
    Time(Last),
    /// The mark, and then the clock, to learn whether the quarantine has ended.
    Quarantine(Last),
    QuarantineLeft(Last),
    /// The first clock reading of a connection, for the token.
    Token(Last),
    Put(Write),
    /// The mark, after a tenure has begun.
    Stands {
        sequence: u64,
        token: u64,
    },
    /// The time at which a renewal was stored.
    StoredAt {
        sequence: u64,
    },
    /// The mark, after a tenure was resumed.
    IsSame {
        token: u64,
        remaining: u64,
    },
    /// A sweep: the clock, the message, the mark.
    SweepTime,
    SweepLast {
        newest: u64,
        now: u64,
    },
    SweepMark {
        sequence: u64,
        token: u64,
    },
    Delete {
        sequence: u64,
        token: u64,
    },
}

/// A write, which may be late.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Write {
    kind: Kind,
    behind: u64,
    content: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Mark,
    Swept { sequence: u64, token: u64 },
    Begin { token: u64 },
    GoOn,
    Free,
}

/// A call that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Running {
    call: Call,
    /// The time of the call.
    at: u64,
    tries: u8,
    next: Next,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Session {
    id: u8,
    run: u8,
    mark: Option<String>,
    seen: u64,
    /// The last reading of the server's clock, and its time by the client's clock.
    time: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    is_dead: bool,
    clock: u64,
    calls: u8,
    session: Option<Session>,
    running: Option<Running>,
    /// The token of the grant, and the holder's deadline.
    grant: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    ticks: u8,
    /// The server's clock, and the number of its run.
    clock: u64,
    run: u8,
    stream: Stream,
    /// The number of streams that have had the name.
    streams: u8,
    saved: Option<Stream>,
    /// The greatest token of a tenure that has begun.
    greatest: u64,
    clients: Vec<Client>,
    /// The writes that are late.
    late: Vec<Write>,
    delayed: u8,
    doubled: u8,
    deaths: u8,
    restores: u8,
    broken: Option<&'static str>,
    was_taken_over: bool,
    was_resumed: bool,
    was_quarantined: bool,
    was_void: bool,
}

fn term() -> Term {
    Term { idle: Some(Duration::from_millis(TTL)), total: None }
}

fn owner(client: u8) -> String {
    format!("client {client}")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("it is JSON")
}

fn message(content: &str) -> Message {
    Message::from_bytes(content.as_bytes()).expect("the engine wrote it")
}

fn mark(content: &str) -> Mark {
    Mark::from_bytes(content.as_bytes()).expect("the engine wrote it")
}

impl Last {
    fn of(stored: Option<&Stored>) -> Self {
        Last { sequence: stored.map_or(0, |stored| stored.sequence), stored: stored.cloned() }
    }

    fn token(&self) -> u64 {
        self.stored.as_ref().map_or(0, |stored| message(&stored.content).token())
    }
}

impl Setup {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Returns the tenure that a message describes.
    fn tenure(&self, stored: &Stored) -> Option<Tenure> {
        let message = message(&stored.content);
        match message.clone().tenure(stored.at) {
            None if self.has(Fault::LateRenewal) => {
                let mut old = message.tenure(0)?;
                old.end = stored.at + TTL * NANOS;
                Some(old)
            }
            tenure => tenure,
        }
    }

    /// Returns the tenure that the stream has at this moment.
    fn live(&self, state: &State) -> Option<Tenure> {
        let tenure = state.stream.lease.as_ref().and_then(|stored| self.tenure(stored))?;
        (tenure.end > state.clock).then_some(tenure)
    }

    /// Stores a message, or refuses it. Returns its sequence.
    fn store(&self, state: &mut State, write: &Write) -> Option<u64> {
        let clock = state.clock;
        let before = self.live(state);
        let is_mark = matches!(write.kind, Kind::Mark | Kind::Swept { .. });
        let stream = &mut state.stream;
        let subject = if is_mark { &mut stream.mark } else { &mut stream.lease };
        let behind = subject.as_ref().map_or(0, |stored| stored.sequence);
        if behind != write.behind && (is_mark || !self.has(Fault::Unconditional)) {
            return None;
        }
        stream.last += 1;
        *subject = Some(Stored { sequence: stream.last, content: write.content.clone(), at: clock });
        let sequence = stream.last;
        if write.kind == Kind::GoOn && before.is_none() && self.live(state).is_some() {
            state.broken = Some("no revival");
        }
        Some(sequence)
    }

    /// Returns the first request of a call that has a connection.
    fn start(&self, call: Call) -> Next {
        match call {
            // Usually there is no message, so that is the first guess.
            Call::Acquire => Next::Quarantine(Last { sequence: 0, stored: None }),
            Call::Renew | Call::Release => Next::Last,
            Call::Sweep => Next::SweepTime,
        }
    }

    /// Ends the connection, and tries the operation again if it has tries left.
    fn reconnect(&self, state: &mut State, client: u8) {
        let me = &mut state.clients[usize::from(client)];
        me.session = None;
        match me.running.as_mut() {
            Some(running) if running.tries < TRIES => {
                running.tries += 1;
                running.next = Next::Info;
            }
            _ => self.end(state, client, None),
        }
    }

    /// Ends a call with a grant of this token for this time, or without one.
    fn end(&self, state: &mut State, client: u8, granted: Option<(u64, u64)>) {
        let greatest = state.greatest;
        let me = &mut state.clients[usize::from(client)];
        let Some(running) = me.running.take() else { return };
        let known = if running.call == Call::Sweep { return } else { me.grant.take() };
        let Some((token, remaining)) = granted else { return };
        let from = if self.has(Fault::DeadlineFromAnswer) { me.clock } else { running.at };
        let deadline = from + remaining - remaining / 100;
        let is_late = running.call == Call::Renew && known.is_none_or(|(_, deadline)| deadline <= me.clock);
        if !is_late && me.clock < deadline {
            me.grant = Some((token, deadline));
            let is_resumed = matches!(running.next, Next::IsSame { .. });
            if running.call == Call::Acquire && (token < greatest || token == greatest && !is_resumed) {
                state.broken = Some("tokens grow");
            }
            state.greatest = greatest.max(token);
        }
    }

    /// Reads the server's clock, which takes a write of its own. Returns the time and the sequence; `None` if the
    /// stream is another one.
    fn read_clock(&self, state: &mut State, client: u8) -> Option<(u64, u64)> {
        state.stream.last += 1;
        let (clock, last) = (state.clock, state.stream.last);
        let me = &mut state.clients[usize::from(client)];
        let session = me.session.as_mut()?;
        if last <= session.seen {
            return None;
        }
        session.seen = last;
        session.time = Some((clock, me.clock));
        Some((clock, last))
    }

    /// Returns the server's time by the last reading, or a little less.
    fn about(state: &State, client: u8) -> Option<u64> {
        let me = &state.clients[usize::from(client)];
        let (time, at) = me.session.as_ref()?.time?;
        let passed = me.clock - at;
        Some(time + (passed - passed / 100) * NANOS)
    }

    /// Reads the mark. Returns `None` if it is not the known one.
    fn same_mark(&self, state: &State, client: u8) -> Option<(u64, Mark)> {
        let known = state.clients[usize::from(client)].session.as_ref()?.mark.as_ref()?;
        let stored = state.stream.mark.as_ref()?;
        let found = mark(&stored.content);
        found.is_same(&mark(known)).then_some((stored.sequence, found))
    }

    fn known_mark(state: &State, client: u8) -> Mark {
        let session = state.clients[usize::from(client)].session.as_ref().expect("it is connected");
        mark(session.mark.as_ref().expect("it has read the mark"))
    }

    /// Continues a call once the last message of the resource is known.
    fn go_on(&self, state: &mut State, client: u8, last: Last) {
        let call = state.clients[usize::from(client)].running.as_ref().expect("it runs").call;
        let tenure = last.stored.as_ref().and_then(|stored| self.tenure(stored));
        let grant = state.clients[usize::from(client)].grant;
        let is_mine = tenure.as_ref().is_some_and(|tenure| tenure.owner == owner(client));
        let is_it = tenure.as_ref().filter(|tenure| is_mine && Some(tenure.token) == grant.map(|(token, _)| token));
        let next = match (call, tenure.as_ref()) {
            (Call::Renew, _) => match is_it {
                None => return self.end(state, client, None),
                Some(tenure) => {
                    let content = text(Message::go_on(tenure, term(), None).to_bytes());
                    Next::Put(Write { kind: Kind::GoOn, behind: last.sequence, content })
                }
            },
            (Call::Release, _) => match is_it {
                None => return self.end(state, client, None),
                Some(_) => Next::Time(last),
            },
            (_, None) => Next::Quarantine(last),
            (_, Some(tenure)) if is_mine && !self.has(Fault::RefusesItsOwner) => {
                if tenure.token <= Self::known_mark(state, client).doubt {
                    Next::Quarantine(last) // another tenure begins
                } else {
                    let content = text(Message::go_on(tenure, term(), None).to_bytes());
                    Next::Put(Write { kind: Kind::GoOn, behind: last.sequence, content })
                }
            }
            (_, Some(_)) => Next::Time(last),
        };
        state.clients[usize::from(client)].running.as_mut().expect("it runs").next = next;
    }

    /// Begins a tenure with a message after this one, once there is a reading of the clock.
    fn begin(&self, state: &mut State, client: u8, last: &Last) {
        let Some(now) = Self::about(state, client) else {
            return self.next(state, client, Next::Token(last.clone()));
        };
        let token = Self::known_mark(state, client).token(last.token(), now);
        let expiry = Expiry::Sliding(Duration::from_millis(TTL));
        let content = text(Message::begin(&owner(client), token, term(), &expiry).to_bytes());
        self.next(state, client, Next::Put(Write { kind: Kind::Begin { token }, behind: last.sequence, content }));
    }

    fn next(&self, state: &mut State, client: u8, next: Next) {
        state.clients[usize::from(client)].running.as_mut().expect("it runs").next = next;
    }

    /// Refuses an acquire because of a tenure. The server's time was just read.
    fn busy(&self, state: &mut State, client: u8, tenure: &Tenure, now: u64) {
        if now >= tenure.end {
            state.broken = Some("bounded take-over");
        } else if tenure.owner == owner(client) {
            state.broken = Some("idempotent acquire");
        }
        self.end(state, client, None);
    }

    /// Carries out a client's next request, and gives it the answer.
    fn step(&self, state: &mut State, client: u8) {
        let index = usize::from(client);
        let running = state.clients[index].running.clone().expect("it runs");
        match running.next {
            Next::Info => {
                let session =
                    Session { id: state.stream.id, run: state.run, seen: state.stream.last, ..Session::default() };
                state.clients[index].session = Some(session);
                self.next(state, client, Next::Recall);
            }
            Next::Recall => self.recall(state, client),
            Next::Date { behind } => match self.read_clock(state, client) {
                None => self.reconnect(state, client),
                Some((now, _)) => {
                    let Session { id, run, .. } = state.clients[index].session.clone().expect("it is connected");
                    let before = state.stream.mark.as_ref().filter(|stored| stored.sequence == behind);
                    let before = before.map(|stored| mark(&stored.content));
                    let until = if self.has(Fault::NoQuarantine) { 0 } else { now + TTL * NANOS };
                    let new = Mark::new(&id.to_string(), &run.to_string(), until, now, before.as_ref());
                    let write = Write { kind: Kind::Mark, behind, content: text(new.to_bytes()) };
                    self.next(state, client, Next::Put(write));
                }
            },
            Next::Last => {
                let last = Last::of(state.stream.lease.as_ref());
                if let Some(session) = state.clients[index].session.as_mut() {
                    session.seen = session.seen.max(last.sequence);
                }
                self.go_on(state, client, last);
            }
            Next::Time(last) => self.time(state, client, running.call, last),
            Next::Quarantine(last) => match Self::known_mark(state, client).until {
                0 => self.begin(state, client, &last),
                _ => match self.same_mark(state, client) {
                    None => self.reconnect(state, client),
                    Some(_) => self.next(state, client, Next::QuarantineLeft(last)),
                },
            },
            Next::QuarantineLeft(last) => match self.read_clock(state, client) {
                None => self.reconnect(state, client),
                Some((now, _)) if now < Self::known_mark(state, client).until => {
                    state.was_quarantined = true;
                    self.end(state, client, None);
                }
                Some(_) => self.begin(state, client, &last),
            },
            Next::Token(last) => match self.read_clock(state, client) {
                None => self.reconnect(state, client),
                Some(_) => self.begin(state, client, &last),
            },
            Next::Put(write) => self.put(state, client, &write),
            Next::Stands { sequence, token } => match self.same_mark(state, client) {
                None => self.reconnect(state, client),
                Some((_, mark)) if token <= mark.swept => {
                    state.was_void = true;
                    state.clients[index].session.as_mut().expect("it is connected").mark = Some(text(mark.to_bytes()));
                    let content = text(Message::free(token).to_bytes());
                    let at = state.clock;
                    let stored = Some(Stored { sequence, content, at });
                    self.next(state, client, Next::Quarantine(Last { sequence, stored }));
                }
                Some(_) => self.end(state, client, Some((token, TTL))),
            },
            Next::StoredAt { sequence } => {
                match state.stream.lease.clone().filter(|stored| stored.sequence == sequence) {
                    None => self.next(state, client, Next::Last), // another message came first
                    Some(stored) => self.renewed(state, client, &running, &stored),
                }
            }
            Next::IsSame { token, remaining } => match self.same_mark(state, client) {
                None => self.reconnect(state, client),
                Some(_) => {
                    state.was_resumed = true;
                    self.end(state, client, Some((token, remaining)));
                }
            },
            Next::SweepTime => match self.read_clock(state, client) {
                None => self.reconnect(state, client),
                Some((now, newest)) => self.next(state, client, Next::SweepLast { newest, now }),
            },
            Next::SweepLast { newest, now } => {
                let last = Last::of(state.stream.lease.as_ref());
                let tenure = last.stored.as_ref().and_then(|stored| self.tenure(stored));
                let is_over = tenure.is_none_or(|tenure| now >= tenure.end);
                if last.sequence == 0 || last.sequence >= newest || !is_over {
                    return self.end(state, client, None);
                }
                let (sequence, token) = (last.sequence, last.token());
                let is_first = !self.has(Fault::NotesAfterDeletion);
                let next =
                    if is_first { Next::SweepMark { sequence, token } } else { Next::Delete { sequence, token } };
                self.next(state, client, next);
            }
            Next::SweepMark { sequence, token } => match self.same_mark(state, client) {
                None => self.reconnect(state, client),
                Some((behind, old)) => {
                    let mut new = old.clone();
                    new.swept = old.swept.max(token);
                    let content = text(new.to_bytes());
                    let kind = Kind::Swept { sequence, token };
                    self.next(state, client, Next::Put(Write { kind, behind, content }));
                }
            },
            Next::Delete { sequence, token } => {
                if state.stream.lease.as_ref().is_some_and(|stored| stored.sequence == sequence) {
                    state.stream.lease = None;
                }
                if self.has(Fault::NotesAfterDeletion) {
                    self.next(state, client, Next::SweepMark { sequence, token });
                } else {
                    self.end(state, client, None);
                }
            }
        }
    }

    /// Reads the mark on a new connection.
    fn recall(&self, state: &mut State, client: u8) {
        let me = &mut state.clients[usize::from(client)];
        let running = me.running.as_mut().expect("it runs");
        let session = me.session.as_mut().expect("it is connected");
        let stored = state.stream.mark.as_ref();
        let is_sound = |mark: &Mark| mark.stream == session.id.to_string() && mark.run == session.run.to_string();
        match stored.filter(|stored| is_sound(&mark(&stored.content))) {
            Some(stored) => {
                session.mark = Some(stored.content.clone());
                running.next = self.start(running.call);
            }
            None => running.next = Next::Date { behind: stored.map_or(0, |stored| stored.sequence) },
        }
    }

    /// Reads the clock, to learn whether a tenure has ended.
    fn time(&self, state: &mut State, client: u8, call: Call, last: Last) {
        let Some((now, sequence)) = self.read_clock(state, client) else { return self.reconnect(state, client) };
        let stored = last.stored.as_ref().expect("there is a tenure");
        let tenure = self.tenure(stored).expect("there is a tenure");
        let is_over = now >= tenure.end && stored.sequence <= sequence;
        match call {
            Call::Release if is_over => self.end(state, client, None),
            Call::Release => {
                let content = text(Message::free(tenure.token).to_bytes());
                self.next(state, client, Next::Put(Write { kind: Kind::Free, behind: last.sequence, content }));
            }
            _ if is_over && !self.has(Fault::EndsWhenSwept) => self.next(state, client, Next::Quarantine(last)),
            _ => self.busy(state, client, &tenure, now),
        }
    }

    /// Goes on after a renewal was stored.
    fn renewed(&self, state: &mut State, client: u8, running: &Running, stored: &Stored) {
        match self.tenure(stored) {
            Some(tenure) => {
                let remaining = (tenure.end - stored.at) / NANOS;
                if running.call == Call::Acquire {
                    self.next(state, client, Next::IsSame { token: tenure.token, remaining });
                } else {
                    self.end(state, client, Some((tenure.token, remaining)));
                }
            }
            None if running.call == Call::Acquire => {
                let last = Last { sequence: stored.sequence, stored: Some(stored.clone()) };
                self.next(state, client, Next::Quarantine(last));
            }
            None => self.end(state, client, None),
        }
    }

    /// Sends a write, and goes on with the answer.
    fn put(&self, state: &mut State, client: u8, write: &Write) {
        let index = usize::from(client);
        let before = state.stream.lease.clone();
        let Some(sequence) = self.store(state, write) else {
            let next = match write.kind {
                Kind::Mark => Next::Recall,
                Kind::Swept { sequence, token } => Next::SweepMark { sequence, token },
                _ => Next::Last,
            };
            return self.next(state, client, next);
        };
        let session = state.clients[index].session.as_mut().expect("it is connected");
        if sequence <= session.seen {
            return self.reconnect(state, client);
        }
        session.seen = sequence;
        match write.kind {
            Kind::Mark => {
                session.mark = Some(write.content.clone());
                let call = state.clients[index].running.as_ref().expect("it runs").call;
                self.next(state, client, self.start(call));
            }
            Kind::Swept { sequence, token } => {
                session.mark = Some(write.content.clone());
                if self.has(Fault::NotesAfterDeletion) {
                    self.end(state, client, None);
                } else {
                    self.next(state, client, Next::Delete { sequence, token });
                }
            }
            Kind::Begin { token } => {
                let before = before.and_then(|stored| self.tenure(&stored));
                let dead = |tenure: Tenure| {
                    (0..).zip(&state.clients).any(|(other, client)| client.is_dead && tenure.owner == owner(other))
                };
                state.was_taken_over |= before.is_some_and(dead);
                if self.has(Fault::NoSecondLook) {
                    self.end(state, client, Some((token, TTL)));
                } else {
                    self.next(state, client, Next::Stands { sequence, token });
                }
            }
            Kind::GoOn => self.next(state, client, Next::StoredAt { sequence }),
            Kind::Free => self.end(state, client, None),
        }
    }

    fn call(&self, state: &mut State, client: u8) {
        let me = &mut state.clients[usize::from(client)];
        let call = self.calls[usize::from(client)][usize::from(me.calls)];
        me.calls += 1;
        let needs_grant = matches!(call, Call::Renew | Call::Release);
        if needs_grant && me.grant.is_none() {
            return; // there is nothing to renew or release
        }
        let next = if me.session.is_some() { self.start(call) } else { Next::Info };
        me.running = Some(Running { call, at: me.clock, tries: 1, next });
    }

    /// Returns the write that a client would send next.
    fn write(state: &State, client: u8) -> Option<Write> {
        match &state.clients[usize::from(client)].running.as_ref()?.next {
            Next::Put(write) => Some(write.clone()),
            _ => None,
        }
    }
}
