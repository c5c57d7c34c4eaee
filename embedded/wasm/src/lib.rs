//! Tasks share locks on one thread, because there is no other. `check` returns 0 if every check passed.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use keylatch::{KeyedMutex, KeyedRwLock, KeyedSemaphore, Latch, LockMap, Striped};

/// A task, and the flag that tells whether it has been woken.
struct Task(Pin<Box<dyn Future<Output = ()>>>, Arc<Woken>);

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Polls woken tasks until all are done or none is woken. Returns whether all are done.
fn run(tasks: Vec<Pin<Box<dyn Future<Output = ()>>>>) -> bool {
    let mut tasks: Vec<Task> =
        tasks.into_iter().map(|task| Task(task, Arc::new(Woken(AtomicBool::new(true))))).collect();
    loop {
        let before = tasks.len();
        let mut has_polled = false;
        tasks.retain_mut(|Task(task, woken)| {
            if !woken.0.swap(false, Relaxed) {
                return true;
            }
            has_polled = true;
            let waker = Waker::from(Arc::clone(woken));
            task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
        if tasks.is_empty() || !has_polled && tasks.len() == before {
            return tasks.is_empty();
        }
    }
}

async fn give_way() {
    let mut has_given = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_given, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[derive(Clone, Default)]
struct Checks(Rc<Cell<u32>>);

impl Checks {
    fn must(&self, holds: bool) {
        self.0.set(self.0.get() + u32::from(!holds));
    }
}

/// Reads a number, yields, and writes it back incremented: correct only under exclusion.
async fn bump(count: &Cell<u32>) {
    let before = count.get();
    give_way().await;
    count.set(before + 1);
}

static LATCH: Latch = Latch::new();

/// Returns the number of failed checks.
#[unsafe(no_mangle)]
pub extern "C" fn check() -> u32 {
    let checks = Checks::default();
    tables(&checks);
    without_tables(&checks);
    checks.0.get()
}

fn tables(checks: &Checks) {
    let users = Rc::new(KeyedMutex::<String>::new());
    let pages = Rc::new(KeyedRwLock::<u64>::new());
    let hosts = Rc::new(KeyedSemaphore::<u64>::new(2));
    let cache = Rc::new(LockMap::<u64, u64>::new());
    let (count, inside) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0_u32)));
    let order = Rc::new(RefCell::new(Vec::new()));
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for n in 0..10_u64 {
        let (users, pages, hosts, cache) = (Rc::clone(&users), Rc::clone(&pages), Rc::clone(&hosts), Rc::clone(&cache));
        let (count, inside, order, checks) = (Rc::clone(&count), Rc::clone(&inside), Rc::clone(&order), checks.clone());
        tasks.push(Box::pin(async move {
            let guard = users.lock("alice").await;
            bump(&count).await;
            order.borrow_mut().push(n);
            checks.must(users.try_lock("alice").is_none());
            drop(guard);
            let permit = hosts.acquire(&7).await;
            inside.set(inside.get() + 1);
            checks.must(inside.get() <= 2);
            give_way().await;
            inside.set(inside.get() - 1);
            drop(permit);
            let page = pages.upgradable_read(&7).await;
            give_way().await;
            drop(page.upgrade().await);
            let value = cache.get_or_insert_with(&7, async || 42).await;
            checks.must(value.value() == Some(&42));
            drop(value);
            let _late = users.lock("alice").until(give_way()).await;
        }));
    }
    checks.must(run(tasks));
    checks.must(count.get() == 10);
    checks.must(order.borrow().len() == 10);
    checks.must(users.is_empty() && pages.is_empty() && hosts.is_empty());
}

fn without_tables(checks: &Checks) {
    let accounts = Rc::new(Striped::<str>::new(64));
    let counts = Rc::new([Cell::new(0), Cell::new(0)]);
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for n in 0..10 {
        let (accounts, counts, checks) = (Rc::clone(&accounts), Rc::clone(&counts), checks.clone());
        tasks.push(Box::pin(async move {
            let writer = LATCH.write().await;
            bump(&counts[0]).await;
            let reader = writer.downgrade();
            checks.must(LATCH.try_write().is_none());
            drop(reader);
            let keys = if n % 2 == 0 { ["alice", "bob"] } else { ["bob", "alice"] };
            let both = accounts.write_many(keys).await;
            bump(&counts[1]).await;
            drop(both);
        }));
    }
    checks.must(run(tasks));
    checks.must(counts.iter().all(|count| count.get() == 10));
    checks.must(!LATCH.is_locked());
}
