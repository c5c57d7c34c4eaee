//! The mark of a stream: which stream it is, and what may have been forgotten in it.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use keylatch_lease::Clock;

use super::{ABOUT, Before, Place, Put, Session};
use crate::{error::Error, mark::Mark, server_time::FRESH};

impl Session {
    /// Looks at the namespace's mark. If there is none, or it is not that of this stream, or the stream has gone back, something may have been
    /// forgotten: then there is a new one, and nothing is granted until what was granted has ended.
    pub(super) async fn recall(&self, last: u64) -> Result<(), Error> {
        let (stream, run) = &self.origin;
        let Place { quarantine, trusts, before, .. } = &*self.place;
        let has_gone_back = |mark: &Mark| {
            let before = before.lock().unwrap_or_else(PoisonError::into_inner);
            before.as_ref().is_some_and(|before| before.mark.is_same(mark) && last < before.seen.get())
        };
        loop {
            let (behind, found) = self.find_mark().await?;
            let mark = match found {
                Some(mark) if mark.stream == *stream && (*trusts || mark.run == *run) && !has_gone_back(&mark) => mark,
                found => {
                    let now = self.now_anew().await?.latest;
                    let until = now.saturating_add(u64::try_from(quarantine.as_nanos()).unwrap_or(u64::MAX));
                    let new = Mark::new(stream, run, until, now, found.as_ref());
                    if !self.put_mark(behind, &new).await? {
                        continue;
                    }
                    new
                }
            };
            let known = Before { mark: mark.clone(), seen: Arc::clone(&self.seen) };
            *before.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
            self.keep_mark(mark);
            return Ok(());
        }
    }

    pub(super) fn known_mark(&self) -> Option<Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn keep_mark(&self, mark: Mark) {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark);
    }

    /// The mark, and its sequence. Zero: there is none.
    pub(super) async fn find_mark(&self) -> Result<(u64, Option<Mark>), Error> {
        match self.message(&serde_json::json!({ "last_by_subj": self.place.subjects.mark() })).await? {
            None => Ok((0, None)),
            Some(raw) => {
                let mark = STANDARD.decode(&raw.payload).ok().and_then(|bytes| Mark::from_bytes(&bytes));
                Ok((raw.sequence, Some(mark.ok_or(Error::Foreign)?)))
            }
        }
    }

    /// Whether nobody else has written one meanwhile.
    pub(super) async fn put_mark(&self, behind: u64, mark: &Mark) -> Result<bool, Error> {
        let put = self
            .put(self.place.subjects.mark(), Some(behind), mark.to_bytes(), None, (behind == 0).then_some(0))
            .await?;
        Ok(matches!(put, Put::Stored(_)))
    }

    /// The stream is not what it was, and it is not known what became of a request: another connection is to look what has been forgotten.
    pub(super) fn is_another(&self) -> Error {
        self.end.bring();
        Error::Closed
    }

    /// The mark as it is now, if nothing has been forgotten since it was first read.
    pub(super) async fn same_mark(&self) -> Result<(u64, Mark), Error> {
        let (sequence, found) = self.find_mark().await?;
        match (found, self.known_mark()) {
            (Some(found), Some(known)) if found.is_same(&known) => Ok((sequence, found)),
            _ => Err(self.is_another()),
        }
    }

    /// Changes the mark, unless there is nothing to be changed.
    pub(super) async fn change_mark(&self, change: impl Fn(&mut Mark)) -> Result<(), Error> {
        loop {
            let (behind, mark) = self.same_mark().await?;
            let mut new = mark.clone();
            change(&mut new);
            if new == mark || self.put_mark(behind, &new).await? {
                self.keep_mark(new);
                return Ok(());
            }
        }
    }

    /// Nothing has been forgotten that anybody still goes by.
    pub(crate) async fn end_quarantine(&self) -> Result<(), Error> {
        self.marked().await?;
        self.change_mark(|mark| mark.until = 0).await
    }

    /// The mark as it was read last. If it could not be written because there was no room, that is tried again.
    pub(super) async fn marked(&self) -> Result<Mark, Error> {
        loop {
            if let Some(mark) = self.known_mark() {
                return Ok(mark);
            }
            // A rare path is boxed: it would make all futures large.
            Box::pin(async { self.recall(self.last_sequence().await?).await }).await?;
        }
    }

    /// For how long nothing is granted, if that is so.
    pub(super) async fn quarantined(&self) -> Result<Option<Duration>, Error> {
        match self.marked().await?.until {
            0 => Ok(None),
            _ => Box::pin(self.quarantine_left()).await,
        }
    }

    /// Somebody may have ended it meanwhile.
    pub(super) async fn quarantine_left(&self) -> Result<Option<Duration>, Error> {
        let (_, mut mark) = self.same_mark().await?;
        let now = self.now().await?.earliest;
        let left = Duration::from_nanos(mark.until.saturating_sub(now));
        if left > self.place.quarantine.saturating_add(FRESH) {
            // The clock has been set back since.
            let until = now.saturating_add(u64::try_from(self.place.quarantine.as_nanos()).unwrap_or(u64::MAX));
            self.change_mark(|mark| mark.until = mark.until.min(until)).await?;
            return Ok(Some(self.place.quarantine));
        }
        if left.is_zero() {
            mark.until = 0;
        }
        self.keep_mark(mark);
        Ok((!left.is_zero()).then_some(left))
    }

    /// A token for a new tenure, greater than this one.
    pub(super) async fn next_token(&self, last: u64) -> Result<u64, Error> {
        let now = match self.time.about(self.clock.now(), ABOUT) {
            Some(now) => now,
            None => Box::pin(self.now_anew()).await?,
        };
        Ok(self.marked().await?.token(last, now.earliest))
    }

    /// Looks, once a grant is stored, whether the namespace is still the one that was looked at before; and whether a tenure with a greater
    /// token has come and gone meanwhile.
    pub(super) async fn stands(&self, token: u64) -> Result<bool, Error> {
        let (_, mark) = self.same_mark().await?;
        let is_greatest = token > mark.swept;
        if !is_greatest {
            self.keep_mark(mark);
        }
        Ok(is_greatest)
    }
}
