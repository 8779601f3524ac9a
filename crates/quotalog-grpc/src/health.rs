//! The health service (`grpc.health.v1`), which needs no token: whether the store answers and the server is not about
//! to stop.

use std::pin::Pin;
use std::time::Duration;

use quotalog_front::Draining;
use quotalog_ledger::{Deadline, Ledger};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// The name of the service.
pub(crate) const NAME: &str = tonic_health::pb::health_server::SERVICE_NAME;

/// How often the store is asked for those who watch.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The health of the server, told of the server itself and of one service.
pub(crate) struct Healths {
    ledger: Ledger,
    draining: Draining,
    service: &'static str,
    /// What was seen when the store was last asked. Its sender ends when the server is about to stop, and with it
    /// what is told to those who watch, who would hold their connections open.
    seen: watch::Receiver<bool>,
}

/// Begins to look, and makes the service that tells of it.
pub(crate) fn service(
    ledger: Ledger,
    draining: Draining,
    service: &'static str,
) -> HealthServer<Healths> {
    let (see, seen) = watch::channel(false);
    tokio::spawn(keep_looking(ledger.clone(), draining.clone(), see));
    HealthServer::new(Healths {
        ledger,
        draining,
        service,
        seen,
    })
}

/// Asks the store again and again, until the server is about to stop or nobody can ask any more.
async fn keep_looking(ledger: Ledger, draining: Draining, see: watch::Sender<bool>) {
    let looking = async {
        loop {
            let ready = ledger.ready(Deadline::from_now()).await.is_ok();
            see.send_if_modified(|seen| std::mem::replace(seen, ready) != ready);
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    tokio::select! {
        () = looking => {}
        () = draining.started() => {}
        () = see.closed() => {}
    }
    see.send_if_modified(|seen| std::mem::replace(seen, false));
}

impl Healths {
    fn knows(&self, request: &Request<HealthCheckRequest>) -> Result<(), Status> {
        let service = &request.get_ref().service;
        if service.is_empty() || service == self.service {
            Ok(())
        } else {
            Err(Status::not_found("There is no such service."))
        }
    }
}

#[tonic::async_trait]
impl Health for Healths {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.knows(&request)?;
        let serving =
            !self.draining.has_started() && self.ledger.ready(Deadline::from_now()).await.is_ok();
        Ok(Response::new(told(serving)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        // Of an unknown service the protocol would have us tell, for as long as it is asked, that it is unknown; ours
        // will never be there.
        self.knows(&request)?;
        let told = WatchStream::new(self.seen.clone()).map(|serving| Ok(told(serving)));
        Ok(Response::new(Box::pin(told)))
    }
}

fn told(serving: bool) -> HealthCheckResponse {
    let status = if serving {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    };
    HealthCheckResponse {
        status: status.into(),
    }
}
