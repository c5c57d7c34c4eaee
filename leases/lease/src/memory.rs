//! The engine in this process.
//!
//! A record for each lease, found by its resource through a hash table, and by its owner through a list. Whether a lease has
//! expired is decided by comparing its end with the clock, whenever somebody looks: nothing has to happen at the end. The
//! [wheel](crate::wheel) only says which records can be forgotten, and each call forgets a few.
//!
//! All of it is behind one lock, so that an operation happens at one instant, `release_all` included; and that instant is the
//! latest that any call before it has seen, so that time goes forward for all of them together. No user code runs under the
//! lock: the clock is read before, and a policy that goes with a record is dropped behind it.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    convert::Infallible,
    future::{Future, poll_fn},
    hash::BuildHasher,
    ops::DerefMut,
    task::Poll,
    time::Duration,
};

use hashbrown::DefaultHashBuilder;

#[cfg(feature = "std")]
use crate::StdClock;
use crate::{
    Clock, Expiry, ExpiryPolicy, Owner, Resource, Term, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Owned, Record, Renewal, Want},
    index::Index,
    panics,
    slab::Slab,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    wheel::{Links, Nodes, Wheel},
};

/// How many records a call looks at in passing, to forget those that have expired. A record is looked at once for each
/// level of the wheel that it goes through, and once when it is forgotten, so more than it has levels in use is enough.
const IN_PASSING: u32 = 8;

/// How many records are forgotten at a time: others get at the lock in between.
const BATCH: usize = 32;

macro_rules! memory {
    ($($default:tt)*) => {
        /// Leases in the memory of this process.
        ///
        /// Tokens grow over all resources. With the feature `std` the first is the system's time in microseconds since 1970, and no token
        /// is given before the time that it stands for has come: so they go on growing when the process starts anew, however much was
        /// leased before, unless the system's clock was set back meanwhile. (A table that begins more than a million tenures in each
        /// second since it was made waits for its clock, up to a microsecond for each.) Without `std` the first token is 1, and
        /// tokens begin again with the process.
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
            /// How many policies are to be dropped, as far as is known without the lock.
            dead: AtomicUsize,
        }
    };
}

#[cfg(feature = "std")]
memory!(= StdClock);
#[cfg(not(feature = "std"))]
memory!();

impl<C: Clock> Memory<C> {
    /// Without any lease.
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

    /// The clock that was given.
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

    /// A little of what can be forgotten is, and then one operation is done, at one instant.
    #[inline]
    fn at<R>(&self, at: Duration, operation: impl FnOnce(&mut Book) -> R) -> R {
        let mut gone = Vec::new(); // their memory is given back behind the lock
        let mut book = Opened { book: self.book.lock(), dead: &self.dead };
        let book = &mut *book.book;
        book.now = book.now.max(at);
        let mut work = IN_PASSING;
        while let Some(id) = book.pop_due(false, &mut work) {
            gone.push(book.records[id].resource.clone());
            book.remove(id);
        }
        operation(book) // last, so that its result is made where it is wanted
    }

    // Without the future around them, these three are compiled once, and it is short wherever it is inlined.

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

    /// Forgets up to so many that have expired.
    fn sweep(&self, limit: usize, at: Duration) -> usize {
        let mut swept = 0;
        let mut gone = Vec::with_capacity(BATCH.min(limit)); // as above
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

    /// How many leases are kept, those that have expired and not been forgotten included.
    pub(crate) fn kept(&self) -> usize {
        self.book.lock().records.len()
    }

    /// When the next lease expires, by the clock.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        let mut book = self.book.lock();
        let Book { wheel, records, .. } = &mut **book;
        wheel.next_due(records)
    }
}

/// The book while it is locked. At the end the dead are counted.
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
            // The drop of a policy that calls the table comes here again, and leaves the rest to the call that is here already:
            // so they are not nested, however many there are.
            if let Some(burial) = Burial::begin(self) {
                panics::each(burial, drop);
            }
        }
    }

    // Not `async`, which would move the question once more.
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

    async fn release_all(&self, owner: &Owner, at: Duration) -> Result<Vec<Resource>, Fail<Infallible>> {
        Ok(self.at(at, |book| book.release_all(owner)))
    }

    async fn look(&self, resource: &Resource, at: Duration) -> Result<Option<Record>, Fail<Infallible>> {
        Ok(self.at(at, |book| book.find(resource).map(|id| book.record(id, at))))
    }

    async fn owned_by(&self, owner: &Owner, at: Duration) -> Result<Vec<Owned>, Fail<Infallible>> {
        Ok(self.at(at, |book| book.owned_by(owner, at)))
    }

    async fn sweep(&self, limit: usize, at: Duration) -> Result<usize, Fail<Infallible>> {
        Ok(self.sweep(limit, at))
    }
}

