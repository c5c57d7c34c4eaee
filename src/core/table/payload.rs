/// What an entry has beside its key: nothing, in a table of locks.
///
/// It lives as long as its entry, from the making to the retirement, and is touched by whoever has the access to: readers
/// share it, and an exclusive hold has it alone. Its memory is the slot's, so nothing here costs a table that has none.
///
/// `pub` because sealed traits name it; nobody outside can.
#[allow(unreachable_pub)]
pub trait Payload: Sized {
    /// What each shard keeps for the payloads of all its entries, past and present.
    type Kept: Default;

    /// For a new entry. Under the shard lock, so without user code.
    fn begin(kept: &mut Self::Kept) -> Self;

    /// The entry dies. Under the shard lock: what is user code to drop must be gone by now.
    fn end(self, kept: &mut Self::Kept);
}

impl Payload for () {
    type Kept = ();

    #[inline(always)]
    fn begin((): &mut ()) {}

    #[inline(always)]
    fn end(self, (): &mut ()) {}
}
