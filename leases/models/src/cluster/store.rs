//! The data of the cluster, and its decisions about requests.
//!
//! Only changes that a comparison or a token depends on take a revision.

use super::fault::Fault;

/// An etcd lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub(super) id: u8,
    /// The time at which the etcd lease ends, by the leader's clock.
    pub(super) end: u64,
}

/// The keys of a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    pub(super) owner: u8,
    pub(super) created: u64,
    pub(super) base: u64,
    pub(super) lease: u8,
}

/// The mark of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark {
    /// The cluster, as identified by its ID and the length of its log.
    pub(super) cluster: u8,
    pub(super) base: u64,
    pub(super) modified: u64,
}

/// The data of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Store {
    pub(super) revision: u64,
    pub(super) mark: Option<Mark>,
    /// The etcd lease of the key that exists during a quarantine.
    pub(super) quarantine: Option<u8>,
    pub(super) lock: Option<Lock>,
    /// The etcd leases that are marked as about to be revoked.
    pub(super) revoked: Vec<u8>,
    pub(super) leases: Vec<Lease>,
}

/// A request that changes something, or confirms a tenure.
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
pub(super) enum Answer {
    /// The request was carried out at this revision. `ended` is the etcd lease of the tenure that the request has
    /// ended.
    Yes { at: u64, ended: Option<u8> },
    /// The comparisons failed. This is the tenure that the resource has.
    No(Option<Lock>),
    /// The etcd lease does not exist.
    NoLease,
}

/// The leader's clock when a request is carried out, the end of an etcd lease that it grants or restarts, and the fault
/// of the protocol.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) clock: u64,
    pub(super) end: u64,
    pub(super) fault: Option<Fault>,
}

impl Now {
    fn has(self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

impl Request {
    pub(super) fn lease(self) -> Option<u8> {
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

impl Lock {
    pub(super) fn token(&self) -> u64 {
        self.base + self.created
    }
}

impl Store {
    pub(super) fn has(&self, lease: u8) -> bool {
        self.leases.iter().any(|one| one.id == lease)
    }

    /// Returns when an etcd lease ends; 0 if it does not exist.
    pub(super) fn end(&self, lease: u8) -> u64 {
        self.leases.iter().find(|one| one.id == lease).map_or(0, |one| one.end)
    }

    /// Removes an etcd lease and the keys that are attached to it.
    pub(super) fn remove(&mut self, lease: u8) {
        self.leases.retain(|one| one.id != lease);
        self.lock = self.lock.filter(|lock| lock.lease != lease);
        self.quarantine = self.quarantine.filter(|&id| id != lease);
        self.revoked.retain(|&id| id != lease);
    }

    /// Returns the tenure whose etcd lease has not ended.
    pub(super) fn live(&self, clock: u64) -> Option<Lock> {
        self.lock.filter(|lock| self.end(lock.lease) > clock)
    }
}

impl Store {
    /// Carries out a request.
    pub(super) fn serve(&mut self, request: Request, now: Now) -> Answer {
        let done = |store: &Store| Answer::Yes { at: store.revision, ended: None };
        match request {
            Request::Grant { lease } => {
                if !self.has(lease) {
                    self.leases.push(Lease { id: lease, end: now.end });
                    self.leases.sort_unstable_by_key(|lease| lease.id);
                }
                done(self)
            }
            Request::KeepAlive { lease } => {
                // If the etcd lease has ended, the answer comes only after it was removed.
                if self.end(lease) <= now.clock && !(now.has(Fault::KeepAliveRevives) && self.has(lease)) {
                    self.remove(lease);
                    return Answer::NoLease;
                }
                self.leases.iter_mut().filter(|one| one.id == lease).for_each(|one| one.end = now.end);
                done(self)
            }
            Request::Mark { cluster, base, behind, lease } => {
                if self.mark.map_or(0, |mark| mark.modified) != behind {
                    return Answer::No(None);
                }
                if !self.has(lease) {
                    return Answer::NoLease;
                }
                self.revision += 1;
                self.mark = Some(Mark { cluster, base, modified: self.revision });
                self.quarantine = Some(lease).filter(|_| !now.has(Fault::NoQuarantine));
                done(self)
            }
            Request::Begin { .. } => self.begin(request, now),
            Request::Confirm { created, lease } => match self.lock {
                Some(lock) if (lock.created, lock.lease) == (created, lease) => done(self),
                lock => Answer::No(lock),
            },
            Request::Release { created } => match self.lock {
                Some(lock) if lock.created == created || now.has(Fault::ReleasesAnything) => {
                    self.revision += 1;
                    self.lock = None;
                    Answer::Yes { at: self.revision, ended: Some(lock.lease) }
                }
                lock => Answer::No(lock),
            },
        }
    }

    /// Carries out the transaction that begins a tenure.
    fn begin(&mut self, request: Request, now: Now) -> Answer {
        let Request::Begin { owner, lease, base, mark, is_fresh } = request else { unreachable!("it begins a tenure") };
        let is_same = self.mark.is_some_and(|found| found.modified == mark) || now.has(Fault::MarkNotCompared);
        let is_free = self.lock.is_none_or(|lock| is_fresh && lock.owner == owner) || now.has(Fault::LockNotCompared);
        if !is_same || self.quarantine.is_some() || self.revoked.contains(&lease) || !is_free {
            return Answer::No(self.lock);
        }
        if !self.has(lease) {
            return Answer::NoLease;
        }
        self.revision += 1;
        let ended = self.lock.map(|lock| lock.lease);
        let attached = if now.has(Fault::NotAttached) { 0 } else { lease };
        self.lock = Some(Lock { owner, created: self.revision, base, lease: attached });
        Answer::Yes { at: self.revision, ended }
    }

    /// Marks an etcd lease as about to be revoked, and returns `true`. If the resource is attached to it, returns
    /// `false`.
    pub(super) fn mark_revoked(&mut self, lease: u8, now: Now) -> bool {
        let is_used = self.lock.is_some_and(|lock| lock.lease == lease);
        if !is_used && !self.revoked.contains(&lease) && !now.has(Fault::NoMarkOfRevoked) {
            self.revoked.push(lease);
            self.revoked.sort_unstable();
        }
        !is_used
    }
}
