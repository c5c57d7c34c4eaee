/// The reason for which a [`LockMap`](crate::LockMap) evicted a value, as [`on_evict`](crate::Builder::on_evict) is
/// told.
///
/// More reasons may be added, so a `match` needs an arm for the others.
///
/// # Examples
/// See [`Builder::on_evict`](crate::Builder::on_evict).
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Evicted {
    /// The map had more values than [`max_values`](crate::Builder::max_values) allows.
    Size,
}
