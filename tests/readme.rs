//! README and the guide as part of the package: the files they link to are packaged, and the linked headings exist.

use std::collections::HashSet;
use std::fs;
use std::process::Command;

const DIR: &str = env!("CARGO_MANIFEST_DIR");

/// The targets of a page's links: a file of the package, and a heading in it, or an empty string.
fn links(page: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(format!("{DIR}/{page}")).unwrap();
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.filter(|link| !link.starts_with("https://"));
    let parts = links.map(|link| link.split_once('#').unwrap_or((link, "")));
    let file = |file: &str| match file.strip_prefix("../") {
        _ if file.is_empty() => page.to_string(),
        Some(file) => file.to_string(),
        None if folder.is_empty() => file.to_string(),
        None => format!("{folder}/{file}"),
    };
    parts.map(|(name, heading)| (file(name), heading.to_string())).collect()
}

/// The headings of a page, in the form that links use.
fn headings(page: &str) -> HashSet<String> {
    let text = fs::read_to_string(format!("{DIR}/{page}")).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    headings.map(|line| line.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn every_file_that_readme_and_the_guide_link_to_is_packaged() {
    let list = Command::new(env!("CARGO"))
        .args(["package", "--list", "--allow-dirty", "--offline"])
        .current_dir(DIR)
        .output()
        .expect("cargo runs the tests, so it is installed");
    let list = String::from_utf8(list.stdout).unwrap();
    for (page, linked) in [("README.md", "docs/charts/headline.svg"), ("docs/guide.md", "docs/charts/queue.svg")] {
        let links = links(page);
        assert!(links.iter().any(|(file, _)| file == linked), "{links:?}");
        for (file, _) in links {
            assert!(list.lines().any(|packaged| packaged == file), "{page} links to {file}, which is not packaged");
        }
    }
}

#[test]
fn every_heading_that_readme_and_the_guide_link_to_exists() {
    for page in ["README.md", "docs/guide.md"] {
        let links = links(page);
        let links: Vec<_> = links.iter().filter(|(_, heading)| !heading.is_empty()).collect();
        assert!(!links.is_empty());
        for (file, heading) in links {
            assert!(headings(file).contains(heading), "{page} links to #{heading}, which does not exist in {file}");
        }
    }
}
