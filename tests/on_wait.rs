//! The events that a table's observer receives, beyond those that `tests/model` checks after each step of its
//! schedules: calls that do not wait cause no event, an observer may use the table or panic, and threads leave no
//! wait without an end.

mod common;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use WaitMode::{Permits, Read, UpgradableRead, Upgrade, Write};
use WaitPhase::{GivenUp, Granted, Started};
use common::{Random, pending, poll, ready};
use keylatch::deadlock::Detector;
use keylatch::{
    Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, LockMap, MAX_PERMITS, WaitEvent, WaitId, WaitMode, WaitPhase,
};

/// The recorded events. Keys are strings for readability.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Recorded>>>);

type Recorded = (String, WaitMode, WaitPhase);

impl Log {
    fn observer(&self) -> impl Fn(&WaitEvent<'_, String>) + Send + Sync + 'static {
        let log = self.clone();
        move |event| log.0.lock().unwrap().push((event.key().clone(), event.mode(), event.phase()))
    }

    /// Returns the events since the last call.
    fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn waits(events: &[(&str, WaitMode, WaitPhase)]) -> Vec<Recorded> {
    events.iter().map(|&(key, mode, phase)| (key.to_string(), mode, phase)).collect()
}

fn pages(log: &Log) -> KeyedRwLock<String> {
    KeyedRwLock::builder().on_wait(log.observer()).build()
}

#[test]
fn a_call_that_does_not_wait_causes_no_event() {
    let log = Log::default();
    let pages = Arc::new(pages(&log));
    drop((
        ready(pages.read("a")),
        pages.read_blocking("a"),
        pages.try_read_arc("a"),
        ready(pages.upgradable_read("a")),
    ));
    drop(pages.upgradable_read_blocking("a").upgrade_blocking().downgrade());
    drop(ready(pages.write_many(["a", "b"])));
    drop(pages.handle("a").write_blocking());
    let writer = pages.write_blocking("a");
    assert!(pages.try_read("a").is_none() && pages.try_write_for("a", Duration::ZERO).is_none());
    let unpolled = pages.read("a");
    drop((writer, unpolled));
    assert_eq!(log.take(), []);
}

#[test]
fn a_wait_begins_with_the_poll_that_queues_and_ends_with_the_poll_that_acquires() {
    let log = Log::default();
    let pages = pages(&log);
    let writer = pages.try_write("a").unwrap();
    let mut reader = pages.read("a");
    pending(&mut reader);
    assert_eq!(log.take(), waits(&[("a", Read, Started)]));
    pending(&mut reader);
    drop(writer);
    assert_eq!(log.take(), []);
    let reader = ready(reader);
    assert_eq!(log.take(), waits(&[("a", Read, Granted)]));

    drop(reader);

    let writer = pages.try_write("a").unwrap();
    let (mut first, mut second) = (pages.upgradable_read("a"), pages.write("a"));
    pending(&mut first);
    pending(&mut second);
    writer.unlock_fair(); // handed to the first, which is not polled
    drop(first);
    drop(second);
    let started = [("a", UpgradableRead, Started), ("a", Write, Started)];
    assert_eq!(log.take(), waits(&[started, [("a", UpgradableRead, GivenUp), ("a", Write, GivenUp)]].concat()));
    assert!(pages.is_empty());
}

#[test]
fn events_name_the_key_and_the_number_of_permits() {
    let log = Log::default();
    let jobs: KeyedSemaphore<String> = KeyedSemaphore::builder(3).on_wait(log.observer()).build();
    let (one, two) = (jobs.try_acquire("a").unwrap(), jobs.try_acquire("b"));
    assert!(jobs.try_acquire_n_for("a", 3, Duration::from_millis(1)).is_none());
    assert_eq!(log.take(), waits(&[("a", Permits(3), Started), ("a", Permits(3), GivenUp)]));
    drop((one, two));

    let locks: KeyedMutex<String> = KeyedMutex::builder().on_wait(log.observer()).build();
    let (a, b) = (locks.try_lock("a").unwrap(), locks.try_lock("b").unwrap());
    let mut both = locks.lock_many(["a", "b"]);
    pending(&mut both);
    drop((a, b));
    let both = ready(both);
    let events = log.take();
    let first = events[0].0.clone(); // the first key in the table's order; the other is free by then
    assert_eq!(events, waits(&[(&first, Write, Started), (&first, Write, Granted)]));
    drop(both);
}

#[test]
fn an_upgrade_is_a_wait_with_every_kind_of_end() {
    let log = Log::default();
    let pages = pages(&log);
    let started = waits(&[("a", Upgrade, Started)]);
    let given_up = waits(&[("a", Upgrade, Started), ("a", Upgrade, GivenUp)]);
    let granted = waits(&[("a", Upgrade, Started), ("a", Upgrade, Granted)]);

    let reader = pages.try_read("a").unwrap();
    let mut guard = pages.try_upgradable_read("a").unwrap();
    pending(&mut guard.upgrade_mut());
    assert_eq!(log.take(), given_up);
    assert!(guard.try_upgrade_mut().is_none());
    assert_eq!(log.take(), []);
    let mut forgotten = guard.upgrade_mut();
    pending(&mut forgotten);
    std::mem::forget(forgotten);
    assert_eq!(log.take(), started);
    let guard = guard.try_upgrade_for(Duration::from_millis(1)).unwrap_err();
    assert_eq!(log.take(), waits(&[("a", Upgrade, GivenUp), ("a", Upgrade, Started), ("a", Upgrade, GivenUp)]));
    let mut upgrade = guard.upgrade();
    pending(&mut upgrade);
    drop(upgrade);
    assert_eq!(log.take(), given_up);

    let mut upgrade = pages.try_upgradable_read("a").unwrap().upgrade();
    pending(&mut upgrade);
    drop(reader);
    let writer = ready(upgrade);
    assert_eq!(log.take(), granted);
    drop(writer);
    assert!(pages.is_empty());
}

#[test]
fn requests_through_a_detector_cause_events() {
    let log = Log::default();
    let (locks, detector) = (KeyedMutex::<String>::builder().on_wait(log.observer()).build(), Detector::new());
    let (one, two) = (detector.party("one"), detector.party("two"));
    let a = one.acquire_blocking(locks.lock("a")).unwrap();
    let b = two.acquire_blocking(locks.lock("b")).unwrap();
    assert_eq!(log.take(), []);
    let mut waits_for_b = one.acquire(locks.lock("b"));
    pending(&mut waits_for_b);
    assert_eq!(log.take(), waits(&[("b", Write, Started)]));
    // The request would complete a cycle, and never waits.
    assert!(two.acquire_blocking(locks.lock("a")).is_err());
    assert_eq!(log.take(), []);
    drop(b);
    let b = ready(waits_for_b).unwrap();
    assert_eq!(log.take(), waits(&[("b", Write, Granted)]));

    let mut waits_for_a = two.acquire(locks.lock("a"));
    pending(&mut waits_for_a);
    drop(waits_for_a);
    assert_eq!(log.take(), waits(&[("a", Write, Started), ("a", Write, GivenUp)]));
    drop((a, b));

    let pages = pages(&log);
    let reader = pages.try_read("a").unwrap();
    let mut upgrade = ready(one.acquire(pages.upgradable_read("a"))).unwrap().upgrade();
    pending(&mut upgrade);
    drop(reader);
    drop(ready(upgrade));
    assert_eq!(log.take(), waits(&[("a", Upgrade, Started), ("a", Upgrade, Granted)]));
    assert!(locks.is_empty() && pages.is_empty());
}

/// A request completes a cycle, so that one of two requests fails. Every wait that has begun is reported as ended.
#[test]
fn a_wait_ended_by_a_detector_is_reported_as_given_up() {
    let log = Log::default();
    let (locks, detector) = (KeyedSemaphore::<String>::builder(1).on_wait(log.observer()).build(), Detector::new());
    let (one, two) = (detector.party("one"), detector.party("two"));
    let a = ready(one.acquire(locks.acquire("a"))).unwrap();
    let b = ready(two.acquire(locks.acquire("b"))).unwrap();
    let (mut for_b, mut for_a) = (one.acquire(locks.acquire("b")), two.acquire(locks.acquire("a")));
    pending(&mut for_b);
    let failed = [poll(&mut for_a).is_ready(), poll(&mut for_b).is_ready()];
    assert!(failed.contains(&true), "neither request failed");
    drop((for_a, for_b, a, b));
    let events = log.take();
    let started = events.iter().filter(|event| event.2 == Started).count();
    assert_eq!(events.len(), 2 * started);
    assert!(locks.is_empty());
}

#[test]
fn the_methods_of_a_map_cause_the_same_events_as_its_guards() {
    let log = Log::default();
    let map: LockMap<String, u32> = LockMap::builder().on_wait(log.observer()).build();
    assert_eq!(map.insert_blocking("a", 1), None);
    let writer = map.try_write("a").unwrap();
    let mut looks = Box::pin(map.get("a"));
    pending(&mut looks);
    assert_eq!(log.take(), waits(&[("a", Read, Started)]));
    drop(writer);
    assert_eq!(ready(looks), Some(1));
    assert_eq!(log.take(), waits(&[("a", Read, Granted)]));
}

#[test]
fn the_observer_may_use_the_table() {
    let table: Arc<OnceLock<Weak<KeyedMutex<String>>>> = Arc::default();
    let (seen, seen_by) = (Arc::new(Mutex::new(vec![])), Arc::clone(&table));
    let log = Arc::clone(&seen);
    let locks: KeyedMutex<String> = KeyedMutex::builder()
        .shards(1)
        .on_wait(move |event| {
            let locks = seen_by.get().unwrap().upgrade().unwrap();
            // Uses the same key, another key, and all keys.
            let status = locks.status(event.key()).unwrap();
            log.lock().unwrap().push((event.phase(), status.holders(), status.waiters()));
            assert!(locks.try_lock(event.key()).is_none() || event.phase() == GivenUp);
            drop(locks.lock_blocking("another"));
            assert_eq!(locks.dump().to_string().contains("\"a\""), event.phase() != GivenUp);
        })
        .build();
    let locks = Arc::new(locks);
    table.set(Arc::downgrade(&locks)).unwrap();
    let guard = locks.try_lock("a").unwrap();
    let mut lock = locks.lock("a");
    pending(&mut lock);
    let mut other = locks.lock("a");
    pending(&mut other);
    drop(guard);
    drop(ready(lock));
    drop(other);
    // The first request is reported as it acquires the key. When it has left, the second gives up.
    assert_eq!(*seen.lock().unwrap(), [(Started, 1, 1), (Started, 1, 2), (Granted, 1, 1), (GivenUp, 0, 0)]);
    assert!(locks.is_empty());
}

/// Creates a table whose observer panics in one phase, and a counter of its calls.
fn panics_when(phase: WaitPhase) -> (KeyedRwLock<String>, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let pages = KeyedRwLock::builder().on_wait(move |event: &WaitEvent<'_, String>| {
        counted.fetch_add(1, SeqCst);
        assert!(event.phase() != phase, "the observer panics");
    });
    (pages.build(), calls)
}

fn panics(f: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the observer panics"));
}

#[test]
fn an_observers_panic_reaches_the_caller_and_leaves_nothing_behind() {
    for phase in [Started, Granted, GivenUp] {
        let (pages, calls) = panics_when(phase);
        // The observer panics for a request.
        let writer = pages.try_write("a").unwrap();
        let mut lock = pages.write("a");
        if phase == Started {
            panics(|| pending(&mut lock));
            drop(lock);
            drop(writer);
        } else {
            pending(&mut lock);
            if phase == Granted {
                drop(writer);
                panics(|| drop(poll(&mut lock)));
                drop(lock);
            } else {
                panics(|| drop(lock));
                drop(writer);
            }
        }
        assert!(pages.is_empty(), "{phase:?}");
        // The observer panics for a blocking call, which runs on another thread if it is to be granted its hold.
        let writer = pages.try_write("a").unwrap();
        if phase == Granted {
            std::thread::scope(|scope| {
                scope.spawn(|| panics(|| drop(pages.read_blocking("a"))));
                common::until(|| pages.status("a").unwrap().waiters() == 1);
                drop(writer);
            });
        } else {
            panics(|| drop(pages.try_read_for("a", Duration::from_millis(1))));
            drop(writer);
        }
        assert!(pages.is_empty(), "{phase:?}");
        // The observer panics for an upgrade whose guard outlives the panic.
        let reader = pages.try_read("a").unwrap();
        let mut guard = pages.try_upgradable_read("a").unwrap();
        match phase {
            Started => panics(|| pending(&mut guard.upgrade_mut())),
            Granted => {
                let mut upgrade = guard.upgrade_mut();
                pending(&mut upgrade);
                drop(reader);
                panics(|| drop(poll(&mut upgrade)));
            }
            _ => panics(|| {
                let mut upgrade = guard.upgrade_mut();
                pending(&mut upgrade);
            }),
        }
        let status = pages.status("a").unwrap();
        assert_eq!((status.upgradable(), status.writers(), status.waiters()), (1, 0, 0), "{phase:?}");
        drop(guard);
        assert!(calls.load(SeqCst) >= 3);
    }
}

#[test]
fn an_upgrade_that_owns_its_guard_releases_it_when_the_observer_panics() {
    for phase in [Started, Granted, GivenUp] {
        let (pages, _) = panics_when(phase);
        let reader = pages.try_read("a").unwrap();
        let mut upgrade = pages.try_upgradable_read("a").unwrap().upgrade();
        match phase {
            Started => panics(|| pending(&mut upgrade)),
            Granted => {
                pending(&mut upgrade);
                drop(reader);
                panics(|| drop(poll(&mut upgrade)));
                drop(upgrade);
                assert!(pages.is_empty());
                continue;
            }
            _ => {
                pending(&mut upgrade);
                panics(|| drop(upgrade));
                drop(reader);
                assert!(pages.is_empty());
                continue;
            }
        }
        drop((upgrade, reader));
        assert!(pages.is_empty());
    }
}

/// An observer that panics while its thread is already panicking: with `std` the process does not abort.
#[test]
fn an_observer_may_panic_while_a_panic_drops_a_waiting_future() {
    let (pages, calls) = panics_when(GivenUp);
    let writer = pages.try_write("a").unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let mut lock = pages.write("a");
        pending(&mut lock);
        panic!("the task panics");
    }));
    assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"the task panics"));
    drop(writer);
    assert_eq!(calls.load(SeqCst), 2);
    assert!(pages.is_empty());
}

/// Threads make blocking and async calls, some of which give up: each wait ends exactly once, with the key and mode
/// with which it began.
#[test]
fn threads_leave_no_wait_open() {
    let open: Arc<Mutex<HashMap<WaitId, (u8, WaitMode)>>> = Arc::default();
    let waits = Arc::clone(&open);
    let pages: KeyedRwLock<u8> = KeyedRwLock::builder()
        .on_wait(move |event| {
            let wait = (*event.key(), event.mode());
            match event.phase() {
                Started => assert!(waits.lock().unwrap().insert(event.id(), wait).is_none()),
                _ => assert_eq!(waits.lock().unwrap().remove(&event.id()), Some(wait)),
            }
        })
        .build();
    let rounds = if cfg!(debug_assertions) { 500 } else { 5_000 };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (pages, mut random) = (&pages, Random(thread + 1));
            scope.spawn(move || {
                for _ in 0..rounds {
                    let key = (random.next(2)) as u8;
                    match random.next(6) {
                        0 => drop(pages.read_blocking(&key)),
                        1 => drop(pages.write_blocking(&key)),
                        2 => drop(pages.try_write_for(&key, Duration::from_micros(1))),
                        3 => drop(pages.upgradable_read_blocking(&key).try_upgrade_for(Duration::from_micros(1))),
                        4 => drop(pages.write_many_blocking([&0, &1])),
                        _ => drop(futures_lite::future::block_on(
                            pages.write(&key).until(futures_lite::future::yield_now()),
                        )),
                    }
                }
            });
        }
    });
    assert!(open.lock().unwrap().is_empty());
    assert!(pages.is_empty());
}

/// The lines that a subscriber of `tracing` receives.
#[cfg(feature = "tracing")]
#[test]
fn a_wait_is_traced() {
    use std::fmt::Write as _;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    struct Lines(Arc<Mutex<String>>);
    struct Line<'a>(&'a mut String);

    impl Visit for Line<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() != "wait" {
                write!(self.0, " {field}={value:?}").unwrap();
            }
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "keylatch"
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut lines = self.0.lock().unwrap();
            write!(lines, "{}", event.metadata().level()).unwrap();
            event.record(&mut Line(&mut lines));
            lines.push('\n');
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    let lines: Arc<Mutex<String>> = Arc::default();
    tracing::subscriber::with_default(Lines(Arc::clone(&lines)), || {
        let jobs: KeyedSemaphore<String> = KeyedSemaphore::builder(2).on_wait(|event| event.trace("jobs")).build();
        let held = jobs.try_acquire("a");
        assert!(jobs.try_acquire_n_for("a", 2, Duration::from_millis(1)).is_none());
        drop(held);
    });
    assert_eq!(
        *lines.lock().unwrap(),
        "\
DEBUG message=started table=\"jobs\" key=\"a\" mode=acquire 2 permits
DEBUG message=given up table=\"jobs\" key=\"a\" mode=acquire 2 permits
"
    );
}

#[test]
fn a_dump_shows_the_most_contended_keys_first_up_to_its_limit() {
    let pages = KeyedRwLock::<&str>::new();
    let held = (pages.try_read(&"home"), pages.try_read(&"home"), pages.try_write(&"about"), pages.handle(&"new"));
    let mut waits = (pages.write(&"about"), pages.read(&"about"), pages.write(&"home"));
    pending(&mut waits.0);
    pending(&mut waits.1);
    pending(&mut waits.2);
    let dump = pages.dump();
    let all = "\
KeyedRwLock: 3 keys
  \"about\"  1 writer; waiting: 1 to write, 1 to read
  \"home\"   2 readers; waiting: 1 to write
  and 1 that nobody holds or waits for
";
    assert_eq!(dump.to_string(), all);
    assert_eq!(format!("{dump:?}"), all);
    assert_eq!(
        format!("{dump:.1}"),
        "\
KeyedRwLock: 3 keys
  \"about\"  1 writer; waiting: 1 to write, 1 to read
  … and 1 more
  and 1 that nobody holds or waits for
"
    );
    drop((waits, held));
    assert_eq!(dump.to_string(), "KeyedRwLock: 0 keys\n");
    assert_eq!(KeyedMutex::<u64>::new().dump().to_string(), "KeyedMutex: 0 keys\n");
}

