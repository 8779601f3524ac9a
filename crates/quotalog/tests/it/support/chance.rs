//! Chance that can be repeated: the same seed gives the same numbers.

use std::hash::{BuildHasher as _, RandomState};

/// A source of numbers (`SplitMix64`, by Steele, Lea and Flood).
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// A source from the variable `SEED`, or from a seed that is printed if the test fails.
    pub(crate) fn new() -> Self {
        let seed = std::env::var("SEED").map_or_else(
            |_not_set| RandomState::new().hash_one(0),
            |seed| seed.parse().expect("SEED is a number"),
        );
        eprintln!("to meet the same chances again: SEED={seed}");
        Self(seed)
    }

    /// Another source, which depends on this one's seed.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap();
        usize::try_from(self.next() % end).unwrap()
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
