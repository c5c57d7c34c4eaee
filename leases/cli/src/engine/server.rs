//! A server, and how this program authenticates to it.

use std::{
    fmt, fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::{
    args::Place,
    failure::{Failure, USAGE},
    output::tell,
};

/// A server, as the command line names it, and the contents of the files for it.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) place: Place,
    pub(super) namespace: &'static str,
    pub(super) scheme: String,
    pub(super) url: String,
    pub(super) files: Files,
}

/// The contents of the files that the command line names.
#[derive(Clone, Default)]
pub(super) struct Files {
    pub(super) password: Option<String>,
    /// The certificates of the authorities to trust, in PEM, if they are not the system's.
    pub(super) ca: Option<Vec<u8>>,
    /// The client's own certificate, if there is one.
    pub(super) identity: Option<Identity>,
}

/// The client's own certificate and its key, in PEM.
#[cfg_attr(
    not(any(feature = "etcd", feature = "postgres", feature = "redis")),
    allow(dead_code, reason = "the client of NATS reads the files itself")
)]
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

impl Server {
    pub(super) fn at(place: &Place, namespace: &'static str) -> Result<Self, Failure> {
        let url = place.engine.clone().unwrap_or_default();
        let scheme = url.split(':').next().unwrap_or_default().to_owned();
        let files = Files::read(place, &Files::default())?;
        Ok(Server { place: place.clone(), namespace, scheme, url, files })
    }

    /// Returns the server with the present contents of its files.
    fn again(&self) -> Result<Self, Failure> {
        Ok(Server { files: Files::read(&self.place, &self.files)?, ..self.clone() })
    }

    /// Returns a function that must be called for each connection. It reads the files again, because they may have been
    /// replaced since the last connection, and returns what `make` makes of them. If it fails, the engine tries to
    /// connect again; the function writes a message about the first of several failures in a row.
    pub(super) fn at_each_connection<T, F>(&self, make: F) -> impl Fn() -> Result<T, Failure> + use<T, F>
    where
        F: Fn(&Server) -> Result<T, Failure>,
    {
        let (server, has_told) = (self.clone(), AtomicBool::new(false));
        move || {
            let made = server.again().and_then(|server| make(&server));
            let had_told = has_told.swap(made.is_err(), Relaxed);
            if let (Err(failure), false) = (&made, had_told) {
                tell(&format!("{failure}; keylatch tries again"));
            }
            made
        }
    }

    /// Returns whether the scheme asks for TLS, or a certificate was given.
    pub(super) fn has_tls(&self) -> bool {
        let has_certificate = self.place.ca.is_some() || self.place.cert.is_some();
        has_certificate || self.scheme == "rediss" || self.scheme.ends_with("+tls")
    }

    /// Returns the error of a URL that the engine's client does not understand.
    pub(super) fn invalid(&self, error: impl fmt::Display) -> Failure {
        Failure::new(USAGE, format_args!("the URL of the engine {} is invalid: {error}", self.scheme))
    }
}

impl Files {
    /// Reads the files, or keeps what was read `before` where a file can be read only once.
    fn read(place: &Place, before: &Files) -> Result<Files, Failure> {
        let password = match (place.password_file.as_deref(), &before.password) {
            (Some(path), Some(before)) if can_be_read_once(path) => Some(before.clone()),
            (Some(path), _) => Some(password(path)?),
            (None, _) => None,
        };
        let ca = match (place.ca.as_deref(), &before.ca) {
            (Some(path), Some(before)) if can_be_read_once(path) => Some(before.clone()),
            (Some(path), _) => Some(read("CA", path)?),
            (None, _) => None,
        };
        let identity = match (place.cert.as_deref().zip(place.key.as_deref()), &before.identity) {
            // A certificate and its key must belong together.
            (Some((cert, key)), Some(before)) if can_be_read_once(cert) || can_be_read_once(key) => {
                Some(before.clone())
            }
            (Some((cert, key)), _) => {
                Some(Identity { certificate: read("certificate", cert)?, key: read("key", key)? })
            }
            (None, _) => None,
        };
        Ok(Files { password, ca, identity })
    }
}

/// Returns whether this is not a regular file: a pipe, such as a shell's `<(command)`, is empty when it is read again.
fn can_be_read_once(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file())
}

fn password(path: &Path) -> Result<String, Failure> {
    let text = read("password", path)?;
    if text.is_empty() {
        // Perhaps the file is still being written.
        return Err(Failure::new(USAGE, format_args!("the file {} with the password is empty", path.display())));
    }
    Ok(String::from_utf8_lossy(&text).trim_end_matches(['\r', '\n']).to_owned())
}

fn read(what: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error| format!("the file {} with the {what} cannot be read: {error}", path.display());
    fs::read(path).map_err(|error| Failure::new(USAGE, failed(error)))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Write as _, pipe},
        os::fd::AsRawFd as _,
        path::PathBuf,
    };

    use super::*;

    /// A folder that is removed when it is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("keylatch-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }

        fn write(&self, name: &str, text: &str) -> Option<PathBuf> {
            fs::write(self.0.join(name), text).unwrap();
            Some(self.0.join(name))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn place(password_file: Option<PathBuf>) -> Place {
        Place { engine: Some("redis://host".into()), password_file, ca: None, cert: None, key: None }
    }

    fn contents(files: &Files) -> String {
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        let identity = files.identity.as_ref().map(|of| [&of.certificate, &of.key].map(text));
        format!("{:?} {:?} {:?}", files.password, files.ca.as_ref().map(text), identity)
    }

    #[test]
    fn the_files_are_read_again_at_each_connection() {
        let folder = Folder::new("read-again");
        let mut place = place(folder.write("password", "old\r\n"));
        (place.ca, place.cert) = (folder.write("ca", "old"), folder.write("cert", "old"));
        place.key = folder.write("key", "old");
        let server = Server::at(&place, "").unwrap();
        let now = server.at_each_connection(|server| Ok(contents(&server.files)));
        assert_eq!(now().unwrap(), r#"Some("old") Some("old") Some(["old", "old"])"#);
        for name in ["password", "ca", "cert", "key"] {
            folder.write(name, "new");
        }
        assert_eq!(now().unwrap(), r#"Some("new") Some("new") Some(["new", "new"])"#);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_until_it_can() {
        let folder = Folder::new("unreadable");
        let path = folder.write("password", "old").unwrap();
        let server = Server::at(&place(Some(path.clone())), "").unwrap();
        let now = server.at_each_connection(|server| Ok(contents(&server.files)));
        fs::remove_file(&path).unwrap();
        let missing = now().unwrap_err().to_string();
        assert!(missing.contains("password with the password cannot be read"), "{missing}");
        folder.write("password", "");
        assert!(now().unwrap_err().to_string().contains("is empty"));
        folder.write("password", "new");
        assert_eq!(now().unwrap(), r#"Some("new") None None"#);
    }

    #[test]
    fn a_pipe_is_read_once() {
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(b"from a command\n").unwrap();
        drop(writer);
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let server = Server::at(&place(Some(path)), "").unwrap();
        assert_eq!(contents(&server.again().unwrap().files), r#"Some("from a command") None None"#);
    }
}
