//! Instructions and allocations of single operations in steady state, as callgrind and DHAT count them. They do not
//! depend on what else the machine does: so keylatch's have limits, and the run fails where one is exceeded.

#![allow(clippy::unit_arg)] // in what gungraun's macros make

use std::hint::black_box;
use std::mem;
use std::pin::pin;

use gungraun::{
    Callgrind, Dhat, DhatMetric, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use key_lock::KeyLock;
use keylatch::KeyedMutex;
use keylatch_benches::candidates::{
    BareTable, HOT, HOT_STR, KeyedLocks, Locks, OneHandle, StdMap, TokioDashMap, poll, recycling,
};
use lockable::LockPool;
use lockmap::LockMap;

#[library_benchmark]
#[bench::keylatch(args = (warm(KeyedMutex::<u64>::new(), &HOT)), config = limits(156, 0))]
#[bench::handle(args = (warm(OneHandle::default(), &HOT)), config = limits(74, 0))]
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
#[bench::keylatch(args = (warm(KeyedMutex::<String>::new(), HOT_STR)), config = limits(423, 1))]
#[bench::recycle_keys(args = (warm(recycling(), HOT_STR)), config = limits(281, 0))]
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
#[bench::keylatch(args = (warm(KeyedMutex::<u64>::new(), &HOT)), config = limits(155, 0))]
#[bench::handle(args = (warm(OneHandle::default(), &HOT)), config = limits(71, 0))]
fn try_u64<L: Locks<u64>>(locks: &L) {
    drop(locks.try_lock(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(args = (held(KeyedMutex::<u64>::new(), &HOT)), config = limits(99, 0))]
#[bench::handle(args = (held(OneHandle::default(), &HOT)), config = limits(17, 0))]
fn busy_try_u64<L: Locks<u64>>(locks: &L) {
    drop(locks.try_lock(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(args = (warm(KeyedMutex::<u64>::new(), &HOT)), config = limits(188, 0))]
#[bench::handle(args = (warm(OneHandle::default(), &HOT)), config = limits(106, 0))]
#[bench::lockable(warm(LockPool::<u64>::new(), &HOT))]
#[bench::key_lock(warm(KeyLock::<u64>::new(), &HOT))]
#[bench::dash_map(warm(TokioDashMap::<u64>::default(), &HOT))]
fn poll_u64<L: Locks<u64>>(locks: &L) {
    if let Some(future) = locks.lock(black_box(&HOT)) {
        drop(poll(pin!(future)));
    }
}

/// A table whose first operation, which allocates, is over. It is leaked, because its end is not to be counted.
fn warm<Q: ?Sized, L: Locks<Q>>(locks: L, key: &Q) -> &'static L {
    drop(locks.lock_blocking(key));
    Box::leak(Box::new(locks))
}

/// The same with the key held for ever.
fn held<Q: ?Sized, L: Locks<Q>>(locks: L, key: &Q) -> &'static L {
    let locks = warm(locks, key);
    mem::forget(locks.lock_blocking(key));
    locks
}

/// Limits that are a recorded count of instructions and 2 % more, and a number of allocations. They were recorded on
/// x86-64 with Rust 1.95. Other compilers inline otherwise, and so does this one when there are other benchmarks in
/// this file.
fn limits(instructions: u64, allocations: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, instructions * 102 / 100)]));
    config.tool(Dhat::default().hard_limits([(DhatMetric::TotalBlocks, allocations)]));
    config
}

library_benchmark_group!(name = single, benchmarks = [blocking_u64, blocking_str, try_u64, busy_try_u64, poll_u64]);
main!(
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().format([EventKind::Ir]))
        .tool(Dhat::default().format([DhatMetric::TotalBlocks])),
    library_benchmark_groups = single
);
