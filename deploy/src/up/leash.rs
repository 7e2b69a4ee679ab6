//! Ties a program to its parent: when the parent dies, however it dies, so does the program.
//!
//! The kernel keeps the wish across `exec`, so this process asks for it and then becomes the program. It needs
//! no `unsafe`, which a hook between fork and exec would.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Whom to follow, and what to become.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Process id of the parent.
    parent: i32,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Becomes the program; returns only when that fails.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot tie to parent: {error}"))?;
    // It may have died before the kernel knew of the wish.
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(args.parent) {
        return Ok(ExitCode::FAILURE);
    }
    let error = Command::new(&args.program[0]).args(&args.program[1..]).exec();
    Err(format!("cannot run {}: {error}", args.program[0].display()))
}
