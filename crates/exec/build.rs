//! Builds the guest for any Linux of this processor and leaves it where `embed.rs` takes it from.
#![expect(clippy::disallowed_methods, reason = "a build script talks to cargo through its environment")]

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use sha2::{Digest, Sha256};

fn main() -> Result<(), Box<dyn Error>> {
    for path in ["../guest/src", "../guest/Cargo.toml", "../types/src", "../../Cargo.lock", "build.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let target = env::var("TARGET")?;
    // A directory of its own: the outer cargo holds the lock of the other one.
    let work = out.join("guest-target");
    let status = Command::new(env::var("CARGO")?)
        .args([
            "build",
            "--locked",
            "--package",
            "hermes-guest",
            "--bin",
            "hermes-guest",
            "--profile",
            "guest",
        ])
        .args(["--target", &target, "--target-dir"])
        .arg(&work)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        return Err(format!("the guest could not be built: {status}").into());
    }
    let program = fs::read(work.join(&target).join("guest").join("hermes-guest"))?;
    let mut hash = String::new();
    for byte in Sha256::digest(&program).iter().take(8) {
        write!(hash, "{byte:02x}")?;
    }
    fs::write(out.join("hermes-guest"), program)?;
    println!("cargo::rustc-env=HERMES_GUEST_HASH={hash}");
    Ok(())
}
