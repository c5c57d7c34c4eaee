//! A shop whose clients look at an article, decide with no lock held, and buy. At the same time, the prices of all
//! fruit are repeatedly raised.
//!
//! ```text
//! cargo run --release --example optimistic
//! ```
//!
//! A client stores a value that it computed from an earlier look, but another client may have stored a value in
//! between. There are two ways to store:
//! - `update_if` stores nothing in that case, which is a conflict: the client looks and decides again. The prices of
//!   all fruit are raised in one batch, all or none;
//! - `insert` stores its value anyway: the last writer wins, and changes made since the look are lost.
//!
//! With `update_if` nothing may be lost, and no one may see fruit at two prices. With `insert` something must be lost:
//! all clients begin with the same look at the same article, and only one of the values computed from it can remain.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use keylatch::{LockMap, MapReadGuard, Version};
use smol::{Executor, future};

const FRUIT: [&str; 6] = ["apples", "cherries", "figs", "pears", "plums", "quinces"];
const OTHERS: [&str; 6] = ["beans", "beets", "chard", "kale", "leek", "peas"];

const CLIENTS: u32 = 12;
const THREADS: u32 = 4; // clients that are threads; the others are tasks
const TRIES: u32 = 1000; // purchases that each client tries
const RAISES: u32 = 500; // increases of the prices of all fruit
const LOOKS: u32 = 2000; // looks at all fruit

const PIECES: u32 = CLIENTS * TRIES; // initial stock of each article, which never runs out
const PRICE: u32 = 100;

#[derive(Clone, Copy)]
struct Article {
    tag: &'static str,
    price: u32,
    pieces: u32,
}

/// The state of an article when its lock was released.
#[derive(Clone, Copy)]
struct Look {
    name: &'static str,
    article: Article,
    version: Version,
}

impl Look {
    fn at(shelf: &MapReadGuard<'_, &'static str, Article>) -> Self {
        let seen = shelf.value().copied().zip(shelf.version());
        let (article, version) = seen.expect("no article is ever removed");
        Look { name: shelf.key(), article, version }
    }
}

#[derive(Clone, Copy)]
enum Way {
    UpdateIf,
    Insert,
}

struct Shop {
    way: Way,
    stock: LockMap<&'static str, Article>,
    sale_conflicts: AtomicU32,
    raise_conflicts: AtomicU32,
    /// The number of looks that saw fruit at two prices.
    half_raised: AtomicU32,
}

impl Shop {
    fn new(way: Way) -> Self {
        let fruit = FRUIT.map(|name| (name, "fruit"));
        let others = OTHERS.map(|name| (name, "vegetable"));
        let article = |(name, tag)| (name, Article { tag, price: PRICE, pieces: PIECES });
        let stock = fruit.into_iter().chain(others).map(article).collect();
        Shop { way, stock, sale_conflicts: 0.into(), raise_conflicts: 0.into(), half_raised: 0.into() }
    }

    async fn client(&self, mut look: Look, seed: u32) {
        for next in names(seed) {
            future::yield_now().await; // decides
            let after = Article { pieces: look.article.pieces - 1, ..look.article };
            let bought = match self.way {
                Way::UpdateIf => self.stock.update_if(&look.name, look.version, after).await.is_ok(),
                Way::Insert => self.stock.insert(&look.name, after).await.is_some(),
            };
            self.sale_conflicts.fetch_add(u32::from(!bought), Relaxed);
            let name = if bought { next } else { look.name }; // after a conflict: look at the same article again
            look = Look::at(&self.stock.read(&name).await);
        }
    }

    /// Does the same as `client`, in a thread.
    fn client_blocking(&self, mut look: Look, seed: u32) {
        for next in names(seed) {
            thread::yield_now();
            let after = Article { pieces: look.article.pieces - 1, ..look.article };
            let bought = match self.way {
                Way::UpdateIf => self.stock.update_if_blocking(&look.name, look.version, after).is_ok(),
                Way::Insert => self.stock.insert_blocking(&look.name, after).is_some(),
            };
            self.sale_conflicts.fetch_add(u32::from(!bought), Relaxed);
            let name = if bought { next } else { look.name };
            look = Look::at(&self.stock.read_blocking(&name));
        }
    }

    async fn raise(&self) {
        let mut raised = 0;
        while raised < RAISES {
            raised += u32::from(self.try_raise().await);
            future::yield_now().await; // after a failure, too: the other user may be a task of this thread
        }
    }

    async fn try_raise(&self) -> bool {
        let mut dearer = Vec::new();
        let passed_over = self.stock.for_each_value(|&name, &article, version| {
            if article.tag == "fruit" {
                dearer.push((name, version, Article { price: article.price + 1, ..article }));
            }
        });
        if passed_over > 0 {
            return false; // it has skipped an article that is being written, which may be fruit
        }
        let mut batch = self.stock.batch();
        for (name, version, article) in dearer {
            match self.way {
                Way::UpdateIf => batch.push_update_if(&name, version, article),
                Way::Insert => batch.push_insert(&name, article),
            }
        }
        let raised = batch.commit().await.is_ok();
        self.raise_conflicts.fetch_add(u32::from(!raised), Relaxed);
        raised
    }

    fn watch(&self) {
        for _ in 0..LOOKS {
            let fruit = self.stock.read_many_blocking(&FRUIT);
            let mut prices = fruit.iter().map(|shelf| Look::at(shelf).article.price);
            let first = prices.next();
            self.half_raised.fetch_add(u32::from(prices.any(|price| Some(price) != first)), Relaxed);
        }
    }

    fn run(&self) {
        let first = Look::at(&self.stock.read_blocking(&FRUIT[0]));
        thread::scope(|scope| {
            scope.spawn(|| self.watch());
            for seed in 0..THREADS {
                scope.spawn(move || self.client_blocking(first, seed));
            }
            let executor = Executor::new();
            let mut tasks = vec![executor.spawn(self.raise())];
            tasks.extend((THREADS..CLIENTS).map(|seed| executor.spawn(self.client(first, seed))));
            smol::block_on(executor.run(async {
                for task in tasks {
                    task.await;
                }
            }));
        });
    }
}

/// Returns the names of random articles, the same in each run.
fn names(seed: u32) -> impl Iterator<Item = &'static str> {
    let mut state = u64::from(seed);
    (0..TRIES).map(move |_| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        [FRUIT, OTHERS].as_flattened()[(mixed ^ (mixed >> 31)) as usize % 12]
    })
}

fn main() {
    println!("{:<26}{:>8}{:>12}{:>8}", "", "tried", "conflicts", "lost");
    for (way, name) in [(Way::UpdateIf, "update_if"), (Way::Insert, "insert")] {
        let shop = Shop::new(way);
        shop.run();

        let counts = [shop.sale_conflicts, shop.raise_conflicts, shop.half_raised];
        let [sale_conflicts, raise_conflicts, half_raised] = counts.map(AtomicU32::into_inner);
        let (mut lost_sales, mut lost_raises) = (CLIENTS * TRIES - sale_conflicts, 0);
        for (_, article) in shop.stock {
            lost_sales -= PIECES - article.pieces;
            if article.tag == "fruit" {
                lost_raises = lost_raises.max(PRICE + RAISES - article.price);
            }
        }
        let row = |what, tried, conflicts, lost| println!("{name:<10}{what:<16}{tried:>8}{conflicts:>12}{lost:>8}");
        row("pieces bought", CLIENTS * TRIES, sale_conflicts, lost_sales);
        row("fruit raised", RAISES + raise_conflicts, raise_conflicts, lost_raises);
        println!("{:<10}fruit at two prices in {half_raised} of {LOOKS} looks", "");
        assert!(
            sale_conflicts + lost_sales >= CLIENTS - 1,
            "of several changes based on the same look only one can remain"
        );
        if let Way::UpdateIf = way {
            assert_eq!([lost_sales, lost_raises, half_raised], [0; 3], "a change was lost, or seen half-done");
        }
    }
}
