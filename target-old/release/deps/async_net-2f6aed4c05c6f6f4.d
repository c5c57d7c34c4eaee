/work/wt/me/target-old/release/deps/async_net-2f6aed4c05c6f6f4.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/unix.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/addr.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/tcp.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/udp.rs

/work/wt/me/target-old/release/deps/libasync_net-2f6aed4c05c6f6f4.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/unix.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/addr.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/tcp.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/udp.rs

/work/wt/me/target-old/release/deps/libasync_net-2f6aed4c05c6f6f4.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/unix.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/addr.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/tcp.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/udp.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/unix.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/addr.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/tcp.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/async-net-2.0.0/src/udp.rs:
