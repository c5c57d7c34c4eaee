/// The reason why a value left a [`LockMap`](crate::LockMap) although no caller removed it. It is passed to the
/// function set by [`on_evict`](crate::Builder::on_evict).
///
/// More reasons may be added, so a `match` needs an arm for the others.
///
/// # Examples
/// See [`Builder::on_evict`](crate::Builder::on_evict).
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Evicted {
    /// The map had more values than [`max_values`](crate::Builder::max_values) allows, or its values weighed more than
    /// [`max_weight`](crate::Builder::max_weight) allows.
    Size,
    /// The value's time had passed: see [`time_to_live`](crate::Builder::time_to_live).
    Expired,
}
