/work/wt/me/target-old/release/deps/async_fs-4b09436e1377f55c.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-fs-2.2.0/src/lib.rs

/work/wt/me/target-old/release/deps/libasync_fs-4b09436e1377f55c.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-fs-2.2.0/src/lib.rs

/work/wt/me/target-old/release/deps/libasync_fs-4b09436e1377f55c.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-fs-2.2.0/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-fs-2.2.0/src/lib.rs:
