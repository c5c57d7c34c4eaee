//! `KeyedMutex`: the behaviour of each form.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Bell, pending, poll, poll_with, ready, until};
use futures_lite::future::{self, block_on};
use keylatch::{
    Fairness, Guard, KeyHandle, KeyedMutex, KeyedSemaphore, MAX_CAPACITY, MAX_SHARDS, MutexGuard, MutexGuardArc,
};

#[test]
fn different_keys_do_not_exclude_each_other() {
    let locks = KeyedMutex::<u64>::new();
    let guards: Vec<_> = (0..1000).map(|key| locks.try_lock(&key).unwrap()).collect();
    assert_eq!(locks.len(), 1000);
    assert!(guards.iter().enumerate().all(|(key, guard)| *guard.key() == key as u64));
    drop(guards);
    assert!(locks.is_empty());
}

#[test]
fn every_form_sees_the_hold_of_every_other() {
    let locks = Arc::new(KeyedMutex::<String>::new());
    let handle = locks.handle("a");
    let owned_handle = locks.handle_arc("a");
    let check = |form: &str| {
        assert!(locks.is_locked("a"), "{form}");
        assert!(locks.try_lock("a").is_none(), "{form}");
        assert!(locks.try_lock_arc("a").is_none(), "{form}");
        assert!(handle.try_lock().is_none(), "{form}");
        assert!(owned_handle.try_lock().is_none(), "{form}");
        assert!(locks.try_lock_for("a", Duration::ZERO).is_none(), "{form}");
        assert!(locks.try_lock_until("a", Instant::now()).is_none(), "{form}");
        assert!(locks.try_lock_arc_for("a", Duration::ZERO).is_none(), "{form}");
        assert!(handle.try_lock_for(Duration::ZERO).is_none(), "{form}");
        assert!(poll(&mut locks.lock("a")).is_pending(), "{form}");
        assert!(poll(&mut locks.lock_arc("a")).is_pending(), "{form}");
        assert!(poll(&mut handle.lock()).is_pending(), "{form}");
        assert!(block_on(locks.lock("a").until(future::ready(7))).is_err_and(|limit| limit == 7), "{form}");
        assert_eq!(locks.status("a").unwrap().waiters(), 0, "{form}");
    };
    let deadline = Instant::now() + Duration::from_secs(3600);
    let hour = Duration::from_secs(3600);
    macro_rules! forms {
        ($($form:expr),+ $(,)?) => {$({
            let guard = $form;
            assert_eq!(guard.key(), "a");
            check(stringify!($form));
            drop(guard);
            assert!(!locks.is_locked("a"));
        })+};
    }
    forms![
        ready(locks.lock("a")),
        block_on(locks.lock("a").until(future::pending::<()>())).unwrap(),
        locks.lock_blocking("a"),
        locks.try_lock("a").unwrap(),
        locks.try_lock_for("a", hour).unwrap(),
        locks.try_lock_until("a", deadline).unwrap(),
        ready(locks.lock_arc("a")),
        block_on(locks.lock_arc("a").until(future::pending::<()>())).unwrap(),
        locks.lock_arc_blocking("a"),
        locks.try_lock_arc("a").unwrap(),
        locks.try_lock_arc_for("a", hour).unwrap(),
        locks.try_lock_arc_until("a", deadline).unwrap(),
        ready(handle.lock()),
        handle.lock_blocking(),
        handle.try_lock().unwrap(),
        handle.try_lock_for(hour).unwrap(),
        handle.try_lock_until(deadline).unwrap(),
        ready(owned_handle.lock()),
        owned_handle.lock_blocking(),
        owned_handle.try_lock().unwrap(),
        owned_handle.try_lock_for(hour).unwrap(),
        owned_handle.try_lock_until(deadline).unwrap(),
    ];
    drop((handle, owned_handle));
    assert!(locks.is_empty());
}

#[test]
fn a_timeout_of_zero_and_a_deadline_in_the_past_still_try() {
    let locks = KeyedMutex::<u64>::new();
    let past = Instant::now();
    until(|| Instant::now() > past);
    assert!(locks.try_lock_for(&7, Duration::ZERO).is_some());
    assert!(locks.try_lock_until(&7, past).is_some());
    assert!(block_on(locks.lock(&7).until(future::ready(()))).is_ok());
}

#[test]
fn the_longest_timeout_is_no_limit() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.try_lock_for(&7, Duration::MAX).is_some());
        until(|| locks.status(&7).unwrap().waiters() == 1);
        drop(guard);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn a_timed_out_waiter_leaves_no_entry() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    assert!(locks.try_lock_for(&7, Duration::from_millis(5)).is_none());
    assert!(locks.try_lock_until(&7, Instant::now() + Duration::from_millis(5)).is_none());
    assert_eq!(locks.status(&7).unwrap().waiters(), 0);
    drop(guard);
    assert!(locks.is_empty());
}

#[test]
fn until_prefers_the_lock_when_both_are_ready() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    let limit_is_reached = AtomicBool::new(false);
    let limit = future::poll_fn(|_| if limit_is_reached.load(SeqCst) { ready_now() } else { std::task::Poll::Pending });
    let mut waiter = Box::pin(locks.lock(&7).until(limit));
    assert!(poll(&mut waiter).is_pending());
    limit_is_reached.store(true, SeqCst);
    drop(guard);
    assert!(ready(&mut waiter).is_ok());
}

fn ready_now() -> std::task::Poll<()> {
    std::task::Poll::Ready(())
}

#[test]
fn a_limit_that_panics_when_it_is_dropped_leaves_the_key_free() {
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("the limit"));
        }
    }
    let locks = KeyedMutex::<u64>::new();
    let held = PanicsOnDrop;
    // The limit is never polled, because the key is free. It is dropped, with what it owns, and that drop panics.
    let limit = async move { drop(held) };
    let outcome = catch_unwind(AssertUnwindSafe(|| block_on(locks.lock(&7).until(limit)).is_ok()));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"the limit"));
    assert!(locks.is_empty(), "the undelivered guard was leaked");
}

#[test]
fn a_limit_whose_output_panics_when_it_is_dropped_leaves_the_key_free() {
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("the output"));
        }
    }
    let locks = KeyedMutex::<u64>::new();
    let mut held = locks.try_lock(&7);
    // The limit releases the requested key, so the second attempt succeeds.
    let limit = std::future::poll_fn(|_| {
        held = None;
        std::task::Poll::Ready(PanicsOnDrop)
    });
    let outcome = catch_unwind(AssertUnwindSafe(|| block_on(locks.lock(&7).until(limit)).is_ok()));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"the output"));
    assert!(locks.is_empty(), "the undelivered guard was leaked");
}

#[test]
fn an_unpolled_future_is_no_waiter_but_keeps_its_entry() {
    let locks = KeyedMutex::<u64>::new();
    let mut early = locks.lock(&7);
    let mut late = locks.lock(&7);
    assert_eq!(locks.len(), 1);
    assert!(!locks.is_locked(&7));
    let guard = ready(&mut late);
    assert_eq!(locks.status(&7).unwrap().waiters(), 0);
    pending(&mut early);
    assert_eq!(locks.status(&7).unwrap().waiters(), 1);
    drop((guard, early, late));
    assert!(locks.is_empty());
}

#[test]
#[should_panic(expected = "keylatch: a lock future was polled after it had finished")]
fn a_future_polled_after_it_finished_panics() {
    let locks = KeyedMutex::<u64>::new();
    let mut future = locks.lock(&7);
    drop(ready(&mut future));
    let _ = poll(&mut future);
}

#[test]
fn a_request_is_a_holder_or_a_waiter_at_every_moment() {
    let locks = KeyedMutex::<u64>::builder().fairness(Fairness::Fifo).build();
    let guard = locks.try_lock(&7).unwrap();
    let mut waiter = locks.lock(&7);
    pending(&mut waiter);
    let count = || locks.status(&7).map(|status| (status.writers(), status.waiting_writers()));
    assert_eq!(count(), Some((1, 1)));
    drop(guard); // handed over, not yet polled
    assert_eq!(count(), Some((1, 0)));
    let guard = ready(&mut waiter);
    assert_eq!(count(), Some((1, 0)));
    drop(guard);
    assert_eq!(count(), None);
}

#[test]
fn unlock_fair_hands_over_under_every_policy() {
    for fairness in [Fairness::Fifo, Fairness::Bounded(200), Fairness::Barging] {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        let guard = locks.try_lock(&7).unwrap();
        let mut waiter = locks.lock(&7);
        pending(&mut waiter);
        guard.unlock_fair();
        assert!(locks.try_lock(&7).is_none(), "{fairness:?}");
        ready(&mut waiter).unlock_fair();
        drop(waiter);
        assert!(locks.is_empty());
    }
}

#[test]
fn a_handle_keeps_its_entry_and_its_guards_borrow_the_table() {
    let locks = KeyedMutex::<String>::new();
    let handle: KeyHandle<'_, KeyedMutex<String>> = locks.handle("a");
    assert_eq!((handle.key().as_str(), locks.len(), locks.is_locked("a")), ("a", 1, false));
    let guard: MutexGuard<'_, String> = handle.try_lock().unwrap();
    let future = handle.lock();
    let other = handle.clone();
    drop(handle);
    assert_eq!(guard.key(), other.key());
    drop((future, guard));
    assert_eq!(locks.len(), 1);
    drop(other);
    assert!(locks.is_empty());
}

#[test]
fn owned_guards_and_futures_keep_the_table_alive() {
    let locks = Arc::new(KeyedMutex::<String>::new());
    let weak = Arc::downgrade(&locks);
    let guard: MutexGuardArc<String> = locks.lock_arc_blocking("a");
    let mut future = locks.lock_arc("a");
    let handle = locks.handle_arc("b");
    pending(&mut future);
    drop(locks);
    let thread = std::thread::spawn(move || drop((guard, handle)));
    let guard = block_on(future);
    thread.join().unwrap();
    assert!(weak.upgrade().is_some());
    drop(guard);
    assert!(weak.upgrade().is_none());
}

#[test]
fn for_each_key_sees_every_entry_and_may_use_the_table() {
    let locks = KeyedMutex::<u64>::new();
    let _guards: Vec<_> = (0..300).map(|key| locks.try_lock(&key).unwrap()).collect();
    let mut waiter = locks.lock(&7);
    pending(&mut waiter);
    let _handle = locks.handle(&1000);
    let mut seen = vec![];
    locks.for_each_key(|&key, status| {
        assert_eq!(status.writers(), usize::from(key < 300));
        assert_eq!(status.waiting_writers(), usize::from(key == 7));
        assert_eq!(locks.status(&key), Some(status));
        assert_eq!(locks.try_lock(&key).is_some(), key == 1000);
        seen.push(key);
    });
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..300).chain([1000])));
}

#[test]
fn an_entry_outlives_its_holder_while_for_each_key_visits_it() {
    let locks = KeyedMutex::<u64>::new();
    let mut guard = locks.try_lock(&7);
    locks.for_each_key(|_, _| {
        drop(guard.take());
        assert_eq!(locks.len(), 1);
    });
    assert!(locks.is_empty());
    let _guards = (locks.try_lock(&1), locks.try_lock(&2), locks.try_lock(&3));
    let panics = || locks.for_each_key(|_, _| panic!("a callback that panics"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    drop(_guards);
    assert!(locks.is_empty());
}

#[test]
fn a_forgotten_guard_affects_only_its_key() {
    let locks = KeyedMutex::<String>::new();
    std::mem::forget(locks.try_lock("a"));
    assert!(locks.try_lock("a").is_none());
    assert!(locks.try_lock("b").is_some());
    let mut future = Box::pin(locks.lock("a"));
    pending(&mut future);
    std::mem::forget(future);
    assert_eq!((locks.len(), locks.status("a").unwrap().waiters()), (1, 1));
}

#[test]
fn invalid_numbers_of_permits_are_refused_with_a_message_that_names_them() {
    let message = |build: &dyn Fn() -> KeyedMutex<u64>| {
        *catch_unwind(AssertUnwindSafe(build)).unwrap_err().downcast::<String>().unwrap()
    };
    let zero = message(&|| KeyedMutex::builder().shards(0).build());
    assert!(zero.contains("shards") && zero.contains(&MAX_SHARDS.to_string()), "{zero}");
    for shards in [MAX_SHARDS + 1, usize::MAX] {
        assert!(message(&|| KeyedMutex::builder().shards(shards).build()).contains("shards"));
    }
    assert!(message(&|| KeyedMutex::builder().capacity(MAX_CAPACITY + 1).build()).contains("capacity"));
    drop(KeyedMutex::<u64>::builder().shards(MAX_SHARDS).build());
}

#[test]
fn debug_output_of_a_table_needs_no_debug_of_its_keys() {
    struct NoDebug;
    let locks = KeyedMutex::<NoDebug>::new();
    assert_eq!(format!("{locks:?}"), "KeyedMutex { len: 0, .. }");
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    assert_eq!(format!("{guard:?}"), "Guard { key: 7, mode: Exclusive, .. }");
    assert_eq!(format!("{:?}", locks.lock(&8)), "Acquire { mode: Exclusive, done: false, .. }");
    assert_eq!(format!("{:?}", locks.handle(&9)), "Handle { key: 9, .. }");
}

#[test]
fn a_blocking_call_works_inside_a_thread_locals_destructor() {
    thread_local! {
        static LAST: std::cell::RefCell<Option<Waits>> = const { std::cell::RefCell::new(None) };
    }
    struct Waits(Arc<KeyedMutex<u64>>, Arc<AtomicBool>);
    impl Drop for Waits {
        fn drop(&mut self) {
            drop(self.0.lock_blocking(&7));
            self.1.store(true, SeqCst);
        }
    }
    let locks = Arc::new(KeyedMutex::new());
    let done = Arc::new(AtomicBool::new(false));
    let guard = locks.try_lock(&7).unwrap();
    let thread = {
        let (locks, done) = (Arc::clone(&locks), Arc::clone(&done));
        std::thread::spawn(move || {
            LAST.set(Some(Waits(Arc::clone(&locks), done)));
            // The parker's own thread-local is created after ours, and so destroyed before it.
            let _other = locks.try_lock(&8);
            assert!(locks.try_lock_for(&8, Duration::from_millis(1)).is_none());
        })
    };
    until(|| locks.status(&7).unwrap().waiters() == 1);
    drop(guard);
    thread.join().unwrap();
    assert!(done.load(SeqCst));
}

#[test]
fn a_blocking_call_inside_the_waker_of_another_wait_does_not_swallow_its_wake_up() {
    // A future waits for key 1. The thread that releases key 1 runs the future's waker, which blocks on key 2.
    struct Blocks(Arc<KeyedMutex<u64>>);
    impl std::task::Wake for Blocks {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock_blocking(&2));
        }
    }
    let locks = Arc::new(KeyedMutex::<u64>::new());
    let (one, two) = (locks.try_lock(&1).unwrap(), locks.try_lock(&2).unwrap());
    let mut waiter = locks.lock(&1);
    assert!(poll_with(&mut waiter, &Arc::new(Blocks(Arc::clone(&locks))).into()).is_pending());
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| drop(one)); // wakes the waiter, whose waker blocks on 2
        until(|| locks.status(&2).unwrap().waiters() == 1);
        drop(two);
        blocked.join().unwrap();
    });
    drop(ready(&mut waiter));
}

#[test]
fn tables_guards_handles_and_futures_are_send_and_sync_when_the_key_is() {
    fn check<T: Send + Sync>(_: &T) {}
    let locks = Arc::new(KeyedMutex::<String>::new());
    check(&locks);
    check(&locks.lock("a"));
    check(&locks.lock_arc("a"));
    check(&locks.handle("a"));
    check(&locks.handle_arc("a"));
    check(&locks.try_lock("a"));
    check(&locks.try_lock_arc("a"));
    fn send<T: Send>(_: &T) {}
    send(&locks.lock("a").until(future::pending::<()>()));
    // A hasher that is neither `Send` nor `Sync` does not keep guards and futures from being `Send` and `Sync`.
    #[derive(Clone, Default)]
    struct Local(std::hash::RandomState, std::marker::PhantomData<*const ()>);
    impl std::hash::BuildHasher for Local {
        type Hasher = <std::hash::RandomState as std::hash::BuildHasher>::Hasher;
        fn build_hasher(&self) -> Self::Hasher {
            self.0.build_hasher()
        }
    }
    let locks = KeyedMutex::<String, Local>::default();
    check(&locks.try_lock("a"));
    check(&locks.lock("a"));
}

