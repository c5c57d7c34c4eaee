//! The state of a client: its calls, its etcd leases and its requests.

use super::store::{Answer, Lock, Mark, Request};

/// The length of a lease, and of a quarantine, in milliseconds.
pub(super) const TTL: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Acquire,
    Renew,
    Release,
}

/// The request about the etcd lease that is sent beside the transaction that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Beside {
    Grant,
    Restart,
    /// The request was answered, or is not needed. The value says whether the etcd lease exists.
    Over(bool),
}

/// The beginning of a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Beginning {
    pub(super) lease: u8,
    pub(super) is_fresh: bool,
    /// The time at which the etcd lease was granted or last restarted, or a moment before.
    pub(super) restarted: u64,
    pub(super) beside: Beside,
    /// The answer to the transaction.
    pub(super) answer: Option<Answer>,
}

/// The next requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Next {
    /// A new connection reads the mark.
    Recall,
    /// The connection requests the etcd lease of a quarantine, to write a new mark instead of this one.
    Quarantine(Option<Mark>),
    Mark {
        base: u64,
        cluster: u8,
        behind: u64,
        lease: u8,
    },
    Begin(Beginning),
    /// A look at the mark and the quarantine, after a tenure could not begin.
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
pub(super) struct Running {
    pub(super) call: Call,
    /// The time of the call.
    pub(super) at: u64,
    pub(super) tries: u8,
    /// The token to renew or to release.
    pub(super) token: u64,
    pub(super) next: Next,
}

/// The etcd leases of a connection: those that a tenure uses, and those that are kept. Each has the time of its last
/// restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) used: Vec<(u8, u64)>,
    pub(super) kept: Vec<(u8, u64)>,
}

/// An etcd lease to revoke, once it is certain that no tenure uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Leftover {
    pub(super) lease: u8,
    pub(super) is_in_doubt: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) is_dead: bool,
    pub(super) clock: u64,
    pub(super) calls: u8,
    /// The mark that the last connection found.
    pub(super) mark: Mark,
    pub(super) session: Option<Session>,
    pub(super) leftovers: Vec<Leftover>,
    pub(super) running: Option<Running>,
    /// The token of the grant, and the holder's deadline.
    pub(super) grant: Option<(u64, u64)>,
}

/// One of the requests that a client has under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Main,
    /// The request about the etcd lease, beside the transaction that uses it.
    Beside,
}

impl Next {
    pub(super) fn lease(self) -> Option<u8> {
        match self {
            Next::Begin(Beginning { lease, .. }) | Next::Mark { lease, .. } => Some(lease),
            Next::KeepAlive(lock) | Next::Confirm(lock) => Some(lock.lease),
            _ => None,
        }
    }
}

impl Client {
    pub(super) fn leave(&mut self, lease: u8, is_in_doubt: bool) {
        self.leftovers.push(Leftover { lease, is_in_doubt });
        self.leftovers.sort_unstable();
        self.leftovers.dedup();
    }

    /// Keeps an etcd lease that nothing uses, if there is a connection and the lease can be used again. Returns whether
    /// it is kept.
    pub(super) fn keep(&mut self, lease: u8, restarted: u64) -> bool {
        match &mut self.session {
            Some(session) if is_young(self.clock, restarted) => {
                session.kept.push((lease, restarted));
                true
            }
            _ => false,
        }
    }

    /// Notes that the tenure that used this etcd lease has ended.
    pub(super) fn has_ended(&mut self, lease: u8, also_revokes: bool) {
        let used = self.session.as_mut().and_then(|session| {
            let place = session.used.iter().position(|(id, _)| *id == lease)?;
            Some(session.used.remove(place))
        });
        if !used.is_some_and(|(_, restarted)| self.keep(lease, restarted)) || also_revokes {
            self.leave(lease, false);
        }
    }

    /// Returns whether a check of the lease succeeds.
    pub(super) fn holds(&self) -> bool {
        !self.is_dead && self.grant.is_some_and(|(_, deadline)| self.clock < deadline)
    }

    /// Returns a request that the client has under way.
    pub(super) fn request(&self, number: u8, part: Part) -> Option<Request> {
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

/// Returns whether an etcd lease can be used again.
pub(super) fn is_young(clock: u64, restarted: u64) -> bool {
    clock - restarted < TTL / 2
}
