//! A private server, started by the script that the tests use.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, process};

use keylatch_lease_conformance::servers::free_ports;

use crate::case::Error;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// A server that is stopped and removed when this is dropped or the process is killed.
pub struct Private {
    /// The address, as the script prints it.
    pub address: String,
    pub port: u16,
    _shell: Shell,
}

/// A shell that reads from a pipe of this process until the pipe is closed, by the drop or by the end of the process.
/// It then stops the server, and removes the folder.
struct Shell(Child);

impl Private {
    pub fn start(server: &str) -> Result<Self, Error> {
        let folder = env::temp_dir().join(format!("keylatch-crowds-{server}-{}", process::id()));
        let port = free_ports(2); // an etcd node listens for other nodes on the next port
        let shell = Shell::start(server, &folder)?;
        let mut command = Command::new(SCRIPT);
        command.args(["start", server]).arg(&folder).arg(port.to_string());
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("leases/servers/run start {server} failed: {}", output.status).into());
        }
        let address = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(Private { address, port, _shell: shell })
    }
}

impl Shell {
    fn start(server: &str, folder: &Path) -> Result<Self, Error> {
        let script = "trap '' HUP INT TERM; cat >/dev/null; \"$0\" stop \"$1\" \"$2\"; rm -rf \"$2\"";
        let mut command = Command::new("bash");
        command.args(["-c", script, SCRIPT, server]).arg(folder);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Shell(child))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // A failure cannot be reported to anybody.
        _ = self.0.wait();
    }
}
