//! Threads alone, without a runtime: calls that block, calls with a time limit, and calls that do not wait.
//!
//! Backups of disks. Every disk is backed up once, by the first thread that locks it. A user waits for a disk for a
//! limited time, and a janitor skips disks in use. A copy from one disk to another locks both at once.
//!
//! ```text
//! cargo run --bin threads
//! ```

use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use keylatch::{KeyedMutex, MutexGuard};

const DISKS: [&str; 4] = ["films", "mail", "music", "photos"];

#[derive(Default)]
struct Backups {
    disks: KeyedMutex<String>,
    store: Mutex<BTreeMap<String, usize>>, // the number of versions of each disk
}

impl Backups {
    /// Checks, works, and stores: the disk is locked during all three steps, the store only for a moment.
    fn back_up(&self, name: &str) -> bool {
        let disk = self.disks.lock_blocking(name);
        if self.store.lock().unwrap().contains_key(name) {
            return false;
        }
        thread::yield_now(); // the disk is read
        self.add_version(&disk);
        true
    }

    /// Adds a version. The guard proves that the caller holds the disk.
    fn add_version(&self, disk: &MutexGuard<'_, String>) {
        *self.store.lock().unwrap().entry(disk.key().clone()).or_default() += 1;
    }

    /// Locks both disks or none: no thread waits for ever, even if another one copies in the opposite direction.
    fn copy(&self, from: &str, to: &str) {
        let disks = self.disks.lock_many_blocking([from, to]);
        self.add_version(disks.get(to).expect("the disk was locked"));
    }

    /// Tidies the disks that are not in use. Returns their names.
    fn tidy(&self) -> Vec<&'static str> {
        let mut tidied = Vec::new();
        for name in DISKS {
            if let Some(_disk) = self.disks.try_lock(name) {
                tidied.push(name);
            }
        }
        tidied
    }
}

fn main() {
    let backups = &Backups::default();

    // All threads start at once, two of them with each disk.
    let start = &Barrier::new(8);
    let done: usize = thread::scope(|scope| {
        let back_up_all = |first: usize| {
            start.wait();
            let disks = DISKS.into_iter().cycle().skip(first).take(DISKS.len());
            disks.filter(|name| backups.back_up(name)).count()
        };
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || back_up_all(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("8 threads asked for {} disks each: {done} backups", DISKS.len());
    assert_eq!(done, DISKS.len());

    thread::scope(|scope| {
        let (has_it, comes) = mpsc::channel();
        let (give_back, wanted) = mpsc::channel::<()>();
        let reader = scope.spawn(move || {
            let disk = backups.disks.lock_blocking("mail");
            has_it.send(()).unwrap();
            wanted.recv().unwrap();
            drop(disk);
        });
        comes.recv().unwrap();

        let impatient = backups.disks.try_lock_for("mail", Duration::from_millis(5));
        println!("mail within 5 ms: {}", if impatient.is_some() { "got it" } else { "gave up" });
        assert!(impatient.is_none());
        let tidied = backups.tidy();
        println!("tidied while mail is in use: {}", tidied.join(", "));
        assert_eq!(tidied, ["films", "music", "photos"]);

        let patient = scope.spawn(|| backups.disks.try_lock_for("mail", Duration::from_secs(60)).is_some());
        while backups.disks.status("mail").map_or(0, |status| status.waiters()) != 1 {
            thread::yield_now();
        }
        give_back.send(()).unwrap();
        assert!(patient.join().unwrap(), "the patient user timed out");
        reader.join().unwrap();
    });

    thread::scope(|scope| {
        for (from, to) in [("films", "music"), ("music", "films"), ("music", "music")] {
            scope.spawn(move || (0..100).for_each(|_| backups.copy(from, to)));
        }
    });
    println!("versions: {:?}", backups.store.lock().unwrap());
    assert_eq!(backups.store.lock().unwrap()["music"], 1 + 200);
    assert_eq!(backups.store.lock().unwrap()["films"], 1 + 100);

    println!("entries left: {}", backups.disks.len());
    assert!(backups.disks.is_empty());
}
