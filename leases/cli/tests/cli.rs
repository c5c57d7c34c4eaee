//! The command, as people use it: in a script, in a pipe, at a terminal, under an empty environment, killed and
//! stopped.

mod common;

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use common::{Desk, Running, kill_and_stop, prepared, refuses_a_late_write, runs, script, text, token_in, until};

// --- In a script ----------------------------------------------------------------------------------------------------

#[test]
fn the_command_gets_the_lease_in_its_environment_and_its_exit_code_is_passed_on() {
    let desk = Desk::new();
    let script = "echo $KEYLATCH_RESOURCE, $KEYLATCH_OWNER, $KEYLATCH_TOKEN; exit 7";
    let output = desk.run(&["run", "--owner", "ann", "report", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7));
    let told = text(&output.stdout);
    let token = told.strip_prefix("report, ann, ").unwrap_or_else(|| panic!("{told}")).trim();
    assert!(token.parse::<u64>().unwrap() > 0);
    assert_eq!(text(&desk.run(&["who", "report"]).stdout), "free\n");
    let next = desk.run(&["run", "report", "sh", "-c", "echo $KEYLATCH_TOKEN"]);
    assert!(text(&next.stdout).trim().parse::<u64>().unwrap() > token.parse().unwrap());
}

#[test]
fn a_command_that_is_killed_or_cannot_be_started_has_the_exit_code_of_shells() {
    let desk = Desk::new();
    assert_eq!(desk.run(&["run", "report", "--", "sh", "-c", "kill -9 $$"]).status.code(), Some(128 + 9));
    let missing = desk.run(&["run", "report", "--", "/no/such/command"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("/no/such/command cannot be started"));
    assert_eq!(desk.run(&["run", "report", "--", "/"]).status.code(), Some(126));
    assert_eq!(text(&desk.run(&["who", "report"]).stdout), "free\n");
}

#[test]
fn somebody_else_is_refused_or_waits() {
    let desk = Desk::new();
    let holder = desk.start(&["run", "--owner", "ann", "report", "--", "sh", "-c", &script("sleep 600")]);
    for (words, code) in [(vec!["--try"], 75), (vec!["--try", "--busy-code", "9"], 9), (vec!["--wait", "50ms"], 75)] {
        let words = [&["run"], &*words, &["report", "--", "true"]].concat();
        let refused = desk.run(&words);
        assert_eq!(refused.status.code(), Some(code), "{words:?}");
        assert!(text(&refused.stderr).contains("report is leased to ann"), "{}", text(&refused.stderr));
    }
    assert_eq!(text(&desk.run(&["run", "--try", "another", "--", "echo", "free"]).stdout), "free\n");
    // Without a terminal one line says for whom it waits.
    let mut waiting = desk.command(&["run", "report", "--", "echo", "at last"]);
    let mut waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(waiting.stderr.as_mut().unwrap()).read_line(&mut told).unwrap();
    assert!(told.starts_with("keylatch: waiting for report: ann has it for another "), "{told}");
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().status.code(), Some(128 + 15));
    assert_eq!(text(&waiting.wait_with_output().unwrap().stdout), "at last\n");
}

#[test]
fn wrong_arguments_are_errors_that_say_what_is_wrong() {
    let desk = Desk::new();
    assert_eq!(desk.run(&["run", "--no-such-option"]).status.code(), Some(64));
    assert_eq!(desk.run(&["--help"]).status.code(), Some(0));
    let wrong: [(&[&str], &str); 8] = [
        (&["run", "--ttl", "1ms", "report", "--", "true"], "at least 100ms"),
        (&["run", "--ttl", "1s", "--grace", "2s", "report", "--", "true"], "the grace must be at most half"),
        (&["run", "--owner", "", "report", "--", "true"], "the owner's name is empty"),
        (&["--engine", "mongo://host", "ls"], "see `keylatch engines`"),
        (&["--engine", "sqlite:/no/such/folder/leases.db", "ls"], "could not be opened"),
        (&["release", "report", "--token", "0"], "greater than 0"),
        (&["release", "report", "--token", "1"], "nobody has report"),
        (&["run", "--ttl", "30", "report", "--", "true"], "30s, 30m or 30h"),
    ];
    for (words, expected) in wrong {
        let output = desk.run(words);
        assert!(!output.status.success() && text(&output.stderr).contains(expected), "{words:?}: {output:?}");
    }
    let secret = desk.run(&["--engine", "mongo://ann:secret@host", "ls"]);
    assert!(!text(&secret.stderr).contains("secret"));
}

/// Signals do to the first process of a container only what it has arranged for.
#[test]
fn the_first_process_of_a_container_can_be_ended_while_it_waits() {
    let desk = Desk::new();
    let _holder = desk.start(&["run", "report", "--", "sh", "-c", &script("sleep 600")]);
    let mut container = Command::new("unshare");
    container.args(["--pid", "--fork", "--mount-proc", "--map-root-user", env!("CARGO_BIN_EXE_keylatch"), "run"]);
    container.args(["report", "--", "true"]).env("KEYLATCH_ENGINE", desk.engine()).current_dir(&desk.folder);
    let mut container = container.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(container.stderr.as_mut().unwrap()).read_line(&mut told).unwrap();
    if !told.starts_with("keylatch: waiting") {
        container.wait().unwrap();
        return eprintln!("no container can be made here: {told}");
    }
    let children = format!("/proc/{0}/task/{0}/children", container.id());
    let first = fs::read_to_string(children).unwrap();
    kill_process(Pid::from_raw(first.trim().parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(container.wait().unwrap().code(), Some(128 + 15));
}

/// The error output is like a log on a disk that is full.
#[test]
fn an_error_output_that_cannot_be_written_to_changes_nothing() {
    let desk = Desk::new();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut holder = desk.command(&["run", "--owner", "ann", "report", "--", "sh", "-c", &script("sleep 600")]);
    let holder = Running(Some(holder.stderr(full()).spawn().unwrap()));
    until("the command begins", || desk.path("begun").exists());
    let refused = desk.command(&["run", "--try", "report", "--", "true"]).stderr(full()).status().unwrap();
    assert_eq!(refused.code(), Some(75));
    assert!(desk.run(&["release-all", "ann"]).status.success());
    assert_eq!(holder.end().status.code(), Some(76));
}

#[test]
fn a_free_lease_is_acquired_within_any_limit() {
    let desk = Desk::new();
    assert!(desk.run(&["run", "--wait", "0s", "report", "--", "true"]).status.success());
}

#[test]
fn a_terminals_commands_in_a_name_are_not_obeyed() {
    let desk = Desk::new();
    let _holder = desk.start(&["run", "--owner", "eve\u{1b}[31m", "re\nport", "--", "sh", "-c", &script("sleep 600")]);
    for words in [&["ls"][..], &["who", "re\nport"], &["run", "--try", "re\nport", "--", "true"]] {
        let output = desk.run(words);
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(shown.contains("eve\\u{1b}[31m") && !shown.contains('\u{1b}'), "{shown}");
    }
}

/// The command runs in an empty environment, as if under cron.
#[test]
fn an_empty_environment_is_enough_if_there_is_a_home() {
    let desk = Desk::new();
    let program = desk.path("keylatch-copy");
    fs::copy(env!("CARGO_BIN_EXE_keylatch"), &program).unwrap();
    let run = |home: Option<&Path>| {
        let mut command = Command::new(&program);
        command.args(["run", "report", "--", "/bin/sh", "-c", "echo ran"]).env_clear().current_dir("/");
        // Root's leases are in /var/lib.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&desk.folder, Some(65534), Some(65534)).unwrap();
            command.uid(65534).gid(65534);
        }
        if let Some(home) = home {
            command.env("XDG_STATE_HOME", home);
        }
        command.output().unwrap()
    };
    assert_eq!(text(&run(Some(&desk.folder)).stdout), "ran\n");
    assert!(desk.path("keylatch/leases.db").exists());
    let homeless = run(None);
    assert_eq!(homeless.status.code(), Some(64));
    assert!(text(&homeless.stderr).contains("set HOME, or name an engine"));
}

#[test]
fn a_command_may_fill_its_output_and_its_reader_may_leave() {
    let desk = Desk::new();
    let mut child = desk.command(&["run", "report", "--", "sh", "-c", "yes | head -c 3000000; yes"]);
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let mut some = vec![0; 2_000_000];
    child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    drop(child.stdout.take());
    // `yes` dies of SIGPIPE, as it would without this program.
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
    let mut listed = Command::new("sh");
    listed.args(["-c", "\"$0\" --engine \"$1\" ls | true; echo done"]).arg(env!("CARGO_BIN_EXE_keylatch"));
    assert_eq!(text(&listed.arg(desk.engine()).output().unwrap().stdout), "done\n");
}

// --- Signals --------------------------------------------------------------------------------------------------------

#[test]
fn signals_go_on_to_the_command_and_its_children() {
    let desk = Desk::new();
    let child = "trap \"echo child; exit\" TERM; echo > child; sleep 600 & wait";
    let before =
        format!("trap 'wait; echo told; exit 3' TERM; sh -c '{child}' & until [ -e child ]; do sleep 0.01; done;");
    let running = desk.start(&["run", "report", "--", "sh", "-c", &prepared(&before, "wait")]);
    running.signal(Signal::TERM);
    let output = running.end();
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(3), "child\ntold\n"));
}

#[test]
fn processes_that_a_command_leaves_behind_end_before_the_lease_is_released() {
    let desk = Desk::new();
    let output =
        desk.run(&["run", "report", "--", "sh", "-c", "sh -c 'trap \"\" TERM; sleep 600' >/dev/null 2>&1 & echo $!"]);
    let left = Pid::from_raw(text(&output.stdout).trim().parse().unwrap()).unwrap();
    assert!(output.status.success() && !runs(left));
}

#[test]
fn a_killed_keylatch_takes_its_command_and_the_commands_children_along() {
    let desk = Desk::new();
    let then = "sh -c 'echo $$ > child.new; mv child.new child; sleep 600' & wait";
    let running = desk.start(&["run", "--ttl", "1s", "report", "--", "sh", "-c", &prepared("trap '' TERM;", then)]);
    until("the child begins", || desk.path("child").exists());
    let child = Pid::from_raw(fs::read_to_string(desk.path("child")).unwrap().trim().parse().unwrap()).unwrap();
    running.signal(Signal::KILL);
    until("the command ends", || !runs(desk.begun()));
    until("its child ends", || !runs(child));
    // The lease ends by itself.
    assert!(desk.run(&["run", "report", "--", "true"]).status.success());
}

#[test]
fn a_stopped_keylatch_does_not_keep_its_command_running_past_the_lease() {
    let desk = Desk::new();
    // The command ignores SIGTERM, and keeps writing that it runs.
    let then = "while :; do echo old >> log; sleep 0.01; done";
    let running = desk.start(&["run", "--ttl", "1s", "report", "--", "sh", "-c", &prepared("trap '' TERM;", then)]);
    running.signal(Signal::STOP);
    // The next run gets the lease when the tenure of the stopped one has ended, and by then its command must have
    // ended, too.
    let next = desk.run(&["run", "report", "--", "sh", "-c", "echo new >> log; sleep 0.3"]);
    assert!(next.status.success());
    let log = fs::read_to_string(desk.path("log")).unwrap();
    assert!(log.ends_with("old\nnew\n"), "the old command went on: {}", &log[log.len().saturating_sub(60)..]);
    running.signal(Signal::CONT);
    assert_eq!(running.end().status.code(), Some(76));
}

/// The guard must know the end of the lease before the command begins.
#[test]
fn a_keylatch_that_is_stopped_as_its_command_begins_does_not_keep_it_running() {
    let desk = Desk::new();
    for _ in 0..3 {
        let then = "while :; do sleep 0.02; echo $KEYLATCH_TOKEN >> log; done";
        let mut command =
            desk.command(&["run", "--ttl", "1s", "report", "--", "sh", "-c", &format!("echo > now; {then}")]);
        let running = Running(Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()));
        while !desk.path("now").exists() {}
        running.signal(Signal::STOP);
        let then = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $KEYLATCH_TOKEN >> log; sleep 0.03; done";
        assert!(desk.run(&["run", "--quiet", "report", "--", "sh", "-c", then]).status.success());
        let log = fs::read_to_string(desk.path("log")).unwrap();
        assert!(log.lines().is_sorted(), "the old command went on:\n{log}");
        running.signal(Signal::CONT);
        assert_eq!(running.end().status.code(), Some(76));
        fs::remove_file(desk.path("now")).unwrap();
    }
}

/// `keylatch` is stopped between acquiring and starting, for longer than the lease lasts.
#[test]
fn a_keylatch_that_is_stopped_before_its_command_begins_does_not_begin_it_late() {
    let desk = Desk::new();
    desk.run(&["ls"]);
    let file = rusqlite::Connection::open(desk.path("leases.db")).unwrap();
    file.busy_timeout(Duration::from_millis(100)).unwrap();
    let version = || file.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap();
    let is_locked = || file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err();
    let script = "echo $KEYLATCH_TOKEN >> log";
    for round in 0..6 {
        let name = format!("report {round}");
        let stopped = || {
            let before = version();
            let mut command = desk.command(&["run", "--ttl", "300ms", "--quiet", &name, "--", "sh", "-c", script]);
            let running = Running(Some(command.stderr(Stdio::null()).spawn().unwrap()));
            while version() == before {}
            running.signal(Signal::STOP);
            running
        };
        let mut running = stopped();
        // A process that is stopped while it writes keeps the file locked, and no other command can begin.
        while is_locked() {
            running.signal(Signal::CONT);
            running.end();
            let _ = fs::remove_file(desk.path("log"));
            running = stopped();
        }
        let script = format!("{script}; sleep 0.1");
        let next = desk.run(&["run", "--quiet", &name, "--", "sh", "-c", &script]);
        assert!(next.status.success(), "{next:?}");
        running.signal(Signal::CONT);
        let code = running.end().status.code();
        let log = fs::read_to_string(desk.path("log")).unwrap();
        assert!(log.lines().is_sorted(), "the command began late:\n{log}");
        assert!(matches!(code, Some(0 | 76)), "{code:?}");
        fs::remove_file(desk.path("log")).unwrap();
    }
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let desk = Desk::new();
    let program = env!("CARGO_BIN_EXE_keylatch");
    let then = "kill -HUP $PPID; sleep 0.2; echo survived";
    let command = format!("trap '' HUP; exec {program} run report -- sh -c '{then}'");
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).env("KEYLATCH_ENGINE", desk.engine()).current_dir(&desk.folder).stdin(Stdio::null());
    assert_eq!(text(&shell.output().unwrap().stdout), "survived\n");
}

// --- Loss -----------------------------------------------------------------------------------------------------------

#[test]
fn a_lease_that_an_operator_ends_ends_the_command() {
    let desk = Desk::new();
    let then = "while :; do sleep 1; done";
    let running = desk.start(&["run", "--owner", "ann", "report", "--", "sh", "-c", &prepared("trap '' TERM;", then)]);
    let command = desk.begun();
    let token = desk.token("report");
    let other = (token.parse::<u64>().unwrap() + 1).to_string();
    assert_eq!(desk.run(&["release", "report", "--token", &other]).status.code(), Some(1));
    assert!(runs(command));
    assert!(desk.run(&["release", "report", "--token", &token]).status.success());
    let output = running.end();
    assert_eq!(output.status.code(), Some(76));
    assert!(text(&output.stderr).contains("the lease of report was lost"), "{}", text(&output.stderr));
    assert!(!runs(command));
}

#[test]
fn a_lease_that_cannot_be_renewed_ends_the_command_in_time() {
    let desk = Desk::new();
    let then = "while :; do sleep 0.01; done";
    let running = desk.start(&[
        "run",
        "--ttl",
        "2s",
        "--grace",
        "1s",
        "report",
        "--",
        "sh",
        "-c",
        &prepared("trap 'echo told; exit 0' TERM;", then),
    ]);
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(desk.path(&format!("leases.db{end}"))).unwrap();
    }
    let output = running.end();
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(76), "told\n"));
    assert!(text(&output.stderr).contains("cannot be renewed"), "{}", text(&output.stderr));
}

#[test]
fn a_command_may_run_on_without_its_lease_if_it_was_allowed_to() {
    let desk = Desk::new();
    let then = "while [ ! -e over ]; do sleep 0.01; done; echo finished";
    let running = desk.start(&["run", "--on-loss", "warn", "report", "--", "sh", "-c", &script(then)]);
    let token = desk.token("report");
    assert!(desk.run(&["release", "report", "--token", &token]).status.success());
    assert!(desk.run(&["run", "report", "--", "touch", "over"]).status.success());
    let output = running.end();
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), "finished\n"));
}

#[test]
fn a_leader_that_lost_its_lease_leads_again() {
    let desk = Desk::new();
    let then = "echo $KEYLATCH_TOKEN >> led; while [ ! -e over ]; do sleep 0.01; done";
    let running = desk.start(&["lead", "scheduler", "--", "sh", "-c", &script(then)]);
    let led = || fs::read_to_string(desk.path("led")).unwrap_or_default().lines().count();
    for times in 1..4 {
        until("it leads", || led() == times && text(&desk.run(&["who", "scheduler"]).stdout) != "free\n");
        if times < 3 {
            assert!(desk.run(&["release", "scheduler", "--token", &desk.token("scheduler")]).status.success());
        }
    }
    fs::write(desk.path("over"), "").unwrap();
    assert_eq!(running.end().status.code(), Some(0));
}

#[test]
fn a_leader_that_waits_again_can_be_ended() {
    let desk = Desk::new();
    let running = desk.start(&["lead", "--quiet", "scheduler", "--", "sh", "-c", &script("sleep 600")]);
    let mut next = desk.command(&["run", "--owner", "ann", "scheduler", "--", "sleep", "600"]);
    let next = Running(Some(next.stderr(Stdio::piped()).spawn().unwrap()));
    // Either of them may get the lease next. A leader that leads again loses its lease again.
    until("ann has it", || {
        let holder = text(&desk.run(&["who", "scheduler", "--json"]).stdout);
        let is_ann = holder.contains("\"owner\":\"ann\"");
        if let Some(token) = token_in(&holder).filter(|_| !is_ann) {
            desk.run(&["release", "scheduler", "--token", &token]);
        }
        is_ann
    });
    running.signal(Signal::TERM);
    let status = running.end().status;
    // `keylatch` may not have begun to wait yet.
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert!(signal == Some(15) || status.code() == Some(128 + 15), "{status}");
    next.signal(Signal::TERM);
    assert_eq!(next.end().status.code(), Some(128 + 15));
}

// --- Who has what ---------------------------------------------------------------------------------------------------

#[test]
fn leases_are_listed_for_people_and_for_programs() {
    let desk = Desk::new();
    assert_eq!(text(&desk.run(&["ls", "--json"]).stdout), "");
    let running = desk.start(&["run", "--owner", "ann", "report", "--", "sh", "-c", &script("sleep 600")]);
    let listed = text(&desk.run(&["ls"]).stdout);
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "OWNER", "TOKEN", "FOR", "ENDS", "IN"]);
    assert_eq!((rows[1][0], rows[1][1], rows[1][2]), ("report", "ann", &*desk.token("report")));
    let listed: Vec<_> = text(&desk.run(&["ls", "--json"]).stdout).lines().map(shape).collect();
    let keys = ["held_for_ms", "owner", "remaining_ms", "resource", "token"];
    assert_eq!(listed, [keys.map(str::to_owned).to_vec()]);
    assert_eq!(shape(&text(&desk.run(&["who", "report", "--json"]).stdout)), listed[0]);
    let told = desk.run(&["who", "report"]);
    assert!(told.status.success() && text(&told.stdout).starts_with("ann has it for "));
    assert_eq!(text(&desk.run(&["ls", "--owner", "joe", "--json"]).stdout), "");
    assert_eq!(text(&desk.run(&["release-all", "joe"]).stdout), "0 released\n");
    assert_eq!(text(&desk.run(&["release-all", "ann"]).stdout), "1 released\n");
    assert_eq!(running.end().status.code(), Some(76));
    let free = desk.run(&["who", "report", "--json"]);
    assert_eq!((free.status.code(), &*text(&free.stdout)), (Some(1), "null\n"));
}

/// Returns the keys of a JSON object, in order.
fn shape(json: &str) -> Vec<String> {
    json.trim().trim_matches(['{', '}']).split(',').map(|pair| pair.split('"').nth(1).unwrap().to_owned()).collect()
}

#[test]
fn a_watch_tells_each_change() {
    let desk = Desk::new();
    let mut watch = desk.command(&["watch", "report"]);
    let watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut running = Running(Some(watch));
    let mut lines = BufReader::new(running.0.as_mut().unwrap().stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "free");
    let run = desk.start(&["run", "--owner", "ann", "report", "--", "sh", "-c", &script("sleep 600")]);
    assert!(lines.next().unwrap().unwrap().starts_with("ann has it for "));
    run.signal(Signal::TERM);
    assert_eq!(lines.next().unwrap().unwrap(), "free");
}

/// A script that starts a process in a session of its own, and waits until the file `stray` has the process's number.
const WITH_STRAY: &str =
    "setsid sh -c 'trap \"\" HUP; echo $$ > stray; exec sleep 600' & until [ -s stray ]; do sleep 0.01; done; ";

fn stray(desk: &Desk) -> Pid {
    Pid::from_raw(fs::read_to_string(desk.path("stray")).unwrap().trim().parse().unwrap()).unwrap()
}

#[test]
fn a_process_that_has_left_the_group_is_ended_with_the_command() {
    let desk = Desk::new();
    assert_eq!(desk.run(&["run", "report", "--", "sh", "-c", &format!("{WITH_STRAY} exit 3")]).status.code(), Some(3));
    assert!(!runs(stray(&desk)));
}

#[test]
fn a_process_that_has_left_the_group_is_ended_if_keylatch_is_killed() {
    let desk = Desk::new();
    let holder = desk.start(&["run", "report", "--", "sh", "-c", &format!("{WITH_STRAY}{}", script("sleep 600"))]);
    holder.signal(Signal::KILL);
    until("what the command has started is ended", || !runs(stray(&desk)));
}

