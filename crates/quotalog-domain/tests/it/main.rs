//! The domain's behaviour as a whole: tables that can be read as a specification, and random histories
//! against a naive model.

mod decisions;
mod map_store;
mod model;
mod properties;
mod script;
