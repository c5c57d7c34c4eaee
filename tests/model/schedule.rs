//! Schedules: every operation of every table, in every form, in an order that the input bytes determine. Most schedules
//! use few keys. One in eight uses many, so that groups of entries are allocated, kept and freed. Half of all schedules
//! also lock several keys at once, and in a quarter of all, requests have priorities. Futures are polled by hand, so
//! one thread plays all parts.
//!
//! In the contract, a call for several keys is one call for each of them, in the order of their entries in memory,
//! until one has to wait. The schedule derives that order from the addresses of the keys.
//!
//! After every step the table is compared with the [contract](crate::common::contract), and so are the observer's
//! events. A few guarantees are checked independently of that model: exclusion among the existing guards, the bound
//! of the bypass, the readers' phase, and, at the end, that every waiter acquires its key although it is polled only
//! when it was woken.
//!
//! `tests/model` plays random schedules; `fuzz` plays those that lead a fuzzer to new paths.
#![allow(unreachable_pub)] // shared by several test programs

use std::collections::HashMap;
use std::future::{Future, ready};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use keylatch::mode::{Exclusive, Mode, Permit, Shared, Upgradable};
use keylatch::table::{Kind, Table, TablePtr, TableRef};
use keylatch::{Builder, Fairness, Guard, Guards, Status, WaitEvent, WaitId, WaitMode, WaitPhase};
use keylatch::{KeyHandle, KeyHandleArc, KeyedMutex, KeyedRwLock, KeyedSemaphore};

use crate::common::contract::{For, Holds, Id, Key, Rules, Seen, Want};
use crate::common::{Bell, Bytes};

const FEW: u8 = 3;
/// More keys than one group of slots in each of two shards.
const MANY: u8 = 40;
const STEPS: usize = 300;

/// A hasher that hashes the same in every run.
type Hasher = BuildHasherDefault<DefaultHasher>;
type MutexTable = KeyedMutex<u8, Hasher>;
type RwLock = KeyedRwLock<u8, Hasher>;
type Semaphore = KeyedSemaphore<u8, Hasher>;

/// Runs the schedule that these bytes describe.
///
/// # Panics
/// If the table does not do what the contract says.
pub fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let (table, policy, size) = (bytes.next(), bytes.next(), bytes.next());
    let fairness = match policy % 8 {
        0 => Fairness::Fifo,
        1 => Fairness::Barging,
        2 | 3 => Fairness::Adaptive,
        n => Fairness::Bounded([0, 1, 3, 999][usize::from(n) - 4]),
    };
    let keys = if size / 32 == 7 { MANY } else { 1 + size / 32 % FEW };
    let permits = 1 + usize::from(size % 4);
    let permits = if table % 3 == 2 { permits } else { 0 };
    let kinds = [table >= 128, policy / 8 % 4 == 3];
    let rules = Rules { fairness, permits };
    match table % 3 {
        0 => play::<MutexTable>(build(KeyedMutex::builder(), fairness, size), rules, keys, kinds, bytes),
        1 => play::<RwLock>(build(KeyedRwLock::builder(), fairness, size), rules, keys, kinds, bytes),
        _ => play::<Semaphore>(build(KeyedSemaphore::builder(permits), fairness, size), rules, keys, kinds, bytes),
    }
}

fn play<T: Locks<Key = u8>>(
    (table, waits): (T, Arc<Waits>),
    rules: Rules,
    keys: u8,
    [several, has_priorities]: [bool; 2],
    bytes: Bytes<'_>,
) {
    let table = Arc::new(table);
    let mut world = World::new(&table, waits, rules, keys);
    world.locks_several = several;
    world.has_priorities = has_priorities;
    let forgotten = world.run(bytes);
    drop(table);
    assert!(forgotten.iter().all(|bell| Arc::strong_count(bell) == 1), "a waker outlived its table");
}

fn build<T: Kind>(builder: Builder<T, u8>, fairness: Fairness, size: u8) -> (T::Table<u8, Hasher>, Arc<Waits>) {
    let (shards, pool) = (1 << (size / 4 % 2), usize::from(size / 8 % 4) * if size / 32 == 7 { 8 } else { 1 });
    let waits = Arc::new(Waits::default());
    let recorder = Arc::clone(&waits);
    let builder = builder.hasher(Hasher::default()).on_wait(move |event| recorder.record(event));
    (builder.fairness(fairness).shards(shards).pool_capacity(pool).build(), waits)
}

// ---- the observer's events ------------------------------------------------------------------------------------------

/// The waits that have begun and not ended.
#[derive(Default)]
struct Waits(Mutex<HashMap<WaitId, (u8, WaitMode)>>);

impl Waits {
    fn record(&self, event: &WaitEvent<'_, u8>) {
        let (id, wait) = (event.id(), (*event.key(), event.mode()));
        let known = match event.phase() {
            WaitPhase::Started => self.0.lock().unwrap().insert(id, wait).is_none(),
            _ => self.0.lock().unwrap().remove(&id) == Some(wait),
        };
        assert!(known, "{event:?}");
    }

    fn of(&self, key: u8) -> Vec<WaitMode> {
        self.0.lock().unwrap().values().filter(|wait| wait.0 == key).map(|wait| wait.1).collect()
    }
}

fn mode_of(want: Want) -> WaitMode {
    match want {
        Want::Read | Want::Recursive => WaitMode::Read,
        Want::Upgradable => WaitMode::UpgradableRead,
        Want::Write => WaitMode::Write,
        Want::Upgrade => WaitMode::Upgrade,
        Want::Permits(amount) => WaitMode::Permits(amount as usize),
    }
}

// ---- a common view of the tables ------------------------------------------------------------------------------------

/// The object on which an operation is called.
enum Source<'a, 't, T: Table> {
    Table(u8),
    TableArc(u8),
    Handle(&'a KeyHandle<'t, T>),
    HandleArc(&'a KeyHandleArc<T>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Try,
    /// The timed call, with a limit that has been reached.
    For,
    Until,
    Limited,
    /// The blocking call, made only when it does not have to wait.
    Blocking,
}

type Held<'t> = Box<dyn Hold<'t> + 't>;
type Asked<'t> = Box<dyn Ask<'t> + 't>;
type AskedMany<'t> = Box<dyn AskMany<'t> + 't>;

/// A table, with its operations in all forms.
trait Locks: Table + Limits {
    /// The kinds of holds it offers. A request for one permit stands for any number of permits.
    const WANTS: &'static [Want];

    fn start<'t>(self: &'t Arc<Self>, source: Source<'_, 't, Self>, want: Want, priority: u8) -> Asked<'t>;
    fn call<'t>(self: &'t Arc<Self>, source: Source<'_, 't, Self>, want: Want, form: Form) -> Option<Held<'t>>;
    /// Requests several keys: those in `reads` for reading and those in `writes` for writing. A key in both lists is
    /// written.
    fn start_many<'t>(self: &'t Arc<Self>, reads: &[u8], writes: &[u8], owns: bool) -> AskedMany<'t>;
    fn call_many<'t>(self: &'t Arc<Self>, reads: &[u8], writes: &[u8], owns: bool, form: Form)
    -> Option<Vec<Held<'t>>>;
    fn handle_of(&self, key: u8) -> KeyHandle<'_, Self>;
    fn handle_arc_of(self: &Arc<Self>, key: u8) -> KeyHandleArc<Self>;
    fn is_locked_at(&self, key: u8) -> bool;
    fn status_at(&self, key: u8) -> Option<Status>;
    fn len_now(&self) -> usize;
    fn visit(&self, visit: impl FnMut(&u8, Status));
}

/// Changes the number of permits of a key, or that of all others. Only a semaphore has permits.
trait Limits: Sized {
    /// Gives the key its own number of permits (`Some`), or removes that number (`None`). Returns `true` in the first
    /// case, and whether there was such a number in the second.
    fn set_permits_of(&self, _key: u8, _permits: Option<usize>) -> bool {
        unreachable!()
    }

    fn set_permits_of_others(&self, _permits: usize) {
        unreachable!()
    }
}

impl Limits for MutexTable {}
impl Limits for RwLock {}

impl Limits for Semaphore {
    fn set_permits_of(&self, key: u8, permits: Option<usize>) -> bool {
        match permits {
            Some(permits) => self.set_permits(&key, permits),
            None => return self.reset_permits(&key),
        }
        true
    }

    fn set_permits_of_others(&self, permits: usize) {
        self.set_default_permits(permits);
        assert_eq!(self.permits(), permits);
    }
}

/// Performs one operation in one form, on a table with its key or on a handle.
macro_rules! in_form {
    ($form:ident $on:ident($($key:expr),*) $lock:ident $blocking:ident $try_now:ident $try_for:ident $try_until:ident) => {
        match $form {
            Form::Try => $on.$try_now($($key),*).map(held),
            Form::For => $on.$try_for($($key,)* Duration::ZERO).map(held),
            Form::Until => $on.$try_until($($key,)* Instant::now()).map(held),
            Form::Limited => finished($on.$lock($($key),*).until(ready(()))).ok().map(held),
            Form::Blocking => Some(held($on.$blocking($($key),*))),
        }
    };
}

/// Performs one operation on several keys in one form.
macro_rules! many_in_form {
    ($form:ident $on:ident($($keys:expr),+) $lock:ident $blocking:ident $try_now:ident $try_for:ident $try_until:ident) => {
        match $form {
            Form::Try => $on.$try_now($($keys),+).map(ManyMode::into_held),
            Form::For => $on.$try_for($($keys,)+ Duration::ZERO).map(ManyMode::into_held),
            Form::Until => $on.$try_until($($keys,)+ Instant::now()).map(ManyMode::into_held),
            Form::Limited => finished($on.$lock($($keys),+).until(ready(()))).ok().map(ManyMode::into_held),
            Form::Blocking => Some($on.$blocking($($keys),+).into_held()),
        }
    };
}

/// Converts the guards of several keys into a list.
trait ManyMode<'t> {
    fn into_held(self) -> Vec<Held<'t>>;
}

impl<'t, P: TablePtr<Key = u8> + 't, M: Mode + 't> ManyMode<'t> for Guards<P, M>
where
    Guard<P, M>: Hold<'t>,
{
    fn into_held(self) -> Vec<Held<'t>> {
        self.into_iter().map(held).collect()
    }
}

impl<'t, A: ManyMode<'t>, B: ManyMode<'t>> ManyMode<'t> for (A, B) {
    fn into_held(self) -> Vec<Held<'t>> {
        let mut held = self.0.into_held();
        held.extend(self.1.into_held());
        held
    }
}

/// A future that acquires several keys.
trait AskMany<'t> {
    fn poll(&mut self, waker: &Waker) -> Poll<Vec<Held<'t>>>;
}

impl<'t, F: Future<Output: ManyMode<'t>> + Unpin> AskMany<'t> for F {
    fn poll(&mut self, waker: &Waker) -> Poll<Vec<Held<'t>>> {
        Pin::new(self).poll(&mut Context::from_waker(waker)).map(ManyMode::into_held)
    }
}

macro_rules! locks {
    ($($Table:ident {
        // The condition, the arguments, and the operation to call: the first whose condition is true.
        several [$reads:ident $writes:ident] {$(
            $if:expr => ($($given:expr),+): $many:ident $many_blocking:ident $try_many:ident $try_many_for:ident
            $try_many_until:ident, $many_arc:ident $many_arc_blocking:ident $try_many_arc:ident $try_many_arc_for:ident
            $try_many_arc_until:ident;
        )+}
        $(
        $want:ident $(($one:literal, $n:ident))?: $lock:ident $lock_blocking:ident $try_lock:ident $try_for:ident $try_until:ident,
        $lock_arc:ident $lock_arc_blocking:ident $try_lock_arc:ident $try_arc_for:ident $try_arc_until:ident;
    )+})+) => {$(
        impl Locks for $Table {
            const WANTS: &'static [Want] = &[$(Want::$want $(($one))?),+];

            fn start<'t>(self: &'t Arc<Self>, source: Source<'_, 't, Self>, want: Want, priority: u8) -> Asked<'t> {
                match (want, source) {
                    $(
                        (Want::$want $(($n))?, Source::Table(key)) => {
                            Box::new(self.$lock(&key $(, $n as usize)?).priority(priority))
                        }
                        (Want::$want $(($n))?, Source::TableArc(key)) => {
                            Box::new(self.$lock_arc(&key $(, $n as usize)?).priority(priority))
                        }
                        (Want::$want $(($n))?, Source::Handle(handle)) => {
                            Box::new(handle.$lock($($n as usize)?).priority(priority))
                        }
                        (Want::$want $(($n))?, Source::HandleArc(handle)) => {
                            Box::new(handle.$lock($($n as usize)?).priority(priority))
                        }
                    )+
                    _ => unreachable!(),
                }
            }

            fn call<'t>(self: &'t Arc<Self>, source: Source<'_, 't, Self>, want: Want, form: Form) -> Option<Held<'t>> {
                match (want, source) {
                    $(
                        (Want::$want $(($n))?, Source::Table(key)) => {
                            in_form!(form self(&key $(, $n as usize)?) $lock $lock_blocking $try_lock $try_for $try_until)
                        }
                        (Want::$want $(($n))?, Source::TableArc(key)) => in_form!(
                            form self(&key $(, $n as usize)?) $lock_arc $lock_arc_blocking $try_lock_arc $try_arc_for $try_arc_until
                        ),
                        (Want::$want $(($n))?, Source::Handle(handle)) => {
                            in_form!(form handle($($n as usize)?) $lock $lock_blocking $try_lock $try_for $try_until)
                        }
                        (Want::$want $(($n))?, Source::HandleArc(handle)) => {
                            in_form!(form handle($($n as usize)?) $lock $lock_blocking $try_lock $try_for $try_until)
                        }
                    )+
                    _ => unreachable!(),
                }
            }

            fn start_many<'t>(self: &'t Arc<Self>, $reads: &[u8], $writes: &[u8], owns: bool) -> AskedMany<'t> {
                match owns {
                    $(
                        false if $if => Box::new(self.$many($($given),+)),
                        true if $if => Box::new(self.$many_arc($($given),+)),
                    )+
                    _ => unreachable!(),
                }
            }

            fn call_many<'t>(
                self: &'t Arc<Self>,
                $reads: &[u8],
                $writes: &[u8],
                owns: bool,
                form: Form,
            ) -> Option<Vec<Held<'t>>> {
                match owns {
                    $(
                        false if $if => many_in_form!(
                            form self($($given),+) $many $many_blocking $try_many $try_many_for $try_many_until
                        ),
                        true if $if => many_in_form!(
                            form self($($given),+) $many_arc $many_arc_blocking $try_many_arc $try_many_arc_for
                            $try_many_arc_until
                        ),
                    )+
                    _ => unreachable!(),
                }
            }

            fn handle_of(&self, key: u8) -> KeyHandle<'_, Self> {
                self.handle(&key)
            }

            fn handle_arc_of(self: &Arc<Self>, key: u8) -> KeyHandleArc<Self> {
                self.handle_arc(&key)
            }

            fn is_locked_at(&self, key: u8) -> bool {
                self.is_locked(&key)
            }

            fn status_at(&self, key: u8) -> Option<Status> {
                self.status(&key)
            }

            fn len_now(&self) -> usize {
                self.len()
            }

            fn visit(&self, visit: impl FnMut(&u8, Status)) {
                self.for_each_key(visit);
            }
        }
    )+};
}

locks! {
    MutexTable {
        several [reads writes] {
            reads.is_empty() => (writes): lock_many lock_many_blocking try_lock_many try_lock_many_for try_lock_many_until,
                lock_many_arc lock_many_arc_blocking try_lock_many_arc try_lock_many_arc_for try_lock_many_arc_until;
        }
        Write: lock lock_blocking try_lock try_lock_for try_lock_until,
            lock_arc lock_arc_blocking try_lock_arc try_lock_arc_for try_lock_arc_until;
    }
    RwLock {
        several [reads writes] {
            writes.is_empty() => (reads): read_many read_many_blocking try_read_many try_read_many_for try_read_many_until,
                read_many_arc read_many_arc_blocking try_read_many_arc try_read_many_arc_for try_read_many_arc_until;
            reads.is_empty() => (writes): write_many write_many_blocking try_write_many try_write_many_for
                try_write_many_until, write_many_arc write_many_arc_blocking try_write_many_arc try_write_many_arc_for
                try_write_many_arc_until;
            true => (reads, writes): read_write_many read_write_many_blocking try_read_write_many try_read_write_many_for
                try_read_write_many_until, read_write_many_arc read_write_many_arc_blocking try_read_write_many_arc
                try_read_write_many_arc_for try_read_write_many_arc_until;
        }
        Read: read read_blocking try_read try_read_for try_read_until,
            read_arc read_arc_blocking try_read_arc try_read_arc_for try_read_arc_until;
        Upgradable: upgradable_read upgradable_read_blocking try_upgradable_read try_upgradable_read_for
            try_upgradable_read_until, upgradable_read_arc upgradable_read_arc_blocking try_upgradable_read_arc
            try_upgradable_read_arc_for try_upgradable_read_arc_until;
        Write: write write_blocking try_write try_write_for try_write_until,
            write_arc write_arc_blocking try_write_arc try_write_arc_for try_write_arc_until;
        Recursive: read_recursive read_recursive_blocking try_read_recursive try_read_recursive_for
            try_read_recursive_until, read_recursive_arc read_recursive_arc_blocking try_read_recursive_arc
            try_read_recursive_arc_for try_read_recursive_arc_until;
    }
    Semaphore {
        several [reads writes] {
            reads.is_empty() => (writes): acquire_many acquire_many_blocking try_acquire_many try_acquire_many_for
                try_acquire_many_until, acquire_many_arc acquire_many_arc_blocking try_acquire_many_arc
                try_acquire_many_arc_for try_acquire_many_arc_until;
        }
        Permits(1, n): acquire_n acquire_n_blocking try_acquire_n try_acquire_n_for try_acquire_n_until,
            acquire_n_arc acquire_n_arc_blocking try_acquire_n_arc try_acquire_n_arc_for try_acquire_n_arc_until;
    }
}

fn held<'t>(guard: impl Hold<'t> + 't) -> Held<'t> {
    Box::new(guard)
}

/// Returns the output of a future whose limit has been reached.
fn finished<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits although its limit has been reached"),
    }
}

/// A future that acquires a hold.
trait Ask<'t> {
    fn poll(&mut self, waker: &Waker) -> Poll<Held<'t>>;
    fn forget(self: Box<Self>);
}

impl<'t, F: Future<Output: Hold<'t> + 't> + Unpin> Ask<'t> for F {
    fn poll(&mut self, waker: &Waker) -> Poll<Held<'t>> {
        Pin::new(self).poll(&mut Context::from_waker(waker)).map(held)
    }

    fn forget(self: Box<Self>) {
        std::mem::forget(*self);
    }
}

/// A guard of any mode and ownership. Methods that a mode does not have are never called.
trait Hold<'t> {
    fn key(&self) -> u8;
    fn want(&self) -> Want;
    fn forget(self: Box<Self>);

    fn unlock_fair(self: Box<Self>) {
        unreachable!()
    }

    /// Downgrades to a reader or to an upgradable reader.
    fn downgrade(self: Box<Self>, _to: Want) -> Held<'t> {
        unreachable!()
    }

    fn upgrade(self: Box<Self>) -> Asked<'t> {
        unreachable!()
    }

    fn upgrade_now(self: Box<Self>, _form: Form) -> Held<'t> {
        unreachable!()
    }

    /// Splits off `n` of its permits.
    fn split(&mut self, _n: usize) -> Option<Held<'t>> {
        unreachable!()
    }

    /// Polls an `upgrade_mut` once, or calls another form of it, then drops or forgets the result.
    fn upgrade_mut(&mut self, _form: Form, _waker: &Waker, _forget: bool) -> bool {
        unreachable!()
    }
}

/// The mode [`Exclusive`], whose meaning depends on the table.
trait ExclusiveIn<'t>: TablePtr<Key = u8> + 't {
    fn downgrade(guard: Guard<Self, Exclusive>, to: Want) -> Held<'t>;
}

macro_rules! exclusive {
    ($($TablePtr:ty: |$guard:ident, $to:ident| $downgrade:expr;)+) => {$(
        impl<'t> ExclusiveIn<'t> for $TablePtr {
            fn downgrade($guard: Guard<Self, Exclusive>, $to: Want) -> Held<'t> {
                $downgrade
            }
        }
    )+};
}

/// A macro, because a writer's guard has separate methods for each kind of table reference.
macro_rules! downgraded {
    ($guard:ident, $to:ident) => {
        if $to == Want::Read { held($guard.downgrade()) } else { held($guard.downgrade_to_upgradable()) }
    };
}

exclusive! {
    TableRef<'t, MutexTable>: |_guard, _to| unreachable!();
    Arc<MutexTable>: |_guard, _to| unreachable!();
    TableRef<'t, RwLock>: |guard, to| downgraded!(guard, to);
    Arc<RwLock>: |guard, to| downgraded!(guard, to);
}

impl<'t, P: ExclusiveIn<'t>> Hold<'t> for Guard<P, Exclusive> {
    fn key(&self) -> u8 {
        *Guard::key(self)
    }

    fn want(&self) -> Want {
        Want::Write
    }

    fn forget(self: Box<Self>) {
        std::mem::forget(*self);
    }

    fn unlock_fair(self: Box<Self>) {
        Guard::unlock_fair(*self);
    }

    fn downgrade(self: Box<Self>, to: Want) -> Held<'t> {
        P::downgrade(*self, to)
    }
}

impl<'t, P: TablePtr<Key = u8> + 't> Hold<'t> for Guard<P, Permit> {
    fn key(&self) -> u8 {
        *Guard::key(self)
    }

    fn want(&self) -> Want {
        Want::Permits(self.permits() as u32)
    }

    fn split(&mut self, n: usize) -> Option<Held<'t>> {
        Guard::split(self, n).map(held)
    }

    fn forget(self: Box<Self>) {
        std::mem::forget(*self);
    }

    fn unlock_fair(self: Box<Self>) {
        Guard::unlock_fair(*self);
    }
}

impl<'t, P: TablePtr<Key = u8> + 't> Hold<'t> for Guard<P, Shared> {
    fn key(&self) -> u8 {
        *Guard::key(self)
    }

    fn want(&self) -> Want {
        Want::Read
    }

    fn forget(self: Box<Self>) {
        std::mem::forget(*self);
    }
}

impl<'t, P: TablePtr<Table = RwLock, Key = u8> + ExclusiveIn<'t>> Hold<'t> for Guard<P, Upgradable> {
    fn key(&self) -> u8 {
        *Guard::key(self)
    }

    fn want(&self) -> Want {
        Want::Upgradable
    }

    fn forget(self: Box<Self>) {
        std::mem::forget(*self);
    }

    fn downgrade(self: Box<Self>, _to: Want) -> Held<'t> {
        Box::new(Guard::<P, Upgradable>::downgrade(*self))
    }

    fn upgrade(self: Box<Self>) -> Asked<'t> {
        Box::new(Guard::upgrade(*self))
    }

    fn upgrade_now(self: Box<Self>, form: Form) -> Held<'t> {
        let upgraded = match form {
            Form::Try => self.try_upgrade(),
            Form::For => self.try_upgrade_for(Duration::ZERO),
            Form::Until => self.try_upgrade_until(Instant::now()),
            Form::Limited => finished(Guard::upgrade(*self).until(ready(()))).map_err(|((), guard)| guard),
            Form::Blocking => Ok(self.upgrade_blocking()),
        };
        match upgraded {
            Ok(writer) => Box::new(writer),
            Err(reader) => Box::new(reader),
        }
    }

    fn upgrade_mut(&mut self, form: Form, waker: &Waker, forget: bool) -> bool {
        let upgraded = match form {
            Form::Try | Form::For => self.try_upgrade_mut(),
            Form::Blocking => Some(self.upgrade_mut_blocking()),
            Form::Until | Form::Limited => {
                let mut future = Guard::upgrade_mut(self);
                match Pin::new(&mut future).poll(&mut Context::from_waker(waker)) {
                    Poll::Ready(upgraded) => {
                        if forget {
                            std::mem::forget(upgraded);
                        }
                        return true;
                    }
                    Poll::Pending => {
                        if forget {
                            std::mem::forget(future);
                        }
                        return false;
                    }
                }
            }
        };
        let done = upgraded.is_some();
        if forget {
            std::mem::forget(upgraded);
        }
        done
    }
}

// ---- the schedule ---------------------------------------------------------------------------------------------------

/// A request that waits or may wait: its id and its waker.
#[derive(Default)]
struct Sleeper {
    /// 0 before the first poll.
    id: Id,
    bell: Arc<Bell>,
    /// Whether it was woken since the last poll.
    woken: bool,
}

/// A pending request.
struct Request<'t> {
    key: u8,
    want: Want,
    priority: u8,
    /// Whether the request owns an `Arc` of the table.
    owns: bool,
    future: Asked<'t>,
    sleeper: Sleeper,
}

/// A pending request for several keys.
struct Many<'t> {
    future: AskedMany<'t>,
    owns: bool,
    /// In order of first mention, like the guards.
    keys: Vec<(u8, Want)>,
    /// In the table's order, from the first poll on. The first `held` of them are held.
    order: Vec<(u8, Want)>,
    held: usize,
    /// Has the id of the request for the key that it currently waits for.
    sleeper: Sleeper,
}

/// A guard, and the state that a forgotten upgrade left in it.
struct Holder<'t> {
    key: u8,
    owns: bool,
    held: Held<'t>,
    upgrading: Upgrading,
}

enum Upgrading {
    No,
    Waiting(Sleeper),
    Done,
}

/// The remains of a forgotten request or guard, which are never released: a claim, a hold, a place in the queue.
struct Forgotten {
    key: u8,
    held: Option<Want>,
    sleeper: Option<Sleeper>,
}

enum Handle<'t, T: Locks> {
    Borrowed(KeyHandle<'t, T>),
    Owned(KeyHandleArc<T>),
}

impl<T: Locks<Key = u8>> Handle<'_, T> {
    fn key(&self) -> u8 {
        match self {
            Handle::Borrowed(handle) => *handle.key(),
            Handle::Owned(handle) => *handle.key(),
        }
    }
}

struct World<'t, T: Locks> {
    table: &'t Arc<T>,
    waits: Arc<Waits>,
    /// The rules at the beginning.
    rules: Rules,
    default_permits: usize,
    /// The number of keys in use.
    keys: u8,
    models: Vec<Key>,
    /// With this many requests, no more are begun; with this many holders, no more calls are made. At most this many
    /// handles exist.
    crowd: usize,
    requests: Vec<Request<'t>>,
    locks_several: bool,
    has_priorities: bool,
    many: Vec<Many<'t>>,
    holders: Vec<Holder<'t>>,
    handles: Vec<Handle<'t, T>>,
    forgotten: Vec<Forgotten>,
    next_id: Id,
    /// For each key, the waiter at the head, and the number of later requests that have passed it and kept it out since
    /// it became the head.
    bypass: Vec<(Id, u32)>,
}

impl<'t, T: Locks<Key = u8>> World<'t, T> {
    fn new(table: &'t Arc<T>, waits: Arc<Waits>, rules: Rules, keys: u8) -> Self {
        World {
            table,
            waits,
            rules,
            default_permits: rules.permits,
            keys,
            models: (0..keys).map(|_| Key::new(rules)).collect(),
            crowd: usize::from(keys).max(10),
            requests: vec![],
            locks_several: false,
            has_priorities: false,
            many: vec![],
            holders: vec![],
            handles: vec![],
            forgotten: vec![],
            next_id: 0,
            bypass: vec![(0, 0); keys.into()],
        }
    }

    /// Runs the schedule. Returns the bells of the forgotten requests.
    fn run(mut self, mut bytes: Bytes<'_>) -> Vec<Arc<Bell>> {
        for step in 0..STEPS {
            if bytes.is_empty() {
                break;
            }
            // With many keys, 32 steps in which more is locked alternate with 32 in which more is released: otherwise
            // there would hardly be a dozen entries at once.
            let is_locking = self.keys > FEW && step / 32 % 2 == 0;
            let (what, whom) = (bytes.next(), bytes.next());
            match what % 16 {
                0 | 1 if self.locks_several && what / 16 >= 12 => self.start_many(whom, bytes.next()),
                7 | 8 if self.locks_several && what / 16 >= 11 => {
                    self.call_many(whom, bytes.next(), FORMS[usize::from(what / 16) - 11]);
                }
                _ => self.step(what, whom, is_locking),
            }
            // Checking many keys takes a long time.
            if self.keys <= FEW || step % 8 == 0 {
                self.check();
            }
        }
        self.check();
        self.finish()
    }

    fn model(&mut self, key: u8) -> &mut Key {
        &mut self.models[usize::from(key)]
    }

    fn id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id
    }

    /// Performs one operation. `what` selects it and its form, `whom` selects the key, request, holder or handle.
    fn step(&mut self, what: u8, whom: u8, is_locking: bool) {
        let (form, at) = (what / 16, usize::from(whom));
        let want = match T::WANTS[usize::from(whom / 64) % T::WANTS.len()] {
            Want::Permits(_) => {
                let all = self.rules.permits as u32;
                Want::Permits([1, 1, all.min(2), all][usize::from(whom / 64)])
            }
            want => want,
        };
        match what % 16 {
            0 | 1 => {
                let priority = if self.has_priorities { PRIORITIES[usize::from(form)] } else { 0 };
                self.start(whom, want, priority);
            }
            2..=6 if !(self.requests.is_empty() && self.many.is_empty()) => {
                let at = at % (self.requests.len() + self.many.len());
                match at.checked_sub(self.requests.len()) {
                    None if what % 16 < 6 => self.poll(at, form == 0),
                    None => self.cancel(at),
                    Some(at) if what % 16 < 6 => self.poll_many(at, form == 0),
                    Some(at) => self.cancel_many(at),
                }
            }
            7 | 8 => self.call(whom, want, FORMS[usize::from(form) % FORMS.len()]),
            9 | 10 if is_locking => self.call(whom, want, FORMS[usize::from(form) % FORMS.len()]),
            9 | 10 if !self.holders.is_empty() => self.release(at % self.holders.len(), false),
            11 if !self.holders.is_empty() => self.release(at % self.holders.len(), true),
            12 if !self.holders.is_empty() => self.downgrade(at % self.holders.len(), form),
            // A semaphore has no upgrades.
            13 | 14 if T::WANTS.contains(&Want::Permits(1)) => self.set_permits(whom, form),
            13 if !self.holders.is_empty() => self.upgrade(at % self.holders.len(), form),
            14 if !self.holders.is_empty() => self.upgrade_mut(at % self.holders.len(), form),
            15 if form == 14 && !self.holders.is_empty() => self.forget_holder(at % self.holders.len()),
            15 if form == 15 && !self.requests.is_empty() => self.forget_request(at % self.requests.len()),
            15 => self.other(form, whom),
            _ => {}
        }
    }

    /// Selects the key, or the handle if there is one, on which to call an operation. Also returns whether the
    /// outcome owns an `Arc`.
    fn source<'a>(keys: u8, handles: &'a [Handle<'t, T>], whom: u8) -> (u8, bool, Source<'a, 't, T>) {
        let (key, by) = (whom % keys, whom / keys.max(FEW) % 4);
        match handles.get(usize::from(whom / 12 % 4)).filter(|_| by >= 2) {
            Some(Handle::Borrowed(handle)) => (*handle.key(), false, Source::Handle(handle)),
            Some(Handle::Owned(handle)) => (*handle.key(), true, Source::HandleArc(handle)),
            None if by % 2 == 0 => (key, false, Source::Table(key)),
            None => (key, true, Source::TableArc(key)),
        }
    }

    fn start(&mut self, whom: u8, want: Want, priority: u8) {
        if self.requests.len() >= self.crowd {
            return;
        }
        let (key, owns, source) = Self::source(self.keys, &self.handles, whom);
        let future = self.table.start(source, want, priority);
        self.requests.push(Request { key, want, priority, owns, future, sleeper: Sleeper::default() });
    }

    /// Called before a request acquires the key, unless its priority lets it in first. If it passes the head of the
    /// queue, counts that bypass as the contract defines it.
    fn pass(&mut self, key: u8, want: Want, id: Option<Id>) {
        let model = &self.models[usize::from(key)];
        let Some(head) = model.queue.first() else { return };
        let later = id.is_none_or(|id| id > head.id && !model.granted.contains(&id));
        if !matches!(want, Want::Upgrade | Want::Recursive) && later && model.keeps_out_the_head(want) {
            let (whom, passed) = &mut self.bypass[usize::from(key)];
            if *whom != head.id {
                (*whom, *passed) = (head.id, 0);
            }
            let bound = match self.rules.fairness {
                Fairness::Fifo => 0,
                Fairness::Bounded(n) => u32::from(n),
                Fairness::Adaptive if head.woken => return,
                Fairness::Adaptive => 16,
                Fairness::Barging => u32::MAX,
                other => panic!("a contract of {other:?} is not written"),
            };
            *passed += 1;
            assert!(*passed <= bound, "{passed} requests have passed the head of {model:?}");
        }
    }

    fn poll(&mut self, at: usize, moves: bool) {
        if self.requests[at].sleeper.id == 0 {
            self.requests[at].sleeper.id = self.id();
        }
        let Request { key, want, priority, ref mut future, ref mut sleeper, .. } = self.requests[at];
        if moves {
            sleeper.bell = Arc::default();
        }
        sleeper.bell.take();
        sleeper.woken = false;
        let id = sleeper.id;
        let outcome = future.poll(&Waker::from(Arc::clone(&sleeper.bell)));
        let model = self.model(key);
        let waits = model.granted.contains(&id) || model.queue.iter().any(|waiter| waiter.id == id);
        if outcome.is_ready() && (waits || !model.goes_first(want, priority)) {
            self.pass(key, want, Some(id));
        }
        let expected = self.model(key).poll_with_priority(id, want, priority);
        assert_eq!(outcome.is_ready(), expected, "whether {want:?} gets in: {:?}", self.model(key));
        if let Poll::Ready(held) = outcome {
            let Request { owns, sleeper, .. } = self.requests.swap_remove(at);
            assert_eq!(Arc::strong_count(&sleeper.bell), 1, "a waker was kept after the wait");
            self.push_holder(key, owns, held);
        }
    }

    fn push_holder(&mut self, key: u8, owns: bool, held: Held<'t>) {
        assert_eq!(held.key(), key);
        self.holders.push(Holder { key, owns, held, upgrading: Upgrading::No });
    }

    fn cancel(&mut self, at: usize) {
        let Request { key, want, future, sleeper, .. } = self.requests.swap_remove(at);
        drop(future);
        assert_eq!(Arc::strong_count(&sleeper.bell), 1, "a waker was kept after the wait");
        if want == Want::Upgrade {
            // An upgrade owns its upgradable hold, too.
            let left = self.model(key).leave_queue(sleeper.id);
            let (held, whom) = Key::held_after_upgrade(left);
            self.released(key, held, whom);
        } else {
            self.model(key).cancel(sleeper.id, want);
        }
    }

    fn released(&mut self, key: u8, held: Want, whom: For) {
        self.model(key).release(held, whom);
        self.check_phase(key, held);
    }

    /// Checks that the readers that waited when a writer left have acquired the key, if the policy has phases and no
    /// priority keeps them out.
    fn check_phase(&mut self, key: u8, left: Want) {
        let ranks = self.model(key).has_priorities;
        if left == Want::Write && !ranks && matches!(self.rules.fairness, Fairness::Adaptive | Fairness::Bounded(_)) {
            let waiting = self.table.status_at(key).map_or(0, |status| status.waiting_readers());
            assert_eq!(waiting, 0, "a writer has left and readers still wait");
        }
    }

    fn call(&mut self, whom: u8, want: Want, form: Form) {
        if self.holders.len() >= self.crowd {
            return;
        }
        let (key, owns, source) = Self::source(self.keys, &self.handles, whom);
        let form = match form {
            Form::Blocking if !self.models[usize::from(key)].clone().attempt(want) => Form::For,
            form => form,
        };
        let held = self.table.call(source, want, form);
        let id = self.id();
        if held.is_some() {
            self.pass(key, want, None);
        }
        let model = self.model(key);
        let expected = model.attempt(want);
        if !expected && form == Form::Limited {
            // The call queues, tries once more, and gives up. (A call whose time is already up does not queue.)
            assert!(!model.poll(id, want) && !model.poll(id, want) && model.leave_queue(id) == Some(false));
        }
        assert_eq!(held.is_some(), expected, "whether {want:?} gets in by {form:?}: {model:?}");
        if let Some(held) = held {
            self.push_holder(key, owns, held);
        }
    }

    // ---- several keys ----

    /// Returns the lists that two bytes determine, and whether the outcome owns an `Arc`.
    fn lists(&self, whom: u8, which: u8) -> (Vec<u8>, Vec<u8>, bool) {
        let (mut reads, mut writes) = (vec![], vec![]);
        let mut key = whom;
        for at in 0..which % 5 {
            let list =
                if T::WANTS.contains(&Want::Read) && which >> 4 >> at & 1 == 0 { &mut reads } else { &mut writes };
            list.push(key % self.keys);
            key = (key / 4).wrapping_add((which / 8).wrapping_mul(at + 1));
        }
        (reads, writes, whom % 2 == 1)
    }

    /// Returns each key once, with the kind of hold that is wanted: first the keys that are only in `reads`, then those
    /// in `writes`, both in order of first mention.
    fn wanted(reads: &[u8], writes: &[u8]) -> Vec<(u8, Want)> {
        let mut wanted: Vec<(u8, Want)> = vec![];
        let write = if T::WANTS.contains(&Want::Permits(1)) { Want::Permits(1) } else { Want::Write };
        let reads = reads.iter().filter(|key| !writes.contains(key)).map(|&key| (key, Want::Read));
        for (key, want) in reads.chain(writes.iter().map(|&key| (key, write))) {
            if !wanted.contains(&(key, want)) {
                wanted.push((key, want));
            }
        }
        wanted
    }

    /// Returns the keys in the table's order: that of the entries in memory, and so of their keys. A key that is free
    /// and has no entry can have any position. A key that has no entry and no permits gets an entry, by a handle that
    /// the caller must keep until the call has made its own.
    fn in_order(&self, wanted: &[(u8, Want)]) -> (Vec<(u8, Want)>, Vec<KeyHandle<'t, T>>) {
        let mut kept = Vec::new();
        let mut order = Vec::new();
        for &(key, want) in wanted {
            let has_entry = self.table.status_at(key).is_some();
            if !has_entry && self.models[usize::from(key)].clone().attempt(want) {
                order.push((0, (key, want)));
                continue;
            }
            let handle = self.table.handle_of(key);
            order.push((std::ptr::from_ref(handle.key()).addr(), (key, want)));
            if !has_entry {
                kept.push(handle);
            }
        }
        order.sort_by_key(|&(address, _)| address);
        (order.into_iter().map(|(_, wanted)| wanted).collect(), kept)
    }

    fn push_holders(&mut self, wanted: &[(u8, Want)], owns: bool, held: Vec<Held<'t>>) {
        assert!(
            held.iter().map(|held| (held.key(), held.want())).eq(wanted.iter().copied()),
            "the guards are not in the order of first mention"
        );
        for held in held {
            self.push_holder(held.key(), owns, held);
        }
    }

    /// Models one request of several: it acquires its key, or an attempt or a poll fails.
    fn next_of_many(&mut self, key: u8, want: Want, id: Option<Id>) -> bool {
        let ask = |model: &mut Key| match id {
            Some(id) => model.poll(id, want),
            None => model.attempt(want),
        };
        if ask(&mut self.models[usize::from(key)].clone()) {
            self.pass(key, want, id);
        }
        ask(self.model(key))
    }

    fn call_many(&mut self, whom: u8, which: u8, form: Form) {
        if self.holders.len() >= self.crowd {
            return;
        }
        let (reads, writes, owns) = self.lists(whom, which);
        let wanted = Self::wanted(&reads, &writes);
        let free = wanted.iter().all(|&(key, want)| self.models[usize::from(key)].clone().attempt(want));
        let form = if form == Form::Blocking && !free { Form::For } else { form };
        // The order stays right until the call, because an entry does not move while it exists.
        let (order, kept) = self.in_order(&wanted);
        let held = self.table.call_many(&reads, &writes, owns, form);
        drop(kept);
        assert_eq!(held.is_some(), free, "whether {wanted:?} get in by {form:?}");
        let mut entered = 0;
        for &(key, want) in &order {
            let id = (form == Form::Limited).then(|| self.id());
            if !self.next_of_many(key, want, id) {
                if let Some(id) = id {
                    // The call tries once more and gives up.
                    let model = self.model(key);
                    assert!(!model.poll(id, want) && model.leave_queue(id) == Some(false));
                }
                break;
            }
            entered += 1;
        }
        match held {
            Some(held) => self.push_holders(&wanted, owns, held),
            None => order[..entered].iter().for_each(|&(key, want)| self.released(key, want, For::Anyone)),
        }
    }

    fn start_many(&mut self, whom: u8, which: u8) {
        if self.many.len() >= self.crowd {
            return;
        }
        let (reads, writes, owns) = self.lists(whom, which);
        let future = self.table.start_many(&reads, &writes, owns);
        let keys = Self::wanted(&reads, &writes);
        self.many.push(Many { future, owns, keys, order: vec![], held: 0, sleeper: Sleeper::default() });
    }

    fn poll_many(&mut self, at: usize, moves: bool) {
        let mut kept = Vec::new();
        if self.many[at].order.is_empty() {
            (self.many[at].order, kept) = self.in_order(&self.many[at].keys);
        }
        let Many { future, sleeper, order, .. } = &mut self.many[at];
        let order = order.clone();
        if moves {
            sleeper.bell = Arc::default();
        }
        sleeper.bell.take();
        sleeper.woken = false;
        let outcome = future.poll(&Waker::from(Arc::clone(&sleeper.bell)));
        drop(kept);
        while let Some(&(key, want)) = order.get(self.many[at].held) {
            if self.many[at].sleeper.id == 0 {
                self.many[at].sleeper.id = self.id();
            }
            let id = self.many[at].sleeper.id;
            if !self.next_of_many(key, want, Some(id)) {
                break;
            }
            self.many[at].held += 1;
            self.many[at].sleeper.id = 0;
        }
        assert_eq!(outcome.is_ready(), self.many[at].held == order.len(), "whether {order:?} get in");
        if let Poll::Ready(held) = outcome {
            let Many { owns, sleeper, keys, .. } = self.many.swap_remove(at);
            assert_eq!(Arc::strong_count(&sleeper.bell), 1, "a waker was kept after the wait");
            self.push_holders(&keys, owns, held);
        }
    }

    /// Cancels the `_many` call at this index: drops its future, which must release the keys that it holds and give up
    /// the wait for the next.
    fn cancel_many(&mut self, at: usize) {
        let Many { future, order, held, sleeper, .. } = self.many.swap_remove(at);
        drop(future);
        assert_eq!(Arc::strong_count(&sleeper.bell), 1, "a waker was kept after the wait");
        for &(key, want) in &order[..held] {
            self.model(key).release(want, For::Anyone);
        }
        if let Some(&(key, want)) = order.get(held) {
            self.model(key).cancel(sleeper.id, want);
        }
        order[..held].iter().for_each(|&(key, want)| self.check_phase(key, want));
    }

    /// Models the first step of every use of an upgradable guard: the end of a forgotten upgrade.
    fn fall_back(&mut self, at: usize) {
        let Holder { key, ref mut upgrading, .. } = self.holders[at];
        let upgraded = match std::mem::replace(upgrading, Upgrading::No) {
            Upgrading::No => false,
            Upgrading::Waiting(sleeper) => self.model(key).leave_queue(sleeper.id) == Some(true),
            Upgrading::Done => true,
        };
        if upgraded {
            self.model(key).change(Want::Write, Want::Upgradable);
        }
    }

    fn release(&mut self, at: usize, fair: bool) {
        let Holder { key, held, upgrading, .. } = self.holders.swap_remove(at);
        let fair = fair && matches!(held.want(), Want::Write | Want::Permits(_));
        let (want, whom) = match upgrading {
            Upgrading::No => (held.want(), if fair { For::Waiter } else { For::Anyone }),
            Upgrading::Waiting(sleeper) => Key::held_after_upgrade(self.model(key).leave_queue(sleeper.id)),
            Upgrading::Done => (Want::Write, For::Anyone),
        };
        if fair {
            held.unlock_fair()
        } else {
            drop(held)
        }
        self.released(key, want, whom);
    }

    fn downgrade(&mut self, at: usize, form: u8) {
        let from = self.holders[at].held.want();
        let to = match from {
            Want::Write if T::WANTS.len() > 1 && form % 2 == 1 => Want::Upgradable,
            Want::Write if T::WANTS.len() > 1 => Want::Read,
            Want::Upgradable => Want::Read,
            Want::Permits(n) => return self.split(at, n, form),
            _ => return,
        };
        self.fall_back(at);
        let Holder { key, owns, held, .. } = self.holders.swap_remove(at);
        let held = held.downgrade(to);
        assert_eq!(held.want(), to);
        self.model(key).change(from, to);
        self.check_phase(key, from);
        self.push_holder(key, owns, held);
    }

    /// Splits a guard. The table does not notice that.
    fn split(&mut self, at: usize, n: u32, form: u8) {
        let part = u32::from(form % 4);
        let Holder { key, owns, ref mut held, .. } = self.holders[at];
        let taken = held.split(part as usize);
        assert_eq!(taken.is_some(), (1..n).contains(&part), "{part} of {n}");
        if let Some(taken) = taken {
            assert_eq!((held.want(), taken.want()), (Want::Permits(n - part), Want::Permits(part)));
            self.push_holder(key, owns, taken);
        }
    }

    fn upgrade(&mut self, at: usize, form: u8) {
        if self.holders[at].held.want() != Want::Upgradable || self.requests.len() >= self.crowd {
            return;
        }
        self.fall_back(at);
        let Holder { key, owns, held, .. } = self.holders.swap_remove(at);
        if form % 2 == 0 {
            let (future, sleeper) = (held.upgrade(), Sleeper::default());
            return self.requests.push(Request { key, want: Want::Upgrade, priority: 0, owns, future, sleeper });
        }
        let expected = self.model(key).attempt(Want::Upgrade);
        let form = match FORMS[usize::from(form / 2) % FORMS.len()] {
            Form::Blocking if !expected => Form::For,
            form => form,
        };
        if !expected && form == Form::Limited {
            let id = self.id();
            let model = self.model(key);
            assert!(!model.poll(id, Want::Upgrade) && model.leave_queue(id) == Some(false));
        }
        let held = held.upgrade_now(form);
        assert_eq!(held.want(), if expected { Want::Write } else { Want::Upgradable }, "an upgrade by {form:?}");
        self.push_holder(key, owns, held);
    }

    fn upgrade_mut(&mut self, at: usize, form: u8) {
        if self.holders[at].held.want() != Want::Upgradable {
            return;
        }
        self.fall_back(at);
        let forget = form % 2 == 1;
        let id = self.id();
        let holder = &mut self.holders[at];
        let model = &mut self.models[usize::from(holder.key)];
        let expected = model.attempt(Want::Upgrade);
        let form = match FORMS[usize::from(form / 2) % FORMS.len()] {
            Form::Blocking if !expected => Form::Until,
            form => form,
        };
        let waits = !expected && matches!(form, Form::Until | Form::Limited);
        if waits {
            assert!(!model.poll(id, Want::Upgrade));
        }
        let (bell, waker) = Bell::new();
        assert_eq!(holder.held.upgrade_mut(form, &waker, forget), expected, "upgrade_mut by {form:?}: {model:?}");
        match (expected, forget) {
            (true, true) => holder.upgrading = Upgrading::Done,
            (true, false) => model.change(Want::Write, Want::Upgradable),
            (false, true) if waits => holder.upgrading = Upgrading::Waiting(Sleeper { id, bell, woken: false }),
            (false, _) => assert_eq!(model.leave_queue(id), waits.then_some(false)),
        }
    }

    /// Only a guard that borrows the table is forgotten: a forgotten `Arc` would keep the table for good, which is a
    /// leak.
    fn forget_holder(&mut self, at: usize) {
        if self.holders[at].owns {
            return;
        }
        let Holder { key, held, upgrading, .. } = self.holders.swap_remove(at);
        let (held_as, sleeper) = match upgrading {
            Upgrading::No => (held.want(), None),
            Upgrading::Waiting(sleeper) => (Want::Upgradable, Some(sleeper)),
            Upgrading::Done => (Want::Write, None),
        };
        held.forget();
        self.forgotten.push(Forgotten { key, held: Some(held_as), sleeper });
    }

    fn forget_request(&mut self, at: usize) {
        if self.requests[at].owns {
            return;
        }
        let Request { key, want, future, sleeper, .. } = self.requests.swap_remove(at);
        future.forget();
        let held = (want == Want::Upgrade).then_some(Want::Upgradable);
        self.forgotten.push(Forgotten { key, held, sleeper: (sleeper.id > 0).then_some(sleeper) });
    }

    fn is_spoilt(&self, key: u8) -> bool {
        self.forgotten.iter().any(|forgotten| forgotten.key == key)
    }

    /// Returns all requests that may be woken.
    fn sleepers(&mut self) -> impl Iterator<Item = &mut Sleeper> {
        let upgrades = self.holders.iter_mut().filter_map(|holder| match &mut holder.upgrading {
            Upgrading::Waiting(sleeper) => Some(sleeper),
            _ => None,
        });
        let forgotten = self.forgotten.iter_mut().filter_map(|forgotten| forgotten.sleeper.as_mut());
        let many = self.many.iter_mut().map(|many| &mut many.sleeper);
        self.requests.iter_mut().map(|request| &mut request.sleeper).chain(many).chain(upgrades).chain(forgotten)
    }

    /// Changes the number of permits of a key, or that of all keys without a number of their own.
    fn set_permits(&mut self, whom: u8, form: u8) {
        let (key, permits) = (whom % self.keys, usize::from(form % 5));
        match whom / self.keys.max(FEW) % 4 {
            0 => {
                self.table.set_permits_of_others(permits);
                self.default_permits = permits;
                for model in self.models.iter_mut().filter(|model| !model.is_limited) {
                    model.set_permits(permits, false);
                }
            }
            1 => {
                let had = self.table.set_permits_of(key, None);
                assert_eq!(had, self.model(key).is_limited);
                if had {
                    let permits = self.default_permits;
                    self.model(key).set_permits(permits, false);
                }
            }
            _ => {
                assert!(self.table.set_permits_of(key, Some(permits)));
                self.model(key).set_permits(permits, true);
            }
        }
    }

    fn other(&mut self, what: u8, whom: u8) {
        match what % 4 {
            0 if self.handles.len() < self.crowd => self.handles.push(match whom / self.keys.max(FEW) % 2 {
                0 => Handle::Borrowed(self.table.handle_of(whom % self.keys)),
                _ => Handle::Owned(self.table.handle_arc_of(whom % self.keys)),
            }),
            1 if !self.handles.is_empty() => {
                let copy = match &self.handles[usize::from(whom) % self.handles.len()] {
                    Handle::Borrowed(handle) => Handle::Borrowed(handle.clone()),
                    Handle::Owned(handle) => Handle::Owned(handle.clone()),
                };
                if self.handles.len() < self.crowd {
                    self.handles.push(copy);
                }
            }
            2 if !self.handles.is_empty() => {
                drop(self.handles.swap_remove(usize::from(whom) % self.handles.len()));
            }
            _ => {
                let mut seen = vec![None; self.keys.into()];
                self.table.visit(|&key, status| {
                    assert!(seen[usize::from(key)].replace(status).is_none(), "a key was visited twice");
                    // The callback may use the table.
                    assert_eq!(self.table.status_at(key), Some(status));
                });
                assert!(seen.into_iter().eq((0..self.keys).map(|key| self.table.status_at(key))));
            }
        }
    }

    fn check(&mut self) {
        for sleeper in self.sleepers() {
            sleeper.woken |= sleeper.bell.take() > 0;
        }
        let mut live = 0;
        for key in 0..self.keys {
            let (status, is_locked) = (self.table.status_at(key), self.table.is_locked_at(key));
            let model = &self.models[usize::from(key)];
            let used = self.holders.iter().any(|holder| holder.key == key)
                || self.requests.iter().any(|request| request.key == key)
                || self.many.iter().any(|many| many.keys.iter().any(|&(used, _)| used == key))
                || self.handles.iter().any(|handle| handle.key() == key)
                || self.is_spoilt(key)
                || model.is_limited;
            live += usize::from(used);
            assert_eq!(status.is_some(), used, "an entry without a user, or a user without an entry");
            assert_eq!(is_locked, model.holds != Holds::default());
            assert_eq!(status.map_or_else(Seen::default, Seen::from), model.seen(), "{model:?}");
            if let Some(status) = status {
                let Holds { readers, upgradable, writers, permits } = model.holds;
                assert_eq!(status.holders(), readers + upgradable + writers + permits);
                assert_eq!(status.waiters(), model.queue.len());
            }
            let observed = self.waits.of(key);
            assert_eq!(
                observed.len(),
                model.queue.len() + model.granted.len(),
                "the observer knows of {observed:?}: {model:?}"
            );
            for waiter in &model.queue {
                let many = observed.iter().filter(|&&mode| mode == mode_of(waiter.want)).count();
                let queued = model.queue.iter().filter(|other| other.want == waiter.want).count();
                assert!(many >= queued, "the observer knows of {observed:?}: {model:?}");
            }
            self.check_exclusion(key);
            self.check_wakes(key);
        }
        assert_eq!(self.table.len_now(), live);
    }

    /// Checks that the existing guards are compatible, and no more than the contract counts.
    fn check_exclusion(&self, key: u8) {
        let model = &self.models[usize::from(key)];
        let upgraded = |sleeper: &Sleeper| Key::held_after_upgrade(Some(model.granted.contains(&sleeper.id))).0;
        let held = self.holders.iter().filter(|holder| holder.key == key).map(|holder| match &holder.upgrading {
            Upgrading::No => holder.held.want(),
            Upgrading::Waiting(sleeper) => upgraded(sleeper),
            Upgrading::Done => Want::Write,
        });
        let forgotten = self.forgotten.iter().filter(|forgotten| forgotten.key == key);
        let forgotten = forgotten.filter_map(|forgotten| match &forgotten.sleeper {
            Some(sleeper) => forgotten.held.map(|_| upgraded(sleeper)),
            None => forgotten.held,
        });
        let mut holds = Holds::default();
        held.chain(forgotten).for_each(|held| *holds.of(held) += held.weight());
        // If the number of permits was lowered, more of them may be held; the contract counts how many.
        assert!(holds.are_compatible(self.rules.permits.max(model.holds.permits)), "{holds:?}");
        let counted = model.holds;
        assert!(holds.readers <= counted.readers && holds.writers <= counted.writers, "{holds:?}, {counted:?}");
        assert!(holds.upgradable <= counted.upgradable && holds.permits <= counted.permits, "{holds:?}, {counted:?}");
    }

    /// Checks that no request sleeps that could acquire its key.
    fn check_wakes(&mut self, key: u8) {
        let model = self.model(key).clone();
        for id in model.granted.iter().copied().chain(model.due().iter().map(|waiter| waiter.id)) {
            let sleeper = self.sleepers().find(|sleeper| sleeper.id == id).expect("every waiter has a sleeper");
            assert!(sleeper.woken, "a lost wake-up: {model:?}");
        }
        for waiter in &model.queue {
            let sleeper = self.sleepers().find(|sleeper| sleeper.id == waiter.id).expect("every waiter has a sleeper");
            assert_eq!(sleeper.woken, waiter.woken, "whether {waiter:?} has been woken: {model:?}");
        }
        let writer = model.holds.writers + model.waiting(Want::Write) + model.waiting(Want::Upgrade) > 0;
        if matches!(self.rules.fairness, Fairness::Adaptive | Fairness::Bounded(_)) && !writer {
            assert_eq!(model.waiting(Want::Read), 0, "readers wait although nothing keeps them out: {model:?}");
        }
    }

    /// Drops all holders. Then every waiter must acquire its key, although it is polled only if it was woken; except
    /// for keys of which a guard or request was forgotten.
    fn finish(mut self) -> Vec<Arc<Bell>> {
        self.handles.clear();
        if T::WANTS.contains(&Want::Permits(1)) {
            self.table.set_permits_of_others(self.rules.permits);
            for key in 0..self.keys {
                self.table.set_permits_of(key, None);
            }
        }
        // Requests that were never polled are not waiters, and an upgrade that was never polled is a hold.
        self.requests.retain(|request| request.sleeper.id > 0);
        while let Some(Holder { held, .. }) = self.holders.pop() {
            drop(held);
        }
        self.many.retain(|many| many.sleeper.id > 0);
        let woken = |sleeper: &mut Sleeper| {
            sleeper.woken |= sleeper.bell.take() > 0;
            sleeper.woken
        };
        loop {
            if let Some(at) = self.requests.iter_mut().position(|request| woken(&mut request.sleeper)) {
                let Request { future, sleeper, .. } = &mut self.requests[at];
                sleeper.woken = false;
                if let Poll::Ready(held) = future.poll(&Waker::from(Arc::clone(&sleeper.bell))) {
                    drop(self.requests.swap_remove(at));
                    drop(held);
                }
            } else if let Some(at) = self.many.iter_mut().position(|many| woken(&mut many.sleeper)) {
                let Many { future, sleeper, .. } = &mut self.many[at];
                sleeper.woken = false;
                if let Poll::Ready(held) = future.poll(&Waker::from(Arc::clone(&sleeper.bell))) {
                    drop(self.many.swap_remove(at));
                    drop(held);
                }
            } else if let Some(at) = self.many.iter().position(|many| many.keys.iter().any(|it| self.is_spoilt(it.0))) {
                // The future may hold keys that others wait for.
                drop(self.many.swap_remove(at));
            } else {
                break;
            }
        }
        assert!(self.many.is_empty(), "a request waits for free keys for ever");
        let served = self.requests.iter().all(|request| self.is_spoilt(request.key));
        assert!(served, "a request waits for a free key for ever");
        self.requests.clear();
        for key in 0..self.keys {
            assert_eq!(self.table.status_at(key).is_some(), self.is_spoilt(key), "an entry remained");
        }
        assert_eq!(Arc::strong_count(self.table), 1);
        let forgotten = self.forgotten.iter().filter(|forgotten| forgotten.sleeper.is_some()).count();
        assert_eq!(self.waits.0.lock().unwrap().len(), forgotten, "a wait never ended");
        self.forgotten.into_iter().filter_map(|forgotten| Some(forgotten.sleeper?.bell)).collect()
    }
}

/// The priorities of new requests, in schedules that have some.
const PRIORITIES: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 9, 255, 1, 1, 2, 9];

const FORMS: [Form; 5] = [Form::Try, Form::For, Form::Until, Form::Limited, Form::Blocking];
