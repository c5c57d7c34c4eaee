//! Tests of the engine on files that other programs lock, fill up, damage, delete and replace.

mod common;

use std::{error::Error as _, fs, path::Path, pin::pin, process::Command, thread, time::Duration};

use common::{Folder, TIMEOUT, by_hand, pass};
use futures_lite::future::{block_on, poll_once};
use keylatch_lease::{AcquireError, Expiry, Leases, LookError, Lost, Owner, ReleaseError, RenewError, engine::Engine};
use keylatch_lease_sqlite::{Error, GuardError, Options, Sqlite, Synchronous};
use rusqlite::TransactionBehavior;

const MINUTE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Sqlite::in_namespace("desk").timeout(TIMEOUT).sweeps(None)
}

fn leases(file: &Path) -> Leases<Sqlite> {
    Leases::with_engine(options().open(file).unwrap())
}

fn owners() -> [Owner; 2] {
    ["jane", "joe"].map(Owner::named)
}

/// Checks that an error's text contains the text of each of its causes at most once.
fn has_each_cause_once(error: &Error) {
    let text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        assert!(text.matches(&told).count() <= 1, "{told:?} is repeated in {text:?}");
        cause = error.source();
    }
}

// --- Opening --------------------------------------------------------------------------------------------------------

#[test]
fn a_file_that_many_threads_open_at_once_gets_its_tables() {
    let folder = Folder::new();
    thread::scope(|scope| {
        for i in 0..16 {
            let file = folder.file();
            scope.spawn(move || {
                let leases = leases(&file);
                leases.try_acquire(("page", i.to_string()), &owners()[0], MINUTE).wait().unwrap();
            });
        }
    });
    assert_eq!(leases(&folder.file()).owned_by(&owners()[0]).wait().unwrap().len(), 16);
}

#[test]
fn a_file_that_is_not_a_database_is_refused() {
    let folder = Folder::new();
    fs::write(folder.file(), "Dear diary, ".repeat(1000)).unwrap();
    let error = options().open(folder.file()).unwrap_err();
    assert!(matches!(error, Error::NotADatabase { .. }), "{error:?}");
    assert!(error.to_string().contains("leases.db is not a database"), "{error}");
    has_each_cause_once(&error);
    assert!(fs::read_to_string(folder.file()).unwrap().starts_with("Dear diary"), "the file was changed");
}

#[test]
fn tables_of_a_newer_version_are_refused_and_left_alone() {
    let folder = Folder::new();
    drop(leases(&folder.file()));
    by_hand(&folder.file()).execute("UPDATE keylatch_lease_file SET version = 2", []).unwrap();
    let error = options().open(folder.file()).unwrap_err();
    assert!(matches!(error, Error::Newer { found: 2, known: 1 }), "{error:?}");
    assert!(error.to_string().contains("update the program"), "{error}");
    let version: i64 =
        by_hand(&folder.file()).query_row("SELECT version FROM keylatch_lease_file", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 2);
}

#[test]
fn a_folder_that_does_not_exist_is_an_error_that_says_so_once() {
    let error = Sqlite::open("/no/such/folder/leases.db").unwrap_err();
    assert!(matches!(error, Error::Unconnected { .. }), "{error:?}");
    assert!(error.to_string().contains("/no/such/folder/leases.db"), "{error}");
    has_each_cause_once(&error);
}

/// A small file system in memory, in a folder of its own. Only root may mount one.
struct SmallDisk(Folder);

impl SmallDisk {
    fn new(options: &str) -> Option<Self> {
        let folder = Folder::new();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !mount {
            eprintln!("no file system could be mounted: this test needs root");
        }
        mount.then(|| SmallDisk(folder))
    }

    fn remount(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.0.path()).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The engine's threads may still have the file open.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    let Some(disk) = SmallDisk::new("size=4m") else { return };
    drop(leases(&disk.0.file()));
    // The last connection removes this file when it closes the database.
    let log = disk.0.path().join("leases.db-wal");
    while log.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    disk.remount("ro");
    let error = options().open(disk.0.file()).unwrap_err();
    assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
    assert!(error.to_string().contains("may not write"), "{error}");
    disk.remount("rw");
}

#[test]
fn a_full_disk_is_an_error_until_there_is_room_again() {
    let Some(disk) = SmallDisk::new("size=1m") else { return };
    let leases = leases(&disk.0.file());
    let [jane, joe] = owners();
    let kept = leases.try_acquire("kept", &jane, MINUTE).wait().unwrap();
    let mut granted = 1;
    let error = loop {
        match leases.try_acquire(("page", "x".repeat(1000) + &granted.to_string()), &jane, MINUTE).wait() {
            Ok(_) => granted += 1,
            Err(AcquireError::Engine(error)) => break error,
            Err(error) => panic!("{error:?}"),
        }
        assert!(granted < 10_000, "the disk never became full");
    };
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    has_each_cause_once(&error);
    // Exactly the granted leases are there.
    assert_eq!(leases.owned_by(&jane).wait().unwrap().len(), granted);
    let refused = leases.try_acquire("kept", &joe, MINUTE).wait();
    assert!(
        matches!(refused, Err(AcquireError::Busy { .. } | AcquireError::Engine(Error::Full { .. }))),
        "{refused:?}"
    );
    disk.remount("size=8m");
    leases.release(&kept).wait().unwrap();
    leases.try_acquire("kept", &joe, MINUTE).wait().unwrap();
}

// --- Other programs -------------------------------------------------------------------------------------------------

#[test]
fn a_file_that_stays_locked_is_an_error_and_nothing_is_granted() {
    let folder = Folder::new();
    let hasty = Leases::with_engine(options().timeout(Duration::from_millis(200)).open(folder.file()).unwrap());
    let [jane, _] = owners();
    let mut other = by_hand(&folder.file());
    let lock = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let refused = hasty.try_acquire("report", &jane, MINUTE).wait().unwrap_err();
    assert!(matches!(refused, AcquireError::Engine(Error::Locked { .. })), "{refused:?}");
    assert!(refused.to_string().ends_with("SQLite: another process keeps the file locked"), "{refused}");
    // A call that only reads need not wait.
    assert!(hasty.status("report").wait().unwrap().is_none());
    drop(lock);
    // On a busy machine a fifth of a second may be too short even without another program.
    while let Err(error) = hasty.try_acquire("report", &jane, MINUTE).wait() {
        assert!(matches!(error, AcquireError::Engine(Error::Locked { .. } | Error::Timeout)), "{error:?}");
    }
}

#[test]
fn an_operation_waits_for_another_program_that_has_the_file_locked() {
    let folder = Folder::new();
    let leases = leases(&folder.file());
    let [jane, _] = owners();
    let mut other = by_hand(&folder.file());
    let lock = other.transaction_with_behavior(TransactionBehavior::Exclusive).unwrap();
    block_on(async {
        let mut asked = pin!(leases.try_acquire("report", &jane, MINUTE));
        for _ in 0..20 {
            assert!(poll_once(asked.as_mut()).await.is_none(), "the file is locked");
            async_io::Timer::after(Duration::from_millis(10)).await;
        }
        drop(lock);
        asked.await.unwrap();
    });
}

/// Requests that wait at the same moment share a transaction. One that cannot be carried out must not harm the others.
#[test]
fn a_request_that_is_refused_does_not_fail_those_beside_it() {
    let folder = Folder::new();
    let leases = leases(&folder.file());
    let [jane, _] = owners();
    let mut other = by_hand(&folder.file());
    other
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON keylatch_lease WHEN new.key = 'bad'
                 BEGIN SELECT raise(ABORT, 'this one is refused'); END",
        )
        .unwrap();
    let lock = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let acquired = block_on(async {
        let names = ["first", "one", "bad", "two"];
        let mut asked: Vec<_> = names.iter().map(|name| Box::pin(leases.try_acquire(*name, &jane, MINUTE))).collect();
        // All are requested while the file is locked. The first one keeps the thread busy until the lock is released.
        for one in &mut asked {
            assert!(poll_once(one).await.is_none(), "the file is locked");
        }
        async_io::Timer::after(Duration::from_millis(50)).await;
        drop(lock);
        let mut acquired = Vec::new();
        for one in asked {
            acquired.push(one.await);
        }
        acquired
    });
    let [first, one, bad, two] = &acquired[..] else { panic!("four were asked for") };
    assert!(first.is_ok() && one.is_ok() && two.is_ok(), "{acquired:?}");
    let refused = bad.as_ref().unwrap_err();
    assert!(matches!(refused, AcquireError::Engine(Error::Refused { .. })), "{refused:?}");
    assert!(refused.to_string().contains("this one is refused"), "{refused}");
    assert_eq!(leases.owned_by(&jane).wait().unwrap().len(), 3);
}

#[test]
fn other_tables_in_the_file_are_left_alone() {
    let folder = Folder::new();
    let other = by_hand(&folder.file());
    other.execute_batch("CREATE TABLE article (id INTEGER PRIMARY KEY, body TEXT); PRAGMA user_version = 7").unwrap();
    other.execute("INSERT INTO article VALUES (1, 'news')", []).unwrap();
    let leases = leases(&folder.file());
    leases.try_acquire("report", &owners()[0], MINUTE).wait().unwrap();
    let (body, version): (String, i64) = other
        .query_row("SELECT body, user_version FROM article, pragma_user_version", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!((&*body, version), ("news", 7));
}

// --- Deleted and replaced files -------------------------------------------------------------------------------------

/// A way to take the file away from under a running engine.
type Way = (&'static str, fn(&Path));

fn ways_to_go() -> [Way; 5] {
    fn without_log(file: &Path) {
        for end in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{end}", file.display()));
        }
    }
    [
        ("deleted", |file| {
            fs::remove_file(file).unwrap();
            without_log(file);
        }),
        ("moved", |file| fs::rename(file, file.with_extension("old")).unwrap()),
        ("replaced", |file| {
            let copy = file.with_extension("copy");
            fs::copy(file, &copy).unwrap();
            without_log(file);
            fs::rename(&copy, file).unwrap();
        }),
        ("without its log", without_log),
        ("without the index of its log", |file| fs::remove_file(format!("{}-shm", file.display())).unwrap()),
    ]
}

#[test]
fn a_file_that_is_taken_away_is_an_error_of_every_operation() {
    for (what, go) in ways_to_go() {
        let folder = Folder::new();
        let file = folder.file();
        let leases = leases(&file);
        let [jane, joe] = owners();
        let grant = leases.try_acquire("report", &jane, MINUTE).wait().unwrap();
        go(&file);
        let gone = |error: &Error| matches!(error, Error::Replaced { .. });
        let acquired = leases.try_acquire("other", &joe, MINUTE).wait();
        assert!(matches!(&acquired, Err(AcquireError::Engine(error)) if gone(error)), "{what}: {acquired:?}");
        let renewed = leases.renew(&grant).wait();
        assert!(matches!(&renewed, Err(RenewError::Engine(error)) if gone(error)), "{what}: {renewed:?}");
        let released = leases.release(&grant).wait();
        assert!(matches!(&released, Err(ReleaseError::Engine(error)) if gone(error)), "{what}: {released:?}");
        let status = leases.status("report").wait();
        assert!(matches!(&status, Err(LookError::Engine(error)) if gone(error)), "{what}: {status:?}");
        assert!(status.unwrap_err().to_string().contains("restart the program"));
        // The file is not created again while others have leases in the old one.
        if ["deleted", "moved"].contains(&what) {
            assert!(!file.exists(), "{what}: the file was created again");
        }
    }
}

#[test]
fn a_waiter_learns_that_the_file_was_taken_away() {
    for (what, go) in ways_to_go() {
        let folder = Folder::new();
        let leases = leases(&folder.file());
        let [jane, joe] = owners();
        let _kept = leases.try_acquire("report", &jane, Expiry::Never).wait().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| leases.acquire("report", &joe, MINUTE).wait());
            while leases.status("report").wait().unwrap().unwrap().waiters() == 0 {
                thread::yield_now();
            }
            go(&folder.file());
            let answer = waiting.join().unwrap();
            assert!(matches!(answer, Err(AcquireError::Engine(Error::Replaced { .. }))), "{what}: {answer:?}");
        });
    }
}

/// A program that opens the file after its log was deleted makes another log. This program and the one that still uses
/// the deleted log do not see each other's leases.
#[test]
#[cfg(unix)]
fn an_engine_whose_log_was_deleted_grants_nothing_any_more_by_whatever_path_it_came() {
    for link in [false, true] {
        let folder = Folder::new();
        let (file, path) = (folder.file(), folder.path().join("link.db"));
        std::os::unix::fs::symlink(&file, &path).unwrap();
        let leases = leases(if link { &path } else { &file });
        let [jane, joe] = owners();
        leases.try_acquire("report", &jane, MINUTE).wait().unwrap();
        ways_to_go()[3].1(&file);
        for _ in 0..3 {
            let refused = leases.try_acquire("other", &joe, MINUTE).wait();
            assert!(matches!(refused, Err(AcquireError::Engine(Error::Replaced { .. }))), "{refused:?}");
        }
    }
}

#[test]
fn tokens_of_a_new_file_are_greater_than_those_of_a_deleted_one() {
    let folder = Folder::new();
    let [jane, joe] = owners();
    let before = leases(&folder.file()).try_acquire("report", &jane, MINUTE).wait().unwrap().token();
    ways_to_go()[0].1(&folder.file());
    let after = leases(&folder.file()).try_acquire("report", &joe, MINUTE).wait().unwrap().token();
    assert!(after > before, "{after} was granted after {before}");
}

// --- Clocks ---------------------------------------------------------------------------------------------------------

/// Changes the file as if the machine had been restarted, and its two clocks had jumped by these amounts: the one that
/// counts from the start, and the time of day.
fn restart(file: &Path, clock: i64, day: i64) {
    let connection = by_hand(file);
    connection
        .execute_batch(&format!(
            "UPDATE keylatch_lease SET since = since - {clock}, until = until - {clock};
             UPDATE keylatch_lease_file SET boot = 'another', clock = clock - {clock}, day = day - {day}"
        ))
        .unwrap();
}

#[test]
fn a_restart_of_the_machine_neither_ends_nor_revives_a_lease() {
    const HOUR: i64 = 3_600_000_000;
    let [jane, joe] = owners();
    let since_start = i64::try_from(uptime().as_micros()).unwrap();
    // The clock that counts from the start jumps back or forward by this much, or not at all.
    for clock in [-1000 * HOUR, -HOUR, 0, HOUR, 1000 * HOUR] {
        let folder = Folder::new();
        let long = Duration::from_secs(3600) + uptime();
        let before = leases(&folder.file());
        let kept = before.try_acquire("kept", &jane, long).wait().unwrap();
        before.try_acquire("never", &jane, Expiry::Never).wait().unwrap();
        before.try_acquire("over", &jane, Duration::from_millis(1)).wait().unwrap();
        pass(&folder.file(), "desk", MINUTE);
        drop(before);
        restart(&folder.file(), clock, 0);

        let after = leases(&folder.file());
        let status = after.status("kept").wait().unwrap().expect("the lease has ended");
        assert_eq!(status.token(), kept.token());
        // The time that has passed is what the time of day says, but at least the time since the start of the machine.
        let passed = Duration::from_micros(u64::try_from(since_start).unwrap());
        let remaining = status.remaining().unwrap();
        assert!(
            remaining <= long - MINUTE && remaining + passed + MINUTE >= long - 2 * MINUTE,
            "{clock}: {remaining:?}"
        );
        assert!(after.status("over").wait().unwrap().is_none(), "{clock}: an expired lease was revived");
        assert!(after.status("never").wait().unwrap().is_some());
        let next = after.try_acquire("over", &joe, MINUTE).wait().unwrap();
        assert!(next.token() > kept.token());
    }
}

#[test]
fn after_a_restart_the_time_of_day_says_how_much_time_has_passed() {
    const DAY: i64 = 24 * 3_600_000_000;
    let [jane, _] = owners();
    let (two, ten) = (Duration::from_secs(2 * 24 * 3600), Duration::from_secs(10 * 24 * 3600) + uptime());
    // The machine was off for three days; or its time of day was set back by three days.
    for (day, is_there) in [(3 * DAY, false), (-3 * DAY, uptime() < two)] {
        let folder = Folder::new();
        let before = leases(&folder.file());
        before.try_acquire("short", &jane, two).wait().unwrap();
        before.try_acquire("long", &jane, ten).wait().unwrap();
        drop(before);
        restart(&folder.file(), 0, day);
        let after = leases(&folder.file());
        assert_eq!(after.status("short").wait().unwrap().is_some(), is_there, "{day}");
        let remaining = after.status("long").wait().unwrap().unwrap().remaining().unwrap();
        assert!(remaining <= ten, "{day}: {remaining:?}");
    }
}

/// In a container, or without access to `/proc`, the machine's start has a different name.
#[test]
fn another_name_of_the_same_start_of_the_machine_ends_no_lease() {
    for name in ["", "another"] {
        let folder = Folder::new();
        let [jane, joe] = owners();
        // After a restart, at least this much time would have passed.
        let long = uptime().max(MINUTE);
        let before = leases(&folder.file());
        let grant = before.try_acquire("report", &jane, long).wait().unwrap();
        for _ in 0..2 {
            by_hand(&folder.file()).execute("UPDATE keylatch_lease_file SET boot = ?1", [name]).unwrap();
            let refused = leases(&folder.file()).try_acquire("report", &joe, MINUTE).wait();
            assert!(matches!(refused, Err(AcquireError::Busy { .. })), "{name}: {refused:?}");
        }
        before.renew(&grant).wait().unwrap();
    }
}

fn uptime() -> Duration {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split(' ').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0);
    Duration::from_secs_f64(seconds)
}

#[test]
fn tokens_grow_although_the_time_of_day_was_set_back() {
    let folder = Folder::new();
    let leases = leases(&folder.file());
    let [jane, joe] = owners();
    let future = leases.try_acquire("report", &jane, MINUTE).wait().unwrap().token().get() + 3_600_000_000;
    by_hand(&folder.file())
        .execute("UPDATE keylatch_lease_file SET token = ?1", [i64::try_from(future).unwrap()])
        .unwrap();
    leases.release_as("report", &jane).wait().unwrap();
    assert_eq!(leases.try_acquire("report", &joe, MINUTE).wait().unwrap().token().get(), future + 1);
}

// --- Waiters and holders --------------------------------------------------------------------------------------------

#[test]
fn a_waiter_of_another_engine_is_woken_by_each_release() {
    let folder = Folder::new();
    let patient = || Leases::with_engine(options().fallback(Duration::from_secs(3600)).open(folder.file()).unwrap());
    let (here, there) = (&patient(), &patient());
    let [jane, joe] = owners();
    for _ in 0..100 {
        let grant = here.try_acquire("report", &jane, Expiry::Never).wait().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| there.acquire("report", &joe, Expiry::Never).wait().unwrap());
            while there.status("report").wait().unwrap().unwrap().waiters() == 0 {
                thread::yield_now();
            }
            here.release(&grant).wait().unwrap();
            there.release(&waiting.join().unwrap()).wait().unwrap();
        });
    }
}

#[test]
fn a_waiter_of_another_engine_learns_of_an_earlier_end() {
    let folder = Folder::new();
    let patient = || Leases::with_engine(options().fallback(Duration::from_secs(3600)).open(folder.file()).unwrap());
    let (here, there) = (&patient(), &patient());
    let [jane, joe] = owners();
    here.try_acquire("report", &jane, Expiry::Never).wait().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| there.acquire("report", &joe, MINUTE).wait_for(TIMEOUT));
        while there.status("report").wait().unwrap().unwrap().waiters() == 0 {
            thread::yield_now();
        }
        here.try_acquire("report", &jane, Duration::from_millis(50)).fresh_token().wait().unwrap();
        let grant = waiting.join().unwrap().expect("the waiter was not told of the earlier end");
        assert_eq!(grant.owner(), &joe);
    });
}

/// A holder's own release is announced only if somebody has asked for that.
#[test]
fn a_watch_in_another_engine_is_told_of_a_holders_own_release() {
    let folder = Folder::new();
    let patient = || Leases::with_engine(options().fallback(Duration::from_secs(3600)).open(folder.file()).unwrap());
    let (here, there) = (&patient(), &patient());
    let [jane, _] = owners();
    let grant = here.try_acquire("report", &jane, Expiry::Never).wait().unwrap();
    let mut watch = there.watch("report");
    assert_eq!(watch.changed().wait().unwrap().unwrap().owner(), &jane);
    let reported = block_on(async {
        let mut changed = pin!(watch.changed());
        let sql = "SELECT wanted FROM keylatch_lease";
        let begin = std::time::Instant::now();
        while !by_hand(&folder.file()).query_row(sql, [], |row| row.get::<_, bool>(0)).unwrap() {
            assert!(begin.elapsed() < TIMEOUT, "the watch has not asked to be told");
            assert!(poll_once(changed.as_mut()).await.is_none());
            async_io::Timer::after(Duration::from_millis(5)).await;
        }
        here.release(&grant).await.unwrap();
        let limit = async {
            async_io::Timer::after(TIMEOUT).await;
            panic!("the watch was not told of the release");
        };
        futures_lite::future::or(changed, limit).await
    });
    assert_eq!(reported.unwrap(), None);
}

#[test]
fn a_process_that_has_missed_messages_looks_at_everything_again() {
    let folder = Folder::new();
    let leases = leases(&folder.file());
    let [jane, joe] = owners();
    leases.status("report").wait().unwrap(); // a new connection makes holders look, too
    let mut held = leases.hold("report", &jane, Duration::from_secs(3600)).wait().unwrap();
    // The messages are written in one transaction, so that the process cannot read some of them before the others.
    let mut other = by_hand(&folder.file());
    let transaction = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    transaction
        .execute_batch(
            "WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             INSERT INTO keylatch_lease_message SELECT i, 'desk', '', 'other', 1, 'r' FROM n;
         DELETE FROM keylatch_lease WHERE key = 'report'",
        )
        .unwrap();
    transaction.commit().unwrap();
    // The system reports a change only if the engine announces one.
    leases.try_acquire("door", &joe, MINUTE).wait().unwrap();
    leases.release_as("door", &joe).wait().unwrap();
    let limit = async {
        async_io::Timer::after(TIMEOUT).await;
    };
    let lost = block_on(held.run(limit));
    assert!(matches!(lost, Err(Lost::EngineForgot | Lost::Released)), "{lost:?}");
}

#[test]
fn messages_are_deleted_after_a_while() {
    let folder = Folder::new();
    let leases = leases(&folder.file());
    let [jane, _] = owners();
    for _ in 0..2500 {
        leases.try_acquire("report", &jane, MINUTE).wait().unwrap();
        leases.release_as("report", &jane).wait().unwrap();
    }
    let count: i64 =
        by_hand(&folder.file()).query_row("SELECT count(*) FROM keylatch_lease_message", [], |row| row.get(0)).unwrap();
    assert!((1000..1200).contains(&count), "{count}");
}

