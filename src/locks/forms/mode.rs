//! What an operation asks for: a hold of the one kind that it has, or of as many permits as it is told.

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
