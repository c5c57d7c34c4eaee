//! smol: a mirror of packages. Each is downloaded once, in a blocking thread; others who ask for it wait, and then read it
//! together. The map is the store and its locks in one.
//!
//! One of smol's timers is a time limit, and a task that is cancelled no longer waits.
//!
//! ```text
//! cargo run --bin smol_tasks
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylatch::{LockMap, MapWriteGuardArc};
use smol::future::yield_now;
use smol::{Timer, spawn, unblock};

const PACKAGES: [&str; 6] = ["async-lock", "bytes", "hashbrown", "rand", "serde", "spin"];

#[derive(Default)]
struct Mirror {
    packages: Arc<LockMap<String, Vec<u8>>>, // the Arc goes around the map, for owned guards
    downloads: Mutex<HashMap<String, usize>>,
}

impl Mirror {
    /// For one request: the size of a package.
    async fn size(self: Arc<Self>, name: &'static str) -> usize {
        let mirror = self.clone();
        let package =
            self.packages.get_or_insert_with(name, async || unblock(move || mirror.download(name)).await).await;
        yield_now().await; // sent to the client: a reader's guard is kept meanwhile, and nobody changes the package
        package.value().unwrap().len()
    }

    /// In a blocking thread.
    fn download(&self, name: &str) -> Vec<u8> {
        *self.downloads.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        name.bytes().cycle().take(10_000).collect()
    }
}

/// In a blocking thread. The guard came along: whoever asks for the package waits until it has been packed.
fn pack(mut package: MapWriteGuardArc<String, Vec<u8>>) -> usize {
    let content = package.value_mut().unwrap();
    content.truncate(content.len() / 10);
    content.len()
}

async fn until_waiters(n: usize, packages: &LockMap<String, Vec<u8>>, name: &str) {
    while packages.status(name).map_or(0, |status| status.waiters()) != n {
        yield_now().await;
    }
}

fn main() {
    smol::block_on(async {
        let mirror = Arc::new(Mirror::default());
        let packages = &mirror.packages;

        let requests: Vec<_> = (0..300).map(|n| spawn(mirror.clone().size(PACKAGES[n % PACKAGES.len()]))).collect();
        let mut bytes = 0;
        for request in requests {
            bytes += request.await;
        }
        println!("300 requests: {bytes} bytes sent, {} packages downloaded", packages.len());
        assert_eq!(bytes, 300 * 10_000);
        assert_eq!(*mirror.downloads.lock().unwrap(), PACKAGES.map(|name| (name.to_owned(), 1)).into());

        // Somebody writes to serde. Readers of it wait, those of spin do not.
        let writer = packages.write_arc("serde").await;
        let impatient = packages.read("serde").until(Timer::after(Duration::from_millis(5))).await;
        println!("serde within 5 ms: {}", if impatient.is_ok() { "got it" } else { "gave up" });
        assert!(impatient.is_err());

        let leaving = spawn(mirror.clone().size("serde"));
        let patient = spawn(mirror.clone().size("serde"));
        until_waiters(2, packages, "serde").await;
        assert_eq!(mirror.clone().size("spin").await, 10_000);
        assert_eq!(leaving.cancel().await, None, "it had no answer yet");
        until_waiters(1, packages, "serde").await;
        println!("one request for serde was cancelled, the other still waits");

        let packed = unblock(move || pack(writer)).await;
        println!("serde was packed, to {packed} bytes; who waited got {}", patient.await);
        assert_eq!(packages.read("serde").await.value().map(Vec::len), Some(packed));

        let locked = PACKAGES.iter().filter(|&&name| packages.is_locked(name)).count();
        println!("{} packages in the map, {} entries, {locked} locked", packages.len(), packages.entries());
        assert_eq!((packages.len(), packages.entries(), locked), (PACKAGES.len(), PACKAGES.len(), 0));
        assert_eq!(packages.clear(), 0, "none was in use, so none stays");
        assert_eq!(packages.entries(), 0);
    });
}
