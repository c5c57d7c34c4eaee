/work/wt/me/target-old/release/deps/errno-8f9b8aa9206032a7.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/errno-0.3.15/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/errno-0.3.15/src/unix.rs

/work/wt/me/target-old/release/deps/liberrno-8f9b8aa9206032a7.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/errno-0.3.15/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/errno-0.3.15/src/unix.rs

/work/wt/me/target-old/release/deps/liberrno-8f9b8aa9206032a7.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/errno-0.3.15/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/errno-0.3.15/src/unix.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/errno-0.3.15/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/errno-0.3.15/src/unix.rs:
