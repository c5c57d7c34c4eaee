/work/wt/me/target-old/release/deps/spin-cef1e95d8ec86a29.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex/spin.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/relax.rs

/work/wt/me/target-old/release/deps/libspin-cef1e95d8ec86a29.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex/spin.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/relax.rs

/work/wt/me/target-old/release/deps/libspin-cef1e95d8ec86a29.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex/spin.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/relax.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex/spin.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/relax.rs:
