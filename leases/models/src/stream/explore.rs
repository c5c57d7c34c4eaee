//! The actions, the states that follow from them, and the rules.

use stateright::{Model, Property};

use super::{Call, Client, FILLED, Mark, NANOS, Setup, State, Stored, Stream, TTL, Write, owner, text};
use crate::{
    RATE,
    rules::{Holder, Protocol, rules},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    Call(u8),
    /// A client's next request is carried out, and answered.
    Step(u8),
    /// The client's write is on its way, and the client gives it up.
    Delay(u8),
    /// The client's write is carried out, and a copy of it is on its way.
    Double(u8),
    Arrive(Write),
    Die(u8),
    /// The stream is created again, and messages of others may fill it at once.
    CreateAgain {
        last: u64,
    },
    Save,
    Restore,
}

/// Returns whether a client's check of its lease succeeds.
fn holds(client: &Client) -> bool {
    let relies = client.running.as_ref().is_none_or(|running| running.call != Call::Release);
    !client.is_dead && relies && client.grant.is_some_and(|(_, deadline)| client.clock < deadline)
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // The namespace was opened by its operator.
        let first = Mark::new("0", "0", 0, TTL * NANOS, None);
        let mark = Some(Stored { sequence: 1, content: text(first.to_bytes()), at: TTL * NANOS });
        vec![State {
            ticks: 0,
            clock: 2 * TTL * NANOS,
            run: 0,
            stream: Stream { id: 0, last: 1, lease: None, mark },
            streams: 1,
            saved: None,
            greatest: 0,
            clients: vec![Client::default(); self.clocks.len()],
            late: Vec::new(),
            delayed: 0,
            doubled: 0,
            deaths: 0,
            restores: 0,
            broken: None,
            was_taken_over: false,
            was_resumed: false,
            was_quarantined: false,
            was_void: false,
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
            match &me.running {
                None if usize::from(me.calls) < self.calls[usize::from(client)].len() => {
                    actions.push(Action::Call(client))
                }
                None => {}
                Some(_) => actions.push(Action::Step(client)),
            }
            if Self::write(state, client).is_some() {
                if state.delayed < self.late {
                    actions.push(Action::Delay(client));
                }
                if state.doubled < self.doubled {
                    actions.push(Action::Double(client));
                }
            }
            if state.deaths < self.deaths {
                actions.push(Action::Die(client));
            }
        }
        actions.extend(state.late.iter().cloned().map(Action::Arrive));
        if state.streams <= self.created_again {
            actions.extend([0, FILLED].map(|last| Action::CreateAgain { last }));
        }
        if state.restores < self.restores {
            let is_new = state.saved.as_ref() != Some(&state.stream);
            actions.extend(is_new.then_some(Action::Save));
            actions.extend(state.saved.as_ref().map(|_| Action::Restore));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => {
                state.ticks += 1;
                state.clock += RATE * NANOS;
                for (me, rate) in state.clients.iter_mut().zip(self.clocks) {
                    me.clock += rate;
                }
            }
            Action::Call(client) => self.call(&mut state, client),
            Action::Step(client) => self.step(&mut state, client),
            Action::Delay(client) => {
                state.delayed += 1;
                state.late.push(Self::write(&state, client)?);
                state.late.sort_unstable();
                self.reconnect(&mut state, client);
            }
            Action::Double(client) => {
                state.doubled += 1;
                state.late.push(Self::write(&state, client)?);
                state.late.sort_unstable();
                self.step(&mut state, client);
            }
            Action::Arrive(write) => {
                state.late.retain(|other| *other != write);
                self.store(&mut state, &write);
            }
            Action::Die(client) => {
                state.deaths += 1;
                let me = &mut state.clients[usize::from(client)];
                *me = Client { is_dead: true, clock: me.clock, calls: me.calls, ..Client::default() };
            }
            Action::CreateAgain { last } => {
                state.stream = Stream { id: state.streams, last, ..Stream::default() };
                state.streams += 1;
            }
            Action::Save => state.saved = Some(state.stream.clone()),
            Action::Restore => {
                state.restores += 1;
                state.run += 1;
                state.stream = state.saved.take()?;
                state.late.clear(); // the late writes were for the other server
                for client in 0..u8::try_from(state.clients.len()).ok()? {
                    if state.clients[usize::from(client)].session.is_some() {
                        self.reconnect(&mut state, client);
                    }
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
            Property::sometimes("a grant is void", |_, state: &State| state.was_void),
        ]);
        properties
    }
}

impl Protocol for Setup {
    fn holders(state: &State) -> impl Iterator<Item = Holder> {
        (0..).zip(&state.clients).filter_map(|(number, client)| holds(client).then_some((number, client.grant?.0)))
    }

    fn leased(&self, state: &State) -> Option<Holder> {
        let live = self.live(state)?;
        let number = (0..).zip(&state.clients).map(|(number, _)| number).find(|&number| live.owner == owner(number))?;
        Some((number, live.token))
    }

    /// Another stream, or an older copy of this one, may not know of all leases.
    fn may_have_forgotten(state: &State) -> bool {
        state.streams > 1 || state.restores > 0
    }

    fn broken(state: &State) -> Option<&'static str> {
        state.broken
    }
}
