//! Roles, and what each of them may do.

use quotalog_domain::UserId;

/// What a caller may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// Support: reads every quota and default, changes nothing.
    Viewer,
    /// A gateway: checks, consumes and refunds for every user.
    Service,
    /// One user: its own checks, lists, usage and consumes.
    User(UserId),
}

/// The kind of a role, without the user it may be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleKind {
    /// See [`Role::Admin`].
    Admin,
    /// See [`Role::Viewer`].
    Viewer,
    /// See [`Role::Service`].
    Service,
    /// See [`Role::User`].
    User,
}

/// Why a kind and a user do not make a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// The text names no role.
    #[error("role must be one of: admin, viewer, service, user.")]
    Unknown,
    /// A `user` role without a user.
    #[error("user_id is required for the role user.")]
    UserMissing,
    /// A user beside a role that is bound to none.
    #[error("user_id is only for the role user.")]
    UserRefused,
}

/// Something that needs a permission. User ids are as the caller wrote them, since a permission is judged
/// before the id's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// Reads the quotas of one user.
    ReadUser(&'a str),
    /// Consumes units of one user.
    Consume(&'a str),
    /// Consumes units of users that are named later, in the body.
    ConsumeForSome,
    /// Consumes units of whichever user, as a proxy does.
    ConsumeForAll,
    /// Gives units back.
    Refund,
    /// Reads the quotas of all users.
    ReadAll,
    /// Reads the defaults.
    ReadDefaults,
    /// Sets and deletes policies and defaults, resets usage, manages tokens, erases users, reads the
    /// audit and the metrics.
    Administer,
}

impl Role {
    /// The role of `kind`, bound to `user_id` if it is a user's.
    ///
    /// # Errors
    /// [`RoleError`] when a user is missing, or given to a role that has none.
    pub fn new(kind: RoleKind, user_id: Option<UserId>) -> Result<Self, RoleError> {
        match (kind, user_id) {
            (RoleKind::User, Some(user_id)) => Ok(Self::User(user_id)),
            (RoleKind::User, None) => Err(RoleError::UserMissing),
            (RoleKind::Admin | RoleKind::Viewer | RoleKind::Service, Some(_)) => {
                Err(RoleError::UserRefused)
            }
            (RoleKind::Admin, None) => Ok(Self::Admin),
            (RoleKind::Viewer, None) => Ok(Self::Viewer),
            (RoleKind::Service, None) => Ok(Self::Service),
        }
    }

    /// The kind of this role.
    #[must_use]
    pub fn kind(&self) -> RoleKind {
        match self {
            Self::Admin => RoleKind::Admin,
            Self::Viewer => RoleKind::Viewer,
            Self::Service => RoleKind::Service,
            Self::User(_) => RoleKind::User,
        }
    }

    /// The user this role is bound to.
    #[must_use]
    pub fn user_id(&self) -> Option<&UserId> {
        match self {
            Self::User(user_id) => Some(user_id),
            Self::Admin | Self::Viewer | Self::Service => None,
        }
    }

    /// Whether this role allows `action`.
    #[must_use]
    pub fn may(&self, action: Action<'_>) -> bool {
        match (self, action) {
            (Self::Admin, _)
            | (Self::Viewer, Action::ReadUser(_) | Action::ReadAll | Action::ReadDefaults)
            | (
                Self::Service,
                Action::ReadUser(_)
                | Action::Consume(_)
                | Action::ConsumeForSome
                | Action::ConsumeForAll
                | Action::Refund
                | Action::ReadDefaults,
            )
            | (Self::User(_), Action::ConsumeForSome) => true,
            (Self::User(own), Action::ReadUser(user_id) | Action::Consume(user_id)) => {
                own.as_str() == user_id
            }
            (Self::Viewer | Self::Service | Self::User(_), _) => false,
        }
    }
}

impl RoleKind {
    /// All kinds, for help texts.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Viewer, Self::Service, Self::User];

    /// The kind's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Viewer => "viewer",
            Self::Service => "service",
            Self::User => "user",
        }
    }
}

impl TryFrom<&str> for RoleKind {
    type Error = RoleError;

    fn try_from(text: &str) -> Result<Self, RoleError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(RoleError::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_what_the_contract_says() {
        let alice = || UserId::try_from("alice").unwrap();
        let roles = [
            Role::Admin,
            Role::Viewer,
            Role::Service,
            Role::User(alice()),
        ];
        let check = |action: Action<'_>, allowed: [bool; 4]| {
            for (role, allowed) in roles.iter().zip(allowed) {
                assert_eq!(role.may(action), allowed, "{role:?} {action:?}");
            }
        };
        //                                     admin  viewer service user alice
        check(Action::ReadUser("alice"), [true, true, true, true]);
        check(Action::ReadUser("bob"), [true, true, true, false]);
        check(Action::ReadUser("Alice"), [true, true, true, false]);
        check(Action::Consume("alice"), [true, false, true, true]);
        check(Action::Consume("bob"), [true, false, true, false]);
        check(Action::ConsumeForSome, [true, false, true, true]);
        check(Action::ConsumeForAll, [true, false, true, false]);
        check(Action::Refund, [true, false, true, false]);
        check(Action::ReadAll, [true, true, false, false]);
        check(Action::ReadDefaults, [true, true, true, false]);
        check(Action::Administer, [true, false, false, false]);
    }

    #[test]
    fn only_a_user_role_has_a_user() {
        let alice = || Some(UserId::try_from("alice").unwrap());
        assert_eq!(Role::new(RoleKind::User, None), Err(RoleError::UserMissing));
        assert_eq!(
            Role::new(RoleKind::Admin, alice()),
            Err(RoleError::UserRefused)
        );
        assert!(Role::new(RoleKind::User, alice()).is_ok());
        assert_eq!(RoleKind::try_from("Admin"), Err(RoleError::Unknown));
    }
}
