//! A private Postgres for the benches, by the script that the tests use.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs, io, process};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// Stopped and removed when it is dropped.
pub struct Server {
    folder: PathBuf,
    pub port: u16,
}

impl Server {
    /// # Errors
    /// It cannot be had, for instance because Postgres is not installed.
    pub fn start() -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("keylatch-bench-{}", process::id()));
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        fs::create_dir_all(&folder)?;
        let server = Server { folder, port };
        if server.run(&["start"], &[&port.to_string()])? {
            Ok(server)
        } else {
            Err(io::Error::other("it does not start"))
        }
    }

    fn run(&self, before: &[&str], behind: &[&str]) -> io::Result<bool> {
        let mut command = Command::new(SCRIPT);
        command.args(before).arg("postgres").arg(&self.folder).args(behind).stdout(Stdio::null());
        Ok(command.status()?.success())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.run(&["stop"], &[]).is_ok_and(|stopped| stopped) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
