//! The example of a fence, on a private S3, where the version of an object is a hash of its content; and on a store that
//! repeats a write.

mod common;
#[allow(dead_code, reason = "the example's `main` takes a store in memory")]
#[path = "../examples/fence.rs"]
mod fence;
mod moto;

use std::{sync::Arc, time::Duration};

use common::{Faults, Planned, Shim};
use fence::{Failure, content, read, write};
use keylatch_lease::{Leases, Owner};

use keylatch_lease_conformance::servers::{TestServer, on_tokio};
use keylatch_lease_object::{
    Bucket,
    object_store::{ObjectStoreExt, memory::InMemory, path::Path},
};

#[test]
fn a_late_write_is_refused_where_versions_are_hashes_of_the_content() {
    let server = moto::Server::set_up();
    let store = Arc::new(moto::store(server.address()));
    on_tokio(async { fence::show(store).await.unwrap() });
}

#[test]
fn a_write_whose_answer_was_lost_is_no_lost_lease() {
    on_tokio(async {
        let shim = Shim::new(Arc::new(InMemory::new()), Faults::default(), 1);
        let leases = Leases::with_engine(Bucket::open(Arc::clone(&shim) as _).await.unwrap());
        let grant = leases.acquire("today", &Owner::named("ann"), Duration::from_secs(60)).await.unwrap();
        let path = Path::from("reports/today");
        shim.put(&path, content(0, "sales:").into()).await.unwrap();
        let data = read(&*shim, &path, grant.token()).await.unwrap();
        shim.plan(Planned::IsRepeated);
        let data = write(&*shim, &path, grant.token(), data, "sales: 5".into()).await.unwrap();
        let data = write(&*shim, &path, grant.token(), data, "sales: 5 7".into()).await.unwrap();

        shim.put(&path, content(grant.token().get(), "sales: 9").into()).await.unwrap();
        let changed = write(&*shim, &path, grant.token(), data, "sales: 5 7 8".into()).await;
        assert!(matches!(changed, Err(Failure::Changed)));
    });
}
