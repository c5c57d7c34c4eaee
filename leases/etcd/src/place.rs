//! The keys of a namespace's leases.
//!
//! ```text
//! keylatch-lease/NAMESPACE/l/ENTITY/KEY/SLOT          a tenure, by resource
//! keylatch-lease/NAMESPACE/o/OWNER/ENTITY/KEY/SLOT    a tenure, by owner
//! keylatch-lease/NAMESPACE/x/ETCD LEASE               an etcd lease that is about to be revoked: no tenure may use it
//! keylatch-lease/NAMESPACE/l/mark                     the mark that identifies the namespace
//! keylatch-lease/NAMESPACE/l/quarantine               exists during a quarantine, while nothing is granted
//! ```
//!
//! The two keys of a tenure are written in one transaction and attached to one etcd lease, so they appear and disappear
//! together. Their create revision plus the mark's base is the token. A fresh tenure begins as the old one ends, in the
//! other of two slots, because etcd refuses to delete and put the same key in one transaction.

use std::sync::Mutex;

use keylatch_lease::{Owner, Resource};
use keylatch_lease_remote::Settings;

use crate::{
    leftovers::Leftovers,
    lock::{LONGEST, whole},
    mark::Before,
    names::{escape, path},
};

const ROOT: &str = "keylatch-lease";

/// The keys of a namespace, and the state that its connections share.
#[derive(Debug)]
pub(crate) struct Place {
    root: String,
    /// The ID of the etcd lease that serves as the stopwatch: it is never renewed, and its remaining time tells the
    /// time.
    pub(crate) stopwatch: i64,
    /// The length of a quarantine, in seconds.
    pub(crate) quarantine: i64,
    /// The mark that the last connection found, and the greatest revision that it has seen; `None` until one finds a
    /// mark.
    pub(crate) before: Mutex<Option<Before>>,
    pub(crate) leftovers: Leftovers,
}

impl Place {
    pub(crate) fn new(settings: &Settings) -> Self {
        let root = format!("{ROOT}/{}", escape(&settings.namespace));
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = root.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
        // Each process computes the same ID, which is never zero. With 62 bits of a hash, it hardly ever equals another
        // ID.
        let stopwatch = i64::try_from(hash >> 2 | 1 << 62).unwrap_or(1);
        let quarantine = whole(settings.quarantine).unwrap_or(LONGEST);
        Place { root, stopwatch, quarantine, before: Mutex::default(), leftovers: Leftovers::default() }
    }

    /// Returns the key of the mark. It is beside the leases, so that a command that deletes all leases deletes the mark
    /// too.
    pub(crate) fn mark(&self) -> String {
        format!("{}/l/mark", self.root)
    }

    pub(crate) fn in_quarantine(&self) -> String {
        format!("{}/l/quarantine", self.root)
    }

    /// Returns the prefix of all tenures by resource.
    pub(crate) fn locks(&self) -> String {
        format!("{}/l/", self.root)
    }

    /// Returns the prefix of a resource's keys. At most one key has it.
    pub(crate) fn lock(&self, resource: &Resource) -> String {
        format!("{}/l/{}/", self.root, path(resource))
    }

    /// Returns the prefix of all tenures of an owner.
    pub(crate) fn owned(&self, owner: &Owner) -> String {
        format!("{}/o/{}/", self.root, escape(owner.id()))
    }

    /// Returns the prefix of an owner's tenure of a resource.
    pub(crate) fn owned_lock(&self, owner: &Owner, resource: &Resource) -> String {
        format!("{}/o/{}/{}/", self.root, escape(owner.id()), path(resource))
    }

    /// Returns the key that marks an etcd lease as about to be revoked. While this key exists, no tenure can begin to
    /// use that etcd lease.
    pub(crate) fn revoked(&self, lease: i64) -> String {
        format!("{}/x/{lease:x}", self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::Place;
    use crate::names::{escape, resource_of, unescape};
    use keylatch_lease::{Owner, Resource};
    use keylatch_lease_remote::Settings;

    fn place(namespace: &str) -> Place {
        Place::new(&Settings::new(namespace, None))
    }

    #[test]
    fn an_escaped_text_is_unescaped_to_the_same_text() {
        for text in ["", "a/b", "%", "%41", "\0\n'\"", "\u{1f512} caf\u{e9}", "a b", "..", "A-z_0.9~:@+=,"] {
            let escaped = escape(text);
            assert!(!escaped.contains(['/', ' ', '\0']), "{escaped}");
            assert_eq!(unescape(&escaped).as_deref(), Some(text));
        }
        for wrong in ["%", "%4", "%zz", "%FF", "%+1"] {
            assert_eq!(unescape(wrong).filter(|text| escape(text) == wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_contains_its_resource_and_slot() {
        let place = place("shop/1");
        let owner = Owner::named("a/b");
        for resource in [("", ""), ("a", "b/c"), ("a/b", "c"), ("l", "o"), ("a", "0")].map(Resource::from) {
            for slot in [0, 1] {
                let key = format!("{}{slot}", place.lock(&resource));
                assert_eq!(resource_of(&place.locks(), key.as_bytes()), Some((resource.clone(), slot)));
                let key = format!("{}{slot}", place.owned_lock(&owner, &resource));
                assert_eq!(resource_of(&place.owned(&owner), key.as_bytes()), Some((resource.clone(), slot)));
            }
        }
    }

    #[test]
    fn a_key_that_the_engine_did_not_write_has_no_resource() {
        let place = place("shop");
        let prefix = place.locks();
        for rest in ["", "mark", "quarantine", "a", "a/b", "a/b/", "a/b/2", "a/b/00", "a/b/0/", "a/b/c/0", "%zz/b/0"] {
            assert_eq!(resource_of(&prefix, format!("{prefix}{rest}").as_bytes()), None, "{rest}");
        }
        assert_eq!(resource_of(&prefix, b"elsewhere/a/b/0"), None);
        assert_eq!(resource_of(&prefix, &[prefix.as_bytes(), b"a/\xff/0"].concat()), None);
    }

    #[test]
    fn namespaces_have_keys_and_stopwatches_of_their_own() {
        let (one, other) = (place("a/l"), place("a"));
        assert!(!one.locks().starts_with(&other.locks()));
        assert_ne!(one.stopwatch, other.stopwatch);
        assert!(one.stopwatch > 0);
    }
}
