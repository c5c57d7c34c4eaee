//! The subscribers of a resource. They are notified when it becomes free, or when a tenure of it has ended.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use keylatch_lease::{Lost, Resource, Token, engine::Notice};

/// The waiters and holders of each resource. An engine whose server sends messages implements
/// [`Engine::watch`](keylatch_lease::engine::Engine::watch) and
/// [`Engine::subscribe`](keylatch_lease::engine::Engine::subscribe) with it.
///
/// # Examples
/// ```
/// use futures_lite::future::block_on;
/// use keylatch_lease::Resource;
/// use keylatch_lease_remote::Watchers;
///
/// let watchers = Watchers::default();
/// let report = Resource::from("report");
/// let watch = watchers.watch(&report);
/// watchers.tell(&report);
/// block_on(watch);
/// ```
#[derive(Default)]
pub struct Watchers {
    flags: Mutex<HashMap<Resource, Vec<Arc<Flag>>>>,
    notices: Mutex<HashMap<Resource, Vec<Arc<Notice>>>>,
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").finish_non_exhaustive()
    }
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

    /// Returns a future that is ready once the resource is reported as possibly free. Only reports after this call
    /// count.
    ///
    /// # Examples
    /// See [`Watchers`].
    #[must_use = "a watch ends when it is dropped"]
    pub fn watch(&self, resource: &Resource) -> Watch<'_> {
        let flag = Arc::new(Flag::default());
        self.lock().entry(resource.clone()).or_default().push(Arc::clone(&flag));
        Watch { watchers: self, resource: resource.clone(), flag }
    }

    fn notices(&self) -> MutexGuard<'_, HashMap<Resource, Vec<Arc<Notice>>>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes a notice to the ends of the resource's tenures.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch_lease::{Lost, Resource, Token, engine::Notice};
    /// use keylatch_lease_remote::Watchers;
    ///
    /// let (watchers, report, notice) = (Watchers::default(), Resource::from("report"), Arc::new(Notice::new()));
    /// watchers.subscribe(&report, &notice);
    /// let token = Token::new(7).unwrap();
    /// watchers.tell_end(&report, token, Lost::Released);
    /// assert_eq!(notice.lost(token), Some(Lost::Released));
    /// watchers.unsubscribe(&report, &notice);
    /// ```
    pub fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        self.notices().entry(resource.clone()).or_default().push(Arc::clone(notice));
    }

    /// Unsubscribes a notice.
    ///
    /// # Examples
    /// See [`subscribe`](Self::subscribe).
    pub fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        let mut all = self.notices();
        if let Some(notices) = all.get_mut(resource) {
            notices.retain(|other| !Arc::ptr_eq(other, notice));
            if notices.is_empty() {
                all.remove(resource);
            }
        }
    }

    /// Reports that the resource may have become free, and that its holders must look again.
    ///
    /// # Examples
    /// See [`Watchers`].
    pub fn tell(&self, resource: &Resource) {
        self.raise(resource);
        let notices = self.notices().get(resource).cloned().unwrap_or_default();
        notices.iter().for_each(|notice| notice.doubt());
    }

    /// Reports that this tenure of the resource and all earlier ones have ended, and how this one ended.
    ///
    /// # Examples
    /// See [`subscribe`](Self::subscribe).
    pub fn tell_end(&self, resource: &Resource, token: Token, how: Lost) {
        self.tell_holders(resource, token, how); // before another owner can get the resource
        self.raise(resource);
    }

    /// Reports an end like [`tell_end`](Self::tell_end), but only to the holders. This is for an end that has not freed
    /// the resource, and will not free it earlier than before, so waiters need not know of it.
    ///
    /// # Examples
    /// ```
    /// use futures_lite::future::{block_on, poll_once};
    /// use keylatch_lease::{Lost, Resource, Token};
    /// use keylatch_lease_remote::Watchers;
    ///
    /// let (watchers, report) = (Watchers::default(), Resource::from("report"));
    /// let mut watch = watchers.watch(&report);
    /// watchers.tell_holders(&report, Token::new(7).unwrap(), Lost::TakenOver);
    /// assert!(block_on(poll_once(&mut watch)).is_none());
    /// ```
    pub fn tell_holders(&self, resource: &Resource, token: Token, how: Lost) {
        let notices = self.notices().get(resource).cloned().unwrap_or_default();
        notices.iter().for_each(|notice| notice.ended(token, how));
    }

    fn raise(&self, resource: &Resource) {
        let flags = self.lock().remove(resource).unwrap_or_default();
        flags.iter().for_each(|flag| flag.raise());
    }

    /// Reports that messages may have been lost, so all waiters and holders look again.
    ///
    /// # Examples
    /// ```
    /// use futures_lite::future::block_on;
    /// use keylatch_lease::Resource;
    /// use keylatch_lease_remote::Watchers;
    ///
    /// let watchers = Watchers::default();
    /// let watch = watchers.watch(&Resource::from("report"));
    /// watchers.tell_all();
    /// block_on(watch);
    /// ```
    pub fn tell_all(&self) {
        let flags = std::mem::take(&mut *self.lock());
        flags.values().flatten().for_each(|flag| flag.raise());
        let notices: Vec<_> = self.notices().values().flatten().cloned().collect();
        Notice::doubt_all(notices.iter().map(|notice| &**notice));
    }

    /// Returns whether the resource has a waiter or a holder to notify.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch_lease::{Resource, engine::Notice};
    /// use keylatch_lease_remote::Watchers;
    ///
    /// let (watchers, report, notice) = (Watchers::default(), Resource::from("report"), Arc::new(Notice::new()));
    /// watchers.subscribe(&report, &notice);
    /// assert!(watchers.wants(&report));
    /// watchers.unsubscribe(&report, &notice);
    /// assert!(!watchers.wants(&report));
    /// ```
    #[must_use]
    pub fn wants(&self, resource: &Resource) -> bool {
        self.has(resource) || self.notices().contains_key(resource)
    }

    /// Returns the resources that have a waiter or a holder to notify, in any order.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::Resource;
    /// use keylatch_lease_remote::Watchers;
    ///
    /// let (watchers, report) = (Watchers::default(), Resource::from("report"));
    /// let watch = watchers.watch(&report);
    /// assert_eq!(watchers.wanted(), [report]);
    /// drop(watch);
    /// assert!(watchers.wanted().is_empty());
    /// ```
    #[must_use]
    pub fn wanted(&self) -> Vec<Resource> {
        let mut wanted: HashSet<Resource> = self.lock().keys().cloned().collect();
        wanted.extend(self.notices().keys().cloned());
        wanted.into_iter().collect()
    }

    /// Returns whether the resource has a waiter.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::Resource;
    /// use keylatch_lease_remote::Watchers;
    ///
    /// let (watchers, report) = (Watchers::default(), Resource::from("report"));
    /// let watch = watchers.watch(&report);
    /// assert!(watchers.has(&report));
    /// drop(watch);
    /// assert!(!watchers.has(&report));
    /// ```
    #[must_use]
    pub fn has(&self, resource: &Resource) -> bool {
        self.lock().contains_key(resource)
    }
}

/// A future that is ready when the resource may have become free: see [`Watchers::watch`].
///
/// # Examples
/// See [`Watchers`].
pub struct Watch<'a> {
    watchers: &'a Watchers,
    resource: Resource,
    flag: Arc<Flag>,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("resource", &self.resource).finish_non_exhaustive()
    }
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

#[cfg(test)]
mod tests {
    use super::Watchers;
    use futures_lite::future::{block_on, poll_once};
    use keylatch_lease::{Resource, engine::Notice};
    use std::{pin::pin, sync::Arc, thread};

    #[test]
    fn only_the_watches_of_a_resource_are_notified() {
        let watchers = Watchers::default();
        let (a, b) = (Resource::from("a"), Resource::from("b"));
        let (mut first, mut second) = (pin!(watchers.watch(&a)), pin!(watchers.watch(&a)));
        let mut other = pin!(watchers.watch(&b));
        assert_eq!(block_on(poll_once(first.as_mut())), None);
        watchers.tell(&a);
        let mut late = pin!(watchers.watch(&a));
        assert_eq!(block_on(poll_once(first.as_mut())), Some(()));
        assert_eq!(block_on(poll_once(second.as_mut())), Some(()));
        assert_eq!(block_on(poll_once(other.as_mut())), None);
        assert_eq!(block_on(poll_once(late.as_mut())), None);
    }

    #[test]
    fn a_dropped_watch_leaves_no_entry() {
        let watchers = Watchers::default();
        let a = Resource::from("a");
        let (first, second) = (watchers.watch(&a), watchers.watch(&a));
        drop(first);
        assert!(watchers.has(&a));
        drop(second);
        let told = watchers.watch(&a);
        watchers.tell(&a);
        drop(told);
        assert!(watchers.lock().is_empty());
    }

    #[test]
    fn a_resource_is_wanted_while_it_has_a_waiter_or_a_holder() {
        let watchers = Watchers::default();
        let (a, notice) = (Resource::from("a"), Arc::new(Notice::new()));
        assert!(!watchers.wants(&a) && watchers.wanted().is_empty());
        let watch = watchers.watch(&a);
        watchers.subscribe(&a, &notice);
        assert!(watchers.wants(&a));
        assert_eq!(watchers.wanted(), std::slice::from_ref(&a));
        drop(watch);
        assert!(watchers.wants(&a));
        assert_eq!(watchers.wanted(), std::slice::from_ref(&a));
        watchers.unsubscribe(&a, &notice);
        assert!(!watchers.wants(&a) && watchers.wanted().is_empty());
    }

    #[test]
    fn a_watch_on_another_thread_is_notified() {
        let watchers = &Watchers::default();
        let a = &Resource::from("a");
        for _ in 0..1000 {
            thread::scope(|scope| {
                let watch = watchers.watch(a);
                scope.spawn(|| block_on(watch));
                watchers.tell(a);
            });
        }
    }
}
