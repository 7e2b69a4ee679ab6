//! `flotilla up`: a gateway and its replicas on this machine, supervised until Ctrl-C.
//!
//! [`layout`] decides which replicas, [`fleet`] writes their command lines, [`supervise`] decides when one that
//! ended is started again: all pure. [`child`], [`ports`], [`leash`] and [`console`] touch the world.

mod child;
mod console;
mod fleet;
mod greeting;
pub mod layout;
pub mod leash;
pub mod ports;
mod run;
mod settings;
mod supervise;

pub use run::run;
pub use settings::Args;
