use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use crate::plumbing::{Table, TableRef};
use crate::status::Status;

/// A readable list of a table's keys with their holders and waiters: the result of
/// [`KeyedMutex::dump`](crate::KeyedMutex::dump).
///
/// `Display` writes a heading, a line for each key that is held or waited for, and the number of the remaining keys. A
/// dump reads the table when it is printed, as [`for_each_key`](crate::KeyedMutex::for_each_key) does, so it may be
/// kept and printed again. The keys with the most waiters come first, then those with the most holders; a precision, as
/// in `{:.10}`, limits the number of keys shown. `Debug` writes the same. Printing does not block; the keys' `Debug`
/// runs outside every internal lock.
///
/// # Panics
/// Printing panics when [`for_each_key`](crate::KeyedMutex::for_each_key) does, and if a key's `Debug` panics or fails.
///
/// # Examples
/// ```
/// let pages = keylatch::KeyedRwLock::<String>::new();
/// let home = (pages.try_read("home").unwrap(), pages.try_upgradable_read("home").unwrap());
/// let about = pages.try_write("about").unwrap();
/// assert_eq!(pages.dump().to_string(), "\
/// KeyedRwLock: 2 keys
///   \"home\"   1 reader, 1 upgradable reader
///   \"about\"  1 writer
/// ");
/// # drop((home, about));
/// ```
///
/// The dump of a mutex shows holders instead of readers and writers:
/// ```
/// let jobs = keylatch::KeyedMutex::<u64>::new();
/// let job = jobs.try_lock(&7).unwrap();
/// assert_eq!(jobs.dump().to_string(), "KeyedMutex: 1 key\n  7  1 holder\n");
/// # drop(job);
/// ```
pub struct Dump<'a, T: Table> {
    table: TableRef<'a, T>,
    name: &'static str,
}

/// The name of the mutex table, whose holders [`Status`] counts as writers.
const MUTEX: &str = "KeyedMutex";

fn holder_and_waiters(status: &Status, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(if status.holders() == 0 { "nobody" } else { "1 holder" })?;
    if status.waiters() > 0 {
        write!(f, "; {} waiting", status.waiters())?;
    }
    Ok(())
}

impl<'a, T: Table> Dump<'a, T> {
    pub(crate) fn new(table: &'a T, name: &'static str) -> Self {
        Dump { table: TableRef::new(table), name }
    }
}

impl<T: Table> Clone for Dump<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Table> Copy for Dump<'_, T> {}

impl<T: Table> fmt::Display for Dump<'_, T>
where
    T::Key: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut keys: Vec<(String, Status)> = Vec::new();
        let mut kept = 0;
        self.table.for_each_key(|key, status| {
            if status.holders() + status.waiters() > 0 {
                keys.push((format!("{key:?}"), status));
            } else {
                kept += 1;
            }
        });
        keys.sort_by(|(left, left_status), (right, right_status)| {
            let rank = |status: &Status| Reverse((status.waiters(), status.holders()));
            rank(left_status).cmp(&rank(right_status)).then_with(|| left.cmp(right))
        });
        let (used, all) = (keys.len(), keys.len() + kept);
        writeln!(f, "{}: {all} {}", self.name, if all == 1 { "key" } else { "keys" })?;
        keys.truncate(f.precision().unwrap_or(used));
        let width = keys.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
        for (key, status) in &keys {
            write!(f, "  {key:width$}  ")?;
            if self.name == MUTEX {
                holder_and_waiters(status, f)?
            } else {
                write!(f, "{status}")?
            }
            writeln!(f)?;
        }
        if keys.len() < used {
            writeln!(f, "  … and {} more", used - keys.len())?;
        }
        if kept > 0 {
            writeln!(f, "  and {kept} that nobody holds or waits for")?;
        }
        Ok(())
    }
}

impl<T: Table> fmt::Debug for Dump<'_, T>
where
    T::Key: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
