/work/wt/me/target-old/release/deps/piper-53f17d24525523d2.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/piper-0.2.5/src/lib.rs

/work/wt/me/target-old/release/deps/libpiper-53f17d24525523d2.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/piper-0.2.5/src/lib.rs

/work/wt/me/target-old/release/deps/libpiper-53f17d24525523d2.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/piper-0.2.5/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/piper-0.2.5/src/lib.rs:
