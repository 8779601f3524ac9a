//! The one reading of a path: every segment percent-decoded once, nothing normalised.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Why a path is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathFault {
    /// A `%` without two hexadecimal digits, or bytes that are not UTF-8.
    Malformed,
    /// A segment that holds a `/` once decoded: no id does, and no route has one.
    SlashInSegment,
    /// A segment of no bytes, also at the end: no id is empty, and no route has one.
    EmptySegment,
}

/// Percent-decodes `path`. Since no decoded segment holds a `/`, the segments can still be told
/// apart.
pub(crate) fn decode(path: &str) -> Result<Cow<'_, str>, PathFault> {
    let decoded = decode_text(path)?;
    if slashes(&decoded).count() != slashes(path).count() {
        return Err(PathFault::SlashInSegment);
    }
    let doubled = path.as_bytes().windows(2).any(|pair| pair == b"//");
    if doubled || path.len() > 1 && path.ends_with('/') {
        return Err(PathFault::EmptySegment);
    }
    Ok(decoded)
}

/// A segment of a path that begins with a `/`; the first is 0. Empty if there is none.
pub(crate) fn segment(path: &str, position: usize) -> &str {
    let mut slashes = slashes(path).skip(position);
    let Some(slash) = slashes.next() else {
        return "";
    };
    let end = slashes.next().unwrap_or(path.len());
    path.get(slash + 1..end).unwrap_or_default()
}

fn decode_text(path: &str) -> Result<Cow<'_, str>, PathFault> {
    if !path.contains('%') {
        return Ok(Cow::Borrowed(path));
    }
    if !percent_signs_are_sound(path) {
        return Err(PathFault::Malformed);
    }
    percent_decode_str(path)
        .decode_utf8()
        .map_err(|_not_utf8| PathFault::Malformed)
}

/// Whether two hexadecimal digits follow every `%`.
pub(crate) fn percent_signs_are_sound(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        let mut bytes = after.bytes();
        let mut is_hex_digit = || bytes.next().is_some_and(|byte| byte.is_ascii_hexdigit());
        is_hex_digit() && is_hex_digit()
    })
}

/// Where the slashes are. Byte by byte, since paths are too short for a search that has to be set up.
fn slashes(text: &str) -> impl Iterator<Item = usize> {
    let bytes = text.bytes().enumerate();
    bytes.filter_map(|(position, byte)| (byte == b'/').then_some(position))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_what_stands_between_two_slashes() {
        for (path, segments) in [
            ("/", ["", "", ""]),
            ("/healthz", ["healthz", "", ""]),
            ("/quotas/a b/\u{65e5}", ["quotas", "a b", "\u{65e5}"]),
            ("/quotas/a/b/usage", ["quotas", "a", "b"]),
            ("*", ["", "", ""]),
        ] {
            let found = [0, 1, 2].map(|position| segment(path, position));
            assert_eq!(found, segments, "{path}");
        }
    }

    #[test]
    fn a_path_is_decoded_once_and_never_tidied() {
        let check = |path: &str, decoded: &str| assert_eq!(decode(path).as_deref(), Ok(decoded));
        check("/quotas/u/r", "/quotas/u/r");
        check("/quotas/a+b/r", "/quotas/a+b/r");
        check("/quotas/a%2Bb/a%20b", "/quotas/a+b/a b");
        check("/quotas/%2541/50%25off", "/quotas/%41/50%off");
        check("/quotas/o'neil%26co/%e6%97%A5", "/quotas/o'neil&co/日");
        check("/quotas/%2e%2E/../.", "/quotas/../../.");
        check("/", "/");
        check("*", "*");
        check("", "");
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let check = |path: &str, fault: PathFault| assert_eq!(decode(path), Err(fault), "{path}");
        for path in [
            "/%", "/%2", "/a%ZZ", "/%%41", "/%4/1", "/%FF", "/%e6%97", "/%c3/%a9", "/%+1",
        ] {
            check(path, PathFault::Malformed);
        }
        check("/quotas/..%2F..%2Fetc/r", PathFault::SlashInSegment);
        check("/quotas/a%2fb/r", PathFault::SlashInSegment);
        for path in [
            "//",
            "//quotas/u",
            "/quotas//r",
            "/quotas/u/",
            "/quotas/%41//",
        ] {
            check(path, PathFault::EmptySegment);
        }
        check("/quotas//%FF", PathFault::Malformed);
    }
}
