//! The access that an operation asks for: its one kind of hold, or a number of permits.

/// The mode of that hold. `$permits` is how many there are.
macro_rules! mode {
    ($permits:expr, []) => {
        $crate::mode::sealed::ModeInside::ONE
    };
    ($permits:expr, [$n:ident]) => {
        $crate::mode::Permit::several($n, $permits)
    };
}

pub(crate) use mode;
