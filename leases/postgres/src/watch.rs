//! Who is to be told when a resource comes free.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use keylatch_lease::Resource;

/// Those who watch, by what they watch.
#[derive(Default)]
pub(crate) struct Watchers {
    flags: Mutex<HashMap<Resource, Vec<Arc<Flag>>>>,
}

#[derive(Default)]
struct Flag(Mutex<(bool, Option<Waker>)>);

impl Flag {
    fn lock(&self) -> MutexGuard<'_, (bool, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn raise(&self) {
        let waker = {
            let mut state = self.lock();
            state.0 = true;
            state.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Resource, Vec<Arc<Flag>>>> {
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From this call on.
    pub(crate) fn watch(&self, resource: &Resource) -> Watch<'_> {
        let flag = Arc::new(Flag::default());
        self.lock().entry(resource.clone()).or_default().push(Arc::clone(&flag));
        Watch { watchers: self, resource: resource.clone(), flag }
    }

    pub(crate) fn tell(&self, resource: &Resource) {
        let flags = self.lock().remove(resource).unwrap_or_default();
        flags.iter().for_each(|flag| flag.raise());
    }

    /// For when something may have been missed.
    pub(crate) fn tell_all(&self) {
        let flags = std::mem::take(&mut *self.lock());
        flags.values().flatten().for_each(|flag| flag.raise());
    }
}

/// Ready when the resource may have come free.
pub(crate) struct Watch<'a> {
    watchers: &'a Watchers,
    resource: Resource,
    flag: Arc<Flag>,
}

impl Future for Watch<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.flag.lock();
        if state.0 {
            return Poll::Ready(());
        }
        let before = state.1.replace(cx.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut flags = self.watchers.lock();
        if let Some(watching) = flags.get_mut(&self.resource) {
            watching.retain(|flag| !Arc::ptr_eq(flag, &self.flag));
            if watching.is_empty() {
                flags.remove(&self.resource);
            }
        }
    }
}
