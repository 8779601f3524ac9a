//! What the program logs, from warnings upwards, for tests that look for their own lines in it.

use std::io;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// One log for all tests of this process, since the threads of a store log too.
static STARTED: LazyLock<()> = LazyLock::new(|| {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_ansi(false)
        .with_writer(Sink)
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("no test sets another");
});

/// The log of this process.
pub(crate) struct Log(());

struct Sink;

impl Log {
    pub(crate) fn start() -> Self {
        LazyLock::force(&STARTED);
        Self(())
    }

    /// The lines that hold `text`, in order.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        let lines = lines();
        lines
            .iter()
            .filter(|line| line.contains(text))
            .cloned()
            .collect()
    }
}

impl MakeWriter<'_> for Sink {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

/// Each event is written in one piece.
impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lines().push(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lines() -> MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}
