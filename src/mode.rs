//! The modes of a [`Guard`](crate::Guard): what its holder may do.

use core::fmt::Debug;

use crate::core::{Claim, Core};
use crate::upgrade::Upgrading;

/// A mode. Sealed.
pub trait Mode: Debug + Sized {
    #[doc(hidden)]
    const MODE: crate::core::Mode;

    /// What a guard of this mode has to remember beside its hold.
    #[doc(hidden)]
    type State: Default;

    /// Releases a hold of this mode.
    #[doc(hidden)]
    #[inline]
    fn release<K>(core: &Core<K>, hold: Claim<K>, _: Self::State) {
        core.release(hold, Self::MODE);
    }
}

/// The mode of a hold that goes from one holder to one other: exclusive, or one permit. Sealed.
pub trait HandOver: Mode {}

macro_rules! modes {
    ($($(#[$doc:meta])+ $name:ident { $($body:tt)+ })+) => {$(
        $(#[$doc])+
        #[derive(Debug)]
        pub enum $name {}

        impl Mode for $name {
            const MODE: crate::core::Mode = crate::core::Mode::$name;
            $($body)+
        }
    )+};
}

modes! {
    /// The only holder of its key: of a mutex, or as a writer.
    Exclusive {
        type State = ();
    }

    /// A reader, beside other readers.
    Shared {
        type State = ();
    }

    /// A reader, beside other readers, that alone may become a writer.
    Upgradable {
        type State = Upgrading;

        fn release<K>(core: &Core<K>, hold: Claim<K>, upgrading: Upgrading) {
            upgrading.release(core, hold);
        }
    }

    /// The holder of one permit.
    Permit {
        type State = ();
    }
}

impl HandOver for Exclusive {}
impl HandOver for Permit {}
