//! The book in which a model writes down who asks for what, who gets it, and when.
//!
//! A time is a place in the order in which things were written down. What is written when a call returns was true a little
//! earlier, and what is written before a call becomes true a little later; the checks below hold whatever happened in between.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use keylatch::{Fairness, Status, WaitEvent, WaitId, WaitMode, WaitPhase};

use crate::spec::Want;

/// One request, as far as it has got.
#[derive(Clone, Copy, Debug)]
struct Request {
    key: u64,
    want: Want,
    /// Before its first poll, or its try.
    asked: u64,
    /// After its first poll, if that left it waiting.
    queued: Option<u64>,
    entered: Option<u64>,
    /// Whether it entered without having waited.
    at_once: bool,
    /// When it had entered, or had given up.
    swept: Option<u64>,
    live: bool,
}

/// Who is in the critical sections of a key.
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
            Want::Read => &mut self.readers,
            Want::Upgradable => &mut self.upgradable,
            Want::Write | Want::Upgrade => &mut self.writers,
            Want::Permits(_) => &mut self.permits,
        }
    }

    fn check(&self, permits: usize) {
        assert!(self.writers + self.upgradable <= 1, "holders that do not go together: {self:?}");
        assert!(self.writers == 0 || self.readers == 0, "holders that do not go together: {self:?}");
        assert!(self.permits <= permits, "more permits than there are: {self:?}");
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

/// Shuttle does not know its lock, and need not: nothing in a book is a step of the model.
pub struct Book {
    fairness: Fairness,
    permits: usize,
    pages: Mutex<Pages>,
    /// Of which the table's observer was told that they began, and not yet how they ended.
    waits: Mutex<HashMap<WaitId, WaitMode>>,
}

/// The number of a request in the book.
pub type Number = usize;

impl Book {
    pub fn new(fairness: Fairness, permits: usize) -> Arc<Book> {
        Arc::new(Book { fairness, permits, pages: Mutex::default(), waits: Mutex::default() })
    }

    /// The observer of the table that the book is about.
    pub fn observer<K>(self: &Arc<Self>) -> impl Fn(&WaitEvent<'_, K>) + Send + Sync + use<K> {
        let book = Arc::clone(self);
        move |event| {
            let mut waits = book.waits.lock().unwrap_or_else(PoisonError::into_inner);
            match event.phase() {
                WaitPhase::Started => assert_eq!(waits.insert(event.id(), event.mode()), None, "two waits in one"),
                _ => assert_eq!(waits.remove(&event.id()), Some(event.mode()), "it has not begun"),
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

    /// The holder takes its place inside; an upgrade in exchange for the place that it had.
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

    /// The holder is about to release.
    fn leaving(&self, number: Number, held: Want) {
        let mut pages = self.pages();
        let key = pages.requests[number].key;
        *pages.inside.entry(key).or_default().count(held) -= held.weight();
    }

    fn left(&self, number: Number) {
        self.pages().requests[number].live = false;
    }

    /// The holder is about to become something weaker.
    fn weakening(&self, number: Number, from: Want, to: Want) {
        self.leaving(number, from);
        let mut pages = self.pages();
        let key = pages.requests[number].key;
        *pages.inside.entry(key).or_default().count(to) += to.weight();
    }

    /// A try: a request that is settled when it returns.
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

    /// A request by a future that yields a guard.
    pub fn asked<F: Future>(self: &Arc<Self>, key: u64, want: Want, future: F) -> Asked<F, F::Output, ()> {
        let mut asked = self.asked_until(key, want, future, Ok);
        asked.limited = false;
        asked
    }

    /// A request by a future that yields a guard, or not; `sort` tells.
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

    /// Looks whether a status makes sense.
    pub fn look(&self, status: Option<Status>) {
        let Some(status) = status else { return };
        let inside = Inside {
            readers: status.readers(),
            upgradable: status.upgradable(),
            writers: status.writers(),
            permits: status.permits(),
        };
        inside.check(self.permits);
        assert!(status.waiting_upgrades() <= status.upgradable(), "an upgrade of nothing: {status:?}");
    }

    /// Whether the book is in order when all are done. Returns how often somebody at the head was passed, at the most.
    pub fn close(&self) -> usize {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(waits.is_empty(), "a wait has not ended");
        let pages = self.pages();
        assert!(pages.requests.iter().all(|request| !request.live), "a request is not done");
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

    /// What one request that waited may complain of.
    fn check(&self, request: &Request, all: &[Request]) -> usize {
        let (Some(queued), Some(entered)) = (request.queued, request.entered) else { return 0 };
        let before = |other: &&Request| other.entered.is_some_and(|other| other < entered);
        let writes = |want| matches!(want, Want::Write | Want::Upgrade);
        // Under `Fifo`, those that cannot be inside together enter in order of arrival.
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
        // A reader gets in when the first writer leaves. That one came in after it or was inside already.
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

    /// How many later requests got in before this one, when it stood at the head, and kept it out.
    fn passes(&self, request: &Request, all: &[Request]) -> usize {
        let (Some(queued), Some(entered)) = (request.queued, request.entered) else { return 0 };
        // When everybody who may have been before it had entered, or had given up. An upgrade stands before all.
        let ahead = all.iter().filter(|other| other.asked < queued && other.asked != request.asked);
        let ahead = ahead.filter(|other| other.want != Want::Upgrade && request.want != Want::Upgrade);
        let head = ahead.map(|other| other.swept.unwrap_or(u64::MAX)).max().unwrap_or(0).max(queued);
        let passed = all.iter().filter(|other| {
            let keeps_out = match (request.want, other.want) {
                (_, Want::Upgrade) => false,
                // Those who waited came in with others when a writer left.
                (_, Want::Read | Want::Upgradable) if !other.at_once => false,
                (Want::Read, Want::Read | Want::Upgradable) | (Want::Upgradable, Want::Read) => false,
                // For certain, whoever else is there.
                (Want::Permits(mine), Want::Permits(its)) => (mine + its) as usize > self.permits,
                _ => true,
            };
            keeps_out && other.asked > head && other.entered.is_some_and(|other| other < entered)
        });
        passed.count()
    }
}

/// A hold, written down.
pub struct Held<G> {
    book: Arc<Book>,
    key: u64,
    number: Number,
    want: Want,
    /// The upgradable hold that this one falls back to.
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

    /// Releases in another way than by a drop.
    pub fn release(mut self, release: impl FnOnce(G)) {
        self.book.leaving(self.number, self.want);
        release(self.guard.take().expect("the guard goes with the hold"));
        self.book.left(self.number);
    }

    /// Takes so many of its permits out.
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

    /// A try to become a writer.
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

    /// A request to become a writer, by a future that has taken the guard.
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

    /// The same, by a future that gives the guard back when it gives up.
    pub async fn upgrade_until<F: Future, H>(
        self,
        upgrade: impl FnOnce(G) -> F,
        sort: fn(F::Output) -> Result<H, G>,
    ) -> Result<Held<H>, Self> {
        let (book, key, number, want) = (Arc::clone(&self.book), self.key, self.number, self.want);
        let upgraded = self.upgrade(upgrade, sort).await;
        upgraded.map_err(|guard| Held { book, key, number, want, base: None, guard: Some(guard) })
    }

    /// A request to become a writer, by a future that borrows the guard.
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

/// What an upgrade upgrades.
#[derive(Clone, Copy)]
enum Upgrades {
    Nothing,
    /// Lost with the future.
    Owned(Number),
    /// Kept.
    Borrowed(Number),
}

/// A request's future, written down from its first poll on.
pub struct Asked<F: Future, G, R> {
    book: Arc<Book>,
    key: u64,
    want: Want,
    number: Option<Number>,
    upgrades: Upgrades,
    /// Whether one poll may try more than once, as one with a limit does: then it may wait without our seeing it.
    limited: bool,
    future: Option<Pin<Box<F>>>,
    sort: fn(F::Output) -> Result<G, R>,
}

impl<F: Future, G, R> Asked<F, G, R> {
    /// Polls once, by a task that will not be there when it is woken.
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
        let future = this.future.as_mut().expect("it is polled until it is ready");
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

/// Polls a future so many times at the most. What is left of it is dropped, in the middle of whatever it was doing.
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

/// Polls a future so many times at the most, and drops it.
pub fn impatient<F: Future + Unpin>(polls: u64, future: F) -> Impatient<F> {
    Impatient { future, polls }
}

/// Not ready the first few times: a limit.
pub async fn after(polls: u64) {
    for _ in 0..polls {
        shuttle::future::yield_now().await;
    }
}