#[test]
fn a_guard_requires_no_trait_of_its_key() {
    struct Anything;
    fn release<P: keylatch::table::TablePtr<Key = Anything>, M: keylatch::mode::Mode>(guard: Guard<P, M>) {
        drop(guard);
    }
    let _: fn(MutexGuard<'static, Anything>) = release;
}

#[test]
fn a_waker_is_woken_once_for_each_wait() {
    let locks = KeyedMutex::<u64>::new();
    let guard = locks.try_lock(&7).unwrap();
    let mut waiter = locks.lock(&7);
    let (bell, waker) = Bell::new();
    assert!(poll_with(&mut waiter, &waker).is_pending());
    drop(guard);
    assert_eq!(bell.take(), 1);
    // The waiter has been woken and not polled since: further releases do not wake it again.
    drop(locks.try_lock(&7).unwrap());
    assert_eq!(bell.take(), 0);
    let guard = locks.try_lock(&7).unwrap();
    assert!(poll_with(&mut waiter, &waker).is_pending());
    drop(guard);
    assert_eq!(bell.take(), 1);
}

/// The key stays free for a waiter that was woken and is not polled. A waiter behind it is not woken, but may pass
/// it, and tries once more when its time is up.
#[test]
fn a_thread_whose_time_is_up_takes_a_free_key() {
    for fairness in [Fairness::Bounded(16), Fairness::Barging] {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        // A round counts if the key was released in time; otherwise the next round has a longer timeout.
        let counts = (4..).map(|n| Duration::from_millis(1 << n)).any(|timeout| {
            let guard = locks.try_lock(&7).unwrap();
            let mut idle = locks.lock(&7);
            pending(&mut idle);
            let deadline = Instant::now() + timeout;
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| locks.try_lock_until(&7, deadline).is_some());
                until(|| locks.status(&7).unwrap().waiters() == 2 || thread.is_finished());
                drop(guard);
                let in_time = Instant::now() < deadline;
                let got = thread.join().unwrap();
                assert!(got || !in_time, "{fairness:?}");
                in_time
            })
        });
        assert!(counts && locks.is_empty());
    }
}

#[test]
fn a_panic_about_an_invalid_number_names_the_callers_line() {
    use std::sync::Mutex;
    static AT: Mutex<Vec<(String, u32)>> = Mutex::new(vec![]);
    let here = std::thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == here {
            let at = info.location().map(|at| (at.file().to_owned(), at.line()));
            AT.lock().unwrap().extend(at);
        } else {
            before(info);
        }
    }));
    let first = line!();
    let outcomes = [
        catch_unwind(|| drop(KeyedMutex::<u64>::builder().shards(0).build())),
        catch_unwind(|| drop(KeyedSemaphore::<u64>::new(0))),
        catch_unwind(|| drop(KeyedSemaphore::<u64>::builder(0))),
        catch_unwind(|| drop(KeyedSemaphore::<u64, _>::with_hasher(0, std::hash::RandomState::new()))),
        catch_unwind(|| drop(KeyedSemaphore::<u64>::new(1).acquire_n(&7, 2))),
        catch_unwind(|| drop(Arc::new(KeyedSemaphore::<u64>::new(1)).try_acquire_n_arc_for(&7, 2, Duration::ZERO))),
        catch_unwind(|| drop(KeyedSemaphore::<u64>::new(1).handle(&7).acquire_n_blocking(0))),
    ];
    drop(std::panic::take_hook());
    assert!(outcomes.iter().all(Result::is_err));
    let at = std::mem::take(&mut *AT.lock().unwrap());
    let lines: Vec<_> = (2..=8).map(|n| (file!().to_owned(), first + n)).collect();
    assert_eq!(at, lines);
}

#[test]
fn a_status_shows_only_nonzero_counts() {
    let locks = KeyedMutex::<u64>::new();
    let handle = locks.handle(&7);
    assert_eq!(format!("{:?}", locks.status(&7)), "Some(Status)");
    let guard = handle.try_lock();
    let mut waiter = handle.lock();
    pending(&mut waiter);
    assert_eq!(format!("{:?}", locks.status(&7).unwrap()), "Status { writers: 1, waiting_writers: 1 }");
    drop(guard);
}
