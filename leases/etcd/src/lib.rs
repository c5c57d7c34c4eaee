//! Leases in etcd: an engine for [`keylatch_lease`], for programs that already have an etcd cluster.
//!
//! The calls are those of [`Leases`](keylatch_lease::Leases). A resource leased in one process is leased in every
//! process that uses the same cluster and namespace.
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
//! held.run(async { /* the long work */ }).await?;
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The keys
//! Each tenure has two keys, attached to an *etcd lease* that no other tenure uses at the same time. When that etcd
//! lease expires, etcd deletes both keys, and the tenure ends:
//!
//! ```text
//! keylatch-lease/NAMESPACE/l/ENTITY/KEY/SLOT          the tenure, by resource
//! keylatch-lease/NAMESPACE/o/OWNER/ENTITY/KEY/SLOT    the tenure, by owner
//! ```
//!
//! Beside them is `keylatch-lease/NAMESPACE/l/mark`, which [identifies the namespace](#when-the-cluster-forgets), and
//! during a quarantine `keylatch-lease/NAMESPACE/l/quarantine`. For a moment there may also be a
//! `keylatch-lease/NAMESPACE/x/ETCD LEASE`: it marks an etcd lease that was requested by an operation that was given up
//! afterwards.
//!
//! All characters but ASCII letters, digits and `-_.~:@+=,` are escaped as in URLs; the slot is 0 or 1. `etcdctl get
//! --prefix keylatch-lease/shop/l/` lists the resources and their holders, and `etcdctl lease revoke` of a key's etcd
//! lease frees the resource by force. An etcd user needs a role with permission to read and write the prefix
//! `keylatch-lease/NAMESPACE/`.
//!
//! # When the cluster forgets
//! A cluster that is restored from a snapshot, or whose keys are all deleted, has forgotten leases that their holders
//! still rely on. Therefore each namespace has a *mark*. If the mark is missing or has changed, nothing is granted for
//! a while, until every lease that may have been granted before has ended.
//! [`AcquireError::Quarantined`](keylatch_lease::AcquireError::Quarantined) gives the remaining time, and
//! [`Options::quarantine`] sets its full length: 60 s if not set. During the quarantine, leases that the cluster
//! remembers can be renewed and released.
//!
//! | what may have happened | how the engine detects it |
//! |---|---|
//! | all keys of the namespace were deleted | the mark is missing |
//! | a snapshot was restored | the cluster has a different ID; or its log is less far ahead of its revision than when the mark was written, because a restore begins a new log. Each new connection requests all three |
//! | the data folder of a single node was put back to an older copy | the revision is smaller than one that a connected program has already seen |
//! | the namespace is new | the namespace looks as if all keys had been deleted, until [`Etcd::init`] is called |
//!
//! - **Every grant checks the mark**: the transaction that begins a tenure compares the mark, and checks that there is
//!   no quarantine. So a restore under an open connection is noticed, too, once another connection has written a new
//!   mark. A proxy that keeps a client's connection while the cluster behind it is restored may delay that: see the
//!   table below.
//! - **Tokens** are revisions plus a base. The base is the time of day, in microseconds since 1970, of the program that
//!   wrote the mark. So new tokens are greater than all earlier ones, even though etcd gives out the same revisions
//!   again. The exception is a program whose clock is behind that of an earlier writer of the mark, by more than the
//!   time since then.
//! - **After a restore** from a snapshot (`etcdctl snapshot restore`) an operator need not do anything. If a data
//!   folder was put back, or if other programs used a restored cluster for a long time before the first program
//!   connected, delete `keylatch-lease/NAMESPACE/l/mark` before the programs resume. A program that was not connected
//!   before cannot tell such a copy from the original (1, 3).
//! - **A lease that lasts longer** than the quarantine, from one renewal to the next, or that never expires, is not
//!   covered by the quarantine. If the cluster forgets it, another owner may get the resource while the holder still
//!   relies on its lease (1). The token tells them apart (3).
//! - **A lease that was already released** may be back, if the cluster has forgotten the release. It ends when it would
//!   have ended without the release; one that never expires must be released again. Until then a renewal with the
//!   released grant succeeds. An owner that acquires a resource that it held before begins a new tenure (4), because
//!   another owner may have had a greater token in between.
//! - **[`Etcd::init`]** ends a quarantine. Its caller vouches that nobody still relies on a lease that the cluster may
//!   have forgotten.
//!
//! All programs that use one namespace should have the same quarantine. While they differ, the shortest quarantine may
//! apply.
//!
//! # How it works
//! - **Clock**: the leader's monotonic clock, in whole seconds. Durations are rounded up there; the holder counts the
//!   duration that it requested, starting before the request. The time of day does not matter, except for the base of
//!   tokens. The shortest lease is one and a half election timeouts, 2 s with etcd's defaults: a shorter one is
//!   `TtlTooShort`. A lease of more than 285 years (9·10⁹ s) never expires.
//! - **Etcd leases are used again**: requesting one and revoking it would cost the cluster as much as the transactions
//!   of the tenure. When a tenure ends within 5 s, or within half of its length if that is less, its etcd lease is kept
//!   for a second, and the next tenure of the same length uses it. If that length is 10 s or more, the etcd lease is a
//!   second longer, so that its time need not be restarted each time. An etcd lease is used again only by the
//!   connection that requested it, and never if another process has ended or moved the tenure, or if an answer was
//!   lost.
//! - **Token**: the revision at which the tenure began, which is the create revision of its keys, plus the mark's base,
//!   which the keys' value contains. Revisions grow with each change of the whole cluster, so tokens grow whatever is
//!   released, expires or is deleted.
//! - **Waiters** are notified by one watch on the namespace's keys: at a release, at an expiry, and when an owner
//!   begins a fresh tenure. Holders are notified in the same way, whoever deletes their key. After a lost connection
//!   all waiters ask again.
//! - **Connection**: one for each engine and its clones, to one node; it carries the requests of all tasks side by
//!   side. If it is lost, or the node does not answer in time or has no leader, the engine connects to the next
//!   endpoint, after a random pause of 50 ms to 2 s.
//! - **Requests**: an acquire is one transaction; if no etcd lease is kept, also a request for one. A waiter reads the
//!   resource first. A release is one transaction; `release_as` and `release_token` read the resource first. A renewal
//!   reads the tenure, keeps its etcd lease alive, and writes the tenure again if it is unchanged; the renewals of a
//!   batch run side by side. Learning the remaining time of another owner's lease takes one more request. Unused etcd
//!   leases are revoked in the background; if they are not, they expire.
//! - **Many tasks**: a transaction is sent at once if no other is under way. Those that arrive in the meantime, about
//!   different resources, become the parts of one transaction, up to 64, which is one entry of the cluster's log. Each
//!   part has its own conditions and its own answer. If etcd refuses the whole transaction, each part is sent alone.
//! - **Policies**: the etcd lease is as long as the policy's time, and a keep-alive cannot extend it further. If the
//!   end must be later than that, under another policy or at each renewal of `SlidingUpTo`, the tenure moves to another
//!   etcd lease and keeps its token. A tenure with `Never` is attached to none.
//! - **The elapsed time of a tenure** is measured by a *stopwatch*: one etcd lease for each namespace, of 31 years,
//!   that is never renewed. The clients' clocks have no part in it. It is exact to a second or two.
//! - **`release_all`** is one transaction, at one instant, for up to 127 leases, because etcd limits the size of a
//!   transaction. More leases are released in portions of 64.
//!
//! # How late a waiter may be
//! | the lease ends by | the waiter has it after |
//! |---|---|
//! | release, `release_all`, a dropped `Held` | the watch's message, and three round trips |
//! | expiry | 0.5 s, the interval in which etcd looks for expired leases; up to 1 s more where the time is not a whole number of seconds, and 1 s more where it is 10 s or longer; then as for a release |
//! | the limit of `SlidingUpTo` | 2 s; 3 s if it was last renewed 10 s or more before |
//! | either, while the connection is lost | the next connection, and a few round trips; or an error after the timeout, or three timeouts |
//! | either, and the leader is gone | an election; for an expiry, the lease's whole time again |
//! | release, and the node is gone without closing its connections | the fallback and the timeout, 10 s |
//! | any of them, in a quarantine | an error |
//!
//! # How late a holder may learn that another call has ended its lease
//! Once the holder knows, its [`check`](keylatch_lease::Held::check) fails and [`lost`](keylatch_lease::Held::lost) is
//! ready. Without a message it learns of the end at its next renewal, within a third of the lease's time; if nobody
//! renews the lease, it learns when the lease would have expired.
//!
//! | the lease is ended by | the holder knows after |
//! |---|---|
//! | `release_as`, `release_all`, `release_token`, `release` with its grant, a fresh tenure of the same owner | the watch's message |
//! | deletion of its key, or revocation of its etcd lease, by hand | the watch's message |
//! | any of these while the connection is lost | the next connection, and a round trip for every 256 leases, as long as one of their `Held`s is polled |
//!
//! # What weakens which guarantee
//! The numbers are those of the [guarantees](keylatch_lease#what-it-guarantees) of `keylatch_lease`. A number alone
//! means that this guarantee may be broken.
//!
//! | | what may happen |
//! |---|---|
//! | another leader, or a restart | 8: etcd starts to count the time of each lease again, `Fixed` ones included, so that they may last longer by their whole time. The stopwatch starts again: the limit of `SlidingUpTo` counts from there, and may be as long once more. A holder still relies on the time that it was given. 1 to 6 hold |
//! | a leader that stood still and was succeeded | 2: when it resumes it may revoke leases that were renewed in between (etcd #15247; rare since 3.4.31 and 3.5.12); a write with the old token is refused (3) |
//! | an owner of more than 127 leases, or an owner of more than 64 that acquires at the same time | 7: `release_all` takes several instants |
//! | an operation is given up after its timeout, or its future is dropped | 11: a lease whose grant was not received stays until it expires or its owner asks again; with `Expiry::Never`, until its owner asks again, or somebody releases it in the owner's name (`release_as`, `release_all`) |
//! | within a second or two after a release or an acquire the program ends, etcd does not answer in time, or etcd has no space; the future of a release, or of an acquire with `fresh_token`, is dropped | 12: an unused etcd lease may stay until its time has passed |
//! | many processes wait for one resource | 9: waiters are served in order of arrival within each process; between processes the first request wins |
//! | a snapshot is restored, or all keys are deleted | nothing but a quarantine, for leases that do not outlast it; 1 otherwise. 5, 7: a release may be undone, and a renewal with the released grant has the lease again |
//! | a snapshot is restored behind a proxy that keeps its clients' connections to it | 1: a client that has seen no revision later than the snapshot goes on without a quarantine, until some program connects anew. Stop the proxy, too |
//! | a release is given up, and its owner acquires the resource again while the request is on its way | the request may end the tenure that was resumed; its holder is told, as of any other release |
//! | the data folder of a single node is put back to an older copy | the same as when a snapshot is restored, for programs that were connected. 1, 3, if the first program to connect was not: see [above](#when-the-cluster-forgets) |
//! | clocks of the nodes differ | nothing: no two are compared |
//!
//! # What the cluster needs
//! - etcd 3.4 or later: the tests use 3.4.23, and were also run with 3.5.16 and 3.5.30. Three nodes or more, to survive
//!   the loss of one.
//! - `--auto-compaction-retention`: etcd keeps each revision until it is compacted; each tenure makes a few, and each
//!   renewal one.
//! - `--max-txn-ops` of at least 128, and `--max-request-bytes` of at least 1.5 MiB, the defaults.
//! - `--unsafe-no-fsync` is not supported: a crash forgets leases (1) and tokens (3).
//! - A quota that is not exhausted. Without space, no lease can be acquired ([`Error::Refused`]), and none can get
//!   another policy, or an end later than a keep-alive gives it. Releases and all other renewals still work.
//!
//! # Writing under a lease
//! A holder may stop for any length of time, and then write long after its lease has ended. The store to which it
//! writes must check that.
//!
//! - In **the same cluster**: [`Etcd::guard`], a condition of the transaction that writes. It is exact.
//! - **Elsewhere**: the token, as [`keylatch_lease`](keylatch_lease#a-lease-is-not-enough-the-token) says.
//!
//! # Building, and runtimes
//! The crate builds with cargo alone: it brings its own small [client]. [`Etcd::guard`] also works with any other
//! client. The connection runs on tokio, where the driver is spawned; operations can be awaited on any runtime.
//!
//! # TLS and users
//! The feature `tls` enables `https://` and adds `with_tls` to [`ConnectOptions`]; `tls-roots` also trusts the CAs that
//! the system trusts, unless the options name a CA. The name in the certificate must be that of the URL.
//!
//! ```no_run
//! # #[cfg(feature = "tls")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use keylatch_lease_etcd::{ConnectOptions, Etcd, client::TlsOptions};
//!
//! // With a private CA, and a certificate of the program's own where the cluster asks for one.
//! let tls = TlsOptions::new()
//!     .ca_certificate(std::fs::read("ca.pem")?)
//!     .identity(std::fs::read("shop.pem")?, std::fs::read("shop.key")?);
//! let password = std::fs::read_to_string("/run/secrets/etcd")?;
//! let options = ConnectOptions::new().with_tls(tls).with_user("shop", password.trim_end());
//! let etcd = Etcd::in_namespace("shop").connect(["https://one.example:2379"], Some(options));
//! # Ok(())
//! # }
//! ```
//!
//! *Passwords that change.* [`Options::connect`] uses the same options for each connection. The function that
//! [`Options::connect_with`] takes makes a client for each, so it may read a password or certificates that were
//! replaced while the program runs. etcd forgets the logins of a user whose password changes; then the driver connects
//! again, and the leases stay, unless they expire before it succeeds. While etcd refuses the password, calls fail with
//! [`Error::Refused`].
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod begin;
pub mod client;
mod driver;
mod error;
mod etcd;
mod guard;
mod leftovers;
mod lock;
mod mark;
mod names;
mod options;
mod place;
mod recall;
mod restarts;
mod revoker;
mod session;
mod spare;
mod together;

pub use client::{Client, Compare, ConnectOptions};
pub use error::Error;
pub use etcd::Etcd;
pub use guard::Guard;
pub use keylatch_lease_remote::BoxError;
pub use options::Options;

/// Runs the README's examples as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
