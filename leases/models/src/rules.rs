//! The rules that every protocol must keep.

use stateright::{Model, Property};

/// A client and a token.
pub type Holder = (u8, u64);

/// The model of a protocol.
pub trait Protocol: Model {
    /// Returns the clients whose checks of their leases succeed.
    fn holders(state: &Self::State) -> impl Iterator<Item = Holder>;

    /// Returns the holder of the lease by the server's record, if the lease has not ended.
    fn leased(&self, state: &Self::State) -> Option<Holder>;

    /// Returns whether the server may have forgotten leases that clients rely on.
    fn may_have_forgotten(_: &Self::State) -> bool {
        false
    }

    /// Returns the rule that a step has broken.
    fn broken(state: &Self::State) -> Option<&'static str>;
}

fn is_kept<P: Protocol>(state: &P::State, rule: &str) -> bool {
    P::broken(state) != Some(rule)
}

/// Returns the rules.
pub fn rules<P: Protocol>() -> Vec<Property<P>> {
    vec![
        Property::always("exclusion", |_, state| P::holders(state).count() <= 1),
        Property::always("conservative holder", |model: &P, state| {
            P::may_have_forgotten(state) || P::holders(state).all(|holder| model.leased(state) == Some(holder))
        }),
        Property::always("tokens grow", |_, state| is_kept::<P>(state, "tokens grow")),
        Property::always("no revival", |_, state| is_kept::<P>(state, "no revival")),
        Property::always("idempotent acquire", |_, state| is_kept::<P>(state, "idempotent acquire")),
        Property::always("bounded take-over", |_, state| is_kept::<P>(state, "bounded take-over")),
    ]
}
