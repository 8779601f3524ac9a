//! The bearer token of a request (RFC 6750 section 2.1).

use quotalog_auth::Token;

/// The token of the one `Authorization` line there must be. The scheme's name matches in any letter case.
pub(crate) fn bearer_token<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Token> {
    let mut lines = lines.into_iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let is_visible = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    let line = str::from_utf8(line).ok()?;
    let (scheme, token) = line.split_once(' ')?;
    let token = token.trim_matches(' ');
    let sound = !token.is_empty() && line.as_bytes().iter().all(is_visible);
    (sound && scheme.eq_ignore_ascii_case("Bearer")).then(|| Token::presented(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_of(lines: &[&[u8]]) -> Option<String> {
        let token = bearer_token(lines.iter().copied());
        token.map(|token| token.reveal().to_owned())
    }

    #[test]
    fn the_scheme_is_read_in_any_letter_case_and_the_token_exactly() {
        for line in [
            "Bearer ql_Ab",
            "bearer ql_Ab",
            "BEARER ql_Ab",
            "Bearer  ql_Ab",
        ] {
            assert_eq!(
                token_of(&[line.as_bytes()]).as_deref(),
                Some("ql_Ab"),
                "{line}"
            );
        }
    }

    #[test]
    fn anything_else_is_no_token() {
        for line in [
            "Bearer",
            "Bearer ",
            "Basic ql_Ab",
            "Token ql_Ab",
            "ql_Ab",
            "",
            "Bearer\tql_Ab",
        ] {
            assert_eq!(token_of(&[line.as_bytes()]), None, "{line}");
        }
        assert_eq!(token_of(&[]), None);
        assert_eq!(token_of(&[b"Bearer ql_Ab", b"Bearer ql_Ab"]), None);
        assert_eq!(token_of(&["Bearer ql_\u{e9}".as_bytes()]), None);
        assert_eq!(token_of(&[b"Bearer ql_\xff"]), None);
    }
}
