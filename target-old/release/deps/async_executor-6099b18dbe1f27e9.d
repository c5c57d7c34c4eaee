/work/wt/me/target-old/release/deps/async_executor-6099b18dbe1f27e9.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-executor-1.14.1/src/lib.rs

/work/wt/me/target-old/release/deps/libasync_executor-6099b18dbe1f27e9.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-executor-1.14.1/src/lib.rs

/work/wt/me/target-old/release/deps/libasync_executor-6099b18dbe1f27e9.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-executor-1.14.1/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-executor-1.14.1/src/lib.rs:
