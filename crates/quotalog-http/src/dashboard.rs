//! `GET /dashboard`: the pages for people, which use the public API as any client does.
//!
//! The files of `dashboard/` are a part of the program and for anyone to read; what they show comes with a token. They
//! load nothing from elsewhere, and the policy they come with would not let them.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{StatusCode, response};
use axum::response::Response;

use crate::problem::Problem;

/// What comes with every file. A form sends nothing by itself, so that a token that is typed before the script runs
/// cannot end in a URL; and no text becomes markup, since nothing here may make trusted types.
const FIELDS: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    // Kept by the browser, and asked for each time: a new version of the server is a new version of all files.
    (CACHE_CONTROL, "no-cache"),
];

/// A file, and the tag that changes with it.
struct File {
    /// Its path below `/dashboard/`; the page itself has none.
    path: &'static str,
    content_type: &'static str,
    content: &'static [u8],
    tag: String,
}

/// A file of `dashboard/` as the program holds it.
macro_rules! file {
    ($path:literal, $content_type:expr) => {
        file!($path, $path, $content_type)
    };
    ($path:literal, $name:literal, $content_type:expr) => {
        File::new(
            $path,
            $content_type,
            include_bytes!(concat!("../dashboard/", $name)),
        )
    };
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    vec![
        // It names all else relative to its own path, so that it works below a proxy's prefix too.
        file!("", "index.html", HTML),
        file!("api.js", SCRIPT),
        file!("app.js", SCRIPT),
        file!("chart.js", SCRIPT),
        file!("defaults.js", SCRIPT),
        file!("icon.svg", IMAGE),
        file!("kit.js", SCRIPT),
        file!("live.js", SCRIPT),
        file!("near.js", SCRIPT),
        file!("policy.js", SCRIPT),
        file!("quota.js", SCRIPT),
        file!("signin.js", SCRIPT),
        file!("style.css", STYLE),
        file!("text.js", SCRIPT),
        file!("text/en.js", SCRIPT),
        file!("text/ja.js", SCRIPT),
        file!("text/pt-BR.js", SCRIPT),
        file!("theme.js", SCRIPT),
        file!("tokens.js", SCRIPT),
        file!("user.js", SCRIPT),
        file!("vendor/htm.js", SCRIPT),
        file!("vendor/preact-hooks.js", SCRIPT),
        file!("vendor/preact.js", SCRIPT),
        file!("vendor/uplot.css", STYLE),
        file!("vendor/uplot.js", SCRIPT),
    ]
});

/// The page.
pub(crate) async fn page(headers: HeaderMap) -> Result<Response, Problem> {
    answer("", &headers)
}

/// What the page loads.
pub(crate) async fn file(
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path(path) = path.map_err(|_| Problem::no_such_route())?;
    answer(&path, &headers)
}

fn answer(path: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let file = FILES.iter().find(|file| file.path == path);
    let file = file.ok_or_else(Problem::no_such_route)?;
    let mut answer = response::Builder::new().header(ETAG, &file.tag);
    for (name, value) in FIELDS {
        answer = answer.header(name, HeaderValue::from_static(value));
    }
    let answer = if file.is_held_by(headers) {
        answer.status(StatusCode::NOT_MODIFIED).body(Body::empty())
    } else {
        answer
            .header(CONTENT_TYPE, file.content_type)
            .body(Body::from(file.content))
    };
    Ok(answer.expect("the fields are visible ASCII"))
}

impl File {
    fn new(path: &'static str, content_type: &'static str, content: &'static [u8]) -> Self {
        // It guards against nobody, so a short hash will do, and two nodes of one version agree on it.
        let mut hasher = DefaultHasher::new();
        hasher.write(content);
        Self {
            path,
            content_type,
            content,
            tag: format!("\"{:016x}\"", hasher.finish()),
        }
    }

    /// Whether the client has it already (RFC 9110 section 13.1.2, where a weak tag matches too).
    fn is_held_by(&self, headers: &HeaderMap) -> bool {
        let lines = headers.get_all(IF_NONE_MATCH).iter();
        let mut tags = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','))
            .map(str::trim);
        tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.tag)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Everything in the folder that is neither a licence nor a read-me.
    fn on_disk(folder: &Path, below: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{below}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                on_disk(&entry.path(), &format!("{name}/"), found);
            } else if !name.ends_with(".LICENSE") && !name.ends_with("README.md") {
                found.insert(name);
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_served_and_together_they_are_small() {
        let mut found = BTreeSet::new();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/dashboard");
        on_disk(Path::new(folder), "", &mut found);
        let served = FILES.iter().map(|file| match file.path {
            "" => "index.html".to_owned(),
            path => path.to_owned(),
        });
        assert_eq!(served.collect::<BTreeSet<_>>(), found);
        let bytes: usize = FILES.iter().map(|file| file.content.len()).sum();
        assert!(bytes < 300_000, "{bytes}");
    }

    #[test]
    fn nothing_of_ours_makes_markup_of_text_or_names_another_host() {
        let ours = FILES
            .iter()
            .filter(|file| !file.path.starts_with("vendor/"));
        for file in ours {
            let text = std::str::from_utf8(file.content).unwrap();
            for banned in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "https://",
                "<style",
                "style=\"",
            ] {
                assert!(!text.contains(banned), "{}: {banned}", file.path);
            }
        }
    }
}
