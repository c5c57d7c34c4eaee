//! Several tasks and the interrupt handler share the world for a while.
//!
//! A driver locks a channel of the DMA controller, the device's settings and its address, in that order. The
//! configurator changes settings, the hog keeps one address for a long time, the impatient task gives up after two
//! ticks, and the interrupt handler competes for addresses: it talks at once, or keeps the address until the next tick,
//! so that tasks wait for an interrupt.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use critical_section::Mutex;
use embassy_executor::Spawner;
use keylatch::MutexGuard;
use semihosting::println;

use crate::clock::{sleep, tick, ticks};
use crate::verdict::Verdict;
use crate::world::{ADDRESSES, ALONE, CONTROLLER, SAMPLE, World, add};
use crate::{heap, interrupt, machine};

const DRIVERS: u32 = 3;
const ROUNDS: u32 = 100;
const TASKS: u32 = DRIVERS + 3;
const HOT: u8 = ADDRESSES[1];

/// The tick at which the run ends at the latest, far later than needed: a task that has not finished by then waits for
/// ever. (A Cortex-M0 needs about 25,000 ticks, because its tasks get little done between two of them, and the
/// interrupt handler requests an address in each.)
const MOST_TICKS: u32 = 200_000;

#[derive(Default)]
struct Counts {
    /// The number of times a task held an address.
    held: AtomicU32,
    cancelled: AtomicU32,
    /// The number of times the impatient task got its address.
    in_time: AtomicU32,
    changes: AtomicU32,
    /// The outcomes of the interrupt handler's requests.
    got: AtomicU32,
    refused: AtomicU32,
    sampled: AtomicU32,
    not_sampled: AtomicU32,
    finished: AtomicU32,
}

static COUNTS: Counts = Counts {
    held: AtomicU32::new(0),
    cancelled: AtomicU32::new(0),
    in_time: AtomicU32::new(0),
    changes: AtomicU32::new(0),
    got: AtomicU32::new(0),
    refused: AtomicU32::new(0),
    sampled: AtomicU32::new(0),
    not_sampled: AtomicU32::new(0),
    finished: AtomicU32::new(0),
};

#[embassy_executor::task(pool_size = DRIVERS as usize)]
async fn driver(world: &'static World, id: u32) {
    for round in 0..ROUNDS {
        let address = ADDRESSES[(id + round) as usize % ADDRESSES.len()];
        let channel = world.channels.acquire(&CONTROLLER).await;
        world.enter(&world.channels_used, 1);
        let settings = world.settings.read(&address).await;
        let device = world.device(address);
        world.enter(&device.settings, 1);
        let bus = world.bus.lock(&address).await;
        let talk = world.begin(address);
        sleep(round % 3).await;
        let reader = SAMPLE.read().await;
        world.enter(&world.sample, 1);
        sleep(round % 2).await;
        world.sample.leave(1);
        drop(reader);
        world.end(address, talk);
        add(&COUNTS.held, 1);
        drop(bus);
        device.settings.leave(1);
        drop(settings);
        world.channels_used.leave(1);
        drop(channel);
    }
    add(&COUNTS.finished, 1);
}

/// Reads settings, and changes them without admitting another writer in between.
#[embassy_executor::task]
async fn configurator(world: &'static World) {
    for round in 0..ROUNDS {
        let address = ADDRESSES[round as usize % ADDRESSES.len()];
        let watch = &world.device(address).settings;
        let reader = world.settings.upgradable_read(&address).await;
        world.enter(watch, 1);
        sleep(1).await;
        watch.leave(1);
        let writer = reader.upgrade().await;
        world.enter(watch, ALONE);
        sleep(1).await;
        watch.leave(ALONE);
        drop(writer);
        let writer = SAMPLE.write().await;
        world.enter(&world.sample, ALONE);
        sleep(1).await;
        world.sample.leave(ALONE);
        drop(writer);
        add(&COUNTS.changes, 1);
    }
    add(&COUNTS.finished, 1);
}

#[embassy_executor::task]
async fn hog(world: &'static World) {
    for _ in 0..ROUNDS / 4 {
        let bus = world.bus.lock(&HOT).await;
        let talk = world.begin(HOT);
        sleep(5).await;
        world.end(HOT, talk);
        add(&COUNTS.held, 1);
        drop(bus);
        sleep(4).await;
    }
    add(&COUNTS.finished, 1);
}

/// Waits with a timer, and may or may not get the address in time.
#[embassy_executor::task]
async fn impatient(world: &'static World) {
    for _ in 0..ROUNDS {
        match world.bus.lock(&HOT).until(sleep(2)).await {
            Ok(bus) => {
                let talk = world.begin(HOT);
                world.end(HOT, talk);
                add(&COUNTS.held, 1);
                add(&COUNTS.in_time, 1);
                drop(bus);
            }
            Err(()) => add(&COUNTS.cancelled, 1),
        }
        sleep(1).await;
    }
    add(&COUNTS.finished, 1);
}

struct Kept {
    address: u8,
    talk: u32,
    /// The guard of the address.
    _bus: MutexGuard<'static, u8>,
}

/// The interrupt handler's hold, until it is released.
static KEPT: Mutex<RefCell<Option<Kept>>> = Mutex::new(RefCell::new(None));
static STOP: AtomicBool = AtomicBool::new(false);

/// Handles the interrupt while the tasks run: counts a tick, and competes with the tasks.
fn on_interrupt(world: &'static World) {
    tick();
    let now = ticks();
    // The interval is never the same twice in a row, so that over time every instruction is interrupted.
    (machine::machine().set_alarm)(5_000 + now.wrapping_mul(2_654_435_761) % 4_099);
    if !interrupt::LOCKS {
        return;
    }
    let kept = critical_section::with(|cs| KEPT.borrow_ref_mut(cs).take());
    if let Some(kept) = kept {
        world.end(kept.address, kept.talk);
    }
    if STOP.load(Ordering::Relaxed) {
        return;
    }
    if let Some(reader) = SAMPLE.try_read() {
        world.enter(&world.sample, 1);
        world.sample.leave(1);
        drop(reader);
        add(&COUNTS.sampled, 1);
    } else {
        add(&COUNTS.not_sampled, 1);
    }
    let address = ADDRESSES[now as usize % ADDRESSES.len()];
    let Some(bus) = world.bus.try_lock(&address) else { return add(&COUNTS.refused, 1) };
    add(&COUNTS.got, 1);
    let talk = world.begin(address);
    if now % 4 == 0 {
        critical_section::with(|cs| *KEPT.borrow_ref_mut(cs) = Some(Kept { address, talk, _bus: bus }));
    } else {
        world.end(address, talk);
    }
}

pub(crate) async fn run(spawner: Spawner, world: &'static World, verdict: &mut Verdict) {
    let before = (heap::book(), world.transfers());
    machine::on_alarm(world, on_interrupt);
    for id in 0..DRIVERS {
        spawner.spawn(driver(world, id).expect("one of the drivers"));
    }
    spawner.spawn(configurator(world).expect("the only one"));
    spawner.spawn(hog(world).expect("the only one"));
    spawner.spawn(impatient(world).expect("the only one"));
    (machine::machine().set_alarm)(1_000);
    while COUNTS.finished.load(Ordering::Relaxed) < TASKS && ticks() < MOST_TICKS {
        sleep(1).await;
    }
    STOP.store(true, Ordering::Relaxed);
    sleep(2).await;

    let [held, cancelled, in_time, changes, got, refused, sampled, not_sampled, finished] = [
        &COUNTS.held,
        &COUNTS.cancelled,
        &COUNTS.in_time,
        &COUNTS.changes,
        &COUNTS.got,
        &COUNTS.refused,
        &COUNTS.sampled,
        &COUNTS.not_sampled,
        &COUNTS.finished,
    ]
    .map(|count| count.load(Ordering::Relaxed));
    let transfers = world.transfers() - before.1;
    let violations = world.violations();
    let entries = world.entries();
    let allocations = heap::book().in_interrupts - before.0.in_interrupts;
    println!("tasks: {finished} of {TASKS} finished after {} ticks", ticks());
    println!(
        "  addresses held by tasks {held}, by the interrupt {got}; transfers {transfers}; settings changed {changes}"
    );
    println!("  waits cancelled by the timer {cancelled}, served in time {in_time}");
    println!("  the interrupt's requests: {} ({got} granted, {refused} refused)", got + refused);
    println!("  the interrupt read the sample {sampled} times, and was kept out {not_sampled} times");
    println!("  allocations in the interrupt {allocations}; violations {violations}; entries left {entries}");
    verdict.check("every task finished", finished == TASKS);
    verdict.check("exclusion: no holders overlapped", violations == 0);
    verdict.check("exclusion: no transfer was lost", transfers == held + got);
    verdict.check("cancellation: the timer cancelled waits", cancelled > 0);
    verdict.check("cancellation: others were served in time", in_time > 0);
    verdict.check("the tables are empty", entries == 0);
    verdict.check("the latch is free", SAMPLE.try_write().is_some());
    verdict.check("ticks were counted", ticks() > 100);
    if interrupt::LOCKS {
        verdict.check("the interrupt got an address", got > 0);
        verdict.check("the interrupt was refused an address", refused > 0);
        verdict.check("the interrupt read under the latch", sampled > 0);
        verdict.check("the interrupt was kept out by the latch", not_sampled > 0);
        verdict.check("no allocation in the interrupt", allocations == 0);
    }
}
