//! Random schedules of everything that a map offers, checked against a map of numbers and the
//! [contract](common::contract) of each key's lock.
//!
//! One thread plays all parts: guards are held over several steps, and futures are polled by hand, woken or not, and
//! dropped halfway. After every step the whole map is compared with the model: the values, the number of entries, the
//! holders and waiters, and the versions, which grow with each change and with nothing else. The model does not
//! predict which value is evicted. It finds out by looking, and checks that the eviction was allowed, and that one
//! happened if it was required.

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use keylatch::{
    AddOrUpdate, Fairness, KeyHandle, LockMap, ManualClock, MapReadGuard, MapUpgradableGuard, MapWriteGuard,
    TryBatchError, Version, Walk,
};
use proptest::prelude::*;

use Want::{Read, Upgradable, Upgrade, Write};
use common::contract::{For, Holds, Id, Key as Lock, Rules, Seen, Want};
use common::{Fixed, Random, poll};

const KEYS: u64 = 4;

/// The number of kinds of steps: see `World::step`.
const KINDS: u8 = 49;

type Map<V> = LockMap<u64, V, Fixed>;

/// A value that represents a number: `u64`, which needs no drop, or [`Owned`], which owns memory.
trait Value: Clone + PartialEq + 'static {
    fn new(n: u64, token: &Arc<()>) -> Self;
    fn n(&self) -> u64;
    fn set(&mut self, n: u64);
}

impl Value for u64 {
    fn new(n: u64, _: &Arc<()>) -> Self {
        n
    }

    fn n(&self) -> u64 {
        *self
    }

    fn set(&mut self, n: u64) {
        *self = n;
    }
}

