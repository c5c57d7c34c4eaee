//! A timing wheel: which of very many deadlines are over, in constant time for each, however far ahead they lie.
//!
//! It is the hierarchical wheel of Varghese & Lauck, "Hashed and Hierarchical Timing Wheels: Data Structures for the
//! Efficient Implementation of a Timer Facility" (SOSP 1987). A tick is a millisecond. There are 11 levels of 64
//! slots; a slot is one tick wide on level 0 and 64 times as wide on each further level, so that any `u64` tick has
//! its slot: on the level of the highest digit, to base 64, in which it differs from the wheel's own time. When that
//! time reaches a slot, the nodes in there move to finer ones (they *cascade*), one by one, so that a caller can stop
//! at any of them. A bitmap for each level finds the next slot without stepping through empty ones: time may jump.
//!
//! Nodes of the millisecond that the wheel is at, or of one before, are in *the present*: two more lists, each with a
//! time before which none of its nodes is due. Who looks for due nodes takes them from the front list and puts those
//! that are not due yet into the back list; the lists change places once something in the back list may be due. So
//! whoever takes due nodes one at a time does not look at the others again and again, and a look too early costs
//! nothing.
//!
//! The wheel decides only when to look. Whether a node is due says the node ([`Nodes::due`]), at that moment; a
//! deadline may be put off without telling the wheel, which then finds the node too early and puts it where it
//! belongs.
use core::time::Duration;

#[cfg(test)]
#[path = "wheel_tests.rs"]
mod tests;

/// Bits of a tick that say a slot within its level.
const BITS: u32 = 6;
/// Slots in a level: as many as there are bits in its bitmap.
const SLOTS: usize = 1 << BITS;
/// Enough for all bits of a tick.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;
/// The two lists of the present come after the slots.
const PRESENT: usize = LEVELS * SLOTS;
/// [`Wheel::next_due`] looks at no more nodes of a slot.
const GLANCE: usize = 64;
/// No node.
const NONE: u32 = Links::NONE;

/// A node's place in the wheel: its neighbours in the ring of nodes in the same slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    prev: u32,
    next: u32,
    slot: u16,
}

impl Links {
    /// No node's number.
    pub(crate) const NONE: u32 = u32::MAX;
    const NO_SLOT: u16 = u16::MAX;

    /// In no slot.
    pub(crate) const fn new() -> Self {
        Self { prev: Self::NONE, next: Self::NONE, slot: Self::NO_SLOT }
    }

    /// Whether the node is in the wheel.
    pub(crate) const fn is_linked(&self) -> bool {
        self.slot != Self::NO_SLOT
    }
}

impl Default for Links {
    fn default() -> Self {
        Self::new()
    }
}

/// The collection that has the wheel's nodes.
pub(crate) trait Nodes {
    fn links(&mut self, id: u32) -> &mut Links;

    /// When the node is due as of now. That may be later than when it was put into the wheel, but not earlier: to
    /// bring a deadline forward, remove the node and insert it again. `None`: never any more.
    fn due(&self, id: u32) -> Option<Duration>;
}

/// Where a node belongs.
#[derive(Clone, Copy)]
struct Slot {
    number: usize,
    /// The tick that it begins with; in the present, the tick that the node is due in.
    start: u64,
}

/// Times are since the origin of whatever clock the caller has.
pub(crate) struct Wheel {
    /// The wheel's own time, which never goes back. No node outside of the present is of an earlier tick, and none of
    /// this tick either but in a slot that begins with it and is being cascaded: at most one, as a slot is emptied
    /// before time moves on.
    elapsed: u64,
    /// No slot in use begins before that tick, and no node of the present is due before it: until then there is nothing
    /// to look at.
    next: u64,
    /// Slots in use, a bit each, by level. As all nodes of a level are within one slot of the next, slots do not wrap
    /// around: the lowest bit is the earliest slot.
    used: [u64; LEVELS],
    /// A node of each slot's ring, then of the rings of the present.
    heads: [u32; PRESENT + 2],
    /// No node in that list of the present is due before.
    bounds: [Duration; 2],
    /// Which list of the present is the front list, 0 or 1.
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

    /// Puts a node that is in no slot where its [`due`](Nodes::due) says, if it is ever due.
    #[inline]
    pub(crate) fn insert(&mut self, nodes: &mut impl Nodes, id: u32) {
        if let Some(due) = nodes.due(id) {
            // Into the front list: in the back list, a node that is due at once would make all others there looked
            // at.
            let slot = self.slot_of(due, self.front);
            self.link(nodes, id, slot, due);
        }
    }

    /// Takes a node out, if it is in.
    #[inline]
    pub(crate) fn remove(&mut self, nodes: &mut impl Nodes, id: u32) {
        if nodes.links(id).is_linked() {
            self.unlink(nodes, id);
        }
    }

    /// A node is due at another time than `old`. A later time is found out when the wheel comes to the earlier one.
    pub(crate) fn reschedule(&mut self, nodes: &mut impl Nodes, id: u32, old: Option<Duration>) {
        let is_sooner = nodes.due(id).is_some_and(|due| old.is_none_or(|old| due < old));
        if is_sooner || !nodes.links(id).is_linked() {
            self.remove(nodes, id);
            self.insert(nodes, id);
        }
    }

    /// A node that is due at `now`, taken out of the wheel. They come in no particular order. `None` if there is
    /// none, or no `budget`: that is counted down for each node that is touched, be it that it is returned, moves to
    /// a finer slot, is put where it belongs since it was put off, or is taken out as it is never due any more.
    ///
    /// `thorough`: looks for what is due within the current millisecond too, and not only up to its begin. Who comes
    /// by often has less to do without.
    ///
    /// A `now` that is before an earlier one is fine. It finds less.
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
                    // Never the slot that it comes from: a slot whose begin has come has no nodes of its own any
                    // more.
                    let slot = self.slot_of(due, self.front ^ 1);
                    self.link(nodes, id, slot, due);
                }
            }
        }
        None
    }

    /// The earliest [`due`](Nodes::due) of all nodes, `None` if there are none.
    ///
    /// Exact if no more than 64 nodes are in the slot that it is in. Otherwise it may be earlier, down to the begin
    /// of the slot, and [`pop_due`](Self::pop_due) at that time gets closer to it. It is not before the `now` of a
    /// thorough `pop_due` that had budget left, unless a node was inserted that was due by then.
    ///
    /// Puts nodes that were put off where they belong, so far as it looks at them: at no more than 64 in a slot.
    pub(crate) fn next_due(&mut self, nodes: &mut impl Nodes) -> Option<Duration> {
        let mut earliest = None;
        for list in 0..2 {
            let due = self.earliest_in(nodes, PRESENT + list, self.bounds[list]);
            if self.heads[PRESENT + list] != NONE {
                self.bounds[list] = due.unwrap_or(self.bounds[list]);
            }
            earliest = earlier(earliest, due);
        }
        // One slot, and one more after each that all nodes leave, such as the one that is being cascaded.
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

    /// The slot whose nodes are to be looked at next for one that is due at `now`. The wheel's time moves on to it,
    /// or to `now` if there is none.
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

    /// The slot outside of the present that begins first, and that tick.
    ///
    /// A slot that is being cascaded is it, and has no rival: it begins now, and what begins now is otherwise
    /// present.
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

    /// Where a node belongs that is due then: if in the present, in that list of it.
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

    /// The earliest due of the nodes in a slot, those included that this moves to where they belong; or `bound`,
    /// before which none is due, if there are too many. `None` if there are none.
    fn earliest_in(&mut self, nodes: &mut impl Nodes, slot: usize, bound: Duration) -> Option<Duration> {
        let mut earliest = None;
        let mut first_kept = NONE;
        for _ in 0..GLANCE {
            let id = self.heads[slot];
            if id == first_kept {
                // Round the ring, or nobody is left in it.
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

    /// Puts a node last into the ring of a slot.
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

    /// Takes a node out of the ring that it is in.
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

/// The millisecond that a time is in.
fn tick(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1000).saturating_add(time.subsec_millis().into())
}

/// The last moment that is over for sure, in whole milliseconds, if any is.
fn last_of_millisecond_before(now: Duration) -> Option<Duration> {
    Duration::new(now.as_secs(), now.subsec_millis() * 1_000_000).checked_sub(Duration::from_nanos(1))
}
