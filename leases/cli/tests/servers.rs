//! The command with leases on servers, over TLS, with a user and a password from a file.

mod common;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use common::{Desk, Running, kill_and_stop, refuses_a_late_write, script, text, until};
use keylatch_lease_conformance::servers::{PrivateServer, free_ports};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustix::process::Signal;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

const PASSWORD: &str = "s3cret/ and @ more";

/// A folder with certificates of its own authority. The folder is removed when this is dropped.
struct Certificates(Desk);

impl Certificates {
    fn new() -> Self {
        let desk = Desk::at(Vec::new());
        let authority = |name: &str| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, name);
            CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
        };
        let (ours, others) = (authority("ours"), authority("others"));
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &ours).unwrap();
        fs::write(desk.path("ca.pem"), ours.pem()).unwrap();
        fs::write(desk.path("others.pem"), others.pem()).unwrap();
        fs::write(desk.path("server.pem"), certificate.pem()).unwrap();
        fs::write(desk.path("server.key"), key.serialize_pem()).unwrap();
        fs::write(desk.path("password"), format!("{PASSWORD}\n")).unwrap();
        fs::write(desk.path("wrong"), "not this\n").unwrap();
        // The servers run as other users.
        fs::set_permissions(&desk.folder, fs::Permissions::from_mode(0o755)).unwrap();
        Certificates(desk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Returns a desk whose engine is at this URL, with these files.
    fn desk(&self, url: &str, ca: &str, password: &str) -> Desk {
        Desk::at(vec![
            ("KEYLATCH_ENGINE", url.to_owned()),
            ("KEYLATCH_CA", self.text(ca)),
            ("KEYLATCH_PASSWORD_FILE", self.text(password)),
        ])
    }

    /// Tries everything that depends on the engine.
    fn try_all(&self, url: &str) {
        let desk = self.desk(url, "ca.pem", "password");
        let done = |output: Output| {
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout)
        };
        done(desk.run(&["init"]));
        let token = |output| done(output).trim().parse::<u64>().unwrap();
        let words = ["run", "report", "--", "sh", "-c", "echo $KEYLATCH_TOKEN"];
        let first = token(desk.run(&words));
        assert!(token(desk.run(&words)) > first);

        let holder = desk.start(&["run", "--owner", "ann", "report", "--", "sh", "-c", &script("sleep 600")]);
        let refused = desk.run(&["run", "--try", "report", "--", "true"]);
        assert_eq!(refused.status.code(), Some(75), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("report is leased to ann"));
        assert!(done(desk.run(&["ls"])).contains(&desk.token("report")));
        done(desk.run(&["release", "report", "--token", &desk.token("report")]));
        assert_eq!(holder.end().status.code(), Some(76));
        assert_eq!(text(&desk.run(&["who", "report"]).stdout), "free\n");

        let holder = desk.start(&["run", "--owner", "ann", "report", "--", "sh", "-c", &script("sleep 600")]);
        assert_eq!(done(desk.run(&["release-all", "ann"])), "1 released\n");
        assert_eq!(holder.end().status.code(), Some(76));

        for (ca, password) in [("others.pem", "password"), ("ca.pem", "wrong")] {
            let refused = self.desk(url, ca, password).run(&["ls"]);
            assert_eq!(refused.status.code(), Some(69), "{ca}, {password}: {refused:?}");
            let told = text(&refused.stderr);
            assert!(!told.contains(PASSWORD) && !told.contains("not this"), "{told}");
        }
        let missing = self.desk(url, "missing", "password").run(&["ls"]);
        assert_eq!(missing.status.code(), Some(64));
        assert!(text(&missing.stderr).contains("missing with the CA cannot be read"), "{}", text(&missing.stderr));
    }

    fn write(&self, name: &str, text: &str) {
        // Nobody sees a file that is half written.
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }

    /// Replaces the password while commands run that have read the old one. `change` sets the new one on the server. If
    /// the server does not then end the connections by itself, `cut` ends them.
    fn replace_the_password(&self, url: &str, change: impl Fn(&str), cut: impl Fn()) {
        let other = self.desk(url, "ca.pem", "known");
        let change_to = |password: &str| {
            change(password);
            self.write("known", password);
            until("the new password is in use", || other.run(&["ls"]).status.success());
        };
        self.write("replaced", PASSWORD);
        self.replace_in_the_file_first(&self.desk(url, "ca.pem", "replaced"), &other, change_to);
        self.replace_on_the_server_first(&self.desk(url, "ca.pem", "replaced"), &other, |password| {
            change_to(password);
            cut();
        });
    }

    fn replace_in_the_file_first(&self, desk: &Desk, other: &Desk, change_to: impl Fn(&str)) {
        let mut watch = desk.command(&["watch", "report"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
        let _watch = Running(Some(watch));
        assert_eq!(lines.next().as_deref(), Some("free"));
        self.write("replaced", "the second/ one");
        change_to("the second/ one");
        let holder = other.start(&["run", "--owner", "bob", "report", "--", "sh", "-c", &script("sleep 600")]);
        let line = lines.next().unwrap();
        assert!(line.starts_with("bob has it"), "{line}");
        assert!(other.run(&["release-all", "bob"]).status.success());
        assert_eq!(holder.end().status.code(), Some(76));
        assert_eq!(lines.next().as_deref(), Some("free"));
    }

    /// Replaces the password on the server first. The file with the password is missing meanwhile.
    fn replace_on_the_server_first(&self, desk: &Desk, other: &Desk, change_to: impl Fn(&str)) {
        let mut holder = desk.command(&["run", "--ttl", "1h", "report", "--", "sh", "-c", &script("sleep 600")]);
        let holder = Running(Some(holder.stderr(fs::File::create(desk.path("told")).unwrap()).spawn().unwrap()));
        let told = || fs::read_to_string(desk.path("told")).unwrap();
        until("the command begins", || desk.path("begun").exists());
        fs::remove_file(self.path("replaced")).unwrap();
        change_to("the third one");
        until("it cannot read the file", || told().contains("replaced with the password cannot be read"));
        self.write("replaced", "the third one");
        let token = other.token("report");
        assert!(other.run(&["release", "report", "--token", &token]).status.success());
        assert_eq!(holder.end().status.code(), Some(76), "{}", told());
        assert_eq!(told().matches("cannot be read").count(), 1, "{}", told());
    }
}

fn shell(command: &str) {
    let output = Command::new("bash").args(["-euc", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn redis() {
    let (files, port) = (Certificates::new(), free_ports(1));
    // The plain port, with a user without a password, is for the script.
    let config = format!(
        "save \"\"\nappendonly yes\ntls-port {port}\ntls-cert-file {}\ntls-key-file {}\ntls-auth-clients no\n\
         user shop on >{} ~{{keylatch:* &{{keylatch:* +@all\n",
        files.text("server.pem"),
        files.text("server.key"),
        "placeholder"
    );
    let server = PrivateServer::new(SCRIPT, "redis").file("redis.conf", &config).start();
    let plain = server.address().port();
    let set_password =
        |password: &str| shell(&format!("redis-cli -p {plain} ACL SETUSER shop resetpass '>{password}'"));
    set_password(PASSWORD);
    files.try_all(&format!("rediss://shop@127.0.0.1:{port}"));
    files.try_all(&format!("redis://shop@127.0.0.1:{port}/1"));
    let change = |password: &str| {
        set_password(password);
        shell(&format!("redis-cli -p {plain} CLIENT KILL USER shop"));
    };
    files.replace_the_password(&format!("rediss://shop@127.0.0.1:{port}"), change, || ());
}

#[test]
fn postgres() {
    let files = Certificates::new();
    let server = PrivateServer::new(SCRIPT, "postgres").start();
    let (port, data) = (server.address().port(), server.folder().join("data"));
    let copied = |name: &str| {
        fs::copy(files.path(name), data.join(name)).unwrap();
        let owner = fs::metadata(&data).unwrap();
        use std::os::unix::fs::{MetadataExt, chown};
        chown(data.join(name), Some(owner.uid()), Some(owner.gid())).unwrap();
        fs::set_permissions(data.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    ["server.pem", "server.key"].into_iter().for_each(copied);
    let sql = |sql: &str| {
        shell(&format!("psql -q -v ON_ERROR_STOP=1 'host=127.0.0.1 port={port} user=postgres' <<'END'\n{sql}\nEND\n"));
    };
    sql(&format!(
        "CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'; CREATE DATABASE shop OWNER shop;
         ALTER SYSTEM SET ssl_cert_file = 'server.pem'; ALTER SYSTEM SET ssl_key_file = 'server.key';
         ALTER SYSTEM SET ssl = on;"
    ));
    let rules = fs::read_to_string(data.join("pg_hba.conf")).unwrap();
    fs::write(data.join("pg_hba.conf"), format!("hostssl all shop 127.0.0.1/32 scram-sha-256\n{rules}")).unwrap();
    sql("SELECT pg_reload_conf();");
    until("Postgres encrypts", || {
        let settings = format!("host=127.0.0.1 port={port} user=postgres sslmode=require");
        Command::new("psql").args(["-c", "SELECT 1", &settings]).output().unwrap().status.success()
    });
    let url = format!("postgres://shop@127.0.0.1:{port}/shop?sslmode=verify-full");
    files.try_all(&url);
    let change = |password: &str| {
        sql(&format!(
            "ALTER ROLE shop PASSWORD '{password}';
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop';"
        ));
    };
    files.replace_the_password(&url, change, || ());
}

#[test]
fn etcd() {
    let (files, port) = (Certificates::new(), free_ports(1));
    let server = PrivateServer::new(SCRIPT, "etcd").ports(2);
    let plain = server.address().port();
    let flags = format!(
        "--listen-client-urls http://127.0.0.1:{plain},https://127.0.0.1:{port} --cert-file {} --key-file {}",
        files.text("server.pem"),
        files.text("server.key")
    );
    let server = server.env("ETCD_FLAGS", flags).start();
    let call_with = |headers: &str, path: &str, body: &str| {
        let mut connection = TcpStream::connect(("127.0.0.1", plain)).unwrap();
        let headers = format!("{headers}Content-Length: {}\r\n", body.len());
        write!(connection, "POST /v3/auth/{path} HTTP/1.0\r\n{headers}\r\n{body}").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 OK"), "{path}: {answer}");
        answer
    };
    let call = |path: &str, body: &str| call_with("", path, body);
    call("user/add", r#"{"name": "root", "password": "for the tests"}"#);
    call("user/grant", r#"{"user": "root", "role": "root"}"#);
    call("user/add", &format!(r#"{{"name": "shop", "password": "{PASSWORD}"}}"#));
    call("role/add", r#"{"name": "leases"}"#);
    // All keys that begin with `keylatch-lease/`.
    let range = r#""key": "a2V5bGF0Y2gtbGVhc2Uv", "range_end": "a2V5bGF0Y2gtbGVhc2Uw""#;
    call("role/grant", &format!(r#"{{"name": "leases", "perm": {{"permType": "READWRITE", {range}}}}}"#));
    call("user/grant", r#"{"user": "shop", "role": "leases"}"#);
    call("enable", "{}");
    let url = format!("etcd+tls://shop@127.0.0.1:{port}");
    files.try_all(&url);
    let change = |password: &str| {
        let answer = call("authenticate", r#"{"name": "root", "password": "for the tests"}"#);
        let token = answer.split(r#""token":""#).nth(1).unwrap().split('"').next().unwrap();
        let body = format!(r#"{{"name": "shop", "password": "{password}"}}"#);
        call_with(&format!("Authorization: {token}\r\n"), "user/changepw", &body);
    };
    // When a password changes, etcd forgets the logins, but keeps the connections.
    let cut = || ["kill", "start"].into_iter().for_each(|action| server.run(action));
    files.replace_the_password(&url, change, cut);
}

#[test]
fn nats() {
    let files = Certificates::new();
    let config = |password: &str| {
        let tls = format!("cert_file: \"{}\", key_file: \"{}\"", files.text("server.pem"), files.text("server.key"));
        format!("tls {{ {tls} }}\nauthorization {{ users: [{{ user: shop, password: \"{password}\" }}] }}\n")
    };
    let server = PrivateServer::new(SCRIPT, "nats").file("more.conf", &config(PASSWORD)).start();
    let port = server.address().port();
    files.try_all(&format!("nats+tls://shop@127.0.0.1:{port}"));
    files.try_all(&format!("nats://shop@127.0.0.1:{port}"));
    let change = |password: &str| {
        fs::write(server.folder().join("more.conf"), config(password)).unwrap();
        let process = fs::read_to_string(server.folder().join("nats.pid")).unwrap();
        shell(&format!("kill -HUP {process}"));
    };
    files.replace_the_password(&format!("nats://shop@127.0.0.1:{port}"), change, || ());
}

/// Runs the README's script for the entry point of a container on this engine: the container that leads is killed, and
/// another one takes the lead.
fn one_of_three_containers_leads(engine: &str) {
    let readme = include_str!("../README.md");
    let (_, entry) = readme.split_once("export KEYLATCH_PASSWORD_FILE=").unwrap();
    let entry = entry.split("```").next().unwrap();
    let entry: Vec<_> = entry.lines().skip(1).filter(|line| !line.contains("KEYLATCH_ENGINE")).collect();
    let entry = entry.join("\n").replace("keylatch lead", concat!(env!("CARGO_BIN_EXE_keylatch"), " lead"));
    let desk = Desk::at(vec![("KEYLATCH_ENGINE", engine.to_owned())]);
    assert!(desk.run(&["init"]).status.success());
    fs::write(desk.path("scheduler"), "#!/bin/sh\necho $PPID >> leaders\nexec sleep 600\n").unwrap();
    fs::set_permissions(desk.path("scheduler"), fs::Permissions::from_mode(0o755)).unwrap();
    let container = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", &entry]).env("KEYLATCH_ENGINE", engine).current_dir(&desk.folder);
        Running(Some(shell.stderr(Stdio::null()).spawn().unwrap()))
    };
    let mut containers = vec![container(), container(), container()];
    let leaders = || fs::read_to_string(desk.path("leaders")).unwrap_or_default();
    until("one leads", || leaders().lines().count() == 1);
    let first: u32 = leaders().trim().parse().unwrap();
    let at = containers.iter().position(|container| container.0.as_ref().unwrap().id() == first).unwrap();
    containers.remove(at).signal(Signal::KILL);
    until("another one leads", || leaders().lines().count() == 2);
    assert!(!leaders().trim_start().ends_with(&format!("\n{first}\n")));
    assert!(desk.run(&["ls"]).status.success());
}

#[test]
fn one_of_three_containers_leads_with_redis() {
    let server = PrivateServer::new(SCRIPT, "redis").start();
    one_of_three_containers_leads(&format!("redis://{}", server.address()));
}

#[test]
fn one_of_three_containers_leads_with_postgres() {
    let server = PrivateServer::new(SCRIPT, "postgres").start();
    one_of_three_containers_leads(&format!("postgres://postgres@{}/postgres", server.address()));
}

#[test]
fn the_readmes_statement_for_postgres_refuses_a_late_write() {
    let server = PrivateServer::new(SCRIPT, "postgres").start();
    let psql = format!("-h 127.0.0.1 -p {} -U postgres", server.address().port());
    shell(&format!(
        "psql {psql} -qc \"CREATE TABLE report (id int PRIMARY KEY, body text, fence bigint)\" -c \"INSERT INTO report VALUES (1, '', 0)\""
    ));
    refuses_a_late_write(&Desk::new(), "psql", &psql, || {
        let words = format!("psql {psql} -Atc 'SELECT body FROM report'");
        text(&Command::new("sh").args(["-c", &words]).output().unwrap().stdout).trim().to_owned()
    });
}

#[test]
fn the_readmes_statement_for_redis_refuses_a_late_write() {
    let server = PrivateServer::new(SCRIPT, "redis").start();
    let port = server.address().port();
    refuses_a_late_write(&Desk::new(), "redis-cli", &format!("-p {port}"), || {
        let words = format!("redis-cli -p {port} HGET report body");
        text(&Command::new("sh").args(["-c", &words]).output().unwrap().stdout).trim().to_owned()
    });
}

#[test]
fn no_two_commands_run_at_once_on_redis() {
    let server = PrivateServer::new(SCRIPT, "redis").start();
    let desk = Desk::at(vec![("KEYLATCH_ENGINE", format!("redis://{}", server.address()))]);
    assert!(desk.run(&["init"]).status.success());
    kill_and_stop(&desk);
}

/// The pool has two sessions, which the three containers share.
#[test]
fn one_of_three_containers_leads_with_postgres_behind_a_pooler() {
    let server = PrivateServer::new(SCRIPT, "postgres").start();
    let pooler = PrivateServer::new(SCRIPT, "pgbouncer").env("UPSTREAM", server.address().port().to_string());
    let pooler = pooler.env("MODE", "transaction").env("POOL", "2").start();
    one_of_three_containers_leads(&format!("postgres://postgres@{}/postgres?pooled=true", pooler.address()));
}
