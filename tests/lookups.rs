//! The requirements of look-ups on their key argument: a call that never makes an entry works without `ToKey`, and a
//! call that finds an entry does not copy the key. tests/allocations.rs counts allocations.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::Fixed;
use futures_lite::future::{block_on, poll_once};
use keylatch::{Equivalent, LockMap, ToKey, Version};

fn version(map: &LockMap<&'static str, u32>, key: &str) -> Version {
    let mut seen = None;
    map.for_each_value(|found, _, version| {
        if *found == key {
            seen = Some(version);
        }
    });
    seen.unwrap()
}

#[test]
fn a_map_of_static_strings_is_looked_up_by_any_string_in_every_form() {
    let map = LockMap::<&'static str, u32>::new();
    map.insert_blocking(&"a", 1);
    let name = String::from("a");
    assert_eq!((map.get_blocking("a"), map.get_blocking(name.as_str())), (Some(1), Some(1)));
    block_on(async {
        assert_eq!(map.get("a").await, Some(1));
        let changed = map.update_if(name.as_str(), version(&map, "a"), 2).await.unwrap();
        assert_eq!(map.remove_if(name.as_str(), changed).await.unwrap(), 2);
        map.insert(&"a", 3).await;
        assert_eq!(map.remove(name.as_str()).await, Some(3));
        assert_eq!((map.get("a").await, map.remove("a").await), (None, None));
    });
    assert_eq!(map.entries(), 0);
}

/// A key that is not `Clone`.
#[derive(PartialEq, Eq, Hash)]
struct Token(String);

/// A form that can look up a [`Token`], but cannot make one.
#[derive(Hash)]
struct Named<'a>(&'a str);

impl Equivalent<Token> for Named<'_> {
    fn equivalent(&self, key: &Token) -> bool {
        self.0 == key.0
    }
}

#[test]
fn a_look_up_needs_no_to_key() {
    let map: LockMap<Token, u32> = [(Token("a".into()), 1)].into_iter().collect();
    block_on(async {
        assert_eq!(map.get(&Named("a")).await, Some(1));
        assert_eq!(map.get(&Named("b")).await, None);
        assert_eq!(map.remove(&Named("a")).await, Some(1));
    });
    assert_eq!(map.entries(), 0);
}

/// A borrowed form that counts the keys that are made from it.
#[derive(Hash)]
struct Counting<'a>(&'a str, #[allow(dead_code)] Uncounted<'a>);

struct Uncounted<'a>(&'a Cell<usize>);

impl std::hash::Hash for Uncounted<'_> {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl Equivalent<String> for Counting<'_> {
    fn equivalent(&self, key: &String) -> bool {
        self.0 == key
    }
}

impl ToKey<String> for Counting<'_> {
    fn to_key(&self) -> String {
        self.1.0.set(self.1.0.get() + 1);
        self.0.to_owned()
    }
}

#[test]
fn an_async_call_on_a_key_that_has_a_value_makes_no_key() {
    let map = LockMap::<String, u32>::new();
    let made = Cell::new(0);
    let key = Counting("a", Uncounted(&made));
    block_on(async {
        assert_eq!(map.insert(&key, 1).await, None);
        assert_eq!(made.take(), 1);
        map.insert(&key, 2).await;
        map.get(&key).await;
        drop(map.get_or_insert_with(&key, async || 3).await);
        drop(map.get_or_try_insert_with(&key, async || Ok::<_, ()>(3)).await);
        map.add_or_update(&key, 4).await;
        assert_eq!(map.remove(&key).await, Some(4));
    });
    assert_eq!((made.get(), map.entries()), (0, 0));
}

#[test]
fn a_refresh_makes_no_key() {
    let map: LockMap<String, u32> = LockMap::builder().record_ages().build();
    map.insert_blocking("a", 1);
    let made = Cell::new(0);
    let key = Counting("a", Uncounted(&made));
    assert_eq!(block_on(map.get_or_refresh_with(&key, Duration::ZERO, async || 2)), 2);
    assert_eq!(map.get_or_refresh_with_blocking(&key, Duration::ZERO, || 3), 3);
    assert_eq!((made.get(), map.entries()), (0, 1));
}

#[test]
fn a_look_up_of_a_key_without_an_entry_finds_nothing_even_if_it_is_polled_later() {
    let map = LockMap::<String, u32>::new();
    let (get, remove) = (map.get("a"), map.remove("a"));
    map.insert_blocking("a", 1);
    assert_eq!((block_on(get), block_on(remove)), (None, None));
    assert_eq!(map.get_blocking("a"), Some(1));
}

#[test]
fn a_look_up_of_a_key_with_an_entry_sees_the_value_at_the_first_poll() {
    let map = LockMap::<String, u32>::new();
    map.insert_blocking("a", 1);
    let (get, again, remove) = (map.get("a"), map.get("a"), map.remove("a"));
    map.insert_blocking("a", 2);
    assert_eq!(block_on(get), Some(2));
    assert_eq!(block_on(remove), Some(2));
    assert_eq!(block_on(again), None);
    assert_eq!(map.entries(), 0);
}

#[test]
fn a_dropped_look_up_leaves_no_entry() {
    let map = LockMap::<String, Rc<u32>>::new();
    map.insert_blocking("a", Rc::new(1));
    let (get, insert) = (map.get("a"), map.insert("a", Rc::new(2)));
    assert_eq!(map.remove_blocking("a").as_deref(), Some(&1));
    // The futures keep the entry that they have found.
    assert_eq!((map.len(), map.entries()), (0, 1));
    drop(get);
    assert_eq!(block_on(insert), None);
    assert_eq!((map.len(), map.entries()), (1, 1));
    let writer = map.write_blocking("a");
    let mut waits = Box::pin(map.get("a"));
    assert!(block_on(poll_once(&mut waits)).is_none());
    drop((waits, writer));
    assert_eq!(map.remove_blocking("a").as_deref(), Some(&2));
    assert_eq!(map.entries(), 0);
}

#[test]
fn calls_on_a_bounded_map_evict_the_excess() {
    let map: LockMap<String, u32, Fixed> = LockMap::builder().max_values(2).shards(1).hasher(Fixed::default()).build();
    block_on(async {
        for (value, key) in (0..).zip(["a", "b", "c", "d", "c", "d"]) {
            map.insert(key, value).await;
            assert!(map.len() <= 2);
        }
        let unpolled = (map.get("c"), map.insert("d", 9));
        map.insert("e", 7).await;
        map.insert("f", 7).await;
        assert_eq!(map.len(), 2);
        assert_eq!(unpolled.0.await, None);
        assert_eq!(unpolled.1.await, None);
        assert_eq!(map.len(), 2);
    });
    assert_eq!(map.entries(), 2);
}
