//! The shared state of an entry, without its key: the word, the tag, and the index of its queue.

use super::queue::Queues;
use super::word::{Unit, Word};
use crate::sync::{AtomicU32, AtomicUsize, Ordering};

/// A lock as this layer sees it: a word, and a queue.
pub(in crate::core) trait Waited {
    /// The data behind a queue lock.
    type QueueShard: QueueShard;

    fn word(&self) -> Word;

    /// Makes the move that `step` returns, and calls `step` again if the word has changed. Returns the new word.
    fn update<E>(&self, step: impl FnMut(Word) -> Result<Word, E>) -> Result<Word, E>;

    /// Returns how many of these claims the word stops counting when their owners get in.
    #[inline(always)]
    fn spends(&self, claims: usize) -> usize {
        claims
    }

    /// Returns a number whose low bits choose the queue lock.
    fn number(&self) -> u32;

    /// Returns the index of the lock's queue. The word must have `QUEUED` set.
    fn queue(&self, queue_shard: &mut Self::QueueShard) -> u32;

    /// Sets the index of the lock's queue.
    fn set_queue(&self, queue_shard: &mut Self::QueueShard, queue: u32);

    /// Forgets the lock's queue, which has been removed.
    #[inline]
    fn forget_queue(&self, queue_shard: &mut Self::QueueShard) {
        let _ = queue_shard;
    }
}

/// The data behind a queue lock: queues, and an index of them if the locks need one.
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
/// This code does not know whose unit a move adds or removes: the caller makes or consumes a token in the same step.
/// (The [slots](crate::core::table) do so for claims and holds.)
pub(in crate::core) struct State {
    word: AtomicUsize,
    /// The stored part of the key's hash. Written only while the slot serves no key.
    tag: AtomicU32,
    /// The index of this entry's queue in its [`Queues`](super::queue::Queues). Used only under the queue lock.
    queue: AtomicU32,
}

impl State {
    /// Makes the state of a slot that serves no key.
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

    /// Begins an entry with one user. Plain stores suffice: no other thread sees the slot before the caller releases
    /// the shard lock.
    #[inline]
    pub(in crate::core) fn begin(&self, tag: u32, unit: Unit) {
        self.tag.store(tag, Ordering::Relaxed);
        self.word.store(Word::born(unit).bits(), Ordering::Relaxed);
    }

    /// Marks the slot as serving no key. A plain store suffices: the caller owns the slot, and others read the word
    /// only under the shard lock, to see whether the slot is live.
    #[inline]
    pub(in crate::core) fn end(&self, dead: Word) {
        self.word.store(dead.bits(), Ordering::Relaxed);
    }

    /// Returns whether the word is `sole`.
    ///
    /// The load is an acquire: everything that former users did with the key happens before the caller drops it.
    #[inline]
    pub(in crate::core) fn is_sole(&self, sole: Word) -> bool {
        self.word.load(Ordering::Acquire) == sole.bits()
    }

    /// Makes the move that `step` returns, and calls `step` again if the word has changed. Returns the new word.
    ///
    /// Acquire: a hold comes after the accesses of earlier holders. Release: the caller's accesses come before later
    /// holds, and before the retirement that drops the key.
    ///
    /// If the move gives up the caller's unit, the slot may be reused or freed at once: then neither this function nor
    /// the caller may touch it afterwards.
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

    /// Sets the word. The caller must be the only one that can change it: it has locked the shard, and no unit except
    /// perhaps its own has a token.
    ///
    /// Release, as in [`update`](State::update). The caller has loaded the word with acquire, in
    /// [`is_sole`](State::is_sole).
    #[inline]
    pub(in crate::core) fn set(&self, word: Word) {
        self.word.store(word.bits(), Ordering::Release);
    }

    /// Replaces the word if it is `old`, without loading it first, which would fetch a contended cache line twice.
    /// Otherwise like [`update`](State::update).
    #[inline]
    pub(in crate::core) fn replace(&self, old: Word, new: Word) -> bool {
        self.word.compare_exchange(old.bits(), new.bits(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Makes the word count units that do not exist. The test must undo it.
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
