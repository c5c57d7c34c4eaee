//! The wait queues, and the one place where fairness is decided.
//!
//! [`Queues`] has the queues of all entries (or latches) that share it, behind one lock, the *queue lock*. It is not
//! the shard's lock, so the waiters of a hot key do not hold up look-ups of other keys in the same shard. Nothing here
//! is atomic, and no user code runs here: wakers are moved in and moved out, and the caller wakes and drops them after
//! it has released the lock.
//!
//! A waiter is a [`Node`]; its index is the *ticket*. A queued node is in its entry's queue. A granted node has left
//! the queue and stands for a hold that its waiter has not taken yet. A waiter that is merely *woken* stays queued, in
//! its position, until it enters: so it cannot lose its position to a faster request.
//!
//! # Which waiter gets in
//! [`Queues::admit`] runs whenever waiters might get in: a hold was released or changed, a waiter gave up or entered,
//! or the limit of permits was set. It goes from the head of the queue as far as the holds allow. It either *grants*
//! (the waiter holds from now on) or *opens* (the waiter is woken, the key stays free, and the first request acquires
//! it):
//!
//! | | `Fifo` | `Bounded(n)` | `Adaptive` | `Barging` |
//! |---|---|---|---|---|
//! | the head | grant | open | open | open |
//! | a head that takes hand-offs: a spinning thread, or a waiter that was woken 4 times without getting in | grant | grant | grant | open |
//! | a head that was passed `n` times; for `Adaptive` a thread, passed 1,024 times since it was woken | grant | grant | grant | open |
//! | then others that take hand-offs, if the holds still allow it | – | grant | grant | – |
//! | the next sleeping waiter, when the head had been opened before this release | – | open | open | – |
//! | a reader that no waiter before it keeps out | grant | grant | grant | open |
//! | when a writer has left: every waiting reader, one upgradable reader (`Adaptive`: with readers only) | in order only | grant | grant | in order only |
//! | `unlock_fair`: the first that the holds allow; with permits, in order, while some of the released ones are left | grant | grant | grant | grant |
//! | a waiting upgrade, when the last reader has left | grant | grant | as any head | open |
//!
//! "The head" is the waiter whose [turn](super::turn) comes first: the first to arrive among those with the highest
//! priority, except that waiters rise. A waiting upgrade comes before all others. Two rows depend on priorities:
//!
//! | | in a queue with priorities |
//! |---|---|
//! | a spinning thread behind the head | grant only if its priority is not lower than the head's |
//! | when a writer has left | a reader whose priority is lower than that of the first waiting writer, and whose turn comes later, stays |
//!
//! When a request with a priority comes to the head, the former head stays as it is: it keeps its counts, and if it was
//! woken, it polls like any waiter behind the head, or stays idle. At that moment the key is not free for the new head;
//! otherwise the newcomer would have entered ([`Queues::goes_first`]). So the new head is woken by the next release, as
//! after a cancellation.
//!
//! [`Queues::bypass`] decides whether a newcomer that finds the key free may pass the waiters. It also decides for
//! hand-offs behind the head, where the waiter counts as a newcomer. The numbers are in [`policy`](super::policy).
//!
//! # Several permits
//! A request for several permits is one waiter, and gets all of them or none. Free permits are not saved up for it.
//! Instead:
//! - At the head, while too few permits are free for it, it keeps out all waiters behind it that take no hand-offs.
//!   Newcomers pass it within the policy's bounds, as they pass a writer behind readers; a newcomer that leaves it
//!   enough permits is not counted.
//! - An idle head keeps no request out. So the next waiter behind it is protected by the same bounds, if the current
//!   holds keep it out. (The next waiter is the first that takes hand-offs, or else the first that sleeps.)
//! - A hand-off skips a waiter for which too few permits are free, and goes to the waiters behind it. The waiters that
//!   get the hand-off count as passing the skipped waiter if that is the next waiter in the sense above.
//! - Sleeping waiters are woken in order. If too few permits are free for one of them, those after it stay asleep, too.
//! - The limit can be lowered while requests wait. A request for more permits than the limit gets in when no permit is
//!   held. So only a limit of 0 can strand a waiter.

