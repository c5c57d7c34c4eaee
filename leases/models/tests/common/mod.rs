//! Exploring a model.

use std::{fmt::Debug, hash::Hash};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

/// A model that the checker can explore.
pub(crate) trait Explored:
    Model<State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static, Action: Clone + Debug + PartialEq>
    + Send
    + Sync
    + 'static
{
}

impl<M> Explored for M where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static, Action: Clone + Debug + PartialEq>
        + Send
        + Sync
        + 'static
{
}

/// Returns whether to explore more than a run of CI has time for.
#[allow(dead_code, reason = "not every model has a larger size")]
pub(crate) fn is_whole() -> bool {
    std::env::var_os("KEYLATCH_WHOLE_MODELS").is_some()
}

/// Explores all states, and checks all rules, and that these things are possible.
pub(crate) fn holds(model: impl Explored, possible: &[&'static str]) {
    let properties = model.properties();
    let checker = model.checker().threads(2).spawn_dfs().join();
    println!("{} states, {} of them different", checker.state_count(), checker.unique_state_count());
    for property in properties {
        match property.expectation {
            Expectation::Always => checker.assert_no_discovery(property.name),
            _ if possible.contains(&property.name) => drop(checker.assert_any_discovery(property.name)),
            _ => {}
        }
    }
}

/// Explores a model with a fault until some rule is broken, and checks that this one is.
pub(crate) fn breaks<M: Explored>(model: M, fault: impl Debug, rule: &str) {
    let is_rule = |property: &Property<M>| property.expectation == Expectation::Always;
    let rules: Vec<_> = model.properties().into_iter().filter(is_rule).map(|property| property.name).collect();
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let broken: Vec<_> = rules.into_iter().filter(|rule| checker.discovery(rule).is_some()).collect();
    println!("{fault:?}: {broken:?}");
    assert!(broken.contains(&rule), "{fault:?} does not break the rule {rule:?}, but {broken:?}");
}
