//! The files of `quotalog export` and `quotalog import`: CSV and JSON lines, read and written through the same columns.
//!
//! What is read is judged here by the domain's rules, line by line; nothing here knows of a database.

use std::io::{self, BufRead as _, BufReader, Cursor, Read, Write};

use quotalog_domain::{Limit, LimitError, Pair, Resource, Timestamp, UserId, Window};
use quotalog_front::instant;
use quotalog_record::import::{Entry, Subject, Terms, Wanted};
use quotalog_record::transfer::{DEFAULTS, POLICIES, Row, Table, USAGE, Value};
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// The longest line; all that may stand there is far shorter.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// What Excel writes before UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

const USER_ID: &str = "user_id";
const RESOURCE: &str = "resource";
const WINDOW: &str = "window";
const LIMIT_COUNT: &str = "limit_count";
const WINDOW_START: &str = "window_start";
const USAGE_UNITS: &str = "usage";

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated values with a first line that names the columns.
    Csv,
    /// A JSON object on each line.
    Jsonl,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    /// Which one; the first is 1.
    pub(crate) line: u64,
    /// The field and what is wrong with it, or what is wrong with the whole line.
    pub(crate) text: String,
}

/// What a line says in one of its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    Missing,
    Text(String),
    /// A number as it is written, which need not be one.
    Number(String),
    NotUtf8,
    /// Any other kind of JSON.
    Other,
}

/// The columns of a file.
pub(crate) const fn columns(subject: Subject) -> &'static [&'static str] {
    match subject {
        Subject::Policies => &[USER_ID, RESOURCE, WINDOW, LIMIT_COUNT],
        Subject::Defaults => &[RESOURCE, WINDOW, LIMIT_COUNT],
        Subject::Usage => &[USER_ID, RESOURCE, WINDOW_START, USAGE_UNITS],
    }
}

/// The columns that name what a line is about.
pub(crate) fn key(subject: Subject) -> &'static str {
    match subject {
        Subject::Policies => "user_id and resource",
        Subject::Defaults => "resource",
        Subject::Usage => "user_id, resource and window_start",
    }
}

/// Where the rows are.
pub(crate) const fn table(subject: Subject) -> &'static Table {
    match subject {
        Subject::Policies => &POLICIES,
        Subject::Defaults => &DEFAULTS,
        Subject::Usage => &USAGE,
    }
}

fn is_number(column: &str) -> bool {
    matches!(column, LIMIT_COUNT | USAGE_UNITS)
}

// --- Cells that a spreadsheet would run -------------------------------------------------------------------------

/// What a spreadsheet may take for the beginning of a formula (OWASP, "CSV Injection"), full-width forms too.
fn is_run(character: char) -> bool {
    matches!(
        character,
        '=' | '+'
            | '-'
            | '@'
            | '\t'
            | '\r'
            | '\n'
            | '\u{ff1d}'
            | '\u{ff0b}'
            | '\u{ff0d}'
            | '\u{ff20}'
    )
}

/// Whether a text would be taken for one that was prefixed.
fn looks_prefixed(text: &str) -> bool {
    let rest = text.strip_prefix('\'').and_then(|rest| rest.chars().next());
    rest.is_some_and(|next| next == '\'' || is_run(next))
}

