//! What the compiler says to the likeliest mistakes with keys: in each case the first error says what to do.
//!
//! Each mistake is a program of its own, in a package that is made for it, and checked as a user would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package beside the build's own files that depends on this one.
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
        // The versions that are at hand, so that nothing is downloaded.
        fs::copy(ours.join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
        Package(dir)
    }

    /// What the compiler says to a call on `locks`, a table with keys of type `key`.
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
            // Not that of the build that this is a part of.
            .env("CARGO_TARGET_DIR", self.0.join("target"))
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()
            .expect("cargo is there, because it runs the tests");
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn the_likeliest_mistakes_with_keys_are_told_what_to_do() {
    let package = Package::new();
    let (ok, errors) = package.check("Arc<str>", "drop(locks.try_lock(\"a\"));");
    assert!(ok, "the package does not build without a mistake:\n{errors}");

    let mistakes = [
        // By a `&String`: the standard library sees an `Arc<str>` as a `str` only.
        ("Arc<str>", "locks.try_lock(&string);", "String", "Arc<str>"),
        ("PathBuf", "locks.try_lock(\"a\");", "str", "PathBuf"),
        ("&'static str", "locks.try_lock(\"a\");", "str", "&'static str"),
        ("Vec<u8>", "locks.try_lock(b\"abc\");", "[u8; 3]", "Vec<u8>"),
        ("(String, u64)", "locks.try_lock(&(\"a\", 7));", "(&str, {integer})", "(String, u64)"),
        ("NotClone", "locks.try_lock(&NotClone(7));", "NotClone", "NotClone"),
        // An `Equivalent` of one's own serves for looking, and not for locking.
        ("Box<str>", "locks.is_locked(&Form(\"a\")); locks.try_lock(&Form(\"a\"));", "Form<'_>", "Box<str>"),
    ];
    for (key, call, form, made) in mistakes {
        let (ok, errors) = package.check(key, call);
        assert!(!ok, "`{call}` compiles for `{key}`");
        let first = errors.lines().next().unwrap_or_default();
        let told = format!("error[E0277]: a key of type `{made}` cannot be made from a `&{form}`");
        assert_eq!(first.replace("std::path::", ""), told, "in:\n{errors}");
        // The compiler knows better where a `&` is all that is missing.
        if !errors.contains("help: consider borrowing here") {
            for told in [
                format!("= note: if `{form}` is the key type itself, derive `Clone` for it"),
                format!("= note: otherwise pass a `&{made}`"),
                "such as `Path::new(\"a\")` for a `PathBuf`".to_owned(),
                format!("= note: for a type of your own, implement `keylatch::ToKey<{made}>`"),
            ] {
                assert!(errors.replace("std::path::", "").contains(&told), "no {told:?} in:\n{errors}");
            }
        }
        assert!(
            !errors.contains("in this macro invocation"),
            "it shows what is none of the user's business:\n{errors}"
        );
    }
}
