use std::fmt;

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// The certificates of a TLS connection: see [`ConnectOptions::with_tls`](crate::ConnectOptions::with_tls).
///
/// Without a [CA](TlsOptions::ca_certificate), the feature `tls-roots` trusts the system's CAs; without that feature no
/// CA is trusted.
///
/// # Examples
/// ```no_run
/// # fn example() -> std::io::Result<()> {
/// use std::fs::read;
///
/// use keylatch_lease_etcd::{ConnectOptions, client::TlsOptions};
///
/// let tls = TlsOptions::new()
///     .ca_certificate(read("ca.pem")?)
///     .identity(read("client.pem")?, read("client-key.pem")?);
/// let options = ConnectOptions::new().with_tls(tls);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct TlsOptions {
    config: ClientTlsConfig,
    has_ca: bool,
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions").finish_non_exhaustive()
    }
}

impl TlsOptions {
    /// Returns options without a CA and without a certificate of the client.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts nodes whose certificates were signed by this CA, in PEM. Several calls add up.
    #[must_use]
    pub fn ca_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.config = self.config.ca_certificate(Certificate::from_pem(pem));
        self.has_ca = true;
        self
    }

    /// Sets the client's own certificate and its key, in PEM.
    #[must_use]
    pub fn identity(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.config = self.config.identity(Identity::from_pem(certificate, key));
        self
    }

    /// Sets the name that the node's certificate must have: the endpoint's host, if not set.
    #[must_use]
    pub fn domain_name(mut self, name: impl Into<String>) -> Self {
        self.config = self.config.domain_name(name);
        self
    }

    pub(crate) fn into_config(self) -> ClientTlsConfig {
        if self.has_ca { self.config } else { self.config.with_enabled_roots() }
    }
}
