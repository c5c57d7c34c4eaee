//! The shared state of an entry, without its key: the word, and where its queue is.

use super::queue::Queues;
use super::word::{Unit, Word};
use crate::sync::{AtomicU32, AtomicUsize, Ordering};

/// A thing that can be waited for, as this layer knows it: a word, and the place of its queue.
pub(in crate::core) trait Waited {
    /// The data behind a queue lock.
    type QueueShard: QueueShard;

    fn word(&self) -> Word;

    /// Makes the move that `step` says, which may be asked again and again. Returns the new word.
    fn update<E>(&self, step: impl FnMut(Word) -> Result<Word, E>) -> Result<Word, E>;

    /// The number of these claims that become holds, and no longer count as claims, when their owners get in.
    #[inline(always)]
    fn spends(&self, claims: usize) -> usize {
        claims
    }

    /// A number by whose low bits the queue lock is chosen.
    fn number(&self) -> u32;

    /// Its queue, while the word says that somebody waits.
    fn queue(&self, queue_shard: &mut Self::QueueShard) -> u32;

    /// This is its queue from now on.
    fn set_queue(&self, queue_shard: &mut Self::QueueShard, queue: u32);

    /// It has no queue any more.
    #[inline]
    fn forget_queue(&self, queue_shard: &mut Self::QueueShard) {
        let _ = queue_shard;
    }
}

/// Queues, and whatever leads to them.
pub(in crate::core) trait QueueShard {
    fn queues(&mut self) -> &mut Queues;
}

impl QueueShard for Queues {
    #[inline]
    fn queues(&mut self) -> &mut Queues {
        self
    }
}

/// The atomic state of an entry.
///
/// Nothing here knows whose unit a move adds or takes away: whoever changes their number makes a token, or uses one up, in
/// the same step. (The [slots](crate::core::table) do so for claims and holds.)
pub(in crate::core) struct State {
    word: AtomicUsize,
    /// The stored part of the key's hash. Written only while the slot serves no key.
    tag: AtomicU32,
    /// Which queue of its [`Queues`](super::queue::Queues) is this entry's. Read and written under the queue lock only.
    queue: AtomicU32,
}

impl State {
    /// Of a slot that serves no key.
    pub(in crate::core) fn dead() -> State {
        State { word: AtomicUsize::new(Word::DEAD.bits()), tag: AtomicU32::new(0), queue: AtomicU32::new(0) }
    }

    #[inline]
    pub(in crate::core) fn word(&self) -> Word {
        Word::from_bits(self.word.load(Ordering::Relaxed))
    }

    #[inline]
    pub(in crate::core) fn tag(&self) -> u32 {
        self.tag.load(Ordering::Relaxed)
    }

    /// The slot serves a key from now on, with one user. By plain stores: nobody else sees it before the shard lock, which the
    /// caller holds, is released.
    #[inline]
    pub(in crate::core) fn begin(&self, tag: u32, unit: Unit) {
        self.tag.store(tag, Ordering::Relaxed);
        self.word.store(Word::born(unit).bits(), Ordering::Relaxed);
    }

    /// The slot serves no key (any more). By a plain store: only its owner looks at it.
    #[inline]
    pub(in crate::core) fn end(&self, dead: Word) {
        self.word.store(dead.bits(), Ordering::Relaxed);
    }

    /// Whether all that the word counts is `sole`.
    ///
    /// Acquire: what others did with the key before they left comes before its drop.
    #[inline]
    pub(in crate::core) fn is_sole(&self, sole: Word) -> bool {
        self.word.load(Ordering::Acquire) == sole.bits()
    }

    /// Makes the move that `step` says, which may be asked again and again. Returns the new word.
    ///
    /// Acquire: a hold comes after what earlier holders did. Release: what we did comes before later holds, and before the
    /// retirement that drops the key.
    ///
    /// If the move gives up the caller's unit the slot may be somebody else's, or freed, as soon as it is made: then nothing
    /// of it is touched afterwards, here or by the caller.
    #[inline]
    pub(in crate::core) fn update<E>(&self, mut step: impl FnMut(Word) -> Result<Word, E>) -> Result<Word, E> {
        let mut old = self.word();
        loop {
            let new = step(old)?;
            debug_assert!(new.units() > 0, "the last unit is given up by a retirement only");
            match self.word.compare_exchange_weak(old.bits(), new.bits(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(new),
                Err(now) => old = Word::from_bits(now),
            }
        }
    }

    /// Makes one certain move, if the word is one certain word: without a look at it first, which would fetch its cache line twice
    /// where others change it, too. As for the rest, see [`update`](State::update).
    #[inline]
    pub(in crate::core) fn replace(&self, old: Word, new: Word) -> bool {
        self.word.compare_exchange(old.bits(), new.bits(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Changes the word so that it seems to count other units than there are. The test that does so undoes it.
    #[cfg(test)]
    pub(in crate::core) fn pretend(&self, step: impl Fn(Word) -> Word) {
        self.word.store(step(self.word()).bits(), Ordering::Relaxed);
    }
}

impl Waited for State {
    type QueueShard = Queues;

    #[inline(always)]
    fn word(&self) -> Word {
        State::word(self)
    }

    #[inline(always)]
    fn update<E>(&self, step: impl FnMut(Word) -> Result<Word, E>) -> Result<Word, E> {
        State::update(self, step)
    }

    #[inline(always)]
    fn number(&self) -> u32 {
        self.tag()
    }

    #[inline(always)]
    fn queue(&self, _: &mut Queues) -> u32 {
        self.queue.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set_queue(&self, _: &mut Queues, queue: u32) {
        self.queue.store(queue, Ordering::Relaxed);
    }
}
