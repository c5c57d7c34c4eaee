//! Leases in Redis: an engine for [`keylatch_lease`], for programs that already have a Redis server.
//!
//! The calls are those of [`Leases`](keylatch_lease::Leases). A resource leased in one process is leased in every
//! process that uses the same server and namespace.
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
//! held.run(async { /* the long work */ }).await?;
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A new namespace grants nothing in its first minute. A step of the deployment can open it at once. The program itself
//! must not do that at each start: when the server has forgotten leases, that would open the namespace too early.
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
//! Most servers forget leases at times. A server without persistence forgets all of them with each restart; one with
//! `appendfsync everysec` forgets those of the last second or two; one that is replaced by an asynchronous replica
//! loses what the replica had not received. So whenever leases may have been forgotten, nothing is granted for a while,
//! until every lease that may have been granted before has ended.
//! [`AcquireError::Quarantined`](keylatch_lease::AcquireError::Quarantined) gives the remaining time, and
//! [`Options::quarantine`] sets its full length: 60 s if not set. During the quarantine, leases that the server
//! remembers can be renewed and released.
//!
//! | what may have happened | how the engine detects it |
//! |---|---|
//! | everything is gone, by a restart, `FLUSHALL`, or the loss of the namespace's key | the namespace is missing |
//! | the server was restarted, or another server has taken its place | the server's `run_id`, which each new connection reads, is not the recorded one, unless [restarts are trusted](Options::trusts_restarts) |
//! | the server was a replica for a while, and became a primary again before it had received the other server's data | its data have another history (`master_replid`) that continues an earlier one, which shows that the server was promoted |
//! | the namespace is new | the namespace looks as if everything were gone, until [`Redis::init`] is called |
//!
//! - **A lease that lasts longer** than the quarantine, from one renewal to the next, or that never expires, is not
//!   covered by the quarantine. If the server forgets it, another owner may get the resource while the holder still
//!   relies on its lease (1). The token tells them apart (3).
//! - **A lease that was already released** may be back, if the server has forgotten the release. It ends when it would
//!   have ended without the release; one that never expires must be released again. Until then a renewal with the
//!   released grant succeeds. An owner that acquires a resource that it held before begins a new tenure (4), because
//!   another owner may have had a greater token in between.
//! - **[`Redis::init`]** ends a quarantine. Its caller vouches that nobody still relies on a lease that the server may
//!   have forgotten.
//!
//! All programs that use one namespace should have the same quarantine, and the same setting of whether restarts are
//! trusted. While they differ, the shortest quarantine may apply.
//!
//! # How it works
//! - **Clock**: the server's, `TIME`, read once in each script. The clients' clocks do not matter. The holder counts
//!   its own deadline from before its request.
//! - **Token**: the namespace's last token plus one, or the server's time in microseconds since 1970, whichever is
//!   greater. The script that grants makes it.
//! - **Expiry** is decided by an end that is stored with the lease, to the microsecond, and not by the time to live of
//!   a key. So no lease disappears while a script reads it, and `volatile` policies have nothing to evict. A namespace
//!   is three keys, which exist or do not: it cannot lose one lease and keep the rest. Expired leases are removed by
//!   grants, up to two with each, and by a sweep.
//! - **Waiters** are notified by `PUBLISH`. A release by the holder sends a message if a waiter has asked for the
//!   resource. Any other release, and a fresh tenure, always send one, because the holder must learn of it too. An
//!   expiry sends none: each waiter has its own timer. After a lost connection all waiters ask again.
//! - **Connection**: one for each engine and its clones, which carries the requests of all tasks, and the messages.
//!   That requires RESP3, which servers have since Redis 6. If the connection is lost, the driver connects again, after
//!   a random pause of 50 ms to 2 s.
//! - **Identity of the server**: the namespace records which run of the server wrote to it last, and which history the
//!   server's data had. Each connection reads the run once, and each script that may grant reads the history, which
//!   takes about 3 µs.
//! - **Requests**: each operation is one script, by `EVALSHA` and one round trip; if the server does not know the
//!   script, its text is sent. Renewals are batched, up to a thousand in one script. A waiter sends one request when it
//!   arrives and one for each message, one when the lease should have ended, and one every 5 s ([`Options::fallback`]).
//!   In each process only the first waiter in line does so.
//! - **Many tasks**: an acquire or a release is sent at once if no other is under way. Otherwise the driver sends it,
//!   and has at most two scripts under way: the requests about different resources that arrive in the meantime become
//!   one script, up to 128. Each is decided as if it had come alone. If the server refuses the script, the script has
//!   changed nothing, and each request is sent alone, to get its own answer.
//! - **Timeouts**: after 5 s ([`Options::timeout`]) a request fails, and the connection is given up if it has answered
//!   nothing in that time. A request that may have been carried out is sent again, up to three times in all, so that an
//!   operation fails after 15 s at most.
//!
//! # Failovers
//! Redis confirms a write before a replica has it, so that a promoted replica may have forgotten the last leases. The
//! quarantine covers that. It does not cover two primaries at the same time, because neither knows of the other:
//!
//! - **Let the primary need its replica**: `min-replicas-to-write 1` and `min-replicas-max-lag 1`. A primary that is
//!   cut off from its replica then refuses all grants and renewals ([`Error::Refused`], `NOREPLICAS`), within some
//!   three seconds. No replica may be promoted earlier: set Sentinel's `down-after-milliseconds` to 5000 or more.
//!   Otherwise, make the quarantine longer than the longest lease by those three seconds.
//! - **Or stop the old primary** before the replica is promoted.
//!
//! Programs follow a failover if they reach the server at an address that moves, or if they ask Sentinel at each
//! connection:
//!
//! ```no_run
//! # async fn example() {
//! use keylatch_lease::Leases;
//! use keylatch_lease_redis::Redis;
//! use redis::{Client, RedisConnectionInfo};
//! use tokio::net::TcpStream;
//!
//! let (redis, driver) = Redis::in_namespace("shop").connect_with(RedisConnectionInfo::default(), || async {
//!     for sentinel in ["redis://one.example:26379", "redis://two.example:26379", "redis://three.example:26379"] {
//!         let Ok(mut asked) = Client::open(sentinel)?.get_multiplexed_async_connection().await else { continue };
//!         let mut question = redis::cmd("SENTINEL");
//!         question.arg("GET-MASTER-ADDR-BY-NAME").arg("shop");
//!         let Ok((host, port)) = question.query_async::<(String, u16)>(&mut asked).await else { continue };
//!         return Ok(TcpStream::connect((host, port)).await?);
//!     }
//!     Err("no sentinel answers".into())
//! });
//! tokio::spawn(driver);
//! let leases = Leases::with_engine(redis);
//! # }
//! ```
//!
//! # What the server needs
//! - Redis 7 or later, or Valkey; tested with Redis 7.0 to 8.0, and Valkey 8.1 to 9.1. Redis 6 does not report the
//!   reason for a script's error, so the error of a primary that has become a replica looks like a refusal. In a
//!   cluster, connect to the node that has the namespace's slot: the keys of a namespace are in one slot, but this
//!   crate follows no redirections.
//! - `maxmemory-policy noeviction`, or one of the `volatile` ones, or no `maxmemory`; otherwise calls fail with
//!   [`Error::Evicts`]. Each new connection checks that.
//! - A user with limited rights needs the keys and channels `{keylatch:NAMESPACE}:*`. In the name, white space, control
//!   characters and each of `% } * ? [ ] \ " '` are written as their bytes in hexadecimal, each after a `%` (`%25` for
//!   `%`), so that the pattern is taken literally. It also needs the commands `info`, `subscribe`, `publish`, `eval`,
//!   `evalsha`, `time`, `hget`, `hmget`, `hset`, `hdel`, `hlen`, `del`, `zadd`, `zrem`, `zscore`, `zrangebyscore` and
//!   `zrangebylex`; and `select` for a database other than 0.
//! - `client-output-buffer-limit pubsub` with room for the largest answer, because the connection also listens. The
//!   largest answer lists the leases of one owner, for `owned_by` or `release_all`: the usual 32 MB are enough for
//!   about 200,000 leases.
//!
//! # TLS
//! The client of the crate `redis` encrypts if that crate is built with one of its features for TLS, for example
//! `tokio-rustls-comp`, together with `rustls` and a cryptography provider. The engine connects as the client does.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use keylatch_lease_redis::Redis;
//! use redis::{Client, ClientTlsConfig, IntoConnectionInfo, TlsCertificates};
//!
//! let password = std::fs::read_to_string("/run/secrets/redis")?;
//! let info = "rediss://db.example".into_connection_info()?;
//! let settings = info.redis_settings().clone().set_username("shop").set_password(password.trim_end());
//! // With a private CA, and a certificate of the program's own where the server asks for one.
//! let own = ClientTlsConfig { client_cert: std::fs::read("shop.pem")?, client_key: std::fs::read("shop.key")? };
//! let tls = TlsCertificates { client_tls: Some(own), root_cert: Some(std::fs::read("ca.pem")?) };
//! let client = Client::build_with_tls(info.set_redis_settings(settings), tls)?;
//! let redis = Redis::in_namespace("shop").connect(client);
//! # Ok(())
//! # }
//! ```
//!
//! # Passwords that change
//! [`Options::connect_from`] takes a function that makes a client for each connection, and
//! [`Options::connect_with_settings`] one that returns the settings of each. Such a function may read a password that
//! was replaced while the program runs. A server keeps the connections of a user whose password has changed, and some
//! services close them after a time. Then the driver connects again, and the leases stay, unless they expire before it
//! succeeds. While the server refuses the password, calls fail with [`Error::Denied`].
//!
//! # How late a waiter may be
//! | the lease ends by | the waiter has it after |
//! |---|---|
//! | release, `release_all`, a dropped `Held` | the message, and a round trip |
//! | expiry | a round trip, by the waiter's own timer |
//! | either, while the connection is lost | the next connection, and a round trip; or an error after that |
//! | release, and the server's machine is gone without closing its connections | the fallback and the timeout, 10 s |
//! | either, in a quarantine | an error |
//!
//! # How late a holder may learn that another call has ended its lease
//! Once the holder knows, its [`check`](keylatch_lease::Held::check) fails and [`lost`](keylatch_lease::Held::lost) is
//! ready. Without a message it learns of the end at its next renewal, within a third of the lease's time; if nobody
//! renews the lease, it learns when the lease would have expired.
//!
//! | the lease is ended by | the holder knows after |
//! |---|---|
//! | `release_as`, `release_all`, `release_token`, a fresh tenure of the same owner | the message |
//! | `HDEL` of its field by hand | the message that the next grant of the resource sends when it notices the deletion; or the next renewal, if that is earlier |
//! | `DEL` of the namespace's keys, `FLUSHALL` | the message that the next acquire of any lease sends (the acquire itself is refused), and a round trip; or the next renewal, if that is earlier |
//! | `release` with its grant, by another caller that has the grant | the message if there is a waiter; otherwise the next renewal |
//! | any of these while the connection is lost | the next connection, and a round trip for every 256 leases, as long as one of their `Held`s is polled |
//!
//! # What weakens which guarantee
//! The numbers are those of the [guarantees](keylatch_lease#what-it-guarantees) of `keylatch_lease`. A number alone
//! means that this guarantee may be broken.
//!
//! | | what may happen |
//! |---|---|
//! | restart of the server, `kill -9`, with any persistence | nothing but a quarantine, for leases that do not outlast it; 1 otherwise. 5, 7: a release may be undone, and a renewal with the released grant has the lease again |
//! | the same with restarts trusted, but without `appendfsync always` | 1: a forgotten lease may be granted again |
//! | failover to a replica | the same as after a restart. 1, if the old primary still grants leases to programs that reach it: see [failovers](#failovers). 3 holds unless the new server's clock is behind the old one's by more than the failover took |
//! | failover to a replica, and back to the first server, which was not restarted in between and did not receive the other's data | the same as after a restart, trusted or not, as long as the server knows that it was promoted: until the last replica has been gone for `repl-backlog-ttl`, an hour. A quarantine that is longer than that may be missed |
//! | the server's clock is set forward | 2: leases expire early; a write with the old token is refused (3). A quarantine ends early too: 1, for forgotten leases |
//! | the server's clock is set back | 8: leases last longer by that time; 6: a lease that had just expired may be valid again, if nobody has acquired the resource. 1 holds, and 3 as long as the server remembers. At worst, a quarantine starts again |
//! | the server forgets, and its clock is set back past the last grant | 3: a token may be given out twice |
//! | the server evicts a key of the namespace, because its policy was changed while connections were open | the same as when the server forgets: a quarantine; 7, 12 if the key is an index: `release_all` misses leases |
//! | the server is out of memory | renewals are [refused](Error::Refused), and so are grants, except those that first remove an expired lease; releases still work |
//! | another program has overwritten the value of a resource, so that it is not a lease | calls for this resource fail with an [error](Error::Refused), and a renewal finds the lease lost, until the value is deleted by hand: `HDEL` of its name from `{keylatch:NAMESPACE}:leases`. Other resources are not affected |
//! | an answer is longer than `client-output-buffer-limit pubsub` | the connection is cut. `owned_by` is an error; `release_all` has been carried out, and counts no lease when it is sent again |
//! | an operation is given up after its timeout, or its future is dropped | 11: a lease whose grant was not received stays until it expires or its owner asks again; with `Expiry::Never`, until its owner asks again, or somebody releases it in the owner's name (`release_as`, `release_all`) |
//! | the server stands still for longer than the timeout, and resumes | 5, for one owner: a request of the connection that was given up may be carried out late. Without a token (`release_as`, `release_all`) it may end a tenure that the same owner has begun since |
//! | no program uses the namespace any more | 12: expired leases stay until the next sweep or grant. One small key is left of a namespace that was ever used |
//! | many processes wait for one resource | 9: waiters are served in order of arrival within each process; between processes the first request wins |
//!
//! Times are kept in microseconds; a lease of more than 285 years never expires.
//!
//! # Writing under a lease
//! A holder may stop for any length of time, and then write long after its lease has ended. The store to which it
//! writes must check that: see the token in [`keylatch_lease`](keylatch_lease#a-lease-is-not-enough-the-token). That is
//! also true of data in the same Redis: keep the greatest token beside them, and compare it in a script. Any client can
//! send such a script; `docs/leases-guide.md` in the repository has one, and says why the engine uses no pool.
//!
//! # Runtimes
//! [`Options::connect`] connects and spawns on tokio, with TLS if the client was built with it.
//! [`Options::connect_with`] takes a function that makes a stream in any other way, and returns the driver for you to
//! spawn wherever you like; tokio is then linked, but not used. Timers are those of `async-io`.
#![forbid(unsafe_code)]

mod convert;
mod decide;
mod driver;
mod engine;
mod error;
mod options;
mod scripts;
mod session;
mod together;

pub use engine::Redis;
pub use error::Error;
pub use keylatch_lease_remote::BoxError;
pub use options::Options;

/// Runs the README's examples as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
