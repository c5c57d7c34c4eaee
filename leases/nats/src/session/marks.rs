//! The mark of a namespace: it identifies the stream, and limits what the stream may have forgotten.

use std::{
    convert::Infallible,
    sync::{Arc, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use keylatch_lease::{Clock, Resource};
use keylatch_lease_remote::{Limit, Link, Turn};

use super::{ABOUT, Before, Place, Put, Read, Reads, Session};
use crate::{error::Error, mark::Mark, server_time::FRESH};

/// Reads the mark for the callers that wait for it, until the connection ends.
pub(crate) async fn carry(link: Arc<Link<Session>>, reads: Arc<Reads>) -> Infallible {
    let send = |callers: Arc<[()]>| {
        let link = Arc::clone(&link);
        async move {
            let read = match link.session(&mut Limit::after(link.timeout())).await {
                Ok(session) => Some(session.find_mark().await),
                Err(_) => None,
            };
            vec![read; callers.len()]
        }
    };
    reads.carry(send).await
}

impl Session {
    /// Reads the namespace's mark. If it is missing or belongs to another stream or (unless restarts are trusted) to
    /// another run of the server, or if the stream has gone back to an older copy, leases may have been forgotten. In
    /// that case this writes a new mark, and nothing is granted until all earlier leases have ended.
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

    /// Reads the mark and its sequence, which is zero if there is none.
    pub(super) async fn find_mark(&self) -> Result<Read, Error> {
        match self.message(&serde_json::json!({ "last_by_subj": self.place.subjects.mark() })).await? {
            None => Ok((0, None)),
            Some(raw) => {
                let mark = STANDARD.decode(&raw.payload).ok().and_then(|bytes| Mark::from_bytes(&bytes));
                Ok((raw.sequence, Some(mark.ok_or(Error::Foreign)?)))
            }
        }
    }

    /// Writes a mark, unless another program has written one in between. Returns whether it was written.
    pub(super) async fn put_mark(&self, behind: u64, mark: &Mark) -> Result<bool, Error> {
        let put = self
            .put(self.place.subjects.mark(), Some(behind), mark.to_bytes(), None, (behind == 0).then_some(0))
            .await?;
        Ok(matches!(put, Put::Stored(_)))
    }

    /// Ends the connection, because the stream is no longer the same. The next connection finds out what was forgotten.
    /// Returns the error of a request whose outcome is not known.
    pub(super) fn is_another(&self) -> Error {
        self.end.bring();
        Error::Closed
    }

    /// Reads the mark. Fails, and ends the connection, if leases may have been forgotten since it was first read.
    pub(super) async fn same_mark(&self) -> Result<(u64, Mark), Error> {
        self.is_same(self.find_mark().await?)
    }

    fn is_same(&self, (sequence, found): Read) -> Result<(u64, Mark), Error> {
        match (found, self.known_mark()) {
            (Some(found), Some(known)) if found.is_same(&known) => Ok((sequence, found)),
            _ => Err(self.is_another()),
        }
    }

    /// Reads the mark. The reading begins no earlier than this call; it serves all callers that wait for one at the
    /// same moment.
    async fn find_mark_together(&self, resource: &Resource) -> Result<Read, Error> {
        if let Some(_permit) = self.reads.at_once() {
            return self.find_mark().await;
        }
        match self.reads.ask(resource, ()).await {
            Turn::Answered(read) => read,
            Turn::Alone => self.find_mark().await,
            Turn::NotSent | Turn::Lost => Err(Error::Closed),
        }
    }

    /// Changes the mark, and writes it if it differs.
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

    /// Ends the quarantine.
    pub(crate) async fn end_quarantine(&self) -> Result<(), Error> {
        self.marked().await?;
        self.change_mark(|mark| mark.until = 0).await
    }

    /// Returns the mark as it was last read. If it could not be written for lack of room, this tries again.
    pub(super) async fn marked(&self) -> Result<Mark, Error> {
        loop {
            if let Some(mark) = self.known_mark() {
                return Ok(mark);
            }
            // This rare path is boxed, because it would make all futures larger.
            Box::pin(async { self.recall(self.last_sequence().await?).await }).await?;
        }
    }

    /// Returns the remaining time of the quarantine, if there is one.
    pub(super) async fn quarantined(&self) -> Result<Option<Duration>, Error> {
        match self.marked().await?.until {
            0 => Ok(None),
            _ => Box::pin(self.quarantine_left()).await,
        }
    }

    /// Returns the remaining time of the quarantine by the stored mark: another program may have ended the quarantine.
    pub(super) async fn quarantine_left(&self) -> Result<Option<Duration>, Error> {
        let (_, mut mark) = self.same_mark().await?;
        let now = self.now().await?.earliest;
        let left = Duration::from_nanos(mark.until.saturating_sub(now));
        if left > self.place.quarantine.saturating_add(FRESH) {
            // The server's clock was set back after the mark was written, or its writer has a longer quarantine.
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

    /// Returns a token for a new tenure, greater than `last`.
    pub(super) async fn next_token(&self, last: u64) -> Result<u64, Error> {
        let now = match self.time.about(self.clock.now(), ABOUT) {
            Some(now) => now,
            None => Box::pin(self.now_anew()).await?,
        };
        Ok(self.marked().await?.token(last, now.earliest))
    }

    /// Checks, after a grant was stored, that the namespace's mark is unchanged. Returns whether the token is the
    /// greatest: a tenure with a greater one may have begun, ended and been swept in between.
    pub(super) async fn stands(&self, resource: &Resource, token: u64) -> Result<bool, Error> {
        let (_, mark) = self.is_same(self.find_mark_together(resource).await?)?;
        let is_greatest = token > mark.swept;
        if !is_greatest {
            self.keep_mark(mark);
        }
        Ok(is_greatest)
    }
}
