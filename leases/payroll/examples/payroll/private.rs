//! A private server, started by the script that the tests use.

use std::{
    env,
    net::TcpListener,
    path::PathBuf,
    process::{self, Child, Command, Stdio},
};

use crate::lock::Error;

/// In the checkout that this was built in.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

/// It is stopped, and removed, when it is dropped; and also if this process dies before.
pub(crate) struct Private {
    /// How to connect, in the words of the script.
    pub(crate) address: String,
    _watchdog: Watchdog,
}

impl Private {
    /// `server` is what the script calls it.
    pub(crate) fn start(server: &str) -> Result<Self, Error> {
        let folder = env::temp_dir().join(format!("keylatch-payroll-{}", process::id()));
        // Somebody else may take the port before the server does: then it does not start, and says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let watchdog = Watchdog::start(server, folder)?;
        // It says itself what is missing.
        let output = Command::new(SCRIPT)
            .args(["start", server])
            .arg(&watchdog.folder)
            .arg(port)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("{SCRIPT}: {error}"))?;
        if !output.status.success() {
            return Err(format!("there is no server: leases/servers/run has failed: {}", output.status).into());
        }
        let address = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(Private { address, _watchdog: watchdog })
    }
}

/// A shell that reads from a pipe of this process until there is nobody to write to it, whatever has become of the process; then it
/// stops the server, and removes the folder.
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
            .map_err(|error| format!("bash, which is to stop the server: {error}"))?;
        Ok(Watchdog { folder, shell })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // There is nobody left to tell if it fails.
        _ = self.shell.wait();
    }
}
