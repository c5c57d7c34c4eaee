//! Types of the map: which are `Send` and `Sync`, and which bounds each needs.

#![allow(dead_code)] // each use of the macros needs only some of their probes

mod common;

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use common::ready;
use keylatch::{
    AddOrUpdate, Batch, BatchConflict, Conflict, KeyHandle, KeyHandleArc, LockMap, MapReadGuard, MapReadGuardArc,
    MapUpgradableGuard, MapUpgradableGuardArc, MapWriteGuard, MapWriteGuardArc, TryBatchError, Version,
};

/// Whether a type implements a trait: the inherent constant takes precedence where its bound holds.
macro_rules! is {
    ($Type:ty: $($Trait:tt)+) => {{
        trait Otherwise {
            const IS: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        struct Is<T: ?Sized>(std::marker::PhantomData<T>);
        impl<T: ?Sized + $($Trait)+> Is<T> {
            const IS: bool = true;
        }
        <Is<$Type>>::IS
    }};
}

/// `Send`, but not `Sync`.
type Celled = Cell<u64>;
/// Neither `Send` nor `Sync`.
type Shared = Rc<u64>;
/// A hasher that is not `Sync`.
#[derive(Clone, Default)]
struct CellHasher(#[allow(dead_code)] Cell<u8>, RandomState);

impl BuildHasher for CellHasher {
    type Hasher = <RandomState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        self.1.build_hasher()
    }
}

/// A value type, or a hasher, that implements no trait, not even `Debug`.
struct Plain;

macro_rules! both {
    ($expected:expr; $($Type:ty),+ $(,)?) => {$(
        assert_eq!((is!($Type: Send), is!($Type: Sync)), ($expected, $expected), stringify!($Type));
    )+};
}

/// Checks the guards, the handle and the acquiring futures of a map with these parameters.
macro_rules! parts {
    ($expected:expr; $K:ty, $V:ty, $S:ty) => {
        both!($expected;
            MapReadGuard<'static, $K, $V, $S>, MapUpgradableGuard<'static, $K, $V, $S>, MapWriteGuard<'static, $K, $V, $S>,
            KeyHandle<'static, LockMap<$K, $V, $S>>,
            keylatch::futures::MapRead<'static, $K, $V, $S>, keylatch::futures::MapUpgradableRead<'static, $K, $V, $S>,
            keylatch::futures::MapWrite<'static, $K, $V, $S>,
        )
    };
}

#[test]
fn a_map_and_its_parts_are_send_and_sync_if_keys_and_values_are() {
    both!(true; LockMap<u64, String>);
    both!(false; LockMap<Celled, u64>, LockMap<u64, Celled>, LockMap<u64, Shared>, LockMap<Shared, u64>);
    assert!(is!(LockMap<u64, u64, CellHasher>: Send) && !is!(LockMap<u64, u64, CellHasher>: Sync));
    parts!(true; u64, String, RandomState);
    parts!(true; u64, String, CellHasher);
    parts!(false; u64, Celled, RandomState);
    parts!(false; Celled, u64, RandomState);
    parts!(false; u64, Shared, RandomState);
    both!(true;
        MapReadGuardArc<u64, u64, RandomState>, MapUpgradableGuardArc<u64, u64, RandomState>,
        MapWriteGuardArc<u64, u64, RandomState>, KeyHandleArc<LockMap<u64, u64, RandomState>>,
    );
    both!(false; MapReadGuardArc<u64, Celled, RandomState>, MapWriteGuardArc<Celled, u64, RandomState>);
    both!(true; Batch<'static, u64, String, RandomState>, TryBatchError<'static, u64, String, RandomState>);
    both!(false; Batch<'static, u64, Celled, RandomState>, Batch<'static, u64, u64, CellHasher>);
    both!(true; Version, Conflict<u64>, AddOrUpdate<u64>, BatchConflict<u64>);
    assert!(is!(Conflict<Celled>: Send) && !is!(Conflict<Shared>: Send));
}

fn both<F: Send + Sync>(future: F) -> F {
    future
}

/// Returns whether the type of a value is `Send` and `Sync`.
macro_rules! of {
    ($value:expr) => {{
        struct Probe<'a, T>(&'a T);
        trait Otherwise {
            fn is(&self) -> bool {
                false
            }
        }
        impl<T> Otherwise for &Probe<'_, T> {}
        trait IsBoth {
            fn is(&self) -> bool {
                true
            }
        }
        impl<T: Send + Sync> IsBoth for Probe<'_, T> {}
        let value = $value;
        let answer = (&Probe(&value)).is(); // the method on the reference takes precedence where its bound holds
        drop(value);
        answer
    }};
}

