//! The keys of a JWKS, read again from time to time, and once more when a token names a key that is not among them.
//!
//! One task reads; whoever wants newer keys waits for it. However many tokens name keys that do not exist, they cause
//! one reading in [`ASKED_GAP`].

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use quotalog_ledger::Deadline;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::key_set::KeySet;
use crate::metrics::Metrics;
use crate::source::{Source, SourceError};

/// How often a URL is read, so how long a key that its issuer no longer trusts may live on here.
const URL_INTERVAL: Duration = Duration::from_secs(300);
/// How often a file is.
const FILE_INTERVAL: Duration = Duration::from_secs(5);
/// How soon it is tried again where it failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How often tokens may have it read.
pub(crate) const ASKED_GAP: Duration = Duration::from_secs(10);
/// How long a token waits for newer keys. Short, since what it is for has its own time to wait once the caller is
/// known; the reading goes on, and a retry finds what it has brought.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long keys are trusted that could not be read again: whoever can cut us off from the issuer must not make a key
/// that was revoked live for ever.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What can be read.
pub(crate) trait Load: Send + Sync + 'static {
    /// How often it is read.
    fn interval(&self) -> Duration;
    /// The document as it is now.
    fn load(&self) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, SourceError>> + Send + '_>>;
}

impl Load for Source {
    fn interval(&self) -> Duration {
        if self.is_file() {
            FILE_INTERVAL
        } else {
            URL_INTERVAL
        }
    }

    fn load(&self) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, SourceError>> + Send + '_>> {
        Box::pin(Self::load(self))
    }
}

/// The keys, as a task reads them. It ends when this is dropped.
pub(crate) struct Jwks {
    state: watch::Receiver<State>,
    asked: Arc<Notify>,
}

/// What is known of the keys.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// Those that are trusted; none before they were read for the first time, and when they are too old.
    pub(crate) keys: Option<Arc<KeySet>>,
    /// Whether they are what the source has, as far as we can know: the last reading went well.
    pub(crate) is_current: bool,
    /// Another number whenever the keys change.
    pub(crate) revision: u64,
    is_loading: bool,
    loadings: u64,
    may_ask_at: Instant,
}

impl Jwks {
    /// Starts to read. Must be called inside a tokio runtime.
    pub(crate) fn start(source: impl Load, metrics: Metrics) -> Self {
        let (publish, state) = watch::channel(State {
            keys: None,
            is_current: false,
            revision: 0,
            is_loading: true,
            loadings: 0,
            may_ask_at: Instant::now(),
        });
        let asked = Arc::new(Notify::new());
        let reader = Reader {
            source,
            publish,
            asked: Arc::clone(&asked),
            metrics,
            document: Vec::new(),
            read_at: None,
        };
        tokio::spawn(reader.run());
        Self { state, asked }
    }

    /// What is known now.
    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// What is known once the source was read again, if that may be now and is done in time.
    pub(crate) async fn refreshed(&self, deadline: Deadline) -> State {
        let mut state = self.state.clone();
        let before = state.borrow_and_update().clone();
        if !before.is_loading {
            if Instant::now() < before.may_ask_at {
                return before;
            }
            self.asked.notify_one();
        }
        let loaded = state.wait_for(|state| state.loadings != before.loadings);
        let wait_until = deadline.wait_until().min(Instant::now() + WAIT_MAX);
        let is_in_time = tokio::time::timeout_at(wait_until, loaded).await.is_ok();
        let mut known = self.state();
        // What is not there yet may come with the reading that goes on.
        known.is_current &= is_in_time;
        known
    }
}

/// The task.
struct Reader<S> {
    source: S,
    publish: watch::Sender<State>,
    asked: Arc<Notify>,
    metrics: Metrics,
    /// The last that went well.
    document: Vec<u8>,
    read_at: Option<Instant>,
}

impl<S: Load> Reader<S> {
    async fn run(mut self) {
        loop {
            let is_well = self.read().await;
            let interval = if is_well {
                self.source.interval()
            } else {
                RETRY_INTERVAL
            };
            let due_at = Instant::now() + interval;
            tokio::select! {
                () = self.publish.closed() => return,
                () = tokio::time::sleep_until(due_at) => {}
                () = self.asked() => {
                    let may_ask_at = Instant::now() + ASKED_GAP;
                    self.publish.send_modify(|state| state.may_ask_at = may_ask_at);
                }
            }
            self.publish.send_modify(|state| state.is_loading = true);
        }
    }

    /// Returns when somebody asks for newer keys who may. Of many who asked at once, the last may come late.
    async fn asked(&self) {
        loop {
            self.asked.notified().await;
            if self.publish.borrow().may_ask_at <= Instant::now() {
                return;
            }
        }
    }

    async fn read(&mut self) -> bool {
        let read = self.source.load().await.and_then(|document| {
            if self.read_at.is_some() && document == self.document {
                return Ok(None);
            }
            let keys = KeySet::from_jwks(&document).ok_or(SourceError::NoJwks)?;
            Ok(Some((document, keys)))
        });
        let before = self.publish.borrow().clone();
        let is_well = read.is_ok();
        self.metrics.refreshed(is_well);
        let changed = match read {
            Ok(changed) => {
                self.read_at = Some(Instant::now());
                changed
            }
            Err(error) => {
                // Once, not each time that it is tried again.
                if before.is_current || before.loadings == 0 {
                    let error: &dyn std::error::Error = &error;
                    let advice = if before.keys.is_some() {
                        "the keys before stay in force"
                    } else {
                        "no JWT is believed before it can"
                    };
                    tracing::warn!(error, "the JWKS cannot be read; {advice}");
                }
                None
            }
        };
        let is_too_old = self.read_at.is_some_and(|at| at.elapsed() >= AGE_MAX);
        if is_too_old {
            tracing::error!("the JWKS could not be read for a day; its keys are trusted no longer");
            (self.read_at, self.document) = (None, Vec::new());
        }
        let keys = changed.map(|(document, keys)| {
            tracing::info!(
                keys = keys.keys.len(),
                passed_over = keys.passed_over,
                "the keys of the JWKS are in force"
            );
            if keys.keys.is_empty() {
                tracing::warn!("the JWKS holds no key that JWTs can be verified with");
            }
            self.document = document;
            Arc::new(keys)
        });
        self.publish.send_modify(|state| {
            if keys.is_some() || is_too_old {
                state.keys = keys;
                state.revision += 1;
            }
            state.is_current = is_well;
            state.is_loading = false;
            state.loadings += 1;
            let count = state.keys.as_ref().map_or(0, |keys| keys.keys.len());
            self.metrics
                .keys
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        });
        is_well
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const EMPTY: &str = r#"{"keys":[]}"#;
    const ONE: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a",
        "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    /// A source that has what it is told to have, and counts how often it was read.
    #[derive(Clone, Default)]
    struct Told(Arc<Inside>);

    #[derive(Default)]
    struct Inside {
        document: Mutex<Option<&'static str>>,
        loads: AtomicUsize,
    }

    impl Told {
        fn has(&self, document: Option<&'static str>) {
            *self.0.document.lock().expect("nobody panics with it") = document;
        }

        fn loads(&self) -> usize {
            self.0.loads.load(Ordering::SeqCst)
        }
    }

    impl Load for Told {
        fn interval(&self) -> Duration {
            URL_INTERVAL
        }

        fn load(&self) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, SourceError>> + Send + '_>> {
            Box::pin(async {
                self.0.loads.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(50)).await;
                let document = *self.0.document.lock().expect("nobody panics with it");
                document
                    .map(|text| text.as_bytes().to_vec())
                    .ok_or(SourceError::TimedOut)
            })
        }
    }

    fn count(state: &State) -> Option<usize> {
        state.keys.as_ref().map(|keys| keys.keys.len())
    }

    /// A clock that is paused goes on only while everybody waits.
    async fn after(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn started(document: Option<&'static str>) -> (Told, Jwks) {
        let told = Told::default();
        told.has(document);
        let jwks = Jwks::start(told.clone(), Metrics::new());
        (told, jwks)
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_first_waits_for_the_keys() {
        let (told, jwks) = started(Some(ONE));
        assert_eq!(count(&jwks.state()), None);
        assert_eq!(count(&jwks.refreshed(Deadline::from_now()).await), Some(1));
        assert_eq!(told.loads(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_who_ask_for_newer_keys_cause_one_reading() {
        let (told, jwks) = started(Some(EMPTY));
        jwks.refreshed(Deadline::from_now()).await;
        told.has(Some(ONE));
        let jwks = Arc::new(jwks);
        let ask = || async {
            let mut asking = tokio::task::JoinSet::new();
            for _ in 0..1_000 {
                let jwks = Arc::clone(&jwks);
                asking.spawn(async move { count(&jwks.refreshed(Deadline::from_now()).await) });
            }
            asking.join_all().await
        };
        // All of them are answered by what that one has brought.
        assert_eq!(ask().await, vec![Some(1); 1_000]);
        assert_eq!(told.loads(), 2);
        // For a while they are answered by what is known; then one reads again.
        told.has(Some(EMPTY));
        after(ASKED_GAP - Duration::from_secs(1)).await;
        assert_eq!(ask().await, vec![Some(1); 1_000]);
        assert_eq!(told.loads(), 2);
        after(Duration::from_secs(1)).await;
        assert_eq!(ask().await, vec![Some(0); 1_000]);
        assert_eq!(told.loads(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_no_time_left_does_not_wait_for_newer_keys() {
        let (told, jwks) = started(Some(EMPTY));
        jwks.refreshed(Deadline::from_now()).await;
        told.has(Some(ONE));
        let deadline = Deadline::from_now();
        tokio::time::sleep_until(deadline.wait_until() - Duration::from_millis(20)).await;
        let known = jwks.refreshed(deadline).await;
        assert_eq!(count(&known), Some(0));
        assert!(
            !known.is_current,
            "the key may be there: that is not known yet"
        );
        assert_eq!(Instant::now(), deadline.wait_until());
        // The reading that was asked for goes on.
        after(Duration::from_millis(50)).await;
        assert_eq!(count(&jwks.state()), Some(1));
        assert!(jwks.state().is_current);
        assert_eq!(told.loads(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_keys_are_read_again_without_being_asked_for() {
        let (told, jwks) = started(Some(ONE));
        let first = jwks.refreshed(Deadline::from_now()).await;
        after(URL_INTERVAL * 3 + Duration::from_secs(1)).await;
        assert_eq!(told.loads(), 4);
        // The same document makes no new keys, so that what was verified with them is remembered.
        assert_eq!(jwks.state().revision, first.revision);
        told.has(Some(EMPTY));
        after(URL_INTERVAL).await;
        assert_eq!(count(&jwks.state()), Some(0));
        assert_ne!(jwks.state().revision, first.revision);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_cannot_be_read_again_are_trusted_for_a_day() {
        let (told, jwks) = started(Some(ONE));
        let first = jwks.refreshed(Deadline::from_now()).await;
        for garbage in [None, Some("<html>"), Some("[]"), Some(r#"{"keys":{}}"#)] {
            told.has(garbage);
            after(URL_INTERVAL + RETRY_INTERVAL).await;
            let state = jwks.state();
            assert_eq!((count(&state), state.is_current), (Some(1), false));
            assert_eq!(state.revision, first.revision);
        }
        after(AGE_MAX - URL_INTERVAL * 7).await;
        assert_eq!(count(&jwks.state()), Some(1));
        after(URL_INTERVAL * 4).await;
        assert_eq!(count(&jwks.state()), None);
        assert_ne!(jwks.state().revision, first.revision);
        // The very same document is in force again once it can be read.
        told.has(Some(ONE));
        after(RETRY_INTERVAL * 2).await;
        assert_eq!(count(&jwks.state()), Some(1));
        assert!(jwks.state().is_current);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_were_never_read_are_tried_again_soon() {
        let (told, jwks) = started(None);
        assert_eq!(count(&jwks.refreshed(Deadline::from_now()).await), None);
        told.has(Some(ONE));
        after(RETRY_INTERVAL * 2).await;
        assert_eq!(count(&jwks.state()), Some(1));
        drop(jwks);
        after(URL_INTERVAL * 3).await;
        let loads = told.loads();
        after(URL_INTERVAL * 3).await;
        assert_eq!(told.loads(), loads, "nobody is there to read for");
    }
}
