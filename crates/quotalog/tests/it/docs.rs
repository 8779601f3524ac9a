//! The pages for readers: their links lead somewhere, and translations show what the original shows.

use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The pages at the root and in `docs/`.
fn pages() -> Vec<PathBuf> {
    let folders = [
        ROOT.to_owned(),
        format!("{ROOT}/docs"),
        format!("{ROOT}/docs/adr"),
    ];
    let entries = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files = entries.map(|entry| entry.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|end| end == "md"))
        .collect()
}

/// What stands in a page between `start` and `end`.
fn between<'a>(page: &'a str, start: &str, end: char) -> Vec<&'a str> {
    let parts = page.split(start).skip(1);
    parts
        .filter_map(|part| Some(part.split_once(end)?.0))
        .collect()
}

#[test]
fn every_link_to_a_file_leads_to_one() {
    let mut links = 0;
    for file in pages() {
        let page = std::fs::read_to_string(&file).unwrap();
        for link in [between(&page, "](", ')'), between(&page, "src=\"", '"')].concat() {
            let (path, _anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let there = file.parent().unwrap().join(path);
            assert!(there.exists(), "{link} in {}", file.display());
            links += 1;
        }
    }
    assert!(links > 50, "{links}");
}

/// The blocks of code of a page, each with its language as its first line.
pub(crate) fn blocks(page: &str) -> Vec<&str> {
    let parts = page.split("\n```").skip(1);
    parts.step_by(2).collect()
}

#[test]
fn the_translations_of_the_readme_show_its_commands_and_answers() {
    let read = |name: &str| std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
    let original = read("README.md");
    let original = blocks(&original);
    for name in ["README.ja.md", "README.pt-br.md"] {
        let page = read(name);
        let shown = blocks(&page);
        assert!(shown.len() > 10, "{name}: {}", shown.len());
        for block in shown {
            assert!(original.contains(&block), "{name}: {block}");
        }
    }
}
