//! Whose JWTs are believed: from settings to a verifier.

use std::path::PathBuf;
use std::sync::Arc;

use quotalog_jwt::{Expected, KeyError, RoleClaim, Settings, Source, SourceError, Trust, Verifier};
use quotalog_ledger::clock::SystemClock;
use quotalog_record::{Finding, Grade};

use crate::exit_code::{Exit, Failure};

/// The secret itself, for those who keep secrets in variables; it has no flag, since other users of the machine can
/// read those.
pub(crate) const SECRET: &str = "QUOTALOG_JWT_SECRET";
/// The public key itself, in PEM.
pub(crate) const PUBLIC_KEY: &str = "QUOTALOG_JWT_PUBLIC_KEY";

const SECRET_FILE: &str = "--jwt-secret-file (QUOTALOG_JWT_SECRET_FILE)";
const PUBLIC_KEY_FILE: &str = "--jwt-public-key-file (QUOTALOG_JWT_PUBLIC_KEY_FILE)";
const JWKS: &str = "--jwks (QUOTALOG_JWKS)";
const AUDIENCE: &str = "--jwt-audience (QUOTALOG_JWT_AUDIENCE)";
const ISSUER: &str = "--jwt-issuer (QUOTALOG_JWT_ISSUER)";
const ROLE_CLAIM: &str = "--jwt-role-claim (QUOTALOG_JWT_ROLE_CLAIM)";

/// What was said of JWTs.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) secret: Option<Vec<u8>>,
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) public_key: Option<Vec<u8>>,
    pub(crate) public_key_file: Option<PathBuf>,
    pub(crate) jwks: Option<String>,
    pub(crate) audience: Option<String>,
    pub(crate) issuer: Option<String>,
    pub(crate) role_claim: Option<String>,
}

/// Where trust comes from.
enum Origin {
    Secret(Content),
    PublicKey(Content),
    Jwks(String),
}

enum Content {
    Itself(Vec<u8>),
    File(PathBuf),
}

/// Checks what was said, and reads keys that are in files; `None` if no JWT is to be believed.
pub(crate) fn settings(given: Given) -> anyhow::Result<Option<Settings>> {
    let claims = [
        (AUDIENCE, &given.audience),
        (ISSUER, &given.issuer),
        (ROLE_CLAIM, &given.role_claim),
    ];
    for (setting, text) in claims {
        if text.as_deref() == Some("") {
            return Err(refused(setting, "is empty"));
        }
    }
    let set = claims.into_iter().find(|(_, text)| text.is_some());
    let origins = [
        (
            SECRET,
            given
                .secret
                .map(|secret| Origin::Secret(Content::Itself(secret))),
        ),
        (
            SECRET_FILE,
            given
                .secret_file
                .map(|file| Origin::Secret(Content::File(file))),
        ),
        (
            PUBLIC_KEY,
            given
                .public_key
                .map(|pem| Origin::PublicKey(Content::Itself(pem))),
        ),
        (
            PUBLIC_KEY_FILE,
            given
                .public_key_file
                .map(|file| Origin::PublicKey(Content::File(file))),
        ),
        (JWKS, given.jwks.map(Origin::Jwks)),
    ];
    let mut origins = origins
        .into_iter()
        .filter_map(|(setting, origin)| Some((setting, origin?)));
    let Some((setting, origin)) = origins.next() else {
        return match set {
            None => Ok(None),
            Some((setting, _)) => Err(refused(
                setting,
                "is of no use without keys: set --jwt-secret-file, --jwt-public-key-file or --jwks too",
            )),
        };
    };
    if let Some((other, _)) = origins.next() {
        let message = format!("and {other} are both set: JWTs are believed by one of them");
        return Err(refused(setting, &message));
    }
    let Some(audience) = given.audience else {
        let message = format!(
            "needs {AUDIENCE}, or tokens that were made for other services would be believed"
        );
        return Err(refused(setting, &message));
    };
    Ok(Some(Settings {
        trust: trust(setting, origin)?,
        expected: Expected {
            audience,
            issuer: given.issuer,
            role_claim: given.role_claim.as_deref().map(RoleClaim::from),
        },
    }))
}

fn trust(setting: &str, origin: Origin) -> anyhow::Result<Trust> {
    let wrong = |error: KeyError| refused(setting, &format!("cannot be used: {error}"));
    match origin {
        Origin::Secret(content) => {
            // Editors and shells end a file with a line break, which nobody means.
            let secret = content.read(setting)?;
            let secret = secret.strip_suffix(b"\n").unwrap_or(&secret);
            let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
            Trust::secret(secret).map_err(wrong)
        }
        Origin::PublicKey(content) => Trust::public_key(&content.read(setting)?).map_err(wrong),
        Origin::Jwks(text) => {
            let source = Source::parse(&text);
            source.map(Trust::jwks).map_err(jwks_refused)
        }
    }
}

impl Content {
    fn read(self, setting: &str) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Itself(bytes) => Ok(bytes),
            Self::File(path) => std::fs::read(&path).map_err(|error| {
                let message = format!("names {}, which cannot be read: {error}", path.display());
                refused(setting, &message)
            }),
        }
    }
}

fn refused(setting: &str, what: &str) -> anyhow::Error {
    Failure::error(Exit::Usage, format!("{setting} {what}"))
}

fn jwks_refused(error: SourceError) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    refused(JWKS, &format!("cannot be used: {error:#}"))
}

/// Starts to verify. A JWKS in a file must be there; one of a server may be out of reach for now.
pub(crate) async fn start(settings: Option<Settings>) -> anyhow::Result<Option<Verifier>> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    if let Some(source) = settings.trust.source()
        && source.is_file()
    {
        source.examine().await.map_err(jwks_refused)?;
    }
    Ok(Some(Verifier::start(settings, Arc::new(SystemClock))))
}

/// Tells whether there are keys, without believing anybody.
pub(crate) async fn examine(settings: &Settings) -> Finding {
    const SUBJECT: &str = "JWTs";
    let Some(source) = settings.trust.source() else {
        return Finding::new(Grade::Fine, SUBJECT, "their key can be used");
    };
    match source.examine().await {
        Ok(1) => Finding::new(Grade::Fine, SUBJECT, "the JWKS holds 1 key"),
        Ok(count) => Finding::new(Grade::Fine, SUBJECT, format!("the JWKS holds {count} keys")),
        Err(error) => Finding::new(
            Grade::Problem,
            SUBJECT,
            format!("the JWKS cannot be used: {:#}", anyhow::Error::new(error)),
        ),
    }
}
