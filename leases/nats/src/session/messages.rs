//! Requests to the server, and the messages that contain leases.

use std::{pin::pin, sync::Arc};

use async_nats::{HeaderMap, Request, jetstream::stream::RawMessage};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::future::{Either, select};

use keylatch_lease::{Clock, Lost, Resource};

use super::{Acknowledged, Answered, BEGINS, EXPECTED, FREED, Found, Last, Put, Session, says_full, stored_at};
use crate::{
    error::{Error, refused},
    record::Message,
};

impl Session {
    pub(super) async fn request(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        if keylatch_lease_remote::Session::is_closed(self) {
            return Err(Error::Closed);
        }
        // The engine has its own timers, so that it runs on any runtime.
        let request = Request::new().headers(headers).payload(payload.into()).timeout(None);
        let asked = pin!(self.client.send_request(subject, request));
        let mut over = self.end.over.clone();
        let over = pin!(over.wait_for(|over| *over));
        match select(asked, over).await {
            Either::Left((Ok(answer), _)) => Ok(answer.payload.to_vec()),
            Either::Left((Err(error), _)) => match error.kind() {
                // No server received the request.
                async_nats::RequestErrorKind::NoResponders => Err(Error::Unconnected { source: Some(Arc::new(error)) }),
                _ => Err(Error::Closed),
            },
            Either::Right(_) => Err(Error::Closed),
        }
    }

    pub(super) fn read<T: serde::de::DeserializeOwned>(answer: &[u8]) -> Result<T, Error> {
        let answered: Answered<T> = serde_json::from_slice(answer).map_err(|_| Error::Closed)?;
        match (answered.error, answered.value) {
            (Some(error), _) => Err(refused(error)),
            (None, Some(value)) => Ok(value),
            (None, None) => Err(Error::Closed),
        }
    }

    /// Sends a request about the stream to the API of JetStream.
    pub(super) async fn api<T: serde::de::DeserializeOwned>(
        &self,
        what: &str,
        about: &serde_json::Value,
    ) -> Result<T, Error> {
        let subject = format!("$JS.API.STREAM.{what}.{}", self.place.stream);
        // The future is boxed: otherwise each step of each operation would make the callers' futures larger.
        Self::read(&Box::pin(self.request(subject, HeaderMap::new(), about.to_string().into_bytes())).await?)
    }

    pub(super) async fn message(&self, which: &serde_json::Value) -> Result<Option<RawMessage>, Error> {
        const NONE: u64 = 10037;
        match self.api("MSG.GET", which).await {
            Ok(Found { message }) => {
                self.seen.sees(message.sequence);
                Ok(Some(message))
            }
            Err(Error::Refused { source }) if source.error_code().0 == NONE => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a message if the last one of its subject has the sequence `behind`; zero means that there is none, `None`
    /// that any will do. `frees` is the tenure that the message ends, and how. `begins` is the value of the header
    /// [`BEGINS`], if the message has it.
    pub(super) async fn put(
        &self,
        subject: String,
        behind: Option<u64>,
        payload: Vec<u8>,
        frees: Option<(u64, Lost)>,
        begins: Option<u64>,
    ) -> Result<Put, Error> {
        const CHANGED: [u64; 2] = [10071, 10164];
        let mut headers = HeaderMap::new();
        if let Some(sequence) = behind {
            headers.insert(EXPECTED, sequence.to_string().as_str());
        }
        if let Some((token, how)) = frees {
            let how = if how == Lost::TakenOver { 't' } else { 'r' };
            headers.insert(FREED, format!("{how}{token}").as_str());
        }
        if let Some(token) = begins {
            headers.insert(BEGINS, token.to_string().as_str());
        }
        let (before, sent) = (self.seen.get(), self.clock.now());
        let answer = Box::pin(self.request(subject, headers, payload)).await?;
        match Self::read(&answer) {
            Ok(Acknowledged { seq }) if seq <= before => {
                self.seen.went_back();
                Err(self.is_another())
            }
            Ok(Acknowledged { seq }) => {
                self.seen.sees(seq);
                self.knows_since(sent);
                Ok(Put::Stored(seq))
            }
            Err(Error::Refused { source }) if CHANGED.contains(&source.error_code().0) => Ok(Put::Changed),
            // It is not known how far the server got.
            Err(Error::Refused { source }) if source.code() >= 500 && !says_full(&source) => Err(Error::Closed),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn put_lease(
        &self,
        resource: &Resource,
        behind: u64,
        message: &Message,
        frees: Option<(u64, Lost)>,
    ) -> Result<Put, Error> {
        let begins = (behind == 0 && message.token() > 0).then(|| message.token());
        self.put(self.place.subjects.lease(resource), Some(behind), message.to_bytes(), frees, begins).await
    }

    pub(super) async fn last(&self, resource: &Resource) -> Result<Last, Error> {
        self.last_of(&self.place.subjects.lease(resource)).await
    }

    pub(super) async fn last_of(&self, subject: &str) -> Result<Last, Error> {
        match self.message(&serde_json::json!({ "last_by_subj": subject })).await? {
            None => Ok(Last::free(0, 0)),
            Some(raw) => {
                let message = STANDARD.decode(&raw.payload).ok().and_then(|bytes| Message::from_bytes(&bytes));
                let message = message.ok_or(Error::Foreign)?;
                let (sequence, token) = (raw.sequence, message.token());
                Ok(Last { sequence, token, tenure: message.tenure(stored_at(&raw)) })
            }
        }
    }
}
