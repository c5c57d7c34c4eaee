//! Postgres.

use keylatch_lease_postgres::{NoTls, Options, Postgres};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_postgres::{
    Client, Config, Socket,
    config::SslMode,
    tls::{MakeTlsConnect, TlsConnect},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::server::{Identity, Server};
use crate::failure::{Failure, USAGE};

/// The part of the URL that says that a pooler in between shares the sessions among its clients.
const POOLED: &str = "pooled=true";

pub(super) fn connect(server: &Server) -> Result<Postgres, Failure> {
    let options = Postgres::in_namespace(server.namespace);
    let is_pooled = server.url.split_once('?').is_some_and(|(_, query)| query.split('&').any(|one| one == POOLED));
    let options = if is_pooled { options.without_session() } else { options };
    // Invalid settings are reported before the first attempt to connect.
    if has_tls(&config(server)?) {
        tls(server)?;
        let settings = server.at_each_connection(|server| Ok((config(server)?, tls(server)?)));
        return Ok(start(options, settings));
    }
    Ok(start(options, server.at_each_connection(|server| Ok((config(server)?, NoTls)))))
}

/// Starts the engine. The function `settings` returns the settings of each connection.
fn start<T>(options: Options, settings: impl Fn() -> Result<(Config, T), Failure> + Send + 'static) -> Postgres
where
    T: MakeTlsConnect<Socket> + Send + 'static,
    T::TlsConnect: Send,
    T::Stream: Send + 'static,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let (postgres, driver) = options.connect_with(move || {
        let settings = settings();
        async move {
            let (config, tls) = settings?;
            Ok(config.connect(tls).await?)
        }
    });
    tokio::spawn(driver);
    postgres
}

/// Makes the table, and opens the namespace.
pub(super) async fn init(server: &Server) -> Result<(), Failure> {
    let config = config(server)?;
    let client: Client = if has_tls(&config) {
        let (client, connection) = config.connect(tls(server)?).await.map_err(causes)?;
        tokio::spawn(connection);
        client
    } else {
        let (client, connection) = config.connect(NoTls).await.map_err(causes)?;
        tokio::spawn(connection);
        client
    };
    Postgres::create_table(&client).await.map_err(causes)?;
    connect(server)?.init().await.map_err(Failure::engine)
}

/// Returns an error with its causes. The client's error alone says only what the client was doing.
fn causes(error: tokio_postgres::Error) -> Failure {
    let mut text = format!("Postgres: {error}");
    let mut cause = std::error::Error::source(&error);
    while let Some(found) = cause {
        text = format!("{text}: {found}");
        cause = found.source();
    }
    Failure::engine(text)
}

fn config(server: &Server) -> Result<Config, Failure> {
    // Certificates are always verified in full. The client knows the mode `require`, but neither `verify-full` nor
    // `verify-ca`.
    let url = match server.url.split_once('?') {
        Some((url, query)) => {
            let query: Vec<_> = query.split('&').filter(|one| *one != POOLED).collect();
            let query = query.join("&").replace("sslmode=verify-full", "sslmode=require");
            format!("{url}?{}", query.replace("sslmode=verify-ca", "sslmode=require"))
        }
        None => server.url.clone(),
    };
    let mut config = url.parse::<Config>().map_err(|error| server.invalid(error))?;
    if let Some(password) = &server.files.password {
        config.password(password);
    }
    if server.has_tls() {
        config.ssl_mode(SslMode::Require);
    }
    Ok(config)
}

/// Returns whether the URL asks for TLS, with `sslmode=require` or a stricter mode, or a certificate was given.
fn has_tls(config: &Config) -> bool {
    config.get_ssl_mode() == SslMode::Require
}

/// Returns the connector that encrypts the connection.
fn tls(server: &Server) -> Result<MakeRustlsConnect, Failure> {
    let invalid = |what: &'static str| {
        move |error: &dyn std::fmt::Display| Failure::new(USAGE, format_args!("the {what} is invalid: {error}"))
    };
    let mut roots = RootCertStore::empty();
    match &server.files.ca {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| invalid("CA's certificate")(&error))?;
                roots.add(certificate).map_err(|error| invalid("CA's certificate")(&error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let config = match &server.files.identity {
        Some(Identity { certificate, key }) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
            let chain = chain.map_err(|error| invalid("client's certificate")(&error))?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid("client's key")(&error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| invalid("client's certificate")(&error))?
        }
        None => builder.with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}