/// What must be dropped where no lock is held: the policies of users.
type Dead = Vec<Arc<dyn ExpiryPolicy>>;

/// The policies that are to be dropped, until there are none. One call at a time has them.
struct Burial<'a, C> {
    memory: &'a Memory<C>,
    batch: Dead,
    is_over: bool,
}

impl<'a, C> Burial<'a, C> {
    /// `None`: another call has them.
    fn begin(memory: &'a Memory<C>) -> Option<Self> {
        let mut book = memory.book.lock();
        if core::mem::replace(&mut book.is_burying, true) {
            return None;
        }
        drop(book);
        Some(Burial { memory, batch: Dead::new(), is_over: false })
    }
}

impl<C> Iterator for Burial<'_, C> {
    type Item = Arc<dyn ExpiryPolicy>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty() && !self.is_over {
            let mut book = self.memory.book.lock();
            self.memory.dead.store(0, Relaxed);
            self.batch = core::mem::take(&mut book.dead);
            if self.batch.is_empty() {
                book.is_burying = false; // under the same lock, so that nothing is left behind
                self.is_over = true;
            }
        }
        self.batch.pop()
    }
}

impl<C> Drop for Burial<'_, C> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut book = self.memory.book.lock();
            book.is_burying = false;
            book.dead.append(&mut self.batch);
            self.memory.dead.store(book.dead.len(), Relaxed);
        }
    }
}

/// No owner, or none before or behind in an owner's list.
const NONE: u32 = u32::MAX;

struct Lease {
    resource: Resource,
    /// Of the resource.
    hash: u64,
    owner: u32,
    token: Token,
    start: Duration,
    /// `None`: it never ends.
    end: Option<Duration>,
    expiry: Expiry,
    links: Links,
    /// In the list of its owner's leases.
    before: u32,
    behind: u32,
}

impl Lease {
    fn is_over(&self, now: Duration) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    #[inline]
    fn extend(&mut self, term: &Term, now: Duration) {
        let Some(end) = self.end else { return };
        self.end = term.end(self.start, now).map(|new| new.max(end));
    }
}

/// Somebody who has a lease.
struct Holder {
    owner: Owner,
    first: u32,
}

struct Book {
    /// The latest instant that a call has seen.
    now: Duration,
    /// The greatest token so far.
    last: u64,
    token_clock: TokenClock,
    hasher: DefaultHashBuilder,
    records: Slab<Lease>,
    by_resource: Index,
    holders: Slab<Holder>,
    by_owner: Index,
    /// The owner who came last. It is kept even if it has no lease, for it may come again soon.
    recent: u32,
    wheel: Wheel,
    dead: Dead,
    /// Whether a call is dropping them.
    is_burying: bool,
}

impl Nodes for Slab<Lease> {
    fn links(&mut self, id: u32) -> &mut Links {
        &mut self[id].links
    }

    fn due(&self, id: u32) -> Option<Duration> {
        self[id].end
    }
}

impl Book {
    fn new() -> Self {
        let token_clock = TokenClock::new();
        Book {
            now: Duration::ZERO,
            last: token_clock.passed,
            token_clock,
            hasher: DefaultHashBuilder::default(),
            records: Slab::new(),
            by_resource: Index::new(),
            holders: Slab::new(),
            by_owner: Index::new(),
            recent: NONE,
            wheel: Wheel::new(),
            dead: Dead::new(),
            is_burying: false,
        }
    }

    #[inline]
    fn find(&mut self, resource: &Resource) -> Option<u32> {
        self.find_hashed(resource, self.hasher.hash_one(resource))
    }

    /// The lease of a resource, if it has not expired. If it has, it is forgotten.
    #[inline]
    fn find_hashed(&mut self, resource: &Resource, hash: u64) -> Option<u32> {
        let id = self.by_resource.find(hash, |id| self.records[id].resource == *resource)?;
        if self.records[id].is_over(self.now) {
            self.remove(id);
            return None;
        }
        Some(id)
    }

    #[inline]
    fn owner(&self, id: u32) -> &Owner {
        &self.holders[self.records[id].owner].owner
    }

    fn record(&self, id: u32, at: Duration) -> Record {
        let lease = &self.records[id];
        Record {
            owner: self.owner(id).clone(),
            token: lease.token,
            held_for: at.saturating_sub(lease.start),
            remaining: lease.end.map(|end| end.saturating_sub(at)),
        }
    }