#[test]
fn a_dump_of_a_mutex_shows_holders_instead_of_writers() {
    let jobs = KeyedMutex::<&str>::new();
    let held = (jobs.try_lock(&"busy").unwrap(), jobs.try_lock(&"new").unwrap());
    let mut waits = (jobs.lock(&"busy"), jobs.lock(&"busy"));
    pending(&mut waits.0);
    pending(&mut waits.1);
    let all = "\
KeyedMutex: 2 keys
  \"busy\"  1 holder; 2 waiting
  \"new\"   1 holder
";
    assert_eq!(jobs.dump().to_string(), all);
    drop(held);
    assert_eq!(jobs.dump().to_string(), "KeyedMutex: 1 key\n  \"busy\"  nobody; 2 waiting\n");
}

#[test]
fn waiters_are_counted_in_every_table_and_zero_without_an_entry() {
    let (jobs, pages) = (KeyedMutex::<&str>::new(), KeyedRwLock::<&str>::new());
    let (hosts, map) = (KeyedSemaphore::<&str>::new(2), LockMap::<&str, u64>::new());
    assert_eq!([jobs.waiters(&"a"), pages.waiters(&"a"), hosts.waiters(&"a"), map.waiters(&"a")], [0; 4]);
    let held = (jobs.try_lock(&"a"), pages.try_read(&"a"), hosts.try_acquire(&"a"), map.try_write(&"a"));
    assert_eq!([jobs.waiters(&"a"), pages.waiters(&"a"), hosts.waiters(&"a"), map.waiters(&"a")], [0; 4]);
    let mut waits = (jobs.lock(&"a"), pages.write(&"a"), hosts.acquire_n(&"a", 2), map.read(&"a"));
    pending(&mut waits.0);
    pending(&mut waits.1);
    pending(&mut waits.2);
    pending(&mut waits.3);
    assert_eq!([jobs.waiters(&"a"), pages.waiters(&"a"), hosts.waiters(&"a"), map.waiters(&"a")], [1; 4]);
    assert_eq!((jobs.waiters(&"b"), jobs.len()), (0, 1));
    drop((waits, held));
    assert_eq!([jobs.waiters(&"a"), pages.waiters(&"a"), hosts.waiters(&"a"), map.waiters(&"a")], [0; 4]);
}

// ---- the order of events --------------------------------------------------------------------------------------------

/// An action that an observer performs once, in one phase.
type Once = Arc<Mutex<Option<(WaitPhase, Box<dyn FnOnce() + Send>)>>>;

fn does_once() -> (Once, impl Fn(&WaitEvent<'_, String>) + Send + Sync + 'static) {
    let once = Once::default();
    let call = Arc::clone(&once);
    (once, move |event: &WaitEvent<'_, String>| {
        let mut once = call.lock().unwrap();
        let Some((_, act)) = once.take_if(|(phase, _)| *phase == event.phase()) else { return };
        drop(once);
        act();
    })
}

#[test]
fn a_request_that_gives_up_has_left_the_queue_by_the_time_of_the_event() {
    for granted in [false, true] {
        let (once, observer) = does_once();
        let locks = Arc::new(KeyedMutex::<String>::builder().fairness(Fairness::Fifo).on_wait(observer).build());
        let guard = locks.try_lock("a").unwrap();
        let (mut first, mut second) = (locks.lock("a"), locks.lock("a"));
        pending(&mut first);
        pending(&mut second);
        let mut guard = Some(guard);
        if granted {
            drop(guard.take());
        }
        let (seen, table) = (Arc::new(Mutex::new(None)), Arc::downgrade(&locks));
        let saw = Arc::clone(&seen);
        let act = move || *saw.lock().unwrap() = table.upgrade().unwrap().status("a");
        *once.lock().unwrap() = Some((GivenUp, Box::new(act)));
        drop(first);
        let status = seen.lock().unwrap().take().expect("there was no event");
        assert_eq!((status.holders(), status.waiters()), if granted { (1, 0) } else { (1, 1) }, "{granted}");
        drop(guard);
        drop(ready(second));
        assert!(locks.is_empty());
    }
}

/// When the observer is told that an upgrade gave up, the readers that it kept out have been admitted and woken.
#[test]
fn others_are_woken_before_the_event_of_a_request_that_gives_up() {
    let (once, observer) = does_once();
    let pages = Arc::new(KeyedRwLock::<String>::builder().fairness(Fairness::Fifo).on_wait(observer).build());
    let reader = pages.try_read("a");
    let mut guard = pages.try_upgradable_read("a").unwrap();
    let mut upgrade = guard.upgrade_mut();
    pending(&mut upgrade);
    let mut kept_out = pages.read("a");
    let (bell, waker) = common::Bell::new();
    assert!(common::poll_with(&mut kept_out, &waker).is_pending());
    let woken = Arc::new(AtomicUsize::new(0));
    let (count, bell) = (Arc::clone(&woken), bell);
    *once.lock().unwrap() = Some((GivenUp, Box::new(move || _ = count.fetch_add(bell.take(), SeqCst))));
    drop(upgrade);
    assert_eq!(woken.load(SeqCst), 1);
    drop((reader, guard, ready(kept_out)));

    // The same holds when a writer gives up and a reader waits behind it.
    let reader = pages.try_read("a");
    let (mut writer, mut kept_out) = (pages.write("a"), pages.read("a"));
    pending(&mut writer);
    let (bell, waker) = common::Bell::new();
    assert!(common::poll_with(&mut kept_out, &waker).is_pending());
    let count = Arc::clone(&woken);
    *once.lock().unwrap() = Some((GivenUp, Box::new(move || _ = count.fetch_add(bell.take(), SeqCst))));
    drop(writer);
    assert_eq!(woken.load(SeqCst), 2);
    drop((reader, ready(kept_out)));

    // The same holds for several keys: the keys that were held have been released, and their waiters have been woken.
    let b = pages.try_write("b");
    let mut both = pages.write_many(["a", "b"]);
    pending(&mut both);
    let mut other = pages.read("a");
    let (bell, waker) = common::Bell::new();
    let waits = common::poll_with(&mut other, &waker).is_pending(); // if "a" is first in the table's order
    let count = Arc::clone(&woken);
    *once.lock().unwrap() = Some((GivenUp, Box::new(move || _ = count.fetch_add(bell.take(), SeqCst))));
    drop(both);
    assert_eq!(woken.load(SeqCst), 2 + usize::from(waits));
    if waits {
        drop(ready(other));
    } else {
        drop(other);
    }
    drop(b);
    assert!(pages.is_empty());
}

#[test]
fn after_a_panic_each_wait_ends_exactly_once() {
    for phase in [Started, Granted, GivenUp] {
        let open: Arc<Mutex<Vec<WaitId>>> = Arc::default();
        let waits = Arc::clone(&open);
        let pages: KeyedRwLock<String> = KeyedRwLock::builder()
            .on_wait(move |event: &WaitEvent<'_, String>| {
                let mut open = waits.lock().unwrap();
                match event.phase() {
                    Started => open.push(event.id()),
                    _ => open.retain(|id| *id != event.id()),
                }
                drop(open);
                assert!(event.phase() != phase, "the observer panics");
            })
            .build();
        let writer = pages.try_write("a");
        let mut reader = pages.read("a");
        let first = catch_unwind(AssertUnwindSafe(|| poll(&mut reader).is_pending()));
        assert_eq!(first.is_err(), phase == Started);
        // The request can still be polled, and has caused one event.
        assert!(poll(&mut reader).is_pending());
        assert_eq!(open.lock().unwrap().len(), 1);
        drop(writer);
        let got = catch_unwind(AssertUnwindSafe(|| poll(&mut reader).is_ready()));
        assert_eq!(got.is_err(), phase == Granted);
        drop(reader);
        assert!(open.lock().unwrap().is_empty() && pages.is_empty(), "{phase:?}");
    }
}