mod admission;
#[cfg(test)]
mod checks;
mod lines;
mod priority;

use core::num::NonZeroU32;
use core::task::Waker;

use crossbeam_utils::CachePadded;

use super::paged::Paged;
use super::policy::{Cause, Presence, Rules, Standing, WaitState};
use super::turn::{Turn, Turns};
use super::wakers::WakeBatch;
use super::word::{Access, CountKind, Holds, Want};
use crate::core::slab::NONE;
use crate::fairness::Fairness;
use crate::sync::Lock;

/// A waiter's position: the index of its node. While a request does not wait, the ticket contains its priority instead
/// (as one of the highest numbers, which are never indices), so a priority does not make the request larger.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(unreachable_pub)] // a sealed trait names it
pub struct Ticket(u32);

impl Ticket {
    /// The ticket of a request that does not wait, with priority 0.
    pub(crate) const NONE: Ticket = Ticket(NONE);

    /// The ticket of a reader that passes all waiters. If a writer holds the key, this reader queues like any other.
    /// The mark is in the ticket, so that requests need no room for it.
    pub(crate) const RECURSIVE: Ticket = Ticket(NONE - 1 - u8::MAX as u32);

    /// Makes the ticket of a request that does not wait.
    #[inline]
    pub(crate) fn with_priority(priority: u8) -> Ticket {
        Ticket(NONE - u32::from(priority))
    }

    #[inline]
    pub(crate) fn is_some(self) -> bool {
        self.0 < Ticket::RECURSIVE.0
    }

    /// Returns the priority of a request that is not waiting: 0 for a recursive reader.
    #[inline]
    pub(crate) fn priority(self) -> u8 {
        debug_assert!(!self.is_some(), "the priority of a waiter is in its turn");
        (NONE - self.0) as u8
    }
}

/// A request that is ready to wait.
#[derive(Clone, Copy)]
pub(crate) struct Waiter<'a> {
    pub(crate) presence: Presence,
    pub(crate) waker: &'a Waker,
}

/// A waiter, as seen by a search for deadlocks.
#[cfg(target_has_atomic = "ptr")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queued {
    pub(crate) ticket: Ticket,
    /// Distinguishes the waiter from earlier ones with the same ticket.
    pub(crate) turn: Turn,
    pub(crate) want: Want,
    /// Whether the waiter takes hand-offs although others before it cannot get in.
    pub(crate) passes: bool,
    /// Whether an upgradable reader was admitted before this writer, in a readers' phase. That happens only once.
    pub(crate) passed_in_phase: bool,
}

struct Node {
    /// The neighbours in its line.
    prev: u32,
    next: u32,
    /// The neighbours in its list: towards the first, and towards the last.
    links: [u32; 2],
    turn: Turn,
    /// The number of permits that the waiter wants; 1 for the other kinds.
    amount: u32,
    kind: Kind,
    list: List,
    standing: Standing,
    /// Whether an upgradable reader has got in before this writer with a readers' phase. This is allowed only once: a
    /// reader that upgrades and leaves begins another phase, so otherwise the writer might never get in.
    passed_in_phase: bool,
    /// The waker. `None` once the waiter has been woken, until it is polled again.
    waker: Option<Waker>,
}

/// The hold that a waiter waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Exclusive = 0,
    Shared = 1,
    Upgradable = 2,
    Upgrade = 3,
    Permits = 4,
}

/// The list by which a release finds a waiter, besides its line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    /// The waiter is in no list: it has been woken or granted its hold, or it is a spinning thread that waits for a
    /// hold of a kind that is not handed to waiters behind the head.
    None,
    /// The waiter has been asleep ever since it arrived: it is found by its line, in order of the turns.
    Fresh,
    /// The waiter sleeps again, after a wake-up or after it has spun: it is in a list of its line.
    Asleep,
    /// The waiter takes hand-offs: it is in a list of its queue.
    HandOff,
}

impl Node {
    #[inline]
    fn want(&self) -> Want {
        Want::Hold(match self.kind {
            Kind::Exclusive => Access::Exclusive,
            Kind::Shared => Access::Shared,
            Kind::Upgradable => Access::Upgradable,
            Kind::Permits => Access::Permits(self.amount),
            Kind::Upgrade => return Want::Upgrade,
        })
    }

    /// Returns the waiter's share of the permits that woken waiters want.
    #[inline]
    fn awake(&self) -> usize {
        if self.kind == Kind::Permits { self.amount as usize } else { 0 }
    }

    /// Returns whether a hold may be handed to this waiter past the head. A spinning thread does not pass a head of a
    /// higher priority: it tries the key anyway before it sleeps.
    fn may_pass(&self, head: &Node) -> bool {
        !self.standing.is_spinning() || self.turn.priority() >= head.turn.priority()
    }
}

impl Kind {
    #[inline]
    fn of(want: Want) -> (Kind, u32) {
        match want {
            Want::Hold(Access::Exclusive) => (Kind::Exclusive, 1),
            Want::Hold(Access::Shared) => (Kind::Shared, 1),
            Want::Hold(Access::Upgradable) => (Kind::Upgradable, 1),
            Want::Hold(Access::Permits(amount)) => (Kind::Permits, amount),
            Want::Upgrade => (Kind::Upgrade, 1),
        }
    }

    /// Returns whether waiters of this kind take hand-offs behind the head. Of the other kinds, only a waiter at the
    /// head does.
    #[inline]
    fn is_handed(self) -> bool {
        matches!(self, Kind::Exclusive | Kind::Upgradable | Kind::Permits)
    }

    /// Returns the line of this kind. Writers and permits share one, because a table has only one of the two.
    #[inline]
    fn line(self) -> usize {
        self as usize % LINES
    }
}

/// Waiters of one kind, in order of their turns.
#[derive(Clone, Copy)]
struct Line {
    head: u32,
    tail: u32,
    len: u32,
    /// The first and the last of the waiters that sleep again. Those that were woken without getting in come before the
    /// others; in a queue with priorities, all are in order of their turns.
    asleep: [u32; 2],
    /// The first of the waiters that have been asleep ever since they arrived.
    fresh: u32,
}

/// The waiters of one entry. Each kind has its own line, so that a search never passes waiters of another kind; their
/// [turns](Turn) order waiters of different lines. There is at most one upgrade, which comes before all other waiters.
struct Queue {
    lines: [Line; LINES],
    /// The number of all waiters.
    len: u32,
    /// The number of permits that the woken waiters want.
    awake: usize,
    /// The first and the last of the waiters that take hand-offs, in the order in which they began to do so; in a queue
    /// with priorities, in order of their turns.
    hand_offs: [u32; 2],
    turns: Turns,
    notes: Notes,
}

/// Notes about the entry of a queue. The two low bits are one of the constants; the others are the limit of permits, if
/// there are permits.
///
/// The number is never 0, so the slab can mark a vacant place with 0. That keeps a place at 128 bytes, the most that
/// are copied without a call.
#[derive(Clone, Copy)]
struct Notes(NonZeroU32);

impl Notes {
    const NONE: u32 = 1;
    /// A writer holds the key. This is for searches for deadlocks.
    const WRITER: u32 = 2;
    /// The limit is the key's own, so the queue stays while it has no waiters.
    const OWN: u32 = 3;

    const fn new(what: u32, limit: usize) -> Notes {
        match NonZeroU32::new(what | (limit as u32) << 2) {
            Some(notes) => Notes(notes),
            None => unreachable!(),
        }
    }

    #[inline]
    fn says(self, what: u32) -> bool {
        self.0.get() & 3 == what
    }

    #[inline]
    fn limit(self) -> usize {
        (self.0.get() >> 2) as usize
    }
}

const WRITERS: usize = Kind::Exclusive as usize;
const READERS: usize = Kind::Shared as usize;
const UPGRADABLE: usize = Kind::Upgradable as usize;
const UPGRADE: usize = Kind::Upgrade as usize;
const PERMITS: usize = Kind::Permits as usize % LINES;
const LINES: usize = 4;

/// The two ends of a list.
const FIRST: usize = 0;
const LAST: usize = 1;

/// The numbers of waiters, by the hold that they wait for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) writers: usize,
    pub(crate) readers: usize,
    pub(crate) upgradable: usize,
    pub(crate) permits: usize,
    pub(crate) upgrades: usize,
}

/// The decision of [`Queues::admit`]: how the word must change, in the same critical section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Admitted {
    pub(crate) holds: Holds,
    /// The number of waiters' claims that have become holds.
    pub(crate) granted: usize,
    /// Whether the queue remains, because there are still waiters or because the key has its own limit of permits.
    pub(crate) queued: bool,
}

/// Some [`Queues`], each behind its lock, shared so that they can be read after their table has been dropped.
#[cfg(target_has_atomic = "ptr")]
pub(crate) type SharedQueues = alloc::sync::Arc<[CachePadded<Lock<Queues>>]>;
#[cfg(not(target_has_atomic = "ptr"))]
pub(crate) type SharedQueues = alloc::boxed::Box<[CachePadded<Lock<Queues>>]>;

pub(crate) struct Queues {
    nodes: Paged<Node>,
    queues: Paged<Queue>,
}

impl Queues {
    pub(crate) const fn new() -> Self {
        Queues { nodes: Paged::new(), queues: Paged::new() }
    }

    /// Returns whether there are no waiters, queued or granted, and no queues.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.queues.is_empty()
    }

    /// Makes an empty queue for an entry that is about to get its first waiter, or a limit of its own. `limit` is the
    /// number of permits, if there are permits.
    pub(crate) fn open_queue(&mut self, limit: usize) -> u32 {
        const EMPTY: Queue = Queue {
            lines: [Line { head: NONE, tail: NONE, len: 0, asleep: [NONE; 2], fresh: NONE }; LINES],
            len: 0,
            awake: 0,
            hand_offs: [NONE; 2],
            turns: Turns::new(),
            notes: Notes::new(Notes::NONE, 0),
        };
        self.queues.insert(Queue { notes: Notes::new(Notes::NONE, limit), ..EMPTY })
    }

    /// Returns the rules of a queue: those of the table, with the queue's limit of permits.
    #[inline]
    pub(crate) fn rules_of(&self, queue: u32, rules: &Rules) -> Rules {
        let counted = match rules.counted {
            CountKind::Readers => CountKind::Readers,
            CountKind::Permits(_) => CountKind::Permits(self.queues[queue].notes.limit()),
        };
        Rules { counted, ..*rules }
    }

    /// Returns whether the limit of permits is the key's own.
    pub(crate) fn has_own_limit(&self, queue: u32) -> bool {
        self.queues[queue].notes.says(Notes::OWN)
    }

    /// Sets the limit of permits, and whether it is the key's own. The caller must then admit the waiters.
    pub(crate) fn set_limit(&mut self, queue: u32, limit: usize, own: bool) {
        self.queues[queue].notes = Notes::new(if own { Notes::OWN } else { Notes::NONE }, limit);
    }

    /// Notes whether a writer holds the entry. Called whenever the holds change while there are waiters.
    #[inline]
    pub(crate) fn note(&mut self, queue: u32, holds: Holds) {
        let notes = &mut self.queues[queue].notes;
        // A table with writers has no permits.
        if !notes.says(Notes::OWN) {
            *notes = Notes::new(if holds.writer() { Notes::WRITER } else { Notes::NONE }, notes.limit());
        }
    }

    /// Puts a waiter at its place in the queue: at the end, or before the waiters that its priority lets it pass. A
    /// waiting upgrade continues a hold: it stands at the head.
    pub(crate) fn push(
        &mut self,
        queue: u32,
        want: Want,
        priority: u8,
        presence: Presence,
        rules: &Rules,
        waker: Waker,
    ) -> Ticket {
        let queue = &mut self.queues[queue];
        let (kind, amount) = Kind::of(want);
        let turn = queue.turns.take(priority);
        queue.len += 1;
        let line = &mut queue.lines[kind.line()];
        line.len += 1;
        let prev = line.tail;
        let standing = Standing::new(presence);
        let looks = standing.is_spinning() && rules.hands_over();
        let list = if looks { List::None } else { List::Fresh };
        let index = self.nodes.insert(Node {
            prev,
            next: NONE,
            links: [NONE; 2],
            turn,
            amount,
            kind,
            list,
            standing,
            passed_in_phase: false,
            waker: Some(waker),
        });
        line.tail = index;
        match prev {
            NONE => line.head = index,
            prev => self.nodes[prev].next = index,
        }
        if looks {
            queue.enlist(&mut self.nodes, index, rules);
        } else if line.fresh == NONE {
            line.fresh = index;
        }
        if priority > 0 {
            queue.lines[kind.line()].move_last_forward(&mut self.nodes);
        }
        Ticket(index)
    }

    #[inline]
    pub(crate) fn state(&self, ticket: Ticket) -> WaitState {
        self.nodes[ticket.0].standing.state
    }

    /// Returns whether a waiter came with a priority.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn has_priority(&self, ticket: Ticket) -> bool {
        self.nodes[ticket.0].turn.priority() > 0
    }

    /// Returns whether this waiter, which has not been granted its hold, stands at the head.
    #[inline]
    pub(crate) fn is_head(&self, queue: u32, ticket: Ticket) -> bool {
        self.head(&self.queues[queue]) == ticket.0
    }

    /// Returns the waiter at the head.
    #[inline]
    fn head(&self, queue: &Queue) -> u32 {
        match queue.lines[UPGRADE].head {
            NONE => self.first(queue),
            upgrade => upgrade,
        }
    }

    /// Returns the waiter whose turn comes first, upgrades aside.
    #[inline]
    fn first(&self, queue: &Queue) -> u32 {
        let Queue { lines, len, .. } = queue;
        if lines[WRITERS].len == *len {
            return lines[WRITERS].head;
        }
        self.earlier(self.earlier(lines[WRITERS].head, lines[READERS].head), lines[UPGRADABLE].head)
    }

    /// Returns the sleeping waiter of a line to wake first: the first of those that sleep again, or the first of those
    /// that have been asleep ever since they arrived, whichever turn comes first. (Without priorities, the turn of a
    /// waiter that was woken comes before those of all waiters that have never been woken, because these are woken in
    /// order.)
    #[inline]
    fn first_asleep(&self, line: &Line) -> u32 {
        self.earlier(line.asleep[FIRST], line.fresh)
    }

    /// Returns the one of two waiters whose turn comes first. Either of them may be absent.
    #[inline]
    fn earlier(&self, left: u32, right: u32) -> u32 {
        match (left, right) {
            (left, NONE) => left,
            (NONE, right) => right,
            (left, right) if self.nodes[left].turn.is_before(self.nodes[right].turn) => left,
            (_, right) => right,
        }
    }

    /// Keeps a waiter in the queue after a poll that failed. Replaces its waker by the fresh one in the batch, unless
    /// the old one would wake the same task. The replaced waker is left in the batch, to be dropped outside the lock.
    /// Returns `false` if a fresh waker is needed and there is none.
    pub(crate) fn stay(
        &mut self,
        queue: u32,
        ticket: Ticket,
        waiter: Waiter<'_>,
        rules: &Rules,
        batch: &mut WakeBatch,
    ) -> bool {
        let node = &mut self.nodes[ticket.0];
        if !node.waker.as_ref().is_some_and(|kept| kept.will_wake(waiter.waker)) {
            let Some(fresh) = batch.fresh.take() else { return false };
            batch.old = node.waker.replace(fresh);
        }
        let queue = &mut self.queues[queue];
        if node.standing.is_woken() {
            queue.awake -= node.awake();
        }
        node.standing.stays(waiter.presence);
        queue.enlist(&mut self.nodes, ticket.0, rules);
        true
    }

    /// Returns the number of waiters: an upper bound of the number of wakers that [`Queues::admit`] hands out.
    #[inline]
    pub(crate) fn len(&self, queue: u32) -> usize {
        self.queues[queue].len as usize
    }

    /// Returns the cause to pass to [`Queues::admit`] when this waiter gives up.
    pub(crate) fn cause_of_giving_up(&self, ticket: Ticket) -> Cause {
        let Node { kind, standing, .. } = &self.nodes[ticket.0];
        match standing.state {
            // The waiter was woken in place of others, which must be woken now.
            WaitState::Woken => Cause::Released,
            // The waiter kept out others behind an idle head; one of them is woken.
            _ if *kind == Kind::Permits && standing.was_passed_asleep() => Cause::Released,
            _ => Cause::QueueChanged,
        }
    }

    /// Takes a waiter out of its queue. Returns its waker, to be dropped outside the lock.
    #[inline]
    pub(crate) fn remove(&mut self, queue: u32, ticket: Ticket) -> Option<Waker> {
        self.unlink(queue, ticket.0);
        self.discard(ticket)
    }

    /// Removes a granted waiter, which is in no queue (its queue may no longer exist). Returns its waker, to be dropped
    /// outside the lock.
    #[inline]
    pub(crate) fn discard(&mut self, ticket: Ticket) -> Option<Waker> {
        let waker = self.nodes[ticket.0].waker.take();
        self.nodes.delete(ticket.0);
        waker
    }

    /// Returns whether a newcomer with a priority passes the waiters by its turn: it would stand at the head, or is a
    /// reader that no waiter before it would keep out. The caller has checked that the holds allow it. If it passes,
    /// its turn is counted: a request that passes waiters by its priority makes them rise, whether or not it queues.
    #[cold]
    #[inline(never)]
    pub(crate) fn goes_first(&mut self, queue: u32, priority: u8, holds: Holds, access: Access, rules: &Rules) -> bool {
        let Queue { lines, len, turns, .. } = &self.queues[queue];
        if *len == 0 || lines[UPGRADE].head != NONE {
            return false;
        }
        let turn = turns.next(priority);
        let reads_first = || {
            let front = self.front(&self.heads(queue, Ticket::NONE), holds, rules);
            front.is_some_and(|front| front.has(turn))
        };
        let first = turn.is_before(self.nodes[self.first(&self.queues[queue])].turn)
            || access == Access::Shared && reads_first();
        if first {
            self.queues[queue].turns.take(priority);
        }
        first
    }

    /// Decides whether a newcomer that the holds allow may pass the waiters. If so, counts the bypass, except under
    /// `Barging`, which has no bound.
    ///
    /// Each waiter that is passed has a count of its own. The head counts the bypass if the newcomer would keep waiters
    /// out; sometimes a second waiter behind the head counts it, too.
    pub(crate) fn bypass(&mut self, queue: u32, holds: Holds, access: Access, rules: &Rules) -> bool {
        if self.queues[queue].len == 0 {
            // A queue can be empty if its key has a limit of its own, or if a latch was moved after the futures that
            // waited for it had been forgotten.
            return true;
        }
        match rules.fairness {
            Fairness::Fifo => return false,
            Fairness::Barging => return true,
            Fairness::Adaptive | Fairness::Bounded(_) => {}
        }
        let queue = &self.queues[queue];
        let (head, upgrade) = (self.head(queue), queue.lines[UPGRADE].head);
        // A hold of permits keeps others out if it leaves too few; any other hold keeps them out by its access alone.
        let (beside, writers) = match access {
            Access::Permits(_) => (holds, false),
            _ => (Holds::NONE, queue.lines[WRITERS].len > 0 || upgrade != NONE),
        };
        let keeps_out = writers || !beside.with(access).allow(self.nodes[head].want(), rules.limit());
        // A second waiter that the newcomer would pass, and that would count the bypass, too. Behind a waiting upgrade,
        // this is the first waiter. Behind a head that was woken and is idle, this is the next sleeping writer, if the
        // newcomer is a reader, which would keep it out; or the next request for permits, if the newcomer wants permits
        // and the present holds keep that request out.
        let second = match access {
            _ if upgrade != NONE => self.first(queue),
            _ if !self.nodes[head].standing.is_idle() => NONE,
            Access::Shared | Access::Upgradable => self.first_asleep(&queue.lines[WRITERS]),
            Access::Permits(_) => self.kept_out(queue, holds, rules),
            Access::Exclusive => NONE,
        };
        let passed = [if keeps_out { head } else { NONE }, second].into_iter().filter(|&node| node != NONE);
        let may = passed.clone().all(|node| rules.lets_pass(&self.nodes[node].standing));
        if may {
            passed.for_each(|node| self.nodes[node].standing.is_passed());
        }
        may
    }

    #[inline]
    fn unlink(&mut self, queue: u32, index: u32) {
        let queue = &mut self.queues[queue];
        queue.strike(&mut self.nodes, index);
        let Node { prev, next, kind, ref standing, .. } = self.nodes[index];
        if standing.is_woken() {
            queue.awake -= self.nodes[index].awake();
        }
        queue.len -= 1;
        let line = &mut queue.lines[kind.line()];
        line.len -= 1;
        match prev {
            NONE => line.head = next,
            prev => self.nodes[prev].next = next,
        }
        match next {
            NONE => line.tail = prev,
            next => self.nodes[next].prev = prev,
        }
    }

    /// Calls `see` with all waiters, in the order of the queue. Returns whether a writer holds the key.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn show(&self, queue: u32, rules: &Rules, mut see: impl FnMut(Queued)) -> bool {
        let queue = &self.queues[queue];
        let head = self.head(queue);
        let mut show = |index: u32| {
            let node = &self.nodes[index];
            let passes = node.list == List::HandOff
                && index != head
                && node.may_pass(&self.nodes[head])
                && rules.lets_pass(&self.nodes[head].standing);
            let Node { turn, passed_in_phase, .. } = *node;
            see(Queued { ticket: Ticket(index), turn, want: node.want(), passes, passed_in_phase });
            node.next
        };
        let mut upgrade = queue.lines[UPGRADE].head;
        while upgrade != NONE {
            upgrade = show(upgrade);
        }
        let mut next = [WRITERS, READERS, UPGRADABLE].map(|line| queue.lines[line].head);
        loop {
            let first = next.into_iter().fold(NONE, |first, node| self.earlier(first, node));
            if first == NONE {
                return queue.notes.says(Notes::WRITER);
            }
            next = next.map(|node| if node == first { show(node) } else { node });
        }
    }

    pub(crate) fn waiting(&self, queue: u32, counted: CountKind) -> Waiting {
        let len = |line: usize| self.queues[queue].lines[line].len as usize;
        let (writers, permits) = if counted == CountKind::Readers { (len(WRITERS), 0) } else { (0, len(PERMITS)) };
        Waiting { writers, readers: len(READERS), upgradable: len(UPGRADABLE), permits, upgrades: len(UPGRADE) }
    }
}

/// The front part of a queue, up to the first waiter that readers do not pass.
#[derive(Clone, Copy)]
struct Front {
    end: Option<Turn>,
}

impl Front {
    #[inline]
    fn has(self, turn: Turn) -> bool {
        self.end.is_none_or(|end| turn.is_before(end))
    }
}