/// A value that owns memory. Each has a clone of the token, whose strong count therefore tells how many values exist.
#[derive(Clone)]
struct Owned(u64, #[allow(dead_code)] Arc<()>);

impl PartialEq for Owned {
    fn eq(&self, other: &Owned) -> bool {
        self.0 == other.0
    }
}

impl Value for Owned {
    fn new(n: u64, token: &Arc<()>) -> Self {
        Owned(n, Arc::clone(token))
    }

    fn n(&self) -> u64 {
        self.0
    }

    fn set(&mut self, n: u64) {
        self.0 = n;
    }
}

enum Guard<'m, V: 'm> {
    Read(MapReadGuard<'m, u64, V, Fixed>),
    Upgradable(MapUpgradableGuard<'m, u64, V, Fixed>),
    Write(MapWriteGuard<'m, u64, V, Fixed>),
}

impl<V: Value> Guard<'_, V> {
    fn want(&self) -> Want {
        match self {
            Guard::Read(_) => Read,
            Guard::Upgradable(_) => Upgradable,
            Guard::Write(_) => Write,
        }
    }

    fn look(&self) -> (u64, Option<u64>, Option<Version>) {
        match self {
            Guard::Read(guard) => (*guard.key(), guard.value().map(V::n), guard.version()),
            Guard::Upgradable(guard) => (*guard.key(), guard.value().map(V::n), guard.version()),
            Guard::Write(guard) => (*guard.key(), guard.value().map(V::n), guard.version()),
        }
    }
}

/// The kind of a future, or of its blocking twin.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Acquire(Want),
    Upgrade,
    Get,
    GetVersioned,
    /// Whether the key had an entry when the future was made; if so, the future keeps the entry alive. `None` for a
    /// blocking call.
    Peek(Option<bool>),
    Insert(u64),
    Remove,
    /// The value, the number of polls after which `init` is done, whether it fails, and whether the call refreshes an
    /// old value.
    GetOrInsert(u64, u8, bool, Option<Refresh>),
    AddOrUpdate(u64),
    InsertIfAbsent(u64),
    Update(u64),
    Compute(Compute),
    UpdateIf(Version, u64),
    RemoveIf(Version),
}

#[derive(Clone, Copy, Debug)]
struct Refresh {
    /// The age at which the value becomes old.
    fresh_for: u64,
    /// The [number](Key::changes) of the value that the call refreshes; 0 if it refreshes none.
    of: u64,
}

#[derive(Clone, Copy, Debug)]
struct Compute {
    n: u64,
    does: Does,
    /// The number of polls after which the closure is done.
    polls: u8,
    /// The value that the closure was called with.
    taken: Option<u64>,
}

/// The effect of the closure of a [`Compute`].
#[derive(Clone, Copy, PartialEq, Debug)]
enum Does {
    Nothing,
    Store,
    Remove,
}

impl Compute {
    fn result(&self) -> Option<u64> {
        match self.does {
            Does::Nothing => self.taken,
            Does::Store => Some(self.n),
            Does::Remove => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    Unpolled,
    Waits(Want),
    /// The call holds the key as a writer, and its `init`, or closure, stays pending for this many more polls.
    Init(u8),
    /// The call refreshes a value, holds nothing but keeps the entry, and its `init` stays pending for this many more
    /// polls.
    Refreshes(u8),
}

#[derive(Clone, Copy, Debug)]
struct Call {
    key: u64,
    /// The id of the request with which the call waits.
    id: Id,
    kind: Kind,
    stage: Stage,
}

/// The outcome of a call, predicted by the model or real.
enum Outcome<G> {
    Guard(G),
    Failed,
    Number(Option<u64>),
    Versioned(Option<(u64, Version)>),
    SomeVersioned(Option<u64>),
    /// The value that was not stored.
    Kept(u64),
    Computed(Option<Version>),
    Added(AddOrUpdate<u64>),
    Updated(Version),
    /// A prediction by the model, which does not know the version.
    SomeUpdate,
    Conflict(Option<Version>),
    SomeConflict,
}

struct Running<'m, V> {
    call: Call,
    future: Pin<Box<dyn Future<Output = Outcome<Guard<'m, V>>> + 'm>>,
}

/// A walk, and its next guard, or `None` at the end. The result is an error if the step was given up.
type Stepped<'m, V> = (Walk<'m, u64, V, Fixed>, Result<Option<Guard<'m, V>>, ()>);

/// The real side of a walk.
enum Walker<'m, V> {
    Rests(Walk<'m, u64, V, Fixed>),
    /// The future of a step owns the walk.
    Steps(Pin<Box<dyn Future<Output = Stepped<'m, V>> + 'm>>),
}

/// A walk, and the model's knowledge of it.
struct Walking<'m, V> {
    walker: Walker<'m, V>,
    gives_up: Rc<Cell<bool>>,
    /// The kind of hold that the current step requests.
    want: Want,
    /// The key that the step waits for, and the id of its request.
    waits: Option<(u64, Id)>,
    /// The keys that the walk has visited, or has waited for and then found without a value.
    passed: Vec<u64>,
    /// Whether each key has had, all the time since the walk began, a value or a writer that may have taken it out.
    there: Vec<bool>,
}

/// The state of a key in the model.
#[derive(Clone)]
struct Key {
    lock: Lock,
    value: Option<u64>,
    /// The version of the value, if it has been seen since the last change.
    version: Option<Version>,
    /// The time at which the value ends, unless a caller that has found it holds the key at that time.
    ends: Option<u64>,
    /// Whether the value has changed since `ends` was last set and the value last weighed, both of which happen when
    /// its writer no longer holds the key.
    is_new: bool,
    /// The time when the writer that stored or last changed the value gave up the key.
    since: u64,
    /// The number of times that the key got or lost a value, or its value was changed.
    changes: u64,
    /// The value that a call refreshes, by its number of `changes`; 0 if no call does.
    refreshed: u64,
    /// The weight that the value had when it was weighed; 0 if it has not been, or in a map that does not weigh values.
    weight: u64,
    /// Whether the value was too heavy when it was weighed, or when the bound was last changed, and has been in use
    /// ever since.
    is_apart: bool,
    /// A lower bound of the value's version or, if there is no value, of the next value's.
    floor: u64,
    handles: usize,
    /// The number of futures that only keep the entry: acquiring futures and peeks that have not been polled, and calls
    /// that refresh the value.
    unpolled: usize,
}

impl Key {
    fn is_used(&self) -> bool {
        self.lock.holds != Holds::default() || !self.lock.queue.is_empty() || self.handles > 0
    }

    fn has_entry(&self) -> bool {
        self.value.is_some() || self.is_used() || self.unpolled > 0
    }

    fn store(&mut self, n: u64) -> Option<u64> {
        self.change();
        self.value.replace(n)
    }

    fn change(&mut self) {
        self.floor += 1;
        self.changes += 1;
        self.version = None;
        (self.ends, self.is_new) = (None, true);
    }

    fn remove(&mut self) -> Option<u64> {
        self.version = None;
        self.changes += 1;
        (self.weight, self.is_apart) = (0, false);
        self.value.take()
    }

    /// Records that the call that refreshes value number `of` does so no longer.
    fn end_refresh(&mut self, of: u64) {
        if self.refreshed == of {
            self.refreshed = 0;
        }
    }

    /// Records the version that was seen with the current value.
    fn learn(&mut self, version: Option<Version>) {
        assert_eq!(version.is_some(), self.value.is_some());
        let Some(seen) = version else { return };
        match self.version {
            Some(known) => assert_eq!(seen, known, "a new version without a change"),
            None => assert!(seen.get() >= self.floor, "{seen:?} is older than {}", self.floor),
        }
        (self.version, self.floor) = (version, seen.get());
    }
}

#[derive(Clone)]
struct Model {
    keys: Vec<Key>,
    last_id: Id,
    /// The key at which this step stored a value.
    stored: Option<u64>,
    /// Whether a call began in this step to refresh a value, and so released its key.
    begins_refresh: bool,
    /// The time that the clock shows, if there is one.
    now: u64,
}

impl Model {
    fn key(&mut self, key: u64) -> &mut Key {
        &mut self.keys[key as usize]
    }

    fn store(&mut self, key: u64, n: u64) -> Option<u64> {
        self.stored = Some(key);
        self.key(key).store(n)
    }

    /// Polls a call. Returns `None` if it waits.
    fn poll(&mut self, call: &mut Call) -> Option<Outcome<Want>> {
        let key = call.key;
        loop {
            let at = self.key(key);
            let want = match call.stage {
                Stage::Init(0) if compute_of(call).is_some() => {
                    let result = compute_of(call).and_then(|compute| compute.result());
                    if let Some(n) = result {
                        self.store(key, n);
                    }
                    self.key(key).lock.release(Write, For::Anyone);
                    return Some(if result.is_some() { Outcome::SomeUpdate } else { Outcome::Computed(None) });
                }
                Stage::Init(0) => {
                    let Kind::GetOrInsert(n, _, fails, refresh) = call.kind else { unreachable!() };
                    if fails {
                        at.lock.release(Write, For::Anyone);
                        return Some(Outcome::Failed);
                    }
                    self.store(key, n);
                    self.key(key).lock.change(Write, Read);
                    if refresh.is_none() {
                        return Some(Outcome::Guard(Read));
                    }
                    // The value has just been made, so it is not refreshed.
                    self.key(key).lock.release(Read, For::Anyone);
                    return Some(Outcome::Number(Some(n)));
                }
                Stage::Init(polls) => {
                    call.stage = Stage::Init(polls - 1);
                    return None;
                }
                Stage::Refreshes(0) => {
                    let Kind::GetOrInsert(_, _, fails, Some(Refresh { of, .. })) = call.kind else { unreachable!() };
                    at.unpolled -= 1;
                    if fails {
                        at.end_refresh(of);
                        return Some(Outcome::Failed);
                    }
                    self.wait(call, Write);
                    continue;
                }
                Stage::Refreshes(polls) => {
                    call.stage = Stage::Refreshes(polls - 1);
                    return None;
                }
                Stage::Unpolled => {
                    let is_new = !at.has_entry();
                    let first = match call.kind {
                        Kind::Acquire(want) => {
                            at.unpolled -= 1;
                            want
                        }
                        Kind::Upgrade => Upgrade,
                        Kind::Peek(Some(false)) => return Some(Outcome::Number(None)),
                        Kind::Peek(Some(true)) => {
                            at.unpolled -= 1;
                            Read
                        }
                        Kind::Get | Kind::Peek(None) | Kind::Remove | Kind::Update(_) if is_new => {
                            return Some(Outcome::Number(None));
                        }
                        Kind::GetVersioned if is_new => return Some(Outcome::SomeVersioned(None)),
                        Kind::UpdateIf(..) | Kind::RemoveIf(_) if is_new => return Some(Outcome::SomeConflict),
                        Kind::Insert(n) if is_new => return Some(Outcome::Number(self.store(key, n))),
                        Kind::InsertIfAbsent(n) if is_new => {
                            self.store(key, n);
                            return Some(Outcome::SomeUpdate);
                        }
                        Kind::Compute(compute) if is_new => {
                            assert!(at.lock.attempt(Write));
                            call.stage = Stage::Init(compute.polls);
                            continue;
                        }
                        Kind::AddOrUpdate(n) if is_new => {
                            self.store(key, n);
                            return Some(Outcome::Added(AddOrUpdate::Added));
                        }
                        Kind::GetOrInsert(_, polls, ..) if is_new => {
                            assert!(at.lock.attempt(Write));
                            call.stage = Stage::Init(polls);
                            continue;
                        }
                        Kind::Get | Kind::GetVersioned | Kind::Peek(None) | Kind::GetOrInsert(..) => Read,
                        Kind::Insert(_) | Kind::Remove | Kind::Update(_) | Kind::Compute(_) => Write,
                        Kind::AddOrUpdate(_) | Kind::InsertIfAbsent(_) | Kind::UpdateIf(..) | Kind::RemoveIf(_) => {
                            Upgradable
                        }
                    };
                    self.wait(call, first);
                    continue;
                }
                Stage::Waits(want) => want,
            };
            if !at.lock.poll(call.id, want) {
                return None;
            }
            match (call.kind, want) {
                (Kind::Acquire(_), _) => return Some(Outcome::Guard(want)),
                (Kind::Upgrade, _) => return Some(Outcome::Guard(Write)),
                (Kind::Get | Kind::Peek(_), _) => {
                    at.lock.release(Read, For::Anyone);
                    return Some(Outcome::Number(at.value));
                }
                (Kind::GetVersioned, _) => {
                    at.lock.release(Read, For::Anyone);
                    return Some(Outcome::SomeVersioned(at.value));
                }
                (Kind::Update(n), _) => {
                    let old = at.value;
                    if old.is_some() {
                        self.store(key, n);
                    }
                    self.key(key).lock.release(Write, For::Anyone);
                    return Some(Outcome::Number(old));
                }
                (Kind::Compute(compute), _) => {
                    // The closure owns the value from now on.
                    let taken = at.remove();
                    call.kind = Kind::Compute(Compute { taken, ..compute });
                    call.stage = Stage::Init(compute.polls);
                }
                (Kind::InsertIfAbsent(n), Upgradable) if at.value.is_some() => {
                    at.lock.release(Upgradable, For::Anyone);
                    return Some(Outcome::Kept(n));
                }
                (Kind::InsertIfAbsent(n), Upgrade) => {
                    self.store(key, n);
                    self.key(key).lock.release(Write, For::Anyone);
                    return Some(Outcome::SomeUpdate);
                }
                (Kind::Insert(n), _) => {
                    let old = self.store(key, n);
                    self.key(key).lock.release(Write, For::Anyone);
                    return Some(Outcome::Number(old));
                }
                (Kind::Remove, _) => {
                    let old = at.remove();
                    at.lock.release(Write, For::Anyone);
                    return Some(Outcome::Number(old));
                }
                (Kind::GetOrInsert(..), Read) if at.value.is_some() => {
                    if let Some(found) = self.find(call) {
                        return Some(found);
                    }
                }
                (Kind::GetOrInsert(..), Read) => {
                    at.lock.release(Read, For::Anyone);
                    self.wait(call, Upgradable);
                }
                (Kind::GetOrInsert(..), Upgradable) if at.value.is_some() => {
                    at.lock.change(Upgradable, Read);
                    if let Some(found) = self.find(call) {
                        return Some(found);
                    }
                }
                (Kind::GetOrInsert(_, polls, ..), Upgrade) => call.stage = Stage::Init(polls),
                // The value has been refreshed. If there is a later value, that one stays. If there is none, none is
                // stored.
                (Kind::GetOrInsert(n, _, _, Some(Refresh { of, .. })), Write) => {
                    let later = at.value.filter(|_| at.changes != of);
                    if at.changes == of {
                        self.store(key, n);
                    }
                    self.key(key).lock.release(Write, For::Anyone);
                    return Some(Outcome::Number(later.or(Some(n))));
                }
                (Kind::AddOrUpdate(n), Upgradable) if at.value == Some(n) => {
                    at.lock.release(Upgradable, For::Anyone);
                    return Some(Outcome::Added(AddOrUpdate::Unchanged));
                }
                (Kind::AddOrUpdate(n), Upgrade) => {
                    let old = self.store(key, n);
                    self.key(key).lock.release(Write, For::Anyone);
                    return Some(Outcome::Added(old.map_or(AddOrUpdate::Added, AddOrUpdate::Updated)));
                }
                // The model does not know the version of a change that no call has looked at: a version seen earlier is
                // outdated.
                (Kind::UpdateIf(version, _) | Kind::RemoveIf(version), Upgradable)
                    if at.value.is_none() || at.version != Some(version) =>
                {
                    at.lock.release(Upgradable, For::Anyone);
                    return Some(Outcome::SomeConflict);
                }
                (Kind::UpdateIf(_, n), Upgrade) => {
                    self.store(key, n);
                    self.key(key).lock.release(Write, For::Anyone);
                    return Some(Outcome::SomeUpdate);
                }
                (Kind::RemoveIf(_), Upgrade) => {
                    let old = at.remove();
                    at.lock.release(Write, For::Anyone);
                    return Some(Outcome::Number(old));
                }
                (_, Upgradable) => self.wait(call, Upgrade),
                _ => unreachable!(),
            }
        }
    }

    /// Models a call that is a reader and has found a value. Returns `None` if the call goes on to refresh the value.
    fn find(&mut self, call: &mut Call) -> Option<Outcome<Want>> {
        let Kind::GetOrInsert(_, polls, _, refresh) = &mut call.kind else { unreachable!() };
        let Some(refresh) = refresh else { return Some(Outcome::Guard(Read)) };
        let now = self.now;
        let at = &mut self.keys[call.key as usize];
        at.lock.release(Read, For::Anyone);
        if at.refreshed == at.changes || now - at.since < refresh.fresh_for {
            return Some(Outcome::Number(at.value));
        }
        (refresh.of, at.refreshed) = (at.changes, at.changes);
        at.unpolled += 1;
        self.begins_refresh = true;
        call.stage = Stage::Refreshes(*polls);
        None
    }

    fn wait(&mut self, call: &mut Call, want: Want) {
        self.last_id += 1;
        (call.id, call.stage) = (self.last_id, Stage::Waits(want));
    }

    fn cancel(&mut self, call: &Call) {
        let at = self.key(call.key);
        match (call.stage, call.kind) {
            (Stage::Unpolled, Kind::Acquire(_) | Kind::Peek(Some(true))) => at.unpolled -= 1,
            (Stage::Unpolled, Kind::Upgrade) => at.lock.release(Upgradable, For::Anyone),
            (Stage::Unpolled, _) => {}
            (Stage::Waits(Upgrade), _) => {
                let (held, whom) = Lock::held_after_upgrade(at.lock.leave_queue(call.id));
                at.lock.release(held, whom);
            }
            (Stage::Waits(want), _) => at.lock.cancel(call.id, want),
            (Stage::Init(_), _) => at.lock.release(Write, For::Anyone),
            (Stage::Refreshes(_), _) => at.unpolled -= 1,
        }
        if let Kind::GetOrInsert(_, _, _, Some(Refresh { of, .. })) = call.kind {
            self.key(call.key).end_refresh(of);
        }
    }
}

struct World<'m, V> {
    map: &'m Map<V>,
    most: Option<usize>,
    /// Whether the map leaves eviction to its user.
    by_hand: bool,
    /// Whether the bound is on the weight of values.
    weighed: bool,
    /// The clock, if values end.
    clock: Option<&'m ManualClock>,
    /// Whether the ages of values are recorded.
    ages: bool,
    /// Whether values that nobody uses may rest. The way in which their keys are looked at decides whether they do.
    rests: bool,
    token: &'m Arc<()>,
    model: Model,
    guards: Vec<Guard<'m, V>>,
    running: Vec<Running<'m, V>>,
    handles: Vec<KeyHandle<'m, Map<V>>>,
    walks: Vec<Walking<'m, V>>,
    seen: Vec<(u64, Version)>,
    last_value: u64,
    /// Whether this step ended the use of a stored value.
    settled: bool,
    /// Whether this step visited values, and so may have ended the use of some, or removed them, after others were
    /// evicted.
    visited: bool,
    /// Whether there were too many values before this step, or too heavy ones.
    was_too_full: bool,
    /// The way in which this step looks at values that nobody uses.
    manner: Manner,
}

/// A value comes to rest after at most this many uses without a hold.
const GETS_BEFORE_REST: u8 = 40;

/// A way in which a step looks at values that may be at rest.
#[derive(Clone, Copy)]
enum Manner {
    /// By their status, for which they move to slots.
    Status,
    /// By this many calls without a hold.
    Gets(u8),
    /// Not at all, so that they stay as they are.
    Leave,
}

fn compute_of(call: &Call) -> Option<Compute> {
    if let Kind::Compute(compute) = call.kind { Some(compute) } else { None }
}

/// The outcome of the blocking twin of a call, or the future's output.
macro_rules! outcome {
    ($world:ident, $kind:expr, $key:ident, $(.$await:ident)?,
        $get:ident, $insert:ident, $remove:ident, $init:ident, $add:ident, $update:ident, $remove_if:ident,
        $versioned:ident, $absent:ident, $change:ident, $compute:ident, $refresh:ident, |$polls:ident| $make:expr) => {{
        let value = |n| V::new(n, $world.token);
        match $kind {
            Kind::Get => Outcome::Number($world.map.$get(&$key)$(.$await)?.map(|value| value.n())),
            Kind::GetVersioned => {
                let seen = $world.map.$versioned(&$key)$(.$await)?;
                Outcome::Versioned(seen.map(|(value, version)| (value.n(), version)))
            }
            Kind::InsertIfAbsent(n) => match $world.map.$absent(&$key, value(n))$(.$await)? {
                Ok(version) => Outcome::Updated(version),
                Err(kept) => Outcome::Kept(kept.n()),
            },
            Kind::Update(n) => {
                let change = |value: &mut V| {
                    let old = value.n();
                    value.set(n);
                    old
                };
                Outcome::Number($world.map.$change(&$key, change)$(.$await)?)
            }
            Kind::Compute(Compute { n, does, polls: $polls, .. }) => {
                let change = |taken: Option<V>| {
                    let made = match does {
                        Does::Nothing => taken,
                        Does::Store => Some(value(n)),
                        Does::Remove => None,
                    };
                    $make(made)
                };
                match $world.map.$compute(&$key, change)$(.$await)? {
                    Some(version) => Outcome::Updated(version),
                    None => Outcome::Computed(None),
                }
            }
            Kind::Insert(n) => Outcome::Number($world.map.$insert(&$key, value(n))$(.$await)?.map(|value| value.n())),
            Kind::Remove => Outcome::Number($world.map.$remove(&$key)$(.$await)?.map(|value| value.n())),
            Kind::GetOrInsert(n, $polls, fails, Some(Refresh { fresh_for, .. })) => {
                let made = if fails { Err(()) } else { Ok(value(n)) };
                let old = TICK * fresh_for as u32;
                let result = $world.map.$refresh(&$key, old, || { let made = made; $make(made) })$(.$await)?;
                result.map_or(Outcome::Failed, |value| Outcome::Number(Some(value.n())))
            }
            Kind::GetOrInsert(n, $polls, fails, None) => {
                let made = if fails { Err(()) } else { Ok(value(n)) };
                let result = $world.map.$init(&$key, || { let made = made; $make(made) })$(.$await)?;
                result.map_or(Outcome::Failed, |guard| Outcome::Guard(Guard::Read(guard)))
            }
            Kind::AddOrUpdate(n) => Outcome::Added(match $world.map.$add(&$key, value(n))$(.$await)? {
                AddOrUpdate::Added => AddOrUpdate::Added,
                AddOrUpdate::Updated(old) => AddOrUpdate::Updated(old.n()),
                AddOrUpdate::Unchanged => AddOrUpdate::Unchanged,
            }),
            Kind::UpdateIf(version, n) => match $world.map.$update(&$key, version, value(n))$(.$await)? {
                Ok(version) => Outcome::Updated(version),
                Err(conflict) => {
                    let found = conflict.found();
                    assert_eq!(conflict.into_value().n(), n);
                    Outcome::Conflict(found)
                }
            },
            Kind::RemoveIf(version) => match $world.map.$remove_if(&$key, version)$(.$await)? {
                Ok(value) => Outcome::Number(Some(value.n())),
                Err(conflict) => Outcome::Conflict(conflict.found()),
            },
            Kind::Acquire(_) | Kind::Upgrade | Kind::Peek(_) => unreachable!(),
        }
    }};
}

#[derive(Clone, Copy)]
struct Lent<'m, V> {
    map: &'m Map<V>,
    token: &'m Arc<()>,
}

impl<'m, V: Value> World<'m, V> {
    fn new(
        map: &'m Map<V>,
        Setting { fairness, most, by_hand, ages, weighed, rests, .. }: Setting,
        clock: Option<&'m ManualClock>,
        token: &'m Arc<()>,
    ) -> Self {
        let lock = Lock::new(Rules { fairness, permits: 0 });
        let key = Key {
            lock,
            value: None,
            version: None,
            ends: None,
            is_new: false,
            since: 0,
            changes: 0,
            refreshed: 0,
            weight: 0,
            is_apart: false,
            floor: 0,
            handles: 0,
            unpolled: 0,
        };
        World {
            map,
            most,
            by_hand,
            weighed,
            clock,
            ages,
            rests,
            token,
            model: Model { keys: vec![key; KEYS as usize], last_id: 0, stored: None, begins_refresh: false, now: 0 },
            guards: vec![],
            running: vec![],
            handles: vec![],
            walks: vec![],
            seen: vec![],
            last_value: 0,
            settled: false,
            visited: false,
            was_too_full: false,
            manner: Manner::Status,
        }
    }

    fn number(&mut self) -> u64 {
        self.last_value += 1;
        self.last_value
    }

    fn learn(&mut self, key: u64, version: Option<Version>) {
        self.model.key(key).learn(version);
        self.seen.extend(version.map(|version| (key, version)));
        self.seen.dedup();
    }

    // ---- calls ----------------------------------------------------------------------------------------------------

    fn wants(n: u8) -> Want {
        [Read, Read, Upgradable, Write][usize::from(n) % 4]
    }

    /// Creates a future that acquires a hold, by key or by handle.
    fn ask(&mut self, key: u64, want: Want, handle: Option<usize>) {
        let map = self.map;
        let (key, future): (u64, Pin<Box<dyn Future<Output = _> + 'm>>) = match handle {
            None => (
                key,
                match want {
                    Read => box_up(map.read(&key), Guard::Read),
                    Upgradable => box_up(map.upgradable_read(&key), Guard::Upgradable),
                    _ => box_up(map.write(&key), Guard::Write),
                },
            ),
            Some(at) => {
                let handle = &self.handles[at];
                (
                    *handle.key(),
                    match want {
                        Read => box_up(handle.read(), Guard::Read),
                        Upgradable => box_up(handle.upgradable_read(), Guard::Upgradable),
                        _ => box_up(handle.write(), Guard::Write),
                    },
                )
            }
        };
        self.model.key(key).unpolled += 1;
        let call = Call { key, id: 0, kind: Kind::Acquire(want), stage: Stage::Unpolled };
        self.running.push(Running { call, future });
    }

    fn attempt(&mut self, key: u64, want: Want, handle: Option<usize>) {
        let map = self.map;
        let (key, got) = match handle {
            None => (
                key,
                match want {
                    Read => map.try_read(&key).map(Guard::Read),
                    Upgradable => map.try_upgradable_read(&key).map(Guard::Upgradable),
                    _ => map.try_write(&key).map(Guard::Write),
                },
            ),
            Some(at) => {
                let handle = &self.handles[at];
                (
                    *handle.key(),
                    match want {
                        Read => handle.try_read().map(Guard::Read),
                        Upgradable => handle.try_upgradable_read().map(Guard::Upgradable),
                        _ => handle.try_write().map(Guard::Write),
                    },
                )
            }
        };
        assert_eq!(got.is_some(), self.model.key(key).lock.attempt(want));
        self.guards.extend(got);
    }

    fn kind(&mut self, key: u64, a: u8, b: u8) -> Kind {
        let n = self.number();
        let equal = self.model.key(key).value.filter(|_| b % 2 == 0).unwrap_or(n);
        let versions: Vec<_> = self.seen.iter().filter(|(of, _)| *of == key).map(|(_, version)| *version).collect();
        // Usually the latest version.
        let version = if b % 4 == 0 { versions.get(usize::from(b / 4)).or(versions.last()) } else { versions.last() };
        let does = [Does::Nothing, Does::Store, Does::Remove][usize::from(a / 16) % 3];
        match (a % 14, version) {
            (0 | 1, _) => Kind::Get,
            (10, _) => Kind::GetVersioned,
            (11, _) => Kind::InsertIfAbsent(n),
            (12, _) => Kind::Update(n),
            (13, _) => Kind::Compute(Compute { n, does, polls: b % 3, taken: None }),
            (2, _) => Kind::Remove,
            (3 | 4, _) => Kind::GetOrInsert(n, b % 3, b % 5 == 0, None),
            (5, _) => Kind::AddOrUpdate(equal),
            (6, Some(&version)) => Kind::UpdateIf(version, n),
            (7, Some(&version)) => Kind::RemoveIf(version),
            (9, _) => Kind::Peek(None),
            _ => Kind::Insert(n),
        }
    }

    fn call(&mut self, key: u64, kind: Kind) {
        let lent = Lent { map: self.map, token: self.token };
        if let Kind::Peek(_) = kind {
            return self.peek(key);
        }
        let call = Call { key, id: 0, kind, stage: Stage::Unpolled };
        // The call is made, and requests the key, when this future is first polled.
        let future = async move {
            outcome!(
                lent, kind, key, .await, get, insert, remove, get_or_try_insert_with, add_or_update, update_if, remove_if,
                get_versioned, insert_if_absent, update, compute, get_or_try_refresh_with,
                |polls| |made| {
                    let (mut left, mut made) = (polls, Some(made));
                    poll_fn(move |_| match left {
                        0 => Poll::Ready(made.take().unwrap()),
                        _ => {
                            left -= 1;
                            Poll::Pending
                        }
                    })
                }
            )
        };
        self.running.push(Running { call, future: Box::pin(future) });
    }

    /// Calls `peek`. The call looks for the entry, and the future keeps it alive.
    fn peek(&mut self, key: u64) {
        self.map.tick(); // otherwise an ended value may have left its entry
        let at = self.model.key(key);
        let has_entry = at.has_entry();
        at.unpolled += usize::from(has_entry);
        let call = Call { key, id: 0, kind: Kind::Peek(Some(has_entry)), stage: Stage::Unpolled };
        let future = self.map.peek(&key);
        let future = async move { Outcome::Number(future.await.map(|value| value.n())) };
        self.running.push(Running { call, future: Box::pin(future) });
    }

    /// Makes a call in its blocking form, if that would not block.
    fn call_blocking(&mut self, key: u64, mut kind: Kind) {
        if let Kind::GetOrInsert(_, polls, ..) | Kind::Compute(Compute { polls, .. }) = &mut kind {
            *polls = 0;
        }
        let mut call = Call { key, id: 0, kind, stage: Stage::Unpolled };
        let mut model = self.model.clone();
        let Some(expected) = model.poll(&mut call) else { return };
        self.model = model;
        if let Kind::Peek(_) = kind {
            let seen = self.map.peek_blocking(&key).map(|value| value.n());
            return self.compare(key, Outcome::Number(seen), expected);
        }
        let outcome = outcome!(
            self, kind, key, , get_blocking, insert_blocking, remove_blocking, get_or_try_insert_with_blocking,
            add_or_update_blocking, update_if_blocking, remove_if_blocking, get_versioned_blocking,
            insert_if_absent_blocking, update_blocking, compute_blocking, get_or_try_refresh_with_blocking, |_polls| |made| made
        );
        self.compare(key, outcome, expected);
    }

    fn poll(&mut self, at: usize) {
        let Running { call, future } = &mut self.running[at];
        let (before, expected) = (*call, self.model.poll(call));
        match (poll(future), expected) {
            (Poll::Pending, None) => {}
            (Poll::Ready(outcome), Some(expected)) => {
                let key = call.key;
                drop(self.running.swap_remove(at));
                self.compare(key, outcome, expected);
            }
            (real, expected) => panic!("{before:?}: ready {}, expected {}", real.is_ready(), expected.is_some()),
        }
    }

    fn compare(&mut self, key: u64, outcome: Outcome<Guard<'m, V>>, expected: Outcome<Want>) {
        self.settled = self.model.stored.is_some() && !matches!(outcome, Outcome::Guard(_));
        match (outcome, expected) {
            (Outcome::Guard(guard), Outcome::Guard(want)) => {
                assert_eq!(guard.want(), want);
                self.guards.push(guard);
            }
            (Outcome::Failed, Outcome::Failed) => {}
            (Outcome::Number(got), Outcome::Number(expected)) => assert_eq!(got, expected),
            (Outcome::Versioned(got), Outcome::SomeVersioned(expected)) => {
                assert_eq!(got.map(|(n, _)| n), expected);
                if let Some((_, version)) = got {
                    self.learn(key, Some(version));
                }
            }
            (Outcome::Kept(got), Outcome::Kept(expected)) => assert_eq!(got, expected),
            (Outcome::Computed(got), Outcome::Computed(expected)) => assert_eq!(got, expected),
            (Outcome::Added(got), Outcome::Added(expected)) => assert_eq!(got, expected),
            (Outcome::Updated(version), Outcome::SomeUpdate) => self.learn(key, Some(version)),
            (Outcome::Conflict(found), Outcome::SomeConflict) => self.learn(key, found),
            _ => panic!("the outcome is of another kind than predicted"),
        }
    }

    fn cancel(&mut self, at: usize) {
        let Running { call, future } = self.running.swap_remove(at);
        self.model.cancel(&call);
        drop(future);
    }

    // ---- guards ---------------------------------------------------------------------------------------------------

    fn release(&mut self, at: usize, fair: bool) {
        let guard = self.guards.swap_remove(at);
        let (key, want) = (guard.look().0, guard.want());
        let fair = fair && want == Write;
        self.settled = self.model.key(key).value.is_some();
        self.model.key(key).lock.release(want, if fair { For::Waiter } else { For::Anyone });
        match guard {
            Guard::Write(guard) if fair => guard.unlock_fair(),
            guard => drop(guard),
        }
    }

    fn write(&mut self, at: usize, how: u8) {
        let n = self.number();
        let Guard::Write(guard) = &mut self.guards[at] else { return };
        let key = *guard.key();
        let (before, value) = (guard.version(), V::new(n, self.token));
        match how % 5 {
            4 => {
                let mut slot = guard.value_slot();
                assert_eq!(slot.as_ref().map(V::n), self.model.key(key).value);
                match n % 3 {
                    0 => *slot = None,
                    1 => *slot = Some(value),
                    _ => {}
                }
                let now = slot.as_ref().map(V::n);
                drop(slot);
                self.model.key(key).remove();
                if let Some(n) = now {
                    self.model.store(key, n);
                }
            }
            0 => assert_eq!(guard.insert(value).map(|value| value.n()), self.model.store(key, n)),
            1 => assert_eq!(guard.remove().map(|value| value.n()), self.model.key(key).remove()),
            2 => {
                let found = guard.value_mut().map(|value| value.set(n)).is_some();
                assert_eq!(found, self.model.key(key).value.is_some());
                if found {
                    self.model.store(key, n);
                }
            }
            _ => {
                let model = self.model.key(key);
                if model.value.is_some() {
                    model.change()
                } else {
                    _ = self.model.store(key, n)
                }
                assert_eq!(guard.get_or_insert_with(|| value).n(), self.model.key(key).value.unwrap());
            }
        }
        let now = guard.version();
        assert!(now.is_none() || now > before);
    }

    fn change(&mut self, at: usize, how: u8) {
        let n = self.number();
        let guard = self.guards.swap_remove(at);
        let key = guard.look().0;
        let model = &mut self.model.key(key).lock;
        let guard = match (guard, how % 5) {
            (Guard::Write(guard), 0 | 1) => {
                model.change(Write, Read);
                Guard::Read(guard.downgrade())
            }
            (Guard::Write(guard), 2) => {
                model.change(Write, Upgradable);
                Guard::Upgradable(guard.downgrade_to_upgradable())
            }
            (Guard::Upgradable(guard), 0) => {
                model.change(Upgradable, Read);
                Guard::Read(guard.downgrade())
            }
            (Guard::Upgradable(guard), 1) => {
                let may = model.attempt(Upgrade);
                match guard.try_upgrade() {
                    Ok(guard) if may => Guard::Write(guard),
                    Err(guard) if !may => Guard::Upgradable(guard),
                    _ => panic!("the upgrade did not end as predicted"),
                }
            }
            (Guard::Upgradable(mut guard), 2) => {
                let may = model.attempt(Upgrade);
                let mut writer = guard.try_upgrade_mut();
                assert_eq!(writer.is_some(), may);
                if let Some(writer) = &mut writer {
                    let before = writer.version();
                    match n % 3 {
                        0 => {
                            let old = writer.insert(V::new(n, self.token)).map(|value| value.n());
                            assert_eq!(old, self.model.store(key, n));
                        }
                        1 => assert_eq!(writer.remove().map(|value| value.n()), self.model.key(key).remove()),
                        _ => {
                            if let Some(value) = writer.value_mut() {
                                value.set(n);
                                self.model.store(key, n);
                            }
                        }
                    }
                    let now = writer.version();
                    assert!(now.is_none() || now > before);
                    assert_eq!(writer.value().map(V::n), self.model.key(key).value);
                    // The upgraded hold ends with the borrow of the guard.
                    self.model.key(key).lock.change(Write, Upgradable);
                }
                drop(writer);
                Guard::Upgradable(guard)
            }
            (Guard::Upgradable(guard), _) => {
                let call = Call { key, id: 0, kind: Kind::Upgrade, stage: Stage::Unpolled };
                self.running.push(Running { call, future: box_up(guard.upgrade(), Guard::Write) });
                return;
            }
            (guard, _) => guard,
        };
        self.guards.push(guard);
    }

