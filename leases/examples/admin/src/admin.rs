//! The requests of the administrator's page: to list the leases of documents page by page, to follow their changes, and
//! to end a lease.

use std::{collections::HashSet, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Query, State},
    response::{
        Html,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{get, post},
};
use futures_util::stream::{self, Stream};
use keylatch_lease::{ListedLease, LookError, Owner, ReleaseError, Token};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{
    answer::{Answer, Failure},
    service::{ENTITY, Service, document},
};

/// The number of leases that a page of the list has at least, unless it is the last. It has fewer than twice as many.
const PAGE: usize = 50;

/// The greatest number of names that are read at a time, to find the documents that an administrator's page watches.
const WATCHED: usize = 200;

/// The interval at which new documents are looked for.
const LOOK_FOR_NEW: Duration = Duration::from_secs(1);

pub(crate) fn routes() -> Router<Arc<Service>> {
    Router::new()
        .route("/admin", get(async || Html(include_str!("../pages/admin.html"))))
        .route("/admin/leases", get(list))
        .route("/admin/events", get(events))
        .route("/admin/release", post(release))
}

#[derive(Deserialize)]
struct Search {
    /// The beginning of the document's name.
    #[serde(default)]
    prefix: String,
    owner: Option<String>,
    /// The cursor after which the page of the list begins.
    after: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    leases: Vec<Row>,
    /// The cursor after which the next page begins; `None` if there is none.
    next: Option<String>,
}

/// A lease, as the page shows it.
#[derive(Serialize)]
struct Row {
    document: String,
    owner: String,
    /// The token as text: it has 64 bits, and a number in JavaScript represents only 53 of them exactly.
    token: String,
    held_for_ms: u128,
    /// The time left, in milliseconds; `None` if the lease never expires.
    remaining_ms: Option<u128>,
}

/// A change: the document's present lease; `None` if there is none.
#[derive(Serialize)]
struct Change {
    document: String,
    lease: Option<Row>,
}

#[derive(Deserialize)]
struct Release {
    document: String,
    token: String,
}

#[derive(Serialize)]
struct Done {}

impl From<&ListedLease> for Row {
    fn from(lease: &ListedLease) -> Self {
        Row {
            document: lease.resource().key().to_owned(),
            owner: lease.owner().to_string(),
            token: lease.token().to_string(),
            held_for_ms: lease.held_for().as_millis(),
            remaining_ms: lease.remaining().map(|left| left.as_millis()),
        }
    }
}

/// Lists the leases of documents, a page at a time. The service keeps nothing between two pages: the cursor says where
/// the next one begins.
async fn list(State(service): State<Arc<Service>>, Query(search): Query<Search>) -> Answer<Listed> {
    let mut list = service.leases.list().entity_prefix(ENTITY).page_size(PAGE);
    if let Some(owner) = &search.owner {
        list = list.owner(&Owner::named(owner));
    }
    if let Some(cursor) = search.after {
        list = list.after(cursor);
    }
    // The engine searches by owner and entity. The loop goes on until it has found enough names that begin with the
    // prefix.
    let mut leases = Vec::new();
    while leases.len() < PAGE {
        let page = list.next_page().await.map_err(|error| match error {
            LookError::Invalid { .. } => Failure::bad_request(error),
            error => Failure::internal(error),
        })?;
        let Some(page) = page else { break };
        let begins = |lease: &&ListedLease| lease.resource().key().starts_with(&search.prefix);
        leases.extend(page.iter().filter(begins).map(Row::from));
    }
    Ok(Json(Listed { leases, next: list.cursor().map(str::to_owned) }))
}

/// Streams each change of the documents whose names begin with the prefix, until the browser closes the stream.
async fn events(
    State(service): State<Arc<Service>>,
    Query(search): Query<Search>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(watch_all(service, search.prefix, sender.clone()));
    // The stream keeps a sender, so that it stays open until the browser closes it.
    let changes = stream::unfold((receiver, sender), |(mut receiver, sender)| async {
        let event = receiver.recv().await?;
        Some((Ok(event), (receiver, sender)))
    });
    Sse::new(changes).keep_alive(KeepAlive::default())
}

/// Watches the documents whose names begin with this, until the receiver is gone. Looks for new documents now and then,
/// among the first [`WATCHED`] names.
async fn watch_all(service: Arc<Service>, prefix: String, sender: mpsc::Sender<Event>) {
    let mut watched = HashSet::new();
    while !sender.is_closed() {
        for name in service.documents.names(prefix.clone(), WATCHED).await.unwrap_or_default() {
            if watched.insert(name.clone()) {
                tokio::spawn(watch(Arc::clone(&service), name, sender.clone()));
            }
        }
        tokio::time::sleep(LOOK_FOR_NEW).await;
    }
}

/// Sends each change of a document, until the receiver is gone.
async fn watch(service: Arc<Service>, name: String, sender: mpsc::Sender<Event>) {
    let mut watch = service.leases.watch(document(&name));
    loop {
        let status = tokio::select! {
            status = watch.changed() => status,
            () = sender.closed() => return,
        };
        // If the file cannot be read, the page keeps what it has shown.
        let Ok(status) = status else { return };
        let lease = status.as_ref().map(|status| Row {
            document: name.clone(),
            owner: status.owner().to_string(),
            token: status.token().to_string(),
            held_for_ms: status.held_for().as_millis(),
            remaining_ms: status.remaining().map(|left| left.as_millis()),
        });
        let Ok(event) = Event::default().json_data(Change { document: name.clone(), lease }) else { return };
        if sender.send(event).await.is_err() {
            return;
        }
    }
}

/// Ends the tenure with this token, and no later one.
async fn release(State(service): State<Arc<Service>>, Json(release): Json<Release>) -> Answer<Done> {
    let token = release.token.parse().ok().and_then(Token::new);
    let token = token.ok_or_else(|| Failure::bad_request("The token is not a positive number."))?;
    match service.leases.release_token(document(&release.document), token).await {
        Ok(()) => Ok(Json(Done {})),
        Err(ReleaseError::NotHeld { .. }) => Err(Failure::conflict("The lease has ended already.")),
        Err(ReleaseError::NotOwner { owner, .. }) => {
            Err(Failure::conflict(format!("That lease has ended already; {owner} has the document now.")))
        }
        Err(error) => Err(Failure::internal(error)),
    }
}
