//! The key types and the borrowed forms that lock them; guarantees 5 and 6 for keys: what their `Hash`, `Eq`,
//! `ToKey`, `Clone` and `Drop` may do.

mod common;

use std::borrow::{Borrow, Cow};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use common::hostile::{Hostile, LIVE, disarm, hook, maybe_panic, panic_in};
use common::{Bell, pending, poll, poll_with, ready};
use keylatch::{Equivalent, Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, MutexGuard, ToKey};
use proptest::prelude::*;

#[test]
fn a_panicking_key_leaves_the_table_usable_and_nothing_behind() {
    for recycle in [false, true] {
        for place in ["hash", "eq", "clone", "clone_from", "drop"] {
            let locks = KeyedMutex::<Hostile>::builder().shards(1).recycle_keys(recycle).build();
            let before = LIVE.get();
            {
                let (one, two) = (Hostile::new(1), Hostile::new(2));
                let _held = locks.try_lock(&two).unwrap();
                drop(locks.try_lock(&one)); // now there is an old key to recycle
                panic_in(place);
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    let mut future = locks.lock(&one);
                    drop(poll(&mut future));
                }));
                // With recycling, the key is cloned into an old one, and not dropped. Without recycling, it is cloned
                // into a new key, which is dropped.
                let happens = match place {
                    "clone" | "drop" => !recycle,
                    "clone_from" => recycle,
                    _ => true,
                };
                assert_eq!(outcome.is_err(), happens, "{place}, recycle: {recycle}");
                disarm();
                assert_eq!(locks.len(), 1, "{place}");
                drop(locks.try_lock(&one).expect("the key is free"));
                assert!(locks.try_lock(&two).is_none());
            }
            assert_eq!(locks.len(), 0, "{place}");
            drop(locks);
            assert_eq!(LIVE.get(), before, "{place}: a key was leaked or dropped twice");
        }
    }
}

/// A key whose hash, clone and drop use the table from inside the call that runs them. Its `clone_from` does not,
/// because that overwrites an old key under the shard's lock.
struct Meddler {
    id: u64,
    locks: Weak<KeyedMutex<Meddler>>,
}

impl Meddler {
    fn meddle(&self) {
        thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });
        if let (false, Some(locks)) = (INSIDE.get(), self.locks.upgrade()) {
            INSIDE.set(true);
            let other = Meddler { id: 99, locks: Weak::clone(&self.locks) };
            drop(locks.try_lock(&other));
            assert!(locks.len() < 10);
            locks.for_each_key(|_, _| {});
            drop(other);
            INSIDE.set(false);
        }
    }
}

impl Clone for Meddler {
    fn clone(&self) -> Self {
        self.meddle();
        Meddler { id: self.id, locks: Weak::clone(&self.locks) }
    }

    fn clone_from(&mut self, source: &Self) {
        self.id = source.id;
        self.locks.clone_from(&source.locks);
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        self.meddle();
    }
}

impl PartialEq for Meddler {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Meddler {}

impl Hash for Meddler {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.meddle();
        self.id.hash(state);
    }
}

#[test]
fn a_key_may_use_the_table_in_hash_clone_and_drop() {
    for (recycle, pool) in [(false, 8), (true, 8), (false, 0), (true, 1)] {
        let locks = Arc::new(KeyedMutex::builder().shards(1).recycle_keys(recycle).pool_capacity(pool).build());
        let keys: Vec<_> = (0..3).map(|id| Meddler { id, locks: Arc::downgrade(&locks) }).collect();
        for _ in 0..3 {
            let guards: Vec<_> = keys.iter().map(|key| locks.try_lock(key).unwrap()).collect();
            let mut waiter = locks.lock(&keys[0]);
            pending(&mut waiter);
            drop(guards);
            drop(ready(waiter));
            assert_eq!(locks.len(), 0);
        }
    }
}

type Locks = KeyedMutex<Hostile>;

