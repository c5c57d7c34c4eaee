//! `tokio::select!` and tokio-util's `CancellationToken`: tasks that wait for a camera stop waiting when the program
//! ends.
//!
//! Also shows the trap of a future that is kept and not polled ("futurelock"): while a loop waits for a camera, it
//! handles messages that need the same camera. The program has one wrong way and two right ones.
//!
//! ```text
//! cargo run --bin select_cancel
//! ```

use std::pin::pin;
use std::sync::Arc;

use keylatch::{Fairness, KeyedMutex};
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

type Cameras = Arc<KeyedMutex<String>>;

/// Records with a camera. Returns whether it got the camera before the program ended.
async fn record(cameras: Cameras, camera: &str, end: CancellationToken) -> bool {
    let got = cameras.lock(camera).until(end.cancelled()).await;
    yield_now().await; // records, if it has the camera
    got.is_ok()
}

/// Takes a snapshot, the work that a message requests.
async fn snapshot(cameras: &Cameras) -> usize {
    let _camera = cameras.lock("door").await;
    yield_now().await;
    1
}

/// Wrong: while a message is handled, `door` is not polled, and it is ahead of the handler in the key's queue.
async fn kept(cameras: &Cameras, mut messages: Receiver<()>) -> usize {
    let mut snapshots = 0;
    let mut door = pin!(cameras.lock("door"));
    loop {
        tokio::select! {
            biased;
            Some(()) = messages.recv() => {
                // `snapshot(cameras).await` would never return, so this only tests whether a snapshot would be
                // possible.
                snapshots += usize::from(cameras.try_lock("door").is_some());
            }
            _guard = &mut door => return snapshots,
        }
    }
}

/// Right: a future passed by value is dropped when a message arrives first. The next round makes a new request, at
/// the end of the queue.
async fn by_value(cameras: &Cameras, mut messages: Receiver<()>) -> usize {
    let mut snapshots = 0;
    loop {
        tokio::select! {
            biased;
            Some(()) = messages.recv() => snapshots += snapshot(cameras).await,
            _guard = cameras.lock("door") => return snapshots,
        }
    }
}

/// Right, and it keeps its place in the queue: a separate task locks, works *and unlocks*, whatever the loop is
/// doing. (If the task returned the guard to the loop, the guard would wait for the loop, and the loop for the
/// camera.)
async fn own_task(cameras: &Cameras, mut messages: Receiver<()>) -> usize {
    let mut snapshots = 0;
    let mut recording = tokio::spawn(record(cameras.clone(), "door", CancellationToken::new()));
    loop {
        tokio::select! {
            biased;
            Some(()) = messages.recv() => snapshots += snapshot(cameras).await,
            _ = &mut recording => return snapshots,
        }
    }
}

async fn until_waiters(n: usize, cameras: &Cameras) {
    while cameras.status("door").map_or(0, |status| status.waiters()) != n {
        yield_now().await;
    }
}

/// Sends three messages while the loop waits for the camera, and then releases the camera.
async fn with_messages(cameras: &Cameras, run: impl AsyncFnOnce(&Cameras, Receiver<()>) -> usize) -> usize {
    let held = cameras.lock("door").await;
    let (sender, messages) = mpsc::channel(3);
    let events = async move {
        until_waiters(1, cameras).await;
        (0..3).for_each(|_| sender.try_send(()).unwrap());
        drop(held);
    };
    tokio::join!(run(cameras, messages), events).0
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // A loop that is right under the strictest policy is right under all.
    let cameras = &Cameras::new(KeyedMutex::builder().fairness(Fairness::Fifo).build());

    let kept = with_messages(cameras, kept).await;
    let by_value = with_messages(cameras, by_value).await;
    let own_task = with_messages(cameras, own_task).await;
    println!("snapshots of 3: {kept} with the future kept, {by_value} by value, {own_task} in a task of its own");
    assert_eq!([kept, by_value, own_task], [0, 3, 3]);

    let end = CancellationToken::new();
    let held = cameras.lock("door").await;
    let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(record(cameras.clone(), "door", end.clone()))).collect();
    until_waiters(10, cameras).await;
    assert!(record(cameras.clone(), "yard", end.clone()).await, "another camera was not free");
    end.cancel();
    for task in waiting {
        assert!(!task.await.unwrap(), "a task got the held camera");
    }
    until_waiters(0, cameras).await;
    drop(held);
    println!("10 tasks stopped waiting for a camera that was held throughout; entries left: {}", cameras.len());
    assert!(cameras.is_empty());
}