#[test]
fn a_blocking_upgrade_falls_back_when_the_observer_panics() {
    for phase in [Started, Granted] {
        let (pages, _) = panics_when(phase);
        let reader = pages.try_read("a").unwrap();
        let mut guard = pages.try_upgradable_read("a").unwrap();
        std::thread::scope(|scope| {
            let guard = &mut guard;
            let upgrade = scope.spawn(move || panics(|| drop(guard.upgrade_mut_blocking())));
            if phase == Granted {
                common::until(|| pages.status("a").unwrap().waiters() == 1);
                drop(reader);
            }
            upgrade.join().unwrap();
        });
        let status = pages.status("a").unwrap();
        assert_eq!((status.upgradable(), status.writers(), status.waiters()), (1, 0, 0), "{phase:?}");
    }
}

#[test]
fn an_observer_may_panic_while_a_panic_drops_an_upgrade() {
    let (pages, calls) = panics_when(GivenUp);
    let reader = pages.try_read("a");
    let mut guard = pages.try_upgradable_read("a").unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let mut upgrade = guard.upgrade_mut();
        pending(&mut upgrade);
        panic!("the task panics");
    }));
    assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"the task panics"));
    assert_eq!(calls.load(SeqCst), 2);
    drop((guard, reader));
    assert!(pages.is_empty());
}

/// The output of a limit is dropped if the end of the request panics.
#[test]
fn the_output_of_a_limit_is_not_lost_when_the_observer_panics() {
    let (pages, _) = panics_when(GivenUp);
    let a = pages.try_write("a");
    panics(|| drop(futures_lite::future::block_on(pages.write("a").until(pages.write("b")))));
    assert!(!pages.is_locked("b"));
    drop(a);
    assert!(pages.is_empty());
}

#[test]
fn a_detector_forgets_a_hold_that_a_panic_released() {
    for phase in [Started, Granted, GivenUp] {
        let (pages, _) = panics_when(phase);
        let detector = Detector::new();
        let (one, two) = (detector.party("one"), detector.party("two"));
        let b = ready(one.acquire(pages.write("b"))).unwrap();
        let a = pages.try_write("a");
        let mut waits = two.acquire(pages.write("a"));
        let started = catch_unwind(AssertUnwindSafe(|| poll(&mut waits).is_pending()));
        assert_eq!(started.is_err(), phase == Started);
        drop(a);
        if phase == Granted {
            panics(|| drop(poll(&mut waits)));
            // Party two holds nothing, so party one may wait for "a", which another caller holds, while party two waits
            // for "b".
            let a = pages.try_write("a").unwrap();
            let mut for_a = one.acquire(pages.write("a"));
            assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut for_a).is_pending())).unwrap_or(true));
            let mut for_b = two.acquire(pages.write("b"));
            assert!(
                catch_unwind(AssertUnwindSafe(|| poll(&mut for_b).is_pending())).unwrap_or(true),
                "a cycle was reported"
            );
            drop((for_b, for_a, a));
        }
        let end = catch_unwind(AssertUnwindSafe(|| drop(waits)));
        assert_eq!(end.is_err(), phase == GivenUp);
        drop(b);
        assert!(pages.is_empty(), "{phase:?}");
    }
}

/// A wait that a detector ends may already have been granted its hold: by the time of the event, that hold has been
/// passed on.
#[test]
fn a_failed_request_has_passed_its_hold_on_by_the_time_of_the_event() {
    for panics in [false, true] {
        let (once, observer) = does_once();
        let locks = Arc::new(KeyedMutex::<String>::builder().on_wait(observer).build());
        let detector = Detector::new();
        let (one, two) = (detector.party("one"), detector.party("two"));
        let a = ready(one.acquire(locks.lock("a"))).unwrap();
        let b = locks.try_lock("b").unwrap();
        let mut one_for_b = one.acquire(locks.lock("b"));
        pending(&mut one_for_b);
        let mut two_for_a = two.acquire(locks.lock("a"));
        pending(&mut two_for_a);
        // Party two acquires "b" before party one, which completes a cycle: the other request of party two fails and is
        // woken.
        drop(b);
        let b = ready(two.acquire(locks.lock("b"))).unwrap();
        let (bell, waker) = common::Bell::new();
        let mut next = locks.lock("a");
        assert!(common::poll_with(&mut next, &waker).is_pending());
        a.unlock_fair(); // to the request that has failed
        let (seen, table) = (Arc::new(Mutex::new(None)), Arc::downgrade(&locks));
        let saw = Arc::clone(&seen);
        let act = move || {
            *saw.lock().unwrap() = Some((table.upgrade().unwrap().status("a").unwrap(), bell.take()));
            assert!(!panics, "the observer panics");
        };
        *once.lock().unwrap() = Some((GivenUp, Box::new(act)));
        let failed = catch_unwind(AssertUnwindSafe(|| ready(&mut two_for_a).is_err()));
        assert_eq!(failed.ok(), (!panics).then_some(true));
        let (status, woken) = seen.lock().unwrap().take().expect("there was no event");
        assert_eq!((status.holders(), status.waiters(), woken), (1, 0, 1));
        drop((two_for_a, one_for_b, b));
        drop(ready(next));
        assert!(locks.is_empty());
    }
}

