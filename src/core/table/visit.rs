//! Visiting entries.

use alloc::vec::Vec;

use equivalent::Equivalent;

use super::Core;
use super::lookup::{Key, full};
use super::payload::Payload;
use super::shard::Stored;
use super::slot::{Claim, Live};
use crate::core::wait::word::Refusal;
use crate::core::wait::{Snapshot, Want};
use crate::sync::give_way;
use crate::wait_event::{WaitId, WaitPhase};

/// The number of slots visited at a time under the shard lock, which is released in between.
const LOOKED_AT: u32 = 256;

impl<K, V: Payload> Core<K, V> {
    /// Returns the number of live entries and values at rest, added up shard by shard.
    pub(crate) fn len(&self) -> usize {
        self.shards().iter().map(|shard| shard.with(|shard| shard.len())).sum()
    }

    pub(crate) fn snapshot<Q: ?Sized + Equivalent<K>>(&self, key: &Key<'_, Q>) -> Option<Snapshot> {
        self.shard(key.tag).with(|shard| {
            Some(match shard.look_up(key.tag, |other| key.key.equivalent(other))? {
                Stored::Entry(entry, _) => self.waits.snapshot(entry.state()),
                Stored::AtRest(_) => self.waits.snapshot_unused(),
            })
        })
    }

    /// Visits the live entries, shard by shard, outside the locks: each is claimed while it is visited.
    ///
    /// # Panics
    /// If an entry has [`MAX_UNITS`](crate::core::MAX_UNITS) units.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&K, Snapshot)) {
        self.visit(
            |entry| Some(self.waits.snapshot(entry.state())),
            |mut visited, snapshot| {
                if let Some(claim) = visited.claim() {
                    visit(claim.live().key(), snapshot);
                }
            },
        );
    }

    /// Calls `pick` for each live entry, under the shard lock, and claims the entries that it picks. Then calls `visit`
    /// for these outside the locks. Proceeds shard by shard.
    ///
    /// # Panics
    /// If an entry has [`MAX_UNITS`](crate::core::MAX_UNITS) units.
    pub(crate) fn visit<R>(
        &self,
        pick: impl Fn(Live<'_, K, V>) -> Option<R>,
        mut visit: impl FnMut(Visit<'_, K, V>, R),
    ) {
        let mut visits = Vec::new();
        for (index, shard) in self.shards().iter().enumerate() {
            let gathered = self.gather(index);
            // Claimed entries keep their slots, so no entry is visited twice.
            let mut next = 0_u32;
            let mut left = shard.with(|shard| shard.len());
            while left > 0 {
                visits.reserve(left.min(LOOKED_AT as usize));
                let claimed = shard.with(|shard| {
                    let end = shard.end();
                    let until = end.min(next.saturating_add(LOOKED_AT));
                    while next < until {
                        if let Some((entry, picked)) = shard.look_at(next).and_then(|entry| Some((entry, pick(entry)?)))
                        {
                            if visits.len() == visits.capacity() {
                                break; // nothing is allocated under the lock
                            }
                            let claim = self.join_as_claim(entry)?.into_claim();
                            visits.push((Visit { core: self, claim: Some(claim) }, picked));
                        }
                        next += 1;
                    }
                    left = if next < end { shard.len() } else { 0 };
                    Ok::<_, Refusal>(())
                });
                if claimed.is_err() {
                    full();
                }
                if left > 0 {
                    give_way();
                }
            }
            for (visited, picked) in visits.drain(..) {
                visit(visited, picked);
            }
            drop(gathered);
        }
    }
}

impl<K, V: Payload> Core<K, V> {
    /// Returns a claim with which a request that gives up can report the end of its wait after everything else. If the
    /// entry has no room for a claim, reports the end now, which is early, and returns `None`.
    pub(crate) fn ending(&self, entry: Live<'_, K, V>, want: Want, id: WaitId) -> Option<Ending<'_, K, V>> {
        match self.join_as_claim(entry) {
            Ok(unit) => Some(Ending { visit: Visit { core: self, claim: Some(unit.into_claim()) }, want, id }),
            Err(_) => {
                self.tell(entry, want, WaitPhase::GivenUp, id);
                None
            }
        }
    }
}

/// A wait that has been given up and whose end has not been reported.
pub(crate) struct Ending<'a, K, V: Payload> {
    visit: Visit<'a, K, V>,
    want: Want,
    id: WaitId,
}

impl<K, V: Payload> Ending<'_, K, V> {
    /// Reports the end. The caller holds no lock, and has woken the admitted waiters.
    pub(crate) fn tell(self) {
        if let Some(claim) = &self.visit.claim {
            self.visit.core.tell(claim.live(), self.want, WaitPhase::GivenUp, self.id);
        }
    }
}

/// A claim that keeps an entry while it is visited. Dropping this gives up the claim.
pub(crate) struct Visit<'a, K, V: Payload> {
    core: &'a Core<K, V>,
    claim: Option<Claim<K, V>>,
}

impl<'a, K, V: Payload> Visit<'a, K, V> {
    pub(super) fn new(core: &'a Core<K, V>, claim: Claim<K, V>) -> Self {
        Visit { core, claim: Some(claim) }
    }

    pub(crate) fn claim(&mut self) -> &mut Option<Claim<K, V>> {
        &mut self.claim
    }
}

impl<K, V: Payload> Drop for Visit<'_, K, V> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.core.withdraw(claim);
        }
    }
}
