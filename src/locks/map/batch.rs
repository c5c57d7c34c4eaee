use alloc::vec::Vec;
use core::fmt;
use core::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use hashbrown::HashTable;

use super::LockMap;
use super::version::{Version, reason};
use crate::acquire::many::Calls;
use crate::builder::DefaultHashBuilder;
use crate::core::{Key, Tag};
use crate::guard::Released;
use crate::guards::{Guards, ReadWriteGuards};
use crate::key::ToKey;
use crate::mode::{Exclusive, ReadOrWrite};
use crate::panics::Panics;
use crate::plumbing::{TablePtr, TableRef};

/// Several changes of a [`LockMap`] that are made together, or not at all.
///
/// A batch collects steps, and locks nothing before it is committed. The commit locks all keys, in the map's own order,
/// so batches and the calls with `_many` in their names never wait for each other in a cycle. A key that is only
/// checked is locked for reading. Then the commit checks the conditions, in the order in which the steps were added,
/// and makes the changes only if all conditions hold. A condition sees the effect of the steps before it on its key.
///
/// Each kind of step has two methods: one for a chain of calls, such as [`insert`](Batch::insert), and one for a batch
/// in a variable, such as [`push_insert`](Batch::push_insert).
///
/// A caller that locks several keys with [`read_many`](LockMap::read_many) sees all of a batch or nothing of it.
///
/// # Examples
/// Changing a whole group of values, with a retry after a conflict:
/// ```
/// use keylatch::LockMap;
///
/// let prices: LockMap<String, (&str, u32)> =
///     [("apple", ("fruit", 3)), ("leek", ("vegetable", 2)), ("pear", ("fruit", 4))]
///         .map(|(name, price)| (name.to_string(), price))
///         .into_iter()
///         .collect();
/// loop {
///     let mut seen = Vec::new();
///     let skipped = prices.for_each_value(|name, &(group, price), version| {
///         if group == "fruit" {
///             seen.push((name.clone(), price, version));
///         }
///     });
///     if skipped > 0 {
///         // A value that is being written may be fruit. (A task should yield here: the writer may share its thread.)
///         continue;
///     }
///     let mut batch = prices.batch();
///     for (name, price, version) in &seen {
///         batch.push_update_if(name, *version, ("fruit", price + 1));
///     }
///     match batch.commit_blocking() {
///         Ok(versions) => break assert_eq!(versions.len(), 2),
///         Err(conflict) => println!("{} was changed in between", conflict.key()),
///     }
/// }
/// assert_eq!(prices.get_blocking("pear"), Some(("fruit", 5)));
/// ```
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch<'a, K, V, S = DefaultHashBuilder> {
    map: &'a LockMap<K, V, S>,
    steps: Vec<Step<K, V>>,
}

struct Step<K, V> {
    key: K,
    tag: Tag,
    change: Change<V>,
}

enum Change<V> {
    Insert(V),
    Remove,
    UpdateIf(Version, V),
    RemoveIf(Version),
    Check(Version),
    CheckAbsent,
}

/// The keys of a batch, each once.
struct Plan {
    keys: Vec<Planned>,
    /// The index of each step's key in `keys`.
    of_steps: Vec<usize>,
}

struct Planned {
    /// The index of the first step with this key.
    step: usize,
    writes: bool,
}

/// The effect on a key of the steps that have been executed so far.
#[derive(Clone, Copy)]
struct Draft {
    /// The index of the key's guard, among those of the writers or of the readers.
    guard: usize,
    before: Option<u64>,
    now: Option<u64>,
    /// The version of the key's last value, even if that value has been removed.
    last: u64,
    /// The step whose value the key has now; `None` if it has no value, or still the one from before the batch.
    value: Option<usize>,
}

impl<K, V, S> LockMap<K, V, S> {
    /// Starts a batch of changes that are made together, or not at all.
    ///
    /// # Examples
    /// ```
    /// let map = keylatch::LockMap::<String, u32>::new();
    /// let versions = map.batch().insert("a", 1).check_absent("b").insert("c", 3).commit_blocking().unwrap();
    /// assert_eq!((map.len(), versions.len()), (2, 3));
    /// ```
    pub fn batch(&self) -> Batch<'_, K, V, S> {
        Batch { map: self, steps: Vec::new() }
    }
}

macro_rules! steps {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident, $push:ident($($argument:ident: $Argument:ty),*) = $change:expr,
        example = $example:literal, $pushed:literal;
    )+) => {$(
        $(#[doc = $doc])+
        ///
        /// This call hashes and copies the key.
        ///
        /// # Examples
        /// ```
        /// let map = keylatch::LockMap::<String, u32>::new();
        /// map.insert_blocking("a", 1);
        /// let seen = map.read_blocking("a").version().unwrap();
        #[doc = $example]
        /// ```
        pub fn $name<Q>(mut self, key: &Q $(, $argument: $Argument)*) -> Self
        where
            Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
        {
            self.$push(key $(, $argument)*);
            self
        }

        $(#[doc = $doc])+
        ///
        #[doc = concat!("The same as [`", stringify!($name), "`](Self::", stringify!($name), "), on a batch in a variable, as a loop needs it.")]
        /// This call hashes and copies the key; if that panics, the batch is unchanged.
        ///
        /// # Examples
        /// ```
        /// let map = keylatch::LockMap::<String, u32>::new();
        /// map.insert_blocking("a", 1);
        /// let seen = map.read_blocking("a").version().unwrap();
        /// let mut batch = map.batch();
        #[doc = $pushed]
        /// assert_eq!(batch.commit_blocking().unwrap().len(), 1);
        /// ```
        pub fn $push<Q>(&mut self, key: &Q $(, $argument: $Argument)*)
        where
            Q: ?Sized + Hash + Equivalent<K> + ToKey<K>,
        {
            let tag = self.map.key(key).tag();
            self.steps.push(Step { key: key.to_key(), tag, change: $change });
        }
    )+};
}

impl<'a, K: Eq + Hash, V, S: BuildHasher> Batch<'a, K, V, S> {
    steps! {
        /// Adds a step that stores a value, whether or not the key has one.
        insert, push_insert(value: V) = Change::Insert(value),
        example = "assert!(map.batch().insert(\"a\", 2).commit_blocking().unwrap()[0] > Some(seen));",
        "batch.push_insert(\"a\", 2);";

        /// Adds a step that removes the value, if there is one.
        remove, push_remove() = Change::Remove,
        example = "assert_eq!(map.batch().remove(\"a\").commit_blocking().unwrap(), [None]);",
        "batch.push_remove(\"a\");";

        /// Adds a step that stores a value, on condition that the key's value has this version.
        update_if, push_update_if(version: Version, value: V) = Change::UpdateIf(version, value),
        example = "assert!(map.batch().update_if(\"a\", seen, 2).commit_blocking().is_ok());",
        "batch.push_update_if(\"a\", seen, 2);";

        /// Adds a step that removes the value, on condition that it has this version.
        remove_if, push_remove_if(version: Version) = Change::RemoveIf(version),
        example = "assert!(map.batch().remove_if(\"a\", seen).commit_blocking().is_ok());",
        "batch.push_remove_if(\"a\", seen);";

        /// Adds the condition that the key's value has this version.
        check, push_check(version: Version) = Change::Check(version),
        example = "assert!(map.batch().check(\"a\", seen).insert(\"b\", 2).commit_blocking().is_ok());",
        "batch.push_check(\"a\", seen);";

        /// Adds the condition that the key has no value.
        check_absent, push_check_absent() = Change::CheckAbsent,
        example = "assert!(map.batch().check_absent(\"a\").insert(\"b\", 2).commit_blocking().is_err());",
        "batch.push_check_absent(\"b\");";
    }

    /// Makes all changes, or none.
    ///
    /// The output has one item for each step, in the order in which the steps were added: the version of the stored
    /// value, the version that was checked, or `None` for a removal or a [`check_absent`](Batch::check_absent). If a
    /// later step of the batch overwrites or removes a value, no reader ever sees that value, and its version is not
    /// used again.
    ///
    /// While the future waits for a key, it holds the keys that precede it in the map's order, so it must be polled or
    /// dropped.
    ///
    /// # Errors
    /// Returns the first condition that did not hold. In that case nothing has changed.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment. If it had not finished, it has changed nothing.
    ///
    /// # Panics
    /// Panics as [`LockMap`](LockMap#panics) does, and if the keys' `Eq` is inconsistent. Nothing has changed then,
    /// unless the panic came after the changes: from a waker, from the map's clock or one of its functions, or from the
    /// drop of a key or a value.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let map = keylatch::LockMap::<String, u32>::new();
    /// assert_eq!(map.batch().insert("a", 1).remove("b").commit().await.unwrap().len(), 2);
    /// # });
    /// ```
    pub async fn commit(self) -> Result<Vec<Option<Version>>, BatchConflict<K>>
    where
        K: ToKey<K>,
    {
        let plan = self.plan();
        let future = self.calls(&plan).future();
        let guards = future.await;
        self.apply(plan, guards)
    }

    /// Makes all changes, or none, and blocks the thread while it waits.
    ///
    /// See [`commit`](Batch::commit).
    ///
    /// # Errors
    /// Returns the first condition that did not hold. In that case nothing has changed.
    ///
    /// # Blocking
    /// See [`LockMap::write_many_blocking`].
    ///
    /// # Panics
    /// Panics as [`commit`](Batch::commit) does.
    ///
    /// # Examples
    /// ```
    /// let map = keylatch::LockMap::<String, u32>::new();
    /// let conflict = map.batch().insert("a", 1).check_absent("a").commit_blocking().unwrap_err();
    /// assert_eq!((conflict.key().as_str(), conflict.step(), conflict.found()), ("a", 1, None));
    /// assert!(map.is_empty());
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn commit_blocking(self) -> Result<Vec<Option<Version>>, BatchConflict<K>>
    where
        K: ToKey<K>,
    {
        let plan = self.plan();
        let guards = self.calls(&plan).blocking();
        self.apply(plan, guards)
    }

    /// Makes all changes, or none, if all keys can be locked without waiting.
    ///
    /// # Errors
    /// Returns the unchanged batch if a key cannot be locked without waiting, or the first condition that did not hold.
    /// In both cases nothing has changed.
    ///
    /// # Panics
    /// Panics as [`commit`](Batch::commit) does.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{LockMap, TryBatchError};
    ///
    /// let map = LockMap::<String, u32>::new();
    /// let reader = map.try_read("a").unwrap();
    /// let Err(TryBatchError::Busy(batch)) = map.batch().insert("a", 1).try_commit() else { panic!() };
    /// drop(reader);
    /// assert!(batch.try_commit().is_ok());
    /// ```
    pub fn try_commit(self) -> Result<Vec<Option<Version>>, TryBatchError<'a, K, V, S>>
    where
        K: ToKey<K>,
    {
        let plan = self.plan();
        match self.calls(&plan).attempt() {
            Some(guards) => self.apply(plan, guards).map_err(TryBatchError::Conflict),
            None => Err(TryBatchError::Busy(self)),
        }
    }

    /// Finds the distinct keys of the steps.
    fn plan(&self) -> Plan {
        let mut places = HashTable::<usize>::new();
        let mut keys = Vec::<Planned>::new();
        let of_steps = self.steps.iter().enumerate().map(|(number, step)| {
            let is_it = |&place: &usize| {
                let other = &self.steps[keys[place].step];
                other.tag == step.tag && other.key == step.key
            };
            let hash = |tag: Tag| tag.bucket_hash();
            let place = places.find(hash(step.tag), is_it).copied().unwrap_or_else(|| {
                let new = keys.len();
                keys.push(Planned { step: number, writes: false });
                places.insert_unique(hash(step.tag), new, |&place| hash(self.steps[keys[place].step].tag));
                new
            });
            keys[place].writes |= !matches!(step.change, Change::Check(_) | Change::CheckAbsent);
            place
        });
        let of_steps = of_steps.collect();
        Plan { keys, of_steps }
    }

    #[allow(clippy::type_complexity)]
    fn calls<'s>(
        &'s self,
        plan: &'s Plan,
    ) -> Calls<TableRef<'a, LockMap<K, V, S>>, impl Iterator<Item = (Key<'s, K>, ReadOrWrite)> + use<'s, 'a, K, V, S>>
    where
        K: ToKey<K>,
    {
        let wanted = plan.keys.iter().map(|planned| {
            let step = &self.steps[planned.step];
            (Key::tagged(step.tag, &step.key), ReadOrWrite { writes: planned.writes })
        });
        Calls::new(TableRef::new(self.map), wanted)
    }

    /// Checks the conditions and makes the changes, with all keys held.
    fn apply(
        mut self,
        plan: Plan,
        guards: ReadWriteGuards<TableRef<'a, LockMap<K, V, S>>>,
    ) -> Result<Vec<Option<Version>>, BatchConflict<K>> {
        let mut held = Held(guards);
        let Held((reads, writes)) = &mut held;
        assert!(
            reads.len() + writes.len() == plan.keys.len(),
            "keylatch: the keys' `Eq` is inconsistent: it found two keys of the batch both equal and different"
        );
        let (mut readers, mut writers) = (0..reads.len(), 0..writes.len());
        let draft = |planned: &Planned| {
            let (guard, live) = if planned.writes {
                let guard = writers.next().unwrap_or_default();
                (guard, writes.as_slice()[guard].live())
            } else {
                let guard = readers.next().unwrap_or_default();
                (guard, reads.as_slice()[guard].live())
            };
            let before = live.version();
            Draft { guard, before, now: before, last: live.last_version(), value: None }
        };
        let mut drafts: Vec<Draft> = plan.keys.iter().map(draft).collect();

        let mut versions = Vec::with_capacity(self.steps.len());
        let mut steps = self.steps.iter().zip(&plan.of_steps).enumerate();
        let conflict = steps.find_map(|(number, (step, &key))| {
            let draft = &mut drafts[key];
            let holds = match step.change {
                Change::UpdateIf(version, _) | Change::RemoveIf(version) | Change::Check(version) => {
                    draft.now == Some(version.get())
                }
                Change::CheckAbsent => draft.now.is_none(),
                Change::Insert(_) | Change::Remove => true,
            };
            match step.change {
                _ if !holds => return Some((number, draft.before)),
                Change::Insert(_) | Change::UpdateIf(..) => {
                    draft.last += 1;
                    (draft.now, draft.value) = (Some(draft.last), Some(number));
                }
                Change::Remove | Change::RemoveIf(_) => (draft.now, draft.value) = (None, None),
                Change::Check(_) | Change::CheckAbsent => {}
            }
            versions.push(draft.now.map(Version::new));
            None
        });
        if let Some((step, found)) = conflict {
            let Step { key, change, .. } = self.steps.swap_remove(step);
            self.end(held, change.into_value());
            return Err(BatchConflict { key, step, found: found.map(Version::new) });
        }

        let old = self.change(&plan, &drafts, writes);
        self.end(held, old);
        Ok(versions)
    }

    /// Makes the changes, and returns the old values.
    fn change(&mut self, plan: &Plan, drafts: &[Draft], writes: &mut Writes<'a, K, V, S>) -> Vec<V> {
        // Everything that may panic is done before the first change.
        let (map, mut rooms) = (self.map, Vec::new());
        if map.core.has_records() {
            rooms.reserve_exact(drafts.len());
            for draft in drafts {
                rooms.push(if draft.before.is_none() && draft.value.is_some() {
                    let (_, hold) = writes.as_mut_slice()[draft.guard].parts();
                    map.core.make_room(hold)
                } else {
                    None
                });
            }
        }
        let mut rooms = rooms.into_iter();

        let mut old = Vec::with_capacity(plan.keys.len());
        for (draft, planned) in drafts.iter().zip(&plan.keys) {
            let room = rooms.next().flatten();
            if !planned.writes {
                continue;
            }
            let (core, hold) = writes.as_mut_slice()[draft.guard].parts();
            let used = draft.last - hold.live().last_version();
            let value = draft.value.and_then(|step| self.steps[step].change.take().into_value());
            match value {
                Some(value) => old.extend(core.insert_after(hold, value, used, room)),
                None => {
                    core.skip_versions(hold, used);
                    if draft.now.is_none() {
                        old.extend(core.remove(hold));
                    }
                }
            }
        }
        old
    }

    /// Releases the keys, and then drops the values and the steps, with no lock held. It drops all of them even if some
    /// drops panic. This happens before the result exists, because a panic would leak the result.
    fn end(self, held: Held<TableRef<'a, LockMap<K, V, S>>>, values: impl IntoIterator<Item = V>) {
        let mut panics = Panics::default();
        panics.run(|| drop(held));
        values.into_iter().for_each(|value| panics.run(|| drop(value)));
        for Step { key, change, .. } in self.steps {
            panics.run(|| drop(change));
            panics.run(|| drop(key));
        }
        panics.resume();
    }
}

/// The guards of the keys that a batch changes.
type Writes<'a, K, V, S> = Guards<TableRef<'a, LockMap<K, V, S>>, Exclusive>;

/// The keys of a batch, which are released together: the checked keys and the written ones.
struct Held<P: TablePtr>(ReadWriteGuards<P>);

impl<P: TablePtr> Drop for Held<P> {
    fn drop(&mut self) {
        let Held((reads, writes)) = self;
        let mut released = Released::default();
        released.release(writes.take_all());
        released.release(reads.take_all());
    }
}

impl<V> Change<V> {
    fn take(&mut self) -> Self {
        core::mem::replace(self, Change::Remove)
    }

    /// Returns the value to store.
    fn into_value(self) -> Option<V> {
        match self {
            Change::Insert(value) | Change::UpdateIf(_, value) => Some(value),
            _ => None,
        }
    }
}

impl<K, V, S> fmt::Debug for Batch<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("steps", &self.steps.len()).finish_non_exhaustive()
    }
}

/// The error of a [`Batch`] that changed nothing because one of its conditions did not hold.
///
/// # Examples
/// See [`Batch::commit_blocking`].
pub struct BatchConflict<K> {
    key: K,
    step: usize,
    found: Option<Version>,
}

impl<K> BatchConflict<K> {
    /// Returns the key of the failed step.
    ///
    /// # Examples
    /// See [`Batch::commit_blocking`].
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the index of the first step whose condition did not hold. Steps are counted from 0, in the order in
    /// which they were added.
    ///
    /// # Examples
    /// See [`Batch::commit_blocking`].
    #[must_use]
    pub fn step(&self) -> usize {
        self.step
    }

    /// Returns the version that the key had before the batch; `None` if it had no value.
    ///
    /// # Examples
    /// See [`Batch::commit_blocking`].
    #[must_use]
    pub fn found(&self) -> Option<Version> {
        self.found
    }
}

impl<K> fmt::Debug for BatchConflict<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchConflict").field("step", &self.step).field("found", &self.found).finish_non_exhaustive()
    }
}

impl<K> fmt::Display for BatchConflict<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} of the batch: {}", self.step, reason(self.found))
    }
}

impl<K> core::error::Error for BatchConflict<K> {}

/// The error of [`Batch::try_commit`], which changed nothing.
///
/// # Examples
/// See [`Batch::try_commit`].
pub enum TryBatchError<'a, K, V, S = DefaultHashBuilder> {
    /// A key could not be locked without waiting. The variant contains the unchanged batch.
    Busy(Batch<'a, K, V, S>),
    /// A condition did not hold.
    Conflict(BatchConflict<K>),
}

impl<K, V, S> fmt::Debug for TryBatchError<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryBatchError::Busy(batch) => f.debug_tuple("Busy").field(batch).finish(),
            TryBatchError::Conflict(conflict) => f.debug_tuple("Conflict").field(conflict).finish(),
        }
    }
}

impl<K, V, S> fmt::Display for TryBatchError<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryBatchError::Busy(_) => f.write_str("a key of the batch is locked"),
            TryBatchError::Conflict(conflict) => conflict.fmt(f),
        }
    }
}

impl<K, V, S> core::error::Error for TryBatchError<'_, K, V, S> {}
