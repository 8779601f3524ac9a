//! How far a long command is, on a terminal. Where standard error is none, nothing is shown.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar. Clones are handles of the same.
#[derive(Clone)]
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{msg:<24} [{bar:30}] {percent:>3} %, {eta} left");
        Self(match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    /// Begins anew: there is so much to do.
    pub(super) fn begin(&self, all: u64, doing: &str) {
        self.0.reset();
        self.0.set_length(all);
        self.say(doing);
    }

    pub(super) fn say(&self, doing: &str) {
        self.0.set_message(doing.to_owned());
    }

    /// So much more is done.
    pub(super) fn add(&self, done: u64) {
        self.0.inc(done);
    }

    /// So much is done.
    pub(super) fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
