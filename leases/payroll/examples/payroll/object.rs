//! A bucket: a private S3, and the engine.

use std::{sync::Arc, time::Duration};

use keylatch_lease_object::Bucket;
use object_store::aws::AmazonS3Builder;
use tokio::runtime::Builder;

use crate::{lock::Error, private::Private};

pub(crate) fn engine(address: &str) -> Result<Bucket, Error> {
    let store = AmazonS3Builder::new()
        .with_endpoint(address)
        .with_allow_http(true)
        .with_bucket_name("leases")
        .with_region("eu-central-1")
        .with_access_key_id("any")
        .with_secret_access_key("any")
        .build()?;
    // The runtime lives as long as the process.
    let runtime = Box::leak(Box::new(Builder::new_multi_thread().worker_threads(1).enable_all().build()?));
    let polls = [100, 300].map(Duration::from_millis);
    let options = Bucket::in_namespace("payroll").polls(polls[0], polls[1]).timeout(Duration::from_secs(30));
    Ok(runtime.block_on(options.open(Arc::new(store)))?)
}

pub(crate) struct Server(Private);

impl Server {
    pub(crate) fn start() -> Result<Self, Error> {
        Ok(Server(Private::start("s3")?))
    }

    pub(crate) fn address(&self) -> String {
        self.0.address.clone()
    }
}
