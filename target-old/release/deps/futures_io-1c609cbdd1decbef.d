/work/wt/me/target-old/release/deps/futures_io-1c609cbdd1decbef.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/futures-io-0.3.34/src/lib.rs

/work/wt/me/target-old/release/deps/libfutures_io-1c609cbdd1decbef.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/futures-io-0.3.34/src/lib.rs

/work/wt/me/target-old/release/deps/libfutures_io-1c609cbdd1decbef.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/futures-io-0.3.34/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/futures-io-0.3.34/src/lib.rs:
