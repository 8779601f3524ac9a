//! Amounts and limits: integers with bounds.

/// The units that one consume or refund asks for: 1 to 1 000 000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(u32);

/// The most units that may be consumed in one window, at least 1.
///
/// A limit that is set is at most [`Limit::SETTABLE_MAX`]; one that was stored by an earlier version or
/// another program may be larger and is obeyed as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(u64);

/// Why a number cannot be an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Zero.
    #[error("amount must be a positive integer.")]
    NotPositive,
    /// More than [`Amount::MAX`].
    #[error("amount must not exceed 1000000.")]
    TooLarge,
}

/// Why a number cannot be a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Zero or less.
    #[error("limit_count must be a positive integer.")]
    NotPositive,
    /// More than [`Limit::SETTABLE_MAX`].
    #[error("limit_count must not exceed 1000000.")]
    TooLarge,
}

impl Amount {
    /// One unit: what a consume without a body asks for.
    pub const ONE: Self = Self(1);
    /// The largest amount of one request.
    pub const MAX: Self = Self(1_000_000);

    /// The number of units.
    #[must_use]
    pub fn get(self) -> u64 {
        u64::from(self.0)
    }
}

impl TryFrom<u64> for Amount {
    type Error = AmountError;

    fn try_from(units: u64) -> Result<Self, AmountError> {
        match u32::try_from(units) {
            Ok(0) => Err(AmountError::NotPositive),
            Ok(units) if units <= Self::MAX.0 => Ok(Self(units)),
            Ok(_) | Err(_) => Err(AmountError::TooLarge),
        }
    }
}

impl Limit {
    /// The largest limit that a policy can be given.
    pub const SETTABLE_MAX: Self = Self(1_000_000);

    /// A limit that someone asks for.
    ///
    /// # Errors
    /// [`LimitError`] when it lies outside `1..=1_000_000`.
    pub fn settable(units: u64) -> Result<Self, LimitError> {
        match units {
            0 => Err(LimitError::NotPositive),
            units if units <= Self::SETTABLE_MAX.0 => Ok(Self(units)),
            _ => Err(LimitError::TooLarge),
        }
    }

    /// A limit found in a store, which may be above [`Limit::SETTABLE_MAX`].
    ///
    /// # Errors
    /// [`LimitError::NotPositive`] when it is 0 or less.
    pub fn stored(units: i64) -> Result<Self, LimitError> {
        match u64::try_from(units) {
            Ok(0) | Err(_) => Err(LimitError::NotPositive),
            Ok(units) => Ok(Self(units)),
        }
    }

    /// The number of units, at most [`i64::MAX`].
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_1_to_1000000() {
        assert_eq!(Amount::try_from(0), Err(AmountError::NotPositive));
        assert_eq!(Amount::try_from(1), Ok(Amount::ONE));
        assert_eq!(Amount::try_from(1_000_000), Ok(Amount::MAX));
        assert_eq!(Amount::try_from(1_000_001), Err(AmountError::TooLarge));
        assert_eq!(Amount::try_from(u64::MAX), Err(AmountError::TooLarge));
    }

    #[test]
    fn a_limit_is_set_to_1_to_1000000_and_stored_above() {
        assert_eq!(Limit::settable(0), Err(LimitError::NotPositive));
        assert_eq!(Limit::settable(1).map(Limit::get), Ok(1));
        assert_eq!(Limit::settable(1_000_000), Ok(Limit::SETTABLE_MAX));
        assert_eq!(Limit::settable(1_000_001), Err(LimitError::TooLarge));
        assert_eq!(Limit::stored(0), Err(LimitError::NotPositive));
        assert_eq!(Limit::stored(-1), Err(LimitError::NotPositive));
        assert_eq!(
            Limit::stored(i64::MAX).map(Limit::get),
            Ok(i64::MAX.unsigned_abs())
        );
    }
}
