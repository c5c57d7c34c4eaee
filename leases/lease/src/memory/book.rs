//! The leases, and their indexes by resource, by owner, and by end.

use alloc::{string::ToString, sync::Arc, vec::Vec};
use core::{hash::BuildHasher, time::Duration};

use hashbrown::DefaultHashBuilder;

use crate::{
    Expiry, ExpiryPolicy, Owner, Resource, Term, Token,
    engine::{Answer, Ask, Gone, Left, Listing, Owned, Part, Record, Renewal, Want},
    index::Index,
    slab::Slab,
    wheel::{Links, Nodes, Wheel},
};

/// Custom policies, which must be dropped with no lock held.
pub(super) type Dead = Vec<Arc<dyn ExpiryPolicy>>;

/// The number that stands for no owner, or for no neighbour in an owner's list.
const NONE: u32 = u32::MAX;

/// The largest number of leases that a request for a list looks at. (It first collects the numbers of all leases of the
/// owner, if one is given.) Other calls wait meanwhile.
const LISTED: usize = 1000;

/// The value of [`Lease::unfetched`] once the owner knows of the tenure.
const KNOWN: u32 = u32::MAX;

pub(super) struct Lease {
    pub(super) resource: Resource,
    /// The resource's hash.
    pub(super) hash: u64,
    pub(super) owner: u32,
    pub(super) token: Token,
    pub(super) start: Duration,
    /// The end of the lease; `None` if it never ends.
    pub(super) end: Option<Duration>,
    pub(super) expiry: Expiry,
    /// The number of waiters that were handed this tenure and have not fetched it; `KNOWN` once its owner knows of it.
    pub(super) unfetched: u32,
    pub(super) links: Links,
    /// The neighbours in the list of the owner's leases.
    pub(super) before: u32,
    pub(super) behind: u32,
}

impl Lease {
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    #[inline]
    pub(super) fn extend(&mut self, term: &Term, now: Duration) {
        let Some(end) = self.end else { return };
        self.end = term.end(self.start, now).map(|new| new.max(end));
    }
}

/// An owner that has a lease, or is the [recent](Book::recent) one.
pub(super) struct Holder {
    pub(super) owner: Owner,
    pub(super) first: u32,
}

pub(super) struct Book {
    /// The latest instant that a call has seen.
    pub(super) now: Duration,
    /// The greatest token so far.
    pub(super) last: u64,
    pub(super) token_clock: TokenClock,
    pub(super) hasher: DefaultHashBuilder,
    pub(super) records: Slab<Lease>,
    pub(super) by_resource: Index,
    pub(super) holders: Slab<Holder>,
    pub(super) by_owner: Index,
    /// The owner of the tenure that began last. The owner's entry is kept even without a lease, because the owner may
    /// soon acquire again.
    pub(super) recent: u32,
    pub(super) wheel: Wheel,
    pub(super) dead: Dead,
    /// Whether a call is dropping the policies in `dead`.
    pub(super) is_dropping_policies: bool,
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
    pub(super) fn new() -> Self {
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
            is_dropping_policies: false,
        }
    }

    #[inline]
    pub(super) fn find(&mut self, resource: &Resource) -> Option<u32> {
        self.find_hashed(resource, self.hasher.hash_one(resource))
    }

    /// Returns the lease of a resource if it has not expired, and removes it if it has.
    #[inline]
    pub(super) fn find_hashed(&mut self, resource: &Resource, hash: u64) -> Option<u32> {
        let id = self.by_resource.find(hash, |id| self.records[id].resource == *resource)?;
        if self.records[id].is_over(self.now) {
            self.remove(id);
            return None;
        }
        Some(id)
    }

    #[inline]
    pub(super) fn owner(&self, id: u32) -> &Owner {
        &self.holders[self.records[id].owner].owner
    }

    pub(super) fn record(&self, id: u32, at: Duration) -> Record {
        let lease = &self.records[id];
        Record {
            owner: self.owner(id).clone(),
            token: lease.token,
            held_for: at.saturating_sub(lease.start),
            remaining: lease.end.map(|end| end.saturating_sub(at)),
        }
    }

    pub(super) fn acquire(&mut self, ask: &Ask<'_>) -> Answer {
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
                let lease = &mut self.records[id];
                lease.unfetched = if ask.waiting { lease.unfetched.saturating_add(1) } else { KNOWN };
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

    pub(super) fn granted(&self, id: u32, resumed: bool, at: Duration) -> Answer {
        let lease = &self.records[id];
        Answer::Granted {
            token: lease.token,
            resumed,
            held_for: at.saturating_sub(lease.start),
            remaining: lease.end.map(|end| end.saturating_sub(at)),
        }
    }

    #[inline]
    pub(super) fn begin(&mut self, ask: &Ask<'_>, term: &Term, hash: u64) -> Answer {
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
            unfetched: if ask.waiting { 1 } else { KNOWN },
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

    /// Returns the entry of an owner, and creates it if there is none.
    #[inline]
    pub(super) fn holder(&mut self, owner: &Owner) -> u32 {
        if self.recent != NONE && self.holders[self.recent].owner == *owner {
            return self.recent;
        }
        self.make_recent(owner)
    }

    #[inline(never)]
    pub(super) fn make_recent(&mut self, owner: &Owner) -> u32 {
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

    pub(super) fn replace_policy(&mut self, id: u32, expiry: &Expiry) {
        let lease = &mut self.records[id];
        if lease.expiry != *expiry {
            let old = core::mem::replace(&mut lease.expiry, expiry.clone());
            self.bury(old);
        }
    }

    /// Keeps a policy, whose drop is user code, until the lock has been released.
    pub(super) fn bury(&mut self, expiry: Expiry) {
        if let Expiry::Custom(policy) = expiry {
            self.dead.push(policy);
        }
    }

    pub(super) fn renew(&mut self, renewal: &mut Renewal<'_>, at: Duration) {
        renewal.left = Left::Nothing;
        let Some(id) = self.find(renewal.resource) else { return };
        let lease = &mut self.records[id];
        if lease.token != renewal.token || self.holders[lease.owner].owner != *renewal.owner {
            return;
        }
        lease.unfetched = KNOWN;
        if let Some(term) = &renewal.term {
            lease.extend(term, self.now);
        }
        renewal.left = lease.end.map_or(Left::Forever, |end| Left::For(end.saturating_sub(at)));
    }

    pub(super) fn release(&mut self, resource: &Resource, owner: &Owner, token: Option<Token>) -> Gone {
        let Some(id) = self.find(resource) else { return Gone::NotHeld };
        let lease = &self.records[id];
        let holder = &self.holders[lease.owner].owner;
        if holder != owner || token.is_some_and(|token| token != lease.token) {
            return Gone::NotOwner(holder.clone());
        }
        self.remove(id);
        Gone::Released
    }

    /// Records that a waiter that was handed this tenure has been dropped before it fetched the grant. Ends the tenure
    /// if it was the last such waiter and the owner does not know of the tenure.
    pub(super) fn abandon(&mut self, resource: &Resource, token: Token) {
        let Some(id) = self.find(resource) else { return };
        let lease = &mut self.records[id];
        if lease.token == token && lease.unfetched != KNOWN {
            lease.unfetched -= 1;
            if lease.unfetched == 0 {
                self.remove(id);
            }
        }
    }

    /// Returns the first lease in the list of an owner.
    pub(super) fn first_of(&self, owner: &Owner) -> u32 {
        let found = self.by_owner.find(self.hasher.hash_one(owner), |id| self.holders[id].owner == *owner);
        found.map_or(NONE, |id| self.holders[id].first)
    }

    pub(super) fn release_all(&mut self, owner: &Owner) -> Vec<Resource> {
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

    pub(super) fn owned_by(&mut self, owner: &Owner, at: Duration) -> Vec<Owned> {
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

    /// Returns a page of the leases, in the order of their numbers, which stay the same. The cursor is the last number
    /// that was looked at.
    pub(super) fn list(&mut self, part: &Part<'_>) -> Listing {
        let from = match part.after.map(str::parse::<u32>) {
            None => 0,
            Some(Ok(last)) => last.saturating_add(1),
            Some(Err(_)) => return Listing::UnknownCursor,
        };
        let ids = match part.owner {
            Some(owner) => self.ids_of(owner, from),
            None => self.records.ids_from(from).take(LISTED).collect(),
        };
        let (mut leases, mut last) = (Vec::new(), None);
        for &id in &ids {
            if leases.len() == part.limit {
                break;
            }
            last = Some(id);
            let lease = &self.records[id];
            if !lease.is_over(self.now) && lease.resource.entity().starts_with(part.entity_prefix) {
                leases.push((lease.resource.clone(), self.record(id, part.at)));
            }
        }
        // A page that ends with the last lease of all is followed by one without leases.
        Listing::Page { leases, next: last.map(|last| last.to_string()) }
    }

    /// Returns the numbers of an owner's leases from the number `from` on, in order, but no more than [`LISTED`].
    fn ids_of(&self, owner: &Owner, from: u32) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut next = self.first_of(owner);
        while next != NONE {
            ids.extend((next >= from).then_some(next));
            next = self.records[next].behind;
        }
        ids.sort_unstable();
        ids.truncate(LISTED);
        ids
    }

    /// Takes an expired lease out of the wheel, and returns it.
    #[inline]
    pub(super) fn pop_due(&mut self, thorough: bool, work: &mut u32) -> Option<u32> {
        let Book { wheel, records, now, .. } = self;
        wheel.pop_due(records, *now, thorough, work)
    }

    /// Removes a lease, and its owner's entry if this was the owner's last lease, unless the owner is the recent one.
    pub(super) fn remove(&mut self, id: u32) {
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

    /// Removes an owner's entry if the owner has no lease.
    pub(super) fn forget_idle(&mut self, id: u32) {
        let Book { hasher, holders, by_owner, .. } = self;
        if holders[id].first == NONE {
            let hash = |id: u32| hasher.hash_one(&holders[id].owner);
            by_owner.remove(hash(id), id, hash);
            holders.remove(id);
        }
    }
}

/// The clock that limits tokens, in microseconds since 1970: the system's time when the table was created, continued by
/// a monotonic clock.
///
/// A token greater than the clock's time could also be greater than the first token of the next process, if that
/// process started soon enough. Usually tokens are far behind the time, so the clock is rarely read.
pub(super) struct TokenClock {
    /// The latest time that was read from the clock; it is not in the future.
    passed: u64,
    #[cfg(feature = "std")]
    start: (u64, std::time::Instant),
}

#[cfg(feature = "std")]
impl TokenClock {
    pub(super) fn new() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let passed = u64::try_from(since.as_micros()).unwrap_or(0);
        TokenClock { passed, start: (passed, std::time::Instant::now()) }
    }

    #[inline]
    pub(super) fn wait_for(&mut self, token: u64) {
        if token > self.passed {
            self.read_until(token);
        }
    }

    #[cold]
    pub(super) fn read_until(&mut self, token: u64) {
        while token > self.passed {
            let (start, at) = self.start;
            self.passed = start.saturating_add(u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX));
            core::hint::spin_loop();
        }
    }
}

/// Without the system's time, tokens are merely counted.
#[cfg(not(feature = "std"))]
impl TokenClock {
    pub(super) fn new() -> Self {
        TokenClock { passed: 0 }
    }

    #[inline]
    pub(super) fn wait_for(&mut self, _: u64) {}
}
