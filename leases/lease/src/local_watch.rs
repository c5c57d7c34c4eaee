//! Wakes a task when a tenure of a resource begins or ends through this process.

use core::{task::Context, time::Duration};

use crate::{Leases, Resource, engine::Engine};

/// A waker's place on the wait list, which is removed on drop.
pub(crate) struct LocalWatch<'a, E: Engine> {
    leases: &'a Leases<E>,
    resource: &'a Resource,
    id: Option<u32>,
}

impl<'a, E: Engine> LocalWatch<'a, E> {
    pub(crate) fn new(leases: &'a Leases<E>, resource: &'a Resource) -> Self {
        LocalWatch { leases, resource, id: None }
    }

    /// Registers this task to be woken at the next change, or at `due` if nothing changes before. Returns whether there
    /// has been a change, or the due time has come, since the last call.
    pub(crate) fn wake_by(&mut self, due: Option<Duration>, cx: &Context<'_>) -> bool {
        let waker = cx.waker().clone();
        let known = self.id;
        let (watch, has_woken) = self.leases.with_wait_list(|wait_list, deferred| {
            // Under the same lock: a change in between would wake the old waker, and be forgotten.
            let has_woken = known.is_some_and(|id| wait_list.has_woken(id));
            (wait_list.watch(self.resource, known, due, waker, deferred), has_woken)
        });
        self.id = Some(watch);
        has_woken
    }
}

impl<E: Engine> Drop for LocalWatch<'_, E> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        self.leases.with_wait_list(|wait_list, deferred| wait_list.unwatch(id, deferred));
    }
}
