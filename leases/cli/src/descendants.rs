//! Processes that have left the command's group. They can be found only on Linux.

use std::{fs, io, thread, time::Duration};

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

/// The greatest number of rounds in which processes are killed, and the pause after each.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// Makes this process the parent of all descendants whose parents have ended.
pub(crate) fn adopt() -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    set_child_subreaper(Some(getpid()))?;
    Ok(())
}

/// Returns the children of this process.
pub(crate) fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(pid).collect::<Vec<_>>()).collect()
}

/// Kills all processes that were started with this variable in their environment and this token in its value.
pub(crate) fn kill_all_of(variable: &str, token: &str) {
    // A process that is killed may just have started another one, and takes a moment to die. One that waits for a disk
    // that does not answer cannot be killed. One that is becoming another program has no environment for a moment.
    let mut in_vain = 0;
    for _ in 0..ATTEMPTS {
        in_vain = if kill_each_of(variable, token) == 0 { in_vain + 1 } else { 0 };
        if in_vain == 2 {
            return;
        }
        thread::sleep(PAUSE);
    }
}

fn kill_each_of(variable: &str, token: &str) -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|process| pid(process.file_name().to_str()?));
    let is_token = |value: &[u8]| value.split(|byte| *byte == b':').any(|found| found == token.as_bytes());
    let has_token = |process: &Pid| {
        // Other users' processes cannot be read. One that has ended has no environment.
        let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).unwrap_or_default();
        let mut values = environment
            .split(|byte| *byte == 0)
            .filter_map(|found| found.strip_prefix(variable.as_bytes())?.strip_prefix(b"="));
        values.any(is_token)
    };
    let found = processes.filter(|process| *process != getpid() && has_token(process));
    found.filter(|process| kill_process(*process, Signal::KILL).is_ok()).count()
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}
