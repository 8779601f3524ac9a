//! Tables for people.

use unicode_width::UnicodeWidthStr as _;

use super::say;

/// Prints rows under their titles, each column as wide as its widest cell on a terminal, where a character of Japanese
/// takes the room of two letters.
pub(super) fn print<const N: usize>(
    titles: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> anyhow::Result<()> {
    let titles = titles.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(titles).chain(rows).collect();
    for line in lines(&rows) {
        say(&line)?;
    }
    Ok(())
}

fn lines<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].width());
        widths.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.width())));
        let line = cells.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_letters_leave_the_columns_in_line() {
        let rows = [
            ["USER", "LIMIT"].map(str::to_owned),
            ["日本語", "5"].map(str::to_owned),
            ["zoë", "50"].map(str::to_owned),
        ];
        assert_eq!(lines(&rows), ["USER    LIMIT", "日本語  5", "zoë     50"]);
    }
}
