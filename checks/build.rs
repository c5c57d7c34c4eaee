//! Tells the sources which checker they are built with. The sources do not test `cfg(loom)` directly, because it is set
//! for every crate in a build. That includes this library in a user's own loom tests, where it has no loom to build
//! with.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for checker in ["loom", "shuttle"] {
        let variable = format!("CARGO_CFG_{}", checker.to_uppercase());
        println!("cargo::rerun-if-env-changed={variable}");
        if std::env::var_os(variable).is_some() {
            println!("cargo::rustc-cfg=keylatch_{checker}");
        }
    }
}
