/work/wt/me/target-old/release/deps/event_listener_strategy-93b623ddd4e67a46.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-strategy-0.5.4/src/lib.rs

/work/wt/me/target-old/release/deps/libevent_listener_strategy-93b623ddd4e67a46.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-strategy-0.5.4/src/lib.rs

/work/wt/me/target-old/release/deps/libevent_listener_strategy-93b623ddd4e67a46.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-strategy-0.5.4/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-strategy-0.5.4/src/lib.rs:
