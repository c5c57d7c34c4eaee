//! Keys, values and wakers whose code panics or uses the table when the input bytes say so. Some keys also lie: in
//! `Eq`, in `Hash`, and in `Clone`, which returns a different key. With such keys it is undefined who holds a key, but
//! memory is still used correctly, nothing is leaked, and every waiter is served.
//!
//! The operations are read from the front of the bytes. The actions of the hostile code are read from their end: one
//! byte for each call of such code (of a key, a waker, or the limit of a wait), and another if it uses the table. It
//! does so by the same operations: it may release another caller's hold, poll a request that has just been woken, or
//! create the very entry that is being removed. There are three exceptions, as in the contract: `Eq`, the `Clone` of a
//! key that owns nothing, and the `clone_from` that overwrites an old key may panic, but never use the table.
//!
//! Expected panics are raised by `resume_unwind`, which runs no panic hook. So the fuzzer's hook, which aborts, sees
//! only the others. Hostile code does not panic while its thread is panicking: that would abort in any case.
#![allow(unsafe_code)] // wakers made by hand

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use keylatch::futures::{ReadArc, UpgradableReadArc, Upgrade, WriteArc};
use keylatch::{Fairness, KeyHandleArc, KeyedRwLock, ReadGuardArc, UpgradableGuardArc, WriteGuardArc};

use self::map::MapWorld;
use crate::common::Bytes;

mod map;

/// Runs the operations that the first half of the bytes encodes, with the hostile code that the second half encodes.
///
/// # Panics
///
/// If the table misbehaves.
pub fn run(bytes: &[u8]) {
    let (operations, hooks) = bytes.split_at(bytes.len() / 2);
    let mut operations = Bytes(operations);
    let settings = operations.next();
    STAGE.with(|stage| {
        *stage.hooks.borrow_mut() = hooks.to_vec();
        stage.weak_hash.set([0, 1, 3, 255][usize::from(settings / 2 % 4)]);
        stage.quiet.set(false);
    });
    let settings = settings / 8;
    let policy = operations.next();
    // Runs a map, with values.
    if policy / 16 % 4 == 3 {
        return match bytes.first() {
            Some(first) if first % 2 == 1 => MapWorld::<Plain>::new(settings, policy).run(operations),
            _ if policy >= 192 => MapWorld::<Owning<true>>::new(settings, policy).run(operations),
            _ => MapWorld::<Owning<false>>::new(settings, policy).run(operations),
        };
    }
    match bytes.first() {
        Some(first) if first % 2 == 1 => World::<Plain>::new(settings, policy).run(operations),
        _ if policy >= 192 => World::<Owning<true>>::new(settings, policy).run(operations),
        _ => World::<Owning<false>>::new(settings, policy).run(operations),
    }
}

// ---- hostile code ---------------------------------------------------------------------------------------------------

/// The payload of an intended panic.
struct Expected;

#[derive(Default)]
struct Stage {
    hooks: RefCell<Vec<u8>>,
    /// Whether hostile code is disabled.
    quiet: Cell<bool>,
    /// The bits of a key that are hashed.
    weak_hash: Cell<u8>,
    /// The nesting depth of hooks.
    depth: Cell<u8>,
    live_keys: RefCell<HashSet<u64>>,
    keys_made: Cell<u64>,
    live_wakers: Cell<usize>,
    world: RefCell<Option<Rc<dyn Act>>>,
}

thread_local! {
    static STAGE: Stage = Stage::default();
}

/// The actions of hostile code on the table.
trait Act {
    fn act(&self, what: u8, whom: u8);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum May {
    Panic,
    PanicOrAct,
}

/// Runs a piece of hostile code, which acts as the next byte says.
fn hook(may: May) {
    STAGE.with(|stage| {
        if stage.quiet.get() || stage.depth.get() == 3 {
            return;
        }
        let Some(what) = stage.hooks.borrow_mut().pop() else { return };
        if what % 8 == 7 && !std::thread::panicking() {
            resume_unwind(Box::new(Expected));
        }
        if matches!(what % 8, 5 | 6) && may == May::PanicOrAct {
            let Some(world) = stage.world.borrow().clone() else { return };
            let whom = stage.hooks.borrow_mut().pop().unwrap_or(0);
            let _inside = Inside::new(stage);
            world.act(what / 8, whom);
        }
    });
}

/// Counts nested hooks, even if a panic leaves one.
struct Inside<'s>(&'s Stage);

impl<'s> Inside<'s> {
    fn new(stage: &'s Stage) -> Self {
        stage.depth.set(stage.depth.get() + 1);
        Inside(stage)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.depth.set(self.0.depth.get() - 1);
    }
}

/// Leaks the table after a failure, so that the failure itself is reported.
struct LeftAlone;

impl Drop for LeftAlone {
    fn drop(&mut self) {
        if std::thread::panicking() {
            STAGE.with(|stage| std::mem::forget(stage.world.take()));
        }
    }
}

/// Returns whether a key lies now, as the next byte says.
fn lies() -> bool {
    STAGE.with(|stage| !stage.quiet.get() && stage.hooks.borrow_mut().pop().is_some_and(|what| what % 4 == 3))
}

/// Runs `f` with no hostile code.
fn quietly<R>(f: impl FnOnce() -> R) -> R {
    STAGE.with(|stage| {
        let before = stage.quiet.replace(true);
        let result = f();
        stage.quiet.set(before);
        result
    })
}

trait Key: Clone + Eq + Hash + 'static {
    const LIES: bool;
    fn new(id: u8) -> Self;
    fn id(&self) -> u8;
}

/// A key that owns something. All existing keys are recorded.
struct Owning<const LIES: bool> {
    id: u8,
    serial: Box<u64>,
}

impl<const LIES: bool> Owning<LIES> {
    fn check(&self) {
        STAGE.with(|stage| assert!(stage.live_keys.borrow().contains(&self.serial), "a dropped key was used"));
    }
}

impl<const LIES: bool> Key for Owning<LIES> {
    const LIES: bool = LIES;

    fn new(id: u8) -> Self {
        STAGE.with(|stage| {
            let serial = stage.keys_made.get() + 1;
            stage.keys_made.set(serial);
            stage.live_keys.borrow_mut().insert(serial);
            Owning { id, serial: Box::new(serial) }
        })
    }

    fn id(&self) -> u8 {
        self.check();
        self.id
    }
}

impl<const LIES: bool> Clone for Owning<LIES> {
    fn clone(&self) -> Self {
        self.check();
        hook(May::PanicOrAct);
        let copy = Owning::new(if LIES && lies() { self.id ^ 1 } else { self.id });
        hook(May::PanicOrAct); // if this panics, the copy is dropped
        copy
    }

    /// This is called under the table's lock, to overwrite an old key.
    fn clone_from(&mut self, source: &Self) {
        self.check();
        hook(May::Panic);
        self.id = if LIES && lies() { source.id() ^ 1 } else { source.id() };
        hook(May::Panic);
    }
}

impl<const LIES: bool> Drop for Owning<LIES> {
    fn drop(&mut self) {
        let was_live = STAGE.with(|stage| stage.live_keys.borrow_mut().remove(&self.serial));
        assert!(was_live, "a key was dropped twice");
        hook(May::PanicOrAct);
    }
}

impl<const LIES: bool> PartialEq for Owning<LIES> {
    fn eq(&self, other: &Self) -> bool {
        hook(May::Panic);
        (self.id() == other.id()) != (LIES && lies())
    }
}

impl<const LIES: bool> Eq for Owning<LIES> {}

impl<const LIES: bool> Hash for Owning<LIES> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hook(May::PanicOrAct);
        let id = if LIES && lies() { self.id() ^ 1 } else { self.id() };
        state.write_u8(id & STAGE.with(|stage| stage.weak_hash.get()));
    }
}

/// A key that owns nothing: it is copied under the table's lock.
struct Plain(u8);

impl Key for Plain {
    const LIES: bool = false;

    fn new(id: u8) -> Self {
        Plain(id)
    }

    fn id(&self) -> u8 {
        self.0
    }
}

#[allow(clippy::non_canonical_clone_impl)]
impl Clone for Plain {
    fn clone(&self) -> Self {
        hook(May::Panic);
        Plain(self.0)
    }
}

impl PartialEq for Plain {
    fn eq(&self, other: &Self) -> bool {
        hook(May::Panic);
        self.0 == other.0
    }
}

impl Eq for Plain {}

impl Hash for Plain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hook(May::PanicOrAct);
        state.write_u8(self.0 & STAGE.with(|stage| stage.weak_hash.get()));
    }
}

/// A hasher that returns what it is given.
#[derive(Clone, Copy, Default)]
struct Identity(u64);

impl BuildHasher for Identity {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Identity(0)
    }
}

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }
}

/// Creates a waker whose functions are all hostile. When it is woken it first sets a flag.
fn waker(woken: &Rc<Cell<bool>>) -> Waker {
    const VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            hook(May::PanicOrAct);
            // SAFETY: the data comes from `raw`, and is borrowed for as long as the waker is.
            let woken = unsafe { &*data.cast::<Rc<Cell<bool>>>() };
            raw(woken)
        },
        |data| {
            // SAFETY: the data comes from `raw`, and the waker is consumed.
            unsafe { take(data) }.set(true);
            hook(May::PanicOrAct);
        },
        |data| {
            // SAFETY: the data comes from `raw`, and is borrowed for as long as the waker is.
            unsafe { &*data.cast::<Rc<Cell<bool>>>() }.set(true);
            hook(May::PanicOrAct);
        },
        |data| {
            // SAFETY: the data comes from `raw`, and the waker is consumed.
            drop(unsafe { take(data) });
            hook(May::PanicOrAct);
        },
    );

    fn raw(woken: &Rc<Cell<bool>>) -> RawWaker {
        STAGE.with(|stage| stage.live_wakers.set(stage.live_wakers.get() + 1));
        RawWaker::new(Box::into_raw(Box::new(Rc::clone(woken))).cast_const().cast(), &VTABLE)
    }

    /// # Safety
    /// The data comes from `raw`, and is not used again.
    unsafe fn take(data: *const ()) -> Rc<Cell<bool>> {
        STAGE.with(|stage| stage.live_wakers.set(stage.live_wakers.get() - 1));
        // SAFETY: the caller upholds the contract.
        *unsafe { Box::from_raw(data.cast_mut().cast::<Rc<Cell<bool>>>()) }
    }

    // SAFETY: the functions above implement a waker's contract; the waker does not leave this thread.
    unsafe { Waker::from_raw(raw(woken)) }
}

/// A limit that is reached when it is polled for the second time. Its polls and its drop are hostile.
#[derive(Default)]
struct Limit {
    polled: bool,
}

impl std::future::Future for Limit {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        hook(May::PanicOrAct);
        if std::mem::replace(&mut self.polled, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        hook(May::PanicOrAct);
    }
}

// ---- the table ------------------------------------------------------------------------------------------------------

type Table<K> = KeyedRwLock<K, Identity>;

enum Held<K> {
    Read(ReadGuardArc<K, Identity>),
    Upgradable(UpgradableGuardArc<K, Identity>),
    Write(WriteGuardArc<K, Identity>),
}

impl<K: Key> Held<K> {
    fn id(&self) -> u8 {
        match self {
            Held::Read(guard) => guard.key().id(),
            Held::Upgradable(guard) => guard.key().id(),
            Held::Write(guard) => guard.key().id(),
        }
    }
}

enum Future<K> {
    Read(ReadArc<K, Identity>),
    Upgradable(UpgradableReadArc<K, Identity>),
    Write(WriteArc<K, Identity>),
    Upgrade(Upgrade<Arc<Table<K>>>),
    Limited(Pin<Box<dyn std::future::Future<Output = Result<Held<K>, ()>>>>),
}

struct Request<K> {
    id: u8,
    future: Future<K>,
    polled: bool,
    woken: Rc<Cell<bool>>,
}

impl<K: Key> Request<K> {
    fn new(id: u8, future: Future<K>) -> Self {
        Request { id, future, polled: false, woken: Rc::default() }
    }

    fn limited(id: u8, future: Future<K>) -> Self {
        let future: Pin<Box<dyn std::future::Future<Output = _>>> = match future {
            Future::Read(future) => Box::pin(async { future.until(Limit::default()).await.map(Held::Read) }),
            Future::Upgradable(future) => {
                Box::pin(async { future.until(Limit::default()).await.map(Held::Upgradable) })
            }
            Future::Write(future) => Box::pin(async { future.until(Limit::default()).await.map(Held::Write) }),
            Future::Upgrade(_) | Future::Limited(_) => unreachable!(),
        };
        Request::new(id, Future::Limited(future))
    }

    /// Returns the hold, or nothing if a limit was reached.
    fn poll(&mut self) -> Poll<Option<Held<K>>> {
        fn poll<F: std::future::Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
            Pin::new(future).poll(&mut Context::from_waker(waker))
        }
        self.polled = true;
        self.woken.set(false);
        let waker = waker(&self.woken);
        let outcome = match &mut self.future {
            Future::Read(future) => poll(future, &waker).map(Held::Read).map(Some),
            Future::Upgradable(future) => poll(future, &waker).map(Held::Upgradable).map(Some),
            Future::Write(future) => poll(future, &waker).map(Held::Write).map(Some),
            Future::Upgrade(future) => poll(future, &waker).map(Held::Write).map(Some),
            Future::Limited(future) => poll(future, &waker).map(Result::ok),
        };
        // The waker is dropped before the outcome is returned: if its drop panicked later, the compiler would not drop
        // the returned value.
        drop(waker);
        outcome
    }
}

/// A table, its holds and its requests. An operation takes the objects it uses out of the lists: hostile code never
/// finds them, and a panic drops them.
struct World<K> {
    table: Arc<Table<K>>,
    keys: u8,
    /// The maximum number of objects of each kind.
    crowd: usize,
    /// The number of operations so far.
    acts: Cell<usize>,
    pool: usize,
    recycle: bool,
    held: RefCell<Vec<Held<K>>>,
    requests: RefCell<Vec<Request<K>>>,
    handles: RefCell<Vec<KeyHandleArc<Table<K>>>>,
}

/// The small number of keys, ...
const FEW: u8 = 6;
/// ... and the large one, with which slots are allocated and freed in groups.
const MANY: u8 = 40;
/// A key that no operation uses.
const OTHER: u8 = 99;

impl<K: Key> World<K> {
    fn new(settings: u8, policy: u8) -> Rc<Self> {
        let fairness = [Fairness::Adaptive, Fairness::Bounded(0), Fairness::Bounded(2), Fairness::Barging];
        let (recycle, pool) = (settings % 2 == 1, usize::from(settings / 2 % 4));
        let (keys, crowd, pool) = if policy / 4 % 4 == 3 { (MANY, 30, 6 * pool) } else { (FEW, 8, pool) };
        let builder = KeyedRwLock::builder().shards(1).pool_capacity(pool).recycle_keys(recycle);
        Rc::new(World {
            table: Arc::new(builder.fairness(fairness[usize::from(policy % 4)]).hasher(Identity(0)).build()),
            keys,
            crowd,
            acts: Cell::new(0),
            pool,
            recycle,
            held: RefCell::default(),
            requests: RefCell::default(),
            handles: RefCell::default(),
        })
    }

    fn run(self: Rc<Self>, mut operations: Bytes<'_>) {
        STAGE.with(|stage| stage.world.replace(Some(Rc::clone(&self) as Rc<dyn Act>)));
        let _left_alone = LeftAlone;
        while !operations.is_empty() {
            let (what, whom) = (operations.next(), operations.next());
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.act(what, whom))) {
                if !panic.is::<Expected>() {
                    resume_unwind(panic);
                }
                quietly(|| self.check_usable());
            }
            quietly(|| self.check());
        }
        STAGE.with(|stage| {
            stage.world.replace(None);
            stage.quiet.set(true);
        });
        self.finish();
    }

    fn take<T>(pile: &RefCell<Vec<T>>, whom: u8) -> Option<T> {
        let mut pile = pile.borrow_mut();
        let at = usize::from(whom).checked_rem(pile.len())?;
        Some(pile.swap_remove(at))
    }

    /// Adds an object to a list, or drops it if the list is full.
    fn put<T>(&self, pile: &RefCell<Vec<T>>, thing: T) {
        let mut pile = pile.borrow_mut();
        if pile.len() < self.crowd {
            pile.push(thing);
        } else {
            drop(pile);
            drop(thing);
        }
    }

    fn poll(&self, mut request: Request<K>) {
        match request.poll() {
            Poll::Ready(held) => {
                drop(request);
                if let Some(held) = held {
                    self.put(&self.held, held);
                }
            }
            Poll::Pending => self.put(&self.requests, request),
        }
    }

    fn start(&self, key: &K, mode: u8) -> Future<K> {
        match mode {
            0 => Future::Read(self.table.read_arc(key)),
            1 => Future::Upgradable(self.table.upgradable_read_arc(key)),
            _ => Future::Write(self.table.write_arc(key)),
        }
    }

    fn attempt(&self, key: &K, mode: u8) -> Option<Held<K>> {
        match mode {
            0 => self.table.try_read_arc(key).map(Held::Read),
            1 => self.table.try_upgradable_read_arc(key).map(Held::Upgradable),
            _ => self.table.try_write_arc(key).map(Held::Write),
        }
    }

    fn change(&self, held: Held<K>, whom: u8) {
        let changed = match held {
            Held::Write(guard) if whom % 3 == 0 => return guard.unlock_fair(),
            Held::Write(guard) if whom % 3 == 1 => Held::Read(guard.downgrade()),
            Held::Write(guard) => Held::Upgradable(guard.downgrade_to_upgradable()),
            Held::Upgradable(guard) if whom % 3 == 0 => match guard.try_upgrade() {
                Ok(guard) => Held::Write(guard),
                Err(guard) => Held::Upgradable(guard),
            },
            Held::Upgradable(guard) if whom % 3 == 1 => Held::Read(guard.downgrade()),
            Held::Upgradable(guard) => {
                return self.poll(Request::new(guard.key().id(), Future::Upgrade(guard.upgrade())));
            }
            Held::Read(guard) => Held::Read(guard),
        };
        self.put(&self.held, changed);
    }

    /// Checks after a panic that the table still works, on a key that was not involved.
    fn check_usable(&self) {
        let key = K::new(OTHER);
        let guard = self.table.try_write(&key).expect("the key is free");
        assert!(self.table.try_read(&key).is_none());
        let mut waiter = Request::new(OTHER, Future::Read(self.table.read_arc(&key)));
        assert!(waiter.poll().is_pending());
        drop(guard);
        assert!(waiter.woken.get() && waiter.poll().is_ready());
    }

    /// Compares the table with the lists. Between two operations every object is in one of them.
    fn check(&self) {
        let (held, requests, handles) = (self.held.borrow(), self.requests.borrow(), self.handles.borrow());
        // A lying key may be taken for any other.
        let mut live = if K::LIES { self.table.len() } else { 0 };
        for id in 0..if K::LIES { 0 } else { self.keys } {
            let status = self.table.status(&K::new(id));
            let mut holds = [0; 3];
            for held in held.iter().filter(|held| held.id() == id) {
                match held {
                    Held::Read(_) => holds[0] += 1,
                    Held::Upgradable(_) => holds[1] += 1,
                    Held::Write(_) => holds[2] += 1,
                }
            }
            let [readers, upgradable, writers] = holds;
            assert!(writers + upgradable <= 1 && (writers == 0 || readers == 0), "{holds:?} at once");
            let of_key = || requests.iter().filter(|request| request.id == id);
            let used = holds != [0; 3] || of_key().count() > 0 || handles.iter().any(|handle| handle.key().id() == id);
            assert_eq!(status.is_some(), used, "an entry without a user, or a user without an entry");
            live += usize::from(used);
            let Some(status) = status else { continue };
            // A request that has been polled is counted once, as a holder or as a waiter. An upgrade is a holder even
            // before, and is counted as both while it waits.
            let counted = of_key().filter(|request| request.polled || matches!(request.future, Future::Upgrade(_)));
            let expected = readers + upgradable + writers + counted.count() + status.waiting_upgrades();
            assert_eq!(status.holders() + status.waiters(), expected, "{status:?}");
        }
        assert_eq!(self.table.len(), live);
        let (keys, wakers) = STAGE.with(|stage| (stage.live_keys.borrow().len(), stage.live_wakers.get()));
        if std::mem::needs_drop::<K>() {
            let pooled = if self.recycle { self.pool } else { 0 };
            assert!((live..=live + pooled).contains(&keys), "{keys} keys exist, and {live} entries");
        }
        assert!(wakers <= requests.len(), "{wakers} wakers are kept for {} requests", requests.len());
    }

    /// Drops all holders. Then every waiter must acquire its key, or reach its limit, although only woken ones are
    /// polled, and nothing may be left.
    fn finish(self: Rc<Self>) {
        self.held.take();
        self.handles.take();
        self.requests.borrow_mut().retain(|request| request.polled);
        loop {
            let woken = self.requests.borrow().iter().position(|request| request.woken.get());
            let Some(at) = woken else { break };
            let mut request = self.requests.borrow_mut().swap_remove(at);
            match request.poll() {
                Poll::Ready(held) => drop(held),
                Poll::Pending => self.requests.borrow_mut().push(request),
            }
        }
        assert!(self.requests.borrow().is_empty(), "a request waits for a free key for ever");
        assert_eq!(self.table.len(), 0);
        let world = Rc::into_inner(self).expect("the world has no other owner");
        assert_eq!(Arc::strong_count(&world.table), 1);
        drop(world);
        STAGE.with(|stage| {
            assert!(stage.live_keys.borrow().is_empty(), "a key was leaked");
            assert_eq!(stage.live_wakers.get(), 0, "a waker was leaked");
            assert_eq!(stage.depth.get(), 0);
        });
    }
}

impl<K: Key> Act for World<K> {
    fn act(&self, what: u8, whom: u8) {
        let (id, mode) = (whom % self.keys, whom / self.keys % 3);
        // With many keys, 32 operations in which more is locked alternate with 32 in which more is released: otherwise
        // there would hardly be a dozen entries at once.
        let is_locking = self.keys > FEW && self.acts.get() / 32 % 2 == 0;
        self.acts.set(self.acts.get() + 1);
        match what % 16 {
            what if what < 2 || what == 10 && is_locking => {
                let key = K::new(id);
                if let Some(held) = self.attempt(&key, mode) {
                    self.put(&self.held, held);
                }
            }
            2 => {
                let key = K::new(id);
                drop(self.attempt(&key, mode));
            }
            3..=5 => {
                let key = K::new(id);
                let future = self.start(&key, mode);
                let request = if whom >= 128 { Request::limited(id, future) } else { Request::new(id, future) };
                if what % 16 == 3 { self.put(&self.requests, request) } else { self.poll(request) }
            }
            6..=8 => {
                if let Some(request) = Self::take(&self.requests, whom) {
                    self.poll(request);
                }
            }
            9 => drop(Self::take(&self.requests, whom)),
            10 | 11 => drop(Self::take(&self.held, whom)),
            12 => {
                if let Some(held) = Self::take(&self.held, whom) {
                    self.change(held, whom / 16);
                }
            }
            13 => {
                let key = K::new(id);
                let handle = self.table.handle_arc(&key);
                self.put(&self.handles, handle.clone());
            }
            14 => {
                if let Some(handle) = Self::take(&self.handles, whom) {
                    if let Some(guard) = handle.try_read() {
                        self.put(&self.held, Held::Read(guard));
                    }
                }
            }
            _ => self.table.for_each_key(|key, status| {
                assert!(key.id() < self.keys && status.writers() <= 1);
                hook(May::PanicOrAct);
            }),
        }
    }
}
