//! The code that the engines of [`keylatch_lease`] on servers share. It is for authors of engines; users do not need
//! it.
//!
//! - [`Link`]: one connection for all tasks. A driver opens it, and reopens it when it is lost. Operations wait for it
//!   for a limited time, the connection to a silent server is given up, and dropped tenures are released.
//! - [`Core`], [`Settings`] and the macros [`core_methods!`], [`setters!`] and [`failure!`]: the parts of an engine,
//!   its options and its error that do not depend on the server.
//! - [`Together`]: questions that wait for the connection at the same moment, and are sent together.
//! - [`Watchers`]: the waiters and holders to notify when a resource becomes free or a tenure has ended; [`Told`]: a
//!   server's message that a tenure has ended.
//! - [`Core::polling`]: waiters that poll, for a server that sends no messages.
//! - [`Limit`] and [`sleep`]: timers that need no runtime, built on `async-io`; [`jittered`]: random pauses.
//! - [`Policy`], [`micros`], [`from_micros`]: policies and durations as plain numbers.
//! - [`cursor`], [`resource_of`], [`page_start`], [`prefix_end`]: for lists in the order of the resources.
//!
//! # Examples
//! A connection that is ready at once, and never ends:
//! ```
//! use std::{error::Error, fmt, future, time::Duration};
//!
//! use futures_lite::future::{block_on, or};
//! use keylatch_lease_remote::{BoxError, Failure, Limit, Link, Session, Tenure, drive};
//!
//! #[derive(Clone, Debug, PartialEq)]
//! struct Unreachable;
//!
//! impl Failure for Unreachable {
//!     fn unconnected(_: Option<BoxError>) -> Self {
//!         Unreachable
//!     }
//!     fn timeout() -> Self {
//!         Unreachable
//!     }
//!     fn stopped() -> Self {
//!         Unreachable
//!     }
//! }
//!
//! struct Echo;
//!
//! impl Session for Echo {
//!     type Error = Unreachable;
//!
//!     fn is_closed(&self) -> bool {
//!         false
//!     }
//!     async fn give_back(&self, _: &Tenure) -> bool {
//!         true
//!     }
//! }
//!
//! let (link, driving) = Link::new(Duration::from_secs(5), None);
//! let driver = drive(driving, |_| async { Ok((Echo, future::pending())) });
//! let question = async {
//!     let mut limit = Limit::after(link.timeout());
//!     let session = link.session(&mut limit).await?;
//!     let answer = link.answer(&session, &mut limit, async { 42 }).await;
//!     answer.ok_or(Unreachable)
//! };
//! let answer = block_on(or(question, async { driver.await; unreachable!("the link is in use") }));
//! assert_eq!(answer, Ok(42));
//! ```
#![forbid(unsafe_code)]

mod backlog;
mod causes;
mod core;
mod cursor;
mod deadline;
mod drive;
mod failure;
mod limit;
mod link;
mod polls;
mod settings;
mod silence;
mod tenure;
mod together;
mod told;
mod values;
mod watch;

pub use self::core::Core;
pub use causes::Causes;
pub use cursor::{cursor, page_start, prefix_end, resource_of};
pub use drive::drive;
pub use limit::{Limit, jittered, sleep};
pub use link::{BoxError, Driving, Failure, Handle, Link, Live, Session};
pub use settings::Settings;
pub use tenure::Tenure;
pub use together::{AtOnce, Together, Turn};
pub use told::Told;
pub use values::{Policy, from_micros, micros};
pub use watch::{Watch, Watchers};

/// Used by the macros.
#[doc(hidden)]
pub use keylatch_lease as __lease;
