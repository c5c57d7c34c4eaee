//! The modes of a [`Guard`](crate::Guard): what its holder may do.

use core::fmt::Debug;

/// A mode. Sealed.
pub trait Mode: Debug {
    #[doc(hidden)]
    const MODE: crate::core::Mode;
}

/// The mode of a hold that goes from one holder to one other: exclusive, or one permit. Sealed.
pub trait HandOver: Mode {}

macro_rules! modes {
    ($($(#[$doc:meta])+ $name:ident;)+) => {$(
        $(#[$doc])+
        #[derive(Debug)]
        pub enum $name {}

        impl Mode for $name {
            const MODE: crate::core::Mode = crate::core::Mode::$name;
        }
    )+};
}

modes! {
    /// The only holder of its key.
    Exclusive;
}

impl HandOver for Exclusive {}
