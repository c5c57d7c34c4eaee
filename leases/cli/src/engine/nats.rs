//! NATS.

use keylatch_lease_nats::{ConnectOptions, Nats};

use super::{hosts::Hosts, server::Server};
use crate::{
    args::Place,
    failure::{Failure, USAGE},
};

const STREAM: &str = "keylatch_lease";

/// How a file with credentials begins, as NATS' own tools write it.
const CREDENTIALS: &str = "-----BEGIN NATS USER JWT-----";

pub(super) fn connect(server: &Server<'_>) -> Result<Nats, Failure> {
    let (hosts, options) = settings(server)?;
    let engine = Nats::in_namespace(server.namespace).stream(STREAM).connect(hosts, options);
    engine.map_err(|error| server.invalid(error))
}

/// Makes the stream, and opens the namespace.
pub(super) async fn init(server: &Server<'_>) -> Result<(), Failure> {
    let (hosts, options) = settings(server)?;
    let client = async_nats::connect_with_options(hosts, options()).await.map_err(Failure::engine)?;
    let stream = Nats::stream(STREAM);
    async_nats::jetstream::new(client).get_or_create_stream(stream).await.map_err(Failure::engine)?;
    connect(server)?.init().await.map_err(Failure::engine)
}

/// Returns the hosts, and what makes the options of a connection.
fn settings(server: &Server<'_>) -> Result<(Vec<String>, impl Fn() -> ConnectOptions + Send + Sync + use<>), Failure> {
    let Hosts { user, password, hosts } = Hosts::of(server)?;
    // The client reads them at each connection; a file that is missing now is reported in the same way everywhere.
    let _ = (server.ca()?, server.identity()?);
    let (has_tls, place) = (server.has_tls(), server.place.clone());
    let options = move || with_user(with_tls(has_tls, &place), user.clone(), password.clone());
    options().map_err(|error| Failure::new(USAGE, format_args!("the credentials are invalid: {error}")))?;
    Ok((hosts, move || options().expect("the same were valid before")))
}

fn with_tls(has_tls: bool, place: &Place) -> ConnectOptions {
    let mut options = ConnectOptions::new().require_tls(has_tls);
    if let Some(ca) = &place.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let (Some(certificate), Some(key)) = (&place.cert, &place.key) {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    options
}

fn with_user(
    options: ConnectOptions,
    user: Option<String>,
    password: Option<String>,
) -> std::io::Result<ConnectOptions> {
    match (user, password) {
        (_, Some(text)) if text.trim_start().starts_with(CREDENTIALS) => options.credentials(&text),
        (Some(user), Some(password)) => Ok(options.user_and_password(user, password)),
        (Some(token), None) | (None, Some(token)) => Ok(options.token(token)),
        (None, None) => Ok(options),
    }
}
