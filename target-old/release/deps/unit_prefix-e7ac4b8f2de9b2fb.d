/work/wt/me/target-old/release/deps/unit_prefix-e7ac4b8f2de9b2fb.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unit-prefix-0.5.2/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unit-prefix-0.5.2/src/parse.rs

/work/wt/me/target-old/release/deps/libunit_prefix-e7ac4b8f2de9b2fb.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unit-prefix-0.5.2/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unit-prefix-0.5.2/src/parse.rs

/work/wt/me/target-old/release/deps/libunit_prefix-e7ac4b8f2de9b2fb.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unit-prefix-0.5.2/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unit-prefix-0.5.2/src/parse.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unit-prefix-0.5.2/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unit-prefix-0.5.2/src/parse.rs:
