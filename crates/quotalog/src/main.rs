//! The program: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    quotalog::cli::main()
}
