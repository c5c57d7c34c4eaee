//! Leases in a JetStream stream of NATS: an engine for [`keylatch_lease`], for programs that already have a NATS
//! server.
//!
//! The calls are those of [`Leases`](keylatch_lease::Leases). A resource leased in one process is leased in every
//! process that uses the same stream and namespace.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use keylatch_lease::{Leases, Owner};
//! use keylatch_lease_nats::{ConnectOptions, Nats};
//!
//! let nats = Nats::in_namespace("shop").connect("nats.example", ConnectOptions::new)?;
//! let leases = Leases::with_engine(nats);
//!
//! let worker = Owner::incarnation("worker-3");
//! let mut held = leases.hold("nightly-report", &worker, Duration::from_secs(30)).await?;
//! held.run(async { /* the long work */ }).await?;
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The stream
//! The stream must exist: [`Nats::stream`] returns its configuration. It is called `keylatch_lease` unless
//! [`Options::stream`] names another, and contains the leases of all namespaces. Each resource has a subject of its
//! own, `keylatch_lease.lease.<namespace>.e<entity>.k<key>`, with the entity and the key in Base64, and the stream
//! keeps the last message of each subject. If there is no stream, calls fail with [`Error::Missing`]. They fail with
//! [`Error::Unsuitable`] if its configuration would lose leases, or prevent notifications.
//!
//! *The server* must be 2.9 or later; the tests use 2.9.10, and were run with 2.10 to 2.15. A stream with replicas
//! needs 2.11 or later (the tests with replicas use 2.14.0), and is refused on earlier servers: those could store two
//! messages after the same one ([#4320](https://github.com/nats-io/nats-server/issues/4320),
//! [#6485](https://github.com/nats-io/nats-server/pull/6485)).
//!
//! *Permissions* that a program needs: to publish on `keylatch_lease.lease.<namespace>.>` and
//! `keylatch_lease.clock.<namespace>.>`; on `$JS.API.STREAM.INFO`, `$JS.API.STREAM.MSG.GET` and
//! `$JS.API.STREAM.MSG.DELETE`, each followed by `.keylatch_lease`; and to subscribe to
//! `keylatch_lease.told.<namespace>.>` and to its inboxes. In the subject of a namespace, each byte other than ASCII
//! letters, digits, `_` and `-` is written as `=` and two hexadecimal digits, and the empty namespace as `=`.
//!
//! # When the stream forgets
//! A stream that is purged, created again, or restored from an older copy has forgotten leases that their holders still
//! rely on. Therefore each namespace has a *mark* in the stream, beside its leases. If the mark is missing or has
//! changed, nothing is granted for a while, until every lease that may have been granted before has ended.
//! [`AcquireError::Quarantined`](keylatch_lease::AcquireError::Quarantined) gives the remaining time, and
//! [`Options::quarantine`] sets its full length: 60 s if not set. During the quarantine, leases that the stream
//! remembers can be renewed and released.
//!
//! | what may have happened | how the engine detects it |
//! |---|---|
//! | the stream was purged, or all subjects of the namespace were | the mark is missing. (If only leases are purged by hand, and not the mark, the engine does not notice that they are forgotten.) |
//! | the stream was deleted and created again | the mark is missing, or contains the creation time of another stream |
//! | the stream was restored from an older copy, through the server or as files | the stream's sequences are smaller than those that a connected program has seen. Each connected program reads the stream's last sequence at least every second (a fifth of the timeout), by its pulse if not by a message of its own, and compares it with that of each message that it stores, with the next reading, and with each new connection |
//! | a single server was restarted | the server's `server_id`, which each new connection reads, is not the one in the mark, if [restarts are not trusted](Options::trusts_restarts) |
//! | the namespace is new | the namespace looks as if the stream had been purged, until [`Nats::init`] is called |
//!
//! - **Every grant checks the mark**: once the message that requests the lease is stored, the engine reads the mark,
//!   and grants the lease only if the mark is unchanged. So the stream may be replaced under an open connection.
//! - **Tokens** start from the server's time, in microseconds since 1970. So new tokens are greater than all earlier
//!   ones, even though the stream has forgotten those.
//! - **After a restore** a program that starts, or that was not connected for some time before it, cannot tell the copy
//!   from the original. Neither can a program that was connected, if nothing was stored between the copy and its last
//!   pulse, a second ago at most. If such a program is the first to request a lease that was granted after the copy was
//!   made, it may get the lease while its holder still relies on it (1). That lasts until a program that had seen a
//!   later message, such as the holder, notices the restore: with its next request or pulse, or with its new connection
//!   after a restart. Tokens still grow (3). Operators can rule this out. If you put back files, use
//!   `trusts_restarts(false)`. If you restore through the server, purge the subject `keylatch_lease.lease.*.mark`
//!   before the programs resume, which causes a quarantine.
//! - **A lease that lasts longer** than the quarantine, from one renewal to the next, or that never expires, is not
//!   covered by the quarantine. If the stream forgets it, another owner may get the resource while the holder still
//!   relies on its lease (1). The token tells them apart (3).
//! - **A lease that was already released** may be back, if the stream has forgotten the release. It ends when it would
//!   have ended without the release; one that never expires must be released again. Until then a renewal with the
//!   released grant succeeds. An owner that acquires a resource that it held before begins a new tenure (4), because
//!   another owner may have had a greater token in between.
//! - **[`Nats::init`]** ends a quarantine. Its caller vouches that nobody still relies on a lease that the stream may
//!   have forgotten.
//!
//! All programs that use one namespace should have the same quarantine, and the same setting of whether restarts are
//! trusted. While they differ, the shortest quarantine may apply.
//!
//! # How it works
//! - **Clock**: the server's. The server writes the time on each message that it stores, and all durations in a message
//!   count from then. The last message of a resource decides who has it, and every program that reads it computes the
//!   same end. The clients' clocks do not matter. The holder counts its own deadline from before its request.
//! - **One message, one change**: every change of a lease is one message, which the server stores only if the
//!   resource's last message is still the one that the sender knows (`Nats-Expected-Last-Subject-Sequence`). A message
//!   that prolongs a lease contains the time by which it must have been stored: if it was stored later, it has no
//!   effect.
//! - **The current time** is not available from the server. An engine that needs it, because another owner has the
//!   resource, has the server store a message, and reads the time on it. Such a reading is used for a second.
//! - **Token**: the resource's last token plus one, or the server's time in microseconds since 1970, as read within the
//!   last minute, whichever is greater. The message contains the token, and is stored only if the last message is still
//!   the one that it was computed from. A sweep records in the mark the greatest token that it deletes.
//! - **Waiters and holders** are notified by the stream itself, which republishes the headers of the messages that it
//!   stores. A process is subscribed to the mark, and to the resources that its tasks wait for, watch or
//!   [hold](keylatch_lease::Leases::hold): a request about such a resource subscribes first, and so does a new
//!   connection, so that no message after the answer is missed. In a cluster the request then also stores a message on
//!   the clock's subject, which the nodes forward after the subscription. A subscription ends no later than the first
//!   pulse after its last waiter and holder. A process with more than 1024 subscriptions replaces them by one to the
//!   whole namespace. An expiry sends no message: each waiter has its own timer. After a lost connection all waiters
//!   ask again.
//! - **Connection**: one for each engine and its clones; it carries the requests of all tasks side by side. If it is
//!   lost, the engine connects again, after a random pause of 50 ms to 2 s.
//! - **Pulse**: a process that has stored no message for a fifth of the [timeout](Options::timeout), 1 s if that is not
//!   set, asks for the stream's last sequence. So the engine notices a server that has fallen silent, a different
//!   stream, or an older copy even if no task makes a request.
//! - **Requests**: acquiring a free resource takes two round trips, one for the message and one to read the mark; up to
//!   two more if this connection does not know the resource's last message; once a minute two more, for the server's
//!   clock. One reading of the mark serves all tasks that wait for it. A release of a lease that was acquired on this
//!   connection takes one, or two to four if another request for the resource was made in this process since. A renewal
//!   takes two, for the message and for the time at which it was stored; the first one after an acquire takes three.
//!   The renewals of a batch run side by side. A request for a resource that another owner has takes two or three, and
//!   two more if the server's clock was read more than a second ago. `release_all`, `owned_by` and a sweep take one for
//!   each resource of the *namespace* that has a message, and one for each that is released or swept, 64 at a time.
//!   `release_expired` reads all of them again after each 1024 that it has deleted. A waiter sends one request when it
//!   arrives and one for each notification, one when the lease should have ended, and one every 5 s
//!   ([`Options::fallback`]). In each process only the first waiter in line does so. A process receives the headers of
//!   each message about a resource to which it is subscribed, about 200 bytes; an idle one sends one request a second.
//! - **Timeouts**: after 5 s ([`Options::timeout`]) a request fails, and the connection is given up if it has answered
//!   nothing in that time. A request that may have been carried out is sent again, up to three times in all, so that an
//!   operation fails after 15 s at most.
//!
//! A key-value bucket with an age limit would not do: all its leases would last equally long and end up to a second
//! late, and a renewal that arrives in that second would revive an expired lease. In this design leases have any length
//! and any policy, and the age of a message has no meaning. From 2.11 on each message may have its own age limit, which
//! would make sweeps unnecessary; it is not used.
//!
//! # How late a waiter may be
//! | the lease ends by | the waiter has it after |
//! |---|---|
//! | release, `release_all`, a dropped `Held` | the message, and three round trips |
//! | expiry | five round trips, by the waiter's own timer |
//! | either, while the connection is lost | the next connection, and then as in the rows above; or an error after that |
//! | release, and the server's machine is gone without closing its connections | the pulse and the timeout, 6 s, and the next connection |
//! | either, in a quarantine | an error |
//!
//! # How late a holder may learn that another call has ended its lease
//! Once the holder knows, its [`check`](keylatch_lease::Held::check) fails and [`lost`](keylatch_lease::Held::lost) is
//! ready. Without a message it learns of the end at its next renewal, within a third of the lease's time; if nobody
//! renews the lease, it learns when the lease would have expired.
//!
//! | the lease is ended by | the holder knows after |
//! |---|---|
//! | `release_as`, `release_all`, `release_token`, `release` with its grant, a fresh tenure of the same owner | the message |
//! | a purge of the stream, or of its subject, or deletion of its message, by hand | the message that begins the next tenure, or writes a new mark; or the next renewal, if that is earlier: the server sends no message about a purge |
//! | any of these while the connection is lost | the next connection, and a round trip for every 256 leases, as long as one of their `Held`s is polled |
//!
//! # What weakens which guarantee
//! The numbers are those of the [guarantees](keylatch_lease#what-it-guarantees) of `keylatch_lease`. A number alone
//! means that this guarantee may be broken.
//!
//! | | what may happen |
//! |---|---|
//! | always | 7: `release_all` releases one lease after the other, not all at one instant; a lease that its owner acquires at the same time may be released or not. If it fails, some leases have been released; if it had to be repeated, it counts only those that the last attempt released |
//! | restart of the server, `kill -9` | nothing, apart from the next row: the operating system has every confirmed change. Leases expire even while the server is down. If restarts are not trusted, a quarantine |
//! | a server of 2.10 or later is killed soon after a lease was released *and* swept (seen up to 2.15.1: [#8505](https://github.com/nats-io/nats-server/issues/8505)) | 5, 7: the release may be undone, because the server revives an earlier message of the resource's last tenure. The lease is back until its end; its owner may resume it, with the same token (3). 1 holds |
//! | the machine of a *single* server loses its power | the last seconds or minutes may be lost, unless the server has `sync_interval: always` (from 2.10 on; 2.9 has no such setting). If restarts are not trusted, nothing but a quarantine. Otherwise the quarantine begins when a program that was connected notices the loss; 1, 5 until then |
//! | the *account's* limit of storage is reached, and the server is older than 2.10.11 | 1, 2: a renewal, a resumption or a release may be refused, and the lease is gone: such a server stores the message, which deletes the one before, and then removes it |
//! | the stream is full | an acquire of a resource that was never leased is refused. At `max_messages` everything else works; at `max_bytes` a request whose message is longer than the last one is refused too, such as a first renewal. In a namespace that was not in use before, only released leases are swept. With replicas on servers that check the limits before they replicate (2.12), nothing is stored then, renewals and releases included: give such a stream limits that it does not reach, or none |
//! | a stream with 3 replicas (`num_replicas`; from 2.11 on), and one machine fails | nothing, once there is another leader, which takes up to 10 s: a lease that is shorter may end meanwhile. If all machines fail at once, the same as when the machine of a single server loses its power |
//! | another leader whose clock is ahead, or the server's clock is set forward | 2: leases expire early by that time; a write with the old token is refused (3) |
//! | another leader whose clock is behind, or the server's clock is set back | 8: leases last longer by that time; 6: a lease that had just expired may be valid again, if nobody has acquired the resource. 1 and 3 hold. If the stream also forgets leases, and the clock is set back past the last grant, 3: a token may be given out twice |
//! | a client's clock and the server's run apart by more than 1 % | 1, 2: the deadlines of holders rest on that limit, and so do takeovers, for a second at a time |
//! | the stream is purged, or deleted and created again, while it is used | nothing but a quarantine, for leases that do not outlast it; 1 otherwise. 3 holds |
//! | the stream is restored from an older copy | the same as for a purge, for programs that were connected, except in the last second before; see [above](#when-the-stream-forgets). 5, 7: a release may be undone, and a renewal with the released grant has the lease again |
//! | messages of single resources are deleted by hand | 1, for their leases; 3, if that is done within a second of the grant |
//! | an operation is given up after its timeout, or its future is dropped | 11: a lease whose grant was not received stays until it expires or its owner asks again; with `Expiry::Never`, until its owner asks again, or somebody releases it in the owner's name (`release_as`, `release_all`) |
//! | no program sweeps ([`Options::sweeps`] is `None` everywhere) | 12: a message stays for each resource that was ever leased |
//! | many processes wait for one resource | 9: waiters are served in order of arrival within each process; between processes the first request wins |
//!
//! A request that arrives late, after its operation was given up, does no harm: its message is stored only if nothing
//! has changed since. Times are kept in nanoseconds; a lease of more than 500 years never expires.
//!
//! # Writing under a lease
//! A holder may stop for any length of time, and then write long after its lease has ended. The store to which it
//! writes must check that, by the token, as [`keylatch_lease`](keylatch_lease#a-lease-is-not-enough-the-token) says.
//!
//! # TLS and users
//! The function that [`Options::connect`] takes is called for each connection, so it may read certificates and
//! passwords that are replaced while the program runs. When a server reloads its configuration, it closes the
//! connections of each user whose password has changed there. Then the driver connects again, and the leases stay,
//! unless they expire before it succeeds.
//!
//! ```no_run
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use keylatch_lease_nats::{ConnectOptions, Nats};
//!
//! // With a private CA, and a certificate of the program's own where the server asks for one.
//! let options = || {
//!     let password = std::fs::read_to_string("/run/secrets/nats").unwrap_or_default();
//!     ConnectOptions::new()
//!         .require_tls(true)
//!         .add_root_certificates("ca.pem".into())
//!         .add_client_certificate("shop.pem".into(), "shop.key".into())
//!         .user_and_password("shop".into(), password.trim_end().into())
//! };
//! let nats = Nats::in_namespace("shop").connect("tls://one.example:4222", options)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Runtimes
//! `async-nats` runs on tokio, and [`Options::connect`] must be called there. Operations can be awaited on any runtime.
#![forbid(unsafe_code)]

mod driver;
mod error;
mod known;
mod listing;
mod mark;
mod nats;
mod options;
mod record;
mod server_time;
mod session;
mod subjects;
mod topics;

pub use async_nats::ConnectOptions;
pub use error::Error;
pub use nats::Nats;
pub use options::Options;

/// Runs the README's examples as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
