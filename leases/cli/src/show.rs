//! The actions that show leases, and end them.

use std::time::Duration;

use keylatch_lease::{
    LeaseStatus, Leases, ListedLease, LookError, Owner, ReleaseError, Resource, Token, engine::Engine,
};
use serde_json::{Value, json};

use crate::{
    args::{Action, Place},
    engine::{self, ENGINES, Task},
    failure::{Failure, USAGE},
    output::{self, plain},
    wait::Seconds,
};

/// All actions but `run`, `lead`, `init` and `engines`.
pub(crate) struct Show(pub(crate) Action);

impl Task for Show {
    const LOOKS: bool = true;

    fn run<E: Engine + 'static>(self, leases: Leases<E>) -> Result<u8, Failure> {
        match self.0 {
            Action::Ls { owner, json } => list(&leases, owner.as_deref(), json),
            Action::Who { name, json } => who(&leases, &name, json),
            Action::Watch { name, json } => watch(&leases, &name, json),
            Action::Release { name, token } => release(&leases, &name, token),
            Action::ReleaseAll { owner } => release_all(&leases, &owner),
            Action::Run(_) | Action::Lead(_) | Action::Init | Action::Engines => {
                unreachable!("they are carried out elsewhere")
            }
        }
    }
}

/// Returns a lease as a JSON object. Its shape is documented in the README.
fn as_json(resource: &Resource, owner: &Owner, token: Token, held_for: Duration, remaining: Option<Duration>) -> Value {
    json!({
        "resource": resource.to_string(),
        "owner": owner.name(),
        "token": token.get(),
        "held_for_ms": u64::try_from(held_for.as_millis()).unwrap_or(u64::MAX),
        "remaining_ms": remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
    })
}

fn left(remaining: Option<Duration>) -> String {
    remaining.map_or_else(|| "never ends".into(), |left| Seconds(left).to_string())
}

fn list<E: Engine>(leases: &Leases<E>, owner: Option<&str>, json: bool) -> Result<u8, Failure> {
    let mut list = leases.list().page_size(500);
    let mut rows = Vec::new();
    while let Some(page) = list.next_page().wait().map_err(failed)? {
        // Each run is a separate owner, which may share its name with others.
        rows.extend(page.into_iter().filter(|lease| owner.is_none_or(|owner| lease.owner().name() == owner)));
    }
    rows.sort_by(|one, other| one.resource().cmp(other.resource()));
    if json {
        let _ = rows.iter().all(|lease| output::line(&listed(lease).to_string()));
        return Ok(0);
    }
    let width = |of: fn(&ListedLease) -> String, title: &str| {
        rows.iter().map(|lease| of(lease).chars().count()).chain([title.len()]).max().unwrap_or(0)
    };
    let (name, owner) =
        (|lease: &ListedLease| shown(lease.resource()), |lease: &ListedLease| shown(lease.owner().name()));
    let (names, owners) = (width(name, "NAME"), width(owner, "OWNER"));
    let row = |name: &str, owner: &str, token: &str, held: &str, left: &str| {
        format!("{name:names$}  {owner:owners$}  {token:>16}  {held:>12}  {left}")
    };
    let mut more = output::line(&row("NAME", "OWNER", "TOKEN", "FOR", "ENDS IN"));
    for lease in &rows {
        let held = Seconds(lease.held_for()).to_string();
        let token = lease.token().to_string();
        more = more && output::line(&row(&name(lease), &owner(lease), &token, &held, &left(lease.remaining())));
    }
    Ok(0)
}

fn shown(name: impl std::fmt::Display) -> String {
    plain(&name.to_string()).into_owned()
}

fn listed(lease: &ListedLease) -> Value {
    as_json(lease.resource(), lease.owner(), lease.token(), lease.held_for(), lease.remaining())
}

/// Writes a line that says who has a lease. Returns whether that succeeded.
fn tell(name: &str, status: Option<&LeaseStatus>, json: bool) -> bool {
    let Some(status) = status else {
        return output::line(if json { "null" } else { "free" });
    };
    if json {
        let resource = Resource::from(name);
        let told = as_json(&resource, status.owner(), status.token(), status.held_for(), status.remaining());
        return output::line(&told.to_string());
    }
    output::line(&format!(
        "{} has it for {}, with the token {}; it ends in {} unless it is renewed",
        shown(status.owner()),
        Seconds(status.held_for()),
        status.token(),
        left(status.remaining())
    ))
}

fn who<E: Engine>(leases: &Leases<E>, name: &str, json: bool) -> Result<u8, Failure> {
    let status = leases.status(name).wait().map_err(failed)?;
    tell(name, status.as_ref(), json);
    Ok(u8::from(status.is_none()))
}

fn watch<E: Engine>(leases: &Leases<E>, name: &str, json: bool) -> Result<u8, Failure> {
    output::end_without_reader();
    let mut watch = leases.watch(name);
    loop {
        let status = watch.changed().wait().map_err(failed)?;
        if !tell(name, status.as_ref(), json) {
            return Ok(0);
        }
    }
}

fn release<E: Engine>(leases: &Leases<E>, name: &str, token: u64) -> Result<u8, Failure> {
    let token = Token::new(token).ok_or_else(|| Failure::new(USAGE, "a token is greater than 0"))?;
    match leases.release_token(name, token).wait() {
        Ok(()) => Ok(0),
        Err(ReleaseError::NotHeld { .. }) => Err(Failure::new(1, format_args!("nobody has {name}"))),
        Err(ReleaseError::NotOwner { owner, .. }) => {
            Err(Failure::new(1, format_args!("{owner} has {name} with another token: see `keylatch who`")))
        }
        Err(error @ ReleaseError::Invalid { .. }) => Err(Failure::new(USAGE, error)),
        Err(error) => Err(Failure::engine(error)),
    }
}

/// Ends the tenures of all owners of this name, each by its token, so that none that begins meanwhile is ended.
fn release_all<E: Engine>(leases: &Leases<E>, owner: &str) -> Result<u8, Failure> {
    let all = leases.list().all().wait().map_err(failed)?;
    let mut count = 0;
    for lease in all.iter().filter(|lease| lease.owner().name() == owner) {
        match leases.release_token(lease.resource(), lease.token()).wait() {
            Ok(()) => count += 1,
            Err(ReleaseError::NotHeld { .. } | ReleaseError::NotOwner { .. }) => {}
            Err(error) => return Err(Failure::engine(error)),
        }
    }
    output::line(&format!("{count} released"));
    Ok(0)
}

fn failed<X: std::fmt::Display>(error: LookError<X>) -> Failure {
    match error {
        error @ LookError::Invalid { .. } => Failure::new(USAGE, error),
        error => Failure::engine(error),
    }
}

/// Lists the engines, and says which one is used.
pub(crate) fn engines(place: &Place) -> Result<u8, Failure> {
    let used = engine::used(place)?;
    for (name, url, is_built_in) in ENGINES {
        let note = if is_built_in { String::new() } else { format!("  (not built in: --features {name})") };
        if !output::line(&format!("{name:9}{url}{note}")) {
            return Ok(0);
        }
    }
    output::line(&format!("\nIn use: {used}"));
    Ok(0)
}
