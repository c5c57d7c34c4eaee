/work/wt/me/target-old/release/deps/rand_xorshift-3d8ebea22519f756.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/rand_xorshift-0.4.0/src/lib.rs

/work/wt/me/target-old/release/deps/librand_xorshift-3d8ebea22519f756.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/rand_xorshift-0.4.0/src/lib.rs

/work/wt/me/target-old/release/deps/librand_xorshift-3d8ebea22519f756.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/rand_xorshift-0.4.0/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/rand_xorshift-0.4.0/src/lib.rs:
