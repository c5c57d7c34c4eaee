/work/wt/me/target-old/release/deps/atomic_waker-50b509ff1fe84e30.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/atomic-waker-1.1.2/src/lib.rs

/work/wt/me/target-old/release/deps/libatomic_waker-50b509ff1fe84e30.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/atomic-waker-1.1.2/src/lib.rs

/work/wt/me/target-old/release/deps/libatomic_waker-50b509ff1fe84e30.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/atomic-waker-1.1.2/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/atomic-waker-1.1.2/src/lib.rs:
