//! The one task that finishes what erasures have left to do, step by step, whoever began them and whether anybody
//! waits for it or not.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntGauge;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::store::{Administer, ErasureId};

/// How often erasures are looked for that nobody told of here: another process may have begun one and ended.
const INTERVAL: Duration = Duration::from_secs(60);
/// The time left to others between two steps.
const PAUSE: Duration = Duration::from_millis(2);
/// The pause after a step that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The handle of the task, which ends with it, at the latest between two steps. What is left then is in the store.
pub(crate) struct Eraser {
    waiting: Arc<Waiting>,
    task: JoinHandle<()>,
}

/// Whoever waits for the end of an erasure. Each of them is a request that is under way, and those are bounded.
#[derive(Default)]
struct Waiting {
    waiters: Mutex<Vec<Waiter>>,
    woken: Notify,
}

struct Waiter {
    erasure: ErasureId,
    finished: oneshot::Sender<()>,
}

/// Has the task look for erasures once more, when it is dropped.
pub(crate) struct Wake<'e>(&'e Eraser);

impl Eraser {
    /// Starts the task, which looks for unfinished erasures at once. `unfinished` shows whether there are any.
    pub(crate) fn start(store: Arc<dyn Administer>, unfinished: IntGauge) -> Self {
        let waiting = Arc::new(Waiting::default());
        let task = tokio::spawn(work(store, Arc::clone(&waiting), unfinished));
        Self { waiting, task }
    }

    /// Held while an erasure begins, so that it is found also if nobody learns that it did.
    pub(crate) fn wake(&self) -> Wake<'_> {
        Wake(self)
    }

    /// Waits until the erasure is finished; `false` if the task ends before.
    pub(crate) async fn finished(&self, erasure: ErasureId) -> bool {
        let (finished, is_finished) = oneshot::channel();
        self.waiting.lock().push(Waiter { erasure, finished });
        self.waiting.woken.notify_one();
        is_finished.await.is_ok()
    }

    /// Ends the task.
    pub(crate) fn stop(&self) {
        self.task.abort();
        self.waiting.lock().clear();
    }
}

impl Drop for Eraser {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        self.0.waiting.woken.notify_one();
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Vec<Waiter>> {
        // Nothing that can panic runs under this lock.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn work(store: Arc<dyn Administer>, waiting: Arc<Waiting>, unfinished: IntGauge) {
    let mut failing = false;
    let mut waiters = Vec::new();
    loop {
        // Their erasures are in the store, so that a step which begins now knows of them.
        waiters.append(&mut mem::take(&mut *waiting.lock()));
        let step = store.erase_step().await;
        match &step {
            Ok(oldest) => {
                let is_finished = |waiter: &mut Waiter| oldest.is_none_or(|id| waiter.erasure < id);
                for waiter in waiters.extract_if(.., is_finished) {
                    let _left = waiter.finished.send(());
                }
                waiters.retain(|waiter| !waiter.finished.is_closed());
                if unfinished.get() == 1 && oldest.is_none() {
                    tracing::info!("all erasures are finished");
                }
                unfinished.set(oldest.is_some().into());
            }
            Err(error) if !failing => {
                let error: &dyn std::error::Error = error;
                tracing::warn!(error, "erasures cannot go on; will try again");
            }
            Err(_) => {}
        }
        if failing && step.is_ok() {
            tracing::info!("erasures can go on again");
        }
        failing = step.is_err();
        match step {
            Ok(Some(_)) => tokio::time::sleep(PAUSE).await,
            Ok(None) => {
                let _quiet = tokio::time::timeout(INTERVAL, waiting.woken.notified()).await;
            }
            Err(_) => tokio::time::sleep(PAUSE_AFTER_FAILURE).await,
        }
    }
}
