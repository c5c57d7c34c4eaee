//! The book in which a model records its requests: the holds that the threads and tasks requested, and the times when
//! they acquired them.
//!
//! A time is a position in the order of the records. A record that is written after a call has returned describes an
//! event that happened a little earlier; one that is written before a call describes an event that happens a little
//! later. The checks below are valid wherever in between the event happened.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use keylatch::{Fairness, Status, WaitEvent, WaitId, WaitMode, WaitPhase};

use crate::spec::Want;

/// The state of a request.
#[derive(Clone, Copy, Debug)]
struct Request {
    key: u64,
    want: Want,
    /// The time of the record that was written before the first poll or the attempt.
    asked: u64,
    /// The time of the record that was written after the first poll, if the request had to wait.
    queued: Option<u64>,
    entered: Option<u64>,
    /// Whether the request acquired its hold without waiting.
    at_once: bool,
    /// The time when it was recorded that the request had acquired its hold, or had ended without one.
    swept: Option<u64>,
    live: bool,
}

/// The holders in the critical section of a key.
#[derive(Clone, Copy, Default, Debug)]
struct Inside {
    readers: usize,
    upgradable: usize,
    writers: usize,
    permits: usize,
}

impl Inside {
    fn count(&mut self, want: Want) -> &mut usize {
        match want {
            Want::Read | Want::Recursive => &mut self.readers,
            Want::Upgradable => &mut self.upgradable,
            Want::Write | Want::Upgrade => &mut self.writers,
            Want::Permits(_) => &mut self.permits,
        }
    }

    fn check(&self, permits: usize) {
        assert!(self.writers + self.upgradable <= 1, "incompatible holders: {self:?}");
        assert!(self.writers == 0 || self.readers == 0, "incompatible holders: {self:?}");
        assert!(self.permits <= permits, "more permits are held than exist: {self:?}");
    }
}

#[derive(Default)]
struct Pages {
    now: u64,
    requests: Vec<Request>,
    inside: BTreeMap<u64, Inside>,
}

impl Pages {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }
}

/// The records of a model. They use a lock that is hidden from shuttle, because accesses to a book are not steps of the
/// model.
pub struct Book {
    fairness: Fairness,
    permits: usize,
    pages: Mutex<Pages>,
    /// The waits of which the table's observer has seen the start, but not the end.
    waits: Mutex<HashMap<WaitId, WaitMode>>,
}

/// The index of a request in the book.
pub type Number = usize;

impl Book {
    pub fn new(fairness: Fairness, permits: usize) -> Arc<Book> {
        Arc::new(Book { fairness, permits, pages: Mutex::default(), waits: Mutex::default() })
    }

    /// Returns an observer for the table, which records in this book the start and the end of each wait.
    pub fn observer<K>(self: &Arc<Self>) -> impl Fn(&WaitEvent<'_, K>) + Send + Sync + use<K> {
        let book = Arc::clone(self);
        move |event| {
            let mut waits = book.waits.lock().unwrap_or_else(PoisonError::into_inner);
            match event.phase() {
                WaitPhase::Started => assert_eq!(waits.insert(event.id(), event.mode()), None, "a wait started twice"),
                _ => assert_eq!(waits.remove(&event.id()), Some(event.mode()), "a wait ended that had not begun"),
            }
        }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, key: u64, want: Want) -> Number {
        let mut pages = self.pages();
        let asked = pages.tick();
        pages.requests.push(Request {
            key,
            want,
            asked,
            queued: None,
            entered: None,
            at_once: false,
            swept: None,
            live: true,
        });
        pages.requests.len() - 1
    }

    fn queued(&self, number: Number) {
        let mut pages = self.pages();
        let now = pages.tick();
        pages.requests[number].queued = Some(now);
    }

    /// Records that the holder is inside. An upgrade releases the place of its upgradable hold.
    fn entered(&self, number: Number, at_once: bool, upgraded: Option<Number>) {
        let mut pages = self.pages();
        let now = pages.tick();
        let request = &mut pages.requests[number];
        (request.entered, request.swept, request.at_once) = (Some(now), Some(now), at_once);
        let Request { key, want, .. } = *request;
        let inside = pages.inside.entry(key).or_default();
        if let Some(upgraded) = upgraded {
            inside.upgradable -= 1;
            pages.requests[upgraded].live = false;
        }
        let inside = pages.inside.entry(key).or_default();
        *inside.count(want) += want.weight();
        inside.check(self.permits);
    }

    fn given_up(&self, number: Number) {
        let mut pages = self.pages();
        let now = pages.tick();
        pages.requests[number].swept = Some(now);
        pages.requests[number].live = false;
    }

