//! Leases in a bucket of an object store: an engine for [`keylatch_lease`], where there is no server but S3, Google
//! Cloud Storage, Azure Blob Storage, R2, or another store with conditional writes.
//!
//! The calls are those of [`Leases`](keylatch_lease::Leases). A resource leased in one process is leased in every
//! process that uses the same bucket, prefix and namespace. The bucket is any store of the crate [`object_store`]; add
//! that crate, with the feature of your store, to your dependencies.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::{sync::Arc, time::Duration};
//!
//! use keylatch_lease::{Leases, Owner};
//! use keylatch_lease_object::Bucket;
//!
//! # let store = keylatch_lease_object::object_store::memory::InMemory::new();
//! // let store = object_store::aws::AmazonS3Builder::from_env().with_bucket_name("shop").build()?;
//! let leases = Leases::with_engine(Bucket::in_namespace("reports").open(Arc::new(store)).await?);
//!
//! let worker = Owner::incarnation("worker-3");
//! let mut held = leases.hold("nightly-report", &worker, Duration::from_secs(60)).await?;
//! held.run(async { /* the long work */ }).await?;
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each request takes tens of milliseconds, and costs money. So this engine suits leases of half a minute and more that
//! are not handed over all the time: jobs, leaders, documents. A server that you run anyway, or a file if all programs
//! run on one machine, is faster, and waiters are notified: there are engines for both.
//!
//! # How it works
//! - **One object for each resource**, `keylatch/NAMESPACE.leases/ENTITY.KEY.lease`, a short text that says who has the
//!   resource, and for how long. In names, each byte other than ASCII letters, digits, `_` and `-` is written as `=`
//!   and two hexadecimal digits; a name that would be longer than 200 bytes is hashed.
//! - **Every change is one conditional write**: it replaces the object only if the object is still in the version for
//!   which the decision was made (`If-Match`), or creates it only if there is none (`If-None-Match: *`). If another
//!   process was faster, the engine reads the object again, and decides again.
//! - **Token**: the last token plus one, or the writer's time of day in microseconds since 1970, whichever is greater.
//!   The object of a resource that is free stays, and keeps the token. So tokens grow even if all clocks are wrong.
//! - **There is no clock** that processes share. A holder counts its deadline from before it sent the write, and allows
//!   for one percent. Another owner takes the resource over only after its process has *seen* the object unchanged for
//!   the whole time of the lease and one percent more, by a clock that goes on while the machine is suspended, and that
//!   nobody sets; or sooner, if the store says when the object was written, and its clock is
//!   [trusted](Options::trusts_clock). Each write has a random number of its own, so that an object that has been
//!   written again never looks unchanged.
//! - **Lost answers**: if the outcome of a write is unknown, the engine reads the object. An object has the number of
//!   its own write and of the eight before it, which tells whether a write was carried out, even if up to eight others
//!   have followed. A request to the engine takes effect once: it continues the tenure that its write began. If that
//!   tenure has ended, the calls of `Leases` ask again.
//! - **Throttling** (`503 SlowDown`, `429`) and other failures: each request, a LIST too, is sent up to four times,
//!   with pauses that grow from 0.1 s and differ at random; then the caller gets [`Error::Throttled`] or
//!   [`Error::Store`]. After each failed write the object is read. While the outcome of a write stays unknown, the
//!   calls of `Leases` ask up to three times. So an acquire whose PUTs are all throttled, and whose GETs are not, makes
//!   12 PUTs and 15 GETs before it fails. The store's client may send each of them again by itself, as its
//!   `RetryConfig` says.
//! - **Waiters poll**, in each process only the first in line: at first after half a second, then ever more slowly, up
//!   to 5 s, at random ([`Options::polls`]). When nobody waits any more, the next waiter begins with short pauses. A
//!   waiter in the process of the holder is served without a poll.
//! - **Runtime**: all requests run on the tokio runtime in which [`Options::open`] was called, because the clients of
//!   [`object_store`] need one. The calls of `Leases` may be made from anywhere while that runtime runs.
//! - **Timeouts**: after 5 s ([`Options::timeout`]) an operation fails. If it may have been carried out, it is sent
//!   again, up to three times in all. A waiting `acquire` or `hold` fails with that error, too: call it again. `open`
//!   fails after ten times that time.
//!
//! # What the store needs
//! - Conditional writes, of both kinds, for [`PutMode::Update`](object_store::PutMode::Update) and `PutMode::Create`.
//!   Amazon S3, Google Cloud Storage, Azure Blob Storage, Cloudflare R2 and recent versions of MinIO have them. `open`
//!   tries them out on a small object, because some servers accept the conditions and ignore them. A local folder
//!   (`LocalFileSystem`) has no `Update`, and is refused: use the engine for SQLite.
//! - Strong consistency: a read returns the last write, from everywhere. The stores named above have it. A bucket that
//!   is replicated to another region has it only for programs that all use the same region.
//! - Permission to read and write objects, and to list them (in S3 `s3:GetObject`, `s3:PutObject` and `s3:ListBucket`).
//!   Listing is needed for `list`, `owned_by`, `release_all` and sweeps; and in S3 for every acquire, because without
//!   it an object that does not exist looks forbidden. The permission to delete is used only by `open`, to remove the
//!   object with which it tries the store out.
//! - Credentials that change are the business of the store that you pass to `open`: those of a cloud's machine are
//!   renewed by `object_store`, and `with_credentials` of its builders takes a provider that is asked for each request.
//!   (That was not tested.) The engine itself keeps none.
//!
//! The engine is tested with `object_store`'s store in memory, behind a shim that delays, loses, duplicates and
//! throttles requests, and with moto, a server that speaks S3, which is killed, paused and cut off. It has not been run
//! on the stores of the clouds.
//!
//! No quarantine is needed, because such a store forgets nothing that it has confirmed.
//!
//! # How late a waiter may be
//! | the lease ends by | the waiter has it after |
//! |---|---|
//! | release, in the same process | a request |
//! | release, in another process | its next poll: up to 5 s, once it has waited for a quarter of a minute |
//! | expiry, while the waiter waits | the time of the lease and one percent, from the first poll after the last renewal |
//! | expiry, before the waiter came | the time of the lease and one percent, from its first look; at once, if the store's clock is [trusted](Options::trusts_clock) |
//!
//! So if a holder that renews its lease dies, a waiter that is already there gets the lease no sooner than two thirds
//! of the lease's time after that, and no later than the whole time and a poll: for a lease of 10 s, after 7 to 15 s. A
//! newcomer waits for 10 s from its first look, even if the holder died yesterday.
//!
//! # What a process knows after its first look
//! A process cannot know how long ago an object was written. So for its answers (`status`, `list`, `owned_by`, the time
//! left in `Busy`) it believes the time of day that the writer has noted in the object, and its own. If one of them is
//! wrong, the answers are wrong: a lease looks expired, or as if it lasted longer. The writer notes the time at which
//! it sent the write: if the store carries it out late, the lease looks expired that much earlier. The same goes for an
//! acquire, a renewal or a release by another process of the *same owner*: with a wrong time of day, an acquire may
//! begin a new tenure instead of resuming the old one. (The new one ends no earlier than the other process may
//! believe.) A take-over by another owner never depends on the time of day of a machine.
//!
//! So a process that has only just started and does not wait never gets the lease of a dead holder: `try_acquire` says
//! that the resource is busy, and `release_expired` frees nothing. A program that runs for a moment now and then, like
//! a job of cron, can take such a lease over only by waiting for its time (`acquire`), or if the store's clock is
//! [trusted](Options::trusts_clock).
//!
//! A long-lived process remembers what it has seen, but not all of it for ever. If it knows more than a thousand
//! resources, it may forget one of them five minutes after its lease has ended and was last asked for; with
//! [sweeps](Options::sweeps), after twice the time between two sweeps if that is longer. So it takes over a dead
//! holder's lease only if it asks for the lease more often than that, or waits.
//!
//! # What it costs
//! | call | requests |
//! |---|---|
//! | acquire | a GET and a PUT; a PUT alone, if this process was the last to change the object |
//! | acquire of a resource that is busy, `status`, each poll | a GET |
//! | renew, release | a PUT; a GET and two PUTs, if another process of the owner has changed the object |
//! | `release_all`, `owned_by`, `release_expired` | a LIST for each 1,000 resources *that were ever used*, a GET for each that is leased or has expired, and a PUT for each that is released |
//! | `list` | for each page, a LIST for each 1,000 resources from there on, and a GET for each lease on the page |
//! | `open` | 7, or none: [`Options::tries_out`] |
//!
//! | in the background | requests in an hour |
//! |---|---|
//! | a `Held` of a lease of *t* seconds | 10,800 / *t* PUTs: 360 for 30 s, 36 for five minutes |
//! | a waiting process, for each resource | some 1,000 GETs: 4,800 divided by the longest pause in seconds |
//! | `Leases::watch` | twice as many |
//! | a process that [trusts](Options::trusts_clock) the store's clock, while others have what it asks for | up to 60 PUTs and 60 GETs |
//!
//! Multiply by your store's price for a million requests. A PUT usually costs ten times as much as a GET.
//!
//! Stores limit the rate of writes to *one* object: Google Cloud Storage and R2 to about one in a second. A resource
//! that changes hands more often is throttled.
//!
//! # The objects that stay
//! A resource that was ever leased keeps an object of some 200 bytes (guarantee 12), because [`object_store`] has no
//! conditional deletion, and an unconditional deletion that is late could delete somebody's lease. A rule of the bucket
//! may delete objects that have not been written for, say, 30 days, if no lease lasts that long without a renewal, and
//! no machine's time of day is wrong by that much: the next token then comes from the time of day. Do not delete the
//! objects of leases by hand, except to end them: their holders learn of it when they renew.
//!
//! In a bucket with versions the old versions of each object stay too. Let a rule of the bucket delete those after a
//! day.
//!
//! # What weakens which guarantee
//! The numbers are those of the [guarantees](keylatch_lease#what-it-guarantees) of `keylatch_lease`. A number alone
//! means that this guarantee may be broken.
//!
//! | | what may happen |
//! |---|---|
//! | clocks run at rates that differ by more than two percent | 1 and 2, for the difference; the token tells the owners apart (3) |
//! | the store's clock is trusted, and its parts differ by more than the difference that was set | 1, for the difference (3 holds) |
//! | the store ignores conditions, and `open` did not try it out | 1 and 3 |
//! | the store loses writes that it has confirmed, or its objects are put back to an older state | 1, until the leases that it forgot have ended; 3, if the times of day are wrong |
//! | an object is deleted by hand | its holder learns of it at its renewal, within a third of the lease's time; until then 1 |
//! | a lease is ended by another call (`release_as`, `release_all`, `release_token`, a fresh tenure of its owner) | 10: the holder learns of it at its next renewal, within a third of the lease's time, because a bucket sends no messages |
//! | the network holds a renewal back until after the end of the lease, and nobody else has the resource | 6: the renewal takes effect, and the resource stays leased for the lease's time once more; the holder knows that it has lost the lease |
//! | a process acquires again a lease with `Expiry::Fixed` or `SlidingUpTo` that another process of the same owner has acquired | 4 holds, but the end may move: it is not earlier than the other process may believe |
//! | `release_all` and other calls for many leases | 7: each lease is released by itself, not all at the same instant |
//! | many processes wait for one resource | 9: waiters are served in order of arrival within each process; between processes any of them may be next |
//!
//! # Writing under a lease
//! A holder may stop for any length of time, and then write long after its lease has ended. The store to which it
//! writes must check that: see the token in [`keylatch_lease`](keylatch_lease#a-lease-is-not-enough-the-token). If the
//! data are objects of the same bucket, write them on condition of their version, and keep the token in their content,
//! with a number drawn at random for each write: in S3, R2 and MinIO an object's version is a hash of its content, so
//! metadata alone does not change it. A write whose answer was lost may be refused when the client sends it again; then
//! read the object, whose random number tells whether it was written. The example `fence` of this crate does all that.
//!
//! # The model
//! The protocol is explored by a model checker, `leases/models`, with the decisions of this crate: two clients with
//! clocks of different rates, which may die, and whose requests may be late, lost, duplicated or given up.
#![forbid(unsafe_code)]

mod bucket;
mod decide;
mod error;
mod names;
mod options;
mod place;
mod record;
mod session;
mod store_clock;
mod table;

pub use bucket::Bucket;
pub use error::Error;
pub use object_store;
pub use options::Options;

/// Runs the README's examples as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
