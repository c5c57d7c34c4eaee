//! The same hostile keys in a map whose values are equally hostile.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use keylatch::{Fairness, KeyHandleArc, LockMap, MapReadGuardArc, MapWriteGuardArc};

use super::{Act, Expected, FEW, Identity, Key, LeftAlone, MANY, May, OTHER, Owning, STAGE, hook, quietly, waker};
use crate::common::Bytes;

/// A hostile value, which is recorded together with the keys.
type Value = Owning<false>;
type Map<K> = LockMap<K, Value, Identity>;

/// A call that may have to wait.
struct Call {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Rc<Cell<bool>>,
}

impl Call {
    fn poll(&mut self) -> bool {
        self.woken.set(false);
        let waker = waker(&self.woken);
        let ready = self.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        drop(waker);
        ready
    }
}

/// A map, its guards and its calls. An operation takes the objects it uses out of the lists: hostile code never finds
/// them, and a panic drops them.
pub(super) struct MapWorld<K: Key> {
    map: Arc<Map<K>>,
    keys: u8,
    most: Option<usize>,
    writers: RefCell<Vec<MapWriteGuardArc<K, Value, Identity>>>,
    readers: RefCell<Vec<MapReadGuardArc<K, Value, Identity>>>,
    handles: RefCell<Vec<KeyHandleArc<Map<K>>>>,
    calls: RefCell<Vec<Call>>,
}

/// The maximum number of objects of each kind.
const CROWD: usize = 4;

impl<K: Key> MapWorld<K> {
    pub(super) fn new(settings: u8, policy: u8) -> Rc<Self> {
        let fairness = [Fairness::Adaptive, Fairness::Bounded(0), Fairness::Fifo, Fairness::Barging];
        let builder = LockMap::builder().shards(1).recycle_keys(settings % 2 == 1).hasher(Identity(0));
        let builder = builder.fairness(fairness[usize::from(policy % 4)]);
        let most = [None, Some(1), Some(2), Some(5)][usize::from(settings / 2 % 4)];
        let builder = if let Some(most) = most { builder.max_values(most) } else { builder };
        Rc::new(MapWorld {
            map: Arc::new(builder.build()),
            keys: if policy / 4 % 4 == 3 { MANY } else { FEW },
            most,
            writers: RefCell::default(),
            readers: RefCell::default(),
            handles: RefCell::default(),
            calls: RefCell::default(),
        })
    }

    pub(super) fn run(self: Rc<Self>, mut operations: Bytes<'_>) {
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
    fn put<T>(pile: &RefCell<Vec<T>>, thing: T) {
        let mut pile = pile.borrow_mut();
        if pile.len() < CROWD {
            pile.push(thing);
        } else {
            drop(pile);
            drop(thing);
        }
    }

    fn poll(&self, mut call: Call) {
        if !call.poll() {
            Self::put(&self.calls, call);
        }
    }

    /// Begins a call, and polls it or not, as the byte says.
    fn call(&self, whom: u8, future: impl Future<Output = ()> + 'static) {
        let call = Call { future: Box::pin(future), woken: Rc::default() };
        if whom >= 192 { Self::put(&self.calls, call) } else { self.poll(call) }
    }

    /// Checks after a panic that the map still works, on a key that was not involved.
    fn check_usable(&self) {
        let key = K::new(OTHER);
        let mut writer = self.map.try_write(&key).expect("the key is free");
        assert!(self.map.try_read(&key).is_none());
        assert!(writer.insert(Value::new(1)).is_none());
        assert!(self.map.contains_key(&key));
        assert_eq!(writer.remove().map(|value| value.id()), Some(1));
        drop(writer);
        assert!(!self.map.contains_key(&key));
    }

    fn check(&self) {
        let (values, entries) = (self.map.len(), self.map.entries());
        assert!(values <= entries, "{values} values in {entries} entries");
        let in_use = self.writers.borrow().len()
            + self.readers.borrow().len()
            + self.handles.borrow().len()
            + self.calls.borrow().len();
        if in_use == 0 {
            assert_eq!(values, entries, "an entry without a user and without a value");
            assert!(self.most.is_none_or(|most| values <= most), "{values} unused values exceed the bound");
        }
    }

    /// Drops all guards. Then all calls complete, and nothing may be left.
    fn finish(self: Rc<Self>) {
        self.writers.take();
        self.readers.take();
        self.handles.take();
        // A call has up to three steps, at each of which it may wait for all others.
        for _ in 0..3 * CROWD {
            self.calls.borrow_mut().retain_mut(|call| !call.poll());
        }
        assert!(self.calls.borrow().is_empty(), "a call waits for a free key for ever");
        self.check();
        assert_eq!(self.map.clear(), 0);
        assert_eq!(self.map.entries(), 0);
        let world = Rc::into_inner(self).expect("the world has no other owner");
        assert_eq!(Arc::strong_count(&world.map), 1);
        drop(world);
        STAGE.with(|stage| {
            assert!(stage.live_keys.borrow().is_empty(), "a key or a value was leaked");
            assert_eq!(stage.live_wakers.get(), 0, "a waker was leaked");
            assert_eq!(stage.depth.get(), 0);
        });
    }
}

impl<K: Key> Act for MapWorld<K> {
    fn act(&self, what: u8, whom: u8) {
        let id = whom % self.keys;
        let map = Arc::clone(&self.map);
        match what % 16 {
            0 => self.call(whom, async move {
                let key = K::new(id);
                map.insert(&key, Value::new(whom)).await;
            }),
            1 => self.call(whom, async move {
                let key = K::new(id);
                map.remove(&key).await;
            }),
            2 => self.call(whom, async move {
                let key = K::new(id);
                map.get(&key).await;
            }),
            3 => self.call(whom, async move {
                let key = K::new(id);
                map.add_or_update(&key, Value::new(whom / 64)).await;
            }),
            4 => self.call(whom, async move {
                let key = K::new(id);
                let init = async || {
                    hook(May::PanicOrAct);
                    Value::new(whom)
                };
                let reader = map.get_or_insert_with(&key, init).await;
                assert!(reader.value().is_some(), "a guard without the requested value");
            }),
            5 => {
                let key = K::new(id);
                let Some(version) = map.try_read(&key).and_then(|reader| reader.version()) else { return };
                self.call(whom, async move {
                    if whom % 2 == 0 {
                        drop(map.update_if(&key, version, Value::new(whom)).await);
                    } else {
                        drop(map.remove_if(&key, version).await);
                    }
                });
            }
            6 if K::LIES => {} // contradictory steps cause a panic
            6 => {
                let (one, other) = (K::new(id), K::new(whom / 6 % self.keys));
                let batch = map.batch().insert(&one, Value::new(whom)).check_absent(&other).remove(&other);
                drop(batch.insert(&other, Value::new(1)).try_commit());
            }
            7 => {
                map.retain(|_, value| {
                    hook(May::PanicOrAct);
                    value.id() % 2 == whom % 2
                });
            }
            8 => {
                map.for_each_value(|key, value, _| {
                    hook(May::PanicOrAct);
                    drop((key.clone(), value.clone()));
                });
            }
            9 => drop((whom == 0).then(|| map.clear())),
            10 => {
                let key = K::new(id);
                let Some(mut writer) = map.try_write_arc(&key) else { return };
                match whom / 32 {
                    0..4 => drop(writer.insert(Value::new(whom))),
                    4 => drop(writer.remove()),
                    5 => drop(writer.get_or_insert_with(|| Value::new(1)).clone()),
                    _ => {}
                }
                Self::put(&self.writers, writer);
            }
            11 => {
                let Some(writer) = Self::take(&self.writers, whom) else { return };
                match whom % 3 {
                    0 => drop(writer),
                    1 => Self::put(&self.readers, writer.downgrade()),
                    _ => writer.unlock_fair(),
                }
            }
            12 => {
                let key = K::new(id);
                if let Some(reader) = map.try_read_arc(&key) {
                    Self::put(&self.readers, reader);
                }
            }
            13 => drop(Self::take(&self.readers, whom)),
            14 if whom % 2 == 0 => {
                let key = K::new(id);
                Self::put(&self.handles, map.handle_arc(&key));
            }
            14 => drop(Self::take(&self.handles, whom)),
            _ => match Self::take(&self.calls, whom) {
                Some(call) if whom % 4 > 0 => self.poll(call),
                call => drop(call),
            },
        }
    }
}
