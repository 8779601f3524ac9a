//! Paths and queries in which any printable text survives.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::Error;

/// All but the characters that RFC 3986 calls unreserved.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A path of the server, and what is wrong with the names in it.
#[derive(Debug, Clone)]
pub(crate) struct Path(Result<String, &'static str>);

impl Path {
    /// A path without names.
    pub(crate) fn fixed(path: &'static str) -> Self {
        Self(Ok(path.to_owned()))
    }

    /// Adds a word of the server's own.
    pub(crate) fn word(mut self, word: &'static str) -> Self {
        if let Ok(path) = &mut self.0 {
            path.push('/');
            path.push_str(word);
        }
        self
    }

    /// Adds a name that a caller chose. One that no path can carry leads to another place once a proxy has
    /// tidied the path up, so that it is never sent.
    pub(crate) fn name(mut self, field: &'static str, name: &str) -> Self {
        if let Ok(path) = &mut self.0 {
            if name.is_empty() || matches!(name, "." | "..") || name.contains('/') {
                self.0 = Err(field);
            } else {
                path.push('/');
                path.extend(utf8_percent_encode(name, ENCODED));
            }
        }
        self
    }

    pub(crate) fn text(&self) -> Result<&str, Error> {
        match &self.0 {
            Ok(path) => Ok(path),
            Err(field) => {
                let message = "must be a name other than \".\" and \"..\", without a \"/\".";
                Err(Error::invalid(field, message))
            }
        }
    }
}

/// Adds a parameter to a query.
pub(crate) fn add_parameter(query: &mut String, name: &str, value: &str) {
    query.push(if query.is_empty() { '?' } else { '&' });
    query.push_str(name);
    query.push('=');
    query.extend(utf8_percent_encode(value, ENCODED));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_whatever_it_holds() {
        let check = |name: &str, encoded: &str| {
            let path = Path::fixed("/quotas").name("user_id", name).word("usage");
            assert_eq!(path.text().unwrap(), format!("/quotas/{encoded}/usage"));
        };
        check("alice", "alice");
        check("api-calls_v1.2~x", "api-calls_v1.2~x");
        check("a b+c%2F", "a%20b%2Bc%252F");
        check("zoë?#&=\"'", "zo%C3%AB%3F%23%26%3D%22%27");
        check("...", "...");
        check("a\\b:c@d;e", "a%5Cb%3Ac%40d%3Be");
    }

    #[test]
    fn a_name_that_would_lead_elsewhere_is_not_sent() {
        for name in ["", ".", "..", "a/b", "/"] {
            let path = Path::fixed("/quotas").name("user_id", name).word("reset");
            let error = path.text().unwrap_err();
            assert!(error.to_string().starts_with("user_id must be"), "{error}");
        }
    }

    #[test]
    fn a_parameter_survives_a_query() {
        let mut query = String::new();
        add_parameter(&mut query, "resource", "a&b=c d+e");
        add_parameter(&mut query, "limit", "5");
        assert_eq!(query, "?resource=a%26b%3Dc%20d%2Be&limit=5");
    }
}
