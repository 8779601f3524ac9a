//! `quotalog completions`.

use clap::ValueEnum;
use clap_complete::Shell as Kind;

use super::say;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The shell. Its own manual says where the text belongs; bash takes
    /// `source <(quotalog completions bash)`.
    #[arg(value_enum)]
    shell: Shell,
}

/// The shells whose completions are tried.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the completions of `command`.
pub(super) fn run(arguments: &Arguments, command: &mut clap::Command) -> anyhow::Result<()> {
    let shell = match arguments.shell {
        Shell::Bash => Kind::Bash,
        Shell::Zsh => Kind::Zsh,
        Shell::Fish => Kind::Fish,
    };
    // Into memory first: a reader that went away is no failure.
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "quotalog", &mut script);
    say(String::from_utf8(script)?.trim_end())
}
