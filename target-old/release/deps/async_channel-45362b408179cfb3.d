/work/wt/me/target-old/release/deps/async_channel-45362b408179cfb3.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-channel-2.5.0/src/lib.rs

/work/wt/me/target-old/release/deps/libasync_channel-45362b408179cfb3.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-channel-2.5.0/src/lib.rs

/work/wt/me/target-old/release/deps/libasync_channel-45362b408179cfb3.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-channel-2.5.0/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-channel-2.5.0/src/lib.rs:
