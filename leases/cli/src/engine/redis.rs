//! Redis.

use std::future::ready;

use keylatch_lease_redis::Redis;
use redis::{Client, ClientTlsConfig, IntoConnectionInfo, TlsCertificates};

use super::server::Server;
use crate::failure::Failure;

pub(super) fn connect(server: &Server) -> Result<Redis, Failure> {
    client(server)?; // invalid settings are reported before the first attempt to connect
    let client = server.at_each_connection(client);
    Ok(Redis::in_namespace(server.namespace).connect_from(move || ready(client().map_err(Into::into))))
}

fn client(server: &Server) -> Result<Client, Failure> {
    let invalid = |error| server.invalid(error);
    // With a certificate the client must encrypt.
    let url = match server.url.strip_prefix("redis://") {
        Some(rest) if server.has_tls() => format!("rediss://{rest}"),
        _ => server.url.clone(),
    };
    let mut info = url.as_str().into_connection_info().map_err(invalid)?;
    if let Some(password) = &server.files.password {
        let settings = info.redis_settings().clone().set_password(password);
        info = info.set_redis_settings(settings);
    }
    if !server.has_tls() {
        return Client::open(info).map_err(invalid);
    }
    let client_tls = server.files.identity.clone();
    let client_tls = client_tls.map(|of| ClientTlsConfig { client_cert: of.certificate, client_key: of.key });
    let certificates = TlsCertificates { client_tls, root_cert: server.files.ca.clone() };
    Client::build_with_tls(info, certificates).map_err(invalid)
}
