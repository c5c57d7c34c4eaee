//! A private S3 for the tests of one binary.

#![allow(dead_code, reason = "each program uses some of it")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures_util::TryStreamExt;
use keylatch_lease_conformance::{
    Caps, Excuse, Failure,
    servers::{PrivateServer, Settings, TestServer, apart},
};
use keylatch_lease_object::{
    Bucket,
    object_store::{
        self, ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig,
        aws::{AmazonS3, AmazonS3Builder},
    },
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

pub(crate) struct Server(pub(crate) PrivateServer);

/// Returns the store at this address.
pub(crate) fn store(address: SocketAddr) -> AmazonS3 {
    // Requests that fail are sent again by the engine, so that the store's client need not.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let client = ClientOptions::new().with_allow_http(true).with_timeout(Duration::from_secs(3));
    AmazonS3Builder::new()
        .with_endpoint(format!("http://{address}"))
        .with_bucket_name("leases")
        .with_region("eu-central-1")
        .with_access_key_id("any")
        .with_secret_access_key("any")
        .with_retry(retry)
        .with_client_options(client)
        .build()
        .unwrap()
}

impl TestServer for Server {
    type Engine = Bucket;
    type Client = AmazonS3;

    const NAME: &'static str = "S3 (moto)";

    fn set_up() -> Self {
        Server(PrivateServer::new(SCRIPT, "s3").start())
    }

    fn private(&self) -> &PrivateServer {
        &self.0
    }

    fn connect(settings: Settings, address: SocketAddr) -> Bucket {
        let options = Bucket::in_namespace(settings.namespace).timeout(3 * settings.timeout).tries_out(false);
        let options = options.polls(Duration::from_millis(100), Duration::from_millis(400));
        let opened = options.open(Arc::new(store(address)));
        futures_lite::future::block_on(opened).expect("nothing is requested")
    }

    async fn ready(_: &Bucket) -> Result<(), Failure> {
        Ok(())
    }

    async fn client(&self) -> AmazonS3 {
        store(self.address())
    }

    fn adjust(caps: &mut Caps) {
        caps.notice = None;
        caps.processes = 8; // the server is not fast
        caps.delta = Duration::from_secs(1);
        let taken = "a process that has only just looked waits for the lease's whole time before it takes over";
        let again = "acquired again by another process, a lease lasts for as long as that process thinks possible";
        let forgot = "a store that loses confirmed writes is not supported";
        let first = "the first request only reads; the tests with a store that misbehaves lose answers to writes";
        let late = "a renewal that comes late takes effect, unless another owner has the resource";
        caps.excuses.extend([
            Excuse::case(12, taken),
            Excuse::case(14, again),
            Excuse::case(22, forgot),
            Excuse::case(24, first),
            Excuse::case(33, late),
        ]);
    }

    /// Deletes all objects.
    fn empty(&self) -> Result<(), Failure> {
        apart(async || delete(&store(self.address())).await)?;
        Ok(())
    }
}

async fn delete(store: &AmazonS3) -> object_store::Result<()> {
    let all: Vec<_> = store.list(None).try_collect().await?;
    for object in all {
        store.delete(&object.location).await?;
    }
    Ok(())
}
