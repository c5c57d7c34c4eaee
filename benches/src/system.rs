//! Functions of the operating system: the CPU time of a thread, the kind of machine, and, on Linux, slower wake-ups.
//!
//! # Slow wakes
//!
//! A thread that waits for another one sleeps in a futex. std and parking_lot, in which all candidates ultimately
//! wait, both call it through the C library's function `syscall`. A program may define that function itself, as this
//! module does. Each call is forwarded; but while there is a [`Slow`], a thread whose sleep was ended by a wake-up
//! sleeps for another [`DELAY`]. So a wake-up is equally slow for every candidate, and does not occupy a core.
#![allow(unsafe_code)] // calls of the C library

use std::time::Duration;
use std::{env, fs};

/// Returns the CPU time of the calling thread, or `None` if the system does not provide it.
pub fn thread_time() -> Option<Duration> {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a value of the right type, which is not shared.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
    #[cfg(not(unix))]
    None
}

/// Returns a short description of the system and its processor.
pub fn machine() -> String {
    let name = || {
        let text = fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(format!(", {}", line.split_once(": ")?.1))
    };
    format!("{} {}{}", env::consts::OS, env::consts::ARCH, name().unwrap_or_default())
}

/// The minimum additional time of a slow wake-up. It takes longer, because the system must wake the thread once more.
pub const DELAY: Duration = Duration::from_micros(30);

/// Wake-ups are slow while a value of this type exists.
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

    /// The number of existing [`Slow`] values.
    static SLOW: AtomicU32 = AtomicU32::new(0);

    thread_local! {
        /// The number of slow wake-ups of this thread.
        static DELAYS: Cell<u64> = const { Cell::new(0) };
    }

    impl Slow {
        /// Makes wake-ups slow. Always returns `Some`: this system supports that.
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

    /// Replaces the C library's function.
    // It only jumps to the function that does the work, with the arguments in place. So the compiler sees nothing
    // here that could contradict the type its callers declare, which is variadic in C.
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
    /// Has the same contract as the system call. Arguments that the call does not have may have any value.
    unsafe extern "C" fn pass_on(
        number: c_long,
        a: c_long,
        operation: c_long,
        c: c_long,
        d: c_long,
        e: c_long,
        f: c_long,
    ) -> c_long {
        // SAFETY: the caller upholds the contract, which is the same.
        let result = unsafe { c_librarys()(number, a, operation, c, d, e, f) };
        // The thread was woken: the call neither returned at once nor timed out.
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
            // By default the system may extend a sleep by 50 µs, to combine wake-ups.
            // SAFETY: the arguments of this call are numbers only.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        }
        DELAYS.set(DELAYS.get() + 1);
        thread::sleep(DELAY);
    }

    type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;

    /// Returns the function that ours replaces.
    fn c_librarys() -> Syscall {
        // This is not a cell whose initialization other threads wait for, because waiting would need a futex.
        static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        let mut found = FOUND.load(Relaxed);
        if found.is_null() {
            // SAFETY: the name is a C string.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) };
            assert!(!found.is_null(), "the C library has no `syscall`");
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

        /// Returns whether a thread that requests a held key is woken slowly. It may spin before it sleeps, and be kept
        /// off the processor meanwhile, so later rounds hold the key longer.
        fn has_slow_wakes<L: Locks<u64>>(locks: L) -> bool {
            let is_slow = |hold| {
                let guard = locks.lock_blocking(&HOT);
                thread::scope(|scope| {
                    let waiter = scope.spawn(|| {
                        drop(locks.lock_blocking(&HOT));
                        DELAYS.get() > 0
                    });
                    thread::sleep(hold);
                    drop(guard);
                    waiter.join().expect("no operation panics")
                })
            };
            (0..40).any(|round| is_slow(Duration::from_millis(1 << round.min(10))))
        }

        #[test]
        fn a_slow_wake_is_slow_for_all_who_can_wait() {
            Condition::SlowWake.run(|| {
                assert!(has_slow_wakes(KeyedMutex::<u64>::new()));
                assert!(has_slow_wakes(OneHandle::default()));
                assert!(has_slow_wakes(LockMap::<u64, ()>::new()));
                assert!(has_slow_wakes(KeyedLocks::<u64>::default()));
                assert!(has_slow_wakes(LockPool::<u64>::new()));
                assert!(has_slow_wakes(StdMap::<u64>::default()));
                assert!(has_slow_wakes(parking_lot::Mutex::new(())));
            });
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod slow_wakes {
    impl super::Slow {
        /// Returns `None`: this system does not support slow wake-ups.
        pub fn begin() -> Option<Self> {
            None
        }
    }
}
