//! Operations of a map, for tests in which a user's function that the map calls panics.
#![allow(dead_code, unreachable_pub)] // no test program uses all of it

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use futures_lite::future::block_on;
use keylatch::LockMap;

/// The payload of a panic that a test expects.
pub struct Expected;

/// Calls `f`, and returns whether it has panicked as expected.
pub fn panics(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => false,
        Err(payload) if payload.is::<Expected>() => true,
        Err(payload) => resume_unwind(payload),
    }
}

/// See [`operations`].
pub type Operation = fn(&LockMap<String, u64>);

/// Returns operations on a map whose values have recorded properties, such as a deadline or a weight: operations that
/// read, store, change, remove or visit values, in each way of holding a key.
#[allow(dropping_copy_types, clippy::drop_non_drop)] // the calls are made only for their effect
pub fn operations() -> Vec<(&'static str, Operation)> {
    vec![
        ("get", |map| drop(map.get_blocking("a"))),
        ("peek", |map| drop(map.peek_blocking("a"))),
        ("read", |map| drop(map.read_blocking("a"))),
        ("write", |map| *map.write_blocking("a").get_or_insert_with(|| 1) += 1),
        ("insert", |map| drop(map.insert_blocking("a", 2))),
        ("insert as a task", |map| drop(block_on(map.insert("a", 2)))),
        ("insert another", |map| drop(map.insert_blocking("c", 2))),
        ("insert if absent", |map| drop(map.insert_if_absent_blocking("c", 2))),
        ("update", |map| drop(map.update_blocking("a", |value| *value += 1))),
        ("add or update", |map| {
            map.add_or_update_blocking("a", 9);
        }),
        ("remove", |map| drop(map.remove_blocking("a"))),
        ("get or insert", |map| drop(map.get_or_insert_with_blocking("a", || 3))),
        ("get or insert another", |map| drop(map.get_or_insert_with_blocking("c", || 3))),
        ("compute", |map| drop(map.compute_blocking("a", |value| value.map(|value| value + 1)))),
        ("slot", |map| *map.write_blocking("a").value_slot() = Some(4)),
        ("batch", |map| drop(map.batch().insert("a", 5).check_absent("d").insert("b", 6).commit_blocking())),
        ("write many", |map| map.write_many_blocking(["a", "b", "c"]).iter_mut().for_each(|key| drop(key.insert(7)))),
        ("upgrade", |map| drop(map.upgradable_read_blocking("a").upgrade_blocking().insert(1))),
        ("upgrade for a moment", |map| {
            let mut reader = map.upgradable_read_blocking("a");
            reader.upgrade_mut_blocking().insert(1);
        }),
        ("downgrade", |map| {
            let mut writer = map.write_blocking("a");
            writer.insert(7);
            drop(writer.downgrade_to_upgradable().downgrade());
        }),
        ("unlock fair", |map| {
            let mut writer = map.write_blocking("a");
            writer.insert(7);
            writer.unlock_fair();
        }),
        ("handle", |map| drop(map.handle("a").write_blocking().insert(3))),
        ("walk", |map| {
            let mut walk = map.walk();
            while walk.next_read_blocking().is_some() {}
        }),
        ("for each", |map| drop(map.for_each_value(|_, _, _| {}))),
        ("retain", |map| drop(map.retain(|_, value| value % 2 == 0))),
        ("pop", |map| drop(map.pop())),
        ("len", |map| drop(map.len())),
        ("contains", |map| drop(map.contains_key("a"))),
        ("tick", |map| drop(map.tick())),
    ]
}
