//! `GET /dashboard`: the pages for people, which use the public API as any client does.
//!
//! The files of `dashboard/` are a part of the program and for anyone to read; what they show comes with a token. They
//! load nothing from elsewhere, and the policy they come with would not let them.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::HeaderMap;
use axum::response::Response;

use crate::answer::Unchanging;
use crate::extract::ids::RawName;
use crate::openapi::parameters::{FilePath, FolderPath};
use crate::problem::Problem;

/// A form sends nothing by itself, so that a token that is typed before the script runs cannot end in a URL; and no text
/// becomes markup, since nothing here may make trusted types.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// A file of `dashboard/` as the program holds it, and its path there.
macro_rules! file {
    ($path:literal, $content_type:expr) => {
        (
            $path,
            Unchanging::new(
                $content_type,
                include_bytes!(concat!("../../dashboard/", $path)),
            ),
        )
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// It names all else relative to its own path, so that it works below a proxy's prefix too.
static PAGE: (&str, Unchanging) = file!("index.html", "text/html; charset=utf-8");

static FILES: [(&str, Unchanging); 24] = [
    file!("api.js", SCRIPT),
    file!("app.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("defaults.js", SCRIPT),
    file!("icon.svg", "image/svg+xml"),
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
];

/// Shows the dashboard, which works with the token that is entered there.
#[utoipa::path(
    get,
    path = "/dashboard",
    operation_id = "dashboard",
    tag = "Operation",
    security(()),
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html", headers(("ETag"), ("Cache-Control"))),
        (status = 304, description = "It is still the same.", headers(("ETag"), ("Cache-Control"))),
    )
)]
pub(crate) async fn page(headers: HeaderMap) -> Response {
    let (_, page) = &PAGE;
    page.answer_under(POLICY, &headers)
}

/// Answers a file that the dashboard needs.
#[utoipa::path(
    get,
    path = "/dashboard/{file}",
    operation_id = "dashboardFile",
    tag = "Operation",
    security(()),
    params(FilePath),
    responses(
        (
            status = 200,
            description = "The file.",
            content((String = "text/javascript"), (String = "text/css"), (String = "image/svg+xml")),
            headers(("ETag"), ("Cache-Control"))
        ),
        (status = 304, description = "It is still the same.", headers(("ETag"), ("Cache-Control"))),
    )
)]
pub(crate) async fn file(name: RawName, headers: HeaderMap) -> Result<Response, Problem> {
    answer(name.as_str(), &headers)
}

/// Answers a file of the dashboard's texts or libraries.
#[utoipa::path(
    get,
    path = "/dashboard/{folder}/{file}",
    operation_id = "dashboardFileOfFolder",
    tag = "Operation",
    security(()),
    params(FolderPath),
    responses(
        (
            status = 200,
            description = "The file.",
            content((String = "text/javascript"), (String = "text/css")),
            headers(("ETag"), ("Cache-Control"))
        ),
        (status = 304, description = "It is still the same.", headers(("ETag"), ("Cache-Control"))),
    )
)]
pub(crate) async fn file_of_folder(
    names: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path((folder, file)) = names.map_err(|_| Problem::no_such_route())?;
    answer(&format!("{folder}/{file}"), &headers)
}

fn answer(path: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let mut files = FILES.iter();
    let (_, file) = files
        .find(|(name, _)| *name == path)
        .ok_or_else(Problem::no_such_route)?;
    Ok(file.answer_under(POLICY, headers))
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
        let all = || FILES.iter().chain([&PAGE]);
        let served = all().map(|(path, _)| (*path).to_owned());
        assert_eq!(served.collect::<BTreeSet<_>>(), found);
        let bytes: usize = all().map(|(_, file)| file.bytes.len()).sum();
        assert!(bytes < 300_000, "{bytes}");
    }

    #[test]
    fn nothing_of_ours_makes_markup_of_text_or_names_another_host() {
        let all = FILES.iter().chain([&PAGE]);
        for (path, file) in all.filter(|(path, _)| !path.starts_with("vendor/")) {
            let text = std::str::from_utf8(file.bytes).unwrap();
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
                assert!(!text.contains(banned), "{path}: {banned}");
            }
        }
    }
}