/// A text as a cell: with a `'` before it where a spreadsheet would run it, and where it looks as if it had one.
fn to_cell(text: &str) -> String {
    if text.starts_with(is_run) || looks_prefixed(text) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

/// The text of a cell.
fn from_cell(cell: &str) -> &str {
    if looks_prefixed(cell) {
        &cell[1..]
    } else {
        cell
    }
}

// --- Writing ----------------------------------------------------------------------------------------------------

/// Writes rows.
pub(crate) enum Writer<W: Write> {
    Csv(Box<csv::Writer<W>>, Subject),
    Jsonl(W, Subject),
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub(crate) fn begin(output: W, format: Format, subject: Subject) -> io::Result<Self> {
        match format {
            Format::Csv => {
                let mut output = csv::Writer::from_writer(output);
                output.write_record(columns(subject))?;
                Ok(Self::Csv(Box::new(output), subject))
            }
            Format::Jsonl => Ok(Self::Jsonl(output, subject)),
        }
    }

    /// Writes a row of the subject's table.
    pub(crate) fn write(&mut self, row: &Row) -> io::Result<()> {
        match self {
            Self::Csv(output, subject) => {
                let cells = values(row, *subject).map(|(_, value)| to_cell(&plain(value)));
                Ok(output.write_record(cells)?)
            }
            Self::Jsonl(output, subject) => {
                let mut line = String::from("{");
                for (name, value) in values(row, *subject) {
                    let text = plain(value);
                    let value = if is_number(name) {
                        text
                    } else {
                        serde_json::Value::from(text).to_string()
                    };
                    if line.len() > 1 {
                        line.push(',');
                    }
                    line.push_str(&format!("\"{name}\":{value}"));
                }
                line.push_str("}\n");
                output.write_all(line.as_bytes())
            }
        }
    }

    /// Ends the file.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Self::Csv(mut output, _) => {
                output.flush()?;
                output.into_inner().map_err(|error| error.into_error())
            }
            Self::Jsonl(mut output, _) => {
                output.flush()?;
                Ok(output)
            }
        }
    }
}

/// The values that are written, each with its column.
fn values(row: &Row, subject: Subject) -> impl Iterator<Item = (&'static str, &Value)> {
    let held = table(subject).columns.iter().zip(row.values());
    let held = held.map(|(column, value)| (column.name, value));
    held.filter(move |(name, _)| columns(subject).contains(name))
}

fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Integer(integer) => integer.to_string(),
        Value::Instant(at) => instant::format(*at),
        // No column of ours holds any.
        Value::Null | Value::Bytes(_) => String::new(),
    }
}

// --- Reading ----------------------------------------------------------------------------------------------------

/// The bytes after a byte-order mark, if there is one, and the end of a line after the last one.
type Input<R> = BufReader<io::Chain<io::Chain<Cursor<Vec<u8>>, R>, &'static [u8]>>;

/// Gives no more than a line may have, until a line was read: what never ends is not kept in memory.
struct Bounded<R> {
    input: R,
    left_bytes: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.by_ref().take(self.left_bytes).read(buffer)?;
        self.left_bytes -= u64::try_from(len).unwrap_or(u64::MAX);
        if len == 0 && self.left_bytes == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(len)
    }
}

/// Reads entries.
pub(crate) struct Reader<R: Read> {
    subject: Subject,
    lines: Lines<R>,
}

enum Lines<R: Read> {
    Csv {
        input: Box<csv::Reader<Bounded<Input<R>>>>,
        /// The place of each column in a line; none before the first line was read.
        places: Option<Vec<usize>>,
        record: csv::ByteRecord,
    },
    Jsonl {
        input: Input<R>,
        line: u64,
        read_bytes: u64,
    },
    /// Nothing more can be understood.
    Over,
}

/// What a line is.
type Judged = Result<Entry, Vec<Fault>>;

impl<R: Read> Reader<R> {
    pub(crate) fn new(mut input: R, format: Format, subject: Subject) -> io::Result<Self> {
        let mut first = Vec::new();
        input.by_ref().take(3).read_to_end(&mut first)?;
        if first == BYTE_ORDER_MARK {
            first.clear();
        }
        let end: &[u8] = b"\n";
        let input = BufReader::new(Cursor::new(first).chain(input).chain(end));
        let lines = match format {
            Format::Csv => Lines::Csv {
                input: Box::new(
                    csv::ReaderBuilder::new()
                        .has_headers(false)
                        .flexible(true)
                        // So that lines are counted as editors count them; of the ends that Windows writes, the
                        // rest is taken away where it is read.
                        .terminator(csv::Terminator::Any(b'\n'))
                        .from_reader(Bounded {
                            input,
                            left_bytes: LINE_BYTES_MAX,
                        }),
                ),
                places: None,
                record: csv::ByteRecord::new(),
            },
            Format::Jsonl => Lines::Jsonl {
                input,
                line: 0,
                read_bytes: 0,
            },
        };
        Ok(Self { subject, lines })
    }

