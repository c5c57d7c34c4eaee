//! The resources that the locks use. Everything is measured: heap in requested bytes, the stack by painting it, and
//! instructions by the machine's counter, if it has one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::black_box;
use core::mem::size_of;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

use keylatch::{KeyedMutex, KeyedRwLock, KeyedSemaphore, MutexGuard, futures::Lock};
use semihosting::println;

use crate::verdict::Verdict;
use crate::{heap, machine};

type Table = KeyedMutex<u8>;
type Waiter<'a> = Pin<Box<Lock<'a, u8>>>;

pub(crate) fn print() {
    println!("footprint, in bytes:");
    println!("  a table, beside its heap {}", size_of::<Table>());
    println!("  a guard {}, a future of lock {}", size_of::<MutexGuard<u8>>(), size_of::<Lock<u8>>());
    tables();
    entries();
    waiters();
    calls();
}

fn table(shards: usize, capacity: usize) -> Table {
    KeyedMutex::builder().shards(shards).capacity(capacity).build()
}

/// Returns the heap bytes of a value.
fn heap_of<T>(make: impl FnOnce() -> T) -> usize {
    let before = heap::book().in_use;
    let value = make();
    let taken = heap::book().in_use - before;
    drop(value);
    taken
}

/// Checks that a table with `capacity(n)` allocates nothing as long as at most `n` keys are in use.
pub(crate) fn churn(verdict: &mut Verdict) {
    let table = table(1, 8);
    let mut held = [const { None }; 8];
    let before = heap::book().allocations;
    for n in 0..2_000_usize {
        let place = &mut held[n % 8];
        *place = None;
        *place = table.try_lock(&(n as u8).wrapping_mul(167));
    }
    let allocations = heap::book().allocations - before;
    println!("churn: 2000 keys come and go, 8 at once, capacity(8): {allocations} allocations");
    verdict.check("capacity prevents allocations", allocations == 0);
}

fn tables() {
    let one = heap_of(|| table(1, 0));
    println!("  heap of an empty table: one shard {one}, each further shard {}", heap_of(|| table(2, 0)) - one);
    for n in [4, 8, 16] {
        println!("  heap for capacity({n}), beside that: {}", heap_of(|| table(1, n)) - one);
    }
}

fn entries() {
    let table = table(1, 0);
    let mut guards = Vec::with_capacity(16);
    let before = heap::book().in_use;
    for live in [1, 2, 4, 8, 16] {
        guards.extend((guards.len()..live).map(|key| table.try_lock(&(key as u8))));
        println!("  heap for {live} live entries, without capacity: {}", heap::book().in_use - before);
    }
}

fn waiters() {
    for (waiters, keys) in [(1, 1), (8, 1), (8, 8)] {
        println!(
            "  heap for {waiters} waiters on {keys} keys, beside their futures: {}",
            heap_of_waiters(waiters, keys)
        );
    }
}

fn heap_of_waiters(waiters: u8, keys: u8) -> usize {
    let table = table(1, usize::from(keys));
    let _held: Vec<_> = (0..keys).map(|key| table.try_lock(&key)).collect();
    let mut waiting: Vec<Waiter> = (0..waiters).map(|n| Box::pin(table.lock(&(n % keys)))).collect();
    let before = heap::book().in_use;
    for waiter in &mut waiting {
        assert!(poll(waiter.as_mut()).is_none());
    }
    heap::book().in_use - before
}

fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

// ---- the cost of calls ----------------------------------------------------------------------------------------------

fn calls() {
    println!("calls: stack, in bytes; instructions, and how many of them at most with interrupts off:");
    let table = &table(1, 8);
    let held = || table.try_lock(&1);
    let asked = || (held(), Box::pin(Some(table.lock(&1))));
    let waiting = || {
        let (held, mut waiter) = asked();
        assert!(poll_some(&mut waiter).is_none());
        (held, waiter)
    };
    measure("nothing", || (), |()| ());
    measure("try_lock, free", || (), |()| table.try_lock(&1));
    measure("try_lock, refused", held, |held| (table.try_lock(&1), held));
    measure("release", held, drop);
    measure("lock, free", || (), |()| poll(pin!(table.lock(&1))));
    measure("lock, which has to wait", asked, |(held, mut waiter)| (poll_some(&mut waiter), waiter, held));
    measure("a wait cancelled", waiting, |(held, mut waiter)| {
        waiter.set(None);
        (waiter, held)
    });
    measure("release, while a task waits", waiting, |(held, waiter)| {
        drop(held);
        waiter
    });
    measure("a waiter enters", || waiting().1, |mut waiter| (poll_some(&mut waiter), waiter));
    measure("for_each_key, one key", held, |held| {
        table.for_each_key(|key, status| {
            black_box((key, status));
        });
        held
    });
    let settings = &KeyedRwLock::<u8>::builder().shards(1).capacity(8).build();
    measure("read", || (), |()| settings.try_read(&1));
    measure("upgrade", || settings.try_upgradable_read(&1), |held| held.map(|held| poll(pin!(held.upgrade()))));
    let channels = &KeyedSemaphore::<u8>::builder(2).shards(1).capacity(8).build();
    measure("acquire", || (), |()| channels.try_acquire(&1));
    measure("10 keys in turn, no capacity", || self::table(1, 0), |table| held_at_once(table, 10));
    measure("30 keys in turn, no capacity", || self::table(1, 0), |table| held_at_once(table, 30));
    measure("30 keys in turn, capacity(30)", || self::table(1, 30), |table| held_at_once(table, 30));
    measure("the builder makes a table", || (), |()| self::table(1, 8));
}

/// Locks `keys` keys; the table grows meanwhile if necessary. The guards are forgotten; their entries are freed with
/// the table.
fn held_at_once(table: Table, keys: u8) -> Table {
    for key in 0..keys {
        core::mem::forget(table.try_lock(&key));
    }
    table
}

fn poll_some<'a>(waiter: &mut Pin<Box<Option<Lock<'a, u8>>>>) -> Option<MutexGuard<'a, u8>> {
    poll(waiter.as_mut().as_pin_mut().expect("a waiter"))
}

/// Prints the cost of `call` in the second of two rounds, when the pools are filled.
fn measure<T, U>(name: &str, prepare: impl Fn() -> T, call: impl Fn(T) -> U) {
    let mut stack = 0;
    let mut counted = (0, 0);
    for _ in 0..2 {
        let prepared = prepare();
        let result = counting(&mut counted, || call(prepared));
        drop(result);
        let prepared = prepare();
        let result = painted(&mut stack, || call(prepared));
        drop(result);
    }
    match machine::machine().instructions {
        Some(_) => println!("  {name}: {stack}; {}, {}", counted.0, counted.1),
        None => println!("  {name}: {stack}"),
    }
}

fn counting<U>(counted: &mut (u32, u32), call: impl FnOnce() -> U) -> U {
    let Some(count) = machine::machine().instructions else { return call() };
    (count.longest_section)();
    let before = (count.so_far)();
    let result = out_of_line(call);
    *counted = ((count.so_far)() - before, (count.longest_section)());
    result
}

/// The number of bytes that are painted below the stack pointer: more than any call uses.
const DEPTH: usize = 3 * 1024;
const PAINT: u32 = 0x5a17_ed17;

fn painted<U>(stack: &mut usize, call: impl FnOnce() -> U) -> U {
    critical_section::with(|_| {
        let top = stack_pointer();
        let words = DEPTH / size_of::<u32>();
        for n in 1..=words {
            // SAFETY: the `DEPTH` bytes below the stack pointer belong to the machine's stack, and are not in use:
            // interrupts are off.
            unsafe { top.sub(n).write_volatile(PAINT) };
        }
        let result = out_of_line(call);
        // SAFETY: as above.
        let untouched = (1..=words).rev().take_while(|&n| unsafe { top.sub(n).read_volatile() } == PAINT).count();
        *stack = DEPTH - untouched * size_of::<u32>();
        result
    })
}

#[inline(never)]
fn out_of_line<U>(call: impl FnOnce() -> U) -> U {
    black_box(call())
}

#[inline(always)]
fn stack_pointer() -> *mut u32 {
    let pointer: *mut u32;
    // SAFETY: this only reads a register.
    unsafe {
        #[cfg(target_arch = "arm")]
        core::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "riscv32")]
        core::arch::asm!("mv {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}
