//! A fence for data in the same bucket: an object is written only on condition of its version, and keeps the token of
//! the lease under which it was written. A holder that is late can then not overwrite what its successor has written.
//!
//! ```sh
//! cargo run -p keylatch-lease-object --example fence
//! ```

use std::{error::Error, fmt, sync::Arc, time::Duration};

use keylatch_lease::{Leases, Owner, Token};
use keylatch_lease_object::{
    Bucket,
    object_store::{
        self, Attribute, Attributes, GetOptions, ObjectStore, PutMode, PutOptions, UpdateVersion, memory::InMemory,
        path::Path,
    },
};

/// The metadata that keeps the token.
const TOKEN: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("lease-token"));

/// An object of data, as it was read under a lease.
struct Data {
    text: String,
    version: UpdateVersion,
}

#[derive(Debug)]
enum Failure {
    /// The lease is lost: the object was read or written under a newer one.
    Stale,
    Store(object_store::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Stale => f.write_str("the lease is lost"),
            Failure::Store(error) => error.fmt(f),
        }
    }
}

impl Error for Failure {}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::Precondition { .. } => Failure::Stale,
            other => Failure::Store(other),
        }
    }
}

/// Reads an object, and marks it with the token, so that from here on no older token can write. Without the mark, a
/// late write could slip in between this and the first write.
async fn read(store: &dyn ObjectStore, path: &Path, token: Token) -> Result<Data, Failure> {
    let object = store.get_opts(path, GetOptions::default()).await?;
    let known = object.attributes.get(&TOKEN).and_then(|value| value.parse().ok()).unwrap_or(0);
    if known > token.get() {
        return Err(Failure::Stale);
    }
    let version = UpdateVersion { e_tag: object.meta.e_tag.clone(), version: object.meta.version.clone() };
    let text = String::from_utf8_lossy(&object.bytes().await?).into_owned();
    let data = Data { text, version };
    if known == token.get() {
        return Ok(data);
    }
    let text = data.text.clone();
    write(store, path, token, data, text).await
}

/// Replaces an object that was read with this token, if nobody has changed it since. Returns it in its new version.
async fn write(store: &dyn ObjectStore, path: &Path, token: Token, data: Data, text: String) -> Result<Data, Failure> {
    let attributes = Attributes::from_iter([(TOKEN, token.to_string())]);
    let options = PutOptions { mode: PutMode::Update(data.version), attributes, ..PutOptions::default() };
    let put = store.put_opts(path, text.clone().into(), options).await?;
    Ok(Data { text, version: UpdateVersion { e_tag: put.e_tag, version: put.version } })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new()); // or a bucket
    let leases = Leases::with_engine(Bucket::open(Arc::clone(&store)).await?);
    let (path, ttl) = (Path::from("reports/today"), Duration::from_millis(300));
    store.put_opts(&path, "sales:".into(), PutOptions::default()).await?;

    // Ann acquires the lease, reads, and then stands still for longer than her lease lasts.
    let ann = leases.acquire("today", &Owner::named("ann"), ttl).await?;
    let read_by_ann = read(&*store, &path, ann.token()).await?;

    // Bob gets the lease after that, and writes.
    let bob = leases.acquire("today", &Owner::named("bob"), ttl).await?;
    let read_by_bob = read(&*store, &path, bob.token()).await?;
    let text = format!("{} 7", read_by_bob.text);
    write(&*store, &path, bob.token(), read_by_bob, text).await?;
    println!("bob has written with the token {}", bob.token());

    // Ann goes on, and does not know that she has lost the lease.
    let text = format!("{} 5", read_by_ann.text);
    let late = write(&*store, &path, ann.token(), read_by_ann, text).await;
    assert!(matches!(late, Err(Failure::Stale)), "the late write was admitted");
    assert!(matches!(read(&*store, &path, ann.token()).await, Err(Failure::Stale)), "the late read was admitted");
    println!("ann's late write, with the token {}, was refused", ann.token());

    let left = store.get_opts(&path, GetOptions::default()).await?.bytes().await?;
    assert_eq!(&left[..], b"sales: 7");
    Ok(())
}
