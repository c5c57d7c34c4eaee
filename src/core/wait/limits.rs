//! The limits of permits: the default one, and those that keys have of their own.
//!
//! An entry has a limit of its own exactly as long as its queue says so. Such a queue, and `QUEUED`, stay even while
//! nobody waits, so all requests for the key and all releases pass through the queue lock, and find the limit in the
//! queue. An entry without a queue has the limit that each request passes in: the default one, or the one that the
//! table's function returns for the key. The first waiter records this limit in the queue.

use core::ops::Deref;

use crossbeam_utils::CachePadded;

use super::{
    Needs, Ticket, WaitQueues, WakeBatch,
    policy::{Cause, Rules},
    shards::QueueShards,
    state::{QueueShard, Waited},
    word::{Access, CountKind, Refusal, Want},
};
use crate::sync::{Lock, Ordering};

impl<Q, H: QueueShard> WaitQueues<Q>
where
    Q: Deref<Target = [CachePadded<Lock<H>>]> + QueueShards,
{
    /// Returns the default limit of permits; 0 if there are no permits.
    #[inline]
    pub(in crate::core) fn default_limit(&self) -> usize {
        self.queue_shards.default_limit().map_or(0, |limit| limit.load(Ordering::Relaxed))
    }

    /// Returns the limit of permits for a request that meets no queue.
    #[inline(always)]
    pub(super) fn limit(&self, want: Want, limit: Option<usize>) -> usize {
        match want {
            Want::Hold(Access::Permits(_)) => limit.unwrap_or_else(|| self.default_limit()),
            _ => 0, // not used: this saves the load
        }
    }

    /// Returns the rules for an entry that has a queue. In a semaphore the rules contain the queue's limit of permits,
    /// and are stored in `limited`.
    #[inline(always)]
    pub(super) fn rules_of<'a>(
        &'a self,
        queue_shard: &mut H,
        state: &impl Waited<QueueShard = H>,
        limited: &'a mut Option<Rules>,
    ) -> &'a Rules {
        if self.rules.counted == CountKind::Readers {
            return &self.rules;
        }
        let queue = state.queue(queue_shard);
        limited.insert(queue_shard.queues().rules_of(queue, &self.rules))
    }

    /// Sets the default limit, for all requests that have not begun. The caller must then call
    /// [`adopt_default_limit`](Self::adopt_default_limit) for each entry with waiters.
    ///
    /// A request reads the limit under the queue lock before it waits. If it does so after this call has had the lock,
    /// it reads the new limit. Otherwise the caller finds the request in the queue.
    pub(in crate::core) fn set_default_limit(&self, limit: usize) {
        if let Some(default) = self.queue_shards.default_limit() {
            default.store(limit, Ordering::Relaxed);
        }
        for queue_shard in self.queue_shards.iter() {
            queue_shard.with(|_| {});
        }
    }

    /// Gives an entry with waiters the default limit, unless it has a limit of its own.
    pub(in crate::core) fn adopt_default_limit(&self, state: &impl Waited<QueueShard = H>, batch: &mut WakeBatch) {
        self.step(state, batch, None, |queue_shard, batch| {
            if !state.word().is_queued() {
                return Ok(());
            }
            let queue = state.queue(queue_shard);
            if queue_shard.queues().has_own_limit(queue) {
                return Ok(());
            }
            self.change_limit(queue_shard, state, self.default_limit(), false, batch)
        });
    }

    /// Gives an entry a limit of its own. Returns whether it had none before: if so, the limit now has one of the
    /// caller's claims.
    pub(in crate::core) fn set_own_limit(
        &self,
        state: &impl Waited<QueueShard = H>,
        limit: usize,
        batch: &mut WakeBatch,
    ) -> bool {
        self.step(state, batch, None, |queue_shard, batch| {
            if !state.word().is_queued() {
                let queue = queue_shard.queues().open_queue(limit);
                state.set_queue(queue_shard, queue);
                let updated = state.update(|word| Ok::<_, Refusal>(word.admit(word.holds(), 0, true)));
                debug_assert!(updated.is_ok());
            }
            let queue = state.queue(queue_shard);
            let had_none = !queue_shard.queues().has_own_limit(queue);
            self.change_limit(queue_shard, state, limit, true, batch)?;
            Ok(had_none)
        })
    }

    /// Takes an entry's own limit away. From now on, `limit` applies, or the default limit if it is `None`. Returns
    /// whether the entry had a limit of its own: if so, the limit's claim is now the caller's.
    pub(in crate::core) fn reset_limit(
        &self,
        state: &impl Waited<QueueShard = H>,
        limit: Option<usize>,
        batch: &mut WakeBatch,
    ) -> bool {
        self.step(state, batch, None, |queue_shard, batch| {
            if !state.word().is_queued() {
                return Ok(false);
            }
            let queue = state.queue(queue_shard);
            let had_one = queue_shard.queues().has_own_limit(queue);
            if had_one {
                let limit = limit.unwrap_or_else(|| self.default_limit());
                self.change_limit(queue_shard, state, limit, false, batch)?;
            }
            Ok(had_one)
        })
    }

    /// Changes the limit of an entry with a queue, and admits the waiters that it lets in.
    fn change_limit(
        &self,
        queue_shard: &mut H,
        state: &impl Waited<QueueShard = H>,
        limit: usize,
        own: bool,
        batch: &mut WakeBatch,
    ) -> Result<(), Needs> {
        let queue = state.queue(queue_shard);
        let (queues, holds) = (queue_shard.queues(), state.word().holds());
        let rules = Rules { counted: CountKind::Permits(limit), ..self.rules };
        // Nothing is changed before there is room, so that the step takes effect at one instant.
        if !batch.fits(queues.len(queue)) {
            let most = queues.most_wakers(queue, Ticket::NONE, holds, &rules, Cause::Released);
            if !batch.fits(most) {
                return Err(Needs::Room(most));
            }
        }
        queues.set_limit(queue, limit, own);
        self.admit(queue_shard, state, holds, 0, Cause::Released, batch);
        Ok(())
    }
}
