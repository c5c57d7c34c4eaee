//! A bus, its devices, and the locks that coordinate their users.

use alloc::boxed::Box;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use critical_section::Mutex;
use keylatch::{KeyedMutex, KeyedRwLock, KeyedSemaphore, Latch};

use crate::interrupt;

/// The addresses of the devices on the bus.
pub(crate) const ADDRESSES: [u8; 3] = [0x1d, 0x40, 0x68];

/// The only DMA controller, and the number of its channels.
pub(crate) const CONTROLLER: u8 = 0;
pub(crate) const CHANNELS: u32 = 2;

/// The weight of a writer: more than that of all readers together.
pub(crate) const ALONE: u32 = 100;

/// The number of keys that can be in use at the same time.
const CAPACITY: usize = ADDRESSES.len();

/// The lock of the last sample, which needs no key and no table.
pub(crate) static SAMPLE: Latch = Latch::new();

pub(crate) struct World {
    /// The lock of the device at an address, held while talking to it.
    pub(crate) bus: KeyedMutex<u8>,
    /// The lock of the settings of the device at an address, for reading or changing.
    pub(crate) settings: KeyedRwLock<u8>,
    /// The permits to use a controller's channels.
    pub(crate) channels: KeyedSemaphore<u8>,
    devices: [Device; ADDRESSES.len()],
    pub(crate) channels_used: Watch,
    pub(crate) sample: Watch,
    /// The number of exclusion violations, noticed by tasks and by the interrupt handler.
    pub(crate) seen_by_tasks: AtomicU32,
    pub(crate) seen_by_interrupts: AtomicU32,
}

pub(crate) struct Device {
    talks: Watch,
    pub(crate) settings: Watch,
    /// A count that is read, and written back later. This is correct only under exclusion.
    transfers: AtomicU32,
}

impl World {
    pub(crate) fn leak() -> &'static World {
        let device = || Device { talks: Watch::new(1), settings: Watch::new(ALONE), transfers: AtomicU32::new(0) };
        Box::leak(Box::new(World {
            bus: KeyedMutex::builder().shards(1).capacity(CAPACITY).build(),
            settings: KeyedRwLock::builder().shards(1).capacity(CAPACITY).build(),
            channels: KeyedSemaphore::builder(CHANNELS as usize).shards(1).capacity(CAPACITY).build(),
            devices: [device(), device(), device()],
            channels_used: Watch::new(CHANNELS),
            sample: Watch::new(ALONE),
            seen_by_tasks: AtomicU32::new(0),
            seen_by_interrupts: AtomicU32::new(0),
        }))
    }

    pub(crate) fn device(&self, address: u8) -> &Device {
        let index = ADDRESSES.iter().position(|&known| known == address);
        &self.devices[index.expect("an address of a device")]
    }

    /// Begins a talk with a device, whose address the caller holds. Returns the argument of [`end`](World::end).
    pub(crate) fn begin(&self, address: u8) -> u32 {
        let device = self.device(address);
        self.enter(&device.talks, 1);
        device.transfers.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self, address: u8, transfers: u32) {
        let device = self.device(address);
        device.transfers.store(transfers + 1, Ordering::Relaxed);
        device.talks.leave(1);
    }

    /// Talks to a device without a pause.
    #[cfg(feature = "interrupts")]
    pub(crate) fn talk(&self, address: u8) {
        self.end(address, self.begin(address));
    }

    /// Records an entry, and a violation if it exceeds the limit.
    pub(crate) fn enter(&self, watch: &Watch, weight: u32) {
        if !watch.enter(weight) {
            let seen = if interrupt::is_running() { &self.seen_by_interrupts } else { &self.seen_by_tasks };
            add(seen, 1);
        }
    }

    pub(crate) fn transfers(&self) -> u32 {
        self.devices.iter().map(|device| device.transfers.load(Ordering::Relaxed)).sum()
    }

    /// Returns the total number of violations.
    pub(crate) fn violations(&self) -> u32 {
        self.seen_by_tasks.load(Ordering::Relaxed) + self.seen_by_interrupts.load(Ordering::Relaxed)
    }

    /// Returns the number of keys with an entry.
    pub(crate) fn entries(&self) -> usize {
        self.bus.len() + self.settings.len() + self.channels.len()
    }
}

/// A count of the users inside. It is correct despite interrupts, so that the locks can be judged by it.
pub(crate) struct Watch {
    inside: Mutex<Cell<u32>>,
    limit: u32,
}

impl Watch {
    const fn new(limit: u32) -> Watch {
        Watch { inside: Mutex::new(Cell::new(0)), limit }
    }

    /// Records an entry. Returns whether it was within the limit.
    fn enter(&self, weight: u32) -> bool {
        critical_section::with(|cs| {
            let inside = self.inside.borrow(cs);
            inside.set(inside.get() + weight);
            inside.get() <= self.limit
        })
    }

    pub(crate) fn leave(&self, weight: u32) {
        critical_section::with(|cs| {
            let inside = self.inside.borrow(cs);
            inside.set(inside.get() - weight);
        });
    }
}

/// Adds to a counter, even on machines without atomic addition.
pub(crate) fn add(counter: &AtomicU32, n: u32) {
    critical_section::with(|_| counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed));
}
