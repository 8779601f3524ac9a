//! Whether the server is about to stop.

use tokio::sync::watch;

/// Set once the server is about to stop, so that whoever asks whether it is ready goes elsewhere. Cheap to clone;
/// clones are the same.
#[derive(Debug, Clone)]
pub struct Draining(watch::Sender<bool>);

impl Default for Draining {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Draining {
    /// From now on the server is not ready.
    pub fn start(&self) {
        self.0.send_replace(true);
    }

    /// Whether the server is about to stop.
    #[must_use]
    pub fn has_started(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the server is about to stop.
    pub async fn started(&self) {
        let mut started = self.0.subscribe();
        // The sender is here, so the wait ends in no other way.
        let _started = started.wait_for(|started| *started).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_who_wait_are_told_and_whoever_comes_later_too() {
        let draining = Draining::default();
        assert!(!draining.has_started());
        let waiting = tokio::spawn({
            let draining = draining.clone();
            async move { draining.started().await }
        });
        tokio::task::yield_now().await;
        draining.start();
        waiting.await.unwrap();
        draining.started().await;
        assert!(draining.clone().has_started());
    }
}
