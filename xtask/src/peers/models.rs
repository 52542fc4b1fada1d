//! The vendors' own clients for language models, a third-party mock server, and discord.py.
//!
//! | | |
//! |---|---|
//! | needs | Debian's python3-venv and npm; PyPI and the npm registry for the first start |
//! | private | a virtual environment and a package directory of its own; nothing runs until a test starts it |
//! | cleans up | nothing is left to end; both directories stay in the state directory |

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::apt::Need;
use super::dirs::{self, Dirs};
use super::report::Access;
use super::run;

pub(crate) const NAME: &str = "models";

pub(crate) const NEEDS: &[Need] = &[
    Need { program: "python3", package: "python3" },
    Need { program: "pip3", package: "python3-venv" },
    Need { program: "node", package: "nodejs" },
    Need { program: "npm", package: "npm" },
];

const CLIENTS: &[&str] = &["openai", "anthropic", "discord.py"];
const SERVER: &str = "@copilotkit/aimock";
const LIMIT: Duration = Duration::from_secs(300);

fn python(dirs: &Dirs) -> PathBuf {
    dirs.state("models/venv/bin/python")
}

fn aimock(dirs: &Dirs) -> PathBuf {
    dirs.state("models/node_modules/@copilotkit/aimock/dist/cli.js")
}

/// Installs missing parts.
pub(crate) fn up(dirs: &Dirs) -> Result<()> {
    dirs::make(&dirs.state("models"), 0o755)?;
    let log = dirs.log(NAME);
    if versions(dirs).is_err() {
        let venv = dirs.state("models/venv");
        dirs::remove(&venv)?;
        run::logged(run::command("python3").args(["-m", "venv"]).arg(&venv), LIMIT, &log)?;
        let mut pip = run::command(venv.join("bin/pip"));
        run::logged(run::online(&mut pip).args(["install", "--quiet"]).args(CLIENTS), LIMIT, &log)?;
    }
    if !aimock(dirs).exists() {
        let mut npm = run::command("npm");
        let prefix = dirs.state("models");
        let install = run::online(&mut npm).args(["install", "--no-fund", "--no-audit", SERVER, "--prefix"]);
        run::logged(install.arg(prefix), LIMIT, &log)?;
    }
    probe(dirs).map(drop)
}

/// Nothing runs, so nothing is stopped.
pub(crate) fn down(_: &Dirs) -> Result<()> {
    Ok(())
}

/// Loads every package.
pub(crate) fn probe(dirs: &Dirs) -> Result<Access> {
    let version = versions(dirs)?;
    ensure!(aimock(dirs).exists(), "{SERVER} is not installed");
    Ok(Access::Models { python: python(dirs), aimock: aimock(dirs), version })
}

fn versions(dirs: &Dirs) -> Result<String> {
    let script = "import openai, anthropic, discord; print(openai.__version__, anthropic.__version__, discord.__version__)";
    let text = run::output(run::command(python(dirs)).args(["-c", script]), LIMIT)?;
    Ok(text.trim().to_owned())
}
