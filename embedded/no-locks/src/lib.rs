//! A replacement for keylatch that has the names that the firmware uses, but locks nothing: every request succeeds at
//! once.
//!
//! The firmware built with it in place of keylatch shows two things: that the firmware's checks notice missing locks,
//! and how large the firmware is without locks.

#![no_std]

use core::future::{Future, Ready, ready};
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

/// A guard that protects nothing.
pub struct Guard<'a>(PhantomData<&'a ()>);

/// The replacement for the aliases of all guards.
pub type MutexGuard<'a, K> = <K as Stand>::Guard<'a>;

/// Lets the alias [`MutexGuard`] use its parameter `K`, as an alias must.
pub trait Stand {
    /// Always [`Guard`].
    type Guard<'a>;
}

impl<K> Stand for K {
    type Guard<'a> = Guard<'a>;
}

impl<'a> Guard<'a> {
    /// Returns a future that is ready.
    pub fn upgrade(self) -> Acquire<'a> {
        Acquire(ready(self))
    }
}

/// A future that is ready.
pub struct Acquire<'a>(Ready<Guard<'a>>);

impl<'a> Acquire<'a> {
    /// Ignores `limit`, because this future never waits.
    pub async fn until<F: Future>(self, _limit: F) -> Result<Guard<'a>, F::Output> {
        Ok(self.await)
    }
}

impl<'a> Future for Acquire<'a> {
    type Output = Guard<'a>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Guard<'a>> {
        Pin::new(&mut self.0).poll(cx)
    }
}

macro_rules! tables {
    ($($Table:ident($($permits:ident)?): $($call:ident)+;)+) => {$(
        /// A table without locks.
        pub struct $Table<K>(PhantomData<fn(K)>);

        impl<K> $Table<K> {
            /// Returns a table, whatever the settings.
            pub fn builder($($permits: usize)?) -> Self {
                $(let _ = $permits;)?
                $Table(PhantomData)
            }

            /// Ignores the number of shards.
            pub fn shards(self, _n: usize) -> Self {
                self
            }

            /// Ignores the capacity.
            pub fn capacity(self, _n: usize) -> Self {
                self
            }

            /// Returns the table.
            pub fn build(self) -> Self {
                self
            }

            /// Returns 0.
            pub fn len(&self) -> usize {
                0
            }

            $(
                /// Returns a future that is ready at once.
                pub fn $call(&self, _key: &K) -> Acquire<'_> {
                    Acquire(ready(Guard(PhantomData)))
                }
            )+
        }
    )+};
}

tables! {
    KeyedMutex(): lock;
    KeyedRwLock(): read upgradable_read;
    KeyedSemaphore(permits): acquire;
}

/// A latch that locks nothing.
pub struct Latch(());

impl Latch {
    /// Creates a latch.
    pub const fn new() -> Self {
        Latch(())
    }

    /// Returns a future that is ready at once.
    pub fn read(&self) -> Acquire<'_> {
        Acquire(ready(Guard(PhantomData)))
    }

    /// Returns a future that is ready at once.
    pub fn write(&self) -> Acquire<'_> {
        Acquire(ready(Guard(PhantomData)))
    }

    /// Never fails.
    pub fn try_read(&self) -> Option<Guard<'_>> {
        Some(Guard(PhantomData))
    }

    /// Never fails.
    pub fn try_write(&self) -> Option<Guard<'_>> {
        Some(Guard(PhantomData))
    }
}

impl<K> KeyedMutex<K> {
    /// Never fails.
    pub fn try_lock(&self, _key: &K) -> Option<Guard<'_>> {
        Some(Guard(PhantomData))
    }
}
