//! Leases in a SQLite file: an engine for [`keylatch_lease`], for the processes of one machine. There is no server.
//!
//! The calls are those of [`Leases`](keylatch_lease::Leases). A resource leased in one process is leased in every
//! process that opens the same file with the same namespace.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use keylatch_lease::{Leases, Owner};
//! use keylatch_lease_sqlite::Sqlite;
//!
//! # let path = std::env::temp_dir().join(format!("keylatch-page-{}.db", std::process::id()));
//! let leases = Leases::with_engine(Sqlite::in_namespace("shop").open(&path)?); // such as /var/lib/shop/leases.db
//!
//! let worker = Owner::incarnation("worker-3");
//! let mut held = leases.hold("nightly-report", &worker, Duration::from_secs(30)).wait()?;
//! futures_lite::future::block_on(held.run(async { /* the long work */ }))?;
//! held.release().wait()?;
//! # drop(leases);
//! # for end in ["", "-wal", "-shm"] { let _ = std::fs::remove_file(format!("{}{end}", path.display())); }
//! # Ok(())
//! # }
//! ```
//!
//! The file may also contain other tables, for example those that are written under the leases: a transaction on them
//! can be [guarded](Sqlite::guard). The names of the engine's tables begin with `keylatch_lease`; the tables are made
//! when the file is opened.
//!
//! # How it works
//! - **Clock**: on Linux, the time since the machine's start, which includes suspend, and which nobody can set
//!   (`CLOCK_BOOTTIME`). All processes of the machine share it. After a restart of the machine the time of day says how
//!   much time has passed; at least the time since the start is counted. A restart is recognised by the kernel's name
//!   of the start (`boot_id`), unless both clocks say that there was none: in some containers that name is different,
//!   or cannot be read. On other systems the time of day is the clock.
//! - **Token**: the file's last token plus one, or the time of day in microseconds since 1970, whichever is greater. It
//!   is made in the transaction that grants.
//! - **Transactions**: each change is one transaction, with the file's write lock from its beginning (`BEGIN
//!   IMMEDIATE`), in the journal mode `WAL`. Up to 64 changes that wait in one engine at the same moment share a
//!   transaction. Calls that only read need no lock, but a call that comes while its engine waits for the lock must
//!   wait, too.
//! - **Locks**: while another process writes, the engine tries again and again, after random pauses that grow from 0.1
//!   ms to 5 ms. Processes are not served in order.
//! - **Waiters** in all processes are notified by a row in a table, and by a change of the file's times (`utimensat`),
//!   which Linux reports to each process that has the file open (`inotify`). On other systems, or if the user has too
//!   many watches, each process looks for changes every 10 ms. An expiry sends no message: each waiter has its own
//!   timer.
//! - **Threads**: two for each engine and its clones, one that asks SQLite, and one that listens. No runtime is needed.
//! - **Timeouts**: after 5 s ([`Options::timeout`]) an operation fails. If it waited for a lock, nothing was changed. A
//!   request that may have been carried out is sent again, up to three times in all.
//! - **Durability**: a confirmed lease survives `kill -9` of all processes. Whether it survives the loss of power is a
//!   [setting](Synchronous).
//!
//! # What the file needs
//! - A disk of this machine. Network file systems that can be recognised (on Linux: NFS, SMB, AFS, Coda, 9P, Ceph,
//!   Lustre, OCFS2) are [refused](Error::NetworkFileSystem); one behind FUSE, such as sshfs, is not recognised, and
//!   does not work. The same file in several containers of one machine works; in several virtual machines it does not.
//! - All programs must see the file in the same folder, beside the same two other files of SQLite. If a container
//!   mounts the file alone, and not its folder, or a program uses a hard link, that program has a log of its own: it
//!   does not see the leases of the others (1), and damages the file. Symbolic links do no harm.
//! - The right to write to the file and to its folder, in which SQLite makes two more files (`-wal` and `-shm`).
//! - While a program has the file open, it must not open the file in any way other than by SQLite, not even to read it:
//!   with the first `close` the system would release all locks of the process (see "How to corrupt an SQLite database
//!   file" in SQLite's documentation).
//! - The file must not be deleted, moved, replaced or restored from a copy while a program has it open, and neither
//!   must the two files beside it. To copy it, use SQLite's `VACUUM INTO` or its backup.
//! - All programs that use the file should have versions of this crate that know its tables. A program that does not
//!   know tables made by a newer version [says so](Error::Newer), and changes nothing.
//!
//! # How late a waiter may be
//! | the lease ends by | the waiter has it after |
//! |---|---|
//! | release, `release_all`, a dropped `Held` | a report of the system, and a transaction: usually 1 or 2 ms in all |
//! | expiry | a transaction, by the waiter's own timer |
//! | release, and the process is killed before it has announced the release | the fallback, 5 s ([`Options::fallback`]) |
//! | either, while another program has the file locked | the end of the lock, or an error |
//!
//! # How late a holder may learn that another call has ended its lease
//! Once the holder knows, its [`check`](keylatch_lease::Held::check) fails and [`lost`](keylatch_lease::Held::lost) is
//! ready.
//!
//! | the lease is ended by | the holder knows after |
//! |---|---|
//! | `release_as`, `release_all`, `release_token`, a fresh tenure of the same owner | a report of the system |
//! | `release` with its grant, by another caller that has the grant | the same if there is a waiter; otherwise the next renewal |
//! | `DELETE` of its row by hand | the next renewal, within a third of the lease's time |
//! | the file, or its log, is deleted, moved or replaced | the end of the lease: renewals fail with [`Error::Replaced`] |
//!
//! # What weakens which guarantee
//! The numbers are those of the [guarantees](keylatch_lease#what-it-guarantees) of `keylatch_lease`. A number alone
//! means that this guarantee may be broken.
//!
//! | | what may happen |
//! |---|---|
//! | all processes are killed | nothing |
//! | the machine crashes or loses its power | with [`Synchronous::Normal`], the leases of the last moments may be forgotten, and those that were released in that time may be back. All programs of this machine are gone too, but a grant that was sent elsewhere, to a browser, may still be used: 1, for as long as it would have lasted; the token tells the two apart (3) |
//! | the time of day is set, while the machine runs | nothing on Linux. Elsewhere 2, if it is set forward: leases expire early; 8, if it is set back: they last longer |
//! | the time of day is wrong after a restart | the same: if it is ahead, leases from before the restart expire early |
//! | the time of day is set forward or back by more than a minute, and a process in a container with a `boot_id` of its own opens the file before another lease is granted | as after a restart, 2: leases may expire early |
//! | the time of day is set back, and the file is deleted | 3: a token may be given out twice |
//! | the file, or its log, is deleted, moved or replaced while programs have it open | those programs get an [error](Error::Replaced), and grant nothing any more. A program that starts then uses the new file, and knows nothing of the leases in the old one: 1, until these have ended. 3 holds |
//! | the content of the file is overwritten in place (`cp`) while programs have it open | not noticed: 1, and the file may be damaged |
//! | the file is restored from a copy while no program has it open | the same as after a crash that forgets everything since the time of the copy |
//! | the disk is full | nothing is granted, renewed or released until there is room: [`Error::Full`] |
//! | a program keeps the write lock, or a process is stopped (`SIGSTOP`, a debugger) just while it writes | every change fails with [`Error::Locked`]; leases expire, and are not handed over in that time |
//! | an operation is given up after its timeout, or its future is dropped | 11: a lease whose grant was not received stays until it expires or its owner asks again; with `Expiry::Never`, until its owner asks again, or somebody releases it in the owner's name (`release_as`, `release_all`) |
//! | many processes wait for one resource | 9: waiters are served in order of arrival within each process; between processes any of them may be next |
//! | `fork` without `exec` | the child must not use the engine, which has neither its threads nor its locks |
//!
//! Times are kept in microseconds; a lease of more than 285 years never expires.
//!
//! # Writing under a lease
//! A holder may stop for any length of time, and then write long after its lease has ended. The store to which it
//! writes must check that: see the token in [`keylatch_lease`](keylatch_lease#a-lease-is-not-enough-the-token). If the
//! data are in the same file, [`Sqlite::guard`] does it without a token.
#![forbid(unsafe_code)]

mod busy;
mod changes;
mod clock;
mod decide;
mod engine;
mod error;
mod guard;
mod messages;
mod options;
mod place;
mod session;
mod synchronous;
mod worker;

pub use engine::Sqlite;
pub use error::Error;
pub use guard::GuardError;
pub use options::Options;
pub use synchronous::Synchronous;

/// Runs the README's examples as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
