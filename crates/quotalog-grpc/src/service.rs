//! `ShouldRateLimit`: one call is one command.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use quotalog_domain::{Answer, Command, Operation, Refusal};
use quotalog_ledger::Ledger;
use tonic::{Request, Response, Status};

use crate::descriptor::{self, Keys};
use crate::guard::Call;
use crate::{answer, status};

pub(crate) struct RateLimits {
    pub(crate) ledger: Ledger,
    pub(crate) keys: Keys,
}

#[tonic::async_trait]
impl RateLimitService for RateLimits {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let Some(call) = request.extensions().get::<Call>() else {
            return Err(status::of_our_fault("a call came past the guard"));
        };
        call.read();
        let hits = match descriptor::hits(&self.keys, request.get_ref()) {
            Ok(hits) => hits,
            Err(faults) => {
                // The token was remembered, and may have been revoked since.
                let confirmed = self.ledger.confirm(call.asker()).await;
                confirmed.map_err(status::of_ledger)?;
                return Err(Status::invalid_argument(faults));
            }
        };
        let units: Vec<u64> = hits.iter().map(quotalog_domain::Hit::units).collect();
        let command = Command::new(Operation::RateLimit { hits });
        let outcome = self.ledger.submit(call.asker(), command).await;
        match outcome.map_err(status::of_ledger)? {
            Ok(decided) => match decided.answer {
                Answer::Limits(quotas) => Ok(answer::granted(&quotas)),
                Answer::Quota(_) | Answer::Quotas(_) | Answer::Default(_) | Answer::Deleted => Err(
                    status::of_our_fault("a rate-limit call was not answered with its limits"),
                ),
            },
            Err(Refusal::OverLimit(quotas)) => Ok(answer::denied(&units, &quotas)),
            Err(
                Refusal::KeyReused
                | Refusal::NotFound
                | Refusal::BatchNotFound(_)
                | Refusal::PreconditionFailed
                | Refusal::AmountExceedsLimit(_)
                | Refusal::Exhausted(_)
                | Refusal::BatchExhausted(_),
            ) => Err(status::of_our_fault(
                "a rate-limit call was refused as another command",
            )),
        }
    }
}
