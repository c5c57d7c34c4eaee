//! Leases: locks that outlive a task, with an owner and an expiry.
//!
//! A user opens a record in a form and goes to lunch; while it is open, no other user may change the record. A worker
//! takes a job that must not run twice. The user and the worker each hold a *lease*. A lease belongs to an *owner*,
//! which is a name, and not to a task or a thread. A lease expires unless it is renewed, so a closed browser or a
//! crashed worker keeps nothing locked for ever.
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
//! // Jane opens the invoice. If she acquires it again, even in another tab, her lease continues.
//! // (`.fresh_token()` tells tabs apart.)
//! let grant = leases.try_acquire_now(invoice, &jane, ten_minutes).unwrap();
//! assert!(leases.try_acquire_now(invoice, &jane, ten_minutes).unwrap().is_resumed());
//!
//! // Joe gets an error that names the owner. (To wait for the lease instead: `leases.acquire(..).await`.)
//! let busy = leases.try_acquire_now(invoice, &joe, ten_minutes);
//! assert!(matches!(busy, Err(AcquireError::Busy { owner, .. }) if owner == jane));
//!
//! // Whenever Jane types, the ten minutes start again.
//! let grant = leases.renew_now(&grant).unwrap();
//!
//! // She signs out in one tab, and the grant in the other tab becomes invalid.
//! leases.release_all_now(&jane).unwrap();
//! assert_eq!(leases.renew_now(&grant), Err(RenewError::Lost(Lost::Released)));
//! ```
//!
//! # Words
//! - A *resource* is the thing that is leased: an entity and a key. A [`Resource`] is plain text, and need not exist
//!   anywhere.
//! - An *owner* is the name of a session, a user or a worker. All callers that use the same name are the same
//!   [`Owner`].
//! - A *tenure* is one uninterrupted hold of a resource by an owner. If the owner acquires the resource again, the
//!   tenure continues.
//! - A *token* is the number of a tenure. Every tenure of a resource has a greater [`Token`] than all earlier ones.
//! - A *grant* describes a tenure as plain data; acquiring returns one. Dropping a [`Grant`] releases nothing.
//!
//! # Which calls do I want?
//! | | |
//! |---|---|
//! | users who edit forms, over many short requests | [`try_acquire`], [`renew`], [`release`] with an owner's name; [`release_all`] when the session ends |
//! | a caller that waits | [`acquire`], with [`until`] for a limit; or [`acquire_for`] |
//! | a job that runs under a lease | [`hold`], and [`Held::run`], which renews |
//! | looking up owners and their leases | [`status`], [`owned_by`] |
//!
//! Each of these calls returns a future, except `acquire_for`, which blocks the thread. The future's `.wait()` blocks
//! the thread instead. If the call never waits for a lease and the leases are in memory, the future also has `.now()`,
//! which returns at once. `acquire_blocking`, `renew_now` and similar methods are shorthand for these.
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
//! | [`Expiry`] | the lease ends | suits |
//! |---|---|---|
//! | `Sliding(d)`, also from a plain `Duration` | `d` after the last renewal | a holder that can say "I am still here" |
//! | `SlidingUpTo { idle, total }` | `idle` after the last renewal, but at most `total` after its start | users who forget to close the record |
//! | `Fixed(d)` | `d` after its start, renewed or not | reservations, time slots |
//! | `Never` | when it is released | leases that only an administrator may break |
//! | `Custom(policy)` | when the policy says so | office hours, quotas |
//!
//! # A lease is not enough: the token
//! The end of a lease does not stop its holder. The holder may be held up by a long pause, a closed laptop or a network
//! outage, and its next write would then overwrite newer data. So each write carries the token of its tenure, and the
//! store refuses a token that is smaller than the greatest it has seen. A [`Fence`] does this in one process; a column
//! does it in a database.
//!
//! # What it guarantees
//! 1. *Exclusion.* At any instant of the engine's clock, at most one owner has an unexpired lease of a resource.
//! 2. *The holder errs on the safe side.* If [`Held::check`] succeeds, the lease has not expired by the engine's clock.
//! 3. *Tokens grow*, whatever ended the previous tenure.
//! 4. *Acquiring again is safe.* The owner of a lease gets it at once, with the same token, and never waits for itself.
//! 5. *Only the owner* can renew or release a lease, with a grant of the present tenure. Three calls release without a
//!    grant: [`release_as`](Leases::release_as) and [`release_all`] by the owner's name, and
//!    [`release_token`](Leases::release_token), for an operator, by the token.
//! 6. *No revival.* An expired lease is never renewed, even if no other owner has acquired the resource.
//! 7. [`release_all`] releases exactly the leases of the owner, and returns their number.
//! 8. *Timely take-over.* When a lease expires, the next waiter acquires it, woken by its own timer or by the next
//!    [`tick`](Leases::tick). The timers of the other waiters fire 10 ms after the first waiter's, or 10 µs for each
//!    waiter in line if that is longer. They matter only if the first waiter is not polled.
//! 9. *No lost wake-up.* Each release or expiry admits one waiter, in order of arrival in this process, and with it
//!    those of the same owner that can share its tenure. In memory, a waiter that has been granted the lease has it,
//!    polled or not; if its future is dropped unpolled, the next waiter gets the lease, unless another request of the
//!    same owner has it, too.
//! 10. *The holder learns of a loss without asking the engine.* When the lease expires, [`Held::lost`] is ready and
//!     [`Held::check`] fails. (If the machine slept, `lost` may be late: see [Clocks](#clocks).) If another caller ends
//!     the tenure earlier, the same happens: at once in memory; with a server, when its notification arrives (each
//!     engine's page has a table).
//! 11. *Cancel safety.* Every future may be dropped at any moment. A dropped future leaves nothing behind in this
//!     process; a request that had already been sent to a server may leave a lease, which its owner has until the lease
//!     expires (see [`Acquire`](futures::Acquire)).
//! 12. *Memory follows use.* A resource costs memory while it is leased or waited for. In memory, each call removes a
//!     few expired leases in passing, so neither sweeping nor a background thread is needed.
//!
//! # Clocks
//! [`StdClock`] goes on counting while the machine sleeps on Linux, Android and Windows, but not on macOS and iOS; see
//! its page. With `StdClock`, every waiter, renewal and watch has its own timer, on any runtime. (The timers are those
//! of `async-io`, which runs a thread for them unless the runtime drives it.) Such a timer stops while the machine
//! sleeps, and then fires late. All *decisions*, by [`Held::check`] or by any call, go by the clock. A program that
//! learns that the machine has woken up should call [`Leases::tick`], which wakes every task that is due. With a
//! [`Clock`] that does not advance in [real time](Clock::is_real_time), or without the feature `std`, there are no
//! timers: [`Leases::tick`] does the work that is due, and returns the time until it must be called again.
//! [`ManualClock`] is for tests and simulations.
//!
//! # Engines
//! [`Memory`] keeps the leases in this process, for the life of the process. [`Leases::with_engine`] takes another
//! engine: one of the crates `keylatch-lease-sqlite`, `-postgres`, `-redis`, `-etcd`, `-nats` and `-object`, or an
//! [`Engine`](engine::Engine) of your own. The calls stay the same. A request to a server takes time and may fail. A
//! dropped `Held` is released in the background; if the program ends before that, the lease expires.
//!
//! # Features
//! - `std` (default): [`StdClock`], [`Owner::incarnation`], timers, and calls that block. Without it the crate is
//!   `no_std` and needs `alloc` and pointer-sized atomics.
//! - `serde`: resources, owners, tokens and grants can be stored and sent.
//!
//! The crate has no `unsafe` code.
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(docsrs, doc(auto_cfg = false))] // `doc(cfg)` is written by hand: see `keylatch`'s lib.rs for the reason

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
mod leader;
mod leases;
mod line;
mod list;
mod local_watch;
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
mod watch;
mod wheel;

/// The futures of the calls.
pub mod futures {
    pub use crate::{
        calls::{
            Acquire, Call, Hold, OwnedBy, Release, ReleaseAll, ReleaseExpired, ReleaseToken, Renew, Status, TryAcquire,
            Until,
        },
        held::Waiting,
        leader::Campaign,
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
pub use leader::{Leader, Leadership, WorkGuard};
pub use list::{List, ListedLease};
pub use memory::Memory;
pub use owner::Owner;
pub use resource::Resource;
pub use token::Token;
pub use watch::Watch;

/// The README's examples are tests.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../../README.md")]
struct Readme;
