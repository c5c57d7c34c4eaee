use std::{fmt, time::Duration};

use tonic::transport::Endpoint;

use crate::client::error::ClientError;
#[cfg(feature = "tls")]
use crate::client::tls::TlsOptions;

/// The settings of the connection of a [`Client`](crate::Client).
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_etcd::ConnectOptions;
///
/// let options = ConnectOptions::new()
///     .with_user("shop", "secret")
///     .with_connect_timeout(Duration::from_secs(2))
///     .with_keep_alive(Duration::from_secs(10), Duration::from_secs(3));
/// ```
#[derive(Clone)]
pub struct ConnectOptions {
    /// The name and the password.
    pub(crate) user: Option<(String, String)>,
    pub(crate) require_leader: bool,
    timeout: Option<Duration>,
    connect_timeout: Option<Duration>,
    /// The time between two pings, and the time for the answer.
    keep_alive: Option<(Duration, Duration)>,
    keep_alive_while_idle: bool,
    tcp_keepalive: Option<Duration>,
    #[cfg(feature = "tls")]
    tls: Option<TlsOptions>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ConnectOptions {
    /// Leaves out the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("ConnectOptions").field("user", &user).finish_non_exhaustive()
    }
}

impl ConnectOptions {
    /// Returns options without a user, timeouts or pings.
    #[must_use]
    pub const fn new() -> Self {
        ConnectOptions {
            user: None,
            require_leader: false,
            timeout: None,
            connect_timeout: None,
            keep_alive: None,
            keep_alive_while_idle: true,
            tcp_keepalive: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Sets the user. The client logs in when it connects, and again when its token is no longer valid; so it keeps the
    /// password.
    #[must_use]
    pub fn with_user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Sets whether a node that has no leader refuses a call instead of waiting for a leader: `false` if not set.
    #[must_use]
    pub fn with_require_leader(mut self, require_leader: bool) -> Self {
        self.require_leader = require_leader;
        self
    }

    /// Sets the time limit of a call until its answer begins: none, if not set.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the time limit of an attempt to connect: the system's, if not set.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// Sends HTTP/2 pings at this interval, and gives up the connection if one is not answered in time. If not set, no
    /// pings are sent.
    #[must_use]
    pub fn with_keep_alive(mut self, interval: Duration, timeout: Duration) -> Self {
        self.keep_alive = Some((interval, timeout));
        self
    }

    /// Sets whether HTTP/2 pings are also sent while no call is under way: `true` if not set.
    #[must_use]
    pub fn with_keep_alive_while_idle(mut self, enabled: bool) -> Self {
        self.keep_alive_while_idle = enabled;
        self
    }

    /// Sets the idle time after which TCP probes the connection: none, if not set.
    #[must_use]
    pub fn with_tcp_keepalive(mut self, idle: Duration) -> Self {
        self.tcp_keepalive = Some(idle);
        self
    }

    /// Sets the certificates for `https://`. With this setting, an endpoint without a scheme gets `https://`.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    #[must_use]
    pub fn with_tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    #[cfg(feature = "tls")]
    fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    #[cfg(not(feature = "tls"))]
    fn has_tls(&self) -> bool {
        false
    }

    /// Prepares a connection to one endpoint.
    pub(crate) fn endpoint(&self, url: &str) -> Result<Endpoint, ClientError> {
        let (is_secure, address) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(_), _) if self.has_tls() => {
                return Err(ClientError::options(format!(
                    "{url}: with TLS options an endpoint must begin with `https://`"
                )));
            }
            (Some(address), _) => (false, address),
            (_, Some(address)) => (true, address),
            _ => (self.has_tls(), url),
        };
        let scheme = if is_secure { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|_| {
            ClientError::options(format!("{url}: an endpoint must be a URL, such as `http://etcd.example:2379`"))
        })?;
        if is_secure {
            endpoint = self.secured(url, endpoint)?;
        }
        if let Some((interval, timeout)) = self.keep_alive {
            endpoint = endpoint
                .keep_alive_while_idle(self.keep_alive_while_idle)
                .http2_keep_alive_interval(interval)
                .keep_alive_timeout(timeout);
        }
        if let Some(timeout) = self.timeout {
            endpoint = endpoint.timeout(timeout);
        }
        if let Some(timeout) = self.connect_timeout {
            endpoint = endpoint.connect_timeout(timeout);
        }
        Ok(endpoint.tcp_keepalive(self.tcp_keepalive))
    }

    #[cfg(feature = "tls")]
    fn secured(&self, _: &str, endpoint: Endpoint) -> Result<Endpoint, ClientError> {
        Ok(endpoint.tls_config(self.tls.clone().unwrap_or_default().into_config())?)
    }

    #[cfg(not(feature = "tls"))]
    fn secured(&self, url: &str, _: Endpoint) -> Result<Endpoint, ClientError> {
        Err(ClientError::options(format!("{url}: `https://` needs the feature `tls` of keylatch-lease-etcd")))
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectOptions;

    #[test]
    fn an_endpoint_without_a_scheme_is_http() {
        let endpoint = ConnectOptions::new().endpoint("etcd.example:2379").unwrap();
        assert_eq!(endpoint.uri().to_string(), "http://etcd.example:2379/");
    }

    #[test]
    fn an_endpoint_that_is_not_a_url_is_an_error_that_names_it() {
        let error = ConnectOptions::new().endpoint("http://a b").unwrap_err();
        assert!(error.to_string().starts_with("http://a b: an endpoint must be a URL"), "{error}");
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn https_without_the_feature_is_an_error_that_names_the_feature() {
        let error = ConnectOptions::new().endpoint("https://etcd.example:2379").unwrap_err();
        assert!(error.to_string().contains("feature `tls`"), "{error}");
    }

    #[test]
    #[cfg(feature = "tls")]
    fn http_with_certificates_is_an_error() {
        let options = ConnectOptions::new().with_tls(crate::client::TlsOptions::new());
        let error = options.endpoint("http://etcd.example:2379").unwrap_err();
        assert!(error.to_string().contains("https://"), "{error}");
        let endpoint = options.endpoint("etcd.example:2379").unwrap();
        assert_eq!(endpoint.uri().to_string(), "https://etcd.example:2379/");
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", ConnectOptions::new().with_user("shop", "secret"));
        assert!(shown.contains("shop") && !shown.contains("secret"), "{shown}");
    }
}