/// The entry cannot count one more user. In this case the event comes a moment early, and only once.
#[test]
fn at_the_maximum_number_of_users_a_request_that_gives_up_causes_one_event() {
    let log = Log::default();
    let jobs: KeyedSemaphore<String> = KeyedSemaphore::builder(MAX_PERMITS).on_wait(log.observer()).build();
    let held = jobs.try_acquire_n("a", MAX_PERMITS - 1).unwrap();
    let mut two = jobs.acquire_n("a", 2);
    pending(&mut two);
    drop(two);
    assert_eq!(log.take(), waits(&[("a", Permits(2), Started), ("a", Permits(2), GivenUp)]));
    assert_eq!(jobs.status("a").unwrap().waiters(), 0);
    drop(held);
    assert!(jobs.is_empty());
}

/// A spinning thread may be handed a free key, because it takes the key at once. But an observer may run for a long
/// time, so the thread that runs it is handed no key meanwhile.
#[test]
fn no_key_is_handed_to_a_thread_while_its_observer_runs() {
    let (once, observer) = does_once();
    let pages = Arc::new(KeyedRwLock::<String>::builder().on_wait(observer).build());
    let (seen, saw) = (Arc::new(Mutex::new(vec![])), |writers: &Arc<Mutex<Vec<usize>>>| Arc::clone(writers));
    // A request: its key becomes free while the observer runs.
    let (holder, table, writers) = (pages.try_write_arc("a"), Arc::downgrade(&pages), saw(&seen));
    let act = move || {
        drop(holder);
        writers.lock().unwrap().push(table.upgrade().unwrap().status("a").unwrap().writers());
    };
    *once.lock().unwrap() = Some((Started, Box::new(act)));
    drop(pages.write_blocking("a"));
    // An upgrade: the last reader leaves while the observer runs.
    let (reader, table, writers) = (pages.try_read_arc("a"), Arc::downgrade(&pages), saw(&seen));
    let act = move || {
        drop(reader);
        writers.lock().unwrap().push(table.upgrade().unwrap().status("a").unwrap().writers());
    };
    *once.lock().unwrap() = Some((Started, Box::new(act)));
    drop(pages.upgradable_read_blocking("a").upgrade_blocking());
    assert_eq!(*seen.lock().unwrap(), [0, 0]);
    assert!(pages.is_empty());
}

/// A waker panics while a detector ends the wait of an upgrade: the observer still receives the event.
#[test]
fn an_upgrade_ended_by_a_detector_causes_its_event_even_if_a_waker_panics() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker panics");
        }
    }
    let log = Log::default();
    let builder = KeyedRwLock::<String>::builder().fairness(Fairness::Bounded(1));
    let (pages, detector) = (builder.on_wait(log.observer()).build(), Detector::new());
    let (one, two) = (detector.party("one"), detector.party("two"));
    let two_reads = ready(two.acquire(pages.read("a"))).unwrap();
    let b = pages.try_write("b").unwrap();
    let mut upgrade = ready(one.acquire(pages.upgradable_read("a"))).unwrap().upgrade();
    pending(&mut upgrade);
    // One reader passes the upgrade. Then the upgrade keeps out another, whose waker panics.
    assert!(pages.try_read("a").is_some());
    let mut kept_out = pages.read("a");
    assert!(common::poll_with(&mut kept_out, &Waker::from(Arc::new(Panics))).is_pending());
    // Party two waits for "b", which party one acquires first. This completes a cycle, in which the upgrade of party
    // one fails.
    let mut two_for_b = two.acquire(pages.write("b"));
    pending(&mut two_for_b);
    drop(b);
    let b = ready(one.acquire(pages.write("b"))).unwrap();
    let failed = catch_unwind(AssertUnwindSafe(|| ready(&mut upgrade).is_err()));
    assert!(failed.is_err(), "the reader that it kept out was not woken");
    drop((upgrade, kept_out, two_for_b, b, two_reads));
    let events = log.take();
    let ends = events.iter().filter(|event| event.2 != Started).count();
    assert_eq!(events.len(), 2 * ends, "{events:?}");
    assert!(pages.is_empty());
}
