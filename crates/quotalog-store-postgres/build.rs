//! Tells Cargo that the migrations are part of the crate: the macro that embeds them cannot tell that a
//! file was added.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
