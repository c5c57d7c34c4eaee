use std::{error::Error, fmt};

use tonic::{Code, Status};

/// The reason that a call of the [`Client`](crate::Client) failed.
///
/// If there is a [code](ClientError::code), etcd answered with an error: in most cases it has refused the call, but
/// with code 14, for example after a timeout of its own, it may have carried out the request. Without a code, the
/// options were wrong, etcd refused a watch or violated the protocol, or the connection failed or could not be made;
/// the request may have been carried out.
#[derive(Debug)]
pub struct ClientError(Kind);

#[derive(Debug)]
enum Kind {
    /// The options or the address are wrong.
    Options(String),
    /// The connection could not be prepared, or was not ready.
    Transport(tonic::transport::Error),
    /// The answer of the server; or an error of the connection, which is then the source of the status.
    Status(Box<Status>),
    /// The server violated the protocol, or ended a stream.
    Answer(&'static str),
    /// The server refused a watch, for this reason.
    Watch(String),
}

impl ClientError {
    pub(crate) fn options(text: impl Into<String>) -> Self {
        ClientError(Kind::Options(text.into()))
    }

    pub(crate) fn answer(text: &'static str) -> Self {
        ClientError(Kind::Answer(text))
    }

    pub(crate) fn watch(reason: String) -> Self {
        ClientError(Kind::Watch(reason))
    }

    /// Returns the gRPC status with which the server answered. An error of the connection has a code too, but does not
    /// tell whether the request was carried out.
    fn status(&self) -> Option<&Status> {
        match &self.0 {
            Kind::Status(status) if status.source().is_none() => Some(status),
            _ => None,
        }
    }

    /// Returns the gRPC code of the server's answer: 7, for example, if a permission is missing. `None` if there was no
    /// answer.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status().map(|status| i32::from(status.code()))
    }

    /// Returns the text of the server's answer; an empty text if there was no answer.
    #[must_use]
    pub fn message(&self) -> &str {
        self.status().map_or("", Status::message)
    }

    /// Returns whether the server does not know the token of the request, or users have changed since it was given. In
    /// either case the request was not carried out.
    pub(crate) fn is_stale_token(&self) -> bool {
        let is_unknown = self.status().is_some_and(|status| status.code() == Code::Unauthenticated);
        is_unknown || self.message().contains(OLD_REVISION)
    }
}

/// A part of the server's message when users or roles have changed since the token was given.
pub(crate) const OLD_REVISION: &str = "revision of auth store is old";

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Options(text) => f.write_str(text),
            Kind::Transport(_) => f.write_str("the connection cannot be made"),
            Kind::Status(status) if status.source().is_some() => f.write_str("the connection failed"),
            Kind::Status(status) => write!(f, "{} ({:?})", status.message(), status.code()),
            Kind::Answer(text) => f.write_str(text),
            Kind::Watch(reason) => write!(f, "etcd refused the watch: {reason}"),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Kind::Transport(error) => Some(error),
            Kind::Status(status) => status.source(),
            Kind::Options(_) | Kind::Answer(_) | Kind::Watch(_) => None,
        }
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        ClientError(Kind::Status(Box::new(status)))
    }
}

impl From<tonic::transport::Error> for ClientError {
    fn from(error: tonic::transport::Error) -> Self {
        ClientError(Kind::Transport(error))
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::ClientError;
    use tonic::Status;

    #[test]
    fn an_answer_of_the_server_has_a_code_and_a_text() {
        let error = ClientError::from(Status::permission_denied("etcdserver: permission denied"));
        assert_eq!((error.code(), error.message()), (Some(7), "etcdserver: permission denied"));
        assert_eq!(error.to_string(), "etcdserver: permission denied (PermissionDenied)");
        assert!(error.source().is_none());
    }

    #[test]
    fn a_lost_connection_has_no_code_but_a_cause() {
        let cause = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error = ClientError::from(Status::from_error(Box::new(cause)));
        assert_eq!((error.code(), error.message()), (None, ""));
        assert!(error.source().is_some());
    }

    #[test]
    fn a_token_is_stale_if_it_is_unknown_or_users_have_changed() {
        let is_stale = |status| ClientError::from(status).is_stale_token();
        assert!(is_stale(Status::unauthenticated("etcdserver: invalid auth token")));
        assert!(is_stale(Status::invalid_argument("etcdserver: revision of auth store is old")));
        assert!(!is_stale(Status::invalid_argument("etcdserver: key is not provided")));
        assert!(!is_stale(Status::permission_denied("etcdserver: permission denied")));
    }
}
