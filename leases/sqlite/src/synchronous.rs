/// The events that a confirmed lease survives: SQLite's setting of this name.
///
/// # Examples
/// See [`Options`](crate::Options).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synchronous {
    /// A lease survives the end of every process, even by `kill -9`. If the power fails or the kernel crashes, the
    /// changes of the last moments may be lost, and the file is as it was a moment before. The processes that held the
    /// leases are gone with the machine; tokens still grow.
    #[default]
    Normal,
    /// A lease also survives the loss of power. Each operation that changes something waits for the disk, for a
    /// fraction of a millisecond to several milliseconds.
    Full,
}

impl Synchronous {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Synchronous::Normal => "NORMAL",
            Synchronous::Full => "FULL",
        }
    }
}
