//! The mode that an operation requests: that of a new hold of its type (in a semaphore, one permit), or a number of
//! permits.
//!
//! The macro makes that mode. `$permits` is the greatest number of permits that a request may ask for.
macro_rules! mode {
    ($permits:expr, []) => {
        $crate::mode::sealed::ModeInside::ONE
    };
    ($permits:expr, [$n:ident]) => {
        $crate::mode::Permit::checked($n, $permits)
    };
}

pub(crate) use mode;
