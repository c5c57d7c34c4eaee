//! A key that cannot count one more: a panic, in every form, and nothing lost.

use alloc::string::String;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::core::word::{MAX_UNITS, Unit, Word};
use crate::{KeyHandle, KeyedMutex};

/// Runs `f` while the entry of `handle` counts as many claims as it can, all but one of them invented.
fn while_full(handle: &KeyHandle<'_, KeyedMutex<u32>>, f: impl FnOnce()) {
    let all = Word::from_bits(Word::born(Unit::Claim).bits() * (MAX_UNITS - 1));
    let shift = |sign: bool| {
        let moved = |word: Word| if sign { word.bits() + all.bits() } else { word.bits() - all.bits() };
        handle.claim().pretend(|word| Word::from_bits(moved(word)));
    };
    shift(true);
    f();
    shift(false);
}

#[test]
fn one_more_than_can_be_counted_panics_in_every_form() {
    let locks = KeyedMutex::<u32>::new();
    let handle = locks.handle(&7);
    let guard = handle.try_lock().unwrap();
    let panics = |what: &str, f: &dyn Fn()| {
        let message = *catch_unwind(AssertUnwindSafe(f)).expect_err(what).downcast::<String>().expect(what);
        assert!(message.contains("too many holders or waiters") && message.contains("at most"), "{what}: {message}");
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
        // This one needs no claim to say no.
        assert!(locks.try_lock(&7).is_none());
        // Other keys do not mind.
        assert!(locks.try_lock(&8).is_some());
    });
    drop(guard);
    let mut future = pin!(locks.lock(&7));
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    drop(handle);
    assert!(locks.is_empty());
}