    fn acquire(&mut self, ask: &Ask<'_>) -> Answer {
        let hash = self.hasher.hash_one(ask.resource);
        let Some(id) = self.find_hashed(ask.resource, hash) else {
            return match (ask.want, &ask.term) {
                (Want::Mine, _) | (_, None) => Answer::Free,
                (_, Some(term)) => self.begin(ask, term, hash),
            };
        };
        let is_mine = self.owner(id) == ask.owner;
        match (ask.want, &ask.term) {
            (Want::Any | Want::Mine, term) if is_mine => {
                if let Some(term) = term {
                    self.replace_policy(id, ask.expiry);
                    self.records[id].extend(term, self.now);
                }
                self.granted(id, true, ask.at)
            }
            (Want::Fresh, Some(term)) if is_mine => {
                self.remove(id);
                self.begin(ask, term, hash)
            }
            _ => {
                let Record { owner, remaining, .. } = self.record(id, ask.at);
                Answer::Busy { owner, remaining }
            }
        }
    }

    fn granted(&self, id: u32, resumed: bool, at: Duration) -> Answer {
        let lease = &self.records[id];
        Answer::Granted {
            token: lease.token,
            resumed,
            held_for: at.saturating_sub(lease.start),
            remaining: lease.end.map(|end| end.saturating_sub(at)),
        }
    }

    #[inline]
    fn begin(&mut self, ask: &Ask<'_>, term: &Term, hash: u64) -> Answer {
        self.last += 1;
        self.token_clock.wait_for(self.last);
        let Some(token) = Token::new(self.last) else { unreachable!("it has grown") };
        let start = self.now;
        let end = term.end(start, start);
        let owner = self.holder(ask.owner);
        let first = self.holders[owner].first;
        let id = self.records.insert_with(|| Lease {
            resource: ask.resource.clone(),
            hash,
            owner,
            token,
            start,
            end,
            expiry: ask.expiry.clone(),
            links: Links::new(),
            before: NONE,
            behind: first,
        });
        if first != NONE {
            self.records[first].before = id;
        }
        self.holders[owner].first = id;
        let Book { records, by_resource, wheel, .. } = self;
        by_resource.insert(hash, id, |id| records[id].hash);
        wheel.insert(records, id);
        Answer::Granted {
            token,
            resumed: false,
            held_for: Duration::ZERO,
            remaining: end.map(|end| end.saturating_sub(ask.at)),
        }
    }

    /// The entry of an owner, which is made if there is none.
    #[inline]
    fn holder(&mut self, owner: &Owner) -> u32 {
        if self.recent != NONE && self.holders[self.recent].owner == *owner {
            return self.recent;
        }
        self.make_recent(owner)
    }

    #[inline(never)]
    fn make_recent(&mut self, owner: &Owner) -> u32 {
        let Book { hasher, holders, by_owner, recent, .. } = self;
        let hash = hasher.hash_one(owner);
        let id = by_owner.find(hash, |id| holders[id].owner == *owner).unwrap_or_else(|| {
            let id = holders.insert(Holder { owner: owner.clone(), first: NONE });
            by_owner.insert(hash, id, |id| hasher.hash_one(&holders[id].owner));
            id
        });
        let before = core::mem::replace(recent, id);
        if before != NONE {
            self.forget_idle(before);
        }
        id
    }

    fn replace_policy(&mut self, id: u32, expiry: &Expiry) {
        let lease = &mut self.records[id];
        if lease.expiry != *expiry {
            let old = core::mem::replace(&mut lease.expiry, expiry.clone());
            self.bury(old);
        }
    }

    /// Keeps what is the user's until the lock is free.
    fn bury(&mut self, expiry: Expiry) {
        if let Expiry::Custom(policy) = expiry {
            self.dead.push(policy);
        }
    }

    fn renew(&mut self, renewal: &mut Renewal<'_>, at: Duration) {
        renewal.left = Left::Nothing;
        let Some(id) = self.find(renewal.resource) else { return };
        let lease = &mut self.records[id];
        if lease.token != renewal.token || self.holders[lease.owner].owner != *renewal.owner {
            return;
        }
        if let Some(term) = &renewal.term {
            lease.extend(term, self.now);
        }
        renewal.left = lease.end.map_or(Left::Forever, |end| Left::For(end.saturating_sub(at)));
    }

    fn release(&mut self, resource: &Resource, owner: &Owner, token: Option<Token>) -> Gone {
        let Some(id) = self.find(resource) else { return Gone::NotHeld };
        let lease = &self.records[id];
        let holder = &self.holders[lease.owner].owner;
        if holder != owner || token.is_some_and(|token| token != lease.token) {
            return Gone::NotOwner(holder.clone());
        }
        self.remove(id);
        Gone::Released
    }

