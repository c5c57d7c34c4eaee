//! NATS.

use async_nats::AuthError;
use keylatch_lease_nats::{ConnectOptions, Nats};

use super::{hosts::Hosts, server::Server};
use crate::failure::{Failure, USAGE};

const STREAM: &str = "keylatch_lease";

/// The beginning of a file with credentials, as NATS' own tools write it.
const CREDENTIALS: &str = "-----BEGIN NATS USER JWT-----";

pub(super) fn connect(server: &Server) -> Result<Nats, Failure> {
    let (hosts, _) = settings(server)?; // invalid settings are reported before the first attempt to connect
    let (settings, server_too) = (server.at_each_connection(settings), server.clone());
    let options = move || settings().map_or_else(|failure| failing(&server_too, failure), |(_, options)| options);
    let engine = Nats::in_namespace(server.namespace).stream(STREAM).connect(hosts, options);
    engine.map_err(|error| server.invalid(error))
}

/// Makes the stream, and opens the namespace.
pub(super) async fn init(server: &Server) -> Result<(), Failure> {
    let (hosts, options) = settings(server)?;
    let client = async_nats::connect_with_options(hosts, options).await.map_err(Failure::engine)?;
    let stream = Nats::stream(STREAM);
    async_nats::jetstream::new(client).get_or_create_stream(stream).await.map_err(Failure::engine)?;
    connect(server)?.init().await.map_err(Failure::engine)
}

/// Returns the hosts, and the options of a connection.
fn settings(server: &Server) -> Result<(Vec<String>, ConnectOptions), Failure> {
    let Hosts { user, password, hosts } = Hosts::of(server)?;
    let options = with_user(with_tls(server, ConnectOptions::new()), user, password);
    let options = options.map_err(|error| Failure::new(USAGE, format_args!("the credentials are invalid: {error}")))?;
    Ok((hosts, options))
}

/// Returns options with which no connection can be made, for this reason. The engine then tries again.
fn failing(server: &Server, failure: Failure) -> ConnectOptions {
    let reason = failure.to_string();
    let options = ConnectOptions::with_auth_callback(move |_| {
        let error = AuthError::new(&reason);
        async move { Err(error) }
    });
    with_tls(server, options)
}

/// Adds the settings for TLS. The client reads the certificates itself, at each connection.
fn with_tls(server: &Server, options: ConnectOptions) -> ConnectOptions {
    let (mut options, place) = (options.require_tls(server.has_tls()), &server.place);
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
