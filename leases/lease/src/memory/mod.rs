//! The engine in this process.
//!
//! Each lease has a record, which is found by its resource through a hash table, and by its owner through a list. A
//! call that looks at a record compares the lease's end with the clock to decide whether the lease has expired, so
//! nothing has to happen at the end itself. The [wheel](crate::wheel) only says which records can be removed, and each
//! call removes a few.
//!
//! Everything is behind one lock, so that each operation happens at one instant, `release_all` included. (Only a sweep
//! releases the lock in between.) That instant is the latest that any call so far has seen, so that time never goes
//! back between calls. No user code runs under the lock: the clock is read before the lock is taken, and a policy is
//! dropped after the lock has been released.

mod book;

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    convert::Infallible,
    future::{Future, poll_fn},
    ops::DerefMut,
    task::Poll,
    time::Duration,
};

use self::book::{Book, Dead};
#[cfg(feature = "std")]
use crate::StdClock;
use crate::{
    Clock, ExpiryPolicy, Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Listing, Owned, Part, Record, Renewal},
    panics,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The greatest number of records that each call examines in passing, to remove those that have expired. A record is
/// examined once for each level of the wheel that it passes, and once when it is removed. So any number above the
/// number of levels in use is enough.
const IN_PASSING: u32 = 8;

/// The greatest number of records that a sweep removes at a time; the lock is released in between.
const BATCH: usize = 32;

macro_rules! memory {
    ($($default:tt)*) => {
        /// Leases in the memory of this process.
        ///
        /// Tokens grow across all resources. With the feature `std` the first token is the system's time in
        /// microseconds since 1970, and no token is granted before the time that it stands for. So tokens keep growing
        /// when the process restarts, however many leases it has granted, unless the system's clock was set back. (A
        /// table that has begun more than a million tenures per second since it was created waits for its clock, up to
        /// a microsecond for each tenure.) Without `std` the first token is 1 in each process.
        ///
        /// # Examples
        /// ```
        /// use keylatch_lease::{Leases, ManualClock, Memory};
        ///
        /// let leases = Leases::with_engine(Memory::new(ManualClock::new()));
        /// assert!(leases.is_empty());
        /// ```
        pub struct Memory<C $($default)*> {
            clock: C,
            book: Mutex<Box<Book>>,
            /// The number of policies to be dropped, which is read without the lock.
            dead: AtomicUsize,
        }
    };
}

#[cfg(feature = "std")]
memory!(= StdClock);
#[cfg(not(feature = "std"))]
memory!();

impl<C: Clock> Memory<C> {
    /// Creates an engine without leases.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::{ManualClock, Memory};
    ///
    /// let engine = Memory::new(ManualClock::new());
    /// ```
    #[must_use]
    pub fn new(clock: C) -> Self {
        Memory { clock, book: Mutex::new(Box::new(Book::new())), dead: AtomicUsize::new(0) }
    }

    /// Returns the engine's clock.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Clock, ManualClock, Memory};
    ///
    /// let engine = Memory::new(ManualClock::new());
    /// engine.clock().advance(Duration::from_secs(1));
    /// assert_eq!(engine.clock().now(), Duration::from_secs(1));
    /// ```
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Sets the book's time, removes a few expired leases, and then runs an operation.
    #[inline]
    fn at<R>(&self, at: Duration, operation: impl FnOnce(&mut Book) -> R) -> R {
        let mut gone = Vec::new(); // their memory is freed after the lock has been released
        let mut book = Opened { book: self.book.lock(), dead: &self.dead };
        let book = &mut *book.book;
        book.now = book.now.max(at);
        let mut work = IN_PASSING;
        while let Some(id) = book.pop_due(false, &mut work) {
            gone.push(book.records[id].resource.clone());
            book.remove(id);
        }
        operation(book) // last, so that its result is built in place
    }

    // These three functions are compiled once, outside of their futures, so that the futures are short wherever they
    // are inlined.

    #[inline(never)]
    fn acquire_at_once(&self, ask: &Ask<'_>) -> Answer {
        self.at(ask.at, |book| book.acquire(ask))
    }

    #[inline(never)]
    fn renew_at_once(&self, batch: &mut [Renewal<'_>], at: Duration) {
        self.at(at, |book| batch.iter_mut().for_each(|renewal| book.renew(renewal, at)));
    }

    #[inline(never)]
    fn release_at_once(&self, resource: &Resource, owner: &Owner, token: Option<Token>, at: Duration) -> Gone {
        self.at(at, |book| book.release(resource, owner, token))
    }

    /// Removes up to `limit` expired leases.
    fn sweep(&self, limit: usize, at: Duration) -> usize {
        let mut swept = 0;
        let mut gone = Vec::with_capacity(BATCH.min(limit)); // its memory is freed after the lock has been released
        while swept < limit {
            self.book.give_way();
            gone.clear();
            let batch = BATCH.min(limit - swept);
            let mut book = Opened { book: self.book.lock(), dead: &self.dead };
            let book = &mut *book.book;
            book.now = book.now.max(at);
            let mut work = 4 * BATCH as u32;
            let mut removed = 0;
            while removed < batch {
                let Some(id) = book.pop_due(true, &mut work) else { break };
                gone.push(book.records[id].resource.clone());
                book.remove(id);
                removed += 1;
            }
            swept += removed;
            if removed < batch && work > 0 {
                break;
            }
        }
        swept
    }

    /// Returns the number of leases in memory, including those that have expired and have not been removed.
    pub(crate) fn kept(&self) -> usize {
        self.book.lock().records.len()
    }

    /// Returns the time, by the clock, at which the next lease expires, or an earlier one: see `Wheel::next_due`.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        let mut book = self.book.lock();
        let Book { wheel, records, .. } = &mut **book;
        wheel.next_due(records)
    }
}

