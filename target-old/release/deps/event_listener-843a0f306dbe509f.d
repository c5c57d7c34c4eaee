/work/wt/me/target-old/release/deps/event_listener-843a0f306dbe509f.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/intrusive.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/notify.rs

/work/wt/me/target-old/release/deps/libevent_listener-843a0f306dbe509f.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/intrusive.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/notify.rs

/work/wt/me/target-old/release/deps/libevent_listener-843a0f306dbe509f.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/intrusive.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/notify.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/intrusive.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/event-listener-5.4.2/src/notify.rs:
