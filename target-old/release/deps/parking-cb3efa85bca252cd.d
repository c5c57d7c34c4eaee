/work/wt/me/target-old/release/deps/parking-cb3efa85bca252cd.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/parking-2.2.1/src/lib.rs

/work/wt/me/target-old/release/deps/libparking-cb3efa85bca252cd.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/parking-2.2.1/src/lib.rs

/work/wt/me/target-old/release/deps/libparking-cb3efa85bca252cd.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/parking-2.2.1/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/parking-2.2.1/src/lib.rs:
