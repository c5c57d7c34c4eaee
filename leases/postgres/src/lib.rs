//! Leases in a Postgres table: an engine for [`keylatch_lease`], for programs that already have a Postgres database.
//!
//! The calls are those of [`Leases`](keylatch_lease::Leases). A resource leased in one process is leased in every
//! process that uses the same database and namespace.
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
//! held.run(async { /* the long work */ }).await?;
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The table
//! The table is called `keylatch_lease`, and an index, eight functions and two triggers belong to it. [`SCHEMA`] is the
//! SQL that creates them, for your migrations; [`Postgres::create_table`] runs it. It is written for Postgres 12 and
//! later, and tested with 12 to 18. While the table or a function is missing, calls fail with [`Error::Missing`]. The
//! connection's `search_path` must contain their schema. A role that only uses the table needs `SELECT`, `INSERT`,
//! `UPDATE` and `DELETE` on it, and `EXECUTE` on the functions, which every role has unless it was revoked.
//!
//! *Migrating.* The functions' names end in a version. A release of this crate that needs other functions adds them
//! beside the old ones, so that programs of both releases work on one table: run the new [`SCHEMA`] first, then deploy.
//! No program has to stop, and no lease is lost.
//!
//! *Why functions.* A decision must be made under the row's lock, with one reading of the clock after the wait for that
//! lock. A single statement cannot do that: it computes the values that it inserts before it waits, and
//! `clock_timestamp()` in five expressions gives five times. A transaction of several statements can, but takes several
//! round trips, and a future that is dropped in the middle leaves the row locked.
//!
//! # When the database forgets
//! A table that was emptied or created again, a database that was restored to an earlier time, and an asynchronous
//! replica that was promoted have forgotten leases that their holders still rely on. Therefore the table has a *mark*,
//! one row for all namespaces. If the mark is missing, or belongs to another table or timeline, nothing is granted for
//! a while, until every lease that may have been granted before has ended.
//! [`AcquireError::Quarantined`](keylatch_lease::AcquireError::Quarantined) gives the remaining time, and
//! [`Options::quarantine`] sets its full length: 60 s if not set. During the quarantine, leases that the table
//! remembers can be renewed and released.
//!
//! | what may have happened | how the engine detects it |
//! |---|---|
//! | the table was emptied (`TRUNCATE`, `DELETE`) | the mark is missing |
//! | the table was dropped and created again, or restored from a dump | the mark is missing, or contains the OID of another table, or another database system |
//! | the database was restored to an earlier time, or a replica was promoted | the server's timeline is not the mark's, unless [failovers are trusted](Options::trusts_failovers) |
//! | the table is new | the table looks as if it had been emptied, until [`Postgres::init`] is called |
//!
//! - **Every grant checks the mark**: the function that grants reads the mark once it has locked the table against
//!   changes of its definition and `TRUNCATE`. So the table may be emptied or created again under an open connection.
//! - **After a restore** an operator need not do anything if the server has recovered from an archive, or if the table
//!   was restored into a newly created one. Two cases look unchanged, and are not detected: files of a stopped server
//!   that are put back as they were, without a recovery; and rows that a dump puts into the existing table
//!   (`--data-only`). After these, run `DELETE FROM keylatch_lease WHERE entity = '\xfe'` before the programs resume;
//!   otherwise guarantee 1 may not hold (the [table below](#what-weakens-which-guarantee) uses the same numbers).
//!   Tokens still grow (3), because they start from the server's time.
//! - **A lease that lasts longer** than the quarantine, from one renewal to the next, or that never expires, is not
//!   covered by the quarantine. If the database forgets it, another owner may get the resource while the holder still
//!   relies on its lease (1). The token tells them apart (3).
//! - **A lease that was already released** may be back, if the database has forgotten the release. It ends when it
//!   would have ended without the release; one that never expires must be released again. Until then a renewal with the
//!   released grant succeeds. An owner that acquires a resource that it held before begins a new tenure (4), because
//!   another owner may have had a greater token in between.
//! - **[`Postgres::init`]** ends a quarantine. Its caller vouches that nobody still relies on a lease that the database
//!   may have forgotten.
//!
//! All programs that use one table should have the same quarantine, and the same setting of whether failovers are
//! trusted. While they differ, the shortest quarantine may apply.
//!
//! # How it works
//! - **Clock**: the server's, `clock_timestamp()`. The clients' clocks do not matter. The holder counts its own
//!   deadline from before its request.
//! - **Token**: the resource's last token plus one, or the server's time in microseconds since 1970, whichever is
//!   greater. It is made under the row's lock. A release leaves the row in place, so that the last token is known. A
//!   sweep removes the row no sooner than a minute later, and not before the clock has passed its token. It records the
//!   greatest token that it removes, and later tokens exceed that one.
//! - **Waiters** are notified by `NOTIFY`. A release by the holder sends a notification if a waiter has asked for the
//!   resource. Any other release, and a fresh tenure, always send one, because the holder must learn of it too. An
//!   expiry sends none: each waiter has its own timer. After a lost connection all waiters ask again.
//! - **Deletions by hand** send a notification too. A trigger does that for each deleted row whose lease has not ended;
//!   this crate's own statements delete no such row.
//! - **Connection**: one for each engine and its clones, which carries the requests of all tasks one after the other.
//!   If it is lost, the driver connects again, after a random pause of 50 ms to 2 s.
//! - **Requests**: each operation is one prepared statement, which commits by itself, and one round trip. A whole batch
//!   of renewals is one statement too; so are acquires and releases of different resources that arrive while another
//!   one is under way, up to 128. No call waits for others to join it. A request in such a batch that is not simply
//!   granted, released, or refused as busy, for example because it resumes a tenure or meets a locked row, takes a
//!   second, separate statement. A waiter sends one request when it arrives and one for each notification, one when the
//!   lease should have ended, and one every 5 s ([`Options::fallback`]). In each process only the first waiter in line
//!   does so.
//! - **Timeouts**: after 5 s ([`Options::timeout`]) a request fails, and the connection is given up if it has answered
//!   nothing in that time. A request that may have been carried out is sent again, up to three times in all, so that an
//!   operation fails after 15 s at most.
//!
//! The session (behind a [pooler](#poolers), each transaction) makes the settings that it relies on, whatever the
//! role's defaults are: `READ COMMITTED`, read-write, a `statement_timeout`, no `lock_timeout`, and
//! `synchronous_commit = on` if it was `off`. A session also gets no `idle_session_timeout`.
//!
//! # How late a waiter may be
//! | the lease ends by | the waiter has it after |
//! |---|---|
//! | release, `release_all`, a dropped `Held` | the notification, and a round trip |
//! | expiry | a round trip, by the waiter's own timer |
//! | either, with a [guarded](Postgres::guard) transaction open | the end of that transaction, and 0.1 s |
//! | either, while the connection is lost | the next connection, and a round trip; or an error after that |
//! | release, and the server's machine is gone without closing its connections | the fallback and the timeout, 10 s |
//! | release, and the engine has [no session](#poolers) | its next poll, up to 5 s, and a round trip |
//! | either, in a quarantine | an error |
//!
//! # How late a holder may learn that another call has ended its lease
//! Once the holder knows, its [`check`](keylatch_lease::Held::check) fails and [`lost`](keylatch_lease::Held::lost) is
//! ready. Without a notification it learns of the end at its next renewal, within a third of the lease's time; if
//! nobody renews the lease, it learns when the lease would have expired.
//!
//! | the lease is ended by | the holder knows after |
//! |---|---|
//! | `release_as`, `release_all`, `release_token`, a fresh tenure of the same owner | the notification |
//! | `DELETE` of its row, or `TRUNCATE`, by hand | the notification; after `TRUNCATE`, one more round trip |
//! | `UPDATE` of its row by hand; `DELETE` where triggers are off (`session_replication_role`) | the next renewal |
//! | `release` with its grant, by another caller that has the grant | the notification if there is a waiter; otherwise the next renewal |
//! | any of these, in an engine [without a session](#poolers) | the next renewal |
//! | any of these while the connection is lost | the next connection, and a round trip for every 256 leases, as long as one of their `Held`s is polled |
//!
//! # What weakens which guarantee
//! The numbers are those of the [guarantees](keylatch_lease#what-it-guarantees) of `keylatch_lease`. A number alone
//! means that this guarantee may be broken.
//!
//! | | what may happen |
//! |---|---|
//! | restart of the server, `kill -9` | nothing: every confirmed change is on disk. Leases expire even while the server is down |
//! | failover to an *asynchronous* replica | nothing but a quarantine, for leases that do not outlast it; 1 otherwise, and if failovers are trusted, or if the old server still grants leases to programs that reach it. 5, 7: a release may be undone. 3 holds unless the new server's clock is behind the old one's by more than the failover took. With synchronous replication: a quarantine, unless failovers are trusted |
//! | the table is emptied, created again, or restored | nothing but a quarantine, for leases that do not outlast it; 1 otherwise. See [above](#when-the-database-forgets) for the cases that are not detected |
//! | single rows are deleted by hand | 1, for their leases. 3 holds |
//! | the server's clock is set forward | 2: leases expire early; a write with the old token is refused (3) |
//! | the server's clock is set back | 8: leases last longer by that time; 6: a lease that had just expired may be valid again, if nobody has acquired the resource. 1 and 3 hold. If the database also forgets leases, and the clock is set back past the last grant, 3: a token may be given out twice |
//! | `fsync = off`, an `UNLOGGED` table | not supported: a crash forgets leases (1) and perhaps tokens (3) |
//! | an operation is given up after its timeout, or its future is dropped | 11: a lease whose grant was not received stays until it expires or its owner asks again; with `Expiry::Never`, until its owner asks again, or somebody releases it in the owner's name (`release_as`, `release_all`) |
//! | the server stands still for longer than the timeout, and resumes | 5, for one owner: a request of the connection that was given up may be carried out late. Without a token (`release_as`, `release_all`) it may end a tenure that the same owner has begun since |
//! | no program sweeps ([`Options::sweeps`] is `None` everywhere) | 12: a row stays for each resource that was ever leased |
//! | a session somewhere in the cluster listens and never ends its transaction, until the queue of notifications (8 GB) is full | releases that have to send a notification fail with [`Error::Refused`], and those leases last until they expire |
//! | many processes wait for one resource | 9: waiters are served in order of arrival within each process; between processes the first request wins |
//!
//! A sweep reads all rows of its namespace, once a minute: there is no index by time, because every renewal would have
//! to write to it. Times are kept in microseconds; a lease of more than 285 years never expires.
//!
//! # Writing under a lease
//! A holder may stop for any length of time, and then write long after its lease has ended. The store to which it
//! writes must check that.
//!
//! - In **the same database**: with [`Postgres::guard`], in the transaction that writes. This check is exact. The
//!   transaction may be one of a pool of tokio-postgres's clients. For other clients, such as sqlx, diesel or psql, there
//!   is the statement, [`GUARD`]; `docs/leases-guide.md` in the repository has the code for each.
//! - **Elsewhere**: by the token, as [`keylatch_lease`](keylatch_lease#a-lease-is-not-enough-the-token) says.
//!
//! # Poolers
//! By default an engine has a session to itself: it connects to the server directly, or through a pool in *session*
//! mode. PgBouncer in *transaction* mode gives each transaction any session that is free. It does not pass on `LISTEN`,
//! and lets settings leak between its clients. Behind such a pooler, make the engine
//! [without a session](Options::without_session):
//!
//! ```no_run
//! # #[cfg(feature = "tokio")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use keylatch_lease::Leases;
//! use keylatch_lease_postgres::{NoTls, Postgres};
//!
//! let options = Postgres::in_namespace("shop").without_session();
//! let postgres = options.connect("host=pooler.example port=6432 user=shop".parse()?, NoTls);
//! let leases = Leases::with_engine(postgres);
//! # Ok(())
//! # }
//! ```
//!
//! - **Each operation is one transaction**, which is sent as a whole, so that it still takes one round trip: `BEGIN`,
//!   the settings by `SET LOCAL`, the statement, `COMMIT`. The statement has no name, because PgBouncer before 1.21
//!   does not support prepared statements. The server therefore plans it anew each time, and has more to do. Acquires
//!   and releases that arrive while another request is under way still share one transaction. The pool may be small,
//!   and may have other clients: whatever they leave in a session does not matter.
//! - **Another server** may be behind the pooler after a failover, although the engine's connection has stayed. So each
//!   grant checks the [mark](#when-the-database-forgets) against the server that makes it.
//! - **The `search_path` and the `synchronous_commit`** are those of the role or the database (`ALTER ROLE … SET`); a
//!   `SET` in the pooler's `connect_query` has no effect.
//! - **Both kinds of engines** work on one table. A release through a pooler notifies those that have a session.
//! - **Statement mode** is not supported: it has no transactions. The engine gets no connection, and the
//!   [source](Error::Unconnected::source) of its errors is the pooler's reason.
//!
//! | | with a session | without |
//! |---|---|---|
//! | a waiter has a released resource after | the notification | its next poll: at first after 0.1 s, and then with longer and longer pauses, up to 5 s ([`Options::fallback`]); each pause is shortened at random, by up to half |
//! | a waiter has a resource whose lease has expired after | a round trip, by its own timer | the same |
//! | a waiter in the process that releases | needs no request to learn of it | the same |
//! | a holder learns that another call has ended its lease | by the notification | when it renews, within a third of the lease's time; if nobody renews the lease, at its end (10) |
//! | requests of a waiting process in an hour, for each resource | 720, and one for each notification: 3,600 divided by the fallback in seconds | some 1,000: 4,800 divided by the fallback in seconds; 160 if that is 30 s |
//!
//! An engine with a session detects that a pooler shares the session when it connects, or else as soon as another
//! session answers. Operations then fail with [`Error::Pooled`] until the engine gets a connection with a session of
//! its own. An engine that is the pool's only client cannot detect the pooler: it then receives no notifications, and
//! the next client that gets its session also gets its settings, among them a `statement_timeout` of half of the
//! engine's [timeout](Options::timeout).
//!
//! Your own queries may go through any pooler, and so may [guarded transactions](Postgres::guard): the guard needs no
//! prepared statement. Behind PgBouncer before 1.21, give your own statements to `query_typed`, which needs no prepared
//! statements either.
//!
//! # Rights
//! The table is created by a user with the right to create tables. A program's user needs these rights on the table,
//! and nothing else; the functions run with the user's own rights. For guarded transactions `SELECT` and `UPDATE` are
//! enough.
//!
//! ```sql
//! GRANT SELECT, INSERT, UPDATE, DELETE ON keylatch_lease TO shop;
//! ```
//!
//! # TLS
//! [`Options::connect`] takes any TLS connector for `tokio-postgres`. This example uses `tokio-postgres-rustls`.
//!
//! ```no_run
//! # #[cfg(feature = "tokio")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use keylatch_lease_postgres::Postgres;
//! use rustls::pki_types::{CertificateDer, pem::PemObject};
//! use rustls::{ClientConfig, RootCertStore};
//! use tokio_postgres_rustls::MakeRustlsConnect;
//!
//! let mut roots = RootCertStore::empty(); // a private CA
//! for certificate in CertificateDer::pem_file_iter("ca.pem")? {
//!     roots.add(certificate?)?;
//! }
//! let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
//!
//! // Without `sslmode=require` the client connects without TLS if the server does not offer it.
//! let mut config: tokio_postgres::Config = "host=db.example user=shop sslmode=require".parse()?;
//! config.password(std::fs::read_to_string("/run/secrets/postgres")?.trim_end());
//! let postgres = Postgres::in_namespace("shop").connect(config, MakeRustlsConnect::new(tls));
//! # Ok(())
//! # }
//! ```
//!
//! # Passwords that change
//! The function that [`Options::connect_with`] takes is called for each connection, so it may read a password that was
//! replaced while the program runs. The server keeps the sessions of a role whose password has changed. If a session
//! ends, the driver connects again, and the leases stay, unless they expire before it succeeds. While the server
//! refuses the password, calls fail with [`Error::Denied`].
//!
//! ```no_run
//! # #[cfg(feature = "tokio")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use keylatch_lease_postgres::{NoTls, Postgres};
//!
//! let config: tokio_postgres::Config = "host=db.example user=shop".parse()?;
//! let (postgres, driver) = Postgres::in_namespace("shop").connect_with(move || {
//!     let mut config = config.clone();
//!     async move {
//!         config.password(std::fs::read_to_string("/run/secrets/postgres")?.trim_end());
//!         Ok(config.connect(NoTls).await?)
//!     }
//! });
//! tokio::spawn(driver);
//! # Ok(())
//! # }
//! ```
//!
//! # Runtimes
//! With the feature `tokio` (default) [`Options::connect`] connects and spawns on tokio. [`Options::connect_with`]
//! takes a function that makes a connection in any other way, and returns the driver for you to spawn; without the
//! feature no runtime is linked. Timers are those of `async-io`.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(docsrs, doc(auto_cfg = false))] // set by hand: see the same line of `keylatch`

mod convert;
mod decide;
mod driver;
mod error;
mod guard;
mod options;
mod own;
mod postgres;
mod session;
mod shared;
mod statements;
mod together;

pub use error::Error;
pub use guard::{GUARD, GuardError};
pub use keylatch_lease_remote::BoxError;
pub use options::Options;
pub use postgres::Postgres;
pub use statements::SCHEMA;
pub use tokio_postgres::NoTls;

/// Runs the README's examples as doctests.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
