/work/wt/me/target-old/release/deps/quick_error-7934f29fff04d8ce.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/quick-error-2.0.1/src/lib.rs

/work/wt/me/target-old/release/deps/libquick_error-7934f29fff04d8ce.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/quick-error-2.0.1/src/lib.rs

/work/wt/me/target-old/release/deps/libquick_error-7934f29fff04d8ce.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/quick-error-2.0.1/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/quick-error-2.0.1/src/lib.rs:
