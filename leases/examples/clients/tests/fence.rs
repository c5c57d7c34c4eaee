//! Tests of a write with fred, on a real Redis, and of the page, which must show this package's code.

mod common;

use fred::{clients::Client, interfaces::ClientLike, types::config::Config};
use keylatch_lease::{Leases, Owner};
use keylatch_lease_clients::fred::save;
use keylatch_lease_conformance::servers::{MINUTE, PrivateServer, on_tokio};

#[test]
fn a_write_with_an_old_token_is_refused() {
    let server = PrivateServer::new(common::SCRIPT, "redis").start();
    on_tokio(async {
        let url = format!("redis://{}", server.address());
        let client = Client::new(Config::from_url(&url).unwrap(), None, None, None);
        client.init().await.unwrap();

        // The fence knows nothing of the engine that keeps the leases.
        let leases = Leases::in_memory();
        let acquire = async |name: &str| leases.acquire("article", &Owner::named(name), MINUTE).await.unwrap();
        let old = acquire("jane").await;
        assert!(save(&client, &old, "article:7", "first").await.unwrap());
        assert!(save(&client, &old, "article:7", "second").await.unwrap());
        leases.release(&old).await.unwrap();
        let new = acquire("joe").await;
        assert!(save(&client, &new, "article:7", "third").await.unwrap());
        assert!(!save(&client, &old, "article:7", "late").await.unwrap());
        assert!(save(&client, &old, "article:8", "elsewhere").await.unwrap());
        client.quit().await.unwrap();
    });
}

/// Each module, without its first lines, is a block of the page.
#[test]
fn the_page_has_the_code_of_this_package() {
    let code = [
        include_str!("../src/sqlx.rs"),
        include_str!("../src/diesel.rs"),
        include_str!("../src/pooled.rs"),
        include_str!("../src/fred.rs"),
    ];
    let code: Vec<_> = code.iter().map(|file| file.split_once("\n\n").unwrap().1).collect();
    assert_eq!(common::page_blocks("rust"), code);
}
