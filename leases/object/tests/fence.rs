//! The example of a fence, on a private S3: there the version of an object is a hash of its content.

#[allow(dead_code, reason = "the example's `main` takes a store in memory")]
#[path = "../examples/fence.rs"]
mod fence;
mod moto;

use std::sync::Arc;

use keylatch_lease_conformance::servers::{TestServer, on_tokio};

#[test]
fn a_late_write_is_refused_where_versions_are_hashes_of_the_content() {
    let server = moto::Server::set_up();
    let store = Arc::new(moto::store(server.address()));
    on_tokio(async { fence::show(store).await.unwrap() });
}
