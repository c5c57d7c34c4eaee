/work/wt/me/target-old/release/deps/async_signal-7a73908a09dbf07d.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-signal-0.2.14/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-signal-0.2.14/src/pipe.rs

/work/wt/me/target-old/release/deps/libasync_signal-7a73908a09dbf07d.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-signal-0.2.14/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-signal-0.2.14/src/pipe.rs

/work/wt/me/target-old/release/deps/libasync_signal-7a73908a09dbf07d.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-signal-0.2.14/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-signal-0.2.14/src/pipe.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-signal-0.2.14/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-signal-0.2.14/src/pipe.rs:
