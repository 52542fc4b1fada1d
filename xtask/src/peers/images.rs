//! The images that containers are made from, built on this machine because none can be pulled.
//!
//! | name | content | built by |
//! |---|---|---|
//! | `bash` | Debian's essential packages and python3, without documentation | mmdebstrap |
//! | `busybox` | one static busybox and its links, no bash | tar |
//!
//! A tar archive is kept in the state directory under a name that changes with the recipe. It gets
//! that name only when it is complete, so a killed build leaves nothing that looks like an image.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::apt::Need;
use super::dirs::{self, Dirs};
use super::http::{self, Body};
use super::report;
use super::run;

/// Programs that the builds need.
pub(crate) const NEEDS: &[Need] = &[
    Need { program: "mmdebstrap", package: "mmdebstrap" },
    Need { program: "busybox", package: "busybox-static" },
];

/// A test image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Image {
    Bash,
    Busybox,
}

pub(crate) const ALL: [Image; 2] = [Image::Bash, Image::Busybox];

/// One release, whatever the machine runs, so that tests find the same programs everywhere.
const RELEASE: &str = "bookworm";

const BASH_OPTIONS: &[&str] = &[
    "--quiet",
    "--mode=root",
    "--variant=essential",
    "--include=bash,python3",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
];

const BUSYBOX_FILES: &[(&str, &str)] = &[
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
];

impl Image {
    /// The short name, also the tag.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Busybox => "busybox",
        }
    }

    /// The name in an engine.
    pub(crate) fn reference(self) -> String {
        format!("localhost/hermes-test:{}", self.name())
    }

    /// The name of this build of the image, which changes with the recipe.
    pub(crate) fn build(self) -> String {
        let recipe = match self {
            Self::Bash => dirs::fingerprint((RELEASE, BASH_OPTIONS)),
            Self::Busybox => dirs::fingerprint(BUSYBOX_FILES),
        };
        format!("{}-{recipe}", self.name())
    }

    /// The path of the archive, which may not exist yet.
    pub(crate) fn tarball(self, dirs: &Dirs) -> PathBuf {
        dirs.state("images").join(format!("{}.tar", self.build()))
    }

    /// The description for `peers.json`.
    pub(crate) fn describe(self, dirs: &Dirs) -> report::Image {
        report::Image {
            name: self.name().to_owned(),
            reference: self.reference(),
            tarball: self.tarball(dirs),
        }
    }

    fn shell(self) -> &'static str {
        match self {
            Self::Bash => "/bin/bash",
            Self::Busybox => "/bin/sh",
        }
    }
}

/// Builds missing archives.
pub(crate) fn ensure(dirs: &Dirs) -> Result<()> {
    dirs::make(&dirs.state("images"), 0o755)?;
    dirs::keep_only(&dirs.state("images"), &ALL.map(|image| format!("{}.tar", image.build())))?;
    for image in ALL {
        let tarball = image.tarball(dirs);
        if tarball.exists() {
            continue;
        }
        eprintln!("peers: building the {} image", image.name());
        let fresh = dirs.state("tmp").join(format!("{}.tar", image.build()));
        match image {
            Image::Bash => build_bash(dirs, &fresh),
            Image::Busybox => build_busybox(dirs, &fresh),
        }
        .with_context(|| format!("building the {} image", image.name()))?;
        fs::rename(&fresh, &tarball)?;
    }
    Ok(())
}

fn build_bash(dirs: &Dirs, tarball: &Path) -> Result<()> {
    let mut command = run::contained("mmdebstrap");
    command.args(BASH_OPTIONS).arg(RELEASE).arg(tarball);
    run::logged(run::online(&mut command), Duration::from_secs(900), &dirs.log("image-bash"))
}

fn build_busybox(dirs: &Dirs, tarball: &Path) -> Result<()> {
    let limit = Duration::from_secs(60);
    let root = dirs.state("tmp/busybox");
    for dir in ["bin", "dev", "etc", "home", "proc", "root", "sys", "usr", "var"] {
        dirs::make(&root.join(dir), 0o755)?;
    }
    dirs::make(&root.join("tmp"), 0o1777)?;
    symlink("../bin", root.join("usr/bin"))?;
    for (path, contents) in BUSYBOX_FILES {
        dirs::write(&root.join(path), contents, 0o644)?;
    }
    let busybox = run::PATH
        .split(':')
        .map(|dir| Path::new(dir).join("busybox"))
        .find(|path| path.exists())
        .context("no busybox")?;
    fs::copy(busybox, root.join("bin/busybox"))?;
    let applets = run::output(run::command("busybox").arg("--list"), limit)?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    let mut tar = run::contained("tar");
    tar.args(["--create", "--owner=0", "--group=0", "--numeric-owner", "--sort=name", "--file"]);
    tar.arg(tarball).arg("--directory").arg(&root).arg(".");
    run::output(&mut tar, limit).map(drop)
}

const LABEL: &str = "dev.hermes.peers.build";

/// Imports the images into an engine, unless it has them.
pub(crate) fn import(dirs: &Dirs, engine: &str, socket: &Path) -> Result<()> {
    for image in ALL {
        if held_build(socket, image)?.as_deref() == Some(image.build().as_str()) {
            continue;
        }
        eprintln!("peers: {engine}: importing the {} image", image.name());
        let changes = [format!("LABEL {LABEL}={}", image.build()), format!("CMD [\"{}\"]", image.shell())];
        let target = format!(
            "/images/create?fromSrc=-&repo={}&changes={}&changes={}",
            encode(&image.reference()),
            encode(&changes[0]),
            encode(&changes[1])
        );
        let mut file = File::open(image.tarball(dirs))?;
        let body = Body { kind: "application/x-tar", length: file.metadata()?.len(), bytes: &mut file };
        let answer = http::request(socket, "POST", &target, Some(body), Duration::from_secs(300))?;
        // An engine answers 200 before the import starts, so only the image itself proves the
        // import.
        held_build(socket, image)?
            .with_context(|| format!("{} did not import: {}", engine, String::from_utf8_lossy(&answer)))?;
    }
    Ok(())
}

/// Returns the build of the image that the engine has under its name.
fn held_build(socket: &Path, image: Image) -> Result<Option<String>> {
    let target = format!("/images/{}/json", image.reference());
    let answer = match http::request(socket, "GET", &target, None, Duration::from_secs(60)) {
        Ok(answer) => answer,
        Err(error) if error.to_string().contains("status 404") => return Ok(None),
        Err(error) => return Err(error),
    };
    let document: Value = serde_json::from_slice(&answer)?;
    let label = document.get("Config").and_then(|config| config.get("Labels")?.get(LABEL)?.as_str());
    Ok(label.map(str::to_owned))
}

/// Percent-encodes a query value.
fn encode(value: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_value_survives_encoding() {
        let cases = [
            ("localhost/hermes-test:bash", "localhost/hermes-test:bash"),
            ("CMD [\"/bin/sh\"]", "CMD%20%5B%22/bin/sh%22%5D"),
            ("a&b=c+d%", "a%26b%3Dc%2Bd%25"),
            ("ä", "%C3%A4"),
        ];
        for (value, encoded) in cases {
            assert_eq!(encode(value), encoded);
        }
    }
}
