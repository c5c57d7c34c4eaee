//! Leases in Redis: an engine for [`keylatch_lease`], for programs that have such a server already.
//!
//! The calls are those of [`Leases`](keylatch_lease::Leases); what is leased in one process is leased in all that use the same
//! server and namespace.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use keylatch_lease::{Leases, Owner};
//! use keylatch_lease_redis::Redis;
//!
//! let redis = Redis::in_namespace("shop").connect(redis::Client::open("redis://db.example")?);
//! let leases = Leases::with_engine(redis);
//!
//! let worker = Owner::incarnation("worker-3");
//! let mut held = leases.hold("nightly-report", &worker, Duration::from_secs(30)).await?;
//! held.run(async { /* whatever takes its time */ }).await?;
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A new namespace grants nothing in its first minute. A step of the deployment opens it at once; not the program itself, which would do so again
//! when the server has forgotten something:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use keylatch_lease_redis::Redis;
//!
//! let redis = Redis::in_namespace("shop").connect(redis::Client::open("redis://db.example")?);
//! redis.init().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # When the server forgets
//! Most servers do, at times: one that keeps nothing on disk, with each restart; one with `appendfsync everysec`, the last second or two;
//! one that is followed by an asynchronous replica, what that had not heard of. So whenever it may have forgotten something, nothing
//! is granted for a while, until whatever it may have granted has ended: [`AcquireError::Quarantined`](keylatch_lease::AcquireError::Quarantined) says how long,
//! and [`Options::quarantine`] how long that is, 60 s if not set. Meanwhile what it remembers can be renewed and released.
//!
//! | it may have forgotten something | how it is known |
//! |---|---|
//! | all of it is gone, by a restart, `FLUSHALL`, or the loss of its key | the namespace is not there |
//! | it was started anew, or another server has taken its place | it says so to each new connection (`run_id`), unless [restarts are trusted](Options::trusts_restarts) |
//! | it was a replica for a while, and is a primary again before it had taken over what the other server had | its data have another history (`master_replid`), which goes on from a former one: so it was promoted |
//! | the namespace is new | that looks the same as the first, until somebody calls [`Redis::init`] |
//!
//! - **A lease that lasts longer** than the quarantine, from one renewal to the next, is not waited for; nor is one that never ends. If the
//!   server forgets it, somebody else may get the resource while the holder goes by it (1). The token tells them apart (3).
//! - **What it remembers** and is not true any more, since it has forgotten a release: such a lease ends when it would have ended. One that never
//!   ends has to be released again. Whoever renews by a grant that it has released is told that it goes on.
//!   Whoever asks again for what it had before begins a new tenure (4), as somebody else may have had a greater token meanwhile.
//! - **[`Redis::init`]** ends a quarantine. Whoever calls it says that nobody still relies on a lease that the server may have forgotten.
//!
//! Programs that use one namespace should all have the same quarantine, and trust restarts or not. While they differ, the shortest may count.
//!
//! # How it works
//! - **Clock**: the server's, `TIME`, read once in each script. Clocks of clients do not matter. The holder counts its own deadline from before
//!   it asked.
//! - **Token**: the last one of the namespace plus one, or the server's time in microseconds since 1970, whichever is greater; made in the
//!   script that grants.
//! - **Expiry** is decided by an end that is kept with the lease, to the microsecond, and not by the time to live of a key. So no lease
//!   goes while a script looks at it, `volatile` policies have nothing to evict, and a namespace is three keys, which are there or are not: one
//!   cannot lose a lease and keep the rest. What has expired is removed by those who come by, two with each grant, and by a sweep.
//! - **Who waits** is told by `PUBLISH`: at a release by the holder if somebody has asked for it and waits; at any other release, and where an owner
//!   begins a fresh tenure, always, as the holder is to know, too. At an expiry nobody tells: each who waits has a timer of its own. After a connection
//!   was lost, all who wait ask again.
//! - **Connection**: one for each engine and its clones, with the requests of all tasks in a row on it, and with the messages: that takes
//!   RESP3, which servers have since Redis 6. The driver dials again when it is lost, after 50 ms to 2 s, at random.
//! - **Which server**: the namespace keeps which run of the server wrote to it last, and which history of the data it had. Each connection asks for the first once, and each
//!   script that may grant for the second, which takes some 3 µs.
//! - **Requests**: each operation is one script, by `EVALSHA` and one round trip; a server that does not know it is sent its text. Renewals go
//!   together, up to a thousand in one script.
//!   Who waits asks once when it comes and once for each time it is told; also when the lease should have ended, and
//!   every 5 s ([`Options::fallback`]). In each process that is the first in line alone.
//! - **An answer that does not come**: after 5 s ([`Options::timeout`]) a question fails, and a connection that has said nothing is given up. If it may have been done
//!   all the same, it is asked again: up to three times in all, so that an operation fails after 15 s at most.
//!
//! # What the server needs
//! - Redis 7 or later; tested with 7.0. Version 6 does not say in a script's error what the reason was, so that a primary that has become a replica
//!   is not told from a refusal. Of a cluster, the node that has the namespace's slot: the keys of a namespace are in one, but this crate
//!   follows no redirections.
//! - `maxmemory-policy noeviction`, or one of the `volatile` ones; otherwise calls fail with [`Error::Evicts`]. That is looked at with each new
//!   connection.
//! - For a user with limited rights, the keys and channels `{keylatch:NAMESPACE}:*`, in which white space and each of `% } * ? [ ] \ " '` of the name is written as
//!   its bytes in hexadecimal, each behind a `%` (`%25` for `%`): so the pattern is taken literally; and the
//!   commands `info`, `subscribe`, `publish`, `eval`, `evalsha`, `time`, `hget`, `hmget`, `hset`, `hdel`, `hlen`, `del`, `zadd`, `zrem`, `zscore`, `zrangebyscore` and
//!   `zrangebylex`; `select` for a database other than 0.
//! - `client-output-buffer-limit pubsub` with room for the largest answer, as the connection listens, too. That is what one owner has, asked by
//!   `owned_by` or freed by `release_all`: the usual 32 MB are enough for some 200,000 leases.
//!
//! # How late a waiter may be
//! | the lease ends by | who waits has it after |
//! |---|---|
//! | release, `release_all`, a dropped `Held` | the message, and a round trip |
//! | expiry | a round trip, by its own timer |
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
//! | `release_as`, `release_all`, `release_token`, a fresh tenure of the same owner | the message |
//! | `HDEL` of its field by hand | the message, when somebody else gets it: whoever does notices. Before that, at its next renewal |
//! | `DEL` of the namespace's keys, `FLUSHALL` | the message, when somebody asks for any lease, who gets none, and a round trip. Before that, at its next renewal |
//! | `release` with its grant, by somebody else who has that | the message if anybody waits; otherwise at its next renewal |
//! | what is not told, as the connection was lost | the next connection, and a round trip for up to 256 leases, as long as one of them is polled |
//!
//! # What weakens which guarantee
//! The numbers are those of [`keylatch_lease`](keylatch_lease#what-it-guarantees).
//!
//! | | what may happen |
//! |---|---|
//! | restart of the server, `kill -9`, with whatever persistence | nothing but a quarantine, for leases that do not outlast it; 1 otherwise. 5, 7: a release may be undone, and who renews by what it has released has it again |
//! | the same with restarts trusted, but not `appendfsync always` | 1: what was forgotten may be granted again |
//! | failover to a replica | as a restart. 1, if the old primary goes on granting to those who still reach it (`min-replicas-to-write` narrows that). 3 holds unless the new server's clock is behind the old one's by more than the failover took |
//! | failover to a replica, and back to the first server, which was not started anew meanwhile, and did not take over what the other had | as a restart, trusted or not, as long as the server knows that it was promoted: until the last replica has been gone for `repl-backlog-ttl`, an hour. A quarantine that is longer than that may not come |
//! | the server's clock is set forward | 2: leases expire early; who writes with a token is refused (3). In a quarantine, that ends early, too: 1, for what was forgotten |
//! | it is set back | 8: leases last longer, by as much; 6: one that had just expired may be there again, if nobody has taken it. 1 holds, and 3 as long as the server remembers. A quarantine begins anew at most |
//! | the server forgets, and its clock is set back past the last grant | 3: a token may come again |
//! | the server evicts a key of the namespace, as its policy was changed while connections were open | as when it forgets: a quarantine; 7, 12 if it is an index: `release_all` misses leases |
//! | the server is out of memory | renewals are [refused](Error::Refused), and so are grants, but in the place of what has expired; releases go on |
//! | what is kept of a resource is no lease any more, by another program's doing | calls for this resource alone are an [error](Error::Refused), until it is deleted by hand: `HDEL` of its name from `{keylatch:NAMESPACE}:leases` |
//! | an answer is longer than `client-output-buffer-limit pubsub` | the connection is cut. `owned_by` is an error; `release_all` has been done, and counts nothing when it is asked again |
//! | an operation is given up after its timeout, or its future is dropped | 11: a lease that was granted unheard stays until it expires, or its owner asks again; with `Expiry::Never`, until its owner asks again or is released by name |
//! | the server stands still for longer than that, and goes on | 5, for one owner: a request of the connection that was given up may be done late. Without a token (`release_as`, `release_all`) it may end a tenure that the same owner has begun since |
//! | nobody comes by any more | 12: what has expired stays until the next sweep, or grant. Of a namespace that was ever used one small key is left |
//! | many processes wait for one resource | 9: in each process in order of arrival; among them who is first to ask |
//!
//! Times are kept in microseconds; a lease of more than 285 years never ends.
//!
//! # Writing under a lease
//! A holder may stop for any length of time, and go on writing when its lease is long over. What it writes to has to check that: see the
//! token in [`keylatch_lease`](keylatch_lease#a-lease-is-not-enough-the-token). That goes for data in the same Redis, too: keep the greatest token beside them, and
//! compare in a script.
//!
//! # Runtimes
//! [`Options::connect`] dials and spawns on tokio, with TLS if the client was built with it. [`Options::connect_with`] takes any way to make a stream, and returns the driver for you to
//! spawn wherever you like; tokio is then linked, but not used. Timers are those of `async-io`.
#![forbid(unsafe_code)]

mod convert;
mod driver;
mod engine;
mod error;
mod options;
mod scripts;
mod session;

pub use engine::Redis;
pub use error::Error;
pub use keylatch_lease_remote::BoxError;
pub use options::Options;

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
