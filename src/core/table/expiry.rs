//! Values that end: see the [core's overview](crate::core#values-that-end).

use core::time::Duration;

use super::Core;
use super::counters::Event;
use super::deadlines::Deadlines;
use super::hooks::{Hooks, Time};
use super::lookup::{Ask, VersionOf, full};
use super::payload::Payload;
use super::retire::Dead;
use super::room::Room;
use super::shard::Shard;
use super::slot::{Hold, Live, TypedAccess, Unshared};
use super::tag::Tag;
use super::value::{Kept, Marks, Valued};
use super::values::{Alone, Busy, Evicted, Eviction, LOOKED_AT, tag_of};
use crate::core::wait::state::State;
use crate::core::wait::word::{Unit, Word};
use crate::core::wait::{Access, ReleaseFor, WakeBatch};
use crate::evicted::Evicted as Cause;
use crate::panics::Panics;

/// The largest number of deadlines that are examined in passing to find one value that is over, and of such values that
/// are tried until one can be taken out.
const EXAMINED: usize = 4;

/// The new deadline and weight of a value that a writer has changed.
#[derive(Default)]
struct Change {
    /// The time; 0 if the clock has panicked, or there is none.
    now: u64,
    /// The time until the value ends, as the user's function says.
    own: Option<Duration>,
    weight: Option<u32>,
}

/// The steps of holders. In a table that weighs values, these are weighed in the same steps.
impl<K, V: Payload> Core<K, V> {
    /// Returns whether values end or have ages.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        V::time(&self.hooks).is_some()
    }

    /// Returns whether the table records something about each value: when it ends, its age, or its weight.
    #[inline]
    pub(crate) fn has_records(&self) -> bool {
        V::hooks(&self.hooks).is_some_and(Hooks::has_records)
    }

    /// Returns the user's functions, and the settings for time among them, if values end or have ages.
    #[allow(clippy::type_complexity)] // an alias would hide more than it tells
    fn timed(&self) -> Option<(&Hooks<K, V::Value>, &Time<K, V::Value>)> {
        let hooks = V::hooks(&self.hooks)?;
        Some((hooks, hooks.time.as_ref()?))
    }

    /// Ends the value of an entry that the caller has just acquired, if it is over, or else pins it. `uses` says
    /// whether the caller uses the value.
    ///
    /// # Panics
    /// If the clock panics. The caller must release its hold like any other.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&self, entry: Live<'_, K, V>, uses: bool) {
        let Some((hooks, time)) = self.timed() else { return };
        let (mut now, mut panics) = (0, Panics::default());
        panics.run(|| now = hooks.now());
        let tag = tag_of(entry);
        self.shard(tag).with(|shard| {
            // The time advances for the shard's other values, too: the caller may dispose of them when it leaves.
            deadlines(shard).into_iter().for_each(|deadlines| deadlines.advance(now));
            if !V::is_present(entry.marks()) {
                return;
            }
            let Some((number, deadlines)) = deadlines_of(shard, entry) else { return };
            if deadlines.is_over(number) {
                return self.end_value(shard, entry, number);
            }
            deadlines.pin(number);
            if uses {
                let idle = time.idle_deadline(deadlines.now());
                deadlines.touch(number, idle);
            }
        });
        panics.resume();
    }

    /// Records the deadline and the weight of a writer's value, if it has changed, and removes the holder's pin. If the
    /// value is over then, ends it. Called before the hold is given up. Panics of user code are added to `panics`.
    #[cold]
    #[inline(never)]
    pub(super) fn before_leaving<M: TypedAccess>(&self, hold: &Hold<K, V, M>, panics: &mut Panics) {
        if V::is_present(hold.live().marks()) {
            let now = self.record(hold, panics);
            if !self.is_timed() {
                return;
            }
            let entry = hold.live();
            self.shard(tag_of(entry)).with(|shard| {
                let Some((number, deadlines)) = deadlines_of(shard, entry) else { return };
                deadlines.advance(now);
                self.unpin(shard, entry, number);
            });
        }
    }

    /// Releases a hold of an entry that has a value and no other user. If the value has not changed, or if there is no
    /// function to ask about it, this takes one visit to the shard, in which the sweep begins. Fails if there are other
    /// users, or no value. Panics of user code are added to `panics`.
    ///
    /// The clock is not read for a value that cannot have changed: if its time has passed since the shard was last told
    /// the time, the next call that tells the shard the time will notice.
    pub(super) fn leave_at_once<M: TypedAccess>(
        &self,
        hold: Hold<K, V, M>,
        panics: &mut Panics,
    ) -> Result<(), Hold<K, V, M>> {
        let Some(hooks) = V::hooks(&self.hooks) else { return Err(hold) };
        let (entry, access) = (hold.live(), hold.mode().access());
        let is_alone = |state: &State| state.is_sole(Word::born(Unit::Hold(access)).keep().keep());
        let Some(marks) = V::marks(entry.marks()).filter(|marks| marks.is_present() && is_alone(entry.state())) else {
            return Err(hold);
        };
        let (tag, address, version) = (tag_of(entry), entry.address(), marks.version());
        let mut change = Change::default();
        if access == Access::Exclusive && hooks.time.is_some() {
            panics.run(|| change.now = hooks.now());
        }
        let mut is_known = !hooks.asks() || access != Access::Exclusive;
        let mut hold = Some(hold);
        loop {
            let has_left = self.leave_and_sweep(
                tag,
                address,
                |shard| {
                    let entry = hold.as_ref()?.live();
                    let (number, deadlines) = deadlines_of(shard, entry).filter(|_| is_alone(entry.state()))?;
                    deadlines.advance(change.now);
                    if access == Access::Exclusive && deadlines.is_changed(number, version) {
                        if !is_known {
                            return None;
                        }
                        self.set_change(shard, entry, number, &change);
                    }
                    self.unpin(shard, entry, number);
                    // No exchange is needed: other units come from the table, whose shard is locked, or from a unit,
                    // and the only one that has a token is ours.
                    entry.state().set(self.claims_of_value());
                    hold = None;
                    Some(number)
                },
                panics,
            );
            match hold.take_if(|_| !has_left) {
                None => return Ok(()),
                Some(left) if is_known => return Err(left),
                Some(left) => {
                    self.ask(&left, &mut change, panics);
                    (hold, is_known) = (Some(left), true);
                }
            }
        }
    }

    /// Records the deadline and the weight of a writer's value, if it has changed. Called before other holders are let
    /// in.
    ///
    /// # Panics
    /// If user code panics.
    #[cold]
    #[inline(never)]
    pub(super) fn before_sharing<M: TypedAccess>(&self, hold: &Hold<K, V, M>) {
        let mut panics = Panics::default();
        self.record(hold, &mut panics);
        panics.resume();
    }

    /// Records the deadline and the weight of the value, if the hold is exclusive and the value has changed. Returns
    /// the time; 0 if the clock has panicked, or there is none.
    fn record<M: TypedAccess>(&self, hold: &Hold<K, V, M>, panics: &mut Panics) -> u64 {
        let Some(hooks) = V::hooks(&self.hooks) else { return 0 };
        let (mut change, entry) = (Change::default(), hold.live());
        if hooks.time.is_some() {
            panics.run(|| change.now = hooks.now());
        }
        let Some(version) = V::marks(entry.marks()).map(Marks::version) else { return change.now };
        if !V::is_present(entry.marks()) || hold.mode().access() != Access::Exclusive {
            return change.now;
        }
        let shard = self.shard(tag_of(entry));
        let is_changed = shard.with(|shard| {
            deadlines_of(shard, entry).is_some_and(|(number, deadlines)| {
                deadlines.advance(change.now);
                deadlines.is_changed(number, version)
            })
        });
        if is_changed {
            self.ask(hold, &mut change, panics);
            shard.with(|shard| {
                let number = deadlines_of(shard, entry).map(|(number, _)| number);
                number.into_iter().for_each(|number| self.set_change(shard, entry, number, &change));
            });
        }
        change.now
    }

    /// Asks the user's functions about a value that a writer has changed.
    fn ask<M: TypedAccess>(&self, hold: &Hold<K, V, M>, change: &mut Change, panics: &mut Panics) {
        let (Some(hooks), Some(value)) = (V::hooks(&self.hooks), hold.value()) else { return };
        let key = hold.live().key();
        if let Some(time) = &hooks.time {
            panics.run(|| change.own = time.ask(key, value));
        }
        if let Some(weigher) = &hooks.weigher {
            panics.run(|| change.weight = Some(weigher.ask(key, value)));
        }
    }

    /// Records the deadline and the weight of a value that a writer has changed.
    fn set_change(&self, shard: &mut Shard<K, V>, entry: Live<'_, K, V>, number: u32, change: &Change) {
        self.set_weight(shard, entry, number, change.weight);
        let version = V::marks(entry.marks()).map_or(0, Marks::version);
        if let (Some(time), Some(deadlines)) = (V::time(&self.hooks), deadlines(shard)) {
            let (ends, idle) = time.deadline(deadlines.now(), change.own);
            deadlines.set(number, version, ends, idle);
            if time.ages {
                deadlines.begin_age(number);
            }
        }
    }

    /// Removes the pin of a holder that leaves, and ends the value if it is over then.
    fn unpin(&self, shard: &mut Shard<K, V>, entry: Live<'_, K, V>, number: u32) {
        let Some(deadlines) = deadlines(shard).filter(|deadlines| deadlines.is_timed()) else { return };
        deadlines.unpin(number);
        if deadlines.is_over(number) {
            self.end_value(shard, entry, number);
        }
    }

    /// Ends a value that is over.
    fn end_value(&self, shard: &mut Shard<K, V>, entry: Live<'_, K, V>, number: u32) {
        V::marks(entry.marks()).into_iter().for_each(Marks::end_value);
        V::keeps(&mut shard.kept).into_iter().for_each(|kept| kept.forget(Some(number)));
        self.note_excess(shard, tag_of(entry));
        self.count(tag_of(entry), Event::Expired);
    }

    /// Prepares an entry without a value for a new one: takes an ended value out, if there is one, and claims the entry
    /// for the deadline of the new one. The caller must have an exclusive hold of the entry. Returns `None` if the
    /// table has no records.
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`](crate::core::MAX_UNITS) units, or if the clone of the key panics.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room<M: TypedAccess>(&self, hold: &mut Hold<K, V, M>) -> Option<Room<'_, K, V>> {
        let hooks = V::hooks(&self.hooks).filter(|hooks| hooks.has_records())?;
        if let Some(time) = hooks.time.as_ref().filter(|_| V::is_stored(hold.live().marks())) {
            let key = self.on_evict().map(|_| (time.copy_key)(hold.live().key()));
            let claim = self.shard(tag_of(hold.live())).with(|shard| {
                let (value, claim) = hold.take()?;
                part(shard, key, value);
                Some(claim)
            });
            claim.into_iter().for_each(|claim| self.leave_claim(claim.into_unit()));
            self.leave_claim(hold.live().claim_of_deadline().into_unit());
        }
        match self.join_as_claim(hold.live()) {
            Ok(unit) => Some(Room::new(self, unit.into_claim())),
            Err(_) => full(),
        }
    }

    /// Begins the deadline of a value that a writer has just stored, if values end or have ages.
    pub(super) fn begin_deadline(&self, shard: &mut Shard<K, V>, entry: Live<'_, K, V>) {
        if let Some((number, deadlines)) = deadlines_of(shard, entry).filter(|_| self.is_timed()) {
            deadlines.begin(number);
        }
    }
}

/// Disposing of values that have ended.
impl<K, V: Payload> Core<K, V> {
    /// Returns exclusive use of an entry, if its only units are the two claims of its value, in a table that has
    /// records. The value may have ended. The caller has locked the shard, and takes the value out.
    pub(super) fn unshared_timed<'s>(&self, entry: Live<'s, K, V>) -> Option<Unshared<'s, K, V>> {
        if !self.has_records() || !V::is_stored(entry.marks()) {
            return None;
        }
        match entry.claim_of_deadline().into_unshared() {
            Ok(unshared) => Some(unshared),
            Err(claim) => {
                claim.leave_to_deadline();
                None
            }
        }
    }

    /// Returns whether an entry has a value that is not in use, and no units besides the value's claims.
    pub(super) fn is_alone(&self, entry: Live<'_, K, V>) -> bool {
        V::is_present(entry.marks()) && entry.state().is_sole(self.claims_of_value())
    }

    /// Takes the next value to dispose of out of a shard that the caller sweeps. That is a value that has already left
    /// its entry, or else one that has ended, preferably the value of the slot `number`. `most` limits the number of
    /// the latter, unless there are too many values, or all ended values have been left to the sweeps.
    pub(super) fn take_ended(
        &self,
        shard: &mut Shard<K, V>,
        number: Option<u32>,
        most: &mut Option<usize>,
    ) -> Eviction<K, V> {
        if !self.is_timed() {
            return Eviction::Nothing;
        }
        if let Some((key, value)) = next_parted(shard) {
            let mut dead = Dead::default();
            (dead.key, dead.value) = (key, Some(value));
            return Eviction::Done((dead, None));
        }
        let are_left = deadlines(shard).is_some_and(|deadlines| deadlines.are_left);
        let is_too_full = V::keeps(&mut shard.kept).is_some_and(|kept: &mut Kept| kept.is_too_full());
        let takes_all = most.is_none() || are_left || is_too_full;
        if !takes_all && *most == Some(0) {
            return Eviction::Nothing;
        }
        let found = self.find_ended(shard, number, takes_all);
        match found {
            Eviction::Done(_) => *most = most.map(|most| most.saturating_sub(1)),
            Eviction::More => {}
            Eviction::Nothing => deadlines(shard).into_iter().for_each(|deadlines| deadlines.are_left = false),
        }
        found
    }

    /// Leaves all ended values to the calls that sweep the shard.
    pub(super) fn leave_all_ended(&self, shard: &mut Shard<K, V>) {
        deadlines(shard).into_iter().for_each(|deadlines| deadlines.are_left = true);
    }

    /// Leaves the ended value of this slot to the calls that sweep the shard. Returns the rest of the entry, which the
    /// caller must dispose of.
    pub(super) fn leave_ended(&self, shard: &mut Shard<K, V>, number: Option<u32>) -> Eviction<K, V> {
        let found = self.ended_at(shard, number);
        let Eviction::Done((mut dead, kept)) = found else { return found };
        if let Some(value) = dead.value.take() {
            part(shard, dead.key.take(), value);
        }
        Eviction::Done((dead, kept))
    }

    /// Takes the ended value of this slot out, unless a user of the entry will do that when it leaves.
    fn ended_at(&self, shard: &mut Shard<K, V>, number: Option<u32>) -> Eviction<K, V> {
        let ended = number.and_then(|number| self.bury(shard, number));
        ended.map_or(Eviction::Nothing, Eviction::Done)
    }

    /// Takes an ended value out of its entry: that of the slot `number`, or another one of the shard. The search
    /// examines a few deadlines. If it `takes_all`, it examines more, and returns [`Eviction::More`] if others may be
    /// left.
    fn find_ended(&self, shard: &mut Shard<K, V>, number: Option<u32>, takes_all: bool) -> Eviction<K, V> {
        let ended = self.ended_at(shard, number);
        if matches!(ended, Eviction::Done(_)) {
            return ended;
        }
        let most = if takes_all { LOOKED_AT } else { EXAMINED };
        for _ in 0..EXAMINED {
            let Some(number) = deadlines(shard).and_then(|deadlines| deadlines.next_over(most)) else { break };
            let Some(entry) = shard.look_at(number) else { unreachable!("an entry with a value is live") };
            let marks = entry.marks();
            V::marks(marks).into_iter().for_each(Marks::end_value);
            let tag = tag_of(entry);
            V::keeps(&mut shard.kept).into_iter().for_each(|kept| kept.forget(Some(number)));
            self.note_excess(shard, tag);
            self.count(tag, Event::Expired);
            if let Some(ended) = self.bury(shard, number) {
                return Eviction::Done(ended);
            }
        }
        if takes_all && deadlines(shard).is_some_and(|deadlines| deadlines.is_any_due()) {
            Eviction::More
        } else {
            Eviction::Nothing
        }
    }

    /// Takes an ended value out of its entry, unless a user of the entry will do that when it leaves.
    fn bury(&self, shard: &mut Shard<K, V>, number: u32) -> Option<Evicted<K, V>> {
        let entry = shard.look_at(number)?;
        if V::is_present(entry.marks()) || !V::is_stored(entry.marks()) {
            return None;
        }
        let mut dead = Dead::default();
        if let Some(unshared) = self.unshared_timed(entry) {
            let (value, claim) = unshared.take();
            dead.value = Some(value);
            if self.on_evict().is_some() {
                dead.key = Some(self.retire_keyed(shard, claim, &mut dead));
            } else {
                self.retire_sole(shard, claim, &mut dead);
            }
            return Some((dead, None));
        }
        // `on_evict` would be handed the key, which the entry's other users need. And a handle would find the key
        // locked for a moment.
        if self.on_evict().is_some() || V::marks(entry.marks()).is_some_and(|marks| marks.has_handle(true)) {
            return None;
        }
        let mut hold = entry.join(|word| word.hold(Access::Exclusive, 1)).ok()?.into_hold(Alone);
        let Some((value, claim)) = hold.take() else { unreachable!("an ended value is stored") };
        dead.value = Some(value);
        // The value's claim is still a unit, so this is not the last one.
        self.leave_claim(hold.live().claim_of_deadline().into_unit());
        let mut batch = WakeBatch::default();
        self.leave_into(hold.into_unit(), Access::Exclusive, ReleaseFor::Anybody, &mut batch);
        Some((dead, Some((claim, batch))))
    }

    /// Drops a value that was taken out, or hands it to the user's function. The caller holds no internal lock.
    pub(super) fn dispose(&self, (mut dead, kept): Evicted<K, V>, cause: Cause, panics: &mut Panics) {
        if let Some((claim, batch)) = kept {
            panics.run(|| self.leave_claim(claim.into_unit()));
            panics.run(|| drop(batch));
        }
        if let Some(on_evict) = self.on_evict() {
            panics.run(|| dead.hand_to(on_evict, cause));
        }
        panics.run(|| drop(dead));
    }

    /// Disposes of all values that have ended, or [leaves](super::sweep) them to other sweeps. Returns the time until
    /// the next value may end, at least one nanosecond; `None` if no value has a deadline, apart from values that are
    /// pinned beyond theirs.
    ///
    /// # Panics
    /// If the clock panics. A panic of a drop, or of the user's function, resumes when everything is done.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let now = self.timed()?.0.now();
        let (mut first, mut panics) = (None::<u64>, Panics::default());
        for (index, shard) in self.shards().iter().enumerate() {
            // Any tag of the shard will do: this sweep uses it only to find the shard.
            let tag = Tag::from_bits(((index as u64) << self.shift) as u32);
            shard.with(|shard| deadlines(shard).into_iter().for_each(|deadlines| deadlines.advance(now)));
            loop {
                let leaves = self.sweep_ended(tag, &mut panics);
                // Another call may have seen a later time meanwhile.
                let left = |deadlines: &mut Deadlines| Some(deadlines.first()?.saturating_sub(deadlines.now()));
                let next = shard.with(|shard| deadlines(shard).and_then(left));
                if leaves || next != Some(0) {
                    first = first.into_iter().chain(next.map(|next| next.max(1))).min();
                    break;
                }
            }
        }
        panics.resume();
        first.map(Duration::from_nanos)
    }
}

/// Looking at values that may be over.
impl<K, T> Core<K, Valued<T>> {
    /// Reads the clock, if values end or have ages.
    pub(super) fn time(&self) -> Option<u64> {
        self.timed().map(|(hooks, _)| hooks.now())
    }

    /// Returns the number of values that are not over, added up shard by shard.
    pub(crate) fn values(&self) -> usize {
        let now = self.time();
        let values = |shard: &mut Shard<K, Valued<T>>| {
            let over = shard.kept.deadlines.as_mut().map(|deadlines| {
                now.into_iter().for_each(|now| deadlines.advance(now));
                deadlines.count_over()
            });
            shard.kept.values - over.unwrap_or(0)
        };
        self.shards().iter().map(|shard| shard.with(values)).sum()
    }

    /// Looks up the value of a key, in a table that [has records](Self::has_records). Fails if the entry is in use, or
    /// if its value is over and has to be disposed of. `look` runs under the shard lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn peek_recorded<R>(
        &self,
        key: &impl Ask<K>,
        look: impl FnOnce(&T, VersionOf<'_, K, T>) -> R,
    ) -> Result<Option<R>, Busy<()>> {
        let now = self.time().unwrap_or_default();
        self.shard(key.tag()).with(|shard| {
            shard.kept.deadlines.iter_mut().for_each(|deadlines| deadlines.advance(now));
            let Some((entry, number)) = shard.find_numbered(key.tag(), |other| key.is(other)) else {
                self.count(key.tag(), Event::Miss);
                return Ok(None);
            };
            if shard.kept.deadlines.as_ref().is_some_and(|deadlines| deadlines.is_over(number)) {
                return Err(Busy(()));
            }
            let seen = entry.look_beside_deadline(|value| look(value, VersionOf::Entry(entry))).ok_or(Busy(()))?;
            self.note_look_up(entry);
            let time = Valued::<T>::time(&self.hooks).filter(|time| time.idle.is_some());
            if let (Some(time), Some(deadlines)) = (time, &mut shard.kept.deadlines) {
                let idle = time.idle_deadline(deadlines.now());
                deadlines.touch(number, idle);
            }
            Ok(Some(seen))
        })
    }

    /// Returns whether a key has a value that is not over. Reads the clock.
    #[cold]
    #[inline(never)]
    pub(super) fn contains_alive(&self, key: &impl Ask<K>) -> bool {
        let now = self.time().unwrap_or_default();
        self.shard(key.tag()).with(|shard| {
            let entry = shard.find(key.tag(), |other| key.is(other));
            let Some(address) = entry.filter(|entry| entry.has_value()).map(Live::address) else { return false };
            !is_over(shard, key.tag(), address, now)
        })
    }

    /// Returns whether an entry has a value that is not over, for a caller with a claim. The answer is a snapshot.
    pub(crate) fn has_value(&self, entry: Live<'_, K, Valued<T>>) -> bool {
        let Some(now) = self.time() else { return entry.has_value() };
        let tag = tag_of(entry);
        self.shard(tag).with(|shard| entry.has_value() && !is_over(shard, tag, entry.address(), now))
    }
}

/// Returns whether the value of the entry at this address is over.
fn is_over<K, T>(shard: &mut Shard<K, Valued<T>>, tag: Tag, address: usize, now: u64) -> bool {
    let number = shard.find_at(tag, address).map(|(_, number)| number);
    let (Some(number), Some(deadlines)) = (number, &mut shard.kept.deadlines) else { return false };
    deadlines.advance(now);
    deadlines.is_over(number)
}

/// Keeps a value that has left its entry until a sweep disposes of it.
fn part<K, V: Payload>(shard: &mut Shard<K, V>, key: Option<K>, value: V::Value) {
    if let Some(parted) = V::parted(&mut shard.parted) {
        parted.get_or_insert_default().push((key, value));
    }
}

/// Returns a value that [`part`] has kept, and removes it from the shard.
fn next_parted<K, V: Payload>(shard: &mut Shard<K, V>) -> Option<(Option<K>, V::Value)> {
    let parted = V::parted(&mut shard.parted)?;
    let next = parted.as_mut()?.pop();
    if next.is_none() {
        *parted = None;
    }
    next
}

fn deadlines<K, V: Payload>(shard: &mut Shard<K, V>) -> Option<&mut Deadlines> {
    V::keeps(&mut shard.kept)?.deadlines.as_deref_mut()
}

/// Returns the number of an entry's slot, and the deadlines of its shard.
pub(super) fn deadlines_of<'s, K, V: Payload>(
    shard: &'s mut Shard<K, V>,
    entry: Live<'_, K, V>,
) -> Option<(u32, &'s mut Deadlines)> {
    let (_, number) = shard.find_at(tag_of(entry), entry.address())?;
    Some((number, deadlines(shard)?))
}
