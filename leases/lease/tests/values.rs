//! The values: resources, owners, tokens, policies, clocks, fences and errors, without any leases.

use core::convert::Infallible;
use core::error::Error;
use core::fmt::{self, Debug};
use core::hash::{BuildHasher, Hash};
use core::time::Duration;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use keylatch_lease::{
    AcquireError, Clock, Expiry, ExpiryPolicy, Fence, Grant, LookError, Lost, ManualClock, Owner, ReleaseError,
    RenewError, Resource, Stale, Term, Token,
};
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

const SECOND: Duration = Duration::from_secs(1);

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn hash(value: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

#[test]
fn all_values_may_go_to_other_threads() {
    fn check<T: Send + Sync + Debug + 'static>() {}
    check::<Resource>();
    check::<Owner>();
    check::<Token>();
    check::<Expiry>();
    check::<Term>();
    check::<Grant>();
    check::<ManualClock>();
    check::<Fence>();
    check::<Stale>();
    check::<Lost>();
    check::<AcquireError>();
    check::<RenewError>();
    check::<ReleaseError>();
    check::<LookError>();
}

#[test]
fn values_are_small() {
    assert!(size_of::<Expiry>() <= 40);
    assert_eq!(size_of::<Option<Token>>(), size_of::<u64>());
    assert_eq!(size_of::<Resource>(), 3 * size_of::<usize>());
    assert_eq!(size_of::<Owner>(), 2 * size_of::<usize>());
}

mod resource {
    use super::*;

    #[test]
    fn resources_that_split_the_same_text_differently_differ() {
        let all = [Resource::new("a", "bc"), Resource::new("ab", "c"), Resource::new("abc", ""), Resource::from("abc")];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(a == b, i == j, "{a:?} {b:?}");
                assert_eq!(a.cmp(b).is_eq(), i == j, "{a:?} {b:?}");
                assert_eq!(hash(a) == hash(b), i == j, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn each_conversion_creates_the_resource_of_its_parts() {
        let pair = Resource::new("invoice", "17");
        assert_eq!(Resource::from(("invoice", "17")), pair);
        assert_eq!(Resource::from(&pair), pair);

        let alone = Resource::new("", "17");
        assert_eq!(Resource::from("17"), alone);
        assert_eq!(Resource::from(String::from("17")), alone);
        assert_eq!(Resource::from(&String::from("17")), alone);
    }

    #[test]
    fn display_shows_no_slash_without_an_entity() {
        assert_eq!(Resource::new("invoice", "17").to_string(), "invoice/17");
        assert_eq!(Resource::new("invoice", "").to_string(), "invoice/");
        assert_eq!(Resource::from("17").to_string(), "17");
    }

    #[test]
    fn debug_shows_both_parts() {
        assert_eq!(format!("{:?}", Resource::new("a/b", "c")), r#"Resource { entity: "a/b", key: "c" }"#);
    }

    #[test]
    fn a_clone_shares_the_text() {
        let resource = Resource::new("invoice", "17");
        assert!(core::ptr::eq(resource.entity(), resource.clone().entity()));
    }

    proptest! {
        #[test]
        fn a_resource_compares_as_the_pair_of_its_parts(a in part(), b in part(), c in part(), d in part()) {
            let (x, y) = (Resource::new(&a, &b), Resource::new(&c, &d));
            prop_assert_eq!((x.entity(), x.key()), (&*a, &*b));
            prop_assert_eq!(x.cmp(&y), (&a, &b).cmp(&(&c, &d)));
            prop_assert_eq!(x == y, (&a, &b) == (&c, &d));
            prop_assert!(x != y || hash(&x) == hash(&y));
        }
    }

    /// Short texts from an alphabet of two letters, one of them of several bytes, so that equal texts are likely.
    fn part() -> impl Strategy<Value = String> {
        "[aé]{0,3}"
    }
}

mod owner {
    use super::*;

    #[test]
    fn the_same_name_is_the_same_owner() {
        let owner = Owner::named("session-42");
        assert_eq!(Owner::named(String::from("session-42")), owner);
        assert_eq!(Owner::from("session-42"), owner);
        assert_eq!(Owner::from(String::from("session-42")), owner);
        assert_eq!(Owner::from(&String::from("session-42")), owner);
        assert_eq!(hash(Owner::from("session-42")), hash(&owner));
        assert_ne!(Owner::named("session-43"), owner);
    }

    #[test]
    fn display_is_the_name_and_debug_the_id() {
        let owner = Owner::from_id("run:5f0c2ab9e1d47733:worker-3");
        assert_eq!(owner.to_string(), "worker-3");
        assert_eq!(format!("{owner:?}"), r#"Owner("run:5f0c2ab9e1d47733:worker-3")"#);
    }

    #[test]
    fn an_id_without_a_whole_tag_is_a_name() {
        let names = [
            "",
            "worker-3",
            "name",
            "Name:x",
            "run:",
            "run:x",
            "run:5f0c2ab9e1d47733",
            "run:5f0c2ab9e1d4773:x",
            "run:5f0c2ab9e1d477330:x",
            "run:5F0C2AB9E1D47733:x",
            "run:5f0c2ab9e1d4773g:x",
            "run:5f0c2ab9e1d4773é:x",
            " run:5f0c2ab9e1d47733:x",
        ];
        for name in names {
            assert_eq!(Owner::from_id(name), Owner::named(name));
            assert_eq!(Owner::from_id(name).name(), name);
        }
    }

    #[test]
    fn a_tagged_id_is_no_name() {
        for id in ["name:x", "name:", "run:5f0c2ab9e1d47733:x", "run:5f0c2ab9e1d47733:"] {
            assert_eq!(Owner::from_id(id).id(), id);
            assert_ne!(Owner::from_id(id), Owner::named(id));
        }
    }

    #[test]
    #[cfg(feature = "std")]
    fn no_two_incarnations_are_equal() {
        let mut all: Vec<Owner> = (0..1000).map(|_| Owner::incarnation("worker-3")).collect();
        for owner in &all {
            assert_eq!(owner.name(), "worker-3");
            assert_eq!(owner.id().len(), "run::".len() + 16 + "worker-3".len());
            assert_eq!(Owner::from_id(owner.id()), *owner);
        }
        all.push(Owner::named("worker-3"));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 1001);
    }

    proptest! {
        #[test]
        fn an_owner_is_restored_from_its_id(name in "(name:|run:[0-9a-f]{15,17}:)?.{0,5}") {
            let owner = Owner::named(&name);
            prop_assert_eq!(owner.name(), &*name);
            prop_assert_eq!(Owner::from_id(owner.id()), owner.clone());
            prop_assert!(Owner::named(owner.id()) != owner);
        }
    }
}

mod token {
    use super::*;

    #[test]
    fn zero_is_no_token() {
        assert_eq!(Token::new(0), None);
        assert_eq!(Token::new(1).map(Token::get), Some(1));
        assert_eq!(Token::new(u64::MAX).map(Token::get), Some(u64::MAX));
    }

    #[test]
    fn tokens_are_ordered_and_shown_by_their_numbers() {
        assert!(token(9) < token(10));
        assert_eq!(token(10).to_string(), "10");
        assert_eq!(format!("{:>4}", token(10)), "  10");
        assert_eq!(format!("{:?}", token(10)), "Token(10)");
    }
}

mod expiry {
    use super::*;

    #[test]
    fn policies_of_equal_kind_and_durations_are_equal() {
        let all = [
            Expiry::Fixed(SECOND),
            Expiry::Fixed(2 * SECOND),
            Expiry::Sliding(SECOND),
            Expiry::Sliding(2 * SECOND),
            Expiry::SlidingUpTo { idle: SECOND, total: SECOND },
            Expiry::SlidingUpTo { idle: SECOND, total: 2 * SECOND },
            Expiry::SlidingUpTo { idle: 2 * SECOND, total: SECOND },
            Expiry::Never,
            Expiry::custom(Some),
            Expiry::custom(Some),
        ];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(*a == b.clone(), i == j, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_duration_converts_to_sliding() {
        assert_eq!(Expiry::from(SECOND), Expiry::Sliding(SECOND));
    }

    #[test]
    fn debug_shows_durations_and_hides_policies() {
        assert_eq!(format!("{:?}", Expiry::Fixed(SECOND)), "Fixed(1s)");
        assert_eq!(format!("{:?}", Expiry::Sliding(SECOND)), "Sliding(1s)");
        let capped = Expiry::SlidingUpTo { idle: SECOND, total: 2 * SECOND };
        assert_eq!(format!("{capped:?}"), "SlidingUpTo { idle: 1s, total: 2s }");
        assert_eq!(format!("{:?}", Expiry::Never), "Never");
        assert_eq!(format!("{:?}", Expiry::custom(Some)), "Custom(..)");
    }

    #[test]
    fn types_and_closures_are_policies() {
        struct Half;
        impl ExpiryPolicy for Half {
            fn remaining(&self, held_for: Duration) -> Option<Duration> {
                Some(held_for / 2)
            }
        }

        let limit = 3 * SECOND;
        let policies: [Arc<dyn ExpiryPolicy>; 2] =
            [Arc::new(Half), Arc::new(move |held_for| limit.checked_sub(held_for))];
        assert_eq!(policies.map(|policy| policy.remaining(2 * SECOND)), [Some(SECOND); 2]);
    }

    #[test]
    fn a_lease_whose_end_does_not_fit_a_duration_never_ends() {
        let long = Some(Duration::MAX);
        assert_eq!(Term { idle: long, total: None }.end(SECOND, SECOND), None);
        assert_eq!(Term { idle: None, total: long }.end(SECOND, SECOND), None);
        assert_eq!(Term { idle: long, total: long }.end(SECOND, SECOND), None);
        // The other limit still applies.
        assert_eq!(Term { idle: long, total: Some(SECOND) }.end(SECOND, SECOND), Some(2 * SECOND));
        assert_eq!(Term { idle: Some(SECOND), total: long }.end(SECOND, SECOND), Some(2 * SECOND));
        // This end just fits.
        assert_eq!(Term { idle: long, total: None }.end(Duration::ZERO, Duration::ZERO), long);
    }

    proptest! {
        #[test]
        fn a_later_renewal_never_ends_earlier(
            idle in any::<Option<Duration>>(),
            total in any::<Option<Duration>>(),
            start in any::<Duration>(),
            [a, b] in any::<[u32; 2]>(),
        ) {
            let never = |end: Option<Duration>| end.unwrap_or(Duration::MAX);
            let at = |seconds: u32| start.saturating_add(seconds * SECOND);
            let term = Term { idle, total };
            let (earlier, later) = (term.end(start, at(a.min(b))), term.end(start, at(a.max(b))));
            prop_assert!(never(earlier) <= never(later));
        }
    }
}

mod clock {
    use super::*;

    #[test]
    fn a_manual_clock_stands_still_between_its_advances() {
        let clock = ManualClock::new();
        assert_eq!(clock.now(), Duration::ZERO);
        clock.advance(SECOND);
        clock.advance(Duration::ZERO);
        assert_eq!([clock.now(), clock.now()], [SECOND; 2]);
        assert_eq!(format!("{clock:?}"), "ManualClock(1s)");
    }

    #[test]
    fn clones_share_the_time_and_new_clocks_do_not() {
        let clock = ManualClock::new();
        let clone = clock.clone();
        clock.advance(SECOND);
        clone.advance(SECOND);
        assert_eq!([clock.now(), clone.now()], [2 * SECOND; 2]);
        assert_eq!(ManualClock::default().now(), Duration::ZERO);
    }

    #[test]
    fn a_manual_clock_stops_at_the_last_moment() {
        let clock = ManualClock::new();
        clock.advance(Duration::MAX);
        clock.advance(SECOND);
        assert_eq!(clock.now(), Duration::MAX);
    }

    #[test]
    fn references_and_arcs_show_the_time_of_their_clock() {
        struct Real;
        impl Clock for Real {
            fn now(&self) -> Duration {
                SECOND
            }
            fn is_real_time(&self) -> bool {
                true
            }
        }
        fn ask(clock: impl Clock) -> (Duration, bool) {
            (clock.now(), clock.is_real_time())
        }
        let clock: Arc<dyn Clock> = Arc::new(Real);
        assert_eq!(ask(&Real), (SECOND, true));
        assert_eq!(ask(&*clock), (SECOND, true));
        assert_eq!(ask(clock), (SECOND, true));
        assert_eq!(ask(ManualClock::new()), (Duration::ZERO, false));
    }

    #[test]
    #[cfg(feature = "std")]
    fn all_std_clocks_tell_one_time_that_never_goes_back() {
        use keylatch_lease::StdClock;

        let mut last = StdClock::new().now();
        for _ in 0..1000 {
            let now = std::thread::spawn(|| StdClock::default().now()).join().unwrap();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    #[cfg(feature = "std")]
    fn the_std_clock_keeps_pace_with_the_timers() {
        use keylatch_lease::StdClock;

        let before = (StdClock::new().now(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let slept = StdClock::new().now() - before.0;
        // The readings of both clocks enclose the sleep, and any delay of a busy machine.
        assert!(slept >= Duration::from_millis(19) && slept <= before.1.elapsed() + SECOND, "{slept:?}");
    }

    #[test]
    #[cfg(all(feature = "std", target_os = "linux"))]
    fn on_linux_the_origin_is_the_boot() {
        use keylatch_lease::StdClock;

        // The first number is the time since the boot, in seconds; suspended time counts.
        let Ok(uptime) = std::fs::read_to_string("/proc/uptime") else { return };
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        // A container may report an uptime of its own, which is shorter than the machine's.
        assert!(StdClock::new().now().as_secs_f64() > uptime - 1.0);
    }
}

mod fence {
    use super::*;

    #[test]
    fn smaller_tokens_are_stale_and_equal_ones_pass() {
        let fence = Fence::new();
        let drawer = Resource::new("drawer", "3");
        assert_eq!(fence.admit(&drawer, token(5)), Ok(()));
        assert_eq!(fence.admit(&drawer, token(5)), Ok(()));
        assert_eq!(fence.admit(&drawer, token(9)), Ok(()));
        for number in [1, 5, 8] {
            let stale = fence.admit(&drawer, token(number)).unwrap_err();
            assert_eq!((stale.resource(), stale.token(), stale.newest()), (&drawer, token(number), token(9)));
        }
        // The refused tokens have changed nothing.
        assert_eq!(fence.admit(&drawer, token(9)), Ok(()));
    }

    #[test]
    fn a_fence_treats_resources_independently() {
        let fence = Fence::default();
        assert_eq!(fence.admit(&Resource::new("a", "bc"), token(9)), Ok(()));
        assert_eq!(fence.admit(&Resource::new("ab", "c"), token(1)), Ok(()));
        assert_eq!(fence.len(), 2);
        assert_eq!(format!("{fence:?}"), "Fence { len: 2, .. }");
    }

    #[test]
    fn a_forgotten_resource_admits_any_token() {
        let fence = Fence::new();
        let [a, b] = ["a", "b"].map(Resource::from);
        fence.admit(&a, token(9)).unwrap();
        fence.admit(&b, token(9)).unwrap();
        fence.forget(&a);
        fence.forget(&a);
        assert_eq!(fence.len(), 1);
        assert_eq!(fence.admit(&a, token(1)), Ok(()));
        assert!(fence.admit(&b, token(1)).is_err());
    }

    #[test]
    fn a_stale_error_names_the_resource_and_both_tokens() {
        let fence = Fence::new();
        let drawer = Resource::new("drawer", "3");
        fence.admit(&drawer, token(9)).unwrap();
        let stale: Box<dyn Error> = fence.admit(&drawer, token(5)).unwrap_err().into();
        assert_eq!(stale.to_string(), "token 5 of drawer/3 is stale: token 9 has been seen");
    }

    #[test]
    fn admitted_tokens_never_decrease_with_several_threads() {
        let fence = Fence::new();
        let resource = Resource::from("shared");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (fence, resource) = (&fence, &resource);
                scope.spawn(move || {
                    let mut newest = 0;
                    for number in (1 + thread..4000).step_by(4) {
                        match fence.admit(resource, token(number)) {
                            Ok(()) => newest = number,
                            Err(stale) => {
                                assert!(stale.newest() > stale.token() && stale.newest().get() >= newest);
                                newest = stale.newest().get();
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(fence.admit(&resource, token(1)).unwrap_err().newest(), token(3999));
    }

    proptest! {
        #[test]
        fn a_fence_keeps_the_greatest_token_of_each_resource(steps in proptest::collection::vec((0..3_u8, 0..9_u64), 0..60)) {
            let fence = Fence::new();
            let mut greatest = HashMap::new();
            for (key, number) in steps {
                let resource = Resource::from(key.to_string());
                if let Some(token) = Token::new(number) {
                    let newest = greatest.entry(key).or_insert(token);
                    *newest = token.max(*newest);
                    prop_assert_eq!(fence.admit(&resource, token).is_ok(), token == *newest);
                } else {
                    fence.forget(&resource);
                    greatest.remove(&key);
                }
                prop_assert_eq!(fence.len(), greatest.len());
                prop_assert_eq!(fence.is_empty(), greatest.is_empty());
            }
        }
    }
}

mod error {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Broken;

    impl fmt::Display for Broken {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("connection reset")
        }
    }

    impl Error for Broken {}

    fn resource() -> Resource {
        Resource::new("invoice", "17")
    }

    #[test]
    fn an_acquire_error_names_its_cause() {
        let (resource, owner) = (resource(), Owner::named("jane"));
        let text = |error: AcquireError| error.to_string();
        assert_eq!(
            text(AcquireError::Busy { resource: resource.clone(), owner: owner.clone(), remaining: Some(SECOND) }),
            "invoice/17 is leased to jane for another 1s"
        );
        assert_eq!(
            text(AcquireError::Busy { resource: resource.clone(), owner, remaining: None }),
            "invoice/17 is leased to jane until it is released"
        );
        assert_eq!(
            text(AcquireError::Limit { resource: resource.clone() }),
            "gave up waiting for invoice/17: the limit of the wait was reached"
        );
        assert_eq!(
            text(AcquireError::Refused { resource: resource.clone() }),
            "the expiry policy refused a lease of invoice/17"
        );
        assert_eq!(
            text(AcquireError::TtlTooShort { resource: resource.clone(), min: SECOND }),
            "the engine cannot lease invoice/17 for less than 1s"
        );
        assert_eq!(
            text(AcquireError::Quarantined { resource, remaining: SECOND }),
            "invoice/17 cannot be leased for another 1s: the engine may have forgotten leases that are still in use, or its namespace is new (if so, call the engine's `init` once before any program uses it)"
        );
    }

    #[test]
    fn a_renew_error_says_whether_the_lease_is_lost() {
        let text = |error: RenewError| error.to_string();
        assert_eq!(text(Lost::Expired.into()), "the lease is lost: it has expired");
        assert_eq!(
            text(RenewError::NotRenewable { resource: resource() }),
            "the lease of invoice/17 cannot be renewed: its expiry is `Fixed`, or its custom policy refused, or the policy \
             was lost when the grant was serialised; acquire the lease again with a new expiry"
        );
    }

    #[test]
    fn a_release_error_names_the_owner() {
        let text = |error: ReleaseError| error.to_string();
        assert_eq!(
            text(ReleaseError::NotHeld { resource: resource() }),
            "invoice/17 was not released: no owner has a lease of it"
        );
        assert_eq!(
            text(ReleaseError::NotOwner { resource: resource(), owner: Owner::named("jane") }),
            "invoice/17 was not released: jane holds it in a tenure other than that of the grant"
        );
    }

    #[test]
    fn an_invalid_argument_is_named_alike_in_all_errors() {
        fn texts(argument: &'static str) -> [String; 4] {
            [
                AcquireError::<Infallible>::Invalid { argument }.to_string(),
                RenewError::<Infallible>::Invalid { argument }.to_string(),
                ReleaseError::<Infallible>::Invalid { argument }.to_string(),
                LookError::<Infallible>::Invalid { argument }.to_string(),
            ]
        }
        assert_eq!(texts("owner"), ["the owner's name is empty or longer than 1024 bytes"; 4]);
        assert_eq!(texts("resource"), ["the resource is longer than 1024 bytes"; 4]);
        assert_eq!(texts("ttl"), ["the argument `ttl` is invalid"; 4]);
    }

    #[test]
    fn the_error_of_the_engine_is_the_source_and_nothing_else_is() {
        let failed: [Box<dyn Error>; 4] = [
            AcquireError::Engine(Broken).into(),
            RenewError::Engine(Broken).into(),
            ReleaseError::Engine(Broken).into(),
            LookError::Engine(Broken).into(),
        ];
        for error in failed {
            assert_eq!(error.to_string(), format!("the lease engine failed: {Broken}"));
            assert_eq!(error.source().and_then(|source| source.downcast_ref()), Some(&Broken));
        }

        let others: [Box<dyn Error>; 5] = [
            AcquireError::<Broken>::Limit { resource: resource() }.into(),
            RenewError::<Broken>::Lost(Lost::Released).into(),
            ReleaseError::<Broken>::NotHeld { resource: resource() }.into(),
            LookError::<Broken>::Invalid { argument: "owner" }.into(),
            Lost::Released.into(),
        ];
        for error in others {
            assert!(error.source().is_none(), "{error}");
        }
    }

    #[test]
    fn each_loss_has_its_own_text() {
        let all = [Lost::Expired, Lost::TakenOver, Lost::Released, Lost::EngineForgot, Lost::TooShort];
        let texts = all.map(|lost| lost.to_string());
        for (i, text) in texts.iter().enumerate() {
            assert!(!text.ends_with('.') && text.starts_with("the lease"), "{text}");
            assert_eq!(texts.iter().position(|other| other == text), Some(i));
        }
    }
}

#[cfg(feature = "serde")]
mod serde_forms {
    use super::*;
    use serde_json::{Value, from_value, json, to_value};

    fn grant(expiry: &Value) -> Value {
        json!({
            "resource": ["invoice", "17"],
            "owner": "name:jane",
            "token": 7,
            "resumed": true,
            "start": { "secs": 1, "nanos": 500 },
            "end": null,
            "expiry": expiry,
        })
    }

    fn read(grant: &Value) -> Result<Grant, serde_json::Error> {
        from_value(grant.clone())
    }

    #[test]
    fn a_resource_is_a_pair() {
        let resource = Resource::new("invoice", "17");
        assert_eq!(to_value(&resource).unwrap(), json!(["invoice", "17"]));
        assert_eq!(from_value::<Resource>(json!(["invoice", "17"])).unwrap(), resource);
        assert!(from_value::<Resource>(json!(["invoice"])).is_err());
    }

    #[test]
    fn an_owner_is_its_id() {
        for owner in [Owner::named("jane"), Owner::from_id("run:5f0c2ab9e1d47733:worker-3")] {
            assert_eq!(to_value(&owner).unwrap(), json!(owner.id()));
            assert_eq!(from_value::<Owner>(json!(owner.id())).unwrap(), owner);
        }
    }

    #[test]
    fn a_token_is_a_number_other_than_zero() {
        assert_eq!(to_value(token(7)).unwrap(), json!(7));
        assert_eq!(from_value::<Token>(json!(7)).unwrap(), token(7));
        assert_eq!(from_value::<Token>(json!(0)).unwrap_err().to_string(), "a token must not be zero");
    }

    #[test]
    fn a_grant_is_deserialised_with_every_expiry_but_a_custom_one() {
        let second = json!({ "secs": 1, "nanos": 0 });
        let two = json!({ "secs": 2, "nanos": 0 });
        let forms = [
            json!(["fixed", second, second]),
            json!(["sliding", second, null]),
            json!(["sliding_up_to", second, two]),
            json!(["sliding_up_to", second, second]),
            json!(["never", null, null]),
            json!(null),
        ];
        for form in forms {
            let form = grant(&form);
            let grant = read(&form).unwrap();
            assert_eq!(grant.resource(), &Resource::new("invoice", "17"));
            assert_eq!(grant.owner(), &Owner::named("jane"));
            assert_eq!(grant.token(), token(7));
            assert!(grant.is_resumed());
            assert_eq!(to_value(&grant).unwrap(), form);
        }
    }

    #[test]
    fn a_grant_is_read_from_a_sequence_too() {
        // Formats that omit the names of fields write a grant in this way.
        let expected = grant(&Value::Null);
        let sequence = json!([["invoice", "17"], "name:jane", 7, true, { "secs": 1, "nanos": 500 }, null, null]);
        assert_eq!(read(&sequence).unwrap(), read(&expected).unwrap());
        assert!(read(&json!([["invoice", "17"], "name:jane", 7])).is_err());
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let mut form = grant(&Value::Null);
        form["colour"] = json!({ "red": 1 });
        assert_eq!(read(&form).unwrap(), read(&grant(&Value::Null)).unwrap());
    }

    #[test]
    fn a_grant_that_lacks_a_field_is_an_error() {
        for name in ["resource", "owner", "token", "resumed", "start", "end", "expiry"] {
            let mut form = grant(&Value::Null);
            form.as_object_mut().unwrap().remove(name);
            assert_eq!(read(&form).unwrap_err().to_string(), format!("missing field `{name}`"));
        }
    }

    #[test]
    fn a_duplicate_field_is_an_error() {
        let text = grant(&Value::Null).to_string().replacen('{', r#"{"token":7,"#, 1);
        let error = serde_json::from_str::<Grant>(&text).unwrap_err();
        assert!(error.to_string().starts_with("duplicate field `token`"), "{error}");
    }

    #[test]
    fn an_invalid_expiry_is_an_error() {
        let (zero, second) = (json!({ "secs": 0, "nanos": 0 }), json!({ "secs": 1, "nanos": 0 }));
        let wrong = [
            json!(["fixed", zero, zero]),
            json!(["fixed", second, null]),
            json!(["sliding", zero, null]),
            json!(["sliding", null, null]),
            json!(["sliding_up_to", second, zero]),
            json!(["sliding_up_to", zero, second]),
            json!(["never", second, null]),
            json!(["custom", null, null]),
        ];
        for form in wrong {
            assert!(read(&grant(&form)).is_err(), "{form}");
        }
    }
}
