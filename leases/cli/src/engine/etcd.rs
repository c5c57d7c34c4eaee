//! etcd.

use keylatch_lease_etcd::{ConnectOptions, Etcd, client::TlsOptions};

use super::{
    hosts::Hosts,
    server::{Identity, Server},
};
use crate::failure::Failure;

pub(super) fn connect(server: &Server<'_>) -> Result<Etcd, Failure> {
    let Hosts { user, password, hosts } = Hosts::of(server)?;
    let mut options = ConnectOptions::new();
    if let Some(user) = user {
        options = options.with_user(user, password.unwrap_or_default());
    }
    if server.has_tls() {
        let mut tls = TlsOptions::new();
        if let Some(ca) = server.ca()? {
            tls = tls.ca_certificate(ca);
        }
        if let Some(Identity { certificate, key }) = server.identity()? {
            tls = tls.identity(certificate, key);
        }
        options = options.with_tls(tls);
    }
    let scheme = if server.has_tls() { "https" } else { "http" };
    let endpoints = hosts.iter().map(|host| format!("{scheme}://{host}"));
    Ok(Etcd::in_namespace(server.namespace).connect(endpoints, Some(options)))
}
