//! The subscriptions of a connection. A process receives messages only about the mark and about the resources that it
//! waits for or holds; if it has very many of these, about all resources of the namespace.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError, Weak},
};

use async_nats::{Client, Message, header};
use futures_util::{
    StreamExt,
    stream::{AbortHandle, BoxStream, abortable},
};
use keylatch_lease::Resource;
use keylatch_lease_remote::{Link, Session};
use tokio::{
    runtime::Handle,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use crate::{error::Error, subjects::Subjects};

/// The greatest number of resources with a subscription of their own, each of which takes about 6 KB. A process that
/// needs more subscribes to all resources of the namespace.
const MOST: usize = 1024;

/// The messages of one subscription.
pub(crate) type Topic = BoxStream<'static, Heard>;

/// A republished message.
pub(crate) struct Heard {
    pub(crate) message: Message,
    /// The sequence of the message in the stream.
    pub(crate) sequence: Option<u64>,
    /// Whether the message before it, in the same subscription, had this sequence or a greater one.
    pub(crate) is_behind: bool,
}

/// Returns the sequence of a republished message.
fn sequence(message: &Message) -> Option<u64> {
    message.headers.as_ref()?.get(header::NATS_SEQUENCE)?.as_str().parse().ok()
}

/// A subscription, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Subscription(AbortHandle);

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug, Default)]
struct Begun {
    /// The subscription to all resources.
    all: Option<Subscription>,
    each: HashMap<Resource, Subscription>,
}

impl Begun {
    /// Keeps the subscription to a resource, unless there is one already, which may have messages that the driver has
    /// not received yet. Returns the one that is not needed.
    fn keep(&mut self, resource: &Resource, subscription: Subscription) -> Option<Subscription> {
        if self.all.is_some() || self.each.contains_key(resource) {
            return Some(subscription);
        }
        self.each.insert(resource.clone(), subscription)
    }

    /// Takes out the subscriptions that are not needed: to resources that are not wanted, or to each resource if there
    /// is one to all of them.
    fn take_unneeded(&mut self, is_wanted: impl Fn(&Resource) -> bool) -> Vec<Subscription> {
        let is_unneeded = |resource: &&Resource| self.all.is_some() || !is_wanted(resource);
        let unneeded: Vec<_> = self.each.keys().filter(is_unneeded).cloned().collect();
        unneeded.iter().filter_map(|resource| self.each.remove(resource)).collect()
    }
}

pub(crate) struct Topics<S: Session> {
    client: Client,
    subjects: Subjects,
    link: Weak<Link<S>>,
    /// The runtime of the client.
    runtime: Handle,
    /// The driver, which receives the messages.
    driver: UnboundedSender<Topic>,
    _mark: Option<Subscription>,
    begun: Mutex<Begun>,
}

impl<S: Session> Topics<S> {
    /// Subscribes to the mark, and to the resources that somebody waits for or holds already. Must be called on the
    /// runtime of the client.
    pub(crate) async fn open(
        client: Client,
        subjects: Subjects,
        link: Weak<Link<S>>,
    ) -> Result<(Self, UnboundedReceiver<Topic>), Error> {
        let (driver, topics) = unbounded_channel();
        let runtime = Handle::current();
        let mut opened = Topics { client, subjects, link, runtime, driver, _mark: None, begun: Mutex::default() };
        opened._mark = Some(opened.subscribe(opened.subjects.told_mark()).await?);
        let wanted = opened.link.upgrade().map_or_else(Vec::new, |link| link.watchers().wanted());
        let mut begun = Begun::default();
        if wanted.len() >= MOST {
            begun.all = Some(opened.subscribe(opened.subjects.told_all()).await?);
        } else {
            for resource in wanted {
                let subscription = opened.subscribe(opened.subjects.told(&resource)).await?;
                begun.each.insert(resource, subscription);
            }
        }
        opened.begun = Mutex::new(begun);
        Ok((opened, topics))
    }

    fn lock(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a subscription, which the caller must keep.
    pub(crate) async fn subscribe(&self, subject: String) -> Result<Subscription, Error> {
        let subscriber = self.client.subscribe(subject).await.map_err(|_| Error::Closed)?;
        let mut last = 0;
        let (topic, subscription) = abortable(subscriber.map(move |message| {
            let sequence = sequence(&message);
            let is_behind = sequence.is_some_and(|sequence| sequence <= last);
            last = sequence.unwrap_or(last);
            Heard { message, sequence, is_behind }
        }));
        // If the driver has ended, the subscriber is dropped here, and that needs its runtime.
        let _runtime = self.runtime.enter();
        let _ = self.driver.send(topic.boxed());
        Ok(Subscription(subscription))
    }

    /// Returns whether somebody waits for the resource or holds it, and there is no subscription yet.
    pub(crate) fn lacks(&self, resource: &Resource) -> bool {
        if !self.link.upgrade().is_some_and(|link| link.watchers().wants(resource)) {
            return false;
        }
        let begun = self.lock();
        begun.all.is_none() && !begun.each.contains_key(resource)
    }

    /// Returns whether there is room for another resource with a subscription of its own.
    pub(crate) fn has_room(&self) -> bool {
        let count = self.lock().each.len();
        // Half of the room must become free, so that this does not happen often.
        count < MOST || self.tidy() <= MOST / 2
    }

    /// Ends the subscriptions to resources that nobody waits for or holds, or, if there is a subscription to all,
    /// those to all single resources. Returns the number of subscriptions to single resources that remain.
    pub(crate) fn tidy(&self) -> usize {
        let Some(link) = self.link.upgrade() else { return 0 };
        let watchers = link.watchers();
        let (ended, count) = {
            let mut begun = self.lock();
            (begun.take_unneeded(|resource| watchers.wants(resource)), begun.each.len())
        };
        drop(ended); // this wakes the driver
        count
    }

    /// Keeps the subscription to a resource.
    pub(crate) fn keep(&self, resource: &Resource, subscription: Subscription) {
        let unneeded = self.lock().keep(resource, subscription);
        drop(unneeded); // this wakes the driver
    }

    /// Keeps the subscription to all resources. The others, which may have messages that the driver has not received
    /// yet, end by the next pulse.
    pub(crate) fn keep_all(&self, subscription: Subscription) {
        let unneeded = self.lock().all.replace(subscription);
        drop(unneeded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription() -> (Subscription, AbortHandle) {
        let (handle, _) = AbortHandle::new_pair();
        (Subscription(handle.clone()), handle)
    }

    #[test]
    fn the_first_of_two_subscriptions_to_a_resource_stays() {
        let (mut begun, a) = (Begun::default(), Resource::from("a"));
        let ((first, first_handle), (second, second_handle)) = (subscription(), subscription());
        assert!(begun.keep(&a, first).is_none());
        drop(begun.keep(&a, second));
        assert!(!first_handle.is_aborted() && second_handle.is_aborted());
    }

    #[test]
    fn a_subscription_to_all_replaces_the_others_only_when_they_are_tidied_up() {
        let (mut begun, a, b) = (Begun::default(), Resource::from("a"), Resource::from("b"));
        let (of_a, handle) = subscription();
        assert!(begun.keep(&a, of_a).is_none());
        begun.all = Some(subscription().0);
        assert!(begun.keep(&b, subscription().0).is_some());
        assert!(!handle.is_aborted());
        assert_eq!(begun.take_unneeded(|_| true).len(), 1);
        assert!(handle.is_aborted() && begun.each.is_empty());
    }

    #[test]
    fn subscriptions_to_resources_that_nobody_wants_are_tidied_up() {
        let (mut begun, a, b) = (Begun::default(), Resource::from("a"), Resource::from("b"));
        let ((of_a, a_handle), (of_b, b_handle)) = (subscription(), subscription());
        assert!(begun.keep(&a, of_a).is_none() && begun.keep(&b, of_b).is_none());
        assert_eq!(begun.take_unneeded(|resource| *resource == a).len(), 1);
        assert!(!a_handle.is_aborted() && b_handle.is_aborted());
    }
}
