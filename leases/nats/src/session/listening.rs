//! The subscription to a resource, before the first request about it.

use keylatch_lease::Resource;

use super::{Session, is_full};
use crate::error::Error;

impl Session {
    /// Subscribes to the messages about the resource, if somebody waits for it or holds it. If a request is sent
    /// afterwards, no message that is stored after its answer is missed.
    pub(crate) async fn listen(&self, resource: &Resource) -> Result<(), Error> {
        if self.topics.lacks(resource) {
            Box::pin(self.begin_to_listen(resource)).await?;
        }
        Ok(())
    }

    async fn begin_to_listen(&self, resource: &Resource) -> Result<(), Error> {
        let topics = &self.topics;
        let is_own = topics.has_room();
        let subjects = &self.place.subjects;
        let subject = if is_own { subjects.told(resource) } else { subjects.told_all() };
        let subscription = topics.subscribe(subject).await?;
        if !self.is_alone {
            self.follow().await?;
        }
        if is_own {
            topics.keep(resource, subscription);
        } else {
            topics.keep_all(subscription);
        }
        Ok(())
    }

    /// Waits until the node that leads the stream knows of the subscriptions. The nodes forward a client's messages
    /// after its subscriptions, but forward requests about the stream in another way.
    async fn follow(&self) -> Result<(), Error> {
        match self.put(self.place.subjects.clock(), None, Vec::new(), None, None).await {
            Err(error) if is_full(&error) => Ok(()),
            stored => stored.map(|_| ()),
        }
    }
}
