//! README where only the package is seen: what it links to is packaged.

use std::fs;
use std::process::Command;

#[test]
fn the_package_has_every_file_that_readme_links_to() {
    let dir = env!("CARGO_MANIFEST_DIR");
    let list = Command::new(env!("CARGO"))
        .args(["package", "--list", "--allow-dirty", "--offline"])
        .current_dir(dir)
        .output()
        .expect("cargo is there, because it runs the tests");
    let list = String::from_utf8(list.stdout).unwrap();
    let readme = fs::read_to_string(format!("{dir}/README.md")).unwrap();
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let files: Vec<_> = links.filter(|link| !link.is_empty() && !link.starts_with("https://")).collect();
    assert!(files.contains(&"docs/charts/headline.svg"), "{files:?}");
    for file in files {
        assert!(list.lines().any(|packaged| packaged == file), "{file} is not packaged");
    }
}
