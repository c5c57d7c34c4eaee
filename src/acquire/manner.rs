//! The manner of waiting, for operations of several steps. Each operation is written once, as an async function. A
//! thread runs it in a single poll, because it blocks wherever a task would wait.

use core::future::Future;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use core::{
    future::ready,
    pin::pin,
    task::{Context, Poll, Waker},
};

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use super::blocking::block;
use super::future::Acquire;
use super::request::Request;
use crate::guard::Guard;
use crate::mode::{Exclusive, Mode, Upgradable};
use crate::plumbing::TablePtr;

/// The manner of waiting.
pub(crate) trait Manner: Copy {
    fn acquire<P: TablePtr, M: Mode>(self, request: Request<P, M>) -> impl Future<Output = Guard<P, M>>;

    fn upgrade<P: TablePtr>(self, guard: Guard<P, Upgradable>) -> impl Future<Output = Guard<P, Exclusive>>;
}

/// The manner of a task: it awaits.
#[derive(Clone, Copy)]
pub(crate) struct Awaiting;

impl Manner for Awaiting {
    #[inline]
    fn acquire<P: TablePtr, M: Mode>(self, request: Request<P, M>) -> impl Future<Output = Guard<P, M>> {
        Acquire::of(request)
    }

    #[inline]
    fn upgrade<P: TablePtr>(self, guard: Guard<P, Upgradable>) -> impl Future<Output = Guard<P, Exclusive>> {
        guard.upgrade()
    }
}

/// The manner of a thread: it blocks.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
#[derive(Clone, Copy)]
pub(crate) struct Blocking;

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl Manner for Blocking {
    #[inline]
    fn acquire<P: TablePtr, M: Mode>(self, request: Request<P, M>) -> impl Future<Output = Guard<P, M>> {
        ready(block(request, None).expect("a wait without a deadline ends with the hold"))
    }

    #[inline]
    fn upgrade<P: TablePtr>(self, guard: Guard<P, Upgradable>) -> impl Future<Output = Guard<P, Exclusive>> {
        ready(guard.upgrade_blocking())
    }
}

/// Runs an operation whose manner of waiting is [`Blocking`].
#[cfg(all(feature = "std", not(target_family = "wasm")))]
#[inline]
pub(crate) fn run<T>(operation: impl Future<Output = T>) -> T {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a blocking operation finishes in one poll"),
    }
}
