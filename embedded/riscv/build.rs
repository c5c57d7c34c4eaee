//! Gives the linker a memory layout: as much of the `virt` machine's memory as a small device has.

use std::{env, fs, path::PathBuf};

const MEMORY: &str = "\
MEMORY {
  FLASH : ORIGIN = 0x80000000, LENGTH = 256K
  RAM : ORIGIN = 0x80040000, LENGTH = 64K
}
REGION_ALIAS(\"REGION_TEXT\", FLASH);
REGION_ALIAS(\"REGION_RODATA\", FLASH);
REGION_ALIAS(\"REGION_DATA\", RAM);
REGION_ALIAS(\"REGION_BSS\", RAM);
REGION_ALIAS(\"REGION_HEAP\", RAM);
REGION_ALIAS(\"REGION_STACK\", RAM);
";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    fs::write(out.join("memory.x"), MEMORY).expect("a linker script");
    println!("cargo:rustc-link-search={}", out.display());
    println!("cargo:rustc-link-arg-bins=-Tmemory.x");
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
}