    /// Records that the holder is about to release.
    fn leaving(&self, number: Number, held: Want) {
        let mut pages = self.pages();
        let key = pages.requests[number].key;
        *pages.inside.entry(key).or_default().count(held) -= held.weight();
    }

    fn left(&self, number: Number) {
        self.pages().requests[number].live = false;
    }

    /// Records that the hold is about to be replaced by a weaker one.
    fn weakening(&self, number: Number, from: Want, to: Want) {
        self.leaving(number, from);
        let mut pages = self.pages();
        let key = pages.requests[number].key;
        *pages.inside.entry(key).or_default().count(to) += to.weight();
    }

    /// Records an attempt: a request that is settled when the call returns.
    pub fn tried<G>(self: &Arc<Self>, key: u64, want: Want, attempt: impl FnOnce() -> Option<G>) -> Option<Held<G>> {
        let number = self.ask(key, want);
        match attempt() {
            Some(guard) => {
                self.entered(number, true, None);
                Some(Held { book: Arc::clone(self), key, number, want, base: None, guard: Some(guard) })
            }
            None => {
                self.given_up(number);
                None
            }
        }
    }

    /// Records a request by a future that yields a guard.
    pub fn asked<F: Future>(self: &Arc<Self>, key: u64, want: Want, future: F) -> Asked<F, F::Output, ()> {
        let mut asked = self.asked_until(key, want, future, Ok);
        asked.limited = false;
        asked
    }

    /// Records a request by a future whose output may contain a guard; `sort` decides whether it does.
    pub fn asked_until<F: Future, G, R>(
        self: &Arc<Self>,
        key: u64,
        want: Want,
        future: F,
        sort: fn(F::Output) -> Result<G, R>,
    ) -> Asked<F, G, R> {
        let book = Arc::clone(self);
        let (upgrades, future) = (Upgrades::Nothing, Some(Box::pin(future)));
        Asked { book, key, want, number: None, upgrades, limited: true, future, sort }
    }

    /// Checks that a status is consistent.
    pub fn look(&self, status: Option<Status>) {
        let Some(status) = status else { return };
        let inside = Inside {
            readers: status.readers(),
            upgradable: status.upgradable(),
            writers: status.writers(),
            permits: status.permits(),
        };
        inside.check(self.permits);
        assert!(
            status.waiting_upgrades() <= status.upgradable(),
            "an upgrade waits without an upgradable reader: {status:?}"
        );
    }

    /// Checks the book when all calls have ended. Returns the largest number of times that a request at the head was
    /// passed.
    pub fn close(&self) -> usize {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(waits.is_empty(), "a wait never ended");
        let pages = self.pages();
        assert!(pages.requests.iter().all(|request| !request.live), "a request never ended");
        let keys: Vec<u64> = pages.inside.keys().copied().collect();
        let mut most = 0;
        for key in keys {
            let requests: Vec<_> = pages.requests.iter().filter(|request| request.key == key).copied().collect();
            for request in requests.iter().filter(|request| request.queued.is_some()) {
                most = most.max(self.check(request, &requests));
            }
        }
        most
    }

    /// Checks the record of one request that waited. Returns the number of its bypasses.
    fn check(&self, request: &Request, all: &[Request]) -> usize {
        let (Some(queued), Some(entered)) = (request.queued, request.entered) else { return 0 };
        let before = |other: &&Request| other.entered.is_some_and(|other| other < entered);
        let writes = |want| matches!(want, Want::Write | Want::Upgrade);
        // Under `Fifo`, incompatible requests enter in order of arrival, except that upgrades come before all others.
        if self.fairness == Fairness::Fifo && request.want != Want::Upgrade {
            let overtaken = all.iter().filter(before).find(|other| {
                let together = match (request.want, other.want) {
                    (Want::Permits(mine), Want::Permits(its)) => (mine + its) as usize <= self.permits,
                    (Want::Upgradable, Want::Upgradable) => false,
                    (mine, its) => !writes(mine) && !writes(its),
                };
                other.asked > queued && other.want != Want::Upgrade && !together
            });
            assert!(overtaken.is_none(), "{overtaken:?} overtook {request:?}");
        }
        let bound = match self.fairness {
            Fairness::Bounded(bound) => usize::from(bound),
            Fairness::Adaptive => usize::MAX,
            _ => return self.passes(request, all),
        };
        // A reader is admitted when the first writer leaves. That writer passed it, or was already inside.
        if request.want == Want::Read {
            let writers = all
                .iter()
                .filter(before)
                .filter(|other| writes(other.want) && other.entered.is_some_and(|entered| entered > queued))
                .count();
            assert!(writers <= 1, "{writers} writers entered before a reader that waited, {request:?}");
        }
        let passes = self.passes(request, all);
        assert!(
            passes <= bound,
            "{passes} entered before {request:?}, and only {bound} may:\n{}",
            all.iter().map(|r| format!("{r:?}\n")).collect::<String>()
        );
        passes
    }

    /// Returns the number of later requests that acquired the key before this one while it was at the head, and kept it
    /// out.
    fn passes(&self, request: &Request, all: &[Request]) -> usize {
        let (Some(queued), Some(entered)) = (request.queued, request.entered) else { return 0 };
        // The time by which every request that may have been before this one had entered or given up. An upgrade comes
        // before all others.
        let ahead = all.iter().filter(|other| other.asked < queued && other.asked != request.asked);
        let ahead = ahead.filter(|other| other.want != Want::Upgrade && request.want != Want::Upgrade);
        let head = ahead.map(|other| other.swept.unwrap_or(u64::MAX)).max().unwrap_or(0).max(queued);
        let passed = all.iter().filter(|other| {
            let keeps_out = match (request.want, other.want) {
                (_, Want::Upgrade) => false,
                // Requests that waited were admitted together with others when a writer left.
                (_, Want::Read | Want::Upgradable) if !other.at_once => false,
                (Want::Read, Want::Read | Want::Upgradable) | (Want::Upgradable, Want::Read) => false,
                // These exclude each other for certain, whatever else is held.
                (Want::Permits(mine), Want::Permits(its)) => (mine + its) as usize > self.permits,
                _ => true,
            };
            keeps_out && other.asked > head && other.entered.is_some_and(|other| other < entered)
        });
        passed.count()
    }
}

/// A recorded hold.
pub struct Held<G> {
    book: Arc<Book>,
    key: u64,
    number: Number,
    want: Want,
    /// The upgradable hold to which this hold falls back.
    base: Option<Number>,
    guard: Option<G>,
}

impl<G> Held<G> {
    pub fn key(&self) -> u64 {
        self.key
    }

    pub fn guard(&mut self) -> &mut G {
        self.guard.as_mut().expect("the guard goes with the hold")
    }

    /// Releases the hold in a way other than a drop.
    pub fn release(mut self, release: impl FnOnce(G)) {
        self.book.leaving(self.number, self.want);
        release(self.guard.take().expect("the guard goes with the hold"));
        self.book.left(self.number);
    }

    /// Splits off `part` of its permits.
    pub fn split(&mut self, part: u32, split: impl FnOnce(&mut G) -> Option<G>) -> Option<Held<G>> {
        let Want::Permits(n) = self.want else { return None };
        let guard = split(self.guard())?;
        self.want = Want::Permits(n - part);
        let book = Arc::clone(&self.book);
        let want = Want::Permits(part);
        Some(Held { book, key: self.key, number: self.number, want, base: None, guard: Some(guard) })
    }

    pub fn weaken<H>(mut self, to: Want, weaken: impl FnOnce(G) -> H) -> Held<H> {
        self.book.weakening(self.number, self.want, to);
        let guard = weaken(self.guard.take().expect("the guard goes with the hold"));
        Held {
            book: Arc::clone(&self.book),
            key: self.key,
            number: self.number,
            want: to,
            base: None,
            guard: Some(guard),
        }
    }

    /// Records an attempt to upgrade.
    pub fn try_upgrade<H>(mut self, attempt: impl FnOnce(G) -> Result<H, G>) -> Result<Held<H>, Self> {
        let number = self.book.ask(self.key, Want::Upgrade);
        match attempt(self.guard.take().expect("the guard goes with the hold")) {
            Ok(guard) => {
                self.book.entered(number, true, Some(self.number));
                let book = Arc::clone(&self.book);
                Ok(Held { book, key: self.key, number, want: Want::Write, base: None, guard: Some(guard) })
            }
            Err(guard) => {
                self.book.given_up(number);
                self.guard = Some(guard);
                Err(self)
            }
        }
    }

    /// Records an upgrade by a future that owns the guard.
    pub fn upgrade<F: Future, H, R>(
        mut self,
        upgrade: impl FnOnce(G) -> F,
        sort: fn(F::Output) -> Result<H, R>,
    ) -> Asked<F, H, R> {
        let future = upgrade(self.guard.take().expect("the guard goes with the hold"));
        let mut asked = self.book.asked_until(self.key, Want::Upgrade, future, sort);
        asked.upgrades = Upgrades::Owned(self.number);
        asked
    }

    /// Records an upgrade by a future that returns the guard when it gives up.
    pub async fn upgrade_until<F: Future, H>(
        self,
        upgrade: impl FnOnce(G) -> F,
        sort: fn(F::Output) -> Result<H, G>,
    ) -> Result<Held<H>, Self> {
        let (book, key, number, want) = (Arc::clone(&self.book), self.key, self.number, self.want);
        let upgraded = self.upgrade(upgrade, sort).await;
        upgraded.map_err(|guard| Held { book, key, number, want, base: None, guard: Some(guard) })
    }

    /// Records an upgrade by a future that borrows the guard.
    pub fn upgrade_mut<'g, F: Future>(&'g mut self, upgrade: impl FnOnce(&'g mut G) -> F) -> Asked<F, F::Output, ()> {
        let (book, key, number) = (Arc::clone(&self.book), self.key, self.number);
        let mut asked = book.asked(key, Want::Upgrade, upgrade(self.guard()));
        asked.upgrades = Upgrades::Borrowed(number);
        asked
    }
}

impl<G> Drop for Held<G> {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        match self.base {
            Some(base) => {
                self.book.weakening(self.number, self.want, Want::Upgradable);
                self.book.pages().requests[base].live = true;
            }
            None => self.book.leaving(self.number, self.want),
        }
        drop(guard);
        self.book.left(self.number);
    }
}

/// The hold that an upgrade replaces.
#[derive(Clone, Copy)]
enum Upgrades {
    Nothing,
    /// A hold that is lost with the future.
    Owned(Number),
    /// A hold that remains.
    Borrowed(Number),
}

/// The future of a request, recorded from its first poll on.
pub struct Asked<F: Future, G, R> {
    book: Arc<Book>,
    key: u64,
    want: Want,
    number: Option<Number>,
    upgrades: Upgrades,
    /// Whether one poll may make more than one attempt, as that of a future with a limit does. Such a request may wait
    /// without the model's knowledge.
    limited: bool,
    future: Option<Pin<Box<F>>>,
    sort: fn(F::Output) -> Result<G, R>,
}

impl<F: Future, G, R> Asked<F, G, R> {
    /// Polls once, in a task that no longer exists when it is woken.
    pub fn poll_once(&mut self) -> Poll<Result<Held<G>, R>> {
        Pin::new(self).poll(&mut Context::from_waker(std::task::Waker::noop()))
    }
}

impl<F: Future, G, R> Future for Asked<F, G, R> {
    type Output = Result<Held<G>, R>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let first = this.number.is_none();
        let number = *this.number.get_or_insert_with(|| this.book.ask(this.key, this.want));
        let future = this.future.as_mut().expect("the future is polled until it is ready");
        match future.as_mut().poll(cx) {
            Poll::Pending => {
                if first {
                    this.book.queued(number);
                }
                Poll::Pending
            }
            Poll::Ready(output) => {
                let output = (this.sort)(output);
                Poll::Ready(match output {
                    Ok(guard) => {
                        let (upgraded, base) = match this.upgrades {
                            Upgrades::Nothing => (None, None),
                            Upgrades::Owned(number) => (Some(number), None),
                            Upgrades::Borrowed(number) => (Some(number), Some(number)),
                        };
                        this.book.entered(number, first && !this.limited, upgraded);
                        this.future = None;
                        let want = if this.want == Want::Upgrade { Want::Write } else { this.want };
                        Ok(Held { book: Arc::clone(&this.book), key: this.key, number, want, base, guard: Some(guard) })
                    }
                    Err(rest) => {
                        this.future = None;
                        this.book.given_up(number);
                        Err(rest)
                    }
                })
            }
        }
    }
}

impl<F: Future, G, R> Unpin for Asked<F, G, R> {}

impl<F: Future, G, R> Drop for Asked<F, G, R> {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else { return };
        if let Upgrades::Owned(number) = self.upgrades {
            self.book.leaving(number, Want::Upgradable);
        }
        drop(future);
        if let Upgrades::Owned(number) = self.upgrades {
            self.book.left(number);
        }
        if let Some(number) = self.number {
            self.book.given_up(number);
        }
    }
}

/// A future that is polled a limited number of times. Then it can be dropped halfway, or taken out.
pub struct Impatient<F> {
    future: F,
    polls: u64,
}

impl<F: Future + Unpin> Future for Impatient<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        match Pin::new(&mut self.future).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

impl<F> Impatient<F> {
    pub fn into_inner(self) -> F {
        self.future
    }
}

/// Returns a future that polls `future` at most `polls` times. If `future` is not ready by then, the output is `None`.
pub fn impatient<F: Future + Unpin>(polls: u64, future: F) -> Impatient<F> {
    Impatient { future, polls }
}

/// Returns a limit that is pending for this many polls.
pub async fn after(polls: u64) {
    for _ in 0..polls {
        shuttle::future::yield_now().await;
    }
}
