//! Issuers of JWTs, whose keys and signatures are openssl's: another hand than the one that verifies them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quotalog_domain::Timestamp;
use quotalog_jwt::{Expected, RoleClaim, Settings, Trust};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::skipped;

/// Whom the tokens of tests are for.
pub(crate) const AUDIENCE: &str = "quotalog";

/// How an issuer signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Hs256,
    Rs256,
    Es256,
    EdDsa,
}

/// An issuer and its key.
pub(crate) struct Issuer {
    pub(crate) kind: Kind,
    folder: TempDir,
    /// What its name is, if it names itself.
    pub(crate) name: Option<&'static str>,
}

/// A part of a token.
pub(crate) fn part(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Whether there is an openssl; a test that needs it goes on only so.
#[track_caller]
pub(crate) fn has_openssl() -> bool {
    let there = Command::new("openssl").arg("version").output().is_ok();
    if !there {
        skipped("there is no openssl");
    }
    there
}

#[track_caller]
fn openssl(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output.stdout
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Hs256, Self::Rs256, Self::Es256, Self::EdDsa];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }
}

impl Issuer {
    /// A new one.
    pub(crate) fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let issuer = Self {
            kind,
            folder,
            name: None,
        };
        let key = issuer.path("key.pem");
        let generate: &[&str] = match kind {
            Kind::Hs256 => {
                let secret = openssl(&["rand", "-hex", "32"]);
                std::fs::write(issuer.secret_file(), secret).unwrap();
                return issuer;
            }
            Kind::Rs256 => &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            Kind::Es256 => &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            Kind::EdDsa => &["-algorithm", "ED25519"],
        };
        openssl(&[&["genpkey", "-out", &key], generate].concat());
        openssl(&[
            "pkey",
            "-in",
            &key,
            "-pubout",
            "-out",
            &issuer.path("public.pem"),
        ]);
        issuer
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The file with the secret, and a line break at its end.
    pub(crate) fn secret_file(&self) -> PathBuf {
        self.folder.path().join("secret")
    }

    /// The private key.
    pub(crate) fn private_key_file(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// The public key.
    pub(crate) fn public_key_file(&self) -> PathBuf {
        self.folder.path().join("public.pem")
    }

    pub(crate) fn secret(&self) -> Vec<u8> {
        let secret = std::fs::read(self.secret_file()).unwrap();
        secret.strip_suffix(b"\n").unwrap().to_vec()
    }

    pub(crate) fn public_key(&self) -> Vec<u8> {
        std::fs::read(self.public_key_file()).unwrap()
    }

    /// A server's settings that believe this issuer.
    pub(crate) fn settings(&self, role_claim: Option<&str>) -> Settings {
        let trust = match self.kind {
            Kind::Hs256 => Trust::secret(&self.secret()),
            Kind::Rs256 | Kind::Es256 | Kind::EdDsa => Trust::public_key(&self.public_key()),
        };
        Settings {
            trust: trust.unwrap(),
            expected: Expected {
                audience: AUDIENCE.to_owned(),
                issuer: self.name.map(str::to_owned),
                role_claim: role_claim.map(RoleClaim::from),
            },
        }
    }

    /// What a good token of `subject` says, for an hour after `now`.
    pub(crate) fn claims(&self, subject: &str, now: Timestamp) -> Value {
        let mut claims = json!({
            "sub": subject, "aud": AUDIENCE, "iat": now.unix_s(), "exp": now.unix_s() + 3_600,
        });
        if let Some(name) = self.name {
            claims["iss"] = name.into();
        }
        claims
    }

    /// A good token.
    pub(crate) fn token(&self, subject: &str, now: Timestamp) -> String {
        self.token_that_claims(&self.claims(subject, now))
    }

    pub(crate) fn token_that_claims(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": self.kind.name(), "typ": "JWT"}), claims)
    }

    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    pub(crate) fn sign_text(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", part(header), part(claims));
        format!("{message}.{}", part(self.signature(&message)))
    }

    /// This key's signature over any message, as JOSE has it.
    pub(crate) fn signature(&self, message: &str) -> Vec<u8> {
        let (key, file) = (self.path("key.pem"), self.path("message"));
        std::fs::write(&file, message).unwrap();
        match self.kind {
            Kind::Hs256 => hs256(&self.secret(), message),
            Kind::Rs256 => openssl(&["dgst", "-sha256", "-sign", &key, &file]),
            Kind::Es256 => {
                let der = openssl(&["dgst", "-sha256", "-sign", &key, &file]);
                let (r, rest) = integer(&der[2..]);
                let (s, []) = integer(rest) else {
                    panic!("{der:?}");
                };
                [r, s].concat()
            }
            Kind::EdDsa => openssl(&["pkeyutl", "-sign", "-inkey", &key, "-rawin", "-in", &file]),
        }
    }

    /// The public key as an entry of a JWKS.
    pub(crate) fn jwk(&self, id: &str) -> Value {
        let file = self.path("public.pem");
        let der = openssl(&["pkey", "-pubin", "-in", &file, "-outform", "DER"]);
        let last = |len: usize| &der[der.len() - len..];
        match self.kind {
            Kind::Hs256 => json!({"kty": "oct", "kid": id, "k": part(self.secret())}),
            Kind::Rs256 => {
                let modulus = openssl(&["rsa", "-pubin", "-in", &file, "-noout", "-modulus"]);
                let modulus = String::from_utf8(modulus).unwrap();
                let hex = modulus.trim().strip_prefix("Modulus=").unwrap();
                let bytes = (0..hex.len()).step_by(2);
                let n: Vec<u8> = bytes
                    .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                    .collect();
                json!({"kty": "RSA", "kid": id, "use": "sig", "alg": "RS256", "n": part(n), "e": "AQAB"})
            }
            Kind::Es256 => {
                let (x, y) = last(64).split_at(32);
                json!({"kty": "EC", "crv": "P-256", "kid": id, "x": part(x), "y": part(y)})
            }
            Kind::EdDsa => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": part(last(32))})
            }
        }
    }
}

/// HMAC-SHA-256 with any key.
pub(crate) fn hs256(key: &[u8], message: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("message");
    std::fs::write(&file, message).unwrap();
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("hexkey:{hex}");
    let file = file.to_str().unwrap();
    openssl(&[
        "dgst", "-sha256", "-mac", "HMAC", "-macopt", &key, "-binary", file,
    ])
}

/// A number of DER as 32 bytes, and what follows it.
fn integer(der: &[u8]) -> (Vec<u8>, &[u8]) {
    let len = usize::from(der[1]);
    let (number, rest) = der[2..].split_at(len);
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let number = &number[zeros..];
    ([&vec![0; 32 - number.len()][..], number].concat(), rest)
}
