//! A timing wheel: finds the deadlines that have passed, among very many, in constant time for each, however far ahead
//! they lie.
//!
//! It is the hierarchical wheel of Varghese & Lauck, "Hashed and Hierarchical Timing Wheels: Data Structures for the
//! Efficient Implementation of a Timer Facility" (SOSP 1987). A tick is a millisecond. There are 11 levels of 64 slots;
//! a slot is one tick wide on level 0 and 64 times as wide on each further level, so that any `u64` tick has its slot:
//! on the level of the highest base-64 digit in which it differs from the wheel's own time. When that time reaches a
//! slot, the nodes in it move to finer slots (they *cascade*), one by one, so that a caller can stop after any of them.
//! A bitmap for each level finds the next slot without stepping through empty ones, so time may jump.
//!
//! Nodes of the millisecond that the wheel is at, or of an earlier one, are in *the present*: two more lists, each with
//! a time before which none of its nodes is due. A search for due nodes takes nodes from the front list, and puts those
//! that are not due yet into the back list. The lists change places once a node in the back list may be due. So a
//! caller that takes due nodes one at a time does not examine the others again and again, and a search that comes too
//! early costs nothing.
//!
//! The wheel only decides when to look at a node. The node itself says whether it is due ([`Nodes::due`]) at that
//! moment. A deadline may thus be postponed without telling the wheel, which then finds the node too early and moves it
//! to its right slot.
use core::time::Duration;

#[cfg(test)]
#[path = "wheel_tests.rs"]
mod tests;

/// The number of bits of a tick that select a slot within a level.
const BITS: u32 = 6;
/// The number of slots in a level, and of bits in its bitmap.
const SLOTS: usize = 1 << BITS;
/// The number of levels: enough for all bits of a tick.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;
/// The index of the first of the two lists of the present, which come after the slots.
const PRESENT: usize = LEVELS * SLOTS;
/// The largest number of nodes of a slot that [`Wheel::next_due`] examines.
const GLANCE: usize = 64;
/// The number that stands for no node.
const NONE: u32 = Links::NONE;

/// A node's place in the wheel: its slot, and its neighbours in the ring of that slot's nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    prev: u32,
    next: u32,
    slot: u16,
}

impl Links {
    /// The number that stands for no node.
    pub(crate) const NONE: u32 = u32::MAX;
    const NO_SLOT: u16 = u16::MAX;

    /// Returns the links of a node that is in no slot.
    pub(crate) const fn new() -> Self {
        Self { prev: Self::NONE, next: Self::NONE, slot: Self::NO_SLOT }
    }

    /// Returns whether the node is in the wheel.
    pub(crate) const fn is_linked(&self) -> bool {
        self.slot != Self::NO_SLOT
    }
}

impl Default for Links {
    fn default() -> Self {
        Self::new()
    }
}

/// The collection that owns the wheel's nodes.
pub(crate) trait Nodes {
    fn links(&mut self, id: u32) -> &mut Links;

    /// Returns the time at which the node is due, as currently known; `None` if it never is. The time may be later than
    /// it was when the node was inserted, but not earlier: to bring a deadline forward, remove the node and insert it
    /// again.
    fn due(&self, id: u32) -> Option<Duration>;
}

/// The slot to which a node belongs.
#[derive(Clone, Copy)]
struct Slot {
    number: usize,
    /// The tick at which the slot begins; for the present, the tick in which the node is due.
    start: u64,
}

/// The wheel. Its times count from the origin of the caller's clock.
pub(crate) struct Wheel {
    /// The wheel's own time, which never goes back. Every node outside of the present has a later tick, except the
    /// nodes of a slot that begins at this tick and is being cascaded. There is at most one such slot, because a slot
    /// is emptied before time moves on.
    elapsed: u64,
    /// A lower bound for the next event: before this tick no slot in use begins, and no node in the two rings of the
    /// present is due, so there is nothing to search.
    next: u64,
    /// The slots in use, one bit each, by level. All nodes of a level are within one slot of the next level, so slots
    /// do not wrap around, and the lowest bit is the earliest slot.
    used: [u64; LEVELS],
    /// A node of each slot's ring, and then of the two rings of the present.
    heads: [u32; PRESENT + 2],
    /// For each list of the present, a time before which none of its nodes is due.
    bounds: [Duration; 2],
    /// The index of the front list of the present, 0 or 1.
    front: usize,
}

impl Wheel {
    pub(crate) const fn new() -> Self {
        Self {
            elapsed: 0,
            next: u64::MAX,
            used: [0; LEVELS],
            heads: [NONE; PRESENT + 2],
            bounds: [Duration::MAX; 2],
            front: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == [0; LEVELS] && self.heads[PRESENT..] == [NONE; 2]
    }

    /// Inserts a node that is in no slot into the slot of its [`due`](Nodes::due) time, if it is ever due.
    #[inline]
    pub(crate) fn insert(&mut self, nodes: &mut impl Nodes, id: u32) {
        if let Some(due) = nodes.due(id) {
            // The node goes into the front list, because a node in the back list that is due at once would cause all
            // other nodes there to be examined.
            let slot = self.slot_of(due, self.front);
            self.link(nodes, id, slot, due);
        }
    }

    /// Removes a node, if it is in the wheel.
    #[inline]
    pub(crate) fn remove(&mut self, nodes: &mut impl Nodes, id: u32) {
        if nodes.links(id).is_linked() {
            self.unlink(nodes, id);
        }
    }

    /// Moves a node whose due time has changed from `old`. If the new time is later, the node stays: the wheel moves it
    /// when the old time comes.
    pub(crate) fn reschedule(&mut self, nodes: &mut impl Nodes, id: u32, old: Option<Duration>) {
        let is_sooner = nodes.due(id).is_some_and(|due| old.is_none_or(|old| due < old));
        if is_sooner || !nodes.links(id).is_linked() {
            self.remove(nodes, id);
            self.insert(nodes, id);
        }
    }

    /// Removes a node that is due at `now`, and returns it. Nodes come in no particular order. Returns `None` if no
    /// node is due or `budget` is used up. The budget is reduced by one for each node that is touched: one that is
    /// returned, that cascades to a finer slot, that moves because it was postponed, or that is removed because it no
    /// longer has a due time.
    ///
    /// If `thorough`, the search includes nodes that are due within the current millisecond, and not only up to its
    /// start. For a caller that searches often, a search that is not thorough is less work.
    ///
    /// A `now` before that of an earlier call is allowed, and finds fewer nodes.
    #[inline]
    pub(crate) fn pop_due(
        &mut self,
        nodes: &mut impl Nodes,
        now: Duration,
        thorough: bool,
        budget: &mut u32,
    ) -> Option<u32> {
        if tick(now) < self.next {
            return None;
        }
        self.pop(nodes, if thorough { now } else { last_of_millisecond_before(now)? }, budget)
    }

    #[inline(never)]
    fn pop(&mut self, nodes: &mut impl Nodes, now: Duration, budget: &mut u32) -> Option<u32> {
        while let Some(slot) = self.next_slot(now) {
            *budget = budget.checked_sub(1)?;
            let id = self.heads[slot];
            self.unlink(nodes, id);
            match nodes.due(id) {
                None => {}
                Some(due) if due <= now => return Some(id),
                Some(due) => {
                    // This is never the slot that the node comes from: once a slot has begun, no node belongs to it any
                    // more.
                    let slot = self.slot_of(due, self.front ^ 1);
                    self.link(nodes, id, slot, due);
                }
            }
        }
        None
    }

    /// Returns the earliest [`due`](Nodes::due) time of all nodes; `None` if there are none.
    ///
    /// The result is exact if the slot of the earliest node has at most 64 nodes. Otherwise it may be too early, down
    /// to the start of the slot, and a [`pop_due`](Self::pop_due) at that time brings the next result closer. After a
    /// `thorough` `pop_due` that had budget left, the result is no earlier than the `now` of that call, unless a node
    /// that was already due then has been inserted since.
    ///
    /// The call also moves the postponed nodes that it examines, at most 64 in a slot, to their right slots.
    pub(crate) fn next_due(&mut self, nodes: &mut impl Nodes) -> Option<Duration> {
        let mut earliest = None;
        for list in 0..2 {
            let due = self.earliest_in(nodes, PRESENT + list, self.bounds[list]);
            if self.heads[PRESENT + list] != NONE {
                self.bounds[list] = due.unwrap_or(self.bounds[list]);
            }
            earliest = earlier(earliest, due);
        }
        // One slot is enough, unless all of its nodes leave it, as those of a cascading slot do; then the next slot is
        // examined, too.
        while let Some((start, slot)) = self.first_slot() {
            let start = Duration::from_millis(start);
            if earliest.is_some_and(|earliest| earliest <= start) {
                break;
            }
            earliest = earlier(earliest, self.earliest_in(nodes, slot, start));
            if self.heads[slot] != NONE {
                break;
            }
        }
        earliest
    }

    /// Returns the next slot to search for a node that is due at `now`. Unless this is a list of the present, the
    /// wheel's time moves to the start of the slot, or to `now` if there is none.
    fn next_slot(&mut self, now: Duration) -> Option<usize> {
        for list in [self.front, self.front ^ 1] {
            if self.heads[PRESENT + list] != NONE && self.bounds[list] <= now {
                self.front = list;
                return Some(PRESENT + list);
            }
        }
        let until = tick(now);
        let first = self.first_slot();
        let next = first.filter(|&(start, _)| start <= until);
        self.elapsed = self.elapsed.max(next.map_or(until, |(start, _)| start));
        if next.is_none() {
            let starts = first.map(|(start, _)| start).into_iter().chain(self.bounds.map(tick));
            self.next = starts.min().unwrap_or(u64::MAX);
        }
        next.map(|(_, slot)| slot)
    }

    /// Returns the first tick of the earliest slot outside of the present, and that slot.
    ///
    /// A slot that is being cascaded is always the earliest: it begins at the wheel's own time, and all other nodes of
    /// that tick are in the present.
    fn first_slot(&self) -> Option<(u64, usize)> {
        let levels = self.used.iter().enumerate().filter(|&(_, &used)| used != 0);
        let starts = levels.map(|(level, used)| {
            let slot = used.trailing_zeros();
            let shift = level as u32 * BITS;
            let above = u64::MAX.checked_shl(shift + BITS).unwrap_or(0);
            (self.elapsed & above | u64::from(slot) << shift, level * SLOTS + slot as usize)
        });
        starts.min()
    }

    /// Returns the slot for a node with this due time. If the node belongs in the present, it goes into the `list`
    /// given.
    #[inline]
    fn slot_of(&self, due: Duration, list: usize) -> Slot {
        let tick = tick(due);
        if tick <= self.elapsed {
            return Slot { number: PRESENT + list, start: tick };
        }
        let level = (tick ^ self.elapsed).ilog2() / BITS;
        let digits = tick >> (level * BITS);
        Slot { number: level as usize * SLOTS + digits as usize % SLOTS, start: digits << (level * BITS) }
    }

    /// Returns the earliest due time of the nodes in a slot, including those that this call moves to their right slots;
    /// `None` if there are none. If the slot has too many nodes, returns `bound`, before which none of them is due.
    fn earliest_in(&mut self, nodes: &mut impl Nodes, slot: usize, bound: Duration) -> Option<Duration> {
        let mut earliest = None;
        let mut first_kept = NONE;
        for _ in 0..GLANCE {
            let id = self.heads[slot];
            if id == first_kept {
                // All nodes of the ring have been examined, or none is left.
                return earliest;
            }
            let due = nodes.due(id);
            let home = due.map(|due| self.slot_of(due, self.front));
            if home.is_some_and(|home| home.number == slot || home.number >= PRESENT && slot >= PRESENT) {
                first_kept = if first_kept == NONE { id } else { first_kept };
                self.heads[slot] = nodes.links(id).next;
            } else {
                self.unlink(nodes, id);
                if let (Some(home), Some(due)) = (home, due) {
                    self.link(nodes, id, home, due);
                }
            }
            earliest = earlier(earliest, due);
        }
        if self.heads[slot] == first_kept { earliest } else { Some(bound) }
    }

    /// Appends a node to the ring of a slot.
    #[inline]
    fn link(&mut self, nodes: &mut impl Nodes, id: u32, slot: Slot, due: Duration) {
        let Slot { number: slot, start } = slot;
        self.next = self.next.min(start);
        match slot.checked_sub(PRESENT) {
            None => self.used[slot / SLOTS] |= 1 << (slot % SLOTS),
            Some(list) => self.bounds[list] = self.bounds[list].min(due),
        }
        let head = self.heads[slot];
        let (prev, next) = if head == NONE {
            self.heads[slot] = id;
            (id, id)
        } else {
            let prev = nodes.links(head).prev;
            nodes.links(prev).next = id;
            nodes.links(head).prev = id;
            (prev, head)
        };
        let links = nodes.links(id);
        debug_assert!(!links.is_linked(), "node {id} is in the wheel already");
        *links = Links { prev, next, slot: slot as u16 };
    }

    /// Removes a node from its ring.
    #[inline]
    fn unlink(&mut self, nodes: &mut impl Nodes, id: u32) {
        let Links { prev, next, slot } = core::mem::take(nodes.links(id));
        let slot = usize::from(slot);
        if next == id {
            self.heads[slot] = NONE;
            match slot.checked_sub(PRESENT) {
                None => self.used[slot / SLOTS] &= !(1 << (slot % SLOTS)),
                Some(list) => self.bounds[list] = Duration::MAX,
            }
        } else {
            nodes.links(prev).next = next;
            nodes.links(next).prev = prev;
            if self.heads[slot] == id {
                self.heads[slot] = next;
            }
        }
    }
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Returns the millisecond that contains a time.
fn tick(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1000).saturating_add(time.subsec_millis().into())
}

/// Returns the last nanosecond before the millisecond that contains `now`, if there is one.
fn last_of_millisecond_before(now: Duration) -> Option<Duration> {
    Duration::new(now.as_secs(), now.subsec_millis() * 1_000_000).checked_sub(Duration::from_nanos(1))
}