    // ---- several keys ---------------------------------------------------------------------------------------------

    /// Returns whether a call for several keys acquires all of them at once. Returns `None` if others wait for one of
    /// the keys: then the outcome depends on the policy and on the order of the keys.
    fn all_are_free(&mut self, wants: &BTreeMap<u64, Want>) -> Option<bool> {
        let mut all = true;
        for (&key, &want) in wants {
            let lock = &self.model.key(key).lock;
            if !lock.queue.is_empty() {
                return None;
            }
            all &= lock.clone().attempt(want);
        }
        Some(all)
    }

    fn many(&mut self, keys: [u64; 2], writes: bool) {
        let wants = keys.map(|key| (key, if writes { Write } else { Read })).into();
        let Some(free) = self.all_are_free(&wants) else { return };
        let got = if writes {
            self.map.try_write_many(&keys).map(|guards| guards.len())
        } else {
            self.map.try_read_many(&keys).map(|guards| guards.len())
        };
        assert_eq!(got, free.then_some(wants.len()));
    }

    fn batch(&mut self, mut random: Random) {
        #[derive(Clone, Copy, Debug)]
        enum Step {
            Insert(u64),
            Remove,
            UpdateIf(Version, u64),
            RemoveIf(Version),
            Check(Version),
            CheckAbsent,
        }
        let mut steps = vec![];
        let mut batch = self.map.batch();
        let mut wants = BTreeMap::new();
        for _ in 0..random.next(5) {
            let (key, n) = (random.next(KEYS), self.number());
            let versions: Vec<_> = self.seen.iter().filter(|(of, _)| *of == key).map(|(_, version)| *version).collect();
            let old = random.next(8) as usize;
            let version = versions.get(old).or(versions.last()).copied();
            let current = self.model.key(key).version.or(version);
            let (step, next) = match (random.next(8), if old < 2 { version } else { current }) {
                (0, _) => (Step::CheckAbsent, batch.check_absent(&key)),
                (1, _) => (Step::Remove, batch.remove(&key)),
                (2, Some(version)) => (Step::RemoveIf(version), batch.remove_if(&key, version)),
                (3, Some(version)) => (Step::Check(version), batch.check(&key, version)),
                (4 | 5, Some(version)) => {
                    (Step::UpdateIf(version, n), batch.update_if(&key, version, V::new(n, self.token)))
                }
                _ => (Step::Insert(n), batch.insert(&key, V::new(n, self.token))),
            };
            batch = next;
            let writes = !matches!(step, Step::Check(_) | Step::CheckAbsent);
            let want = wants.entry(key).or_insert(Read);
            if writes {
                *want = Write;
            }
            steps.push((key, step));
        }
        let Some(free) = self.all_are_free(&wants) else { return };
        let tries = random.next(2) == 0;
        if !free {
            if tries {
                assert!(matches!(batch.try_commit(), Err(TryBatchError::Busy(_))));
            } else {
                let mut commit = Box::pin(batch.commit());
                assert!(poll(&mut commit).is_pending());
            }
            return;
        }

        let mut model = self.model.clone();
        // For each key, whether the value in the model was stored by the batch itself.
        let mut own = BTreeMap::new();
        let conflict = steps.iter().position(|&(key, step)| {
            let at = model.key(key);
            let is_own = own.contains_key(&key);
            let is = |version| at.value.is_some() && !is_own && at.version == Some(version);
            let holds = match step {
                Step::Insert(_) | Step::Remove => true,
                Step::CheckAbsent => at.value.is_none(),
                Step::UpdateIf(version, _) | Step::RemoveIf(version) | Step::Check(version) => is(version),
            };
            if holds {
                match step {
                    Step::Insert(n) | Step::UpdateIf(_, n) => {
                        at.store(n);
                        own.insert(key, ());
                    }
                    Step::Remove | Step::RemoveIf(_) => _ = at.remove(),
                    Step::Check(_) | Step::CheckAbsent => {}
                }
            }
            !holds
        });
        let result = if tries {
            batch.try_commit().map_err(|error| match error {
                TryBatchError::Conflict(conflict) => conflict,
                TryBatchError::Busy(_) => panic!("the keys were free"),
            })
        } else if random.next(2) == 0 {
            batch.commit_blocking()
        } else {
            match poll(&mut Box::pin(batch.commit())) {
                Poll::Ready(result) => result,
                Poll::Pending => panic!("the keys were free"),
            }
        };
        match (result, conflict) {
            (Err(conflict), Some(step)) => {
                assert_eq!((*conflict.key(), conflict.step()), (steps[step].0, step));
                self.learn(steps[step].0, conflict.found());
            }
            (Ok(versions), None) => {
                assert_eq!(versions.len(), steps.len());
                for (&(key, step), returned) in steps.iter().zip(versions) {
                    let before = self.model.key(key);
                    match step {
                        Step::Insert(n) | Step::UpdateIf(_, n) => {
                            before.store(n);
                            let returned = returned.expect("the version of a stored value");
                            assert!(returned.get() >= before.floor);
                            before.floor = returned.get();
                            before.version = Some(returned);
                            self.seen.push((key, returned));
                        }
                        Step::Check(version) => assert_eq!(returned, Some(version)),
                        Step::CheckAbsent => assert_eq!(returned, None),
                        Step::Remove | Step::RemoveIf(_) => {
                            assert_eq!(returned, None);
                            before.remove();
                        }
                    }
                }
            }
            (result, conflict) => panic!("{steps:?}: {:?}, expected {conflict:?}", result.is_ok()),
        }
    }

    // ---- all values -----------------------------------------------------------------------------------------------

    /// Models a visit: a try on each key that has a value.
    fn visit(&mut self, want: Want) -> (Vec<u64>, usize) {
        self.visited = true;
        let (mut free, mut passed_over) = (vec![], 0);
        for key in 0..KEYS {
            let at = self.model.key(key);
            if at.value.is_none() {
                continue;
            }
            if at.lock.attempt(want) {
                at.lock.release(want, For::Anyone);
                free.push(key);
            } else {
                passed_over += 1;
            }
        }
        (free, passed_over)
    }

    fn for_each_value(&mut self) {
        let (free, expected) = self.visit(Read);
        let mut seen = BTreeMap::new();
        let passed_over =
            self.map.for_each_value(|key, value, version| assert!(seen.insert(*key, (value.n(), version)).is_none()));
        assert_eq!(passed_over, expected);
        for (key, (n, version)) in &seen {
            assert_eq!(self.model.key(*key).value, Some(*n));
            self.learn(*key, Some(*version));
        }
        // When the visited keys are released, a value that has not been visited may be evicted.
        for key in free {
            assert!(seen.contains_key(&key) || self.most.is_some() && !self.map.contains_key(&key));
        }
    }

    /// Returns whether the key has a value, or a writer that may have taken the value out.
    fn is_there(&self, key: u64) -> bool {
        let writes = |guard: &Guard<'m, V>| guard.want() == Write && guard.look().0 == key;
        let inits = |running: &Running<'m, V>| running.call.key == key && matches!(running.call.stage, Stage::Init(_));
        let has_value = self.model.keys[key as usize].value.is_some();
        has_value || self.guards.iter().any(writes) || self.running.iter().any(inits)
    }

    fn begin_walk(&mut self) {
        self.walks.push(Walking {
            walker: Walker::Rests(self.map.walk()),
            gives_up: Rc::default(),
            want: Read,
            waits: None,
            passed: vec![],
            there: (0..KEYS).map(|key| self.is_there(key)).collect(),
        });
    }

    /// Polls the current step of a walk, or begins one.
    fn walk_on(&mut self, at: usize, want: Want) {
        let Walking { walker, gives_up, want: wanted, .. } = &mut self.walks[at];
        if let Walker::Rests(walk) = walker {
            // The walk is replaced by another, which does nothing.
            let walk = std::mem::replace(walk, self.map.walk());
            gives_up.set(false);
            *wanted = want;
            *walker = Walker::Steps(step_of(walk, want, gives_up.clone()));
        }
        let Walker::Steps(step) = walker else { unreachable!() };
        match poll(step) {
            Poll::Pending => self.walk_waits(at),
            Poll::Ready((walk, outcome)) => {
                self.walks[at].walker = Walker::Rests(walk);
                self.walk_goes_on(at, outcome.expect("it was not given up"));
            }
        }
    }

    /// Follows a walk to the point where the model does not know what the walk finds next. Returns `Some(None)` if that
    /// point is reached, the key if the walk has acquired the one that it waited for, and `None` if it still waits.
    fn walked(&mut self, at: usize) -> Option<Option<u64>> {
        let walking = &mut self.walks[at];
        let Some((key, id)) = walking.waits else { return Some(None) };
        let at = &mut self.model.keys[key as usize];
        if !at.lock.poll(id, walking.want) {
            return None;
        }
        walking.waits = None;
        walking.passed.push(key);
        if at.value.is_some() {
            return Some(Some(key));
        }
        at.lock.release(walking.want, For::Anyone);
        Some(None)
    }

    /// Models a step that waits: for the same key as before, or for another key, which has one waiter more than in the
    /// model.
    fn walk_waits(&mut self, at: usize) {
        match self.walked(at) {
            None => return,
            Some(Some(key)) => panic!("the walk still waits, but {key} was free"),
            Some(None) => {}
        }
        let waiters = |status: keylatch::Status| status.waiters();
        let key = (0..KEYS).find(|&key| {
            let modelled = self.model.keys[key as usize].lock.seen().waiters.iter().sum();
            self.map.status(&key).map_or(0, waiters) > modelled
        });
        let key = key.expect("the walk waits for a key");
        let is_written = self.model.key(key).lock.seen().holders[2] > 0;
        // A value that has ended may still be there if a waiter has been handed its key, and has not run yet.
        let is_there = self.is_there(key) || is_written || self.clock.is_some();
        assert!(is_there, "the walk waits for a key without a value or a writer");
        assert!(!self.walks[at].passed.contains(&key), "the walk waits for a key that it has passed");
        self.model.last_id += 1;
        let id = self.model.last_id;
        let walking = &mut self.walks[at];
        assert!(!self.model.keys[key as usize].lock.poll(id, walking.want), "the walk waits for a free key");
        walking.waits = Some((key, id));
    }

    /// Models a step that found a key, or the end.
    fn walk_goes_on(&mut self, at: usize, next: Option<Guard<'m, V>>) {
        self.visited = true; // passing a key may have ended the last use of a value
        let waited = self.walked(at).expect("the step does not wait any more");
        let found = next.as_ref().map(|guard| guard.look().0);
        if let Some(key) = waited {
            assert_eq!(found, Some(key));
        } else if let Some(key) = found {
            assert!(!self.walks[at].passed.contains(&key), "key {key} was visited twice");
            self.model.last_id += 1;
            let (id, want) = (self.model.last_id, self.walks[at].want);
            assert!(self.model.key(key).lock.poll(id, want), "the walk did not wait for key {key}");
            assert!(self.model.key(key).value.is_some());
            self.walks[at].passed.push(key);
        } else {
            let Walking { passed, there, .. } = self.walks.swap_remove(at);
            for key in 0..KEYS {
                // When the walk released a key that had lost its value, another value may have been evicted.
                let is_evicted = self.model.key(key).value.is_some() && !self.map.contains_key(&key);
                let is_due = there[key as usize] && !is_evicted;
                assert!(!is_due || passed.contains(&key), "the value of key {key} was not visited");
            }
        }
        self.guards.extend(next);
    }

    /// Gives up the step in which a walk waits, unless that step is ready, or waits for another key by now.
    fn give_up_step(&mut self, at: usize) {
        let before = (self.walks.len(), self.walks[at].waits);
        if before.1.is_none() {
            return;
        }
        let want = self.walks[at].want;
        self.walk_on(at, want);
        if (self.walks.len(), self.walks.get(at).and_then(|walking| walking.waits)) != before {
            return;
        }
        let walking = &mut self.walks[at];
        let (Walker::Steps(step), Some((key, id))) = (&mut walking.walker, walking.waits.take()) else {
            unreachable!()
        };
        walking.gives_up.set(true);
        let Poll::Ready((walk, Err(()))) = poll(step) else { panic!("the step was not given up") };
        walking.walker = Walker::Rests(walk);
        self.model.key(key).lock.cancel(id, want);
    }

    fn drop_walk(&mut self, at: usize) {
        let Walking { walker, waits, want, .. } = self.walks.swap_remove(at);
        if let Some((key, id)) = waits {
            self.model.key(key).lock.cancel(id, want);
        }
        drop(walker);
    }

    fn retain(&mut self, which: u8) {
        let (free, expected) = self.visit(Write);
        let keeps = |n: u64| which > 0 && n % 3 != u64::from(which) % 3;
        for key in free {
            let at = self.model.key(key);
            if !keeps(at.value.unwrap()) {
                at.remove();
            }
        }
        let passed_over = if which == 0 { self.map.clear() } else { self.map.retain(|_, value| keeps(value.n())) };
        assert_eq!(passed_over, expected);
    }

    // ---- explicit eviction -----------------------------------------------------------------------------------------

    fn pop(&mut self) {
        let weighed = self.weighed;
        let is_free = |at: &Key| at.value.is_some() && !at.is_used() && at.unpolled == 0 && (!weighed || at.weight > 0);
        let any = self.most.is_some() && self.model.keys.iter().any(is_free);
        let popped = self.map.pop();
        assert_eq!(popped.is_some(), any);
        if let Some((key, value)) = popped {
            let at = self.model.key(key);
            assert!(is_free(at), "a value in use was popped");
            assert_eq!(at.remove(), Some(value.n()));
        }
    }

    /// Acquires the next value to evict. The guard is used and released like any other writer's.
    fn next_eviction(&mut self) {
        let weighed = self.weighed;
        let is_free = |at: &Key| at.value.is_some() && !at.is_used() && (!weighed || at.weight > 0);
        let any = self.most.is_some() && self.model.keys.iter().any(is_free);
        let next = self.map.try_next_eviction();
        assert_eq!(next.is_some(), any);
        if let Some(guard) = next {
            let at = self.model.key(*guard.key());
            assert!(is_free(at), "a value in use was chosen");
            assert!(at.lock.attempt(Write));
            self.guards.push(Guard::Write(guard));
        }
    }

    fn set_bound(&mut self, most: usize) {
        let (values, weight) = if self.weighed { (None, self.most) } else { (self.most, None) };
        assert_eq!(self.map.max_values(), values);
        assert_eq!(self.map.max_weight(), weight.map(|weight| weight as u64));
        match self.most {
            None => return,
            Some(_) if self.weighed => self.map.set_max_weight(most as u64),
            Some(_) => self.map.set_max_values(most),
        }
        self.most = Some(most);
        for key in 0..KEYS {
            let is_apart = self.is_too_heavy(self.model.keys[key as usize].weight);
            self.model.key(key).is_apart = is_apart;
        }
    }

    // ---- weights --------------------------------------------------------------------------------------------------

    /// Returns whether the value alone is heavier than all values may be.
    fn is_too_heavy(&self, weight: u64) -> bool {
        self.weighed && !self.by_hand && self.most.is_some_and(|most| weight > most as u64)
    }

    /// Compares the weight of all values with the model. `evicted` has the weights of the values that this step has
    /// evicted, except for those that were too heavy from the start.
    fn look_at_weights(&self, evicted: &[u64]) {
        let values = || self.model.keys.iter().filter(|key| key.value.is_some());
        let total: u64 = values().map(|key| key.weight).sum();
        assert_eq!(self.map.weight(), total);
        let Some(most) = self.most.filter(|_| self.weighed).map(|most| most as u64) else { return };
        assert_eq!(self.map.excess() as u64, total.saturating_sub(most));
        if self.by_hand {
            return;
        }
        let idle = || values().filter(|key| !key.is_used() && key.weight > 0);
        let ordinary: u64 = values().filter(|key| !key.is_apart).map(|key| key.weight).sum();
        assert!(idle().map(|key| key.weight).sum::<u64>() <= most);
        assert!(total <= most || values().any(Key::is_used), "a weight of {total}, and nothing in use; {most} at most");
        // A call that ends the use of a stored value evicts others down to the bound, but may keep that value.
        assert!(
            !self.settled || ordinary <= most || idle().count() <= 1,
            "{ordinary} is too much; the bound is {most}"
        );
        let needed = evicted.is_empty() || ordinary + evicted.iter().sum::<u64>() > most;
        assert!(needed || self.removes_later(), "a value was evicted without need");
    }

    // ---- time -----------------------------------------------------------------------------------------------------

    /// Returns whether a caller that has found the key's value holds the key.
    fn is_pinned(&self, key: u64) -> bool {
        let upgrades = |call: &Call| matches!(call.kind, Kind::Upgrade) || call.stage == Stage::Waits(Upgrade);
        self.guards.iter().any(|guard| guard.look().0 == key)
            || self.running.iter().any(|running| running.call.key == key && upgrades(&running.call))
    }

    /// Sets the times and the weights of the values whose writers have left, and ends the values whose time has passed.
    fn end_values(&mut self) {
        for key in 0..KEYS {
            let is_written = self.guards.iter().any(|guard| guard.look().0 == key && guard.want() == Write);
            let (now, is_pinned) = (self.model.now, self.is_pinned(key));
            let at = self.model.key(key);
            let Some(n) = at.value else { continue };
            if at.is_new && !is_written {
                (at.is_new, at.since) = (false, now);
                at.ends = span_of(n).map(|span| now + span);
                if self.weighed {
                    let is_apart = self.is_too_heavy(weight_of(n));
                    let at = self.model.key(key);
                    (at.weight, at.is_apart) = (weight_of(n), is_apart);
                }
            }
            let at = self.model.key(key);
            if self.clock.is_some() && at.ends.is_some_and(|ends| ends <= now) && !is_pinned {
                at.remove();
            }
        }
    }

    fn advance(&mut self, by: u64) {
        let Some(clock) = self.clock else { return };
        self.model.now += by;
        clock.advance(TICK * by as u32);
    }

    /// Disposes of the values that have ended, and checks that none of their entries is left.
    fn tick(&mut self) {
        self.end_values();
        self.map.tick();
        let entries = self.model.keys.iter().filter(|key| key.has_entry()).count();
        assert_eq!(self.map.entries(), entries);
    }

    // ---- all of it ------------------------------------------------------------------------------------------------

    fn step(&mut self, (what, key, a, b): Step) {
        (self.model.stored, self.model.begins_refresh) = (None, false);
        (self.settled, self.visited, self.was_too_full) = (false, false, self.map.excess() > 0);
        // If the same step comes several times in a row, it looks in the same manner each time.
        let mut random = Random(u64::from(what) << 24 | u64::from(a) << 16 | u64::from(b) << 8 | key | 1 << 40);
        self.manner = match random.next(8) {
            0 => Manner::Status,
            1 | 2 => Manner::Gets(1),
            3 => Manner::Gets(GETS_BEFORE_REST),
            _ => Manner::Leave,
        };
        let pick = |n: usize| (n > 0).then(|| usize::from(b) % n.max(1));
        let handle = pick(self.handles.len()).filter(|_| a >= 160);
        let want = Self::wants(a);
        match what {
            0..=2 => self.ask(key, want, handle),
            3..=5 => self.attempt(key, want, handle),
            6 => {
                let handle = match handle {
                    Some(at) => self.handles[at].clone(),
                    None => self.map.handle(&key),
                };
                self.model.key(*handle.key()).handles += 1;
                self.handles.push(handle);
            }
            7 => {
                let Some(at) = pick(self.handles.len()) else { return };
                let handle = self.handles.swap_remove(at);
                self.model.key(*handle.key()).handles -= 1;
                drop(handle);
            }
            8..=12 => {
                let kind = self.kind(key, a, b);
                if a < 128 {
                    self.call_blocking(key, kind);
                } else {
                    self.call(key, kind);
                }
            }
            13..=18 => {
                let Some(at) = pick(self.running.len()) else { return };
                self.poll(at);
            }
            19 => {
                let Some(at) = pick(self.running.len()) else { return };
                self.cancel(at);
            }
            20..=23 => {
                let Some(at) = pick(self.guards.len()) else { return };
                self.release(at, a % 4 == 0);
            }
            24..=26 => {
                let Some(at) = pick(self.guards.len()) else { return };
                self.write(at, a);
            }
            27 | 28 => {
                let Some(at) = pick(self.guards.len()) else { return };
                self.change(at, a);
            }
            29 | 30 => {
                self.batch(Random(u64::from(a) << 16 | u64::from(b) << 8 | key | 1 << 40));
            }
            31 => self.many([key, u64::from(a) % KEYS], b % 2 == 0),
            32 => self.for_each_value(),
            33 => self.next_eviction(),
            34 if self.by_hand => self.next_eviction(),
            34 | 35 => self.pop(),
            36 => self.set_bound(usize::from(a) % if self.weighed { 12 } else { 4 } + 1),
            37 if self.walks.len() < 2 => self.begin_walk(),
            37..=41 => {
                let Some(at) = pick(self.walks.len()) else { return };
                self.walk_on(at, if a % 2 == 0 { Read } else { Write });
            }
            42 => {
                let Some(at) = pick(self.walks.len()) else { return };
                if a % 2 == 0 { self.give_up_step(at) } else { self.drop_walk(at) }
            }
            43 | 44 => self.retain(if a % 2 == 0 { 0 } else { b }),
            45 | 46 => self.advance(u64::from(a) % 4),
            47 => self.tick(),
            48 if !self.ages => return,
            48 => {
                let refresh = Refresh { fresh_for: u64::from(b) / 15 % 4, of: 0 };
                let kind = Kind::GetOrInsert(self.number(), b % 3, b % 5 == 0, Some(refresh));
                if a < 128 { self.call_blocking(key, kind) } else { self.call(key, kind) }
            }
            KINDS.. => unreachable!("steps are drawn below `KINDS`"),
        }
        self.look();
    }

    /// Returns whether this step may have evicted values to make room, and then removed or ended others. In that case
    /// fewer values may be left than the bound allows.
    fn removes_later(&self) -> bool {
        self.visited || self.model.begins_refresh && self.was_too_full
    }

    /// Compares the whole map with the model.
    fn look(&mut self) {
        self.end_values();
        let (mut evicted, mut weights) = (0, vec![]);
        for key in 0..KEYS {
            let is_too_heavy = self.is_too_heavy(self.model.keys[key as usize].weight);
            let weighed = self.weighed;
            let (stored, at) = (self.model.stored, self.model.key(key));
            let there = self.map.contains_key(&key);
            if at.value.is_some() && !there {
                assert!(self.most.is_some() && !self.by_hand, "a value was lost");
                assert!(!at.is_used(), "a value was evicted while in use");
                assert!(stored != Some(key) || is_too_heavy, "the value just stored was evicted");
                assert!(!weighed || at.weight > 0, "a value that weighs nothing was evicted");
                evicted += 1;
                weights.extend((!at.is_apart).then_some(at.weight));
                at.remove();
            }
            assert!(!there || at.is_used() || !is_too_heavy, "a value is too heavy");
            at.is_apart &= at.is_used();
            assert_eq!(there, at.value.is_some());
            let (since, is_new) = (at.since, at.is_new);
            if self.ages && !is_new {
                let age = there.then(|| TICK * (self.model.now - since) as u32);
                assert_eq!(self.map.age(&key), age);
            }
            let at = self.model.key(key);
            match self.manner {
                Manner::Gets(times) if self.rests && !at.is_used() => {
                    let expected = at.value;
                    for _ in 0..times {
                        let seen = self.map.get_versioned_blocking(&key);
                        assert_eq!(seen.as_ref().map(|(value, _)| value.n()), expected);
                        self.learn(key, seen.map(|(_, version)| version));
                    }
                }
                Manner::Leave if self.rests && !at.is_used() => {}
                _ => {
                    assert_eq!(self.map.status(&key).map(Seen::from).unwrap_or_default(), at.lock.seen());
                    assert_eq!(self.map.is_locked(&key), at.lock.holds != Holds::default());
                }
            }
        }
        for key in 0..KEYS {
            let is_there = self.is_there(key);
            self.walks.iter_mut().for_each(|walking| walking.there[key as usize] &= is_there);
        }
        let keys = &self.model.keys;
        let len = keys.iter().filter(|key| key.value.is_some()).count();
        assert_eq!(self.map.len(), len);
        // Values that have ended may still be in memory.
        let entries = keys.iter().filter(|key| key.has_entry()).count();
        assert!(self.map.entries() == entries || self.clock.is_some() && self.map.entries() > entries);
        self.look_at_weights(&weights);
        if !self.weighed {
            assert_eq!(self.map.excess(), len.saturating_sub(self.most.unwrap_or(len)));
        }
        if let Some(most) = self.most.filter(|_| !self.by_hand && !self.weighed) {
            let idle = keys.iter().filter(|key| key.value.is_some() && !key.is_used()).count();
            let used = len - idle;
            assert!(idle <= most && (used > 0 || len <= most), "{len} values, {used} of them in use; {most} at most");
            // A call that ends the use of a stored value evicts others down to the bound, but may keep that value.
            assert!(
                !self.settled || len <= most || idle <= 1,
                "{idle} of {len} values could be evicted; the bound is {most}"
            );
            let needed = evicted == 0 || len + evicted > most;
            assert!(needed || self.removes_later(), "a value was evicted without need");
        }
        for at in 0..self.guards.len() {
            let (key, value, version) = self.guards[at].look();
            assert_eq!(value, self.model.key(key).value);
            self.learn(key, version);
        }
    }

    /// Drops all guards, futures, handles and walks one after another.
    fn end(&mut self, mut random: Random) {
        loop {
            (self.model.stored, self.model.begins_refresh, self.settled, self.visited) = (None, false, false, false);
            let (guards, running, handles) = (self.guards.len(), self.running.len(), self.handles.len());
            let all = guards + running + handles + self.walks.len();
            if all == 0 {
                break;
            }
            let at = random.next(all as u64) as usize;
            if at < guards {
                self.release(at, random.next(3) == 0);
            } else if at < guards + running {
                self.cancel(at - guards);
            } else if at >= guards + running + handles {
                self.drop_walk(at - guards - running - handles);
            } else {
                let handle = self.handles.swap_remove(at - guards - running);
                self.model.key(*handle.key()).handles -= 1;
                drop(handle);
            }
            self.look();
        }
        self.map.tick();
        assert_eq!(self.map.entries(), self.map.len());
        let size = if self.weighed { self.map.weight() as usize } else { self.map.len() };
        assert!(self.by_hand || self.most.is_none_or(|most| size <= most));
    }
}

/// Makes the future of a walk's next step.
fn step_of<'m, V: 'm>(
    mut walk: Walk<'m, u64, V, Fixed>,
    want: Want,
    gives_up: Rc<Cell<bool>>,
) -> Pin<Box<dyn Future<Output = Stepped<'m, V>> + 'm>> {
    Box::pin(async move {
        let limit = poll_fn(|_| if gives_up.get() { Poll::Ready(()) } else { Poll::Pending });
        let next = match want {
            Write => walk.next_write().until(limit).await.map(|next| next.map(Guard::Write)),
            _ => walk.next_read().until(limit).await.map(|next| next.map(Guard::Read)),
        };
        (walk, next)
    })
}

fn box_up<'m, G, V: 'm>(
    future: impl Future<Output = G> + 'm,
    guard: impl FnOnce(G) -> Guard<'m, V> + 'm,
) -> Pin<Box<dyn Future<Output = Outcome<Guard<'m, V>>> + 'm>> {
    Box::pin(async move { Outcome::Guard(guard(future.await)) })
}

type Step = (u8, u64, u8, u8);

/// Returns the weight of a value, in a map that weighs values.
fn weight_of(n: u64) -> u64 {
    n * 5 % 7
}

/// One unit of the model's time.
const TICK: Duration = Duration::from_millis(1);

/// Returns the time after which a value ends, in a map whose values end.
fn span_of(n: u64) -> Option<u64> {
    (n % 5).checked_sub(1)
}

#[derive(Clone, Copy)]
struct Setting {
    fairness: Fairness,
    most: Option<usize>,
    by_hand: bool,
    /// Whether values end.
    timed: bool,
    /// Whether the ages of values are recorded, too.
    ages: bool,
    /// Whether the bound is on the weight of values.
    weighed: bool,
    /// Whether values that nobody uses are looked at so that they may rest.
    rests: bool,
}

fn run<V: Value>(fairness: Fairness, most: Option<usize>, by_hand: bool, steps: &[Step]) {
    run_with::<V>(Setting { fairness, most, by_hand, timed: false, ages: false, weighed: false, rests: false }, steps);
}

