//! async-std, which is discontinued (its README points to smol): programs that still run on it can use the same
//! locks.
//!
//! A wiki. A page has several readers at a time, or one editor, which works in a blocking thread. Robots read first,
//! beside the readers, and become writers only if there is a mistake to correct, so each mistake is corrected once.
//!
//! ```text
//! cargo run --bin async_std_tasks
//! ```

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_std::task::{block_on, sleep, spawn, spawn_blocking, yield_now};
use keylatch::{KeyedRwLock, WriteGuard};

/// The locks of the pages. Guards of a `static` table are `'static`, and can be moved into tasks and threads without
/// an `Arc`.
static LOCKS: LazyLock<KeyedRwLock<String>> = LazyLock::new(KeyedRwLock::new);

/// The protected data. Title and text are written one after the other, each with the number of its edition.
#[derive(Default)]
struct Page {
    title: AtomicUsize,
    text: AtomicUsize,
    misspelt: AtomicBool,
}

#[derive(Default)]
struct Wiki {
    help: Page,
    home: Page,
    corrections: AtomicUsize,
}

impl Wiki {
    fn page(&self, name: &str) -> &Page {
        if name == "Help" { &self.help } else { &self.home }
    }

    /// Reads a page and returns its edition.
    async fn read(self: Arc<Self>, name: &'static str) -> usize {
        let _reader = LOCKS.read(name).await;
        let title = self.page(name).title.load(SeqCst);
        yield_now().await; // the title is sent
        let text = self.page(name).text.load(SeqCst);
        assert_eq!(title, text, "{name} changed while it was read");
        text
    }

    /// Saves a page, in a blocking thread. The guard proves that no one else uses the page.
    fn save(&self, page: &WriteGuard<'static, String>) {
        self.page(page.key()).title.fetch_add(1, SeqCst);
        std::thread::yield_now();
        self.page(page.key()).text.fetch_add(1, SeqCst);
    }

    async fn edit(self: Arc<Self>, name: &'static str) {
        let writer = LOCKS.write(name).await;
        spawn_blocking(move || self.save(&writer)).await; // the guard is dropped there
    }

    async fn correct(self: Arc<Self>, name: &'static str) {
        let looking = LOCKS.upgradable_read(name).await; // one upgradable reader at a time, beside plain readers
        if self.page(name).misspelt.load(SeqCst) {
            let writer = looking.upgrade().await; // no writer in between, so the mistake is still there
            self.page(name).misspelt.store(false, SeqCst);
            self.corrections.fetch_add(1, SeqCst);
            self.save(&writer);
        }
    }

    async fn visit(self: Arc<Self>, name: &'static str) {
        self.clone().read(name).await;
        self.clone().correct(name).await;
        self.edit(name).await;
    }
}

async fn until_waiters(n: usize, name: &str) {
    while LOCKS.status(name).map_or(0, |status| status.waiters()) != n {
        yield_now().await;
    }
}

fn main() {
    block_on(async {
        let wiki = Arc::new(Wiki::default());
        wiki.help.misspelt.store(true, SeqCst);

        let visits: Vec<_> = (0..100).map(|n| spawn(wiki.clone().visit(["Help", "Home"][n % 2]))).collect();
        for visit in visits {
            visit.await;
        }
        let editions = [wiki.clone().read("Help").await, wiki.clone().read("Home").await];
        let corrections = wiki.corrections.load(SeqCst);
        println!("Help is in edition {}, Home in edition {}, {corrections} correction", editions[0], editions[1]);
        assert_eq!((editions, corrections), ([51, 50], 1));

        // While there is a reader of Help, others may read it, too, and an editor waits or gives up. Home is another
        // page.
        let reader = LOCKS.read("Help").await;
        assert_eq!(wiki.clone().read("Help").await, 51);
        assert!(LOCKS.write("Help").until(sleep(Duration::from_millis(5))).await.is_err());
        println!("an editor gave up after 5 ms");
        let patient = spawn(wiki.clone().edit("Help"));
        let leaving = spawn(wiki.clone().edit("Help"));
        until_waiters(2, "Help").await;
        wiki.clone().edit("Home").await;
        leaving.cancel().await;
        until_waiters(1, "Help").await;
        println!("of two more editors, one was cancelled and one waits");

        drop(reader);
        patient.await;
        assert_eq!([wiki.clone().read("Help").await, wiki.read("Home").await], [52, 51]);
        println!("entries left: {}", LOCKS.len());
        assert!(LOCKS.is_empty());
    });
}
