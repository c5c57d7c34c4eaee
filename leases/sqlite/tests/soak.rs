//! Sixteen processes contend for three leases, while some of them are killed, and others stopped for longer than a
//! lease lasts. A ledger with a fence, and the instants at which a process was sure of its lease, show whether two of
//! them had one lease at the same time.
//!
//! The test runs for at least three seconds, or `KEYLATCH_SOAK_SECONDS`, and until three processes have been killed and
//! three stopped.
#![cfg(unix)]

mod common;

use std::{
    collections::{BTreeMap, HashMap},
    env, fs,
    hash::{BuildHasher, RandomState},
    io::{self, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use common::{Folder, TIMEOUT, by_hand};
use keylatch_lease::{Clock, Leases, Owner, StdClock};
use keylatch_lease_conformance::worker::this_binary;
use keylatch_lease_sqlite::Sqlite;
use rustix::process::{Pid, Signal, kill_process};

const FOLDER: &str = "KEYLATCH_SOAK_FOLDER";
const PROCESSES: usize = 16;
const RESOURCES: [&str; 3] = ["report", "invoice", "payroll"];
const TTL: Duration = Duration::from_millis(500);

/// Returns a number below `end`, at random.
fn below(end: u64) -> u64 {
    RandomState::new().hash_one(0) % end
}

fn open(folder: &Path) -> Leases<Sqlite> {
    Leases::with_engine(Sqlite::in_namespace("soak").timeout(TIMEOUT).open(folder.join("leases.db")).unwrap())
}

/// Takes one lease after the other, and counts in the ledger, until it is killed or its input ends.
#[test]
fn is_a_worker() {
    let Ok(folder) = env::var(FOLDER) else { return };
    let folder = Path::new(&folder);
    let (leases, ledger) = (open(folder), by_hand(&folder.join("ledger.db")));
    let mut log = fs::OpenOptions::new().append(true).open(folder.join("sure.log")).unwrap();
    let owner = Owner::incarnation("worker");
    // The input ends when the test does, even if the test is killed.
    let has_ended = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let has_ended = Arc::clone(&has_ended);
        move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            has_ended.store(true, SeqCst);
        }
    });
    while !has_ended.load(SeqCst) {
        let resource = RESOURCES[below(3) as usize];
        let Ok(held) = leases.hold(resource, &owner, TTL).wait() else { continue };
        let token = i64::try_from(held.token().get()).unwrap();
        let read = "UPDATE account SET fence = ?2 WHERE name = ?1 AND fence <= ?2 RETURNING count";
        let Ok(count) = ledger.query_row(read, (resource, token), |row| row.get::<_, i64>(0)) else { continue };
        for _ in 0..below(4) {
            thread::sleep(Duration::from_millis(below(5)));
            let now = StdClock::new().now(); // before the check, so that the lease was valid at this instant
            if held.check().is_ok() {
                // One write of a short line is not torn.
                log.write_all(format!("{resource} {token} {}\n", now.as_nanos()).as_bytes()).unwrap();
            }
        }
        let write = "UPDATE account SET count = ?3, fence = ?2, writes = writes + 1 WHERE name = ?1 AND fence <= ?2";
        let _ = ledger.execute(write, (resource, token, count + 1));
        if below(2) == 0 {
            let _ = held.release().wait();
        } // otherwise it is dropped, and released in the background
    }
}

fn start(folder: &Path) -> Child {
    let mut command: Command = this_binary("is_a_worker").unwrap();
    command.env(FOLDER, folder).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// The workers, which are killed when this is dropped.
struct Crew(Vec<Child>);

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

#[test]
fn one_process_at_a_time_has_a_lease_although_processes_are_killed_and_stopped() {
    if env::var_os(FOLDER).is_some() {
        return;
    }
    let seconds = env::var("KEYLATCH_SOAK_SECONDS").map_or(3, |seconds| seconds.parse().unwrap());
    let folder = Folder::new();
    let ledger = by_hand(&folder.path().join("ledger.db"));
    ledger
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE account (name TEXT PRIMARY KEY, count INTEGER, fence INTEGER, writes INTEGER)",
        )
        .unwrap();
    for resource in RESOURCES {
        ledger.execute("INSERT INTO account VALUES (?1, 0, 0, 0)", [resource]).unwrap();
    }
    fs::write(folder.path().join("sure.log"), "").unwrap();

    let mut crew = Crew((0..PROCESSES).map(|_| start(folder.path())).collect());
    let workers = &mut crew.0;
    let mut stopped: HashMap<usize, Instant> = HashMap::new();
    let begin = Instant::now();
    let (mut killed, mut paused) = (0, 0);
    while begin.elapsed() < Duration::from_secs(seconds) || killed < 3 || paused < 3 {
        thread::sleep(Duration::from_millis(50));
        let at = below(PROCESSES as u64) as usize;
        let pid = |child: &Child| Pid::from_child(child);
        match stopped.get(&at) {
            None if below(2) == 0 => {
                kill_process(pid(&workers[at]), Signal::STOP).unwrap();
                stopped.insert(at, Instant::now());
                paused += 1;
            }
            Some(since) if since.elapsed() < 2 * TTL => {}
            _ => {
                if stopped.remove(&at).is_some() && below(2) == 0 {
                    kill_process(pid(&workers[at]), Signal::CONT).unwrap();
                } else {
                    workers[at].kill().unwrap();
                    workers[at].wait().unwrap();
                    workers[at] = start(folder.path());
                    killed += 1;
                }
            }
        }
    }
    drop(crew);

    // Nothing stays locked.
    let leases = open(folder.path());
    for resource in RESOURCES {
        let grant = leases.acquire(resource, &Owner::named("auditor"), TTL).wait_for(TIMEOUT).unwrap();
        leases.release(&grant).wait().unwrap();
    }

    let mut tenures = 0;
    let log = fs::read_to_string(folder.path().join("sure.log")).unwrap();
    for resource in RESOURCES {
        let sql = "SELECT count, writes FROM account WHERE name = ?1";
        let (count, writes): (i64, i64) =
            ledger.query_row(sql, [resource], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(count, writes, "updates of {resource} were lost");
        // The instants at which a holder was sure, by token: no two tenures overlap.
        let mut sure: BTreeMap<i64, (i128, i128)> = BTreeMap::new();
        for line in log.lines().filter_map(|line| line.strip_prefix(resource)) {
            let (token, at) = line.trim().split_once(' ').unwrap();
            let at = at.parse().unwrap();
            let span = sure.entry(token.parse().unwrap()).or_insert((at, at));
            *span = (span.0.min(at), span.1.max(at));
        }
        for ((one, (_, last)), (next, (first, _))) in sure.iter().zip(sure.iter().skip(1)) {
            assert!(last < first, "{resource}: the holder of {one} was sure at {last}, and that of {next} at {first}");
        }
        tenures += sure.len();
    }
    println!("{tenures} tenures, {killed} processes killed, {paused} stopped");
    assert!(tenures > 0);
}
