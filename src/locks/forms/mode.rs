//! The mode that an operation requests: the table's only mode of that type, or a number of permits.
//!
//! The requested mode. `$permits` is the number of permits of each key.
macro_rules! mode {
    ($permits:expr, []) => {
        $crate::mode::sealed::ModeInside::ONE
    };
    ($permits:expr, [$n:ident]) => {
        $crate::mode::Permit::checked($n, $permits)
    };
}

pub(crate) use mode;
