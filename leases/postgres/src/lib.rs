//! Leases in a Postgres table: an engine for [`keylatch_lease`], for programs that have such a database already.
//!
//! The calls are those of [`Leases`](keylatch_lease::Leases); what is leased in one process is leased in all that use the same
//! database and namespace.
//!
//! ```no_run
//! # #[cfg(feature = "tokio")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use keylatch_lease::{Leases, Owner};
//! use keylatch_lease_postgres::{NoTls, Postgres};
//!
//! let postgres = Postgres::in_namespace("shop").connect("host=db.example user=shop".parse()?, NoTls);
//! let leases = Leases::with_engine(postgres);
//!
//! let worker = Owner::incarnation("worker-3");
//! let mut held = leases.hold("nightly-report", &worker, Duration::from_secs(30)).await?;
//! held.run(async { /* whatever takes its time */ }).await?;
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The table
//! It is called `keylatch_lease`, and has six functions beside it: [`SCHEMA`] is the SQL, for your migrations, and
//! [`Postgres::create_table`] runs it. It is made for Postgres 12 and later, and tested with 15. As long as
//! either is missing, calls fail with [`Error::Missing`]. The connection's `search_path` has to lead to them. A role that only uses it needs `SELECT`, `INSERT`, `UPDATE` and `DELETE` on the
//! table, and `EXECUTE` on the functions, which everybody has unless it was revoked.
//!
//! *Migrating.* The functions' names end in a version. A release of this crate that needs others adds them beside the old ones, so that
//! programs of both releases work on one table: run the new [`SCHEMA`] first, then deploy. Nothing has to stop, and no lease is lost.
//!
//! *Why functions.* A decision has to be made under the row's lock, by one reading of the clock that comes after the wait for it. A single
//! statement cannot do that: what it inserts is computed before it waits, and `clock_timestamp()` in five expressions is five times.
//! A transaction of several statements can, in several round trips, and a future that is dropped in the midst of it leaves the row locked.
//!
//! # When the database forgets
//! A table that was emptied or made anew, a database that was restored to an earlier time, and an asynchronous replica that was promoted have forgotten leases
//! that somebody still goes by. So the table has a *mark*, one row for all namespaces. If it is not there, or is not that of this table on this timeline, nothing is granted for a
//! while, until whatever may have been granted has ended: [`AcquireError::Quarantined`](keylatch_lease::AcquireError::Quarantined) says how long, and
//! [`Options::quarantine`] how long that is, 60 s if not set. Meanwhile what the table remembers can be renewed and released.
//!
//! | it may have forgotten something | how it is known |
//! |---|---|
//! | the table was emptied (`TRUNCATE`, `DELETE`) | the mark is not there |
//! | it was dropped and made anew, or restored from a dump | the mark is not there, or is that of a table with another OID, or of another database system |
//! | the database was restored to an earlier time, or a replica was promoted | the timeline is another one, unless [failovers are trusted](Options::trusts_failovers) |
//! | the table is new | that looks the same as the first, until somebody calls [`Postgres::init`] |
//!
//! - **It is looked at in each grant**, by the function that grants, once it has locked the table. So it does not matter what becomes of the table under a connection.
//! - **After a restore** an operator need do nothing, if the server has recovered from an archive, or the table was restored into one that was made anew. What
//!   looks the same as before cannot be told: files of a stopped server that are put back as they were, without a recovery; rows that a dump puts into the table that there is (`--data-only`).
//!   Before programs go on, say `DELETE FROM keylatch_lease WHERE entity = '\xfe'`; otherwise 1 may not hold. Tokens grow all the same (3), for they start from the server's time.
//! - **A lease that lasts longer** than the quarantine, from one renewal to the next, is not waited for; nor is one that never ends. If the
//!   database forgets it, somebody else may get the resource while the holder goes by it (1). The token tells them apart (3).
//! - **What it remembers** and is not true any more, since it has forgotten a release: such a lease ends when it would have ended. One that never
//!   ends has to be released again. Whoever renews by a grant that it has released is told that it goes on.
//!   Whoever asks again for what it had before begins a new tenure (4), as somebody else may have had a greater token meanwhile.
//! - **[`Postgres::init`]** ends a quarantine. Whoever calls it says that nobody still relies on a lease that the database may have forgotten.
//!
//! Programs that use one table should all have the same quarantine, and trust failovers or not. While they differ, the shortest may count.
//!
//! # How it works
//! - **Clock**: the server's, `clock_timestamp()`. Clocks of clients do not matter. The holder counts its own deadline from before it asked.
//! - **Token**: the last one of the resource plus one, or the server's time in microseconds since 1970, whichever is greater; made under the
//!   row's lock. A release leaves the row behind, so that the last token is known; a sweep removes it a minute later at the earliest, and
//!   not before its token is in the past by the clock; and writes down the greatest token that it removes, which later ones exceed.
//! - **Who waits** is told by `NOTIFY`: at a release by the holder if somebody has asked for it and waits; at any other release, and where an owner
//!   begins a fresh tenure, always, as the holder is to know, too. At an
//!   expiry nobody tells: each who waits has a timer of its own. After a connection was lost, all who wait ask again.
//! - **Who deletes rows by hand** tells as well: a trigger does, which no statement of this crate fires. It calls a function for rows of leases that
//!   have not ended.
//! - **Connection**: one for each engine and its clones, with the requests of all tasks in a row on it. The driver dials again when it is lost, after
//!   50 ms to 2 s, at random.
//! - **Requests**: each operation is one statement, a prepared one that commits by itself, and one round trip; a whole
//!   batch of renewals is one as well.
//!   Who waits asks once when it comes and once for each time it is told; also when the lease should have ended, and
//!   every 5 s ([`Options::fallback`]). In each process that is the first in line alone.
//! - **An answer that does not come**: after 5 s ([`Options::timeout`]) a question fails, and a connection that has said nothing is given up. If it may have been done
//!   all the same, it is asked again: up to three times in all, so that an operation fails after 15 s at most.
//!
//! The session sets what it relies on, whatever the role's defaults are: `READ COMMITTED`, read-write, a `statement_timeout`, no `lock_timeout`;
//! and `synchronous_commit = on` if it was `off`.
//!
//! # How late a waiter may be
//! | the lease ends by | who waits has it after |
//! |---|---|
//! | release, `release_all`, a dropped `Held` | the notification, and a round trip |
//! | expiry | a round trip, by its own timer |
//! | either, with a [guarded](Postgres::guard) transaction open | the end of that transaction, and 0.1 s |
//! | either, while the connection is lost | the next connection, and a round trip; or an error after that |
//! | release, and the server's machine is gone without a word | the fallback and the timeout, 10 s |
//! | either, in a quarantine | an error |
//!
//! # How late a holder may learn that somebody else has ended its lease
//! Its [`check`](keylatch_lease::Held::check) says no from then on, and [`lost`](keylatch_lease::Held::lost) is ready. *At its next renewal* is within a third of
//! the lease's time; if nobody renews it, at its end.
//!
//! | the lease is ended by | the holder knows after |
//! |---|---|
//! | `release_as`, `release_all`, `release_token`, a fresh tenure of the same owner | the notification |
//! | `DELETE` of its row, or `TRUNCATE`, by hand | the notification; after `TRUNCATE`, a round trip more |
//! | `UPDATE` of its row by hand; `DELETE` where triggers are off (`session_replication_role`) | at its next renewal |
//! | `release` with its grant, by somebody else who has that | the notification if anybody waits; otherwise at its next renewal |
//! | what is not told, as the connection was lost | the next connection, and a round trip for up to 256 leases, as long as one of them is polled |
//!
//! # What weakens which guarantee
//! The numbers are those of [`keylatch_lease`](keylatch_lease#what-it-guarantees).
//!
//! | | what may happen |
//! |---|---|
//! | restart of the server, `kill -9` | nothing: what was confirmed is on disk. Leases go on expiring meanwhile |
//! | failover to an *asynchronous* replica | nothing but a quarantine, for leases that do not outlast it; 1 otherwise, and if failovers are trusted, or the old server goes on granting to those who still reach it. 5, 7: a release may be undone. 3 holds unless the new server's clock is behind the old one's by more than the failover took. With synchronous replication: a quarantine, unless failovers are trusted |
//! | the table is emptied, made anew, or restored | nothing but a quarantine, for leases that do not outlast it; 1 otherwise. See [above](#when-the-database-forgets) for what cannot be told |
//! | single rows are deleted by hand | 1, for these. 3 holds |
//! | the server's clock is set forward | 2: leases expire early; who writes with a token is refused (3) |
//! | it is set back | 8: leases last longer, by as much; 6: one that had just expired may be there again, if nobody has taken it. 1 and 3 hold. If it forgets, and its clock is set back past the last grant, 3: a token may come again |
//! | `fsync = off`, an `UNLOGGED` table | not supported: a crash forgets leases (1) and perhaps tokens (3) |
//! | an operation is given up after its timeout, or its future is dropped | 11: a lease that was granted unheard stays until it expires, or its owner asks again; with `Expiry::Never`, until its owner asks again or is released by name |
//! | the server stands still for longer than that, and goes on | 5, for one owner: a request of the connection that was given up may be done late. Without a token (`release_as`, `release_all`) it may end a tenure that the same owner has begun since |
//! | nobody sweeps ([`Options::sweeps`] is `None` everywhere) | 12: a row for each resource that was ever leased |
//! | a session somewhere in the cluster listens and never ends its transaction, until the queue of notifications (8 GB) is full | releases that have somebody to tell fail with [`Error::Refused`], and those leases last until they expire |
//! | many processes wait for one resource | 9: in each process in order of arrival; among them who is first to ask |
//!
//! A sweep reads all rows of its namespace, once a minute: there is no index by time, which every renewal would have to write to.
//! Times are kept in microseconds; a lease of more than 285 years never ends.
//!
//! # Writing under a lease
//! A holder may stop for any length of time, and go on writing when its lease is long over. What it writes to has to check that.
//!
//! - In **the same database**: [`Postgres::guard`], in the transaction that writes. It is exact.
//! - **Elsewhere**: the token, as [`keylatch_lease`](keylatch_lease#a-lease-is-not-enough-the-token) says.
//!
//! # Poolers
//! The connection must reach one and the same session: PgBouncer in *transaction* or *statement* mode does not pass `LISTEN` on, and shares
//! settings. Connect to the server itself, or through a pool in *session* mode. Your own queries, guarded transactions included, may
//! go through whatever pooler.
//!
//! Such a pooler is noticed when an engine connects, or at the latest when another session answers it: operations then fail with
//! [`Error::Pooled`] until a connection is a session of its own. An engine that shares the pool with nobody cannot tell: it hears of no
//! release, and whoever uses its session next has its settings, a `statement_timeout` of half of its [timeout](Options::timeout) among
//! them.
//!
//! # Runtimes
//! With the feature `tokio` (default) [`Options::connect`] dials and spawns on tokio. [`Options::connect_with`] takes any way to make a
//! connection, and returns the driver for you to spawn; without the feature no runtime is linked. Timers are those of `async-io`.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(docsrs, doc(auto_cfg = false))] // by hand: see the same line of `keylatch`

mod convert;
mod driver;
mod error;
mod guard;
mod options;
mod postgres;
mod session;

pub use error::Error;
pub use guard::{GUARD, GuardError};
pub use keylatch_lease_remote::BoxError;
pub use options::Options;
pub use postgres::Postgres;
pub use session::SCHEMA;
pub use tokio_postgres::NoTls;

/// The README's examples are tests.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
