//! The state that all requests share.

use keylatch_lease::{Leases, Resource};
use keylatch_lease_sqlite::Sqlite;

use crate::documents::Documents;

/// The leases and the documents, which are in one file.
pub(crate) struct Service {
    pub(crate) leases: Leases<Sqlite>,
    pub(crate) documents: Documents,
}

/// The entity of documents.
pub(crate) const ENTITY: &str = "document";

/// Returns the resource of a document.
pub(crate) fn document(name: &str) -> Resource {
    Resource::new(ENTITY, name)
}
