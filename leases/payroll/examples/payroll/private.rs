//! A private server, started by the script that the tests use.

use std::{
    env,
    path::PathBuf,
    process::{self, Child, Command, Stdio},
};

use keylatch_lease_conformance::servers::free_ports;

use crate::lock::Error;

/// The script, in the checkout from which this program was built.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// A server that is stopped and removed when this is dropped or the process dies.
pub(crate) struct Private {
    /// The address, as the script prints it.
    pub(crate) address: String,
    _watchdog: Watchdog,
}

impl Private {
    /// Starts a server. `server` is its name in the script.
    pub(crate) fn start(server: &str) -> Result<Self, Error> {
        let folder = env::temp_dir().join(format!("keylatch-payroll-{}", process::id()));
        let port = free_ports(2).to_string(); // an etcd node listens for other nodes on the next port
        let watchdog = Watchdog::start(server, folder)?;
        // The script itself reports a missing package.
        let output = Command::new(SCRIPT)
            .args(["start", server])
            .arg(&watchdog.folder)
            .arg(port)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("{SCRIPT}: {error}"))?;
        if !output.status.success() {
            return Err(format!("cannot start the server: leases/servers/run failed: {}", output.status).into());
        }
        let address = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(Private { address, _watchdog: watchdog })
    }
}

/// A shell that reads from a pipe of this process until the pipe is closed, by the drop or by the end of the process.
/// It then stops the server, and removes the folder.
struct Watchdog {
    folder: PathBuf,
    shell: Child,
}

impl Watchdog {
    fn start(server: &str, folder: PathBuf) -> Result<Self, Error> {
        let script = "trap '' HUP INT TERM; cat >/dev/null; \"$0\" stop \"$2\" \"$1\"; rm -rf \"$1\"";
        let shell = Command::new("bash")
            .args(["-c", script, SCRIPT])
            .arg(&folder)
            .arg(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start bash, which stops the server at the end: {error}"))?;
        Ok(Watchdog { folder, shell })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // A failure cannot be reported to anybody.
        _ = self.shell.wait();
    }
}
