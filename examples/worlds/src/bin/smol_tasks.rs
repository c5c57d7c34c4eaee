//! smol: a mirror of packages. Each package is downloaded once, in a blocking thread; other requests for it wait, and
//! then read it together. The map is both the store and its locks.
//!
//! A smol timer serves as a time limit, and a cancelled task no longer waits.
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
    packages: Arc<LockMap<String, Vec<u8>>>, // owned guards need the Arc around the map
    downloads: Mutex<HashMap<String, usize>>,
}

impl Mirror {
    /// Serves one request. Returns the size of the package.
    async fn size(self: Arc<Self>, name: &'static str) -> usize {
        let mirror = self.clone();
        let package =
            self.packages.get_or_insert_with(name, async || unblock(move || mirror.download(name)).await).await;
        yield_now().await; // the package is sent; the read guard keeps others from changing it
        package.value().unwrap().len()
    }

    /// Downloads a package, in a blocking thread.
    fn download(&self, name: &str) -> Vec<u8> {
        *self.downloads.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        name.bytes().cycle().take(10_000).collect()
    }
}

/// Packs a package, in a blocking thread. It owns the guard, so requests for the package wait until it is packed.
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

        // A writer holds serde. Readers of serde wait; readers of spin do not.
        let writer = packages.write_arc("serde").await;
        let impatient = packages.read("serde").until(Timer::after(Duration::from_millis(5))).await;
        println!("serde within 5 ms: {}", if impatient.is_ok() { "got it" } else { "gave up" });
        assert!(impatient.is_err());

        let leaving = spawn(mirror.clone().size("serde"));
        let patient = spawn(mirror.clone().size("serde"));
        until_waiters(2, packages, "serde").await;
        assert_eq!(mirror.clone().size("spin").await, 10_000);
        assert_eq!(leaving.cancel().await, None, "the cancelled request had an answer");
        until_waiters(1, packages, "serde").await;
        println!("one request for serde was cancelled; the other still waits");

        let packed = unblock(move || pack(writer)).await;
        println!("serde was packed to {packed} bytes; the waiting request got {}", patient.await);
        assert_eq!(packages.read("serde").await.value().map(Vec::len), Some(packed));

        let locked = PACKAGES.iter().filter(|&&name| packages.is_locked(name)).count();
        println!("{} packages in the map, {} entries, {locked} locked", packages.len(), packages.entries());
        assert_eq!((packages.len(), packages.entries(), locked), (PACKAGES.len(), PACKAGES.len(), 0));
        assert_eq!(packages.clear(), 0, "a package was still in use");
        assert_eq!(packages.entries(), 0);
    });
}
