/// One in this many uses without a hold lets the value come to rest (see the table layer). With a larger number, these
/// moves add less to the cost of a use. A model checker needs a small one.
pub(crate) const LOOKS_TO_REST: u32 = 32;

/// A spin lock for critical sections that are usually a few dozen instructions long.
pub(crate) struct Lock<T>(spin::mutex::SpinMutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Lock(spin::mutex::SpinMutex::new(value))
    }

    /// Runs `f` with the lock held. A panic in `f` releases the lock.
    #[inline(always)]
    #[cfg(not(feature = "critical-section"))]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.guard())
    }

    /// Runs `f` with the lock held. A panic in `f` releases the lock.
    #[cfg(feature = "critical-section")]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        critical_section::with(|_| f(&mut self.guard()))
    }

    #[inline(always)]
    fn guard(&self) -> spin::mutex::SpinMutexGuard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.guard_contended(),
        }
    }

    #[cold]
    fn guard_contended(&self) -> spin::mutex::SpinMutexGuard<'_, T> {
        // `snooze` pauses for some rounds and then, with `std`, yields: with more threads than cores the holder may be
        // off its core, and pure spinning would burn a whole time slice.
        let backoff = crossbeam_utils::Backoff::new();
        loop {
            if !self.0.is_locked() {
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
            backoff.snooze();
        }
    }
}

/// Pauses briefly between two sections under the same lock, so that a thread that spins for the lock can acquire it.
pub(crate) fn give_way() {
    for _ in 0..16 {
        core::hint::spin_loop();
    }
}
