//! From the message of a call to the hits that it stands for. Its faults are told all at once.

use std::fmt;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use quotalog_domain::{Amount, Hit, IdError, Pair, Resource, UserId};

/// The most descriptors of a call, as of the items of a batch.
const DESCRIPTORS_MAX: usize = 100;

/// How many faults are told of a call; the text of a status is a header field, which callers bound.
const FAULTS_TOLD_MAX: usize = 10;

/// Which entries of a descriptor name its pair.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The key of the entry that names the user.
    pub user: String,
    /// The key of the entry that names the resource; where there is none, the domain of the call is the resource.
    pub resource: String,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            user: "user_id".to_owned(),
            resource: "resource".to_owned(),
        }
    }
}

/// The hits of a call, in the order of its descriptors, or what is wrong with it.
pub(crate) fn hits(keys: &Keys, request: &RateLimitRequest) -> Result<Vec<Hit>, String> {
    let mut faults = Faults::default();
    if request.domain.is_empty() {
        faults.add("domain must not be empty.");
    }
    if request.descriptors.is_empty() {
        faults.add("descriptors must not be empty.");
    }
    if request.descriptors.len() > DESCRIPTORS_MAX {
        faults.add("descriptors must not be more than 100.");
        return Err(faults.told());
    }
    // A field that was left out is read as 0.
    let amount = match request.hits_addend {
        0 => Some(Amount::ONE),
        units => checked(format_args!("hits_addend"), units.into(), &mut faults),
    };
    let mut hits = Vec::with_capacity(request.descriptors.len());
    for (position, descriptor) in request.descriptors.iter().enumerate() {
        let place = Place(position);
        let pair = pair(keys, request, descriptor, place, &mut faults);
        let amount = own_amount(descriptor, amount, place, &mut faults);
        hits.extend(pair.map(|pair| Hit { pair, amount }));
    }
    if faults.all.is_empty() {
        Ok(hits)
    } else {
        Err(faults.told())
    }
}

fn pair(
    keys: &Keys,
    request: &RateLimitRequest,
    descriptor: &RateLimitDescriptor,
    place: Place,
    faults: &mut Faults,
) -> Option<Pair> {
    let user = entry(descriptor, &keys.user, place, faults);
    let resource = entry(descriptor, &keys.resource, place, faults);
    let user_id = match user {
        Found::Once(value) => read::<UserId>(value, place, &keys.user, faults),
        Found::Never => {
            faults.add(format!("{place} must have an entry {}.", keys.user));
            None
        }
        Found::Again => None,
    };
    let resource = match resource {
        Found::Once(value) => read::<Resource>(value, place, &keys.resource, faults),
        // An empty domain has been told of.
        Found::Never if request.domain.is_empty() => None,
        Found::Never => read::<Resource>(&request.domain, place, "resource, the domain,", faults),
        Found::Again => None,
    };
    Some(Pair {
        user_id: user_id?,
        resource: resource?,
    })
}

/// The entries of one key.
enum Found<'a> {
    Never,
    Once(&'a str),
    /// Which of them was meant nobody knows, and the caller is told so.
    Again,
}

fn entry<'a>(
    descriptor: &'a RateLimitDescriptor,
    key: &str,
    place: Place,
    faults: &mut Faults,
) -> Found<'a> {
    let mut entries = descriptor.entries.iter().filter(|entry| entry.key == key);
    match (entries.next(), entries.next()) {
        (None, _) => Found::Never,
        (Some(entry), None) => Found::Once(&entry.value),
        (Some(_), Some(_)) => {
            faults.add(format!("{place} must not have an entry {key} twice."));
            Found::Again
        }
    }
}

fn read<'a, T: TryFrom<&'a str, Error = IdError>>(
    text: &'a str,
    place: Place,
    name: &str,
    faults: &mut Faults,
) -> Option<T> {
    let id = T::try_from(text);
    id.map_err(|error| faults.add(format!("{place}: {name} {error}")))
        .ok()
}

/// What a descriptor asks for: its own addend, of which 0 asks for nothing, or else that of the call.
fn own_amount(
    descriptor: &RateLimitDescriptor,
    of_call: Option<Amount>,
    place: Place,
    faults: &mut Faults,
) -> Option<Amount> {
    if descriptor.is_negative_hits {
        faults.add(format!("{place}: is_negative_hits must not be set."));
    }
    match descriptor.hits_addend {
        None => of_call,
        Some(units) if units.value == 0 => None,
        Some(units) => checked(format_args!("{place}: hits_addend"), units.value, faults),
    }
}

fn checked(name: fmt::Arguments<'_>, units: u64, faults: &mut Faults) -> Option<Amount> {
    let amount = Amount::try_from(units);
    amount
        .map_err(|_too_large| faults.add(format!("{name} must not exceed 1000000.")))
        .ok()
}

/// A descriptor, as faults name it.
#[derive(Clone, Copy)]
struct Place(usize);

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "descriptors[{}]", self.0)
    }
}

#[derive(Default)]
struct Faults {
    all: Vec<String>,
}

impl Faults {
    fn add(&mut self, fault: impl Into<String>) {
        self.all.push(fault.into());
    }

    fn told(self) -> String {
        let told = self.all.len().min(FAULTS_TOLD_MAX);
        let mut text = self.all[..told].join(" ");
        if self.all.len() > told {
            text.push_str(&format!(" And {} more.", self.all.len() - told));
        }
        text
    }
}
