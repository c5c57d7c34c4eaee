//! If a key has the maximum number of users, every form that adds a user panics, and no user is lost.

use alloc::string::String;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::core::wait::word::{Access, MAX_UNITS, Unit, Word};
use crate::{KeyHandle, KeyedMutex};

/// Runs `f` while the entry of `handle` counts the maximum number of units: those of the handle and of one guard, and
/// invented ones.
fn while_full(handle: &KeyHandle<'_, KeyedMutex<u32>>, f: impl FnOnce()) {
    let all = Word::from_bits(Word::born(Unit::Claim).bits() * (MAX_UNITS - 2));
    let shift = |sign: bool| {
        let moved = |word: Word| if sign { word.bits() + all.bits() } else { word.bits() - all.bits() };
        handle.claim().live().state().pretend(|word| Word::from_bits(moved(word)));
    };
    shift(true);
    f();
    shift(false);
}

#[test]
fn one_user_too_many_panics_in_every_form() {
    let locks = KeyedMutex::<u32>::new();
    let handle = locks.handle(&7);
    let guard = handle.try_lock().unwrap();
    let panics = |what: &str, f: &dyn Fn()| {
        let message = *catch_unwind(AssertUnwindSafe(f)).expect_err(what).downcast::<String>().expect(what);
        assert!(message.contains("too many users") && message.contains("at most"), "{what}: {message}");
    };
    while_full(&handle, || {
        panics("lock", &|| drop(locks.lock(&7)));
        panics("lock_blocking", &|| drop(locks.lock_blocking(&7)));
        panics("try_lock_for", &|| drop(locks.try_lock_for(&7, Duration::ZERO)));
        panics("try_lock_until", &|| drop(locks.try_lock_until(&7, Instant::now())));
        panics("handle", &|| drop(locks.handle(&7)));
        panics("handle.lock", &|| drop(handle.lock()));
        panics("handle.clone", &|| drop(handle.clone()));
        panics("for_each_key", &|| locks.for_each_key(|_, _| {}));
        // This call fails without a claim, so it does not panic.
        assert!(locks.try_lock(&7).is_none());
        // Other keys are not affected.
        assert!(locks.try_lock(&8).is_some());
    });
    drop(guard);
    let mut future = pin!(locks.lock(&7));
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    drop(handle);
    assert!(locks.is_empty());
}

/// Readers that queued while there was room for each of them are admitted together.
#[test]
fn waiters_that_are_let_in_together_cannot_overflow_a_field() {
    let locks = crate::KeyedRwLock::<u32>::new();
    let handle = locks.handle(&7);
    let reader = handle.try_read().unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let invented = (MAX_UNITS - 5) * Word::born(Unit::Hold(Access::Shared)).bits();
    handle.claim().live().state().pretend(|word| Word::from_bits(word.bits() + invented));
    let mut writer = std::boxed::Box::pin(locks.write(&7));
    assert!(writer.as_mut().poll(&mut cx).is_pending());
    let mut readers = std::vec![];
    // The waiting writer keeps these readers out as soon as the policy's bound on bypasses is reached.
    while locks.status(&7).unwrap().waiting_readers() < 2 {
        match catch_unwind(AssertUnwindSafe(|| locks.read(&7))) {
            Ok(reader) => {
                let mut reader = std::boxed::Box::pin(reader);
                if let core::task::Poll::Ready(guard) = reader.as_mut().poll(&mut cx) {
                    core::mem::forget(guard);
                    handle.claim().live().state().pretend(|word| word.leave(Unit::Hold(Access::Shared)));
                } else {
                    readers.push(reader);
                }
            }
            Err(_) => break,
        }
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(handle.clone()))).is_err(), "the entry is full");
    drop(writer);
    let status = locks.status(&7).unwrap();
    assert_eq!((status.writers(), status.waiters()), (0, 0));
    assert_eq!(status.readers(), MAX_UNITS - 4 + readers.len());
    assert!(locks.try_write(&7).is_none());
    drop((readers, reader));
    handle.claim().live().state().pretend(|word| Word::from_bits(word.bits() - invented));
    drop(handle);
    assert!(locks.is_empty());
}

/// The call panics wherever the full key is in the list, and the keys before it are not held afterwards.
#[test]
fn a_call_for_several_keys_of_which_one_is_full_panics_and_holds_none() {
    let locks = KeyedMutex::<u32>::new();
    let handle = locks.handle(&7);
    let guard = handle.try_lock().unwrap();
    while_full(&handle, || {
        for list in [&[7, 8, 9][..], &[8, 7, 9], &[8, 9, 7], &[8, 8, 7], &[7]] {
            let calls: [&dyn Fn(); 4] = [
                &|| drop(locks.lock_many(list)),
                &|| drop(locks.lock_many_blocking(list)),
                &|| drop(locks.try_lock_many(list)),
                &|| drop(locks.try_lock_many_until(list, Instant::now())),
            ];
            for call in calls {
                let message = *catch_unwind(AssertUnwindSafe(call)).unwrap_err().downcast::<String>().unwrap();
                assert!(message.contains("too many users"), "{message}");
                assert_eq!(locks.len(), 1);
            }
        }
        assert_eq!(locks.try_lock_many([&8, &9]).unwrap().len(), 2);
    });
    drop((guard, handle));
    assert!(locks.is_empty());
}
