//! The compiler's messages for the likeliest mistakes with keys: in each case the first error says what to do.
//!
//! Each mistake is a separate program, in a package created for it, and is checked as a user would check it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package in the build directory that depends on this crate.
struct Package(PathBuf);

impl Package {
    fn new() -> Package {
        let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages");
        fs::create_dir_all(dir.join("src/bin")).unwrap();
        let manifest = format!(
            "[package]\nname = \"messages\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\nkeylatch = {{ path = {ours:?} }}\n"
        );
        fs::write(dir.join("Cargo.toml"), manifest).unwrap();
        // The versions that this build uses, so that nothing is downloaded.
        fs::copy(ours.join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
        Package(dir)
    }

    /// Compiles a call on `locks`, a table with keys of type `key`. Returns whether it compiles, and the compiler's
    /// output.
    fn check(&self, key: &str, call: &str) -> (bool, String) {
        let program = format!(
            "#![allow(dead_code, unused)]\nuse std::{{path::*, sync::Arc}};\nuse keylatch::*;\n\
             #[derive(PartialEq, Eq, Hash)]\nstruct NotClone(u64);\n\
             #[derive(Hash)]\nstruct Form<'a>(&'a str);\n\
             impl Equivalent<Box<str>> for Form<'_> {{\n    \
                 fn equivalent(&self, key: &Box<str>) -> bool {{ *self.0 == **key }}\n}}\n\
             fn main() {{\n    let locks = KeyedMutex::<{key}>::new();\n    let string = String::new();\n    {call}\n}}\n"
        );
        fs::write(self.0.join("src/bin/mistake.rs"), program).unwrap();
        let output = Command::new(env!("CARGO"))
            .args(["check", "--offline", "--quiet", "--color=never", "--bin=mistake"])
            .current_dir(&self.0)
            // This must not be the target directory of the build to which this test belongs.
            .env("CARGO_TARGET_DIR", self.0.join("target"))
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("RUSTC_WORKSPACE_WRAPPER") // Clippy's messages differ
            .output()
            .expect("cargo runs the tests, so it is installed");
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn the_compiler_explains_the_likeliest_mistakes_with_keys() {
    let package = Package::new();
    let (ok, errors) = package.check("Arc<str>", "drop(locks.try_lock(\"a\"));");
    assert!(ok, "the package does not build without a mistake:\n{errors}");

    let mistakes = [
        // With a `&String`: the standard library borrows an `Arc<str>` only as a `str`.
        ("Arc<str>", "locks.try_lock(&string);", "String", "Arc<str>"),
        ("PathBuf", "locks.try_lock(\"a\");", "str", "PathBuf"),
        ("&'static str", "locks.try_lock(\"a\");", "str", "&'static str"),
        ("Vec<u8>", "locks.try_lock(b\"abc\");", "[u8; 3]", "Vec<u8>"),
        ("(String, u64)", "locks.try_lock(&(\"a\", 7));", "(&str, {integer})", "(String, u64)"),
        ("NotClone", "locks.try_lock(&NotClone(7));", "NotClone", "NotClone"),
        // A user's own `Equivalent` suffices for queries, but not for locking.
        ("Box<str>", "locks.is_locked(&Form(\"a\")); locks.try_lock(&Form(\"a\"));", "Form<'_>", "Box<str>"),
    ];
    for (key, call, form, made) in mistakes {
        let (ok, errors) = package.check(key, call);
        assert!(!ok, "`{call}` compiles for `{key}`");
        let first = errors.lines().next().unwrap_or_default();
        let expected = format!("error[E0277]: a key of type `{made}` cannot be made from a `&{form}`");
        assert_eq!(first.replace("std::path::", ""), expected, "in:\n{errors}");
        // If only a `&` is missing, the compiler has a better hint.
        if !errors.contains("help: consider borrowing here") {
            for expected in [
                format!("= note: if `{form}` is the key type itself, derive `Clone` for it"),
                format!("= note: otherwise pass a `&{made}`"),
                "such as `Path::new(\"a\")` for a `PathBuf`".to_owned(),
                format!("= note: for a type of your own, implement `keylatch::ToKey<{made}>`"),
            ] {
                assert!(errors.replace("std::path::", "").contains(&expected), "no {expected:?} in:\n{errors}");
            }
        }
        assert!(!errors.contains("in this macro invocation"), "the message shows internals of the crate:\n{errors}");
    }
}
