//! A server, and how this program authenticates to it.

use std::{fmt, fs, path::Path};

use crate::{
    args::Place,
    failure::{Failure, USAGE},
};

/// A server, as the command line names it.
pub(super) struct Server<'a> {
    pub(super) place: &'a Place,
    pub(super) namespace: &'static str,
    pub(super) scheme: String,
    pub(super) url: String,
    pub(super) password: Option<String>,
}

/// The client's own certificate and its key, in PEM.
pub(super) struct Identity {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

impl<'a> Server<'a> {
    pub(super) fn at(place: &'a Place, namespace: &'static str) -> Result<Self, Failure> {
        let url = place.engine.clone().unwrap_or_default();
        let scheme = url.split(':').next().unwrap_or_default().to_owned();
        let password = place.password_file.as_deref().map(|path| read("password", path)).transpose()?;
        let password = password.map(|text| String::from_utf8_lossy(&text).trim_end_matches(['\r', '\n']).to_owned());
        Ok(Server { place, namespace, scheme, url, password })
    }

    /// Returns the certificates of the authorities to trust, in PEM, if they are not the system's.
    pub(super) fn ca(&self) -> Result<Option<Vec<u8>>, Failure> {
        self.place.ca.as_deref().map(|path| read("CA", path)).transpose()
    }

    /// Returns the client's own certificate, if there is one.
    pub(super) fn identity(&self) -> Result<Option<Identity>, Failure> {
        let (Some(certificate), Some(key)) = (&self.place.cert, &self.place.key) else { return Ok(None) };
        Ok(Some(Identity { certificate: read("certificate", certificate)?, key: read("key", key)? }))
    }

    /// Whether the scheme asks for TLS, or a certificate was given.
    pub(super) fn has_tls(&self) -> bool {
        let has_certificate = self.place.ca.is_some() || self.place.cert.is_some();
        has_certificate || self.scheme == "rediss" || self.scheme.ends_with("+tls")
    }

    /// Returns the error of a URL that the engine's client does not understand.
    pub(super) fn invalid(&self, error: impl fmt::Display) -> Failure {
        Failure::new(USAGE, format_args!("the URL of the engine {} is invalid: {error}", self.scheme))
    }
}

fn read(what: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error| format!("the file {} with the {what} cannot be read: {error}", path.display());
    fs::read(path).map_err(|error| Failure::new(USAGE, failed(error)))
}
