//! The scripts that run on the server.

use std::sync::LazyLock;

/// A script, and the hash by which the server knows it.
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) hash: String,
}

impl Script {
    fn new(body: &str) -> Self {
        let source = format!("{}\n{body}", include_str!("scripts/common.lua"));
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Script { source, hash }
    }
}

macro_rules! scripts {
    ($($name:ident $file:literal)+) => {
        $(pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!(concat!("scripts/", $file, ".lua"))));)+
    };
}

scripts! {
    OPEN "open"
    ACQUIRE "acquire"
    RENEW "renew"
    RELEASE "release"
    RELEASE_ALL "release_all"
    LOOK "look"
    OWNED_BY "owned_by"
    LIST "list"
    SWEEP "sweep"
}
