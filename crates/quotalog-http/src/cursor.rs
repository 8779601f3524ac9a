//! Where a list goes on: an opaque text that is bound to its list.
//!
//! A cursor is no secret and grants nothing. What it names is only a place in a list that the
//! caller may read anyway, so it is not signed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The first version of the text inside. A later one must be another, so that old cursors are told
/// apart.
const VERSION: &str = "1";

/// No id and no name of a list holds this character.
const SEPARATOR: char = '/';

/// Makes the cursor that goes on after `last` in `list`: its name and what it is filtered by.
pub(crate) fn encode(list: &[&str], last: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}{last}", prefix(list)))
}

/// Reads the entry after which `list` goes on; `None` if the cursor is broken or of another list.
pub(crate) fn decode(list: &[&str], cursor: &str) -> Option<String> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    text.strip_prefix(&prefix(list)).map(str::to_owned)
}

fn prefix(list: &[&str]) -> String {
    let mut prefix = String::from(VERSION);
    prefix.push(SEPARATOR);
    for part in list {
        prefix.push_str(part);
        prefix.push(SEPARATOR);
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_goes_on_in_its_own_list_alone() {
        let cursor = encode(&["quotas", "alice"], "日本語 ?&");
        assert_eq!(
            decode(&["quotas", "alice"], &cursor).as_deref(),
            Some("日本語 ?&")
        );
        assert_eq!(decode(&["quotas", "bob"], &cursor), None);
        assert_eq!(decode(&["tokens"], &cursor), None);
        assert!(
            cursor
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        );
    }

    #[test]
    fn a_broken_cursor_is_none() {
        let sound = encode(&["tokens"], "7");
        for cursor in [
            "",
            "x",
            "====",
            "Zm9v",
            "\u{e9}",
            &sound[1..],
            &format!("{sound}="),
        ] {
            assert_eq!(decode(&["tokens"], cursor), None, "{cursor:?}");
        }
    }
}
