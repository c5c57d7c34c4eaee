//! The function to which a map hands its evicted values.

use alloc::boxed::Box;

use crate::evicted::Evicted;

/// User code that is handed each evicted or ended value with its key, with no internal lock held, and after all wakers
/// have run.
///
/// `pub` because sealed traits name it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct OnEvict<K, T>(Box<Call<K, T>>);

type Call<K, T> = dyn Fn(K, T, Evicted) + Send + Sync;

// The function is only called while the table is consistent.
impl<K, T> core::panic::UnwindSafe for OnEvict<K, T> {}
impl<K, T> core::panic::RefUnwindSafe for OnEvict<K, T> {}

impl<K, T> OnEvict<K, T> {
    pub(crate) fn new(call: impl Fn(K, T, Evicted) + Send + Sync + 'static) -> Self {
        OnEvict(Box::new(call))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn tell(&self, key: K, value: T, cause: Evicted) {
        (self.0)(key, value, cause);
    }
}
