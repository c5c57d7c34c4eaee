//! The time of the server, and whether a lease has expired.

use std::time::Duration;

use keylatch_lease::Clock;

use super::{Put, Session, stored_at};
use crate::{
    error::Error,
    record::{NEVER, Tenure},
    server_time::{Now, Reading},
};

impl Session {
    /// Reads the server's clock.
    pub(super) async fn read_time(&self) -> Result<Reading, Error> {
        let subject = self.place.subjects.clock();
        let from = self.clock.now();
        let Put::Stored(put) = self.put(subject.clone(), None, Vec::new(), None, None).await? else {
            return Err(Error::Closed);
        };
        // The message may have been replaced by a later one from another program.
        let raw = self.message(&serde_json::json!({ "last_by_subj": subject })).await?;
        let raw = raw.filter(|raw| raw.sequence >= put).ok_or(Error::Closed)?;
        let reading = Reading { sequence: raw.sequence, time: stored_at(&raw), from, to: self.clock.now() };
        self.time.read(reading);
        Ok(reading)
    }

    pub(super) async fn now(&self) -> Result<Now, Error> {
        match self.time.now(self.clock.now()) {
            Some(now) => Ok(now),
            None => self.now_anew().await,
        }
    }

    pub(super) async fn now_anew(&self) -> Result<Now, Error> {
        self.read_time().await?.now(self.clock.now(), Duration::MAX).ok_or(Error::Closed)
    }

    /// Returns whether the tenure of the message with this sequence has ended, and the time.
    pub(super) async fn is_over(&self, tenure: &Tenure, sequence: u64) -> Result<(bool, Now), Error> {
        let now = self.now().await?;
        match now.is_past(tenure.end, sequence) {
            _ if tenure.end == NEVER => Ok((false, now)),
            Some(is_past) => Ok((is_past, now)),
            None => {
                let now = self.now_anew().await?;
                Ok((now.is_past(tenure.end, sequence) == Some(true), now))
            }
        }
    }

    /// Returns whether it is certain, without a request, that the tenure has ended.
    pub(super) fn is_surely_over(&self, tenure: &Tenure, sequence: u64) -> bool {
        let now = self.time.now(self.clock.now());
        tenure.end != NEVER && now.and_then(|now| now.is_past(tenure.end, sequence)) == Some(true)
    }

    /// Returns the time, by the clock of this process, until which a tenure that lasts at least `remaining` from `from`
    /// on has certainly not ended.
    pub(super) fn sure(from: Duration, remaining: Option<Duration>) -> Duration {
        remaining.map_or(Duration::MAX, |left| from.saturating_add(left - left / 100))
    }
}