    /// How many bytes were read.
    pub(crate) fn read_bytes(&self) -> u64 {
        match &self.lines {
            Lines::Csv { input, .. } => input.position().byte(),
            Lines::Jsonl { read_bytes, .. } => *read_bytes,
            Lines::Over => 0,
        }
    }

    /// The next line; `None` after the last, and after one without which the rest has no meaning.
    pub(crate) fn next(&mut self) -> io::Result<Option<Judged>> {
        let subject = self.subject;
        match &mut self.lines {
            Lines::Csv {
                input,
                places,
                record,
            } => {
                if places.is_none() {
                    let named = match next_record(input, record)? {
                        Some(Ok(line)) => header(subject, line, record),
                        Some(Err(fault)) => Err(vec![fault]),
                        None => Err(vec![fault(1, no_header(subject))]),
                    };
                    match named {
                        Ok(named) => *places = Some(named),
                        Err(faults) => {
                            self.lines = Lines::Over;
                            return Ok(Some(Err(faults)));
                        }
                    }
                }
                let line = match next_record(input, record)? {
                    Some(Ok(line)) => line,
                    Some(Err(fault)) => {
                        self.lines = Lines::Over;
                        return Ok(Some(Err(vec![fault])));
                    }
                    None => return Ok(None),
                };
                let places = places.as_deref().unwrap_or_default();
                Ok(Some(csv_line(subject, line, places, record)))
            }
            Lines::Jsonl {
                input,
                line,
                read_bytes,
            } => loop {
                let Some(text) = next_line(input, read_bytes)? else {
                    return Ok(None);
                };
                *line += 1;
                let judged = match text {
                    Ok(text) if text.trim_ascii().is_empty() => continue,
                    Ok(text) => json_line(subject, *line, &text),
                    Err(text) => Err(vec![fault(*line, text)]),
                };
                return Ok(Some(judged));
            },
            Lines::Over => Ok(None),
        }
    }
}

fn fault(line: u64, text: impl Into<String>) -> Fault {
    let text = text.into();
    Fault { line, text }
}

fn no_header(subject: Subject) -> String {
    let columns = columns(subject).join(",");
    format!("there is no line that names the columns: {columns}")
}

/// Reads a line that is not empty, and tells which one it is, or that it is too long; `None` at the end.
fn next_record<R: Read>(
    input: &mut csv::Reader<Bounded<Input<R>>>,
    record: &mut csv::ByteRecord,
) -> io::Result<Option<Result<u64, Fault>>> {
    loop {
        input.get_mut().left_bytes = LINE_BYTES_MAX;
        let line = input.position().line();
        match input.read_byte_record(record) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(_) if input.get_ref().left_bytes == 0 => {
                let text =
                    format!("the line is longer than {LINE_BYTES_MAX} bytes, or a quote is open.");
                return Ok(Some(Err(fault(line, text))));
            }
            Err(error) => return Err(error.into()),
        }
        let text = record.as_slice();
        if text == b"\r" || text.is_empty() && record.len() == 1 {
            continue;
        }
        // Empty lines before it were counted as its beginning, so it is told by its end, where it has one line.
        return Ok(Some(Ok(if text.contains(&b'\n') {
            record.position().map_or(0, csv::Position::line)
        } else {
            input.position().line().saturating_sub(1)
        })));
    }
}

/// A cell, without what Windows writes before the end of a line.
fn bytes(record: &csv::ByteRecord, place: usize) -> &[u8] {
    let cell = record.get(place).unwrap_or_default();
    let is_last = place + 1 == record.len();
    cell.strip_suffix(b"\r").filter(|_| is_last).unwrap_or(cell)
}

/// The place of each column.
fn header(subject: Subject, line: u64, record: &csv::ByteRecord) -> Result<Vec<usize>, Vec<Fault>> {
    let known = columns(subject);
    if record
        .iter()
        .next()
        .is_some_and(|first| first.starts_with(&[0xff, 0xfe]))
    {
        return Err(vec![fault(line, "the file is UTF-16; save it as UTF-8.")]);
    }
    let cells = (0..record.len()).map(|place| bytes(record, place));
    let names: Vec<_> = cells.map(String::from_utf8_lossy).collect();
    let mut faults = Vec::new();
    for (place, name) in names.iter().enumerate() {
        if !known.contains(&&**name) {
            let known = known.join(",");
            let text = format!("the column {name:?} is unknown; the columns are {known}");
            faults.push(fault(line, text));
        } else if names[..place].contains(name) {
            faults.push(fault(line, format!("the column {name} is there twice.")));
        }
    }
    let mut places = Vec::with_capacity(known.len());
    for column in known {
        match names.iter().position(|name| name == column) {
            Some(place) => places.push(place),
            None => faults.push(fault(line, format!("the column {column} is missing."))),
        }
    }
    if faults.is_empty() {
        Ok(places)
    } else {
        Err(faults)
    }
}

fn csv_line(subject: Subject, line: u64, places: &[usize], record: &csv::ByteRecord) -> Judged {
    let (found, known) = (record.len(), places.len());
    if found != known {
        let text = format!("there are {found} fields, and {known} columns.");
        return Err(vec![fault(line, text)]);
    }
    let cells =
        columns(subject).iter().zip(places).map(|(column, place)| {
            match std::str::from_utf8(bytes(record, *place)) {
                Ok(text) if is_number(column) => Cell::Number(text.to_owned()),
                Ok(text) => Cell::Text(from_cell(text).to_owned()),
                Err(_) => Cell::NotUtf8,
            }
        });
    judge(subject, line, &cells.collect::<Vec<_>>())
}

/// A line without its end, or what is wrong with it; `None` at the end.
fn next_line<R: Read>(
    input: &mut Input<R>,
    read_bytes: &mut u64,
) -> io::Result<Option<Result<Vec<u8>, String>>> {
    let mut line = Vec::new();
    let mut part = input.by_ref().take(LINE_BYTES_MAX);
    let mut len = part.read_until(b'\n', &mut line)?;
    *read_bytes += u64::try_from(len).unwrap_or(u64::MAX);
    if len == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some(Ok(line)));
    }
    if line.len() < usize::try_from(LINE_BYTES_MAX).unwrap_or(usize::MAX) {
        return Ok(Some(Ok(line)));
    }
    // The rest of it is passed by, without being kept.
    while len > 0 && line.last() != Some(&b'\n') {
        line.clear();
        let mut part = input.by_ref().take(LINE_BYTES_MAX);
        len = part.read_until(b'\n', &mut line)?;
        *read_bytes += u64::try_from(len).unwrap_or(u64::MAX);
    }
    let text = format!("the line is longer than {LINE_BYTES_MAX} bytes.");
    Ok(Some(Err(text)))
}

fn json_line(subject: Subject, line: u64, bytes: &[u8]) -> Judged {
    let one = |text: String| Err(vec![fault(line, text)]);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return one("the line is not UTF-8.".to_owned());
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = json.deserialize_map(Members);
    let members = match read.and_then(|members| json.end().map(|()| members)) {
        Ok(members) => members,
        Err(error) => {
            // Another kind of JSON has no place where it is wrong.
            return one(match error.column() {
                0 => "the line is no JSON object.".to_owned(),
                column => format!("the line is no JSON object (column {column})."),
            });
        }
    };
    let known = columns(subject);
    let mut faults = Vec::new();
    let mut cells = vec![Cell::Missing; known.len()];
    for (name, value) in members {
        match known.iter().position(|column| *column == name) {
            Some(at) if cells[at] == Cell::Missing => cells[at] = cell(&value),
            Some(_) => faults.push(fault(line, format!("{name} is there twice."))),
            None => {
                let known = known.join(", ");
                let text = format!("the member {name:?} is unknown; the members are {known}");
                faults.push(fault(line, text));
            }
        }
    }
    match judge(subject, line, &cells) {
        Ok(entry) if faults.is_empty() => Ok(entry),
        Ok(_) => Err(faults),
        Err(more) => {
            faults.extend(more);
            Err(faults)
        }
    }
}

