//! The common parts of the tests of failovers, which need several servers.

use std::{fmt, thread, time::Duration};

use keylatch_lease::{Fence, Leases, Owner, engine::Engine};
use tokio::task::block_in_place;

use super::{LATE, SECOND, insist};
use crate::{Ledger, Progress, Proxy};

/// Lets owners of two clients work during the trouble, and prints their ledger.
///
/// # Panics
/// In the cases of [`Ledger::keep`], and on a `current_thread` runtime of tokio.
///
/// # Examples
/// ```no_run
/// # use keylatch_lease::{Leases, engine::Engine};
/// # use keylatch_lease_conformance::servers::{PrivateServer, SECOND, work_during};
/// # fn example<E: Engine>(here: &Leases<E>, there: &Leases<E>, node: &PrivateServer) {
/// let ledger = work_during(SECOND, [here, there], |progress| {
///     progress.more(20);
///     node.run("kill");
///     progress.more(20);
/// });
/// assert_eq!(ledger.verdict(), Ok(()));
/// # }
/// ```
pub fn work_during<E: Engine>(ttl: Duration, clients: [&Leases<E>; 2], trouble: impl FnOnce(&Progress<'_>)) -> Ledger {
    let ledger = block_in_place(|| Ledger::keep(&clients, ttl, trouble));
    println!("{ledger}");
    ledger
}

/// Checks that no two owners rely on a lease while a replica takes the place of its dead primary. The replica lacks the
/// last grants, so the engine must notice the change, and begin a quarantine. `link` leads from the replica to the
/// primary, and `fail_over` kills the primary and promotes the replica.
///
/// # Panics
/// In the cases of [`work_during`], if the [verdict](Ledger::verdict) is an error, or if no request was refused because
/// of a quarantine.
///
/// # Examples
/// ```no_run
/// # use keylatch_lease::{Leases, engine::Engine};
/// # use keylatch_lease_conformance::{Proxy, servers::{PrivateServer, SECOND, replace_a_dead_primary}};
/// # fn example<E: Engine>(clients: [&Leases<E>; 2], link: &Proxy, primary: &PrivateServer, promote: impl Fn()) {
/// replace_a_dead_primary(4 * SECOND, clients, link, || {
///     primary.run("kill");
///     promote();
/// });
/// # }
/// ```
pub fn replace_a_dead_primary<E: Engine>(
    ttl: Duration,
    clients: [&Leases<E>; 2],
    link: &Proxy,
    fail_over: impl FnOnce(),
) {
    let ledger = work_during(ttl, clients, |progress| {
        progress.more(12);
        // The replica receives nothing of what follows, and all leases that it knows of end.
        link.hold();
        thread::sleep(ttl);
        fail_over();
    });
    assert_eq!(ledger.verdict(), Ok(()));
    assert!(ledger.quarantined() > 0, "{ledger}");
}

/// Shows that two servers that do not know of each other grant the same lease twice, and that a fence keeps the two
/// holders apart. `old` is connected to one server, and `new` to the other.
///
/// # Panics
/// If there are not two holders, if the later grant has no greater token, or if the fence admits the earlier holder
/// after the later one.
///
/// # Examples
/// ```no_run
/// # use keylatch_lease::{Leases, engine::Engine};
/// # use keylatch_lease_conformance::servers::only_the_fence_decides;
/// # async fn example<E: Engine<Error: std::fmt::Debug>>(old: &Leases<E>, new: &Leases<E>) {
/// only_the_fence_decides(old, new).await;
/// # }
/// ```
pub async fn only_the_fence_decides<E: Engine<Error: fmt::Debug>>(old: &Leases<E>, new: &Leases<E>) {
    let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
    let first = insist(new, "report", &joe).await;
    let second = old.try_acquire("report", &jane, LATE).await.unwrap();
    // Each server makes its tokens from its clock, so the later grant has the greater token.
    assert!(second.token() > first.token());
    assert!(new.remaining(&first).is_some_and(|left| left > 10 * SECOND), "there must be two holders");
    let fence = Fence::new();
    assert_eq!(fence.admit(first.resource(), first.token()), Ok(()));
    assert_eq!(fence.admit(second.resource(), second.token()), Ok(()));
    assert!(fence.admit(first.resource(), first.token()).is_err());
}
