//! Helpers that the tests of the command share.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::{
    collections::BTreeMap,
    env, fs,
    hash::{BuildHasher, RandomState},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// A time that nothing takes unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a file for leases, and the variables that name the engine. The folder is removed on drop.
pub(crate) struct Desk {
    pub(crate) folder: PathBuf,
    engine: Vec<(&'static str, String)>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let mut desk = Desk::at(Vec::new());
        desk.engine = vec![("KEYLATCH_ENGINE", desk.engine())];
        desk
    }

    /// Returns a desk with the engine that these variables name.
    pub(crate) fn at(engine: Vec<(&'static str, String)>) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);

        let name = format!("keylatch-cli-{}-{}", std::process::id(), LAST.fetch_add(1, SeqCst));
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Desk { folder, engine }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn engine(&self) -> String {
        format!("sqlite:{}", self.path("leases.db").display())
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keylatch"));
        command.args(words).envs(self.engine.iter().cloned()).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Starts a command, and waits until it has written the file `begun`.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        let _ = fs::remove_file(self.path("begun"));
        let child = self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let running = Running(Some(child));
        until("the command begins", || fs::read_to_string(self.path("begun")).is_ok_and(|text| text.ends_with('\n')));
        running
    }

    /// Returns the process that wrote its number to `begun`.
    pub(crate) fn begun(&self) -> Pid {
        Pid::from_raw(fs::read_to_string(self.path("begun")).unwrap().trim().parse().unwrap()).unwrap()
    }

    pub(crate) fn token(&self, name: &str) -> String {
        token_in(&text(&self.run(&["who", name, "--json"]).stdout)).unwrap()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the token in a JSON object; `None` if it is `null`.
pub(crate) fn token_in(json: &str) -> Option<String> {
    json.split("\"token\":").nth(1)?.trim_end().strip_suffix('}').map(str::to_owned)
}

/// A process that is killed when this is dropped.
pub(crate) struct Running(pub(crate) Option<Child>);

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.0.as_ref().unwrap()), signal).unwrap();
    }

    pub(crate) fn end(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not after {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether a process runs. A process that has ended, but that its parent has not yet reaped, does not.
pub(crate) fn runs(process: Pid) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(process).is_ok() && !state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

/// Returns a script that says that it has begun, and then does this.
pub(crate) fn script(then: &str) -> String {
    prepared("", then)
}

/// Returns a script that does something, says that it has begun, and then does something else.
pub(crate) fn prepared(before: &str, then: &str) -> String {
    format!("{before} echo $$ > begun.new && mv begun.new begun; {then}")
}

/// Lets eight loops run commands under one lease, one after the other, while their `keylatch` processes are killed and
/// stopped. The commands write their tokens to a file: once a greater token is there, no smaller one may follow.
///
/// It runs for at least three seconds, or `KEYLATCH_SOAK_SECONDS`, and until five processes have been killed.
pub(crate) fn kill_and_stop(desk: &Desk) {
    let seconds = env::var("KEYLATCH_SOAK_SECONDS").map_or(3, |seconds| seconds.parse().unwrap());
    let below = |end: u64| RandomState::new().hash_one(0) % end;
    let then = "for i in 1 2 3 4 5; do echo $KEYLATCH_TOKEN >> log; sleep 0.01; done";
    let words = ["run", "--ttl", "1s", "--quiet", "report", "--", "sh", "-c", then];
    let start = || desk.command(&words).stderr(Stdio::null()).spawn().unwrap();
    let mut all: Vec<Running> = (0..8).map(|_| Running(Some(start()))).collect();
    let mut stopped: BTreeMap<usize, Instant> = BTreeMap::new();
    let (begin, mut killed) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(seconds) || killed < 5 {
        thread::sleep(Duration::from_millis(20));
        for (at, running) in all.iter_mut().enumerate() {
            if running.0.as_mut().unwrap().try_wait().unwrap().is_some() {
                stopped.remove(&at);
                *running = Running(Some(start()));
            }
        }
        let at = below(8) as usize;
        match stopped.get(&at) {
            None if below(3) == 0 => {
                all[at].signal(Signal::STOP);
                stopped.insert(at, Instant::now());
            }
            None if below(3) == 0 => {
                all[at].signal(Signal::KILL);
                killed += 1;
            }
            Some(since) if since.elapsed() > Duration::from_millis(1500) => {
                all[at].signal(Signal::CONT);
                stopped.remove(&at);
            }
            _ => {}
        }
    }
    for running in &all {
        running.signal(Signal::KILL);
    }
    drop(all);
    assert!(desk.run(&["run", "report", "--", "true"]).status.success(), "the lease stays locked");
    let log = fs::read_to_string(desk.path("log")).unwrap();
    let tokens: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens.is_sorted(), "a command went on beside its successor");
    let runs = tokens.chunk_by(|one, next| one == next).count();
    println!("{runs} commands, {killed} killed");
    let stray = Command::new("pgrep").args(["-f", &desk.path("log").display().to_string()]).output();
    assert!(runs > 0 && stray.is_ok_and(|stray| stray.stdout.is_empty()));
}

/// Runs the README's statement for this program, with these arguments before the statement's own. It runs three times:
/// with the token of a first run, with that of a second, and then with the first token again.
pub(crate) fn refuses_a_late_write(desk: &Desk, program: &str, arguments: &str, body: impl Fn() -> String) {
    let readme = include_str!("../../README.md");
    let statement = readme.lines().find_map(|line| line.strip_prefix(&format!("{program} "))).unwrap();
    let statement = statement.replace("'new'", "'of $KEYLATCH_TOKEN'").replace("\"new\"", "\"of $KEYLATCH_TOKEN\"");
    let statement = format!("{program} {arguments} {statement}");
    let write = |token: Option<&str>| {
        let script = format!(
            "{}{statement} >&2; echo $KEYLATCH_TOKEN",
            token.map(|token| format!("KEYLATCH_TOKEN={token}; ")).unwrap_or_default()
        );
        let output = desk.run(&["run", "report", "--", "sh", "-c", &script]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    let first = write(None);
    assert_eq!(body(), format!("of {first}"));
    let second = write(None);
    assert_eq!(body(), format!("of {second}"));
    write(Some(&first));
    assert_eq!(body(), format!("of {second}"), "a late write was let in");
}
