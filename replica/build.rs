//! Tells the program which CUDA toolkit it was built with: `flotilla-replica --version` says so, and
//! `flotilla doctor` holds it against the driver.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    for variable in ["NVCC", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDARC_CUDA_VERSION"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    let version = match (std::env::var_os("CARGO_FEATURE_CUDA").is_some(), toolkit()) {
        (false, _) => version.to_owned(),
        (true, Some(cuda)) => format!("{version} (cuda {cuda})"),
        (true, None) => format!("{version} (cuda)"),
    };
    println!("cargo::rustc-env=FLOTILLA_VERSION={version}");
}

/// As `12.8`: what the compiler of the kernels says, else what the bindings were told to be made for.
fn toolkit() -> Option<String> {
    let homes = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].into_iter().filter_map(std::env::var_os);
    let named = std::env::var_os("NVCC").map(PathBuf::from);
    let compilers = named
        .into_iter()
        .chain(homes.map(|home| PathBuf::from(home).join("bin/nvcc")))
        .chain([PathBuf::from("nvcc")]);
    let said = compilers.filter_map(|compiler| {
        let output = Command::new(compiler).arg("--version").output().ok()?;
        release(&String::from_utf8_lossy(&output.stdout))
    });
    said.into_iter().next().or_else(|| {
        // As `12080`: thousands of the major number, tens of the minor one.
        let number: u32 = std::env::var("CUDARC_CUDA_VERSION").ok()?.parse().ok()?;
        Some(format!("{}.{}", number / 1000, number % 1000 / 10))
    })
}

/// From `Cuda compilation tools, release 12.8, V12.8.93`.
fn release(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("release ")?;
    Some(rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect())
}