/// Calls `release`, which releases some of the keys 1 to 3 while a waiter waits for the key `handed`. Each key that
/// is dropped as a result must find `free` of the three keys free, and the waiter woken.
fn drops_find(locks: &Rc<Locks>, free: usize, handed: u32, release: impl FnOnce()) {
    let keys = Rc::new([1, 2, 3].map(Hostile::new));
    let (bell, waker) = Bell::new();
    let mut waiter = locks.lock(&keys[handed as usize - 1]);
    assert!(poll_with(&mut waiter, &waker).is_pending());
    let found = Rc::new(RefCell::new(Vec::new()));
    let (inside, finds, asked) = (Rc::clone(locks), Rc::clone(&found), Rc::clone(&keys));
    hook(Some(Rc::new(move |place| {
        if place == "drop" {
            let free = asked.iter().filter(|key| inside.try_lock(*key).is_some()).count();
            finds.borrow_mut().push((free, bell.take()));
        }
    })));
    release();
    hook(None);
    let mut found = found.take().into_iter();
    assert_eq!(found.next(), Some((free, 1)));
    assert!(found.all(|others| others == (free, 0)), "the waiter was woken more than once");
    drop(ready(waiter));
    assert!(locks.len() <= 1);
}

/// A call first releases all keys that it holds, then wakes, then drops keys. If it dropped them earlier, their drops
/// could wait for a key that is still held, or for one that was handed to a waiter that has not been woken.
#[test]
fn keys_are_dropped_after_their_call_has_released_everything_and_woken_all() {
    let locks: Rc<Locks> = Rc::new(KeyedMutex::builder().shards(1).pool_capacity(0).fairness(Fairness::Fifo).build());
    let keys = [1, 2, 3].map(Hostile::new);
    for handed in 1..=3 {
        let guards = locks.lock_many_blocking(&keys);
        drops_find(&locks, 2, handed, || drop(guards));
        let mut rest = locks.lock_many_blocking(&keys).into_iter();
        let one = if handed == 1 { rest.next_back() } else { rest.next() };
        drops_find(&locks, 1, handed, || drop(rest));
        drop(one);
        let guards = locks.lock_many_blocking(&keys);
        let panics = || {
            let _guards = guards;
            resume_unwind(Box::new(()));
        };
        drops_find(&locks, 2, handed, || assert!(catch_unwind(AssertUnwindSafe(panics)).is_err()));
    }
    let mut held = 0;
    for last in &keys {
        // The entries are created before `last` is locked, so that each key in turn is the one that the future waits
        // for.
        let mut future = locks.lock_many(&keys);
        let other = locks.try_lock(last).unwrap();
        pending(&mut future);
        if let Some(handed) = keys.iter().find(|key| key.0 != last.0 && locks.is_locked(*key)) {
            held += 1;
            drops_find(&locks, 1, handed.0, || drop(future));
        }
        drop(other);
    }
    assert!(held > 0);
    assert_eq!(locks.len(), 0);
}

/// A weak hasher: the hash is the key's number or its last eight bytes, or is always 0.
#[derive(Clone, Default)]
struct WeakHasher(Option<u64>);

impl BuildHasher for WeakHasher {
    type Hasher = WeakHasher;
    fn build_hasher(&self) -> WeakHasher {
        self.clone()
    }
}

impl Hasher for WeakHasher {
    fn finish(&self) -> u64 {
        self.0.unwrap_or(0)
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.map(|state| state << 8 | u64::from(byte));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = self.0.map(|_| n);
    }
}

#[test]
fn a_weak_hasher_costs_speed_and_nothing_else() {
    for hasher in [WeakHasher(None), WeakHasher(Some(0))] {
        let locks = KeyedMutex::<u64, WeakHasher>::with_hasher(hasher);
        let guards: Vec<_> = (0..500).map(|key| locks.try_lock(&(key << 40)).unwrap()).collect();
        assert_eq!(locks.len(), 500);
        assert!((0..500).all(|key| locks.try_lock(&(key << 40)).is_none()));
        drop(guards);
        assert_eq!(locks.len(), 0);
    }
}

#[test]
fn a_key_is_cloned_only_when_it_has_no_entry() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    #[derive(PartialEq, Eq, Hash)]
    struct Counted(u32, String);
    impl Clone for Counted {
        fn clone(&self) -> Self {
            MADE.fetch_add(1, SeqCst);
            Counted(self.0, self.1.clone())
        }
    }
    let (a, b) = (Counted(1, "a".into()), Counted(2, "b".into()));
    let locks = KeyedMutex::<Counted>::new();
    let guard = locks.try_lock(&a).unwrap();
    assert!(locks.try_lock(&a).is_none());
    let mut waiter = locks.lock(&a);
    pending(&mut waiter);
    let _handle = locks.handle(&a);
    assert!(locks.is_locked(&a) && locks.status(&b).is_none());
    assert_eq!(MADE.load(SeqCst), 1);
    drop(guard);
}

#[test]
fn a_future_does_not_borrow_its_key() {
    let locks = KeyedMutex::<String>::new();
    let mut future = {
        let key = String::from("a");
        locks.lock(key.as_str())
    };
    assert_eq!(ready(&mut future).key(), "a");
}

#[test]
fn an_old_key_is_kept_only_with_recycle_keys() {
    for recycle in [false, true] {
        let locks = KeyedMutex::<Arc<u32>>::builder().shards(1).recycle_keys(recycle).build();
        let key = Arc::new(1);
        drop(locks.try_lock(&key));
        assert_eq!(Arc::strong_count(&key), if recycle { 2 } else { 1 });
        let other = Arc::new(2);
        let guard = locks.try_lock(&other).unwrap();
        assert_eq!(**guard.key(), 2);
        assert_eq!(Arc::strong_count(&key), 1);
        drop(guard);
        drop(locks);
        assert_eq!(Arc::strong_count(&other), 1);
    }
}

#[test]
fn zero_sized_and_large_keys_work() {
    let locks = KeyedMutex::<()>::new();
    let guard = locks.try_lock(&()).unwrap();
    assert!(locks.try_lock(&()).is_none());
    drop(guard);
    let locks = KeyedMutex::<[u64; 100]>::new();
    let guard = locks.try_lock(&[7; 100]).unwrap();
    assert_eq!(guard.key()[99], 7);
    assert!(locks.try_lock(&[7; 100]).is_none());
}

/// A key whose clone makes a handle for an equal key, and so its entry. The call that meant to create the entry then
/// finds it created, and has a spare key to drop; that drop panics.
struct Racer {
    id: u64,
    locks: Weak<KeyedMutex<Racer>>,
}

thread_local! {
    static RACING: Cell<bool> = const { Cell::new(false) };
    static RACED: Cell<Option<keylatch::KeyHandleArc<KeyedMutex<Racer>>>> = const { Cell::new(None) };
}

impl Clone for Racer {
    fn clone(&self) -> Self {
        if RACING.take() {
            RACED.set(Some(self.locks.upgrade().unwrap().handle_arc(self)));
            panic_in("a racer's drop");
        }
        Racer { id: self.id, locks: Weak::clone(&self.locks) }
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        maybe_panic("a racer's drop");
    }
}

impl PartialEq for Racer {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Racer {}

impl Hash for Racer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

#[test]
fn the_drop_of_an_unused_clone_of_a_key_may_panic() {
    let locks = Arc::new(KeyedMutex::<Racer>::new());
    let key = Racer { id: 1, locks: Arc::downgrade(&locks) };
    RACING.set(true);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(locks.try_lock(&key)))).is_err());
    assert!(!locks.is_locked(&key));
    drop(RACED.take().unwrap());
    assert_eq!(locks.len(), 0);
}

#[test]
fn several_old_keys_whose_drops_panic_do_not_abort() {
    thread_local!(static ARMED: Cell<bool> = const { Cell::new(false) });
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Bomb(u32);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if ARMED.get() {
                std::panic::resume_unwind(Box::new("a bomb"));
            }
        }
    }
    let locks = KeyedMutex::<Bomb>::builder().shards(1).pool_capacity(16).recycle_keys(true).build();
    let keys: Vec<_> = (0..100).map(Bomb).collect();
    let mut guards: Vec<_> = keys.iter().map(|key| locks.try_lock(key)).collect();
    // First some guards of each group are dropped, whose entries keep their keys; then the rest, which frees the
    // groups.
    guards.iter_mut().enumerate().filter(|(n, _)| n % 16 < 10).for_each(|(_, guard)| *guard = None);
    ARMED.set(true);
    let panics = guards.drain(..).map(|guard| catch_unwind(AssertUnwindSafe(|| drop(guard)))).filter(Result::is_err);
    let panics = panics.count();
    ARMED.set(false);
    assert!(panics > 0);
    assert!(locks.is_empty());
}

/// A callback of `for_each_key` drops the guards, so that the visit is the last user of their entries.
#[test]
fn keys_whose_drops_panic_at_the_end_of_a_visit_do_not_abort() {
    thread_local!(static DROPPED: Cell<Option<u32>> = const { Cell::new(None) });
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Bomb(u32);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if let Some(dropped) = DROPPED.get() {
                DROPPED.set(Some(dropped + 1));
                std::panic::resume_unwind(Box::new("a bomb"));
            }
        }
    }
    let keys = [1, 2, 3].map(Bomb);
    for callback_panics in [false, true] {
        let locks = KeyedMutex::<Bomb>::builder().shards(1).build();
        let guards = Cell::new(Some(keys.each_ref().map(|key| locks.try_lock(key).unwrap())));
        let visits = catch_unwind(AssertUnwindSafe(|| {
            locks.for_each_key(|_, _| {
                drop(guards.take());
                DROPPED.set(Some(0));
                if callback_panics {
                    std::panic::resume_unwind(Box::new("in the callback"));
                }
            });
        }));
        assert!(visits.is_err(), "no panic reached the caller");
        assert_eq!(DROPPED.take(), Some(3), "a key was not dropped");
        assert!(locks.is_empty());
    }
}

/// Locks keys of type `K` by their borrowed form, in new entries and in entries that have an old key.
fn locks_by<K, Q>(a: &Q, b: &Q)
where
    K: Eq + Hash,
    Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
{
    for recycle in [false, true] {
        let locks = KeyedMutex::<K>::builder().shards(1).recycle_keys(recycle).build();
        for (one, other) in [(a, b), (b, a), (a, b)] {
            let guard = locks.try_lock(one).unwrap();
            assert!(one.equivalent(guard.key()) && *guard.key() == one.to_key(), "recycle: {recycle}");
            assert!(locks.try_lock(one).is_none() && locks.is_locked(one) && !locks.is_locked(other));
            drop(guard);
        }
        assert!(locks.is_empty());
    }
}

#[test]
fn a_str_locks_keys_of_every_type_that_owns_text() {
    locks_by::<String, str>("a", "longer");
    locks_by::<Box<str>, str>("a", "longer");
    locks_by::<Arc<str>, str>("a", "longer");
    locks_by::<Rc<str>, str>("a", "longer");
    locks_by::<Cow<'static, str>, str>("a", "longer");
    locks_by::<&'static str, &'static str>(&"a", &"longer");
    locks_by::<String, String>(&"a".into(), &"longer".into());
    locks_by::<Arc<str>, Arc<str>>(&"a".into(), &"longer".into());
}

#[test]
fn a_slice_locks_keys_of_every_type_that_owns_a_slice() {
    let (a, b): (&[u8], &[u8]) = (b"a", b"longer");
    locks_by::<Vec<u8>, [u8]>(a, b);
    locks_by::<Box<[u8]>, [u8]>(a, b);
    locks_by::<Arc<[u8]>, [u8]>(a, b);
    locks_by::<Rc<[u8]>, [u8]>(a, b);
    locks_by::<Cow<'static, [u8]>, [u8]>(a, b);
    locks_by::<[u8; 2], [u8; 2]>(&[1, 2], &[3, 4]);
    locks_by::<Vec<String>, [String]>(&["a".into()], &["b".into(), "c".into()]);
}

#[test]
fn paths_and_foreign_strings_lock_keys_of_every_type_that_owns_them() {
    let (a, b) = (Path::new("a"), Path::new("b/c"));
    locks_by::<PathBuf, Path>(a, b);
    locks_by::<Box<Path>, Path>(a, b);
    locks_by::<Arc<Path>, Path>(a, b);
    locks_by::<Rc<Path>, Path>(a, b);
    locks_by::<Cow<'static, Path>, Path>(a, b);
    let (a, b) = (OsStr::new("a"), OsStr::new("longer"));
    locks_by::<OsString, OsStr>(a, b);
    locks_by::<Box<OsStr>, OsStr>(a, b);
    locks_by::<Arc<OsStr>, OsStr>(a, b);
    locks_by::<Rc<OsStr>, OsStr>(a, b);
    let (a, b) = (c"a", c"longer");
    locks_by::<CString, CStr>(a, b);
    locks_by::<Box<CStr>, CStr>(a, b);
    locks_by::<Arc<CStr>, CStr>(a, b);
    locks_by::<Rc<CStr>, CStr>(a, b);
}

#[test]
fn an_owned_cow_overwrites_a_borrowed_one() {
    let locks = KeyedMutex::<Cow<'static, str>>::builder().shards(1).recycle_keys(true).build();
    drop(locks.try_lock(&Cow::Borrowed("a")));
    let guard = locks.try_lock("b").unwrap();
    assert!(matches!(guard.key(), Cow::Owned(b) if b == "b"));
}

/// A key that is not `Clone`, on purpose.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Token(String);

impl ToKey<Token> for Token {
    fn to_key(&self) -> Token {
        Token(self.0.clone())
    }
}

impl Borrow<str> for Token {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl ToKey<Token> for str {
    fn to_key(&self) -> Token {
        Token(self.to_owned())
    }

    fn to_key_into(&self, key: &mut Token) {
        self.to_key_into(&mut key.0);
    }
}

#[test]
fn a_key_that_is_not_clone_is_locked_by_itself_and_by_forms_with_to_key() {
    locks_by::<Token, Token>(&Token("a".into()), &Token("longer".into()));
    locks_by::<Token, str>("a", "longer");
}

/// The borrowed form of a pair.
#[derive(Hash)]
struct Row<'a>(&'a str, u64);

impl Equivalent<(String, u64)> for Row<'_> {
    fn equivalent(&self, key: &(String, u64)) -> bool {
        self.0 == key.0 && self.1 == key.1
    }
}

impl ToKey<(String, u64)> for Row<'_> {
    fn to_key(&self) -> (String, u64) {
        (self.0.to_owned(), self.1)
    }
}

#[test]
fn a_user_defined_equivalent_locks_in_every_table_and_form() {
    locks_by::<(String, u64), Row<'_>>(&Row("a", 1), &Row("a", 2));
    let row = Row("users", 7);
    let key = ("users".to_string(), 7);
    let locks = Arc::new(KeyedMutex::<(String, u64)>::new());
    let guard = ready(locks.lock(&row));
    assert!(locks.try_lock(&key).is_none() && locks.try_lock_arc(&row).is_none());
    drop(guard);
    drop(locks.handle(&row).lock_blocking());
    drop(ready(locks.lock_arc(&row)));
    drop(locks.handle_arc(&row));
    let pages = KeyedRwLock::<(String, u64)>::new();
    let reader = pages.upgradable_read_blocking(&row).downgrade();
    assert!(pages.try_read(&key).is_some() && pages.try_write(&row).is_none());
    drop(reader);
    let hosts = KeyedSemaphore::<(String, u64)>::new(1);
    let permit = hosts.acquire_blocking(&row);
    assert!(hosts.try_acquire(&key).is_none());
    drop(permit);
    assert!(locks.is_empty() && pages.is_empty() && hosts.is_empty());
}

/// A key of two parts that counts itself and has a serial number.
struct Halves {
    parts: (u8, String),
    serial: u64,
}

impl Halves {
    fn new(id: u8) -> Self {
        thread_local!(static MADE: Cell<u64> = const { Cell::new(0) });
        MADE.set(MADE.get() + 1);
        LIVE.set(LIVE.get() + 1);
        Halves { parts: (id, id.to_string()), serial: MADE.get() }
    }
}

impl Drop for Halves {
    fn drop(&mut self) {
        LIVE.set(LIVE.get() - 1);
    }
}

/// The borrowed form of a key of two parts. Its `to_key_into` panics on demand, at three places.
#[derive(Hash)]
struct Whole(u8);

impl Equivalent<Halves> for Whole {
    fn equivalent(&self, key: &Halves) -> bool {
        (self.0, self.0.to_string()) == key.parts
    }
}

impl ToKey<Halves> for Whole {
    fn to_key(&self) -> Halves {
        Halves::new(self.0)
    }

    fn to_key_into(&self, key: &mut Halves) {
        maybe_panic("before");
        key.parts.0 = self.0;
        maybe_panic("between");
        key.parts.1 = self.0.to_string();
        maybe_panic("after");
    }
}

// Hashes only the part that `Whole` hashes.
impl Hash for Halves {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts.0.hash(state);
    }
}

impl PartialEq for Halves {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for Halves {}

/// Tries to lock a free key, and checks that its `to_key_into` is called and panics at this place.
fn panics_in(place: &'static str, locks: &KeyedMutex<Halves>, id: u8) {
    panic_in(place);
    let outcome = catch_unwind(AssertUnwindSafe(|| drop(locks.try_lock(&Whole(id)))));
    assert!(outcome.is_err() && !disarm(), "no old key was overwritten");
}

#[test]
fn a_to_key_into_that_panics_leaves_the_table_intact() {
    for place in ["before", "between", "after"] {
        for kept in 1..4 {
            let locks = KeyedMutex::<Halves>::builder().shards(1).pool_capacity(8).recycle_keys(true).build();
            let held = locks.try_lock(&Whole(99)).unwrap();
            drop((0..kept).map(|id| locks.try_lock(&Whole(id))).collect::<Vec<_>>());
            let all = usize::from(kept) + 1;
            assert_eq!((locks.len(), LIVE.get()), (1, all), "the old keys were not kept");
            for _ in 0..3 {
                panics_in(place, &locks, 42);
                assert_eq!((locks.len(), LIVE.get()), (1, all), "{place}");
            }
            assert!(!locks.is_locked(&Whole(42)) && locks.try_lock(&Whole(99)).is_none());
            // Whatever state the panics left the old keys in, each is overwritten, and none is missing.
            let guards: Vec<_> = (42..42 + kept).map(|id| locks.try_lock(&Whole(id)).unwrap()).collect();
            for (guard, id) in guards.iter().zip(42..) {
                assert!(Whole(id).equivalent(guard.key()) && locks.try_lock(&Whole(id)).is_none());
                assert!(
                    guard.key().serial <= held.key().serial + u64::from(kept),
                    "a key was created instead of recycled"
                );
            }
            assert_eq!((locks.len(), LIVE.get()), (all, all), "{place}");
            drop((guards, held));
            assert!(locks.is_empty());
            drop(locks);
            assert_eq!(LIVE.get(), 0, "{place}: a key was leaked or dropped twice");
        }
    }
}

proptest! {
    /// For any sequence of calls, and of panics in `to_key_into`, the table agrees with a list of the held keys: a key
    /// has an entry exactly while it is held, and the number of old keys does not exceed the pool's capacity.
    #[test]
    fn panics_of_to_key_into_lose_no_entry(pool in 0..40usize, steps in prop::collection::vec((0..8u8, 0..60u8), 1..200)) {
        let before = LIVE.get();
        let locks = KeyedMutex::<Halves>::builder().shards(1).pool_capacity(pool).recycle_keys(true).build();
        let mut held = Vec::new();
        for (step, id) in steps {
            let is_of = |guard: &MutexGuard<'_, Halves>| Whole(id).equivalent(guard.key());
            let is_held = held.iter().any(is_of);
            match step {
                0..=2 => match locks.try_lock(&Whole(id)) {
                    Some(guard) => {
                        prop_assert!(is_of(&guard) && !is_held);
                        held.push(guard);
                    }
                    None => prop_assert!(is_held),
                },
                3..=5 => {
                    panic_in(["before", "between", "after"][usize::from(step) - 3]);
                    let outcome = catch_unwind(AssertUnwindSafe(|| locks.try_lock(&Whole(id)).is_some()));
                    // The call panicked exactly if there was an old key to overwrite.
                    prop_assert_eq!(outcome.is_err(), !disarm());
                    prop_assert!(outcome.is_err() || outcome.is_ok_and(|locked| locked != is_held));
                }
                _ if held.is_empty() => {}
                _ => drop(held.swap_remove(usize::from(id) % held.len())),
            }
            let live = LIVE.get() - before;
            prop_assert_eq!(locks.len(), held.len());
            prop_assert!((held.len()..=held.len() + pool).contains(&live), "{} keys exist", live);
        }
        drop(held);
        prop_assert!(locks.is_empty());
        drop(locks);
        prop_assert_eq!(LIVE.get(), before);
    }
}

/// A name that another caller locks while it is copied for a new entry.
struct Raced<'t> {
    table: &'t KeyedMutex<String>,
    other: RefCell<Option<MutexGuard<'t, String>>>,
}

impl Hash for Raced<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        "raced".hash(state);
    }
}

impl Equivalent<String> for Raced<'_> {
    fn equivalent(&self, key: &String) -> bool {
        key == "raced"
    }
}

impl ToKey<String> for Raced<'_> {
    fn to_key(&self) -> String {
        self.other.replace(self.table.try_lock("raced"));
        "raced".to_string()
    }
}

/// The shard itself stores one entry, here that of "first". So the entry that both callers want is in the hash table.
#[test]
fn an_entry_that_another_caller_makes_meanwhile_is_found() {
    let table = KeyedMutex::builder().shards(1).build();
    let _first = table.try_lock("first").unwrap();
    let raced = Raced { table: &table, other: RefCell::default() };
    assert!(table.try_lock(&raced).is_none(), "two callers hold one key");
    assert_eq!((raced.other.take().is_some(), table.len()), (true, 2));
}
