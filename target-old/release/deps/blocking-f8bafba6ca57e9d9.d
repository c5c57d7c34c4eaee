/work/wt/me/target-old/release/deps/blocking-f8bafba6ca57e9d9.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/blocking-1.7.0/src/lib.rs

/work/wt/me/target-old/release/deps/libblocking-f8bafba6ca57e9d9.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/blocking-1.7.0/src/lib.rs

/work/wt/me/target-old/release/deps/libblocking-f8bafba6ca57e9d9.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/blocking-1.7.0/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/blocking-1.7.0/src/lib.rs:
