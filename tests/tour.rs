//! The tour of the code names files and items in them: all of them must exist.

use std::{fs, path::Path};

/// The parts of `text` between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_file_and_name_in_the_tour_exists() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tour = fs::read_to_string(folder.join("docs/tour.md")).unwrap();
    assert!(tour.lines().count() <= 150);
    let mut rows = 0;
    for row in tour.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let [_, file, names] = cells[..] else { panic!("not three cells: {row}") };
        let [file] = quoted(file)[..] else { panic!("not one file: {row}") };
        let text = fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let names = quoted(names);
        assert!(!names.is_empty(), "no names: {row}");
        let words: Vec<_> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for name in names {
            assert!(words.contains(&name), "{file} does not contain {name}");
        }
        rows += 1;
    }
    assert!(rows > 30);
}
