//! Guards, handles and futures are covariant in the lifetime for which they borrow their table, and in the type of its
//! keys. The conversions that must not compile are doctests of `keylatch::table`.

#![allow(single_use_lifetimes)] // the bounds between lifetimes are the point

use std::rc::Rc;

use futures_lite::future::block_on;
use keylatch::deadlock::{Detector, Tracked};
use keylatch::futures::{
    Acquire, AcquireMany, AcquirePermit, Lock, MapRead, MapUpgradableRead, MapWrite, Read, UpgradableRead, Upgrade,
    Write,
};
use keylatch::mode::{Exclusive, Mode, Permit, Shared};
use keylatch::table::{Table, TablePtr, TableRef};
use keylatch::{
    Guard, Guards, KeyHandle, KeyedMutex, KeyedRwLock, KeyedSemaphore, LockMap, MapReadGuard, MapUpgradableGuard,
    MapWriteGuard, MutexGuard, PermitGuard, ReadGuard, UpgradableGuard, Upgraded, WriteGuard,
};

/// Compiles if a value of the type with a longer lifetime can be used as one with a shorter lifetime.
macro_rules! shortens {
    ($($name:ident: $($Type:ident)::+ [$($before:tt)*] $(<$($rest:ty),+>)?;)+) => {$(
        #[allow(dead_code)]
        fn $name<'long: 'short, 'short>(long: $($Type)::+<$($before)* 'long $($(, $rest)+)?>) -> $($Type)::+<$($before)* 'short $($(, $rest)+)?> {
            long
        }
    )+};
}

shortens! {
    mutex_guard: MutexGuard [] <String>;
    read_guard: ReadGuard [] <String>;
    upgradable_guard: UpgradableGuard [] <String>;
    write_guard: WriteGuard [] <String>;
    permit_guard: PermitGuard [] <String>;
    map_read_guard: MapReadGuard [] <String, Rc<u8>>;
    map_upgradable_guard: MapUpgradableGuard [] <String, Rc<u8>>;
    map_write_guard: MapWriteGuard [] <String, Rc<u8>>;
    lock: Lock [] <String>;
    read: Read [] <String>;
    upgradable_read: UpgradableRead [] <String>;
    write: Write [] <String>;
    acquire: AcquirePermit [] <String>;
    map_read: MapRead [] <String, u8>;
    map_upgradable_read: MapUpgradableRead [] <String, u8>;
    map_write: MapWrite [] <String, u8>;
    handle: KeyHandle [] <KeyedMutex<String>>;
    map_handle: KeyHandle [] <LockMap<String, u8>>;
    table: TableRef [] <KeyedSemaphore<String>>;
    borrowed_hold: Upgraded [] <TableRef<'static, KeyedRwLock<String>>>;
}

/// Like `shortens`, for types that are generic over their reference to the table.
macro_rules! shortens_its_table {
    ($($name:ident: $Type:ty;)+) => {$(
        #[allow(dead_code)]
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            type Of<'t> = $Type;
            fn shorten<'long: 'short, 'short>(long: Of<'long>) -> Of<'short> {
                long
            }
        }
    )+};
}

type Mutexes<'t> = TableRef<'t, KeyedMutex<String>>;
type RwLocks<'t> = TableRef<'t, KeyedRwLock<String>>;

shortens_its_table! {
    guards: Guards<Mutexes<'t>, Exclusive>;
    guards_one_by_one: <Guards<Mutexes<'t>, Exclusive> as IntoIterator>::IntoIter;
    future_of_many: AcquireMany<Mutexes<'t>, Exclusive>;
    future_of_an_upgrade: Upgrade<RwLocks<'t>>;
    tracked_guard: Tracked<MutexGuard<'t, String>>;
    tracked_future: keylatch::deadlock::TrackedAcquire<Acquire<Mutexes<'t>, Exclusive>>;
    tracked_upgrade: keylatch::deadlock::TrackedUpgrade<RwLocks<'t>>;
    dump: keylatch::Dump<'t, KeyedMutex<String>>;
    batch: keylatch::Batch<'t, String, u8>;
}

/// Like `shortens`, for the type of the keys, both together with the borrow of the table and alone.
macro_rules! shortens_its_keys {
    ($($name:ident: $Type:ty;)+) => {$(
        #[allow(dead_code)]
        mod $name {
            use super::*;
            type Of<'t, 'k> = $Type;
            fn shorten<'long: 'short, 'short>(long: Of<'long, 'long>) -> Of<'short, 'short> {
                long
            }
            fn shorten_the_keys_alone<'t, 'short>(long: Of<'t, 'static>) -> Of<'t, 'short> {
                long
            }
        }
    )+};
}

shortens_its_keys! {
    keys_of_mutex_guards: MutexGuard<'t, &'k str>;
    keys_of_read_guards: ReadGuard<'t, &'k str>;
    keys_of_upgradable_guards: UpgradableGuard<'t, &'k str>;
    keys_of_write_guards: WriteGuard<'t, &'k str>;
    keys_of_permit_guards: PermitGuard<'t, &'k str>;
    keys_of_map_read_guards: MapReadGuard<'t, &'k str, u8>;
    keys_of_map_upgradable_guards: MapUpgradableGuard<'t, &'k str, u8>;
    keys_of_map_write_guards: MapWriteGuard<'t, &'k str, u8>;
    keys_of_lock_futures: Lock<'t, &'k str>;
    keys_of_handles: KeyHandle<'t, KeyedMutex<&'k str>>;
    keys_of_several_guards: Guards<TableRef<'t, KeyedMutex<&'k str>>, Exclusive>;
    keys_of_futures_of_many: AcquireMany<TableRef<'t, KeyedRwLock<&'k str>>, Shared>;
    keys_of_tracked_guards: Tracked<PermitGuard<'t, &'k str>>;
}

struct Job<'a> {
    held: MutexGuard<'a, String>,
    name: &'a str,
}

#[test]
fn a_guard_of_a_static_table_fits_into_a_struct_with_a_shorter_lifetime() {
    let locks: &'static KeyedMutex<String> = Box::leak(Box::default());
    let guard: MutexGuard<'static, String> = locks.lock_blocking("a");
    let name = String::from("import");
    fn job<'a>(held: MutexGuard<'static, String>, name: &'a str) -> Job<'a> {
        Job { held, name }
    }
    let job = job(guard, &name);
    assert_eq!((job.held.key().as_str(), job.name), ("a", "import"));
    drop(job);
    assert!(locks.is_empty());
}

#[test]
fn guards_of_two_tables_share_a_list() {
    fn both<'a, 'b: 'a, 'k>(
        one: MutexGuard<'a, &'static str>,
        other: MutexGuard<'b, &'k str>,
    ) -> Vec<MutexGuard<'a, &'k str>> {
        vec![one, other]
    }
    let word = String::from("b");
    let (first, second) = (KeyedMutex::<&'static str>::new(), KeyedMutex::<&str>::new());
    let guards = both(first.lock_blocking(&"a"), second.lock_blocking(&word.as_str()));
    assert_eq!(guards.iter().map(|guard| *guard.key()).collect::<Vec<_>>(), ["a", "b"]);
    drop(guards);
    assert!(first.is_empty() && second.is_empty());
}

#[test]
fn a_guard_with_a_shortened_key_type_releases_its_key() {
    fn shorten<'a, 'k>(
        guard: MapWriteGuard<'a, (&'static str, String), u32>,
        _: &'k str,
    ) -> MapWriteGuard<'a, (&'k str, String), u32> {
        guard
    }
    let map = LockMap::<(&'static str, String), u32>::new();
    let word = String::from("short");
    let mut guard = shorten(map.write_blocking(&("a", "b".into())), &word);
    let mut waiter = Box::pin(map.read(&("a", "b".into())));
    assert!(block_on(futures_lite::future::poll_once(&mut waiter)).is_none());
    guard.insert(7);
    assert_eq!(guard.key().0, "a");
    drop(guard.downgrade());
    assert_eq!(block_on(waiter).value(), Some(&7));
    assert_eq!(map.remove_blocking(&("a", "b".into())), Some(7));
    assert_eq!(map.entries(), 0);
}

#[test]
fn a_handle_with_a_shortened_key_type_locks_its_key() {
    fn shorten<'a, 'k>(
        handle: KeyHandle<'a, KeyedMutex<&'static str>>,
        _: &'k str,
    ) -> KeyHandle<'a, KeyedMutex<&'k str>> {
        handle
    }
    let locks = KeyedMutex::<&'static str>::new();
    let word = String::from("short");
    let handle = shorten(locks.handle(&"a"), &word);
    let guard = handle.lock_blocking();
    assert!(locks.is_locked("a") && handle.try_lock().is_none());
    drop((guard, handle.clone(), handle));
    assert!(locks.is_empty());
}

/// A user's generic wrappers of guards, handles and futures need no bounds on the types of keys and values.
#[allow(dead_code)]
mod generic_wrappers {
    use super::*;

    struct Shelf<'a, K, V> {
        guard: MapReadGuard<'a, K, V>,
    }

    enum Any<'a, K, V, S> {
        Read(MapReadGuard<'a, K, V, S>),
        Upgradable(MapUpgradableGuard<'a, K, V, S>),
        Write(MapWriteGuard<'a, K, V, S>),
        Handle(KeyHandle<'a, LockMap<K, V, S>>),
        Future(MapRead<'a, K, V, S>),
    }

    impl<K, V> Shelf<'_, K, V> {
        fn value(&self) -> Option<&V> {
            self.guard.value()
        }
    }

    trait Named {
        fn name(&self) -> String;
    }

    impl<K: std::fmt::Debug, V> Named for MapReadGuard<'_, K, V> {
        fn name(&self) -> String {
            format!("{:?}", self.key())
        }
    }

    impl<K: std::fmt::Debug, S> Named for MutexGuard<'_, K, S> {
        fn name(&self) -> String {
            format!("{:?}", self.key())
        }
    }

    fn of_any_table<P: TablePtr<Key = String>, M: Mode>(held: &Guard<P, M>) -> &str {
        held.key()
    }

    pub(super) fn key_of_a_handle<'h, T: Table>(handle: &'h KeyHandle<'_, T>) -> &'h T::Key {
        handle.key()
    }

    pub(super) fn mode_of_a_borrow<T: Table, M: Mode>(_: &Guard<TableRef<'_, T>, M>) -> &'static str {
        std::any::type_name::<M>()
    }

    fn of_any_future<P: TablePtr>(future: Acquire<P, Permit>) -> impl Future<Output = Guard<P, Permit>> {
        future
    }
}

#[test]
fn tracked_guards_of_two_tables_share_a_list() {
    let long: &'static KeyedMutex<u64> = Box::leak(Box::default());
    let (short, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    fn keep<'a>(list: &mut Vec<Tracked<MutexGuard<'a, u64>>>, guard: Tracked<MutexGuard<'static, u64>>) {
        list.push(guard);
    }
    let party = detector.party("import");
    let mut guards = vec![party.acquire_blocking(short.lock(&1)).unwrap()];
    keep(&mut guards, party.acquire_blocking(long.lock(&2)).unwrap());
    assert_eq!(guards.iter().map(|guard| *guard.key()).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_type_of_the_table_is_inferred_from_a_borrowed_handle_or_guard() {
    let (locks, map) = (KeyedMutex::<u64>::new(), LockMap::<u64, u8>::new());
    assert_eq!(generic_wrappers::key_of_a_handle(&locks.handle(&7)), &7);
    assert_eq!(generic_wrappers::key_of_a_handle(&map.handle(&8)), &8);
    assert!(generic_wrappers::mode_of_a_borrow(&map.read_blocking(&7)).ends_with("Shared"));
}
