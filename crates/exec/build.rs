//! Builds the guest as a static program for this architecture; `embed.rs` includes it.
#![expect(clippy::disallowed_methods, reason = "a build script talks to cargo through its environment")]

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// The guest never unwinds. Without the tables the program is a sixth smaller.
const WITHOUT_UNWINDING: &str =
    "SECTIONS { /DISCARD/ : { *(.eh_frame .eh_frame_hdr .gcc_except_table*) } } INSERT AFTER .text;";

fn main() -> Result<(), Box<dyn Error>> {
    for path in [
        "../guest/src", "../guest/Cargo.toml", "../types/src", "../../Cargo.lock", "../../Cargo.toml",
        "build.rs",
    ] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let target = target()?;
    println!("cargo::rustc-env=HERMES_GUEST_TARGET={target}");
    // Clippy links nothing and has its own build directories, so an empty file suffices.
    if env::var_os("RUSTC_WORKSPACE_WRAPPER").is_some_and(|wrapper| !wrapper.is_empty()) {
        fs::write(out.join("hermes-guest"), "")?;
        println!("cargo::rustc-env=HERMES_GUEST_HASH=");
        return Ok(());
    }
    // Another directory, because the outer cargo holds the lock of its own.
    let work = out.join("guest-target");
    let status = Command::new(env::var("CARGO")?)
        .args([
            "build", "--locked", "--package", "hermes-guest", "--bin", "hermes-guest", "--profile", "guest",
        ])
        .args(["--target", &target, "--target-dir"])
        .arg(&work)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&out)?.join("\x1f"))
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        return Err(format!("the guest could not be built: {status}").into());
    }
    let program = fs::read(work.join(&target).join("guest").join("hermes-guest"))?;
    let hash = Sha256::digest(&program);
    let hash = hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
    fs::write(out.join("hermes-guest"), program)?;
    println!("cargo::rustc-env=HERMES_GUEST_HASH={hash:016x}");
    Ok(())
}

/// The musl target if it is installed, because its guest is the smallest; otherwise the target of
/// this build, whose glibc can be linked statically.
fn target() -> Result<String, Box<dyn Error>> {
    let ours = env::var("TARGET")?;
    let musl = ours.replace("-gnu", "-musl");
    let library = rustc(&["--print", "target-libdir", "--target", &musl])?;
    Ok(if Path::new(&library).is_dir() { musl } else { ours })
}

fn flags(out: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned(), "-Cforce-unwind-tables=no".to_owned()];
    let ours = Path::new(&rustc(&["--print", "sysroot"])?).join("lib/rustlib").join(env::var("HOST")?);
    let lld = ours.join("bin/gcc-ld");
    // Toolchains of distributions lack this linker; their guest is a third larger.
    if lld.is_dir() {
        let script = out.join("without-unwinding.ld");
        fs::write(&script, WITHOUT_UNWINDING)?;
        for argument in [
            &format!("-B{}", lld.display()),
            "-fuse-ld=lld",
            "-Wl,--pack-dyn-relocs=relr",
            "-Wl,--icf=all",
            &format!("-Wl,-T,{}", script.display()),
        ] {
            flags.push(format!("-Clink-arg={argument}"));
        }
    }
    Ok(flags)
}

fn rustc(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = Command::new(env::var("RUSTC")?).args(arguments).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
