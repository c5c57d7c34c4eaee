//! Every kind of call is interrupted, after every instruction, by another call on the same table.
//!
//! The alarm is set, and the call follows. This is repeated, each time with an alarm one tick later, until the alarm
//! fires after the call. A tick is shorter than an instruction, so no place between two instructions is left out. After
//! each round the tables must be empty.

use alloc::boxed::Box;
use core::cell::RefCell;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use critical_section::Mutex;
use keylatch::{MutexGuard, futures::Lock};
use semihosting::println;

use crate::verdict::Verdict;
use crate::world::{ADDRESSES, ALONE, CHANNELS, CONTROLLER, World, add};
use crate::{heap, machine};

const A: u8 = ADDRESSES[0];
const B: u8 = ADDRESSES[1];
const C: u8 = ADDRESSES[2];

/// The number of rounds in a row in which the alarm must not fire within the call, before the sweep of a pair ends.
const LATE: u32 = 50;

struct Pair {
    name: &'static str,
    /// Whether the interrupt handler already holds the key.
    kept: bool,
    call: fn(&'static World),
    interrupt: fn(&'static World),
}

const PAIRS: [Pair; 22] = [
    pair("try_lock and release / the same", try_lock, other_try),
    pair("try_lock and release / another key", try_lock, other_key),
    pair("try_lock and release / take and keep", try_lock, take_and_keep),
    pair("lock and release / try_lock", lock, other_try),
    pair("lock and release / another key", lock, other_key),
    pair("a wait, a hand-off / try_lock", wait, other_try),
    pair("a wait, a hand-off / another key", wait, other_key),
    pair("a cancelled wait / try_lock", cancel, other_try),
    pair("a cancelled wait / another key", cancel, other_key),
    pair("three keys / try_lock", three_keys, other_try),
    pair("three keys / another key", three_keys, other_key),
    pair("a handle / try_lock", handle, other_try),
    pair("status and for_each_key / try_lock", look, other_try),
    pair("read, write, upgrade / try_read, try_write", read_write, other_read_write),
    pair("acquire / try_acquire", acquire, other_acquire),
    pair("a reader waits / try_read, try_write", wait_to_read, other_read_write),
    pair("a wait for a permit / try_acquire", wait_for_permit, other_acquire),
    held("try_lock / the release", try_lock, release),
    held("lock, which waits / the release", lock, release),
    held("a cancelled wait / the release", cancel_anyway, release),
    held("two waits, one cancelled / the release", cancel_first, release),
    pair("a release, a task waits / that wait is cancelled", release_to_waiter, cancel_waiter),
];

const fn pair(name: &'static str, call: fn(&'static World), interrupt: fn(&'static World)) -> Pair {
    Pair { name, kept: false, call, interrupt }
}

/// Creates a pair whose call meets a key that the interrupt handler holds and then releases.
const fn held(name: &'static str, call: fn(&'static World), interrupt: fn(&'static World)) -> Pair {
    Pair { name, kept: true, call, interrupt }
}

// ---- the calls ----------------------------------------------------------------------------------------------------

fn try_lock(world: &'static World) {
    if let Some(bus) = world.bus.try_lock(&A) {
        world.talk(A);
        drop(bus);
    }
}

fn lock(world: &'static World) {
    let bus = block_on(world.bus.lock(&A));
    world.talk(A);
    drop(bus);
}

fn wait(world: &'static World) {
    let bus = block_on(world.bus.lock(&A));
    let mut waiter = pin!(world.bus.lock(&A));
    assert!(poll(waiter.as_mut()).is_pending());
    world.talk(A);
    drop(bus);
    let bus = block_on(waiter);
    world.talk(A);
    drop(bus);
}

fn cancel(world: &'static World) {
    let bus = block_on(world.bus.lock(&A));
    {
        let waiter = pin!(world.bus.lock(&A));
        assert!(poll(waiter).is_pending());
        world.talk(A);
    }
    drop(bus);
}

fn three_keys(world: &'static World) {
    let guards = [A, B, C].map(|address| world.bus.try_lock(&address));
    assert!(world.bus.len() <= 3);
    drop(guards);
}

fn handle(world: &'static World) {
    let handle = world.bus.handle(&A);
    if let Some(bus) = handle.try_lock() {
        world.talk(A);
        drop(bus);
    }
    drop(handle);
}

fn look(world: &'static World) {
    let bus = world.bus.try_lock(&A);
    world.bus.for_each_key(|&key, status| assert!(key == A && status.writers() == 1));
    assert!(world.bus.is_locked(&A));
    drop(bus);
}

fn read_write(world: &'static World) {
    let watch = &world.device(A).settings;
    let reader = block_on(world.settings.upgradable_read(&A));
    world.enter(watch, 1);
    watch.leave(1);
    let writer = block_on(reader.upgrade());
    world.enter(watch, ALONE);
    watch.leave(ALONE);
    let reader = writer.downgrade();
    world.enter(watch, 1);
    watch.leave(1);
    drop(reader);
}

fn acquire(world: &'static World) {
    let first = block_on(world.channels.acquire(&CONTROLLER));
    world.enter(&world.channels_used, 1);
    let second = world.channels.try_acquire(&CONTROLLER).expect("the interrupt handler has released its permit");
    world.enter(&world.channels_used, 1);
    world.channels_used.leave(1);
    drop(second);
    world.channels_used.leave(1);
    drop(first);
}

fn wait_to_read(world: &'static World) {
    let watch = &world.device(A).settings;
    let writer = block_on(world.settings.write(&A));
    let mut waiter = pin!(world.settings.read(&A));
    assert!(poll(waiter.as_mut()).is_pending());
    world.enter(watch, ALONE);
    watch.leave(ALONE);
    drop(writer);
    let reader = block_on(waiter);
    world.enter(watch, 1);
    watch.leave(1);
    drop(reader);
}

fn wait_for_permit(world: &'static World) {
    let held = [(); CHANNELS as usize].map(|()| block_on(world.channels.acquire(&CONTROLLER)));
    let mut waiter = pin!(world.channels.acquire(&CONTROLLER));
    assert!(poll(waiter.as_mut()).is_pending());
    world.enter(&world.channels_used, CHANNELS);
    world.channels_used.leave(CHANNELS);
    drop(held);
    let channel = block_on(waiter);
    world.enter(&world.channels_used, 1);
    world.channels_used.leave(1);
    drop(channel);
}

/// Cancels a wait, or uses the key if it is free by then.
fn cancel_anyway(world: &'static World) {
    let waiter = pin!(world.bus.lock(&A));
    if let Poll::Ready(bus) = poll(waiter) {
        world.talk(A);
        drop(bus);
    }
}

fn cancel_first(world: &'static World) {
    let mut second = pin!(world.bus.lock(&A));
    {
        let first = pin!(world.bus.lock(&A));
        if let Poll::Ready(bus) = poll(first) {
            drop(bus);
        }
        if let Poll::Ready(bus) = poll(second.as_mut()) {
            return drop(bus);
        }
    }
    drop(block_on(second));
}

/// Releases the key while a future waits for it, unless the interrupt handler has dropped the future.
fn release_to_waiter(world: &'static World) {
    let bus = block_on(world.bus.lock(&A));
    let mut waiter = take_waiter().expect("the waiter is in its place");
    waiter.set(Some(world.bus.lock(&A)));
    assert!(poll(waiter.as_mut().as_pin_mut().expect("just set")).is_pending());
    keep_waiter(waiter);
    world.talk(A);
    drop(bus);
    cancel_waiter(world);
}

// ---- the calls that interrupt them ----------------------------------------------------------------------------------

fn other_try(world: &'static World) {
    let bus = world.bus.try_lock(&A);
    note(bus.is_some());
    if bus.is_some() {
        world.talk(A);
    }
}

fn other_key(world: &'static World) {
    assert!(world.bus.status(&A).is_none_or(|status| status.holders() <= 1));
    note(world.bus.handle(&B).try_lock().is_some());
}

fn take_and_keep(world: &'static World) {
    note(keep(world));
}

fn release(world: &'static World) {
    let kept = critical_section::with(|cs| KEPT.borrow_ref_mut(cs).take());
    if let Some(Kept { bus, talk }) = kept {
        world.end(A, talk);
        drop(bus);
    }
}

fn cancel_waiter(_: &'static World) {
    if let Some(mut waiter) = take_waiter() {
        waiter.set(None);
        keep_waiter(waiter);
    }
}

fn other_read_write(world: &'static World) {
    let watch = &world.device(A).settings;
    let reader = world.settings.try_read(&A);
    note(reader.is_some());
    if reader.is_some() {
        world.enter(watch, 1);
        watch.leave(1);
    }
    drop(reader);
    let writer = world.settings.try_write(&A);
    note(writer.is_some());
    if writer.is_some() {
        world.enter(watch, ALONE);
        watch.leave(ALONE);
    }
}

fn other_acquire(world: &'static World) {
    let channel = world.channels.try_acquire(&CONTROLLER);
    note(channel.is_some());
    if channel.is_some() {
        world.enter(&world.channels_used, 1);
        world.channels_used.leave(1);
    }
}

// ---- the sweep ------------------------------------------------------------------------------------------------------

static FIRED: AtomicBool = AtomicBool::new(false);
/// Whether the alarm fired within the call, and not while the call only waited for a wake-up.
static WITHIN: AtomicBool = AtomicBool::new(false);
static GOT: AtomicU32 = AtomicU32::new(0);
static REFUSED: AtomicU32 = AtomicU32::new(0);
/// The index of the current pair.
static AT: AtomicU32 = AtomicU32::new(0);
/// The hold of the interrupt handler, during a talk.
struct Kept {
    bus: MutexGuard<'static, u8>,
    talk: u32,
}

static KEPT: Mutex<RefCell<Option<Kept>>> = Mutex::new(RefCell::new(None));

fn keep(world: &'static World) -> bool {
    let Some(bus) = world.bus.try_lock(&A) else { return false };
    let talk = world.begin(A);
    critical_section::with(|cs| *KEPT.borrow_ref_mut(cs) = Some(Kept { bus, talk }));
    true
}

/// The place of a future that the interrupt handler can drop. Code that uses the future takes it out while it does so.
type Waiter = Pin<&'static mut Option<Lock<'static, u8>>>;
static WAITER: Mutex<RefCell<Option<Waiter>>> = Mutex::new(RefCell::new(None));

fn take_waiter() -> Option<Waiter> {
    critical_section::with(|cs| WAITER.borrow_ref_mut(cs).take())
}

fn keep_waiter(waiter: Waiter) {
    critical_section::with(|cs| *WAITER.borrow_ref_mut(cs) = Some(waiter));
}

fn note(got: bool) {
    add(if got { &GOT } else { &REFUSED }, 1);
}

/// Handles the interrupt during the sweep: makes the other call of the current pair.
fn interrupt(world: &'static World) {
    (PAIRS[AT.load(Ordering::Relaxed) as usize].interrupt)(world);
    WITHIN.store(!ASLEEP.load(Ordering::Relaxed), Ordering::Relaxed);
    FIRED.store(true, Ordering::Relaxed);
}

pub(crate) fn run(world: &'static World, verdict: &mut Verdict) {
    println!("sweep: a call, interrupted after every instruction / the interrupting call");
    machine::on_alarm(world, interrupt);
    keep_waiter(Pin::static_mut(Box::leak(Box::new(None))));
    let before = heap::book();
    let (mut all, mut always_empty) = (0, true);
    let (mut all_got, mut all_refused) = (0, 0);
    for (at, pair) in PAIRS.iter().enumerate() {
        AT.store(at as u32, Ordering::Relaxed);
        GOT.store(0, Ordering::Relaxed);
        REFUSED.store(0, Ordering::Relaxed);
        let (mut delay, mut inside, mut late) = (0, 0, 0);
        while late < LATE {
            delay += 1;
            if pair.kept {
                assert!(keep(world));
            }
            FIRED.store(false, Ordering::Relaxed);
            (machine::machine().set_alarm)(delay);
            (pair.call)(world);
            if FIRED.load(Ordering::Relaxed) && WITHIN.load(Ordering::Relaxed) {
                (inside, late) = (inside + 1, 0);
            } else {
                late += 1;
            }
            while !FIRED.load(Ordering::Relaxed) {}
            release(world);
            always_empty &= world.entries() == 0;
        }
        let (got, refused) = (GOT.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed));
        println!("  {}: interrupted {inside} times; {got} granted, {refused} refused", pair.name);
        verdict.check("a call was interrupted in many places", inside > 100);
        all += inside;
        all_got += got;
        all_refused += refused;
    }
    let after = heap::book();
    let allocations = after.in_interrupts - before.in_interrupts;
    println!(
        "  in all {all} interrupts within a call, {all_got} requests granted, {all_refused} refused; \
         allocations in the interrupt {allocations}; violations {}",
        world.violations()
    );
    verdict.check("the tables were empty after every round", always_empty);
    verdict.check("the interrupt was granted keys", all_got > 0);
    verdict.check("the interrupt was refused keys", all_refused > 0);
    verdict.check("exclusion: no holders overlapped", world.violations() == 0);
    verdict.check("no allocation in the interrupt", allocations == 0);
}

// ---- a small executor -----------------------------------------------------------------------------------------------

static WOKEN: AtomicBool = AtomicBool::new(false);
static ASLEEP: AtomicBool = AtomicBool::new(false);

fn waker() -> Waker {
    const FUNCTIONS: RawWakerVTable = RawWakerVTable::new(|_| RAW, |_| wake(), |_| wake(), |_| {});
    const RAW: RawWaker = RawWaker::new(core::ptr::null(), &FUNCTIONS);
    fn wake() {
        WOKEN.store(true, Ordering::Relaxed);
    }
    // SAFETY: the functions only access a static.
    unsafe { Waker::from_raw(RAW) }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&waker()))
}

/// Polls only when woken, so that a lost wake-up is noticed.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        WOKEN.store(false, Ordering::Relaxed);
        if let Poll::Ready(output) = poll(future.as_mut()) {
            return output;
        }
        ASLEEP.store(true, Ordering::Relaxed);
        let mut patience = 100_000;
        while !WOKEN.load(Ordering::Relaxed) {
            patience -= 1;
            assert!(patience > 0, "a wake-up was lost");
        }
        ASLEEP.store(false, Ordering::Relaxed);
    }
}
