//! Instructions and allocations of single operations in steady state, as counted by callgrind and DHAT. They do not
//! depend on the load of the machine, so keylatch's counts have a budget, `budget.txt`, which `.ci/counts` checks.

#![allow(clippy::unit_arg)] // in the expansion of gungraun's macros

use std::hint::black_box;
use std::mem;
use std::pin::pin;

use gungraun::{
    Callgrind, Dhat, DhatMetric, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use key_lock::KeyLock;
use keylatch::{KeyedMutex, Latch, Striped};
use keylatch_benches::candidates::{
    BareTable, HOT, HOT_STR, KeyedLocks, Locks, OneHandle, StdMap, TokioDashMap, poll, recycling,
};
use lockable::LockPool;
use lockmap::LockMap;

#[library_benchmark]
#[bench::keylatch(warm(KeyedMutex::<u64>::new(), &HOT))]
#[bench::observed(warm(observed(), &HOT))]
#[bench::handle(warm(OneHandle::default(), &HOT))]
#[bench::lockmap(warm(LockMap::<u64, ()>::new(), &HOT))]
#[bench::lockable(warm(LockPool::<u64>::new(), &HOT))]
#[bench::keyed_lock(warm(KeyedLocks::<u64>::default(), &HOT))]
#[bench::key_lock(warm(KeyLock::<u64>::new(), &HOT))]
#[bench::dash_map(warm(TokioDashMap::<u64>::default(), &HOT))]
#[bench::std_map(warm(StdMap::<u64>::default(), &HOT))]
#[bench::bare_table(warm(BareTable::<u64>::default(), &HOT))]
fn blocking_u64<L: Locks<u64>>(locks: &L) {
    drop(locks.lock_blocking(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(warm(KeyedMutex::<String>::new(), HOT_STR))]
#[bench::recycle_keys(warm(recycling(), HOT_STR))]
#[bench::lockmap(warm(LockMap::<String, ()>::new(), HOT_STR))]
#[bench::lockable(warm(LockPool::<String>::new(), HOT_STR))]
#[bench::keyed_lock(warm(KeyedLocks::<String>::default(), HOT_STR))]
#[bench::key_lock(warm(KeyLock::<String>::new(), HOT_STR))]
#[bench::dash_map(warm(TokioDashMap::<String>::default(), HOT_STR))]
#[bench::std_map(warm(StdMap::<String>::default(), HOT_STR))]
#[bench::bare_table(warm(BareTable::<String>::default(), HOT_STR))]
fn blocking_str<L: Locks<str>>(locks: &L) {
    drop(locks.lock_blocking(black_box(HOT_STR)));
}

#[library_benchmark]
#[bench::keylatch(warm(KeyedMutex::<u64>::new(), &HOT))]
#[bench::handle(warm(OneHandle::default(), &HOT))]
fn try_u64<L: Locks<u64>>(locks: &L) {
    drop(locks.try_lock(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(held(KeyedMutex::<u64>::new(), &HOT))]
#[bench::handle(held(OneHandle::default(), &HOT))]
fn busy_try_u64<L: Locks<u64>>(locks: &L) {
    drop(locks.try_lock(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(warm(KeyedMutex::<u64>::new(), &HOT))]
#[bench::observed(warm(observed(), &HOT))]
#[bench::handle(warm(OneHandle::default(), &HOT))]
#[bench::lockable(warm(LockPool::<u64>::new(), &HOT))]
#[bench::key_lock(warm(KeyLock::<u64>::new(), &HOT))]
#[bench::dash_map(warm(TokioDashMap::<u64>::default(), &HOT))]
fn poll_u64<L: Locks<u64>>(locks: &L) {
    if let Some(future) = locks.lock(black_box(&HOT)) {
        drop(poll(pin!(future)));
    }
}

// A waiter registers and is cancelled.
#[library_benchmark]
#[bench::keylatch(held(KeyedMutex::<u64>::new(), &HOT))]
#[bench::lockable(held(LockPool::<u64>::new(), &HOT))]
#[bench::dash_map(held(TokioDashMap::<u64>::default(), &HOT))]
fn cancel_u64<L: Locks<u64>>(locks: &L) {
    if let Some(future) = locks.lock(black_box(&HOT)) {
        drop(poll(pin!(future)));
    }
}

// A key is locked, waited for, released, and acquired by the waiter.
#[library_benchmark]
#[bench::keylatch(waited(KeyedMutex::<u64>::new(), &HOT))]
#[bench::lockable(waited(LockPool::<u64>::new(), &HOT))]
#[bench::dash_map(waited(TokioDashMap::<u64>::default(), &HOT))]
fn hand_over_u64<L: Locks<u64>>(locks: &L) {
    let guard = locks.try_lock(black_box(&HOT));
    if let Some(future) = locks.lock(black_box(&HOT)) {
        let mut future = pin!(future);
        let waiting = poll(future.as_mut());
        drop(guard);
        drop((waiting, poll(future)));
    }
}

// Latches, and stripes of them.

#[library_benchmark]
#[bench::keylatch(&LATCH)]
fn latch_write(latch: &Latch) {
    drop(black_box(latch).write_blocking());
}

#[library_benchmark]
#[bench::keylatch(&LATCH)]
fn latch_read(latch: &Latch) {
    drop(black_box(latch).read_blocking());
}

#[library_benchmark]
#[bench::keylatch(&LATCH)]
fn latch_write_poll(latch: &Latch) {
    drop(poll(pin!(black_box(latch).write())));
}

#[library_benchmark]
#[bench::keylatch(&LATCH)]
fn latch_read_poll(latch: &Latch) {
    drop(poll(pin!(black_box(latch).read())));
}

#[library_benchmark]
#[bench::keylatch(waited_for(&LATCH))]
fn latch_hand_over(latch: &Latch) {
    let guard = latch.try_write();
    let mut future = pin!(latch.write());
    let waiting = poll(future.as_mut());
    drop(guard);
    drop((waiting, poll(future)));
}

#[library_benchmark]
#[bench::keylatch(stripes())]
fn striped_write(striped: &Striped<u64>) {
    drop(striped.write_blocking(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(stripes())]
fn striped_write_many(striped: &Striped<u64>) {
    drop(striped.write_many_blocking(black_box(&[HOT, HOT + 1])));
}

static LATCH: Latch = Latch::new();

/// Returns the latch after it has had a waiter.
fn waited_for(latch: &'static Latch) -> &'static Latch {
    let _guard = latch.try_write();
    drop(poll(pin!(latch.write())));
    latch
}

fn stripes() -> &'static Striped<u64> {
    Box::leak(Box::new(Striped::new(1024)))
}

/// Creates a table with an observer, which must cost nothing where no call waits.
fn observed() -> KeyedMutex<u64> {
    KeyedMutex::builder().on_wait(|event| _ = black_box(event.id())).build()
}

/// Returns a table after its first operation, which allocates. The table is leaked, so that its drop is not counted.
fn warm<Q: ?Sized, L: Locks<Q>>(locks: L, key: &Q) -> &'static L {
    drop(locks.lock_blocking(key));
    Box::leak(Box::new(locks))
}

/// Returns the same table after it has had a waiter.
fn waited<Q: ?Sized, L: Locks<Q>>(locks: L, key: &Q) -> &'static L {
    let locks = warm(locks, key);
    let _guard = locks.try_lock(key);
    if let Some(future) = locks.lock(key) {
        drop(poll(pin!(future)));
    }
    locks
}

/// Returns the same table with the key held for ever.
fn held<Q: ?Sized, L: Locks<Q>>(locks: L, key: &Q) -> &'static L {
    let locks = waited(locks, key);
    mem::forget(locks.lock_blocking(key));
    locks
}

library_benchmark_group!(
    name = single,
    benchmarks = [blocking_u64, blocking_str, try_u64, busy_try_u64, poll_u64, cancel_u64, hand_over_u64]
);
library_benchmark_group!(
    name = latches,
    benchmarks = [
        latch_write,
        latch_read,
        latch_write_poll,
        latch_read_poll,
        latch_hand_over,
        striped_write,
        striped_write_many
    ]
);
main!(
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().format([EventKind::Ir]))
        .tool(Dhat::default().format([DhatMetric::TotalBlocks])),
    library_benchmark_groups = [single, latches]
);