/// A value as it is written, so that no number loses anything.
fn cell(value: &RawValue) -> Cell {
    let text = value.get();
    if text.starts_with('"') {
        return serde_json::from_str(text).map_or(Cell::Other, Cell::Text);
    }
    if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return Cell::Number(text.to_owned());
    }
    Cell::Other
}

/// The members of an object in their order, also those that are there twice.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, Box<RawValue>)>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = object.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

// --- Judging ----------------------------------------------------------------------------------------------------

/// The cells of a line, in the order of the columns, and what is wrong with them.
struct Judge<'c> {
    subject: Subject,
    cells: &'c [Cell],
    line: u64,
    faults: Vec<Fault>,
}

/// All faults of a line are told at once.
fn judge(subject: Subject, line: u64, cells: &[Cell]) -> Judged {
    let mut judge = Judge {
        subject,
        cells,
        line,
        faults: Vec::new(),
    };
    match judge.wanted() {
        Some(wanted) => Ok(Entry { line, wanted }),
        None => Err(judge.faults),
    }
}

impl Judge<'_> {
    fn wanted(&mut self) -> Option<Wanted> {
        match self.subject {
            Subject::Policies => {
                let (pair, terms) = (self.pair(), self.terms());
                Some(Wanted::Policy {
                    pair: pair?,
                    terms: terms?,
                })
            }
            Subject::Defaults => {
                let (resource, terms) = (self.resource(), self.terms());
                Some(Wanted::Default {
                    resource: resource?,
                    terms: terms?,
                })
            }
            Subject::Usage => {
                let (pair, window_start) = (self.pair(), self.window_start());
                let units = self.integer(USAGE_UNITS, |units| match units {
                    Ok(units) => Ok(units.unsigned_abs()),
                    Err(true) => Err(format!("usage must not exceed {}.", i64::MAX)),
                    Err(false) => Err("usage must be an integer of 0 or more.".to_owned()),
                });
                Some(Wanted::Usage {
                    pair: pair?,
                    window_start: window_start?,
                    units: units?,
                })
            }
        }
    }

    fn pair(&mut self) -> Option<Pair> {
        let user_id = self.text(USER_ID, |text| {
            UserId::try_from(text).map_err(|error| format!("{USER_ID} {error}"))
        });
        let resource = self.resource();
        Some(Pair {
            user_id: user_id?,
            resource: resource?,
        })
    }

    fn resource(&mut self) -> Option<Resource> {
        self.text(RESOURCE, |text| {
            Resource::try_from(text).map_err(|error| format!("{RESOURCE} {error}"))
        })
    }

    fn terms(&mut self) -> Option<Terms> {
        let window = self.text(WINDOW, |text| {
            Window::try_from(text).map_err(|error| error.to_string())
        });
        let limit = self.integer(LIMIT_COUNT, |units| match units {
            Ok(units) => Limit::stored(units).map_err(|error| error.to_string()),
            Err(true) => Err(LimitError::TooLarge.to_string()),
            Err(false) => Err(LimitError::NotPositive.to_string()),
        });
        Some(Terms {
            window: window?,
            limit: limit?,
        })
    }

    fn window_start(&mut self) -> Option<Timestamp> {
        self.text(WINDOW_START, |text| {
            // In the one form in which it is written, so that nothing of it is dropped in silence.
            let at = instant::parse(text).filter(|at| instant::format(*at) == text);
            at.ok_or_else(|| format!("{WINDOW_START} must be written as 2026-11-30T18:00:00Z."))
        })
    }

    fn cell(&self, column: &str) -> &Cell {
        let mut columns = columns(self.subject).iter();
        let place = columns.position(|known| *known == column);
        place
            .and_then(|place| self.cells.get(place))
            .unwrap_or(&Cell::Missing)
    }

    fn text<T>(&mut self, column: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let read = match self.cell(column) {
            Cell::Text(text) => read(text),
            Cell::Missing => Err(format!("{column} is missing.")),
            Cell::NotUtf8 => Err(format!("{column} is not UTF-8.")),
            Cell::Number(_) | Cell::Other => Err(format!("{column} must be a string.")),
        };
        self.keep(read)
    }

    /// `read` is told a number of 0 or more, or else whether it is too large for one.
    fn integer<T>(
        &mut self,
        column: &str,
        read: impl FnOnce(Result<i64, bool>) -> Result<T, String>,
    ) -> Option<T> {
        let read = match self.cell(column) {
            Cell::Number(text) if is_digits(text) => read(text.parse().map_err(|_| true)),
            Cell::Number(_) | Cell::Text(_) | Cell::Other => read(Err(false)),
            Cell::Missing => Err(format!("{column} is missing.")),
            Cell::NotUtf8 => Err(format!("{column} is not UTF-8.")),
        };
        self.keep(read)
    }

    fn keep<T>(&mut self, read: Result<T, String>) -> Option<T> {
        read.map_err(|text| self.faults.push(fault(self.line, text)))
            .ok()
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(format: Format, subject: Subject, text: &[u8]) -> Vec<Judged> {
        read_all(format, subject, text)
    }

    fn read_all(format: Format, subject: Subject, text: impl Read) -> Vec<Judged> {
        let mut reader = Reader::new(text, format, subject).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = reader.next().unwrap() {
            lines.push(line);
        }
        lines
    }

    /// The faults of all lines, each as `line: text`.
    fn faults(format: Format, subject: Subject, text: &[u8]) -> Vec<String> {
        told(read(format, subject, text))
    }

    fn told(lines: Vec<Judged>) -> Vec<String> {
        let lines = lines.into_iter();
        let faults = lines.filter_map(Result::err).flatten();
        faults
            .map(|fault| format!("{}: {}", fault.line, fault.text))
            .collect()
    }

    fn policy_row(user_id: &str, resource: &str) -> Row {
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        let at = Some(Value::Instant(Timestamp::from_unix_s(0)));
        let values = vec![
            text(user_id),
            text(resource),
            text("daily"),
            Some(Value::Integer(7)),
            at.clone(),
            at,
        ];
        POLICIES.hold(values).unwrap()
    }

    fn written(format: Format, rows: &[Row]) -> Vec<u8> {
        let mut writer = Writer::begin(Vec::new(), format, Subject::Policies).unwrap();
        for row in rows {
            writer.write(row).unwrap();
        }
        writer.finish().unwrap()
    }

    #[track_caller]
    fn comes_back(user_id: &str, resource: &str) {
        for format in [Format::Csv, Format::Jsonl] {
            let file = written(format, &[policy_row(user_id, resource)]);
            let lines = read(format, Subject::Policies, &file);
            let [
                Ok(Entry {
                    wanted: Wanted::Policy { pair, .. },
                    ..
                }),
            ] = &lines[..]
            else {
                panic!("{user_id:?} {resource:?} became {lines:?}");
            };
            assert_eq!(
                (pair.user_id.as_str(), pair.resource.as_str()),
                (user_id, resource)
            );
        }
    }

    /// Texts that begin with what is run, or with what is put before it, or both.
    fn ids() -> impl Strategy<Value = String> {
        let begin = "['=+\\-@\u{ff1d}\u{ff0b}\u{ff0d}\u{ff20}]{0,4}";
        (begin, "[^\\p{Cc}/]{1,12}")
            .prop_map(|(begin, rest)| begin + &rest)
            .prop_filter("an id", |id| UserId::try_from(&**id).is_ok())
    }

    proptest! {
        #[test]
        fn every_id_comes_back_to_the_byte(user_id in ids(), resource in ids()) {
            comes_back(&user_id, &resource);
        }

        #[test]
        fn no_cell_is_run_and_every_text_comes_back(text in "['=+\\-@\t\r\n\u{ff1d}a,\";]{0,6}") {
            let cell = to_cell(&text);
            prop_assert!(!cell.starts_with(is_run), "{:?}", cell);
            prop_assert_eq!(from_cell(&cell), text);
        }

        #[test]
        fn no_bytes_are_too_odd_to_be_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let with_header = [&b"user_id,resource,window,limit_count\n"[..], &bytes].concat();
            read(Format::Csv, Subject::Policies, &with_header);
            read(Format::Csv, Subject::Usage, &bytes);
            read(Format::Jsonl, Subject::Policies, &bytes);
        }
    }

    #[test]
    fn ids_that_a_spreadsheet_would_run_are_prefixed_and_read_back() {
        let file = written(
            Format::Csv,
            &[
                policy_row("=1+1", "+a"),
                policy_row("-1", "@SUM(A1)"),
                policy_row("'=1", "''"),
                policy_row("'tis", "\u{ff1d}1"),
                policy_row("a,\"b\"", "a;=1"),
            ],
        );
        let expected = "user_id,resource,window,limit_count\n\
             '=1+1,'+a,daily,7\n\
             '-1,'@SUM(A1),daily,7\n\
             ''=1,''',daily,7\n\
             'tis,'\u{ff1d}1,daily,7\n\
             \"a,\"\"b\"\"\",a;=1,daily,7\n";
        assert_eq!(String::from_utf8(file).unwrap(), expected);
        for id in [
            "=",
            "'",
            "''",
            "'='",
            " =1",
            "\u{2028}",
            "\u{feff}a",
            "a\\",
            "#a",
            "\"",
            "007",
        ] {
            comes_back(id, id);
        }
    }

    #[test]
    fn files_of_spreadsheets_are_read() {
        let file = b"\xef\xbb\xbflimit_count,\"user_id\",window,resource\r\n5,\"a, \"\"b\"\"\",daily,r\r\n\r\n6,c,hourly,r";
        let lines = read(Format::Csv, Subject::Policies, file);
        let users: Vec<_> = lines
            .iter()
            .map(|line| match line {
                Ok(Entry {
                    line,
                    wanted: Wanted::Policy { pair, terms },
                }) => (*line, pair.user_id.as_str(), terms.limit.get()),
                line => panic!("{line:?}"),
            })
            .collect();
        assert_eq!(users, [(2, "a, \"b\"", 5), (4, "c", 6)]);
    }

    #[test]
    fn a_header_that_is_wrong_is_told_and_nothing_else() {
        let check = |file: &[u8], expected: &[&str]| {
            assert_eq!(faults(Format::Csv, Subject::Defaults, file), expected);
        };
        check(
            b"",
            &["1: there is no line that names the columns: resource,window,limit_count"],
        );
        check(b"resource,window,limit_count\n", &[]);
        check(
            b"resource,window,limit_count,limit\nx,y,z,1\n",
            &["1: the column \"limit\" is unknown; the columns are resource,window,limit_count"],
        );
        check(
            b"resource,window,window\nx,y,z\n",
            &[
                "1: the column window is there twice.",
                "1: the column limit_count is missing.",
            ],
        );
        check(
            b"\xff\xfer\0e\0",
            &["1: the file is UTF-16; save it as UTF-8."],
        );
    }

    #[test]
    fn every_fault_of_a_line_is_told_with_its_field() {
        let file = b"user_id,resource,window,limit_count\n\
            ,a/b,weekly,0\n\
            a,b,daily\n\
            \xff,b,daily,1\n\
            a,b,Daily,99999999999999999999\n\
            a,b,daily,1.0\n\
            a,..,daily,-1\n\
            a,b,daily,+1\n";
        let expected = [
            "2: user_id must not be empty.",
            "2: resource must not contain a \"/\".",
            "2: window must be one of: hourly, daily.",
            "2: limit_count must be a positive integer.",
            "3: there are 3 fields, and 4 columns.",
            "4: user_id is not UTF-8.",
            "5: window must be one of: hourly, daily.",
            "5: limit_count must not exceed 1000000.",
            "6: limit_count must be a positive integer.",
            "7: resource must not be \".\" or \"..\".",
            "7: limit_count must be a positive integer.",
            "8: limit_count must be a positive integer.",
        ];
        assert_eq!(faults(Format::Csv, Subject::Policies, file), expected);
        let for_windows = String::from_utf8_lossy(file).replace('\n', "\r\n");
        let found = faults(Format::Csv, Subject::Policies, for_windows.as_bytes());
        assert_eq!(found[0], expected[0]);
        assert_eq!(found[found.len() - 1], expected[11]);
        let unclosed =
            b"\nresource,window,limit_count\n\n\"a\nb\",daily,1\nr,daily,0\n\"c,daily,1\n";
        let expected = [
            "3: resource must not contain control characters.",
            "6: limit_count must be a positive integer.",
            "7: there are 1 fields, and 3 columns.",
        ];
        assert_eq!(faults(Format::Csv, Subject::Defaults, unclosed), expected);
    }

    #[test]
    fn json_is_as_strict_as_a_body() {
        let check = |line: &str, expected: &[&str]| {
            let found = faults(Format::Jsonl, Subject::Usage, line.as_bytes());
            assert_eq!(found, expected, "{line}");
        };
        let sound =
            r#"{"user_id":"u","resource":"r","window_start":"2026-11-30T18:00:00Z","usage":0}"#;
        check(sound, &[]);
        check(&format!("\r\n{sound}\r\n \n{sound}"), &[]);
        check(
            r#"{"user_id":7,"resource":null,"window_start":"2026-11-30T18:00:00.5Z","usage":"1","usage":2}"#,
            &[
                "1: usage is there twice.",
                "1: user_id must be a string.",
                "1: resource must be a string.",
                "1: window_start must be written as 2026-11-30T18:00:00Z.",
                "1: usage must be an integer of 0 or more.",
            ],
        );
        check(&sound.replace(":0}", ":9223372036854775807}"), &[]);
        let too_large = ["1: usage must not exceed 9223372036854775807."];
        check(&sound.replace(":0}", ":9223372036854775808}"), &too_large);
        let negative = ["1: usage must be an integer of 0 or more."];
        for bad in ["-1", "1.0", "1e3", "true"] {
            check(&sound.replace(":0}", &format!(":{bad}}}")), &negative);
        }
        let unwritten = ["1: window_start must be written as 2026-11-30T18:00:00Z."];
        for bad in [
            "2026-11-30T18:00:00+00:00",
            "9999-12-31T00:00:00Z",
            "2026-11-30 18:00:00Z",
            "",
        ] {
            check(&sound.replace("2026-11-30T18:00:00Z", bad), &unwritten);
        }
        check(
            &format!("{sound}\n[]\n{}\n\"a\"\n{sound} x", &sound[..20]),
            &[
                "2: the line is no JSON object.",
                "3: the line is no JSON object (column 20).",
                "4: the line is no JSON object (column 3).",
                "5: the line is no JSON object (column 80).",
            ],
        );
        check(
            r#"{"user_id":"u","resource":"r","window_start":"2026-11-30T18:00:00Z","Usage":1}"#,
            &[
                "1: the member \"Usage\" is unknown; the members are user_id, resource, window_start, usage",
                "1: usage is missing.",
            ],
        );
    }

    #[test]
    fn a_line_of_csv_without_an_end_is_not_kept_in_memory() {
        let text = "the line is longer than 65536 bytes, or a quote is open.";
        for (begun, line) in [
            ("", 1),
            ("resource,window,limit_count\na,daily,1\n", 3),
            ("resource,window,limit_count\na,daily,1\n\"", 3),
        ] {
            let endless = Cursor::new(begun).chain(io::repeat(b'x'));
            let lines = read_all(Format::Csv, Subject::Defaults, endless);
            assert_eq!(told(lines), [format!("{line}: {text}")]);
        }
        let many = "a,daily,1\n".repeat(20_000);
        let file = format!("resource,window,limit_count\n{many}a,daily,0\n");
        assert_eq!(
            faults(Format::Csv, Subject::Defaults, file.as_bytes()),
            ["20002: limit_count must be a positive integer."]
        );
    }

    #[test]
    fn a_line_without_an_end_is_not_kept_in_memory() {
        let long = "x".repeat(200_000);
        let file = format!("{long}\n{{}}\n{long}");
        let expected = [
            "1: the line is longer than 65536 bytes.",
            "2: resource is missing.",
            "2: window is missing.",
            "2: limit_count is missing.",
            "3: the line is longer than 65536 bytes.",
        ];
        assert_eq!(
            faults(Format::Jsonl, Subject::Defaults, file.as_bytes()),
            expected
        );
    }
}
