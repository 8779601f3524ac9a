//! Which window an instant is in, and when that window ends.

use crate::Timestamp;

/// The span after which usage starts again: a UTC hour or a UTC day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Window {
    /// From one full hour to the next, in UTC.
    Hourly,
    /// From one midnight to the next, in UTC.
    Daily,
}

/// One window of time: `[start, reset_at)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSpan {
    /// The first instant of the window.
    pub start: Timestamp,
    /// The first instant after the window.
    pub reset_at: Timestamp,
}

/// The text is not the name of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("window must be one of: hourly, daily.")]
pub struct WindowError;

impl Window {
    /// `hourly` or `daily`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
        }
    }

    /// Seconds from the start of a window to its end.
    #[must_use]
    pub const fn length_s(self) -> i64 {
        match self {
            Self::Hourly => 3_600,
            Self::Daily => 86_400,
        }
    }

    /// The window that holds `now`.
    #[must_use]
    pub const fn span_at(self, now: Timestamp) -> WindowSpan {
        let start = now.floor_to_span(self.length_s());
        WindowSpan {
            start,
            reset_at: start.plus_s(self.length_s()),
        }
    }
}

impl WindowSpan {
    /// Whether `instant` lies in this window.
    #[must_use]
    pub fn contains(&self, instant: Timestamp) -> bool {
        self.start <= instant && instant < self.reset_at
    }
}

impl TryFrom<&str> for Window {
    type Error = WindowError;

    fn try_from(text: &str) -> Result<Self, WindowError> {
        match text {
            "hourly" => Ok(Self::Hourly),
            "daily" => Ok(Self::Daily),
            _ => Err(WindowError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_S: i64 = 3_600;

    #[track_caller]
    fn check(window: Window, now_us: i64, start_s: i64) {
        let now = Timestamp::from_unix_us(now_us);
        let span = window.span_at(now);
        assert_eq!(span.start, Timestamp::from_unix_s(start_s));
        assert_eq!(
            span.reset_at,
            Timestamp::from_unix_s(start_s).plus_s(window.length_s())
        );
        assert!(span.contains(now));
    }

    #[test]
    fn a_window_is_a_calendar_hour_or_day_of_utc() {
        // 2026-11-30T18:00:00Z and the midnight before it.
        let (hour, day) = (1_796_061_600, 1_795_996_800);
        check(Window::Hourly, hour * 1_000_000, hour);
        check(Window::Hourly, hour * 1_000_000 - 1, hour - HOUR_S);
        check(Window::Hourly, (hour + 3_599) * 1_000_000 + 999_999, hour);
        check(Window::Daily, hour * 1_000_000, day);
        check(Window::Daily, day * 1_000_000 - 1, day - 24 * HOUR_S);
    }

    #[test]
    fn a_leap_day_is_a_day() {
        // 2028-02-28T23:59:59Z; one second later it is the 29th.
        check(Window::Daily, 1_835_395_199_000_000, 1_835_308_800);
        check(Window::Daily, 1_835_395_200_000_000, 1_835_395_200);
    }

    #[test]
    fn names_are_exact() {
        assert_eq!(Window::try_from("hourly"), Ok(Window::Hourly));
        assert_eq!(Window::try_from("daily"), Ok(Window::Daily));
        for text in ["Hourly", " hourly", "daily ", "weekly", "minutely", ""] {
            assert_eq!(Window::try_from(text), Err(WindowError), "{text:?}");
        }
    }
}
