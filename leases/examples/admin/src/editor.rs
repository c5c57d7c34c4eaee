//! The requests of a user's page: to open a document, to keep it open, to save and to close it.
//!
//! The service keeps nothing between requests: the page sends the grant with each of them. It could send a grant with
//! another owner's name, so each handler compares the name with that of the user.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    response::Html,
    routing::{get, post},
};
use keylatch_lease::{AcquireError, Grant, Owner, ReleaseError, RenewError};
use serde::{Deserialize, Serialize};

use crate::{
    answer::{Answer, Failure},
    service::{Service, document},
};

/// The time for which a document stays open after the last keystroke.
const IDLE: Duration = Duration::from_secs(30 * 60);

pub(crate) fn routes() -> Router<Arc<Service>> {
    Router::new()
        .route("/documents/{name}", get(async || Html(include_str!("../pages/editor.html"))))
        .route("/documents/{name}/open", post(open))
        .route("/documents/{name}/renew", post(renew))
        .route("/documents/{name}/save", post(save))
        .route("/documents/{name}/close", post(close))
}

#[derive(Deserialize)]
struct User {
    user: String,
}

#[derive(Deserialize)]
struct Held {
    grant: Grant,
}

#[derive(Deserialize)]
struct Save {
    grant: Grant,
    body: String,
}

#[derive(Serialize)]
struct Opened {
    grant: Grant,
    body: String,
    remaining_ms: u128,
}

#[derive(Serialize)]
struct Renewed {
    grant: Grant,
}

#[derive(Serialize)]
struct Done {}

/// Checks that a grant is for this document, and is this user's.
fn own(grant: &Grant, name: &str, user: &str) -> Result<(), Failure> {
    if *grant.owner() == Owner::named(user) && *grant.resource() == document(name) {
        return Ok(());
    }
    Err(Failure::bad_request("The grant is another user's, or another document's."))
}

async fn open(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    Query(User { user }): Query<User>,
) -> Answer<Opened> {
    // The document is created first, so that an administrator's page that is opened from now on watches it.
    service.documents.create(name.clone()).await?;
    let grant = match service.leases.try_acquire(document(&name), &Owner::named(&user), IDLE).await {
        Ok(grant) => grant,
        Err(AcquireError::Busy { owner, .. }) => return Err(Failure::conflict(format!("{owner} has {name} open."))),
        Err(error @ AcquireError::Invalid { .. }) => return Err(Failure::bad_request(error)),
        Err(error) => return Err(Failure::internal(error)),
    };
    let body = service.documents.read(name).await?;
    let remaining_ms = service.leases.remaining(&grant).unwrap_or(IDLE).as_millis();
    Ok(Json(Opened { grant, body, remaining_ms }))
}

async fn renew(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    Query(User { user }): Query<User>,
    Json(Held { grant }): Json<Held>,
) -> Answer<Renewed> {
    own(&grant, &name, &user)?;
    match service.leases.renew(&grant).await {
        Ok(grant) => Ok(Json(Renewed { grant })),
        Err(error @ RenewError::Lost(_)) => Err(Failure::conflict(format!("{name} is no longer yours: {error}."))),
        Err(error) => Err(Failure::internal(error)),
    }
}

async fn save(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    Query(User { user }): Query<User>,
    Json(Save { grant, body }): Json<Save>,
) -> Answer<Done> {
    own(&grant, &name, &user)?;
    service.documents.save(grant, body).await?;
    Ok(Json(Done {}))
}

async fn close(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    Query(User { user }): Query<User>,
    Json(Held { grant }): Json<Held>,
) -> Answer<Done> {
    own(&grant, &name, &user)?;
    match service.leases.release(&grant).await {
        // A lease that has ended is as good as released.
        Ok(()) | Err(ReleaseError::NotHeld { .. } | ReleaseError::NotOwner { .. }) => Ok(Json(Done {})),
        Err(error) => Err(Failure::internal(error)),
    }
}
