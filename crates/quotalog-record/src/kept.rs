//! Kept answers as bytes: a version, then numbers as LEB128 and texts behind their length.
//!
//! Version 2 holds equal quotas of a batch once, and for each of its items which of them is the item's. Version
//! 1 held each item's quota by itself, and fingerprints of any length; it is read, and no longer written.
//!
//! What cannot be read is never taken for absent: the request it belongs to would be counted twice.

use std::collections::HashMap;

use quotalog_domain::{
    Answer, DefaultPolicy, Fingerprint, KeptAnswer, Limit, Pair, Policy, Quota, Resource, Source,
    Timestamp, UserId, Window,
};

/// The bytes are not a kept answer of a version that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kept answer is damaged or of a newer version")]
pub struct Unreadable;

const VERSION: u8 = 2;
const VERSION_WITH_REPEATS: u8 = 1;

/// An answer that no request matches, so that the one it was kept for is refused.
///
/// A fingerprint starts with a text or has 8 bytes or none; this one does neither.
#[must_use]
pub fn unmatched() -> KeptAnswer {
    KeptAnswer {
        fingerprint: Fingerprint::from_bytes(vec![0xff]),
        answer: Answer::Deleted,
    }
}

/// The answer as bytes.
#[must_use]
pub fn encode(kept: &KeptAnswer) -> Vec<u8> {
    let mut bytes = Writer(Vec::with_capacity(128));
    bytes.byte(VERSION);
    bytes.bytes(kept.fingerprint.as_bytes());
    match &kept.answer {
        Answer::Quota(quota) => {
            bytes.byte(0);
            bytes.quota(quota);
        }
        Answer::Quotas(quotas) => {
            bytes.byte(1);
            bytes.quotas(quotas);
        }
        Answer::Default(default) => {
            bytes.byte(2);
            bytes.bytes(default.resource.as_str().as_bytes());
            bytes.policy(&default.policy);
        }
        Answer::Deleted => bytes.byte(3),
        Answer::Limits(quotas) => {
            bytes.byte(4);
            bytes.length(quotas.len());
            for quota in quotas {
                bytes.byte(u8::from(quota.is_some()));
                quota.iter().for_each(|quota| bytes.quota(quota));
            }
        }
    }
    bytes.0
}

/// The answer that [`encode`] made bytes of.
///
/// # Errors
/// [`Unreadable`] when they are damaged or of a newer version.
pub fn decode(bytes: &[u8]) -> Result<KeptAnswer, Unreadable> {
    let mut bytes = Reader(bytes);
    let has_repeats = match bytes.byte()? {
        VERSION => false,
        VERSION_WITH_REPEATS => true,
        _ => return Err(Unreadable),
    };
    let fingerprint = Fingerprint::from_bytes(bytes.bytes()?.to_vec());
    let answer = match bytes.byte()? {
        0 => Answer::Quota(bytes.quota()?),
        1 if has_repeats => Answer::Quotas(bytes.each(Reader::quota)?),
        1 => Answer::Quotas(bytes.quotas()?),
        2 => Answer::Default(DefaultPolicy {
            resource: bytes.resource()?,
            policy: bytes.policy()?,
        }),
        3 => Answer::Deleted,
        4 => {
            let len = bytes.number()?;
            Answer::Limits((0..len).map(|_| bytes.limit()).collect::<Result<_, _>>()?)
        }
        _ => return Err(Unreadable),
    };
    if bytes.0.is_empty() {
        Ok(KeptAnswer {
            fingerprint,
            answer,
        })
    } else {
        Err(Unreadable)
    }
}

/// Whether the kept answer tells of a quota of this user; only one that holds the bytes of the user's id can.
/// What is unreadable names nobody that one could know of; it ends with its retention.
#[must_use]
pub fn names(bytes: &[u8], user_id: &str) -> bool {
    let quotas = match decode(bytes).map(|kept| kept.answer) {
        Ok(Answer::Quota(quota)) => vec![quota],
        Ok(Answer::Quotas(quotas)) => quotas,
        Ok(Answer::Limits(quotas)) => quotas.into_iter().flatten().collect(),
        Ok(Answer::Default(_) | Answer::Deleted) | Err(Unreadable) => Vec::new(),
    };
    quotas
        .iter()
        .any(|quota| quota.pair.user_id.as_str() == user_id)
}

struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(low_7_bits(number) | 0x80);
            number >>= 7;
        }
        self.0.push(low_7_bits(number));
    }

    /// Zigzag: numbers near 0 are short, whatever their sign.
    fn signed(&mut self, number: i64) {
        self.number((number << 1).cast_unsigned() ^ (number >> 63).cast_unsigned());
    }

    fn length(&mut self, len: usize) {
        self.number(u64::try_from(len).unwrap_or(u64::MAX));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn quotas(&mut self, quotas: &[Quota]) {
        let mut distinct: Vec<Vec<u8>> = Vec::new();
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let places: Vec<usize> = quotas
            .iter()
            .map(|quota| {
                let mut bytes = Self(Vec::with_capacity(64));
                bytes.quota(quota);
                *places.entry(bytes.0).or_insert_with_key(|bytes| {
                    distinct.push(bytes.clone());
                    distinct.len() - 1
                })
            })
            .collect();
        self.length(distinct.len());
        distinct.iter().for_each(|bytes| self.0.extend(bytes));
        self.length(places.len());
        places.iter().for_each(|place| self.length(*place));
    }

    fn policy(&mut self, policy: &Policy) {
        self.byte(match policy.window {
            Window::Hourly => 0,
            Window::Daily => 1,
        });
        self.number(policy.limit.get());
        self.signed(policy.created_at.unix_s());
        self.signed(policy.updated_at.unix_s());
    }

    fn quota(&mut self, quota: &Quota) {
        self.bytes(quota.pair.user_id.as_str().as_bytes());
        self.bytes(quota.pair.resource.as_str().as_bytes());
        self.policy(&quota.policy);
        self.byte(match quota.source {
            Source::Policy => 0,
            Source::Default => 1,
        });
        self.number(quota.usage);
        self.byte(u8::from(quota.allowed));
        self.signed(quota.at.unix_us());
    }
}

fn low_7_bits(number: u64) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or(0)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, Unreadable> {
        let (&byte, rest) = self.0.split_first().ok_or(Unreadable)?;
        self.0 = rest;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, Unreadable> {
        let mut number: u64 = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits.leading_zeros() < shift {
                return Err(Unreadable);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Unreadable)
    }

    fn signed(&mut self) -> Result<i64, Unreadable> {
        let number = self.number()?;
        let sign = if number & 1 == 1 { -1 } else { 0 };
        Ok((number >> 1).cast_signed() ^ sign)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let len = usize::try_from(self.number()?).map_err(|_| Unreadable)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Unreadable)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'a str, Unreadable> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unreadable)
    }

    /// A number, and so many things.
    fn each<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, Unreadable>,
    ) -> Result<Vec<T>, Unreadable> {
        let len = self.number()?;
        (0..len).map(|_| read(self)).collect()
    }

    fn quotas(&mut self) -> Result<Vec<Quota>, Unreadable> {
        let distinct = self.each(Self::quota)?;
        self.each(|bytes| {
            let place = usize::try_from(bytes.number()?).map_err(|_| Unreadable)?;
            distinct.get(place).cloned().ok_or(Unreadable)
        })
    }

    fn resource(&mut self) -> Result<Resource, Unreadable> {
        Resource::try_from(self.text()?).map_err(|_| Unreadable)
    }

    fn policy(&mut self) -> Result<Policy, Unreadable> {
        let window = match self.byte()? {
            0 => Window::Hourly,
            1 => Window::Daily,
            _ => return Err(Unreadable),
        };
        let limit = i64::try_from(self.number()?).map_err(|_| Unreadable)?;
        Ok(Policy {
            window,
            limit: Limit::stored(limit).map_err(|_| Unreadable)?,
            created_at: Timestamp::from_unix_s(self.signed()?),
            updated_at: Timestamp::from_unix_s(self.signed()?),
        })
    }

    fn limit(&mut self) -> Result<Option<Quota>, Unreadable> {
        match self.byte()? {
            0 => Ok(None),
            1 => self.quota().map(Some),
            _ => Err(Unreadable),
        }
    }

    fn quota(&mut self) -> Result<Quota, Unreadable> {
        let user_id = UserId::try_from(self.text()?).map_err(|_| Unreadable)?;
        let resource = self.resource()?;
        let policy = self.policy()?;
        let source = match self.byte()? {
            0 => Source::Policy,
            1 => Source::Default,
            _ => return Err(Unreadable),
        };
        Ok(Quota {
            pair: Pair { user_id, resource },
            policy,
            source,
            usage: self.number()?,
            allowed: match self.byte()? {
                0 => false,
                1 => true,
                _ => return Err(Unreadable),
            },
            at: Timestamp::from_unix_us(self.signed()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(window: Window, limit: i64, created_s: i64) -> Policy {
        Policy {
            window,
            limit: Limit::stored(limit).unwrap(),
            created_at: Timestamp::from_unix_s(created_s),
            updated_at: Timestamp::from_unix_s(created_s + 1),
        }
    }

    fn quota(user: &str, usage: u64, at_us: i64) -> Quota {
        Quota {
            pair: Pair {
                user_id: UserId::try_from(user).unwrap(),
                resource: Resource::try_from("日本語").unwrap(),
            },
            policy: policy(Window::Daily, i64::MAX, 1_796_061_600),
            source: Source::Default,
            usage,
            allowed: usage == 0,
            at: Timestamp::from_unix_us(at_us),
        }
    }

    fn answers() -> Vec<Answer> {
        vec![
            Answer::Quota(quota("alice", 0, 1_796_061_600_123_456)),
            Answer::Quota(quota(&"x".repeat(255), i64::MAX.unsigned_abs(), -1)),
            Answer::Quotas(vec![]),
            Answer::Quotas((0..100).map(|usage| quota("o'neil", usage, -5)).collect()),
            Answer::Default(DefaultPolicy {
                resource: Resource::try_from("r").unwrap(),
                policy: policy(Window::Hourly, 1, -62_135_596_800),
            }),
            Answer::Limits(vec![None, Some(quota("alice", 7, 1)), None]),
            Answer::Deleted,
        ]
    }

    fn kept(answer: Answer) -> KeptAnswer {
        KeptAnswer {
            fingerprint: Fingerprint::from_bytes(vec![0, 1, 255]),
            answer,
        }
    }

    #[test]
    fn an_answer_is_read_as_it_was_kept() {
        for answer in answers() {
            let kept = kept(answer);
            assert_eq!(decode(&encode(&kept)), Ok(kept));
        }
        assert_eq!(decode(&encode(&unmatched())), Ok(unmatched()));
    }

    /// As version 1 wrote it, whose fingerprints had any length.
    fn encode_with_repeats(quotas: &[Quota], fingerprint: &[u8]) -> Vec<u8> {
        let mut bytes = Writer(vec![VERSION_WITH_REPEATS]);
        bytes.bytes(fingerprint);
        bytes.byte(1);
        bytes.length(quotas.len());
        quotas.iter().for_each(|quota| bytes.quota(quota));
        bytes.0
    }

    #[test]
    fn what_version_1_kept_is_read() {
        let quotas = vec![quota("u", 3, 7), quota("v", 0, 7), quota("u", 3, 7)];
        let canonical = b"u/r/12345678v/r/12345678u/r/12345678";
        let read = decode(&encode_with_repeats(&quotas, canonical)).unwrap();
        assert_eq!(read.answer, Answer::Quotas(quotas));
        assert_eq!(
            read.fingerprint,
            Fingerprint::from_bytes(canonical.to_vec())
        );
        let simple = encode(&kept(Answer::Quota(quota("u", 3, 7))));
        let mut of_version_1 = simple.clone();
        of_version_1[0] = VERSION_WITH_REPEATS;
        assert_eq!(decode(&of_version_1), decode(&simple));
    }

    #[test]
    fn equal_quotas_are_kept_once() {
        let long = "x".repeat(255);
        let quotas = |len: u64| (0..len).map(|_| quota(&long, 7, 1)).collect();
        let one = encode(&kept(Answer::Quotas(quotas(1))));
        let hundred = encode(&kept(Answer::Quotas(quotas(100))));
        assert_eq!(hundred.len(), one.len() + 99, "a place each");
    }

    #[test]
    fn a_place_without_a_quota_is_unreadable() {
        let mut bytes = encode(&kept(Answer::Quotas(vec![quota("u", 0, 0)])));
        let last = bytes.pop();
        assert_eq!(last, Some(0), "the place of the only item");
        bytes.push(1);
        assert_eq!(decode(&bytes), Err(Unreadable));
    }

    #[test]
    fn an_answer_names_its_users_and_no_others() {
        for bytes in [
            encode_with_repeats(&[quota("u", 0, 0), quota("v", 0, 0)], b"w/"),
            encode(&kept(Answer::Quotas(vec![
                quota("u", 0, 0),
                quota("v", 0, 0),
            ]))),
        ] {
            for (user, is_named) in [("u", true), ("v", true), ("w", false), ("", false)] {
                assert_eq!(names(&bytes, user), is_named, "{user}");
            }
        }
        let single = encode(&kept(Answer::Quota(quota("u", 0, 0))));
        assert!(names(&single, "u") && !names(&single, "日本語"));
        assert!(!names(b"", "u"));
    }

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for number in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::MAX >> 1, u64::MAX] {
            let mut bytes = Writer(Vec::new());
            bytes.number(number);
            bytes.signed(number.cast_signed());
            let mut bytes = Reader(&bytes.0);
            assert_eq!(bytes.number(), Ok(number));
            assert_eq!(bytes.signed(), Ok(number.cast_signed()));
        }
        assert_eq!(Reader(&[0xff; 11]).number(), Err(Unreadable));
        assert_eq!(Reader(&[0x80; 9]).number(), Err(Unreadable));
    }

    #[test]
    fn what_is_damaged_or_newer_is_unreadable() {
        for answer in answers() {
            let bytes = encode(&kept(answer));
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len]), Err(Unreadable), "cut at {len}");
            }
            let mut longer = bytes.clone();
            longer.push(0);
            assert_eq!(decode(&longer), Err(Unreadable));
            let mut newer = bytes;
            newer[0] = VERSION + 1;
            assert_eq!(decode(&newer), Err(Unreadable));
        }
    }
}
