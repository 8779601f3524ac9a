//! Logs, on standard error: lines for people, or JSON for machines.
//!
//! No token and no body is ever logged. The chosen level applies to our own crates; other libraries are
//! held to warnings, so that the most talkative level cannot print a header of theirs either.

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogLevel {
    /// Only what needs someone to act.
    Error,
    /// Also what went wrong and passes by itself.
    Warn,
    /// Also starts, stops and what was done in the background.
    Info,
    /// Also a line for each request.
    Debug,
    /// Everything.
    Trace,
}

/// Starts logging. Called once, before anything logs.
pub(crate) fn start(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let targets = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("quotalog", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(targets);
    match format {
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal();
            registry.with(lines.with_ansi(colours)).init();
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
    }
}
