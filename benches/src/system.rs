//! What only the operating system can tell, or do: how long a thread has run, on what machine, and, on Linux, wakes
//! that take longer.
//!
//! # Slow wakes
//!
//! A thread that waits for another one sleeps in a futex. std and parking_lot, in which all candidates wait in the end,
//! both ask for one through the C library's function `syscall`. A program may define that function itself, as this
//! module does. Each call is passed on; but while wakes are [`Slow`], a thread whose sleep was ended by a wake sleeps
//! [`DELAY`] more. So a wake is slow for every candidate alike, and takes nobody's core meanwhile.
#![allow(unsafe_code)] // calls of the C library

use std::time::Duration;
use std::{env, fs};

/// For how long the calling thread has had a core, since it began. `None` where nobody knows.
pub fn thread_time() -> Option<Duration> {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a value of the right type, which nobody else has.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
    #[cfg(not(unix))]
    None
}

/// The system and its processor, in a few words.
pub fn machine() -> String {
    let name = || {
        let text = fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(format!(", {}", line.split_once(": ")?.1))
    };
    format!("{} {}{}", env::consts::OS, env::consts::ARCH, name().unwrap_or_default())
}

/// How much longer a slow wake takes, at the least: the system wakes the thread a second time.
pub const DELAY: Duration = Duration::from_micros(30);

/// While there is one, wakes are slow.
pub struct Slow(());

#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod slow_wakes {
    use std::arch::naked_asm;
    use std::cell::Cell;
    use std::ffi::{c_long, c_void};
    use std::mem;
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};
    use std::thread;

    use super::{DELAY, Slow};

    /// How many [`Slow`] there are.
    static SLOW: AtomicU32 = AtomicU32::new(0);

    thread_local! {
        /// How many wakes of this thread have been slow.
        static DELAYS: Cell<u64> = const { Cell::new(0) };
    }

    impl Slow {
        /// `None` if this system cannot have them.
        pub fn begin() -> Option<Self> {
            SLOW.fetch_add(1, Relaxed);
            Some(Slow(()))
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            SLOW.fetch_sub(1, Relaxed);
        }
    }

    /// Stands in for the C library's.
    // It only jumps to the function that does the work, with the arguments where they are. So nothing that callers say
    // of its type, which is variadic in C, can be at odds with what the compiler sees here.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    unsafe extern "C" fn syscall() {
        #[cfg(target_arch = "x86_64")]
        naked_asm!("jmp {}", sym pass_on);
        #[cfg(target_arch = "aarch64")]
        naked_asm!("b {}", sym pass_on);
    }

    /// # Safety
    ///
    /// As the system call says. Arguments that it does not have may be anything.
    unsafe extern "C" fn pass_on(
        number: c_long,
        a: c_long,
        operation: c_long,
        c: c_long,
        d: c_long,
        e: c_long,
        f: c_long,
    ) -> c_long {
        // SAFETY: the caller keeps to the contract, which is the same.
        let result = unsafe { c_librarys()(number, a, operation, c, d, e, f) };
        // Woken, and neither too late to sleep nor timed out.
        if number == libc::SYS_futex && result == 0 && SLOW.load(Relaxed) > 0 && is_wait(operation) {
            delay();
        }
        result
    }

    fn is_wait(operation: c_long) -> bool {
        matches!(operation as i32 & libc::FUTEX_CMD_MASK, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET)
    }

    fn delay() {
        if DELAYS.get() == 0 {
            // The system may make a sleep longer by 50 µs, to wake others at the same time, unless it is told not to.
            // SAFETY: this call takes numbers only.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        }
        DELAYS.set(DELAYS.get() + 1);
        thread::sleep(DELAY);
    }

    type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;

    /// The function that ours stands in for.
    fn c_librarys() -> Syscall {
        // No cell that waits for whoever fills it: that would need a futex.
        static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        let mut found = FOUND.load(Relaxed);
        if found.is_null() {
            // SAFETY: the name is a string of C.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) };
            assert!(!found.is_null(), "the C library has it");
            FOUND.store(found, Relaxed);
        }
        // SAFETY: it is the function of this name, which has this type.
        unsafe { mem::transmute::<*mut c_void, Syscall>(found) }
    }

    #[cfg(test)]
    mod tests {
        use std::time::Duration;

        use keylatch::KeyedMutex;
        use lockable::LockPool;
        use lockmap::LockMap;

        use super::*;
        use crate::candidates::{HOT, KeyedLocks, Locks, OneHandle, StdMap};
        use crate::conditions::Condition;

        /// How many slow wakes a thread had that asked for a key, again and again, while it was held.
        fn slow_wakes<L: Locks<u64>>(locks: L) -> u64 {
            let wait = || {
                let guard = locks.lock_blocking(&HOT);
                thread::scope(|scope| {
                    let waiter = scope.spawn(|| {
                        drop(locks.lock_blocking(&HOT));
                        DELAYS.get()
                    });
                    // By now it sleeps, most of the time.
                    thread::sleep(Duration::from_millis(1));
                    drop(guard);
                    waiter.join().expect("no operation panics")
                })
            };
            (0..100).map(|_| wait()).sum()
        }

        #[test]
        fn a_slow_wake_is_slow_for_all_who_can_wait() {
            Condition::SlowWake.run(|| {
                assert!(slow_wakes(KeyedMutex::<u64>::new()) > 0);
                assert!(slow_wakes(OneHandle::default()) > 0);
                assert!(slow_wakes(LockMap::<u64, ()>::new()) > 0);
                assert!(slow_wakes(KeyedLocks::<u64>::default()) > 0);
                assert!(slow_wakes(LockPool::<u64>::new()) > 0);
                assert!(slow_wakes(StdMap::<u64>::default()) > 0);
                assert!(slow_wakes(parking_lot::Mutex::new(())) > 0);
            });
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod slow_wakes {
    impl super::Slow {
        /// `None` if this system cannot have them.
        pub fn begin() -> Option<Self> {
            None
        }
    }
}
