//! Ids that are hard to hand on.

/// Ids of printable text that every way to the server must keep to the byte.
pub(crate) fn printable() -> Vec<String> {
    let every: String = (' '..='~').filter(|character| *character != '/').collect();
    let rest = [
        " a ",
        "%2F",
        "%252e",
        "..a",
        "a+b",
        "zoë",
        "日本語",
        "\u{202e}x",
        "👩‍👩‍👧",
    ];
    let rest = rest.into_iter().map(str::to_owned);
    std::iter::once(every).chain(rest).collect()
}
