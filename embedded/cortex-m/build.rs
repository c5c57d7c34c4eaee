//! Gives the linker the memory layout of the board, and extracts the example from the documentation.

use std::{env, fs, path::PathBuf};

/// Returns the memory of the QEMU board that has the target's processor.
fn memory(target: &str) -> &'static str {
    match target {
        // microbit: a Cortex-M0
        "thumbv6m-none-eabi" => "FLASH : ORIGIN = 0, LENGTH = 256K\n RAM : ORIGIN = 0x20000000, LENGTH = 16K",
        // mps2-an385: a Cortex-M3 with 4 MB, of which this uses only as much as a small device has
        "thumbv7m-none-eabi" => "FLASH : ORIGIN = 0, LENGTH = 256K\n RAM : ORIGIN = 0x20000000, LENGTH = 64K",
        other => panic!("no board is known for {other}"),
    }
}

/// Returns the first Rust code block in the documentation.
fn example() -> String {
    const PAGE: &str = "../../docs/embedded.md";
    println!("cargo:rerun-if-changed={PAGE}");
    let page = fs::read_to_string(PAGE).expect("the documentation");
    let (_, rest) = page.split_once("```rust\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("the end of the example");
    example.to_owned()
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let target = env::var("TARGET").expect("set by cargo");
    fs::write(out.join("memory.x"), format!("MEMORY {{\n {}\n}}\n", memory(&target))).expect("a linker script");
    fs::write(out.join("example.rs"), example()).expect("the example");
    println!("cargo:rustc-link-search={}", out.display());
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
}
