//! Threads alone, with no runtime: calls that block, calls with a time limit, and calls that do not wait.
//!
//! Backups of disks. Every disk is backed up once, whichever thread comes first. A user waits for a disk only so long, and
//! a janitor leaves alone what is in use. Copying takes both disks at once, in whatever order they are named.
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
    store: Mutex<BTreeMap<String, usize>>, // how many versions of each disk there are
}

impl Backups {
    /// Look, work, store: the disk is locked over all three, the store only for a moment.
    fn back_up(&self, name: &str) -> bool {
        let disk = self.disks.lock_blocking(name);
        if self.store.lock().unwrap().contains_key(name) {
            return false;
        }
        thread::yield_now(); // the disk is read
        self.add_version(&disk);
        true
    }

    /// The guard is the proof that the caller has the disk.
    fn add_version(&self, disk: &MutexGuard<'_, String>) {
        *self.store.lock().unwrap().entry(disk.key().clone()).or_default() += 1;
    }

    /// Both disks, or none: nobody waits for ever, though another thread copies the other way round.
    fn copy(&self, from: &str, to: &str) {
        let disks = self.disks.lock_many_blocking([from, to]);
        self.add_version(disks.get(to).expect("it was asked for"));
    }

    /// What nobody uses just now.
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

    // All threads begin at once, each with another disk.
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
        assert!(patient.join().unwrap(), "far more time than it takes");
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