fn run_with<V: Value>(setting: Setting, steps: &[Step]) {
    let Setting { fairness, most, by_hand, timed, ages, weighed, .. } = setting;
    let (token, clock) = (Arc::new(()), Arc::new(ManualClock::new()));
    let mut builder = LockMap::builder().fairness(fairness).shards(1).pool_capacity(1).hasher(Fixed::default());
    if timed {
        builder = builder.clock(Arc::clone(&clock)).expire_with(|_, value: &V| Some(TICK * span_of(value.n())? as u32));
    }
    if ages {
        builder = builder.record_ages();
    }
    builder = match most {
        Some(most) if weighed => builder.max_weight(most as u64, |_, value: &V| weight_of(value.n()) as u32),
        Some(most) => builder.max_values(most),
        None => builder,
    };
    let map: Map<V> = if by_hand { builder.evict_by_hand() } else { builder }.build();
    let mut world = World::new(&map, setting, timed.then_some(&*clock), &token);
    for &step in steps {
        world.step(step);
    }
    world.end(Random(steps.len() as u64 + 1));
    let left = std::mem::take(&mut world.model.keys);
    drop(world);
    let mut values: Vec<_> = map.into_iter().map(|(key, value)| (key, value.n())).collect();
    values.sort_unstable();
    let left: Vec<_> = (0..).zip(left).filter_map(|(key, at)| Some((key, at.value?))).collect();
    assert_eq!(values, left);
    assert_eq!(Arc::strong_count(&token), 1, "a value was leaked or dropped twice");
}

fn policy() -> impl Strategy<Value = Fairness> {
    use Fairness::{Adaptive, Barging, Bounded, Fifo};
    prop_oneof![Just(Adaptive), Just(Bounded(0)), Just(Bounded(2)), Just(Fifo), Just(Barging)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..KINDS, 0..KEYS, any::<u8>(), any::<u8>()), 1..150)
}

/// Returns steps of which many refresh values, and many use the same values meanwhile.
fn refreshing_steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        4 => Just(48_u8),    // refresh
        4 => 13..=18_u8,     // poll
        2 => 8..=12_u8,      // other calls
        2 => 20..=26_u8,     // use and release guards
        1 => 45..=46_u8,     // time passes
        2 => 0..KINDS,
    ];
    prop::collection::vec((kind, 0..2_u64, any::<u8>(), any::<u8>()), 1..150)
}

/// Returns steps of which many use a value without a hold, a few times in a row, and many end the use of a key.
fn resting_steps() -> impl Strategy<Value = Vec<Step>> {
    let any_key = || (0..KEYS, any::<u8>());
    let repeated = (any_key(), prop::sample::select(&[0_u8, 10, 8][..]), 1..6_usize); // gets, and an insertion
    let once = (any_key(), prop::sample::select(&[2_u8, 8, 9, 11][..])); // also a removal, and a peek
    let block = prop_oneof![
        4 => repeated.prop_map(|((key, b), a, times)| vec![(8, key, a, b); times]),
        2 => once.prop_map(|((key, b), a)| vec![(8, key, a, b)]),
        3 => (prop_oneof![20..=23_u8, Just(7_u8), Just(19_u8)], 0..KEYS, any::<u8>(), any::<u8>()).prop_map(|step| vec![step]),
        4 => (0..KINDS, 0..KEYS, any::<u8>(), any::<u8>()).prop_map(|step| vec![step]),
    ];
    prop::collection::vec(block, 1..60).prop_map(|blocks| blocks.concat())
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("KEYLATCH_CASES").map_or(2000, |cases| cases.parse().unwrap());
    ProptestConfig { cases: if cfg!(miri) { 4 } else { cases }, failure_persistence: None, ..ProptestConfig::default() }
}

/// A value that comes to rest releases its entry, and so raises the version after which later entries begin.
#[test]
fn values_that_may_rest_do_after_enough_gets() {
    let map: Map<u64> = LockMap::builder().shards(1).pool_capacity(1).hasher(Fixed::default()).build();
    (0..2).for_each(|key| assert_eq!(map.insert_blocking(&key, 0), None));
    *map.write_blocking(&1).value_mut().unwrap() += 1;
    let (_, version) = map.get_versioned_blocking(&1).unwrap();
    (0..GETS_BEFORE_REST).for_each(|_| assert_eq!(map.get_blocking(&1), Some(1)));
    map.insert_blocking(&2, 0);
    assert!(map.get_versioned_blocking(&2).unwrap().1 > version);
}

/// The walk waits for key 1, whose writer leaves no value. The walk releases that key, and so evicts the value of key
/// 0.
#[test]
fn a_walk_that_gives_up_a_key_may_evict_a_value_that_it_has_not_visited() {
    let steps = [
        (13, 0, 0, 0),
        (7, 0, 0, 0),
        (0, 1, 159, 0),
        (0, 0, 11, 0),
        (13, 0, 0, 103),
        (13, 0, 0, 0),
        (24, 0, 68, 50),
        (20, 0, 0, 14),
        (0, 0, 0, 0),
        (37, 0, 0, 0),
        (13, 0, 0, 0),
        (38, 0, 188, 0),
        (6, 1, 0, 0),
        (8, 2, 59, 6),
        (27, 0, 35, 42),
        (20, 0, 0, 16),
        (38, 0, 0, 0),
    ];
    run::<u64>(Fairness::Adaptive, Some(1), false, &steps);
}

/// The value of key 2 has ended when all values are visited. The visit must not pass the writer that waits for the key.
#[test]
fn a_visit_does_not_lock_the_key_of_a_value_that_has_ended() {
    let mut steps = vec![(3, 0, 0, 0), (8, 0, 0, 0), (6, 2, 0, 0), (20, 0, 0, 0), (3, 0, 0, 0), (13, 0, 0, 0)];
    steps.extend([(20, 0, 0, 0), (0, 0, 160, 0), (8, 0, 0, 0), (0, 2, 27, 0), (13, 0, 0, 126), (8, 0, 0, 0)]);
    steps.extend([(8, 0, 19, 0), (13, 0, 0, 0), (8, 0, 0, 0), (20, 0, 0, 0), (20, 0, 0, 0), (8, 0, 0, 0)]);
    steps.extend([(20, 0, 0, 0), (0, 0, 0, 0), (8, 2, 75, 0), (45, 0, 1, 0), (32, 0, 0, 0)]);
    let setting = Setting {
        fairness: Fairness::Bounded(2),
        most: Some(1),
        by_hand: false,
        timed: true,
        ages: false,
        weighed: false,
        rests: false,
    };
    run_with::<Owned>(setting, &steps);
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn values_that_own_nothing(fairness in policy(), steps in steps()) {
        run::<u64>(fairness, None, false, &steps);
    }

    #[test]
    fn values_that_own_memory(fairness in policy(), steps in steps()) {
        run::<Owned>(fairness, None, false, &steps);
    }

    #[test]
    fn values_that_rest(fairness in policy(), steps in resting_steps()) {
        let setting =
            Setting { fairness, most: None, by_hand: false, timed: false, ages: false, weighed: false, rests: true };
        run_with::<u64>(setting, &steps);
    }

    #[test]
    fn a_bounded_number_of_values(fairness in policy(), most in 1..4_usize, steps in steps()) {
        run::<u64>(fairness, Some(most), false, &steps);
    }

    #[test]
    fn a_bounded_number_of_values_that_own_memory(fairness in policy(), most in 1..4_usize, steps in steps()) {
        run::<Owned>(fairness, Some(most), false, &steps);
    }

    #[test]
    fn values_that_are_evicted_by_hand(fairness in policy(), most in 1..4_usize, steps in steps()) {
        run::<Owned>(fairness, Some(most), true, &steps);
    }

    #[test]
    fn values_that_end(fairness in policy(), ages in any::<bool>(), steps in steps()) {
        run_with::<u64>(Setting { fairness, most: None, by_hand: false, timed: true, ages, weighed: false, rests: false }, &steps);
    }

    #[test]
    fn values_that_end_and_own_memory(fairness in policy(), ages in any::<bool>(), steps in steps()) {
        run_with::<Owned>(Setting { fairness, most: None, by_hand: false, timed: true, ages, weighed: false, rests: false }, &steps);
    }

    #[test]
    fn a_bounded_number_of_values_that_end(
        fairness in policy(), most in 1..4_usize, by_hand in any::<bool>(), ages in any::<bool>(),
        steps in steps(),
    ) {
        run_with::<Owned>(Setting { fairness, most: Some(most), by_hand, timed: true, ages, weighed: false, rests: false }, &steps);
    }

    #[test]
    fn values_that_are_refreshed(fairness in policy(), steps in refreshing_steps()) {
        run_with::<u64>(
            Setting { fairness, most: None, by_hand: false, timed: true, ages: true, weighed: false, rests: false },
            &steps,
        );
    }

    #[test]
    fn a_bounded_number_of_values_that_are_refreshed(
        fairness in policy(), most in 1..3_usize, steps in refreshing_steps(),
    ) {
        run_with::<Owned>(
            Setting { fairness, most: Some(most), by_hand: false, timed: true, ages: true, weighed: false, rests: false },
            &steps,
        );
    }

    #[test]
    fn values_that_are_weighed(fairness in policy(), most in 1..12_usize, steps in steps()) {
        run_with::<u64>(Setting { fairness, most: Some(most), by_hand: false, timed: false, ages: false, weighed: true, rests: false }, &steps);
    }

    #[test]
    fn values_that_are_weighed_and_own_memory(
        fairness in policy(), most in 1..12_usize, by_hand in any::<bool>(), timed in any::<bool>(),
        ages in any::<bool>(), steps in steps(),
    ) {
        run_with::<Owned>(Setting { fairness, most: Some(most), by_hand, timed, ages: timed && ages, weighed: true, rests: false }, &steps);
    }
}
