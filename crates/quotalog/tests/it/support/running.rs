//! Programs of others that run for a test.

use std::process::Child;

/// A program that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}
