//! What docs/clients.md says becomes of an answer, and that answer on a way.

use serde_json::json;

use crate::support::way::Turn;

const PAGE: &str = include_str!("../../../../../docs/clients.md");

/// A row of the page's table.
pub(crate) struct Row {
    pub(crate) status: u16,
    /// The name of the problem; empty, if there is none.
    pub(crate) problem: &'static str,
    pub(crate) of_change: Fate,
    pub(crate) of_question: Fate,
}

/// What a client makes of it.
#[derive(Clone, Copy)]
pub(crate) struct Fate {
    pub(crate) error: &'static str,
    pub(crate) is_asked_again: bool,
}

/// The rows, in their order.
pub(crate) fn rows() -> Vec<Row> {
    let lines = PAGE
        .lines()
        .skip_while(|line| !line.starts_with("| answer"));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<_> = rows.map(Row::read).collect();
    assert!(rows.len() > 20, "the table is in docs/clients.md");
    rows
}

impl Row {
    fn read(line: &'static str) -> Self {
        let [_, answer, change, question, _] = *line.split('|').collect::<Vec<_>>() else {
            panic!("{line} has three cells");
        };
        let mut codes = answer.split('`').skip(1).step_by(2);
        Self {
            status: codes.next().unwrap().parse().unwrap(),
            problem: codes.next().unwrap_or_default(),
            of_change: Fate::read(change),
            of_question: Fate::read(question),
        }
    }

    /// The answer, which does not want to be asked again before an hour is over, if so wished.
    pub(crate) fn answer(&self, for_an_hour: bool) -> Turn {
        let body = match self.problem {
            "" => "<p>Welcome to this hotel's network.</p>".to_owned(),
            // Of a 429 the quota's members are there too.
            name => json!({
                "type": format!("/problems/{name}"), "detail": "d",
                "user_id": "u", "resource": "r", "window": "daily", "limit_count": 1, "usage": 1,
                "remaining": 0, "allowed": false, "source": "policy",
                "window_start": "2026-12-02T00:00:00Z", "reset_at": "2026-12-03T00:00:00Z",
                "created_at": "2026-12-02T00:00:00Z", "updated_at": "2026-12-02T00:00:00Z",
            })
            .to_string(),
        };
        let (status, length) = (self.status, body.len());
        let wait = if for_an_hour {
            "retry-after: 3600\r\n"
        } else {
            ""
        };
        let answer = format!(
            "HTTP/1.1 {status} x\r\nlocation: /\r\n{wait}content-length: {length}\r\n\
             connection: close\r\n\r\n{body}"
        );
        Turn::Answer(answer.leak())
    }
}

impl Fate {
    fn read(cell: &'static str) -> Self {
        Self {
            error: cell.split('`').nth(1).unwrap(),
            is_asked_again: cell.contains("asked again"),
        }
    }
}
