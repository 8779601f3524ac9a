//! The certificate of the server: read at the start, and again when it changes.

use std::time::Duration;

use quotalog_http::{Tls, TlsError, TlsFiles};
use tokio::signal::unix::Signal;

use crate::exit_code::{Exit, Failure};

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);

/// Reads the files for the start, which is refused if they are no pair.
pub(crate) fn load(files: TlsFiles) -> anyhow::Result<Tls> {
    Tls::load(files).map_err(|error| {
        let flag = match &error {
            TlsError::Certificate { .. } => "--tls-cert (QUOTALOG_TLS_CERT)",
            TlsError::Key { .. } => "--tls-key (QUOTALOG_TLS_KEY)",
            TlsError::Mismatch(_) => {
                "--tls-cert and --tls-key (QUOTALOG_TLS_CERT, QUOTALOG_TLS_KEY)"
            }
        };
        Failure::error(Exit::Usage, format!("{flag}: {error}"))
    })
}

/// Reads the files again at every SIGHUP and whenever they have changed, until it is dropped. By their
/// contents, since links are changed by many tools; and by looking, since not every file system tells.
pub(crate) async fn keep_current(tls: Option<Tls>, mut hangups: Signal) {
    loop {
        let asked = match &tls {
            None => {
                hangups.recv().await;
                true
            }
            Some(_) => tokio::time::timeout(LOOK_INTERVAL, hangups.recv())
                .await
                .is_ok(),
        };
        let Some(tls) = tls.clone() else {
            tracing::info!("SIGHUP: there is no certificate to read again");
            continue;
        };
        let loading = tokio::task::spawn_blocking(move || tls.load_changed());
        match loading.await {
            Ok(Some(Ok(()))) => tracing::info!("a new certificate is in force"),
            Ok(Some(Err(error))) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    error,
                    "the new certificate cannot be used; the one before stays in force"
                );
            }
            Ok(None) if asked => tracing::info!("SIGHUP: the certificate's files are as before"),
            Ok(None) => {}
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "the certificate's files were not read");
            }
        }
    }
}
