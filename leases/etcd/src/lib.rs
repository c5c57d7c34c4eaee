//! Leases in etcd: an engine for [`keylatch_lease`], for programs that have such a cluster already.
//!
//! The calls are those of [`Leases`](keylatch_lease::Leases); what is leased in one process is leased in all that use the same
//! cluster and namespace.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use keylatch_lease::{Leases, Owner};
//! use keylatch_lease_etcd::Etcd;
//!
//! let endpoints = ["http://etcd-1.example:2379", "http://etcd-2.example:2379", "http://etcd-3.example:2379"];
//! let leases = Leases::with_engine(Etcd::in_namespace("shop").connect(endpoints, None));
//!
//! let worker = Owner::incarnation("worker-3");
//! let mut held = leases.hold("nightly-report", &worker, Duration::from_secs(30)).await?;
//! held.run(async { /* whatever takes its time */ }).await?;
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The keys
//! Each tenure has two keys, and hangs on an *etcd lease* of its own, which is how etcd ends it:
//!
//! ```text
//! keylatch-lease/NAMESPACE/l/ENTITY/KEY/SLOT          who has it
//! keylatch-lease/NAMESPACE/o/OWNER/ENTITY/KEY/SLOT    what somebody has
//! ```
//!
//! Beside them are `keylatch-lease/NAMESPACE/l/mark`, which makes the namespace [the one that it was](#when-the-cluster-forgets), and while nothing is granted
//! `keylatch-lease/NAMESPACE/l/quarantine`. For a moment there may be another, `keylatch-lease/NAMESPACE/x/ETCD LEASE`: the mark of an etcd lease that somebody asked for and then gave up.
//!
//! All but letters, digits and `-_.~:@+=,` is escaped as in URLs; the slot is 0 or 1. `etcdctl get --prefix keylatch-lease/shop/l/` shows who has
//! what, and `etcdctl lease revoke` of a key's lease frees it by force. A user needs a role with the permission to read and write the
//! prefix `keylatch-lease/NAMESPACE/`.
//!
//! # When the cluster forgets
//! A cluster that is restored from a snapshot, or of which somebody deletes all keys, has forgotten leases that somebody still goes by. So each namespace has
//! a *mark*. If it is not there, or is not the one that there was, nothing is granted for a while, until whatever may have been
//! granted has ended: [`AcquireError::Quarantined`](keylatch_lease::AcquireError::Quarantined) says how long, and [`Options::quarantine`] how long that is, 60 s if
//! not set. Meanwhile what the cluster remembers can be renewed and released.
//!
//! | it may have forgotten something | how it is known |
//! |---|---|
//! | all keys of the namespace are gone | the mark is not there |
//! | a snapshot was restored | the cluster has another ID; or its log has fewer entries than it has revisions, for a restore begins a new log: each new connection asks for both |
//! | the folder of a single node was put back to an older copy | the revision is smaller than one that a program has seen that was connected |
//! | the namespace is new | that looks the same as the first, until somebody calls [`Etcd::init`] |
//!
//! - **It is looked at in each grant**: the transaction that begins a tenure compares the mark, and that there is no quarantine. So it does not matter what
//!   becomes of the cluster under a connection.
//! - **Tokens** are revisions above a base, and the base is the time of day, in microseconds since 1970, of the program that wrote the mark. So they go on above all
//!   that were given, though revisions are given out again: unless that program's clock is behind those of all that wrote a mark before it,
//!   by more than the time since.
//! - **After a restore** an operator need do nothing, if it was one from a snapshot (`etcdctl snapshot restore`). After putting back a folder, or where a restored
//!   cluster was used by others for long before the first program came: delete `keylatch-lease/NAMESPACE/l/mark` before programs go on. A program that
//!   was not connected cannot tell such a copy from what was there (1, 3).
//! - **A lease that lasts longer** than the quarantine, from one renewal to the next, is not waited for; nor is one that never ends. If the
//!   cluster forgets it, somebody else may get the resource while the holder goes by it (1). The token tells them apart (3).
//! - **What it remembers** and is not true any more, since it has forgotten a release: such a lease ends when it would have ended. One that never
//!   ends has to be released again. Whoever renews by a grant that it has released is told that it goes on.
//!   Whoever asks again for what it had before begins a new tenure (4), as somebody else may have had a greater token meanwhile.
//! - **[`Etcd::init`]** ends a quarantine. Whoever calls it says that nobody still relies on a lease that the cluster may have forgotten.
//!
//! Programs that use one namespace should all have the same quarantine. While they differ, the shortest may count.
//!
//! # How it works
//! - **Clock**: the leader's, a steady one, in whole seconds: times are rounded up there, and the holder goes by what it asked for, counted
//!   from before it asked. Nobody's time of day matters, but for the base of tokens. The shortest lease is one and a half election timeouts, 2 s with etcd's defaults:
//!   less is `TtlTooShort`. More than 285 years (9·10⁹ s) never ends.
//! - **Token**: the revision at which the tenure began, which is the create revision of its keys, plus the mark's base, which is in the value. Revisions
//!   grow with each change of the whole cluster, so tokens do, whatever is released, expires or is deleted.
//! - **Who waits** is told by one watch on the namespace's keys: at a release, at an expiry, and where an owner begins a fresh tenure. So is who
//!   holds something, whoever has deleted its key. After a connection was lost, all who wait ask again.
//! - **Connection**: one for each engine and its clones, to one node, with the requests of all tasks side by side on it. When it is lost,
//!   when the node says nothing in time or has no leader, it is made again to the next endpoint, after 50 ms to 2 s, at random.
//! - **Requests**: an acquire asks for an etcd lease, and is one transaction; who waits looks first. A release is one transaction. A renewal
//!   looks at the tenure, keeps its etcd lease alive, and writes the tenure again if it is what it was; those of a batch go side by side. To be
//!   told how long others have is one more. Etcd leases that are no longer used are revoked in passing, and if nobody does they expire.
//! - **Policies**: the etcd lease is as long as the policy's time, and a keep-alive goes no further. If an end comes to be later than that, as
//!   with another policy, and at each renewal of `SlidingUpTo`, the tenure moves to another etcd lease: the token stays. `Never` hangs on none.
//! - **How long a tenure has lasted** is told by a *stopwatch*: one etcd lease for each namespace, of 31 years, that nobody renews. The clocks
//!   of clients have no part in it. It is exact to a second or two.
//! - **`release_all`** is one transaction, of one instant, for up to 127 leases: etcd takes no more at a time. More go in portions
//!   of 64.
//!
//! # How late a waiter may be
//! | the lease ends by | who waits has it after |
//! |---|---|
//! | release, `release_all`, a dropped `Held` | the watch's message, and three round trips |
//! | expiry | 0.5 s, by which etcd looks for what has expired; up to 1 s more where the time is no whole number of seconds; and the same |
//! | the limit of `SlidingUpTo` | 2 s |
//! | either, while the connection is lost | the next connection, and a few round trips; or an error after the timeout, or three |
//! | either, and the leader is gone | an election; of an expiry, the lease's whole time again |
//! | release, and the node is gone without a word | the fallback and the timeout, 10 s |
//! | any of them, in a quarantine | an error |
//!
//! # How late a holder may learn that somebody else has ended its lease
//! Its [`check`](keylatch_lease::Held::check) says no from then on, and [`lost`](keylatch_lease::Held::lost) is ready. *At its next renewal* is within a third of
//! the lease's time; if nobody renews it, at its end.
//!
//! | the lease is ended by | the holder knows after |
//! |---|---|
//! | `release_as`, `release_all`, `release_token`, `release` with its grant, a fresh tenure of the same owner | the watch's message |
//! | deletion of its key, or revocation of its etcd lease, by hand | the watch's message |
//! | what is not told, as the connection was lost | the next connection, and a round trip for up to 256 leases, as long as one of them is polled |
//!
//! # What weakens which guarantee
//! The numbers are those of [`keylatch_lease`](keylatch_lease#what-it-guarantees).
//!
//! | | what may happen |
//! |---|---|
//! | another leader, or a restart | 8: etcd counts the time of each lease anew, `Fixed` ones included, so that they last longer by up to all of it. The stopwatch begins anew: the limit of `SlidingUpTo` counts from there, and may once more be as long. A holder still goes by what it was told. 1 to 6 hold |
//! | a leader that stood still and was succeeded | 2: when it goes on it may revoke leases that were renewed meanwhile (etcd #15247; rare since 3.4.31 and 3.5.12); who writes with a token is refused (3) |
//! | an owner of more than 127 leases, or of more than 64 who acquires meanwhile | 7: `release_all` takes several instants |
//! | an operation is given up after its timeout, or its future is dropped | 11: a lease that was granted unheard stays until it expires, or its owner asks again; with `Expiry::Never`, until its owner asks again or is released by name |
//! | a program ends, etcd does not answer in time, or has no space, right after a release or an acquire; the future of a release, or of an acquire with `fresh_token`, is dropped | 12: an etcd lease on which nothing hangs any more may be there until its time is over |
//! | many processes wait for one resource | 9: in each process in order of arrival; among them who is first to ask |
//! | a snapshot is restored, or all keys are deleted | nothing but a quarantine, for leases that do not outlast it; 1 otherwise. 5, 7: a release may be undone, and who renews by what it has released has it again |
//! | the folder of a single node is put back to an older copy | the same, for programs that were connected. 1, 3, if the first to come was not: see [above](#when-the-cluster-forgets) |
//! | clocks of the nodes | nothing: no two are compared |
//!
//! # What the cluster needs
//! - etcd 3.4 or later: it is tested with 3.4.23. Three nodes or more, if it is to survive one of them.
//! - `--auto-compaction-retention`: etcd keeps each revision until it is compacted; each tenure makes a few, and each renewal one.
//! - `--max-txn-ops` no less than 128, the default.
//! - `--unsafe-no-fsync` is not supported: a crash forgets leases (1) and tokens (3).
//! - A quota that is not exhausted: otherwise nobody gets a lease ([`Error::Refused`]), nor another policy or a later end than by a
//!   keep-alive, while releases and other renewals go on.
//!
//! # Writing under a lease
//! A holder may stop for any length of time, and go on writing when its lease is long over. What it writes to has to check that.
//!
//! - In **the same cluster**: [`Etcd::guard`], a condition of the transaction that writes. It is exact.
//! - **Elsewhere**: the token, as [`keylatch_lease`](keylatch_lease#a-lease-is-not-enough-the-token) says.
//!
//! # Building, and runtimes
//! Cargo alone builds it. Its [client] is small and its own; [`Etcd::guard`] works with any other client, too. The connection is on tokio,
//! where the driver is spawned; operations can be awaited anywhere.
//!
//! For `https://` there is the feature `tls`, with which [`ConnectOptions`] have `with_tls`, and `tls-roots`, which also trusts the CAs that
//! the system trusts.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod client;
mod driver;
mod error;
mod etcd;
mod guard;
mod leftovers;
mod lock;
mod mark;
mod options;
mod place;
mod recall;
mod session;

pub use client::{Client, Compare, ConnectOptions};
pub use error::Error;
pub use etcd::Etcd;
pub use guard::Guard;
pub use keylatch_lease_remote::BoxError;
pub use options::Options;

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
