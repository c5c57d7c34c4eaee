//! Leases in a JetStream stream of NATS: an engine for [`keylatch_lease`], for programs that have such a server already.
//!
//! The calls are those of [`Leases`](keylatch_lease::Leases); what is leased in one process is leased in all that use the same
//! stream and namespace.
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
//! held.run(async { /* whatever takes its time */ }).await?;
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The stream
//! It has to be there: [`Nats::stream`] is how it is set up. It is called `keylatch_lease` unless [`Options::stream`] says otherwise, and has the
//! leases of all namespaces. Each resource has a subject of its own, `keylatch_lease.lease.<namespace>.e<entity>.k<key>`, the last two in Base64, of
//! which the stream keeps the last message. Without the stream calls fail with [`Error::Missing`], and with
//! [`Error::Unsuitable`] if it is set up so that it would lose leases, or tell nobody of them.
//!
//! *The server* is 2.9 or later; this is tested with 2.9.10, and without replicas. A stream with replicas needs 2.11 or later, and is refused on earlier
//! servers: those could store two messages behind the same one ([#4320](https://github.com/nats-io/nats-server/issues/4320),
//! [#6485](https://github.com/nats-io/nats-server/pull/6485)).
//!
//! *Permissions* that a program needs: to publish on `keylatch_lease.lease.<namespace>.>` and
//! `keylatch_lease.clock.<namespace>.>`; on `$JS.API.STREAM.INFO`, `$JS.API.STREAM.MSG.GET` and `$JS.API.STREAM.MSG.DELETE`, each with `.keylatch_lease`; and to subscribe to
//! `keylatch_lease.told.<namespace>.>` and to its inboxes. In the subject of a namespace, characters other than ASCII letters, digits, `_` and `-` are
//! `=` and two hexadecimal digits.
//!
//! # When the stream forgets
//! A stream that is purged, made anew, or restored from an older copy has forgotten leases that somebody still goes by. So each namespace has a *mark* in
//! the stream, beside its leases. If it is not there, or is not the one that there was, nothing is granted for a while, until whatever may have been
//! granted has ended: [`AcquireError::Quarantined`](keylatch_lease::AcquireError::Quarantined) says how long, and [`Options::quarantine`] how long that is, 60 s if
//! not set. Meanwhile what the stream remembers can be renewed and released.
//!
//! | it may have forgotten something | how it is known |
//! |---|---|
//! | the stream was purged, or its leases were | the mark is not there |
//! | it was deleted and made anew | there is no mark, or it does not say when this stream was made |
//! | it was restored from an older copy, through the server or as files | its sequences are smaller than those that a program has seen that was connected: each program of the namespace is told of each lease, and looks at that when it asks for one, when somebody else does, and with each new connection |
//! | a single server was started anew | it says so to each new connection (`server_id`), if [restarts are not trusted](Options::trusts_restarts) |
//! | the namespace is new | that looks the same as the first, until somebody calls [`Nats::init`] |
//!
//! - **It is looked at in each grant**: once the message is stored that asks for the lease, the mark is read, and the lease is only granted if it is still the
//!   same. So it does not matter that the stream is replaced under a connection.
//! - **Tokens** start from the server's time, in microseconds since 1970. So they go on above all that were given, though the stream knows none of them.
//! - **After a restore** an operator should know this: a program that starts after it, or was not connected for some time before it, cannot tell the
//!   copy from what was there. If it is the first to ask for a lease that was granted after the copy was made, it may get that while its holder still goes by it (1),
//!   until a program notices that was connected: with its next request, or its new connection after a restart. Tokens grow all the same (3). Rule it out with
//!   `trusts_restarts(false)` if you put back files; with restores through the server, purge the subject `keylatch_lease.lease.*.mark` before programs go on: then
//!   there is a quarantine.
//! - **A lease that lasts longer** than the quarantine, from one renewal to the next, is not waited for; nor is one that never ends. If the
//!   stream forgets it, somebody else may get the resource while the holder goes by it (1). The token tells them apart (3).
//! - **What it remembers** and is not true any more, since it has forgotten a release: such a lease ends when it would have ended. One that never
//!   ends has to be released again. Whoever renews by a grant that it has released is told that it goes on.
//!   Whoever asks again for what it had before begins a new tenure (4), as somebody else may have had a greater token meanwhile.
//! - **[`Nats::init`]** ends a quarantine. Whoever calls it says that nobody still relies on a lease that the stream may have forgotten.
//!
//! Programs that use one namespace should all have the same quarantine, and trust restarts or not. While they differ, the shortest may count.
//!
//! # How it works
//! - **Clock**: the server's. It writes the time on each message that it stores, and all durations in a message count from there; the last
//!   message of a resource decides who has it, and everybody who reads it comes to the same end. Clocks of clients do not matter. The
//!   holder counts its own deadline from before it asked.
//! - **One message, one change**: whatever changes a lease is one message, which the server stores only if the resource's last one is still that which the
//!   sender knows (`Nats-Expected-Last-Subject-Sequence`). A message that prolongs a lease says until when that must have been
//!   stored: one that came too late is there, and revives nothing.
//! - **What time it is** the server does not say. Who has to know, since somebody else has the resource, has the server store a message, and
//!   reads the time on it; that is good for a second.
//! - **Token**: the last one of the resource plus one, or the server's time in microseconds since 1970 by a reading of the last minute, whichever is greater.
//!   The message has it, and is stored only if the last one that it goes by still is; a sweep writes down in the mark the greatest token that it deletes.
//! - **Who waits** is told by the stream itself, which republishes the headers of what it has stored; and so is who holds something. At an expiry nobody tells: each who
//!   waits has a timer of its own. After a connection was lost, all who wait ask again.
//! - **Connection**: one for each engine and its clones, with the requests of all tasks side by side on it. When it is lost there is
//!   another one, after 50 ms to 2 s, at random.
//! - **Requests**: to acquire what is free is two round trips, the message and a look at the mark, and two more once a minute, for the server's clock; to release what was acquired on this connection is one, and is two to four once anybody
//!   in this process has asked for it meanwhile. To renew is two: the message, and when it was stored; and three the first time after it was
//!   acquired. A batch goes side by side. To ask for what somebody else has is two or three, and two more if it is more than a second
//!   since the server's clock was read. `release_all`, `owned_by` and a sweep are one for each resource of
//!   the *namespace* that has a message, and one for each of those to be released or swept, 64 at a time. `release_expired` asks for all of them again
//!   after each 1024 that it has deleted.
//!   Who waits asks once when it comes and once for each time it is told; also when the lease should have ended, and
//!   every 5 s ([`Options::fallback`]). In each process that is the first in line alone. Each process gets the headers of each
//!   message of its namespace, some 200 bytes.
//! - **An answer that does not come**: after 5 s ([`Options::timeout`]) a question fails, and a connection that has said nothing is given up. If it may have been done
//!   all the same, it is asked again: up to three times in all, so that an operation fails after 15 s at most.
//!
//! Why not a key-value bucket with an age limit: all of its leases would last equally long, and end up to a second late; and a renewal that comes
//! meanwhile would revive what is over. With this, leases have any length and any policy, and the age of a message is used for nothing.
//! From 2.11 on messages may have an age limit each, which would spare the sweeps; it is not used.
//!
//! # How late a waiter may be
//! | the lease ends by | who waits has it after |
//! |---|---|
//! | release, `release_all`, a dropped `Held` | the message, and three round trips |
//! | expiry | five round trips, by its own timer |
//! | either, while the connection is lost | the next connection, and as above; or an error after that |
//! | release, and the server's machine is gone without a word | the fallback and the timeout, 10 s |
//! | either, in a quarantine | an error |
//!
//! # How late a holder may learn that somebody else has ended its lease
//! Its [`check`](keylatch_lease::Held::check) says no from then on, and [`lost`](keylatch_lease::Held::lost) is ready. *At its next renewal* is within a third of
//! the lease's time; if nobody renews it, at its end.
//!
//! | the lease is ended by | the holder knows after |
//! |---|---|
//! | `release_as`, `release_all`, `release_token`, `release` with its grant, a fresh tenure of the same owner | the message |
//! | a purge of the stream, or of its subject, or deletion of its message, by hand | the message with which somebody else begins a tenure, or writes a new mark. Before that, at its next renewal: the server tells nobody of a purge |
//! | what is not told, as the connection was lost | the next connection, and a round trip for up to 256 leases, as long as one of them is polled |
//!
//! # What weakens which guarantee
//! The numbers are those of [`keylatch_lease`](keylatch_lease#what-it-guarantees).
//!
//! | | what may happen |
//! |---|---|
//! | always | 7: `release_all` releases one lease after the other, not all as of one instant; what its owner acquires meanwhile may be released or not. If it fails, some have been released; if it had to ask again, it counts only what it released then |
//! | restart of the server, `kill -9` | nothing: the operating system has what was confirmed. Leases go on expiring meanwhile. If restarts are not trusted, a quarantine |
//! | the machine of a *single* server loses its power | the last seconds or minutes may be lost, unless the server has `sync_interval: always` (from 2.10 on; 2.9 has no such setting). If restarts are not trusted, nothing but a quarantine. Otherwise that comes when a program notices that was connected; 1, 5 until then |
//! | the *account's* limit of storage is reached, and the server is older than 2.10.11 | 1, 2: who renews, resumes or releases may be told that it is refused, and the lease is gone: such a server stores a message, which deletes the one before, and then removes it |
//! | the stream is full | what was never leased is refused. At `max_messages` all else goes on; at `max_bytes` what needs a longer message than the last one is refused as well, such as a first renewal. Where the namespace was not in use before, only what was released is swept. With replicas on servers that check the limits before they replicate (2.12), nothing is stored then, renewals and releases included: give such a stream limits that it does not reach, or none |
//! | a stream with 3 replicas (`num_replicas`; from 2.11 on), and one machine fails | nothing, once there is another leader, as far as the server keeps its word: not tested here. If all fail at once, as above |
//! | another leader whose clock is ahead, or the server's clock is set forward | 2: leases expire early, by as much; who writes with a token is refused (3) |
//! | its clock is behind, or is set back | 8: leases last longer, by as much; 6: one that had just expired may be there again, if nobody has taken it. 1 and 3 hold. If it forgets, and its clock is set back past the last grant, 3: a token may come again |
//! | a clock of a client and the server's run apart by more than 1 % | 1, 2: as the deadlines of holders, so the clocks of those who take over rest on that, for a second at a time |
//! | the stream is purged, or deleted and made again, while it is used | nothing but a quarantine, for leases that do not outlast it; 1 otherwise. 3 holds |
//! | it is restored from an older copy | the same, for programs that were connected; see [above](#when-the-stream-forgets). 5, 7: a release may be undone, and who renews by what it has released has it again |
//! | messages of single resources are deleted by hand | 1, for these; 3, if that is done within a second of the grant |
//! | an operation is given up after its timeout, or its future is dropped | 11: a lease that was granted unheard stays until it expires, or its owner asks again; with `Expiry::Never`, until its owner asks again or is released by name |
//! | nobody sweeps ([`Options::sweeps`] is `None` everywhere) | 12: a message for each resource that was ever leased |
//! | many processes wait for one resource | 9: in each process in order of arrival; among them who is first to ask |
//!
//! What arrives late, after its operation was given up, does no harm: it is stored only if nothing has changed since. Times are kept in nanoseconds; a
//! lease of more than 500 years never ends.
//!
//! # Writing under a lease
//! A holder may stop for any length of time, and go on writing when its lease is long over. What it writes to has to check that: by the
//! token, as [`keylatch_lease`](keylatch_lease#a-lease-is-not-enough-the-token) says.
//!
//! # Runtimes
//! `async-nats` runs on tokio, and [`Options::connect`] has to be called there. The calls themselves may be made, and waited for, anywhere.
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

pub use async_nats::ConnectOptions;
pub use error::Error;
pub use nats::Nats;
pub use options::Options;

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
