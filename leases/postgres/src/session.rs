//! A connection that is ready for use.

use std::{sync::Arc, time::Duration};

use keylatch_lease::{Owner, Resource, Token};
use keylatch_lease_remote::{Settings, Tenure, micros};
use tokio_postgres::{Client, Row};

use crate::{
    convert::{channel, number, parts},
    error::{self, Failed},
    own::Own,
    shared::Shared,
    statements::{END_QUARANTINE, FIND_MARK, Parameters, RELEASE, SWEEP, Statement},
    together::{MOST, Together, is_guarded},
};

/// The greatest number of rows that one statement of the driver's sweep removes.
const AT_A_TIME: i64 = 1000;

/// The namespace that an engine uses, its channel, and the rules for its quarantine.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) channel: String,
    /// The length of a quarantine, in microseconds.
    pub(crate) quarantine: i64,
    /// Whether failovers are trusted to forget nothing.
    pub(crate) trusts: bool,
    /// Whether a pooler may share the sessions among its clients.
    pub(crate) is_shared: bool,
}

impl Place {
    pub(crate) fn new(settings: &Settings, trusts: bool, is_shared: bool) -> Self {
        let namespace = settings.namespace.clone();
        let channel = channel(&namespace);
        Place { namespace, channel, quarantine: micros(settings.quarantine).unwrap_or(0), trusts, is_shared }
    }
}

pub(crate) struct Session {
    pub(crate) place: Arc<Place>,
    client: Client,
    kind: Kind,
    /// The questions that wait for the connection.
    pub(crate) batches: Arc<Together>,
}

enum Kind {
    Own(Own),
    Shared(Shared),
}

impl Session {
    pub(crate) async fn open(client: Client, place: Arc<Place>, timeout: Duration) -> Result<Self, error::Error> {
        let kind = if place.is_shared {
            Kind::Shared(Shared::open(&client, timeout).await?)
        } else {
            Kind::Own(Own::open(&client, &place.channel, timeout).await?)
        };
        Ok(Session { place, client, kind, batches: Arc::new(Together::new(MOST)) })
    }

    /// Returns the server's answer to a statement.
    pub(crate) async fn ask(&self, statement: &Statement, parameters: Parameters<'_>) -> Result<Vec<Row>, Failed> {
        match &self.kind {
            Kind::Own(own) => Ok(own.query(&self.client, statement, parameters).await?),
            // Boxed, because otherwise the future of every operation would need room for a whole transaction.
            Kind::Shared(shared) => Box::pin(shared.query(&self.client, statement, parameters)).await,
        }
    }

    /// Returns the server's answer, which is one row.
    pub(crate) async fn ask_one(&self, statement: &Statement, parameters: Parameters<'_>) -> Result<Row, Failed> {
        let mut rows = self.ask(statement, parameters).await?;
        Ok(rows.pop().unwrap_or_else(|| unreachable!("the function returns one row")))
    }

    /// Returns the identifier of the database system; `None` if each statement must read it, because a pooler may pass
    /// the next statement to another server.
    pub(crate) fn system(&self) -> Option<&str> {
        match &self.kind {
            Kind::Own(own) => Some(&own.system),
            Kind::Shared(_) => None,
        }
    }

    /// Returns whether it has turned out that a pooler shares the session among its clients, although it should not.
    pub(crate) fn is_pooled(&self) -> bool {
        matches!(&self.kind, Kind::Own(own) if own.is_pooled())
    }

    /// Ends a tenure, of any owner if none is given, unless it [is guarded](is_guarded).
    pub(crate) async fn release(
        &self,
        resource: &Resource,
        owner: Option<&Owner>,
        token: Option<Token>,
    ) -> Result<Row, Failed> {
        let ((entity, key), id) = (parts(resource), owner.map(|owner| owner.id().as_bytes()));
        let (Place { namespace, channel, .. }, token) = (&*self.place, token.map(number));
        self.ask_one(&RELEASE, &[namespace, &entity, &key, &id, &token, channel]).await
    }

    /// Writes the mark if it is missing or identifies another table or timeline, and ends the quarantine.
    pub(crate) async fn end_quarantine(&self) -> Result<(), Failed> {
        let Place { quarantine, trusts, .. } = &*self.place;
        self.ask(&FIND_MARK, &[&self.system(), quarantine, trusts]).await?;
        self.ask(&END_QUARANTINE, &[]).await.map(|_| ())
    }

    /// Removes the rows of leases that ended more than a minute ago, up to the limit, and returns their number.
    pub(crate) async fn sweep(&self, limit: i64) -> Result<i64, Failed> {
        Ok(self.ask_one(&SWEEP, &[&self.place.namespace, &limit]).await?.get(0))
    }
}

impl keylatch_lease_remote::Session for Session {
    type Error = error::Error;

    fn is_closed(&self) -> bool {
        self.client.is_closed() || self.is_pooled()
    }

    fn failure(&self) -> Option<error::Error> {
        self.is_pooled().then_some(error::Error::Pooled)
    }

    async fn give_back(&self, Tenure { resource, owner, token }: &Tenure) -> bool {
        self.release(resource, Some(owner), Some(*token)).await.is_ok_and(|row| !is_guarded(&row))
    }

    async fn sweep(&self) -> bool {
        self.sweep(AT_A_TIME).await.is_ok_and(|forgotten| forgotten >= AT_A_TIME)
    }
}
