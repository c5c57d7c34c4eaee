//! Write access to the value of a map's key, for a tracked writer. (Readers use the guard's methods.)

use super::Tracked;
use crate::guard::Guard;
use crate::locks::writer;
use crate::mode::Exclusive;
use crate::plumbing::{CoreOf, HoldOf, TablePtr};

impl<P: TablePtr> Tracked<Guard<P, Exclusive>> {
    fn parts(&mut self) -> (&CoreOf<P>, &mut HoldOf<P, Exclusive>) {
        self.guard.parts()
    }

    fn guard_mut(&mut self) -> &mut Guard<P, Exclusive> {
        &mut self.guard
    }
}

writer! {
    /// Write access to the value of a [`LockMap`](crate::LockMap)'s key.
    Tracked<Guard<P, Exclusive>>, Exclusive,
    example = [
        "let map = keylatch::LockMap::<String, u32>::new();",
        "let party = keylatch::deadlock::Detector::new().party(\"shop\");",
        "let mut a = party.acquire_blocking(map.write(\"a\")).unwrap();"
    ]
}
