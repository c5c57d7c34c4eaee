//! The answers to requests: JSON, with an `error` that a person can read if there is no result.

use std::fmt;

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// A failed request: its status, and the reason.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    error: String,
}

impl Failure {
    /// Returns the failure of a request for a document that somebody else has, or for which the user's lease has ended.
    pub(crate) fn conflict(error: impl Into<String>) -> Self {
        Self { status: StatusCode::CONFLICT, error: error.into() }
    }

    /// Returns the failure of an invalid request, such as one with an overlong name.
    pub(crate) fn bad_request(error: impl fmt::Display) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: error.to_string() }
    }

    /// Returns the failure of a request that the service cannot answer now.
    pub(crate) fn internal(error: impl fmt::Display) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, error: error.to_string() }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: String,
        }
        (self.status, Json(Body { error: self.error })).into_response()
    }
}

/// The output of a handler.
pub(crate) type Answer<T> = Result<Json<T>, Failure>;