    /// The first lease of an owner; which others there are its list says.
    fn first_of(&self, owner: &Owner) -> u32 {
        let found = self.by_owner.find(self.hasher.hash_one(owner), |id| self.holders[id].owner == *owner);
        found.map_or(NONE, |id| self.holders[id].first)
    }

    fn release_all(&mut self, owner: &Owner) -> Vec<Resource> {
        let mut released = Vec::new();
        let mut next = self.first_of(owner);
        while next != NONE {
            let id = next;
            let lease = &self.records[id];
            next = lease.behind;
            if !lease.is_over(self.now) {
                released.push(lease.resource.clone());
            }
            self.remove(id);
        }
        released
    }

    fn owned_by(&mut self, owner: &Owner, at: Duration) -> Vec<Owned> {
        let mut owned = Vec::new();
        let mut next = self.first_of(owner);
        while next != NONE {
            let id = next;
            let lease = &self.records[id];
            next = lease.behind;
            if lease.is_over(self.now) {
                self.remove(id);
            } else {
                let (resource, expiry) = (lease.resource.clone(), Some(lease.expiry.clone()));
                owned.push(Owned { resource, record: self.record(id, at), expiry });
            }
        }
        owned
    }

    /// A lease that has expired and is out of the wheel.
    #[inline]
    fn pop_due(&mut self, thorough: bool, work: &mut u32) -> Option<u32> {
        let Book { wheel, records, now, .. } = self;
        wheel.pop_due(records, *now, thorough, work)
    }

    /// Forgets a lease, and its owner if it was the last.
    fn remove(&mut self, id: u32) {
        let Book { wheel, records, by_resource, holders, .. } = self;
        wheel.remove(records, id);
        by_resource.remove(records[id].hash, id, |id| records[id].hash);
        let lease = &mut records[id];
        let (owner, before, behind) = (lease.owner, lease.before, lease.behind);
        let expiry = core::mem::replace(&mut lease.expiry, Expiry::Never);
        records.forget(id);
        if behind != NONE {
            records[behind].before = before;
        }
        if before != NONE {
            records[before].behind = behind;
        } else {
            holders[owner].first = behind;
            if owner != self.recent {
                self.forget_idle(owner);
            }
        }
        self.bury(expiry);
    }

    /// Forgets an owner who has nothing.
    fn forget_idle(&mut self, id: u32) {
        let Book { hasher, holders, by_owner, .. } = self;
        if holders[id].first == NONE {
            let hash = |id: u32| hasher.hash_one(&holders[id].owner);
            by_owner.remove(hash(id), id, hash);
            holders.remove(id);
        }
    }
}

/// The time that tokens stand for: the system's, in microseconds since 1970, as it was when the table was made, and from then on
/// by a clock that is not set.
///
/// A token that is greater than the time would be greater than the first of the next process, too, if that starts soon enough. Mostly
/// tokens are far behind, and the clock is read once in very many tenures.
struct TokenClock {
    /// A time that has passed.
    passed: u64,
    #[cfg(feature = "std")]
    start: (u64, std::time::Instant),
}

#[cfg(feature = "std")]
impl TokenClock {
    fn new() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let passed = u64::try_from(since.as_micros()).unwrap_or(0);
        TokenClock { passed, start: (passed, std::time::Instant::now()) }
    }

    #[inline]
    fn wait_for(&mut self, token: u64) {
        if token > self.passed {
            self.read_until(token);
        }
    }

    #[cold]
    fn read_until(&mut self, token: u64) {
        while token > self.passed {
            let (start, at) = self.start;
            self.passed = start.saturating_add(u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX));
            core::hint::spin_loop();
        }
    }
}

/// Without the system's time there is nothing to wait for.
#[cfg(not(feature = "std"))]
impl TokenClock {
    fn new() -> Self {
        TokenClock { passed: 0 }
    }

    #[inline]
    fn wait_for(&mut self, _: u64) {}
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[test]
    fn a_token_is_not_given_before_its_time() {
        let memory = Memory::new(ManualClock::new());
        // As after very many tenures in a short time.
        memory.book.lock().last += 3_000;
        let (resource, owner, expiry) = (Resource::from("r"), Owner::named("ann"), Expiry::Never);
        let term = expiry.term();
        let at = Duration::ZERO;
        let ask =
            Ask { resource: &resource, owner: &owner, want: Want::Any, term, expiry: &expiry, waiting: false, at };
        let Answer::Granted { token, .. } = memory.acquire_at_once(&ask) else { panic!("it is free") };
        // The first token of a table that is made now, by this or another process, is greater.
        let next = Memory::new(ManualClock::new());
        let Answer::Granted { token: deferred, .. } = next.acquire_at_once(&ask) else { panic!("it is free") };
        assert!(deferred > token);
    }
}
