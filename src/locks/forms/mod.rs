//! The code that the tables share: [`table!`] for the handles and queries of every table, [`lock_table!`] for the rest
//! of a table without values, [`constructors!`] for the construction of a table without permits, [`downgrades!`] for
//! the downgrades of a writer, [`forms!`] for the forms of one operation, which may take a number beside the key, and
//! [`many!`] for the forms of an operation on several keys. Each family of forms has a file. The body of a form is one
//! call into [`Call`](crate::acquire::request::Call), or into [`Calls`](crate::acquire::many::Calls) for several keys;
//! the rest is signatures and docs.
//!
//! Every path in a macro is absolute, so that a table's file needs no imports for the macro's code.

pub(crate) mod borrowed;
mod downgrades;
pub(crate) mod handle;
pub(crate) mod many;
pub(crate) mod mode;
pub(crate) mod names;
pub(crate) mod owned;
mod table;

/// The forms of one operation.
macro_rules! forms {
    (
        // In brackets: the type parameter of the values, if the table has values.
        $Table:ident $V:tt, $Mode:ident,
        // The generic parameters, among them `P`, of the handles that have the same operation. Empty if another table
        // defines the operation for those handles.
        handles $handles:tt,
        // The bounds of `Q`. The compiler's error for an argument that is not a key of the table points at them, so
        // they are in the table's file, and not here.
        asked with [$($asked:tt)+],
        // For the examples: a table of strings, and a `try_` method that conflicts with this operation on the same key.
        new = $new:literal, excludes = $excludes:literal,
        // The summary of the guard, without a full stop: each type of guard appends how it refers to the table. Empty
        // if another operation defines the guard.
        $(#[doc = $held:literal])?
        guards $Guard:ident, $GuardArc:ident, futures $Future:ident, $FutureArc:ident,
        // The operation's summary, without a full stop: each form appends how it waits. Then the rest of the docs.
        #[doc = $does:literal]
        $(#[doc = $more:literal])*
        async $lock:ident, blocking $lock_blocking:ident,
        $(#[doc = $fails:literal])+
        try $try_lock:ident, for $try_lock_for:ident, until $try_lock_until:ident,
        arc $lock_arc:ident, $lock_arc_blocking:ident, $try_lock_arc:ident, $try_lock_arc_for:ident,
        $try_lock_arc_until:ident,
        // Aliases for the search in the documentation.
        aliases [$lock_blocking_alias:literal, $lock_arc_alias:literal, $try_lock_arc_alias:literal] $(,)?
        // A number beside the key, with its value in the examples.
        $(takes $n:ident: $Number:ty = $value:literal $(,)?)?
        // The method of `Call` that makes the operation pass waiters.
        $(passing $passing:ident $(,)?)?
    ) => {
        $($crate::locks::forms::names::names! {
            $Table $V, $Mode, $lock, $lock_arc,
            held = $held, $Guard, $GuardArc,
            $Future, $FutureArc,
        })?
        $crate::locks::forms::borrowed::borrowed! {
            $Table $V, $Guard, $Future,
            asked with [$($asked)+], new = $new, excludes = $excludes,
            does = $does, more = [$($more)*], fails = [$($fails)+],
            $lock, $lock_blocking, $try_lock, $try_lock_for, $try_lock_until,
            owned $lock_arc, $lock_arc_blocking, $try_lock_arc,
            aliases $lock_blocking_alias, takes [$($n: $Number = $value)?], passing [$($passing)?],
        }
        $crate::locks::forms::owned::owned! {
            $Table $V, $GuardArc, $FutureArc,
            asked with [$($asked)+], new = $new, excludes = $excludes, does = $does,
            $lock, $lock_blocking, $try_lock, $try_lock_for, $try_lock_until,
            $lock_arc, $lock_arc_blocking, $try_lock_arc, $try_lock_arc_for, $try_lock_arc_until,
            aliases $lock_arc_alias, $try_lock_arc_alias, takes [$($n: $Number = $value)?], passing [$($passing)?],
        }
        $crate::locks::forms::handle::handle! {
            $Table, $Mode, handles $handles, new = $new, does = $does,
            $lock, $lock_blocking, $try_lock, $try_lock_for, $try_lock_until,
            takes [$($n: $Number = $value)?], passing [$($passing)?],
        }
    };
}

pub(crate) use self::downgrades::downgrades;
pub(crate) use self::many::many;
pub(crate) use self::table::{constructors, lock_table, table};
pub(crate) use forms;
