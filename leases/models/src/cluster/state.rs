//! The state of the model: the cluster, its clients, and the messages under way.

use super::{
    client::{Client, Next, Running, is_young},
    store::{Request, Store},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) ticks: u8,
    /// The leader's clock.
    pub(super) clock: u64,
    /// The number of the cluster: 0 at first, and one more after each restore.
    pub(super) cluster: u8,
    pub(super) store: Store,
    pub(super) saved: Option<Store>,
    /// The greatest token of a tenure that has begun.
    pub(super) greatest: u64,
    pub(super) clients: Vec<Client>,
    /// The requests that are late.
    pub(super) late: Vec<Request>,
    pub(super) delayed: u8,
    pub(super) doubled: u8,
    pub(super) deaths: u8,
    pub(super) elections: u8,
    pub(super) wipes: u8,
    pub(super) broken: Option<&'static str>,
    /// Something that must be possible, and happened in the last step.
    pub(super) happened: Option<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    TakenOver,
    Resumed,
    Quarantined,
    UsedAgain,
    Restarted,
    InUse,
}

pub(super) fn me(state: &mut State, client: u8) -> &mut Client {
    &mut state.clients[usize::from(client)]
}

pub(super) fn next(state: &mut State, client: u8, next: Next) {
    me(state, client).running.as_mut().expect("it runs").next = next;
}

pub(super) fn call_of(state: &State, client: u8) -> Running {
    state.clients[usize::from(client)].running.expect("it runs")
}

/// Puts a request on its way, to arrive late.
pub(super) fn delay(state: &mut State, request: Request) {
    state.late.push(request);
    state.late.sort_unstable();
    state.late.dedup();
}

/// Returns an ID for a new etcd lease, which occurs nowhere yet.
pub(super) fn unused(state: &State) -> u8 {
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

/// Removes everything that can have no effect any more.
pub(super) fn tidy(state: &mut State) {
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

/// Removes the etcd leases that have ended.
pub(super) fn expire(state: &mut State) {
    let clock = state.clock;
    let ended: Vec<u8> = state.store.leases.iter().filter(|one| one.end <= clock).map(|one| one.id).collect();
    for lease in ended {
        state.store.remove(lease);
    }
}