#[test]
fn a_sweep_removes_expired_leases_and_the_engine_sweeps_by_itself() {
    let folder = Folder::new();
    let here = leases(&folder.file());
    let [jane, _] = owners();
    for i in 0..1500 {
        here.try_acquire(i.to_string(), &jane, MINUTE).wait().unwrap();
    }
    here.try_acquire("kept", &jane, Expiry::Never).wait().unwrap();
    pass(&folder.file(), "desk", 2 * MINUTE);
    let count = || -> i64 {
        by_hand(&folder.file()).query_row("SELECT count(*) FROM keylatch_lease", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(block_on(here.engine().sweep(500, Duration::ZERO)).unwrap(), 500);
    assert_eq!(count(), 1001);
    let _sweeping = options().sweeps(Some(Duration::from_millis(20))).open(folder.file()).unwrap();
    while count() != 1 {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn namespaces_are_independent() {
    let folder = Folder::new();
    let names = ["", "a", "A", "'; DROP TABLE keylatch_lease; --", "漢 \0\r\n*"];
    let all = names.map(|name| Leases::with_engine(Sqlite::in_namespace(name).open(folder.file()).unwrap()));
    for (leases, name) in all.iter().zip(names) {
        assert_eq!(leases.engine().namespace(), name);
        leases.try_acquire("report", &Owner::named(format!("owner of {name}")), MINUTE).wait().unwrap();
    }
    for (leases, name) in all.iter().zip(names) {
        let status = leases.status("report").wait().unwrap().unwrap();
        assert_eq!(*status.owner(), Owner::named(format!("owner of {name}")));
    }
}

#[test]
fn an_engine_that_is_dropped_closes_the_file_and_releases_what_was_held() {
    let folder = Folder::new();
    let leases = Leases::with_engine(options().synchronous(Synchronous::Full).open(folder.file()).unwrap());
    let [jane, joe] = owners();
    drop(leases.hold("report", &jane, Duration::from_secs(3600)).wait().unwrap());
    drop(leases);
    // SQLite removes its log when the last connection closes the file.
    let log = folder.path().join("leases.db-wal");
    while log.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    self::leases(&folder.file()).try_acquire("report", &joe, MINUTE).wait().unwrap();
}

// --- The guard ------------------------------------------------------------------------------------------------------

#[test]
fn a_guarded_transaction_keeps_its_tenure_until_it_ends() {
    let folder = Folder::new();
    let leases = leases(&folder.file());
    let hasty = Leases::with_engine(options().timeout(Duration::from_millis(200)).open(folder.file()).unwrap());
    let [jane, joe] = owners();
    let grant = leases.try_acquire("report", &jane, MINUTE).wait().unwrap();
    let mut connection = by_hand(&folder.file());
    // A transaction of any kind has the lock once it is guarded.
    for behavior in [TransactionBehavior::Deferred, TransactionBehavior::Immediate] {
        let transaction = connection.transaction_with_behavior(behavior).unwrap();
        leases.engine().guard(&transaction, &grant).unwrap();
        let ended = hasty.release_as("report", &jane).wait();
        assert!(matches!(ended, Err(ReleaseError::Engine(Error::Locked { .. }))), "{ended:?}");
        transaction.commit().unwrap();
    }
    // An earlier tenure is not enough, whether the present one is of the same owner or of another.
    let fresh = leases.try_acquire("report", &jane, MINUTE).fresh_token().wait().unwrap();
    let transaction = connection.transaction().unwrap();
    assert!(matches!(leases.engine().guard(&transaction, &grant), Err(GuardError::Stale)));
    leases.engine().guard(&transaction, &fresh).unwrap();
    drop(transaction);
    leases.release(&fresh).wait().unwrap();
    let next = leases.try_acquire("report", &joe, MINUTE).wait().unwrap();
    let transaction = connection.transaction().unwrap();
    assert!(matches!(leases.engine().guard(&transaction, &fresh), Err(GuardError::Stale)));
    drop(transaction);
    pass(&folder.file(), "desk", 2 * MINUTE);
    let transaction = connection.transaction().unwrap();
    assert!(matches!(leases.engine().guard(&transaction, &next), Err(GuardError::Stale)), "it has expired");
}

#[test]
fn a_transaction_that_has_seen_an_older_state_is_not_guarded() {
    let folder = Folder::new();
    let leases = leases(&folder.file());
    let [jane, _] = owners();
    let grant = leases.try_acquire("report", &jane, MINUTE).wait().unwrap();
    let mut connection = by_hand(&folder.file());
    let transaction = connection.transaction().unwrap();
    let _: i64 = transaction.query_row("SELECT count(*) FROM keylatch_lease", [], |row| row.get(0)).unwrap();
    leases.release(&grant).wait().unwrap();
    let refused = leases.engine().guard(&transaction, &grant);
    assert!(matches!(refused, Err(GuardError::Database(_))), "{refused:?}");
}

#[test]
fn a_transaction_in_another_file_is_not_guarded() {
    let (folder, other) = (Folder::new(), Folder::new());
    let leases = leases(&folder.file());
    drop(self::leases(&other.file()));
    let grant = leases.try_acquire("report", &owners()[0], MINUTE).wait().unwrap();
    for mut connection in [by_hand(&other.file()), rusqlite::Connection::open_in_memory().unwrap()] {
        let transaction = connection.transaction().unwrap();
        assert!(matches!(leases.engine().guard(&transaction, &grant), Err(GuardError::OtherFile)));
    }
}
