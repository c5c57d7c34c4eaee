//! Leases: locks that outlive a task, with an owner and an end.
//!
//! Somebody opens a record in a form, goes to lunch, and nobody else may change it meanwhile; a worker takes a job that must not run
//! twice. What they hold is a *lease*: its holder is not a task or a thread, but an *owner*, a name; and it ends by itself if nobody
//! renews it, so that a browser that was closed, or a worker that crashed, keeps nothing locked for ever.
//!
//! ```
//! use std::time::Duration;
//!
//! use keylatch_lease::{AcquireError, Leases, Lost, Owner, RenewError};
//!
//! let leases = Leases::in_memory();
//! let (jane, joe) = (Owner::named("session-42"), Owner::named("session-43"));
//! let (invoice, ten_minutes) = (("invoice", "2024-17"), Duration::from_secs(600));
//!
//! // Jane opens it. Asked again, she has it still. (In another tab as well: if the two must not be one, `.fresh_token()`.)
//! let grant = leases.try_acquire_now(invoice, &jane, ten_minutes).unwrap();
//! assert!(leases.try_acquire_now(invoice, &jane, ten_minutes).unwrap().is_resumed());
//!
//! // Joe learns who has it. (Or he waits: `leases.acquire(..).await`.)
//! let busy = leases.try_acquire_now(invoice, &joe, ten_minutes);
//! assert!(matches!(busy, Err(AcquireError::Busy { owner, .. }) if owner == jane));
//!
//! // Whenever Jane types, the ten minutes start anew.
//! let grant = leases.renew_now(&grant).unwrap();
//!
//! // She signs out, in one tab. What the other one has is worth nothing any more.
//! leases.release_all_now(&jane).unwrap();
//! assert_eq!(leases.renew_now(&grant), Err(RenewError::Lost(Lost::Released)));
//! ```
//!
//! # Words
//! - A *resource* is what is leased: an entity and a key. A [`Resource`] is plain text, and need not exist anywhere.
//! - An *owner* is a name: of a session, a user, a worker. Whoever has the name is the [`Owner`].
//! - A *tenure* is one uninterrupted hold of a resource by an owner. Asking again goes on with it.
//! - A *token* is its number. Every tenure of a resource has a greater [`Token`] than all before it.
//! - A *grant* is what acquiring gives: the facts of the tenure, as plain data. Dropping a [`Grant`] releases nothing.
//!
//! # Which calls do I want?
//! | | |
//! |---|---|
//! | people in front of forms, with requests that come and go | [`try_acquire`], [`renew`], [`release`] with an owner's name; [`release_all`] when the session ends |
//! | somebody who is to wait | [`acquire`], with [`until`] or [`acquire_for`] |
//! | a job that is done under a lease | [`hold`], and [`Held::run`], which renews |
//! | seeing who has what | [`status`], [`owned_by`] |
//!
//! Each call is a future; `.wait()` blocks instead, and in memory `.now()` does without either. `acquire_blocking`, `renew_now` and
//! their like are short for that.
//!
//! [`try_acquire`]: Leases::try_acquire
//! [`renew`]: Leases::renew
//! [`release`]: Leases::release
//! [`release_all`]: Leases::release_all
//! [`acquire`]: Leases::acquire
//! [`until`]: futures::Acquire::until
//! [`acquire_for`]: Leases::acquire_for
//! [`hold`]: Leases::hold
//! [`status`]: Leases::status
//! [`owned_by`]: Leases::owned_by
//!
//! # Which policy?
//! | [`Expiry`] | ends | for |
//! |---|---|---|
//! | `Sliding(d)`, also from a plain `Duration` | `d` after the last renewal | whoever can say "I am still here" |
//! | `SlidingUpTo { idle, total }` | likewise, but `total` after its start at the latest | people who forget |
//! | `Fixed(d)` | `d` after its start, renewed or not | turns, reservations |
//! | `Never` | when it is released | what only an administrator may break |
//! | `Custom(policy)` | when the policy says so | office hours, quotas |
//!
//! # A lease is not enough: the token
//! A lease that has ended does not stop its holder, who may be asleep: a long pause, a laptop that was closed, a network that came back.
//! Its next write would be one of the past. So each write carries the token of its tenure, and the place that is written to refuses what is
//! smaller than the greatest it has seen: a [`Fence`] for what is in this process, a column in a database.
//!
//! # What it guarantees
//! 1. *Exclusion.* At any instant of the engine's clock at most one owner has a lease of a resource that has not expired.
//! 2. *The holder is the careful one.* When [`Held::check`] says yes, the engine has not expired the lease.
//! 3. *Tokens grow*, whatever ended the tenure before.
//! 4. *Asking again is safe.* Who has the lease gets it at once, with the same token, and never waits for itself.
//! 5. *Only the owner* renews and releases, and only with a grant of the present tenure (or by name: [`release_as`](Leases::release_as); or an
//!    operator does, by its token: [`release_token`](Leases::release_token)).
//! 6. *No revival.* What has expired is never renewed, even if nobody has taken it.
//! 7. [`release_all`] releases exactly what the owner has, and says how much that was.
//! 8. *Take-over in time.* When the holder's time is up, who waits has the lease: by a timer of its own, or at the next [`tick`](Leases::tick).
//!    The timers of all but the first in line go off 10 ms later, or 10 µs later for each that waits, if that is longer: they matter only where
//!    nobody polls the first.
//! 9. *No lost wake-up.* Each release or expiry lets one in, in order of arrival in this process. Who is served has the lease, polled or not;
//!    if its future is dropped, the next has it.
//! 10. *Loss is noticed alone.* [`Held::lost`] is ready, and [`Held::check`] says no, at the end at the latest. (Where the machine slept
//!     meanwhile, `lost` may be late: see [Clocks](#clocks).) If somebody else ends the tenure before, so do they then: in memory at once, on a server
//!     when it tells, which the engine's page has a table of.
//! 11. *Cancel safety.* Every future may be dropped at any moment, and nothing of it stays behind.
//! 12. *Memory follows use.* A resource costs memory while it is leased or waited for. Calls forget in passing what has expired, a little each:
//!     nobody sweeps, and no thread does.
//!
//! # Clocks
//! [`StdClock`] goes on while the machine sleeps, where the system has such a clock; see there. Those who wait, renew or watch have timers of their own
//! with it, on any runtime (those of `async-io`, which has a thread for them where the runtime does not run it). Such a timer stands still while the machine sleeps, and is then late by as long: what is *decided*,
//! by [`Held::check`] or by any call, goes by the clock, and a program that learns that the machine has woken up calls
//! [`Leases::tick`], which wakes whoever is due. With another [`Clock`] nothing wakes by itself: [`Leases::tick`]
//! does what is due, and says when to come again. [`ManualClock`] is for tests and simulations.
//!
//! # Engines
//! [`Memory`] keeps the leases in this process, and forgets them with it. [`Leases::with_engine`] takes others, and the calls stay the same:
//! those of the crates `keylatch-lease-postgres`, `-redis`, `-etcd` and `-nats`, or an [`Engine`](engine::Engine) of one's own. What a server
//! keeps takes time, and may fail: a `Held` that is dropped is then released in the background, and if the program ends before, it expires.
//!
//! # Features
//! - `std` (default): [`StdClock`], timers, and calls that block. Without it the crate is `no_std` and needs `alloc`, and atomics as
//!   wide as a pointer.
//! - `serde`: resources, owners, tokens and grants can be stored and sent.
//!
//! The crate has no `unsafe` code.
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(docsrs, doc(auto_cfg = false))] // by hand: see the same line of `keylatch`

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod attendance;
mod calls;
mod clock;
mod deferred;
mod doubt;
pub mod engine;
mod error;
mod expiry;
mod fence;
mod front;
mod grant;
mod held;
mod index;
mod invalid;
mod leases;
mod line;
mod memory;
mod notice;
mod owner;
mod panics;
mod resource;
#[cfg(feature = "serde")]
mod serial;
mod short_calls;
mod slab;
mod sync;
mod tenure;
mod timer;
mod token;
mod wait_list;
mod wheel;

/// The futures of the calls.
pub mod futures {
    pub use crate::{
        calls::{
            Acquire, Call, Hold, OwnedBy, Release, ReleaseAll, ReleaseExpired, ReleaseToken, Renew, Status, TryAcquire,
            Until,
        },
        held::Waiting,
    };
}

#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
pub use clock::StdClock;
pub use clock::{Clock, ManualClock};
pub use error::{AcquireError, LookError, Lost, ReleaseError, RenewError};
pub use expiry::{Expiry, ExpiryPolicy, Term};
pub use fence::{Fence, Stale};
pub use front::{LeaseStatus, Leases};
pub use grant::Grant;
pub use held::Held;
pub use memory::Memory;
pub use owner::Owner;
pub use resource::Resource;
pub use token::Token;

/// The README's examples are tests.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../../README.md")]
struct Readme;
