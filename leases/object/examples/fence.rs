//! A fence for data in the same bucket: an object is written only on condition of its version, and keeps the token of
//! the lease under which it was written. So a holder that is late cannot overwrite what its successor has written.
//!
//! ```sh
//! cargo run -p keylatch-lease-object --example fence
//! ```

use std::{
    error::Error,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use keylatch_lease::{Leases, Owner, Token};
use keylatch_lease_object::{
    Bucket,
    object_store::{
        self, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion, memory::InMemory, path::Path,
    },
};

/// An object of data, as it was read under a lease.
pub(crate) struct Data {
    text: String,
    version: UpdateVersion,
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// The lease is lost: the object was read or written under a newer one.
    Stale,
    /// The object was changed since it was read, under the same lease or by something that knows no leases.
    Changed,
    /// The object was not written with a token.
    Foreign,
    Store(object_store::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Stale => f.write_str("the lease is lost"),
            Failure::Changed => f.write_str("the object has changed"),
            Failure::Foreign => f.write_str("the object has no token"),
            Failure::Store(error) => error.fmt(f),
        }
    }
}

impl Error for Failure {}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        Failure::Store(error)
    }
}

/// Returns the content of an object: a line with the token and a number drawn at random, and the text. In S3 and other
/// stores an object's version is a hash of its content, and does not cover the metadata. So the token is in the
/// content, and the number makes each version unique, even if the same token writes the same text again.
pub(crate) fn content(token: u64, text: &str) -> String {
    let random = RandomState::new().hash_one(std::process::id());
    format!("{token} {random:016x}\n{text}")
}

/// Returns the token and the text in an object's content.
fn parts(content: &str) -> Option<(u64, &str)> {
    let (line, text) = content.split_once('\n')?;
    Some((line.split(' ').next()?.parse().ok()?, text))
}

/// Reads an object, and marks it with the token, so that from here on no older token can write. Without the mark, a
/// late write could slip in between this read and the first write.
pub(crate) async fn read(store: &dyn ObjectStore, path: &Path, token: Token) -> Result<Data, Failure> {
    let object = store.get(path).await?;
    let version = UpdateVersion { e_tag: object.meta.e_tag.clone(), version: object.meta.version.clone() };
    let bytes = object.bytes().await?;
    let (known, text) = std::str::from_utf8(&bytes).ok().and_then(parts).ok_or(Failure::Foreign)?;
    if known > token.get() {
        return Err(Failure::Stale);
    }
    let data = Data { text: text.to_owned(), version };
    if known == token.get() {
        return Ok(data);
    }
    let text = data.text.clone();
    write(store, path, token, data, text).await
}

/// Replaces an object that was read with this token, if nobody has changed it since. Returns the object in its new
/// version.
pub(crate) async fn write(
    store: &dyn ObjectStore,
    path: &Path,
    token: Token,
    data: Data,
    text: String,
) -> Result<Data, Failure> {
    let (options, mine) = (PutOptions::from(PutMode::Update(data.version)), content(token.get(), &text));
    match store.put_opts(path, mine.clone().into(), options).await {
        Ok(put) => Ok(Data { text, version: UpdateVersion { e_tag: put.e_tag, version: put.version } }),
        // Perhaps it was written, but the answer was lost, and the client has sent it again.
        Err(object_store::Error::Precondition { .. }) => {
            let object = store.get(path).await?;
            let version = UpdateVersion { e_tag: object.meta.e_tag.clone(), version: object.meta.version.clone() };
            let bytes = object.bytes().await?;
            let now = std::str::from_utf8(&bytes).map_err(|_| Failure::Foreign)?;
            match parts(now) {
                _ if now == mine => Ok(Data { text, version }),
                Some((known, _)) if known > token.get() => Err(Failure::Stale),
                _ => Err(Failure::Changed),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Shows in this bucket that late writes are refused.
pub(crate) async fn show(store: Arc<dyn ObjectStore>) -> Result<(), Box<dyn Error>> {
    let leases = Leases::with_engine(Bucket::open(Arc::clone(&store)).await?);
    let (path, ttl) = (Path::from("reports/today"), Duration::from_millis(300));
    store.put(&path, content(0, "sales:").into()).await?;

    // Ann acquires the lease, reads, and then stands still for longer than her lease lasts.
    let ann = leases.acquire("today", &Owner::named("ann"), ttl).await?;
    let read_by_ann = read(&*store, &path, ann.token()).await?;

    // Bob gets the lease after that, and reads.
    let bob = leases.acquire("today", &Owner::named("bob"), ttl).await?;
    let read_by_bob = read(&*store, &path, bob.token()).await?;

    // Ann goes on, and does not know that she has lost the lease.
    let text = format!("{} 5", read_by_ann.text);
    let late = write(&*store, &path, ann.token(), read_by_ann, text).await;
    assert!(matches!(late, Err(Failure::Stale)), "the late write was admitted");
    assert!(matches!(read(&*store, &path, ann.token()).await, Err(Failure::Stale)), "the late read was admitted");
    println!("ann's late write, with the token {}, was refused", ann.token());

    let text = format!("{} 7", read_by_bob.text);
    write(&*store, &path, bob.token(), read_by_bob, text).await?;
    println!("bob has written with the token {}", bob.token());

    let left = store.get(&path).await?.bytes().await?;
    assert_eq!(std::str::from_utf8(&left).ok().and_then(parts), Some((bob.token().get(), "sales: 7")));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    show(Arc::new(InMemory::new())).await // or a bucket
}
