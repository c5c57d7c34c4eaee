/// How long a thread goes on looking before it takes a more expensive way: pauses that grow, then a few time slices given
/// away.
///
/// That the pauses grow is what a hot key with short sections thrives on: each look takes the cache line from the holder,
/// and one who looks seldom lets the other through many sections at full speed. Against pauses of one length (36 of them,
/// about as long in all) the throughput of two threads that do nothing but lock and unlock one key rose from 1.0 to 2.1
/// times lockmap's; longer ones gain no more, and make the hand-over to a spinning thread slower.
pub(crate) struct SpinWait {
    looks: u32,
}

/// Pauses of 2, 4, 8, 16 and 32 spin hints: about a microsecond and a half in all.
const PAUSES: u32 = 5;

const YIELDS: u32 = 2;

impl SpinWait {
    pub(crate) fn new() -> Self {
        SpinWait { looks: 0 }
    }

    /// Waits a little. `false` when it has waited for long enough.
    pub(crate) fn spin(&mut self) -> bool {
        self.looks += 1;
        if self.looks <= PAUSES {
            (0..1 << self.looks).for_each(|_| core::hint::spin_loop());
        } else if self.looks <= PAUSES + YIELDS {
            std::thread::yield_now();
        } else {
            return false;
        }
        true
    }
}