#[test]
fn a_nested_run_is_ended_if_the_outer_one_is_killed() {
    let desk = Desk::new();
    let inner = format!("{WITH_STRAY}{}", script("sleep 600"));
    let inner = ["run", "inner", "--", "sh", "-c", &inner];
    let holder = desk.start(&[&["run", "outer", "--", env!("CARGO_BIN_EXE_keylatch")], &inner[..]].concat());
    let (command, stray) = (desk.begun(), stray(&desk));
    holder.signal(Signal::KILL);
    until("what the inner command has started is ended", || !runs(stray) && !runs(command));
}

#[test]
fn children_that_were_there_before_the_command_are_spared() {
    let desk = Desk::new();
    let words = "sleep 600 & echo $! > before; exec $KEYLATCH run report -- true";
    let mut shell = Command::new("sh");
    shell.args(["-c", words]).env("KEYLATCH_ENGINE", desk.engine()).env("KEYLATCH", env!("CARGO_BIN_EXE_keylatch"));
    assert!(shell.current_dir(&desk.folder).status().unwrap().success());
    let before = fs::read_to_string(desk.path("before")).unwrap().trim().parse().unwrap();
    let before = Pid::from_raw(before).unwrap();
    assert!(runs(before));
    kill_process(before, Signal::KILL).unwrap();
}

fn guard_of(running: &Running) -> Option<Pid> {
    let id = running.0.as_ref().unwrap().id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    children.split_whitespace().map(|child| Pid::from_raw(child.parse().unwrap()).unwrap()).find(|child| {
        let words = fs::read(format!("/proc/{}/cmdline", child.as_raw_nonzero())).unwrap_or_default();
        text(&words).contains("--internal-guard")
    })
}

#[test]
fn a_guard_that_is_killed_is_replaced() {
    let desk = Desk::new();
    let holder = desk.start(&["run", "report", "--", "sh", "-c", &script("sleep 600")]);
    let (first, command) = (guard_of(&holder).unwrap(), desk.begun());
    kill_process(first, Signal::TERM).unwrap();
    kill_process(first, Signal::KILL).unwrap();
    until("another guard is there", || guard_of(&holder).is_some_and(|guard| guard != first && runs(guard)));
    holder.signal(Signal::KILL);
    until("the command is ended", || !runs(command));
}

#[test]
fn a_guard_that_is_stopped_holds_nothing_up() {
    let desk = Desk::new();
    let holder = desk.start(&["run", "report", "--", "sh", "-c", &script("until [ -e end ]; do sleep 0.01; done")]);
    kill_process(guard_of(&holder).unwrap(), Signal::STOP).unwrap();
    fs::write(desk.path("end"), "").unwrap();
    assert!(holder.end().status.success());
}

// --- At a terminal --------------------------------------------------------------------------------------------------

/// Runs a shell command on a pseudo-terminal, types `typed`, and returns what is on the screen; `None` if the program
/// that makes terminals is missing.
fn at_terminal(desk: &Desk, command: &str, typed: &str) -> Option<String> {
    let mut terminal = Command::new("script");
    terminal.args(["-qec", command, "/dev/null"]).current_dir(&desk.folder);
    terminal.env("KEYLATCH_ENGINE", desk.engine()).env("KEYLATCH", env!("CARGO_BIN_EXE_keylatch"));
    let Ok(mut child) = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        eprintln!("`script` is not installed: nothing was tried at a terminal");
        return None;
    };
    let mut keyboard = child.stdin.take().unwrap();
    keyboard.write_all(typed.as_bytes()).unwrap();
    let mut screen = String::new();
    child.stdout.take().unwrap().read_to_string(&mut screen).unwrap();
    drop(keyboard);
    child.wait().unwrap();
    Some(screen)
}

#[test]
fn the_command_has_the_terminal_and_the_shell_has_it_afterwards() {
    let desk = Desk::new();
    let command = "$KEYLATCH run report -- sh -c 'read line; echo command got $line'; read line; echo shell got $line";
    let Some(screen) = at_terminal(&desk, command, "one\ntwo\n") else { return };
    assert!(screen.contains("command got one") && screen.contains("shell got two"), "{screen}");
}

#[test]
fn the_terminals_interrupt_reaches_the_command_alone() {
    let desk = Desk::new();
    // The terminal's own character for an interrupt is typed once the command runs.
    let command = "$KEYLATCH run report -- sh -c 'trap \"echo told; exit 5\" INT; echo ready; while :; do sleep 0.05; done'; \
                   echo code $?";
    let mut terminal = Command::new("script");
    terminal.args(["-qec", command, "/dev/null"]).current_dir(&desk.folder);
    terminal.env("KEYLATCH_ENGINE", desk.engine()).env("KEYLATCH", env!("CARGO_BIN_EXE_keylatch"));
    let Ok(child) = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else { return };
    let mut running = Running(Some(child));
    let child = running.0.as_mut().unwrap();
    let mut screen = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(screen.next().unwrap().unwrap().trim(), "ready");
    child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    let rest: Vec<_> = screen.map_while(Result::ok).collect();
    assert!(
        rest.iter().any(|line| line.contains("told")) && rest.iter().any(|line| line.contains("code 5")),
        "{rest:?}"
    );
}

#[test]
fn the_terminals_interrupt_ends_a_shells_loop() {
    let desk = Desk::new();
    let command =
        "bash -c 'for i in 1 2 3; do $KEYLATCH run report -- sh -c \"echo ready; exec sleep 600\"; echo next; done'";
    let mut terminal = Command::new("script");
    terminal.args(["-qec", command, "/dev/null"]).current_dir(&desk.folder);
    terminal.env("KEYLATCH_ENGINE", desk.engine()).env("KEYLATCH", env!("CARGO_BIN_EXE_keylatch"));
    let Ok(child) = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else { return };
    let mut running = Running(Some(child));
    let child = running.0.as_mut().unwrap();
    let mut screen = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(screen.next().unwrap().unwrap().trim(), "ready");
    child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    let rest: Vec<_> = screen.map_while(Result::ok).collect();
    assert!(!rest.iter().any(|line| line.contains("next")), "{rest:?}");
    assert_eq!(running.end().status.code(), Some(128 + 2));
}

#[test]
fn another_command_of_a_pipeline_may_use_the_terminal() {
    let desk = Desk::new();
    let command = "$KEYLATCH run report -- echo hello | sh -c 'read answer </dev/tty; cat; echo the answer is $answer'";
    let Some(screen) = at_terminal(&desk, command, "yes\n") else { return };
    assert!(screen.contains("hello") && screen.contains("the answer is yes"), "{screen}");
}

#[test]
fn a_command_in_a_pipeline_gets_the_terminal_when_it_asks() {
    let desk = Desk::new();
    let command =
        "$KEYLATCH run report -- sh -c 'read line; echo command got $line' | cat; read line; echo shell got $line";
    let Some(screen) = at_terminal(&desk, command, "one\ntwo\n") else { return };
    assert!(screen.contains("command got one") && screen.contains("shell got two"), "{screen}");
}

/// The shell has job control, like an interactive one.
#[test]
fn a_command_in_the_background_gets_the_terminal_when_it_comes_to_the_foreground() {
    let desk = Desk::new();
    let command = "bash -c 'set -m; $KEYLATCH run report -- sh -c \"read line; echo command got \\$line\" &
        until [ \"$(jobs -s)\" ]; do sleep 0.05; done; echo stopped; fg; echo code $?; read line; echo shell got $line'";
    let Some(screen) = at_terminal(&desk, command, "one\ntwo\n") else { return };
    let expected = ["stopped", "command got one", "code 0", "shell got two"];
    assert!(expected.iter().all(|line| screen.contains(line)), "{screen}");
}

#[test]
fn the_terminals_stop_also_stops_a_command_whose_input_is_a_file() {
    let desk = Desk::new();
    let state = "ps -o state= -p $(cat begun)";
    let command = format!(
        "bash -c 'set -m; $KEYLATCH run report -- sh -c \"echo \\$\\$ > begun; echo ready; exec sleep 600\" \
         </dev/null; echo state $({state}); kill -TERM %1; fg >/dev/null; echo code $?'"
    );
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &command, "/dev/null"]).current_dir(&desk.folder);
    terminal.env("KEYLATCH_ENGINE", desk.engine()).env("KEYLATCH", env!("CARGO_BIN_EXE_keylatch"));
    let Ok(child) = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else { return };
    let mut running = Running(Some(child));
    let child = running.0.as_mut().unwrap();
    let mut screen = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(screen.next().unwrap().unwrap().trim(), "ready");
    child.stdin.as_mut().unwrap().write_all(b"\x1a").unwrap();
    let rest: Vec<_> = screen.map_while(Result::ok).collect();
    let is_there = |expected: &str| rest.iter().any(|line| line.contains(expected));
    assert!(is_there("state T") && is_there("code 143"), "{rest:?}");
}

// --- Many, killed and stopped ---------------------------------------------------------------------------------------

#[test]
fn no_two_commands_run_at_once_although_keylatch_is_killed_and_stopped() {
    kill_and_stop(&Desk::new());
}

// --- The README -----------------------------------------------------------------------------------------------------

#[test]
fn the_readmes_session_is_what_a_shell_shows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let readme = fs::read_to_string(path).unwrap();
    let (before, rest) = readme.split_once("```text\n$ keylatch run").unwrap();
    let (_, after) = rest.split_once("```").unwrap();
    let session = readme[before.len() + "```text\n".len()..readme.len() - after.len() - 3].to_owned();
    let commands: Vec<&str> = session.lines().filter_map(|line| line.strip_prefix("$ ")).collect();

    let desk = Desk::new();
    fs::write(desk.path("report.sh"), "#!/bin/sh\necho > begun\nexec sleep 60\n").unwrap();
    fs::set_permissions(desk.path("report.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = Path::new(env!("CARGO_BIN_EXE_keylatch")).parent().unwrap();
    let paths = format!("{}:{}", folder.display(), env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.env("KEYLATCH_ENGINE", desk.engine()).env("PATH", paths).current_dir(&desk.folder);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    let mut output = BufReader::new(shell.stdout.take().unwrap()).lines();
    let mut shown = String::new();
    writeln!(input, "exec 2>&1").unwrap();
    for command in commands {
        let token = command.split("--token ").nth(1).and_then(|rest| rest.split(';').next());
        let real =
            token.map_or_else(|| command.to_owned(), |token| command.replace(token, &desk.token("nightly-report")));
        writeln!(input, "{real}\necho end of command").unwrap();
        shown += &format!("$ {real}\n");
        let lines = output.by_ref().map_while(Result::ok).take_while(|line| line != "end of command");
        lines.for_each(|line| shown += &format!("{line}\n"));
        if command.ends_with('&') {
            until("the report begins", || desk.path("begun").exists());
        }
    }
    drop(input);
    shell.wait().unwrap();

    if env::var_os("KEYLATCH_WRITE_PAGES").is_some() {
        fs::write(path, format!("{before}```text\n{shown}```{after}")).unwrap();
    }
    // Tokens and times differ from run to run.
    let plain = |text: &str| {
        let words = text.lines().map(|line| line.split_whitespace().map(masked).collect::<Vec<_>>().join(" "));
        words.collect::<Vec<_>>()
    };
    assert_eq!(plain(&shown), plain(&session), "run the tests with KEYLATCH_WRITE_PAGES=1");
}

/// Returns a word without what differs from run to run.
fn masked(word: &str) -> String {
    let number = word.trim_end_matches([',', ';', 's']);
    let is_volatile = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_volatile && !["75", "76"].contains(&word) { "NUMBER".into() } else { word.into() }
}

/// The line of the unit that starts the scheduler is run, with a short command in place of the scheduler.
#[test]
fn the_unit_for_systemd_is_valid() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/share/web-scheduler.service");
    let text_of_unit = fs::read_to_string(unit).unwrap();
    let start = text_of_unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<_> = start.split(' ').collect();
    assert_eq!(words[0], "/usr/local/bin/keylatch");
    let desk = Desk::new();
    let words = [&words[1..words.len() - 1], &["sh", "-c", "echo leads; exit 3"]].concat();
    let output = desk.command(&words).env_clear().env("KEYLATCH_ENGINE", desk.engine()).output().unwrap();
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(3), "leads\n"));

    // `systemd-analyze` complains about programs that do not exist.
    let there = text_of_unit.replace("/usr/local/bin/keylatch", "/bin/true");
    fs::write(desk.path("web-scheduler.service"), there).unwrap();
    let verify = Command::new("systemd-analyze").arg("verify").arg(desk.path("web-scheduler.service")).output();
    let Ok(verify) = verify else { return eprintln!("`systemd-analyze` is not installed: the unit was not verified") };
    let told = text(&verify.stderr);
    assert!(!told.contains("web-scheduler"), "{told}");
}

#[test]
fn the_readmes_statement_for_sqlite_refuses_a_late_write() {
    let desk = Desk::new();
    let table =
        "CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER); INSERT INTO report VALUES (1, '', 0)";
    let Ok(made) = Command::new("sqlite3").arg(desk.path("shop.db")).arg(table).status() else {
        return eprintln!("`sqlite3` is not installed: the README's statement was not tried");
    };
    assert!(made.success());
    refuses_a_late_write(&desk, "sqlite3", "", || {
        let found = Command::new("sqlite3").arg(desk.path("shop.db")).arg("SELECT body FROM report").output().unwrap();
        text(&found.stdout).trim().to_owned()
    });
}
