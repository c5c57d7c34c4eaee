//! URLs with several hosts.

use percent_encoding::percent_decode_str;

use super::server::Server;
use crate::failure::Failure;

/// The parts of a URL such as `nats://user:password@host:4222,host2:4222`.
pub(super) struct Hosts {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) hosts: Vec<String>,
}

impl Hosts {
    pub(super) fn of(server: &Server) -> Result<Self, Failure> {
        let rest = server.url.split_once("://").map_or("", |(_, rest)| rest).trim_end_matches('/');
        let (user, hosts) = rest.rsplit_once('@').map_or((None, rest), |(user, hosts)| (Some(user), hosts));
        let (user, password) = match user.map(|user| user.split_once(':').ok_or(user)) {
            Some(Ok((user, password))) => (Some(user), Some(password)),
            Some(Err(user)) => (Some(user), None),
            None => (None, None),
        };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let hosts: Vec<_> = hosts.split(',').map(str::to_owned).collect();
        if hosts.iter().any(|host| host.is_empty() || host.contains(['/', '?', '#'])) {
            return Err(server.invalid("it must be a scheme, and hosts with their ports, separated by commas"));
        }
        let password = server.files.password.clone().or(password.map(decoded));
        Ok(Hosts { user: user.map(decoded), password, hosts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::Place, engine::server::Files};

    const NOTHING: Place = Place { engine: None, password_file: None, ca: None, cert: None, key: None };

    fn server(url: &str) -> Server {
        let scheme = url.split(':').next().unwrap().to_owned();
        Server { place: NOTHING, namespace: "", scheme, url: url.to_owned(), files: Files::default() }
    }

    #[test]
    fn a_url_may_have_a_user_and_several_hosts() {
        let Hosts { user, password, hosts } = Hosts::of(&server("etcd://ann:a%40b@one:2379,two:2379/")).ok().unwrap();
        assert_eq!((user.as_deref(), password.as_deref()), (Some("ann"), Some("a@b")));
        assert_eq!(hosts, ["one:2379", "two:2379"]);
        let plain = Hosts::of(&server("nats://one")).ok().unwrap();
        assert_eq!((plain.user, plain.password, plain.hosts), (None, None, vec!["one".to_owned()]));
    }

    #[test]
    fn a_password_in_a_file_is_used_instead_of_one_in_the_url() {
        let files = Files { password: Some("kept".into()), ..Files::default() };
        let server = Server { files, ..server("etcd://ann:shown@one:2379") };
        assert_eq!(Hosts::of(&server).ok().unwrap().password.as_deref(), Some("kept"));
    }

    #[test]
    fn a_url_without_a_host_is_invalid_and_is_not_repeated() {
        for url in
            ["etcd:", "etcd://", "etcd://ann:secret@", "etcd://ann:secret@one,,two", "etcd://ann:secret@one/path"]
        {
            let error = Hosts::of(&server(url)).err().unwrap().to_string();
            assert!(error.starts_with("the URL of the engine etcd is invalid") && !error.contains("secret"), "{error}");
        }
    }
}
