//! A private server for the benches, started by the script that the tests use; or only a folder, for an engine without
//! a server.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs, io, process};

use keylatch_lease_conformance::servers::free_ports;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// A server that is stopped and removed when this is dropped, by the process that has started it.
pub struct Server {
    /// The name of the server in the script; `None` if there is none.
    name: Option<&'static str>,
    pub folder: PathBuf,
    pub port: u16,
    is_ours: bool,
}

impl Server {
    /// # Errors
    /// If the server cannot be started, for instance because it is not installed.
    pub fn start(name: Option<&'static str>) -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("keylatch-bench-{}-{}", name.unwrap_or("none"), process::id()));
        let port = free_ports(2); // an etcd node listens for other nodes on the next port
        fs::create_dir_all(&folder)?;
        let server = Server { name, folder, port, is_ours: true };
        if server.run(&["start"], &[&port.to_string()])? {
            Ok(server)
        } else {
            Err(io::Error::other("leases/servers/run could not start it: see its message above"))
        }
    }

    /// Returns a server that another process has started.
    pub(crate) fn of_another_process(port: u16) -> Self {
        Server { name: None, folder: PathBuf::new(), port, is_ours: false }
    }

    fn run(&self, before: &[&str], behind: &[&str]) -> io::Result<bool> {
        let Some(name) = self.name else { return Ok(true) };
        let mut command = Command::new(SCRIPT);
        command.args(before).arg(name).arg(&self.folder).args(behind).stdout(Stdio::null());
        Ok(command.status()?.success())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_ours && self.run(&["stop"], &[]).is_ok_and(|stopped| stopped) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