/// The book while it is locked. On drop, the policies to be dropped are counted.
struct Opened<'a, B: DerefMut<Target = Box<Book>>> {
    book: B,
    dead: &'a AtomicUsize,
}

impl<B: DerefMut<Target = Box<Book>>> Drop for Opened<'_, B> {
    #[inline]
    fn drop(&mut self) {
        if !self.book.dead.is_empty() {
            self.dead.store(self.book.dead.len(), Relaxed);
        }
    }
}

impl<C: core::fmt::Debug> core::fmt::Debug for Memory<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let kept = self.book.lock().records.len(); // before anything is written
        f.debug_struct("Memory").field("clock", &self.clock).field("kept", &kept).finish_non_exhaustive()
    }
}

impl<C: Clock> Engine for Memory<C> {
    type Error = Infallible;
    const LOCAL: bool = true;

    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn is_real_time(&self) -> bool {
        self.clock.is_real_time()
    }

    fn tidy(&self) {
        if self.dead.load(Relaxed) > 0 {
            // The drop of a policy may call the table, and that inner call arrives here, too. The inner call leaves the
            // other policies to this one, so that the calls are not nested, however many policies there are.
            if let Some(burial) = PolicyDropper::begin(self) {
                panics::each(burial, drop);
            }
        }
    }

    // Not `async`, which would move the request one more time.
    #[inline]
    fn acquire(&self, ask: Ask<'_>) -> impl Future<Output = Result<Answer, Fail<Infallible>>> + Send {
        poll_fn(move |_| Poll::Ready(Ok(self.acquire_at_once(&ask))))
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], at: Duration) -> Result<(), Fail<Infallible>> {
        self.renew_at_once(batch, at);
        Ok(())
    }

    async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        at: Duration,
    ) -> Result<Gone, Fail<Infallible>> {
        Ok(self.release_at_once(resource, owner, token, at))
    }

    fn abandon(&self, resource: &Resource, _: &Owner, token: Token) {
        // The operation takes place at the latest instant that a call has seen, because the clock is the user's, and
        // may panic.
        self.at(Duration::ZERO, |book| book.abandon(resource, token));
    }

    async fn release_all(&self, owner: &Owner, at: Duration) -> Result<Vec<Resource>, Fail<Infallible>> {
        Ok(self.at(at, |book| book.release_all(owner)))
    }

    async fn look(&self, resource: &Resource, at: Duration) -> Result<Option<Record>, Fail<Infallible>> {
        Ok(self.at(at, |book| book.find(resource).map(|id| book.record(id, at))))
    }

    async fn owned_by(&self, owner: &Owner, at: Duration) -> Result<Vec<Owned>, Fail<Infallible>> {
        Ok(self.at(at, |book| book.owned_by(owner, at)))
    }

    async fn list(&self, part: Part<'_>) -> Result<Listing, Fail<Infallible>> {
        Ok(self.at(part.at, |book| book.list(&part)))
    }

    async fn sweep(&self, limit: usize, at: Duration) -> Result<usize, Fail<Infallible>> {
        Ok(self.sweep(limit, at))
    }
}

/// An iterator over the policies to be dropped. Only one call at a time drops them: meanwhile
/// [`begin`](PolicyDropper::begin) returns `None` to the others.
struct PolicyDropper<'a, C> {
    memory: &'a Memory<C>,
    batch: Dead,
    is_over: bool,
}

impl<'a, C> PolicyDropper<'a, C> {
    /// Returns `None` if another call is dropping policies.
    fn begin(memory: &'a Memory<C>) -> Option<Self> {
        let mut book = memory.book.lock();
        if core::mem::replace(&mut book.is_dropping_policies, true) {
            return None;
        }
        drop(book);
        Some(PolicyDropper { memory, batch: Dead::new(), is_over: false })
    }
}

impl<C> Iterator for PolicyDropper<'_, C> {
    type Item = Arc<dyn ExpiryPolicy>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty() && !self.is_over {
            let mut book = self.memory.book.lock();
            self.memory.dead.store(0, Relaxed);
            self.batch = core::mem::take(&mut book.dead);
            if self.batch.is_empty() {
                book.is_dropping_policies = false; // under the same lock, so that no policy is left behind
                self.is_over = true;
            }
        }
        self.batch.pop()
    }
}

impl<C> Drop for PolicyDropper<'_, C> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut book = self.memory.book.lock();
            book.is_dropping_policies = false;
            book.dead.append(&mut self.batch);
            self.memory.dead.store(book.dead.len(), Relaxed);
        }
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::ManualClock;
    use crate::{Expiry, engine::Want};

    #[test]
    fn a_token_is_not_given_before_its_time() {
        let memory = Memory::new(ManualClock::new());
        // This is the state after very many tenures in a short time.
        memory.book.lock().last += 3_000;
        let (resource, owner, expiry) = (Resource::from("r"), Owner::named("ann"), Expiry::Never);
        let term = expiry.term();
        let at = Duration::ZERO;
        let ask =
            Ask { resource: &resource, owner: &owner, want: Want::Any, term, expiry: &expiry, waiting: false, at };
        let Answer::Granted { token, .. } = memory.acquire_at_once(&ask) else { panic!("it is free") };
        // The first token of a table that is created now, by this or another process, is greater.
        let next = Memory::new(ManualClock::new());
        let Answer::Granted { token: later, .. } = next.acquire_at_once(&ask) else { panic!("it is free") };
        assert!(later > token);
    }
}
