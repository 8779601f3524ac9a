//! A panic in one request is that request's failure, and no other's.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// What was being done for a request panicked; the message of the panic.
#[derive(Debug)]
pub struct Panicked(String);

impl std::fmt::Display for Panicked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "panicked: {}", self.0)
    }
}

impl std::error::Error for Panicked {}

/// Runs `future`, and gives back what it panicked with. A future that has panicked is not polled
/// again, and what it may have left half done goes with it.
///
/// # Errors
/// [`Panicked`] if it did.
pub async fn caught<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(Panicked(message(&*panic)))),
        },
    )
    .await
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_given_back_with_its_message() {
        let returned = caught(async { 7 }).await;
        assert!(matches!(returned, Ok(7)));
        let panicked = caught(async {
            tokio::task::yield_now().await;
            panic!("at the {}", "disco");
        });
        let panicked = panicked.await.unwrap_err();
        assert_eq!(panicked.to_string(), "panicked: at the disco");
        assert_eq!(message(&7), "without a message");
    }
}
