//! `quotalog doctor`.

use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::Path;

use quotalog_record::{ADMIN_TOKEN, Finding, Grade};
use rustix::fs::{Access, access, statvfs};

use crate::config::{self, Database};
use crate::exit_code::{Exit, Failure};
use crate::{app, certificate};

use super::{say, serve};

/// Less free space than this is soon gone.
const FREE_MIB_MIN: u64 = 512;

/// What a person may ask the doctor: the settings of the server, as `serve` takes them.
#[derive(Debug, clap::Args)]
// Groups are named after their types, and the flattened one has the same name.
#[group(skip)]
pub(super) struct Arguments {
    #[command(flatten)]
    serve: serve::Arguments,
    /// Print a JSON array, for scripts.
    #[arg(long)]
    json: bool,
}

/// Tells what was found; fails if anything is a problem.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let findings = examine(&arguments.serve)?;
    if arguments.json {
        let lines: Vec<serde_json::Value> = findings.iter().map(as_json).collect();
        say(&serde_json::Value::from(lines).to_string())?;
    } else {
        for finding in &findings {
            let Finding {
                subject, detail, ..
            } = finding;
            say(&format!(
                "{:<8} {subject:<14} {detail}",
                word(finding.grade)
            ))?;
        }
    }
    let problems = findings.iter();
    let problems = problems.filter(|finding| finding.grade == Grade::Problem);
    match problems.count() {
        0 => Ok(()),
        1 => Err(Failure::error(Exit::Failure, "1 problem was found")),
        count => {
            let message = format!("{count} problems were found");
            Err(Failure::error(Exit::Failure, message))
        }
    }
}

fn examine(arguments: &serve::Arguments) -> anyhow::Result<Vec<Finding>> {
    // A setting that `serve` would refuse is refused here in the same words.
    let config = serve::checked(arguments)?;
    let mut findings = vec![Finding::new(Grade::Fine, "settings", "sound")];
    if let Some(files) = config.tls.clone() {
        findings.push(match certificate::load(files) {
            Ok(_) => Finding::new(Grade::Fine, "certificate", "it and its key fit together"),
            Err(error) => Finding::new(Grade::Problem, "certificate", format!("{error:#}")),
        });
    }
    findings.extend(listeners(&config));
    if let Some(settings) = &config.jwt {
        findings.push(app::examine_jwts(settings)?);
    }
    if let Database::Sqlite(file) = &config.database {
        let path = file.absolute();
        findings.extend(path.parent().map(folder_of).unwrap_or_default());
        if !path.exists() {
            let detail = format!("{} is not there; the next start makes it", path.display());
            findings.push(Finding::new(Grade::Warning, "database", detail));
            return Ok(findings);
        }
    }
    let found = app::examine(&config.database)?.into_iter();
    findings.extend(found.map(|finding| {
        if finding.subject == ADMIN_TOKEN && config.admin_token.is_some() {
            // Then none is needed in the database.
            return Finding::new(Grade::Fine, ADMIN_TOKEN, "QUOTALOG_ADMIN_TOKEN is set");
        }
        finding
    }));
    Ok(findings)
}

/// Who could read along: tokens pass in the clear without TLS, and metrics are for whoever reaches them.
fn listeners(config: &config::Serve) -> Vec<Finding> {
    let rate_limits = config.rate_limits.as_ref();
    let plain = [Some(&config.listen), rate_limits.map(|rls| &rls.listen)];
    let plain = plain
        .into_iter()
        .flatten()
        .filter(|_| config.tls.is_none())
        .filter_map(|listen| {
            let advice = "has no TLS, so that tokens can be read on the way: set --tls-cert and --tls-key, or listen \
                          on the loopback behind a proxy that has it";
            reachable(listen, |ip| ip.is_loopback(), advice)
        });
    let metrics = config.metrics_listen.as_ref().and_then(|listen| {
        let advice = "serves the metrics to whoever reaches it, without a token or TLS: keep it on the loopback or a \
                      private network";
        reachable(listen, |ip| ip.is_loopback() || is_private(ip), advice)
    });
    plain.chain(metrics).collect()
}

/// What to say of an address, unless all that it stands for is harmless.
fn reachable(
    listen: &config::Listen,
    is_harmless: impl Fn(IpAddr) -> bool,
    advice: &str,
) -> Option<Finding> {
    let config::Listen { address, flag, .. } = listen;
    match address.to_socket_addrs() {
        Ok(mut found) => {
            let is_harmless = found.all(|found| is_harmless(found.ip().to_canonical()));
            let detail = format!("{flag} {address} {advice}");
            (!is_harmless).then(|| Finding::new(Grade::Warning, "listen", detail))
        }
        Err(error) => {
            let detail = format!("{flag} {address} cannot be looked up: {error}");
            Some(Finding::new(Grade::Problem, "listen", detail))
        }
    }
}

/// Whether an address is one that no packet from the outside names.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

fn folder_of(folder: &Path) -> Vec<Finding> {
    let name = folder.display();
    if !folder.exists() {
        let detail =
            format!("{name} is not there; make it, and let it belong to the server's user");
        return vec![Finding::new(Grade::Problem, "folder", detail)];
    }
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        let detail = format!("{name} cannot be written ({error}); the log and the locks lie there");
        return vec![Finding::new(Grade::Problem, "folder", detail)];
    }
    let mut findings = vec![Finding::new(
        Grade::Fine,
        "folder",
        format!("{name} can be written"),
    )];
    if let Ok(system) = statvfs(folder) {
        let free_mib = system.f_bavail.saturating_mul(system.f_frsize) / 1024 / 1024;
        findings.push(if free_mib < FREE_MIB_MIN {
            let detail = format!("{free_mib} MiB are free; without room, requests get a 503");
            Finding::new(Grade::Warning, "disk", detail)
        } else {
            Finding::new(Grade::Fine, "disk", format!("{free_mib} MiB are free"))
        });
    }
    findings
}

fn as_json(finding: &Finding) -> serde_json::Value {
    serde_json::json!({
        "grade": word(finding.grade),
        "subject": finding.subject,
        "detail": finding.detail,
    })
}

fn word(grade: Grade) -> &'static str {
    match grade {
        Grade::Fine => "ok",
        Grade::Warning => "warning",
        Grade::Problem => "problem",
    }
}
