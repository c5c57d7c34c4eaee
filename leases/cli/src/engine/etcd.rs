//! etcd.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use keylatch_lease_etcd::{Client, ConnectOptions, Etcd, client::TlsOptions};

use super::{
    hosts::Hosts,
    server::{Identity, Server},
};
use crate::failure::Failure;

pub(super) fn connect(server: &Server) -> Result<Etcd, Failure> {
    settings(server)?; // invalid settings are reported before the first attempt to connect
    let (settings, attempts) = (server.at_each_connection(settings), AtomicUsize::new(0));
    let (etcd, driver) = Etcd::in_namespace(server.namespace).connect_with(move || {
        let (settings, attempt) = (settings(), attempts.fetch_add(1, Relaxed));
        async move {
            let (endpoints, options) = settings?;
            // If a node cannot be reached, or has no leader, the next node may be usable.
            Ok(Client::connect([&endpoints[attempt % endpoints.len()]], Some(options)).await?)
        }
    });
    tokio::spawn(driver);
    Ok(etcd)
}

/// Returns the endpoints, of which there is at least one, and the options.
fn settings(server: &Server) -> Result<(Vec<String>, ConnectOptions), Failure> {
    let Hosts { user, password, hosts } = Hosts::of(server)?;
    let mut options = ConnectOptions::new().with_require_leader(true);
    if let Some(user) = user {
        options = options.with_user(user, password.unwrap_or_default());
    }
    if server.has_tls() {
        let mut tls = TlsOptions::new();
        if let Some(ca) = server.files.ca.clone() {
            tls = tls.ca_certificate(ca);
        }
        if let Some(Identity { certificate, key }) = server.files.identity.clone() {
            tls = tls.identity(certificate, key);
        }
        options = options.with_tls(tls);
    }
    let scheme = if server.has_tls() { "https" } else { "http" };
    Ok((hosts.iter().map(|host| format!("{scheme}://{host}")).collect(), options))
}
