//! The scripts that run on the server.

use std::sync::LazyLock;

/// A script, and the hash by which the server knows it.
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) hash: String,
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let source = parts.join("\n");
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Script { source, hash }
    }
}

macro_rules! scripts {
    ($($name:ident: $($part:literal)+;)+) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(&[$(include_str!(concat!("scripts/", $part, ".lua"))),+]));)+
    };
}

// Each script has only the parts that it needs, because the server runs every part of a script.
scripts! {
    OPEN: "common" "meta" "open";
    ACQUIRE: "common" "index" "meta" "grant" "acquire";
    RELEASE: "common" "release";
    DECIDE: "common" "index" "meta" "grant" "decide";
    RENEW: "common" "lease" "index" "renew";
    RELEASE_ALL: "common" "lease" "owned" "index" "release_all";
    LOOK: "common" "lease" "look";
    OWNED_BY: "common" "lease" "owned" "owned_by";
    LIST: "common" "lease" "list";
    SWEEP: "common" "index" "meta" "sweep";
}

#[cfg(test)]
#[path = "scripts_tests.rs"]
mod tests;
