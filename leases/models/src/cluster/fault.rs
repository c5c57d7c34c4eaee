//! The faults of the protocol that the model can have.

/// A fault of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The transaction that begins a tenure does not check that the resource is free.
    LockNotCompared,
    /// That transaction does not compare the mark.
    MarkNotCompared,
    /// A cluster that may have forgotten leases grants new ones at once.
    NoQuarantine,
    /// The etcd lease of a quarantine is revoked if the transaction that begins the quarantine is not answered.
    RevokesTheQuarantine,
    /// Each new connection begins a quarantine.
    AlwaysQuarantine,
    /// A new mark has the same base of tokens as the old one.
    BaseNotRaised,
    /// An owner resumes a lease that began before the cluster forgot something.
    NoDoubt,
    /// An etcd lease that is kept is revoked nevertheless.
    RevokesWhatIsKept,
    /// An etcd lease is revoked although an unanswered transaction may have used it.
    RevokesInDoubt,
    /// The doubt about an etcd lease is settled without a mark that makes the unanswered transaction fail.
    NoMarkOfRevoked,
    /// An etcd lease is used again without a restart of its time.
    NoRestart,
    /// The answer to a restart is ignored.
    RestartIgnored,
    /// A holder counts its deadline from the answer.
    DeadlineFromAnswer,
    /// A release ends whatever tenure there is.
    ReleasesAnything,
    /// An owner that has the lease is refused, like any other owner.
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
