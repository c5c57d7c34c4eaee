//! A private server for the benches, by the script that the tests use.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs, io, process};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// Stopped and removed when it is dropped.
pub struct Server {
    /// What the script calls it.
    name: &'static str,
    folder: PathBuf,
    pub port: u16,
}

impl Server {
    /// # Errors
    /// It cannot be had, for instance because it is not installed.
    pub fn start(name: &'static str) -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("keylatch-bench-{name}-{}", process::id()));
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        fs::create_dir_all(&folder)?;
        let server = Server { name, folder, port };
        if server.run(&["start"], &[&port.to_string()])? {
            Ok(server)
        } else {
            Err(io::Error::other("it does not start"))
        }
    }

    fn run(&self, before: &[&str], behind: &[&str]) -> io::Result<bool> {
        let mut command = Command::new(SCRIPT);
        command.args(before).arg(self.name).arg(&self.folder).args(behind).stdout(Stdio::null());
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