#[test]
fn futures_of_one_call_are_send_and_sync_if_keys_and_values_are() {
    fn check<S: BuildHasher + Default>() {
        let map = LockMap::<String, String, S>::default();
        drop(both(map.get("a")));
        drop(both(map.insert("a", "x".into())));
        drop(both(map.remove("a")));
        drop(both(map.add_or_update("a", "x".into())));
        drop(both(map.get_or_insert_with("a", || std::future::ready("x".into()))));
        drop(both(map.get_or_insert_with("a", async || "x".into())));
        drop(both(map.get_or_try_insert_with("a", || std::future::ready(Err::<String, u8>(1)))));
        let ages = LockMap::<String, String>::builder().record_ages().hasher(S::default()).build();
        drop(both(ages.get_or_refresh_with("a", Duration::ZERO, async || "x".into())));
        drop(both(ages.get_or_try_refresh_with("a", Duration::ZERO, || std::future::ready(Err::<String, u8>(1)))));
        let version = {
            map.insert_blocking("b", "x".into());
            map.read_blocking("b").version().unwrap()
        };
        drop(both(map.update_if("a", version, "x".into())));
        drop(both(map.remove_if("a", version)));
        drop(both(map.read_many(["a", "b"])));
    }
    check::<RandomState>();
    check::<CellHasher>();
    let map = LockMap::<String, String>::new();
    drop(both(map.batch().insert("a", "x".into()).commit()));
    // With a key or value that is not `Send`, the future is not `Send` either.
    let cells = LockMap::<u64, Celled>::new();
    assert!(!of!(cells.insert(&1, Cell::new(1))) && !of!(cells.remove(&1)) && !of!(cells.batch().remove(&1).commit()));
    let shared = LockMap::<Shared, u64>::new();
    assert!(!of!(shared.get(&Rc::new(1))) && !of!(shared.insert(&Rc::new(1), 1)));
    let numbers = LockMap::<u64, u64>::new();
    assert!(of!(numbers.insert(&1, 1)));
}

#[test]
fn a_task_that_holds_a_guard_or_runs_a_call_can_be_spawned() {
    fn spawn<F: Future + Send + 'static>(future: F) -> F::Output {
        futures_lite::future::block_on(future)
    }
    let map = Arc::new(LockMap::<String, u32>::new());
    let shared = map.clone();
    let seen = spawn(async move {
        shared.insert("a", 1).await;
        let mut guard = shared.write_arc("a").await;
        shared.add_or_update("b", 2).await;
        *guard.value_mut().unwrap() += 1;
        let made = shared.get_or_insert_with("c", async || shared.get("b").await.unwrap()).await;
        shared.batch().insert("d", 4).commit().await.unwrap();
        (*guard.value().unwrap(), *made.value().unwrap(), guard)
    });
    assert_eq!((seen.0, seen.1, seen.2.key().as_str()), (2, 2, "a"));
}

#[test]
fn a_map_and_its_parts_are_debug_without_bounds() {
    fn debug(value: impl Debug) -> String {
        format!("{value:?}")
    }
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key(u8);
    let map = LockMap::<Key, Plain>::new();
    assert!(debug(&map).starts_with("LockMap"));
    assert!(debug(LockMap::<Key, Plain>::builder()).contains("max_values"));
    let batch = map.batch().insert(&Key(1), Plain);
    assert!(debug(&batch).starts_with("Batch"));
    let guard = map.try_write(&Key(1));
    let Err(busy) = batch.try_commit() else { panic!("a key is held") };
    assert!(debug(&busy).starts_with("Busy"));
    drop((busy, guard));
    let Err(conflict) = map.batch().insert(&Key(1), Plain).check_absent(&Key(1)).commit_blocking() else { panic!() };
    assert!(debug(&conflict).starts_with("BatchConflict") && conflict.to_string().contains("step 1"));
    let wrapped = TryBatchError::<'_, Key, Plain, RandomState>::Conflict(conflict);
    assert!(debug(&wrapped).starts_with("Conflict"));
    fn error(error: impl std::error::Error) -> String {
        error.to_string()
    }
    assert!(!error(wrapped).is_empty());
    map.insert_blocking(&Key(1), Plain);
    let version = map.read_blocking(&Key(1)).version().unwrap();
    let Err(conflict) = map.update_if_blocking(&Key(2), version, Plain) else { panic!("there is no value") };
    assert!(debug(&conflict).starts_with("Conflict") && !error(conflict).is_empty());
    assert!(debug(AddOrUpdate::<Plain>::Added).contains("Added"));
    assert!(debug(AddOrUpdate::Updated(Plain)).contains("Updated"));
    assert!(debug(map.into_iter()).starts_with("IntoIter"));
    assert!(debug(version).starts_with("Version"));
}

#[test]
fn versions_and_outcomes_are_plain_values() {
    fn plain<T: Copy + Eq + Ord + Hash + Debug + Send + Sync + UnwindSafe + RefUnwindSafe + 'static>(value: T) -> T {
        value
    }
    let map = LockMap::<u64, String>::new();
    let version = plain({
        map.insert_blocking(&1, "a".into());
        map.read_blocking(&1).version().unwrap()
    });
    let number: u64 = version.get();
    assert_eq!(number, map.read_blocking(&1).version().unwrap().get());
    let outcome = ready(Box::pin(map.add_or_update(&1, "b".into())));
    assert_eq!(outcome.clone(), AddOrUpdate::Updated("a".into()));
    assert!(is!(AddOrUpdate<String>: Clone + PartialEq + Eq) && !is!(AddOrUpdate<Plain>: Clone));
}

#[test]
fn a_map_is_unwind_safe_like_the_other_tables() {
    assert!(is!(LockMap<u64, Celled>: UnwindSafe + RefUnwindSafe));
    assert!(is!(MapWriteGuard<'static, u64, u64>: UnwindSafe));
}
