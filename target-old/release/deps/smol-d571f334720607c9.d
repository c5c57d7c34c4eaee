/work/wt/me/target-old/release/deps/smol-d571f334720607c9.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smol-2.0.2/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smol-2.0.2/src/spawn.rs

/work/wt/me/target-old/release/deps/libsmol-d571f334720607c9.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smol-2.0.2/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smol-2.0.2/src/spawn.rs

/work/wt/me/target-old/release/deps/libsmol-d571f334720607c9.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smol-2.0.2/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smol-2.0.2/src/spawn.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smol-2.0.2/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smol-2.0.2/src/spawn.rs:
