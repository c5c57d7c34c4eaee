/work/wt/me/target-old/release/deps/polling-19022e93a7c450f6.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/os.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/epoll.rs

/work/wt/me/target-old/release/deps/libpolling-19022e93a7c450f6.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/os.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/epoll.rs

/work/wt/me/target-old/release/deps/libpolling-19022e93a7c450f6.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/os.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/epoll.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/os.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/polling-3.11.0/src/epoll.rs:
