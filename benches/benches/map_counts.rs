//! Like the bench `counts`, for maps. A separate program, because inlining depends on all calls in a program: this
//! way the budgets of locks and of maps do not affect each other.

#![allow(clippy::unit_arg)] // in the expansion of gungraun's macros

use std::hint::black_box;
use std::pin::pin;
use std::task::Poll;

use dashmap::DashMap;
use foldhash::fast::FixedState;
use gungraun::{
    Callgrind, Dhat, DhatMetric, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use keylatch::LockMap;
use keylatch_benches::candidates::{HOT, poll};
use keylatch_benches::maps::Values;

/// A map with a hasher that is the same in every run. Otherwise another key may by chance share the seven bits of a
/// hash that a table compares first, which adds a comparison of keys.
type Map = LockMap<u64, u64, FixedState>;

#[library_benchmark]
#[bench::keylatch(valued::<Map>())]
#[bench::lockmap(valued::<lockmap::LockMap<u64, u64>>())]
#[bench::dash_map(valued::<DashMap<u64, u64, FixedState>>())]
fn map_get<M: Values>(map: &M) {
    black_box(map.get(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(one_of_many::<Map>())]
#[bench::lockmap(one_of_many::<lockmap::LockMap<u64, u64>>())]
#[bench::dash_map(one_of_many::<DashMap<u64, u64, FixedState>>())]
fn map_get_of_many<M: Values>(map: &M) {
    black_box(map.get(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(read_of_many::<Map>())]
#[bench::lockmap(read_of_many::<lockmap::LockMap<u64, u64>>())]
#[bench::dash_map(read_of_many::<DashMap<u64, u64, FixedState>>())]
fn map_read_of_many<M: Values>(map: &M) {
    black_box(map.read(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(one_of_many::<Map>())]
#[bench::lockmap(one_of_many::<lockmap::LockMap<u64, u64>>())]
#[bench::dash_map(one_of_many::<DashMap<u64, u64, FixedState>>())]
fn map_first_read_of_many<M: Values>(map: &M) {
    black_box(map.read(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(valued::<Map>())]
fn map_get_poll(map: &Map) {
    let _ = black_box(poll(pin!(map.get(black_box(&HOT)))));
}

#[library_benchmark]
#[bench::keylatch(valued::<Map>())]
#[bench::lockmap(valued::<lockmap::LockMap<u64, u64>>())]
#[bench::dash_map(valued::<DashMap<u64, u64, FixedState>>())]
fn map_read<M: Values>(map: &M) {
    black_box(map.read(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(valued::<Map>())]
fn map_read_poll(map: &Map) {
    if let Poll::Ready(guard) = poll(pin!(map.read(black_box(&HOT)))) {
        black_box(guard.value().copied());
    }
}

#[library_benchmark]
#[bench::keylatch(valued::<Map>())]
#[bench::lockmap(valued::<lockmap::LockMap<u64, u64>>())]
#[bench::dash_map(valued::<DashMap<u64, u64, FixedState>>())]
fn map_write<M: Values>(map: &M) {
    map.add(black_box(&HOT));
}

#[library_benchmark]
#[bench::keylatch(valued::<Map>())]
fn map_write_poll(map: &Map) {
    if let Poll::Ready(mut guard) = poll(pin!(map.write(black_box(&HOT))))
        && let Some(value) = guard.value_mut()
    {
        *value += 1;
    }
}

// Overwrites an existing value.
#[library_benchmark]
#[bench::keylatch(valued::<Map>())]
#[bench::lockmap(valued::<lockmap::LockMap<u64, u64>>())]
#[bench::dash_map(valued::<DashMap<u64, u64, FixedState>>())]
fn map_insert<M: Values>(map: &M) {
    map.insert(black_box(&HOT), 1);
}

#[library_benchmark]
#[bench::keylatch(empty::<Map>())]
#[bench::lockmap(empty::<lockmap::LockMap<u64, u64>>())]
#[bench::dash_map(empty::<DashMap<u64, u64, FixedState>>())]
fn map_insert_remove<M: Values>(map: &M) {
    map.insert(black_box(&HOT), 1);
    black_box(map.remove(black_box(&HOT)));
}

#[library_benchmark]
#[bench::keylatch(empty::<Map>())]
fn map_insert_remove_poll(map: &Map) {
    let _ = black_box(poll(pin!(map.insert(black_box(&HOT), 1))));
    let _ = black_box(poll(pin!(map.remove(black_box(&HOT)))));
}

#[library_benchmark]
#[bench::keylatch(valued::<Map>())]
#[bench::lockmap(valued::<lockmap::LockMap<u64, u64>>())]
#[bench::dash_map(valued::<DashMap<u64, u64, FixedState>>())]
fn map_get_or_insert<M: Values>(map: &M) {
    black_box(map.get_or_insert_with(black_box(&HOT), || 1));
}

/// Creates a map in which one key has a value.
fn valued<M: Values>() -> &'static M {
    ready(|map: &M| {
        map.insert(&HOT, 1);
        // The first use of a value sets a mark.
        map.get(&HOT);
    })
}

/// Creates a map in which many keys have values.
fn one_of_many<M: Values>() -> &'static M {
    ready(|map: &M| {
        (1_000..3_000).for_each(|key| map.insert(&key, 1));
        map.insert(&HOT, 1);
        // The first use of a value sets a mark.
        map.get(&HOT);
    })
}

/// Creates a map in which many keys have values, one of which has been read through a guard.
fn read_of_many<M: Values>() -> &'static M {
    let map: &M = one_of_many();
    map.read(&HOT);
    map
}

/// Creates a map whose only value has been removed.
fn empty<M: Values>() -> &'static M {
    ready(|map: &M| {
        map.insert(&HOT, 1);
        map.remove(&HOT);
    })
}

/// Creates a map and uses it. The map is leaked, so that its drop is not counted.
fn ready<M: Values>(make_use: impl Fn(&M)) -> &'static M {
    let map = M::empty();
    make_use(&map);
    Box::leak(Box::new(map))
}

library_benchmark_group!(
    name = values,
    benchmarks = [
        map_get,
        map_get_of_many,
        map_get_poll,
        map_read,
        map_read_of_many,
        map_first_read_of_many,
        map_read_poll,
        map_write,
        map_write_poll,
        map_insert,
        map_insert_remove,
        map_insert_remove_poll,
        map_get_or_insert
    ]
);
main!(
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().format([EventKind::Ir]))
        .tool(Dhat::default().format([DhatMetric::TotalBlocks])),
    library_benchmark_groups = values
);
